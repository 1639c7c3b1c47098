// quick_model_test.c: the quick way of mid's blocks and of slab's refills against the long way: two pools live through
// the same random requests, frees, steps, trims and checks, and one of them never goes the quick way. Every block must
// come to lie at the same place, and all statistics must agree.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/quick.h"
#include "tests/pool/marks_rig.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

enum { MAX_BLOCKS = 3000, MAX_CACHED = 16 << 20 };

typedef struct setting {
  const char *name, *conf;
  uint64_t device_bytes, max_bytes;
  unsigned streams;
  vmp_host_work_mode work;
} setting;
static const char *setting_name(const setting *s) { return s->name; }
// Hits of the quick pool go by marks, those of the other don't. Without bundles, whose spans lie elsewhere.
static bool has_marks(const setting *s) { return strstr(s->name, "marks") != NULL; }
static const setting settings[] = {
    {"plenty", "", 64 * GIB, 64 * MIB, 1, VMP_WORK_LATE},
    {"small_blocks", "", 8 * GIB, MIB, 1, VMP_WORK_LATE},
    {"short", "", 4 * GIB, 64 * MIB, 1, VMP_WORK_EARLY},
    {"one_granule_chunks", "chunk_max:1granule", 6 * GIB, 16 * MIB, 1, VMP_WORK_LATE},
    {"no_slab_below", "slab_max:4KiB", 4 * GIB, 4 * MIB, 1, VMP_WORK_LATE},
    {"shared_arenas", "shared_arenas:1", 16 * GIB, 32 * MIB, 1, VMP_WORK_LATE},
    {"streams", "", 24 * GIB, 32 * MIB, 4, VMP_WORK_EARLY},
    {"streams_late", "", 24 * GIB, 32 * MIB, 3, VMP_WORK_LATE},
    {"tiny_cache", "thread_cache:300KiB", 24 * GIB, 256 * KIB, 4, VMP_WORK_LATE},
    {"complete", "cross_stream:complete,wait:0", 24 * GIB, 32 * MIB, 2, VMP_WORK_EARLY},
    {"marks", "", 8 * GIB, MIB, 1, VMP_WORK_LATE},
    {"marks_streams", "", 24 * GIB, 256 * KIB, 4, VMP_WORK_LATE},
    {"marks_tiny_cache", "thread_cache:300KiB", 24 * GIB, 256 * KIB, 4, VMP_WORK_LATE},
};

typedef struct twins {
  pool_rig *quick, slow;
  void *blocks[2][MAX_BLOCKS];
  size_t num_blocks;
  uint64_t base[2];
  uint64_t allocs, frees, quick_allocs, quick_frees;  // of mid's blocks that the quick way is for, and what it served
  uint64_t refills[2];                                // requests of slab's that went the long way, of each pool
} twins;

static pool_rig *rig_of(twins *t, int i) { return i == 0 ? t->quick : &t->slow; }

static void open_one(twins *t, int i, const setting *s) {
  pool_rig *rig = rig_of(t, i);
  rig_open(rig, s->device_bytes, s->conf);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(rig->driver, s->work, 0));
  t->base[i] = vmp_backing_address(rig->pool->backing, rig->pool->reservations[0].offset);
  if (i == 1) rig->pool->quick_bytes = 0;
  if (i == 0 && has_marks(s)) rig_go_by_marks(rig, UINT32_MAX);
}

