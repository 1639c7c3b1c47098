// span_map.h: from a device address to the card of the span that holds it, without a lock.
//
// Owns: which card each page of the pool's address space has. Does not own cards (slab_card.h).
//
//     range     | page: 32 KiB | page | page | ...               a reservation of the pool
//     entries   |      0       |  A   |  A   |  B   | 0 | ...     4 bytes a page: the line where the card of its span
//                                                                 begins, and the number of its class; 0: it has none
//
//     bundles   |              B               | 0 | ...        8 bytes for each 2 MiB of the first range, once they are
//                                                                 wanted: what the entries of its pages have in common
//
// Where several spans of one size fill an aligned 2 MiB, and their cards lie one behind the other, the entry of the
// bundle tells of all of them what their own entries do. With many spans those lie in no near cache; bundles do.
//
// Only spans of a power of two of whole pages that lie aligned to their size are in the map: no page belongs to two of
// them, and an address says how far it lies behind its span's begin. Entries are addresses without memory until they
// are written.
//
// Invariants
//   - A range that was once linked stays until the map ends. So a reader never meets freed memory.
//   - A page has an entry exactly while its span is published.
//   - The entry of a bundle says the same as those of all its pages; the first page that loses its entry ends it.
//
// Threads: find may run at any time. link, add and remove need the pool's lock. A reader may get an entry whose span
// has just gone: the card then is free, or another span's. Who has changed a word looks again: where the entry is the
// same, the page's span is of the same class and has the same card, so the word is that of the address. Whoever holds a
// live object meets nothing else.
#ifndef VMPOOL_POOL_SPAN_MAP_H_
#define VMPOOL_POOL_SPAN_MAP_H_

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pool/slab.h"

#define VMP_SPAN_PAGE_LOG2 15u
#define VMP_SPAN_PAGE_BYTES (UINT64_C(1) << VMP_SPAN_PAGE_LOG2)

// vmp_span_entry: of a page.
typedef _Atomic uint32_t vmp_span_entry;

typedef struct vmp_span_range {
  uint64_t address, bytes;
  vmp_span_entry *entries;
  size_t entries_bytes;
  uint64_t *written;  // a bit for each 1024 entries that were ever written
  struct vmp_span_range *_Atomic next;
} vmp_span_range;

// vmp_span_bundle: of 2 MiB.
typedef _Atomic uint64_t vmp_span_bundle;

typedef struct vmp_span_map {
  // A copy of the first range's, for a search that ends there, as nearly all do.
  uint64_t address, bytes;
  vmp_span_entry *entries;
  const unsigned char *cards;  // line 0 of the slab's
  _Atomic uint64_t *marks;     // slab's, of words; NULL: there are none yet
  vmp_span_bundle *bundles;    // of the first `bundles_bytes` of the first range; NULL: not wanted yet
  uint64_t bundles_bytes, bundles_end;  // no bundle beyond `end` was ever entered
  struct vmp_span_range *_Atomic ranges;
  vmp_span_range *last;
  uint64_t num_pages;  // that have an entry
} vmp_span_map;

// vmp_span_map_free frees the ranges. A zeroed map is empty.
void vmp_span_map_free(vmp_span_map *map);

// vmp_span_range_make makes room for the entries of [address, address + bytes), which begins at a page. NULL: no host
// memory. vmp_span_map_link gives it to the map, the first one before other threads know the pool; vmp_span_range_drop
// frees one that wasn't.
vmp_span_range *vmp_span_range_make(uint64_t address, uint64_t bytes);
void vmp_span_range_drop(vmp_span_range *range);
void vmp_span_map_link(vmp_span_map *map, vmp_span_range *range);

// vmp_span_map_suits: whether a span can be in the map: of such a size, so aligned, in a range. Where a range has room
// for less than its addresses, since the process may have only so many, those at its end have no entries.
bool vmp_span_map_suits(const vmp_span_map *map, uint64_t address, uint64_t bytes);

// vmp_span_map_add enters the card at `line`, whose head is written, for every page of [address, address + bytes),
// which suits and has none. Can't fail.
void vmp_span_map_add(vmp_span_map *map, uint64_t address, uint64_t bytes, uint32_t line);
// vmp_span_map_remove takes the pages out. Can't fail, allocates nothing.
void vmp_span_map_remove(vmp_span_map *map, uint64_t address, uint64_t bytes);

// vmp_span_no_entry is 0: what addresses outside of all ranges have.
extern vmp_span_entry vmp_span_no_entry;

