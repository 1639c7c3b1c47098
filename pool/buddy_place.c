// buddy_place.c: where a block or a piece goes. Changes nothing.
//
// Owns: the order of preference.
//     a block   not blocked; no wait; fewest slots to map; fewest parked chunks pinned; smallest order; lowest address
//     mapped    the same, but only places without a slot to map
//     a piece   no blocked slots; fewest mapped slots; smallest order; lowest address
//     afresh    wholly unmapped and not blocked; no wait; largest order (room for whole chunks); lowest address
//
// The search is bounded: for each order up to 32 free blocks, lowest first, 64 in all (more only while every one is
// blocked). In a block that is larger than needed up to 16 changes of mapping state are followed, so that a
// mapped place (for a piece: an unmapped one) in its middle is found.
#include "pool/buddy_internal.h"

enum {
  BLOCKS_PER_ORDER = 32,
  BLOCKS_COMPARED = 64,
  STATES_WALKED = 16,
};

typedef struct search {
  const vmp_buddy *buddy;
  uint64_t slots, order;
  vmp_stream_index stream;
  vmp_buddy_wish wish;
  vmp_wait wait;
  bool found, blocked;
  vmp_buddy_place best;
} search;

static bool better_memory(const vmp_buddy_place *a, const vmp_buddy_place *b) {
  if (a->must_wait != b->must_wait) return !a->must_wait;
  if (a->cost.slots_to_map != b->cost.slots_to_map) return a->cost.slots_to_map < b->cost.slots_to_map;
  if (a->cost.chunks_pinned != b->cost.chunks_pinned) return a->cost.chunks_pinned < b->cost.chunks_pinned;
  if (a->block_order != b->block_order) return a->block_order < b->block_order;
  return a->slot < b->slot;
}

static bool better_addresses(const vmp_buddy_place *a, const vmp_buddy_place *b) {
  if (a->cost.blocked != b->cost.blocked) return !a->cost.blocked;
  if (a->mapped_slots != b->mapped_slots) return a->mapped_slots < b->mapped_slots;
  if (a->block_order != b->block_order) return a->block_order < b->block_order;
  return a->slot < b->slot;
}

static bool better_fresh(const vmp_buddy_place *a, const vmp_buddy_place *b) {
  if (a->must_wait != b->must_wait) return !a->must_wait;
  if (a->block_order != b->block_order) return a->block_order > b->block_order;
  return a->slot < b->slot;
}

static bool is_better(const search *s, const vmp_buddy_place *place) {
  if (!s->found) return true;
  switch (s->wish) {
    case VMP_BUDDY_MEMORY:
    case VMP_BUDDY_MAPPED: return better_memory(place, &s->best);
    case VMP_BUDDY_ADDRESSES: return better_addresses(place, &s->best);
    case VMP_BUDDY_FRESH: return better_fresh(place, &s->best);
  }
  return false;
}

static void consider(search *s, uint32_t index, uint64_t slot) {
  const vmp_buddy *buddy = s->buddy;
  const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  uint64_t granule = buddy->ops.granule_bytes;
  vmp_buddy_place place = {.block = index, .slot = slot, .block_order = node->tree.size};
  place.cost = buddy->ops.cost(buddy->ops.self, slot * granule, s->slots * granule, s->stream);
  place.mapped_slots = s->slots - place.cost.slots_to_map;
  // An unmapped slot has no unfinished work: its old mapping stayed until that had finished.
  if (place.mapped_slots > 0 || place.cost.blocked) place.fence = node->fence;
  if (!vmp_fence_is_none(place.fence)) {
    place.after = buddy->ops.others(buddy->ops.self, place.fence, s->stream);
  }
  place.must_wait = s->wait != VMP_WAIT_ANY && (place.cost.must_wait || !vmp_fence_is_none(place.after));
  if (place.cost.blocked) {
    s->blocked = true;
    if (s->wish != VMP_BUDDY_ADDRESSES) return;
  }
  if (s->wait == VMP_WAIT_NEVER && place.must_wait) {
    s->blocked = true;
    return;
  }
  if (s->wish == VMP_BUDDY_FRESH && place.mapped_slots > 0) return;
  if (s->wish == VMP_BUDDY_MAPPED && place.cost.slots_to_map > 0) return;
  if (!is_better(s, &place)) return;
  s->best = place;
  s->found = true;
}

