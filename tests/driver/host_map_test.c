// Rules 27 to 34 and 36 to 43: mapping, unmapping, rights.
#include "tests/driver/host_rig.h"

#define HIGH (UINT64_C(1) << 48)

// ---- map ----

VTEST_F(HostRule, 27_MapAtAnOffset, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_create(f, 0, 2 * G);
  VEXPECT_RULE(f, 27, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, G, handle, 0));
  VEXPECT_RULE(f, 27, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, 2 * G, SIZE_MAX, handle, 0));
}

VTEST_F(HostRule, 28_MapArguments, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_create(f, 0, G);
  VEXPECT_RULE(f, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, 0, G, 0, handle, 0));
  VEXPECT_RULE(f, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, 0, 0, handle, 0));
  VEXPECT_RULE(f, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 1));
  VEXPECT_RULE(f, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + 4096, G, 0, handle, 0));
  VEXPECT_RULE(f, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G - 4096, 0, handle, 0));
}

VTEST(HostRule, 28_EachDeviceHasItsGranularity) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 3;
  options.devices[0].granule_bytes = MIB(2);
  options.devices[1].granule_bytes = KIB(64);
  options.devices[2].granule_bytes = MIB(512);
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  size_t bytes = 0;
  static const size_t granules[] = {MIB(2), KIB(64), MIB(512)};
  for (int i = 0; i < 3; i++) {
    vmp_cu_mem_prop prop = host_prop(i);
    VEXPECT_CUDA(vmp_drv_mem_get_allocation_granularity(rig.driver, &bytes, &prop, 0));
    VEXPECT_UINT_EQ(bytes, granules[i]);
  }
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = host_prop(2);
  VEXPECT_RULE(&rig, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(rig.driver, &handle, MIB(2), &prop, 0));
  vmp_cu_ptr ptr = 0;
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig.driver, &ptr, GIB(2), GIB(1), 0, 0));
  vmp_cu_handle large = host_create(&rig, 2, MIB(512));
  vmp_cu_handle small = host_create(&rig, 1, KIB(64));
  VEXPECT_RULE(&rig, 28, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(rig.driver, ptr + MIB(2), MIB(512), 0, large, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(rig.driver, ptr + MIB(512), MIB(512), 0, large, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(rig.driver, ptr + MIB(512) - KIB(64), KIB(64), 0, small, 0));
  host_expect_consistent(&rig);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 29_MapAHandleWhole, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_create(f, 0, 2 * G);
  VEXPECT_RULE(f, 29, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
  VEXPECT_RULE(f, 29, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, 3 * G, 0, handle, 0));
}

VTEST(HostRule, 29_CompatMapsAPrefix) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_COMPAT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, 4 * G);
  vmp_cu_handle handle = host_create(&rig, 0, 2 * G);
  VEXPECT_CUDA(vmp_drv_mem_map(rig.driver, ptr, G, 0, handle, 0));
  VEXPECT_UINT_EQ(host_census(&rig).mapped_bytes, G);
  VEXPECT_RULE(&rig, 29, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(rig.driver, ptr + G, 3 * G, 0, handle, 0));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 30_MapOutsideAReservation, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 4 * G);
  vmp_cu_handle handle = host_create(f, 0, 2 * G);
  VEXPECT_RULE(f, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + 3 * G, 2 * G, 0, handle, 0));
  VEXPECT_RULE(f, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr - G, 2 * G, 0, handle, 0));
  VEXPECT_RULE(f, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, UINT64_MAX - G + 1, 2 * G, 0, handle, 0));
  VEXPECT_RULE(f, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, G, 2 * G, 0, handle, 0));
}

// Two reservations side by side.
static void reserve_two(host_rig *rig, vmp_cu_ptr *first, vmp_cu_ptr *second) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  host_rig_open(rig, &options);
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig->driver, first, 2 * G, 0, HIGH + GIB(1), 0));
  VASSERT_CUDA(vmp_drv_mem_address_reserve(rig->driver, second, 2 * G, 0, *first + 2 * G, 0));
  VASSERT_UINT_EQ(*second, *first + 2 * G);
}

