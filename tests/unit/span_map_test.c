// span_map_test.c: pool/span_map.h against an array of pages, with failing host memory, and with each corruption that
// its check must notice.
#include "pool/span_map.h"

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

#define PAGES 8192u
#define BASE (UINT64_C(7) << 40)
#define FAR_BASE (UINT64_C(9) << 40)  // of the second range: the upper half of the pages

typedef struct rig {
  vmp_span_map map;
  vmp_card_store cards;
  uint32_t words;         // of a card
  uint32_t lines[PAGES];  // the model: where the card of a page is, 0: none
  uint32_t spans[PAGES];  // of a span's first page: how many it has
} rig;

static uint64_t address_of(uint64_t page) {
  return (page < PAGES / 2 ? BASE : FAR_BASE) + page % (PAGES / 2) * VMP_SPAN_PAGE_BYTES;
}

static void link_range(rig *f, uint64_t page) {
  vmp_span_range *range = vmp_span_range_make(address_of(page), PAGES / 2 * VMP_SPAN_PAGE_BYTES);
  VASSERT_NOT_NULL(range);
  vmp_span_map_link(&f->map, range);
}

static void add(rig *f, uint64_t page, uint32_t count) {
  uint32_t line = vmp_card_take(&f->cards, f->words);
  VASSERT_TRUE(line != 0);
  atomic_store(&vmp_card_at(&f->cards, line)->head, vmp_card_head(1, 1));
  for (uint64_t i = 0; i < count; i++) f->lines[page + i] = line;
  f->spans[page] = count;
  VASSERT_TRUE(vmp_span_map_suits(&f->map, address_of(page), count * VMP_SPAN_PAGE_BYTES));
  vmp_span_map_add(&f->map, address_of(page), count * VMP_SPAN_PAGE_BYTES, line);
}

static void take_out(rig *f, uint64_t page) {
  while (f->spans[page] == 0) page--;
  vmp_span_map_remove(&f->map, address_of(page), f->spans[page] * VMP_SPAN_PAGE_BYTES);
  vmp_card_give(&f->cards, f->lines[page], f->words);
  for (uint64_t i = 0; i < f->spans[page]; i++) f->lines[page + i] = 0;
  f->spans[page] = 0;
}

static void rig_setup(rig *f) {
  f->words = 8;
  VASSERT_TRUE(vmp_card_store_open(&f->cards));
  f->map.cards = f->cards.base;
  link_range(f, 0);
  link_range(f, PAGES / 2);
}
static void rig_teardown(rig *f) {
  vmp_span_map_free(&f->map);
  vmp_card_store_close(&f->cards);
}

static void expect_model(const rig *f) {
  for (uint64_t i = 0; i < PAGES; i++) {
    uint64_t address = address_of(i) + i % 64 * 512;
    const vmp_card *expected = f->lines[i] == 0 ? NULL : vmp_card_at(&f->cards, f->lines[i]);
    VASSERT_TRUE(vmp_span_map_find(&f->map, address) == expected);
    vmp_span_entry *first = vmp_span_map_first(&f->map, address);
    VASSERT_TRUE(first == (i < PAGES / 2 ? vmp_span_map_entry(&f->map, address) : &vmp_span_no_entry));
    if (f->spans[i] == 0) continue;
    VASSERT_TRUE(vmp_span_map_names(&f->map, address_of(i), f->spans[i] * VMP_SPAN_PAGE_BYTES, f->lines[i]));
  }
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_span_map_check(&f->map, &report);
  VEXPECT_NO_FAULTS(&faults);
}

static void expect_fault(const rig *f, const char *part) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_TRUE(vmp_span_map_check(&f->map, &report) > 0);
  VEXPECT_A_FAULT(&faults, part);
}

VTEST_F(SpanMap, AnEmptyMapKnowsNothing, rig) {
  vmp_span_map empty = {0};
  VEXPECT_NULL(vmp_span_map_find(&empty, BASE));
  VEXPECT_TRUE(vmp_span_map_first(&empty, BASE) == &vmp_span_no_entry);
  VEXPECT_FALSE(vmp_span_map_suits(&empty, BASE, 32 << 10));
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&empty), 0);
  expect_model(f);
}

