// buddy_rig.h: a buddy over a fake backing with granules of 2 MiB, for the tests of buddy.
#ifndef VMPOOL_TESTS_UNIT_BUDDY_RIG_H_
#define VMPOOL_TESTS_UNIT_BUDDY_RIG_H_

#include <stdio.h>
#include <string.h>

#include "pool/buddy.h"
#include "tests/support/fake_backing.h"
#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SLOT (2 * MIB)

typedef struct rig {
  vmp_fake_backing *fake;
  vmp_buddy *buddy;
} rig;

// rig_start makes a fake of `slots` slots from offset 0 and a buddy without addresses.
static inline void rig_start(rig *f, const vmp_fake_options *options) {
  f->fake = vmp_fake_create(options);
  VASSERT_OK(vmp_buddy_create(&f->buddy, vmp_fake_ops(f->fake)));
}

// The plain fixture: 1 GiB at offset 0, 512 slots, one block of order 9.
static inline void rig_setup(rig *f) {
  rig_start(f, &(vmp_fake_options){.slots = 512, .step_bytes = SLOT});
  VASSERT_OK(vmp_buddy_add(f->buddy, 0, GIB));
}

static inline void rig_check_buddy(rig *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_buddy_check(f->buddy, &report);
  VEXPECT_NO_FAULTS(&faults);
}

static inline void rig_check(rig *f) {
  rig_check_buddy(f);
  (void)vmp_fake_check(f->fake);
  VEXPECT_STR_EQ(vmp_fake_error(f->fake), "");
}

static inline void rig_teardown(rig *f) {
  vmp_mem_fail_after(0, 0);
  if (f->buddy != NULL) rig_check(f);
  vmp_buddy_destroy(f->buddy);
  vmp_fake_destroy(f->fake);
}

static inline vmp_request request_of(uint64_t bytes, vmp_stream_index stream) {
  return (vmp_request){.bytes = bytes, .alignment = 512, .stream = stream, .effort = VMP_EFFORT_NORMAL};
}

// take allocates and returns the offset; the test fails (and 2^64 - 1 comes back) where that is refused.
static inline uint64_t take(rig *f, uint64_t bytes, vmp_stream_index stream) {
  vmp_request request = request_of(bytes, stream);
  vmp_placed placed = {.offset = UINT64_MAX};
  VEXPECT_OK(vmp_buddy_alloc(f->buddy, &request, &placed));
  return placed.offset;
}

static inline void give(rig *f, uint64_t offset, vmp_stream_index stream, uint64_t sequence) {
  vmp_buddy_free(f->buddy, offset, (vmp_fence){UINT64_C(1) << stream, sequence});
}

static inline vmp_buddy_stats stats_of(rig *f) {
  vmp_buddy_stats stats;
  vmp_buddy_get_stats(f->buddy, &stats);
  return stats;
}

// expect_layout compares what a walk shows, in slots: "block 0+64, free 64+64, ...".
typedef struct layout {
  char text[1024];
  size_t used;
} layout;

static inline void on_layout(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  layout *l = context;
  (void)fence;
  if (l->used >= sizeof l->text) return;
  l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s%s %llu+%llu", l->used == 0 ? "" : ", ",
                              what, (unsigned long long)(offset / SLOT), (unsigned long long)(bytes / SLOT));
}

static inline void expect_layout(rig *f, const char *expected) {
  layout l = {.used = 0};
  vmp_buddy_walk(f->buddy, on_layout, &l);
  VEXPECT_STR_EQ(l.text, expected);
}

#endif  // VMPOOL_TESTS_UNIT_BUDDY_RIG_H_
