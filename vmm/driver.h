// driver.h: the driver as one table of calls. The only way in which the library reaches a GPU.
//
// Owns: the list of calls, our own fixed-width types for them, the call counters. Does not own policy:
// the table does what the CUDA driver API documents, and returns the driver's own codes (int, 0 is success).
//
//     callers (clock, chunk, backing, pool)
//        |  vmp_drv_mem_map(driver, ...)        counts, then calls through the table
//     struct vmp_driver { ops, calls[] }
//        |                        |
//     driver_cuda.c            driver_host.c    dlopen("libcuda.so.1")  |  this machine, strict
//
// Preconditions that hold for every call: `driver` is open; the calling process is the one that opened it
// (a fork gets code 3); out-pointers are written only on success. Calls are thread-safe. VMM calls (mem_*
// except copies and mem_get_info) need no current context; stream, event, copy and mem_get_info calls do.
//
// One list makes the table, the CUDA loader, the wrappers, the counters and the fault points:
//   X(name, symbol, version, need, (argument names), parameters...)
//     symbol, version  what cuGetProcAddress is asked for; pinned per symbol, since newer headers change meaning
//     need             REQUIRED: without it the driver is too old. OPTIONAL: the wrapper returns 801 without it
#ifndef VMPOOL_VMM_DRIVER_H_
#define VMPOOL_VMM_DRIVER_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/status.h"

// ---- types: equal in size, layout and value to cuda.h's (tests/driver_cuda/types_test.c proves it) ----
typedef int32_t vmp_cu_device;            // CUdevice
typedef uint64_t vmp_cu_ptr;              // CUdeviceptr
typedef uint64_t vmp_cu_handle;           // CUmemGenericAllocationHandle
typedef struct CUctx_st *vmp_cu_context;  // CUcontext
typedef struct CUstream_st *vmp_cu_stream;
typedef struct CUevent_st *vmp_cu_event;
typedef void (*vmp_cu_host_fn)(void *user_data);

enum {  // CUmemLocationType
  VMP_CU_LOCATION_INVALID = 0,
  VMP_CU_LOCATION_DEVICE = 1,
  VMP_CU_LOCATION_HOST = 2,
  VMP_CU_LOCATION_HOST_NUMA = 3,
  VMP_CU_LOCATION_HOST_NUMA_CURRENT = 4,
};
enum { VMP_CU_ALLOCATION_PINNED = 1 };  // CUmemAllocationType
enum {                                  // CUmemAllocationHandleType
  VMP_CU_HANDLE_NONE = 0,
  VMP_CU_HANDLE_POSIX_FD = 1,
  VMP_CU_HANDLE_WIN32 = 2,
  VMP_CU_HANDLE_WIN32_KMT = 4,
  VMP_CU_HANDLE_FABRIC = 8,
};
enum { VMP_CU_ACCESS_NONE = 0, VMP_CU_ACCESS_READ = 1, VMP_CU_ACCESS_READWRITE = 3 };
enum { VMP_CU_GRANULARITY_MINIMUM = 0, VMP_CU_GRANULARITY_RECOMMENDED = 1 };
enum {  // CUdevice_attribute
  VMP_CU_ATTR_MULTIPROCESSOR_COUNT = 16,
  VMP_CU_ATTR_INTEGRATED = 18,
  VMP_CU_ATTR_UNIFIED_ADDRESSING = 41,
  VMP_CU_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
  VMP_CU_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
  VMP_CU_ATTR_VMM_SUPPORTED = 102,
  VMP_CU_ATTR_HANDLE_POSIX_FD = 103,
  VMP_CU_ATTR_HANDLE_WIN32 = 104,
  VMP_CU_ATTR_HANDLE_WIN32_KMT = 105,
  VMP_CU_ATTR_GENERIC_COMPRESSION = 107,
  VMP_CU_ATTR_RDMA_WITH_VMM = 110,
  VMP_CU_ATTR_MEMORY_POOLS = 115,
  VMP_CU_ATTR_RDMA = 116,
  VMP_CU_ATTR_HANDLE_FABRIC = 128,
  VMP_CU_ATTR_MULTICAST = 132,
  VMP_CU_ATTR_HOST_NUMA_ID = 134,
  VMP_CU_ATTR_HOST_NUMA_VMM = 141,
  VMP_CU_ATTR_HOST_VMM = 145,
};
enum { VMP_CU_STREAM_DEFAULT = 0, VMP_CU_STREAM_NON_BLOCKING = 1 };
enum { VMP_CU_EVENT_DEFAULT = 0, VMP_CU_EVENT_BLOCKING_SYNC = 1, VMP_CU_EVENT_DISABLE_TIMING = 2, VMP_CU_EVENT_INTERPROCESS = 4 };
enum { VMP_CU_CAPTURE_GLOBAL = 0, VMP_CU_CAPTURE_THREAD_LOCAL = 1, VMP_CU_CAPTURE_RELAXED = 2 };
enum { VMP_CU_CAPTURE_STATUS_NONE = 0, VMP_CU_CAPTURE_STATUS_ACTIVE = 1, VMP_CU_CAPTURE_STATUS_INVALIDATED = 2 };

