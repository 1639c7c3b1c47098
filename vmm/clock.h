// clock.h: which GPU work may still touch a range, and whether it has finished.
//
// Owns: the pool-wide sequence number, the table of streams, lazily recorded events. Does not own memory.
//
//     free on stream s  -> fence {bit(s), ++sequence}       no driver call, no lock
//     others want it    -> an event on s right behind the free (vmp_clock_mark_new), so that it covers no later work
//     need to know      -> where there is none, record an event on s now; query it
//     reuse on stream t -> t waits for that event (cuStreamWaitEvent), never the host
//
// Invariants
//   - A fence is complete only as seen by the host: for each stream in its mask, `completed` (work known to
//     have finished, as a sequence number) has reached the fence's sequence.
//   - A stream wait never makes a fence complete.
//   - vmp_clock_fence and vmp_clock_known_complete make no driver call, take no lock and allocate nothing.
//   - All other functions may call the driver; no lock of the pool may be held around them.
#ifndef VMPOOL_VMM_CLOCK_H_
#define VMPOOL_VMM_CLOCK_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/driver.h"
#include "vmm/error.h"

// vmp_fence: the streams that may still touch a range, and up to when. {0, 0} is "nobody": always complete.
typedef struct vmp_fence {
  uint64_t streams;   // bit i: the streams with index i (more than 64 streams share bits)
  uint64_t sequence;  // everything submitted to them before this pool-wide number
} vmp_fence;

#define VMP_FENCE_NONE ((vmp_fence){0, 0})

static inline vmp_fence vmp_fence_merge(vmp_fence a, vmp_fence b) {
  vmp_fence merged = {a.streams | b.streams, a.sequence > b.sequence ? a.sequence : b.sequence};
  return merged;
}
static inline bool vmp_fence_is_none(vmp_fence fence) { return fence.streams == 0; }

// vmp_stream_index: 0..63, the bit of a stream in fences.
typedef uint32_t vmp_stream_index;

typedef struct vmp_clock vmp_clock;

// vmp_clock_create: `device` is the ordinal whose primary context the events are made in (a stream of another
// context gets its events in its own). VMP_ERROR_HOST_OUT_OF_MEMORY, _DRIVER.
vmp_status vmp_clock_create(vmp_clock **out_clock, vmp_driver *driver, int device);
// vmp_clock_destroy destroys pooled events. Work that is still queued is not waited for. NULL is fine.
void vmp_clock_destroy(vmp_clock *clock);

// vmp_clock_stream returns the index of a stream, giving it one at first sight (handles 0 and 1 are one stream,
// 2 is one per thread). Never fails: when the table is full, streams share. Lock-free for known streams.
vmp_stream_index vmp_clock_stream(vmp_clock *clock, vmp_cu_stream stream);

// vmp_clock_thread: a number that no other living thread has; with handle 2 it names a per-thread default stream.
uint64_t vmp_clock_thread(void);

// vmp_clock_fence returns "everything submitted to this stream so far".
vmp_fence vmp_clock_fence(vmp_clock *clock, vmp_stream_index stream);
// vmp_clock_fence_of does the same for every stream of a mask. Of no stream: VMP_FENCE_NONE.
vmp_fence vmp_clock_fence_of(vmp_clock *clock, uint64_t streams);

// vmp_clock_demand notes that a stream has looked for memory that others have freed. That a second stream comes, or that
// a stream is ordered behind another, notes it too. Cheap.
void vmp_clock_demand(vmp_clock *clock);
// vmp_clock_mark_new records an event on every stream that a fence has named since its last event; only fences within
// some thousand ones after a demand count, so that streams which get by on their own memory cause no driver call.
// Called after a free, it makes a wait for what was freed cover no work that is submitted later. Optional: what could not
// be marked, or was freed while nobody wanted it, is marked when it is needed.
void vmp_clock_mark_new(vmp_clock *clock);

// vmp_clock_age_us: for how long a stream that has work which isn't known to have finished was not seen to advance, in
// microseconds; 0: it has none. Streams that share an index share it.
uint64_t vmp_clock_age_us(const vmp_clock *clock, vmp_stream_index stream);

