// device_copy.h: copies between addresses of the pool's device, in stream order.
//
// Owns nothing. Makes the right context current around the call. Hold no lock of the pool.
#ifndef VMPOOL_POOL_DEVICE_COPY_H_
#define VMPOOL_POOL_DEVICE_COPY_H_

#include "pool/vmpool.h"
#include "vmm/driver.h"

// vmp_device_copy queues a copy on `stream`. `context`: the device's primary context, for streams that don't tell their
// own. VMP_ERROR_DRIVER, VMP_ERROR_STICKY and the other statuses of a failed driver call: nothing was queued.
vmp_status vmp_device_copy(vmp_driver *driver, vmp_cu_context context, vmp_cu_ptr dst, vmp_cu_ptr src, uint64_t bytes,
                           vmp_stream stream);

#endif  // VMPOOL_POOL_DEVICE_COPY_H_
