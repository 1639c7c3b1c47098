// thread_cache_test.c: what threads keep for themselves: hits without the lock, frees from elsewhere, racing frees, and
// when everything goes back. pool/thread_cache.h. Meant for TSan as well.
#include "pool/thread_cache.h"

#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pool/marks_rig.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

// helper: another thread that does what it is told, one thing after the other, and lives until it is told to end.
typedef struct helper {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  void (*task)(void *context);
  void *context;
  bool busy, ends;
} helper;

static void *helper_body(void *self) {
  helper *h = self;
  (void)pthread_mutex_lock(&h->mutex);
  while (!h->ends) {
    if (h->busy) {
      (void)pthread_mutex_unlock(&h->mutex);  // the task may take the pool's lock, and who has that may ask for one
      h->task(h->context);
      (void)pthread_mutex_lock(&h->mutex);
      h->busy = false;
      (void)pthread_cond_broadcast(&h->changed);
    } else {
      (void)pthread_cond_wait(&h->changed, &h->mutex);
    }
  }
  (void)pthread_mutex_unlock(&h->mutex);
  return NULL;
}

static void helper_start(helper *h) {
  *h = (helper){.busy = false};
  VASSERT_INT_EQ(pthread_mutex_init(&h->mutex, NULL), 0);
  VASSERT_INT_EQ(pthread_cond_init(&h->changed, NULL), 0);
  VASSERT_INT_EQ(pthread_create(&h->thread, NULL, helper_body, h), 0);
}

static void helper_do(helper *h, void (*task)(void *), void *context) {
  (void)pthread_mutex_lock(&h->mutex);
  h->task = task;
  h->context = context;
  h->busy = true;
  (void)pthread_cond_broadcast(&h->changed);
  while (h->busy) (void)pthread_cond_wait(&h->changed, &h->mutex);
  (void)pthread_mutex_unlock(&h->mutex);
}

static void helper_end(helper *h) {
  (void)pthread_mutex_lock(&h->mutex);
  h->ends = true;
  (void)pthread_cond_broadcast(&h->changed);
  (void)pthread_mutex_unlock(&h->mutex);
  (void)pthread_join(h->thread, NULL);
  (void)pthread_cond_destroy(&h->changed);
  (void)pthread_mutex_destroy(&h->mutex);
}

// job: blocks that a helper allocates or frees.
enum { MOST = 64 };
typedef struct job {
  pool_rig *f;
  vmp_stream stream;
  uint64_t bytes;
  size_t count;
  void *blocks[MOST];
  vmp_status status;
} job;

static void allocate_all(void *context) {
  job *j = context;
  for (size_t i = 0; i < j->count; i++) j->blocks[i] = rig_alloc(j->f, j->bytes, j->stream);
}
static void free_all(void *context) {
  job *j = context;
  for (size_t i = 0; i < j->count; i++) rig_free(j->f, j->blocks[i], j->stream);
}
static void allocate_and_free_all(void *context) {
  allocate_all(context);
  free_all(context);
}

// Each test runs with membarrier and without, and by marks, with and without bundles.
typedef struct mode {
  const char *name;
  bool strong, marks;
  uint32_t bundles_from;
} mode;
static const mode modes[] = {
    {.name = "membarrier"},
    {.name = "strong", .strong = true},
    {.name = "marks", .marks = true, .bundles_from = UINT32_MAX},
    {.name = "bundles", .marks = true},
};
static const char *mode_name(const mode *m) { return m->name; }

static void open(pool_rig *f, const mode *m, uint64_t device_bytes, const char *conf) {
  rig_open(f, device_bytes, conf);
  VASSERT_NO_FAILURE();
  f->pool->strong_caches = m->strong;  // before the first cache is made
  if (m->marks) rig_go_by_marks(f, m->bundles_from);
}

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

// ---- everything goes back ----

VTEST_FP(ThreadCache, WhenTheThreadEnds, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  helper h;
  helper_start(&h);
  job j = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 8};
  helper_do(&h, allocate_and_free_all, &j);
  VEXPECT_UINT_GT(rig_stats(f).cached, 0);
  helper_end(&h);
  VEXPECT_UINT_EQ(rig_stats(f).cached, 0);
  VEXPECT_UINT_EQ(rig_stats(f).cached_bound, 0);
  VEXPECT_NULL(f->pool->caches);
}

