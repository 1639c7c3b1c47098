// sizeclass.h: the table of object sizes, and the shape of the span that objects of a size are cut from.
//
// Owns: arithmetic only. Every function is pure.
//
//     class   0    1    2   ...   7  |   8     9    ...   15  |   16  ...        8 classes to a doubling,
//     bytes  512 1024 1536 ... 4096  | 4608  5120  ... 8192   | 9216 ...         from 4096 on
//
// A request wastes at most what rounding to 512 bytes costs, and less than 1/8 of the rounded size beyond that.
//
// Spans
//     class <= granule / 8          a power of two from 32 KiB to one granule, aligned to its size, of 8 to 16 objects
//                                   (more only in the smallest, 32 KiB), the size with the least rest
//     granule / 8 < class <= granule  as many objects as a granule holds, in one slot, and no rest: what is left of
//                                   the slot stays with mid
//     class > granule               the number of objects up to 8 that fills whole granules best
#ifndef VMPOOL_POOL_SIZECLASS_H_
#define VMPOOL_POOL_SIZECLASS_H_

#include <stddef.h>
#include <stdint.h>

#include "vmm/align.h"

#define VMP_CLASS_STEP_LOG2 9u
#define VMP_CLASS_STEP_BYTES (UINT64_C(1) << VMP_CLASS_STEP_LOG2)
#define VMP_CLASS_LINEAR_LOG2 12u  // steps of 512 up to here
#define VMP_CLASS_LINEAR_BYTES (UINT64_C(1) << VMP_CLASS_LINEAR_LOG2)
#define VMP_CLASSES_PER_DOUBLING_LOG2 3u
#define VMP_CLASSES_PER_DOUBLING (1u << VMP_CLASSES_PER_DOUBLING_LOG2)
#define VMP_CLASS_MAX_BYTES (UINT64_C(16) << 30)  // largest object of any table

#define VMP_SPAN_MIN_BYTES (UINT64_C(32) << 10)
#define VMP_SPAN_MAX_OBJECTS 64u  // one word of bits
#define VMP_SPAN_FEW_OBJECTS 8u
#define VMP_SPAN_MANY_OBJECTS 16u

_Static_assert(VMP_CLASS_LINEAR_BYTES >> VMP_CLASSES_PER_DOUBLING_LOG2 == VMP_CLASS_STEP_BYTES,
               "the first doubling after the linear part goes on with the same step");
_Static_assert(VMP_SPAN_MIN_BYTES / VMP_CLASS_STEP_BYTES <= VMP_SPAN_MAX_OBJECTS,
               "the smallest objects of the smallest span fit into one word of bits");

// vmp_class_index returns the smallest class of the default table that holds `bytes` (0 counts as 1).
// bytes <= VMP_CLASS_MAX_BYTES.
static inline size_t vmp_class_index(uint64_t bytes) {
  uint64_t last = bytes - (bytes != 0);
  if (last < VMP_CLASS_LINEAR_BYTES) return (size_t)(last >> VMP_CLASS_STEP_LOG2);
  unsigned log2 = vmp_log2(last);
  uint64_t eighth = (last >> (log2 - VMP_CLASSES_PER_DOUBLING_LOG2)) & (VMP_CLASSES_PER_DOUBLING - 1);
  return (size_t)((log2 - VMP_CLASS_LINEAR_LOG2 + 1) * VMP_CLASSES_PER_DOUBLING + eighth);
}

// vmp_class_bytes returns the object size of a class of the default table, up to the class of VMP_CLASS_MAX_BYTES.
uint64_t vmp_class_bytes(size_t index);

// vmp_class_quotient and vmp_class_reciprocal divide by an object size without a division:
// vmp_class_quotient(delta, vmp_class_reciprocal(class_bytes)) == delta / class_bytes for every delta inside of a
// span's objects; for others it is any number. class_bytes is a multiple of 512.
#define VMP_CLASS_RECIPROCAL_LOG2 56u
uint64_t vmp_class_reciprocal(uint64_t class_bytes);
static inline uint64_t vmp_class_quotient(uint64_t delta, uint64_t reciprocal) {
  return ((delta >> VMP_CLASS_STEP_LOG2) * reciprocal) >> VMP_CLASS_RECIPROCAL_LOG2;
}

// The quotient of d (in steps) by k is exact while d * (excess of the reciprocal, below k) < 2^56; d < objects * k.
_Static_assert((VMP_CLASS_MAX_BYTES >> VMP_CLASS_STEP_LOG2) * (VMP_CLASS_MAX_BYTES >> VMP_CLASS_STEP_LOG2) *
                       VMP_SPAN_FEW_OBJECTS <=
                   UINT64_C(1) << VMP_CLASS_RECIPROCAL_LOG2,
               "large objects are divided exactly");
_Static_assert((UINT64_C(1) << VMP_CLASS_RECIPROCAL_LOG2) <= UINT64_MAX / VMP_SPAN_MAX_OBJECTS / 2,
               "quotients don't wrap");

// vmp_span_shape: what a span of a class looks like. bytes = num_objects * class_bytes + rest.
typedef struct vmp_span_shape {
  uint64_t bytes;
  uint64_t alignment;    // a power of two
  uint32_t num_objects;  // 1..64
} vmp_span_shape;

// vmp_span_shape_of returns the shape for a class (a multiple of 512 up to VMP_CLASS_MAX_BYTES). granule_bytes is a
// power of two of at least 512.
vmp_span_shape vmp_span_shape_of(uint64_t class_bytes, uint64_t granule_bytes);

#endif  // VMPOOL_POOL_SIZECLASS_H_
