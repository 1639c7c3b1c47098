// A KV cache in regions: the events, the figures on requests that are small enough to work out by hand, prefixes that
// are shared, and the bounds on the stored traces.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/replay/replay.h"
#include "tools/replay/report.h"

#define MIB (UINT64_C(1) << 20)

static trace *requests(const char *text, const char *served_by) {
  trace_options options = TRACE_OPTIONS_INIT;
  options.kv.layout = SERVICE_REGION;
  options.kv.model = model_find(served_by);
  trace *t = NULL;
  tool_error error = {{0}};
  if (!trace_parse("requests", text, strlen(text), &options, &t, &error)) VADD_FAILURE("%s", error.text);
  return t;
}

static replay_result play(trace *t, const replay_options *options) {
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_STR_EQ(r.fault, "");
  VEXPECT_UINT_EQ(r.end_live_bytes, 0);
  return r;
}

static const char two_requests[] =
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:17:03.0000000,8,3\n"
    "2023-11-16 18:17:03.0500000,5,0\n";

// 8 prompt tokens are 1 ms of prefill, each output token 30 ms; the last one and the end are at the same time.
VTEST(RegionReplay, OneEventATokenFromArrivalToTheEnd) {
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  char steps[256];
  size_t used = 0;
  trace_event e;
  uint64_t events = 0;
  for (; trace_next(t, &e); events++) {
    used += (size_t)snprintf(steps + used, sizeof(steps) - used, "%c%u:%llu@%lld ", "+-g"[e.kind], e.block,
                             (unsigned long long)(e.bytes / 524288), (long long)e.t_us);
  }
  VEXPECT_STR_EQ(steps, "+0:8@0 g0:1@31000 +1:5@50000 -1:5@50625 g0:1@61000 g0:1@91000 -0:11@91000 ");
  VEXPECT_UINT_EQ(events, t->num_events);
  trace_totals totals;
  trace_measure(t, &totals);
  VEXPECT_UINT_EQ(totals.peak_bytes, 14 * UINT64_C(524288));
  VEXPECT_UINT_EQ(totals.end_bytes, 0);
  trace_close(t);
}

// A page is 4 tokens of Llama 2 7B: 8 + 3 tokens are 3 pages, 5 are 2; at most 9 + 5 tokens are live, in 5 pages.
VTEST(RegionReplay, PagesAreCommittedAsTokensCome) {
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  replay_result r = play(t, &options);
  VEXPECT_UINT_EQ(r.allocs, 2);
  VEXPECT_UINT_EQ(r.frees, 2);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 14 * UINT64_C(524288));
  VEXPECT_UINT_EQ(r.peak_live_bytes, 10 * MIB);
  VEXPECT_UINT_EQ(r.peak_mapped_bytes, 10 * MIB);
  VEXPECT_TRUE(r.has_regions);
  VEXPECT_UINT_EQ(r.regions.regions, 2);
  VEXPECT_UINT_EQ(r.regions.peak_regions, 2);
  VEXPECT_UINT_EQ(r.regions.page_bytes, 2 * MIB);
  VEXPECT_UINT_EQ(r.regions.committed_bytes, 10 * MIB);
  VEXPECT_UINT_EQ(r.regions.region_max_bytes, 12 * UINT64_C(524288));
  VEXPECT_FALSE(r.has_unshared);
  trace_close(t);
}

// One region a layer: each of the 32 has one page for up to 128 tokens.
VTEST(RegionReplay, OneRegionALayer) {
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.kv_per_layer = true;
  replay_result r = play(t, &options);
  VEXPECT_UINT_EQ(r.allocs, 2);
  VEXPECT_UINT_EQ(r.regions.regions, 64);
  VEXPECT_UINT_EQ(r.regions.peak_regions, 64);
  VEXPECT_UINT_EQ(r.peak_mapped_bytes, 64 * 2 * MIB);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, 14 * UINT64_C(524288));
  trace_close(t);
}

// Llama 3 8B: 131,072 bytes a token, a prefix block of 512 tokens is 64 MiB. The second request has the first block of
// the first one, the third has nothing of it; the first ends before the second, which keeps the block.
static const char prefixed[] =
    "{\"timestamp\": 0, \"input_length\": 1100, \"output_length\": 1, \"hash_ids\": [7, 8, 9]}\n"
    "{\"timestamp\": 10, \"input_length\": 1024, \"output_length\": 5, \"hash_ids\": [7, 11]}\n"
    "{\"timestamp\": 20, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [12]}\n"
    "{\"timestamp\": 240, \"input_length\": 512, \"output_length\": 0, \"hash_ids\": [7]}\n";

