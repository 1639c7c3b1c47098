#include "tools/vmpool/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

progress progress_start(void) { return (progress){.terminal = isatty(STDERR_FILENO) != 0, .start_ns = now_ns()}; }

void progress_show(void *context, const char *what, double share) {
  progress *p = context;
  if (!p->terminal) return;
  const uint64_t now = now_ns();
  if (now - p->start_ns < 500000000u || now - p->last_ns < 200000000u) return;
  p->last_ns = now;
  p->drawn = true;
  fprintf(stderr, "\r\033[K%s  %.0f %%", what, 100 * (share < 1 ? share : 1));
  fflush(stderr);
}

void progress_end(progress *p) {
  if (p->drawn) fputs("\r\033[K", stderr);
  p->drawn = false;
}
