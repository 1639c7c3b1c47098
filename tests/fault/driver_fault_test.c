// driver_fault_test.c: the Nth call of the driver fails, for every N of a scenario that makes every call of the table
// (world.h): once, until the fault is lifted, from then on through the teardown; with six codes; with work that runs
// late, early and interleaved by seed.
//
// Whatever fails: no call that failed has changed anything, no rule of the driver is broken, no mapping goes away under
// work, every byte that arrives is right. Once the fault is lifted everything works, unless the code means that the
// context is lost (700, 4), and nothing is left behind. A teardown under the fault ends.
#include <stdio.h>

#include "tests/fault/world.h"

typedef enum lasting { ONCE, UNTIL_LIFTED, FROM_THEN_ON } lasting;

typedef struct sweep {
  const char *name;
  vmp_host_work work;
  lasting lasting;
} sweep;

static const sweep sweeps[] = {
    {"late_once", VMP_HOST_WORK_LATE, ONCE},
    {"late_until_lifted", VMP_HOST_WORK_LATE, UNTIL_LIFTED},
    {"late_from_then_on", VMP_HOST_WORK_LATE, FROM_THEN_ON},
    {"early_once", VMP_HOST_WORK_EARLY, ONCE},
    {"early_until_lifted", VMP_HOST_WORK_EARLY, UNTIL_LIFTED},
    {"early_from_then_on", VMP_HOST_WORK_EARLY, FROM_THEN_ON},
    {"seeded_once", VMP_HOST_WORK_SEED, ONCE},
    {"seeded_until_lifted", VMP_HOST_WORK_SEED, UNTIL_LIFTED},
    {"seeded_from_then_on", VMP_HOST_WORK_SEED, FROM_THEN_ON},
};
static const char *sweep_name(const sweep *p) { return p->name; }

static const int codes[] = {VMP_CU_OUT_OF_MEMORY,   VMP_CU_INVALID_VALUE, VMP_CU_NOT_SUPPORTED,
                            VMP_CU_ILLEGAL_ADDRESS, VMP_CU_UNKNOWN,       VMP_CU_DEINITIALIZED};
#define NUM_CODES (sizeof codes / sizeof codes[0])
_Static_assert(NUM_CODES == 6, "the sweep steps by numbers coprime to 6");

static bool is_lost(int code) { return code == VMP_CU_ILLEGAL_ADDRESS || code == VMP_CU_DEINITIALIZED; }

static void say(void *context, const char *sentence) {
  (void)context;
  VADD_FAILURE("left behind: %s", sentence);
}

// expect_nothing_left judges after the teardown; nothing fails any more. The contexts are kept alive meanwhile, since
// what belongs to a context would go with it and look given back.
static void expect_nothing_left(world *w) {
  vmp_cu_context kept[2] = {NULL, NULL};
  for (int i = 0; i < 2; i++) VEXPECT_INT_EQ(vmp_drv_primary_ctx_retain(w->driver, &kept[i], i), VMP_CU_SUCCESS);
  world_close(w);
  for (int i = 0; i < 2; i++) {
    vmp_host_census census;
    vmp_host_get_census(w->driver, &census);
    VEXPECT_UINT_EQ(census.events, 0);
    VEXPECT_UINT_EQ(census.streams, 0);
    VEXPECT_INT_EQ(vmp_drv_primary_ctx_release(w->driver, i), VMP_CU_SUCCESS);
  }
  vmp_report report = {say, NULL, 0};
  VEXPECT_UINT_EQ(vmp_host_leaks(w->driver, &report), 0);
}

