// step_test.c: the high-water mark of live bytes within a step, by hand and against a model, from many threads.
#include <pthread.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

static void expect_steps(pool_rig *f, uint64_t steps, uint64_t last, uint64_t largest) {
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.steps, steps);
  VEXPECT_UINT_EQ(s.step_peak_live, last);
  VEXPECT_UINT_EQ(s.max_step_peak_live, largest);
}

VTEST_F(Step, PeaksOfSteps, pool_rig) {
  rig_open(f, GIB, NULL);
  VASSERT_NO_FAILURE();
  expect_steps(f, 0, 0, 0);
  void *a = rig_alloc(f, 10 * MIB, NULL);
  void *b = rig_alloc(f, 20 * MIB, NULL);
  rig_free(f, a, NULL);
  expect_steps(f, 0, 0, 0);  // nothing is known of a step before its end
  VEXPECT_OK(vmp_pool_step(f->pool));
  expect_steps(f, 1, 30 * MIB, 30 * MIB);
  // The next one begins with what is live.
  VEXPECT_OK(vmp_pool_step(f->pool));
  expect_steps(f, 2, 20 * MIB, 30 * MIB);
  rig_free(f, b, NULL);
  a = rig_alloc(f, 5 * MIB, NULL);
  rig_free(f, a, NULL);
  VEXPECT_OK(vmp_pool_step(f->pool));
  expect_steps(f, 3, 20 * MIB, 30 * MIB);  // b was still there at first
  VEXPECT_OK(vmp_pool_step(f->pool));
  expect_steps(f, 4, 0, 30 * MIB);
  VEXPECT_OK(vmp_pool_reset_peaks(f->pool));
  expect_steps(f, 4, 0, 30 * MIB);
}

// Rounding counts: live is what blocks hold. A failed allocation doesn't.
VTEST_F(Step, LiveIsAfterRounding, pool_rig) {
  rig_open(f, 64 * MIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 1, NULL), *none = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 128 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_OK(vmp_pool_step(f->pool));
  expect_steps(f, 1, 512, 512);
  rig_free(f, a, NULL);
}

VTEST_F(Step, NoDriverCall, pool_rig) {
  rig_open(f, GIB, NULL);
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, 10 * MIB, f->streams[0]), f->streams[1]);
  uint64_t calls = rig_all_calls(f->driver);
  for (int i = 0; i < 1000; i++) VEXPECT_OK(vmp_pool_step(f->pool));
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  VEXPECT_STATUS(vmp_pool_step(NULL), VMP_ERROR_INVALID_VALUE);
}

VTEST_F(Step, AgainstAModel, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(7));
  void *blocks[50] = {NULL};
  uint64_t bytes[50] = {0}, live = 0, peak = 0, largest = 0, steps = 0;
  for (int op = 0; op < 20000; op++) {
    size_t i = (size_t)vtest_rng_below(&rng, 50);
    if (blocks[i] != NULL) {
      rig_free(f, blocks[i], NULL);
      blocks[i] = NULL;
      live -= bytes[i];
    } else {
      bytes[i] = vtest_rng_range(&rng, 129, 4096) * 512;  // above slab: no rounding
      blocks[i] = rig_alloc(f, bytes[i], NULL);
      live += bytes[i];
    }
    if (live > peak) peak = live;
    if (!vtest_rng_chance(&rng, 1, 20)) continue;
    VASSERT_OK(vmp_pool_step(f->pool));
    if (peak > largest) largest = peak;
    expect_steps(f, ++steps, peak, largest);
    VASSERT_NO_FAILURE();
    VASSERT_OK(vmp_pool_check(f->pool, NULL));
    peak = live;
  }
  for (size_t i = 0; i < 50; i++) rig_free(f, blocks[i], NULL);
}

static void *step_often(void *context) {
  for (int i = 0; i < 1000; i++) (void)vmp_pool_step(context);
  return NULL;
}

VTEST_F(Step, FromManyThreads, pool_rig) {
  rig_open(f, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 10 * MIB, NULL);
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, step_often, f->pool), 0);
  for (size_t i = 0; i < 4; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  expect_steps(f, 4000, 10 * MIB, 10 * MIB);
  rig_free(f, a, NULL);
}
