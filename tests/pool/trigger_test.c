// trigger_test.c: what a pool does by itself at a step: when it gathers and when not, within which bounds, what goes
// back to the device after a time that the test sets, and that a driver that fails is nobody's failure.
#include "pool/trigger.h"

#include <pthread.h>
#include <stdatomic.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

#define TIGHT "preset:tight"
#define SECOND UINT64_C(1000000)

static uint64_t remapping_calls(pool_rig *f) {
  vmp_driver_calls calls = rig_calls(f);
  return calls.map + calls.set_access + calls.unmap + calls.release;
}

// open makes a pool whose queued work has always finished.
static void open(pool_rig *f, const char *conf) {
  rig_open(f, 4 * GIB, conf);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  vmp_triggers_set_max_us(f->pool, 0);
}

static void fill(pool_rig *f, void **blocks, size_t count, uint64_t bytes) {
  for (size_t i = 0; i < count; i++) blocks[i] = rig_alloc(f, bytes, NULL);
}

static void drop(pool_rig *f, void **block) {
  if (*block != NULL) rig_free(f, *block, NULL);
  *block = NULL;
}

static void drop_all(pool_rig *f, void **blocks, size_t count) {
  for (size_t i = 0; i < count; i++) drop(f, &blocks[i]);
}

// step expects so many more runs from one step.
static void step(pool_rig *f, uint64_t runs) {
  uint64_t before = rig_stats(f).trigger_runs, calls = rig_all_calls(f->driver);
  VEXPECT_OK(vmp_pool_step(f->pool));
  if (runs == 0) VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  VEXPECT_UINT_EQ(rig_stats(f).trigger_runs - before, runs);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
}

// ---- gathering ----

VTEST_F(Trigger, EveryNthStep, pool_rig) {
  open(f, TIGHT ",defragment_steps:3");
  void *blocks[64];
  fill(f, blocks, 64, GRANULE);
  for (size_t i = 0; i < 64; i += 2) drop(f, &blocks[i]);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, GRANULE);
  uint64_t maps = rig_calls(f).map;
  step(f, 0);
  step(f, 0);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, GRANULE);
  step(f, 1);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, 32 * GRANULE);
  VEXPECT_UINT_GE(rig_calls(f).map - maps, 31);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * GRANULE);
  maps = rig_calls(f).map;
  step(f, 0);
  step(f, 0);
  step(f, 1);  // it looks, and there is nothing to gain
  VEXPECT_UINT_EQ(rig_calls(f).map, maps);
  drop_all(f, blocks, 64);
}

VTEST_F(Trigger, FreeBlocksAboveANumber, pool_rig) {
  open(f, TIGHT ",defragment_blocks:10");
  void *blocks[64];
  fill(f, blocks, 64, GRANULE);
  for (size_t i = 0; i < 10; i++) {
    drop(f, &blocks[2 * i]);
    step(f, 0);
  }
  drop(f, &blocks[20]);  // the eleventh
  step(f, 1);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, 11 * GRANULE);
  step(f, 0);
  drop_all(f, blocks, 64);
}

// Free halves of granules can't be gathered: it tries once, and again when there are more of them.
VTEST_F(Trigger, ARunThatCannotHelpIsNotRepeated, pool_rig) {
  open(f, TIGHT ",edges:0,defragment_blocks:10");
  void *blocks[64];
  fill(f, blocks, 64, MIB);
  for (size_t i = 0; i < 10; i++) drop(f, &blocks[2 * i]);
  step(f, 0);
  drop(f, &blocks[20]);
  step(f, 1);
  for (int i = 0; i < 5; i++) step(f, 0);
  drop(f, &blocks[22]);
  step(f, 1);
  step(f, 0);
  // Below the limit and above it again.
  for (size_t i = 0; i < 6; i++) blocks[2 * i] = rig_alloc(f, MIB, NULL);
  step(f, 0);
  for (size_t i = 0; i < 5; i++) drop(f, &blocks[2 * i]);
  step(f, 1);
  drop_all(f, blocks, 64);
}

