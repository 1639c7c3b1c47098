// slab_card.h: cards: what may be read of a span without the pool's lock.
//
// Owns: the memory of cards, and which of it is in use. Does not own what the words mean (the caller's), nor where a
// span lies (span_map.h).
//
//     store     | line 0: nobody's | card A            | card B                    | ... | (addresses without memory)
//     card      | head | word of object 0 | word of object 1 | ... | (rest of the last line of 64 bytes)
//     head      number of the class (8 bits) | the span's record (24 bits)
//     wide      | head | low 0 | high 0 | low 1 | high 1 | ...         where 32 bits aren't enough
//     marks     a bit for each word of the store, once they are wanted (vmp_card_marks_start)
//
// As small as can be: with many blocks, what a free reads here lies in no near cache. Marks do, 32 times smaller: with
// them a free needs nothing of the card at once.
//
//     marks of 1024 lines   | line 0 | line 993 | line 962 | ... | line 1 | line 994 | ...      16 bits each
//                           '----------- a cache line -----------'
//     Lines that follow each other, which may be different threads', have theirs in different cache lines.
//
// Invariants
//   - A card's memory stays readable until the store ends, and serves only cards of as many lines.
//   - A card that was given back is linked to the next one by its head, with number 0.
//   - Line 0 is zero: who finds no card may read it as one of no class.
//   - Cards fill whole cache lines: objects of two spans share none.
#ifndef VMPOOL_POOL_SLAB_CARD_H_
#define VMPOOL_POOL_SLAB_CARD_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct vmp_card {
  _Atomic uint32_t head;
  _Atomic uint32_t words[];  // 0 when a span comes and when it goes
} vmp_card;

#define VMP_CARD_LINE_LOG2 6u
#define VMP_CARD_NUMBER_BITS 8u
// Of lines, and of records of spans: there are no more spans than cards. Enough for 100 GiB in blocks of 512 bytes (5
// lines for a span of 32 KiB), 170 GiB in blocks of 1 KiB, 500 GiB and more in larger ones.
#define VMP_CARD_INDEX_BITS 24u
#define VMP_CARD_MAX_WORDS 129u
#define VMP_CARD_MAX_LINES (VMP_CARD_MAX_WORDS / 16 + 1)

static inline uint32_t vmp_card_number(uint32_t head) { return head & ((1u << VMP_CARD_NUMBER_BITS) - 1); }
static inline uint32_t vmp_card_record(uint32_t head) { return head >> VMP_CARD_NUMBER_BITS; }
static inline uint32_t vmp_card_head(uint32_t number, uint32_t record) {
  return number | record << VMP_CARD_NUMBER_BITS;
}
// vmp_card_lines: of a card with so many words.
static inline uint32_t vmp_card_lines(uint32_t num_words) { return num_words / 16 + 1; }

typedef struct vmp_card_store {
  unsigned char *base;  // line 0
  size_t reserved_bytes;
  uint32_t num_lines, used_lines;  // that have memory; that are or were a card's, and line 0
  uint32_t free_lines;             // of free cards
  // By the number of lines: the first of the free cards, and how many there are; and how many cards are in use.
  uint32_t free_cards[VMP_CARD_MAX_LINES + 1];
  uint32_t num_free[VMP_CARD_MAX_LINES + 1];
  uint32_t num_used[VMP_CARD_MAX_LINES + 1];
  _Atomic uint64_t *marks;  // NULL: not wanted yet
  size_t marks_bytes;       // of addresses
} vmp_card_store;

// vmp_card_store_open makes an empty store, in a zeroed struct. False: no host memory.
bool vmp_card_store_open(vmp_card_store *store);
void vmp_card_store_close(vmp_card_store *store);

