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
// Placement: first a run that fits (no driver call): no wait, fewest parked chunks pinned, best size, lowest
// address (below 128 KiB: any); else the place with the fewest slots to map: growing a run, or the best-fitting extent;
// else, when chunk sizes don't fit there (VMP_ERROR_FRAGMENTED), a fresh place with room around it; else a new arena.
// All searches are bounded (mid_place.c); everything is O(log n) in the number of blocks, or O(1).
//
// Fences are kept exactly: a free extent consists of parts, neighbours whose fences name different streams. A block
// placed over several parts waits for all of them; one placed in a part waits for that one alone.
//
// Invariants
//   - used and free parts tile each arena; no two free extents touch; all lengths are multiples of the step.
//   - no two touching parts of an extent are alike: both mapped or both not, with fences of the same streams.
//   - The runs are disjoint and are exactly the mapped parts of the extents, as of the last call that looked. (When
//     host memory for one runs out, the next call rebuilds them; until then fewer places are found without mapping.)
//   - free allocates nothing and can't fail.
//   - a failed allocation leaves blocks and free space as they were, but free parts under the refused place may have
//     been joined, with their fences merged (conservative).
//
// The caller holds the pool's lock around every call. vmp_mid_alloc may let go of it (claim, and take of the supply);
// other calls may run in between.
#ifndef VMPOOL_POOL_MID_H_
#define VMPOOL_POOL_MID_H_

#include "pool/buddy.h"
#include "vmm/backing_ops.h"
#include "vmm/error.h"

#define VMP_MID_STEP_BYTES UINT64_C(512)

typedef struct vmp_mid vmp_mid;

// vmp_mid_supply: where arenas come from (buddy, or a fake).
typedef struct vmp_mid_supply {
  void *self;
  // take gives at least `bytes` of bare addresses at a multiple of `alignment` (both multiples of the granule).
  // *out_fence: who may still touch what is mapped there. May let go of the lock. VMP_ERROR_OUT_OF_ADDRESS_SPACE and
  // whatever else fails.
  vmp_status (*take)(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes,
                     vmp_fence *out_fence);
  // give takes a whole arena back that is empty and of which nothing is mapped (or that take just gave, with its
  // fence). Doesn't let go of the lock, doesn't call back.
  void (*give)(void *self, uint64_t offset, vmp_fence fence);
} vmp_mid_supply;

typedef struct vmp_mid_options {
  uint64_t arena_bytes;      // what an arena has at least, as long as there are so many addresses
  uint64_t chunk_max_bytes;  // largest chunk: arenas and fresh places are aligned to it; 0: the granule
  bool edges;                // where memory is short, the ends of blocks may lie in chunks of other blocks. Chunks are
                             // of one granule then, and the operations have claim_shared and room
  double park_limit;         // with edges: memory is short, too, when more than this share of what is mapped is free
  bool few;                  // one of many mids: fewer pieces (VMP_MID_FEW_PIECES), and fewer addresses for their records
} vmp_mid_options;

// The records of pieces lie in a row, for which addresses are set aside: 7 GiB for 2^27 of them, 448 MiB for 2^23.
#define VMP_MID_FEW_PIECES (UINT32_C(1) << 23)

// vmp_mid_create copies its arguments; it takes no arena yet. VMP_ERROR_HOST_OUT_OF_MEMORY; VMP_ERROR_INVALID_VALUE
// when a size is no power of two (chunk) or no multiple of the step (granule).
vmp_status vmp_mid_create(vmp_mid **out_mid, const vmp_backing_ops *ops, const vmp_mid_supply *supply,
                          const vmp_mid_options *options);
// vmp_mid_destroy frees the bookkeeping only: live blocks are not released, arenas not given back. NULL is fine.
void vmp_mid_destroy(vmp_mid *mid);

