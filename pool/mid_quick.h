// mid_quick.h: the common case of a block's coming and going, in one pass, for quick.c alone: a function call between
// the two, and what it hands over in memory, would be a tenth of the work.
//
// Owns: nothing. Says what the ways of mid.c, mid_place.c and mid_space.c come to where a mapped run fits and nobody is
// to be waited for: each run that is looked at is one part that only the stream itself may still touch, and free
// neighbours are alike. At any doubt it changes nothing, and the caller goes the long way;
// tests/model/quick_model_test.c compares the two.
//
//     | used | run ............ | used |        | used | run | block | run | used |
//     | used | block | run .... | used |        | used | run ............... | used |
#ifndef VMPOOL_POOL_MID_QUICK_H_
#define VMPOOL_POOL_MID_QUICK_H_

#include "pool/mid_internal.h"

#define MID_QUICK_INLINE __attribute__((always_inline)) static inline

// ---- runs of one part ----
// enter and leave change the classes only; count says what has come of it, once.
MID_QUICK_INLINE void mid_quick_count(vmp_mid *mid, uint64_t more_runs, uint64_t more_bytes) {
  mid->runs.count += more_runs;
  mid->extents += more_runs;  // nothing bare is near: each run is an extent
  mid->runs.bytes += more_bytes;
  mid->block_bytes -= more_bytes;
}

MID_QUICK_INLINE void mid_quick_enter(vmp_mid *mid, uint32_t part, vmp_mid_piece *piece) {
  vmp_mid_runs *runs = &mid->runs;
  unsigned class = vmp_mid_class(piece->bytes);
  uint32_t *root = &runs->roots[class], first = *root;
  piece->run_end = part;
  piece->class = (uint16_t) class;
  if (first == 0) {
    piece->links[0] = piece->links[1] = 0;
    *root = part;
    vmp_mid_runs_mark(runs, class);
  } else if (vmp_mid_class_is_list(class)) {
    piece->links[0] = 0;
    piece->links[1] = first;
    vmp_mid_piece_at(mid, first)->links[0] = part;
    *root = part;
  } else {
    vmp_mid_runs_insert(mid, root, part);
  }
}

MID_QUICK_INLINE void mid_quick_leave(vmp_mid *mid, uint32_t part, const vmp_mid_piece *piece) {
  vmp_mid_runs *runs = &mid->runs;
  unsigned class = piece->class;
  uint32_t *root = &runs->roots[class];
  if (*root == part && (piece->links[0] | piece->links[1]) == 0) {
    *root = 0;
    vmp_mid_runs_unmark(runs, class);
  } else {
    vmp_mid_runs_take_out(mid, root, class, part);
  }
}

// fitting: the run that vmp_mid_runs_fitting finds first.
MID_QUICK_INLINE uint32_t mid_quick_fitting(const vmp_mid *mid, uint64_t bytes) {
  unsigned class = vmp_mid_class(bytes);
  uint32_t head = mid->runs.roots[class];
  if (head == 0) return vmp_mid_runs_above(mid, class);
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, head);
  if (vmp_mid_class_is_list(class)) return head;
  if ((piece->links[0] | piece->links[1]) == 0 && piece->run_end == head) {
    return piece->bytes >= bytes ? head : vmp_mid_runs_above(mid, class);
  }
  return vmp_mid_runs_fitting(mid, bytes);
}

// ---- the index ----
MID_QUICK_INLINE vmp_mid_pages *mid_quick_pages_of(const vmp_mid_arena *arena, uint64_t offset) {
  return arena->sectors[(offset >> VMP_MID_SECTOR_LOG2) - arena->first_sector].pages;
}

MID_QUICK_INLINE unsigned mid_quick_page_of(uint64_t offset) {
  return (unsigned)(offset >> VMP_MID_PAGE_LOG2) & (VMP_MID_PAGES - 1);
}

