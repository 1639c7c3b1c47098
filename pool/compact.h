// compact.h: which chunks are split and meshed, within the limits of a run. See vmpool_compact.h and
// vmm/backing_compact.h.
#ifndef VMPOOL_POOL_COMPACT_H_
#define VMPOOL_POOL_COMPACT_H_

#include "pool/pool.h"
#include "vmm/backing_compact.h"

typedef struct vmp_compact {
  uint32_t allow;           // VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH
  bool dry;                 // only say what would be done
  uint64_t deadline_us;     // of CLOCK_MONOTONIC; UINT64_MAX: none
  uint64_t max_calls;       // driver calls besides copies; UINT64_MAX: none
  uint64_t max_copy_bytes;  // UINT64_MAX: none

  // What was done, and what was left.
  vmp_compact_report done;
  uint64_t split_chunks, meshed_chunks;
  uint64_t gained_bytes;    // physical memory that live blocks pin no longer
  uint64_t released_bytes;  // of it, given back to the device
  uint64_t pinned_bytes;    // left alone: pinned
  uint64_t other_bytes;     // left alone: shared, kept apart, of others than blocks
  bool beyond_time, beyond_calls, beyond_copies;
} vmp_compact;

// vmp_compact_run splits and meshes, best gain first. The caller has been promised quiescence. Failures: what was done
// before stays; the chunk at which it failed is as before, or lost (backing_compact.h). VMP_ERROR_HOST_OUT_OF_MEMORY,
// driver failures. MAY UNLOCK.
vmp_status vmp_compact_run(vmp_pool *pool, vmp_compact *compact);

#endif  // VMPOOL_POOL_COMPACT_H_
