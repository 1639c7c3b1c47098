// backing_test.c: claims, releases, takes, retirement and limits of backing, on the host driver. Sizes and counts are
// by hand: a slot is 2 MiB.
#include "vmm/backing.h"

#include "tests/vmm/backing_rig.h"

static void rig_setup(rig *f) { (void)f; }
static void rig_teardown(rig *f) { rig_close(f); }

VTEST_F(Backing, ClaimMapsWholeSlotsAndReleaseParksThem, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, 16 * GIB, &options);
  VASSERT_NO_FAILURE();
  // [1 MiB, 5 MiB) touches slots 0, 1 and 2.
  VASSERT_OK(rig_claim(f, MIB, 4 * MIB, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 3 * SLOT);
  VEXPECT_UINT_EQ(rig_stats(f).parked_bytes, 0);
  rig_check(f);
  rig_release(f, MIB, 4 * MIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 3 * SLOT);
  VEXPECT_UINT_EQ(rig_stats(f).parked_bytes, 3 * SLOT);
  rig_check(f);
  uint64_t maps = rig_calls(f, VMP_CALL_mem_map);
  VASSERT_OK(rig_claim(f, 0, 6 * MIB, 0, NULL));  // in place: no driver call
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_map), maps);
  rig_release(f, 0, 6 * MIB, VMP_FENCE_NONE);
}

// expect_pins: what the first and the last `bytes` of [from, to) would pin; -1: it isn't said.
static void expect_pins(rig *f, uint64_t from, uint64_t to, uint64_t bytes, int low, int high) {
  vmp_end_pins pins;
  bool said = f->ops.pins(f->ops.self, f->base + from, f->base + to, bytes, &pins);
  VEXPECT_INT_EQ(said ? (int)pins.low : -1, low);
  VEXPECT_INT_EQ(said ? (int)pins.high : -1, high);
}

// Chunks of 4 MiB: [0, 4) and [4, 8) MiB; beyond 8 MiB nothing is mapped.
VTEST_F(Backing, WhatIsLiveIsClaimedAgain, rig) {
  vmp_backing_options options = rig_options(4 * MIB);
  rig_open(f, GIB, 16 * GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_backing_ops *ops = &f->ops;
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));
  VEXPECT_TRUE(ops->claim_again(ops->self, f->base + MIB, MIB));           // inside one
  VEXPECT_TRUE(ops->claim_again(ops->self, f->base + 3 * MIB, 2 * MIB));   // across both
  VEXPECT_FALSE(ops->claim_again(ops->self, f->base + 8 * MIB, MIB));      // unmapped
  VEXPECT_FALSE(ops->claim_again(ops->self, f->base + 7 * MIB, 2 * MIB));  // partly
  VEXPECT_FALSE(ops->claim_again(ops->self, f->base + 16 * GIB, MIB));     // in no reservation
  expect_pins(f, MIB, 5 * MIB, 4 * MIB, 0, 0);
  expect_pins(f, 7 * MIB, 9 * MIB, 2 * MIB, -1, -1);
  expect_pins(f, 0, 9 * MIB, MIB, -1, -1);
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(f).parked_bytes, 0);  // each is claimed still
  rig_check(f);
  rig_release(f, 3 * MIB, 2 * MIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(f).parked_bytes, 4 * MIB);  // the second one isn't
  VEXPECT_FALSE(ops->claim_again(ops->self, f->base + 5 * MIB, MIB));
  VEXPECT_FALSE(ops->claim_again(ops->self, f->base + 3 * MIB, 2 * MIB));  // the first is, the second isn't
  expect_pins(f, 5 * MIB, 6 * MIB, MIB, 1, 1);
  expect_pins(f, 3 * MIB, 5 * MIB, 2 * MIB, 1, 1);
  expect_pins(f, 0, 8 * MIB, MIB, 0, 1);
  expect_pins(f, 0, 8 * MIB, 4 * MIB, 0, 1);
  expect_pins(f, MIB, 8 * MIB, 4 * MIB, 1, 1);  // the first reaches into the second chunk
  rig_check(f);
  rig_release(f, MIB, MIB, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(f).parked_bytes, 8 * MIB);
  rig_check(f);
}

