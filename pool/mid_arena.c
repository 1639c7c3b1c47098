// mid_arena.c: arenas, and catching up with what the mapping has become.
//
// Owns: the list of arenas; which free parts are mapped, and which extents are mixed, after a change of the mapping.
// Does not own cutting and giving back (mid_space.c).
//
// A refresh of a range takes the runs that touch it apart, makes every free part there what the mapping says (cutting
// parts at the borders of slots that changed), and puts the runs and the mixed extents together again.
#include <string.h>

#include "pool/mid_internal.h"
#include "vmm/memory.h"

// A whole arena is looked at for this many parts before it goes back; more than that and it stays for now.
#define SETTLED_PARTS 64u

#define MANY_SLOTS 256u  // in a longer range most of the free parts are as they were

vmp_mid_arena *vmp_mid_arena_search(const vmp_mid *mid, uint64_t offset) {
  size_t low = 0, high = mid->num_arenas;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    vmp_mid_arena *arena = mid->arenas[middle];
    if (offset - arena->offset < arena->bytes) return arena;
    if (offset < arena->offset) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return NULL;
}

// ---- catching up ----
typedef struct refresh {
  vmp_mid *mid;
  vmp_mid_arena *arena;
  uint64_t from, to;  // whole slots, or ends of the arena or of what is free
  bool may_allocate;
} refresh;

static bool reserve(const refresh *r, vmp_node_pool *pool, uint32_t nodes) {
  if (r->may_allocate ? vmp_node_pool_reserve(pool, nodes) : vmp_node_pool_unpromised(pool) >= nodes) return true;
  r->mid->stale = true;
  return false;
}

static vmp_mid_kind kind_at(const vmp_mid *mid, uint64_t from, uint64_t to, uint64_t *out_end) {
  *out_end = to;
  return mid->ops.run(mid->ops.self, from, to, out_end) == VMP_RUN_MAPPED ? VMP_MID_MAPPED : VMP_MID_BARE;
}

// is_up_to_date: every free part of the range is what the mapping says; `index` is the first piece of it.
static bool is_up_to_date(const refresh *r, uint32_t index) {
  for (const vmp_mid_piece *piece; index != 0; index = piece->next) {
    piece = vmp_mid_piece_at(r->mid, index);
    if (piece->offset >= r->to) return true;
    if (piece->kind == VMP_MID_USED) continue;
    uint64_t at = piece->offset > r->from ? piece->offset : r->from;
    uint64_t end = vmp_mid_piece_end(piece) < r->to ? vmp_mid_piece_end(piece) : r->to;
    while (at < end) {
      if (kind_at(r->mid, at, end, &at) != (vmp_mid_kind)piece->kind) return false;
    }
  }
  return true;
}

// leave_runs forgets every run that touches the range. Returns a piece before all of them (or the first of them) that
// stays where it is: nothing before it is going to change.
static uint32_t leave_runs(const refresh *r, uint32_t index) {
  vmp_mid *mid = r->mid;
  uint32_t begin = index;
  if (vmp_mid_is_free(mid, index)) {
    uint32_t before = vmp_mid_piece_at(mid, index)->prev;
    if (vmp_mid_is(mid, index, VMP_MID_MAPPED)) {
      begin = vmp_mid_run_head(mid, index);
    } else if (vmp_mid_is(mid, before, VMP_MID_MAPPED)) {
      begin = vmp_mid_run_head(mid, before);
    }
    before = vmp_mid_piece_at(mid, begin)->prev;
    if (before != 0) begin = before;  // used or bare
  }
  for (uint32_t at = begin; at != 0 && vmp_mid_piece_at(mid, at)->offset <= r->to;
       at = vmp_mid_piece_at(mid, at)->next) {
    if (vmp_mid_is_head(mid, at)) vmp_mid_runs_leave(mid, at);
  }
  return begin;
}

// set_kind makes [from, end) of a part another kind; the part is in no run. Returns the part for it, 0 without nodes.
static uint32_t set_kind(const refresh *r, uint32_t index, uint64_t from, uint64_t end, vmp_mid_kind kind) {
  vmp_mid *mid = r->mid;
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
  uint32_t nodes = (from > part->offset ? 1u : 0u) + (end < vmp_mid_piece_end(part) ? 1u : 0u);
  if (mid->pieces.touched > VMP_MID_MAX_PIECES - nodes || !reserve(r, &mid->pieces, nodes)) {
    mid->stale = true;
    return 0;
  }
  if (r->may_allocate && (!vmp_mid_index_prepare(mid, r->arena, from) ||
                          (end < vmp_mid_arena_end(r->arena) && !vmp_mid_index_prepare(mid, r->arena, end)))) {
    mid->stale = true;
    return 0;
  }
  if ((from > part->offset && !vmp_mid_index_is_prepared(r->arena, from)) ||
      (end < vmp_mid_piece_end(part) && !vmp_mid_index_is_prepared(r->arena, end))) {
    mid->stale = true;
    return 0;
  }
  if (from > part->offset) index = vmp_mid_split(mid, r->arena, index, from);
  if (end < vmp_mid_piece_end(vmp_mid_piece_at(mid, index))) (void)vmp_mid_split(mid, r->arena, index, end);
  vmp_mid_piece_at(mid, index)->kind = (uint16_t)kind;
  return index;
}

