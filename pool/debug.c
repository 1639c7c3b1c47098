// debug.c: poison and quarantine. See debug.h; guarded blocks are guarded.c's.
#include <inttypes.h>

#include "pool/pool.h"
#include "vmm/context.h"
#include "vmm/memory.h"

vmp_status vmp_debug_open(vmp_pool *pool) {
  vmp_debug *debug = &pool->debug;
  const vmp_config *config = &pool->config;
  // Whatever looks at each free must see each free.
  if (config->poison != 0 || config->quarantine != 0 || config->guard_slots) vmp_pool_bypass_caches(pool, 1);
  if (config->quarantine == 0) return VMP_OK;
  debug->ring = vmp_mem_calloc(VMP_QUARANTINE_BLOCKS, sizeof *debug->ring);
  if (debug->ring == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the quarantine");
  return VMP_OK;
}

void vmp_debug_free(vmp_debug *debug) {
  vmp_mem_free(debug->ring);
  vmp_offset_map_free(&debug->guarded);
  *debug = (vmp_debug){.count = 0};
}

uint64_t vmp_debug_metadata_bytes(const vmp_debug *debug) {
  return (debug->ring == NULL ? 0 : VMP_QUARANTINE_BLOCKS * sizeof *debug->ring) +
         vmp_offset_map_metadata_bytes(&debug->guarded);
}

// ---- poison ----

// fill fills on a stream, in the device's context. Without the lock.
static bool fill(vmp_pool *pool, uint64_t address, uint64_t bytes, void *stream) {
  vmp_context_saved saved;
  vmp_error before = *vmp_last_error();
  if (vmp_context_enter(pool->driver, pool->context, &saved) != VMP_OK) {
    vmp_restore_error(&before);
    return false;
  }
  int code = vmp_drv_memset_d8_async(pool->driver, address, (unsigned char)pool->config.poison, (size_t)bytes, stream);
  (void)vmp_context_leave(pool->driver, &saved);
  vmp_restore_error(&before);
  return code == VMP_CU_SUCCESS;
}

void vmp_debug_poison(vmp_pool *pool, uint64_t offset, void *stream) {
  vmp_found found;
  if (!vmp_route_find(pool, offset, &found) || vmp_domain_of(pool, offset) != NULL ||
      vmp_capture_of(pool, stream) != NULL)
    return;
  uint64_t address = vmp_backing_address(pool->backing, offset);
  // The block is used in its layer and live nowhere meanwhile: nobody can get it, and the check knows by `placing`.
  pool->placing++;
  vmp_guard_unlock(&pool->guard);
  bool filled = fill(pool, address, found.bytes, stream);
  vmp_guard_lock(&pool->guard);
  pool->placing--;
  pool->debug.fills++;
  if (!filled) pool->debug.failed_fills++;
}

// ---- quarantine ----

static uint64_t held(const vmp_debug *debug) {
  return debug->held_bytes[VMP_LAYER_SLAB] + debug->held_bytes[VMP_LAYER_MID] + debug->held_bytes[VMP_LAYER_BUDDY];
}

static void give_oldest(vmp_pool *pool) {
  vmp_debug *debug = &pool->debug;
  vmp_quarantined block = debug->ring[debug->first];
  debug->first = (debug->first + 1) % VMP_QUARANTINE_BLOCKS;
  debug->count--;
  debug->held_bytes[block.layer] -= block.bytes;
  (void)vmp_route_release(pool, (vmp_layer)block.layer, block.offset, block.fence);
}

uint64_t vmp_debug_keep(vmp_pool *pool, int layer, uint64_t offset, vmp_fence fence) {
  vmp_debug *debug = &pool->debug;
  vmp_found found;
  if (!vmp_route_find(pool, offset, &found) || found.bytes > pool->config.quarantine ||
      vmp_domain_of(pool, offset) != NULL) {
    return vmp_route_release(pool, (vmp_layer)layer, offset, fence);
  }
  while (debug->count == VMP_QUARANTINE_BLOCKS || held(debug) > pool->config.quarantine - found.bytes)
    give_oldest(pool);
  debug->ring[(debug->first + debug->count++) % VMP_QUARANTINE_BLOCKS] =
      (vmp_quarantined){.offset = offset, .bytes = found.bytes, .fence = fence, .layer = (uint32_t)layer};
  debug->held_bytes[layer] += found.bytes;
  return found.bytes;
}

bool vmp_debug_flush(vmp_pool *pool) {
  bool any = pool->debug.count > 0;
  while (pool->debug.count > 0) give_oldest(pool);
  return any;
}

bool vmp_debug_holds(const vmp_pool *pool, uint64_t offset) {
  const vmp_debug *debug = &pool->debug;
  for (size_t i = 0; i < debug->count; i++) {
    if (debug->ring[(debug->first + i) % VMP_QUARANTINE_BLOCKS].offset == offset) return true;
  }
  return false;
}

// ---- the check ----

static void check_guarded(void *context, uint64_t piece, uint64_t start) {
  vmp_report *report = context;
  if (start < piece) {
    vmp_report_fault(report, "debug: the guarded block at offset %" PRIu64 " begins before its piece", start);
  }
}

void vmp_debug_check(const vmp_pool *pool, vmp_report *report) {
  const vmp_debug *debug = &pool->debug;
  uint64_t bytes[VMP_NUM_LAYERS] = {0};
  for (size_t i = 0; i < debug->count; i++) {
    const vmp_quarantined *block = &debug->ring[(debug->first + i) % VMP_QUARANTINE_BLOCKS];
    vmp_found found;
    bytes[block->layer] += block->bytes;
    if (!vmp_route_find(pool, block->offset, &found) || found.offset != block->offset || found.bytes != block->bytes ||
        found.layer != (vmp_layer)block->layer) {
      vmp_report_fault(report, "debug: the block at offset %" PRIu64 " is in quarantine, and used in no layer",
                       block->offset);
    }
    if (vmp_books_get(pool, block->offset) != 0) {
      vmp_report_fault(report, "debug: the block at offset %" PRIu64 " is in quarantine, and live", block->offset);
    }
  }
  for (unsigned layer = 0; layer < VMP_NUM_LAYERS; layer++) {
    if (bytes[layer] == debug->held_bytes[layer]) continue;
    vmp_report_fault(report, "debug: %" PRIu64 " bytes of layer %u are in quarantine, and %" PRIu64 " are counted",
                     bytes[layer], layer, debug->held_bytes[layer]);
  }
  vmp_offset_map_walk(&debug->guarded, check_guarded, report);
}

// ---- statistics ----

vmp_status vmp_pool_debug_stats(vmp_pool *pool, vmp_debug_stats *out_stats) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_stats == NULL || out_stats->struct_size < sizeof *out_stats) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_debug_stats is NULL or not initialised; use VMP_DEBUG_STATS_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  const vmp_debug *debug = &pool->debug;
  *out_stats = (vmp_debug_stats){.struct_size = out_stats->struct_size,
                                 .fills = debug->fills,
                                 .failed_fills = debug->failed_fills,
                                 .quarantined_blocks = debug->count,
                                 .quarantined = held(debug),
                                 .guarded_blocks = debug->guarded.entries,
                                 .guarded = debug->guarded_bytes};
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}
