// fragmentation_test.c: memory that lies in pieces, and giving it back. Bug cases 23, 40, 42, 43, 44, 59, 63, 64, 65.
#include <stdlib.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

// Case 23: what is freed and trimmed is gone from the device, however often.
VTEST_F(Fragmentation, Case23NoHandleIsLeft, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  uint64_t device_free = rig_stats(f).device_free;
  for (int i = 0; i < 1064; i++) {
    uint64_t bytes = i < 64 ? 64 * MIB : 256 * MIB;
    void *ptr = rig_alloc(f, bytes, NULL);
    rig_touch(f, ptr, bytes, NULL);
    rig_free(f, ptr, NULL);
    VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
  }
  VEXPECT_UINT_EQ(rig_stats(f).device_free, device_free);
  vmp_driver_calls calls = rig_calls(f);
  VEXPECT_UINT_EQ(calls.create, calls.release);
  VEXPECT_UINT_EQ(rig_census(f).handles, 0);
}

// Case 40: a large temporary doesn't leave its memory where neither small nor large requests can use it.
VTEST_F(Fragmentation, Case40ALargeTemporary, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:1600MiB,chunk_max:4MiB");
  VASSERT_NO_FAILURE();
  void *blocks[64];
  rig_free(f, rig_alloc(f, GIB, NULL), NULL);
  for (size_t i = 0; i < 64; i++) blocks[i] = rig_alloc(f, 16 * MIB, NULL);
  for (size_t i = 0; i < 64; i += 2) rig_free(f, blocks[i], NULL);
  void *again = rig_alloc(f, GIB, NULL);
  rig_touch(f, again, GIB, NULL);
  VEXPECT_UINT_LE(rig_stats(f).mapped, 1600 * MIB);
  rig_free(f, again, NULL);
  for (size_t i = 1; i < 64; i += 2) rig_free(f, blocks[i], NULL);
}

// Case 42: blocks replaced one by one by slightly larger ones: physical memory stays near what is live.
VTEST_F(Fragmentation, Case42ReplacedByLarger, pool_rig) {
  static const char *const confs[] = {"preset:tight", "park_limit:0.01,chunk_max:8MiB,no_map_ahead:1"};
  rig_open_driver(f, 80 * GIB);
  VASSERT_NO_FAILURE();
  for (int c = 0; c < 2; c++) {
    VTRACE("%s", confs[c]);
    VASSERT_OK(rig_create(f, confs[c]));
    enum { WEIGHTS = 400 };
    void *w[WEIGHTS];
    uint64_t larger = 243 * MIB / 10;
    for (size_t i = 0; i < WEIGHTS; i++) w[i] = rig_alloc(f, 23 * MIB, NULL);
    for (size_t i = 0; i < WEIGHTS; i++) {
      void *n = rig_alloc(f, larger, NULL);
      rig_free(f, w[i], NULL);
      w[i] = n;
    }
    vmp_pool_stats_data s = rig_stats(f);
    VEXPECT_UINT_LE(s.peak_mapped, s.peak_live / 100 * 105 + larger);
    rig_settle(f);
    VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
    s = rig_stats(f);
    VEXPECT_UINT_LE(s.mapped, s.live / 100 * 105);
    for (size_t i = 0; i < WEIGHTS; i++) rig_free(f, w[i], NULL);
    rig_destroy(f);
  }
}