VTEST_F(Trigger, IdleShareAboveALimit, pool_rig) {
  open(f, TIGHT ",defragment_share:0.5");
  void *blocks[64];
  step(f, 0);  // nothing is mapped
  fill(f, blocks, 64, GRANULE);
  for (size_t i = 0; i < 64; i += 2) drop(f, &blocks[i]);
  step(f, 0);  // a half is not more than a half
  drop(f, &blocks[33]);
  step(f, 1);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, 33 * GRANULE);
  step(f, 0);
  drop(f, &blocks[35]);
  step(f, 1);
  drop_all(f, blocks, 64);
}

// Suspended blocks are live, but hold none of what is mapped.
VTEST_F(Trigger, SuspendedMemoryIsNoUse, pool_rig) {
  open(f, TIGHT ",defragment_share:0.5");
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  void *blocks[10], *away = NULL;
  VASSERT_OK(vmp_tag_create(f->pool, "away", &options.tag));
  VASSERT_OK(vmp_alloc_with(f->pool, &away, 100 * GRANULE, NULL, &options));
  VASSERT_OK(vmp_pool_suspend(f->pool, options.tag, NULL));
  VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
  fill(f, blocks, 10, GRANULE);
  for (size_t i = 0; i < 10; i += 2) drop(f, &blocks[i]);
  step(f, 0);
  drop(f, &blocks[1]);
  step(f, 1);
  drop_all(f, blocks, 10);
  drop(f, &away);
  VEXPECT_OK(vmp_pool_resume(f->pool, options.tag));
}

// What is beyond the limits goes back.
VTEST_F(Trigger, TrimsToTheLimits, pool_rig) {
  open(f, TIGHT ",defragment_steps:1");
  void *blocks[64];
  fill(f, blocks, 64, GRANULE);
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, 40 * GRANULE));
  for (size_t i = 0; i < 64; i += 2) drop(f, &blocks[i]);
  step(f, 1);
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 40 * GRANULE);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, 8 * GRANULE);
  drop_all(f, blocks, 64);
}

VTEST_F(Trigger, ARunIsBounded, pool_rig) {
  open(f, TIGHT ",defragment_steps:1");
  enum { MANY = 1200 };
  static void *blocks[MANY];
  fill(f, blocks, MANY, GRANULE);
  for (size_t i = 0; i < MANY; i += 2) drop(f, &blocks[i]);
  for (int i = 0; i < 3; i++) {
    uint64_t calls = remapping_calls(f);
    VEXPECT_OK(vmp_pool_step(f->pool));
    VEXPECT_UINT_LE(remapping_calls(f) - calls, VMP_TRIGGER_CALLS);
  }
  VEXPECT_UINT_GE(rig_stats(f).largest_free_mapped, 50 * GRANULE);
  drop_all(f, blocks, MANY);
}

VTEST_F(Trigger, BeforeOutOfMemory, pool_rig) {
  static const char *const confs[] = {TIGHT, TIGHT ",defragment_oom:1", "defragment_oom:1"};
  rig_open_driver(f, 64 * MIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t c = 0; c < 3; c++) {
    VTRACE("%s", confs[c]);
    VASSERT_OK(rig_create(f, confs[c]));
    vmp_triggers_set_max_us(f->pool, 0);
    void *blocks[32], *more = NULL;
    fill(f, blocks, 32, GRANULE);
    for (size_t i = 0; i < 32; i += 2) drop(f, &blocks[i]);
    VEXPECT_UINT_EQ(rig_stats(f).trigger_runs, 0);
    VEXPECT_STATUS(vmp_alloc(f->pool, &more, 40 * MIB, NULL), VMP_ERROR_OUT_OF_MEMORY);  // 32 are free
    VEXPECT_UINT_EQ(rig_stats(f).trigger_runs, c > 0);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
    more = rig_alloc(f, 32 * MIB, NULL);
    VEXPECT_UINT_EQ(rig_stats(f).trigger_runs, c > 0);
    drop(f, &more);
    drop_all(f, blocks, 32);
    rig_destroy(f);
  }
}

