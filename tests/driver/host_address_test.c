// Rules 10 to 18: reserving and freeing addresses; where they come from, and what becomes of them.
#include <string.h>

#include "tests/driver/host_rig.h"

#define HIGH (UINT64_C(1) << 48)

VTEST_F(HostRule, 10_ReserveArguments, host_rig) {
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(f, 10, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, NULL, G, 0, 0, 0));
  VEXPECT_RULE(f, 10, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, G, 0, 0, 1));
  VEXPECT_UINT_EQ(ptr, 77);
}

VTEST_F(HostRule, 11_ReserveNothing, host_rig) {
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(f, 11, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, 0, 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, 77);
}

VTEST_F(HostRule, 12_ReserveAMultipleOfTheGranularity, host_rig) {
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(f, 12, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, G + 4096, 0, 0, 0));
  VEXPECT_RULE(f, 12, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, G + 1, 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, 77);
}

VTEST(HostRule, 12_APageMultipleIsLint) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_LINT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = 0;
  VEXPECT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptr, G + 4096, 0, 0, 0));
  VEXPECT_UINT_EQ(host_counters(&rig).lint, 1);
  VEXPECT_RULE(&rig, 12, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(rig.driver, &ptr, G + 1, 0, 0, 0));
  // The piece behind the last whole granule can't be mapped, and the rest can.
  (void)host_map(&rig, ptr, G);
  vmp_cu_handle handle = host_create(&rig, 0, G);
  VEXPECT_RULE(&rig, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(rig.driver, ptr + G, G, 0, handle, 0));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 13_Alignment, host_rig) {
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(f, 13, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, G, 3 * MIB(2), 0, 0));
  VEXPECT_UINT_EQ(ptr, 77);
  static const size_t good[] = {0, 2, 4096, MIB(2), MIB(512), GIB(64)};
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    VEXPECT_CUDA(vmp_drv_mem_address_reserve(f->driver, &ptr, G, good[i], 0, 0));
    VEXPECT_UINT_EQ(ptr % MIB(2), 0);  // small powers are granted at the granularity
    if (good[i] != 0) VEXPECT_UINT_EQ(ptr % good[i], 0);
  }
}

VTEST_F(HostRule, 14_Hint, host_rig) {
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(f, 14, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_reserve(f->driver, &ptr, G, 0, HIGH + 4096, 0));
  VEXPECT_RULE(f, 14, VMP_CU_INVALID_VALUE,
               vmp_drv_mem_address_reserve(f->driver, &ptr, G, MIB(512), HIGH + MIB(2), 0));
  VEXPECT_UINT_EQ(ptr, 77);
}

VTEST(HostRule, 14_AMisalignedHintIsLint) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_LINT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = 0;
  VEXPECT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptr, G, 0, HIGH + 4096, 0));
  VEXPECT_UINT_EQ(ptr % G, 0);
  VEXPECT_UINT_EQ(host_counters(&rig).lint, 1);
  host_rig_teardown(&rig);
}

// The old end of a reservation as the hint: growth in place, or somewhere else and no error.
static void grow_in_place(const vmp_host_options *options) {
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, options);
  vmp_cu_ptr big = host_reserve(&rig, 16 * G);
  VASSERT_CUDA(vmp_drv_mem_address_free(rig.driver, big, 16 * G));
  vmp_cu_ptr first = 0;
  vmp_cu_ptr second = 0;
  vmp_cu_ptr third = 0;
  vmp_cu_ptr hint = options->ledger_high != 0 ? HIGH + GIB(1024) : 0;
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &first, 4 * G, 0, hint, 0));
  if (hint != 0) VEXPECT_UINT_EQ(first, hint);
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &second, 4 * G, 0, first + 4 * G, 0));
  if (hint != 0) VEXPECT_UINT_EQ(second, first + 4 * G);
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &third, 4 * G, 0, first, 0));  // taken: elsewhere
  VEXPECT_TRUE(third >= first + 4 * G || third + 4 * G <= first);
  VEXPECT_TRUE(third >= second + 4 * G || third + 4 * G <= second);
  host_expect_consistent(&rig);
  host_rig_teardown(&rig);
}

