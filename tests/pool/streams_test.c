// streams_test.c: memory that is used on several streams. Bug cases 36, 38, 46, 47; record_use, retired streams,
// cross_stream:complete. Late mode: queued work runs only when somebody waits for it, so a pool that ignores a fence
// is caught by the next touch.
#include <pthread.h>

#include "tests/pool/pool_rig.h"

// One stream needs neither events nor waits, and has its memory back at once.
VTEST_F(Streams, OneStreamReusesAtOnce, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {64, 5000, 100000, 10 * MIB};
  for (size_t i = 0; i < 4; i++) {
    void *first = rig_alloc(f, sizes[i], f->streams[0]);
    rig_touch(f, first, sizes[i], f->streams[0]);
    rig_free(f, first, f->streams[0]);
    void *again = rig_alloc(f, sizes[i], f->streams[0]);
    VEXPECT_PTR_EQ(again, first);
    rig_free(f, again, f->streams[0]);
  }
  vmp_driver_calls calls = rig_calls(f);
  VEXPECT_UINT_EQ(calls.event_record + calls.stream_wait + calls.synchronize, 0);
  VEXPECT_UINT_EQ(rig_stats(f).unfinished_wait_allocs, 0);
}

// Another stream's memory comes with a wait of the stream, never of the host.
VTEST_F(Streams, AnotherStreamWaitsOnTheGpu, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 64 * MIB, f->streams[0]);
  rig_touch(f, a, 64 * MIB, f->streams[0]);
  rig_free(f, a, f->streams[0]);
  void *c = rig_alloc(f, 32 * MIB, f->streams[1]);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.stream_waits, 1);
  VEXPECT_UINT_EQ(stats.unfinished_wait_allocs, 1);
  VEXPECT_UINT_EQ(stats.host_waits, 0);
  VEXPECT_UINT_EQ(stats.mapped, 64 * MIB);
  rig_touch(f, c, 32 * MIB, f->streams[1]);
  void *d = rig_alloc(f, 32 * MIB, f->streams[1]);  // the stream is ordered behind that work already
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);
  rig_touch(f, d, 32 * MIB, f->streams[1]);
  rig_settle(f);
  rig_check(f);
  rig_free(f, c, f->streams[1]);
  rig_free(f, d, f->streams[1]);
}

// What has finished needs no wait.
VTEST_F(Streams, FinishedWorkNeedsNoWait, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:32MiB");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 32 * MIB, f->streams[0]);
  rig_touch(f, a, 32 * MIB, f->streams[0]);
  rig_free(f, a, f->streams[0]);
  rig_settle(f);
  void *b = rig_alloc(f, 32 * MIB, f->streams[1]);
  VEXPECT_PTR_EQ(b, a);
  VEXPECT_UINT_EQ(rig_counters(f).stream_waits, 0);
  rig_free(f, b, f->streams[1]);
}

// Case 36: freeing and trimming at once: the memory goes only when the work has finished.
VTEST_F(Streams, Case36TrimUnderRunningWork, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 64 * MIB, f->streams[0]);
  rig_touch(f, a, 64 * MIB, f->streams[0]);
  rig_free(f, a, f->streams[0]);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 0);
  VEXPECT_UINT_EQ(report.kept_pending_bytes, 64 * MIB);
  VEXPECT_UINT_EQ(rig_stats(f).pending, 64 * MIB);
  VEXPECT_UINT_EQ(rig_counters(f).host_waits, 0);  // and nobody waited
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 64 * MIB);
  VEXPECT_UINT_EQ(rig_census(f).physical_bytes, 0);
}

// Case 38: the request needs memory whose work still runs, in other pieces: it waits for that work.
VTEST_F(Streams, Case38OutOfMemoryWaitsForWork, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:8GiB");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 4 * GIB, f->streams[0]);
  rig_touch(f, a, 4 * GIB, f->streams[0]);
  rig_free(f, a, f->streams[0]);
  void *b = rig_alloc(f, 6 * GIB, f->streams[1]);
  rig_touch(f, b, 6 * GIB, f->streams[1]);
  rig_settle(f);
  rig_check(f);  // no bad touch, no unmap under work
  rig_free(f, b, f->streams[1]);
}

// Case 38, the other way: the bounded wait ends before the work does, and the message says so.
VTEST_F(Streams, Case38NoWaitIsAnAnswerToo, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,cross_stream:complete,wait:0");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 64 * MIB, f->streams[0]), *b = NULL;
  rig_touch(f, a, 64 * MIB, f->streams[0]);
  rig_free(f, a, f->streams[0]);
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(vmp_alloc(f->pool, &b, 64 * MIB, f->streams[1]), VMP_ERROR_LIMIT);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "had not finished");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "pending 64MiB (stream #");
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  b = rig_alloc(f, 64 * MIB, f->streams[0]);  // its own stream needs no wait
  rig_free(f, b, f->streams[0]);
}

