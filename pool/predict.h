// predict.h: how much memory a step will need, and the thread that maps it ahead. See vmpool_predict.h.
//
//     vmp_pool_step ── learn (under the pool's lock) ──> wanted ──post──> worker ──> vmp_backing_map_ahead, chunk by
//     chunk
//                                                                            '── lets go of the pool's lock around
//                                                                            calls
//
// Owns: the marks of the last steps, the thread, what it was asked for and has answered. Does not own: where memory
// goes (mid says where the next block would grow), chunks (backing).
//
// What is learnt: a step's need is the most that was live in it, times what the memory that grew for it was larger than
// that (fragmentation). A step in which nothing grew says nothing about the latter.
//
// Locks: the pool's lock guards the marks; `mutex` guards the rest, and is never held together with the pool's.
#ifndef VMPOOL_POOL_PREDICT_H_
#define VMPOOL_POOL_PREDICT_H_

#include <pthread.h>
#include <stdatomic.h>

#include "pool/pool.h"

#define VMP_PREDICT_STEPS 8u  // steps that are remembered

typedef struct vmp_predict {
  vmp_pool *pool;
  // Guarded by the pool's lock.
  uint64_t marks_bytes[VMP_PREDICT_STEPS];  // a ring: the need of the last steps
  uint64_t learnt;                          // steps since the last vmp_predict_forget
  double overhead;                          // held bytes to live ones; at least 1
  uint64_t created;                         // chunks that existed when the step began, by whomever
  uint64_t created_ahead;                   // ... that the worker had made
  // Guarded by `mutex`.
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  uint64_t wanted_bytes;          // memory to be held
  uint64_t asked, answered;       // numbers of requests
  _Atomic uint64_t ahead_chunks;  // made by the worker
  _Atomic bool stop;
  pthread_t thread;
} vmp_predict;

// vmp_predict_start starts the worker; the pool is complete. VMP_ERROR_HOST_OUT_OF_MEMORY: no memory, or no thread.
vmp_status vmp_predict_start(vmp_pool *pool);
// vmp_predict_end ends the worker: it finishes the driver call that it is in. Without the lock; no worker is fine. In a
// forked child only memory is freed.
void vmp_predict_end(vmp_pool *pool);

// vmp_predict_learn takes in the step that has just ended and returns how much memory should be held for the next ones.
// The lock is held.
uint64_t vmp_predict_learn(vmp_pool *pool);
// vmp_predict_post asks the worker for it; vmp_predict_wait waits until it has answered. Without the lock.
void vmp_predict_post(vmp_pool *pool, uint64_t wanted_bytes);
void vmp_predict_wait(vmp_pool *pool);
// vmp_predict_forget: memory was given back on purpose. The lock is held; no worker is fine.
void vmp_predict_forget(vmp_pool *pool);

#endif  // VMPOOL_POOL_PREDICT_H_
