// pool_fault_test.c: the Nth driver call fails, for every N, once and from then on, with six codes; the Nth allocation
// of host memory fails, for every N. The scenario makes a pool, grows it, takes parked memory across streams, trims,
// changes limits, and ends it.
//
// After every failed step: all invariants hold, nothing is handed out or lost, and once the fault is lifted the same
// step works. At the end nothing is left behind, unless the ending itself was what failed.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

#define DEVICE_BYTES (64 * MIB)

typedef struct scenario {
  pool_rig *rig;
  const char *conf;
  bool faulty;       // a fault may still strike
  bool host_memory;  // the fault is of host memory
  bool gone;         // the code says that the context is gone: then old work counts as over
  uint64_t struck;   // steps that failed
  vmp_pool_stats_data before;
} scenario;

static void lift(scenario *s) {
  rig_lift(s->rig, s->host_memory);
  s->faulty = false;
}

// step_failed looks at what a failed step has left, and lifts the fault.
static void step_failed(scenario *s, vmp_status status) {
  s->struck++;
  VASSERT_TRUE(s->faulty);
  VASSERT_INT_EQ(vmp_last_error()->status, status);
  VASSERT_STR_NE(vmp_last_error()->message, "");
  lift(s);
  if (s->rig->pool == NULL) return;
  VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));
  vmp_pool_stats_data now = rig_quiet_stats(s->rig);
  VASSERT_UINT_EQ(now.live, s->before.live);
  VASSERT_UINT_EQ(now.requested, s->before.requested);
  VASSERT_UINT_EQ(now.blocks, s->before.blocks);
  VASSERT_UINT_EQ(now.allocs, s->before.allocs);
  VASSERT_UINT_EQ(now.frees, s->before.frees);
  VASSERT_UINT_EQ(now.peak_live, s->before.peak_live);
  VASSERT_UINT_EQ(now.peak_requested, s->before.peak_requested);
}

static void expect_whole(scenario *s) {
  VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));
  vmp_report report = {0};
  VASSERT_UINT_EQ(vmp_host_check(s->rig->driver, &report), 0);
}

