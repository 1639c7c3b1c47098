// inventory.c: see inventory.h.
#include "pool/inventory.h"

#include <stdlib.h>
#include <string.h>

#include "vmm/memory.h"

static bool add(vmp_range_list *list, uint64_t offset, uint64_t bytes) {
  if (list->count == list->capacity) {
    size_t capacity = list->capacity == 0 ? 256 : list->capacity * 2;
    vmp_live_range *items = vmp_mem_resize(list->items, list->capacity, capacity, sizeof *items);
    if (items == NULL) return false;
    list->items = items;
    list->capacity = capacity;
  }
  list->items[list->count++] = (vmp_live_range){offset, bytes};
  return true;
}

typedef struct listing {
  vmp_inventory *inventory;
  bool failed;
} listing;

static void see_claim(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  listing *l = context;
  (void)fence;
  if (strcmp(what, "block") != 0 && strcmp(what, "span") != 0) return;
  if (!l->failed && !add(&l->inventory->claims, offset, bytes)) l->failed = true;
}

static void see_block(void *context, uint64_t offset, uint64_t word) {
  listing *l = context;
  vmp_found found;
  (void)word;
  if (l->failed || !vmp_route_find(l->inventory->pool, offset, &found)) return;
  if (!add(&l->inventory->live, found.offset, found.bytes)) l->failed = true;
}

static int compare(const void *a, const void *b) {
  uint64_t left = ((const vmp_live_range *)a)->offset, right = ((const vmp_live_range *)b)->offset;
  return left < right ? -1 : left > right ? 1 : 0;
}

static void sort(vmp_range_list *list) {
  if (list->count > 1) qsort(list->items, list->count, sizeof *list->items, compare);
}

vmp_status vmp_inventory_take(vmp_inventory *inventory, vmp_pool *pool) {
  *inventory = (vmp_inventory){.pool = pool};
  listing l = {.inventory = inventory};
  vmp_mid_walk(pool->mid, see_claim, &l);
  if (pool->span_mid != NULL) vmp_mid_walk(pool->span_mid, see_claim, &l);
  vmp_buddy_walk(pool->buddy, see_claim, &l);
  vmp_books_walk(pool, see_block, &l);
  if (l.failed) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to list what is live");
  sort(&inventory->claims);
  sort(&inventory->live);
  return VMP_OK;
}

void vmp_inventory_free(vmp_inventory *inventory) {
  vmp_mem_free(inventory->claims.items);
  vmp_mem_free(inventory->live.items);
  *inventory = (vmp_inventory){.pool = inventory->pool};
}

const vmp_live_range *vmp_range_list_over(const vmp_range_list *list, uint64_t offset, uint64_t bytes,
                                          size_t *out_count) {
  size_t low = 0, high = list->count;
  while (low < high) {  // the first that ends beyond `offset`
    size_t middle = low + (high - low) / 2;
    if (list->items[middle].offset + list->items[middle].bytes <= offset) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  size_t end = low;
  while (end < list->count && list->items[end].offset < offset + bytes) end++;
  *out_count = end - low;
  return list->items == NULL ? NULL : &list->items[low];
}

bool vmp_inventory_still(const vmp_pool *pool, const vmp_live_range *claim) {
  uint64_t start, bytes;
  bool piece;
  const vmp_mid *mid = vmp_route_mid_of(pool, claim->offset);
  if (mid != NULL) {
    return vmp_mid_find(mid, claim->offset, &start, &bytes, NULL) && start == claim->offset && bytes == claim->bytes;
  }
  return vmp_buddy_find(pool->buddy, claim->offset, &start, &bytes, &piece) && !piece && start == claim->offset &&
         bytes == claim->bytes;
}
