// mid_check_test.c: the check of mid notices each corruption, with one sentence. Each test breaks one thing.
// (What the range sets and node pools say is tested in range_set_test.c and node_pool_test.c.)
#include "pool/mid_internal.h"
#include "tests/unit/mid_rig.h"

// The layout that is broken, in MiB: block 0+2, free 2+2, block 4+2, block 6+2, block 8+2, free 10+246. The blocks are
// mapped, and so is 2+2.
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
  expect_fault(f, "the parts that touch at 0x400000 have fences of the same streams");
}

// ---- the index ----
VTEST_F(MidCheck, IndexForgetsAStart, broken) {
  vmp_mid_pages *pages = f->mid->arenas[0]->sectors[0].pages;
  pages->first[4 * MIB >> VMP_MID_PAGE_LOG2] = 0;
  expect_fault(f, "the index is wrong about the page that ends at 0x408000");
}

VTEST_F(MidCheck, IndexBits, broken) {
  vmp_mid_pages *pages = f->mid->arenas[0]->sectors[0].pages;
  uint64_t page = 4 * MIB >> VMP_MID_PAGE_LOG2;  // 128: the first one of word 2
  pages->starts[2] ^= 2;                         // page 129
  expect_fault(f, "the index is wrong about the page that ends at 0x410000");
  pages->starts[2] ^= 2;
  pages->words ^= 4;
  expect_fault(f, "the index is wrong about the 64 pages up to 0x600000");
  pages->words ^= 4;
  pages->words ^= 1 << 10;  // 20..22 MiB: a bit without a page
  expect_fault(f, "the index is wrong about the 64 pages up to 0x1600000");
  pages->words ^= 1 << 10;
  pages->first[page] = pages->first[0];
  expect_fault(f, "the index is wrong about the page that ends at 0x408000");
}

VTEST_F(MidCheck, IndexCover, broken) {
  f->mid->arenas[0]->sectors[1].cover = index_at(f, 8 * MIB);
  expect_fault(f, "the index is wrong about the piece that covers 0x8000000");
}

// ---- extents and runs ----
VTEST_F(MidCheck, FreePieceWithoutAnExtent, broken) {
  vmp_ranges_remove(&f->mid->extents, 2 * MIB, 2 * MIB);
  expect_fault(f, "the free pieces from 0x200000 to 0x400000 are no extent");
}

VTEST_F(MidCheck, ExtentTooSmall, broken) {
  vmp_ranges_remove(&f->mid->extents, 100 * MIB, 156 * MIB);
  expect_fault(f, "the free pieces from 0xa00000 to 0x10000000 are no extent");
}

VTEST_F(MidCheck, ExtentWhereNothingIsFree, broken) {
  vmp_ranges_add(&f->mid->extents, 6 * MIB, 2 * MIB, 0, UINT64_MAX);
  expect_fault(f, "1 extents lie where nothing is free");
}

VTEST_F(MidCheck, MappedPartWithoutARun, broken) {
  vmp_ranges_remove(&f->mid->runs, 2 * MIB, 512);
  expect_fault(f, "0x200000 to 0x400000 is free and mapped, but no run");
}

VTEST_F(MidCheck, RunWhereNothingIsMapped, broken) {
  vmp_ranges_add(&f->mid->runs, 100 * MIB, 2 * MIB, 0, UINT64_MAX);
  expect_fault(f, "1 runs lie where nothing is free and mapped");
}

VTEST_F(MidCheck, RunsNeedNotBeCompleteWhileStale, broken) {
  vmp_ranges_remove(&f->mid->runs, 2 * MIB, 512);
  vmp_mem_fail_after(0, UINT64_MAX);
  f->mid->stale = true;
  f->mid->ranges.promised = f->mid->ranges.capacity - f->mid->ranges.used;  // no node to be had
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_mid_check(f->mid, &report);
  vmp_mem_fail_after(0, 0);
  VEXPECT_TRUE(f->mid->stale);
  VEXPECT_ONE_FAULT(&faults, "range nodes are promised to 4 blocks");
}

// Runs that say more than is mapped do no harm: a place is looked at before it is taken.
VTEST_F(MidCheck, WrongRunsAreNotBelieved, broken) {
  vmp_ranges_add(&f->mid->runs, 100 * MIB, 8 * MIB, 0, UINT64_MAX);
  vmp_request request = {.bytes = 8 * MIB, .alignment = 512, .effort = VMP_EFFORT_MAPPED};
  vmp_placed placed;
  uint64_t claims = vmp_fake_get_counts(f->fake)->claims;
  VEXPECT_STATUS(vmp_mid_alloc(f->mid, &request, NULL, &placed), VMP_ERROR_BUSY);
  VEXPECT_UINT_EQ(vmp_fake_get_counts(f->fake)->claims, claims);
}

// ---- sums ----
VTEST_F(MidCheck, BlockSums, broken) {
  f->mid->blocks++;
  f->mid->ranges.promised += VMP_MID_PROMISED_RANGES;
  expect_fault(f, "4 blocks hold 8388608 bytes, but 5 and 8388608 are counted");
  f->mid->blocks--;
  f->mid->ranges.promised -= VMP_MID_PROMISED_RANGES;
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
  (void)vmp_node_take(&f->mid->ranges);
  expect_fault(f, "there are 3 extents and runs, but 4 nodes are used");
}

VTEST_F(MidCheck, Promises, broken) {
  f->mid->ranges.promised++;
  expect_fault(f, "9 range nodes are promised to 4 blocks");
}

VTEST_F(MidCheck, NodePoolsAndRangeSetsAreChecked, broken) {
  f->mid->pieces.used--;
  expect_fault(f, "mid pieces: ");
  f->mid->pieces.used++;
  f->mid->ranges.used--;
  expect_fault(f, "mid ranges: ");
  f->mid->ranges.used++;
  f->mid->extents.bytes++;
  expect_fault(f, "mid extents: ");
  f->mid->extents.bytes--;
  f->mid->runs.bytes++;
  expect_fault(f, "mid runs: ");
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
