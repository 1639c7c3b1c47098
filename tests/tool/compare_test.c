// The models of other allocators: worked out by hand, the heap against a naive list, and the published figures of the
// stored traces.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/common/rng.h"
#include "tools/compare/heap.h"
#include "tools/compare/model.h"
#include "tools/replay/replay.h"
#include "tools/replay/report.h"

#define KIB UINT64_C(1024)
#define MIB (1024 * KIB)

// ---- the heap ----

#define MAX_BLOCKS 400

typedef struct naive {
  heap_block *free[MAX_BLOCKS];
  size_t count;
} naive;

static heap_block *naive_best(const naive *n, uint64_t bytes) {
  heap_block *best = NULL;
  for (size_t i = 0; i < n->count; i++) {
    heap_block *b = n->free[i];
    if (b->bytes < bytes) continue;
    if (best == NULL || b->bytes < best->bytes || (b->bytes == best->bytes && b->address < best->address)) best = b;
  }
  return best;
}

static void naive_remove(naive *n, const heap_block *block) {
  for (size_t i = 0; i < n->count; i++) {
    if (n->free[i] != block) continue;
    n->free[i] = n->free[--n->count];
    return;
  }
  VADD_FAILURE("the block at %llu was not free", (unsigned long long)block->address);
}

// The list in order is the naive list in order.
static void expect_same(const heap_list *list, const naive *n) {
  size_t count = 0;
  const heap_block *previous = NULL;
  for (const heap_block *b = heap_best(list, 0); b != NULL; b = heap_after(list, b)) {
    VEXPECT_INT_EQ(b->state, HEAP_FREE);
    if (previous != NULL && previous->bytes == b->bytes) VEXPECT_UINT_LT(previous->address, b->address);
    if (previous != NULL) VEXPECT_UINT_LE(previous->bytes, b->bytes);
    previous = b;
    count++;
  }
  VEXPECT_UINT_EQ(count, n->count);
}

VTEST(Heap, AgreesWithANaiveList) {
  rng random = {.state = vtest_seed(1)};
  heap h = {0};
  heap_list list = {0};
  naive n = {.count = 0};
  for (uint64_t i = 0; i < vtest_ops(20000); i++) {
    const uint64_t bytes = rng_between(&random, 1, 60);  // many equal ones
    if (n.count < MAX_BLOCKS && rng_between(&random, 0, 99) < 52) {
      heap_block *b = heap_new(&h, &list, i * 100, bytes);
      VASSERT_NOT_NULL(b);
      heap_set_free(b);
      n.free[n.count++] = b;
    } else {
      heap_block *b = heap_best(&list, bytes);
      VASSERT_PTR_EQ(b, naive_best(&n, bytes));
      if (b == NULL) continue;
      heap_take(b);
      VEXPECT_INT_EQ(b->state, HEAP_LIVE);
      naive_remove(&n, b);
      heap_delete(&h, b);
    }
    if (i % 100 == 0) expect_same(&list, &n);
    VASSERT_NO_FAILURE();
  }
  heap_destroy(&h);
}

VTEST(Heap, SplitsAndMergesNeighbours) {
  heap h = {0};
  heap_list list = {0};
  heap_block *a = heap_new(&h, &list, 1000, 100), *b = heap_split(&h, a, 30), *c = heap_split(&h, b, 20);
  VEXPECT_UINT_EQ(a->bytes, 30);
  VEXPECT_UINT_EQ(b->address, 1030);
  VEXPECT_UINT_EQ(b->bytes, 20);
  VEXPECT_UINT_EQ(c->address, 1050);
  VEXPECT_UINT_EQ(c->bytes, 50);
  VEXPECT_PTR_EQ(c->previous, b);
  VEXPECT_PTR_EQ(heap_merge(&h, b), b);  // both neighbours are live
  heap_set_free(a);
  heap_set_free(c);
  heap_block *whole = heap_merge(&h, b);
  VEXPECT_PTR_EQ(whole, a);
  VEXPECT_UINT_EQ(whole->address, 1000);
  VEXPECT_UINT_EQ(whole->bytes, 100);
  VEXPECT_NULL(whole->next);
  VEXPECT_NULL(list.root);
  heap_destroy(&h);
}

