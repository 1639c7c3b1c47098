// Injected faults, delays, poisoned out-parameters, options, forked children, leaks (rule 63), violations.
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver/host_rig.h"

// ---- faults ----

VTEST_F(HostFault, TheNthCallOfAKindFailsOnce, host_rig) {
  vmp_host_fault fault = {VMP_CALL_mem_create, 3, VMP_CU_OUT_OF_MEMORY, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_handle handle = 0;
  (void)host_create(f, 0, G);
  (void)host_reserve(f, G);  // another kind doesn't count
  (void)host_create(f, 0, G);
  handle = 77;
  VEXPECT_RULE(f, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
  (void)host_create(f, 0, G);
}

VTEST_F(HostFault, FromThenOnUntilLifted, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  (void)host_map(f, ptr, G);
  vmp_host_fault fault = {VMP_CALL_mem_unmap, 1, 999, true};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  for (int i = 0; i < 5; i++) VEXPECT_RULE(f, -1, 999, vmp_drv_mem_unmap(f->driver, ptr, G));
  vmp_host_lift(f->driver);
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
}

VTEST_F(HostFault, AnyCallCounts, host_rig) {
  vmp_host_fault fault = {VMP_CALL_COUNT, 2, VMP_CU_LAUNCH_FAILED, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  int count = 0;
  VEXPECT_CUDA(vmp_drv_device_get_count(f->driver, &count));
  VEXPECT_CODE(vmp_drv_ctx_synchronize(f->driver), VMP_CU_LAUNCH_FAILED);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(f->driver));
}

VTEST_F(HostFault, SeveralAtOnce, host_rig) {
  vmp_host_fault first = {VMP_CALL_mem_create, 1, 2, false};
  vmp_host_fault second = {VMP_CALL_COUNT, 2, 1, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &first));
  VASSERT_TRUE(vmp_host_inject(f->driver, &second));
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_handle handle = 0;
  VEXPECT_CODE(vmp_drv_mem_create(f->driver, &handle, G, &prop, 0), 2);
  VEXPECT_CODE(vmp_drv_mem_create(f->driver, &handle, G, &prop, 0), 1);
  VEXPECT_CODE(vmp_drv_mem_create(f->driver, &handle, G, &prop, 0), 0);
}

VTEST_F(HostFault, NonsenseIsNotArmed, host_rig) {
  vmp_host_fault fault = {VMP_CALL_mem_create, 0, 2, false};
  VEXPECT_FALSE(vmp_host_inject(f->driver, &fault));  // nth counts from 1
  fault = (vmp_host_fault){VMP_CALL_mem_create, 1, 0, false};
  VEXPECT_FALSE(vmp_host_inject(f->driver, &fault));  // success is no fault
  fault = (vmp_host_fault){(vmp_call)(VMP_CALL_COUNT + 1), 1, 2, false};
  VEXPECT_FALSE(vmp_host_inject(f->driver, &fault));
  fault = (vmp_host_fault){VMP_CALL_mem_create, 1000, 2, false};
  for (int i = 0; i < 16; i++) VEXPECT_TRUE(vmp_host_inject(f->driver, &fault));
  VEXPECT_FALSE(vmp_host_inject(f->driver, &fault));  // 16 at most
}

// A fault instead of any effect, at every call of a scenario that uses the whole life of a mapping.
typedef struct life {
  vmp_cu_ptr ptr;
  vmp_cu_handle handle, retained;
  vmp_cu_stream stream;
  vmp_cu_event event;
  bool mapped;
} life;

static int live(vmp_driver *d, life *l) {
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_access_desc grant = host_grant(0, 3);
  char bytes[32] = {0};
  int code = 0;
  if ((code = vmp_drv_mem_address_reserve(d, &l->ptr, 4 * G, 0, 0, 0)) != 0) return code;
  if ((code = vmp_drv_mem_create(d, &l->handle, G, &prop, 0)) != 0) return code;
  if ((code = vmp_drv_mem_map(d, l->ptr, G, 0, l->handle, 0)) != 0) return code;
  l->mapped = true;
  if ((code = vmp_drv_mem_set_access(d, l->ptr, G, &grant, 1)) != 0) return code;
  if ((code = vmp_drv_mem_retain_allocation_handle(d, &l->retained, (void *)(uintptr_t)l->ptr)) != 0) return code;
  if ((code = vmp_drv_stream_create(d, &l->stream, 1)) != 0) return code;
  if ((code = vmp_drv_event_create(d, &l->event, 2)) != 0) return code;
  if ((code = vmp_drv_memset_d8_async(d, l->ptr, 1, 32, l->stream)) != 0) return code;
  if ((code = vmp_drv_memcpy_dtoh_async(d, bytes, l->ptr, 32, l->stream)) != 0) return code;
  if ((code = vmp_drv_event_record(d, l->event, l->stream)) != 0) return code;
  if ((code = vmp_drv_stream_wait_event(d, NULL, l->event, 0)) != 0) return code;
  if ((code = vmp_drv_event_synchronize(d, l->event)) != 0) return code;
  return vmp_drv_ctx_synchronize(d);
}

static void end_life(vmp_driver *d, const life *l) {
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));  // a copy to `bytes` must not outlive it: it ran, or was never queued
  if (l->event != NULL) VEXPECT_CUDA(vmp_drv_event_destroy(d, l->event));
  if (l->stream != NULL) VEXPECT_CUDA(vmp_drv_stream_destroy(d, l->stream));
  if (l->mapped) VEXPECT_CUDA(vmp_drv_mem_unmap(d, l->ptr, G));
  if (l->retained != 0) VEXPECT_CUDA(vmp_drv_mem_release(d, l->retained));
  if (l->handle != 0) VEXPECT_CUDA(vmp_drv_mem_release(d, l->handle));
  if (l->ptr != 0) VEXPECT_CUDA(vmp_drv_mem_address_free(d, l->ptr, 4 * G));
}

