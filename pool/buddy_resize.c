// buddy_resize.c: see buddy_resize.h.
#include "pool/buddy_resize.h"

#include "pool/buddy_internal.h"

static vmp_buddy_node *node_at(const vmp_buddy *buddy, uint64_t offset) {
  return vmp_buddy_at(buddy, vmp_buddy_holding(buddy, offset / buddy->ops.granule_bytes));
}

static uint64_t end_of(const vmp_buddy_node *node) { return node->tree.offset + vmp_buddy_slots(node); }

// free_at: the free block that begins at a slot, in the same range as the slot before it; or 0.
static uint32_t free_at(const vmp_buddy *buddy, uint64_t slot) {
  const vmp_buddy_range *range = vmp_buddy_range_of(buddy, slot);
  if (range == NULL || range->slot == slot) return 0;
  uint32_t index = vmp_buddy_holding(buddy, slot);
  return index != 0 && vmp_buddy_at(buddy, index)->kind == VMP_BUDDY_FREE ? index : 0;
}

uint64_t vmp_buddy_room(const vmp_buddy *buddy, uint64_t offset, uint64_t most) {
  uint64_t granule = buddy->ops.granule_bytes, first = offset / granule, last = first + most / granule;
  uint64_t from = end_of(node_at(buddy, offset)), end = from;
  for (uint32_t index = free_at(buddy, end); index != 0 && end < last; index = free_at(buddy, end)) {
    end = end_of(vmp_buddy_at(buddy, index));
  }
  if (end > last) end = last;
  for (uint64_t at = from * granule, run_end = end * granule; at < end * granule; at = run_end) {
    run_end = end * granule;
    if (buddy->ops.run(buddy->ops.self, at, end * granule, &run_end) == VMP_RUN_BLOCKED) return at - offset;
  }
  return end * granule - offset;
}

vmp_status vmp_buddy_take_behind(vmp_buddy *buddy, uint64_t offset, const vmp_request *request,
                                 vmp_placed *out_placed) {
  uint64_t granule = buddy->ops.granule_bytes, slots = request->bytes / granule;
  uint64_t slot = end_of(node_at(buddy, offset));
  vmp_fence fence = VMP_FENCE_NONE, after = VMP_FENCE_NONE;
  if (!vmp_buddy_take_run(buddy, slot, slots, &fence)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block of %llu bytes",
                    (unsigned long long)request->bytes);
  }
  uint64_t unmapped_end = slot * granule;
  bool bare =
      buddy->ops.run(buddy->ops.self, slot * granule, (slot + slots) * granule, &unmapped_end) == VMP_RUN_UNMAPPED &&
      unmapped_end == (slot + slots) * granule;
  if (!bare && !vmp_fence_is_none(fence)) after = buddy->ops.others(buddy->ops.self, fence, request->stream);
  *out_placed = (vmp_placed){.offset = slot * granule, .bytes = request->bytes, .after = after, .fence = fence};
  return VMP_OK;
}

vmp_status vmp_buddy_reserve(vmp_buddy *buddy, uint64_t bytes, uint64_t *out_offset) {
  uint64_t granule = buddy->ops.granule_bytes, slots = bytes / granule, power;
  vmp_buddy_place place;
  bool blocked, found = false;
  uint32_t used;
  if (vmp_next_power_of_two(slots, &power) && vmp_log2(power) < VMP_BUDDY_ORDERS) {
    (void)vmp_buddy_settle(buddy, false);
    found = vmp_buddy_find_place(buddy, slots, vmp_log2(power), 0, VMP_WAIT_LAST, VMP_BUDDY_FRESH, &place, &blocked);
  }
  if (!found) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "no wholly unmapped addresses for a block of %llu bytes",
                    (unsigned long long)bytes);
  }
  if (!vmp_buddy_cut(buddy, place.block, place.slot, slots, vmp_log2(power), VMP_BUDDY_BLOCK, &used)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block of %llu bytes",
                    (unsigned long long)bytes);
  }
  *out_offset = place.slot * granule;
  return VMP_OK;
}

void vmp_buddy_untake(vmp_buddy *buddy, uint64_t offset, vmp_fence fence) {
  vmp_buddy_give_back(buddy, vmp_buddy_holding(buddy, offset / buddy->ops.granule_bytes), fence);
}

void vmp_buddy_merge(vmp_buddy *buddy, uint64_t offset) {
  vmp_buddy_join_runs(buddy, offset / buddy->ops.granule_bytes);
}

vmp_status vmp_buddy_split_block(vmp_buddy *buddy, uint64_t offset, uint64_t bytes) {
  uint64_t granule = buddy->ops.granule_bytes;
  if (vmp_buddy_split_run(buddy, offset / granule, bytes / granule)) return VMP_OK;
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block's rest");
}
