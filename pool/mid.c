// mid.c: mid's public functions. See mid.h for what mid is and mid_internal.h for its parts.
//
// Allocation is plan, cut, claim: a place is chosen, cut out of the free space (so that nobody else takes it while the
// claim has let go of the lock), and claimed; if the claim fails, it is given back as it was.
#include "pool/mid.h"

#include <string.h>

#include "pool/fresh_place.h"
#include "pool/mid_internal.h"
#include "vmm/memory.h"

// Of the addresses that a process has left, where they are limited, the records of pieces take at most one in so many.
#define MOST_SHARE 8u
#define FEW_SHARE 256u

vmp_status vmp_mid_create(vmp_mid **out_mid, const vmp_backing_ops *ops, const vmp_mid_supply *supply,
                          const vmp_mid_options *options) {
  uint64_t chunk_max = options->chunk_max_bytes == 0 ? ops->granule_bytes : options->chunk_max_bytes;
  if (!vmp_is_power_of_two(ops->granule_bytes) || ops->granule_bytes < VMP_MID_STEP_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the granule is %llu bytes; it must be a power of two, at least %llu",
                    (unsigned long long)ops->granule_bytes, (unsigned long long)VMP_MID_STEP_BYTES);
  }
  if (!vmp_is_power_of_two(chunk_max) || chunk_max < ops->granule_bytes || chunk_max > VMP_OFFSET_CONGRUENCE) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "the largest chunk is %llu bytes; it must be a power of two, at least the granule",
                    (unsigned long long)chunk_max);
  }
  uint64_t arena_bytes;
  if (!vmp_align_up(options->arena_bytes, ops->granule_bytes, &arena_bytes)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "an arena of %llu bytes is larger than any address space",
                    (unsigned long long)options->arena_bytes);
  }
  vmp_mid *mid = vmp_mem_calloc(1, sizeof *mid);
  if (mid == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the mid layer");
  mid->ops = *ops;
  mid->granule_log2 = vmp_log2(ops->granule_bytes);
  mid->supply = *supply;
  mid->options = *options;
  mid->options.chunk_max_bytes = chunk_max;
  mid->options.arena_bytes = arena_bytes;
  uint32_t most = options->few ? VMP_MID_FEW_PIECES : VMP_MID_MAX_PIECES + 1;
  vmp_node_pool_init_row(&mid->pieces, sizeof(vmp_mid_piece), most, options->few ? FEW_SHARE : MOST_SHARE);
  vmp_node_pool_init(&mid->ranges, sizeof(vmp_range));
  vmp_node_pool_init(&mid->edges.nodes, sizeof(vmp_tree_node));
  vmp_ranges_init(&mid->mixed, &mid->ranges);
  *out_mid = mid;
  return VMP_OK;
}

void vmp_mid_destroy(vmp_mid *mid) {
  if (mid == NULL) return;
  vmp_mid_free_arenas(mid);
  vmp_node_pool_finish(&mid->pieces);
  vmp_node_pool_finish(&mid->ranges);
  vmp_node_pool_finish(&mid->edges.nodes);
  vmp_mid_index_finish(mid);
  vmp_mem_free(mid);
}

// ---- allocate ----
static vmp_status check_request(const vmp_request *request) {
  if (request->bytes == 0 || request->bytes % VMP_MID_STEP_BYTES != 0) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "mid was asked for %llu bytes; it serves multiples of %llu",
                    (unsigned long long)request->bytes, (unsigned long long)VMP_MID_STEP_BYTES);
  }
  if (!vmp_is_power_of_two(request->alignment) || request->alignment > VMP_OFFSET_CONGRUENCE) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the alignment is %llu; it must be a power of two, at most %llu",
                    (unsigned long long)request->alignment, (unsigned long long)VMP_OFFSET_CONGRUENCE);
  }
  return VMP_OK;
}

