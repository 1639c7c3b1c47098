// host_api.c: the public face of the host driver's streams, copies, touches and stepping. See vmpool_host.h.
//
// Owns: making the right context current around each call. A stream keeps one reference to its device's primary
// context, from vmp_host_stream_create to _destroy; the legacy stream (NULL) needs one only while it is called, since
// a pool on the device holds the context as well.
#include "pool/vmpool_host.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"
#include "vmm/driver_host.h"

static vmp_status check_host(const vmp_driver *driver) {
  if (driver == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the driver is NULL");
  if (!vmp_driver_is_host(driver)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the driver is \"%s\"; open one with VMP_DRIVER_HOST", driver->kind);
  }
  return VMP_OK;
}

// borrowed: contexts that are current until give_back.
typedef struct borrowed {
  vmp_driver *driver;
  vmp_cu_device device;  // whose primary context is retained
  vmp_context_saved outer, inner;
  bool has_inner;  // the stream lives in another context than the device's
} borrowed;

static void give_back(borrowed *b) {
  if (b->has_inner) (void)vmp_context_leave(b->driver, &b->inner);
  (void)vmp_context_leave(b->driver, &b->outer);
  (void)vmp_context_release(b->driver, b->device);
}

// borrow_device makes a device's primary context current.
static vmp_status borrow_device(borrowed *b, vmp_driver *driver, int ordinal) {
  *b = (borrowed){.driver = driver};
  int code = vmp_drv_device_get(driver, &b->device, ordinal);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(driver, VMP_CALL_device_get, code, "device %d was to be found", ordinal);
  }
  vmp_cu_context context;
  vmp_status status = vmp_context_retain(driver, b->device, &context);
  if (status != VMP_OK) return status;
  status = vmp_context_enter(driver, context, &b->outer);
  if (status != VMP_OK) (void)vmp_context_release(driver, b->device);
  return status;
}

// borrow_stream makes the context current in which `stream` lives; `ordinal` says whose legacy stream NULL is.
static vmp_status borrow_stream(borrowed *b, vmp_driver *driver, int ordinal, vmp_stream stream) {
  vmp_status status = check_host(driver);
  if (status == VMP_OK) status = borrow_device(b, driver, ordinal);
  if (status != VMP_OK || stream == NULL) return status;
  // The question needs some current context, so the device's comes first.
  vmp_cu_context context = NULL;
  int code = vmp_drv_stream_get_ctx(driver, stream, &context);
  if (code != VMP_CU_SUCCESS) {
    status = vmp_driver_fail(driver, VMP_CALL_stream_get_ctx, code, "the stream's context was to be found");
  } else {
    status = vmp_context_enter(driver, context, &b->inner);
    b->has_inner = status == VMP_OK;
  }
  if (status != VMP_OK) give_back(b);
  return status;
}

// finish ends a borrowed call and reports its code.
static vmp_status finish(borrowed *b, int code, vmp_call call, const char *what) {
  give_back(b);
  if (code == VMP_CU_SUCCESS) return VMP_OK;
  return vmp_driver_fail(b->driver, call, code, "%s", what);
}

// ---- when work runs ----

vmp_status vmp_host_work_set(vmp_driver *driver, vmp_host_work_mode mode, uint64_t seed_or_lag) {
  static const vmp_host_work modes[] = {
      [VMP_WORK_LATE] = VMP_HOST_WORK_LATE,
      [VMP_WORK_EARLY] = VMP_HOST_WORK_EARLY,
      [VMP_WORK_SEED] = VMP_HOST_WORK_SEED,
      [VMP_WORK_LAG] = VMP_HOST_WORK_LAG,
  };
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  if ((unsigned)mode >= sizeof modes / sizeof modes[0]) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no work mode number %d", (int)mode);
  }
  vmp_host_set_work(driver, modes[mode], seed_or_lag);
  return VMP_OK;
}

vmp_status vmp_host_work_step(vmp_driver *driver, uint64_t max_operations, uint64_t *out_done) {
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  uint64_t done = vmp_host_step(driver, max_operations);
  if (out_done != NULL) *out_done = done;
  return VMP_OK;
}

vmp_status vmp_host_work_counts(vmp_driver *driver, vmp_host_work_counts_data *out_counts) {
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  if (out_counts == NULL || out_counts->struct_size < sizeof *out_counts) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_host_work_counts_data is NULL or not initialised; use VMP_HOST_WORK_COUNTS_INIT");
  }
  vmp_host_counters counters;
  vmp_host_get_counters(driver, &counters);
  out_counts->queued = counters.operations_queued;
  out_counts->done = counters.operations_done;
  out_counts->bad_touches = counters.bad_touches;
  out_counts->violations = counters.violations;
  out_counts->stream_waits = counters.stream_waits;
  out_counts->unfinished_stream_waits = counters.unfinished_stream_waits;
  out_counts->host_waits = counters.host_waits;
  out_counts->modelled_us = counters.modelled_us;
  out_counts->unordered = counters.unordered;
  return VMP_OK;
}