VTEST_FP(ThreadCache, WhenThePoolTrims, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  helper h;
  helper_start(&h);
  job j = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 8};
  helper_do(&h, allocate_and_free_all, &j);
  allocate_and_free_all(&j);
  VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.cached, 0);
  VEXPECT_UINT_EQ(stats.mapped, 0);
  helper_do(&h, allocate_and_free_all, &j);  // and they keep some again
  VEXPECT_UINT_GT(rig_stats(f).cached, 0);
  helper_end(&h);
}

// On a device of 512 MiB, what another thread keeps would be missing for one block of all of it.
VTEST_FP(ThreadCache, BeforeOutOfMemory, pool_rig, mode, modes, mode_name) {
  open(f, p, 512 * MIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  helper h;
  helper_start(&h);
  job j = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 8};
  helper_do(&h, allocate_and_free_all, &j);
  allocate_and_free_all(&j);
  VEXPECT_UINT_GT(rig_stats(f).cached, 0);
  void *all = rig_alloc(f, 512 * MIB, f->streams[0]);
  VEXPECT_NOT_NULL(all);
  VEXPECT_UINT_EQ(rig_stats(f).cached, 0);
  rig_free(f, all, f->streams[0]);
  helper_end(&h);
}

static void retire(void *context) {
  job *j = context;
  j->status = vmp_stream_retired(j->f->pool, j->stream);
}

VTEST_FP(ThreadCache, WhenTheStreamIsRetired, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  job j = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 8};
  job other = {.f = f, .stream = f->streams[1], .bytes = 32 * KIB, .count = 8};
  allocate_and_free_all(&j);
  allocate_and_free_all(&other);
  uint64_t both = rig_stats(f).cached;
  helper h;
  helper_start(&h);
  helper_do(&h, retire, &j);
  VEXPECT_OK(j.status);
  uint64_t one = rig_stats(f).cached;
  VEXPECT_UINT_LT(one, both);
  VEXPECT_UINT_GT(one, 0);
  allocate_and_free_all(&j);  // a stream with the same handle
  VEXPECT_UINT_GT(rig_stats(f).cached, one);
  rig_check(f);
  helper_end(&h);
}

VTEST_FP(ThreadCache, WhileSomebodyMustSeeEverything, pool_rig, mode, modes, mode_name) {
  open(f, p, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  job j = {.f = f, .stream = f->streams[0], .bytes = 64 * KIB, .count = 8};
  allocate_and_free_all(&j);
  for (int twice = 0; twice < 2; twice++) {
    vmp_guard_lock(&f->pool->guard);
    vmp_pool_bypass_caches(f->pool, 1);
    vmp_pool_bypass_caches(f->pool, 1);
    vmp_pool_bypass_caches(f->pool, -1);
    vmp_guard_unlock(&f->pool->guard);
    VEXPECT_UINT_EQ(rig_stats(f).cached, 0);
    allocate_and_free_all(&j);
    VEXPECT_UINT_EQ(rig_stats(f).cached, 0);
    vmp_guard_lock(&f->pool->guard);
    vmp_pool_bypass_caches(f->pool, -1);
    vmp_guard_unlock(&f->pool->guard);
    allocate_and_free_all(&j);
    VEXPECT_UINT_GT(rig_stats(f).cached, 0);
  }
}

// ---- bounds ----

VTEST_F(ThreadCache, AllTogetherKeepAtMostTheirShare, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:256MiB");  // 1/256 of it: 1 MiB
  VASSERT_NO_FAILURE();
  helper helpers[4];
  for (int i = 0; i < 4; i++) helper_start(&helpers[i]);
  for (int round = 0; round < 20; round++) {
    job j = {.f = f, .stream = f->streams[round % RIG_STREAMS], .bytes = (uint64_t)(round + 1) * 3000, .count = 40};
    helper_do(&helpers[round % 4], allocate_and_free_all, &j);
    vmp_pool_stats_data stats = rig_stats(f);
    VEXPECT_UINT_LE(stats.cached, stats.cached_bound);
    VEXPECT_UINT_LE(stats.cached_bound, MIB);
    rig_check(f);
  }
  for (int i = 0; i < 4; i++) helper_end(&helpers[i]);
}

VTEST_F(ThreadCache, NoneByOption, pool_rig) {
  rig_open(f, 8 * GIB, "thread_cache:0");
  VASSERT_NO_FAILURE();
  job j = {.f = f, .stream = f->streams[0], .bytes = 1000, .count = 8};
  allocate_and_free_all(&j);
  VEXPECT_UINT_EQ(rig_stats(f).cached_bound, 0);
  VEXPECT_NULL(f->pool->caches);
}

VTEST_F(ThreadCache, WithoutHostMemoryForACacheThereIsNone, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *first = rig_alloc(f, 300 * MIB, f->streams[0]);  // everything but slab's own is made
  uint64_t successes = 0;
  for (;; successes++) {
    void *block = NULL;
    vmp_mem_fail_after(successes, UINT64_MAX);
    vmp_status status = vmp_alloc(f->pool, &block, 1000, f->streams[0]);
    uint64_t failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK && failures > 0) VEXPECT_NULL(f->pool->caches);
    if (status == VMP_OK) rig_free(f, block, f->streams[0]);
    rig_check(f);
    if (failures == 0) break;
  }
  VEXPECT_NOT_NULL(f->pool->caches);
  rig_free(f, first, f->streams[0]);
}

