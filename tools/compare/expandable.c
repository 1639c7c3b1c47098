// expandable.c: one growing range of addresses for each stream and size class. See model.h.
//
//     handles   |   20 MiB   |   20 MiB   |   20 MiB   |   20 MiB   |
//     blocks    [ live | free | live      ][ unmapped  ][ free | live ][ unmapped ...
//
// Unmapped blocks begin and end at handles. A request that no free block serves takes the lowest hole: a free block
// and the unmapped one behind it, as far as it goes.
#include "tools/compare/model_internal.h"

#define RANGE_BYTES (UINT64_C(1) << 63)  // addresses cost nothing

static uint64_t handle_bytes(const model_space *space) {
  return space->class == MODEL_SMALL ? MODEL_GRANULE_BYTES : MODEL_BUFFER_BYTES;
}

static bool open_range(model *m, model_space *space) {
  if (space->first != NULL) return true;
  space->first = heap_new(&m->heap, &space->list, 0, RANGE_BYTES);
  if (space->first == NULL) return false;
  space->first->state = HEAP_UNMAPPED;
  m->counts.calls.reserve++;
  return true;
}

static bool usable(const heap_block *block) { return block != NULL && block->state != HEAP_LIVE; }

// Whether the blocks from `first` on hold `bytes` without a live one among them.
static bool holds(const heap_block *first, uint64_t bytes) {
  uint64_t sum = 0;
  for (const heap_block *b = first; usable(b) && sum < bytes; b = b->next) sum += b->bytes;
  return sum >= bytes;
}

// The lowest place that holds an unmapped block, together with a free one before it.
static heap_block *find_hole(const model_space *space, uint64_t bytes) {
  for (heap_block *b = space->first; b != NULL; b = b->next) {
    if (b->state != HEAP_UNMAPPED) continue;
    heap_block *first = usable(b->previous) ? b->previous : b;
    if (holds(first, bytes)) return first;
  }
  return NULL;
}

// map gives memory to the first `bytes` bytes of an unmapped block, in whole handles: all of them or none. The block is
// then mapped, HEAP_LIVE, and in no list; what a handle has beyond `bytes` belongs to it.
static bool map(model *m, model_space *space, heap_block *block, uint64_t bytes) {
  const uint64_t handle = handle_bytes(space), count = (bytes + handle - 1) / handle;
  model_calls *calls = &m->counts.calls;
  const uint64_t room = (m->device_bytes - m->counts.mapped_bytes) / handle;
  if (count > room) {  // the last creation fails, and those before it are undone
    calls->create += room + 1;
    calls->create_bytes += room * handle;
    calls->release += room;
    return false;
  }
  if (block->bytes > count * handle && heap_split(&m->heap, block, count * handle) == NULL) return false;
  (void)model_hold(m, count * handle);
  calls->create += count;
  calls->create_bytes += count * handle;
  calls->map += count;
  calls->set_access++;
  calls->access_mappings += count;
  block->state = HEAP_LIVE;
  return true;
}

// grow_at maps what the place lacks. On failure what has been mapped stays, free.
static heap_block *grow_at(model *m, model_space *space, heap_block *first, uint64_t bytes) {
  heap_block *block = first;
  if (block->state == HEAP_FREE) {
    heap_take(block);
  } else if (!map(m, space, block, bytes < block->bytes ? bytes : block->bytes)) {
    return NULL;
  }
  while (block->bytes < bytes) {
    const uint64_t rest = bytes - block->bytes;
    heap_block *next = block->next;
    if (next->state == HEAP_UNMAPPED && !map(m, space, next, rest < next->bytes ? rest : next->bytes)) {
      heap_set_free(heap_merge(&m->heap, block));
      return NULL;
    }
    if (next->state == HEAP_FREE) heap_take(next);
    block->bytes += next->bytes;
    heap_delete(&m->heap, next);
  }
  return block;
}

heap_block *expandable_alloc(model *m, model_space *space, uint64_t bytes) {
  if (!open_range(m, space)) return NULL;
  heap_block *block = heap_best(&space->list, bytes);
  if (block != NULL) {
    heap_take(block);
  } else {
    heap_block *hole = find_hole(space, bytes);
    block = hole != NULL ? grow_at(m, space, hole, bytes) : NULL;
    if (block == NULL) return NULL;
  }
  if (block->bytes - bytes >= MODEL_STEP_BYTES) {
    heap_block *rest = heap_split(&m->heap, block, bytes);
    if (rest == NULL) return NULL;
    heap_set_free(heap_merge(&m->heap, rest));
  }
  return block;
}

// unmap takes the memory of the handles that lie whole inside a free block.
static void unmap_block(model *m, model_space *space, heap_block *block) {
  const uint64_t handle = handle_bytes(space);
  const uint64_t start = (block->address + handle - 1) / handle * handle;
  const uint64_t end = (block->address + block->bytes) / handle * handle;
  if (start >= end) return;
  heap_take(block);
  if (end < block->address + block->bytes) {
    heap_block *tail = heap_split(&m->heap, block, end - block->address);
    if (tail != NULL) heap_set_free(tail);
  }
  if (start > block->address) {
    heap_block *middle = heap_split(&m->heap, block, start - block->address);
    heap_set_free(block);
    if (middle == NULL) return;
    block = middle;
  }
  const uint64_t count = block->bytes / handle;
  block->state = HEAP_UNMAPPED;
  model_give_back(m, block->bytes);
  m->counts.calls.unmap += count;
  m->counts.calls.unmap_mappings += count;
  m->counts.calls.release += count;
}

static void join_unmapped(model *m, heap_block *block) {
  while (block->next != NULL && block->state == HEAP_UNMAPPED && block->next->state == HEAP_UNMAPPED) {
    block->bytes += block->next->bytes;
    heap_delete(&m->heap, block->next);
  }
}

void expandable_trim(model *m) {
  for (size_t i = 0; i < (size_t)m->num_streams * MODEL_NUM_CLASSES; i++) {
    model_space *space = &m->spaces[i];
    for (heap_block *b = space->first; b != NULL; b = b->next) {
      if (b->state == HEAP_FREE) unmap_block(m, space, b);
    }
    for (heap_block *b = space->first; b != NULL; b = b->next) join_unmapped(m, b);
  }
}
