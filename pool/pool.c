// pool.c: making and ending a pool. See pool.h and vmpool.h.
//
//     options -> driver -> device -> sizes -> guard -> context -> clock -> backing -> addresses -> layers -> memory
//
// Each step leaves the structure in a state that `dispose` can take apart, so a failure anywhere undoes what was
// done, in reverse.
#include "pool/pool.h"
#include "pool/quick.h"

#include <inttypes.h>
#include <string.h>

#include "pool/driver_open.h"
#include "pool/log.h"
#include "pool/option_text.h"
#include "pool/predict.h"
#include "pool/registry.h"
#include "pool/suspend.h"
#include "pool/watch.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

int vmp_version(void) { return VMP_VERSION_MAJOR * 1000000 + VMP_VERSION_MINOR * 1000 + VMP_VERSION_PATCH; }

const char *vmp_pool_name(const vmp_pool *pool) { return pool->config.name == NULL ? "" : pool->config.name; }

// ---- create ----

// given_driver: the struct's field, where the caller's version of the struct has it.
static vmp_driver *given_driver(const vmp_pool_options *options) {
  size_t end = offsetof(vmp_pool_options, driver) + sizeof options->driver;
  return options != NULL && options->struct_size >= end ? options->driver : NULL;
}

static vmp_status open_driver(vmp_pool *pool, vmp_driver *given) {
  vmp_config *config = &pool->config;
  if (given == NULL) {
    vmp_status status = vmp_driver_open_config(&pool->driver, config);
    pool->owns_driver = status == VMP_OK;
    return status;
  }
  int kind = (int)vmp_driver_kind_of(given);
  if (config->source[VMP_OPTION_driver] == VMP_SOURCE_CONF && config->driver != kind) {
    return vmp_fail(VMP_ERROR_CONFIG, "conf: driver differs from the driver in the options, which is %s; leave one out",
                    vmp_driver_name(given));
  }
  config->driver = kind;
  pool->driver = given;
  if (vmp_driver_is_forked(given)) {
    return vmp_fail(VMP_ERROR_FORKED, "the driver was opened by process %d; open one in the process that uses it",
                    (int)given->owner_process);
  }
  return VMP_OK;
}

// check_peer refuses a peer that can't reach the pool's memory: one such name would make every set-access fail.
static vmp_status check_peer(vmp_pool *pool, int ordinal) {
  vmp_device peer;
  vmp_status status = vmp_device_require_vmm(pool->driver, ordinal, &peer);
  if (status != VMP_OK) return status;
  if (ordinal == pool->device.ordinal) {
    return vmp_fail(VMP_ERROR_CONFIG, "peers names device %d, which is the pool's own", ordinal);
  }
  int can = 0;
  int code = vmp_drv_device_can_access_peer(pool->driver, &can, peer.device, pool->device.device);
  if (code != VMP_CU_SUCCESS) {
    return vmp_driver_fail(pool->driver, VMP_CALL_device_can_access_peer, code,
                           "device %d was to be asked whether it reaches device %d", ordinal, pool->device.ordinal);
  }
  if (can == 0) {
    return vmp_fail(VMP_ERROR_NOT_SUPPORTED, "peers names device %d (%s), which has no path to device %d", ordinal,
                    peer.name, pool->device.ordinal);
  }
  if (peer.granule_bytes > pool->device.granule_bytes) pool->device.granule_bytes = peer.granule_bytes;
  return VMP_OK;
}

static vmp_status open_device(vmp_pool *pool) {
  vmp_config *config = &pool->config;
  vmp_status status = vmp_device_require_vmm(pool->driver, config->device, &pool->device);
  for (size_t i = 0; i < config->peers.count && status == VMP_OK; i++)
    status = check_peer(pool, config->peers.values[i]);
  if (status == VMP_OK) status = vmp_config_resolve(config, pool->device.granule_bytes, pool->device.total_bytes);
  if (status == VMP_OK) pool->granule_log2 = vmp_log2(pool->device.granule_bytes);
  if (status == VMP_OK) status = vmp_context_retain(pool->driver, pool->device.device, &pool->context);
  if (status == VMP_OK) status = vmp_clock_create(&pool->clock, pool->driver, pool->device.ordinal);
  return status;
}

static vmp_status open_backing(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  vmp_backing_options options = {
      .driver = pool->driver,
      .clock = pool->clock,
      .device = pool->device.ordinal,
      .context = pool->context,
      .granule_bytes = pool->device.granule_bytes,
      .chunk_max_bytes = config->chunk_max,
      .growth_bytes = config->growth,
      .hard_limit_bytes = config->hard_limit,
      .soft_limit_bytes = config->soft_limit,
      .park_limit = config->park_limit,
      .complete_only = config->cross_stream == VMP_CROSS_STREAM_COMPLETE,
      .may_create = true,
      .peers = config->peers.values,
      .num_peers = config->peers.count,
      .hooks = vmp_guard_hooks(&pool->guard),
  };
  vmp_status status = vmp_backing_create(&pool->backing, &options);
  if (status == VMP_OK) pool->ops = vmp_backing_get_ops(pool->backing);
  return status;
}