VTEST_F(SpanMap, OnlyAlignedPowersOfTwoInARangeSuit, rig) {
  VEXPECT_TRUE(vmp_span_map_suits(&f->map, BASE, 32 << 10));
  VEXPECT_TRUE(vmp_span_map_suits(&f->map, BASE + (1 << 20), 1 << 20));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE + (32 << 10), 64 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE, 96 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE + 512, 32 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE, 16 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE - (32 << 10), 32 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(&f->map, BASE, PAGES * VMP_SPAN_PAGE_BYTES));
  vmp_span_map odd = {.cards = f->cards.base};  // where pages of the range are no pages
  vmp_span_map_link(&odd, vmp_span_range_make(BASE + 512, 64 * VMP_SPAN_PAGE_BYTES));
  VEXPECT_FALSE(vmp_span_map_suits(&odd, BASE + VMP_SPAN_PAGE_BYTES, 32 << 10));
  vmp_span_map_free(&odd);
}

// A page of memory holds 1024 entries: only those that were written count.
VTEST_F(SpanMap, OnlyWrittenEntriesAreMetadata, rig) {
  uint64_t empty = vmp_span_map_metadata_bytes(&f->map);
  add(f, 0, 1);
  add(f, 1023, 1);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty + 4096);
  add(f, 1024, 64);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty + 8192);
}

// Spans of 1 to 64 pages come and go; every page names its card, and no other.
VTEST_F(SpanMap, ComesAndGoesAsAModelDoes, rig) {
  vtest_rng rng = vtest_rng_make(vtest_seed(40));
  for (int round = 0; round < 200; round++) {
    for (int step = 0; step < 50; step++) {
      uint32_t count = 1u << vtest_rng_below(&rng, 7);
      uint64_t page = vtest_rng_below(&rng, PAGES) / count * count;
      bool taken = false;
      for (uint64_t i = page; i < page + count; i++) {
        if (f->lines[i] == 0) continue;
        take_out(f, i);
        taken = true;
      }
      if (!taken) add(f, page, count);
    }
    if (round % 20 == 19) expect_model(f);
  }
  expect_model(f);
}

// Without host memory no range is made. Where addresses, or memory that may be written, are few, it has entries for a
// part of its pages, from its begin.
VTEST_F(SpanMap, HostMemoryRunsOut, rig) {
  const uint64_t bytes = (UINT64_C(1) << 20) * VMP_SPAN_PAGE_BYTES;  // 4 MiB of entries: 7 attempts down to 64 KiB
  const uint64_t failures[] = {1, 7, 7, 1};                          // a record, addresses, memory, bits
  for (uint64_t step = 0; step < 4; step++) {
    vmp_mem_fail_after(step, failures[step]);
    VEXPECT_NULL(vmp_span_range_make(BASE, bytes));
    VEXPECT_UINT_EQ(vmp_mem_failures(), failures[step]);
  }
  for (uint64_t step = 1; step < 3; step++) {
    vmp_mem_fail_after(step, 2);
    vmp_span_range *range = vmp_span_range_make(BASE, bytes);
    vmp_mem_fail_after(0, 0);
    VASSERT_NOT_NULL(range);
    VEXPECT_UINT_EQ(range->bytes, bytes / 4);
    vmp_span_map map = {.cards = f->cards.base};
    vmp_span_map_link(&map, range);
    VEXPECT_TRUE(vmp_span_map_suits(&map, BASE + bytes / 4 - (32 << 10), 32 << 10));
    VEXPECT_FALSE(vmp_span_map_suits(&map, BASE + bytes / 4, 32 << 10));
    VEXPECT_NULL(vmp_span_map_find(&map, BASE + bytes / 4));
    vmp_span_map_free(&map);
  }
}

VTEST_F(SpanMap, TheCheckNoticesACardOfAnotherClass, rig) {
  add(f, 10, 2);
  atomic_store(&vmp_card_at(&f->cards, f->lines[10])->head, vmp_card_head(2, 1));
  expect_fault(f, "names a card of another class");
}