// CUresult: the codes that the library or the host driver names.   X(name, value): CUDA_ERROR_name is that value.
#define VMP_CU_ERROR_CODES(X)            \
  X(INVALID_VALUE, 1)                    \
  X(OUT_OF_MEMORY, 2)                    \
  X(NOT_INITIALIZED, 3)                  \
  X(DEINITIALIZED, 4)                    \
  X(STUB_LIBRARY, 34)                    \
  X(NO_DEVICE, 100)                      \
  X(INVALID_DEVICE, 101)                 \
  X(INVALID_CONTEXT, 201)                \
  X(PEER_ACCESS_UNSUPPORTED, 217)        \
  X(INVALID_HANDLE, 400)                 \
  X(ILLEGAL_STATE, 401)                  \
  X(NOT_FOUND, 500)                      \
  X(NOT_READY, 600)                      \
  X(ILLEGAL_ADDRESS, 700)                \
  X(PEER_ACCESS_ALREADY_ENABLED, 704)    \
  X(PEER_ACCESS_NOT_ENABLED, 705)        \
  X(CONTEXT_IS_DESTROYED, 709)           \
  X(TOO_MANY_PEERS, 711)                 \
  X(LAUNCH_FAILED, 719)                  \
  X(NOT_PERMITTED, 800)                  \
  X(NOT_SUPPORTED, 801)                  \
  X(SYSTEM_NOT_READY, 802)               \
  X(SYSTEM_DRIVER_MISMATCH, 803)         \
  X(COMPAT_NOT_SUPPORTED_ON_DEVICE, 804) \
  X(STREAM_CAPTURE_UNSUPPORTED, 900)     \
  X(STREAM_CAPTURE_INVALIDATED, 901)     \
  X(STREAM_CAPTURE_UNJOINED, 904)        \
  X(STREAM_CAPTURE_ISOLATION, 905)       \
  X(STREAM_CAPTURE_IMPLICIT, 906)        \
  X(CAPTURED_EVENT, 907)                 \
  X(STREAM_CAPTURE_WRONG_THREAD, 908)    \
  X(UNKNOWN, 999)

enum {
  VMP_CU_SUCCESS = 0,
#define X(name, value) VMP_CU_##name = value,
  VMP_CU_ERROR_CODES(X)
#undef X
};

typedef struct vmp_cu_location {
  int32_t type;
  int32_t id;
} vmp_cu_location;

typedef struct vmp_cu_mem_prop {  // CUmemAllocationProp; zero it before filling it in
  int32_t type;
  int32_t requested_handle_types;
  vmp_cu_location location;
  void *win32_handle_meta_data;
  struct {
    unsigned char compression_type;
    unsigned char gpu_direct_rdma_capable;
    unsigned short usage;
    unsigned char reserved[4];
  } alloc_flags;
} vmp_cu_mem_prop;