VTEST(HostFault, EveryCallOfALifeCanFail) {
  static const int codes[] = {2, 1, 801, 719, 999, 4};
  for (size_t c = 0; c < sizeof codes / sizeof codes[0]; c++) {
    for (uint64_t nth = 1;; nth++) {
      VTRACE("code %d at call %llu", codes[c], (unsigned long long)nth);
      vmp_host_options options = VMP_HOST_OPTIONS_INIT;
      options.work = VMP_HOST_WORK_EARLY;
      host_rig rig = {NULL, NULL};
      host_rig_open(&rig, &options);
      vmp_host_fault fault = {VMP_CALL_COUNT, nth, codes[c], false};
      VASSERT_TRUE(vmp_host_inject(rig.driver, &fault));
      life l = {0, 0, 0, NULL, NULL, false};
      int code = live(rig.driver, &l);
      VEXPECT_TRUE(code == 0 || code == codes[c]);
      vmp_host_lift(rig.driver);
      host_expect_consistent(&rig);
      end_life(rig.driver, &l);
      VEXPECT_CUDA(vmp_drv_primary_ctx_release(rig.driver, 0));
      vtest_faults faults = vtest_faults_make();
      vmp_report report = vtest_faults_report(&faults);
      (void)vmp_host_leaks(rig.driver, &report);
      VEXPECT_NO_FAULTS(&faults);
      VEXPECT_UINT_EQ(host_counters(&rig).violations, 0);
      host_rig_teardown(&rig);
      VASSERT_NO_FAILURE();
      if (code == 0) {
        VEXPECT_UINT_EQ(nth, 14);  // 13 calls, and a fault behind the last
        break;
      }
    }
  }
}

// ---- delays ----

typedef struct gate {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  bool entered, open;
} gate;

static void hold(void *context) {
  gate *g = context;
  pthread_mutex_lock(&g->lock);
  g->entered = true;
  pthread_cond_broadcast(&g->changed);
  while (!g->open) pthread_cond_wait(&g->changed, &g->lock);
  pthread_mutex_unlock(&g->lock);
}

static void *create_one(void *rig_pointer) {
  (void)host_create(rig_pointer, 0, G);
  return NULL;
}

