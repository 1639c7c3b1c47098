// The program as a user calls it: exit statuses, one sentence for each mistake, documents alone on standard output.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"

#define TOOL "tools/vmpool/vmpool"
#define ARGS(...) ((const char *const[]){TOOL, __VA_ARGS__, NULL})

// run starts the program with no terminal, no colours of the caller's and a known width.
static vtest_process run(const char *const *argv, const char *input) {
  vtest_process p = {0};
  setenv("COLUMNS", "80", 1);
  setenv("LC_ALL", "C.UTF-8", 1);
  unsetenv("VMP_CONF");
  if (vtest_process_run(&p, argv, input) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  return p;
}

// ---- mistakes ----

typedef struct mistake {
  const char *name;
  const char *argv[10];
  const char *input;
  const char *says;
} mistake;
static const char *mistake_name(const mistake *m) { return m->name; }

static const mistake mistakes[] = {
    {"no_command", {0}, NULL, "command is missing"},
    {"unknown_command", {"frobnicate"}, NULL, "'frobnicate' is no command"},
    {"unknown_top_option", {"--frobnicate"}, NULL, "'--frobnicate' is no option"},
    {"unknown_topic", {"help", "frobnicate"}, NULL, "'frobnicate' is no command"},
    {"unknown_option", {"replay", "--frobnicate"}, NULL, "unrecognized option '--frobnicate'"},
    {"unknown_short_option", {"replay", "-q", "x"}, NULL, "invalid option"},
    {"missing_value", {"replay", "--json"}, NULL, "requires an argument"},
    {"no_trace", {"replay"}, NULL, "trace is missing"},
    {"two_traces", {"replay", "a", "b"}, NULL, "'b' is a second one"},
    {"missing_file", {"replay", "no/such.csv"}, NULL, "no/such.csv: No such file"},
    {"directory", {"replay", "tests"}, NULL, "is a directory"},
    {"unknown_content", {"replay", "-"}, "hello\n", "standard input:1:"},
    {"negative_size",
     {"replay", "-"},
     "alloc 1 64 0\nalloc 2 -1 0\n",
     "standard input:2: field size: '-1' is negative"},
    {"empty_size", {"replay", "-"}, "id,lower,upper,size\na,0,1,\n", "standard input:2: field size: '' is empty"},
    {"two_to_64",
     {"replay", "-"},
     "alloc 1 18446744073709551616 0\n",
     "field size: '18446744073709551616' is too large"},
    {"live_id", {"replay", "-"}, "alloc 1 64 0\nalloc 1 64 0\n", "standard input:2: field id: '1' is live already"},
    {"cut_json", {"replay", "-"}, "{\"device_traces\": [[{\"action\": \"al", "not valid JSON"},
    {"bad_driver", {"replay", "--driver", "metal", "x"}, NULL, "--driver: 'metal'"},
    {"bad_device_bytes", {"replay", "--device-bytes", "80GB", "x"}, NULL, "--device-bytes: '80GB'"},
    {"negative_device_bytes", {"replay", "--device-bytes=-1", "x"}, NULL, "--device-bytes: '-1' is negative"},
    {"zero_device_bytes", {"replay", "--device-bytes", "0", "x"}, NULL, "--device-bytes"},
    {"cost_on_cuda", {"replay", "--cost", "c", "--driver", "cuda", "x"}, NULL, "--cost is for the host driver"},
    {"compare_on_cuda", {"replay", "--compare", "--driver", "cuda", "x"}, NULL, "--compare needs the host driver"},
    {"no_cost_file", {"replay", "--cost", "no/such.cost", "-"}, "alloc 1 1 0\n", "no/such.cost can't be opened"},
    {"capacity_and_device", {"replay", "--min-capacity", "--device-bytes", "1GiB", "x"}, NULL, "exclude"},
    {"zero_streams", {"replay", "--streams", "0", "x"}, NULL, "--streams: 0 is outside"},
    {"bad_scale", {"replay", "--scale", "0", "x"}, NULL, "--scale: '0'"},
    {"bad_repeat", {"replay", "--repeat", "1e3", "x"}, NULL, "--repeat: '1e3' is not a whole number"},
    {"bad_work", {"replay", "--work", "soon", "x"}, NULL, "--work: 'soon'"},
    {"bad_intruder", {"replay", "--intruder", "every=0,bytes=1", "x"}, NULL, "intruder: every=0"},
    {"bad_pairing", {"replay", "--pairing", "random", "x"}, NULL, "--pairing: 'random'"},
    {"bad_model", {"replay", "--model", "gpt-5", "x"}, NULL, "--model: 'gpt-5' is unknown"},
    {"kv_without_model", {"replay", "--kv", "paged", "x"}, NULL, "--kv needs a --model"},
    {"bad_kv", {"replay", "--kv", "heap", "x"}, NULL, "--kv: 'heap' is none of contiguous, paged and region"},
    {"bad_kv_layout", {"replay", "--kv-layout", "head", "x"}, NULL, "--kv-layout: 'head' is neither request nor layer"},
    {"layout_without_regions", {"replay", "--kv-layout", "layer", "x"}, NULL, "--kv-layout needs --kv region"},
    {"share_without_regions", {"replay", "--kv-share", "x"}, NULL, "--kv-share needs --kv region"},
    {"html_of_nothing", {"html"}, NULL, "a snapshot is missing"},
    {"html_to_nowhere", {"html", "x"}, NULL, "-o FILE is missing"},
    {"html_of_text", {"html", "-", "-o", "-"}, "text", "standard input"},
    {"html_of_four", {"html", "a", "b", "c", "d", "-o", "-"}, NULL, "'d' is one file more"},
    {"export_without_format", {"export", "x", "-o", "-"}, NULL, "--format is missing"},
    {"export_bad_format", {"export", "--format", "pdf", "x"}, NULL, "--format: 'pdf' is none of"},
    {"export_bad_table", {"export", "--table", "x"}, NULL, "--table: 'x' is none of"},
    {"export_events_without_log",
     {"export", "--format", "csv", "--table", "events", "tests/tool/golden/states.json", "-o", "-"},
     NULL,
     "needs a log"},
    {"advise_nothing", {"advise"}, NULL, "a trace is missing"},
    {"advise_bad_goal", {"advise", "--goal", "fun", "x"}, NULL, "--goal: 'fun' is none of"},
    {"completion_of_fish", {"completion", "fish"}, NULL, "'fish' is neither bash nor zsh"},
    {"man_of_nothing", {"man", "frobnicate"}, NULL, "'frobnicate' is no command"},
    {"share_on_streams",
     {"replay", "--kv=region", "--model=gpt2", "--kv-share", "--streams=2", "x"},
     NULL,
     "--kv-share needs one stream"},
    {"compare_regions",
     {"replay", "--kv", "region", "--model", "gpt2", "--compare", "x"},
     NULL,
     "--compare needs blocks"},
    {"scale_regions", {"replay", "--kv", "region", "--model", "gpt2", "--scale", "2", "x"}, NULL, "--scale: how long"},
    {"requests_without_kv", {"replay", "-"}, "TIMESTAMP,ContextTokens,GeneratedTokens\n", "--kv"},
    {"zero_steps", {"replay", "--step-every", "0", "x"}, NULL, "--step-every: 0 is outside"},
    {"zero_steps_later", {"replay", "--step-every", "5+0", "x"}, NULL, "--step-every: 0 is outside"},
    {"first_step", {"replay", "--step-every", "a+5", "x"}, NULL, "--step-every, before the +"},
    {"bad_defragment", {"replay", "--defragment", "often", "x"}, NULL, "--defragment: 'often' is neither end nor"},
    {"bad_defragment_steps", {"replay", "--defragment", "steps=x", "x"}, NULL, "--defragment steps: 'x'"},
    {"zero_defragment", {"replay", "--defragment", "steps=0", "x"}, NULL, "--defragment steps: 0 is outside"},
    {"defragment_without_steps", {"replay", "--defragment", "steps=5", "x"}, NULL, "needs --step-every N"},
    {"bad_preset", {"replay", "--preset", "loose", "-"}, "alloc 1 1 0\n", "loose"},
    {"bad_conf", {"replay", "--conf", "chunk_maxx:1", "-"}, "alloc 1 1 0\n", "chunk_maxx"},
    {"json_nowhere", {"replay", "--json", "no/such/dir/x.json", "-"}, "alloc 1 1 0\n", "no/such/dir/x.json"},
    {"generate_nothing", {"generate"}, NULL, "train or serve"},
    {"generate_unknown", {"generate", "dream"}, NULL, "'dream' is unknown"},
    {"generate_no_model", {"generate", "train"}, NULL, "--model is missing"},
    {"generate_extra", {"generate", "train", "gpt2"}, NULL, "'gpt2' is no option"},
    {"generate_other_kind", {"generate", "serve", "--batch", "4"}, NULL, "unrecognized option '--batch'"},
    {"generate_family", {"generate", "train", "--model", "mixtral-8x7b"}, NULL, "no training step is known"},
    {"generate_range", {"generate", "train", "--model", "gpt2", "--seq", "9..8"}, NULL, "--seq: '9..8'"},
    {"generate_positions", {"generate", "train", "--model", "gpt2", "--seq", "2048"}, NULL, "1024 positions"},
    {"map_no_file", {"map"}, NULL, "snapshot is missing"},
    {"map_other_json", {"map", "-"}, "{}", "no vmpool snapshot"},
    {"map_width", {"map", "--width", "7", "x"}, NULL, "--width: 7 is outside"},
    {"map_color", {"map", "--color", "blue", "x"}, NULL, "--color: 'blue'"},
    {"map_range", {"map", "--range", "5..4", "x"}, NULL, "--range: '5..4'"},
    {"map_fit", {"map", "--fit", "5MB", "x"}, NULL, "--fit: '5MB'"},
    {"stats_nothing", {"stats"}, NULL, "a snapshot is missing"},
    {"stats_two", {"stats", "a", "b"}, NULL, "'b' is one argument too many"},
    {"hist_other_json", {"hist", "-"}, "[]", "no vmpool snapshot"},
    {"diff_one", {"diff", "a"}, NULL, "two snapshots are needed"},
    {"why_nothing", {"why", "0x10"}, NULL, "an address and a snapshot or a log are needed"},
    {"why_address", {"why", "here", "x.json"}, NULL, "'here' is no address"},
    {"oom_no_file", {"oom", "no/such.json"}, NULL, "no/such.json: No such file"},
    {"check_no_pool", {"check", "nobody"}, NULL, "nobody is no file, and no live pool"},
    {"ps_argument", {"ps", "x"}, NULL, "ps takes no argument"},
    {"top_delay", {"top", "--delay", "1"}, NULL, "--delay: 1 is outside"},
    {"record_nothing", {"record"}, NULL, "a command is missing"},
    {"record_ring", {"record", "--ring", "x", "--", "true"}, NULL, "--ring: 'x'"},
    {"record_comma", {"record", "-o", "a,b", "--", "true"}, NULL, "has no comma"},
    {"snapshot_at", {"replay", "--snapshot-at", "end", "x"}, NULL, "--snapshot-at needs --snapshot"},
    {"snapshot_at_zero", {"replay", "--snapshot", "s", "--snapshot-at", "0", "x"}, NULL, "--snapshot-at: 0 is outside"},
    {"probe_driver", {"probe", "--driver", "metal"}, NULL, "--driver: 'metal' is neither host nor cuda"},
    {"probe_device", {"probe", "--driver", "host", "--device", "1"}, NULL, "there is no device 1"},
    {"probe_device_number", {"probe", "--device", "-1"}, NULL, "--device: '-1' is negative"},
    {"probe_repeat", {"probe", "--repeat", "0"}, NULL, "--repeat: 0 is outside 1..100000"},
    {"probe_argument", {"probe", "gpu"}, NULL, "'gpu' is no option"},
    {"probe_cost_file", {"probe", "--cost-file", "-"}, NULL, "--cost-file: a file is needed"},
    {"probe_nowhere", {"probe", "--driver", "host", "--json", "no/such/dir/x.json"}, NULL, "no/such/dir/x.json"},
    {"demo_driver", {"demo", "--driver", "metal"}, NULL, "--driver: 'metal'"},
};

VTEST_P(Cli, MistakesAreOneSentence, mistake, mistakes, mistake_name) {
  const char *argv[12] = {TOOL};
  for (size_t i = 0; i < 10 && p->argv[i] != NULL; i++) argv[i + 1] = p->argv[i];
  vtest_process process = run(argv, p->input);
  VEXPECT_INT_EQ(process.status, 2);
  VEXPECT_STR_EQ(process.out, "");
  VEXPECT_STR_CONTAINS(process.err, p->says);
  VEXPECT_PTR_EQ(strchr(process.err, '\n'), process.err + process.err_bytes - 1);  // one line
  vtest_process_free(&process);
}

// ---- help ----

VTEST(Cli, HelpGoesToStandardOutput) {
  static const char *const topics[][3] = {{"help"},
                                          {"--help"},
                                          {"--version"},
                                          {"help", "formats"},
                                          {"help", "models"},
                                          {"help", "replay"},
                                          {"replay", "--help"},
                                          {"generate", "--help"},
                                          {"generate", "train", "--help"},
                                          {"generate", "serve", "--help"},
                                          {"map", "--help"},
                                          {"demo", "--help"},
                                          {"probe", "--help"}};
  for (size_t i = 0; i < sizeof(topics) / sizeof(topics[0]); i++) {
    VTRACE("vmpool %s %s", topics[i][0], topics[i][1] != NULL ? topics[i][1] : "");
    const char *argv[] = {TOOL, topics[i][0], topics[i][1], topics[i][1] != NULL ? topics[i][2] : NULL, NULL};
    vtest_process process = run(argv, NULL);
    VEXPECT_INT_EQ(process.status, 0);
    VEXPECT_UINT_GT(process.out_bytes, 10);
    VEXPECT_STR_EQ(process.err, "");
    vtest_process_free(&process);
  }
}

VTEST(Cli, EveryOptionOfReplayIsDocumented) {
  static const char *const options[] = {
      "--driver", "--device-bytes", "--min-capacity", "--streams",    "--scale",     "--repeat",  "--preset",
      "--conf",   "--intruder",     "--step-every",   "--defragment", "--json",      "--work",    "--kv",
      "--model",  "--pairing",      "--cost",         "--compare",    "--kv-layout", "--kv-share"};
  vtest_process process = run(ARGS("replay", "--help"), NULL);
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) VEXPECT_STR_CONTAINS(process.out, options[i]);
  VEXPECT_STR_CONTAINS(process.out, "Examples:");
  vtest_process_free(&process);
}

