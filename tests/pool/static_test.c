// static_test.c: strategies: what is mapped at creation, and what never is afterwards.
#include <stdio.h>

#include "tests/pool/pool_rig.h"

// A static pool maps three quarters of the device and never more; requests are served without a memory call.
VTEST_F(Static, MapsOnceAndNeverMore, pool_rig) {
  rig_open(f, 8 * GIB, "strategy:static");
  VASSERT_NO_FAILURE();
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.mapped, 6 * GIB);
  VEXPECT_UINT_EQ(stats.parked, 6 * GIB);
  VEXPECT_UINT_EQ(stats.largest_free_mapped, 6 * GIB);
  vmp_driver_calls before = rig_calls(f);
  void *blocks[3], *ptr = NULL;
  for (size_t i = 0; i < 3; i++) {
    blocks[i] = rig_alloc(f, 2 * GIB, NULL);
    rig_touch(f, blocks[i], 2 * GIB, NULL);
  }
  vmp_driver_calls after = rig_calls(f);
  VEXPECT_UINT_EQ(after.create + after.map + after.unmap, before.create + before.map + before.unmap);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 512, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_UINT_EQ(rig_calls(f).create, before.create);
  for (size_t i = 0; i < 3; i++) rig_free(f, blocks[i], NULL);
  ptr = rig_alloc(f, 6 * GIB, NULL);
  rig_free(f, ptr, NULL);
  VEXPECT_UINT_EQ(rig_calls(f).create, before.create);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 6 * GIB);
}

// The same in every preset. Where one layer serves all sizes, blocks lie where the memory is; where two share it,
// memory moves to them, but none is made.
VTEST_F(Static, EveryPresetFindsTheInitialMemory, pool_rig) {
  static const char *const presets[] = {"mixed", "tight", "classic", "slab", "mid", "buddy"};
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < 6; i++) {
    char conf[96];
    VTRACE("%s", presets[i]);
    (void)snprintf(conf, sizeof conf, "strategy:static,initial_fraction:0.5,preset:%s", presets[i]);
    VASSERT_OK(rig_create(f, conf));
    VEXPECT_UINT_EQ(rig_stats(f).mapped, 4 * GIB);
    VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, 4 * GIB);
    uint64_t maps = rig_calls(f).map, creates = rig_calls(f).create;
    static const uint64_t sizes[] = {512, 100 * KIB, 3 * MIB, 100 * MIB, 3 * GIB};
    void *blocks[5];
    for (size_t j = 0; j < 5; j++) {
      blocks[j] = rig_alloc(f, sizes[j], NULL);
      rig_touch(f, blocks[j], sizes[j], NULL);
    }
    if (i == 0 || i == 1 || i == 4) VEXPECT_UINT_EQ(rig_calls(f).map, maps);
    VEXPECT_UINT_EQ(rig_calls(f).create, creates);
    for (size_t j = 0; j < 5; j++) rig_free(f, blocks[j], NULL);
    rig_settle(f);
    rig_destroy(f);
  }
}

// Less memory than asked for: as much as there is, and a status that says so; or a failure by option.
VTEST_F(Static, PartialOrFailed, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  vmp_host_set_foreign(f->driver, 0, 4 * GIB);
  VASSERT_STATUS(rig_create(f, "strategy:static"), VMP_PARTIAL);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 4 * GIB);
  rig_free(f, rig_alloc(f, 3 * GIB, NULL), NULL);
  rig_destroy(f);
  f->pool = NULL;
  VASSERT_STATUS(rig_create(f, "strategy:static,initial_must_fit:1"), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "4GiB of the initial 6GiB");
  VEXPECT_NULL(f->pool);
  VEXPECT_UINT_EQ(rig_census(f).physical_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(f).reserved_bytes, 0);
  vmp_host_set_foreign(f->driver, 0, 0);
  VASSERT_OK(rig_create(f, "strategy:static,initial_must_fit:1"));
}

// A dynamic pool may begin with memory, and grows from there.
VTEST_F(Static, DynamicWithInitialMemory, pool_rig) {
  rig_open(f, 8 * GIB, "initial_fraction:0.25");
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 2 * GIB);
  uint64_t creates = rig_calls(f).create;
  void *a = rig_alloc(f, 2 * GIB, NULL);
  VEXPECT_UINT_EQ(rig_calls(f).create, creates);
  void *b = rig_alloc(f, 4 * GIB, NULL);
  VEXPECT_UINT_GT(rig_calls(f).create, creates);
  rig_free(f, a, NULL);
  rig_free(f, b, NULL);
}

// A static pool's memory can be trimmed; it stays away.
VTEST_F(Static, TrimmedMemoryDoesNotComeBack, pool_rig) {
  rig_open(f, 8 * GIB, "strategy:static,initial_fraction:0.5");
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  VEXPECT_OK(vmp_pool_trim(f->pool, GIB, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, GIB);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 2 * GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  ptr = rig_alloc(f, GIB, NULL);
  rig_free(f, ptr, NULL);
}
