// clock_events.c: events, recorded only when somebody has to know or to wait; and the waits.
//
//     fence {lane 3, 120}      marks of the stream: [ 97 | 131 ]
//                                                          '- the oldest mark at or after 120 is the one to query
//     none there: record one now. It covers everything submitted up to now, so it may cover more than it must.
//
// While streams want each other's memory an event is recorded right behind each free (vmp_clock_mark_new). When a
// stream has CLOCK_MARKS of them outstanding, every second one of the older half goes: its fences then wait for the
// next.
//
// The mutex is held around records and queries (they don't block), never around a synchronise.
#include <errno.h>
#include <string.h>
#include <time.h>

#include "vmm/clock_internal.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"

#define POLL_FIRST_NS 20000L
#define POLL_LONGEST_NS 2000000L

// A context that is gone runs no work any more: its events say nothing, and nothing is outstanding.
static bool context_is_gone(int code) { return code == VMP_CU_DEINITIALIZED || code == VMP_CU_CONTEXT_IS_DESTROYED; }

static void resolve_context(vmp_clock *clock, clock_entry *entry) {
  if (entry->context != NULL) return;
  vmp_cu_context context = NULL;
  // The default streams belong to whatever context is current: ours, by definition.
  if ((uintptr_t)entry->handle > 2) {
    vmp_context_saved saved;  // the question itself needs some current context
    if (vmp_context_enter(clock->driver, clock->context, &saved) == VMP_OK) {
      if (vmp_drv_stream_get_ctx(clock->driver, entry->handle, &context) != 0) context = NULL;
      (void)vmp_context_leave(clock->driver, &saved);
    }
  }
  entry->context = context != NULL ? context : clock->context;
}

// reached notes that everything up to `sequence` has finished on the entry, and frees the marks that are passed.
static void reached(clock_entry *entry, uint64_t sequence) {
  if (sequence > entry->completed) entry->completed = sequence;
  uint32_t kept = 0;
  for (uint32_t i = 0; i < entry->num_marks; i++) {
    if (entry->marks[i].sequence <= sequence) {
      entry->free_events[entry->num_free++] = entry->marks[i].event;
    } else {
      entry->marks[kept++] = entry->marks[i];
    }
  }
  entry->num_marks = kept;
}

static const clock_mark *mark_at_or_after(const clock_entry *entry, uint64_t sequence) {
  for (uint32_t i = 0; i < entry->num_marks; i++) {
    if (entry->marks[i].sequence >= sequence) return &entry->marks[i];
  }
  return NULL;
}

// thin_out takes every second mark off the older half. Waits that are queued on its event keep the earlier record; what
// it stood for is covered by the mark behind it.
static void thin_out(clock_entry *entry) {
  uint32_t kept = 0;
  for (uint32_t i = 0; i < entry->num_marks; i++) {
    if (i < CLOCK_MARKS / 2 && i % 2 == 0) {
      entry->free_events[entry->num_free++] = entry->marks[i].event;
    } else {
      entry->marks[kept++] = entry->marks[i];
    }
  }
  entry->num_marks = kept;
}

static int take_event(vmp_clock *clock, clock_entry *entry, vmp_cu_event *out_event) {
  if (entry->num_free > 0) {
    *out_event = entry->free_events[--entry->num_free];
    return 0;
  }
  int code = vmp_drv_event_create(clock->driver, out_event, VMP_CU_EVENT_DISABLE_TIMING);
  if (code == 0) atomic_fetch_add(&clock->events_made, 1);
  return code;
}

// query asks, oldest mark first, how far the stream has come.
static vmp_status query(vmp_clock *clock, clock_entry *entry) {
  while (entry->num_marks > 0) {
    clock_mark mark = entry->marks[0];
    int code = vmp_drv_event_query(clock->driver, mark.event);
    if (code == VMP_CU_NOT_READY) return VMP_OK;
    if (code != 0 && !context_is_gone(code)) {
      return vmp_driver_fail(clock->driver, VMP_CALL_event_query, code, "the state of queued work is unknown");
    }
    reached(entry, mark.sequence);
  }
  return VMP_OK;
}

// record puts a mark behind everything submitted to the stream so far. The entry's context must be entered.
static vmp_status record(vmp_clock *clock, clock_entry *entry) {
  vmp_cu_event event;
  if (entry->num_marks == CLOCK_MARKS) {
    vmp_status status = query(clock, entry);
    if (status != VMP_OK) return status;
    if (entry->num_marks == CLOCK_MARKS) thin_out(entry);
  }
  int code = take_event(clock, entry, &event);
  if (code != 0)
    return vmp_driver_fail(clock->driver, VMP_CALL_event_create, code, "an event is needed to order streams");
  uint64_t sequence = atomic_load(&clock->sequence);  // before the record: the event covers at least this
  code = vmp_drv_event_record(clock->driver, event, entry->handle);
  if (code != 0) {
    entry->free_events[entry->num_free++] = event;
    if (context_is_gone(code)) {
      reached(entry, sequence);
      return VMP_OK;
    }
    return vmp_driver_fail(clock->driver, VMP_CALL_event_record, code, "the stream's work can't be marked");
  }
  entry->marks[entry->num_marks++] = (clock_mark){sequence, event};
  atomic_fetch_add(&clock->events_recorded, 1);
  return VMP_OK;
}

