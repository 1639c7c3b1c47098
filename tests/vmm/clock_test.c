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

static void rig_setup_with(rig *f, const vmp_host_options *options) {
  VASSERT_OK(vmp_host_open(&f->driver, options));
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

static void rig_setup(rig *f) { rig_setup_with(f, NULL); }

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
  vmp_stream_index index = vmp_clock_stream(f->clock, stream);  // at first sight it is asked for its id
  uint64_t before = all_calls(f);
  VEXPECT_UINT_EQ(vmp_clock_stream(f->clock, stream), index);
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

// ---- marks behind frees ----

static vmp_clock_stats clock_stats(const rig *f) {
  vmp_clock_stats stats;
  vmp_clock_get_stats(f->clock, &stats);
  return stats;
}

VTEST_F(ClockMarks, OneStreamIsNeverMarked, rig) {
  vmp_stream_index index = vmp_clock_stream(f->clock, new_stream(f));
  uint64_t before = all_calls(f);
  for (int i = 0; i < 100; i++) {
    (void)vmp_clock_fence(f->clock, index);
    vmp_clock_mark_new(f->clock);
  }
  VEXPECT_UINT_EQ(all_calls(f), before);
}

VTEST_F(ClockMarks, WithASecondStreamAFreeIsMarkedAtOnce, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  (void)vmp_clock_stream(f->clock, b);
  vmp_host_check_order(f->driver, true);
  work(f, a);
  vmp_fence fence = vmp_clock_fence(f->clock, ia);
  vmp_clock_mark_new(f->clock);
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  vmp_clock_mark_new(f->clock);  // nothing new
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  VEXPECT_INT_EQ(vmp_host_touch(f->driver, 0, a, f->memory + MIB, 512, true), 0);  // later work of a
  VEXPECT_OK(vmp_clock_order(f->clock, b, fence));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  work(f, b);
  vmp_host_counters counters;
  vmp_host_get_counters(f->driver, &counters);
  VEXPECT_UINT_EQ(counters.overlong_waits, 0);
  VEXPECT_UINT_EQ(counters.unordered, 0);
  // b's work runs while a's later work doesn't: two operations of a, its wait, its own.
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, b), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_query(f->driver, a), VMP_CU_NOT_READY);
}

VTEST_F(ClockMarks, WhatNobodyWantsIsNotMarked, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a), ib = vmp_clock_stream(f->clock, b);
  for (uint32_t i = 0; i < CLOCK_ACTIVE; i++) (void)vmp_clock_fence(f->clock, ia);
  vmp_clock_mark_new(f->clock);
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  (void)vmp_clock_fence(f->clock, ib);
  vmp_clock_mark_new(f->clock);  // the last demand was b's coming
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 1);
  work(f, a);
  VEXPECT_OK(vmp_clock_order(f->clock, b, vmp_clock_fence(f->clock, ia)));
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 2);
  (void)vmp_clock_fence(f->clock, ib);
  vmp_clock_mark_new(f->clock);  // from here on what is freed is wanted
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), 3);
}

// More marks than a stream has room for: each fence is still covered, the old ones by a later event than their own.
VTEST_F(ClockMarks, ManyMarksAreThinnedOut, rig) {
  enum { FREES = 500 };
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  vmp_fence fences[FREES];
  (void)vmp_clock_stream(f->clock, b);
  for (int i = 0; i < FREES; i++) {
    work(f, a);
    fences[i] = vmp_clock_fence(f->clock, ia);
    vmp_clock_mark_new(f->clock);
  }
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), FREES);
  VEXPECT_UINT_LE(clock_stats(f).events_pooled, CLOCK_MARKS);
  for (int i = 0; i < FREES; i += 37) {
    vmp_cu_stream other = new_stream(f);
    VEXPECT_OK(vmp_clock_order(f->clock, other, fences[i]));
    VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, other), 0);
    VEXPECT_OK(vmp_clock_poll(f->clock, fences[i]));
    VEXPECT_TRUE(vmp_clock_known_complete(f->clock, fences[i]));
  }
  VEXPECT_UINT_EQ(calls(f, VMP_CALL_event_record), FREES);  // none more was needed
}

VTEST_F(ClockMarks, ARefusedMarkIsMadeWhenNeeded, rig) {
  vmp_cu_stream a = new_stream(f), b = new_stream(f);
  vmp_stream_index ia = vmp_clock_stream(f->clock, a);
  (void)vmp_clock_stream(f->clock, b);
  work(f, a);
  static const vmp_call failing[] = {VMP_CALL_event_create, VMP_CALL_event_record};
  for (int i = 0; i < 2; i++) {
    vmp_fence fence = vmp_clock_fence(f->clock, ia);
    vmp_host_fault fault = {failing[i], 1, VMP_CU_OUT_OF_MEMORY, false};
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
    vmp_clock_mark_new(f->clock);
    vmp_host_lift(f->driver);
    VEXPECT_UINT_EQ(clock_stats(f).events_recorded, (uint64_t)i);
    VEXPECT_OK(vmp_clock_order(f->clock, b, fence));
    VEXPECT_UINT_EQ(clock_stats(f).events_recorded, (uint64_t)i + 1);
    work(f, a);
  }
}

// ---- handles that are given again ----

