// thread_cache_test.c: what threads keep for themselves: hits without the lock, frees from elsewhere, racing frees, and
// all of it at once. pool/thread_cache.h. Meant for TSan as well.
#include "pool/thread_cache.h"

#include <pthread.h>

#include "tests/pool/cache_rig.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

// ---- hits ----

// While another thread holds the pool's lock, here this one itself, a hit goes through; and asks the driver nothing.
VTEST_FP(ThreadCache, AHitTakesNoLockAndCallsNoDriver, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  job warm = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 4};
  allocate_and_free_all(&warm);
  uint64_t calls = rig_all_calls(f->driver);
  vmp_mem_fail_after(0, UINT64_MAX);
  vmp_guard_lock(&f->pool->guard);
  for (int i = 0; i < 1000; i++) {
    void *block = NULL;
    VEXPECT_OK(vmp_alloc(f->pool, &block, 64 * KIB - (size_t)i, f->streams[0]));
    VEXPECT_OK(vmp_free(f->pool, block, f->streams[0]));
  }
  vmp_guard_unlock(&f->pool->guard);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
}

// The counters and peaks of one thread are exact.
VTEST_FP(ThreadCache, CountsOfOneThreadAreExact, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(7));
  void *blocks[200] = {NULL};
  uint64_t sizes[200], requested = 0, peak = 0, live = 0, peak_live = 0, allocs = 0, frees = 0;
  for (int i = 0; i < 20000; i++) {
    size_t at = vtest_rng_below(&rng, 200);
    if (blocks[at] != NULL) {
      rig_free(f, blocks[at], f->streams[0]);
      blocks[at] = NULL;
      requested -= sizes[at];
      live -= vmp_class_bytes(vmp_class_index(sizes[at]));
      frees++;
      continue;
    }
    sizes[at] = vtest_rng_log(&rng, 1, 64 * KIB);
    blocks[at] = rig_alloc(f, sizes[at], f->streams[0]);
    requested += sizes[at];
    live += vmp_class_bytes(vmp_class_index(sizes[at]));
    allocs++;
    if (requested > peak) peak = requested;
    if (live > peak_live) peak_live = live;
  }
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.requested, requested);
  VEXPECT_UINT_EQ(stats.live, live);
  VEXPECT_UINT_EQ(stats.peak_requested, peak);
  VEXPECT_UINT_EQ(stats.peak_live, peak_live);
  VEXPECT_UINT_EQ(stats.allocs, allocs);
  VEXPECT_UINT_EQ(stats.frees, frees);
  VEXPECT_UINT_EQ(stats.blocks, allocs - frees);
  VEXPECT_UINT_GT(stats.cached, 0);
  VEXPECT_UINT_LE(stats.cached, stats.cached_bound);
  VEXPECT_UINT_LE(stats.cached_bound, 8 * GIB / 256);
  rig_check(f);
  for (size_t i = 0; i < 200; i++) {
    if (blocks[i] != NULL) rig_free(f, blocks[i], f->streams[0]);
  }
}

