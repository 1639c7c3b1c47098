// region_commit.c: pages get memory and lose it. See region.h and vmpool_region.h.
//
//     commit    lock -> enter -> which pages lack memory -> limit -> ladder (backing_pages: claim) -> order the stream
//               -> books -> leave
//     decommit  lock -> enter -> fence -> release page by page -> books -> leave     (no driver call, no host memory)
//
// A commit is all or nothing: what was claimed is released again, with the fences it came with, when the stream can't
// be ordered behind the old work.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/log.h"
#include "pool/pool.h"
#include "vmm/memory.h"

// page_list: pages that a call has to claim, as offsets.
typedef struct page_list {
  uint64_t *offsets;  // rising
  size_t count, capacity;
} page_list;

// wanted: what a call names: runs, or single pages.
typedef struct wanted {
  const vmp_region_pages *runs;
  const uint64_t *pages;
  size_t count;
} wanted;

static vmp_region_pages run_of(const wanted *w, size_t i) {
  return w->runs != NULL ? w->runs[i] : (vmp_region_pages){w->pages[i], 1};
}

static uint64_t page_offset(const vmp_region *region, uint64_t page) {
  return region->range->offset + page * region->range->page_bytes;
}

vmp_status vmp_region_check_pages(const vmp_region *region, uint64_t first, uint64_t count) {
  uint64_t pages = region->max_bytes / region->range->page_bytes;
  if (first <= pages && count <= pages - first) return VMP_OK;
  return vmp_fail(VMP_ERROR_INVALID_VALUE,
                  "%" PRIu64 " pages from page %" PRIu64 " on are beyond the region \"%.64s\", which has %" PRIu64,
                  count, first, region->name, pages);
}

static vmp_status check_wanted(const vmp_region *region, const wanted *w) {
  if (region == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the region is NULL");
  if (w->count > 0 && w->runs == NULL && w->pages == NULL) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pages are NULL and there are %zu of them", w->count);
  }
  if (vmp_guard_forked(&region->pool->guard)) return vmp_pool_fail_forked(region->pool);
  vmp_status status = VMP_OK;
  for (size_t i = 0; i < w->count && status == VMP_OK; i++) {
    vmp_region_pages run = run_of(w, i);
    status = vmp_region_check_pages(region, run.first, run.count);
  }
  return status;
}

// ---- one operation at a time ----

void vmp_region_enter(vmp_region *region) {
  while (region->busy) vmp_guard_wait(&region->pool->guard);
  region->busy = true;
}

void vmp_region_leave(vmp_region *region) {
  region->busy = false;
  vmp_guard_wake_all(&region->pool->guard);
}

void vmp_region_enter_both(vmp_region *a, vmp_region *b) {
  while (a->busy || b->busy) vmp_guard_wait(&a->pool->guard);
  a->busy = b->busy = true;
}

void vmp_region_leave_both(vmp_region *a, vmp_region *b) {
  a->busy = b->busy = false;
  vmp_guard_wake_all(&a->pool->guard);
}

vmp_status vmp_region_check_stream(const vmp_region *region, vmp_stream stream) {
  if (vmp_capture_of(region->pool, stream) == NULL) return VMP_OK;
  return vmp_fail(VMP_ERROR_CAPTURE,
                  "the stream captures; pages of the region \"%.64s\" are committed, shared and "
                  "decommitted outside of captures",
                  region->name);
}

// ---- which pages ----

static bool is_live(const vmp_region *region, uint64_t offset) {
  return vmp_backing_page_state(region->pool->backing, offset, region->range->page_bytes) == VMP_PAGE_LIVE;
}

static bool add_page(page_list *list, uint64_t offset) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity == 0 ? 64 : list->capacity * 2;
    uint64_t *offsets = vmp_mem_resize(list->offsets, list->capacity, capacity, sizeof *offsets);
    if (offsets == NULL) return false;
    list->offsets = offsets;
    list->capacity = capacity;
  }
  list->offsets[list->count++] = offset;
  return true;
}

static int by_offset(const void *a, const void *b) {
  uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
  return left < right ? -1 : left > right;
}

