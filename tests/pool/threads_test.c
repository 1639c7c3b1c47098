// threads_test.c: many threads on one pool, and pools that don't wait for one another. Bug cases 13, 56, 57, 58, 79.
// Meant for TSan as well as for ordinary runs.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

#define MAX_THREADS 16

typedef struct crew {
  pool_rig *f;
  int id;
  uint64_t ops;
  uint64_t seed;
  _Atomic uint64_t *failures;
  _Atomic bool *done;
  pthread_barrier_t *barrier;
  uint64_t obtained;
} crew;

static void run_crew(crew *members, int count, void *(*body)(void *)) {
  pthread_t threads[MAX_THREADS];
  for (int i = 0; i < count; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, body, &members[i]), 0);
  for (int i = 0; i < count; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
}

// ---- the lock leans to one thread while others look in ----

static void *replace_large(void *context) {
  crew *c = context;
  vtest_rng rng = vtest_rng_make(c->seed);
  void *blocks[32] = {NULL};
  vmp_stream stream = c->f->streams[c->id];
  for (uint64_t i = 0; i < c->ops; i++) {
    void **block = &blocks[vtest_rng_below(&rng, 32)];
    if (*block != NULL) rig_free(c->f, *block, stream);
    *block = rig_alloc(c->f, 100 * KIB + vtest_rng_below(&rng, 8 * MIB), stream);
  }
  for (int i = 0; i < 32; i++) {
    if (blocks[i] != NULL) rig_free(c->f, blocks[i], stream);
  }
  if (c->done != NULL) atomic_store(c->done, true);
  return NULL;
}

// One thread replaces blocks the quick way, which takes no mutex after a while; this one comes by with everything else,
// and, in the second run, another one does what the first does.
VTEST_F(Threads, TheLockLeansWhileOthersLook, pool_rig) {
  rig_open(f, 64 * GIB, NULL);
  VASSERT_NO_FAILURE();
  uint64_t seed = vtest_seed(77), ops = vtest_ops(100000) / 2;
  f->pool->guard.lean_after = 3;
  for (int run = 0; run < 2; run++) {
    _Atomic bool done = false;
    crew members[2];
    pthread_t threads[2];
    for (int i = 0; i <= run; i++) {
      members[i] = (crew){.f = f, .id = i, .ops = ops, .seed = seed + (uint64_t)i, .done = i == 0 ? &done : NULL};
      VASSERT_INT_EQ(pthread_create(&threads[i], NULL, replace_large, &members[i]), 0);
    }
    for (uint64_t looks = 0; !atomic_load(&done); looks++) {
      (void)rig_stats(f);
      if (looks % 16 == 0) VEXPECT_OK(vmp_pool_check(f->pool, NULL));
      if (looks % 64 == 0) VEXPECT_OK(vmp_pool_trim(f->pool, GIB, NULL));
      for (int pause = 0; pause < 100; pause++) (void)sched_yield();
    }
    for (int i = 0; i <= run; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
    VEXPECT_NULL(atomic_load(&f->pool->guard.bias));  // each thread dropped it when it ended
    VEXPECT_UINT_EQ(rig_stats(f).live, 0);
    rig_check(f);
  }
}

// ---- case 13: the limit is never crossed, and exactly as many requests succeed as fit ----

static void watch_limit(void *context) {
  pool_rig *f = context;
  vmp_host_census census = rig_census(f);
  if (census.physical_bytes > 64 * GIB) abort();  // checked inside every create: reported by the crash
}

static void *grab_eight_gib(void *context) {
  crew *c = context;
  for (uint64_t round = 0; round < c->ops; round++) {
    void *ptr = NULL;
    (void)pthread_barrier_wait(c->barrier);
    c->obtained += vmp_alloc(c->f->pool, &ptr, 8 * GIB, NULL) == VMP_OK ? 1 : 0;
    (void)pthread_barrier_wait(c->barrier);
    if (ptr != NULL) rig_free(c->f, ptr, NULL);
    (void)pthread_barrier_wait(c->barrier);
    if (c->id == 0) VEXPECT_OK(vmp_pool_trim(c->f->pool, round % 2 == 0 ? 0 : UINT64_MAX, NULL));
  }
  return NULL;
}

VTEST_F(Threads, Case13TheLimitHolds, pool_rig) {
  rig_open(f, 0, "hard_limit:64GiB,chunk_max:512MiB");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  vmp_host_delay(f->driver, VMP_CALL_mem_create, watch_limit, f);
  pthread_barrier_t barrier;
  crew crews[16];
  uint64_t rounds = vtest_ops(100000) < 100000 ? 10 : 100, obtained = 0;
  VASSERT_INT_EQ(pthread_barrier_init(&barrier, NULL, 16), 0);
  for (int i = 0; i < 16; i++) crews[i] = (crew){.f = f, .id = i, .ops = rounds, .barrier = &barrier};
  run_crew(crews, 16, grab_eight_gib);
  for (int i = 0; i < 16; i++) obtained += crews[i].obtained;
  VEXPECT_UINT_EQ(obtained, 8 * rounds);

  // Second run: creates fail now and then; afterwards nothing is accounted that isn't there.
  for (uint64_t i = 1; i <= 16; i++) {
    vmp_host_fault fault = {VMP_CALL_mem_create, 3 * i, VMP_CU_OUT_OF_MEMORY, false};
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  }
  run_crew(crews, 16, grab_eight_gib);
  vmp_host_lift(f->driver);
  vmp_host_delay(f->driver, VMP_CALL_mem_create, NULL, NULL);
  (void)pthread_barrier_destroy(&barrier);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 0);
  VEXPECT_UINT_EQ(rig_census(f).handles, 0);
  rig_check(f);
}

