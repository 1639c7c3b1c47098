// oom.c: why a request can't be had: one sentence with the numbers and the one true reason. See pool.h.
//
// Owns: the wording, the choice of the reason, the estimate of what can be had instead. Allocates nothing.
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pool/option_text.h"
#include "pool/pool.h"

// text: a sentence that grows and is cut at its end.
typedef struct text {
  char buffer[sizeof((vmp_error *)NULL)->message];
  size_t used;
} text;

static void add(text *t, const char *format, ...) VMP_PRINTF(2, 3);
static void add(text *t, const char *format, ...) {
  if (t->used >= sizeof t->buffer) return;
  va_list args;
  va_start(args, format);
  t->used += (size_t)vsnprintf(t->buffer + t->used, sizeof t->buffer - t->used, format, args);
  va_end(args);
}

static void add_size(text *t, const char *before, uint64_t bytes) {
  char size[32];
  (void)vmp_print_size(bytes, size, sizeof size);
  add(t, "%s%s", before, size);
}

// add_request says what was asked for, always with the plain number too.
static void add_request(text *t, const vmp_plan *plan) {
  char size[32];
  (void)vmp_print_size(plan->requested_bytes, size, sizeof size);
  add(t, "%" PRIu64 " bytes", plan->requested_bytes);
  if (plan->requested_bytes % 1024 == 0) add(t, " (%s)", size);
  if (plan->request.alignment > VMP_STEP_BYTES) add_size(t, " aligned to ", plan->request.alignment);
}

static void keep_refusal(vmp_pool *pool, const vmp_plan *plan, vmp_status status, const text *t);

static vmp_status refuse_for_device(vmp_pool *pool, const vmp_plan *plan) {
  text t = {.used = 0};
  add_request(&t, plan);
  add_size(&t, " can never be had: the device has ", pool->device.total_bytes);
  add(&t, " in all");
  keep_refusal(pool, plan, VMP_ERROR_OUT_OF_MEMORY, &t);
  return vmp_fail(VMP_ERROR_OUT_OF_MEMORY, "%s", t.buffer);
}

static vmp_status refuse_for_limit(vmp_pool *pool, const vmp_plan *plan) {
  text t = {.used = 0};
  add_request(&t, plan);
  add_size(&t, " are beyond the pool's hard limit of ", pool->config.hard_limit);
  add(&t, "; raise hard_limit");
  keep_refusal(pool, plan, VMP_ERROR_LIMIT, &t);
  return vmp_fail(VMP_ERROR_LIMIT, "%s", t.buffer);
}

// On the way of every allocation: the texts are made elsewhere.
vmp_status vmp_oom_refuse(vmp_pool *pool, const vmp_plan *plan) {
  if (plan->request.bytes > pool->device.total_bytes) return refuse_for_device(pool, plan);
  uint64_t least;  // physical memory comes in granules
  if (!vmp_align_up(plan->request.bytes, pool->device.granule_bytes, &least) || least > pool->config.hard_limit) {
    return refuse_for_limit(pool, plan);
  }
  return VMP_OK;
}

typedef struct pending_by_stream {
  vmp_pool *pool;
  uint64_t bytes[64];
} pending_by_stream;

static void see_mapping(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                        uint64_t live, vmp_fence fence) {
  pending_by_stream *pending = context;
  (void)offset;
  (void)state;
  (void)chunk_id;
  if (live > 0 || vmp_clock_known_complete(pending->pool->clock, fence)) return;
  for (uint64_t rest = fence.streams; rest != 0; rest &= rest - 1) pending->bytes[vmp_lowest_bit(rest)] += bytes;
}

// What the pool could use for one more block.
typedef struct room {
  vmp_pool *pool;
  vmp_backing_stats backing;
  uint64_t pending_bytes;
  uint64_t held_bytes, device_free_bytes;
  uint64_t fresh_bytes;    // whole granules that can be put behind one another at fresh addresses
  uint64_t largest_bytes;  // a block that can be had now, waits of the stream included; at most a little too low
  bool limit_binds;        // the hard limit, not the device, ends the growth
} room;

// see_free looks whether a block could begin or end in the unused part of a chunk that live blocks pin, and go on in
// fresh granules.
static void see_free(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  room *r = context;
  const vmp_backing_ops *ops = &r->pool->ops;
  (void)fence;
  if (strcmp(what, "free") != 0) return;
  uint64_t pinned_bytes = 0, end = offset + bytes;
  for (uint64_t at = offset, run_end = end; at < end; at = run_end) {
    run_end = end;
    vmp_run_state state = ops->run(ops->self, at, end, &run_end);
    if (state == VMP_RUN_BLOCKED) return;
    bool pinned = state == VMP_RUN_MAPPED && ops->cost(ops->self, at, run_end - at, 0).chunks_pinned == 0;
    if (pinned && run_end - at > pinned_bytes) pinned_bytes = run_end - at;
  }
  uint64_t possible = pinned_bytes + r->fresh_bytes < bytes ? pinned_bytes + r->fresh_bytes : bytes;
  if (pinned_bytes > 0 && possible > r->largest_bytes) r->largest_bytes = possible;
}

