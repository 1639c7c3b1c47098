// realloc.c: vmp_realloc: the block, shrinking it, growing it where it is. See vmpool_realloc.h and realloc.h.
//
//     bytes <= held     the tail is split off and freed                            no driver call
//     room behind it    a block without a claim is cut out behind it, claimed (ladder.c), the stream ordered behind who
//                       used it before, and the two become one
//     else              realloc_move.c
//
// While a block grows it is marked busy in its word, and stays live: the books are right at any time, and a free from
// another thread is refused instead of pulling the memory away.
#include "pool/realloc.h"

#include <inttypes.h>

#include "pool/log.h"
#include "pool/thread_cache.h"

vmp_fence vmp_resize_users(const vmp_resize *r) {
  vmp_pool *pool = r->pool;
  vmp_fence fence = vmp_clock_fence(pool->clock, r->index);
  const uint64_t *recorded = vmp_offset_map_find(&pool->streams, r->offset);
  return recorded == NULL ? fence : vmp_fence_merge(fence, vmp_clock_fence_of(pool->clock, *recorded));
}

vmp_status vmp_resize_claim(vmp_resize *r, uint64_t offset, uint64_t bytes, vmp_fence *out_after) {
  vmp_pool *pool = r->pool;
  vmp_range_claim claim = {.offset = offset, .bytes = bytes, .fence = VMP_FENCE_NONE};
  vmp_status status = vmp_ladder_claim(pool, r->domain, vmp_block_layer(r->word), r->bytes, r->index, &claim);
  if (status == VMP_OK) *out_after = vmp_clock_others(pool->clock, claim.fence, r->index);
  return status;
}

vmp_status vmp_resize_order(vmp_resize *r, vmp_fence fence) {
  vmp_pool *pool = r->pool;
  fence = vmp_clock_others(pool->clock, fence, r->index);
  if (vmp_fence_is_none(fence)) return VMP_OK;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_poll(pool->clock, fence);
  if (status == VMP_OK) status = vmp_clock_order(pool->clock, r->stream, fence);
  vmp_guard_lock(&pool->guard);
  return status;
}

void vmp_resize_settle(vmp_resize *r, uint64_t offset, uint64_t held_bytes, bool old_streams_done, vmp_fence users) {
  vmp_pool *pool = r->pool;
  vmp_layer layer = vmp_block_layer(r->word);
  uint64_t word = vmp_block_on(vmp_block_word(layer, held_bytes - r->bytes), r->index);
  if (vmp_block_is_labelled(r->word)) {
    word |= VMP_BLOCK_HAS_LABEL;
    vmp_label_resize(&pool->tags, r->offset, offset, held_bytes - r->held_bytes, r->bytes - r->requested_bytes);
  }
  if (old_streams_done) {
    (void)vmp_offset_map_remove(&pool->streams, r->offset, NULL);
  } else {
    word |= r->word & VMP_BLOCK_HAS_STREAMS;
  }
  vmp_log_moved(pool, r->offset);
  vmp_log_free(pool, r->offset, r->held_bytes, r->word, r->index, users);
  if (offset == r->offset) {
    (void)vmp_books_change(pool, offset, word, ~word);
  } else {
    (void)vmp_books_take(pool, r->offset);
    (void)vmp_books_promise(pool, layer);  // there is room: one was just taken
    vmp_books_enter(pool, offset, word);
  }
  vmp_space_mark_handed(pool, offset);
  pool->live_bytes[layer] += held_bytes - r->held_bytes;
  vmp_tally_free(&pool->tally, layer, r->index);
  vmp_tally_alloc(&pool->tally, layer, r->index, vmp_not_negative(pool->live_bytes[layer]));
  pool->requested_bytes += r->bytes - r->requested_bytes;
  pool->frees++;
  pool->allocs++;
  vmp_alloc_raise_peaks(pool);
  vmp_plan plan = {
      .requested_bytes = r->bytes, .layer = layer, .request.stream = r->index, .label = r->label, .domain = r->domain};
  vmp_placed placed = {.offset = offset, .bytes = held_bytes};
  vmp_log_alloc(pool, &plan, &placed, r->stream);
  r->report.moved = offset != r->offset;
  r->ptr = (void *)(uintptr_t)vmp_backing_address(pool->backing, offset);
}