// The thread has its context stack and its capture mode back, unless giving them back was what failed.
static void expect_thread_as_before(const world *w) {
  vmp_cu_context current = NULL;
  int mode = VMP_CU_CAPTURE_GLOBAL;
  VEXPECT_INT_EQ(vmp_drv_ctx_get_current(w->driver, &current), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(vmp_drv_thread_exchange_capture_mode(w->driver, &mode), VMP_CU_SUCCESS);
  if (w->struck != VMP_CALL_ctx_pop_current) VEXPECT_PTR_EQ((void *)current, NULL);
  if (w->struck != VMP_CALL_thread_exchange_capture_mode) VEXPECT_INT_EQ(mode, VMP_CU_CAPTURE_GLOBAL);
}

// ---- nothing fails ----

// How many calls the scenario makes, teardown included.
static uint64_t measure(vmp_host_work work, uint64_t seed) {
  world w;
  world_begin(&w, work, seed, false);
  world_open(&w);
  world_run(&w);
  world_close(&w);
  uint64_t calls = w.made;
  expect_nothing_left(&w);
  expect_thread_as_before(&w);
  VEXPECT_UINT_EQ(w.refusals, 0);
  world_end(&w);
  return calls;
}

static void expect_every_call(vmp_host_work work) {
  world w;
  world_begin(&w, work, 1, false);
  world_open(&w);
  world_run(&w);
  world_use(&w);
  world_close(&w);
  for (int call = 0; call < VMP_CALL_COUNT; call++) {
    if (atomic_load(&w.driver->calls[call]) == 0) {
      VADD_FAILURE("the scenario never calls %s", vmp_call_symbol((vmp_call)call));
    }
  }
  world_end(&w);
}

VTEST(DriverFault, TheScenarioMakesEveryCall) {
  expect_every_call(VMP_HOST_WORK_LATE);
  expect_every_call(VMP_HOST_WORK_EARLY);
  expect_every_call(VMP_HOST_WORK_SEED);
}

// ---- one fault ----

// Everything works again, and nothing is left.
static void expect_whole(world *w, int code) {
  world_open(w);
  if (!is_lost(code)) world_use(w);
  expect_nothing_left(w);
}

// What is left has been tried: as many calls as there are things that such a call gives back. (cuMemAlloc's memory is a
// handle with a mapping of its own; a handle without references goes with its mapping.)
static void expect_tried(const world *w, const uint64_t *before) {
  vmp_host_census left;
  vmp_host_get_census(w->driver, &left);
  const struct {
    vmp_call call;
    uint64_t left;
  } kinds[] = {{VMP_CALL_mem_release, left.handles - (w->plain != 0) - (w->refs == 0 && w->mapped)},
               {VMP_CALL_mem_unmap, left.mappings - (w->plain != 0)},
               {VMP_CALL_mem_address_free, left.reservations - (w->range != 0)},
               {VMP_CALL_primary_ctx_release, left.contexts_retained}};
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    VTRACE("%s", vmp_call_symbol(kinds[i].call));
    VEXPECT_UINT_LE(kinds[i].left, atomic_load(&w->driver->calls[kinds[i].call]) - before[kinds[i].call]);
  }
}

// The teardown itself meets the fault: it ends, has tried to give back everything, and a single failure leaves at most
// one thing.
static void close_under_fault(world *w, bool once) {
  uint64_t before[VMP_CALL_COUNT];
  for (int call = 0; call < VMP_CALL_COUNT; call++) before[call] = atomic_load(&w->driver->calls[call]);
  uint64_t calls = w->made;
  world_close(w);
  VEXPECT_UINT_LE(w->made - calls, 500);
  expect_tried(w, before);
  vmp_host_lift(w->driver);
  if (once) VEXPECT_UINT_LE(vmp_host_leaks(w->driver, &(vmp_report){0}), 1);
}

static void one_fault(const sweep *p, int code, uint64_t nth) {
  world w;
  world_begin(&w, p->work, nth, nth % 2 == 0);
  VASSERT_NO_FAILURE();
  w.nth = nth;
  vmp_host_fault fault = {VMP_CALL_COUNT, nth, code, p->lasting != ONCE};
  VASSERT_TRUE(vmp_host_inject(w.driver, &fault));
  w.code = code;
  w.gone = code == VMP_CU_DEINITIALIZED;
  world_open(&w);
  world_run(&w);
  if (p->lasting == FROM_THEN_ON || w.made < nth) {
    close_under_fault(&w, p->lasting == ONCE);
  } else {
    vmp_host_lift(w.driver);
    w.code = 0;
    expect_whole(&w, code);
    if (p->lasting == ONCE) expect_thread_as_before(&w);
  }
  world_end(&w);
}

// All runs are made, or where VMPOOL_MODEL_OPS asks for fewer, every k-th, from a place that the seed names.
VTEST_P(DriverFault, EveryCall, sweep, sweeps, sweep_name) {
  uint64_t seed = vtest_seed(3);
  uint64_t calls = measure(p->work, seed);
  VASSERT_NO_FAILURE();
  uint64_t runs = calls * NUM_CODES;
  uint64_t wanted = vtest_ops(1000000) / 200;
  uint64_t step = wanted >= runs ? 1 : runs / wanted;
  while (step % 2 == 0 || step % 3 == 0) step++;  // coprime to the number of codes, so that each code has its turn
  uint64_t faults = 0;
  for (uint64_t run = seed % step; run < runs; run += step, faults++) {
    uint64_t nth = run / NUM_CODES + 1;
    int code = codes[run % NUM_CODES];
    VTRACE("call %llu gives %d", (unsigned long long)nth, code);
    one_fault(p, code, nth);
    VASSERT_NO_FAILURE();
  }
  printf("%llu calls, %llu faults\n", (unsigned long long)calls, (unsigned long long)faults);
}

