// mid_resize.h: what vmp_realloc needs of mid: addresses without a claim, and blocks that become longer or shorter.
//
//     take_behind   | block | free ...... |    ->   | block | block' | free |     block' holds no claim yet
//     merge         | block | block' | free    ->   | block ........ | free
//     split         | block ........ | free    ->   | block | block' | free
//     reserve       | free, unmapped ....... | ->   | free | block' | free |      block' holds no claim yet
//
// The caller claims what has none (and may let go of the lock for it), or gives it back with vmp_mid_untake. Everything
// here keeps the lock but vmp_mid_reserve.
#ifndef VMPOOL_POOL_MID_RESIZE_H_
#define VMPOOL_POOL_MID_RESIZE_H_

#include "pool/mid.h"

// vmp_mid_room: how long the block at `offset` could become at its place: its own bytes and the free ones behind it, as
// far as none is blocked; at most `most`.
uint64_t vmp_mid_room(vmp_mid *mid, uint64_t offset, uint64_t most);

// vmp_mid_take_behind makes `request->bytes` free bytes behind the block at `offset` a block of their own, without a
// claim. *out_placed: where, and who may still touch them. There must be room. VMP_ERROR_HOST_OUT_OF_MEMORY; then
// nothing has changed.
vmp_status vmp_mid_take_behind(vmp_mid *mid, uint64_t offset, const vmp_request *request, vmp_placed *out_placed);

// vmp_mid_reserve makes a block of `bytes` without a claim, of which no slot is mapped, `skew` bytes (less than a
// granule) behind a granule's beginning. MAY UNLOCK. VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_mid_reserve(vmp_mid *mid, uint64_t bytes, uint64_t skew, uint64_t *out_offset);

// vmp_mid_untake frees a block that holds no claim; `fence`: who may still touch its addresses. Can't fail.
void vmp_mid_untake(vmp_mid *mid, uint64_t offset, vmp_fence fence);

// vmp_mid_merge makes one block of the one at `offset` and the one right behind it. Can't fail. The caller joins their
// claims (vmp_backing_join_claims).
void vmp_mid_merge(vmp_mid *mid, uint64_t offset);

// vmp_mid_split_block makes two blocks of one, at offset + bytes. VMP_ERROR_HOST_OUT_OF_MEMORY. The caller splits the
// claim (vmp_backing_split_claim).
vmp_status vmp_mid_split_block(vmp_mid *mid, uint64_t offset, uint64_t bytes);

#endif  // VMPOOL_POOL_MID_RESIZE_H_
