// thread_cache_refill_test.c: how much an empty magazine takes, and that a refill is no more than that: it allocates
// nothing, calls no driver and keeps the books exact. pool/thread_cache.h.
#include "pool/thread_cache.h"
#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

enum { BLOCKS = 400, BYTES = 4 << 10 };

typedef struct blocks {
  void *all[BLOCKS];
  size_t count;
} blocks;

static vmp_magazine *magazine_of(const pool_rig *f, uint64_t bytes) {
  return &vmp_cache_last.cache->magazines[vmp_cache_number(f->pool, bytes)];
}

static void take(pool_rig *f, blocks *b, size_t count) {
  for (; count > 0; count--) b->all[b->count++] = rig_alloc(f, BYTES, f->streams[0]);
}

// drain takes what the magazine has, and one more: that is the refill.
static void drain_and_miss(pool_rig *f, blocks *b) { take(f, b, vmp_magazine_count(magazine_of(f, BYTES)) + 1); }

// make_plenty leaves slab with more than two hundred free objects that no magazine has, in spans none of which is
// empty.
static void make_plenty(pool_rig *f, blocks *b) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  take(f, b, BLOCKS);
  b->count = 0;
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 4 == 0) {
      b->all[b->count++] = b->all[i];
    } else {
      rig_free(f, b->all[i], f->streams[0]);
    }
  }
}

VTEST_F(ThreadCacheRefill, AQuarterOrAllOfIt, pool_rig) {
  blocks b = {.count = 0};
  make_plenty(f, &b);
  VASSERT_NO_FAILURE();
  const vmp_magazine *magazine = magazine_of(f, BYTES);
  VASSERT_UINT_EQ(vmp_magazine_capacity(magazine), 64);
  drain_and_miss(f, &b);
  VEXPECT_UINT_EQ(vmp_magazine_count(magazine), 16);  // it has just freed a lot: a quarter
  drain_and_miss(f, &b);
  VEXPECT_UINT_EQ(vmp_magazine_count(magazine), 63);  // it has freed nothing since: all that there is room for
  void *large = rig_alloc(f, 3 * MIB, f->streams[0]);
  rig_free(f, large, f->streams[0]);
  drain_and_miss(f, &b);
  VEXPECT_UINT_EQ(vmp_magazine_count(magazine), 16);  // any free tells that it isn't only building something up
  rig_check(f);
  while (b.count > 0) rig_free(f, b.all[--b.count], f->streams[0]);
}

VTEST_F(ThreadCacheRefill, NoDriverCallAndNoHostMemory, pool_rig) {
  blocks b = {.count = 0};
  make_plenty(f, &b);
  VASSERT_NO_FAILURE();
  vmp_pool_stats_data before = rig_stats(f);
  uint64_t calls = rig_all_calls(f->driver), had = b.count;
  vmp_mem_fail_after(0, UINT64_MAX);
  for (int i = 0; i < 3; i++) drain_and_miss(f, &b);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(after.allocs - before.allocs, b.count - had);
  VEXPECT_UINT_EQ(after.live - before.live, (b.count - had) * BYTES);
  VEXPECT_UINT_EQ(after.peak_live, before.peak_live);
  rig_check(f);
  while (b.count > 0) rig_free(f, b.all[--b.count], f->streams[0]);
}

// The first class takes all that threads may keep; of the second a free goes back to slab, and an allocation gets one
// object, past a magazine that may hold none.
VTEST_F(ThreadCacheRefill, WhereNothingMayBeKept, pool_rig) {
  rig_open(f, 8 * GIB, "thread_cache:64KiB");
  VASSERT_NO_FAILURE();
  blocks b = {.count = 0};
  take(f, &b, 100);
  while (b.count > 0) rig_free(f, b.all[--b.count], f->streams[0]);
  VASSERT_UINT_EQ(vmp_magazine_capacity(magazine_of(f, BYTES)), 16);
  const vmp_magazine *second = magazine_of(f, 16 * KIB);
  void *one = rig_alloc(f, 16 * KIB, f->streams[0]), *other = rig_alloc(f, 16 * KIB, f->streams[0]);
  for (int i = 0; i < 3; i++) {
    rig_free(f, one, f->streams[0]);
    VEXPECT_UINT_EQ(vmp_magazine_capacity(second), 0);
    VEXPECT_INT_EQ(vmp_free(f->pool, one, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
    one = rig_alloc(f, 16 * KIB, f->streams[0]);
    VEXPECT_TRUE(one != other);
    VEXPECT_UINT_EQ(vmp_magazine_count(second), 0);
    VEXPECT_UINT_EQ(rig_stats(f).live, 2 * 16 * KIB);
    rig_check(f);
  }
  rig_free(f, one, f->streams[0]);
  rig_free(f, other, f->streams[0]);
}
