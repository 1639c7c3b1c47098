// mid_check.c: every invariant of mid, each with a sentence of its own (tests/unit/mid_check_test.c breaks them one
// by one). Local rules first, then the structures against each other, then the sums.
#include "pool/mid_internal.h"

typedef unsigned long long ull;

// check_list walks an arena's pieces: they tile it, and lead back the way they came. False when the walk broke off.
static bool check_list(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  uint64_t at = arena->offset;
  uint32_t previous = 0, steps = 0;
  for (uint32_t index = arena->first; index != 0;) {
    if (index > mid->pieces.touched || steps++ > mid->pieces.touched) {
      vmp_report_fault(report, "mid: the pieces of the arena at %#llx are a cycle or lead astray", (ull)arena->offset);
      return false;
    }
    const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
    if (piece->kind < VMP_MID_USED || piece->kind > VMP_MID_BARE) {
      vmp_report_fault(report, "mid: the piece at %#llx is neither used nor free", (ull)piece->offset);
      return false;
    }
    if (piece->prev != previous) {
      vmp_report_fault(report, "mid: the piece at %#llx doesn't lead back to the one before", (ull)piece->offset);
    }
    if (piece->offset != at) {
      vmp_report_fault(report, "mid: a piece begins at %#llx, but the one before ends at %#llx", (ull)piece->offset,
                       (ull)at);
      return false;
    }
    if (piece->bytes == 0 || piece->bytes % VMP_MID_STEP_BYTES != 0) {
      vmp_report_fault(report, "mid: the piece at %#llx has %llu bytes, no multiple of the step", (ull)piece->offset,
                       (ull)piece->bytes);
      return false;
    }
    at += piece->bytes;
    previous = index;
    index = piece->next;
  }
  if (at == arena->offset + arena->bytes) return true;
  vmp_report_fault(report, "mid: the pieces of the arena at %#llx end at %#llx", (ull)arena->offset, (ull)at);
  return false;
}

// check_pieces: what a piece says about itself and its neighbours, and whether it covers the sectors it should.
static void check_pieces(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  for (uint32_t index = arena->first; index != 0; index = vmp_mid_piece_at(mid, index)->next) {
    const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
    uint64_t size = UINT64_C(1) << VMP_MID_SECTOR_LOG2, first_sector = arena->offset >> VMP_MID_SECTOR_LOG2;
    for (uint64_t at = (piece->offset + size - 1) / size * size; at < vmp_mid_piece_end(piece); at += size) {
      if (arena->sectors[at / size - first_sector].cover == index) continue;
      vmp_report_fault(report, "mid: the index is wrong about the piece that covers %#llx", (ull)at);
    }
    if (piece->next == 0) return;
    const vmp_mid_piece *next = vmp_mid_piece_at(mid, piece->next);
    if (vmp_mid_may_join(mid, index, piece->next)) {
      vmp_report_fault(report, "mid: the parts that touch at %#llx are alike", (ull)next->offset);
    }
  }
}

// The pieces in order of their starts, while the tables that must hold these are looked at.
typedef struct start_walk {
  const vmp_mid *mid;
  uint32_t piece;  // the next one
} start_walk;

// next_before: the next piece if it begins before `end`, else 0; those up to `end` are passed, and counted. If `named` is
// one of them, it is returned.
static uint32_t next_before(start_walk *walk, uint64_t end, uint32_t named, uint32_t *out_count) {
  uint32_t first = 0;
  *out_count = 0;
  while (walk->piece != 0 && vmp_mid_piece_at(walk->mid, walk->piece)->offset < end) {
    if (first == 0 || walk->piece == named) first = walk->piece;
    (*out_count)++;
    walk->piece = vmp_mid_piece_at(walk->mid, walk->piece)->next;
  }
  return first;
}

// check_lines: the table of a crowded page holds exactly the starts in it.
static void check_lines(start_walk *walk, uint32_t index, uint64_t page, vmp_report *report) {
  if (index >= walk->mid->tables.capacity || walk->mid->tables.at[index] == NULL) {
    vmp_report_fault(report, "mid: the index leads to table %u of lines, which doesn't exist", index);
    return;
  }
  const vmp_mid_lines *lines = walk->mid->tables.at[index];
  if (lines->starts == 0) {
    vmp_report_fault(report, "mid: the table of lines of the page at %#llx is empty", (ull)page);
  }
  for (unsigned line = 0; line < VMP_MID_LINES; line++) {
    uint64_t end = page + ((uint64_t)(line + 1) << VMP_MID_LINE_LOG2);
    uint32_t count, expected = next_before(walk, end, 0, &count);
    if (lines->first[line] != expected || (lines->starts >> line & 1) != (expected != 0)) {
      vmp_report_fault(report, "mid: the index is wrong about the line that ends at %#llx", (ull)end);
    }
  }
}

