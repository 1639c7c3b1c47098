// region_space.c: where a region's addresses come from and go to. See region.h.
//
//     an idle range of the same size -> a piece of buddy's -> the same after another reservation of the pool's
//     -> a reservation of its own, which needn't be twice as long
#include <inttypes.h>

#include "pool/pool.h"
#include "vmm/memory.h"

#define MAX_IDLE 1024u  // ranges; addresses only
#define MAX_HELD 8u     // pieces that a chunk reaches into, held while others are looked for
#define MAX_ADDED 4u    // reservations that one region may ask for

// ---- idle ranges ----

static bool fits(const vmp_pool *pool, const vmp_region_range *range, uint64_t bytes, uint64_t page_bytes,
                 uint64_t share_bytes) {
  uint64_t shared_end = range->offset + share_bytes;
  if (vmp_backing_next_page(pool->backing, range->offset, shared_end, page_bytes) < shared_end) return false;
  if (range->own) return range->bytes >= bytes && range->offset % page_bytes == 0;
  return range->bytes == bytes && range->page_bytes == page_bytes;
}

static vmp_region_range *take_idle(vmp_pool *pool, uint64_t bytes, uint64_t page_bytes, uint64_t share_bytes,
                                   bool own) {
  for (vmp_region_range **link = &pool->regions.idle; *link != NULL; link = &(*link)->next) {
    vmp_region_range *range = *link;
    if (range->own != own || !fits(pool, range, bytes, page_bytes, share_bytes)) continue;
    *link = range->next;
    pool->regions.num_idle--;
    range->next = NULL;
    range->page_bytes = page_bytes;
    vmp_backing_idle_pages(pool->backing, range->offset, false);
    return range;
  }
  return NULL;
}

// return_oldest returns the oldest idle range that is buddy's; false: there is none.
static bool return_oldest(vmp_pool *pool) {
  vmp_region_range **oldest = NULL;
  for (vmp_region_range **link = &pool->regions.idle; *link != NULL; link = &(*link)->next) {
    if (!(*link)->own) oldest = link;
  }
  if (oldest == NULL) return false;
  vmp_region_range *range = *oldest;
  *oldest = range->next;
  pool->regions.num_idle--;
  pool->regions.piece_bytes -= range->bytes;
  vmp_backing_close_pages(pool->backing, range->offset);
  vmp_buddy_free(pool->buddy, range->offset, range->fence);
  vmp_mem_free(range);
  return true;
}

void vmp_region_give_range(vmp_pool *pool, vmp_region_range *range) {
  range->next = pool->regions.idle;
  pool->regions.idle = range;
  pool->regions.num_idle++;
  vmp_backing_idle_pages(pool->backing, range->offset, true);
  if (pool->regions.num_idle > MAX_IDLE) (void)return_oldest(pool);
}

bool vmp_regions_give_back(vmp_pool *pool) {
  bool some = false;
  while (return_oldest(pool)) some = true;
  return some;
}

// ---- new ones ----

static vmp_status open_pages(vmp_pool *pool, vmp_region_range *range) {
  vmp_status status = vmp_backing_open_pages(pool->backing, range->offset, range->bytes);
  range->open = status == VMP_OK;
  return status;
}

// open_piece takes one of buddy's pieces whose borders no chunk crosses.
static vmp_status open_piece(vmp_pool *pool, vmp_region_range *range) {
  uint64_t held[MAX_HELD];
  vmp_fence fences[MAX_HELD];
  size_t count = 0;
  vmp_status status = VMP_ERROR_BUSY;
  while (status == VMP_ERROR_BUSY && count < MAX_HELD) {
    status = vmp_buddy_take_piece(pool->buddy, range->bytes, range->page_bytes, false, &range->offset, &range->bytes,
                                  &range->fence);
    if (status != VMP_OK) break;
    status = open_pages(pool, range);
    if (status == VMP_OK) break;
    held[count] = range->offset;
    fences[count++] = range->fence;
  }
  for (size_t i = 0; i < count; i++) vmp_buddy_free(pool->buddy, held[i], fences[i]);
  if (status == VMP_OK) pool->regions.piece_bytes += range->bytes;
  return status == VMP_ERROR_BUSY ? VMP_ERROR_OUT_OF_ADDRESS_SPACE : status;
}

// open_own makes a reservation for the region alone. MAY UNLOCK.
static vmp_status open_own(vmp_pool *pool, vmp_region_range *range) {
  uint64_t wanted = range->bytes, got = 0, offset = 0;
  if (range->page_bytes > pool->config.chunk_max && !vmp_add(wanted, range->page_bytes, &wanted)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%" PRIu64 " bytes are larger than any address space", wanted);
  }
  vmp_status status = vmp_backing_reserve(pool->backing, wanted, wanted, &offset, &got);
  if (status != VMP_OK) return status;
  uint64_t start = offset;
  (void)vmp_align_up(offset, range->page_bytes, &start);
  range->own = true;
  range->offset = start;
  range->bytes = vmp_align_down(got - (start - offset), range->page_bytes);
  return open_pages(pool, range);
}

static vmp_status open_range(vmp_pool *pool, vmp_region_range *range) {
  vmp_status status = open_piece(pool, range);
  if (status != VMP_ERROR_OUT_OF_ADDRESS_SPACE) return status;
  if (vmp_regions_give_back(pool)) status = open_piece(pool, range);
  for (unsigned added = 0; status == VMP_ERROR_OUT_OF_ADDRESS_SPACE && added < MAX_ADDED; added++) {
    if (vmp_space_add(pool, range->bytes, range->page_bytes) != VMP_OK) break;
    status = open_piece(pool, range);
  }
  return status == VMP_ERROR_OUT_OF_ADDRESS_SPACE ? open_own(pool, range) : status;
}

vmp_status vmp_region_take_range(vmp_pool *pool, uint64_t bytes, uint64_t page_bytes, uint64_t share_bytes,
                                 vmp_region_range **out_range) {
  // Shared pages of the region that ended last have just retired: once they are gone its other pages serve this one.
  const vmp_region_range *youngest = pool->regions.idle;
  if (share_bytes > 0 && youngest != NULL && !fits(pool, youngest, bytes, page_bytes, share_bytes)) {
    (void)vmp_backing_poll(pool->backing);
  }
  vmp_region_range *range = take_idle(pool, bytes, page_bytes, share_bytes, false);
  if (range == NULL) range = take_idle(pool, bytes, page_bytes, share_bytes, true);
  if (range != NULL) {
    vmp_status opened = range->open ? VMP_OK : open_pages(pool, range);
    if (opened == VMP_OK) *out_range = range;
    if (opened != VMP_OK) vmp_region_give_range(pool, range);
    return opened;
  }
  range = vmp_mem_calloc(1, sizeof *range);
  if (range == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a region's range");
  range->bytes = bytes;
  range->page_bytes = page_bytes;
  vmp_status status = open_range(pool, range);
  if (status == VMP_OK) {
    *out_range = range;
    return VMP_OK;
  }
  if (range->own) {
    vmp_region_give_range(pool, range);  // addresses can't go back to the driver one by one: the next region's
  } else {
    vmp_mem_free(range);
  }
  return status;
}