// ---- replay ----

static json_t *parse(const char *text) {
  json_error_t error;
  json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  if (document == NULL) VADD_FAILURE("not JSON: %s in: %s", error.text, text);
  return document;
}

static json_int_t number(const json_t *document, const char *key) {
  return json_integer_value(json_object_get(document, key));
}

VTEST(Cli, TheDocumentIsAloneOnStandardOutput) {
  vtest_process process =
      run(ARGS("replay", "-", "--json", "-"), "free 17\nalloc 1 4096 0\nfree 1\nfree 99\nalloc 1 512 0\n");
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.err, "");
  json_t *document = parse(process.out);
  VASSERT_NOT_NULL(document);
  VEXPECT_INT_EQ(number(document, "ops"), 3);
  VEXPECT_INT_EQ(number(document, "allocs"), 2);
  VEXPECT_INT_EQ(number(document, "frees"), 1);
  VEXPECT_INT_EQ(number(document, "unmatched_frees"), 2);
  VEXPECT_INT_EQ(number(document, "peak_requested_bytes"), 4096);
  VEXPECT_INT_EQ(number(document, "end_live_bytes"), 512);
  VEXPECT_TRUE(json_is_null(json_object_get(document, "min_capacity_bytes")));
  json_decref(document);
  vtest_process_free(&process);
}

