// mid_place.c: where a block goes. Looks at bounded numbers of candidates; changes nothing but what it settles.
//
// Owns: the order of preference.
//
//     1. a run that fits (no driver call)   no wait; fewest parked chunks pinned; smallest run; at the edge of its
//                                           extent; lowest address. Both ends of up to 8 runs, best fit upwards; where
//                                           these would wait, also the parts of the run that the stream needn't wait
//                                           for
//     2. a place that grows                 not blocked; fewest slots to map; fewest parked chunks pinned; no wait;
//                                           lowest address. Up to 8 of the largest runs, extended to either side, and
//                                           both ends of up to 16 mixed extents, best fit upwards; where these are
//                                           blocked, the first gap between blocked slots that is large enough
//     3. a fresh place                      wholly unmapped, aligned for the largest chunks and with room for whole
//                                           ones, in the largest mixed extents; asked for when chunk sizes didn't fit
//
// The cost of a place takes time in proportion to its chunks, so the larger the request, the fewer runs are compared.
#include "pool/mid_internal.h"

enum {
  PARTS_COMPARED = 16,
  RUNS_GROWN = 8,
  EXTENTS_COMPARED = 16,
  EXTENTS_FRESH = 8,
  STATES_WALKED = 64,  // changes of mapping state looked at in one extent
};

typedef struct search {
  vmp_mid *mid;
  uint64_t bytes, alignment;
  vmp_stream_index stream;
  vmp_wait wait;
  bool mapped_only;
  uint32_t run;       // being looked at, in a search for mapped places
  bool run_is_ready;  // it is one part, for which the stream needn't wait
  bool found, blocked;
  vmp_mid_place best;
} search;

static search start(vmp_mid *mid, const vmp_request *request) {
  search s = {.mid = mid,
              .bytes = request->bytes,
              .alignment = request->alignment,
              .stream = request->stream,
              .wait = request->wait};
  if (s.alignment < VMP_MID_STEP_BYTES) s.alignment = VMP_MID_STEP_BYTES;
  return s;
}

// ends_of: the lowest and highest aligned place for the request in [from, to). False when there is none.
static bool ends_of(const search *s, uint64_t from, uint64_t to, uint64_t *out_low, uint64_t *out_high) {
  // `from` may have been aligned up past `to`.
  if (to < from || to - from < s->bytes || !vmp_align_up(from, s->alignment, out_low)) return false;
  *out_high = vmp_align_down(to - s->bytes, s->alignment);
  return *out_low <= *out_high;
}

static uint64_t slots_of(const vmp_mid *mid, uint64_t offset, uint64_t bytes) {
  uint64_t granule = mid->ops.granule_bytes;
  return (offset + bytes - 1) / granule - offset / granule + 1;
}

// at_edge: whether a block here would leave one free piece of its extent, not two.
static bool at_edge(const search *s, const vmp_mid_place *place) {
  vmp_mid_span extent = vmp_mid_extent_of_run(s->mid, place->run);
  return extent.from == place->offset || extent.to == place->offset + s->bytes;
}

// part_at: the part that holds `offset`. In the first part of the run that is looked at it is known.
static uint32_t part_at(const search *s, uint32_t run, uint64_t offset) {
  const vmp_mid *mid = s->mid;
  if (run != 0 && vmp_mid_piece_end(vmp_mid_piece_at(mid, run)) > offset) return run;
  return vmp_mid_index_find(mid, vmp_mid_arena_of(mid, offset), offset);
}

// add_fences merges who may still touch the place into its fence, and what the stream has to be ordered behind to use
// it into `after` (which may be less than `others` of the former). An unmapped slot has no unfinished work: its old
// mapping stayed until that had finished.
static void add_fences(const search *s, vmp_mid_place *place) {
  const vmp_mid *mid = s->mid;
  if (place->cost.slots_to_map >= slots_of(mid, place->offset, s->bytes)) return;
  uint64_t end = place->offset + s->bytes;
  for (uint32_t index = part_at(s, place->run, place->offset);;) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    if (!vmp_fence_is_none(part->fence)) {
      place->fence = vmp_fence_merge(place->fence, part->fence);
      place->after = vmp_fence_merge(place->after, mid->ops.others(mid->ops.self, part->fence, s->stream));
    }
    if (vmp_mid_piece_end(part) >= end) return;
    index = part->next;
  }
}

