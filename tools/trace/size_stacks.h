// size_stacks.h: live blocks by size, for formats whose frees name no block. Internal to tools/trace.
//
//     size 512 -> newest .. oldest     taken from the newest (LIFO) or the oldest end (FIFO)
#ifndef VMPOOL_TOOLS_TRACE_SIZE_STACKS_H_
#define VMPOOL_TOOLS_TRACE_SIZE_STACKS_H_

#include "tools/trace/id_map.h"
#include "tools/trace/trace.h"

typedef struct size_stacks {
  id_map by_size;                   // size -> index into ends
  struct size_stacks_ends *ends;    // of one size's list
  struct size_stacks_links *links;  // by block
  size_t num_sizes, sizes_capacity, num_links;
} size_stacks;

void size_stacks_destroy(size_stacks *stacks);  // a zeroed one is empty and ready

// size_stacks_push adds a live block; false when host memory runs out.
bool size_stacks_push(size_stacks *stacks, uint64_t bytes, uint32_t block);

// size_stacks_take removes a block of exactly that size; false when there is none.
bool size_stacks_take(size_stacks *stacks, uint64_t bytes, trace_pairing pairing, uint32_t *out_block);

#endif  // VMPOOL_TOOLS_TRACE_SIZE_STACKS_H_