// vmp_span_map_entry: where the entry of the page that holds `address` is. _first looks in the first range only.
vmp_span_entry *vmp_span_map_entry(const vmp_span_map *map, uint64_t address);
static inline vmp_span_entry *vmp_span_map_first(const vmp_span_map *map, uint64_t address) {
  uint64_t at = address - map->address;
  return __builtin_expect(at < map->bytes, true) ? &map->entries[at >> VMP_SPAN_PAGE_LOG2] : &vmp_span_no_entry;
}

// Bundles: bits 0-7 number of the class, 8-15 binary logarithm of the bytes of a span, 16-23 lines of a card, from 24
// on the line of the first card; 0: none. vmp_span_map_bundles_start makes room for them; false: no host memory, or
// addresses that don't suit, and there are none. vmp_span_map_bundle_add enters one whose pages all have their entries,
// if there is room for it. Can't fail.
#define VMP_SPAN_BUNDLE_LOG2 21u
#define VMP_SPAN_BUNDLE_BYTES (UINT64_C(1) << VMP_SPAN_BUNDLE_LOG2)
bool vmp_span_map_bundles_start(vmp_span_map *map);
void vmp_span_map_bundle_add(vmp_span_map *map, uint64_t address, uint64_t span_bytes, uint32_t line, uint32_t lines);
static inline uint64_t vmp_span_bundle_entry(uint32_t number, uint32_t span_log2, uint32_t lines, uint32_t line) {
  return number | (uint64_t)span_log2 << 8 | (uint64_t)lines << 16 | (uint64_t)line << 24;
}
static inline uint32_t vmp_span_bundle_number(uint64_t bundle) { return (uint8_t)bundle; }
// vmp_span_bundle_line: of the card of the span that holds `address`.
static inline uint64_t vmp_span_bundle_line(uint64_t bundle, uint64_t address) {
  uint64_t span = (address & (VMP_SPAN_BUNDLE_BYTES - 1)) >> (bundle >> 8 & 63);
  return (bundle >> 24) + span * (uint8_t)(bundle >> 16);
}

// vmp_span_map_bundle: where the entry of the bundle that holds `address` would be.
extern const vmp_span_bundle vmp_span_no_bundle;
static inline const vmp_span_bundle *vmp_span_map_bundle(const vmp_span_map *map, uint64_t address) {
  uint64_t at = address - map->address;
  return __builtin_expect(at < map->bundles_bytes, true) ? &map->bundles[at >> VMP_SPAN_BUNDLE_LOG2]
                                                         : &vmp_span_no_bundle;
}

// vmp_span_mark_at: the mark of a word, which is the `word`th behind line 0. There must be marks.
static inline vmp_card_mark vmp_span_mark_at(const vmp_span_map *map, uint64_t word) {
  return vmp_card_mark_at(map->marks, vmp_card_mark_of(word));
}
static inline uint64_t vmp_span_word_number(const vmp_span_map *map, const _Atomic uint32_t *word) {
  return (uint64_t)(word - (const _Atomic uint32_t *)map->cards);
}

// vmp_span_card: the card that an entry names; nobody's where it names none. There must have been a range.
static inline vmp_card *vmp_span_card(const vmp_span_map *map, uint32_t entry) {
  return (vmp_card *)(map->cards + ((uint64_t)(entry >> VMP_CARD_NUMBER_BITS) << VMP_CARD_LINE_LOG2));
}
_Static_assert(VMP_CARD_INDEX_BITS + VMP_CARD_NUMBER_BITS <= 32, "an entry holds the place of every card");
// vmp_span_number: the number of the class; 0 where there is no card.
static inline uint32_t vmp_span_number(uint32_t entry) { return entry & ((1u << VMP_CARD_NUMBER_BITS) - 1); }

// vmp_span_map_find returns the card of the page that holds `address`, or NULL. Under the pool's lock.
static inline vmp_card *vmp_span_map_find(const vmp_span_map *map, uint64_t address) {
  uint32_t entry = atomic_load_explicit(vmp_span_map_entry(map, address), memory_order_acquire);
  return entry == 0 ? NULL : vmp_span_card(map, entry);
}

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map);

// vmp_span_map_names: whether all pages of a span, and no other, name the card at `line`.
bool vmp_span_map_names(const vmp_span_map *map, uint64_t address, uint64_t bytes, uint32_t line);

// vmp_span_map_check reports every broken invariant and returns their number. Under the pool's lock.
size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report);

#endif  // VMPOOL_POOL_SPAN_MAP_H_
