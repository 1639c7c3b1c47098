// step.c: steps of the program that uses the pool. See vmpool.h.
//
//     live     __/\__/\_ | _/\/\__ | __        vmp_pool_step at each bar
//     peak        step 1 |  step 2 | ...       the most that was live within a step, its first moment included
//
// Owns: the marks. Does not own: what is learnt from them (predict.c), what is tidied up (trigger.c).
#include "pool/adapt.h"
#include "pool/domain.h"
#include "pool/log.h"
#include "pool/predict.h"

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
  // A span that stayed in the middle of free space, empty or held by cached objects, would move what the next step
  // places around it.
  vmp_caches_empty(pool);
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  vmp_domains_trim(pool);
  bool gather = vmp_triggers_look(pool);
  uint64_t wanted_bytes = pool->predict == NULL ? 0 : vmp_predict_learn(pool);
  vmp_guard_unlock(&pool->guard);
  vmp_adapt_step(pool);
  vmp_triggers_run(pool, gather);
  if (pool->predict == NULL) return VMP_OK;
  vmp_predict_post(pool, wanted_bytes);
  if (pool->config.step_waits) vmp_predict_wait(pool);
  return VMP_OK;
}
