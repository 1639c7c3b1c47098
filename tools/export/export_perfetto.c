// A trace for Perfetto's viewer, as its own protocol buffers (Trace of TracePackets with track events).
//
// With a log: counters of bytes, every block's life as a slice, what happened to the pool as slices and marks. Lives
// overlap, and slices of one track may not: each block takes a lane of its stream that is free, and lanes of one name
// are drawn together. Without a log: the snapshot's layout, with addresses in place of time: an offset of n bytes is at
// n ns.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/export/export.h"
#include "tools/export/protobuf.h"
#include "tools/export/rows.h"
#include "tools/export/utf8.h"
#include "tools/log/log_state.h"
#include "tools/log/log_walk.h"

// Fields of the messages, as Perfetto numbers them.
enum { TRACE_PACKET = 1 };
enum { PACKET_TIMESTAMP = 8, PACKET_SEQUENCE = 10, PACKET_TRACK_EVENT = 11, PACKET_TRACK = 60 };
enum { TRACK_UUID = 1, TRACK_NAME = 2, TRACK_PROCESS = 3, TRACK_PARENT = 5, TRACK_COUNTER = 8 };
enum { PROCESS_PID = 1, PROCESS_NAME = 6 };
enum { COUNTER_UNIT = 3, UNIT_SIZE_BYTES = 3 };
enum { EVENT_ANNOTATION = 4, EVENT_TYPE = 9, EVENT_TRACK = 11, EVENT_NAME = 23, EVENT_COUNTER = 30 };
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum { ANNOTATION_UINT = 3, ANNOTATION_TEXT = 6, ANNOTATION_POINTER = 7, ANNOTATION_NAME = 10 };

#define NUM_STREAMS 65u  // the last one: not known
enum { UUID_PROCESS = 1, UUID_LIVE, UUID_MAPPED, UUID_PENDING, UUID_PARKED, UUID_POOL, UUID_FIRST_LANE = 1000 };

typedef struct lanes {  // of one stream: numbers of tracks that no block uses
  uint64_t *free;
  size_t num_free, max_free;
} lanes;

typedef struct tracing {
  FILE *out;
  const export_input *in;
  byte_buffer packet, message, part;
  uint64_t num_tracks;
  lanes streams[NUM_STREAMS];
  id_map lane_of;  // block -> its lane
  log_state state;
  bool failed;
} tracing;

// ---- packets ----

static void put_packet(tracing *t) {
  byte_buffer head = {0};
  protobuf_size(&t->packet, PACKET_SEQUENCE, 1);
  byte_buffer_varint(&head, TRACE_PACKET << 3 | PROTOBUF_BYTES);
  byte_buffer_varint(&head, t->packet.count);
  if (head.failed || t->packet.failed) t->failed = true;
  if (!t->failed) {
    fwrite(head.bytes, 1, head.count, t->out);
    fwrite(t->packet.bytes, 1, t->packet.count, t->out);
  }
  byte_buffer_free(&head);
  t->packet.count = 0;
}

static void text_field(byte_buffer *b, unsigned field, const char *text) {
  char clean[512];
  (void)utf8_clean(clean, sizeof(clean), text);
  protobuf_text(b, field, clean);
}

static void put_track(tracing *t, uint64_t uuid, const char *name, bool counter) {
  protobuf_size(&t->message, TRACK_UUID, uuid);
  protobuf_size(&t->message, TRACK_PARENT, UUID_PROCESS);
  text_field(&t->message, TRACK_NAME, name);
  if (counter) {
    protobuf_size(&t->part, COUNTER_UNIT, UNIT_SIZE_BYTES);
    protobuf_message(&t->message, TRACK_COUNTER, &t->part);
  }
  protobuf_message(&t->packet, PACKET_TRACK, &t->message);
  put_packet(t);
}

static void put_process(tracing *t) {
  char name[128];
  snprintf(name, sizeof(name), "vmpool %s", document_text(t->in->document, "pool", "name"));
  protobuf_size(&t->part, PROCESS_PID, document_size(t->in->document, "pool", "process") & INT32_MAX);
  text_field(&t->part, PROCESS_NAME, name);
  protobuf_size(&t->message, TRACK_UUID, UUID_PROCESS);
  protobuf_message(&t->message, TRACK_PROCESS, &t->part);
  protobuf_message(&t->packet, PACKET_TRACK, &t->message);
  put_packet(t);
}

static void annotate(tracing *t, const char *name, unsigned kind, uint64_t value) {
  protobuf_text(&t->part, ANNOTATION_NAME, name);
  protobuf_size(&t->part, kind, value);
  protobuf_message(&t->message, EVENT_ANNOTATION, &t->part);
}

