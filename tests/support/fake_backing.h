// fake_backing.h: a counting fake of vmp_backing_ops, so that buddy, mid and slab are tested without a driver.
//
// Owns: a plain array of slots with states, chunks with live counts, a log of mapping changes, a table of the claims
// that are out. It keeps the rules of vmm/backing_ops.h strictly: a claim that overlaps another one, a release that
// matches no claim, or a range outside of the addresses is recorded as an error (vmp_fake_errors must be 0 at the end
// of every test). Only claim_again may claim what is claimed, as long as it lies in an earlier claim wholly; once that
// one is released, none may overlap another. Failures can be ordered, and the moment at which a claim has let go of the
// lock can be used.
// Does not own: time. A fence is complete when the test says so (vmp_fake_complete).
//
//     slots   [ chunk 1 | chunk 1 | unmapped | blocked | chunk 2 | ...        ]
//     chunks   {live 3, first slot 0, 2 slots}   live 0: parked
//
// Not thread-safe: the caller is the one thread that holds the pool's lock.
#ifndef VMPOOL_TESTS_SUPPORT_FAKE_BACKING_H_
#define VMPOOL_TESTS_SUPPORT_FAKE_BACKING_H_

#include <stddef.h>

#include "vmm/backing_ops.h"

#define VMP_FAKE_STREAMS 64

typedef struct vmp_fake_backing vmp_fake_backing;

typedef struct vmp_fake_options {
  uint64_t granule_bytes;   // 0: 2 MiB
  uint64_t offset;          // where the addresses begin; a multiple of the granule
  uint64_t slots;           // how many slots there are
  uint64_t step_bytes;      // claims are multiples of it; 0: 512. Overlap is found exactly, by one bit per step
  uint64_t chunk_slots;     // largest chunk that a claim makes, a power of two; 0: 1
  uint64_t physical_slots;  // how many slots can be mapped at once; 0: all. Beyond it, claims take parked chunks
  bool map_ahead;           // claims fill whole places of chunk_slots slots; the surplus is parked
  bool retire;              // places that chunks were taken from are blocked until vmp_fake_finish_retiring
  bool silent_claims;       // a claim's own slots are not in the change log (what it takes and maps ahead always is)
  size_t log_ranges;        // changes remembered before "everything has changed"; 0: 64
} vmp_fake_options;

typedef struct vmp_fake_slot {
  uint32_t chunk;  // index of its chunk, 0: unmapped
  bool blocked;    // retiring, in transit, broken, sealed: as the test likes
} vmp_fake_slot;

typedef struct vmp_fake_chunk {
  uint64_t first_slot, slots;
  uint64_t live;       // claims that touch it; 0: parked
  vmp_fence fence;     // merged from the releases since it was mapped
  vmp_fence moved;     // what must have finished before its memory is used at this place (makes must_wait)
  uint64_t parked_at;  // order of parking
} vmp_fake_chunk;

typedef struct vmp_fake_counts {
  uint64_t claims, releases, failed_claims;  // calls
  uint64_t costs, runs;
  uint64_t slots_mapped, slots_unmapped, chunks_taken;  // over the whole life
  uint64_t errors;
} vmp_fake_counts;

// vmp_fake_create never returns NULL (it ends the process when the test machine has no memory).
vmp_fake_backing *vmp_fake_create(const vmp_fake_options *options);
// vmp_fake_destroy: claims that are still out are no error here (see vmp_fake_claims_out). NULL is fine.
void vmp_fake_destroy(vmp_fake_backing *fake);

// vmp_fake_ops is valid as long as the fake. The functions' `self` is the fake.
const vmp_backing_ops *vmp_fake_ops(vmp_fake_backing *fake);

// ---- what a test looks at ----
const vmp_fake_counts *vmp_fake_get_counts(const vmp_fake_backing *fake);
// vmp_fake_errors: broken rules so far; vmp_fake_error is the first one's sentence ("" when there is none).
uint64_t vmp_fake_errors(const vmp_fake_backing *fake);
const char *vmp_fake_error(const vmp_fake_backing *fake);
const vmp_fake_slot *vmp_fake_slot_at(const vmp_fake_backing *fake, uint64_t offset);
const vmp_fake_chunk *vmp_fake_chunk_at(const vmp_fake_backing *fake, uint64_t offset);  // NULL when unmapped
uint64_t vmp_fake_mapped_slots(const vmp_fake_backing *fake);
uint64_t vmp_fake_parked_slots(const vmp_fake_backing *fake);
uint64_t vmp_fake_claims_out(const vmp_fake_backing *fake);
uint64_t vmp_fake_claimed_bytes(const vmp_fake_backing *fake);
// vmp_fake_check: live counts against the claims, slots against chunks; adds to the errors. O(slots + claims).
uint64_t vmp_fake_check(vmp_fake_backing *fake);

// ---- what a test does ----
// vmp_fake_map puts one parked chunk over [offset, offset + bytes), which must be unmapped; returns nothing, logs it.
void vmp_fake_map(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes);
// vmp_fake_unmap takes the parked chunks of [offset, offset + bytes) away (whole chunks only), and logs it.
void vmp_fake_unmap(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes);
// vmp_fake_block sets or clears "blocked" for the slots of the range, and logs it.
void vmp_fake_block(vmp_fake_backing *fake, uint64_t offset, uint64_t bytes, bool blocked);
// vmp_fake_finish_retiring unblocks every slot that lost its chunk (option retire), and logs it.
void vmp_fake_finish_retiring(vmp_fake_backing *fake);
// vmp_fake_moved says that the chunk at `offset` was moved here under work: cost says must_wait for streams for which
// others(fence) is not empty, and the fence that a claim gives contains it.
void vmp_fake_moved(vmp_fake_backing *fake, uint64_t offset, vmp_fence fence);
// vmp_fake_overflow_log makes the next next_change say "everything".
void vmp_fake_overflow_log(vmp_fake_backing *fake);
// vmp_fake_fail_claims: after `successes` more claims, the next `failures` fail with `status` and change nothing.
// A claim_again is a claim, too.
void vmp_fake_fail_claims(vmp_fake_backing *fake, uint64_t successes, uint64_t failures, vmp_status status);
// vmp_fake_on_refusal: `fn` is told of every claim that fails. NULL switches it off.
void vmp_fake_on_refusal(vmp_fake_backing *fake, void (*fn)(void *context, uint64_t offset, uint64_t bytes),
                         void *context);
// vmp_fake_during_claim: `fn` runs in the middle of every claim that maps something, where the lock is not held: the
// slots to be mapped are blocked then (in transit). It may call into the layer under test. NULL switches it off.
void vmp_fake_during_claim(vmp_fake_backing *fake, void (*fn)(void *context, uint64_t offset, uint64_t bytes),
                           void *context);
// vmp_fake_complete: the host has seen stream `stream` finish everything up to `sequence`.
void vmp_fake_complete(vmp_fake_backing *fake, vmp_stream_index stream, uint64_t sequence);
// vmp_fake_order: stream `waiter` has been ordered behind everything in `fence`.
void vmp_fake_order(vmp_fake_backing *fake, vmp_stream_index waiter, vmp_fence fence);

#endif  // VMPOOL_TESTS_SUPPORT_FAKE_BACKING_H_
