// mid_check_test.c: the check of mid notices each corruption, with one sentence. Each test breaks one thing.
// (What range sets and node pools say is tested in range_set_test.c and node_pool_test.c.)
#include "pool/mid_internal.h"
#include "tests/unit/mid_rig.h"

// The layout that is broken, in MiB: block 0+2, free 2+2, block 4+2, block 6+2, block 8+2, free 10+246. The blocks are
// mapped, and so is 2+2; 10+246 is bare.
typedef rig broken;
static void broken_setup(broken *f) {
  rig_setup(f);
  uint64_t blocks[5];
  for (int i = 0; i < 5; i++) blocks[i] = take(f, SLOT);
  give_on(f, blocks[1], 1, 5);
  expect_layout(f, "block 0+2, free 2+2, block 4+2, block 6+2, block 8+2, free 10+246");
  rig_check(f);
}
static void broken_teardown(broken *f) {  // it stays broken: no check here
  vmp_mid_destroy(f->mid);
  vmp_fake_destroy(f->fake);
}

static void expect_fault(rig *f, const char *part) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_mid_check(f->mid, &report), 1);
  VEXPECT_ONE_FAULT(&faults, part);
}

static uint32_t index_at(rig *f, uint64_t offset) {
  return vmp_mid_index_find(f->mid, vmp_mid_arena_of(f->mid, offset), offset);
}
static vmp_mid_piece *at(rig *f, uint64_t offset) { return vmp_mid_piece_at(f->mid, index_at(f, offset)); }

// ---- the list of pieces ----
VTEST_F(MidCheck, PieceLeadsAstray, broken) {
  at(f, 4 * MIB)->next = 9999;
  expect_fault(f, "the pieces of the arena at 0 are a cycle or lead astray");
}

VTEST_F(MidCheck, PieceKind, broken) {
  at(f, 4 * MIB)->kind = 7;
  expect_fault(f, "the piece at 0x400000 is neither used nor free");
}

VTEST_F(MidCheck, PieceLeadsBackWrong, broken) {
  at(f, 4 * MIB)->prev = index_at(f, 0);
  expect_fault(f, "the piece at 0x400000 doesn't lead back to the one before");
}

VTEST_F(MidCheck, Gap, broken) {
  at(f, 4 * MIB)->bytes -= 512;
  expect_fault(f, "a piece begins at 0x600000, but the one before ends at 0x5ffe00");
}

VTEST_F(MidCheck, NoMultipleOfTheStep, broken) {
  at(f, 4 * MIB)->bytes += 1;
  expect_fault(f, "the piece at 0x400000 has 2097153 bytes, no multiple of the step");
}

VTEST_F(MidCheck, EmptyPiece, broken) {
  at(f, 4 * MIB)->bytes = 0;
  expect_fault(f, "the piece at 0x400000 has 0 bytes");
}

VTEST_F(MidCheck, ArenaEndsElsewhere, broken) {
  at(f, 10 * MIB)->bytes -= SLOT;
  expect_fault(f, "the pieces of the arena at 0 end at 0xfe00000");
}

VTEST_F(MidCheck, LikePartsThatTouch, broken) {
  // Two parts of different streams, and then of the same.
  give_on(f, 4 * MIB, 2, 6);
  rig_check(f);
  at(f, 4 * MIB)->fence.streams = 2;
  expect_fault(f, "the parts that touch at 0x400000 are alike");
}

// ---- the index ----
VTEST_F(MidCheck, IndexForgetsAStart, broken) {
  vmp_mid_pages *pages = f->mid->arenas[0]->sectors[0].pages;
  pages->entries[4 * MIB >> VMP_MID_PAGE_LOG2] = 0;
  expect_fault(f, "the index is wrong about the page that ends at 0x800000");
}

VTEST_F(MidCheck, IndexBits, broken) {
  vmp_mid_pages *pages = f->mid->arenas[0]->sectors[0].pages;
  pages->starts[0] ^= 2;  // page 1: 4..8 MiB
  expect_fault(f, "the index is wrong about the page that ends at 0x800000");
  pages->starts[0] ^= 2;
  pages->words ^= 1;
  expect_fault(f, "the index is wrong about the 64 pages up to 0x10000000");
  pages->words ^= 1;
  pages->words ^= 2;  // 256..512 MiB: a bit without a page
  expect_fault(f, "the index is wrong about the 64 pages up to 0x20000000");
  pages->words ^= 2;
  pages->entries[2] += VMP_MID_ENTRY_ONE;
  expect_fault(f, "the index is wrong about the page that ends at 0xc00000");
  pages->entries[2] = pages->entries[0];
  expect_fault(f, "the index is wrong about the page that ends at 0xc00000");
}

