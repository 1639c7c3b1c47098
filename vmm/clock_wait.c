// clock_wait.c: who waits: a stream behind others, on the GPU; the host, as the last step; and the end of a stream.
//
// The mutex is held around records, queries and the queueing of waits (they don't block), never around a synchronise.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "vmm/clock_internal.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"

#define POLL_FIRST_NS 20000L
#define POLL_LONGEST_NS 2000000L

// synchronize_context waits for everything in the device's context: for streams that have no handle of their own.
static vmp_status synchronize_context(vmp_clock *clock) {
  vmp_context_saved saved;
  if (!clock_may_synchronize(clock)) return clock_fail_capture();
  uint64_t sequence = atomic_load(&clock->sequence);
  vmp_status status = vmp_context_enter(clock->driver, clock->context, &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_ctx_synchronize(clock->driver);
  (void)vmp_context_leave(clock->driver, &saved);
  atomic_fetch_add(&clock->host_waits, 1);
  if (code != 0 && !clock_context_is_gone(code)) {
    return vmp_driver_fail(clock->driver, VMP_CALL_ctx_synchronize, code, "the device's work can't be waited for");
  }
  (void)pthread_mutex_lock(&clock->mutex);
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    clock_entry *entry = &clock->entries[i];
    if (!entry->used || (entry->context != NULL && entry->context != clock->context)) continue;
    if ((uintptr_t)entry->handle > 2 && entry->context == NULL) continue;  // may be of another context
    clock_reached(entry, sequence);
    uint32_t lane = entry->lane;
    clock_drop_if_finished(clock, entry);
    clock_refresh_lane(clock, lane);
  }
  clock_lane *overflow = &clock->lanes[CLOCK_OVERFLOW_LANE];
  if (sequence > atomic_load(&overflow->completed)) atomic_store(&overflow->completed, sequence);
  (void)pthread_mutex_unlock(&clock->mutex);
  return VMP_OK;
}

// order_behind_entry queues the wait for one stream. *out_sequence: what `stream` is ordered behind afterwards.
// *out_host: the wait can't be queued from here, the host must wait.
static vmp_status order_behind_entry(vmp_clock *clock, vmp_cu_stream stream, clock_entry *entry, uint64_t need,
                                     uint64_t *out_sequence, bool *out_host) {
  vmp_status status = clock_settle(clock, entry, need);
  if (status != VMP_OK) return status;
  *out_sequence = entry->completed;
  if (entry->completed >= need) return VMP_OK;
  const clock_mark *mark = clock_mark_at_or_after(entry, need);
  if (mark == NULL) {
    if (!entry->renamed) *out_host = true;  // else the context is synchronised for it anyway
    return VMP_OK;
  }
  int code = vmp_drv_stream_wait_event(clock->driver, stream, mark->event, 0);
  if (code != 0) {
    return vmp_driver_fail(clock->driver, VMP_CALL_stream_wait_event, code,
                           "the stream can't be ordered behind another");
  }
  *out_sequence = mark->sequence;
  atomic_fetch_add(&clock->stream_waits, 1);
  atomic_fetch_add(&clock->unfinished_waits, 1);
  return VMP_OK;
}

static vmp_status order_behind_lane(vmp_clock *clock, vmp_cu_stream stream, vmp_stream_index self, uint32_t lane,
                                    uint64_t sequence, bool *out_host) {
  if (lane == CLOCK_OVERFLOW_LANE) {
    *out_host = true;
    return VMP_OK;
  }
  uint64_t need = clock_need(clock, lane, sequence);
  uint64_t ordered = UINT64_MAX;
  for (clock_entry *entry = clock_first(clock, lane), *after; entry != NULL; entry = after) {
    after = clock_after(clock, entry);
    if (clock_is_same_stream(entry, stream)) continue;
    uint64_t upto = need;
    if (entry->completed < need) {
      vmp_status status = order_behind_entry(clock, stream, entry, need, &upto, out_host);
      if (status != VMP_OK) return status;
    }
    if (upto < ordered) ordered = upto;
    clock_drop_if_finished(clock, entry);
  }
  clock_refresh_lane(clock, lane);
  bool alone = clock_is_sole(clock, self);
  if (alone && !*out_host && ordered != UINT64_MAX && ordered > atomic_load(&clock->ordered[self][lane])) {
    atomic_store(&clock->ordered[self][lane], ordered);
  }
  return VMP_OK;
}

