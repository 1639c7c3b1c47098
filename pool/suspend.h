// suspend.h: what the files behind vmp_pool_suspend and vmp_pool_resume share.
//
//     suspend.c          suspending: wait, save, let go of the claims, give the memory back
//     suspend_resume.c   resuming: claim, load, hand the claims to the blocks again
//     suspend_content.c  content to host memory and back: the pinned buffer, a stream of its own
#ifndef VMPOOL_POOL_SUSPEND_H_
#define VMPOOL_POOL_SUSPEND_H_

#include "pool/pool.h"

// vmp_backup: the content of one block in host memory, or with whom it is.
typedef struct vmp_backup {
  uint64_t bytes;
  void *self;                                                                    // of `load`
  vmp_status (*load)(void *self, void *ptr, uint64_t bytes, vmp_stream stream);  // NULL: the content is here
  unsigned char content[];
} vmp_backup;

#define VMP_MOVER_BYTES (UINT64_C(16) << 20)

// vmp_mover copies content. Hold no lock of the pool around its functions.
typedef struct vmp_mover {
  vmp_pool *pool;
  vmp_cu_stream stream;  // its own; NULL: not made yet
  void *buffer;          // pinned; NULL: not made
  uint64_t buffer_bytes;
  bool busy;   // work has been queued, and not seen to end
  bool known;  // the clock knows the stream
} vmp_mover;

// vmp_mover_open makes the stream, and with buffer_bytes > 0 the buffer. Driver failures, after which nothing is left.
vmp_status vmp_mover_open(vmp_mover *mover, vmp_pool *pool, uint64_t buffer_bytes);
// vmp_mover_close gives both back; what the driver refuses to take stays with the pool, for vmp_movers_retry, which every
// open calls, and the end of the pool.
void vmp_mover_close(vmp_mover *mover);
// vmp_movers_retry: VMP_OK, or the driver's failure where copies of an earlier call may still run.
vmp_status vmp_movers_retry(vmp_pool *pool);
// vmp_mover_fence: what the stream may still touch, should waiting for it have failed. None where all has been seen to
// end.
vmp_fence vmp_mover_fence(vmp_mover *mover);
// vmp_mover_save and _load copy and wait for it. Driver failures.
vmp_status vmp_mover_save(vmp_mover *mover, void *dst, vmp_cu_ptr src, uint64_t bytes);
vmp_status vmp_mover_load(vmp_mover *mover, vmp_cu_ptr dst, const void *src, uint64_t bytes);
// vmp_mover_wait waits for what a callback has queued.
vmp_status vmp_mover_wait(vmp_mover *mover);

// vmp_tag_block: a live block of a tag.
typedef struct vmp_tag_block {
  uint64_t offset, bytes;
} vmp_tag_block;
// vmp_tag_blocks lists the live blocks of a tag, by address. The caller frees *out_blocks.
// VMP_ERROR_HOST_OUT_OF_MEMORY. The lock is held.
vmp_status vmp_tag_blocks(vmp_pool *pool, vmp_tag tag, vmp_tag_block **out_blocks, size_t *out_count);

// vmp_suspend_find finds the domain of a suspendable tag. VMP_ERROR_INVALID_VALUE.
vmp_status vmp_suspend_find(vmp_pool *pool, vmp_tag tag, vmp_domain **out_domain);
// vmp_suspend_give_back gives the domain's idle chunks back to the device. MAY UNLOCK. The first driver failure.
vmp_status vmp_suspend_give_back(vmp_domain *domain, uint64_t *out_bytes, uint64_t *out_chunks);

#endif  // VMPOOL_POOL_SUSPEND_H_
