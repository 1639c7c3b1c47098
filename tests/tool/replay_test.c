// Replays of small traces whose figures can be worked out by hand.
#include "tools/replay/replay.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/vmpool_host.h"
#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/replay/report.h"

#define MIB (UINT64_C(1) << 20)
#define GRANULE (2 * MIB)

static replay_result run(const char *text, replay_options options) {
  replay_result result = {0};
  tool_error error;
  trace *t = parse_text(text, &error);
  VEXPECT_NOT_NULL(t);
  if (t != NULL && !replay_run(t, &options, &result, &error)) VADD_FAILURE("%s", error.text);
  trace_close(t);
  return result;
}

static const replay_options defaults = REPLAY_OPTIONS_INIT;

// Bug case 71: a trace that begins in the middle and ends with live blocks.
VTEST(Replay, CountsWhatItDoes) {
  const replay_result r = run("free 17\nalloc 1 4096 0\nfree 1\nfree 99\nalloc 1 512 0\nalloc 2 100 0\n", defaults);
  VEXPECT_UINT_EQ(r.ops, 4);
  VEXPECT_UINT_EQ(r.allocs, 3);
  VEXPECT_UINT_EQ(r.frees, 1);
  VEXPECT_UINT_EQ(r.unmatched_frees, 2);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 4096);
  VEXPECT_UINT_EQ(r.end_live_bytes, 1024);  // two objects of 512
  VEXPECT_UINT_EQ(r.end_live_blocks, 2);
  VEXPECT_UINT_GE(r.end_mapped_bytes, GRANULE);
  VEXPECT_UINT_GE(r.driver_calls.reserve, 1);
  VEXPECT_UINT_GE(r.driver_calls.create, 1);
  VEXPECT_UINT_GE(r.driver_calls.map, 1);
  VEXPECT_UINT_GE(r.driver_calls.set_access, 1);
  VEXPECT_REAL_GT(r.mean_utilisation, 0);
  VEXPECT_REAL_LT(r.mean_utilisation, 1);
  VEXPECT_REAL_GT(r.modelled_driver_us, 30);  // a create alone is 30 us
  VEXPECT_STR_EQ(r.fault, "");
  VEXPECT_TRUE(replay_good(&r));
}

// The highest point is reached twice; the first time counts: 3 MiB are live on two granules.
VTEST(Replay, FragmentationAtThePeak) {
  replay_options options = REPLAY_OPTIONS_INIT;
  options.preset = "tight";
  const replay_result r = run(
      "alloc 1 3145728 0\nfree 1\nalloc 2 1048576 0\nalloc 3 2097152 0\nfree 2\nfree 3\nalloc 4 2097152 0\nfree 4\n",
      options);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 3 * MIB);
  VEXPECT_UINT_EQ(r.mapped_at_peak_bytes, 4 * MIB);
  VEXPECT_NEAR(r.fragmentation_at_peak, 0.25, 1e-12);
  VEXPECT_NEAR(run("", options).fragmentation_at_peak, 0, 1e-12);
}

// A create costs 30 us by default. The clock is virtual, so the difference is exact.
VTEST(Replay, TheCostFileIsTheClocks) {
  char path[600];
  snprintf(path, sizeof(path), "%s/replay.cost", vtest_temp_dir());
  FILE *file = fopen(path, "w");
  VASSERT_NOT_NULL(file);
  fputs("# all others keep their defaults\nmem_create 1030\n", file);
  VASSERT_INT_EQ(fclose(file), 0);
  replay_options options = defaults;
  const replay_result before = run("alloc 1 4096 0\nfree 1\n", options);
  options.cost_file = path;
  const replay_result after = run("alloc 1 4096 0\nfree 1\n", options);
  remove(path);
  VEXPECT_UINT_EQ(after.driver_calls.create, before.driver_calls.create);
  VEXPECT_NEAR(after.modelled_driver_us - before.modelled_driver_us, 1000.0 * (double)before.driver_calls.create, 1e-6);
}

