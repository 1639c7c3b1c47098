#include "tools/bench/latency.h"

#include <string.h>

uint64_t latency_value(unsigned bucket) {
  if (bucket < 2u << LATENCY_SUB_BITS) return bucket;
  const unsigned shift = (bucket >> LATENCY_SUB_BITS) - 1;
  return (uint64_t)(bucket - (shift << LATENCY_SUB_BITS)) << shift;
}

uint64_t latency_at(const latency_histogram *h, double q) {
  if (h->total == 0) return 0;
  uint64_t rank = (uint64_t)(q * (double)h->total);
  if (rank >= h->total) rank = h->total - 1;
  for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
    if (rank < h->counts[i]) return latency_value(i);
    rank -= h->counts[i];
  }
  return h->largest;
}

void latency_begin(latency *l) {
  memset(l, 0, sizeof(*l));
  l->start_ns = now_ns();
  l->start_ticks = now_ticks();
}

// What two readings of the clock are apart, in the middle of many.
static double timer_ticks(void) {
  double samples[999];
  for (unsigned i = 0; i < 999; i++) {
    const uint64_t start = now_ticks();
    samples[i] = (double)(now_ticks() - start);
  }
  return timing_median(samples, 999);
}

void latency_end(latency *l, bench_result *result) {
  const uint64_t ticks = now_ticks() - l->start_ticks, ns = now_ns() - l->start_ns;
  const double ns_per_tick = ticks > 0 ? (double)ns / (double)ticks : 1;
  result->has_latency = true;
  result->ns_p50 = ns_per_tick * (double)latency_at(&l->plain, 0.5);
  result->ns_p99 = ns_per_tick * (double)latency_at(&l->plain, 0.99);
  result->ns_p999 = ns_per_tick * (double)latency_at(&l->plain, 0.999);
  result->ns_timer = ns_per_tick * timer_ticks();
  result->driver_call_allocs = l->with_driver_calls.total;
  result->driver_call_ns_p50 = ns_per_tick * (double)latency_at(&l->with_driver_calls, 0.5);
  result->driver_call_ns_max = ns_per_tick * (double)l->with_driver_calls.largest;
}
