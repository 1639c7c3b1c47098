// slab_card_test.c: pool/slab_card.h: which lines cards get, rows of them, the marks of their words, and what is left
// where host memory or lines run out.
#include "pool/slab_card.h"

#include <string.h>

#include "tests/support/vtest.h"
#include "vmm/memory.h"

typedef struct rig {
  vmp_card_store store;
  size_t reserved_bytes;  // to give back, where a test makes the store smaller
} rig;

static void rig_setup(rig *f) {
  VASSERT_TRUE(vmp_card_store_open(&f->store));
  f->reserved_bytes = f->store.reserved_bytes;
}
static void rig_teardown(rig *f) {
  vmp_mem_fail_after(0, 0);
  f->store.reserved_bytes = f->reserved_bytes;
  vmp_card_store_close(&f->store);
  VEXPECT_NULL(f->store.base);
  VEXPECT_NULL(f->store.marks);
}

// make_small: the store has no more lines than it has memory for.
static void make_small(rig *f) { f->store.reserved_bytes = (size_t)f->store.num_lines << VMP_CARD_LINE_LOG2; }

// expect_zero: `lines` lines from `line` on are 0, heads and words.
static void expect_zero(const rig *f, uint32_t line, uint32_t lines) {
  VEXPECT_BYTES_FILLED(vmp_card_at(&f->store, line), 0, (size_t)lines << VMP_CARD_LINE_LOG2);
}

// use writes head and words; finish makes the words 0 again and gives the card back.
static void use(rig *f, uint32_t line, uint32_t words) {
  vmp_card *card = vmp_card_at(&f->store, line);
  atomic_store(&card->head, vmp_card_head(7, 12345));
  for (uint32_t i = 0; i < words; i++) atomic_store(&card->words[i], UINT32_MAX - i);
}
static void finish(rig *f, uint32_t line, uint32_t words) {
  for (uint32_t i = 0; i < words; i++) atomic_store(&vmp_card_at(&f->store, line)->words[i], 0);
  vmp_card_give(&f->store, line, words);
}

typedef struct size {
  const char *name;
  uint32_t words, lines;
} size;

static const size sizes[] = {{"15", 15, 1}, {"16", 16, 2}, {"128", 128, 9}};
static const char *size_name(const size *s) { return s->name; }

// ---- cards ----
VTEST_F(SlabCard, AnEmptyStoreHasNobodysLine, rig) {
  VEXPECT_UINT_EQ(f->store.used_lines, 1);
  VEXPECT_UINT_EQ(f->store.num_lines, 64);
  VEXPECT_UINT_EQ(vmp_card_store_bytes(&f->store), 4096);
  expect_zero(f, 0, 64);
}

VTEST(SlabCard, AHeadIsANumberAndARecord) {
  uint32_t head = vmp_card_head(255, (1u << 24) - 2);
  VEXPECT_UINT_EQ(vmp_card_number(head), 255);
  VEXPECT_UINT_EQ(vmp_card_record(head), (1u << 24) - 2);
  VEXPECT_UINT_EQ(vmp_card_lines(VMP_CARD_MAX_WORDS), VMP_CARD_MAX_LINES);
}

// Fresh ones lie one behind the other, through all extensions, and share no line.
VTEST_FP(SlabCard, FreshOnesFollowEachOther, rig, size, sizes, size_name) {
  VEXPECT_UINT_EQ(vmp_card_lines(p->words), p->lines);
  for (uint32_t i = 0; i < 500; i++) {
    uint32_t line = vmp_card_take(&f->store, p->words);
    VASSERT_UINT_EQ(line, 1 + i * p->lines);
    VASSERT_UINT_LE(line + p->lines, f->store.num_lines);
    expect_zero(f, line, p->lines);
    use(f, line, p->words);
  }
  VEXPECT_UINT_EQ(f->store.num_used[p->lines], 500);
  VEXPECT_UINT_EQ(f->store.used_lines, 1 + 500 * p->lines);
  VEXPECT_UINT_EQ(vmp_card_store_bytes(&f->store), (uint64_t)f->store.num_lines * 64);
  expect_zero(f, 0, 1);
}

