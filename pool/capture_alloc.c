// capture_alloc.c: memory for an allocation inside a stream capture; and looking at what graphs hold. See capture.h.
//
// What is captured runs later, and on any stream: so not even the capturing stream's own earlier work may still use the
// memory, and a wait would become part of the graph. In this order:
//
//     reuse     freed on the stream in the same capture                     no driver call
//     MAPPED    mapped, and known to be complete; the clock is asked and it is tried again
//     READY     spare and new chunks under the limits, else complete parked ones
//     GROW      new chunks up to the hard limit
//     caches, empties, old mappings whose work has finished, more addresses; then all of it again
//     error     VMP_ERROR_CAPTURE
#include <inttypes.h>

#include "pool/capture_internal.h"
#include "vmm/backing_share.h"

// ---- reuse ----

static bool suits(const vmp_captured *block, const vmp_plan *plan) {
  if (block->layer != (uint8_t)plan->layer || block->domain != plan->domain) return false;
  if (plan->layer == VMP_LAYER_SLAB) return block->bytes == plan->request.bytes;
  return block->bytes >= plan->request.bytes && block->bytes / 2 <= plan->request.bytes &&
         block->offset % plan->request.alignment == 0;
}

// reuse takes the smallest suitable block off the graph's list. It is unsettled then.
static bool reuse(vmp_pool *pool, const vmp_plan *plan, vmp_placed *out_placed) {
  vmp_captures *captures = &pool->captures;
  uint64_t *best = NULL;
  vmp_captured *best_block = NULL;
  for (uint64_t *link = &plan->graph->reusable; *link != 0;) {
    vmp_captured *block = vmp_captured_at(captures, *link - 1, NULL);
    if (suits(block, plan) && (best == NULL || block->bytes < best_block->bytes)) {
      best = link;
      best_block = block;
    }
    link = &block->next_reusable;
  }
  if (best == NULL) return false;
  *best = best_block->next_reusable;
  best_block->next_reusable = 0;
  captures->kept_bytes[best_block->layer] -= best_block->bytes;
  pool->unsettled_bytes[best_block->layer] += best_block->bytes;
  *out_placed = (vmp_placed){.offset = best_block->offset, .bytes = best_block->bytes};
  return true;
}

// ---- the ladder ----

// try_once places the request with one effort. What would have to be waited for all the same goes back.
static vmp_status try_once(vmp_pool *pool, vmp_plan *plan, vmp_effort effort, vmp_placed *out_placed) {
  plan->request.effort = effort;
  pool->placing++;
  vmp_status status = vmp_route_place(pool, plan, out_placed);
  pool->placing--;
  if (status != VMP_OK) return status;
  if (vmp_fence_is_none(out_placed->after)) {
    pool->unsettled_bytes[plan->layer] += out_placed->bytes;
    return VMP_OK;
  }
  (void)vmp_route_release(pool, plan->layer, out_placed->offset, vmp_fence_merge(out_placed->after, out_placed->fence));
  return VMP_ERROR_BUSY;
}

static bool is_shortage(vmp_status status) {
  return status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT || status == VMP_ERROR_FRAGMENTED ||
         status == VMP_ERROR_BUSY || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE;
}

static vmp_status try_all(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed) {
  static const vmp_effort efforts[] = {VMP_EFFORT_MAPPED, VMP_EFFORT_MAPPED, VMP_EFFORT_READY, VMP_EFFORT_GROW};
  vmp_status status = VMP_ERROR_BUSY;
  for (unsigned i = 0; i < sizeof efforts / sizeof efforts[0] && is_shortage(status); i++) {
    if (i == 1) {
      vmp_guard_unlock(&pool->guard);
      (void)vmp_clock_poll(pool->clock, (vmp_fence){pool->seen_streams, UINT64_MAX});
      vmp_guard_lock(&pool->guard);
    }
    status = try_once(pool, plan, efforts[i], out_placed);
  }
  return status;
}

static vmp_status take(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed) {
  vmp_status status = try_all(pool, plan, out_placed);
  if (!is_shortage(status)) return status;
  vmp_caches_empty(pool);
  if (pool->slab != NULL) (void)vmp_slab_trim(pool->slab);
  (void)vmp_backing_poll(pool->backing);
  status = try_all(pool, plan, out_placed);
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) {
    status = vmp_space_add(pool, plan->request.bytes, plan->request.alignment);
    if (status == VMP_OK) status = try_all(pool, plan, out_placed);
  }
  return status;
}

vmp_status vmp_capture_take(vmp_pool *pool, vmp_plan *plan, vmp_placed *out_placed) {
  if (reuse(pool, plan, out_placed)) return VMP_OK;
  vmp_stream_index stream = plan->request.stream;
  plan->request.stream = VMP_CLOCK_ANYONE;
  plan->request.wait = VMP_WAIT_NEVER;
  plan->request.isolated = true;
  plan->graph->users++;  // the lock is let go of meanwhile
  vmp_status status = take(pool, plan, out_placed);
  plan->graph->users--;
  plan->request.stream = stream;
  plan->request.wait = VMP_WAIT_LAST;
  if (status == VMP_OK) vmp_backing_keep_apart(pool->backing, out_placed->offset, out_placed->bytes);
  return is_shortage(status) ? vmp_oom_fail(pool, plan, VMP_ERROR_CAPTURE, false) : status;
}

