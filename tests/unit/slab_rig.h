// slab_rig.h: what slab's unit tests share: a slab on a fake supply, with fences that complete when the test says so.
#ifndef VMPOOL_TESTS_UNIT_SLAB_RIG_H_
#define VMPOOL_TESTS_UNIT_SLAB_RIG_H_

#include "pool/slab_internal.h"
#include "tests/support/fake_backing.h"
#include "tests/support/fake_supply.h"
#include "tests/support/faults.h"
#include "tests/support/vtest.h"

#define KIB UINT64_C(1024)
#define MIB (UINT64_C(1024) * KIB)
#define RIG_BASE (64 * MIB)
#define RIG_BYTES (512 * MIB)

typedef struct slab_rig {
  vmp_fake_backing *clock;
  vmp_fake_supply supply;
  vmp_slab *slab;
} slab_rig;

// Replaces the rig's slab, which must not have spans, by one with other options.
static inline void rig_remake(slab_rig *f, vmp_slab_options options) {
  vmp_slab_destroy(f->slab);
  f->slab = NULL;
  if (options.granule_bytes == 0) options.granule_bytes = 2 * MIB;
  vmp_slab_supply supply = vmp_fake_supply_calls(&f->supply);
  VASSERT_OK(vmp_slab_create(&f->slab, vmp_fake_ops(f->clock), &supply, &options));
}

static inline void slab_rig_setup(slab_rig *f) {
  f->clock = vmp_fake_create(&(vmp_fake_options){.slots = 1});
  vmp_fake_supply_init(&f->supply, vmp_fake_ops(f->clock), RIG_BASE, RIG_BYTES);
  rig_remake(f, (vmp_slab_options){.max_object_bytes = 64 * KIB});
}

static inline void rig_check(const slab_rig *f) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  VEXPECT_UINT_EQ(vmp_slab_check(f->slab, &report), 0);
  VEXPECT_NO_FAULTS(&faults);
}

static inline void slab_rig_teardown(slab_rig *f) {
  if (f->slab != NULL) rig_check(f);
  VEXPECT_UINT_EQ(f->supply.errors, 0);
  VEXPECT_UINT_EQ(vmp_fake_errors(f->clock), 0);
  vmp_slab_destroy(f->slab);
  vmp_fake_supply_finish(&f->supply);
  vmp_fake_destroy(f->clock);
}

static inline vmp_fence fence_of(vmp_stream_index stream, uint64_t sequence) {
  return (vmp_fence){UINT64_C(1) << stream, sequence};
}

static inline vmp_status rig_try_alloc(slab_rig *f, uint64_t bytes, vmp_stream_index stream, vmp_placed *out_placed) {
  vmp_request request = {.bytes = bytes, .alignment = 512, .stream = stream, .effort = VMP_EFFORT_NORMAL};
  return vmp_slab_alloc(f->slab, &request, out_placed);
}

static inline vmp_placed rig_alloc_on(slab_rig *f, uint64_t bytes, vmp_stream_index stream) {
  vmp_placed placed = {0};
  VEXPECT_OK(rig_try_alloc(f, bytes, stream, &placed));
  return placed;
}

// An object on stream 0 that needs no wait: its offset.
static inline uint64_t rig_alloc(slab_rig *f, uint64_t bytes) {
  vmp_placed placed = rig_alloc_on(f, bytes, 0);
  VEXPECT_TRUE(vmp_fence_is_none(placed.after));
  return placed.offset;
}

// Fills `offsets` with n objects.
static inline void rig_alloc_many(slab_rig *f, uint64_t bytes, uint64_t *offsets, size_t n) {
  for (size_t i = 0; i < n; i++) offsets[i] = rig_alloc(f, bytes);
}

static inline vmp_span *rig_span(slab_rig *f, uint64_t offset) {
  vmp_fake_taken *block = vmp_fake_supply_find(&f->supply, offset);
  return block == NULL ? NULL : block->owner;
}

static inline vmp_status rig_try_free(slab_rig *f, uint64_t offset, vmp_fence fence) {
  uint64_t bytes;
  vmp_span *span = rig_span(f, offset);
  return span == NULL ? VMP_ERROR_CORRUPT : vmp_slab_free(f->slab, span, offset, fence, &bytes);
}

static inline void rig_free(slab_rig *f, uint64_t offset, vmp_fence fence) {
  VEXPECT_OK(rig_try_free(f, offset, fence));
}

static inline vmp_slab_stats rig_stats(slab_rig *f) {
  vmp_slab_stats stats;
  vmp_slab_get_stats(f->slab, &stats);
  return stats;
}

#endif  // VMPOOL_TESTS_UNIT_SLAB_RIG_H_
