// context.h: a device's primary context, made current only around the calls that need one.
//
// Owns: retaining and releasing the primary context, the pair enter / leave. Keeps no state: what leave has to put
// back is in the caller's vmp_context_saved.
//
//     thread's context stack      [A]        [A ctx]              [A]
//     thread's capture mode       global     relaxed              global
//                                     enter          calls    leave
//
// Invariants
//   - After leave the calling thread's current context and capture mode are what they were before enter.
//   - A context that is current already is not pushed again.
//   - Enter that fails has changed nothing; leave must not follow.
// Pairs may nest; enter and leave of a pair are called by the same thread. All functions call the driver: hold no
// lock of the pool around them.
#ifndef VMPOOL_VMM_CONTEXT_H_
#define VMPOOL_VMM_CONTEXT_H_

#include "vmm/driver.h"
#include "vmm/error.h"

// vmp_context_retain takes one reference to the primary context of `device`, to be given back by
// vmp_context_release. It does not become current. The first one on a device is slow (it makes the context).
// VMP_ERROR_NO_DEVICE, _OUT_OF_MEMORY, _FORKED, _DRIVER and the other statuses of a failed driver call.
vmp_status vmp_context_retain(vmp_driver *driver, vmp_cu_device device, vmp_cu_context *out_context);

// vmp_context_release gives the reference back. A driver that is shutting down (code 4) has dropped the context
// already: that is VMP_OK. In a forked child nothing is done, VMP_OK. VMP_ERROR_DRIVER, VMP_ERROR_STICKY.
vmp_status vmp_context_release(vmp_driver *driver, vmp_cu_device device);

// vmp_context_saved: what one enter has changed on the thread. Filled in by enter, read by leave.
typedef struct vmp_context_saved {
  vmp_cu_context pushed;  // NULL: nothing was pushed
  int capture_mode;       // the mode to put back, where mode_exchanged
  bool mode_exchanged;
} vmp_context_saved;

// vmp_context_enter makes `context` current for the calling thread and puts the thread's stream capture mode to
// relaxed, so that calls which a capture elsewhere forbids (mem_alloc, event queries) don't break it. `context` NULL:
// only the capture mode; enough for the VMM calls, which need no context. A driver without capture modes, or
// one that refuses to exchange them, is fine: the call that follows tells why. On failure nothing has changed.
// VMP_ERROR_FORKED, _STICKY, _DEINITIALIZED, _DRIVER.
vmp_status vmp_context_enter(vmp_driver *driver, vmp_cu_context context, vmp_context_saved *out_saved);

// vmp_context_enter_only makes `context`, not NULL, current and leaves the capture mode as it is: for calls that no
// capture of another stream forbids (event records). The same failures.
vmp_status vmp_context_enter_only(vmp_driver *driver, vmp_cu_context context, vmp_context_saved *out_saved);

// vmp_context_leave puts back what enter changed, each part even if another fails. VMP_ERROR_DRIVER where the
// thread's stack could not be put back, among other things because code between the two left a context of its own
// on it (that one is left as it was). A driver that is shutting down (code 4) is VMP_OK: no context is current.
vmp_status vmp_context_leave(vmp_driver *driver, const vmp_context_saved *saved);

#endif  // VMPOOL_VMM_CONTEXT_H_