// find_unmapped_place: where the block goes when no mapped place fits.
static vmp_status find_unmapped_place(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place) {
  if (request->effort == VMP_EFFORT_MAPPED) {
    return vmp_fail(VMP_ERROR_BUSY, "no mapped free place of %llu bytes; mapping was not allowed",
                    (unsigned long long)request->bytes);
  }
  bool blocked;
  if (vmp_mid_place_growing(mid, request, out_place, &blocked)) return VMP_OK;
  if (request->wait == VMP_WAIT_NEVER && blocked) {  // a wholly unmapped place never has to wait
    return vmp_mid_place_fresh(mid, request, out_place) ? VMP_OK : VMP_ERROR_BUSY;
  }
  vmp_mid_arena *arena;
  vmp_status status = vmp_mid_add_arena(mid, request, &arena);
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE && blocked) {
    return vmp_fail(VMP_ERROR_BUSY, "every free place of %llu bytes has slots whose old mapping is still in use",
                    (unsigned long long)request->bytes);
  }
  if (status != VMP_OK) return status;
  // The arena may hold mapped memory (what was mapped at creation). If every place found is blocked, its beginning is
  // as good as any.
  if (!vmp_mid_place_mapped(mid, request, out_place) && !vmp_mid_place_growing(mid, request, out_place, &blocked)) {
    if (request->wait == VMP_WAIT_NEVER) return VMP_ERROR_BUSY;
    *out_place = vmp_mid_place_in(mid, request, arena);
  }
  return VMP_OK;
}

// take_place cuts the block out and claims it. MAY UNLOCK.
static vmp_status take_place(vmp_mid *mid, const vmp_request *request, void *owner, const vmp_mid_place *place,
                             vmp_placed *out_placed) {
  uint32_t piece;
  vmp_fence parts_fence, moved = VMP_FENCE_NONE;
  uint64_t offset = place->offset, end = place->offset + request->bytes;
  vmp_status status = vmp_mid_cut(mid, place, request->bytes, owner, &piece, &parts_fence);
  if (status != VMP_OK) return status;
  status = mid->ops.claim(mid->ops.self, offset, request->bytes, request->stream, request->effort, &moved);
  if (status != VMP_OK) {
    vmp_mid_give_back(mid, piece, parts_fence, false);
    return status;
  }
  // The slots at the block's ends may hold free bytes too: they are mapped now.
  if (place->cost.slots_to_map > 0) vmp_mid_refresh(mid, offset, end, true);
  *out_placed = (vmp_placed){
      .offset = offset,
      .bytes = request->bytes,
      .after = place->after,
      .fence = place->fence,
      .word = owner == NULL ? &vmp_mid_piece_at(mid, piece)->word : NULL,
  };
  if (!vmp_fence_is_none(moved)) {
    vmp_fence others = mid->ops.others(mid->ops.self, moved, request->stream);
    out_placed->after = vmp_fence_merge(place->after, others);
    out_placed->fence = vmp_fence_merge(place->fence, moved);
  }
  return VMP_OK;
}

// take_fresh_place is for a block whose best place failed with `first_status`, which stays the truth about the request
// if there is no memory for a fresh place either. MAY UNLOCK.
static vmp_status take_fresh_place(vmp_mid *mid, const vmp_request *request, void *owner, uint64_t failed_offset,
                                   vmp_status first_status, vmp_placed *out_placed) {
  vmp_mid_place place;
  vmp_mid_catch_up(mid);
  if (!vmp_mid_place_fresh(mid, request, &place)) {
    vmp_mid_arena *arena;
    vmp_status status = vmp_mid_add_arena(mid, request, &arena);
    if (status != VMP_OK && status != VMP_ERROR_OUT_OF_ADDRESS_SPACE) return status;
    place.offset = failed_offset;
    if (status == VMP_OK) place = vmp_mid_place_in(mid, request, arena);
  }
  vmp_status status = VMP_ERROR_FRAGMENTED;
  if (place.offset != failed_offset) status = take_place(mid, request, owner, &place, out_placed);
  if (!vmp_may_be_had_elsewhere(status)) return status;
  return vmp_no_fresh_place(first_status, request->bytes);
}

