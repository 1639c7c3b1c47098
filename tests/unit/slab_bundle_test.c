// slab_bundle_test.c: spans that come by bundles, and marks of words.
#include "tests/unit/slab_rig.h"
#include "vmm/memory.h"

#define SIZE (64 * KIB)  // 8 objects to a span, 4 spans to a bundle
#define OBJECTS 8u
#define SPANS 4u

// A slab with marks on a supply that divides. A class takes a bundle once it has as many spans as a bundle.
typedef slab_rig bundle_rig;

static void remake(bundle_rig *f, vmp_slab_options options) {
  rig_remake(f, options);
  f->slab->bundles_from = 1;
  VASSERT_TRUE(vmp_slab_marks_start(f->slab));
  vmp_slab_take_bundles(f->slab);
}

static void bundle_rig_setup(bundle_rig *f) {
  slab_rig_setup(f);
  f->supply.offers_bundles = true;
  remake(f, (vmp_slab_options){.max_object_bytes = SIZE});
}

static void bundle_rig_teardown(bundle_rig *f) { slab_rig_teardown(f); }

// Another one, as if nothing had happened yet.
static void restart(bundle_rig *f) {
  bundle_rig_teardown(f);
  *f = (bundle_rig){0};
  bundle_rig_setup(f);
}

static vmp_slab_class *class_of(bundle_rig *f, uint64_t bytes) {
  return &f->slab->classes[vmp_slab_class_index(f->slab, bytes)];
}

static uint32_t lines_of(const vmp_slab_class *class) { return vmp_card_lines(vmp_class_card_words(class)); }

// Takes `n` spans one by one, and uses all of their objects. Returns the first one's offset.
static uint64_t fill_spans(bundle_rig *f, uint64_t bytes, uint64_t n) {
  uint32_t before = f->slab->bundles_from;
  f->slab->bundles_from = UINT32_MAX;
  uint64_t first = 0;
  for (uint64_t i = 0; i < n * class_of(f, bytes)->span.num_objects; i++) {
    uint64_t offset = rig_alloc(f, bytes);
    if (i == 0) first = offset;
  }
  f->slab->bundles_from = before;
  return first;
}

// Frees all objects of a span.
static void empty_span(bundle_rig *f, uint64_t offset, vmp_fence fence) {
  const vmp_slab_class *class = &f->slab->classes[rig_span(f, offset)->class_index];
  uint64_t bytes = class->bytes;
  for (uint32_t i = 0; i < class->span.num_objects; i++) rig_free(f, offset + i * bytes, fence);
}

// The class is full and about to take a bundle. Returns the first object of the spans that it has.
static uint64_t prepare(bundle_rig *f, uint64_t bytes) {
  return fill_spans(f, bytes, vmp_class_bundle_spans(f->slab, class_of(f, bytes)));
}

// What the supply was told of the last bundle, and the spans of it.
static void expect_bundle(bundle_rig *f, uint64_t offset, uint64_t bytes) {
  const vmp_slab_class *class = class_of(f, bytes);
  const vmp_fake_bundle *last = &f->supply.last_bundle;
  uint32_t count = vmp_class_bundle_spans(f->slab, class);
  VEXPECT_UINT_EQ(offset % (2 * MIB), 0);
  VEXPECT_UINT_EQ(count * class->span.bytes, 2 * MIB);
  VEXPECT_UINT_EQ(last->address, offset + VMP_FAKE_SUPPLY_ADDRESS);
  VEXPECT_UINT_EQ(last->each_bytes, class->span.bytes);
  VEXPECT_UINT_EQ(last->lines, lines_of(class));
  for (uint32_t i = 0; i < count; i++) {
    VTRACE("span %u", i);
    const vmp_span *span = rig_span(f, offset + i * class->span.bytes);
    VASSERT_NOT_NULL(span);
    VEXPECT_UINT_EQ(span->offset, offset + i * class->span.bytes);
    VEXPECT_UINT_EQ(span->address, span->offset + VMP_FAKE_SUPPLY_ADDRESS);
    VEXPECT_UINT_EQ(span->line, last->line + i * lines_of(class));
    VEXPECT_PTR_EQ(&f->slab->classes[span->class_index], class);
    VEXPECT_UINT_EQ(atomic_load(&vmp_card_at(&f->slab->cards, span->line)->head),
                    vmp_card_head(vmp_class_number(f->slab, class), span->record));
  }
}

// ---- when a class takes one ----

static const uint64_t sizes[] = {512, 4 * KIB, 18 * KIB, 36 * KIB, 60 * KIB, SIZE};

VTEST_F(SlabBundles, AClassWithManySpansTakesABundle, bundle_rig) {
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    VTRACE("%llu bytes", (unsigned long long)sizes[i]);
    restart(f);
    f->slab->bundles_from = 2;
    const vmp_slab_class *class = class_of(f, sizes[i]);
    uint32_t count = vmp_class_bundle_spans(f->slab, class);
    for (uint32_t j = 0; j < 2 * count * class->span.num_objects; j++) (void)rig_alloc(f, sizes[i]);
    VEXPECT_UINT_EQ(f->supply.takes, 2 * count);
    VEXPECT_UINT_EQ(f->supply.divides, 0);
    VEXPECT_UINT_EQ(class->num_spans, 2 * count);

    uint64_t offset = rig_alloc(f, sizes[i]);
    VEXPECT_UINT_EQ(f->supply.takes, 2 * count + 1);
    VEXPECT_UINT_EQ(f->supply.last_request.bytes, 2 * MIB);
    VEXPECT_UINT_EQ(f->supply.last_request.alignment, 2 * MIB);
    VEXPECT_INT_EQ(f->supply.last_request.effort, VMP_EFFORT_MAPPED);
    VEXPECT_UINT_EQ(f->supply.divides, 1);
    VEXPECT_UINT_EQ(f->supply.bundles, 1);
    VEXPECT_UINT_EQ(f->supply.publishes, 3 * count);
    VEXPECT_UINT_EQ(class->num_spans, 3 * count);
    VEXPECT_UINT_EQ(class->num_arriving, 0);
    expect_bundle(f, offset, sizes[i]);
    rig_check(f);
  }
}