vmp_slab_options vmp_pool_slab_options(const vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  vmp_slab_options slab_options = {
      .max_object_bytes = config->slab_max,
      .granule_bytes = pool->device.granule_bytes,
      .random_seed = config->slab_random ? config->seed : 0,
  };
  if (config->classes.count > 0) {
    slab_options.class_bytes = config->classes.values;
    slab_options.num_classes = config->classes.count;
    slab_options.class_from_bytes = (config->classes.values[0] + 1) / 2;
  }
  // Room for as many that drain.
  if (config->adaptive > 0) slab_options.max_user_classes = config->classes.count + 2 * (size_t)config->adaptive;
  return slab_options;
}

#define LEAST_ARENAS 4u  // that a reservation has room for

// wants_span_arenas: whether small spans are kept out of the space between large blocks. Not where chunks are of one
// granule anyway, where none is made later, or where another arena would take addresses that large blocks need.
static bool wants_span_arenas(const vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  return !config->shared_arenas && config->chunk_max > pool->device.granule_bytes &&
         config->strategy != VMP_STRATEGY_STATIC && config->reserve / LEAST_ARENAS >= config->arena;
}

static vmp_status open_span_arenas(vmp_pool *pool) {
  vmp_mid_supply arenas = vmp_route_mid_supply(pool);
  vmp_mid_options options = {.arena_bytes = pool->config.arena, .chunk_max_bytes = pool->device.granule_bytes};
  vmp_backing_ops ops = vmp_backing_get_exact_ops(pool->backing);
  return vmp_mid_create(&pool->span_mid, &ops, &arenas, &options);
}

static vmp_status open_layers(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  vmp_mid_supply arenas = vmp_route_mid_supply(pool);
  vmp_mid_options mid_options = {.arena_bytes = config->arena,
                                 .chunk_max_bytes = config->chunk_max,
                                 .edges = config->edges,
                                 .park_limit = config->park_limit};
  vmp_status status = vmp_mid_create(&pool->mid, &pool->ops, &arenas, &mid_options);
  if (status != VMP_OK || (config->slab_max == 0 && config->classes.count == 0 && config->adaptive == 0)) return status;
  if (wants_span_arenas(pool)) status = open_span_arenas(pool);
  if (status != VMP_OK) return status;
  vmp_slab_supply spans = vmp_route_slab_supply(pool);
  vmp_slab_options slab_options = vmp_pool_slab_options(pool);
  memcpy(pool->adopted_bytes, config->classes.values, sizeof pool->adopted_bytes);
  pool->num_adopted = config->classes.count;
  status = vmp_slab_create(&pool->slab, &pool->ops, &spans, &slab_options);
  if (status == VMP_OK) pool->span_map.cards = vmp_slab_cards(pool->slab);
  return status;
}

// map_initial maps what initial_fraction asks for. VMP_PARTIAL: less was to be had.
static vmp_status map_initial(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  double share = config->initial_fraction * (double)pool->device.total_bytes;
  uint64_t wanted = vmp_align_down((uint64_t)share, pool->device.granule_bytes), mapped = 0;
  if (wanted > config->hard_limit) wanted = config->hard_limit;
  vmp_status status = wanted == 0 ? VMP_OK : vmp_space_map_initial(pool, wanted, &mapped);
  if (config->strategy == VMP_STRATEGY_STATIC) vmp_backing_set_may_create(pool->backing, false);
  if (status != VMP_OK || mapped >= wanted) return status;
  if (!config->initial_must_fit) return VMP_PARTIAL;
  char asked[32], got[32];
  (void)vmp_print_size(wanted, asked, sizeof asked);
  (void)vmp_print_size(mapped, got, sizeof got);
  return vmp_fail(VMP_ERROR_OUT_OF_MEMORY, "only %s of the initial %s could be mapped, and initial_must_fit is set",
                  got, asked);
}

