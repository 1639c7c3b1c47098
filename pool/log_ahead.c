// log_ahead.c: windows made ahead of need by a thread of the log's own. See log_internal.h.
//
//     writer   full: takes the oldest ready one, leaves its old window     (waits only where none is ready)
//     thread   unmaps old ones, makes the next until enough are ready, or the disk is full
//
// The writer leaves one window for each that it takes, so there are never more old ones than were ready, and one.
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include "pool/log_internal.h"

static void unmap_written(log_ahead *a) {
  while (a->num_written > 0) {
    vmp_log_record *window = a->written[--a->num_written];
    (void)pthread_mutex_unlock(&a->mutex);
    (void)munmap(window, LOG_WINDOW_BYTES);
    (void)pthread_mutex_lock(&a->mutex);
  }
}

static void make_one(vmp_log *log) {
  log_ahead *a = &log->ahead;
  uint64_t first = a->first;
  (void)pthread_mutex_unlock(&a->mutex);
  vmp_log_record *window = log_make_window(log->fd, first, LOG_WINDOW_RECORDS);
  (void)pthread_mutex_lock(&a->mutex);
  a->failed = window == NULL;
  if (window != NULL) {
    a->ready[a->num_ready++] = window;
    a->first += LOG_WINDOW_RECORDS;
  }
  (void)pthread_cond_broadcast(&a->changed);
}

static void *run(void *context) {
  vmp_log *log = context;
  log_ahead *a = &log->ahead;
  (void)pthread_mutex_lock(&a->mutex);
  while (!a->stop) {
    unmap_written(a);
    if (a->failed || a->num_ready == LOG_AHEAD_WINDOWS) {
      if (!a->stop && a->num_written == 0) (void)pthread_cond_wait(&a->changed, &a->mutex);
    } else {
      make_one(log);
    }
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
  while (a->num_written > 0) (void)munmap(a->written[--a->num_written], LOG_WINDOW_BYTES);
  while (a->num_ready > 0) (void)munmap(a->ready[--a->num_ready], LOG_WINDOW_BYTES);
  (void)pthread_cond_destroy(&a->changed);
  (void)pthread_mutex_destroy(&a->mutex);
  a->running = false;
}

vmp_log_record *log_ahead_swap(vmp_log *log) {
  log_ahead *a = &log->ahead;
  vmp_log_record *window = NULL;
  (void)pthread_mutex_lock(&a->mutex);
  while (!a->failed && a->num_ready == 0) (void)pthread_cond_wait(&a->changed, &a->mutex);
  if (a->num_ready > 0) {
    window = a->ready[0];
    a->num_ready--;
    memmove(a->ready, a->ready + 1, a->num_ready * sizeof a->ready[0]);
    a->written[a->num_written++] = log->window;
    (void)pthread_cond_broadcast(&a->changed);
  }
  (void)pthread_mutex_unlock(&a->mutex);
  return window;
}