// ---- case 56: allocate, free, trim, look, all at once ----

enum { SLOTS = 64 };

static void *churn(void *context) {
  crew *c = context;
  pool_rig *f = c->f;
  struct {
    void *ptr;
    uint64_t bytes;
  } blocks[SLOTS];
  memset(blocks, 0, sizeof blocks);
  vtest_rng rng = vtest_rng_make(c->seed);
  vmp_stream stream = f->streams[c->id % RIG_STREAMS];
  for (uint64_t op = 0; op < c->ops; op++) {
    size_t i = (size_t)vtest_rng_below(&rng, SLOTS);
    if (blocks[i].ptr != NULL) {
      uint64_t canary = 0, expected = (uint64_t)c->id << 32 | i;
      if (vmp_host_peek(f->driver, rig_address(blocks[i].ptr), &canary, sizeof canary) != 0 || canary != expected) {
        VADD_FAILURE("thread %d: the block of %llu bytes has lost its content", c->id,
                     (unsigned long long)blocks[i].bytes);
      }
      if (vtest_rng_chance(&rng, 1, 8)) rig_touch(f, blocks[i].ptr, blocks[i].bytes, stream);
      rig_free(f, blocks[i].ptr, stream);
      blocks[i].ptr = NULL;
      continue;
    }
    blocks[i].bytes = vtest_rng_log(&rng, 16, 8 * MIB);
    vmp_status status = vmp_alloc(f->pool, &blocks[i].ptr, blocks[i].bytes, stream);
    if (status == VMP_OK) {
      uint64_t canary = (uint64_t)c->id << 32 | i;
      (void)vmp_host_stream_synchronize(f->driver, 0, stream);  // the poke goes past the stream's queue
      (void)vmp_host_poke(f->driver, rig_address(blocks[i].ptr), &canary, sizeof canary);
    } else {
      blocks[i].ptr = NULL;
      if (status != VMP_ERROR_OUT_OF_MEMORY && status != VMP_ERROR_LIMIT && status != VMP_ERROR_FRAGMENTED) {
        VEXPECT_STATUS(status, VMP_OK);
      }
      atomic_fetch_add(c->failures, 1);
    }
  }
  for (size_t i = 0; i < SLOTS; i++) {
    if (blocks[i].ptr != NULL) rig_free(f, blocks[i].ptr, stream);
  }
  return NULL;
}

