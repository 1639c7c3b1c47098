// backing_rig.h: a backing on the host driver, with a lock whose state the tests can see.
#ifndef VMPOOL_TESTS_VMM_BACKING_RIG_H_
#define VMPOOL_TESTS_VMM_BACKING_RIG_H_

#include "tests/support/vtest.h"
#include "vmm/backing.h"
#include "vmm/driver_host.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SLOT (2 * MIB)

typedef struct rig {
  vmp_driver *driver;
  vmp_cu_context context;
  vmp_clock *clock;
  vmp_backing *backing;
  vmp_backing_ops ops;
  uint64_t base, bytes;  // the first reservation
  int locked;            // 1 while the lock is held; unlock and lock must alternate
} rig;

// rig_open makes everything: a device of `memory_bytes`, `reserve_bytes` of addresses. `options` may preset fields
// other than driver, clock, context, hooks.
void rig_open(rig *r, uint64_t memory_bytes, uint64_t reserve_bytes, const vmp_backing_options *options);
// rig_options: granule 2 MiB, chunks up to `chunk_max_bytes`, no growth, no limits.
vmp_backing_options rig_options(uint64_t chunk_max_bytes);
// rig_close destroys everything and expects that the driver has nothing left.
void rig_close(rig *r);
// rig_check expects backing, clock and host driver to be consistent, and the driver to hold what backing says.
void rig_check(rig *r);
// rig_expect_no_violations expects that the driver has seen no broken rule and no bad touch.
void rig_expect_no_violations(rig *r);

vmp_status rig_claim(rig *r, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_fence *out_fence);
void rig_release(rig *r, uint64_t offset, uint64_t bytes, vmp_fence fence);
vmp_backing_stats rig_stats(const rig *r);
vmp_host_census rig_census(const rig *r);
vmp_cu_stream rig_stream(rig *r);
uint64_t rig_calls(const rig *r, vmp_call call);

#endif  // VMPOOL_TESTS_VMM_BACKING_RIG_H_