// A thread that allocates large blocks only: its cache, by which these go the quick way, is opened again after its
// stream was retired.
VTEST_F(ThreadCache, ARetiredStreamsCacheComesBackForLargeBlocks, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, MIB, f->streams[0]), f->streams[0]);
  VASSERT_TRUE(vmp_cache_is_last(f->pool, f->streams[0]));
  VEXPECT_OK(vmp_stream_retired(f->pool, f->streams[0]));
  VEXPECT_TRUE(atomic_load(&vmp_cache_last.cache->gate) != 0);
  rig_free(f, rig_alloc(f, MIB, f->streams[0]), f->streams[0]);
  VEXPECT_TRUE(vmp_cache_is_last(f->pool, f->streams[0]));
  VEXPECT_UINT_EQ(atomic_load(&vmp_cache_last.cache->gate), 0);
}

// Defragmenting finds out that a lowered limit is reached: caches are used again.
VTEST_F(ThreadCache, ALimitThatDefragmentingReaches, pool_rig) {
  rig_open(f, 8 * GIB, "chunk_max:1granule");
  VASSERT_NO_FAILURE();
  void *freed = rig_alloc(f, 64 * MIB, f->streams[0]), *kept = rig_alloc(f, 64 * MIB, f->streams[0]);
  rig_touch(f, freed, 64 * MIB, f->streams[0]);
  rig_free(f, freed, f->streams[0]);
  VEXPECT_STATUS(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 96 * MIB), VMP_PENDING);
  VEXPECT_UINT_EQ(f->pool->uncached, 1);
  rig_settle(f);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  VEXPECT_OK(vmp_pool_defragment(f->pool, &options, NULL));
  VEXPECT_FALSE(f->pool->over_limit);
  VEXPECT_UINT_EQ(f->pool->uncached, 0);
  rig_free(f, kept, f->streams[0]);
}

// ---- pools and threads that end ----

// A thread outlives its pools; another pool may lie at the same address.
VTEST_F(ThreadCache, PoolsComeAndGo, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  helper h;
  helper_start(&h);
  for (int i = 0; i < 50; i++) {
    VASSERT_OK(rig_create(f, NULL));
    f->pool->strong_caches = i % 5 == 4;
    job j = {.f = f, .stream = f->streams[0], .bytes = 2000, .count = 8};
    helper_do(&h, allocate_and_free_all, &j);
    allocate_and_free_all(&j);
    rig_destroy(f);
    f->pool = NULL;
  }
  helper_end(&h);
}

static void *use_and_leave(void *self) {
  job *j = self;
  allocate_and_free_all(j);
  j->status = VMP_OK;
  return NULL;
}

// Threads that have stopped using a pool may be just ending while it is destroyed.
VTEST_F(ThreadCache, ThreadsEndWhileThePoolDoes, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  for (int i = 0; i < 100; i++) {
    VASSERT_OK(rig_create(f, NULL));
    job j = {.f = f, .stream = f->streams[0], .bytes = 2000, .count = 8};
    pthread_t thread;
    VASSERT_INT_EQ(pthread_create(&thread, NULL, use_and_leave, &j), 0);
    while (rig_stats(f).frees < 8) (void)sched_yield();
    VASSERT_OK(vmp_pool_destroy(f->pool));
    f->pool = NULL;
    (void)pthread_join(thread, NULL);
  }
}

typedef struct outliving {
  pool_rig *f;
  _Atomic int step;
} outliving;

