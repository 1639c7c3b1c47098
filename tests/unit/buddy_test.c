// buddy_test.c: splits, tails, merges, alignment, ranges, pieces and overflow, with values worked out by hand.
#include "tests/unit/buddy_rig.h"

// ---- the classic examples ----
// 1 GiB: 128 MiB are asked for. 1024 -> 512 + 512 -> 256 + 256 -> 128 + 128.
VTEST_F(Buddy, SplitsOneGibibyteFor128Mebibytes, rig) {
  expect_layout(f, "free 0+512");
  uint64_t a = take(f, 128 * MIB, 0);
  VEXPECT_UINT_EQ(a, 0);
  expect_layout(f, "block 0+64, free 64+64, free 128+128, free 256+256");
  vmp_buddy_stats stats = stats_of(f);
  VEXPECT_UINT_EQ(stats.free_by_order[6], 1);  // 128 MiB
  VEXPECT_UINT_EQ(stats.free_by_order[7], 1);  // 256 MiB
  VEXPECT_UINT_EQ(stats.free_by_order[8], 1);  // 512 MiB
  VEXPECT_UINT_EQ(stats.free_by_order[9], 0);
  VEXPECT_UINT_EQ(stats.block_bytes, 128 * MIB);
  VEXPECT_UINT_EQ(stats.free_bytes, 896 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 64);
  rig_check(f);
}

VTEST_F(Buddy, MergesBackToOneGibibyte, rig) {
  uint64_t a = take(f, 128 * MIB, 0);
  give(f, a, 0, 1);
  expect_layout(f, "free 0+512");
  VEXPECT_UINT_EQ(stats_of(f).free_by_order[9], 1);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 0);
}

// Buddies merge when the second half comes back, in whichever order.
VTEST_F(Buddy, MergesWhenBothHalvesAreFree, rig) {
  uint64_t block[8];
  for (int order = 0; order < 2; order++) {
    for (int i = 0; i < 8; i++) block[i] = take(f, 128 * MIB, 0);
    for (uint64_t i = 0; i < 8; i++) VEXPECT_UINT_EQ(block[i], i * 128 * MIB);
    expect_layout(f,
                  "block 0+64, block 64+64, block 128+64, block 192+64, block 256+64, block 320+64, block 384+64, "
                  "block 448+64");
    give(f, block[order == 0 ? 2 : 3], 0, 1);
    VEXPECT_UINT_EQ(stats_of(f).free_by_order[6], 1);
    give(f, block[order == 0 ? 3 : 2], 0, 2);
    VEXPECT_UINT_EQ(stats_of(f).free_by_order[6], 0);
    VEXPECT_UINT_EQ(stats_of(f).free_by_order[7], 1);
    // 64 + 128 slots beside it don't merge: 64..127 is no buddy of 128..255.
    give(f, block[1], 0, 3);
    expect_layout(f, "block 0+64, free 64+64, free 128+128, block 256+64, block 320+64, block 384+64, block 448+64");
    give(f, block[0], 0, 4);
    VEXPECT_UINT_EQ(stats_of(f).free_by_order[8], 1);
    for (int i = 4; i < 8; i++) give(f, block[i], 0, (uint64_t)i);
    expect_layout(f, "free 0+512");
  }
}

// 70 MiB are 35 slots of an order-6 block: 32 + 2 + 1. The tail 35..63 is 1 + 4 + 8 + 16, free at once.
VTEST_F(Buddy, SeventyMebibytesMapSeventyAndNot128, rig) {
  uint64_t a = take(f, 70 * MIB, 0);
  VEXPECT_UINT_EQ(a, 0);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 35);
  VEXPECT_UINT_EQ(vmp_fake_claimed_bytes(f->fake), 70 * MIB);
  expect_layout(f, "block 0+35, free 35+1, free 36+4, free 40+8, free 48+16, free 64+64, free 128+128, free 256+256");
  uint64_t start, bytes;
  bool piece;
  VASSERT_TRUE(vmp_buddy_find(f->buddy, 69 * MIB, &start, &bytes, &piece));
  VEXPECT_UINT_EQ(start, 0);
  VEXPECT_UINT_EQ(bytes, 70 * MIB);
  VEXPECT_FALSE(piece);
  VEXPECT_FALSE(vmp_buddy_find(f->buddy, 70 * MIB, &start, &bytes, &piece));
  // The tail is used by whoever fits into it.
  VEXPECT_UINT_EQ(take(f, 2 * MIB, 0), 70 * MIB);
  VEXPECT_UINT_EQ(take(f, 8 * MIB, 0), 72 * MIB);
  VEXPECT_UINT_EQ(take(f, 32 * MIB, 0), 96 * MIB);
  give(f, 96 * MIB, 0, 1);
  give(f, 70 * MIB, 0, 2);
  give(f, 0, 0, 3);
  expect_layout(f, "free 0+32, free 32+4, block 36+4, free 40+8, free 48+16, free 64+64, free 128+128, free 256+256");
  give(f, 72 * MIB, 0, 4);
  expect_layout(f, "free 0+512");
}

