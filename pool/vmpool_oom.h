// vmpool_oom.h: what a caller may do when memory runs out. Included by vmpool.h.
//
// Before an allocation fails the pool tries, in this order: what threads keep; free memory in place; spare, new and
// parked chunks; edges; addresses and memory whose work has finished; chunks of other sizes; idle memory of the
// driver's other pools on the device; the callback below; waiting for GPU work (option `wait`). Inside a stream capture
// it asks nobody.
#ifndef VMPOOL_POOL_VMPOOL_OOM_H_
#define VMPOOL_POOL_VMPOOL_OOM_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_oom_fn is called when `bytes` can't be had, by the thread that allocates, without any lock of the pool. It may
// call everything of this and of other pools but destroy them: free blocks, trim, ask for statistics, allocate. It
// returns 1 when it makes sense to try again, else 0. `attempt` counts from 0 for each allocation; after
// VMP_OOM_MAX_ATTEMPTS calls it isn't asked any more. An allocation that it makes itself doesn't call it (nor another
// pool's) again.
#define VMP_OOM_MAX_ATTEMPTS 8u
typedef int (*vmp_oom_fn)(void *user, vmp_pool *pool, uint64_t bytes, unsigned attempt);

// vmp_pool_set_oom_callback sets it; NULL: none. A call that is under way in another thread goes on after it.
// VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_set_oom_callback(vmp_pool *pool, vmp_oom_fn fn, void *user);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_OOM_H_
