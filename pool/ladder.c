// ladder.c: what is tried before a request fails, in this order. See pool.h; design.md, section 7.
//
//     ready    mapped memory that the stream may use at once; among several streams the clock is asked what has
//              finished; then spare chunks and new ones under the limits             (backing's claim: MAPPED, READY)
//     NORMAL   memory behind a wait of the stream; spare chunks, new chunks, parked chunks that fit
//     caches   what this thread keeps goes back to slab; then what all threads keep
//     empties  slab's empty spans go back to mid
//     poll     memory whose work has finished meanwhile; addresses of retired slots
//     RESIZE   parked chunks of other sizes are given back and smaller ones made          (backing's claim)
//     space    another reservation, when addresses ran out
//     transit  driver calls that other threads are in: what comes of them may be what is missing
//     gather   idle memory is remapped, so that a block of that size can be had          (option; trigger.c)
//     others   idle memory of the driver's other pools on the device goes back (registry.c)
//     caller   the function that vmp_pool_set_oom_callback has set, as long as it says that it helps
//     wait     the host waits for unfinished work, bounded by the option `wait`
//     error    with the one true reason (oom.c)
//
// Rules: only failures that the next step may cure lead to it; a driver that fails for another reason, or a lost
// context, is reported as what it is. Nothing here loops without a bound.
//
// Memory of other streams: with cross_stream:complete a block whose old work is not known to have finished is held
// back while other places are tried; the last step waits for it.
#include <time.h>

#include "pool/pool.h"
#include "pool/registry.h"

#define MAX_HELD 8
#define MAX_WAITS 8      // host waits
#define MAX_TRANSITS 64  // waits for driver calls of other threads

typedef struct ladder {
  vmp_pool *pool;
  vmp_plan *plan;
  uint64_t deadline_us;  // of host waits, from the first one on; monotonic. 0: none yet
  bool waited;           // work was waited for and had not finished in time
  bool stuck;            // an attempt left broken slots
  bool last_round;
  bool gathered;  // idle memory has been gathered for it
  bool trimmed;   // other pools have been asked
  unsigned asked, waits;
} ladder;

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// ladder_helps: failures that another step may cure.
static bool ladder_helps(vmp_status status) {
  switch (status) {
    case VMP_ERROR_OUT_OF_MEMORY:
    case VMP_ERROR_LIMIT:
    case VMP_ERROR_FRAGMENTED:
    case VMP_ERROR_BUSY:
    case VMP_ERROR_OUT_OF_ADDRESS_SPACE: return true;
    default: return false;
  }
}

// host_wait waits for a fence without the lock, until the deadline. VMP_OK: it is complete.
static vmp_status host_wait(ladder *l, vmp_fence fence) {
  vmp_pool *pool = l->pool;
  uint64_t now = now_us();
  if (l->deadline_us == 0 && !vmp_add(now, pool->config.wait, &l->deadline_us)) l->deadline_us = UINT64_MAX;
  if (pool->config.wait == 0 || now >= l->deadline_us) {
    l->waited = true;
    return VMP_ERROR_TIMEOUT;
  }
  pool->host_waits++;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_wait(pool->clock, fence, l->deadline_us - now);
  vmp_guard_lock(&pool->guard);
  if (status == VMP_ERROR_TIMEOUT) l->waited = true;
  return status;
}

// usable_now says whether nobody but the stream itself can still touch the block.
static bool usable_now(ladder *l, const vmp_placed *placed) {
  vmp_pool *pool = l->pool;
  vmp_stream_index stream = l->plan->request.stream;
  if (vmp_fence_is_none(vmp_clock_others(pool->clock, placed->after, stream))) return true;
  vmp_guard_unlock(&pool->guard);
  (void)vmp_clock_poll(pool->clock, placed->after);
  vmp_guard_lock(&pool->guard);
  return vmp_fence_is_none(vmp_clock_others(pool->clock, placed->after, stream));
}

static void release_held(ladder *l, const vmp_placed *held, size_t count) {
  for (size_t i = 0; i < count; i++) {
    vmp_fence fence = vmp_fence_merge(held[i].after, held[i].fence);
    (void)vmp_route_release(l->pool, l->plan->layer, held[i].offset, fence);
    l->pool->unsettled_bytes[l->plan->layer] -= held[i].bytes;
  }
}