// ---- by hand ----

static model *open_model(model_kind kind, uint64_t device_bytes) {
  model_cost cost;
  model_cost_defaults(&cost);
  model *m = model_open(kind, device_bytes, 3, &cost);
  VEXPECT_NOT_NULL(m);
  return m;
}

VTEST(Caching, SegmentsByTheSizeOfTheRequest) {
  model *m = open_model(MODEL_CACHING, UINT64_MAX);
  const model_counts *c = model_progress(m);
  static const struct {
    uint64_t bytes, mapped_mib;
  } steps[] = {{1, 2},               // 512 B of a small segment
               {MIB, 2},             // fits behind it
               {MIB + 1, 2 + 20},    // large: a buffer
               {10 * MIB, 2 + 20},   // fits into what is left of it: 20 MiB - 1 MiB - 512 B
               {10 * MIB, 22 + 10},  // a segment of its own; what is left of the buffer is 9 MiB - 512 B
               {11 * MIB, 32 + 12},  // rounded up to 2 MiB
               {9 * MIB - 512, 44},  // the rest of the buffer, to the byte
               {10 * MIB - 512, 44 + 20}};
  for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
    VEXPECT_TRUE(model_alloc(m, (uint32_t)i, steps[i].bytes, 0));
    VTRACE("request %zu", i);
    VEXPECT_UINT_EQ(c->mapped_bytes, steps[i].mapped_mib * MIB);
  }
  VEXPECT_UINT_EQ(c->calls.alloc, 5);
  VEXPECT_UINT_EQ(c->calls.create + c->calls.map + c->calls.reserve, 0);
  VEXPECT_NEAR(c->modelled_us, 500, 1e-9);
  model_close(m);
}

// A rest of up to 1 MiB stays part of a large block.
VTEST(Caching, SmallRestsOfLargeBlocksAreNotSplitOff) {
  model *m = open_model(MODEL_CACHING, UINT64_MAX);
  model_alloc(m, 0, 20 * MIB, 0);
  model_free(m, 0);
  model_alloc(m, 0, 19 * MIB, 0);
  model_alloc(m, 1, MIB + 1, 0);  // finds nothing
  VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 40 * MIB);
  model_free(m, 0);
  model_alloc(m, 0, 19 * MIB - 512, 0);  // from the second buffer's rest, and to the byte
  model_alloc(m, 2, 19 * MIB - 512, 0);  // from the first one, whose rest of 1 MiB and 512 B is split off
  model_alloc(m, 3, MIB + 512, 0);
  VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 40 * MIB);
  model_close(m);
}

VTEST(Caching, SmallBlocksAreSplitToTheLastStep) {
  model *m = open_model(MODEL_CACHING, UINT64_MAX);
  model_alloc(m, 0, MIB, 0);
  model_alloc(m, 1, MIB - 512, 0);
  model_alloc(m, 2, 512, 0);
  VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 2 * MIB);
  model_close(m);
}

VTEST(Caching, SegmentsWithALiveBlockStay) {
  model *m = open_model(MODEL_CACHING, 20 * MIB);
  const model_counts *c = model_progress(m);
  model_alloc(m, 0, 5 * MIB, 0);  // the first 5 MiB of a buffer
  model_alloc(m, 1, 5 * MIB, 0);
  model_free(m, 0);  // 5 MiB free, 5 MiB live, 10 MiB free
  model_alloc(m, 2, 16 * MIB, 0);
  VEXPECT_UINT_EQ(c->failed_allocs, 1);
  VEXPECT_UINT_EQ(c->calls.free, 0);
  VEXPECT_UINT_EQ(c->mapped_bytes, 20 * MIB);
  model_close(m);
}