// vmp_card_take returns the line where a card with room for `num_words` begins, at most VMP_CARD_MAX_WORDS; head and
// words are 0. 0: no host memory, or all lines are in use.
uint32_t vmp_card_take(vmp_card_store *store, uint32_t num_words);
// vmp_card_take_row takes `count` of them that lie one behind the other, and returns the line of the first. They are
// fresh ones, and come back one by one, each for cards of its size. So that they don't become ever more: 0, too, where
// more than half of the lines so far are of free cards, or half of all lines that there may be have been used.
// vmp_card_drop_row takes back a row that was just taken; heads and words are 0.
uint32_t vmp_card_take_row(vmp_card_store *store, uint32_t count, uint32_t num_words);
void vmp_card_drop_row(vmp_card_store *store, uint32_t line, uint32_t count, uint32_t num_words);
// vmp_card_give takes one back; its words are 0.
void vmp_card_give(vmp_card_store *store, uint32_t line, uint32_t num_words);

static inline vmp_card *vmp_card_at(const vmp_card_store *store, uint32_t line) {
  return (vmp_card *)(store->base + ((size_t)line << VMP_CARD_LINE_LOG2));
}

// vmp_card_marks_start makes marks for all lines that there may be, all 0. False: no host memory, nothing has changed.
bool vmp_card_marks_start(vmp_card_store *store);

// vmp_card_mark_of: the number of the mark of the word that lies `word` words of 4 bytes behind line 0. Within a block
// of lines each follows the one before 33 places on, so that all places are taken.
#define VMP_CARD_LINE_WORDS_LOG2 (VMP_CARD_LINE_LOG2 - 2u)
#define VMP_CARD_MARK_BLOCK_LINES UINT64_C(1024)
static inline uint64_t vmp_card_mark_of(uint64_t word) {
  uint64_t line = word >> VMP_CARD_LINE_WORDS_LOG2, in_block = VMP_CARD_MARK_BLOCK_LINES - 1;
  uint64_t place = (line & ~in_block) | (line * 33 & in_block);
  return place << VMP_CARD_LINE_WORDS_LOG2 | (word & 15);
}
_Static_assert(VMP_CARD_LINE_WORDS_LOG2 == 4, "a line has 16 words, whose marks are 2 bytes");

// vmp_card_mark: a bit of an atomic word.
typedef struct vmp_card_mark {
  _Atomic uint64_t *word;  // NULL: there is none
  uint64_t bit;
} vmp_card_mark;

static inline vmp_card_mark vmp_card_mark_at(_Atomic uint64_t *marks, uint64_t number) {
  return (vmp_card_mark){&marks[number >> 6], UINT64_C(1) << (number & 63)};
}
static inline bool vmp_card_mark_get(vmp_card_mark mark) {
  return (atomic_load_explicit(mark.word, memory_order_acquire) & mark.bit) != 0;
}
// vmp_card_mark_set, and vmp_card_mark_clear, which returns whether it was set. `alone`: no other thread changes any
// mark at the same time, so that it can be had without an atomic instruction, which would wait for everything before
// it.
static inline void vmp_card_mark_set(vmp_card_mark mark, bool alone) {
  if (alone) {
    uint64_t bits = atomic_load_explicit(mark.word, memory_order_relaxed);
    atomic_store_explicit(mark.word, bits | mark.bit, memory_order_release);
  } else {
    atomic_fetch_or_explicit(mark.word, mark.bit, memory_order_release);
  }
}
static inline bool vmp_card_mark_clear(vmp_card_mark mark, bool alone) {
  if (!alone) return (atomic_fetch_and_explicit(mark.word, ~mark.bit, memory_order_acq_rel) & mark.bit) != 0;
  uint64_t bits = atomic_load_explicit(mark.word, memory_order_relaxed);
  if ((bits & mark.bit) == 0) return false;
  atomic_store_explicit(mark.word, bits & ~mark.bit, memory_order_release);
  return true;
}

// vmp_card_is_marked: whether any word of [line, line + lines) has its mark set.
bool vmp_card_is_marked(const vmp_card_store *store, uint32_t line, uint32_t lines);

uint64_t vmp_card_store_bytes(const vmp_card_store *store);

#endif  // VMPOOL_POOL_SLAB_CARD_H_
