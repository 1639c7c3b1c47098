#include "tools/trace/id_map.h"

#include <stdlib.h>
#include <string.h>

typedef struct id_map_entry {
  uint64_t id;
  uint32_t value;
  uint32_t used;
} id_map_entry;

// Ids are often consecutive or multiples of 512: spread them by the mixer of MurmurHash3.
static size_t home_of(const id_map *map, uint64_t id) {
  id ^= id >> 33;
  id *= UINT64_C(0xff51afd7ed558ccd);
  id ^= id >> 33;
  return (size_t)id & (map->capacity - 1);
}

void id_map_destroy(id_map *map) {
  free(map->entries);
  memset(map, 0, sizeof(*map));
}

static id_map_entry *find_entry(const id_map *map, uint64_t id) {
  if (map->capacity == 0) return NULL;
  for (size_t i = home_of(map, id); map->entries[i].used; i = (i + 1) & (map->capacity - 1)) {
    if (map->entries[i].id == id) return &map->entries[i];
  }
  return NULL;
}

uint32_t *id_map_find(const id_map *map, uint64_t id) {
  id_map_entry *entry = find_entry(map, id);
  return entry != NULL ? &entry->value : NULL;
}

static void insert_new(id_map *map, uint64_t id, uint32_t value) {
  size_t i = home_of(map, id);
  while (map->entries[i].used) i = (i + 1) & (map->capacity - 1);
  map->entries[i] = (id_map_entry){.id = id, .value = value, .used = 1};
  map->count++;
}

static bool grow(id_map *map) {
  id_map grown = {.capacity = map->capacity == 0 ? 64 : map->capacity * 2};
  grown.entries = calloc(grown.capacity, sizeof(id_map_entry));
  if (grown.entries == NULL) return false;
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->entries[i].used) insert_new(&grown, map->entries[i].id, map->entries[i].value);
  }
  free(map->entries);
  *map = grown;
  return true;
}

bool id_map_put(id_map *map, uint64_t id, uint32_t value) {
  id_map_entry *entry = find_entry(map, id);
  if (entry != NULL) {
    entry->value = value;
    return true;
  }
  if ((map->count + 1) * 2 > map->capacity && !grow(map)) return false;
  insert_new(map, id, value);
  return true;
}

void id_map_erase(id_map *map, uint64_t id) {
  id_map_entry *entry = find_entry(map, id);
  if (entry == NULL) return;
  const size_t mask = map->capacity - 1;
  size_t hole = (size_t)(entry - map->entries);
  for (size_t i = (hole + 1) & mask; map->entries[i].used; i = (i + 1) & mask) {
    // An entry may move back into the hole unless its home lies after the hole (cyclically).
    if (((i - home_of(map, map->entries[i].id)) & mask) < ((i - hole) & mask)) continue;
    map->entries[hole] = map->entries[i];
    hole = i;
  }
  map->entries[hole].used = 0;
  map->count--;
}