// Bug case 70: nothing, and only frees. No division by zero, no wrap.
VTEST(Replay, NothingIsZero) {
  static const char *const texts[] = {"", "free 1\nfree 2\n"};
  for (int i = 0; i < 2; i++) {
    const replay_result r = run(texts[i], defaults);
    VEXPECT_UINT_EQ(r.ops, 0);
    VEXPECT_UINT_EQ(r.unmatched_frees, i == 0 ? 0 : 2);
    VEXPECT_UINT_EQ(r.peak_requested_bytes, 0);
    VEXPECT_UINT_EQ(r.end_live_bytes, 0);
    VEXPECT_NEAR(r.mean_utilisation, 0, 0);
    VEXPECT_NEAR(r.unfinished_wait_share, 0, 0);
    VEXPECT_NEAR(r.ns_per_op, 0, 0);
    VEXPECT_TRUE(replay_good(&r));
  }
}

VTEST(Replay, EmptyBlocksAreFine) {
  const replay_result r = run("alloc 1 0 0\nalloc 2 0 3\nfree 1\nfree 2\n", defaults);
  VEXPECT_UINT_EQ(r.allocs, 2);
  VEXPECT_UINT_EQ(r.frees, 2);
  VEXPECT_TRUE(replay_good(&r));
}

VTEST(Replay, FailedAllocationsAreCountedAndTheirFreesSkipped) {
  replay_options options = defaults;
  options.device_bytes = 64 * MIB;
  const replay_result r =
      run("alloc 1 1048576 0\nalloc 2 73400320 0\nfree 2\nfree 1\nalloc 3 18446744073709551615 0\n", options);
  VEXPECT_UINT_EQ(r.allocs, 3);
  VEXPECT_UINT_EQ(r.failed_allocs, 2);
  VEXPECT_UINT_EQ(r.frees, 1);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 1048576);
  VEXPECT_STR_NE(r.first_failure, "");
  VEXPECT_FALSE(replay_good(&r));
}

VTEST(Replay, SizesAreScaled) {
  replay_options options = defaults;
  options.scale = 1024;
  VEXPECT_UINT_EQ(run("alloc 1 3000 0\n", options).peak_requested_bytes, 3000 * 1024);
  options.scale = 0.125;
  VEXPECT_UINT_EQ(run("alloc 1 3007 0\nalloc 2 1 0\nalloc 3 0 0\n", options).peak_requested_bytes, 375 + 1 + 0);
}

VTEST(Replay, ScalesThatOverflowAreRefused) {
  tool_error error;
  trace *t = parse_text("alloc 1 18446744073709551615 0\n", &error);
  VASSERT_NOT_NULL(t);
  replay_options options = defaults;
  options.scale = 2;
  replay_result r;
  VEXPECT_FALSE(replay_run(t, &options, &r, &error));
  VEXPECT_STR_CONTAINS(error.text, "over 2^64 - 1");
  trace_close(t);
}

VTEST(Replay, RepetitionsRenumberAndKeepWhatIsLeft) {
  replay_options options = defaults;
  options.repeat = 5;
  const replay_result r = run("free 7\nalloc 1 1000 0\nalloc 2 5000 0\nfree 2\n", options);
  VEXPECT_UINT_EQ(r.ops, 15);
  VEXPECT_UINT_EQ(r.allocs, 10);
  VEXPECT_UINT_EQ(r.frees, 5);
  VEXPECT_UINT_EQ(r.unmatched_frees, 5);
  VEXPECT_UINT_EQ(r.end_live_blocks, 5);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 5 * 1000 + 5000);
}

// 4 blocks of a granule, every second one freed: 2 steps of 3 events. In late mode nothing has finished by the steps,
// but one stream's memory moves all the same; at the end everything has finished.
static const char comb[] =
    "alloc 1 2097152 0\nalloc 2 2097152 0\nalloc 3 2097152 0\nalloc 4 2097152 0\nfree 1\nfree 3\n";

