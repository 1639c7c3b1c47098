// region_test.c: regions: what they cost, commit and decommit in batches, order between streams, limits, pending pages
// and waits, who gets their memory, isolation from the pool's blocks.
#include "tests/pool/region_rig.h"

// ---- what a region is ----

VTEST_F(Region, ReservesMuchAndCostsNothing, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_pool_stats_data before = rig_stats(f);
  vmp_driver_calls calls = rig_calls(f);
  vmp_region *region = region_make(f, 64 * GIB, 0);
  VASSERT_TRUE(region != NULL);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(rig_calls(f).create + rig_calls(f).map + rig_calls(f).reserve,
                  calls.create + calls.map + calls.reserve);
  VEXPECT_UINT_EQ(after.mapped, before.mapped);
  VEXPECT_UINT_EQ(after.live, 0);
  VEXPECT_UINT_EQ(after.regions, 1);
  VEXPECT_UINT_EQ(after.region_reserved, 64 * GIB);
  VEXPECT_UINT_LE(after.metadata - before.metadata, 16 * KIB);  // not in proportion to its 32,768 pages
  vmp_region_info info = region_info(region);
  VEXPECT_UINT_EQ(info.max_bytes, 64 * GIB);
  VEXPECT_UINT_EQ(info.page_bytes, GRANULE);
  VEXPECT_UINT_EQ(info.limit_bytes, 64 * GIB);
  VEXPECT_UINT_EQ(info.committed_bytes, 0);
  VEXPECT_STR_EQ(info.name, "region");
  VEXPECT_PTR_EQ(info.base, vmp_region_base(region));
  VEXPECT_UINT_EQ(rig_address(info.base) % GRANULE, 0);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).regions, 0);
  VEXPECT_UINT_EQ(rig_stats(f).region_reserved, 0);
}

VTEST_F(Region, CommitsARunWithOneSetAccess, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, 8 * GIB, 0);
  vmp_driver_calls before = rig_calls(f);
  VEXPECT_OK(region_commit(region, 0, 10, f->streams[0]));
  vmp_driver_calls after = rig_calls(f);
  VEXPECT_UINT_EQ(after.create - before.create, 10);
  VEXPECT_UINT_EQ(after.map - before.map, 10);
  VEXPECT_UINT_EQ(after.set_access - before.set_access, 1);
  rig_touch(f, vmp_region_base(region), 10 * GRANULE, f->streams[0]);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.region_committed, 10 * GRANULE);
  VEXPECT_UINT_EQ(stats.live, 10 * GRANULE);
  VEXPECT_UINT_EQ(stats.requested, 10 * GRANULE);
  VEXPECT_UINT_EQ(stats.peak_live, 10 * GRANULE);
  VEXPECT_UINT_EQ(stats.mapped, 10 * GRANULE);  // nothing is mapped ahead of a region's pages
  // Again, and further: what is committed stays as it is.
  VEXPECT_OK(region_commit(region, 0, 12, f->streams[0]));
  VEXPECT_UINT_EQ(rig_calls(f).create - after.create, 2);
  VEXPECT_UINT_EQ(rig_stats(f).region_committed, 12 * GRANULE);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
  VEXPECT_UINT_EQ(rig_stats(f).peak_live, 12 * GRANULE);
}