static void sort_and_join(page_list *list) {
  bool rising = true;
  for (size_t i = 1; i < list->count && rising; i++) rising = list->offsets[i] > list->offsets[i - 1];
  if (rising) return;
  qsort(list->offsets, list->count, sizeof *list->offsets, by_offset);
  size_t kept = 0;
  for (size_t i = 0; i < list->count; i++) {
    if (kept == 0 || list->offsets[kept - 1] != list->offsets[i]) list->offsets[kept++] = list->offsets[i];
  }
  list->count = kept;
}

// lacking lists the pages that have no memory yet. More than the limit allows are not listed: *out_over is set.
static vmp_status lacking(const vmp_region *region, const wanted *w, page_list *list, bool *out_over) {
  uint64_t page_bytes = region->range->page_bytes, end = region->range->offset + region->max_bytes;
  uint64_t most = region->limit_bytes > region->committed_bytes ? region->limit_bytes - region->committed_bytes : 0;
  *out_over = false;
  for (size_t i = 0; i < w->count; i++) {
    vmp_region_pages run = run_of(w, i);
    for (uint64_t page = 0; page < run.count; page++) {
      uint64_t offset = page_offset(region, run.first + page);
      if (offset >= end || is_live(region, offset)) continue;
      if (!add_page(list, offset)) {
        return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a list of %" PRIu64 " pages", run.count);
      }
      if (list->count > most / page_bytes) {
        sort_and_join(list);  // what is named twice counts once
        *out_over = list->count > most / page_bytes;
        if (*out_over) return VMP_OK;
      }
    }
  }
  sort_and_join(list);
  return VMP_OK;
}

// ---- commit ----

vmp_status vmp_region_place(vmp_pool *pool, vmp_page_claim *claim, vmp_effort effort) {
  claim->request.effort = effort;
  return vmp_backing_claim_pages(pool->backing, &claim->request, &claim->after);
}

static uint64_t now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

vmp_status vmp_region_wait(vmp_region *region, vmp_fence fence, uint64_t *deadline_us) {
  vmp_pool *pool = region->pool;
  if (!region->wait) return VMP_PENDING;
  uint64_t now = now_us();
  if (*deadline_us == 0 && !vmp_add(now, pool->config.wait, deadline_us)) *deadline_us = UINT64_MAX;
  if (now >= *deadline_us) {
    return vmp_fail(VMP_ERROR_TIMEOUT, "pages of the region \"%.64s\" are still retiring after %" PRIu64 " us",
                    region->name, pool->config.wait);
  }
  pool->host_waits++;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_wait(pool->clock, fence, *deadline_us - now);
  vmp_guard_lock(&pool->guard);
  return status;
}

// claim_pages goes through the ladder, again after each wait.
static vmp_status claim_pages(vmp_region *region, vmp_page_claim *claim) {
  vmp_pool *pool = region->pool;
  vmp_plan plan = {.requested_bytes = claim->request.count * claim->request.page_bytes, .layer = VMP_LAYER_BUDDY};
  plan.pages = claim;
  plan.request =
      (vmp_request){.bytes = plan.requested_bytes, .alignment = VMP_STEP_BYTES, .stream = claim->request.stream};
  uint64_t deadline_us = 0;
  vmp_status status = vmp_oom_refuse(pool, &plan);
  while (status == VMP_OK) {
    vmp_placed ignored;
    status = vmp_ladder_take(pool, &plan, &ignored);
    if (status != VMP_PENDING) return status;
    status = vmp_region_wait(region, claim->after, &deadline_us);
  }
  return status;
}

// order makes the stream wait for what may still touch the pages. Without the lock meanwhile.
static vmp_status order(vmp_pool *pool, const vmp_page_claim *claim, vmp_stream stream) {
  vmp_stream_index index = claim->request.stream;
  if (vmp_fence_is_none(vmp_clock_others(pool->clock, claim->after, index))) return VMP_OK;
  vmp_guard_unlock(&pool->guard);
  vmp_status status = vmp_clock_poll(pool->clock, claim->after);
  vmp_fence others = vmp_clock_others(pool->clock, claim->after, index);
  if (status == VMP_OK && !vmp_fence_is_none(others)) status = vmp_clock_order(pool->clock, stream, others);
  vmp_guard_lock(&pool->guard);
  return status;
}

