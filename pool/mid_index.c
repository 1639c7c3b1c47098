// mid_index.c: which piece of an arena holds an offset, in constant time.
//
// Problem: a free names an address; a snapshot or a free of a slab object names one inside a block. A search tree
// over 100,000 blocks costs a dozen cache misses per lookup; a table fine enough for the smallest blocks costs more
// than the large ones are worth. Approach: pieces tile the arena, so the piece that holds an offset is the last one
// that begins at or before it. Pages of 4 MiB remember one piece that begins in them, any; a bitmap finds the last
// such page; the list of pieces leads on from there. Where 16 pieces begin in a page it gets a table of 64
// lines of 64 KiB, each of which remembers its lowest one. A piece that reaches into further sectors (4 GiB) is named in each of
// them, since it holds their first byte.
//
//     sector k                                        sector k + 1
//     | page | page | page           | ... | page |   | page | ...
//       ^p1           |line|line|...         ^p2 -------> cover = p2
//                       ^p3  ^p4
//
// Invariants
//   - an entry of a page is a piece that begins there and how many do, or the page's table of lines; that of a line the
//     lowest that begins there; 0 where none begins.
//   - a table of lines isn't empty. It may lack although the page is crowded (host memory ran out): finding takes more
//     steps then, up to 8192.
//
// Limits: a large piece costs one write per sector. Sectors' tables are made where pieces begin and stay until the
// arena goes: 4 bytes per page of a sector that has been used.
#include <string.h>

#include "pool/mid_internal.h"
#include "vmm/memory.h"

typedef struct spot {
  size_t sector;
  unsigned page;
} spot;

// Sectors, pages and lines count from offset 0, not from the arena, so that a page never holds parts of two arenas'
// pieces in different ways; the arena's first sector may begin before it.
static inline size_t sector_of(const vmp_mid_arena *arena, uint64_t offset) {
  return (size_t)((offset >> VMP_MID_SECTOR_LOG2) - arena->first_sector);
}

static inline spot spot_of(const vmp_mid_arena *arena, uint64_t offset) {
  return (spot){sector_of(arena, offset), (unsigned)(offset >> VMP_MID_PAGE_LOG2) & (VMP_MID_PAGES - 1)};
}

static inline unsigned line_of(uint64_t offset) {
  return (unsigned)(offset >> VMP_MID_LINE_LOG2) & (VMP_MID_LINES - 1);
}

static inline bool has_lines(uint32_t entry) { return (entry & VMP_MID_ENTRY_LINES) != 0; }
static inline vmp_mid_lines *lines_of(const vmp_mid *mid, uint32_t entry) {
  return mid->tables.at[entry & ~VMP_MID_ENTRY_LINES];
}

// next_in: the piece after this one if it begins in the same unit of 2^log2 bytes, else 0.
static inline uint32_t next_in(const vmp_mid *mid, const vmp_mid_piece *piece, unsigned log2) {
  if (piece->next == 0) return 0;
  uint64_t distance = vmp_mid_piece_at(mid, piece->next)->offset ^ piece->offset;
  return distance >> log2 == 0 ? piece->next : 0;
}

// lowest_in_page: the first piece that begins in the page in which this one does.
static uint32_t lowest_in_page(const vmp_mid *mid, uint32_t piece) {
  uint64_t page = vmp_mid_piece_at(mid, piece)->offset >> VMP_MID_PAGE_LOG2;
  for (uint32_t before; (before = vmp_mid_piece_at(mid, piece)->prev) != 0; piece = before) {
    if (vmp_mid_piece_at(mid, before)->offset >> VMP_MID_PAGE_LOG2 != page) break;
  }
  return piece;
}

// ---- tables of lines ----
// make_spare makes the table that the next crowded page gets, as far as there is host memory for it.
static void make_spare(vmp_mid *mid) {
  vmp_mid_tables *tables = &mid->tables;
  if (tables->num_unused == 0) {
    uint32_t capacity = tables->capacity == 0 ? 8 : 2 * tables->capacity;
    vmp_mid_lines **at = vmp_mem_calloc(capacity, sizeof *at);
    uint32_t *unused = vmp_mem_calloc(capacity, sizeof *unused);
    if (at == NULL || unused == NULL) {
      vmp_mem_free(at);
      vmp_mem_free(unused);
      return;
    }
    if (tables->capacity > 0) memcpy(at, tables->at, tables->capacity * sizeof *at);
    vmp_mem_free(tables->at);
    vmp_mem_free(tables->unused);
    mid->index_bytes += (capacity - tables->capacity) * (sizeof *at + sizeof *unused);
    for (uint32_t i = capacity; i-- > tables->capacity;) unused[tables->num_unused++] = i;
    tables->at = at;
    tables->unused = unused;
    tables->capacity = capacity;
  }
  tables->spare = vmp_mem_calloc(1, sizeof *tables->spare);
  if (tables->spare != NULL) mid->index_bytes += sizeof *tables->spare;
}

