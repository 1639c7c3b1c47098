// log_open.c: starting and ending a pool's log: the options, the public calls. See log.h and vmpool_log.h.
#include <stdio.h>
#include <unistd.h>

#include "pool/file_name.h"
#include "pool/log.h"

static void fill_facts(const vmp_pool *pool, vmp_log_header *out) {
  *out = (vmp_log_header){.granule_bytes = pool->device.granule_bytes,
                          .device_total_bytes = pool->device.total_bytes,
                          .device = pool->device.ordinal};
  (void)snprintf(out->library, sizeof out->library, "%d.%d.%d", VMP_VERSION_MAJOR, VMP_VERSION_MINOR,
                 VMP_VERSION_PATCH);
  (void)snprintf(out->driver, sizeof out->driver, "%.15s", vmp_driver_name(pool->driver));
  (void)snprintf(out->device_name, sizeof out->device_name, "%.63s", pool->device.name);
  (void)snprintf(out->pool_name, sizeof out->pool_name, "%.255s", vmp_pool_name(pool));
}

// attach makes the log the pool's: from here on it sees everything. It begins with what is already there.
static vmp_status attach(vmp_pool *pool, vmp_log *log) {
  vmp_status status = VMP_OK;
  vmp_guard_lock(&pool->guard);
  while (!vmp_log_can_tell(pool)) {
    if (!vmp_backing_wait_transit(pool->backing)) vmp_guard_wait(&pool->guard);
  }
  if (pool->log != NULL) {
    status = vmp_fail(VMP_ERROR_BUSY, "the pool \"%.64s\" writes the log \"%.200s\" already; end it first",
                      vmp_pool_name(pool), vmp_log_path(pool->log));
  } else {
    vmp_pool_bypass_caches(pool, 1);  // the log sees every block
    pool->log = log;
    vmp_backing_observe(pool->backing, vmp_log_see_backing, pool);
    (void)vmp_log_write_keyframe(pool);
  }
  vmp_guard_unlock(&pool->guard);
  return status;
}

static vmp_status start(vmp_pool *pool, const vmp_log_options *options) {
  vmp_log_header facts;
  vmp_log *log;
  fill_facts(pool, &facts);
  vmp_status status = vmp_log_create(&log, options, &facts);
  if (status != VMP_OK) return status;
  status = attach(pool, log);
  if (status == VMP_OK) return VMP_OK;
  vmp_error first = *vmp_last_error();
  (void)unlink(vmp_log_path(log));
  vmp_log_destroy(log, false);
  vmp_restore_error(&first);
  return status;
}

vmp_status vmp_log_open_configured(vmp_pool *pool) {
  const vmp_config *config = &pool->config;
  vmp_log_options options = {.ring_bytes = config->log_ring, .stack_bytes = config->log_stacks};
  if (config->log == NULL) return VMP_OK;
  char path[VMP_FILE_NAME_BYTES];
  vmp_status status = vmp_file_name(pool, config->log, path);
  if (status != VMP_OK) return status;
  options.path = path;
  return start(pool, &options);
}

void vmp_log_close(vmp_pool *pool) {
  bool forked = vmp_guard_forked(&pool->guard);
  vmp_log *log = pool->log;
  if (log == NULL) return;
  if (pool->backing != NULL) vmp_backing_observe(pool->backing, NULL, NULL);
  if (!forked) vmp_pool_bypass_caches(pool, -1);
  pool->log = NULL;
  vmp_log_destroy(log, forked);
}

// ---- public calls ----

vmp_status vmp_pool_log_start(vmp_pool *pool, const char *path, const vmp_log_start_options *options) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (path == NULL || path[0] == '\0') return vmp_fail(VMP_ERROR_INVALID_VALUE, "the path is empty; name a file");
  if (options != NULL && options->struct_size < sizeof *options) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_log_start_options is not initialised; use VMP_LOG_START_OPTIONS_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_log_options log_options = {.path = path};
  if (options != NULL) {
    log_options.ring_bytes = options->ring_bytes;
    log_options.stack_bytes = options->stack_bytes;
  }
  return start(pool, &log_options);
}

vmp_status vmp_pool_log_stop(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_log_close(pool);
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}

vmp_status vmp_pool_mark(vmp_pool *pool, const char *text) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (text == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the text of the mark is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  if (vmp_log_on(pool)) vmp_log_write_simple(pool, VMP_LOG_MARK, 0, 0, 0, 0, text);
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}

const char *vmp_pool_log_path(vmp_pool *pool) {
  if (pool == NULL || vmp_guard_forked(&pool->guard)) return NULL;
  vmp_guard_lock(&pool->guard);
  const char *path = pool->log == NULL ? NULL : vmp_log_path(pool->log);
  vmp_guard_unlock(&pool->guard);
  return path;
}
