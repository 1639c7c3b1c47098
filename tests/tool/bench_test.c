// Benchmarks: each runs small and does exactly what was asked, as the pool itself counts it. Nothing is said about
// time.
#include "tools/bench/bench.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"
#include "tools/bench/latency.h"
#include "tools/bench/report.h"
#include "tools/bench/rounds.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)

static bench_options small(const char *name) {
  bench_options o = BENCH_OPTIONS_INIT;
  if (strcmp(name, "churn") == 0) {
    o.live = 300;
    o.setup_pairs = 1000;
  }
  if (strcmp(name, "scale") == 0) o.live = 5000;
  if (strcmp(name, "fill") == 0) {
    o.device_bytes = 128 * MIB;
    o.seeds = 2;
  } else {
    o.pairs = 777;
  }
  return o;
}

static bench_result run(const char *name, bench_options o) {
  bench_result r = {0};
  tool_error error = {{0}};
  const benchmark *b = bench_find(name);
  if (b == NULL || !bench_run(b, &o, &r, &error)) VADD_FAILURE("%s: %s", name, error.text);
  VEXPECT_STR_EQ(r.fault, "");
  return r;
}

// ---- exactly N pairs ----

typedef struct named {
  const char *name;
} named;
static const char *named_name(const named *n) { return n->name; }
static const named all[] = {{"pair"}, {"batch"}, {"churn"}, {"threads"}, {"scale"}, {"fill"}, {"step"}, {"log"}};
static const named counted[] = {{"pair"}, {"batch"}, {"churn"}, {"threads"}, {"scale"}, {"step"}};
static const named timed[] = {{"pair"}, {"batch"}, {"churn"}};

// The pool counts what it handed out after the set-up; odd numbers, fewer than rounds, and more than a batch.
VTEST_P(Bench, PairsAreExact, named, counted, named_name) {
  static const uint64_t pairs[] = {1, 24, 25, 257, 1001};
  for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
    VTRACE("%llu pairs", (unsigned long long)pairs[i]);
    bench_options o = small(p->name);
    o.pairs = pairs[i];
    const bench_result r = run(p->name, o);
    VEXPECT_UINT_EQ(r.pairs, pairs[i]);
    VEXPECT_UINT_EQ(r.allocs, pairs[i]);
  }
}

VTEST_P(Bench, TheSetupDoesNotDependOnPairs, named, counted, named_name) {
  if (strcmp(p->name, "threads") == 0) return;  // its threads warm up for a time, not for a number of pairs
  bench_options o = small(p->name);
  const bench_result one = run(p->name, o);
  o.pairs *= 2;
  VEXPECT_UINT_EQ(run(p->name, o).setup_allocs, one.setup_allocs);
}

VTEST_P(Bench, SingleAllocationsAreAPassOfTheirOwn, named, timed, named_name) {
  bench_options o = small(p->name);
  o.latency = true;
  const bench_result r = run(p->name, o);
  VEXPECT_UINT_EQ(r.allocs, 2 * o.pairs);
  VEXPECT_TRUE(r.has_latency);
  VEXPECT_REAL_GT(r.ns_p50, 0);
  VEXPECT_REAL_GE(r.ns_p99, r.ns_p50);
  VEXPECT_REAL_GE(r.ns_p999, r.ns_p99);
  VEXPECT_UINT_LE(r.driver_call_allocs, o.pairs);
}

// A pool that maps and gives back at each pair: each allocation makes driver calls, and none is among the others.
VTEST(Bench, AllocationsWithDriverCallsAreApart) {
  bench_options o = small("churn");
  o.latency = true;
  o.device_bytes = 4 * GIB;
  o.setup_pairs = 0;
  const bench_result r = run("churn", o);
  VEXPECT_UINT_GT(r.driver_calls, 0);
  VEXPECT_REAL_GE(r.driver_call_ns_max, r.driver_call_ns_p50);
}