VTEST_F(SlabBundles, EverySmallClassOfTheDefaultTableHasThem, bundle_rig) {
  f->slab->bundles_from = 0;
  for (size_t i = 0; i < f->slab->num_default; i++) {
    VTRACE("class %zu", i);
    uint64_t bytes = f->slab->classes[i].bytes;
    expect_bundle(f, rig_alloc(f, bytes), bytes);
    VEXPECT_UINT_EQ(f->supply.bundles, i + 1);
  }
}

// Whether the first object of a class comes with a bundle. Gives everything back.
static bool takes_bundle(bundle_rig *f, uint64_t bytes) {
  f->slab->bundles_from = 0;
  uint64_t before = f->supply.divides, offset = rig_alloc(f, bytes);
  bool takes = f->supply.divides > before;
  VEXPECT_UINT_EQ(f->supply.bundles, f->supply.divides);
  VEXPECT_UINT_EQ(f->supply.last_request.bytes, takes ? 2 * MIB : class_of(f, bytes)->span.bytes);
  rig_check(f);
  rig_free(f, offset, VMP_FENCE_NONE);
  vmp_slab_trim(f->slab);
  VEXPECT_UINT_EQ(f->supply.num_blocks, 0);
  return takes;
}

VTEST_F(SlabBundles, OthersHaveNone, bundle_rig) {
  VEXPECT_TRUE(takes_bundle(f, SIZE));
  rig_remake(f, (vmp_slab_options){.max_object_bytes = SIZE});
  VEXPECT_FALSE(takes_bundle(f, SIZE));  // nobody asked for them

  // Spans of less than a page of the span map: there would be 128 in a bundle.
  remake(f, (vmp_slab_options){.max_object_bytes = 512, .granule_bytes = 16 * KIB});
  VEXPECT_FALSE(takes_bundle(f, 512));

  // Of the user's classes, of wide ones, and of spans that are no power of two: not even beside others that have them.
  static const uint64_t user[] = {32 * KIB};
  static const struct {
    vmp_slab_options options;
    uint64_t with, without;
  } cases[] = {
      {{.max_object_bytes = SIZE, .class_bytes = user, .num_classes = 1, .class_from_bytes = 28 * KIB + 1},
       SIZE,
       32 * KIB},
      {{.max_object_bytes = 256 * KIB}, SIZE, SIZE + 1},
      {{.max_object_bytes = 256 * KIB}, SIZE, 128 * KIB},
      {{.max_object_bytes = SIZE, .granule_bytes = 64 * KIB}, 8 * KIB, 18 * KIB},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    VTRACE("case %zu", i);
    remake(f, cases[i].options);
    VEXPECT_FALSE(takes_bundle(f, cases[i].without));
    remake(f, cases[i].options);
    VEXPECT_TRUE(takes_bundle(f, cases[i].with));
  }
}

// A row of new cards is taken only where few lines are free: at most half of them, at any rate.
VTEST_F(SlabBundles, FreeCardsComeFirst, bundle_rig) {
  uint64_t first = fill_spans(f, SIZE, 3 * SPANS);
  for (uint64_t i = 0; i < 10; i++) empty_span(f, first + i * 512 * KIB, VMP_FENCE_NONE);
  vmp_slab_trim(f->slab);
  f->slab->bundles_from = 0;
  const vmp_card_store *cards = &f->slab->cards;
  VASSERT_UINT_EQ(lines_of(class_of(f, SIZE)), 1);
  VASSERT_UINT_EQ(cards->num_free[1], 10);
  uint64_t singles = 0, offset;
  while (offset = rig_alloc(f, SIZE), f->supply.divides == 0) {
    singles++;
    VASSERT_UINT_EQ(f->supply.last_request.bytes, 512 * KIB);
    VASSERT_UINT_EQ(cards->num_free[1], 10 - singles);
    for (uint32_t i = 1; i < OBJECTS; i++) (void)rig_alloc(f, SIZE);
  }
  VEXPECT_UINT_GE(singles, 1);
  VEXPECT_UINT_EQ(cards->num_free[1], 10 - singles);  // the bundle's are new
  VEXPECT_UINT_EQ(cards->used_lines, 1 + 4 * SPANS);
  VEXPECT_UINT_LE(cards->num_free[1], (1 + 3 * SPANS) / 2);
  expect_bundle(f, offset, SIZE);
}

// ---- the spans of one ----

