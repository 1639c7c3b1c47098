#include "tools/trace/size_stacks.h"

#include <stdlib.h>
#include <string.h>

#define NONE UINT32_MAX

typedef struct size_stacks_ends {
  uint32_t newest, oldest;
} size_stacks_ends;

typedef struct size_stacks_links {
  uint32_t older, newer;
} size_stacks_links;

void size_stacks_destroy(size_stacks *stacks) {
  id_map_destroy(&stacks->by_size);
  free(stacks->ends);
  free(stacks->links);
  memset(stacks, 0, sizeof(*stacks));
}

static bool grow_links(size_stacks *stacks, uint32_t block) {
  if (block < stacks->num_links) return true;
  const size_t count = 2 * (size_t)block + 256;
  size_stacks_links *links = reallocarray(stacks->links, count, sizeof(*links));
  if (links == NULL) return false;
  stacks->links = links;
  stacks->num_links = count;
  return true;
}

static size_stacks_ends *ends_of(size_stacks *stacks, uint64_t bytes) {
  const uint32_t *index = id_map_find(&stacks->by_size, bytes);
  if (index != NULL) return &stacks->ends[*index];
  if (stacks->num_sizes == stacks->sizes_capacity) {
    const size_t capacity = stacks->sizes_capacity == 0 ? 64 : stacks->sizes_capacity * 2;
    size_stacks_ends *ends = reallocarray(stacks->ends, capacity, sizeof(*ends));
    if (ends == NULL) return NULL;
    stacks->ends = ends;
    stacks->sizes_capacity = capacity;
  }
  if (!id_map_put(&stacks->by_size, bytes, (uint32_t)stacks->num_sizes)) return NULL;
  stacks->ends[stacks->num_sizes] = (size_stacks_ends){.newest = NONE, .oldest = NONE};
  return &stacks->ends[stacks->num_sizes++];
}

bool size_stacks_push(size_stacks *stacks, uint64_t bytes, uint32_t block) {
  if (!grow_links(stacks, block)) return false;
  size_stacks_ends *ends = ends_of(stacks, bytes);
  if (ends == NULL) return false;
  stacks->links[block] = (size_stacks_links){.older = ends->newest, .newer = NONE};
  if (ends->newest != NONE) {
    stacks->links[ends->newest].newer = block;
  } else {
    ends->oldest = block;
  }
  ends->newest = block;
  return true;
}

bool size_stacks_take(size_stacks *stacks, uint64_t bytes, trace_pairing pairing, uint32_t *out_block) {
  const uint32_t *index = id_map_find(&stacks->by_size, bytes);
  if (index == NULL || stacks->ends[*index].newest == NONE) return false;
  size_stacks_ends *ends = &stacks->ends[*index];
  const uint32_t block = pairing == TRACE_LIFO ? ends->newest : ends->oldest;
  if (pairing == TRACE_LIFO) {
    ends->newest = stacks->links[block].older;
  } else {
    ends->oldest = stacks->links[block].newer;
  }
  const uint32_t neighbour = pairing == TRACE_LIFO ? ends->newest : ends->oldest;
  if (neighbour == NONE) {
    *ends = (size_stacks_ends){.newest = NONE, .oldest = NONE};
  } else if (pairing == TRACE_LIFO) {
    stacks->links[neighbour].newer = NONE;
  } else {
    stacks->links[neighbour].older = NONE;
  }
  *out_block = block;
  return true;
}
