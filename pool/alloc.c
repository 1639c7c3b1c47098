// alloc.c: the public calls on blocks: allocate, free, record a use, ask about a block. See vmpool.h and pool.h.
//
//     vmp_alloc   this thread's cache (thread_cache.h); the quick way (quick.h); where both miss:
//                 check -> plan (route.c) -> lock -> promise -> take (ladder.c) -> order the stream -> settle
//     vmp_free    this thread's cache; the quick way; where both miss:
//                 lock -> look up -> fence -> layer                       (allocates nothing, calls no driver)
//
// A block is entered in `blocks` only once the caller's stream is ordered behind the old work: an order that fails
// gives the block back with its old fence, and nothing else has changed.
#include <inttypes.h>
#include <stdio.h>

#include "pool/adapt.h"
#include "pool/log.h"
#include "pool/pool.h"
#include "pool/quick.h"
#include "pool/thread_cache.h"
#include "pool/thread_cache_marks.h"
#include "pool/watch.h"

vmp_status vmp_pool_fail_forked(const vmp_pool *pool) {
  return vmp_fail(VMP_ERROR_FORKED,
                  "the pool \"%.64s\" belongs to process %d; a forked child can't use it, only "
                  "destroy it",
                  vmp_pool_name(pool), (int)pool->guard.owner_process);
}

vmp_status vmp_alloc_check(const vmp_pool *pool, void **out_ptr, size_t alignment) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_ptr == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (!vmp_is_power_of_two(alignment) || alignment > VMP_MAX_ALIGNMENT) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the alignment is %zu; it must be a power of two up to %" PRIu64,
                    alignment, VMP_MAX_ALIGNMENT);
  }
  return VMP_OK;
}

// settle enters a placed block in the books.
static void settle(vmp_pool *pool, const vmp_plan *plan, const vmp_placed *placed, vmp_stream stream) {
  vmp_cache_fold_own(pool, stream);  // else the peaks would miss what this thread has in use
  uint64_t word = vmp_block_word(plan->layer, placed->bytes - plan->requested_bytes);
  word = vmp_block_on(word, plan->request.stream);
  if (!vmp_label_is_none(plan->label)) {
    word |= VMP_BLOCK_HAS_LABEL;
    vmp_label_add(&pool->tags, placed->offset, plan->label, placed->bytes, plan->requested_bytes);
  }
  vmp_books_add(pool, placed, word);
  vmp_space_mark_handed(pool, placed->offset);
  pool->unsettled_bytes[plan->layer] -= placed->bytes;
  pool->live_bytes[plan->layer] += placed->bytes;
  vmp_tally_alloc(&pool->tally, plan->layer, plan->request.stream, vmp_not_negative(pool->live_bytes[plan->layer]));
  pool->requested_bytes += plan->requested_bytes;
  pool->allocs++;
  vmp_alloc_raise_peaks(pool);
}

void vmp_alloc_raise_peaks(vmp_pool *pool) {
  uint64_t live = vmp_pool_live_bytes(pool);
  if (live > pool->peak_live_bytes) pool->peak_live_bytes = live;
  if (live > pool->step_live_bytes) pool->step_live_bytes = live;
  uint64_t requested = vmp_pool_requested_bytes(pool);
  if (requested > pool->peak_requested_bytes) pool->peak_requested_bytes = requested;
}

// promise makes room in the books for one more block; withdraw takes it back.
static vmp_status promise(vmp_pool *pool, const vmp_plan *plan) {
  vmp_status status = vmp_books_promise(pool, plan->layer);
  if (status != VMP_OK) return status;
  bool labelled = !vmp_label_is_none(plan->label);
  if (labelled) status = vmp_label_promise(&pool->tags);
  if (status == VMP_OK && plan->graph != NULL) {
    status = vmp_capture_promise(pool);
    if (status != VMP_OK && labelled) vmp_label_withdraw(&pool->tags);
  }
  if (status != VMP_OK) vmp_books_withdraw(pool, plan->layer);
  return status;
}

static void withdraw(vmp_pool *pool, const vmp_plan *plan) {
  vmp_books_withdraw(pool, plan->layer);
  if (!vmp_label_is_none(plan->label)) vmp_label_withdraw(&pool->tags);
  if (plan->graph != NULL) vmp_capture_withdraw(pool);
}