VTEST(HostRule, 30_MapAcrossTwoReservations) {
  host_rig rig = {NULL, NULL};
  vmp_cu_ptr first = 0;
  vmp_cu_ptr second = 0;
  reserve_two(&rig, &first, &second);
  vmp_cu_handle handle = host_create(&rig, 0, 2 * G);
  VEXPECT_RULE(&rig, 30, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(rig.driver, first + G, 2 * G, 0, handle, 0));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 31_MapOverAMapping, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 8 * G);
  (void)host_map(f, ptr + 2 * G, 2 * G);
  vmp_cu_handle one = host_create(f, 0, G);
  vmp_cu_handle four = host_create(f, 0, 4 * G);
  VEXPECT_RULE(f, 31, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + 2 * G, G, 0, one, 0));
  VEXPECT_RULE(f, 31, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + 3 * G, G, 0, one, 0));
  VEXPECT_RULE(f, 31, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, 4 * G, 0, four, 0));
  VEXPECT_RULE(f, 31, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + 3 * G, 4 * G, 0, four, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(f->driver, ptr + 4 * G, 4 * G, 0, four, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(f->driver, ptr + G, G, 0, one, 0));
  VEXPECT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, one, 0));  // one handle at two places
  VEXPECT_UINT_EQ(host_census(f).mapped_bytes, 8 * G);
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, 7 * G);
}

VTEST_F(HostRule, 32_MapADeadHandle, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_cu_handle handle = host_create(f, 0, G);
  VEXPECT_RULE(f, 32, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, 0, 0, 0));
  VEXPECT_RULE(f, 32, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, 0, handle + 5, 0));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_RULE(f, 32, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
}

// ---- unmap ----

VTEST_F(HostRule, 33_UnmapWholeMappings, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 16 * G);
  (void)host_map(f, ptr, 2 * G);
  (void)host_map(f, ptr + 2 * G, 2 * G);
  (void)host_map(f, ptr + 6 * G, 2 * G);  // behind a hole of two
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, 2 * G - 1));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + G, G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + G, 3 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, 3 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, 5 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, 8 * G));  // a hole inside
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + 4 * G, 2 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + 4 * G, 4 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + 6 * G, 20 * G));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + 6 * G, SIZE_MAX));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr + 64 * G, G));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, 4 * G));  // several whole mappings in one call
  VEXPECT_UINT_EQ(host_census(f).mappings, 1);
}

VTEST(HostRule, 33_UnmapAcrossTwoReservations) {
  host_rig rig = {NULL, NULL};
  vmp_cu_ptr first = 0;
  vmp_cu_ptr second = 0;
  reserve_two(&rig, &first, &second);
  (void)host_map(&rig, first + G, G);
  (void)host_map(&rig, second, G);
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_RULE(&rig, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(rig.driver, first + G, 2 * G));
  VEXPECT_RULE(&rig, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(rig.driver, first + G, 2 * G, &grant, 1));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 34_UnmapNothing, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  VEXPECT_RULE(f, 34, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, 0, G));
  VEXPECT_RULE(f, 34, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, ptr, 0));
}

// ---- rights ----

static unsigned long long rights_at(host_rig *rig, int device, vmp_cu_ptr ptr) {
  unsigned long long flags = 99;
  vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, device};
  VEXPECT_CUDA(vmp_drv_mem_get_access(rig->driver, &flags, &location, ptr));
  return flags;
}

VTEST_F(HostRule, 36_SetAccessOnWholeMappings, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 16 * G);
  for (size_t i = 0; i < 3; i++) {
    vmp_cu_handle handle = host_create(f, 0, 2 * G);
    VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr + i * 2 * G, 2 * G, 0, handle, 0));
  }
  vmp_cu_access_desc both = host_grant(0, VMP_CU_ACCESS_READWRITE);
  vmp_cu_access_desc read = host_grant(0, VMP_CU_ACCESS_READ);
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, 6 * G, &read, 1));  // three neighbours in one call
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, G, &both, 1));          // prefix
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr + G, G, &both, 1));      // suffix
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, 3 * G, &both, 1));      // 1.5
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, 8 * G, &both, 1));      // hole
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr + 6 * G, G, &both, 1));  // unmapped
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, G, G, &both, 1));            // not VMM
  for (size_t i = 0; i < 3; i++) VEXPECT_UINT_EQ(rights_at(f, 0, ptr + i * 2 * G), VMP_CU_ACCESS_READ);    // all kept
}

VTEST_F(HostRule, 37_SetAccessArguments, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_RULE(f, 37, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, G, NULL, 1));
  VEXPECT_RULE(f, 37, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, G, &grant, 0));
  VEXPECT_RULE(f, 37, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, 0, &grant, 1));
  VEXPECT_RULE(f, 37, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, 0, G, &grant, 1));
  static const int bad_flags[] = {2, 4, 7, -1};
  for (size_t i = 0; i < sizeof bad_flags / sizeof bad_flags[0]; i++) {
    vmp_cu_access_desc two[2] = {host_grant(0, 0), host_grant(0, bad_flags[i])};
    VEXPECT_RULE(f, 37, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, G, two, 2));
  }
  VEXPECT_UINT_EQ(rights_at(f, 0, ptr), VMP_CU_ACCESS_READWRITE);
}

