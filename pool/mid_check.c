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
    if (piece->kind != VMP_MID_USED && piece->kind != VMP_MID_PART) {
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
    if (piece->kind == VMP_MID_PART && next->kind == VMP_MID_PART && piece->fence.streams == next->fence.streams) {
      vmp_report_fault(report, "mid: the parts that touch at %#llx have fences of the same streams", (ull)next->offset);
    }
  }
}

// check_index: the tables hold exactly the starts of the pieces.
static void check_index(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  uint32_t index = arena->first;
  for (size_t s = 0; s < arena->num_sectors; s++) {
    const vmp_mid_pages *pages = arena->sectors[s].pages;
    uint64_t sector = ((arena->offset >> VMP_MID_SECTOR_LOG2) + s) << VMP_MID_SECTOR_LOG2;
    for (unsigned p = 0; p < VMP_MID_PAGES && pages != NULL; p++) {
      uint64_t end = sector + ((uint64_t)(p + 1) << VMP_MID_PAGE_LOG2);
      uint32_t expected = index != 0 && vmp_mid_piece_at(mid, index)->offset < end ? index : 0;
      bool start = (pages->starts[p / 64] >> (p % 64) & 1) != 0;
      if (p % 64 == 0 && (pages->words >> (p / 64) & 1) != (pages->starts[p / 64] != 0)) {
        vmp_report_fault(report, "mid: the index is wrong about the 64 pages up to %#llx",
                         (ull)(end + (UINT64_C(63) << VMP_MID_PAGE_LOG2)));
      }
      if (pages->first[p] != expected || start != (expected != 0)) {
        vmp_report_fault(report, "mid: the index is wrong about the page that ends at %#llx", (ull)end);
      }
      while (index != 0 && vmp_mid_piece_at(mid, index)->offset < end) index = vmp_mid_piece_at(mid, index)->next;
    }
  }
}

// check_extents: the extents are exactly the longest free stretches of pieces. Returns how many extents it met.
static uint64_t check_extents(const vmp_mid *mid, const vmp_mid_arena *arena, vmp_report *report) {
  uint64_t met = 0;
  uint32_t index = arena->first;
  while (index != 0) {
    const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
    uint64_t from = piece->offset;
    bool used = piece->kind == VMP_MID_USED;
    while (index != 0 && (vmp_mid_piece_at(mid, index)->kind == VMP_MID_USED) == used) {
      index = vmp_mid_piece_at(mid, index)->next;
    }
    if (used) continue;
    uint64_t to = index == 0 ? arena->offset + arena->bytes : vmp_mid_piece_at(mid, index)->offset;
    uint32_t extent = vmp_ranges_find(&mid->extents, from);
    const vmp_range *range = extent == 0 ? NULL : vmp_range_at(&mid->extents, extent);
    if (range == NULL || range->offset != from || vmp_range_end(range) != to) {
      vmp_report_fault(report, "mid: the free pieces from %#llx to %#llx are no extent", (ull)from, (ull)to);
    } else {
      met++;
    }
  }
  return met;
}

// check_runs: the runs of an extent are exactly its mapped parts. Returns how many runs it met.
static uint64_t check_runs(const vmp_mid *mid, const vmp_range *extent, vmp_report *report) {
  uint64_t met = 0, at = extent->offset, to = vmp_range_end(extent);
  while (at < to) {
    uint64_t end = to;
    vmp_run_state state = mid->ops.run(mid->ops.self, at, to, &end);
    uint32_t run = vmp_ranges_after(&mid->runs, at);
    const vmp_range *range = run == 0 ? NULL : vmp_range_at(&mid->runs, run);
    bool same = range != NULL && range->offset == at && vmp_range_end(range) == end;
    if (state == VMP_RUN_MAPPED && !same) {
      vmp_report_fault(report, "mid: %#llx to %#llx is free and mapped, but no run", (ull)at, (ull)end);
    }
    if (state == VMP_RUN_MAPPED && same) met++;
    at = end;
  }
  return met;
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
  if (mid->extents.count + mid->runs.count != mid->ranges.used) {
    vmp_report_fault(report, "mid: there are %llu extents and runs, but %u nodes are used",
                     (ull)(mid->extents.count + mid->runs.count), mid->ranges.used);
  }
  if (mid->ranges.promised != VMP_MID_PROMISED_RANGES * mid->blocks || mid->pieces.promised != 0) {
    vmp_report_fault(report, "mid: %u range nodes are promised to %llu blocks", mid->ranges.promised, (ull)mid->blocks);
  }
}

// check_arenas: arenas are sorted and disjoint; pieces, index and extents of each. Returns the extents met.
static uint64_t check_arenas(const vmp_mid *mid, vmp_report *report) {
  uint64_t met = 0;
  for (size_t i = 0; i < mid->num_arenas; i++) {
    const vmp_mid_arena *arena = mid->arenas[i];
    if (i > 0 && arena->offset < mid->arenas[i - 1]->offset + mid->arenas[i - 1]->bytes) {
      vmp_report_fault(report, "mid: the arena at %#llx overlaps the one before", (ull)arena->offset);
      return 0;
    }
    size_t faults = report->faults;
    check_index(mid, arena, report);
    if (report->faults == faults) check_pieces(mid, arena, report);
    met += check_extents(mid, arena, report);
  }
  return met;
}

size_t vmp_mid_check(vmp_mid *mid, vmp_report *report) {
  size_t faults = report->faults;
  vmp_mid_catch_up(mid);
  bool whole = true;
  for (size_t i = 0; i < mid->num_arenas; i++) whole = check_list(mid, mid->arenas[i], report) && whole;
  vmp_node_pool_check(&mid->pieces, "mid pieces", report);
  vmp_node_pool_check(&mid->ranges, "mid ranges", report);
  vmp_ranges_check(&mid->extents, "mid extents", is_wall, mid, report);
  vmp_ranges_check(&mid->runs, "mid runs", is_wall, mid, report);
  if (!whole || report->faults != faults) return report->faults - faults;  // what follows would only repeat it
  uint64_t extents = check_arenas(mid, report);
  check_sums(mid, report);
  if (report->faults != faults) return report->faults - faults;
  if (extents != mid->extents.count) {
    vmp_report_fault(report, "mid: %llu extents lie where nothing is free", (ull)(mid->extents.count - extents));
  }
  if (mid->stale || report->faults != faults) return report->faults - faults;
  uint64_t runs = 0;
  for (uint32_t i = vmp_ranges_after(&mid->extents, 0); i != 0;
       i = vmp_ranges_after(&mid->extents, vmp_range_at(&mid->extents, i)->offset + 1)) {
    runs += check_runs(mid, vmp_range_at(&mid->extents, i), report);
  }
  if (report->faults == faults && runs != mid->runs.count) {
    vmp_report_fault(report, "mid: %llu runs lie where nothing is free and mapped", (ull)(mid->runs.count - runs));
  }
  return report->faults - faults;
}
