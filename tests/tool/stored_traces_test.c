// The stored traces against the figures of their descriptions. Runs where VMPOOL_TRACES names them.
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/common/file.h"
#include "tools/common/rng.h"

typedef struct stored {
  const char *name, *path;
  uint64_t allocs, frees, peak_bytes, end_bytes, peak_blocks;  // peak_blocks 0: not known
} stored;
static const char *stored_name(const stored *s) { return s->name; }

static const stored traces[] = {
    {"hta", "hta/ddp_rank1_v100_gpu_alloc.csv", 13385, 13385, 2532893696, 0, 0},
    {"timeline", "hta/profiler_memory_timeline.csv", 645 + 3345, 3345, 3082832104, 332060904, 0},
    {"kineto_workers0", "kineto_resnet50/resnet50_workers0_run1.csv", 4110, 4110, 2791636480, 0, 0},
    {"kineto_workers4", "kineto_resnet50/resnet50_workers4_run1.csv", 4140, 4140, 2791505408, 0, 0},
    {"alexnet", "allocatorsim/alexnet_train.log", 193, 193, 1443669632, 0, 0},
    {"pangu", "idealloc/somas_tensors_pangu_2.6B.csv", 18692, 18692, 5530099775, 0, 1104},
    {"somas_resnet50", "idealloc/somas_tensors_resnet50.csv", 1042, 1042, 1515472556, 0, 322},
    {"iopddl_g_1", "idealloc/iopddl_G_1.csv", 816, 816, 3030937746, 0, 170},
    {"iopddl_s_1", "idealloc/iopddl_S_1.csv", 28526, 28526, 1498635932, 0, 3218},
    {"iopddl_y_1", "idealloc/iopddl_Y_1.csv", 62185, 62185, 497261190115, 0, 9331},
    {"minimalloc_a", "minimalloc/A.1048576.csv", 154, 154, 1048576, 0, 45},
    {"minimalloc_b", "minimalloc/B.1048576.csv", 170, 170, 1048576, 0, 41},
    {"minimalloc_c", "minimalloc/C.1048576.csv", 203, 203, 1039360, 0, 44},
    {"minimalloc_d", "minimalloc/D.1048576.csv", 213, 213, 986112, 0, 87},
    {"minimalloc_e", "minimalloc/E.1048576.csv", 215, 215, 1048576, 0, 30},
    {"minimalloc_f", "minimalloc/F.1048576.csv", 296, 296, 1048576, 0, 16},
    {"minimalloc_g", "minimalloc/G.1048576.csv", 308, 308, 1048576, 0, 18},
    {"minimalloc_h", "minimalloc/H.1048576.csv", 316, 316, 1048576, 0, 19},
    {"minimalloc_i", "minimalloc/I.1048576.csv", 374, 374, 1048576, 0, 67},
    {"minimalloc_j", "minimalloc/J.1048576.csv", 409, 409, 989184, 0, 110},
    {"minimalloc_k", "minimalloc/K.1048576.csv", 454, 454, 1048576, 0, 34},
};

static void expect_totals(trace *t, const stored *p) {
  trace_totals totals;
  trace_measure(t, &totals);
  VEXPECT_UINT_EQ(totals.allocs, p->allocs);
  VEXPECT_UINT_EQ(totals.frees, p->frees);
  VEXPECT_UINT_EQ(totals.peak_bytes, p->peak_bytes);
  VEXPECT_UINT_EQ(totals.end_bytes, p->end_bytes);
  if (p->peak_blocks != 0) VEXPECT_UINT_EQ(totals.peak_blocks, p->peak_blocks);
  VEXPECT_UINT_EQ(t->num_events, totals.allocs + totals.frees);
  VEXPECT_UINT_EQ(t->unmatched_frees, 0);
  VEXPECT_UINT_EQ(t->num_streams, 1);
}

VTEST_P(StoredTrace, CheckValues, stored, traces, stored_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options options = TRACE_OPTIONS_INIT;
  trace *t = read_stored(p->path, &options);
  VASSERT_NOT_NULL(t);
  expect_totals(t, p);
  trace_close(t);
}

// The pairing changes which block is freed, never how much is live.
VTEST_P(StoredTrace, PairingKeepsTheLiveCurve, stored, traces, stored_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options options = {.pairing = TRACE_FIFO, .device = -1};
  trace *t = read_stored(p->path, &options);
  VASSERT_NOT_NULL(t);
  expect_totals(t, p);
  trace_close(t);
}

