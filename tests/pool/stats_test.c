// stats_test.c: the statistics add up at every moment. Bug cases 41, 66, 67, 68, 69, 73.
#include <pthread.h>
#include <stdio.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

// expect_whole says what must hold of any statistics.
static void expect_whole(pool_rig *f) {
  vmp_pool_stats_data s = rig_stats(f);
  VASSERT_UINT_LE(s.requested, s.live);
  VASSERT_UINT_EQ(s.live, s.slab_live + s.mid_live + s.buddy_live);
  VASSERT_UINT_LE(s.live + s.parked, s.mapped);
  VASSERT_UINT_LE(s.mapped + s.spare, s.device_total);
  VASSERT_UINT_LE(s.pending, s.parked);
  VASSERT_UINT_LE(s.mapped, s.reserved_va);
  VASSERT_UINT_GE(s.peak_live, s.live);
  VASSERT_UINT_GE(s.peak_requested, s.requested);
  VASSERT_UINT_GE(s.peak_mapped, s.mapped);
  VASSERT_UINT_EQ(s.allocs - s.frees, s.blocks);
  VASSERT_UINT_EQ(s.chunks_created - s.chunks_released, s.chunks);
  VASSERT_UINT_LE(s.largest_free_mapped, s.mapped - s.live);
  // The driver's own count.
  VASSERT_UINT_EQ(rig_census(f).physical_bytes, s.mapped + s.spare);
  VASSERT_UINT_EQ(s.device_free, s.device_total - s.mapped - s.spare);
}

// Case 66: nothing is negative, and mapped is the driver's own count after every call.
VTEST_F(Stats, Case66CountsAreTheDrivers, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (int round = 0; round < 3; round++) {
    void *blocks[1000];
    for (size_t i = 0; i < 1000; i++) {
      blocks[i] = rig_alloc(f, 50000, NULL);
      if (i % 50 == 0) expect_whole(f);
    }
    for (size_t i = 0; i < 1000; i++) {
      rig_free(f, blocks[i], NULL);
      if (i % 50 == 0) expect_whole(f);
      if (round == 1 && i % 100 == 0) VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
    }
    VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
    expect_whole(f);
    vmp_pool_stats_data s = rig_stats(f);
    VEXPECT_UINT_EQ(s.live + s.requested + s.blocks + s.mapped + s.parked, 0);
  }
}

// Case 67: a cycle of reuse is not counted again and again; what accumulates is named so.
VTEST_F(Stats, Case67NothingIsCountedTwice, pool_rig) {
  rig_open(f, 4 * GIB, "no_map_ahead:1,preset:tight");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (int cycle = 0; cycle < 16; cycle++) {
    void *blocks[16];
    for (size_t i = 0; i < 16; i++) blocks[i] = rig_alloc(f, MIB, NULL);
    VEXPECT_UINT_EQ(rig_stats(f).mapped, 16 * MIB);
    for (size_t i = 0; i < 16; i++) rig_free(f, blocks[i], NULL);
    if (cycle < 8) {
      VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
      VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
      VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 8u * (unsigned)(cycle + 1));
    }
    VEXPECT_UINT_EQ(rig_stats(f).peak_mapped, 16 * MIB);
    VEXPECT_UINT_EQ(rig_stats(f).peak_live, 16 * MIB);
  }
}

// Case 68: requested and live are two counters, and both return to zero, whoever frees.
static void *free_in_thread(void *context) {
  void **arguments = context;
  rig_free(arguments[0], arguments[1], NULL);
  return NULL;
}

VTEST_F(Stats, Case68RequestedAndLive, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *p = rig_alloc(f, 1000, NULL), *q = rig_alloc(f, 100001, NULL);
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.requested, 101001);
  VEXPECT_UINT_EQ(s.slab_live, 1024);
  VEXPECT_UINT_EQ(s.mid_live, 100352);  // 196 steps
  void *arguments[2] = {f, p};
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, free_in_thread, arguments), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  s = rig_stats(f);
  VEXPECT_UINT_EQ(s.requested, 100001);
  VEXPECT_UINT_EQ(s.live, 100352);
  rig_free(f, q, NULL);
  s = rig_stats(f);
  VEXPECT_UINT_EQ(s.requested + s.live, 0);
}

// Case 69: resetting the peaks leaves the current values, from which the next peak rises.
VTEST_F(Stats, Case69ResetPeaks, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *x = rig_alloc(f, 100 * MIB, NULL), *a = rig_alloc(f, 30 * MIB, NULL);
  rig_free(f, x, NULL);
  VEXPECT_OK(vmp_pool_reset_peaks(f->pool));
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.peak_live, 30 * MIB);
  VEXPECT_UINT_EQ(s.peak_requested, 30 * MIB);
  VEXPECT_UINT_EQ(s.peak_mapped, s.mapped);
  VEXPECT_UINT_EQ(s.live, 30 * MIB);
  void *b = rig_alloc(f, 7 * MIB, NULL);
  rig_free(f, b, NULL);
  s = rig_stats(f);
  VEXPECT_UINT_EQ(s.peak_live, 37 * MIB);
  VEXPECT_UINT_EQ(s.peak_requested, 37 * MIB);
  rig_free(f, a, NULL);
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
  VEXPECT_UINT_EQ(rig_stats(f).peak_live, 37 * MIB);
}