// STEP(call): the call works, or it fails, leaves no trace, and works without the fault.
#define STEP(call)                                                 \
  do {                                                             \
    VTRACE("%s", #call);                                           \
    if (s->rig->pool != NULL) s->before = rig_quiet_stats(s->rig); \
    vmp_status step_status = (call);                               \
    if (step_status < 0) {                                         \
      step_failed(s, step_status);                                 \
      if (vtest_has_failure()) return;                             \
      step_status = (call);                                        \
    }                                                              \
    VASSERT_INT_GE(step_status, 0);                                \
    if (s->rig->pool != NULL) expect_whole(s);                     \
    if (vtest_has_failure()) return;                               \
  } while (0)

static vmp_status create(scenario *s) {
  vmp_pool *pool = NULL;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = s->rig->driver;
  options.conf = s->conf;
  vmp_status status = vmp_pool_create(&pool, &options);
  if (status >= 0) s->rig->pool = pool;
  return status;
}

static vmp_status take(scenario *s, void **out_ptr, uint64_t bytes, int stream) {
  return vmp_alloc(s->rig->pool, out_ptr, bytes, s->rig->streams[stream]);
}

static vmp_status give(scenario *s, void *ptr, int stream) {
  return vmp_free(s->rig->pool, ptr, s->rig->streams[stream]);
}

// use queues work. A driver that says its context is gone has no work any more.
static void use(scenario *s, void *ptr, uint64_t bytes, int stream) {
  if (s->gone) return;
  rig_touch(s->rig, ptr, bytes, s->rig->streams[stream]);
}

// play_first grows the pool and takes memory across streams.
static void play_first(scenario *s, void **b, void **c, void *small[3]) {
  void *a = NULL;
  STEP(create(s));
  STEP(take(s, &a, 20 * MIB, 0));
  use(s, a, 20 * MIB, 0);
  STEP(take(s, b, 9 * MIB, 0));
  use(s, *b, 9 * MIB, 0);
  for (size_t i = 0; i < 3; i++) STEP(take(s, &small[i], 700 + i * 20000, 1));
  STEP(vmp_record_use(s->rig->pool, *b, s->rig->streams[2]));
  use(s, *b, 9 * MIB, 2);
  STEP(give(s, a, 0));
  STEP(give(s, *b, 0));
  STEP(take(s, c, 48 * MIB, 1));  // behind waits, beside what is pinned
  use(s, *c, 48 * MIB, 1);
  STEP(take(s, b, 5 * MIB, 3));
  use(s, *b, 5 * MIB, 3);
  STEP(vmp_stream_retired(s->rig->pool, s->rig->streams[3]));
  STEP(give(s, *c, 1));
}

// play_second gives memory back under running work and after it, and changes limits.
static void play_second(scenario *s, void *b, void *small[3]) {
  void *a = NULL, *c = NULL;
  pool_rig *rig = s->rig;
  STEP(vmp_pool_trim(rig->pool, 0, NULL));
  (void)vmp_host_step(rig->driver, UINT64_MAX);
  STEP(vmp_pool_trim(rig->pool, 16 * MIB, NULL));
  STEP(vmp_pool_set_limit(rig->pool, VMP_LIMIT_HARD, 40 * MIB));
  STEP(take(s, &a, 3 * MIB, 2));
  use(s, a, 3 * MIB, 2);
  STEP(vmp_pool_set_limit(rig->pool, VMP_LIMIT_HARD, UINT64_MAX));
  STEP(take(s, &c, 30 * MIB, 0));
  use(s, c, 30 * MIB, 0);
  for (size_t i = 0; i < 3; i++) STEP(give(s, small[i], 1));
  STEP(give(s, a, 2));
  STEP(give(s, b, 2));
  STEP(give(s, c, 0));
  STEP(vmp_pool_trim(rig->pool, UINT64_MAX, NULL));
  // whatever was broken in between is whole again
  if (!s->faulty) VASSERT_UINT_EQ(rig_quiet_stats(s->rig).broken, 0);
}

// play_capture allocates and frees inside a capture, whose own calls are not the pool's.
static void play_capture(scenario *s) {
  pool_rig *rig = s->rig;
  vmp_graph_id graph = 0;
  void *a = NULL, *b = NULL, *c = NULL;
  STEP(take(s, &c, 2 * MIB, 1));
  STEP(vmp_capture_begin(rig->pool, rig->streams[0], &graph));
  STEP(take(s, &a, 6 * MIB, 0));
  STEP(give(s, a, 0));
  STEP(take(s, &b, 5 * MIB, 0));
  STEP(take(s, &a, 900, 0));
  STEP(give(s, c, 0));
  STEP(vmp_capture_end(rig->pool, rig->streams[0]));
  STEP(give(s, a, 1));
  STEP(vmp_capture_release(rig->pool, graph));
  STEP(give(s, b, 1));
}

static void play(scenario *s) {
  void *b = NULL, *c = NULL, *small[3] = {NULL};
  play_first(s, &b, &c, small);
  if (!vtest_has_failure()) play_second(s, b, small);
  if (!vtest_has_failure()) play_capture(s);
}

// end destroys the pool. A fault that strikes here is told, and may leave things in the driver, but no host memory.
static void end(scenario *s) {
  vmp_pool *pool = s->rig->pool;
  s->rig->pool = NULL;
  if (pool == NULL) return;
  bool armed = s->faulty;
  vmp_status status = vmp_pool_destroy(pool);
  if (armed) lift(s);
  vmp_host_census census = rig_census(s->rig);
  if (status != VMP_OK) {
    VASSERT_TRUE(armed);
    s->struck++;
    return;
  }
  if (armed && s->gone) return;  // a driver that shuts down takes everything with it: that is no failure
  VASSERT_UINT_EQ(census.handles, 0);
  VASSERT_UINT_EQ(census.mappings, 0);
  VASSERT_UINT_EQ(census.reservations, 0);
}

static void open_rig(pool_rig *rig) {
  *rig = (pool_rig){.driver = NULL};
  rig_open_driver(rig, DEVICE_BYTES);
}

static void close_rig(pool_rig *rig, const scenario *s) {
  vmp_host_counters counters = rig_counters(rig);
  if (!s->gone) {
    VEXPECT_UINT_EQ(counters.bad_touches, 0);
    VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
    VEXPECT_UINT_EQ(counters.violations, 0);
  }
  rig->keeps_nothing_checked = true;
  pool_rig_teardown(rig);
}

typedef struct fault_case {
  const char *name, *conf;
  int code;
  bool from_then_on;
} fault_case;

#define MIXED "chunk_max:8MiB,growth:8MiB"
#define TIGHT "preset:tight,initial_fraction:0.1"
static const fault_case fault_cases[] = {
    {"memory_once", MIXED, VMP_CU_OUT_OF_MEMORY, false},
    {"memory_from_then_on", MIXED, VMP_CU_OUT_OF_MEMORY, true},
    {"invalid_once", MIXED, VMP_CU_INVALID_VALUE, false},
    {"invalid_from_then_on", MIXED, VMP_CU_INVALID_VALUE, true},
    {"not_supported_once", MIXED, VMP_CU_NOT_SUPPORTED, false},
    {"not_supported_from_then_on", MIXED, VMP_CU_NOT_SUPPORTED, true},
    {"sticky_once", MIXED, VMP_CU_ILLEGAL_ADDRESS, false},
    {"sticky_from_then_on", MIXED, VMP_CU_ILLEGAL_ADDRESS, true},
    {"unknown_once", MIXED, VMP_CU_UNKNOWN, false},
    {"unknown_from_then_on", MIXED, VMP_CU_UNKNOWN, true},
    {"deinitialized_once", MIXED, VMP_CU_DEINITIALIZED, false},
    {"deinitialized_from_then_on", MIXED, VMP_CU_DEINITIALIZED, true},
    {"tight_memory_once", TIGHT, VMP_CU_OUT_OF_MEMORY, false},
    {"tight_memory_from_then_on", TIGHT, VMP_CU_OUT_OF_MEMORY, true},
    {"tight_unknown_from_then_on", TIGHT, VMP_CU_UNKNOWN, true},
};
static const char *fault_case_name(const fault_case *p) { return p->name; }

VTEST_P(PoolFault, EveryDriverCall, fault_case, fault_cases, fault_case_name) {
  uint64_t calls = 1, struck = 0;
  uint64_t stride = vtest_ops(100000) < 100000 ? 7 : 1;  // where random tests are cut short, so is this
  for (uint64_t nth = 0; nth <= calls && !vtest_has_failure(); nth += nth == 0 ? 1 : stride) {
    pool_rig rig;
    open_rig(&rig);
    VASSERT_NO_FAILURE();
    scenario s = {.rig = &rig, .conf = p->conf, .faulty = nth > 0, .gone = p->code == VMP_CU_DEINITIALIZED};
    VTRACE("driver call %" PRIu64, nth);
    uint64_t before = rig_all_calls(rig.driver);
    if (nth > 0) {
      vmp_host_fault fault = {VMP_CALL_COUNT, nth, p->code, p->from_then_on};
      VASSERT_TRUE(vmp_host_inject(rig.driver, &fault));
    }
    play(&s);
    if (!vtest_has_failure()) end(&s);
    if (nth == 0) calls = rig_all_calls(rig.driver) - before;  // without a fault: as many calls as can fail
    struck += s.struck;
    if (!vtest_has_failure()) close_rig(&rig, &s);
  }
  printf("%s: %" PRIu64 " calls, %" PRIu64 " failed steps\n", p->name, calls, struck);
  VEXPECT_UINT_GT(calls, 100);
  VEXPECT_UINT_GT(struck * stride, 20);
}

VTEST(PoolFault, EveryHostAllocation) {
  uint64_t struck = 0, nth = 0;
  for (bool failed = true; failed && !vtest_has_failure(); nth++) {
    pool_rig rig;
    open_rig(&rig);
    VASSERT_NO_FAILURE();
    scenario s = {.rig = &rig, .conf = MIXED, .faulty = true, .host_memory = true};
    VTRACE("host allocation %" PRIu64, nth);
    vmp_mem_fail_after(nth, 1);
    play(&s);
    failed = vmp_mem_failures() > 0 || !s.faulty;
    if (!vtest_has_failure()) end(&s);
    struck += s.struck;
    vmp_mem_fail_after(0, 0);
    if (!vtest_has_failure()) close_rig(&rig, &s);
  }
  printf("%" PRIu64 " host allocations, %" PRIu64 " failed steps\n", nth, struck);
  VEXPECT_UINT_GT(struck, 10);
}
