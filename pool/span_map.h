// span_map.h: from a device address to the card of the span that holds it, without a lock.
//
// Owns: a table of pieces of address space, and which card each page of a piece has. Does not own cards (slab.h).
//
//     address  | piece: 2 MiB (bits 21 and up) | page: 32 KiB (bits 15 to 20) | ... |
//
//     table    key = piece        open addressing, linear probing; an empty slot ends a search
//              leaf ──> card of page 0 | card of page 1 | ... | card of page 63
//
// Only spans of whole pages are in the map: no page belongs to two of them.
//
// Invariants
//   - A piece that was once in the table stays: leaves are never freed or moved while the map lives, and a table that
//     was outgrown stays readable. So a reader never meets freed memory.
//   - A page names a card exactly while the card's span is published.
//
// Threads: find may run at any time. add and remove need the pool's lock. A reader may get a card whose span has just
// gone: it then finds another address on it, or words that are 0. Whoever holds a live object can't meet that.
#ifndef VMPOOL_POOL_SPAN_MAP_H_
#define VMPOOL_POOL_SPAN_MAP_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/slab.h"

#define VMP_SPAN_PAGE_LOG2 15u
#define VMP_SPAN_PAGE_BYTES (UINT64_C(1) << VMP_SPAN_PAGE_LOG2)
#define VMP_SPAN_PIECE_LOG2 21u
#define VMP_SPAN_PIECE_PAGES (1u << (VMP_SPAN_PIECE_LOG2 - VMP_SPAN_PAGE_LOG2))

typedef struct vmp_span_leaf {
  _Atomic(vmp_card *) cards[VMP_SPAN_PIECE_PAGES];
} vmp_span_leaf;

#define VMP_SPAN_NO_KEY UINT64_MAX
typedef struct vmp_span_slot {
  _Atomic uint64_t key;  // published after `leaf`
  vmp_span_leaf *leaf;
} vmp_span_slot;

typedef struct vmp_span_table {
  struct vmp_span_table *outgrown;  // the one before
  uint64_t mask_bytes;              // (number of slots - 1) * size of a slot; at most half are full
  uint64_t entries;
  uint64_t unused;         // slots are aligned to their size
  vmp_span_slot slots[1];  // and more
} vmp_span_table;

// vmp_no_card is what pages without a card have: it is of no class and has no words.
extern vmp_card vmp_no_card;

typedef struct vmp_span_map {
  _Atomic(vmp_span_table *) table;  // never NULL
} vmp_span_map;

// vmp_span_map_init makes an empty map. Allocates nothing.
void vmp_span_map_init(vmp_span_map *map);

void vmp_span_map_free(vmp_span_map *map);

// vmp_span_map_suits: whether a span can be in the map: whole pages.
static inline bool vmp_span_map_suits(uint64_t address, uint64_t bytes) {
  return ((address | bytes) & (VMP_SPAN_PAGE_BYTES - 1)) == 0;
}

// vmp_span_map_add names `card` for every page of [address, address + bytes), which suits and has none.
// VMP_ERROR_HOST_OUT_OF_MEMORY; then nothing has changed.
vmp_status vmp_span_map_add(vmp_span_map *map, uint64_t address, uint64_t bytes, vmp_card *card);
// vmp_span_map_remove takes the pages out. Can't fail, allocates nothing.
void vmp_span_map_remove(vmp_span_map *map, uint64_t address, uint64_t bytes);

// vmp_span_place: where the search for an address begins, in bytes of the table. Neighbouring pieces stay neighbours,
// and pieces at a distance of powers of two don't meet.
static inline uint64_t vmp_span_place(uint64_t address) {
  return address >> (VMP_SPAN_PIECE_LOG2 - 4) ^ address >> (VMP_SPAN_PIECE_LOG2 + 5);
}
_Static_assert(sizeof(vmp_span_slot) == 16, "a place is a multiple of it");

static inline const vmp_span_slot *vmp_span_slot_at(const vmp_span_table *table, uint64_t place) {
  return (const vmp_span_slot *)((const unsigned char *)table->slots + (place & table->mask_bytes));
}

static inline vmp_card *vmp_span_card_in(const vmp_span_slot *slot, uint64_t address) {
  uint64_t page = (address >> VMP_SPAN_PAGE_LOG2) & (VMP_SPAN_PIECE_PAGES - 1);
  return atomic_load_explicit(&slot->leaf->cards[page], memory_order_acquire);
}

// vmp_span_map_card returns the card of the page that holds `address`, or &vmp_no_card.
static inline vmp_card *vmp_span_map_card(const vmp_span_map *map, uint64_t address) {
  const vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_acquire);
  for (uint64_t place = vmp_span_place(address);; place += sizeof(vmp_span_slot)) {
    const vmp_span_slot *slot = vmp_span_slot_at(table, place);
    uint64_t key = atomic_load_explicit(&slot->key, memory_order_acquire);
    if (key == address >> VMP_SPAN_PIECE_LOG2) return vmp_span_card_in(slot, address);
    if (key == VMP_SPAN_NO_KEY) return &vmp_no_card;
  }
}

// vmp_span_map_first returns the same where the search ends at the first slot, as nearly all do; else &vmp_no_card.
static inline vmp_card *vmp_span_map_first(const vmp_span_map *map, uint64_t address) {
  const vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_acquire);
  const vmp_span_slot *slot = vmp_span_slot_at(table, vmp_span_place(address));
  uint64_t key = atomic_load_explicit(&slot->key, memory_order_acquire);
  return __builtin_expect(key == address >> VMP_SPAN_PIECE_LOG2, true) ? vmp_span_card_in(slot, address) : &vmp_no_card;
}

// vmp_span_map_find returns the same, or NULL where there is none.
static inline vmp_card *vmp_span_map_find(const vmp_span_map *map, uint64_t address) {
  vmp_card *card = vmp_span_map_card(map, address);
  return card == &vmp_no_card ? NULL : card;
}

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map);

// vmp_span_map_check reports every broken invariant and returns their number. Under the pool's lock.
size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report);

#endif  // VMPOOL_POOL_SPAN_MAP_H_
