// limits_test.c: the hard limit, the soft limit, changing them while the pool runs. Bug cases 9, 10, 14, 15, 39, 70.
#include <stdio.h>

#include "tests/pool/pool_rig.h"

// Case 9: a request of exactly the limit is served, whatever was mapped before.
VTEST_F(Limits, Case9ExactlyTheLimit, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  static const char *const confs[] = {"hard_limit:4GiB,initial_fraction:0.001",  // 8 MiB to begin with
                                      "hard_limit:4GiB,initial_fraction:0.375",  // 3 GiB
                                      "hard_limit:4GiB,preset:tight,initial_fraction:0.25"};
  for (size_t i = 0; i < 3; i++) {
    VTRACE("%s", confs[i]);
    VASSERT_OK(rig_create(f, confs[i]));
    for (int round = 0; round < 2; round++) {
      void *a = rig_alloc(f, 4 * GIB, NULL), *b = NULL;
      VEXPECT_UINT_EQ(rig_stats(f).mapped, 4 * GIB);
      rig_touch(f, a, 4 * GIB, NULL);
      VEXPECT_STATUS(vmp_alloc(f->pool, &b, 1, NULL), VMP_ERROR_LIMIT);
      VEXPECT_STR_CONTAINS(vmp_last_error()->message, "hard limit is 4GiB");
      rig_free(f, a, NULL);
      rig_free(f, rig_alloc(f, 1, NULL), NULL);
    }
    rig_destroy(f);
  }
}

// Case 10: a limit that is no multiple of anything. The effective one is rounded down to granules and can be asked.
VTEST_F(Limits, Case10OddLimits, pool_rig) {
  rig_open_driver(f, 80 * GIB);
  VASSERT_NO_FAILURE();
  static const uint64_t limits[] = {1, 1000, 1000000, GRANULE - 1, GRANULE, GRANULE + 1, 10 * GRANULE + 123};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    char conf[64];
    (void)snprintf(conf, sizeof conf, "hard_limit:%llu,initial_fraction:1", (unsigned long long)limits[i]);
    VTRACE("%s", conf);
    VASSERT_OK(rig_create(f, conf));
    vmp_pool_stats_data stats = rig_stats(f);
    VEXPECT_UINT_EQ(stats.hard_limit, limits[i] / GRANULE * GRANULE);
    VEXPECT_UINT_EQ(stats.mapped, stats.hard_limit);  // initial memory never exceeds the limit
    void *ptr = NULL;
    if (stats.hard_limit == 0) {
      VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 1, NULL), VMP_ERROR_LIMIT);
    } else {
      ptr = rig_alloc(f, stats.hard_limit, NULL);
      VEXPECT_UINT_EQ(rig_stats(f).mapped, stats.hard_limit);
      rig_free(f, ptr, NULL);
    }
    rig_destroy(f);
  }
}

// Case 14: a limit that was lowered and raised again lets the pool grow again.
VTEST_F(Limits, Case14LoweredAndRaised, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:1536MiB");
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, 1000 * MIB, NULL), NULL);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 240 * MIB));
  VEXPECT_UINT_LE(rig_stats(f).mapped, 240 * MIB);  // parked memory goes at once
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
  void *ptr = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 1000 * MIB, NULL), VMP_ERROR_LIMIT);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 1536 * MIB));
  ptr = rig_alloc(f, 1000 * MIB, NULL);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 4 * GIB));  // above the initial one
  void *more = rig_alloc(f, 2 * GIB, NULL);
  rig_free(f, ptr, NULL);
  rig_free(f, more, NULL);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, UINT64_MAX));
  VEXPECT_UINT_EQ(rig_stats(f).hard_limit, UINT64_MAX);
}

// Case 15: a limit below what is live is pending: new memory is refused, and frees bring the pool under it.
VTEST_F(Limits, Case15PendingUntilFreesBringItUnder, pool_rig) {
  rig_open(f, 16 * GIB, "initial_fraction:0.75");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 12 * GIB);
  void *blocks[10];
  for (size_t i = 0; i < 10; i++) blocks[i] = rig_alloc(f, GIB, NULL);
  VEXPECT_STATUS(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 6 * GIB), VMP_PENDING);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 10 * GIB);  // what was parked went at once
  void *ptr = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, GIB, NULL), VMP_ERROR_LIMIT);
  for (size_t i = 0; i < 5; i++) {
    rig_free(f, blocks[i], NULL);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 5 * GIB);
  VEXPECT_UINT_LE(stats.mapped, 6 * GIB);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_HARD, 6 * GIB));
  ptr = rig_alloc(f, GIB, NULL);
  rig_free(f, ptr, NULL);
  for (size_t i = 5; i < 10; i++) rig_free(f, blocks[i], NULL);
}

// Case 39: with a limit, what is parked serves a request of another size before it fails.
VTEST_F(Limits, Case39ParkedMemoryUnderALimit, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:100MiB");
  VASSERT_NO_FAILURE();
  for (int round = 0; round < 2; round++) {  // first on one stream, then on several, the work complete
    void *blocks[10];
    for (size_t i = 0; i < 10; i++) {
      vmp_stream stream = round == 0 ? NULL : f->streams[i % RIG_STREAMS];
      blocks[i] = rig_alloc(f, 10 * MIB, stream);
      rig_touch(f, blocks[i], 10 * MIB, stream);
    }
    for (size_t i = 0; i < 10; i++) rig_free(f, blocks[i], round == 0 ? NULL : f->streams[i % RIG_STREAMS]);
    rig_settle(f);
    void *large = rig_alloc(f, 95 * MIB, NULL);
    VEXPECT_UINT_LE(rig_stats(f).mapped, 100 * MIB);
    rig_touch(f, large, 95 * MIB, NULL);
    rig_free(f, large, NULL);
    rig_settle(f);
  }
}

// Above the soft limit parked memory is taken before new memory is made; it is no wall.
VTEST_F(Limits, SoftLimitPrefersParked, pool_rig) {
  rig_open(f, 8 * GIB, "soft_limit:64MiB,preset:tight");
  VASSERT_NO_FAILURE();
  void *a[32], *large;
  for (size_t i = 0; i < 32; i++) a[i] = rig_alloc(f, GRANULE, NULL);
  for (size_t i = 0; i < 32; i += 2) rig_free(f, a[i], NULL);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * MIB);
  large = rig_alloc(f, 32 * MIB, NULL);  // 16 parked granules fit it
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * MIB);
  VEXPECT_UINT_GE(rig_stats(f).takes, 15);
  void *beyond = rig_alloc(f, 32 * MIB, NULL);  // nothing is parked: new memory
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 96 * MIB);
  rig_free(f, large, NULL);
  rig_free(f, beyond, NULL);
  for (size_t i = 1; i < 32; i += 2) rig_free(f, a[i], NULL);
}

// Case 70: a pool with a limit of 0 is empty and says so.
VTEST_F(Limits, Case70LimitZero, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:0");
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 1, NULL), VMP_ERROR_LIMIT);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.mapped + stats.live + stats.parked + stats.spare + stats.blocks + stats.chunks, 0);
  VEXPECT_UINT_EQ(stats.failed_allocs, 1);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
}
