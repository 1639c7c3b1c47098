// snapshot.c: the pool's whole state as JSON. See vmpool.h; the format is pool/snapshot.schema.json.
//
// Owns: the document. The state is written to memory under the lock, so that it is one instant, and to the file
// without it. Addresses and masks are hex strings; offsets are relative to the base of their range.
//
// Versions: "1.x" readers ignore keys that they don't know; a key is never removed or given another meaning
// without a new major version.
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pool/json.h"
#include "pool/pool.h"
#include "pool/save_file.h"
#include "vmm/memory.h"

#define SCHEMA_NAME "vmpool-snapshot"
#define SCHEMA_VERSION "1.0"

typedef struct live_block {
  uint64_t offset, word;
} live_block;

typedef struct snapshot {
  vmp_pool *pool;
  vmp_json json;
  uint64_t device_free_bytes;
  live_block *blocks;  // by offset
  size_t num_blocks;
  // The range that is being written, and where its address space begins.
  uint64_t range_offset, range_bytes;
  // A run of slots of one state, which grows while neighbours are alike.
  uint64_t run_offset, run_bytes;
  const char *run_state;
  const char *layer;  // whose free space is being walked
} snapshot;

static uint64_t now_us(clockid_t id) {
  struct timespec now;
  (void)clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// ---- head ----

static void write_head(snapshot *s) {
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
  vmp_json_close(json);
}

static void write_config(snapshot *s) {
  const vmp_config *config = &s->pool->config;
  vmp_json *json = &s->json;
  vmp_json_open(json, "config", '[');
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) {
    vmp_option option = (vmp_option)i;
    char value[256], source[64];
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
#define STATS_SIZES(X)                                                                                             \
  X(reserved_va)                                                                                                   \
  X(mapped)                                                                                                        \
  X(live) X(requested) X(parked) X(spare) X(pending) X(retiring) X(broken) X(metadata) X(peak_mapped) X(peak_live) \
      X(peak_requested) X(allocs) X(frees) X(failed_allocs) X(blocks) X(slab_live) X(mid_live) X(buddy_live)       \
          X(largest_free_mapped) X(device_free) X(device_total) X(granule) X(chunks) X(chunks_created)             \
              X(chunks_released) X(takes) X(takes_resized) X(stream_waits) X(unfinished_wait_allocs) X(host_waits) \
                  X(steps) X(step_peak_live) X(max_step_peak_live)
#define STATS_LIMITS(X) X(hard_limit) X(soft_limit)

#define COUNT(field) +1
_Static_assert(sizeof(vmp_pool_stats_data) == sizeof(size_t) + (0 STATS_SIZES(COUNT) STATS_LIMITS(COUNT)) * 8,
               "every field of the statistics is in the snapshot");
#undef COUNT

static void write_stats(snapshot *s) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  vmp_json *json = &s->json;
  stats.device_free = s->device_free_bytes;
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

// ---- mapping ----

static bool in_range(const snapshot *s, uint64_t offset) {
  return offset >= s->range_offset && offset - s->range_offset < s->range_bytes;
}

static void end_run(snapshot *s) {
  if (s->run_bytes == 0) return;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, s->run_offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, s->run_bytes);
  vmp_json_string(&s->json, NULL, s->run_state);
  vmp_json_close(&s->json);
  s->run_bytes = 0;
}

// state_of translates backing's words: a chunk that live blocks touch is simply mapped.
static const char *state_of(const char *state) {
  if (strcmp(state, "live") == 0) return "mapped";
  if (strcmp(state, "transit") == 0) return "in_transit";
  return state;
}

static void write_slots(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  snapshot *s = context;
  (void)chunk_id;
  (void)live;
  (void)fence;
  if (!in_range(s, offset)) return;
  state = state_of(state);
  if (s->run_bytes > 0 && s->run_offset + s->run_bytes == offset && strcmp(s->run_state, state) == 0) {
    s->run_bytes += bytes;
    return;
  }
  end_run(s);
  s->run_offset = offset;
  s->run_bytes = bytes;
  s->run_state = state;
}

static void write_fence(snapshot *s, vmp_fence fence) {
  bool nobody = vmp_fence_is_none(fence) || vmp_clock_known_complete(s->pool->clock, fence);
  vmp_json_hex(&s->json, NULL, nobody ? 0 : fence.streams);
  vmp_json_uint(&s->json, NULL, nobody ? 0 : fence.sequence);
}

static void write_chunk(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  snapshot *s = context;
  if (!in_range(s, offset)) return;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_string(&s->json, NULL, state_of(state));
  vmp_json_uint(&s->json, NULL, chunk_id);
  vmp_json_uint(&s->json, NULL, live);
  write_fence(s, fence);
  vmp_json_close(&s->json);
}

// ---- blocks and free space ----

static void write_block(snapshot *s, const live_block *block) {
  vmp_found found = {.bytes = 0};
  (void)vmp_route_find(s->pool, block->offset, &found);
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, block->offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, found.bytes);
  vmp_json_uint(&s->json, NULL, found.bytes - vmp_block_slack(block->word));
  vmp_json_string(&s->json, NULL, vmp_layer_name(vmp_block_layer(block->word)));
  vmp_json_close(&s->json);
}

