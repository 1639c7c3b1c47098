// mid_space.c: arenas and what they are cut into: pieces, extents, runs.
//
// Owns: every change to them. Does not own the choice of a place (mid_place.c).
//
// Cutting takes what it may need from the node pools first, so that it is done or not done. Giving back uses the
// block's own node and the two range nodes that were promised when it was cut.
#include <string.h>

#include "pool/mid_internal.h"
#include "vmm/memory.h"

// A whole arena is looked at for this many parts before it goes back; more than that and it stays for now.
#define SETTLED_PARTS 64u

static uint64_t arena_end(const vmp_mid_arena *arena) { return arena->offset + arena->bytes; }

vmp_mid_arena *vmp_mid_arena_of(const vmp_mid *mid, uint64_t offset) {
  size_t low = 0, high = mid->num_arenas;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    vmp_mid_arena *arena = mid->arenas[middle];
    if (offset < arena->offset) {
      high = middle;
    } else if (offset - arena->offset < arena->bytes) {
      return arena;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

// ---- pieces ----
static void unlink_piece(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index) {
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  if (piece->prev == 0) {
    arena->first = piece->next;
  } else {
    vmp_mid_piece_at(mid, piece->prev)->next = piece->next;
  }
  if (piece->next != 0) vmp_mid_piece_at(mid, piece->next)->prev = piece->prev;
  vmp_node_give(&mid->pieces, index);
}

// split makes two parts of one at offset `at`, inside it, and returns the right one. The smaller half gets the new
// node: the index then changes for the smaller half only.
static uint32_t split(vmp_mid *mid, vmp_mid_arena *arena, uint32_t index, uint64_t at) {
  uint32_t other_index = vmp_node_take(&mid->pieces);
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  vmp_mid_piece *other = vmp_mid_piece_at(mid, other_index);
  uint64_t from = piece->offset, to = vmp_mid_piece_end(piece);
  *other = *piece;
  if (at - from < to - at) {
    vmp_mid_index_end_start(mid, arena, index);
    other->bytes = at - from;
    other->next = index;
    if (other->prev == 0) {
      arena->first = other_index;
    } else {
      vmp_mid_piece_at(mid, other->prev)->next = other_index;
    }
    piece->offset = at;
    piece->bytes = to - at;
    piece->prev = other_index;
    vmp_mid_index_start(mid, arena, index);
    vmp_mid_index_start(mid, arena, other_index);
    vmp_mid_index_cover(arena, from, at, other_index);
    return index;
  }
  other->offset = at;
  other->bytes = to - at;
  other->prev = index;
  if (other->next != 0) vmp_mid_piece_at(mid, other->next)->prev = other_index;
  piece->bytes = at - from;
  piece->next = other_index;
  vmp_mid_index_start(mid, arena, other_index);
  vmp_mid_index_cover(arena, at, to, other_index);
  return other_index;
}

// join makes one part of two neighbours, with the merged fence, and returns it. The larger one's node stays.
static uint32_t join(vmp_mid *mid, vmp_mid_arena *arena, uint32_t left_index, uint32_t right_index) {
  vmp_mid_piece *left = vmp_mid_piece_at(mid, left_index);
  vmp_mid_piece *right = vmp_mid_piece_at(mid, right_index);
  vmp_fence fence = vmp_fence_merge(left->fence, right->fence);
  if (left->bytes >= right->bytes) {
    vmp_mid_index_end_start(mid, arena, right_index);
    vmp_mid_index_cover(arena, right->offset, vmp_mid_piece_end(right), left_index);
    left->bytes += right->bytes;
    left->fence = fence;
    unlink_piece(mid, arena, right_index);
    return left_index;
  }
  vmp_mid_index_end_start(mid, arena, left_index);
  vmp_mid_index_end_start(mid, arena, right_index);
  vmp_mid_index_cover(arena, left->offset, right->offset, right_index);
  right->offset = left->offset;
  right->bytes += left->bytes;
  right->fence = fence;
  unlink_piece(mid, arena, left_index);
  vmp_mid_index_start(mid, arena, right_index);
  return right_index;
}

// may_join: both are free and the same streams may touch them, so that nobody waits for more than now.
static bool may_join(const vmp_mid *mid, uint32_t left_index, uint32_t right_index) {
  if (left_index == 0 || right_index == 0) return false;
  const vmp_mid_piece *left = vmp_mid_piece_at(mid, left_index);
  const vmp_mid_piece *right = vmp_mid_piece_at(mid, right_index);
  return left->kind == VMP_MID_PART && right->kind == VMP_MID_PART && left->fence.streams == right->fence.streams;
}

void vmp_mid_fences(const vmp_mid *mid, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_fence *out_fence,
                    vmp_fence *out_after) {
  uint64_t end = offset + bytes;
  uint32_t index = vmp_mid_index_find(mid, vmp_mid_arena_of(mid, offset), offset);
  *out_fence = VMP_FENCE_NONE;
  *out_after = VMP_FENCE_NONE;
  for (;;) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    if (!vmp_fence_is_none(part->fence)) {
      *out_fence = vmp_fence_merge(*out_fence, part->fence);
      *out_after = vmp_fence_merge(*out_after, mid->ops.others(mid->ops.self, part->fence, stream));
    }
    if (vmp_mid_piece_end(part) >= end) return;
    index = part->next;
  }
}

void vmp_mid_settle(vmp_mid *mid, uint64_t offset, uint64_t end, unsigned limit) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  uint32_t index = vmp_mid_index_find(mid, arena, offset);
  while (index != 0 && limit-- > 0) {
    vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    if (part->kind != VMP_MID_PART || part->offset >= end) return;
    if (!vmp_fence_is_none(part->fence) && mid->ops.known_complete(mid->ops.self, part->fence)) {
      part->fence = VMP_FENCE_NONE;
    }
    if (may_join(mid, part->prev, index)) index = join(mid, arena, part->prev, index);
    if (may_join(mid, index, vmp_mid_piece_at(mid, index)->next)) {
      index = join(mid, arena, index, vmp_mid_piece_at(mid, index)->next);
    }
    index = vmp_mid_piece_at(mid, index)->next;
  }
}

