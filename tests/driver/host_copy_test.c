// Rules 35, 55, 56, 58 and 64: copies, fills and touches, checked when called and again when they run; work under an
// unmap; sticky errors; reads of what was never written.
#include <string.h>

#include "tests/driver/host_rig.h"

VTEST_F(HostRule, 55_CopyNeedsEveryByteAtTheCall, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 8 * G);
  (void)host_map(f, ptr, G);
  (void)host_map(f, ptr + G, G);
  vmp_cu_handle plain = host_create(f, 0, G);
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr + 2 * G, G, 0, plain, 0));  // mapped without a right
  (void)host_map(f, ptr + 3 * G, G);
  vmp_cu_access_desc read = host_grant(0, VMP_CU_ACCESS_READ);
  VASSERT_CUDA(vmp_drv_mem_set_access(f->driver, ptr + 3 * G, G, &read, 1));
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  char bytes[64] = {0};
  vmp_driver *d = f->driver;
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_htod(d, ptr + 2 * G - 32, bytes, 64));  // no right
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_htod(d, ptr + 3 * G, bytes, 64));       // read-only
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtoh(d, bytes, ptr + 4 * G - 32, 64));  // off the end
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtoh(d, bytes, ptr + 5 * G, 64));       // unmapped
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtoh(d, bytes, (vmp_cu_ptr)4096, 64));  // nowhere
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtod(d, ptr + 3 * G, ptr, 64));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtod(d, ptr, ptr + 2 * G, 64));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memset_d8(d, ptr + 3 * G, 1, 64));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_htod(d, ptr, NULL, 64));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtoh(d, NULL, ptr, 64));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_htod_async(d, ptr + 2 * G, bytes, 64, stream));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtoh_async(d, bytes, ptr + 2 * G, 64, stream));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_dtod_async(d, ptr, ptr + 2 * G, 64, stream));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memset_d8_async(d, ptr + 2 * G, 1, 64, stream));
  VEXPECT_RULE(f, 55, VMP_CU_INVALID_VALUE, vmp_drv_memset_d8(d, ptr, 1, SIZE_MAX));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));  // the context is fine
  // Adjacent mappings with the right are one range, and no bytes are no copy.
  VEXPECT_CUDA(vmp_drv_memcpy_htod(d, ptr + G - 32, bytes, 64));
  VEXPECT_CUDA(vmp_drv_memcpy_htod(d, 0, NULL, 0));
  VEXPECT_CUDA(vmp_drv_memcpy_dtoh(d, bytes, ptr + G - 32, 64));
}

VTEST(HostRule, 55_TheStreamsDeviceNeedsTheRight) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_context second = NULL;
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &second, 1));
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig.driver, second));
  char byte = 3;
  VEXPECT_RULE(&rig, 55, VMP_CU_INVALID_VALUE, vmp_drv_memcpy_htod(rig.driver, ptr, &byte, 1));
  vmp_cu_access_desc grant = host_grant(1, 3);
  VASSERT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, &grant, 1));
  VEXPECT_CUDA(vmp_drv_memcpy_htod(rig.driver, ptr, &byte, 1));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  host_rig_teardown(&rig);
}

VTEST_F(HostCopy, MovesBytes, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  for (size_t i = 0; i < 4; i++) (void)host_map(f, ptr + i * G, G);
  static unsigned char source[300000];
  static unsigned char result[300000];
  for (size_t i = 0; i < sizeof source; i++) source[i] = (unsigned char)(i * 7 + i / 256);
  VASSERT_CUDA(vmp_drv_memcpy_htod(f->driver, ptr + G - 100000, source, sizeof source));
  VASSERT_CUDA(vmp_drv_memcpy_dtod(f->driver, ptr + 2 * G + 77, ptr + G - 100000, sizeof source));
  VASSERT_CUDA(vmp_drv_memset_d8(f->driver, ptr + 2 * G + 177, 0xee, 70000));
  VASSERT_CUDA(vmp_drv_memcpy_dtoh(f->driver, result, ptr + 2 * G + 77, sizeof result));
  VEXPECT_BYTES_EQ(result, source, 100);
  VEXPECT_BYTES_FILLED(result + 100, 0xee, 70000);
  VEXPECT_BYTES_EQ(result + 70100, source + 70100, sizeof source - 70100);
}