VTEST(HostAddress, AHintIsHonouredWhereFree) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  grow_in_place(&options);
  options.ledger_high = 1;
  grow_in_place(&options);
  options.ledger_high = 0;
  options.mode = VMP_HOST_EXPOSED;
  grow_in_place(&options);
}

VTEST(HostRule, 15_AddressBudget) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.address_bytes = GIB(64);
  options.max_reserve_bytes = GIB(32);
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = 77;
  // Out of addresses is an answer and no violation, and memory has nothing to do with it.
  VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(rig.driver, &ptr, GIB(33), 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, 77);
  vmp_cu_ptr first = host_reserve(&rig, GIB(32));
  vmp_cu_ptr second = host_reserve(&rig, GIB(30));
  VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(rig.driver, &ptr, GIB(4), 0, 0, 0));
  VEXPECT_CUDA(vmp_drv_mem_address_free(rig.driver, first, GIB(32)));
  VEXPECT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptr, GIB(4), 0, 0, 0));
  VEXPECT_UINT_EQ(host_census(&rig).reserved_bytes, GIB(34));
  (void)second;
  host_rig_teardown(&rig);
}

VTEST(HostRule, 15_SizesThatWrap) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.address_bytes = UINT64_MAX;
  for (int high = 0; high < 2; high++) {
    options.ledger_high = (uint32_t)high;
    host_rig rig = {NULL, NULL};
    host_rig_open(&rig, &options);
    vmp_cu_ptr ptr = 77;
    size_t huge = SIZE_MAX - G + 1;
    VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(rig.driver, &ptr, huge, 0, 0, 0));
    VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY,
                 vmp_drv_mem_address_reserve(rig.driver, &ptr, (size_t)1 << 56, 0, 0, 0));
    VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY,
                 vmp_drv_mem_address_reserve(rig.driver, &ptr, G, (size_t)1 << 63, 0, 0));
    VEXPECT_UINT_EQ(ptr, 77);
    host_rig_teardown(&rig);
  }
}

VTEST_F(HostRule, 17_FreeExactlyOneReservation, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, 0, 4 * G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr, 0));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr, 3 * G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr, 5 * G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr + G, 3 * G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr + 64 * G, 4 * G));
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, 4 * G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr, 4 * G));  // twice
}

VTEST(HostRule, 17_TwoReservationsAreNotOne) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr first = 0;
  vmp_cu_ptr second = 0;
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &first, G, 0, HIGH + GIB(1), 0));
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &second, G, 0, first + G, 0));
  VASSERT_UINT_EQ(second, first + G);
  VEXPECT_RULE(&rig, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(rig.driver, first, 2 * G));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 18_FreeWhileMapped, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  (void)host_map(f, ptr + G, G);
  VEXPECT_RULE(f, 18, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, ptr, 4 * G));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr + G, G));
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, 4 * G));
}

VTEST(HostRule, 18_CompatFreesWhileMapped) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_COMPAT;
  for (int mode = VMP_HOST_LEDGER; mode <= VMP_HOST_EXPOSED; mode++) {
    options.mode = (vmp_host_mode)mode;
    host_rig rig = {NULL, NULL};
    host_rig_open(&rig, &options);
    vmp_cu_ptr ptr = host_reserve(&rig, 4 * G);
    vmp_cu_handle first = host_map(&rig, ptr + G, G);
    vmp_cu_handle second = host_map(&rig, ptr + 3 * G, G);
    VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, first));
    VEXPECT_CUDA(vmp_drv_mem_address_free(rig.driver, ptr, 4 * G));
    VEXPECT_UINT_EQ(host_census(&rig).mappings, 0);
    VEXPECT_UINT_EQ(host_census(&rig).handles, 1);
    VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, second));
    VEXPECT_UINT_EQ(host_counters(&rig).violations + host_counters(&rig).lint, 0);
    host_expect_consistent(&rig);
    host_rig_teardown(&rig);
  }
}

