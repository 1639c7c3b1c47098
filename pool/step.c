// step.c: steps of the program that uses the pool. See vmpool.h.
//
//     live     __/\__/\_ | _/\/\__ | __        vmp_pool_step at each bar
//     peak        step 1 |  step 2 | ...       the most that was live within a step, its first moment included
//
// Owns: the marks. Does not own: what is learnt from them.
#include "pool/log.h"

vmp_status vmp_pool_step(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_caches_fold(pool);
  pool->steps++;
  pool->step_peak_live_bytes = pool->step_live_bytes;
  if (pool->step_peak_live_bytes > pool->max_step_peak_live_bytes) {
    pool->max_step_peak_live_bytes = pool->step_peak_live_bytes;
  }
  pool->step_live_bytes = vmp_pool_live_bytes(pool);
  vmp_log_simple(pool, VMP_LOG_STEP, 0, pool->step_peak_live_bytes, pool->steps, 0);
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}
