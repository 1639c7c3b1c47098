// guarded.c: blocks in front of a slot that is never mapped. See debug.h.
//
// A guarded block is a piece of buddy's addresses: whole slots for the block, claimed, and one more, which nobody maps
// since the piece is ours. The block lies at the end of its slots, so that the first byte beyond it (beyond the 512
// that sizes are rounded to, or its alignment) is the guard slot's.
#include "pool/pool.h"

#define MAX_HELD 8u  // pieces whose last slot happens to be mapped, held while others are looked for

static bool guard_is_bare(const vmp_pool *pool, uint64_t slot_offset) {
  uint64_t end = slot_offset;
  return pool->ops.run(pool->ops.self, slot_offset, slot_offset + pool->device.granule_bytes, &end) == VMP_RUN_UNMAPPED;
}

// take_piece takes `bytes` of addresses and a slot behind them that is not mapped.
static vmp_status take_piece(vmp_pool *pool, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                             uint64_t *out_bytes, vmp_fence *out_fence) {
  uint64_t offsets[MAX_HELD];
  vmp_fence fences[MAX_HELD];
  size_t count = 0;
  vmp_status status = VMP_ERROR_BUSY;
  while (status == VMP_ERROR_BUSY && count < MAX_HELD) {
    status = vmp_buddy_take_piece(pool->buddy, bytes + pool->device.granule_bytes, alignment, false, out_offset,
                                  out_bytes, out_fence);
    if (status != VMP_OK || guard_is_bare(pool, *out_offset + bytes)) break;
    status = VMP_ERROR_BUSY;
    offsets[count] = *out_offset;
    fences[count++] = *out_fence;
  }
  for (size_t i = 0; i < count; i++) vmp_buddy_free(pool->buddy, offsets[i], fences[i]);
  if (status == VMP_ERROR_BUSY) {
    return vmp_fail(VMP_ERROR_BUSY, "no free addresses end with a slot that is not mapped, for a guard");
  }
  return status;
}

vmp_status vmp_debug_place(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed) {
  uint64_t granule = pool->device.granule_bytes, held_bytes, slots_bytes, offset = 0, piece_bytes = 0;
  uint64_t alignment = plan->request.alignment < granule ? granule : plan->request.alignment;
  vmp_fence piece_fence = VMP_FENCE_NONE, claimed = VMP_FENCE_NONE;
  if (!vmp_align_up(plan->requested_bytes, plan->alignment, &held_bytes) ||
      !vmp_align_up(held_bytes, granule, &slots_bytes) || slots_bytes > UINT64_MAX - granule) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%llu bytes are larger than any address space",
                    (unsigned long long)plan->requested_bytes);
  }
  vmp_status status = vmp_offset_map_promise(&pool->debug.guarded);
  if (status != VMP_OK) return status;
  status = take_piece(pool, slots_bytes, alignment, &offset, &piece_bytes, &piece_fence);
  if (status == VMP_OK) {
    pool->debug.guarded_piece_bytes += piece_bytes;
    status = pool->ops.claim(pool->ops.self, offset, slots_bytes, plan->request.stream, plan->request.effort, &claimed);
    if (status != VMP_OK) {
      pool->debug.guarded_piece_bytes -= piece_bytes;
      vmp_buddy_free(pool->buddy, offset, piece_fence);
    }
  }
  if (status != VMP_OK) {
    vmp_offset_map_withdraw(&pool->debug.guarded);
    return status;
  }
  uint64_t start = offset + vmp_align_down(slots_bytes - held_bytes, plan->alignment);
  vmp_offset_map_add(&pool->debug.guarded, offset, start);
  pool->debug.guarded_bytes += offset + slots_bytes - start;
  vmp_fence fence = vmp_fence_merge(piece_fence, claimed);
  *out_placed = (vmp_placed){.offset = start,
                             .bytes = offset + slots_bytes - start,
                             .after = pool->ops.others(pool->ops.self, fence, plan->request.stream),
                             .fence = fence};
  return VMP_OK;
}

bool vmp_debug_find(const vmp_pool *pool, uint64_t piece, uint64_t piece_bytes, uint64_t offset, vmp_found *out_found) {
  const uint64_t *start = vmp_offset_map_find(&pool->debug.guarded, piece);
  uint64_t end = piece + piece_bytes - pool->device.granule_bytes;
  if (start == NULL || offset < *start || offset >= end) return false;
  *out_found = (vmp_found){.layer = VMP_LAYER_BUDDY, .offset = *start, .bytes = end - *start};
  return true;
}

bool vmp_debug_release(vmp_pool *pool, uint64_t offset, vmp_fence fence, uint64_t *out_bytes) {
  uint64_t piece, piece_bytes, start;
  bool is_piece = false;
  if (!vmp_buddy_find(pool->buddy, offset, &piece, &piece_bytes, &is_piece) || !is_piece ||
      !vmp_offset_map_remove(&pool->debug.guarded, piece, &start)) {
    return false;
  }
  uint64_t slots_bytes = piece_bytes - pool->device.granule_bytes;
  *out_bytes = piece + slots_bytes - start;
  pool->debug.guarded_bytes -= *out_bytes;
  pool->debug.guarded_piece_bytes -= piece_bytes;
  pool->ops.release(pool->ops.self, piece, slots_bytes, fence);
  vmp_buddy_free(pool->buddy, piece, fence);
  return true;
}