// check_index: the tables hold exactly the starts of the pieces. Returns how many tables of lines there are.
static uint64_t check_index(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  start_walk walk = {mid, arena->first};
  uint64_t tables = 0;
  for (size_t s = 0; s < arena->num_sectors; s++) {
    const vmp_mid_pages *pages = arena->sectors[s].pages;
    uint64_t sector = ((arena->offset >> VMP_MID_SECTOR_LOG2) + s) << VMP_MID_SECTOR_LOG2;
    for (unsigned p = 0; p < VMP_MID_PAGES && pages != NULL; p++) {
      uint64_t page = sector + ((uint64_t)p << VMP_MID_PAGE_LOG2), end = page + (UINT64_C(1) << VMP_MID_PAGE_LOG2);
      bool start = (pages->starts[p / 64] >> (p % 64) & 1) != 0;
      if (p % 64 == 0 && (pages->words >> (p / 64) & 1) != (pages->starts[p / 64] != 0)) {
        vmp_report_fault(report, "mid: the index is wrong about the 64 pages up to %#llx",
                         (ull)(end + (UINT64_C(63) << VMP_MID_PAGE_LOG2)));
      }
      uint32_t entry = pages->entries[p], expected = entry, count;
      if ((entry & VMP_MID_ENTRY_LINES) != 0) {
        tables++;
        check_lines(&walk, entry & ~VMP_MID_ENTRY_LINES, page, report);
      } else {
        expected = next_before(&walk, end, entry & VMP_MID_ENTRY_PIECE, &count);
        if (count > VMP_MID_ENTRY_MOST + 1) count = VMP_MID_ENTRY_MOST + 1;
        if (count > 0) expected |= (count - 1) << VMP_MID_ENTRY_MORE_LOG2;
      }
      if (entry != expected || start != (expected != 0)) {
        vmp_report_fault(report, "mid: the index is wrong about the page that ends at %#llx", (ull)end);
      }
    }
  }
  return tables;
}

// check_extents: the mixed extents are exactly the longest free stretches that have a bare part. Adds to what it met.
typedef struct met {
  uint64_t extents, mixed, runs, run_bytes, tables;
} met;

static void check_extents(const vmp_mid *mid, const vmp_mid_arena *arena, met *sum, vmp_report *report) {
  uint32_t index = arena->first;
  while (index != 0) {
    const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
    uint64_t from = piece->offset;
    if (piece->kind == VMP_MID_USED) {
      index = piece->next;
      continue;
    }
    bool mixed = false;
    for (; vmp_mid_is_free(mid, index); index = vmp_mid_piece_at(mid, index)->next) {
      mixed = mixed || vmp_mid_is(mid, index, VMP_MID_BARE);
    }
    sum->extents++;
    uint64_t to = index == 0 ? vmp_mid_arena_end(arena) : vmp_mid_piece_at(mid, index)->offset;
    uint32_t extent = vmp_ranges_find(&mid->mixed, from);
    const vmp_range *range = extent == 0 ? NULL : vmp_range_at(&mid->mixed, extent);
    bool same = range != NULL && range->offset == from && vmp_range_end(range) == to;
    if (mixed && !same && !mid->stale) {
      vmp_report_fault(report, "mid: the free pieces from %#llx to %#llx are no mixed extent", (ull)from, (ull)to);
    }
    if (mixed && same) sum->mixed++;
  }
}

// check_kinds: a free part is what the mapping says.
static void check_kinds(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  for (uint32_t index = arena->first; index != 0; index = vmp_mid_piece_at(mid, index)->next) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    if (part->kind == VMP_MID_USED) continue;
    for (uint64_t at = part->offset, to = vmp_mid_piece_end(part); at < to;) {
      uint64_t from = at;
      bool mapped = mid->ops.run(mid->ops.self, from, to, &at) == VMP_RUN_MAPPED;
      if (mapped != (part->kind == VMP_MID_MAPPED)) {
        vmp_report_fault(report, "mid: %#llx to %#llx is free and %s, but its part says otherwise", (ull)from, (ull)at,
                         mapped ? "mapped" : "not mapped");
        break;
      }
    }
  }
}

// check_runs: the longest stretches of mapped parts are runs, whose ends name each other. (That each is in its tree
// follows from their number.)
static void check_runs(const vmp_mid *mid, const vmp_mid_arena *arena, met *sum, vmp_report *report) {
  for (uint32_t head = arena->first; head != 0; head = vmp_mid_piece_at(mid, head)->next) {
    if (!vmp_mid_is_head(mid, head)) continue;
    uint32_t tail = head;
    while (vmp_mid_is(mid, vmp_mid_piece_at(mid, tail)->next, VMP_MID_MAPPED)) tail = vmp_mid_piece_at(mid, tail)->next;
    const vmp_mid_piece *first = vmp_mid_piece_at(mid, head), *last = vmp_mid_piece_at(mid, tail);
    if (first->run_end != tail || last->run_end != head) {
      vmp_report_fault(report, "mid: the ends of the run at %#llx don't name each other", (ull)first->offset);
    }
    sum->runs++;
    sum->run_bytes += vmp_mid_piece_end(last) - first->offset;
  }
}

