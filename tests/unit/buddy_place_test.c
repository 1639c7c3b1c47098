// buddy_place_test.c: which place buddy chooses, what it tells about fences, and what a failure leaves behind.
#include "tests/unit/buddy_rig.h"

// ---- mapped places first ----
VTEST_F(BuddyPlace, MappedPlaceInTheMiddleOfABlock, rig) {
  vmp_fake_map(f->fake, 320 * SLOT, 64 * SLOT);
  VEXPECT_UINT_EQ(take(f, 128 * MIB, 0), 320 * SLOT);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 64);
}

VTEST_F(BuddyPlace, FewestSlotsToMap, rig) {
  vmp_fake_map(f->fake, 64 * SLOT, 10 * SLOT);
  vmp_fake_map(f->fake, 200 * SLOT, 30 * SLOT);
  VEXPECT_UINT_EQ(take(f, 128 * MIB, 0), 192 * SLOT);  // 34 to map, against 54 and 64
}

VTEST_F(BuddyPlace, FewestChunksPinned, rig) {
  for (uint64_t i = 0; i < 4; i++) vmp_fake_map(f->fake, (64 + i) * SLOT, SLOT);  // four chunks
  vmp_fake_map(f->fake, 128 * SLOT, 4 * SLOT);                                    // one
  VEXPECT_UINT_EQ(take(f, 4 * SLOT, 0), 128 * SLOT);
}

VTEST_F(BuddyPlace, SmallestOrderThenLowestAddress, rig) {
  uint64_t a = take(f, SLOT, 0), b = take(f, SLOT, 0), c = take(f, SLOT, 0);
  (void)b;
  VEXPECT_UINT_EQ(take(f, 4 * SLOT, 0), 4 * SLOT);
  give(f, a, 0, 1);
  give(f, c, 0, 2);
  vmp_fake_unmap(f->fake, 0, SLOT);
  vmp_fake_unmap(f->fake, 2 * SLOT, SLOT);
  // Free now: slot 0 (order 0), 2..3 (order 1), larger ones.
  VEXPECT_UINT_EQ(take(f, SLOT, 0), 0);
  VEXPECT_UINT_EQ(take(f, SLOT, 0), 2 * SLOT);
}

VTEST_F(BuddyPlace, SmallestOrderThoughItLiesHigher, rig) {
  uint64_t blocks[6];
  for (int i = 0; i < 6; i++) blocks[i] = take(f, SLOT, 0);
  give(f, blocks[2], 0, 1);
  give(f, blocks[3], 0, 2);
  give(f, blocks[5], 0, 3);
  vmp_fake_unmap(f->fake, 2 * SLOT, 2 * SLOT);
  vmp_fake_unmap(f->fake, 5 * SLOT, SLOT);
  VEXPECT_UINT_EQ(take(f, SLOT, 0), 5 * SLOT);  // not 2, which would split a pair
}

VTEST_F(BuddyPlace, LookFindsThePlaceAndItsCost, rig) {
  uint64_t offset;
  vmp_cost cost;
  vmp_request request = request_of(4 * SLOT, 0);
  vmp_fake_map(f->fake, 100 * SLOT, 3 * SLOT);
  VASSERT_TRUE(vmp_buddy_look(f->buddy, &request, &offset, &cost));
  VEXPECT_UINT_EQ(offset, 100 * SLOT);
  VEXPECT_UINT_EQ(cost.slots_to_map, 1);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 0);
  expect_layout(f, "free 0+512");
  request.bytes = 2 * GIB;
  VEXPECT_FALSE(vmp_buddy_look(f->buddy, &request, &offset, &cost));
}

VTEST_F(BuddyPlace, AFreedBlockIsUsedAgainWithoutMapping, rig) {
  uint64_t a = take(f, 70 * MIB, 0);
  (void)take(f, 70 * MIB, 0);
  give(f, a, 0, 1);
  for (uint64_t i = 2; i < 100; i++) {
    uint64_t b = take(f, 70 * MIB, 0);
    VEXPECT_UINT_EQ(b, a);
    give(f, b, 0, i);
  }
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->slots_mapped, 70);
}