// The one that came back last goes first, with its head 0, for as many lines and no others.
VTEST_FP(SlabCard, OnesThatCameBackServeTheirSizeOnly, rig, size, sizes, size_name) {
  uint32_t lines[4];
  for (int i = 0; i < 4; i++) {
    lines[i] = vmp_card_take(&f->store, p->words);
    use(f, lines[i], p->words);
  }
  finish(f, lines[2], p->words);
  finish(f, lines[0], p->words);
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], 2);
  VEXPECT_UINT_EQ(f->store.num_used[p->lines], 2);
  VEXPECT_UINT_EQ(f->store.free_lines, 2 * p->lines);
  VEXPECT_UINT_EQ(vmp_card_number(atomic_load(&vmp_card_at(&f->store, lines[0])->head)), 0);
  uint32_t used = f->store.used_lines;
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    if (sizes[i].lines == p->lines) continue;
    VEXPECT_UINT_EQ(vmp_card_take(&f->store, sizes[i].words), used);
    used += sizes[i].lines;
  }
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], 2);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, p->words), lines[0]);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, p->lines * 16 - 16), lines[2]);  // fewer words, as many lines
  expect_zero(f, lines[0], p->lines);
  expect_zero(f, lines[2], p->lines);
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], 0);
  VEXPECT_UINT_EQ(f->store.free_lines, 0);
  VEXPECT_UINT_EQ(f->store.free_cards[p->lines], 0);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, p->words), used);
}

VTEST_F(SlabCard, TheStoreDoesNotOpenWithoutMemory, rig) {
  const size_t bytes = (size_t)1 << (VMP_CARD_INDEX_BITS + VMP_CARD_LINE_LOG2);
  vmp_card_store store = {0};
  vmp_mem_fail_after(0, UINT64_MAX);  // no addresses
  VEXPECT_FALSE(vmp_card_store_open(&store));
  VEXPECT_NULL(store.base);
  vmp_mem_fail_after(1, UINT64_MAX);  // addresses, but no memory
  VEXPECT_FALSE(vmp_card_store_open(&store));
  VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
  VEXPECT_NULL(store.base);
  vmp_mem_fail_after(0, 2);  // a quarter of the addresses
  VEXPECT_TRUE(vmp_card_store_open(&store));
  VEXPECT_UINT_LE(store.reserved_bytes, bytes / 4);
  vmp_card_store_close(&store);
}

// ---- rows ----
VTEST_FP(SlabCard, ARowIsFreshCardsOneBehindTheOther, rig, size, sizes, size_name) {
  uint32_t single = vmp_card_take(&f->store, p->words), used = f->store.used_lines;
  uint32_t first = vmp_card_take_row(&f->store, 64, p->words);
  VEXPECT_UINT_EQ(first, used);
  VEXPECT_UINT_EQ(f->store.used_lines, used + 64 * p->lines);
  VEXPECT_UINT_LE(f->store.used_lines, f->store.num_lines);
  VEXPECT_UINT_EQ(f->store.num_used[p->lines], 65);
  expect_zero(f, first, 64 * p->lines);
  use(f, single, p->words);
  for (uint32_t i = 0; i < 64; i++) use(f, first + i * p->lines, p->words);
  for (uint32_t i = 0; i < 64; i++) finish(f, first + i * p->lines, p->words);
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], 64);
  VEXPECT_UINT_EQ(f->store.num_used[p->lines], 1);
  for (uint32_t i = 64; i-- > 0;) VEXPECT_UINT_EQ(vmp_card_take(&f->store, p->words), first + i * p->lines);
}

// Rows take fresh lines: none, while more than this share of the lines so far are of free cards, whatever their sizes.
// Then single cards are to be used up.
#define SHARE 2u

VTEST_FP(SlabCard, NoRowWhereTooManyLinesAreFree, rig, size, sizes, size_name) {
  enum { CARDS = 20 };
  uint32_t first = vmp_card_take_row(&f->store, CARDS, p->words), most = f->store.used_lines / SHARE, given = 0;
  for (; (given + 1) * p->lines <= most; given++) vmp_card_give(&f->store, first + given * p->lines, p->words);
  VEXPECT_UINT_EQ(f->store.free_lines, given * p->lines);
  uint32_t fresh = f->store.used_lines;
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1, p->words), fresh);  // as many as may be
  VEXPECT_UINT_EQ(f->store.free_lines, given * p->lines);
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], given);
  while (f->store.free_lines <= f->store.used_lines / SHARE) {
    vmp_card_give(&f->store, first + given++ * p->lines, p->words);
    VASSERT_UINT_LE(given, CARDS);
  }
  vmp_card_store before;
  memcpy(&before, &f->store, sizeof before);
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 2, sizes[i].words), 0);
    VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 100, sizes[i].words), 0);
  }
  VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
  VEXPECT_UINT_NE(vmp_card_take(&f->store, p->words), 0);  // a single one is used up: fewer are free
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 2, p->words), fresh + p->lines);
}