// ---- runs ----
// index_runs adds the mapped parts of the free range [from, to), of which no run is known. Without a node for one the
// runs are stale.
static void index_runs(vmp_mid *mid, const vmp_mid_arena *arena, uint64_t from, uint64_t to, bool may_allocate) {
  while (from < to) {
    uint64_t end = to;
    if (mid->ops.run(mid->ops.self, from, to, &end) == VMP_RUN_MAPPED) {
      bool room = may_allocate ? vmp_node_pool_reserve(&mid->ranges, 1) : vmp_node_pool_unpromised(&mid->ranges) > 0;
      if (!room) {
        mid->stale = true;
        return;
      }
      vmp_ranges_add(&mid->runs, from, end - from, arena->offset, arena_end(arena));
    }
    from = end;
  }
}

static void refresh_in(vmp_mid *mid, const vmp_mid_arena *arena, uint64_t from, uint64_t to) {
  uint32_t index = vmp_ranges_find(&mid->extents, from);
  if (index == 0) index = vmp_ranges_after(&mid->extents, from);
  while (index != 0) {
    const vmp_range *extent = vmp_range_at(&mid->extents, index);
    if (extent->offset >= to) return;
    uint64_t low = extent->offset > from ? extent->offset : from;
    uint64_t high = vmp_range_end(extent) < to ? vmp_range_end(extent) : to;
    if (!vmp_node_pool_reserve(&mid->ranges, 1)) {
      mid->stale = true;
      return;
    }
    vmp_ranges_remove(&mid->runs, low, high - low);
    index_runs(mid, arena, low, high, true);
    if (mid->stale) return;
    index = vmp_ranges_after(&mid->extents, high);
  }
}

void vmp_mid_refresh(vmp_mid *mid, uint64_t offset, uint64_t end) {
  uint64_t from = vmp_align_down(offset, mid->ops.granule_bytes), to;
  if (!vmp_align_up(end, mid->ops.granule_bytes, &to)) to = UINT64_MAX;
  for (size_t i = 0; i < mid->num_arenas && !mid->stale; i++) {
    const vmp_mid_arena *arena = mid->arenas[i];
    uint64_t low = arena->offset > from ? arena->offset : from;
    uint64_t high = arena_end(arena) < to ? arena_end(arena) : to;
    if (low < high) refresh_in(mid, arena, low, high);
  }
}

// ---- arenas ----
static void free_arena(vmp_mid *mid, vmp_mid_arena *arena) {
  vmp_mid_index_free(mid, arena);
  vmp_mem_free(arena);
}

void vmp_mid_free_arenas(vmp_mid *mid) {
  for (size_t i = 0; i < mid->num_arenas; i++) free_arena(mid, mid->arenas[i]);
  vmp_mem_free(mid->arenas);
}