static void give_table(vmp_mid *mid, uint32_t entry) {
  vmp_mid_tables *tables = &mid->tables;
  uint32_t number = entry & ~VMP_MID_ENTRY_LINES;
  vmp_mem_free(tables->at[number]);
  mid->index_bytes -= sizeof **tables->at;
  tables->at[number] = NULL;
  tables->unused[tables->num_unused++] = number;
}

// start_line enters a piece that begins in a page with lines.
static void start_line(const vmp_mid *mid, vmp_mid_lines *lines, uint32_t piece, uint64_t offset) {
  unsigned line = line_of(offset);
  uint32_t *first = &lines->first[line];
  if (*first != 0 && vmp_mid_piece_at(mid, *first)->offset < offset) return;
  *first = piece;
  lines->starts |= UINT64_C(1) << line;
}

// add_lines gives a crowded page a table of lines, if there is one.
static void add_lines(vmp_mid *mid, uint32_t *entry) {
  vmp_mid_tables *tables = &mid->tables;
  if (tables->spare == NULL) return;
  uint32_t number = tables->unused[--tables->num_unused];
  vmp_mid_lines *lines = tables->spare;
  tables->at[number] = lines;
  tables->spare = NULL;
  for (uint32_t piece = lowest_in_page(mid, *entry & VMP_MID_ENTRY_PIECE); piece != 0;) {
    const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
    start_line(mid, lines, piece, node->offset);
    piece = next_in(mid, node, VMP_MID_PAGE_LOG2);
  }
  *entry = number | VMP_MID_ENTRY_LINES;
}

// ---- changes ----
bool vmp_mid_index_prepare(vmp_mid *mid, vmp_mid_arena *arena, uint64_t offset) {
  vmp_mid_sector *sector = &arena->sectors[sector_of(arena, offset)];
  if (mid->tables.spare == NULL) make_spare(mid);
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
  uint32_t *entry = &pages->entries[at.page], old = *entry;
  if (old == 0) {
    *entry = piece;
    pages->starts[at.page / 64] |= UINT64_C(1) << (at.page % 64);
    pages->words |= UINT64_C(1) << (at.page / 64);
    return;
  }
  if (has_lines(old)) {
    start_line(mid, lines_of(mid, old), piece, offset);
    return;
  }
  if ((old & VMP_MID_ENTRY_MORE) != VMP_MID_ENTRY_MORE) *entry = old += VMP_MID_ENTRY_ONE;
  if ((old & VMP_MID_ENTRY_MORE) == VMP_MID_ENTRY_MORE) add_lines(mid, entry);
}

// end_line takes a piece out of a page's lines. False: nothing begins in the page any more.
static bool end_line(vmp_mid *mid, uint32_t entry, uint32_t piece) {
  vmp_mid_lines *lines = lines_of(mid, entry);
  const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
  unsigned line = line_of(node->offset);
  if (lines->first[line] != piece) return true;
  lines->first[line] = next_in(mid, node, VMP_MID_LINE_LOG2);
  if (lines->first[line] != 0) return true;
  lines->starts &= ~(UINT64_C(1) << line);
  if (lines->starts != 0) return true;
  give_table(mid, entry);
  return false;
}

// without: a page's entry without a piece that began there. Where they weren't all counted they are now.
static uint32_t without(const vmp_mid *mid, uint32_t entry, uint32_t piece, const vmp_mid_piece *node) {
  uint32_t other = entry & VMP_MID_ENTRY_PIECE, more = entry & VMP_MID_ENTRY_MORE;
  if (more == 0) return 0;
  if (other == piece) {
    bool before = node->prev != 0 &&
                  (vmp_mid_piece_at(mid, node->prev)->offset ^ node->offset) >> VMP_MID_PAGE_LOG2 == 0;
    other = before ? node->prev : node->next;
  }
  if (more != VMP_MID_ENTRY_MORE) return (more - VMP_MID_ENTRY_ONE) | other;
  uint32_t count = 0;
  for (uint32_t at = lowest_in_page(mid, other); at != 0 && count <= VMP_MID_ENTRY_MOST;
       at = next_in(mid, vmp_mid_piece_at(mid, at), VMP_MID_PAGE_LOG2)) {
    count += at == piece ? 0 : 1;
  }
  return (count - 1) << VMP_MID_ENTRY_MORE_LOG2 | other;
}

