// Rules 49 to 54: streams, events, host functions.
#include <pthread.h>
#include <string.h>

#include "tests/driver/host_rig.h"

#define LEGACY ((vmp_cu_stream)1)
#define PER_THREAD ((vmp_cu_stream)2)

VTEST_F(HostRule, 49_CreationFlags, host_rig) {
  vmp_cu_stream stream = NULL;
  vmp_cu_event event = NULL;
  VEXPECT_RULE(f, 49, VMP_CU_INVALID_VALUE, vmp_drv_stream_create(f->driver, &stream, 2));
  VEXPECT_RULE(f, 49, VMP_CU_INVALID_VALUE, vmp_drv_stream_create(f->driver, NULL, 0));
  VEXPECT_RULE(f, 49, VMP_CU_INVALID_VALUE, vmp_drv_event_create(f->driver, &event, 8));
  VEXPECT_RULE(f, 49, VMP_CU_INVALID_VALUE, vmp_drv_event_create(f->driver, &event, VMP_CU_EVENT_INTERPROCESS));
  VEXPECT_RULE(f, 49, VMP_CU_INVALID_VALUE, vmp_drv_event_create(f->driver, NULL, 0));
  VEXPECT_NULL(stream);
  VEXPECT_NULL(event);
  VEXPECT_CUDA(vmp_drv_event_create(f->driver, &event, VMP_CU_EVENT_INTERPROCESS | VMP_CU_EVENT_DISABLE_TIMING));
  VEXPECT_CUDA(vmp_drv_event_create(f->driver, &event, VMP_CU_EVENT_BLOCKING_SYNC));
}

VTEST_F(HostRule, 50_DestroyedHandles, host_rig) {
  vmp_cu_stream stream = host_stream(f, 0);
  vmp_cu_event event = host_event(f);
  vmp_cu_event other = host_event(f);
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, 4096, 0, false));
  VASSERT_CUDA(vmp_drv_stream_destroy(f->driver, stream));
  VASSERT_CUDA(vmp_drv_event_destroy(f->driver, event));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_query(f->driver, stream));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_destroy(f->driver, stream));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_query(f->driver, event));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_synchronize(f->driver, event));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_destroy(f->driver, event));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_record(f->driver, event, LEGACY));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_record(f->driver, other, stream));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_wait_event(f->driver, LEGACY, event, 0));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_query(f->driver, NULL));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_destroy(f->driver, LEGACY));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_query(f->driver, (vmp_cu_stream)(uintptr_t)0x12345678));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_VALUE, vmp_drv_stream_wait_event(f->driver, LEGACY, other, 1));
  // The next ones get other values.
  vmp_cu_stream next = host_stream(f, 0);
  VEXPECT_TRUE(next != stream);
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_HANDLE, vmp_drv_stream_query(f->driver, stream));
}

VTEST(HostRule, 50_ImmediateReuseGivesTheSameStreamHandle) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.immediate_reuse = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_stream first = host_stream(&rig, 0);
  unsigned long long first_id = 0;
  unsigned long long second_id = 0;
  VASSERT_CUDA(vmp_drv_stream_get_id(rig.driver, first, &first_id));
  VASSERT_CUDA(vmp_drv_stream_destroy(rig.driver, first));
  vmp_cu_stream second = host_stream(&rig, 0);
  VASSERT_CUDA(vmp_drv_stream_get_id(rig.driver, second, &second_id));
  VEXPECT_TRUE(second == first);
  VEXPECT_UINT_NE(second_id, first_id);  // the id tells them apart
  vmp_cu_event event = host_event(&rig);
  VASSERT_CUDA(vmp_drv_event_destroy(rig.driver, event));
  VEXPECT_TRUE(host_event(&rig) == event);
  host_rig_teardown(&rig);
}

VTEST(HostRule, 50_RecordAcrossContexts) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_context second = NULL;
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &second, 1));
  vmp_cu_event event = host_event(&rig);
  vmp_cu_stream here = host_stream(&rig, 0);
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig.driver, second));
  vmp_cu_stream there = host_stream(&rig, 0);
  VEXPECT_RULE(&rig, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_record(rig.driver, event, there));
  VEXPECT_RULE(&rig, 50, VMP_CU_INVALID_HANDLE, vmp_drv_event_record(rig.driver, event, NULL));
  VEXPECT_CUDA(vmp_drv_event_record(rig.driver, event, here));           // a stream names its own context
  VEXPECT_CUDA(vmp_drv_stream_wait_event(rig.driver, there, event, 0));  // and waiting across devices is allowed
  VEXPECT_CODE(vmp_drv_event_query(rig.driver, event), VMP_CU_NOT_READY);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(rig.driver, there));
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, event));
  vmp_cu_context context = NULL;
  VEXPECT_CUDA(vmp_drv_stream_get_ctx(rig.driver, here, &context));
  VEXPECT_PTR_EQ(context, rig.context);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 51_PendingIsNotReady, host_rig) {
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, stream));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, stream));
  for (int i = 0; i < 1000; i++) {  // asking completes nothing, and is no violation
    VASSERT_INT_EQ(vmp_drv_event_query(f->driver, event), VMP_CU_NOT_READY);
    VASSERT_INT_EQ(vmp_drv_stream_query(f->driver, stream), VMP_CU_NOT_READY);
  }
  VEXPECT_CUDA(vmp_drv_event_synchronize(f->driver, event));
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, event));
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, stream));
  VEXPECT_UINT_EQ(host_counters(f).violations, 0);
  VEXPECT_UINT_EQ(host_counters(f).host_waits, 1);
}

