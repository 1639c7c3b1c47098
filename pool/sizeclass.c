// sizeclass.c: see sizeclass.h.
#include "pool/sizeclass.h"

uint64_t vmp_class_bytes(size_t index) {
  uint64_t row = index / VMP_CLASSES_PER_DOUBLING;
  uint64_t eighth = index % VMP_CLASSES_PER_DOUBLING;
  if (row == 0) return (eighth + 1) << VMP_CLASS_STEP_LOG2;
  return (VMP_CLASSES_PER_DOUBLING + eighth + 1) << (VMP_CLASS_STEP_LOG2 + row - 1);
}

uint64_t vmp_class_reciprocal(uint64_t class_bytes) {
  uint64_t steps = class_bytes >> VMP_CLASS_STEP_LOG2;
  return ((UINT64_C(1) << VMP_CLASS_RECIPROCAL_LOG2) + steps - 1) / steps;
}

// The power of two with the least rest. Only sizes with 8 to 16 objects are compared, and the smallest that has 8.
static vmp_span_shape small_shape(uint64_t class_bytes, uint64_t granule_bytes) {
  uint64_t bytes = VMP_SPAN_MIN_BYTES < granule_bytes ? VMP_SPAN_MIN_BYTES : granule_bytes;
  while (bytes / class_bytes < VMP_SPAN_FEW_OBJECTS) bytes *= 2;
  uint64_t best = bytes;
  for (bytes *= 2; bytes <= granule_bytes && bytes / class_bytes <= VMP_SPAN_MANY_OBJECTS; bytes *= 2) {
    // rest / bytes < best's rest / best, multiplied out: bytes is a multiple of best.
    if (bytes % class_bytes < best % class_bytes * (bytes / best)) best = bytes;
  }
  return (vmp_span_shape){.bytes = best, .alignment = best, .num_objects = (uint32_t)(best / class_bytes)};
}

// The number of objects that leaves the smallest share of whole granules unused; of equal ones the smallest.
static vmp_span_shape large_shape(uint64_t class_bytes, uint64_t granule_bytes) {
  vmp_span_shape best = {.alignment = granule_bytes};
  for (uint32_t n = 1; n <= VMP_SPAN_FEW_OBJECTS; n++) {
    uint64_t bytes = (n * class_bytes + granule_bytes - 1) & ~(granule_bytes - 1);
    // used / bytes > best's used / best's bytes; all numbers are below 2^38 (128 GiB and a granule).
    if (best.num_objects == 0 || n * best.bytes > best.num_objects * bytes) {
      best.bytes = bytes;
      best.num_objects = n;
    }
  }
  return best;
}

vmp_span_shape vmp_span_shape_of(uint64_t class_bytes, uint64_t granule_bytes) {
  if (class_bytes <= granule_bytes / VMP_SPAN_FEW_OBJECTS) return small_shape(class_bytes, granule_bytes);
  if (class_bytes > granule_bytes) return large_shape(class_bytes, granule_bytes);
  uint32_t objects = (uint32_t)(granule_bytes / class_bytes);
  return (vmp_span_shape){.bytes = objects * class_bytes, .alignment = granule_bytes, .num_objects = objects};
}
