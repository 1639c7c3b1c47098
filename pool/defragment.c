// defragment.c: gathering idle memory, so that a larger block can be had without a driver call. See vmpool.h.
//
//     size      [ largest block now ........ tried by halving ........ all idle memory ]
//     place     where a layer would put a block of that size: the fewest slots to map (vmp_route_look)
//     look      are there idle chunks for these slots, and within the calls that are left? (vmp_backing_look_gather)
//     gather    map them there (vmp_backing_gather); the layers learn of it as of any change of mapping
//
// Owns: which size is tried, the limits, the report. Does not own: which chunks are moved (vmm/backing_gather.c).
//
// Invariants
//   - No block is placed: the layers' free space and its fences are as before, and others may place blocks there at any
//     moment. Each gathered chunk keeps its own fence.
//   - A round that gathers nothing is the last one, so a second run finds what the first one's last round found.
#include <sched.h>
#include <string.h>
#include <time.h>

#include "pool/compact.h"
#include "pool/log.h"
#include "pool/pool.h"

// Rounds of one run. One is enough unless other threads place blocks where memory is being gathered.
#define MAX_ROUNDS 8

typedef struct run {
  vmp_pool *pool;
  vmp_defragment_options options;
  uint64_t granule;
  uint64_t deadline_us;  // of CLOCK_MONOTONIC; UINT64_MAX: none
  uint64_t limit_calls;  // UINT64_MAX: none
  bool beyond_calls;     // something would help, but for the limit of calls
  uint64_t released_bytes;
  vmp_gather_report done;
  vmp_compact compact;
} run;

// target: what is to be gathered.
typedef struct target {
  uint64_t offset, bytes;
  vmp_gather_cost cost;
} target;

static uint64_t sum_of(const vmp_backing_calls *calls) {
  return calls->map + calls->set_access + calls->unmap + calls->release;
}

static uint64_t calls_left(const run *r) {
  uint64_t made = sum_of(&r->done.calls);
  return made < r->limit_calls ? r->limit_calls - made : 0;
}

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// breathe lets waiting threads have the lock.
static void breathe(vmp_pool *pool) {
  vmp_guard_unlock(&pool->guard);
  (void)sched_yield();
  vmp_guard_lock(&pool->guard);
}

// ---- what to gather ----

// can_gather says whether idle chunks can make a place of `bytes` wholly mapped, within the calls that are left.
static bool can_gather(run *r, uint64_t bytes, target *out) {
  target t = {.bytes = bytes};
  vmp_cost place;
  if (!vmp_route_look(r->pool, bytes, &t.offset, &place) || place.slots_to_map == 0) return false;
  vmp_backing_look_gather(r->pool->backing, t.offset, bytes, &t.cost);
  if (!t.cost.possible) return false;
  if (sum_of(&t.cost.calls) > calls_left(r)) {
    r->beyond_calls = true;
    return false;
  }
  *out = t;
  return true;
}

// choose finds the largest size, up to what is wanted, that can be had by gathering and can't be had now. Sizes between
// the ends are tried by halving, in granules.
static bool choose(run *r, target *out) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(r->pool->backing, &stats);
  uint64_t have = vmp_stats_largest_free_mapped(r->pool);
  // A block may begin and end within slots that others use too.
  uint64_t most = vmp_align_down(stats.parked_bytes + stats.spare_bytes, r->granule) + 2 * r->granule;
  uint64_t want = r->options.want_bytes;
  r->beyond_calls = false;
  if (want != 0 && want <= most) {
    if (can_gather(r, want, out)) return true;
    most = vmp_align_down(want, r->granule);
  }
  uint64_t low = have / r->granule, high = most / r->granule + 1;  // low is there, high is not to be had
  bool found = false;
  for (uint64_t middle = high - 1; low + 1 < high; middle = low + (high - low) / 2) {  // all of it first
    if (can_gather(r, middle * r->granule, out)) {
      found = true;
      low = middle;
    } else {
      high = middle;
    }
    breathe(r->pool);
  }
  return found;
}

