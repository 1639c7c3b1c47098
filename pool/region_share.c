// region_share.c: pages of one region in another. See region.h and vmpool_region.h.
//
//     from   [ p0 | p1 | p2 |        ]          one chunk a page, mapped at both places and live at both; it is parked
//     to     [ p0 | p1 |    | own    ]          when the last of them has decommitted it
//
// Both regions are entered: the pages of `from` can't be decommitted, nor can a commit that fails take them back, while
// they are being mapped.
#include <inttypes.h>

#include "pool/log.h"
#include "pool/pool.h"
#include "vmm/memory.h"

static vmp_status check_pair(const vmp_region *from, uint64_t from_first, const vmp_region *to, uint64_t to_first,
                             uint64_t count) {
  if (from == NULL || to == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "one of the regions is NULL");
  if (vmp_guard_forked(&from->pool->guard)) return vmp_pool_fail_forked(from->pool);
  if (from->pool != to->pool || from->range->page_bytes != to->range->page_bytes) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "the regions \"%.64s\" and \"%.64s\" must be of one pool and have pages of one size", from->name,
                    to->name);
  }
  vmp_status status = vmp_region_check_pages(from, from_first, count);
  return status == VMP_OK ? vmp_region_check_pages(to, to_first, count) : status;
}

// list_pairs makes the pairs; all of `from` must be committed, and none of `to`.
static vmp_status list_pairs(const vmp_region *from, uint64_t from_first, const vmp_region *to, uint64_t to_first,
                             uint64_t count, vmp_page_pair *pairs) {
  const vmp_backing *backing = from->pool->backing;
  uint64_t page_bytes = from->range->page_bytes;
  for (uint64_t i = 0; i < count; i++) {
    pairs[i].from = from->range->offset + (from_first + i) * page_bytes;
    pairs[i].to = to->range->offset + (to_first + i) * page_bytes;
    if (vmp_backing_page_state(backing, pairs[i].from, page_bytes) != VMP_PAGE_LIVE) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE, "page %" PRIu64 " of the region \"%.64s\" is not committed",
                      from_first + i, from->name);
    }
    if (vmp_backing_page_state(backing, pairs[i].to, page_bytes) == VMP_PAGE_LIVE) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE,
                      "page %" PRIu64 " of the region \"%.64s\" is committed; decommit it first", to_first + i,
                      to->name);
    }
  }
  return VMP_OK;
}

// share_listed maps the pairs, again after each wait.
static vmp_status share_listed(vmp_region *to, const vmp_page_pair *pairs, uint64_t count, vmp_stream_index stream) {
  vmp_pool *pool = to->pool;
  uint64_t page_bytes = to->range->page_bytes, deadline_us = 0;
  vmp_status status = VMP_OK;
  while (status == VMP_OK) {
    vmp_fence pending = VMP_FENCE_NONE;
    status = vmp_backing_share_pages(pool->backing, pairs, (size_t)count, page_bytes, stream, &pending);
    if (status != VMP_PENDING) break;
    status = vmp_region_wait(to, pending, &deadline_us);
  }
  if (status != VMP_OK) return status;
  for (uint64_t i = 0; i < count; i++) vmp_log_page(pool, VMP_LOG_ALLOC, to, pairs[i].to, stream, 0);
  to->committed_bytes += count * page_bytes;
  pool->regions.committed_bytes += count * page_bytes;
  return VMP_OK;
}

vmp_status vmp_region_share(vmp_region *from, uint64_t from_first, vmp_region *to, uint64_t to_first, uint64_t count,
                            vmp_stream stream) {
  vmp_status status = check_pair(from, from_first, to, to_first, count);
  if (status != VMP_OK || count == 0) return status;
  vmp_pool *pool = from->pool;
  vmp_page_pair *pairs = vmp_mem_calloc((size_t)count, sizeof *pairs);
  if (pairs == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to share %" PRIu64 " pages", count);
  vmp_stream_index index = vmp_clock_stream(pool->clock, stream);
  vmp_guard_lock(&pool->guard);
  vmp_region_enter_both(from, to);
  status = vmp_region_check_stream(to, stream);
  if (status == VMP_OK) status = list_pairs(from, from_first, to, to_first, count, pairs);
  if (status == VMP_OK && vmp_region_over_limit(to, count * to->range->page_bytes)) status = vmp_region_fail_limit(to);
  if (status == VMP_OK) {
    pool->seen_streams |= UINT64_C(1) << index;
    pool->placing++;
    status = share_listed(to, pairs, count, index);
    pool->placing--;
  }
  vmp_region_leave_both(from, to);
  vmp_log_due(pool);
  vmp_guard_unlock(&pool->guard);
  vmp_mem_free(pairs);
  return status;
}

vmp_status vmp_region_page_references(vmp_region *region, uint64_t page, uint64_t *out_references) {
  if (region == NULL || out_references == NULL) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the region or the address of the result is NULL");
  }
  if (vmp_guard_forked(&region->pool->guard)) return vmp_pool_fail_forked(region->pool);
  vmp_status status = vmp_region_check_pages(region, page, 1);
  if (status != VMP_OK) return status;
  vmp_guard_lock(&region->pool->guard);
  uint64_t offset = region->range->offset + page * region->range->page_bytes;
  bool live = vmp_backing_page_state(region->pool->backing, offset, region->range->page_bytes) == VMP_PAGE_LIVE;
  uint64_t references = live ? vmp_backing_page_references(region->pool->backing, offset, NULL) : 0;
  vmp_guard_unlock(&region->pool->guard);
  *out_references = references;
  return VMP_OK;
}
