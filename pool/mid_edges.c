// mid_edges.c: blocks whose first and last bytes lie in chunks of other blocks. See backing_share.h for how a chunk is
// shared.
//
// Owns: which free ends of partly used chunks there are, which two suit a block, and the decision to use them. Does not
// own the mapping.
//
//     a run     | block | top . | whole . . . | whole . . . | bottom | block |
//     slots     [ . . . . . . . ][ . . . . . .][. . . . . . .][ . . . . . . . ]
//
//     a block   [ . . . . head | whole, its own | whole, its own | tail . . . ]      at addresses that were unmapped:
//                 in a top                                         in a bottom       head + tail = what is left of it
//
// A top is the free upper end of a chunk whose lower end is in use, a bottom the other way round; each is in a tree by
// its size while its run is there. The trees are a help, not the truth: without a node one is left out, and the claim
// looks at the chunk itself.
//
// Edges are used where memory is short: what could be created under the limits is less than the best place needs, or
// more than park_limit of mapped memory lies idle; and only where they need fewer whole chunks than that place. Among
// the pairs that were looked at, the one with the fewest whole chunks, then the one that leaves least. (Measured with
// `bench fill`: the free memory that is no whole chunk is 25 % more where one end that fits comes before two that save
// a whole chunk. More than the pairs' leftovers, it is the ends of blocks that were freed.)
#include "pool/mid_internal.h"

enum {
  PAIRS_COMPARED = 32,
  EXTENTS_COMPARED = 16,
  STATES_WALKED = 64,
  LITTLE = 64 << 10,  // left of one end, that is: two ends cost a driver call more
  NODES_KEPT = 64,    // at least so many are there after a cut
};

// ---- the trees ----
typedef struct edge {
  uint32_t *root;
  uint64_t offset, size;  // size 0: the run has none
} edge;

static void edges_of(vmp_mid *mid, vmp_mid_span run, edge out[2]) {
  uint64_t granule = mid->ops.granule_bytes, first = vmp_align_down(run.from, granule);
  uint64_t last = vmp_align_down(run.to, granule);
  out[0] = (edge){.root = &mid->edges.tops};
  out[1] = (edge){.root = &mid->edges.bottoms};
  if (run.from > first && run.to - first >= granule) {
    out[0].offset = run.from;
    out[0].size = first + granule - run.from;
  }
  if (run.to > last && run.from <= last) {
    out[1].offset = last;
    out[1].size = run.to - last;
  }
}

static uint32_t find_edge(const vmp_mid *mid, const edge *e) {
  uint32_t index = vmp_tree_at_least(&mid->edges.nodes, VMP_TREE_BY_SIZE, *e->root, (vmp_tree_key){e->size, e->offset});
  const vmp_tree_node *node = index == 0 ? NULL : vmp_tree_at(&mid->edges.nodes, index);
  return node != NULL && node->size == e->size && node->offset == e->offset ? index : 0;
}

void vmp_mid_edges_enter(vmp_mid *mid, vmp_mid_span run) {
  edge edges[2];
  edges_of(mid, run, edges);
  for (unsigned i = 0; i < 2; i++) {
    if (edges[i].size == 0) continue;
    if (vmp_node_pool_unpromised(&mid->edges.nodes) == 0) {
      mid->edges.missed++;
      continue;
    }
    uint32_t index = vmp_node_take(&mid->edges.nodes);
    vmp_tree_node *node = vmp_tree_at(&mid->edges.nodes, index);
    node->offset = edges[i].offset;
    node->size = edges[i].size;
    vmp_tree_insert(&mid->edges.nodes, VMP_TREE_BY_SIZE, edges[i].root, index);
  }
}

void vmp_mid_edges_leave(vmp_mid *mid, vmp_mid_span run) {
  edge edges[2];
  edges_of(mid, run, edges);
  for (unsigned i = 0; i < 2; i++) {
    if (edges[i].size == 0) continue;
    uint32_t index = find_edge(mid, &edges[i]);
    if (index == 0) {
      mid->edges.missed--;
      continue;
    }
    vmp_tree_remove(&mid->edges.nodes, VMP_TREE_BY_SIZE, edges[i].root, index);
    vmp_node_give(&mid->edges.nodes, index);
  }
}

void vmp_mid_edges_make_room(vmp_mid *mid) {
  // Every run has two edges at most, and lies beside a block or at an end of what is mapped.
  uint64_t wanted = 2 * mid->blocks + NODES_KEPT;
  if (wanted > mid->edges.nodes.used) {
    uint64_t more = wanted - mid->edges.nodes.used;
    (void)vmp_node_pool_reserve(&mid->edges.nodes, more < UINT32_MAX ? (uint32_t)more : UINT32_MAX);
  }
}

// ---- choosing ----
// The two ends of a block: how many bytes lie in a top and in a bottom, and where these are.
typedef struct ends {
  uint64_t head, tail;            // bytes
  uint64_t head_host, tail_host;  // offsets within the hosts' slots
  uint64_t whole;                 // slots between them
  uint64_t left;                  // bytes of the two hosts that stay free
} ends;