static void measure(vmp_pool *pool, uint64_t device_free_bytes, room *out) {
  *out = (room){.pool = pool, .device_free_bytes = device_free_bytes};
  vmp_backing_get_stats(pool->backing, &out->backing);
  out->pending_bytes = vmp_backing_pending_bytes(pool->backing);
  out->held_bytes = vmp_limits_held(pool);
  uint64_t limit = pool->config.hard_limit;
  uint64_t can_create = limit > out->held_bytes ? limit - out->held_bytes : 0;
  out->limit_binds = can_create <= device_free_bytes;
  if (can_create > device_free_bytes) can_create = device_free_bytes;
  if (pool->config.strategy == VMP_STRATEGY_STATIC) can_create = 0;
  uint64_t usable = out->backing.parked_bytes + out->backing.spare_bytes;
  if (pool->config.cross_stream == VMP_CROSS_STREAM_COMPLETE) usable -= out->pending_bytes;
  out->fresh_bytes = vmp_align_down(usable + can_create, pool->device.granule_bytes);
  uint64_t in_place = vmp_stats_largest_free_mapped(pool);
  out->largest_bytes = out->fresh_bytes > in_place ? out->fresh_bytes : in_place;
  vmp_mid_walk(pool->mid, see_free, out);
}

uint64_t vmp_oom_largest(vmp_pool *pool, uint64_t device_free_bytes) {
  room r;
  measure(pool, device_free_bytes, &r);
  return r.largest_bytes;
}

// status_of: which kind of shortage it is. What the last attempt said may be about a detour of its own.
static vmp_status status_of(const room *r, vmp_status status) {
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE || status == VMP_ERROR_FRAGMENTED) return status;
  if (status == VMP_ERROR_CAPTURE) return status;
  if (r->pool->config.strategy == VMP_STRATEGY_STATIC) return VMP_ERROR_OUT_OF_MEMORY;
  return r->limit_binds ? VMP_ERROR_LIMIT : VMP_ERROR_OUT_OF_MEMORY;
}

// add_reason states the one true reason.
static void add_reason(text *t, const vmp_plan *plan, const room *r, vmp_status status, bool waited) {
  const vmp_pool *pool = r->pool;
  uint64_t total = pool->device.total_bytes, ours = r->held_bytes + r->device_free_bytes;
  uint64_t others = total > ours ? total - ours : 0;
  if (status == VMP_ERROR_CAPTURE) {
    add(t, "the stream captures, so only memory that is complete, new or freed in the capture will do");
  } else if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) {
    add_size(t, "address space ran out: ", r->backing.reserved_bytes);
    add(t, " are reserved and the driver gave no more");
  } else if (waited && r->pending_bytes > 0) {
    add(t, "GPU work that still uses freed memory had not finished after %" PRIu64 " us", pool->config.wait);
  } else if (status == VMP_ERROR_FRAGMENTED) {
    add(t, "free memory lies in chunks that live blocks pin");
  } else if (pool->config.strategy == VMP_STRATEGY_STATIC) {
    add_size(t, "a static pool maps nothing after creation; it holds ", r->held_bytes);
  } else if (status == VMP_ERROR_LIMIT) {
    add_size(t, "the pool's hard limit is ", pool->config.hard_limit);
  } else if (r->fresh_bytes + others >= plan->request.bytes && others > 0) {
    add_size(t, "others hold ", others);
    add_size(t, " of the device's ", total);
  } else {
    add(t, "the device is full");
  }
}

static void add_numbers(text *t, const room *r, const pending_by_stream *pending) {
  const vmp_pool *pool = r->pool;
  add_size(t, "; device free ", r->device_free_bytes);
  add_size(t, " of ", pool->device.total_bytes);
  add_size(t, "; live ", vmp_pool_live_bytes(pool));
  if (pool->regions.count > 0) {
    add_size(t, " (", pool->regions.live_bytes);
    add(t, " in %" PRIu64 " regions)", pool->regions.count);
  }
  add_size(t, ", parked ", r->backing.parked_bytes);
  add_size(t, ", spare ", r->backing.spare_bytes);
  add_size(t, ", pending ", r->pending_bytes);
  const char *before = " (stream ";
  for (unsigned i = 0; i < 64; i++) {
    if (pending->bytes[i] == 0) continue;
    add(t, "%s#%u: ", before, i);
    add_size(t, "", pending->bytes[i]);
    before = ", stream ";
  }
  if (before[0] == ',') add(t, ")");
}

static void keep_failure(vmp_pool *pool, const vmp_plan *plan, vmp_status status, const room *r, const text *t) {
  vmp_failure *failure = &pool->failure;
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  *failure = (vmp_failure){.status = status,
                           .requested_bytes = plan->requested_bytes,
                           .alignment = plan->request.alignment,
                           .layer = plan->layer,
                           .stream = plan->request.stream,
                           .largest_bytes = r->largest_bytes,
                           .device_free_bytes = r->device_free_bytes,
                           .monotonic_us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000};
  memcpy(failure->message, t->buffer, sizeof failure->message);
}

// keep_refusal: what else could be had is worked out only where somebody will look at it. No driver call.
static void keep_refusal(vmp_pool *pool, const vmp_plan *plan, vmp_status status, const text *t) {
  if (pool->watch == NULL) return;
  room r;
  measure(pool, atomic_load(&pool->last_device_free_bytes), &r);
  keep_failure(pool, plan, status, &r, t);
}

vmp_status vmp_oom_fail(vmp_pool *pool, const vmp_plan *plan, vmp_status status, bool waited) {
  vmp_guard_unlock(&pool->guard);
  uint64_t device_free_bytes = vmp_stats_device_free(pool);
  vmp_guard_lock(&pool->guard);
  room r;
  pending_by_stream pending = {.pool = pool};
  measure(pool, device_free_bytes, &r);
  vmp_backing_walk_mappings(pool->backing, see_mapping, &pending);
  status = status_of(&r, status);

  text t = {.used = 0};
  add_request(&t, plan);
  add(&t, " can't be had: ");
  add_reason(&t, plan, &r, status, waited);
  add_size(&t, "; largest block possible now ", r.largest_bytes);
  add_numbers(&t, &r, &pending);
  keep_failure(pool, plan, status, &r, &t);
  return vmp_fail(status, "%s", t.buffer);
}