// Of several releases of a chunk that stays live, and of the last, the latest fence counts; other streams' come to it.
VTEST_F(Backing, AChunkKeepsTheFencesOfAllReleases, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, SLOT, 16 * GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_cu_stream streams[2];
  vmp_stream_index index[2];
  static const int by[] = {0, 0, 1, 0};
  vmp_fence fences[4], after;
  for (int i = 0; i < 4; i++) VASSERT_OK(rig_claim(f, 0, MIB, 0, NULL));
  for (int i = 0; i < 2; i++) {
    streams[i] = rig_stream(f);
    index[i] = vmp_clock_stream(f->clock, streams[i]);
    uint64_t address = vmp_backing_address(f->backing, f->base);
    VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, streams[i], address, MIB, false), 0);
  }
  for (int i = 0; i < 4; i++) fences[i] = vmp_clock_fence(f->clock, index[by[i]]);
  static const int order[] = {3, 1, 0, 2};
  for (int i = 0; i < 4; i++) rig_release(f, 0, MIB, fences[order[i]]);
  VASSERT_OK(rig_claim(f, 8 * MIB, MIB, index[0], &after));  // it is taken from there
  VEXPECT_UINT_EQ(after.streams, UINT64_C(1) << index[0] | UINT64_C(1) << index[1]);
  VEXPECT_UINT_EQ(after.sequence, fences[3].sequence);
  rig_release(f, 8 * MIB, MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, OneMapPerChunkAndOneAccessPerRun, rig) {
  rig_open(f, 80 * GIB, 160 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 70 * MIB, 0, NULL));  // 35 slots: 32 MiB + 32 MiB + 4 MiB + 2 MiB
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_create), 4);
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_map), 4);
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_set_access), 1);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 70 * MIB);
  rig_check(f);
  rig_release(f, 0, 70 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, GrowthIsRoundedUpAndTheSurplusIsFree, rig) {
  vmp_backing_options options = rig_options(32 * MIB);
  options.growth_bytes = 32 * MIB;
  rig_open(f, 80 * GIB, 160 * GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 5 * MIB, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 32 * MIB);
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_create), 1);
  uint64_t end = 0;
  VEXPECT_INT_EQ(f->ops.run(f->ops.self, f->base, f->base + 64 * MIB, &end), VMP_RUN_MAPPED);
  VEXPECT_UINT_EQ(end - f->base, 32 * MIB);
  vmp_cost cost = f->ops.cost(f->ops.self, f->base + 30 * MIB, 4 * MIB, 0);
  VEXPECT_UINT_EQ(cost.slots_to_map, 1);
  VEXPECT_UINT_EQ(cost.chunks_pinned, 0);  // the chunk is live already
  VEXPECT_FALSE(cost.blocked);
  rig_release(f, 0, 5 * MIB, VMP_FENCE_NONE);
  cost = f->ops.cost(f->ops.self, f->base + 30 * MIB, 2 * MIB, 0);
  VEXPECT_UINT_EQ(cost.chunks_pinned, 1);
}