static void count_peaks(vmp_pool *pool) {
  uint64_t live = vmp_pool_live_bytes(pool), requested = vmp_pool_requested_bytes(pool);
  if (live > pool->peak_live_bytes) pool->peak_live_bytes = live;
  if (live > pool->step_live_bytes) pool->step_live_bytes = live;
  if (requested > pool->peak_requested_bytes) pool->peak_requested_bytes = requested;
}

bool vmp_region_over_limit(const vmp_region *region, uint64_t bytes) {
  uint64_t after;
  return !vmp_add(region->committed_bytes, bytes, &after) || after > region->limit_bytes;
}

vmp_status vmp_region_fail_limit(const vmp_region *region) {
  return vmp_fail(VMP_ERROR_LIMIT,
                  "the region \"%.64s\" has %" PRIu64 " bytes committed and a limit of %" PRIu64
                  "; decommit pages or raise it with vmp_region_set_limit",
                  region->name, region->committed_bytes, region->limit_bytes);
}

static vmp_status commit_listed(vmp_region *region, const page_list *list, vmp_stream stream, vmp_stream_index index) {
  vmp_pool *pool = region->pool;
  uint64_t bytes = list->count * region->range->page_bytes;
  vmp_page_claim claim = {
      .request = {
          .offsets = list->offsets, .count = list->count, .page_bytes = region->range->page_bytes, .stream = index}};
  vmp_status status = claim_pages(region, &claim);
  if (status != VMP_OK) return status;
  status = order(pool, &claim, stream);
  if (status != VMP_OK) {
    for (size_t i = 0; i < list->count; i++) vmp_backing_release_page(pool->backing, list->offsets[i], VMP_FENCE_NONE);
    return status;
  }
  for (size_t i = 0; i < list->count; i++) vmp_log_page(pool, VMP_LOG_ALLOC, region, list->offsets[i], index, 0);
  region->committed_bytes += bytes;
  pool->regions.committed_bytes += bytes;
  pool->regions.live_bytes += bytes;
  count_peaks(pool);
  return VMP_OK;
}

// commit_entered commits; the lock is held and the region entered.
static vmp_status commit_entered(vmp_region *region, const wanted *w, vmp_stream stream, vmp_stream_index index) {
  page_list list = {0};
  bool over = false;
  vmp_status status = lacking(region, w, &list, &over);
  if (status == VMP_OK && over) status = vmp_region_fail_limit(region);
  if (status == VMP_OK && list.count > 0) {
    region->pool->seen_streams |= UINT64_C(1) << index;
    region->pool->placing++;
    status = commit_listed(region, &list, stream, index);
    region->pool->placing--;
  }
  vmp_mem_free(list.offsets);
  return status;
}

static vmp_status commit(vmp_region *region, const wanted *w, vmp_stream stream) {
  vmp_status status = check_wanted(region, w);
  if (status != VMP_OK) return status;
  vmp_guard *guard = &region->pool->guard;
  vmp_stream_index index = vmp_clock_stream(region->pool->clock, stream);
  vmp_guard_lock(guard);
  status = vmp_region_check_stream(region, stream);
  if (status == VMP_OK) {
    vmp_region_enter(region);
    status = commit_entered(region, w, stream, index);
    vmp_region_leave(region);
    vmp_log_due(region->pool);
  }
  vmp_guard_unlock(guard);
  return status;
}

vmp_status vmp_region_commit(vmp_region *region, const vmp_region_pages *runs, size_t num_runs, vmp_stream stream) {
  wanted w = {.runs = runs, .count = num_runs};
  return commit(region, &w, stream);
}

vmp_status vmp_region_commit_list(vmp_region *region, const uint64_t *pages, size_t num_pages, vmp_stream stream) {
  wanted w = {.pages = pages, .count = num_pages};
  return commit(region, &w, stream);
}

// ---- decommit ----

vmp_fence vmp_region_fence(vmp_region *region, vmp_stream_index stream) {
  vmp_pool *pool = region->pool;
  vmp_fence fence = vmp_clock_fence(pool->clock, stream);
  pool->seen_streams |= UINT64_C(1) << stream;
  fence = vmp_fence_merge(fence, vmp_clock_fence_of(pool->clock, region->streams));
  region->range->fence = vmp_fence_merge(region->range->fence, fence);
  return fence;
}

