// free_test.c: what may be freed, and what every other address is. Bug cases 19, 29, 60.
#include "tests/pool/pool_rig.h"

typedef struct layer_case {
  const char *name, *conf;
  uint64_t bytes;
} layer_case;

static const layer_case layer_cases[] = {
    {"slab_small", NULL, 64},
    {"slab", NULL, 5000},
    {"mid", NULL, 128 * 1024},
    {"mid_large", NULL, 70 * 1048576},
    {"buddy", "preset:buddy", 70 * 1048576},
    {"buddy_small", "preset:buddy", 64},
};
static const char *layer_case_name(const layer_case *p) { return p->name; }

// Case 60: interior addresses are refused, in every layer; the block itself is fine afterwards.
VTEST_FP(Free, Case60InteriorAddresses, pool_rig, layer_case, layer_cases, layer_case_name) {
  rig_open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, p->bytes, NULL), *neighbour = rig_alloc(f, p->bytes, NULL);
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VASSERT_OK(vmp_block_query(f->pool, block, &info));
  const uint64_t inside[] = {1, 8, 24, 16, info.bytes / 2, info.bytes - 1, 511};
  vmp_pool_stats_data before = rig_stats(f);
  for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
    VTRACE("+%llu", (unsigned long long)inside[i]);
    VEXPECT_STATUS(vmp_free(f->pool, rig_at(block, inside[i]), NULL), VMP_ERROR_NOT_A_BLOCK);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, "inside a block");
    VEXPECT_STATUS(vmp_record_use(f->pool, rig_at(block, inside[i]), NULL), VMP_ERROR_NOT_A_BLOCK);
  }
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, block, NULL);
  rig_free(f, neighbour, NULL);
}

// A double free is recognised until the address is handed out again, whatever became of the memory meanwhile.
VTEST_FP(Free, DoubleFree, pool_rig, layer_case, layer_cases, layer_case_name) {
  rig_open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, p->bytes, NULL), *keeper = rig_alloc(f, p->bytes, NULL);
  rig_free(f, block, NULL);
  VEXPECT_STATUS(vmp_free(f->pool, block, NULL), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_record_use(f->pool, block, NULL), VMP_ERROR_DOUBLE_FREE);
  rig_free(f, keeper, NULL);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));  // unmapped, span given back, blocks merged
  VEXPECT_STATUS(vmp_free(f->pool, block, NULL), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, keeper, NULL), VMP_ERROR_DOUBLE_FREE);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.frees, 2);
  VEXPECT_UINT_EQ(stats.blocks, 0);
  void *again = rig_alloc(f, p->bytes, NULL);
  rig_free(f, again, NULL);
}

VTEST_F(Free, ForeignAddresses, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 100000, NULL);
  int local = 0;
  VEXPECT_STATUS(vmp_free(f->pool, &local, NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "outside the address space");
  VEXPECT_STATUS(vmp_free(f->pool, (void *)UINTPTR_MAX, NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_free(f->pool, (void *)(uintptr_t)512, NULL), VMP_ERROR_NOT_A_BLOCK);
  // Inside the reservation, but never handed out.
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(block, 4 * GIB), NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "never handed out");
  // Another pool's block is not this pool's.
  vmp_pool *first = f->pool;
  VASSERT_OK(rig_create(f, NULL));
  VEXPECT_STATUS(vmp_free(f->pool, block, NULL), VMP_ERROR_NOT_A_BLOCK);
  rig_destroy(f);
  f->pool = first;
  rig_free(f, block, NULL);
}

// Case 19: addresses come back after failed maps, blocks are freed as a whole or not at all, frees are counted.
VTEST_F(Free, Case19AddressesComeBack, pool_rig) {
  rig_open(f, 80 * GIB, "reserve:64GiB");
  VASSERT_NO_FAILURE();
  vmp_host_fault fault = {VMP_CALL_mem_map, 1, VMP_CU_INVALID_VALUE, true};
  void *ptr = NULL;
  for (int i = 0; i < 100; i++) {
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 3 * GIB, NULL), VMP_ERROR_DRIVER);
    vmp_host_lift(f->driver);
  }
  void *blocks[64];
  for (size_t i = 0; i < 64; i++) blocks[i] = rig_alloc(f, GIB, NULL);
  VEXPECT_UINT_EQ(rig_stats(f).live, 64 * GIB);
  void *large = rig_alloc(f, 8 * GIB, NULL);
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(large, 2 * GIB), NULL), VMP_ERROR_NOT_A_BLOCK);
  rig_free(f, large, NULL);
  for (size_t i = 0; i < 64; i++) rig_free(f, blocks[i], NULL);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.allocs, 65);
  VEXPECT_UINT_EQ(stats.frees, 65);
  VEXPECT_UINT_EQ(stats.failed_allocs, 100);
}

// Case 29: interior pointers are found, without a driver call; what lies outside is said to.
VTEST_F(Free, Case29Query, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 3 * GIB + 5, NULL);
  uint64_t bytes = 3 * GIB + 512;  // rounded to the step: the tail belongs to the block
  uint64_t calls = rig_all_calls(f->driver);
  const uint64_t inside[] = {0, 1, GRANULE - 1, GRANULE, 3 * GIB + 4, 3 * GIB + 5, 3 * GIB + 511};
  for (size_t i = 0; i < sizeof inside / sizeof inside[0]; i++) {
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VASSERT_OK(vmp_block_query(f->pool, rig_at(a, inside[i]), &info));
    VEXPECT_PTR_EQ(info.base, a);
    VEXPECT_UINT_EQ(info.requested_bytes, 3 * GIB + 5);
    VEXPECT_UINT_EQ(info.bytes, bytes);
    VEXPECT_STR_EQ(info.layer, "mid");
  }
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_STATUS(vmp_block_query(f->pool, rig_at(a, bytes), &info), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_block_query(f->pool, (char *)a - 1, &info), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_block_query(f->pool, NULL, &info), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  rig_free(f, a, NULL);
  VEXPECT_STATUS(vmp_block_query(f->pool, a, &info), VMP_ERROR_NOT_A_BLOCK);
}
