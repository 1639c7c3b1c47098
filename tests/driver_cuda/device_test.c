// device_test.c: what is asked of a device before a pool is made on it, on a driver with devices of the test's making.
#include "vmm/device.h"

#include <stdio.h>
#include <string.h>

#include "tests/driver_cuda/bare_driver.h"
#include "tests/support/vtest.h"

// rig: two devices; the driver numbers them 10 and 11, since a device need not equal its ordinal.
typedef struct rig {
  bare_driver bare;  // first
  vmp_driver *driver;
  int count;
  int vmm;
  size_t minimum, recommended;
  int count_code, get_code, name_code, attribute_code, granularity_code, total_code;
  vmp_cu_mem_prop prop;  // of the last granularity question
} rig;

static rig *of(vmp_driver *driver) { return (rig *)(void *)driver; }

static int get_count(vmp_driver *driver, int *out_count) {
  if (of(driver)->count_code != 0) return of(driver)->count_code;
  *out_count = of(driver)->count;
  return 0;
}
static int get(vmp_driver *driver, vmp_cu_device *out_device, int ordinal) {
  if (of(driver)->get_code != 0) return of(driver)->get_code;
  *out_device = 10 + ordinal;
  return 0;
}
static int get_name(vmp_driver *driver, char *out_name, int size, vmp_cu_device device) {
  if (of(driver)->name_code != 0) return of(driver)->name_code;
  (void)snprintf(out_name, (size_t)size, "Device %d", (int)device);
  return 0;
}
static int get_attribute(vmp_driver *driver, int *out_value, int attribute, vmp_cu_device device) {
  if (of(driver)->attribute_code != 0) return of(driver)->attribute_code;
  *out_value = attribute == 102 && device >= 10 ? of(driver)->vmm : -1;
  return 0;
}
static int get_granularity(vmp_driver *driver, size_t *out_bytes, const vmp_cu_mem_prop *prop, int option) {
  if (of(driver)->granularity_code != 0) return of(driver)->granularity_code;
  of(driver)->prop = *prop;
  *out_bytes = option == 0 ? of(driver)->minimum : of(driver)->recommended;
  return 0;
}
static int total_mem(vmp_driver *driver, size_t *out_bytes, vmp_cu_device device) {
  if (of(driver)->total_code != 0) return of(driver)->total_code;
  *out_bytes = (size_t)device << 30;
  return 0;
}

static void rig_setup(rig *f) {
  bare_driver_init(&f->bare);
  f->bare.ops.device_get_count = get_count;
  f->bare.ops.device_get = get;
  f->bare.ops.device_get_name = get_name;
  f->bare.ops.device_get_attribute = get_attribute;
  f->bare.ops.mem_get_allocation_granularity = get_granularity;
  f->bare.ops.device_total_mem = total_mem;
  f->driver = &f->bare.base;
  f->count = 2;
  f->vmm = 1;
  f->minimum = f->recommended = (size_t)2 << 20;
}
static void rig_teardown(rig *f) { (void)f; }

// expect_refused: the status, words of the sentence, and an untouched out-parameter.
static void expect_refused(rig *f, int ordinal, vmp_status status, const char *part) {
  vmp_device device;
  memset(&device, 0x5a, sizeof device);
  VEXPECT_STATUS(vmp_device_require_vmm(f->driver, ordinal, &device), status);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, part);
  VEXPECT_BYTES_FILLED(&device, 0x5a, sizeof device);
}

VTEST_F(Device, TellsWhatAPoolNeeds, rig) {
  vmp_device device;
  VASSERT_OK(vmp_device_require_vmm(f->driver, 1, &device));
  VEXPECT_INT_EQ(device.ordinal, 1);
  VEXPECT_INT_EQ(device.device, 11);
  VEXPECT_UINT_EQ(device.granule_bytes, 2097152);
  VEXPECT_UINT_EQ(device.total_bytes, UINT64_C(11) << 30);
  VEXPECT_STR_EQ(device.name, "Device 11");
  // The granularity was asked for plain pinned memory on that ordinal.
  VEXPECT_INT_EQ(f->prop.type, 1);
  VEXPECT_INT_EQ(f->prop.location.type, 1);
  VEXPECT_INT_EQ(f->prop.location.id, 1);
  VEXPECT_INT_EQ(f->prop.requested_handle_types, 0);
}

