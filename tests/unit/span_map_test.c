// span_map_test.c: pool/span_map.h against an array of pages, with failing host memory, and with each corruption that
// its check must notice.
#include "pool/span_map.h"

#include <stdlib.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

#define PAGES 8192u
#define BASE ((UINT64_C(7) << 40) + (UINT64_C(5) << VMP_SPAN_PAGE_LOG2))  // not at a piece's start

typedef struct rig {
  vmp_span_map map;
  vmp_card *pages[PAGES];  // the model
} rig;

static uint64_t address_of(uint64_t page) { return BASE + page * VMP_SPAN_PAGE_BYTES; }

// end_of: the page after the last one that has the same card.
static uint64_t end_of(const rig *f, uint64_t page) {
  uint64_t end = page;
  while (end < PAGES && f->pages[end] == f->pages[page]) end++;
  return end;
}

static void add(rig *f, uint64_t page, uint64_t count) {
  vmp_card *card = calloc(1, sizeof *card);
  VASSERT_NOT_NULL(card);
  atomic_store(&card->address, address_of(page));
  for (uint64_t i = 0; i < count; i++) f->pages[page + i] = card;
  VASSERT_OK(vmp_span_map_add(&f->map, address_of(page), count * VMP_SPAN_PAGE_BYTES, card));
}

static void take_out(rig *f, uint64_t first) {
  vmp_card *card = f->pages[first];
  uint64_t end = end_of(f, first);
  vmp_span_map_remove(&f->map, address_of(first), (end - first) * VMP_SPAN_PAGE_BYTES);
  for (uint64_t i = first; i < end; i++) f->pages[i] = NULL;
  free(card);
}

static void rig_setup(rig *f) { vmp_span_map_init(&f->map); }
static void rig_teardown(rig *f) {
  for (uint64_t i = 0, end; i < PAGES; i = end) {
    end = end_of(f, i);
    free(f->pages[i]);
  }
  vmp_span_map_free(&f->map);
}

static void expect_model(const rig *f) {
  for (uint64_t i = 0; i < PAGES; i++) {
    VASSERT_TRUE(vmp_span_map_find(&f->map, address_of(i) + i % 64 * 512) == f->pages[i]);
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
  VEXPECT_NULL(vmp_span_map_find(&f->map, BASE));
  VEXPECT_UINT_EQ(vmp_span_map_metadata_bytes(&f->map), 0);
  expect_model(f);
}

VTEST(SpanMap, OnlyWholePagesSuit) {
  VEXPECT_TRUE(vmp_span_map_suits(BASE, 32 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(BASE + 512, 32 << 10));
  VEXPECT_FALSE(vmp_span_map_suits(BASE, 48 << 10));
}

// Spans of 1 to 64 pages come and go; after each of 200 rounds every page names its card, and no other.
VTEST_F(SpanMap, ComesAndGoesAsAModelDoes, rig) {
  vtest_rng rng = vtest_rng_make(vtest_seed(40));
  for (int round = 0; round < 200; round++) {
    for (int step = 0; step < 50; step++) {
      uint64_t page = vtest_rng_below(&rng, PAGES), count = vtest_rng_range(&rng, 1, 64);
      if (f->pages[page] != NULL) {
        while (page > 0 && f->pages[page - 1] == f->pages[page]) page--;
        take_out(f, page);
        continue;
      }
      uint64_t room = end_of(f, page) - page;
      add(f, page, count < room ? count : room);
    }
    if (round % 20 == 19) expect_model(f);
  }
  expect_model(f);
}

// Without host memory an add fails and nothing has changed; removing needs none.
VTEST_F(SpanMap, HostMemoryRunsOut, rig) {
  add(f, 0, 3);
  vmp_card card = {0};
  uint64_t failures = 0;
  for (uint64_t successes = 0;; successes++) {
    vmp_mem_fail_after(successes, UINT64_MAX);
    vmp_status status = vmp_span_map_add(&f->map, address_of(100), 7000 * VMP_SPAN_PAGE_BYTES, &card);
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK) break;
    VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    failures++;
    expect_model(f);
  }
  VEXPECT_TRUE(failures > 1);
  vmp_mem_fail_after(0, UINT64_MAX);
  vmp_span_map_remove(&f->map, address_of(100), 7000 * VMP_SPAN_PAGE_BYTES);
  vmp_mem_fail_after(0, 0);
  expect_model(f);
}

VTEST_F(SpanMap, TheCheckNoticesAStrangeCard, rig) {
  add(f, 10, 2);
  atomic_store(&f->pages[10]->address, address_of(11));
  expect_fault(f, "names the card of a span at");
  atomic_store(&f->pages[10]->address, 0);
  expect_fault(f, "names the card of a span at 0x0");
}

VTEST_F(SpanMap, TheCheckNoticesALostPieceAndAWrongCount, rig) {
  add(f, 10, 2);
  vmp_span_table *table = atomic_load(&f->map.table);
  table->entries++;
  expect_fault(f, "that counts");
  table->entries--;
  uint64_t at = 0;
  while (atomic_load(&table->slots[at].key) == VMP_SPAN_NO_KEY) at++;
  uint64_t key = atomic_exchange(&table->slots[at].key, VMP_SPAN_NO_KEY);
  uint64_t wrong = (at + 9) % 64;  // a search from where it belongs ends before
  table->slots[wrong].leaf = table->slots[at].leaf;
  table->slots[at].leaf = NULL;
  atomic_store(&table->slots[wrong].key, key);
  expect_fault(f, "can't be found from where it belongs");
}
