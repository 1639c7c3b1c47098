// sizes_test.c: every size and every alignment. Bug cases 1, 2, 3, 5, 6, 7, 8.
#include <string.h>

#include "tests/pool/pool_rig.h"

static const char *const layers[] = {"preset:mixed", "preset:slab", "preset:mid", "preset:buddy", "preset:classic"};
static const char *layer_name(const char *const *p) { return *p + strlen("preset:"); }

// Case 1: sizes that wrap when they are rounded up to any of the pool's steps.
VTEST_FP(Sizes, Case1TheLargestSizesAreRefused, pool_rig, char *const, layers, layer_name) {
  rig_open(f, 8 * GIB, *p);
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, MIB, NULL), NULL);
  vmp_pool_stats_data before = rig_stats(f), after;
  uint64_t calls = rig_all_calls(f->driver);
  static const uint64_t steps[] = {512, 4096, 32 * KIB, 64 * KIB, MIB, GRANULE, 32 * MIB};
  uint64_t sizes[40] = {SIZE_MAX, SIZE_MAX - 1, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, UINT64_C(1) << 62};
  size_t n = 5;
  for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
    sizes[n++] = SIZE_MAX - (steps[i] - 2);
    sizes[n++] = SIZE_MAX - (steps[i] - 1);
    sizes[n++] = SIZE_MAX - steps[i];
  }
  for (size_t i = 0; i < n; i++) {
    void *ptr = &sizes;
    VTRACE("size %llu", (unsigned long long)sizes[i]);
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, sizes[i], NULL), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_STATUS(vmp_alloc_aligned(f->pool, &ptr, sizes[i], GRANULE, NULL), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_PTR_EQ(ptr, &sizes);  // untouched
  }
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  after = rig_stats(f);
  VEXPECT_INT_EQ(memcmp(&before, &after, sizeof before), 0);  // bit for bit
  void *b = rig_alloc(f, 512, NULL), *c = rig_alloc(f, 512, NULL);
  VEXPECT_TRUE(rig_address(b) + 512 <= rig_address(c) || rig_address(c) + 512 <= rig_address(b));
  rig_free(f, b, NULL);
  rig_free(f, c, NULL);
}

// Case 2: the message prints the size as it is, unsigned.
VTEST_F(Sizes, Case2TheMessageNamesTheSize, pool_rig) {
  uint64_t bogus = UINT64_MAX - MIB + 1;  // 2^64 - 2^20
  void *ptr;
  rig_open(f, 8 * GIB, "hard_limit:1GiB");
  VASSERT_NO_FAILURE();
  for (int round = 0; round < 2; round++) {  // an empty pool, then one with parked memory
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, bogus, NULL), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, "18446744073708503040");
    ptr = rig_alloc(f, 4096, NULL);
    rig_free(f, ptr, NULL);
  }
  // Sizes that could exist, but not here.
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 9 * GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "9663676416 bytes (9GiB)");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "the device has 8GiB in all");
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 2 * GIB, NULL), VMP_ERROR_LIMIT);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "hard limit of 1GiB");
}

// Case 3: a 32-bit count of pages must not cut a size, aligned or not.
VTEST_F(Sizes, Case3PageCountsDontWrap, pool_rig) {
  rig_open(f, 0, NULL);
  VASSERT_NO_FAILURE();
  static const uint64_t bases[] = {4 * KIB, 64 * KIB, GRANULE};
  for (size_t i = 0; i < 3; i++) {
    uint64_t bytes = ((UINT64_C(1) << 32) + 1) * bases[i];
    void *ptr = NULL;
    vmp_status aligned = vmp_alloc_aligned(f->pool, &ptr, bytes, bases[i], NULL);
    VEXPECT_STATUS(aligned, VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, bytes, NULL), aligned);
    VEXPECT_NULL(ptr);
  }
  // The largest size that is legal: all of the device, served in full.
  void *ptr = rig_alloc(f, 80 * GIB, NULL);
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VASSERT_OK(vmp_block_query(f->pool, ptr, &info));
  VEXPECT_UINT_EQ(info.requested_bytes, 80 * GIB);
  VEXPECT_UINT_GE(info.bytes, 80 * GIB);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 80 * GIB);
  rig_free(f, ptr, NULL);
}

// Case 5: zero bytes, first and last.
VTEST_F(Sizes, Case5ZeroBytesGiveNull, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *zero = &zero, *one;
  VEXPECT_OK(vmp_alloc(f->pool, &zero, 0, NULL));
  VEXPECT_NULL(zero);
  one = rig_alloc(f, 1, NULL);
  VEXPECT_NOT_NULL(one);
  rig_free(f, zero, NULL);
  rig_free(f, one, NULL);
  VEXPECT_OK(vmp_free(f->pool, NULL, NULL));
  for (int i = 0; i < 1000; i++) {
    zero = &zero;
    VEXPECT_OK(vmp_alloc_aligned(f->pool, &zero, 0, 1u << (i % 20), NULL));
    VEXPECT_NULL(zero);
  }
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.allocs, 1);
  VEXPECT_UINT_EQ(stats.frees, 1);
  VEXPECT_UINT_EQ(stats.live, 0);
}

