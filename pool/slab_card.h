// slab_card.h: cards: what may be read of a span without the pool's lock.
//
// Owns: the memory of cards, and which of it is in use. Does not own what the words mean (the caller's), nor where a
// span lies (span_map.h).
//
//     store     | line 0: nobody's | card A            | card B                    | ... | (addresses without memory)
//     card      | head | word of object 0 | word of object 1 | ... | (rest of the last line of 64 bytes)
//     head      number of the class (8 bits) | the span's record (24 bits)
//     wide      | head | low 0 | high 0 | low 1 | high 1 | ...         where 32 bits aren't enough
//
// As small as can be: with many blocks, what a free reads here lies in no near cache.
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
  // By the number of lines: the first of the free cards, and how many there are; and how many cards are in use.
  uint32_t free_cards[VMP_CARD_MAX_LINES + 1];
  uint32_t num_free[VMP_CARD_MAX_LINES + 1];
  uint32_t num_used[VMP_CARD_MAX_LINES + 1];
} vmp_card_store;

// vmp_card_store_open makes an empty store, in a zeroed struct. False: no host memory.
bool vmp_card_store_open(vmp_card_store *store);
void vmp_card_store_close(vmp_card_store *store);

// vmp_card_take returns the line where a card with room for `num_words` begins, at most VMP_CARD_MAX_WORDS; head and
// words are 0. 0: no host memory, or all lines are in use.
uint32_t vmp_card_take(vmp_card_store *store, uint32_t num_words);
// vmp_card_give takes it back; its words are 0.
void vmp_card_give(vmp_card_store *store, uint32_t line, uint32_t num_words);

static inline vmp_card *vmp_card_at(const vmp_card_store *store, uint32_t line) {
  return (vmp_card *)(store->base + ((size_t)line << VMP_CARD_LINE_LOG2));
}

uint64_t vmp_card_store_bytes(const vmp_card_store *store);

#endif  // VMPOOL_POOL_SLAB_CARD_H_
