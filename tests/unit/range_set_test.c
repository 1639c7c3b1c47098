// range_set_test.c: coalescing sets of ranges and the trees under them, against hand-made cases and a plain array.
#include "pool/range_set.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"

#define NO_WALL 0, UINT64_MAX

typedef struct rig {
  vmp_node_pool nodes;
  vmp_range_set set;
} rig;

static void rig_setup(rig *f) {
  vmp_node_pool_init(&f->nodes, sizeof(vmp_range));
  vmp_ranges_init(&f->set, &f->nodes);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->nodes, 1000));
}
static void rig_teardown(rig *f) { vmp_node_pool_finish(&f->nodes); }

static void check(const vmp_range_set *set, vtest_faults *faults) {
  *faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(faults);
  vmp_ranges_check(set, "set", NULL, NULL, &report);
}

// expect_ranges compares the set with "offset+size offset+size ...", in order of place.
static void expect_ranges(const vmp_range_set *set, const char *expected) {
  char text[512] = "";
  size_t used = 0;
  for (uint32_t i = vmp_ranges_after(set, 0); i != 0; i = vmp_ranges_after(set, vmp_range_at(set, i)->offset + 1)) {
    const vmp_range *r = vmp_range_at(set, i);
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu+%llu", used == 0 ? "" : " ",
                             (unsigned long long)r->offset, (unsigned long long)r->size);
    VASSERT_UINT_LT(used, sizeof text);
  }
  VEXPECT_STR_EQ(text, expected);
  vtest_faults faults;
  check(set, &faults);
  VEXPECT_NO_FAULTS(&faults);
}

VTEST_F(RangeSet, CoalescesOnBothSides, rig) {
  vmp_ranges_add(&f->set, 100, 10, NO_WALL);
  vmp_ranges_add(&f->set, 120, 10, NO_WALL);
  expect_ranges(&f->set, "100+10 120+10");
  vmp_ranges_add(&f->set, 110, 10, NO_WALL);
  expect_ranges(&f->set, "100+30");
  vmp_ranges_add(&f->set, 90, 10, NO_WALL);
  vmp_ranges_add(&f->set, 130, 5, NO_WALL);
  expect_ranges(&f->set, "90+45");
  VEXPECT_UINT_EQ(f->set.count, 1);
  VEXPECT_UINT_EQ(f->set.bytes, 45);
  VEXPECT_UINT_EQ(f->nodes.used, 1);
}

VTEST_F(RangeSet, DoesNotCoalesceAcrossWalls, rig) {
  vmp_ranges_add(&f->set, 100, 10, 0, 110);
  vmp_ranges_add(&f->set, 110, 10, 110, 120);
  VEXPECT_UINT_EQ(f->set.count, 2);
  vtest_faults faults;
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "two ranges touch at 0x6e");  // the check was told of no wall
}

VTEST_F(RangeSet, RemovesAnyPart, rig) {
  vmp_ranges_add(&f->set, 100, 100, NO_WALL);
  vmp_ranges_remove(&f->set, 140, 20);
  expect_ranges(&f->set, "100+40 160+40");
  vmp_ranges_remove(&f->set, 90, 20);
  expect_ranges(&f->set, "110+30 160+40");
  vmp_ranges_remove(&f->set, 190, 100);
  expect_ranges(&f->set, "110+30 160+30");
  vmp_ranges_remove(&f->set, 130, 40);
  expect_ranges(&f->set, "110+20 170+20");
  vmp_ranges_remove(&f->set, 0, 1000);
  expect_ranges(&f->set, "");
  VEXPECT_UINT_EQ(f->nodes.used, 0);
  vmp_ranges_remove(&f->set, 0, 1000);
  expect_ranges(&f->set, "");
}

