// buddy.c: buddy's public functions. See buddy.h for what buddy is and buddy_internal.h for its parts.
#include "pool/buddy.h"

#include <string.h>

#include "pool/buddy_internal.h"
#include "pool/fresh_place.h"
#include "vmm/memory.h"

vmp_status vmp_buddy_create(vmp_buddy **out_buddy, const vmp_backing_ops *ops) {
  if (!vmp_is_power_of_two(ops->granule_bytes)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the granule is %llu bytes; it must be a power of two",
                    (unsigned long long)ops->granule_bytes);
  }
  vmp_buddy *buddy = vmp_mem_calloc(1, sizeof *buddy);
  if (buddy == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the buddy layer");
  buddy->ops = *ops;
  vmp_node_pool_init(&buddy->nodes, sizeof(vmp_buddy_node));
  *out_buddy = buddy;
  return VMP_OK;
}

void vmp_buddy_destroy(vmp_buddy *buddy) {
  if (buddy == NULL) return;
  vmp_node_pool_finish(&buddy->nodes);
  vmp_mem_free(buddy->ranges);
  vmp_mem_free(buddy);
}

static bool overlaps_a_range(const vmp_buddy *buddy, uint64_t slot, uint64_t slots) {
  for (size_t i = 0; i < buddy->num_ranges; i++) {
    const vmp_buddy_range *range = &buddy->ranges[i];
    if (slot < range->slot + range->slots && range->slot < slot + slots) return true;
  }
  return false;
}

vmp_status vmp_buddy_add(vmp_buddy *buddy, uint64_t offset, uint64_t bytes) {
  uint64_t granule = buddy->ops.granule_bytes, last;
  if (bytes == 0 || offset % granule != 0 || bytes % granule != 0 || !vmp_add(offset, bytes - 1, &last)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "addresses from %#llx on, %llu bytes: both must be multiples of the granule, %llu bytes",
                    (unsigned long long)offset, (unsigned long long)bytes, (unsigned long long)granule);
  }
  uint64_t slot = offset / granule, slots = bytes / granule;
  if (overlaps_a_range(buddy, slot, slots)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "addresses from %#llx on overlap addresses that were added before",
                    (unsigned long long)offset);
  }
  vmp_buddy_range *ranges = NULL;
  if (vmp_node_pool_reserve(&buddy->nodes, 2 * 64)) {
    ranges = vmp_mem_resize(buddy->ranges, buddy->num_ranges, buddy->num_ranges + 1, sizeof *ranges);
  }
  if (ranges == NULL) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of %llu bytes of addresses",
                    (unsigned long long)bytes);
  }
  size_t at = buddy->num_ranges;
  while (at > 0 && ranges[at - 1].slot > slot) at--;
  memmove(&ranges[at + 1], &ranges[at], (buddy->num_ranges - at) * sizeof *ranges);
  ranges[at] = (vmp_buddy_range){slot, slots};
  buddy->ranges = ranges;
  buddy->num_ranges++;
  buddy->added_slots += slots;
  vmp_buddy_add_free(buddy, slot, slots, VMP_FENCE_NONE);
  return VMP_OK;
}

// ---- requests ----
// A demand is a request in slots: `slots` of them, in a place of 2^order slots.
typedef struct demand {
  uint64_t slots, order;
  vmp_wait wait;
} demand;

// measure turns bytes and alignment into slots and order. The bytes may be anything: what no address space holds is
// VMP_ERROR_OUT_OF_ADDRESS_SPACE.
static vmp_status measure(const vmp_buddy *buddy, uint64_t bytes, uint64_t alignment, demand *out) {
  uint64_t granule = buddy->ops.granule_bytes;
  if (bytes == 0) return vmp_fail(VMP_ERROR_INVALID_VALUE, "buddy was asked for 0 bytes; it serves at least one");
  if (!vmp_is_power_of_two(alignment) || alignment > VMP_OFFSET_CONGRUENCE) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the alignment is %llu; it must be a power of two, at most %llu",
                    (unsigned long long)alignment, (unsigned long long)VMP_OFFSET_CONGRUENCE);
  }
  out->slots = (bytes - 1) / granule + 1;
  uint64_t power;
  if (!vmp_next_power_of_two(out->slots, &power)) power = UINT64_C(1) << 63;
  if (power < alignment / granule) power = alignment / granule;
  out->order = vmp_log2(power);
  out->wait = VMP_WAIT_LAST;
  return VMP_OK;
}

static vmp_status no_addresses(const vmp_buddy *buddy, uint64_t bytes) {
  return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE,
                  "no free block of addresses holds %llu bytes; %llu bytes of addresses are free in smaller blocks",
                  (unsigned long long)bytes, (unsigned long long)(buddy->free_slots * buddy->ops.granule_bytes));
}