// ---- one kind of call fails, all others work ----

typedef struct mode {
  const char *name;
  vmp_host_work work;
} mode;

static const mode modes[] = {
    {"late", VMP_HOST_WORK_LATE}, {"early", VMP_HOST_WORK_EARLY}, {"seeded", VMP_HOST_WORK_SEED}};
static const char *mode_name(const mode *p) { return p->name; }

static void one_kind(vmp_host_work work, vmp_call call, int code, uint64_t nth) {
  world w;
  world_begin(&w, work, nth, false);
  VASSERT_NO_FAILURE();
  vmp_host_fault fault = {call, nth, code, true};
  VASSERT_TRUE(vmp_host_inject(w.driver, &fault));
  w.code = code;
  world_open(&w);
  world_run(&w);
  vmp_host_lift(w.driver);
  w.code = 0;
  expect_whole(&w, code);
  world_end(&w);
}

VTEST_P(DriverFault, EveryKindOfCall, mode, modes, mode_name) {
  uint64_t firsts = vtest_ops(1000000) < 1000000 ? 1 : 3;
  for (int call = 0; call < VMP_CALL_COUNT; call++) {
    for (size_t i = 0; i < NUM_CODES; i++) {
      if (codes[i] == VMP_CU_DEINITIALIZED) continue;  // a driver that is shut down answers so to every call
      for (uint64_t k = 0; k < firsts; k++) {
        uint64_t nth = 1 + 2 * ((k + i) % 3);
        VTRACE("%s gives %d from the %llu. on", vmp_call_symbol((vmp_call)call), codes[i], (unsigned long long)nth);
        one_kind(p->work, (vmp_call)call, codes[i], nth);
        VASSERT_NO_FAILURE();
      }
    }
  }
}

// ---- the end of a context, and of the driver ----

// A kernel touches what isn't there: from then on every call that needs the context gives 700, the others work.
VTEST_P(DriverFault, AContextThatIsLostIsTornDown, mode, modes, mode_name) {
  for (size_t step = 0; step <= WORLD_STEPS; step++) {
    VTRACE("before step %zu", step);
    world w;
    world_begin(&w, p->work, step, false);
    world_open(&w);
    world_steps(&w, 0, step);
    VASSERT_NO_FAILURE();
    w.code = VMP_CU_ILLEGAL_ADDRESS;
    w.lost = true;
    VEXPECT_INT_EQ(vmp_host_touch(w.driver, 0, w.streams[0], 4096, 1, true), VMP_CU_SUCCESS);
    (void)vmp_host_step(w.driver, UINT64_MAX);
    VEXPECT_FALSE(world_synchronize(&w));
    world_steps(&w, step, WORLD_STEPS);
    uint64_t before = w.made;
    world_close(&w);
    VEXPECT_UINT_LE(w.made - before, 500);
    VEXPECT_UINT_GT(w.refusals, 0);
    // Pinned host memory can't be given back without a context; everything else is.
    VEXPECT_UINT_EQ(vmp_host_leaks(w.driver, &(vmp_report){0}), w.pinned != NULL);
    world_end(&w);
    VASSERT_NO_FAILURE();
  }
}

// The process ends: every call gives 4, and whoever is torn down then takes that as done.
VTEST_P(DriverFault, ADriverThatShutsDownIsTornDown, mode, modes, mode_name) {
  for (size_t step = 0; step <= WORLD_STEPS; step++) {
    VTRACE("before step %zu", step);
    world w;
    world_begin(&w, p->work, step, false);
    world_open(&w);
    world_steps(&w, 0, step);
    VASSERT_NO_FAILURE();
    w.code = VMP_CU_DEINITIALIZED;
    w.gone = true;
    vmp_host_deinitialize(w.driver);
    world_steps(&w, step, WORLD_STEPS);
    uint64_t before = w.made;
    world_close(&w);
    VEXPECT_UINT_LE(w.made - before, 500);
    VEXPECT_NULL(w.context);  // releasing it was taken as done
    world_end(&w);
    VASSERT_NO_FAILURE();
  }
}
