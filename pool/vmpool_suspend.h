// vmpool_suspend.h: the memory of a suspendable tag goes back to the device and comes back at the same addresses.
// Included by vmpool.h.
//
//     vmp_pool_suspend(pool, tag, &options)     blocks stay live, at their addresses, without memory behind them
//     vmp_pool_resume(pool, tag)                memory again, at the same addresses, with the content that was kept
//
// Everything else of the pool goes on meanwhile. While a tag is suspended, its blocks may be freed, and must not be
// touched; allocating in it, reallocating and pinning is VMP_ERROR_SUSPENDED. Blocks that are pinned (and the small
// blocks that share a span with one) stay on the device.
#ifndef VMPOOL_POOL_VMPOOL_SUSPEND_H_
#define VMPOOL_POOL_VMPOOL_SUSPEND_H_

#include "pool/vmpool.h"
#include "pool/vmpool_tag.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_suspend_content: what becomes of the content.
typedef enum vmp_suspend_content {
  VMP_SUSPEND_KEEP = 0,      // copied to host memory, through a bounded pinned buffer, and back by the resume
  VMP_SUSPEND_DROP = 1,      // lost: undefined after the resume
  VMP_SUSPEND_CALLBACK = 2,  // `save` takes it away, `load` brings it back
} vmp_suspend_content;

// vmp_suspend_report: also after a failure.
typedef struct vmp_suspend_report {
  size_t struct_size;
  uint64_t suspended_bytes;  // of live blocks that are without memory now
  uint64_t saved_bytes;      // copied to host memory by this call, or handed to `save`
  uint64_t released_bytes;   // physical memory that this call gave back to the device
  uint64_t released_chunks;
  uint64_t kept_pinned_bytes;  // of blocks that stay because they, or neighbours in their span, are pinned
} vmp_suspend_report;
#define VMP_SUSPEND_REPORT_INIT VMP_INIT(vmp_suspend_report)

// Callbacks run without any lock of the pool. They queue work on `stream` or do it at once; the pool waits for the
// stream before it goes on. Anything but VMP_OK ends the suspend, or the resume, with that status.
typedef struct vmp_suspend_options {
  size_t struct_size;
  int content;            // vmp_suspend_content
  uint64_t buffer_bytes;  // of the pinned buffer; 0: 16 MiB
  void *self;             // for the callbacks, which are remembered until the tag has been resumed
  vmp_status (*save)(void *self, const void *ptr, uint64_t bytes, vmp_stream stream);
  vmp_status (*load)(void *self, void *ptr, uint64_t bytes, vmp_stream stream);
  vmp_suspend_report *report;  // NULL: none
} vmp_suspend_options;
#define VMP_SUSPEND_OPTIONS_INIT VMP_INIT(vmp_suspend_options)

// vmp_pool_suspend waits (on the host) for all work that was submitted so far, on every stream, saves the content, and
// gives the tag's physical memory back. The caller submits nothing that touches the tag's blocks from the call on.
// `options` may be NULL. A suspended tag: nothing happens but for blocks that were pinned and aren't any more, and
// memory that the driver refused to take back before. Graphs that hold blocks of the tag must not be launched until the
// resume.
//
// Errors after which nothing has changed: VMP_ERROR_INVALID_VALUE (no suspendable tag, options), VMP_ERROR_BUSY
// (another thread is suspending or resuming it, or this is a function called for lack of memory and a block of the same
// tag is being placed), VMP_ERROR_CAPTURE (a stream is being captured: nothing can be waited for), VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_FORKED, what a callback returned, and the errors of the driver while it
// waits and saves. Once the content is safe the tag is suspended, and the call can only fail to give some memory back
// (the driver's status): that stays with the pool as idle memory, the report tells how much did go, and calling again,
// or vmp_pool_trim, tries again.
VMP_API vmp_status vmp_pool_suspend(vmp_pool *pool, vmp_tag tag, const vmp_suspend_options *options);

// vmp_pool_resume maps memory at the addresses of all blocks of the tag and restores the content. When it returns,
// every stream may use them. A resident tag: VMP_OK, nothing happens. After an error (as vmp_alloc, VMP_ERROR_BUSY,
// what a callback returned) the tag is suspended as before, holds no memory, has all its content, and can be resumed
// later.
VMP_API vmp_status vmp_pool_resume(vmp_pool *pool, vmp_tag tag);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_SUSPEND_H_
