// stats.c: the pool's statistics. See vmpool.h and pool.h; by layer and by stream: memory_stats.c.
#include <string.h>

#include "pool/log.h"
#include "vmm/context.h"

// ask_device asks for free memory. Without the lock.
static bool ask_device(vmp_pool *pool, uint64_t *out_free_bytes) {
  vmp_context_saved saved;
  vmp_error before = *vmp_last_error();  // a failure here is nobody's: the last known value serves
  if (vmp_context_enter(pool->driver, pool->context, &saved) != VMP_OK) {
    (void)vmp_fail_call(before.status, before.driver_code, before.driver_call, "%s", before.message);
    return false;
  }
  size_t free_bytes = 0, total_bytes = 0;
  int code = vmp_drv_mem_get_info(pool->driver, &free_bytes, &total_bytes);
  (void)vmp_context_leave(pool->driver, &saved);
  *out_free_bytes = free_bytes;
  return code == VMP_CU_SUCCESS;
}

uint64_t vmp_stats_device_free(vmp_pool *pool) {
  uint64_t free_bytes;
  if (!ask_device(pool, &free_bytes)) return atomic_load(&pool->last_device_free_bytes);
  atomic_store(&pool->last_device_free_bytes, free_bytes);
  return free_bytes;
}

typedef struct run_search {
  vmp_pool *pool;
  uint64_t largest_bytes;
} run_search;

// see_buddy_free looks for mapped runs in buddy's free blocks.
static void see_buddy_free(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  run_search *search = context;
  const vmp_backing_ops *ops = &search->pool->ops;
  (void)fence;
  if (strcmp(what, "free") != 0) return;
  for (uint64_t at = offset, end = offset + bytes; at < end;) {
    uint64_t run_end = end;
    if (ops->run(ops->self, at, end, &run_end) == VMP_RUN_MAPPED && run_end - at > search->largest_bytes) {
      search->largest_bytes = run_end - at;
    }
    at = run_end;
  }
}

void vmp_stats_mid(const vmp_pool *pool, vmp_mid_stats *out) {
  vmp_mid_stats spans;
  vmp_mid_get_stats(pool->mid, out);
  if (pool->span_mid == NULL) return;
  vmp_mid_get_stats(pool->span_mid, &spans);
  out->arenas += spans.arenas;
  out->arena_bytes += spans.arena_bytes;
  out->blocks += spans.blocks;
  out->block_bytes += spans.block_bytes;
  out->extents += spans.extents;
  out->free_bytes += spans.free_bytes;
  out->parts += spans.parts;
  out->runs += spans.runs;
  out->free_mapped_bytes += spans.free_mapped_bytes;
  out->metadata_bytes += spans.metadata_bytes;
}

uint64_t vmp_stats_largest_free_mapped(vmp_pool *pool) {
  vmp_mid_stats mid;
  vmp_mid_get_stats(pool->mid, &mid);
  run_search search = {.pool = pool, .largest_bytes = mid.largest_run_bytes};
  if (pool->config.buddy_from != UINT64_MAX) vmp_buddy_walk(pool->buddy, see_buddy_free, &search);
  return search.largest_bytes;
}

uint64_t vmp_stats_largest_place(vmp_pool *pool) {
  vmp_mid_stats mid;
  vmp_buddy_stats buddy;
  vmp_mid_get_stats(pool->mid, &mid);
  if (pool->config.buddy_from > 0) return mid.largest_extent_bytes;
  vmp_buddy_get_stats(pool->buddy, &buddy);
  unsigned order = VMP_BUDDY_ORDERS;
  while (order > 0 && buddy.free_by_order[order - 1] == 0) order--;
  return order == 0 ? 0 : pool->device.granule_bytes << (order - 1);
}

uint64_t vmp_stats_metadata(vmp_pool *pool) {
  vmp_backing_stats backing;
  vmp_mid_stats mid;
  vmp_buddy_stats buddy;
  vmp_slab_stats slab = {0};
  vmp_backing_get_stats(pool->backing, &backing);
  vmp_stats_mid(pool, &mid);
  vmp_buddy_get_stats(pool->buddy, &buddy);
  if (pool->slab != NULL) vmp_slab_get_stats(pool->slab, &slab);
  uint64_t bytes = sizeof *pool + backing.metadata_bytes + mid.metadata_bytes + buddy.metadata_bytes +
                   slab.metadata_bytes + vmp_offset_map_metadata_bytes(&pool->blocks) +
                   vmp_offset_map_metadata_bytes(&pool->streams) + vmp_span_map_metadata_bytes(&pool->span_map) +
                   vmp_tags_metadata_bytes(&pool->tags) + vmp_pins_metadata_bytes(&pool->pins) +
                   vmp_captures_metadata_bytes(&pool->captures) + vmp_caches_metadata(pool) +
                   vmp_regions_metadata(pool) + vmp_histogram_metadata_bytes(&pool->histogram) +
                   vmp_debug_metadata_bytes(&pool->debug);
  if (pool->log != NULL) bytes += vmp_log_metadata_bytes(pool->log);
  for (size_t i = 0; i < pool->num_reservations; i++) {
    bytes += sizeof pool->reservations[i] + pool->reservations[i].bytes / pool->device.granule_bytes / 8;
  }
  return bytes;
}