VTEST_F(HostCopy, PageableBytesAreTakenAtTheCallPinnedOnesWhenItRuns, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  char pageable[4] = "old";
  char *pinned = NULL;
  void *allocated = NULL;
  VASSERT_CUDA(vmp_drv_mem_host_alloc(f->driver, &allocated, 4, 0));
  pinned = allocated;
  memcpy(pinned, "old", 4);
  VASSERT_CUDA(vmp_drv_memcpy_htod_async(f->driver, ptr, pageable, 4, stream));
  VASSERT_CUDA(vmp_drv_memcpy_htod_async(f->driver, ptr + 4, pinned, 4, stream));
  memcpy(pageable, "new", 4);
  memcpy(pinned, "new", 4);
  char result[8];
  memset(result, 'x', sizeof result);
  VASSERT_CUDA(vmp_drv_memcpy_dtoh_async(f->driver, result, ptr, 8, stream));
  VEXPECT_BYTES_FILLED(result, 'x', 8);  // a copy to the host is not there before its stream was waited for
  VASSERT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_STR_EQ(result, "old");
  VEXPECT_STR_EQ(result + 4, "new");
  VEXPECT_CUDA(vmp_drv_mem_free_host(f->driver, allocated));
}

// ---- what happens to queued work ----

VTEST_F(HostRule, 35_UnmapUnderQueuedWork, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_map(f, ptr, G);
  (void)host_map(f, ptr + G, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + 100, 50, true));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr + G, G));  // no work on that one
  VEXPECT_UINT_EQ(host_counters(f).violations, 0);
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));  // succeeds, and is reported at once
  VEXPECT_UINT_EQ(host_counters(f).violations, 1);
  VEXPECT_UINT_EQ(host_counters(f).unmaps_under_work, 1);
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "rule 35, ");
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "was unmapped at host_copy_test+0x");
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "queued at host_copy_test+0x");
  host_expect_consistent(f);
  // Mapping the same memory at the same place again doesn't help: the operation knows the older mapping.
  vmp_cu_access_desc grant = host_grant(0, 3);
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
  VASSERT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &grant, 1));
  VEXPECT_CODE(vmp_drv_stream_synchronize(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_UINT_EQ(host_counters(f).bad_touches, 1);
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "rule 56, ");
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "unmapped last by call ");
  host_expect_consistent(f);
}

VTEST_F(HostRule, 35_NoFalseAlarmAfterASync, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_map(f, ptr, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_stream other = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_access_desc grant = host_grant(0, 3);
  vmp_cu_event event = host_event(f);
  for (int i = 0; i < 100; i++) {
    VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr, G, true));
    VASSERT_CUDA(vmp_drv_event_record(f->driver, event, stream));
    VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + G, 1, false));  // unmapped: its own problem
    if (i == 0) vmp_host_tolerate_bad_touches(f->driver, true);
    VASSERT_CUDA(vmp_drv_stream_wait_event(f->driver, other, event, 0));
    VASSERT_CUDA(vmp_host_touch(f->driver, 0, other, ptr, 1, false));
    VASSERT_CUDA(vmp_drv_stream_synchronize(f->driver, other));  // implies the record on `stream`
    VASSERT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
    VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
    VASSERT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &grant, 1));
  }
  VEXPECT_UINT_EQ(host_counters(f).unmaps_under_work, 0);
  VASSERT_CUDA(vmp_drv_ctx_synchronize(f->driver));
  VEXPECT_UINT_EQ(host_counters(f).bad_touches, 100);
  host_expect_consistent(f);
}