VTEST_F(SpanMap, TheCheckNoticesALostPage, rig) {
  add(f, 10, 2);
  atomic_store(vmp_span_map_entry(&f->map, address_of(11)), 0);
  expect_fault(f, "1 pages have a card, and 2 are counted");
  VEXPECT_FALSE(vmp_span_map_names(&f->map, address_of(10), 2 * VMP_SPAN_PAGE_BYTES, f->lines[10]));
}

VTEST_F(SpanMap, TheCheckNoticesAWrongCopy, rig) {
  f->map.bytes -= VMP_SPAN_PAGE_BYTES;
  expect_fault(f, "the copy of the first range");
}

VTEST_F(SpanMap, TheCheckNoticesAnEntryOfNoPage, rig) {
  atomic_store(&vmp_span_no_entry, 64);
  expect_fault(f, "addresses without one was written to");
  atomic_store(&vmp_span_no_entry, 0);
}

// ---- bundles ----
#define BUNDLE_PAGES (VMP_SPAN_BUNDLE_BYTES / VMP_SPAN_PAGE_BYTES)
#define NUMBER 3u  // of the class of every span in a bundle

// add_pages fills 2 MiB with spans of `span_pages` pages whose cards lie one behind the other. Returns the first card.
static uint32_t add_pages(rig *f, uint64_t page, uint32_t span_pages) {
  uint32_t count = (uint32_t)BUNDLE_PAGES / span_pages, lines = vmp_card_lines(f->words);
  uint32_t first = vmp_card_take_row(&f->cards, count, f->words);
  VEXPECT_UINT_NE(first, 0);
  for (uint32_t i = 0; i < count; i++) {
    uint64_t at = page + (uint64_t)i * span_pages;
    uint32_t line = first + i * lines;
    atomic_store(&vmp_card_at(&f->cards, line)->head, vmp_card_head(NUMBER, 1));
    for (uint64_t k = 0; k < span_pages; k++) f->lines[at + k] = line;
    f->spans[at] = span_pages;
    vmp_span_map_add(&f->map, address_of(at), span_pages * VMP_SPAN_PAGE_BYTES, line);
  }
  return first;
}

static uint32_t add_bundle(rig *f, uint64_t page, uint32_t span_pages) {
  uint32_t first = add_pages(f, page, span_pages);
  vmp_span_map_bundle_add(&f->map, address_of(page), span_pages * VMP_SPAN_PAGE_BYTES, first, vmp_card_lines(f->words));
  return first;
}

// expect_bundle: the bundle says of each page of its 2 MiB what the page's own entry does.
static void expect_bundle(const rig *f, uint64_t page) {
  for (uint64_t i = page; i < page + BUNDLE_PAGES; i++) {
    uint64_t address = address_of(i) + i % 64 * 512;
    const vmp_span_bundle *where = vmp_span_map_bundle(&f->map, address);
    VASSERT_TRUE(where != &vmp_span_no_bundle);
    uint64_t bundle = atomic_load(where);
    uint32_t entry = atomic_load(vmp_span_map_entry(&f->map, address));
    VASSERT_UINT_NE(bundle, 0);
    VASSERT_UINT_EQ(vmp_span_bundle_number(bundle), vmp_span_number(entry));
    VASSERT_UINT_EQ(vmp_span_bundle_line(bundle, address), f->lines[i]);
    VASSERT_UINT_EQ(vmp_span_bundle_line(bundle, address), entry >> VMP_CARD_NUMBER_BITS);
  }
}

static uint64_t bundle_of(const rig *f, uint64_t page) {
  return atomic_load(vmp_span_map_bundle(&f->map, address_of(page)));
}

static const uint32_t span_sizes[] = {1, 2, 16, 64};
static const char *span_size_name(const uint32_t *p) {
  return *p == 1 ? "32KiB" : *p == 2 ? "64KiB" : *p == 16 ? "512KiB" : "2MiB";
}

