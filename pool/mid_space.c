// mid_space.c: the pieces of arenas: cutting blocks out of the free parts, giving them back, settling fences.
//
// Owns: pieces, and which runs and mixed extents come of a cut or a free. Does not own the choice of a place
// (mid_place.c) nor changes of the mapping (mid_arena.c).
//
// Cutting takes what it may need from the node pools first, so that it is done or not done. Giving back uses the
// block's own node and nothing else:
//
//     | used | mapped {s} | block | mapped {t} | used |        the runs on both sides leave their trees,
//     | used | mapped {s} | mapped {s..........} | used |      like parts join, and one run enters
#include "pool/mid_internal.h"

// ---- pieces ----

uint32_t vmp_mid_split(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index, uint64_t at) {
  uint32_t right_index = vmp_node_take(&mid->pieces);
  vmp_mid_piece *left = vmp_mid_piece_at(mid, index), *right = vmp_mid_piece_at(mid, right_index);
  uint64_t to = vmp_mid_piece_end(left);
  *right = *left;
  right->offset = at;
  right->bytes = to - at;
  right->prev = index;
  if (right->next != 0) vmp_mid_piece_at(mid, right->next)->prev = right_index;
  left->bytes = at - left->offset;
  left->next = right_index;
  vmp_mid_index_start(mid, arena, right_index);
  vmp_mid_index_cover(arena, at, to, right_index);
  return right_index;
}

static inline void join_pieces(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left_index, vmp_mid_piece *left,
                               uint32_t right_index, vmp_mid_piece *right) {
  vmp_mid_index_end_start(mid, arena, right_index);
  vmp_mid_index_cover(arena, right->offset, vmp_mid_piece_end(right), left_index);
  left->bytes += right->bytes;
  left->fence = vmp_fence_merge(left->fence, right->fence);
  left->next = right->next;
  if (right->next != 0) vmp_mid_piece_at(mid, right->next)->prev = left_index;
  *right = (vmp_mid_piece){.kind = VMP_MID_NONE};
  vmp_node_give_back(&mid->pieces, right_index, right);
}

void vmp_mid_join(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left, uint32_t right) {
  join_pieces(mid, arena, left, vmp_mid_piece_at(mid, left), right, vmp_mid_piece_at(mid, right));
}

uint32_t vmp_mid_run_head(const vmp_mid *mid, uint32_t part) {
  for (uint32_t before = vmp_mid_piece_at(mid, part)->prev; vmp_mid_is(mid, before, VMP_MID_MAPPED);) {
    part = before;
    before = vmp_mid_piece_at(mid, part)->prev;
  }
  return part;
}

// join_in_run joins two parts of one run, which stays in its tree: its size and first part are as before.
static void join_in_run(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left, uint32_t right) {
  bool was_last = !vmp_mid_is(mid, vmp_mid_piece_at(mid, right)->next, VMP_MID_MAPPED);
  uint32_t head = vmp_mid_piece_at(mid, right)->run_end;
  vmp_mid_join(mid, arena, left, right);
  if (!was_last || !vmp_mid_is(mid, left, VMP_MID_MAPPED)) return;
  vmp_mid_piece_at(mid, left)->run_end = head;
  vmp_mid_piece_at(mid, head)->run_end = left;
}

void vmp_mid_settle(vmp_mid *mid, uint64_t offset, uint64_t end, unsigned limit) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  uint32_t index = vmp_mid_index_find(mid, arena, offset);
  while (index != 0 && limit-- > 0) {
    vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    if (part->kind == VMP_MID_USED || part->offset >= end) return;
    if (!vmp_fence_is_none(part->fence) && mid->ops.known_complete(mid->ops.self, part->fence)) {
      part->fence = VMP_FENCE_NONE;
    }
    uint32_t before = part->prev;
    if (vmp_mid_may_join(mid, before, index)) {
      join_in_run(mid, arena, before, index);
      index = before;
    }
    uint32_t next = vmp_mid_piece_at(mid, index)->next;
    if (vmp_mid_may_join(mid, index, next)) join_in_run(mid, arena, index, next);
    index = vmp_mid_piece_at(mid, index)->next;
  }
}

