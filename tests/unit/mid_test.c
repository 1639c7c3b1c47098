// mid_test.c: where mid puts blocks, how free space coalesces, arenas, lookup; values worked out by hand.
#include "tests/unit/mid_rig.h"

// ---- best fit in what is mapped ----
VTEST_F(Mid, BlocksShareSlots, rig) {
  VEXPECT_UINT_EQ(take(f, 3 * MIB), 0);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 2);
  VEXPECT_UINT_EQ(take(f, MIB), 3 * MIB);  // the rest of the second slot
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 2);
  VEXPECT_UINT_EQ(take(f, 512 * KIB), 4 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 3);
  expect_layout(f, "block 0+3, block 3+1, block 4+0.5, free 4.5+251.5");
}

VTEST_F(Mid, TheSmallestRunThatFitsWins, rig) {
  uint64_t a = take(f, 6 * MIB), wall1 = take(f, MIB), b = take(f, 3 * MIB), wall2 = take(f, MIB);
  uint64_t c = take(f, 4 * MIB), wall3 = take(f, MIB);
  (void)wall1, (void)wall2, (void)wall3;
  give(f, a);
  give(f, b);
  give(f, c);
  VEXPECT_UINT_EQ(stats_of(f).runs, 3);  // the last one borders on a slot that is used up to its end
  VEXPECT_UINT_EQ(take(f, 3 * MIB), b);
  VEXPECT_UINT_EQ(take(f, 3 * MIB), c);
  VEXPECT_UINT_EQ(take(f, 3 * MIB), a);
}

VTEST_F(Mid, EqualRunsLowestFirst, rig) {
  uint64_t blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = take(f, 4 * MIB);
  give(f, blocks[5]);
  give(f, blocks[1]);
  give(f, blocks[3]);
  VEXPECT_UINT_EQ(take(f, 4 * MIB), blocks[1]);
  VEXPECT_UINT_EQ(take(f, 4 * MIB), blocks[3]);
  VEXPECT_UINT_EQ(take(f, 4 * MIB), blocks[5]);
}

// A hole in a chunk that is live anyway is better than one that pins a parked chunk, though it fits less well.
VTEST_F(Mid, FewestParkedChunksPinned, rig) {
  uint64_t a = take(f, 2 * MIB), b = take(f, MIB / 2), c = take(f, MIB), d = take(f, MIB / 2);
  uint64_t e = take(f, 2 * MIB);
  (void)b, (void)d, (void)e;
  give(f, c);  // 1 MiB free inside a live slot
  give(f, a);  // 2 MiB free: a parked chunk
  VEXPECT_UINT_EQ(take(f, 256 * KIB), c);
  VEXPECT_UINT_EQ(take(f, 2 * MIB), a);
}

// The same where best fit alone would say the opposite: 4 MiB in a live chunk of 16, against 2 MiB parked.
VTEST(Mid, FewestParkedChunksPinnedBeforeBestFit) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 128, .chunk_slots = 8}, &(vmp_mid_options){.arena_bytes = 256 * MIB});
  (void)take(&f, 6 * MIB);
  vmp_fake_map(f.fake, 6 * MIB, 2 * MIB);
  uint64_t wall = take(&f, 2 * MIB);
  vmp_fake_map(f.fake, 16 * MIB, 16 * MIB);
  uint64_t a = take(&f, 6 * MIB), hole = take(&f, 4 * MIB), rest = take(&f, 6 * MIB);
  VEXPECT_UINT_EQ(rest, 26 * MIB);
  (void)a;
  give(&f, wall);
  give(&f, hole);
  VEXPECT_UINT_EQ(take(&f, MIB), hole);
  rig_teardown(&f);
}

// Equal cost, no exact fit: the smaller run, though it lies higher.
VTEST_F(Mid, BestFitBeforeLowestAddress, rig) {
  uint64_t a = take(f, 8 * MIB), w1 = take(f, 2 * MIB), b = take(f, 6 * MIB), w2 = take(f, 2 * MIB);
  (void)w1, (void)w2;
  give(f, a);
  give(f, b);
  VEXPECT_UINT_EQ(take(f, 5 * MIB), b);
}