VTEST(MidCheck, IndexCover) {
  rig f = {.fake = NULL};
  rig_start(&f, &(vmp_fake_options){.slots = 16384}, &(vmp_mid_options){.arena_bytes = 32 * GIB});
  uint64_t low = take(&f, 8 * MIB);
  rig_check(&f);
  f.mid->arenas[0]->sectors[1].cover = index_at(&f, low);
  expect_fault(&f, "the index is wrong about the piece that covers 0x100000000");
  broken_teardown(&f);
}

// Many pieces in the page of 0..4 MiB, which gets a table of lines.
static vmp_mid_lines *crowd(rig *f) {
  for (int i = 0; i < 16; i++) (void)take(f, 128 * KIB);
  rig_check(f);
  uint32_t entry = f->mid->arenas[0]->sectors[0].pages->entries[0];
  VEXPECT_TRUE((entry & VMP_MID_ENTRY_LINES) != 0);
  return f->mid->tables.at[entry & ~VMP_MID_ENTRY_LINES];
}

VTEST_F(MidCheck, IndexLines, broken) {
  vmp_mid_lines *lines = crowd(f);
  uint32_t first = lines->first[34];
  lines->first[34] = 0;
  expect_fault(f, "the index is wrong about the line that ends at 0x230000");
  lines->first[34] = first;
  lines->starts ^= UINT64_C(1) << 33;
  expect_fault(f, "the index is wrong about the line that ends at 0x220000");
  lines->starts ^= UINT64_C(1) << 33;
  uint32_t *entry = &f->mid->arenas[0]->sectors[0].pages->entries[0], kept = *entry;
  *entry = index_at(f, 0) | VMP_MID_ENTRY_MORE;  // a page that forgets its table
  expect_fault(f, "the index has 0 tables of lines, but 1 are used");
  *entry = kept | 7;
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_GT(vmp_mid_check(f->mid, &report), 0);
  VEXPECT_A_FAULT(&faults, "the index leads to table 7 of lines, which doesn't exist");
  *entry = kept;
}

VTEST_F(MidCheck, IndexLinesWithoutAPiece, broken) {
  vmp_mid_pages *pages = f->mid->arenas[0]->sectors[0].pages;
  vmp_mid_tables *tables = &f->mid->tables;
  uint32_t number = tables->unused[--tables->num_unused];
  tables->at[number] = vmp_mem_calloc(1, sizeof(vmp_mid_lines));
  VASSERT_NOT_NULL(tables->at[number]);
  pages->entries[20] = number | VMP_MID_ENTRY_LINES;  // 80..84 MiB: nothing begins there
  pages->starts[0] |= 1 << 20;
  expect_fault(f, "the table of lines of the page at 0x5000000 is empty");
}

// ---- extents, parts and runs ----
VTEST_F(MidCheck, FreePieceWithoutAMixedExtent, broken) {
  vmp_ranges_remove(&f->mid->mixed, 10 * MIB, 246 * MIB);
  expect_fault(f, "the free pieces from 0xa00000 to 0x10000000 are no mixed extent");
}

VTEST_F(MidCheck, MixedExtentTooSmall, broken) {
  vmp_ranges_remove(&f->mid->mixed, 100 * MIB, 156 * MIB);
  expect_fault(f, "the free pieces from 0xa00000 to 0x10000000 are no mixed extent");
}

VTEST_F(MidCheck, MixedExtentWhereNothingIsFree, broken) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->mid->ranges, 1));
  vmp_ranges_add(&f->mid->mixed, 6 * MIB, 2 * MIB, 0, UINT64_MAX);
  expect_fault(f, "1 mixed extents lie where nothing is free or all is mapped");
}

VTEST_F(MidCheck, MixedExtentThatIsWhollyMapped, broken) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->mid->ranges, 1));
  vmp_ranges_add(&f->mid->mixed, 2 * MIB, 2 * MIB, 0, UINT64_MAX);
  expect_fault(f, "1 mixed extents lie where nothing is free or all is mapped");
}

