// mid_resize.c: see mid_resize.h.
#include "pool/mid_resize.h"

#include "pool/mid_internal.h"

static uint32_t block_at(const vmp_mid *mid, uint64_t offset) {
  return vmp_mid_index_find(mid, vmp_mid_arena_of(mid, offset), offset);
}

uint64_t vmp_mid_room(vmp_mid *mid, uint64_t offset, uint64_t most) {
  vmp_mid_catch_up(mid);
  const vmp_mid_piece *block = vmp_mid_piece_at(mid, block_at(mid, offset));
  uint64_t from = vmp_mid_piece_end(block), end = from;
  for (uint32_t at = block->next; vmp_mid_is_free(mid, at) && end - offset < most;) {
    end = vmp_mid_piece_end(vmp_mid_piece_at(mid, at));
    at = vmp_mid_piece_at(mid, at)->next;
  }
  if (end - offset > most) end = offset + most;
  for (uint64_t at = from, run_end = end; at < end; at = run_end) {
    run_end = end;
    if (mid->ops.run(mid->ops.self, at, end, &run_end) == VMP_RUN_BLOCKED) return at - offset;
  }
  return end - offset;
}

vmp_status vmp_mid_take_behind(vmp_mid *mid, uint64_t offset, const vmp_request *request, vmp_placed *out_placed) {
  vmp_mid_catch_up(mid);
  uint32_t index;
  vmp_fence fence;
  uint64_t end = vmp_mid_piece_end(vmp_mid_piece_at(mid, block_at(mid, offset)));
  vmp_mid_place place = vmp_mid_place_at(mid, request, end);
  vmp_status status = vmp_mid_cut(mid, &place, request->bytes, NULL, &index, &fence);
  if (status != VMP_OK) return status;
  *out_placed = (vmp_placed){.offset = end, .bytes = request->bytes, .after = place.after, .fence = fence};
  return VMP_OK;
}

vmp_status vmp_mid_reserve(vmp_mid *mid, uint64_t bytes, uint64_t skew, uint64_t *out_offset) {
  vmp_request request = {.alignment = mid->ops.granule_bytes, .effort = VMP_EFFORT_NORMAL};
  if (!vmp_add(bytes, skew, &request.bytes)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%llu bytes are larger than any address space",
                    (unsigned long long)bytes);
  }
  vmp_mid_place place;
  vmp_mid_catch_up(mid);
  if (!vmp_mid_place_fresh(mid, &request, &place)) {
    vmp_mid_arena *arena;
    vmp_status status = vmp_mid_add_arena(mid, &request, &arena);
    if (status != VMP_OK) return status;
    vmp_mid_catch_up(mid);
    if (!vmp_mid_place_fresh(mid, &request, &place)) {
      return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "no wholly unmapped addresses for a block of %llu bytes",
                      (unsigned long long)bytes);
    }
  }
  uint32_t index;
  vmp_fence fence;
  place.offset += skew;
  vmp_status status = vmp_mid_cut(mid, &place, bytes, NULL, &index, &fence);
  if (status == VMP_OK) *out_offset = place.offset;
  return status;
}

void vmp_mid_untake(vmp_mid *mid, uint64_t offset, vmp_fence fence) {
  vmp_mid_give_back(mid, block_at(mid, offset), fence, false);
}

void vmp_mid_merge(vmp_mid *mid, uint64_t offset) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  uint32_t index = block_at(mid, offset);
  vmp_mid_piece *block = vmp_mid_piece_at(mid, index);
  void *owner = block->owner;
  uint64_t word = block->word;
  vmp_mid_join(mid, arena, index, block->next);
  block->owner = owner;
  block->word = word;
  mid->blocks--;
}

vmp_status vmp_mid_split_block(vmp_mid *mid, uint64_t offset, uint64_t bytes) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  if (!vmp_node_pool_reserve(&mid->pieces, 1) || !vmp_mid_index_prepare(mid, arena, offset + bytes)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block's rest");
  }
  uint32_t rest = vmp_mid_split(mid, arena, block_at(mid, offset), offset + bytes);
  vmp_mid_piece_at(mid, rest)->word = 0;
  mid->blocks++;
  return VMP_OK;
}