VTEST_F(Mid, ParkedMemoryIsUsedBeforeNewMemory, rig) {
  (void)take(f, 8 * MIB);
  vmp_fake_map(f->fake, 100 * SLOT, 4 * SLOT);
  VEXPECT_UINT_EQ(take(f, 8 * MIB), 100 * SLOT);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->slots_mapped, 8);
}

// A run with free unmapped space on one side only: the block goes to the side where nothing is left over.
VTEST_F(Mid, StaysAtTheEdgeOfItsExtent, rig) {
  uint64_t a = take(f, 32 * MIB), b = take(f, 2 * MIB);
  give(f, a);
  vmp_fake_unmap(f->fake, 0, 16 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).largest_run_bytes, 16 * MIB);
  VEXPECT_UINT_EQ(take(f, 2 * MIB), b - 2 * MIB);
}

// ---- growing ----
VTEST_F(Mid, GrowsARunByWhatIsMissing, rig) {
  uint64_t a = take(f, 20 * MIB), b = take(f, 2 * MIB);
  (void)b;
  give(f, a);
  vmp_fake_unmap(f->fake, 0, 8 * MIB);
  vmp_fake_unmap(f->fake, 16 * MIB, 4 * MIB);  // left: 8..16 MiB
  uint64_t before = vmp_fake_get_counts(f->fake)->slots_mapped;
  uint64_t block = take(f, 10 * MIB);
  VEXPECT_UINT_EQ(block, 6 * MIB);  // leftwards, at the lower of two equally good places
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->slots_mapped - before, 1);
}

VTEST_F(Mid, GrowsARunToTheRightWhereTheLeftIsBlocked, rig) {
  (void)take(f, 2 * MIB);
  vmp_fake_map(f->fake, 100 * SLOT, 4 * SLOT);
  vmp_fake_block(f->fake, 99 * SLOT, SLOT, true);
  VEXPECT_UINT_EQ(take(f, 5 * SLOT), 100 * SLOT);
}

// The only aligned place of a large extent lies behind its run: nothing wraps.
VTEST_F(Mid, GrowsBehindARunThatEndsBeforeTheFirstAlignedPlace, rig) {
  (void)take(f, 512);
  vmp_request request = {.bytes = 5 * MIB, .alignment = 64 * MIB, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, 64 * MIB);
}

VTEST_F(Mid, GrowsThePlaceWithTheFewestSlotsToMap, rig) {
  vmp_fake_map(f->fake, 10 * SLOT, 3 * SLOT);
  vmp_fake_map(f->fake, 50 * SLOT, 5 * SLOT);
  vmp_fake_map(f->fake, 90 * SLOT, 4 * SLOT);
  uint64_t block = take(f, 6 * SLOT);
  VEXPECT_UINT_EQ(block, 49 * SLOT);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 13);
}

VTEST_F(Mid, EffortMappedMapsNothing, rig) {
  (void)take(f, MIB);
  vmp_request request = {.bytes = 2 * MIB, .alignment = 512, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 1);
  request.bytes = MIB;
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, MIB);
}

VTEST_F(Mid, LookFindsThePlaceAndItsCost, rig) {
  uint64_t offset;
  vmp_cost cost;
  vmp_request request = request_of(6 * MIB, 0);
  VEXPECT_FALSE(vmp_mid_look(f->mid, &request, &offset, &cost));  // no arena yet
  (void)take(f, 2 * MIB);
  vmp_fake_map(f->fake, 50 * SLOT, 2 * SLOT);
  VASSERT_TRUE(vmp_mid_look(f->mid, &request, &offset, &cost));
  VEXPECT_UINT_EQ(offset, 49 * SLOT);
  VEXPECT_UINT_EQ(cost.slots_to_map, 1);
  VEXPECT_UINT_EQ(cost.chunks_pinned, 1);
  request.bytes = 4 * MIB;
  VASSERT_TRUE(vmp_mid_look(f->mid, &request, &offset, &cost));
  VEXPECT_UINT_EQ(offset, 50 * SLOT);
  VEXPECT_UINT_EQ(cost.slots_to_map, 0);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, 1);
  request.bytes = GIB;
  VEXPECT_FALSE(vmp_mid_look(f->mid, &request, &offset, &cost));
}

