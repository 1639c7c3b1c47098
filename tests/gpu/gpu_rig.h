// gpu_rig.h: a driver and a device for tests that run on a GPU, and, told so by --driver=host, on the host driver.
//
// Owns: opening what the command line names, skipping loudly where there is no GPU, small steps that must work.
//     --driver=cuda|host   default cuda
//     --device=N           default 0
//     --library=PATH       instead of libcuda.so.1
#ifndef VMPOOL_TESTS_GPU_GPU_RIG_H_
#define VMPOOL_TESTS_GPU_GPU_RIG_H_

#include "tests/support/vtest.h"
#include "vmm/context.h"
#include "vmm/device.h"
#include "vmm/driver.h"

typedef struct gpu_rig {
  vmp_driver *driver;
  vmp_device device;
  vmp_cu_context context;
  vmp_context_saved saved;
  bool entered;
  uint64_t granule;  // of the device
} gpu_rig;

// gpu_rig_setup opens the driver and makes the device's primary context current. Where there is no GPU, the test is
// skipped, and says so; a driver that is there but doesn't work fails it.
void gpu_rig_setup(gpu_rig *f);
// gpu_rig_setup_with does the same with options for the host driver, where that one is asked for; NULL: the defaults.
struct vmp_host_options;
void gpu_rig_setup_with(gpu_rig *f, const struct vmp_host_options *host_options);
// gpu_rig_teardown undoes it. On the host driver it also fails the test for anything that it left behind.
void gpu_rig_teardown(gpu_rig *f);

// gpu_rig_is_host says whether the host driver was asked for.
bool gpu_rig_is_host(void);

// The steps fail the test where they don't work. Sizes are in granules; chunks have no shareable handle.
vmp_cu_ptr gpu_reserve(gpu_rig *f, uint64_t granules);
vmp_cu_handle gpu_create(gpu_rig *f, uint64_t granules);
void gpu_map(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules, vmp_cu_handle handle);
void gpu_grant(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules);  // reading and writing, to the device itself
void gpu_unmap(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules);
void gpu_release(gpu_rig *f, vmp_cu_handle handle);
void gpu_free(gpu_rig *f, vmp_cu_ptr ptr, uint64_t granules);

// gpu_write fills `bytes` at ptr with a pattern of `seed`; gpu_expect reads them and compares. Both wait for the
// device.
void gpu_write(gpu_rig *f, vmp_cu_ptr ptr, size_t bytes, uint32_t seed);
void gpu_expect(gpu_rig *f, vmp_cu_ptr ptr, size_t bytes, uint32_t seed);

#endif  // VMPOOL_TESTS_GPU_GPU_RIG_H_
