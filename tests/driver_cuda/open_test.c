// open_test.c: each way in which the CUDA driver opens or fails to, each failure with its own status and sentence.
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver_cuda/fake_open.h"
#include "vmm/driver.h"
#include "vmm/error.h"
#include "vmm/memory.h"
#include "vmpool_cuda_stub.h"

typedef struct rig {
  fake_cuda fake;
  vmp_driver *driver;
} rig;

static void rig_setup(rig *f) {
  fake_cuda_load(&f->fake, FAKE_CUDA);
  vmp_clear_error();
}
static void rig_teardown(rig *f) { vmp_driver_close(f->driver); }

// expect_refused opens `path`, which must fail with `status`, leave the out-parameter alone and say both parts.
static void expect_refused(const char *path, vmp_status status, const char *part, const char *other_part) {
  vmp_driver untouched;
  vmp_driver *driver = &untouched;
  vmp_clear_error();
  VEXPECT_STATUS(vmp_driver_cuda_open(&driver, path), status);
  VEXPECT_PTR_EQ(driver, &untouched);
  VEXPECT_INT_EQ(vmp_last_error()->status, status);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, part);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, other_part);
}

VTEST_F(CudaOpen, OpensAndInitialises, rig) {
  VASSERT_OK(vmp_driver_cuda_open(&f->driver, FAKE_CUDA));
  VEXPECT_STR_EQ(f->driver->kind, "cuda");
  VEXPECT_INT_EQ(f->driver->owner_process, getpid());
  VEXPECT_UINT_EQ(f->fake.control->calls, 1);  // cuInit(0), nothing else
  VEXPECT_INT_EQ(f->fake.last_call()->call, VMP_CALL_init);
  VEXPECT_UINT_EQ(f->fake.last_call()->args[0], 0);
  VEXPECT_UINT_EQ(f->fake.control->questions, VMP_CALL_COUNT);  // every call of the list was asked for, once,
  VEXPECT_UINT_EQ(f->fake.control->flags_asked, 1);             // with the legacy default stream
  int version = 0;
  VEXPECT_INT_EQ(vmp_drv_driver_get_version(f->driver, &version), 0);
  VEXPECT_INT_EQ(version, 12040);
}

VTEST(CudaOpen, OpensThroughTheFormOf11_3) {
  fake_cuda fake = {0};
  fake_cuda_load(&fake, FAKE_CUDA_11);
  VASSERT_NO_FAILURE();
  fake.control->version = 11030;
  vmp_driver *driver = NULL;
  VASSERT_OK(vmp_driver_cuda_open(&driver, FAKE_CUDA_11));
  // cuStreamGetId is of 12.0: too new for an 11.3 driver, and OPTIONAL. cuMemCreate is there.
  unsigned long long id = 7;
  VEXPECT_INT_EQ(vmp_drv_stream_get_id(driver, NULL, &id), VMP_CU_NOT_SUPPORTED);
  VEXPECT_UINT_EQ(id, 7);
  VEXPECT_INT_EQ(vmp_drv_mem_release(driver, 5), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(fake.last_call()->call, VMP_CALL_mem_release);
  vmp_driver_close(driver);
}

VTEST_F(CudaOpen, DriverWithoutAnOptionalCallGives801, rig) {
  f->fake.control->missing = "cuThreadExchangeStreamCaptureMode";
  VASSERT_OK(vmp_driver_cuda_open(&f->driver, FAKE_CUDA));
  uint64_t calls = f->fake.control->calls;
  int mode = VMP_CU_CAPTURE_RELAXED;
  VEXPECT_INT_EQ(vmp_drv_thread_exchange_capture_mode(f->driver, &mode), VMP_CU_NOT_SUPPORTED);
  VEXPECT_INT_EQ(mode, VMP_CU_CAPTURE_RELAXED);
  VEXPECT_UINT_EQ(f->fake.control->calls, calls);
}

// Two drivers in one process share nothing but libcuda itself.
VTEST_F(CudaOpen, TwoDriversAreIndependent, rig) {
  vmp_driver *other = NULL;
  VASSERT_OK(vmp_driver_cuda_open(&f->driver, FAKE_CUDA));
  VASSERT_OK(vmp_driver_cuda_open(&other, FAKE_CUDA));
  VEXPECT_INT_EQ(vmp_drv_mem_release(other, 1), 0);
  VEXPECT_UINT_EQ(f->driver->calls[VMP_CALL_mem_release], 0);
  VEXPECT_UINT_EQ(other->calls[VMP_CALL_mem_release], 1);
  vmp_driver_close(other);
  VEXPECT_INT_EQ(vmp_drv_mem_release(f->driver, 1), 0);  // closing one leaves the other alive
}

// ---- no driver ----

VTEST(CudaOpen, MissingLibrary) {
  expect_refused("./no/such/libcuda.so.1", VMP_ERROR_NO_DRIVER, "./no/such/libcuda.so.1", "install the NVIDIA driver");
}

VTEST(CudaOpen, FileThatIsNoLibrary) {
  char path[512];
  (void)snprintf(path, sizeof path, "%s/not_a_library_%d.so", vtest_temp_dir(), (int)getpid());
  FILE *file = fopen(path, "w");
  VASSERT_NOT_NULL(file);
  (void)fputs("this is text\n", file);
  (void)fclose(file);
  expect_refused(path, VMP_ERROR_NO_DRIVER, "not_a_library", "install the NVIDIA driver");
  (void)remove(path);
}

VTEST(CudaOpen, LibraryThatIsNoCudaDriver) {
  expect_refused(FAKE_CUDA_NONE, VMP_ERROR_NO_DRIVER, FAKE_CUDA_NONE " is no CUDA driver", "libcuda.so.1 is needed");
}

// NULL means libcuda.so.1 and nothing else: where the machine has none, that is said, and no other driver is taken.
VTEST(CudaOpen, DefaultLibraryIsLibcudaSo1) {
  void *real = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (real == NULL) {
    expect_refused(NULL, VMP_ERROR_NO_DRIVER, "libcuda.so.1", "host driver");
    return;
  }
  vmp_driver *driver = NULL;
  vmp_status status = vmp_driver_cuda_open(&driver, NULL);
  VEXPECT_INT_NE(status, VMP_ERROR_NO_DRIVER);
  if (status == VMP_OK) VEXPECT_STR_EQ(driver->kind, "cuda");
  vmp_driver_close(driver);
  (void)dlclose(real);
}

// ---- stub ----

VTEST_F(CudaOpen, StubThatRefusesToFindCalls, rig) {
  f->fake.control->proc_address_code = VMP_CU_STUB_LIBRARY;
  expect_refused(FAKE_CUDA, VMP_ERROR_STUB_DRIVER, "stub library", "cuGetProcAddress");
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, 34);
  VEXPECT_UINT_EQ(f->fake.control->calls, 0);
}