// place asks the layer once; what it gives counts as unsettled from here on.
static vmp_status place(ladder *l, vmp_placed *out_placed) {
  l->pool->placing++;
  vmp_status status = vmp_route_place(l->pool, l->plan, out_placed);
  l->pool->placing--;
  if (status == VMP_OK) l->pool->unsettled_bytes[l->plan->layer] += out_placed->bytes;
  return status;
}

// place_complete finds a block that needs no wait of the stream. Unsuitable ones are held until the search ends, so
// that the layer finds others; with `may_wait` the first of them is waited for.
static vmp_status place_complete(ladder *l, bool may_wait, vmp_placed *out_placed) {
  vmp_placed held[MAX_HELD];
  size_t count = 0;
  vmp_status status = VMP_OK;
  while (count < MAX_HELD) {
    status = place(l, out_placed);
    if (status != VMP_OK) break;
    if (usable_now(l, out_placed)) {
      release_held(l, held, count);
      return VMP_OK;
    }
    held[count++] = *out_placed;
  }
  if (count == 0) return status;
  if (may_wait) status = host_wait(l, held[0].after);
  if (may_wait && status == VMP_OK) {
    *out_placed = held[0];
    release_held(l, held + 1, count - 1);
    return VMP_OK;
  }
  release_held(l, held, count);
  if (status == VMP_OK || status == VMP_ERROR_TIMEOUT) status = VMP_ERROR_OUT_OF_MEMORY;
  return status;
}

static vmp_status try_place(ladder *l, vmp_effort effort, bool may_wait, vmp_placed *out_placed) {
  l->plan->request.effort = effort;
  if (l->pool->config.cross_stream == VMP_CROSS_STREAM_COMPLETE) return place_complete(l, may_wait, out_placed);
  return place(l, out_placed);
}

static uint64_t broken_bytes(const vmp_pool *pool) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  return stats.broken_bytes;
}

// one_round tries everything but waiting. A driver that can't even undo its calls is not asked again: each try
// would leave more broken slots behind.
static vmp_status one_round(ladder *l, vmp_placed *out_placed) {
  vmp_pool *pool = l->pool;
  const vmp_request *request = &l->plan->request;
  (void)vmp_debug_flush(pool);
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  vmp_domains_trim(pool);
  (void)vmp_backing_poll(pool->backing);
  uint64_t broken = broken_bytes(pool);
  vmp_status status = try_place(l, VMP_EFFORT_NORMAL, false, out_placed);
  if (status == VMP_OK || !ladder_helps(status)) return status;
  l->stuck = broken_bytes(pool) > broken;
  if (l->stuck) return status;
  status = try_place(l, VMP_EFFORT_RESIZE, false, out_placed);
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) {
    uint64_t bytes =
        l->plan->domain == NULL ? request->bytes : vmp_domain_addresses(pool, request->bytes, request->alignment);
    status = vmp_space_add(pool, bytes, request->alignment);
    if (status == VMP_OK) status = try_place(l, VMP_EFFORT_RESIZE, false, out_placed);
  }
  return status;
}

// poll_streams asks how far the streams have come, without the lock. True: further than was known.
static bool poll_streams(ladder *l) {
  vmp_pool *pool = l->pool;
  vmp_fence everything = {pool->seen_streams, UINT64_MAX};
  if (vmp_clock_known_complete(pool->clock, everything)) return false;
  uint64_t before = vmp_clock_progress(pool->clock);
  vmp_guard_unlock(&pool->guard);
  (void)vmp_clock_poll(pool->clock, everything);  // what it can't learn stays pending
  vmp_guard_lock(&pool->guard);
  return vmp_clock_progress(pool->clock) != before;
}

double vmp_ladder_idle_share(const vmp_pool *pool) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  uint64_t live = vmp_pool_live_bytes(pool) + pool->asides.bytes + vmp_captures_kept_bytes(&pool->captures);
  for (const vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    live -= domain->away_bytes;
  }
  return stats.mapped_bytes <= live ? 0 : (double)(stats.mapped_bytes - live) / (double)stats.mapped_bytes;
}