VTEST_F(HostRule, 35_LoweringRightsUnderQueuedWork, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  for (size_t i = 0; i < 4; i++) (void)host_map(f, ptr + i * G, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_host_tolerate_bad_touches(f->driver, true);
  vmp_cu_access_desc none = host_grant(0, VMP_CU_ACCESS_NONE);
  vmp_cu_access_desc read = host_grant(0, VMP_CU_ACCESS_READ);
  vmp_cu_access_desc both = host_grant(0, VMP_CU_ACCESS_READWRITE);
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr, G, false));
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + G, G, true));
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + 2 * G, G, true));
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, 4 * G, &both, 1));  // raising, or the same: harmless
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &read, 1));      // only reads are queued there
  VEXPECT_UINT_EQ(host_counters(f).violations, 0);
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr + G, G, &read, 1));
  VEXPECT_UINT_EQ(host_counters(f).violations, 1);
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "lost its right to write");
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr + 2 * G, G, &none, 1));
  VEXPECT_UINT_EQ(host_counters(f).violations, 2);
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr + 2 * G, G, &both, 1));  // too late: the work is doomed
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_UINT_EQ(host_counters(f).bad_touches, 2);
  host_expect_consistent(f);
}

VTEST(HostRule, 35_LoweringAnotherDevicesRightsIsFine) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_access_desc peer = host_grant(1, 3);
  VASSERT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, &peer, 1));
  vmp_cu_stream stream = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 0, stream, ptr, G, true));
  peer.flags = 0;
  VEXPECT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, &peer, 1));
  VEXPECT_CUDA(vmp_drv_stream_synchronize(rig.driver, stream));
  VEXPECT_UINT_EQ(host_counters(&rig).violations, 0);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 56_ACopyIsCheckedAgainWhenItRuns, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  char bytes[16] = "x";
  VASSERT_CUDA(vmp_drv_memcpy_dtoh_async(f->driver, bytes, ptr, sizeof bytes, stream));
  VASSERT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CODE(vmp_drv_stream_synchronize(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_STR_EQ(bytes, "x");  // nothing was copied
}

VTEST_F(HostRule, 56_ATouchIsCheckedOnlyWhenItRuns, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 8 * G);
  (void)host_map(f, ptr + G, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_host_tolerate_bad_touches(f->driver, true);
  struct {
    vmp_cu_ptr ptr;
    uint64_t bytes;
    bool write, good;
  } touches[] = {
      {ptr + G, G, true, true},
      {ptr + G, G + 1, true, false},
      {ptr + G - 1, 2, false, false},
      {ptr + 2 * G - 1, 1, false, true},
      {ptr + 2 * G, 1, false, false},
      {ptr, 8 * G, false, false},
      {ptr - 64 * G, 100 * G, false, false},
      {0, 1, false, false},
      {ptr + G, UINT64_MAX, false, false},
      {UINT64_MAX, 1, false, false},
      {ptr + G, 0, true, true},
  };
  uint64_t bad = 0;
  for (size_t i = 0; i < sizeof touches / sizeof touches[0]; i++) {
    VTRACE("touch %zu", i);
    VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, touches[i].ptr, touches[i].bytes, touches[i].write));
    VEXPECT_UINT_EQ(host_counters(f).bad_touches, bad);
    host_expect_consistent(f);
    VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
    if (!touches[i].good) bad++;
    VEXPECT_UINT_EQ(host_counters(f).bad_touches, bad);
    host_expect_consistent(f);
  }
  // Mapped after it was queued: not the mapping that it knew.
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + 4 * G, 1, false));
  (void)host_map(f, ptr + 4 * G, G);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->driver, stream));
  VEXPECT_UINT_EQ(host_counters(f).bad_touches, bad + 1);
}