VTEST_F(HostRule, 52_AnEventThatWasNeverRecorded, host_rig) {
  vmp_cu_event event = host_event(f);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, event));
  VEXPECT_CUDA(vmp_drv_event_synchronize(f->driver, event));
  VEXPECT_CUDA(vmp_drv_stream_wait_event(f->driver, stream, event, 0));  // does nothing
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, stream));
  VEXPECT_UINT_EQ(host_counters(f).unfinished_stream_waits, 0);
  VEXPECT_UINT_EQ(host_counters(f).stream_waits, 1);
}

VTEST_F(HostRule, 53_ElapsedTime, host_rig) {
  vmp_cu_event start = NULL;
  vmp_cu_event end = NULL;
  VASSERT_CUDA(vmp_drv_event_create(f->driver, &start, 0));
  VASSERT_CUDA(vmp_drv_event_create(f->driver, &end, 0));
  vmp_cu_event untimed = host_event(f);
  float ms = 7;
  VEXPECT_RULE(f, 53, VMP_CU_INVALID_HANDLE, vmp_drv_event_elapsed_time(f->driver, &ms, start, end));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, start, NULL));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, untimed, NULL));
  VEXPECT_RULE(f, 53, VMP_CU_INVALID_HANDLE, vmp_drv_event_elapsed_time(f->driver, &ms, start, end));
  VEXPECT_RULE(f, 53, VMP_CU_INVALID_HANDLE, vmp_drv_event_elapsed_time(f->driver, &ms, start, untimed));
  VEXPECT_RULE(f, 53, VMP_CU_INVALID_VALUE, vmp_drv_event_elapsed_time(f->driver, NULL, start, untimed));
  VASSERT_CUDA(vmp_drv_ctx_synchronize(f->driver));
  vmp_cu_handle handle = host_create(f, 0, G);  // 30 us on the virtual clock
  (void)handle;
  VASSERT_CUDA(vmp_drv_event_record(f->driver, end, NULL));
  VEXPECT_RULE(f, -1, VMP_CU_NOT_READY, vmp_drv_event_elapsed_time(f->driver, &ms, start, end));
  VEXPECT_NEAR((double)ms, 7, 0);
  VASSERT_CUDA(vmp_drv_event_synchronize(f->driver, end));
  VEXPECT_CUDA(vmp_drv_event_elapsed_time(f->driver, &ms, start, end));
  VEXPECT_REAL_GE((double)ms, 0.030);
  VEXPECT_REAL_LT((double)ms, 0.060);
}

// ---- events ----

VTEST_F(HostEvent, AWaitKeepsTheRecordThatItSaw, host_rig) {
  vmp_cu_stream a = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream c = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, a));
  VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, c, event, 0));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, b));  // again, elsewhere
  VASSERT_CUDA(vmp_drv_stream_synchronize(f->driver, c));
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, a));
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, b), VMP_CU_NOT_READY);
  VEXPECT_CODE(vmp_drv_event_query(f->driver, event), VMP_CU_NOT_READY);  // the newer record counts
  VEXPECT_UINT_EQ(host_counters(f).unfinished_stream_waits, 1);
}

VTEST_F(HostEvent, OutlivesItsStreamAndItsOwnHandle, host_rig) {
  vmp_cu_stream a = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, a));
  VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, b, event, 0));
  VASSERT_CUDA(vmp_drv_stream_destroy(f->driver, a));  // its work still drains
  VEXPECT_CODE(vmp_drv_event_query(f->driver, event), VMP_CU_NOT_READY);
  VASSERT_CUDA(vmp_drv_event_destroy(f->driver, event));
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, b), VMP_CU_NOT_READY);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, b));
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 2);
  VEXPECT_UINT_EQ(host_census(f).streams, 1);
  host_expect_consistent(f);
}

