// clock.c: the table of streams, and fences. clock_internal.h says what is where.
//
// The hit path (vmp_clock_stream of a known stream, vmp_clock_fence, known_complete, others) reads and writes atomics
// only. A new stream takes the mutex once.
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "vmm/align.h"
#include "vmm/clock_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

uint64_t vmp_clock_thread(void) { return clock_this_thread(); }

uint64_t clock_this_thread(void) {
  static _Atomic uint64_t next_thread = 1;  // numbers only: no state of any clock or pool
  static _Thread_local uint64_t mine;
  if (mine == 0) mine = atomic_fetch_add(&next_thread, 1);
  return mine;
}

// Handles 0 (NULL) and 1 both name the legacy default stream.
#define LEGACY_HANDLE ((uintptr_t)1)
static uintptr_t canonical_handle(vmp_cu_stream stream) {
  uintptr_t handle = (uintptr_t)stream;
  return handle == 0 ? LEGACY_HANDLE : handle;
}

static bool is_per_thread(uintptr_t handle) { return handle == 2; }

bool clock_entry_is_mine(const clock_entry *entry) {
  return entry->thread == 0 || entry->thread == clock_this_thread();
}

static uint32_t hash_slot(uintptr_t handle, uint64_t thread) {
  uint64_t mixed = ((uint64_t)handle ^ (thread * UINT64_C(0x9e3779b97f4a7c15))) * UINT64_C(0xbf58476d1ce4e5b9);
  return (uint32_t)(mixed >> 40) % CLOCK_TABLE_SLOTS;
}

vmp_status vmp_clock_create(vmp_clock **out_clock, vmp_driver *driver, int device) {
  vmp_clock *clock = vmp_mem_calloc(1, sizeof *clock);
  if (clock == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the table of streams");
  clock->ordered = vmp_mem_calloc(CLOCK_LANES, sizeof *clock->ordered);
  if (clock->ordered == NULL) {
    vmp_mem_free(clock);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the table of streams");
  }
  clock->driver = driver;
  int code = vmp_drv_device_get(driver, &clock->device, device);
  vmp_call call = VMP_CALL_device_get;
  if (code == 0) {
    call = VMP_CALL_primary_ctx_retain;
    code = vmp_drv_primary_ctx_retain(driver, &clock->context, clock->device);
  }
  if (code != 0) {
    vmp_mem_free((void *)clock->ordered);
    vmp_mem_free(clock);
    return vmp_driver_fail(driver, call, code, "the context of device %d is needed for events", device);
  }
  atomic_init(&clock->sole, ~(UINT64_C(1) << CLOCK_OVERFLOW_LANE));
  (void)pthread_mutex_init(&clock->mutex, NULL);
  *out_clock = clock;
  return VMP_OK;
}

void vmp_clock_destroy(vmp_clock *clock) {
  if (clock == NULL) return;
  if (!vmp_driver_is_forked(clock->driver)) {
    for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
      clock_entry *entry = &clock->entries[i];
      if (entry->used) clock_drop_entry(clock, entry);
    }
    (void)vmp_drv_primary_ctx_release(clock->driver, clock->device);
  }
  (void)pthread_mutex_destroy(&clock->mutex);
  vmp_mem_free((void *)clock->ordered);
  vmp_mem_free(clock);
}

// find_entry returns the index + 1 of a known stream, 0 otherwise. Lock-free.
static uint32_t find_entry(const vmp_clock *clock, uintptr_t handle, uint64_t thread) {
  uint32_t at = hash_slot(handle, thread);
  for (uint32_t probes = 0; probes < CLOCK_TABLE_SLOTS; probes++, at = (at + 1) % CLOCK_TABLE_SLOTS) {
    const clock_slot *slot = &clock->slots[at];
    uint32_t entry = atomic_load(&slot->entry);
    if (entry == 0) return 0;
    if (entry != CLOCK_SLOT_GONE && atomic_load(&slot->handle) == handle && atomic_load(&slot->thread) == thread &&
        atomic_load(&slot->entry) == entry) {
      return entry;
    }
  }
  return 0;
}

void clock_unpublish(vmp_clock *clock, const clock_entry *entry) {
  uint32_t wanted = (uint32_t)(entry - clock->entries) + 1;
  if (atomic_load(&clock->legacy_entry) == wanted) atomic_store(&clock->legacy_entry, 0);
  for (uint32_t i = 0; i < CLOCK_TABLE_SLOTS; i++) {
    if (atomic_load(&clock->slots[i].entry) == wanted) atomic_store(&clock->slots[i].entry, CLOCK_SLOT_GONE);
  }
}

