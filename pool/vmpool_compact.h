// vmpool_compact.h: compaction, the part of vmp_pool_defragment that copies. Included by vmpool.h.
//
// A chunk that a few small blocks pin can't be given back or used elsewhere. With `allow_copy` vmp_pool_defragment
// replaces such chunks under the same addresses: no pointer changes, and only live bytes are copied, device to device.
//
//     split   a big chunk becomes chunks of one granule, for the slots that blocks touch; the rest goes back
//     mesh    slots whose live bytes don't overlap come to share one chunk, mapped at all their addresses. They take no
//             new blocks until all but one of them are empty
//
// While bytes are copied and mappings change, nobody may touch the pool's memory: no kernel, peer, graph or NIC. The
// caller promises that by vmp_quiescent_begin and _end around the call, or for ever with the option single_submitter
// (then the calling thread is the only one that submits work that touches the pool's memory). The pool synchronises the
// device besides. Other threads may allocate and free meanwhile; vmp_realloc waits until compaction is over.
//
// Left alone are: pinned memory, what is mapped at several addresses for other reasons, regions' pages, suspendable
// tags, captures.
#ifndef VMPOOL_POOL_VMPOOL_COMPACT_H_
#define VMPOOL_POOL_VMPOOL_COMPACT_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// The bits of vmp_defragment_options.allow_copy.
#define VMP_DEFRAGMENT_SPLIT 1u
#define VMP_DEFRAGMENT_MESH 2u

// vmp_quiescent_begin promises that nobody touches the pool's memory until the matching vmp_quiescent_end. May be
// nested, by several threads too. VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_quiescent_begin(vmp_pool *pool);
// vmp_quiescent_end takes the promise back. It waits for a compaction that is under way in another thread.
// VMP_ERROR_INVALID_VALUE (no vmp_quiescent_begin came before), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_quiescent_end(vmp_pool *pool);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_COMPACT_H_