// ---- looking ----

typedef struct overlap {
  const vmp_captures *captures;
  uint64_t offset, bytes;
  bool found;
} overlap;

static void see_overlap(void *context, uint64_t offset, uint64_t index) {
  overlap *at = context;
  const vmp_captured *block = vmp_node_at(&at->captures->blocks, (uint32_t)index);
  if (offset < at->offset + at->bytes && at->offset < offset + block->bytes) at->found = true;
}

bool vmp_captures_hold(const vmp_captures *captures, uint64_t offset, uint64_t bytes) {
  overlap at = {captures, offset, bytes, false};
  if (captures->records.entries > 0) vmp_offset_map_walk(&captures->records, see_overlap, &at);
  return at.found;
}

uint64_t vmp_captures_kept_bytes(const vmp_captures *captures) {
  return captures->kept_bytes[0] + captures->kept_bytes[1] + captures->kept_bytes[2];
}

uint64_t vmp_captures_num_graphs(const vmp_captures *captures) {
  uint64_t count = 0;
  for (const vmp_graph *graph = captures->graphs; graph != NULL; graph = graph->next) count++;
  return count;
}

uint64_t vmp_captures_metadata_bytes(const vmp_captures *captures) {
  return vmp_node_pool_bytes(&captures->blocks) + vmp_node_pool_bytes(&captures->holds) +
         vmp_offset_map_metadata_bytes(&captures->records) + vmp_captures_num_graphs(captures) * sizeof(vmp_graph);
}

typedef struct sums {
  vmp_pool *pool;
  vmp_report *report;
  uint64_t kept_bytes[VMP_NUM_LAYERS], holds;
} sums;

static void check_record(void *context, uint64_t offset, uint64_t index) {
  sums *s = context;
  const vmp_captured *block = vmp_node_at(&s->pool->captures.blocks, (uint32_t)index);
  uint64_t word = vmp_books_get(s->pool, offset);
  vmp_found found;
  if (!vmp_route_find(s->pool, offset, &found) || found.offset != offset || found.bytes != block->bytes ||
      found.layer != (vmp_layer)block->layer) {
    vmp_report_fault(s->report, "captures: the block at offset %" PRIu64 " that a graph holds is not its layer's",
                     offset);
  }
  if (block->live != (word != 0) || (word != 0 && (word & VMP_BLOCK_CAPTURED) == 0)) {
    vmp_report_fault(s->report, "captures: the block at offset %" PRIu64 " and the books disagree", offset);
  }
  if (block->holds == 0) vmp_report_fault(s->report, "captures: nobody holds the block at offset %" PRIu64, offset);
  s->holds += block->holds;
  if (!block->live && block->layer < VMP_NUM_LAYERS) s->kept_bytes[block->layer] += block->bytes;
}

static void check_graph(const vmp_captures *captures, const vmp_graph *graph, uint64_t *inout_holds,
                        vmp_report *report) {
  for (uint32_t at = graph->holds; at != 0; at = vmp_hold_at(captures, at)->next) {
    (*inout_holds)++;
    if (vmp_hold_at(captures, at)->graph != graph) {
      vmp_report_fault(report, "captures: graph %" PRIu64 " has a hold of another graph", graph->id);
    }
  }
  for (uint64_t next = graph->reusable; next != 0;) {
    const vmp_captured *block = vmp_captured_at(captures, next - 1, NULL);
    if (block == NULL || block->live || block->holds != 1 || !graph->capturing) {
      vmp_report_fault(report, "captures: graph %" PRIu64 " would hand out offset %" PRIu64 " again", graph->id,
                       next - 1);
      return;
    }
    next = block->next_reusable;
  }
}

void vmp_captures_check(vmp_pool *pool, vmp_report *report) {
  const vmp_captures *captures = &pool->captures;
  sums s = {.pool = pool, .report = report};
  uint64_t holds = 0, capturing = 0;
  (void)vmp_offset_map_check(&captures->records, "captured blocks", report);
  vmp_node_pool_check(&captures->blocks, "captured blocks", report);
  vmp_node_pool_check(&captures->holds, "holds of graphs", report);
  if (pool->placing > 0) return;  // a block may be on its way from a graph's list to the books
  vmp_offset_map_walk(&captures->records, check_record, &s);
  for (const vmp_graph *graph = captures->graphs; graph != NULL; graph = graph->next) {
    check_graph(captures, graph, &holds, report);
    capturing += graph->capturing ? 1 : 0;
  }
  if (holds != s.holds) {
    vmp_report_fault(report, "captures: graphs have %" PRIu64 " holds, blocks count %" PRIu64, holds, s.holds);
  }
  if (capturing != captures->capturing) {
    vmp_report_fault(report, "captures: %" PRIu64 " graphs capture; the count is %" PRIu32, capturing,
                     captures->capturing);
  }
  for (int layer = 0; layer < VMP_NUM_LAYERS; layer++) {
    if (s.kept_bytes[layer] == captures->kept_bytes[layer]) continue;
    vmp_report_fault(report, "captures: %" PRIu64 " bytes of %s are kept; the count is %" PRIu64, s.kept_bytes[layer],
                     vmp_layer_name((vmp_layer)layer), captures->kept_bytes[layer]);
  }
}
