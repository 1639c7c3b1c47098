// sizeclass_test.c: every size finds the smallest class that holds it; what it wastes at worst; shapes of spans.
#include "pool/sizeclass.h"

#include "tests/support/vtest.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define GIB (UINT64_C(1024) * MIB)

// Counts the sizes for which the class is not the smallest that holds them.
static uint64_t wrong_classes(uint64_t from, uint64_t to, uint64_t step) {
  uint64_t wrong = 0;
  for (uint64_t bytes = from; bytes <= to; bytes += step) {
    size_t i = vmp_class_index(bytes);
    if (vmp_class_bytes(i) < bytes || (i > 0 && vmp_class_bytes(i - 1) >= bytes)) wrong++;
  }
  return wrong;
}

VTEST(Sizeclass, HandWrittenTable) {
  static const uint64_t bytes[] = {512,   1024,  1536,  2048,  2560,  3072,  3584,  4096,  4608,  5120,
                                   5632,  6144,  6656,  7168,  7680,  8192,  9216,  10240, 11264, 12288,
                                   13312, 14336, 15360, 16384, 18432, 20480, 22528, 24576, 26624, 28672,
                                   30720, 32768, 36864, 40960, 45056, 49152, 53248, 57344, 61440, 65536};
  for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++) {
    VTRACE("class %zu", i);
    VEXPECT_UINT_EQ(vmp_class_bytes(i), bytes[i]);
    VEXPECT_UINT_EQ(vmp_class_index(bytes[i]), i);
  }
  VEXPECT_UINT_EQ(vmp_class_index(MIB), 71);
  VEXPECT_UINT_EQ(vmp_class_index(GIB), 151);
  VEXPECT_UINT_EQ(vmp_class_bytes(151), GIB);
}

VTEST(Sizeclass, EverySizeHasTheSmallestClassThatHoldsIt) {
  VEXPECT_UINT_EQ(wrong_classes(1, MIB, 1), 0);
  VEXPECT_UINT_EQ(wrong_classes(512, GIB, 512), 0);
  VEXPECT_UINT_EQ(wrong_classes(513, GIB, 512), 0);
  VEXPECT_UINT_EQ(vmp_class_index(0), vmp_class_index(1));
}

// The waste beyond the 512 B step, as a share of the size rounded to it, is worst one step after a power of two 2^k:
// (2^k / 8 - 512) / (2^k + 512).
static void expect_worst_waste(uint64_t max_bytes, uint64_t worst_waste, uint64_t worst_size) {
  uint64_t waste = 0, size = 1;
  for (uint64_t bytes = 1; bytes <= max_bytes; bytes++) {
    uint64_t rounded = (bytes + 511) / 512 * 512;
    uint64_t extra = vmp_class_bytes(vmp_class_index(bytes)) - rounded;
    if (extra * size > waste * rounded) {
      waste = extra;
      size = rounded;
    }
  }
  VEXPECT_UINT_EQ(waste, worst_waste);
  VEXPECT_UINT_EQ(size, worst_size);
  VEXPECT_TRUE(waste * 8 < size);  // below 12.5 %
}

VTEST(Sizeclass, WorstWasteIsBelowAnEighth) {
  expect_worst_waste(4096, 0, 1);
  expect_worst_waste(64 * KIB, 3584, 33280);  // 10.8 %
  expect_worst_waste(MIB, 65024, 524800);     // 12.4 %
}

// ---- division ----

static uint64_t wrong_quotients(uint64_t class_bytes, uint64_t objects, uint64_t step) {
  uint64_t reciprocal = vmp_class_reciprocal(class_bytes);
  uint64_t wrong = 0;
  for (uint64_t delta = 0; delta < objects * class_bytes; delta += step) {
    wrong += vmp_class_quotient(delta, reciprocal) != delta / class_bytes;
  }
  return wrong;
}

VTEST(Sizeclass, QuotientsAreExact) {
  uint64_t wrong = 0;
  for (uint64_t bytes = 512; bytes <= 64 * KIB; bytes += 512) wrong += wrong_quotients(bytes, 64, 512);
  VEXPECT_UINT_EQ(wrong, 0);
  VEXPECT_UINT_EQ(wrong_quotients(1536, 21, 1), 0);
  // Around every border of an object, for large objects of awkward sizes.
  for (uint64_t steps = GIB / 512 - 300; steps <= GIB / 512; steps++) {
    uint64_t reciprocal = vmp_class_reciprocal(steps * 512);
    for (uint64_t object = 0; object < VMP_SPAN_FEW_OBJECTS; object++) {
      uint64_t start = object * steps * 512;
      wrong += vmp_class_quotient(start, reciprocal) != object;
      wrong += vmp_class_quotient(start + steps * 512 - 1, reciprocal) != object;
    }
  }
  VEXPECT_UINT_EQ(wrong, 0);
}

