// snapshot_head.c: what a snapshot says of the pool as a whole. See snapshot.h.
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/log.h"
#include "pool/snapshot.h"

#define SCHEMA_NAME "vmpool-snapshot"
#define SCHEMA_VERSION "1.1"

static uint64_t now_us(clockid_t id) {
  struct timespec now;
  (void)clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void write_identity(snapshot *s) {
  const vmp_pool *pool = s->pool;
  vmp_json *json = &s->json;
  vmp_json_open_inline(json, "schema", '{');
  vmp_json_string(json, "name", SCHEMA_NAME);
  vmp_json_string(json, "version", SCHEMA_VERSION);
  vmp_json_close(json);
  vmp_json_open(json, "pool", '{');
  vmp_json_string(json, "name", vmp_pool_name(pool));
  vmp_json_string(json, "driver", vmp_driver_name(pool->driver));
  vmp_json_int(json, "device", pool->device.ordinal);
  vmp_json_string(json, "device_name", pool->device.name);
  vmp_json_uint(json, "granule", pool->device.granule_bytes);
  vmp_json_int(json, "process", (int64_t)getpid());
  vmp_json_uint(json, "realtime_us", now_us(CLOCK_REALTIME));
  vmp_json_uint(json, "monotonic_us", now_us(CLOCK_MONOTONIC));
  vmp_json_string(json, "trigger", s->trigger);
  vmp_json_close(json);
}

static void write_config(snapshot *s) {
  const vmp_config *config = &s->pool->config;
  vmp_json *json = &s->json;
  vmp_json_open(json, "config", '[');
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    vmp_option option = (vmp_option)i;
    char value[2048], source[64];
    if (vmp_option_is_driver(option)) continue;
    (void)vmp_config_value(config, option, value, sizeof value);
    (void)vmp_config_source(config, option, source, sizeof source);
    vmp_json_open_inline(json, NULL, '{');
    vmp_json_string(json, "key", vmp_option_key(option));
    // The name may be longer than any buffer.
    vmp_json_string(json, "value", option == VMP_OPTION_name ? vmp_pool_name(s->pool) : value);
    vmp_json_string(json, "source", source);
    vmp_json_close(json);
  }
  vmp_json_close(json);
}

// One line per field of vmp_pool_stats_data.   X(field)
#define STATS_SIZES(X)                                                                                              \
  X(reserved_va)                                                                                                    \
  X(mapped)                                                                                                         \
  X(live)                                                                                                           \
  X(requested)                                                                                                      \
  X(parked)                                                                                                         \
  X(spare)                                                                                                          \
  X(pending)                                                                                                        \
  X(retiring)                                                                                                       \
  X(broken) X(metadata) X(peak_mapped) X(peak_live) X(peak_requested) X(allocs) X(frees) X(failed_allocs) X(blocks) \
      X(slab_live) X(mid_live) X(buddy_live) X(largest_free_mapped) X(device_free) X(device_total) X(granule)       \
          X(chunks) X(chunks_created) X(chunks_released) X(takes) X(takes_resized) X(stream_waits)                  \
              X(unfinished_wait_allocs) X(host_waits) X(steps) X(step_peak_live) X(max_step_peak_live) X(regions)   \
                  X(region_reserved) X(region_committed) X(region_live) X(pinned) X(mapped_ahead) X(ahead_unused)   \
                      X(renamed_streams) X(cached) X(cached_bound) X(graph_kept) X(shared) X(shares) X(set_aside)   \
                          X(suspended) X(suspended_backup) X(trigger_runs) X(released_by_decay)
#define STATS_LIMITS(X) X(hard_limit) X(soft_limit)

#define COUNT(field) +1
_Static_assert(sizeof(vmp_pool_stats_data) == sizeof(size_t) + (0 STATS_SIZES(COUNT) STATS_LIMITS(COUNT)) * 8,
               "every field of the statistics is in the snapshot");
#undef COUNT

static void write_stats(snapshot *s) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  vmp_json *json = &s->json;
  stats.device_free = s->device_free_bytes;
  stats.pending = vmp_backing_pending_bytes(s->pool->backing);
  vmp_stats_fill(s->pool, &stats);
  vmp_json_open(json, "stats", '{');
#define SIZE(field) vmp_json_uint(json, #field, stats.field);
#define LIMIT(field) vmp_json_limit(json, #field, stats.field);
  STATS_SIZES(SIZE)
  STATS_LIMITS(LIMIT)
#undef SIZE
#undef LIMIT
  vmp_json_close(json);
}

static void write_calls(snapshot *s) {
  const vmp_driver_calls *calls = &s->calls;
  vmp_json *json = &s->json;
  vmp_json_open_inline(json, "driver_calls", '{');
#define CALL(field) vmp_json_uint(json, #field, calls->field);
  CALL(reserve)
  CALL(create)
  CALL(map)
  CALL(set_access)
  CALL(unmap)
  CALL(release)
  CALL(address_free)
  CALL(event_record)
  CALL(event_query)
  CALL(stream_wait)
  CALL(synchronize)
#undef CALL
  vmp_json_close(json);
}

