// growth_test.c: growing and not thrashing, address space that is scarce, every combination of size options. Bug cases
// 11, 12, 20, 21, 24, 25, 26, 27, 45.
#include <stdio.h>
#include <string.h>

#include "tests/pool/pool_rig.h"

static uint64_t memory_calls(pool_rig *f) {
  vmp_driver_calls calls = rig_calls(f);
  return calls.create + calls.map + calls.set_access + calls.unmap + calls.release + calls.reserve + calls.address_free;
}

// Case 11: the same sizes again and again: driver calls in the first round only.
VTEST_F(Growth, Case11NoThrashing, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {1032, 1032, GRANULE + 8, GRANULE + 8, 5000001, 777, 1234567, 99, 3 * GRANULE - 1};
  uint64_t calls = 0, mapped = 0;
  for (int round = 0; round < 100; round++) {
    void *blocks[9];
    for (size_t i = 0; i < 9; i++) blocks[i] = rig_alloc(f, sizes[i], NULL);
    for (size_t i = 9; i-- > 0;) rig_free(f, blocks[i], NULL);
    if (round > 0) {
      VASSERT_UINT_EQ(memory_calls(f), calls);
      VASSERT_UINT_EQ(rig_stats(f).mapped, mapped);
    }
    calls = memory_calls(f);
    mapped = rig_stats(f).mapped;
  }
}

// Case 12: trimming an empty pool is nothing, twice.
VTEST_F(Growth, Case12TrimEnds, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 100 * MIB, NULL), *b = rig_alloc(f, 5000, NULL);
  rig_free(f, a, NULL);
  rig_free(f, b, NULL);
  rig_settle(f);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  uint64_t mapped = rig_stats(f).mapped;
  VEXPECT_OK(vmp_pool_trim(f->pool, mapped, &report));  // exactly what there is: nothing to do
  VEXPECT_UINT_EQ(report.released_bytes, 0);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, mapped);
  VEXPECT_UINT_EQ(report.kept_live_bytes + report.kept_pending_bytes + report.kept_other_bytes, 0);
  uint64_t calls = memory_calls(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 0);
  VEXPECT_UINT_EQ(memory_calls(f), calls);
  VEXPECT_UINT_EQ(rig_census(f).physical_bytes, 0);
}

// Case 20: any subset of the size options is refused with the option named, or serves four requests.
VTEST_F(Growth, Case20EverySubsetOfOptions, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  static const char *const keys[] = {"chunk_max", "reserve", "arena", "growth", "hard_limit"};
  static const char *const values[3][5] = {{"4MiB", "1GiB", "64MiB", "8MiB", "256MiB"},
                                           {"1granule", "1", "1", "1", "16MiB"},
                                           {"64MiB", "96MiB", "2MiB", "0", "1GiB"}};
  for (unsigned subset = 0; subset < 32 * 3; subset++) {
    char conf[256] = "";
    for (size_t i = 0; i < 5; i++) {
      if ((subset & 1u << i) == 0) continue;
      size_t used = strlen(conf);
      (void)snprintf(conf + used, sizeof conf - used, "%s%s:%s", used == 0 ? "" : ",", keys[i], values[subset / 32][i]);
    }
    VTRACE("%s", conf);
    VASSERT_OK(rig_create(f, conf));
    uint64_t chunk = (subset & 1) == 0 ? 32 * MIB : subset / 32 == 0 ? 4 * MIB : subset / 32 == 1 ? 2 * MIB : 64 * MIB;
    uint64_t sizes[] = {1, MIB, chunk, chunk + 1};
    for (size_t i = 0; i < 4; i++) {
      void *ptr = NULL;
      uint64_t calls = memory_calls(f);
      vmp_status status = vmp_alloc(f->pool, &ptr, sizes[i], NULL);
      bool beyond_limit = (subset & 16) != 0 && sizes[i] > rig_stats(f).hard_limit;
      VEXPECT_STATUS(status, beyond_limit ? VMP_ERROR_LIMIT : VMP_OK);
      VEXPECT_UINT_LE(memory_calls(f) - calls, 200);  // a bounded number of steps
      if (ptr != NULL) rig_free(f, ptr, NULL);
    }
    rig_destroy(f);
    VASSERT_NO_FAILURE();
  }
}

// Case 21 and 24: reservations are freed with exactly their own addresses and sizes, and a reservation that fails is
// not. The host driver counts every violation of that.
VTEST_F(Growth, Case21And24SecondReservations, pool_rig) {
  rig_open(f, 8 * GIB, "reserve:256MiB,arena:64MiB");
  VASSERT_NO_FAILURE();
  void *blocks[16];
  for (size_t i = 0; i < 8; i++) blocks[i] = rig_alloc(f, 60 * MIB, NULL);
  vmp_driver_calls calls = rig_calls(f);
  VEXPECT_UINT_GE(calls.reserve, 2);
  // The next reservation fails: the caller sees that, and nothing else changes.
  vmp_host_fault fault = {VMP_CALL_mem_address_reserve, 1, VMP_CU_OUT_OF_MEMORY, true};
  void *ptr = NULL;
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 2 * GIB, NULL), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "address space ran out");
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  rig_check(f);
  vmp_host_lift(f->driver);
  ptr = rig_alloc(f, 2 * GIB, NULL);
  rig_touch(f, ptr, 2 * GIB, NULL);
  rig_free(f, ptr, NULL);
  for (size_t i = 0; i < 8; i++) rig_free(f, blocks[i], NULL);
  rig_destroy(f);
  calls = rig_calls(f);
  VEXPECT_UINT_EQ(rig_census(f).reservations, 0);
}