// order makes the caller's stream wait for what may still touch the block. Without the lock.
static vmp_status order(vmp_pool *pool, const vmp_placed *placed, vmp_stream_index index, vmp_stream stream,
                        bool *out_unfinished) {
  vmp_status status = vmp_clock_poll(pool->clock, placed->after);
  if (status != VMP_OK) return status;
  vmp_fence others = vmp_clock_others(pool->clock, placed->after, index);
  if (vmp_fence_is_none(others)) return VMP_OK;
  *out_unfinished = true;
  return vmp_clock_order(pool->clock, stream, others);
}

// hand_out orders the stream and settles the block, or gives it back. The lock is held before and after.
static vmp_status hand_out(vmp_pool *pool, const vmp_plan *plan, const vmp_placed *placed, vmp_stream stream) {
  vmp_status status = VMP_OK;
  bool unfinished = false;
  if (!vmp_fence_is_none(vmp_clock_others(pool->clock, placed->after, plan->request.stream))) {
    vmp_guard_unlock(&pool->guard);
    status = order(pool, placed, plan->request.stream, stream, &unfinished);
    vmp_guard_lock(&pool->guard);
  }
  if (status == VMP_OK) {
    settle(pool, plan, placed, stream);
    vmp_log_alloc(pool, plan, placed, stream);
    if (plan->graph != NULL) vmp_capture_enter(pool, plan->graph, placed->offset, placed->bytes, (int)plan->layer);
    if (unfinished) pool->unfinished_wait_allocs++;
    return VMP_OK;
  }
  (void)vmp_route_release(pool, plan->layer, placed->offset, vmp_fence_merge(placed->after, placed->fence));
  pool->unsettled_bytes[plan->layer] -= placed->bytes;
  withdraw(pool, plan);
  return status;
}

static vmp_status allocate(vmp_pool *pool, vmp_plan *plan, vmp_stream stream, void **out_ptr) {
  plan->request.stream = vmp_clock_stream(pool->clock, stream);
  vmp_guard_lock(&pool->guard);
  pool->seen_streams |= UINT64_C(1) << plan->request.stream;
  plan->graph = vmp_capture_of(pool, stream);
  vmp_placed placed;
  vmp_status status;
  (void)vmp_adapt_replan(pool, plan);
  do {
    status = vmp_oom_refuse(pool, plan);
    if (status == VMP_OK) status = promise(pool, plan);
    if (status == VMP_OK) {
      status = vmp_ladder_take(pool, plan, &placed);
      if (status != VMP_OK) withdraw(pool, plan);
    }
  } while (status != VMP_OK && vmp_adapt_replan(pool, plan));
  if (status == VMP_OK) status = hand_out(pool, plan, &placed, stream);
  uint64_t address = 0;
  if (status == VMP_OK) {
    address = vmp_backing_address(pool->backing, placed.offset);
    vmp_histogram_note(&pool->histogram, plan->requested_bytes, 1);
    if (plan->layer == VMP_LAYER_SLAB) vmp_cache_refill(pool, plan->requested_bytes, stream, plan->request.stream);
    if (vmp_quick_serves(pool, plan->requested_bytes)) vmp_cache_bring(pool, stream, plan->request.stream);
  } else {
    pool->failed_allocs++;
    vmp_log_failed(pool, plan, status, stream);
  }
  vmp_guard_unlock(&pool->guard);
  if (status < 0) vmp_watch_failed(pool, status);
  if (status == VMP_OK) *out_ptr = (void *)(uintptr_t)address;
  return status;
}

vmp_status vmp_alloc_labelled(vmp_pool *pool, void **out_ptr, uint64_t bytes, uint64_t alignment, vmp_stream stream,
                              vmp_label label, vmp_domain *domain, vmp_ticket ticket) {
  if (bytes == 0) {
    *out_ptr = NULL;
    return VMP_OK;
  }
  if (alignment < VMP_STEP_BYTES) alignment = VMP_STEP_BYTES;
  vmp_plan plan;
  if (bytes > VMP_MAX_BLOCK_BYTES || !vmp_route_plan(pool, bytes, alignment, &plan)) {
    return vmp_fail(VMP_ERROR_OUT_OF_MEMORY,
                    "%" PRIu64 " bytes were asked for, which is more than any address space holds", bytes);
  }
  plan.label = label;
  if (domain != NULL) vmp_route_into(&plan, domain);
  if (ticket != 0) vmp_aside_route(&plan, ticket, stream);
  return allocate(pool, &plan, stream, out_ptr);
}

