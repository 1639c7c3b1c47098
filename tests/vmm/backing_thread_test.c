// backing_thread_test.c: no driver call runs under the lock: while one thread sits in a slow map, another claims on;
// and random claims of several threads under one lock keep every invariant (run under TSan).
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/support/vtest_rng.h"
#include "tests/vmm/backing_rig.h"

typedef struct shared {
  rig rig;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  sem_t arrived, go_on, map_go_on;
  bool spurious;           // waits return at once
  _Atomic uint32_t stops;  // how many calls of a delayed kind shall stop still
} shared;

static void lock(void *self) { (void)pthread_mutex_lock(&((shared *)self)->mutex); }
static void unlock(void *self) { (void)pthread_mutex_unlock(&((shared *)self)->mutex); }
static void wait(void *self) {
  shared *s = self;
  if (!s->spurious) (void)pthread_cond_wait(&s->changed, &s->mutex);
}
static void wake(void *self) { (void)pthread_cond_broadcast(&((shared *)self)->changed); }

static void shared_setup(shared *s) {
  (void)pthread_mutex_init(&s->mutex, NULL);
  (void)pthread_cond_init(&s->changed, NULL);
  (void)sem_init(&s->arrived, 0, 0);
  (void)sem_init(&s->go_on, 0, 0);
  (void)sem_init(&s->map_go_on, 0, 0);
  vmp_backing_options options = rig_options(SLOT);
  rig_open(&s->rig, 64 * MIB, 4 * GIB, &options);
  VASSERT_NO_FAILURE();
  // The rig's own hooks expect one thread; these are a real lock.
  VEXPECT_OK(vmp_backing_destroy(s->rig.backing));
  s->rig.backing = NULL;
  options.driver = s->rig.driver;
  options.clock = s->rig.clock;
  options.context = s->rig.context;
  options.hooks = (vmp_lock_hooks){s, lock, unlock, wait, wake};
  VASSERT_OK(vmp_backing_create(&s->rig.backing, &options));
  lock(s);
  VASSERT_OK(vmp_backing_reserve(s->rig.backing, 4 * GIB, 4 * GIB, &s->rig.base, &s->rig.bytes));
  unlock(s);
  s->rig.ops = vmp_backing_get_ops(s->rig.backing);
}

static void shared_teardown(shared *s) {
  lock(s);
  rig_close(&s->rig);
  unlock(s);
  (void)sem_destroy(&s->arrived);
  (void)sem_destroy(&s->go_on);
  (void)sem_destroy(&s->map_go_on);
  (void)pthread_cond_destroy(&s->changed);
  (void)pthread_mutex_destroy(&s->mutex);
}

static void stop_in_map(void *context) {
  shared *s = context;
  (void)sem_post(&s->arrived);
  while (sem_wait(&s->go_on) != 0) {
  }
}

// stop_first stops only as many calls as `stops` says.
static void stop_first(void *context) {
  shared *s = context;
  uint32_t left = atomic_load(&s->stops);
  while (left > 0 && !atomic_compare_exchange_weak(&s->stops, &left, left - 1)) {
  }
  if (left > 0) stop_in_map(s);
}

static void await(sem_t *semaphore) {
  while (sem_wait(semaphore) != 0) {
  }
}

static void *claim_first_slot(void *context) {
  shared *s = context;
  lock(s);
  VEXPECT_OK(rig_claim(&s->rig, 0, SLOT, 0, NULL));
  unlock(s);
  return NULL;
}

