// histogram.c: see histogram.h.
#include "pool/histogram.h"

#include <stdlib.h>

#include "vmm/memory.h"

#define STEP_BYTES (UINT64_C(1) << VMP_HISTOGRAM_STEP_LOG2)

// place_of: row and bucket of a size in steps. Row 0 has the first 32 steps, each later one a doubling.
static void place_of(uint64_t steps, unsigned *out_row, unsigned *out_bucket) {
  uint64_t last = steps - 1;
  if (last < VMP_HISTOGRAM_ROW) {
    *out_row = 0;
    *out_bucket = (unsigned)last;
    return;
  }
  unsigned log2 = vmp_log2(last);
  *out_row = log2 - VMP_HISTOGRAM_ROW_LOG2 + 1;
  *out_bucket = (unsigned)(last >> (log2 - VMP_HISTOGRAM_ROW_LOG2)) & (VMP_HISTOGRAM_ROW - 1);
}

static uint64_t steps_of(uint64_t bytes) { return bytes == 0 ? 1 : ((bytes - 1) >> VMP_HISTOGRAM_STEP_LOG2) + 1; }

// ---- repeated sizes ----

// group_of: the places that a size may have, VMP_HISTOGRAM_PROBES of them.
static vmp_size_count *group_of(const vmp_histogram *h, uint64_t bytes) {
  uint64_t hash = (bytes >> VMP_HISTOGRAM_STEP_LOG2) * UINT64_C(0x9e3779b97f4a7c15) >> 32;
  return &h->repeated[hash % (VMP_HISTOGRAM_REPEATED / VMP_HISTOGRAM_PROBES) * VMP_HISTOGRAM_PROBES];
}

// find_size: the size's entry; or one that it may have, a free one or else the first whose own size came only once; or
// NULL.
static vmp_size_count *find_size(const vmp_histogram *h, uint64_t bytes) {
  vmp_size_count *room = NULL, *once = NULL, *group = group_of(h, bytes);
  for (vmp_size_count *entry = group; entry < group + VMP_HISTOGRAM_PROBES; entry++) {
    if (entry->bytes == bytes) return entry;
    if (entry->count > 1) continue;
    if (once == NULL) once = entry;
    if (entry->bytes == 0 && room == NULL) room = entry;
  }
  return room != NULL ? room : once;
}

static void note_size(vmp_histogram *h, uint64_t bytes, uint64_t weight) {
  if (h->repeated == NULL) h->repeated = vmp_mem_calloc(VMP_HISTOGRAM_REPEATED, sizeof *h->repeated);
  if (h->repeated == NULL) return;
  vmp_size_count *entry = find_size(h, bytes);
  if (entry == NULL) return;
  if (entry->bytes != bytes) *entry = (vmp_size_count){.bytes = bytes};
  entry->count += weight;
}

// ---- counting ----

void vmp_histogram_note(vmp_histogram *h, uint64_t bytes, uint64_t weight) {
  unsigned row, bucket;
  if (weight == 0 || bytes == 0) return;
  place_of(steps_of(bytes), &row, &bucket);
  if (row >= VMP_HISTOGRAM_ROWS) return;
  if (h->rows[row] == NULL) h->rows[row] = vmp_mem_calloc(VMP_HISTOGRAM_ROW, sizeof **h->rows);
  if (h->rows[row] == NULL) {
    h->dropped += weight;
    return;
  }
  vmp_size_bucket *b = &h->rows[row][bucket];
  b->count += weight;
  b->sum_bytes += weight * bytes;
  if (bytes > b->most_bytes) b->most_bytes = bytes;
  h->total += weight;
  note_size(h, bytes, weight);
}

void vmp_histogram_age(vmp_histogram *h) {
  h->total = 0;
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) {
    for (unsigned i = 0; h->rows[row] != NULL && i < VMP_HISTOGRAM_ROW; i++) {
      vmp_size_bucket *b = &h->rows[row][i];
      uint64_t mean = b->count == 0 ? 0 : b->sum_bytes / b->count;
      b->count /= 2;
      b->sum_bytes = mean * b->count;
      if (b->count == 0) b->most_bytes = 0;
      h->total += b->count;
    }
  }
  for (size_t i = 0; h->repeated != NULL && i < VMP_HISTOGRAM_REPEATED; i++) {
    h->repeated[i].count /= 2;
    if (h->repeated[i].count == 0) h->repeated[i].bytes = 0;
  }
}

void vmp_histogram_free(vmp_histogram *h) {
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) vmp_mem_free(h->rows[row]);
  vmp_mem_free(h->repeated);
  *h = (vmp_histogram){.total = 0};
}

