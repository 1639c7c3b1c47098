// driver_smoke_test.c: what the pool relies on in a driver, each as one small scenario that must work. What a driver
// may do differently is //tests/conformance.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/gpu/gpu_rig.h"
#include "vmm/driver_host.h"

// Nothing here breaks a rule, and the host driver says so.
static void expect_no_violation(gpu_rig *f) {
  if (!vmp_driver_is_host(f->driver)) return;
  vmp_host_counters counters;
  vmp_host_get_counters(f->driver, &counters);
  VEXPECT_UINT_EQ(counters.violations, 0);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
}

VTEST_F(DriverSmoke, DeviceTellsItsShape, gpu_rig) {
  int version = 0, major = 0, minor = 0;
  VASSERT_INT_EQ(vmp_drv_driver_get_version(f->driver, &version), 0);
  VASSERT_INT_EQ(
      vmp_drv_device_get_attribute(f->driver, &major, VMP_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, f->device.device), 0);
  VASSERT_INT_EQ(
      vmp_drv_device_get_attribute(f->driver, &minor, VMP_CU_ATTR_COMPUTE_CAPABILITY_MINOR, f->device.device), 0);
  printf("driver %s %d.%d, device %d %s (compute %d.%d), %" PRIu64 " MiB, granule %" PRIu64 " bytes\n", f->driver->kind,
         version / 1000, version % 1000 / 10, f->device.ordinal, f->device.name, major, minor,
         f->device.total_bytes >> 20, f->granule);
  VEXPECT_UINT_GE(f->device.total_bytes, 64 * f->granule);
}

VTEST_F(DriverSmoke, ReserveCreateMapWriteReadAndBack, gpu_rig) {
  vmp_cu_ptr ptr = gpu_reserve(f, 4);
  vmp_cu_handle handle = gpu_create(f, 2);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr + f->granule, 2, handle);
  gpu_grant(f, ptr + f->granule, 2);
  gpu_write(f, ptr + f->granule, 2 * f->granule, 1);
  gpu_expect(f, ptr + f->granule, 2 * f->granule, 1);
  gpu_unmap(f, ptr + f->granule, 2);
  gpu_release(f, handle);
  gpu_free(f, ptr, 4);
  expect_no_violation(f);
}

// Taking a parked chunk rests on this: one handle at two addresses, and the old mapping goes later.
VTEST_F(DriverSmoke, OneHandleAtTwoAddresses, gpu_rig) {
  vmp_cu_ptr ptr = gpu_reserve(f, 4);
  vmp_cu_handle handle = gpu_create(f, 1);
  VASSERT_NO_FAILURE();
  const vmp_cu_ptr old_place = ptr, new_place = ptr + 3 * f->granule;
  gpu_map(f, old_place, 1, handle);
  gpu_grant(f, old_place, 1);
  gpu_write(f, old_place, f->granule, 2);
  gpu_map(f, new_place, 1, handle);
  gpu_grant(f, new_place, 1);
  gpu_expect(f, new_place, f->granule, 2);
  gpu_write(f, new_place, f->granule, 3);
  gpu_expect(f, old_place, f->granule, 3);
  gpu_unmap(f, old_place, 1);
  gpu_expect(f, new_place, f->granule, 3);
  gpu_unmap(f, new_place, 1);
  gpu_release(f, handle);
  gpu_free(f, ptr, 4);
  expect_no_violation(f);
}

VTEST_F(DriverSmoke, RemappingMovesTheContent, gpu_rig) {
  vmp_cu_ptr ptr = gpu_reserve(f, 2), other = gpu_reserve(f, 2);
  vmp_cu_handle handle = gpu_create(f, 2);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr, 2, handle);
  gpu_grant(f, ptr, 2);
  gpu_write(f, ptr, 2 * f->granule, 4);
  gpu_unmap(f, ptr, 2);
  gpu_map(f, other, 2, handle);
  gpu_grant(f, other, 2);
  gpu_expect(f, other, 2 * f->granule, 4);
  gpu_unmap(f, other, 2);
  gpu_release(f, handle);
  gpu_free(f, ptr, 2);
  gpu_free(f, other, 2);
  expect_no_violation(f);
}