// Cut anywhere but at the end of a line, the file is refused: the running total gives a cut last number away.
VTEST(StoredTrace, ACutFileIsRefused) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  char path[1024];
  snprintf(path, sizeof(path), "%s/%s", vtest_traces_dir(), traces[0].path);
  file_text file;
  tool_error error = {{0}};
  VASSERT_TRUE(file_load(&file, path, &error));
  rng r = {.state = vtest_seed(17)};
  const trace_options options = TRACE_OPTIONS_INIT;
  for (int i = 0; i < 60; i++) {
    const size_t cut = rng_between(&r, 1, file.bytes - 1);
    VTRACE("cut after %zu bytes", cut);
    trace *t = NULL;
    const bool whole_lines = file.text[cut - 1] == '\n' || file.text[cut] == '\n';
    VEXPECT_INT_EQ(trace_parse("cut", file.text, cut, &options, &t, &error), whole_lines);
    trace_close(t);
  }
  free(file.text);
}

typedef struct served {
  const char *name, *path, *model;
  uint64_t pages, peak_pages, paged_peak_bytes;
  uint64_t requests, peak_requests, contiguous_peak_bytes;
} served;
static const char *served_name(const served *s) { return s->name; }

#define CODE "azure_llm_2023/AzureLLMInferenceTrace_code.csv"
#define CONV "azure_llm_2023/AzureLLMInferenceTrace_conv.csv"
#define MOONCAKE_CONV "mooncake/conversation_trace.first6000.jsonl"
#define MOONCAKE_SYNTHETIC "mooncake/synthetic_trace.jsonl"

static const served servings[] = {
    {"code_7b", CODE, "llama-2-7b", 1148326, 10850, 91016396800, 8819, 70, 92136800256},
    {"code_70b", CODE, "llama-3-70b", 1148326, 10850, 56885248000, 8819, 70, 57585500160},
    {"conv_7b", CONV, "llama-2-7b", 1662197, 5518, 46288338944, 19366, 63, 50957123584},
    {"conv_70b", CONV, "llama-3-70b", 1662197, 5518, 28930211840, 19366, 63, 31848202240},
    {"mooncake_conversation_70b", MOONCAKE_CONV, "llama-3-70b", 4923163, 72031, 377649889280, 6000, 74, 383553372160},
    {"mooncake_synthetic_70b", MOONCAKE_SYNTHETIC, "llama-3-70b", 3863772, 62961, 330096967680, 3993, 45, 331636408320},
};

static void expect_serving(const served *p, service_layout layout, uint64_t allocs, uint64_t blocks, uint64_t bytes) {
  const trace_options options = {.kv = {.layout = layout, .model = model_find(p->model)}, .device = -1};
  trace *t = read_stored(p->path, &options);
  VASSERT_NOT_NULL(t);
  trace_totals totals;
  trace_measure(t, &totals);
  VEXPECT_UINT_EQ(totals.allocs, allocs);
  VEXPECT_UINT_EQ(totals.frees, allocs);
  VEXPECT_UINT_EQ(totals.peak_blocks, blocks);
  VEXPECT_UINT_EQ(totals.peak_bytes, bytes);
  VEXPECT_UINT_EQ(totals.end_bytes, 0);
  VEXPECT_UINT_EQ(t->num_events, 2 * allocs);
  trace_close(t);
}

VTEST_P(StoredRequests, Paged, served, servings, served_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  expect_serving(p, SERVICE_PAGED, p->pages, p->peak_pages, p->paged_peak_bytes);
}

VTEST_P(StoredRequests, Contiguous, served, servings, served_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  expect_serving(p, SERVICE_CONTIGUOUS, p->requests, p->peak_requests, p->contiguous_peak_bytes);
}

// Sizes of the contiguous blocks of the conversation trace run from 32 MiB to 6.9 GiB.
VTEST(StoredRequests, BlockSizesOfTheConversationTrace) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options options = {.kv = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-2-7b")}, .device = -1};
  trace *t = read_stored(CONV, &options);
  VASSERT_NOT_NULL(t);
  uint64_t least = UINT64_MAX, most = 0;
  trace_event e;
  while (trace_next(t, &e)) {
    if (e.bytes < least) least = e.bytes;
    if (e.bytes > most) most = e.bytes;
  }
  VEXPECT_NEAR((double)least / (1 << 20), 32, 4);
  VEXPECT_NEAR((double)most / (1 << 30), 6.9, 0.05);
  trace_close(t);
}

// 28257 requests; lengths only, so arrivals are even.
VTEST(StoredRequests, Vidur) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options options = {
      .kv = {.layout = SERVICE_CONTIGUOUS, .model = model_find("llama-2-7b")}, .request_rate = 4, .device = -1};
  trace *t = read_stored("vidur/arxiv_summarization_llama2_lengths.csv", &options);
  VASSERT_NOT_NULL(t);
  trace_totals totals;
  trace_measure(t, &totals);
  VEXPECT_UINT_EQ(totals.allocs, 28257);
  trace_event e;
  for (int i = 0; i < 3;) {
    VASSERT_TRUE(trace_next(t, &e));
    if (e.kind == TRACE_ALLOC) VEXPECT_INT_EQ(e.t_us, 250000 * i++);
  }
  trace_close(t);
}
