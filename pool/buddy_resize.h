// buddy_resize.h: what vmp_realloc needs of buddy; the same as mid_resize.h, in whole slots.
//
// A block that has grown, or what was split off, is a run of slots at any place: it goes back as aligned powers of two,
// for which the nodes are promised.
#ifndef VMPOOL_POOL_BUDDY_RESIZE_H_
#define VMPOOL_POOL_BUDDY_RESIZE_H_

#include "pool/buddy.h"

// vmp_buddy_room: how long the block at `offset` could become at its place, at most `most` (a multiple of the granule).
uint64_t vmp_buddy_room(const vmp_buddy *buddy, uint64_t offset, uint64_t most);
// vmp_buddy_take_behind makes `request->bytes` free bytes behind the block at `offset` a block of their own, without a
// claim. There must be room. VMP_ERROR_HOST_OUT_OF_MEMORY; then nothing has changed.
vmp_status vmp_buddy_take_behind(vmp_buddy *buddy, uint64_t offset, const vmp_request *request, vmp_placed *out_placed);
// vmp_buddy_reserve makes a block of `bytes` without a claim, of which no slot is mapped.
// VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_buddy_reserve(vmp_buddy *buddy, uint64_t bytes, uint64_t *out_offset);
// vmp_buddy_untake frees a block that holds no claim. Can't fail.
void vmp_buddy_untake(vmp_buddy *buddy, uint64_t offset, vmp_fence fence);
// vmp_buddy_merge makes one block of the one at `offset` and the one right behind it; vmp_buddy_split_block two of one,
// at offset + bytes (VMP_ERROR_HOST_OUT_OF_MEMORY). The caller joins or splits their claims.
void vmp_buddy_merge(vmp_buddy *buddy, uint64_t offset);
vmp_status vmp_buddy_split_block(vmp_buddy *buddy, uint64_t offset, uint64_t bytes);

#endif  // VMPOOL_POOL_BUDDY_RESIZE_H_
