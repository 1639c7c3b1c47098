// mid_fence_test.c: who waits for whom, blocked slots, and changes of the mapping under mid's feet.
#include "tests/unit/mid_rig.h"

// ---- fences ----
VTEST_F(MidFence, AStreamNeverWaitsForItself, rig) {
  uint64_t a = take_placed(f, 4 * MIB, 1).offset;
  (void)take(f, MIB);
  give_on(f, a, 1, 5);
  vmp_placed placed = take_placed(f, 4 * MIB, 1);
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_UINT_EQ(placed.fence.streams, 2);  // for those who deal it out to others
  VEXPECT_UINT_EQ(placed.fence.sequence, 5);
}

VTEST_F(MidFence, AnotherStreamWaits, rig) {
  uint64_t a = take_placed(f, 4 * MIB, 1).offset;
  (void)take(f, MIB);
  give_on(f, a, 1, 5);
  vmp_placed placed = take_placed(f, 4 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(placed.after.sequence, 5);
}

VTEST_F(MidFence, CompleteAndOrderedMemoryNeedsNoWait, rig) {
  uint64_t a = take_placed(f, 4 * MIB, 1).offset;
  (void)take(f, MIB);
  give_on(f, a, 1, 5);
  vmp_fake_complete(f->fake, 1, 5);
  VEXPECT_TRUE(vmp_fence_is_none(take_placed(f, 4 * MIB, 2).after));
  give_on(f, a, 1, 8);
  vmp_fake_order(f->fake, 3, (vmp_fence){2, 8});
  VEXPECT_TRUE(vmp_fence_is_none(take_placed(f, 4 * MIB, 3).after));
  give_on(f, a, 3, 9);
}

// A place without a wait is better than a better fit with one.
VTEST_F(MidFence, NoWaitBeforeBestFit, rig) {
  uint64_t a = take(f, 4 * MIB), w1 = take(f, MIB), b = take(f, 8 * MIB), w2 = take(f, MIB);
  (void)w1, (void)w2;
  give_on(f, a, 1, 5);
  give_on(f, b, 2, 6);
  vmp_placed placed = take_placed(f, 4 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, b);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// What a request may say of waits: that there must be none, or that they don't matter.
VTEST_F(MidFence, ARequestMayRuleWaitsOut, rig) {
  uint64_t a = take(f, 4 * MIB), w1 = take(f, MIB), b = take(f, 8 * MIB), w2 = take(f, MIB);
  (void)w1, (void)w2;
  give_on(f, a, 1, 5);
  give_on(f, b, 2, 6);
  vmp_request request = request_of(4 * MIB, 3);
  request.wait = VMP_WAIT_NEVER;
  request.effort = VMP_EFFORT_MAPPED;
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(stats_of(f).blocks, 2);
  request.effort = VMP_EFFORT_READY;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));  // new memory, at other addresses
  VEXPECT_TRUE(placed.offset != a && placed.offset != b);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  request.stream = 2;
  request.effort = VMP_EFFORT_MAPPED;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));  // what it has freed itself
  VEXPECT_UINT_EQ(placed.offset, b);
}

VTEST_F(MidFence, AReadyPartInTheMiddleIsFound, rig) {
  uint64_t blocks[3];
  for (int i = 0; i < 3; i++) blocks[i] = take(f, 4 * MIB);
  (void)take(f, 512);
  give_on(f, blocks[0], 1, 1);
  give_on(f, blocks[1], 2, 2);
  give_on(f, blocks[2], 1, 3);
  vmp_request request = request_of(4 * MIB, 2);
  request.wait = VMP_WAIT_NEVER;
  request.effort = VMP_EFFORT_MAPPED;
  vmp_placed placed;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, blocks[1]);
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
}

VTEST_F(MidFence, ARequestMayNotMindWaits, rig) {
  uint64_t a = take(f, 4 * MIB), w1 = take(f, MIB), b = take(f, 8 * MIB), w2 = take(f, MIB);
  (void)w1, (void)w2;
  give_on(f, a, 1, 5);
  give_on(f, b, 2, 6);
  vmp_request request = request_of(4 * MIB, 2);
  request.wait = VMP_WAIT_ANY;
  vmp_placed placed;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, a);  // the best fit
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(placed.after.sequence, 5);
}