VTEST(Cli, TheDocumentGoesToAFileAndTheFiguresToTheReader) {
  char path[600];
  snprintf(path, sizeof(path), "%s/figures.json", vtest_temp_dir());
  vtest_process process = run(ARGS("replay", "-", "--json", path, "--min-capacity"), "alloc 1 73400320 0\n");
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.out, "smallest device        70 MiB (73400320 bytes)");
  VEXPECT_STR_CONTAINS(process.out, "blocks live at the end 1");
  json_error_t error;
  json_t *document = json_load_file(path, 0, &error);
  VASSERT_NOT_NULL(document);
  VEXPECT_INT_EQ(number(document, "min_capacity_bytes"), 73400320);
  json_decref(document);
  unlink(path);
  vtest_process_free(&process);
}

// Two parked granules with a live one between them become one block of two; the key is there only with the option.
VTEST(Cli, ADefragmentedReplay) {
  const char *trace = "alloc 1 2097152 0\nalloc 2 2097152 0\nalloc 3 2097152 0\nalloc 4 2097152 0\nfree 1\nfree 3\n";
  vtest_process process =
      run(ARGS("replay", "-", "--preset", "tight", "--step-every", "2", "--defragment", "end", "--json", "-"), trace);
  VEXPECT_INT_EQ(process.status, 0);
  json_t *document = parse(process.out), *d = json_object_get(document, "defragment");
  VASSERT_NOT_NULL(d);
  VEXPECT_INT_EQ(number(d, "runs"), 1);
  VEXPECT_INT_EQ(number(d, "largest_free_mapped_before_bytes"), 2097152);
  VEXPECT_INT_EQ(number(d, "largest_free_mapped_after_bytes"), 2 * 2097152);
  VEXPECT_INT_GE(number(d, "moved_bytes"), 2097152);
  VEXPECT_INT_EQ(number(document, "end_mapped_bytes"), 4 * 2097152);
  VEXPECT_INT_EQ(number(document, "bad_touches"), 0);
  json_decref(document);
  vtest_process_free(&process);
  process = run(ARGS("replay", "-", "--step-every", "2", "--json", "-"), trace);
  document = parse(process.out);
  VEXPECT_TRUE(json_object_get(document, "defragment") == NULL);
  json_decref(document);
  vtest_process_free(&process);
  process = run(ARGS("replay", "-", "--preset", "tight", "--defragment", "end"), trace);
  VEXPECT_STR_CONTAINS(process.out, "from 2 MiB to 4 MiB");
  vtest_process_free(&process);
}

