// backing_page_ranges.c: the list of page ranges. See backing_pages.h.
//
// A sorted array: a region costs one entry. Looked at where a claim plans growth, never on the hit path.
#include <string.h>

#include "vmm/backing_internal.h"
#include "vmm/backing_pages.h"
#include "vmm/memory.h"

// first_above returns the index of the first range that ends above `slot`.
static size_t first_above(const vmp_backing *b, uint64_t slot) {
  size_t low = 0, high = b->num_page_ranges;
  while (low < high) {
    size_t middle = low + (high - low) / 2;
    if (b->page_ranges[middle].end > slot)
      high = middle;
    else
      low = middle + 1;
  }
  return low;
}

static page_range *range_at(const vmp_backing *b, uint64_t slot) {
  size_t i = first_above(b, slot);
  return i < b->num_page_ranges && b->page_ranges[i].slot <= slot ? &b->page_ranges[i] : NULL;
}

void backing_clip_to_pages(const vmp_backing *b, hole *h, uint64_t *reach) {
  if (b->num_page_ranges == 0) return;
  size_t i = first_above(b, h->slot);
  if (i < b->num_page_ranges && h->high > b->page_ranges[i].slot) h->high = b->page_ranges[i].slot;
  if (h->high < h->end) h->high = h->end;  // the hole itself is in a page range: of pages, which don't grow
  if (i > 0 && h->slot - b->page_ranges[i - 1].end < *reach) *reach = h->slot - b->page_ranges[i - 1].end;
}

bool backing_is_idle_page(const vmp_backing *b, uint64_t slot) {
  const page_range *range = range_at(b, slot);
  return range == NULL || range->idle;
}

// crosses: whether what is mapped at `slot` begins before it.
static bool crosses(const vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  if (word_is_home(word)) return backing_chunk(b, word & WORD_INDEX)->home < slot;
  return word_is_place(word) && backing_place(b, word & WORD_INDEX)->slot < slot;
}

static bool make_room(vmp_backing *b) {
  if (b->num_page_ranges < b->page_ranges_capacity) return true;
  size_t capacity = b->page_ranges_capacity == 0 ? 16 : b->page_ranges_capacity * 2;
  page_range *ranges = vmp_mem_resize(b->page_ranges, b->page_ranges_capacity, capacity, sizeof *ranges);
  if (ranges == NULL) return false;
  b->page_ranges = ranges;
  b->page_ranges_capacity = capacity;
  return true;
}

vmp_status vmp_backing_open_pages(vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = offset >> b->granule_log2, end = (offset + bytes) >> b->granule_log2;
  if (crosses(b, slot) || (backing_has_slot(b, end) && crosses(b, end))) {
    return vmp_fail(VMP_ERROR_BUSY, "a chunk crosses the border of the range that is to hold pages");
  }
  if (!make_room(b)) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for one more range of pages");
  size_t at = first_above(b, slot);
  memmove(b->page_ranges + at + 1, b->page_ranges + at, (b->num_page_ranges - at) * sizeof *b->page_ranges);
  b->page_ranges[at] = (page_range){.slot = slot, .end = end};
  b->num_page_ranges++;
  return VMP_OK;
}

void vmp_backing_idle_pages(vmp_backing *b, uint64_t offset, bool idle) {
  page_range *range = range_at(b, offset >> b->granule_log2);
  if (range != NULL) range->idle = idle;
}

void vmp_backing_close_pages(vmp_backing *b, uint64_t offset) {
  page_range *range = range_at(b, offset >> b->granule_log2);
  if (range == NULL) return;
  size_t at = (size_t)(range - b->page_ranges);
  memmove(range, range + 1, (b->num_page_ranges - at - 1) * sizeof *range);
  b->num_page_ranges--;
}
