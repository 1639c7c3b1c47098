// memory_stats_test.c: statistics by layer and by stream, by hand values; that they are what the pool's own say, and
// that reading them stops nobody.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

static vmp_memory_stats memory_of(pool_rig *f) {
  vmp_memory_stats stats = VMP_MEMORY_STATS_INIT;
  VEXPECT_OK(vmp_pool_memory_stats(f->pool, &stats));
  return stats;
}

static void expect_layer(const vmp_layer_stats *l, uint64_t live, uint64_t peak, uint64_t allocs, uint64_t frees) {
  VEXPECT_UINT_EQ(l->live, live);
  VEXPECT_UINT_EQ(l->peak_live, peak);
  VEXPECT_UINT_EQ(l->allocs, allocs);
  VEXPECT_UINT_EQ(l->frees, frees);
  VEXPECT_UINT_EQ(l->blocks, allocs - frees);
}

VTEST_F(MemoryStats, ByLayer, pool_rig) {
  rig_open(f, 1 * GIB, "chunk_max:1granule,no_map_ahead:1,buddy_from:16MiB");
  VASSERT_NO_FAILURE();
  vmp_memory_stats s = memory_of(f);
  VEXPECT_UINT_EQ(s.mapped + s.live + s.allocs + s.total_mapped, 0);
  VEXPECT_NEAR(s.utilisation, 0, 0);
  VEXPECT_NEAR(s.fragmentation, 0, 0);
  void *small = rig_alloc(f, 1000, NULL), *middle = rig_alloc(f, 3 * MIB, NULL), *large = rig_alloc(f, 31 * MIB, NULL);
  s = memory_of(f);
  expect_layer(&s.slab, 1024, 1024, 1, 0);
  expect_layer(&s.mid, 3 * MIB, 3 * MIB, 1, 0);
  expect_layer(&s.buddy, 32 * MIB, 32 * MIB, 1, 0);
  VEXPECT_UINT_EQ(s.live, 35 * MIB + 1024);
  VEXPECT_UINT_EQ(s.requested, 34 * MIB + 1000);
  VEXPECT_UINT_EQ(s.blocks, 3);
  VEXPECT_UINT_EQ(s.total_mapped, s.mapped);
  VEXPECT_NEAR(s.utilisation, (double)s.live / (double)s.mapped, 1e-12);
  VEXPECT_NEAR(s.fragmentation + s.utilisation, 1, 1e-12);
  rig_free(f, large, NULL);
  rig_free(f, middle, NULL);
  s = memory_of(f);
  expect_layer(&s.mid, 0, 3 * MIB, 1, 1);
  expect_layer(&s.buddy, 0, 32 * MIB, 1, 1);
  VEXPECT_OK(vmp_pool_reset_peaks(f->pool));
  s = memory_of(f);
  expect_layer(&s.mid, 0, 0, 1, 1);
  expect_layer(&s.slab, 1024, 1024, 1, 0);
  VEXPECT_UINT_EQ(s.peak_mapped, s.mapped);
  // What was given back still counts in the total.
  uint64_t made = s.total_mapped;
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  s = memory_of(f);
  VEXPECT_UINT_LT(s.mapped, made);
  VEXPECT_UINT_EQ(s.total_mapped, made);
  rig_free(f, small, NULL);
}