static void *outlive_the_pool(void *self) {
  outliving *o = self;
  rig_free(o->f, rig_alloc(o->f, 2000, o->f->streams[0]), o->f->streams[0]);
  atomic_store(&o->step, 1);
  while (atomic_load_explicit(&o->step, memory_order_relaxed) != 2) (void)sched_yield();
  return NULL;  // its cache of the pool goes now
}

// Nothing but the cache's state orders what the pool's end and the thread's end do with it: ThreadSanitizer looks.
VTEST_F(ThreadCache, AThreadEndsAfterThePool, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  outliving o = {.f = f};
  pthread_t threads[3];
  for (int i = 0; i < 3; i++) {
    atomic_store(&o.step, 0);
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, outlive_the_pool, &o), 0);
    while (atomic_load(&o.step) == 0) (void)sched_yield();
  }
  VASSERT_OK(vmp_pool_destroy(f->pool));
  f->pool = NULL;
  atomic_store_explicit(&o.step, 2, memory_order_relaxed);
  for (int i = 0; i < 3; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
}

// What a thread's destructors allocate and free, in each of their rounds, leaves no cache behind.
typedef struct last_will {
  pool_rig *f;
  pthread_key_t key;
  int rounds;
} last_will;

static void execute(void *value) {
  last_will *w = value;
  rig_free(w->f, rig_alloc(w->f, 2000, w->f->streams[0]), w->f->streams[0]);
  w->rounds++;
  (void)pthread_setspecific(w->key, w);  // and once more, as long as there are rounds
}

static void *leave_a_will(void *self) {
  last_will *w = self;
  rig_free(w->f, rig_alloc(w->f, 2000, w->f->streams[0]), w->f->streams[0]);
  (void)pthread_setspecific(w->key, w);
  return NULL;
}

VTEST_F(ThreadCache, DestructorsLeaveNoCacheBehind, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  last_will w = {.f = f};
  // The library's key comes first: in each round, the last one too, its destructor runs before this one.
  rig_free(f, rig_alloc(f, 2000, f->streams[0]), f->streams[0]);
  VASSERT_INT_EQ(pthread_key_create(&w.key, execute), 0);
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, leave_a_will, &w), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_INT_GT(w.rounds, 1);
  VASSERT_NOT_NULL(f->pool->caches);
  VEXPECT_NULL(f->pool->caches->next);
  VEXPECT_PTR_EQ(f->pool->caches, vmp_cache_last.cache);
  (void)pthread_key_delete(w.key);
}

VTEST_F(ThreadCache, AForkedChildHitsNothing, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  job j = {.f = f, .stream = f->streams[0], .bytes = 2000, .count = 8};
  allocate_and_free_all(&j);
  void *live = rig_alloc(f, 2000, f->streams[0]);
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    void *block = NULL;
    int mistakes = vmp_alloc(f->pool, &block, 2000, f->streams[0]) != VMP_ERROR_FORKED;
    mistakes += vmp_free(f->pool, live, f->streams[0]) != VMP_ERROR_FORKED;
    mistakes += vmp_pool_destroy(f->pool) != VMP_OK;
    _exit(mistakes);
  }
  int status = 0;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VEXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  rig_free(f, live, f->streams[0]);
  allocate_and_free_all(&j);
}

// The lock leans to the thread that forks: its child is told all the same, and may destroy its copy.
VTEST_F(ThreadCache, AForkedChildDoesNotGoTheQuickWay, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  f->pool->guard.lean_after = 2;
  void *live = rig_alloc(f, MIB, f->streams[0]);
  for (int i = 0; i < 10; i++) rig_free(f, rig_alloc(f, 2 * MIB, f->streams[0]), f->streams[0]);
  VASSERT_PTR_EQ(atomic_load(&f->pool->guard.bias), &vmp_cache_last.cache->seat);
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    void *block = NULL;
    int mistakes = vmp_alloc(f->pool, &block, 2 * MIB, f->streams[0]) != VMP_ERROR_FORKED;
    mistakes += vmp_free(f->pool, live, f->streams[0]) != VMP_ERROR_FORKED;
    mistakes += vmp_pool_destroy(f->pool) != VMP_OK;
    _exit(mistakes);
  }
  int status = 0;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VEXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  VEXPECT_PTR_EQ(atomic_load(&f->pool->guard.bias), &vmp_cache_last.cache->seat);
  rig_free(f, live, f->streams[0]);
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