// Lists in any order, with repetitions, and overlapping runs: one set-access per run of neighbours.
VTEST_F(Region, ListsAndRunsAreSortedAndJoined, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, 8 * GIB, 0);
  const uint64_t pages[] = {9, 3, 4, 5, 3, 20, 10, 4};
  vmp_driver_calls before = rig_calls(f);
  VEXPECT_OK(vmp_region_commit_list(region, pages, 8, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 6 * GRANULE);
  VEXPECT_UINT_EQ(rig_calls(f).set_access - before.set_access, 3);
  const vmp_region_pages runs[] = {{19, 4}, {0, 2}, {21, 3}};
  before = rig_calls(f);
  VEXPECT_OK(vmp_region_commit(region, runs, 3, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 12 * GRANULE);
  VEXPECT_UINT_EQ(rig_calls(f).map - before.map, 6);
  VEXPECT_UINT_EQ(rig_calls(f).set_access - before.set_access, 3);  // 0-1, 19, 21-23
  VEXPECT_OK(vmp_region_decommit_list(region, pages, 8, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 6 * GRANULE);
  rig_check(f);
  VEXPECT_OK(vmp_region_decommit(region, runs, 3, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 0);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}

VTEST_F(Region, ResizeCommitsBelowAndDecommitsAbove, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 100, 5, NULL));
  VEXPECT_OK(vmp_region_resize(region, 3 * GRANULE + 1, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 4 * GRANULE);
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, 5 * GRANULE);
  VEXPECT_OK(vmp_region_resize(region, 0, NULL));
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 0);
  VEXPECT_STATUS(vmp_region_resize(region, GIB + 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_resize(region, UINT64_MAX, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}

// Larger pages are one chunk each, larger than chunk_max too.
VTEST_F(Region, PagesOfManySizesAreOneChunkEach, pool_rig) {
  rig_open(f, 8 * GIB, "chunk_max:4MiB");
  VASSERT_NO_FAILURE();
  for (uint64_t page = GRANULE; page <= 256 * MIB; page *= 2) {
    vmp_region *region = region_make(f, 7 * page - 1, page);
    vmp_region_info info = region_info(region);
    VEXPECT_UINT_EQ(info.page_bytes, page);
    VEXPECT_UINT_EQ(info.max_bytes, 7 * page);
    VEXPECT_UINT_EQ(rig_address(info.base) % page, 0);
    uint64_t chunks = rig_stats(f).chunks;
    const uint64_t pages[] = {1, 2, 6};
    VEXPECT_OK(vmp_region_commit_list(region, pages, 3, NULL));
    VEXPECT_UINT_EQ(rig_stats(f).chunks - chunks, 3);
    rig_touch(f, rig_at(info.base, page), 2 * page, NULL);
    rig_touch(f, rig_at(info.base, 6 * page), page, NULL);
    rig_check(f);
    VEXPECT_OK(vmp_region_destroy(region, NULL));
    rig_settle(f);
    VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
    VASSERT_NO_FAILURE();
  }
}

VTEST_F(Region, RefusesWhatMakesNoSense, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = NULL;
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  VEXPECT_STATUS(vmp_region_create(f->pool, &region, &options), VMP_ERROR_INVALID_VALUE);  // max_bytes 0
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "max_bytes");
  options.max_bytes = GIB;
  VEXPECT_STATUS(vmp_region_create(NULL, &region, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_create(f->pool, NULL, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_create(f->pool, &region, NULL), VMP_ERROR_INVALID_VALUE);
  const uint64_t bad_pages[] = {1, MIB, 3 * GRANULE, 2 * VMP_MAX_ALIGNMENT};
  for (size_t i = 0; i < 4; i++) {
    options.page_bytes = bad_pages[i];
    VEXPECT_STATUS(vmp_region_create(f->pool, &region, &options), VMP_ERROR_INVALID_VALUE);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, "page_bytes");
  }
  options.page_bytes = 0;
  options.struct_size = 8;
  VEXPECT_STATUS(vmp_region_create(f->pool, &region, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_TRUE(region == NULL);
  region = region_make(f, 8 * GRANULE, 0);
  const vmp_region_pages beyond[] = {{8, 1}, {0, 9}, {UINT64_MAX, 1}, {1, UINT64_MAX}};
  for (size_t i = 0; i < 4; i++) {
    VEXPECT_STATUS(vmp_region_commit(region, &beyond[i], 1, NULL), VMP_ERROR_INVALID_VALUE);
    VEXPECT_STATUS(vmp_region_decommit(region, &beyond[i], 1, NULL), VMP_ERROR_INVALID_VALUE);
  }
  const uint64_t page = 8;
  VEXPECT_STATUS(vmp_region_commit_list(region, &page, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_commit(region, NULL, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_commit(NULL, beyond, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_query(region, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_region_commit(region, NULL, 0, NULL));
  VEXPECT_OK(region_commit(region, 8, 0, NULL));
  // A region's address is no block.
  VEXPECT_OK(region_commit(region, 0, 1, NULL));
  VEXPECT_STATUS(vmp_free(f->pool, vmp_region_base(region), NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "vmp_region_decommit");
  VEXPECT_OK(vmp_region_destroy(region, NULL));
  VEXPECT_OK(vmp_region_destroy(NULL, NULL));
  VEXPECT_TRUE(vmp_region_base(NULL) == NULL);
}

// ---- limits ----

VTEST_F(Region, ItsLimitHoldsAndCanBeChanged, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = GIB;
  options.limit_bytes = 4 * GRANULE;
  options.name = "kv 7";
  vmp_region *region = NULL;
  VASSERT_OK(vmp_region_create(f->pool, &region, &options));
  VEXPECT_OK(region_commit(region, 0, 3, NULL));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(region_commit(region, 0, 5, NULL), VMP_ERROR_LIMIT);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "kv 7");
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  // What is named twice counts once.
  const uint64_t twice[] = {7, 7, 7, 7};
  VEXPECT_OK(vmp_region_commit_list(region, twice, 4, NULL));
  VEXPECT_STATUS(region_commit(region, 8, 1, NULL), VMP_ERROR_LIMIT);
  VEXPECT_OK(vmp_region_set_limit(region, UINT64_MAX));
  VEXPECT_UINT_EQ(region_info(region).limit_bytes, GIB);
  VEXPECT_OK(region_commit(region, 8, 1, NULL));
  VEXPECT_OK(vmp_region_set_limit(region, GRANULE));  // what is beyond it stays
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 5 * GRANULE);
  VEXPECT_OK(region_commit(region, 0, 3, NULL));  // nothing new
  VEXPECT_STATUS(region_commit(region, 9, 1, NULL), VMP_ERROR_LIMIT);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}

VTEST_F(Region, ThePoolsLimitHoldsAndSaysSo, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB");
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 30, NULL));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(region_commit(region, 30, 3, NULL), VMP_ERROR_LIMIT);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "60MiB in 1 regions");
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_STATUS(region_commit(region, 0, 100, NULL), VMP_ERROR_LIMIT);  // can never be had
  VEXPECT_OK(region_commit(region, 30, 2, NULL));
  rig_check(f);
  // Decommitting brings a pool that is over a lowered limit under it.
  VEXPECT_INT_EQ(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 32 * MIB), VMP_PENDING);
  VEXPECT_OK(region_decommit(region, 0, 20, NULL));
  rig_settle(f);
  VEXPECT_OK(region_decommit(region, 20, 1, NULL));
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 32 * MIB, NULL));
  VEXPECT_UINT_LE(rig_stats(f).mapped, 32 * MIB);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}

// ---- streams ----

// Decommitted and committed again on the same stream: the same memory, no call, no wait.
VTEST_F(Region, CommitsAgainInPlace, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 8, f->streams[0]));
  rig_touch(f, vmp_region_base(region), 8 * GRANULE, f->streams[0]);
  VEXPECT_OK(region_decommit(region, 4, 4, f->streams[0]));
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, 4 * GRANULE);
  uint64_t calls = rig_all_calls(f->driver);
  VEXPECT_OK(region_commit(region, 0, 8, f->streams[0]));
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  rig_touch(f, vmp_region_base(region), 8 * GRANULE, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
}