// ---- what they do ----

VTEST(Bench, PairKeepsOthersLive) {
  bench_options o = small("pair");
  o.live = 40;
  const bench_result r = run("pair", o);
  VEXPECT_UINT_EQ(r.live_blocks, 40);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 41 * 64 * KIB);
  VEXPECT_UINT_EQ(r.setup_allocs, 40 + 1000);
  VEXPECT_UINT_EQ(r.driver_calls, 0);
}

VTEST(Bench, BatchHolds256Blocks) {
  VEXPECT_UINT_EQ(run("batch", small("batch")).peak_requested_bytes, 256 * 64 * KIB);
}

VTEST(Bench, ChurnKeepsItsBlocksLiveAndFollowsItsSeed) {
  bench_options o = small("churn");
  const bench_result a = run("churn", o), b = run("churn", o);
  VEXPECT_UINT_EQ(a.live_blocks, 300);
  VEXPECT_UINT_EQ(a.setup_allocs, 300 + 1000);
  VEXPECT_UINT_EQ(a.peak_requested_bytes, b.peak_requested_bytes);
  VEXPECT_UINT_EQ(a.peak_mapped_bytes, b.peak_mapped_bytes);
  VEXPECT_UINT_EQ(a.metadata_bytes, b.metadata_bytes);
  VEXPECT_UINT_GE(a.peak_mapped_bytes, a.peak_live_bytes);
  VEXPECT_UINT_GE(a.peak_live_bytes, a.peak_requested_bytes);
  // 300 blocks of 5.43 MiB on average (log-uniform from 512 B to 64 MiB): 1.6 GiB, within a factor.
  VEXPECT_UINT_GT(a.peak_requested_bytes, GIB);
  VEXPECT_UINT_LT(a.peak_requested_bytes, 3 * GIB);
  o.seed = 2;
  VEXPECT_UINT_NE(run("churn", o).peak_requested_bytes, a.peak_requested_bytes);
}

VTEST(Bench, ScaleComparesTwoPools) {
  const bench_result r = run("scale", small("scale"));
  VEXPECT_TRUE(r.has_ratio);
  VEXPECT_REAL_GT(r.ratio, 0);
  VEXPECT_UINT_EQ(r.live_few, 1000);
  VEXPECT_UINT_EQ(r.live_many, 5000);
  VEXPECT_UINT_EQ(r.live_blocks, 5000);
  VEXPECT_UINT_EQ(r.setup_allocs, 6000);
  VEXPECT_REAL_GT(r.metadata_bytes_per_block, 0);
}

VTEST(Bench, ThreadsShareThePairs) {
  static const uint32_t threads[] = {1, 2, 5};
  for (size_t i = 0; i < 3; i++) {
    bench_options o = small("threads");
    o.threads = threads[i];
    o.pairs = 1003;
    const bench_result r = run("threads", o);
    VEXPECT_UINT_EQ(r.allocs, 1003);
    VEXPECT_UINT_EQ(r.threads, threads[i]);
    VEXPECT_TRUE(r.has_scaling);
    VEXPECT_UINT_EQ(r.live_blocks, 0);
    VEXPECT_UINT_LE(r.peak_requested_bytes, threads[i] * 64 * KIB);
  }
}

VTEST(Bench, FillEndsAtTheFirstFailure) {
  const bench_result r = run("fill", small("fill"));
  VEXPECT_TRUE(r.has_share);
  VEXPECT_UINT_EQ(r.num_seeds, 2);
  VEXPECT_REAL_GT(r.share_at_first_failure, 0.3);
  VEXPECT_REAL_LE(r.share_at_first_failure, 1);
  VEXPECT_REAL_LE(r.share_worst, r.share_at_first_failure);
  VEXPECT_UINT_LE(r.peak_mapped_bytes, 128 * MIB);
}

