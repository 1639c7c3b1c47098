// pool_rig.h: a pool on a host driver, and what every test of the pool checks at its end: all invariants, no bad
// touch, no broken rule of the driver, nothing left behind.
#ifndef VMPOOL_TESTS_POOL_POOL_RIG_H_
#define VMPOOL_TESTS_POOL_POOL_RIG_H_

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"
#include "tests/support/vtest.h"
#include "vmm/driver_host.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define GRANULE (2 * MIB)
#define RIG_STREAMS 4

typedef struct pool_rig {
  vmp_driver *driver;
  vmp_pool *pool;
  vmp_stream streams[RIG_STREAMS];
  bool keeps_nothing_checked;  // the test has broken the driver on purpose: teardown only frees
} pool_rig;

// For VTEST_F: setup does nothing (a test opens what it needs), teardown ends what is open and checks it.
void pool_rig_setup(pool_rig *rig);
void pool_rig_teardown(pool_rig *rig);

// rig_open_driver opens a host driver with one device of `device_bytes` (0: 80 GiB) and granules of 2 MiB, in late
// mode, and makes the streams.
void rig_open_driver(pool_rig *rig, uint64_t device_bytes);
// rig_open_driver_with does the same with all options of the host driver.
void rig_open_driver_with(pool_rig *rig, const vmp_host_options *options);
// rig_create makes the pool with options as text; rig_open does both.
vmp_status rig_create(pool_rig *rig, const char *conf);
void rig_open(pool_rig *rig, uint64_t device_bytes, const char *conf);
// rig_destroy checks the pool and destroys it; live blocks must have been freed.
void rig_destroy(pool_rig *rig);

vmp_pool_stats_data rig_stats(pool_rig *rig);
// rig_quiet_stats makes no driver call: without device_free.
vmp_pool_stats_data rig_quiet_stats(pool_rig *rig);
vmp_driver_calls rig_calls(pool_rig *rig);
vmp_host_counters rig_counters(pool_rig *rig);
vmp_host_census rig_census(pool_rig *rig);
uint64_t rig_all_calls(const vmp_driver *driver);

// rig_alloc returns a block, or NULL after recording a failure.
void *rig_alloc(pool_rig *rig, uint64_t bytes, vmp_stream stream);
void rig_free(pool_rig *rig, void *ptr, vmp_stream stream);
// rig_touch queues a kernel that writes the whole range.
void rig_touch(pool_rig *rig, void *ptr, uint64_t bytes, vmp_stream stream);
// rig_write_pattern writes what depends on seed and position, rig_expect_pattern compares with it; both past all
// queues.
void rig_write_pattern(pool_rig *rig, const void *ptr, uint64_t bytes, uint64_t seed);
void rig_expect_pattern(pool_rig *rig, const void *ptr, uint64_t bytes, uint64_t seed);
// rig_check verifies every invariant of the pool and of the host driver.
void rig_check(pool_rig *rig);
// rig_lift ends the faults of host memory, or those of the driver.
void rig_lift(pool_rig *rig, bool host_memory);
// rig_settle lets all queued work run, and the pool see that it has.
void rig_settle(pool_rig *rig);

// rig_same_state says whether two statistics differ only in what a failed call may change: counters of failures,
// host memory, and what the device tells.
void rig_expect_same_state(const vmp_pool_stats_data *before, const vmp_pool_stats_data *after);

static inline uint64_t rig_address(const void *ptr) { return (uint64_t)(uintptr_t)ptr; }
static inline void *rig_at(void *ptr, uint64_t bytes) { return (void *)((uintptr_t)ptr + bytes); }

#endif  // VMPOOL_TESTS_POOL_POOL_RIG_H_
