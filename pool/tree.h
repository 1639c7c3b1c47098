// tree.h: ordered trees over the nodes of a node pool.
//
// Owns: the links of the nodes. Does not own the nodes: whoever inserts one removes it before it is given back.
//
// A treap (Seidel and Aragon, "Randomized search trees", 1996): ordered by key from left to right, and by priority from
// the root down. The priority is a hash of the node's index, so it needs no memory and the same calls make the same
// tree. Expected depth is about 1.4 log2 n, whatever the order of insertion (tests/unit/tree_test.c).
//
// Two orders, so that one node can be in two trees:
//     VMP_TREE_BY_OFFSET   offset
//     VMP_TREE_BY_SIZE     size, then offset
#ifndef VMPOOL_POOL_TREE_H_
#define VMPOOL_POOL_TREE_H_

#include "vmm/node_pool.h"

// vmp_tree_node: what every node in a tree begins with. offset (and size, in a tree by size) must not change their
// order among the nodes of the tree while the node is in it.
typedef struct vmp_tree_node {
  uint64_t offset;
  uint64_t size;
  uint32_t links[2][2];  // [order][left, right]
} vmp_tree_node;

typedef enum vmp_tree_order { VMP_TREE_BY_OFFSET = 0, VMP_TREE_BY_SIZE = 1 } vmp_tree_order;

typedef struct vmp_tree_key {
  uint64_t size, offset;  // BY_OFFSET looks at offset alone
} vmp_tree_key;

static inline vmp_tree_node *vmp_tree_at(const vmp_node_pool *pool, uint32_t index) { return vmp_node_at(pool, index); }

// A tree is the index of its root, 0 when empty. Equal keys must not occur.
void vmp_tree_insert(const vmp_node_pool *pool, vmp_tree_order order, uint32_t *root, uint32_t index);
// vmp_tree_remove: the node must be in the tree.
void vmp_tree_remove(const vmp_node_pool *pool, vmp_tree_order order, uint32_t *root, uint32_t index);

// vmp_tree_at_least returns the node with the smallest key >= `key`, vmp_tree_at_most the one with the largest <=
// `key`; 0 when there is none.
uint32_t vmp_tree_at_least(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, vmp_tree_key key);
uint32_t vmp_tree_at_most(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, vmp_tree_key key);
// vmp_tree_around finds the neighbours of an offset in a tree by offset, in one descent: the last node before it and
// the first one behind it (0 where there is none). No node may be at the offset itself.
void vmp_tree_around(const vmp_node_pool *pool, uint32_t root, uint64_t offset, uint32_t *out_before,
                     uint32_t *out_behind);

// vmp_tree_check reports nodes that are out of order and returns how many nodes the tree has.
uint64_t vmp_tree_check(const vmp_node_pool *pool, vmp_tree_order order, uint32_t root, const char *name,
                        vmp_report *report);

#endif  // VMPOOL_POOL_TREE_H_