// ---- where it is ----

static vmp_status shrink(vmp_resize *r) {
  uint64_t keep = r->held_bytes;
  vmp_fence users = vmp_resize_users(r);
  if (vmp_resize_may_remap(r)) {
    (void)vmp_resize_keep_bytes(r, &keep);  // less than the block holds
    if (keep < r->held_bytes) {
      vmp_status status = vmp_resize_split(r, keep);
      if (status != VMP_OK) return status;
      vmp_resize_free_part(r, r->offset + keep, users);
    }
  }
  vmp_resize_settle(r, r->offset, keep, false, users);
  return VMP_OK;
}

// grow_in_place: VMP_ERROR_FRAGMENTED and _BUSY may be of this place alone. MAY UNLOCK.
static vmp_status grow_in_place(vmp_resize *r, uint64_t keep) {
  vmp_placed behind;
  vmp_fence after = VMP_FENCE_NONE;
  vmp_status status = vmp_resize_take_behind(r, keep - r->held_bytes, &behind);
  if (status != VMP_OK) return status;
  status = vmp_resize_claim(r, behind.offset, behind.bytes, &after);
  if (status != VMP_OK) {
    vmp_resize_untake(r, behind.offset, behind.fence);
    return status;
  }
  status = vmp_resize_order(r, vmp_fence_merge(behind.after, after));
  if (status != VMP_OK) {
    vmp_resize_free_part(r, behind.offset, vmp_fence_merge(behind.fence, after));
    return status;
  }
  vmp_resize_merge(r);
  vmp_resize_settle(r, r->offset, keep, false, vmp_resize_users(r));
  return VMP_OK;
}

static vmp_status grow(vmp_resize *r) {
  vmp_pool *pool = r->pool;
  uint64_t keep = 0;
  if (vmp_resize_may_remap(r) && vmp_resize_keep_bytes(r, &keep) && vmp_resize_room(r, keep) == keep) {
    vmp_status status = grow_in_place(r, keep);
    if (status != VMP_ERROR_FRAGMENTED && status != VMP_ERROR_BUSY) return status;
  }
  if (vmp_pins_at(&pool->pins, r->offset) > 0) {
    return vmp_fail(VMP_ERROR_BUSY, "the block at %p is pinned, and has no room to grow to %" PRIu64 " bytes there",
                    r->ptr, r->bytes);
  }
  return vmp_resize_move(r);
}

// ---- the call ----

// look_up finds the block and what it is. The lock is held.
static vmp_status look_up(vmp_resize *r) {
  vmp_pool *pool = r->pool;
  vmp_found found;
  bool in_pool = vmp_backing_offset(pool->backing, (uintptr_t)r->ptr, &r->offset);
  r->word = in_pool ? vmp_books_get(pool, r->offset) : 0;
  if (r->word == 0 || !vmp_route_find(pool, r->offset, &found)) {
    return vmp_alloc_fail_not_live(pool, r->ptr, in_pool, r->offset);
  }
  if ((r->word & VMP_BLOCK_IS_BUSY) != 0) return vmp_alloc_fail_busy(r->ptr);
  if ((r->word & VMP_BLOCK_CAPTURED) != 0 || vmp_capture_of(pool, r->stream) != NULL) {
    return vmp_fail(VMP_ERROR_CAPTURE,
                    "the block at %p belongs to a graph, or the stream is being captured: it must keep "
                    "its address and length",
                    r->ptr);
  }
  r->held_bytes = found.bytes;
  r->requested_bytes = found.bytes - vmp_block_slack(r->word);
  if (vmp_block_is_labelled(r->word)) r->label = vmp_label_of(&pool->tags, r->offset);
  r->domain = vmp_domain_of(pool, r->offset);
  if (r->domain != NULL && r->domain->state != VMP_TAG_RESIDENT) {
    return vmp_fail(VMP_ERROR_SUSPENDED, "the tag \"%.64s\" of the block at %p is suspended; resume it first",
                    vmp_tag_name(&pool->tags, r->domain->tag), r->ptr);
  }
  return VMP_OK;
}

