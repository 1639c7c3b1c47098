// pool_rig.c: see pool_rig.h.
#include "tests/pool/pool_rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/faults.h"
#include "vmm/memory.h"

void pool_rig_setup(pool_rig *rig) { (void)rig; }

static void check_driver(pool_rig *rig) {
  vmp_host_counters counters = rig_counters(rig);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
  VEXPECT_UINT_EQ(counters.violations, 0);
  char sentence[512];
  for (uint64_t i = 0; i < counters.violations && vmp_host_violation(rig->driver, i, sentence, sizeof sentence); i++) {
    VADD_FAILURE("violation: %s", sentence);
  }
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_host_check(rig->driver, &report);
  VEXPECT_NO_FAULTS(&faults);
}

void pool_rig_teardown(pool_rig *rig) {
  if (rig->driver == NULL) return;
  if (rig->pool != NULL) rig_destroy(rig);
  for (int i = 0; i < RIG_STREAMS; i++) {
    if (rig->streams[i] != NULL) VEXPECT_OK(vmp_host_stream_destroy(rig->driver, rig->streams[i]));
  }
  if (!rig->keeps_nothing_checked) {
    check_driver(rig);
    vtest_faults faults = vtest_faults_make();
    vmp_report report = vtest_faults_report(&faults);
    (void)vmp_host_leaks(rig->driver, &report);
    VEXPECT_NO_FAULTS(&faults);
  }
  vmp_driver_close(rig->driver);
}

void rig_open_driver_with(pool_rig *rig, const vmp_host_options *options) {
  VASSERT_OK(vmp_host_open(&rig->driver, options));
  VASSERT_INT_EQ(vmp_drv_init(rig->driver, 0), 0);
  for (int i = 0; i < RIG_STREAMS; i++) VASSERT_OK(vmp_host_stream_create(rig->driver, 0, &rig->streams[i]));
}

void rig_open_driver(pool_rig *rig, uint64_t device_bytes) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = device_bytes;
  options.ledger_high = 1;
  rig_open_driver_with(rig, &options);
}

vmp_status rig_create(pool_rig *rig, const char *conf) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = rig->driver;
  options.conf = conf;
  return vmp_pool_create(&rig->pool, &options);
}

void rig_open(pool_rig *rig, uint64_t device_bytes, const char *conf) {
  rig_open_driver(rig, device_bytes);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(rig, conf));
}

void rig_destroy(pool_rig *rig) {
  vmp_pool *pool = rig->pool;
  rig->pool = NULL;
  if (!rig->keeps_nothing_checked) VEXPECT_OK(vmp_pool_check(pool, NULL));
  vmp_status status = vmp_pool_destroy(pool);
  if (!rig->keeps_nothing_checked) VEXPECT_OK(status);
}

vmp_pool_stats_data rig_stats(pool_rig *rig) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VEXPECT_OK(vmp_pool_stats(rig->pool, &stats));
  return stats;
}

vmp_pool_stats_data rig_quiet_stats(pool_rig *rig) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  stats.struct_size = offsetof(vmp_pool_stats_data, device_free);  // no driver call
  VEXPECT_OK(vmp_pool_stats(rig->pool, &stats));
  return stats;
}

vmp_driver_calls rig_calls(pool_rig *rig) {
  vmp_driver_calls calls;
  vmp_driver_get_calls(rig->driver, &calls);
  return calls;
}

uint64_t rig_all_calls(const vmp_driver *driver) {
  uint64_t sum = 0;
  for (int i = 0; i < VMP_CALL_COUNT; i++) sum += atomic_load(&driver->calls[i]);
  return sum;
}

vmp_host_counters rig_counters(pool_rig *rig) {
  vmp_host_counters counters;
  memset(&counters, 0, sizeof counters);
  vmp_host_get_counters(rig->driver, &counters);
  return counters;
}

vmp_host_census rig_census(pool_rig *rig) {
  vmp_host_census census;
  memset(&census, 0, sizeof census);
  vmp_host_get_census(rig->driver, &census);
  return census;
}

void *rig_alloc(pool_rig *rig, uint64_t bytes, vmp_stream stream) {
  void *ptr = NULL;
  VEXPECT_OK(vmp_alloc(rig->pool, &ptr, bytes, stream));
  return ptr;
}

