// slab_stream_test.c: which stream gets which free object, and what it must wait for.
//
// 64 KiB objects are 8 to a span, so 8 allocations fill a span and the 9th needs another.
#include "pool/slab.h"
#include "tests/unit/slab_rig.h"

#define SIZE (64 * KIB)

static void refuse_takes(slab_rig *f) {
  f->supply.fail_takes = UINT64_MAX;
  f->supply.fail_status = VMP_ERROR_OUT_OF_MEMORY;
}

static void expect_fence(vmp_fence fence, uint64_t streams, uint64_t sequence) {
  VEXPECT_UINT_EQ(fence.streams, streams);
  VEXPECT_UINT_EQ(fence.sequence, sequence);
}

VTEST_F(SlabStreams, OneStreamNeverWaits, slab_rig) {
  for (uint64_t i = 1; i <= 1000; i++) {
    vmp_placed a = rig_alloc_on(f, SIZE, 3), b = rig_alloc_on(f, SIZE, 3);
    VEXPECT_TRUE(vmp_fence_is_none(a.after));
    VEXPECT_TRUE(vmp_fence_is_none(b.after));
    rig_free(f, a.offset, fence_of(3, 2 * i));
    rig_free(f, b.offset, fence_of(3, 2 * i + 1));
  }
  VEXPECT_UINT_EQ(f->supply.takes, 1);
}

VTEST_F(SlabStreams, NeverUsedObjectsNeedNoWait, slab_rig) {
  uint64_t freed = rig_alloc(f, SIZE);
  rig_free(f, freed, fence_of(0, 1));
  // Seven objects of the span were never used: stream 1 gets these, and then a span of its own.
  for (int i = 0; i < 8; i++) {
    vmp_placed placed = rig_alloc_on(f, SIZE, 1);
    VEXPECT_UINT_NE(placed.offset, freed);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  }
  VEXPECT_UINT_EQ(f->supply.takes, 2);
  VEXPECT_UINT_EQ(rig_alloc(f, SIZE), freed);  // stream 0 gets what it freed itself
}

VTEST_F(SlabStreams, NewSpanBeforeAWaitAndAWaitBeforeFailure, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[2], fence_of(0, 20));
  rig_free(f, offsets[6], fence_of(0, 30));
  VEXPECT_TRUE(vmp_fence_is_none(rig_alloc_on(f, SIZE, 1).after));
  VEXPECT_UINT_EQ(f->supply.takes, 2);
  refuse_takes(f);
  for (int i = 0; i < 7; i++) VEXPECT_TRUE(vmp_fence_is_none(rig_alloc_on(f, SIZE, 1).after));  // the rest of its span
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[2]);
  expect_fence(placed.after, 1, 30);
  placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[6]);
  expect_fence(placed.after, 1, 30);
  VEXPECT_STATUS(rig_try_alloc(f, SIZE, 1, &placed), VMP_ERROR_OUT_OF_MEMORY);
}

// A caller that prefers a wait to new memory passes VMP_EFFORT_MAPPED: the slab hands it on.
VTEST_F(SlabStreams, TheEffortIsTheSpans, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[0], fence_of(0, 5));
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_BUSY;
  vmp_request request = {.bytes = SIZE, .alignment = 512, .stream = 1, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  VASSERT_OK(vmp_slab_alloc(f->slab, &request, &placed));
  VEXPECT_INT_EQ(f->supply.last_request.effort, VMP_EFFORT_MAPPED);
  VEXPECT_UINT_EQ(f->supply.last_request.stream, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[0]);
  expect_fence(placed.after, 1, 5);
}