// vmp_clock_known_complete: complete as far as the host has seen already. Cheap; false means "not known".
bool vmp_clock_known_complete(const vmp_clock *clock, vmp_fence fence);
// vmp_clock_others returns `fence` without what is known complete, without stream `self`, and without what
// `self` has been ordered behind already: nobody left means that `self` may use the range at once.
vmp_fence vmp_clock_others(const vmp_clock *clock, vmp_fence fence, vmp_stream_index self);

// vmp_clock_sole_lanes: bit i is set where index i is no more than one stream's: where `self` has it, vmp_clock_others
// leaves it out of a fence. To be read at any time while the clock is there.
const _Atomic uint64_t *vmp_clock_sole_lanes(const vmp_clock *clock);

// vmp_clock_poll records the events that `fence` lacks and queries what is outstanding: afterwards
// known_complete is up to date for it. Never waits. A driver failure other than not-ready is returned.
vmp_status vmp_clock_poll(vmp_clock *clock, vmp_fence fence);
// vmp_clock_progress grows when a poll or a wait has learnt that a stream has come further. Cheap.
uint64_t vmp_clock_progress(const vmp_clock *clock);
// vmp_clock_order makes `stream` wait on the GPU for everything in `fence` that it is not ordered behind yet.
// The host does not wait. On failure the stream may have been ordered behind a part, which is harmless.
// VMP_ERROR_CAPTURE: `stream` captures, or must wait for work that can't be marked while another stream captures.
vmp_status vmp_clock_order(vmp_clock *clock, vmp_cu_stream stream, vmp_fence fence);
// vmp_clock_wait blocks the host until `fence` is complete, for at most about `timeout_us` (0: only as a poll;
// UINT64_MAX: without bound, by synchronising). VMP_ERROR_TIMEOUT, _STICKY, _DRIVER.
vmp_status vmp_clock_wait(vmp_clock *clock, vmp_fence fence, uint64_t timeout_us);
// vmp_clock_begin_capture says that a stream captures, or is about to: from here on, until vmp_clock_end_capture of the
// same stream, nothing is recorded on it, it is not queried, and no context is synchronised. Where its capture has not
// begun yet, what it has been named for is marked first. vmp_clock_end_capture may come before the capture's own end:
// the driver is asked before the stream is used again. Both for a stream that is not the legacy stream.
void vmp_clock_begin_capture(vmp_clock *clock, vmp_cu_stream stream);
void vmp_clock_end_capture(vmp_clock *clock, vmp_cu_stream stream);
// vmp_clock_anyone: an index for which vmp_clock_others leaves out only what is known complete.
#define VMP_CLOCK_ANYONE ((vmp_stream_index)63)

// vmp_clock_retire_stream records a last event on a stream that is about to be destroyed and forgets the
// handle: its index stays valid in fences. Where that fails the host waits for the stream instead; only when
// that fails too is an error returned.
vmp_status vmp_clock_retire_stream(vmp_clock *clock, vmp_cu_stream stream);

typedef struct vmp_clock_stats {
  uint64_t sequence, streams, events_recorded, events_pooled, stream_waits, unfinished_waits, host_waits;
  uint64_t renamed_streams;  // handles that named another stream than before, without vmp_clock_retire_stream
} vmp_clock_stats;
void vmp_clock_get_stats(const vmp_clock *clock, vmp_clock_stats *out);
// vmp_clock_walk_streams sees every stream that the clock knows, in no order: its index, the driver's handle, whose it
// is (0; for handle 2 a number of its thread) and up to which sequence number its work is known to have finished. May
// wait for another thread's driver call: not under the pool's lock.
typedef void (*vmp_clock_stream_fn)(void *context, vmp_stream_index index, uint64_t handle, uint64_t thread,
                                    uint64_t completed);
void vmp_clock_walk_streams(vmp_clock *clock, vmp_clock_stream_fn fn, void *context);
size_t vmp_clock_check(vmp_clock *clock, vmp_report *report);

#endif  // VMPOOL_VMM_CLOCK_H_