// ---- an allocation that needs no driver call goes on meanwhile ----

static void allocate_meanwhile(void *context) {
  pool_rig *f = context;
  uint64_t calls = rig_all_calls(f->driver);
  rig_free(f, rig_alloc(f, 500, NULL), NULL);
  rig_free(f, rig_alloc(f, 100 * KIB, NULL), NULL);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
}

VTEST_F(Trigger, BlocksNoAllocation, pool_rig) {
  open(f, TIGHT ",thread_cache:0,defragment_steps:1,release_above:0,release_after:0");
  void *blocks[16];
  fill(f, blocks, 16, GRANULE);
  void *small = rig_alloc(f, 500, NULL), *middle = rig_alloc(f, 100 * KIB, NULL);
  for (size_t i = 0; i < 16; i += 2) drop(f, &blocks[i]);
  vmp_host_delay(f->driver, VMP_CALL_mem_map, allocate_meanwhile, f);
  vmp_host_delay(f->driver, VMP_CALL_mem_unmap, allocate_meanwhile, f);
  uint64_t maps = rig_calls(f).map, unmaps = rig_calls(f).unmap;
  for (int i = 0; i < 3; i++) VEXPECT_OK(vmp_pool_step(f->pool));
  VEXPECT_UINT_GT(rig_calls(f).map, maps);
  VEXPECT_UINT_GT(rig_calls(f).unmap, unmaps);
  vmp_host_delay(f->driver, VMP_CALL_mem_map, NULL, NULL);
  vmp_host_delay(f->driver, VMP_CALL_mem_unmap, NULL, NULL);
  drop_all(f, blocks, 16);
  drop(f, &small);
  drop(f, &middle);
}

// ---- giving back, by a clock that the test sets ----

static uint64_t read_clock(void *context) { return *(uint64_t *)context; }

// step_at makes a step at a time and expects so many granules to go back.
static void step_at(pool_rig *f, uint64_t *clock, uint64_t us, uint64_t granules) {
  *clock = us;
  uint64_t released = rig_stats(f).released_by_decay, calls = remapping_calls(f);
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_OK(vmp_pool_step(f->pool));
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(after.released_by_decay - released, granules * GRANULE);
  VEXPECT_UINT_EQ(before.mapped + before.spare - after.mapped - after.spare, granules * GRANULE);
  VEXPECT_UINT_LE(remapping_calls(f) - calls, 2 * VMP_TRIGGER_CHUNKS);
  if (granules == 0) VEXPECT_UINT_EQ(remapping_calls(f), calls);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
}

static void open_decay(pool_rig *f, uint64_t *clock, const char *conf) {
  open(f, conf);
  VASSERT_NO_FAILURE();
  vmp_triggers_set_clock(f->pool, read_clock, clock);
}

VTEST_F(Trigger, IdleMemoryGoesBackInTime, pool_rig) {
  uint64_t clock = 5;
  open_decay(f, &clock, TIGHT ",release_above:8MiB,release_after:10s");
  void *blocks[20];
  fill(f, blocks, 20, GRANULE);
  step_at(f, &clock, 5, 0);
  step_at(f, &clock, 11 * SECOND, 0);  // nothing is idle
  drop_all(f, blocks, 20);
  step_at(f, &clock, 12 * SECOND, 0);  // the window begins
  step_at(f, &clock, 15 * SECOND, 0);
  step_at(f, &clock, 22 * SECOND - 1, 0);
  step_at(f, &clock, 22 * SECOND, 16);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 8 * MIB);
  step_at(f, &clock, 100 * SECOND, 0);  // what may stay stays
  step_at(f, &clock, 200 * SECOND, 0);
}

