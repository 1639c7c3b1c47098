// predict_test.c: strategy predictive: what is learnt from steps, what the worker maps and what it may not, and that it
// ends cleanly whatever happens.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

#define ONE_GRANULE "strategy:predictive,step_waits:1,chunk_max:1granule,no_map_ahead:1"

// One step of the program: a block of so many MiB comes and goes. Returns the driver calls that it made itself.
static uint64_t own_calls(void) {
  vmp_driver_calls c;
  vmp_driver_get_thread_calls(&c);
  return c.reserve + c.create + c.map + c.set_access + c.unmap + c.release + c.address_free + c.event_record +
         c.event_query + c.stream_wait + c.synchronize;
}

static uint64_t step_of(pool_rig *f, uint64_t mib) {
  uint64_t before = own_calls();
  void *ptr = rig_alloc(f, mib * MIB, NULL);
  rig_touch(f, ptr, mib * MIB, NULL);
  rig_free(f, ptr, NULL);
  VEXPECT_OK(vmp_pool_step(f->pool));
  return own_calls() - before;
}

// 100 MiB were needed: 104 are there for the next step, and none of its driver calls is the program's own.
VTEST_F(Predict, MapsTheMarginAhead, pool_rig) {
  rig_open(f, 4 * GIB, ONE_GRANULE);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_GT(step_of(f, 100), 0);
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.mapped, 104 * MIB);
  VEXPECT_UINT_EQ(s.mapped_ahead, 4 * MIB);
  VEXPECT_UINT_EQ(s.ahead_unused, 4 * MIB);
  VEXPECT_UINT_EQ(s.largest_free_mapped, 104 * MIB);  // behind what is mapped, so that one block can have all of it
  VEXPECT_UINT_EQ(step_of(f, 104), 0);
  // 104 * 1.04 = 108.16 MiB, in whole granules.
  s = rig_stats(f);
  VEXPECT_UINT_EQ(s.mapped, 110 * MIB);
  VEXPECT_UINT_EQ(s.mapped_ahead, 10 * MIB);
  VEXPECT_UINT_EQ(s.ahead_unused, 6 * MIB);
  // From the third step on the margin shrinks: 108 * (1 + 0.04 * 2 / 3) = 110.88 MiB.
  VEXPECT_UINT_EQ(step_of(f, 108), 0);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 112 * MIB);
  for (int i = 0; i < 20; i++) VEXPECT_UINT_EQ(step_of(f, 108), 0);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 112 * MIB);
}

// The marks of eight steps count: a large step is forgotten after eight small ones. What is mapped stays.
VTEST_F(Predict, RemembersEightSteps, pool_rig) {
  rig_open(f, 4 * GIB, ONE_GRANULE ",margin:0");
  VASSERT_NO_FAILURE();
  (void)step_of(f, 300);
  for (int i = 0; i < 7; i++) (void)step_of(f, 10);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 300 * MIB);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  rig_settle(f);
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 20 * MIB));
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, UINT64_MAX));
  VEXPECT_UINT_LE(rig_stats(f).mapped, 20 * MIB);
  (void)step_of(f, 10);
  VEXPECT_UINT_LE(rig_stats(f).mapped, 20 * MIB);  // nine steps ago: forgotten
  (void)step_of(f, 200);
  rig_settle(f);
  VASSERT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_GE(report.released_bytes, 200 * MIB);
  (void)step_of(f, 10);  // a trim that was asked for is not undone
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 10 * MIB);
}

// A lowered limit gave memory back that the last steps needed: once there may be more, it is mapped again.
VTEST_F(Predict, MapsAgainWhatALimitTook, pool_rig) {
  rig_open(f, 4 * GIB, ONE_GRANULE ",margin:0");
  VASSERT_NO_FAILURE();
  (void)step_of(f, 300);
  rig_settle(f);
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 20 * MIB));
  (void)step_of(f, 10);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 20 * MIB);  // up to the limit, no further
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 100 * MIB));
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, 60 * MIB));
  (void)step_of(f, 10);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 60 * MIB);
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, UINT64_MAX));
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, UINT64_MAX));
  (void)step_of(f, 10);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 300 * MIB);
}

