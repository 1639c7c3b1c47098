#include <stdlib.h>
#include <string.h>

#include "tools/compare/model_internal.h"

const char *model_name(model_kind kind) { return kind == MODEL_CACHING ? "caching" : "expandable"; }

model *model_open(model_kind kind, uint64_t device_bytes, uint32_t num_streams, const model_cost *cost) {
  model *m = calloc(1, sizeof(*m));
  if (m == NULL) return NULL;
  *m = (model){.kind = kind, .device_bytes = device_bytes, .num_streams = num_streams, .cost = *cost};
  m->spaces = calloc((size_t)num_streams * MODEL_NUM_CLASSES, sizeof(*m->spaces));
  if (m->spaces == NULL) {
    free(m);
    return NULL;
  }
  for (size_t i = 0; i < (size_t)num_streams * MODEL_NUM_CLASSES; i++)
    m->spaces[i].class = i % MODEL_NUM_CLASSES == 0 ? MODEL_SMALL : MODEL_LARGE;
  return m;
}

void model_close(model *m) {
  if (m == NULL) return;
  heap_destroy(&m->heap);
  free(m->spaces);
  free(m->blocks);
  free(m->block_bytes);
  free(m);
}

const model_counts *model_progress(const model *m) { return &m->counts; }

bool model_hold(model *m, uint64_t bytes) {
  model_counts *c = &m->counts;
  if (bytes > m->device_bytes - c->mapped_bytes) return false;
  c->mapped_bytes += bytes;
  if (c->mapped_bytes > c->peak_mapped_bytes) c->peak_mapped_bytes = c->mapped_bytes;
  return true;
}

void model_give_back(model *m, uint64_t bytes) { m->counts.mapped_bytes -= bytes; }

static heap_block *try_alloc(model *m, model_space *space, uint64_t bytes) {
  return m->kind == MODEL_CACHING ? caching_alloc(m, space, bytes) : expandable_alloc(m, space, bytes);
}

// Sizes from 2^62 on are larger than any device, and leave room for rounding below.
static heap_block *alloc_block(model *m, uint64_t bytes, uint16_t stream) {
  if (bytes > UINT64_C(1) << 62) return NULL;
  const uint64_t rounded = (bytes + MODEL_STEP_BYTES - 1) / MODEL_STEP_BYTES * MODEL_STEP_BYTES;
  const model_class class = rounded <= MODEL_SMALL_BYTES ? MODEL_SMALL : MODEL_LARGE;
  model_space *space = &m->spaces[(size_t)stream * MODEL_NUM_CLASSES + class];
  heap_block *block = try_alloc(m, space, rounded);
  if (block == NULL && !m->heap.failed) {
    if (m->kind == MODEL_CACHING) {
      caching_trim(m);
    } else {
      expandable_trim(m);
    }
    if (!m->heap.failed) block = try_alloc(m, space, rounded);
  }
  return block;
}

// perform allocates and counts; *out_block is NULL where the device is too small, or for 0 bytes.
static bool perform(model *m, uint64_t bytes, uint16_t stream, heap_block **out_block) {
  model_counts *c = &m->counts;
  *out_block = NULL;
  if (bytes == 0) return true;
  *out_block = alloc_block(m, bytes, stream);
  if (m->heap.failed) return false;
  c->modelled_us = model_cost_us(&m->cost, &c->calls);
  if (*out_block == NULL) {
    c->failed_allocs++;
    return true;
  }
  c->requested_bytes += bytes;
  if (c->requested_bytes > c->peak_requested_bytes) c->peak_requested_bytes = c->requested_bytes;
  return true;
}

static bool grow(model *m, uint32_t block) {
  if (block < m->num_blocks) return true;
  const size_t count = 2 * (size_t)block + 1024;
  heap_block **blocks = reallocarray(m->blocks, count, sizeof(*blocks));
  if (blocks != NULL) m->blocks = blocks;
  uint64_t *block_bytes = reallocarray(m->block_bytes, count, sizeof(*block_bytes));
  if (block_bytes != NULL) m->block_bytes = block_bytes;
  if (blocks == NULL || block_bytes == NULL) return false;
  memset(blocks + m->num_blocks, 0, (count - m->num_blocks) * sizeof(*blocks));
  m->num_blocks = count;
  return true;
}

bool model_alloc(model *m, uint32_t block, uint64_t bytes, uint16_t stream) {
  if (!grow(m, block)) return false;
  m->block_bytes[block] = bytes;
  return perform(m, bytes, stream, &m->blocks[block]);
}

void model_free(model *m, uint32_t block) {
  heap_block *b = m->blocks[block];
  if (b == NULL) return;
  m->blocks[block] = NULL;
  m->counts.requested_bytes -= m->block_bytes[block];
  heap_set_free(heap_merge(&m->heap, b));
}

bool model_intrude(model *m, uint64_t bytes, uint16_t stream) {
  heap_block *nameless;
  return perform(m, bytes, stream, &nameless);
}

void model_renumber(model *m) {
  if (m->num_blocks > 0) memset(m->blocks, 0, m->num_blocks * sizeof(*m->blocks));
}