VTEST(Caching, WholeFreeSegmentsGoBackWhenTheDeviceIsFull) {
  model *m = open_model(MODEL_CACHING, 64 * MIB);
  const model_counts *c = model_progress(m);
  model_alloc(m, 0, 30 * MIB, 0);
  model_free(m, 0);
  model_alloc(m, 1, 20 * MIB, 1);  // another stream
  model_alloc(m, 2, 44 * MIB, 0);  // refused, 30 MiB given back, granted
  VEXPECT_UINT_EQ(c->failed_allocs, 0);
  VEXPECT_UINT_EQ(c->mapped_bytes, 64 * MIB);
  VEXPECT_UINT_EQ(c->calls.alloc, 4);
  VEXPECT_UINT_EQ(c->calls.free, 1);
  model_alloc(m, 3, 1, 0);
  VEXPECT_UINT_EQ(c->failed_allocs, 1);
  VEXPECT_UINT_EQ(c->requested_bytes, 64 * MIB);
  model_free(m, 3);  // skipped
  VEXPECT_UINT_EQ(c->requested_bytes, 64 * MIB);
  model_close(m);
}

VTEST(Caching, StreamsKeepTheirFreeBlocks) {
  model *m = open_model(MODEL_CACHING, UINT64_MAX);
  model_alloc(m, 0, 12 * MIB, 0);
  model_free(m, 0);
  model_alloc(m, 0, 12 * MIB, 2);
  VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 24 * MIB);
  model_alloc(m, 1, 12 * MIB, 0);
  VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 24 * MIB);
  model_close(m);
}

VTEST(Expandable, GrowsByHandles) {
  model *m = open_model(MODEL_EXPANDABLE, UINT64_MAX);
  const model_counts *c = model_progress(m);
  model_alloc(m, 0, 512, 0);       // one handle of 2 MiB
  model_alloc(m, 1, 30 * MIB, 0);  // two of 20 MiB
  model_alloc(m, 2, 10 * MIB, 0);  // what is left of them
  VEXPECT_UINT_EQ(c->mapped_bytes, 42 * MIB);
  VEXPECT_UINT_EQ(c->calls.reserve, 2);
  VEXPECT_UINT_EQ(c->calls.create, 3);
  VEXPECT_UINT_EQ(c->calls.map, 3);
  VEXPECT_UINT_EQ(c->calls.set_access, 2);
  VEXPECT_NEAR(c->modelled_us, 2 * 10 + 3 * 30 + 3 * 1.5 + 2 * 5 + 3 * 30, 1e-9);
  model_free(m, 2);
  model_alloc(m, 2, 15 * MIB, 0);  // the free 10 MiB at the edge, and one handle more
  VEXPECT_UINT_EQ(c->mapped_bytes, 62 * MIB);
  model_alloc(m, 3, 15 * MIB, 0);  // exactly what is left
  VEXPECT_UINT_EQ(c->mapped_bytes, 62 * MIB);
  model_close(m);
}

//   |  handle 0  |  handle 1  |  handle 2  |  handle 3
//   [ A 15 | B 15    | C 15   | free 15    ]
// A and B go; D wants 35. Handle 0 lies whole in the free 30 and is given back, handle 1 does not. The hole of 20 and
// the free 10 behind it are too short; the free 15 at the end and one handle more are enough.
VTEST(Expandable, HandlesInsideFreeBlocksGoBackWhenTheDeviceIsFull) {
  model *m = open_model(MODEL_EXPANDABLE, 60 * MIB);
  const model_counts *c = model_progress(m);
  for (uint32_t i = 0; i < 3; i++) model_alloc(m, i, 15 * MIB, 0);
  VEXPECT_UINT_EQ(c->mapped_bytes, 60 * MIB);
  VEXPECT_UINT_EQ(c->calls.create, 3);
  model_free(m, 0);
  model_free(m, 1);
  model_alloc(m, 3, 35 * MIB, 0);
  VEXPECT_UINT_EQ(c->failed_allocs, 0);
  VEXPECT_UINT_EQ(c->mapped_bytes, 60 * MIB);
  VEXPECT_UINT_EQ(c->calls.create, 3 + 1 + 1);  // one was refused
  VEXPECT_UINT_EQ(c->calls.unmap, 1);
  VEXPECT_UINT_EQ(c->calls.release, 1);
  model_alloc(m, 4, 30 * MIB, 0);  // the hole and the free 10 would do, but the device is full
  VEXPECT_UINT_EQ(c->failed_allocs, 1);
  model_free(m, 2);
  model_alloc(m, 4, 10 * MIB, 0);  // [20, 30) and C's [30, 45) are one free block now
  VEXPECT_UINT_EQ(c->failed_allocs, 1);
  VEXPECT_UINT_EQ(c->calls.create, 3 + 1 + 1 + 2);  // a request that fails has tried twice
  model_close(m);
}

