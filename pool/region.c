// region.c: regions are made and ended, asked about, counted and checked. See region.h and vmpool_region.h.
#include "pool/region.h"

#include <inttypes.h>
#include <string.h>

#include "pool/pool.h"
#include "vmm/memory.h"

#define MAX_REGION_BYTES (UINT64_C(1) << 62)

// ---- create ----

static vmp_status check_options(const vmp_pool *pool, vmp_region **out_region, const vmp_region_options *options) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_region == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the address of the result is NULL");
  if (options == NULL || options->struct_size < sizeof *options) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_region_options is NULL or not initialised; use VMP_REGION_OPTIONS_INIT");
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  uint64_t granule = pool->device.granule_bytes, page = options->page_bytes;
  if (page != 0 && (!vmp_is_power_of_two(page) || page < granule || page > VMP_MAX_ALIGNMENT)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "page_bytes is %" PRIu64 "; it must be a power of two from the granule, %" PRIu64 ", to %" PRIu64
                    ", or 0 for one granule",
                    page, granule, VMP_MAX_ALIGNMENT);
  }
  if (options->max_bytes == 0 || options->max_bytes > MAX_REGION_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "max_bytes is %" PRIu64 "; it must be from 1 to %" PRIu64,
                    options->max_bytes, MAX_REGION_BYTES);
  }
  return VMP_OK;
}

static char *copy_name(const char *name) {
  if (name == NULL) name = "region";
  size_t bytes = strlen(name) + 1;
  char *copy = vmp_mem_calloc(bytes, 1);
  if (copy != NULL) memcpy(copy, name, bytes);
  return copy;
}

static void set_limit(vmp_region *region, uint64_t limit_bytes) {
  region->limit_bytes = limit_bytes < region->max_bytes ? limit_bytes : region->max_bytes;
}

static void link_region(vmp_pool *pool, vmp_region *region) {
  region->next = pool->regions.first;
  if (region->next != NULL) region->next->prev = region;
  pool->regions.first = region;
  pool->regions.count++;
  pool->regions.reserved_bytes += region->max_bytes;
}

static void unlink_region(vmp_pool *pool, vmp_region *region) {
  if (region->next != NULL) region->next->prev = region->prev;
  if (region->prev != NULL) {
    region->prev->next = region->next;
  } else {
    pool->regions.first = region->next;
  }
  pool->regions.count--;
  pool->regions.reserved_bytes -= region->max_bytes;
}

static void free_region(vmp_region *region) {
  vmp_mem_free(region->name);
  vmp_mem_free(region);
}

vmp_status vmp_region_create(vmp_pool *pool, vmp_region **out_region, const vmp_region_options *options) {
  vmp_status status = check_options(pool, out_region, options);
  if (status != VMP_OK) return status;
  uint64_t page_bytes = options->page_bytes == 0 ? pool->device.granule_bytes : options->page_bytes, max_bytes = 0;
  (void)vmp_align_up(options->max_bytes, page_bytes, &max_bytes);  // both are far below the end
  vmp_region *region = vmp_mem_calloc(1, sizeof *region);
  char *name = copy_name(options->name);
  if (region == NULL || name == NULL) {
    vmp_mem_free(region);
    vmp_mem_free(name);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a region");
  }
  *region = (vmp_region){.pool = pool, .name = name, .max_bytes = max_bytes, .wait = options->wait != 0};
  set_limit(region, options->limit_bytes == 0 ? max_bytes : options->limit_bytes);
  vmp_guard_lock(&pool->guard);
  uint64_t share_bytes = options->share_bytes < max_bytes ? options->share_bytes : max_bytes;
  status = vmp_region_take_range(pool, max_bytes, page_bytes, vmp_align_down(share_bytes, page_bytes), &region->range);
  if (status == VMP_OK) link_region(pool, region);
  vmp_guard_unlock(&pool->guard);
  if (status != VMP_OK) {
    free_region(region);
    return status;
  }
  *out_region = region;
  return VMP_OK;
}

// ---- destroy ----

