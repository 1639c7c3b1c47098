// backing_rig.c: see backing_rig.h.
#include "tests/vmm/backing_rig.h"

#include <string.h>

static void hook_lock(void *self) {
  rig *r = self;
  VEXPECT_INT_EQ(r->locked, 0);
  r->locked = 1;
}
static void hook_unlock(void *self) {
  rig *r = self;
  VEXPECT_INT_EQ(r->locked, 1);
  r->locked = 0;
}

vmp_backing_options rig_options(uint64_t chunk_max_bytes) {
  vmp_backing_options options;
  memset(&options, 0, sizeof options);
  options.granule_bytes = SLOT;
  options.chunk_max_bytes = chunk_max_bytes;
  options.hard_limit_bytes = UINT64_MAX;
  options.soft_limit_bytes = UINT64_MAX;
  options.park_limit = 1;
  options.may_create = true;
  return options;
}

void rig_open(rig *r, uint64_t memory_bytes, uint64_t reserve_bytes, const vmp_backing_options *options) {
  vmp_host_options host = VMP_HOST_OPTIONS_INIT;
  host.num_devices = 2;
  host.devices[0].memory_bytes = memory_bytes;
  host.devices[1].memory_bytes = memory_bytes;
  VASSERT_OK(vmp_host_open(&r->driver, &host));
  VASSERT_INT_EQ(vmp_drv_init(r->driver, 0), 0);
  VASSERT_OK(vmp_context_retain(r->driver, 0, &r->context));
  VASSERT_OK(vmp_clock_create(&r->clock, r->driver, 0));
  vmp_backing_options all = options != NULL ? *options : rig_options(32 * MIB);
  all.driver = r->driver;
  all.clock = r->clock;
  all.context = r->context;
  all.hooks = (vmp_lock_hooks){r, hook_lock, hook_unlock, NULL, NULL};
  VASSERT_OK(vmp_backing_create(&r->backing, &all));
  r->locked = 1;
  VASSERT_OK(vmp_backing_reserve(r->backing, reserve_bytes, reserve_bytes, &r->base, &r->bytes));
  VASSERT_UINT_EQ(r->bytes, reserve_bytes);
  r->ops = vmp_backing_get_ops(r->backing);
}

void rig_close(rig *r) {
  if (r->backing != NULL) VEXPECT_OK(vmp_backing_destroy(r->backing));
  vmp_clock_destroy(r->clock);
  if (r->context != NULL) VEXPECT_OK(vmp_context_release(r->driver, 0));
  if (r->driver != NULL) {
    vmp_host_census left = rig_census(r);
    VEXPECT_UINT_EQ(left.handles, 0);
    VEXPECT_UINT_EQ(left.mappings, 0);
    VEXPECT_UINT_EQ(left.reservations, 0);
    VEXPECT_UINT_EQ(left.events, 0);
    VEXPECT_UINT_EQ(left.contexts_retained, 0);
  }
  vmp_driver_close(r->driver);
  memset(r, 0, sizeof *r);
}

static void say(void *context, const char *sentence) {
  (void)context;
  VADD_FAILURE("%s", sentence);
}

void rig_check(rig *r) {
  vmp_report report = {say, NULL, 0};
  (void)vmp_backing_check(r->backing, &report);
  (void)vmp_clock_check(r->clock, &report);
  (void)vmp_host_check(r->driver, &report);
  VEXPECT_INT_EQ(r->locked, 1);
  vmp_backing_stats stats = rig_stats(r);
  vmp_host_census census = rig_census(r);
  VEXPECT_UINT_EQ(census.handles, stats.chunks);
  VEXPECT_UINT_EQ(census.physical_bytes, stats.mapped_bytes + stats.spare_bytes);
  VEXPECT_UINT_EQ(census.reserved_bytes, stats.reserved_bytes);
}

vmp_status rig_claim(rig *r, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_fence *out_fence) {
  vmp_fence ignored;
  return r->ops.claim(r->ops.self, r->base + offset, bytes, stream, VMP_EFFORT_NORMAL,
                      out_fence != NULL ? out_fence : &ignored);
}

void rig_release(rig *r, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  (void)r->ops.release(r->ops.self, r->base + offset, bytes, fence);
}

vmp_backing_stats rig_stats(const rig *r) {
  vmp_backing_stats stats;
  vmp_backing_get_stats(r->backing, &stats);
  return stats;
}

vmp_host_census rig_census(const rig *r) {
  vmp_host_census census;
  vmp_host_get_census(r->driver, &census);
  return census;
}

vmp_cu_stream rig_stream(rig *r) {
  vmp_cu_stream stream = NULL;
  vmp_context_saved saved;
  VEXPECT_OK(vmp_context_enter(r->driver, r->context, &saved));
  VEXPECT_INT_EQ(vmp_drv_stream_create(r->driver, &stream, VMP_CU_STREAM_NON_BLOCKING), 0);
  VEXPECT_OK(vmp_context_leave(r->driver, &saved));
  return stream;
}

void rig_expect_no_violations(rig *r) {
  vmp_host_counters counters;
  vmp_host_get_counters(r->driver, &counters);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
  VEXPECT_UINT_EQ(counters.violations, 0);
  char sentence[256];
  for (uint64_t i = 0; vmp_host_violation(r->driver, i, sentence, sizeof sentence); i++) VADD_FAILURE("%s", sentence);
}

uint64_t rig_calls(const rig *r, vmp_call call) { return atomic_load(&r->driver->calls[call]); }