// Access belongs to the mapping: it is gone after a remap at the same address.
VTEST_F(DriverSmoke, AccessEndsWithTheMapping, gpu_rig) {
  const vmp_cu_location here = {VMP_CU_LOCATION_DEVICE, f->device.ordinal};
  unsigned long long flags = 9;
  vmp_cu_ptr ptr = gpu_reserve(f, 1);
  vmp_cu_handle handle = gpu_create(f, 1);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr, 1, handle);
  VEXPECT_INT_EQ(vmp_drv_mem_get_access(f->driver, &flags, &here, ptr), 0);
  VEXPECT_UINT_EQ(flags, VMP_CU_ACCESS_NONE);
  gpu_grant(f, ptr, 1);
  VEXPECT_INT_EQ(vmp_drv_mem_get_access(f->driver, &flags, &here, ptr + f->granule / 2), 0);
  VEXPECT_UINT_EQ(flags, VMP_CU_ACCESS_READWRITE);
  gpu_unmap(f, ptr, 1);
  gpu_map(f, ptr, 1, handle);
  VEXPECT_INT_EQ(vmp_drv_mem_get_access(f->driver, &flags, &here, ptr), 0);
  VEXPECT_UINT_EQ(flags, VMP_CU_ACCESS_NONE);
  gpu_unmap(f, ptr, 1);
  gpu_release(f, handle);
  gpu_free(f, ptr, 1);
  expect_no_violation(f);
}

// A run of chunks: one grant, copies across the seams, one unmap.
VTEST_F(DriverSmoke, RunOfChunksIsOneRange, gpu_rig) {
  vmp_cu_ptr ptr = gpu_reserve(f, 7);
  const uint64_t sizes[] = {1, 2, 1, 3};
  vmp_cu_handle handles[4];
  uint64_t at = 0;
  for (int i = 0; i < 4; i++) {
    handles[i] = gpu_create(f, sizes[i]);
    VASSERT_NO_FAILURE();
    gpu_map(f, ptr + at * f->granule, sizes[i], handles[i]);
    at += sizes[i];
  }
  gpu_grant(f, ptr, 7);
  gpu_write(f, ptr, 7 * f->granule, 5);
  gpu_expect(f, ptr, 7 * f->granule, 5);
  gpu_unmap(f, ptr, 7);
  for (int i = 0; i < 4; i++) gpu_release(f, handles[i]);
  gpu_free(f, ptr, 7);
  expect_no_violation(f);
}

// Release while mapped is legal: the memory lives as long as its mapping.
VTEST_F(DriverSmoke, ReleaseBeforeUnmap, gpu_rig) {
  vmp_cu_ptr ptr = gpu_reserve(f, 1);
  vmp_cu_handle handle = gpu_create(f, 1);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr, 1, handle);
  gpu_grant(f, ptr, 1);
  gpu_write(f, ptr, f->granule, 6);
  gpu_release(f, handle);
  gpu_expect(f, ptr, f->granule, 6);
  gpu_unmap(f, ptr, 1);
  gpu_free(f, ptr, 1);
  expect_no_violation(f);
}

// The VMM calls need no current context.
VTEST_F(DriverSmoke, VmmCallsNeedNoContext, gpu_rig) {
  VASSERT_OK(vmp_context_leave(f->driver, &f->saved));
  f->entered = false;
  vmp_cu_context current = f->context;
  VEXPECT_INT_EQ(vmp_drv_ctx_get_current(f->driver, &current), 0);
  VEXPECT_NULL(current);
  vmp_cu_ptr ptr = gpu_reserve(f, 1);
  vmp_cu_handle handle = gpu_create(f, 1);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr, 1, handle);
  gpu_grant(f, ptr, 1);
  gpu_unmap(f, ptr, 1);
  gpu_release(f, handle);
  gpu_free(f, ptr, 1);
  expect_no_violation(f);
}