VTEST(Replay, DefragmentsAfterSteps) {
  replay_options options = defaults;
  options.preset = "tight";
  options.step_every = 3;
  VEXPECT_FALSE(run(comb, options).has_defragmentation);
  options.defragment_every = 1;
  const replay_result r = run(comb, options);
  VEXPECT_TRUE(r.has_defragmentation);
  VEXPECT_UINT_EQ(r.defragmentation.runs, 2);
  VEXPECT_UINT_EQ(r.defragmentation.largest_before_bytes, GRANULE);
  VEXPECT_UINT_EQ(r.defragmentation.largest_after_bytes, 2 * GRANULE);
  VEXPECT_UINT_GE(r.defragmentation.moved_bytes, GRANULE);
  VEXPECT_UINT_LE(r.defragmentation.moved_bytes, 2 * GRANULE);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_UINT_EQ(r.end_mapped_bytes, 4 * GRANULE);
  VEXPECT_TRUE(replay_good(&r));
  options.defragment_every = 2;
  VEXPECT_UINT_EQ(run(comb, options).defragmentation.runs, 1);
  options.defragment_every = 3;  // there are two steps
  VEXPECT_UINT_EQ(run(comb, options).defragmentation.runs, 0);
  options.repeat = 3;  // six steps
  VEXPECT_UINT_EQ(run(comb, options).defragmentation.runs, 2);
}

VTEST(Replay, DefragmentsAtTheEnd) {
  replay_options options = defaults;
  options.preset = "tight";
  options.defragment_end = true;
  const replay_result r = run(comb, options);
  VEXPECT_UINT_EQ(r.defragmentation.runs, 1);
  VEXPECT_UINT_EQ(r.defragmentation.largest_before_bytes, GRANULE);
  VEXPECT_UINT_EQ(r.defragmentation.largest_after_bytes, 2 * GRANULE);
  VEXPECT_UINT_GT(r.driver_calls.unmap, 0);  // the old mapping is gone
  VEXPECT_TRUE(replay_good(&r));
  VEXPECT_UINT_EQ(run("", options).defragmentation.moved_bytes, 0);
}

// Random traces on several streams, with work late and by a seed: no touch of memory that isn't there.
VTEST(Replay, DefragmentingUnderWork) {
  static const vmp_host_work_mode modes[] = {VMP_WORK_LATE, VMP_WORK_SEED, VMP_WORK_LAG, VMP_WORK_EARLY};
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  rng random = {.state = vtest_seed(5)};
  bool live[200] = {false};
  for (int i = 0; i < 3000; i++) {
    const unsigned id = (unsigned)rng_between(&random, 0, 199);
    if (live[id]) {
      fprintf(out, "free %u\n", id);
    } else {
      fprintf(out, "alloc %u %llu 0\n", id, (unsigned long long)rng_between(&random, 1, 32768) * 512);
    }
    live[id] = !live[id];
  }
  fclose(out);
  uint64_t moved = 0;
  for (size_t i = 0; i < 8; i++) {
    replay_options options = defaults;
    options.preset = i < 6 ? "tight" : NULL;
    options.streams = i % 2 == 0 ? 1 : 3;
    options.work.mode = modes[i / 2];
    options.work.value = 3;
    options.step_every = 50;
    options.defragment_every = 2;
    options.defragment_end = true;
    const replay_result r = run(text, options);
    VEXPECT_TRUE(replay_good(&r));
    VEXPECT_UINT_EQ(r.defragmentation.runs, 31);
    moved += r.defragmentation.moved_bytes;
  }
  VEXPECT_UINT_GT(moved, 0);
  free(text);
}

VTEST(Replay, IntrudersComeAfterEveryNEventsAndStay) {
  replay_options options = defaults;
  options.repeat = 10;
  tool_error error = {{0}};
  VASSERT_TRUE(intruder_parse("every=4,bytes=64KiB..1MiB", &options.intruder, &error));
  // 20 events, so 5 intruders; each is live from then on.
  const replay_result r = run("alloc 1 512 0\nfree 1\n", options);
  VEXPECT_UINT_EQ(r.ops, 25);
  VEXPECT_UINT_EQ(r.allocs, 15);
  VEXPECT_UINT_EQ(r.frees, 10);
  VEXPECT_UINT_EQ(r.end_live_blocks, 5);
  VEXPECT_UINT_GE(r.peak_requested_bytes, 5 * 65536);
  VEXPECT_UINT_LE(r.peak_requested_bytes, 5 * 1048576 + 512);
  VEXPECT_UINT_EQ(run("alloc 1 512 0\nfree 1\n", options).peak_requested_bytes, r.peak_requested_bytes);  // seeded
  options.intruder.seed = 2;
  VEXPECT_UINT_NE(run("alloc 1 512 0\nfree 1\n", options).peak_requested_bytes, r.peak_requested_bytes);
}

