// capture.c: graphs and what they hold: begin, end, release, frees. See capture.h; allocation is in capture_alloc.c.
#include <inttypes.h>

#include "pool/capture_internal.h"
#include "vmm/backing_share.h"
#include "vmm/memory.h"

// Records that are there when a capture begins: frees of blocks from outside the capture need one each.
#define FIRST_RECORDS 256u

void vmp_captures_init(vmp_captures *captures) {
  vmp_node_pool_init(&captures->blocks, sizeof(vmp_captured));
  vmp_node_pool_init(&captures->holds, sizeof(vmp_hold));
}

static uint64_t thread_of(vmp_stream stream) { return (uintptr_t)stream == 2 ? vmp_clock_thread() : 0; }

vmp_graph *vmp_capture_of(const vmp_pool *pool, vmp_stream stream) {
  if (pool->captures.capturing == 0) return NULL;
  for (vmp_graph *graph = pool->captures.graphs; graph != NULL; graph = graph->next) {
    if (graph->capturing && graph->stream == stream && graph->thread == thread_of(stream)) return graph;
  }
  return NULL;
}

static vmp_graph *graph_of_id(const vmp_pool *pool, vmp_graph_id id) {
  vmp_graph *graph = pool->captures.graphs;
  while (graph != NULL && graph->id != id) graph = graph->next;
  return graph;
}

// ---- records ----

vmp_captured *vmp_captured_at(const vmp_captures *captures, uint64_t offset, uint32_t *out_index) {
  const uint64_t *index = vmp_offset_map_find(&captures->records, offset);
  if (index == NULL) return NULL;
  if (out_index != NULL) *out_index = (uint32_t)*index;
  return vmp_node_at(&captures->blocks, (uint32_t)*index);
}

// reserve makes room for the records of so many more blocks.
static vmp_status reserve(vmp_captures *captures, uint32_t count) {
  if (vmp_node_pool_reserve(&captures->blocks, count) && vmp_node_pool_reserve(&captures->holds, count)) return VMP_OK;
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to note what a graph holds");
}

// promise_hold makes sure that one call of `hold` succeeds; the lock is held until then.
static vmp_status promise_hold(vmp_captures *captures) {
  vmp_status status = reserve(captures, 1);
  return status == VMP_OK ? vmp_offset_map_promise(&captures->records) : status;
}

vmp_status vmp_capture_promise(vmp_pool *pool) {
  vmp_captures *captures = &pool->captures;
  vmp_status status = promise_hold(captures);
  if (status != VMP_OK) return status;
  captures->blocks.promised++;
  captures->holds.promised++;
  return VMP_OK;
}

void vmp_capture_withdraw(vmp_pool *pool) {
  pool->captures.blocks.promised--;
  pool->captures.holds.promised--;
  vmp_offset_map_withdraw(&pool->captures.records);
}

// hold makes a block the graph's, which was promised.
static vmp_captured *hold(vmp_captures *captures, vmp_graph *graph, uint64_t offset, uint64_t bytes, int layer) {
  uint32_t index = 0;
  vmp_captured *block = vmp_captured_at(captures, offset, &index);
  if (block == NULL) {
    index = vmp_node_take(&captures->blocks);
    block = vmp_node_at(&captures->blocks, index);
    *block = (vmp_captured){.offset = offset, .bytes = bytes, .layer = (uint8_t)layer};
    vmp_offset_map_add(&captures->records, offset, index);
  } else {
    vmp_offset_map_withdraw(&captures->records);
  }
  for (uint32_t at = block->holds_list; at != 0; at = vmp_hold_at(captures, at)->next_of_block) {
    if (vmp_hold_at(captures, at)->graph == graph) return block;
  }
  uint32_t number = vmp_node_take(&captures->holds);
  *vmp_hold_at(captures, number) =
      (vmp_hold){.next = graph->holds, .next_of_block = block->holds_list, .block = index, .graph = graph};
  graph->holds = number;
  block->holds_list = number;
  block->holds++;
  return block;
}

void vmp_capture_enter(vmp_pool *pool, vmp_graph *graph, uint64_t offset, uint64_t bytes, int layer) {
  pool->captures.blocks.promised--;
  pool->captures.holds.promised--;
  vmp_captured *block = hold(&pool->captures, graph, offset, bytes, layer);
  block->live = true;
  block->domain = vmp_domain_of(pool, offset);
  vmp_backing_keep_apart(pool->backing, block->offset, block->bytes);
  (void)vmp_books_change(pool, offset, VMP_BLOCK_CAPTURED, 0);
}

