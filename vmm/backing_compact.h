// backing_compact.h: big chunks that little live memory pins, replaced or shared under the same addresses.
//
// Owns: the change of what is mapped under live claims, with the bytes copied before it, and what becomes of it when
// the driver fails half way. Does not own: which bytes are live, and what is worth it (pool/compact.c).
//
//     split   [ live |      |      | live ]  one chunk       ->  [ live ]              [ live ]   two of one granule,
//                                                                                               the big one is spare
//     join    slot v [ . a . . ]  chunk V                    ->  slot v, slot h [ b a . c ]     chunk H at both places,
//             slot h [ b . . c ]  chunk H                                                      V is spare
//
// The caller promises that nobody touches the memory meanwhile (vmp_quiescent_begin), and has synchronised the device.
// Blocks may be freed meanwhile; none can be placed in what is being changed: it is sealed.
//
// Steps of one change, and what a failure leaves
//     copy      into chunks that are mapped elsewhere         nothing has changed
//     unmap     the old mapping                               nothing has changed
//     map       the new ones, then their access               undone: the old chunk is mapped again. Where that fails
//               too, the claims' bytes are in a chunk that is *lost*: ours, at home at these slots, but not mapped.
//               Every poll tries to map it again. Its blocks can be freed; it shows as broken
//
// Invariants (vmp_backing_check)
//   - a lost chunk is LIVE and has a home; lost_bytes is the sum over them.
//   - a joined chunk is sealed as long as it has more than one place.
#ifndef VMPOOL_VMM_BACKING_COMPACT_H_
#define VMPOOL_VMM_BACKING_COMPACT_H_

#include "vmm/backing.h"

// vmp_live_range: bytes that hold a block's data, or that one claim is for.
typedef struct vmp_live_range {
  uint64_t offset, bytes;
} vmp_live_range;

// vmp_stay: why a chunk stays as it is.
typedef enum vmp_stay {
  VMP_STAY_NOT = 0,   // it may be changed
  VMP_STAY_NOT_LIVE,  // nobody needs it where it is
  VMP_STAY_PINNED,
  VMP_STAY_SHARED,  // mapped at several places already, or an old mapping waits to be removed
  VMP_STAY_APART,   // must be kept apart, or is a region's page
  VMP_STAY_LOST,
} vmp_stay;

// vmp_chunk_view: the chunk that is mapped at a slot.
typedef struct vmp_chunk_view {
  vmp_stay stay;
  uint64_t offset, bytes;  // of its home
  uint32_t live;           // claims, pins not counted
} vmp_chunk_view;

// vmp_backing_view tells about the chunk at an offset; false: no chunk has its home there. Keeps the lock.
bool vmp_backing_view(const vmp_backing *backing, uint64_t offset, vmp_chunk_view *out);

// vmp_backing_joined_host: whether the slot at an offset shows a joined chunk; *out_host: the lowest offset at which
// that chunk is mapped.
bool vmp_backing_joined_host(const vmp_backing *backing, uint64_t offset, uint64_t *out_host);

// vmp_backing_seal(backing, offset, true) keeps the free bytes of the chunk that is at home at an offset, and may be
// changed, from being claimed until (backing, offset, false), or until it was joined and has one place only.
void vmp_backing_seal(vmp_backing *backing, uint64_t offset, bool seal);

typedef struct vmp_compact_report {
  uint64_t copied_bytes, copies;
  uint64_t chunks;  // replaced
  vmp_backing_calls calls;
} vmp_compact_report;

// vmp_still_claimed says, under the lock, whether claim number `index` still exists.
typedef bool (*vmp_still_claimed)(void *context, size_t index);

// vmp_backing_split replaces the chunk at home at `offset`, which may be changed, by chunks of one granule for the
// slots that `claims` touch; `live` is what of them is copied. Both rise and don't overlap; parts outside the chunk are
// ignored. The chunks are parked complete ones of one granule: VMP_ERROR_OUT_OF_MEMORY when there are too few. The big
// chunk becomes spare. Splitting a chunk of which every slot is touched gains nothing
// by itself. Other errors: VMP_ERROR_HOST_OUT_OF_MEMORY, driver
// failures (the first one; see above for what is left). MAY UNLOCK.
vmp_status vmp_backing_split(vmp_backing *backing, uint64_t offset, const vmp_live_range *claims, size_t num_claims,
                             const vmp_live_range *live, size_t num_live, vmp_still_claimed still, void *context,
                             vmp_compact_report *report);

// vmp_backing_join maps the chunk at `host_offset` also at the slot `offset`, whose own chunk, of one granule like the
// host, becomes spare; `live` is what is copied of it. The bytes don't overlap with what is live in the host's chunk.
// The host may have been joined before. The same errors. MAY UNLOCK.
vmp_status vmp_backing_join(vmp_backing *backing, uint64_t host_offset, uint64_t offset, const vmp_live_range *live,
                            size_t num_live, vmp_compact_report *report);

#endif  // VMPOOL_VMM_BACKING_COMPACT_H_
