// backing_fault_test.c: every driver call of a scenario fails, once and from then on, with every class of code. A
// failed claim changes nothing that its caller can see; memory is never lost; when the fault is lifted everything
// heals.
#include <string.h>

#include "tests/vmm/backing_rig.h"
#include "vmm/memory.h"

static void rig_setup(rig *f) { (void)f; }
static void rig_teardown(rig *f) { rig_close(f); }

typedef struct code {
  const char *name;
  int value;
} code;

static const code codes[] = {
    {"out_of_memory", VMP_CU_OUT_OF_MEMORY}, {"invalid_value", VMP_CU_INVALID_VALUE},
    {"not_supported", VMP_CU_NOT_SUPPORTED}, {"unknown", VMP_CU_UNKNOWN},
    {"not_ready", VMP_CU_NOT_READY},         {"deinitialized", VMP_CU_DEINITIALIZED},
};
static const char *code_name(const code *p) { return p->name; }

// What a caller can see of backing, and what must be the same after a failed call.
typedef struct seen {
  uint64_t live_bytes, mapped_runs;
} seen;

static uint64_t mapped_slots(const rig *r, uint64_t slots) {
  uint64_t mapped = 0;
  for (uint64_t slot = 0; slot < slots; slot++) {
    uint64_t end = 0;
    if (r->ops.run(r->ops.self, r->base + slot * SLOT, r->base + (slot + 1) * SLOT, &end) == VMP_RUN_MAPPED) mapped++;
  }
  return mapped;
}

static void add_live(void *context, uint64_t offset, uint64_t bytes, const char *state, uint64_t chunk_id,
                     uint64_t live, vmp_fence fence) {
  (void)offset;
  (void)chunk_id;
  (void)live;
  (void)fence;
  if (strcmp(state, "live") == 0) *(uint64_t *)context += bytes;
}

static seen look(const rig *r) {
  seen now = {0, mapped_slots(r, 64)};
  vmp_backing_walk_mappings(r->backing, add_live, &now.live_bytes);
  return now;
}

// The scenario: growth, a take, a take into a live neighbourhood, a poll, a trim, a resize. Claims are remembered so
// that they can be released; a refused one is simply not there.
typedef struct scenario {
  rig *rig;
  uint64_t offsets[16], bytes[16];
  size_t count, refused;
} scenario;

static void claim(scenario *s, uint64_t offset, uint64_t bytes, vmp_effort effort) {
  rig *r = s->rig;
  seen before = look(r);
  uint64_t held = rig_stats(r).mapped_bytes + rig_stats(r).spare_bytes;
  vmp_fence fence;
  vmp_status status = r->ops.claim(r->ops.self, r->base + offset, bytes, 0, effort, &fence);
  if (status == VMP_OK) {
    s->offsets[s->count] = offset;
    s->bytes[s->count++] = bytes;
    return;
  }
  s->refused++;
  VEXPECT_INT_LT(status, 0);
  VEXPECT_STR_NE(vmp_last_error()->message, "");
  seen after = look(r);
  VEXPECT_UINT_EQ(after.live_bytes, before.live_bytes);
  if (effort < VMP_EFFORT_RESIZE) VEXPECT_UINT_GE(rig_stats(r).mapped_bytes + rig_stats(r).spare_bytes, held);
}

static void release_all(scenario *s) {
  for (size_t i = 0; i < s->count; i++)
    rig_release(s->rig, s->offsets[i], s->bytes[i], vmp_clock_fence(s->rig->clock, 0));
  s->count = 0;
}

static void run_scenario(scenario *s) {
  rig *r = s->rig;
  claim(s, 0, 24 * MIB, VMP_EFFORT_NORMAL);
  claim(s, 40 * MIB, 3 * MIB, VMP_EFFORT_NORMAL);
  release_all(s);
  claim(s, 4 * MIB, 512, VMP_EFFORT_NORMAL);
  claim(s, 64 * MIB, 18 * MIB, VMP_EFFORT_NORMAL);  // takes
  claim(s, 96 * MIB, 20 * MIB, VMP_EFFORT_RESIZE);  // more than there is, or resized
  (void)vmp_clock_wait(r->clock, vmp_backing_pending(r->backing), UINT64_MAX);
  (void)vmp_backing_poll(r->backing);
  release_all(s);
  (void)vmp_clock_wait(r->clock, vmp_backing_pending(r->backing), UINT64_MAX);
  vmp_backing_trim_report report;
  (void)vmp_backing_trim(r->backing, 8 * MIB, &report);
  (void)vmp_backing_map_ahead(r->backing, r->base, 128 * MIB, 16 * MIB);
}

static void check_quietly_consistent(rig *r) {
  rig_check(r);
  VEXPECT_INT_EQ(r->locked, 1);
}

// After the fault is lifted everything must work again, and all of the device must be there.
static void expect_whole(rig *r) {
  (void)vmp_clock_wait(r->clock, vmp_backing_pending(r->backing), UINT64_MAX);
  (void)vmp_backing_poll(r->backing);
  vmp_backing_trim_report report;
  VEXPECT_OK(vmp_backing_trim(r->backing, 0, &report));
  VEXPECT_UINT_EQ(rig_stats(r).mapped_bytes + rig_stats(r).spare_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(r).broken_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(r).retiring_bytes, 0);
  vmp_fence fence;
  VEXPECT_OK(r->ops.claim(r->ops.self, r->base, 32 * MIB, 0, VMP_EFFORT_NORMAL, &fence));
  rig_release(r, 0, 32 * MIB, VMP_FENCE_NONE);
  rig_check(r);
}