VTEST(Replay, IntruderTexts) {
  intruder i;
  tool_error error = {{0}};
  VASSERT_TRUE(intruder_parse("every=200,bytes=64KiB..1MiB,seed=9", &i, &error));
  VEXPECT_UINT_EQ(i.every, 200);
  VEXPECT_UINT_EQ(i.low_bytes, 65536);
  VEXPECT_UINT_EQ(i.high_bytes, 1048576);
  VEXPECT_UINT_EQ(i.seed, 9);
  static const char *const bad[] = {"",
                                    "every=200",
                                    "bytes=1..2",
                                    "every=0,bytes=1",
                                    "every=-1,bytes=1",
                                    "every=2,bytes=9..8",
                                    "every=2,bytes=0",
                                    "every=2,bytes=1,colour=red",
                                    "every=2,,bytes=1"};
  for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) {
    VTRACE("%s", bad[k]);
    VEXPECT_FALSE(intruder_parse(bad[k], &i, &error));
    VEXPECT_STR_CONTAINS(error.text, "intruder");
  }
}

VTEST(Replay, WorkTexts) {
  work_mode mode;
  VASSERT_TRUE(work_mode_parse("seed:42", &mode));
  VEXPECT_INT_EQ(mode.mode, VMP_WORK_SEED);
  VEXPECT_UINT_EQ(mode.value, 42);
  VASSERT_TRUE(work_mode_parse("lag:7", &mode));
  VEXPECT_INT_EQ(mode.mode, VMP_WORK_LAG);
  VASSERT_TRUE(work_mode_parse("none", &mode));
  VEXPECT_TRUE(mode.none);
  static const char *const bad[] = {"", "Late", "seed", "seed:", "seed:-1", "lag:1e3", "lag:1 "};
  for (size_t k = 0; k < sizeof(bad) / sizeof(bad[0]); k++) VEXPECT_FALSE(work_mode_parse(bad[k], &mode));
}

// ---- streams ----

// pairs of an allocation and a free of one object: with one stream the same memory serves all of them at once.
static char *pairs(size_t count) {
  char *text = malloc(count * 40 + 1), *at = text;
  *at = '\0';
  for (size_t i = 0; i < count; i++) at += sprintf(at, "alloc 1 2097152 0\nfree 1\n");
  return text;
}

// Allocation number i uses stream (i / 500) mod N. On a device of one granule the 501st allocation is the first that
// must wait for another stream's unfinished work, and the 1001st the second.
VTEST(Replay, AllocationsChangeTheirStreamEvery500) {
  static const struct {
    size_t pairs;
    uint64_t waits;
  } cases[] = {{500, 0}, {501, 1}, {1000, 1}, {1001, 2}};
  for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
    replay_options options = defaults;
    options.device_bytes = GRANULE;
    options.streams = 2;
    char *text = pairs(cases[k].pairs);
    const replay_result r = run(text, options);
    VEXPECT_UINT_EQ(r.failed_allocs, 0);
    VEXPECT_UINT_EQ(r.stream_waits + r.host_waits, cases[k].waits);
    VEXPECT_NEAR(r.unfinished_wait_share, (double)cases[k].waits / (double)cases[k].pairs, 1e-9);
    VEXPECT_TRUE(replay_good(&r));
    free(text);
  }
}

VTEST(Replay, OneStreamNeverWaits) {
  replay_options options = defaults;
  options.device_bytes = GRANULE;
  char *text = pairs(1200);
  const replay_result r = run(text, options);
  VEXPECT_UINT_EQ(r.stream_waits + r.host_waits, 0);
  VEXPECT_TRUE(replay_good(&r));
  free(text);
}