// Case 25: many small pools hold address space in proportion, shown apart from mapped memory.
VTEST_F(Growth, Case25SmallPoolsAreSmall, pool_rig) {
  enum { POOLS = 64 };
  vmp_pool *pools[POOLS];
  rig_open_driver(f, 8 * GIB);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < POOLS; i++) {
    VASSERT_OK(rig_create(f, "reserve:4MiB,chunk_max:1granule,growth:0,arena:2MiB"));
    pools[i] = f->pool;
    void *ptr = rig_alloc(f, GRANULE, NULL);
    vmp_pool_stats_data stats = rig_stats(f);
    VEXPECT_UINT_LE(stats.reserved_va, 16 * MIB);
    VEXPECT_UINT_EQ(stats.mapped, GRANULE);
    rig_free(f, ptr, NULL);
  }
  VEXPECT_UINT_LE(rig_census(f).reserved_bytes, POOLS * 16 * MIB);
  for (size_t i = 0; i < POOLS; i++) VEXPECT_OK(vmp_pool_destroy(pools[i]));
  f->pool = NULL;
  VEXPECT_UINT_EQ(rig_census(f).reserved_bytes, 0);
}

// Case 26: reservations above a size are refused: the pool backs off, or says what is possible.
VTEST_F(Growth, Case26ReservationsAreHalved, pool_rig) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = 16 * GIB;
  options.ledger_high = 1;
  options.max_reserve_bytes = 32 * GIB;
  rig_open_driver_with(f, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).reserved_va, 32 * GIB);  // 16 x 16 GiB, halved three times
  VEXPECT_STR_CONTAINS(vmp_pool_config(f->pool), "reserve:32GiB (default, adjusted)");
  rig_free(f, rig_alloc(f, 100 * MIB, NULL), NULL);
}

VTEST_F(Growth, Case26TooLittleAddressSpaceNamesWhatIsPossible, pool_rig) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = 16 * GIB;
  options.ledger_high = 1;
  options.max_reserve_bytes = GIB;
  rig_open_driver_with(f, &options);
  VASSERT_NO_FAILURE();
  VEXPECT_STATUS(rig_create(f, NULL), VMP_ERROR_OUT_OF_ADDRESS_SPACE);  // not a lack of memory
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "reserve:1GiB");
  VASSERT_OK(rig_create(f, "reserve:1GiB"));
  rig_free(f, rig_alloc(f, 100 * MIB, NULL), NULL);
}

// Case 27: a small reservation and a large limit: another range is reserved, and the pool goes on.
VTEST_F(Growth, Case27AnotherReservation, pool_rig) {
  rig_open(f, 80 * GIB, "reserve:8GiB,hard_limit:32GiB");
  VASSERT_NO_FAILURE();
  void *a[4], *b, *c;
  for (size_t i = 0; i < 4; i++) a[i] = rig_alloc(f, 2 * GIB, NULL);
  b = rig_alloc(f, 4 * GIB, NULL);
  c = rig_alloc(f, 9 * GIB, NULL);  // larger than a whole reservation
  rig_touch(f, c, 9 * GIB, NULL);
  VEXPECT_UINT_GT(rig_stats(f).reserved_va, 16 * GIB);
  for (size_t i = 0; i < 4; i++) rig_free(f, a[i], NULL);
  rig_free(f, b, NULL);
  rig_free(f, c, NULL);
}

// Case 45: allocate and free in a loop with default options: next to no driver calls.
VTEST_F(Growth, Case45NoReleaseBetweenRequests, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  for (int i = 0; i < 20000; i++) {
    void *ptr = NULL;
    VASSERT_OK(vmp_alloc(f->pool, &ptr, 64 * MIB, f->streams[0]));
    rig_touch(f, ptr, 64 * MIB, f->streams[0]);
    VASSERT_OK(vmp_free(f->pool, ptr, f->streams[0]));
    if (i % 10 == 0) VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));
  }
  VEXPECT_UINT_LE(memory_calls(f), 200);          // 1 % of the operations
  VEXPECT_UINT_EQ(rig_calls(f).event_record, 0);  // one stream needs no event
}

// A growth is rounded up where memory is plentiful, and exact where it is not.
VTEST_F(Growth, MapsAheadOnlyWherePlentiful, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 3 * MIB, NULL);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 32 * MIB);
  VEXPECT_UINT_EQ(rig_stats(f).chunks, 1);
  rig_free(f, a, NULL);
  rig_destroy(f);
  VASSERT_OK(rig_create(f, "hard_limit:70MiB"));
  a = rig_alloc(f, 3 * MIB, NULL);
  void *b = rig_alloc(f, 66 * MIB, NULL);  // what was mapped ahead must not be in the way
  VEXPECT_UINT_LE(rig_stats(f).mapped, 70 * MIB);
  rig_free(f, a, NULL);
  rig_free(f, b, NULL);
}
