// A pickle for PyTorch's memory viewer. With a log everything in it comes from the log, so that the events fit the last
// state; without one it is the snapshot's state, and no event.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/export/export.h"
#include "tools/export/pickle.h"
#include "tools/export/rows.h"
#include "tools/export/viz_history.h"

#define MAX_DEVICES 1024u

typedef struct writing {
  pickle p;
  const export_input *in;
  uint64_t device;
  id_map frames;       // stack and tag -> number of the list of frames
  uint32_t no_frames;  // the empty list
  uint64_t start_us;   // of the clock that the viewer shows
  bool has_no_frames, failed;
} writing;

// ---- frames ----

static void put_frame(pickle *p, const char *file, const char *name) {
  pickle_item(p);
  pickle_dict(p);
  pickle_key(p, "filename");
  pickle_text(p, file);
  pickle_key(p, "line");
  pickle_size(p, 0);
  pickle_key(p, "name");
  pickle_text(p, name);
  pickle_dict_end(p);
}

// The viewer shows stacks; a block's tag stands in for one, or on top of it.
static void put_frames(writing *w, uint32_t stack, const char *label, uint64_t key) {
  const uint32_t *known = key != 0 ? id_map_find(&w->frames, key) : NULL;
  if (known != NULL) {
    pickle_again(&w->p, *known);
    return;
  }
  if (key == 0 && w->has_no_frames) {
    pickle_again(&w->p, w->no_frames);
    return;
  }
  pickle_list(&w->p);
  if (label[0] != '\0') put_frame(&w->p, "tag", label);
  if (stack != 0) {
    const log_stack frames = log_stack_of(w->in->log, stack);
    char text[512];
    for (size_t i = 0; i < frames.count; i++) {
      log_frame_text(w->in->log, frames.frames[i], text, sizeof(text));
      put_frame(&w->p, text, text);
    }
  }
  pickle_list_end(&w->p);
  const uint32_t number = pickle_memoize(&w->p);
  if (key != 0 && !id_map_put(&w->frames, key, number)) w->failed = true;
  if (key == 0) {
    w->no_frames = number;
    w->has_no_frames = true;
  }
}

static void put_log_frames(writing *w, uint32_t stack, uint32_t tag) {
  const char *label = tag != 0 ? log_string(w->in->log, tag) : "";
  put_frames(w, stack, label, (uint64_t)stack << 32 | (label[0] != '\0' ? tag : 0));
}

// ---- segments ----

static void begin_segment(writing *w, uint64_t address, uint64_t bytes) {
  pickle *p = &w->p;
  pickle_item(p);
  pickle_dict(p);
  pickle_key(p, "device");
  pickle_size(p, w->device);
  pickle_key(p, "address");
  pickle_size(p, address);
  pickle_key(p, "total_size");
  pickle_size(p, bytes);
  pickle_key(p, "stream");
  pickle_size(p, 0);
  pickle_key(p, "segment_type");
  pickle_text(p, "large");
  pickle_key(p, "segment_pool_id");
  pickle_pair(p, 0, 1);
  pickle_key(p, "is_expandable");
  pickle_size(p, 1);
  pickle_key(p, "frames");
  put_frames(w, 0, "", 0);
  pickle_key(p, "blocks");
  pickle_list(p);
}

static void end_segment(writing *w) {
  pickle_list_end(&w->p);
  pickle_dict_end(&w->p);
}

static void begin_block(writing *w, uint64_t address, uint64_t bytes, uint64_t requested, const char *state) {
  pickle *p = &w->p;
  pickle_item(p);
  pickle_dict(p);
  pickle_key(p, "address");
  pickle_size(p, address);
  pickle_key(p, "size");
  pickle_size(p, bytes);
  pickle_key(p, "requested_size");
  pickle_size(p, requested);
  pickle_key(p, "state");
  pickle_key(p, state);
  pickle_key(p, "frames");
}

static void put_free(writing *w, uint64_t address, uint64_t end) {
  if (address >= end) return;
  begin_block(w, address, end - address, 0, "inactive");
  put_frames(w, 0, "", 0);
  pickle_dict_end(&w->p);
}

// The viewer sums sizes up: blocks and what is free between them fill a segment without a gap.
static void put_log_segments(writing *w, const viz_history *h) {
  size_t b = 0;
  for (size_t i = 0; i < h->num_segments; i++) {
    const viz_segment *s = &h->segments[i];
    uint64_t at = s->address;
    begin_segment(w, s->address, s->bytes);
    for (; b < h->num_blocks && h->blocks[b].address < s->address + s->bytes; b++) {
      const viz_block *block = &h->blocks[b];
      if (block->address < at) continue;  // overlaps the one before: no log of ours
      put_free(w, at, block->address);
      begin_block(w, block->address, block->bytes, block->requested_bytes, "active_allocated");
      put_log_frames(w, block->stack, block->tag);
      pickle_dict_end(&w->p);
      at = block->address + block->bytes;
    }
    put_free(w, at, s->address + s->bytes);
    end_segment(w);
  }
}

// next_run finds the next run of slots with memory of their own, from *i on.
static bool next_run(const snapshot_range *r, size_t *i, uint64_t *out_start, uint64_t *out_end) {
  while (*i < r->num_runs && r->runs[*i].state != SNAPSHOT_MAPPED && r->runs[*i].state != SNAPSHOT_PARKED) ++*i;
  if (*i == r->num_runs) return false;
  *out_start = r->runs[*i].offset;
  *out_end = *out_start;
  while (*i < r->num_runs && r->runs[*i].offset == *out_end &&
         (r->runs[*i].state == SNAPSHOT_MAPPED || r->runs[*i].state == SNAPSHOT_PARKED)) {
    *out_end += r->runs[*i].bytes;
    ++*i;
  }
  return true;
}