// 128 MiB after 70 MiB: the tail doesn't fit, the next whole block of the order does.
VTEST_F(Buddy, ATailIsNoPlaceForAWholeBlock, rig) {
  (void)take(f, 70 * MIB, 0);
  VEXPECT_UINT_EQ(take(f, 128 * MIB, 0), 128 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 35 + 64);
}

typedef struct tail {
  const char *name;
  uint64_t slots;
  const char *layout;  // of the first 16 slots and what follows
} tail;
static const tail tails[] = {
    {"one", 1, "block 0+1, free 1+1, free 2+2, free 4+4, free 8+8"},
    {"three", 3, "block 0+3, free 3+1, free 4+4, free 8+8"},
    {"five", 5, "block 0+5, free 5+1, free 6+2, free 8+8"},
    {"seven", 7, "block 0+7, free 7+1, free 8+8"},
    {"eleven", 11, "block 0+11, free 11+1, free 12+4"},
    {"thirteen", 13, "block 0+13, free 13+1, free 14+2"},
    {"fifteen", 15, "block 0+15, free 15+1"},
    {"sixteen", 16, "block 0+16"},
};
static const char *tail_name(const tail *t) { return t->name; }

VTEST_P(Buddy, TailsOf16Slots, tail, tails, tail_name) {
  rig f = {NULL, NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 16, .step_bytes = SLOT});
  VEXPECT_OK(vmp_buddy_add(f.buddy, 0, 16 * SLOT));
  VEXPECT_UINT_EQ(take(&f, p->slots * SLOT, 0), 0);
  expect_layout(&f, p->layout);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f.fake), p->slots);
  rig_check(&f);
  give(&f, 0, 0, 1);
  expect_layout(&f, "free 0+16");
  rig_teardown(&f);
}

VTEST_F(Buddy, OneByteTakesOneSlot, rig) {
  vmp_request request = {.bytes = 1, .alignment = 1, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.bytes, SLOT);
  VEXPECT_UINT_EQ(placed.offset, 0);
}

// ---- ranges ----
// 13 slots from 0: 8 + 4 + 1. 11 slots from 5: 1 + 2 + 8 (5, 6..7, 8..15).
VTEST(BuddyRanges, NoPowersOfTwo) {
  rig f = {NULL, NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 64, .step_bytes = SLOT});
  VEXPECT_OK(vmp_buddy_add(f.buddy, 0, 13 * SLOT));
  expect_layout(&f, "free 0+8, free 8+4, free 12+1");
  VEXPECT_OK(vmp_buddy_add(f.buddy, (32 + 5) * SLOT, 11 * SLOT));
  expect_layout(&f, "free 0+8, free 8+4, free 12+1, free 37+1, free 38+2, free 40+8");
  VEXPECT_UINT_EQ(take(&f, 16 * MIB, 0), 0);
  VEXPECT_UINT_EQ(take(&f, 16 * MIB, 0), 40 * SLOT);
  vmp_request request = request_of(16 * MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f.buddy, &request, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  VEXPECT_UINT_EQ(take(&f, 8 * MIB, 0), 8 * SLOT);
  give(&f, 40 * SLOT, 0, 1);
  give(&f, 8 * SLOT, 0, 2);
  give(&f, 0, 0, 3);
  expect_layout(&f, "free 0+8, free 8+4, free 12+1, free 37+1, free 38+2, free 40+8");
  rig_teardown(&f);
}

VTEST(BuddyRanges, NeighboursStayApart) {
  rig f = {NULL, NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 64, .step_bytes = SLOT});
  VEXPECT_OK(vmp_buddy_add(f.buddy, 8 * SLOT, 8 * SLOT));
  VEXPECT_OK(vmp_buddy_add(f.buddy, 0, 8 * SLOT));
  expect_layout(&f, "free 0+8, free 8+8");  // buddies, but of two reservations
  VEXPECT_UINT_EQ(take(&f, SLOT, 0), 0);
  give(&f, 0, 0, 1);
  expect_layout(&f, "free 0+8, free 8+8");
  rig_teardown(&f);
}