VTEST_F(BackingThreads, OthersClaimOnWhileOneThreadSitsInAMap, shared) {
  lock(f);
  VASSERT_OK(rig_claim(&f->rig, 64 * MIB, 2 * SLOT, 0, NULL));
  rig_release(&f->rig, 64 * MIB, 2 * SLOT, VMP_FENCE_NONE);
  unlock(f);
  vmp_host_delay(f->rig.driver, VMP_CALL_mem_map, stop_in_map, f);
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, claim_first_slot, f), 0);
  while (sem_wait(&f->arrived) != 0) {
  }
  vmp_host_delay(f->rig.driver, VMP_CALL_mem_map, NULL, NULL);
  lock(f);
  VEXPECT_TRUE(f->rig.ops.cost(f->rig.ops.self, f->rig.base, SLOT, 0).blocked);  // in transit
  VEXPECT_STATUS(rig_claim(&f->rig, 0, SLOT, 0, NULL), VMP_ERROR_BUSY);
  VEXPECT_OK(rig_claim(&f->rig, 64 * MIB, SLOT, 0, NULL));   // mapped already
  VEXPECT_OK(rig_claim(&f->rig, 128 * MIB, SLOT, 0, NULL));  // makes driver calls of its own
  rig_release(&f->rig, 64 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(&f->rig, 128 * MIB, SLOT, VMP_FENCE_NONE);
  unlock(f);
  (void)sem_post(&f->go_on);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  lock(f);
  VEXPECT_FALSE(f->rig.ops.cost(f->rig.ops.self, f->rig.base, SLOT, 0).blocked);
  rig_release(&f->rig, 0, SLOT, VMP_FENCE_NONE);
  unlock(f);
}

// claimer: one claim by another thread.
typedef struct claimer {
  shared *s;
  uint64_t offset, bytes;
  vmp_effort effort;
  vmp_status status;
} claimer;

static void *claim_one(void *context) {
  claimer *c = context;
  vmp_fence fence;
  lock(c->s);
  c->status = c->s->rig.ops.claim(c->s->rig.ops.self, c->s->rig.base + c->offset, c->bytes, 0, c->effort, &fence);
  unlock(c->s);
  return NULL;
}

// A claim asks the device how much it has left; meanwhile another thread maps ahead in the middle of its range and
// parks that. The device has no more: the claim must not take the parked chunks of its own range to fill the rest of
// it.
VTEST_F(BackingThreads, AClaimDoesNotTakeWhatWasParkedInItsRange, shared) {
  lock(f);
  VASSERT_OK(rig_claim(&f->rig, 1 * GIB, 30 * SLOT, 0, NULL));  // of 32 that the device has
  unlock(f);
  claimer c = {.s = f, .bytes = 4 * SLOT, .effort = VMP_EFFORT_NORMAL};
  atomic_store(&f->stops, 1);
  vmp_host_delay(f->rig.driver, VMP_CALL_mem_get_info, stop_first, f);
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, claim_one, &c), 0);
  await(&f->arrived);
  lock(f);
  VEXPECT_UINT_EQ(vmp_backing_map_ahead(f->rig.backing, f->rig.base + SLOT, 2 * SLOT, 2 * SLOT), 2 * SLOT);
  unlock(f);
  (void)sem_post(&f->go_on);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_STATUS(c.status, VMP_ERROR_FRAGMENTED);  // two slots of memory, and not for the other two
  lock(f);
  vmp_backing_stats stats = rig_stats(&f->rig);
  VEXPECT_UINT_EQ(stats.parked_bytes, 2 * SLOT);
  VEXPECT_UINT_EQ(stats.takes, 0);
  VEXPECT_UINT_EQ(stats.retiring_bytes, 0);
  rig_check(&f->rig);
  rig_release(&f->rig, 1 * GIB, 30 * SLOT, VMP_FENCE_NONE);
  unlock(f);
}

static void stop_in_second_map(void *context) {
  shared *s = context;
  (void)sem_post(&s->arrived);
  await(&s->map_go_on);
}