// Another stream gets it behind the work, on the GPU; the host doesn't wait.
VTEST_F(Region, AnotherStreamWaitsOnTheGpu, pool_rig) {
  region_open_ordered(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[0]));
  rig_touch(f, vmp_region_base(region), 2 * GRANULE, f->streams[0]);
  VEXPECT_OK(vmp_region_record_use(region, f->streams[2]));
  region_order(f, f->streams[2], f->streams[0]);
  rig_touch(f, vmp_region_base(region), 2 * GRANULE, f->streams[2]);
  VEXPECT_OK(region_decommit(region, 0, 2, f->streams[0]));
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[1]));
  VEXPECT_UINT_EQ(rig_counters(f).host_waits, 0);
  VEXPECT_UINT_GE(rig_stats(f).stream_waits, 2);  // the recorded stream, too
  rig_touch(f, vmp_region_base(region), 2 * GRANULE, f->streams[1]);
  rig_settle(f);
  rig_check(f);
  region_expect_ordered(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[1]));
}

// A page whose memory was taken while its old mapping is in use can't be mapped yet: VMP_PENDING, and nothing changes.
VTEST_F(Region, APageThatRetiresIsPending, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:16MiB");
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 8, f->streams[0]));
  rig_touch(f, vmp_region_base(a), 8 * GRANULE, f->streams[0]);
  VEXPECT_OK(region_decommit(a, 0, 4, f->streams[0]));
  VEXPECT_OK(region_commit(b, 0, 4, f->streams[0]));  // takes them: the limit leaves no other
  VEXPECT_UINT_EQ(region_info(a).retiring_bytes, 4 * GRANULE);
  VEXPECT_OK(region_decommit(b, 0, 4, f->streams[0]));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_INT_EQ(region_commit(a, 0, 4, f->streams[0]), VMP_PENDING);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_UINT_EQ(region_info(a).committed_bytes, 4 * GRANULE);
  rig_settle(f);
  VEXPECT_OK(region_commit(a, 0, 4, f->streams[0]));
  rig_touch(f, vmp_region_base(a), 8 * GRANULE, f->streams[0]);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

