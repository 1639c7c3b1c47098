// mid_quick.c: the common case of a block's coming and going, in one pass.
//
// Owns: nothing. Says what the ways of mid.c, mid_place.c and mid_space.c come to where no decision is to be made: the
// search would end at the first run that it looks at, the run is one part that only the stream itself may still touch,
// and free neighbours are alike. At any doubt it changes nothing, and the caller goes the long way;
// tests/model/quick_model_test.c compares the two.
//
//     | used | run ............ | used |        | used | run | block | run | used |
//     | used | block | run .... | used |        | used | run ............... | used |
#include "pool/mid_internal.h"

// ---- runs of one part ----
// enter and leave change the classes only; count says what has come of it, once.
static inline void count(vmp_mid *mid, uint64_t more_runs, uint64_t more_bytes) {
  mid->runs.count += more_runs;
  mid->extents += more_runs;  // nothing bare is near: each run is an extent
  mid->runs.bytes += more_bytes;
  mid->block_bytes -= more_bytes;
}

static inline void enter(vmp_mid *mid, uint32_t part, vmp_mid_piece *piece) {
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

static inline void leave(vmp_mid *mid, uint32_t part, const vmp_mid_piece *piece) {
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
static inline uint32_t fitting(const vmp_mid *mid, uint64_t bytes) {
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
static inline vmp_mid_pages *pages_of(const vmp_mid_arena *arena, uint64_t offset) {
  return arena->sectors[(offset >> VMP_MID_SECTOR_LOG2) - arena->first_sector].pages;
}

static inline unsigned page_of(uint64_t offset) {
  return (unsigned)(offset >> VMP_MID_PAGE_LOG2) & (VMP_MID_PAGES - 1);
}

static inline void start(vmp_mid *mid, vmp_mid_arena *arena, vmp_mid_pages *pages, uint32_t part, uint64_t offset) {
  unsigned page = page_of(offset);
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
static inline void end_start(vmp_mid *mid, vmp_mid_arena *arena, uint32_t part, uint64_t offset, uint32_t left,
                             uint64_t left_offset) {
  vmp_mid_pages *pages = pages_of(arena, offset);
  unsigned page = page_of(offset);
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
#define RUNS_TRIED 4u  // as many as the search compares where it finds a place that pins one parked chunk

// is_own: the run is one part, which nobody may still touch but the streams of `own_streams`.
static inline bool is_own(uint32_t run, const vmp_mid_piece *part, uint64_t own_streams) {
  return part->run_end == run && (part->fence.streams & ~own_streams) == 0;
}

static inline bool touches_bare(const vmp_mid *mid, const vmp_mid_piece *part) {
  return vmp_mid_is(mid, part->prev, VMP_MID_BARE) || vmp_mid_is(mid, part->next, VMP_MID_BARE);
}

// may_pin: a block at an end of the run may pin a parked chunk. (Where it fits exactly it may.)
static inline bool may_pin(const vmp_mid *mid, const vmp_mid_piece *part, uint64_t bytes) {
  uint64_t parked = *mid->ops.glance.parked_orders;
  return parked != 0 && part->bytes != bytes && part->bytes >> mid->granule_log2 >= (parked & (~parked + 1));
}

// choose_among goes on where the low end of the best-fitting run pins parked chunks: of a few runs, best fit upwards,
// the first end that pins none; where each pins some, the first that pins one. 0: it takes a search.
__attribute__((noinline)) static uint32_t choose_among(const vmp_mid *mid, uint64_t bytes, uint64_t own_streams,
                                                       uint32_t run, uint64_t *out_offset) {
  uint32_t best = 0;
  for (unsigned tried = 0; run != 0 && tried < RUNS_TRIED; tried++) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, run);
    if (!is_own(run, part, own_streams) || touches_bare(mid, part)) return 0;
    uint64_t ends[2] = {part->offset, vmp_mid_piece_end(part) - bytes};
    for (unsigned i = 0; i < 2; i++) {
      uint64_t pins = may_pin(mid, part, bytes) ? mid->ops.pins(mid->ops.self, ends[i], bytes) : 0;
      if (pins == 0 || (pins == 1 && best == 0)) *out_offset = ends[i];
      if (pins == 0) return run;
      if (pins == 1 && best == 0) best = run;
    }
    run = vmp_mid_runs_next_larger(mid, run);
  }
  return best;
}

// choose finds the run and the end of it that the search would take. 0: it takes a search.
static inline uint32_t choose(const vmp_mid *mid, uint64_t bytes, uint64_t own_streams, uint64_t *out_offset) {
  uint32_t run = fitting(mid, bytes);
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, run);  // 0: of no kind
  *out_offset = part->offset;
  if (!is_own(run, part, own_streams)) return 0;
  if (!may_pin(mid, part, bytes) || mid->ops.pins(mid->ops.self, part->offset, bytes) == 0) return run;
  return choose_among(mid, bytes, own_streams, run, out_offset);
}

// split makes two pieces of a part and returns the right one. The node and the index are there.
static inline uint32_t split(vmp_mid *mid, vmp_mid_arena *arena, vmp_mid_pages *pages, uint32_t part,
                             vmp_mid_piece *piece, uint64_t at) {
  uint64_t to = vmp_mid_piece_end(piece);
  uint32_t next = piece->next, index = vmp_node_take(&mid->pieces);
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
  start(mid, arena, pages, index, at);
  vmp_mid_index_cover(arena, at, to, index);
  return index;
}

// prepared: a part can be split somewhere in the pages of a sector. (The long way makes what is missing.)
static inline bool prepared(const vmp_mid *mid, const vmp_mid_pages *pages) {
  return pages != NULL && mid->tables.spare != NULL && vmp_node_pool_unpromised(&mid->pieces) > 0 &&
         mid->pieces.touched < VMP_MID_MAX_PIECES;
}

// cut_beside_bare is for a run that is part of a mixed extent: it is claimed at once all the same.
__attribute__((noinline)) static bool cut_beside_bare(vmp_mid *mid, uint32_t run, uint64_t offset, uint64_t bytes,
                                                      uint64_t **out_word) {
  vmp_mid_place place = {.offset = offset, .run = run};
  vmp_fence fence;
  uint32_t piece;
  if (vmp_mid_cut(mid, &place, bytes, NULL, &piece, &fence) != VMP_OK) {
    (void)mid->ops.release(mid->ops.self, offset, bytes, VMP_FENCE_NONE);
    return false;
  }
  *out_word = &vmp_mid_piece_at(mid, piece)->word;
  return true;
}

bool vmp_mid_quick_alloc(vmp_mid *mid, uint64_t bytes, vmp_stream_index stream, uint64_t own_streams,
                         uint64_t *out_offset, uint64_t **out_word) {
  uint64_t offset;
  if (mid->num_arenas == 0 || !vmp_mid_is_up_to_date(mid)) return false;
  if (mid->ops.pins == NULL || *mid->ops.glance.num_moved > 0) return false;
  uint32_t run = choose(mid, bytes, own_streams, &offset);
  if (run == 0) return false;
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, run);
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  bool whole = piece->bytes == bytes, low = piece->offset == offset;
  uint64_t at = low ? offset + bytes : offset;
  vmp_mid_pages *pages = whole ? NULL : pages_of(arena, at);
  bool bare = touches_bare(mid, piece);
  if (!whole && !bare && !prepared(mid, pages)) return false;
  vmp_fence moved;
  if (mid->ops.claim(mid->ops.self, offset, bytes, stream, VMP_EFFORT_MAPPED, &moved) != VMP_OK) return false;
  *out_offset = offset;
  if (bare) return cut_beside_bare(mid, run, offset, bytes, out_word);
  if (!whole) {
    leave(mid, run, piece);
    uint32_t right = split(mid, arena, pages, run, piece, at);
    vmp_mid_piece *right_piece = vmp_mid_piece_at(mid, right);
    if (low) {
      enter(mid, right, right_piece);
    } else {
      enter(mid, run, piece);
      run = right;
      piece = right_piece;
    }
  } else {
    leave(mid, run, piece);
  }
  count(mid, whole ? UINT64_MAX : 0, 0 - bytes);
  piece->kind = VMP_MID_USED;
  piece->owner = NULL;
  piece->word = 0;
  mid->blocks++;
  mid->last = run;
  *out_word = &piece->word;
  return true;
}

// ---- freeing ----
// find_start: the used block without an owner that begins at `offset`, 0: there is none.
static inline uint32_t find_start(const vmp_mid *mid, const vmp_mid_arena *arena, uint64_t offset) {
  const vmp_mid_pages *pages = pages_of(arena, offset);
  if (pages == NULL) return 0;
  uint32_t entry = pages->entries[page_of(offset)];
  uint32_t index = entry < VMP_MID_ENTRY_LINES ? entry & VMP_MID_ENTRY_PIECE : vmp_mid_index_find(mid, arena, offset);
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  while (piece->offset < offset && piece->next != 0) piece = vmp_mid_piece_at(mid, index = piece->next);
  while (piece->offset > offset) piece = vmp_mid_piece_at(mid, index = piece->prev);
  return piece->kind == VMP_MID_USED && piece->offset == offset && piece->owner == NULL ? index : 0;
}

// joins: a free neighbour is a run of one part that becomes one with the block; none, or a used one, is as good.
static inline bool joins(const vmp_mid *mid, uint32_t index, const vmp_mid_piece *piece, uint32_t outer,
                         uint64_t streams) {
  if (piece->kind <= VMP_MID_USED) return true;
  return piece->kind == VMP_MID_MAPPED && piece->run_end == index && piece->fence.streams == streams &&
         !vmp_mid_is(mid, outer, VMP_MID_BARE);
}

static inline void swallow(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left_index, vmp_mid_piece *left,
                           uint32_t right_index, vmp_mid_piece *right) {
  uint32_t next = right->next;
  end_start(mid, arena, right_index, right->offset, left_index, left->offset);
  vmp_mid_index_cover(arena, right->offset, vmp_mid_piece_end(right), left_index);
  left->bytes += right->bytes;
  if (right->fence.sequence > left->fence.sequence) left->fence.sequence = right->fence.sequence;
  left->next = next;
  if (next != 0) vmp_mid_piece_at(mid, next)->prev = left_index;
  *right = (vmp_mid_piece){.kind = VMP_MID_NONE};
  vmp_node_give_zeroed(&mid->pieces, right_index);
}

bool vmp_mid_quick_find(vmp_mid *mid, uint64_t offset, vmp_mid_quick *out) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  if (arena == NULL) return false;
  uint32_t index = find_start(mid, arena, offset);
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  *out = (vmp_mid_quick){.arena = arena, .piece = piece, .word = piece->word, .index = index};
  return index != 0;
}