vmp_status vmp_capture_use(vmp_pool *pool, vmp_graph *graph, uint64_t offset) {
  vmp_found found;
  vmp_status status = promise_hold(&pool->captures);
  if (status != VMP_OK) return status;
  if (!vmp_route_find(pool, offset, &found) || !vmp_books_change(pool, offset, VMP_BLOCK_CAPTURED, 0)) {
    vmp_offset_map_withdraw(&pool->captures.records);
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "the block was freed by another thread");
  }
  vmp_captured *block = hold(&pool->captures, graph, found.offset, found.bytes, (int)found.layer);
  block->live = true;
  block->domain = vmp_domain_of(pool, offset);
  vmp_backing_keep_apart(pool->backing, block->offset, block->bytes);
  return VMP_OK;
}

// ---- free ----

// keep takes a held block out of the books. False: it isn't live.
static bool keep(vmp_pool *pool, vmp_captured *block, uint32_t lane) {
  uint64_t word = vmp_books_take(pool, block->offset);
  if (word == 0) return false;
  vmp_layer layer = vmp_block_layer(word);
  uint64_t requested = block->bytes - vmp_block_slack(word);
  if (vmp_block_has_streams(word)) (void)vmp_offset_map_remove(&pool->streams, block->offset, NULL);
  if (vmp_block_is_labelled(word)) vmp_label_remove(&pool->tags, block->offset, block->bytes, requested);
  pool->live_bytes[layer] -= block->bytes;
  vmp_tally_free(&pool->tally, layer, lane);
  pool->requested_bytes -= requested;
  pool->frees++;
  pool->captures.kept_bytes[layer] += block->bytes;
  block->live = false;
  vmp_log_free(pool, block->offset, block->bytes, word, lane, VMP_FENCE_NONE);
  return true;
}

bool vmp_capture_free(vmp_pool *pool, uint64_t offset, vmp_stream stream, uint32_t lane, vmp_status *out_status) {
  vmp_captures *captures = &pool->captures;
  vmp_graph *graph = vmp_capture_of(pool, stream);
  vmp_captured *block = vmp_captured_at(captures, offset, NULL);
  *out_status = VMP_OK;
  if (block == NULL && (graph == NULL || vmp_books_get(pool, offset) == 0)) return false;
  if (block != NULL && !block->live) {
    *out_status = vmp_fail(VMP_ERROR_DOUBLE_FREE, "the block has been freed already; a graph still holds its memory");
    return true;
  }
  if (graph != NULL) *out_status = vmp_capture_use(pool, graph, offset);
  if (*out_status != VMP_OK) return true;
  block = vmp_captured_at(captures, offset, NULL);
  if (!keep(pool, block, lane)) return false;  // another thread was faster: the caller says what the address is now
  if (graph != NULL && block->holds == 1) {
    block->next_reusable = graph->reusable;
    graph->reusable = block->offset + 1;
  }
  return true;
}

// ---- begin, end, release ----

static vmp_status begin_locked(vmp_pool *pool, vmp_stream stream, vmp_graph_id *out_graph) {
  if (vmp_capture_of(pool, stream) != NULL) {
    return vmp_fail(VMP_ERROR_CAPTURE, "the stream is in a capture already; call vmp_capture_end first");
  }
  vmp_status status = reserve(&pool->captures, FIRST_RECORDS);
  if (status != VMP_OK) return status;
  vmp_graph *graph = vmp_mem_calloc(1, sizeof *graph);
  if (graph == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the record of a graph");
  graph->id = ++pool->captures.last_id;
  graph->stream = stream;
  graph->thread = thread_of(stream);
  graph->capturing = true;
  graph->next = pool->captures.graphs;
  pool->captures.graphs = graph;
  pool->captures.capturing++;
  vmp_pool_bypass_caches(pool, 1);
  *out_graph = graph->id;
  return VMP_OK;
}

vmp_status vmp_capture_begin(vmp_pool *pool, vmp_stream stream, vmp_graph_id *out_graph) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_graph == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if ((uintptr_t)stream <= 1) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the legacy default stream can't be captured; use a stream of your own");
  }
  vmp_graph_id id = 0;
  vmp_guard_lock(&pool->guard);
  vmp_status status = begin_locked(pool, stream, &id);
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) return status;
  vmp_clock_begin_capture(pool->clock, stream);
  *out_graph = id;
  return VMP_OK;
}