// mapped_after_small_ones_are_gone: what is mapped after freeing and trimming, when long-lived and short-lived blocks
// were allocated in turns, or in two groups.
static uint64_t mapped_after_small_ones_are_gone(pool_rig *f, bool in_turns) {
  enum { ROUNDS = 200, SMALL = 400 };
  void **small = calloc(ROUNDS * SMALL, sizeof *small);
  void *large[ROUNDS];
  VEXPECT_NOT_NULL(small);
  if (small == NULL) return 0;
  VEXPECT_OK(rig_create(f, "preset:tight"));
  if (!in_turns) {
    for (size_t i = 0; i < ROUNDS; i++) large[i] = rig_alloc(f, 32288, NULL);
  }
  for (size_t i = 0; i < ROUNDS; i++) {
    if (in_turns) large[i] = rig_alloc(f, 32288, NULL);
    for (size_t j = 0; j < SMALL; j++) small[i * SMALL + j] = rig_alloc(f, 3584, NULL);
  }
  for (size_t i = 0; i < (size_t)ROUNDS * SMALL; i++) rig_free(f, small[i], NULL);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  uint64_t mapped = rig_stats(f).mapped;
  for (size_t i = 0; i < ROUNDS; i++) rig_free(f, large[i], NULL);
  rig_destroy(f);
  free(small);
  return mapped;
}

// Case 43: freed small blocks are given back although long-lived ones were allocated between them. A span holds 8 of
// those, so 25 spans pin a granule each, among 140; grouped they fill 4 granules. (Only the copying steps, split and
// mesh, could do better.)
VTEST_F(Fragmentation, Case43InterleavedSizes, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_LE(mapped_after_small_ones_are_gone(f, true), 26 * GRANULE);
  VEXPECT_UINT_LE(mapped_after_small_ones_are_gone(f, false), 5 * GRANULE);
}

// Case 44: after a burst trim gives back on demand, down to what is asked to be kept.
VTEST_F(Fragmentation, Case44AfterABurst, pool_rig) {
  rig_open(f, 80 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  vtest_rng rng = vtest_rng_make(vtest_seed(44));
  void *burst[200];
  uint64_t live = 0;
  size_t count = 0;
  for (; count < 200 && live < 5 * GIB; count++) {
    uint64_t bytes = vtest_rng_log(&rng, KIB, 128 * MIB);
    burst[count] = rig_alloc(f, bytes, NULL);
    live += bytes;
  }
  void *steady = rig_alloc(f, 100 * MIB, NULL);
  for (size_t i = 0; i < count; i++) rig_free(f, burst[i], NULL);
  for (int i = 0; i < 1000; i++) rig_free(f, rig_alloc(f, MIB, NULL), NULL);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  uint64_t before = rig_stats(f).mapped;
  VEXPECT_OK(vmp_pool_trim(f->pool, GIB, &report));
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(report.released_bytes, before - s.mapped);
  VEXPECT_UINT_LE(s.mapped, GIB);
  VEXPECT_UINT_GE(s.mapped, GIB - 32 * MIB);  // no more than asked
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  s = rig_stats(f);
  VEXPECT_UINT_LE(s.mapped, 100 * MIB + 64 * MIB);
  VEXPECT_UINT_EQ(report.kept_live_bytes, s.mapped);
  rig_free(f, steady, NULL);
}

// Case 59: each free tail, and each free middle, is given back; a live block keeps only its own chunk.
VTEST_F(Fragmentation, Case59EveryFreeChunkGoes, pool_rig) {
  static const size_t grown[] = {7, 11, 13};
  rig_open(f, 8 * GIB, "preset:tight");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t g = 0; g < 3; g++) {
    for (size_t k = 1; k <= grown[g]; k++) {
      void *blocks[13];
      for (size_t i = 0; i < grown[g]; i++) blocks[i] = rig_alloc(f, GRANULE, NULL);
      VEXPECT_UINT_EQ(rig_stats(f).mapped, grown[g] * GRANULE);
      for (size_t i = grown[g] - k; i < grown[g]; i++) rig_free(f, blocks[i], NULL);
      VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
      VEXPECT_UINT_EQ(rig_stats(f).mapped, (grown[g] - k) * GRANULE);
      for (size_t i = 0; i + k < grown[g]; i += 2) rig_free(f, blocks[i], NULL);
      VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
      VEXPECT_UINT_EQ(rig_stats(f).mapped, (grown[g] - k) / 2 * GRANULE);
      for (size_t i = 1; i + k < grown[g]; i += 2) rig_free(f, blocks[i], NULL);
      VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
      VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
    }
  }
}

