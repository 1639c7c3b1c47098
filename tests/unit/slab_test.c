// slab_test.c: objects, sizes and spans. Misuse and failures: slab_failure_test.c; streams: slab_stream_test.c; the
// checker: slab_check_test.c.
#include "pool/slab.h"

#include <string.h>

#include "tests/unit/slab_rig.h"
#include "vmm/memory.h"

// ---- placing ----

VTEST_F(Slab, ObjectsComeLowestFirstFromOneSpan, slab_rig) {
  // 64 KiB objects: 8 to a span of 512 KiB.
  for (uint64_t i = 0; i < 8; i++) {
    vmp_placed placed = rig_alloc_on(f, 60 * KIB + 1, 0);
    VEXPECT_UINT_EQ(placed.offset, RIG_BASE + i * 64 * KIB);
    VEXPECT_UINT_EQ(placed.bytes, 64 * KIB);
  }
  VEXPECT_UINT_EQ(f->supply.takes, 1);
  VEXPECT_UINT_EQ(f->supply.last_request.bytes, 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.last_request.alignment, 512 * KIB);
  VEXPECT_INT_EQ(f->supply.last_request.effort, VMP_EFFORT_NORMAL);
  VEXPECT_UINT_EQ(rig_alloc(f, 64 * KIB), RIG_BASE + 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.takes, 2);
}

VTEST_F(Slab, SizesDontShareSpans, slab_rig) {
  VEXPECT_PTR_NE(rig_span(f, rig_alloc(f, 512)), rig_span(f, rig_alloc(f, 1024)));
  VEXPECT_PTR_EQ(rig_span(f, rig_alloc(f, 512)), rig_span(f, rig_alloc(f, 1)));
  VEXPECT_UINT_EQ(f->supply.takes, 2);
}

VTEST_F(Slab, FullestSpanFirst, slab_rig) {
  uint64_t offsets[24];
  rig_alloc_many(f, 64 * KIB, offsets, 24);
  // Free objects: 3 in the first span, 1 in the second, 2 in the third.
  static const size_t freed[] = {0, 1, 2, 12, 16, 23};
  for (size_t i = 0; i < 6; i++) rig_free(f, offsets[freed[i]], fence_of(0, i + 1));
  static const size_t expected[] = {12, 16, 23, 0, 1, 2};
  for (size_t i = 0; i < 6; i++) VEXPECT_UINT_EQ(rig_alloc(f, 64 * KIB), offsets[expected[i]]);
  VEXPECT_UINT_EQ(f->supply.takes, 3);
}

VTEST_F(Slab, EmptySpansGoBackButForOne, slab_rig) {
  uint64_t offsets[24];
  rig_alloc_many(f, 64 * KIB, offsets, 24);
  for (size_t i = 0; i < 8; i++) rig_free(f, offsets[i], fence_of(0, i + 1));
  VEXPECT_UINT_EQ(f->supply.gives, 0);  // one empty span may stay
  VEXPECT_UINT_EQ(rig_stats(f).empty_spans, 1);
  for (size_t i = 8; i < 16; i++) rig_free(f, offsets[i], fence_of(0, i + 1));
  VEXPECT_UINT_EQ(f->supply.gives, 1);
  VEXPECT_UINT_EQ(f->supply.last_give_offset, RIG_BASE + 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.last_give_fence.streams, 1);
  VEXPECT_UINT_EQ(f->supply.last_give_fence.sequence, 16);
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.gives, 2);
  VEXPECT_UINT_EQ(f->supply.last_give_fence.sequence, 8);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 1);
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 0);  // the third span is used
  for (size_t i = 16; i < 24; i++) rig_free(f, offsets[i], fence_of(0, i + 1));
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 0);
}

VTEST_F(Slab, APairAtTheEdgeOfASpanTakesNoSpanAgain, slab_rig) {
  uint64_t offsets[8];
  rig_alloc_many(f, 64 * KIB, offsets, 8);
  for (uint64_t i = 0; i < 100; i++) rig_free(f, rig_alloc(f, 64 * KIB), fence_of(0, i + 1));
  VEXPECT_UINT_EQ(f->supply.takes, 2);
  VEXPECT_UINT_EQ(f->supply.gives, 0);
}

