// vtest_rng.h: a seeded generator for random tests: the same seed gives the same numbers everywhere.
//
// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014). Not thread-safe; one
// generator per thread.
#ifndef VMPOOL_TESTS_SUPPORT_VTEST_RNG_H_
#define VMPOOL_TESTS_SUPPORT_VTEST_RNG_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct vtest_rng {
  uint64_t state;
} vtest_rng;

static inline vtest_rng vtest_rng_make(uint64_t seed) {
  vtest_rng rng = {seed};
  return rng;
}

// vtest_rng_next returns 64 random bits.
static inline uint64_t vtest_rng_next(vtest_rng *rng) {
  rng->state += UINT64_C(0x9e3779b97f4a7c15);
  uint64_t z = rng->state;
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

// vtest_rng_below returns a number in [0, bound), each equally likely; bound must not be 0.
static inline uint64_t vtest_rng_below(vtest_rng *rng, uint64_t bound) {
  uint64_t reject = (UINT64_MAX - bound + 1) % bound;  // 2^64 mod bound: the values that would weigh twice
  uint64_t value;
  do {
    value = vtest_rng_next(rng);
  } while (value < reject);
  return value % bound;
}

// vtest_rng_range returns a number in [low, high], each equally likely; low <= high.
static inline uint64_t vtest_rng_range(vtest_rng *rng, uint64_t low, uint64_t high) {
  uint64_t width = high - low + 1;
  return width == 0 ? vtest_rng_next(rng) : low + vtest_rng_below(rng, width);
}

// vtest_rng_log returns a number in [low, high] whose magnitudes are equally likely, as allocation sizes are:
// first a power of two, then a number up to it. 1 <= low <= high.
static inline uint64_t vtest_rng_log(vtest_rng *rng, uint64_t low, uint64_t high) {
  unsigned low_bits = 63u - (unsigned)__builtin_clzll(low);
  unsigned high_bits = 63u - (unsigned)__builtin_clzll(high);
  unsigned bits = (unsigned)vtest_rng_range(rng, low_bits, high_bits);
  uint64_t from = UINT64_C(1) << bits;
  uint64_t to = from + (from - 1);
  return vtest_rng_range(rng, from < low ? low : from, to > high ? high : to);
}

// vtest_rng_chance is true in `part` of `whole` cases; whole must not be 0.
static inline bool vtest_rng_chance(vtest_rng *rng, uint64_t part, uint64_t whole) {
  return vtest_rng_below(rng, whole) < part;
}

#endif  // VMPOOL_TESTS_SUPPORT_VTEST_RNG_H_
