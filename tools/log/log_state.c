#include "tools/log/log_state.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static void fault(log_state *s, const vmp_log_record *record, const char *what) {
  const char *kind = log_kind_name(record->kind);
  if (s->faults++ > 0) return;
  tool_fail(&s->first_fault, "record %" PRIu64 " (%s of 0x%" PRIx64 ") %s", record->sequence,
            kind == NULL ? "unknown kind" : kind, record->as.event.address, what);
}

// ---- the arrays ----

static bool make_room(void *array, size_t *max, size_t count, size_t element) {
  if (count < *max) return true;
  const size_t wanted = *max == 0 ? 256 : *max * 2;
  void **at = array;
  void *grown = realloc(*at, wanted * element);
  if (grown == NULL) return false;
  *at = grown;
  *max = wanted;
  return true;
}

static bool add_block(log_state *s, const log_block *block) {
  if (s->num_blocks == UINT32_MAX || !make_room(&s->blocks, &s->max_blocks, s->num_blocks, sizeof(*s->blocks)) ||
      !id_map_put(&s->block_at, block->address, (uint32_t)s->num_blocks)) {
    return false;
  }
  s->blocks[s->num_blocks++] = *block;
  s->live_bytes += block->bytes;
  s->requested_bytes += block->requested_bytes;
  return true;
}

static void remove_block(log_state *s, uint32_t index) {
  const log_block gone = s->blocks[index];
  s->live_bytes -= gone.bytes;
  s->requested_bytes -= gone.requested_bytes;
  id_map_erase(&s->block_at, gone.address);
  s->blocks[index] = s->blocks[--s->num_blocks];
  if (index < s->num_blocks) *id_map_find(&s->block_at, s->blocks[index].address) = index;
}

// count_mapping adds a mapping to the sums. A chunk that is mapped at several addresses counts once.
static bool count_mapping(log_state *s, const log_mapping *mapping) {
  if (mapping->retiring) {
    s->retiring_bytes += mapping->bytes;
    return true;
  }
  uint32_t *count = id_map_find(&s->chunk_mappings, mapping->chunk);
  if (count != NULL) {
    ++*count;
    return true;
  }
  s->mapped_bytes += mapping->bytes;
  return id_map_put(&s->chunk_mappings, mapping->chunk, 1);
}

static void uncount_mapping(log_state *s, const log_mapping *mapping) {
  if (mapping->retiring) {
    s->retiring_bytes -= mapping->bytes;
    return;
  }
  uint32_t *count = id_map_find(&s->chunk_mappings, mapping->chunk);
  if (--*count > 0) return;
  s->mapped_bytes -= mapping->bytes;
  id_map_erase(&s->chunk_mappings, mapping->chunk);
}

static bool add_mapping(log_state *s, const log_mapping *mapping) {
  if (s->num_mappings == UINT32_MAX ||
      !make_room(&s->mappings, &s->max_mappings, s->num_mappings, sizeof(*s->mappings)) ||
      !id_map_put(&s->mapping_at, mapping->address, (uint32_t)s->num_mappings)) {
    return false;
  }
  s->mappings[s->num_mappings++] = *mapping;
  return count_mapping(s, mapping);
}

static void remove_mapping(log_state *s, uint32_t index) {
  const log_mapping gone = s->mappings[index];
  uncount_mapping(s, &gone);
  id_map_erase(&s->mapping_at, gone.address);
  s->mappings[index] = s->mappings[--s->num_mappings];
  if (index < s->num_mappings) *id_map_find(&s->mapping_at, s->mappings[index].address) = index;
}

// ---- records ----

static bool apply_alloc(log_state *s, const vmp_log_record *record) {
  const log_block block = {.address = record->as.event.address,
                           .bytes = record->as.event.bytes,
                           .requested_bytes = record->as.event.extra,
                           .sequence = record->sequence,
                           .tag = record->as.event.tag,
                           .stack = record->as.event.stack,
                           .layer = record->layer,
                           .stream = record->stream};
  const uint32_t *known = id_map_find(&s->block_at, block.address);
  if (known != NULL) {
    fault(s, record, "hands out an address that is live");
    remove_block(s, *known);
  }
  return add_block(s, &block);
}

static void apply_free(log_state *s, const vmp_log_record *record) {
  const uint32_t *known = id_map_find(&s->block_at, record->as.event.address);
  if (known == NULL) {
    fault(s, record, "frees what isn't live");
    return;
  }
  const log_block *block = &s->blocks[*known];
  if (block->bytes != record->as.event.bytes || block->requested_bytes != record->as.event.extra) {
    fault(s, record, "frees another number of bytes than was handed out");
  }
  remove_block(s, *known);
}