// The share is what the pool itself counts as requested at the failure, which serves nothing.
VTEST(Bench, TheShareIsWhatIsLive) {
  bench_options o = small("fill");
  o.seeds = 1;
  const bench_result r = run("fill", o);
  VEXPECT_NEAR(r.share_at_first_failure, (double)r.requested_bytes / (double)(128 * MIB), 1e-12);
}

VTEST(Bench, FillCanEndBeforeAnyFailure) {
  bench_options o = small("fill");
  o.seeds = 1;
  o.device_bytes = 8 * GIB;
  o.pairs = 200;  // at half of the device
  const bench_result r = run("fill", o);
  VEXPECT_FALSE(r.has_share);
  VEXPECT_UINT_EQ(r.pairs, 200);
  VEXPECT_UINT_EQ(r.allocs, 200);
}

// The check values of one step of gpt2-xl, batch 4, sequence 1024 (tests/tool/train_test.c).
VTEST(Bench, StepIsTheTrainingStep) {
  bench_options o = small("step");
  o.pairs = 2 * 2229;
  const bench_result r = run("step", o);
  VEXPECT_UINT_EQ(r.setup_allocs, 2320 + 3 * 2229);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, UINT64_C(33980466820));
  VEXPECT_NEAR(r.steps, 2, 1e-12);
  VEXPECT_NEAR(r.driver_calls_per_step, (double)r.driver_calls / 2, 1e-12);
  VEXPECT_UINT_EQ(r.device_bytes % (2 * MIB), 0);
  VEXPECT_UINT_LE(r.device_bytes * 50, r.peak_requested_bytes * 51);
  VEXPECT_UINT_GT((r.device_bytes + 2 * MIB) * 50, r.peak_requested_bytes * 51);
}

VTEST_P(Bench, QueuedTouchesFindNothingWrong, named, all, named_name) {
  static const char *const modes[] = {"late", "early", "seed:3", "lag:10"};
  for (size_t i = 0; i < 4; i++) {
    VTRACE("--work %s", modes[i]);
    bench_options o = small(p->name);
    o.pairs = 300;
    VASSERT_TRUE(work_mode_parse(modes[i], &o.work));
    run(p->name, o);  // expects no fault
  }
}

VTEST(Bench, ADeviceThatIsTooSmallIsNoFigure) {
  bench_options o = small("churn");
  o.device_bytes = 64 * MIB;
  bench_result r = {0};
  tool_error error = {{0}};
  VEXPECT_FALSE(bench_run(bench_find("churn"), &o, &r, &error));
  VEXPECT_STR_CONTAINS(error.text, "could not serve a request");
}

// ---- parts ----

VTEST(Rounds, SharesAddUp) {
  static const uint64_t pairs[] = {0, 1, 24, 25, 26, 1000003, UINT64_MAX};
  for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
    uint64_t sum = 0;
    for (uint64_t round = 0; round < BENCH_ROUNDS; round++) sum += rounds_share(pairs[i], round);
    VEXPECT_UINT_EQ(sum, pairs[i]);
  }
}

VTEST(Rounds, MediansAndRatiosLeaveOutEmptyRounds) {
  bench_subject a = {.ns = {0}}, b = {.ns = {0}};
  const double as[] = {4, 0, 9, 1}, bs[] = {2, 7, 3, 0};
  memcpy(a.ns, as, sizeof(as));
  memcpy(b.ns, bs, sizeof(bs));
  VEXPECT_NEAR(rounds_median(&a), 4, 0);
  VEXPECT_NEAR(rounds_least(&a), 1, 0);
  VEXPECT_NEAR(rounds_ratio(&a, &b), 2.5, 0);  // of 4 / 2 and 9 / 3
  VEXPECT_NEAR(rounds_median(&(bench_subject){.ns = {0}}), 0, 0);
}

