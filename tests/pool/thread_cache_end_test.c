// thread_cache_end_test.c: when what threads keep for themselves goes back, how much it may be, and pools and threads
// that end. pool/thread_cache.h. Meant for TSan as well.
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pool/thread_cache.h"
#include "tests/pool/cache_rig.h"
#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

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
#if defined(__SANITIZE_THREAD__)
  VSKIP("ThreadSanitizer forgets a thread in the last round of its destructors: nothing may run after that");
#endif
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
