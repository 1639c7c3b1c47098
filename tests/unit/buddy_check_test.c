// buddy_check_test.c: the check of buddy notices each corruption, with one sentence. Each test breaks one thing.
#include "pool/buddy_internal.h"
#include "tests/unit/buddy_rig.h"

static void expect_fault(rig *f, const char *part) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_buddy_check(f->buddy, &report), 1);
  VEXPECT_ONE_FAULT(&faults, part);
}

static vmp_buddy_node *at_slot(rig *f, uint64_t slot) {
  return vmp_buddy_at(f->buddy, vmp_buddy_holding(f->buddy, slot));
}

// The layout that is broken: block 0+64, free 64+64, free 128+128, piece 256+128, free 384+128.
typedef rig broken;
static void broken_setup(broken *f) {
  uint64_t offset, bytes;
  vmp_fence fence;
  rig_setup(f);
  (void)take(f, 128 * MIB, 0);
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 256 * MIB, SLOT, true, &offset, &bytes, &fence));
  vmp_buddy_free(f->buddy, offset, VMP_FENCE_NONE);
  VASSERT_OK(vmp_buddy_take_piece(f->buddy, 256 * MIB, 512 * MIB, true, &offset, &bytes, &fence));
  expect_layout(f, "block 0+64, free 64+64, free 128+128, piece 256+128, free 384+128");
  rig_check(f);
}
static void broken_teardown(broken *f) {  // it stays broken: no check here
  vmp_buddy_destroy(f->buddy);
  vmp_fake_destroy(f->fake);
}

VTEST_F(BuddyCheck, Kind, broken) {
  at_slot(f, 256)->kind = 7;
  expect_fault(f, "what is at slot 256 is neither free nor used");
}

VTEST_F(BuddyCheck, Gap, broken) {
  at_slot(f, 0)->tree.size = 32;
  expect_fault(f, "something begins at slot 64, but the one before ends at 32");
}

VTEST_F(BuddyCheck, Overlap, broken) {
  at_slot(f, 0)->tree.size = 65;
  expect_fault(f, "something begins at slot 128, but the one before ends at 65");
}

VTEST_F(BuddyCheck, ImpossibleLength, broken) {
  at_slot(f, 256)->tree.size = 0;
  expect_fault(f, "what is at slot 256 has an impossible length");
}

VTEST_F(BuddyCheck, OutOfItsRange, broken) {
  at_slot(f, 384)->tree.size = 8;  // 256 slots where 128 are left
  expect_fault(f, "what is at slot 384 reaches out of its range");
}

VTEST_F(BuddyCheck, MissingAtTheEnd, broken) {
  vmp_buddy *b = f->buddy;
  vmp_tree_remove(&b->nodes, VMP_TREE_BY_OFFSET, &b->by_place, vmp_buddy_holding(b, 384));
  expect_fault(f, "nothing is known of slot 384");
}

VTEST_F(BuddyCheck, MissingInTheMiddle, broken) {
  vmp_buddy *b = f->buddy;
  vmp_tree_remove(&b->nodes, VMP_TREE_BY_OFFSET, &b->by_place, vmp_buddy_holding(b, 64));
  expect_fault(f, "something begins at slot 128, but the one before ends at 64");
}

VTEST_F(BuddyCheck, Misaligned, broken) {
  // A used run of 64 at 0 and of 65 at 64 would begin at a multiple of 64, not of 128; the block behind it gives one
  // up.
  vmp_buddy *b = f->buddy;
  uint32_t first = vmp_buddy_holding(b, 64), second = vmp_buddy_holding(b, 128);
  vmp_tree_remove(&b->nodes, VMP_TREE_BY_SIZE, &b->by_order, first);
  vmp_tree_remove(&b->nodes, VMP_TREE_BY_SIZE, &b->by_order, second);
  at_slot(f, 64)->kind = VMP_BUDDY_PIECE;  // a block may lie anywhere: it may have grown
  vmp_buddy_at(b, first)->tree.size = 192 - 64;
  vmp_buddy_at(b, second)->tree.offset = 192;
  vmp_buddy_at(b, second)->tree.size = 6;
  vmp_tree_insert(&b->nodes, VMP_TREE_BY_SIZE, &b->by_order, second);
  b->free_by_order[7]--;
  b->free_slots -= 128;
  b->piece_slots += 128;
  b->pieces++;
  b->nodes.promised += vmp_buddy_promised_nodes(64, 128);
  expect_fault(f, "what is at slot 64 is not aligned to its size");
}