MID_QUICK_INLINE void mid_quick_start(vmp_mid *mid, vmp_mid_arena *arena, vmp_mid_pages *pages, uint32_t part,
                                      uint64_t offset) {
  unsigned page = mid_quick_page_of(offset);
  uint32_t entry = pages->entries[page];
  if (entry != 0) {
    if (entry < VMP_MID_ENTRY_MORE - VMP_MID_ENTRY_ONE) {  // it stays below the most, and no table of lines
      pages->entries[page] = entry + VMP_MID_ENTRY_ONE;
    } else {
      vmp_mid_index_start(mid, arena, part);
    }
    return;
  }
  pages->entries[page] = part;
  pages->starts[page / 64] |= UINT64_C(1) << (page % 64);
  pages->words |= UINT64_C(1) << (page / 64);
}

// end_start: `part` won't begin there any more; `left` is the piece before it.
MID_QUICK_INLINE void mid_quick_end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t part, uint64_t offset,
                                          uint32_t left, uint64_t left_offset) {
  vmp_mid_pages *pages = mid_quick_pages_of(arena, offset);
  unsigned page = mid_quick_page_of(offset);
  uint32_t entry = pages->entries[page];
  if (entry != part) {  // not the only one there
    bool left_too = (offset ^ left_offset) >> VMP_MID_PAGE_LOG2 == 0;
    if (entry >= VMP_MID_ENTRY_MORE || ((entry & VMP_MID_ENTRY_PIECE) == part && !left_too)) {
      vmp_mid_index_end_start(mid, arena, part);
    } else {
      if ((entry & VMP_MID_ENTRY_PIECE) == part) entry ^= part ^ left;
      pages->entries[page] = entry - VMP_MID_ENTRY_ONE;
    }
    return;
  }
  pages->entries[page] = 0;
  uint64_t others = pages->starts[page / 64] & ~(UINT64_C(1) << (page % 64));
  pages->starts[page / 64] = others;
  if (others == 0) pages->words &= ~(UINT64_C(1) << (page / 64));
}

// ---- allocating ----
// is_own: the run is one part, which nobody may still touch but the streams of `own_streams`.
MID_QUICK_INLINE bool mid_quick_is_own(uint32_t run, const vmp_mid_piece *part, uint64_t own_streams) {
  return part->run_end == run && (part->fence.streams & ~own_streams) == 0;
}

MID_QUICK_INLINE bool mid_quick_touches_bare(const vmp_mid *mid, const vmp_mid_piece *part) {
  return vmp_mid_is(mid, part->prev, VMP_MID_BARE) || vmp_mid_is(mid, part->next, VMP_MID_BARE);
}

// mid_quick_best: of the places that were looked at, the one that the search would take.
typedef struct mid_quick_best {
  uint64_t pins, within_bytes, offset;
  uint32_t run;
  bool high;  // the high end of the run
} mid_quick_best;

// at_edge: a block there would leave one free piece of the run's extent, not two.
static inline bool mid_quick_at_edge(const vmp_mid *mid, const mid_quick_best *place) {
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, place->run);
  return !vmp_mid_is(mid, place->high ? part->next : part->prev, VMP_MID_BARE);
}

// consider is what better_mapped of mid_place.c says of places that need no wait; larger runs come later.
MID_QUICK_INLINE void mid_quick_consider(const vmp_mid *mid, mid_quick_best *best, uint32_t run, uint64_t pins,
                                         bool high, uint64_t bytes) {
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, run);
  if (pins > best->pins || (pins == best->pins && part->bytes != best->within_bytes)) return;
  mid_quick_best place = {.pins = pins, .within_bytes = part->bytes, .run = run, .high = high};
  place.offset = high ? vmp_mid_piece_end(part) - bytes : part->offset;
  if (pins == best->pins) {
    bool edge = mid_quick_at_edge(mid, &place);
    if (edge != mid_quick_at_edge(mid, best) ? !edge : place.offset > best->offset) return;
  }
  *best = place;
}