// look_at tells what a place takes. Where it surely needs no wait its fences are left for the end of the search.
static void look_at(const search *s, uint64_t offset, uint64_t within_bytes, vmp_mid_place *out) {
  const vmp_mid *mid = s->mid;
  *out = (vmp_mid_place){.offset = offset, .within_bytes = within_bytes, .run = s->run};
  out->cost = mid->ops.cost(mid->ops.self, offset, s->bytes, s->stream);
  if (s->run_is_ready || s->wait == VMP_WAIT_ANY) {
    out->must_wait = s->wait != VMP_WAIT_ANY && out->cost.must_wait;
    return;
  }
  add_fences(s, out);
  out->must_wait = out->cost.must_wait || !vmp_fence_is_none(out->after);
}

// finish gives the best place with its fences.
static bool finish(const search *s, vmp_mid_place *out_place) {
  if (!s->found) return false;
  *out_place = s->best;
  if (vmp_fence_is_none(out_place->fence)) add_fences(s, out_place);
  return true;
}

static bool better_mapped(const search *s, const vmp_mid_place *a) {
  const vmp_mid_place *b = &s->best;
  if (a->must_wait != b->must_wait) return !a->must_wait;
  if (a->cost.chunks_pinned != b->cost.chunks_pinned) return a->cost.chunks_pinned < b->cost.chunks_pinned;
  if (a->within_bytes != b->within_bytes) return a->within_bytes < b->within_bytes;
  bool a_at_edge = at_edge(s, a);
  if (a_at_edge != at_edge(s, b)) return a_at_edge;
  return a->offset < b->offset;
}

static bool better_growing(const vmp_mid_place *a, const vmp_mid_place *b) {
  if (a->cost.slots_to_map != b->cost.slots_to_map) return a->cost.slots_to_map < b->cost.slots_to_map;
  if (a->cost.chunks_pinned != b->cost.chunks_pinned) return a->cost.chunks_pinned < b->cost.chunks_pinned;
  if (a->must_wait != b->must_wait) return !a->must_wait;
  return a->offset < b->offset;
}

// consider compares one place with the best so far; false when it is blocked, or would wait and must not.
static bool consider(search *s, uint64_t offset, uint64_t within_bytes) {
  vmp_mid_place place;
  look_at(s, offset, within_bytes, &place);
  if (place.cost.blocked || (s->wait == VMP_WAIT_NEVER && place.must_wait)) {
    s->blocked = true;
    return false;
  }
  if (s->mapped_only && place.cost.slots_to_map > 0) return true;  // only while the runs are stale
  if (!s->found || (s->mapped_only ? better_mapped(s, &place) : better_growing(&place, &s->best))) {
    s->best = place;
    s->found = true;
  }
  return true;
}

// ---- 1. a run that fits ----
// is_ready: the run is one part, and nobody may still touch it but the stream itself.
static bool is_ready(const vmp_mid *mid, uint32_t run, vmp_stream_index stream) {
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, run);
  if (part->run_end != run) return false;
  return vmp_fence_is_none(part->fence) || vmp_fence_is_none(mid->ops.others(mid->ops.self, part->fence, stream));
}

// is_ideal: no other run can be better, or one can, but not by enough to look for it.
static bool is_ideal(const search *s) {
  return s->found && !s->best.must_wait && (s->best.cost.chunks_pinned == 0 || s->best.within_bytes == s->bytes);
}

// is_good: the best of `compared` runs is good enough to stop at.
static bool is_good(const search *s, uint64_t compared) {
  if (is_ideal(s)) return true;
  return compared >= VMP_MID_RUNS_COMPARED_WELL && s->found && !s->best.must_wait && s->best.cost.chunks_pinned <= 1;
}

// consider_parts looks for a place in [from, to) that needs no wait: a stretch of parts that the stream may use.
static void consider_parts(search *s, uint64_t from, uint64_t to) {
  vmp_mid *mid = s->mid;
  vmp_mid_settle(mid, from, to, PARTS_COMPARED);
  uint32_t index = s->run;
  uint64_t begin = from;
  for (unsigned i = 0; i < PARTS_COMPARED; i++) {
    const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
    uint64_t end = vmp_mid_piece_end(part) < to ? vmp_mid_piece_end(part) : to;
    uint64_t low, high;
    bool waits =
        !vmp_fence_is_none(part->fence) && !vmp_fence_is_none(mid->ops.others(mid->ops.self, part->fence, s->stream));
    if (waits) {
      begin = end;
    } else if (ends_of(s, begin, end, &low, &high)) {
      (void)consider(s, low, to - from);
      return;
    }
    if (end == to) return;
    index = part->next;
  }
}