VTEST(Cli, AFailedAllocationIsStatusOne) {
  vtest_process process = run(ARGS("replay", "-", "--device-bytes", "4MiB"), "alloc 1 8388608 0\nfree 1\n");
  VEXPECT_INT_EQ(process.status, 1);
  VEXPECT_STR_CONTAINS(process.out, "1 failed, the first because:");
  vtest_process_free(&process);
}

VTEST(Cli, ModelsStandBesideThePool) {
  vtest_process process = run(ARGS("replay", "-", "--compare", "--min-capacity"), "alloc 1 73400320 0\n");
  VEXPECT_INT_EQ(process.status, 0);
  // 70 MiB: as they are, in a segment of 70 MiB, in four handles of 20 MiB.
  VEXPECT_STR_CONTAINS(process.out, "vmpool        caching     expandable\n");
  VEXPECT_STR_CONTAINS(process.out, "smallest device                70 MiB         70 MiB         80 MiB\n");
  VEXPECT_STR_CONTAINS(process.out, "1.0000         1.0000         1.1429\n");
  vtest_process_free(&process);
}

VTEST(Cli, ACutLastLineIsRemarkedOn) {
  vtest_process process = run(ARGS("replay", "-", "--json", "-"), "alloc 1 64 0\nfree 1");
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.err, "no line end");
  json_t *document = parse(process.out);
  json_decref(document);
  vtest_process_free(&process);
}