VTEST_FP(SpanBundle, SaysWhatTheEntriesOfItsPagesDo, rig, uint32_t, span_sizes, span_size_name) {
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  for (uint32_t words = 8; words <= 128; words += 30) {  // cards of 1, 3, 5, 7 and 9 lines
    f->words = words;
    uint64_t page = (1 + words / 30 * 2) * BUNDLE_PAGES;  // and nothing is known of the 2 MiB beside it
    (void)add_bundle(f, page, *p);
    expect_bundle(f, page);
    VEXPECT_UINT_EQ(bundle_of(f, page - 1), 0);
    VEXPECT_UINT_EQ(bundle_of(f, page + BUNDLE_PAGES), 0);
  }
  expect_model(f);
}

// The first and the last 2 MiB of the range have one like the others.
VTEST_F(SpanBundle, AtBothEndsOfTheFirstRange, rig) {
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  (void)add_bundle(f, 0, 4);
  (void)add_bundle(f, PAGES / 2 - BUNDLE_PAGES, 4);
  expect_bundle(f, 0);
  expect_bundle(f, PAGES / 2 - BUNDLE_PAGES);
  expect_model(f);
}

// Whichever span goes first ends the bundle; the others keep their entries, and go without it.
VTEST_FP(SpanBundle, TheFirstSpanThatGoesEndsIt, rig, uint32_t, span_sizes, span_size_name) {
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  for (uint64_t page = 0; page < BUNDLE_PAGES; page += *p) {
    (void)add_bundle(f, 0, *p);
    (void)add_bundle(f, BUNDLE_PAGES, *p);
    take_out(f, page);
    VEXPECT_UINT_EQ(bundle_of(f, page), 0);
    expect_bundle(f, BUNDLE_PAGES);
    if (page % 16 == 0) expect_model(f);
    for (uint64_t i = 0; i < 2 * BUNDLE_PAGES; i++) {
      if (f->lines[i] != 0) take_out(f, i);
    }
    VEXPECT_UINT_EQ(bundle_of(f, BUNDLE_PAGES), 0);
    // Rows come only while few single cards are free.
    for (int i = 0; i < 2 * (int)(BUNDLE_PAGES / *p); i++) (void)vmp_card_take(&f->cards, f->words);
  }
  expect_model(f);
}

// Only the first range has bundles, and only as far as it has whole 2 MiB.
VTEST_F(SpanBundle, NoneOutsideOfTheFirstRange, rig) {
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, BASE) == &vmp_span_no_bundle);  // not wanted yet
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  uint64_t end = BASE + PAGES / 2 * VMP_SPAN_PAGE_BYTES;
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, BASE - 1) == &vmp_span_no_bundle);
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, end - 1) == &f->map.bundles[PAGES / 2 / BUNDLE_PAGES - 1]);
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, end) == &vmp_span_no_bundle);
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, 0) == &vmp_span_no_bundle);
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, UINT64_MAX) == &vmp_span_no_bundle);
  (void)add_bundle(f, PAGES / 2, 4);  // in the second range: there is no room for it
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, FAR_BASE) == &vmp_span_no_bundle);
  VEXPECT_UINT_EQ(atomic_load(&vmp_span_no_bundle), 0);
  expect_model(f);
  take_out(f, PAGES / 2);
  expect_model(f);
}

VTEST_F(SpanBundle, ThePagesBehindTheLastWholeOneHaveNone, rig) {
  vmp_span_map odd = {.cards = f->cards.base};
  vmp_span_map_link(&odd, vmp_span_range_make(BASE, 2 * VMP_SPAN_BUNDLE_BYTES + 3 * VMP_SPAN_PAGE_BYTES));
  VEXPECT_TRUE(vmp_span_map_bundles_start(&odd));
  VEXPECT_TRUE(vmp_span_map_bundle(&odd, BASE + 2 * VMP_SPAN_BUNDLE_BYTES - 1) == &odd.bundles[1]);
  VEXPECT_TRUE(vmp_span_map_bundle(&odd, BASE + 2 * VMP_SPAN_BUNDLE_BYTES) == &vmp_span_no_bundle);
  uint32_t line = vmp_card_take(&f->cards, 8);
  atomic_store(&vmp_card_at(&f->cards, line)->head, vmp_card_head(NUMBER, 1));
  vmp_span_map_add(&odd, BASE + 2 * VMP_SPAN_BUNDLE_BYTES, VMP_SPAN_PAGE_BYTES, line);
  vmp_span_map_remove(&odd, BASE + 2 * VMP_SPAN_BUNDLE_BYTES, VMP_SPAN_PAGE_BYTES);
  VEXPECT_UINT_EQ(odd.bundles_end, 0);
  vmp_span_map_free(&odd);
}