// take_ready finds memory that the stream may use at once: mapped and known to be free; the same once more after asking
// how far the streams have come; new memory, or, where enough is idle already, other parked memory that is complete.
static vmp_status take_ready(ladder *l, vmp_placed *out_placed) {
  vmp_request *request = &l->plan->request;
  request->wait = VMP_WAIT_NEVER;
  vmp_status status = try_place(l, VMP_EFFORT_MAPPED, false, out_placed);
  if (status == VMP_ERROR_BUSY) vmp_clock_demand(l->pool->clock);
  if (status == VMP_ERROR_BUSY && poll_streams(l)) status = try_place(l, VMP_EFFORT_MAPPED, false, out_placed);
  if (status == VMP_ERROR_BUSY) {
    vmp_backing_prefer_parked(l->pool->backing, vmp_ladder_idle_share(l->pool) > l->pool->config.wait_limit);
    status = try_place(l, VMP_EFFORT_READY, false, out_placed);
  }
  request->wait = VMP_WAIT_LAST;
  return status;
}

// may_help_more: it failed, and not for a reason that no other step cures.
static bool may_help_more(vmp_status status) { return status != VMP_OK && ladder_helps(status); }

// take_tightly is for a pool of which more than park_limit lies idle: the least memory counts. Waits of the stream
// don't, and what threads keep goes back before anything is mapped.
static vmp_status take_tightly(ladder *l, bool several, vmp_placed *out_placed) {
  vmp_pool *pool = l->pool;
  bool may_wait = pool->config.cross_stream == VMP_CROSS_STREAM_WAIT;
  l->plan->request.wait = several && may_wait ? VMP_WAIT_ANY : VMP_WAIT_LAST;
  vmp_status status = VMP_ERROR_BUSY;
  // With edges a mapped place isn't always the one that costs least: the layer knows.
  if (pool->config.edges == 0) {
    status = try_place(l, VMP_EFFORT_MAPPED, false, out_placed);
    if (may_help_more(status)) {
      vmp_caches_empty(pool);
      if (pool->slab != NULL) vmp_slab_trim(pool->slab);
    }
  }
  if (may_help_more(status)) {
    vmp_backing_prefer_parked(pool->backing, several);
    status = try_place(l, VMP_EFFORT_NORMAL, false, out_placed);
    vmp_backing_prefer_parked(pool->backing, false);
  }
  l->plan->request.wait = VMP_WAIT_LAST;
  return status;
}

// first_try is what nearly every request gets by on. Among several streams it depends on how much memory lies idle:
// up to wait_limit, new memory comes before a wait; beyond it, a wait before new memory; beyond park_limit waits don't
// count, only memory does.
static vmp_status first_try(ladder *l, vmp_placed *out_placed) {
  vmp_pool *pool = l->pool;
  bool several = (pool->seen_streams & (pool->seen_streams - 1)) != 0;
  if (pool->config.park_limit < 1 && vmp_ladder_idle_share(pool) > pool->config.park_limit) {
    return take_tightly(l, several, out_placed);
  }
  if (!several) return try_place(l, VMP_EFFORT_NORMAL, false, out_placed);
  vmp_status status = take_ready(l, out_placed);
  if (pool->config.cross_stream == VMP_CROSS_STREAM_WAIT && may_help_more(status)) {
    status = try_place(l, VMP_EFFORT_MAPPED, false, out_placed);
  }
  if (may_help_more(status)) status = try_place(l, VMP_EFFORT_NORMAL, false, out_placed);
  vmp_backing_prefer_parked(pool->backing, false);
  return status;
}

// gather_for gathers for the request, once. True: it can be had now.
static bool gather_for(ladder *l) {
  vmp_pool *pool = l->pool;
  const vmp_plan *plan = l->plan;
  if (!pool->config.defragment_oom || l->gathered) return false;
  if (plan->domain != NULL || plan->pages != NULL || plan->claim != NULL) return false;
  l->gathered = true;
  vmp_guard_unlock(&pool->guard);
  bool reached = vmp_triggers_gather(pool, plan->request.bytes);
  vmp_guard_lock(&pool->guard);
  return reached;
}

// trim_others lets the driver's other pools give back what they hold idle, once, where the device is what ran out.
static bool trim_others(ladder *l) {
  vmp_pool *pool = l->pool;
  uint64_t bytes;
  if (l->trimmed || !vmp_align_up(l->plan->request.bytes, pool->device.granule_bytes, &bytes)) return false;
  l->trimmed = true;
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  uint64_t in_use = stats.mapped_bytes - stats.parked_bytes, limit = pool->config.hard_limit;
  if (pool->config.strategy == VMP_STRATEGY_STATIC || in_use > limit || bytes > limit - in_use) return false;
  vmp_guard_unlock(&pool->guard);
  uint64_t released = vmp_registry_trim_others(pool, bytes);
  vmp_guard_lock(&pool->guard);
  return released > 0;
}