// ---- coalescing ----
VTEST_F(Mid, FreeNeighboursCoalesceInEveryOrder, rig) {
  static const int orders[6][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};
  for (int i = 0; i < 6; i++) {
    uint64_t blocks[3];
    for (int j = 0; j < 3; j++) blocks[j] = take(f, 5 * MIB);
    uint64_t wall = take(f, 512);
    for (int j = 0; j < 3; j++) give(f, blocks[orders[i][j]]);
    vmp_mid_stats stats = stats_of(f);
    VEXPECT_UINT_EQ(stats.extents, 2);  // before and behind the wall
    VEXPECT_UINT_EQ(stats.parts, 3);    // behind it are two, the mapped rest of its slot and what is bare
    VEXPECT_UINT_EQ(stats.largest_run_bytes, 15 * MIB);
    rig_check(f);
    give(f, wall);
    VEXPECT_UINT_EQ(stats_of(f).extents, 1);
  }
  expect_layout(f, "free 0+256");
}

// ---- alignment ----
VTEST_F(Mid, KeepsAlignment, rig) {
  (void)take(f, 512);
  static const uint64_t alignments[] = {1, 2, 256, 512, 4 * KIB, 64 * KIB, MIB, 2 * MIB, 4 * MIB, 64 * MIB, 256 * MIB};
  for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
    vmp_request request = {.bytes = 3 * MIB + 512, .alignment = alignments[i], .effort = VMP_EFFORT_NORMAL};
    vmp_placed placed;
    VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
    VEXPECT_UINT_EQ(placed.offset % alignments[i], 0);
    VEXPECT_UINT_EQ(placed.offset % 512, 0);
    VEXPECT_UINT_EQ(placed.bytes, 3 * MIB + 512);
  }
  rig_check(f);
}

// Spans of 32 KiB, aligned to their size: 64 of them fill a slot exactly.
VTEST_F(Mid, AlignedSpansFillASlot, rig) {
  for (uint64_t i = 0; i < 64; i++) {
    vmp_request request = {.bytes = 32 * KIB, .alignment = 32 * KIB, .effort = VMP_EFFORT_NORMAL};
    vmp_placed placed;
    VASSERT_OK(vmp_mid_alloc(f->mid, &request, f, &placed));
    VEXPECT_UINT_EQ(placed.offset, i * 32 * KIB);
  }
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 1);
}

// Twenty runs that are long enough but lie askew, and one larger one: it must be found.
VTEST_F(Mid, AnAlignedPlaceBehindManyAskewOnes, rig) {
  uint64_t holes[21];
  (void)take(f, 512);
  for (int i = 0; i < 20; i++) {
    holes[i] = take(f, 64 * KIB);
    (void)take(f, 64 * KIB);
  }
  holes[20] = take(f, 256 * KIB);
  (void)take(f, 512);
  for (int i = 0; i < 21; i++) give(f, holes[i]);
  uint64_t mapped = vmp_fake_mapped_slots(f->fake);
  vmp_request request = {.bytes = 64 * KIB, .alignment = 64 * KIB, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  uint64_t rest = take(f, 4 * MIB - holes[20] - 256 * KIB - 512);  // what is left of the second slot
  VEXPECT_UINT_GT(rest, holes[20]);
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_GT(placed.offset, holes[20]);
  VEXPECT_UINT_LT(placed.offset, holes[20] + 256 * KIB);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), mapped);
}

