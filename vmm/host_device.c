// host_device.c: cuInit, error texts, devices and their attributes.
#include <stdio.h>
#include <unistd.h>

#include "vmm/host_model.h"

#define DRIVER_VERSION 13000

bool vmp_host_valid_device(const vmp_host *host, int device) { return device >= 0 && device < host->num_devices; }

bool vmp_host_can_reach(const vmp_host *host, int device, int resident) {
  return device == resident || (((host->devices[device].reachable >> resident) & 1u) != 0 &&
                                ((host->devices[resident].reachable >> device) & 1u) != 0);
}

// ---- init, errors ----

int vmp_host_op_init(vmp_driver *driver, unsigned flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_init, VMP_HOST_SITE());
  if (code != 0) return code;
  if (flags != 0) {
    code = vmp_host_break(host, 2, VMP_CU_INVALID_VALUE, "cuInit: flags are %u; they must be 0", flags);
  } else if (!atomic_load_explicit(&host->initialized, memory_order_relaxed)) {
    atomic_store_explicit(host->fork_page, 1, memory_order_relaxed);
    host->head.owner_process = (int32_t)getpid();
    atomic_store_explicit(&host->initialized, true, memory_order_release);
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_driver_get_version(vmp_driver *driver, int *out_version) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_driver_get_version, VMP_HOST_SITE());
  if (code != 0) return code;
  if (out_version == NULL) {
    code = vmp_host_break(host, 0, VMP_CU_INVALID_VALUE, "cuDriverGetVersion: the out-pointer is null");
  } else {
    *out_version = DRIVER_VERSION;
  }
  return vmp_host_leave(host, code);
}

typedef struct error_text {
  int code;
  const char *name, *text;
} error_text;