// Case 63: a hundred rounds leave nothing behind: no byte, no block, no handle.
VTEST_F(Fragmentation, Case63RoundsAreAlike, pool_rig) {
  rig_open(f, 4 * GIB, "hard_limit:1GiB,chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  vtest_rng rng = vtest_rng_make(vtest_seed(63));
  for (int round = 0; round < 100; round++) {
    void *blocks[400];
    for (size_t i = 0; i < 400; i++) {
      blocks[i] = rig_alloc(f, i < 200 ? 500000 : vtest_rng_log(&rng, 512, 4 * MIB), NULL);
    }
    for (size_t i = 0; i < 400; i++) {
      if (vtest_rng_chance(&rng, 1, 2)) {
        rig_free(f, blocks[i], NULL);
        blocks[i] = NULL;
      }
    }
    void *large = rig_alloc(f, 300 * MIB, NULL);
    rig_free(f, large, NULL);
    for (size_t i = 0; i < 400; i++) {
      if (blocks[i] != NULL) rig_free(f, blocks[i], NULL);
    }
    VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
    vmp_pool_stats_data s = rig_stats(f);
    VASSERT_UINT_EQ(s.live + s.requested + s.blocks + s.mapped + s.spare + s.parked + s.chunks, 0);
    VASSERT_UINT_EQ(rig_census(f).handles, 0);
    VASSERT_UINT_EQ(rig_census(f).mappings, 0);
    VASSERT_OK(vmp_pool_check(f->pool, NULL));
  }
}

// Cases 64 and 65: two pools share a device that is too small for both. Every handle is mapped whole, and once besides
// what retires: each pool's own check says so after every call, and the driver refuses all else.
VTEST_F(Fragmentation, Case64And65TwoPoolsShareADevice, pool_rig) {
  enum { SLOTS = 60 };
  vmp_pool *pools[2];
  void *blocks[2][SLOTS] = {{NULL}};
  vmp_stream streams[2][SLOTS];
  rig_open_driver(f, 256 * MIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, "chunk_max:8MiB"));
  pools[0] = f->pool;
  VASSERT_OK(rig_create(f, "preset:tight"));
  pools[1] = f->pool;
  vtest_rng rng = vtest_rng_make(vtest_seed(64));
  uint64_t ops = vtest_ops(100000);
  for (uint64_t op = 0; op < ops; op++) {
    size_t p = (size_t)vtest_rng_below(&rng, 2), i = (size_t)vtest_rng_below(&rng, SLOTS);
    if (blocks[p][i] != NULL) {
      VASSERT_OK(vmp_free(pools[p], blocks[p][i], streams[p][i]));
      blocks[p][i] = NULL;
    } else {
      vmp_stream stream = f->streams[vtest_rng_below(&rng, RIG_STREAMS)];
      streams[p][i] = stream;
      uint64_t bytes = vtest_rng_log(&rng, 512, 16 * MIB);
      if (vmp_alloc(pools[p], &blocks[p][i], bytes, stream) != VMP_OK) blocks[p][i] = NULL;
      if (blocks[p][i] != NULL && vtest_rng_chance(&rng, 1, 4)) rig_touch(f, blocks[p][i], bytes, stream);
    }
    if (vtest_rng_chance(&rng, 1, 50)) VASSERT_OK(vmp_pool_trim(pools[p], vtest_rng_below(&rng, 64) * MIB, NULL));
    if (op % 500 == 0) {
      VASSERT_OK(vmp_pool_check(pools[0], NULL));
      VASSERT_OK(vmp_pool_check(pools[1], NULL));
    }
  }
  for (size_t p = 0; p < 2; p++) {
    for (size_t i = 0; i < SLOTS; i++) {
      if (blocks[p][i] != NULL) VEXPECT_OK(vmp_free(pools[p], blocks[p][i], streams[p][i]));
    }
    VEXPECT_OK(vmp_pool_destroy(pools[p]));
  }
  f->pool = NULL;
  rig_settle(f);
}