VTEST_F(SlabBundles, ObjectsOfAllSpansAreHandedOut, bundle_rig) {
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    VTRACE("%llu bytes", (unsigned long long)sizes[i]);
    restart(f);
    prepare(f, sizes[i]);
    const vmp_slab_class *class = class_of(f, sizes[i]);
    uint32_t count = vmp_class_bundle_spans(f->slab, class);
    uint64_t takes = f->supply.takes, seen[VMP_BUNDLE_MAX_SPANS] = {0}, begin = 0;
    for (uint32_t j = 0; j < count * class->span.num_objects; j++) {
      uint64_t offset = rig_alloc(f, sizes[i]);
      if (j == 0) begin = offset;
      VASSERT_UINT_LT(offset - begin, 2 * MIB);
      uint64_t index = (offset - begin) % class->span.bytes / class->bytes;
      seen[(offset - begin) / class->span.bytes] |= UINT64_C(1) << index;
    }
    VEXPECT_UINT_EQ(f->supply.takes, takes + 1);
    for (uint32_t j = 0; j < count; j++) VEXPECT_UINT_EQ(seen[j], vmp_span_all_bits(class));
    VEXPECT_UINT_EQ(class->nonempty, 0);
    rig_check(f);
    // Full again: another bundle.
    expect_bundle(f, rig_alloc(f, sizes[i]), sizes[i]);
    VEXPECT_UINT_EQ(f->supply.bundles, 2);
  }
}

VTEST_F(SlabBundles, EachSpanGoesBackOnItsOwn, bundle_rig) {
  prepare(f, SIZE);
  uint64_t begin = rig_alloc(f, SIZE);
  for (uint32_t i = 1; i < SPANS * OBJECTS; i++) (void)rig_alloc(f, SIZE);
  static const uint32_t order[SPANS] = {2, 0, 3, 1};
  for (uint32_t i = 0; i < SPANS; i++) {
    empty_span(f, begin + order[i] * 512 * KIB, fence_of(0, 10 + i));
    rig_check(f);
    VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 512 * KIB);
    rig_check(f);
    VEXPECT_UINT_EQ(f->supply.gives, i + 1);
    VEXPECT_UINT_EQ(f->supply.withdraws, i + 1);
    VEXPECT_UINT_EQ(f->supply.last_give_offset, begin + order[i] * 512 * KIB);
    VEXPECT_UINT_EQ(f->supply.last_give_fence.sequence, 10 + i);
  }
  VEXPECT_UINT_EQ(f->supply.num_blocks, SPANS);
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_spans, SPANS);
}

VTEST_F(SlabBundles, TrimGivesTheEmptySpansBack, bundle_rig) {
  prepare(f, SIZE);
  uint64_t used = rig_alloc(f, SIZE);
  VEXPECT_UINT_EQ(rig_stats(f).empty_spans, SPANS - 1);
  rig_check(f);
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), (SPANS - 1) * 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.gives, SPANS - 1);
  VEXPECT_UINT_EQ(f->supply.withdraws, SPANS - 1);
  VEXPECT_UINT_EQ(f->supply.num_blocks, SPANS + 1);
  rig_check(f);
  rig_free(f, used, fence_of(0, 3));
  VEXPECT_UINT_EQ(vmp_slab_trim(f->slab), 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.last_give_offset, used);
}

// One pair after the other doesn't take bundle after bundle.
VTEST_F(SlabBundles, APairAtTheEdgeTakesNoBundleAgain, bundle_rig) {
  prepare(f, SIZE);
  for (uint64_t i = 0; i < 100; i++) {
    rig_free(f, rig_alloc(f, SIZE), fence_of(0, i + 1));
    rig_check(f);
  }
  VEXPECT_UINT_EQ(f->supply.bundles, 1);
  VEXPECT_UINT_EQ(f->supply.takes, SPANS + 1);
}

VTEST_F(SlabBundles, ASealedSpanOfABundleGoesBack, bundle_rig) {
  prepare(f, SIZE);
  uint64_t begin = rig_alloc(f, SIZE);
  vmp_slab_seal(f->slab, rig_span(f, begin + 512 * KIB), true);  // it is empty
  VEXPECT_UINT_EQ(f->supply.last_give_offset, begin + 512 * KIB);
  vmp_slab_seal(f->slab, rig_span(f, begin), true);
  VEXPECT_UINT_EQ(f->supply.gives, 1);
  rig_check(f);
  rig_free(f, begin, VMP_FENCE_NONE);
  VEXPECT_UINT_EQ(f->supply.gives, 2);
  VEXPECT_UINT_EQ(f->supply.last_give_offset, begin);
}

VTEST_F(SlabBundles, AllSpansBeginWithTheFenceOfThePlace, bundle_rig) {
  prepare(f, SIZE);
  vmp_fake_supply_touch(&f->supply, RIG_BASE + 3 * MIB, 512, fence_of(1, 7));
  vmp_placed placed = rig_alloc_on(f, SIZE, 0);
  VEXPECT_UINT_EQ(placed.offset, RIG_BASE + 2 * MIB);
  VEXPECT_UINT_EQ(f->supply.bundles, 1);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(placed.after.sequence, 7);
  VEXPECT_UINT_EQ(placed.fence.streams, 2);
  // Stream 1 need not wait, whichever span the object is of.
  for (uint32_t i = 1; i < SPANS * OBJECTS; i++) {
    placed = rig_alloc_on(f, SIZE, 1);
    VEXPECT_TRUE(vmp_fence_is_none(placed.after));
    VEXPECT_UINT_EQ(placed.fence.streams, 2);
  }
  VEXPECT_UINT_EQ(f->supply.takes, SPANS + 1);
}