// wanted: whether the caller's struct has the field. What it lacks may cost something, and isn't computed.
#define WANTED(out, field) ((out)->struct_size > offsetof(vmp_pool_stats_data, field))

static void fill_backing(vmp_pool *pool, vmp_pool_stats_data *out) {
  vmp_backing_stats backing;
  vmp_backing_get_stats(pool->backing, &backing);
  out->reserved_va = backing.reserved_bytes;
  out->mapped = backing.mapped_bytes;
  out->peak_mapped = backing.peak_mapped_bytes;
  out->parked = backing.parked_bytes;
  out->spare = backing.spare_bytes;
  out->retiring = backing.retiring_bytes;
  out->broken = backing.broken_bytes;
  out->hard_limit = backing.hard_limit_bytes;
  out->soft_limit = backing.soft_limit_bytes;
  out->chunks = backing.chunks;
  out->chunks_created = backing.chunks_created;
  out->chunks_released = backing.chunks_released;
  out->takes = backing.takes;
  out->takes_resized = backing.takes_resized;
  out->pinned = backing.pinned_bytes;
  for (const vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    out->suspended += domain->away_bytes;
    out->suspended_backup += domain->backup_bytes;
  }
  out->shared = backing.shared_bytes;
  out->shares = backing.shares;
  out->mapped_ahead = backing.ahead_bytes;
  out->ahead_unused = backing.ahead_unused_bytes;
}

void vmp_stats_fill(vmp_pool *pool, vmp_pool_stats_data *out) {
  vmp_clock_stats clock;
  vmp_caches_fold(pool);
  fill_backing(pool, out);
  out->live = vmp_pool_live_bytes(pool);
  out->requested = vmp_pool_requested_bytes(pool);
  if (WANTED(out, metadata)) out->metadata = vmp_stats_metadata(pool);
  out->peak_live = pool->peak_live_bytes;
  out->peak_requested = pool->peak_requested_bytes;
  out->allocs = pool->allocs;
  out->frees = pool->frees;
  out->failed_allocs = pool->failed_allocs;
  out->blocks = vmp_pool_num_blocks(pool);
  out->slab_live = vmp_pool_slab_live_bytes(pool);
  out->mid_live = pool->live_bytes[VMP_LAYER_MID];
  out->buddy_live = pool->live_bytes[VMP_LAYER_BUDDY];
  if (WANTED(out, largest_free_mapped)) out->largest_free_mapped = vmp_stats_largest_free_mapped(pool);
  out->device_total = pool->device.total_bytes;
  out->granule = pool->device.granule_bytes;
  vmp_clock_get_stats(pool->clock, &clock);
  out->stream_waits = clock.stream_waits;
  out->renamed_streams = clock.renamed_streams;
  out->set_aside = pool->asides.bytes;
  out->graph_kept = vmp_captures_kept_bytes(&pool->captures);
  out->unfinished_wait_allocs = pool->unfinished_wait_allocs;
  out->host_waits = pool->host_waits;
  out->cached = pool->cached_bytes;
  out->cached_bound = pool->cache_capacity_bytes;
  out->trigger_runs = pool->triggers.runs;
  out->released_by_decay = pool->triggers.released_bytes;
  out->steps = pool->steps;
  out->step_peak_live = pool->step_peak_live_bytes;
  out->max_step_peak_live = pool->max_step_peak_live_bytes;
  out->regions = pool->regions.count;
  out->region_reserved = pool->regions.reserved_bytes;
  out->region_committed = pool->regions.committed_bytes;
  out->region_live = pool->regions.live_bytes;
}

vmp_status vmp_pool_stats(vmp_pool *pool, vmp_pool_stats_data *out_stats) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_stats == NULL || out_stats->struct_size < sizeof out_stats->struct_size) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_pool_stats_data is NULL or not initialised; use VMP_POOL_STATS_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  size_t size = out_stats->struct_size;
  vmp_pool_stats_data stats = {.struct_size = size};
  if (WANTED(&stats, device_free)) stats.device_free = vmp_stats_device_free(pool);
  if (WANTED(&stats, pending)) stats.pending = vmp_stats_pending(pool);
  vmp_guard_lock(&pool->guard);
  vmp_stats_fill(pool, &stats);
  vmp_guard_unlock(&pool->guard);
  memcpy(out_stats, &stats, size < sizeof stats ? size : sizeof stats);
  return VMP_OK;
}

vmp_status vmp_pool_reset_peaks(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_caches_fold(pool);
  pool->peak_live_bytes = vmp_pool_live_bytes(pool);
  pool->peak_requested_bytes = vmp_pool_requested_bytes(pool);
  for (unsigned layer = 0; layer < VMP_TALLY_LAYERS; layer++) {
    pool->tally.peak_bytes[layer] = vmp_not_negative(pool->live_bytes[layer]);
  }
  vmp_backing_reset_peak(pool->backing);
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}