// ---- mixed extents ----
void vmp_mid_add_mixed(vmp_mid *mid, const vmp_mid_arena *arena, uint64_t from, uint64_t to) {
  if (mid->stale || vmp_node_pool_unpromised(&mid->ranges) == 0) {
    mid->stale = true;
    return;
  }
  vmp_ranges_add(&mid->mixed, from, to - from, arena->offset, vmp_mid_arena_end(arena));
}

// is_mixed: whether the extent of a run, given by its ends, is.
static bool is_mixed(const vmp_mid *mid, uint32_t head, uint32_t tail) {
  return vmp_mid_is(mid, vmp_mid_piece_at(mid, head)->prev, VMP_MID_BARE) ||
         vmp_mid_is(mid, vmp_mid_piece_at(mid, tail)->next, VMP_MID_BARE);
}

vmp_mid_span vmp_mid_extent_of_run(const vmp_mid *mid, uint32_t head) {
  vmp_mid_span run = vmp_mid_run_span(mid, head);
  if (!is_mixed(mid, head, vmp_mid_piece_at(mid, head)->run_end)) return run;
  uint32_t index = vmp_ranges_find(&mid->mixed, run.from);
  if (index == 0) return run;  // only while stale
  const vmp_range *extent = vmp_range_at(&mid->mixed, index);
  return (vmp_mid_span){extent->offset, vmp_range_end(extent)};
}

// drop_unmixed takes a run out of the set if it has become an extent of its own, beside a cut.
static void drop_unmixed(vmp_mid *mid, uint32_t head, uint32_t tail) {
  if (is_mixed(mid, head, tail)) return;
  vmp_mid_span run = vmp_mid_run_span(mid, head);
  vmp_ranges_remove(&mid->mixed, run.from, run.to - run.from);
}

// cut_mixed takes a block that was cut out of a mixed extent out of the set.
static void cut_mixed(vmp_mid *mid, uint32_t block) {
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, block);
  vmp_ranges_remove(&mid->mixed, piece->offset, piece->bytes);
  if (vmp_mid_is(mid, piece->prev, VMP_MID_MAPPED)) {
    drop_unmixed(mid, vmp_mid_piece_at(mid, piece->prev)->run_end, piece->prev);
  }
  if (vmp_mid_is(mid, piece->next, VMP_MID_MAPPED)) {
    drop_unmixed(mid, piece->next, vmp_mid_piece_at(mid, piece->next)->run_end);
  }
}

// ---- cutting ----
// reserve_for_cut makes sure of two pieces, two ranges, and the index of what will begin at `offset` and `end` but
// hasn't yet.
static inline bool reserve_for_cut(vmp_mid *mid, vmp_mid_arena *arena, const vmp_mid_span *part, uint64_t offset,
                                   uint64_t end) {
  return mid->pieces.touched < VMP_MID_MAX_PIECES - 2 && vmp_node_pool_reserve(&mid->pieces, 2) &&
         vmp_node_pool_reserve(&mid->ranges, 2) &&
         (offset == part->from || vmp_mid_index_prepare(mid, arena, offset)) &&
         (end == part->to || vmp_mid_index_prepare(mid, arena, end));
}

// cut_from_part cuts [offset, end) out of a part that is a run of its own, and returns the piece.
static uint32_t cut_from_part(vmp_mid *mid, vmp_mid_arena *arena, uint32_t part, uint64_t offset, uint64_t end) {
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, part);
  bool mixed = vmp_mid_is(mid, piece->prev, VMP_MID_BARE) || vmp_mid_is(mid, piece->next, VMP_MID_BARE);
  uint32_t index = part;
  vmp_mid_runs_leave(mid, part);
  if (piece->offset < offset) {
    index = vmp_mid_split(mid, arena, part, offset);
    vmp_mid_runs_enter(mid, part, part);
    piece = vmp_mid_piece_at(mid, index);
  }
  if (end < vmp_mid_piece_end(piece)) {
    uint32_t rest = vmp_mid_split(mid, arena, index, end);
    vmp_mid_runs_enter(mid, rest, rest);
  }
  piece->kind = VMP_MID_USED;
  if (mixed) cut_mixed(mid, index);
  return index;
}