static const vmp_tree_node *at_least(const vmp_mid *mid, uint32_t root, uint64_t size) {
  uint32_t index = vmp_tree_at_least(&mid->edges.nodes, VMP_TREE_BY_SIZE, root, (vmp_tree_key){size, 0});
  return index == 0 ? NULL : vmp_tree_at(&mid->edges.nodes, index);
}

// below: the largest edge before a key in the order of the tree.
static const vmp_tree_node *below(const vmp_mid *mid, uint32_t root, uint64_t size, uint64_t offset) {
  if (offset == 0) {
    size--;
    offset = UINT64_MAX;
  } else {
    offset--;
  }
  uint32_t index = vmp_tree_at_most(&mid->edges.nodes, VMP_TREE_BY_SIZE, root, (vmp_tree_key){size, offset});
  return index == 0 ? NULL : vmp_tree_at(&mid->edges.nodes, index);
}

static void keep_better(ends *best, bool *found, const ends *other) {
  if (*found && best->left <= other->left) return;
  *best = *other;
  *found = true;
}

// choose_one finds one edge for all of `bytes`, which are less than a slot.
static void choose_one(const vmp_mid *mid, uint64_t bytes, uint64_t alignment, ends *best, bool *found) {
  const vmp_tree_node *bottom = at_least(mid, mid->edges.bottoms, bytes);
  if (bottom != NULL) {
    ends tail = {.tail = bytes, .tail_host = bottom->offset, .left = bottom->size - bytes};
    keep_better(best, found, &tail);
  }
  const vmp_tree_node *top = bytes % alignment == 0 ? at_least(mid, mid->edges.tops, bytes) : NULL;
  if (top != NULL) {
    ends head = {.head = bytes, .head_host = top->offset, .left = top->size - bytes};
    keep_better(best, found, &head);
  }
}

// choose_two finds a top that is used up and a bottom for the rest of `bytes`; the largest tops first.
static void choose_two(const vmp_mid *mid, uint64_t bytes, uint64_t alignment, ends *best, bool *found) {
  const vmp_tree_node *top = below(mid, mid->edges.tops, bytes, 0);
  for (unsigned i = 0; i < PAIRS_COMPARED && top != NULL; i++) {
    uint64_t head = vmp_align_down(top->size, alignment), tail = bytes - head;
    const vmp_tree_node *bottom = head == 0 ? NULL : at_least(mid, mid->edges.bottoms, tail);
    if (bottom == NULL) return;  // smaller tops leave more
    ends two = {.head = head,
                .tail = tail,
                .head_host = top->offset,
                .tail_host = bottom->offset,
                .left = top->size - head + bottom->size - tail};
    keep_better(best, found, &two);
    if (best->left == 0) return;
    top = below(mid, mid->edges.tops, top->size, top->offset);
  }
}

// choose finds the ends for a request that leave fewer than `most_whole` whole chunks to be found.
static bool choose(const vmp_mid *mid, const vmp_request *request, uint64_t most_whole, ends *out) {
  uint64_t granule = mid->ops.granule_bytes, whole = request->bytes / granule, rest = request->bytes % granule;
  bool found = false;
  if (request->alignment > granule || most_whole == 0) return false;
  if (whole > 0 && whole - 1 < most_whole) {
    choose_two(mid, granule + rest, request->alignment, out, &found);
    out->whole = whole - 1;
    if (found) return true;
  }
  if (rest == 0 || whole >= most_whole) return false;
  choose_one(mid, rest, request->alignment, out, &found);
  if (!found || out->left > LITTLE) choose_two(mid, rest, request->alignment, out, &found);
  out->whole = whole;
  return found;
}

// ---- addresses ----
// room_in: the first stretch of so many unmapped slots in a mixed extent.
static bool room_in(const vmp_mid *mid, const vmp_range *extent, uint64_t slots, uint64_t *out_offset) {
  uint64_t granule = mid->ops.granule_bytes, at = extent->offset, to = vmp_range_end(extent), from;
  for (unsigned i = 0; i < STATES_WALKED && at < to; i++) {
    uint64_t end = to;
    vmp_run_state state = mid->ops.run(mid->ops.self, at, to, &end);
    if (state == VMP_RUN_UNMAPPED && vmp_align_up(at, granule, &from) && from < end &&
        (end - from) / granule >= slots) {
      *out_offset = from;
      return true;
    }
    at = end;
  }
  return false;
}

