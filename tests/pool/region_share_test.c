// region_share_test.c: pages that several regions have: references, who keeps the memory, content, order, limits,
// failures.
#include <string.h>

#include "tests/pool/region_rig.h"

static uint64_t references(vmp_region *region, uint64_t page) {
  uint64_t count = 99;
  VEXPECT_OK(vmp_region_page_references(region, page, &count));
  return count;
}

static void *page_of(vmp_region *region, uint64_t page) {
  return rig_at(vmp_region_base(region), page * region_info(region).page_bytes);
}

static void fill(pool_rig *rig, vmp_region *region, uint64_t page, unsigned char value) {
  VEXPECT_OK(vmp_host_fill(rig->driver, 0, page_of(region, page), value, GRANULE, rig->streams[0]));
}

static void expect_filled(pool_rig *rig, vmp_region *region, uint64_t page, unsigned char value) {
  static unsigned char bytes[4096];
  VEXPECT_OK(vmp_host_copy_out(rig->driver, 0, bytes, rig_at(page_of(region, page), GRANULE - sizeof bytes),
                               sizeof bytes, rig->streams[0]));
  VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[0]));
  for (size_t i = 0; i < sizeof bytes; i += 511) VEXPECT_UINT_EQ(bytes[i], value);
}

// One map a page, one set-access, nothing created; the same bytes under both addresses.
VTEST_F(RegionShare, TheSamePagesAtTwoPlaces, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 6, f->streams[0]));
  fill(f, a, 2, 0x5a);
  vmp_driver_calls before = rig_calls(f);
  VEXPECT_OK(vmp_region_share(a, 1, b, 10, 4, f->streams[0]));
  vmp_driver_calls after = rig_calls(f);
  VEXPECT_UINT_EQ(after.create - before.create, 0);
  VEXPECT_UINT_EQ(after.map - before.map, 4);
  VEXPECT_UINT_EQ(after.set_access - before.set_access, 1);
  expect_filled(f, b, 11, 0x5a);
  fill(f, b, 11, 0x77);  // nothing is copied
  expect_filled(f, a, 2, 0x77);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.region_committed, 10 * GRANULE);
  VEXPECT_UINT_EQ(stats.region_live, 6 * GRANULE);
  VEXPECT_UINT_EQ(stats.live, 6 * GRANULE);
  VEXPECT_UINT_EQ(stats.mapped, 6 * GRANULE);
  VEXPECT_UINT_EQ(references(a, 0), 1);
  VEXPECT_UINT_EQ(references(a, 2), 2);
  VEXPECT_UINT_EQ(references(b, 11), 2);
  VEXPECT_UINT_EQ(references(b, 3), 0);
  VEXPECT_UINT_EQ(region_info(b).committed_bytes, 4 * GRANULE);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
}

// Whoever ends first: the memory is there for the others, and parked after the last.
VTEST_F(RegionShare, TheMemoryStaysForTheLast, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  for (int order = 0; order < 6; order++) {
    static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
    vmp_region *regions[3];
    for (int i = 0; i < 3; i++) regions[i] = region_make(f, GIB, 0);
    VEXPECT_OK(region_commit(regions[0], 0, 4, f->streams[0]));
    fill(f, regions[0], 3, 0x42);
    VEXPECT_OK(vmp_region_share(regions[0], 0, regions[1], 0, 4, f->streams[0]));
    VEXPECT_OK(vmp_region_share(regions[1], 0, regions[2], 0, 4, f->streams[0]));  // from one that has it by sharing
    VEXPECT_UINT_EQ(references(regions[0], 3), 3);
    for (int i = 0; i < 3; i++) {
      vmp_region *last = regions[orders[order][2]];
      VEXPECT_UINT_EQ(references(last, 3), (uint64_t)(3 - i));
      expect_filled(f, last, 3, 0x42);
      VEXPECT_UINT_EQ(rig_stats(f).live, 4 * GRANULE);
      VEXPECT_OK(vmp_region_destroy(regions[orders[order][i]], f->streams[0]));
      rig_check(f);
      VASSERT_NO_FAILURE();
    }
    VEXPECT_UINT_EQ(rig_stats(f).live, 0);
    VEXPECT_UINT_EQ(rig_stats(f).mapped, 4 * GRANULE);
    VEXPECT_UINT_EQ(rig_stats(f).parked, 4 * GRANULE);
    rig_settle(f);
  }
}

// Single pages are given up and taken again; in the same region, too.
VTEST_F(RegionShare, PagesComeAndGoOneByOne, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 2, f->streams[0]));
  fill(f, a, 0, 1);
  VEXPECT_OK(vmp_region_share(a, 0, a, 8, 2, f->streams[0]));
  VEXPECT_UINT_EQ(references(a, 8), 2);
  VEXPECT_UINT_EQ(region_info(a).committed_bytes, 4 * GRANULE);
  VEXPECT_OK(region_decommit(a, 0, 1, f->streams[0]));
  VEXPECT_UINT_EQ(references(a, 8), 1);
  VEXPECT_UINT_EQ(references(a, 0), 0);
  expect_filled(f, a, 8, 1);
  // The place of page 0 retires; then it is an ordinary page again.
  rig_settle(f);
  VEXPECT_OK(region_commit(a, 0, 1, f->streams[0]));
  fill(f, a, 0, 2);
  expect_filled(f, a, 8, 1);
  expect_filled(f, a, 0, 2);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
}

VTEST_F(RegionShare, LargePages, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 32 * MIB), *b = region_make(f, GIB, 32 * MIB);
  VEXPECT_OK(region_commit(a, 0, 4, f->streams[0]));
  VEXPECT_OK(vmp_region_share(a, 0, b, 2, 4, f->streams[0]));
  rig_touch(f, page_of(b, 2), 128 * MIB, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  rig_touch(f, page_of(b, 2), 128 * MIB, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).live, 128 * MIB);
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

