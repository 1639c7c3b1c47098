// clock_streams.c: what a handle names: another stream than before, or one that captures.
//
//     handle reused    the id differs from the one at first sight: what the old stream still runs has no event, so its
//                      context is synchronised, once
//     capture          nothing is recorded on a capturing stream, it is not queried, and no context is synchronised:
//     each
//                      would end the capture. A stream may have joined one that the clock was not told of, so while
//                      there are any, each stream is asked before it is touched
//
// Owns: the ids and the states of capture. Does not own events (clock_events.c), waits (clock_wait.c).
#include <pthread.h>

#include "vmm/clock_internal.h"
#include "vmm/context.h"
#include "vmm/driver_error.h"

bool clock_is_same_stream(const clock_entry *entry, vmp_cu_stream stream) {
  uintptr_t handle = stream == NULL ? 1 : (uintptr_t)stream;
  return (uintptr_t)entry->handle == handle && clock_entry_is_mine(entry);
}

clock_entry *clock_entry_of(vmp_clock *clock, vmp_cu_stream stream) {
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    clock_entry *entry = &clock->entries[i];
    if (entry->used && !entry->retired && clock_is_same_stream(entry, stream)) return entry;
  }
  return NULL;
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

// clock_is_capturing asks the driver whether a stream captures, or (a legacy stream) would wait for one that does.
// Where the question itself fails, the answer is `unknown`.
bool clock_is_capturing(vmp_clock *clock, vmp_cu_stream stream, bool unknown) {
  int status = VMP_CU_CAPTURE_STATUS_NONE;
  int code = vmp_drv_stream_is_capturing(clock->driver, stream, &status);
  if (code == 0) return status != VMP_CU_CAPTURE_STATUS_NONE;
  if (code == VMP_CU_NOT_SUPPORTED) return false;
  return unknown || (code >= VMP_CU_STREAM_CAPTURE_UNSUPPORTED && code <= VMP_CU_STREAM_CAPTURE_WRONG_THREAD);
}

// clock_captures_now: while any stream captures, each one is asked before it is touched: it may have joined the
// capture.
bool clock_captures_now(vmp_clock *clock, clock_entry *entry) {
  if (entry->capture == CLOCK_CAPTURES || clock_is_capturing(clock, entry->handle, true)) return true;
  if (entry->capture == CLOCK_CAPTURED) {
    entry->capture = CLOCK_FREE;
    atomic_fetch_sub(&clock->captures, 1);
  }
  return false;
}

// clock_fail_capture: the context as a whole may not be waited for while a stream of it captures.
vmp_status clock_fail_capture(void) {
  return vmp_fail(
      VMP_ERROR_CAPTURE,
      "work without an event of its own can't be waited for while a stream captures; end the capture first");
}

// clock_may_synchronize: no stream captures, as far as the driver says of those that were said to have ended.
bool clock_may_synchronize(vmp_clock *clock) {
  if (atomic_load(&clock->captures) == 0) return true;
  vmp_context_saved saved;
  if (vmp_context_enter(clock->driver, clock->context, &saved) != VMP_OK) return false;
  (void)pthread_mutex_lock(&clock->mutex);
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    clock_entry *entry = &clock->entries[i];
    if (entry->used && entry->capture == CLOCK_CAPTURED) (void)clock_captures_now(clock, entry);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  (void)vmp_context_leave(clock->driver, &saved);
  return atomic_load(&clock->captures) == 0;
}

// clock_may_record: the handle still names the stream, and this thread can record on it. A handle that names another
// stream by now is only noted: what the old stream still runs has no event, and the context as a whole must be waited
// for. Some context must be current.
bool clock_may_record(vmp_clock *clock, clock_entry *entry) {
  if (entry->retired || entry->renamed || !clock_entry_is_mine(entry)) return false;
  if (atomic_load(&clock->captures) > 0 && clock_captures_now(clock, entry)) return false;
  uint64_t id = entry->id == 0 ? 0 : id_of(clock, entry->handle);
  if (id == 0 || id == entry->id) return true;
  entry->renamed = true;
  entry->id = id;
  atomic_store(&clock->renaming, true);
  atomic_fetch_add(&clock->renamed_streams, 1);
  return false;
}

// first_renamed finds a stream whose handle names another one, and the context that must be waited for.
static clock_entry *first_renamed(vmp_clock *clock) {
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    if (clock->entries[i].used && clock->entries[i].renamed) return &clock->entries[i];
  }
  return NULL;
}

// clock_settle_renamed waits, once for each handle that names another stream by now, for all work of the old one: its
// context is synchronised. From then on the handle is the new stream's.
vmp_status clock_settle_renamed(vmp_clock *clock) {
  if (!atomic_load(&clock->renaming)) return VMP_OK;
  if (!clock_may_synchronize(clock)) return clock_fail_capture();
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
    if (status == VMP_OK && code != 0 && !clock_context_is_gone(code)) {
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
      clock_reached(entry, sequence);
      clock_refresh_lane(clock, entry->lane);
    }
    (void)pthread_mutex_unlock(&clock->mutex);
  }
}

// ---- captures ----

void vmp_clock_begin_capture(vmp_clock *clock, vmp_cu_stream stream) {
  (void)vmp_clock_stream(clock, stream);
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = clock_entry_of(clock, stream);
  if (entry != NULL) {
    uint64_t need = clock_need(clock, entry->lane, UINT64_MAX);
    vmp_context_saved saved;
    if (vmp_context_enter(clock->driver, clock->context, &saved) == VMP_OK) {
      bool captures = clock_is_capturing(clock, stream, true);
      (void)vmp_context_leave(clock->driver, &saved);
      if (!captures && entry->completed < need) (void)clock_settle(clock, entry, need);
    }
    if (entry->capture == CLOCK_FREE) atomic_fetch_add(&clock->captures, 1);
    entry->capture = CLOCK_CAPTURES;
  } else {
    atomic_fetch_add(&clock->captures, 1);  // a stream that shares the last bit: nothing is ever recorded on it
  }
  (void)pthread_mutex_unlock(&clock->mutex);
}

void vmp_clock_end_capture(vmp_clock *clock, vmp_cu_stream stream) {
  (void)pthread_mutex_lock(&clock->mutex);
  clock_entry *entry = clock_entry_of(clock, stream);
  if (entry == NULL) {
    atomic_fetch_sub(&clock->captures, 1);
  } else if (entry->capture == CLOCK_CAPTURES) {
    entry->capture = CLOCK_CAPTURED;
  }
  (void)pthread_mutex_unlock(&clock->mutex);
}