// set_kinds makes the free parts of the range what the mapping says.
static void set_kinds(const refresh *r, uint32_t index) {
  const vmp_mid *mid = r->mid;
  uint64_t at = r->from;
  while (index != 0 && at < r->to) {
    const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
    if (at < piece->offset) at = piece->offset;
    uint64_t end = vmp_mid_piece_end(piece) < r->to ? vmp_mid_piece_end(piece) : r->to;
    if (piece->kind != VMP_MID_USED && at < end) {
      vmp_mid_kind kind = kind_at(mid, at, end, &end);
      if (kind != (vmp_mid_kind)piece->kind) {
        index = set_kind(r, index, at, end, kind);
        if (index == 0) return;
      }
    }
    at = end;
    if (vmp_mid_piece_end(vmp_mid_piece_at(mid, index)) <= at) index = vmp_mid_piece_at(mid, index)->next;
  }
}

// join_parts joins what is alike now.
static void join_parts(const refresh *r, uint32_t begin) {
  vmp_mid *mid = r->mid;
  for (uint32_t at = begin; at != 0 && vmp_mid_piece_at(mid, at)->offset <= r->to;) {
    uint32_t next = vmp_mid_piece_at(mid, at)->next;
    if (vmp_mid_may_join(mid, at, next)) {
      vmp_mid_join(mid, r->arena, at, next);
    } else {
      at = next;
    }
  }
}

static void enter_runs(const refresh *r, uint32_t begin) {
  vmp_mid *mid = r->mid;
  for (uint32_t at = begin; at != 0 && vmp_mid_piece_at(mid, at)->offset <= r->to;
       at = vmp_mid_piece_at(mid, at)->next) {
    if (!vmp_mid_is(mid, at, VMP_MID_MAPPED)) continue;
    uint32_t tail = at;
    while (vmp_mid_is(mid, vmp_mid_piece_at(mid, tail)->next, VMP_MID_MAPPED)) tail = vmp_mid_piece_at(mid, tail)->next;
    vmp_mid_runs_enter(mid, at, tail);
    at = tail;
  }
}

// note_extent brings the set of mixed extents up to date for the free pieces first..last; what lies beyond them, if it
// is free, is as it was. Returns false without nodes.
static bool note_extent(const refresh *r, uint32_t first, uint32_t last, bool bare) {
  vmp_mid *mid = r->mid;
  uint64_t from = vmp_mid_piece_at(mid, first)->offset, to = vmp_mid_piece_end(vmp_mid_piece_at(mid, last));
  bare = bare || vmp_mid_is(mid, vmp_mid_piece_at(mid, first)->prev, VMP_MID_BARE) ||
         vmp_mid_is(mid, vmp_mid_piece_at(mid, last)->next, VMP_MID_BARE);
  if (bare && !reserve(r, &mid->ranges, 2)) return false;
  vmp_ranges_remove(&mid->mixed, from, to - from);
  if (bare) vmp_mid_add_mixed(mid, r->arena, from, to);
  return true;
}

static void note_extents(const refresh *r, uint32_t begin) {
  const vmp_mid *mid = r->mid;
  for (uint32_t at = begin; at != 0 && vmp_mid_piece_at(mid, at)->offset <= r->to;
       at = vmp_mid_piece_at(mid, at)->next) {
    if (!vmp_mid_is_free(mid, at)) continue;
    uint32_t first = at;
    bool bare = vmp_mid_is(mid, at, VMP_MID_BARE);
    for (;;) {
      uint32_t next = vmp_mid_piece_at(mid, at)->next;
      bool here = next != 0 && vmp_mid_piece_at(mid, next)->offset <= r->to;
      if (!vmp_mid_is_free(mid, next) || (!here && !vmp_mid_is(mid, next, VMP_MID_MAPPED))) break;
      bare = bare || vmp_mid_is(mid, next, VMP_MID_BARE);
      at = next;
    }
    if (!note_extent(r, first, at, bare)) return;
  }
}

