// clock_internal.h: what the clock's files share: clock.c (the table of streams, fences), clock_events.c (events of a
// stream), clock_streams.c (what a handle names, captures), clock_wait.c (waits). Private to the clock.
//
//     lane 0..62   one bit of a fence: usually one stream, more when there are more streams than lanes
//     lane 63      every stream that found the table full: only a context synchronise completes it
//
// A lane is complete up to `completed`. Since a fence can only name work that vmp_clock_fence saw, a lane is complete
// for a fence as soon as it is complete up to the smaller of the fence's sequence and the lane's `last`.
#ifndef VMPOOL_VMM_CLOCK_INTERNAL_H_
#define VMPOOL_VMM_CLOCK_INTERNAL_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "vmm/clock.h"

#define CLOCK_LANES 64u
#define CLOCK_OVERFLOW_LANE 63u
#define CLOCK_ENTRIES 192u      // streams that are told apart
#define CLOCK_TABLE_SLOTS 512u  // hash slots, at most 3/8 full
#define CLOCK_MARKS 64u         // outstanding events of one stream
#define CLOCK_ACTIVE 4096u      // for so many fences after the last demand frees are marked

// A mark: an event that was recorded when the pool's sequence number was `sequence`.
typedef struct clock_mark {
  uint64_t sequence;
  vmp_cu_event event;
} clock_mark;

// Whether a stream captures: no; yes, or about to; was said to have ended, but the driver has not been asked.
typedef enum clock_capture { CLOCK_FREE = 0, CLOCK_CAPTURES, CLOCK_CAPTURED } clock_capture;

typedef struct clock_entry {
  vmp_cu_stream handle;
  uint64_t thread;         // of handle 2, the per-thread default stream; else 0
  vmp_cu_context context;  // of the stream; NULL until an event is needed
  uint64_t completed;      // work up to this sequence is known to have finished
  uint64_t id;             // of the stream, never given twice; 0: the driver doesn't tell
  uint32_t lane;
  uint32_t next;       // entry of the same lane, index + 1; 0: the last
  uint32_t num_marks;  // marks[0..num_marks): oldest first
  uint32_t num_free;   // free_events[0..num_free): made for this stream's context, not recorded
  uint32_t pins;       // host waits that use one of its events without the mutex
  uint8_t capture;     // clock_capture
  bool used, retired;
  bool renamed;  // the handle names another stream by now: what the old one still runs has no event
  clock_mark marks[CLOCK_MARKS];
  vmp_cu_event free_events[CLOCK_MARKS];
} clock_entry;

typedef struct clock_lane {
  _Atomic uint64_t completed;
  _Atomic uint64_t last;      // the latest fence that named this lane
  _Atomic uint32_t members;   // entries in it
  _Atomic uint64_t since_us;  // when its work was last seen to advance, or the first after that was named
} clock_lane;

// A hash slot: written under the mutex, read without it. `entry` is published last; 0 is empty.
typedef struct clock_slot {
  _Atomic uintptr_t handle;
  _Atomic uint64_t thread;
  _Atomic uint32_t entry;  // index + 1; CLOCK_SLOT_GONE for a retired stream's slot
} clock_slot;
#define CLOCK_SLOT_GONE UINT32_MAX

struct vmp_clock {
  vmp_driver *driver;
  vmp_cu_device device;
  vmp_cu_context context;  // the device's primary context, retained
  _Atomic uint64_t sequence;
  clock_lane lanes[CLOCK_LANES];
  _Atomic uint64_t sole;  // bit l: lane l is one stream's alone, or nobody's
  _Atomic uint64_t unmarked;     // lanes that a fence has named, while demanded, since their last mark
  _Atomic uint32_t captures;     // streams that are not CLOCK_FREE
  _Atomic bool renaming;         // some entry is renamed: synchronise the context
  _Atomic uint64_t last_demand;  // the sequence when a second stream came or memory of others was looked for; 0: never
  _Atomic uint64_t (*ordered)[CLOCK_LANES];  // [self][other]: self runs behind other's work up to this
  pthread_mutex_t mutex;                     // guards everything below, and may be held around driver calls
  clock_slot slots[CLOCK_TABLE_SLOTS];
  _Atomic uint32_t
      legacy_entry;     // index + 1 of the legacy default stream's entry, which most programs use; 0: look it up
  uint32_t slots_used;  // including gone ones
  clock_entry entries[CLOCK_ENTRIES];
  uint32_t first_entry[CLOCK_LANES];  // index + 1
  _Atomic uint64_t events_recorded, events_made, stream_waits, unfinished_waits, host_waits, renamed_streams;
};

