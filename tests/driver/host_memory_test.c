// Rules 19 to 26, 44, 45 and 46 to 48: physical memory: create, release, retain, properties, export, import.
#include <string.h>
#include <unistd.h>

#include "tests/driver/host_rig.h"

VTEST_F(HostRule, 19_CreateArguments, host_rig) {
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(0);
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, NULL, G, &prop, 0));
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, NULL, 0));
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, 0, &prop, 0));
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G - 1, &prop, 0));
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G + 4096, &prop, 0));
  VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 1));
  static const int bad_types[] = {0, 2, -1, INT32_MAX};
  for (size_t i = 0; i < sizeof bad_types / sizeof bad_types[0]; i++) {
    prop = host_prop(0);
    prop.type = bad_types[i];
    VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
    prop = host_prop(0);
    prop.location.type = bad_types[i] == 2 ? 5 : bad_types[i];
    VEXPECT_RULE(f, 19, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  }
  VEXPECT_UINT_EQ(handle, 77);
}

VTEST_F(HostRule, 20_CreateOnADeviceThatIsNot, host_rig) {
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(1);
  VEXPECT_RULE(f, 20, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop = host_prop(-1);
  VEXPECT_RULE(f, 20, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
}

VTEST(HostRule, 20_CompatGivesTheOtherCode) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_COMPAT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(1);
  VEXPECT_RULE(&rig, 20, VMP_CU_INVALID_DEVICE, vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 21_HostLocations, host_rig) {
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(0);
  prop.location.type = VMP_CU_LOCATION_HOST;
  prop.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  VEXPECT_RULE(f, 21, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop.requested_handle_types = 0;
  VEXPECT_RULE(f, 21, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop.location.type = VMP_CU_LOCATION_HOST_NUMA_CURRENT;
  VEXPECT_RULE(f, 21, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop.location.type = VMP_CU_LOCATION_HOST_NUMA;
  prop.location.id = -1;  // what attribute 134 reads
  VEXPECT_RULE(f, 21, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
}

VTEST(HostRule, 22_HandleTypesThatTheDeviceLacks) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[1].no_posix_fd = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 77;
  static const int lacking[] = {VMP_CU_HANDLE_WIN32, VMP_CU_HANDLE_WIN32_KMT, VMP_CU_HANDLE_FABRIC,
                                VMP_CU_HANDLE_FABRIC | VMP_CU_HANDLE_POSIX_FD};
  for (size_t i = 0; i < sizeof lacking / sizeof lacking[0]; i++) {
    vmp_cu_mem_prop prop = host_prop(0);
    prop.requested_handle_types = lacking[i];
    VEXPECT_RULE(&rig, 22, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  }
  int value = 7;
  VEXPECT_CUDA(vmp_drv_device_get_attribute(rig.driver, &value, VMP_CU_ATTR_HANDLE_POSIX_FD, 1));
  VEXPECT_INT_EQ(value, 0);
  vmp_cu_mem_prop prop = host_prop(1);
  prop.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  VEXPECT_RULE(&rig, 22, VMP_CU_NOT_SUPPORTED, vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
  prop = host_prop(0);
  prop.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  VEXPECT_CUDA(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  host_rig_teardown(&rig);
}

VTEST(HostRule, 23_MemoryBudget) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[0].memory_bytes = 10 * G;
  options.devices[0].foreign_bytes = 2 * G;
  options.devices[0].max_handle_bytes = 4 * G;
  options.devices[1].memory_bytes = UINT64_MAX;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(0);
  VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_create(rig.driver, &handle, 6 * G, &prop, 0));
  vmp_cu_handle first = host_create(&rig, 0, 4 * G);
  vmp_cu_handle second = host_create(&rig, 0, 4 * G);
  size_t free_bytes = 1;
  size_t total = 1;
  VEXPECT_CUDA(vmp_drv_mem_get_info(rig.driver, &free_bytes, &total));
  VEXPECT_UINT_EQ(free_bytes, 0);
  VEXPECT_UINT_EQ(total, 10 * G);
  VEXPECT_RULE(&rig, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
  vmp_host_set_foreign(rig.driver, 0, G);  // the other process gives a granule back
  VEXPECT_CUDA(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  vmp_host_set_foreign(rig.driver, 0, 20 * G);  // more than there is: nothing is free, nothing wraps
  VEXPECT_CUDA(vmp_drv_mem_get_info(rig.driver, &free_bytes, &total));
  VEXPECT_UINT_EQ(free_bytes, 0);
  vmp_host_set_foreign(rig.driver, 0, 0);
  VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, first));
  VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, second));
  VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, handle));
  VEXPECT_CUDA(vmp_drv_mem_get_info(rig.driver, &free_bytes, &total));
  VEXPECT_UINT_EQ(free_bytes, 10 * G);
  // The other device is its own, and "unlimited" reads 1 PiB.
  uint64_t free_there = 0;
  uint64_t total_there = 0;
  (void)host_create(&rig, 1, GIB(1024));
  vmp_host_device_memory(rig.driver, 1, &free_there, &total_there);
  VEXPECT_UINT_EQ(total_there, UINT64_C(1) << 50);
  VEXPECT_UINT_EQ(free_there, (UINT64_C(1) << 50) - GIB(1024));
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 24_StrayBitsInTheProperty, host_rig) {
  vmp_cu_handle handle = 77;
  vmp_cu_mem_prop prop = host_prop(0);
  prop.alloc_flags.usage = 4;
  VEXPECT_RULE(f, 24, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop = host_prop(0);
  prop.alloc_flags.reserved[3] = 1;
  VEXPECT_RULE(f, 24, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop = host_prop(0);
  prop.win32_handle_meta_data = &prop;
  VEXPECT_RULE(f, 24, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  prop = host_prop(0);
  prop.alloc_flags.compression_type = 9;
  VEXPECT_RULE(f, 24, VMP_CU_INVALID_VALUE, vmp_drv_mem_create(f->driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(handle, 77);
}

VTEST(HostRule, 24_StrayBitsAreLint) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = VMP_HOST_LINT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = host_prop(0);
  prop.alloc_flags.reserved[0] = 1;
  VEXPECT_CUDA(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  VEXPECT_UINT_EQ(host_counters(&rig).lint, 1);
  host_rig_teardown(&rig);
}

VTEST_F(HostRule, 25_ReleaseNothing, host_rig) {
  VEXPECT_RULE(f, 25, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, 0));
}

VTEST_F(HostRule, 26_ReleaseADeadOrForeignHandle, host_rig) {
  vmp_cu_handle handle = host_create(f, 0, G);
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, handle + 1));
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, ~(vmp_cu_handle)0));
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, handle ^ (UINT64_C(1) << 40)));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, handle));
  // Its value is not handed out again, though its record is.
  for (int i = 0; i < 100; i++) {
    vmp_cu_handle other = host_create(f, 0, G);
    VEXPECT_UINT_NE(other, handle);
    VEXPECT_CUDA(vmp_drv_mem_release(f->driver, other));
  }
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, handle));
  // A handle of another driver is none of this one's.
  host_rig other_rig = {NULL, NULL};
  host_rig_open(&other_rig, NULL);
  vmp_cu_handle foreign = host_create(&other_rig, 0, G);
  VASSERT_CUDA(vmp_drv_ctx_set_current(f->driver, f->context));
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, foreign));
  host_rig_teardown(&other_rig);
}