vmp_status vmp_region_destroy(vmp_region *region, vmp_stream stream) {
  if (region == NULL) return VMP_OK;
  vmp_pool *pool = region->pool;
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  vmp_stream_index index = vmp_clock_stream(pool->clock, stream);
  vmp_guard_lock(&pool->guard);
  vmp_status status = vmp_region_check_stream(region, stream);
  if (status != VMP_OK) {
    vmp_guard_unlock(&pool->guard);
    return status;
  }
  vmp_prefetch_cancel(region);
  vmp_region_enter(region);
  vmp_region_release_all(region, vmp_region_fence(region, index));
  unlink_region(pool, region);
  vmp_region_give_range(pool, region->range);
  if (pool->over_limit) vmp_limits_shrink(pool);
  vmp_guard_unlock(&pool->guard);
  free_region(region);
  return VMP_OK;
}

void vmp_regions_dispose(vmp_pool *pool) {
  while (pool->regions.first != NULL) {
    vmp_region *region = pool->regions.first;
    pool->regions.first = region->next;
    vmp_mem_free(region->range);
    free_region(region);
  }
  while (pool->regions.idle != NULL) {
    vmp_region_range *range = pool->regions.idle;
    pool->regions.idle = range->next;
    vmp_mem_free(range);
  }
}

// ---- questions ----

void *vmp_region_base(const vmp_region *region) {
  if (region == NULL || vmp_guard_forked(&region->pool->guard)) return NULL;
  vmp_guard_lock(&region->pool->guard);
  uint64_t address = vmp_backing_address(region->pool->backing, region->range->offset);
  vmp_guard_unlock(&region->pool->guard);
  return (void *)(uintptr_t)address;
}

static vmp_status check_region(const vmp_region *region) {
  if (region == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the region is NULL");
  return vmp_guard_forked(&region->pool->guard) ? vmp_pool_fail_forked(region->pool) : VMP_OK;
}

vmp_status vmp_region_record_use(vmp_region *region, vmp_stream stream) {
  vmp_status status = check_region(region);
  if (status != VMP_OK) return status;
  uint64_t bit = UINT64_C(1) << vmp_clock_stream(region->pool->clock, stream);
  vmp_guard_lock(&region->pool->guard);
  region->streams |= bit;
  region->pool->seen_streams |= bit;
  vmp_guard_unlock(&region->pool->guard);
  return VMP_OK;
}

vmp_status vmp_region_set_limit(vmp_region *region, uint64_t limit_bytes) {
  vmp_status status = check_region(region);
  if (status != VMP_OK) return status;
  vmp_guard_lock(&region->pool->guard);
  set_limit(region, limit_bytes);
  vmp_guard_unlock(&region->pool->guard);
  return VMP_OK;
}

// sum_pages adds up what is mapped of a region.
static void sum_pages(const vmp_region *region, vmp_region_info *out) {
  const vmp_backing *backing = region->pool->backing;
  uint64_t page_bytes = region->range->page_bytes, at = region->range->offset, end = at + region->max_bytes;
  for (; (at = vmp_backing_next_page(backing, at, end, page_bytes)) < end; at += page_bytes) {
    vmp_page_state state = vmp_backing_page_state(backing, at, page_bytes);
    if (state == VMP_PAGE_PARKED) out->parked_bytes += page_bytes;
    if (state == VMP_PAGE_RETIRING) out->retiring_bytes += page_bytes;
  }
}

vmp_status vmp_region_query(vmp_region *region, vmp_region_info *out_info) {
  vmp_status status = check_region(region);
  if (status != VMP_OK) return status;
  if (out_info == NULL || out_info->struct_size < sizeof *out_info) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "vmp_region_info is NULL or not initialised; use VMP_REGION_INFO_INIT");
  }
  vmp_region_info info = {.struct_size = out_info->struct_size, .name = region->name};
  vmp_guard_lock(&region->pool->guard);
  info.base = (void *)(uintptr_t)vmp_backing_address(region->pool->backing, region->range->offset);
  info.max_bytes = region->max_bytes;
  info.page_bytes = region->range->page_bytes;
  info.limit_bytes = region->limit_bytes;
  info.committed_bytes = region->committed_bytes;
  sum_pages(region, &info);
  vmp_guard_unlock(&region->pool->guard);
  *out_info = info;
  return VMP_OK;
}

vmp_region *vmp_regions_find(const vmp_pool *pool, uint64_t offset) {
  for (vmp_region *region = pool->regions.first; region != NULL; region = region->next) {
    if (offset - region->range->offset < region->max_bytes) return region;
  }
  return NULL;
}

