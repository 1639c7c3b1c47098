// gpu_rig.c: see gpu_rig.h.
#include "tests/gpu/gpu_rig.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/driver_host.h"

bool gpu_rig_is_host(void) {
  const char *name = vtest_option("driver");
  return name != NULL && strcmp(name, "host") == 0;
}

static int option_number(const char *name) {
  const char *text = vtest_option(name);
  return text != NULL ? atoi(text) : 0;
}

static void open_host(gpu_rig *f, const vmp_host_options *options) {
  VASSERT_OK(vmp_host_open(&f->driver, options));
  VASSERT_INT_EQ(vmp_drv_init(f->driver, 0), VMP_CU_SUCCESS);
}

static void open_cuda(gpu_rig *f) {
  vmp_status status = vmp_driver_cuda_open(&f->driver, vtest_option("library"));
  if (status == VMP_ERROR_NO_DRIVER || status == VMP_ERROR_STUB_DRIVER || status == VMP_ERROR_NO_DEVICE) {
    VSKIP("no GPU: NOTHING was tested (%s)", vmp_last_error()->message);
  }
  VASSERT_OK(status);
}

void gpu_rig_setup(gpu_rig *f) { gpu_rig_setup_with(f, NULL); }

void gpu_rig_setup_with(gpu_rig *f, const struct vmp_host_options *host_options) {
  const char *name = vtest_option("driver");
  if (name != NULL && strcmp(name, "host") != 0 && strcmp(name, "cuda") != 0) {
    VFAIL("--driver=%s: it must be cuda or host", name);
  }
  if (gpu_rig_is_host()) {
    open_host(f, host_options);
  } else {
    open_cuda(f);
  }
  if (f->driver == NULL) return;

  vmp_status status = vmp_device_require_vmm(f->driver, option_number("device"), &f->device);
  if (status == VMP_ERROR_NO_VMM) VSKIP("the device can't do it: NOTHING was tested (%s)", vmp_last_error()->message);
  VASSERT_OK(status);
  f->granule = f->device.granule_bytes;
  VASSERT_OK(vmp_context_retain(f->driver, f->device.device, &f->context));
  VASSERT_OK(vmp_context_enter(f->driver, f->context, &f->saved));
  f->entered = true;
}

void gpu_rig_teardown(gpu_rig *f) {
  if (f->driver == NULL) return;
  if (f->entered) VEXPECT_OK(vmp_context_leave(f->driver, &f->saved));
  if (f->context != NULL) VEXPECT_OK(vmp_context_release(f->driver, f->device.device));
  if (vmp_driver_is_host(f->driver)) VEXPECT_UINT_EQ(vmp_host_leaks(f->driver, &(vmp_report){0}), 0);
  vmp_driver_close(f->driver);
}

// ---- steps ----

vmp_cu_ptr gpu_reserve(gpu_rig *f, uint64_t granules) {
  vmp_cu_ptr ptr = 0;
  VEXPECT_INT_EQ(vmp_drv_mem_address_reserve(f->driver, &ptr, granules * f->granule, 0, 0, 0), VMP_CU_SUCCESS);
  VEXPECT_UINT_EQ(ptr % f->granule, 0);
  return ptr;
}

vmp_cu_handle gpu_create(gpu_rig *f, uint64_t granules) {
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(f->device.ordinal, VMP_CU_HANDLE_NONE);
  VEXPECT_INT_EQ(vmp_drv_mem_create(f->driver, &handle, granules * f->granule, &prop, 0), VMP_CU_SUCCESS);
  return handle;
}

void gpu_map(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules, vmp_cu_handle handle) {
  VEXPECT_INT_EQ(vmp_drv_mem_map(f->driver, ptr, granules * f->granule, 0, handle, 0), VMP_CU_SUCCESS);
}

void gpu_grant(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules) {
  vmp_cu_access_desc desc = {{VMP_CU_LOCATION_DEVICE, f->device.ordinal}, VMP_CU_ACCESS_READWRITE};
  VEXPECT_INT_EQ(vmp_drv_mem_set_access(f->driver, ptr, granules * f->granule, &desc, 1), VMP_CU_SUCCESS);
}

void gpu_unmap(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules) {
  VEXPECT_INT_EQ(vmp_drv_mem_unmap(f->driver, ptr, granules * f->granule), VMP_CU_SUCCESS);
}

void gpu_release(gpu_rig *f, vmp_cu_handle handle) {
  VEXPECT_INT_EQ(vmp_drv_mem_release(f->driver, handle), VMP_CU_SUCCESS);
}

void gpu_free(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules) {
  VEXPECT_INT_EQ(vmp_drv_mem_address_free(f->driver, ptr, granules * f->granule), VMP_CU_SUCCESS);
}

// ---- data ----

static void fill_pattern(unsigned char *data, size_t bytes, uint32_t seed) {
  uint32_t state = seed * UINT32_C(2654435761) + 1;
  for (size_t i = 0; i < bytes; i++) {
    state = state * UINT32_C(1664525) + UINT32_C(1013904223);
    data[i] = (unsigned char)(state >> 24);
  }
}

void gpu_write(gpu_rig *f, vmp_cu_ptr ptr, size_t bytes, uint32_t seed) {
  unsigned char *data = calloc(1, bytes);
  VASSERT_NOT_NULL(data);
  fill_pattern(data, bytes, seed);
  VEXPECT_INT_EQ(vmp_drv_memcpy_htod(f->driver, ptr, data, bytes), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(vmp_drv_ctx_synchronize(f->driver), VMP_CU_SUCCESS);
  free(data);
}

void gpu_expect(gpu_rig *f, vmp_cu_ptr ptr, size_t bytes, uint32_t seed) {
  unsigned char *data = calloc(2, bytes);
  VASSERT_NOT_NULL(data);
  fill_pattern(data, bytes, seed);
  VEXPECT_INT_EQ(vmp_drv_memcpy_dtoh(f->driver, data + bytes, ptr, bytes), VMP_CU_SUCCESS);
  VEXPECT_BYTES_EQ(data + bytes, data, bytes);
  free(data);
}