VTEST_F(Region, TheOptionWaitWaitsOnTheHost, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:16MiB");
  VASSERT_NO_FAILURE();
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = GIB;
  options.wait = 1;
  vmp_region *a = NULL, *b = region_make(f, GIB, 0);
  VASSERT_OK(vmp_region_create(f->pool, &a, &options));
  VEXPECT_OK(region_commit(a, 0, 8, f->streams[0]));
  rig_touch(f, vmp_region_base(a), 8 * GRANULE, f->streams[0]);
  VEXPECT_OK(region_decommit(a, 0, 8, f->streams[0]));
  VEXPECT_OK(region_commit(b, 0, 8, f->streams[0]));
  VEXPECT_OK(region_decommit(b, 0, 8, f->streams[0]));
  VEXPECT_OK(region_commit(a, 0, 8, f->streams[0]));
  VEXPECT_UINT_EQ(rig_stats(f).host_waits, 1);
  rig_touch(f, vmp_region_base(a), 8 * GRANULE, f->streams[0]);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

// cross_stream:complete never orders a stream behind another.
VTEST_F(Region, CompleteOnlyIsPendingInstead, pool_rig) {
  rig_open(f, 8 * GIB, "cross_stream:complete");
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[0]));
  rig_touch(f, vmp_region_base(region), 2 * GRANULE, f->streams[0]);
  VEXPECT_OK(region_decommit(region, 0, 2, f->streams[0]));
  VEXPECT_INT_EQ(region_commit(region, 0, 2, f->streams[1]), VMP_PENDING);
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[0]));
  VEXPECT_OK(region_decommit(region, 0, 2, f->streams[0]));
  rig_settle(f);
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[1]));
  VEXPECT_UINT_EQ(rig_counters(f).stream_waits, 0);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[1]));
}

// ---- who gets the memory ----

// A destroyed region's addresses, and what is mapped there, are the next one's: the steady state makes no driver call.
VTEST_F(Region, TheNextOneAdoptsThePages, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  for (int round = 0; round < 5; round++) {
    vmp_driver_calls before = rig_calls(f);
    vmp_region *region = region_make(f, GIB, 0);
    VEXPECT_OK(region_commit(region, 0, 20, f->streams[0]));
    vmp_driver_calls after = rig_calls(f);
    if (round > 0)
      VEXPECT_UINT_EQ(after.map + after.create + after.set_access + after.unmap,
                      before.map + before.create + before.set_access + before.unmap);
    rig_touch(f, vmp_region_base(region), 20 * GRANULE, f->streams[0]);
    VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
    rig_check(f);
  }
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 20 * GRANULE);
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
}

// Regions take each other's pages rather than new memory; blocks take new memory rather than pages.
VTEST_F(Region, PagesGoToRegionsFirstAndToBlocksLast, pool_rig) {
  rig_open(f, 8 * GIB, "no_map_ahead:1,chunk_max:2MiB");
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 16, f->streams[0]));
  VEXPECT_OK(region_decommit(a, 0, 16, f->streams[0]));
  VEXPECT_OK(region_commit(b, 0, 8, f->streams[0]));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 16 * GRANULE);
  VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 16);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, 0));  // take before creating
  void *block = rig_alloc(f, 4 * GRANULE, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 20);  // and yet no page is taken
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 20 * GRANULE);
  rig_free(f, block, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

VTEST_F(Region, BlocksTakePagesRatherThanFail, pool_rig) {
  rig_open(f, 32 * MIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 16, f->streams[0]));
  rig_touch(f, vmp_region_base(a), 16 * GRANULE, f->streams[0]);
  VEXPECT_OK(region_decommit(a, 4, 12, f->streams[0]));
  void *block = rig_alloc(f, 24 * MIB, f->streams[1]);  // waits for the work, and takes them
  rig_touch(f, block, 24 * MIB, f->streams[1]);
  rig_touch(f, vmp_region_base(a), 4 * GRANULE, f->streams[0]);
  rig_settle(f);
  rig_check(f);
  void *more = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &more, GRANULE, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "8MiB in 1 regions");
  rig_free(f, block, f->streams[1]);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
}

