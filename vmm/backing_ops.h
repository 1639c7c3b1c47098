// backing_ops.h: what the allocation layers (buddy, mid, slab) ask of the memory behind their addresses.
//
// Owns: the small struct of functions and its plain types. The layers work on virtual OFFSETS and know no
// driver; each is tested alone with a counting fake of this struct.
//
//     offset: bytes in the pool's own address space. Two reservations are two pieces of it with a hole between.
//             offset and device address are equal modulo VMP_OFFSET_CONGRUENCE, so an aligned offset is an
//             aligned address.
//     slot:   one granule of it. A range of bytes touches every slot that it overlaps.
//
// Rules for every function here: the caller holds the pool's lock. `claim` may let go of it while it calls the
// driver and holds it again when it returns: the caller must have marked the range as used in its own structure
// BEFORE it claims, and gives it back if the claim fails. The others never let go of the lock, never call the
// driver, allocate nothing and can't fail.
#ifndef VMPOOL_VMM_BACKING_OPS_H_
#define VMPOOL_VMM_BACKING_OPS_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/clock.h"
#include "vmm/status.h"

#define VMP_OFFSET_CONGRUENCE (UINT64_C(1) << 36)

// vmp_cost: what it would take to use a range now.
typedef struct vmp_cost {
  uint64_t slots_to_map;   // slots of the range without a chunk
  uint64_t chunks_pinned;  // parked chunks that would stop being parked
  bool blocked;            // some slot is retiring, in transit, broken or sealed: choose another place
  bool must_wait;          // some chunk was moved here under work that the stream is not ordered behind
} vmp_cost;

typedef enum vmp_run_state {
  VMP_RUN_UNMAPPED = 0,
  VMP_RUN_MAPPED = 1,
  VMP_RUN_BLOCKED = 2,  // retiring, in transit, broken, sealed
} vmp_run_state;

// vmp_effort: how far a claim may go. Each includes the ones before.
typedef enum vmp_effort {
  VMP_EFFORT_MAPPED = 0,  // only what is mapped already: no driver call
  VMP_EFFORT_TAKE = 1,    // spare and parked chunks, complete ones first, none created; for gathering (backing.h)
  VMP_EFFORT_READY = 2,   // spare chunks, new ones under the soft limit and park_limit, beyond these parked ones that
                          // the stream may use at once: nothing that it would have to wait for
  VMP_EFFORT_GROW = 3,    // also: new ones up to the hard limit
  VMP_EFFORT_NORMAL = 4,  // also: parked chunks behind a wait of the stream
  VMP_EFFORT_RESIZE = 5,  // also: give parked chunks of other sizes back to the device and create smaller ones
} vmp_effort;

// vmp_shared_part: a slot of a claim that is to show a chunk that lives elsewhere already.
//
//     host      | free [low .. ) | somebody's block |           the bytes belong to the new claim from then on: the
//     host's the claim ............... [low .. high)                    addresses of them are blocked until the claim
//     ends
typedef struct vmp_shared_part {
  uint64_t offset;       // where its chunk begins: the start of a slot, inside the claim
  uint64_t host_offset;  // any offset of the slot whose chunk it is
  uint64_t low, high;    // the bytes of the chunk that the claim may use: at the lower or the upper end of the host's
                         // own window, where nothing may be claimed. low = high: see backing_share.h
} vmp_shared_part;

// vmp_backing_glance: what holds for all mapped memory, so that most places needn't be asked about one by one. Each may
// be read between two calls, under the lock; NULL: nothing is known, ask.
typedef struct vmp_backing_glance {
  const uint64_t *changes;        // a cursor of next_change that equals it is up to date
  const uint64_t *parked_orders;  // bit k: some chunk of 2^k granules is parked; a range smaller than each pins none
  const uint64_t *num_moved;      // chunks that must_wait may be about
} vmp_backing_glance;

// vmp_end_pins: parked chunks under the two ends of a range.
typedef struct vmp_end_pins {
  uint64_t low, high;
} vmp_end_pins;

