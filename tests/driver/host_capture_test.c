// Rule 57: stream capture: what joins it, what it takes, what it forbids.
#include <pthread.h>

#include "tests/driver/host_rig.h"

static int capture_status(host_rig *rig, vmp_cu_stream stream) {
  int status = -1;
  VEXPECT_CUDA(vmp_drv_stream_is_capturing(rig->driver, stream, &status));
  return status;
}

VTEST_F(HostCapture, TakesWorkAndEndsInAGraph, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  (void)host_map(f, ptr, G);
  vmp_cu_stream origin = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream joined = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event fork = host_event(f);
  vmp_cu_event back = host_event(f);
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, origin, VMP_CU_CAPTURE_GLOBAL));
  VEXPECT_INT_EQ(capture_status(f, origin), VMP_CU_CAPTURE_STATUS_ACTIVE);
  VEXPECT_CUDA(vmp_drv_memset_d8_async(f->driver, ptr, 1, 16, origin));
  VEXPECT_CUDA(vmp_host_touch(f->driver, 0, origin, ptr, G, true));
  VEXPECT_CUDA(vmp_drv_event_record(f->driver, fork, origin));
  VEXPECT_CUDA(vmp_drv_stream_wait_event(f->driver, joined, fork, 0));
  VEXPECT_INT_EQ(capture_status(f, joined), VMP_CU_CAPTURE_STATUS_ACTIVE);
  VEXPECT_CUDA(vmp_host_touch(f->driver, 0, joined, ptr, G, true));
  VEXPECT_CUDA(vmp_drv_event_record(f->driver, back, joined));
  VEXPECT_CUDA(vmp_drv_stream_wait_event(f->driver, origin, back, 0));
  // VMM calls are no stream operations.
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  (void)host_map(f, ptr, G);
  void *graph = NULL;
  VEXPECT_CUDA(vmp_drv_stream_end_capture(f->driver, origin, &graph));
  VEXPECT_NOT_NULL(graph);
  VEXPECT_INT_EQ(capture_status(f, joined), VMP_CU_CAPTURE_STATUS_NONE);
  VEXPECT_CUDA(vmp_drv_graph_destroy(f->driver, graph));
  VEXPECT_RULE(f, 50, VMP_CU_INVALID_VALUE, vmp_drv_graph_destroy(f->driver, graph));
  VEXPECT_UINT_EQ(host_counters(f).operations_queued, 0);  // captured work never ran
  VEXPECT_UINT_EQ(host_counters(f).violations, 1);         // the second destroy
}

VTEST_F(HostRule, 57_SyncOrQueryOfACapturingStream, host_rig) {
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  void *graph = (void *)(uintptr_t)77;
  for (int i = 0; i < 3; i++) {
    VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, stream, VMP_CU_CAPTURE_RELAXED));
    if (i == 0) {
      VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, vmp_drv_stream_synchronize(f->driver, stream));
    } else if (i == 1) {
      VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, vmp_drv_stream_query(f->driver, stream));
    } else {
      VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, vmp_drv_ctx_synchronize(f->driver));
    }
    VEXPECT_INT_EQ(capture_status(f, stream), VMP_CU_CAPTURE_STATUS_INVALIDATED);
    VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_INVALIDATED, vmp_drv_stream_synchronize(f->driver, stream));
    VEXPECT_CODE(vmp_host_touch(f->driver, 0, stream, 0, 1, false), VMP_CU_STREAM_CAPTURE_INVALIDATED);
    VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, stream, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
    VEXPECT_PTR_EQ(graph, (void *)(uintptr_t)77);
    VEXPECT_INT_EQ(capture_status(f, stream), VMP_CU_CAPTURE_STATUS_NONE);
    VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
  }
}

VTEST_F(HostRule, 57_LegacyStreamWhileABlockingStreamCaptures, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_stream blocking = host_stream(f, VMP_CU_STREAM_DEFAULT);
  vmp_cu_stream free_stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  void *graph = NULL;
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, free_stream, VMP_CU_CAPTURE_RELAXED));
  VEXPECT_CUDA(vmp_host_touch(f->driver, 0, NULL, ptr, 1, true));  // a non-blocking one doesn't matter
  VEXPECT_CUDA(vmp_drv_stream_end_capture(f->driver, free_stream, &graph));
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, blocking, VMP_CU_CAPTURE_RELAXED));
  int status = 0;
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_IMPLICIT, vmp_drv_stream_is_capturing(f->driver, NULL, &status));
  VEXPECT_INT_EQ(capture_status(f, blocking), VMP_CU_CAPTURE_STATUS_ACTIVE);  // asking invalidates nothing
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_IMPLICIT, vmp_drv_event_record(f->driver, event, NULL));
  VEXPECT_INT_EQ(capture_status(f, blocking), VMP_CU_CAPTURE_STATUS_INVALIDATED);
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, blocking, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, blocking, VMP_CU_CAPTURE_RELAXED));
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_IMPLICIT, vmp_drv_memset_d8(f->driver, ptr, 1, 1));
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, blocking, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED,
               vmp_drv_stream_begin_capture(f->driver, NULL, VMP_CU_CAPTURE_RELAXED));
}

VTEST_F(HostRule, 57_EventsOfACapture, host_rig) {
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event inside = host_event(f);
  vmp_cu_event outside = host_event(f);
  void *graph = NULL;
  VASSERT_CUDA(vmp_drv_event_record(f->driver, outside, stream));
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, stream, VMP_CU_CAPTURE_RELAXED));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, inside, stream));
  VEXPECT_RULE(f, 57, VMP_CU_CAPTURED_EVENT, vmp_drv_event_query(f->driver, inside));
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, stream, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, stream, VMP_CU_CAPTURE_RELAXED));
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_ISOLATION, vmp_drv_stream_wait_event(f->driver, stream, outside, 0));
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, stream, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
}