VTEST_F(BuddyRanges, RefusesWhatIsWrong, rig) {
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, GIB, 0), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, GIB + 1, SLOT), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, GIB, SLOT + 1), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, GIB - SLOT, 2 * SLOT), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, 0, GIB), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_buddy_add(f->buddy, UINT64_MAX - SLOT + 1, 2 * SLOT), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(stats_of(f).added_bytes, GIB);
  expect_layout(f, "free 0+512");
}

// ---- alignment ----
VTEST_F(Buddy, KeepsAlignmentLargerThanTheSize, rig) {
  VEXPECT_UINT_EQ(take(f, SLOT, 0), 0);
  vmp_request request = {.bytes = 3 * SLOT, .alignment = 64 * MIB, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  VASSERT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, 64 * MIB);
  VEXPECT_UINT_EQ(placed.bytes, 3 * SLOT);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 4);
  expect_layout(f,
                "block 0+1, free 1+1, free 2+2, free 4+4, free 8+8, free 16+16, block 32+3, free 35+1, free 36+4, "
                "free 40+8, free 48+16, free 64+64, free 128+128, free 256+256");
  request.alignment = 2 * GIB;  // a multiple of 2 GiB with 2 GiB behind it: there is none
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
}

VTEST_F(Buddy, RefusesWrongAlignment, rig) {
  static const uint64_t wrong[] = {0, 3, 768, VMP_OFFSET_CONGRUENCE * 2, UINT64_C(1) << 63};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    vmp_request request = {.bytes = SLOT, .alignment = wrong[i], .effort = VMP_EFFORT_NORMAL};
    vmp_placed placed;
    uint64_t offset, bytes;
    vmp_fence fence;
    VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_INVALID_VALUE);
    VEXPECT_STATUS(vmp_buddy_take_piece(f->buddy, SLOT, wrong[i], true, &offset, &bytes, &fence),
                   VMP_ERROR_INVALID_VALUE);
  }
  expect_layout(f, "free 0+512");
}

// ---- sizes near the end of the number range ----
VTEST_F(Buddy, HugeSizesAreRefusedAndChangeNothing, rig) {
  give(f, take(f, MIB, 0), 0, 1);
  vmp_buddy_stats before = stats_of(f);
  uint64_t claims = vmp_fake_get_counts(f->fake)->claims;
  static const uint64_t huge[] = {
      UINT64_MAX,        UINT64_MAX - 1,    UINT64_MAX - (SLOT - 2), UINT64_MAX - (SLOT - 1),
      UINT64_MAX - SLOT, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, ((UINT64_C(1) << 32) + 1) * SLOT,
      GIB + 1,
  };
  for (size_t i = 0; i < sizeof huge / sizeof huge[0]; i++) {
    for (uint64_t alignment = 1; alignment <= 64 * MIB; alignment *= 64) {
      vmp_request request = {.bytes = huge[i], .alignment = alignment, .effort = VMP_EFFORT_RESIZE};
      vmp_placed placed;
      uint64_t offset, bytes;
      vmp_fence fence;
      VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
      char number[32];
      (void)snprintf(number, sizeof number, "%llu", (unsigned long long)huge[i]);
      VEXPECT_STR_CONTAINS(vmp_last_error()->message, number);
      VEXPECT_STATUS(vmp_buddy_take_piece(f->buddy, huge[i], alignment, true, &offset, &bytes, &fence),
                     VMP_ERROR_OUT_OF_ADDRESS_SPACE);
    }
  }
  vmp_buddy_stats after = stats_of(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, claims);
  VEXPECT_UINT_NE(take(f, 512, 0), take(f, 512, 0));
}

VTEST_F(Buddy, ZeroBytesAreInvalid, rig) {
  vmp_request request = request_of(0, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(f->buddy, &request, &placed), VMP_ERROR_INVALID_VALUE);
}

// ---- pieces ----
VTEST_F(Buddy, PiecesAreBareAddresses, rig) {
  uint64_t offset, bytes, start, found;
  vmp_fence fence;
  bool piece;
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 70 * MIB, SLOT, true, &offset, &bytes, &fence));
  VEXPECT_UINT_EQ(offset, 0);
  VEXPECT_UINT_EQ(bytes, 128 * MIB);
  VEXPECT_TRUE(vmp_fence_is_none(fence));
  VASSERT_TRUE(vmp_buddy_find(f->buddy, 100 * MIB, &start, &found, &piece));
  VEXPECT_TRUE(piece);
  VEXPECT_UINT_EQ(found, 128 * MIB);
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 70 * MIB, SLOT, false, &offset, &bytes, &fence));
  VEXPECT_UINT_EQ(offset, 128 * MIB);
  VEXPECT_UINT_EQ(bytes, 70 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 0);
  vmp_buddy_stats stats = stats_of(f);
  VEXPECT_UINT_EQ(stats.pieces, 2);
  VEXPECT_UINT_EQ(stats.piece_bytes, 198 * MIB);
  vmp_buddy_free(f->buddy, 0, VMP_FENCE_NONE);
  vmp_buddy_free(f->buddy, 128 * MIB, VMP_FENCE_NONE);
  expect_layout(f, "free 0+512");
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->releases, 0);
}

