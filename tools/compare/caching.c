// caching.c: segments from the driver's allocator, cached. See model.h.
#include "tools/compare/model_internal.h"

static uint64_t segment_bytes(uint64_t bytes) {
  if (bytes <= MODEL_SMALL_BYTES) return MODEL_GRANULE_BYTES;
  if (bytes < MODEL_LARGE_BYTES) return MODEL_BUFFER_BYTES;
  return (bytes + MODEL_GRANULE_BYTES - 1) / MODEL_GRANULE_BYTES * MODEL_GRANULE_BYTES;
}

static heap_block *new_segment(model *m, model_space *space, uint64_t bytes) {
  m->counts.calls.alloc++;
  if (!model_hold(m, bytes)) return NULL;
  heap_block *block = heap_new(&m->heap, &space->list, m->next_address, bytes);
  m->next_address += bytes;
  return block;
}

// A small block is split wherever a step remains; a large one only where the rest could serve a large request.
static bool worth_splitting(const model_space *space, uint64_t rest_bytes) {
  return space->class == MODEL_SMALL ? rest_bytes >= MODEL_STEP_BYTES : rest_bytes > MODEL_SMALL_BYTES;
}

heap_block *caching_alloc(model *m, model_space *space, uint64_t bytes) {
  heap_block *block = heap_best(&space->list, bytes);
  if (block != NULL) {
    heap_take(block);
  } else {
    block = new_segment(m, space, segment_bytes(bytes));
    if (block == NULL) return NULL;
  }
  if (worth_splitting(space, block->bytes - bytes)) {
    heap_block *rest = heap_split(&m->heap, block, bytes);
    if (rest == NULL) return NULL;
    heap_set_free(rest);
  }
  return block;
}

// Gives back the segments that are one free block.
static void trim_list(model *m, heap_list *list) {
  heap_block *block = heap_best(list, 0);
  while (block != NULL) {
    heap_block *after = heap_after(list, block);
    if (block->previous == NULL && block->next == NULL) {
      heap_take(block);
      model_give_back(m, block->bytes);
      m->counts.calls.free++;
      heap_delete(&m->heap, block);
    }
    block = after;
  }
}

void caching_trim(model *m) {
  for (size_t i = 0; i < (size_t)m->num_streams * MODEL_NUM_CLASSES; i++) trim_list(m, &m->spaces[i].list);
}