// A slot for a new entry: the first empty or gone one of the probe sequence. NULL when the table is too full to probe.
static clock_slot *slot_for(vmp_clock *clock, uintptr_t handle, uint64_t thread) {
  uint32_t at = hash_slot(handle, thread);
  for (uint32_t probes = 0; probes < CLOCK_TABLE_SLOTS; probes++, at = (at + 1) % CLOCK_TABLE_SLOTS) {
    uint32_t entry = atomic_load(&clock->slots[at].entry);
    if (entry == CLOCK_SLOT_GONE) return &clock->slots[at];
    if (entry == 0) {
      if (clock->slots_used >= CLOCK_TABLE_SLOTS * 3 / 4) return NULL;
      clock->slots_used++;
      return &clock->slots[at];
    }
  }
  return NULL;
}

static uint32_t emptiest_lane(const vmp_clock *clock) {
  uint32_t best = 0;
  for (uint32_t lane = 1; lane < CLOCK_OVERFLOW_LANE; lane++) {
    if (atomic_load(&clock->lanes[lane].members) < atomic_load(&clock->lanes[best].members)) best = lane;
  }
  return best;
}

// A lane's new member starts with "nothing outstanding", and is ordered behind nobody.
static void join_lane(vmp_clock *clock, clock_entry *entry) {
  entry->lane = emptiest_lane(clock);
  entry->next = clock->first_entry[entry->lane];
  clock->first_entry[entry->lane] = (uint32_t)(entry - clock->entries) + 1;
  entry->completed = atomic_load(&clock->sequence);
  for (uint32_t other = 0; other < CLOCK_LANES; other++) atomic_store(&clock->ordered[entry->lane][other], 0);
  clock_change_members(clock, entry->lane, 1);
}