uint64_t vmp_mid_quick_free(vmp_mid *mid, const vmp_mid_quick *block, vmp_fence fence) {
  vmp_mid_arena *arena = block->arena;
  vmp_mid_piece *piece = block->piece;
  uint32_t index = block->index;
  uint64_t bytes = piece->bytes;
  piece->word = 0;
  uint32_t left = piece->prev, right = piece->next;
  vmp_mid_piece *left_piece = vmp_mid_piece_at(mid, left), *right_piece = vmp_mid_piece_at(mid, right);
  bool mapped = mid->ops.release(mid->ops.self, piece->offset, bytes, fence);
  if (!mapped || mid->options.edges || !joins(mid, left, left_piece, left_piece->prev, fence.streams) ||
      !joins(mid, right, right_piece, right_piece->next, fence.streams)) {
    vmp_mid_give_back(mid, index, fence, mapped);
    return bytes;
  }
  bool left_free = left_piece->kind == VMP_MID_MAPPED, right_free = right_piece->kind == VMP_MID_MAPPED;
  mid->blocks--;
  count(mid, UINT64_C(1) - left_free - right_free, bytes);
  piece->kind = VMP_MID_MAPPED;
  piece->fence = fence;
  if (right_free) {
    leave(mid, right, right_piece);
    swallow(mid, arena, index, piece, right, right_piece);
  }
  if (left_free) {
    leave(mid, left, left_piece);
    swallow(mid, arena, left, left_piece, index, piece);
    index = left;
    piece = left_piece;
  }
  enter(mid, index, piece);
  return bytes;
}