// write_area writes what a layer's walker shows besides blocks: arenas, spans, free space.
static void write_area(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  snapshot *s = context;
  if (!in_range(s, offset) || strcmp(what, "block") == 0) return;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, offset - s->range_offset);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_string(&s->json, NULL, s->layer);
  vmp_json_string(&s->json, NULL, what);
  write_fence(s, fence);
  vmp_json_close(&s->json);
}

static void write_areas(snapshot *s) {
  vmp_json_open(&s->json, "areas", '[');
  s->layer = vmp_layer_name(VMP_LAYER_BUDDY);
  vmp_buddy_walk(s->pool->buddy, write_area, s);
  s->layer = vmp_layer_name(VMP_LAYER_MID);
  vmp_mid_walk(s->pool->mid, write_area, s);
  vmp_json_close(&s->json);
}

static void write_range(void *context, uint64_t offset, uint64_t bytes, uint64_t address) {
  snapshot *s = context;
  vmp_json *json = &s->json;
  s->range_offset = offset;
  s->range_bytes = bytes;
  vmp_json_open(json, NULL, '{');
  vmp_json_hex(json, "base", address);
  vmp_json_uint(json, "bytes", bytes);
  vmp_json_open(json, "slots", '[');
  vmp_backing_walk_mappings(s->pool->backing, write_slots, s);
  end_run(s);
  vmp_json_close(json);
  vmp_json_open(json, "chunks", '[');
  vmp_backing_walk_mappings(s->pool->backing, write_chunk, s);
  vmp_json_close(json);
  vmp_json_open(json, "blocks", '[');
  for (size_t i = 0; i < s->num_blocks; i++) {
    if (in_range(s, s->blocks[i].offset)) write_block(s, &s->blocks[i]);
  }
  vmp_json_close(json);
  write_areas(s);
  vmp_json_close(json);
}

static void write_spare(void *context, uint64_t chunk_id, uint64_t bytes) {
  snapshot *s = context;
  vmp_json_open_inline(&s->json, NULL, '[');
  vmp_json_uint(&s->json, NULL, chunk_id);
  vmp_json_uint(&s->json, NULL, bytes);
  vmp_json_close(&s->json);
}

// ---- the document ----

static void keep_block(void *context, uint64_t offset, uint64_t word) {
  snapshot *s = context;
  s->blocks[s->num_blocks++] = (live_block){offset, word};
}

static int compare_blocks(const void *a, const void *b) {
  uint64_t left = ((const live_block *)a)->offset, right = ((const live_block *)b)->offset;
  return left < right ? -1 : left > right ? 1 : 0;
}

// write_document writes everything; false when host memory ran out. The lock is held.
static bool write_document(snapshot *s) {
  size_t n = s->pool->blocks.entries;
  s->blocks = vmp_mem_calloc(n == 0 ? 1 : n, sizeof *s->blocks);
  if (s->blocks == NULL) return false;
  vmp_offset_map_walk(&s->pool->blocks, keep_block, s);
  qsort(s->blocks, s->num_blocks, sizeof *s->blocks, compare_blocks);
  vmp_json_open(&s->json, NULL, '{');
  write_head(s);
  write_config(s);
  write_stats(s);
  vmp_json_open(&s->json, "ranges", '[');
  vmp_backing_walk_reservations(s->pool->backing, write_range, s);
  vmp_json_close(&s->json);
  vmp_json_open(&s->json, "spares", '[');
  vmp_backing_walk_spares(s->pool->backing, write_spare, s);
  vmp_json_close(&s->json);
  vmp_json_close(&s->json);
  return !vmp_json_failed(&s->json);
}

vmp_status vmp_pool_snapshot(vmp_pool *pool, const char *path) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (path == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the path is NULL; name a file");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  snapshot s = {.pool = pool, .device_free_bytes = vmp_stats_device_free(pool)};
  vmp_guard_lock(&pool->guard);
  bool whole = write_document(&s);
  vmp_guard_unlock(&pool->guard);
  vmp_status status = whole ? vmp_save_file(path, s.json.text, s.json.length)
                            : vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the snapshot's text");
  vmp_mem_free(s.blocks);
  vmp_json_free(&s.json);
  return status;
}
