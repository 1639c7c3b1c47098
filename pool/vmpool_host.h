// vmpool_host.h: what people without a GPU need of the host driver: streams, copies, fills, touches, stepping.
//
// Public, valid C++, needs no CUDA. Every function takes a driver opened with VMP_DRIVER_HOST and returns
// VMP_ERROR_INVALID_VALUE for another one. All are thread-safe; sizes are bytes. What is queued runs when the work mode
// says, so host memory that a copy names must live until the stream has been synchronised. Errors of the functions that
// name a stream or a device: those of the driver (VMP_ERROR_DRIVER, VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_STICKY, ...).
#ifndef VMPOOL_POOL_VMPOOL_HOST_H_
#define VMPOOL_POOL_VMPOOL_HOST_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_host_work_mode: when queued work runs.
typedef enum vmp_host_work_mode {
  VMP_WORK_LATE = 0,   // only when the host waits for it
  VMP_WORK_EARLY = 1,  // at once
  VMP_WORK_SEED = 2,   // interleaved, by a seed
  VMP_WORK_LAG = 3,    // once N later operations are queued
} vmp_host_work_mode;

// vmp_host_work_set changes the mode from here on; `seed_or_lag` belongs to the last two modes. VMP_ERROR_INVALID_VALUE:
// there is no such mode.
VMP_API vmp_status vmp_host_work_set(vmp_driver *driver, vmp_host_work_mode mode, uint64_t seed_or_lag);
// vmp_host_work_step runs up to `max_operations` queued operations; *out_done may be NULL.
VMP_API vmp_status vmp_host_work_step(vmp_driver *driver, uint64_t max_operations, uint64_t *out_done);

// vmp_host_stream_create makes a stream of a device, the caller's until vmp_host_stream_destroy, which lets queued work
// drain; vmp_host_stream_synchronize waits for what is queued. NULL, the legacy stream, can't be destroyed:
// VMP_ERROR_INVALID_VALUE.
VMP_API vmp_status vmp_host_stream_create(vmp_driver *driver, int device, vmp_stream *out_stream);
VMP_API vmp_status vmp_host_stream_destroy(vmp_driver *driver, vmp_stream stream);
VMP_API vmp_status vmp_host_stream_synchronize(vmp_driver *driver, int device, vmp_stream stream);

// vmp_host_copy_in, _copy_out, _copy and _fill queue an operation, in stream order. `device` says whose legacy stream
// NULL is.
VMP_API vmp_status vmp_host_copy_in(vmp_driver *driver, int device, void *dst, const void *host_src, size_t bytes, vmp_stream stream);
VMP_API vmp_status vmp_host_copy_out(vmp_driver *driver, int device, void *host_dst, const void *src, size_t bytes, vmp_stream stream);
VMP_API vmp_status vmp_host_copy(vmp_driver *driver, int device, void *dst, const void *src, size_t bytes, vmp_stream stream);
VMP_API vmp_status vmp_host_fill(vmp_driver *driver, int device, void *dst, unsigned char value, size_t bytes, vmp_stream stream);
// vmp_host_kernel queues a kernel that reads (and, if `write` is not 0, writes) the range. Its access is judged when
// it runs: memory that is not mapped by then, or mapped anew, is a bad touch (vmp_host_work_counts).
VMP_API vmp_status vmp_host_kernel(vmp_driver *driver, int device, void *ptr, size_t bytes, int write, vmp_stream stream);

// vmp_host_work_check_order switches on (1) or off the check that accesses of several streams to the same physical bytes,
// one of them a write, are in order: by stream waits, the legacy stream, or what the host has waited for. A pool that
// hands memory to a stream before it may be used fails it even where the memory is mapped all the time. Switch it on
// before the first operation. Off by default: a program that touches one block on two streams must order them itself.
VMP_API vmp_status vmp_host_work_check_order(vmp_driver *driver, int check);

typedef struct vmp_host_work_counts_data {
  size_t struct_size;
  uint64_t queued, done, bad_touches, violations;
  uint64_t stream_waits, unfinished_stream_waits, host_waits;
  double modelled_us;  // virtual time by the cost table
  uint64_t unordered;  // with vmp_host_work_check_order: accesses of one stream that nothing orders behind another's
} vmp_host_work_counts_data;
#define VMP_HOST_WORK_COUNTS_INIT VMP_INIT(vmp_host_work_counts_data)
// vmp_host_work_counts tells what has been queued and judged since the driver was opened.
VMP_API vmp_status vmp_host_work_counts(vmp_driver *driver, vmp_host_work_counts_data *out_counts);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_HOST_H_