static vmp_status keep_config_text(vmp_pool *pool) {
  size_t length = vmp_config_print(&pool->config, NULL, 0);
  pool->config_text = vmp_mem_calloc(length + 1, 1);
  if (pool->config_text == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the config's text");
  (void)vmp_config_print(&pool->config, pool->config_text, length + 1);
  return VMP_OK;
}

// open_memory makes everything that needs the lock, which backing's calls let go of.
static vmp_status open_memory(vmp_pool *pool) {
  vmp_guard_lock(&pool->guard);
  vmp_status status = vmp_buddy_create(&pool->buddy, &pool->ops);
  if (status == VMP_OK) status = vmp_space_open(pool);
  if (status == VMP_OK) status = open_layers(pool);
  if (status == VMP_OK) vmp_caches_open(pool);
  if (status == VMP_OK) vmp_quick_open(pool);
  if (status == VMP_OK) status = vmp_debug_open(pool);
  if (status == VMP_OK) vmp_triggers_open(pool);
  if (status == VMP_OK) status = map_initial(pool);
  vmp_guard_unlock(&pool->guard);
  return status;
}

static vmp_status dispose(vmp_pool *pool);

vmp_status vmp_pool_create(vmp_pool **out_pool, const vmp_pool_options *options) {
  if (out_pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  vmp_pool *pool = vmp_mem_calloc(1, sizeof *pool);
  if (pool == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a pool");
  vmp_pins_init(&pool->pins);
  vmp_captures_init(&pool->captures);
  vmp_status status = vmp_guard_init(&pool->guard);
  if (status != VMP_OK) {
    vmp_mem_free(pool);
    return status;
  }
  status = vmp_config_read(&pool->config, NULL, options, vmp_config_environment());
  if (status == VMP_OK) status = vmp_watch_check(&pool->config);
  if (status == VMP_OK) status = open_driver(pool, given_driver(options));
  if (status == VMP_OK) status = open_device(pool);
  if (status == VMP_OK) status = open_backing(pool);
  if (status == VMP_OK) status = open_memory(pool);
  vmp_status news = status > 0 ? status : VMP_OK;
  if (status >= 0) status = keep_config_text(pool);
  if (status >= 0) status = vmp_log_open_configured(pool);
  if (status >= 0) status = vmp_watch_open(pool);
  if (status >= 0 && pool->config.strategy == VMP_STRATEGY_PREDICTIVE) status = vmp_predict_start(pool);
  if (status >= 0) {
    vmp_status joined = vmp_registry_join(pool);
    if (joined != VMP_OK) status = joined;
  }
  if (status < 0) {
    vmp_error first = *vmp_last_error();  // taking things apart may fail too: the first cause counts
    (void)dispose(pool);
    return vmp_fail_call(first.status, first.driver_code, first.driver_call, "%s", first.message);
  }
  *out_pool = pool;
  return news;
}

// ---- destroy ----

static void keep_first(vmp_status *first, vmp_status status) {
  if (*first == VMP_OK && status != VMP_OK) *first = status;
}

// dispose takes a pool apart, however far it was made; the memory is no longer in use. Returns the first failure.
static vmp_status dispose(vmp_pool *pool) {
  vmp_status first = VMP_OK;
  vmp_prefetch_end(pool);
  vmp_predict_end(pool);
  vmp_watch_close(pool);
  vmp_log_close(pool);
  vmp_caches_close(pool);
  vmp_regions_dispose(pool);
  vmp_histogram_free(&pool->histogram);
  vmp_debug_free(&pool->debug);
  vmp_tags_free(&pool->tags);
  vmp_pins_free(&pool->pins);
  vmp_captures_free(&pool->captures);
  vmp_asides_free(&pool->asides);
  vmp_slab_destroy(pool->slab);
  vmp_mid_destroy(pool->span_mid);
  vmp_mid_destroy(pool->mid);
  vmp_buddy_destroy(pool->buddy);
  if (pool->context != NULL && !vmp_guard_forked(&pool->guard)) (void)vmp_movers_retry(pool);
  if (pool->backing != NULL) keep_first(&first, vmp_backing_destroy(pool->backing));
  vmp_space_close(pool);
  vmp_clock_destroy(pool->clock);
  if (pool->context != NULL) keep_first(&first, vmp_context_release(pool->driver, pool->device.device));
  if (pool->owns_driver) vmp_driver_close(pool->driver);
  vmp_span_map_free(&pool->span_map);
  vmp_offset_map_free(&pool->blocks);
  vmp_offset_map_free(&pool->streams);
  vmp_config_free(&pool->config);
  vmp_mem_free(pool->config_text);
  vmp_guard_destroy(&pool->guard);
  vmp_mem_free(pool);
  return first;
}

static vmp_status fail_busy(const vmp_pool *pool) {
  if (pool->asides.first != NULL) {
    return vmp_fail(VMP_ERROR_BUSY,
                    "%" PRIu64 " tickets for %" PRIu64 " bytes of the pool \"%.64s\" that are set aside have not been "
                    "returned; return them first, or create it with destroy_releases",
                    vmp_asides_count(&pool->asides), pool->asides.bytes, vmp_pool_name(pool));
  }
  if (pool->captures.graphs != NULL) {
    return vmp_fail(VMP_ERROR_BUSY,
                    "%" PRIu64 " graphs of stream captures hold memory of the pool \"%.64s\" (%" PRIu64
                    " bytes of it freed); call vmp_capture_release first, or create it with destroy_releases",
                    vmp_captures_num_graphs(&pool->captures), vmp_pool_name(pool),
                    vmp_captures_kept_bytes(&pool->captures));
  }
  if (vmp_pool_num_blocks(pool) == 0 && pool->regions.count == 0 && pool->pins.records.used == 0) {
    return vmp_fail(VMP_ERROR_BUSY, "%u tags of the pool \"%.64s\" are suspended; resume them first",
                    vmp_domains_suspended(pool), vmp_pool_name(pool));
  }
  if (vmp_pool_num_blocks(pool) == 0 && pool->regions.count == 0) {
    return vmp_fail(VMP_ERROR_BUSY, "%" PRIu32 " ranges of the pool \"%.64s\" are pinned; unpin them first",
                    pool->pins.records.used, vmp_pool_name(pool));
  }
  return vmp_fail(VMP_ERROR_BUSY,
                  "%" PRIu64 " live blocks of %" PRIu64 " bytes (%" PRIu64 " requested) and %" PRIu64
                  " regions of %" PRIu64
                  " committed bytes are left in the pool \"%.64s\"; free them first, or create it "
                  "with destroy_releases",
                  vmp_pool_num_blocks(pool), vmp_pool_live_bytes(pool) - pool->regions.live_bytes,
                  vmp_pool_requested_bytes(pool) - pool->regions.live_bytes, pool->regions.count,
                  pool->regions.committed_bytes, vmp_pool_name(pool));
}

// last_fence: everything that may still touch the pool's memory.
static vmp_fence last_fence(vmp_pool *pool) {
  (void)vmp_debug_flush(pool);
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  vmp_domains_trim(pool);
  vmp_fence fence = vmp_backing_pending(pool->backing);
  if (vmp_pool_num_blocks(pool) == 0 && pool->regions.count == 0) return fence;
  return vmp_fence_merge(fence, vmp_clock_fence_of(pool->clock, pool->seen_streams));
}

// wait_for_all waits until nobody can touch the pool's memory. A failure may have been of the question only, so it is
// asked again, and then the device is asked as a whole: nothing may be unmapped under running work.
static vmp_status wait_for_all(vmp_pool *pool, vmp_fence fence) {
  if (vmp_fence_is_none(fence)) return VMP_OK;
  if (vmp_clock_wait(pool->clock, fence, UINT64_MAX) == VMP_OK) return VMP_OK;
  vmp_status status = vmp_clock_wait(pool->clock, fence, UINT64_MAX);
  if (status == VMP_OK) return VMP_OK;
  vmp_error error = *vmp_last_error();
  vmp_context_saved saved;
  if (vmp_context_enter(pool->driver, pool->context, &saved) == VMP_OK) {
    int code = vmp_drv_ctx_synchronize(pool->driver);
    (void)vmp_context_leave(pool->driver, &saved);
    if (code == VMP_CU_SUCCESS) return VMP_OK;
  }
  return vmp_fail_call(status, error.driver_code, error.driver_call, "%s", error.message);
}

// destroy_in_child frees host memory in a forked child. Where another thread of the parent held the lock at the
// fork, the bookkeeping may be torn, and is left alone.
static vmp_status destroy_in_child(vmp_pool *pool) {
  if (vmp_guard_was_free(&pool->guard)) (void)dispose(pool);
  return VMP_OK;
}

vmp_status vmp_pool_destroy(vmp_pool *pool) {
  if (pool == NULL) return VMP_OK;
  if (vmp_guard_forked(&pool->guard)) return destroy_in_child(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = VMP_OK;
  vmp_fence fence = VMP_FENCE_NONE;
  vmp_caches_empty(pool);
  bool in_use = vmp_pool_num_blocks(pool) > 0 || pool->regions.count > 0 || pool->pins.records.used > 0 ||
                pool->captures.graphs != NULL || pool->asides.first != NULL || vmp_domains_suspended(pool) > 0;
  if (in_use && !pool->config.destroy_releases) {
    status = fail_busy(pool);
  } else {
    vmp_captures_close(pool);
    vmp_asides_close(pool);
    fence = last_fence(pool);
  }
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) return status;

  vmp_watch_end(pool);
  vmp_registry_leave(pool);
  vmp_status first = wait_for_all(pool, fence);
  vmp_error error = *vmp_last_error();
  vmp_status disposed = dispose(pool);
  if (first == VMP_OK) return disposed;
  return vmp_fail_call(first, error.driver_code, error.driver_call, "%s", error.message);
}

// ---- small questions ----

const char *vmp_pool_config(const vmp_pool *pool) { return pool == NULL ? "" : pool->config_text; }

vmp_driver *vmp_pool_driver(const vmp_pool *pool) { return pool == NULL ? NULL : pool->driver; }