// make_arena allocates everything that an arena at [offset, offset + bytes) needs. NULL: host memory.
static vmp_mid_arena *make_arena(vmp_mid *mid, uint64_t offset, uint64_t bytes) {
  if (mid->num_arenas == mid->arenas_capacity) {
    size_t capacity = mid->arenas_capacity == 0 ? 4 : 2 * mid->arenas_capacity;
    vmp_mid_arena **arenas = vmp_mem_resize(mid->arenas, mid->num_arenas, capacity, sizeof(vmp_mid_arena *));
    if (arenas == NULL) return NULL;
    mid->arenas = arenas;
    mid->arenas_capacity = capacity;
  }
  if (!vmp_node_pool_reserve(&mid->pieces, 1) || !vmp_node_pool_reserve(&mid->ranges, 1)) return NULL;
  vmp_mid_arena *arena = vmp_mem_calloc(1, sizeof *arena);
  if (arena == NULL) return NULL;
  arena->offset = offset;
  arena->bytes = bytes;
  size_t sectors = (size_t)(((offset + bytes - 1) >> VMP_MID_SECTOR_LOG2) - (offset >> VMP_MID_SECTOR_LOG2)) + 1;
  arena->sectors = vmp_mem_calloc(sectors, sizeof *arena->sectors);
  if (arena->sectors == NULL) {
    vmp_mem_free(arena);
    return NULL;
  }
  arena->num_sectors = sectors;
  mid->index_bytes += sectors * sizeof *arena->sectors;
  if (!vmp_mid_index_prepare(mid, arena, offset)) {
    free_arena(mid, arena);
    return NULL;
  }
  return arena;
}

// enter_arena makes the arena one free part. Can't fail.
static void enter_arena(vmp_mid *mid, vmp_mid_arena *arena, vmp_fence fence) {
  size_t at = mid->num_arenas;
  while (at > 0 && mid->arenas[at - 1]->offset > arena->offset) at--;
  memmove(&mid->arenas[at + 1], &mid->arenas[at], (mid->num_arenas - at) * sizeof(vmp_mid_arena *));
  mid->arenas[at] = arena;
  mid->num_arenas++;
  mid->arena_bytes += arena->bytes;
  arena->first = vmp_node_take(&mid->pieces);
  vmp_mid_piece *part = vmp_mid_piece_at(mid, arena->first);
  part->offset = arena->offset;
  part->bytes = arena->bytes;
  part->kind = VMP_MID_PART;
  part->fence = fence;
  vmp_mid_index_start(mid, arena, arena->first);
  vmp_mid_index_cover(arena, arena->offset, arena_end(arena), arena->first);
  vmp_ranges_add(&mid->extents, arena->offset, arena->bytes, arena->offset, arena_end(arena));
  vmp_mid_refresh(mid, arena->offset, arena_end(arena));
}

vmp_status vmp_mid_add_arena(vmp_mid *mid, const vmp_request *request, vmp_mid_arena **out_arena) {
  uint64_t least, alignment = mid->ops.granule_bytes;
  if (alignment < mid->options.chunk_max_bytes) alignment = mid->options.chunk_max_bytes;
  if (alignment < request->alignment) alignment = request->alignment;
  if (!vmp_align_up(request->bytes, mid->ops.granule_bytes, &least)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "a block of %llu bytes is larger than any address space",
                    (unsigned long long)request->bytes);
  }
  uint64_t wanted = mid->options.arena_bytes > least ? mid->options.arena_bytes : least;
  uint64_t offset = 0, bytes = 0;
  vmp_fence fence = VMP_FENCE_NONE;
  vmp_status status = mid->supply.take(mid->supply.self, wanted, alignment, &offset, &bytes, &fence);
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE && wanted > least) {
    status = mid->supply.take(mid->supply.self, least, alignment, &offset, &bytes, &fence);
  }
  if (status != VMP_OK) return status;
  vmp_mid_arena *arena = make_arena(mid, offset, bytes);
  if (arena == NULL) {
    mid->supply.give(mid->supply.self, offset, fence);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of an arena of %llu bytes",
                    (unsigned long long)bytes);
  }
  enter_arena(mid, arena, fence);
  *out_arena = arena;
  return VMP_OK;
}

// is_idle: nothing of the arena is used, mapped, blocked or waited for.
static bool is_idle(vmp_mid *mid, vmp_mid_arena *arena) {
  uint32_t extent = vmp_ranges_find(&mid->extents, arena->offset);
  if (extent == 0 || vmp_range_at(&mid->extents, extent)->size != arena->bytes) return false;
  uint64_t end = arena->offset;
  if (mid->ops.run(mid->ops.self, arena->offset, arena_end(arena), &end) != VMP_RUN_UNMAPPED) return false;
  if (end < arena_end(arena)) return false;
  vmp_mid_settle(mid, arena->offset, arena_end(arena), SETTLED_PARTS);
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, arena->first);
  return part->next == 0 && vmp_fence_is_none(part->fence);
}

