// buddy_internal.h: what buddy's files share. See buddy.h for what buddy is.
//
//     buddy.c        public functions
//     buddy_space.c  blocks: cutting, splitting, giving back, merging
//     buddy_place.c  where a block or piece goes
//     buddy_resize.c blocks that become longer or shorter, and addresses without a claim
//     buddy_check.c  all invariants
//
// Inside, addresses and lengths are counted in slots (slot = offset / granule), so that no sum can wrap. Every free
// block and every used run is one node in a tree by place; free blocks are in a second tree by (order, place) too.
#ifndef VMPOOL_POOL_BUDDY_INTERNAL_H_
#define VMPOOL_POOL_BUDDY_INTERNAL_H_

#include "pool/buddy.h"
#include "pool/tree.h"
#include "vmm/align.h"
#include "vmm/node_pool.h"

typedef enum vmp_buddy_kind {
  VMP_BUDDY_NONE = 0,  // the node is nobody's
  VMP_BUDDY_FREE = 1,
  VMP_BUDDY_BLOCK = 2,
  VMP_BUDDY_PIECE = 3,
} vmp_buddy_kind;

typedef struct vmp_buddy_node {
  vmp_tree_node tree;  // offset: first slot; size: the order of a free block, the slots of a used run
  vmp_fence fence;     // of a free block
  uint32_t kind;       // vmp_buddy_kind
  uint32_t unused;
} vmp_buddy_node;

_Static_assert(sizeof(vmp_buddy_node) == 56, "a node has no hidden padding");

typedef struct vmp_buddy_range {
  uint64_t slot, slots;
} vmp_buddy_range;

struct vmp_buddy {
  vmp_backing_ops ops;
  vmp_node_pool nodes;  // of vmp_buddy_node
  uint32_t by_place;    // all nodes
  uint32_t by_order;    // free ones

  vmp_buddy_range *ranges;  // by place
  size_t num_ranges;

  uint64_t streams_seen;  // a bit for every stream that has allocated or is named in a fence
  uint64_t parted;        // pairs of free whole buddies that are kept apart by their fences
  uint64_t free_by_order[VMP_BUDDY_ORDERS];
  uint64_t added_slots, free_slots, block_slots, piece_slots;
  uint64_t blocks, pieces;
};

// The nodes that any cut can need: halves left over by splitting, blocks of the tail, and the promise.
#define VMP_BUDDY_CUT_NODES (3u * VMP_BUDDY_ORDERS)

static inline vmp_buddy_node *vmp_buddy_at(const vmp_buddy *buddy, uint32_t index) {
  return vmp_node_at(&buddy->nodes, index);
}
static inline uint64_t vmp_buddy_slots(const vmp_buddy_node *node) {
  return node->kind == VMP_BUDDY_FREE ? UINT64_C(1) << node->tree.size : node->tree.size;
}

// ---- buddy_space.c ----
// vmp_buddy_range_of: the added range that holds the slot, or NULL.
const vmp_buddy_range *vmp_buddy_range_of(const vmp_buddy *buddy, uint64_t slot);
// vmp_buddy_holding: the node, free or used, that holds the slot, or 0.
uint32_t vmp_buddy_holding(const vmp_buddy *buddy, uint64_t slot);
// vmp_buddy_first_free: the free block of the lowest (order, slot) that is at least the given one, or 0.
uint32_t vmp_buddy_first_free(const vmp_buddy *buddy, uint64_t order, uint64_t slot);
// vmp_buddy_add_free makes [slot, slot + slots) free blocks, as large as alignment allows, and merges them with their
// buddies. Nodes for them must be there.
void vmp_buddy_add_free(vmp_buddy *buddy, uint64_t slot, uint64_t slots, vmp_fence fence);
// vmp_buddy_cut takes [slot, slot + slots) out of free block `index` as a used run: `slot` is aligned to 2^order slots
// (the place), slots <= 2^order. The rest of the place and of the block is free at once. False: host memory ran out and
// nothing has changed.
bool vmp_buddy_cut(vmp_buddy *buddy, uint32_t index, uint64_t slot, uint64_t slots, uint64_t order, vmp_buddy_kind kind,
                   uint32_t *out_used);
// vmp_buddy_promised_nodes: a run comes back as aligned powers of two, as many as this and one; it has one node itself.
uint32_t vmp_buddy_promised_nodes(uint64_t slot, uint64_t slots);
// vmp_buddy_take_run makes free slots, in one or several free blocks that begin at `slot`, a used block. *out_fence: of
// all of them. False: host memory ran out and nothing has changed. vmp_buddy_join_runs makes one block of the one at
// `slot` and the next; vmp_buddy_split_run two of one (false: host memory).
bool vmp_buddy_take_run(vmp_buddy *buddy, uint64_t slot, uint64_t slots, vmp_fence *out_fence);
void vmp_buddy_join_runs(vmp_buddy *buddy, uint64_t slot);
bool vmp_buddy_split_run(vmp_buddy *buddy, uint64_t slot, uint64_t keep);
// vmp_buddy_give_back makes a used run free. Allocates nothing, can't fail.
void vmp_buddy_give_back(vmp_buddy *buddy, uint32_t used, vmp_fence fence);
// vmp_buddy_settle drops the fences of free blocks that are complete or wholly unmapped, and merges what is alike then;
// with `all`, it merges unlike halves too. Returns whether anything merged. O(n log n).
bool vmp_buddy_settle(vmp_buddy *buddy, bool all);

// ---- buddy_place.c ----
typedef enum vmp_buddy_wish {
  VMP_BUDDY_MEMORY,     // for a block
  VMP_BUDDY_MAPPED,     // for a block, without mapping anything
  VMP_BUDDY_ADDRESSES,  // for a piece
  VMP_BUDDY_FRESH,      // for a block whose best place failed because of chunk sizes: wholly unmapped, with room around
} vmp_buddy_wish;

typedef struct vmp_buddy_place {
  uint32_t block;  // the free block
  uint64_t slot;
  uint64_t block_order;
  uint64_t mapped_slots;
  vmp_cost cost;
  vmp_fence fence;  // who may still touch the place: the block's fence, unless nothing of the place is mapped
  vmp_fence after;  // what the stream has to wait for of it
  bool must_wait;   // because of it, or of the cost
} vmp_buddy_place;

// vmp_buddy_find_place: the best place for `slots` slots at a multiple of 2^order slots, with VMP_WAIT_NEVER only one
// that the stream may use at once. False when there is none; *out_blocked then tells whether one would do but for slots
// that can't be mapped now or what it would wait for.
bool vmp_buddy_find_place(const vmp_buddy *buddy, uint64_t slots, uint64_t order, vmp_stream_index stream,
                          vmp_wait wait, vmp_buddy_wish wish, vmp_buddy_place *out_place, bool *out_blocked);

#endif  // VMPOOL_POOL_BUDDY_INTERNAL_H_
