// region_fault_test.c: the Nth driver call of a life of regions fails, for every N, once and from then on, with six
// codes; the Nth allocation of host memory fails, for every N. The life: commits that create, take and find chunks in
// place, sharing, old chunks that make room, resizes, ends in every order.
//
// After every failed step all invariants hold and the step has changed nothing; without the fault the same step works.
// At the end every byte that is committed is there, everything else goes back to the device, nothing is left behind.
#include <inttypes.h>
#include <stdio.h>

#include "tests/pool/region_rig.h"
#include "vmm/memory.h"

#define DEVICE_BYTES (48 * MIB)

typedef struct scenario {
  pool_rig *rig;
  bool faulty;       // a fault may still strike
  bool host_memory;  // the fault is of host memory
  uint64_t struck;   // steps that failed
  vmp_pool_stats_data before;
  vmp_region *a, *b, *c, *large;
} scenario;

static void lift(scenario *s) {
  rig_lift(s->rig, s->host_memory);
  s->faulty = false;
}

static vmp_pool_stats_data stats_of(scenario *s) {
  vmp_pool_stats_data stats = rig_stats(s->rig);
  stats.device_free = 0;
  return stats;
}

// step_failed looks at what a failed step has left, and lifts the fault.
static void step_failed(scenario *s, vmp_status status) {
  s->struck++;
  VASSERT_TRUE(s->faulty);
  VASSERT_INT_EQ(vmp_last_error()->status, status);
  VASSERT_STR_NE(vmp_last_error()->message, "");
  lift(s);
  VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));
  vmp_pool_stats_data now = stats_of(s);
  VASSERT_UINT_EQ(now.live, s->before.live);
  VASSERT_UINT_EQ(now.requested, s->before.requested);
  VASSERT_UINT_EQ(now.regions, s->before.regions);
  VASSERT_UINT_EQ(now.region_reserved, s->before.region_reserved);
  VASSERT_UINT_EQ(now.region_committed, s->before.region_committed);
  VASSERT_UINT_EQ(now.region_live, s->before.region_live);
  VASSERT_UINT_EQ(now.peak_live, s->before.peak_live);
  VASSERT_UINT_EQ(now.peak_requested, s->before.peak_requested);
}