// search compares both ends of runs, best fit upwards, as the search of mid_place.c does. Run 0: it takes that one.
static inline mid_quick_best mid_quick_search(const vmp_mid *mid, uint64_t bytes, uint64_t own_streams, uint32_t run) {
  const mid_quick_best none = {.pins = UINT64_MAX};
  mid_quick_best best = none;
  uint64_t most = vmp_mid_runs_to_compare(mid, bytes);
  for (uint64_t i = 0; run != 0 && i < most && (i < VMP_MID_RUNS_COMPARED_WELL || best.pins > 1); i++) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, run);
    vmp_end_pins pins = {0, 0};
    if (!mid_quick_is_own(run, part, own_streams)) return none;
    if (vmp_mid_may_pin(mid, part, bytes) &&
        !mid->ops.pins(mid->ops.self, part->offset, vmp_mid_piece_end(part), bytes, &pins)) {
      return none;
    }
    mid_quick_consider(mid, &best, run, pins.low, false, bytes);
    if (best.pins > 0) mid_quick_consider(mid, &best, run, pins.high, true, bytes);
    if (best.pins == 0) return best;
    run = vmp_mid_runs_next_larger(mid, run);
  }
  return best;
}

// split makes two pieces of a part and returns the right one. The node and the index are there.
MID_QUICK_INLINE uint32_t mid_quick_split(vmp_mid *mid, vmp_mid_arena *arena, vmp_mid_pages *pages, uint32_t part,
                                          vmp_mid_piece *piece, uint64_t at) {
  uint64_t to = vmp_mid_piece_end(piece);
  uint32_t next = piece->next, index = vmp_node_take_in_row(&mid->pieces, sizeof(vmp_mid_piece));
  vmp_mid_piece *right = vmp_mid_piece_at(mid, index);
  right->offset = at;
  right->bytes = to - at;
  right->prev = part;
  right->next = next;
  right->kind = VMP_MID_MAPPED;
  right->fence = piece->fence;
  if (next != 0) vmp_mid_piece_at(mid, next)->prev = index;
  piece->bytes = at - piece->offset;
  piece->next = index;
  mid_quick_start(mid, arena, pages, index, at);
  vmp_mid_index_cover(arena, at, to, index);
  return index;
}

// prepared: a part can be split somewhere in the pages of a sector. (The long way makes what is missing.)
MID_QUICK_INLINE bool mid_quick_prepared(const vmp_mid *mid, const vmp_mid_pages *pages) {
  return pages != NULL && mid->tables.spare != NULL && vmp_node_pool_unpromised(&mid->pieces) > 0 &&
         mid->pieces.touched < VMP_MID_MAX_PIECES;
}

// cut_beside_bare is for a run that is part of a mixed extent: it is claimed at once all the same.
__attribute__((noinline)) static vmp_mid_piece *mid_quick_cut_beside_bare(vmp_mid *mid, uint32_t run, uint64_t offset,
                                                                          uint64_t bytes) {
  vmp_mid_place place = {.offset = offset, .run = run};
  vmp_fence fence;
  uint32_t piece;
  if (vmp_mid_cut(mid, &place, bytes, NULL, &piece, &fence) == VMP_OK) return vmp_mid_piece_at(mid, piece);
  (void)mid->ops.release(mid->ops.self, offset, bytes, VMP_FENCE_NONE);
  return NULL;
}

// mid_quick_cut: where a block is cut out of a run.
typedef struct mid_quick_cut {
  vmp_mid_piece *piece;
  vmp_mid_arena *arena;
  vmp_mid_pages *pages;   // of the place where the new piece begins
  uint64_t at;            // that place
  bool whole, low, bare;  // the run is the block; the block is at its low end; something bare is beside the run
} mid_quick_cut;

MID_QUICK_INLINE mid_quick_cut mid_quick_look(const vmp_mid *mid, uint32_t run, uint64_t offset, uint64_t bytes) {
  mid_quick_cut cut = {.piece = vmp_mid_piece_at(mid, run), .arena = vmp_mid_arena_of(mid, offset)};
  cut.whole = cut.piece->bytes == bytes;
  cut.low = cut.piece->offset == offset;
  cut.bare = mid_quick_touches_bare(mid, cut.piece);
  cut.at = cut.low ? offset + bytes : offset;
  cut.pages = cut.whole ? NULL : mid_quick_pages_of(cut.arena, cut.at);
  return cut;
}

MID_QUICK_INLINE bool mid_quick_is_ready(const vmp_mid *mid, const mid_quick_cut *cut) {
  return cut->whole || cut->bare || mid_quick_prepared(mid, cut->pages);
}