static void *trim_in_a_loop(void *context) {
  crew *c = context;
  while (!atomic_load(c->done)) {
    VEXPECT_OK(vmp_pool_trim(c->f->pool, 0, NULL));
    (void)sched_yield();
  }
  return NULL;
}

static void *look_in_a_loop(void *context) {
  crew *c = context;
  char path[512];
  (void)snprintf(path, sizeof path, "%s/threads_test.%d.json", vtest_temp_dir(), c->id);
  while (!atomic_load(c->done)) {
    vmp_pool_stats_data s = rig_stats(c->f);
    VEXPECT_UINT_LE(s.requested, s.live);
    VEXPECT_UINT_LE(s.live + s.parked, s.mapped);
    VEXPECT_OK(vmp_pool_check(c->f->pool, NULL));
    VEXPECT_OK(vmp_pool_snapshot(c->f->pool, path));
    (void)sched_yield();
  }
  (void)remove(path);
  return NULL;
}

static void churn_and_look(pool_rig *f, uint64_t ops_per_thread) {
  _Atomic uint64_t failures = 0;
  _Atomic bool done = false;
  crew workers[8], others[2];
  pthread_t threads[2];
  uint64_t seed = vtest_seed(56);
  for (int i = 0; i < 8; i++) {
    workers[i] = (crew){.f = f, .id = i, .ops = ops_per_thread, .seed = seed + (uint64_t)i, .failures = &failures};
  }
  for (int i = 0; i < 2; i++) {
    others[i] = (crew){.f = f, .id = 100 + i, .done = &done};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, i == 0 ? trim_in_a_loop : look_in_a_loop, &others[i]), 0);
  }
  run_crew(workers, 8, churn);
  atomic_store(&done, true);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.live + s.requested + s.blocks, 0);
  VEXPECT_UINT_EQ(s.failed_allocs, failures);
  rig_settle(f);
  rig_check(f);
}

VTEST_F(Threads, Case56EverythingAtOnce, pool_rig) {
  rig_open(f, 4 * GIB, "hard_limit:256MiB");
  VASSERT_NO_FAILURE();
  churn_and_look(f, vtest_ops(20000) / 8);
}

VTEST_F(Threads, Case56WithOneGranuleChunks, pool_rig) {
  rig_open(f, 256 * MIB, "preset:tight");
  VASSERT_NO_FAILURE();
  churn_and_look(f, vtest_ops(20000) / 8);
}

VTEST_F(Threads, Case56CompleteOnly, pool_rig) {
  rig_open(f, 256 * MIB, "cross_stream:complete,chunk_max:4MiB");
  VASSERT_NO_FAILURE();
  churn_and_look(f, vtest_ops(8000) / 8);
}

// ---- cases 57 and 58: no address has two owners ----

// owners: one word for each 512 bytes of the pool's first range; the thread that holds the block, or 0.
enum { OWNED_STEPS = 1 << 16 };
static _Atomic int owners[OWNED_STEPS];
static uint64_t owned_base;

static void *pop_and_push(void *context) {
  crew *c = context;
  vtest_rng rng = vtest_rng_make(c->seed);
  int me = c->id + 1;
  for (uint64_t op = 0; op < c->ops; op++) {
    void *blocks[3];
    size_t count = 1 + (size_t)vtest_rng_below(&rng, 3);
    for (size_t i = 0; i < count; i++) {
      blocks[i] = rig_alloc(c->f, 512, NULL);
      uint64_t step = (rig_address(blocks[i]) - owned_base) / 512;
      if (step >= OWNED_STEPS || atomic_exchange(&owners[step], me) != 0) atomic_fetch_add(c->failures, 1);
    }
    for (size_t i = 0; i < count; i++) {  // freed in another order
      size_t j = (i + 1) % count;
      uint64_t step = (rig_address(blocks[j]) - owned_base) / 512;
      if (step >= OWNED_STEPS || atomic_exchange(&owners[step], 0) != me) atomic_fetch_add(c->failures, 1);
      rig_free(c->f, blocks[j], NULL);
    }
  }
  return NULL;
}

