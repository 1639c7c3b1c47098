// node_pool.h: fixed-size bookkeeping nodes, named by 32-bit indices, that never move.
//
// Owns: the memory of the nodes and which of them are in use. Does not own what is in them.
//
//     index      0 (none) | 1 ... 255 | 256 ... 511 | 512 ... 767 | ...     blocks of 256 nodes (of fewer, where
//     origins    [block 0 | block 1   | block 2     | ...            ]     nodes are larger than a cache line); a table
//                                                                          that doubles
//     count      used + promised <= capacity
//
// A pool in a row has addresses for all the nodes that it may ever have, one behind the other, and its blocks lie
// there:
//
//     row        | block 0 | block 1 | block 2 | (addresses without memory) ................... |
//                index i is at row + i * node_bytes: no table has to be asked
//
// A promise is a node that somebody will take later on a path that can't fail: free gives back memory and may need
// a node for it, so the allocation before it promised that node.
//
// Invariants
//   - used nodes + nodes in the free list + nodes never touched = capacity; used + promised <= capacity.
//   - a node's address is valid until the pool is finished; at most one block is held beyond what was asked for.
//   - a node that nobody uses is zero, but for its link in the free list. So is index 0, which may be read once the
//   pool
//     has a block: a node whose users follow links needn't ask whether a link leads anywhere.
#ifndef VMPOOL_VMM_NODE_POOL_H_
#define VMPOOL_VMM_NODE_POOL_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/align.h"
#include "vmm/error.h"

// VMP_NODE_BLOCK_LOG2: log2 of the nodes in a block, for whoever finds nodes by a constant. A block has 8 to 16 KiB, so
// that where there are few large nodes, they don't cost many.
#define VMP_NODE_BLOCK_LOG2(bytes) \
  ((bytes) <= 64 ? 8u : (bytes) <= 128 ? 7u : (bytes) <= 256 ? 6u : (bytes) <= 512 ? 5u : (bytes) <= 1024 ? 4u : 3u)

typedef struct vmp_node_pool {
  size_t node_bytes;
  unsigned block_log2;
  uint32_t free_list;  // the first 4 bytes of a free node hold the next one
  uint32_t used, promised;
  uint32_t touched;     // indices 1..touched have been handed out at least once
  uint32_t capacity;    // indices 1..capacity have memory
  uint32_t num_blocks;  // of origins_capacity
  uint32_t origins_capacity;
  // Of each block: the address that index 0 would have, were its nodes in a row. They begin at a cache line inside the
  // block's memory.
  uintptr_t *origins;
  void **memory;  // of each block, as it was allocated; NULL of one in the row
  // Of a pool in a row, once it has a block: where index 0 is, and how far the addresses reach.
  uintptr_t row;
  size_t row_bytes;
  uint32_t max_nodes;  // of a row, index 0 among them; 0: the pool isn't in a row
  uint32_t share;
} vmp_node_pool;

// vmp_node_pool_init starts an empty pool; node_bytes is at least 4. Can't fail, allocates nothing.
void vmp_node_pool_init(vmp_node_pool *pool, size_t node_bytes);
// vmp_node_pool_init_row starts one that will be in a row, for at most `max_nodes`, a power of two from 2^16 on. Where a
// process may have only so many addresses (RLIMIT_AS), the row has at most one in `share` of what is left, or 2^16 nodes.
void vmp_node_pool_init_row(vmp_node_pool *pool, size_t node_bytes, uint32_t max_nodes, uint32_t share);
// vmp_node_pool_finish frees all memory, used nodes included.
void vmp_node_pool_finish(vmp_node_pool *pool);

// vmp_node_pool_grow makes sure that `nodes` more can be taken without touching a promise; see vmp_node_pool_reserve.
bool vmp_node_pool_grow(vmp_node_pool *pool, uint32_t nodes);

// vmp_node_pool_unpromised: how many nodes can be taken now without allocating or touching a promise.
static inline uint32_t vmp_node_pool_unpromised(const vmp_node_pool *pool) {
  return pool->capacity - pool->used - pool->promised;
}

// vmp_node_pool_reserve makes sure that `nodes` more can be taken without touching a promise. False when host memory
// (or the 32-bit index space) ran out; then nobody's nodes have changed.
static inline bool vmp_node_pool_reserve(vmp_node_pool *pool, uint32_t nodes) {
  return vmp_node_pool_unpromised(pool) >= nodes || vmp_node_pool_grow(pool, nodes);
}

// vmp_node_at returns the node's memory. index must be 0..touched.
static inline void *vmp_node_at(const vmp_node_pool *pool, uint32_t index) {
  return (void *)(pool->origins[index >> pool->block_log2] + (uintptr_t)index * pool->node_bytes);
}

// vmp_node_in_row is the same of a pool in a row, where `node_bytes` is known to the compiler.
static inline void *vmp_node_in_row(const vmp_node_pool *pool, uint32_t index, size_t node_bytes) {
  return (void *)(pool->row + (uintptr_t)index * node_bytes);
}

// vmp_node_take hands out a zeroed node; at least one must be there (vmp_node_pool_reserve, or a promise that the
// caller takes back). Never 0. vmp_node_take_in_row is the same of a pool in a row.
static inline uint32_t vmp_node_take_at(vmp_node_pool *pool, uint32_t *link) {
  uint32_t index = pool->free_list;
  pool->used++;
  if (index == 0) return ++pool->touched;  // fresh memory is zero
  pool->free_list = *link;
  *link = 0;
  return index;
}
static inline uint32_t vmp_node_take(vmp_node_pool *pool) {
  return vmp_node_take_at(pool, vmp_node_at(pool, pool->free_list));
}
static inline uint32_t vmp_node_take_in_row(vmp_node_pool *pool, size_t node_bytes) {
  return vmp_node_take_at(pool, vmp_node_in_row(pool, pool->free_list, node_bytes));
}

// vmp_node_give returns a node; its content is lost.
void vmp_node_give(vmp_node_pool *pool, uint32_t index);

// vmp_node_give_back does the same for a node, which lies at `node`, that the caller has zeroed.
static inline void vmp_node_give_back(vmp_node_pool *pool, uint32_t index, void *node) {
  *(uint32_t *)node = pool->free_list;
  pool->free_list = index;
  pool->used--;
}

// vmp_node_pool_bytes: host memory held.
uint64_t vmp_node_pool_bytes(const vmp_node_pool *pool);

// vmp_node_pool_check reports every broken invariant ("<name>: ..."). O(free nodes).
void vmp_node_pool_check(const vmp_node_pool *pool, const char *name, vmp_report *report);

#endif  // VMPOOL_VMM_NODE_POOL_H_