// Neighbouring holes are one hole, which grows by one call.
VTEST(Expandable, HolesJoin) {
  model *m = open_model(MODEL_EXPANDABLE, 60 * MIB);
  const model_counts *c = model_progress(m);
  model_alloc(m, 0, 20 * MIB, 0);
  model_alloc(m, 1, 20 * MIB, 0);
  for (uint32_t i = 0; i < 2; i++) {
    model_free(m, i);
    model_alloc(m, 2, 61 * MIB, 1);  // never fits, and makes the free handle go
  }
  VEXPECT_UINT_EQ(c->mapped_bytes, 0);
  const model_calls before = c->calls;
  model_alloc(m, 0, 40 * MIB, 0);
  VEXPECT_UINT_EQ(c->calls.set_access, before.set_access + 1);
  VEXPECT_UINT_EQ(c->calls.map, before.map + 2);
  model_close(m);
}

// Handles that were made before one is refused are released again.
VTEST(Expandable, AHalfDoneGrowthIsUndone) {
  model *m = open_model(MODEL_EXPANDABLE, 50 * MIB);
  const model_counts *c = model_progress(m);
  model_alloc(m, 0, 60 * MIB, 0);
  VEXPECT_UINT_EQ(c->failed_allocs, 1);
  VEXPECT_UINT_EQ(c->mapped_bytes, 0);
  VEXPECT_UINT_EQ(c->calls.create, 2 * 3);  // tried twice
  VEXPECT_UINT_EQ(c->calls.release, 2 * 2);
  VEXPECT_UINT_EQ(c->calls.map, 0);
  model_alloc(m, 1, 40 * MIB, 0);
  VEXPECT_UINT_EQ(c->mapped_bytes, 40 * MIB);
  model_close(m);
}

VTEST(Models, HugeAndEmptyRequests) {
  for (int kind = 0; kind < MODEL_NUM_KINDS; kind++) {
    model *m = open_model((model_kind)kind, UINT64_MAX);
    VEXPECT_TRUE(model_alloc(m, 0, UINT64_MAX, 0));
    VEXPECT_UINT_EQ(model_progress(m)->failed_allocs, 1);
    VEXPECT_TRUE(model_alloc(m, 1, 0, 0));
    model_free(m, 1);
    model_free(m, 0);
    VEXPECT_UINT_EQ(model_progress(m)->failed_allocs, 1);
    VEXPECT_UINT_EQ(model_progress(m)->mapped_bytes, 0);
    model_close(m);
  }
}

VTEST(Cost, EveryCallHasItsPrice) {
  model_cost cost;
  model_cost_defaults(&cost);
  const model_calls calls = {.reserve = 1,
                             .create = 2,
                             .map = 2,
                             .set_access = 1,
                             .unmap = 3,
                             .release = 4,
                             .alloc = 5,
                             .free = 6,
                             .access_mappings = 7,
                             .unmap_mappings = 8,
                             .create_bytes = 9 * MIB};
  cost.create_per_mib = 1000;
  VEXPECT_NEAR(model_cost_us(&cost, &calls),
               10 + 2 * 30 + 2 * 1.5 + 5 + 4 * 20 + 5 * 100 + 6 * 100 + 7 * 30 + 8 * 20 + 9000, 1e-9);
}

