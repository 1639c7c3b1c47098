// remap.h: how somebody who registered the pool's memory elsewhere (NCCL, RDMA) hears of its remapping. Part of the
// public interface.
#ifndef VMPOOL_VMM_REMAP_H_
#define VMPOOL_VMM_REMAP_H_

#include <stdint.h>

// vmp_remap_callbacks: either may be NULL. Both run without any lock of the pool, on the thread that makes the driver
// call, and may call nothing of this pool but vmp_pool_stats. `generation` is the mapping's: it is never used for
// another mapping of the pool.
//   before_unmap  the mapping is about to go; its work is complete. When the unmap then fails, after_map follows
//                 if the memory stays in use; it may be announced again.
//   after_map     the range is mapped and accessible, and nobody has it yet
typedef struct vmp_remap_callbacks {
  void *self;
  void (*before_unmap)(void *self, uint64_t address, uint64_t bytes, uint64_t generation);
  void (*after_map)(void *self, uint64_t address, uint64_t bytes, uint64_t generation);
} vmp_remap_callbacks;

#define VMP_MAX_REMAP_CALLBACKS 8u

#endif  // VMPOOL_VMM_REMAP_H_