// release_between decommits what is live of [offset, end).
static void release_between(vmp_region *region, uint64_t offset, uint64_t end, vmp_fence fence) {
  vmp_pool *pool = region->pool;
  uint64_t page_bytes = region->range->page_bytes;
  while ((offset = vmp_backing_next_page(pool->backing, offset, end, page_bytes)) < end) {
    if (is_live(region, offset)) {
      if (vmp_backing_release_page(pool->backing, offset, fence)) pool->regions.live_bytes -= page_bytes;
      region->committed_bytes -= page_bytes;
      pool->regions.committed_bytes -= page_bytes;
      vmp_log_page(pool, VMP_LOG_FREE, region, offset, 0, fence.streams);
    }
    offset += page_bytes;
  }
}

void vmp_region_release_all(vmp_region *region, vmp_fence fence) {
  release_between(region, region->range->offset, region->range->offset + region->max_bytes, fence);
}

static void shrink_if_over(vmp_pool *pool) {
  if (pool->over_limit) vmp_limits_shrink(pool);
}

static vmp_status decommit(vmp_region *region, const wanted *w, vmp_stream stream) {
  vmp_status status = check_wanted(region, w);
  if (status != VMP_OK) return status;
  vmp_guard *guard = &region->pool->guard;
  vmp_stream_index index = vmp_clock_stream(region->pool->clock, stream);
  vmp_guard_lock(guard);
  status = vmp_region_check_stream(region, stream);
  if (status == VMP_OK) {
    vmp_region_enter(region);
    vmp_fence fence = vmp_region_fence(region, index);
    for (size_t i = 0; i < w->count; i++) {
      vmp_region_pages run = run_of(w, i);
      release_between(region, page_offset(region, run.first), page_offset(region, run.first + run.count), fence);
    }
    vmp_region_leave(region);
    vmp_log_due(region->pool);
    shrink_if_over(region->pool);
  }
  vmp_guard_unlock(guard);
  return status;
}

vmp_status vmp_region_decommit(vmp_region *region, const vmp_region_pages *runs, size_t num_runs, vmp_stream stream) {
  wanted w = {.runs = runs, .count = num_runs};
  return decommit(region, &w, stream);
}

vmp_status vmp_region_decommit_list(vmp_region *region, const uint64_t *pages, size_t num_pages, vmp_stream stream) {
  wanted w = {.pages = pages, .count = num_pages};
  return decommit(region, &w, stream);
}

// ---- resize ----

// resize_entered commits what lacks below `bytes`, and then decommits what is above.
static vmp_status resize_entered(vmp_region *region, uint64_t bytes, vmp_stream stream, vmp_stream_index index) {
  vmp_region_pages below = {0, bytes / region->range->page_bytes};
  wanted w = {.runs = &below, .count = 1};
  vmp_status status = commit_entered(region, &w, stream, index);
  if (status != VMP_OK) return status;
  uint64_t start = region->range->offset;
  release_between(region, start + bytes, start + region->max_bytes, vmp_region_fence(region, index));
  return VMP_OK;
}

vmp_status vmp_region_resize(vmp_region *region, uint64_t bytes, vmp_stream stream) {
  wanted nothing = {0};
  vmp_status status = check_wanted(region, &nothing);
  if (status != VMP_OK) return status;
  uint64_t page_bytes = region->range->page_bytes, rounded;
  if (!vmp_align_up(bytes, page_bytes, &rounded) || rounded > region->max_bytes) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "%" PRIu64 " bytes are beyond the region \"%.64s\", which reserves %" PRIu64, bytes, region->name,
                    region->max_bytes);
  }
  vmp_guard *guard = &region->pool->guard;
  vmp_stream_index index = vmp_clock_stream(region->pool->clock, stream);
  vmp_guard_lock(guard);
  status = vmp_region_check_stream(region, stream);
  if (status == VMP_OK) {
    vmp_region_enter(region);
    status = resize_entered(region, rounded, stream, index);
    vmp_region_leave(region);
    vmp_log_due(region->pool);
    shrink_if_over(region->pool);
  }
  vmp_guard_unlock(guard);
  return status;
}