VTEST_F(CudaOpen, StubThatRefusesToInitialise, rig) {
  f->fake.control->codes[VMP_CALL_init] = VMP_CU_STUB_LIBRARY;
  expect_refused(FAKE_CUDA, VMP_ERROR_STUB_DRIVER, "stub library", "CUDA_ERROR_STUB_LIBRARY (34)");
  VEXPECT_STR_EQ(vmp_last_error()->driver_call, "cuInit");
}

// The toolkit's own stub, where the build found one.
VTEST(CudaOpen, StubOfTheToolkit) {
  const char *path = VMPOOL_CUDA_STUB;
  if (access(path, R_OK) != 0) VSKIP("no CUDA toolkit with a stub libcuda.so: the real stub was NOT tested");
  expect_refused(path, VMP_ERROR_STUB_DRIVER, path, "stub library");
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, 34);
  // It carries the name libcuda.so.1: left loaded, it would be found instead of the real driver later.
  void *left = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  VEXPECT_NULL(left);
  if (left != NULL) (void)dlclose(left);
}

// ---- too old ----

VTEST(CudaOpen, DriverWithoutGetProcAddressIsTooOld) {
  fake_cuda fake = {0};
  fake_cuda_load(&fake, FAKE_CUDA_OLD);
  VASSERT_NO_FAILURE();
  fake.control->version = 11020;
  expect_refused(FAKE_CUDA_OLD, VMP_ERROR_DRIVER_TOO_OLD,
                 "the CUDA driver 11.2 (" FAKE_CUDA_OLD ") has no cuGetProcAddress", "CUDA 11.3 or newer");
  fake.control->codes[VMP_CALL_driver_get_version] = 999;  // a driver that can't even tell its version
  expect_refused(FAKE_CUDA_OLD, VMP_ERROR_DRIVER_TOO_OLD, "of unknown version", "cuGetProcAddress");
}

VTEST_F(CudaOpen, MissingRequiredCallIsNamed, rig) {
  f->fake.control->missing = "cuMemMap";
  expect_refused(FAKE_CUDA, VMP_ERROR_DRIVER_TOO_OLD, "the CUDA driver 12.4 ", "no cuMemMap of CUDA 10.2");
  VEXPECT_UINT_EQ(f->fake.control->calls, 0);  // not initialised
}

// Some drivers and layers in front of them deliver a pointer all the same: the status counts.
VTEST_F(CudaOpen, PointerWithABadStatusIsNotTaken, rig) {
  f->fake.control->missing = "cuMemMap";
  f->fake.control->missing_fn = f;  // following it would crash
  expect_refused(FAKE_CUDA, VMP_ERROR_DRIVER_TOO_OLD, "the CUDA driver 12.4 ", "no cuMemMap of CUDA 10.2");
}