// The worker takes at most half of what the device has left.
VTEST_F(Predict, LeavesHalfOfTheDevice, pool_rig) {
  rig_open(f, 1 * GIB, ONE_GRANULE ",margin:1");
  VASSERT_NO_FAILURE();
  vmp_host_set_foreign(f->driver, 0, 24 * MIB);
  (void)step_of(f, 800);  // 200 MiB are left
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 900 * MIB);
}

// Without the strategy there is no worker, and waiting for it is nothing.
VTEST_F(Predict, IsOffByDefault, pool_rig) {
  rig_open(f, 4 * GIB, "chunk_max:1granule,no_map_ahead:1,step_waits:1");
  VASSERT_NO_FAILURE();
  (void)step_of(f, 100);
  VEXPECT_OK(vmp_pool_predict_wait(f->pool));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 100 * MIB);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_ahead, 0);
  VEXPECT_STATUS(vmp_pool_predict_wait(NULL), VMP_ERROR_INVALID_VALUE);
}

// Memory that was mapped at creation and never needed is no need.
VTEST_F(Predict, InitialMemoryIsNoNeed, pool_rig) {
  rig_open(f, 4 * GIB, ONE_GRANULE ",initial_fraction:0.25");
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(step_of(f, 100), 0);
  VEXPECT_UINT_EQ(step_of(f, 100), 0);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 1 * GIB);
}

// ---- blocking ----

typedef struct gate {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool open, waiting;
} gate;

static void wait_at_gate(void *context) {
  gate *g = context;
  (void)pthread_mutex_lock(&g->mutex);
  g->waiting = true;
  (void)pthread_cond_broadcast(&g->changed);
  while (!g->open) (void)pthread_cond_wait(&g->changed, &g->mutex);
  (void)pthread_mutex_unlock(&g->mutex);
}

// While the worker sits in a driver call, requests go on: from what is mapped, and with mapping of their own.
VTEST_F(Predict, BlocksNoAllocation, pool_rig) {
  gate g = {.open = false};
  VASSERT_INT_EQ(pthread_mutex_init(&g.mutex, NULL), 0);
  VASSERT_INT_EQ(pthread_cond_init(&g.changed, NULL), 0);
  rig_open(f, 4 * GIB, "strategy:predictive,chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, 200 * MIB, NULL), NULL);
  vmp_host_delay(f->driver, VMP_CALL_mem_create, wait_at_gate, &g);
  VEXPECT_OK(vmp_pool_step(f->pool));
  (void)pthread_mutex_lock(&g.mutex);
  while (!g.waiting) (void)pthread_cond_wait(&g.changed, &g.mutex);
  (void)pthread_mutex_unlock(&g.mutex);
  vmp_host_delay(f->driver, VMP_CALL_mem_create, NULL, NULL);
  void *blocks[20];
  for (size_t i = 0; i < 20; i++) {
    blocks[i] = rig_alloc(f, 16 * MIB, NULL);  // 320 MiB in all
    rig_touch(f, blocks[i], 16 * MIB, NULL);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  for (size_t i = 0; i < 20; i++) rig_free(f, blocks[i], NULL);
  VEXPECT_OK(vmp_pool_step(f->pool));
  (void)pthread_mutex_lock(&g.mutex);
  g.open = true;
  (void)pthread_cond_broadcast(&g.changed);
  (void)pthread_mutex_unlock(&g.mutex);
  VEXPECT_OK(vmp_pool_predict_wait(f->pool));
  VEXPECT_UINT_GE(rig_stats(f).mapped, 320 * MIB);
  rig_settle(f);
  rig_destroy(f);
  (void)pthread_cond_destroy(&g.changed);
  (void)pthread_mutex_destroy(&g.mutex);
}

// ---- threads, destroy, fork ----

typedef struct player {
  pool_rig *f;
  uint64_t seed, failures;
} player;

static void *play(void *argument) {
  player *p = argument;
  vtest_rng rng = vtest_rng_make(p->seed);
  for (int step = 0; step < 30; step++) {
    void *blocks[8] = {NULL};
    for (size_t i = 0; i < 8; i++) {
      uint64_t bytes = (vtest_rng_below(&rng, 16) + 1) * MIB;
      p->failures += vmp_alloc(p->f->pool, &blocks[i], bytes, p->f->streams[0]) != VMP_OK;
    }
    for (size_t i = 0; i < 8; i++) p->failures += vmp_free(p->f->pool, blocks[i], p->f->streams[0]) != VMP_OK;
    p->failures += vmp_pool_step(p->f->pool) != VMP_OK;
    if (vtest_rng_below(&rng, 8) == 0) p->failures += vmp_pool_trim(p->f->pool, 0, NULL) != VMP_OK;
  }
  return NULL;
}

// Threads that allocate, step and trim while the worker maps; the pool is destroyed while it may be at work.
VTEST_F(Predict, ManyThreads, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (int round = 0; round < 3; round++) {
    VASSERT_OK(rig_create(f, "strategy:predictive,chunk_max:4MiB"));
    player players[3];
    pthread_t threads[3];
    for (uint64_t i = 0; i < 3; i++) {
      players[i] = (player){.f = f, .seed = vtest_seed(7) + i};
      VASSERT_INT_EQ(pthread_create(&threads[i], NULL, play, &players[i]), 0);
    }
    for (size_t i = 0; i < 3; i++) {
      VEXPECT_INT_EQ(pthread_join(threads[i], NULL), 0);
      VEXPECT_UINT_EQ(players[i].failures, 0);
    }
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
    rig_destroy(f);
  }
}

// In a forked child the worker is gone; the pool says so, and ends without waiting for it. The parent's goes on.
VTEST_F(Predict, AForkedChildHasNoWorker, pool_rig) {
  rig_open(f, 4 * GIB, ONE_GRANULE);
  VASSERT_NO_FAILURE();
  (void)step_of(f, 100);
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    int mistakes = vmp_pool_predict_wait(f->pool) != VMP_ERROR_FORKED;
    mistakes += vmp_pool_step(f->pool) != VMP_ERROR_FORKED;
    mistakes += vmp_pool_destroy(f->pool) != VMP_OK;
    _exit(mistakes);
  }
  int status = 0;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VEXPECT_TRUE(WIFEXITED(status));
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
  (void)step_of(f, 200);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 208 * MIB);
}