VTEST(HostRule, 26_ImmediateReuseShowsAba) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.immediate_reuse = 1;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle first = host_create(&rig, 0, G);
  VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, first));
  vmp_cu_handle second = host_create(&rig, 0, G);
  VEXPECT_UINT_EQ(second, first);
  host_rig_teardown(&rig);
}

VTEST_F(HostMemory, LivesWhileMapped, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  vmp_cu_handle handle = host_map(f, ptr, G);
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));  // normal: release before unmap
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, G);
  // The value is dead for callers, and retain regains it.
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, handle));
  VEXPECT_RULE(f, 32, VMP_CU_INVALID_VALUE, vmp_drv_mem_map(f->driver, ptr + G, G, 0, handle, 0));
  vmp_cu_handle again = 0;
  VEXPECT_CUDA(vmp_drv_mem_retain_allocation_handle(f->driver, &again, (void *)(uintptr_t)(ptr + G - 1)));
  VEXPECT_UINT_EQ(again, handle);
  VEXPECT_CUDA(vmp_drv_mem_map(f->driver, ptr + G, G, 0, again, 0));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, again));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, 2 * G));
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, 0);
  VEXPECT_UINT_EQ(host_census(f).handles, 0);
}

VTEST_F(HostRule, 44_RetainNeedsAMapping, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  vmp_cu_handle mapped = host_map(f, ptr, G);
  vmp_cu_handle handle = 77;
  VEXPECT_RULE(f, 44, VMP_CU_INVALID_VALUE,
               vmp_drv_mem_retain_allocation_handle(f->driver, NULL, (void *)(uintptr_t)ptr));
  VEXPECT_RULE(f, 44, VMP_CU_INVALID_VALUE, vmp_drv_mem_retain_allocation_handle(f->driver, &handle, NULL));
  VEXPECT_RULE(f, 44, VMP_CU_INVALID_VALUE,
               vmp_drv_mem_retain_allocation_handle(f->driver, &handle, (void *)(uintptr_t)(ptr + G)));
  VEXPECT_RULE(f, 44, VMP_CU_INVALID_VALUE, vmp_drv_mem_retain_allocation_handle(f->driver, &handle, &handle));
  vmp_cu_ptr block = 0;
  VASSERT_CUDA(vmp_drv_mem_alloc(f->driver, &block, 4096));
  VEXPECT_RULE(f, 44, VMP_CU_INVALID_VALUE,
               vmp_drv_mem_retain_allocation_handle(f->driver, &handle, (void *)(uintptr_t)block));
  VEXPECT_UINT_EQ(handle, 77);
  // NCCL's idiom: retain, release, unmap, release.
  VEXPECT_CUDA(vmp_drv_mem_retain_allocation_handle(f->driver, &handle, (void *)(uintptr_t)ptr));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, mapped));
  VEXPECT_RULE(f, 26, VMP_CU_INVALID_VALUE, vmp_drv_mem_release(f->driver, mapped));
}

