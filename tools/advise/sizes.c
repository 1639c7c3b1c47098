#include "tools/advise/sizes.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/trace/id_map.h"

#define MAX_CLASSES 6u

typedef struct size_sum {
  uint64_t granules;
  double bytes;
} size_sum;

typedef struct counting {
  id_map index;
  size_sum *sums;
  size_t count, max;
  double total;
} counting;

static bool add(counting *c, uint64_t granules, uint64_t bytes) {
  const uint32_t *known = id_map_find(&c->index, granules);
  if (known != NULL) {
    c->sums[*known].bytes += (double)bytes;
    return true;
  }
  if (c->count == c->max) {
    const size_t wanted = c->max == 0 ? 64 : 2 * c->max;
    size_sum *grown = realloc(c->sums, wanted * sizeof(*grown));
    if (grown == NULL) return false;
    c->sums = grown;
    c->max = wanted;
  }
  c->sums[c->count] = (size_sum){.granules = granules, .bytes = (double)bytes};
  return id_map_put(&c->index, granules, (uint32_t)c->count++);
}

static bool count_sizes(trace *t, uint64_t granule, counting *c) {
  trace_event event;
  bool good = true;
  trace_rewind(t);
  while (good && trace_next(t, &event)) {
    if (event.kind != TRACE_ALLOC) continue;
    c->total += (double)event.bytes;
    if (event.bytes >= granule && event.bytes <= UINT64_MAX - granule) {
      good = add(c, (event.bytes + granule - 1) / granule, event.bytes);
    }
  }
  trace_rewind(t);
  return good;
}

static int by_bytes(const void *a, const void *b) {
  const double left = ((const size_sum *)a)->bytes, right = ((const size_sum *)b)->bytes;
  return left > right ? -1 : left < right ? 1 : 0;
}

static int by_size(const void *a, const void *b) {
  const uint64_t left = ((const size_sum *)a)->granules, right = ((const size_sum *)b)->granules;
  return left < right ? -1 : left > right ? 1 : 0;
}

static void write_classes(counting *c, uint64_t granule, char *text, size_t text_bytes) {
  size_t kept = 0, at = 0;
  double sum = 0;
  text[0] = '\0';
  if (c->count > 0) qsort(c->sums, c->count, sizeof(*c->sums), by_bytes);
  while (kept < c->count && kept < MAX_CLASSES && c->sums[kept].bytes >= c->total / 10) sum += c->sums[kept++].bytes;
  if (kept == 0 || sum < c->total / 2) return;
  qsort(c->sums, kept, sizeof(*c->sums), by_size);
  for (size_t i = 0; i < kept && at < text_bytes; i++) {
    at += (size_t)snprintf(text + at, text_bytes - at, "%s%" PRIu64 "MiB", i == 0 ? "classes:" : "+",
                           c->sums[i].granules * (granule >> 20));
  }
}

bool sizes_frequent(trace *t, uint64_t granule_bytes, char *text, size_t text_bytes) {
  counting c = {0};
  const bool good = count_sizes(t, granule_bytes, &c);
  if (good) write_classes(&c, granule_bytes, text, text_bytes);
  id_map_destroy(&c.index);
  free(c.sums);
  return good;
}