// What was used for a moment only, between two steps, isn't idle all through the window.
VTEST_F(Trigger, UseBetweenStepsCounts, pool_rig) {
  uint64_t clock = 0;
  open_decay(f, &clock, TIGHT ",release_above:8MiB,release_after:10s");
  void *blocks[20];
  fill(f, blocks, 20, GRANULE);
  drop_all(f, blocks, 20);
  step_at(f, &clock, 0, 0);
  fill(f, blocks, 9, GRANULE);
  drop_all(f, blocks, 9);
  step_at(f, &clock, 10 * SECOND, 20 - 9 - 4);
  // So much that nothing beyond the threshold is left: the window begins anew.
  step_at(f, &clock, 11 * SECOND, 0);
  fill(f, blocks, 9, GRANULE);
  drop_all(f, blocks, 9);
  step_at(f, &clock, 15 * SECOND, 0);
  step_at(f, &clock, 21 * SECOND, 0);
  step_at(f, &clock, 25 * SECOND, 9);
}

VTEST_F(Trigger, GivingBackIsBounded, pool_rig) {
  uint64_t clock = 0;
  open_decay(f, &clock, TIGHT ",release_above:0,release_after:10s");
  static void *blocks[200];
  fill(f, blocks, 200, GRANULE);
  drop_all(f, blocks, 200);
  step_at(f, &clock, 0, 0);
  step_at(f, &clock, 10 * SECOND, 64);
  step_at(f, &clock, 10 * SECOND, 64);
  fill(f, blocks, 30, GRANULE);  // meanwhile some of the rest is of use
  drop_all(f, blocks, 30);
  step_at(f, &clock, 10 * SECOND, 42);
  step_at(f, &clock, 10 * SECOND, 0);
  step_at(f, &clock, 20 * SECOND, 30);
}

// A chunk that holds more than what is due stays: never does less stay than was asked for.
VTEST_F(Trigger, WholeChunksOnly, pool_rig) {
  uint64_t clock = 0;
  open_decay(f, &clock, "chunk_max:32MiB,release_above:40MiB,release_after:0");
  void *block = rig_alloc(f, 96 * MIB, NULL);
  VASSERT_UINT_EQ(rig_stats(f).mapped, 96 * MIB);
  VASSERT_UINT_EQ(rig_stats(f).chunks, 3);
  drop(f, &block);
  step_at(f, &clock, 0, 0);
  step_at(f, &clock, 0, 16);
  for (uint64_t i = 0; i < 5; i++) step_at(f, &clock, i, 0);
}

VTEST_F(Trigger, UnfinishedWorkKeepsMemory, pool_rig) {
  uint64_t clock = 0;
  open_decay(f, &clock, TIGHT ",release_above:0,release_after:1s");
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_LATE, 0));
  void *block = rig_alloc(f, 10 * GRANULE, f->streams[0]);
  rig_touch(f, block, 10 * GRANULE, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  for (uint64_t i = 0; i < 4; i++) step_at(f, &clock, i * SECOND, 0);
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));
  step_at(f, &clock, 5 * SECOND, 10);
}

// ---- failures ----

static void stamp(pool_rig *f, void *block, unsigned char value) {
  VEXPECT_INT_EQ(vmp_host_poke(f->driver, rig_address(block) + 100, &value, 1), 0);
}

static void expect_stamp(pool_rig *f, void *block, unsigned char value) {
  unsigned char seen = 0;
  VEXPECT_INT_EQ(vmp_host_peek(f->driver, rig_address(block) + 100, &seen, 1), 0);
  VASSERT_UINT_EQ(seen, value);
}

