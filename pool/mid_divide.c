// mid_divide.c: one used block becomes two, or several, which are given back on their own. See mid.h.
//
//     before   | used | block .................. | free
//     after    | used | block ...... | block     | free       each with a claim of its own on the chunks under it
#include "pool/mid_internal.h"

// claim_mapped claims a range that was claimed a moment ago: nothing is mapped, nobody is waited for.
static vmp_status claim_mapped(vmp_mid *mid, uint64_t offset, uint64_t end) {
  vmp_fence ignored;  // whoever has the block knows who may still touch it
  return mid->ops.claim(mid->ops.self, offset, end - offset, 0, VMP_EFFORT_MAPPED, &ignored);
}

vmp_status vmp_mid_divide(vmp_mid *mid, uint64_t offset, uint64_t at) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  uint32_t index = arena == NULL ? 0 : vmp_mid_index_find(mid, arena, offset);
  const vmp_mid_piece *piece = index == 0 ? NULL : vmp_mid_piece_at(mid, index);
  if (piece == NULL || piece->kind != VMP_MID_USED || piece->offset != offset || at <= offset ||
      at >= vmp_mid_piece_end(piece) || at % VMP_MID_STEP_BYTES != 0) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "offset %#llx is not inside a used block that begins at %#llx",
                    (unsigned long long)at, (unsigned long long)offset);
  }
  uint64_t end = vmp_mid_piece_end(piece);
  if (!vmp_node_pool_reserve(&mid->pieces, 1) || !vmp_mid_index_prepare(mid, arena, at)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to divide a block");
  }
  if (!mid->ops.release(mid->ops.self, offset, end - offset, VMP_FENCE_NONE)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the block at %#llx shares chunks with others", (unsigned long long)offset);
  }
  // All of it is mapped, and the lock is held: these don't fail.
  vmp_status status = claim_mapped(mid, offset, at);
  if (status == VMP_OK) status = claim_mapped(mid, at, end);
  if (status != VMP_OK) return status;
  (void)vmp_mid_split(mid, arena, index, at);
  mid->blocks++;
  return VMP_OK;
}

// claim_parts claims each of `count` parts of a live block, beside the block's own claim. False: none is claimed.
static bool claim_parts(vmp_mid *mid, uint64_t offset, uint64_t each_bytes, uint64_t count) {
  for (uint64_t i = 0; i < count; i++) {
    if (mid->ops.claim_again(mid->ops.self, offset + i * each_bytes, each_bytes)) continue;
    while (i-- > 0) (void)mid->ops.release(mid->ops.self, offset + i * each_bytes, each_bytes, VMP_FENCE_NONE);
    return false;
  }
  return true;
}

bool vmp_mid_divide_evenly(vmp_mid *mid, uint64_t offset, uint64_t each_bytes, void *const *owners) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  uint32_t index = vmp_mid_index_find(mid, arena, offset);
  uint64_t bytes = vmp_mid_piece_at(mid, index)->bytes, count = bytes / each_bytes;
  if (mid->ops.claim_again == NULL || !vmp_node_pool_reserve(&mid->pieces, (uint32_t)count - 1)) return false;
  for (uint64_t at = each_bytes; at < bytes; at += each_bytes) {
    if (!vmp_mid_index_prepare(mid, arena, offset + at)) return false;
  }
  if (!claim_parts(mid, offset, each_bytes, count)) return false;
  (void)mid->ops.release(mid->ops.self, offset, bytes, VMP_FENCE_NONE);
  vmp_mid_piece_at(mid, index)->owner = owners[0];
  for (uint64_t i = count - 1; i > 0; i--) {
    uint32_t part = vmp_mid_split(mid, arena, index, offset + i * each_bytes);
    vmp_mid_piece_at(mid, part)->owner = owners[i];
  }
  mid->blocks += count - 1;
  return true;
}