// Neighbours freed by two streams: one extent and one run, but two parts. Each stream finds its own without a wait,
// also where its part is neither at the low nor at the high end.
VTEST_F(MidFence, UnlikeNeighboursStaySeparate, rig) {
  uint64_t blocks[4];
  for (int i = 0; i < 4; i++) blocks[i] = take(f, 4 * MIB);
  (void)take(f, 512);
  give_on(f, blocks[0], 1, 1);
  give_on(f, blocks[1], 2, 2);
  give_on(f, blocks[2], 3, 3);
  give_on(f, blocks[3], 1, 4);
  vmp_mid_stats stats = stats_of(f);
  VEXPECT_UINT_EQ(stats.extents, 2);
  VEXPECT_UINT_EQ(stats.largest_run_bytes, 16 * MIB);
  VEXPECT_UINT_EQ(stats.parts, 6);  // behind the wall are two: the mapped rest of a slot, and what is bare
  vmp_placed placed = take_placed(f, 4 * MIB, 3);
  VEXPECT_UINT_EQ(placed.offset, blocks[2]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  placed = take_placed(f, 3 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, blocks[1] + MIB);  // at the high end, beside the block
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  placed = take_placed(f, 4 * MIB, 1);
  VEXPECT_TRUE(placed.offset == blocks[0] || placed.offset == blocks[3]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

VTEST_F(MidFence, LikeNeighboursJoinWhateverTheirSequence, rig) {
  uint64_t a = take(f, 4 * MIB), b = take(f, 4 * MIB);
  (void)take(f, 512);
  give_on(f, a, 1, 1);
  give_on(f, b, 1, 9);
  VEXPECT_UINT_EQ(stats_of(f).parts, 3);
  vmp_placed placed = take_placed(f, 2 * MIB, 2);
  VEXPECT_UINT_EQ(placed.after.sequence, 9);  // the later one, for the whole part
}

// A request that needs several parts gets them, and waits for all others.
VTEST_F(MidFence, ARequestMayNeedSeveralParts, rig) {
  uint64_t a = take(f, 4 * MIB), b = take(f, 4 * MIB), c = take(f, 4 * MIB);
  (void)take(f, 512);
  give_on(f, a, 1, 1);
  give_on(f, b, 2, 2);
  give_on(f, c, 3, 3);
  uint64_t mapped = vmp_fake_mapped_slots(f->fake);
  vmp_placed placed = take_placed(f, 12 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_UINT_EQ(placed.after.streams, 2 | 8);
  VEXPECT_UINT_EQ(placed.after.sequence, 3);
  VEXPECT_UINT_EQ(placed.fence.streams, 2 | 4 | 8);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), mapped);
}

// Two neighbouring parts that a stream may both use serve it together: its own and a complete one.
VTEST_F(MidFence, PartsWithoutAWaitAreUsedTogether, rig) {
  uint64_t a = take(f, 4 * MIB), b = take(f, 4 * MIB), c = take(f, 4 * MIB), d = take(f, 4 * MIB);
  (void)take(f, 512);
  give_on(f, a, 1, 1);
  give_on(f, b, 2, 2);
  give_on(f, c, 3, 3);
  give_on(f, d, 1, 4);
  vmp_fake_complete(f->fake, 3, 3);
  vmp_placed placed = take_placed(f, 8 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, b);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// Complete parts join when a placement that would have to wait meets them.
VTEST_F(MidFence, CompletePartsJoin, rig) {
  static const vmp_stream_index streams[6] = {5, 1, 2, 1, 2, 6};
  uint64_t blocks[6];
  for (int i = 0; i < 6; i++) blocks[i] = take(f, 4 * MIB);
  (void)take(f, 512);
  for (uint64_t i = 0; i < 6; i++) give_on(f, blocks[i], streams[i], i + 1);
  VEXPECT_UINT_EQ(stats_of(f).parts, 8);
  vmp_fake_complete(f->fake, 1, 6);
  vmp_fake_complete(f->fake, 2, 6);
  vmp_placed placed = take_placed(f, 8 * MIB, 3);
  VEXPECT_UINT_EQ(placed.offset, blocks[1]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_UINT_EQ(stats_of(f).parts, 5);  // the first, the rest of the middle, the last, and two behind the wall
}

// More parts in one run than a placement looks at: sound, if not always the best.
VTEST_F(MidFence, ManyPartsInOneRun, rig) {
  uint64_t blocks[100];
  for (int i = 0; i < 100; i++) blocks[i] = take(f, 64 * KIB);
  for (uint64_t i = 0; i < 100; i++) give_on(f, blocks[i], (vmp_stream_index)(1 + i % 3), i + 1);
  rig_check(f);
  vmp_placed placed = take_placed(f, 64 * KIB * 100, 1);
  VEXPECT_UINT_EQ(placed.offset, 0);
  VEXPECT_UINT_EQ(placed.after.streams, 4 | 8);
  VEXPECT_UINT_EQ(placed.after.sequence, 99);
}

VTEST_F(MidFence, UnmappedMemoryNeedsNoWait, rig) {
  uint64_t a = take(f, 8 * MIB);
  give_on(f, a, 1, 5);
  vmp_fake_unmap(f->fake, a, 8 * MIB);
  vmp_placed placed = take_placed(f, 8 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_TRUE(vmp_fence_is_none(placed.fence));
}

VTEST_F(MidFence, AMovedChunkIsWaitedFor, rig) {
  (void)take(f, 2 * MIB);
  vmp_fake_map(f->fake, 2 * MIB, 4 * MIB);
  vmp_fake_moved(f->fake, 2 * MIB, (vmp_fence){2 | 4, 7});
  vmp_placed placed = take_placed(f, 4 * MIB, 1);
  VEXPECT_UINT_EQ(placed.offset, 2 * MIB);
  VEXPECT_UINT_EQ(placed.after.streams, 4);
  VEXPECT_UINT_EQ(placed.fence.streams, 2 | 4);  // the taker's own work of before the move is in it
}

VTEST_F(MidFence, AMovedChunkIsAvoided, rig) {
  uint64_t a = take(f, 2 * MIB), w1 = take(f, 2 * MIB), b = take(f, 2 * MIB), w2 = take(f, 2 * MIB);
  (void)w1, (void)w2;
  give(f, a);
  give(f, b);
  vmp_fake_moved(f->fake, a, (vmp_fence){4, 7});
  VEXPECT_UINT_EQ(take_placed(f, MIB, 1).offset, b);
}

// ---- blocked slots ----
VTEST_F(MidBlocked, RetiringSlotsAreNoPlace, rig) {
  (void)take(f, 2 * MIB);
  vmp_fake_block(f->fake, 1 * SLOT, SLOT, true);
  vmp_fake_block(f->fake, 127 * SLOT, SLOT, true);  // both ends of the extent
  vmp_fake_block(f->fake, 5 * SLOT, SLOT, true);
  VEXPECT_UINT_EQ(take(f, 8 * MIB), 6 * SLOT);  // 2..4 is too small
  VEXPECT_UINT_EQ(take(f, 6 * MIB), 2 * SLOT);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 1);
}

// More blocked places than a search looks at: the largest extent is looked at in any case.
VTEST_F(MidBlocked, ManyBlockedPlacesHideNoOpenOne, rig) {
  uint64_t blocks[24];
  for (int i = 0; i < 24; i++) {
    blocks[i] = take(f, 4 * MIB);
    (void)take(f, 2 * MIB);
  }
  for (int i = 0; i < 24; i++) {
    give(f, blocks[i]);
    vmp_fake_unmap(f->fake, blocks[i], 4 * MIB);
    vmp_fake_block(f->fake, blocks[i], 4 * MIB, true);
  }
  VEXPECT_UINT_EQ(take(f, 4 * MIB), 144 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 1);
}

VTEST_F(MidBlocked, AnotherArenaRatherThanABlockedPlace, rig) {
  (void)take(f, 2 * MIB);
  vmp_fake_block(f->fake, 64 * SLOT, SLOT, true);
  VEXPECT_UINT_EQ(take(f, 200 * MIB), 256 * MIB);
}

VTEST_F(MidBlocked, OnlyBlockedPlacesAreBusyNotExhausted, rig) {
  (void)take(f, 2 * MIB);
  f->arenas.end = 256 * MIB;
  vmp_fake_block(f->fake, 64 * SLOT, SLOT, true);
  vmp_request request = request_of(200 * MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
  vmp_fake_block(f->fake, 64 * SLOT, SLOT, false);
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
}

VTEST_F(MidBlocked, ASealedSlotIsNoRun, rig) {
  uint64_t a = take(f, MIB);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, MIB);
  vmp_fake_block(f->fake, 0, SLOT, true);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 0);
  give(f, a);  // freed inside a sealed slot: still no run
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 0);
  rig_check(f);
  vmp_fake_block(f->fake, 0, SLOT, false);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 2 * MIB);
}

// ---- changes of the mapping ----
VTEST_F(MidMapping, FollowsTakenAndMappedChunks, rig) {
  uint64_t a = take(f, 16 * MIB);
  (void)take(f, 512);
  give(f, a);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 16 * MIB);
  vmp_fake_unmap(f->fake, 6 * MIB, SLOT);
  vmp_mid_stats stats = stats_of(f);
  VEXPECT_UINT_EQ(stats.runs, 3);
  VEXPECT_UINT_EQ(stats.largest_run_bytes, 8 * MIB);
  VEXPECT_UINT_EQ(stats.free_mapped_bytes, 14 * MIB + 2 * MIB - 512);
  vmp_fake_map(f->fake, 6 * MIB, SLOT);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 16 * MIB);
  vmp_fake_unmap(f->fake, 0, SLOT);
  vmp_fake_overflow_log(f->fake);  // "everything has changed"
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 14 * MIB);
  rig_check(f);
}

// A claim that isn't in the change log maps the free rest of its last slot: mid knows that by itself.
VTEST(MidMapping, TheRestOfASlotIsKnownToBeMapped) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 128, .silent_claims = true}, &(vmp_mid_options){.arena_bytes = 256 * MIB});
  (void)take(&f, 3 * MIB);
  VEXPECT_UINT_EQ(stats_of(&f).largest_run_bytes, MIB);
  rig_teardown(&f);
}

// Growth is rounded up to chunks of 8 slots; the surplus serves the next requests.
VTEST(MidMapping, MemoryMappedAheadIsUsed) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 128, .chunk_slots = 8, .map_ahead = true},
            &(vmp_mid_options){.arena_bytes = 256 * MIB, .chunk_max_bytes = 16 * MIB});
  (void)take(&f, 3 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f.fake), 8);
  VEXPECT_UINT_EQ(take(&f, 13 * MIB), 3 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f.fake), 8);
  (void)take(&f, 512);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f.fake), 16);
  rig_teardown(&f);
}
