// histogram_test.c: what is counted, by hand values and against a model, and that the check notices each corruption.
#include "pool/histogram.h"

#include <stdlib.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

typedef struct rig {
  vmp_histogram h;
  vmp_size_point points[VMP_HISTOGRAM_MAX_POINTS];
} rig;
static void rig_setup(rig *f) { (void)f; }
static void rig_teardown(rig *f) { vmp_histogram_free(&f->h); }

static void check(const rig *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_histogram_check(&f->h, &report), 0);
  VEXPECT_NO_FAULTS(&faults);
}

static void expect_point(const vmp_size_point *p, uint64_t most, uint64_t count, uint64_t sum) {
  VEXPECT_UINT_EQ(p->most_bytes, most);
  VEXPECT_UINT_EQ(p->count, count);
  VEXPECT_UINT_EQ(p->sum_bytes, sum);
}

VTEST_F(Histogram, CountsByHand, rig) {
  VEXPECT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 0);
  vmp_histogram_note(&f->h, 1000, 1);
  vmp_histogram_note(&f->h, 700, 1);  // the same bucket: two steps of 512
  vmp_histogram_note(&f->h, 3 * MIB, 5);
  vmp_histogram_note(&f->h, 3 * MIB, 2);
  vmp_histogram_note(&f->h, 3 * MIB - 4096, 1);  // the same bucket of 64 KiB
  vmp_histogram_note(&f->h, 5, 0);
  VEXPECT_UINT_EQ(f->h.total, 10);
  check(f);
  VASSERT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 2);
  expect_point(&f->points[0], 1000, 2, 1700);
  expect_point(&f->points[1], 3 * MIB, 8, 24 * MIB - 4096);
  // A repeated size below the largest of its bucket stands on its own.
  vmp_histogram_note(&f->h, 3 * MIB - 4096, 1);
  VASSERT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 3);
  expect_point(&f->points[1], 3 * MIB - 4096, 2, 6 * MIB - 8192);
  expect_point(&f->points[2], 3 * MIB, 7, 21 * MIB);
}

// A bucket is a 32nd of a doubling; sizes beyond every address space are left out.
VTEST_F(Histogram, Buckets, rig) {
  for (uint64_t i = 0; i < 32; i++) {
    vmp_histogram_note(&f->h, GIB + i * 32 * MIB + 1, 1);
    vmp_histogram_note(&f->h, GIB + (i + 1) * 32 * MIB, 1);
  }
  VASSERT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 32);
  for (uint64_t i = 0; i < 32; i++) {
    expect_point(&f->points[i], GIB + (i + 1) * 32 * MIB, 2, 2 * GIB + (2 * i + 1) * 32 * MIB + 1);
  }
  vmp_histogram_note(&f->h, UINT64_MAX, 1);
  vmp_histogram_note(&f->h, (UINT64_C(1) << 53) + 1, 1);
  VEXPECT_UINT_EQ(f->h.total, 64);
  vmp_histogram_note(&f->h, 0, 1);
  vmp_histogram_note(&f->h, UINT64_C(1) << 53, 1);
  VEXPECT_UINT_EQ(f->h.total, 65);
  check(f);
}

VTEST_F(Histogram, Ages, rig) {
  vmp_histogram_note(&f->h, 4096, 9);
  vmp_histogram_note(&f->h, 8192, 1);
  vmp_histogram_note(&f->h, 16384, 2);
  vmp_histogram_age(&f->h);
  check(f);
  VEXPECT_UINT_EQ(f->h.total, 5);
  VASSERT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 2);
  expect_point(&f->points[0], 4096, 4, 16384);
  expect_point(&f->points[1], 16384, 1, 16384);
  for (int i = 0; i < 3; i++) vmp_histogram_age(&f->h);
  check(f);
  VEXPECT_UINT_EQ(f->h.total, 0);
  VEXPECT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 0);
}