// ---- shapes ----

static void expect_shape(uint64_t class_bytes, uint64_t bytes, uint64_t alignment, uint64_t objects) {
  VTRACE("class of %llu bytes", (unsigned long long)class_bytes);
  vmp_span_shape shape = vmp_span_shape_of(class_bytes, 2 * MIB);
  VEXPECT_UINT_EQ(shape.bytes, bytes);
  VEXPECT_UINT_EQ(shape.alignment, alignment);
  VEXPECT_UINT_EQ(shape.num_objects, objects);
}

VTEST(Sizeclass, HandWrittenShapes) {
  expect_shape(512, 32 * KIB, 32 * KIB, 64);
  expect_shape(1536, 32 * KIB, 32 * KIB, 21);
  expect_shape(4096, 32 * KIB, 32 * KIB, 8);
  expect_shape(4608, 64 * KIB, 64 * KIB, 14);
  expect_shape(7680, 64 * KIB, 64 * KIB, 8);
  expect_shape(36864, 512 * KIB, 512 * KIB, 14);
  expect_shape(61440, 512 * KIB, 512 * KIB, 8);
  expect_shape(64 * KIB, 512 * KIB, 512 * KIB, 8);
  expect_shape(256 * KIB, 2 * MIB, 2 * MIB, 8);
  // Larger than an eighth of a granule: within one slot, and the rest of the slot isn't slab's.
  expect_shape(288 * KIB, 2016 * KIB, 2 * MIB, 7);
  expect_shape(704 * KIB, 1408 * KIB, 2 * MIB, 2);
  expect_shape(MIB, 2 * MIB, 2 * MIB, 2);
  expect_shape(MIB + 512, MIB + 512, 2 * MIB, 1);
  expect_shape(2 * MIB, 2 * MIB, 2 * MIB, 1);
  // Larger than a granule.
  expect_shape(4 * MIB, 4 * MIB, 2 * MIB, 1);
  expect_shape(16 * MIB, 16 * MIB, 2 * MIB, 1);
  expect_shape(3 * MIB, 6 * MIB, 2 * MIB, 2);
  expect_shape(5 * MIB, 10 * MIB, 2 * MIB, 2);
  expect_shape(5 * MIB / 2, 10 * MIB, 2 * MIB, 4);
  expect_shape(2 * MIB + 512, 18 * MIB, 2 * MIB, 8);
}

// The rules of sizeclass.h, one by one.
static bool shape_is_right(uint64_t class_bytes, uint64_t granule) {
  vmp_span_shape shape = vmp_span_shape_of(class_bytes, granule);
  uint64_t used = shape.num_objects * class_bytes;
  if (shape.num_objects < 1 || shape.num_objects > 64 || used > shape.bytes) return false;
  if (!vmp_is_power_of_two(shape.alignment) || shape.alignment > granule) return false;
  if (class_bytes > granule) {
    if (shape.alignment != granule || shape.bytes % granule != 0 || shape.bytes - used >= granule) return false;
    for (uint64_t n = 1; n <= 8; n++) {
      uint64_t bytes = (n * class_bytes + granule - 1) / granule * granule;
      if (n * class_bytes * shape.bytes > used * bytes) return false;
    }
    return true;
  }
  if (class_bytes > granule / 8) {
    return shape.alignment == granule && shape.bytes == used && used <= granule && used + class_bytes > granule;
  }
  if (shape.bytes != shape.alignment || shape.bytes - used >= class_bytes || shape.num_objects < 8) return false;
  if (shape.num_objects > 16) return shape.bytes == (32 * KIB < granule ? 32 * KIB : granule);
  for (uint64_t bytes = 32 * KIB; bytes <= granule; bytes *= 2) {
    uint64_t objects = bytes / class_bytes;
    if (objects < 8 || objects > 16) continue;
    uint64_t rest = bytes % class_bytes;
    if (rest * shape.bytes < (shape.bytes - used) * bytes) return false;
    if (rest * shape.bytes == (shape.bytes - used) * bytes && bytes < shape.bytes) return false;
  }
  return true;
}

VTEST(Sizeclass, ShapesFollowTheRules) {
  static const uint64_t granules[] = {4 * KIB, 32 * KIB, 64 * KIB, 2 * MIB, 32 * MIB};
  for (size_t g = 0; g < sizeof granules / sizeof granules[0]; g++) {
    VTRACE("granule %llu", (unsigned long long)granules[g]);
    uint64_t wrong = 0;
    for (uint64_t bytes = 512; bytes <= 8 * MIB; bytes += 512) wrong += !shape_is_right(bytes, granules[g]);
    for (size_t i = 0; i <= vmp_class_index(GIB); i++) wrong += !shape_is_right(vmp_class_bytes(i), granules[g]);
    VEXPECT_UINT_EQ(wrong, 0);
  }
}