// ---- failures ----

// The class has got `spans` more, each a block of its own, and no bundle was told of.
static void expect_single(bundle_rig *f, uint64_t spans) {
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_spans, SPANS + spans);
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_arriving, 0);
  VEXPECT_UINT_EQ(f->supply.num_blocks, SPANS + spans);
  VEXPECT_UINT_EQ(f->supply.block_bytes, (SPANS + spans) * 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.bundles, 0);
  rig_check(f);
}

VTEST_F(SlabBundles, ASingleSpanWhereTakeFails, bundle_rig) {
  prepare(f, SIZE);
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_LIMIT;
  (void)rig_alloc(f, SIZE);
  VEXPECT_UINT_EQ(f->supply.takes, SPANS + 2);
  VEXPECT_UINT_EQ(f->supply.last_request.bytes, 512 * KIB);
  VEXPECT_UINT_EQ(f->supply.last_request.alignment, 512 * KIB);
  expect_single(f, 1);
}

// What is mapped comes first, as a bundle, as a span; then new memory, as a bundle, as a span.
VTEST_F(SlabBundles, WhatIsMappedComesFirst, bundle_rig) {
  static const struct {
    uint64_t bytes;
    vmp_effort effort;
  } tries[] = {{2 * MIB, VMP_EFFORT_MAPPED},
               {512 * KIB, VMP_EFFORT_MAPPED},
               {2 * MIB, VMP_EFFORT_NORMAL},
               {512 * KIB, VMP_EFFORT_NORMAL}};
  for (uint64_t fails = 0; fails < 4; fails++) {
    VTRACE("%llu failures", (unsigned long long)fails);
    restart(f);
    prepare(f, SIZE);
    f->supply.fail_takes = fails;
    f->supply.fail_status = VMP_ERROR_BUSY;
    (void)rig_alloc(f, SIZE);
    VEXPECT_UINT_EQ(f->supply.takes + f->supply.failed_takes, SPANS + 2 * fails + 1);
    VEXPECT_UINT_EQ(f->supply.last_request.bytes, tries[fails].bytes);
    VEXPECT_INT_EQ(f->supply.last_request.effort, tries[fails].effort);
    rig_check(f);
  }
  // After that no bundle is tried until there are as many spans more as one has; or, after spans went, fewer.
  VEXPECT_UINT_EQ(class_of(f, SIZE)->bundle_from, 2 * SPANS);
  for (uint32_t j = 1; j < OBJECTS; j++) (void)rig_alloc(f, SIZE);
  uint64_t takes = f->supply.takes;
  (void)rig_alloc(f, SIZE);
  VEXPECT_UINT_EQ(f->supply.takes, takes + 1);
  VEXPECT_UINT_EQ(f->supply.bundles, 0);
}

