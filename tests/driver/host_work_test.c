// When queued work runs: late, early, interleaved by seed, with a lag; stepping; every order that is allowed and none
// that isn't.
#include <string.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"

static void open_in(host_rig *rig, vmp_host_work work, uint64_t seed_or_lag) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.work = work;
  options.work_seed = seed_or_lag;
  options.work_lag = seed_or_lag;
  host_rig_open(rig, &options);
}

VTEST(HostWork, LateRunsNothingUntilTheHostWaits) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_LATE, 0);
  vmp_cu_event event = host_event(&rig);
  for (int i = 0; i < 3000; i++) VASSERT_CUDA(vmp_drv_event_record(rig.driver, event, NULL));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 0);
  VEXPECT_CUDA(vmp_drv_event_synchronize(rig.driver, event));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 3000);
  VEXPECT_CUDA(vmp_drv_event_synchronize(rig.driver, event));
  VEXPECT_UINT_EQ(host_counters(&rig).host_waits, 1);  // the second had nothing to wait for
  host_rig_teardown(&rig);
}

VTEST(HostWork, EarlyRunsAtOnce) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_EARLY, 0);
  vmp_cu_stream a = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(&rig);
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, event, a));
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, event));
  VASSERT_CUDA(vmp_drv_stream_wait_event(rig.driver, b, event, 0));
  VEXPECT_CUDA(vmp_drv_stream_query(rig.driver, b));
  VEXPECT_UINT_EQ(host_counters(&rig).unfinished_stream_waits, 0);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 0, a, 4096, 1, false));
  VEXPECT_UINT_EQ(host_counters(&rig).bad_touches, 1);  // seen at once
  VEXPECT_CODE(vmp_drv_stream_query(rig.driver, b), VMP_CU_ILLEGAL_ADDRESS);
  host_rig_teardown(&rig);
}

VTEST(HostWork, LagCompletesAnOperationOnceSoManyLaterOnesAreQueued) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_LAG, 10);
  vmp_cu_stream a = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event first = host_event(&rig);
  vmp_cu_event other = host_event(&rig);
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, first, a));
  for (int i = 0; i < 9; i++) VASSERT_CUDA(vmp_drv_event_record(rig.driver, other, b));
  VEXPECT_CODE(vmp_drv_event_query(rig.driver, first), VMP_CU_NOT_READY);
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, other, b));  // the tenth later one, on any stream
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, first));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 1);
  for (int i = 0; i < 89; i++) VASSERT_CUDA(vmp_drv_event_record(rig.driver, other, i % 2 == 0 ? a : b));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 90);
  vmp_host_set_work(rig.driver, VMP_HOST_WORK_LAG, 0);  // as early mode
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, other, a));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 101);
  host_rig_teardown(&rig);
}

VTEST(HostWork, StepRunsTheOldestReadyWork) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_LATE, 0);
  vmp_cu_stream a = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event e[3] = {host_event(&rig), host_event(&rig), host_event(&rig)};
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, e[0], b));
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, e[1], a));
  VASSERT_CUDA(vmp_drv_event_record(rig.driver, e[2], b));
  VEXPECT_UINT_EQ(vmp_host_step(rig.driver, 1), 1);
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, e[0]));
  VEXPECT_CODE(vmp_drv_event_query(rig.driver, e[1]), VMP_CU_NOT_READY);
  VEXPECT_UINT_EQ(vmp_host_step(rig.driver, 100), 2);
  VEXPECT_UINT_EQ(vmp_host_step(rig.driver, 100), 0);
  VEXPECT_CUDA(vmp_drv_event_query(rig.driver, e[2]));
  host_rig_teardown(&rig);
}

VTEST(HostWork, ALateDrainRunsTheYoungestStreamFirst) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_LATE, 0);
  vmp_cu_ptr ptr = host_reserve(&rig, G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_stream a = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream b = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  VASSERT_CUDA(vmp_drv_memset_d8_async(rig.driver, ptr, 0xaa, 16, a));
  VASSERT_CUDA(vmp_drv_memset_d8_async(rig.driver, ptr, 0xbb, 16, b));  // unordered: a race of the caller's
  VASSERT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  unsigned char bytes[16];
  VASSERT_CUDA(vmp_host_peek(rig.driver, ptr, bytes, 16));
  VEXPECT_BYTES_FILLED(bytes, 0xaa, 16);
  host_rig_teardown(&rig);
}

// ---- four streams, 200 interleavings: all orders that the events forbid are never seen ----

enum { NUM_STREAMS = 4, STEPS = 60 };

typedef struct scenario {
  host_rig rig;
  vmp_cu_ptr ptr;
  vmp_cu_stream streams[NUM_STREAMS];
  vmp_cu_event events[NUM_STREAMS];
} scenario;

static void open_scenario(scenario *s, vmp_host_work work, uint64_t seed) {
  memset(s, 0, sizeof *s);
  open_in(&s->rig, work, seed);
  s->ptr = host_reserve(&s->rig, G);
  (void)host_map(&s->rig, s->ptr, G);
  for (int i = 0; i < NUM_STREAMS; i++) {
    s->streams[i] = host_stream(&s->rig, i < 2 ? VMP_CU_STREAM_NON_BLOCKING : VMP_CU_STREAM_DEFAULT);
    s->events[i] = host_event(&s->rig);
  }
}