VTEST_F(RegionShare, RefusesWhatMakesNoSense, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, 8 * GRANULE, 0), *b = region_make(f, 8 * GRANULE, 0);
  vmp_region *large = region_make(f, 8 * GRANULE, 2 * GRANULE);
  VEXPECT_OK(region_commit(a, 0, 2, NULL));
  VEXPECT_OK(region_commit(b, 0, 1, NULL));
  VEXPECT_OK(region_commit(large, 0, 1, NULL));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(vmp_region_share(a, 0, b, 0, 1, NULL), VMP_ERROR_INVALID_VALUE);  // b has page 0
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "page 0");
  VEXPECT_STATUS(vmp_region_share(a, 1, b, 3, 2, NULL), VMP_ERROR_INVALID_VALUE);  // a has no page 2
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "page 2");
  VEXPECT_STATUS(vmp_region_share(a, 0, b, 7, 2, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_share(a, 8, b, 7, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_share(large, 0, b, 2, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_share(NULL, 0, b, 2, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_share(a, 0, NULL, 2, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_region_share(a, 0, b, 2, 0, NULL));
  uint64_t count;
  VEXPECT_STATUS(vmp_region_page_references(a, 8, &count), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_page_references(a, 0, NULL), VMP_ERROR_INVALID_VALUE);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_OK(vmp_region_set_limit(b, 2 * GRANULE));
  VEXPECT_STATUS(vmp_region_share(a, 0, b, 2, 2, NULL), VMP_ERROR_LIMIT);
  VEXPECT_OK(vmp_region_share(a, 0, b, 2, 1, NULL));
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, NULL));
  VEXPECT_OK(vmp_region_destroy(b, NULL));
  VEXPECT_OK(vmp_region_destroy(large, NULL));
}

// A page of the target that is still mapped makes room when its work has finished, and not before.
VTEST_F(RegionShare, OldPagesOfTheTargetMakeRoom, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 2, f->streams[0]));
  VEXPECT_OK(region_commit(b, 0, 2, f->streams[1]));
  rig_touch(f, vmp_region_base(b), 2 * GRANULE, f->streams[1]);
  VEXPECT_OK(region_decommit(b, 0, 2, f->streams[1]));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_INT_EQ(vmp_region_share(a, 0, b, 0, 2, f->streams[0]), VMP_PENDING);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  rig_settle(f);
  VEXPECT_OK(vmp_region_share(a, 0, b, 0, 2, f->streams[0]));
  rig_touch(f, vmp_region_base(b), 2 * GRANULE, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).spare, 2 * GRANULE);  // nothing is lost
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

// A region that says what it will share gets addresses where nothing is in the way.
VTEST_F(RegionShare, ShareBytesChoosesFreeAddresses, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *gone = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 4, f->streams[0]));
  VEXPECT_OK(region_commit(gone, 0, 4, f->streams[0]));
  rig_touch(f, vmp_region_base(gone), 4 * GRANULE, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(gone, f->streams[0]));
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = GIB;
  options.share_bytes = 4 * GRANULE;
  vmp_region *b = NULL;
  VASSERT_OK(vmp_region_create(f->pool, &b, &options));
  VEXPECT_OK(vmp_region_share(a, 0, b, 0, 4, f->streams[0]));
  // The other addresses are still there, with their pages, for a region that doesn't share.
  uint64_t calls = rig_calls(f).map;
  vmp_region *c = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(c, 0, 4, f->streams[0]));
  VEXPECT_UINT_EQ(rig_calls(f).map, calls);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(c, f->streams[0]));
}

// Memory that two streams shared is handed to a third only behind the work of both.
VTEST_F(RegionShare, TheNextUserWaitsForAllOfThem, pool_rig) {
  region_open_ordered(f, 8 * GIB, "hard_limit:4MiB");
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 2, f->streams[0]));
  rig_touch(f, vmp_region_base(a), 2 * GRANULE, f->streams[0]);
  VEXPECT_OK(vmp_region_share(a, 0, b, 0, 2, f->streams[1]));
  region_order(f, f->streams[1], f->streams[0]);
  rig_touch(f, vmp_region_base(b), 2 * GRANULE, f->streams[1]);
  VEXPECT_OK(vmp_region_destroy(b, f->streams[1]));
  region_order(f, f->streams[0], f->streams[1]);
  rig_touch(f, vmp_region_base(a), 2 * GRANULE, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  vmp_region *c = region_make(f, 2 * GIB, 0);
  VEXPECT_OK(region_commit(c, 0, 2, f->streams[2]));
  rig_touch(f, vmp_region_base(c), 2 * GRANULE, f->streams[2]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 4 * MIB);
  rig_settle(f);
  region_expect_ordered(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(c, f->streams[2]));
}

// Blocks take the memory only when nobody has it any more.
VTEST_F(RegionShare, BlocksDontTakeSharedPages, pool_rig) {
  rig_open(f, 32 * MIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 16, f->streams[0]));
  VEXPECT_OK(vmp_region_share(a, 0, b, 0, 16, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  void *block = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, GRANULE, f->streams[0]), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_OK(region_decommit(b, 8, 8, f->streams[0]));
  block = rig_alloc(f, 16 * MIB, f->streams[0]);
  rig_touch(f, block, 16 * MIB, f->streams[0]);
  rig_touch(f, vmp_region_base(b), 16 * MIB, f->streams[0]);
  rig_settle(f);
  rig_check(f);
  rig_free(f, block, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}
