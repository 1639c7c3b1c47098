// offset_map.h: a number for each of many offsets: the requested bytes of live blocks, and their recorded streams.
//
// Owns: the table. Keys are offsets, multiples of 512. 16 bytes per slot of the table, at most 7/8 full: 18 to 37
// bytes per entry once it has grown.
//
//     keys     |  0  | o/512+1 |  0  | o/512+1 | o/512+1 |  0  | ...     open addressing, linear probing;
//     values   |     |  value  |     |  value  |  value  |     |         0 is an empty place
//
// Invariants
//   - From the place where a key hashes to, up to where it stands, no place is empty (removal closes gaps: there are
//     no tombstones, and a table doesn't age).
//   - entries + promises fit without growing: what was promised can be added without allocating.
//   - remove and find allocate nothing and can't fail.
#ifndef VMPOOL_POOL_OFFSET_MAP_H_
#define VMPOOL_POOL_OFFSET_MAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/error.h"

typedef struct vmp_offset_map {  // zero it before use
  uint64_t *keys, *values;
  size_t capacity;  // a power of two, or 0
  size_t entries;
  size_t promises;
} vmp_offset_map;

void vmp_offset_map_free(vmp_offset_map *map);

// vmp_offset_map_promise makes sure that one vmp_offset_map_add more will succeed. VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_offset_map_promise(vmp_offset_map *map);
// vmp_offset_map_withdraw takes back a promise that is not needed.
void vmp_offset_map_withdraw(vmp_offset_map *map);
// vmp_offset_map_add uses up a promise; `offset` must not be in the map.
void vmp_offset_map_add(vmp_offset_map *map, uint64_t offset, uint64_t value);

// vmp_offset_map_find returns where an offset's value is kept, or NULL. Valid until the map changes.
uint64_t *vmp_offset_map_find(const vmp_offset_map *map, uint64_t offset);
// vmp_offset_map_remove takes an offset out; false, and *out_value untouched, when it isn't in. `out_value` may
// be NULL.
bool vmp_offset_map_remove(vmp_offset_map *map, uint64_t offset, uint64_t *out_value);

typedef void (*vmp_offset_map_fn)(void *context, uint64_t offset, uint64_t value);
// vmp_offset_map_walk sees every entry, in no order.
void vmp_offset_map_walk(const vmp_offset_map *map, vmp_offset_map_fn fn, void *context);

uint64_t vmp_offset_map_metadata_bytes(const vmp_offset_map *map);

// vmp_offset_map_check reports every broken invariant and returns their number. `name` is how messages call the map.
size_t vmp_offset_map_check(const vmp_offset_map *map, const char *name, vmp_report *report);

#endif  // VMPOOL_POOL_OFFSET_MAP_H_
