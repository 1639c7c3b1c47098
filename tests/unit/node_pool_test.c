// node_pool_test.c: nodes that never move, promises, and a check that notices each corruption.
#include "vmm/node_pool.h"

#include <string.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

typedef struct node {
  uint64_t a, b;
} node;

typedef struct rig {
  vmp_node_pool pool;
} rig;

static void rig_setup(rig *f) { vmp_node_pool_init(&f->pool, sizeof(node)); }
static void rig_teardown(rig *f) {
  vmp_mem_fail_after(0, 0);
  vmp_node_pool_finish(&f->pool);
}

static void expect_sound(const vmp_node_pool *pool) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  vmp_node_pool_check(pool, "nodes", &report);
  VEXPECT_NO_FAULTS(&faults);
}

static void expect_fault(const vmp_node_pool *pool, const char *part) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  vmp_node_pool_check(pool, "nodes", &report);
  VEXPECT_ONE_FAULT(&faults, part);
}

VTEST_F(NodePool, EmptyPoolHoldsNoMemory, rig) {
  VEXPECT_UINT_EQ(vmp_node_pool_bytes(&f->pool), 0);
  VEXPECT_UINT_EQ(vmp_node_pool_unpromised(&f->pool), 0);
  expect_sound(&f->pool);
}

VTEST_F(NodePool, NodesAreZeroedAndNeverZeroTheIndex, rig) {
  for (uint32_t i = 1; i <= 3000; i++) {
    VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
    uint32_t index = vmp_node_take(&f->pool);
    VASSERT_UINT_EQ(index, i);
    node *n = vmp_node_at(&f->pool, index);
    VEXPECT_UINT_EQ(n->a, 0);
    VEXPECT_UINT_EQ(n->b, 0);
    n->a = n->b = i;
  }
  for (uint32_t i = 1; i <= 3000; i++) VEXPECT_UINT_EQ(((node *)vmp_node_at(&f->pool, i))->b, i);
  expect_sound(&f->pool);
}

// 256 nodes in a block; one of the first is "none".
VTEST_F(NodePool, GrowsByBlocks, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  VEXPECT_UINT_EQ(f->pool.capacity, 255);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 256));
  VEXPECT_UINT_EQ(f->pool.capacity, 511);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 512));
  VEXPECT_UINT_EQ(f->pool.capacity, 767);
  VEXPECT_UINT_EQ(vmp_node_pool_bytes(&f->pool), 3 * (256 * sizeof(node) + 64) + 4 * 16);
}

// Nodes of more than 64 bytes come in blocks of half as many for each doubling, 8 at least.
VTEST(NodePool, LargeNodesComeInSmallBlocks) {
  static const struct {
    size_t node_bytes;
    uint32_t nodes;
  } cases[] = {{64, 256}, {65, 128}, {128, 128}, {600, 16}, {1 << 20, 8}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    vmp_node_pool pool;
    vmp_node_pool_init(&pool, cases[i].node_bytes);
    VASSERT_TRUE(vmp_node_pool_reserve(&pool, 3 * cases[i].nodes - 1));
    VEXPECT_UINT_EQ(pool.num_blocks, 3);
    for (uint32_t n = 1; n < 3 * cases[i].nodes; n++) {
      VASSERT_UINT_EQ(vmp_node_take(&pool), n);
      memset(vmp_node_at(&pool, n), (int)n, cases[i].node_bytes);
    }
    for (uint32_t n = 1; n < 3 * cases[i].nodes; n++) {
      VEXPECT_BYTES_FILLED(vmp_node_at(&pool, n), (unsigned char)n, cases[i].node_bytes);
    }
    vmp_node_pool_finish(&pool);
  }
}

VTEST_F(NodePool, NodesStayWhereTheyAre, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  node *first = vmp_node_at(&f->pool, vmp_node_take(&f->pool));
  first->a = 77;
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 100000));
  VEXPECT_PTR_EQ(vmp_node_at(&f->pool, 1), first);
  VEXPECT_UINT_EQ(first->a, 77);
}

