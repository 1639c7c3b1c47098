// peers_test.c: several devices: peers that may use the memory, pools on different devices. Bug cases 28, 31, 33, 37.
#include "tests/pool/pool_rig.h"

static void open_devices(pool_rig *f, int count, int without_peers) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = count;
  options.ledger_high = 1;
  for (int i = 0; i < count; i++) options.devices[i].memory_bytes = 8 * GIB;
  if (without_peers >= 0) options.devices[without_peers].no_peers = 1;
  rig_open_driver_with(f, &options);
}

static void expect_access(pool_rig *f, void *ptr, uint64_t bytes, int device, unsigned long long expected) {
  vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, device};
  for (uint64_t at = 0; at < bytes; at += GRANULE) {
    unsigned long long flags = 99;
    VASSERT_INT_EQ(vmp_drv_mem_get_access(f->driver, &flags, &location, rig_address(ptr) + at), 0);
    VASSERT_UINT_EQ(flags, expected);
  }
}

// Case 31: every mapped range is open to the device and all peers before a pointer into it is returned.
VTEST_F(Peers, Case31AllPeersReachEverything, pool_rig) {
  open_devices(f, 3, -1);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, "peers:1+2,hard_limit:4GiB,preset:tight"));
  void *a = rig_alloc(f, 3 * GIB, NULL);
  for (int device = 0; device < 3; device++) expect_access(f, a, 3 * GIB, device, VMP_CU_ACCESS_READWRITE);
  rig_free(f, a, NULL);
  // Chunks that move get the rights at their new place.
  void *blocks[64];
  for (size_t i = 0; i < 64; i++) blocks[i] = rig_alloc(f, 32 * MIB, NULL);
  for (size_t i = 0; i < 64; i += 2) rig_free(f, blocks[i], NULL);
  void *b = rig_alloc(f, 2 * GIB + 512 * MIB, NULL);
  VEXPECT_UINT_GT(rig_stats(f).takes, 0);
  for (int device = 0; device < 3; device++) {
    expect_access(f, b, 2 * GIB + 512 * MIB, device, VMP_CU_ACCESS_READWRITE);
    expect_access(f, blocks[1], 32 * MIB, device, VMP_CU_ACCESS_READWRITE);
  }
  rig_free(f, b, NULL);
  for (size_t i = 1; i < 64; i += 2) rig_free(f, blocks[i], NULL);
}

// Case 33: a device without a path is refused by name, at creation; a wrong list never reaches the driver.
VTEST_F(Peers, Case33UnreachablePeers, pool_rig) {
  open_devices(f, 3, 2);
  VASSERT_NO_FAILURE();
  uint64_t accesses = rig_calls(f).set_access;
  VEXPECT_STATUS(rig_create(f, "peers:2"), VMP_ERROR_NOT_SUPPORTED);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "device 2");
  VEXPECT_STATUS(rig_create(f, "peers:1+2"), VMP_ERROR_NOT_SUPPORTED);
  VEXPECT_STATUS(rig_create(f, "peers:3"), VMP_ERROR_NO_DEVICE);
  VEXPECT_STATUS(rig_create(f, "peers:0"), VMP_ERROR_CONFIG);
  VEXPECT_UINT_EQ(rig_calls(f).set_access, accesses);
  VASSERT_OK(rig_create(f, "peers:1"));
  void *a = rig_alloc(f, 64 * MIB, NULL);
  expect_access(f, a, 64 * MIB, 0, VMP_CU_ACCESS_READWRITE);
  expect_access(f, a, 64 * MIB, 1, VMP_CU_ACCESS_READWRITE);
  expect_access(f, a, 64 * MIB, 2, VMP_CU_ACCESS_NONE);
  rig_free(f, a, NULL);
}

// Case 28: memory that isn't shared asks for no handle type.
VTEST_F(Peers, Case28NoHandleTypeUnasked, pool_rig) {
  open_devices(f, 1, -1);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, NULL));
  void *a = rig_alloc(f, 6 * GIB, NULL);
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop;
  VASSERT_INT_EQ(vmp_drv_mem_retain_allocation_handle(f->driver, &handle, a), 0);
  VEXPECT_INT_EQ(vmp_drv_mem_get_allocation_properties(f->driver, &prop, handle), 0);
  VEXPECT_INT_EQ(prop.requested_handle_types, VMP_CU_HANDLE_NONE);
  VEXPECT_INT_EQ(vmp_drv_mem_release(f->driver, handle), 0);
  rig_free(f, a, NULL);
}

// Case 37: another device is current: the pool waits for its own device's work, and leaves the thread's context alone.
VTEST_F(Peers, Case37AnotherDeviceIsCurrent, pool_rig) {
  open_devices(f, 2, -1);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, "hard_limit:64MiB"));
  vmp_pool *first = f->pool;
  VASSERT_OK(rig_create(f, "device:1"));
  vmp_pool *second = f->pool;
  vmp_cu_context other = NULL, now = NULL;
  VASSERT_INT_EQ(vmp_drv_primary_ctx_retain(f->driver, &other, 1), 0);
  VASSERT_INT_EQ(vmp_drv_ctx_push_current(f->driver, other), 0);
  void *a = NULL, *b = NULL;
  VASSERT_OK(vmp_alloc(first, &a, 64 * MIB, f->streams[0]));
  rig_touch(f, a, 64 * MIB, f->streams[0]);
  VASSERT_OK(vmp_free(first, a, f->streams[0]));
  VEXPECT_OK(vmp_pool_trim(first, 0, NULL));                  // the work still runs
  VASSERT_OK(vmp_alloc(first, &a, 48 * MIB, f->streams[1]));  // must be ordered, or wait
  rig_touch(f, a, 48 * MIB, f->streams[1]);
  VASSERT_OK(vmp_alloc(second, &b, 64 * MIB, NULL));
  VEXPECT_INT_EQ(vmp_host_touch(f->driver, 1, NULL, rig_address(b), 64 * MIB, true), 0);
  VASSERT_OK(vmp_free(second, b, NULL));
  VASSERT_OK(vmp_free(first, a, f->streams[1]));
  VEXPECT_OK(vmp_pool_trim(first, 0, NULL));
  VASSERT_INT_EQ(vmp_drv_ctx_get_current(f->driver, &now), 0);
  VEXPECT_PTR_EQ(now, other);
  VEXPECT_OK(vmp_pool_check(first, NULL));
  VEXPECT_OK(vmp_pool_check(second, NULL));
  VEXPECT_OK(vmp_pool_destroy(first));
  VEXPECT_OK(vmp_pool_destroy(second));
  f->pool = NULL;
  VASSERT_INT_EQ(vmp_drv_ctx_get_current(f->driver, &now), 0);
  VEXPECT_PTR_EQ(now, other);
  VASSERT_INT_EQ(vmp_drv_ctx_pop_current(f->driver, &now), 0);
  VASSERT_INT_EQ(vmp_drv_primary_ctx_release(f->driver, 1), 0);
}