static vmp_stream_index register_stream(vmp_clock *clock, uintptr_t handle, uint64_t thread) {
  (void)pthread_mutex_lock(&clock->mutex);
  uint32_t known = find_entry(clock, handle, thread);
  vmp_stream_index lane = CLOCK_OVERFLOW_LANE;
  if (known != 0) {
    lane = clock->entries[known - 1].lane;
  } else {
    uint32_t index = 0;
    while (index < CLOCK_ENTRIES && clock->entries[index].used) index++;
    clock_slot *slot = index < CLOCK_ENTRIES ? slot_for(clock, handle, thread) : NULL;
    if (slot != NULL) {
      clock_entry *entry = &clock->entries[index];
      memset(entry, 0, sizeof *entry);
      entry->used = true;
      entry->handle = (vmp_cu_stream)handle;
      entry->thread = thread;
      entry->id = clock_stream_id(clock, entry->handle);
      join_lane(clock, entry);
      atomic_store(&slot->handle, handle);
      atomic_store(&slot->thread, thread);
      atomic_store(&slot->entry, index + 1);
      if (handle == LEGACY_HANDLE) atomic_store(&clock->legacy_entry, index + 1);
      lane = entry->lane;
      if (index > 0) vmp_clock_demand(clock);  // a second stream
    }
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  return lane;
}

vmp_stream_index vmp_clock_stream(vmp_clock *clock, vmp_cu_stream stream) {
  uintptr_t handle = canonical_handle(stream);
  uint32_t legacy = handle == LEGACY_HANDLE ? atomic_load(&clock->legacy_entry) : 0;
  if (legacy != 0) return clock->entries[legacy - 1].lane;
  uint64_t thread = is_per_thread(handle) ? clock_this_thread() : 0;
  uint32_t entry = find_entry(clock, handle, thread);
  if (entry != 0) return clock->entries[entry - 1].lane;
  return register_stream(clock, handle, thread);
}

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

uint64_t vmp_clock_age_us(const vmp_clock *clock, vmp_stream_index stream) {
  const clock_lane *lane = &clock->lanes[stream];
  if (atomic_load(&lane->completed) >= atomic_load(&lane->last)) return 0;
  uint64_t since = atomic_load(&lane->since_us), now = now_us();
  return now > since ? now - since : 0;
}

// name_work names everything that was submitted to a lane up to `sequence`.
__attribute__((noinline)) static vmp_fence name_work(vmp_clock *clock, vmp_stream_index stream, uint64_t sequence) {
  _Atomic uint64_t *last = &clock->lanes[stream].last;
  uint64_t seen = atomic_load(last);
  if (atomic_load(&clock->lanes[stream].completed) >= seen) atomic_store(&clock->lanes[stream].since_us, now_us());
  while (seen < sequence && !atomic_compare_exchange_weak(last, &seen, sequence)) {
  }
  uint64_t bit = UINT64_C(1) << stream;
  if (clock_is_demanded(clock) && (atomic_load(&clock->unmarked) & bit) == 0) atomic_fetch_or(&clock->unmarked, bit);
  return (vmp_fence){bit, sequence};
}

// Where the lane has work that isn't known to have finished, nobody has named later work meanwhile and nobody looks for
// others' memory, there is little to do: no call, and so nothing to save for one.
vmp_fence vmp_clock_fence(vmp_clock *clock, vmp_stream_index stream) {
  uint64_t sequence = atomic_fetch_add(&clock->sequence, 1) + 1;
  clock_lane *lane = &clock->lanes[stream];
  uint64_t seen = atomic_load(&lane->last), demand = atomic_load_explicit(&clock->last_demand, memory_order_relaxed);
  if (__builtin_expect(atomic_load(&lane->completed) < seen && seen < sequence && demand == 0, true) &&
      atomic_compare_exchange_strong(&lane->last, &seen, sequence)) {
    return (vmp_fence){UINT64_C(1) << stream, sequence};
  }
  return name_work(clock, stream, sequence);
}

vmp_fence vmp_clock_fence_of(vmp_clock *clock, uint64_t streams) {
  vmp_fence fence = VMP_FENCE_NONE;
  for (uint64_t rest = streams; rest != 0; rest &= rest - 1) {
    fence = vmp_fence_merge(fence, vmp_clock_fence(clock, vmp_lowest_bit(rest)));
  }
  return fence;
}

const _Atomic uint64_t *vmp_clock_sole_lanes(const vmp_clock *clock) { return &clock->sole; }

void vmp_clock_demand(vmp_clock *clock) { atomic_store(&clock->last_demand, atomic_load(&clock->sequence) + 1); }

bool vmp_clock_known_complete(const vmp_clock *clock, vmp_fence fence) {
  for (uint64_t streams = fence.streams; streams != 0; streams &= streams - 1) {
    if (!clock_lane_complete(clock, (uint32_t)__builtin_ctzll(streams), fence.sequence)) return false;
  }
  return true;
}

vmp_fence vmp_clock_others(const vmp_clock *clock, vmp_fence fence, vmp_stream_index self) {
  // A shared lane is several streams: "self" is then not known to be the one that the fence means.
  bool alone = clock_is_sole(clock, self);
  uint64_t left = 0, streams = fence.streams;
  if (alone) streams &= ~(UINT64_C(1) << self);
  for (; streams != 0; streams &= streams - 1) {
    uint32_t lane = (uint32_t)__builtin_ctzll(streams);
    if (clock_lane_complete(clock, lane, fence.sequence)) continue;
    if (alone && atomic_load(&clock->ordered[self][lane]) >= clock_need(clock, lane, fence.sequence)) continue;
    left |= UINT64_C(1) << lane;
  }
  return left == 0 ? VMP_FENCE_NONE : (vmp_fence){left, fence.sequence};
}

void clock_refresh_lane(vmp_clock *clock, uint32_t lane) {
  uint64_t completed = UINT64_MAX;
  for (const clock_entry *entry = clock_first(clock, lane); entry != NULL; entry = clock_after(clock, entry)) {
    if (entry->completed < completed) completed = entry->completed;
  }
  if (completed == UINT64_MAX) completed = atomic_load(&clock->sequence);  // no members: nothing is outstanding
  if (completed <= atomic_load(&clock->lanes[lane].completed)) return;
  atomic_store(&clock->lanes[lane].since_us, now_us());
  atomic_store(&clock->lanes[lane].completed, completed);
}

void vmp_clock_walk_streams(vmp_clock *clock, vmp_clock_stream_fn fn, void *context) {
  (void)pthread_mutex_lock(&clock->mutex);
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    const clock_entry *entry = &clock->entries[i];
    if (!entry->used || entry->retired) continue;
    fn(context, entry->lane, (uint64_t)(uintptr_t)entry->handle, entry->thread, entry->completed);
  }
  (void)pthread_mutex_unlock(&clock->mutex);
}

uint64_t vmp_clock_progress(const vmp_clock *clock) {
  uint64_t sum = 0;
  for (uint32_t lane = 0; lane < CLOCK_LANES; lane++) sum += atomic_load(&clock->lanes[lane].completed);
  return sum;
}