uint64_t vmp_histogram_metadata_bytes(const vmp_histogram *h) {
  uint64_t bytes = h->repeated == NULL ? 0 : VMP_HISTOGRAM_REPEATED * sizeof *h->repeated;
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) {
    if (h->rows[row] != NULL) bytes += VMP_HISTOGRAM_ROW * sizeof **h->rows;
  }
  return bytes;
}

// ---- points ----

static int compare_counts(const void *a, const void *b) {
  uint64_t left = ((const vmp_size_count *)a)->bytes, right = ((const vmp_size_count *)b)->bytes;
  return left < right ? -1 : left > right ? 1 : 0;
}

// sorted_sizes writes the sizes that were asked for at least twice in rising order.
static size_t sorted_sizes(const vmp_histogram *h, vmp_size_count *out) {
  size_t n = 0;
  for (size_t i = 0; h->repeated != NULL && i < VMP_HISTOGRAM_REPEATED; i++) {
    if (h->repeated[i].count > 1) out[n++] = h->repeated[i];
  }
  qsort(out, n, sizeof *out, compare_counts);
  return n;
}

size_t vmp_histogram_points(const vmp_histogram *h, vmp_size_point *out) {
  vmp_size_count sizes[VMP_HISTOGRAM_REPEATED];
  size_t num_sizes = sorted_sizes(h, sizes), next = 0, n = 0;
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) {
    for (unsigned i = 0; h->rows[row] != NULL && i < VMP_HISTOGRAM_ROW; i++) {
      const vmp_size_bucket *b = &h->rows[row][i];
      if (b->count == 0) continue;
      uint64_t count = b->count, sum = b->sum_bytes;
      bool largest_told = false;
      // The bucket's own sizes come first; aging has rounded, so none may take more than is left.
      for (; next < num_sizes && sizes[next].bytes <= b->most_bytes; next++) {
        uint64_t bytes = sizes[next].bytes, most = sizes[next].count < count ? sizes[next].count : count;
        if (bytes != 0 && most > sum / bytes) most = sum / bytes;
        if (most == 0) continue;
        out[n++] = (vmp_size_point){.most_bytes = bytes, .count = most, .sum_bytes = most * bytes};
        count -= most;
        sum -= most * bytes;
        largest_told = bytes == b->most_bytes;
      }
      if (count == 0) continue;
      vmp_size_point rest = {.most_bytes = b->most_bytes, .count = count, .sum_bytes = sum};
      if (largest_told) {  // keep the order strict: the rest joins it
        out[n - 1].count += rest.count;
        out[n - 1].sum_bytes += rest.sum_bytes;
      } else {
        out[n++] = rest;
      }
    }
  }
  return n;
}

size_t vmp_histogram_check(const vmp_histogram *h, vmp_report *report) {
  size_t before = report->faults;
  uint64_t total = 0;
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) {
    for (unsigned i = 0; h->rows[row] != NULL && i < VMP_HISTOGRAM_ROW; i++) {
      const vmp_size_bucket *b = &h->rows[row][i];
      unsigned at_row, at;
      place_of(steps_of(b->most_bytes), &at_row, &at);
      if (b->count > 0 && (at_row != row || at != i)) {
        vmp_report_fault(report, "histogram: bucket %u of row %u has a size of %llu bytes", i, row,
                         (unsigned long long)b->most_bytes);
      }
      if (b->sum_bytes / STEP_BYTES > b->count * (steps_of(b->most_bytes))) {
        vmp_report_fault(report, "histogram: bucket %u of row %u sums up to more than its requests could", i, row);
      }
      total += b->count;
    }
  }
  if (total != h->total) {
    vmp_report_fault(report, "histogram: %llu requests are counted, and the buckets have %llu",
                     (unsigned long long)h->total, (unsigned long long)total);
  }
  for (size_t i = 0; h->repeated != NULL && i < VMP_HISTOGRAM_REPEATED; i++) {
    const vmp_size_count *entry = &h->repeated[i];
    if (entry->bytes == 0 ? entry->count != 0 : entry->count == 0) {
      vmp_report_fault(report, "histogram: entry %zu has %llu requests of %llu bytes", i,
                       (unsigned long long)entry->count, (unsigned long long)entry->bytes);
    }
    if (entry->bytes != 0 && find_size(h, entry->bytes) != entry) {
      vmp_report_fault(report, "histogram: entry %zu isn't found by its size of %llu bytes", i,
                       (unsigned long long)entry->bytes);
    }
  }
  return report->faults - before;
}