// ---- failures ----

// Every driver call of the worker fails in turn, once or from then on. Requests are served all the same, nothing is
// lost, and what it could not map the program maps itself. Returns whether the call was reached.
static bool worker_fails(pool_rig *f, uint64_t nth, int code, bool from_then_on) {
  rig_open(f, 4 * GIB, "strategy:predictive,step_waits:1,chunk_max:2granules,no_map_ahead:1,margin:0.2");
  rig_free(f, rig_alloc(f, 40 * MIB, NULL), NULL);
  uint64_t calls = rig_all_calls(f->driver);
  vmp_host_fault fault = {VMP_CALL_COUNT, nth, code, from_then_on};
  VEXPECT_TRUE(vmp_host_inject(f->driver, &fault));
  VEXPECT_OK(vmp_pool_step(f->pool));
  bool reached = rig_all_calls(f->driver) - calls >= nth;
  vmp_host_lift(f->driver);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  void *ptr = rig_alloc(f, 48 * MIB, NULL);
  rig_touch(f, ptr, 48 * MIB, NULL);
  rig_free(f, ptr, NULL);
  rig_settle(f);
  rig_destroy(f);
  vmp_driver_close(f->driver);
  f->driver = NULL;
  return reached;
}

VTEST_F(Predict, EveryCallOfTheWorkerMayFail, pool_rig) {
  static const int codes[] = {VMP_CU_OUT_OF_MEMORY, VMP_CU_INVALID_VALUE, VMP_CU_NOT_READY};
  for (size_t c = 0; c < 3; c++) {
    for (int then_on = 0; then_on < 2; then_on++) {
      uint64_t nth = 1;
      while (worker_fails(f, nth, codes[c], then_on != 0) && nth < 100) {
        VASSERT_NO_FAILURE();
        nth++;
      }
      VEXPECT_UINT_GT(nth, 6);  // get-info, and create, map, set-access of two chunks at least
      VEXPECT_UINT_LT(nth, 100);
    }
  }
}