VTEST(Cli, StandardOutputThatIsFullIsReported) {
  if (access("/dev/full", W_OK) != 0) VSKIP("no /dev/full");
  const char *argv[] = {"/bin/sh", "-c", TOOL " replay - --json - > /dev/full", NULL};
  vtest_process process = run(argv, "alloc 1 64 0\n");
  VEXPECT_INT_EQ(process.status, 2);
  VEXPECT_STR_CONTAINS(process.err, "standard output could not be written");
  vtest_process_free(&process);
}

VTEST(Cli, AllOptionsTogether) {
  vtest_process process = run(ARGS("replay", "-", "--streams", "3", "--scale", "2", "--repeat", "4", "--preset",
                                   "tight", "--conf", "slab_max:32KiB", "--intruder", "every=3,bytes=64KiB..1MiB",
                                   "--work", "seed:7", "--driver", "host", "--device-bytes", "1GiB", "--json", "-"),
                              "alloc 1 100000 0\nalloc 2 5000 0\nfree 1\nfree 2\n");
  VEXPECT_INT_EQ(process.status, 0);
  json_t *document = parse(process.out);
  VEXPECT_INT_EQ(number(document, "ops"), 16 + 5);
  VEXPECT_INT_EQ(number(document, "allocs"), 8 + 5);
  VEXPECT_INT_EQ(number(document, "bad_touches"), 0);
  json_decref(document);
  vtest_process_free(&process);
}

