// node_pool.c: see node_pool.h.
#include "vmm/node_pool.h"

#include <string.h>

#include "vmm/memory.h"

#define CACHE_LINE_BYTES 64u
#define LEAST_ROW_NODES 65536u

void vmp_node_pool_init(vmp_node_pool *pool, size_t node_bytes) {
  memset(pool, 0, sizeof *pool);
  pool->node_bytes = node_bytes;
  pool->block_log2 = VMP_NODE_BLOCK_LOG2(node_bytes);
}

void vmp_node_pool_init_row(vmp_node_pool *pool, size_t node_bytes, uint32_t max_nodes, uint32_t share) {
  vmp_node_pool_init(pool, node_bytes);
  pool->max_nodes = max_nodes;
  pool->share = share;
}

static uint64_t block_nodes(const vmp_node_pool *pool) { return UINT64_C(1) << pool->block_log2; }

void vmp_node_pool_finish(vmp_node_pool *pool) {
  for (uint32_t i = 0; i < pool->num_blocks; i++) vmp_mem_free(pool->memory[i]);
  vmp_mem_free(pool->memory);
  vmp_mem_free(pool->origins);
  vmp_mem_unreserve((void *)pool->row, pool->row_bytes);
  vmp_node_pool_init_row(pool, pool->node_bytes, pool->max_nodes, pool->share);
}

// grow_tables makes room for one more block.
static bool grow_tables(vmp_node_pool *pool) {
  if (pool->num_blocks < pool->origins_capacity) return true;
  uint32_t capacity = pool->origins_capacity == 0 ? 4 : 2 * pool->origins_capacity;
  uintptr_t *origins = vmp_mem_calloc(capacity, sizeof *origins);
  void **memory = vmp_mem_calloc(capacity, sizeof *memory);
  if (origins == NULL || memory == NULL) {
    vmp_mem_free(origins);
    vmp_mem_free(memory);
    return false;
  }
  if (pool->num_blocks > 0) {
    memcpy(origins, pool->origins, pool->num_blocks * sizeof *origins);
    memcpy(memory, pool->memory, pool->num_blocks * sizeof *memory);
  }
  vmp_mem_free(pool->origins);
  vmp_mem_free(pool->memory);
  pool->origins = origins;
  pool->memory = memory;
  pool->origins_capacity = capacity;
  return true;
}

// make_block allocates memory for one more block, and says where its nodes begin.
static bool make_block(vmp_node_pool *pool, uint64_t bytes, uintptr_t *out_first) {
  if (!vmp_add(bytes, CACHE_LINE_BYTES, &bytes)) return false;
  unsigned char *memory = vmp_mem_calloc(1, (size_t)bytes);
  if (memory == NULL) return false;
  pool->memory[pool->num_blocks] = memory;
  *out_first = ((uintptr_t)memory + CACHE_LINE_BYTES - 1) / CACHE_LINE_BYTES * CACHE_LINE_BYTES;
  return true;
}

// extend_row gives memory to one more block of the row.
static bool extend_row(vmp_node_pool *pool, uint64_t bytes, uintptr_t *out_first) {
  if (pool->row == 0) {
    uint64_t least, most;
    if (!vmp_mul(LEAST_ROW_NODES, pool->node_bytes, &least) || !vmp_mul(pool->max_nodes, pool->node_bytes, &most)) {
      return false;
    }
    size_t row_bytes = (size_t)most;
    void *row = vmp_mem_reserve(&row_bytes, (size_t)least, pool->share);
    if (row == NULL) return false;
    pool->row = (uintptr_t)row;
    pool->row_bytes = row_bytes;
  }
  uint64_t from = pool->num_blocks * bytes;
  if (from + bytes > pool->row_bytes || !vmp_mem_commit((void *)(pool->row + from), (size_t)bytes)) return false;
  pool->memory[pool->num_blocks] = NULL;
  *out_first = pool->row + from;
  return true;
}

static bool add_block(vmp_node_pool *pool) {
  if (pool->num_blocks == UINT32_MAX >> pool->block_log2 || !grow_tables(pool)) return false;
  uint64_t bytes, nodes = block_nodes(pool);
  uintptr_t first = 0;
  if (!vmp_mul(nodes, pool->node_bytes, &bytes)) return false;
  if (!(pool->max_nodes != 0 ? extend_row(pool, bytes, &first) : make_block(pool, bytes, &first))) return false;
  pool->origins[pool->num_blocks] = first - (uintptr_t)(pool->num_blocks * nodes * pool->node_bytes);
  // Index 0 of block 0 is "none".
  pool->capacity += (uint32_t)(pool->num_blocks == 0 ? nodes - 1 : nodes);
  pool->num_blocks++;
  return true;
}

bool vmp_node_pool_grow(vmp_node_pool *pool, uint32_t nodes) {
  while (vmp_node_pool_unpromised(pool) < nodes) {
    if (!add_block(pool)) return false;
  }
  return true;
}

void vmp_node_give(vmp_node_pool *pool, uint32_t index) {
  void *node = vmp_node_at(pool, index);
  memset(node, 0, pool->node_bytes);
  vmp_node_give_back(pool, index, node);
}

uint64_t vmp_node_pool_bytes(const vmp_node_pool *pool) {
  uint64_t beside = pool->max_nodes != 0 ? 0 : CACHE_LINE_BYTES;
  return pool->num_blocks * (block_nodes(pool) * pool->node_bytes + beside) +
         pool->origins_capacity * (sizeof *pool->origins + sizeof *pool->memory);
}

void vmp_node_pool_check(const vmp_node_pool *pool, const char *name, vmp_report *report) {
  if ((uint64_t)pool->used + pool->promised > pool->capacity) {
    vmp_report_fault(report, "%s: %u nodes are used and %u promised, but only %u exist", name, pool->used,
                     pool->promised, pool->capacity);
  }
  if (pool->touched > pool->capacity || pool->used > pool->touched) {
    vmp_report_fault(report, "%s: %u nodes are used and %u were touched of %u", name, pool->used, pool->touched,
                     pool->capacity);
    return;
  }
  uint32_t listed = 0;
  uint32_t expected = pool->touched - pool->used;
  uint32_t index = pool->free_list;
  while (index != 0 && index <= pool->touched && listed <= expected) {
    memcpy(&index, vmp_node_at(pool, index), sizeof index);
    listed++;
  }
  if (index != 0 || listed != expected) {
    vmp_report_fault(report, "%s: the free list doesn't hold exactly the %u unused nodes", name, expected);
  }
}
