// PyTorch memory snapshot exported to JSON: `device_traces[d]` is a list of {action, addr, size, stream, time_us}, a
// ring buffer whose beginning may be lost; `segments[].blocks[]` is the state at its end.
//
//   alloc            a block starts at addr
//   free_requested   the block ends here: from now on the allocator may not hand it to its user again
//   free_completed   the same block, later; it counts only where no request was seen
//   others           segments being mapped and so on: PyTorch's own business
//
// A block that is active at the end and whose address appears nowhere in the trace existed before it.
#include <string.h>

#include "tools/common/json_field.h"
#include "tools/trace/formats.h"

typedef struct torch {
  reading *r;
  const json_t *events;
  size_t device;
  id_map live;       // addr -> block
  id_map requested;  // addr of blocks whose free was requested and is not completed
  id_map mentioned;  // addr of every event
} torch;

static bool choose_device(torch *t, const json_t *document) {
  const json_t *devices = json_object_get(document, "device_traces");
  tool_error *error = t->r->in->error;
  const char *name = t->r->in->name;
  if (!json_is_array(devices)) return tool_fail(error, "%s: is JSON, but has no list device_traces", name);
  const int wanted = t->r->options->device;
  size_t with_events = 0;
  for (size_t d = 0; d < json_array_size(devices); d++) {
    const json_t *events = json_array_get(devices, d);
    if (!json_is_array(events)) return tool_fail(error, "%s: device_traces[%zu] is not a list", name, d);
    if (wanted >= 0 ? d != (size_t)wanted : json_array_size(events) == 0) continue;
    with_events++;
    t->events = events;
    t->device = d;
  }
  if (wanted >= 0 && t->events == NULL) return tool_fail(error, "%s: has no device %d", name, wanted);
  if (with_events > 1)
    return tool_fail(error, "%s: has events of %zu devices; name one with --trace-device", name, with_events);
  return true;
}

static bool mention(torch *t) {
  for (size_t i = 0; i < json_array_size(t->events); i++) {
    const json_t *addr = json_object_get(json_array_get(t->events, i), "addr");
    if (json_is_integer(addr) && !id_map_put(&t->mentioned, (uint64_t)json_integer_value(addr), 0)) return false;
  }
  return true;
}

// Blocks of a segment tile it, so older snapshots leave their addresses out.
static bool existing_blocks(torch *t, const json_t *segment, size_t index) {
  char where[300];
  snprintf(where, sizeof(where), "%s: segments[%zu]", t->r->in->name, index);
  uint64_t device = 0, address = 0, stream = 0;
  uint16_t dense;
  if (!json_field_size(segment, "device", true, where, &device, t->r->in->error) ||
      !json_field_size(segment, "stream", true, where, &stream, t->r->in->error) ||
      !json_field_size(segment, "address", false, where, &address, t->r->in->error)) {
    return false;
  }
  if (device != t->device) return true;
  if (!reading_stream(t->r, stream, &dense)) return false;
  const json_t *blocks = json_object_get(segment, "blocks");
  for (size_t i = 0; i < json_array_size(blocks); i++) {
    const json_t *block = json_array_get(blocks, i);
    uint64_t bytes = 0;
    snprintf(where, sizeof(where), "%s: segments[%zu].blocks[%zu]", t->r->in->name, index, i);
    if (!json_field_size(block, "size", false, where, &bytes, t->r->in->error)) return false;
    const char *state = json_string_value(json_object_get(block, "state"));
    if (state != NULL && strcmp(state, "active_allocated") == 0 && id_map_find(&t->mentioned, address) == NULL) {
      const uint32_t number = trace_list_alloc(t->r->list, bytes, dense, TRACE_NO_TIME);
      if (!id_map_put(&t->live, address, number)) return reading_memory(t->r);
    }
    address += bytes;
  }
  return true;
}

static bool read_free(torch *t, uint64_t address, uint16_t stream, int64_t t_us, bool completed) {
  if (completed && id_map_find(&t->requested, address) != NULL) {
    id_map_erase(&t->requested, address);
    return true;
  }
  const uint32_t *block = id_map_find(&t->live, address);
  if (block != NULL) {
    trace_list_free_on(t->r->list, *block, stream, t_us);
    id_map_erase(&t->live, address);
  } else {
    t->r->list->unmatched_frees++;
  }
  return completed || id_map_put(&t->requested, address, 0) || reading_memory(t->r);
}

static bool read_event(torch *t, const json_t *event, size_t index) {
  char where[300];
  snprintf(where, sizeof(where), "%s: device_traces[%zu][%zu]", t->r->in->name, t->device, index);
  tool_error *error = t->r->in->error;
  const char *action = json_string_value(json_object_get(event, "action"));
  if (action == NULL) return tool_fail(error, "%s: field action: is missing or not a text", where);
  const bool is_alloc = strcmp(action, "alloc") == 0, requested = strcmp(action, "free_requested") == 0;
  if (!is_alloc && !requested && strcmp(action, "free_completed") != 0) return true;
  uint64_t address = 0, bytes = 0, stream = 0, time_us = 0;
  uint16_t dense;
  if (!json_field_size(event, "addr", false, where, &address, error) ||
      !json_field_size(event, "size", false, where, &bytes, error) ||
      !json_field_size(event, "stream", true, where, &stream, error) ||
      !json_field_size(event, "time_us", true, where, &time_us, error) || !reading_stream(t->r, stream, &dense)) {
    return false;
  }
  if (!is_alloc) return read_free(t, address, dense, (int64_t)time_us, !requested);
  if (id_map_find(&t->live, address) != NULL) return tool_fail(error, "%s: field addr: is live already", where);
  id_map_erase(&t->requested, address);
  const uint32_t block = trace_list_alloc(t->r->list, bytes, dense, (int64_t)time_us);
  return id_map_put(&t->live, address, block) || reading_memory(t->r);
}

static bool read_document(torch *t, const json_t *document) {
  if (!choose_device(t, document)) return false;
  if (!mention(t)) return reading_memory(t->r);
  const json_t *segments = json_object_get(document, "segments");
  for (size_t i = 0; i < json_array_size(segments); i++) {
    if (!existing_blocks(t, json_array_get(segments, i), i)) return false;
  }
  for (size_t i = 0; i < json_array_size(t->events); i++) {
    if (!read_event(t, json_array_get(t->events, i), i)) return false;
  }
  return true;
}

bool read_torch(reading *r) {
  json_t *document = json_parse(r->in->text, r->in->bytes, r->in->name, r->in->error);
  if (document == NULL) return false;
  torch t = {.r = r};
  const bool good = read_document(&t, document);
  id_map_destroy(&t.live);
  id_map_destroy(&t.requested);
  id_map_destroy(&t.mentioned);
  json_decref(document);
  return good;
}