// Bug case 43: what order small blocks were allocated in must not matter once they are gone.
VTEST_F(Slab, InterleavedSizesLeaveNothingBehind, slab_rig) {
  uint64_t *small = vmp_mem_calloc(80000, sizeof *small);
  VASSERT_NOT_NULL(small);
  for (size_t round = 0; round < 200; round++) {
    (void)rig_alloc(f, 32288);
    rig_alloc_many(f, 3584, small + round * 400, 400);
  }
  for (size_t i = 0; i < 80000; i++) rig_free(f, small[i], fence_of(0, i + 1));
  vmp_mem_free(small);
  vmp_slab_trim(f->slab);
  VEXPECT_UINT_EQ(rig_stats(f).spans, 25);  // 200 objects of 32 KiB, 8 to a span
  VEXPECT_UINT_EQ(f->supply.block_bytes, 25 * 256 * KIB);
}

VTEST_F(Slab, RandomOrderIsSeededAndComplete, slab_rig) {
  uint64_t first[64], again[64], other[64];
  static const uint64_t seeds[] = {7, 7, 8};
  uint64_t *runs[] = {first, again, other};
  for (size_t run = 0; run < 3; run++) {
    rig_remake(f, (vmp_slab_options){.max_object_bytes = 64 * KIB, .random_seed = seeds[run]});
    rig_alloc_many(f, 512, runs[run], 64);
    uint64_t seen = 0;
    for (size_t i = 0; i < 64; i++) seen |= UINT64_C(1) << (runs[run][i] - RIG_BASE) / 512;
    VEXPECT_UINT_EQ(seen, UINT64_MAX);
    for (size_t i = 0; i < 64; i++) rig_free(f, runs[run][i], VMP_FENCE_NONE);
    vmp_slab_trim(f->slab);
  }
  VEXPECT_BYTES_EQ(first, again, sizeof first);
  VEXPECT_TRUE(memcmp(first, other, sizeof first) != 0);
  uint64_t rising = 0;
  for (size_t i = 1; i < 64; i++) rising += first[i] == first[i - 1] + 512;
  VEXPECT_UINT_LE(rising, 8);  // 1 expected by chance
}

VTEST_F(Slab, RandomOrderReachesEveryObjectFirst, slab_rig) {
  uint64_t seen = 0;
  for (uint64_t seed = 1; seed <= 200; seed++) {
    rig_remake(f, (vmp_slab_options){.max_object_bytes = 64 * KIB, .random_seed = seed});
    uint64_t offset = rig_alloc(f, 64 * KIB);
    seen |= UINT64_C(1) << (offset - RIG_BASE) / (64 * KIB);
    rig_free(f, offset, VMP_FENCE_NONE);
    vmp_slab_trim(f->slab);
  }
  VEXPECT_UINT_EQ(seen, 0xff);
}

// ---- sizes and alignments ----

VTEST_F(Slab, ClassesOfSizesAndAlignments, slab_rig) {
  static const struct {
    uint64_t bytes, alignment, expected;
  } cases[] = {
      {0, 512, 512},
      {1, 1, 512},
      {0, 4096, 4096},
      {1, 4096, 4096},
      {513, 512, 1024},
      {1024, 1024, 1024},
      {1025, 1024, 2048},
      {4097, 4096, 8192},
      {9000, 512, 9216},
      {9000, 1024, 9216},
      {9000, 2048, 10240},
      {9000, 4096, 12288},
      {65536, 65536, 65536},
      {1, 65536, 65536},
      {1, 131072, 0},
      {65537, 512, 0},
      {UINT64_MAX, 512, 0},
      {UINT64_MAX - 510, 1, 0},
      {UINT64_C(1) << 63, 512, 0},
      {1, UINT64_C(1) << 36, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    VTRACE("%llu bytes aligned to %llu", (unsigned long long)cases[i].bytes, (unsigned long long)cases[i].alignment);
    VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, cases[i].bytes, cases[i].alignment), cases[i].expected);
    if (cases[i].expected != 0) continue;
    vmp_request request = {.bytes = cases[i].bytes, .alignment = cases[i].alignment};
    vmp_placed placed;
    VEXPECT_STATUS(vmp_slab_alloc(f->slab, &request, &placed), VMP_ERROR_INVALID_VALUE);
  }
  VEXPECT_UINT_EQ(f->supply.takes, 0);
}