// claim_elsewhere goes on where the low end of the best-fitting run is not in live chunks alone: it claims the end of a
// run that the search would take. Run 0: it takes a search, and nothing is claimed.
typedef struct mid_quick_end {
  uint64_t offset, run;
} mid_quick_end;
__attribute__((noinline)) static mid_quick_end mid_quick_claim_elsewhere(vmp_mid *mid, uint32_t run, uint64_t bytes,
                                                                         vmp_stream_index stream,
                                                                         uint64_t own_streams) {
  mid_quick_best best = mid_quick_search(mid, bytes, own_streams, run);
  vmp_fence moved;  // by nobody: num_moved is 0
  if (best.run != 0) {
    mid_quick_cut cut = mid_quick_look(mid, best.run, best.offset, bytes);
    if (mid_quick_is_ready(mid, &cut) &&
        mid->ops.claim(mid->ops.self, best.offset, bytes, stream, VMP_EFFORT_MAPPED, &moved) == VMP_OK) {
      return (mid_quick_end){best.offset, best.run};
    }
  }
  return (mid_quick_end){0, 0};
}

// mid_quick_alloc does what vmp_mid_alloc would do with a request of so many bytes (a multiple of the step) aligned to
// the step, effort NORMAL, where that takes no search, no driver call and no wait; but for the block's word, which the
// caller has to write. own_streams: bits of fences that `stream` needs no wait for. Never lets go of the lock. NULL: it
// isn't that simple, and nothing has changed.
MID_QUICK_INLINE vmp_mid_piece *mid_quick_alloc(vmp_mid *mid, uint64_t bytes, vmp_stream_index stream,
                                                uint64_t own_streams) {
  bool can = mid->ops.pins != NULL && mid->ops.claim_again != NULL && *mid->ops.glance.num_moved == 0;
  if (!can || !vmp_mid_is_up_to_date(mid)) return NULL;
  uint32_t run = mid_quick_fitting(mid, bytes);
  if (run == 0 || !mid_quick_is_own(run, vmp_mid_piece_at(mid, run), own_streams)) return NULL;
  uint64_t offset = vmp_mid_piece_at(mid, run)->offset;
  mid_quick_cut cut = mid_quick_look(mid, run, offset, bytes);
  if (!mid_quick_is_ready(mid, &cut) || !mid->ops.claim_again(mid->ops.self, offset, bytes)) {
    mid_quick_end end = mid_quick_claim_elsewhere(mid, run, bytes, stream, own_streams);
    if (end.run == 0) return NULL;
    run = (uint32_t)end.run;
    offset = end.offset;
    cut = mid_quick_look(mid, run, offset, bytes);
  }
  if (cut.bare) return mid_quick_cut_beside_bare(mid, run, offset, bytes);
  vmp_mid_piece *piece = cut.piece;
  mid_quick_leave(mid, run, piece);
  if (!cut.whole) {
    uint32_t right = mid_quick_split(mid, cut.arena, cut.pages, run, piece, cut.at);
    vmp_mid_piece *right_piece = vmp_mid_piece_at(mid, right);
    if (cut.low) {
      mid_quick_enter(mid, right, right_piece);
    } else {
      mid_quick_enter(mid, run, piece);
      run = right;
      piece = right_piece;
    }
  }
  mid_quick_count(mid, cut.whole ? UINT64_MAX : 0, 0 - bytes);
  piece->kind = VMP_MID_USED;
  piece->owner = NULL;
  mid->blocks++;
  mid->last = run;
  return piece;
}

// ---- freeing ----
// find_start: the used block without an owner that begins at `offset`, 0: there is none.
MID_QUICK_INLINE uint32_t mid_quick_find_start(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset) {
  const vmp_mid_pages *pages = mid_quick_pages_of(arena, offset);
  if (pages == NULL) return 0;
  uint32_t entry = pages->entries[mid_quick_page_of(offset)];
  uint32_t index = entry < VMP_MID_ENTRY_LINES ? entry & VMP_MID_ENTRY_PIECE : vmp_mid_index_find(mid, arena, offset);
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  while (piece->offset < offset && piece->next != 0) piece = vmp_mid_piece_at(mid, index = piece->next);
  while (piece->offset > offset) piece = vmp_mid_piece_at(mid, index = piece->prev);
  return piece->kind == VMP_MID_USED && piece->offset == offset && piece->owner == NULL ? index : 0;
}