static void annotate_text(tracing *t, const char *name, const char *value) {
  if (value[0] == '\0') return;
  protobuf_text(&t->part, ANNOTATION_NAME, name);
  text_field(&t->part, ANNOTATION_TEXT, value);
  protobuf_message(&t->message, EVENT_ANNOTATION, &t->part);
}

// finish_event ends an event that annotations may have begun.
static void finish_event(tracing *t, uint64_t time_ns, unsigned type, uint64_t track, const char *name) {
  protobuf_size(&t->message, EVENT_TYPE, type);
  protobuf_size(&t->message, EVENT_TRACK, track);
  if (name != NULL) text_field(&t->message, EVENT_NAME, name);
  protobuf_size(&t->packet, PACKET_TIMESTAMP, time_ns);
  protobuf_message(&t->packet, PACKET_TRACK_EVENT, &t->message);
  put_packet(t);
}

static void put_counter(tracing *t, uint64_t time_ns, uint64_t track, uint64_t value) {
  protobuf_size(&t->message, EVENT_COUNTER, value);
  finish_event(t, time_ns, TYPE_COUNTER, track, NULL);
}

// ---- lives of blocks ----

static uint64_t take_lane(tracing *t, uint8_t stream) {
  lanes *l = &t->streams[stream < NUM_STREAMS - 1 ? stream : NUM_STREAMS - 1];
  if (l->num_free > 0) return l->free[--l->num_free];
  char name[64];
  const uint64_t uuid = UUID_FIRST_LANE + t->num_tracks++;
  snprintf(name, sizeof(name), stream < NUM_STREAMS - 1 ? "blocks of stream %u" : "blocks", stream);
  put_track(t, uuid, name, false);
  return uuid;
}

static void give_lane(tracing *t, uint8_t stream, uint64_t lane) {
  lanes *l = &t->streams[stream < NUM_STREAMS - 1 ? stream : NUM_STREAMS - 1];
  if (l->num_free == l->max_free) {
    const size_t wanted = l->max_free == 0 ? 64 : 2 * l->max_free;
    uint64_t *grown = realloc(l->free, wanted * sizeof(*grown));
    if (grown == NULL) {
      t->failed = true;
      return;
    }
    l->free = grown;
    l->max_free = wanted;
  }
  l->free[l->num_free++] = lane;
}

static void end_life(tracing *t, uint64_t address, uint64_t time_ns) {
  const uint32_t *index = id_map_find(&t->state.block_at, address), *lane = id_map_find(&t->lane_of, address);
  if (index == NULL || lane == NULL) return;
  const uint64_t track = UUID_FIRST_LANE + (uint64_t)*lane;
  finish_event(t, time_ns, TYPE_END, track, NULL);
  give_lane(t, t->state.blocks[*index].stream, track);
  id_map_erase(&t->lane_of, address);
}

static void begin_life(tracing *t, const vmp_log_record *r) {
  char size[SIZE_TEXT_BYTES];
  const uint64_t track = take_lane(t, r->stream);
  const char *tag = log_string(t->in->log, r->as.event.tag);
  if (!id_map_put(&t->lane_of, r->as.event.address, (uint32_t)(track - UUID_FIRST_LANE))) t->failed = true;
  annotate(t, "address", ANNOTATION_POINTER, r->as.event.address);
  annotate(t, "bytes", ANNOTATION_UINT, r->as.event.bytes);
  annotate(t, "requested", ANNOTATION_UINT, r->as.event.extra);
  finish_event(t, r->time_ns, TYPE_BEGIN, track, tag[0] != '\0' ? tag : size_text(r->as.event.bytes, size));
}

// ---- the pool ----

static void put_pool_event(tracing *t, const vmp_log_record *r) {
  const char *kind = log_kind_name(r->kind);
  unsigned type = TYPE_INSTANT;
  if (r->kind == VMP_LOG_DEFRAGMENT) type = (r->flags & VMP_LOG_BEGIN) != 0 ? TYPE_BEGIN : TYPE_END;
  annotate_text(t, "text", log_string(t->in->log, r->as.event.tag));
  annotate(t, "bytes", ANNOTATION_UINT, r->as.event.bytes);
  const char *name = r->kind == VMP_LOG_OOM ? "out of memory" : kind != NULL ? kind : "event";
  finish_event(t, r->time_ns, type, UUID_POOL, type == TYPE_END ? NULL : name);
}