VTEST_F(BuddyPlace, EffortMappedMapsNothing, rig) {
  vmp_request request = {.bytes = 4 * SLOT, .alignment = 512, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  vmp_fake_map(f->fake, 77 * SLOT, 7 * SLOT);  // 80..83 is the only aligned place
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, 80 * SLOT);
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 7);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 1);  // refused without asking
}

// ---- blocked slots ----
VTEST_F(BuddyPlace, BlockedSlotsAreAvoided, rig) {
  vmp_fake_block(f->fake, 3 * SLOT, SLOT, true);
  VEXPECT_UINT_EQ(take(f, 2 * SLOT, 0), 0);
  VEXPECT_UINT_EQ(take(f, 2 * SLOT, 0), 4 * SLOT);
  VEXPECT_UINT_EQ(take(f, 128 * MIB, 0), 64 * SLOT);
}

// More blocked places of the right order than a search looks at: it goes on until it finds an open one.
VTEST_F(BuddyPlace, ManyBlockedPlacesHideNoOpenOne, rig) {
  for (int i = 0; i < 512; i++) (void)take(f, SLOT, 0);
  for (uint64_t i = 0; i < 512; i += 2) give(f, i * SLOT, 0, i);
  vmp_fake_unmap(f->fake, 0, SLOT);
  for (uint64_t i = 0; i < 400; i += 2) vmp_fake_block(f->fake, i * SLOT, SLOT, true);
  VEXPECT_UINT_EQ(take(f, SLOT, 0), 400 * SLOT);
}

VTEST_F(BuddyPlace, OnlyBlockedPlacesAreBusyNotExhausted, rig) {
  vmp_fake_block(f->fake, 10 * SLOT, SLOT, true);
  vmp_fake_block(f->fake, 300 * SLOT, SLOT, true);
  vmp_request request = request_of(512 * MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  expect_layout(f, "free 0+512");
  vmp_fake_block(f->fake, 300 * SLOT, SLOT, false);
  VEXPECT_UINT_EQ(take(f, 512 * MIB, 0), 512 * MIB);
}

// ---- fences ----
static vmp_placed take_placed(rig *f, uint64_t bytes, vmp_stream_index stream) {
  vmp_request request = request_of(bytes, stream);
  vmp_placed placed = {0};
  VEXPECT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  return placed;
}

VTEST_F(BuddyFence, AStreamNeverWaitsForItself, rig) {
  give(f, take(f, 128 * MIB, 1), 1, 5);
  vmp_placed placed = take_placed(f, 128 * MIB, 1);
  VEXPECT_UINT_EQ(placed.offset, 0);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_UINT_EQ(placed.fence.streams, 2);  // for those who deal it out to others
}

// Another stream: new memory first, since that needs no wait; then the block, with a wait.
VTEST_F(BuddyFence, AnotherStreamWaitsOnlyWhereItMust, rig) {
  (void)take(f, 512 * MIB, 1);
  uint64_t a = take(f, 256 * MIB, 1);
  give(f, a, 1, 5);
  vmp_placed first = take_placed(f, 256 * MIB, 2);
  VEXPECT_UINT_EQ(first.offset, 768 * MIB);
  VEXPECT_TRUE(vmp_fence_is_none(first.after));
  vmp_placed second = take_placed(f, 256 * MIB, 2);
  VEXPECT_UINT_EQ(second.offset, a);
  VEXPECT_UINT_EQ(second.after.streams, 2);
  VEXPECT_UINT_EQ(second.after.sequence, 5);
  VEXPECT_UINT_EQ(second.fence.streams, 2);
}

VTEST_F(BuddyFence, ARequestMayRuleWaitsOut, rig) {
  (void)take(f, 512 * MIB, 1);
  uint64_t a = take(f, 256 * MIB, 1);
  give(f, a, 1, 5);
  vmp_request request = request_of(256 * MIB, 2);
  request.wait = VMP_WAIT_NEVER;
  vmp_placed placed;
  request.effort = VMP_EFFORT_MAPPED;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  request.effort = VMP_EFFORT_READY;
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, 768 * MIB);
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  request.stream = 1;
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, a);
}