// cross_stream:complete never queues a wait of a stream; the last step waits on the host.
VTEST_F(Streams, CompleteOnly, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,cross_stream:complete");
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {1000, 5000, 64 * KIB, MIB, 20 * MIB};
  for (size_t i = 0; i < 5; i++) {
    VTRACE("size %llu", (unsigned long long)sizes[i]);
    void *blocks[3];
    for (size_t j = 0; j < 3; j++) blocks[j] = rig_alloc(f, sizes[i], f->streams[0]);
    for (size_t j = 0; j < 3; j++) rig_touch(f, blocks[j], sizes[i], f->streams[0]);
    for (size_t j = 0; j < 3; j++) rig_free(f, blocks[j], f->streams[0]);
    for (size_t j = 0; j < 3; j++) blocks[j] = rig_alloc(f, sizes[i], f->streams[1]);
    for (size_t j = 0; j < 3; j++) rig_touch(f, blocks[j], sizes[i], f->streams[1]);
    for (size_t j = 0; j < 3; j++) rig_free(f, blocks[j], f->streams[1]);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VEXPECT_UINT_EQ(rig_calls(f).stream_wait, 0);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  rig_settle(f);
}

// Case 46: the legacy stream under its two names is one stream; the per-thread one is another in each thread.
typedef struct thread_case {
  pool_rig *f;
  vmp_stream stream;
  void *first, *second;
} thread_case;

static void *allocate_in_thread(void *context) {
  thread_case *c = context;
  c->second = rig_alloc(c->f, 4 * MIB, c->stream);
  rig_touch(c->f, c->second, 4 * MIB, c->stream);
  rig_free(c->f, c->second, c->stream);
  return NULL;
}

static void in_two_threads(thread_case *c) {
  pthread_t thread;
  c->first = rig_alloc(c->f, 4 * MIB, c->stream);
  rig_touch(c->f, c->first, 4 * MIB, c->stream);
  rig_free(c->f, c->first, c->stream);
  VASSERT_INT_EQ(pthread_create(&thread, NULL, allocate_in_thread, c), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
}

VTEST_F(Streams, Case46SpecialHandles, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  thread_case per_thread = {.f = f, .stream = (vmp_stream)(uintptr_t)2};
  in_two_threads(&per_thread);
  VEXPECT_PTR_NE(per_thread.second, per_thread.first);  // another stream: not before the work is known complete
  rig_settle(f);
  thread_case legacy = {.f = f, .stream = NULL};
  in_two_threads(&legacy);
  void *named = rig_alloc(f, 4 * MIB, (vmp_stream)(uintptr_t)1);
  VEXPECT_PTR_EQ(named, legacy.second);
  rig_free(f, named, NULL);
  rig_settle(f);
}

// Case 47: memory whose work has finished is not held up by memory whose work has not.
VTEST_F(Streams, Case47NoHeadOfLine, pool_rig) {
  rig_open(f, 8 * GIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 32 * MIB, f->streams[0]), *b = rig_alloc(f, 32 * MIB, f->streams[1]);
  rig_touch(f, a, 32 * MIB, f->streams[0]);
  rig_touch(f, b, 32 * MIB, f->streams[1]);
  rig_free(f, a, f->streams[0]);
  rig_free(f, b, f->streams[1]);
  VEXPECT_OK(vmp_pool_trim(f->pool, UINT64_MAX, NULL));  // looks what has finished: nothing, and records events
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[1]));
  VEXPECT_OK(vmp_pool_trim(f->pool, UINT64_MAX, NULL));  // b has, a has not
  uint64_t created = rig_calls(f).create;
  void *c = rig_alloc(f, 32 * MIB, f->streams[2]);
  VEXPECT_PTR_EQ(c, b);
  VEXPECT_UINT_EQ(rig_calls(f).create, created);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  rig_touch(f, c, 32 * MIB, f->streams[2]);
  rig_settle(f);
  rig_free(f, c, f->streams[2]);
}

