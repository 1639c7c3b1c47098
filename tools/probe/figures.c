// figures.c: see figures.h.
#include "tools/probe/figures.h"

#include <math.h>
#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

// The smallest sample that at least `tenths` tenths of all don't exceed.
static double rank(const double *sorted, size_t count, size_t tenths) {
  const size_t position = (count * tenths + 9) / 10;
  return sorted[position == 0 ? 0 : position - 1];
}

probe_spread probe_spread_of(double *samples, size_t count) {
  probe_spread spread = {.samples = count};
  if (count == 0) return spread;
  qsort(samples, count, sizeof(samples[0]), compare);
  spread.min_us = samples[0];
  spread.p10_us = rank(samples, count, 1);
  spread.median_us = count % 2 == 1 ? samples[count / 2] : (samples[count / 2 - 1] + samples[count / 2]) / 2;
  spread.p90_us = rank(samples, count, 9);
  spread.max_us = samples[count - 1];
  return spread;
}

// sums: all that a line needs to know of the points.
typedef struct sums {
  double n, x, y, xx, xy;
} sums;

static double squared_error(const double *x, const double *y, size_t count, double fixed, double share) {
  double error = 0;
  for (size_t i = 0; i < count; i++) error += (y[i] - fixed - share * x[i]) * (y[i] - fixed - share * x[i]);
  return error;
}

// The best line under the constraint is the best line, or lies on the border: one of the parts is 0.
static void choose(const double *x, const double *y, size_t count, const sums *s, probe_fit *fit) {
  const double determinant = s->n * s->xx - s->x * s->x;
  fit->share = (s->n * s->xy - s->x * s->y) / determinant;
  fit->fixed = (s->y - fit->share * s->x) / s->n;
  if (fit->share >= 0 && fit->fixed >= 0) return;
  const double flat = s->y > 0 ? s->y / s->n : 0;      // share 0
  const double steep = s->xy > 0 ? s->xy / s->xx : 0;  // fixed 0
  const bool is_flat = squared_error(x, y, count, flat, 0) <= squared_error(x, y, count, 0, steep);
  fit->fixed = is_flat ? flat : 0;
  fit->share = is_flat ? 0 : steep;
}

probe_fit probe_fit_line(const double *x, const double *y, size_t count) {
  probe_fit fit = {0};
  sums s = {.n = (double)count};
  for (size_t i = 0; i < count; i++) {
    if (x[i] > x[0] || x[i] < x[0]) fit.known = true;
    s.x += x[i];
    s.y += y[i];
    s.xx += x[i] * x[i];
    s.xy += x[i] * y[i];
  }
  if (!fit.known) return fit;
  choose(x, y, count, &s, &fit);
  for (size_t i = 0; i < count; i++) fit.residual = fmax(fit.residual, fabs(y[i] - fit.fixed - fit.share * x[i]));
  return fit;
}