// The mapped place comes first, though it is waited for.
VTEST_F(BuddyFence, ARequestMayNotMindWaits, rig) {
  (void)take(f, 512 * MIB, 1);
  uint64_t a = take(f, 256 * MIB, 1);
  give(f, a, 1, 5);
  vmp_request request = request_of(256 * MIB, 2);
  request.wait = VMP_WAIT_ANY;
  vmp_placed placed;
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
}

VTEST_F(BuddyFence, CompleteMemoryNeedsNoWait, rig) {
  give(f, take(f, 512 * MIB, 1), 1, 5);
  (void)take(f, 512 * MIB, 1);
  vmp_fake_complete(f->fake, 1, 5);
  vmp_placed placed = take_placed(f, 512 * MIB, 2);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

VTEST_F(BuddyFence, UnmappedMemoryNeedsNoWait, rig) {
  give(f, take(f, GIB, 1), 1, 5);
  vmp_fake_unmap(f->fake, 0, GIB);
  vmp_placed placed = take_placed(f, GIB, 2);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_TRUE(vmp_fence_is_none(placed.fence));
}

VTEST_F(BuddyFence, AMovedChunkIsWaitedFor, rig) {
  vmp_fake_map(f->fake, 0, 4 * SLOT);
  vmp_fake_moved(f->fake, 0, (vmp_fence){4, 7});
  vmp_placed placed = take_placed(f, GIB, 1);
  VEXPECT_UINT_EQ(placed.after.streams, 4);
  VEXPECT_UINT_EQ(placed.after.sequence, 7);
  give(f, 0, 1, 8);
  placed = take_placed(f, GIB, 2);  // stream 2's own work of before the move is in the fence, but not waited for
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(placed.fence.streams, 6);
}

// Two halves freed by different streams stay apart, so that each finds its own without a wait.
VTEST_F(BuddyFence, UnlikeHalvesStayApart, rig) {
  uint64_t a = take(f, 512 * MIB, 1), b = take(f, 512 * MIB, 2);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  expect_layout(f, "free 0+256, free 256+256");
  vmp_placed placed = take_placed(f, 512 * MIB, 2);
  VEXPECT_UINT_EQ(placed.offset, b);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  placed = take_placed(f, 512 * MIB, 1);
  VEXPECT_UINT_EQ(placed.offset, a);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// A stream that is only named in a fence counts, and so does one that has only allocated.
VTEST_F(BuddyFence, EveryStreamThatWasSeenKeepsHalvesApart, rig) {
  uint64_t a = take(f, 512 * MIB, 1), b = take(f, 512 * MIB, 1);
  give(f, a, 1, 5);
  give(f, b, 2, 6);  // used by stream 2, as vmp_record_use says
  expect_layout(f, "free 0+256, free 256+256");
}

VTEST_F(BuddyFence, AStreamThatOnlyAllocatedCounts, rig) {
  vmp_buddy_free(f->buddy, take(f, 256 * MIB, 2), VMP_FENCE_NONE);
  uint64_t a = take(f, 256 * MIB, 1);
  give(f, a, 1, 5);
  expect_layout(f, "free 0+128, free 128+128, free 256+256");  // stream 2 needn't wait for the other two
}

// Effort MAPPED doesn't merge by force: there may be new memory yet.
VTEST_F(BuddyFence, EffortMappedKeepsHalvesApart, rig) {
  uint64_t a = take(f, 512 * MIB, 1), b = take(f, 512 * MIB, 2);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  vmp_request request = {.bytes = GIB, .alignment = 512, .stream = 1, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_BUSY);
  expect_layout(f, "free 0+256, free 256+256");
}

// A request that needs both merges them, and waits for who must be waited for.
VTEST_F(BuddyFence, ARequestThatNeedsTheMergeGetsIt, rig) {
  uint64_t a = take(f, 512 * MIB, 1), b = take(f, 512 * MIB, 2);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  vmp_placed placed = take_placed(f, GIB, 1);
  VEXPECT_UINT_EQ(placed.offset, 0);
  VEXPECT_UINT_EQ(placed.after.streams, 4);
  VEXPECT_UINT_EQ(placed.fence.streams, 6);
}

VTEST_F(BuddyFence, HalvesMergeOnceTheirFencesAreComplete, rig) {
  uint64_t a = take(f, 256 * MIB, 1), b = take(f, 256 * MIB, 2);
  (void)take(f, 512 * MIB, 3);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  vmp_fake_complete(f->fake, 1, 5);
  vmp_fake_complete(f->fake, 2, 6);
  vmp_placed placed = take_placed(f, 512 * MIB, 3);
  VEXPECT_UINT_EQ(placed.offset, 0);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// There is an unmapped place, but what merging gives needs no mapping at all.
VTEST_F(BuddyFence, CompleteHalvesMergeBeforeNewMemoryIsMapped, rig) {
  uint64_t a = take(f, 256 * MIB, 1), b = take(f, 256 * MIB, 2);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  vmp_fake_complete(f->fake, 1, 5);
  vmp_fake_complete(f->fake, 2, 6);
  VEXPECT_UINT_EQ(take_placed(f, 512 * MIB, 3).offset, 0);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 256);
}

// ---- failures ----
static const vmp_status refusals[] = {VMP_ERROR_OUT_OF_MEMORY,      VMP_ERROR_LIMIT, VMP_ERROR_DRIVER, VMP_ERROR_BUSY,
                                      VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_STICKY};
static const char *refusal_name(const vmp_status *status) { return vmp_status_string(*status); }

VTEST_FP(BuddyFailure, ARefusedClaimChangesNothing, rig, vmp_status, refusals, refusal_name) {
  (void)take(f, 70 * MIB, 0);
  vmp_buddy_stats before = stats_of(f);
  vmp_fake_fail_claims(f->fake, 0, 100, *p);
  vmp_request request = request_of(7 * SLOT, 0);
  for (int i = 0; i < 100; i++) {
    vmp_placed placed;
    VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), *p);
  }
  vmp_buddy_stats after = stats_of(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  VEXPECT_FALSE(vmp_buddy_find(f->buddy, 100 * MIB, NULL, NULL, NULL));
  // No address was lost: all that is left can be had, slot by slot.
  for (int i = 0; i < 512 - 35; i++) (void)take(f, SLOT, 0);
  VEXPECT_UINT_EQ(stats_of(f).free_bytes, 0);
}

VTEST_F(BuddyFailure, FragmentedTriesAFreshPlaceWithRoom, rig) {
  (void)take(f, SLOT, 0);
  give(f, take(f, SLOT, 0), 0, 1);
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(f, 2 * SLOT, 0), 256 * SLOT);  // not slot 2: the largest block has most room around
  vmp_fake_fail_claims(f->fake, 0, 2, VMP_ERROR_FRAGMENTED);
  vmp_buddy_stats before = stats_of(f);
  vmp_request request = request_of(2 * SLOT, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_FRAGMENTED);
  vmp_buddy_stats after = stats_of(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
}

VTEST_F(BuddyFailure, AFreshPlaceIsUnmappedAndAnotherOne, rig) {
  (void)take(f, SLOT, 0);
  vmp_fake_map(f->fake, 256 * SLOT, SLOT);  // at the beginning of the largest block
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(take(f, 2 * SLOT, 0), 258 * SLOT);
}

VTEST_F(BuddyFailure, TheOnlyPlaceIsNotTriedTwice, rig) {
  vmp_fake_fail_claims(f->fake, 0, 2, VMP_ERROR_FRAGMENTED);
  vmp_request request = request_of(GIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_FRAGMENTED);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 1);
}