VTEST_F(SpanBundle, DoesNotStartWithoutMemory, rig) {
  uint64_t before = vmp_span_map_metadata_bytes(&f->map);
  vmp_mem_fail_after(0, 1);
  VEXPECT_FALSE(vmp_span_map_bundles_start(&f->map));
  VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
  VEXPECT_TRUE(vmp_span_map_bundle(&f->map, BASE) == &vmp_span_no_bundle);
  (void)add_bundle(f, 0, 4);  // there is no room for it
  expect_model(f);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), before + 4096);
  VEXPECT_TRUE(vmp_span_map_bundles_start(&f->map));
  VEXPECT_UINT_EQ(bundle_of(f, 0), 0);  // what was there before has none
  expect_model(f);
}

VTEST_F(SpanBundle, DoesNotStartWhereTheRangeBeginsAmidst2MiB, rig) {
  vmp_span_map odd = {.cards = f->cards.base};
  vmp_span_map_link(&odd, vmp_span_range_make(BASE + VMP_SPAN_PAGE_BYTES, 2 * VMP_SPAN_BUNDLE_BYTES));
  VEXPECT_FALSE(vmp_span_map_bundles_start(&odd));
  VEXPECT_NULL(odd.bundles);
  VEXPECT_TRUE(vmp_span_map_bundle(&odd, BASE + VMP_SPAN_BUNDLE_BYTES) == &vmp_span_no_bundle);
  vmp_span_map_free(&odd);
}

// As much as was ever entered: 8 bytes for each 2 MiB up to the last one.
VTEST_F(SpanBundle, OnlyThoseUpToTheLastAreMetadata, rig) {
  uint64_t empty = vmp_span_map_metadata_bytes(&f->map);
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty);
  (void)add_bundle(f, 3 * BUNDLE_PAGES, 4);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty + 4096 + 4 * 8);
  (void)add_bundle(f, BUNDLE_PAGES, 4);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty + 4096 + 4 * 8);
  take_out(f, 3 * BUNDLE_PAGES);
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), empty + 4096 + 4 * 8);
}

// Each mistake alone: another line, another class, other sizes of spans and cards, a page without its entry.
VTEST_F(SpanBundle, TheCheckNoticesAWrongOne, rig) {
  VASSERT_TRUE(vmp_span_map_bundles_start(&f->map));
  uint32_t line = add_bundle(f, 5 * BUNDLE_PAGES, 4);
  uint64_t right = bundle_of(f, 5 * BUNDLE_PAGES);
  VEXPECT_UINT_EQ(right, vmp_span_bundle_entry(NUMBER, 17, 1, line));
  const uint64_t wrong[] = {vmp_span_bundle_entry(NUMBER, 17, 1, line + 1),
                            vmp_span_bundle_entry(NUMBER + 1, 17, 1, line), vmp_span_bundle_entry(NUMBER, 16, 1, line),
                            vmp_span_bundle_entry(NUMBER, 17, 2, line)};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    VTRACE("mistake %zu", i);
    atomic_store(&f->map.bundles[5], wrong[i]);
    expect_fault(f, "isn't what its bundle says");
  }
  atomic_store(&f->map.bundles[5], right);
  expect_model(f);
  uint64_t last = address_of(6 * BUNDLE_PAGES - 1);
  uint32_t entry = atomic_exchange(vmp_span_map_entry(&f->map, last), 0);
  expect_fault(f, "isn't what its bundle says");
  atomic_store(vmp_span_map_entry(&f->map, last), entry);
}