// A failure that says nothing about memory is told, and nothing else is tried.
VTEST_F(SlabBundles, OtherFailuresAreTold, bundle_rig) {
  prepare(f, SIZE);
  uint64_t takes = f->supply.takes;
  f->supply.fail_takes = 1;
  f->supply.fail_status = VMP_ERROR_DRIVER;
  vmp_placed placed;
  VEXPECT_STATUS(rig_try_alloc(f, SIZE, 0, &placed), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(f->supply.takes, takes + 1);
  expect_single(f, 0);
}

VTEST_F(SlabBundles, FailuresDontUseUpCards, bundle_rig) {
  prepare(f, SIZE);
  f->supply.fail_status = VMP_ERROR_LIMIT;
  for (uint64_t i = 1; i <= 20 * SPANS; i++) {
    f->supply.fail_takes = 1;  // where no bundle is tried, the span itself fails, and the next try is without
    vmp_placed placed;
    if (rig_try_alloc(f, SIZE, 0, &placed) != VMP_OK) (void)rig_alloc(f, SIZE);
    f->supply.fail_takes = 0;
    for (uint32_t j = 1; j < OBJECTS; j++) (void)rig_alloc(f, SIZE);
    expect_single(f, i);
    VEXPECT_UINT_LE(f->slab->cards.num_free[1], f->slab->cards.used_lines / 2 + SPANS);
  }
}

VTEST_F(SlabBundles, TheErrorIsTheSingleSpans, bundle_rig) {
  prepare(f, SIZE);
  vmp_slab_stats before = rig_stats(f);
  f->supply.fail_takes = 4;
  f->supply.fail_status = VMP_ERROR_LIMIT;
  vmp_placed placed;
  VEXPECT_STATUS(rig_try_alloc(f, SIZE, 0, &placed), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(f->supply.failed_takes, 4);
  VEXPECT_UINT_EQ(f->supply.last_request.bytes, 512 * KIB);
  vmp_slab_stats after = rig_stats(f);
  after.metadata_bytes = before.metadata_bytes;
  VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  expect_single(f, 0);
}

VTEST_F(SlabBundles, ASingleSpanWhereDivideFails, bundle_rig) {
  prepare(f, SIZE);
  vmp_fake_supply_touch(&f->supply, RIG_BASE + 2 * MIB, 4 * MIB, fence_of(1, 7));
  f->supply.fail_divides = 1;
  vmp_placed placed = rig_alloc_on(f, SIZE, 0);
  VEXPECT_UINT_EQ(f->supply.failed_divides, 1);
  VEXPECT_UINT_EQ(f->supply.gives, 1);
  VEXPECT_UINT_EQ(f->supply.last_give_offset, RIG_BASE + 2 * MIB);
  VEXPECT_UINT_EQ(f->supply.withdraws, 0);
  // Its place has kept its fence.
  VEXPECT_UINT_EQ(placed.offset, RIG_BASE + 2 * MIB);
  VEXPECT_UINT_EQ(placed.after.streams, 2);
  VEXPECT_UINT_EQ(placed.after.sequence, 7);
  expect_single(f, 1);
}

VTEST_F(SlabBundles, NobodyIsToldOfABundleThatIsNotPublished, bundle_rig) {
  prepare(f, SIZE);
  f->supply.fail_publishes = 1;
  uint64_t begin = rig_alloc(f, SIZE);
  VEXPECT_UINT_EQ(f->supply.divides, 1);
  VEXPECT_UINT_EQ(f->supply.bundles, 0);
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_spans, 2 * SPANS);
  VEXPECT_UINT_EQ(rig_span(f, begin)->address, 0);
  for (uint32_t i = 1; i < SPANS; i++) VEXPECT_UINT_NE(rig_span(f, begin + i * 512 * KIB)->address, 0);
  rig_check(f);
  rig_free(f, begin, VMP_FENCE_NONE);
  vmp_slab_trim(f->slab);
  VEXPECT_UINT_EQ(f->supply.gives, SPANS);
  VEXPECT_UINT_EQ(f->supply.withdraws, SPANS - 1);
}

VTEST_F(SlabBundles, SurvivesEveryHostMemoryFailure, bundle_rig) {
  static const uint64_t bounds[] = {1, UINT64_MAX};
  for (size_t b = 0; b < 2; b++) {
    uint64_t failed = 0;
    for (bool done = false; !done; failed++) {
      VTRACE("%llu failures after %llu", (unsigned long long)bounds[b], (unsigned long long)failed);
      restart(f);
      prepare(f, 512);
      const vmp_slab_class *class = class_of(f, 512);
      uint64_t spans = class->num_spans, takes = f->supply.takes;
      vmp_slab_stats before = rig_stats(f);
      vmp_placed placed;
      (void)vmp_mem_failures();
      vmp_mem_fail_after(failed, bounds[b]);
      vmp_status status = rig_try_alloc(f, 512, 0, &placed);
      done = vmp_mem_failures() == 0;
      vmp_mem_fail_after(0, 0);
      rig_check(f);
      VEXPECT_UINT_EQ(f->supply.bundles, done);
      VEXPECT_UINT_EQ(class->num_arriving, 0);
      if (status != VMP_OK) {
        VEXPECT_UINT_EQ(bounds[b], UINT64_MAX);  // else the single span has its memory
        VEXPECT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
        VEXPECT_UINT_EQ(f->supply.takes, takes);
        vmp_slab_stats after = rig_stats(f);
        after.metadata_bytes = before.metadata_bytes;
        VEXPECT_BYTES_EQ(&before, &after, sizeof before);
        expect_bundle(f, rig_alloc(f, 512), 512);
        continue;
      }
      VEXPECT_UINT_EQ(f->supply.takes, takes + 1);
      VEXPECT_UINT_EQ(class->num_spans, spans + (done ? 64 : 1));
      VEXPECT_UINT_EQ(f->supply.num_blocks, class->num_spans);
    }
    VEXPECT_UINT_GE(failed, 3);  // a block of records, and lines for the cards
  }
}

// ---- the lock is let go of in take ----

typedef struct during {
  bundle_rig *rig;
  uint64_t given_back;  // an object that another thread frees meanwhile
  bool allocates;       // and it allocates two of the class, before and after that
  uint64_t inner[2];
  bool busy;
} during;

static void another_thread(void *context, const vmp_fake_taken *block) {
  during *d = context;
  if (d->busy) return;
  d->busy = true;
  bundle_rig *f = d->rig;
  vmp_span *owner = block->owner;  // the others may move the block's entry
  uint64_t offset = block->offset, start, bytes;
  vmp_slab_word word;
  VEXPECT_UINT_EQ(block->bytes, 2 * MIB);
  for (uint64_t at = 0; at < 2 * MIB; at += SIZE) {
    // Nothing of the bundle can be freed or found yet.
    VEXPECT_STATUS(vmp_slab_free(f->slab, owner, offset + at, VMP_FENCE_NONE, &bytes), VMP_ERROR_NOT_A_BLOCK);
    VEXPECT_FALSE(vmp_slab_find(f->slab, owner, offset + at, &start, &bytes));
    VEXPECT_FALSE(vmp_slab_word_of(f->slab, owner, offset + at, &word));
  }
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_arriving, SPANS);
  rig_check(f);
  if (d->allocates) d->inner[0] = rig_alloc(f, SIZE);
  rig_free(f, d->given_back, fence_of(0, 50));
  if (d->allocates) d->inner[1] = rig_alloc(f, SIZE);
  vmp_slab_trim(f->slab);
  rig_check(f);
}