vmp_status vmp_alloc_aligned(vmp_pool *pool, void **out_ptr, size_t bytes, size_t alignment, vmp_stream stream) {
  vmp_status status = vmp_alloc_check(pool, out_ptr, alignment);
  if (status != VMP_OK) return status;
  return vmp_alloc_labelled(pool, out_ptr, bytes, alignment, stream, (vmp_label){0, 0}, NULL, 0);
}

vmp_status vmp_alloc_missed(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  if (pool != NULL && out_ptr != NULL) {
    if (!vmp_cache_is_last(pool, stream)) {
      vmp_cache *cache = vmp_cache_switch(pool, stream);
      if (cache != NULL && vmp_cache_alloc(pool, cache, out_ptr, bytes) == VMP_CACHE_HIT) return VMP_OK;
      if (cache != NULL && vmp_cache_alloc_marked(pool, cache, out_ptr, bytes)) return VMP_OK;
      if (cache != NULL) return vmp_quick_alloc(pool, out_ptr, bytes, stream);  // comes back only with the last one
    }
    if (pool->strong_caches && vmp_cache_alloc_strong(pool, out_ptr, bytes, stream)) return VMP_OK;
  }
  return vmp_alloc_aligned(pool, out_ptr, bytes, VMP_STEP_BYTES, stream);
}

// alloc_closed goes on where the cache's gate isn't just open.
__attribute__((noinline)) static vmp_status alloc_closed(vmp_pool *pool, void **out_ptr, size_t bytes,
                                                         vmp_stream stream) {
  if (vmp_cache_alloc_marked(pool, vmp_cache_last.cache, out_ptr, bytes)) return VMP_OK;
  return vmp_quick_alloc(pool, out_ptr, bytes, stream);
}

vmp_status vmp_alloc(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  if (vmp_cache_is_last(pool, stream) && out_ptr != NULL) {
    vmp_cache_outcome outcome = vmp_cache_alloc(pool, vmp_cache_last.cache, out_ptr, bytes);
    if (outcome == VMP_CACHE_HIT) return VMP_OK;
    if (outcome == VMP_CACHE_CLOSED) return alloc_closed(pool, out_ptr, bytes, stream);
  }
  return vmp_quick_alloc(pool, out_ptr, bytes, stream);
}

// ---- free ----

vmp_status vmp_alloc_fail_busy(const void *ptr) {
  return vmp_fail(VMP_ERROR_BUSY, "the block at %p is being reallocated by another thread", ptr);
}

vmp_status vmp_alloc_fail_not_live(const vmp_pool *pool, const void *ptr, bool in_pool, uint64_t offset) {
  vmp_found found;
  if (!in_pool) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%p lies outside the address space of the pool \"%.64s\"", ptr,
                    vmp_pool_name(pool));
  }
  if (vmp_route_find(pool, offset, &found) && vmp_books_get(pool, found.offset) != 0) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK,
                    "%p lies %" PRIu64 " bytes inside a block of %" PRIu64
                    " bytes; pass the "
                    "block's own address, 0x%" PRIx64,
                    ptr, offset - found.offset, found.bytes, vmp_backing_address(pool->backing, found.offset));
  }
  const vmp_region *region = vmp_regions_find(pool, offset);
  if (region != NULL) {
    return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%p lies in the region \"%.64s\"; use vmp_region_decommit", ptr,
                    region->name);
  }
  if (vmp_debug_holds(pool, offset) || (vmp_space_was_handed(pool, offset) && vmp_route_is_free_start(pool, offset))) {
    return vmp_fail(VMP_ERROR_DOUBLE_FREE, "%p has been freed already", ptr);
  }
  return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%p was never handed out by the pool \"%.64s\" as a block's address", ptr,
                  vmp_pool_name(pool));
}

// fence_of_free: the freeing stream and every recorded one, each as of now.
static vmp_fence fence_of_free(vmp_pool *pool, uint64_t offset, uint64_t word, vmp_stream_index index) {
  vmp_fence fence = vmp_clock_fence(pool->clock, index);
  pool->seen_streams |= UINT64_C(1) << index;
  if (!vmp_block_has_streams(word)) return fence;
  uint64_t recorded = 0;
  (void)vmp_offset_map_remove(&pool->streams, offset, &recorded);
  return vmp_fence_merge(fence, vmp_clock_fence_of(pool->clock, recorded));
}