// find_place: the best place, mapped or not.
static vmp_status find_place(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place) {
  if (!vmp_mid_is_up_to_date(mid)) vmp_mid_catch_up(mid);
  if (vmp_mid_place_mapped(mid, request, out_place)) return VMP_OK;
  return find_unmapped_place(mid, request, out_place);
}

vmp_status vmp_mid_alloc(vmp_mid *mid, const vmp_request *request, void *owner, vmp_placed *out_placed) {
  vmp_status status = check_request(request);
  if (status != VMP_OK) return status;
  vmp_mid_place place;
  status = find_place(mid, request, &place);
  if (status != VMP_OK) return status;
  bool edges = vmp_mid_edges_allowed(mid, request);
  uint64_t most_whole = edges ? vmp_mid_edges_wanted(mid, &place.cost) : 0;
  if (most_whole > 0) {
    status = vmp_mid_edges_alloc(mid, request, owner, most_whole, out_placed);
    if (!vmp_may_be_had_elsewhere(status)) return status;
    status = find_place(mid, request, &place);  // other threads may have been here
    if (status != VMP_OK) return status;
  }
  status = take_place(mid, request, owner, &place, out_placed);
  if (edges && most_whole == 0 && vmp_may_be_had_elsewhere(status)) {
    vmp_mid_catch_up(mid);
    vmp_error first = *vmp_last_error();
    vmp_status second = vmp_mid_edges_alloc(mid, request, owner, UINT64_MAX, out_placed);
    if (!vmp_may_be_had_elsewhere(second)) return second;
    vmp_restore_error(&first);
  }
  if (!vmp_is_worth_a_fresh_place(status, request->effort)) return status;
  return take_fresh_place(mid, request, owner, place.offset, status, out_placed);
}

bool vmp_mid_look(vmp_mid *mid, const vmp_request *request, uint64_t *out_offset, vmp_cost *out_cost) {
  if (check_request(request) != VMP_OK) return false;
  vmp_mid_catch_up(mid);
  vmp_mid_place place;
  bool blocked;
  if (!vmp_mid_place_mapped(mid, request, &place) && !vmp_mid_place_growing(mid, request, &place, &blocked)) {
    return false;
  }
  *out_offset = place.offset;
  *out_cost = place.cost;
  return !place.cost.blocked;
}

// ---- free and find ----
// used_piece: the used block that holds `offset`, or 0.
static uint32_t used_piece(const vmp_mid *mid, uint64_t offset) {
  if (mid->num_arenas == 0) return 0;
  const vmp_mid_piece *last = vmp_mid_piece_at(mid, mid->last);  // a node without a piece is of no kind
  if (last->kind == VMP_MID_USED && last->offset == offset) return mid->last;
  const vmp_mid_arena *arena = vmp_mid_arena_of(mid, offset);
  if (arena == NULL) return 0;
  uint32_t piece = vmp_mid_index_find(mid, arena, offset);
  return vmp_mid_piece_at(mid, piece)->kind == VMP_MID_USED ? piece : 0;
}

uint64_t vmp_mid_free(vmp_mid *mid, uint64_t offset, vmp_fence fence) {
  uint32_t piece = used_piece(mid, offset);
  uint64_t bytes = vmp_mid_piece_at(mid, piece)->bytes;
  bool mapped = mid->ops.release(mid->ops.self, offset, bytes, fence);
  vmp_mid_give_back(mid, piece, fence, mapped);
  return bytes;
}

bool vmp_mid_find(const vmp_mid *mid, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes, void **out_owner) {
  uint32_t index = used_piece(mid, offset);
  if (index == 0) return false;
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  if (out_start != NULL) *out_start = piece->offset;
  if (out_bytes != NULL) *out_bytes = piece->bytes;
  if (out_owner != NULL) *out_owner = piece->owner;
  return true;
}

