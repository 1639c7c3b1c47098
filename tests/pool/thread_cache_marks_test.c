// thread_cache_marks_test.c: hits by marks: when they begin, what they do with a block's word, and when several threads
// change marks. pool/thread_cache_marks.h. What all hits have in common is in thread_cache_test.c, which runs by marks,
// too.
#include "pool/thread_cache_marks.h"

#include <pthread.h>

#include "tests/pool/marks_rig.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/faults.h"
#include "vmm/memory.h"

enum { BYTES = 4 << 10, COUNT = 64 };

static void open(pool_rig *f, uint32_t bundles_from) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  rig_go_by_marks(f, bundles_from);
}

static uint32_t gate(void) { return atomic_load(&vmp_cache_last.cache->gate); }

// word_of and is_marked tell of a block of slab's.
static vmp_slab_word word_of(pool_rig *f, const void *block) {
  uint64_t offset = 0;
  VEXPECT_TRUE(vmp_backing_offset(f->pool->backing, rig_address(block), &offset));
  return vmp_route_word_of(f->pool, offset).object;
}
static bool is_marked(pool_rig *f, const void *block) { return vmp_card_mark_get(word_of(f, block).mark); }
static bool is_loose(pool_rig *f, const void *block) {
  return (atomic_load(word_of(f, block).low) & VMP_BLOCK_IS_LOOSE) != 0;
}

typedef struct other {
  pool_rig *f;
  void *block;
  vmp_stream stream;
  vmp_status status;
} other;

static void *free_it(void *self) {
  other *o = self;
  o->status = vmp_free(o->f->pool, o->block, o->stream);
  return NULL;
}
static void *allocate_it(void *self) {
  other *o = self;
  o->status = vmp_alloc(o->f->pool, &o->block, BYTES, o->stream);
  return NULL;
}
static void elsewhere(other *o, void *(*what)(void *)) {
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, what, o), 0);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  VEXPECT_OK(o->status);
}

// ---- when they begin ----

