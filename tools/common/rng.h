// rng.h: the tool's seeded generator. The same seed gives the same numbers on every machine.
//
// splitmix64 (Steele, Lea and Flood, 2014): one 64-bit state, every seed is good.
#ifndef VMPOOL_TOOLS_COMMON_RNG_H_
#define VMPOOL_TOOLS_COMMON_RNG_H_

#include <math.h>
#include <stdint.h>

typedef struct rng {
  uint64_t state;
} rng;

static inline uint64_t rng_next(rng *r) {
  uint64_t z = (r->state += UINT64_C(0x9e3779b97f4a7c15));
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

// rng_between draws uniformly from low to high, both included; low must not be above high.
static inline uint64_t rng_between(rng *r, uint64_t low, uint64_t high) {
  const uint64_t span = high - low + 1;
  if (span == 0) return rng_next(r);
  const uint64_t limit = UINT64_MAX - (UINT64_MAX % span + 1) % span;  // the last value of the last whole span
  uint64_t value;
  do {
    value = rng_next(r);
  } while (value > limit);
  return low + value % span;
}

// rng_unit draws from the open interval (0, 1).
static inline double rng_unit(rng *r) { return ((double)(rng_next(r) >> 11) + 0.5) * 0x1p-53; }

// rng_normal draws from the standard normal distribution (Box and Muller).
static inline double rng_normal(rng *r) {
  const double radius = sqrt(-2 * log(rng_unit(r)));
  return radius * cos(2 * 3.14159265358979323846 * rng_unit(r));
}

#endif  // VMPOOL_TOOLS_COMMON_RNG_H_
