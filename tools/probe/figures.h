// figures.h: what becomes of measured times: their spread, and a straight line through them. Arithmetic only.
#ifndef VMPOOL_TOOLS_PROBE_FIGURES_H_
#define VMPOOL_TOOLS_PROBE_FIGURES_H_

#include <stdbool.h>
#include <stddef.h>

// probe_spread: repeated measurements of one thing, in microseconds.
typedef struct probe_spread {
  size_t samples;   // 0: nothing was measured, and the rest is 0
  double first_us;  // the very first call, before the warm-up; not one of the samples
  double min_us, p10_us, median_us, p90_us, max_us;
} probe_spread;

// probe_spread_of sorts `samples` and describes them. p10 and p90 are the smallest sample that a tenth, and nine
// tenths, of all samples don't exceed; the median of an even number is the mean of the middle two. first_us is 0.
probe_spread probe_spread_of(double *samples, size_t count);

// probe_fit: y = fixed + share * x, neither below 0.
typedef struct probe_fit {
  bool known;  // false: there are not two different x, so the two parts can't be told apart
  double fixed, share;
  double residual;  // the largest distance of a point from the line
} probe_fit;

// probe_fit_line fits by least squares under fixed >= 0 and share >= 0: no part of a cost is negative.
probe_fit probe_fit_line(const double *x, const double *y, size_t count);

#endif  // VMPOOL_TOOLS_PROBE_FIGURES_H_