static bool apply_map(log_state *s, const vmp_log_record *record, bool retiring) {
  const log_mapping mapping = {.address = record->as.event.address,
                               .bytes = record->as.event.bytes,
                               .chunk = record->as.event.extra,
                               .retiring = retiring};
  const uint32_t *known = id_map_find(&s->mapping_at, mapping.address);
  if (known != NULL) {
    fault(s, record, "maps what is mapped");
    remove_mapping(s, *known);
  }
  return add_mapping(s, &mapping);
}

// A mapping that broke while it was made is only heard of when it retires.
static bool apply_retire(log_state *s, const vmp_log_record *record) {
  const uint32_t *known = id_map_find(&s->mapping_at, record->as.event.address);
  if (known == NULL) return apply_map(s, record, true);
  log_mapping *mapping = &s->mappings[*known];
  if (mapping->retiring || mapping->bytes != record->as.event.bytes) fault(s, record, "retires what isn't a home");
  uncount_mapping(s, mapping);
  mapping->retiring = true;
  return count_mapping(s, mapping);
}

static void apply_unmap(log_state *s, const vmp_log_record *record) {
  const uint32_t *known = id_map_find(&s->mapping_at, record->as.event.address);
  if (known == NULL) {
    fault(s, record, "unmaps what isn't mapped");
    return;
  }
  if (s->mappings[*known].bytes != record->as.event.bytes) fault(s, record, "unmaps a part of a mapping");
  remove_mapping(s, *known);
}

static void check_sample(log_state *s, const vmp_log_record *record) {
  if (record->as.sample.live != s->live_bytes) fault(s, record, "says another number of live bytes");
  if (record->as.sample.mapped != s->mapped_bytes) fault(s, record, "says another number of mapped bytes");
}

bool log_state_apply(log_state *s, const vmp_log_record *record) {
  switch (record->kind) {
    case VMP_LOG_ALLOC: return apply_alloc(s, record);
    case VMP_LOG_FREE: apply_free(s, record); return true;
    case VMP_LOG_MAP:
    case VMP_LOG_SHARE:
    case VMP_LOG_TAKE: return apply_map(s, record, false);
    case VMP_LOG_RETIRE: return (record->flags & VMP_LOG_STATE) ? apply_map(s, record, true) : apply_retire(s, record);
    case VMP_LOG_UNMAP: apply_unmap(s, record); return true;
    case VMP_LOG_SAMPLE: check_sample(s, record); return true;
    default: return true;
  }
}

void log_state_destroy(log_state *s) {
  id_map_destroy(&s->block_at);
  id_map_destroy(&s->mapping_at);
  id_map_destroy(&s->chunk_mappings);
  free(s->blocks);
  free(s->mappings);
  memset(s, 0, sizeof(*s));
}

void log_state_restart(log_state *s) {
  const uint64_t faults = s->faults;
  const tool_error first = s->first_fault;
  log_state_destroy(s);
  s->faults = faults;
  s->first_fault = first;
}

bool log_state_equal(const log_state *a, const log_state *b, tool_error *difference) {
  if (a->num_blocks != b->num_blocks || a->num_mappings != b->num_mappings) {
    return tool_fail(difference, "%zu blocks and %zu mappings against %zu and %zu", a->num_blocks, a->num_mappings,
                     b->num_blocks, b->num_mappings);
  }
  for (size_t i = 0; i < a->num_blocks; i++) {
    const log_block *block = &a->blocks[i];
    const uint32_t *other = id_map_find(&b->block_at, block->address);
    if (other == NULL || b->blocks[*other].bytes != block->bytes ||
        b->blocks[*other].requested_bytes != block->requested_bytes || b->blocks[*other].layer != block->layer) {
      return tool_fail(difference, "the block at 0x%" PRIx64 " differs", block->address);
    }
  }
  for (size_t i = 0; i < a->num_mappings; i++) {
    const log_mapping *mapping = &a->mappings[i];
    const uint32_t *other = id_map_find(&b->mapping_at, mapping->address);
    if (other == NULL || b->mappings[*other].bytes != mapping->bytes || b->mappings[*other].chunk != mapping->chunk ||
        b->mappings[*other].retiring != mapping->retiring) {
      return tool_fail(difference, "the mapping at 0x%" PRIx64 " differs", mapping->address);
    }
  }
  return true;
}