VTEST_F(Backing, AFullDeviceTakesParkedChunksWithoutCopyOrWait, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 64 * MIB, GIB, &options);  // 32 slots of memory
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 64 * MIB, 0, NULL));
  VEXPECT_STATUS(rig_claim(f, 512 * MIB, SLOT, 0, NULL), VMP_ERROR_OUT_OF_MEMORY);
  rig_check(f);
  rig_release(f, 0, 64 * MIB, vmp_clock_fence(f->clock, 0));
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));  // slots 0..3 live again
  uint64_t created = rig_stats(f).chunks_created;
  VASSERT_OK(rig_claim(f, 512 * MIB, 40 * MIB, 0, NULL));
  vmp_backing_stats stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.chunks_created, created);
  VEXPECT_UINT_EQ(stats.takes, 20);
  VEXPECT_UINT_EQ(stats.retiring_bytes, 40 * MIB);
  VEXPECT_UINT_EQ(stats.mapped_bytes, 64 * MIB);  // a chunk counts once
  vmp_host_counters counters;
  vmp_host_get_counters(f->driver, &counters);
  VEXPECT_UINT_EQ(counters.host_waits, 0);
  rig_check(f);
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
  rig_release(f, 512 * MIB, 40 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, ARetiringSlotIsBlockedUntilTheHostHasSeenItsFence, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 8 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_cu_stream stream = rig_stream(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, index, NULL));
  VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, stream, vmp_backing_address(f->backing, f->base), 8 * MIB, true), 0);
  rig_release(f, 0, 8 * MIB, vmp_clock_fence(f->clock, index));
  vmp_fence fence = VMP_FENCE_NONE;
  VASSERT_OK(rig_claim(f, 64 * MIB, 8 * MIB, index, &fence));
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base, SLOT, index).blocked);
  VEXPECT_STATUS(rig_claim(f, 0, SLOT, index, NULL), VMP_ERROR_BUSY);
  (void)vmp_backing_poll(f->backing);  // the work is still queued: a query completes nothing
  VEXPECT_UINT_EQ(rig_stats(f).retiring_bytes, 8 * MIB);
  VEXPECT_OK(vmp_clock_wait(f->clock, vmp_backing_pending(f->backing), UINT64_MAX));
  VEXPECT_TRUE(vmp_backing_poll(f->backing));
  VEXPECT_UINT_EQ(rig_stats(f).retiring_bytes, 0);
  VEXPECT_FALSE(f->ops.cost(f->ops.self, f->base, SLOT, index).blocked);
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_unmap), 1);  // one call for the run of four
  vmp_host_counters counters;
  vmp_host_get_counters(f->driver, &counters);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
  rig_check(f);
  rig_release(f, 64 * MIB, 8 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, AnotherStreamsMemoryIsReportedToBeWaitedFor, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 4 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_cu_stream one = rig_stream(f), two = rig_stream(f);
  vmp_stream_index i1 = vmp_clock_stream(f->clock, one), i2 = vmp_clock_stream(f->clock, two);
  VASSERT_OK(rig_claim(f, 0, 4 * MIB, i1, NULL));
  VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, one, vmp_backing_address(f->backing, f->base), 4 * MIB, true), 0);
  rig_release(f, 0, 4 * MIB, vmp_clock_fence(f->clock, i1));
  vmp_fence fence = VMP_FENCE_NONE;
  VASSERT_OK(rig_claim(f, 32 * MIB, 2 * MIB, i2, &fence));
  VEXPECT_UINT_EQ(fence.streams, UINT64_C(1) << i1);
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base + 32 * MIB, SLOT, i2).must_wait);
  VEXPECT_FALSE(f->ops.cost(f->ops.self, f->base + 32 * MIB, SLOT, i1).must_wait);
  VEXPECT_OK(vmp_clock_order(f->clock, two, fence));
  VEXPECT_TRUE(vmp_fence_is_none(vmp_clock_others(f->clock, fence, i2)));
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));  // a stream wait completes nothing
  rig_release(f, 32 * MIB, 2 * MIB, vmp_clock_fence(f->clock, i2));
}

