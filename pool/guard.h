// guard.h: the pool's lock, and the mark by which a forked child is recognised.
//
// Owns: one mutex, one condition variable, one page that the kernel wipes at a fork, and the calls that make other
// threads' stores visible. Does not own: what they guard.
//
// The lock is a mutex that may lean to one thread: a thread that has entered often, with nobody else in between, enters
// without the mutex from then on, until another thread wants in. A thread has a SEAT, or several: a word that only it
// writes.
//
//     the thread it leans to                       another thread
//     seat = 1           plain store               take the mutex
//     bias is my seat? no: seat = 0, take the      bias = nobody
//                                       mutex      membarrier: every thread's earlier stores are visible, later loads
//     ... what the lock guards ...                   see `bias`
//     seat = 0                                     wait until that seat is 0
//                                                  ... what the lock guards ...     give the mutex back
//
// (Were the word the guard's own, a thread that is late, between its look and its store, would put it back to 0 while
// the lock leans to somebody else by then, who is inside.)
//
// Invariants
//   - Once vmp_guard_lock, _enter_often or a wait has returned, nobody else is inside without the mutex, until it is
//     given back. Only who holds the mutex changes `bias` (and, in a forked child, its only thread).
//   - It leans to the thread `streak_of`, by a seat whose memory stays at least until that thread calls
//     vmp_guard_drop_bias. (One that allocates in the last round of its destructors never does: its cache stays, too,
//     the seat is 0, and a later thread of the same identity takes its turn over.)
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

// So many times a thread enters, with nobody else in between, before the lock leans to it, if nothing else is said
// (lean_after): to end that costs another thread some microseconds.
#define VMP_GUARD_STREAK 1024u

typedef _Atomic uint32_t vmp_guard_seat;  // 1: its thread is inside, without the mutex. 0 to begin with

typedef struct vmp_guard {
  _Atomic(vmp_guard_seat *) bias;  // of the thread that it leans to; NULL: nobody
  const void *streak_of;           // who has entered last, NULL once anybody else has taken the lock
  uint32_t streak;                 // how often it has, by the mutex
  uint32_t lean_after;
  bool can_bias;
  int32_t owner_process;
  _Atomic uint32_t *mark;  // a page of its own; NULL where the kernel can't wipe pages: then the process id decides
  pthread_mutex_t mutex;
  pthread_cond_t changed;
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

// vmp_guard_self: the calling thread, as no other living one has it.
extern _Thread_local char vmp_guard_thread __attribute__((tls_model("initial-exec")));
static inline const void *vmp_guard_self(void) { return &vmp_guard_thread; }

// vmp_guard_took: the caller has got the mutex. If somebody else has entered last, that is over.
void vmp_guard_end_streak(vmp_guard *guard);
static inline void vmp_guard_took(vmp_guard *guard) {
  if (guard->streak_of != NULL && guard->streak_of != vmp_guard_self()) vmp_guard_end_streak(guard);
}

static inline void vmp_guard_lock(vmp_guard *guard) {
  (void)pthread_mutex_lock(&guard->mutex);
  vmp_guard_took(guard);
}
static inline void vmp_guard_unlock(vmp_guard *guard) { (void)pthread_mutex_unlock(&guard->mutex); }

// vmp_guard_enter takes the lock for a short while: what is called meanwhile neither waits nor lets go of it. `seat` is
// the calling thread's, one of possibly several. True: the lock leans to it. vmp_guard_leave gives it back and is told
// which.
void vmp_guard_enter_often(vmp_guard *guard, vmp_guard_seat *seat);  // by the mutex; in the end it leans to the seat
__attribute__((always_inline)) static inline bool vmp_guard_enter(vmp_guard *guard, vmp_guard_seat *seat) {
  if (__builtin_expect(atomic_load_explicit(&guard->bias, memory_order_relaxed) == seat, true)) {
    atomic_store_explicit(seat, 1, memory_order_relaxed);
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&guard->bias, memory_order_acquire) == seat, true)) return true;
    atomic_store_explicit(seat, 0, memory_order_release);
  }
  vmp_guard_enter_often(guard, seat);
  return false;
}
__attribute__((always_inline)) static inline void vmp_guard_leave(vmp_guard *guard, vmp_guard_seat *seat, bool leans) {
  if (__builtin_expect(leans, true)) {
    atomic_store_explicit(seat, 0, memory_order_release);
  } else {
    vmp_guard_unlock(guard);
  }
}

// vmp_guard_drop_bias: a seat of the calling thread, which holds the lock, is about to go.
void vmp_guard_drop_bias(vmp_guard *guard);

// vmp_guard_wait lets go of the lock until vmp_guard_wake_all is called by anybody; vmp_guard_wait_for until another
// condition is signalled. The caller took it by vmp_guard_lock.
void vmp_guard_wait(vmp_guard *guard);
void vmp_guard_wait_for(vmp_guard *guard, pthread_cond_t *condition);
void vmp_guard_wake_all(vmp_guard *guard);
// vmp_guard_was_free says, in a forked child, whether nobody held the lock at the fork: what it guards is whole then.
bool vmp_guard_was_free(vmp_guard *guard);

// vmp_guard_barrier_open says whether the kernel can make every thread of this process see what this one has stored,
// and this one what they have; vmp_guard_barrier does that, and doesn't return before. A process that forbids
// membarrier by a filter does so before it makes a pool.
bool vmp_guard_barrier_open(void);
void vmp_guard_barrier(void);

// vmp_guard_hooks returns the same as functions for backing. In a forked child they do nothing.
vmp_lock_hooks vmp_guard_hooks(vmp_guard *guard);

#endif  // VMPOOL_POOL_GUARD_H_