typedef struct vmp_cu_access_desc {
  vmp_cu_location location;
  int32_t flags;
} vmp_cu_access_desc;

typedef struct vmp_driver vmp_driver;

// ---- the list ----
#define VMP_DRIVER_CALLS(X)                                                                                           \
  X(init, "cuInit", 2000, REQUIRED, (flags), unsigned flags)                                                          \
  X(driver_get_version, "cuDriverGetVersion", 2020, REQUIRED, (out_version), int *out_version)                        \
  X(get_error_name, "cuGetErrorName", 6000, REQUIRED, (code, out_name), int code, const char **out_name)              \
  X(get_error_string, "cuGetErrorString", 6000, REQUIRED, (code, out_text), int code, const char **out_text)          \
  X(device_get_count, "cuDeviceGetCount", 2000, REQUIRED, (out_count), int *out_count)                                \
  X(device_get, "cuDeviceGet", 2000, REQUIRED, (out_device, ordinal), vmp_cu_device *out_device, int ordinal)         \
  X(device_get_name, "cuDeviceGetName", 2000, REQUIRED, (out_name, size, device), char *out_name, int size,           \
    vmp_cu_device device)                                                                                             \
  X(device_get_attribute, "cuDeviceGetAttribute", 2000, REQUIRED, (out_value, attribute, device), int *out_value,     \
    int attribute, vmp_cu_device device)                                                                              \
  X(device_total_mem, "cuDeviceTotalMem", 3020, REQUIRED, (out_bytes, device), size_t *out_bytes,                     \
    vmp_cu_device device)                                                                                             \
  X(device_can_access_peer, "cuDeviceCanAccessPeer", 4000, REQUIRED, (out_can, device, peer), int *out_can,           \
    vmp_cu_device device, vmp_cu_device peer)                                                                         \
  X(primary_ctx_retain, "cuDevicePrimaryCtxRetain", 7000, REQUIRED, (out_context, device),                            \
    vmp_cu_context *out_context, vmp_cu_device device)                                                                \
  X(primary_ctx_release, "cuDevicePrimaryCtxRelease", 11000, REQUIRED, (device), vmp_cu_device device)                \
  X(primary_ctx_reset, "cuDevicePrimaryCtxReset", 11000, OPTIONAL, (device), vmp_cu_device device)                    \
  X(ctx_get_current, "cuCtxGetCurrent", 4000, REQUIRED, (out_context), vmp_cu_context *out_context)                   \
  X(ctx_set_current, "cuCtxSetCurrent", 4000, REQUIRED, (context), vmp_cu_context context)                            \
  X(ctx_push_current, "cuCtxPushCurrent", 4000, REQUIRED, (context), vmp_cu_context context)                          \
  X(ctx_pop_current, "cuCtxPopCurrent", 4000, REQUIRED, (out_context), vmp_cu_context *out_context)                   \
  X(ctx_get_device, "cuCtxGetDevice", 2000, REQUIRED, (out_device), vmp_cu_device *out_device)                        \
  X(ctx_enable_peer_access, "cuCtxEnablePeerAccess", 4000, OPTIONAL, (peer, flags), vmp_cu_context peer,              \
    unsigned flags)                                                                                                   \
  X(ctx_disable_peer_access, "cuCtxDisablePeerAccess", 4000, OPTIONAL, (peer), vmp_cu_context peer)                   \
  X(mem_get_info, "cuMemGetInfo", 3020, REQUIRED, (out_free, out_total), size_t *out_free, size_t *out_total)         \
  X(mem_get_allocation_granularity, "cuMemGetAllocationGranularity", 10020, REQUIRED, (out_bytes, prop, option),      \
    size_t *out_bytes, const vmp_cu_mem_prop *prop, int option)                                                       \
  X(mem_address_reserve, "cuMemAddressReserve", 10020, REQUIRED, (out_ptr, bytes, alignment, hint, flags),            \
    vmp_cu_ptr *out_ptr, size_t bytes, size_t alignment, vmp_cu_ptr hint, unsigned long long flags)                   \
  X(mem_address_free, "cuMemAddressFree", 10020, REQUIRED, (ptr, bytes), vmp_cu_ptr ptr, size_t bytes)                \
  X(mem_create, "cuMemCreate", 10020, REQUIRED, (out_handle, bytes, prop, flags), vmp_cu_handle *out_handle,          \
    size_t bytes, const vmp_cu_mem_prop *prop, unsigned long long flags)                                              \
  X(mem_release, "cuMemRelease", 10020, REQUIRED, (handle), vmp_cu_handle handle)                                     \
  X(mem_map, "cuMemMap", 10020, REQUIRED, (ptr, bytes, offset, handle, flags), vmp_cu_ptr ptr, size_t bytes,          \
    size_t offset, vmp_cu_handle handle, unsigned long long flags)                                                    \
  X(mem_unmap, "cuMemUnmap", 10020, REQUIRED, (ptr, bytes), vmp_cu_ptr ptr, size_t bytes)                             \
  X(mem_set_access, "cuMemSetAccess", 10020, REQUIRED, (ptr, bytes, desc, count), vmp_cu_ptr ptr, size_t bytes,       \
    const vmp_cu_access_desc *desc, size_t count)                                                                     \
  X(mem_get_access, "cuMemGetAccess", 10020, REQUIRED, (out_flags, location, ptr), unsigned long long *out_flags,     \
    const vmp_cu_location *location, vmp_cu_ptr ptr)                                                                  \
  X(mem_retain_allocation_handle, "cuMemRetainAllocationHandle", 11000, OPTIONAL, (out_handle, address),              \
    vmp_cu_handle *out_handle, void *address)                                                                         \
  X(mem_get_allocation_properties, "cuMemGetAllocationPropertiesFromHandle", 10020, OPTIONAL, (out_prop, handle),     \
    vmp_cu_mem_prop *out_prop, vmp_cu_handle handle)                                                                  \
  X(mem_export, "cuMemExportToShareableHandle", 10020, OPTIONAL, (out_shareable, handle, type, flags),                \
    void *out_shareable, vmp_cu_handle handle, int type, unsigned long long flags)                                    \
  X(mem_import, "cuMemImportFromShareableHandle", 10020, OPTIONAL, (out_handle, shareable, type),                     \
    vmp_cu_handle *out_handle, void *shareable, int type)                                                             \
  X(mem_alloc, "cuMemAlloc", 3020, OPTIONAL, (out_ptr, bytes), vmp_cu_ptr *out_ptr, size_t bytes)                     \
  X(mem_free, "cuMemFree", 3020, OPTIONAL, (ptr), vmp_cu_ptr ptr)                                                     \
  X(mem_host_alloc, "cuMemHostAlloc", 2020, OPTIONAL, (out_ptr, bytes, flags), void **out_ptr, size_t bytes,          \
    unsigned flags)                                                                                                   \
  X(mem_free_host, "cuMemFreeHost", 2000, OPTIONAL, (ptr), void *ptr)                                                 \
  X(stream_create, "cuStreamCreate", 2000, REQUIRED, (out_stream, flags), vmp_cu_stream *out_stream, unsigned flags)  \
  X(stream_destroy, "cuStreamDestroy", 4000, REQUIRED, (stream), vmp_cu_stream stream)                                \
  X(stream_synchronize, "cuStreamSynchronize", 2000, REQUIRED, (stream), vmp_cu_stream stream)                        \
  X(stream_query, "cuStreamQuery", 2000, REQUIRED, (stream), vmp_cu_stream stream)                                    \
  X(stream_wait_event, "cuStreamWaitEvent", 3020, REQUIRED, (stream, event, flags), vmp_cu_stream stream,             \
    vmp_cu_event event, unsigned flags)                                                                               \
  X(stream_get_id, "cuStreamGetId", 12000, OPTIONAL, (stream, out_id), vmp_cu_stream stream,                          \
    unsigned long long *out_id)                                                                                       \
  X(stream_get_ctx, "cuStreamGetCtx", 9020, OPTIONAL, (stream, out_context), vmp_cu_stream stream,                    \
    vmp_cu_context *out_context)                                                                                      \
  X(stream_is_capturing, "cuStreamIsCapturing", 10000, OPTIONAL, (stream, out_status), vmp_cu_stream stream,          \
    int *out_status)                                                                                                  \
  X(stream_begin_capture, "cuStreamBeginCapture", 10010, OPTIONAL, (stream, mode), vmp_cu_stream stream, int mode)    \
  X(stream_end_capture, "cuStreamEndCapture", 10000, OPTIONAL, (stream, out_graph), vmp_cu_stream stream,             \
    void **out_graph)                                                                                                 \
  X(graph_destroy, "cuGraphDestroy", 10000, OPTIONAL, (graph), void *graph)                                           \
  X(thread_exchange_capture_mode, "cuThreadExchangeStreamCaptureMode", 10010, OPTIONAL, (inout_mode),                 \
    int *inout_mode)                                                                                                  \
  X(event_create, "cuEventCreate", 2000, REQUIRED, (out_event, flags), vmp_cu_event *out_event, unsigned flags)       \
  X(event_destroy, "cuEventDestroy", 4000, REQUIRED, (event), vmp_cu_event event)                                     \
  X(event_record, "cuEventRecord", 2000, REQUIRED, (event, stream), vmp_cu_event event, vmp_cu_stream stream)         \
  X(event_query, "cuEventQuery", 2000, REQUIRED, (event), vmp_cu_event event)                                         \
  X(event_synchronize, "cuEventSynchronize", 2000, REQUIRED, (event), vmp_cu_event event)                             \
  X(event_elapsed_time, "cuEventElapsedTime", 2000, OPTIONAL, (out_ms, start, end), float *out_ms,                    \
    vmp_cu_event start, vmp_cu_event end)                                                                             \
  X(launch_host_func, "cuLaunchHostFunc", 10000, OPTIONAL, (stream, fn, user_data), vmp_cu_stream stream,             \
    vmp_cu_host_fn fn, void *user_data)                                                                               \
  X(memcpy_htod, "cuMemcpyHtoD", 3020, REQUIRED, (dst, src, bytes), vmp_cu_ptr dst, const void *src, size_t bytes)    \
  X(memcpy_dtoh, "cuMemcpyDtoH", 3020, REQUIRED, (dst, src, bytes), void *dst, vmp_cu_ptr src, size_t bytes)          \
  X(memcpy_dtod, "cuMemcpyDtoD", 3020, REQUIRED, (dst, src, bytes), vmp_cu_ptr dst, vmp_cu_ptr src, size_t bytes)     \
  X(memcpy_htod_async, "cuMemcpyHtoDAsync", 3020, REQUIRED, (dst, src, bytes, stream), vmp_cu_ptr dst,                \
    const void *src, size_t bytes, vmp_cu_stream stream)                                                              \
  X(memcpy_dtoh_async, "cuMemcpyDtoHAsync", 3020, REQUIRED, (dst, src, bytes, stream), void *dst, vmp_cu_ptr src,     \
    size_t bytes, vmp_cu_stream stream)                                                                               \
  X(memcpy_dtod_async, "cuMemcpyDtoDAsync", 3020, REQUIRED, (dst, src, bytes, stream), vmp_cu_ptr dst,                \
    vmp_cu_ptr src, size_t bytes, vmp_cu_stream stream)                                                               \
  X(memset_d8, "cuMemsetD8", 3020, REQUIRED, (dst, value, bytes), vmp_cu_ptr dst, unsigned char value, size_t bytes)  \
  X(memset_d8_async, "cuMemsetD8Async", 3020, REQUIRED, (dst, value, bytes, stream), vmp_cu_ptr dst,                  \
    unsigned char value, size_t bytes, vmp_cu_stream stream)

