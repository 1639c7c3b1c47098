// mid.h: coalescing best fit in steps of 512 bytes, inside arenas of addresses that buddy supplies.
//
// Owns: every block above the slab limit (and slab's spans), and the free space between them. Does not own
// mapping: free space may be mapped, unmapped or a mixture, slot by slot, and it changes under mid's feet
// (chunks are taken, trimmed, mapped ahead); mid learns of it through next_change.
//
//     arena  |used|   free extent          |used|free|used|                                   |
//     slots  [ mapped | mapped | unmapped | mapped  | mapped | unmapped ....                  ]
//                    '-run-'  (a run: the mapped part of a free extent)
//
// Placement: first a mapped run that fits (no driver call): no wait, fewest parked chunks pinned, best size, lowest
// address; else the place with the fewest slots to map: growing a mapped run, or the best-fitting extent; else,
// when chunk sizes don't fit there (VMP_ERROR_FRAGMENTED), a fresh place with room around it; else a new arena.
// All searches are bounded; everything is O(log n) in the number of blocks.
//
// Invariants
//   - used and free parts tile each arena; no two free extents touch; all lengths are multiples of the step.
//   - The runs of an extent are disjoint, in order, inside it, and are exactly its mapped parts as of the cursor.
//   - free allocates nothing and can't fail.
#ifndef VMPOOL_POOL_MID_H_
#define VMPOOL_POOL_MID_H_

#include "pool/buddy.h"
#include "vmm/backing_ops.h"
#include "vmm/error.h"

#define VMP_MID_STEP_BYTES UINT64_C(512)

typedef struct vmp_mid vmp_mid;

// vmp_mid_supply: where arenas come from (buddy, or a fake). take gives at least `bytes` of bare addresses.
typedef struct vmp_mid_supply {
  void *self;
  vmp_status (*take)(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes);
  void (*give)(void *self, uint64_t offset);  // a whole arena back, when it is empty and nothing of it is mapped
} vmp_mid_supply;

typedef struct vmp_mid_options {
  uint64_t arena_bytes;  // what an arena has at least
} vmp_mid_options;

vmp_status vmp_mid_create(vmp_mid **out_mid, const vmp_backing_ops *ops, const vmp_mid_supply *supply,
                          const vmp_mid_options *options);
void vmp_mid_destroy(vmp_mid *mid);

// vmp_mid_alloc places and claims a block. VMP_ERROR_OUT_OF_ADDRESS_SPACE (from the supply),
// VMP_ERROR_HOST_OUT_OF_MEMORY, and whatever the claim returned at the best place.
// `owner` is kept with the block (slab stores its span there, others NULL).
vmp_status vmp_mid_alloc(vmp_mid *mid, const vmp_request *request, void *owner, vmp_placed *out_placed);

// vmp_mid_free gives a block back; `offset` must be its start. The claim is released with `fence`.
void vmp_mid_free(vmp_mid *mid, uint64_t offset, vmp_fence fence);

// vmp_mid_find: the used block that holds `offset` (which may be inside it). O(1) in the number of blocks.
bool vmp_mid_find(const vmp_mid *mid, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes, void **out_owner);

// vmp_mid_owns: whether `offset` lies in one of mid's arenas.
bool vmp_mid_owns(const vmp_mid *mid, uint64_t offset);

typedef struct vmp_mid_stats {
  uint64_t arenas, arena_bytes;
  uint64_t blocks, block_bytes;       // used
  uint64_t extents, free_bytes;       // free, mapped or not
  uint64_t runs, free_mapped_bytes;   // as of the last call that looked
  uint64_t largest_run_bytes;         // largest block to be had without a driver call
  uint64_t metadata_bytes;
} vmp_mid_stats;
void vmp_mid_get_stats(vmp_mid *mid, vmp_mid_stats *out);

void vmp_mid_walk(const vmp_mid *mid, vmp_walk_fn fn, void *context);
size_t vmp_mid_check(vmp_mid *mid, vmp_report *report);

#endif  // VMPOOL_POOL_MID_H_
