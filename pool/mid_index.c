// mid_index.c: which piece of an arena holds an offset, in constant time.
//
// Problem: a free names an address; a snapshot or a free of a slab object names one inside a block. A search tree
// over 100,000 blocks costs a dozen cache misses per lookup.
// Approach: pieces tile the arena, so the piece that holds an offset is the last one that begins at or before it. Pages
// of 32 KiB remember the lowest piece that begins in them; a bitmap finds the last such page; the list of pieces
// leads on from there (blocks of mid are larger than a page by default: no step). A piece that reaches into further
// sectors (128 MiB) is named in each of them, since it holds their first byte.
//
//     sector k                                 sector k + 1
//     | page | page | page | ... | page |      | page | ...
//       ^p1                 ^p2 ----------------> cover = p2
//
// Limits: a large piece costs one write per sector (80 GiB: 640). Tables are made where pieces begin and stay until
// the arena goes: 17 KiB per sector that has been used.
#include <string.h>

#include "pool/mid_internal.h"
#include "vmm/memory.h"

typedef struct spot {
  size_t sector;
  unsigned page;
} spot;

// Sectors and pages count from offset 0, not from the arena, so that a page never holds parts of two arenas' pieces
// in different ways; the arena's first sector may begin before it.
static size_t sector_of(const vmp_mid_arena *arena, uint64_t offset) {
  return (size_t)((offset >> VMP_MID_SECTOR_LOG2) - (arena->offset >> VMP_MID_SECTOR_LOG2));
}

static spot spot_of(const vmp_mid_arena *arena, uint64_t offset) {
  return (spot){sector_of(arena, offset), (unsigned)(offset >> VMP_MID_PAGE_LOG2) & (VMP_MID_PAGES - 1)};
}

bool vmp_mid_index_prepare(vmp_mid *mid, vmp_mid_arena *arena, uint64_t offset) {
  vmp_mid_sector *sector = &arena->sectors[sector_of(arena, offset)];
  if (sector->pages != NULL) return true;
  sector->pages = vmp_mem_calloc(1, sizeof *sector->pages);
  if (sector->pages == NULL) return false;
  mid->index_bytes += sizeof *sector->pages;
  return true;
}

void vmp_mid_index_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece) {
  uint64_t offset = vmp_mid_piece_at(mid, piece)->offset;
  spot at = spot_of(arena, offset);
  vmp_mid_pages *pages = arena->sectors[at.sector].pages;
  uint32_t *first = &pages->first[at.page];
  if (*first != 0 && vmp_mid_piece_at(mid, *first)->offset < offset) return;
  *first = piece;
  pages->starts[at.page / 64] |= UINT64_C(1) << (at.page % 64);
  pages->words |= UINT64_C(1) << (at.page / 64);
}

void vmp_mid_index_end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece) {
  const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
  spot at = spot_of(arena, node->offset);
  vmp_mid_pages *pages = arena->sectors[at.sector].pages;
  if (pages->first[at.page] != piece) return;
  bool next_here = node->next != 0 &&
                   vmp_mid_piece_at(mid, node->next)->offset >> VMP_MID_PAGE_LOG2 == node->offset >> VMP_MID_PAGE_LOG2;
  pages->first[at.page] = next_here ? node->next : 0;
  if (next_here) return;
  uint64_t *word = &pages->starts[at.page / 64];
  *word &= ~(UINT64_C(1) << (at.page % 64));
  if (*word == 0) pages->words &= ~(UINT64_C(1) << (at.page / 64));
}

void vmp_mid_index_cover(vmp_mid_arena *arena, uint64_t from, uint64_t to, uint32_t piece) {
  size_t last = sector_of(arena, to - 1);
  size_t s = sector_of(arena, from);
  if (from % (UINT64_C(1) << VMP_MID_SECTOR_LOG2) != 0) s++;
  for (; s <= last; s++) arena->sectors[s].cover = piece;
}

// last_start: the piece that begins last in pages 0..page of the sector, or is the first in the last such page.
static uint32_t last_start(const vmp_mid_pages *pages, unsigned page) {
  unsigned word = page / 64;
  uint64_t bits = pages->starts[word] & (UINT64_MAX >> (63 - page % 64));
  if (bits == 0) {
    uint64_t words = word == 0 ? 0 : pages->words & (UINT64_MAX >> (64 - word));
    if (words == 0) return 0;
    word = vmp_log2(words);
    bits = pages->starts[word];
  }
  return pages->first[word * 64 + vmp_log2(bits)];
}

uint32_t vmp_mid_index_find(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset) {
  spot at = spot_of(arena, offset);
  const vmp_mid_sector *sector = &arena->sectors[at.sector];
  uint32_t piece = sector->pages == NULL ? 0 : last_start(sector->pages, at.page);
  if (piece != 0 && vmp_mid_piece_at(mid, piece)->offset > offset) {
    piece = at.page == 0 ? 0 : last_start(sector->pages, at.page - 1);
  }
  if (piece == 0) piece = sector->cover;
  const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
  while (vmp_mid_piece_end(node) <= offset) {
    piece = node->next;
    node = vmp_mid_piece_at(mid, piece);
  }
  return piece;
}

void vmp_mid_index_free(vmp_mid *mid, vmp_mid_arena *arena) {
  for (size_t i = 0; i < arena->num_sectors; i++) {
    if (arena->sectors[i].pages == NULL) continue;
    mid->index_bytes -= sizeof *arena->sectors[i].pages;
    vmp_mem_free(arena->sectors[i].pages);
  }
  mid->index_bytes -= arena->num_sectors * sizeof *arena->sectors;
  vmp_mem_free(arena->sectors);
  arena->sectors = NULL;
  arena->num_sectors = 0;
}