// A block that another stream frees: the touches on its own stream count too.
VTEST(Replay, AFreeOnAnotherStreamIsBehindTheBlocksOwnStream) {
  static const char *const modes[] = {"late", "early", "seed:1", "seed:2", "lag:3"};
  for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
    replay_options options = defaults;
    options.device_bytes = GRANULE;
    VASSERT_TRUE(work_mode_parse(modes[k], &options.work));
    const replay_result r =
        run("alloc 1 2097152 1\nfree 1 2\nalloc 2 2097152 2\nfree 2 1\nalloc 3 2097152 3\nfree 3 3\n", options);
    VEXPECT_TRUE(replay_good(&r));
    VEXPECT_UINT_EQ(r.allocs, 3);
  }
}

// What a player reports when memory goes away under queued work: here the pool is told too little on purpose, by a free
// on another stream behind the player's back.
VTEST(Player, SeesABadTouch) {
  const player_options options = {.driver = VMP_DRIVER_HOST,
                                  .device_bytes = 64 * MIB,
                                  .work = {.mode = VMP_WORK_LATE},
                                  .num_streams = 1,
                                  .measure = true};
  tool_error error = {{0}};
  player *p = NULL;
  VASSERT_TRUE(player_open(&p, &options, &error));
  vmp_driver *driver = player_driver(p);
  vmp_pool *pool = player_pool(p);
  vmp_stream owner, liar;
  void *block = NULL;
  VEXPECT_OK(vmp_host_stream_create(driver, 0, &owner));
  VEXPECT_OK(vmp_host_stream_create(driver, 0, &liar));
  VEXPECT_OK(vmp_alloc(pool, &block, 4 * MIB, owner));
  VEXPECT_OK(vmp_host_kernel(driver, 0, block, 4 * MIB, 1, owner));  // still queued
  VEXPECT_OK(vmp_free(pool, block, liar));
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  VEXPECT_INT_GE(vmp_pool_trim(pool, 0, &report), 0);
  VEXPECT_OK(vmp_host_stream_synchronize(driver, 0, liar));
  VEXPECT_INT_GE(vmp_pool_trim(pool, 0, &report), 0);
  vmp_host_stream_synchronize(driver, 0, owner);
  player_settle(p);
  VEXPECT_UINT_GE(player_progress(p)->bad_touches, 1);
  player_close(p);
}

VTEST(Player, RefusesWhatItCannotOpen) {
  tool_error error = {{0}};
  player *p = NULL;
  player_options options = {.driver = VMP_DRIVER_HOST, .device_bytes = 64 * MIB, .num_streams = 1, .preset = "loose"};
  VEXPECT_FALSE(player_open(&p, &options, &error));
  VEXPECT_STR_CONTAINS(error.text, "loose");
  VEXPECT_STR_CONTAINS(error.text, "VMP_ERROR_CONFIG");
  options = (player_options){
      .driver = VMP_DRIVER_HOST, .device_bytes = 64 * MIB, .num_streams = 1, .conf = "chunk_maxx:2MiB"};
  VEXPECT_FALSE(player_open(&p, &options, &error));
  VEXPECT_STR_CONTAINS(error.text, "chunk_maxx");
  options = (player_options){.driver = VMP_DRIVER_CUDA, .num_streams = 3};
  VEXPECT_FALSE(player_open(&p, &options, &error));
  VEXPECT_STR_CONTAINS(error.text, "host driver");
  VEXPECT_NULL(p);
}

// ---- the smallest device ----

static uint64_t smallest(const char *text, const char *conf) {
  replay_options options = defaults;
  options.min_capacity = true;
  options.conf = conf;
  const replay_result r = run(text, options);
  VEXPECT_TRUE(r.has_min_capacity);
  VEXPECT_TRUE(replay_good(&r));
  VEXPECT_UINT_LE(r.peak_mapped_bytes, r.min_capacity_bytes);
  // The answer was measured, and so is this: one granule less fails.
  options.min_capacity = false;
  options.device_bytes = r.min_capacity_bytes;
  VEXPECT_UINT_EQ(run(text, options).failed_allocs, 0);
  if (r.min_capacity_bytes > GRANULE) {
    options.device_bytes = r.min_capacity_bytes - GRANULE;
    VEXPECT_UINT_GT(run(text, options).failed_allocs, 0);
  }
  return r.min_capacity_bytes;
}

VTEST(MinCapacity, OneBlock) {
  VEXPECT_UINT_EQ(smallest("alloc 1 73400320 0\n", NULL), 70 * MIB);  // 70 MiB maps 70 MiB, not 128
  VEXPECT_UINT_EQ(smallest("alloc 1 1 0\nfree 1\n", NULL), GRANULE);
}