VTEST_F(RangeSet, FindsByPlace, rig) {
  vmp_ranges_add(&f->set, 100, 10, NO_WALL);
  VEXPECT_UINT_EQ(vmp_ranges_find(&f->set, 99), 0);
  VEXPECT_UINT_NE(vmp_ranges_find(&f->set, 100), 0);
  VEXPECT_UINT_NE(vmp_ranges_find(&f->set, 109), 0);
  VEXPECT_UINT_EQ(vmp_ranges_find(&f->set, 110), 0);
  VEXPECT_UINT_NE(vmp_ranges_after(&f->set, 100), 0);
  VEXPECT_UINT_EQ(vmp_ranges_after(&f->set, 101), 0);
}

// The best fit is the smallest range that is large enough, the lowest of those that are equal; sizes of all classes.
VTEST_F(RangeSet, BestFitRisesThroughAllClasses, rig) {
  static const uint64_t sizes[] = {512,
                                   1024,
                                   3584,
                                   4096,
                                   4608,
                                   8192,
                                   9216,
                                   65536,
                                   65536,
                                   1u << 20u,
                                   3u << 20u,
                                   1ull << 33u,
                                   (1ull << 33u) + 512,
                                   1ull << 45u};
  enum { N = sizeof sizes / sizeof sizes[0] };
  for (size_t i = 0; i < N; i++) vmp_ranges_add(&f->set, (uint64_t)i << 50u, sizes[i], NO_WALL);
  uint32_t index = vmp_ranges_fitting(&f->set, 1);
  for (size_t i = 0; i < N; i++) {
    VASSERT_UINT_NE(index, 0);
    VEXPECT_UINT_EQ(vmp_range_at(&f->set, index)->size, sizes[i]);
    VEXPECT_UINT_EQ(vmp_range_at(&f->set, index)->offset, (uint64_t)i << 50u);
    VEXPECT_UINT_EQ(vmp_ranges_fitting(&f->set, sizes[i]), i == 8 ? vmp_ranges_find(&f->set, 7ull << 50u) : index);
    index = vmp_ranges_next_larger(&f->set, index);
  }
  VEXPECT_UINT_EQ(index, 0);
  VEXPECT_UINT_EQ(vmp_ranges_fitting(&f->set, (1ull << 45u) + 1), 0);
  index = vmp_ranges_largest(&f->set);
  for (size_t i = N; i-- > 0;) {
    VASSERT_UINT_NE(index, 0);
    VEXPECT_UINT_EQ(vmp_range_at(&f->set, index)->offset, (uint64_t)i << 50u);
    index = vmp_ranges_next_smaller(&f->set, index);
  }
  VEXPECT_UINT_EQ(index, 0);
}

// Ranges of one size are one class, added in rising order: the tree must not become a list.
VTEST_F(RangeSet, TreesStayShallow, rig) {
  enum { N = 100000 };
  VASSERT_TRUE(vmp_node_pool_reserve(&f->nodes, N));
  for (uint64_t i = 0; i < N; i++) vmp_ranges_add(&f->set, i * 1024, 512, NO_WALL);
  unsigned deepest = 0;
  for (uint64_t i = 0; i < N; i += 97) {
    unsigned depth = 0;
    for (uint32_t at = f->set.by_offset; vmp_range_at(&f->set, at)->offset != i * 1024; depth++) {
      const vmp_range *r = vmp_range_at(&f->set, at);
      at = r->links[VMP_TREE_BY_OFFSET][r->offset < i * 1024];
    }
    if (depth > deepest) deepest = depth;
  }
  VEXPECT_UINT_LT(deepest, 60);  // log2 of 100,000 is 17; a treap's depth is about 1.4 to 3 times that
  vtest_faults faults;
  check(&f->set, &faults);
  VEXPECT_NO_FAULTS(&faults);
}

// ---- against a plain array ----
enum { CELLS = 400 };