VTEST_F(HostDelay, OneThreadIsHeldAndOthersGoOn, host_rig) {
  gate g = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false, false};
  vmp_host_delay(f->driver, VMP_CALL_mem_create, hold, &g);
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, create_one, f), 0);
  pthread_mutex_lock(&g.lock);
  while (!g.entered) pthread_cond_wait(&g.changed, &g.lock);
  pthread_mutex_unlock(&g.lock);
  vmp_cu_ptr ptr = host_reserve(f, G);  // the driver's lock is free
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, G));
  VEXPECT_UINT_EQ(host_census(f).handles, 0);  // the held call has not acted
  pthread_mutex_lock(&g.lock);
  g.open = true;
  pthread_cond_broadcast(&g.changed);
  pthread_mutex_unlock(&g.lock);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_UINT_EQ(host_census(f).handles, 1);
  vmp_host_delay(f->driver, VMP_CALL_mem_create, NULL, NULL);
  g.entered = false;
  (void)host_create(f, 0, G);
  VEXPECT_FALSE(g.entered);
}

// ---- out-parameters ----

VTEST(HostFault, OutParametersArePoisonedByOption) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.poison_out_params = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 1;
  vmp_cu_ptr ptr = 1;
  vmp_cu_mem_prop prop = host_prop(9);
  VEXPECT_CODE(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0), VMP_CU_INVALID_VALUE);
  VEXPECT_BYTES_FILLED(&handle, 0xDB, sizeof handle);
  VEXPECT_CODE(vmp_drv_mem_address_reserve(rig.driver, &ptr, 0, 0, 0, 0), VMP_CU_INVALID_VALUE);
  VEXPECT_BYTES_FILLED(&ptr, 0xDB, sizeof ptr);
  vmp_cu_stream stream = NULL;
  VEXPECT_CODE(vmp_drv_stream_create(rig.driver, &stream, 9), VMP_CU_INVALID_VALUE);
  VEXPECT_BYTES_FILLED(&stream, 0xDB, sizeof stream);
  vmp_cu_event event = NULL;
  VEXPECT_CODE(vmp_drv_event_create(rig.driver, &event, 9), VMP_CU_INVALID_VALUE);
  VEXPECT_BYTES_FILLED(&event, 0xDB, sizeof event);
  size_t numbers[2] = {1, 1};
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig.driver, NULL));
  VEXPECT_CODE(vmp_drv_mem_get_info(rig.driver, &numbers[0], &numbers[1]), VMP_CU_INVALID_CONTEXT);
  VEXPECT_BYTES_FILLED(numbers, 0xDB, sizeof numbers);
  host_rig_teardown(&rig);
}

// ---- options ----

static void expect_refused(const vmp_host_options *options, const char *part) {
  vmp_driver *driver = NULL;
  VEXPECT_STATUS(vmp_host_open(&driver, options), VMP_ERROR_CONFIG);
  VEXPECT_NULL(driver);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, part);
}

VTEST(HostOptions, EachIsCheckedAndNamed) {
  vmp_host_options good = VMP_HOST_OPTIONS_INIT;
  vmp_host_options options = good;
  options.struct_size = 8;
  expect_refused(&options, "struct_size");
  options = good;
  options.mode = (vmp_host_mode)2;
  expect_refused(&options, "mode");
  options = good;
  options.level = (vmp_host_level)3;
  expect_refused(&options, "level");
  options = good;
  options.work = (vmp_host_work)4;
  expect_refused(&options, "work");
  options = good;
  options.num_devices = VMP_HOST_MAX_DEVICES + 1;
  expect_refused(&options, "num_devices");
  options.num_devices = -1;
  expect_refused(&options, "num_devices");
  options = good;
  options.num_devices = 2;
  options.devices[1].granule_bytes = 3 << 20;
  expect_refused(&options, "devices[1].granule_bytes");
  options.devices[1].granule_bytes = 2048;
  expect_refused(&options, "devices[1].granule_bytes");
  options = good;
  options.mode = VMP_HOST_EXPOSED;
  options.ledger_high = 1;
  expect_refused(&options, "ledger_high");
  vmp_driver_close(NULL);  // fine
}

