// clock_test.c: fences, lazily recorded events, stream waits and host waits, on the host driver in its late mode, where
// nothing completes unless the host waits for it.
#include "vmm/clock.h"

#include <string.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/clock_internal.h"
#include "vmm/context.h"
#include "vmm/driver_host.h"

#define MIB (UINT64_C(1) << 20)

typedef struct rig {
  vmp_driver *driver;
  vmp_cu_context context;
  vmp_clock *clock;
  vmp_cu_ptr memory;
  vmp_cu_handle handle;
} rig;

static void rig_setup(rig *f) {
  VASSERT_OK(vmp_host_open(&f->driver, NULL));
  VASSERT_INT_EQ(vmp_drv_init(f->driver, 0), 0);
  VASSERT_OK(vmp_context_retain(f->driver, 0, &f->context));
  VASSERT_OK(vmp_clock_create(&f->clock, f->driver, 0));
  VASSERT_INT_EQ(vmp_drv_ctx_push_current(f->driver, f->context), 0);
  vmp_cu_mem_prop prop;
  memset(&prop, 0, sizeof prop);
  prop.type = VMP_CU_ALLOCATION_PINNED;
  prop.location.type = VMP_CU_LOCATION_DEVICE;
  vmp_cu_access_desc access = {{VMP_CU_LOCATION_DEVICE, 0}, VMP_CU_ACCESS_READWRITE};
  VASSERT_INT_EQ(vmp_drv_mem_address_reserve(f->driver, &f->memory, 2 * MIB, 0, 0, 0), 0);
  VASSERT_INT_EQ(vmp_drv_mem_create(f->driver, &f->handle, 2 * MIB, &prop, 0), 0);
  VASSERT_INT_EQ(vmp_drv_mem_map(f->driver, f->memory, 2 * MIB, 0, f->handle, 0), 0);
  VASSERT_INT_EQ(vmp_drv_mem_set_access(f->driver, f->memory, 2 * MIB, &access, 1), 0);
}

static void rig_teardown(rig *f) {
  if (f->driver == NULL) return;
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  if (f->clock != NULL) (void)vmp_clock_check(f->clock, &report);
  VEXPECT_NO_FAULTS(&faults);
  vmp_clock_destroy(f->clock);
  vmp_host_census census;
  vmp_host_get_census(f->driver, &census);
  VEXPECT_UINT_EQ(census.events, 0);
  vmp_driver_close(f->driver);
}

static vmp_cu_stream new_stream(rig *f) {
  vmp_cu_stream stream = NULL;
  VEXPECT_INT_EQ(vmp_drv_stream_create(f->driver, &stream, VMP_CU_STREAM_NON_BLOCKING), 0);
  return stream;
}

static void work(rig *f, vmp_cu_stream stream) {
  VEXPECT_INT_EQ(vmp_host_touch(f->driver, 0, stream, f->memory, 512, true), 0);
}

static uint64_t calls(const rig *f, vmp_call call) { return atomic_load(&f->driver->calls[call]); }

static uint64_t all_calls(const rig *f) {
  uint64_t sum = 0;
  for (int call = 0; call < VMP_CALL_COUNT; call++) sum += calls(f, (vmp_call)call);
  return sum;
}

VTEST_F(Clock, FencesAndKnowledgeMakeNoDriverCall, rig) {
  vmp_cu_stream stream = new_stream(f);
  uint64_t before = all_calls(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  vmp_fence fence = vmp_clock_fence(f->clock, index);
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));
  VEXPECT_TRUE(vmp_fence_is_none(vmp_clock_others(f->clock, fence, index)));
  VEXPECT_UINT_EQ(vmp_clock_others(f->clock, fence, index + 1).streams, UINT64_C(1) << index);
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, VMP_FENCE_NONE));
  VEXPECT_UINT_EQ(all_calls(f), before);
}

VTEST_F(Clock, OneStreamHasOneIndexAndTheDefaultStreamsAreOne, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  VEXPECT_UINT_EQ(vmp_clock_stream(f->clock, a), vmp_clock_stream(f->clock, a));
  VEXPECT_UINT_NE(vmp_clock_stream(f->clock, a), vmp_clock_stream(f->clock, b));
  VEXPECT_UINT_EQ(vmp_clock_stream(f->clock, NULL), vmp_clock_stream(f->clock, (vmp_cu_stream)(uintptr_t)1));
  VEXPECT_UINT_NE(vmp_clock_stream(f->clock, NULL), vmp_clock_stream(f->clock, (vmp_cu_stream)(uintptr_t)2));
}