// Memory that blocks left in chunks of other sizes serves pages, too.
VTEST_F(Region, PagesTakeWhatBlocksLeft, pool_rig) {
  rig_open(f, 64 * MIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 60 * MIB, f->streams[0]);
  rig_touch(f, block, 60 * MIB, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  vmp_region *region = region_make(f, GIB, 4 * GRANULE);
  VEXPECT_OK(region_commit(region, 0, 8, f->streams[1]));
  rig_touch(f, vmp_region_base(region), 64 * MIB, f->streams[1]);
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[1]));
}

// Growth of the pool's blocks never reaches into a region's addresses, on either side.
VTEST_F(Region, GrowthOfBlocksStopsAtItsBorders, pool_rig) {
  rig_open(f, 8 * GIB, "preset:buddy,growth:64MiB");
  VASSERT_NO_FAILURE();
  vmp_region *regions[8];
  void *blocks[8];
  for (int i = 0; i < 8; i++) {
    blocks[i] = rig_alloc(f, 3 * GRANULE, NULL);
    regions[i] = region_make(f, 3 * GRANULE, 0);
    VEXPECT_OK(region_commit(regions[i], 0, 3, NULL));
    rig_check(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_EQ(rig_stats(f).region_committed, 24 * GRANULE);
  for (int i = 0; i < 8; i++) {
    rig_free(f, blocks[i], NULL);
    VEXPECT_OK(vmp_region_destroy(regions[i], NULL));
  }
}

// Where chunks of other sizes lie in a region's addresses from before, they go when a page needs the place.
VTEST_F(Region, OldChunksInItsAddressesMakeRoom, pool_rig) {
  rig_open(f, 8 * GIB, "preset:buddy,reserve:64MiB,chunk_max:8MiB,arena:8MiB");
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 60 * MIB, f->streams[0]);
  rig_touch(f, block, 60 * MIB, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  vmp_region *region = region_make(f, 32 * MIB, 0);  // only here: the first reservation has no other place
  vmp_region_info info = region_info(region);
  vmp_status status = region_commit(region, 0, 16, f->streams[0]);
  VEXPECT_TRUE(status == VMP_OK || status == VMP_PENDING);
  rig_settle(f);
  VEXPECT_OK(region_commit(region, 0, 16, f->streams[0]));
  rig_touch(f, info.base, 32 * MIB, f->streams[0]);
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
}

// ---- addresses ----

VTEST_F(Region, TakesAReservationOfItsOwn, pool_rig) {
  rig_open(f, GIB, "reserve:1GiB");
  VASSERT_NO_FAILURE();
  uint64_t reserved = rig_stats(f).reserved_va;
  vmp_region *region =
      region_make(f, UINT64_C(48) << 40, 0);  // three quarters of all addresses: twice that doesn't exist
  VASSERT_TRUE(region != NULL);
  VEXPECT_UINT_GE(rig_stats(f).reserved_va, reserved + (UINT64_C(48) << 40));
  const uint64_t ends[] = {0, (UINT64_C(48) << 40) / GRANULE - 1};
  VEXPECT_OK(vmp_region_commit_list(region, ends, 2, NULL));
  rig_touch(f, rig_at(vmp_region_base(region), (UINT64_C(48) << 40) - GRANULE), GRANULE, NULL);
  VEXPECT_UINT_LT(rig_stats(f).metadata, 64 * MIB);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
  rig_settle(f);
  // The next one gets the same addresses; what lies in them in other sizes makes room.
  reserved = rig_stats(f).reserved_va;
  region = region_make(f, UINT64_C(40) << 40, 2 * GRANULE);
  VASSERT_TRUE(region != NULL);
  VEXPECT_UINT_EQ(rig_stats(f).reserved_va, reserved);
  VEXPECT_OK(region_commit(region, 0, 1, NULL));
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, NULL));
  vmp_region *none = NULL;
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = UINT64_C(1) << 50;
  VEXPECT_STATUS(vmp_region_create(f->pool, &none, &options), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  rig_check(f);
}

// Idle ranges go back when blocks need addresses.
VTEST_F(Region, IdleAddressesGoBackToTheBlocks, pool_rig) {
  rig_open(f, 8 * GIB, "preset:buddy,reserve:128MiB,arena:8MiB");
  VASSERT_NO_FAILURE();
  for (int i = 0; i < 3; i++) {
    vmp_region *region = region_make(f, 64 * MIB << i, 0);
    VEXPECT_OK(vmp_region_destroy(region, NULL));
  }
  void *blocks[4];
  for (int i = 0; i < 4; i++) blocks[i] = rig_alloc(f, 100 * MIB, NULL);
  rig_check(f);
  for (int i = 0; i < 4; i++) rig_free(f, blocks[i], NULL);
}

// ---- beside other features ----

// Compaction copies blocks together; pages of regions stay where they are, with what they hold.
VTEST_F(Region, CompactionLeavesPagesAlone, pool_rig) {
  rig_open(f, GIB, "chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  void *blocks[64];
  for (int i = 0; i < 64; i++) blocks[i] = rig_alloc(f, 512 * KIB, f->streams[0]);
  VEXPECT_OK(region_commit(a, 0, 6, f->streams[0]));
  VEXPECT_OK(vmp_region_share(a, 0, b, 0, 2, f->streams[0]));
  VEXPECT_OK(vmp_host_fill(f->driver, 0, vmp_region_base(a), 0x3c, 6 * GRANULE, f->streams[0]));
  VEXPECT_OK(region_decommit(a, 3, 1, f->streams[0]));
  for (int i = 0; i < 64; i++) {
    if (i % 8 != 0) rig_free(f, blocks[i], f->streams[0]);
  }
  rig_settle(f);
  VEXPECT_OK(vmp_quiescent_begin(f->pool));
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH;
  VEXPECT_OK(vmp_pool_defragment(f->pool, &options, NULL));
  VEXPECT_OK(vmp_quiescent_end(f->pool));
  rig_check(f);
  unsigned char byte = 0;
  VEXPECT_OK(vmp_host_copy_out(f->driver, 0, &byte, rig_at(vmp_region_base(b), 2 * GRANULE - 1), 1, f->streams[0]));
  VEXPECT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));
  VEXPECT_UINT_EQ(byte, 0x3c);
  VEXPECT_UINT_EQ(region_info(a).committed_bytes, 5 * GRANULE);
  for (int i = 0; i < 64; i += 8) rig_free(f, blocks[i], f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

// Nothing is committed, shared or decommitted on a stream that captures; other streams go on.
VTEST_F(Region, ACapturingStreamIsRefused, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, GIB, 0), *b = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(a, 0, 2, f->streams[0]));
  vmp_graph_id graph = 0;
  VEXPECT_OK(vmp_capture_begin(f->pool, f->streams[0], &graph));
  VEXPECT_STATUS(region_commit(a, 0, 4, f->streams[0]), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(region_decommit(a, 0, 2, f->streams[0]), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_region_resize(a, GRANULE, f->streams[0]), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_region_share(a, 0, b, 0, 1, f->streams[0]), VMP_ERROR_CAPTURE);
  VEXPECT_STATUS(vmp_region_destroy(a, f->streams[0]), VMP_ERROR_CAPTURE);
  VEXPECT_UINT_EQ(region_info(a).committed_bytes, 2 * GRANULE);
  VEXPECT_OK(region_commit(a, 2, 2, f->streams[1]));
  VEXPECT_OK(vmp_capture_end(f->pool, f->streams[0]));
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[0]));
}