void clock_drop_entry(vmp_clock *clock, clock_entry *entry) {
  vmp_context_saved saved;
  clock_unpublish(clock, entry);
  // A context that can't be entered any more has taken its events with it.
  if (entry->num_marks + entry->num_free > 0 && vmp_context_enter(clock->driver, entry->context, &saved) == VMP_OK) {
    for (uint32_t i = 0; i < entry->num_marks; i++) (void)vmp_drv_event_destroy(clock->driver, entry->marks[i].event);
    for (uint32_t i = 0; i < entry->num_free; i++) (void)vmp_drv_event_destroy(clock->driver, entry->free_events[i]);
    (void)vmp_context_leave(clock->driver, &saved);
  }
  uint32_t lane = entry->lane, number = (uint32_t)(entry - clock->entries) + 1;
  uint32_t *link = &clock->first_entry[lane];
  while (*link != number) link = &clock->entries[*link - 1].next;
  *link = entry->next;
  memset(entry, 0, sizeof *entry);
  atomic_fetch_sub(&clock->lanes[lane].members, 1);
}

// id_of asks which stream a handle names now; some context must be current. 0: the driver doesn't tell.
static uint64_t id_of(vmp_clock *clock, vmp_cu_stream handle) {
  unsigned long long id = 0;
  return vmp_drv_stream_get_id(clock->driver, handle, &id) == 0 ? id : 0;
}

uint64_t clock_stream_id(vmp_clock *clock, vmp_cu_stream handle) {
  vmp_context_saved saved;
  if ((uintptr_t)handle <= 2 || vmp_context_enter(clock->driver, clock->context, &saved) != VMP_OK) return 0;
  uint64_t id = id_of(clock, handle);
  (void)vmp_context_leave(clock->driver, &saved);
  return id;
}

// may_record: the handle still names the stream, and this thread can record on it. A handle that names another stream
// by now is only noted: what the old stream still runs has no event, and the context as a whole must be waited for.
// Some context must be current.
static bool may_record(vmp_clock *clock, clock_entry *entry) {
  if (entry->retired || entry->renamed || !clock_entry_is_mine(entry)) return false;
  uint64_t id = entry->id == 0 ? 0 : id_of(clock, entry->handle);
  if (id == 0 || id == entry->id) return true;
  entry->renamed = true;
  entry->id = id;
  atomic_store(&clock->renaming, true);
  atomic_fetch_add(&clock->renamed_streams, 1);
  return false;
}

// settle looks how far one stream is, recording a mark when `need` has none. Under the mutex. A stream that this
// thread can't record on (another thread's default stream) stays as it is.
static vmp_status settle(vmp_clock *clock, clock_entry *entry, uint64_t need) {
  vmp_context_saved saved;
  resolve_context(clock, entry);
  vmp_status status = vmp_context_enter(clock->driver, entry->context, &saved);
  if (status != VMP_OK) return status;
  if (mark_at_or_after(entry, need) == NULL && may_record(clock, entry)) {
    // An idle stream needs no mark: everything submitted to it before the question has finished.
    uint64_t sequence = atomic_load(&clock->sequence);
    int code = vmp_drv_stream_query(clock->driver, entry->handle);
    if (code == 0 || context_is_gone(code)) {
      reached(entry, sequence);
    } else {
      status = record(clock, entry);
    }
  }
  if (status == VMP_OK) status = query(clock, entry);
  (void)vmp_context_leave(clock->driver, &saved);
  return status;
}

static void drop_finished_retired(vmp_clock *clock, clock_entry *entry) {
  if (entry->retired && entry->num_marks == 0 && entry->pins == 0 && !entry->renamed) clock_drop_entry(clock, entry);
}

// poll_lane brings what is known about one lane up to date. Under the mutex.
static vmp_status poll_lane(vmp_clock *clock, uint32_t lane, uint64_t sequence) {
  if (lane == CLOCK_OVERFLOW_LANE) return VMP_OK;
  uint64_t need = clock_need(clock, lane, sequence);
  vmp_status first = VMP_OK;
  for (clock_entry *entry = clock_first(clock, lane), *after; entry != NULL; entry = after) {
    after = clock_after(clock, entry);
    if (entry->completed >= need) continue;
    vmp_status status = settle(clock, entry, need);
    if (first == VMP_OK) first = status;
    drop_finished_retired(clock, entry);
  }
  clock_refresh_lane(clock, lane);
  return first;
}

