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

#define TAG_LANES UINT64_C(0x0101010101010101)
#define TAG_TOPS UINT64_C(0x8080808080808080)

static inline uint64_t hash_of(uint64_t bytes) { return bytes * UINT64_C(0x9e3779b97f4a7c15); }

static inline vmp_size_group *group_of(const vmp_histogram *h, uint64_t hash) {
  return &h->repeated[hash >> 32 & (VMP_HISTOGRAM_GROUPS - 1)];
}

// place_with: the place of a group that has the size, or VMP_HISTOGRAM_PROBES. Tags that are equal are found as lanes
// of 0 in a difference (the lowest for certain, one above it perhaps wrongly); the sizes themselves decide.
static inline unsigned place_with(const vmp_size_group *group, uint64_t hash, uint64_t bytes) {
  uint64_t difference = group->tags ^ (hash >> 56) * TAG_LANES;
  for (uint64_t zero = (difference - TAG_LANES) & ~difference & TAG_TOPS; zero != 0; zero &= zero - 1) {
    unsigned place = vmp_lowest_bit(zero) / 8;
    if (group->places[place].bytes == bytes) return place;
  }
  return VMP_HISTOGRAM_PROBES;
}

// take_place gives a place to a new size: a free one, or else the first whose own size came only once.
static inline vmp_size_count *take_place(vmp_size_group *group, uint64_t hash, uint64_t bytes) {
  uint8_t room = (uint8_t)~group->used;
  if (room == 0) room = (uint8_t)~group->kept;
  if (room == 0) return NULL;
  unsigned place = vmp_lowest_bit(room), shift = place * 8;
  group->tags = (group->tags & ~(UINT64_C(0xff) << shift)) | (hash >> 56) << shift;
  group->used |= (uint8_t)(1u << place);
  group->places[place] = (vmp_size_count){.bytes = bytes};
  return &group->places[place];
}

static inline void note_size(vmp_histogram *h, uint64_t bytes, uint64_t weight) {
  uint64_t hash = hash_of(bytes);
  vmp_size_group *group = group_of(h, hash);
  unsigned place = place_with(group, hash, bytes);
  vmp_size_count *entry = place < VMP_HISTOGRAM_PROBES ? &group->places[place] : take_place(group, hash, bytes);
  if (entry == NULL) return;
  entry->count += weight;
  if (entry->count > 1) group->kept |= (uint8_t)(1u << (entry - group->places));
}

// ---- counting ----

static inline void note_bucket(vmp_histogram *h, vmp_size_bucket *b, uint64_t bytes, uint64_t weight) {
  b->count += weight;
  b->sum_bytes += weight * bytes;
  if (bytes > b->most_bytes) b->most_bytes = bytes;
  h->total += weight;
}

// note_first makes what is missing, as far as there is host memory.
__attribute__((noinline)) static void note_first(vmp_histogram *h, unsigned row, unsigned bucket, uint64_t bytes,
                                                 uint64_t weight) {
  if (h->rows[row] == NULL) h->rows[row] = vmp_mem_calloc(VMP_HISTOGRAM_ROW, sizeof **h->rows);
  if (h->rows[row] == NULL) {
    h->dropped += weight;
    return;
  }
  note_bucket(h, &h->rows[row][bucket], bytes, weight);
  if (h->repeated == NULL) h->repeated = vmp_mem_calloc(VMP_HISTOGRAM_GROUPS, sizeof *h->repeated);
  if (h->repeated != NULL) note_size(h, bytes, weight);
}

void vmp_histogram_note(vmp_histogram *h, uint64_t bytes, uint64_t weight) {
  unsigned row, bucket;
  if (weight == 0 || bytes == 0) return;
  place_of(steps_of(bytes), &row, &bucket);
  if (row >= VMP_HISTOGRAM_ROWS) return;
  vmp_size_bucket *buckets = h->rows[row];
  if (__builtin_expect(buckets == NULL || h->repeated == NULL, false)) {
    note_first(h, row, bucket, bytes, weight);
    return;
  }
  note_bucket(h, &buckets[bucket], bytes, weight);
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
    vmp_size_group *group = &h->repeated[i / VMP_HISTOGRAM_PROBES];
    vmp_size_count *entry = &group->places[i % VMP_HISTOGRAM_PROBES];
    uint8_t bit = (uint8_t)(1u << i % VMP_HISTOGRAM_PROBES);
    entry->count /= 2;
    if (entry->count == 0) entry->bytes = 0;
    if (entry->count == 0) group->used &= (uint8_t)~bit;
    if (entry->count <= 1) group->kept &= (uint8_t)~bit;
  }
}

void vmp_histogram_free(vmp_histogram *h) {
  for (unsigned row = 0; row < VMP_HISTOGRAM_ROWS; row++) vmp_mem_free(h->rows[row]);
  vmp_mem_free(h->repeated);
  *h = (vmp_histogram){.total = 0};
}

uint64_t vmp_histogram_metadata_bytes(const vmp_histogram *h) {
  uint64_t bytes = h->repeated == NULL ? 0 : VMP_HISTOGRAM_GROUPS * sizeof *h->repeated;
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
    const vmp_size_count *entry = &h->repeated[i / VMP_HISTOGRAM_PROBES].places[i % VMP_HISTOGRAM_PROBES];
    if (entry->count > 1) out[n++] = *entry;
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

static void check_group(const vmp_histogram *h, size_t index, vmp_report *report) {
  const vmp_size_group *group = &h->repeated[index];
  for (unsigned i = 0; i < VMP_HISTOGRAM_PROBES; i++) {
    const vmp_size_count *entry = &group->places[i];
    size_t number = index * VMP_HISTOGRAM_PROBES + i;
    if (entry->bytes == 0 ? entry->count != 0 : entry->count == 0) {
      vmp_report_fault(report, "histogram: entry %zu has %llu requests of %llu bytes", number,
                       (unsigned long long)entry->count, (unsigned long long)entry->bytes);
    }
    if ((group->used >> i & 1) != (entry->bytes != 0) || (group->kept >> i & 1) != (entry->count > 1)) {
      vmp_report_fault(report, "histogram: the bits of entry %zu are wrong", number);
    }
    uint64_t hash = hash_of(entry->bytes);
    if (entry->bytes != 0 && (group_of(h, hash) != group || place_with(group, hash, entry->bytes) != i)) {
      vmp_report_fault(report, "histogram: entry %zu isn't found by its size of %llu bytes", number,
                       (unsigned long long)entry->bytes);
    }
  }
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
  for (size_t i = 0; h->repeated != NULL && i < VMP_HISTOGRAM_GROUPS; i++) check_group(h, i, report);
  return report->faults - before;
}
