// realloc.h: what the files behind vmp_realloc share.
//
//     realloc.c       the call: looking the block up, shrinking, growing in place
//     realloc_move.c  to other addresses: by mapping, by copying
#ifndef VMPOOL_POOL_REALLOC_H_
#define VMPOOL_POOL_REALLOC_H_

#include "pool/pool.h"

// vmp_resize: one vmp_realloc on its way. The block is live and, while it grows, busy: nobody else touches it.
typedef struct vmp_resize {
  vmp_pool *pool;
  vmp_stream stream;
  vmp_stream_index index;
  void *ptr;  // the block's address; in the end its new one
  uint64_t offset, word;
  uint64_t held_bytes, requested_bytes;  // now
  uint64_t bytes;                        // asked for
  vmp_label label;
  vmp_domain *domain;
  vmp_realloc_report report;
} vmp_resize;

// vmp_resize_mid: the mid that the block lies in, if it is mid's.
static inline vmp_mid *vmp_resize_mid(const vmp_resize *r) { return r->domain == NULL ? r->pool->mid : r->domain->mid; }

// vmp_resize_users: who may still touch the block: the stream, and the recorded ones, each as of now.
vmp_fence vmp_resize_users(const vmp_resize *r);

// vmp_resize_claim claims a range that holds no claim, by every step of the ladder. *out_after: what the stream has to
// be ordered behind, beside the fences of the addresses. MAY UNLOCK. As vmp_ladder_take.
vmp_status vmp_resize_claim(vmp_resize *r, uint64_t offset, uint64_t bytes, vmp_fence *out_after);

// vmp_resize_order orders the stream behind a fence. MAY UNLOCK.
vmp_status vmp_resize_order(vmp_resize *r, vmp_fence fence);

// vmp_resize_settle enters the block's new place and length in the books, which have room for it, and tells the log.
// `old_streams_done`: the stream is ordered behind the recorded ones.
void vmp_resize_settle(vmp_resize *r, uint64_t offset, uint64_t held_bytes, bool old_streams_done, vmp_fence users);

// vmp_resize_move moves the block to a range of the new length, with its chunks or by copying. The lock is held before
// and after. MAY UNLOCK.
vmp_status vmp_resize_move(vmp_resize *r);

#endif  // VMPOOL_POOL_REALLOC_H_