VTEST(HostOptions, TwoDriversAreTwoMachines) {
  host_rig first = {NULL, NULL};
  host_rig second = {NULL, NULL};
  host_rig_open(&first, NULL);
  host_rig_open(&second, NULL);
  (void)host_create(&first, 0, G);
  VEXPECT_UINT_EQ(host_census(&first).handles, 1);
  VEXPECT_UINT_EQ(host_census(&second).handles, 0);
  VEXPECT_TRUE(vmp_driver_is_host(first.driver));
  VEXPECT_FALSE(vmp_driver_is_host(NULL));
  VEXPECT_STR_EQ(first.driver->kind, "host");
  host_rig_teardown(&first);
  vmp_cu_context context = NULL;
  VEXPECT_CUDA(vmp_drv_ctx_get_current(second.driver, &context));
  VEXPECT_PTR_EQ(context, second.context);
  host_rig_teardown(&second);
}

// ---- rule 63 ----

VTEST_F(HostRule, 63_LeaksAreReported, host_rig) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_host_leaks(f->driver, &report), 1);  // the context of the fixture
  VEXPECT_TRUE(vtest_faults_find(&faults, "primary context of device 0: 1 retains"));
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_cu_mem_prop prop = host_prop(0);
  prop.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  vmp_cu_handle handle = 0;
  VASSERT_CUDA(vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
  vmp_cu_event event = host_event(f);
  vmp_cu_stream stream = host_stream(f, 0);
  int fd = -1;
  VASSERT_CUDA(vmp_drv_mem_export(f->driver, &fd, handle, VMP_CU_HANDLE_POSIX_FD, 0));
  void *pinned = NULL;
  VASSERT_CUDA(vmp_drv_mem_host_alloc(f->driver, &pinned, 100, 0));
  void *graph = NULL;
  VASSERT_CUDA(vmp_drv_stream_begin_capture(f->driver, stream, VMP_CU_CAPTURE_RELAXED));
  VASSERT_CUDA(vmp_drv_stream_end_capture(f->driver, stream, &graph));
  faults = vtest_faults_make();
  report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_host_leaks(f->driver, &report), 9);
  static const char *const expected[] = {"1 references, 1 mappings, 1 exports",
                                         "mapping of 2097152 bytes",
                                         "reservation of 2097152 bytes",
                                         "exported file descriptor",
                                         "pinned host memory of 100 bytes",
                                         "event ",
                                         "stream ",
                                         "primary context",
                                         "graph "};
  for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
    VEXPECT_TRUE(vtest_faults_find(&faults, expected[i]));
  }
  close(fd);
  VEXPECT_CUDA(vmp_drv_graph_destroy(f->driver, graph));
  VEXPECT_CUDA(vmp_drv_mem_free_host(f->driver, pinned));
  VEXPECT_CUDA(vmp_drv_stream_destroy(f->driver, stream));
  VEXPECT_CUDA(vmp_drv_event_destroy(f->driver, event));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_primary_ctx_release(f->driver, 0));
  faults = vtest_faults_make();
  report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_host_leaks(f->driver, &report), 0);
  VEXPECT_NO_FAULTS(&faults);
}

VTEST(HostRule, 63_LeaksAreReportedAtTheEnd) {
  for (int leak = 0; leak < 2; leak++) {
    vtest_faults faults = vtest_faults_make();
    vmp_report report = vtest_faults_report(&faults);
    vmp_host_options options = VMP_HOST_OPTIONS_INIT;
    options.leaks_at_close = &report;
    vmp_driver *driver = NULL;
    VASSERT_OK(vmp_host_open(&driver, &options));
    VASSERT_CUDA(vmp_drv_init(driver, 0));
    vmp_cu_ptr ptr = 0;
    VASSERT_CUDA(vmp_drv_mem_address_reserve(driver, &ptr, G, 0, 0, 0));
    if (leak == 0) VASSERT_CUDA(vmp_drv_mem_address_free(driver, ptr, G));
    vmp_driver_close(driver);
    VEXPECT_UINT_EQ(report.faults, (uint64_t)leak);
    VEXPECT_INT_EQ(vtest_faults_find(&faults, "reservation of 2097152 bytes"), leak);
  }
}