static void expect_like_cells(const vmp_range_set *set, const bool *cells, const bool *walls) {
  uint64_t count = 0, bytes = 0;
  for (uint64_t i = 0; i < CELLS; i++) {
    if (!cells[i]) continue;
    uint64_t from = i, to = i + 1;
    while (to < CELLS && cells[to] && !walls[to]) to++;
    uint32_t index = vmp_ranges_find(set, from * 512);
    VASSERT_UINT_NE(index, 0);
    VASSERT_UINT_EQ(vmp_range_at(set, index)->offset, from * 512);
    VASSERT_UINT_EQ(vmp_range_at(set, index)->size, (to - from) * 512);
    count++;
    bytes += (to - from) * 512;
    i = to - 1;
  }
  VASSERT_UINT_EQ(set->count, count);
  VASSERT_UINT_EQ(set->bytes, bytes);
}

static void expect_best_fit_like_cells(const vmp_range_set *set, const bool *cells, uint64_t size) {
  uint64_t best = UINT64_MAX, at = 0;
  for (uint64_t i = 0; i < CELLS; i++) {
    if (!cells[i]) continue;
    uint64_t to = i + 1;
    while (to < CELLS && cells[to] && to != CELLS / 2) to++;
    if (to - i >= size && to - i < best) {
      best = to - i;
      at = i;
    }
    i = to - 1;
  }
  uint32_t index = vmp_ranges_fitting(set, size * 512);
  VASSERT_UINT_EQ(index != 0, best != UINT64_MAX);
  if (index != 0) VASSERT_UINT_EQ(vmp_range_at(set, index)->offset, at * 512);
}

static bool wall_in_the_middle(const void *context, uint64_t at) {
  (void)context;
  return at == CELLS / 2 * 512;
}

VTEST_F(RangeSet, RandomAgainstCells, rig) {
  vtest_rng rng = vtest_rng_make(vtest_seed(20240501));
  bool cells[CELLS] = {false}, walls[CELLS] = {false};
  walls[CELLS / 2] = true;
  uint64_t ops = vtest_ops(100000);
  for (uint64_t op = 0; op < ops; op++) {
    bool high = vtest_rng_chance(&rng, 1, 2);
    uint64_t low_wall = high ? CELLS / 2 : 0, high_wall = high ? CELLS : CELLS / 2;
    uint64_t from = vtest_rng_range(&rng, low_wall, high_wall - 1);
    uint64_t to = from + vtest_rng_log(&rng, 1, high_wall - from);
    if (vtest_rng_chance(&rng, 1, 2)) {
      while (to > from && cells[to - 1]) to--;
      uint64_t begin = to;
      while (begin > from && !cells[begin - 1]) begin--;
      if (begin == to) continue;
      vmp_ranges_add(&f->set, begin * 512, (to - begin) * 512, low_wall * 512, high_wall * 512);
      memset(cells + begin, true, to - begin);
    } else {
      vmp_ranges_remove(&f->set, from * 512, (to - from) * 512);
      memset(cells + from, false, to - from);
    }
    expect_best_fit_like_cells(&f->set, cells, vtest_rng_log(&rng, 1, CELLS));
    VASSERT_NO_FAILURE();
    if (op % 16 != 0) continue;
    VTRACE("operation %llu", (unsigned long long)op);
    expect_like_cells(&f->set, cells, walls);
    vtest_faults faults = vtest_faults_make();
    vmp_report report = vtest_faults_report(&faults);
    vmp_ranges_check(&f->set, "set", wall_in_the_middle, NULL, &report);
    VASSERT_NO_FAULTS(&faults);
    VASSERT_NO_FAILURE();
  }
}

// ---- the check notices each corruption ----
// Three ranges of one class: 0+512, 1024+512, 2048+512.
static void rig_fill(rig *f) {
  for (uint64_t i = 0; i < 3; i++) vmp_ranges_add(&f->set, i * 1024, 512, NO_WALL);
}

VTEST_F(RangeSetCheck, Bitmap, rig) {
  rig_fill(f);
  f->set.classes[0] |= 4;
  vtest_faults faults;
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "the bitmap is wrong about size class 2");
}

VTEST_F(RangeSetCheck, Sums, rig) {
  rig_fill(f);
  vtest_faults faults;
  f->set.bytes++;
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "the ranges hold 1536 bytes, but 1537 are counted");
  f->set.bytes--;
  f->set.count++;
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "3 ranges by place, 3 by size, 4 counted");
}