// first_renamed finds a stream whose handle names another one, and the context that must be waited for.
static clock_entry *first_renamed(vmp_clock *clock) {
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    if (clock->entries[i].used && clock->entries[i].renamed) return &clock->entries[i];
  }
  return NULL;
}

// settle_renamed waits, once for each handle that names another stream by now, for all work of the old one: its context
// is synchronised. From then on the handle is the new stream's.
static vmp_status settle_renamed(vmp_clock *clock) {
  if (!atomic_exchange(&clock->renaming, false)) return VMP_OK;
  for (;;) {
    (void)pthread_mutex_lock(&clock->mutex);
    const clock_entry *renamed = first_renamed(clock);
    vmp_cu_context context = renamed == NULL || renamed->context == NULL ? clock->context : renamed->context;
    (void)pthread_mutex_unlock(&clock->mutex);
    if (renamed == NULL) return VMP_OK;
    uint64_t sequence = atomic_load(&clock->sequence);
    vmp_context_saved saved;
    vmp_status status = vmp_context_enter(clock->driver, context, &saved);
    int code = status == VMP_OK ? vmp_drv_ctx_synchronize(clock->driver) : 0;
    if (status == VMP_OK) (void)vmp_context_leave(clock->driver, &saved);
    atomic_fetch_add(&clock->host_waits, 1);
    if (status == VMP_OK && code != 0 && !context_is_gone(code)) {
      status = vmp_driver_fail(clock->driver, VMP_CALL_ctx_synchronize, code,
                               "a stream was destroyed without vmp_stream_retired, and its work can't be waited for");
    }
    if (status != VMP_OK) {
      atomic_store(&clock->renaming, true);
      return status;
    }
    (void)pthread_mutex_lock(&clock->mutex);
    for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
      clock_entry *entry = &clock->entries[i];
      if (!entry->used || !entry->renamed) continue;
      if (entry->context != NULL && entry->context != context) continue;
      entry->renamed = false;
      entry->context = NULL;
      reached(entry, sequence);
      clock_refresh_lane(clock, entry->lane);
    }
    (void)pthread_mutex_unlock(&clock->mutex);
  }
}

