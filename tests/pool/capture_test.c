// capture_test.c: allocation inside a stream capture: what a graph holds, and what the pool must not do to a capturing
// stream. Bug cases 48, 49, 50. The host driver invalidates a capture at the first call that it forbids; each test ends
// the driver's capture and expects a graph of it.
#include <pthread.h>
#include <stdio.h>

#include "pool/capture_internal.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/faults.h"
#include "vmm/memory.h"

typedef struct layer {
  const char *name, *conf;
  uint64_t bytes;
} layer;

static const layer layers[] = {{"slab", "no_map_ahead:1", 20000},
                               {"mid", "no_map_ahead:1", 5 * MIB},
                               {"buddy", "no_map_ahead:1,buddy_from:1MiB", 6 * MIB}};
static const char *layer_name(const layer *l) { return l->name; }

static void make_current(pool_rig *f) {
  vmp_cu_context context = NULL;
  VASSERT_INT_EQ(vmp_drv_primary_ctx_retain(f->driver, &context, 0), 0);
  VASSERT_INT_EQ(vmp_drv_ctx_set_current(f->driver, context), 0);
}

static void leave_current(pool_rig *f) {
  VEXPECT_INT_EQ(vmp_drv_ctx_set_current(f->driver, NULL), 0);
  VEXPECT_INT_EQ(vmp_drv_primary_ctx_release(f->driver, 0), 0);
}

static void open(pool_rig *f, uint64_t device_bytes, const char *conf) {
  rig_open(f, device_bytes, conf);
  VASSERT_NO_FAILURE();
  make_current(f);
}

static vmp_graph_id begin_mode(pool_rig *f, vmp_stream stream, int mode) {
  vmp_graph_id graph = 0;
  VEXPECT_OK(vmp_capture_begin(f->pool, stream, &graph));
  VEXPECT_UINT_NE(graph, 0);
  VEXPECT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)stream, mode), 0);
  return graph;
}
static vmp_graph_id begin(pool_rig *f, vmp_stream stream) { return begin_mode(f, stream, VMP_CU_CAPTURE_GLOBAL); }

// end_driver expects that the capture is whole.
static void end_driver(pool_rig *f, vmp_stream stream) {
  void *graph = NULL;
  VEXPECT_INT_EQ(vmp_drv_stream_end_capture(f->driver, (vmp_cu_stream)stream, &graph), 0);
  if (graph != NULL) VEXPECT_INT_EQ(vmp_drv_graph_destroy(f->driver, graph), 0);
}

static void end(pool_rig *f, vmp_stream stream) {
  end_driver(f, stream);
  VEXPECT_OK(vmp_capture_end(f->pool, stream));
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
}

static void *take(pool_rig *f, uint64_t bytes, vmp_stream stream) {
  void *block = rig_alloc(f, bytes, stream);
  rig_touch(f, block, bytes, stream);
  return block;
}

// ---- case 49: the modes, and the order of the two beginnings ----

typedef struct mode {
  const char *name;
  int mode;
  bool driver_first;
} mode;
static const mode modes[] = {{"global", VMP_CU_CAPTURE_GLOBAL, false},
                             {"thread_local", VMP_CU_CAPTURE_THREAD_LOCAL, false},
                             {"relaxed", VMP_CU_CAPTURE_RELAXED, false},
                             {"global_driver_first", VMP_CU_CAPTURE_GLOBAL, true},
                             {"relaxed_driver_first", VMP_CU_CAPTURE_RELAXED, true}};
static const char *mode_name(const mode *m) { return m->name; }

typedef struct other_thread {
  pool_rig *f;
  vmp_stream stream;
} other_thread;

static void *allocate_elsewhere(void *context) {
  const other_thread *t = context;
  for (int i = 0; i < 20; i++) {
    void *small = take(t->f, 3000, t->stream), *large = take(t->f, 70 * MIB, t->stream);
    rig_free(t->f, small, t->stream);
    rig_free(t->f, large, t->stream);
    VEXPECT_OK(vmp_pool_trim(t->f->pool, 0, NULL));
  }
  return NULL;
}