// consider_block looks at the block's beginning and, if it is larger than needed, at where its mapping changes.
static void consider_block(search *s, uint32_t index) {
  const vmp_buddy *buddy = s->buddy;
  const vmp_buddy_node *node = vmp_buddy_at(buddy, index);
  uint64_t granule = buddy->ops.granule_bytes, size = UINT64_C(1) << s->order;
  uint64_t first = node->tree.offset, end = first + vmp_buddy_slots(node);
  consider(s, index, first);
  uint64_t slot = first;
  for (unsigned i = 0; i < STATES_WALKED && slot < end && node->tree.size > s->order; i++) {
    uint64_t state_end = end * granule;
    (void)buddy->ops.run(buddy->ops.self, slot * granule, end * granule, &state_end);
    uint64_t down = vmp_align_down(slot, size);
    if (down > first) consider(s, index, down);
    if (down != slot && down + size < end) consider(s, index, down + size);
    slot = state_end / granule;
  }
}

// is_ideal: nothing further on can be better.
static bool is_ideal(const search *s) {
  if (!s->found) return false;
  if (s->wish == VMP_BUDDY_ADDRESSES) return !s->best.cost.blocked && s->best.mapped_slots == 0;
  return s->wish != VMP_BUDDY_FRESH && !s->best.must_wait && s->best.cost.slots_to_map == 0 &&
         s->best.cost.chunks_pinned <= 1;
}

static void search_upwards(search *s) {
  uint64_t order = s->order, in_order = 0, compared = 0;
  uint32_t i = vmp_buddy_first_free(s->buddy, order, 0);
  while (i != 0 && !is_ideal(s) && (compared < BLOCKS_COMPARED || !s->found)) {
    const vmp_buddy_node *node = vmp_buddy_at(s->buddy, i);
    if (node->tree.size != order) {
      order = node->tree.size;
      in_order = 0;
    }
    consider_block(s, i);
    compared++;
    in_order++;
    bool enough = in_order >= BLOCKS_PER_ORDER && s->found;
    i = enough ? vmp_buddy_first_free(s->buddy, order + 1, 0)
               : vmp_buddy_first_free(s->buddy, order, node->tree.offset + 1);
  }
}

static void search_downwards(search *s) {
  vmp_tree_key key = {UINT64_MAX, UINT64_MAX};
  for (unsigned compared = 0; compared < BLOCKS_COMPARED; compared++) {
    uint32_t i = vmp_tree_at_most(&s->buddy->nodes, VMP_TREE_BY_SIZE, s->buddy->by_order, key);
    if (i == 0) return;
    const vmp_buddy_node *node = vmp_buddy_at(s->buddy, i);
    if (node->tree.size < s->order) return;
    consider_block(s, i);
    if (node->tree.offset == 0 && node->tree.size == 0) return;
    key = node->tree.offset == 0 ? (vmp_tree_key){node->tree.size - 1, UINT64_MAX}
                                 : (vmp_tree_key){node->tree.size, node->tree.offset - 1};
  }
}

bool vmp_buddy_find_place(const vmp_buddy *buddy, uint64_t slots, uint64_t order, vmp_stream_index stream,
                          vmp_wait wait, vmp_buddy_wish wish, vmp_buddy_place *out_place, bool *out_blocked) {
  search s = {.buddy = buddy, .slots = slots, .order = order, .stream = stream, .wish = wish, .wait = wait};
  if (wish == VMP_BUDDY_FRESH) {
    search_downwards(&s);
  } else {
    search_upwards(&s);
  }
  *out_place = s.best;
  *out_blocked = s.blocked;
  return s.found;
}