VTEST(Latency, BucketsKeepDurationsWithinAHundredthAndInOrder) {
  uint64_t previous = 0;
  for (uint64_t ticks = 0; ticks < UINT64_MAX / 2; ticks += ticks / 50 + 1) {
    const unsigned bucket = latency_bucket(ticks);
    VASSERT_UINT_LT(bucket, LATENCY_BUCKETS);
    const uint64_t value = latency_value(bucket);
    VASSERT_UINT_LE(value, ticks);
    VASSERT_UINT_LE(ticks - value, ticks / 128);
    VASSERT_UINT_GE(bucket, previous);
    previous = bucket;
  }
  VEXPECT_UINT_EQ(latency_bucket(UINT64_MAX), LATENCY_BUCKETS - 1);
}

VTEST(Latency, PercentilesOfKnownDurations) {
  latency_histogram *h = calloc(1, sizeof(*h));
  VEXPECT_UINT_EQ(latency_at(h, 0.5), 0);
  for (uint64_t i = 1; i <= 100; i++) latency_add(h, i);
  VEXPECT_UINT_EQ(latency_at(h, 0), 1);
  VEXPECT_UINT_EQ(latency_at(h, 0.5), 51);
  VEXPECT_UINT_EQ(latency_at(h, 0.99), 100);
  VEXPECT_UINT_EQ(latency_at(h, 1), 100);
  VEXPECT_UINT_EQ(h->largest, 100);
  free(h);
}

// ---- the document ----

static json_t *document_of(const bench_result *r) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(bench_report_json(out, r));
  fclose(out);
  json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  return document;
}

typedef struct keys {
  const char *name;
  bool latency;
  const char *keys[8];
} keys;
static const char *keys_name(const keys *k) { return k->name; }
static const keys documents[] = {
    {"pair", true, {"ns_p50", "ns_p99", "ns_p999", "driver_call_allocs"}},
    {"batch", false, {0}},
    {"churn", true, {"ns_p50", "ns_p99", "ns_p999"}},
    {"threads", false, {"scaling", "threads"}},
    {"scale", false, {"ratio", "metadata_bytes_per_block"}},
    {"fill", false, {"share_at_first_failure", "median", "worst"}},
    {"step", false, {"driver_calls_per_step"}},
    {"log", false, {"ns_per_event", "ns_median_without_log"}},
};

VTEST_P(Bench, DocumentsHaveTheirKeys, keys, documents, keys_name) {
  static const char *const common[] = {"name",
                                       "seed",
                                       "pairs",
                                       "ns_median",
                                       "ns_min",
                                       "peak_requested_bytes",
                                       "peak_live_bytes",
                                       "peak_mapped_bytes",
                                       "metadata_bytes"};
  static const char *const own[] = {"ns_p50",      "ns_p99",
                                    "ns_p999",     "scaling",
                                    "ratio",       "median",
                                    "worst",       "share_at_first_failure",
                                    "peers",       "driver_calls_per_step",
                                    "ns_per_event"};
  bench_options o = small(p->name);
  o.latency = p->latency;
  const bench_result filled = {.name = "fill", .has_share = true, .share_at_first_failure = 0.9, .num_seeds = 2};
  const bench_result r = strcmp(p->name, "fill") == 0 ? filled : run(p->name, o);  // which takes its time
  json_t *document = document_of(&r);
  VASSERT_NOT_NULL(document);
  VEXPECT_STR_EQ(json_string_value(json_object_get(document, "name")), p->name);
  for (size_t i = 0; i < sizeof(common) / sizeof(common[0]); i++) {
    VTRACE("key %s", common[i]);
    VEXPECT_NOT_NULL(json_object_get(document, common[i]));
  }
  for (size_t i = 0; i < 8 && p->keys[i] != NULL; i++) {
    VTRACE("key %s", p->keys[i]);
    VEXPECT_TRUE(json_is_number(json_object_get(document, p->keys[i])));
  }
  for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++) {  // and no others
    bool expected = false;
    for (size_t k = 0; k < 8 && p->keys[k] != NULL; k++) expected = expected || strcmp(p->keys[k], own[i]) == 0;
    VTRACE("key %s", own[i]);
    if (!expected) VEXPECT_NULL(json_object_get(document, own[i]));
  }
  json_decref(document);
}