VTEST(Cost, FilesChangeWhatTheyName) {
  char path[600];
  snprintf(path, sizeof(path), "%s/models.cost", vtest_temp_dir());
  FILE *file = fopen(path, "w");
  VASSERT_NOT_NULL(file);
  fputs("# what calls cost\nmem_create 7.5  # each\n\nstream_create 3\r\nset_access_per_mapping\t2", file);
  VASSERT_INT_EQ(fclose(file), 0);
  model_cost cost;
  tool_error error = {{0}};
  model_cost_defaults(&cost);
  VEXPECT_TRUE(model_cost_load(&cost, path, &error));
  const model_calls calls = {.create = 2, .set_access = 1, .access_mappings = 4, .map = 2};
  VEXPECT_NEAR(model_cost_us(&cost, &calls), 2 * 7.5 + 5 + 4 * 2 + 2 * 1.5, 1e-9);
  file = fopen(path, "w");
  fputs("mem_create\n", file);
  VASSERT_INT_EQ(fclose(file), 0);
  VEXPECT_FALSE(model_cost_load(&cost, path, &error));
  VEXPECT_STR_CONTAINS(error.text, "models.cost:1: a line is a name and microseconds");
  unlink(path);
  VEXPECT_FALSE(model_cost_load(&cost, path, &error));
}

// ---- in a replay ----