static void expect_in_message(const char *part) { VEXPECT_STR_CONTAINS(vmp_last_error()->message, part); }

// Case 73: genuinely full and merely in pieces are told apart, by numbers.
VTEST_F(Stats, Case73FullOrInPieces, pool_rig) {
  rig_open(f, 512 * MIB, "preset:tight");
  VASSERT_NO_FAILURE();
  void *blocks[512], *ptr = NULL;
  for (size_t i = 0; i < 512; i++) blocks[i] = rig_alloc(f, MIB, NULL);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 64 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  expect_in_message("67108864 bytes (64MiB) can't be had: the device is full");
  expect_in_message("largest block possible now 0;");
  expect_in_message("device free 0 of 512MiB");
  expect_in_message("live 512MiB, parked 0");
  // Half of every granule is free: no chunk is, so pieces of 1 MiB are all there is.
  for (size_t i = 0; i < 512; i += 2) rig_free(f, blocks[i], NULL);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 64 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  expect_in_message("largest block possible now 1MiB;");
  expect_in_message("live 256MiB, parked 0");
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, MIB);
  ptr = rig_alloc(f, MIB, NULL);
  rig_free(f, ptr, NULL);
  // Whole granules free: pieces don't matter any more, and the message's figure can be had.
  for (size_t i = 1; i < 256; i += 2) rig_free(f, blocks[i], NULL);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 300 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  expect_in_message("largest block possible now 257MiB;");  // with the free half of the next granule
  ptr = rig_alloc(f, 257 * MIB, NULL);
  rig_free(f, ptr, NULL);
  for (size_t i = 257; i < 512; i += 2) rig_free(f, blocks[i], NULL);
}

// The reason is the true one: memory that others hold, a limit, a static pool.
VTEST_F(Stats, ReasonsAreTrue, pool_rig) {
  rig_open(f, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  vmp_host_set_foreign(f->driver, 0, 900 * MIB);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 512 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  expect_in_message("others hold 900MiB of the device's 1GiB");
  expect_in_message("device free 124MiB of 1GiB");
  expect_in_message("largest block possible now 124MiB");
  ptr = rig_alloc(f, 124 * MIB, NULL);
  rig_free(f, ptr, NULL);
  vmp_host_set_foreign(f->driver, 0, 0);
  rig_destroy(f);
  VASSERT_OK(rig_create(f, "hard_limit:512MiB"));
  void *a = rig_alloc(f, 300 * MIB, NULL);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 400 * MIB, NULL), VMP_ERROR_LIMIT);
  expect_in_message("the pool's hard limit is 512MiB");
  expect_in_message("largest block possible now 212MiB");
  rig_free(f, a, NULL);
  rig_destroy(f);
  VASSERT_OK(rig_create(f, "strategy:static,initial_fraction:0.5"));
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 600 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  expect_in_message("a static pool maps nothing after creation; it holds 512MiB");
  expect_in_message("largest block possible now 512MiB");
}

// Case 41: after a churn up to out of memory everything adds up, and free memory can be accounted for.
VTEST_F(Stats, Case41ChurnAddsUp, pool_rig) {
  enum { SLOTS = 400 };
  void *blocks[SLOTS] = {NULL};
  rig_open(f, 80 * GIB, "hard_limit:8GiB");
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(41));
  uint64_t ops = vtest_ops(100000), refused = 0;
  for (uint64_t op = 0; op < ops; op++) {
    size_t i = (size_t)vtest_rng_below(&rng, SLOTS);
    if (blocks[i] != NULL) {
      rig_free(f, blocks[i], NULL);
      blocks[i] = NULL;
    } else {
      refused += vmp_alloc(f->pool, &blocks[i], vtest_rng_log(&rng, KIB, 256 * MIB), NULL) == VMP_OK ? 0 : 1;
    }
    if (op % 1000 == 0) expect_whole(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_EQ(rig_stats(f).failed_allocs, refused);
  expect_whole(f);
  rig_check(f);
  for (size_t i = 0; i < SLOTS; i++) {
    if (blocks[i] != NULL) rig_free(f, blocks[i], NULL);
  }
}

// Bookkeeping stays small: a million live blocks cost at most 64 bytes each.
VTEST_F(Stats, MetadataPerBlock, pool_rig) {
  rig_open(f, 80 * GIB, "destroy_releases:1");
  VASSERT_NO_FAILURE();
  uint64_t before = rig_stats(f).metadata;
  uint64_t count = vtest_ops(1000000);
  for (uint64_t i = 0; i < count; i++) {
    void *ptr;
    VASSERT_OK(vmp_alloc(f->pool, &ptr, 512 + i % 4 * 512, NULL));
  }
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.blocks, count);
  if (count >= 100000) VEXPECT_UINT_LE((s.metadata - before) / count, 64);
  printf("metadata: %.1f bytes per block of %llu\n", (double)(s.metadata - before) / (double)count,
         (unsigned long long)count);
}