VTEST_F(Backing, CompleteOnlyRefusesUnfinishedMemoryOfOthers, rig) {
  vmp_backing_options options = rig_options(SLOT);
  options.complete_only = true;
  rig_open(f, 4 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_stream_index i1 = vmp_clock_stream(f->clock, rig_stream(f)), i2 = vmp_clock_stream(f->clock, rig_stream(f));
  VASSERT_OK(rig_claim(f, 0, 4 * MIB, i1, NULL));
  rig_release(f, 0, 4 * MIB, vmp_clock_fence(f->clock, i1));
  VEXPECT_STATUS(rig_claim(f, 32 * MIB, 2 * MIB, i2, NULL), VMP_ERROR_FRAGMENTED);
  VEXPECT_OK(rig_claim(f, 32 * MIB, 2 * MIB, i1, NULL));  // its own memory
  rig_release(f, 32 * MIB, 2 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, LargerChunksGoWhereThereIsRoomAndResizingIsTheLastStep, rig) {
  vmp_backing_options options = rig_options(8 * MIB);
  rig_open(f, 16 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  // Mapping ahead makes chunks of the largest size, however little memory is left.
  VASSERT_UINT_EQ(vmp_backing_map_ahead(f->backing, f->base, 16 * MIB, 16 * MIB), 16 * MIB);
  VASSERT_UINT_EQ(rig_stats(f).chunks, 2);
  rig_check(f);
  // One slot is wanted elsewhere, with room behind it: a whole chunk of four slots moves there.
  VASSERT_OK(rig_claim(f, 64 * MIB, 2 * MIB, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).takes, 1);
  VEXPECT_UINT_EQ(f->ops.cost(f->ops.self, f->base + 66 * MIB, 6 * MIB, 0).slots_to_map, 0);
  VASSERT_OK(rig_claim(f, 66 * MIB, 6 * MIB, 0, NULL));
  // The last slot of the reservation has its room below it.
  VASSERT_OK(rig_claim(f, f->bytes - SLOT, SLOT, 0, NULL));
  VEXPECT_UINT_EQ(f->ops.cost(f->ops.self, f->base + f->bytes - 8 * MIB, 8 * MIB, 0).slots_to_map, 0);
  VEXPECT_UINT_EQ(rig_stats(f).takes, 2);
  rig_check(f);
  rig_release(f, 64 * MIB, 2 * MIB, VMP_FENCE_NONE);
  rig_release(f, 66 * MIB, 6 * MIB, VMP_FENCE_NONE);
  rig_release(f, f->bytes - SLOT, SLOT, VMP_FENCE_NONE);
  rig_check(f);
}

VTEST_F(Backing, AChunkThatFitsNowhereIsResizedOnlyWithEffort, rig) {
  vmp_backing_options options = rig_options(8 * MIB);
  rig_open(f, 8 * MIB, 8 * MIB + 2 * SLOT, &options);
  VASSERT_NO_FAILURE();
  VASSERT_UINT_EQ(vmp_backing_map_ahead(f->backing, f->base, 8 * MIB, 8 * MIB), 8 * MIB);
  // Two slots are left in the reservation: four don't fit.
  VEXPECT_STATUS(rig_claim(f, 8 * MIB, 4 * MIB, 0, NULL), VMP_ERROR_FRAGMENTED);
  rig_check(f);
  vmp_fence fence;
  VASSERT_OK(f->ops.claim(f->ops.self, f->base + 8 * MIB, 4 * MIB, 0, VMP_EFFORT_RESIZE, &fence));
  VEXPECT_UINT_EQ(rig_stats(f).takes_resized, 1);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 4 * MIB);
  rig_check(f);
  rig_release(f, 8 * MIB, 4 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, TheHardLimitHoldsAndTheSoftLimitPrefersParkedMemory, rig) {
  vmp_backing_options options = rig_options(SLOT);
  options.hard_limit_bytes = 16 * MIB;
  options.soft_limit_bytes = 8 * MIB;
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
  VASSERT_OK(rig_claim(f, 32 * MIB, 2 * MIB, 0, NULL));
  VASSERT_OK(rig_claim(f, 34 * MIB, 2 * MIB, 0, NULL));  // above the soft limit: taken, not made
  VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 4);
  VEXPECT_UINT_EQ(rig_stats(f).takes, 2);
  VASSERT_OK(rig_claim(f, 64 * MIB, 12 * MIB, 0, NULL));  // 2 parked, then 4 new ones up to the hard limit
  VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 8);
  VEXPECT_STATUS(rig_claim(f, 128 * MIB, 2 * MIB, 0, NULL), VMP_ERROR_LIMIT);
  rig_release(f, 32 * MIB, 2 * MIB, VMP_FENCE_NONE);
  VEXPECT_STATUS(rig_claim(f, 128 * MIB, 4 * MIB, 0, NULL), VMP_ERROR_LIMIT);  // one is parked, the second is too many
  rig_check(f);
  rig_release(f, 34 * MIB, 2 * MIB, VMP_FENCE_NONE);
  rig_release(f, 64 * MIB, 12 * MIB, VMP_FENCE_NONE);
}

// Effort READY: new memory under the limits, beyond them what the stream may use at once, and nothing else.
VTEST_F(Backing, EffortReadyWaitsForNothing, rig) {
  vmp_backing_options options = rig_options(SLOT);
  options.soft_limit_bytes = 8 * MIB;
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_cu_stream one = rig_stream(f);
  vmp_stream_index i1 = vmp_clock_stream(f->clock, one), i2 = vmp_clock_stream(f->clock, rig_stream(f));
  VASSERT_OK(rig_claim(f, 0, 4 * MIB, i1, NULL));
  VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, one, vmp_backing_address(f->backing, f->base), 4 * MIB, true), 0);
  rig_release(f, 0, 4 * MIB, vmp_clock_fence(f->clock, i1));
  uint64_t at = f->base + 32 * MIB;
  vmp_fence fence = VMP_FENCE_NONE;
  VASSERT_OK(f->ops.claim(f->ops.self, at, 4 * MIB, i2, VMP_EFFORT_READY, &fence));
  VEXPECT_UINT_EQ(rig_stats(f).takes, 0);
  VEXPECT_STATUS(f->ops.claim(f->ops.self, at + 4 * MIB, 2 * MIB, i2, VMP_EFFORT_READY, &fence),
                 VMP_ERROR_OUT_OF_MEMORY);
  VASSERT_OK(f->ops.claim(f->ops.self, at + 4 * MIB, 2 * MIB, i1, VMP_EFFORT_READY, &fence));  // its own
  VEXPECT_UINT_EQ(rig_stats(f).takes, 1);
  VASSERT_OK(vmp_clock_wait(f->clock, vmp_backing_pending(f->backing), UINT64_MAX));
  VASSERT_OK(f->ops.claim(f->ops.self, at + 6 * MIB, 2 * MIB, i2, VMP_EFFORT_READY, &fence));  // complete
  VEXPECT_TRUE(vmp_fence_is_none(fence));
  VEXPECT_UINT_EQ(rig_stats(f).takes, 2);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 8 * MIB);
  rig_check(f);
  rig_release(f, 32 * MIB, 4 * MIB, VMP_FENCE_NONE);
  rig_release(f, 36 * MIB, 2 * MIB, VMP_FENCE_NONE);
  rig_release(f, 38 * MIB, 2 * MIB, VMP_FENCE_NONE);
}