// ---- layers ----

static void write_buddy(snapshot *s) {
  vmp_buddy_stats stats;
  vmp_json *json = &s->json;
  vmp_buddy_get_stats(s->pool->buddy, &stats);
  vmp_json_open_inline(json, "buddy", '{');
  vmp_json_uint(json, "added", stats.added_bytes);
  vmp_json_uint(json, "free", stats.free_bytes);
  vmp_json_uint(json, "block_bytes", stats.block_bytes);
  vmp_json_uint(json, "piece_bytes", stats.piece_bytes);
  vmp_json_uint(json, "blocks", stats.blocks);
  vmp_json_uint(json, "pieces", stats.pieces);
  vmp_json_open_inline(json, "free_by_order", '[');
  for (unsigned order = 0; order < VMP_BUDDY_ORDERS; order++) {
    if (stats.free_by_order[order] == 0) continue;
    vmp_json_open_inline(json, NULL, '[');
    vmp_json_uint(json, NULL, s->pool->device.granule_bytes << order);
    vmp_json_uint(json, NULL, stats.free_by_order[order]);
    vmp_json_close(json);
  }
  vmp_json_close(json);
  vmp_json_close(json);
}

static void write_mid(snapshot *s) {
  vmp_mid_stats stats;
  vmp_json *json = &s->json;
  vmp_stats_mid(s->pool, &stats);
  vmp_json_open_inline(json, "mid", '{');
  vmp_json_uint(json, "arenas", stats.arenas);
  vmp_json_uint(json, "arena_bytes", stats.arena_bytes);
  vmp_json_uint(json, "blocks", stats.blocks);
  vmp_json_uint(json, "block_bytes", stats.block_bytes);
  vmp_json_uint(json, "extents", stats.extents);
  vmp_json_uint(json, "free", stats.free_bytes);
  vmp_json_uint(json, "free_mapped", stats.free_mapped_bytes);
  vmp_json_uint(json, "largest_free_mapped", stats.largest_run_bytes);
  vmp_json_close(json);
}

static void write_slab(snapshot *s) {
  vmp_slab_stats stats = {0};
  vmp_json *json = &s->json;
  if (s->pool->slab != NULL) vmp_slab_get_stats(s->pool->slab, &stats);
  vmp_json_open_inline(json, "slab", '{');
  vmp_json_uint(json, "spans", stats.spans);
  vmp_json_uint(json, "span_bytes", stats.span_bytes);
  vmp_json_uint(json, "empty_spans", stats.empty_spans);
  vmp_json_uint(json, "objects", stats.objects);
  vmp_json_uint(json, "object_bytes", stats.object_bytes);
  vmp_json_uint(json, "free_objects", stats.free_object_bytes);
  vmp_json_uint(json, "rest", stats.rest_bytes);
  vmp_json_close(json);
}

static void write_layers(snapshot *s) {
  vmp_json_open(&s->json, "layers", '{');
  write_slab(s);
  write_mid(s);
  write_buddy(s);
  vmp_json_close(&s->json);
}

// ---- streams ----

typedef struct pending_sum {
  const vmp_clock *clock;
  uint64_t bytes[64];
} pending_sum;

static void see_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  pending_sum *sum = context;
  (void)offset;
  (void)state;
  (void)chunk_id;
  if (live > 0 || vmp_clock_known_complete(sum->clock, fence)) return;
  for (uint64_t rest = fence.streams; rest != 0; rest &= rest - 1) sum->bytes[vmp_lowest_bit(rest)] += bytes;
}

static void write_streams(snapshot *s) {
  pending_sum pending = {.clock = s->pool->clock};
  vmp_json *json = &s->json;
  vmp_backing_walk_mappings(s->pool->backing, see_mapping, &pending);
  vmp_json_open(json, "streams", '[');
  for (size_t i = 0; i < s->num_streams; i++) {
    const snapshot_stream *stream = &s->streams[i];
    vmp_json_open_inline(json, NULL, '{');
    vmp_json_uint(json, "index", stream->index);
    vmp_json_hex(json, "handle", stream->handle);
    vmp_json_uint(json, "thread", stream->thread);
    vmp_json_uint(json, "completed", stream->completed);
    vmp_json_uint(json, "pending", pending.bytes[stream->index]);
    vmp_json_close(json);
  }
  vmp_json_close(json);
}