VTEST_FP(Capture, Case49EveryModeStaysWhole, pool_rig, mode, modes, mode_name) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  // Cached, pending and complete memory of several streams lies about.
  for (size_t i = 0; i < RIG_STREAMS; i++) {
    rig_free(f, take(f, 3000, f->streams[i]), f->streams[i]);
    rig_free(f, take(f, 40 * MIB, f->streams[i]), f->streams[i]);
  }
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[3]));
  vmp_graph_id graph = 0;
  if (p->driver_first) VASSERT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)s, p->mode), 0);
  VASSERT_OK(vmp_capture_begin(f->pool, s, &graph));
  if (!p->driver_first) VASSERT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)s, p->mode), 0);
  void *blocks[4] = {take(f, 3000, s), take(f, 100000, s), take(f, 3 * GIB, s), take(f, 40 * MIB, s)};
  for (size_t i = 0; i < 3; i++) rig_free(f, blocks[i], s);
  other_thread other = {f, f->streams[1]};
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, allocate_elsewhere, &other), 0);
  for (int i = 0; i < 20; i++) rig_free(f, take(f, 100000, s), s);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  end(f, s);
  rig_free(f, blocks[3], f->streams[1]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  leave_current(f);
}

// vmp_capture_end may come first: until the driver's capture has ended the pool leaves the stream alone.
VTEST_F(Capture, ThePoolsEndMayComeFirst, pool_rig) {
  open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  void *outside = rig_alloc(f, 32 * MIB, s);
  vmp_graph_id graph = begin(f, s);
  void *inside = take(f, 16 * MIB, s);
  VEXPECT_OK(vmp_capture_end(f->pool, s));
  rig_free(f, outside, s);  // an ordinary free again, of a stream that can't be marked yet
  void *block = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, 40 * MIB, f->streams[1]), VMP_ERROR_CAPTURE);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  end_driver(f, s);
  block = take(f, 40 * MIB, f->streams[1]);
  rig_free(f, block, f->streams[1]);
  rig_free(f, inside, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// ---- what the graph holds ----

// Case 50: the addresses stay, and so does the memory behind them, whatever the pool does.
VTEST_FP(Capture, Case50AddressesStay, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  vmp_graph_id graph = begin(f, s);
  void *freed = take(f, p->bytes, s), *live = take(f, p->bytes, s);
  rig_free(f, freed, s);
  end(f, s);
  uint64_t value = 0x1122334455667788u, read = 0;
  VASSERT_INT_EQ(vmp_host_poke(f->driver, rig_address(freed), &value, sizeof value), 0);
  rig_free(f, live, f->streams[1]);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.blocks, 0);
  VEXPECT_UINT_GE(stats.graph_kept, 2 * p->bytes);
  void *others[40];
  for (size_t i = 0; i < 40; i++) {
    others[i] = rig_alloc(f, p->bytes, f->streams[i % RIG_STREAMS]);
    VEXPECT_TRUE(others[i] != freed && others[i] != live);
  }
  for (size_t i = 0; i < 40; i++) rig_free(f, others[i], f->streams[i % RIG_STREAMS]);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_OK(vmp_pool_defragment(f->pool, NULL, NULL));
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  for (int launch = 0; launch < 100; launch++) {  // replays
    rig_touch(f, freed, p->bytes, f->streams[2]);
    rig_touch(f, live, p->bytes, f->streams[2]);
  }
  VASSERT_INT_EQ(vmp_host_peek(f->driver, rig_address(freed), &read, sizeof read), 0);
  VEXPECT_UINT_EQ(read, value);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));  // under the launches on stream 2: nothing goes yet
  rig_check(f);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
  leave_current(f);
}

// What was freed in the capture on its stream serves the next allocation there, and nobody else.
VTEST_FP(Capture, ReuseWithinTheCapture, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  vmp_graph_id graph = begin(f, s);
  void *first = take(f, p->bytes, s);
  rig_free(f, first, s);
  uint64_t calls = rig_all_calls(f->driver);
  void *other = rig_alloc(f, p->bytes, f->streams[1]);
  VEXPECT_PTR_NE(other, first);
  void *again = NULL;
  calls = rig_all_calls(f->driver);
  VEXPECT_OK(vmp_alloc(f->pool, &again, p->bytes - 100, s));
  VEXPECT_PTR_EQ(again, first);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  VEXPECT_UINT_EQ(rig_stats(f).requested, 2 * p->bytes - 100);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, again, f->streams[1]);  // another stream's work may still use it
  void *next = take(f, p->bytes, s);
  VEXPECT_PTR_NE(next, first);
  rig_free(f, next, s);
  end(f, s);
  void *after = rig_alloc(f, p->bytes, s);
  VEXPECT_TRUE(after != first && after != next);
  rig_free(f, after, s);
  rig_free(f, other, f->streams[1]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// A block from outside that is freed inside may be used by the captured work.
VTEST_FP(Capture, ABlockFromOutsideThatIsFreedInside, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  void *outside = rig_alloc(f, p->bytes, f->streams[1]);
  vmp_graph_id graph = begin(f, s);
  rig_touch(f, outside, p->bytes, s);
  rig_free(f, outside, s);
  end(f, s);
  void *block = rig_alloc(f, p->bytes, s);
  VEXPECT_PTR_NE(block, outside);
  rig_free(f, block, s);
  VEXPECT_UINT_GE(rig_stats(f).graph_kept, p->bytes);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.kept_captured_bytes, rig_stats(f).graph_kept);
  VEXPECT_UINT_GE(report.kept_live_bytes, report.kept_captured_bytes);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.kept_captured_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  leave_current(f);
}