VTEST_F(SlabBundles, OthersAllocateAndFreeWhileABundleArrives, bundle_rig) {
  during d = {.rig = f, .given_back = prepare(f, SIZE), .allocates = true};
  f->supply.during_take = another_thread;
  f->supply.context = &d;
  uint64_t outer = rig_alloc(f, SIZE);
  VEXPECT_TRUE(d.busy);
  VEXPECT_UINT_EQ(outer, RIG_BASE + 2 * MIB);
  VEXPECT_UINT_EQ(d.inner[0], RIG_BASE + 4 * MIB);  // of a single span: one bundle at a time
  VEXPECT_UINT_EQ(d.inner[1], d.given_back);        // of the fullest span
  VEXPECT_UINT_EQ(f->supply.bundles, 1);
  expect_bundle(f, outer, SIZE);
  VEXPECT_UINT_EQ(class_of(f, SIZE)->num_spans, 2 * SPANS + 1);
  VEXPECT_UINT_EQ(rig_stats(f).objects, SPANS * OBJECTS + 2);
  rig_check(f);
  uint64_t takes = f->supply.takes;
  for (uint32_t i = 2; i < (SPANS + 1) * OBJECTS; i++) (void)rig_alloc(f, SIZE);
  VEXPECT_UINT_EQ(f->supply.takes, takes);
  VEXPECT_UINT_EQ(class_of(f, SIZE)->nonempty, 0);
}

VTEST_F(SlabBundles, OthersFreeWhileABundleFails, bundle_rig) {
  for (uint64_t fails = 1; fails <= 4; fails += 3) {
    VTRACE("%llu failures", (unsigned long long)fails);
    restart(f);
    during d = {.rig = f, .given_back = prepare(f, SIZE)};
    f->supply.during_take = another_thread;
    f->supply.context = &d;
    f->supply.fail_takes = fails;
    f->supply.fail_status = VMP_ERROR_OUT_OF_MEMORY;
    uint64_t outer = rig_alloc(f, SIZE);
    VEXPECT_TRUE(d.busy);
    VEXPECT_UINT_EQ(f->supply.failed_takes, fails);
    // Where not even a single span can be had, what was freed meanwhile is used.
    VEXPECT_UINT_EQ(outer, fails == 1 ? RIG_BASE + 2 * MIB : d.given_back);
    expect_single(f, fails == 1);
  }
}

// ---- marks ----

VTEST_F(SlabMarks, AreWantedOnceThereAreManyCards, bundle_rig) {
  rig_remake(f, (vmp_slab_options){.max_object_bytes = SIZE});
  f->slab->marks_from_lines = 1 + 2 * 5;  // nobody's line, and two cards for 64 objects each
  VEXPECT_NULL(vmp_slab_marks(f->slab));
  fill_spans(f, 512, 1);
  VEXPECT_FALSE(vmp_slab_wants_marks(f->slab));
  fill_spans(f, 512, 1);
  VEXPECT_TRUE(vmp_slab_wants_marks(f->slab));
  vmp_slab_stats before = rig_stats(f);
  for (uint64_t i = 0; i < 2; i++) {
    vmp_mem_fail_after(i, 1);
    VEXPECT_FALSE(vmp_slab_marks_start(f->slab));
    vmp_mem_fail_after(0, 0);
    VEXPECT_NULL(vmp_slab_marks(f->slab));
    VEXPECT_FALSE(vmp_slab_wants_marks(f->slab));  // but when there are twice as many
    f->slab->marks_from_lines /= 2;
    VEXPECT_TRUE(vmp_slab_wants_marks(f->slab));
    vmp_slab_stats after = rig_stats(f);
    VEXPECT_BYTES_EQ(&before, &after, sizeof before);
  }
  VEXPECT_TRUE(vmp_slab_marks_start(f->slab));
  VEXPECT_NOT_NULL(vmp_slab_marks(f->slab));
  VEXPECT_FALSE(vmp_slab_wants_marks(f->slab));
  VEXPECT_UINT_GT(rig_stats(f).metadata_bytes, before.metadata_bytes);
}

VTEST(SlabMarks, EveryWordHasItsOwn) {
  enum { LINES = 2 * 1024, WORDS = LINES * 16 };
  static bool seen[WORDS];
  for (uint64_t word = 0; word < WORDS; word++) {
    uint64_t number = vmp_card_mark_of(word);
    VASSERT_UINT_LT(number, WORDS);
    VASSERT_FALSE(seen[number]);
    seen[number] = true;
    // Marks of a line lie together, those of the next line in another cache line.
    VASSERT_UINT_EQ(number / 16, vmp_card_mark_of(word & ~UINT64_C(15)) / 16);
    if (word + 16 < WORDS) VASSERT_UINT_NE(number / 512, vmp_card_mark_of(word + 16) / 512);
  }
}

// As the pool writes them: live, and slack in the upper half.
#define PLAIN (VMP_SLAB_PLAIN | 3u << 8 | 300u << 16)
#define STREAMS 4u  // not plain with it

static vmp_slab_word word_of(bundle_rig *f, uint64_t offset) {
  vmp_slab_word at = {0};
  VEXPECT_TRUE(vmp_slab_word_of(f->slab, rig_span(f, offset), offset, &at));
  return at;
}

// The word of a new object, which has a mark.
static vmp_slab_word new_word(bundle_rig *f) {
  vmp_slab_word at = word_of(f, rig_alloc(f, SIZE));
  VEXPECT_NOT_NULL(at.mark.word);
  VEXPECT_UINT_EQ(vmp_slab_word_get(at), 0);
  VEXPECT_FALSE(vmp_card_mark_get(at.mark));
  return at;
}