// clock_is_sole: see vmp_clock_sole_lanes. clock_change_members adds to the entries of a lane, under the mutex.
static inline bool clock_is_sole(const vmp_clock *clock, uint32_t lane) {
  return (atomic_load_explicit(&clock->sole, memory_order_acquire) >> lane & 1) != 0;
}
static inline void clock_change_members(vmp_clock *clock, uint32_t lane, int change) {
  uint64_t bit = UINT64_C(1) << lane;
  if (atomic_fetch_add(&clock->lanes[lane].members, (uint32_t)change) + (uint32_t)change > 1) {
    atomic_fetch_and(&clock->sole, ~bit);
  } else {
    atomic_fetch_or(&clock->sole, bit);
  }
}

// How far a lane must be complete for a fence.
static inline uint64_t clock_need(const vmp_clock *clock, uint32_t lane, uint64_t sequence) {
  uint64_t last = atomic_load(&clock->lanes[lane].last);
  return last < sequence ? last : sequence;
}
static inline bool clock_lane_complete(const vmp_clock *clock, uint32_t lane, uint64_t sequence) {
  uint64_t need = clock_need(clock, lane, sequence);
  return atomic_load(&clock->lanes[lane].completed) >= need;
}

// clock_first and clock_after walk the entries of a lane; NULL at its end. Under the mutex.
static inline clock_entry *clock_entry_at(vmp_clock *clock, uint32_t number) {
  return number == 0 ? NULL : &clock->entries[number - 1];
}
static inline clock_entry *clock_first(vmp_clock *clock, uint32_t lane) {
  return clock_entry_at(clock, clock->first_entry[lane]);
}
static inline clock_entry *clock_after(vmp_clock *clock, const clock_entry *entry) {
  return clock_entry_at(clock, entry->next);
}

// clock_is_demanded: somebody has looked for others' memory not long ago.
static inline bool clock_is_demanded(const vmp_clock *clock) {
  uint64_t demand = atomic_load_explicit(&clock->last_demand, memory_order_relaxed);
  return demand != 0 && atomic_load_explicit(&clock->sequence, memory_order_relaxed) < demand + CLOCK_ACTIVE;
}

// clock_stream_id asks the driver which stream a handle names now; 0 where it can't tell, or for a default stream.
uint64_t clock_stream_id(vmp_clock *clock, vmp_cu_stream handle);

// clock_this_thread: a number that no other living thread has; 0 is none.
uint64_t clock_this_thread(void);
// clock_entry_is_mine: the calling thread may record on this stream (false for another thread's handle 2).
bool clock_entry_is_mine(const clock_entry *entry);
// clock_refresh_lane recomputes what is known complete. Under the mutex.
void clock_refresh_lane(vmp_clock *clock, uint32_t lane);
// clock_drop_entry forgets an entry and destroys its events. Under the mutex.
void clock_drop_entry(vmp_clock *clock, clock_entry *entry);
// ---- clock_events.c: under the mutex ----
// clock_context_is_gone: a context that is gone runs no work any more; its events say nothing.
bool clock_context_is_gone(int code);
void clock_resolve_context(vmp_clock *clock, clock_entry *entry);
// clock_reached notes that everything up to `sequence` has finished on the entry, and frees the marks that are passed.
void clock_reached(clock_entry *entry, uint64_t sequence);
const clock_mark *clock_mark_at_or_after(const clock_entry *entry, uint64_t sequence);
// clock_settle looks how far one stream is, recording a mark when `need` has none. A stream that this thread can't
// record on (another thread's default stream), or that captures, stays as it is.
vmp_status clock_settle(vmp_clock *clock, clock_entry *entry, uint64_t need);
void clock_drop_if_finished(vmp_clock *clock, clock_entry *entry);

// ---- clock_streams.c ----
bool clock_is_same_stream(const clock_entry *entry, vmp_cu_stream stream);
// clock_entry_of finds a stream that is not retired. Under the mutex.
clock_entry *clock_entry_of(vmp_clock *clock, vmp_cu_stream stream);
// clock_stream_id asks the driver which stream a handle names now; 0 where it can't tell, or for a default stream.
uint64_t clock_stream_id(vmp_clock *clock, vmp_cu_stream handle);
// clock_is_capturing asks the driver whether a stream captures, or (a legacy stream) would wait for one that does.
// Where the question itself fails, the answer is `unknown`. Some context must be current, here and in the two below.
bool clock_is_capturing(vmp_clock *clock, vmp_cu_stream stream, bool unknown);
bool clock_captures_now(vmp_clock *clock, clock_entry *entry);
// clock_may_record: the handle still names the stream, it doesn't capture, and this thread can record on it.
bool clock_may_record(vmp_clock *clock, clock_entry *entry);
// clock_may_synchronize: no stream captures. clock_fail_capture says that one does. Without the mutex.
bool clock_may_synchronize(vmp_clock *clock);
vmp_status clock_fail_capture(void);
// clock_settle_renamed waits for what streams run whose handles name others by now. Without the mutex.
vmp_status clock_settle_renamed(vmp_clock *clock);

// clock_unpublish removes an entry from the hash table. Under the mutex.
void clock_unpublish(vmp_clock *clock, const clock_entry *entry);

#endif  // VMPOOL_VMM_CLOCK_INTERNAL_H_