static void one_fault(rig *r, uint64_t nth, int value, bool from_then_on, bool *out_reached) {
  vmp_backing_options options = rig_options(8 * MIB);
  rig_open(r, 32 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_host_fault fault = {VMP_CALL_COUNT, nth, value, from_then_on};
  VASSERT_TRUE(vmp_host_inject(r->driver, &fault));
  uint64_t before = 0, after = 0;
  for (int call = 0; call < VMP_CALL_COUNT; call++) before += rig_calls(r, (vmp_call)call);
  scenario s = {.rig = r};
  run_scenario(&s);
  for (int call = 0; call < VMP_CALL_COUNT; call++) after += rig_calls(r, (vmp_call)call);
  *out_reached = after - before >= nth;
  vmp_host_lift(r->driver);
  check_quietly_consistent(r);
  release_all(&s);
  expect_whole(r);
  rig_close(r);
}

VTEST_FP(BackingFault, EveryCallOnceAndFromThenOn, rig, code, codes, code_name) {
  uint64_t faults = 0;
  for (int forever = 0; forever < 2; forever++) {
    bool reached = true;
    for (uint64_t nth = 1; reached; nth++) {
      VTRACE("call %llu, %s", (unsigned long long)nth, forever ? "from then on" : "once");
      one_fault(f, nth, p->value, forever != 0, &reached);
      VASSERT_NO_FAILURE();
      faults += reached;
    }
  }
  VEXPECT_UINT_GT(faults, 60);
}

VTEST_F(BackingFault, WhatCantBeUndoneIsBrokenAndHeals, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 8 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
  // A take whose access can't be granted, and whose new mapping can't be removed either.
  vmp_host_fault access = {VMP_CALL_mem_set_access, 1, VMP_CU_UNKNOWN, true};
  vmp_host_fault unmap = {VMP_CALL_mem_unmap, 1, VMP_CU_UNKNOWN, true};
  VASSERT_TRUE(vmp_host_inject(f->driver, &access));
  VASSERT_TRUE(vmp_host_inject(f->driver, &unmap));
  VEXPECT_STATUS(rig_claim(f, 64 * MIB, SLOT, 0, NULL), VMP_ERROR_DRIVER);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "cuMemSetAccess");  // the first cause, not the clean-up's
  VEXPECT_UINT_EQ(rig_stats(f).broken_bytes, SLOT);
  VEXPECT_UINT_EQ(rig_stats(f).mapped_bytes, 8 * MIB);  // the chunk is still at its old home
  VEXPECT_TRUE(f->ops.cost(f->ops.self, f->base + 64 * MIB, SLOT, 0).blocked);
  VEXPECT_OK(rig_claim(f, 0, 8 * MIB, 0, NULL));
  rig_check(f);
  vmp_host_lift(f->driver);
  VEXPECT_TRUE(vmp_backing_poll(f->backing));
  VEXPECT_UINT_EQ(rig_stats(f).broken_bytes, 0);
  VEXPECT_FALSE(f->ops.cost(f->ops.self, f->base + 64 * MIB, SLOT, 0).blocked);
  rig_check(f);
  rig_release(f, 0, 8 * MIB, VMP_FENCE_NONE);
}

VTEST_F(BackingFault, ANewChunkThatCantBeUnmappedIsKeptAndHealsIntoASpare, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 8 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  vmp_host_fault access = {VMP_CALL_mem_set_access, 1, VMP_CU_UNKNOWN, true};
  vmp_host_fault unmap = {VMP_CALL_mem_unmap, 1, VMP_CU_UNKNOWN, true};
  VASSERT_TRUE(vmp_host_inject(f->driver, &access));
  VASSERT_TRUE(vmp_host_inject(f->driver, &unmap));
  VEXPECT_STATUS(rig_claim(f, 0, SLOT, 0, NULL), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(rig_stats(f).broken_bytes, SLOT);
  rig_check(f);
  vmp_host_lift(f->driver);
  VEXPECT_OK(rig_claim(f, 0, SLOT, 0, NULL));  // heals on the way
  VEXPECT_UINT_EQ(rig_stats(f).broken_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(f).chunks_created, 1);
  rig_check(f);
  rig_release(f, 0, SLOT, VMP_FENCE_NONE);
}

VTEST_F(BackingFault, HostMemoryThatRunsOutChangesNothing, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, 8 * GIB, &options);
  VASSERT_NO_FAILURE();
  bool failed = true;
  uint64_t refusals = 0;
  for (uint64_t successes = 0; failed; successes++) {
    VTRACE("after %llu allocations", (unsigned long long)successes);
    seen before = look(f);
    vmp_mem_fail_after(successes, UINT64_MAX);
    vmp_status status = rig_claim(f, 0, GIB, 0, NULL);
    failed = status != VMP_OK;
    vmp_mem_fail_after(0, 0);
    if (!failed) break;
    refusals++;
    VEXPECT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    seen after = look(f);
    VEXPECT_UINT_EQ(after.live_bytes, before.live_bytes);
    VEXPECT_UINT_EQ(after.mapped_runs, before.mapped_runs);
    rig_check(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(refusals, 3);
  // Giving back allocates nothing, so it can't fail.
  vmp_mem_fail_after(0, UINT64_MAX);
  rig_release(f, 0, GIB, VMP_FENCE_NONE);
  vmp_backing_trim_report report;
  VEXPECT_OK(vmp_backing_trim(f->backing, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, GIB);
  VEXPECT_UINT_EQ(vmp_mem_failures(), 0);
  vmp_mem_fail_after(0, 0);
}