// cut_piece makes [offset, end) one piece, whose fence is that of all parts there, and returns it. No run touches it.
// *tail is a part, or 0: the part that holds its end then.
static uint32_t cut_piece(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index, uint64_t offset, uint64_t end,
                          uint32_t *tail) {
  if (vmp_mid_piece_at(mid, index)->offset < offset) {
    uint32_t right = vmp_mid_split(mid, arena, index, offset);
    if (*tail == index) *tail = right;
    index = right;
  }
  uint32_t last = index;
  while (vmp_mid_piece_end(vmp_mid_piece_at(mid, last)) < end) last = vmp_mid_piece_at(mid, last)->next;
  if (vmp_mid_piece_end(vmp_mid_piece_at(mid, last)) > end) {
    uint32_t right = vmp_mid_split(mid, arena, last, end);
    if (*tail == last) *tail = right;
  }
  while (vmp_mid_piece_end(vmp_mid_piece_at(mid, index)) < end) {
    vmp_mid_join(mid, arena, index, vmp_mid_piece_at(mid, index)->next);
  }
  return index;
}

// cut_from_parts cuts [offset, end) out where it lies across several parts, or in one of several of a run, or in a bare
// one. `head`: of the run that all of it is in, 0 when there is none or it isn't known.
static uint32_t cut_from_parts(vmp_mid *mid, vmp_mid_arena *arena, uint32_t head, uint64_t offset, uint64_t end) {
  uint32_t index = vmp_mid_index_find(mid, arena, offset), tail = 0;
  uint64_t runs_end = 0;
  if (head == 0 && vmp_mid_is(mid, index, VMP_MID_MAPPED)) head = vmp_mid_run_head(mid, index);
  for (uint32_t at = head != 0 ? head : index; at != 0 && vmp_mid_piece_at(mid, at)->offset < end;
       at = vmp_mid_piece_at(mid, at)->next) {
    if (!vmp_mid_is_head(mid, at)) continue;
    tail = vmp_mid_piece_at(mid, at)->run_end;
    runs_end = vmp_mid_run_span(mid, at).to;
    vmp_mid_runs_leave(mid, at);
  }
  index = cut_piece(mid, arena, index, offset, end, &tail);
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  piece->kind = VMP_MID_USED;
  if (head != 0 && head != index) vmp_mid_runs_enter(mid, head, piece->prev);
  if (runs_end > end) vmp_mid_runs_enter(mid, piece->next, tail);
  cut_mixed(mid, index);
  return index;
}

vmp_status vmp_mid_cut(vmp_mid *mid, const vmp_mid_place *place, uint64_t bytes, void *owner, uint32_t *out_piece,
                       vmp_fence *out_fence) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, place->offset);
  uint64_t offset = place->offset, end = offset + bytes;
  bool whole_run = place->run != 0 && vmp_mid_piece_at(mid, place->run)->run_end == place->run;
  vmp_mid_span part = {UINT64_MAX, vmp_mid_arena_end(arena)};  // nothing known
  if (whole_run) part = vmp_mid_run_span(mid, place->run);
  if (!reserve_for_cut(mid, arena, &part, offset, end)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block of %llu bytes",
                    (unsigned long long)bytes);
  }
  uint32_t index = whole_run ? cut_from_part(mid, arena, place->run, offset, end)
                             : cut_from_parts(mid, arena, place->run, offset, end);
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  mid->extents += (vmp_mid_is_free(mid, piece->prev) ? 1u : 0u) + (vmp_mid_is_free(mid, piece->next) ? 1u : 0u);
  mid->extents--;
  mid->blocks++;
  mid->block_bytes += bytes;
  if (mid->options.edges) vmp_mid_edges_make_room(mid);
  *out_fence = piece->fence;
  *out_piece = index;
  piece->owner = owner;
  piece->word = 0;
  mid->last = index;
  return VMP_OK;
}