VTEST(RegionReplay, PrefixesAreShared) {
  trace *t = requests(prefixed, "llama-3-8b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.kv_share = true;
  replay_result r = play(t, &options);
  // 1,100 + 1,024 + 512 tokens are live at 20 ms.
  VEXPECT_UINT_EQ(r.peak_requested_bytes, (1100 + 1024 + 512) * UINT64_C(131072));
  const uint64_t first = (1100 * UINT64_C(131072) + 2 * MIB - 1) / (2 * MIB) * 2 * MIB;
  VEXPECT_TRUE(r.has_unshared);
  VEXPECT_UINT_EQ(r.unshared_peak_mapped_bytes, first + 192 * MIB);
  VEXPECT_UINT_EQ(r.peak_mapped_bytes, first + 128 * MIB);
  VEXPECT_UINT_EQ(r.regions.prefix_blocks, 2 + 2 + 1 + 1);  // the 76 tokens of id 9 are no whole block
  // The second one's, and the fourth one's: it arrives at 240 ms, and the second ends at 10 + 128 + 150 = 288 ms; the
  // first has ended at 137.5 + 30 ms, so the block is the second one's by then.
  VEXPECT_UINT_EQ(r.regions.shared_blocks, 2);
  VEXPECT_UINT_EQ(r.regions.shared_bytes, 128 * MIB);
  trace_close(t);
}

VTEST(RegionReplay, WhatCantBeSharedIsSaid) {
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.kv_share = true;
  replay_result r;
  tool_error error = {{0}};
  VEXPECT_FALSE(replay_run(t, &options, &r, &error));
  VEXPECT_STR_CONTAINS(error.text, "no prefix ids");
  trace_close(t);
  t = requests(prefixed, "gpt2");  // 36,864 bytes a token: a block is 9 pages
  VASSERT_NOT_NULL(t);
  r = play(t, &options);
  VEXPECT_UINT_EQ(r.regions.shared_blocks, 2);
  trace_close(t);
  t = requests(prefixed, "deepseek-v3");
  if (t == NULL) return;
  VEXPECT_FALSE(replay_run(t, &options, &r, &error));
  VEXPECT_STR_CONTAINS(error.text, "no multiple of a page");
  trace_close(t);
}

// Several streams and ways in which work runs: a request's region is its stream's.
VTEST(RegionReplay, StreamsAndWork) {
  static const char *const works[] = {"late", "early", "seed:3", "lag:5", "none"};
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  for (size_t i = 0; i < 5; i++) {
    replay_options options = REPLAY_OPTIONS_INIT;
    options.streams = 2;
    options.repeat = 300;
    VASSERT_TRUE(work_mode_parse(works[i], &options.work));
    replay_result r = play(t, &options);
    VEXPECT_UINT_EQ(r.allocs, 600);
  }
  trace_close(t);
}

// A device that is too small: what can't grow is ended and counted, and the rest goes on.
VTEST(RegionReplay, ATooSmallDevice) {
  trace *t = requests(two_requests, "llama-2-7b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.device_bytes = 6 * MIB;
  replay_result r = {0};
  tool_error error = {{0}};
  VASSERT_TRUE(replay_run(t, &options, &r, &error));
  VEXPECT_UINT_EQ(r.failed_allocs, 1);  // the second arrives when the first has 3 pages
  VEXPECT_STR_CONTAINS(r.first_failure, "regions");
  VEXPECT_STR_EQ(r.fault, "");
  VEXPECT_FALSE(replay_good(&r));
  options.device_bytes = UINT64_MAX;
  options.min_capacity = true;
  r = play(t, &options);
  VEXPECT_UINT_EQ(r.min_capacity_bytes, 10 * MIB);
  trace_close(t);
}

VTEST(RegionReplay, TheDocumentHasBothFigures) {
  trace *t = requests(prefixed, "llama-3-8b");
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.kv_share = true;
  replay_result r = play(t, &options);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(report_json(out, "x", &r));
  VEXPECT_TRUE(report_text(out, "x", t, &r));
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "\"mapped_to_requested\"");
  VEXPECT_STR_CONTAINS(text, "\"unshared_mapped_to_requested\"");
  VEXPECT_STR_CONTAINS(text, "\"shared_blocks\": 2");
  VEXPECT_STR_CONTAINS(text, "2 of 6 prefix blocks");
  free(text);
  trace_close(t);
}

// ---- stored traces; the peaks of live tokens were computed apart from this program ----

typedef struct stored {
  const char *name, *path, *model;
  bool share;
  uint64_t allocs, peak_tokens, token_bytes;
  double bound, unshared_bound;
} stored;
static const char *stored_name(const stored *s) { return s->name; }
static const stored stored_cases[] = {
    {"azure_conv", "azure_llm_2023/AzureLLMInferenceTrace_conv.csv", "llama-2-7b", false, 19366, 87851, 524288, 1.03,
     0},
    {"mooncake_synthetic", "mooncake/synthetic_trace.jsonl", "llama-3-8b", true, 3993, 1007048, 131072, 0.88, 1.03},
};

VTEST_P(RegionReplay, StaysWithinItsBounds, stored, stored_cases, stored_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace_defaults.kv.layout = SERVICE_REGION;
  trace_defaults.kv.model = model_find(p->model);
  trace *t = read_stored(p->path, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.kv_share = p->share;
  replay_result r = play(t, &options);
  VEXPECT_UINT_EQ(r.allocs, p->allocs);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, p->peak_tokens * p->token_bytes);
  VEXPECT_REAL_LE((double)r.peak_mapped_bytes, p->bound * (double)r.peak_requested_bytes);
  if (p->share) {
    VEXPECT_REAL_LE((double)r.unshared_peak_mapped_bytes, p->unshared_bound * (double)r.peak_requested_bytes);
    VEXPECT_UINT_LT(r.peak_mapped_bytes, r.unshared_peak_mapped_bytes);
  }
  trace_close(t);
}