VTEST_F(HostStream, ASyncRunsOnlyWhatItDependsOn, host_rig) {
  vmp_cu_stream s[4];
  for (int i = 0; i < 4; i++) s[i] = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 4; i++) VASSERT_CUDA(vmp_host_touch(f->driver, 0, s[i], 0, 0, false));  // nothing queued
  }
  VEXPECT_UINT_EQ(host_counters(f).operations_queued, 0);
  vmp_cu_event e1 = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e1, s[0]));          // 1: s0
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, s[0]));       // 2: s0
  VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, s[1], e1, 0));  // 3: s1 after 1
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e1, s[1]));          // 4: s1
  VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, s[2], e1, 0));  // 5: s2 after 4
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e1, s[3]));          // 6: s3
  VASSERT_CUDA(vmp_drv_stream_synchronize(f->driver, s[2]));        // needs 1, 3, 4, 5
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 4);
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, s[0]), VMP_CU_NOT_READY);
  VEXPECT_CODE(vmp_drv_event_query(f->driver, event), VMP_CU_NOT_READY);
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, s[3]), VMP_CU_NOT_READY);
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, s[1]));
  host_expect_consistent(f);
}

VTEST_F(HostStream, AChainOfWaitsOfAnyLength, host_rig) {
  vmp_cu_stream a = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  for (int i = 0; i < 200000; i++) {  // each waits for the other in turn
    VASSERT_CUDA(vmp_drv_event_record(f->driver, event, a));
    VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, b, event, 0));
    VASSERT_CUDA(vmp_drv_event_record(f->driver, event, b));
    VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, a, event, 0));
  }
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, a));
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 800000);
}

// ---- default streams ----

VTEST_F(HostStream, TheLegacyStreamIsABarrier, host_rig) {
  vmp_cu_stream blocking = host_stream(f, VMP_CU_STREAM_DEFAULT);
  vmp_cu_stream other = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event e[4];
  for (int i = 0; i < 4; i++) e[i] = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[0], blocking));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[1], other));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[2], NULL));  // after e[0], not after e[1]
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[3], blocking));
  VEXPECT_CUDA(vmp_drv_event_synchronize(f->driver, e[2]));
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, e[0]));
  VEXPECT_CODE(vmp_drv_event_query(f->driver, e[1]), VMP_CU_NOT_READY);
  VEXPECT_CODE(vmp_drv_event_query(f->driver, e[3]), VMP_CU_NOT_READY);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[2], LEGACY));  // 0 and 1 are one stream
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[0], blocking));
  VEXPECT_CUDA(vmp_drv_event_synchronize(f->driver, e[0]));  // needs the legacy one before it
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, e[2]));
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, e[3]));
  VEXPECT_CODE(vmp_drv_event_query(f->driver, e[1]), VMP_CU_NOT_READY);
}

VTEST_F(HostStream, SynchronisingTheLegacyStreamWaitsForBlockingStreams, host_rig) {
  vmp_cu_stream blocking = host_stream(f, VMP_CU_STREAM_DEFAULT);
  vmp_cu_stream other = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event e[2] = {host_event(f), host_event(f)};
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[0], blocking));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, e[1], other));
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, NULL));
  VEXPECT_CUDA(vmp_drv_event_query(f->driver, e[0]));
  VEXPECT_CODE(vmp_drv_event_query(f->driver, e[1]), VMP_CU_NOT_READY);
}

static void *record_on_per_thread(void *rig_pointer) {
  host_rig *rig = rig_pointer;
  VEXPECT_CUDA(vmp_drv_ctx_set_current(rig->driver, rig->context));
  unsigned long long id = 0;
  VEXPECT_CUDA(vmp_drv_stream_get_id(rig->driver, PER_THREAD, &id));
  vmp_cu_event event = host_event(rig);
  VEXPECT_CUDA(vmp_drv_event_record(rig->driver, event, PER_THREAD));
  return (void *)(uintptr_t)id;
}

VTEST_F(HostStream, PerThreadStreams, host_rig) {
  unsigned long long id = 0;
  VASSERT_CUDA(vmp_drv_stream_get_id(f->driver, PER_THREAD, &id));
  pthread_t thread;
  void *other_id = NULL;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, record_on_per_thread, f), 0);
  VASSERT_INT_EQ(pthread_join(thread, &other_id), 0);
  VEXPECT_UINT_NE((uintptr_t)other_id, id);
  VEXPECT_CUDA(vmp_drv_stream_query(f->driver, PER_THREAD));  // the other thread's work is not on ours
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, NULL));
  VASSERT_CUDA(vmp_drv_event_synchronize(f->driver, event));  // strict: the legacy stream doesn't wait for them
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 1);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(f->driver));
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 2);
}