// ---- the pool's end, and looking at it ----

VTEST_F(Region, APoolWithRegionsIsBusy, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 3, NULL));
  VEXPECT_STATUS(vmp_pool_destroy(f->pool), VMP_ERROR_BUSY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "1 regions of 6291456 committed bytes");
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}

VTEST_F(Region, DestroyReleasesEndsRegionsToo, pool_rig) {
  rig_open(f, 8 * GIB, "destroy_releases:1");
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 3, f->streams[0]));
  rig_touch(f, vmp_region_base(region), 3 * GRANULE, f->streams[0]);
  (void)region_make(f, GIB, 0);
}

VTEST_F(Region, TheCheckNoticesBrokenBooks, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0), *gone = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(region, 0, 3, NULL));
  VEXPECT_OK(vmp_region_destroy(gone, NULL));
  vmp_regions *books = &f->pool->regions;
  struct {
    uint64_t *value;
    const char *part;
  } faults[] = {
      {&books->count, "their number"},
      {&books->num_idle, "the number of idle ranges"},
      {&books->reserved_bytes, "reserved_bytes"},
      {&books->piece_bytes, "buddy's pieces"},
      {&books->live_bytes, "live_bytes"},
      {&books->committed_bytes, "committed_bytes"},
      {&region->committed_bytes, "committed by its books"},
  };
  for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++) {
    (*faults[i].value)++;
    vtest_faults found = vtest_faults_make();
    vmp_report report = vtest_faults_report(&found);
    vmp_regions_check(f->pool, &report);
    VEXPECT_A_FAULT(&found, faults[i].part);
    (*faults[i].value)--;
  }
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_region_destroy(region, NULL));
}