// Calls without parameters.   X(name, symbol, version, need)
#define VMP_DRIVER_CALLS_0(X) X(ctx_synchronize, "cuCtxSynchronize", 2000, REQUIRED)

typedef enum vmp_call {
#define X(name, ...) VMP_CALL_##name,
  VMP_DRIVER_CALLS(X) VMP_DRIVER_CALLS_0(X)
#undef X
      VMP_CALL_COUNT
} vmp_call;

typedef struct vmp_driver_ops {
#define X(name, symbol, version, need, args, ...) int (*name)(vmp_driver * driver, __VA_ARGS__);
  VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) int (*name)(vmp_driver * driver);
  VMP_DRIVER_CALLS_0(X)
#undef X
  void (*close)(vmp_driver *driver);  // frees the driver; tolerates a driver that is shutting down
} vmp_driver_ops;

// vmp_driver: the head of either driver's own structure.
struct vmp_driver {
  const vmp_driver_ops *ops;
  const char *kind;       // "cuda" or "host"; static storage
  int32_t owner_process;  // getpid() of the process that opened it: calls from any other return 3. 0: not recorded
  _Atomic uint64_t calls[VMP_CALL_COUNT];
  // Something of whoever uses the driver, made once (registry.h); vmp_driver_close ends it first. NULL: nothing.
  void *_Atomic attachment;
  void (*attachment_end)(void *attachment);
};

