// types_test.c: driver.h against CUDA's own headers: every type, constant, structure and call of the list.
//
// How a call is proved
//     driver.h          int (*)(vmp_driver *, A1, A2, ...)       A: our types       checked against the ops table
//     this file         SIGNATURE(name, PFN_..., kind1, kind2, ...)    one line per call; a kind is a pair (ours,
//     CUDA's) cudaTypedefs.h    CUresult (*)(B1, B2, ...)                B: CUDA's types    checked against the pinned
//     PFN_ type
//   Both function types must be exactly made of the kinds, and each kind's two types must have one size and be of one
//   class (integer, pointer, floating), so that they are passed alike. The PFN_ type must be the one of the version
//   that driver.h pins.
// Without the headers (13.0 or newer) nothing is proved, and that is said: the test is SKIPPED.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "vmm/driver.h"

#if defined(__has_include)
#if __has_include(<cuda.h>) && __has_include(<cudaTypedefs.h>)
#include <cuda.h>
#include <cudaTypedefs.h>
#if CUDA_VERSION >= 13000
#define HAVE_CUDA_13 1
#endif
#endif
#endif

#ifndef HAVE_CUDA_13

VTEST(CudaTypes, NotProved) {
#ifdef CUDA_VERSION
  VSKIP("cuda.h is of version %d, older than 13.0: the types, constants and calls of vmm/driver.h were NOT proved",
        CUDA_VERSION);
#else
  VSKIP("no cuda.h: the types, constants and calls of vmm/driver.h were NOT proved against CUDA 13");
#endif
}

#else

// ---- constants ----