VTEST_FP(ThreadCache, WrongFreesAreFoundAndChangeNothing, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  job keep = {.f = f, .stream = f->streams[0], .bytes = 10 * KIB, .count = 3};
  allocate_all(&keep);
  void *block = rig_alloc(f, 10 * KIB, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_UINT_GT(before.cached, 0);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[1]), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(keep.blocks[0], 512), f->streams[0]), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(keep.blocks[0], 1), f->streams[0]), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_free(f->pool, rig_at(block, 7), f->streams[0]), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_free(f->pool, &before, f->streams[0]), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_STATUS(vmp_record_use(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_STATUS(vmp_block_query(f->pool, block, &info), VMP_ERROR_NOT_A_BLOCK);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  rig_check(f);
  free_all(&keep);
}

// ---- frees from elsewhere ----

VTEST_FP(ThreadCache, FreesOfOtherThreadsAndOnOtherStreams, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  helper h;
  helper_start(&h);
  job j = {.f = f, .stream = f->streams[0], .bytes = 3000, .count = MOST};
  for (int round = 0; round < 5; round++) {
    allocate_all(&j);
    j.stream = f->streams[round % RIG_STREAMS];  // freed on another stream than it was allocated on
    helper_do(&h, free_all, &j);                 // by a thread that only frees
    vmp_pool_stats_data stats = rig_stats(f);
    VEXPECT_UINT_EQ(stats.live, 0);
    VEXPECT_UINT_EQ(stats.blocks, 0);
    VEXPECT_UINT_EQ(stats.frees, (uint64_t)(round + 1) * MOST);
    rig_check(f);
  }
  helper_end(&h);
}

// What was freed on one stream reaches another one only behind the first one's work.
VTEST_FP(ThreadCache, ObjectsStayOnTheirStream, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_host_work_check_order(f->driver, true);
  for (int round = 0; round < 40; round++) {
    job j = {.f = f, .stream = f->streams[round % RIG_STREAMS], .bytes = 20 * KIB, .count = 20};
    allocate_all(&j);
    for (size_t i = 0; i < j.count; i++) rig_touch(f, j.blocks[i], j.bytes, j.stream);
    free_all(&j);
  }
  VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
  rig_settle(f);
  VEXPECT_UINT_EQ(rig_counters(f).bad_touches, 0);
  VEXPECT_UINT_EQ(rig_counters(f).unordered, 0);
}

typedef struct racer {
  pool_rig *f;
  pthread_barrier_t *barrier;
  void **block;
  uint64_t rounds, freed, doubled;
} racer;

static void *race(void *self) {
  racer *r = self;
  for (uint64_t i = 0; i < r->rounds; i++) {
    (void)pthread_barrier_wait(r->barrier);
    vmp_status status = vmp_free(r->f->pool, *r->block, r->f->streams[0]);
    r->freed += status == VMP_OK;
    r->doubled += status == VMP_ERROR_DOUBLE_FREE;
    (void)pthread_barrier_wait(r->barrier);
  }
  return NULL;
}

// Of threads that free one block at the same instant one succeeds; no object reaches two callers.
VTEST_FP(ThreadCache, RacingFreesOfOneBlock, pool_rig, mode, modes, mode_name) {
  enum { RACERS = 3 };
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  pthread_barrier_t barrier;
  VASSERT_INT_EQ(pthread_barrier_init(&barrier, NULL, RACERS + 1), 0);
  racer racers[RACERS];
  pthread_t threads[RACERS];
  void *block = NULL;
  uint64_t rounds = 300;
  for (int i = 0; i < RACERS; i++) {
    racers[i] = (racer){.f = f, .barrier = &barrier, .block = &block, .rounds = rounds};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, race, &racers[i]), 0);
  }
  for (uint64_t i = 0; i < rounds; i++) {
    block = rig_alloc(f, 4096, f->streams[0]);
    (void)pthread_barrier_wait(&barrier);
    (void)pthread_barrier_wait(&barrier);
    job j = {.f = f, .stream = f->streams[0], .bytes = 4096, .count = 8};
    allocate_all(&j);
    for (size_t a = 0; a < j.count; a++) {
      for (size_t b = a + 1; b < j.count; b++) VASSERT_TRUE(j.blocks[a] != j.blocks[b]);
    }
    free_all(&j);
  }
  uint64_t freed = 0, doubled = 0;
  for (int i = 0; i < RACERS; i++) {
    (void)pthread_join(threads[i], NULL);
    freed += racers[i].freed;
    doubled += racers[i].doubled;
  }
  VEXPECT_UINT_EQ(freed, rounds);
  VEXPECT_UINT_EQ(doubled, (RACERS - 1) * rounds);
  (void)pthread_barrier_destroy(&barrier);
  rig_check(f);
}

// ---- all at once ----

// owners: one byte per 512 bytes of address, by hash: 1 while a block that begins there is live.
#define OWNERS (1u << 22)
typedef struct storm {
  pool_rig *f;
  _Atomic uint8_t *owners;
  _Atomic uintptr_t *shared;  // blocks that any thread may free
  uint64_t ops, seed;
  uint64_t twice;
} storm;
enum { SHARED = 128 };

// Small blocks and large ones lie in two arenas of 8 GiB, each in its first gibibyte.
static _Atomic uint8_t *owner_of(const storm *s, uintptr_t block) {
  return &s->owners[(block >> 9 ^ block >> 33 << 21) % OWNERS];
}

