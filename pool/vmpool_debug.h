// vmpool_debug.h: what finds mistakes of a program's use of memory. All of it is off by default and costs speed: thread
// caches are not used. Included by vmpool.h.
//
//     poison:BYTE        a freed block is filled with this byte (1 to 255) on the freeing stream, so that work that
//                        reads freed memory reads nonsense. Not during a stream capture, not for suspendable tags, not
//                        for a block that other streams use too (vmp_record_use): their work may not be over
//     quarantine:SIZE    the last freed blocks, up to SIZE in all and 4096 in number, are not handed out again yet: a
//                        stale free is told as a double free although others allocate meanwhile. Emptied by a trim and
//                        before out of memory
//     guard_slots:1      behind each block that is not slab's lies a slot that is never mapped: touching it is a fault
//                        on the GPU. Blocks end where their last slot ends (rounded to 512 bytes, or their alignment);
//                        each takes whole slots. Sets chunk_max to one granule, and no_map_ahead
#ifndef VMPOOL_POOL_VMPOOL_DEBUG_H_
#define VMPOOL_POOL_VMPOOL_DEBUG_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vmp_debug_stats {
  size_t struct_size;
  uint64_t fills, failed_fills;              // of freed blocks
  uint64_t quarantined_blocks, quarantined;  // freed, not handed out again yet; bytes
  uint64_t guarded_blocks, guarded;          // live or in quarantine, in front of a guard slot; bytes
} vmp_debug_stats;
#define VMP_DEBUG_STATS_INIT VMP_INIT(vmp_debug_stats)

// vmp_pool_debug_stats: VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_debug_stats(vmp_pool *pool, vmp_debug_stats *out_stats);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_DEBUG_H_