// take_label forgets a block's tag and name while its layer still knows the block.
static void take_label(vmp_pool *pool, uint64_t offset, uint64_t word) {
  vmp_found found = {.bytes = 0};
  (void)vmp_route_find(pool, offset, &found);
  vmp_label_remove(&pool->tags, offset, found.bytes, found.bytes - vmp_block_slack(word));
}

// took_out: a block that is not live any more goes back to its layer.
static void took_out(vmp_pool *pool, uint64_t offset, uint64_t word, vmp_stream_index index, vmp_fence fence) {
  vmp_layer layer = vmp_block_layer(word);
  if (vmp_block_is_labelled(word)) take_label(pool, offset, word);
  uint64_t bytes = pool->debug.ring == NULL ? vmp_route_release(pool, layer, offset, fence)
                                            : vmp_debug_keep(pool, (int)layer, offset, fence);
  pool->live_bytes[layer] -= bytes;
  vmp_tally_free(&pool->tally, layer, index);
  pool->requested_bytes -= bytes - vmp_block_slack(word);
  pool->frees++;
  vmp_log_free(pool, offset, bytes, word, index, fence);
  if (pool->over_limit) vmp_limits_shrink(pool);
}

vmp_status vmp_alloc_free_locked(vmp_pool *pool, void *ptr, vmp_stream_index index, vmp_stream stream) {
  uint64_t offset = 0;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)ptr, &offset);
  vmp_status kept;
  if (pool->reallocating > 0 && in_pool && (vmp_books_get(pool, offset) & VMP_BLOCK_IS_BUSY) != 0) {
    return vmp_alloc_fail_busy(ptr);
  }
  if (in_pool && pool->captures.graphs != NULL && vmp_capture_free(pool, offset, stream, index, &kept)) return kept;
  uint64_t word = in_pool ? vmp_books_take(pool, offset) : 0;
  if (word == 0) return vmp_alloc_fail_not_live(pool, ptr, in_pool, offset);
  if (pool->config.poison != 0 && !vmp_block_has_streams(word)) vmp_debug_poison(pool, offset, stream);
  took_out(pool, offset, word, index, fence_of_free(pool, offset, word, index));
  return VMP_OK;
}

vmp_status vmp_free_missed(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *first) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (ptr == NULL) return VMP_OK;
  bool is_last = vmp_cache_is_last(pool, stream);
  vmp_cache *cache = is_last ? vmp_cache_last.cache : vmp_cache_switch(pool, stream);
  if (cache != NULL && first == &vmp_span_no_entry) {
    vmp_span_entry *at = vmp_span_map_entry(&pool->span_map, (uintptr_t)ptr);
    const vmp_span_map *map = &pool->span_map;
    if (vmp_cache_free(cache, map, at, ptr) == VMP_CACHE_HIT) return VMP_OK;
    if (vmp_cache_free_marked(cache, map, at, ptr)) return VMP_OK;
    if (!is_last) return vmp_quick_free(pool, ptr, stream, at);  // comes back with the last one
  }
  if (pool->strong_caches && vmp_cache_free_strong(pool, ptr, stream)) return VMP_OK;
  vmp_stream_index index = vmp_clock_stream(pool->clock, stream);
  vmp_guard_lock(&pool->guard);
  vmp_cache_fold_own(pool, stream);  // before less is live: else its peak would be told too low
  vmp_status status = vmp_alloc_free_locked(pool, ptr, index, stream);
  if (status == VMP_OK) vmp_cache_make_room(pool, (uintptr_t)ptr, stream, index);
  vmp_guard_unlock(&pool->guard);
  vmp_clock_mark_new(pool->clock);
  return status;
}

// free_closed goes on where the cache's gate isn't just open.
__attribute__((noinline)) static vmp_status free_closed(vmp_cache *cache, vmp_span_entry *at, void *ptr) {
  vmp_pool *pool = cache->pool;
  if (vmp_cache_free_marked(cache, &pool->span_map, at, ptr)) return VMP_OK;
  return vmp_quick_free(pool, ptr, cache->stream, at);
}

vmp_status vmp_free(vmp_pool *pool, void *ptr, vmp_stream stream) {
  if (__builtin_expect(vmp_cache_is_last(pool, stream), true)) {
    vmp_cache *cache = vmp_cache_last.cache;
    vmp_span_entry *at = vmp_span_map_first(&pool->span_map, (uintptr_t)ptr);
    vmp_cache_outcome outcome = vmp_cache_free(cache, &pool->span_map, at, ptr);
    if (outcome == VMP_CACHE_HIT) return VMP_OK;
    // The cache has them, too: a hit then needn't keep them.
    if (outcome == VMP_CACHE_CLOSED) return free_closed(cache, at, ptr);
    return vmp_quick_free(cache->pool, ptr, cache->stream, at);
  }
  return vmp_free_missed(pool, ptr, stream, &vmp_span_no_entry);
}

