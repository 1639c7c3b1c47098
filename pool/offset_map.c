// offset_map.c: see offset_map.h. Linear probing with removal by shifting back: Knuth, The Art of Computer
// Programming 3, 6.4, algorithms L and R; Fibonacci hashing as in the same section.
#include "pool/offset_map.h"

#include <inttypes.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/memory.h"

#define STEP_LOG2 9
#define FIRST_CAPACITY 64

static uint64_t key_of(uint64_t offset) { return (offset >> STEP_LOG2) + 1; }
static uint64_t offset_of(uint64_t key) { return (key - 1) << STEP_LOG2; }

static size_t home_of(const vmp_offset_map *map, uint64_t key) {
  return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> (64 - vmp_log2(map->capacity)));
}

static size_t next_place(const vmp_offset_map *map, size_t place) { return (place + 1) & (map->capacity - 1); }

static bool fits(size_t capacity, size_t entries) { return entries <= capacity / 8 * 7; }

// insert puts a key where it belongs; there is room.
static void insert(vmp_offset_map *map, uint64_t key, uint64_t value) {
  size_t place = home_of(map, key);
  while (map->keys[place] != 0) place = next_place(map, place);
  map->keys[place] = key;
  map->values[place] = value;
}

// grow moves all entries to a table of `capacity` places.
static bool grow(vmp_offset_map *map, size_t capacity) {
  vmp_offset_map larger = {.capacity = capacity, .entries = map->entries, .promises = map->promises};
  larger.keys = vmp_mem_calloc(capacity, sizeof *larger.keys);
  larger.values = vmp_mem_calloc(capacity, sizeof *larger.values);
  if (larger.keys == NULL || larger.values == NULL) {
    vmp_mem_free(larger.keys);
    vmp_mem_free(larger.values);
    return false;
  }
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->keys[i] != 0) insert(&larger, map->keys[i], map->values[i]);
  }
  vmp_mem_free(map->keys);
  vmp_mem_free(map->values);
  *map = larger;
  return true;
}

void vmp_offset_map_free(vmp_offset_map *map) {
  vmp_mem_free(map->keys);
  vmp_mem_free(map->values);
  memset(map, 0, sizeof *map);
}

vmp_status vmp_offset_map_promise(vmp_offset_map *map) {
  if (!fits(map->capacity, map->entries + map->promises + 1)) {
    size_t capacity = map->capacity == 0 ? FIRST_CAPACITY : map->capacity * 2;
    if (!grow(map, capacity)) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a table of %zu blocks", capacity);
    }
  }
  map->promises++;
  return VMP_OK;
}

void vmp_offset_map_withdraw(vmp_offset_map *map) { map->promises--; }

void vmp_offset_map_add(vmp_offset_map *map, uint64_t offset, uint64_t value) {
  insert(map, key_of(offset), value);
  map->promises--;
  map->entries++;
}

// place_of returns where a key stands, or SIZE_MAX.
static size_t place_of(const vmp_offset_map *map, uint64_t offset) {
  if (map->capacity == 0 || vmp_align_down(offset, UINT64_C(1) << STEP_LOG2) != offset) return SIZE_MAX;
  uint64_t key = key_of(offset);
  for (size_t place = home_of(map, key); map->keys[place] != 0; place = next_place(map, place)) {
    if (map->keys[place] == key) return place;
  }
  return SIZE_MAX;
}

uint64_t *vmp_offset_map_find(const vmp_offset_map *map, uint64_t offset) {
  size_t place = place_of(map, offset);
  return place == SIZE_MAX ? NULL : &map->values[place];
}

bool vmp_offset_map_remove(vmp_offset_map *map, uint64_t offset, uint64_t *out_value) {
  size_t gap = place_of(map, offset);
  if (gap == SIZE_MAX) return false;
  if (out_value != NULL) *out_value = map->values[gap];
  // Close the gap: an entry behind it moves in when its home lies at or before the gap (cyclically).
  size_t mask = map->capacity - 1;
  for (size_t place = next_place(map, gap); map->keys[place] != 0; place = next_place(map, place)) {
    size_t home = home_of(map, map->keys[place]);
    if (((place - home) & mask) < ((place - gap) & mask)) continue;
    map->keys[gap] = map->keys[place];
    map->values[gap] = map->values[place];
    gap = place;
  }
  map->keys[gap] = 0;
  map->entries--;
  return true;
}

void vmp_offset_map_walk(const vmp_offset_map *map, vmp_offset_map_fn fn, void *context) {
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->keys[i] != 0) fn(context, offset_of(map->keys[i]), map->values[i]);
  }
}

uint64_t vmp_offset_map_metadata_bytes(const vmp_offset_map *map) {
  return map->capacity * (sizeof *map->keys + sizeof *map->values);
}

size_t vmp_offset_map_check(const vmp_offset_map *map, const char *name, vmp_report *report) {
  size_t before = report->faults, entries = 0;
  for (size_t i = 0; i < map->capacity; i++) {
    if (map->keys[i] == 0) continue;
    entries++;
    uint64_t offset = offset_of(map->keys[i]);
    if (place_of(map, offset) != i) {
      vmp_report_fault(report, "%s: the entry of offset %" PRIu64 " at place %zu is not found from its home", name,
                       offset, i);
    }
  }
  if (entries != map->entries) {
    vmp_report_fault(report, "%s: %zu entries are in the table, %zu are counted", name, entries, map->entries);
  }
  if (map->capacity != 0 && !vmp_is_power_of_two(map->capacity)) {
    vmp_report_fault(report, "%s: the capacity is %zu, which is no power of two", name, map->capacity);
  }
  if (!fits(map->capacity, map->entries + map->promises)) {
    vmp_report_fault(report, "%s: %zu entries and %zu promises don't fit %zu places", name, map->entries, map->promises,
                     map->capacity);
  }
  return report->faults - before;
}