// Work on one stream, ordered behind another by an event, without the host waiting in between.
VTEST_F(DriverSmoke, StreamsAreOrderedByEvents, gpu_rig) {
  vmp_cu_stream first = NULL, second = NULL;
  vmp_cu_event event = NULL;
  vmp_cu_ptr ptr = gpu_reserve(f, 2);
  vmp_cu_handle handle = gpu_create(f, 2);
  VASSERT_INT_EQ(vmp_drv_stream_create(f->driver, &first, VMP_CU_STREAM_NON_BLOCKING), 0);
  VASSERT_INT_EQ(vmp_drv_stream_create(f->driver, &second, VMP_CU_STREAM_NON_BLOCKING), 0);
  VASSERT_INT_EQ(vmp_drv_event_create(f->driver, &event, VMP_CU_EVENT_DISABLE_TIMING), 0);
  VASSERT_NO_FAILURE();
  gpu_map(f, ptr, 2, handle);
  gpu_grant(f, ptr, 2);
  VEXPECT_INT_EQ(vmp_drv_event_query(f->driver, event), 0);  // never recorded: complete
  VEXPECT_INT_EQ(vmp_drv_memset_d8_async(f->driver, ptr, 0x5a, f->granule, first), 0);
  VEXPECT_INT_EQ(vmp_drv_event_record(f->driver, event, first), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_wait_event(f->driver, second, event, 0), 0);
  VEXPECT_INT_EQ(vmp_drv_memcpy_dtod_async(f->driver, ptr + f->granule, ptr, f->granule, second), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, second), 0);
  VEXPECT_INT_EQ(vmp_drv_event_query(f->driver, event), 0);
  unsigned char *data = calloc(1, f->granule);
  VASSERT_NOT_NULL(data);
  VEXPECT_INT_EQ(vmp_drv_memcpy_dtoh(f->driver, data, ptr + f->granule, f->granule), 0);
  VEXPECT_BYTES_FILLED(data, 0x5a, f->granule);
  free(data);
  VEXPECT_INT_EQ(vmp_drv_event_destroy(f->driver, event), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_destroy(f->driver, first), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_destroy(f->driver, second), 0);
  gpu_unmap(f, ptr, 2);
  gpu_release(f, handle);
  gpu_free(f, ptr, 2);
  expect_no_violation(f);
}

// Addresses cost no memory, physical chunks do. On a GPU other processes blur the figures: they are printed only.
VTEST_F(DriverSmoke, OnlyChunksTakeMemory, gpu_rig) {
  enum { GRANULES = 32 };
  size_t before = 0, reserved = 0, created = 0, after = 0, total = 0;
  VASSERT_INT_EQ(vmp_drv_mem_get_info(f->driver, &before, &total), 0);
  VEXPECT_UINT_LE(before, total);
  vmp_cu_ptr ptr = gpu_reserve(f, GRANULES);
  VASSERT_INT_EQ(vmp_drv_mem_get_info(f->driver, &reserved, &total), 0);
  vmp_cu_handle handle = gpu_create(f, GRANULES);
  VASSERT_INT_EQ(vmp_drv_mem_get_info(f->driver, &created, &total), 0);
  gpu_release(f, handle);
  VASSERT_INT_EQ(vmp_drv_mem_get_info(f->driver, &after, &total), 0);
  gpu_free(f, ptr, GRANULES);
  printf("free: %zu before, %zu after a reserve, %zu after a create of %" PRIu64 ", %zu after its release\n", before,
         reserved, created, GRANULES * f->granule, after);
  if (!gpu_rig_is_host()) return;
  VEXPECT_UINT_EQ(reserved, before);
  VEXPECT_UINT_EQ(created, before - GRANULES * f->granule);
  VEXPECT_UINT_EQ(after, before);
  expect_no_violation(f);
}
