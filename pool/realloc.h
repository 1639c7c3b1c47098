// realloc.h: what the files behind vmp_realloc share.
//
//     realloc.c       the call: looking the block up, shrinking, growing in place
//     realloc_move.c  to other addresses: by mapping, by copying
//     realloc_layers.c  the block's layer
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

// vmp_resize_may_remap: the block's addresses are mid's or buddy's alone; small blocks share a span, guarded ones
// (debug.h) end where a guard begins.
static inline bool vmp_resize_may_remap(const vmp_resize *r) {
  vmp_layer layer = vmp_block_layer(r->word);
  return layer == VMP_LAYER_MID || (layer == VMP_LAYER_BUDDY && !r->pool->config.guard_slots);
}

// ---- realloc_layers.c: mid_resize.h and buddy_resize.h, for the block's own layer, which isn't slab ----
// vmp_resize_keep_bytes: what the block will hold. False: more than any address space.
bool vmp_resize_keep_bytes(const vmp_resize *r, uint64_t *out_bytes);
uint64_t vmp_resize_room(const vmp_resize *r, uint64_t most);
vmp_status vmp_resize_take_behind(vmp_resize *r, uint64_t more_bytes, vmp_placed *out_placed);
// vmp_resize_reserve: addresses that lie in their granules as the block's do. MAY UNLOCK.
vmp_status vmp_resize_reserve(vmp_resize *r, uint64_t bytes, uint64_t *out_offset);
void vmp_resize_untake(vmp_resize *r, uint64_t offset, vmp_fence fence);
// vmp_resize_free_part frees what was taken behind the block, or split off it, and holds its claim.
void vmp_resize_free_part(vmp_resize *r, uint64_t offset, vmp_fence fence);
void vmp_resize_merge(vmp_resize *r);
vmp_status vmp_resize_split(vmp_resize *r, uint64_t bytes);

// ---- realloc.c ----

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
