// examples_test.c: the classic examples, with the figures that a hand calculation gives.
#include "pool/buddy.h"
#include "pool/pool.h"
#include "tests/pool/pool_rig.h"

static vmp_buddy_stats buddy_stats(const pool_rig *f) {
  vmp_buddy_stats stats;
  vmp_buddy_get_stats(f->pool->buddy, &stats);
  return stats;
}

// free_orders writes the number of free blocks by order, for the sizes from 2 MiB to 1 GiB.
static void expect_free(const pool_rig *f, const uint64_t expected[10]) {
  vmp_buddy_stats stats = buddy_stats(f);
  for (size_t order = 0; order < 10; order++) {
    VTRACE("order %zu", order);
    VEXPECT_UINT_EQ(stats.free_by_order[order], expected[order]);
  }
}

// A pool of 1 GiB, a request of 128 MiB: 1 GiB splits into 512 + 256 + 128 + the block; freeing merges all back.
VTEST_F(Examples, SplitsAndMergesBack, pool_rig) {
  rig_open(f, 4 * GIB, "preset:buddy,reserve:1GiB,hard_limit:1GiB,chunk_max:1granule,growth:0");
  VASSERT_NO_FAILURE();
  // Orders: 2 MiB is 0, 128 MiB is 6, 256 MiB is 7, 512 MiB is 8, 1 GiB is 9.
  expect_free(f, (const uint64_t[10]){[9] = 1});
  void *block = rig_alloc(f, 128 * MIB, NULL);
  expect_free(f, (const uint64_t[10]){[6] = 1, [7] = 1, [8] = 1});
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.mapped, 128 * MIB);
  VEXPECT_UINT_EQ(stats.live, 128 * MIB);
  VEXPECT_UINT_EQ(stats.buddy_live, 128 * MIB);
  VEXPECT_UINT_EQ(stats.reserved_va, GIB);
  // A second one takes the buddy of the first; a third splits 256.
  void *second = rig_alloc(f, 128 * MIB, NULL), *third = rig_alloc(f, 128 * MIB, NULL);
  expect_free(f, (const uint64_t[10]){[6] = 1, [8] = 1});
  rig_free(f, second, NULL);
  rig_free(f, block, NULL);
  rig_free(f, third, NULL);
  rig_check(f);
  // All merges back to one block of 1 GiB, and what was mapped stays mapped, parked.
  expect_free(f, (const uint64_t[10]){[9] = 1});
  stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.parked, stats.mapped);
}

typedef struct seventy {
  const char *name, *conf;
} seventy;
static const seventy seventies[] = {
    {"buddy", "preset:buddy,chunk_max:1granule,growth:0"},
    {"tight", "preset:tight"},
    {"mixed_exact", "no_map_ahead:1"},
    {"classic", "preset:classic,no_map_ahead:1"},
};
static const char *seventy_name(const seventy *p) { return p->name; }

// 70 MiB maps 70 MiB, not the 128 of the next power of two.
VTEST_FP(Examples, SeventyMapsSeventy, pool_rig, seventy, seventies, seventy_name) {
  rig_open(f, 4 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 70 * MIB, NULL);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.mapped, 70 * MIB);
  VEXPECT_UINT_EQ(stats.live, 70 * MIB);
  VEXPECT_UINT_EQ(stats.device_free, 4 * GIB - 70 * MIB);
  VEXPECT_UINT_EQ(rig_census(f).physical_bytes, 70 * MIB);
  rig_touch(f, block, 70 * MIB, NULL);
  rig_free(f, block, NULL);
}

// An 80 GiB device with 20 GiB free in pieces of 2 MiB serves 8 GiB: parked chunks move behind one another; no live
// pointer moves.
VTEST_F(Examples, TwentyGibFreeInPiecesServeEight, pool_rig) {
  rig_open(f, 80 * GIB, "preset:tight");
  VASSERT_NO_FAILURE();
  enum { BLOCKS = 80 * 1024 / 2 };
  static void *blocks[BLOCKS];
  size_t count = 0;
  while (count < BLOCKS && vmp_alloc(f->pool, &blocks[count], GRANULE, f->streams[0]) == VMP_OK) count++;
  VASSERT_UINT_EQ(count, BLOCKS);  // the device can be filled to the last slot
  VEXPECT_UINT_EQ(rig_stats(f).device_free, 0);
  void *more = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &more, GRANULE, f->streams[0]), VMP_ERROR_OUT_OF_MEMORY);
  for (size_t i = 0; i < BLOCKS; i += 4) rig_free(f, blocks[i], f->streams[0]);
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_UINT_EQ(before.parked, 20 * GIB);
  VEXPECT_UINT_EQ(before.largest_free_mapped, GRANULE);

  for (size_t i = 1; i < BLOCKS; i += 1000) {
    if (i % 4 != 0) rig_touch(f, blocks[i], GRANULE, f->streams[0]);
  }
  void *large = rig_alloc(f, 8 * GIB, f->streams[0]);
  rig_touch(f, large, 8 * GIB, f->streams[0]);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(after.takes - before.takes, 8 * 1024 / 2);
  VEXPECT_UINT_EQ(after.live, 68 * GIB);
  VEXPECT_UINT_LE(after.mapped, 80 * GIB);
  VEXPECT_UINT_EQ(after.chunks_created, before.chunks_created);
  for (size_t i = 1; i < BLOCKS; i++) {
    if (i % 4 == 0) continue;
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VASSERT_OK(vmp_block_query(f->pool, blocks[i], &info));
    VASSERT_PTR_EQ(info.base, blocks[i]);
    if (i % 1000 == 1) rig_touch(f, blocks[i], GRANULE, f->streams[0]);
  }
  rig_settle(f);
  rig_check(f);
  for (size_t i = 1; i < BLOCKS; i++) {
    if (i % 4 != 0) rig_free(f, blocks[i], f->streams[0]);
  }
  rig_free(f, large, f->streams[0]);
}