// Where more than half of all lines that there may be are used up, the rest is for single cards.
VTEST_F(SlabCard, NoRowWhereHalfOfAllLinesAreUsed, rig) {
  make_small(f);  // 64 lines
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 30, 15), 1);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1, 15), 31);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1, 15), 32);  // 32 were used: half, and not more
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1, 15), 0);
  VEXPECT_UINT_EQ(f->store.used_lines, 33);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 15), 33);
}

// A row that was just taken leaves nothing behind: its lines are fresh ones again.
VTEST_FP(SlabCard, ADroppedRowIsAsIfNeverTaken, rig, size, sizes, size_name) {
  (void)vmp_card_take(&f->store, p->words);
  vmp_card_store before;
  memcpy(&before, &f->store, sizeof before);
  uint32_t first = vmp_card_take_row(&f->store, 64, p->words);
  before.num_lines = f->store.num_lines;  // it keeps its memory
  vmp_card_drop_row(&f->store, first, 64, p->words);
  VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 16), first);  // as good for any size
  expect_zero(f, first, 2);
}

// Where another card was taken since, the row's come back one by one.
VTEST_FP(SlabCard, ADroppedRowBelowAnotherCardIsFreeCards, rig, size, sizes, size_name) {
  uint32_t first = vmp_card_take_row(&f->store, 4, p->words), other = vmp_card_take(&f->store, 16);
  uint32_t used = f->store.used_lines, others = f->store.num_used[2] - (p->lines == 2 ? 4 : 0);
  vmp_card_drop_row(&f->store, first, 4, p->words);
  VEXPECT_UINT_EQ(f->store.used_lines, used);
  VEXPECT_UINT_EQ(f->store.num_free[p->lines], 4);
  VEXPECT_UINT_EQ(f->store.free_lines, 4 * p->lines);
  VEXPECT_UINT_EQ(f->store.num_used[2], others);
  if (p->lines != 2) VEXPECT_UINT_EQ(f->store.num_used[p->lines], 0);
  VEXPECT_UINT_EQ(other, first + 4 * p->lines);
  for (uint32_t i = 4; i-- > 0;) VEXPECT_UINT_EQ(vmp_card_take(&f->store, p->words), first + i * p->lines);
  expect_zero(f, first, 4 * p->lines);
}

// 40 cards of 9 lines need three extensions. Those that came before the failure stay.
VTEST_F(SlabCard, NoRowWithoutMemory, rig) {
  static const uint32_t lines_after[] = {64, 128, 256};
  for (uint64_t n = 0; n < 3; n++) {
    vmp_card_store_close(&f->store);
    VASSERT_TRUE(vmp_card_store_open(&f->store));
    VEXPECT_UINT_EQ(vmp_card_take(&f->store, 128), 1);
    vmp_card_store before;
    memcpy(&before, &f->store, sizeof before);
    vmp_mem_fail_after(n, 1);
    VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 40, 128), 0);
    VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
    VEXPECT_UINT_EQ(f->store.num_lines, lines_after[n]);
    before.num_lines = lines_after[n];
    VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
    VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 40, 128), 10);
    expect_zero(f, 10, 40 * 9);
  }
}

// ---- a store that is full ----
VTEST_F(SlabCard, AFullStoreGivesNoneAndStaysAsItIs, rig) {
  make_small(f);
  for (uint32_t line = 1; line + 9 <= 64; line += 9) VEXPECT_UINT_EQ(vmp_card_take(&f->store, 128), line);
  vmp_card_store before;
  for (int round = 0; round < 2; round++) {
    memcpy(&before, &f->store, sizeof before);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
      VEXPECT_UINT_EQ(vmp_card_take(&f->store, sizes[i].words), 0);
      VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1, sizes[i].words), 0);
    }
    VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
    vmp_card_give(&f->store, 10, 128);
    VEXPECT_UINT_EQ(vmp_card_take(&f->store, 16), 0);  // not even then: it serves its size only
    VEXPECT_UINT_EQ(vmp_card_take(&f->store, 128), 10);
  }
}

