#include "tools/trace/id_map.h"

#include <string.h>

#include "tests/support/vtest.h"
#include "tools/common/rng.h"

// Random puts, erases and finds against a plain array; keys collide often, and erasing must keep chains whole.
VTEST(IdMap, AgainstAnArray) {
  enum { KEYS = 512 };
  static uint32_t model[KEYS];
  static bool present[KEYS];
  memset(present, 0, sizeof(present));
  rng r = {.state = vtest_seed(11)};
  id_map map = {0};
  size_t count = 0;
  const uint64_t ops = vtest_ops(200000);
  for (uint64_t i = 0; i < ops; i++) {
    const size_t key = rng_between(&r, 0, KEYS - 1);
    const uint64_t id = (uint64_t)key << (key % 3 * 20);  // small numbers, and ones that share their low bits
    if (rng_between(&r, 0, 2) != 0) {
      count += !present[key];
      present[key] = true;
      model[key] = (uint32_t)i;
      VASSERT_TRUE(id_map_put(&map, id, (uint32_t)i));
    } else {
      count -= present[key];
      present[key] = false;
      id_map_erase(&map, id);
    }
    const size_t probe = rng_between(&r, 0, KEYS - 1);
    const uint32_t *found = id_map_find(&map, (uint64_t)probe << (probe % 3 * 20));
    VASSERT_INT_EQ(found != NULL, present[probe]);
    if (found != NULL) VASSERT_UINT_EQ(*found, model[probe]);
  }
  VEXPECT_UINT_EQ(map.count, count);
  id_map_destroy(&map);
}