typedef struct vmp_backing_ops {
  void *self;
  uint64_t granule_bytes;
  vmp_backing_glance glance;

  // cost of using [offset, offset + bytes) from `stream`. O(1) for ranges inside one chunk, else O(chunks).
  vmp_cost (*cost)(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream);

  // run tells the state of the slot that holds `offset`, and where (at most `end`) that state stops.
  // Offsets outside every reservation are BLOCKED.
  vmp_run_state (*run)(void *self, uint64_t offset, uint64_t end, uint64_t *out_end);

  // claim makes every slot of the range mapped and counts one live block on every chunk that it touches.
  // On success *out_fence is who may still touch the memory that lies behind the range now, besides the fences of
  // the addresses themselves: work of before a chunk was moved here (VMP_FENCE_NONE nearly always). It is NOT
  // reduced to `stream`: stream's own earlier work is in it unless it is known complete. The caller reduces it
  // with `others` for what it tells its own caller to wait for.
  // Failures, after which nothing has changed:
  //   VMP_ERROR_FRAGMENTED     enough parked memory exists, but its chunk sizes don't fit this place: try one
  //                            with room around it, or a higher effort
  //   VMP_ERROR_BUSY           a slot is blocked, or (effort MAPPED) not mapped
  //   VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_LIMIT, VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures
  vmp_status (*claim)(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_effort effort,
                      vmp_fence *out_fence);

  // pins tells how many parked chunks claims of the first and of the last `bytes` of [from, to) would pin. False: one
  // of the two doesn't lie wholly in chunks that live there. As cost, but looks at nothing else. NULL: not to be had.
  bool (*pins)(void *self, uint64_t from, uint64_t to, uint64_t bytes, vmp_end_pins *out);

  // claim_again is claim, effort MAPPED, where every chunk of the range is live already and none was moved: nobody but
  // the fences of the addresses says who may still touch it. False: it isn't so, and nothing has changed. NULL: not to
  // be had.
  bool (*claim_again)(void *self, uint64_t offset, uint64_t bytes);

  // release undoes one claim of exactly this range; chunks that nobody touches any more are parked. `fence`
  // says who may still touch the bytes. True: every slot of the range is mapped and can be claimed again as it is;
  // false: some is not, `run` tells which.
  bool (*release)(void *self, uint64_t offset, uint64_t bytes, vmp_fence fence);

  // next_change: the mapping of free addresses changes when chunks are taken, trimmed, retired or mapped
  // ahead. A layer keeps a cursor (start with 0) and asks, before it places a block, what changed since:
  // true and a range, or false when the cursor is up to date. When too much has happened the range is
  // everything (0, UINT64_MAX).
  bool (*next_change)(void *self, uint64_t *cursor, uint64_t *out_offset, uint64_t *out_bytes);

  // claim_shared is claim, with some slots mapped to chunks that live elsewhere; see backing_share.h. `parts` in the
  // order of their offsets, of one slot each unless their chunks are larger.
  vmp_status (*claim_shared)(void *self, uint64_t offset, uint64_t bytes, const vmp_shared_part *parts,
                             size_t num_parts, vmp_stream_index stream, vmp_effort effort, vmp_fence *out_fence);

  // room: how many bytes could be created below every limit, as far as is known; the device was asked when memory was
  // last mapped.
  uint64_t (*room)(void *self);

  // known_complete and others: see vmp_clock_known_complete and vmp_clock_others.
  bool (*known_complete)(void *self, vmp_fence fence);
  vmp_fence (*others)(void *self, vmp_fence fence, vmp_stream_index stream);
} vmp_backing_ops;

// vmp_wait: what a layer does about free places under unfinished work that the stream is not ordered behind.
typedef enum vmp_wait {
  VMP_WAIT_LAST = 0,   // they come after those that the stream may use at once
  VMP_WAIT_NEVER = 1,  // they are no places; VMP_ERROR_BUSY where there is no other
  VMP_WAIT_ANY = 2,    // they are as good as others: for the least memory
} vmp_wait;

// vmp_request: one allocation on its way down the layers.
typedef struct vmp_request {
  uint64_t bytes;      // already rounded to the layer's step
  uint64_t alignment;  // a power of two, at most VMP_OFFSET_CONGRUENCE
  vmp_stream_index stream;
  vmp_effort effort;
  vmp_wait wait;
  bool isolated;  // none of its chunks may be shared with blocks elsewhere. Its caller keeps them so: see
                  // vmp_backing_keep_apart
} vmp_request;

// vmp_placed: what came of it.
typedef struct vmp_placed {
  uint64_t offset;
  uint64_t bytes;   // what the block holds, at least the request's
  vmp_fence after;  // the request's stream must be ordered behind this before the block is handed out
  // Who may still touch the bytes, the request's stream included (`after` is `others` of it). For a layer that
  // deals the block out to several streams: slab's spans. Everything known complete may be left out.
  vmp_fence fence;
  uint64_t *word;  // where a number of the caller's is kept with the block until it is freed; NULL: nowhere at hand
} vmp_placed;

#endif  // VMPOOL_VMM_BACKING_OPS_H_