// STEP(call): the call works, or it fails, leaves no trace, and works without the fault. What is pending works once the
// queued work has run, and the pool can see that.
#define STEP(call)                                  \
  do {                                              \
    VTRACE("%s", #call);                            \
    s->before = stats_of(s);                        \
    vmp_status step_status = (call);                \
    if (step_status < 0) {                          \
      step_failed(s, step_status);                  \
      if (vtest_has_failure()) return;              \
      step_status = (call);                         \
    }                                               \
    if (step_status == VMP_PENDING) {               \
      settle(s);                                    \
      step_status = (call);                         \
    }                                               \
    if (step_status != VMP_OK && s->faulty) {       \
      s->struck++;                                  \
      lift(s);                                      \
      settle(s);                                    \
      step_status = (call);                         \
    }                                               \
    VASSERT_INT_EQ(step_status, VMP_OK);            \
    VASSERT_OK(vmp_pool_check(s->rig->pool, NULL)); \
    if (vtest_has_failure()) return;                \
  } while (0)

static void settle(scenario *s);

// settle lets queued work run, and the pool see that it has.
static void settle(scenario *s) {
  while (vmp_host_step(s->rig->driver, 1000) > 0) {
  }
  (void)vmp_pool_trim(s->rig->pool, UINT64_MAX, NULL);
  while (vmp_host_step(s->rig->driver, 1000) > 0) {
  }
  (void)vmp_pool_trim(s->rig->pool, UINT64_MAX, NULL);
}

static vmp_status make(scenario *s, vmp_region **out, uint64_t max_bytes, uint64_t page_bytes) {
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = max_bytes;
  options.page_bytes = page_bytes;
  return vmp_region_create(s->rig->pool, out, &options);
}

// use queues work.
static void use(scenario *s, vmp_region *region, uint64_t first, uint64_t count, uint64_t page_bytes, int stream) {
  rig_touch(s->rig, rig_at(vmp_region_base(region), first * page_bytes), count * page_bytes, s->rig->streams[stream]);
}

// The test's own calls may meet the fault, too: then it has struck, and they are made again.
#define OWN(s, call)                     \
  do {                                   \
    vmp_status own_status = (call);      \
    if (own_status < 0 && (s)->faulty) { \
      lift(s);                           \
      own_status = (call);               \
    }                                    \
    VEXPECT_INT_EQ(own_status, VMP_OK);  \
  } while (0)

static void mark(scenario *s, vmp_region *region, uint64_t page, unsigned char value) {
  void *at = rig_at(vmp_region_base(region), page * GRANULE);
  OWN(s, vmp_host_fill(s->rig->driver, 0, at, value, 512, s->rig->streams[0]));
}

static void expect_mark(scenario *s, vmp_region *region, uint64_t page, unsigned char value) {
  unsigned char bytes[512] = {0};
  void *at = rig_at(vmp_region_base(region), page * GRANULE);
  OWN(s, vmp_host_copy_out(s->rig->driver, 0, bytes, at, 512, s->rig->streams[0]));
  OWN(s, vmp_host_stream_synchronize(s->rig->driver, 0, s->rig->streams[0]));
  VEXPECT_UINT_EQ(bytes[0], value);
  VEXPECT_UINT_EQ(bytes[511], value);
}

static void play_first(scenario *s) {
  vmp_stream *streams = s->rig->streams;
  STEP(make(s, &s->a, GIB, 0));
  STEP(make(s, &s->b, GIB, 0));
  STEP(region_commit(s->a, 0, 8, streams[0]));
  mark(s, s->a, 1, 11);
  use(s, s->a, 2, 6, GRANULE, 0);
  const uint64_t spread[] = {9, 2, 5, 3};
  STEP(vmp_region_commit_list(s->b, spread, 4, streams[1]));
  use(s, s->b, 2, 2, GRANULE, 1);
  STEP(vmp_region_share(s->a, 0, s->b, 12, 3, streams[0]));
  STEP(region_decommit(s->a, 2, 5, streams[0]));  // one of them is shared
  STEP(region_commit(s->a, 2, 4, streams[1]));    // in place, behind a wait
  use(s, s->a, 3, 3, GRANULE, 1);
  STEP(region_decommit(s->b, 2, 4, streams[1]));
  STEP(region_commit(s->b, 16, 8, streams[2]));  // takes across streams, and creates
  use(s, s->b, 16, 8, GRANULE, 2);
}

static void play_second(scenario *s) {
  vmp_stream *streams = s->rig->streams;
  STEP(vmp_region_resize(s->a, 3 * GRANULE, streams[1]));
  STEP(make(s, &s->large, 256 * MIB, 4 * GRANULE));
  STEP(region_commit(s->large, 0, 2, streams[3]));  // the device is full: other sizes go back to it
  use(s, s->large, 0, 2, 4 * GRANULE, 3);
  STEP(region_commit(s->b, 2, 2, streams[1]));  // where old mappings retire
  expect_mark(s, s->a, 1, 11);
  expect_mark(s, s->b, 13, 11);
  STEP(vmp_region_destroy(s->large, streams[3]));
  STEP(make(s, &s->c, GIB, 0));
  STEP(vmp_region_share(s->b, 12, s->c, 0, 3, streams[0]));
  STEP(vmp_region_destroy(s->a, streams[0]));
  expect_mark(s, s->c, 1, 11);
  STEP(vmp_region_resize(s->b, 0, streams[2]));
  STEP(vmp_region_share(s->c, 0, s->b, 16, 3, streams[0]));  // over pages that are parked there
  expect_mark(s, s->b, 17, 11);
  STEP(vmp_region_destroy(s->c, streams[0]));
  expect_mark(s, s->b, 17, 11);
  STEP(vmp_region_destroy(s->b, streams[2]));
}

static void play(scenario *s) {
  play_first(s);
  if (!vtest_has_failure()) play_second(s);
}

// end_pool gives everything back, and ends the pool.
static void end_pool(scenario *s) {
  if (s->faulty) lift(s);
  settle(s);
  VASSERT_OK(vmp_pool_trim(s->rig->pool, 0, NULL));
  vmp_pool_stats_data stats = rig_stats(s->rig);
  VASSERT_UINT_EQ(stats.mapped + stats.spare + stats.retiring + stats.broken, 0);
  rig_destroy(s->rig);
  vmp_host_census census = rig_census(s->rig);
  VASSERT_UINT_EQ(census.handles + census.mappings + census.reservations, 0);
}

static void open_rig(pool_rig *rig) {
  *rig = (pool_rig){.driver = NULL};
  rig_open_driver(rig, DEVICE_BYTES);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(rig, "chunk_max:8MiB"));
}