VTEST_F(Slab, EveryObjectIsAligned, slab_rig) {
  rig_remake(f, (vmp_slab_options){.max_object_bytes = 2 * MIB});
  for (uint64_t alignment = 512; alignment <= 2 * MIB; alignment *= 2) {
    for (uint64_t bytes = 512; bytes <= 2 * MIB; bytes = bytes * 5 / 4 + 512) {
      uint64_t offsets[3];
      for (size_t i = 0; i < 3; i++) {
        vmp_request request = {.bytes = bytes, .alignment = alignment, .effort = VMP_EFFORT_NORMAL};
        vmp_placed placed;
        VASSERT_OK(vmp_slab_alloc(f->slab, &request, &placed));
        VEXPECT_UINT_EQ(placed.offset % alignment, 0);
        VEXPECT_UINT_EQ(placed.bytes % alignment, 0);
        VEXPECT_UINT_GE(placed.bytes, bytes);
        offsets[i] = placed.offset;
      }
      for (size_t i = 0; i < 3; i++) rig_free(f, offsets[i], VMP_FENCE_NONE);
    }
  }
}

// Bug case 6: a zero size with an alignment is freed as what it was allocated as.
VTEST_F(Slab, ZeroSizeWithAlignment, slab_rig) {
  vmp_request request = {.bytes = 0, .alignment = 4096, .effort = VMP_EFFORT_NORMAL};
  vmp_placed p, q;
  VASSERT_OK(vmp_slab_alloc(f->slab, &request, &p));
  request.bytes = 1;
  VASSERT_OK(vmp_slab_alloc(f->slab, &request, &q));
  VEXPECT_UINT_EQ(q.offset - p.offset, 4096);
  uint64_t bytes = 0;
  VEXPECT_OK(vmp_slab_free(f->slab, rig_span(f, p.offset), p.offset, VMP_FENCE_NONE, &bytes));
  VEXPECT_UINT_EQ(bytes, 4096);
  rig_free(f, q.offset, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_stats(f).objects, 0);
  VEXPECT_UINT_EQ(rig_stats(f).object_bytes, 0);
}

VTEST_F(Slab, UserClassesLargerThanAGranule, slab_rig) {
  static const uint64_t classes[] = {2 * MIB, 4 * MIB, 5 * MIB, 8 * MIB, 16 * MIB};
  rig_remake(f, (vmp_slab_options){.class_bytes = classes, .num_classes = 5});
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 1, 512), 2 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 2 * MIB + 1, 512), 4 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 4 * MIB + 1, 2 * MIB), 8 * MIB);  // 5 MiB keeps 1 MiB only
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 4 * MIB + 1, 1 * MIB), 5 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 16 * MIB, 512), 16 * MIB);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 4 * MIB, 4 * MIB), 0);  // spans are aligned to the granule
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 16 * MIB + 1, 512), 0);
  uint64_t a = rig_alloc(f, 16 * MIB), b = rig_alloc(f, 5 * MIB), c = rig_alloc(f, 5 * MIB);
  VEXPECT_UINT_EQ(c - b, 5 * MIB);  // two to a span of 10 MiB
  VEXPECT_UINT_EQ(f->supply.block_bytes, 26 * MIB);
  VEXPECT_UINT_EQ(rig_stats(f).rest_bytes, 0);
  rig_free(f, a, VMP_FENCE_NONE);
  rig_free(f, c, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(rig_alloc(f, 16 * MIB), a);
  VEXPECT_UINT_EQ(rig_alloc(f, 5 * MIB), c);
}