// is_free_lunch: a place that no merging of blocks could improve on.
static bool is_free_lunch(const vmp_buddy_place *place, vmp_buddy_wish wish) {
  if (wish == VMP_BUDDY_ADDRESSES) return !place->cost.blocked && place->mapped_slots == 0;
  return !place->must_wait && place->cost.slots_to_map == 0;
}

// find_place searches; where a better place may come of merging, it merges what can be merged, in two steps: first
// without making anybody wait, then (only when there is no place at all) by force.
static bool find_place(vmp_buddy *buddy, const demand *d, vmp_stream_index stream, vmp_buddy_wish wish,
                       vmp_buddy_place *out_place, bool *out_blocked) {
  if (d->order >= VMP_BUDDY_ORDERS) {
    *out_blocked = false;
    return false;
  }
  bool found = vmp_buddy_find_place(buddy, d->slots, d->order, stream, d->wait, wish, out_place, out_blocked);
  if (found && is_free_lunch(out_place, wish)) return true;
  if (vmp_buddy_settle(buddy, false)) {
    found = vmp_buddy_find_place(buddy, d->slots, d->order, stream, d->wait, wish, out_place, out_blocked);
  }
  if (!found && d->wait != VMP_WAIT_NEVER && wish != VMP_BUDDY_MAPPED && vmp_buddy_settle(buddy, true)) {
    found = vmp_buddy_find_place(buddy, d->slots, d->order, stream, d->wait, wish, out_place, out_blocked);
  }
  return found;
}

static vmp_status no_host_memory(uint64_t bytes) {
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block of %llu bytes",
                  (unsigned long long)bytes);
}

vmp_status vmp_buddy_take_piece(vmp_buddy *buddy, uint64_t bytes, uint64_t alignment, bool whole_power,
                                uint64_t *out_offset, uint64_t *out_bytes, vmp_fence *out_fence) {
  demand d;
  vmp_status status = measure(buddy, bytes, alignment, &d);
  if (status != VMP_OK) return status;
  // The power of two of the size, not of the alignment: the place may be larger, its tail is free again.
  if (whole_power && !vmp_next_power_of_two(d.slots, &d.slots)) return no_addresses(buddy, bytes);
  vmp_buddy_place place;
  bool blocked;
  if (!find_place(buddy, &d, 0, VMP_BUDDY_ADDRESSES, &place, &blocked)) return no_addresses(buddy, bytes);
  uint32_t used;
  if (!vmp_buddy_cut(buddy, place.block, place.slot, d.slots, d.order, VMP_BUDDY_PIECE, &used)) {
    return no_host_memory(bytes);
  }
  *out_offset = place.slot * buddy->ops.granule_bytes;
  *out_bytes = d.slots * buddy->ops.granule_bytes;
  *out_fence = place.fence;
  return VMP_OK;
}

// take_place cuts the block out and claims it; if that fails it is given back as it was. MAY UNLOCK.
static vmp_status take_place(vmp_buddy *buddy, const vmp_request *request, const demand *d,
                             const vmp_buddy_place *place, vmp_placed *out_placed) {
  uint64_t granule = buddy->ops.granule_bytes;
  vmp_fence block_fence = vmp_buddy_at(buddy, place->block)->fence, moved = VMP_FENCE_NONE;
  uint64_t offset = place->slot * granule, bytes = d->slots * granule;
  uint32_t used;
  if (!vmp_buddy_cut(buddy, place->block, place->slot, d->slots, d->order, VMP_BUDDY_BLOCK, &used)) {
    return no_host_memory(request->bytes);
  }
  vmp_status status = buddy->ops.claim(buddy->ops.self, offset, bytes, request->stream, request->effort, &moved);
  if (status != VMP_OK) {
    vmp_buddy_give_back(buddy, used, block_fence);
    return status;
  }
  *out_placed = (vmp_placed){
      .offset = offset,
      .bytes = bytes,
      .after = vmp_fence_merge(place->after, buddy->ops.others(buddy->ops.self, moved, request->stream)),
      .fence = vmp_fence_merge(place->fence, moved),
  };
  return VMP_OK;
}

// take_fresh_place is for a block whose best place failed with `first_status`, which stays the truth about the request
// if there is no memory for a fresh place either. MAY UNLOCK.
static vmp_status take_fresh_place(vmp_buddy *buddy, const vmp_request *request, const demand *d, uint64_t failed_slot,
                                   vmp_status first_status, vmp_placed *out_placed) {
  vmp_buddy_place place;
  bool blocked;
  vmp_status status = VMP_ERROR_FRAGMENTED;
  if (find_place(buddy, d, request->stream, VMP_BUDDY_FRESH, &place, &blocked) && place.slot != failed_slot) {
    status = take_place(buddy, request, d, &place, out_placed);
  }
  if (!vmp_may_be_had_elsewhere(status)) return status;
  return vmp_no_fresh_place(first_status, request->bytes);
}