// vmp_mid_alloc places and claims a block. `owner` is kept with the block (slab stores its span there, others NULL).
// MAY UNLOCK. Failures, after which no block and no free space has changed:
//   VMP_ERROR_INVALID_VALUE         bytes is 0 or no multiple of the step, alignment no power of two or too large
//   VMP_ERROR_OUT_OF_ADDRESS_SPACE  from the supply: no free place is large enough
//   VMP_ERROR_BUSY                  effort MAPPED and no mapped place is large enough; or every place that is large
//                                   enough has slots that can't be mapped now, and the supply has no more addresses
//   VMP_ERROR_FRAGMENTED            chunk sizes fit neither the best place nor a fresh one: a higher effort may help
//   VMP_ERROR_HOST_OUT_OF_MEMORY    from the bookkeeping, the supply or the claim
//   and whatever else the claim returned.
vmp_status vmp_mid_alloc(vmp_mid *mid, const vmp_request *request, void *owner, vmp_placed *out_placed);

// vmp_mid_look finds where a block could be put without more addresses: a mapped place, or else the one with the fewest
// slots to map. Places nothing; false when there is none that isn't blocked, or the request is no valid one. The effort
// of the request is not looked at.
bool vmp_mid_look(vmp_mid *mid, const vmp_request *request, uint64_t *out_offset, vmp_cost *out_cost);

// vmp_mid_free gives a block back; `offset` must be its start (vmp_mid_find). The claim is released with `fence`.
// Returns the bytes that the block held.
uint64_t vmp_mid_free(vmp_mid *mid, uint64_t offset, vmp_fence fence);

// vmp_mid_divide makes two blocks of the one that begins at `offset`: the second begins at `at`, a multiple of the step
// inside it. Both have its owner. The block must be isolated (its chunks are nobody else's). VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_HOST_OUT_OF_MEMORY; then nothing has changed.
vmp_status vmp_mid_divide(vmp_mid *mid, uint64_t offset, uint64_t at);

// vmp_mid_divide_evenly makes blocks of `each_bytes`, a multiple of the step, of the one at `offset`, whose size is a
// multiple of that: owners[i] is the owner of block i. False: no host memory, or not all of it is mapped and live where
// it is; nothing has changed.
bool vmp_mid_divide_evenly(vmp_mid *mid, uint64_t offset, uint64_t each_bytes, void *const *owners);

// vmp_mid_find: the used block that holds `offset` (which may be inside it). O(1) in the number of blocks. The out
// pointers may be NULL; they are written only when it returns true.
bool vmp_mid_find(const vmp_mid *mid, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes, void **out_owner);

// vmp_mid_word: of the used block that holds `offset` and has no owner, where a number of the caller's is kept; 0 to
// begin with. With an owner (*out_owner) or without such a block: NULL. *out_start: where the block begins. Valid until
// the block is freed.
uint64_t *vmp_mid_word(vmp_mid *mid, uint64_t offset, uint64_t *out_start, void **out_owner);
// vmp_mid_walk_words sees every block whose word isn't 0.
void vmp_mid_walk_words(const vmp_mid *mid, void (*fn)(void *context, uint64_t offset, uint64_t word), void *context);

// vmp_mid_owns: whether `offset` lies in one of mid's arenas.
bool vmp_mid_owns(const vmp_mid *mid, uint64_t offset);

typedef struct vmp_mid_stats {
  uint64_t arenas, arena_bytes;
  uint64_t blocks, block_bytes;      // used
  uint64_t extents, free_bytes;      // free, mapped or not
  uint64_t parts;                    // what extents consist of, told apart by fences and by being mapped
  uint64_t runs, free_mapped_bytes;  // mapped parts of extents
  uint64_t largest_extent_bytes;     // free, mapped or not
  uint64_t largest_run_bytes;        // largest block (alignment 512) to be had without a driver call
  uint64_t metadata_bytes;
} vmp_mid_stats;
// vmp_mid_get_stats catches up with changes of the mapping first.
void vmp_mid_get_stats(vmp_mid *mid, vmp_mid_stats *out);

// vmp_mid_walk shows "block", "span" (a block with an owner) and "free" parts of every arena in address order. A
// block's fence is VMP_FENCE_NONE.
void vmp_mid_walk(const vmp_mid *mid, vmp_walk_fn fn, void *context);

// vmp_mid_check catches up with changes of the mapping, then reports every broken invariant and returns their number.
size_t vmp_mid_check(vmp_mid *mid, vmp_report *report);

#endif  // VMPOOL_POOL_MID_H_