// EQUAL compares one constant of ours with one of CUDA's, at compile time and by name in the test's output.
#define EQUAL(ours, cudas)                                                            \
  do {                                                                                \
    _Static_assert((long long)(ours) == (long long)(cudas), #ours " is not " #cudas); \
    VEXPECT_INT_EQ(ours, (int64_t)(cudas));                                           \
  } while (0)

VTEST(CudaTypes, ErrorCodes) {
  EQUAL(VMP_CU_SUCCESS, CUDA_SUCCESS);
#define X(name, value)                     \
  EQUAL(VMP_CU_##name, CUDA_ERROR_##name); \
  _Static_assert((value) == VMP_CU_##name, "the list of codes contradicts the enumeration");
  VMP_CU_ERROR_CODES(X)
#undef X
}

VTEST(CudaTypes, Constants) {
  EQUAL(VMP_CU_LOCATION_INVALID, CU_MEM_LOCATION_TYPE_INVALID);
  EQUAL(VMP_CU_LOCATION_DEVICE, CU_MEM_LOCATION_TYPE_DEVICE);
  EQUAL(VMP_CU_LOCATION_HOST, CU_MEM_LOCATION_TYPE_HOST);
  EQUAL(VMP_CU_LOCATION_HOST_NUMA, CU_MEM_LOCATION_TYPE_HOST_NUMA);
  EQUAL(VMP_CU_LOCATION_HOST_NUMA_CURRENT, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT);
  EQUAL(VMP_CU_ALLOCATION_PINNED, CU_MEM_ALLOCATION_TYPE_PINNED);
  EQUAL(VMP_CU_HANDLE_NONE, CU_MEM_HANDLE_TYPE_NONE);
  EQUAL(VMP_CU_HANDLE_POSIX_FD, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  EQUAL(VMP_CU_HANDLE_WIN32, CU_MEM_HANDLE_TYPE_WIN32);
  EQUAL(VMP_CU_HANDLE_WIN32_KMT, CU_MEM_HANDLE_TYPE_WIN32_KMT);
  EQUAL(VMP_CU_HANDLE_FABRIC, CU_MEM_HANDLE_TYPE_FABRIC);
  EQUAL(VMP_CU_ACCESS_NONE, CU_MEM_ACCESS_FLAGS_PROT_NONE);
  EQUAL(VMP_CU_ACCESS_READ, CU_MEM_ACCESS_FLAGS_PROT_READ);
  EQUAL(VMP_CU_ACCESS_READWRITE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  EQUAL(VMP_CU_GRANULARITY_MINIMUM, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
  EQUAL(VMP_CU_GRANULARITY_RECOMMENDED, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
  EQUAL(VMP_CU_STREAM_DEFAULT, CU_STREAM_DEFAULT);
  EQUAL(VMP_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
  EQUAL(VMP_CU_EVENT_DEFAULT, CU_EVENT_DEFAULT);
  EQUAL(VMP_CU_EVENT_BLOCKING_SYNC, CU_EVENT_BLOCKING_SYNC);
  EQUAL(VMP_CU_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING);
  EQUAL(VMP_CU_EVENT_INTERPROCESS, CU_EVENT_INTERPROCESS);
  EQUAL(VMP_CU_CAPTURE_GLOBAL, CU_STREAM_CAPTURE_MODE_GLOBAL);
  EQUAL(VMP_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
  EQUAL(VMP_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
  EQUAL(VMP_CU_CAPTURE_STATUS_NONE, CU_STREAM_CAPTURE_STATUS_NONE);
  EQUAL(VMP_CU_CAPTURE_STATUS_ACTIVE, CU_STREAM_CAPTURE_STATUS_ACTIVE);
  EQUAL(VMP_CU_CAPTURE_STATUS_INVALIDATED, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
}

VTEST(CudaTypes, DeviceAttributes) {
  EQUAL(VMP_CU_ATTR_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
  EQUAL(VMP_CU_ATTR_INTEGRATED, CU_DEVICE_ATTRIBUTE_INTEGRATED);
  EQUAL(VMP_CU_ATTR_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING);
  EQUAL(VMP_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
  EQUAL(VMP_CU_ATTR_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
  EQUAL(VMP_CU_ATTR_VMM_SUPPORTED, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED);
  EQUAL(VMP_CU_ATTR_HANDLE_POSIX_FD, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED);
  EQUAL(VMP_CU_ATTR_HANDLE_WIN32, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_HANDLE_SUPPORTED);
  EQUAL(VMP_CU_ATTR_HANDLE_WIN32_KMT, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED);
  EQUAL(VMP_CU_ATTR_GENERIC_COMPRESSION, CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED);
  EQUAL(VMP_CU_ATTR_RDMA_WITH_VMM, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED);
  EQUAL(VMP_CU_ATTR_MEMORY_POOLS, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED);
  EQUAL(VMP_CU_ATTR_RDMA, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED);
  EQUAL(VMP_CU_ATTR_HANDLE_FABRIC, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED);
  EQUAL(VMP_CU_ATTR_MULTICAST, CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED);
  EQUAL(VMP_CU_ATTR_HOST_NUMA_ID, CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID);
}

// ---- structures ----

// SAME_FIELD: one place and one size. SAME_STRUCT: one size and one alignment.
#define SAME_FIELD(ours, our_field, cudas, cuda_field)                                                              \
  do {                                                                                                              \
    _Static_assert(offsetof(ours, our_field) == offsetof(cudas, cuda_field), #ours "." #our_field " is misplaced"); \
    VEXPECT_UINT_EQ(offsetof(ours, our_field), offsetof(cudas, cuda_field));                                        \
    VEXPECT_UINT_EQ(sizeof(((ours *)NULL)->our_field), sizeof(((cudas *)NULL)->cuda_field));                        \
  } while (0)
#define SAME_STRUCT(ours, cudas)                                                           \
  do {                                                                                     \
    _Static_assert(sizeof(ours) == sizeof(cudas), #ours " is not as large as " #cudas);    \
    _Static_assert(_Alignof(ours) == _Alignof(cudas), #ours " is not aligned as " #cudas); \
    VEXPECT_UINT_EQ(sizeof(ours), sizeof(cudas));                                          \
  } while (0)

VTEST(CudaTypes, Structures) {
  SAME_STRUCT(vmp_cu_location, CUmemLocation);
  SAME_FIELD(vmp_cu_location, type, CUmemLocation, type);
  SAME_FIELD(vmp_cu_location, id, CUmemLocation, id);

  SAME_STRUCT(vmp_cu_mem_prop, CUmemAllocationProp);
  SAME_FIELD(vmp_cu_mem_prop, type, CUmemAllocationProp, type);
  SAME_FIELD(vmp_cu_mem_prop, requested_handle_types, CUmemAllocationProp, requestedHandleTypes);
  SAME_FIELD(vmp_cu_mem_prop, location, CUmemAllocationProp, location);
  SAME_FIELD(vmp_cu_mem_prop, win32_handle_meta_data, CUmemAllocationProp, win32HandleMetaData);
  SAME_FIELD(vmp_cu_mem_prop, alloc_flags, CUmemAllocationProp, allocFlags);
  SAME_FIELD(vmp_cu_mem_prop, alloc_flags.compression_type, CUmemAllocationProp, allocFlags.compressionType);
  SAME_FIELD(vmp_cu_mem_prop, alloc_flags.gpu_direct_rdma_capable, CUmemAllocationProp,
             allocFlags.gpuDirectRDMACapable);
  SAME_FIELD(vmp_cu_mem_prop, alloc_flags.usage, CUmemAllocationProp, allocFlags.usage);
  SAME_FIELD(vmp_cu_mem_prop, alloc_flags.reserved, CUmemAllocationProp, allocFlags.reserved);

  SAME_STRUCT(vmp_cu_access_desc, CUmemAccessDesc);
  SAME_FIELD(vmp_cu_access_desc, location, CUmemAccessDesc, location);
  SAME_FIELD(vmp_cu_access_desc, flags, CUmemAccessDesc, flags);
}

// ---- kinds of parameters ----

// X(kind, our type, CUDA's type). Pointers stand beside what they point to: the pointed-to types are kinds too, or
// structures from above.
#define KINDS(X)                                                    \
  X(uint, unsigned, unsigned int)                                   \
  X(int, int, int)                                                  \
  X(u8, unsigned char, unsigned char)                               \
  X(size, size_t, size_t)                                           \
  X(flags64, unsigned long long, unsigned long long)                \
  X(code, int, CUresult)                                            \
  X(attribute, int, CUdevice_attribute)                             \
  X(granularity, int, CUmemAllocationGranularity_flags)             \
  X(handle_type, int, CUmemAllocationHandleType)                    \
  X(capture_mode, int, CUstreamCaptureMode)                         \
  X(capture_status, int, CUstreamCaptureStatus)                     \
  X(device, vmp_cu_device, CUdevice_v1)                             \
  X(ptr, vmp_cu_ptr, CUdeviceptr_v2)                                \
  X(handle, vmp_cu_handle, CUmemGenericAllocationHandle_v1)         \
  X(context, vmp_cu_context, CUcontext)                             \
  X(stream, vmp_cu_stream, CUstream)                                \
  X(event, vmp_cu_event, CUevent)                                   \
  X(graph, void *, CUgraph)                                         \
  X(host_fn, vmp_cu_host_fn, CUhostFn)                              \
  X(data, void *, void *)                                           \
  X(const_data, const void *, const void *)                         \
  X(real, float, float)                                             \
  X(text, char *, char *)                                           \
  X(out_text, const char **, const char **)                         \
  X(out_int, int *, int *)                                          \
  X(out_size, size_t *, size_t *)                                   \
  X(out_flags64, unsigned long long *, unsigned long long *)        \
  X(out_capture_mode, int *, CUstreamCaptureMode *)                 \
  X(out_capture_status, int *, CUstreamCaptureStatus *)             \
  X(out_device, vmp_cu_device *, CUdevice_v1 *)                     \
  X(out_ptr, vmp_cu_ptr *, CUdeviceptr_v2 *)                        \
  X(out_handle, vmp_cu_handle *, CUmemGenericAllocationHandle_v1 *) \
  X(out_context, vmp_cu_context *, CUcontext *)                     \
  X(out_stream, vmp_cu_stream *, CUstream *)                        \
  X(out_event, vmp_cu_event *, CUevent *)                           \
  X(out_graph, void **, CUgraph *)                                  \
  X(out_data, void **, void **)                                     \
  X(out_real, float *, float *)                                     \
  X(prop, const vmp_cu_mem_prop *, const CUmemAllocationProp_v1 *)  \
  X(out_prop, vmp_cu_mem_prop *, CUmemAllocationProp_v1 *)          \
  X(desc, const vmp_cu_access_desc *, const CUmemAccessDesc_v1 *)   \
  X(location, const vmp_cu_location *, const CUmemLocation_v1 *)

#define X(kind, ours, cudas) \
  typedef ours ours_##kind;  \
  typedef cudas cudas_##kind;
KINDS(X)
#undef X

// How a value is passed: by its class. __builtin_classify_type gives one number per class (integers and enumerations
// are promoted alike).
#define CLASS_OF(type) __builtin_classify_type(*(type *)NULL)

VTEST(CudaTypes, KindsArePassedAlike) {
#define X(kind, ours, cudas)                                                                           \
  _Static_assert(sizeof(ours_##kind) == sizeof(cudas_##kind), #ours " has not the size of " #cudas);   \
  _Static_assert(_Alignof(ours_##kind) == _Alignof(cudas_##kind), #ours " is not aligned as " #cudas); \
  VEXPECT_UINT_EQ(sizeof(ours_##kind), sizeof(cudas_##kind));                                          \
  if (CLASS_OF(ours_##kind) != CLASS_OF(cudas_##kind)) VADD_FAILURE("%s is not passed like %s", #ours, #cudas);
  KINDS(X)
#undef X
}

// What pointers point to, where the two types differ in name: same size again.
VTEST(CudaTypes, PointedToTypesAreOfOneSize) {
#define X(kind)                                                                                      \
  _Static_assert(sizeof(*(ours_##kind)NULL) == sizeof(*(cudas_##kind)NULL), #kind ": sizes differ"); \
  VEXPECT_UINT_EQ(sizeof(*(ours_##kind)NULL), sizeof(*(cudas_##kind)NULL));
  X(text)
  X(out_text)
  X(out_int) X(out_size) X(out_flags64) X(out_capture_mode) X(out_capture_status) X(out_device) X(out_ptr) X(out_handle)
      X(out_context) X(out_stream) X(out_event) X(out_graph) X(out_data) X(out_real) X(prop) X(out_prop) X(desc)
          X(location)
#undef X
}

// ---- calls ----

// X(name, PFN_ type, kinds of the parameters...)
#define SIGNATURES(X)                                                                                      \
  X(init, PFN_cuInit_v2000, uint)                                                                          \
  X(driver_get_version, PFN_cuDriverGetVersion_v2020, out_int)                                             \
  X(get_error_name, PFN_cuGetErrorName_v6000, code, out_text)                                              \
  X(get_error_string, PFN_cuGetErrorString_v6000, code, out_text)                                          \
  X(device_get_count, PFN_cuDeviceGetCount_v2000, out_int)                                                 \
  X(device_get, PFN_cuDeviceGet_v2000, out_device, int)                                                    \
  X(device_get_name, PFN_cuDeviceGetName_v2000, text, int, device)                                         \
  X(device_get_attribute, PFN_cuDeviceGetAttribute_v2000, out_int, attribute, device)                      \
  X(device_total_mem, PFN_cuDeviceTotalMem_v3020, out_size, device)                                        \
  X(device_can_access_peer, PFN_cuDeviceCanAccessPeer_v4000, out_int, device, device)                      \
  X(primary_ctx_retain, PFN_cuDevicePrimaryCtxRetain_v7000, out_context, device)                           \
  X(primary_ctx_release, PFN_cuDevicePrimaryCtxRelease_v11000, device)                                     \
  X(primary_ctx_reset, PFN_cuDevicePrimaryCtxReset_v11000, device)                                         \
  X(ctx_get_current, PFN_cuCtxGetCurrent_v4000, out_context)                                               \
  X(ctx_set_current, PFN_cuCtxSetCurrent_v4000, context)                                                   \
  X(ctx_push_current, PFN_cuCtxPushCurrent_v4000, context)                                                 \
  X(ctx_pop_current, PFN_cuCtxPopCurrent_v4000, out_context)                                               \
  X(ctx_get_device, PFN_cuCtxGetDevice_v2000, out_device)                                                  \
  X(ctx_enable_peer_access, PFN_cuCtxEnablePeerAccess_v4000, context, uint)                                \
  X(ctx_disable_peer_access, PFN_cuCtxDisablePeerAccess_v4000, context)                                    \
  X(mem_get_info, PFN_cuMemGetInfo_v3020, out_size, out_size)                                              \
  X(mem_get_allocation_granularity, PFN_cuMemGetAllocationGranularity_v10020, out_size, prop, granularity) \
  X(mem_address_reserve, PFN_cuMemAddressReserve_v10020, out_ptr, size, size, ptr, flags64)                \
  X(mem_address_free, PFN_cuMemAddressFree_v10020, ptr, size)                                              \
  X(mem_create, PFN_cuMemCreate_v10020, out_handle, size, prop, flags64)                                   \
  X(mem_release, PFN_cuMemRelease_v10020, handle)                                                          \
  X(mem_map, PFN_cuMemMap_v10020, ptr, size, size, handle, flags64)                                        \
  X(mem_unmap, PFN_cuMemUnmap_v10020, ptr, size)                                                           \
  X(mem_set_access, PFN_cuMemSetAccess_v10020, ptr, size, desc, size)                                      \
  X(mem_get_access, PFN_cuMemGetAccess_v10020, out_flags64, location, ptr)                                 \
  X(mem_retain_allocation_handle, PFN_cuMemRetainAllocationHandle_v11000, out_handle, data)                \
  X(mem_get_allocation_properties, PFN_cuMemGetAllocationPropertiesFromHandle_v10020, out_prop, handle)    \
  X(mem_export, PFN_cuMemExportToShareableHandle_v10020, data, handle, handle_type, flags64)               \
  X(mem_import, PFN_cuMemImportFromShareableHandle_v10020, out_handle, data, handle_type)                  \
  X(mem_alloc, PFN_cuMemAlloc_v3020, out_ptr, size)                                                        \
  X(mem_free, PFN_cuMemFree_v3020, ptr)                                                                    \
  X(mem_host_alloc, PFN_cuMemHostAlloc_v2020, out_data, size, uint)                                        \
  X(mem_free_host, PFN_cuMemFreeHost_v2000, data)                                                          \
  X(stream_create, PFN_cuStreamCreate_v2000, out_stream, uint)                                             \
  X(stream_destroy, PFN_cuStreamDestroy_v4000, stream)                                                     \
  X(stream_synchronize, PFN_cuStreamSynchronize_v2000, stream)                                             \
  X(stream_query, PFN_cuStreamQuery_v2000, stream)                                                         \
  X(stream_wait_event, PFN_cuStreamWaitEvent_v3020, stream, event, uint)                                   \
  X(stream_get_id, PFN_cuStreamGetId_v12000, stream, out_flags64)                                          \
  X(stream_get_ctx, PFN_cuStreamGetCtx_v9020, stream, out_context)                                         \
  X(stream_is_capturing, PFN_cuStreamIsCapturing_v10000, stream, out_capture_status)                       \
  X(stream_begin_capture, PFN_cuStreamBeginCapture_v10010, stream, capture_mode)                           \
  X(stream_end_capture, PFN_cuStreamEndCapture_v10000, stream, out_graph)                                  \
  X(graph_destroy, PFN_cuGraphDestroy_v10000, graph)                                                       \
  X(thread_exchange_capture_mode, PFN_cuThreadExchangeStreamCaptureMode_v10010, out_capture_mode)          \
  X(event_create, PFN_cuEventCreate_v2000, out_event, uint)                                                \
  X(event_destroy, PFN_cuEventDestroy_v4000, event)                                                        \
  X(event_record, PFN_cuEventRecord_v2000, event, stream)                                                  \
  X(event_query, PFN_cuEventQuery_v2000, event)                                                            \
  X(event_synchronize, PFN_cuEventSynchronize_v2000, event)                                                \
  X(event_elapsed_time, PFN_cuEventElapsedTime_v2000, out_real, event, event)                              \
  X(launch_host_func, PFN_cuLaunchHostFunc_v10000, stream, host_fn, data)                                  \
  X(memcpy_htod, PFN_cuMemcpyHtoD_v3020, ptr, const_data, size)                                            \
  X(memcpy_dtoh, PFN_cuMemcpyDtoH_v3020, data, ptr, size)                                                  \
  X(memcpy_dtod, PFN_cuMemcpyDtoD_v3020, ptr, ptr, size)                                                   \
  X(memcpy_htod_async, PFN_cuMemcpyHtoDAsync_v3020, ptr, const_data, size, stream)                         \
  X(memcpy_dtoh_async, PFN_cuMemcpyDtoHAsync_v3020, data, ptr, size, stream)                               \
  X(memcpy_dtod_async, PFN_cuMemcpyDtoDAsync_v3020, ptr, ptr, size, stream)                                \
  X(memset_d8, PFN_cuMemsetD8_v3020, ptr, u8, size)                                                        \
  X(memset_d8_async, PFN_cuMemsetD8Async_v3020, ptr, u8, size, stream)

#define TYPES(whose, ...) CAT(TYPES_, COUNT(__VA_ARGS__))(whose, __VA_ARGS__)
#define COUNT(...) COUNT_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_(a, b, c, d, e, f, n, ...) n
#define CAT(a, b) CAT_(a, b)
#define CAT_(a, b) a##b
#define TYPES_1(w, a) w##_##a
#define TYPES_2(w, a, b) TYPES_1(w, a), TYPES_1(w, b)
#define TYPES_3(w, a, b, c) TYPES_2(w, a, b), TYPES_1(w, c)
#define TYPES_4(w, a, b, c, d) TYPES_3(w, a, b, c), TYPES_1(w, d)
#define TYPES_5(w, a, b, c, d, e) TYPES_4(w, a, b, c, d), TYPES_1(w, e)

// seen: the PFN_ type that this file proved for a call.
static const char *seen[VMP_CALL_COUNT];

VTEST(CudaTypes, Calls) {
#define X(name, pfn, ...)                                                                           \
  _Static_assert(__builtin_types_compatible_p(__typeof__(((vmp_driver_ops *)NULL)->name),           \
                                              int (*)(vmp_driver *, TYPES(ours, __VA_ARGS__))),     \
                 "driver.h's " #name " has other parameters than its line here");                   \
  _Static_assert(__builtin_types_compatible_p(pfn, CUresult(CUDAAPI *)(TYPES(cudas, __VA_ARGS__))), \
                 #pfn " has other parameters than " #name "'s line here");                          \
  seen[VMP_CALL_##name] = #pfn;
  SIGNATURES(X)
#undef X
  _Static_assert(
      __builtin_types_compatible_p(__typeof__(((vmp_driver_ops *)NULL)->ctx_synchronize), int (*)(vmp_driver *)),
      "driver.h's ctx_synchronize has parameters");
  _Static_assert(__builtin_types_compatible_p(PFN_cuCtxSynchronize_v2000, CUresult(CUDAAPI *)(void)),
                 "PFN_cuCtxSynchronize_v2000 has parameters");
  seen[VMP_CALL_ctx_synchronize] = "PFN_cuCtxSynchronize_v2000";

  // Every call of the list was proved, against the version that the list pins.
  static const struct {
    vmp_call call;
    const char *pfn;
  } pinned[] = {
#define X(name, symbol, version, ...) {VMP_CALL_##name, "PFN_" symbol "_v" #version},
      VMP_DRIVER_CALLS(X) VMP_DRIVER_CALLS_0(X)
#undef X
  };
  for (size_t i = 0; i < sizeof pinned / sizeof pinned[0]; i++) VEXPECT_STR_EQ(seen[pinned[i].call], pinned[i].pfn);
  VEXPECT_UINT_EQ(sizeof pinned / sizeof pinned[0], VMP_CALL_COUNT);
}

// The entry points that driver_cuda.c finds without the list.
VTEST(CudaTypes, GetProcAddress) {
  typedef int (*v1)(const char *, void **, int, uint64_t);
  typedef int (*v2)(const char *, void **, int, uint64_t, int *);
  _Static_assert(__builtin_types_compatible_p(PFN_cuGetProcAddress_v11030,
                                              CUresult(CUDAAPI *)(const char *, void **, int, cuuint64_t)),
                 "cuGetProcAddress has changed");
  _Static_assert(__builtin_types_compatible_p(
                     PFN_cuGetProcAddress_v12000,
                     CUresult(CUDAAPI *)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *)),
                 "cuGetProcAddress_v2 has changed");
  VEXPECT_UINT_EQ(sizeof(v1), sizeof(PFN_cuGetProcAddress_v11030));
  VEXPECT_UINT_EQ(sizeof(v2), sizeof(PFN_cuGetProcAddress_v12000));
  VEXPECT_UINT_EQ(sizeof(cuuint64_t), sizeof(uint64_t));
  VEXPECT_UINT_EQ(sizeof(CUdriverProcAddressQueryResult), sizeof(int));
  VEXPECT_INT_EQ(CU_GET_PROC_ADDRESS_LEGACY_STREAM, 1);
  VEXPECT_INT_EQ(CU_GET_PROC_ADDRESS_SUCCESS, 0);
}

#endif  // HAVE_CUDA_13
