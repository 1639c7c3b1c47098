#include "tools/export/viz_history.h"

#include <stdlib.h>
#include <string.h>

#include "tools/log/log_walk.h"

#define MAX_GRANULES (UINT64_C(1) << 24)  // of one block or mapping: more is no log of ours

static bool grow(viz_history *h, void *array, size_t *max, size_t count, size_t element) {
  if (count < *max) return true;
  void **at = array;
  const size_t wanted = *max == 0 ? 256 : *max * 2;
  void *grown = realloc(*at, wanted * element);
  if (grown == NULL) {
    h->failed = true;
    return false;
  }
  *at = grown;
  *max = wanted;
  return true;
}

static void put(viz_history *h, id_map *map, uint64_t id, uint32_t value) {
  if (!id_map_put(map, id, value)) h->failed = true;
}

static void record(viz_history *h, viz_event event) {
  if (!h->recording || !grow(h, &h->events, &h->max_events, h->num_events, sizeof(*h->events))) return;
  h->events[h->num_events++] = event;
}

// ---- granules ----

static bool is_sane(const viz_history *h, uint64_t address, uint64_t bytes) {
  return bytes > 0 && bytes <= UINT64_MAX - address && bytes / h->granule < MAX_GRANULES;
}

static uint64_t last_granule(const viz_history *h, uint64_t address, uint64_t bytes) {
  return (address + bytes - 1) / h->granule;
}

static bool is_mapped(const viz_history *h, uint64_t address, uint64_t bytes) {
  for (uint64_t g = address / h->granule; g <= last_granule(h, address, bytes); g++) {
    if (id_map_find(&h->mapped, g) == NULL) return false;
  }
  return true;
}

static void touch(viz_history *h, const viz_block *block, bool on) {
  for (uint64_t g = block->address / h->granule; g <= last_granule(h, block->address, block->bytes); g++) {
    uint32_t *count = id_map_find(&h->touched, g);
    if (on && count == NULL) put(h, &h->touched, g, 1);
    if (on && count != NULL) ++*count;
    if (!on && count != NULL && --*count == 0) id_map_erase(&h->touched, g);
  }
}

// ---- blocks ----

static viz_event event_of(const viz_block *b, viz_action action, uint64_t time_ns, uint8_t stream) {
  return (viz_event){.address = b->address,
                     .bytes = b->bytes,
                     .time_ns = time_ns,
                     .tag = b->tag,
                     .stack = b->stack,
                     .action = (uint8_t)action,
                     .stream = stream};
}

static void show(viz_history *h, viz_block *block, uint64_t time_ns) {
  block->hidden = false;
  touch(h, block, true);
  record(h, event_of(block, VIZ_ALLOC, time_ns, block->stream));
}

static void hide(viz_history *h, viz_block *block, uint64_t time_ns, uint8_t stream) {
  block->hidden = true;
  touch(h, block, false);
  record(h, event_of(block, VIZ_FREE_REQUESTED, time_ns, stream));
  record(h, event_of(block, VIZ_FREE_COMPLETED, time_ns, stream));
}

static void remove_block(viz_history *h, uint32_t index) {
  if (h->blocks[index].hidden) h->num_hidden--;
  id_map_erase(&h->block_at, h->blocks[index].address);
  h->blocks[index] = h->blocks[--h->num_blocks];
  if (index < h->num_blocks) *id_map_find(&h->block_at, h->blocks[index].address) = index;
}

static void on_free(viz_history *h, const vmp_log_record *r) {
  const uint32_t *index = id_map_find(&h->block_at, r->as.event.address);
  if (index == NULL) return;
  viz_block *block = &h->blocks[*index];
  if (!block->hidden) {
    hide(h, block, r->time_ns, r->stream);
    h->num_hidden++;
  }
  remove_block(h, *index);
}

static void on_alloc(viz_history *h, const vmp_log_record *r) {
  if (!is_sane(h, r->as.event.address, r->as.event.bytes)) return;
  if (id_map_find(&h->block_at, r->as.event.address) != NULL) on_free(h, r);  // its free is missing
  if (!grow(h, &h->blocks, &h->max_blocks, h->num_blocks, sizeof(*h->blocks))) return;
  viz_block *block = &h->blocks[h->num_blocks];
  *block = (viz_block){.address = r->as.event.address,
                       .bytes = r->as.event.bytes,
                       .requested_bytes = r->as.event.extra < r->as.event.bytes ? r->as.event.extra : r->as.event.bytes,
                       .tag = r->as.event.tag,
                       .stack = r->as.event.stack,
                       .stream = r->stream,
                       .hidden = true};
  put(h, &h->block_at, block->address, (uint32_t)h->num_blocks++);
  if (is_mapped(h, block->address, block->bytes)) {
    show(h, block, r->time_ns);
  } else {
    h->num_hidden++;
  }
}

// ---- segments ----

static viz_event segment_event(const viz_segment *s, viz_action action, uint64_t time_ns) {
  return (viz_event){.address = s->address, .bytes = s->bytes, .time_ns = time_ns, .action = (uint8_t)action};
}