vmp_status vmp_buddy_alloc(vmp_buddy *buddy, const vmp_request *request, vmp_placed *out_placed) {
  demand d;
  vmp_status status = measure(buddy, request->bytes, request->alignment, &d);
  if (status != VMP_OK) return status;
  vmp_buddy_place place;
  bool blocked;
  buddy->streams_seen |= UINT64_C(1) << (request->stream & 63);
  d.wait = request->wait;
  vmp_buddy_wish wish = request->effort == VMP_EFFORT_MAPPED ? VMP_BUDDY_MAPPED : VMP_BUDDY_MEMORY;
  if (!find_place(buddy, &d, request->stream, wish, &place, &blocked)) {
    if (wish == VMP_BUDDY_MAPPED) {
      return vmp_fail(VMP_ERROR_BUSY, "no mapped free place of %llu bytes; mapping was not allowed",
                      (unsigned long long)request->bytes);
    }
    if (request->wait == VMP_WAIT_NEVER && blocked) return VMP_ERROR_BUSY;
    if (!blocked) return no_addresses(buddy, request->bytes);
    return vmp_fail(VMP_ERROR_BUSY, "every free place of %llu bytes has slots whose old mapping is still in use",
                    (unsigned long long)request->bytes);
  }
  status = take_place(buddy, request, &d, &place, out_placed);
  if (!vmp_is_worth_a_fresh_place(status, request->effort)) return status;
  return take_fresh_place(buddy, request, &d, place.slot, status, out_placed);
}

bool vmp_buddy_look(vmp_buddy *buddy, const vmp_request *request, uint64_t *out_offset, vmp_cost *out_cost) {
  demand d;
  vmp_buddy_place place;
  bool blocked;
  if (measure(buddy, request->bytes, request->alignment, &d) != VMP_OK || d.order >= VMP_BUDDY_ORDERS) return false;
  (void)vmp_buddy_settle(buddy, false);
  vmp_stream_index stream = request->stream;
  if (!vmp_buddy_find_place(buddy, d.slots, d.order, stream, VMP_WAIT_LAST, VMP_BUDDY_MAPPED, &place, &blocked) &&
      !vmp_buddy_find_place(buddy, d.slots, d.order, stream, VMP_WAIT_LAST, VMP_BUDDY_MEMORY, &place, &blocked)) {
    return false;
  }
  *out_offset = place.slot * buddy->ops.granule_bytes;
  *out_cost = place.cost;
  return !place.cost.blocked;
}

void vmp_buddy_free(vmp_buddy *buddy, uint64_t offset, vmp_fence fence) {
  uint32_t used = vmp_buddy_holding(buddy, offset / buddy->ops.granule_bytes);
  const vmp_buddy_node *node = vmp_buddy_at(buddy, used);
  if (node->kind == VMP_BUDDY_BLOCK) {
    (void)buddy->ops.release(buddy->ops.self, offset, node->tree.size * buddy->ops.granule_bytes, fence);
  }
  vmp_buddy_give_back(buddy, used, fence);
}

// ---- looking ----
bool vmp_buddy_find(const vmp_buddy *buddy, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes,
                    bool *out_piece) {
  uint64_t granule = buddy->ops.granule_bytes;
  uint32_t index = vmp_buddy_holding(buddy, offset / granule);
  if (index == 0) return false;
  const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  if (node->kind == VMP_BUDDY_FREE) return false;
  if (out_start != NULL) *out_start = node->tree.offset * granule;
  if (out_bytes != NULL) *out_bytes = node->tree.size * granule;
  if (out_piece != NULL) *out_piece = node->kind == VMP_BUDDY_PIECE;
  return true;
}

void vmp_buddy_get_stats(const vmp_buddy *buddy, vmp_buddy_stats *out) {
  uint64_t granule = buddy->ops.granule_bytes;
  *out = (vmp_buddy_stats){
      .added_bytes = buddy->added_slots * granule,
      .free_bytes = buddy->free_slots * granule,
      .block_bytes = buddy->block_slots * granule,
      .piece_bytes = buddy->piece_slots * granule,
      .blocks = buddy->blocks,
      .pieces = buddy->pieces,
      .metadata_bytes = sizeof *buddy + vmp_node_pool_bytes(&buddy->nodes) + buddy->num_ranges * sizeof *buddy->ranges,
  };
  memcpy(out->free_by_order, buddy->free_by_order, sizeof out->free_by_order);
}

void vmp_buddy_walk(const vmp_buddy *buddy, vmp_walk_fn fn, void *context) {
  static const char *const words[] = {"", "free", "block", "piece"};
  uint64_t granule = buddy->ops.granule_bytes, slot = 0;
  for (;;) {
    vmp_tree_key key = {0, slot};
    uint32_t index = vmp_tree_at_least(&buddy->nodes, VMP_TREE_BY_OFFSET, buddy->by_place, key);
    if (index == 0) return;
    const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
    fn(context, node->tree.offset * granule, vmp_buddy_slots(node) * granule, words[node->kind], node->fence);
    slot = node->tree.offset + 1;
  }
}