// What a request says of waits holds for the span as well as for the objects.
VTEST_F(SlabStreams, ARequestMayRuleWaitsOutOrNotMindThem, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[3], fence_of(0, 5));
  vmp_request request = {
      .bytes = SIZE, .alignment = 512, .stream = 1, .effort = VMP_EFFORT_READY, .wait = VMP_WAIT_NEVER};
  vmp_placed placed;
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_BUSY;
  VEXPECT_STATUS(vmp_slab_alloc(f->slab, &request, &placed), VMP_ERROR_BUSY);
  VEXPECT_INT_EQ(f->supply.last_request.wait, VMP_WAIT_NEVER);
  VEXPECT_INT_EQ(f->supply.last_request.effort, VMP_EFFORT_READY);
  uint64_t takes = f->supply.takes;
  request.wait = VMP_WAIT_ANY;
  request.effort = VMP_EFFORT_NORMAL;
  VASSERT_OK(vmp_slab_alloc(f->slab, &request, &placed));
  VEXPECT_UINT_EQ(placed.offset, offsets[3]);
  expect_fence(placed.after, 1, 5);
  VEXPECT_UINT_EQ(f->supply.takes, takes);  // no span was asked for
  VASSERT_OK(vmp_slab_alloc(f->slab, &request, &placed));
  VEXPECT_UINT_EQ(f->supply.takes, takes + 1);
  VEXPECT_INT_EQ(f->supply.last_request.wait, VMP_WAIT_ANY);
}

VTEST_F(SlabStreams, TheOldestWorkIsWaitedFor, slab_rig) {
  uint64_t offsets[24];
  rig_alloc_many(f, SIZE, offsets, 24);
  // The fullest span was freed from last; the others in the order of their age.
  rig_free(f, offsets[8], fence_of(0, 10));
  rig_free(f, offsets[9], fence_of(0, 11));
  rig_free(f, offsets[16], fence_of(0, 12));
  rig_free(f, offsets[17], fence_of(0, 13));
  rig_free(f, offsets[0], fence_of(0, 14));
  refuse_takes(f);
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[8]);
  expect_fence(placed.after, 1, 11);
}

VTEST_F(SlabStreams, CompleteAndOrderedWorkNeedsNoWait, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[1], fence_of(0, 5));
  rig_free(f, offsets[2], fence_of(2, 6));
  refuse_takes(f);
  vmp_fake_complete(f->clock, 0, 5);
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[1]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  vmp_fake_order(f->clock, 1, fence_of(2, 6));
  placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[2]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// A stream never waits for memory that it freed itself, though others have freed neighbours.
VTEST_F(SlabStreams, EachStreamGetsItsOwnObjects, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  for (size_t i = 0; i < 8; i++) {
    vmp_stream_index stream = (vmp_stream_index)(i % 2);
    rig_free(f, offsets[i], fence_of(stream, i + 1));
  }
  refuse_takes(f);
  for (size_t i = 0; i < 8; i++) {
    vmp_stream_index stream = (vmp_stream_index)(1 - i % 2);
    vmp_placed placed = rig_alloc_on(f, SIZE, stream);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
    VEXPECT_UINT_EQ((placed.offset - offsets[0]) / SIZE % 2, stream);
  }
}

VTEST_F(SlabStreams, AThirdStreamSharesAFence, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[0], fence_of(0, 1));
  rig_free(f, offsets[1], fence_of(1, 2));
  rig_free(f, offsets[2], fence_of(2, 3));  // together with stream 1's
  refuse_takes(f);
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[0]);  // the oldest
  expect_fence(placed.after, 1, 1);
  placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[1]);
  expect_fence(placed.after, 1 << 2, 3);
}

// Frees by streams 0, 1 and 2, where stream 0's work has finished: nobody waits for anybody.
static void expect_three_apart(slab_rig *f, const uint64_t *offsets) {
  rig_free(f, offsets[0], fence_of(0, 11));
  rig_free(f, offsets[1], fence_of(1, 12));
  vmp_fake_complete(f->clock, 0, 11);
  rig_free(f, offsets[2], fence_of(2, 13));
  refuse_takes(f);
  static const struct {
    vmp_stream_index stream;
    size_t object;
  } expected[] = {{1, 0}, {2, 2}, {1, 1}};
  for (size_t i = 0; i < 3; i++) {
    vmp_placed placed = rig_alloc_on(f, SIZE, expected[i].stream);
    VEXPECT_UINT_EQ(placed.offset, offsets[expected[i].object]);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  }
}

