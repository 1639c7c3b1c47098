// debug.h: what finds mistakes of the program, at a price; all of it off by default. See vmpool_debug.h.
//
//     free ──> poison: a fill on the freeing stream ──> quarantine: the last freed blocks, oldest first ──> layer
//                                                            bounded by bytes and entries; emptied before out of memory
//     alloc (mid, buddy) ──> guarded: a piece of addresses, of which the last slot is never mapped
//
//         piece of buddy's   |     slot      |     slot      |  guard slot  |
//         block                    [....... the block .......]  touched: a fault
//
// Owns: the quarantine, the guarded pieces. Does not own: the fill's value (the option), layers.
//
// Invariants
//   - A block in quarantine is used in its layer, and live nowhere; held_bytes counts it by layer.
//   - A guarded block has one piece, of which every slot but the last is claimed.
#ifndef VMPOOL_POOL_DEBUG_H_
#define VMPOOL_POOL_DEBUG_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "pool/offset_map.h"
#include "vmm/clock.h"
#include "vmm/error.h"

#define VMP_QUARANTINE_BLOCKS 4096u

typedef struct vmp_quarantined {
  uint64_t offset, bytes;
  vmp_fence fence;
  uint32_t layer;
} vmp_quarantined;

typedef struct vmp_debug {
  vmp_quarantined *ring;  // NULL: no quarantine
  size_t first, count;
  uint64_t held_bytes[3];  // in quarantine, by layer
  vmp_offset_map guarded;  // start of a piece -> start of its block
  uint64_t guarded_bytes, guarded_piece_bytes;
  uint64_t fills, failed_fills;  // of poison
} vmp_debug;

typedef struct vmp_pool vmp_pool;
typedef struct vmp_plan vmp_plan;
typedef struct vmp_placed vmp_placed;
typedef struct vmp_found vmp_found;

// vmp_debug_open takes the options; VMP_ERROR_HOST_OUT_OF_MEMORY. The lock is held, as for all functions here.
vmp_status vmp_debug_open(vmp_pool *pool);
void vmp_debug_free(vmp_debug *debug);
uint64_t vmp_debug_metadata_bytes(const vmp_debug *debug);

// vmp_debug_poison fills a block that is in no books any more, on the freeing stream. A stream that is capturing is
// left alone. What fails is counted, and otherwise ignored. MAY UNLOCK.
void vmp_debug_poison(vmp_pool *pool, uint64_t offset, void *stream);

// vmp_debug_keep puts a freed block into quarantine, or, where it is too large for it, back to its layer (a vmp_layer).
// Returns what the block held. There is a quarantine.
uint64_t vmp_debug_keep(vmp_pool *pool, int layer, uint64_t offset, vmp_fence fence);
// vmp_debug_flush gives all of it back to the layers; false: there was nothing.
bool vmp_debug_flush(vmp_pool *pool);
bool vmp_debug_holds(const vmp_pool *pool, uint64_t offset);

// Guarded blocks. vmp_debug_place places a plan that is to be guarded (MAY UNLOCK); what buddy and the claim return.
vmp_status vmp_debug_place(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed);
// vmp_debug_release gives a guarded block back, and tells what it held; false: the offset is none's.
bool vmp_debug_release(vmp_pool *pool, uint64_t offset, vmp_fence fence, uint64_t *out_bytes);
// vmp_debug_find: the guarded block of a piece that begins at `piece` and holds `offset`.
bool vmp_debug_find(const vmp_pool *pool, uint64_t piece, uint64_t piece_bytes, uint64_t offset, vmp_found *out_found);

void vmp_debug_check(const vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_DEBUG_H_