// ---- the program ----

#define TOOL "tools/vmpool/vmpool"
#define ARGS(...) ((const char *const[]){TOOL, "bench", __VA_ARGS__, NULL})

static vtest_process start(const char *const *argv) {
  vtest_process p = {0};
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("VMP_CONF");
  if (vtest_process_run(&p, argv, NULL) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  return p;
}

typedef struct mistake {
  const char *name;
  const char *argv[6];
  const char *says;
} mistake;
static const char *mistake_name(const mistake *m) { return m->name; }
static const mistake mistakes[] = {
    {"nothing", {0}, "a benchmark is missing"},
    {"unknown", {"sort"}, "'sort' is none of pair, batch"},
    {"two", {"pair", "batch"}, "'batch' is a second one"},
    {"unknown_option", {"pair", "--frobnicate"}, "unrecognized option"},
    {"zero_pairs", {"pair", "--pairs", "0"}, "--pairs: 0 is outside"},
    {"bad_pairs", {"pair", "--pairs", "1e6"}, "--pairs: '1e6' is not a whole number"},
    {"negative_seed", {"pair", "--seed=-1"}, "--seed: '-1' is negative"},
    {"zero_live", {"churn", "--live", "0"}, "--live: 0 is outside"},
    {"live_for_batch", {"batch", "--live", "5"}, "--live: batch"},
    {"threads_for_pair", {"pair", "--threads", "2"}, "--threads: pair"},
    {"too_many_threads", {"threads", "--threads", "257"}, "--threads: 257 is outside"},
    {"seeds_for_churn", {"churn", "--seeds", "2"}, "--seeds: churn"},
    {"setup_for_pair", {"pair", "--setup-pairs", "2"}, "--setup-pairs: pair"},
    {"latency_for_fill", {"fill", "--latency"}, "--latency: fill"},
    {"peers_for_step", {"step", "--peers"}, "--peers: step"},
    {"bad_work", {"pair", "--work", "soon"}, "--work: 'soon'"},
    {"bad_driver", {"pair", "--driver", "metal"}, "--driver: 'metal'"},
    {"cuda_fill", {"fill", "--driver", "cuda"}, "fill needs the host driver"},
    {"cuda_device", {"pair", "--driver", "cuda", "--device-bytes", "1GiB"}, "--device-bytes is for the host driver"},
    {"zero_device", {"pair", "--device-bytes", "0"}, "--device-bytes"},
    {"bad_preset", {"pair", "--preset", "loose"}, "loose"},
    {"bad_conf", {"pair", "--conf", "chunk_maxx:1"}, "chunk_maxx"},
    {"json_nowhere", {"pair", "--json", "no/such/dir/x.json"}, "no/such/dir/x.json"},
    {"small_device", {"churn", "--device-bytes", "64MiB"}, "could not serve a request"},
};

VTEST_P(BenchCommand, MistakesAreOneSentence, mistake, mistakes, mistake_name) {
  const char *argv[9] = {TOOL, "bench"};
  for (size_t i = 0; i < 6 && p->argv[i] != NULL; i++) argv[i + 2] = p->argv[i];
  vtest_process process = start(argv);
  VEXPECT_INT_EQ(process.status, 2);
  VEXPECT_STR_EQ(process.out, "");
  VEXPECT_STR_CONTAINS(process.err, p->says);
  VEXPECT_PTR_EQ(strchr(process.err, '\n'), process.err + process.err_bytes - 1);  // one line
  vtest_process_free(&process);
}

VTEST(BenchCommand, TheDocumentIsAloneOnStandardOutput) {
  vtest_process process = start(ARGS("pair", "--pairs", "100", "--seed", "7", "--json", "-"));
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.err, "");
  json_t *document = json_loads(process.out, JSON_REJECT_DUPLICATES, NULL);
  VASSERT_NOT_NULL(document);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "pairs")), 100);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "allocs")), 100);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "seed")), 7);
  json_decref(document);
  vtest_process_free(&process);
}