// What the quick way doesn't serve it hands on to these two, which the linker sends here first (--wrap).
static uint64_t handed_on;
vmp_status __real_vmp_alloc_missed(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
vmp_status __wrap_vmp_alloc_missed(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
vmp_status __wrap_vmp_alloc_missed(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  handed_on++;
  return __real_vmp_alloc_missed(pool, out_ptr, bytes, stream);
}
vmp_status __real_vmp_free_missed(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *first);
vmp_status __wrap_vmp_free_missed(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *first);
vmp_status __wrap_vmp_free_missed(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *first) {
  handed_on++;
  return __real_vmp_free_missed(pool, ptr, stream, first);
}

// quick_alloc and quick_free count what the quick way serves, of the blocks that it is for. The thread's cache for the
// stream is made its last one before: else the way there leads through the same two functions.
static vmp_status quick_alloc(twins *t, void **block, uint64_t bytes, vmp_stream stream) {
  vmp_pool *pool = t->quick->pool;
  bool may = vmp_cache_switch(pool, stream) != NULL;
  uint64_t before = handed_on;
  vmp_status status = vmp_alloc(pool, block, bytes, stream);
  if (!vmp_quick_serves(pool, bytes)) {
    t->refills[0] += handed_on - before;
    return status;
  }
  t->allocs++;
  t->quick_allocs += may && status == VMP_OK && handed_on == before;
  return status;
}

static vmp_status quick_free(twins *t, void *block, vmp_stream stream) {
  vmp_pool *pool = t->quick->pool;
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(pool, block, &info));
  bool may = vmp_cache_switch(pool, stream) != NULL;
  uint64_t before = handed_on;
  vmp_status status = vmp_free(pool, block, stream);
  if (!vmp_quick_serves(pool, info.requested_bytes)) return status;
  t->frees++;
  t->quick_frees += may && handed_on == before;
  return status;
}

// slow_alloc goes the long way, and gives the thread its cache for the stream where the quick way would have one, so
// that slab's objects are alike, too.
static vmp_status slow_alloc(twins *t, void **block, uint64_t bytes, vmp_stream stream) {
  vmp_pool *pool = t->slow.pool;
  (void)vmp_cache_switch(pool, stream);  // as in quick_alloc
  uint64_t before = handed_on;
  vmp_status status = vmp_alloc(pool, block, bytes, stream);
  if (!vmp_quick_serves(t->quick->pool, bytes)) t->refills[1] += handed_on - before;
  if (status != VMP_OK || !vmp_quick_serves(t->quick->pool, bytes)) return status;
  vmp_guard_lock(&pool->guard);
  vmp_cache_bring(pool, stream, vmp_clock_stream(pool->clock, stream));
  vmp_guard_unlock(&pool->guard);
  return status;
}

static void allocate(twins *t, uint64_t bytes, unsigned stream) {
  void *block[2] = {NULL, NULL};
  vmp_status status[2];
  status[0] = quick_alloc(t, &block[0], bytes, t->quick->streams[stream]);
  status[1] = slow_alloc(t, &block[1], bytes, t->slow.streams[stream]);
  VASSERT_INT_EQ(status[0], status[1]);
  if (status[0] != VMP_OK) return;
  VASSERT_UINT_EQ(rig_address(block[0]) - t->base[0], rig_address(block[1]) - t->base[1]);
  for (int i = 0; i < 2; i++) t->blocks[i][t->num_blocks] = block[i];
  t->num_blocks++;
}

static void release(twins *t, size_t at, unsigned stream) {
  VASSERT_OK(quick_free(t, t->blocks[0][at], t->quick->streams[stream]));
  VASSERT_OK(vmp_free(t->slow.pool, t->blocks[1][at], t->slow.streams[stream]));
  t->num_blocks--;
  for (int i = 0; i < 2; i++) t->blocks[i][at] = t->blocks[i][t->num_blocks];
}

// Peaks are exact for one stream, and else to within what threads may keep.
#define SAME_PEAK(field)                                                             \
  do {                                                                               \
    uint64_t difference = a.field < b.field ? b.field - a.field : a.field - b.field; \
    VASSERT_UINT_LE(difference, several ? MAX_CACHED : 0);                           \
    a.field = b.field;                                                               \
  } while (0)
static void compare_stats(vmp_pool_stats_data a, vmp_pool_stats_data b, bool several) {
  SAME_PEAK(peak_live);
  SAME_PEAK(peak_requested);
  SAME_PEAK(step_peak_live);
  SAME_PEAK(max_step_peak_live);
  a.metadata = b.metadata;  // of caches that only the quick way needs
  VASSERT_TRUE(memcmp(&a, &b, sizeof a) == 0);
}

#define SAME(field) VASSERT_UINT_EQ(a.field, b.field)
static void compare(twins *t, bool several) {
  vmp_mid_stats a, b;
  vmp_mid_get_stats(t->quick->pool->mid, &a);
  vmp_mid_get_stats(t->slow.pool->mid, &b);
  SAME(blocks);
  SAME(block_bytes);
  SAME(extents);
  SAME(free_bytes);
  SAME(parts);
  SAME(runs);
  SAME(free_mapped_bytes);
  SAME(largest_run_bytes);
  compare_stats(rig_stats(t->quick), rig_stats(&t->slow), several);
  vmp_tally tally = t->quick->pool->tally, other = t->slow.pool->tally;
  if (several) memcpy(tally.peak_bytes, other.peak_bytes, sizeof tally.peak_bytes);
  tally.allocs[VMP_LAYER_SLAB] = other.allocs[VMP_LAYER_SLAB];  // of slab what no cache served is counted, and not used
  tally.frees[VMP_LAYER_SLAB] = other.frees[VMP_LAYER_SLAB];
  VASSERT_TRUE(memcmp(&tally, &other, sizeof tally) == 0);
  VASSERT_UINT_EQ(t->quick->pool->histogram.total, t->slow.pool->histogram.total);
  VASSERT_UINT_EQ(t->quick->pool->seen_streams, t->slow.pool->seen_streams);
}

static void misuse(twins *t, vtest_rng *rng) {
  size_t at = (size_t)vtest_rng_below(rng, t->num_blocks);
  uint64_t inside = 512 * vtest_rng_range(rng, 1, 200);
  for (int i = 0; i < 2; i++) {
    pool_rig *rig = rig_of(t, i);
    void *wrong = rig_at(t->blocks[i][at], inside);
    bool live = false;
    for (size_t k = 0; k < t->num_blocks; k++) live = live || t->blocks[i][k] == wrong;
    if (!live) VEXPECT_TRUE(vmp_free(rig->pool, wrong, rig->streams[0]) != VMP_OK);
  }
}

static void random_operation(twins *t, const setting *s, vtest_rng *rng, uint64_t target) {
  unsigned stream = (unsigned)vtest_rng_below(rng, s->streams);
  uint64_t what = vtest_rng_below(rng, 10000);
  if (what < 3 && t->num_blocks > 0) misuse(t, rng);
  for (int i = 0; i < 2 && what >= 3 && what < 6; i++) VEXPECT_OK(vmp_pool_step(rig_of(t, i)->pool));
  for (int i = 0; i < 2 && what >= 6 && what < 9; i++) VEXPECT_OK(vmp_pool_trim(rig_of(t, i)->pool, GIB, NULL));
  if (what >= 9 && what < 20) compare(t, s->streams > 1);
  bool grow = t->num_blocks < target ? vtest_rng_chance(rng, 3, 4) : vtest_rng_chance(rng, 1, 2);
  if (t->num_blocks == 0 || (grow && t->num_blocks < MAX_BLOCKS)) {
    allocate(t, vtest_rng_log(rng, 1, s->max_bytes), stream);
  } else {
    release(t, (size_t)vtest_rng_below(rng, t->num_blocks), stream);
  }
}

VTEST_FP(QuickModel, TheSameAsTheLongWay, pool_rig, setting, settings, setting_name) {
  twins *t = calloc(1, sizeof *t);
  VASSERT_NOT_NULL(t);
  t->quick = f;
  pool_rig_setup(&t->slow);
  for (int i = 0; i < 2; i++) open_one(t, i, p);
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(11));
  const uint64_t ops = vtest_ops(100000);
  uint64_t target = 0;
  for (uint64_t op = 0; op < ops && !vtest_has_failure(); op++) {
    if (op % 5000 == 0) target = vtest_rng_below(&rng, MAX_BLOCKS);
    random_operation(t, p, &rng, target);
    if (op % 20000 == 0) rig_check(f);
  }
  compare(t, p->streams > 1);
  rig_check(f);
  while (t->num_blocks > 0 && !vtest_has_failure()) release(t, t->num_blocks - 1, 0);
  pool_rig_teardown(&t->slow);
  printf("the quick way served %llu of %llu allocations and %llu of %llu frees\n", (unsigned long long)t->quick_allocs,
         (unsigned long long)t->allocs, (unsigned long long)t->quick_frees, (unsigned long long)t->frees);
  printf("of slab's refills %llu of %llu went the long way\n", (unsigned long long)t->refills[0],
         (unsigned long long)t->refills[1]);
  if (p->streams == 1) VEXPECT_UINT_GT(t->quick_allocs, t->allocs / 1000);
  VEXPECT_UINT_GT(t->quick_frees, t->frees * 9 / 10);
  VEXPECT_UINT_LT(t->refills[0], t->refills[1] / 4);
  free(t);
}