// Before, words alone tell; then the blocks that are live have marks, but for those that leave too much over.
VTEST_F(ThreadCacheMarks, BlocksFromBeforeAreMarked, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *plain = rig_alloc(f, BYTES, f->streams[0]), *aligned = NULL, *used = rig_alloc(f, BYTES, f->streams[0]);
  VASSERT_OK(vmp_alloc_aligned(f->pool, &aligned, 600, 4096, f->streams[0]));
  VASSERT_OK(vmp_record_use(f->pool, used, f->streams[1]));
  VEXPECT_UINT_EQ(gate(), 0);
  VEXPECT_NULL(word_of(f, plain).mark.word);
  rig_go_by_marks(f, UINT32_MAX);
  void *first = rig_alloc(f, 20000, f->streams[0]);  // the first of its class: a refill
  VEXPECT_UINT_EQ(gate(), VMP_GATE_MARKS);
  VEXPECT_TRUE(is_marked(f, plain) && is_marked(f, first));
  VEXPECT_FALSE(is_marked(f, aligned) || is_marked(f, used));
  VEXPECT_TRUE(is_loose(f, aligned) && !is_loose(f, used));
  rig_check(f);
  void *all[] = {plain, aligned, used, first};
  for (int i = 0; i < 4; i++) {
    rig_free(f, all[i], f->streams[0]);
    VEXPECT_STATUS(vmp_free(f->pool, all[i], f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  }
  rig_check(f);
  VEXPECT_UINT_EQ(rig_stats(f).requested, 0);
}

// With fewer cards than that nothing changes, nor where membarrier is missing.
VTEST_F(ThreadCacheMarks, NotForFewBlocks, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(f->pool->slab->marks_from_lines, VMP_SLAB_MARKS_FROM_LINES);
  f->pool->slab->marks_from_lines = 3;  // line 0 and those of one card
  rig_free(f, rig_alloc(f, BYTES, f->streams[0]), f->streams[0]);
  VEXPECT_NULL(f->pool->span_map.marks);
  rig_free(f, rig_alloc(f, 2 * BYTES, f->streams[0]), f->streams[0]);
  VEXPECT_NOT_NULL(f->pool->span_map.marks);
}

VTEST_F(ThreadCacheMarks, NotInStrongMode, pool_rig) {
  open(f, 0);
  f->pool->strong_caches = true;
  rig_free(f, rig_alloc(f, BYTES, f->streams[0]), f->streams[0]);
  VEXPECT_NULL(f->pool->span_map.marks);
}

// Without host memory for marks words go on; without any for bundles there are none.
VTEST_F(ThreadCacheMarks, WithoutHostMemory, pool_rig) {
  bool marks = false, bundles = false;
  for (uint64_t successes = 0; !bundles && successes < 1000; successes++) {
    rig_open(f, 8 * GIB, NULL);
    void *first = rig_alloc(f, 20000, f->streams[0]), *block = NULL;  // everything but slab's own is made
    rig_go_by_marks(f, 0);
    vmp_mem_fail_after(successes, UINT64_MAX);
    vmp_status status = vmp_alloc(f->pool, &block, BYTES, f->streams[0]);
    vmp_mem_fail_after(0, 0);
    VEXPECT_TRUE(status == VMP_OK || status == VMP_ERROR_HOST_OUT_OF_MEMORY);
    marks = f->pool->span_map.marks != NULL;
    bundles = f->pool->span_map.bundles != NULL;
    VEXPECT_TRUE(marks || !bundles);
    rig_check(f);
    if (status == VMP_OK) rig_free(f, block, f->streams[0]);
    rig_free(f, first, f->streams[0]);
    rig_check(f);
    rig_destroy(f);
    f->pool = NULL;
    vmp_driver_close(f->driver);
    f->driver = NULL;
  }
  VEXPECT_TRUE(marks && bundles);
}

// ---- words ----

// A free leaves the word where it is, without its mark: not live to anybody. It is read when somebody asks, and when
// eight more blocks were freed.
VTEST_F(ThreadCacheMarks, AWordIsReadLater, pool_rig) {
  open(f, UINT32_MAX);
  void *blocks[COUNT];
  for (int i = 0; i < COUNT; i++) blocks[i] = rig_alloc(f, BYTES - 100, f->streams[0]);
  (void)rig_stats(f);
  const vmp_cache *cache = vmp_cache_last.cache;
  const int64_t least = BYTES - 511;
  const uint32_t word = (uint32_t)vmp_block_on(vmp_block_word(VMP_LAYER_SLAB, 100), cache->lane);
  for (int i = 0; i < 8; i++) {
    rig_free(f, blocks[i], f->streams[0]);
    VEXPECT_INT_EQ(cache->requested_bytes, -least);
    VEXPECT_UINT_EQ(atomic_load(word_of(f, blocks[i]).low), word);
    VEXPECT_UINT_EQ(vmp_slab_word_get(word_of(f, blocks[i])), 0);
    VEXPECT_UINT_EQ(rig_stats(f).requested, (uint64_t)(COUNT - 1 - i) * (BYTES - 100));  // reads it
  }
  for (int i = 8; i < 16; i++) rig_free(f, blocks[i], f->streams[0]);
  VEXPECT_INT_EQ(cache->requested_bytes, -8 * least);
  rig_free(f, blocks[16], f->streams[0]);  // the first of them is read
  VEXPECT_INT_EQ(cache->requested_bytes, -8 * least - (BYTES - 100));
  rig_check(f);
  for (int i = 17; i < COUNT; i++) rig_free(f, blocks[i], f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).requested, 0);
}

// A peak is what was requested at once, although the words of what was freed before are read later.
VTEST_F(ThreadCacheMarks, PeaksAreExact, pool_rig) {
  open(f, UINT32_MAX);
  void *small = rig_alloc(f, 60000, f->streams[0]);
  VASSERT_OK(vmp_pool_reset_peaks(f->pool));
  for (int i = 0; i < 20; i++) {
    rig_free(f, small, f->streams[0]);
    small = rig_alloc(f, 60000, f->streams[0]);
  }
  VEXPECT_UINT_EQ(rig_stats(f).peak_requested, 60000);
  rig_free(f, small, f->streams[0]);
  void *more = rig_alloc(f, 60001, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).peak_requested, 60001);
  rig_free(f, more, f->streams[0]);
}