// Beyond the soft limit parked memory behind a wait comes before new memory; so it does when the pool prefers it.
VTEST_F(Backing, ParkedMemoryBehindAWaitComesBeforeGrowthBeyondALimit, rig) {
  for (int preferred = 0; preferred < 2; preferred++) {
    vmp_backing_options options = rig_options(SLOT);
    if (preferred == 0) options.soft_limit_bytes = 4 * MIB;
    rig_open(f, GIB, GIB, &options);
    VASSERT_NO_FAILURE();
    vmp_cu_stream one = rig_stream(f);
    vmp_stream_index i1 = vmp_clock_stream(f->clock, one), i2 = vmp_clock_stream(f->clock, rig_stream(f));
    VASSERT_OK(rig_claim(f, 0, 4 * MIB, i1, NULL));
    VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, one, vmp_backing_address(f->backing, f->base), 4 * MIB, true), 0);
    rig_release(f, 0, 4 * MIB, vmp_clock_fence(f->clock, i1));
    vmp_backing_prefer_parked(f->backing, preferred == 1);
    vmp_fence fence = VMP_FENCE_NONE;
    VASSERT_OK(rig_claim(f, 32 * MIB, 6 * MIB, i2, &fence));
    VEXPECT_UINT_EQ(fence.streams, UINT64_C(1) << i1);
    VEXPECT_UINT_EQ(rig_stats(f).takes, 2);
    VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 6 * MIB);
    vmp_backing_prefer_parked(f->backing, false);
    VEXPECT_OK(vmp_clock_order(f->clock, one, fence));
    rig_release(f, 32 * MIB, 6 * MIB, VMP_FENCE_NONE);
    VEXPECT_OK(vmp_clock_wait(f->clock, vmp_backing_pending(f->backing), UINT64_MAX));
    rig_check(f);
    rig_close(f);
    *f = (rig){0};
  }
}