VTEST_F(HostRule, 45_Properties, host_rig) {
  vmp_cu_mem_prop wanted = host_prop(0);
  wanted.alloc_flags.compression_type = 1;
  wanted.alloc_flags.gpu_direct_rdma_capable = 1;
  wanted.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  vmp_cu_handle handle = 0;
  VASSERT_CUDA(vmp_drv_mem_create(f->driver, &handle, G, &wanted, 0));
  vmp_cu_mem_prop prop;
  memset(&prop, 0x5a, sizeof prop);
  VEXPECT_RULE(f, 45, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_properties(f->driver, NULL, handle));
  VEXPECT_RULE(f, 45, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_properties(f->driver, &prop, 0));
  VEXPECT_RULE(f, 45, VMP_CU_INVALID_VALUE, vmp_drv_mem_get_allocation_properties(f->driver, &prop, handle + 1));
  VEXPECT_BYTES_FILLED(&prop, 0x5a, sizeof prop);
  VEXPECT_CUDA(vmp_drv_mem_get_allocation_properties(f->driver, &prop, handle));
  VEXPECT_INT_EQ(prop.type, VMP_CU_ALLOCATION_PINNED);
  VEXPECT_INT_EQ(prop.location.type, VMP_CU_LOCATION_DEVICE);
  VEXPECT_INT_EQ(prop.requested_handle_types, VMP_CU_HANDLE_POSIX_FD);
  VEXPECT_UINT_EQ(prop.alloc_flags.compression_type, 0);  // a hint that was not granted
  VEXPECT_UINT_EQ(prop.alloc_flags.gpu_direct_rdma_capable, 0);
}