VTEST_F(Mid, RefusesWrongRequests, rig) {
  vmp_placed placed;
  static const uint64_t alignments[] = {0, 3, 768, 2 * VMP_OFFSET_CONGRUENCE, UINT64_C(1) << 63};
  for (size_t i = 0; i < sizeof alignments / sizeof alignments[0]; i++) {
    vmp_request request = {.bytes = 512, .alignment = alignments[i], .effort = VMP_EFFORT_NORMAL};
    VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_INVALID_VALUE);
  }
  static const uint64_t sizes[] = {0, 1, 511, 513, UINT64_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    vmp_request request = request_of(sizes[i], 0);
    VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_INVALID_VALUE);
  }
  VEXPECT_UINT_EQ(f->arenas.takes, 0);
}

VTEST_F(Mid, HugeSizesAreRefusedAndChangeNothing, rig) {
  give(f, take(f, MIB));
  vmp_mid_stats before = stats_of(f);
  uint64_t claims = vmp_fake_get_counts(f->fake)->claims;
  static const uint64_t sizes[] = {UINT64_MAX - 511,  UINT64_MAX - SLOT + 1,     UINT64_MAX - SLOT + 1 - 512,
                                   UINT64_C(1) << 63, (UINT64_C(1) << 63) + 512, ((UINT64_C(1) << 32) + 1) * 65536};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    for (uint64_t alignment = 1; alignment <= GIB; alignment *= 1024) {
      vmp_request request = {.bytes = sizes[i], .alignment = alignment, .effort = VMP_EFFORT_RESIZE};
      vmp_placed placed;
      VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
    }
  }
  vmp_mid_stats after = stats_of(f);
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, claims);
  VEXPECT_UINT_NE(take(f, 512), take(f, 512));
}

// ---- find ----
VTEST_F(Mid, FindsBlocksFromAnyAddressInside, rig) {
  int owner;
  vmp_request request = request_of(3 * MIB, 0);
  vmp_placed placed;
  (void)take(f, MIB);
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, &owner, &placed));
  uint64_t start = 0, bytes = 0;
  void *found = NULL;
  static const uint64_t inside[] = {0, 1, 511, 512, MIB, 2 * MIB, 3 * MIB - 1};
  for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
    VASSERT_TRUE(vmp_mid_find(f->mid, placed.offset + inside[i], &start, &bytes, &found));
    VEXPECT_UINT_EQ(start, placed.offset);
    VEXPECT_UINT_EQ(bytes, 3 * MIB);
    VEXPECT_PTR_EQ(found, &owner);
  }
  VEXPECT_FALSE(vmp_mid_find(f->mid, placed.offset + 3 * MIB, NULL, NULL, NULL));
  VASSERT_TRUE(vmp_mid_find(f->mid, placed.offset - 1, &start, NULL, &found));
  VEXPECT_UINT_EQ(start, 0);
  VEXPECT_NULL(found);
  VEXPECT_FALSE(vmp_mid_find(f->mid, 300 * MIB, NULL, NULL, NULL));
  VEXPECT_TRUE(vmp_mid_owns(f->mid, 255 * MIB));
  VEXPECT_FALSE(vmp_mid_owns(f->mid, 256 * MIB));
  give(f, placed.offset);
  VEXPECT_FALSE(vmp_mid_find(f->mid, placed.offset, NULL, NULL, NULL));
}

// Blocks of 512 bytes next to each other, and a block over several index sectors of 128 MiB with small ones around it.
VTEST(MidFind, SmallAndHugeBlocks) {
  rig f = {.fake = NULL};
  uint64_t base = 100 * MIB;
  rig_start(&f, &(vmp_fake_options){.slots = 1024, .offset = base}, &(vmp_mid_options){.arena_bytes = 2 * GIB});
  uint64_t small[300], huge, start, bytes;
  for (int i = 0; i < 300; i++) small[i] = take(&f, 512);
  huge = take(&f, GIB + 512);
  uint64_t behind = take(&f, 512);
  for (uint64_t i = 0; i < 300; i++) {
    VASSERT_TRUE(vmp_mid_find(f.mid, small[i] + 13, &start, &bytes, NULL));
    VEXPECT_UINT_EQ(start, base + i * 512);
  }
  for (uint64_t at = huge; at < huge + GIB; at += 31 * MIB + 77) {
    VASSERT_TRUE(vmp_mid_find(f.mid, at, &start, &bytes, NULL));
    VEXPECT_UINT_EQ(start, huge);
    VEXPECT_UINT_EQ(bytes, GIB + 512);
  }
  VASSERT_TRUE(vmp_mid_find(f.mid, behind, &start, NULL, NULL));
  VEXPECT_UINT_EQ(start, behind);
  VEXPECT_FALSE(vmp_mid_find(f.mid, behind + 512, &start, NULL, NULL));
  VEXPECT_FALSE(vmp_mid_find(f.mid, base + 2 * GIB - 1, &start, NULL, NULL));
  give(&f, huge);
  VEXPECT_FALSE(vmp_mid_find(f.mid, huge + 500 * MIB, NULL, NULL, NULL));
  rig_teardown(&f);
}

