// trigger.c: gathering and giving back that the pool does by itself. See trigger.h and vmpool_trigger.h.
//
//     figure   limit ──────────┐   fires when it is above the limit for the first time, and again only when it is
//              left by a run ──┴─> above what the last run left: a run that can't help isn't repeated at each step
//
//     idle     ▔▔\_/▔▔▔\__/▔▔|   the least of a window is what nobody has used all through it
//     window   step ........ step, at least release_after later
//
// Invariants
//   - Nothing here runs unless an option says so; without one a step makes no driver call.
//   - No failure leaves this file, and the thread's last error is what it was.
#include "pool/trigger.h"

#include <time.h>

#include "pool/log.h"
#include "pool/pool.h"
#include "pool/predict.h"
#include "vmm/error.h"

static uint64_t monotonic_us(void *context) {
  struct timespec now;
  (void)context;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void vmp_triggers_open(vmp_pool *pool) {
  pool->triggers = (vmp_triggers){.now_us = monotonic_us,
                                  .max_us = VMP_TRIGGER_US,
                                  .blocks_left = (double)pool->config.defragment_blocks,
                                  .share_left = pool->config.defragment_share};
}

void vmp_triggers_set_clock(vmp_pool *pool, uint64_t (*now_us)(void *context), void *context) {
  vmp_guard_lock(&pool->guard);
  pool->triggers.now_us = now_us;
  pool->triggers.context = context;
  vmp_guard_unlock(&pool->guard);
}

void vmp_triggers_set_max_us(vmp_pool *pool, uint64_t max_us) {
  vmp_guard_lock(&pool->guard);
  pool->triggers.max_us = max_us;
  vmp_guard_unlock(&pool->guard);
}

// ---- when to gather ----

static bool watches_blocks(const vmp_pool *pool) { return pool->config.defragment_blocks != 0; }
static bool watches_share(const vmp_pool *pool) { return pool->config.defragment_share < 1; }

// free_blocks: pieces of mapped memory that mid could hand out, each as one block.
static double free_blocks(vmp_pool *pool) {
  vmp_mid_stats mid;
  vmp_mid_get_stats(pool->mid, &mid);
  return (double)mid.runs;
}

// has_risen compares a figure with its limit and with what the last run has left of it.
static bool has_risen(double figure, double limit, double *left) {
  if (figure <= limit) *left = limit;
  return figure > *left;
}

static double larger(double a, double b) { return a > b ? a : b; }

bool vmp_triggers_look(vmp_pool *pool) {
  vmp_triggers *t = &pool->triggers;
  const vmp_config *config = &pool->config;
  bool gather = config->defragment_steps != 0 && pool->steps % config->defragment_steps == 0;
  if (watches_blocks(pool)) {
    gather |= has_risen(free_blocks(pool), (double)config->defragment_blocks, &t->blocks_left);
  }
  if (watches_share(pool)) {
    gather |= has_risen(vmp_ladder_idle_share(pool), config->defragment_share, &t->share_left);
  }
  return gather;
}

bool vmp_triggers_gather(vmp_pool *pool, uint64_t want_bytes) {
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  vmp_error before = *vmp_last_error();
  vmp_guard_lock(&pool->guard);
  options.max_us = pool->triggers.max_us;
  vmp_guard_unlock(&pool->guard);
  options.want_bytes = want_bytes;
  options.max_driver_calls = VMP_TRIGGER_CALLS;
  vmp_status status = vmp_pool_defragment(pool, &options, &report);
  vmp_restore_error(&before);
  if (status == VMP_ERROR_BUSY) return false;  // another thread does it already
  vmp_triggers *t = &pool->triggers;
  vmp_guard_lock(&pool->guard);
  t->runs++;
  if (watches_blocks(pool)) t->blocks_left = larger(free_blocks(pool), (double)pool->config.defragment_blocks);
  if (watches_share(pool)) t->share_left = larger(vmp_ladder_idle_share(pool), pool->config.defragment_share);
  vmp_guard_unlock(&pool->guard);
  return status == VMP_OK && report.stop == VMP_DEFRAGMENT_REACHED;
}

// ---- giving back ----

// note_due ends the window that is long enough, and begins another one.
static void note_due(vmp_pool *pool) {
  vmp_triggers *t = &pool->triggers;
  uint64_t now = t->now_us(t->context), above = pool->config.release_above;
  uint64_t least = vmp_backing_least_idle(pool->backing);
  bool unused = t->watching && least > above;
  if (unused && now - t->watched_since_us < pool->config.release_after) return;
  if (unused) t->due_bytes = least - above;
  t->watching = true;
  t->watched_since_us = now;
  vmp_backing_reset_least_idle(pool->backing);
}

// give_back gives back what is due and has not been used since. MAY UNLOCK.
static void give_back(vmp_pool *pool) {
  vmp_triggers *t = &pool->triggers;
  uint64_t above = pool->config.release_above, least = vmp_backing_least_idle(pool->backing);
  uint64_t bytes = least > above ? least - above : 0, released = 0;
  vmp_backing_calls calls = {0};
  if (bytes > t->due_bytes) bytes = t->due_bytes;
  t->due_bytes = 0;
  if (bytes == 0) return;
  vmp_error before = *vmp_last_error();
  (void)vmp_backing_poll_some(pool->backing, VMP_TRIGGER_CHUNKS, &calls);
  vmp_status status = vmp_backing_give_back_idle(pool->backing, bytes, VMP_TRIGGER_CHUNKS, &released, &calls);
  vmp_restore_error(&before);
  // The rest waits for the next step; what can't go is for the next window.
  if (status == VMP_OK && released > 0) t->due_bytes = bytes - released;
  if (released == 0) return;
  t->released_bytes += released;
  vmp_log_simple(pool, VMP_LOG_TRIM, 0, vmp_limits_held(pool), released, 0);
  vmp_predict_forget(pool);
}

void vmp_triggers_run(vmp_pool *pool, bool gather) {
  if (pool->config.release_above != UINT64_MAX) {
    vmp_guard_lock(&pool->guard);
    note_due(pool);
    give_back(pool);
    vmp_guard_unlock(&pool->guard);
  }
  if (gather) (void)vmp_triggers_gather(pool, 0);
}