// Case 6: zero bytes with a large alignment don't disturb the classes.
VTEST_F(Sizes, Case6AlignedZeroAndSmall, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *p, *q, *blocks[128];
  VEXPECT_OK(vmp_alloc_aligned(f->pool, &p, 0, 4096, NULL));
  VEXPECT_OK(vmp_alloc_aligned(f->pool, &q, 1, 4096, NULL));
  VEXPECT_UINT_EQ(rig_address(q) % 4096, 0);
  rig_free(f, p, NULL);
  rig_free(f, q, NULL);
  for (size_t i = 0; i < 128; i++) {
    uint64_t bytes = i % 2 == 0 ? 4096 : 1, alignment = i % 2 == 0 ? 4096 : 512;
    VASSERT_OK(vmp_alloc_aligned(f->pool, &blocks[i], bytes, alignment, NULL));
    VEXPECT_UINT_EQ(rig_address(blocks[i]) % alignment, 0);
    for (size_t j = 0; j < i; j++) {
      uint64_t a = rig_address(blocks[i]), b = rig_address(blocks[j]);
      uint64_t other_bytes = j % 2 == 0 ? 4096 : 1;
      VASSERT_TRUE(a + bytes <= b || b + other_bytes <= a);
    }
  }
  for (size_t i = 0; i < 128; i++) rig_free(f, blocks[i], NULL);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.requested, 0);
}

// Case 7: every power of two up to the documented limit is kept; everything else is refused, never rounded.
VTEST_FP(Sizes, Case7Alignments, pool_rig, char *const, layers, layer_name) {
  rig_open(f, 0, *p);
  VASSERT_NO_FAILURE();
  for (uint64_t alignment = 1; alignment <= VMP_MAX_ALIGNMENT; alignment *= 2) {
    VTRACE("alignment %llu", (unsigned long long)alignment);
    void *ptr = NULL;
    VASSERT_OK(vmp_alloc_aligned(f->pool, &ptr, 3 * MIB + 1, alignment, NULL));
    VEXPECT_UINT_EQ(rig_address(ptr) % alignment, 0);
    VEXPECT_UINT_EQ(rig_address(ptr) % 512, 0);
    rig_touch(f, ptr, 3 * MIB + 1, NULL);  // the whole range is mapped
    void *small = NULL;
    VASSERT_OK(vmp_alloc_aligned(f->pool, &small, 700, alignment, NULL));
    VEXPECT_UINT_EQ(rig_address(small) % alignment, 0);
    rig_touch(f, small, 700, NULL);
    rig_free(f, ptr, NULL);
    rig_free(f, small, NULL);
  }
  static const uint64_t bad[] = {0, 3, 768, 513, VMP_MAX_ALIGNMENT * 2, UINT64_C(1) << 63, UINT64_MAX};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    void *ptr = f;
    VEXPECT_STATUS(vmp_alloc_aligned(f->pool, &ptr, 4096, bad[i], NULL), VMP_ERROR_INVALID_VALUE);
    VEXPECT_STATUS(vmp_alloc_aligned(f->pool, &ptr, 0, bad[i], NULL), VMP_ERROR_INVALID_VALUE);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, "power of two");
    VEXPECT_PTR_EQ(ptr, f);
  }
}

// Case 8: an odd size doesn't misalign what comes after it.
VTEST_FP(Sizes, Case8OddSizesKeepTheAlignment, pool_rig, char *const, layers, layer_name) {
  rig_open(f, 8 * GIB, *p);
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {1, 257, 1000003, 16, GRANULE - 1, GRANULE + 1};
  void *blocks[6];
  for (size_t i = 0; i < 6; i++) {
    blocks[i] = rig_alloc(f, sizes[i], NULL);
    VEXPECT_UINT_EQ(rig_address(blocks[i]) % 512, 0);
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VASSERT_OK(vmp_block_query(f->pool, blocks[i], &info));
    VEXPECT_UINT_GE(info.bytes, sizes[i]);
    VEXPECT_UINT_EQ(info.requested_bytes, sizes[i]);
    VEXPECT_PTR_EQ(info.base, blocks[i]);
    for (size_t j = 0; j < i; j++) {
      uint64_t a = rig_address(blocks[i]), b = rig_address(blocks[j]);
      VEXPECT_TRUE(a + sizes[i] <= b || b + sizes[j] <= a);
    }
  }
  for (size_t i = 0; i < 6; i++) rig_free(f, blocks[i], NULL);
}

VTEST_F(Sizes, EveryClassAndItsNeighbours, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  uint64_t last = 0;
  for (uint64_t bytes = 1; bytes <= 300 * KIB; bytes += bytes % 512 == 1 ? 510 : 1) {
    void *ptr = rig_alloc(f, bytes, NULL);
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VASSERT_OK(vmp_block_query(f->pool, ptr, &info));
    VASSERT_UINT_GE(info.bytes, bytes);
    VASSERT_UINT_GE(info.bytes, last);  // more is never given less
    uint64_t rounded = (bytes + 511) / 512 * 512;
    VASSERT_UINT_LE(info.bytes * 8, rounded * 9);  // at most 12.5 % beyond the step
    VEXPECT_STR_EQ(info.layer, bytes <= 64 * KIB ? "slab" : "mid");
    last = info.bytes;
    rig_free(f, ptr, NULL);
  }
}

VTEST_F(Sizes, ArgumentsAreChecked, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  VEXPECT_STATUS(vmp_alloc(NULL, &ptr, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_alloc(f->pool, NULL, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_free(NULL, NULL, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_record_use(NULL, ptr, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_block_query(f->pool, ptr, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_stats(f->pool, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_trim(NULL, 0, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_check(NULL, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_set_limit(f->pool, (vmp_limit)7, 1), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_create(NULL, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_pool_destroy(NULL));
  vmp_driver_close(NULL);
}