VTEST_F(NodePool, GivenNodesComeBackLastFirstAndZeroed, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 3));
  uint32_t a = vmp_node_take(&f->pool), b = vmp_node_take(&f->pool);
  memset(vmp_node_at(&f->pool, b), 0xff, sizeof(node));
  vmp_node_give(&f->pool, a);
  vmp_node_give(&f->pool, b);
  expect_sound(&f->pool);
  VEXPECT_UINT_EQ(vmp_node_take(&f->pool), b);
  VEXPECT_BYTES_FILLED(vmp_node_at(&f->pool, b), 0, sizeof(node));
  VEXPECT_UINT_EQ(vmp_node_take(&f->pool), a);
  expect_sound(&f->pool);
}

VTEST_F(NodePool, PromisedNodesAreNotGivenToOthers, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 255));
  f->pool.promised = 255;
  VEXPECT_UINT_EQ(vmp_node_pool_unpromised(&f->pool), 0);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  VEXPECT_UINT_EQ(f->pool.capacity, 511);
  expect_sound(&f->pool);
  f->pool.promised = 0;
}

VTEST_F(NodePool, FailedReserveChangesNothing, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 255));
  vmp_mem_fail_after(0, 1);
  VEXPECT_FALSE(vmp_node_pool_reserve(&f->pool, 256));
  VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
  VEXPECT_UINT_EQ(f->pool.capacity, 255);
  VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, 255));
  VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, 256));
}

// The table of blocks grows after every doubling: three allocations are needed then, any of which may fail.
VTEST_F(NodePool, FailedReserveOfALargerTableChangesNothing, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1023));
  node *first = vmp_node_at(&f->pool, vmp_node_take(&f->pool));
  for (uint64_t successes = 0; successes < 3; successes++) {
    vmp_mem_fail_after(successes, 1);
    VEXPECT_FALSE(vmp_node_pool_reserve(&f->pool, 1023));
    VEXPECT_UINT_EQ(f->pool.capacity, 1023);
    VEXPECT_PTR_EQ(vmp_node_at(&f->pool, 1), first);
    expect_sound(&f->pool);
  }
  VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, 1023));
  VEXPECT_PTR_EQ(vmp_node_at(&f->pool, 1), first);
}

// ---- pools in a row ----

typedef struct row_rig {
  vmp_node_pool pool;
} row_rig;
enum { ROW_NODES = 1 << 18 };

static void row_rig_setup(row_rig *f) { vmp_node_pool_init_row(&f->pool, sizeof(node), ROW_NODES, 8); }
static void row_rig_teardown(row_rig *f) {
  vmp_mem_fail_after(0, 0);
  vmp_node_pool_finish(&f->pool);
}

VTEST_F(NodeRow, NodesLieOneBehindTheOther, row_rig) {
  VEXPECT_UINT_EQ(vmp_node_pool_bytes(&f->pool), 0);
  for (uint32_t i = 1; i <= 3000; i++) {
    VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
    VASSERT_UINT_EQ(vmp_node_take_in_row(&f->pool, sizeof(node)), i);
    node *n = vmp_node_in_row(&f->pool, i, sizeof(node));
    VASSERT_PTR_EQ(n, (node *)f->pool.row + i);
    VASSERT_PTR_EQ(n, vmp_node_at(&f->pool, i));
    VASSERT_BYTES_FILLED(n, 0, sizeof(node));
    n->a = n->b = i;
  }
  for (uint32_t i = 1; i <= 3000; i++) VASSERT_UINT_EQ(((node *)f->pool.row + i)->b, i);
  VEXPECT_BYTES_FILLED((void *)f->pool.row, 0, sizeof(node));  // index 0
  // 12 blocks of 256 nodes, and a table of 16 of them.
  VEXPECT_UINT_EQ(f->pool.capacity, 12 * 256 - 1);
  VEXPECT_UINT_EQ(vmp_node_pool_bytes(&f->pool), 12 * 256 * sizeof(node) + 16 * 16);
  expect_sound(&f->pool);
}

VTEST_F(NodeRow, GivenNodesComeBackLastFirst, row_rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 2));
  uint32_t a = vmp_node_take_in_row(&f->pool, sizeof(node)), b = vmp_node_take(&f->pool);
  memset(vmp_node_at(&f->pool, a), 0xff, sizeof(node));
  vmp_node_give(&f->pool, a);
  vmp_node_give_back(&f->pool, b, vmp_node_at(&f->pool, b));
  expect_sound(&f->pool);
  VEXPECT_UINT_EQ(vmp_node_take_in_row(&f->pool, sizeof(node)), b);
  VEXPECT_UINT_EQ(vmp_node_take_in_row(&f->pool, sizeof(node)), a);
  VEXPECT_BYTES_FILLED(vmp_node_at(&f->pool, a), 0, sizeof(node));
  expect_sound(&f->pool);
}