static bool trace_record(tracing *t, const vmp_log_record *r) {
  const uint64_t live = t->state.live_bytes, mapped = t->state.mapped_bytes;
  if (r->kind == VMP_LOG_ALLOC || r->kind == VMP_LOG_FREE) end_life(t, r->as.event.address, r->time_ns);
  if (!log_state_apply(&t->state, r)) return false;
  if (r->kind == VMP_LOG_ALLOC) begin_life(t, r);
  if (r->kind == VMP_LOG_OOM || (r->kind >= VMP_LOG_STEP && r->kind <= VMP_LOG_RESUME)) put_pool_event(t, r);
  if (r->kind == VMP_LOG_SAMPLE) {
    put_counter(t, r->time_ns, UUID_PENDING, r->as.sample.pending);
    put_counter(t, r->time_ns, UUID_PARKED, r->as.sample.parked);
  }
  if (t->state.live_bytes != live) put_counter(t, r->time_ns, UUID_LIVE, t->state.live_bytes);
  if (t->state.mapped_bytes != mapped) put_counter(t, r->time_ns, UUID_MAPPED, t->state.mapped_bytes);
  return !t->failed;
}

static bool trace_log(tracing *t) {
  log_walk walk = log_walk_begin(t->in->log, t->in->log_end);
  vmp_log_record record;
  bool initial;
  uint64_t last_ns = 0;
  put_track(t, UUID_LIVE, "live", true);
  put_track(t, UUID_MAPPED, "mapped", true);
  put_track(t, UUID_PENDING, "pending", true);
  put_track(t, UUID_PARKED, "parked", true);
  put_track(t, UUID_POOL, "pool", false);
  while (log_walk_next(&walk, &record, &initial)) {
    if (!trace_record(t, &record)) return false;
    last_ns = record.time_ns;
  }
  // what is live at the end has no end: slices are closed where the log does
  while (t->state.num_blocks > 0) {
    const log_block block = t->state.blocks[0];
    const vmp_log_record end = {
        .kind = VMP_LOG_FREE,
        .as.event = {.address = block.address, .bytes = block.bytes, .extra = block.requested_bytes}};
    end_life(t, block.address, last_ns);
    if (!log_state_apply(&t->state, &end)) return false;
  }
  return !t->failed;
}

// ---- the layout ----

static void put_stretch(tracing *t, uint64_t track, uint64_t base, uint64_t offset, uint64_t bytes, const char *name) {
  annotate(t, "address", ANNOTATION_POINTER, base + offset);
  annotate(t, "bytes", ANNOTATION_UINT, bytes);
  finish_event(t, offset, TYPE_BEGIN, track, name);
  finish_event(t, offset + bytes, TYPE_END, track, NULL);
}

static bool trace_layout(tracing *t) {
  static const char *const states[] = {"unmapped", "mapped", "parked", "retiring", "in transit", "broken"};
  const json_t *ranges = json_object_get(t->in->document, "ranges");
  for (size_t i = 0; i < t->in->state->num_ranges; i++) {
    const snapshot_range *r = &t->in->state->ranges[i];
    const json_t *rows = json_object_get(json_array_get(ranges, i), "blocks");
    const uint64_t backing = UUID_FIRST_LANE + 2 * i, blocks = backing + 1;
    char name[96], size[SIZE_TEXT_BYTES];
    snprintf(name, sizeof(name), "backing of 0x%" PRIx64, r->base);
    put_track(t, backing, name, false);
    snprintf(name, sizeof(name), "blocks of 0x%" PRIx64, r->base);
    put_track(t, blocks, name, false);
    for (size_t k = 0; k < r->num_runs; k++) {
      put_stretch(t, backing, r->base, r->runs[k].offset, r->runs[k].bytes, states[r->runs[k].state]);
    }
    for (size_t k = 0; k < r->num_blocks; k++) {
      const char *label = block_label(t->in->document, json_array_get(rows, k));
      put_stretch(t, blocks, r->base, r->blocks[k].offset, r->blocks[k].bytes,
                  label[0] != '\0' ? label : size_text(r->blocks[k].bytes, size));
    }
  }
  return !t->failed;
}

bool export_perfetto(FILE *out, const export_input *in, tool_error *error) {
  tracing t = {.out = out, .in = in};
  put_process(&t);
  const bool good = in->log != NULL ? trace_log(&t) : trace_layout(&t);
  byte_buffer_free(&t.packet);
  byte_buffer_free(&t.message);
  byte_buffer_free(&t.part);
  for (size_t i = 0; i < NUM_STREAMS; i++) free(t.streams[i].free);
  id_map_destroy(&t.lane_of);
  log_state_destroy(&t.state);
  return good || tool_fail(error, "host memory ran out");
}
