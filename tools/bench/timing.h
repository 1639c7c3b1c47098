// timing.h: clocks, and what is said about a few samples.
#ifndef VMPOOL_TOOLS_BENCH_TIMING_H_
#define VMPOOL_TOOLS_BENCH_TIMING_H_

#include <stddef.h>
#include <stdint.h>
#include <time.h>

static inline uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// now_ticks reads the cheapest clock there is, for single calls; ticks become nanoseconds by comparing a long stretch
// with now_ns.
static inline uint64_t now_ticks(void) {
#if defined(__x86_64__)
  return __builtin_ia32_rdtsc();
#else
  return now_ns();
#endif
}

// timing_median returns the middle of the samples (the mean of the two middle ones), which it sorts; 0 of none.
double timing_median(double *samples, size_t count);

#endif  // VMPOOL_TOOLS_BENCH_TIMING_H_