// The two tables, the addresses, the memory: whichever can't be had.
VTEST_F(NodeRow, AFailedReserveChangesNothing, row_rig) {
  for (uint64_t successes = 0; successes < 4; successes++) {
    vmp_node_pool_finish(&f->pool);
    vmp_mem_fail_after(successes, UINT64_MAX);
    VEXPECT_FALSE(vmp_node_pool_reserve(&f->pool, 1));
    VEXPECT_UINT_EQ(f->pool.capacity, 0);
    expect_sound(&f->pool);
    vmp_mem_fail_after(0, 0);
    VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
    VEXPECT_UINT_EQ(f->pool.capacity, 255);
    node *first = vmp_node_at(&f->pool, vmp_node_take(&f->pool));
    first->a = 77;
    vmp_mem_fail_after(0, UINT64_MAX);  // memory for a second block
    VEXPECT_FALSE(vmp_node_pool_reserve(&f->pool, 255));
    VEXPECT_UINT_EQ(f->pool.capacity, 255);
    vmp_mem_fail_after(0, 0);
    VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, 255));
    VEXPECT_UINT_EQ(first->a, 77);
  }
}

// Two attempts at addresses fail, a quarter of the row is there: it serves as far as it goes.
VTEST_F(NodeRow, AShortRowServesAsFarAsItGoes, row_rig) {
  vmp_mem_fail_after(2, 2);
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  VEXPECT_UINT_EQ(vmp_mem_failures(), 2);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(f->pool.row_bytes, ROW_NODES / 4 * sizeof(node));
  VEXPECT_TRUE(vmp_node_pool_reserve(&f->pool, ROW_NODES / 4 - 1));
  VEXPECT_UINT_EQ(f->pool.capacity, ROW_NODES / 4 - 1);
  memset(vmp_node_at(&f->pool, ROW_NODES / 4 - 1), 0xff, sizeof(node));
  VEXPECT_FALSE(vmp_node_pool_reserve(&f->pool, ROW_NODES / 4));
  VEXPECT_UINT_EQ(f->pool.capacity, ROW_NODES / 4 - 1);
  expect_sound(&f->pool);
}

VTEST_F(NodeRow, AFinishedPoolCanBeUsedAgain, row_rig) {
  for (int i = 0; i < 3; i++) {
    VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1000));
    VEXPECT_UINT_EQ(vmp_node_take(&f->pool), 1);
    VEXPECT_BYTES_FILLED(vmp_node_at(&f->pool, 1), 0, sizeof(node));
    memset(vmp_node_at(&f->pool, 1), 0xff, sizeof(node));
    vmp_node_pool_finish(&f->pool);
    VEXPECT_UINT_EQ(vmp_node_pool_bytes(&f->pool), 0);
    expect_sound(&f->pool);
  }
}

VTEST_F(NodePool, CheckNoticesTooManyPromises, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  f->pool.promised = 256;
  expect_fault(&f->pool, "0 nodes are used and 256 promised, but only 255 exist");
}

VTEST_F(NodePool, CheckNoticesAWrongCount, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 1));
  (void)vmp_node_take(&f->pool);
  f->pool.used = 2;
  expect_fault(&f->pool, "2 nodes are used and 1 were touched of 255");
}

VTEST_F(NodePool, CheckNoticesALostNodeAndACycle, rig) {
  VASSERT_TRUE(vmp_node_pool_reserve(&f->pool, 2));
  uint32_t a = vmp_node_take(&f->pool), b = vmp_node_take(&f->pool);
  vmp_node_give(&f->pool, a);
  vmp_node_give(&f->pool, b);
  uint32_t head = f->pool.free_list;
  f->pool.free_list = a;
  expect_fault(&f->pool, "the free list doesn't hold exactly the 2 unused nodes");
  f->pool.free_list = head;
  memcpy(vmp_node_at(&f->pool, a), &b, sizeof b);  // b -> a -> b ...
  expect_fault(&f->pool, "the free list doesn't hold exactly the 2 unused nodes");
}