VTEST(Cli, RequestsBecomeBlocks) {
  const char *requests =
      "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,480,10\n2023-11-16 18:17:04.03,318,8\n";
  vtest_process process = run(ARGS("replay", "-", "--kv", "paged", "--model", "llama-2-7b", "--json", "-"), requests);
  json_t *document = parse(process.out);
  // 490 and 326 tokens in pages of 16
  VEXPECT_INT_EQ(number(document, "allocs"), 31 + 21);
  VEXPECT_INT_EQ(number(document, "peak_requested_bytes") % (16 * 524288), 0);
  json_decref(document);
  vtest_process_free(&process);
  process = run(ARGS("replay", "-", "--kv", "contiguous", "--model", "llama-2-7b", "--json", "-"), requests);
  document = parse(process.out);
  VEXPECT_INT_EQ(number(document, "allocs"), 2);
  VEXPECT_INT_EQ(number(document, "peak_requested_bytes"), (490 + 326) * INT64_C(524288));
  json_decref(document);
  vtest_process_free(&process);
}

// ---- generate ----

VTEST(Cli, WhatIsGeneratedReplays) {
  vtest_process generated = run(ARGS("generate", "train", "--model", "gpt2", "--batch", "8", "--seq", "1024"), NULL);
  VEXPECT_INT_EQ(generated.status, 0);
  VEXPECT_STR_EQ(generated.err, "");
  VEXPECT_STR_CONTAINS(generated.out, "# vmpool generate train --model gpt2 --batch 8 --seq 1024\n");
  VEXPECT_STR_CONTAINS(generated.out, "# gpt2: 124439808 parameters; 592 persistent allocations of 1742157312 bytes\n");
  VEXPECT_STR_CONTAINS(generated.out, "at most 8306652676 bytes live\n");
  vtest_process process = run(ARGS("replay", "-", "--json", "-"), generated.out);
  VEXPECT_INT_EQ(process.status, 0);
  json_t *document = parse(process.out);
  VEXPECT_INT_EQ(number(document, "allocs"), 592 + 573);
  VEXPECT_INT_EQ(number(document, "frees"), 573);
  VEXPECT_INT_EQ(number(document, "peak_requested_bytes"), 8306652676);
  json_decref(document);
  vtest_process_free(&process);
  vtest_process_free(&generated);
}