vmp_status vmp_clock_order(vmp_clock *clock, vmp_cu_stream stream, vmp_fence fence) {
  vmp_context_saved saved;
  vmp_stream_index self = vmp_clock_stream(clock, stream);
  vmp_fence left = vmp_clock_others(clock, fence, self);
  if (vmp_fence_is_none(left)) return VMP_OK;
  vmp_clock_demand(clock);
  bool host = false;
  (void)pthread_mutex_lock(&clock->mutex);
  // A stream wait needs a current context; the waiting stream's own is as good as any other.
  vmp_status status = vmp_context_enter(clock->driver, clock->context, &saved);
  if (status == VMP_OK && clock_is_capturing(clock, stream, false)) {
    status =
        vmp_fail(VMP_ERROR_CAPTURE, "a capturing stream can't be ordered behind other work; call vmp_capture_begin");
    (void)vmp_context_leave(clock->driver, &saved);
  } else if (status == VMP_OK) {
    for (uint64_t streams = left.streams; streams != 0 && status == VMP_OK; streams &= streams - 1) {
      status = order_behind_lane(clock, stream, self, (uint32_t)__builtin_ctzll(streams), left.sequence, &host);
    }
    (void)vmp_context_leave(clock->driver, &saved);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  if (status == VMP_OK) status = clock_settle_renamed(clock);
  if (status == VMP_OK && host) status = synchronize_context(clock);
  return status;
}

// pick_outstanding finds a mark that the fence still waits for, and pins its stream. *out_unmarked: some of its work
// has no mark that this thread could wait for.
static clock_entry *pick_outstanding(vmp_clock *clock, vmp_fence fence, vmp_cu_event *out_event, bool *out_unmarked) {
  for (uint64_t streams = fence.streams; streams != 0; streams &= streams - 1) {
    uint32_t lane = (uint32_t)__builtin_ctzll(streams);
    if (clock_lane_complete(clock, lane, fence.sequence)) continue;
    if (lane == CLOCK_OVERFLOW_LANE) *out_unmarked = true;
    uint64_t need = clock_need(clock, lane, fence.sequence);
    for (clock_entry *entry = clock_first(clock, lane); entry != NULL; entry = clock_after(clock, entry)) {
      if (entry->completed >= need) continue;
      const clock_mark *mark = clock_mark_at_or_after(entry, need);
      if (mark == NULL) {
        *out_unmarked = true;
        continue;
      }
      entry->pins++;
      *out_event = mark->event;
      return entry;
    }
  }
  return NULL;
}

// synchronize_one blocks until one outstanding mark of the fence is complete (or the whole context is).
static vmp_status synchronize_one(vmp_clock *clock, vmp_fence fence) {
  vmp_context_saved saved;
  vmp_cu_event event = NULL;
  bool unmarked = false;
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = pick_outstanding(clock, fence, &event, &unmarked);
  vmp_cu_context context = entry != NULL ? entry->context : NULL;
  (void)pthread_mutex_unlock(&clock->mutex);
  if (entry == NULL) return unmarked ? synchronize_context(clock) : VMP_OK;
  vmp_status status = vmp_context_enter(clock->driver, context, &saved);
  int code = 0;
  if (status == VMP_OK) {
    code = vmp_drv_event_synchronize(clock->driver, event);
    (void)vmp_context_leave(clock->driver, &saved);
  }
  atomic_fetch_add(&clock->host_waits, 1);
  (void)pthread_mutex_lock(&clock->mutex);
  entry->pins--;
  (void)pthread_mutex_unlock(&clock->mutex);
  if (code != 0 && !clock_context_is_gone(code)) {
    status = vmp_driver_fail(clock->driver, VMP_CALL_event_synchronize, code, "queued work can't be waited for");
  }
  return status;
}

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

static vmp_status wait_by_polling(vmp_clock *clock, vmp_fence fence, uint64_t timeout_us) {
  uint64_t start_us = now_us();
  long pause_ns = POLL_FIRST_NS;
  atomic_fetch_add(&clock->host_waits, 1);
  for (;;) {
    vmp_status status = vmp_clock_poll(clock, fence);
    if (status != VMP_OK) return status;
    if (vmp_clock_known_complete(clock, fence)) return VMP_OK;
    if (now_us() - start_us >= timeout_us) {
      return vmp_fail(VMP_ERROR_TIMEOUT, "GPU work did not finish within %llu us", (unsigned long long)timeout_us);
    }
    struct timespec pause = {0, pause_ns};
    (void)nanosleep(&pause, NULL);
    if (pause_ns < POLL_LONGEST_NS) pause_ns *= 2;
  }
}

vmp_status vmp_clock_wait(vmp_clock *clock, vmp_fence fence, uint64_t timeout_us) {
  vmp_status status = vmp_clock_poll(clock, fence);
  if (status != VMP_OK || vmp_clock_known_complete(clock, fence)) return status;
  if (timeout_us == 0) return vmp_fail(VMP_ERROR_TIMEOUT, "GPU work has not finished yet");
  // The driver has no wait with a time limit. On the host driver work runs because somebody synchronises, in bounded
  // time; on a GPU it runs by itself, and polling keeps the limit.
  bool synchronize = timeout_us == UINT64_MAX || strcmp(clock->driver->kind, "host") == 0;
  if (!synchronize) return wait_by_polling(clock, fence, timeout_us);
  while (!vmp_clock_known_complete(clock, fence)) {
    status = synchronize_one(clock, fence);
    if (status == VMP_OK) status = vmp_clock_poll(clock, fence);
    if (status != VMP_OK) return status;
  }
  return VMP_OK;
}

// retire_by_waiting is for a stream whose work can't be marked: the host waits for all of it.
static vmp_status retire_by_waiting(vmp_clock *clock, vmp_cu_stream stream) {
  vmp_context_saved saved;
  uint64_t sequence = atomic_load(&clock->sequence);
  vmp_status status = vmp_context_enter(clock->driver, clock->context, &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_stream_synchronize(clock->driver, stream);
  (void)vmp_context_leave(clock->driver, &saved);
  atomic_fetch_add(&clock->host_waits, 1);
  if (code != 0 && !clock_context_is_gone(code)) {
    return vmp_driver_fail(clock->driver, VMP_CALL_stream_synchronize, code, "the retired stream can't be waited for");
  }
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = clock_entry_of(clock, stream);
  if (entry != NULL) {
    uint32_t lane = entry->lane;
    entry->retired = true;
    clock_unpublish(clock, entry);
    clock_reached(entry, sequence);
    clock_drop_if_finished(clock, entry);
    clock_refresh_lane(clock, lane);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  return VMP_OK;
}

vmp_status vmp_clock_retire_stream(vmp_clock *clock, vmp_cu_stream stream) {
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = clock_entry_of(clock, stream);
  if (entry != NULL && entry->capture != CLOCK_FREE) {
    vmp_context_saved saved;
    bool captures = true;
    if (vmp_context_enter(clock->driver, clock->context, &saved) == VMP_OK) {
      captures = clock_captures_now(clock, entry);
      (void)vmp_context_leave(clock->driver, &saved);
    }
    if (captures) {
      (void)pthread_mutex_unlock(&clock->mutex);
      return vmp_fail(VMP_ERROR_CAPTURE, "the stream captures; end its capture before it is retired");
    }
  }
  if (entry == NULL) {  // never seen, or one of those that found the table full
    (void)pthread_mutex_unlock(&clock->mutex);
    vmp_fence overflow = {UINT64_C(1) << CLOCK_OVERFLOW_LANE, atomic_load(&clock->sequence)};
    return vmp_clock_known_complete(clock, overflow) ? VMP_OK : synchronize_context(clock);
  }
  uint64_t need = clock_need(clock, entry->lane, UINT64_MAX);
  vmp_status status = entry->completed >= need ? VMP_OK : clock_settle(clock, entry, need);
  if (status == VMP_OK && entry->renamed) {
    (void)pthread_mutex_unlock(&clock->mutex);
    status = clock_settle_renamed(clock);
    if (status != VMP_OK) return status;
    (void)pthread_mutex_lock(&clock->mutex);
    entry = clock_entry_of(clock, stream);
  }
  if (status == VMP_OK && entry != NULL) {
    clock_unpublish(clock, entry);
    entry->retired = true;
    uint32_t lane = entry->lane;
    clock_drop_if_finished(clock, entry);
    clock_refresh_lane(clock, lane);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  if (status == VMP_OK || status == VMP_ERROR_STICKY) return status;
  return retire_by_waiting(clock, stream);
}
