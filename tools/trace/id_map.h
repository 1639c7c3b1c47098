// id_map.h: 64-bit ids of a trace (numbers, addresses, sizes) to small numbers.
//
// Owns: one open-addressing table with linear probing, at most half full; erasing moves the followers back, so there
// are no tombstones and a long trace that reuses ids stays fast.
#ifndef VMPOOL_TOOLS_TRACE_ID_MAP_H_
#define VMPOOL_TOOLS_TRACE_ID_MAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct id_map {
  struct id_map_entry *entries;
  size_t capacity, count;  // capacity is 0 or a power of two
} id_map;

// A zeroed map is empty and ready. id_map_destroy leaves it so.
void id_map_destroy(id_map *map);

// id_map_find returns where the value of `id` stands, or NULL. Valid until the next put or erase.
uint32_t *id_map_find(const id_map *map, uint64_t id);

// id_map_put sets the value of `id`; false when host memory runs out (then nothing has changed).
bool id_map_put(id_map *map, uint64_t id, uint32_t value);

// id_map_erase forgets `id`; it may be absent.
void id_map_erase(id_map *map, uint64_t id);

#endif  // VMPOOL_TOOLS_TRACE_ID_MAP_H_