// ---- arenas ----
VTEST_F(MidArena, AnotherArenaWhenNothingFits, rig) {
  VEXPECT_UINT_EQ(take(f, 200 * MIB), 0);
  VEXPECT_UINT_EQ(take(f, 100 * MIB), 256 * MIB);
  VEXPECT_UINT_EQ(take(f, 50 * MIB), 200 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 2);
  vmp_request request = request_of(600 * MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  VEXPECT_UINT_EQ(take(f, 500 * MIB), 512 * MIB);  // an arena as large as the block
  VEXPECT_UINT_EQ(stats_of(f).arena_bytes, 1012 * MIB);
}

// Arenas that touch are still two: a block never lies across their border, so each can go back.
VTEST_F(MidArena, NeighboursStayApart, rig) {
  uint64_t a = take(f, 256 * MIB), b = take(f, 256 * MIB);
  give(f, a);
  give(f, b);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 2);
  VEXPECT_UINT_EQ(stats_of(f).extents, 2);
  VEXPECT_UINT_EQ(stats_of(f).runs, 2);
  VEXPECT_UINT_EQ(take(f, 300 * MIB), 512 * MIB);
}

VTEST_F(MidArena, GoesBackWhenNothingOfItIsMapped, rig) {
  uint64_t a = take(f, 256 * MIB), b = take(f, 256 * MIB), c = take(f, 256 * MIB);
  give(f, b);
  (void)stats_of(f);
  VEXPECT_UINT_EQ(f->arenas.gives, 0);  // still mapped
  vmp_fake_unmap(f->fake, b, 256 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 2);
  VEXPECT_UINT_EQ(f->arenas.gives, 1);
  VEXPECT_UINT_EQ(f->arenas.given_offset, b);
  VEXPECT_FALSE(vmp_mid_owns(f->mid, b));
  rig_check(f);
  give(f, a);
  give(f, c);
  vmp_fake_unmap(f->fake, a, 256 * MIB);
  vmp_fake_unmap(f->fake, c, 256 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 1);  // the last one stays
}

VTEST_F(MidArena, StaysWhileItsFenceIsUnfinished, rig) {
  uint64_t a = take(f, 256 * MIB), b = take(f, 256 * MIB);
  (void)a;
  give_on(f, b, 3, 5);
  vmp_fake_unmap(f->fake, b, 256 * MIB);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 2);
  vmp_fake_complete(f->fake, 3, 5);
  vmp_fake_overflow_log(f->fake);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 1);
}

VTEST_F(MidArena, SmallerWhenTheSupplyHasNoMore, rig) {
  f->arenas.max_bytes = 100 * MIB;
  VEXPECT_UINT_EQ(take(f, 33 * MIB), 0);
  VEXPECT_UINT_EQ(stats_of(f).arena_bytes, 34 * MIB);
  VEXPECT_UINT_EQ(f->arenas.takes, 2);
}