// joins: a free neighbour is a run of one part that becomes one with the block; none, or a used one, is as good.
MID_QUICK_INLINE bool mid_quick_joins(const vmp_mid *mid, uint32_t index, const vmp_mid_piece *piece, uint32_t outer,
                                      uint64_t streams) {
  if (piece->kind <= VMP_MID_USED) return true;
  return piece->kind == VMP_MID_MAPPED && piece->run_end == index && piece->fence.streams == streams &&
         !vmp_mid_is(mid, outer, VMP_MID_BARE);
}

MID_QUICK_INLINE void mid_quick_swallow(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left_index, vmp_mid_piece *left,
                                        uint32_t right_index, vmp_mid_piece *right) {
  uint32_t next = right->next;
  mid_quick_end_start(mid, arena, right_index, right->offset, left_index, left->offset);
  vmp_mid_index_cover(arena, right->offset, vmp_mid_piece_end(right), left_index);
  left->bytes += right->bytes;
  if (right->fence.sequence > left->fence.sequence) left->fence.sequence = right->fence.sequence;
  left->next = next;
  if (next != 0) vmp_mid_piece_at(mid, next)->prev = left_index;
  *right = (vmp_mid_piece){.kind = VMP_MID_NONE};
  vmp_node_give_back(&mid->pieces, right_index, right);
}

// mid_quick_find looks for the used block without an owner that begins at `offset`; false: there is none. Until
// anything else is asked of mid, *out names it for mid_quick_free, which does what vmp_mid_free does.
typedef struct mid_quick_block {
  vmp_mid_arena *arena;
  vmp_mid_piece *piece;
  uint32_t index;
} mid_quick_block;

MID_QUICK_INLINE bool mid_quick_find(vmp_mid *mid, uint64_t offset, mid_quick_block *out) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  if (arena == NULL) return false;
  uint32_t index = mid_quick_find_start(mid, arena, offset);
  *out = (mid_quick_block){.arena = arena, .piece = vmp_mid_piece_at(mid, index), .index = index};
  return index != 0;
}

MID_QUICK_INLINE uint64_t mid_quick_free(vmp_mid *mid, const mid_quick_block *block, vmp_fence fence) {
  vmp_mid_arena *arena = block->arena;
  vmp_mid_piece *piece = block->piece;
  uint32_t index = block->index;
  uint64_t bytes = piece->bytes;
  uint32_t left = piece->prev, right = piece->next;
  vmp_mid_piece *left_piece = vmp_mid_piece_at(mid, left), *right_piece = vmp_mid_piece_at(mid, right);
  bool mapped = mid->ops.release(mid->ops.self, piece->offset, bytes, fence);
  if (!mapped || mid->options.edges || !mid_quick_joins(mid, left, left_piece, left_piece->prev, fence.streams) ||
      !mid_quick_joins(mid, right, right_piece, right_piece->next, fence.streams)) {
    piece->word = 0;
    vmp_mid_give_back(mid, index, fence, mapped);
    return bytes;
  }
  bool left_free = left_piece->kind == VMP_MID_MAPPED, right_free = right_piece->kind == VMP_MID_MAPPED;
  mid->blocks--;
  mid_quick_count(mid, UINT64_C(1) - left_free - right_free, bytes);
  piece->kind = VMP_MID_MAPPED;
  piece->fence = fence;
  if (right_free) {
    mid_quick_leave(mid, right, right_piece);
    mid_quick_swallow(mid, arena, index, piece, right, right_piece);
  }
  if (left_free) {
    mid_quick_leave(mid, left, left_piece);
    mid_quick_swallow(mid, arena, left, left_piece, index, piece);
    index = left;
    piece = left_piece;
  }
  mid_quick_enter(mid, index, piece);
  return bytes;
}

#endif  // VMPOOL_POOL_MID_QUICK_H_
