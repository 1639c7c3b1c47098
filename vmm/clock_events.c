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
#include <string.h>

#include "vmm/clock_internal.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"

// A context that is gone runs no work any more: its events say nothing, and nothing is outstanding.
bool clock_context_is_gone(int code) { return code == VMP_CU_DEINITIALIZED || code == VMP_CU_CONTEXT_IS_DESTROYED; }

void clock_resolve_context(vmp_clock *clock, clock_entry *entry) {
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

// clock_reached notes that everything up to `sequence` has finished on the entry, and frees the marks that are passed.
void clock_reached(clock_entry *entry, uint64_t sequence) {
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

const clock_mark *clock_mark_at_or_after(const clock_entry *entry, uint64_t sequence) {
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
    if (code != 0 && !clock_context_is_gone(code)) {
      return vmp_driver_fail(clock->driver, VMP_CALL_event_query, code, "the state of queued work is unknown");
    }
    clock_reached(entry, mark.sequence);
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
    if (clock_context_is_gone(code)) {
      clock_reached(entry, sequence);
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
  clock_change_members(clock, lane, -1);
}

// clock_settle looks how far one stream is, recording a mark when `need` has none. Under the mutex. A stream that this
// thread can't record on (another thread's default stream) stays as it is.
vmp_status clock_settle(vmp_clock *clock, clock_entry *entry, uint64_t need) {
  vmp_context_saved saved;
  clock_resolve_context(clock, entry);
  vmp_status status = vmp_context_enter(clock->driver, entry->context, &saved);
  if (status != VMP_OK) return status;
  if (clock_mark_at_or_after(entry, need) == NULL && clock_may_record(clock, entry)) {
    // An idle stream needs no mark: everything submitted to it before the question has finished.
    uint64_t sequence = atomic_load(&clock->sequence);
    int code = vmp_drv_stream_query(clock->driver, entry->handle);
    if (code == 0 || clock_context_is_gone(code)) {
      clock_reached(entry, sequence);
    } else {
      status = record(clock, entry);
    }
  }
  if (status == VMP_OK) status = query(clock, entry);
  (void)vmp_context_leave(clock->driver, &saved);
  return status;
}

void clock_drop_if_finished(vmp_clock *clock, clock_entry *entry) {
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
    vmp_status status = clock_settle(clock, entry, need);
    if (first == VMP_OK) first = status;
    clock_drop_if_finished(clock, entry);
  }
  clock_refresh_lane(clock, lane);
  return first;
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
  vmp_status status = clock_settle_renamed(clock);
  return first == VMP_OK ? status : first;
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
    if (entry->completed >= need || clock_mark_at_or_after(entry, need) != NULL) continue;
    clock_resolve_context(clock, entry);
    if (enter_to_record(clock, entry, &saved) != VMP_OK) continue;
    if (clock_may_record(clock, entry)) (void)record(clock, entry);
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
  (void)clock_settle_renamed(clock);
}