VTEST_F(Backing, ParkedMemoryComesFromTheSmallestFreeRangeFirst, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 20 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 20 * MIB, 0, NULL));
  rig_release(f, 0, 20 * MIB, VMP_FENCE_NONE);
  // Live: slots 2 and 4. Free ranges: [0,2), [3,4), [5,10).
  VASSERT_OK(rig_claim(f, 4 * MIB, SLOT, 0, NULL));
  VASSERT_OK(rig_claim(f, 8 * MIB, SLOT, 0, NULL));
  VASSERT_OK(rig_claim(f, 64 * MIB, SLOT, 0, NULL));
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base + 6 * MIB, SLOT, 0).blocked);  // slot 3 was taken
  VASSERT_OK(rig_claim(f, 128 * MIB, 2 * SLOT, 0, NULL));
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base, SLOT, 0).blocked);
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base + 2 * MIB, SLOT, 0).blocked);
  VEXPECT_FALSE(f->ops.cost(f->ops.self, f->base + 10 * MIB, 10 * MIB, 0).blocked);
  rig_release(f, 4 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(f, 8 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(f, 64 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(f, 128 * MIB, 2 * SLOT, VMP_FENCE_NONE);
}

VTEST_F(Backing, TrimGivesBackWhatIsCompleteAndSaysWhatStays, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_cu_stream stream = rig_stream(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  VASSERT_OK(rig_claim(f, 0, 20 * MIB, index, NULL));
  VASSERT_INT_EQ(vmp_host_touch(f->driver, 0, stream, vmp_backing_address(f->backing, f->base), 4 * MIB, true), 0);
  rig_release(f, 0, 4 * MIB, vmp_clock_fence(f->clock, index));  // pending
  rig_release(f, 8 * MIB, 12 * MIB, VMP_FENCE_NONE);             // complete; slots 2 and 3 were never released
  VEXPECT_UINT_EQ(vmp_backing_pending_bytes(f->backing), 4 * MIB);
  vmp_backing_trim_report report;
  VASSERT_OK(vmp_backing_trim(f->backing, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 12 * MIB);
  VEXPECT_UINT_EQ(report.kept_pending_bytes, 4 * MIB);
  VEXPECT_UINT_EQ(report.kept_live_bytes, 4 * MIB);
  VEXPECT_UINT_EQ(report.kept_other_bytes, 0);
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_unmap), 1);
  rig_check(f);
  VEXPECT_OK(vmp_clock_wait(f->clock, vmp_backing_pending(f->backing), UINT64_MAX));
  VASSERT_OK(vmp_backing_trim(f->backing, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 4 * MIB);
  VASSERT_OK(vmp_backing_trim(f->backing, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 0);
  rig_release(f, 4 * MIB, 4 * MIB, VMP_FENCE_NONE);
  VASSERT_OK(vmp_backing_trim(f->backing, SLOT, &report));
  VEXPECT_UINT_EQ(report.released_bytes, SLOT);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, SLOT);
  rig_check(f);
}

VTEST_F(Backing, PeersGetAccessInTheSameCall, rig) {
  static const int peers[] = {1};
  vmp_backing_options options = rig_options(SLOT);
  options.peers = peers;
  options.num_peers = 1;
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));
  VEXPECT_UINT_EQ(rig_calls(f, VMP_CALL_mem_set_access), 1);
  for (int device = 0; device < 2; device++) {
    unsigned long long flags = 0;
    vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, device};
    VEXPECT_INT_EQ(
        vmp_drv_mem_get_access(f->driver, &flags, &location, vmp_backing_address(f->backing, f->base + 6 * MIB)), 0);
    VEXPECT_UINT_EQ(flags, VMP_CU_ACCESS_READWRITE);
  }
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
}