// A request that is aligned to more than an arena is finds a place in the arena that is taken for it.
VTEST_F(MidArena, AlignedForTheRequest, rig) {
  f->arenas.gap_bytes = 2 * MIB;
  (void)take(f, 256 * MIB);
  vmp_request request = {.bytes = 200 * MIB, .alignment = 64 * MIB, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  VASSERT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  VEXPECT_UINT_EQ(placed.offset, 320 * MIB);
}

VTEST(MidArena, AlignedForTheLargestChunk) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 512, .offset = 2 * MIB},
            &(vmp_mid_options){.arena_bytes = 256 * MIB, .chunk_max_bytes = 32 * MIB});
  VEXPECT_UINT_EQ(take(&f, MIB), 32 * MIB);
  rig_teardown(&f);
}

VTEST_F(MidArena, FailureOfTheSupplyIsPassedOn, rig) {
  f->arenas.fail_status = VMP_ERROR_DRIVER;
  vmp_request request = request_of(MIB, 0);
  vmp_placed placed;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(stats_of(f).arenas, 0);
}

VTEST_F(MidArena, MappedMemoryOfTheSupplyIsFound, rig) {
  vmp_fake_map(f->fake, 4 * SLOT, 8 * SLOT);
  f->arenas.fence = (vmp_fence){2, 5};
  vmp_placed placed = take_placed(f, 8 * MIB, 0);
  VEXPECT_UINT_EQ(placed.offset, 4 * SLOT);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 8);
  placed = take_placed(f, 32 * MIB, 0);  // new memory, but for what is left of the old
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  (void)take(f, 200 * MIB);
  placed = take_placed(f, 4 * MIB, 0);  // nothing was mapped here
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// A used block is divided in two, which are freed on their own; every claim is given back.
VTEST_F(Mid, DividedBlocksAreFreedOnTheirOwn, rig) {
  uint64_t a = take(f, 9 * MIB), wall = take(f, MIB);
  VASSERT_OK(vmp_mid_divide(f->mid, a, a + 3 * MIB + 512));
  VASSERT_OK(vmp_mid_divide(f->mid, a, a + 512));
  VEXPECT_UINT_EQ(stats_of(f).blocks, 4);
  VEXPECT_UINT_EQ(stats_of(f).block_bytes, 10 * MIB);
  rig_check(f);
  uint64_t start = 0, bytes = 0;
  VEXPECT_TRUE(vmp_mid_find(f->mid, a + 4 * MIB, &start, &bytes, NULL));
  VEXPECT_UINT_EQ(start, a + 3 * MIB + 512);
  VEXPECT_UINT_EQ(bytes, 6 * MIB - 512);
  give(f, a + 512);
  rig_check(f);
  VEXPECT_UINT_EQ(take(f, 3 * MIB), a + 512);
  give(f, a + 512);
  give(f, a + 3 * MIB + 512);
  give(f, a);
  give(f, wall);
  VEXPECT_UINT_EQ(stats_of(f).blocks, 0);
}

VTEST_F(Mid, WhatCannotBeDivided, rig) {
  uint64_t a = take(f, 4 * MIB);
  static const uint64_t places[] = {0, 100, 4 * MIB, 5 * MIB};
  for (size_t i = 0; i < 4; i++) VEXPECT_STATUS(vmp_mid_divide(f->mid, a, a + places[i]), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_mid_divide(f->mid, a + 512, a + MIB), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_mid_divide(f->mid, a + 64 * MIB, a + 65 * MIB), VMP_ERROR_INVALID_VALUE);
  give(f, a);
  VEXPECT_STATUS(vmp_mid_divide(f->mid, a, a + MIB), VMP_ERROR_INVALID_VALUE);
}

// ---- a block becomes several of one size ----
// expect_parts: [offset, offset + count * each_bytes) is `count` blocks, each of which has its owner.
static void expect_parts(rig *f, uint64_t offset, uint64_t each_bytes, int *owners, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    uint64_t at = offset + i * each_bytes, start = 0, bytes = 0;
    void *owner = NULL;
    VASSERT_TRUE(vmp_mid_find(f->mid, at + each_bytes - 512, &start, &bytes, &owner));
    VEXPECT_UINT_EQ(start, at);
    VEXPECT_UINT_EQ(bytes, each_bytes);
    VEXPECT_PTR_EQ(owner, &owners[i]);
  }
  rig_check(f);
}