// A recorded use of another stream is waited for as well, and only as far as the free.
VTEST_F(Streams, RecordedUses, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:2MiB,preset:tight");
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {700, 300000, 2 * MIB};
  for (size_t i = 0; i < 3; i++) {
    void *a = rig_alloc(f, sizes[i], f->streams[0]);
    VEXPECT_OK(vmp_record_use(f->pool, a, f->streams[1]));
    VEXPECT_OK(vmp_record_use(f->pool, a, f->streams[2]));
    VEXPECT_OK(vmp_record_use(f->pool, a, f->streams[1]));
    rig_touch(f, a, sizes[i], f->streams[1]);
    rig_touch(f, a, sizes[i], f->streams[2]);
    rig_free(f, a, f->streams[0]);
    // All of the device again, on the stream that freed it: it must not run over the others' work.
    void *b = rig_alloc(f, 2 * MIB, f->streams[0]);
    rig_touch(f, b, 2 * MIB, f->streams[0]);
    rig_free(f, b, f->streams[0]);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VEXPECT_UINT_GE(rig_stats(f).stream_waits, 1);
  rig_settle(f);
  rig_check(f);
}

// Memory of a retired stream is still fenced by what it had queued.
VTEST_F(Streams, RetiredStreams, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:32MiB");
  VASSERT_NO_FAILURE();
  for (int i = 0; i < 5; i++) {
    vmp_stream stream = NULL;
    VASSERT_OK(vmp_host_stream_create(f->driver, 0, &stream));
    void *a = rig_alloc(f, 32 * MIB, stream);
    rig_touch(f, a, 32 * MIB, stream);
    rig_free(f, a, stream);
    VEXPECT_OK(vmp_stream_retired(f->pool, stream));
    VASSERT_OK(vmp_host_stream_destroy(f->driver, stream));
    void *b = rig_alloc(f, 32 * MIB, f->streams[0]);
    rig_touch(f, b, 32 * MIB, f->streams[0]);
    rig_free(f, b, f->streams[0]);
  }
  rig_settle(f);
  rig_check(f);
}

// More streams than a fence can tell apart: correct, only less exact.
VTEST_F(Streams, HundredStreams, pool_rig) {
  enum { STREAMS = 100 };
  vmp_stream streams[STREAMS];
  rig_open(f, 8 * GIB, "hard_limit:256MiB");
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < STREAMS; i++) VASSERT_OK(vmp_host_stream_create(f->driver, 0, &streams[i]));
  for (size_t round = 0; round < 5; round++) {
    for (size_t i = 0; i < STREAMS; i++) {
      void *a = rig_alloc(f, 10 * MIB, streams[i]);
      rig_touch(f, a, 10 * MIB, streams[i]);
      VEXPECT_OK(vmp_record_use(f->pool, a, streams[(i * 7 + 1) % STREAMS]));
      rig_touch(f, a, 10 * MIB, streams[(i * 7 + 1) % STREAMS]);
      rig_free(f, a, streams[i]);
    }
  }
  rig_settle(f);
  rig_check(f);
  for (size_t i = 0; i < STREAMS; i++) {
    VEXPECT_OK(vmp_stream_retired(f->pool, streams[i]));
    VASSERT_OK(vmp_host_stream_destroy(f->driver, streams[i]));
  }
}

// A stream wait that the driver refuses leaves the request without effect.
VTEST_F(Streams, AFailedOrderGivesTheBlockBack, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:32MiB");
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {700, 300000, 32 * MIB};
  for (size_t i = 0; i < 3; i++) {
    void *a = rig_alloc(f, 32 * MIB, f->streams[0]), *b = NULL;
    rig_touch(f, a, 32 * MIB, f->streams[0]);
    rig_free(f, a, f->streams[0]);
    vmp_pool_stats_data before = rig_stats(f);
    vmp_host_fault fault = {VMP_CALL_stream_wait_event, 1, VMP_CU_UNKNOWN, false};
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
    VEXPECT_STATUS(vmp_alloc(f->pool, &b, sizes[i], f->streams[1]), VMP_ERROR_DRIVER);
    VEXPECT_STR_EQ(vmp_last_error()->driver_call, "cuStreamWaitEvent");
    vmp_host_lift(f->driver);
    vmp_pool_stats_data after = rig_stats(f);
    VEXPECT_UINT_EQ(after.live, 0);
    VEXPECT_UINT_EQ(after.requested, 0);
    VEXPECT_UINT_EQ(after.peak_live, before.peak_live);
    VEXPECT_UINT_EQ(after.allocs, before.allocs);
    VEXPECT_UINT_EQ(after.mapped, before.mapped);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
    b = rig_alloc(f, 32 * MIB, f->streams[1]);  // still fenced
    rig_touch(f, b, 32 * MIB, f->streams[1]);
    rig_free(f, b, f->streams[1]);
    rig_settle(f);
    rig_check(f);
  }
}