VTEST_F(HostRule, 57_UnsafeCallsDuringACapture, host_rig) {
  vmp_cu_stream capturing = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream other = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, other));
  void *graph = NULL;
  vmp_cu_ptr block = 0;
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, capturing, VMP_CU_CAPTURE_GLOBAL));
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, vmp_drv_event_query(f->driver, event));
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, capturing, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, capturing, VMP_CU_CAPTURE_GLOBAL));
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNSUPPORTED, vmp_drv_mem_alloc(f->driver, &block, 1));
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, capturing, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  // A thread in relaxed mode may; exchanging gives the old mode back.
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, capturing, VMP_CU_CAPTURE_GLOBAL));
  int mode = VMP_CU_CAPTURE_RELAXED;
  VASSERT_CUDA(vmp_drv_thread_exchange_capture_mode(f->driver, &mode));
  VEXPECT_INT_EQ(mode, VMP_CU_CAPTURE_GLOBAL);
  VEXPECT_CODE(vmp_drv_event_query(f->driver, event), VMP_CU_NOT_READY);
  VEXPECT_CUDA(vmp_drv_mem_alloc(f->driver, &block, 1));
  VASSERT_CUDA(vmp_drv_thread_exchange_capture_mode(f->driver, &mode));
  VEXPECT_INT_EQ(mode, VMP_CU_CAPTURE_RELAXED);
  VEXPECT_CUDA(vmp_drv_stream_end_capture(f->driver, capturing, &graph));
  mode = 3;
  VEXPECT_RULE(f, 57, VMP_CU_INVALID_VALUE, vmp_drv_thread_exchange_capture_mode(f->driver, &mode));
}

typedef struct capture_thread {
  host_rig *rig;
  vmp_cu_stream stream;
  vmp_cu_event event;
  int end_code, query_code;
} capture_thread;

static void *capture_elsewhere(void *context) {
  capture_thread *t = context;
  void *graph = NULL;
  VEXPECT_CUDA(vmp_drv_ctx_set_current(t->rig->driver, t->rig->context));
  t->query_code = vmp_drv_event_query(t->rig->driver, t->event);
  t->end_code = vmp_drv_stream_end_capture(t->rig->driver, t->stream, &graph);
  return NULL;
}

VTEST_F(HostRule, 57_CapturesAndThreads, host_rig) {
  capture_thread t = {f, host_stream(f, VMP_CU_STREAM_NON_BLOCKING), host_event(f), -1, -1};
  void *graph = NULL;
  pthread_t thread;
  // Thread-local: another thread may query, but not end the capture.
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, t.stream, VMP_CU_CAPTURE_THREAD_LOCAL));
  VASSERT_INT_EQ(pthread_create(&thread, NULL, capture_elsewhere, &t), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_INT_EQ(t.query_code, 0);
  VEXPECT_INT_EQ(t.end_code, VMP_CU_STREAM_CAPTURE_WRONG_THREAD);
  VEXPECT_CUDA(vmp_drv_stream_end_capture(f->driver, t.stream, &graph));
  // Global: not even query.
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, t.stream, VMP_CU_CAPTURE_GLOBAL));
  VASSERT_INT_EQ(pthread_create(&thread, NULL, capture_elsewhere, &t), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_INT_EQ(t.query_code, VMP_CU_STREAM_CAPTURE_UNSUPPORTED);
  VEXPECT_CODE(vmp_drv_stream_end_capture(f->driver, t.stream, &graph), VMP_CU_STREAM_CAPTURE_INVALIDATED);
  // Relaxed: any thread may end it.
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, t.stream, VMP_CU_CAPTURE_RELAXED));
  VASSERT_INT_EQ(pthread_create(&thread, NULL, capture_elsewhere, &t), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_INT_EQ(t.query_code, 0);
  VEXPECT_INT_EQ(t.end_code, 0);
}

VTEST_F(HostRule, 57_BeginAndEnd, host_rig) {
  vmp_cu_stream origin = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream joined = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  void *graph = NULL;
  VEXPECT_RULE(f, 57, VMP_CU_ILLEGAL_STATE, vmp_drv_stream_end_capture(f->driver, origin, &graph));
  VEXPECT_RULE(f, 57, VMP_CU_INVALID_VALUE, vmp_drv_stream_begin_capture(f->driver, origin, 3));
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, origin, VMP_CU_CAPTURE_RELAXED));
  VEXPECT_RULE(f, 57, VMP_CU_ILLEGAL_STATE, vmp_drv_stream_begin_capture(f->driver, origin, VMP_CU_CAPTURE_RELAXED));
  VEXPECT_RULE(f, 57, VMP_CU_INVALID_VALUE, vmp_drv_stream_end_capture(f->driver, origin, NULL));
  VASSERT_CUDA(vmp_drv_event_record(f->driver, event, origin));
  VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, joined, event, 0));
  VEXPECT_RULE(f, 57, VMP_CU_ILLEGAL_STATE, vmp_drv_stream_end_capture(f->driver, joined, &graph));
  VEXPECT_RULE(f, 57, VMP_CU_STREAM_CAPTURE_UNJOINED, vmp_drv_stream_end_capture(f->driver, origin, &graph));
  VEXPECT_NULL(graph);
  VEXPECT_INT_EQ(capture_status(f, joined), VMP_CU_CAPTURE_STATUS_NONE);  // the failed end ended it
  // An event of a capture that has ended can't be waited for.
  VEXPECT_RULE(f, 57, VMP_CU_CAPTURED_EVENT, vmp_drv_stream_wait_event(f->driver, joined, event, 0));
}