VTEST_F(MidCheck, ExtentSum, broken) {
  f->mid->extents++;
  expect_fault(f, "there are 2 extents, but 3 are counted");
}

VTEST_F(MidCheck, MappedPartThatSaysItIsBare, broken) {
  vmp_mid_runs_leave(f->mid, index_at(f, 2 * MIB));
  at(f, 2 * MIB)->kind = VMP_MID_BARE;
  VASSERT_TRUE(vmp_node_pool_reserve(&f->mid->ranges, 1));
  vmp_ranges_add(&f->mid->mixed, 2 * MIB, 2 * MIB, 0, UINT64_MAX);
  expect_fault(f, "0x200000 to 0x400000 is free and mapped, but its part says otherwise");
}

// lie_about_10 says that what is free behind 10 MiB is mapped.
static void lie_about_10(rig *f) {
  vmp_ranges_remove(&f->mid->mixed, 10 * MIB, 246 * MIB);
  at(f, 10 * MIB)->kind = VMP_MID_MAPPED;
  vmp_mid_runs_enter(f->mid, index_at(f, 10 * MIB), index_at(f, 10 * MIB));
}

VTEST_F(MidCheck, BarePartThatSaysItIsMapped, broken) {
  lie_about_10(f);
  expect_fault(f, "0xa00000 to 0x10000000 is free and not mapped, but its part says otherwise");
}

VTEST_F(MidCheck, RunEndsThatNameOthers, broken) {
  give_on(f, 4 * MIB, 3, 6);  // a run of two parts
  rig_check(f);
  uint32_t head = index_at(f, 2 * MIB), tail = index_at(f, 4 * MIB);
  at(f, 4 * MIB)->run_end = tail;
  expect_fault(f, "the ends of the run at 0x200000 don't name each other");
  at(f, 4 * MIB)->run_end = head;
  rig_check(f);
}

VTEST_F(MidCheck, RunOutsideOfItsTree, broken) {
  vmp_mid_runs_leave(f->mid, index_at(f, 2 * MIB));
  f->mid->runs.bytes += 2 * MIB;
  expect_fault(f, "0 runs are in the trees and 0 counted, but there are 1");
}

VTEST_F(MidCheck, RunCount, broken) {
  f->mid->runs.count++;
  expect_fault(f, "1 runs are in the trees and 2 counted, but there are 1");
}

VTEST_F(MidCheck, RunBytes, broken) {
  f->mid->runs.bytes++;
  expect_fault(f, "the runs hold 2097152 bytes, but 2097153 are counted");
}

VTEST_F(MidCheck, RunTrees, broken) {
  // Two runs of one size: 2+2 and 6+2.
  give_on(f, 6 * MIB, 1, 6);
  rig_check(f);
  uint32_t low = index_at(f, 2 * MIB), high = index_at(f, 6 * MIB);
  unsigned class = vmp_mid_class(2 * MIB);
  uint32_t *root = &f->mid->runs.roots[class], kept = *root;
  vmp_mid_piece *top = vmp_mid_piece_at(f->mid, *root);
  uint32_t links[2] = {top->links[0], top->links[1]};
  VASSERT_TRUE(kept == low || kept == high);
  f->mid->runs.classes[class / 64] ^= UINT64_C(1) << (class % 64);
  expect_fault(f, "mid runs: the bitmap is wrong about size class 1280");
  f->mid->runs.classes[class / 64] ^= UINT64_C(1) << (class % 64);
  f->mid->runs.words[class / 64 / 64] ^= UINT64_C(1) << (class / 64 % 64);
  expect_fault(f, "mid runs: the bitmap is wrong about size class 1280");
  f->mid->runs.words[class / 64 / 64] ^= UINT64_C(1) << (class / 64 % 64);
  top->links[0] = links[1];
  top->links[1] = links[0];
  expect_fault(f, "is out of order");
  top->links[0] = links[0];
  top->links[1] = links[1];
  *root = index_at(f, 0);
  expect_fault(f, "begins no run");
  *root = kept;
  top->links[links[0] == 0 ? 0 : 1] = 9999;
  expect_fault(f, "a link leads to node 9999, which begins no run");
  top->links[links[0] == 0 ? 0 : 1] = 0;
  rig_check(f);
  uint32_t below = kept == low ? high : low;
  *root = below;
  vmp_mid_piece_at(f->mid, below)->links[below == low ? 1 : 0] = kept;
  top->links[0] = top->links[1] = 0;
  expect_fault(f, "of higher priority");
}