static bool is_reached(const run *r) {
  uint64_t offset;
  vmp_cost cost;
  return r->options.want_bytes != 0 && vmp_route_look(r->pool, r->options.want_bytes, &offset, &cost) &&
         cost.slots_to_map == 0;
}

// ---- the run ----

static uint64_t limit_bytes(const vmp_pool *pool) {
  return pool->config.hard_limit < pool->config.soft_limit ? pool->config.hard_limit : pool->config.soft_limit;
}

// give_back returns what is beyond the limits to the device. MAY UNLOCK.
static vmp_status give_back(run *r) {
  vmp_pool *pool = r->pool;
  if (vmp_limits_held(pool) <= limit_bytes(pool)) return VMP_OK;
  vmp_status status =
      vmp_backing_give_back(pool->backing, limit_bytes(pool), calls_left(r) / 2, &r->released_bytes, &r->done.calls);
  if (pool->over_limit) vmp_limits_look(pool);
  return status;
}

// stop_after says what a gathering that didn't finish means.
static vmp_defragment_stop stop_after(vmp_status status) {
  switch (status) {
    case VMP_ERROR_BUSY:
    case VMP_ERROR_FRAGMENTED:
    case VMP_ERROR_OUT_OF_MEMORY: return VMP_DEFRAGMENT_CHANGED;
    case VMP_ERROR_TIMEOUT: return VMP_DEFRAGMENT_TIME_LIMIT;
    default: return VMP_DEFRAGMENT_FAILED;
  }
}

// rounds gathers until nothing improves. MAY UNLOCK.
static vmp_status rounds(run *r, vmp_defragment_stop *out_stop) {
  vmp_pool *pool = r->pool;
  for (int round = 0; round < MAX_ROUNDS; round++) {
    target t;
    if (is_reached(r)) {
      *out_stop = VMP_DEFRAGMENT_REACHED;
      return VMP_OK;
    }
    if (!choose(r, &t)) {
      *out_stop = r->beyond_calls ? VMP_DEFRAGMENT_CALL_LIMIT : VMP_DEFRAGMENT_NO_GAIN;
      return VMP_OK;
    }
    uint64_t moved = r->done.chunks;
    vmp_status status = vmp_backing_gather(pool->backing, t.offset, t.bytes, r->deadline_us, &r->done);
    vmp_error error = *vmp_last_error();
    (void)vmp_backing_poll_some(pool->backing, calls_left(r), &r->done.calls);
    if (status == VMP_OK) continue;
    *out_stop = stop_after(status);
    if (*out_stop == VMP_DEFRAGMENT_FAILED) {
      vmp_restore_error(&error);
      return status;
    }
    if (*out_stop == VMP_DEFRAGMENT_TIME_LIMIT || r->done.chunks == moved) return VMP_OK;
  }
  *out_stop = VMP_DEFRAGMENT_CHANGED;
  return VMP_OK;
}

static vmp_status gather(run *r, vmp_defragment_stop *out_stop) {
  vmp_pool *pool = r->pool;
  if (pool->slab != NULL) vmp_slab_trim(pool->slab);
  (void)vmp_backing_poll_some(pool->backing, calls_left(r), &r->done.calls);
  *out_stop = VMP_DEFRAGMENT_FAILED;
  vmp_status status = give_back(r);
  return status == VMP_OK ? rounds(r, out_stop) : status;
}

// look reports what gather would do now. Changes nothing.
static void look(run *r, vmp_defragment_report *report) {
  vmp_pool *pool = r->pool;
  target t;
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  uint64_t held = vmp_limits_held(pool), idle = stats.parked_bytes + stats.spare_bytes;
  uint64_t excess = held > limit_bytes(pool) ? held - limit_bytes(pool) : 0;
  r->released_bytes = excess < idle ? excess : idle;
  report->stop = VMP_DEFRAGMENT_REACHED;
  if (is_reached(r)) return;
  bool found = choose(r, &t);
  if (found) {
    if (t.bytes > report->largest_free_mapped_after) report->largest_free_mapped_after = t.bytes;
    r->done = (vmp_gather_report){t.cost.chunks, t.cost.bytes, t.cost.calls};
  }
  if (found && t.bytes >= r->options.want_bytes && r->options.want_bytes != 0) return;
  report->stop = !found && r->beyond_calls ? VMP_DEFRAGMENT_CALL_LIMIT : VMP_DEFRAGMENT_NO_GAIN;
}