static void expect_word(vmp_slab_word at, uint64_t word, bool marked, uint32_t low) {
  VEXPECT_UINT_EQ(vmp_slab_word_get(at), word);
  VEXPECT_INT_EQ(vmp_card_mark_get(at.mark), marked);
  VEXPECT_UINT_EQ(atomic_load(at.low), low);
}

VTEST_F(SlabMarks, APlainWordCountsWhileItsMarkIsSet, bundle_rig) {
  vmp_slab_word at = new_word(f);
  vmp_slab_word_set(at, PLAIN);
  expect_word(at, PLAIN, true, PLAIN);
  VEXPECT_TRUE(vmp_card_mark_clear(at.mark, false));
  expect_word(at, 0, false, PLAIN);
  VEXPECT_FALSE(vmp_card_mark_clear(at.mark, false));
  vmp_slab_word_set(at, VMP_SLAB_PLAIN);  // whoever gets the object next
  expect_word(at, VMP_SLAB_PLAIN, true, VMP_SLAB_PLAIN);
}

VTEST_F(SlabMarks, TakeClearsBoth, bundle_rig) {
  vmp_slab_word at = new_word(f);
  VEXPECT_UINT_EQ(vmp_slab_word_take(at), 0);
  vmp_slab_word_set(at, PLAIN);
  VEXPECT_UINT_EQ(vmp_slab_word_take(at), PLAIN);
  expect_word(at, 0, false, 0);
  VEXPECT_UINT_EQ(vmp_slab_word_take(at), 0);
}

VTEST_F(SlabMarks, TakeLeavesAWordThatWasTakenByItsMark, bundle_rig) {
  vmp_slab_word at = new_word(f);
  vmp_slab_word_set(at, PLAIN);
  VEXPECT_TRUE(vmp_card_mark_clear(at.mark, true));
  VEXPECT_UINT_EQ(vmp_slab_word_take(at), 0);
  expect_word(at, 0, false, PLAIN);
}

VTEST_F(SlabMarks, OtherWordsCountWithoutAMark, bundle_rig) {
  vmp_slab_word at = new_word(f);
  vmp_slab_word_set(at, PLAIN | STREAMS);
  expect_word(at, PLAIN | STREAMS, false, PLAIN | STREAMS);
  VEXPECT_UINT_EQ(vmp_slab_word_take(at), PLAIN | STREAMS);
  expect_word(at, 0, false, 0);
}

VTEST_F(SlabMarks, ChangeSetsAndClearsTheMark, bundle_rig) {
  vmp_slab_word at = new_word(f);
  vmp_slab_word_set(at, PLAIN);
  VEXPECT_TRUE(vmp_slab_word_change(at, 1 << 8, 2 << 8));  // the stream: plain stays plain
  expect_word(at, PLAIN & ~(2u << 8), true, PLAIN & ~(2u << 8));
  VEXPECT_TRUE(vmp_slab_word_change(at, 2 << 8, 0));
  VEXPECT_TRUE(vmp_slab_word_change(at, STREAMS, 0));
  expect_word(at, PLAIN | STREAMS, false, PLAIN | STREAMS);
  VEXPECT_TRUE(vmp_slab_word_change(at, 16, 0));
  expect_word(at, PLAIN | STREAMS | 16, false, PLAIN | STREAMS | 16);
  VEXPECT_TRUE(vmp_slab_word_change(at, 0, STREAMS));
  expect_word(at, PLAIN | 16, false, PLAIN | 16);
  VEXPECT_TRUE(vmp_slab_word_change(at, 0, 16));
  expect_word(at, PLAIN, true, PLAIN);
}

VTEST_F(SlabMarks, ChangeOfNoWordIsRefused, bundle_rig) {
  vmp_slab_word at = new_word(f);
  VEXPECT_FALSE(vmp_slab_word_change(at, STREAMS, 0));
  expect_word(at, 0, false, 0);
  vmp_slab_word_set(at, PLAIN);
  VEXPECT_TRUE(vmp_card_mark_clear(at.mark, false));
  VEXPECT_FALSE(vmp_slab_word_change(at, STREAMS, 0));  // somebody has taken it
  expect_word(at, 0, false, PLAIN);
}

// Neighbours in a card, and in the cards of a bundle, have marks of their own.
VTEST_F(SlabMarks, NeighboursStayAsTheyAre, bundle_rig) {
  enum { N = 3 * 64 };
  uint64_t offsets[N];
  f->slab->bundles_from = 0;
  rig_alloc_many(f, 512, offsets, N);
  for (uint32_t i = 0; i < N; i++) vmp_slab_word_set(word_of(f, offsets[i]), VMP_SLAB_PLAIN | i << 16);
  rig_check(f);
  for (uint32_t i = 0; i < N; i += 3) {
    VEXPECT_UINT_EQ(vmp_slab_word_take(word_of(f, offsets[i])), VMP_SLAB_PLAIN | i << 16);
  }
  for (uint32_t i = 0; i < N; i++) {
    uint32_t expected = i % 3 == 0 ? 0 : VMP_SLAB_PLAIN | i << 16;
    expect_word(word_of(f, offsets[i]), expected, expected != 0, expected);
  }
  rig_check(f);
}

