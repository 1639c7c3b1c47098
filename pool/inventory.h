// inventory.h: which claims there are on the pool's memory, and which bytes of them are live, as of one moment.
//
// Owns: two sorted lists. Does not own: blocks (the layers, the books).
//
//     claims   what mid's blocks, slab's spans and buddy's blocks have claimed       one each, rising, not overlapping
//     live     the blocks themselves: of a span only the objects that are in use     rising, not overlapping
//
// Suspendable tags' blocks and regions are not in it. Made and read under the pool's lock; it doesn't follow changes.
#ifndef VMPOOL_POOL_INVENTORY_H_
#define VMPOOL_POOL_INVENTORY_H_

#include "pool/pool.h"
#include "vmm/backing_compact.h"

typedef struct vmp_range_list {
  vmp_live_range *items;
  size_t count, capacity;
} vmp_range_list;

typedef struct vmp_inventory {
  vmp_pool *pool;
  vmp_range_list claims, live;
} vmp_inventory;

// vmp_inventory_take lists what there is. VMP_ERROR_HOST_OUT_OF_MEMORY. Free it in either case.
vmp_status vmp_inventory_take(vmp_inventory *inventory, vmp_pool *pool);
void vmp_inventory_free(vmp_inventory *inventory);

// vmp_range_list_over returns the ranges that overlap [offset, offset + bytes): *out_count from the returned one on.
const vmp_live_range *vmp_range_list_over(const vmp_range_list *list, uint64_t offset, uint64_t bytes,
                                          size_t *out_count);

// vmp_inventory_still says whether a claim of a past inventory still exists. The lock is held.
bool vmp_inventory_still(const vmp_pool *pool, const vmp_live_range *claim);

#endif  // VMPOOL_POOL_INVENTORY_H_