vmp_status vmp_capture_end(vmp_pool *pool, vmp_stream stream) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_graph *graph = vmp_capture_of(pool, stream);
  if (graph != NULL) {
    graph->capturing = false;
    graph->reusable = 0;
    pool->captures.capturing--;
    vmp_pool_bypass_caches(pool, -1);
  }
  vmp_guard_unlock(&pool->guard);
  if (graph == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the stream is in no capture of the pool");
  vmp_clock_end_capture(pool->clock, stream);
  return VMP_OK;
}

// let_go ends one hold; the last one ends the record, and gives a kept block back to its layer.
static void let_go(vmp_pool *pool, uint32_t number, vmp_fence fence) {
  vmp_captures *captures = &pool->captures;
  vmp_hold *at = vmp_hold_at(captures, number);
  uint32_t index = at->block;
  vmp_captured *block = vmp_node_at(&captures->blocks, index);
  uint32_t *link = &block->holds_list;
  while (*link != number) link = &vmp_hold_at(captures, *link)->next_of_block;
  *link = at->next_of_block;
  vmp_node_give(&captures->holds, number);
  if (--block->holds > 0) return;
  uint64_t offset = block->offset;
  if (block->live) {
    (void)vmp_books_change(pool, offset, 0, VMP_BLOCK_CAPTURED);
  } else {
    captures->kept_bytes[block->layer] -= block->bytes;
    (void)vmp_route_release(pool, (vmp_layer)block->layer, offset, fence);
  }
  (void)vmp_offset_map_remove(&captures->records, offset, NULL);
  vmp_node_give(&captures->blocks, index);
}

// everybody: the work of every stream that the pool has seen, as of now.
static vmp_fence everybody(vmp_pool *pool) { return vmp_clock_fence_of(pool->clock, pool->seen_streams); }

static void give_up(vmp_pool *pool, vmp_graph *graph, vmp_fence fence) {
  vmp_graph **link = &pool->captures.graphs;
  while (*link != graph) link = &(*link)->next;
  *link = graph->next;
  uint32_t next;
  for (uint32_t at = graph->holds; at != 0; at = next) {
    next = vmp_hold_at(&pool->captures, at)->next;
    let_go(pool, at, fence);
  }
  vmp_mem_free(graph);
}

static vmp_status release_locked(vmp_pool *pool, vmp_graph_id id) {
  vmp_graph *graph = graph_of_id(pool, id);
  if (graph == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "there is no graph %" PRIu64 " in the pool", id);
  if (graph->capturing) {
    return vmp_fail(VMP_ERROR_CAPTURE, "the capture of graph %" PRIu64 " has not ended; call vmp_capture_end", id);
  }
  if (graph->users > 0) return vmp_fail(VMP_ERROR_CAPTURE, "an allocation for graph %" PRIu64 " is under way", id);
  give_up(pool, graph, everybody(pool));
  return VMP_OK;
}

vmp_status vmp_capture_release(vmp_pool *pool, vmp_graph_id graph) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = release_locked(pool, graph);
  if (status == VMP_OK && pool->over_limit) vmp_limits_shrink(pool);
  vmp_guard_unlock(&pool->guard);
  vmp_clock_mark_new(pool->clock);
  return status;
}

void vmp_captures_close(vmp_pool *pool) {
  while (pool->captures.graphs != NULL) {
    vmp_graph *graph = pool->captures.graphs;
    if (graph->capturing) {
      pool->captures.capturing--;
      vmp_pool_bypass_caches(pool, -1);
      vmp_clock_end_capture(pool->clock, graph->stream);
    }
    give_up(pool, graph, everybody(pool));
  }
}

void vmp_captures_free(vmp_captures *captures) {
  while (captures->graphs != NULL) {
    vmp_graph *graph = captures->graphs;
    captures->graphs = graph->next;
    vmp_mem_free(graph);
  }
  vmp_node_pool_finish(&captures->blocks);
  vmp_node_pool_finish(&captures->holds);
  vmp_offset_map_free(&captures->records);
}
