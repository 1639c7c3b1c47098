// span_map.h: from a device address to the card of the span that holds it, without a lock.
//
// Owns: a table of pieces of address space, and which card each page of a piece has. Does not own cards (slab.h).
//
//     address  | piece: 2 MiB (bits 21 and up) | page: 32 KiB (bits 15 to 20) | ... |
//
//     table    key = piece + 1    open addressing, linear probing; 0 ends a search
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

typedef struct vmp_span_slot {
  _Atomic uint64_t key;  // published after `leaf`
  vmp_span_leaf *leaf;
} vmp_span_slot;

typedef struct vmp_span_table {
  struct vmp_span_table *outgrown;  // the one before
  uint64_t mask;                    // number of slots - 1; at most half are full
  uint64_t entries;
  vmp_span_slot slots[];
} vmp_span_table;

typedef struct vmp_span_map {  // zero it before use
  _Atomic(vmp_span_table *) table;
} vmp_span_map;

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

static inline uint64_t vmp_span_hash(uint64_t key) {
  uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);
  return mixed >> 32;
}

// vmp_span_map_find returns the card of the page that holds `address`, or NULL.
static inline vmp_card *vmp_span_map_find(const vmp_span_map *map, uint64_t address) {
  const vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_acquire);
  if (table == NULL) return NULL;
  uint64_t wanted = (address >> VMP_SPAN_PIECE_LOG2) + 1;
  for (uint64_t at = vmp_span_hash(wanted) & table->mask;; at = (at + 1) & table->mask) {
    uint64_t key = atomic_load_explicit(&table->slots[at].key, memory_order_acquire);
    if (key == wanted) {
      uint64_t page = (address >> VMP_SPAN_PAGE_LOG2) & (VMP_SPAN_PIECE_PAGES - 1);
      return atomic_load_explicit(&table->slots[at].leaf->cards[page], memory_order_acquire);
    }
    if (key == 0) return NULL;
  }
}

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map);

// vmp_span_map_check reports every broken invariant and returns their number. Under the pool's lock.
size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report);

#endif  // VMPOOL_POOL_SPAN_MAP_H_