// one_fault makes steps while a call fails. False: the fault was not reached.
static bool one_fault(pool_rig *f, const char *conf, uint64_t nth, int code, bool from_then_on) {
  void *blocks[24];
  uint64_t clock = 0;
  VEXPECT_OK(rig_create(f, conf));
  if (f->pool == NULL) return false;
  vmp_triggers_set_clock(f->pool, read_clock, &clock);
  vmp_triggers_set_max_us(f->pool, 0);
  fill(f, blocks, 24, 3 * GRANULE);
  for (size_t i = 0; i < 24; i += 2) drop(f, &blocks[i]);
  for (size_t i = 1; i < 24; i += 2) stamp(f, blocks[i], (unsigned char)i);
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(vmp_pool_step(NULL), VMP_ERROR_INVALID_VALUE);  // the error that has to stay
  uint64_t calls = rig_all_calls(f->driver);
  vmp_host_fault fault = {VMP_CALL_COUNT, nth, code, from_then_on};
  VEXPECT_TRUE(vmp_host_inject(f->driver, &fault));
  for (clock = 0; clock < 4; clock++) {
    VEXPECT_OK(vmp_pool_step(f->pool));
    VEXPECT_INT_EQ(vmp_last_error()->status, VMP_ERROR_INVALID_VALUE);
  }
  bool reached = rig_all_calls(f->driver) - calls >= nth;
  vmp_host_lift(f->driver);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_UINT_EQ(after.live, before.live);
  VEXPECT_UINT_EQ(after.trigger_runs, 4);
  VEXPECT_UINT_EQ(after.mapped + after.spare + after.released_by_decay, before.mapped + before.spare);
  for (size_t i = 1; i < 24; i += 2) expect_stamp(f, blocks[i], (unsigned char)i);
  for (clock = 10; clock < 20; clock++) VEXPECT_OK(vmp_pool_step(f->pool));
  after = rig_stats(f);
  VEXPECT_UINT_EQ(after.broken, 0);
  VEXPECT_UINT_EQ(after.parked + after.spare, 8 * GRANULE);
  for (size_t i = 1; i < 24; i += 2) expect_stamp(f, blocks[i], (unsigned char)i);
  drop_all(f, blocks, 24);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 0);
  rig_destroy(f);
  return reached;
}

VTEST_F(Trigger, EveryCallFails, pool_rig) {
  static const int codes[] = {VMP_CU_OUT_OF_MEMORY, VMP_CU_INVALID_VALUE, VMP_CU_UNKNOWN, VMP_CU_NOT_READY};
  uint64_t faults = 0;
  rig_open_driver(f, GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t k = 0; k < 8; k++) {
    bool reached = true;
    for (uint64_t nth = 1; reached; nth++) {
      VTRACE("call %llu, code %d, %s", (unsigned long long)nth, codes[k / 2], k % 2 != 0 ? "from then on" : "once");
      reached = one_fault(f, TIGHT ",defragment_steps:1,release_above:8granules,release_after:2us", nth, codes[k / 2],
                          k % 2 != 0);
      VASSERT_NO_FAILURE();
      faults += reached;
    }
  }
  VEXPECT_UINT_GE(faults, 100);
}

// ---- threads ----

typedef struct crowd {
  pool_rig *rig;
  uint64_t seed;
  atomic_bool done;
  atomic_uint_fast64_t failed;
} crowd;

static void *allocate_often(void *context) {
  crowd *all = context;
  vtest_rng rng = vtest_rng_make(all->seed);
  while (!atomic_load(&all->done)) {
    void *block = NULL;
    if (vmp_alloc(all->rig->pool, &block, vtest_rng_log(&rng, 100, 8 * MIB), NULL) != VMP_OK ||
        vmp_free(all->rig->pool, block, NULL) != VMP_OK) {
      atomic_fetch_add(&all->failed, 1);
    }
  }
  return NULL;
}

static void *step_often(void *context) {
  crowd *all = context;
  for (int i = 0; i < 150; i++) {
    if (vmp_pool_step(all->rig->pool) != VMP_OK) atomic_fetch_add(&all->failed, 1);
  }
  return NULL;
}

VTEST_F(Trigger, FromManyThreads, pool_rig) {
  open(f, "chunk_max:4MiB,defragment_steps:1,defragment_blocks:3,release_above:16MiB,release_after:0");
  crowd all = {.rig = f, .seed = vtest_seed(3)};
  pthread_t threads[4];
  for (size_t i = 0; i < 4; i++) {
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, i < 2 ? allocate_often : step_often, &all), 0);
  }
  for (size_t i = 2; i < 4; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  atomic_store(&all.done, true);
  for (size_t i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_UINT_EQ(atomic_load(&all.failed), 0);
  VEXPECT_UINT_GT(rig_stats(f).trigger_runs, 0);
}
