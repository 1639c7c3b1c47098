// histogram.h: which sizes are asked for, and how often.
//
//     rows      one for each doubling, made when a size falls into it
//     row       32 buckets: how many requests, the sum of their bytes, the largest of them
//     repeated  a table of 512 sizes that were asked for again and again, each with its own count
//
// Owns: counts. Does not own: what is made of them (adapt.c). Counting is a few steps and never fails: where no host
// memory for a row is left, its requests are not counted. Bounded: 40 rows of 768 bytes, and the table.
//
// A count in the table is exact from the moment the size got in, which is at its first request while there is room.
// When the table is full, sizes that came only once since then make room.
//
// The caller holds the pool's lock. Requests that a thread cache serves are not seen one by one: a refill counts for
// all that it brings (vmp_histogram_note with a weight).
#ifndef VMPOOL_POOL_HISTOGRAM_H_
#define VMPOOL_POOL_HISTOGRAM_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/align.h"
#include "vmm/error.h"

#define VMP_HISTOGRAM_STEP_LOG2 9u  // sizes count in steps of 512 bytes, rounded up
#define VMP_HISTOGRAM_ROW_LOG2 5u   // 32 buckets to a doubling
#define VMP_HISTOGRAM_ROW (1u << VMP_HISTOGRAM_ROW_LOG2)
#define VMP_HISTOGRAM_ROWS 40u  // sizes up to 2^53
#define VMP_HISTOGRAM_REPEATED 512u
#define VMP_HISTOGRAM_PROBES 8u

typedef struct vmp_size_bucket {
  uint64_t count, sum_bytes, most_bytes;
} vmp_size_bucket;

typedef struct vmp_size_count {
  uint64_t bytes, count;  // bytes 0: nobody's
} vmp_size_count;

// vmp_size_group: the places that a size may have, and what tells most of them apart without looking at them.
typedef struct vmp_size_group {
  uint64_t tags;       // a byte of each place's size, by a hash; the lowest is of place 0
  uint8_t used, kept;  // bit i: the place is somebody's; its size came more than once
  vmp_size_count places[VMP_HISTOGRAM_PROBES];
} vmp_size_group;
_Static_assert(VMP_HISTOGRAM_PROBES == sizeof(uint64_t), "a byte for each place");
#define VMP_HISTOGRAM_GROUPS (VMP_HISTOGRAM_REPEATED / VMP_HISTOGRAM_PROBES)

typedef struct vmp_histogram {
  vmp_size_bucket *rows[VMP_HISTOGRAM_ROWS];
  vmp_size_group *repeated;  // VMP_HISTOGRAM_GROUPS of them, or NULL
  uint64_t total;            // requests counted
  uint64_t dropped;          // requests that could not be
} vmp_histogram;

// vmp_histogram_note counts `weight` requests of `bytes`; none of 0 bytes.
void vmp_histogram_note(vmp_histogram *h, uint64_t bytes, uint64_t weight);
// vmp_histogram_age halves all counts, so that what is asked for now outweighs what was.
void vmp_histogram_age(vmp_histogram *h);
// vmp_histogram_free frees the rows; a zeroed one is fine, and it is one afterwards.
void vmp_histogram_free(vmp_histogram *h);
uint64_t vmp_histogram_metadata_bytes(const vmp_histogram *h);

// vmp_size_point: requests that are alike: one size of the table, or the rest of a bucket.
typedef struct vmp_size_point {
  uint64_t most_bytes;  // the largest of them
  uint64_t count, sum_bytes;
} vmp_size_point;

#define VMP_HISTOGRAM_MAX_POINTS (VMP_HISTOGRAM_ROWS * VMP_HISTOGRAM_ROW + VMP_HISTOGRAM_REPEATED)
// vmp_histogram_points writes all points in rising order of size to `out`, which has room for VMP_HISTOGRAM_MAX_POINTS,
// and returns their number. All counts together are h->total.
size_t vmp_histogram_points(const vmp_histogram *h, vmp_size_point *out);

// vmp_histogram_check reports every broken invariant and returns their number.
size_t vmp_histogram_check(const vmp_histogram *h, vmp_report *report);

#endif  // VMPOOL_POOL_HISTOGRAM_H_