typedef struct reuse_rig {
  rig r;
} reuse_rig;
static void reuse_rig_setup(reuse_rig *f) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.immediate_reuse = 1;
  rig_setup_with(&f->r, &options);
}
static void reuse_rig_teardown(reuse_rig *f) { rig_teardown(&f->r); }

// end_unnoticed destroys a stream whose work has run, without the clock's knowing either, and makes another, which gets
// the same handle.
static void end_unnoticed(rig *r, vmp_cu_stream stream) {
  (void)vmp_host_step(r->driver, 100);
  VASSERT_INT_EQ(vmp_drv_stream_destroy(r->driver, stream), 0);
  VASSERT_PTR_EQ(new_stream(r), stream);
}

// A stream that is destroyed without notice, and another under its handle: the first one's work is waited for, once.
VTEST_F(ClockReuse, AHandleThatNamesAnotherStream, reuse_rig) {
  rig *r = &f->r;
  vmp_cu_stream a = new_stream(r), b = new_stream(r);
  vmp_stream_index ia = vmp_clock_stream(r->clock, a);
  work(r, a);
  vmp_fence fence = vmp_clock_fence(r->clock, ia);
  end_unnoticed(r, a);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(vmp_clock_stream(r->clock, a), ia);
  VEXPECT_OK(vmp_clock_order(r->clock, b, fence));
  VEXPECT_UINT_EQ(clock_stats(r).renamed_streams, 1);
  VEXPECT_UINT_EQ(calls(r, VMP_CALL_ctx_synchronize), 1);
  VEXPECT_TRUE(vmp_clock_known_complete(r->clock, fence));
  work(r, a);
  fence = vmp_clock_fence(r->clock, ia);
  VEXPECT_OK(vmp_clock_order(r->clock, b, fence));
  work(r, b);
  VEXPECT_FALSE(vmp_clock_known_complete(r->clock, fence));
  VEXPECT_UINT_EQ(clock_stats(r).renamed_streams, 1);
  VEXPECT_UINT_EQ(calls(r, VMP_CALL_ctx_synchronize), 1);
}

// The same, noticed by a poll, by a mark, by a host wait and by retiring.
VTEST_F(ClockReuse, EveryCallNotices, reuse_rig) {
  rig *r = &f->r;
  (void)vmp_clock_stream(r->clock, new_stream(r));
  for (uint64_t i = 1; i <= 4; i++) {
    vmp_cu_stream a = new_stream(r);
    vmp_stream_index ia = vmp_clock_stream(r->clock, a);
    work(r, a);
    vmp_fence fence = vmp_clock_fence(r->clock, ia);
    end_unnoticed(r, a);
    VASSERT_NO_FAILURE();
    if (i == 1) VEXPECT_OK(vmp_clock_poll(r->clock, fence));
    if (i == 2) vmp_clock_mark_new(r->clock);
    if (i == 3) VEXPECT_OK(vmp_clock_wait(r->clock, fence, UINT64_MAX));
    if (i == 4) VEXPECT_OK(vmp_clock_retire_stream(r->clock, a));
    VEXPECT_TRUE(vmp_clock_known_complete(r->clock, fence));
    VEXPECT_UINT_EQ(clock_stats(r).renamed_streams, i);
    VEXPECT_UINT_EQ(calls(r, VMP_CALL_ctx_synchronize), i);
    if (i < 4) VEXPECT_OK(vmp_clock_retire_stream(r->clock, a));
    VASSERT_INT_EQ(vmp_drv_stream_destroy(r->driver, a), 0);
  }
}

// A synchronise that fails leaves the work unfinished, and is made again.
VTEST_F(ClockReuse, AFailedSynchroniseIsRepeated, reuse_rig) {
  rig *r = &f->r;
  vmp_cu_stream a = new_stream(r), b = new_stream(r);
  vmp_stream_index ia = vmp_clock_stream(r->clock, a);
  work(r, a);
  vmp_fence fence = vmp_clock_fence(r->clock, ia);
  end_unnoticed(r, a);
  VASSERT_NO_FAILURE();
  vmp_host_fault fault = {VMP_CALL_ctx_synchronize, 1, VMP_CU_UNKNOWN, false};
  VASSERT_TRUE(vmp_host_inject(r->driver, &fault));
  VEXPECT_STATUS(vmp_clock_order(r->clock, b, fence), VMP_ERROR_DRIVER);
  VEXPECT_FALSE(vmp_clock_known_complete(r->clock, fence));
  VEXPECT_OK(vmp_clock_order(r->clock, b, fence));
  VEXPECT_TRUE(vmp_clock_known_complete(r->clock, fence));
  VEXPECT_UINT_EQ(clock_stats(r).renamed_streams, 1);
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
  CORRUPT(entry->num_free, 63u, "marks and 63 free events");
  CORRUPT(f->clock->first_entry[5], 1u, "stream 0 is in the chain of lane 5 and not its own");
  CORRUPT(f->clock->first_entry[0], 0u, "the chain of lane 0 holds 0 streams of 1");
  CORRUPT(entry->marks[0].sequence, 77u, "out of order");
  CORRUPT(entry->lane, 63u, "is in lane 63");
  CORRUPT(f->clock->lanes[5].members, 3u, "counts 3 streams and has 0");
  CORRUPT(f->clock->lanes[5].last, 99u, "was last named at 99");
  CORRUPT(f->clock->lanes[5].completed, 99u, "lane 5 is complete up to 99");
#undef CORRUPT
}