VTEST_F(SlabStreams, AThirdStreamTakesThePlaceOfCompleteWork, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  expect_three_apart(f, offsets);
}

VTEST_F(SlabStreams, CompleteWorkJoinsObjectsThatWereNeverUsed, slab_rig) {
  uint64_t offsets[3];
  rig_alloc_many(f, SIZE, offsets, 3);
  expect_three_apart(f, offsets);
}

// What a span came with is history once all its objects were used.
VTEST_F(SlabStreams, CompleteWorkOutlivesWhatTheSpanCameWith, slab_rig) {
  vmp_fake_supply_touch(&f->supply, RIG_BASE, 512 * KIB, fence_of(0, 20));
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  expect_three_apart(f, offsets);
}

VTEST_F(SlabStreams, AGroupThatEmptiedIsForAnotherStream, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[0], fence_of(0, 1));
  rig_free(f, offsets[1], fence_of(1, 2));
  VEXPECT_UINT_EQ(rig_alloc(f, SIZE), offsets[0]);
  rig_free(f, offsets[2], fence_of(1, 3));
  rig_free(f, offsets[3], fence_of(2, 4));
  refuse_takes(f);
  static const size_t objects[] = {3, 1, 2};
  static const vmp_stream_index streams[] = {2, 1, 1};
  for (size_t i = 0; i < 3; i++) {
    vmp_placed placed = rig_alloc_on(f, SIZE, streams[i]);
    VEXPECT_UINT_EQ(placed.offset, offsets[objects[i]]);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  }
}

// Completion that was seen isn't lost when the same stream frees more.
VTEST_F(SlabStreams, LaterFreesDontTouchCompleteOnes, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[0], fence_of(0, 4));
  rig_free(f, offsets[1], fence_of(0, 5));
  vmp_fake_complete(f->clock, 0, 5);
  VEXPECT_UINT_EQ(rig_alloc_on(f, SIZE, 1).offset, offsets[0]);
  rig_free(f, offsets[2], fence_of(0, 9));
  refuse_takes(f);
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_UINT_EQ(placed.offset, offsets[1]);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

// A block freed with work of several streams is reusable when all of them are through.
VTEST_F(SlabStreams, RecordedUsesCount, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[4], (vmp_fence){1 << 0 | 1 << 5 | 1 << 6, 9});
  vmp_fake_complete(f->clock, 5, 9);
  refuse_takes(f);
  expect_fence(rig_alloc_on(f, SIZE, 0).after, 1 << 6, 9);
}

// ---- what the memory of a span comes with ----

// Stream 0 takes a span on memory that it used itself. It needs no wait; stream 1, which gets another object, does.
VTEST_F(SlabStreams, TheTakersOwnWorkBindsOtherStreams, slab_rig) {
  vmp_fake_supply_touch(&f->supply, RIG_BASE, 512 * KIB, fence_of(0, 7));
  vmp_placed placed = rig_alloc_on(f, SIZE, 0);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  expect_fence(placed.fence, 1, 7);
  refuse_takes(f);
  expect_fence(rig_alloc_on(f, SIZE, 1).after, 1, 7);
  vmp_fake_complete(f->clock, 0, 7);
  VEXPECT_TRUE(vmp_fence_is_none(rig_alloc_on(f, SIZE, 1).after));
}

VTEST_F(SlabStreams, TheFirstObjectWaitsForWhatTheSpanCameWith, slab_rig) {
  vmp_fake_supply_touch(&f->supply, RIG_BASE, 64 * KIB, fence_of(2, 7));
  vmp_fake_supply_touch(&f->supply, RIG_BASE + 448 * KIB, 64 * KIB, fence_of(4, 9));
  expect_fence(rig_alloc_on(f, SIZE, 0).after, 1 << 2 | 1 << 4, 9);
  // Its own free doesn't make the others wait less.
  refuse_takes(f);
  rig_free(f, RIG_BASE, fence_of(0, 10));
  expect_fence(rig_alloc_on(f, SIZE, 1).after, 1 << 2 | 1 << 4, 9);
}

