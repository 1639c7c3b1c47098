// buddy.h: owns the pool's address space and hands out power-of-two pieces of it, over offsets only.
//
// Owns: which slots are free, as blocks of 2^k slots aligned to their size. Serves two kinds of callers:
//   - pieces: bare addresses for mid (arenas) and, later, regions. Nothing is claimed.
//   - blocks: memory. A request of n slots takes the block of the next order and gives the tail back at once
//     (70 MiB uses 70 MiB, not 128), then claims what is left.
// Does not own: mapping (vmm/backing_ops.h), streams.
//
//     35 slots of an order-6 block    [ 32 used + 2 + 1 = one run | 1 | 4 | 8 | 16 ]    the tail is free at once
//     on free                         [ 32 | 2 | 1 | ...             each piece merges upwards with its buddy
//
// Invariants
//   - Free blocks are aligned to their size (in slots, by offset), disjoint, inside one range that was added, and no
//   free
//     block's buddy is free and whole with a fence of the same streams: blocks merge as soon as both halves are free
//     and no stream would wait for more than before. Halves with unlike fences stay apart until the fences are
//     complete, or until a request finds no other place.
//   - used slots + free slots = slots added.
//   - A used block is a run of slots [offset, offset + slots); it keeps its length until it is freed, or vmp_realloc
//     (buddy_resize.h) makes it longer or shorter: then it isn't aligned to its size any more.
//   - free allocates nothing and can't fail.
//
// The caller holds the pool's lock around every call. vmp_buddy_alloc may let go of it (claim); other calls may run in
// between. Host memory is in proportion to the number of blocks, not to the addresses: 1 PiB costs as much as 1 GiB.
#ifndef VMPOOL_POOL_BUDDY_H_
#define VMPOOL_POOL_BUDDY_H_

#include "vmm/backing_ops.h"
#include "vmm/error.h"

// Blocks have 2^0 ... 2^47 slots.
#define VMP_BUDDY_ORDERS 48u

typedef struct vmp_buddy vmp_buddy;

// vmp_buddy_create: `ops` is copied. VMP_ERROR_HOST_OUT_OF_MEMORY; VMP_ERROR_INVALID_VALUE when the granule is no power
// of two.
vmp_status vmp_buddy_create(vmp_buddy **out_buddy, const vmp_backing_ops *ops);
// vmp_buddy_destroy frees the bookkeeping only; live blocks are not released. NULL is fine.
void vmp_buddy_destroy(vmp_buddy *buddy);

// vmp_buddy_add gives the buddy a range of addresses (a reservation): multiples of the granule, disjoint from
// all earlier ones. Blocks never cross from one range into the next. VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_add(vmp_buddy *buddy, uint64_t offset, uint64_t bytes);

// vmp_buddy_take_piece takes addresses only: at least `bytes`, rounded up to a power of two of slots when
// `whole_power` (an arena keeps it all), else to slots. Preferred: no blocked slots, fewest mapped slots, smallest
// order, lowest address. *out_fence: who may still touch what is mapped there (VMP_FENCE_NONE where nothing is).
// VMP_ERROR_INVALID_VALUE (0 bytes, alignment no power of two or above VMP_OFFSET_CONGRUENCE),
// VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_take_piece(vmp_buddy *buddy, uint64_t bytes, uint64_t alignment, bool whole_power,
                                uint64_t *out_offset, uint64_t *out_bytes, vmp_fence *out_fence);

// vmp_buddy_alloc takes a block and claims it. Among the free places: not blocked, no wait, fewest slots to map,
// fewest parked chunks pinned, smallest order, lowest address (bounded search, buddy_place.c). MAY UNLOCK. Failures,
// after which no block has changed:
//   VMP_ERROR_INVALID_VALUE         as for vmp_buddy_take_piece
//   VMP_ERROR_OUT_OF_ADDRESS_SPACE  no free block is large enough
//   VMP_ERROR_BUSY                  effort MAPPED and no such place is mapped; or every place has slots that can't be
//                                   mapped now
//   VMP_ERROR_FRAGMENTED            chunk sizes fit neither the best place nor a fresh one: a higher effort may help
//   VMP_ERROR_HOST_OUT_OF_MEMORY, and whatever else the claim returned.
vmp_status vmp_buddy_alloc(vmp_buddy *buddy, const vmp_request *request, vmp_placed *out_placed);

// vmp_buddy_look finds where a block could be put: a mapped place, or else the one with the fewest slots to map. Places
// nothing, and merges no halves that fences keep apart; false when there is no place that isn't blocked, or the request
// is no valid one. The effort of the request is not looked at.
bool vmp_buddy_look(vmp_buddy *buddy, const vmp_request *request, uint64_t *out_offset, vmp_cost *out_cost);

// vmp_buddy_free gives a block or piece back. `offset` must be the start of one (vmp_buddy_find). Blocks release
// their claim with `fence`; pieces must have been released by their owner.
void vmp_buddy_free(vmp_buddy *buddy, uint64_t offset, vmp_fence fence);

// vmp_buddy_find: the used block or piece that holds `offset`: its start, its length, whether it is a piece.
// False when that address is free or not the buddy's. The out pointers may be NULL. O(log n).
bool vmp_buddy_find(const vmp_buddy *buddy, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes, bool *out_piece);

typedef struct vmp_buddy_stats {
  uint64_t added_bytes, free_bytes, block_bytes, piece_bytes;  // added = free + block + piece
  uint64_t blocks, pieces;
  uint64_t free_by_order[VMP_BUDDY_ORDERS];  // number of free blocks of 2^k slots
  uint64_t metadata_bytes;
} vmp_buddy_stats;
void vmp_buddy_get_stats(const vmp_buddy *buddy, vmp_buddy_stats *out);

// vmp_walk_fn sees one piece of a layer, in address order. `what` is a word for it ("free", "block", "arena",
// "span"...), static storage.
typedef void (*vmp_walk_fn)(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence);
// vmp_buddy_walk shows "free" and used "block"s, and "piece"s. The fence of what is used is VMP_FENCE_NONE.
void vmp_buddy_walk(const vmp_buddy *buddy, vmp_walk_fn fn, void *context);

// vmp_buddy_check reports every broken invariant and returns their number.
size_t vmp_buddy_check(const vmp_buddy *buddy, vmp_report *report);

#endif  // VMPOOL_POOL_BUDDY_H_