static vmp_status grow_busy(vmp_resize *r) {
  vmp_pool *pool = r->pool;
  vmp_plan plan = {.requested_bytes = r->bytes, .request.bytes = r->bytes, .request.alignment = VMP_STEP_BYTES};
  vmp_status status = vmp_oom_refuse(pool, &plan);
  if (status != VMP_OK) {
    pool->failed_allocs++;
    return status;
  }
  // Another thread may free a small block without the lock.
  if (!vmp_books_change(pool, r->offset, VMP_BLOCK_IS_BUSY, 0)) {
    return vmp_alloc_fail_not_live(pool, r->ptr, true, r->offset);
  }
  pool->reallocating++;
  pool->placing++;  // the layers may know more than the books meanwhile
  if (r->domain != NULL) r->domain->placing++;
  uint64_t offset = r->offset;
  status = grow(r);
  pool->placing--;
  pool->reallocating--;
  if (pool->compacting) vmp_guard_wake_all(&pool->guard);
  if (status != VMP_OK) {
    (void)vmp_books_change(pool, offset, 0, VMP_BLOCK_IS_BUSY);
    pool->failed_allocs++;
  }
  if (r->domain != NULL) {
    r->domain->placing--;
    if (r->domain->state != VMP_TAG_RESIDENT) vmp_guard_wake_all(&pool->guard);
  }
  return status;
}

static vmp_status resize_locked(vmp_resize *r) {
  vmp_compacting_wait(r->pool);  // what it copies must not be copied or cut half way
  vmp_status status = look_up(r);
  if (status != VMP_OK) return status;
  r->pool->seen_streams |= UINT64_C(1) << r->index;
  vmp_cache_fold_own(r->pool, r->stream);  // else the peaks would miss what this thread has in use
  return r->bytes <= r->held_bytes ? shrink(r) : grow_busy(r);
}

static vmp_status resize(vmp_pool *pool, void **inout_ptr, uint64_t bytes, vmp_stream stream,
                         vmp_realloc_report *report) {
  vmp_resize r = {.pool = pool,
                  .stream = stream,
                  .index = vmp_clock_stream(pool->clock, stream),
                  .ptr = *inout_ptr,
                  .bytes = bytes};
  vmp_guard_lock(&pool->guard);
  vmp_status status = resize_locked(&r);
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) return status;
  *inout_ptr = r.ptr;
  *report = r.report;
  return VMP_OK;
}

vmp_status vmp_realloc(vmp_pool *pool, void **inout_ptr, size_t bytes, vmp_stream stream,
                       vmp_realloc_report *out_report) {
  vmp_realloc_report report = {0};
  vmp_status status = vmp_alloc_check(pool, inout_ptr, VMP_STEP_BYTES);
  if (status != VMP_OK) return status;
  if (out_report != NULL && out_report->struct_size < sizeof *out_report) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_realloc_report is not initialised; use VMP_REALLOC_REPORT_INIT");
  }
  if (*inout_ptr == NULL) {
    status = vmp_alloc(pool, inout_ptr, bytes, stream);
    report.moved = status == VMP_OK && *inout_ptr != NULL;
  } else if (bytes == 0) {
    status = vmp_free(pool, *inout_ptr, stream);
    if (status == VMP_OK) *inout_ptr = NULL;
    report.moved = status == VMP_OK;
  } else if (bytes > VMP_MAX_BLOCK_BYTES) {
    return vmp_fail(VMP_ERROR_OUT_OF_MEMORY, "%zu bytes were asked for, which is more than any address space holds",
                    bytes);
  } else {
    status = resize(pool, inout_ptr, bytes, stream, &report);
  }
  if (status != VMP_OK || out_report == NULL) return status;
  report.struct_size = out_report->struct_size;
  *out_report = report;
  return VMP_OK;
}
