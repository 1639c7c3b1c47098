// guard.c: see guard.h.
#include "pool/guard.h"

#include <errno.h>
#include <linux/membarrier.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "vmm/error.h"

_Thread_local char vmp_guard_thread __attribute__((tls_model("initial-exec")));

static bool membarrier(int command) { return syscall(SYS_membarrier, command, 0, 0) == 0; }

bool vmp_guard_barrier_open(void) { return membarrier(MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED); }

// nap lets go of the processor for a while. The C library's nanosleep is a point where a thread may be cancelled, here
// with the lock.
static void nap(long microseconds) {
  const struct timespec time = {0, microseconds * 1000};
  (void)syscall(SYS_nanosleep, &time, NULL);
}

// The kernel may lack memory for a moment, or have lost the registration (a process that was restored). Without a
// barrier there is no going on: two threads would be inside.
void vmp_guard_barrier(void) {
  for (unsigned tries = 1; !membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED); tries++) {
    if (errno == EPERM) (void)vmp_guard_barrier_open();
    if (tries % 64 == 0 && membarrier(MEMBARRIER_CMD_GLOBAL)) return;
    nap(tries < 64 ? 1 : 1000);
  }
}

// make_mark maps a page that a fork wipes, and marks it. NULL: not possible here.
static _Atomic uint32_t *make_mark(void) {
#ifdef MADV_WIPEONFORK
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  void *memory = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return NULL;
  if (madvise(memory, page, MADV_WIPEONFORK) != 0) {
    (void)munmap(memory, page);
    return NULL;
  }
  _Atomic uint32_t *mark = memory;
  atomic_store_explicit(mark, 1, memory_order_relaxed);
  return mark;
#else
  return NULL;
#endif
}

vmp_status vmp_guard_init(vmp_guard *guard) {
  if (pthread_mutex_init(&guard->mutex, NULL) != 0) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the pool's lock");
  }
  if (pthread_cond_init(&guard->changed, NULL) != 0) {
    (void)pthread_mutex_destroy(&guard->mutex);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the pool's lock");
  }
  guard->owner_process = (int32_t)getpid();
  guard->mark = make_mark();
  guard->can_bias = vmp_guard_barrier_open();
  guard->streak_of = NULL;
  guard->streak = 0;
  guard->lean_after = VMP_GUARD_STREAK;
  atomic_init(&guard->bias, NULL);
  return VMP_OK;
}

void vmp_guard_destroy(vmp_guard *guard) {
  if (!vmp_guard_forked(guard)) {
    (void)pthread_cond_destroy(&guard->changed);
    (void)pthread_mutex_destroy(&guard->mutex);
  }
  if (guard->mark != NULL) (void)munmap((void *)guard->mark, (size_t)sysconf(_SC_PAGESIZE));
  guard->mark = NULL;
}

bool vmp_guard_asks_forked(const vmp_guard *guard) { return guard->owner_process != (int32_t)getpid(); }

// ---- the thread that it leans to ----

// wait_for_seat: mostly a microsecond, unless the thread isn't running.
static void wait_for_seat(const vmp_guard_seat *seat) {
  for (unsigned turns = 0; atomic_load_explicit(seat, memory_order_acquire) != 0; turns++) {
    if (turns < 100) {
      (void)sched_yield();
    } else {
      nap(50);  // it may be a thread that a yield doesn't let run
    }
  }
}

void vmp_guard_end_streak(vmp_guard *guard) {
  const vmp_guard_seat *seat = atomic_load_explicit(&guard->bias, memory_order_relaxed);
  guard->streak_of = NULL;
  if (seat == NULL) return;
  atomic_store(&guard->bias, NULL);
  vmp_guard_barrier();
  wait_for_seat(seat);
}

void vmp_guard_drop_bias(vmp_guard *guard) {
  if (guard->streak_of != vmp_guard_self()) return;
  atomic_store(&guard->bias, NULL);
  guard->streak_of = NULL;
}

void vmp_guard_enter_often(vmp_guard *guard, vmp_guard_seat *seat) {
  vmp_guard_lock(guard);
  if (guard->streak_of == NULL) {
    guard->streak_of = vmp_guard_self();
    guard->streak = 0;
  }
  if (guard->streak < guard->lean_after) guard->streak++;
  // It may lean to another seat of this thread, which isn't inside: it is here.
  if (guard->streak >= guard->lean_after && guard->can_bias) {
    atomic_store_explicit(&guard->bias, seat, memory_order_relaxed);
  }
}

// ---- waiting ----

void vmp_guard_wait_for(vmp_guard *guard, pthread_cond_t *condition) {
  (void)pthread_cond_wait(condition, &guard->mutex);
  vmp_guard_took(guard);
}
void vmp_guard_wait(vmp_guard *guard) { vmp_guard_wait_for(guard, &guard->changed); }
void vmp_guard_wake_all(vmp_guard *guard) { (void)pthread_cond_broadcast(&guard->changed); }

bool vmp_guard_was_free(vmp_guard *guard) {
  const vmp_guard_seat *seat = atomic_load(&guard->bias);
  if (seat != NULL && atomic_load(seat) != 0) return false;
  if (pthread_mutex_trylock(&guard->mutex) != 0) return false;
  (void)pthread_mutex_unlock(&guard->mutex);
  return true;
}

static void hook_lock(void *self) {
  if (!vmp_guard_forked(self)) vmp_guard_lock(self);
}
static void hook_unlock(void *self) {
  if (!vmp_guard_forked(self)) vmp_guard_unlock(self);
}
static void hook_wait(void *self) {
  if (!vmp_guard_forked(self)) vmp_guard_wait(self);
}
static void hook_wake_all(void *self) {
  if (!vmp_guard_forked(self)) vmp_guard_wake_all(self);
}

vmp_lock_hooks vmp_guard_hooks(vmp_guard *guard) {
  vmp_lock_hooks hooks = {guard, hook_lock, hook_unlock, hook_wait, hook_wake_all};
  return hooks;
}