// Any sizes: all counts and bytes are in the points, which rise, and memory is bounded.
VTEST_F(Histogram, AgainstSums, rig) {
  vtest_rng rng = vtest_rng_make(vtest_seed(11));
  uint64_t total = 0, sum = 0;
  for (uint64_t i = 0; i < 40000; i++) {
    uint64_t bytes = vtest_rng_below(&rng, UINT64_C(1) << (1 + vtest_rng_below(&rng, 40))) + 1;
    if (vtest_rng_below(&rng, 2) == 0) bytes = (1 + vtest_rng_below(&rng, 300)) * 12345;  // repeated
    uint64_t weight = 1 + vtest_rng_below(&rng, 3);
    vmp_histogram_note(&f->h, bytes, weight);
    total += weight;
    sum += weight * bytes;
    if (i % 997 != 0) continue;
    size_t n = vmp_histogram_points(&f->h, f->points);
    uint64_t in_points = 0, bytes_in_points = 0;
    for (size_t p = 0; p < n; p++) {
      in_points += f->points[p].count;
      bytes_in_points += f->points[p].sum_bytes;
      VASSERT_UINT_LE(f->points[p].sum_bytes, f->points[p].count * f->points[p].most_bytes);
      if (p > 0) VASSERT_UINT_GT(f->points[p].most_bytes, f->points[p - 1].most_bytes);
    }
    VASSERT_UINT_EQ(in_points, total);
    VASSERT_UINT_EQ(bytes_in_points, sum);
    VASSERT_UINT_EQ(f->h.total, total);
    check(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_LE(vmp_histogram_metadata_bytes(&f->h), 40 * 768 + 512 * 16);
}

VTEST_F(Histogram, WithoutHostMemoryItCountsLess, rig) {
  vmp_mem_fail_after(0, UINT64_MAX);
  vmp_histogram_note(&f->h, 4096, 3);
  vmp_mem_fail_after(1, UINT64_MAX);  // the row, but no table
  vmp_histogram_note(&f->h, 4096, 2);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(f->h.dropped, 3);
  VEXPECT_UINT_EQ(f->h.total, 2);
  check(f);
  vmp_histogram_note(&f->h, 4096, 1);
  VASSERT_UINT_EQ(vmp_histogram_points(&f->h, f->points), 1);
  expect_point(&f->points[0], 4096, 3, 3 * 4096);
}

static void count_one_more(rig *f) { f->h.total++; }
static void enlarge(rig *f) { f->h.rows[0][7].most_bytes = 8192; }
static void sum_up(rig *f) { f->h.rows[0][7].sum_bytes *= 3; }
static vmp_size_count *entry_of(rig *f) {
  for (size_t i = 0; i < VMP_HISTOGRAM_REPEATED; i++) {
    vmp_size_count *entry = &f->h.repeated[i / VMP_HISTOGRAM_PROBES].places[i % VMP_HISTOGRAM_PROBES];
    if (entry->bytes == 4096) return entry;
  }
  return NULL;
}
static void empty_entry(rig *f) { entry_of(f)->count = 0; }
static void free_entry(rig *f) { entry_of(f)->bytes = 0; }
static void move_entry(rig *f) {
  size_t group = 0;
  while (f->h.repeated[group].used == 0) group++;
  f->h.repeated[(group + 10) % VMP_HISTOGRAM_GROUPS] = f->h.repeated[group];
  f->h.repeated[group] = (vmp_size_group){.used = 0};
}
static void change_tag(rig *f) {
  for (size_t i = 0; i < VMP_HISTOGRAM_GROUPS; i++) {
    if (f->h.repeated[i].used != 0) f->h.repeated[i].tags ^= 1;
  }
}
static void change_bits(rig *f) { f->h.repeated[0].kept ^= 0x80; }

typedef struct corruption {
  const char *name;
  void (*make)(rig *f);
  const char *sentence;
} corruption;
static const char *corruption_name(const corruption *p) { return p->name; }
static const corruption corruptions[] = {
    {"CountOneMore", count_one_more, "3 requests are counted, and the buckets have 2"},
    {"Enlarge", enlarge, "bucket 7 of row 0 has a size of 8192 bytes"},
    {"SumUp", sum_up, "sums up to more than its requests could"},
    {"EmptyEntry", empty_entry, "has 0 requests of 4096 bytes"},
    {"FreeEntry", free_entry, "has 2 requests of 0 bytes"},
    {"MoveEntry", move_entry, "isn't found by its size of 4096 bytes"},
    {"ChangeTag", change_tag, "isn't found by its size of 4096 bytes"},
    {"ChangeBits", change_bits, "the bits of entry 7 are wrong"},
};

VTEST_FP(Histogram, CheckNotices, rig, corruption, corruptions, corruption_name) {
  vmp_histogram_note(&f->h, 4096, 2);
  check(f);
  p->make(f);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_GE(vmp_histogram_check(&f->h, &report), 1);
  VEXPECT_A_FAULT(&faults, p->sentence);
}