VTEST_F(BuddyCheck, FreeBlockMissingFromTheOrders, broken) {
  vmp_buddy *b = f->buddy;
  vmp_tree_remove(&b->nodes, VMP_TREE_BY_SIZE, &b->by_order, vmp_buddy_holding(b, 64));
  expect_fault(f, "the free block at slot 64 is not found by its order");
}

VTEST_F(BuddyCheck, UsedRunAmongTheOrders, broken) {
  vmp_buddy *b = f->buddy;
  vmp_tree_insert(&b->nodes, VMP_TREE_BY_SIZE, &b->by_order, vmp_buddy_holding(b, 256));
  expect_fault(f, "4 blocks are listed by order, but 3 are free");
}

VTEST_F(BuddyCheck, TreeOutOfOrder, broken) {
  at_slot(f, 64)->tree.offset = 600;
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_buddy_check(f->buddy, &report);
  VEXPECT_A_FAULT(&faults, "is out of order");
}

VTEST_F(BuddyCheck, HalvesThatShouldHaveMerged, rig) {
  uint64_t a = take(f, 512 * MIB, 1), b = take(f, 512 * MIB, 2);
  give(f, a, 1, 5);
  give(f, b, 2, 6);
  at_slot(f, 0)->fence.streams = 4;
  expect_fault(f, "the free halves at slots 0 and 256 have not merged");
  at_slot(f, 0)->fence.streams = 2;
}

VTEST_F(BuddyCheck, OverlappingRanges, broken) {
  VASSERT_OK(vmp_buddy_add(f->buddy, 2 * GIB, GIB));
  f->buddy->ranges[1].slot = 511;
  expect_fault(f, "the range at slot 511 overlaps the one before");
}

VTEST_F(BuddyCheck, LeakedNode, broken) {
  (void)vmp_node_take(&f->buddy->nodes);
  expect_fault(f, "5 blocks and runs, but 6 nodes are used");
}

VTEST_F(BuddyCheck, Promises, broken) {
  f->buddy->nodes.promised++;
  expect_fault(f, "1 nodes are promised to runs that will need 0");
}

VTEST_F(BuddyCheck, NodePoolIsChecked, broken) {
  f->buddy->nodes.used++;
  expect_fault(f, "buddy nodes: 6 nodes are used and 5 were touched");
}

VTEST_F(BuddyCheck, Parted, broken) {
  f->buddy->parted++;
  expect_fault(f, "0 pairs of free halves are kept apart, but 1 are counted");
}

VTEST_F(BuddyCheck, AddedSlots, broken) {
  f->buddy->added_slots++;
  expect_fault(f, "512 slots were added, but 513 are counted");
}

VTEST_F(BuddyCheck, SlotSums, broken) {
  f->buddy->free_slots++;
  expect_fault(f, "320 + 64 + 128 slots are free, in blocks, in pieces, but 321 + 64 + 128 are counted");
  f->buddy->free_slots--;
  f->buddy->block_slots++;
  expect_fault(f, "320 + 64 + 128 slots are free, in blocks, in pieces, but 320 + 65 + 128 are counted");
  f->buddy->block_slots--;
  f->buddy->piece_slots++;
  expect_fault(f, "320 + 64 + 128 slots are free, in blocks, in pieces, but 320 + 64 + 129 are counted");
}

VTEST_F(BuddyCheck, Counts, broken) {
  f->buddy->blocks++;
  expect_fault(f, "1 blocks and 1 pieces, but 2 and 1 are counted");
  f->buddy->blocks--;
  f->buddy->pieces++;
  expect_fault(f, "1 blocks and 1 pieces, but 1 and 2 are counted");
}

VTEST_F(BuddyCheck, FreeByOrder, broken) {
  f->buddy->free_by_order[3]++;
  expect_fault(f, "0 free blocks of order 3, but 1 are counted");
}