// give_idle_arenas keeps at least one arena.
static void give_idle_arenas(vmp_mid *mid) {
  for (size_t i = mid->num_arenas; i-- > 0 && mid->num_arenas > 1;) {
    vmp_mid_arena *arena = mid->arenas[i];
    if (!is_idle(mid, arena)) continue;
    vmp_ranges_remove(&mid->extents, arena->offset, arena->bytes);
    vmp_ranges_remove(&mid->runs, arena->offset, arena->bytes);
    vmp_node_give(&mid->pieces, arena->first);
    mid->num_arenas--;
    memmove(&mid->arenas[i], &mid->arenas[i + 1], (mid->num_arenas - i) * sizeof(vmp_mid_arena *));
    mid->arena_bytes -= arena->bytes;
    uint64_t offset = arena->offset;
    free_arena(mid, arena);
    mid->supply.give(mid->supply.self, offset, VMP_FENCE_NONE);
  }
}

void vmp_mid_catch_up(vmp_mid *mid) {
  bool everything = mid->stale, changed = mid->stale;
  uint64_t offset, bytes;
  mid->stale = false;
  while (mid->ops.next_change(mid->ops.self, &mid->cursor, &offset, &bytes)) {
    changed = true;
    if (!everything) vmp_mid_refresh(mid, offset, offset + bytes);
  }
  if (everything) {
    mid->stale = false;
    vmp_mid_refresh(mid, 0, UINT64_MAX);
  }
  if (changed) give_idle_arenas(mid);
}

// ---- blocks ----
// cut_piece makes [offset, end) one part of its own, whose fence is that of all parts there, and returns it.
static uint32_t cut_piece(vmp_mid *mid, vmp_mid_arena *arena, uint64_t offset, uint64_t end) {
  uint32_t index = vmp_mid_index_find(mid, arena, offset);
  if (vmp_mid_piece_at(mid, index)->offset < offset) index = split(mid, arena, index, offset);
  bool several = vmp_mid_piece_end(vmp_mid_piece_at(mid, index)) < end;
  if (several) index = vmp_mid_index_find(mid, arena, end - 1);
  if (vmp_mid_piece_end(vmp_mid_piece_at(mid, index)) > end) {
    index = vmp_mid_piece_at(mid, split(mid, arena, index, end))->prev;
  }
  while (vmp_mid_piece_at(mid, index)->offset > offset) {
    index = join(mid, arena, vmp_mid_piece_at(mid, index)->prev, index);
  }
  return index;
}

vmp_status vmp_mid_cut(vmp_mid *mid, const vmp_mid_place *place, uint64_t bytes, void *owner, uint32_t *out_piece,
                       vmp_fence *out_fence) {
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, place->offset);
  uint64_t offset = place->offset, end = offset + bytes;
  if (!vmp_node_pool_reserve(&mid->pieces, 2) || !vmp_node_pool_reserve(&mid->ranges, 2 + VMP_MID_PROMISED_RANGES) ||
      !vmp_mid_index_prepare(mid, arena, offset) ||
      (end < arena_end(arena) && !vmp_mid_index_prepare(mid, arena, end))) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the bookkeeping of a block of %llu bytes",
                    (unsigned long long)bytes);
  }
  uint32_t index = cut_piece(mid, arena, offset, end);
  vmp_ranges_take(&mid->extents, vmp_ranges_find(&mid->extents, offset), offset, bytes);
  if (place->run != 0) {
    vmp_ranges_take(&mid->runs, place->run, offset, bytes);
  } else {
    vmp_ranges_remove(&mid->runs, offset, bytes);
  }
  mid->ranges.promised += VMP_MID_PROMISED_RANGES;
  mid->blocks++;
  mid->block_bytes += bytes;
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  *out_fence = piece->fence;
  *out_piece = index;
  piece->kind = VMP_MID_USED;
  piece->owner = owner;
  return VMP_OK;
}

void vmp_mid_give_back(vmp_mid *mid, uint32_t index, vmp_fence fence) {
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  vmp_mid_arena *arena = vmp_mid_arena_of(mid, piece->offset);
  uint64_t offset = piece->offset, end = vmp_mid_piece_end(piece);
  mid->ranges.promised -= VMP_MID_PROMISED_RANGES;
  mid->blocks--;
  mid->block_bytes -= piece->bytes;
  piece->kind = VMP_MID_PART;
  piece->fence = fence;
  vmp_ranges_add(&mid->extents, offset, end - offset, arena->offset, arena_end(arena));
  index_runs(mid, arena, offset, end, false);
  if (may_join(mid, piece->prev, index)) index = join(mid, arena, piece->prev, index);
  uint32_t next = vmp_mid_piece_at(mid, index)->next;
  if (may_join(mid, index, next)) (void)join(mid, arena, index, next);
}