VTEST_F(Backing, AddressesAndOffsetsAgreeAndKeepAlignment, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  uint64_t offset = 0, bytes = 0, back = 0;
  VASSERT_OK(vmp_backing_reserve(f->backing, 512 * MIB, 512 * MIB, &offset, &bytes));
  VEXPECT_UINT_GT(offset, f->base + f->bytes);  // a hole between them
  uint64_t starts[] = {f->base, offset, f->base + f->bytes - 1, offset + bytes - 1};
  for (size_t i = 0; i < 4; i++) {
    uint64_t address = vmp_backing_address(f->backing, starts[i]);
    VEXPECT_UINT_EQ(address % VMP_OFFSET_CONGRUENCE, starts[i] % VMP_OFFSET_CONGRUENCE);
    VEXPECT_TRUE(vmp_backing_offset(f->backing, address, &back));
    VEXPECT_UINT_EQ(back, starts[i]);
  }
  VEXPECT_FALSE(vmp_backing_offset(f->backing, 4096, &back));
  VASSERT_OK(f->ops.claim(f->ops.self, offset, 6 * MIB, 0, VMP_EFFORT_NORMAL, &(vmp_fence){0, 0}));
  (void)f->ops.release(f->ops.self, offset, 6 * MIB, VMP_FENCE_NONE);
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base + f->bytes, SLOT, 0).blocked);
  rig_check(f);
}

VTEST_F(Backing, ARefusedReservationIsHalvedAndThenAnErrorOfItsOwn, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_host_fault refuse = {VMP_CALL_mem_address_reserve, 1, VMP_CU_OUT_OF_MEMORY, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &refuse));
  uint64_t offset = 0, bytes = 0;
  VASSERT_OK(vmp_backing_reserve(f->backing, 8 * GIB, GIB, &offset, &bytes));
  VEXPECT_UINT_EQ(bytes, 4 * GIB);
  refuse.from_then_on = true;
  VASSERT_TRUE(vmp_host_inject(f->driver, &refuse));
  VEXPECT_STATUS(vmp_backing_reserve(f->backing, 8 * GIB, GIB, &offset, &bytes), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "address space");
  vmp_host_lift(f->driver);
  rig_check(f);
}

VTEST_F(Backing, NotReadyIsTriedAgainABoundedNumberOfTimes, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, GIB, &options);
  VASSERT_NO_FAILURE();
  for (uint64_t nth = 1; nth <= 3; nth++) {
    vmp_host_fault busy = {VMP_CALL_mem_set_access, nth, VMP_CU_NOT_READY, false};
    VASSERT_TRUE(vmp_host_inject(f->driver, &busy));
  }
  VASSERT_OK(rig_claim(f, 0, SLOT, 0, NULL));
  vmp_host_lift(f->driver);
  vmp_host_fault forever = {VMP_CALL_mem_set_access, 1, VMP_CU_NOT_READY, true};
  VASSERT_TRUE(vmp_host_inject(f->driver, &forever));
  VEXPECT_STATUS(rig_claim(f, SLOT, SLOT, 0, NULL), VMP_ERROR_DRIVER);
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, VMP_CU_NOT_READY);
  vmp_host_lift(f->driver);
  rig_check(f);
  rig_release(f, 0, SLOT, VMP_FENCE_NONE);
}