VTEST_F(SlabMarks, WordsThatNobodySeesHaveNone, bundle_rig) {
  remake(f, (vmp_slab_options){.max_object_bytes = 256 * KIB});
  f->supply.fail_publishes = 1;
  vmp_slab_word words[] = {word_of(f, rig_alloc(f, SIZE)), word_of(f, rig_alloc(f, 256 * KIB))};
  VEXPECT_NULL(words[0].high);
  VEXPECT_NOT_NULL(words[1].high);
  static const uint64_t plain[] = {PLAIN, UINT64_C(5) << 32 | PLAIN};
  for (size_t i = 0; i < 2; i++) {
    VEXPECT_NULL(words[i].mark.word);
    vmp_slab_word_set(words[i], plain[i]);
    VEXPECT_UINT_EQ(vmp_slab_word_get(words[i]), plain[i]);
    VEXPECT_TRUE(vmp_slab_word_change(words[i], STREAMS, 0));
    VEXPECT_TRUE(vmp_slab_word_change(words[i], 0, STREAMS));
    VEXPECT_UINT_EQ(vmp_slab_word_take(words[i]), plain[i]);
    VEXPECT_UINT_EQ(vmp_slab_word_take(words[i]), 0);
    VEXPECT_FALSE(vmp_slab_word_change(words[i], STREAMS, 0));
  }
}

// ---- the checker notices stray marks ----

// Three objects are in use: of a plain word, of one that isn't plain, and of none. And a span that isn't published,
// with one object in use, and a free card.
typedef struct marked_rig {
  bundle_rig base;
  const vmp_span *span, *hidden;
  uint32_t free_line;
} marked_rig;

static void marked_rig_setup(marked_rig *f) {
  bundle_rig_setup(&f->base);
  uint64_t offsets[3];
  rig_alloc_many(&f->base, SIZE, offsets, 3);
  vmp_slab_word_set(word_of(&f->base, offsets[0]), PLAIN);
  vmp_slab_word_set(word_of(&f->base, offsets[1]), PLAIN | STREAMS);
  f->span = rig_span(&f->base, offsets[0]);
  f->base.supply.fail_publishes = 1;
  uint64_t hidden = rig_alloc(&f->base, 60 * KIB);
  vmp_slab_word_set(word_of(&f->base, hidden), PLAIN);
  f->hidden = rig_span(&f->base, hidden);
  f->free_line = vmp_card_take(&f->base.slab->cards, 9);
  vmp_card_give(&f->base.slab->cards, f->free_line, 9);
  rig_check(&f->base);
}

// The bookkeeping is broken: only its memory is freed.
static void marked_rig_teardown(marked_rig *f) {
  vmp_slab_destroy(f->base.slab);
  vmp_fake_supply_finish(&f->base.supply);
  vmp_fake_destroy(f->base.clock);
}

// Word 0 of a card is its head.
static void mark_word(marked_rig *f, uint32_t line, uint64_t word) {
  uint64_t number = vmp_card_mark_of((uint64_t)line * 16 + word);
  vmp_card_mark_set(vmp_card_mark_at(f->base.slab->cards.marks, number), false);
}

static void mark_a_free_object(marked_rig *f) { mark_word(f, f->span->line, 1 + 7); }
static void mark_no_word(marked_rig *f) { mark_word(f, f->span->line, 1 + 2); }
static void mark_a_word_with_streams(marked_rig *f) { mark_word(f, f->span->line, 1 + 1); }
static void mark_behind_the_last(marked_rig *f) { mark_word(f, f->span->line, 1 + OBJECTS); }
static void mark_the_end_of_a_card(marked_rig *f) { mark_word(f, f->span->line, 15); }
static void mark_a_head(marked_rig *f) { mark_word(f, f->span->line, 0); }
static void mark_a_hidden_word(marked_rig *f) { mark_word(f, f->hidden->line, 1); }
static void mark_several(marked_rig *f) {
  mark_a_head(f);
  mark_a_free_object(f);
}
static void mark_a_free_card(marked_rig *f) { mark_word(f, f->free_line, 1); }
static void mark_the_head_of_a_free_card(marked_rig *f) { mark_word(f, f->free_line, 0); }
static void mark_the_end_of_a_free_card(marked_rig *f) { mark_word(f, f->free_line, 15); }

typedef struct stray {
  const char *name;
  void (*make)(marked_rig *f);
  const char *sentence;
} stray;

#define ONE "has 1 marks of what is not in use"
#define ON_A_FREE_CARD "a free card of 1 lines is still in use"
static const stray strays[] = {
    {"AFreeObject", mark_a_free_object, ONE},
    {"NoWord", mark_no_word, ONE},
    {"AWordWithStreams", mark_a_word_with_streams, ONE},
    {"BehindTheLast", mark_behind_the_last, ONE},
    {"TheEndOfACard", mark_the_end_of_a_card, ONE},
    {"AHead", mark_a_head, ONE},
    {"AHiddenWord", mark_a_hidden_word, ONE},
    {"Several", mark_several, "has 2 marks of what is not in use"},
    {"AFreeCard", mark_a_free_card, ON_A_FREE_CARD},
    {"TheHeadOfAFreeCard", mark_the_head_of_a_free_card, ON_A_FREE_CARD},
    {"TheEndOfAFreeCard", mark_the_end_of_a_free_card, ON_A_FREE_CARD},
};

static const char *stray_name(const stray *p) { return p->name; }

VTEST_FP(SlabMarks, TheCheckNoticesAMarkOf, marked_rig, stray, strays, stray_name) {
  p->make(f);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_slab_check(f->base.slab, &report), 1);
  VEXPECT_ONE_FAULT(&faults, p->sentence);
}