// The 11.3 form has no status: it gives NOT_FOUND.
VTEST(CudaOpen, MissingCallInTheFormOf11_3) {
  fake_cuda fake = {0};
  fake_cuda_load(&fake, FAKE_CUDA_11);
  VASSERT_NO_FAILURE();
  fake.control->missing = "cuMemMap";
  expect_refused(FAKE_CUDA_11, VMP_ERROR_DRIVER_TOO_OLD, "the CUDA driver 12.4 ", "no cuMemMap of CUDA 10.2");
  fake.control->missing = "cuLaunchHostFunc";  // OPTIONAL
  vmp_driver *driver = NULL;
  VASSERT_OK(vmp_driver_cuda_open(&driver, FAKE_CUDA_11));
  VEXPECT_INT_EQ(vmp_drv_launch_host_func(driver, NULL, NULL, NULL), VMP_CU_NOT_SUPPORTED);
  vmp_driver_close(driver);
}

static const char *both_forms[] = {FAKE_CUDA, FAKE_CUDA_11};
static const char *form_name(const char *const *p) { return *p == both_forms[0] ? "12_0" : "11_3"; }

// A driver of 10.2 answers with INVALID_VALUE to whatever is newer; the first such call that is REQUIRED is
// cuDevicePrimaryCtxRelease in its form of 11.0.
VTEST_P(CudaOpen, OldDriverNamesWhatItLacks, char *const, both_forms, form_name) {
  fake_cuda fake = {0};
  fake_cuda_load(&fake, *p);
  VASSERT_NO_FAILURE();
  fake.control->version = 10020;
  expect_refused(*p, VMP_ERROR_DRIVER_TOO_OLD, "the CUDA driver 10.2 ", "cuDevicePrimaryCtxRelease of CUDA 11.0");
}

// A driver whose cuGetProcAddress itself fails.
VTEST_F(CudaOpen, GetProcAddressThatFails, rig) {
  f->fake.control->proc_address_code = VMP_CU_UNKNOWN;
  expect_refused(FAKE_CUDA, VMP_ERROR_DRIVER, "CUDA_ERROR_UNKNOWN (999)", "cuInit");
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, 999);
  VEXPECT_STR_EQ(vmp_last_error()->driver_call, "cuGetProcAddress");
}

// ---- cuInit ----

typedef struct init_case {
  int code;
  vmp_status status;
  const char *name;    // of the code
  const char *advice;  // some words of it
} init_case;

static const init_case init_cases[] = {
    {100, VMP_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE (100)", "CUDA_VISIBLE_DEVICES"},
    {803, VMP_ERROR_DRIVER, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH (803): system has unsupported display driver", "reboot"},
    {802, VMP_ERROR_DRIVER, "CUDA_ERROR_SYSTEM_NOT_READY (802)", "fabric manager"},
    {804, VMP_ERROR_DRIVER, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE (804)", "cuda-compat"},
    {999, VMP_ERROR_DRIVER, "CUDA_ERROR_UNKNOWN (999)", "nvidia-smi"},
    {2, VMP_ERROR_DRIVER, "CUDA_ERROR_OUT_OF_MEMORY (2)", "nvidia-smi"},
    {31337, VMP_ERROR_DRIVER, "unknown error (31337)", "nvidia-smi"},
    {3, VMP_ERROR_FORKED, "CUDA_ERROR_NOT_INITIALIZED (3)", "forked"},
};
static const char *init_case_name(const init_case *p) {
  static char name[16];
  (void)snprintf(name, sizeof name, "%d", p->code);
  return name;
}

VTEST_P(CudaOpen, InitFailure, init_case, init_cases, init_case_name) {
  fake_cuda fake = {0};
  fake_cuda_load(&fake, FAKE_CUDA);
  VASSERT_NO_FAILURE();
  fake.control->codes[VMP_CALL_init] = p->code;
  expect_refused(FAKE_CUDA, p->status, p->name, p->advice);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "the CUDA driver 12.4 (" FAKE_CUDA ")");
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, p->code);
  VEXPECT_STR_EQ(vmp_last_error()->driver_call, "cuInit");
}

VTEST_F(CudaOpen, NoHostMemory, rig) {
  vmp_mem_fail_after(0, 1);
  expect_refused(FAKE_CUDA, VMP_ERROR_HOST_OUT_OF_MEMORY, "host memory", "bytes");
  VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(f->fake.control->calls, 0);
  VASSERT_OK(vmp_driver_cuda_open(&f->driver, FAKE_CUDA));  // and works once there is some
}
