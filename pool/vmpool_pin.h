// vmpool_pin.h: memory that must stay where it is, and how to hear of memory that doesn't. Included by vmpool.h.
//
// For whoever registers the pool's memory elsewhere: NCCL's user buffers, RDMA memory regions, CUDA IPC. A registration
// names physical memory under an address. Two ways keep it from being stale:
//
//   pin                     while a range is pinned its mapping stays: it is not unmapped, given to another address,
//                           gathered or suspended, and vmp_realloc doesn't move it. Not even a free ends that: the
//                           addresses may serve another block then, on the same physical memory.
//   callbacks, generations  a cache of registrations drops an entry in before_unmap; or it keeps the generation of the
//                           range beside the entry, and registers anew when vmp_range_generation answers another one.
#ifndef VMPOOL_POOL_VMPOOL_PIN_H_
#define VMPOOL_POOL_VMPOOL_PIN_H_

#include "pool/vmpool.h"
#include "vmm/remap.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_pin pins a live block; `ptr` is the block's own address. Pins count: each needs its vmp_unpin. `reason` is shown
// by the snapshot; it is copied once per text and kept as long as the pool (as names of blocks are); NULL: none.
// Makes no driver call. VMP_ERROR_NOT_A_BLOCK, VMP_ERROR_SUSPENDED (its memory is not on the device),
// VMP_ERROR_INVALID_VALUE and VMP_ERROR_LIMIT (the reason, as for names), VMP_ERROR_HOST_OUT_OF_MEMORY,
// VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pin(vmp_pool *pool, void *ptr, const char *reason);

// vmp_unpin takes the youngest pin at `ptr` back, whether the block is still live or not. VMP_ERROR_NOT_A_BLOCK:
// nothing is pinned there. VMP_ERROR_FORKED. Allocates nothing, makes no driver call.
VMP_API vmp_status vmp_unpin(vmp_pool *pool, void *ptr);

// vmp_range_generation tells the generation of the mappings under [ptr, ptr + bytes), which may be any part of the
// pool's address space: 0 when part of it is not mapped, else the youngest of them. Two equal answers that aren't 0
// mean that nothing of the range was remapped in between. VMP_ERROR_NOT_A_BLOCK (outside the pool),
// VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_range_generation(vmp_pool *pool, const void *ptr, size_t bytes, uint64_t *out_generation);

// vmp_remap_register adds a pair of callbacks, which is copied; `self` tells pairs apart. From its return on, every
// mapping that is made or removed is announced. VMP_ERROR_INVALID_VALUE (both NULL, or `self` is registered already),
// VMP_ERROR_LIMIT (more than VMP_MAX_REMAP_CALLBACKS), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_remap_register(vmp_pool *pool, const vmp_remap_callbacks *callbacks);

// vmp_remap_unregister removes the pair with this `self`, and returns when no call of it is under way any more. Not to
// be called from a callback. VMP_ERROR_INVALID_VALUE: there is none. VMP_ERROR_FORKED.
VMP_API vmp_status vmp_remap_unregister(vmp_pool *pool, const void *self);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_PIN_H_
