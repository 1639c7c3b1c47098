// offset_map_test.c: pool/offset_map.h against a naive table, at every capacity, with failing host memory, and
// with each corruption that its check must notice.
#include "pool/offset_map.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

typedef struct rig {
  vmp_offset_map map;
} rig;
static void rig_setup(rig *f) { (void)f; }
static void rig_teardown(rig *f) { vmp_offset_map_free(&f->map); }

static size_t faults(const vmp_offset_map *map) {
  vmp_report report = {0};
  return vmp_offset_map_check(map, "map", &report);
}

static void add(vmp_offset_map *map, uint64_t offset, uint64_t value) {
  VASSERT_OK(vmp_offset_map_promise(map));
  vmp_offset_map_add(map, offset, value);
}

VTEST_F(OffsetMap, AddFindRemove, rig) {
  VEXPECT_NULL(vmp_offset_map_find(&f->map, 0));
  VEXPECT_FALSE(vmp_offset_map_remove(&f->map, 0, NULL));
  add(&f->map, 0, 7);  // offset 0 is an offset like any other
  add(&f->map, UINT64_C(1) << 62, UINT64_MAX);
  VASSERT_NOT_NULL(vmp_offset_map_find(&f->map, 0));
  VEXPECT_UINT_EQ(*vmp_offset_map_find(&f->map, 0), 7);
  VEXPECT_UINT_EQ(*vmp_offset_map_find(&f->map, UINT64_C(1) << 62), UINT64_MAX);
  VEXPECT_NULL(vmp_offset_map_find(&f->map, 1));  // not a multiple of 512: never the entry of 0
  VEXPECT_NULL(vmp_offset_map_find(&f->map, 511));
  VEXPECT_NULL(vmp_offset_map_find(&f->map, 512));
  uint64_t value = 0;
  VEXPECT_TRUE(vmp_offset_map_remove(&f->map, 0, &value));
  VEXPECT_UINT_EQ(value, 7);
  VEXPECT_FALSE(vmp_offset_map_remove(&f->map, 0, &value));
  VEXPECT_UINT_EQ(f->map.entries, 1);
  VEXPECT_UINT_EQ(faults(&f->map), 0);
}

VTEST_F(OffsetMap, PromisesHold, rig) {
  // 1000 promises, then no host memory at all: every promised entry still fits.
  for (int i = 0; i < 1000; i++) VASSERT_OK(vmp_offset_map_promise(&f->map));
  VEXPECT_UINT_EQ(faults(&f->map), 0);
  vmp_mem_fail_after(0, UINT64_MAX);
  for (uint64_t i = 0; i < 999; i++) vmp_offset_map_add(&f->map, i * 512, i);
  vmp_offset_map_withdraw(&f->map);
  vmp_mem_fail_after(0, 0);
  VEXPECT_UINT_EQ(f->map.promises, 0);
  VEXPECT_UINT_EQ(f->map.entries, 999);
  VEXPECT_UINT_EQ(faults(&f->map), 0);
}

VTEST_F(OffsetMap, FailedGrowthChangesNothing, rig) {
  while (f->map.entries < 56) add(&f->map, f->map.entries * 4096, 1);  // 7/8 of 64
  vmp_offset_map before = f->map;
  for (uint64_t n = 0; n < 2; n++) {
    vmp_mem_fail_after(n, 1);
    VEXPECT_STATUS(vmp_offset_map_promise(&f->map), VMP_ERROR_HOST_OUT_OF_MEMORY);
    vmp_mem_fail_after(0, 0);
    VEXPECT_INT_EQ(memcmp(&before, &f->map, sizeof before), 0);
  }
  VEXPECT_OK(vmp_offset_map_promise(&f->map));
  VEXPECT_UINT_EQ(f->map.capacity, 128);
}