static bool find_room(const vmp_mid *mid, uint64_t slots, uint64_t *out_offset) {
  uint32_t extent = vmp_ranges_fitting(&mid->mixed, slots * mid->ops.granule_bytes);
  for (unsigned i = 0; i < EXTENTS_COMPARED && extent != 0; i++) {
    if (room_in(mid, vmp_range_at(&mid->mixed, extent), slots, out_offset)) return true;
    extent = vmp_ranges_next_larger(&mid->mixed, extent);
  }
  extent = vmp_ranges_largest(&mid->mixed);
  for (unsigned i = 0; i < EXTENTS_COMPARED && extent != 0; i++) {
    if (room_in(mid, vmp_range_at(&mid->mixed, extent), slots, out_offset)) return true;
    extent = vmp_ranges_next_smaller(&mid->mixed, extent);
  }
  return false;
}

// ---- placing ----
bool vmp_mid_edges_allowed(const vmp_mid *mid, const vmp_request *request) {
  return mid->options.edges && !request->isolated && request->wait != VMP_WAIT_NEVER &&
         request->effort >= VMP_EFFORT_NORMAL;
}

uint64_t vmp_mid_edges_wanted(const vmp_mid *mid, const vmp_cost *cost) {
  uint64_t needed = cost->slots_to_map == 0 ? 1 : cost->slots_to_map;
  double mapped = (double)mid->runs.bytes + (double)mid->block_bytes;
  bool idle = (double)mid->runs.bytes > mid->options.park_limit * mapped;
  bool full = mid->ops.room(mid->ops.self) / mid->ops.granule_bytes < needed;
  return idle || full ? cost->slots_to_map + cost->chunks_pinned : 0;
}

// claim claims a block that was cut out. MAY UNLOCK.
static vmp_status claim(vmp_mid *mid, const vmp_request *request, const ends *e, uint64_t base, vmp_fence *out_fence) {
  uint64_t granule = mid->ops.granule_bytes, slots = (e->head > 0 ? 1u : 0u) + e->whole;
  vmp_shared_part parts[2];
  size_t count = 0;
  if (e->head > 0) parts[count++] = (vmp_shared_part){base, e->head_host, granule - e->head, granule};
  if (e->tail > 0) parts[count++] = (vmp_shared_part){base + slots * granule, e->tail_host, 0, e->tail};
  uint64_t offset = e->head > 0 ? base + granule - e->head : base;
  return mid->ops.claim_shared(mid->ops.self, offset, request->bytes, parts, count, request->stream, request->effort,
                               out_fence);
}

vmp_status vmp_mid_edges_alloc(vmp_mid *mid, const vmp_request *request, void *owner, uint64_t most_whole,
                               vmp_placed *out_placed) {
  ends e = {0};
  uint64_t base, granule = mid->ops.granule_bytes;
  if (!choose(mid, request, most_whole, &e)) return VMP_ERROR_BUSY;
  if (!find_room(mid, e.whole + (e.head > 0 ? 1u : 0u) + (e.tail > 0 ? 1u : 0u), &base)) return VMP_ERROR_BUSY;
  vmp_mid_place place = {.offset = e.head > 0 ? base + granule - e.head : base};
  uint32_t piece;
  vmp_fence parts_fence, fence = VMP_FENCE_NONE;
  vmp_status status = vmp_mid_cut(mid, &place, request->bytes, owner, &piece, &parts_fence);
  if (status != VMP_OK) return status;
  status = claim(mid, request, &e, base, &fence);
  if (status != VMP_OK) {
    vmp_mid_give_back(mid, piece, parts_fence, false);
    return status;
  }
  vmp_mid_refresh(mid, place.offset, place.offset + request->bytes, true);
  *out_placed = (vmp_placed){.offset = place.offset,
                             .bytes = request->bytes,
                             .after = mid->ops.others(mid->ops.self, fence, request->stream),
                             .fence = fence};
  return VMP_OK;
}

// ---- the checker ----
void vmp_mid_edges_check(vmp_mid *mid, vmp_report *report) {
  uint64_t expected = 0, missing = 0;
  for (uint32_t run = vmp_mid_runs_largest(mid); run != 0; run = vmp_mid_runs_next_smaller(mid, run)) {
    edge edges[2];
    edges_of(mid, vmp_mid_run_span(mid, run), edges);
    for (unsigned i = 0; i < 2; i++) {
      if (edges[i].size == 0) continue;
      expected++;
      if (find_edge(mid, &edges[i]) == 0) missing++;
    }
  }
  if (missing != mid->edges.missed) {
    vmp_report_fault(report, "mid: %llu edges of runs are in no tree, %llu are known to be",
                     (unsigned long long)missing, (unsigned long long)mid->edges.missed);
  }
  uint64_t held = vmp_tree_check(&mid->edges.nodes, VMP_TREE_BY_SIZE, mid->edges.tops, "mid tops", report) +
                  vmp_tree_check(&mid->edges.nodes, VMP_TREE_BY_SIZE, mid->edges.bottoms, "mid bottoms", report);
  if (held != expected - missing || held != mid->edges.nodes.used) {
    vmp_report_fault(report, "mid: the trees of edges hold %llu, the runs have %llu", (unsigned long long)held,
                     (unsigned long long)(expected - missing));
  }
}