// Set while the thread is in a callback: what that allocates doesn't ask again.
static _Thread_local bool asking;

bool vmp_ladder_is_asking(void) { return asking; }

// ask_caller calls the caller's function, without the lock. True: try again.
static bool ask_caller(ladder *l) {
  vmp_pool *pool = l->pool;
  vmp_oom_fn fn = pool->oom_fn;
  void *user = pool->oom_user;
  if (fn == NULL || asking || l->asked >= VMP_OOM_MAX_ATTEMPTS) return false;
  vmp_guard_unlock(&pool->guard);
  asking = true;
  int again = fn(user, pool, l->plan->requested_bytes, l->asked++);
  asking = false;
  vmp_guard_lock(&pool->guard);
  if (again != 0) vmp_caches_empty(pool);  // what it has freed may be in one
  return again != 0;
}

vmp_status vmp_pool_set_oom_callback(vmp_pool *pool, vmp_oom_fn fn, void *user) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  pool->oom_fn = fn;
  pool->oom_user = user;
  vmp_guard_unlock(&pool->guard);
  return VMP_OK;
}

// wait_for_work waits for what unfinished work keeps from reuse. After a timeout one more round is made.
// VMP_ERROR_BUSY: there is nothing to wait for.
static vmp_status wait_for_work(ladder *l) {
  vmp_pool *pool = l->pool;
  vmp_fence pending = vmp_backing_pending(pool->backing);
  if (vmp_fence_is_none(pending)) return VMP_ERROR_BUSY;
  vmp_status status = host_wait(l, pending);
  l->last_round = status == VMP_ERROR_TIMEOUT || ++l->waits == MAX_WAITS;
  return status;
}

vmp_status vmp_ladder_take(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed) {
  ladder l = {.pool = pool, .plan = plan};
  if (plan->ticket != 0) return vmp_aside_take(pool, plan, out_placed);
  if (plan->graph != NULL) return vmp_capture_take(pool, plan, out_placed);
  vmp_status status = first_try(&l, out_placed);
  if (status == VMP_OK || !ladder_helps(status)) return status;
  if (vmp_caches_empty_own(pool)) {
    status = try_place(&l, VMP_EFFORT_NORMAL, false, out_placed);
    if (status == VMP_OK || !ladder_helps(status)) return status;
  }
  vmp_caches_empty(pool);
  for (int transits = 0;;) {
    do {
      status = one_round(&l, out_placed);
      if (status == VMP_OK || !ladder_helps(status)) return status;
    } while (!l.stuck && transits++ < MAX_TRANSITS && vmp_backing_wait_transit(pool->backing));
    if (l.stuck || l.last_round) break;
    if (gather_for(&l) || trim_others(&l) || ask_caller(&l)) continue;
    vmp_status wait_status = wait_for_work(&l);
    if (wait_status == VMP_ERROR_BUSY) break;
    if (wait_status != VMP_OK && wait_status != VMP_ERROR_TIMEOUT) return wait_status;
  }
  if (pool->config.cross_stream == VMP_CROSS_STREAM_COMPLETE) {
    vmp_status last = try_place(&l, VMP_EFFORT_RESIZE, true, out_placed);
    if (last == VMP_OK || !ladder_helps(last)) return last;
  }
  return vmp_oom_fail(pool, plan, status, l.waited);
}

vmp_status vmp_ladder_claim(vmp_pool *pool, vmp_domain *domain, vmp_layer layer, uint64_t requested_bytes,
                            vmp_stream_index stream, vmp_range_claim *claim) {
  vmp_plan plan = {.requested_bytes = requested_bytes,
                   .layer = layer,
                   .request = {.bytes = claim->bytes,
                               .alignment = VMP_STEP_BYTES,
                               .stream = stream,
                               .effort = VMP_EFFORT_NORMAL,
                               .wait = VMP_WAIT_LAST},
                   .domain = domain,
                   .claim = claim};
  vmp_placed placed;  // the addresses are the caller's already
  return vmp_ladder_take(pool, &plan, &placed);
}
