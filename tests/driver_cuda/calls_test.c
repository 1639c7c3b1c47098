// calls_test.c: an open CUDA driver passes each call to its own entry point with its arguments in order and its code
// unchanged; from a fork it passes nothing.
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/driver_cuda/fake_open.h"
#include "vmm/context.h"
#include "vmm/device.h"
#include "vmm/driver.h"
#include "vmm/driver_error.h"

typedef struct rig {
  fake_cuda fake;
  vmp_driver *driver;
} rig;

static void rig_setup(rig *f) {
  fake_cuda_load(&f->fake, FAKE_CUDA);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_driver_cuda_open(&f->driver, FAKE_CUDA));
}
static void rig_teardown(rig *f) { vmp_driver_close(f->driver); }

// 0 is a valid argument of every parameter type, so that calls can be made from the list alone.
#define COUNT(...) COUNT_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_(a, b, c, d, e, f, n, ...) n
#define CAT(a, b) CAT_(a, b)
#define CAT_(a, b) a##b
#define ZEROS(...) CAT(ZEROS_, COUNT(__VA_ARGS__))
#define ZEROS_1 0
#define ZEROS_2 0, 0
#define ZEROS_3 0, 0, 0
#define ZEROS_4 0, 0, 0, 0
#define ZEROS_5 0, 0, 0, 0, 0