VTEST_F(HostRule, 38_SetAccessForADeviceThatIsNot, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_access_desc two[2] = {host_grant(0, 0), host_grant(1, 3)};
  VEXPECT_RULE(f, 38, VMP_CU_INVALID_DEVICE, vmp_drv_mem_set_access(f->driver, ptr, G, two, 2));
  two[1] = host_grant(-1, 3);
  VEXPECT_RULE(f, 38, VMP_CU_INVALID_DEVICE, vmp_drv_mem_set_access(f->driver, ptr, G, two, 2));
  VEXPECT_UINT_EQ(rights_at(f, 0, ptr), VMP_CU_ACCESS_READWRITE);
}

VTEST(HostRule, 39_SetAccessForADeviceOutOfReach) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 3;
  options.devices[2].no_peers = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, 2 * G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_handle there = host_create(&rig, 2, G);
  VASSERT_CUDA(vmp_drv_mem_map(rig.driver, ptr + G, G, 0, there, 0));
  vmp_cu_access_desc all[3] = {host_grant(0, 3), host_grant(1, 3), host_grant(2, 3)};
  VEXPECT_RULE(&rig, 39, VMP_CU_INVALID_DEVICE, vmp_drv_mem_set_access(rig.driver, ptr, G, all, 3));
  VEXPECT_RULE(&rig, 39, VMP_CU_INVALID_DEVICE, vmp_drv_mem_set_access(rig.driver, ptr, 2 * G, all, 2));
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_NONE);
  VEXPECT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, all, 2));
  VEXPECT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr + G, G, &all[2], 1));
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_READWRITE);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 40_SetAccessForTheHost, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  static const int types[] = {VMP_CU_LOCATION_HOST, VMP_CU_LOCATION_HOST_NUMA, VMP_CU_LOCATION_HOST_NUMA_CURRENT,
                              VMP_CU_LOCATION_INVALID, 17};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++) {
    vmp_cu_access_desc desc = {{types[i], 0}, 3};
    VEXPECT_RULE(f, 40, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, ptr, G, &desc, 1));
  }
}

VTEST_F(HostRule, 41_SetAccessOutOfPageTables, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  (void)host_map(f, ptr, G);
  vmp_cu_access_desc none = host_grant(0, 0);
  vmp_host_fault fault = {VMP_CALL_mem_set_access, 1, VMP_CU_OUT_OF_MEMORY, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  VEXPECT_RULE(f, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_set_access(f->driver, ptr, G, &none, 1));
  VEXPECT_UINT_EQ(rights_at(f, 0, ptr), VMP_CU_ACCESS_READWRITE);
  VEXPECT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &none, 1));
}

VTEST_F(HostRule, 42_GetAccessArguments, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  (void)host_map(f, ptr, G);
  unsigned long long flags = 77;
  vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, 0};
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_access(f->driver, NULL, &location, ptr));
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_access(f->driver, &flags, NULL, ptr));
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_access(f->driver, &flags, &location, 0));
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_access(f->driver, &flags, &location, ptr + G));
  location.type = VMP_CU_LOCATION_HOST;
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_access(f->driver, &flags, &location, ptr));
  location = (vmp_cu_location){VMP_CU_LOCATION_DEVICE, 1};
  VEXPECT_RULE(f, 42, VMP_CU_INVALID_DEVICE, vmp_drv_mem_get_access(f->driver, &flags, &location, ptr));
  VEXPECT_UINT_EQ(flags, 77);
}

VTEST(HostRule, 43_AFreshMappingGrantsNothing) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, 2 * G);
  vmp_cu_handle handle = host_create(&rig, 0, G);
  VASSERT_CUDA(vmp_drv_mem_map(rig.driver, ptr, G, 0, handle, 0));
  VASSERT_CUDA(vmp_drv_mem_map(rig.driver, ptr + G, G, 0, handle, 0));
  VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr), VMP_CU_ACCESS_NONE);
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_NONE);
  // Rights belong to the mapping and the device: the same handle elsewhere, the other device, keep their own.
  vmp_cu_access_desc desc[3] = {host_grant(0, 3), host_grant(1, 3), host_grant(1, 1)};
  VASSERT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, desc, 1));
  VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr + 12345), VMP_CU_ACCESS_READWRITE);
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_NONE);
  VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr + G), VMP_CU_ACCESS_NONE);
  VASSERT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, &desc[1], 2));  // duplicates: the last wins
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_READ);
  VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr), VMP_CU_ACCESS_READWRITE);  // not listed: kept
  vmp_cu_access_desc revoke = host_grant(0, 0);
  VASSERT_CUDA(vmp_drv_mem_set_access(rig.driver, ptr, G, &revoke, 1));
  VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr), VMP_CU_ACCESS_NONE);
  // They vanish at unmap.
  VASSERT_CUDA(vmp_drv_mem_unmap(rig.driver, ptr, G));
  VASSERT_CUDA(vmp_drv_mem_map(rig.driver, ptr, G, 0, handle, 0));
  VEXPECT_UINT_EQ(rights_at(&rig, 1, ptr), VMP_CU_ACCESS_NONE);
  host_rig_teardown(&rig);
}