static const char *reason_of(vmp_defragment_stop stop) {
  switch (stop) {
    case VMP_DEFRAGMENT_REACHED: return "a block of the wanted size can be had without a driver call";
    case VMP_DEFRAGMENT_NO_GAIN: return "nothing makes the largest block that can be had without a driver call larger";
    case VMP_DEFRAGMENT_CALL_LIMIT: return "the driver calls that would help are more than were allowed";
    case VMP_DEFRAGMENT_TIME_LIMIT: return "the time that was allowed is over";
    case VMP_DEFRAGMENT_CHANGED: return "other threads used the memory meanwhile";
    case VMP_DEFRAGMENT_FAILED: break;
  }
  return "a call failed";
}

static void fill_report(const run *r, vmp_defragment_report *report) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(r->pool->backing, &stats);
  report->moved_bytes = r->done.bytes;
  report->moved_chunks = r->done.chunks;
  report->released_bytes = r->released_bytes;
  report->retiring = stats.retiring_bytes;
  report->map_calls = r->done.calls.map;
  report->set_access_calls = r->done.calls.set_access;
  report->unmap_calls = r->done.calls.unmap;
  report->release_calls = r->done.calls.release;
  report->reason = reason_of((vmp_defragment_stop)report->stop);
  report->mapped_after = stats.mapped_bytes;
}

// ---- copying ----

// may_copy says whether the caller has promised that nobody touches the memory.
static vmp_status may_copy(const run *r) {
  const vmp_pool *pool = r->pool;
  if ((r->options.allow_copy & ~(VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH)) != 0) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "allow_copy is 0x%x; use VMP_DEFRAGMENT_SPLIT and VMP_DEFRAGMENT_MESH",
                    r->options.allow_copy);
  }
  if (r->options.allow_copy == 0 || r->options.dry_run != 0) return VMP_OK;
  if (pool->quiescent > 0 || pool->config.single_submitter) return VMP_OK;
  return vmp_fail(
      VMP_ERROR_INVALID_VALUE,
      "allow_copy needs a promise that nobody touches the pool's memory; call vmp_quiescent_begin, or create "
      "the pool with single_submitter");
}

// enter_compaction keeps further reallocations out, and waits for those that may be copying. MAY UNLOCK.
static vmp_status enter_compaction(const run *r) {
  vmp_pool *pool = r->pool;
  if (r->options.dry_run != 0) return VMP_OK;
  if (pool->reallocating > 0 && vmp_ladder_is_asking()) {
    return vmp_fail(VMP_ERROR_BUSY, "a block is being reallocated, maybe by the call that ran out of memory");
  }
  pool->compacting = true;
  while (pool->reallocating > 0) vmp_guard_wait(&pool->guard);
  return may_copy(r);
}

void vmp_compacting_wait(vmp_pool *pool) {
  while (pool->compacting && !(pool->reallocating > 0 && vmp_ladder_is_asking())) vmp_guard_wait(&pool->guard);
}

// compact splits and meshes. MAY UNLOCK.
static vmp_status compact(run *r, vmp_defragment_report *report) {
  vmp_pool *pool = r->pool;
  vmp_compact *c = &r->compact;
  if (r->options.allow_copy == 0) return VMP_OK;
  *c = (vmp_compact){.allow = r->options.allow_copy,
                     .dry = r->options.dry_run != 0,
                     .deadline_us = r->deadline_us,
                     .max_calls = r->limit_calls,
                     .max_copy_bytes = r->options.max_copied_bytes == 0 ? UINT64_MAX : r->options.max_copied_bytes};
  vmp_status status = enter_compaction(r);
  if (status == VMP_OK) status = vmp_compact_run(pool, c);
  pool->compacting = false;
  vmp_guard_wake_all(&pool->guard);
  const vmp_backing_calls *made = &c->done.calls;
  r->done.calls.map += made->map;
  r->done.calls.set_access += made->set_access;
  r->done.calls.unmap += made->unmap;
  r->done.calls.release += made->release;
  r->released_bytes += c->released_bytes;
  report->copied_bytes = c->done.copied_bytes;
  report->split_chunks = c->split_chunks;
  report->meshed_chunks = c->meshed_chunks;
  report->left_pinned = c->pinned_bytes;
  report->left_other = c->other_bytes;
  return status;
}

