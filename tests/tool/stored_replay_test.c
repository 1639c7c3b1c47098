// The stored traces through a pool, with queued work that runs late: nothing fails, nothing is touched that is not
// there, and the smallest device stays within its bound.
#include <stdio.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/replay/replay.h"

typedef struct replayed {
  const char *name, *path;
  const char *conf;  // NULL: the pool's defaults
  uint64_t allocs, frees, peak_requested_bytes;
  double capacity_ratio;  // smallest device / peak requested, at most; 0: not searched
} replayed;
static const char *replayed_name(const replayed *r) { return r->name; }

#define HTA "hta/ddp_rank1_v100_gpu_alloc.csv"
static const replayed cases[] = {
    {"hta", HTA, NULL, 13385, 13385, 2532893696, 1.035},
    {"hta_one_granule_chunks", HTA, "chunk_max:1granule", 13385, 13385, 2532893696, 1.02},
    {"timeline", "hta/profiler_memory_timeline.csv", NULL, 3990, 3345, 3082832104, 0},
    {"kineto", "kineto_resnet50/resnet50_workers0_run1.csv", NULL, 4110, 4110, 2791636480, 0},
    {"alexnet", "allocatorsim/alexnet_train.log", NULL, 193, 193, 1443669632, 0},
    {"pangu", "idealloc/somas_tensors_pangu_2.6B.csv", NULL, 18692, 18692, 5530099775, 0},
    {"iopddl_s", "idealloc/iopddl_S_1.csv", NULL, 28526, 28526, 1498635932, 0},
};

VTEST_P(StoredReplay, Completes, replayed, cases, replayed_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace *t = read_stored(p->path, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.conf = p->conf;
  options.min_capacity = p->capacity_ratio > 0;
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.allocs, p->allocs);
  VEXPECT_UINT_EQ(r.frees, p->frees);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, p->peak_requested_bytes);
  VEXPECT_STR_EQ(r.fault, "");
  if (p->capacity_ratio > 0) {
    VEXPECT_REAL_LE((double)r.min_capacity_bytes, p->capacity_ratio * (double)r.peak_requested_bytes);
    VEXPECT_UINT_GE(r.min_capacity_bytes, r.peak_requested_bytes);
  }
  trace_close(t);
}

// Several streams, all ways in which work can run: a pool that ignored fences would touch what is gone.
typedef struct worked {
  const char *name, *work;
} worked;
static const char *worked_name(const worked *w) { return w->name; }
static const worked works[] = {
    {"late", "late"}, {"early", "early"}, {"seed_1", "seed:1"}, {"seed_2", "seed:2"}, {"lag_100", "lag:100"}};

VTEST_P(StoredReplay, ThreeStreamsOnATightDevice, worked, works, worked_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace *t = read_stored(HTA, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.device_bytes = UINT64_C(2532893696) / 100 * 125;
  options.streams = 3;
  VASSERT_TRUE(work_mode_parse(p->work, &options.work));
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_STR_EQ(r.fault, "");
  trace_close(t);
}

// Requests of LLM serving with contiguous KV caches on a device of 1.05 times the peak: what of the mapped memory is
// not live at the moment when most is asked for. The second row takes parked memory before it makes any.
typedef struct served {
  const char *name, *conf;
  double fragmentation;  // at most
} served;
static const char *served_name(const served *s) { return s->name; }
static const served servings[] = {{"mixed", NULL, 0.05}, {"tight", "preset:tight,park_limit:0", 0.01}};

VTEST_P(StoredReplay, AzureConversationsAtTheirPeak, served, servings, served_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  trace_options how = TRACE_OPTIONS_INIT;
  how.kv.layout = SERVICE_CONTIGUOUS;
  how.kv.model = model_find("llama-2-7b");
  trace *t = read_stored("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", &how);
  VASSERT_NOT_NULL(t);
  const uint64_t peak = 50957123584;
  replay_options options = REPLAY_OPTIONS_INIT;
  options.device_bytes = peak / 100 * 105;
  options.conf = p->conf;
  options.work.none = true;
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.peak_requested_bytes, peak);
  VEXPECT_REAL_LE(r.fragmentation_at_peak, p->fragmentation);
  VEXPECT_REAL_GE(r.fragmentation_at_peak, 0);
  trace_close(t);
}

// Eight block sizes for the smallest 90 % of the conversations' requests, from the pool's own counts: what they waste,
// and that it is what the requests themselves say.
VTEST(StoredReplay, ClassesForAzureConversations) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  trace_options how = TRACE_OPTIONS_INIT;
  how.kv.layout = SERVICE_CONTIGUOUS;
  how.kv.model = model_find("llama-2-7b");
  trace *t = read_stored("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", &how);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.work.none = true;
  options.propose_classes = 8;
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  const vmp_class_proposal *p = &r.proposal;
  VEXPECT_UINT_EQ(p->requests, 19366);
  VEXPECT_UINT_EQ(p->num_classes, 8);
  VEXPECT_REAL_GE((double)p->covered_requests, 0.9 * 19366);
  VEXPECT_REAL_LE(p->waste, 0.10);
  uint64_t covered = 0;
  double asked = 0, held = 0;
  trace_event event;
  trace_rewind(t);
  while (trace_next(t, &event)) {
    if (event.kind != TRACE_ALLOC || event.bytes > p->class_bytes[7]) continue;
    size_t i = 0;
    while (p->class_bytes[i] < event.bytes) i++;
    covered++;
    asked += (double)event.bytes;
    held += (double)p->class_bytes[i];
  }
  VEXPECT_UINT_EQ(covered, p->covered_requests);
  VEXPECT_REAL_LE(held / asked - 1, p->waste + 1e-9);  // a class may hold part of a bucket that counts above it
  VEXPECT_REAL_GE(held / asked - 1, p->waste - 0.005);
  trace_close(t);
}

// 20 repetitions with a small block that stays after every 200 events: what they pin is given back by compaction,
// nearly all of it. At most 1.15 of what is requested stays mapped.
VTEST(StoredReplay, CompactionAfterIntruders) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace *t = read_stored(HTA, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.repeat = 20;
  tool_error error = {{0}};
  VASSERT_TRUE(intruder_parse("every=200,bytes=64KiB..1MiB", &options.intruder, &error));
  options.compact_end = true;
  replay_result r = {0};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VEXPECT_UINT_EQ(r.bad_touches, 0);
  VEXPECT_STR_EQ(r.fault, "");
  const double requested = (double)r.compaction.requested_bytes;
  printf("mapped / requested: %.3f after trim, %.3f after split, %.3f after mesh\n",
         (double)r.compaction.trimmed_bytes / requested, (double)r.compaction.split_bytes / requested,
         (double)r.compaction.meshed_bytes / requested);
  VEXPECT_REAL_LE((double)r.compaction.trimmed_bytes, 3 * requested);
  VEXPECT_REAL_LE((double)r.compaction.split_bytes, 1.5 * requested);
  VEXPECT_REAL_LE((double)r.compaction.meshed_bytes, 1.15 * requested);
  trace_close(t);
}

// Fourteen times over, each a step, on a device of 1.05 times the peak: from the fourth step on no driver call is made.
VTEST(StoredReplay, RepeatedStepsSettle) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace *t = read_stored(HTA, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.device_bytes = UINT64_C(2532893696) / 100 * 105;
  options.repeat = 14;
  options.work.none = true;
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(r.failed_allocs, 0);
  VASSERT_UINT_EQ(r.num_steps, 14);
  for (size_t i = 3; i < 14; i++) VEXPECT_UINT_EQ(r.steps[i].all, 0);
  trace_close(t);
}