static void refresh_in(const refresh *r, bool everything) {
  uint32_t index = vmp_mid_index_find(r->mid, r->arena, r->from);
  if (!everything && is_up_to_date(r, index)) return;
  uint32_t begin = leave_runs(r, index);
  set_kinds(r, index);
  join_parts(r, begin);
  enter_runs(r, begin);
  note_extents(r, begin);
}

// refresh_stretches does it for each free stretch by itself, so that those that are up to date stay as they are.
static void refresh_stretches(const refresh *whole) {
  const vmp_mid *mid = whole->mid;
  uint32_t index = vmp_mid_index_find(mid, whole->arena, whole->from);
  while (index != 0 && vmp_mid_piece_at(mid, index)->offset < whole->to) {
    if (!vmp_mid_is_free(mid, index)) {
      index = vmp_mid_piece_at(mid, index)->next;
      continue;
    }
    refresh r = *whole;
    if (r.from < vmp_mid_piece_at(mid, index)->offset) r.from = vmp_mid_piece_at(mid, index)->offset;
    while (vmp_mid_is_free(mid, vmp_mid_piece_at(mid, index)->next)) index = vmp_mid_piece_at(mid, index)->next;
    uint64_t end = vmp_mid_piece_end(vmp_mid_piece_at(mid, index));
    if (end < r.to) r.to = end;
    refresh_in(&r, false);
    if (r.to == whole->to) return;
    index = vmp_mid_index_find(mid, r.arena, r.to);
  }
}

static void refresh_range(vmp_mid *mid, uint64_t offset, uint64_t end, bool may_allocate, bool everything) {
  uint64_t from = vmp_align_down(offset, mid->ops.granule_bytes), to;
  if (!vmp_align_up(end, mid->ops.granule_bytes, &to)) to = UINT64_MAX;
  for (size_t i = 0; i < mid->num_arenas; i++) {
    vmp_mid_arena *arena = mid->arenas[i];
    refresh r = {.mid = mid, .arena = arena, .may_allocate = may_allocate};
    r.from = arena->offset > from ? arena->offset : from;
    r.to = vmp_mid_arena_end(arena) < to ? vmp_mid_arena_end(arena) : to;
    if (r.from >= r.to) continue;
    if (everything || r.to - r.from < MANY_SLOTS * mid->ops.granule_bytes) {
      refresh_in(&r, everything);
    } else {
      refresh_stretches(&r);
    }
  }
}

void vmp_mid_refresh(vmp_mid *mid, uint64_t offset, uint64_t end, bool may_allocate) {
  refresh_range(mid, offset, end, may_allocate, false);
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
  if (mid->pieces.touched >= VMP_MID_MAX_PIECES || !vmp_node_pool_reserve(&mid->pieces, 1) ||
      !vmp_node_pool_reserve(&mid->ranges, 1)) {
    return NULL;
  }
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
  arena->first_sector = offset >> VMP_MID_SECTOR_LOG2;
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
  *part = (vmp_mid_piece){.offset = arena->offset, .bytes = arena->bytes, .kind = VMP_MID_BARE, .fence = fence};
  vmp_mid_index_start(mid, arena, arena->first);
  vmp_mid_index_set_cover(arena, arena->offset, vmp_mid_arena_end(arena), arena->first);
  mid->extents++;
  vmp_mid_add_mixed(mid, arena, arena->offset, vmp_mid_arena_end(arena));
  vmp_mid_refresh(mid, arena->offset, vmp_mid_arena_end(arena), true);
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
  uint32_t extent = vmp_ranges_find(&mid->mixed, arena->offset);
  if (extent == 0 || vmp_range_at(&mid->mixed, extent)->size != arena->bytes) return false;
  uint64_t end = arena->offset;
  if (mid->ops.run(mid->ops.self, arena->offset, vmp_mid_arena_end(arena), &end) != VMP_RUN_UNMAPPED) return false;
  if (end < vmp_mid_arena_end(arena)) return false;
  vmp_mid_settle(mid, arena->offset, vmp_mid_arena_end(arena), SETTLED_PARTS);
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, arena->first);
  return part->next == 0 && part->kind == VMP_MID_BARE && vmp_fence_is_none(part->fence);
}

// give_idle_arenas keeps at least one arena.
static void give_idle_arenas(vmp_mid *mid) {
  for (size_t i = mid->num_arenas; i-- > 0 && mid->num_arenas > 1;) {
    vmp_mid_arena *arena = mid->arenas[i];
    if (!is_idle(mid, arena)) continue;
    vmp_ranges_remove(&mid->mixed, arena->offset, arena->bytes);
    mid->extents--;
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
    if (!everything) vmp_mid_refresh(mid, offset, offset + bytes, true);
  }
  if (everything) {
    mid->stale = false;
    refresh_range(mid, 0, UINT64_MAX, true, true);
  }
  if (changed) give_idle_arenas(mid);
}