// ---- sharing ----

static vmp_cu_handle create_shareable(host_rig *rig) {
  vmp_cu_mem_prop prop = host_prop(0);
  prop.requested_handle_types = VMP_CU_HANDLE_POSIX_FD;
  vmp_cu_handle handle = 0;
  VEXPECT_CUDA(vmp_drv_mem_create(rig->driver, &handle, G, &prop, 0));
  return handle;
}

static void *as_pointer(int fd) { return (void *)(uintptr_t)(unsigned)fd; }

VTEST_F(HostRule, 46_Export, host_rig) {
  vmp_cu_handle handle = create_shareable(f);
  vmp_cu_handle private_handle = host_create(f, 0, G);
  int fd = -77;
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, NULL, handle, 1, 0));
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, &fd, handle, 1, 1));
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, &fd, handle, 0, 0));
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, &fd, handle, VMP_CU_HANDLE_FABRIC, 0));
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, &fd, private_handle, 1, 0));
  VEXPECT_RULE(f, 46, VMP_CU_INVALID_VALUE, vmp_drv_mem_export(f->driver, &fd, 0, 1, 0));
  VEXPECT_INT_EQ(fd, -77);
  VEXPECT_UINT_EQ(host_census(f).fds, 0);
}

VTEST_F(HostRule, 47_Import, host_rig) {
  vmp_cu_handle shared = create_shareable(f);
  int fd = -1;
  VASSERT_CUDA(vmp_drv_mem_export(f->driver, &fd, shared, VMP_CU_HANDLE_POSIX_FD, 0));
  vmp_cu_handle handle = 77;
  int other_pipe[2];
  VASSERT_INT_EQ(pipe(other_pipe), 0);
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, NULL, as_pointer(fd), 1));
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, &handle, NULL, 1));
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, &handle, as_pointer(fd), 2));
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, &handle, as_pointer(9999), 1));
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, &handle, as_pointer(other_pipe[1]), 1));
  VEXPECT_RULE(f, 47, VMP_CU_INVALID_VALUE, vmp_drv_mem_import(f->driver, &handle, &fd, 1));  // not its address
  VEXPECT_UINT_EQ(handle, 77);
  close(other_pipe[0]);
  close(other_pipe[1]);
  close(fd);
}

VTEST_F(HostRule, 48_ImportAFabricHandle, host_rig) {
  vmp_cu_handle handle = 77;
  unsigned char fabric[64] = {1};
  VEXPECT_RULE(f, 48, VMP_CU_NOT_PERMITTED, vmp_drv_mem_import(f->driver, &handle, fabric, VMP_CU_HANDLE_FABRIC));
  VEXPECT_UINT_EQ(handle, 77);
}