VTEST_F(Clock, PollNeverCompletesQueuedWorkAndWaitDoes, rig) {
  vmp_cu_stream stream = new_stream(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  work(f, stream);
  vmp_fence fence = vmp_clock_fence(f->clock, index);
  VEXPECT_OK(vmp_clock_poll(f->clock, fence));
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  VEXPECT_OK(vmp_clock_poll(f->clock, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);  // the mark is there already
  VEXPECT_STATUS(vmp_clock_wait(f->clock, fence, 0), VMP_ERROR_TIMEOUT);
  VEXPECT_OK(vmp_clock_wait(f->clock, fence, UINT64_MAX));
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, fence));
}

VTEST_F(Clock, AStreamWaitOrdersOnceAndCompletesNothing, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a), ib = vmp_clock_stream(f->clock, b);
  work(f, a);
  vmp_fence fence = vmp_clock_fence(f->clock, ia);
  VEXPECT_OK(vmp_clock_order(f->clock, b, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_stream_wait_event), 1);
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));
  VEXPECT_TRUE(vmp_fence_is_none(vmp_clock_others(f->clock, fence, ib)));
  VEXPECT_OK(vmp_clock_order(f->clock, b, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_stream_wait_event), 1);
  // b's work now runs behind a's: finishing b finishes a.
  work(f, b);
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, b), 0);
  VEXPECT_OK(vmp_clock_poll(f->clock, fence));
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, fence));
  vmp_clock_stats stats;
  vmp_clock_get_stats(f->clock, &stats);
  VEXPECT_UINT_EQ(stats.stream_waits, 1);
  VEXPECT_UINT_EQ(stats.host_waits, 0);
}

VTEST_F(Clock, OwnWorkAndFinishedWorkNeedNoWait, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  work(f, a);
  vmp_fence fence = vmp_clock_fence(f->clock, ia);
  VEXPECT_OK(vmp_clock_order(f->clock, a, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, a), 0);
  VEXPECT_OK(vmp_clock_order(f->clock, b, fence));  // the query sees that the stream is idle: no event, no wait
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 0);
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_stream_wait_event), 0);
}

VTEST_F(Clock, MergedFencesAskNoMoreOfAStreamThanItsOwnLastFence, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a), ib = vmp_clock_stream(f->clock, b);
  work(f, a);
  vmp_fence fa = vmp_clock_fence(f->clock, ia);
  VEXPECT_OK(vmp_clock_wait(f->clock, fa, UINT64_MAX));
  work(f, b);
  vmp_fence fb = vmp_clock_fence(f->clock, ib);
  vmp_fence both = vmp_fence_merge(fa, fb);
  VEXPECT_UINT_EQ(both.sequence, fb.sequence);
  work(f, a);  // later work of a, which no fence names
  VEXPECT_UINT_EQ(vmp_clock_others(f->clock, both, 63).streams, UINT64_C(1) << ib);
  uint64_t records = calls(f, VMP_CALL_event_record);
  VEXPECT_OK(vmp_clock_wait(f->clock, both, UINT64_MAX));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), records + 1);  // on b only
}

VTEST_F(Clock, ManyFencesUseFewEvents, rig) {
  vmp_cu_stream stream = new_stream(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  vmp_fence last = VMP_FENCE_NONE;
  for (int i = 0; i < 1000; i++) {
    work(f, stream);
    last = vmp_clock_fence(f->clock, index);
    VEXPECT_OK(vmp_clock_poll(f->clock, last));
  }
  VEXPECT_UINT_LE(calls(f, VMP_CALL_event_create), CLOCK_MARKS);
  VEXPECT_OK(vmp_clock_wait(f->clock, last, UINT64_MAX));
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, last));
}

VTEST_F(Clock, ARetiredStreamsFencesStayTrueAndItsHandleMayComeAgain, rig) {
  vmp_cu_stream a = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  work(f, a);
  vmp_fence fence = vmp_clock_fence(f->clock, ia);
  VEXPECT_OK(vmp_clock_retire_stream(f->clock, a));
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));
  VEXPECT_INT_EQ(vmp_drv_stream_destroy(f->driver, a), 0);
  VEXPECT_OK(vmp_clock_wait(f->clock, fence, UINT64_MAX));
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, fence));
  // The same handle value is a new stream: it has nothing outstanding, and gets fences of its own.
  vmp_stream_index again = vmp_clock_stream(f->clock, a);
  vmp_fence none = {UINT64_C(1) << again, fence.sequence};
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, none));
  VEXPECT_OK(vmp_clock_retire_stream(f->clock, a));
}