static void write_clock(snapshot *s) {
  vmp_clock_stats stats;
  vmp_json *json = &s->json;
  vmp_clock_get_stats(s->pool->clock, &stats);
  vmp_json_open_inline(json, "clock", '{');
  vmp_json_uint(json, "sequence", stats.sequence);
  vmp_json_uint(json, "events_recorded", stats.events_recorded);
  vmp_json_uint(json, "events_pooled", stats.events_pooled);
  vmp_json_uint(json, "stream_waits", stats.stream_waits);
  vmp_json_uint(json, "unfinished_waits", stats.unfinished_waits);
  vmp_json_uint(json, "host_waits", stats.host_waits);
  vmp_json_close(json);
}

static void write_log(snapshot *s) {
  vmp_json *json = &s->json;
  if (s->pool->log == NULL) {
    vmp_json_null(json, "log");
    return;
  }
  vmp_json_open_inline(json, "log", '{');
  vmp_json_string(json, "file", vmp_log_path(s->pool->log));
  vmp_json_uint(json, "records", s->log_records);
  vmp_json_close(json);
}

// write_failure writes the last failed allocation, or null.
static void write_failure(snapshot *s) {
  const vmp_failure *failure = &s->pool->failure;
  vmp_json *json = &s->json;
  if (failure->status == VMP_OK) {
    vmp_json_null(json, "failure");
    return;
  }
  vmp_json_open(json, "failure", '{');
  vmp_json_string(json, "status", vmp_status_string(failure->status));
  vmp_json_string(json, "message", failure->message);
  vmp_json_uint(json, "requested", failure->requested_bytes);
  vmp_json_uint(json, "alignment", failure->alignment);
  vmp_json_string(json, "layer", vmp_layer_name(failure->layer));
  vmp_json_uint(json, "stream", failure->stream);
  vmp_json_uint(json, "largest", failure->largest_bytes);
  vmp_json_uint(json, "device_free", failure->device_free_bytes);
  vmp_json_uint(json, "monotonic_us", failure->monotonic_us);
  vmp_json_close(json);
}

static void write_spare(void *context, uint64_t chunk_id, uint64_t bytes) {
  snapshot *s = context;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, chunk_id);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_close(&s->json);
}

// ---- tags ----

// state_of_tag: vmp_tag_state as a word.
static const char *state_of_tag(const vmp_tag_record *record) {
  static const char *const words[] = {"resident", "suspending", "suspended", "resuming"};
  return words[record->domain == NULL ? VMP_TAG_RESIDENT : record->domain->state];
}

static void write_tags(snapshot *s) {
  vmp_tags *tags = &s->pool->tags;
  vmp_json *json = &s->json;
  vmp_json_open_inline(json, "tags", '[');
  vmp_json_string(json, NULL, "");
  for (vmp_tag tag = 1; tag <= tags->count; tag++) vmp_json_string(json, NULL, vmp_tag_name(tags, tag));
  vmp_json_close(json);
  vmp_json_open(json, "tag_sums", '[');
  for (vmp_tag tag = 1; tag <= tags->count; tag++) {
    const vmp_tag_record *record = vmp_tag_record_of(tags, tag);
    vmp_json_open_inline(json, NULL, '{');
    vmp_json_uint(json, "tag", tag);
    vmp_json_bool(json, "suspendable", record->domain != NULL);
    vmp_json_string(json, "state", state_of_tag(record));
    vmp_json_uint(json, "blocks", record->blocks);
    vmp_json_uint(json, "live", record->live_bytes);
    vmp_json_uint(json, "requested", record->requested_bytes);
    vmp_json_uint(json, "suspended", record->domain == NULL ? 0 : record->domain->away_bytes);
    vmp_json_uint(json, "backup", record->domain == NULL ? 0 : record->domain->backup_bytes);
    vmp_json_close(json);
  }
  vmp_json_close(json);
}

// ---- pins ----

static void write_pin(void *context, const vmp_pin_record *record) {
  snapshot *s = context;
  vmp_json *json = &s->json;
  vmp_json_open_inline(json, NULL, '{');
  vmp_json_hex(json, "address", vmp_backing_address(s->pool->backing, record->offset));
  vmp_json_uint(json, "bytes", record->bytes);
  vmp_json_uint(json, "pins", record->count);
  vmp_json_string(json, "reason", vmp_name_text(&s->pool->tags.names, record->reason));
  vmp_json_bool(json, "live", vmp_books_get(s->pool, record->offset) != 0);
  vmp_json_close(json);
}

static void write_pins(snapshot *s) {
  vmp_json_open(&s->json, "pins", '[');
  vmp_pins_walk(&s->pool->pins, write_pin, s);
  vmp_json_close(&s->json);
}

void vmp_snapshot_head(snapshot *s) {
  write_identity(s);
  write_config(s);
  write_stats(s);
  write_calls(s);
  write_layers(s);
  write_clock(s);
  write_streams(s);
  write_log(s);
  write_failure(s);
  write_tags(s);
  write_pins(s);
  vmp_json_open(&s->json, "spares", '[');
  vmp_backing_walk_spares(s->pool->backing, write_spare, s);
  vmp_json_close(&s->json);
}