vmp_status vmp_clock_poll(vmp_clock *clock, vmp_fence fence) {
  vmp_status first = VMP_OK;
  (void)pthread_mutex_lock(&clock->mutex);
  for (uint64_t streams = fence.streams; streams != 0; streams &= streams - 1) {
    uint32_t lane = (uint32_t)__builtin_ctzll(streams);
    if (clock_lane_complete(clock, lane, fence.sequence)) continue;
    vmp_status status = poll_lane(clock, lane, fence.sequence);
    if (first == VMP_OK) first = status;
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  vmp_status status = settle_renamed(clock);
  return first == VMP_OK ? status : first;
}

// synchronize_context waits for everything in the device's context: for streams that have no handle of their own.
static vmp_status synchronize_context(vmp_clock *clock) {
  vmp_context_saved saved;
  uint64_t sequence = atomic_load(&clock->sequence);
  vmp_status status = vmp_context_enter(clock->driver, clock->context, &saved);
  if (status != VMP_OK) return status;
  int code = vmp_drv_ctx_synchronize(clock->driver);
  (void)vmp_context_leave(clock->driver, &saved);
  atomic_fetch_add(&clock->host_waits, 1);
  if (code != 0 && !context_is_gone(code)) {
    return vmp_driver_fail(clock->driver, VMP_CALL_ctx_synchronize, code, "the device's work can't be waited for");
  }
  (void)pthread_mutex_lock(&clock->mutex);
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    clock_entry *entry = &clock->entries[i];
    if (!entry->used || (entry->context != NULL && entry->context != clock->context)) continue;
    if ((uintptr_t)entry->handle > 2 && entry->context == NULL) continue;  // may be of another context
    reached(entry, sequence);
    uint32_t lane = entry->lane;
    drop_finished_retired(clock, entry);
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
  vmp_status status = settle(clock, entry, need);
  if (status != VMP_OK) return status;
  *out_sequence = entry->completed;
  if (entry->completed >= need) return VMP_OK;
  const clock_mark *mark = mark_at_or_after(entry, need);
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

static bool is_same_stream(const clock_entry *entry, vmp_cu_stream stream) {
  uintptr_t handle = stream == NULL ? 1 : (uintptr_t)stream;
  return (uintptr_t)entry->handle == handle && clock_entry_is_mine(entry);
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
    if (is_same_stream(entry, stream)) continue;
    uint64_t upto = need;
    if (entry->completed < need) {
      vmp_status status = order_behind_entry(clock, stream, entry, need, &upto, out_host);
      if (status != VMP_OK) return status;
    }
    if (upto < ordered) ordered = upto;
    drop_finished_retired(clock, entry);
  }
  clock_refresh_lane(clock, lane);
  bool alone = self != CLOCK_OVERFLOW_LANE && atomic_load(&clock->lanes[self].members) <= 1;
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
  if (status == VMP_OK) {
    for (uint64_t streams = left.streams; streams != 0 && status == VMP_OK; streams &= streams - 1) {
      status = order_behind_lane(clock, stream, self, (uint32_t)__builtin_ctzll(streams), left.sequence, &host);
    }
    (void)vmp_context_leave(clock->driver, &saved);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  if (status == VMP_OK) status = settle_renamed(clock);
  if (status == VMP_OK && host) status = synchronize_context(clock);
  return status;
}

// ---- marks behind frees ----

// enter_to_record: a record alone is allowed while others capture; making an event or asking one may not be.
static vmp_status enter_to_record(vmp_clock *clock, const clock_entry *entry, vmp_context_saved *out_saved) {
  if (entry->num_free > 0) return vmp_context_enter_only(clock->driver, entry->context, out_saved);
  return vmp_context_enter(clock->driver, entry->context, out_saved);
}

// mark_lane records an event on every stream of a lane that lacks one for its last fence. Under the mutex.
static void mark_lane(vmp_clock *clock, uint32_t lane) {
  uint64_t need = clock_need(clock, lane, UINT64_MAX);
  for (clock_entry *entry = clock_first(clock, lane); entry != NULL; entry = clock_after(clock, entry)) {
    vmp_context_saved saved;
    if (entry->completed >= need || mark_at_or_after(entry, need) != NULL) continue;
    resolve_context(clock, entry);
    if (enter_to_record(clock, entry, &saved) != VMP_OK) continue;
    if (may_record(clock, entry)) (void)record(clock, entry);
    (void)vmp_context_leave(clock->driver, &saved);
  }
}

void vmp_clock_mark_new(vmp_clock *clock) {
  if (atomic_load_explicit(&clock->unmarked, memory_order_relaxed) == 0) return;
  uint64_t lanes = atomic_exchange(&clock->unmarked, 0) & ~(UINT64_C(1) << CLOCK_OVERFLOW_LANE);
  if (lanes == 0) return;
  (void)pthread_mutex_lock(&clock->mutex);
  for (; lanes != 0; lanes &= lanes - 1) mark_lane(clock, (uint32_t)__builtin_ctzll(lanes));
  (void)pthread_mutex_unlock(&clock->mutex);
  (void)settle_renamed(clock);
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
      const clock_mark *mark = mark_at_or_after(entry, need);
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
  if (code != 0 && !context_is_gone(code)) {
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

static clock_entry *entry_of(vmp_clock *clock, vmp_cu_stream stream) {
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    clock_entry *entry = &clock->entries[i];
    if (entry->used && !entry->retired && is_same_stream(entry, stream)) return entry;
  }
  return NULL;
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
  if (code != 0 && !context_is_gone(code)) {
    return vmp_driver_fail(clock->driver, VMP_CALL_stream_synchronize, code, "the retired stream can't be waited for");
  }
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = entry_of(clock, stream);
  if (entry != NULL) {
    uint32_t lane = entry->lane;
    entry->retired = true;
    clock_unpublish(clock, entry);
    reached(entry, sequence);
    drop_finished_retired(clock, entry);
    clock_refresh_lane(clock, lane);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  return VMP_OK;
}

vmp_status vmp_clock_retire_stream(vmp_clock *clock, vmp_cu_stream stream) {
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = entry_of(clock, stream);
  if (entry == NULL) {  // never seen, or one of those that found the table full
    (void)pthread_mutex_unlock(&clock->mutex);
    vmp_fence overflow = {UINT64_C(1) << CLOCK_OVERFLOW_LANE, atomic_load(&clock->sequence)};
    return vmp_clock_known_complete(clock, overflow) ? VMP_OK : synchronize_context(clock);
  }
  uint64_t need = clock_need(clock, entry->lane, UINT64_MAX);
  vmp_status status = entry->completed >= need ? VMP_OK : settle(clock, entry, need);
  if (status == VMP_OK && entry->renamed) {
    (void)pthread_mutex_unlock(&clock->mutex);
    status = settle_renamed(clock);
    if (status != VMP_OK) return status;
    (void)pthread_mutex_lock(&clock->mutex);
    entry = entry_of(clock, stream);
  }
  if (status == VMP_OK && entry != NULL) {
    clock_unpublish(clock, entry);
    entry->retired = true;
    uint32_t lane = entry->lane;
    drop_finished_retired(clock, entry);
    clock_refresh_lane(clock, lane);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  if (status == VMP_OK || status == VMP_ERROR_STICKY) return status;
  return retire_by_waiting(clock, stream);
}
