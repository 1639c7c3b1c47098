// log_ahead.c: windows made ahead of need by a thread of the log's own. See log_internal.h.
//
//     writer   full: takes READY, leaves the old window, wants the next       (waits only where the disk is too slow)
//     thread   WANTED: unmaps the old one, makes the next -> READY, or FAILED
#include <signal.h>
#include <sys/mman.h>

#include "pool/log_internal.h"

static void *run(void *context) {
  vmp_log *log = context;
  log_ahead *a = &log->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  while (!a->stop) {
    if (a->state != AHEAD_WANTED) {
      (void)pthread_cond_wait(&a->changed, &a->mutex);
      continue;
    }
    vmp_log_record *written = a->written;
    a->written = NULL;
    uint64_t first = a->first;
    (void)pthread_mutex_unlock(&a->mutex);
    if (written != NULL) (void)munmap(written, LOG_WINDOW_BYTES);
    vmp_log_record *window = log_make_window(log->fd, first, LOG_WINDOW_RECORDS);
    (void)pthread_mutex_lock(&a->mutex);
    a->window = window;
    a->state = window == NULL ? AHEAD_FAILED : AHEAD_READY;
    (void)pthread_cond_broadcast(&a->changed);
  }
  (void)pthread_mutex_unlock(&a->mutex);
  return NULL;
}

void log_ahead_start(vmp_log *log, uint64_t first) {
  log_ahead *a = &log->ahead;
  sigset_t all, old;
  a->first = first;
  if (pthread_mutex_init(&a->mutex, NULL) != 0) return;
  if (pthread_cond_init(&a->changed, NULL) != 0) {
    (void)pthread_mutex_destroy(&a->mutex);
    return;
  }
  // The program's signals are not for this thread.
  (void)sigfillset(&all);
  (void)pthread_sigmask(SIG_SETMASK, &all, &old);
  a->running = pthread_create(&a->thread, NULL, run, log) == 0;
  (void)pthread_sigmask(SIG_SETMASK, &old, NULL);
  if (a->running) return;
  (void)pthread_cond_destroy(&a->changed);
  (void)pthread_mutex_destroy(&a->mutex);
}

void log_ahead_stop(vmp_log *log, bool forked) {
  log_ahead *a = &log->ahead;
  if (!a->running || forked) return;
  (void)pthread_mutex_lock(&a->mutex);
  a->stop = true;
  (void)pthread_cond_broadcast(&a->changed);
  (void)pthread_mutex_unlock(&a->mutex);
  (void)pthread_join(a->thread, NULL);
  if (a->written != NULL) (void)munmap(a->written, LOG_WINDOW_BYTES);
  if (a->window != NULL) (void)munmap(a->window, LOG_WINDOW_BYTES);
  (void)pthread_cond_destroy(&a->changed);
  (void)pthread_mutex_destroy(&a->mutex);
  a->running = false;
}

vmp_log_record *log_ahead_swap(vmp_log *log) {
  log_ahead *a = &log->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  while (a->state == AHEAD_WANTED) (void)pthread_cond_wait(&a->changed, &a->mutex);
  vmp_log_record *window = a->window;
  a->window = NULL;
  if (window != NULL) {
    a->written = log->window;
    a->first += LOG_WINDOW_RECORDS;
    a->state = AHEAD_WANTED;
    (void)pthread_cond_broadcast(&a->changed);
  }
  (void)pthread_mutex_unlock(&a->mutex);
  return window;
}
