// snapshot.c: the pool's whole state as JSON, at one instant. See snapshot.h and vmpool.h.
//
// Versions: "1.x" readers ignore keys and further cells of a row that they don't know; a key is never removed or given
// another meaning without a new major version.
#include "pool/snapshot.h"

#include <stdlib.h>

#include "pool/log.h"
#include "pool/save_file.h"
#include "vmm/memory.h"

// Text of one row of a table, at most, but for very long names.
#define ROW_BYTES 160u
#define HEAD_BYTES 32768u
#define SPARE_ROWS 64u

static void keep_stream(void *context, vmp_stream_index index, uint64_t handle, uint64_t thread, uint64_t completed) {
  snapshot *s = context;
  if (s->num_streams == SNAPSHOT_MAX_STREAMS) return;
  s->streams[s->num_streams++] = (snapshot_stream){index, handle, thread, completed};
}

static void keep_block(void *context, uint64_t offset, uint64_t word) {
  snapshot *s = context;
  s->blocks[s->num_blocks++] = (snapshot_block){offset, word, 0};
}

static void keep_run(void *context, uint64_t offset, uint64_t bytes) {
  snapshot *s = context;
  s->blocks[s->num_blocks++] = (snapshot_block){offset, 0, bytes};
}

static void count_run(void *context, uint64_t offset, uint64_t bytes) {
  (void)offset;
  (void)bytes;
  ++*(size_t *)context;
}

// blocks_now: rows of the tables of blocks: blocks, and runs of committed pages. The lock is held.
static size_t blocks_now(const vmp_pool *pool) {
  size_t runs = 0;
  vmp_regions_walk(pool, count_run, &runs);
  return vmp_pool_num_blocks(pool) + runs;
}

static int compare_blocks(const void *a, const void *b) {
  uint64_t left = ((const snapshot_block *)a)->offset, right = ((const snapshot_block *)b)->offset;
  return left < right ? -1 : left > right ? 1 : 0;
}

// rows_now: how many rows the tables have, about. The lock is held.
static uint64_t rows_now(const vmp_pool *pool) {
  vmp_backing_stats backing;
  vmp_mid_stats mid;
  vmp_buddy_stats buddy;
  vmp_backing_get_stats(pool->backing, &backing);
  vmp_stats_mid(pool, &mid);
  vmp_buddy_get_stats(pool->buddy, &buddy);
  uint64_t rows = blocks_now(pool) + 2 * pool->regions.count + 2 * backing.chunks +
                  backing.retiring_bytes / pool->device.granule_bytes;
  rows += mid.parts + mid.blocks + buddy.pieces + buddy.blocks + VMP_BUDDY_ORDERS * pool->num_reservations;
  return rows + SPARE_ROWS;
}

// make_room makes the text and the list of blocks long enough for the pool as it is, and an eighth more. False: no host
// memory.
static bool make_room(snapshot *s) {
  vmp_pool *pool = s->pool;
  vmp_guard_lock(&pool->guard);
  uint64_t rows = rows_now(pool);
  size_t blocks = blocks_now(pool);
  vmp_guard_unlock(&pool->guard);
  s->max_blocks = blocks + blocks / 8 + SPARE_ROWS;
  s->blocks = vmp_mem_calloc(s->max_blocks, sizeof *s->blocks);
  return s->blocks != NULL && vmp_json_reserve(&s->json, (size_t)(rows + rows / 8) * ROW_BYTES + HEAD_BYTES);
}

// write_document writes everything; false when host memory ran out. The lock is held.
static bool write_document(snapshot *s) {
  size_t blocks = blocks_now(s->pool);
  if (blocks > s->max_blocks) {  // grown meanwhile
    vmp_mem_free(s->blocks);
    s->max_blocks = blocks;
    s->blocks = vmp_mem_calloc(s->max_blocks, sizeof *s->blocks);
    if (s->blocks == NULL) return false;
  }
  vmp_books_walk(s->pool, keep_block, s);
  vmp_regions_walk(s->pool, keep_run, s);
  qsort(s->blocks, s->num_blocks, sizeof *s->blocks, compare_blocks);
  if (vmp_log_on(s->pool)) s->log_records = vmp_log_written(s->pool->log);
  vmp_json_open(&s->json, NULL, '{');
  vmp_snapshot_head(s);
  vmp_snapshot_ranges(s);
  vmp_json_close(&s->json);
  if (vmp_log_on(s->pool)) vmp_log_write_simple(s->pool, VMP_LOG_SNAPSHOT, 0, 0, 0, 0, s->path);
  return !vmp_json_failed(&s->json);
}

// make writes the text. False: no host memory.
static bool make(snapshot *s) {
  vmp_pool *pool = s->pool;
  // What asks the driver, or waits for those who do, comes before the lock.
  s->device_free_bytes = vmp_stats_device_free(pool);
  vmp_driver_get_calls(pool->driver, &s->calls);
  vmp_clock_walk_streams(pool->clock, keep_stream, s);
  if (!make_room(s)) return false;
  vmp_guard_lock(&pool->guard);
  vmp_caches_stop(pool);  // before they are folded: what a hit counted in between would be missing
  vmp_caches_fold(pool);
  bool whole = write_document(s);
  vmp_caches_go(pool);
  vmp_guard_unlock(&pool->guard);
  return whole;
}

vmp_status vmp_snapshot_make(vmp_pool *pool, const char *path, const char *trigger, vmp_json *out_json) {
  snapshot *s = vmp_mem_calloc(1, sizeof *s);
  if (s == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a snapshot");
  s->pool = pool;
  s->path = path;
  s->trigger = trigger;
  bool whole = make(s);
  if (whole) {
    *out_json = s->json;
  } else {
    vmp_json_free(&s->json);
  }
  vmp_mem_free(s->blocks);
  vmp_mem_free(s);
  return whole ? VMP_OK : vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the snapshot's text");
}

vmp_status vmp_snapshot_write(vmp_pool *pool, const char *path, const char *trigger) {
  vmp_json json = {0};
  vmp_status status = vmp_snapshot_make(pool, path, trigger, &json);
  if (status == VMP_OK) status = vmp_save_file(path, json.text, json.length);
  vmp_json_free(&json);
  return status;
}

vmp_status vmp_pool_snapshot(vmp_pool *pool, const char *path) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (path == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the path is NULL; name a file");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  return vmp_snapshot_write(pool, path, "call");
}
