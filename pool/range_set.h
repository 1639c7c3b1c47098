// range_set.h: a set of disjoint ranges of offsets, found by place and by size.
//
// Owns: the ranges, coalesced: two that touch become one, unless a wall is between them. Does not own what they mean:
// mid keeps its free extents that aren't wholly mapped in one.
//
//     by place    one tree over all ranges
//     by size     a tree for each of 32 classes to a doubling, and a bitmap of the classes that aren't empty: most
//     trees
//                 have one node or none
//
// Invariants
//   - ranges are disjoint, not empty, and don't touch except at a wall; both indexes hold exactly the same ranges.
//   - count and bytes are the sums over the ranges.
//   - adding or removing needs at most one new node; giving a whole range up needs none.
#ifndef VMPOOL_POOL_RANGE_SET_H_
#define VMPOOL_POOL_RANGE_SET_H_

#include "pool/tree.h"

#define VMP_RANGE_CLASSES 1664u  // sizes below 2^64 in units of 512 bytes, 32 classes to a doubling

typedef vmp_tree_node vmp_range;  // [offset, offset + size)

typedef struct vmp_range_set {
  vmp_node_pool *nodes;  // of vmp_range; may be shared by several sets
  uint32_t by_offset;
  uint32_t by_size[VMP_RANGE_CLASSES];
  uint64_t classes[VMP_RANGE_CLASSES / 64];  // bit set: the class isn't empty
  uint64_t count, bytes;
} vmp_range_set;

void vmp_ranges_init(vmp_range_set *set, vmp_node_pool *nodes);

static inline const vmp_range *vmp_range_at(const vmp_range_set *set, uint32_t index) {
  return vmp_tree_at(set->nodes, index);
}
static inline uint64_t vmp_range_end(const vmp_range *range) { return range->offset + range->size; }

// vmp_ranges_add puts [offset, offset + size), of which nothing may be in the set, into it. It coalesces with its
// neighbours inside [low_wall, high_wall). Takes at most one node from the pool, which must be there.
void vmp_ranges_add(vmp_range_set *set, uint64_t offset, uint64_t size, uint64_t low_wall, uint64_t high_wall);

// vmp_ranges_remove takes out whatever of [offset, offset + size) is in the set. Takes at most one node from the pool,
// which must be there when the range may lie strictly inside another.
void vmp_ranges_remove(vmp_range_set *set, uint64_t offset, uint64_t size);
// vmp_ranges_take does the same for [offset, offset + size) that lies wholly in range `index`, without a search.
void vmp_ranges_take(vmp_range_set *set, uint32_t index, uint64_t offset, uint64_t size);

// Queries return the index of a range, 0 when there is none.
uint32_t vmp_ranges_find(const vmp_range_set *set, uint64_t offset);   // the range that holds offset
uint32_t vmp_ranges_after(const vmp_range_set *set, uint64_t offset);  // the first one that begins at offset or later
// vmp_ranges_fitting: the smallest range of at least `size`, the lowest among equals; _next_larger goes on from there.
uint32_t vmp_ranges_fitting(const vmp_range_set *set, uint64_t size);
uint32_t vmp_ranges_next_larger(const vmp_range_set *set, uint32_t index);
// vmp_ranges_largest: the largest range, the highest among equals; _next_smaller goes on from there.
uint32_t vmp_ranges_largest(const vmp_range_set *set);
uint32_t vmp_ranges_next_smaller(const vmp_range_set *set, uint32_t index);

// vmp_ranges_check reports every broken invariant ("<name>: ..."). `touching` says whether two ranges may touch at
// offset `at` (a wall); NULL: never.
void vmp_ranges_check(const vmp_range_set *set, const char *name, bool (*touching)(const void *context, uint64_t at),
                      const void *context, vmp_report *report);

#endif  // VMPOOL_POOL_RANGE_SET_H_