vmp_status vmp_host_work_check_order(vmp_driver *driver, int check) {
  vmp_status status = check_host(driver);
  if (status == VMP_OK) vmp_host_check_order(driver, check != 0);
  return status;
}

// ---- streams ----

vmp_status vmp_host_stream_create(vmp_driver *driver, int device, vmp_stream *out_stream) {
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  if (out_stream == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  borrowed b;
  status = borrow_device(&b, driver, device);
  if (status != VMP_OK) return status;
  vmp_cu_context kept;  // the stream's own reference
  vmp_stream stream = NULL;
  status = vmp_context_retain(driver, b.device, &kept);
  if (status != VMP_OK) {
    give_back(&b);
    return status;
  }
  int code = vmp_drv_stream_create(driver, &stream, VMP_CU_STREAM_NON_BLOCKING);
  if (code != VMP_CU_SUCCESS) (void)vmp_context_release(driver, b.device);
  status = finish(&b, code, VMP_CALL_stream_create, "a stream was to be made");
  if (status == VMP_OK) *out_stream = stream;
  return status;
}

vmp_status vmp_host_stream_destroy(vmp_driver *driver, vmp_stream stream) {
  borrowed b;
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  if (stream == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the legacy stream can't be destroyed");
  status = borrow_stream(&b, driver, 0, stream);
  if (status != VMP_OK) return status;
  vmp_cu_device device = 0;
  vmp_call call = VMP_CALL_ctx_get_device;
  int code = vmp_drv_ctx_get_device(driver, &device);
  if (code == VMP_CU_SUCCESS) {
    call = VMP_CALL_stream_destroy;
    code = vmp_drv_stream_destroy(driver, stream);
  }
  status = finish(&b, code, call, "a stream was to be destroyed");
  if (status == VMP_OK) status = vmp_context_release(driver, device);  // the stream's own reference
  return status;
}

vmp_status vmp_host_stream_synchronize(vmp_driver *driver, int device, vmp_stream stream) {
  borrowed b;
  vmp_status status = borrow_stream(&b, driver, device, stream);
  if (status != VMP_OK) return status;
  int code = vmp_drv_stream_synchronize(driver, stream);
  return finish(&b, code, VMP_CALL_stream_synchronize, "a stream was to be waited for");
}

// ---- queued operations ----

static vmp_cu_ptr address_of(const void *ptr) { return (vmp_cu_ptr)(uintptr_t)ptr; }

vmp_status vmp_host_copy_in(vmp_driver *driver, int device, void *dst, const void *host_src, size_t bytes,
                            vmp_stream stream) {
  borrowed b;
  vmp_status status = borrow_stream(&b, driver, device, stream);
  if (status != VMP_OK) return status;
  int code = vmp_drv_memcpy_htod_async(driver, address_of(dst), host_src, bytes, stream);
  return finish(&b, code, VMP_CALL_memcpy_htod_async, "a copy to the device was to be queued");
}

vmp_status vmp_host_copy_out(vmp_driver *driver, int device, void *host_dst, const void *src, size_t bytes,
                             vmp_stream stream) {
  borrowed b;
  vmp_status status = borrow_stream(&b, driver, device, stream);
  if (status != VMP_OK) return status;
  int code = vmp_drv_memcpy_dtoh_async(driver, host_dst, address_of(src), bytes, stream);
  return finish(&b, code, VMP_CALL_memcpy_dtoh_async, "a copy from the device was to be queued");
}

vmp_status vmp_host_copy(vmp_driver *driver, int device, void *dst, const void *src, size_t bytes, vmp_stream stream) {
  borrowed b;
  vmp_status status = borrow_stream(&b, driver, device, stream);
  if (status != VMP_OK) return status;
  int code = vmp_drv_memcpy_dtod_async(driver, address_of(dst), address_of(src), bytes, stream);
  return finish(&b, code, VMP_CALL_memcpy_dtod_async, "a copy on the device was to be queued");
}

vmp_status vmp_host_fill(vmp_driver *driver, int device, void *dst, unsigned char value, size_t bytes,
                         vmp_stream stream) {
  borrowed b;
  vmp_status status = borrow_stream(&b, driver, device, stream);
  if (status != VMP_OK) return status;
  int code = vmp_drv_memset_d8_async(driver, address_of(dst), value, bytes, stream);
  return finish(&b, code, VMP_CALL_memset_d8_async, "a fill was to be queued");
}

vmp_status vmp_host_kernel(vmp_driver *driver, int device, void *ptr, size_t bytes, int write, vmp_stream stream) {
  vmp_status status = check_host(driver);
  if (status != VMP_OK) return status;
  int code = vmp_host_touch(driver, device, stream, address_of(ptr), bytes, write != 0);
  if (code == VMP_CU_SUCCESS) return VMP_OK;
  return vmp_fail_call(vmp_status_of_driver_code(code), code, "", "the kernel can't be queued: code %d", code);
}