// The granule fits both: 4 KiB minimum and 2 MiB recommended have been seen, and neither is the larger by right.
VTEST_F(Device, GranuleIsTheLargerGranularity, rig) {
  vmp_device device;
  f->minimum = 4096;
  VASSERT_OK(vmp_device_require_vmm(f->driver, 0, &device));
  VEXPECT_UINT_EQ(device.granule_bytes, 2097152);
  f->minimum = (size_t)512 << 20;
  VASSERT_OK(vmp_device_require_vmm(f->driver, 0, &device));
  VEXPECT_UINT_EQ(device.granule_bytes, UINT64_C(512) << 20);
}

VTEST_F(Device, MemPropIsZeroBesidesWhatIsAsked, rig) {
  vmp_cu_mem_prop prop = vmp_device_mem_prop(3, VMP_CU_HANDLE_POSIX_FD);
  unsigned char expected[sizeof prop] = {0};
  memcpy(expected, &(int32_t){1}, 4);       // type: pinned
  memcpy(expected + 4, &(int32_t){1}, 4);   // POSIX file descriptor
  memcpy(expected + 8, &(int32_t){1}, 4);   // location: device
  memcpy(expected + 12, &(int32_t){3}, 4);  // its ordinal
  VEXPECT_BYTES_EQ(&prop, expected, sizeof prop);
}

VTEST_F(Device, OrdinalsThatDontExist, rig) {
  expect_refused(f, 2, VMP_ERROR_NO_DEVICE, "there is no device 2: the bare driver sees 2, numbered 0 to 1");
  expect_refused(f, -1, VMP_ERROR_NO_DEVICE, "there is no device -1");
  f->count = 0;
  expect_refused(f, 0, VMP_ERROR_NO_DEVICE, "no device at all");
}

VTEST_F(Device, WithoutVmm, rig) {
  f->vmm = 0;
  expect_refused(f, 1, VMP_ERROR_NO_VMM, "device 1 (Device 11) has no virtual memory management (attribute 102 is 0)");
}

VTEST_F(Device, GranularityThatIsNoPowerOfTwo, rig) {
  f->recommended = 3000000;
  expect_refused(f, 0, VMP_ERROR_NOT_SUPPORTED, "3000000 bytes");
  f->recommended = 0;
  expect_refused(f, 0, VMP_ERROR_NOT_SUPPORTED, "0 bytes");
}

VTEST_F(Device, NamelessDeviceIsFine, rig) {
  vmp_device device;
  f->name_code = VMP_CU_UNKNOWN;
  VASSERT_OK(vmp_device_require_vmm(f->driver, 0, &device));
  VEXPECT_STR_EQ(device.name, "?");
}

VTEST_F(Device, EveryFailedCallIsNamed, rig) {
  struct {
    int *code;
    const char *sentence;
  } calls[] = {
      {&f->count_code, "cuDeviceGetCount failed: CUDA_ERROR_UNKNOWN (999)"},
      {&f->get_code, "cuDeviceGet failed: CUDA_ERROR_UNKNOWN (999)"},
      {&f->attribute_code, "cuDeviceGetAttribute failed: CUDA_ERROR_UNKNOWN (999)"},
      {&f->granularity_code, "cuMemGetAllocationGranularity failed: CUDA_ERROR_UNKNOWN (999)"},
      {&f->total_code, "cuDeviceTotalMem failed: CUDA_ERROR_UNKNOWN (999)"},
  };
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    *calls[i].code = VMP_CU_UNKNOWN;
    expect_refused(f, 0, VMP_ERROR_DRIVER, calls[i].sentence);
    VEXPECT_INT_EQ(vmp_last_error()->driver_code, 999);
    *calls[i].code = 0;
  }
}