VTEST_F(HostMemory, AnOpenDescriptorKeepsMemoryAlive, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_cu_handle handle = create_shareable(f);
  vmp_cu_access_desc grant = host_grant(0, 3);
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));
  VASSERT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &grant, 1));
  VASSERT_CUDA(vmp_host_poke(f->driver, ptr + 1000, "shared", 7));
  int fd = -1;
  int second_fd = -1;
  VASSERT_CUDA(vmp_drv_mem_export(f->driver, &fd, handle, VMP_CU_HANDLE_POSIX_FD, 0));
  VASSERT_CUDA(vmp_drv_mem_export(f->driver, &second_fd, handle, VMP_CU_HANDLE_POSIX_FD, 0));
  VEXPECT_INT_NE(fd, second_fd);
  VEXPECT_UINT_EQ(host_census(f).fds, 2);
  VASSERT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VASSERT_CUDA(vmp_drv_mem_release(f->driver, handle));
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, G);
  host_expect_consistent(f);
  // A duplicate counts like the original.
  int copy = dup(fd);
  close(fd);
  close(second_fd);
  VEXPECT_UINT_EQ(host_census(f).fds, 1);
  vmp_cu_handle imported = 0;
  VASSERT_CUDA(vmp_drv_mem_import(f->driver, &imported, as_pointer(copy), VMP_CU_HANDLE_POSIX_FD));
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, imported, 0));
  char text[8] = "";
  VEXPECT_CODE(vmp_drv_memcpy_dtoh(f->driver, text, ptr + 1000, 7), VMP_CU_INVALID_VALUE);  // rights never travel
  VASSERT_CUDA(vmp_drv_mem_set_access(f->driver, ptr, G, &grant, 1));
  VEXPECT_CUDA(vmp_drv_memcpy_dtoh(f->driver, text, ptr + 1000, 7));
  VEXPECT_STR_EQ(text, "shared");
  VEXPECT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VEXPECT_CUDA(vmp_drv_mem_release(f->driver, imported));
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, G);
  close(copy);
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, 0);
  VEXPECT_UINT_EQ(host_census(f).handles, 0);
}

VTEST(HostMemory, AClosedDescriptorIsNoticedWhenMemoryIsNeeded) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 1;
  options.devices[0].memory_bytes = G;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_handle handle = create_shareable(&rig);
  int fd = -1;
  VASSERT_CUDA(vmp_drv_mem_export(rig.driver, &fd, handle, VMP_CU_HANDLE_POSIX_FD, 0));
  VASSERT_CUDA(vmp_drv_mem_release(rig.driver, handle));
  vmp_cu_mem_prop prop = host_prop(0);
  VEXPECT_CODE(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0), VMP_CU_OUT_OF_MEMORY);
  close(fd);
  VEXPECT_CUDA(vmp_drv_mem_create(rig.driver, &handle, G, &prop, 0));
  host_rig_teardown(&rig);
}

// ---- bytes ----

VTEST_F(HostMemory, FreshMemoryIsPoisonOfItsOwn, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, 2 * G);
  (void)host_map(f, ptr, G);
  (void)host_map(f, ptr + G, G);
  unsigned char first[64];
  unsigned char second[64];
  VASSERT_CUDA(vmp_host_peek(f->driver, ptr + 4096, first, sizeof first));
  VASSERT_CUDA(vmp_host_peek(f->driver, ptr + G + 4096, second, sizeof second));
  for (size_t i = 0; i < sizeof first; i++) VEXPECT_UINT_GE(first[i], 0x80);  // never zeros
  VEXPECT_BYTES_EQ(first, first + 8, sizeof first - 8);                       // a pattern of 8 bytes
  VEXPECT_TRUE(memcmp(first, second, sizeof first) != 0);
  // A partial write leaves the rest of its page as it was; bytes are where they belong across pages and mappings.
  unsigned char across[9000];
  for (size_t i = 0; i < sizeof across; i++) across[i] = (unsigned char)i;
  VASSERT_CUDA(vmp_host_poke(f->driver, ptr + G - 4500, across, sizeof across));
  unsigned char back[9200];
  VASSERT_CUDA(vmp_host_peek(f->driver, ptr + G - 4600, back, sizeof back));
  VEXPECT_BYTES_EQ(back + 100, across, sizeof across);
  unsigned char expected[100];
  size_t shift = (G - 4600) % 8;
  for (size_t i = 0; i < sizeof expected; i++) expected[i] = first[(i + shift) % 8];
  VEXPECT_BYTES_EQ(back, expected, sizeof expected);
  VEXPECT_CODE(vmp_host_peek(f->driver, ptr + 2 * G - 1, back, 2), VMP_CU_INVALID_VALUE);
}

