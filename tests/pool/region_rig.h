// region_rig.h: what the tests of regions share, on top of pool_rig.h.
#ifndef VMPOOL_TESTS_POOL_REGION_RIG_H_
#define VMPOOL_TESTS_POOL_REGION_RIG_H_

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/faults.h"
#include "vmm/context.h"

static inline vmp_region *region_make(pool_rig *rig, uint64_t max_bytes, uint64_t page_bytes) {
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = max_bytes;
  options.page_bytes = page_bytes;
  vmp_region *region = NULL;
  VEXPECT_OK(vmp_region_create(rig->pool, &region, &options));
  return region;
}

static inline vmp_status region_commit(vmp_region *region, uint64_t first, uint64_t count, vmp_stream stream) {
  const vmp_region_pages run = {first, count};
  return vmp_region_commit(region, &run, 1, stream);
}

static inline vmp_status region_decommit(vmp_region *region, uint64_t first, uint64_t count, vmp_stream stream) {
  const vmp_region_pages run = {first, count};
  return vmp_region_decommit(region, &run, 1, stream);
}

static inline vmp_region_info region_info(vmp_region *region) {
  vmp_region_info info = VMP_REGION_INFO_INIT;
  VEXPECT_OK(vmp_region_query(region, &info));
  return info;
}

// region_open_ordered opens a pool on a driver that also checks the order of accesses between streams;
// region_expect_ordered expects that all of them were in order, and region_order makes a stream wait for another.
static inline void region_open_ordered(pool_rig *rig, uint64_t device_bytes, const char *conf) {
  rig_open_driver(rig, device_bytes);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_check_order(rig->driver, 1));
  VASSERT_OK(rig_create(rig, conf));
}

static inline void region_expect_ordered(pool_rig *rig) {
  vmp_host_work_counts_data counts = VMP_HOST_WORK_COUNTS_INIT;
  VEXPECT_OK(vmp_host_work_counts(rig->driver, &counts));
  VEXPECT_UINT_EQ(counts.unordered, 0);
}

static inline void region_order(pool_rig *rig, vmp_stream later, vmp_stream earlier) {
  vmp_cu_event event = NULL;
  vmp_context_saved saved;
  VASSERT_OK(vmp_context_enter(rig->driver, rig->pool->context, &saved));
  VEXPECT_INT_EQ(vmp_drv_event_create(rig->driver, &event, VMP_CU_EVENT_DISABLE_TIMING), 0);
  VEXPECT_INT_EQ(vmp_drv_event_record(rig->driver, event, earlier), 0);
  VEXPECT_INT_EQ(vmp_drv_stream_wait_event(rig->driver, later, event, 0), 0);
  VEXPECT_INT_EQ(vmp_drv_event_destroy(rig->driver, event), 0);
  VEXPECT_OK(vmp_context_leave(rig->driver, &saved));
}

#endif  // VMPOOL_TESTS_POOL_REGION_RIG_H_