uint64_t vmp_regions_metadata(const vmp_pool *pool) {
  const vmp_regions *regions = &pool->regions;
  return regions->count * (sizeof(vmp_region) + sizeof(vmp_region_range)) +
         regions->num_idle * sizeof(vmp_region_range);
}

static void walk_region(const vmp_region *region, vmp_region_run_fn fn, void *context) {
  const vmp_backing *backing = region->pool->backing;
  uint64_t page_bytes = region->range->page_bytes, at = region->range->offset, end = at + region->max_bytes;
  uint64_t start = at, run_end = at;
  for (; (at = vmp_backing_next_page(backing, at, end, page_bytes)) < end; at += page_bytes) {
    if (vmp_backing_page_state(backing, at, page_bytes) != VMP_PAGE_LIVE) continue;
    if (at != run_end) {
      if (run_end > start) fn(context, start, run_end - start);
      start = at;
    }
    run_end = at + page_bytes;
  }
  if (run_end > start) fn(context, start, run_end - start);
}

void vmp_regions_walk(const vmp_pool *pool, vmp_region_run_fn fn, void *context) {
  for (const vmp_region *region = pool->regions.first; region != NULL; region = region->next) {
    walk_region(region, fn, context);
  }
}

// ---- invariants ----

static void expect(vmp_report *report, const char *what, uint64_t actual, uint64_t expected) {
  if (actual == expected) return;
  vmp_report_fault(report, "regions: %s is %" PRIu64 "; it must be %" PRIu64, what, actual, expected);
}

// page_sums: the live pages of a range, and the memory of those whose first place is here.
typedef struct page_sums {
  uint64_t live_bytes, first_bytes;
} page_sums;

static page_sums sum_live(const vmp_pool *pool, const vmp_region_range *range) {
  page_sums sums = {0, 0};
  uint64_t at = range->offset, end = at + range->bytes;
  if (!range->open) return sums;
  for (; (at = vmp_backing_next_page(pool->backing, at, end, range->page_bytes)) < end; at += range->page_bytes) {
    bool first;
    if (vmp_backing_page_state(pool->backing, at, range->page_bytes) != VMP_PAGE_LIVE) continue;
    (void)vmp_backing_page_references(pool->backing, at, &first);
    sums.live_bytes += range->page_bytes;
    if (first) sums.first_bytes += range->page_bytes;
  }
  return sums;
}

// check_region_pages returns the memory of the pages whose first place is in this region.
static uint64_t check_region_pages(const vmp_pool *pool, const vmp_region *region, vmp_report *report) {
  page_sums sums = sum_live(pool, region->range);
  uint64_t live = sums.live_bytes;
  if (live != region->committed_bytes) {
    vmp_report_fault(
        report, "regions: \"%.64s\" has %" PRIu64 " bytes committed by its books and %" PRIu64 " bytes of live pages",
        region->name, region->committed_bytes, live);
  }
  if (!region->range->open)
    vmp_report_fault(report, "regions: backing doesn't know the pages of \"%.64s\"", region->name);
  return sums.first_bytes;
}

void vmp_regions_check(vmp_pool *pool, vmp_report *report) {
  const vmp_regions *regions = &pool->regions;
  uint64_t count = 0, reserved = 0, committed = 0, pieces = 0, idle = 0, memory = 0;
  bool busy = false;
  for (const vmp_region *region = regions->first; region != NULL && count <= regions->count; region = region->next) {
    count++;
    reserved += region->max_bytes;
    committed += region->committed_bytes;
    if (!region->range->own) pieces += region->range->bytes;
    busy = busy || region->busy;
    if (!region->busy) memory += check_region_pages(pool, region, report);
  }
  for (const vmp_region_range *range = regions->idle; range != NULL && idle <= regions->num_idle; range = range->next) {
    idle++;
    if (!range->own) pieces += range->bytes;
    if (sum_live(pool, range).live_bytes > 0) {
      vmp_report_fault(report, "regions: the idle range at offset %" PRIu64 " has live pages", range->offset);
    }
  }
  expect(report, "their number", regions->count, count);
  expect(report, "the number of idle ranges", regions->num_idle, idle);
  expect(report, "reserved_bytes", regions->reserved_bytes, reserved);
  expect(report, "committed_bytes", regions->committed_bytes, committed);
  if (!busy) expect(report, "live_bytes", regions->live_bytes, memory);
  expect(report, "the bytes of buddy's pieces", regions->piece_bytes, pieces);
}