// In the last resort a fresh place is tried for lack of memory too; if that fails, lack of memory is the answer.
VTEST_F(BuddyFailure, LastResortTriesAFreshPlace, rig) {
  (void)take(f, SLOT, 0);
  vmp_request request = {.bytes = 2 * SLOT, .alignment = 512, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_OUT_OF_MEMORY);  // not yet
  request.effort = VMP_EFFORT_RESIZE;
  vmp_fake_fail_claims(f->fake, 0, 2, VMP_ERROR_LIMIT);
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_LIMIT);
  VEXPECT_STATUS(vmp_last_error()->status, VMP_ERROR_LIMIT);
  vmp_fake_fail_claims(f->fake, 0, 1, VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, 256 * SLOT);
}

// Fail every host allocation in turn, once and from then on, until nothing fails any more.
VTEST(BuddyFailure, EveryHostAllocationMayFail) {
  for (int forever = 0; forever < 2; forever++) {
    for (uint64_t n = 0;; n++) {
      VASSERT_UINT_LT(n, 100);
      rig f = {vmp_fake_create(&(vmp_fake_options){.slots = 512, .step_bytes = SLOT}), NULL};
      vmp_mem_fail_after(n, forever ? UINT64_MAX : 1);
      vmp_status status = vmp_buddy_create(&f.buddy, vmp_fake_ops(f.fake));
      bool added = status == VMP_OK && (status = vmp_buddy_add(f.buddy, 0, 512 * SLOT)) == VMP_OK;
      uint64_t blocks = 0;
      while (added && status == VMP_OK && blocks < 256) {
        vmp_request request = request_of(SLOT, 0);
        vmp_placed placed;
        status = vmp_buddy_alloc(f.buddy, &request, &placed);
        if (status == VMP_OK) blocks++;
      }
      uint64_t failures = vmp_mem_failures();
      VEXPECT_STATUS(status, failures == 0 ? VMP_OK : VMP_ERROR_HOST_OUT_OF_MEMORY);
      if (added) VEXPECT_UINT_EQ(stats_of(&f).block_bytes, blocks * SLOT);
      if (added) VEXPECT_UINT_EQ(vmp_fake_claims_out(f.fake), blocks);
      rig_teardown(&f);
      if (failures == 0) break;
    }
  }
}