// A recorded use by a capturing stream, and a block of two graphs: it is kept until both have let go of it.
VTEST_FP(Capture, TwoGraphsHoldABlock, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0], t = f->streams[1];
  void *block = rig_alloc(f, p->bytes, f->streams[2]);
  vmp_graph_id first = begin(f, s);
  VEXPECT_OK(vmp_record_use(f->pool, block, s));
  VEXPECT_OK(vmp_record_use(f->pool, block, s));
  end(f, s);
  vmp_graph_id second = begin(f, t);
  VEXPECT_UINT_NE(second, first);
  VEXPECT_OK(vmp_record_use(f->pool, block, t));
  rig_free(f, block, t);
  void *other = take(f, p->bytes, t);
  VEXPECT_PTR_NE(other, block);  // the first graph's, too: not for this capture's reuse
  rig_free(f, other, t);
  end(f, t);
  uint64_t kept = rig_stats(f).graph_kept;
  VEXPECT_OK(vmp_capture_release(f->pool, second));
  VEXPECT_UINT_LT(rig_stats(f).graph_kept, kept);
  VEXPECT_UINT_GE(rig_stats(f).graph_kept, p->bytes);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_capture_release(f->pool, first));
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  leave_current(f);
}

// A block that is live when its graph is released is an ordinary block again.
VTEST_FP(Capture, LiveBlocksOutliveTheirGraph, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  vmp_graph_id graph = begin(f, s);
  void *block = take(f, p->bytes, s);
  end(f, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_UINT_EQ(rig_stats(f).blocks, 1);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, block, s);
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
  leave_current(f);
}

VTEST_FP(Capture, FreesAreStillChecked, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  vmp_graph_id graph = begin(f, s);
  void *block = take(f, p->bytes, s);
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(block, 512), s), VMP_ERROR_NOT_A_BLOCK);
  rig_free(f, block, s);
  VEXPECT_STATUS(vmp_free(f->pool, block, s), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[1]), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_record_use(f->pool, block, s), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, &block, s), VMP_ERROR_NOT_A_BLOCK);
  end(f, s);
  VEXPECT_STATUS(vmp_free(f->pool, block, s), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_STATUS(vmp_free(f->pool, block, s), VMP_ERROR_DOUBLE_FREE);
  leave_current(f);
}

// ---- what memory it gets ----