VTEST_F(Slab, ASlabOfNoClassesServesNothing, slab_rig) {
  rig_remake(f, (vmp_slab_options){.max_object_bytes = 0});
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 0, 1), 0);
  VEXPECT_UINT_EQ(vmp_slab_class_bytes(f->slab, 1, 512), 0);
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 0);
  VEXPECT_UINT_EQ(rig_stats(f).span_bytes, 0);
}

// ---- looking ----

typedef struct walked {
  uint64_t objects, free_objects, rest, spans, bytes, end;
  bool gapless;
} walked;

static void count_parts(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  walked *w = context;
  w->objects += strcmp(what, "object") == 0;
  w->free_objects += strcmp(what, "free object") == 0;
  w->rest += strcmp(what, "rest") == 0;
  w->spans += strcmp(what, "span") == 0;
  w->gapless = w->gapless && (w->end == 0 || w->end == offset);
  w->end = offset + bytes;
  w->bytes += bytes;
  if (strcmp(what, "free object") != 0 && strcmp(what, "span") != 0) VEXPECT_TRUE(vmp_fence_is_none(fence));
}

VTEST_F(Slab, FindWalkAndStatistics, slab_rig) {
  uint64_t p = rig_alloc(f, 18 * KIB), q = rig_alloc(f, 18 * KIB);
  (void)rig_alloc(f, 512);
  rig_free(f, p, fence_of(2, 9));
  uint64_t start = 0, bytes = 0;
  VEXPECT_TRUE(vmp_slab_find(f->slab, rig_span(f, q), q + 18 * KIB - 1, &start, &bytes));
  VEXPECT_UINT_EQ(start, q);
  VEXPECT_UINT_EQ(bytes, 18 * KIB);
  VEXPECT_TRUE(vmp_slab_find(f->slab, rig_span(f, q), q, &start, &bytes));
  VEXPECT_FALSE(vmp_slab_find(f->slab, rig_span(f, q), p, &start, &bytes));
  VEXPECT_FALSE(vmp_slab_find(f->slab, rig_span(f, q), q + 18 * KIB, &start, &bytes));
  VEXPECT_FALSE(vmp_slab_find(f->slab, rig_span(f, q), p + 255 * KIB, &start, &bytes));  // the rest
  VEXPECT_FALSE(vmp_slab_find(f->slab, rig_span(f, q), p - 1, &start, &bytes));

  walked parts = {.gapless = true};
  vmp_slab_walk_span(f->slab, rig_span(f, q), count_parts, &parts);
  VEXPECT_UINT_EQ(parts.objects, 1);
  VEXPECT_UINT_EQ(parts.free_objects, 13);
  VEXPECT_UINT_EQ(parts.rest, 1);
  VEXPECT_UINT_EQ(parts.bytes, 256 * KIB);
  VEXPECT_TRUE(parts.gapless);
  walked spans = {.gapless = true};
  vmp_slab_walk(f->slab, count_parts, &spans);
  VEXPECT_UINT_EQ(spans.spans, 2);
  VEXPECT_UINT_EQ(spans.bytes, 256 * KIB + 32 * KIB);

  vmp_slab_stats stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.spans, 2);
  VEXPECT_UINT_EQ(stats.span_bytes, 288 * KIB);
  VEXPECT_UINT_EQ(stats.objects, 2);
  VEXPECT_UINT_EQ(stats.object_bytes, 18 * KIB + 512);
  VEXPECT_UINT_EQ(stats.free_object_bytes, 13 * 18 * KIB + 63 * 512);
  VEXPECT_UINT_EQ(stats.rest_bytes, 4 * KIB);
  VEXPECT_UINT_EQ(stats.empty_spans, 0);
}

// At most 32 bytes of bookkeeping for an object, the word that the pool keeps of it included, once the fixed part is
// amortised.
VTEST_F(Slab, BookkeepingPerObject, slab_rig) {
  uint64_t empty = rig_stats(f).metadata_bytes;
  VEXPECT_UINT_LE(empty, 16 * KIB);
  uint64_t objects = 255 * 8;  // as many spans as the first block of records holds
  for (uint64_t i = 0; i < objects; i++) (void)rig_alloc(f, 64 * KIB);
  VEXPECT_UINT_LE(rig_stats(f).metadata_bytes - empty, objects * 32);
}
