// vmpool_predict.h: the strategy *predictive*: memory is mapped ahead of need, by a thread of the pool. Included by
// vmpool.h.
//
// With `strategy:predictive` (preset training) the pool learns from vmp_pool_step how much memory a step needs at most,
// and one worker thread maps that much, and `margin` more, before the next steps need it: they make no driver call
// then. The worker creates memory only up to the limits and to half of what the device has left, 1 chunk at a time; no
// allocation waits for it. The margin counts in full for the first two steps, and shrinks as more of them are known (by
// 2/n with the n-th). A vmp_pool_trim that gives memory back makes the pool forget what it
// has learnt. A forked child has no worker.
#ifndef VMPOOL_POOL_VMPOOL_PREDICT_H_
#define VMPOOL_POOL_VMPOOL_PREDICT_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_pool_predict_wait waits until the worker has done, or given up, what the steps up to now made it do. VMP_OK at
// once without a worker. With the option `step_waits` vmp_pool_step does the same itself. VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_predict_wait(vmp_pool *pool);

// vmp_driver_get_thread_calls: how often the pool's kinds of driver calls were made by the calling thread, through any
// driver, since it began. So a program can tell what its own allocations cost from what the worker did.
VMP_API void vmp_driver_get_thread_calls(vmp_driver_calls *out_calls);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_PREDICT_H_