void vmp_mid_index_end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t piece) {
  const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
  spot at = spot_of(arena, node->offset);
  vmp_mid_pages *pages = arena->sectors[at.sector].pages;
  uint32_t *entry = &pages->entries[at.page];
  if (has_lines(*entry)) {
    if (end_line(mid, *entry, piece)) return;
    *entry = 0;
  } else {
    *entry = without(mid, *entry, piece, node);
    if (*entry != 0) return;
  }
  uint64_t *word = &pages->starts[at.page / 64];
  *word &= ~(UINT64_C(1) << (at.page % 64));
  if (*word == 0) pages->words &= ~(UINT64_C(1) << (at.page / 64));
}

void vmp_mid_index_set_cover(vmp_mid_arena *arena, uint64_t from, uint64_t to, uint32_t piece) {
  size_t last = sector_of(arena, to - 1);
  size_t s = sector_of(arena, from);
  if (from % (UINT64_C(1) << VMP_MID_SECTOR_LOG2) != 0) s++;
  for (; s <= last; s++) arena->sectors[s].cover = piece;
}

// ---- queries ----
// start_in: a piece that begins at or before `offset`, which lies in or behind the page of this entry, and from which it
// isn't far to the last such piece. 0: none of the page's lines begins that early.
static uint32_t start_in(const vmp_mid *mid, uint32_t entry, uint64_t page_start, uint64_t offset) {
  if (has_lines(entry)) {
    const vmp_mid_lines *lines = lines_of(mid, entry);
    unsigned line = (offset - page_start) >> VMP_MID_PAGE_LOG2 == 0 ? line_of(offset) : VMP_MID_LINES - 1;
    uint64_t bits = lines->starts & (UINT64_MAX >> (VMP_MID_LINES - 1 - line));
    if (bits == 0) return 0;
    entry = lines->first[vmp_log2(bits)];
    if (vmp_mid_piece_at(mid, entry)->offset > offset) {
      bits &= ~(UINT64_C(1) << vmp_log2(bits));
      if (bits == 0) return 0;
      entry = lines->first[vmp_log2(bits)];
    }
    return entry;
  }
  entry &= VMP_MID_ENTRY_PIECE;
  while (vmp_mid_piece_at(mid, entry)->offset > offset) entry = vmp_mid_piece_at(mid, entry)->prev;
  return entry;
}

// page_before: the last page before `page` in which a piece begins, or VMP_MID_PAGES.
static unsigned page_before(const vmp_mid_pages *pages, unsigned page) {
  unsigned word = page / 64;
  uint64_t bits = pages->starts[word] & ~(UINT64_MAX << (page % 64));
  if (bits == 0) {
    uint64_t words = pages->words & ~(UINT64_MAX << word);
    if (words == 0) return VMP_MID_PAGES;
    word = vmp_log2(words);
    bits = pages->starts[word];
  }
  return word * 64 + vmp_log2(bits);
}

// start_before: a piece of the arena that begins at or before `offset`, and from which it isn't far to the last one.
static uint32_t start_before(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset) {
  spot at = spot_of(arena, offset);
  const vmp_mid_sector *sector = &arena->sectors[at.sector];
  const vmp_mid_pages *pages = sector->pages;
  if (pages == NULL) return sector->cover;
  uint64_t page_start = vmp_align_down(offset, UINT64_C(1) << VMP_MID_PAGE_LOG2);
  uint32_t entry = pages->entries[at.page];
  uint32_t piece = entry == 0 ? 0 : start_in(mid, entry, page_start, offset);
  if (piece != 0) return piece;
  unsigned page = page_before(pages, at.page);
  if (page == VMP_MID_PAGES) return sector->cover;
  page_start -= (uint64_t)(at.page - page) << VMP_MID_PAGE_LOG2;
  return start_in(mid, pages->entries[page], page_start, offset);
}

uint32_t vmp_mid_index_find(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset) {
  uint32_t piece = start_before(mid, arena, offset);
  const vmp_mid_piece *node = vmp_mid_piece_at(mid, piece);
  while (vmp_mid_piece_end(node) <= offset) {
    piece = node->next;
    node = vmp_mid_piece_at(mid, piece);
  }
  return piece;
}

void vmp_mid_index_free(vmp_mid *mid, vmp_mid_arena *arena) {
  for (size_t i = 0; i < arena->num_sectors; i++) {
    vmp_mid_pages *pages = arena->sectors[i].pages;
    if (pages == NULL) continue;
    for (unsigned page = 0; page < VMP_MID_PAGES; page++) {
      if (has_lines(pages->entries[page])) give_table(mid, pages->entries[page]);
    }
    mid->index_bytes -= sizeof *pages;
    vmp_mem_free(pages);
  }
  mid->index_bytes -= arena->num_sectors * sizeof *arena->sectors;
  vmp_mem_free(arena->sectors);
  arena->sectors = NULL;
  arena->num_sectors = 0;
}

void vmp_mid_index_finish(vmp_mid *mid) {
  vmp_mem_free(mid->tables.spare);
  vmp_mem_free(mid->tables.unused);
  vmp_mem_free(mid->tables.at);
}