VTEST(Cli, ServingIsGeneratedFromTheSeed) {
  vtest_process a = run(ARGS("generate", "serve", "--model", "llama-3-8b", "--requests", "20", "--seed", "3"), NULL);
  vtest_process b = run(ARGS("generate", "serve", "--model", "llama-3-8b", "--requests", "20", "--seed", "3"), NULL);
  vtest_process c = run(ARGS("generate", "serve", "--model", "llama-3-8b", "--requests", "20", "--seed", "4"), NULL);
  VEXPECT_INT_EQ(a.status, 0);
  VEXPECT_STR_CONTAINS(a.out, "# 20 allocations, 20 frees");
  VEXPECT_STR_EQ(a.out, b.out);
  VEXPECT_STR_NE(strstr(a.out, "\nalloc"), strstr(c.out, "\nalloc"));
  vtest_process_free(&a);
  vtest_process_free(&b);
  vtest_process_free(&c);
}

VTEST(Cli, GeneratingIntoAFile) {
  char path[600];
  snprintf(path, sizeof(path), "%s/serve.trace", vtest_temp_dir());
  vtest_process process =
      run(ARGS("generate", "serve", "--model", "gpt2", "--requests", "5", "--kv", "paged", "-o", path), NULL);
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.out, "");
  vtest_process_free(&process);
  process = run(ARGS("replay", path), NULL);
  VEXPECT_INT_EQ(process.status, 0);
  vtest_process_free(&process);
  unlink(path);
}

// ---- map and demo ----

VTEST(Cli, MapDrawsTheSnapshot) {
  vtest_process process = run(ARGS("map", "tests/tool/golden/states.json"), NULL);
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.out, "pool \"demo\" on host device 0\n\ndevice 2 GiB\n");
  VEXPECT_STR_LACKS(process.out, "\033");  // no terminal, no colours
  vtest_process_free(&process);
  process = run(ARGS("map", "tests/tool/golden/states.json", "--ascii", "--color", "always"), NULL);
  VEXPECT_STR_CONTAINS(process.out, "\033[");
  for (size_t i = 0; i < process.out_bytes; i++) VASSERT_INT_LT((unsigned char)process.out[i], 128);
  vtest_process_free(&process);
}

static void expect_demo(const vtest_process *process) {
  VEXPECT_INT_EQ(process->status, 0);
  VEXPECT_STR_EQ(process->err, "");
  VEXPECT_STR_CONTAINS(process->out, "1. grown");
  VEXPECT_STR_CONTAINS(process->out, "2. the step is over");
  VEXPECT_STR_CONTAINS(process->out, "3. trimmed");
  VEXPECT_STR_CONTAINS(process->out, "0 failed");
  VEXPECT_STR_CONTAINS(process->out, "the pool's own check found nothing wrong");
}

VTEST(Cli, DemoOnTheHostDriver) {
  vtest_process process = run(ARGS("demo", "--driver", "host", "--ascii"), NULL);
  expect_demo(&process);
  VEXPECT_STR_CONTAINS(process.out, "driver  host");
  VEXPECT_STR_CONTAINS(process.out, "8306652676   8306652676  ok");
  VEXPECT_STR_CONTAINS(process.out, "0 bad touches");
  VEXPECT_STR_LACKS(process.out, "DIFFERS");
  VEXPECT_STR_CONTAINS(process.out, "live 1.62 GiB, mapped 1.63 GiB, parked 0 B");  // after the trim
  for (const char *line = process.out; *line != '\0';) {
    const size_t length = strcspn(line, "\n");
    VEXPECT_UINT_LE(length, 80);
    line += length + (line[length] == '\n');
  }
  vtest_process_free(&process);
}

// With a GPU or without one, the demo says which driver it took, and why.
VTEST(Cli, DemoSaysWhichDriverItTook) {
  vtest_process process = run(ARGS("demo"), NULL);
  expect_demo(&process);
  if (strstr(process.out, "driver  cuda") == NULL) {
    VEXPECT_STR_CONTAINS(process.out, "no GPU  ");
    VEXPECT_STR_CONTAINS(process.out, "driver  host");
  }
  vtest_process_free(&process);
}
