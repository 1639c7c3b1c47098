#include "tools/bench/timing.h"

#include <stdlib.h>

static int compare(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

double timing_median(double *samples, size_t count) {
  if (count == 0) return 0;
  qsort(samples, count, sizeof(*samples), compare);
  return (samples[(count - 1) / 2] + samples[count / 2]) / 2;
}
