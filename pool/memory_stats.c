// memory_stats.c: statistics by layer and by stream. See vmpool_stats.h.
//
//     counted    at one instant, under the lock                     live, peaks, allocs, frees
//     walked     a few hundred chunks at a time, the lock let go    pending, by stream
//                of in between
#include <string.h>

#include "pool/pool.h"
#include "pool/thread_cache.h"

#define CHUNKS_AT_A_TIME 512u

static double share(uint64_t part, uint64_t whole) { return whole == 0 ? 0 : (double)part / (double)whole; }

// ---- by layer ----

static void fill_layers(const vmp_pool *pool, vmp_memory_stats *out) {
  const vmp_tally *t = &pool->tally;
  const uint64_t *live = pool->live_bytes;
  out->mid = (vmp_layer_stats){.live = live[VMP_LAYER_MID],
                               .peak_live = t->peak_bytes[VMP_LAYER_MID],
                               .allocs = t->allocs[VMP_LAYER_MID],
                               .frees = t->frees[VMP_LAYER_MID]};
  out->buddy = (vmp_layer_stats){.live = live[VMP_LAYER_BUDDY],
                                 .peak_live = t->peak_bytes[VMP_LAYER_BUDDY],
                                 .allocs = t->allocs[VMP_LAYER_BUDDY],
                                 .frees = t->frees[VMP_LAYER_BUDDY]};
  out->slab = (vmp_layer_stats){.live = vmp_pool_slab_live_bytes(pool),
                                .peak_live = t->peak_bytes[VMP_LAYER_SLAB],
                                .allocs = pool->allocs - out->mid.allocs - out->buddy.allocs,
                                .frees = pool->frees - out->mid.frees - out->buddy.frees};
  out->slab.blocks = out->slab.allocs - out->slab.frees;
  out->mid.blocks = out->mid.allocs - out->mid.frees;
  out->buddy.blocks = out->buddy.allocs - out->buddy.frees;
}

static void fill(vmp_pool *pool, uint64_t device_free_bytes, vmp_memory_stats *out) {
  vmp_backing_stats backing;
  vmp_caches_fold(pool);
  vmp_backing_get_stats(pool->backing, &backing);
  out->mapped = backing.mapped_bytes;
  out->peak_mapped = backing.peak_mapped_bytes;
  out->total_mapped = backing.created_bytes;
  out->live = vmp_pool_live_bytes(pool);
  out->peak_live = pool->peak_live_bytes;
  out->requested = vmp_pool_requested_bytes(pool);
  out->peak_requested = pool->peak_requested_bytes;
  out->blocks = vmp_pool_num_blocks(pool);
  out->allocs = pool->allocs;
  out->frees = pool->frees;
  out->failed_allocs = pool->failed_allocs;
  out->utilisation = share(out->live, out->mapped);
  out->fragmentation = out->mapped == 0 ? 0 : 1 - out->utilisation;
  fill_layers(pool, out);
  out->largest_mapped = vmp_stats_largest_free_mapped(pool);
  out->largest_growing = vmp_oom_largest(pool, device_free_bytes);
}

// ---- by stream ----

typedef struct stream_list {
  const vmp_clock *clock;
  vmp_stream_stats *out;
  size_t capacity, count;
  const vmp_tally *tally;
  const uint64_t *pending, *cached;
} stream_list;

static void see_stream(void *context, vmp_stream_index index, uint64_t handle, uint64_t thread, uint64_t completed) {
  stream_list *list = context;
  (void)completed;
  if (list->count++ >= list->capacity) return;
  list->out[list->count - 1] = (vmp_stream_stats){.stream = (vmp_stream)(uintptr_t)handle,
                                                  .thread = thread,
                                                  .allocs = list->tally->stream_allocs[index],
                                                  .frees = list->tally->stream_frees[index],
                                                  .pending = list->pending[index],
                                                  .cached = list->cached[index],
                                                  .pending_age_us = vmp_clock_age_us(list->clock, index)};
}

// walk_pending sums parked memory that unfinished work may touch, by stream; *out_complete is the rest of it, and spare
// memory. The lock is let go of between pieces.
static void walk_pending(vmp_pool *pool, uint64_t by_stream[VMP_TALLY_STREAMS], uint64_t *out_pending,
                         uint64_t *out_complete) {
  uint32_t next = 1;
  *out_pending = *out_complete = 0;
  while (next != 0) {
    vmp_guard_lock(&pool->guard);
    next = vmp_backing_walk_idle(pool->backing, next, CHUNKS_AT_A_TIME, by_stream, out_pending, out_complete);
    vmp_guard_unlock(&pool->guard);
  }
}

uint64_t vmp_stats_pending(vmp_pool *pool) {
  uint64_t by_stream[VMP_TALLY_STREAMS] = {0}, pending, complete;
  walk_pending(pool, by_stream, &pending, &complete);
  return pending;
}

// ---- the calls ----

vmp_status vmp_pool_memory_stats(vmp_pool *pool, vmp_memory_stats *out_stats) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_stats == NULL || out_stats->struct_size < sizeof *out_stats) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_memory_stats is NULL or not initialised; use VMP_MEMORY_STATS_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_memory_stats stats = {.struct_size = out_stats->struct_size};
  uint64_t by_stream[VMP_TALLY_STREAMS] = {0}, pending, complete, room;
  uint64_t device_free_bytes = vmp_stats_device_free(pool);
  walk_pending(pool, by_stream, &pending, &complete);
  vmp_guard_lock(&pool->guard);
  fill(pool, device_free_bytes, &stats);
  room = vmp_stats_largest_place(pool);
  vmp_guard_unlock(&pool->guard);
  stats.largest_gathered = complete < room ? complete : room;
  if (stats.largest_gathered < stats.largest_mapped) stats.largest_gathered = stats.largest_mapped;
  if (stats.largest_growing < stats.largest_gathered) stats.largest_growing = stats.largest_gathered;
  *out_stats = stats;
  return VMP_OK;
}

vmp_status vmp_pool_stream_stats(vmp_pool *pool, vmp_stream_stats *out_streams, size_t capacity, size_t *out_count) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_count == NULL || (out_streams == NULL && capacity > 0)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  uint64_t pending_by_stream[VMP_TALLY_STREAMS] = {0}, cached[VMP_TALLY_STREAMS] = {0}, pending, complete;
  walk_pending(pool, pending_by_stream, &pending, &complete);
  vmp_guard_lock(&pool->guard);
  vmp_caches_stop(pool);  // before they are folded: what a hit counted in between would be missing
  vmp_caches_fold(pool);
  vmp_caches_by_stream(pool, cached);
  vmp_caches_go(pool);
  vmp_tally tally = pool->tally;
  vmp_guard_unlock(&pool->guard);
  stream_list list = {.clock = pool->clock,
                      .out = out_streams,
                      .capacity = capacity,
                      .tally = &tally,
                      .pending = pending_by_stream,
                      .cached = cached};
  vmp_clock_walk_streams(pool->clock, see_stream, &list);
  *out_count = list.count;
  return VMP_OK;
}