// The first 256 slots are mapped, and 257 is blocked: a piece goes where nothing is.
VTEST_F(Buddy, PiecesPreferUntouchedAddresses, rig) {
  vmp_fake_map(f->fake, 0, 256 * SLOT);
  vmp_fake_block(f->fake, 257 * SLOT, SLOT, true);
  uint64_t offset, bytes;
  vmp_fence fence;
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 64 * SLOT, SLOT, true, &offset, &bytes, &fence));
  VEXPECT_UINT_EQ(offset, 320 * SLOT);
  // Where everything is mapped, the piece tells who may still touch it.
  vmp_fake_block(f->fake, 257 * SLOT, SLOT, false);
  uint64_t block = take(f, 256 * SLOT, 3);
  VEXPECT_UINT_EQ(block, 0);
  give(f, block, 3, 9);
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 256 * SLOT, SLOT, true, &offset, &bytes, &fence));
  VEXPECT_UINT_EQ(offset, 0);
  VEXPECT_UINT_EQ(fence.streams, 8);
  VEXPECT_UINT_EQ(fence.sequence, 9);
}

// ---- size of the bookkeeping ----
static vmp_cost empty_cost(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream) {
  (void)self;
  (void)offset;
  (void)stream;
  return (vmp_cost){.slots_to_map = bytes / SLOT};
}
static vmp_run_state empty_run(void *self, uint64_t offset, uint64_t end, uint64_t *out_end) {
  (void)self;
  (void)offset;
  *out_end = end;
  return VMP_RUN_UNMAPPED;
}
static bool nothing_complete(void *self, vmp_fence fence) {
  (void)self;
  return vmp_fence_is_none(fence);
}

// 2^49 slots are four blocks of the highest order, 2^47, that don't merge.
VTEST(Buddy, TheHighestOrderDoesNotMerge) {
  vmp_backing_ops ops = {
      .granule_bytes = 4096, .cost = empty_cost, .run = empty_run, .known_complete = nothing_complete};
  vmp_buddy *buddy;
  VASSERT_OK(vmp_buddy_create(&buddy, &ops));
  VASSERT_OK(vmp_buddy_add(buddy, 0, UINT64_C(1) << 61));
  uint64_t offset, bytes;
  vmp_fence fence;
  VASSERT_OK(vmp_buddy_take_piece(buddy, 1, 1, true, &offset, &bytes, &fence));
  vmp_buddy_free(buddy, offset, VMP_FENCE_NONE);
  vmp_buddy_stats stats;
  vmp_buddy_get_stats(buddy, &stats);
  VEXPECT_UINT_EQ(stats.free_by_order[47], 4);
  VEXPECT_UINT_EQ(stats.free_bytes, UINT64_C(1) << 61);
  vmp_report report = {0};
  VEXPECT_UINT_EQ(vmp_buddy_check(buddy, &report), 0);
  vmp_buddy_destroy(buddy);
}

VTEST(Buddy, OnePebibyteCostsNoMoreThanOneGibibyte) {
  vmp_backing_ops ops = {
      .granule_bytes = SLOT, .cost = empty_cost, .run = empty_run, .known_complete = nothing_complete};
  vmp_buddy *buddy;
  VASSERT_OK(vmp_buddy_create(&buddy, &ops));
  VASSERT_OK(vmp_buddy_add(buddy, 0, UINT64_C(1) << 50));
  VASSERT_OK(vmp_buddy_add(buddy, UINT64_C(3) << 50, (UINT64_C(1) << 50) - SLOT));
  uint64_t offset, bytes;
  vmp_fence fence;
  VASSERT_OK(vmp_buddy_take_piece(buddy, SLOT, SLOT, true, &offset, &bytes, &fence));
  VASSERT_OK(vmp_buddy_take_piece(buddy, UINT64_C(1) << 49, SLOT, true, &offset, &bytes, &fence));
  VEXPECT_UINT_EQ(offset % (UINT64_C(1) << 49), 0);
  vmp_buddy_stats stats;
  vmp_buddy_get_stats(buddy, &stats);
  VEXPECT_UINT_LT(stats.metadata_bytes, 64 * 1024);
  vmp_report report = {0};
  VEXPECT_UINT_EQ(vmp_buddy_check(buddy, &report), 0);
  vmp_buddy_destroy(buddy);
}
