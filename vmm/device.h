// device.h: what a pool must know of a device before it is made, and whether the device can carry a pool at all.
//
// Owns: the checks and their sentences. Uses the driver's table alone, so both drivers answer. Keeps no state.
#ifndef VMPOOL_VMM_DEVICE_H_
#define VMPOOL_VMM_DEVICE_H_

#include <stdint.h>

#include "vmm/driver.h"
#include "vmm/error.h"

// vmp_device: one device that has virtual memory management.
typedef struct vmp_device {
  int ordinal;             // as the driver counts, and the id of locations
  vmp_cu_device device;    // what calls on devices take
  uint64_t granule_bytes;  // larger of the minimum and the recommended allocation granularity; a power of two
  uint64_t total_bytes;    // physical memory
  char name[96];
} vmp_device;

// vmp_device_require_vmm fills in *out_device, or fails and leaves it untouched. Needs no context; thread-safe.
// VMP_ERROR_NO_DEVICE (no device of that number), VMP_ERROR_NO_VMM (the device lacks virtual memory management),
// VMP_ERROR_NOT_SUPPORTED (a granularity that is no power of two), and the statuses of a failed driver call.
vmp_status vmp_device_require_vmm(vmp_driver *driver, int ordinal, vmp_device *out_device);

// vmp_device_mem_prop describes plain pinned memory on a device: what the pool's mem_create and granularity
// calls are given. `handle_types` is a set of VMP_CU_HANDLE_, NONE where the memory is not to be shared.
vmp_cu_mem_prop vmp_device_mem_prop(int ordinal, int handle_types);

#endif  // VMPOOL_VMM_DEVICE_H_
