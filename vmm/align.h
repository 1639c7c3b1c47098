// align.h: checked size arithmetic and bit scans. Everything is a pure function of its arguments.
//
// Every sum, product or rounding of sizes that a caller can influence goes through here: the result is
// delivered only if it did not wrap.
#ifndef VMPOOL_VMM_ALIGN_H_
#define VMPOOL_VMM_ALIGN_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// vmp_is_power_of_two: 0 is none.
static inline bool vmp_is_power_of_two(uint64_t value) { return value != 0 && (value & (value - 1)) == 0; }

// vmp_add sets *out = a + b and returns true, or returns false on overflow (*out is then untouched).
static inline bool vmp_add(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t sum;
  if (__builtin_add_overflow(a, b, &sum)) return false;
  *out = sum;
  return true;
}

// vmp_mul sets *out = a * b and returns true, or returns false on overflow (*out is then untouched).
static inline bool vmp_mul(uint64_t a, uint64_t b, uint64_t *out) {
  uint64_t product;
  if (__builtin_mul_overflow(a, b, &product)) return false;
  *out = product;
  return true;
}

static inline uint64_t vmp_align_down(uint64_t value, uint64_t power_of_two) { return value & ~(power_of_two - 1); }

// vmp_align_up rounds up to a multiple of a power of two; false when the result would wrap.
static inline bool vmp_align_up(uint64_t value, uint64_t power_of_two, uint64_t *out) {
  uint64_t sum;
  if (!vmp_add(value, power_of_two - 1, &sum)) return false;
  *out = vmp_align_down(sum, power_of_two);
  return true;
}

// vmp_log2 returns the index of the highest set bit; value must not be 0.
static inline unsigned vmp_log2(uint64_t value) { return 63u - (unsigned)__builtin_clzll(value); }

// vmp_lowest_bit returns the index of the lowest set bit; value must not be 0.
static inline unsigned vmp_lowest_bit(uint64_t value) { return (unsigned)__builtin_ctzll(value); }

// vmp_next_power_of_two rounds up; 0 gives 1; false when the result would not fit.
static inline bool vmp_next_power_of_two(uint64_t value, uint64_t *out) {
  if (value <= 1) {
    *out = 1;
    return true;
  }
  unsigned bits = vmp_log2(value - 1) + 1;
  if (bits > 63) return false;
  *out = UINT64_C(1) << bits;
  return true;
}

#endif  // VMPOOL_VMM_ALIGN_H_