// ---- record_use, query ----

static vmp_status record_locked(vmp_pool *pool, void *ptr, vmp_stream_index index, vmp_stream stream) {
  uint64_t offset = 0;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)ptr, &offset);
  uint64_t word = in_pool ? vmp_books_get(pool, offset) : 0;
  if (word == 0) return vmp_alloc_fail_not_live(pool, ptr, in_pool, offset);
  if ((word & VMP_BLOCK_IS_BUSY) != 0) return vmp_alloc_fail_busy(ptr);
  pool->seen_streams |= UINT64_C(1) << index;
  vmp_graph *graph = vmp_capture_of(pool, stream);
  if (graph != NULL) return vmp_capture_use(pool, graph, offset);
  uint64_t *mask = vmp_offset_map_find(&pool->streams, offset);
  if (mask != NULL) {
    *mask |= UINT64_C(1) << index;
    vmp_log_use(pool, offset, index, stream);
    return VMP_OK;
  }
  vmp_status status = vmp_offset_map_promise(&pool->streams);
  if (status != VMP_OK) return status;
  // Another thread may free the block without the lock meanwhile.
  if (!vmp_books_change(pool, offset, VMP_BLOCK_HAS_STREAMS, 0)) {
    vmp_offset_map_withdraw(&pool->streams);
    return vmp_alloc_fail_not_live(pool, ptr, in_pool, offset);
  }
  vmp_offset_map_add(&pool->streams, offset, UINT64_C(1) << index);
  vmp_log_use(pool, offset, index, stream);
  return VMP_OK;
}

vmp_status vmp_record_use(vmp_pool *pool, void *ptr, vmp_stream stream) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_stream_index index = vmp_clock_stream(pool->clock, stream);
  vmp_guard_lock(&pool->guard);
  vmp_status status = record_locked(pool, ptr, index, stream);
  vmp_guard_unlock(&pool->guard);
  return status;
}

vmp_status vmp_stream_retired(vmp_pool *pool, vmp_stream stream) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  bool captures = vmp_capture_of(pool, stream) != NULL;
  if (!captures) vmp_caches_retire(pool, stream);
  vmp_guard_unlock(&pool->guard);
  if (captures) return vmp_fail(VMP_ERROR_CAPTURE, "the stream captures; call vmp_capture_end before it is retired");
  return vmp_clock_retire_stream(pool->clock, stream);
}

static vmp_status query_locked(vmp_pool *pool, const void *ptr, vmp_block_info *out) {
  uint64_t offset = 0;
  vmp_found found;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)ptr, &offset);
  uint64_t word = 0;
  if (in_pool && vmp_route_find(pool, offset, &found)) word = vmp_books_get(pool, found.offset);
  if (word == 0) return vmp_fail(VMP_ERROR_NOT_A_BLOCK, "%p lies in no live block of the pool", ptr);
  out->base = (void *)(uintptr_t)vmp_backing_address(pool->backing, found.offset);
  out->bytes = found.bytes;
  out->requested_bytes = found.bytes - vmp_block_slack(word);
  out->layer = vmp_layer_name(found.layer);
  if (out->struct_size < sizeof *out) return VMP_OK;
  vmp_label label = vmp_block_is_labelled(word) ? vmp_label_of(&pool->tags, found.offset) : (vmp_label){0, 0};
  out->name = vmp_name_text(&pool->tags.names, label.name);
  out->pins = (uint32_t)vmp_pins_at(&pool->pins, found.offset);
  out->tag = label.tag;
  out->tag_name = label.tag == 0 ? NULL : vmp_tag_name(&pool->tags, label.tag);
  return VMP_OK;
}

vmp_status vmp_block_query(vmp_pool *pool, const void *ptr, vmp_block_info *out_info) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_info == NULL || out_info->struct_size < offsetof(vmp_block_info, name)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_block_info is NULL or not initialised; use VMP_BLOCK_INFO_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_guard_lock(&pool->guard);
  vmp_status status = query_locked(pool, ptr, out_info);
  vmp_guard_unlock(&pool->guard);
  return status;
}