static void put_snapshot_range(writing *w, const snapshot_range *r, const json_t *rows) {
  uint64_t start, end;
  size_t b = 0, run = 0;
  while (next_run(r, &run, &start, &end)) {
    uint64_t at = start;
    begin_segment(w, r->base + start, end - start);
    for (; b < r->num_blocks && r->blocks[b].offset < end; b++) {
      const snapshot_block *block = &r->blocks[b];
      if (block->offset < start || block->offset + block->bytes > end) continue;  // not wholly mapped
      put_free(w, r->base + at, r->base + block->offset);
      const uint64_t requested = block->requested_bytes < block->bytes ? block->requested_bytes : block->bytes;
      begin_block(w, r->base + block->offset, block->bytes, requested, "active_allocated");
      const char *label = block_label(w->in->document, json_array_get(rows, b));
      const uint64_t tag = row_size(json_array_get(rows, b), 6);
      // Names of blocks have no numbers; they are written each time.
      if (label[0] == '\0' || tag != 0) {
        put_frames(w, 0, label, label[0] == '\0' ? 0 : tag & UINT32_MAX);
      } else {
        pickle_list(&w->p);
        put_frame(&w->p, "name", label);
        pickle_list_end(&w->p);
      }
      pickle_dict_end(&w->p);
      at = block->offset + block->bytes;
    }
    put_free(w, r->base + at, r->base + end);
    end_segment(w);
  }
}

// ---- events ----

static void put_event(writing *w, const viz_event *e) {
  static const char *const actions[] = {"alloc", "free_requested", "free_completed", "segment_map", "segment_unmap",
                                        "oom",   "snapshot"};
  pickle *p = &w->p;
  pickle_item(p);
  pickle_dict(p);
  pickle_key(p, "action");
  pickle_key(p, actions[e->action]);
  pickle_key(p, "addr");
  pickle_size(p, e->address);
  pickle_key(p, "size");
  pickle_size(p, e->bytes);
  pickle_key(p, "stream");
  pickle_size(p, e->stream == VMP_LOG_NONE ? 0 : e->stream);
  pickle_key(p, "time_us");
  pickle_size(p, w->start_us + e->time_ns / 1000);
  pickle_key(p, "pool_id");
  pickle_pair(p, 0, 1);
  if (e->action == VIZ_OOM) {
    pickle_key(p, "device_free");
    pickle_size(p, e->device_free & INT64_MAX);
  }
  pickle_key(p, "frames");
  put_log_frames(w, e->stack, e->tag);
  pickle_dict_end(p);
}

static void put_traces(writing *w, const viz_history *h) {
  pickle *p = &w->p;
  pickle_list(p);
  for (uint64_t device = 0; device <= w->device; device++) {
    pickle_item(p);
    pickle_list(p);
    const size_t first = h->num_events > w->in->last ? h->num_events - (size_t)w->in->last : 0;
    for (size_t i = first; device == w->device && i < h->num_events; i++) {
      put_event(w, &h->events[i]);
    }
    pickle_list_end(p);
  }
  pickle_list_end(p);
}

static void put_settings(writing *w) {
  const json_t *config = json_object_get(w->in->document, "config");
  pickle_dict(&w->p);
  for (size_t i = 0; i < json_array_size(config); i++) {
    const char *key = json_string_value(json_object_get(json_array_get(config, i), "key"));
    const char *value = json_string_value(json_object_get(json_array_get(config, i), "value"));
    if (key == NULL || value == NULL) continue;
    pickle_text(&w->p, key);
    pickle_text(&w->p, value);
  }
  pickle_dict_end(&w->p);
}

static void put_document(writing *w, const viz_history *h) {
  pickle *p = &w->p;
  pickle_dict(p);
  pickle_key(p, "segments");
  pickle_list(p);
  if (w->in->log != NULL) {
    put_log_segments(w, h);
  } else {
    const json_t *ranges = json_object_get(w->in->document, "ranges");
    for (size_t i = 0; i < w->in->state->num_ranges; i++) {
      put_snapshot_range(w, &w->in->state->ranges[i], json_object_get(json_array_get(ranges, i), "blocks"));
    }
  }
  pickle_list_end(p);
  pickle_key(p, "device_traces");
  put_traces(w, h);
  pickle_key(p, "allocator_settings");
  put_settings(w);
  pickle_dict_end(p);
}

bool export_memory_viz(FILE *out, const export_input *in, tool_error *error) {
  writing w = {.in = in, .device = in->state->device};
  viz_history history = {0};
  if (w.device >= MAX_DEVICES) {
    return tool_fail(error, "%s: device %" PRIu64 " is no ordinal of a device", in->name, w.device);
  }
  if (in->log != NULL && !viz_history_of(&history, in->log, in->log_end)) {
    return tool_fail(error, "host memory ran out");
  }
  if (in->log != NULL) {
    // time_us is the clock of the wall
    const vmp_log_header *h = &in->log->header;
    w.start_us =
        h->start_realtime_ns > h->start_monotonic_ns ? (h->start_realtime_ns - h->start_monotonic_ns) / 1000 : 0;
  }
  pickle_begin(&w.p, out);
  put_document(&w, &history);
  pickle_end(&w.p);
  id_map_destroy(&w.frames);
  viz_history_destroy(&history);
  return !w.failed || tool_fail(error, "host memory ran out");
}
