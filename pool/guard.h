// guard.h: the pool's lock, and the mark by which a forked child is recognised.
//
// Owns: one mutex, one condition variable, one page that the kernel wipes at a fork. Does not own: what they guard.
//
// Invariants
//   - The condition means "something may have changed": waiters look again (spurious returns are fine).
//   - In a forked child the mark reads 0: nobody locks, since the thread that held the lock may not exist there.
#ifndef VMPOOL_POOL_GUARD_H_
#define VMPOOL_POOL_GUARD_H_

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "vmm/backing.h"
#include "vmm/status.h"

typedef struct vmp_guard {
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  _Atomic uint32_t *mark;  // a page of its own; NULL where the kernel can't wipe pages: then the process id decides
  int32_t owner_process;
} vmp_guard;

// vmp_guard_init: VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_guard_init(vmp_guard *guard);
void vmp_guard_destroy(vmp_guard *guard);

// vmp_guard_forked says whether the calling process is a fork of the one that made the guard. Costs one load.
bool vmp_guard_asks_forked(const vmp_guard *guard);  // the same, by the process id
static inline bool vmp_guard_forked(const vmp_guard *guard) {
  if (guard->mark != NULL) return atomic_load_explicit(guard->mark, memory_order_relaxed) == 0;
  return vmp_guard_asks_forked(guard);
}

static inline void vmp_guard_lock(vmp_guard *guard) { (void)pthread_mutex_lock(&guard->mutex); }
static inline void vmp_guard_unlock(vmp_guard *guard) { (void)pthread_mutex_unlock(&guard->mutex); }
// vmp_guard_wait lets go of the lock until vmp_guard_wake_all is called by anybody.
void vmp_guard_wait(vmp_guard *guard);
void vmp_guard_wake_all(vmp_guard *guard);
// vmp_guard_was_free says, in a forked child, whether nobody held the lock at the fork: what it guards is whole then.
bool vmp_guard_was_free(vmp_guard *guard);

// vmp_guard_hooks returns the same as functions for backing. In a forked child they do nothing.
vmp_lock_hooks vmp_guard_hooks(vmp_guard *guard);

#endif  // VMPOOL_POOL_GUARD_H_