VTEST(HostStream, PerThreadStreamsAreOrderedBelowStrict) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_LINT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_event e[2] = {host_event(&rig), host_event(&rig)};
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, e[0], PER_THREAD));
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, e[1], NULL));
  VEXPECT_CUDA(vmp_drv_event_synchronize(rig.driver, e[1]));
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, e[0]));
  host_rig_teardown(&rig);
}

// ---- host functions ----

typedef struct call_back {
  host_rig *rig;
  int calls, code;
} call_back;

static void call_the_driver(void *context) {
  call_back *back = context;
  back->calls++;
  back->code = vmp_drv_ctx_synchronize(back->rig->driver);
}

VTEST_F(HostRule, 54_AHostFunctionMayNotCallTheDriver, host_rig) {
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  call_back back = {f, 0, -1};
  VEXPECT_RULE(f, 54, VMP_CU_INVALID_VALUE, vmp_drv_launch_host_func(f->driver, stream, NULL, &back));
  VASSERT_CUDA(vmp_drv_launch_host_func(f->driver, stream, call_the_driver, &back));
  VEXPECT_INT_EQ(back.calls, 0);
  VASSERT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_INT_EQ(back.calls, 1);
  VEXPECT_INT_EQ(back.code, VMP_CU_NOT_PERMITTED);
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "rule 54, ");
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(f->driver));  // outside it works again
}

VTEST_F(HostStream, HostFunctionsRunInOrderAndNotInALostContext, host_rig) {
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  call_back first = {f, 0, -1};
  call_back second = {f, 0, -1};
  VASSERT_CUDA(vmp_drv_launch_host_func(f->driver, stream, call_the_driver, &first));
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, 4096, 1, false));  // illegal
  VASSERT_CUDA(vmp_drv_launch_host_func(f->driver, stream, call_the_driver, &second));
  VEXPECT_CODE(vmp_drv_stream_synchronize(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_INT_EQ(first.calls, 1);
  VEXPECT_INT_EQ(second.calls, 0);
}

VTEST(HostStream, AHostFunctionRunsAtOnceInEarlyMode) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.work = VMP_HOST_WORK_EARLY;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  call_back back = {&rig, 0, -1};
  VASSERT_CUDA(vmp_drv_launch_host_func(rig.driver, NULL, call_the_driver, &back));
  VEXPECT_INT_EQ(back.calls, 1);
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 1);
  host_rig_teardown(&rig);
}

// One thread sits in a host function; others queue, query and wait on other streams, and one waits for its stream.
typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool entered, open;
} gate;

static void sit_at_the_gate(void *context) {
  gate *g = context;
  pthread_mutex_lock(&g->lock);
  g->entered = true;
  pthread_cond_broadcast(&g->changed);
  while (!g->open) pthread_cond_wait(&g->changed, &g->lock);
  pthread_mutex_unlock(&g->lock);
}

typedef struct waiter {
  host_rig *rig;
  vmp_cu_stream stream;
  int code;
} waiter;

static void *wait_for_stream(void *context) {
  waiter *w = context;
  VEXPECT_CUDA(vmp_drv_ctx_set_current(w->rig->driver, w->rig->context));
  w->code = vmp_drv_stream_synchronize(w->rig->driver, w->stream);
  return NULL;
}

VTEST_F(HostStream, OthersGoOnWhileAHostFunctionRuns, host_rig) {
  gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
  vmp_cu_stream held = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream free_stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  VASSERT_CUDA(vmp_drv_launch_host_func(f->driver, held, sit_at_the_gate, &g));
  waiter waiters[2] = {{f, held, -1}, {f, held, -1}};
  pthread_t threads[2];
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, wait_for_stream, &waiters[i]), 0);
  pthread_mutex_lock(&g.lock);
  while (!g.entered) pthread_cond_wait(&g.changed, &g.lock);
  pthread_mutex_unlock(&g.lock);
  vmp_cu_event event = host_event(f);
  VEXPECT_CUDA(vmp_drv_event_record(f->driver, event, free_stream));
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, free_stream));
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, held), VMP_CU_NOT_READY);
  VEXPECT_CUDA(vmp_drv_stream_destroy(f->driver, held));  // while it is busy
  pthread_mutex_lock(&g.lock);
  g.open = true;
  pthread_cond_broadcast(&g.changed);
  pthread_mutex_unlock(&g.lock);
  for (int i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  // Both waited for it, or came when the handle was gone already.
  for (int i = 0; i < 2; i++) VEXPECT_TRUE(waiters[i].code == 0 || waiters[i].code == VMP_CU_INVALID_HANDLE);
  VEXPECT_UINT_EQ(host_counters(f).operations_done, 2);
  host_expect_consistent(f);
}