static const error_text error_texts[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {1, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {2, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {3, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {4, "CUDA_ERROR_DEINITIALIZED", "driver shutting down"},
    {34, "CUDA_ERROR_STUB_LIBRARY", "CUDA driver is a stub library"},
    {100, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {101, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {201, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {217, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {400, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {401, "CUDA_ERROR_ILLEGAL_STATE", "the operation cannot be performed in the present state"},
    {500, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {600, "CUDA_ERROR_NOT_READY", "device not ready"},
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {711, "CUDA_ERROR_TOO_MANY_PEERS", "peer mapping resources exhausted"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {800, "CUDA_ERROR_NOT_PERMITTED", "operation not permitted"},
    {801, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
    {802, "CUDA_ERROR_SYSTEM_NOT_READY", "system not yet initialized"},
    {803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", "system has unsupported display driver / cuda driver combination"},
    {804, "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE", "forward compatibility is not supported on this device"},
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "capturing stream has unjoined work"},
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
    {906, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT", "operation would make the legacy stream depend on a capturing stream"},
    {907, "CUDA_ERROR_CAPTURED_EVENT", "operation not permitted on an event last recorded in a capturing stream"},
    {908, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD", "attempt to end capture from a different thread"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static const error_text *find_error(int code) {
  for (size_t i = 0; i < sizeof error_texts / sizeof error_texts[0]; i++) {
    if (error_texts[i].code == code) return &error_texts[i];
  }
  return NULL;
}

static int get_error(vmp_driver *driver, vmp_call call, const void *site, int code, const char **out, bool name) {
  vmp_host *host = vmp_host_of(driver);
  int result = vmp_host_enter(host, call, site);
  if (result != 0) return result;
  const error_text *found = find_error(code);
  if (out == NULL) {
    result = vmp_host_break(host, 61, VMP_CU_INVALID_VALUE, "%s: the out-pointer is null", vmp_call_symbol(call));
  } else if (found == NULL) {
    *out = NULL;  // documented: an unknown code sets the pointer to NULL
    result = vmp_host_break(host, 61, VMP_CU_INVALID_VALUE, "%s: %d is no error code", vmp_call_symbol(call), code);
  } else {
    *out = name ? found->name : found->text;
  }
  return vmp_host_leave(host, result);
}

int vmp_host_op_get_error_name(vmp_driver *driver, int code, const char **out_name) {
  return get_error(driver, VMP_CALL_get_error_name, VMP_HOST_SITE(), code, out_name, true);
}

int vmp_host_op_get_error_string(vmp_driver *driver, int code, const char **out_text) {
  return get_error(driver, VMP_CALL_get_error_string, VMP_HOST_SITE(), code, out_text, false);
}

// ---- devices ----

int vmp_host_op_device_get_count(vmp_driver *driver, int *out_count) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_get_count, VMP_HOST_SITE());
  if (code != 0) return code;
  if (out_count == NULL) {
    code = vmp_host_break(host, 3, VMP_CU_INVALID_VALUE, "cuDeviceGetCount: the out-pointer is null");
  } else {
    *out_count = host->num_devices;
  }
  return vmp_host_leave(host, code);
}

int vmp_host_op_device_get(vmp_driver *driver, vmp_cu_device *out_device, int ordinal) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_get, VMP_HOST_SITE());
  if (code != 0) return code;
  if (out_device == NULL) {
    code = vmp_host_break(host, 3, VMP_CU_INVALID_VALUE, "cuDeviceGet: the out-pointer is null");
  } else if (!vmp_host_valid_device(host, ordinal)) {
    code = vmp_host_break(host, 3, VMP_CU_INVALID_DEVICE, "cuDeviceGet: ordinal %d of %d devices", ordinal,
                          host->num_devices);
  } else {
    *out_device = ordinal;
  }
  return vmp_host_leave_out(host, code, out_device, sizeof *out_device);
}

int vmp_host_check_device(vmp_host *host, int rule, int device, const void *out) {
  if (out == NULL) {
    return vmp_host_break(host, rule, VMP_CU_INVALID_VALUE, "%s: the out-pointer is null", vmp_call_symbol(host->call));
  }
  if (!vmp_host_valid_device(host, device)) {
    return vmp_host_break(host, rule, VMP_CU_INVALID_DEVICE, "%s: device %d of %d", vmp_call_symbol(host->call), device,
                          host->num_devices);
  }
  return 0;
}

int vmp_host_op_device_get_name(vmp_driver *driver, char *out_name, int size, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_get_name, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 4, device, out_name);
  if (code == 0 && size <= 0) {
    code = vmp_host_break(host, 4, VMP_CU_INVALID_VALUE, "cuDeviceGetName: the buffer has %d bytes", size);
  }
  if (code == 0) (void)snprintf(out_name, (size_t)size, "vmpool host device %d", device);
  return vmp_host_leave(host, code);
}

static bool attribute_value(const vmp_host *host, int attribute, int device, int *out_value) {
  const vmp_host_device_state *state = &host->devices[device];
  switch (attribute) {
    case VMP_CU_ATTR_MULTIPROCESSOR_COUNT: *out_value = 1; return true;
    case VMP_CU_ATTR_UNIFIED_ADDRESSING: *out_value = 1; return true;
    case VMP_CU_ATTR_COMPUTE_CAPABILITY_MAJOR: *out_value = 9; return true;
    case VMP_CU_ATTR_VMM_SUPPORTED: *out_value = state->vmm; return true;
    case VMP_CU_ATTR_HANDLE_POSIX_FD: *out_value = state->posix_fd; return true;
    case VMP_CU_ATTR_HOST_NUMA_ID: *out_value = -1; return true;
    case VMP_CU_ATTR_INTEGRATED:
    case VMP_CU_ATTR_COMPUTE_CAPABILITY_MINOR:
    case VMP_CU_ATTR_HANDLE_WIN32:
    case VMP_CU_ATTR_HANDLE_WIN32_KMT:
    case VMP_CU_ATTR_GENERIC_COMPRESSION:
    case VMP_CU_ATTR_RDMA_WITH_VMM:
    case VMP_CU_ATTR_MEMORY_POOLS:
    case VMP_CU_ATTR_RDMA:
    case VMP_CU_ATTR_HANDLE_FABRIC:
    case VMP_CU_ATTR_MULTICAST:
    case VMP_CU_ATTR_HOST_NUMA_VMM:
    case VMP_CU_ATTR_HOST_VMM: *out_value = 0; return true;
    default: return false;
  }
}

int vmp_host_op_device_get_attribute(vmp_driver *driver, int *out_value, int attribute, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_get_attribute, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 4, device, out_value);
  if (code == 0 && !attribute_value(host, attribute, device, out_value)) {
    code = vmp_host_break(host, 4, VMP_CU_INVALID_VALUE, "cuDeviceGetAttribute: attribute %d is unknown", attribute);
  }
  return vmp_host_leave_out(host, code, out_value, sizeof *out_value);
}

int vmp_host_op_device_total_mem(vmp_driver *driver, size_t *out_bytes, vmp_cu_device device) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_total_mem, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 4, device, out_bytes);
  if (code == 0) *out_bytes = host->devices[device].memory_bytes;
  return vmp_host_leave_out(host, code, out_bytes, sizeof *out_bytes);
}

int vmp_host_op_device_can_access_peer(vmp_driver *driver, int *out_can, vmp_cu_device device, vmp_cu_device peer) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_device_can_access_peer, VMP_HOST_SITE());
  if (code != 0) return code;
  code = vmp_host_check_device(host, 4, device, out_can);
  if (code == 0) code = vmp_host_check_device(host, 4, peer, out_can);
  if (code == 0) *out_can = device != peer && vmp_host_can_reach(host, device, peer);
  return vmp_host_leave_out(host, code, out_can, sizeof *out_can);
}