// What is too little for a large card, or for a row, still serves a small one.
VTEST_F(SlabCard, TheLastLinesServeSmallCards, rig) {
  make_small(f);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 61, 15), 1);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 128), 0);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 3, 15), 0);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 2, 16), 0);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 16), 62);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 15), 0);
  VEXPECT_UINT_EQ(f->store.used_lines, 64);
  VEXPECT_UINT_EQ(f->store.num_lines, 64);
}

VTEST_F(SlabCard, NoCardWithoutMemory, rig) {
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 63, 15), 1);
  vmp_card_store before;
  memcpy(&before, &f->store, sizeof before);
  vmp_mem_fail_after(0, 1);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 15), 0);
  VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 15), 64);
}

// ---- where marks are ----
#define BLOCK_WORDS (VMP_CARD_MARK_BLOCK_LINES * 16)
static const uint64_t blocks[] = {0, 1, 2, 1000, (1u << VMP_CARD_INDEX_BITS) / VMP_CARD_MARK_BLOCK_LINES - 1};

// Every number of a block is the mark of exactly one of its words.
VTEST(SlabMark, WithinABlockEachHasItsOwn) {
  for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
    bool taken[BLOCK_WORDS] = {false};
    for (uint64_t i = 0; i < BLOCK_WORDS; i++) {
      uint64_t number = vmp_card_mark_of(blocks[b] * BLOCK_WORDS + i);
      VASSERT_UINT_EQ(number / BLOCK_WORDS, blocks[b]);
      VASSERT_FALSE(taken[number % BLOCK_WORDS]);
      taken[number % BLOCK_WORDS] = true;
    }
  }
}

// Those of one line are 16 bits of one word; those of the next line are in another 64 bytes.
VTEST(SlabMark, LinesThatFollowEachOtherShareNoCacheLine) {
  for (size_t b = 0; b < sizeof blocks / sizeof blocks[0]; b++) {
    for (uint64_t i = 0; i < VMP_CARD_MARK_BLOCK_LINES; i++) {
      uint64_t word = (blocks[b] * VMP_CARD_MARK_BLOCK_LINES + i) * 16, first = vmp_card_mark_of(word);
      VASSERT_UINT_EQ(first % 16, 0);
      for (uint64_t k = 1; k < 16; k++) VASSERT_UINT_EQ(vmp_card_mark_of(word + k), first + k);
      VASSERT_UINT_NE(first / 512, vmp_card_mark_of(word + 16) / 512);
    }
  }
}

VTEST_F(SlabMark, DoNotStartWithoutMemory, rig) {
  vmp_card_store before;
  memcpy(&before, &f->store, sizeof before);
  uint64_t n = 0;
  for (;; n++) {
    vmp_mem_fail_after(n, 1);
    bool started = vmp_card_marks_start(&f->store);
    VEXPECT_UINT_EQ(vmp_mem_failures(), started ? 0 : 1);
    if (started) break;
    VEXPECT_BYTES_EQ(&before, &f->store, sizeof before);
    VASSERT_UINT_LT(n, 10);
  }
  VEXPECT_UINT_EQ(n, 2);  // addresses, memory
  // The first and the last word there may be have marks that can be read, and aren't set.
  uint64_t end = f->store.reserved_bytes / 4;
  VEXPECT_FALSE(vmp_card_mark_get(vmp_card_mark_at(f->store.marks, vmp_card_mark_of(0))));
  for (uint64_t word = end - BLOCK_WORDS; word < end; word++) {
    vmp_card_mark mark = vmp_card_mark_at(f->store.marks, vmp_card_mark_of(word));
    VASSERT_TRUE((uintptr_t)(mark.word + 1) <= (uintptr_t)f->store.marks + f->store.marks_bytes);
    VASSERT_FALSE(vmp_card_mark_get(mark));
  }
}

// ---- set, get, clear ----
typedef struct mode {
  const char *name;
  bool alone;
} mode;

static const mode modes[] = {{"alone", true}, {"among_others", false}};
static const char *mode_name(const mode *m) { return m->name; }

static vmp_card_mark mark_of(const rig *f, uint64_t word) {
  return vmp_card_mark_at(f->store.marks, vmp_card_mark_of(word));
}