VTEST_F(BuddyFailure, FreeNeedsNoHostMemory, rig) {
  uint64_t blocks[16];
  for (int i = 0; i < 16; i++) blocks[i] = take(f, 31 * SLOT, 0);
  vmp_mem_fail_after(0, UINT64_MAX);
  for (uint64_t i = 0; i < 16; i++) give(f, blocks[(i * 5) % 16], 0, i);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  expect_layout(f, "free 0+512");
}

// ---- calls in the middle of a claim ----
typedef struct middle {
  rig *f;
  uint64_t other, calls;
} middle;

static void take_another(void *context, uint64_t offset, uint64_t bytes) {
  middle *m = context;
  vmp_fake_during_claim(m->f->fake, NULL, NULL);
  m->other = take(m->f, 8 * SLOT, 0);
  VEXPECT_TRUE(m->other >= offset + bytes || m->other + 8 * SLOT <= offset);
  rig_check_buddy(m->f);
  m->calls++;
}

VTEST_F(BuddyFailure, OthersMayCallWhileAClaimRuns, rig) {
  middle m = {.f = f};
  vmp_fake_during_claim(f->fake, take_another, &m);
  uint64_t a = take(f, 8 * SLOT, 0);
  VEXPECT_UINT_EQ(m.calls, 1);
  give(f, m.other, 0, 1);
  give(f, a, 0, 2);
  expect_layout(f, "free 0+512");
}