static void *storm_body(void *self) {
  storm *s = self;
  vtest_rng rng = vtest_rng_make(s->seed);
  for (uint64_t i = 0; i < s->ops; i++) {
    vmp_stream stream = s->f->streams[vtest_rng_below(&rng, RIG_STREAMS)];
    _Atomic uintptr_t *place = &s->shared[vtest_rng_below(&rng, SHARED)];
    void *fresh = NULL;
    if (vtest_rng_chance(&rng, 1, 2)) {
      fresh = rig_alloc(s->f, vtest_rng_log(&rng, 1, 200 * KIB), stream);
      if (fresh != NULL) s->twice += atomic_exchange(owner_of(s, (uintptr_t)fresh), 1) != 0;
    }
    uintptr_t old = atomic_exchange(place, (uintptr_t)fresh);
    if (old != 0) {
      atomic_store(owner_of(s, old), 0);
      rig_free(s->f, (void *)old, stream);
    }
    if (vtest_rng_chance(&rng, 1, 500)) VEXPECT_OK(vmp_pool_trim(s->f->pool, 64 * MIB, NULL));
    if (vtest_rng_chance(&rng, 1, 500)) (void)rig_stats(s->f);
    if (vtest_rng_chance(&rng, 1, 2000)) VEXPECT_OK(vmp_pool_check(s->f->pool, NULL));
    if (vtest_rng_chance(&rng, 1, 1000)) {
      vmp_guard_lock(&s->f->pool->guard);
      vmp_pool_bypass_caches(s->f->pool, 1);
      vmp_pool_bypass_caches(s->f->pool, -1);
      vmp_guard_unlock(&s->f->pool->guard);
    }
  }
  return NULL;
}

// Four threads allocate and free one another's blocks on four streams, with trims, checks and stops in between: no
// block is ever live twice, and everything adds up.
VTEST_FP(ThreadCache, Storm, pool_rig, mode, modes, mode_name) {
  enum { THREADS = 4 };
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  f->pool->guard.lean_after = 2;
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  static _Atomic uint8_t owners[OWNERS];
  static _Atomic uintptr_t shared[SHARED];
  storm storms[THREADS];
  pthread_t threads[THREADS];
  uint64_t seed = vtest_seed(99);
  for (uint64_t i = 0; i < THREADS; i++) {
    storms[i] =
        (storm){.f = f, .owners = owners, .shared = shared, .ops = vtest_ops(200000) / THREADS, .seed = seed + i};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, storm_body, &storms[i]), 0);
  }
  uint64_t twice = 0;
  for (int i = 0; i < THREADS; i++) {
    (void)pthread_join(threads[i], NULL);
    twice += storms[i].twice;
  }
  VEXPECT_UINT_EQ(twice, 0);
  rig_check(f);
  for (int i = 0; i < SHARED; i++) {
    uintptr_t block = atomic_exchange(&shared[i], 0);
    if (block == 0) continue;
    atomic_store(owner_of(&storms[0], block), 0);
    rig_free(f, (void *)block, f->streams[0]);
  }
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.blocks, 0);
}

// Counters and what is live are compared at one moment, whatever other threads do. A hit that comes just before the
// caches are stopped (the linker sends the pool's own calls here, --wrap) is in the counters, too.
static helper *last_minute_helper;
static job *last_minute_job;
void __real_vmp_caches_stop(vmp_pool *pool);
void __wrap_vmp_caches_stop(vmp_pool *pool);
void __wrap_vmp_caches_stop(vmp_pool *pool) {
  if (last_minute_helper != NULL && pool->cache_stops == 0)
    helper_do(last_minute_helper, allocate_all, last_minute_job);
  __real_vmp_caches_stop(pool);
}

VTEST_FP(ThreadCache, AHitJustBeforeACheckIsCounted, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  helper h;
  helper_start(&h);
  job j = {.f = f, .stream = f->streams[0], .bytes = 4000, .count = 4};
  helper_do(&h, allocate_and_free_all, &j);
  last_minute_helper = &h;
  last_minute_job = &j;
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  last_minute_helper = NULL;
  VEXPECT_UINT_EQ(rig_stats(f).blocks, 4);  // it was asked to
  helper_do(&h, free_all, &j);
  helper_end(&h);
}