VTEST_F(HostViolations, TheLast64AreKept, host_rig) {
  char sentence[512];
  VEXPECT_FALSE(vmp_host_violation(f->driver, 0, sentence, sizeof sentence));
  for (int i = 0; i < 100; i++) (void)vmp_drv_mem_release(f->driver, 0);
  VEXPECT_UINT_EQ(host_counters(f).violations, 100);
  VEXPECT_FALSE(vmp_host_violation(f->driver, 35, sentence, sizeof sentence));
  VEXPECT_TRUE(vmp_host_violation(f->driver, 36, sentence, sizeof sentence));
  VEXPECT_STR_CONTAINS(sentence, "rule 25, call ");
  VEXPECT_TRUE(vmp_host_violation(f->driver, 99, sentence, sizeof sentence));
  VEXPECT_FALSE(vmp_host_violation(f->driver, 100, sentence, sizeof sentence));
  char small[8];
  VEXPECT_TRUE(vmp_host_violation(f->driver, 99, small, sizeof small));
  VEXPECT_STR_EQ(small, "rule 25");
}

VTEST(HostViolations, AbortByOption) {
  pid_t child = fork();
  VASSERT_TRUE(child >= 0);
  if (child == 0) {
    vmp_host_options options = VMP_HOST_OPTIONS_INIT;
    options.abort_on_violation = 1;
    vmp_driver *driver = NULL;
    if (vmp_host_open(&driver, &options) == VMP_OK && vmp_drv_init(driver, 0) == 0) {
      (void)vmp_drv_mem_release(driver, 0);
    }
    _exit(0);
  }
  int status = 0;
  VASSERT_TRUE(waitpid(child, &status, 0) == child);
  VEXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
}

// ---- fork (rule 1) ----

static int child_exit(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) != child) {
    if (errno != EINTR) return -1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : -2;
}

VTEST_F(HostRule, 01_AForkedChildGetsNotInitialized, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  pid_t child = fork();
  VASSERT_TRUE(child >= 0);
  if (child == 0) {
    int count = 0;
    bool good = vmp_drv_device_get_count(f->driver, &count) == VMP_CU_NOT_INITIALIZED &&
                vmp_drv_init(f->driver, 0) == VMP_CU_NOT_INITIALIZED &&
                vmp_drv_mem_address_free(f->driver, ptr, G) == VMP_CU_NOT_INITIALIZED &&
                vmp_drv_ctx_synchronize(f->driver) == VMP_CU_NOT_INITIALIZED &&
                vmp_drv_stream_query(f->driver, NULL) == VMP_CU_NOT_INITIALIZED && vmp_driver_is_forked(f->driver);
    const char *name = NULL;
    good = good && vmp_drv_get_error_name(f->driver, 3, &name) == 0 && strcmp(name, "CUDA_ERROR_NOT_INITIALIZED") == 0;
    vmp_driver_close(f->driver);  // harmless
    _exit(good ? 0 : 1);
  }
  VEXPECT_INT_EQ(child_exit(child), 0);
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, G));
}

VTEST(HostFork, BeforeInitIsFine) {
  vmp_driver *driver = NULL;
  VASSERT_OK(vmp_host_open(&driver, NULL));
  pid_t child = fork();
  VASSERT_TRUE(child >= 0);
  if (child == 0) {
    int count = 0;
    bool good = vmp_drv_init(driver, 0) == 0 && vmp_drv_device_get_count(driver, &count) == 0 && count == 1;
    vmp_driver_close(driver);
    _exit(good ? 0 : 1);
  }
  VEXPECT_INT_EQ(child_exit(child), 0);
  VEXPECT_CUDA(vmp_drv_init(driver, 0));
  vmp_driver_close(driver);
}