void vmp_clock_get_stats(const vmp_clock *clock, vmp_clock_stats *out) {
  memset(out, 0, sizeof *out);
  out->sequence = atomic_load(&clock->sequence);
  out->events_recorded = atomic_load(&clock->events_recorded);
  out->events_pooled = atomic_load(&clock->events_made);
  out->stream_waits = atomic_load(&clock->stream_waits);
  out->unfinished_waits = atomic_load(&clock->unfinished_waits);
  out->host_waits = atomic_load(&clock->host_waits);
  out->renamed_streams = atomic_load(&clock->renamed_streams);
  for (uint32_t lane = 0; lane < CLOCK_LANES; lane++) out->streams += atomic_load(&clock->lanes[lane].members);
}

static void check_entry(const vmp_clock *clock, uint32_t index, uint64_t sequence, vmp_report *report) {
  const clock_entry *entry = &clock->entries[index];
  if (entry->lane >= CLOCK_OVERFLOW_LANE)
    vmp_report_fault(report, "clock: stream %u is in lane %u", index, entry->lane);
  if (entry->completed > sequence) {
    vmp_report_fault(report, "clock: stream %u is complete up to %llu, past the sequence %llu", index,
                     (unsigned long long)entry->completed, (unsigned long long)sequence);
  }
  if (entry->num_marks > CLOCK_MARKS || entry->num_free > CLOCK_MARKS ||
      entry->num_marks + entry->num_free > CLOCK_MARKS) {
    vmp_report_fault(report, "clock: stream %u has %u marks and %u free events; %u fit", index, entry->num_marks,
                     entry->num_free, CLOCK_MARKS);
    return;
  }
  for (uint32_t i = 1; i < entry->num_marks; i++) {
    if (entry->marks[i].sequence < entry->marks[i - 1].sequence) {
      vmp_report_fault(report, "clock: the marks of stream %u are out of order at %u", index, i);
    }
  }
}

// check_chains: every entry is in the chain of its lane, once.
static void check_chains(vmp_clock *clock, vmp_report *report) {
  for (uint32_t lane = 0; lane < CLOCK_LANES; lane++) {
    uint32_t length = 0;
    const clock_entry *entry = clock_first(clock, lane);
    for (; entry != NULL && length <= CLOCK_ENTRIES; entry = clock_after(clock, entry), length++) {
      if (!entry->used || entry->lane != lane) {
        vmp_report_fault(report, "clock: stream %u is in the chain of lane %u and not its own",
                         (uint32_t)(entry - clock->entries), lane);
      }
    }
    if (length != atomic_load(&clock->lanes[lane].members)) {
      vmp_report_fault(report, "clock: the chain of lane %u holds %u streams of %u", lane, length,
                       atomic_load(&clock->lanes[lane].members));
    }
  }
}

size_t vmp_clock_check(vmp_clock *clock, vmp_report *report) {
  size_t before = report->faults;
  (void)pthread_mutex_lock(&clock->mutex);
  uint64_t sequence = atomic_load(&clock->sequence);
  uint32_t members[CLOCK_LANES] = {0};
  for (uint32_t i = 0; i < CLOCK_ENTRIES; i++) {
    if (!clock->entries[i].used) continue;
    check_entry(clock, i, sequence, report);
    if (clock->entries[i].lane < CLOCK_LANES) members[clock->entries[i].lane]++;
  }
  check_chains(clock, report);
  for (uint32_t lane = 0; lane < CLOCK_LANES; lane++) {
    const clock_lane *at = &clock->lanes[lane];
    if (atomic_load(&at->members) != members[lane]) {
      vmp_report_fault(report, "clock: lane %u counts %u streams and has %u", lane, atomic_load(&at->members),
                       members[lane]);
    }
    if (clock_is_sole(clock, lane) != (lane != CLOCK_OVERFLOW_LANE && members[lane] <= 1)) {
      vmp_report_fault(report, "clock: lane %u of %u streams is said to be %s", lane, members[lane],
                       clock_is_sole(clock, lane) ? "no more than one's" : "of several");
    }
    uint64_t last = atomic_load(&at->last);  // before the sequence: fences are taken meanwhile, without the mutex
    uint64_t now = atomic_load(&clock->sequence);
    if (last > now) {
      vmp_report_fault(report, "clock: lane %u was last named at %llu, past the sequence %llu", lane,
                       (unsigned long long)last, (unsigned long long)now);
    }
    if (atomic_load(&at->completed) > sequence) {
      vmp_report_fault(report, "clock: lane %u is complete up to %llu, past the sequence %llu", lane,
                       (unsigned long long)atomic_load(&at->completed), (unsigned long long)sequence);
    }
  }
  (void)pthread_mutex_unlock(&clock->mutex);
  return report->faults - before;
}
