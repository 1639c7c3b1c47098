// backing_share.h: one chunk mapped at several places at once, and live there.
//
// Owns: which bytes of a shared chunk each of its places may use (windows), when a place of it ends, the change from a
// chunk with a home to a shared one and back. Does not own which addresses share (the layers), driver calls (the
// plan).
//
//     chunk     [ 0 ............... y ........ x ............ size )
//     place A   |      blocked      |  window [y, x)  | blocked   |      its old home: blocks may still come and go
//     here place B   [  window [0, y)    )  blocked                           the last slot of a block that ends in the
//     chunk place C      blocked            [  window [x, size)         )      the first slot of one that begins in it
//
// Places of a chunk show the same bytes. A byte belongs to the place whose window holds it: cost and run say of every
// other byte of the place's slots that it is blocked, and no claim can have it. A place that was asked for with an
// empty window serves the claim that made it and no other (pages that two ranges share on purpose; meshing).
//
// Life of a place
//     asked for   in TRANSIT, and counted as live: its chunk can't be parked, nobody else gets its window
//     made        SHARED; its claims are counted at it and at the chunk
//     empty       its slot retires: the mapping goes when its fence is complete on the host; the window goes to a
//                 neighbour. The last place that is left becomes the chunk's home, with whatever claims it has
//
// Fences: a claim at a new place is told of everybody who released bytes of the chunk. When a place ends, its fence
// goes to the chunk's `moved`, so that whoever claims the bytes by other addresses is told of it.
//
// Invariants (vmp_backing_check)
//   - a shared chunk is LIVE, has no home and at least two places; its live count is the sum over them.
//   - windows that aren't empty tile the chunk.
//   - a made place without claims exists only while every other place of the chunk is in transit.
#ifndef VMPOOL_VMM_BACKING_SHARE_H_
#define VMPOOL_VMM_BACKING_SHARE_H_

#include "vmm/backing.h"

// vmp_backing_claim_shared claims [offset, offset + bytes) like the claim of backing_ops.h, but maps the slots of
// `parts` to chunks that are mapped elsewhere already. See vmp_shared_part. Every other slot of the range is claimed as
// usual. The claim is released like any other, at once or in parts that end at slots. It allocates what the release
// will need. MAY UNLOCK; nothing of the hosts' windows can be lost to another thread meanwhile.
//   VMP_ERROR_INVALID_VALUE   a part lies outside the range, out of order, or its window is not at an end of the host's
//   VMP_ERROR_BUSY            a slot of a part is not unmapped, or its host is not live, or kept apart
//   and what claim returns. After a failure no claim, no window and no chunk's place of a part has changed; chunks that
//   were mapped for the rest of the range may stay there, parked.
vmp_status vmp_backing_claim_shared(vmp_backing *backing, uint64_t offset, uint64_t bytes, const vmp_shared_part *parts,
                                    size_t num_parts, vmp_stream_index stream, vmp_effort effort, vmp_fence *out_fence);

// vmp_backing_is_shared: whether a chunk under the range is mapped at other addresses too. O(chunks of the range).
bool vmp_backing_is_shared(const vmp_backing *backing, uint64_t offset, uint64_t bytes);

// vmp_backing_keep_apart: the chunks under a live range are nobody's hosts until they are parked (for blocks that must
// be isolated: suspendable tags, pinned, captured). Doesn't undo what is shared already.
void vmp_backing_keep_apart(vmp_backing *backing, uint64_t offset, uint64_t bytes);

#endif  // VMPOOL_VMM_BACKING_SHARE_H_