// A token in device memory goes from stream to stream. Each hop copies it on after waiting for the one before; the
// hops are chosen by `seed`, the interleaving by the driver. Unrelated fills fill the queues in between.
static void pass_token(scenario *s, uint64_t seed) {
  vtest_rng rng = vtest_rng_make(seed);
  vmp_driver *d = s->rig.driver;
  unsigned previous = 0;
  unsigned char token[64];
  memset(token, 0x5c, sizeof token);
  VASSERT_CUDA(vmp_drv_memcpy_htod_async(d, s->ptr, token, sizeof token, s->streams[0]));
  for (uint64_t step = 0; step < STEPS; step++) {
    unsigned next = (unsigned)vtest_rng_below(&rng, NUM_STREAMS);
    VASSERT_CUDA(vmp_drv_event_record(d, s->events[previous], s->streams[previous]));
    VASSERT_CUDA(vmp_drv_stream_wait_event(d, s->streams[next], s->events[previous], 0));
    vmp_cu_ptr from = s->ptr + step * 64;
    VASSERT_CUDA(vmp_drv_memcpy_dtod_async(d, from + 64, from, 64, s->streams[next]));
    VASSERT_CUDA(vmp_drv_memset_d8_async(d, from, 0, 64, s->streams[next]));  // the old place is cleared
    unsigned noise = (unsigned)vtest_rng_below(&rng, NUM_STREAMS);
    VASSERT_CUDA(
        vmp_drv_memset_d8_async(d, s->ptr + MIB(1) + noise * 4096, (unsigned char)step, 4096, s->streams[noise]));
    if (vtest_rng_below(&rng, 8) == 0) (void)vmp_drv_stream_query(d, s->streams[noise]);
    previous = next;
  }
  VASSERT_CUDA(vmp_drv_stream_synchronize(d, s->streams[previous]));
  unsigned char result[64];
  VASSERT_CUDA(vmp_host_peek(d, s->ptr + STEPS * 64, result, sizeof result));
  VEXPECT_BYTES_FILLED(result, 0x5c, sizeof result);
  host_expect_consistent(&s->rig);
  VEXPECT_UINT_EQ(host_counters(&s->rig).violations, 0);
}

VTEST(HostWork, FourStreamsLateEarlyLagAnd200Seeds) {
  uint64_t seed = vtest_seed(20250101);
  scenario s;
  open_scenario(&s, VMP_HOST_WORK_LATE, 0);
  pass_token(&s, seed);
  host_rig_teardown(&s.rig);
  open_scenario(&s, VMP_HOST_WORK_EARLY, 0);
  pass_token(&s, seed);
  host_rig_teardown(&s.rig);
  for (uint64_t lag = 0; lag < 50; lag += 7) {
    open_scenario(&s, VMP_HOST_WORK_LAG, lag);
    pass_token(&s, seed + lag);
    host_rig_teardown(&s.rig);
  }
  for (uint64_t i = 0; i < 200; i++) {
    VTRACE("interleaving %llu", (unsigned long long)(seed + i));
    open_scenario(&s, VMP_HOST_WORK_SEED, seed + i);
    pass_token(&s, seed);
    host_rig_teardown(&s.rig);
    VASSERT_NO_FAILURE();
  }
}

// The same, without one of the waits: some interleaving must show it.
static bool token_survives_without_a_wait(uint64_t seed) {
  scenario s;
  open_scenario(&s, VMP_HOST_WORK_SEED, seed);
  vmp_driver *d = s.rig.driver;
  VEXPECT_CUDA(vmp_drv_memset_d8_async(d, s.ptr, 0x5c, 64, s.streams[0]));
  VEXPECT_CUDA(vmp_drv_memcpy_dtod_async(d, s.ptr + 64, s.ptr, 64, s.streams[1]));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));
  unsigned char byte = 0;
  VEXPECT_CUDA(vmp_host_peek(d, s.ptr + 64, &byte, 1));
  host_rig_teardown(&s.rig);
  return byte == 0x5c;
}

VTEST(HostWork, SeedsFindAMissingWait) {
  uint64_t seed = vtest_seed(1);
  unsigned survived = 0;
  for (uint64_t i = 0; i < 200; i++) survived += token_survives_without_a_wait(seed + i);
  VEXPECT_UINT_GT(survived, 0);
  VEXPECT_UINT_LT(survived, 200);
}

VTEST(HostWork, ASeedReplaysBitForBit) {
  uint64_t seed = vtest_seed(77);
  double clocks[2];
  uint64_t done[2];
  for (int run = 0; run < 2; run++) {
    scenario s;
    open_scenario(&s, VMP_HOST_WORK_SEED, seed);
    pass_token(&s, seed);
    clocks[run] = host_counters(&s.rig).modelled_us;
    done[run] = host_counters(&s.rig).operations_done;
    host_rig_teardown(&s.rig);
  }
  VEXPECT_NEAR(clocks[0], clocks[1], 0);
  VEXPECT_UINT_EQ(done[0], done[1]);
}

VTEST(HostWork, PollingEndsInSeededMode) {
  host_rig rig = {NULL, NULL};
  open_in(&rig, VMP_HOST_WORK_SEED, vtest_seed(5));
  vmp_cu_event event = host_event(&rig);
  for (int i = 0; i < 50; i++) VASSERT_CUDA(vmp_drv_event_record(rig.driver, event, NULL));
  int polls = 0;
  while (vmp_drv_event_query(rig.driver, event) == VMP_CU_NOT_READY && polls < 10000) polls++;
  VEXPECT_INT_LT(polls, 10000);
  host_rig_teardown(&rig);
}