// Captured work runs later, perhaps on another stream: not even the stream's own earlier work may still use the memory.
VTEST_FP(Capture, OwnUnfinishedWorkCounts, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  enum { BLOCKS = 8 };
  void *pending[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) pending[i] = take(f, p->bytes, s);  // slab: a whole span
  for (size_t i = 0; i < BLOCKS; i++) rig_free(f, pending[i], s);
  vmp_graph_id graph = begin(f, s);
  void *block = take(f, p->bytes, s);
  for (size_t i = 0; i < BLOCKS; i++) VEXPECT_PTR_NE(block, pending[i]);
  rig_free(f, block, s);
  end(f, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  // What has finished will do, though the pool is told only when it asks.
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, s));
  uint64_t mapped = rig_stats(f).mapped;
  graph = begin(f, s);
  block = take(f, p->bytes, s);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, mapped);
  end(f, s);
  rig_free(f, block, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// Case 48: nothing is left that needs no wait: a status of its own, and the capture is as it was.
VTEST_FP(Capture, Case48NothingLeft, pool_rig, layer, layers, layer_name) {
  char conf[200];
  snprintf(conf, sizeof conf, "%s,hard_limit:64MiB", p->conf);
  open(f, 8 * GIB, conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  void *pending = take(f, 64 * MIB, f->streams[1]);
  rig_free(f, pending, f->streams[1]);
  vmp_graph_id graph = begin(f, s);
  vmp_driver_calls calls = rig_calls(f);
  vmp_pool_stats_data before = rig_stats(f);
  void *block = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, p->bytes, s), VMP_ERROR_CAPTURE);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "the stream captures");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "pending 64MiB");
  VEXPECT_PTR_EQ(block, NULL);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_UINT_EQ(rig_calls(f).stream_wait, calls.stream_wait);
  VEXPECT_UINT_EQ(rig_calls(f).synchronize, calls.synchronize);
  VEXPECT_UINT_EQ(rig_calls(f).unmap, calls.unmap);
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, 65 * MIB, s), VMP_ERROR_LIMIT);  // never
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[1]));
  block = take(f, p->bytes, s);  // now it can
  rig_free(f, block, s);
  end(f, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// New memory goes up to the hard limit: in a capture the soft one can't be kept by waiting.
VTEST_F(Capture, TheSoftLimitGivesWay, pool_rig) {
  open(f, 8 * GIB, "soft_limit:32MiB,hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  rig_free(f, take(f, 32 * MIB, f->streams[1]), f->streams[1]);
  vmp_graph_id graph = begin(f, f->streams[0]);
  void *block = take(f, 32 * MIB, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * MIB);
  end(f, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// ---- other streams meanwhile ----

// What the capturing stream had freed before was marked when the capture began: others wait for that mark.
VTEST_F(Capture, OthersTakeWhatTheStreamHadFreed, pool_rig) {
  open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  rig_free(f, take(f, 64 * MIB, s), s);
  vmp_graph_id graph = begin(f, s);
  void *block = take(f, 64 * MIB, f->streams[1]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);
  end(f, s);
  rig_free(f, block, f->streams[1]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// Where the driver's capture had begun before, it can't be marked: then nobody gets it until the capture has ended.
VTEST_F(Capture, WhatCannotBeMarkedIsNotHandedOut, pool_rig) {
  open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  void *block = NULL;
  rig_free(f, take(f, 64 * MIB, s), s);
  VASSERT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)s, VMP_CU_CAPTURE_GLOBAL), 0);
  vmp_graph_id graph = 0;
  VASSERT_OK(vmp_capture_begin(f->pool, s, &graph));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, 64 * MIB, f->streams[1]), VMP_ERROR_CAPTURE);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(after.live, before.live);
  VEXPECT_UINT_EQ(after.mapped, before.mapped);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  end(f, s);
  block = take(f, 64 * MIB, f->streams[1]);
  rig_free(f, block, f->streams[1]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}

// A stream that joined the capture, unknown to the pool, is not touched either.
VTEST_F(Capture, JoinedStreamsAreLeftAlone, pool_rig) {
  open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0], joined = f->streams[1];
  void *block = rig_alloc(f, 64 * MIB, joined), *none = NULL;
  vmp_cu_event fork = NULL, join = NULL;
  VASSERT_INT_EQ(vmp_drv_event_create(f->driver, &fork, VMP_CU_EVENT_DISABLE_TIMING), 0);
  VASSERT_INT_EQ(vmp_drv_event_create(f->driver, &join, VMP_CU_EVENT_DISABLE_TIMING), 0);
  vmp_graph_id graph = begin(f, s);
  VASSERT_INT_EQ(vmp_drv_event_record(f->driver, fork, (vmp_cu_stream)s), 0);
  VASSERT_INT_EQ(vmp_drv_stream_wait_event(f->driver, (vmp_cu_stream)joined, fork, 0), 0);
  rig_free(f, block, joined);
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 64 * MIB, f->streams[2]), VMP_ERROR_CAPTURE);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VASSERT_INT_EQ(vmp_drv_event_record(f->driver, join, (vmp_cu_stream)joined), 0);
  VASSERT_INT_EQ(vmp_drv_stream_wait_event(f->driver, (vmp_cu_stream)s, join, 0), 0);
  end(f, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VASSERT_INT_EQ(vmp_drv_event_destroy(f->driver, fork), 0);
  VASSERT_INT_EQ(vmp_drv_event_destroy(f->driver, join), 0);
  block = take(f, 64 * MIB, f->streams[2]);
  rig_free(f, block, f->streams[2]);
  leave_current(f);
}

// ---- misuse ----