static void hide_blocks_in(viz_history *h, const viz_segment *s, uint64_t time_ns) {
  bool touched = false;
  for (uint64_t g = s->address / h->granule; g <= last_granule(h, s->address, s->bytes); g++) {
    touched = touched || id_map_find(&h->touched, g) != NULL;
  }
  for (size_t i = 0; touched && i < h->num_blocks; i++) {
    viz_block *b = &h->blocks[i];
    if (b->hidden || b->address >= s->address + s->bytes || b->address + b->bytes <= s->address) continue;
    hide(h, b, time_ns, b->stream);
    h->num_hidden++;
  }
}

static void on_unmap(viz_history *h, uint64_t address, uint64_t time_ns) {
  const uint32_t *at = id_map_find(&h->segment_at, address);
  if (at == NULL) return;
  const uint32_t index = *at;
  const viz_segment gone = h->segments[index];
  hide_blocks_in(h, &gone, time_ns);
  for (uint64_t g = address / h->granule; g <= last_granule(h, address, gone.bytes); g++) id_map_erase(&h->mapped, g);
  record(h, segment_event(&gone, VIZ_SEGMENT_UNMAP, time_ns));
  id_map_erase(&h->segment_at, address);
  h->segments[index] = h->segments[--h->num_segments];
  if (index < h->num_segments) *id_map_find(&h->segment_at, h->segments[index].address) = index;
}

static void on_map(viz_history *h, const vmp_log_record *r) {
  const uint64_t address = r->as.event.address, bytes = r->as.event.bytes;
  if (!is_sane(h, address, bytes) || address % h->granule != 0 || bytes % h->granule != 0) return;
  for (uint64_t g = address / h->granule; g <= last_granule(h, address, bytes); g++) {
    if (id_map_find(&h->mapped, g) != NULL) return;  // overlaps what is mapped: no log of ours
  }
  if (!grow(h, &h->segments, &h->max_segments, h->num_segments, sizeof(*h->segments))) return;
  h->segments[h->num_segments] = (viz_segment){.address = address, .bytes = bytes};
  put(h, &h->segment_at, address, (uint32_t)h->num_segments++);
  for (uint64_t g = address / h->granule; g <= last_granule(h, address, bytes); g++) put(h, &h->mapped, g, 1);
  record(h, segment_event(&h->segments[h->num_segments - 1], VIZ_SEGMENT_MAP, r->time_ns));
  for (size_t i = 0; h->num_hidden > 0 && i < h->num_blocks; i++) {
    if (!h->blocks[i].hidden || !is_mapped(h, h->blocks[i].address, h->blocks[i].bytes)) continue;
    show(h, &h->blocks[i], r->time_ns);
    h->num_hidden--;
  }
}

// ---- the whole ----

static void on_record(viz_history *h, const vmp_log_record *r) {
  switch (r->kind) {
    case VMP_LOG_ALLOC: on_alloc(h, r); break;
    case VMP_LOG_FREE: on_free(h, r); break;
    case VMP_LOG_MAP:
    case VMP_LOG_TAKE:
    case VMP_LOG_SHARE: on_map(h, r); break;
    case VMP_LOG_RETIRE:
    case VMP_LOG_UNMAP: on_unmap(h, r->as.event.address, r->time_ns); break;
    case VMP_LOG_OOM:
      record(h, (viz_event){.bytes = r->as.event.extra,
                            .time_ns = r->time_ns,
                            .device_free = r->as.event.value,
                            .action = VIZ_OOM,
                            .stream = r->stream});
      break;
    case VMP_LOG_SNAPSHOT: record(h, (viz_event){.time_ns = r->time_ns, .action = VIZ_SNAPSHOT}); break;
    default: break;
  }
}

static int by_address(const void *a, const void *b) {
  const uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right ? 1 : 0;
}

// Mappings become runs; hidden blocks go.
static void finish(viz_history *h) {
  size_t kept = 0;
  if (h->num_segments > 0) qsort(h->segments, h->num_segments, sizeof(*h->segments), by_address);
  for (size_t i = 0; i < h->num_segments; i++) {
    viz_segment *last = kept > 0 ? &h->segments[kept - 1] : NULL;
    if (last != NULL && last->address + last->bytes == h->segments[i].address) {
      last->bytes += h->segments[i].bytes;
    } else {
      h->segments[kept++] = h->segments[i];
    }
  }
  h->num_segments = kept;
  kept = 0;
  for (size_t i = 0; i < h->num_blocks; i++) {
    if (!h->blocks[i].hidden) h->blocks[kept++] = h->blocks[i];
  }
  h->num_blocks = kept;
  if (kept > 0) qsort(h->blocks, kept, sizeof(*h->blocks), by_address);
}

bool viz_history_of(viz_history *out, const log_file *log, uint64_t end) {
  viz_history h = {.granule = log->header.granule_bytes > 0 ? log->header.granule_bytes : 1 << 21};
  log_walk walk = log_walk_begin(log, end);
  vmp_log_record r;
  bool initial;
  while (!h.failed && log_walk_next(&walk, &r, &initial)) {
    h.recording = !initial;
    on_record(&h, &r);
  }
  finish(&h);
  if (h.failed) {
    viz_history_destroy(&h);
    return false;
  }
  *out = h;
  return true;
}

void viz_history_destroy(viz_history *h) {
  id_map_destroy(&h->block_at);
  id_map_destroy(&h->segment_at);
  id_map_destroy(&h->mapped);
  id_map_destroy(&h->touched);
  free(h->events);
  free(h->blocks);
  free(h->segments);
  memset(h, 0, sizeof(*h));
}