static void close_rig(pool_rig *rig) {
  vmp_host_counters counters = rig_counters(rig);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
  VEXPECT_UINT_EQ(counters.violations, 0);
  rig->keeps_nothing_checked = true;
  pool_rig_teardown(rig);
}

typedef struct fault_case {
  const char *name;
  int code;
  bool from_then_on;
} fault_case;

static const fault_case fault_cases[] = {
    {"memory_once", VMP_CU_OUT_OF_MEMORY, false},
    {"memory_from_then_on", VMP_CU_OUT_OF_MEMORY, true},
    {"invalid_once", VMP_CU_INVALID_VALUE, false},
    {"invalid_from_then_on", VMP_CU_INVALID_VALUE, true},
    {"not_supported_once", VMP_CU_NOT_SUPPORTED, false},
    {"not_supported_from_then_on", VMP_CU_NOT_SUPPORTED, true},
    {"sticky_once", VMP_CU_ILLEGAL_ADDRESS, false},
    {"sticky_from_then_on", VMP_CU_ILLEGAL_ADDRESS, true},
    {"unknown_once", VMP_CU_UNKNOWN, false},
    {"unknown_from_then_on", VMP_CU_UNKNOWN, true},
    {"not_ready_once", VMP_CU_NOT_READY, false},
    {"not_ready_from_then_on", VMP_CU_NOT_READY, true},
};
static const char *fault_case_name(const fault_case *p) { return p->name; }

VTEST_P(RegionFault, EveryDriverCall, fault_case, fault_cases, fault_case_name) {
  uint64_t calls = 1, struck = 0;
  uint64_t stride = vtest_ops(100000) < 100000 ? 7 : 1;  // where random tests are cut short, so is this
  for (uint64_t nth = 0; nth <= calls && !vtest_has_failure(); nth += nth == 0 ? 1 : stride) {
    pool_rig rig;
    open_rig(&rig);
    VASSERT_NO_FAILURE();
    scenario s = {.rig = &rig, .faulty = nth > 0};
    VTRACE("driver call %" PRIu64, nth);
    uint64_t before = rig_all_calls(rig.driver);
    if (nth > 0) {
      vmp_host_fault fault = {VMP_CALL_COUNT, nth, p->code, p->from_then_on};
      VASSERT_TRUE(vmp_host_inject(rig.driver, &fault));
    }
    play(&s);
    if (nth == 0) calls = rig_all_calls(rig.driver) - before;
    if (!vtest_has_failure()) end_pool(&s);
    struck += s.struck;
    if (!vtest_has_failure()) close_rig(&rig);
  }
  printf("%s: %" PRIu64 " calls, %" PRIu64 " failed steps\n", p->name, calls, struck);
  VEXPECT_UINT_GT(calls, 100);
  VEXPECT_UINT_GT(struck * stride, 20);
}

VTEST(RegionFault, EveryHostAllocation) {
  bool failed = true;
  uint64_t struck = 0;
  for (uint64_t successes = 0; failed && !vtest_has_failure(); successes++) {
    pool_rig rig;
    open_rig(&rig);
    VASSERT_NO_FAILURE();
    scenario s = {.rig = &rig, .faulty = true, .host_memory = true};
    VTRACE("after %" PRIu64 " allocations", successes);
    vmp_mem_fail_after(successes, 1);
    play(&s);
    failed = !s.faulty || vmp_mem_failures() > 0;
    vmp_mem_fail_after(0, 0);
    s.faulty = false;
    if (!vtest_has_failure()) end_pool(&s);
    struck += s.struck;
    if (!vtest_has_failure()) close_rig(&rig);
  }
  VEXPECT_UINT_GT(struck, 10);
}
