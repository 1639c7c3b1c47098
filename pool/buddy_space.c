// buddy_space.c: free blocks and used runs of slots. See buddy_internal.h.
//
// The algorithm (Knowlton, "A fast storage allocator", 1965), with one addition:
//   1. A free block of 2^k slots lies at a multiple of 2^k; its buddy is at slot ^ 2^k.
//   2. To take n slots, a block is halved until the half is the smallest that holds them; the slots behind the n-th are
//      given back as free blocks at once.
//   3. A run that comes back is cut into aligned powers of two, largest first; each merges with its buddy for as
//      long as that is free, whole, in the same range and alike in its fence.
#include "pool/buddy_internal.h"

// may_share_fence: merging makes no stream wait for memory that it needn't wait for now: the same streams may touch
// both, or there is only one stream so far, which never waits for itself.
static bool may_share_fence(const vmp_buddy *buddy, vmp_fence a, vmp_fence b) {
  return a.streams == b.streams || (buddy->streams_seen & (buddy->streams_seen - 1)) == 0;
}

const vmp_buddy_range *vmp_buddy_range_of(const vmp_buddy *buddy, uint64_t slot) {
  size_t low = 0, high = buddy->num_ranges;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    const vmp_buddy_range *range = &buddy->ranges[middle];
    if (slot < range->slot) {
      high = middle;
    } else if (slot - range->slot < range->slots) {
      return range;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

uint32_t vmp_buddy_holding(const vmp_buddy *buddy, uint64_t slot) {
  uint32_t index = vmp_tree_at_most(&buddy->nodes, VMP_TREE_BY_OFFSET, buddy->by_place, (vmp_tree_key){0, slot});
  if (index == 0) return 0;
  const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  return slot - node->tree.offset < vmp_buddy_slots(node) ? index : 0;
}

uint32_t vmp_buddy_first_free(const vmp_buddy *buddy, uint64_t order, uint64_t slot) {
  return vmp_tree_at_least(&buddy->nodes, VMP_TREE_BY_SIZE, buddy->by_order, (vmp_tree_key){order, slot});
}

// free_buddy: the buddy of the (possible) block at `slot`, if it is free, whole and in the same range; else 0.
static uint32_t free_buddy(const vmp_buddy *buddy, uint64_t slot, uint64_t order) {
  if (order + 1 >= VMP_BUDDY_ORDERS) return 0;
  uint64_t size = UINT64_C(1) << order;
  uint32_t index = vmp_buddy_first_free(buddy, order, slot ^ size);
  if (index == 0) return 0;
  const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  if (node->tree.size != order || node->tree.offset != (slot ^ size)) return 0;
  const vmp_buddy_range *range = vmp_buddy_range_of(buddy, slot);
  uint64_t low = slot & ~size;
  bool same_range = low >= range->slot && low - range->slot + 2 * size <= range->slots;
  return same_range ? index : 0;
}

// ---- one free block ----
static void insert_free(vmp_buddy *buddy, uint32_t index) {
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  node->kind = VMP_BUDDY_FREE;
  vmp_tree_insert(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, index);
  vmp_tree_insert(&buddy->nodes, VMP_TREE_BY_SIZE, &buddy->by_order, index);
  buddy->free_by_order[node->tree.size]++;
  buddy->free_slots += vmp_buddy_slots(node);
  if (free_buddy(buddy, node->tree.offset, node->tree.size) != 0) buddy->parted++;
}

static void remove_free(vmp_buddy *buddy, uint32_t index) {
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  if (free_buddy(buddy, node->tree.offset, node->tree.size) != 0) buddy->parted--;
  vmp_tree_remove(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, index);
  vmp_tree_remove(&buddy->nodes, VMP_TREE_BY_SIZE, &buddy->by_order, index);
  buddy->free_by_order[node->tree.size]--;
  buddy->free_slots -= vmp_buddy_slots(node);
}

// merge_upwards joins a free block that is in no tree with its buddy for as long as that is possible, then inserts it.
static void merge_upwards(vmp_buddy *buddy, uint32_t index, bool unlike_too) {
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  for (;;) {
    uint32_t other_index = free_buddy(buddy, node->tree.offset, node->tree.size);
    if (other_index == 0) break;
    vmp_fence fence = vmp_buddy_at(buddy, other_index)->fence;
    if (!unlike_too && !may_share_fence(buddy, node->fence, fence)) break;
    remove_free(buddy, other_index);
    vmp_node_give(&buddy->nodes, other_index);
    node->tree.offset &= ~(UINT64_C(1) << node->tree.size);
    node->tree.size++;
    node->fence = vmp_fence_merge(node->fence, fence);
  }
  insert_free(buddy, index);
}

static void add_block(vmp_buddy *buddy, uint64_t slot, uint64_t order, vmp_fence fence) {
  uint32_t index = vmp_node_take(&buddy->nodes);
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  node->tree.offset = slot;
  node->tree.size = order;
  node->kind = VMP_BUDDY_FREE;
  node->fence = fence;
  merge_upwards(buddy, index, false);
}

// order_at: the largest block that a run of free slots begins with.
static unsigned order_at(uint64_t slot, uint64_t slots) {
  unsigned order = vmp_log2(slots);
  if (slot != 0 && vmp_lowest_bit(slot) < order) order = vmp_lowest_bit(slot);
  return order < VMP_BUDDY_ORDERS ? order : VMP_BUDDY_ORDERS - 1;
}

void vmp_buddy_add_free(vmp_buddy *buddy, uint64_t slot, uint64_t slots, vmp_fence fence) {
  while (slots > 0) {
    unsigned order = order_at(slot, slots);
    add_block(buddy, slot, order, fence);
    slot += UINT64_C(1) << order;
    slots -= UINT64_C(1) << order;
  }
}

// ---- used runs ----
uint32_t vmp_buddy_promised_nodes(uint64_t slot, uint64_t slots) {
  uint32_t blocks = 0;
  while (slots > 0) {
    unsigned order = order_at(slot, slots);
    slot += UINT64_C(1) << order;
    slots -= UINT64_C(1) << order;
    blocks++;
  }
  return blocks - 1;
}

static void count_used(vmp_buddy *buddy, uint32_t kind, uint64_t slots, bool more) {
  uint64_t *count = kind == VMP_BUDDY_BLOCK ? &buddy->blocks : &buddy->pieces;
  uint64_t *sum = kind == VMP_BUDDY_BLOCK ? &buddy->block_slots : &buddy->piece_slots;
  *count = more ? *count + 1 : *count - 1;
  *sum = more ? *sum + slots : *sum - slots;
}

bool vmp_buddy_cut(vmp_buddy *buddy, uint32_t index, uint64_t slot, uint64_t slots, uint64_t order, vmp_buddy_kind kind,
                   uint32_t *out_used) {
  if (!vmp_node_pool_reserve(&buddy->nodes, VMP_BUDDY_CUT_NODES)) return false;
  remove_free(buddy, index);
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  uint64_t from = node->tree.offset;
  vmp_fence fence = node->fence;
  uint64_t half_order = node->tree.size;
  // The run is entered first, so that the halves and the tail find nothing free to merge with.
  node->tree.offset = slot;
  node->tree.size = slots;
  node->kind = kind;
  node->fence = VMP_FENCE_NONE;
  vmp_tree_insert(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, index);
  count_used(buddy, kind, slots, true);
  buddy->nodes.promised += vmp_buddy_promised_nodes(slot, slots);
  while (half_order > order) {
    half_order--;
    uint64_t middle = from + (UINT64_C(1) << half_order);
    if (slot < middle) {
      add_block(buddy, middle, half_order, fence);
    } else {
      add_block(buddy, from, half_order, fence);
      from = middle;
    }
  }
  vmp_buddy_add_free(buddy, slot + slots, (UINT64_C(1) << order) - slots, fence);
  *out_used = index;
  return true;
}

// enter_run makes slots that are in no node a block. Nodes for it are there.
static void enter_run(vmp_buddy *buddy, uint64_t slot, uint64_t slots) {
  uint32_t index = vmp_node_take(&buddy->nodes);
  vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  node->tree.offset = slot;
  node->tree.size = slots;
  node->kind = VMP_BUDDY_BLOCK;
  vmp_tree_insert(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, index);
  count_used(buddy, VMP_BUDDY_BLOCK, slots, true);
  buddy->nodes.promised += vmp_buddy_promised_nodes(slot, slots);
}

void vmp_buddy_give_back(vmp_buddy *buddy, uint32_t used, vmp_fence fence) {
  vmp_buddy_node *node = vmp_buddy_at(buddy, used);
  uint64_t slot = node->tree.offset, slots = node->tree.size;
  buddy->streams_seen |= fence.streams;
  vmp_tree_remove(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, used);
  count_used(buddy, node->kind, slots, false);
  buddy->nodes.promised -= vmp_buddy_promised_nodes(slot, slots);
  vmp_node_give(&buddy->nodes, used);
  vmp_buddy_add_free(buddy, slot, slots, fence);
}

// ---- runs that grow and shrink (buddy_resize.c) ----
bool vmp_buddy_take_run(vmp_buddy *buddy, uint64_t slot, uint64_t slots, vmp_fence *out_fence) {
  if (!vmp_node_pool_reserve(&buddy->nodes, VMP_BUDDY_CUT_NODES)) return false;
  uint64_t end = slot + slots, at = slot;
  *out_fence = VMP_FENCE_NONE;
  while (at < end) {
    uint32_t index = vmp_buddy_holding(buddy, at);
    const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
    uint64_t node_end = node->tree.offset + vmp_buddy_slots(node);
    vmp_fence fence = node->fence;
    *out_fence = vmp_fence_merge(*out_fence, fence);
    remove_free(buddy, index);
    vmp_node_give(&buddy->nodes, index);
    at = node_end;
    if (node_end <= end) continue;
    // The run is entered first, so that what is left over finds nothing free to merge with but its own kind.
    enter_run(buddy, slot, slots);
    vmp_buddy_add_free(buddy, end, node_end - end, fence);
    return true;
  }
  enter_run(buddy, slot, slots);
  return true;
}

void vmp_buddy_join_runs(vmp_buddy *buddy, uint64_t slot) {
  vmp_buddy_node *left = vmp_buddy_at(buddy, vmp_buddy_holding(buddy, slot));
  uint32_t index = vmp_buddy_holding(buddy, slot + left->tree.size);
  const vmp_buddy_node *right = vmp_buddy_at(buddy, index);
  buddy->nodes.promised -= vmp_buddy_promised_nodes(slot, left->tree.size);
  buddy->nodes.promised -= vmp_buddy_promised_nodes(right->tree.offset, right->tree.size);
  vmp_tree_remove(&buddy->nodes, VMP_TREE_BY_OFFSET, &buddy->by_place, index);
  left->tree.size += right->tree.size;
  vmp_node_give(&buddy->nodes, index);
  buddy->nodes.promised += vmp_buddy_promised_nodes(slot, left->tree.size);
  buddy->blocks--;
}

bool vmp_buddy_split_run(vmp_buddy *buddy, uint64_t slot, uint64_t keep) {
  if (!vmp_node_pool_reserve(&buddy->nodes, VMP_BUDDY_CUT_NODES)) return false;
  vmp_buddy_node *left = vmp_buddy_at(buddy, vmp_buddy_holding(buddy, slot));
  uint64_t rest = left->tree.size - keep;
  buddy->nodes.promised -= vmp_buddy_promised_nodes(slot, left->tree.size);
  left->tree.size = keep;
  buddy->nodes.promised += vmp_buddy_promised_nodes(slot, keep);
  buddy->block_slots -= rest;  // entered again below
  enter_run(buddy, slot + keep, rest);
  return true;
}

// ---- fences ----
// is_clean: nobody can touch the block's memory any more, as far as the host knows.
static bool is_clean(const vmp_buddy *buddy, const vmp_buddy_node *node) {
  if (vmp_fence_is_none(node->fence) || buddy->ops.known_complete(buddy->ops.self, node->fence)) return true;
  uint64_t offset = node->tree.offset * buddy->ops.granule_bytes;
  uint64_t end = offset + vmp_buddy_slots(node) * buddy->ops.granule_bytes, unmapped_end = offset;
  return buddy->ops.run(buddy->ops.self, offset, end, &unmapped_end) == VMP_RUN_UNMAPPED && unmapped_end == end;
}

bool vmp_buddy_settle(vmp_buddy *buddy, bool all) {
  if (buddy->parted == 0) return false;
  bool merged = false;
  for (uint32_t i = vmp_buddy_first_free(buddy, 0, 0); i != 0;) {
    vmp_buddy_node *node = vmp_buddy_at(buddy, i);
    if (is_clean(buddy, node)) node->fence = VMP_FENCE_NONE;
    i = vmp_buddy_first_free(buddy, node->tree.size, node->tree.offset + 1);
  }
  // From small to large: what merges reappears at a higher order, and is met again there.
  for (uint32_t i = vmp_buddy_first_free(buddy, 0, 0); i != 0;) {
    vmp_buddy_node *node = vmp_buddy_at(buddy, i);
    uint64_t order = node->tree.size, slot = node->tree.offset;
    uint32_t other = free_buddy(buddy, slot, order);
    if (other != 0 && (all || may_share_fence(buddy, node->fence, vmp_buddy_at(buddy, other)->fence))) {
      remove_free(buddy, i);
      merge_upwards(buddy, i, all);
      merged = true;
    }
    i = vmp_buddy_first_free(buddy, order, slot + 1);
  }
  return merged;
}
