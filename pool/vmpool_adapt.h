// vmpool_adapt.h: size classes that fit what a program asks for. Included by vmpool.h.
//
// The pool counts the sizes of requests: in buckets of 1/32 of a doubling, and repeated sizes each on its own. From
// that it proposes block sizes for the option `classes`, or, with `adaptive:N`, takes over N of them by itself: at a
// vmp_pool_step, once there are 256 requests more than at the last look, if they would waste at least a tenth less than
// the classes there are. Blocks that are live then stay as they are; the classes that they are of take no new ones.
#ifndef VMPOOL_POOL_VMPOOL_ADAPT_H_
#define VMPOOL_POOL_VMPOOL_ADAPT_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

#define VMP_MAX_CLASSES 64

typedef struct vmp_class_proposal {
  size_t struct_size;
  uint64_t requests;                      // that were counted; those of thread caches by their refills
  uint64_t covered_requests;              // the smallest ones, which the classes are for
  uint64_t covered_bytes;                 // asked for by them
  double waste;                           // what rounding up would add to covered_bytes, as a share of it
  size_t num_classes;                     // fewer than asked for where fewer are as good
  uint64_t class_bytes[VMP_MAX_CLASSES];  // rising; multiples of 512, above a granule of the granule
} vmp_class_proposal;
#define VMP_CLASS_PROPOSAL_INIT VMP_INIT(vmp_class_proposal)

// vmp_pool_propose_classes proposes the `num_classes` block sizes (1 to VMP_MAX_CLASSES) that waste least on the
// smallest `share` (above 0, up to 1) of the requests so far. None where nothing was counted. VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_propose_classes(vmp_pool *pool, size_t num_classes, double share,
                                            vmp_class_proposal *out_proposal);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_ADAPT_H_