VTEST_F(HostMemory, WrittenMemoryIsPoisonedAgainWhenItsHandleDies, host_rig) {
  vmp_cu_ptr ptr = host_reserve(f, G);
  vmp_cu_handle handle = host_map(f, ptr, G);
  VASSERT_CUDA(vmp_drv_memset_d8(f->driver, ptr, 0x11, G));
  VASSERT_CUDA(vmp_drv_ctx_synchronize(f->driver));
  VASSERT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VASSERT_CUDA(vmp_drv_mem_map(f->driver, ptr, G, 0, handle, 0));  // the handle kept its bytes
  unsigned char bytes[4096];
  VASSERT_CUDA(vmp_host_peek(f->driver, ptr, bytes, sizeof bytes));
  VEXPECT_BYTES_FILLED(bytes, 0x11, sizeof bytes);
  VASSERT_CUDA(vmp_drv_mem_unmap(f->driver, ptr, G));
  VASSERT_CUDA(vmp_drv_mem_release(f->driver, handle));
  (void)host_map(f, ptr, G);
  VASSERT_CUDA(vmp_host_peek(f->driver, ptr, bytes, sizeof bytes));
  for (size_t i = 0; i < sizeof bytes; i++) VEXPECT_UINT_NE(bytes[i], 0x11);
}

// ---- cuMemAlloc and pinned memory ----

VTEST_F(HostMemory, CuMemAlloc, host_rig) {
  vmp_cu_ptr block = 0;
  VASSERT_CUDA(vmp_drv_mem_alloc(f->driver, &block, 1000));
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, G);
  VEXPECT_UINT_EQ(host_census(f).reserved_bytes, 0);  // no reservation of the caller's
  char text[16] = "block";
  VEXPECT_CUDA(vmp_drv_memcpy_htod(f->driver, block, text, sizeof text));
  memset(text, 0, sizeof text);
  VEXPECT_CUDA(vmp_drv_memcpy_dtoh(f->driver, text, block, sizeof text));
  VEXPECT_STR_EQ(text, "block");
  // No VMM call may name it.
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_RULE(f, 36, VMP_CU_INVALID_VALUE, vmp_drv_mem_set_access(f->driver, block, G, &grant, 1));
  VEXPECT_RULE(f, 33, VMP_CU_INVALID_VALUE, vmp_drv_mem_unmap(f->driver, block, G));
  VEXPECT_RULE(f, 17, VMP_CU_INVALID_VALUE, vmp_drv_mem_address_free(f->driver, block, G));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_free(f->driver, block + 512));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_alloc(f->driver, &block, 0));
  VEXPECT_CUDA(vmp_drv_mem_free(f->driver, block));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_free(f->driver, block));
  VEXPECT_RULE(f, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_alloc(f->driver, &block, GIB(81)));
  VEXPECT_RULE(f, -1, VMP_CU_OUT_OF_MEMORY, vmp_drv_mem_alloc(f->driver, &block, SIZE_MAX));
  VEXPECT_UINT_EQ(host_census(f).physical_bytes, 0);
}

VTEST_F(HostMemory, PinnedMemory, host_rig) {
  void *ptr = NULL;
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_host_alloc(f->driver, &ptr, 0, 0));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_host_alloc(f->driver, &ptr, 10, 8));
  VEXPECT_NULL(ptr);
  VASSERT_CUDA(vmp_drv_mem_host_alloc(f->driver, &ptr, 10, 0));
  memset(ptr, 1, 10);
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_free_host(f->driver, (char *)ptr + 1));
  VEXPECT_CUDA(vmp_drv_mem_free_host(f->driver, ptr));
  VEXPECT_RULE(f, 5, VMP_CU_INVALID_VALUE, vmp_drv_mem_free_host(f->driver, NULL));
}
