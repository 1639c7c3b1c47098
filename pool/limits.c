// limits.c: giving memory back, and limits that change while the pool runs. See vmpool.h and pool.h.
#include <inttypes.h>

#include "pool/log.h"
#include "pool/predict.h"

uint64_t vmp_limits_held(const vmp_pool *pool) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  return stats.mapped_bytes + stats.spare_bytes;
}

// trim_locked gives back what can be given back. MAY UNLOCK.
static vmp_status trim_locked(vmp_pool *pool, uint64_t keep_bytes, vmp_backing_trim_report *report) {
  vmp_caches_empty(pool);
  (void)vmp_debug_flush(pool);
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  vmp_domains_trim(pool);
  (void)vmp_backing_poll(pool->backing);
  return vmp_backing_trim(pool->backing, keep_bytes, report);
}

vmp_status vmp_pool_trim(vmp_pool *pool, uint64_t keep_bytes, vmp_trim_report *out_report) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_report != NULL && out_report->struct_size < offsetof(vmp_trim_report, kept_pinned_bytes)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_trim_report is not initialised; use VMP_TRIM_REPORT_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_backing_trim_report report = {0};
  vmp_guard_lock(&pool->guard);
  vmp_status status = trim_locked(pool, keep_bytes, &report);
  uint64_t captured_bytes = vmp_captures_kept_bytes(&pool->captures);
  vmp_log_simple(pool, VMP_LOG_TRIM, 0, keep_bytes, report.released_bytes, 0);
  if (report.released_bytes > 0) vmp_predict_forget(pool);
  vmp_guard_unlock(&pool->guard);
  if (out_report != NULL) {
    out_report->released_bytes = report.released_bytes;
    out_report->kept_pending_bytes = report.kept_pending_bytes;
    out_report->kept_live_bytes = report.kept_live_bytes;
    out_report->kept_other_bytes = report.kept_other_bytes;
    size_t size = out_report->struct_size;
    if (size >= offsetof(vmp_trim_report, kept_captured_bytes)) {
      out_report->kept_pinned_bytes = report.kept_pinned_bytes;
    }
    if (size >= sizeof *out_report) out_report->kept_captured_bytes = captured_bytes;
  }
  return status;
}

// set_over_limit: while a pool is over its limit, every free has to see whether something can be given back.
static void set_over_limit(vmp_pool *pool, bool over) {
  if (over == pool->over_limit) return;
  pool->over_limit = over;
  vmp_pool_bypass_caches(pool, over ? 1 : -1);
}

void vmp_limits_look(vmp_pool *pool) { set_over_limit(pool, vmp_limits_held(pool) > pool->config.hard_limit); }

void vmp_limits_shrink(vmp_pool *pool) {
  if (vmp_limits_held(pool) > pool->config.hard_limit) {
    vmp_backing_trim_report report;
    (void)trim_locked(pool, pool->config.hard_limit, &report);
  }
  vmp_limits_look(pool);
}

static vmp_status set_hard_limit(vmp_pool *pool, uint64_t bytes) {
  pool->config.hard_limit = bytes;
  vmp_backing_set_limits(pool->backing, bytes, pool->config.soft_limit);
  set_over_limit(pool, true);  // until shrink finds that it isn't
  vmp_limits_shrink(pool);
  return pool->over_limit ? VMP_PENDING : VMP_OK;
}

vmp_status vmp_pool_set_limit(vmp_pool *pool, vmp_limit which, uint64_t bytes) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (which != VMP_LIMIT_HARD && which != VMP_LIMIT_SOFT) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no limit number %d; use VMP_LIMIT_HARD or VMP_LIMIT_SOFT",
                    (int)which);
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (bytes != UINT64_MAX) bytes = vmp_align_down(bytes, pool->device.granule_bytes);
  vmp_status status = VMP_OK;
  vmp_guard_lock(&pool->guard);
  vmp_log_simple(pool, VMP_LOG_LIMIT, 0, bytes, (uint64_t)which, 0);
  if (which == VMP_LIMIT_HARD) {
    status = set_hard_limit(pool, bytes);
  } else {
    pool->config.soft_limit = bytes;
    vmp_backing_set_limits(pool->backing, pool->config.hard_limit, bytes);
  }
  vmp_guard_unlock(&pool->guard);
  return status;
}
