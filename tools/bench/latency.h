// latency.h: how long single allocations take: percentiles, those that made a driver call apart.
//
// Durations go into a histogram whose buckets are exact up to 127 ticks and within 1/128 above, so that measuring
// touches little memory of its own.
#ifndef VMPOOL_TOOLS_BENCH_LATENCY_H_
#define VMPOOL_TOOLS_BENCH_LATENCY_H_

#include "tools/bench/bench.h"
#include "tools/bench/target.h"
#include "tools/bench/timing.h"

#define LATENCY_SUB_BITS 7u
#define LATENCY_BUCKETS ((64 - LATENCY_SUB_BITS + 1) << LATENCY_SUB_BITS)

typedef struct latency_histogram {
  uint64_t counts[LATENCY_BUCKETS];
  uint64_t total, largest;
} latency_histogram;

// latency: over 100 KB; lives on the heap.
typedef struct latency {
  latency_histogram plain, with_driver_calls;
  uint64_t start_ns, start_ticks;
} latency;

// latency_bucket maps a duration to its bucket, latency_value a bucket to the least duration in it.
static inline unsigned latency_bucket(uint64_t ticks) {
  if (ticks < 1u << LATENCY_SUB_BITS) return (unsigned)ticks;
  const unsigned shift = 63u - (unsigned)__builtin_clzll(ticks) - LATENCY_SUB_BITS;
  return (shift << LATENCY_SUB_BITS) + (unsigned)(ticks >> shift);
}
uint64_t latency_value(unsigned bucket);

static inline void latency_add(latency_histogram *h, uint64_t ticks) {
  h->counts[latency_bucket(ticks)]++;
  h->total++;
  if (ticks > h->largest) h->largest = ticks;
}

// latency_at returns the duration at rank q (0 to 1) of all; 0 of none.
uint64_t latency_at(const latency_histogram *h, double q);

// latency_alloc is target_alloc of a pool, with a stopwatch.
TARGET_INLINE bool latency_alloc(target_kind kind, latency *l, const bench_target *t, void **out_ptr, size_t bytes) {
  const uint64_t calls = target_driver_calls(t);
  const uint64_t start = now_ticks();
  const vmp_status status = vmp_alloc(t->pool, out_ptr, bytes, NULL);
  const uint64_t spent = now_ticks() - start;
  latency_add(target_driver_calls(t) == calls ? &l->plain : &l->with_driver_calls, spent);
  if (status < 0) return false;
  return kind == TARGET_POOL || vmp_host_kernel(t->driver, 0, *out_ptr, bytes, 1, NULL) >= 0;
}

// latency_begin and latency_end enclose all measured allocations; the latter fills in the result's figures.
void latency_begin(latency *l);
void latency_end(latency *l, bench_result *result);

#endif  // VMPOOL_TOOLS_BENCH_LATENCY_H_