VTEST_F(Threads, Case57And58OneOwner, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  _Atomic uint64_t failures = 0;
  crew crews[8];
  void *first = rig_alloc(f, 512, NULL);
  owned_base = rig_address(first) / (32 * MIB) * (32 * MIB);
  rig_free(f, first, NULL);
  memset(owners, 0, sizeof owners);
  uint64_t seed = vtest_seed(57), ops = vtest_ops(400000) / 8 / 4;
  for (int i = 0; i < 8; i++) {
    crews[i] = (crew){.f = f, .id = i, .ops = ops, .seed = seed + (uint64_t)i, .failures = &failures};
  }
  run_crew(crews, 8, pop_and_push);
  VEXPECT_UINT_EQ(failures, 0);
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.blocks, 0);
  VEXPECT_UINT_EQ(s.allocs, s.frees);
}

// ---- case 79: a slow or failing device doesn't hold up another ----

typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool open;
  int waiting;
} gate;

static void wait_at_gate(void *context) {
  gate *g = context;
  (void)pthread_mutex_lock(&g->mutex);
  g->waiting++;
  (void)pthread_cond_broadcast(&g->changed);
  while (!g->open) (void)pthread_cond_wait(&g->changed, &g->mutex);
  (void)pthread_mutex_unlock(&g->mutex);
}

static void *allocate_slowly(void *context) {
  crew *c = context;
  void *ptr = rig_alloc(c->f, 100 * MIB, c->f->streams[1]);
  rig_free(c->f, ptr, c->f->streams[1]);
  return NULL;
}

// One thread sits in a slow map; others go on allocating from what is mapped, on the same pool and on another.
VTEST_F(Threads, Case79NoLockAcrossDriverCalls, pool_rig) {
  gate g = {.open = false, .waiting = 0};
  VASSERT_INT_EQ(pthread_mutex_init(&g.mutex, NULL), 0);
  VASSERT_INT_EQ(pthread_cond_init(&g.changed, NULL), 0);
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  // A mapped hole of 10 MiB that a request of 100 MiB can't cover.
  void *hole = rig_alloc(f, 10 * MIB, NULL), *keeper = rig_alloc(f, 10 * MIB, NULL);
  rig_free(f, hole, NULL);
  rig_free(f, rig_alloc(f, 5000, NULL), NULL);  // a span
  vmp_host_delay(f->driver, VMP_CALL_mem_map, wait_at_gate, &g);
  crew slow = {.f = f};
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, allocate_slowly, &slow), 0);
  (void)pthread_mutex_lock(&g.mutex);
  while (g.waiting == 0) (void)pthread_cond_wait(&g.changed, &g.mutex);
  (void)pthread_mutex_unlock(&g.mutex);
  // The other thread is inside cuMemMap now, and stays there until we are done.
  for (int i = 0; i < 100; i++) {
    rig_free(f, rig_alloc(f, 5000, NULL), NULL);
    rig_free(f, rig_alloc(f, 3 * MIB, NULL), NULL);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VEXPECT_UINT_EQ(rig_stats(f).blocks, 1);
  (void)pthread_mutex_lock(&g.mutex);
  g.open = true;
  (void)pthread_cond_broadcast(&g.changed);
  (void)pthread_mutex_unlock(&g.mutex);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  vmp_host_delay(f->driver, VMP_CALL_mem_map, NULL, NULL);
  rig_free(f, keeper, NULL);
  rig_check(f);
  (void)pthread_cond_destroy(&g.changed);
  (void)pthread_mutex_destroy(&g.mutex);
}
