// tally.h: how many allocations and frees, by layer and by stream; peaks by layer. Counted where the pool's own
// counters are, under its lock; a thread cache's hits when it is folded.
//
// Owns: the counts. Does not own: what is live (pool.h).
//
// Invariants
//   - slab's counts are what is left of the pool's without mid's and buddy's.
//   - the counts of all streams together are the pool's.
#ifndef VMPOOL_POOL_TALLY_H_
#define VMPOOL_POOL_TALLY_H_

#include <stdint.h>

#include "vmm/clock.h"

#define VMP_TALLY_LAYERS 3u
#define VMP_TALLY_STREAMS 64u  // indices of the clock

typedef struct vmp_tally {
  uint64_t allocs[VMP_TALLY_LAYERS], frees[VMP_TALLY_LAYERS];  // slab's (0) are not counted
  uint64_t peak_bytes[VMP_TALLY_LAYERS];
  uint64_t stream_allocs[VMP_TALLY_STREAMS], stream_frees[VMP_TALLY_STREAMS];
} vmp_tally;

// vmp_tally_alloc and vmp_tally_free count one; live_bytes: what the layer has live afterwards.
static inline void vmp_tally_alloc(vmp_tally *t, unsigned layer, vmp_stream_index stream, uint64_t live_bytes) {
  t->allocs[layer]++;
  t->stream_allocs[stream]++;
  if (live_bytes > t->peak_bytes[layer]) t->peak_bytes[layer] = live_bytes;
}
static inline void vmp_tally_free(vmp_tally *t, unsigned layer, vmp_stream_index stream) {
  t->frees[layer]++;
  t->stream_frees[stream]++;
}
// vmp_tally_fold counts what a thread cache has served; most_bytes: the most that slab had live meanwhile.
static inline void vmp_tally_fold(vmp_tally *t, vmp_stream_index stream, uint64_t allocs, uint64_t frees,
                                  uint64_t most_bytes) {
  t->stream_allocs[stream] += allocs;
  t->stream_frees[stream] += frees;
  if (most_bytes > t->peak_bytes[0]) t->peak_bytes[0] = most_bytes;
}

#endif  // VMPOOL_POOL_TALLY_H_