vmp_status vmp_quiescent_begin(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  bool full = pool->quiescent == UINT32_MAX;
  if (!full) pool->quiescent++;
  vmp_guard_unlock(&pool->guard);
  return full ? vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_quiescent_begin is nested too deeply") : VMP_OK;
}

vmp_status vmp_quiescent_end(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  bool begun = pool->quiescent > 0;
  if (begun) pool->quiescent--;
  if (begun && pool->quiescent == 0) vmp_compacting_wait(pool);
  vmp_guard_unlock(&pool->guard);
  return begun ? VMP_OK : vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_quiescent_end without vmp_quiescent_begin");
}

static vmp_status defragment_locked(run *r, vmp_defragment_report *report) {
  vmp_pool *pool = r->pool;
  vmp_defragment_stop stop = VMP_DEFRAGMENT_NO_GAIN;
  vmp_status status = VMP_OK;
  if (pool->defragmenting) return vmp_fail(VMP_ERROR_BUSY, "another thread is defragmenting this pool");
  status = may_copy(r);
  if (status != VMP_OK) return status;
  pool->defragmenting = true;
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  report->mapped_before = stats.mapped_bytes;
  report->largest_free_mapped_before = report->largest_free_mapped_after = vmp_stats_largest_free_mapped(pool);
  status = compact(r, report);
  if (status != VMP_OK) {
    report->stop = (int)VMP_DEFRAGMENT_FAILED;
    report->largest_free_mapped_after = vmp_stats_largest_free_mapped(pool);
  } else if (r->options.dry_run != 0) {
    look(r, report);
  } else {
    status = gather(r, &stop);
    report->stop = (int)stop;
    report->largest_free_mapped_after = vmp_stats_largest_free_mapped(pool);
  }
  fill_report(r, report);
  pool->defragmenting = false;
  return status;
}

vmp_status vmp_pool_defragment(vmp_pool *pool, const vmp_defragment_options *options,
                               vmp_defragment_report *out_report) {
  run r = {.pool = pool, .deadline_us = UINT64_MAX, .limit_calls = UINT64_MAX};
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (options != NULL && options->struct_size < sizeof *options) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_defragment_options is not initialised; use VMP_DEFRAGMENT_OPTIONS_INIT");
  }
  if (out_report != NULL && out_report->struct_size < sizeof *out_report) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_defragment_report is not initialised; use VMP_DEFRAGMENT_REPORT_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (options != NULL) r.options = *options;
  r.granule = pool->device.granule_bytes;
  if (r.options.max_driver_calls != 0) r.limit_calls = r.options.max_driver_calls;
  if (r.options.max_us != 0 && !vmp_add(now_us(), r.options.max_us, &r.deadline_us)) r.deadline_us = UINT64_MAX;
  vmp_guard_lock(&pool->guard);
  bool logged = r.options.dry_run == 0;
  if (logged) vmp_log_simple(pool, VMP_LOG_DEFRAGMENT, VMP_LOG_BEGIN, r.options.want_bytes, 0, 0);
  vmp_status status = defragment_locked(&r, &report);
  if (logged) {
    vmp_log_simple(pool, VMP_LOG_DEFRAGMENT, 0, report.moved_bytes, report.released_bytes,
                   report.largest_free_mapped_after);
  }
  vmp_guard_unlock(&pool->guard);
  if (out_report == NULL || (status == VMP_ERROR_BUSY && report.reason == NULL)) return status;
  report.struct_size = out_report->struct_size;
  *out_report = report;
  return status;
}