// vmp_thread_calls: the calls of this thread through any driver, since it began.
extern _Thread_local uint64_t vmp_thread_calls[VMP_CALL_COUNT];

static inline void vmp_count_call(vmp_driver *driver, vmp_call call) {
  atomic_fetch_add_explicit(&driver->calls[call], 1, memory_order_relaxed);
  vmp_thread_calls[call]++;
}

// vmp_drv_NAME(driver, ...): counts the call and makes it. Returns the driver's code.
#define VMP_UNPACK(...) __VA_ARGS__
#define X(name, symbol, version, need, args, ...)                     \
  static inline int vmp_drv_##name(vmp_driver *driver, __VA_ARGS__) { \
    vmp_count_call(driver, VMP_CALL_##name);                          \
    return driver->ops->name(driver, VMP_UNPACK args);                \
  }
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need)                   \
  static inline int vmp_drv_##name(vmp_driver *driver) { \
    vmp_count_call(driver, VMP_CALL_##name);             \
    return driver->ops->name(driver);                    \
  }
VMP_DRIVER_CALLS_0(X)
#undef X

// vmp_call_symbol returns the CUDA name of a call ("cuMemMap"), for messages. Static storage; "cu?" for a value
// that is no call.
const char *vmp_call_symbol(vmp_call call);

// vmp_driver_is_forked says whether the calling process is a fork of the one that opened the driver: then every
// call returns 3 and nothing that the driver made may be touched. Thread-safe.
bool vmp_driver_is_forked(const vmp_driver *driver);

// vmp_driver_close ends a driver and frees it; NULL is fine. No pool may use it any more.
VMP_API void vmp_driver_close(vmp_driver *driver);

// vmp_driver_cuda_open loads the CUDA driver (driver_cuda.c). `library` NULL means "libcuda.so.1". On success
// *out_driver is open and cuInit has succeeded. VMP_ERROR_NO_DRIVER, _STUB_DRIVER, _DRIVER_TOO_OLD (a REQUIRED
// call is missing), _NO_DEVICE, _FORKED (a parent process had initialised CUDA), _DRIVER, _HOST_OUT_OF_MEMORY,
// each with its own sentence in vmp_last_error. Thread-safe.
vmp_status vmp_driver_cuda_open(vmp_driver **out_driver, const char *library);

#endif  // VMPOOL_VMM_DRIVER_H_