// ---- where addresses come from ----

VTEST(HostAddress, LedgerHighAsksNothingOfTheProcess) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, GIB(1280));
  VEXPECT_UINT_GE(ptr, HIGH);
  host_rig_teardown(&rig);
}

VTEST(HostAddress, WhatTheProcessRefusesComesFromAbove) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.address_bytes = UINT64_C(1) << 50;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, (size_t)1 << 48);  // more than any process has
  VEXPECT_UINT_GE(ptr, HIGH);
  (void)host_map(&rig, ptr + ((size_t)1 << 48) - G, G);
  host_expect_consistent(&rig);
  host_rig_teardown(&rig);
}

VTEST(HostAddress, ExposedModeHasTheProcessOnly) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = VMP_HOST_EXPOSED;
  options.address_bytes = UINT64_C(1) << 50;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = 77;
  VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(rig.driver, &ptr, (size_t)1 << 48, 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, 77);
  host_rig_teardown(&rig);
}

// Freed addresses stay out of use, or come back at once.
static void reuse(uint32_t high, uint32_t immediate) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = high;
  options.immediate_reuse = immediate;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr first = host_reserve(&rig, 8 * G);
  (void)host_reserve(&rig, G);
  VASSERT_CUDA(vmp_drv_mem_address_free(rig.driver, first, 8 * G));
  vmp_cu_ptr seen[20];
  bool again = false;
  for (int i = 0; i < 20; i++) {
    seen[i] = host_reserve(&rig, 8 * G);
    again = again || seen[i] == first;
    if (i == 0 && immediate != 0) VEXPECT_UINT_EQ(seen[0], first);
    VASSERT_CUDA(vmp_drv_mem_address_free(rig.driver, seen[i], 8 * G));
  }
  VEXPECT_INT_EQ(again, immediate != 0);
  host_expect_consistent(&rig);
  host_rig_teardown(&rig);
}

VTEST(HostAddress, QuarantineAndImmediateReuse) {
  reuse(0, 0);
  reuse(0, 1);
  reuse(1, 0);
  reuse(1, 1);
}

VTEST(HostAddress, ReservingAndFreeingForEverNeverRunsOut) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  for (uint32_t high = 0; high < 2; high++) {
    options.ledger_high = high;
    host_rig rig = {NULL, NULL};
    host_rig_open(&rig, &options);
    for (int i = 0; i < 2500; i++) {  // 2500 x 1.25 TiB is 12 times what 2^48 holds
      vmp_cu_ptr ptr = host_reserve(&rig, GIB(1280));
      VASSERT_CUDA(vmp_drv_mem_address_free(rig.driver, ptr, GIB(1280)));
    }
    host_rig_teardown(&rig);
  }
}

VTEST(HostAddress, GoesRoundAndFillsGaps) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  options.address_bytes = UINT64_MAX;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  // Seven pieces of 2^53 and one of less fill [2^48, 2^56) but for the tail; a hole in the middle is found again.
  size_t piece = (size_t)1 << 53;
  vmp_cu_ptr ptrs[7];
  for (int i = 0; i < 7; i++) {
    VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptrs[i], piece, 0, 0, 0));
    if (i > 0) VEXPECT_UINT_EQ(ptrs[i], ptrs[i - 1] + piece);
  }
  vmp_cu_ptr ptr = 77;
  VEXPECT_CODE(vmp_drv_mem_address_reserve(rig.driver, &ptr, piece, 0, 0, 0), VMP_CU_OUT_OF_MEMORY);
  VASSERT_CUDA(vmp_drv_mem_address_free(rig.driver, ptrs[3], piece));
  VEXPECT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptr, piece, 0, 0, 0));
  VEXPECT_UINT_EQ(ptr, ptrs[3]);
  host_expect_consistent(&rig);
  host_rig_teardown(&rig);
}