// Complete objects stay apart while those that were never used have to wait.
VTEST_F(SlabStreams, CompleteObjectsDontInheritTheSpansFence, slab_rig) {
  vmp_fake_supply_touch(&f->supply, RIG_BASE, 512 * KIB, fence_of(0, 7));
  uint64_t offsets[2] = {rig_alloc_on(f, SIZE, 0).offset, rig_alloc_on(f, SIZE, 0).offset};
  for (size_t i = 0; i < 2; i++) rig_free(f, offsets[i], fence_of(3, 8));
  vmp_fake_complete(f->clock, 3, 8);
  refuse_takes(f);
  for (size_t i = 0; i < 2; i++) {
    vmp_placed placed = rig_alloc_on(f, SIZE, 1);
    VEXPECT_UINT_EQ(placed.offset, offsets[i]);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  }
}

VTEST_F(SlabStreams, AnEmptySpanGoesBackWithWhatIsIncomplete, slab_rig) {
  vmp_fake_supply_touch(&f->supply, RIG_BASE, 512 * KIB, fence_of(7, 3));
  uint64_t offsets[4];
  for (size_t i = 0; i < 4; i++) offsets[i] = rig_alloc_on(f, SIZE, 7).offset;
  rig_free(f, offsets[0], fence_of(0, 10));
  rig_free(f, offsets[1], fence_of(1, 11));
  rig_free(f, offsets[2], fence_of(2, 12));
  rig_free(f, offsets[3], fence_of(0, 13));
  vmp_fake_complete(f->clock, 0, 13);
  vmp_slab_trim(f->slab);
  // Of the objects that were never used what the span came with, of the others what isn't complete.
  expect_fence(f->supply.last_give_fence, 1 << 7 | 1 << 1 | 1 << 2, 12);
}

VTEST_F(SlabStreams, WorkBeforeAReuseIsForgotten, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  rig_free(f, offsets[0], fence_of(0, 1));
  rig_free(f, offsets[1], fence_of(1, 2));
  VEXPECT_UINT_EQ(rig_alloc_on(f, SIZE, 1).offset, offsets[1]);
  for (size_t i = 1; i < 8; i++) rig_free(f, offsets[i], fence_of(0, i + 2));
  vmp_slab_trim(f->slab);
  expect_fence(f->supply.last_give_fence, 1, 9);
}

// A kept empty span is as good as its fence: another stream takes a new one first.
VTEST_F(SlabStreams, TheKeptSpanIsForItsStream, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, SIZE, offsets, 8);
  for (size_t i = 0; i < 8; i++) rig_free(f, offsets[i], fence_of(0, i + 1));
  for (uint64_t i = 0; i < 8; i++) VEXPECT_UINT_EQ(rig_alloc_on(f, SIZE, 1).offset, RIG_BASE + (8 + i) * SIZE);
  VEXPECT_UINT_EQ(rig_alloc(f, SIZE), RIG_BASE);
}

// The look is bounded: a stream that can use only the emptiest spans still finds those.
VTEST_F(SlabStreams, ManySpansOfAnotherStream, slab_rig) {
  uint64_t offsets[40 * 8];
  rig_alloc_many(f, SIZE, offsets, 40 * 8);
  for (size_t span = 0; span < 40; span++) rig_free(f, offsets[span * 8], fence_of(0, span + 1));
  for (size_t i = 0; i < 7; i++) rig_free(f, offsets[20 * 8 + 1 + i], fence_of(1, 100 + i));
  vmp_placed placed = rig_alloc_on(f, SIZE, 1);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  VEXPECT_UINT_EQ((placed.offset - RIG_BASE) / (512 * KIB), 20);
  VEXPECT_UINT_EQ(f->supply.takes, 40);
}