// goes_high: with edges, a block goes to the high end of a run that begins a chunk and ends inside another: the free
// bytes stay at the chunks' ends, where blocks from elsewhere can use them.
static bool goes_high(const vmp_mid *mid, uint64_t from, uint64_t to) {
  uint64_t inside = mid->ops.granule_bytes - 1;
  return mid->options.edges && (from & inside) == 0 && (to & inside) != 0;
}

static void consider_run(search *s) {
  vmp_mid_span run = vmp_mid_run_span(s->mid, s->run);
  uint64_t from = run.from, to = run.to, low, high;
  if (!ends_of(s, from, to, &low, &high)) return;
  s->run_is_ready = is_ready(s->mid, s->run, s->stream);
  bool high_first = goes_high(s->mid, from, to);
  (void)consider(s, high_first ? high : low, to - from);
  if (is_ideal(s) || low == high) return;
  (void)consider(s, high_first ? low : high, to - from);
  if (s->found ? s->best.must_wait : s->wait == VMP_WAIT_NEVER) consider_parts(s, from, to);
}

// place_plainly finds what the search would find first and look no further: the low end of the best-fitting run, where
// that run is one part without anybody's work but the stream's own, and can't hold a parked chunk (or fits exactly).
// False: it takes a search.
static bool place_plainly(const vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place) {
  const vmp_backing_glance *glance = &mid->ops.glance;
  if (glance->num_moved == NULL || *glance->num_moved > 0 || request->alignment > VMP_MID_STEP_BYTES || mid->stale) {
    return false;
  }
  uint32_t index = vmp_mid_runs_fitting(mid, request->bytes);
  if (index == 0) return false;
  const vmp_mid_piece *part = vmp_mid_piece_at(mid, index);
  if (vmp_mid_may_pin(mid, part, request->bytes) || !is_ready(mid, index, request->stream)) return false;
  uint64_t end = vmp_mid_piece_end(part);
  uint64_t offset = goes_high(mid, part->offset, end) ? end - request->bytes : part->offset;
  *out_place = (vmp_mid_place){.offset = offset, .within_bytes = part->bytes, .run = index, .fence = part->fence};
  return true;
}

bool vmp_mid_place_mapped(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place) {
  if (place_plainly(mid, request, out_place)) return true;
  search s = start(mid, request);
  s.mapped_only = true;
  uint64_t most = vmp_mid_runs_to_compare(mid, s.bytes), size = s.bytes;
  for (;;) {
    s.run = vmp_mid_runs_fitting(mid, size);
    for (uint64_t i = 0; i < most && s.run != 0 && !is_good(&s, i); i++) {
      consider_run(&s);
      s.run = vmp_mid_runs_next_larger(mid, s.run);
    }
    // The best-fitting runs may all lie askew; those larger by the alignment can't.
    if (s.found || size > s.bytes || s.alignment == VMP_MID_STEP_BYTES) break;
    if (!vmp_add(s.bytes, s.alignment - VMP_MID_STEP_BYTES, &size)) break;
  }
  return finish(&s, out_place);
}

// ---- 2. a place that grows ----
static void consider_growing_run(search *s, vmp_mid_span run, vmp_mid_span extent) {
  uint64_t low, high, lowest, rightwards, leftwards;
  if (!ends_of(s, extent.from, extent.to, &low, &high)) return;
  if (!vmp_align_up(run.from, s->alignment, &rightwards) || rightwards > high) rightwards = high;
  bool fits_left = ends_of(s, low, run.to, &lowest, &leftwards);
  if (fits_left) (void)consider(s, leftwards, run.to - run.from);
  if (!fits_left || rightwards != leftwards) (void)consider(s, rightwards, run.to - run.from);
}

// consider_gaps looks for a place between blocked slots.
static void consider_gaps(search *s, const vmp_range *extent) {
  const vmp_mid *mid = s->mid;
  uint64_t at = extent->offset, begin = at, to = vmp_range_end(extent), low, high;
  for (unsigned i = 0; i < STATES_WALKED && at < to; i++) {
    uint64_t end = to;
    if (mid->ops.run(mid->ops.self, at, to, &end) == VMP_RUN_BLOCKED) {
      begin = end;
    } else if (ends_of(s, begin, end, &low, &high)) {
      (void)consider(s, low, extent->size);
      return;
    }
    at = end;
  }
}