VTEST_F(Clock, StreamsWithoutNumberAreStillOrdered, rig) {
  vmp_cu_stream reader = new_stream(f);
  vmp_stream_index self = vmp_clock_stream(f->clock, reader);
  vmp_fence all = VMP_FENCE_NONE;
  for (int i = 0; i < 300; i++) {  // more than lanes (63) and more than entries (192)
    vmp_cu_stream stream = new_stream(f);
    work(f, stream);
    all = vmp_fence_merge(all, vmp_clock_fence(f->clock, vmp_clock_stream(f->clock, stream)));
  }
  VEXPECT_FALSE(vmp_clock_known_complete(f->clock, all));
  VEXPECT_FALSE(vmp_fence_is_none(vmp_clock_others(f->clock, all, self)));
  VEXPECT_OK(vmp_clock_order(f->clock, reader, all));
  work(f, reader);
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, reader), 0);
  VEXPECT_OK(vmp_clock_wait(f->clock, all, UINT64_MAX));
  VEXPECT_TRUE(vmp_clock_known_complete(f->clock, all));
  vmp_host_counters counters;
  vmp_host_get_counters(f->driver, &counters);
  VEXPECT_UINT_EQ(counters.operations_done, counters.operations_queued);
}

VTEST_F(Clock, DriverFailuresAreReportedAndLeaveTheClockUsable, rig) {
  static const vmp_call kinds[] = {VMP_CALL_event_create, VMP_CALL_event_record, VMP_CALL_event_query,
                                   VMP_CALL_stream_wait_event, VMP_CALL_ctx_push_current};
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  VEXPECT_INT_EQ(vmp_drv_ctx_pop_current(f->driver, &f->context), 0);  // so that the clock has to push
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    VTRACE("%s", vmp_call_symbol(kinds[i]));
    work(f, a);
    vmp_fence fence = vmp_clock_fence(f->clock, ia);
    vmp_host_fault fault = {kinds[i], 1, VMP_CU_UNKNOWN, true};
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
    VEXPECT_STATUS(vmp_clock_order(f->clock, b, fence), VMP_ERROR_DRIVER);
    VEXPECT_STR_CONTAINS(vmp_last_error()->driver_call, vmp_call_symbol(kinds[i]));
    vmp_host_lift(f->driver);
    VEXPECT_FALSE(vmp_clock_known_complete(f->clock, fence));
    VEXPECT_OK(vmp_clock_order(f->clock, b, fence));
  }
  VEXPECT_OK(vmp_clock_wait(f->clock, vmp_clock_fence(f->clock, ia), UINT64_MAX));
  VEXPECT_INT_EQ(vmp_drv_ctx_push_current(f->driver, f->context), 0);
}

VTEST_F(Clock, TheCheckerNoticesEachCorruption, rig) {
  vmp_cu_stream stream = new_stream(f);
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);
  work(f, stream);
  VEXPECT_OK(vmp_clock_poll(f->clock, vmp_clock_fence(f->clock, index)));
  work(f, stream);
  VEXPECT_OK(vmp_clock_poll(f->clock, vmp_clock_fence(f->clock, index)));
  clock_entry *entry = &f->clock->entries[0];
  VASSERT_UINT_EQ(entry->num_marks, 2);
#define CORRUPT(lvalue, value, sentence)                    \
  do {                                                      \
    __typeof__(lvalue) kept = (lvalue);                     \
    (lvalue) = (value);                                     \
    vtest_faults faults = vtest_faults_make();              \
    vmp_report report = vtest_faults_report(&faults);       \
    VEXPECT_UINT_GT(vmp_clock_check(f->clock, &report), 0); \
    VEXPECT_A_FAULT(&faults, sentence);                     \
    (lvalue) = kept;                                        \
  } while (0)
  CORRUPT(entry->completed, 99u, "is complete up to 99");
  CORRUPT(entry->num_free, 7u, "marks and 7 free events");
  CORRUPT(entry->marks[0].sequence, 77u, "out of order");
  CORRUPT(entry->lane, 63u, "is in lane 63");
  CORRUPT(f->clock->lanes[5].members, 3u, "counts 3 streams and has 0");
  CORRUPT(f->clock->lanes[5].last, 99u, "was last named at 99");
  CORRUPT(f->clock->lanes[5].completed, 99u, "lane 5 is complete up to 99");
#undef CORRUPT
}