// resize changes a range as if that were right: its place by size, the bitmap and the sum follow. Sizes below 4096 are
// their own class.
static void resize(rig *f, uint64_t offset, uint64_t size) {
  uint32_t index = vmp_ranges_find(&f->set, offset);
  vmp_range *range = vmp_tree_at(&f->nodes, index);
  uint32_t *old_root = &f->set.by_size[range->size / 512], *new_root = &f->set.by_size[size / 512];
  vmp_tree_remove(&f->nodes, VMP_TREE_BY_SIZE, old_root, index);
  if (*old_root == 0) f->set.classes[0] &= ~(UINT64_C(1) << (range->size / 512));
  f->set.bytes += size - range->size;
  range->size = size;
  vmp_tree_insert(&f->nodes, VMP_TREE_BY_SIZE, new_root, index);
  f->set.classes[0] |= UINT64_C(1) << (size / 512);
}

VTEST_F(RangeSetCheck, OverlappingRanges, rig) {
  rig_fill(f);
  vtest_faults faults;
  resize(f, 0, 1536);  // to the end of the second
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "the range at 0x400 overlaps the one before");
}

VTEST_F(RangeSetCheck, TouchingRanges, rig) {
  rig_fill(f);
  vtest_faults faults;
  resize(f, 0, 1024);
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "two ranges touch at 0x400");
}

VTEST_F(RangeSetCheck, EmptyRange, rig) {
  rig_fill(f);
  vtest_faults faults;
  resize(f, 1024, 0);
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "the range at 0x400 is empty");
}

VTEST_F(RangeSetCheck, RangeMissingFromOneIndex, rig) {
  rig_fill(f);
  vtest_faults faults;
  uint32_t index = vmp_ranges_find(&f->set, 1024);
  vmp_tree_remove(&f->nodes, VMP_TREE_BY_SIZE, &f->set.by_size[1], index);
  check(&f->set, &faults);
  VEXPECT_A_FAULT(&faults, "the range at 0x400 is not found by its size");
  VEXPECT_A_FAULT(&faults, "3 ranges by place, 2 by size, 3 counted");
  VEXPECT_UINT_EQ(faults.count, 2);
}

VTEST_F(RangeSetCheck, TreeOutOfOrder, rig) {
  rig_fill(f);
  vtest_faults faults;
  vmp_tree_at(&f->nodes, vmp_ranges_find(&f->set, 1024))->offset = 4096;
  check(&f->set, &faults);
  VEXPECT_A_FAULT(&faults, "is out of order");
}

VTEST_F(RangeSetCheck, TreeOutOfHeapOrder, rig) {
  rig_fill(f);
  vtest_faults faults;
  // Turn the root down below its child, keeping the order of keys.
  uint32_t root = f->set.by_offset;
  vmp_range *top = vmp_tree_at(&f->nodes, root);
  int side = top->links[0][0] != 0 ? 0 : 1;
  uint32_t child = top->links[0][side];
  vmp_range *below = vmp_tree_at(&f->nodes, child);
  top->links[0][side] = below->links[0][1 - side];
  below->links[0][1 - side] = root;
  f->set.by_offset = child;
  check(&f->set, &faults);
  VEXPECT_A_FAULT(&faults, "of higher priority");
}

VTEST_F(RangeSetCheck, TreeWithACycleOrAWildLink, rig) {
  rig_fill(f);
  vtest_faults faults;
  vmp_range *top = vmp_tree_at(&f->nodes, f->set.by_offset);
  uint32_t saved = top->links[0][1];
  top->links[0][1] = 9999;
  check(&f->set, &faults);
  VEXPECT_ONE_FAULT(&faults, "a link leads to node 9999, which doesn't exist");
  top->links[0][1] = f->set.by_offset;
  check(&f->set, &faults);
  VEXPECT_A_FAULT(&faults, "the tree has a cycle");
  top->links[0][1] = saved;
  check(&f->set, &faults);
  VEXPECT_NO_FAULTS(&faults);
}