// Hits of thread caches are counted when they are folded: allocations, frees, and the peak.
VTEST_F(MemoryStats, CachedRequestsCount, pool_rig) {
  rig_open(f, 1 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *blocks[100];
  for (int round = 0; round < 5; round++) {
    for (size_t i = 0; i < 100; i++) blocks[i] = rig_alloc(f, 4096, f->streams[1]);
    for (size_t i = 0; i < 100; i++) rig_free(f, blocks[i], f->streams[1]);
  }
  vmp_memory_stats s = memory_of(f);
  VEXPECT_UINT_EQ(s.peak_live, 100 * 4096);
  expect_layer(&s.slab, 0, 100 * 4096, 500, 500);
  vmp_stream_stats streams[8];
  size_t count = 0;
  VASSERT_OK(vmp_pool_stream_stats(f->pool, streams, 8, &count));
  VASSERT_UINT_GE(count, 1);
  VASSERT_UINT_LE(count, 8);
  bool seen = false;
  for (size_t i = 0; i < count; i++) {
    bool ours = streams[i].stream == f->streams[1];
    seen = seen || ours;
    VEXPECT_UINT_EQ(streams[i].allocs, ours ? 500 : 0);
    VEXPECT_UINT_EQ(streams[i].frees, ours ? 500 : 0);
    VEXPECT_UINT_LE(streams[i].cached, ours ? 100 * 4096 : 0);
  }
  VEXPECT_TRUE(seen);
}

static const vmp_stream_stats *find(const vmp_stream_stats *streams, size_t count, vmp_stream stream) {
  for (size_t i = 0; i < count; i++) {
    if (streams[i].stream == stream) return &streams[i];
  }
  return NULL;
}

// More chunks than one piece of the walk has; memory that two streams may touch is pending for both, and once.
VTEST_F(MemoryStats, PendingByStream, pool_rig) {
  rig_open(f, 8 * GIB, "chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 1400 * GRANULE, f->streams[0]), *b = rig_alloc(f, 600 * GRANULE, f->streams[1]);
  rig_touch(f, a, 1400 * GRANULE, f->streams[0]);
  rig_touch(f, b, 600 * GRANULE, f->streams[1]);
  VEXPECT_OK(vmp_record_use(f->pool, b, f->streams[2]));
  rig_free(f, a, f->streams[0]);
  rig_free(f, b, f->streams[1]);
  vmp_stream_stats streams[8];
  size_t count = 0;
  VASSERT_OK(vmp_pool_stream_stats(f->pool, streams, 8, &count));
  VASSERT_UINT_EQ(count, 3);
  VEXPECT_UINT_EQ(find(streams, count, f->streams[0])->pending, 1400 * GRANULE);
  VEXPECT_UINT_EQ(find(streams, count, f->streams[1])->pending, 600 * GRANULE);
  VEXPECT_UINT_EQ(find(streams, count, f->streams[2])->pending, 600 * GRANULE);
  VEXPECT_UINT_EQ(rig_stats(f).pending, 2000 * GRANULE);
  // The age grows with the clock; a stream that the pool doesn't wait for has none.
  while (find(streams, count, f->streams[0])->pending_age_us == 0) {
    VASSERT_OK(vmp_pool_stream_stats(f->pool, streams, 8, &count));
  }
  uint64_t age = find(streams, count, f->streams[0])->pending_age_us;
  VASSERT_OK(vmp_pool_stream_stats(f->pool, streams, 8, &count));
  VEXPECT_UINT_GE(find(streams, count, f->streams[0])->pending_age_us, age);
  vmp_memory_stats s = memory_of(f);
  VEXPECT_UINT_EQ(s.largest_mapped, 2000 * GRANULE);  // side by side: a stream would have to wait, the driver needn't
  rig_settle(f);
  VASSERT_OK(vmp_pool_stream_stats(f->pool, streams, 8, &count));
  VEXPECT_UINT_EQ(find(streams, count, f->streams[0])->pending_age_us, 0);
  VASSERT_OK(vmp_pool_stream_stats(f->pool, NULL, 0, &count));
  VEXPECT_UINT_EQ(count, 3);
  VEXPECT_UINT_EQ(rig_stats(f).pending, 0);
}

// A comb of blocks: without a driver call one tooth, after gathering all of them, with new memory the rest of the
// device. Each figure is what an allocation finds.
VTEST_F(MemoryStats, WhatIsToBeHad, pool_rig) {
  rig_open_driver(f, 1 * GIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VASSERT_OK(rig_create(f, "chunk_max:1granule,no_map_ahead:1"));
  void *blocks[40];
  for (size_t i = 0; i < 40; i++) blocks[i] = rig_alloc(f, 5 * GRANULE, NULL);
  for (size_t i = 1; i < 40; i += 2) rig_free(f, blocks[i], NULL);
  rig_settle(f);
  vmp_memory_stats s = memory_of(f);
  VEXPECT_UINT_EQ(s.largest_mapped, 5 * GRANULE);
  VEXPECT_UINT_EQ(s.largest_gathered, 100 * GRANULE);
  VEXPECT_UINT_EQ(s.largest_growing, 412 * GRANULE);  // 512 of the device without 100 live ones
  VEXPECT_NEAR(s.utilisation, 0.5, 1e-12);
  uint64_t calls = rig_all_calls(f->driver);
  void *tooth = rig_alloc(f, s.largest_mapped, NULL);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  rig_free(f, tooth, NULL);
  rig_settle(f);
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  VEXPECT_OK(vmp_pool_defragment(f->pool, NULL, &report));
  VEXPECT_UINT_EQ(report.largest_free_mapped_after, s.largest_gathered);
  VEXPECT_UINT_EQ(memory_of(f).largest_mapped, s.largest_gathered);
  void *all = rig_alloc(f, s.largest_growing, NULL);
  VEXPECT_NOT_NULL(all);
  rig_free(f, all, NULL);
  for (size_t i = 0; i < 40; i += 2) rig_free(f, blocks[i], NULL);
}

VTEST_F(MemoryStats, WrongArguments, pool_rig) {
  rig_open(f, 1 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_memory_stats stats = {.struct_size = 8};
  size_t count = 0;
  VEXPECT_STATUS(vmp_pool_memory_stats(f->pool, &stats), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_memory_stats(f->pool, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_memory_stats(NULL, &stats), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_stream_stats(f->pool, NULL, 1, &count), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_stream_stats(f->pool, NULL, 0, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_stream_stats(NULL, NULL, 0, &count), VMP_ERROR_INVALID_VALUE);
}

typedef struct worker {
  pool_rig *f;
  _Atomic bool *done;
  uint64_t seed, failures, negative;
} worker;

static void *work(void *argument) {
  worker *w = argument;
  vtest_rng rng = vtest_rng_make(w->seed);
  void *blocks[16] = {NULL};
  vmp_stream stream = w->f->streams[w->seed % RIG_STREAMS];
  for (int i = 0; i < 4000; i++) {
    size_t at = (size_t)vtest_rng_below(&rng, 16);
    w->failures += vmp_free(w->f->pool, blocks[at], stream) != VMP_OK;
    w->failures += vmp_alloc(w->f->pool, &blocks[at], vtest_rng_below(&rng, 4) == 0 ? 3 * MIB : 2000, stream) != VMP_OK;
  }
  for (size_t i = 0; i < 16; i++) w->failures += vmp_free(w->f->pool, blocks[i], stream) != VMP_OK;
  return NULL;
}

#define HUGE_BYTES (UINT64_C(1) << 50)  // a count that went below 0 is larger

static void *watch(void *argument) {
  worker *w = argument;
  while (!atomic_load(w->done)) {
    vmp_memory_stats s = VMP_MEMORY_STATS_INIT;
    vmp_stream_stats streams[8];
    size_t count = 0;
    w->failures += vmp_pool_memory_stats(w->f->pool, &s) != VMP_OK;
    w->failures += vmp_pool_stream_stats(w->f->pool, streams, 8, &count) != VMP_OK;
    const uint64_t values[] = {s.live, s.requested, s.blocks, s.slab.live, s.slab.blocks, s.mid.live, s.mid.blocks};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) w->negative += values[i] > HUGE_BYTES;
    w->negative += s.utilisation < 0 || s.utilisation > 1 || s.live < s.slab.live + s.mid.live;
  }
  return NULL;
}

VTEST_F(MemoryStats, ReadWhileThreadsWork, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VASSERT_OK(rig_create(f, NULL));
  _Atomic bool done = false;
  worker workers[3];
  pthread_t threads[3], watcher;
  worker watching = {.f = f, .done = &done};
  for (uint64_t i = 0; i < 3; i++) {
    workers[i] = (worker){.f = f, .seed = vtest_seed(1) + i};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  VASSERT_INT_EQ(pthread_create(&watcher, NULL, watch, &watching), 0);
  for (size_t i = 0; i < 3; i++) {
    VEXPECT_INT_EQ(pthread_join(threads[i], NULL), 0);
    VEXPECT_UINT_EQ(workers[i].failures, 0);
  }
  atomic_store(&done, true);
  VEXPECT_INT_EQ(pthread_join(watcher, NULL), 0);
  VEXPECT_UINT_EQ(watching.failures, 0);
  VEXPECT_UINT_EQ(watching.negative, 0);
  vmp_memory_stats s = memory_of(f);
  VEXPECT_UINT_EQ(s.blocks, 0);
  VEXPECT_UINT_EQ(s.allocs, 12000);
  VEXPECT_UINT_EQ(s.slab.allocs + s.mid.allocs, 12000);
  rig_check(f);
}
