// backing_check_test.c: the checker notices each corruption: one thing is changed behind backing's back, the check must
// say so, and the change is taken back. An emptied checker would fail every test here.
#include "tests/support/faults.h"
#include "tests/vmm/backing_rig.h"
#include "vmm/backing_internal.h"

static void rig_setup(rig *f) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 16 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));        // slots 0..3 live
  VASSERT_OK(rig_claim(f, 8 * MIB, 8 * MIB, 0, NULL));  // slots 4..7 parked
  rig_release(f, 8 * MIB, 8 * MIB, vmp_clock_fence(f->clock, 0));
}
static void rig_teardown(rig *f) {
  if (f->backing == NULL) return;
  rig_check(f);
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
  rig_close(f);
}

static vtest_faults check(rig *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  size_t reported = vmp_backing_check(f->backing, &report);
  VEXPECT_UINT_EQ(reported, faults.count);
  return faults;
}

// group_at: the word of the group that holds a slot. word_at: the slot's own, which its group gets.
static uint32_t *group_at(rig *f, uint64_t slot) {
  return &f->backing->reservations[0].leaves[slot / LEAF_SLOTS][slot % LEAF_SLOTS / GROUP_SLOTS];
}
static uint32_t *word_at(rig *f, uint64_t slot) {
  uint64_t first = f->backing->reservations[0].first_slot;
  if (!backing_prepare_details(f->backing, first + slot, 1)) VADD_FAILURE("no host memory");
  return &backing_detail(f->backing, *group_at(f, slot) & WORD_INDEX)->words[slot % GROUP_SLOTS];
}

static chunk *first_chunk(rig *f) { return backing_chunk(f->backing, *word_at(f, 0) & WORD_INDEX); }

#define CORRUPT(f, lvalue, value, sentence) \
  do {                                      \
    __typeof__(lvalue) kept = (lvalue);     \
    (lvalue) = (value);                     \
    vtest_faults faults = check(f);         \
    VEXPECT_A_FAULT(&faults, sentence);     \
    (lvalue) = kept;                        \
  } while (0)

VTEST_F(BackingCheck, AConsistentBackingHasNoFaults, rig) {
  vtest_faults faults = check(f);
  VEXPECT_NO_FAULTS(&faults);
}

VTEST_F(BackingCheck, TheSlotTable, rig) {
  CORRUPT(f, *word_at(f, 0), 0u, "which doesn't name it");
  CORRUPT(f, *word_at(f, 0), *word_at(f, 1), "whose home is slot");
  CORRUPT(f, *word_at(f, 0), WORD_HOME | 4000u, "which does not exist");
  CORRUPT(f, *word_at(f, 9), WORD_PLACE | 4000u, "place 4000, which does not exist");
  CORRUPT(f, f->backing->reservations[0].high_slot, f->backing->reservations[0].first_slot, "above the high slot");
}

VTEST_F(BackingCheck, TheDetailsOfGroups, rig) {
  (void)word_at(f, 0);
  CORRUPT(f, *group_at(f, 0), WORD_DETAIL | 4000u, "has detail 4000, which does not exist");
  CORRUPT(f, *group_at(f, 0), WORD_DETAIL, "has detail 0, which does not exist");
  CORRUPT(f, *group_at(f, 0), 0u, "and 1 are used");
}

VTEST_F(BackingCheck, WhatCanBeSeenAtAGlance, rig) {
  CORRUPT(f, f->backing->chunks.parked_orders, 0, "the bit of the parked lists of order 0 is wrong");
  CORRUPT(f, f->backing->chunks.parked_orders, 3, "the bit of the parked lists of order 1 is wrong");
  CORRUPT(f, f->backing->chunks.parked_bits[0], 0, "is in state 2, and its bit says otherwise");
  CORRUPT(f, f->backing->chunks.parked_bits[0], UINT64_MAX, "is in state 1, and its bit says otherwise");
  CORRUPT(f, f->backing->chunks.parked_words, 0, "and its bit says otherwise");
  CORRUPT(f, f->backing->chunks.num_moved, 1, "0 chunks were moved under work, but 1 are counted");
  CORRUPT(f, first_chunk(f)->moved, ((vmp_fence){1, 1}), "1 chunks were moved under work, but 0 are counted");
}

VTEST_F(BackingCheck, ChunksAndTheirStates, rig) {
  CORRUPT(f, first_chunk(f)->live, 0u, "has 0 live claims in state live");
  CORRUPT(f, first_chunk(f)->state, (uint8_t)CHUNK_SPARE, "is called spare");
  CORRUPT(f, first_chunk(f)->home, first_chunk(f)->home + 1, "whose home is slot");
  CORRUPT(f, first_chunk(f)->aliases, 2u, "counts 2 old places and has 0");
  chunk *parked = backing_chunk(f->backing, f->backing->chunks.parked[0].head);
  CORRUPT(f, parked->live, 1u, "in the parked list is in state");
  CORRUPT(f, parked->order, (uint8_t)1, "is in the parked list of order 0");
  CORRUPT(f, parked->stamp, UINT64_MAX, "is out of order");
  chunk *second = backing_chunk(f->backing, parked->next);
  CORRUPT(f, second->prev, 0u, "has a wrong backward link");
}

VTEST_F(BackingCheck, Sums, rig) {
  CORRUPT(f, f->backing->chunks.parked_bytes, 0u, "parked_bytes is 0");
  CORRUPT(f, f->backing->chunks.spare_bytes, SLOT, "spare_bytes is");
  CORRUPT(f, f->backing->chunks.least_idle_bytes, 1000 * SLOT, "least_idle_bytes is");
  CORRUPT(f, f->backing->chunks.mapped_bytes, 0u, "mapped_bytes is 0");
  CORRUPT(f, f->backing->chunks.mapped_bytes, GIB, "exceed held");
  CORRUPT(f, f->backing->chunks.held_bytes, GIB, "held_bytes is");
  CORRUPT(f, f->backing->chunks.parked[0].count, 7u, "counts 7 and holds 4");
  CORRUPT(f, f->backing->chunks.released, f->backing->chunks.created + 1, "chunks were created");
  CORRUPT(f, f->backing->retiring.count, 3u, "the retiring list counts 3");
  CORRUPT(f, f->backing->broken.slots, 1u, "the broken list counts 0 places of 1 slots");
}

VTEST_F(BackingCheck, RetiringPlaces, rig) {
  VASSERT_OK(rig_claim(f, 128 * MIB, 4 * MIB, 0, NULL));  // takes slots 4 and 5
  place *old = backing_place(f->backing, f->backing->retiring.head);
  VEXPECT_UINT_EQ(f->backing->retiring.count, 2);
  CORRUPT(f, old->listed, (uint8_t)0, "is in list 0");
  CORRUPT(f, old->slot, old->slot + 7, "which lies at slot");
  CORRUPT(f, old->chunk, *word_at(f, 0) & WORD_INDEX, "old places and has");
  rig_release(f, 128 * MIB, 4 * MIB, VMP_FENCE_NONE);
}