uint64_t *vmp_mid_word(vmp_mid *mid, uint64_t offset, uint64_t *out_start, void **out_owner) {
  uint32_t index = used_piece(mid, offset);
  *out_owner = NULL;
  if (index == 0) return NULL;
  mid->last = index;
  vmp_mid_piece *piece = vmp_mid_piece_at(mid, index);
  *out_start = piece->offset;
  *out_owner = piece->owner;
  return piece->owner == NULL ? &piece->word : NULL;
}

void vmp_mid_walk_words(const vmp_mid *mid, void (*fn)(void *context, uint64_t offset, uint64_t word), void *context) {
  for (size_t i = 0; i < mid->num_arenas; i++) {
    for (uint32_t at = mid->arenas[i]->first; at != 0; at = vmp_mid_piece_at(mid, at)->next) {
      const vmp_mid_piece *piece = vmp_mid_piece_at(mid, at);
      if (piece->kind == VMP_MID_USED && piece->owner == NULL && piece->word != 0) {
        fn(context, piece->offset, piece->word);
      }
    }
  }
}

bool vmp_mid_owns(const vmp_mid *mid, uint64_t offset) { return vmp_mid_arena_of(mid, offset) != NULL; }

// ---- looking ----
void vmp_mid_get_stats(vmp_mid *mid, vmp_mid_stats *out) {
  vmp_mid_catch_up(mid);
  uint32_t largest = vmp_mid_runs_largest(mid);
  vmp_mid_span run = {0, 0};
  if (largest != 0) run = vmp_mid_run_span(mid, largest);
  uint32_t mixed = vmp_ranges_largest(&mid->mixed);
  uint64_t largest_mixed = mixed == 0 ? 0 : vmp_range_at(&mid->mixed, mixed)->size;
  *out = (vmp_mid_stats){
      .largest_extent_bytes = largest_mixed > run.to - run.from ? largest_mixed : run.to - run.from,
      .arenas = mid->num_arenas,
      .arena_bytes = mid->arena_bytes,
      .blocks = mid->blocks,
      .block_bytes = mid->block_bytes,
      .extents = mid->extents,
      .free_bytes = mid->arena_bytes - mid->block_bytes,
      .parts = mid->pieces.used - mid->blocks,
      .runs = mid->runs.count,
      .free_mapped_bytes = mid->runs.bytes,
      .largest_run_bytes = run.to - run.from,
      .metadata_bytes = sizeof *mid + vmp_node_pool_bytes(&mid->pieces) + vmp_node_pool_bytes(&mid->ranges) +
                        vmp_node_pool_bytes(&mid->edges.nodes) + mid->index_bytes +
                        mid->num_arenas * sizeof(vmp_mid_arena) + mid->arenas_capacity * sizeof(vmp_mid_arena *),
  };
}

// walk_free shows free parts that only their mapping tells apart as one. Returns the last of them.
static uint32_t walk_free(const vmp_mid *mid, uint32_t part, vmp_walk_fn fn, void *context) {
  const vmp_mid_piece *piece = vmp_mid_piece_at(mid, part);
  uint64_t offset = piece->offset;
  vmp_fence fence = piece->fence;
  while (vmp_mid_is_free(mid, piece->next) && vmp_mid_piece_at(mid, piece->next)->fence.streams == fence.streams) {
    part = piece->next;
    piece = vmp_mid_piece_at(mid, part);
    fence = vmp_fence_merge(fence, piece->fence);
  }
  fn(context, offset, vmp_mid_piece_end(piece) - offset, "free", fence);
  return part;
}

void vmp_mid_walk(const vmp_mid *mid, vmp_walk_fn fn, void *context) {
  for (size_t i = 0; i < mid->num_arenas; i++) {
    for (uint32_t at = mid->arenas[i]->first; at != 0; at = vmp_mid_piece_at(mid, at)->next) {
      const vmp_mid_piece *piece = vmp_mid_piece_at(mid, at);
      if (piece->kind != VMP_MID_USED) {
        at = walk_free(mid, at, fn, context);
      } else {
        fn(context, piece->offset, piece->bytes, piece->owner == NULL ? "block" : "span", VMP_FENCE_NONE);
      }
    }
  }
}