// Each has a claim of its own: the memory is parked once the last one has gone.
VTEST_F(Mid, EvenPartsAreFreedOnTheirOwn, rig) {
  static int owners[4];
  void *const pointers[] = {&owners[0], &owners[1], &owners[2], &owners[3]};
  uint64_t a = take(f, SLOT);
  VEXPECT_TRUE(vmp_mid_divide_evenly(f->mid, a, SLOT / 4, pointers));
  VEXPECT_UINT_EQ(stats_of(f).blocks, 4);
  VEXPECT_UINT_EQ(stats_of(f).block_bytes, SLOT);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 4);
  VEXPECT_UINT_EQ(vmp_fake_chunk_at(f->fake, a)->live, 4);
  expect_layout(f, "span 0+0.5, span 0.5+0.5, span 1+0.5, span 1.5+0.5, free 2+254");
  expect_parts(f, a, SLOT / 4, owners, 4);
  static const uint64_t order[] = {2, 0, 3, 1};
  for (uint64_t i = 0; i < 4; i++) {
    VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 0);
    VEXPECT_UINT_EQ(vmp_mid_free(f->mid, a + order[i] * (SLOT / 4), VMP_FENCE_NONE), SLOT / 4);
    rig_check(f);
    VEXPECT_UINT_EQ(stats_of(f).blocks, 3 - i);
    VEXPECT_FALSE(vmp_mid_find(f->mid, a + order[i] * (SLOT / 4), NULL, NULL, NULL));
    if (i == 0) expect_parts(f, a, SLOT / 4, owners, 2);
  }
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 1);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 0);
  VEXPECT_UINT_EQ(take(f, SLOT), a);
}

// The place of a part that went is used again, beside the others.
VTEST_F(Mid, APlaceOfAnEvenPartIsUsedAgain, rig) {
  static int owners[4];
  void *const pointers[] = {&owners[0], &owners[1], &owners[2], &owners[3]};
  uint64_t a = take(f, SLOT), wall = take(f, SLOT);
  VEXPECT_TRUE(vmp_mid_divide_evenly(f->mid, a, SLOT / 4, pointers));
  give_on(f, a + SLOT / 2, 1, 7);
  vmp_placed placed = take_placed(f, SLOT / 4, 0);
  VEXPECT_UINT_EQ(placed.offset, a + SLOT / 2);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  rig_check(f);
  give(f, placed.offset);
  give(f, wall);
}

// Parts that lie in several chunks, and chunks that others are in, too.
VTEST_F(Mid, EvenPartsShareChunks, rig) {
  static int owners[3];
  void *const pointers[] = {&owners[0], &owners[1], &owners[2]};
  uint64_t below = take(f, MIB), a = take(f, 9 * MIB / 2), above = take(f, MIB / 2);
  VEXPECT_UINT_EQ(vmp_fake_mapped_slots(f->fake), 3);
  VEXPECT_TRUE(vmp_mid_divide_evenly(f->mid, a, 3 * MIB / 2, pointers));
  VEXPECT_UINT_EQ(stats_of(f).blocks, 5);
  expect_parts(f, a, 3 * MIB / 2, owners, 3);
  give(f, a + 3 * MIB / 2);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 0);
  give(f, a);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 1);
  give(f, below);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 2);
  rig_check(f);
  give(f, a + 3 * MIB);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 2);
  give(f, above);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 3);
}

VTEST_F(Mid, OneEvenPartIsTheBlockWithItsOwner, rig) {
  static int owner;
  void *const pointer = &owner;
  uint64_t a = take(f, SLOT);
  VEXPECT_TRUE(vmp_mid_divide_evenly(f->mid, a, SLOT, &pointer));
  VEXPECT_UINT_EQ(stats_of(f).blocks, 1);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(f->fake), 1);
  expect_parts(f, a, SLOT, &owner, 1);
  give(f, a);
  VEXPECT_UINT_EQ(vmp_fake_parked_slots(f->fake), 1);
}