// A claim that, however often it looks, meets a slot that another thread is mapping was not served, and says so.
VTEST_F(BackingThreads, AClaimThatMetOnlyOthersDriverCallsIsBusy, shared) {
  claimer all = {.s = f, .bytes = 4 * SLOT, .effort = VMP_EFFORT_RESIZE};
  claimer part = {.s = f, .offset = SLOT, .bytes = SLOT, .effort = VMP_EFFORT_NORMAL};
  pthread_t first, second;
  atomic_store(&f->stops, 1);
  vmp_host_delay(f->rig.driver, VMP_CALL_mem_get_info, stop_first, f);
  vmp_host_delay(f->rig.driver, VMP_CALL_mem_map, stop_in_second_map, f);
  VASSERT_INT_EQ(pthread_create(&first, NULL, claim_one, &all), 0);
  await(&f->arrived);  // it has seen four free slots, and asks the device
  VASSERT_INT_EQ(pthread_create(&second, NULL, claim_one, &part), 0);
  await(&f->arrived);  // one of them is being mapped
  lock(f);
  f->spurious = true;
  unlock(f);
  (void)sem_post(&f->go_on);
  VASSERT_INT_EQ(pthread_join(first, NULL), 0);
  VEXPECT_STATUS(all.status, VMP_ERROR_BUSY);
  lock(f);
  f->spurious = false;
  unlock(f);
  (void)sem_post(&f->map_go_on);
  VASSERT_INT_EQ(pthread_join(second, NULL), 0);
  VEXPECT_OK(part.status);
  lock(f);
  rig_check(&f->rig);
  rig_release(&f->rig, SLOT, SLOT, VMP_FENCE_NONE);
  unlock(f);
}

typedef struct worker {
  shared *s;
  unsigned number;
  uint64_t rounds, seed, served;
} worker;

// Each worker claims in addresses of its own; memory is shared and short.
static void *claim_and_release(void *context) {
  worker *w = context;
  shared *s = w->s;
  vtest_rng rng = vtest_rng_make(w->seed + w->number);
  vmp_stream_index index = vmp_clock_stream(s->rig.clock, NULL);
  for (uint64_t i = 0; i < w->rounds; i++) {
    uint64_t bytes = vtest_rng_range(&rng, 1, 24) * MIB;
    uint64_t offset = w->number * GIB + vtest_rng_below(&rng, GIB - bytes) / 512 * 512;
    vmp_effort effort = (vmp_effort)vtest_rng_range(&rng, VMP_EFFORT_TAKE, VMP_EFFORT_RESIZE);
    vmp_fence fence;
    lock(s);
    vmp_status status = s->rig.ops.claim(s->rig.ops.self, s->rig.base + offset, bytes, index, effort, &fence);
    if (status == VMP_OK) {
      w->served++;
      (void)s->rig.ops.release(s->rig.ops.self, s->rig.base + offset, bytes, VMP_FENCE_NONE);
    }
    if (vtest_rng_chance(&rng, 1, 50)) (void)vmp_backing_poll(s->rig.backing);
    vmp_backing_trim_report report;
    if (vtest_rng_chance(&rng, 1, 100)) VEXPECT_OK(vmp_backing_trim(s->rig.backing, 16 * MIB, &report));
    unlock(s);
  }
  return NULL;
}

VTEST_F(BackingThreads, RandomClaimsOfFourThreads, shared) {
  uint64_t seed = vtest_seed(7);
  worker workers[4];
  pthread_t threads[4];
  for (unsigned i = 0; i < 4; i++) {
    workers[i] = (worker){f, i, vtest_ops(4000) / 4, seed, 0};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, claim_and_release, &workers[i]), 0);
  }
  for (unsigned i = 0; i < 4; i++) {
    (void)pthread_join(threads[i], NULL);
    VEXPECT_UINT_GT(workers[i].served, 0);
  }
  vmp_report report = {NULL, NULL, 0};
  lock(f);
  VEXPECT_UINT_EQ(vmp_backing_check(f->rig.backing, &report), 0);
  VEXPECT_UINT_EQ(vmp_host_check(f->rig.driver, &report), 0);
  rig_expect_no_violations(&f->rig);
  unlock(f);
}