VTEST_F(Capture, Refusals, pool_rig) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  vmp_graph_id graph = 77, other = 0;
  VEXPECT_STATUS(vmp_capture_begin(NULL, s, &graph), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_capture_begin(f->pool, s, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_capture_begin(f->pool, NULL, &graph), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_capture_begin(f->pool, (vmp_stream)(uintptr_t)1, &graph), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_capture_end(f->pool, s), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_capture_release(f->pool, 1), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(graph, 77);
  graph = begin(f, s);
  VEXPECT_STATUS(vmp_capture_begin(f->pool, s, &other), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_capture_release(f->pool, graph), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_stream_retired(f->pool, s), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_pool_destroy(f->pool), VMP_ERROR_BUSY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "1 graphs");
  void *block = take(f, MIB, s);
  end(f, s);
  rig_free(f, block, s);
  VEXPECT_STATUS(vmp_pool_destroy(f->pool), VMP_ERROR_BUSY);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_STATUS(vmp_capture_release(f->pool, graph), VMP_ERROR_INVALID_VALUE);
  leave_current(f);
}

VTEST_F(Capture, DestroyReleasesGraphs, pool_rig) {
  open(f, 8 * GIB, "destroy_releases:1");
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, MIB, f->streams[2]), f->streams[2]);  // the pool knows it
  vmp_graph_id first = begin(f, f->streams[0]);
  void *block = take(f, MIB, f->streams[0]);
  (void)take(f, MIB, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  end(f, f->streams[0]);
  rig_touch(f, block, MIB, f->streams[2]);  // a launch that still runs
  vmp_graph_id second = begin(f, f->streams[1]);
  (void)take(f, MIB, f->streams[1]);
  VEXPECT_UINT_NE(first, second);
  end_driver(f, f->streams[1]);  // but the pool isn't told
  rig_destroy(f);
  leave_current(f);
}

// Host memory runs out at every allocation of its own: nothing has changed, and it works the next time.
VTEST_FP(Capture, EveryHostAllocationMayFail, pool_rig, layer, layers, layer_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_stream s = f->streams[0];
  enum { OUTSIDE = 300 };  // more than a capture has records for at its beginning
  static void *outside[OUTSIDE];
  for (size_t i = 0; i < OUTSIDE; i++) outside[i] = rig_alloc(f, p->bytes, f->streams[1]);
  uint64_t struck = 0;
  vmp_graph_id graph = 0;
  vmp_status status = VMP_ERROR_HOST_OUT_OF_MEMORY;
  for (uint64_t nth = 0; status == VMP_ERROR_HOST_OUT_OF_MEMORY; nth++) {
    vmp_mem_fail_after(nth, 1);
    status = vmp_capture_begin(f->pool, s, &graph);
    struck += vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
  }
  VASSERT_OK(status);
  VASSERT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)s, VMP_CU_CAPTURE_GLOBAL), 0);
  for (size_t i = 0; i < OUTSIDE; i++) {
    vmp_pool_stats_data before = rig_stats(f);
    vmp_mem_fail_after(0, UINT64_MAX);
    status = vmp_free(f->pool, outside[i], s);
    uint64_t failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    struck += failures;
    if (status == VMP_OK) continue;
    VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    vmp_pool_stats_data after = rig_stats(f);
    rig_expect_same_state(&before, &after);
    VASSERT_OK(vmp_pool_check(f->pool, NULL));
    rig_free(f, outside[i], s);
  }
  VEXPECT_UINT_GT(struck, 2);
  end(f, s);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, 0);
  leave_current(f);
}

VTEST_F(Capture, TheCheckerNoticesEachCorruption, pool_rig) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_graph_id graph = begin(f, f->streams[0]);
  void *kept = take(f, 5 * MIB, f->streams[0]), *live = take(f, 3 * MIB, f->streams[0]);
  rig_free(f, kept, f->streams[0]);
  vmp_captures *captures = &f->pool->captures;
  vmp_captured *block = vmp_node_at(&captures->blocks, 1);
  VASSERT_FALSE(block->live);
#define CORRUPT(lvalue, value, sentence)              \
  do {                                                \
    __typeof__(lvalue) was = (lvalue);                \
    (lvalue) = (value);                               \
    vtest_faults faults = vtest_faults_make();        \
    vmp_report report = vtest_faults_report(&faults); \
    vmp_captures_check(f->pool, &report);             \
    VEXPECT_A_FAULT(&faults, sentence);               \
    (lvalue) = was;                                   \
  } while (0)
  CORRUPT(block->bytes, MIB, "that a graph holds is not its layer's");
  CORRUPT(block->live, true, "and the books disagree");
  CORRUPT(block->holds, 0u, "nobody holds the block");
  CORRUPT(block->holds, 2u, "graphs have 2 holds, blocks count 3");
  CORRUPT(captures->kept_bytes[VMP_LAYER_MID], 7u, "bytes of mid are kept; the count is 7");
  CORRUPT(captures->capturing, 2u, "1 graphs capture; the count is 2");
  CORRUPT(captures->graphs->capturing, false, "would hand out offset");
  CORRUPT(vmp_hold_at(captures, 1)->graph, NULL, "has a hold of another graph");
#undef CORRUPT
  end(f, f->streams[0]);
  rig_free(f, live, f->streams[0]);
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  leave_current(f);
}