VTEST(BenchCommand, TheDocumentGoesToAFileAndTheFiguresToTheReader) {
  char path[600];
  snprintf(path, sizeof(path), "%s/bench.json", vtest_temp_dir());
  vtest_process process = start(ARGS("scale", "--pairs", "100", "--live", "2000", "--json", path));
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.out, "2000 live blocks against 1000");
  json_t *document = json_load_file(path, JSON_REJECT_DUPLICATES, NULL);
  VASSERT_NOT_NULL(document);
  VEXPECT_TRUE(json_is_number(json_object_get(document, "ratio")));
  json_decref(document);
  unlink(path);
  vtest_process_free(&process);
}

VTEST(BenchCommand, HelpNamesEveryBenchmarkAndOption) {
  static const char *const options[] = {"--driver",  "--device-bytes", "--preset", "--conf",       "--pairs",
                                        "--seed",    "--seeds",        "--live",   "--threads",    "--work",
                                        "--latency", "--peers",        "--json",   "--setup-pairs"};
  vtest_process process = start(ARGS("--help"));
  VEXPECT_INT_EQ(process.status, 0);
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) VEXPECT_STR_CONTAINS(process.out, options[i]);
  for (size_t i = 0; i < num_benchmarks; i++) VEXPECT_STR_CONTAINS(process.out, benchmarks[i].name);
  vtest_process_free(&process);
}

// Every allocator either takes part, or is named on standard error with the reason.
typedef struct contest {
  const char *name, *live, *figure;
} contest;
static const contest contests[] = {{"pair", "1", "ratio_median"}, {"scale", "2000", "ratio_to_few"}};
static const char *contest_name(const contest *c) { return c->name; }

VTEST_P(BenchCommand, PeersTakePartOrAreNamed, contest, contests, contest_name) {
#if defined(__SANITIZE_ADDRESS__)
  VSKIP("tcmalloc keeps memory to the end, which the leak check reports");
#else
  static const char *const peers[] = {"mimalloc", "jemalloc", "tcmalloc"};
  vtest_process process = start(ARGS(p->name, "--live", p->live, "--pairs", "2500", "--peers", "--json", "-"));
  VEXPECT_INT_EQ(process.status, 0);
  json_t *document = json_loads(process.out, JSON_REJECT_DUPLICATES, NULL);
  VASSERT_NOT_NULL(document);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "allocs")), 2500);  // the pool's own
  const json_t *list = json_object_get(document, "peers");
  VEXPECT_TRUE(json_is_array(list));
  for (size_t i = 0; i < 3; i++) {
    VTRACE("%s", peers[i]);
    const json_t *found = NULL;
    for (size_t k = 0; k < json_array_size(list); k++) {
      const json_t *peer = json_array_get(list, k);
      if (strcmp(json_string_value(json_object_get(peer, "name")), peers[i]) == 0) found = peer;
    }
    if (found == NULL) {
      char skipped[40];
      snprintf(skipped, sizeof(skipped), "SKIPPED %s: ", peers[i]);
      VEXPECT_STR_CONTAINS(process.err, skipped);
    } else {
      VEXPECT_REAL_GT(json_number_value(json_object_get(found, "ns_median")), 0);
      VEXPECT_REAL_GT(json_number_value(json_object_get(found, "ratio_median")), 0);
      VEXPECT_REAL_GT(json_number_value(json_object_get(found, p->figure)), 0);
    }
  }
  json_decref(document);
  vtest_process_free(&process);
#endif
}
