// mid_rig.h: a mid over a fake backing with granules of 2 MiB and a supply of arenas, for the tests of mid.
#ifndef VMPOOL_TESTS_UNIT_MID_RIG_H_
#define VMPOOL_TESTS_UNIT_MID_RIG_H_

#include <stdio.h>
#include <string.h>

#include "pool/mid.h"
#include "tests/support/fake_backing.h"
#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define SLOT (2 * MIB)

// arena_list is the supply: it hands out `arena_bytes` (or more, when asked) from `next` on, up to `end`.
typedef struct arena_list {
  uint64_t next, end;
  uint64_t takes, gives, given_offset;
  uint64_t gap_bytes;      // left out after each arena
  uint64_t max_bytes;      // larger arenas are refused; 0: none
  vmp_fence fence;         // of what it hands out
  vmp_status fail_status;  // not VMP_OK: take fails with it
} arena_list;

static inline vmp_status arena_take(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset,
                                    uint64_t *out_bytes, vmp_fence *out_fence) {
  arena_list *list = self;
  list->takes++;
  if (list->fail_status != VMP_OK) return vmp_fail(list->fail_status, "the test's supply refuses");
  uint64_t offset = (list->next + alignment - 1) / alignment * alignment;
  if ((list->max_bytes != 0 && bytes > list->max_bytes) || offset > list->end || bytes > list->end - offset) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "the test's supply has no %llu bytes", (unsigned long long)bytes);
  }
  *out_offset = offset;
  *out_bytes = bytes;
  *out_fence = list->fence;
  list->next = offset + bytes + list->gap_bytes;
  return VMP_OK;
}

static inline void arena_give(void *self, uint64_t offset, vmp_fence fence) {
  arena_list *list = self;
  (void)fence;
  list->gives++;
  list->given_offset = offset;
}

typedef struct rig {
  vmp_fake_backing *fake;
  vmp_mid *mid;
  arena_list arenas;
} rig;

static inline void rig_start(rig *f, const vmp_fake_options *fake, const vmp_mid_options *options) {
  f->fake = vmp_fake_create(fake);
  f->arenas.next = fake->offset;
  f->arenas.end = fake->offset + fake->slots * SLOT;
  vmp_mid_supply supply = {&f->arenas, arena_take, arena_give};
  VASSERT_OK(vmp_mid_create(&f->mid, vmp_fake_ops(f->fake), &supply, options));
}

// The plain fixture: addresses of 1 GiB, arenas of 256 MiB.
static inline void rig_setup(rig *f) {
  rig_start(f, &(vmp_fake_options){.slots = 512}, &(vmp_mid_options){.arena_bytes = 256 * MIB});
}

static inline void rig_check_mid(rig *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_mid_check(f->mid, &report);
  VEXPECT_NO_FAULTS(&faults);
}

static inline void rig_check(rig *f) {
  rig_check_mid(f);
  (void)vmp_fake_check(f->fake);
  VEXPECT_STR_EQ(vmp_fake_error(f->fake), "");
}

static inline void rig_teardown(rig *f) {
  vmp_mem_fail_after(0, 0);
  if (f->mid != NULL) rig_check(f);
  vmp_mid_destroy(f->mid);
  vmp_fake_destroy(f->fake);
}

static inline vmp_request request_of(uint64_t bytes, vmp_stream_index stream) {
  return (vmp_request){.bytes = bytes, .alignment = 512, .stream = stream, .effort = VMP_EFFORT_NORMAL};
}

static inline vmp_placed take_placed(rig *f, uint64_t bytes, vmp_stream_index stream) {
  vmp_request request = request_of(bytes, stream);
  vmp_placed placed = {.offset = UINT64_MAX};
  VEXPECT_OK(vmp_mid_alloc(f->mid, &request, NULL, &placed));
  return placed;
}

// take allocates on stream 0 and returns the offset (2^64 - 1 where that is refused: the test has failed then).
static inline uint64_t take(rig *f, uint64_t bytes) { return take_placed(f, bytes, 0).offset; }

static inline void give(rig *f, uint64_t offset) { (void)vmp_mid_free(f->mid, offset, VMP_FENCE_NONE); }

static inline void give_on(rig *f, uint64_t offset, vmp_stream_index stream, uint64_t sequence) {
  (void)vmp_mid_free(f->mid, offset, (vmp_fence){UINT64_C(1) << stream, sequence});
}

static inline vmp_mid_stats stats_of(rig *f) {
  vmp_mid_stats stats;
  vmp_mid_get_stats(f->mid, &stats);
  return stats;
}

// expect_layout compares what a walk shows, in MiB: "block 0+3, free 3+253".
typedef struct layout {
  char text[2048];
  size_t used;
} layout;

static inline void on_layout(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  layout *l = context;
  (void)fence;
  if (l->used >= sizeof l->text) return;
  l->used += (size_t)snprintf(l->text + l->used, sizeof l->text - l->used, "%s%s %g+%g", l->used == 0 ? "" : ", ", what,
                              (double)offset / (double)MIB, (double)bytes / (double)MIB);
}

static inline void expect_layout(rig *f, const char *expected) {
  layout l = {.used = 0};
  vmp_mid_walk(f->mid, on_layout, &l);
  VEXPECT_STR_EQ(l.text, expected);
}

#endif  // VMPOOL_TESTS_UNIT_MID_RIG_H_