static bool is_wall(const void *context, uint64_t at) {
  const vmp_mid_arena *arena = vmp_mid_arena_of(context, at);
  return arena != NULL && arena->offset == at;
}

static void check_sums(const vmp_mid *mid, vmp_report *report) {
  uint64_t blocks = 0, block_bytes = 0, pieces = 0, arena_bytes = 0;
  for (size_t i = 0; i < mid->num_arenas; i++) {
    arena_bytes += mid->arenas[i]->bytes;
    for (uint32_t at = mid->arenas[i]->first; at != 0; at = vmp_mid_piece_at(mid, at)->next) {
      pieces++;
      if (vmp_mid_piece_at(mid, at)->kind != VMP_MID_USED) continue;
      blocks++;
      block_bytes += vmp_mid_piece_at(mid, at)->bytes;
    }
  }
  if (blocks != mid->blocks || block_bytes != mid->block_bytes) {
    vmp_report_fault(report, "mid: %llu blocks hold %llu bytes, but %llu and %llu are counted", (ull)blocks,
                     (ull)block_bytes, (ull)mid->blocks, (ull)mid->block_bytes);
  }
  if (arena_bytes != mid->arena_bytes) {
    vmp_report_fault(report, "mid: the arenas hold %llu bytes, but %llu are counted", (ull)arena_bytes,
                     (ull)mid->arena_bytes);
  }
  if (pieces != mid->pieces.used) {
    vmp_report_fault(report, "mid: the arenas have %llu pieces, but %u nodes are used", (ull)pieces, mid->pieces.used);
  }
  if (mid->mixed.count != mid->ranges.used || mid->ranges.promised != 0 || mid->pieces.promised != 0) {
    vmp_report_fault(report, "mid: there are %llu mixed extents, but %u nodes are used and %u promised",
                     (ull)mid->mixed.count, mid->ranges.used, mid->ranges.promised + mid->pieces.promised);
  }
}

// check_arenas: arenas are sorted and disjoint; pieces, index, extents and runs of each. False: they can't be looked
// at.
static bool check_arenas(const vmp_mid *mid, met *sum, vmp_report *report) {
  for (size_t i = 0; i < mid->num_arenas; i++) {
    const vmp_mid_arena *arena = mid->arenas[i];
    if (i > 0 && arena->offset < vmp_mid_arena_end(mid->arenas[i - 1])) {
      vmp_report_fault(report, "mid: the arena at %#llx overlaps the one before", (ull)arena->offset);
      return false;
    }
    size_t faults = report->faults;
    sum->tables += check_index(mid, arena, report);
    if (report->faults == faults) check_pieces(mid, arena, report);
    check_extents(mid, arena, sum, report);
    if (!mid->stale) check_kinds(mid, arena, report);
    check_runs(mid, arena, sum, report);
  }
  return true;
}

size_t vmp_mid_check(vmp_mid *mid, vmp_report *report) {
  size_t faults = report->faults;
  vmp_mid_catch_up(mid);
  bool whole = true;
  for (size_t i = 0; i < mid->num_arenas; i++) whole = check_list(mid, mid->arenas[i], report) && whole;
  vmp_node_pool_check(&mid->pieces, "mid pieces", report);
  vmp_node_pool_check(&mid->ranges, "mid ranges", report);
  vmp_ranges_check(&mid->mixed, "mid mixed extents", is_wall, mid, report);
  if (!whole || report->faults != faults) return report->faults - faults;  // what follows would only repeat it
  met sum = {0};
  if (!check_arenas(mid, &sum, report)) return report->faults - faults;
  check_sums(mid, report);
  if (report->faults != faults) return report->faults - faults;
  uint64_t runs = vmp_mid_runs_check(mid, report);
  if (report->faults != faults) return report->faults - faults;
  if (runs != sum.runs || runs != mid->runs.count) {
    vmp_report_fault(report, "mid: %llu runs are in the trees and %llu counted, but there are %llu", (ull)runs,
                     (ull)mid->runs.count, (ull)sum.runs);
  }
  if (sum.run_bytes != mid->runs.bytes) {
    vmp_report_fault(report, "mid: the runs hold %llu bytes, but %llu are counted", (ull)sum.run_bytes,
                     (ull)mid->runs.bytes);
  }
  if (sum.extents != mid->extents) {
    vmp_report_fault(report, "mid: there are %llu extents, but %llu are counted", (ull)sum.extents, (ull)mid->extents);
  }
  if (!mid->stale && sum.mixed != mid->mixed.count) {
    vmp_report_fault(report, "mid: %llu mixed extents lie where nothing is free or all is mapped",
                     (ull)(mid->mixed.count - sum.mixed));
  }
  if (sum.tables != mid->tables.capacity - mid->tables.num_unused) {
    vmp_report_fault(report, "mid: the index has %llu tables of lines, but %u are used", (ull)sum.tables,
                     mid->tables.capacity - mid->tables.num_unused);
  }
  if (mid->options.edges) vmp_mid_edges_check(mid, report);
  return report->faults - faults;
}