static void consider_extent(search *s, const vmp_range *extent) {
  uint64_t low, high;
  if (!ends_of(s, extent->offset, vmp_range_end(extent), &low, &high)) return;
  bool open = consider(s, low, extent->size);
  if (high != low) open = consider(s, high, extent->size) || open;
  if (!open) consider_gaps(s, extent);
}

bool vmp_mid_place_growing(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place, bool *out_blocked) {
  search s = start(mid, request);
  uint32_t run = vmp_mid_runs_largest(mid);
  for (unsigned i = 0; i < RUNS_GROWN && run != 0; i++) {
    consider_growing_run(&s, vmp_mid_run_span(mid, run), vmp_mid_extent_of_run(mid, run));
    run = vmp_mid_runs_next_smaller(mid, run);
  }
  uint64_t size = s.bytes;
  for (;;) {
    uint32_t extent = vmp_ranges_fitting(&mid->mixed, size);
    for (unsigned i = 0; i < EXTENTS_COMPARED && extent != 0; i++) {
      consider_extent(&s, vmp_range_at(&mid->mixed, extent));
      extent = vmp_ranges_next_larger(&mid->mixed, extent);
    }
    if (s.found || size > s.bytes || s.alignment == VMP_MID_STEP_BYTES) break;
    if (!vmp_add(s.bytes, s.alignment - VMP_MID_STEP_BYTES, &size)) break;
  }
  // The largest extents have the best chance of a gap between blocked slots.
  uint32_t extent = s.found ? 0 : vmp_ranges_largest(&mid->mixed);
  for (unsigned i = 0; i < EXTENTS_FRESH && extent != 0 && !s.found; i++) {
    consider_extent(&s, vmp_range_at(&mid->mixed, extent));
    extent = vmp_ranges_next_smaller(&mid->mixed, extent);
  }
  *out_blocked = s.blocked;
  return finish(&s, out_place);
}

// ---- 3. a fresh place ----
static bool place_at(const search *s, uint64_t offset, vmp_mid_place *out_place) {
  look_at(s, offset, 0, out_place);
  if (vmp_fence_is_none(out_place->fence)) add_fences(s, out_place);
  return true;
}

// find_unmapped: the first unmapped stretch of the extent with `room` bytes at a multiple of the search's alignment.
static bool find_unmapped(const search *s, const vmp_range *extent, uint64_t room, uint64_t *out_offset) {
  const vmp_mid *mid = s->mid;
  uint64_t at = extent->offset, to = vmp_range_end(extent);
  search roomy = *s;
  roomy.bytes = room;
  for (unsigned i = 0; i < STATES_WALKED && at < to; i++) {
    uint64_t end = to, high;
    vmp_run_state state = mid->ops.run(mid->ops.self, at, to, &end);
    if (state == VMP_RUN_UNMAPPED && ends_of(&roomy, at, end, out_offset, &high)) return true;
    at = end;
  }
  return false;
}

bool vmp_mid_place_fresh(vmp_mid *mid, const vmp_request *request, vmp_mid_place *out_place) {
  uint64_t steps[2] = {mid->options.chunk_max_bytes, mid->ops.granule_bytes};
  for (unsigned pass = 0; pass < 2; pass++) {
    search s = start(mid, request);
    uint64_t room, offset;
    if (s.alignment < steps[pass]) s.alignment = steps[pass];
    if (!vmp_align_up(s.bytes, steps[pass], &room)) continue;
    uint32_t extent = vmp_ranges_largest(&mid->mixed);
    for (unsigned i = 0; i < EXTENTS_FRESH && extent != 0; i++) {
      if (find_unmapped(&s, vmp_range_at(&mid->mixed, extent), room, &offset)) {
        return place_at(&s, offset, out_place);
      }
      extent = vmp_ranges_next_smaller(&mid->mixed, extent);
    }
  }
  return false;
}

vmp_mid_place vmp_mid_place_at(vmp_mid *mid, const vmp_request *request, uint64_t offset) {
  search s = start(mid, request);
  vmp_mid_place place;
  look_at(&s, offset, 0, &place);
  return place;
}

vmp_mid_place vmp_mid_place_in(vmp_mid *mid, const vmp_request *request, const vmp_mid_arena *arena) {
  search s = start(mid, request);
  vmp_mid_place place;
  (void)place_at(&s, arena->offset, &place);
  return place;
}