VTEST(HostRule, 56_ATouchAcrossTwoReservations) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr first = 0;
  vmp_cu_ptr second = 0;
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &first, G, 0, (UINT64_C(1) << 48) + GIB(1), 0));
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &second, G, 0, first + G, 0));
  VASSERT_UINT_EQ(second, first + G);
  (void)host_map(&rig, first, G);
  (void)host_map(&rig, second, G);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 0, NULL, first, 2 * G, true));  // a kernel may do that
  host_expect_consistent(&rig);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  VEXPECT_UINT_EQ(host_counters(&rig).bad_touches, 0);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 58_IllegalAddressIsSticky, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_cu_handle handle = host_map(f, ptr, G);
  vmp_cu_stream stream = host_stream(f, VMP_CU_STREAM_NON_BLOCKING);
  vmp_cu_event event = host_event(f);
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr + 2 * G, 1, false));
  VASSERT_CUDA(vmp_host_touch(f->driver, 0, stream, ptr, 1, true));
  VEXPECT_CODE(vmp_drv_stream_synchronize(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  char byte = 0;
  size_t number = 0;
  vmp_cu_stream other = NULL;
  VEXPECT_CODE(vmp_drv_stream_synchronize(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_stream_query(f->driver, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_event_record(f->driver, event, stream), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_event_query(f->driver, event), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_ctx_synchronize(f->driver), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_memcpy_dtoh(f->driver, &byte, ptr, 1), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_mem_get_info(f->driver, &number, &number), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_drv_stream_create(f->driver, &other, 0), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CODE(vmp_host_touch(f->driver, 0, stream, ptr, 1, false), VMP_CU_ILLEGAL_ADDRESS);
  // A reset doesn't cure it. VMM calls need no context; teardown works.
  VEXPECT_CUDA(vmp_drv_primary_ctx_reset(f->driver, 0));
  vmp_cu_context context = NULL;
  VEXPECT_CODE(vmp_drv_primary_ctx_retain(f->driver, &context, 0), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_CUDA(vmp_drv_mem_address_free(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_primary_ctx_release(f->driver, 0));
  VEXPECT_UINT_EQ(host_counters(f).bad_touches, 1);  // what was queued behind it was dropped
  host_expect_consistent(f);
}

VTEST(HostRule, 58_OnlyTheContextOfTheFault) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 1, NULL, 4096, 1, false));
  vmp_cu_context second = NULL;
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &second, 1));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig.driver, second));
  VEXPECT_CODE(vmp_drv_ctx_synchronize(rig.driver), VMP_CU_ILLEGAL_ADDRESS);
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig.driver, rig.context));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  host_rig_teardown(&rig);
}

VTEST(HostRule, 58_CompatResetCures) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_COMPAT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 0, NULL, 4096, 1, false));
  VEXPECT_CODE(vmp_drv_ctx_synchronize(rig.driver), VMP_CU_ILLEGAL_ADDRESS);
  VEXPECT_CUDA(vmp_drv_primary_ctx_reset(rig.driver, 0));
  VEXPECT_CUDA(vmp_drv_primary_ctx_retain(rig.driver, &rig.context, 0));
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  host_rig_teardown(&rig);
}

// ---- lint ----

VTEST_F(HostRule, 64_ReadOfMemoryNeverWritten, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  char bytes[16];
  VASSERT_CUDA(vmp_drv_memset_d8(f->driver, ptr, 1, 4096));
  VASSERT_CUDA(vmp_drv_memcpy_dtoh(f->driver, bytes, ptr + 4080, 16));
  VEXPECT_UINT_EQ(host_counters(f).lint, 0);
  VASSERT_CUDA(vmp_drv_memcpy_dtoh(f->driver, bytes, ptr + 4081, 16));
  VEXPECT_UINT_EQ(host_counters(f).lint, 1);
  VEXPECT_STR_CONTAINS(host_last_sentence(f), "lint 64, ");
  VEXPECT_UINT_EQ(host_counters(f).violations, 0);
  VASSERT_CUDA(vmp_drv_memcpy_dtod(f->driver, ptr, ptr + 100000, 16));
  VASSERT_CUDA(vmp_drv_ctx_synchronize(f->driver));
  VEXPECT_UINT_EQ(host_counters(f).lint, 2);
}

VTEST(HostCopy, TouchFillWritesAPattern) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.touch_fill = 1;
  options.work = VMP_HOST_WORK_EARLY;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, 2 * G);
  (void)host_map(&rig, ptr, G);
  (void)host_map(&rig, ptr + G, G);
  VASSERT_CUDA(vmp_host_touch(rig.driver, 0, NULL, ptr + G - 5000, 10000, true));
  unsigned char bytes[10000];
  VASSERT_CUDA(vmp_host_peek(rig.driver, ptr + G - 5000, bytes, sizeof bytes));
  VEXPECT_BYTES_FILLED(bytes, bytes[0], sizeof bytes);
  host_rig_teardown(&rig);
}