VTEST_F(MidCheck, RunInAnotherClass, broken) {
  uint32_t head = index_at(f, 2 * MIB);
  vmp_mid_runs_leave(f->mid, head);
  at(f, 2 * MIB)->bytes = MIB;  // while it enters
  vmp_mid_runs_enter(f->mid, head, head);
  at(f, 2 * MIB)->bytes = 2 * MIB;
  f->mid->runs.bytes += MIB;
  expect_fault(f, "mid runs: the run at 0x200000 is in size class 1024");
}

VTEST_F(MidCheck, ATreeOfRunsWithACycle, broken) {
  uint32_t head = index_at(f, 2 * MIB);
  at(f, 2 * MIB)->links[0] = head;
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_GT(vmp_mid_check(f->mid, &report), 0);
  VEXPECT_A_FAULT(&faults, "mid runs: a tree has a cycle");
}

VTEST_F(MidCheck, PartsNeedNotBeRightWhileStale, broken) {
  lie_about_10(f);
  vmp_mem_fail_after(0, UINT64_MAX);
  f->mid->stale = true;
  f->mid->ranges.promised = f->mid->ranges.capacity - f->mid->ranges.used;  // no node to be had
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_mid_check(f->mid, &report);
  vmp_mem_fail_after(0, 0);
  VEXPECT_TRUE(f->mid->stale);
  VEXPECT_ONE_FAULT(&faults, "promised");
  f->mid->ranges.promised = 0;
  rig_check(f);  // and with a node it is made up for
}

// Runs that say more than is mapped do no harm: a place is looked at before it is taken.
VTEST_F(MidCheck, WrongRunsAreNotBelieved, broken) {
  lie_about_10(f);
  vmp_request request = {.bytes = 8 * MIB, .alignment = 512, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  uint64_t claims = vmp_fake_get_counts(f->fake)->claims;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, claims);
}

// ---- sums ----
VTEST_F(MidCheck, BlockSums, broken) {
  f->mid->blocks++;
  expect_fault(f, "4 blocks hold 8388608 bytes, but 5 and 8388608 are counted");
  f->mid->blocks--;
  f->mid->block_bytes++;
  expect_fault(f, "4 blocks hold 8388608 bytes, but 4 and 8388609 are counted");
}

VTEST_F(MidCheck, ArenaSum, broken) {
  f->mid->arena_bytes++;
  expect_fault(f, "the arenas hold 268435456 bytes, but 268435457 are counted");
}

VTEST_F(MidCheck, LeakedNodes, broken) {
  uint32_t leaked = vmp_node_take(&f->mid->pieces);
  expect_fault(f, "the arenas have 6 pieces, but 7 nodes are used");
  vmp_node_give(&f->mid->pieces, leaked);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->mid->ranges, 1));
  (void)vmp_node_take(&f->mid->ranges);
  expect_fault(f, "there are 1 mixed extents, but 2 nodes are used and 0 promised");
}

VTEST_F(MidCheck, Promises, broken) {
  f->mid->ranges.promised++;
  expect_fault(f, "there are 1 mixed extents, but 1 nodes are used and 1 promised");
}

VTEST_F(MidCheck, NodePoolsAndRangeSetsAreChecked, broken) {
  f->mid->pieces.used--;
  expect_fault(f, "mid pieces: ");
  f->mid->pieces.used++;
  uint32_t ranges = f->mid->ranges.used;
  f->mid->ranges.used = f->mid->ranges.touched + 1;
  expect_fault(f, "mid ranges: ");
  f->mid->ranges.used = ranges;
  f->mid->mixed.bytes++;
  expect_fault(f, "mid mixed extents: ");
}

VTEST(MidCheck, OverlappingArenas) {
  rig f = {.fake = NULL};
  f.arenas.gap_bytes = 16 * MIB;
  rig_start(&f, &(vmp_fake_options){.slots = 512}, &(vmp_mid_options){.arena_bytes = 64 * MIB});
  (void)take(&f, 64 * MIB);
  (void)take(&f, 64 * MIB);
  rig_check(&f);
  vmp_mid_arena *first = f.mid->arenas[0];
  f.mid->arenas[0] = f.mid->arenas[1];
  f.mid->arenas[1] = first;
  expect_fault(&f, "the arena at 0 overlaps the one before");
  broken_teardown(&f);
}