// Two blocks that are never live together need the larger one alone; free pieces serve it wherever they lie.
VTEST(MinCapacity, FreedMemoryServesAgain) {
  VEXPECT_UINT_EQ(smallest("alloc 1 41943040 0\nfree 1\nalloc 2 62914560 0\n", "chunk_max:1granule"), 60 * MIB);
  VEXPECT_UINT_EQ(
      smallest("alloc 1 20971520 0\nalloc 2 20971520 0\nalloc 3 20971520 0\nfree 1\nfree 3\nalloc 4 41943040 0\n",
               "chunk_max:1granule"),
      60 * MIB);
}

VTEST(MinCapacity, AnEmptyTraceNeedsOneGranuleAtMost) {
  replay_options options = defaults;
  options.min_capacity = true;
  const replay_result r = run("", options);
  VEXPECT_TRUE(r.has_min_capacity);
  VEXPECT_UINT_LE(r.min_capacity_bytes, GRANULE);
}

VTEST(MinCapacity, NoneWhereAnUnlimitedDeviceFails) {
  replay_options options = defaults;
  options.min_capacity = true;
  options.conf = "hard_limit:4MiB";
  const replay_result r = run("alloc 1 8388608 0\n", options);
  VEXPECT_FALSE(r.has_min_capacity);
  VEXPECT_UINT_EQ(r.failed_allocs, 1);
  VEXPECT_FALSE(replay_good(&r));
}

// ---- the report ----

static json_t *json_of(const replay_result *r) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(report_json(out, "a \"b\".csv", r));
  fclose(out);
  json_error_t error;
  json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  VEXPECT_STR_EQ(text + bytes - 2, "}\n");
  free(text);
  return document;
}

VTEST(Report, HasExactlyTheAgreedKeys) {
  static const char *const keys[] = {"trace",
                                     "ops",
                                     "allocs",
                                     "frees",
                                     "failed_allocs",
                                     "unmatched_frees",
                                     "bad_touches",
                                     "stream_waits",
                                     "host_waits",
                                     "takes",
                                     "takes_resized",
                                     "unfinished_wait_share",
                                     "peak_requested_bytes",
                                     "peak_live_bytes",
                                     "peak_mapped_bytes",
                                     "end_live_bytes",
                                     "end_mapped_bytes",
                                     "mapped_at_peak_bytes",
                                     "fragmentation_at_peak",
                                     "mean_utilisation",
                                     "min_capacity_bytes",
                                     "driver_calls",
                                     "modelled_driver_us",
                                     "ns_per_op"};
  static const char *const calls[] = {"reserve", "create", "map", "set_access", "unmap", "release", "address_free"};
  replay_result r = {.ops = 1, .peak_requested_bytes = UINT64_C(1) << 50, .has_modelled_us = true};
  r.driver_calls.set_access = 3;
  json_t *document = json_of(&r);
  VASSERT_NOT_NULL(document);
  VEXPECT_UINT_EQ(json_object_size(document), sizeof(keys) / sizeof(keys[0]));
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    VTRACE("key %s", keys[i]);
    VEXPECT_NOT_NULL(json_object_get(document, keys[i]));
  }
  const json_t *calls_object = json_object_get(document, "driver_calls");
  VEXPECT_UINT_EQ(json_object_size(calls_object), 7);
  for (size_t i = 0; i < 7; i++) VEXPECT_TRUE(json_is_integer(json_object_get(calls_object, calls[i])));
  VEXPECT_INT_EQ(json_integer_value(json_object_get(calls_object, "set_access")), 3);
  VEXPECT_STR_EQ(json_string_value(json_object_get(document, "trace")), "a \"b\".csv");
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "peak_requested_bytes")), INT64_C(1) << 50);
  VEXPECT_TRUE(json_is_null(json_object_get(document, "min_capacity_bytes")));  // not asked
  json_decref(document);
  r.has_min_capacity = true;
  r.min_capacity_bytes = 4096;
  document = json_of(&r);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(document, "min_capacity_bytes")), 4096);
  json_decref(document);
}
