// guard.c: see guard.h.
#include "pool/guard.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <unistd.h>

#include "vmm/error.h"

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

bool vmp_guard_asks_forked(const vmp_guard *guard) {
  return guard->owner_process != (int32_t)getpid();
}

void vmp_guard_wait(vmp_guard *guard) { (void)pthread_cond_wait(&guard->changed, &guard->mutex); }
void vmp_guard_wake_all(vmp_guard *guard) { (void)pthread_cond_broadcast(&guard->changed); }

bool vmp_guard_was_free(vmp_guard *guard) {
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