// ---- giving back ----
// give_back_bare is for a block of which not everything is mapped (its claim was refused, a slot is sealed): bare to
// begin with, then what the mapping says.
static void give_back_bare(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index) {
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  piece->kind = VMP_MID_BARE;
  uint64_t from = piece->offset, to = vmp_mid_piece_end(piece), offset = from, end = to;
  // A run beside it that was no mixed extent is part of one now.
  if (vmp_mid_is(mid, piece->prev, VMP_MID_MAPPED)) {
    uint32_t head = vmp_mid_piece_at(mid, piece->prev)->run_end;
    if (!vmp_mid_is(mid, vmp_mid_piece_at(mid, head)->prev, VMP_MID_BARE)) from = vmp_mid_piece_at(mid, head)->offset;
  }
  if (vmp_mid_is(mid, piece->next, VMP_MID_MAPPED)) {
    uint32_t tail = vmp_mid_piece_at(mid, piece->next)->run_end;
    if (!vmp_mid_is(mid, vmp_mid_piece_at(mid, tail)->next, VMP_MID_BARE)) {
      to = vmp_mid_piece_end(vmp_mid_piece_at(mid, tail));
    }
  }
  vmp_mid_add_mixed(mid, arena, from, to);
  if (vmp_mid_may_join(mid, piece->prev, index)) {
    index = piece->prev;
    vmp_mid_join(mid, arena, index, vmp_mid_piece_at(mid, index)->next);
  }
  uint32_t next = vmp_mid_piece_at(mid, index)->next;
  if (vmp_mid_may_join(mid, index, next)) vmp_mid_join(mid, arena, index, next);
  vmp_mid_refresh(mid, offset, end, false);
}

static void give_back_mapped(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index, vmp_mid_piece *piece,
                             vmp_mid_piece *left_piece, vmp_mid_piece *right_piece) {
  uint32_t left = piece->prev, right = piece->next, head = index, tail = index;
  uint64_t from = piece->offset, to = vmp_mid_piece_end(piece);
  bool left_mixed = left_piece->kind == VMP_MID_BARE, right_mixed = right_piece->kind == VMP_MID_BARE;
  piece->kind = VMP_MID_MAPPED;
  if (left_piece->kind == VMP_MID_MAPPED) {
    head = left_piece->run_end;
    const vmp_mid_piece *first = vmp_mid_piece_at(mid, head);
    left_mixed = vmp_mid_is(mid, first->prev, VMP_MID_BARE);
    if (!left_mixed) from = first->offset;
    vmp_mid_runs_leave(mid, head);
  }
  if (right_piece->kind == VMP_MID_MAPPED) {
    tail = right_piece->run_end;
    const vmp_mid_piece *last = vmp_mid_piece_at(mid, tail);
    right_mixed = vmp_mid_is(mid, last->next, VMP_MID_BARE);
    if (!right_mixed) to = vmp_mid_piece_end(last);
    vmp_mid_runs_leave(mid, right);
  }
  if (left_mixed || right_mixed) vmp_mid_add_mixed(mid, arena, from, to);
  if (vmp_mid_are_alike(piece, right_piece)) {
    join_pieces(mid, arena, index, piece, right, right_piece);
    if (tail == right) tail = index;
  }
  if (vmp_mid_are_alike(left_piece, piece)) {
    join_pieces(mid, arena, left, left_piece, index, piece);
    if (tail == index) tail = left;
  }
  vmp_mid_runs_enter(mid, head, tail);
}

void vmp_mid_give_back(vmp_mid *mid, uint32_t index, vmp_fence fence, bool mapped) {
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  vmp_mid_piece *left = vmp_mid_piece_at(mid, piece->prev), *right = vmp_mid_piece_at(mid, piece->next);
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, piece->offset);
  mid->blocks--;
  mid->block_bytes -= piece->bytes;
  mid->extents += 1;
  mid->extents -= (vmp_mid_piece_is_free(left) ? 1u : 0u) + (vmp_mid_piece_is_free(right) ? 1u : 0u);
  piece->fence = fence;
  if (mapped) {
    give_back_mapped(mid, arena, index, piece, left, right);
  } else {
    give_back_bare(mid, arena, index);
  }
}
