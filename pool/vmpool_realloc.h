// vmpool_realloc.h: blocks that grow and shrink and keep their content. Included by vmpool.h.
#ifndef VMPOOL_POOL_VMPOOL_REALLOC_H_
#define VMPOOL_POOL_VMPOOL_REALLOC_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vmp_realloc_report {
  size_t struct_size;
  int moved;                // 1: the address has changed
  uint64_t copied_bytes;    // copied on the device, in stream order
  uint64_t remapped_bytes;  // moved with their content, by mapping them at the new address
} vmp_realloc_report;
#define VMP_REALLOC_REPORT_INIT VMP_INIT(vmp_realloc_report)

// vmp_realloc makes the block at *inout_ptr `bytes` long and keeps its content up to the shorter of both lengths. It
// shrinks in place; it grows in place where the addresses behind the block are free. Otherwise the physical chunks that
// the block has for itself are mapped at a larger range, and only what shares a chunk with other blocks (or is no chunk
// of its own, as small blocks) is copied, on `stream`. *inout_ptr is the new address; a moved block is aligned to 512.
//
// Stream order: the content is there for work that is submitted to `stream` from the return on; `stream` is ordered
// behind the streams that vmp_record_use named. Work that was submitted before goes on under the old address, whose
// mapping stays until that work has finished; nothing may be submitted with it afterwards. A block that stays where it
// is keeps its recorded streams; one that moves has none. Tag and name stay.
//
// *inout_ptr NULL: as vmp_alloc. bytes 0: as vmp_free, and *inout_ptr becomes NULL. While the call is under way the
// block is busy: freeing it, pinning it and so on from another thread is VMP_ERROR_BUSY. In the statistics a block that
// has changed its size counts as one free and one allocation. `out_report` may be NULL.
//
// Errors, after which nothing has changed: as vmp_alloc and vmp_free; VMP_ERROR_BUSY (the block is pinned and can't
// grow where it is, or another thread is reallocating it), VMP_ERROR_SUSPENDED (its tag is suspended),
// VMP_ERROR_CAPTURE (a graph holds the block, or `stream` is being captured).
VMP_API vmp_status vmp_realloc(vmp_pool *pool, void **inout_ptr, size_t bytes, vmp_stream stream,
                               vmp_realloc_report *out_report);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_REALLOC_H_