// A block that leaves over more than its class's requests do is loose: it is freed under the lock, and counts right.
VTEST_F(ThreadCacheMarks, LooseBlocks, pool_rig) {
  open(f, UINT32_MAX);
  void *block = NULL, *shrunk = rig_alloc(f, 60000, f->streams[0]);
  VASSERT_OK(vmp_alloc_aligned(f->pool, &block, 600, 4096, f->streams[0]));
  VEXPECT_TRUE(is_loose(f, block) && !is_marked(f, block));
  VEXPECT_TRUE(is_marked(f, shrunk));
  VASSERT_OK(vmp_realloc(f->pool, &shrunk, 58000, f->streams[0], NULL));
  VEXPECT_UINT_EQ(rig_stats(f).requested, 58600);
  VASSERT_OK(vmp_record_use(f->pool, block, f->streams[1]));
  rig_check(f);
  rig_free(f, block, f->streams[0]);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  rig_free(f, shrunk, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).requested, 0);
  rig_check(f);
}

// What the lock must see of a block takes its mark away, until nothing is left of it.
VTEST_F(ThreadCacheMarks, BlocksThatTheLockMustSee, pool_rig) {
  open(f, UINT32_MAX);
  void *block = rig_alloc(f, BYTES, f->streams[0]);
  VEXPECT_TRUE(is_marked(f, block));
  VASSERT_OK(vmp_record_use(f->pool, block, f->streams[1]));
  VEXPECT_FALSE(is_marked(f, block));
  rig_check(f);
  rig_free(f, block, f->streams[0]);
  VEXPECT_STATUS(vmp_record_use(f->pool, block, f->streams[1]), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  rig_check(f);
}

// ---- several threads ----

// Another thread that gets a cache, or that has none and frees, ends it that marks are changed without atomic
// instructions; another stream of the same thread doesn't.
VTEST_F(ThreadCacheMarks, AnotherThreadGetsACache, pool_rig) {
  open(f, UINT32_MAX);
  void *mine = rig_alloc(f, BYTES, f->streams[0]);
  rig_free(f, rig_alloc(f, BYTES, f->streams[1]), f->streams[1]);
  VEXPECT_UINT_EQ(gate(), VMP_GATE_MARKS);
  VEXPECT_PTR_EQ(f->pool->marks_alone, vmp_guard_self());
  other o = {.f = f, .stream = f->streams[0]};
  elsewhere(&o, allocate_it);
  VEXPECT_NULL(f->pool->marks_alone);
  rig_free(f, mine, f->streams[0]);
  VEXPECT_UINT_EQ(gate(), VMP_GATE_OPEN);
  rig_free(f, o.block, f->streams[0]);
  rig_check(f);
}

VTEST_F(ThreadCacheMarks, AnotherThreadFreesWithoutACache, pool_rig) {
  open(f, UINT32_MAX);
  other o = {.f = f, .stream = f->streams[0], .block = rig_alloc(f, BYTES, f->streams[0])};
  uint64_t before = vmp_cache_last.cache->next_unread;
  elsewhere(&o, free_it);
  VEXPECT_NULL(f->pool->marks_alone);
  VEXPECT_UINT_EQ(gate(), VMP_GATE_OPEN);
  VEXPECT_STATUS(vmp_free(f->pool, o.block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  void *block = rig_alloc(f, BYTES, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  VEXPECT_UINT_EQ(vmp_cache_last.cache->next_unread, before + 1);
  VEXPECT_STATUS(vmp_free(f->pool, block, f->streams[0]), VMP_ERROR_DOUBLE_FREE);
  rig_check(f);
}

// ---- stale ----

// A bundle whose entry is another one once the mark is taken; see thread_cache_stale_test.c. The entry lies where the
// mark does, and has the mark's bit: class of 4 KiB (number 8, bit 3), spans of 32 KiB, cards of one line, line 4,
// whose word of object 2 has the 3rd mark of word 33.
VTEST_F(ThreadCacheMarks, AMarkIsGivenBackWhenTheBundleIsAnotherOne, pool_rig) {
  enum { INDEX = 2, PLACE = 33 };
  open(f, UINT32_MAX);
  void *block = rig_alloc(f, BYTES, f->streams[0]);
  vmp_cache *cache = vmp_cache_last.cache;
  static _Atomic uint64_t marks[64], bundles[64];
  static _Alignas(64) _Atomic uint32_t cards[1024];
  const uint64_t entry = vmp_span_bundle_entry(8, 15, 1, 4);
  const uint64_t address = PLACE * VMP_SPAN_BUNDLE_BYTES + INDEX * (uint64_t)BYTES;
  VASSERT_UINT_EQ(vmp_cache_number(f->pool, BYTES), 8);
  VASSERT_UINT_EQ(vmp_card_mark_of((4 << 4) + 1 + INDEX), PLACE * 64 + 3);
  vmp_span_map map = {
      .cards = (unsigned char *)cards, .marks = marks, .bundles = marks, .bundles_bytes = 64 * VMP_SPAN_BUNDLE_BYTES};
  vmp_span_entry none = 0;
  atomic_store(&marks[PLACE], entry);
  uint32_t count = vmp_magazine_count(&cache->magazines[8]);
  VEXPECT_FALSE(vmp_cache_free_marked(cache, &map, &none, (void *)(uintptr_t)address));
  VEXPECT_UINT_EQ(atomic_load(&marks[PLACE]), entry);
  VEXPECT_UINT_EQ(vmp_magazine_count(&cache->magazines[8]), count);
  // The same with an entry that stays is a hit.
  map.bundles = bundles;
  atomic_store(&bundles[PLACE], entry);
  VEXPECT_TRUE(vmp_cache_free_marked(cache, &map, &none, (void *)(uintptr_t)address));
  VEXPECT_UINT_EQ(atomic_load(&marks[PLACE]), entry & ~UINT64_C(8));
  void *taken = NULL;
  bool alone = true;
  VEXPECT_TRUE(vmp_cache_take_marked(cache, &map, 8, BYTES, alone, &taken));
  VEXPECT_UINT_EQ(rig_address(taken), address);
  VEXPECT_UINT_EQ(atomic_load(&marks[PLACE]), entry);
  rig_free(f, block, f->streams[0]);
}

// ---- bundles ----

// Objects of bundles are found by these, and everything goes back when it is freed.
VTEST_F(ThreadCacheMarks, BundlesComeAndGo, pool_rig) {
  enum { MANY = 4000 };
  static void *blocks[MANY];
  open(f, 1);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < MANY; i++) blocks[i] = rig_alloc(f, BYTES, f->streams[0]);
    int bundled = 0;
    for (int i = 0; i < MANY; i++) {
      bundled += atomic_load(vmp_span_map_bundle(&f->pool->span_map, rig_address(blocks[i]))) != 0;
    }
    // Cards of bundles come back one by one; half of them are used again by single spans before there are new bundles.
    VEXPECT_INT_GT(bundled, round == 0 ? MANY / 2 : MANY / 5);
    rig_check(f);
    for (int i = 0; i < MANY; i++) rig_free(f, blocks[(i * 7) % MANY], f->streams[0]);
    rig_check(f);
    VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
    VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
    for (int i = 0; i < MANY; i++) {
      VEXPECT_UINT_EQ(atomic_load(vmp_span_map_bundle(&f->pool->span_map, rig_address(blocks[i]))), 0);
    }
  }
}

// With several streams, too, where the ladder asks for mapped memory first.
VTEST_F(ThreadCacheMarks, BundlesOfSeveralStreams, pool_rig) {
  enum { MANY = 4000 };
  static void *blocks[MANY];
  open(f, 1);
  rig_free(f, rig_alloc(f, MIB, f->streams[1]), f->streams[1]);
  for (int i = 0; i < MANY; i++) blocks[i] = rig_alloc(f, BYTES, f->streams[i % 2]);
  int bundled = 0;
  for (int i = 0; i < MANY; i++) {
    bundled += atomic_load(vmp_span_map_bundle(&f->pool->span_map, rig_address(blocks[i]))) != 0;
  }
  VEXPECT_INT_GT(bundled, MANY / 2);
  rig_check(f);
  for (int i = 0; i < MANY; i++) rig_free(f, blocks[i], f->streams[i % 2]);
}

// Each step gives empty spans back, the unused ones of a bundle, too: the next step uses them first.
VTEST_F(ThreadCacheMarks, WhatIsLeftOfABundleIsUsedFirst, pool_rig) {
  enum { MANY = 1000, STEPS = 60, A_STEP = 8 };
  static void *blocks[MANY + STEPS * A_STEP];
  open(f, 1);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  int count = 0;
  while (count < MANY) blocks[count++] = rig_alloc(f, BYTES, f->streams[0]);
  uint64_t before = rig_stats(f).mapped;
  for (int step = 0; step < STEPS; step++) {
    for (int i = 0; i < A_STEP; i++) blocks[count++] = rig_alloc(f, BYTES, f->streams[0]);
    VASSERT_OK(vmp_pool_step(f->pool));
  }
  // 60 spans of 32 KiB are 2 MiB; a bundle a step would be 120.
  VEXPECT_UINT_LE(rig_stats(f).mapped - before, 34 * MIB);
  while (count > 0) rig_free(f, blocks[--count], f->streams[0]);
}

// ---- check ----

static void expect_fault(pool_rig *f, const char *sentence) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  vmp_guard_lock(&f->pool->guard);
  VEXPECT_UINT_GT(vmp_caches_check(f->pool, &report), 0);
  vmp_guard_unlock(&f->pool->guard);
  VEXPECT_TRUE(vtest_faults_find(&faults, sentence));
}

VTEST_F(ThreadCacheMarks, TheCheckNotices, pool_rig) {
  open(f, UINT32_MAX);
  void *block = rig_alloc(f, BYTES, f->streams[0]), *second = rig_alloc(f, BYTES, f->streams[0]);
  rig_free(f, block, f->streams[0]);
  vmp_cache *cache = vmp_cache_last.cache;
  vmp_magazine *magazine = &cache->magazines[vmp_cache_number(f->pool, BYTES)];
  rig_check(f);
  rig_free(f, second, f->streams[0]);

  vmp_unread *unread = &cache->unread[(cache->next_unread - 1) % VMP_CACHE_UNREAD];
  const _Atomic uint32_t *word = unread->word;
  unread->word = magazine->objects[0].word == word ? magazine->objects[1].word : magazine->objects[0].word;
  expect_fault(f, "words are unread");
  unread->word = word;

  atomic_fetch_or(&cache->gate, VMP_GATE_SHARED);
  expect_fault(f, "don't go by marks as the pool's do");
  atomic_fetch_and(&cache->gate, ~(uint32_t)VMP_GATE_SHARED);

  vmp_card_mark mark = vmp_span_mark_at(&f->pool->span_map, vmp_span_word_number(&f->pool->span_map, word));
  vmp_card_mark_set(mark, true);
  expect_fault(f, "is live, or not where its word is");
  (void)vmp_card_mark_clear(mark, true);
  rig_check(f);
}
