// process_hooks.c: see process_hooks.h.
#include "pool/process_hooks.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "vmm/error.h"

#define PLACES 64
#define SIGNALS 65

struct vmp_hook {
  bool taken;
  _Atomic int signal;  // 0: none
  _Atomic int fd;      // of the place, once it had one; 0: none yet
  void (*at_exit)(void *self);
  void *self;
};

static vmp_hook places[PLACES];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static unsigned wanted[SIGNALS];  // places per signal
static struct sigaction before[SIGNALS];
static bool exit_is_set;

static void handle(int number, siginfo_t *info, void *context) {
  int saved = errno;
  uint64_t one = 1;
  for (int i = 0; i < PLACES; i++) {
    if (atomic_load_explicit(&places[i].signal, memory_order_acquire) != number) continue;
    ssize_t written = write(atomic_load(&places[i].fd), &one, sizeof one);
    (void)written;  // full: it is readable anyway
  }
  const struct sigaction *old = &before[number];
  if ((old->sa_flags & SA_SIGINFO) != 0) {
    if (old->sa_sigaction != NULL) old->sa_sigaction(number, info, context);
  } else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) {
    old->sa_handler(number);
  }
  errno = saved;
}

static void run_at_exit(void) {
  (void)pthread_mutex_lock(&mutex);
  for (int i = 0; i < PLACES; i++) {
    if (places[i].taken && places[i].at_exit != NULL) places[i].at_exit(places[i].self);
  }
  (void)pthread_mutex_unlock(&mutex);
}

static vmp_status want_signal(vmp_hook *hook, int number) {
  if (hook->fd == 0) {
    int fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (fd < 0)
      return vmp_fail(VMP_ERROR_IO, "an event descriptor for signal %d can't be made: %s", number, strerror(errno));
    atomic_store(&hook->fd, fd);
  }
  if (wanted[number] == 0) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handle;
    action.sa_flags = SA_SIGINFO | SA_RESTART;
    (void)sigemptyset(&action.sa_mask);
    if (sigaction(number, &action, &before[number]) != 0) {
      return vmp_fail(VMP_ERROR_IO, "the handler of signal %d can't be set: %s", number, strerror(errno));
    }
  }
  wanted[number]++;
  atomic_store_explicit(&hook->signal, number, memory_order_release);
  return VMP_OK;
}

static vmp_status take_locked(vmp_hook *hook, int number, void (*at_exit)(void *self), void *self) {
  if (at_exit != NULL && !exit_is_set) {
    if (atexit(run_at_exit) != 0) return vmp_fail(VMP_ERROR_IO, "a function to run at exit can't be entered");
    exit_is_set = true;
  }
  if (number != 0) {
    vmp_status status = want_signal(hook, number);
    if (status != VMP_OK) return status;
  }
  hook->at_exit = at_exit;
  hook->self = self;
  hook->taken = true;
  return VMP_OK;
}

vmp_status vmp_hook_take(vmp_hook **out_hook, int number, void (*at_exit)(void *self), void *self, int *out_fd) {
  vmp_status status = VMP_ERROR_LIMIT;
  (void)pthread_mutex_lock(&mutex);
  int i = 0;
  while (i < PLACES && places[i].taken) i++;
  if (i < PLACES) status = take_locked(&places[i], number, at_exit, self);
  (void)pthread_mutex_unlock(&mutex);
  if (i == PLACES)
    return vmp_fail(VMP_ERROR_LIMIT, "%d pools of this process wait for a signal or its exit already", PLACES);
  if (status != VMP_OK) return status;
  *out_hook = &places[i];
  *out_fd = number == 0 ? -1 : atomic_load(&places[i].fd);
  return VMP_OK;
}

void vmp_hook_give(vmp_hook *hook) {
  if (hook == NULL) return;
  (void)pthread_mutex_lock(&mutex);
  int number = atomic_exchange(&hook->signal, 0);
  if (number != 0 && --wanted[number] == 0) {
    struct sigaction now;
    bool ours = sigaction(number, NULL, &now) == 0 && (now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == handle;
    if (ours) (void)sigaction(number, &before[number], NULL);
  }
  hook->at_exit = NULL;
  hook->taken = false;
  (void)pthread_mutex_unlock(&mutex);
}