// Words 0 to 4095: each alone, with all others clear and with all others set.
VTEST_FP(SlabMark, OneChangesNoOther, rig, mode, modes, mode_name) {
  VASSERT_TRUE(vmp_card_marks_start(&f->store));
  for (uint64_t word = 0; word < 4096; word++) {
    vmp_card_mark mark = mark_of(f, word);
    VASSERT_FALSE(vmp_card_mark_get(mark));
    VASSERT_FALSE(vmp_card_mark_clear(mark, p->alone));
    VASSERT_UINT_EQ(atomic_load(mark.word), 0);
    vmp_card_mark_set(mark, p->alone);
    VASSERT_TRUE(vmp_card_mark_get(mark));
    VASSERT_UINT_EQ(atomic_load(mark.word), mark.bit);
    vmp_card_mark_set(mark, p->alone);  // twice is once
    VASSERT_TRUE(vmp_card_mark_clear(mark, p->alone));
    VASSERT_UINT_EQ(atomic_load(mark.word), 0);
    atomic_store(mark.word, UINT64_MAX);
    VASSERT_TRUE(vmp_card_mark_clear(mark, p->alone));
    VASSERT_FALSE(vmp_card_mark_get(mark));
    VASSERT_UINT_EQ(atomic_load(mark.word), ~mark.bit);
    VASSERT_FALSE(vmp_card_mark_clear(mark, p->alone));
    VASSERT_UINT_EQ(atomic_load(mark.word), ~mark.bit);
    vmp_card_mark_set(mark, p->alone);
    VASSERT_UINT_EQ(atomic_load(mark.word), UINT64_MAX);
    atomic_store(mark.word, 0);
  }
}

// A mark of any word is one of the lines that hold it, and of no others.
VTEST_F(SlabMark, AnyMarkedWordMarksItsLines, rig) {
  uint32_t before = vmp_card_take(&f->store, 128), line = vmp_card_take(&f->store, 128);
  uint32_t after = vmp_card_take(&f->store, 128);
  VEXPECT_FALSE(vmp_card_is_marked(&f->store, line, 9));  // there are no marks yet
  VASSERT_TRUE(vmp_card_marks_start(&f->store));
  VEXPECT_FALSE(vmp_card_is_marked(&f->store, 0, f->store.num_lines));
  for (uint64_t word = line * UINT64_C(16); word < (line + 9) * UINT64_C(16); word++) {
    vmp_card_mark_set(mark_of(f, word), true);
    VASSERT_TRUE(vmp_card_is_marked(&f->store, line, 9));
    VASSERT_TRUE(vmp_card_is_marked(&f->store, (uint32_t)(word / 16), 1));
    VASSERT_FALSE(vmp_card_is_marked(&f->store, line, (uint32_t)(word / 16) - line));
    VASSERT_FALSE(vmp_card_is_marked(&f->store, (uint32_t)(word / 16) + 1, line + 8 - (uint32_t)(word / 16)));
    VASSERT_FALSE(vmp_card_is_marked(&f->store, before, 9));
    VASSERT_FALSE(vmp_card_is_marked(&f->store, after, 9));
    VASSERT_TRUE(vmp_card_mark_clear(mark_of(f, word), true));
  }
  VEXPECT_FALSE(vmp_card_is_marked(&f->store, line, 9));
}

// 2 bytes a line, for as many blocks of 1024 lines as are in use.
VTEST_F(SlabMark, CountAsBytesOfTheStore, rig) {
  VASSERT_TRUE(vmp_card_marks_start(&f->store));
  VEXPECT_UINT_EQ(vmp_card_store_bytes(&f->store), 4096 + 2048);
  VEXPECT_UINT_EQ(vmp_card_take_row(&f->store, 1023, 15), 1);
  VEXPECT_UINT_EQ(f->store.used_lines, 1024);
  VEXPECT_UINT_EQ(vmp_card_store_bytes(&f->store), (uint64_t)f->store.num_lines * 64 + 2048);
  VEXPECT_UINT_EQ(vmp_card_take(&f->store, 15), 1024);
  VEXPECT_UINT_EQ(vmp_card_store_bytes(&f->store), (uint64_t)f->store.num_lines * 64 + 4096);
}

// A small store has few marks, in whole blocks.
VTEST_F(SlabMark, OfASmallStoreAreFew, rig) {
  make_small(f);
  VASSERT_TRUE(vmp_card_marks_start(&f->store));
  VEXPECT_UINT_EQ(f->store.marks_bytes, 2048);
  for (uint64_t word = 0; word < 64 * 16; word++) VASSERT_UINT_LT(vmp_card_mark_of(word) / 8, 2048);
}