VTEST_F(OffsetMap, MemoryPerEntry, rig) {
  for (uint64_t i = 0; i < 1000000; i++) {
    add(&f->map, i * 512, i);
    if (i > 1000) VASSERT_UINT_LE(vmp_offset_map_metadata_bytes(&f->map), (i + 1) * 37);
  }
  VEXPECT_UINT_EQ(faults(&f->map), 0);
}

VTEST_F(OffsetMap, Model, rig) {
  // Keys from a small set, so that most operations hit; values are compared after every step.
  enum { KEYS = 300 };
  uint64_t values[KEYS] = {0};  // 0: absent
  uint64_t offsets[KEYS];
  vtest_rng rng = vtest_rng_make(vtest_seed(1));
  for (size_t i = 0; i < KEYS; i++)
    offsets[i] = i < 150 ? i * 512 : vtest_rng_below(&rng, UINT64_C(1) << 50) * 512 + (UINT64_C(1) << 60);
  uint64_t ops = vtest_ops(300000);
  for (uint64_t op = 0; op < ops; op++) {
    size_t i = (size_t)vtest_rng_below(&rng, KEYS);
    VTRACE("op %llu key %zu", (unsigned long long)op, i);
    uint64_t *found = vmp_offset_map_find(&f->map, offsets[i]);
    VASSERT_UINT_EQ(found == NULL ? 0 : *found, values[i]);
    if (values[i] == 0) {
      values[i] = vtest_rng_next(&rng) | 1;
      add(&f->map, offsets[i], values[i]);
    } else {
      uint64_t value = 0;
      VASSERT_TRUE(vmp_offset_map_remove(&f->map, offsets[i], &value));
      VASSERT_UINT_EQ(value, values[i]);
      values[i] = 0;
    }
    if (op % 1000 == 0) VASSERT_UINT_EQ(faults(&f->map), 0);
  }
}

static void count(void *context, uint64_t offset, uint64_t value) {
  uint64_t *sums = context;
  sums[0] += offset;
  sums[1] += value;
}

VTEST_F(OffsetMap, WalkSeesEveryEntryOnce, rig) {
  for (uint64_t i = 1; i <= 100; i++) add(&f->map, i * 512, i);
  uint64_t sums[2] = {0, 0};
  vmp_offset_map_walk(&f->map, count, sums);
  VEXPECT_UINT_EQ(sums[0], 5050 * 512);
  VEXPECT_UINT_EQ(sums[1], 5050);
}

typedef struct corruption {
  const char *name;
  void (*apply)(vmp_offset_map *map);
} corruption;
static void move_entry(vmp_offset_map *map) {
  // The entry moves to an empty place that no probe from its home reaches.
  for (size_t i = 0; i < map->capacity; i++) {
    size_t far = (i + map->capacity / 2) % map->capacity;
    if (map->keys[i] != 0 && map->keys[far] == 0 && map->keys[(far + map->capacity - 1) % map->capacity] == 0) {
      map->keys[far] = map->keys[i];
      map->keys[i] = 0;
      return;
    }
  }
}
static void double_entry(vmp_offset_map *map) {
  size_t from = 0, to = 0;
  while (map->keys[from] == 0) from++;
  while (map->keys[to] != 0) to++;
  map->keys[to] = map->keys[from];
}
static void miscount(vmp_offset_map *map) { map->entries++; }
static void overpromise(vmp_offset_map *map) { map->promises = map->capacity; }
static const corruption corruptions[] = {
    {"move_entry", move_entry}, {"double_entry", double_entry}, {"miscount", miscount}, {"overpromise", overpromise}};
static const char *corruption_name(const corruption *p) { return p->name; }

VTEST_FP(OffsetMap, CheckNotices, rig, corruption, corruptions, corruption_name) {
  for (uint64_t i = 0; i < 10; i++) add(&f->map, i * 8192, i);
  VASSERT_UINT_EQ(faults(&f->map), 0);
  p->apply(&f->map);
  VEXPECT_UINT_GE(faults(&f->map), 1);
}