// ---- level compat ----

VTEST(HostRule, 31_CompatReplacesWholeMappings) {
  for (int mode = VMP_HOST_LEDGER; mode <= VMP_HOST_EXPOSED; mode++) {
    vmp_host_options options = VMP_HOST_OPTIONS_INIT;
    options.level = VMP_HOST_COMPAT;
    options.mode = (vmp_host_mode)mode;
    host_rig rig = {NULL, NULL};
    host_rig_open(&rig, &options);
    vmp_cu_ptr ptr = host_reserve(&rig, 8 * G);
    vmp_cu_handle first = host_map(&rig, ptr + G, G);
    vmp_cu_handle second = host_map(&rig, ptr + 3 * G, 2 * G);
    VASSERT_CUDA(vmp_drv_mem_release(rig.driver, first));
    vmp_cu_handle four = host_create(&rig, 0, 4 * G);
    VEXPECT_RULE(&rig, 31, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(rig.driver, ptr, 4 * G, 0, four, 0));  // cuts one
    VEXPECT_UINT_EQ(host_census(&rig).mappings, 2);
    VEXPECT_CUDA(vmp_drv_mem_map(rig.driver, ptr + G, 4 * G, 0, four, 0));
    VEXPECT_UINT_EQ(host_census(&rig).mappings, 1);
    VEXPECT_UINT_EQ(host_census(&rig).handles, 2);  // the first died with its last mapping
    VEXPECT_UINT_EQ(rights_at(&rig, 0, ptr + G), VMP_CU_ACCESS_NONE);
    VEXPECT_CUDA(vmp_drv_mem_map(rig.driver, ptr + 6 * G, 2 * G, 0, second, 0));
    VASSERT_CUDA(vmp_drv_mem_map(rig.driver, ptr + 6 * G, 2 * G, 0, second, 0));  // itself over itself
    VEXPECT_UINT_EQ(host_census(&rig).mappings, 2);
    host_expect_consistent(&rig);
    host_rig_teardown(&rig);
  }
}

VTEST(HostLevels, CompatGivesTheOtherCodeOfTheTable) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_COMPAT;
  options.num_devices = 2;
  options.devices[1].no_peers = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_driver *d = rig.driver;
  vmp_cu_ptr ptr = host_reserve(&rig, 4 * G);
  vmp_cu_handle handle = host_map(&rig, ptr, G);
  vmp_cu_ptr out = 0;
  VEXPECT_RULE(&rig, 11, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(d, &out, 0, 0, 0, 0));
  VEXPECT_RULE(&rig, 12, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(d, &out, G + 1, 0, 0, 0));
  VEXPECT_RULE(&rig, 13, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_address_reserve(d, &out, G, 3 * G, 0, 0));
  VEXPECT_RULE(&rig, 27, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_map(d, ptr + G, G, G, handle, 0));
  VEXPECT_RULE(&rig, 32, VMP_CU_INVALID_HANDLE, vmp_drv_mem_map(d, ptr + G, G, 0, handle + 7, 0));
  VEXPECT_RULE(&rig, 32, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(d, ptr + G, G, 0, 0, 0));
  vmp_cu_access_desc desc = host_grant(7, 3);
  VEXPECT_RULE(&rig, 38, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  desc = host_grant(1, 3);
  VEXPECT_RULE(&rig, 39, VMP_CU_PEER_ACCESS_UNSUPPORTED, vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  desc.location.type = VMP_CU_LOCATION_HOST;
  VEXPECT_RULE(&rig, 40, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_set_access(d, ptr, G, &desc, 1));
  VEXPECT_RULE(&rig, 47, VMP_CU_UNKNOWN, vmp_drv_mem_import(d, &handle, NULL, VMP_CU_HANDLE_POSIX_FD));
  VEXPECT_RULE(&rig, 50, VMP_CU_INVALID_VALUE, vmp_drv_event_query(d, NULL));
  VEXPECT_RULE(&rig, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(d, ptr, 2 * G));  // one code everywhere
  host_rig_teardown(&rig);
}
