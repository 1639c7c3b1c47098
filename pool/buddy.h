// buddy.h: owns the pool's address space and hands out power-of-two pieces of it, over offsets only.
//
// Owns: which slots are free, as blocks of 2^k slots aligned to their size. Serves two kinds of callers:
//   - pieces: bare addresses for mid (arenas) and, later, regions. Nothing is claimed.
//   - blocks: memory. A request of n slots takes the block of the next order and gives the tail back at once
//     (70 MiB uses 70 MiB, not 128), then claims what is left.
// Does not own: mapping (vmm/backing_ops.h), streams.
//
// Invariants
//   - Free blocks are aligned to their size (in slots, by offset), disjoint, and no free block's buddy is free,
//     whole and joinable with it: blocks merge as soon as both halves are free and their fences allow it.
//   - used slots + free slots = slots added.
//   - A used block is a run of slots [offset, offset + slots); it keeps its length until it is freed.
//   - free allocates nothing and can't fail.
#ifndef VMPOOL_POOL_BUDDY_H_
#define VMPOOL_POOL_BUDDY_H_

#include "vmm/backing_ops.h"
#include "vmm/error.h"

typedef struct vmp_buddy vmp_buddy;

// vmp_buddy_create: `ops` is copied. VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_create(vmp_buddy **out_buddy, const vmp_backing_ops *ops);
// vmp_buddy_destroy frees the bookkeeping only; live blocks are not released. NULL is fine.
void vmp_buddy_destroy(vmp_buddy *buddy);

// vmp_buddy_add gives the buddy a range of addresses (a reservation): multiples of the granule, disjoint from
// all earlier ones. VMP_ERROR_INVALID_VALUE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_add(vmp_buddy *buddy, uint64_t offset, uint64_t bytes);

// vmp_buddy_take_piece takes addresses only: at least `bytes`, rounded up to a power of two of slots when
// `whole_power` (an arena keeps it all), else to slots. Places without mapped or retiring slots are preferred.
// VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_take_piece(vmp_buddy *buddy, uint64_t bytes, uint64_t alignment, bool whole_power,
                                uint64_t *out_offset, uint64_t *out_bytes);

// vmp_buddy_alloc takes a block and claims it. Among the free places: not blocked, no wait, fewest slots to map,
// fewest parked chunks pinned, smallest order, lowest address (bounded search). VMP_ERROR_OUT_OF_ADDRESS_SPACE,
// VMP_ERROR_HOST_OUT_OF_MEMORY, and whatever the claim returned.
vmp_status vmp_buddy_alloc(vmp_buddy *buddy, const vmp_request *request, vmp_placed *out_placed);

// vmp_buddy_free gives a block or piece back. `offset` must be the start of one (vmp_buddy_find). Blocks release
// their claim with `fence`; pieces must have been released by their owner.
void vmp_buddy_free(vmp_buddy *buddy, uint64_t offset, vmp_fence fence);

// vmp_buddy_find: the used block or piece that holds `offset`: its start, its length, whether it is a piece.
// False when that address is free or not the buddy's.
bool vmp_buddy_find(const vmp_buddy *buddy, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes, bool *out_piece);

typedef struct vmp_buddy_stats {
  uint64_t added_bytes, free_bytes, block_bytes, piece_bytes;  // added = free + block + piece
  uint64_t blocks, pieces;
  uint64_t free_by_order[48];  // number of free blocks of 2^k slots
  uint64_t metadata_bytes;
} vmp_buddy_stats;
void vmp_buddy_get_stats(const vmp_buddy *buddy, vmp_buddy_stats *out);

// vmp_walk_fn sees one piece of a layer, in address order. `what` is a word for it ("free", "block", "arena",
// "span"...), static storage.
typedef void (*vmp_walk_fn)(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence);
void vmp_buddy_walk(const vmp_buddy *buddy, vmp_walk_fn fn, void *context);

// vmp_buddy_check reports every broken invariant and returns their number.
size_t vmp_buddy_check(const vmp_buddy *buddy, vmp_report *report);

#endif  // VMPOOL_POOL_BUDDY_H_
