// vmpool_stats.h: statistics by layer and by stream, and what blocks are to be had. Included by vmpool.h.
//
// Words as in vmpool.h. For each quantity: what it is now, its peak since the pool was made or vmp_pool_reset_peaks was
// called last, and its total over the pool's life. Nothing here is ever negative.
//
// What is counted is read under the pool's lock at one instant. What has to be walked (memory that work may still
// touch) is walked in pieces, between which others get the lock: what changes meanwhile may be seen or not.
#ifndef VMPOOL_POOL_VMPOOL_STATS_H_
#define VMPOOL_POOL_VMPOOL_STATS_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_layer_stats: what one layer serves. Regions are no layer's.
typedef struct vmp_layer_stats {
  uint64_t live, peak_live;  // bytes
  uint64_t blocks;           // now
  uint64_t allocs, frees;    // totals
} vmp_layer_stats;

typedef struct vmp_memory_stats {
  size_t struct_size;
  uint64_t mapped, peak_mapped, total_mapped;  // total: physical memory made so far
  uint64_t live, peak_live;
  uint64_t requested, peak_requested;
  uint64_t blocks, allocs, frees, failed_allocs;
  double utilisation;         // live / mapped; 0 where nothing is mapped
  double fragmentation;       // 1 - utilisation; 0 where nothing is mapped
  uint64_t largest_mapped;    // largest block to be had without a driver call
  uint64_t largest_gathered;  // ... after vmp_pool_defragment: as much as spare memory and parked memory whose work has
                              // finished, if one free place of addresses is as large
  uint64_t largest_growing;   // ... with driver calls: also with what the limits and the device have left, and with
                              // memory that a stream has to wait for; at most a little too low
  vmp_layer_stats slab, mid, buddy;
} vmp_memory_stats;
#define VMP_MEMORY_STATS_INIT VMP_INIT(vmp_memory_stats)

// vmp_pool_memory_stats asks the device how much it has free (one driver call). VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_memory_stats(vmp_pool *pool, vmp_memory_stats *out_stats);

// vmp_stream_stats: what one stream's memory does. More than 62 streams share entries.
typedef struct vmp_stream_stats {
  vmp_stream stream;
  uint64_t thread;          // whose it is: a number for the per-thread default stream, else 0
  uint64_t allocs, frees;   // on it, totals; of earlier streams that had its entry, too
  uint64_t pending;         // bytes of parked memory that its work may still touch
  uint64_t cached;          // bytes that thread caches keep for it
  uint64_t pending_age_us;  // for how long it wasn't seen to advance, though the pool waits for its work; 0: it doesn't
} vmp_stream_stats;

// vmp_pool_stream_stats writes the streams that the pool has seen, up to `capacity` of them (out_streams may be NULL
// then), in no order. *out_count: how many there are. VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_stream_stats(vmp_pool *pool, vmp_stream_stats *out_streams, size_t capacity,
                                         size_t *out_count);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_STATS_H_