VTEST_F(CudaCalls, EachReachesItsOwnEntryPoint, rig) {
  for (int i = 0; i < VMP_CALL_COUNT; i++) f->fake.control->codes[i] = 1000 + i;
#define CHECK(name, symbol, num, ...)                                       \
  VEXPECT_INT_EQ(vmp_drv_##name(__VA_ARGS__), 1000 + (int)VMP_CALL_##name); \
  VEXPECT_INT_EQ(f->fake.last_call()->call, VMP_CALL_##name);               \
  VEXPECT_UINT_EQ(f->fake.last_call()->num_args, num);                      \
  VEXPECT_UINT_EQ(f->driver->calls[VMP_CALL_##name], 1);                    \
  VEXPECT_STR_EQ(vmp_call_symbol(VMP_CALL_##name), symbol);
#define X(name, symbol, version, need, args, ...) CHECK(name, symbol, COUNT args, f->driver, ZEROS args)
  VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) CHECK(name, symbol, 0, f->driver)
  VMP_DRIVER_CALLS_0(X)
#undef X
}

// expect_last compares the last call's arguments with a list that ends with UINT64_MAX.
static void expect_last(rig *f, vmp_call call, const uint64_t *expected) {
  VTRACE("%s", vmp_call_symbol(call));
  const fake_cuda_call *last = f->fake.last_call();
  VASSERT_INT_EQ(last->call, call);
  size_t n = 0;
  for (; expected[n] != UINT64_MAX; n++) VEXPECT_UINT_EQ(last->args[n], expected[n]);
  VEXPECT_UINT_EQ(last->num_args, n);
}
#define EXPECT_LAST(call, ...) expect_last(f, VMP_CALL_##call, (const uint64_t[]){__VA_ARGS__, UINT64_MAX})
#define ADDRESS(pointer) ((uint64_t)(uintptr_t)(pointer))

// One call of each shape: all widths, pointers among numbers, five arguments.
VTEST_F(CudaCalls, ArgumentsArriveInOrder, rig) {
  vmp_driver *d = f->driver;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(3, VMP_CU_HANDLE_POSIX_FD);
  vmp_cu_access_desc desc = {{VMP_CU_LOCATION_DEVICE, 1}, VMP_CU_ACCESS_READWRITE};
  vmp_cu_stream stream = (vmp_cu_stream)(uintptr_t)0x51;
  vmp_cu_event event = (vmp_cu_event)(uintptr_t)0xe1;
  size_t bytes = 0;
  int value = 0, mode = 2;
  float ms = 0;
  char buffer[4] = "";
  const uint64_t high = UINT64_C(0x7f1234567000);

  VEXPECT_INT_EQ(vmp_drv_mem_address_reserve(d, &ptr, 0x10000000000, 0x200000, high, 0), 0);
  EXPECT_LAST(mem_address_reserve, ADDRESS(&ptr), 0x10000000000, 0x200000, high, 0);
  VEXPECT_INT_EQ(vmp_drv_mem_create(d, &handle, 0x400000, &prop, 9), 0);
  EXPECT_LAST(mem_create, ADDRESS(&handle), 0x400000, ADDRESS(&prop), 9);
  VEXPECT_INT_EQ(vmp_drv_mem_map(d, high, 0x400000, 0x20, 0xabcdef0123456789, 7), 0);
  EXPECT_LAST(mem_map, high, 0x400000, 0x20, 0xabcdef0123456789, 7);
  VEXPECT_INT_EQ(vmp_drv_mem_set_access(d, high, 0x400000, &desc, 1), 0);
  EXPECT_LAST(mem_set_access, high, 0x400000, ADDRESS(&desc), 1);
  VEXPECT_INT_EQ(vmp_drv_mem_unmap(d, high, 0x400000), 0);
  EXPECT_LAST(mem_unmap, high, 0x400000);
  VEXPECT_INT_EQ(vmp_drv_mem_get_allocation_granularity(d, &bytes, &prop, 1), 0);
  EXPECT_LAST(mem_get_allocation_granularity, ADDRESS(&bytes), ADDRESS(&prop), 1);
  VEXPECT_INT_EQ(vmp_drv_device_get_attribute(d, &value, 102, 5), 0);
  EXPECT_LAST(device_get_attribute, ADDRESS(&value), 102, 5);
  VEXPECT_INT_EQ(vmp_drv_mem_export(d, &value, 0x77, 1, 0), 0);
  EXPECT_LAST(mem_export, ADDRESS(&value), 0x77, 1, 0);
  VEXPECT_INT_EQ(vmp_drv_stream_wait_event(d, stream, event, 0), 0);
  EXPECT_LAST(stream_wait_event, 0x51, 0xe1, 0);
  VEXPECT_INT_EQ(vmp_drv_event_record(d, event, stream), 0);
  EXPECT_LAST(event_record, 0xe1, 0x51);
  VEXPECT_INT_EQ(vmp_drv_event_elapsed_time(d, &ms, event, NULL), 0);
  EXPECT_LAST(event_elapsed_time, ADDRESS(&ms), 0xe1, 0);
  VEXPECT_INT_EQ(vmp_drv_memcpy_htod_async(d, high, buffer, 4, stream), 0);
  EXPECT_LAST(memcpy_htod_async, high, ADDRESS(buffer), 4, 0x51);
  VEXPECT_INT_EQ(vmp_drv_memcpy_dtoh(d, buffer, high, 4), 0);
  EXPECT_LAST(memcpy_dtoh, ADDRESS(buffer), high, 4);
  VEXPECT_INT_EQ(vmp_drv_memset_d8_async(d, high, 0xa5, 4, stream), 0);
  EXPECT_LAST(memset_d8_async, high, 0xa5, 4, 0x51);
  VEXPECT_INT_EQ(vmp_drv_thread_exchange_capture_mode(d, &mode), 0);
  EXPECT_LAST(thread_exchange_capture_mode, ADDRESS(&mode));
}

VTEST_F(CudaCalls, DeviceOfADriverWithVmm, rig) {
  vmp_device device;
  VASSERT_OK(vmp_device_require_vmm(f->driver, 0, &device));
  VEXPECT_UINT_EQ(device.granule_bytes, 2u << 20);
  VEXPECT_UINT_EQ(device.total_bytes, 1u << 30);
  VEXPECT_STR_EQ(device.name, "Fake GPU");
}

VTEST_F(CudaCalls, DeviceWithoutVmmIsRefused, rig) {
  f->fake.control->vmm_supported = 0;
  vmp_device device;
  VEXPECT_STATUS(vmp_device_require_vmm(f->driver, 0, &device), VMP_ERROR_NO_VMM);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "device 0 (Fake GPU) has no virtual memory management");
}

// A driver that is shutting down: teardown goes on and is no failure.
VTEST_F(CudaCalls, TeardownToleratesDeinitialized, rig) {
  vmp_cu_context context = NULL;
  VASSERT_OK(vmp_context_retain(f->driver, 0, &context));
  for (int i = 0; i < VMP_CALL_COUNT; i++) f->fake.control->codes[i] = VMP_CU_DEINITIALIZED;
  VEXPECT_OK(vmp_context_release(f->driver, 0));
  VEXPECT_INT_EQ(vmp_drv_mem_release(f->driver, 1), VMP_CU_DEINITIALIZED);
  VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_release, 4, "a chunk was to be released"),
                 VMP_ERROR_DEINITIALIZED);
  VEXPECT_STR_EQ(vmp_last_error()->message,
                 "cuMemRelease failed: CUDA_ERROR_DEINITIALIZED (4); a chunk was to be released");
  vmp_driver_close(f->driver);
  f->driver = NULL;
}

// ---- fork ----

// in_child runs in the fork and returns the number of the first thing that is wrong, or 0.
static int in_child(rig *f) {
  const uint64_t calls = f->fake.control->calls;
  int version = 0;
  vmp_cu_context context = NULL;
  vmp_context_saved saved;
  char text[VMP_CODE_TEXT_BYTES];
  if (!vmp_driver_is_forked(f->driver)) return 1;
#define X(name, symbol, version, need, args, ...) \
  if (vmp_drv_##name(f->driver, ZEROS args) != VMP_CU_NOT_INITIALIZED) return 2;
  VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) \
  if (vmp_drv_##name(f->driver) != VMP_CU_NOT_INITIALIZED) return 3;
  VMP_DRIVER_CALLS_0(X)
#undef X
  if (vmp_drv_driver_get_version(f->driver, &version) != 3 || version != 0) return 4;
  // The code still has a name, and the status says what happened.
  if (strcmp(vmp_driver_code_text(f->driver, 3, text, sizeof text), "CUDA_ERROR_NOT_INITIALIZED (3)") != 0) return 5;
  if (vmp_context_retain(f->driver, 0, &context) != VMP_ERROR_FORKED || context != NULL) return 6;
  if (strstr(vmp_last_error()->message, "a fork of process") == NULL) return 7;
  if (vmp_last_error()->driver_code != 3) return 8;
  if (vmp_context_enter(f->driver, (vmp_cu_context)(uintptr_t)8, &saved) != VMP_ERROR_FORKED) return 9;
  if (vmp_context_release(f->driver, 0) != VMP_OK) return 10;
  vmp_driver_close(f->driver);
  return f->fake.control->calls == calls ? 0 : 11;  // nothing reached libcuda
}

VTEST_F(CudaCalls, ForkedChildTouchesNothing, rig) {
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) _exit(in_child(f));
  int status = 0;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VASSERT_TRUE(WIFEXITED(status));
  VEXPECT_INT_EQ(WEXITSTATUS(status), 0);
  VEXPECT_FALSE(vmp_driver_is_forked(f->driver));  // the parent goes on
  VEXPECT_INT_EQ(vmp_drv_mem_release(f->driver, 1), 0);
}

// ---- threads ----

enum { NUM_THREADS = 4, CALLS_PER_THREAD = 5000 };

typedef struct worker {
  rig *rig;
  uint64_t number;
  uint64_t wrong;
} worker;

static void *work(void *context) {
  worker *w = context;
  for (uint64_t i = 0; i < CALLS_PER_THREAD; i++) {
    int code = vmp_drv_mem_map(w->rig->driver, w->number, i, 0, w->number ^ i, 0);
    const fake_cuda_call *last = w->rig->fake.last_call();  // of this thread
    if (code != 0 || last->args[0] != w->number || last->args[1] != i || last->args[3] != (w->number ^ i)) w->wrong++;
    (void)vmp_driver_fail(w->rig->driver, VMP_CALL_mem_map, 2, "thread %d", (int)w->number);
    char expected[16];
    (void)snprintf(expected, sizeof expected, "thread %d", (int)w->number);
    if (strstr(vmp_last_error()->message, expected) == NULL) w->wrong++;
  }
  return NULL;
}

VTEST_F(CudaCalls, ThreadsShareADriver, rig) {
  pthread_t threads[NUM_THREADS];
  worker workers[NUM_THREADS];
  for (uint64_t t = 0; t < NUM_THREADS; t++) {
    workers[t] = (worker){f, t + 1, 0};
    VASSERT_INT_EQ(pthread_create(&threads[t], NULL, work, &workers[t]), 0);
  }
  for (int t = 0; t < NUM_THREADS; t++) {
    VASSERT_INT_EQ(pthread_join(threads[t], NULL), 0);
    VEXPECT_UINT_EQ(workers[t].wrong, 0);
  }
  VEXPECT_UINT_EQ(f->driver->calls[VMP_CALL_mem_map], NUM_THREADS * CALLS_PER_THREAD);
}