void rig_free(pool_rig *rig, void *ptr, vmp_stream stream) { VEXPECT_OK(vmp_free(rig->pool, ptr, stream)); }

void rig_touch(pool_rig *rig, void *ptr, uint64_t bytes, vmp_stream stream) {
  VEXPECT_INT_EQ(vmp_host_touch(rig->driver, 0, stream, rig_address(ptr), bytes, true), 0);
}

// Parts of 64 KiB, each with its seed and number at the beginning of every 4 KiB.
#define PART_BYTES (64 * KIB)
static void make_part(unsigned char *part, uint64_t seed, uint64_t number) {
  for (uint64_t at = 0; at < PART_BYTES; at += 4096) {
    uint64_t head[2] = {seed * 1000003 + at, number};
    memset(part + at, (int)((seed + number + (at >> 12)) & 0xff), 4096);
    memcpy(part + at, head, sizeof head);
  }
}

void rig_write_pattern(pool_rig *rig, const void *ptr, uint64_t bytes, uint64_t seed) {
  static unsigned char part[PART_BYTES];
  for (uint64_t at = 0; at < bytes; at += PART_BYTES) {
    uint64_t length = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
    make_part(part, seed, at / PART_BYTES);
    VASSERT_INT_EQ(vmp_host_poke(rig->driver, rig_address(ptr) + at, part, (size_t)length), 0);
  }
}

void rig_expect_pattern(pool_rig *rig, const void *ptr, uint64_t bytes, uint64_t seed) {
  static unsigned char part[PART_BYTES], there[PART_BYTES];
  uint64_t wrong = 0;
  for (uint64_t at = 0; at < bytes; at += PART_BYTES) {
    uint64_t length = bytes - at < PART_BYTES ? bytes - at : PART_BYTES;
    make_part(part, seed, at / PART_BYTES);
    VASSERT_INT_EQ(vmp_host_peek(rig->driver, rig_address(ptr) + at, there, (size_t)length), 0);
    wrong += memcmp(part, there, (size_t)length) != 0;
  }
  VEXPECT_UINT_EQ(wrong, 0);
}

void rig_check(pool_rig *rig) {
  VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  check_driver(rig);
}

static void run_all(pool_rig *rig) {
  while (vmp_host_step(rig->driver, 1000) > 0) {
  }
}

void rig_lift(pool_rig *rig, bool host_memory) {
  if (host_memory) {
    vmp_mem_fail_after(0, 0);
  } else {
    vmp_host_lift(rig->driver);
  }
}

void rig_settle(pool_rig *rig) {
  run_all(rig);
  if (rig->pool == NULL) return;
  // A stream's last event is recorded when somebody asks; then it has to run, and be asked for again.
  VEXPECT_OK(vmp_pool_trim(rig->pool, UINT64_MAX, NULL));
  run_all(rig);
  VEXPECT_OK(vmp_pool_trim(rig->pool, UINT64_MAX, NULL));
}

void rig_expect_same_state(const vmp_pool_stats_data *before, const vmp_pool_stats_data *after) {
  vmp_pool_stats_data expected = *before, actual = *after;
  // What a refused request may leave behind.
  expected.failed_allocs = actual.failed_allocs = 0;
  expected.metadata = actual.metadata = 0;
  expected.device_free = actual.device_free = 0;
  if (memcmp(&expected, &actual, sizeof expected) == 0) return;
#define SAME(field) VEXPECT_UINT_EQ(actual.field, expected.field)
  SAME(reserved_va);
  SAME(mapped);
  SAME(live);
  SAME(requested);
  SAME(parked);
  SAME(spare);
  SAME(pending);
  SAME(retiring);
  SAME(broken);
  SAME(peak_mapped);
  SAME(peak_live);
  SAME(peak_requested);
  SAME(allocs);
  SAME(frees);
  SAME(blocks);
  SAME(slab_live);
  SAME(mid_live);
  SAME(buddy_live);
  SAME(largest_free_mapped);
  SAME(hard_limit);
  SAME(soft_limit);
  SAME(chunks);
  SAME(takes);
#undef SAME
}