static replay_result replay(const char *text, replay_options options) {
  replay_result r = {0};
  tool_error error;
  trace *t = parse_text(text, &error);
  VEXPECT_NOT_NULL(t);
  options.compare = true;
  if (t != NULL && !replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  trace_close(t);
  VEXPECT_TRUE(r.has_models);
  return r;
}

static const replay_options defaults = REPLAY_OPTIONS_INIT;

// Two blocks of 15 MiB, then one of 30 MiB when they are gone.
#define TWO_THEN_ONE "alloc 1 15728640 0\nalloc 2 15728640 0\nfree 1\nfree 2\nalloc 3 31457280 0\n"

VTEST(Compare, SmallestDevices) {
  const replay_result r = replay(TWO_THEN_ONE, defaults);
  const replay_model_result *caching = &r.models[MODEL_CACHING], *expandable = &r.models[MODEL_EXPANDABLE];
  VEXPECT_UINT_EQ(caching->min_capacity_bytes, 32 * MIB);        // two segments of 16 MiB
  VEXPECT_UINT_EQ(expandable->min_capacity_bytes, 40 * MIB);     // two handles
  VEXPECT_UINT_EQ(caching->peak_mapped_bytes, (32 + 30) * MIB);  // on the replay's device, which is unlimited
  VEXPECT_UINT_EQ(expandable->peak_mapped_bytes, 40 * MIB);
  VEXPECT_FALSE(r.has_min_capacity);  // the pool's was not asked for
}

VTEST(Compare, EachOnItsOwnSmallestDevice) {
  replay_options options = defaults;
  options.min_capacity = true;
  const replay_result r = replay(TWO_THEN_ONE, options);
  VEXPECT_UINT_EQ(r.models[MODEL_CACHING].peak_mapped_bytes, 32 * MIB);
  VEXPECT_UINT_EQ(r.models[MODEL_CACHING].calls.free, 2);
  VEXPECT_UINT_EQ(r.models[MODEL_CACHING].failed_allocs, 0);
}

VTEST(Compare, OnADeviceThatIsTooSmall) {
  replay_options options = defaults;
  options.device_bytes = 30 * MIB;
  const replay_result r = replay(TWO_THEN_ONE, options);
  VEXPECT_UINT_EQ(r.models[MODEL_CACHING].failed_allocs, 1);
  VEXPECT_UINT_EQ(r.models[MODEL_EXPANDABLE].failed_allocs, 2);
  VEXPECT_UINT_EQ(r.models[MODEL_EXPANDABLE].min_capacity_bytes, 40 * MIB);
}

// Scale, repetition, streams and intruders reach the models too.
VTEST(Compare, SeesTheSameEvents) {
  replay_options options = defaults;
  options.scale = 2;
  options.repeat = 3;
  options.streams = 2;
  tool_error error;
  VASSERT_TRUE(intruder_parse("every=2,bytes=12MiB", &options.intruder, &error));
  // Each time: 24 MiB come and go, and 12 MiB stay.
  const replay_result r = replay("alloc 1 12582912 0\nfree 1\n", options);
  VEXPECT_UINT_EQ(r.ops, 9);
  // Two segments of 24 MiB: one holds the first two pieces that stay, the other what comes and goes.
  VEXPECT_UINT_EQ(r.peak_requested_bytes, (24 + 2 * 12) * MIB);
  for (int kind = 0; kind < MODEL_NUM_KINDS; kind++)
    VEXPECT_UINT_GE(r.models[kind].peak_mapped_bytes, r.peak_requested_bytes);
  VEXPECT_UINT_EQ(r.models[MODEL_CACHING].peak_mapped_bytes, 2 * 24 * MIB);
}

VTEST(Compare, ADocumentHasTheModels) {
  const replay_result r = replay(TWO_THEN_ONE, defaults);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(report_json(out, "t", &r));
  fclose(out);
  json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
  free(text);
  VASSERT_NOT_NULL(document);
  const json_t *models = json_object_get(document, "models");
  static const char *const names[] = {"caching", "expandable"};
  VEXPECT_UINT_EQ(json_object_size(models), 2);
  for (int i = 0; i < 2; i++) {
    const json_t *m = json_object_get(models, names[i]), *calls = json_object_get(m, "driver_calls");
    VTRACE("%s", names[i]);
    VEXPECT_TRUE(json_is_integer(json_object_get(m, "min_capacity_bytes")));
    VEXPECT_TRUE(json_is_integer(json_object_get(m, "peak_mapped_bytes")));
    VEXPECT_TRUE(json_is_real(json_object_get(m, "modelled_driver_us")));
    VEXPECT_INT_EQ(json_integer_value(json_object_get(calls, i == 0 ? "alloc" : "create")), i == 0 ? 3 : 2);
  }
  json_decref(document);
}

// ---- the stored traces ----

// Smallest device ÷ peak, as published with the design: figures of an independent implementation.
typedef struct published {
  const char *name, *path;
  double caching, expandable;
} published;
static const char *published_name(const published *p) { return p->name; }
static const published figures[] = {
    {"hta", "hta/ddp_rank1_v100_gpu_alloc.csv", 1.079, 1.041},
    {"kineto_workers0", "kineto_resnet50/resnet50_workers0_run1.csv", 1.029, 1.007},
    {"pangu", "idealloc/somas_tensors_pangu_2.6B.csv", 1.056, 1.024},
    {"somas_resnet50", "idealloc/somas_tensors_resnet50.csv", 1.055, 1.016},
    {"iopddl_S", "idealloc/iopddl_S_1.csv", 1.055, 1.034},
    {"iopddl_G", "idealloc/iopddl_G_1.csv", 1.023, 1.005},
};

VTEST_P(Compare, PublishedFigures, published, figures, published_name) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  const trace_options trace_defaults = TRACE_OPTIONS_INIT;
  trace *t = read_stored(p->path, &trace_defaults);
  VASSERT_NOT_NULL(t);
  replay_options options = defaults;
  options.compare = true;
  options.work.none = true;
  replay_result r = {0};
  tool_error error = {{0}};
  if (!replay_run(t, &options, &r, &error)) VADD_FAILURE("%s", error.text);
  trace_close(t);
  const double peak = (double)r.peak_requested_bytes;
  VEXPECT_NEAR((double)r.models[MODEL_CACHING].min_capacity_bytes / peak, p->caching, 0.005);
  VEXPECT_NEAR((double)r.models[MODEL_EXPANDABLE].min_capacity_bytes / peak, p->expandable, 0.005);
}
