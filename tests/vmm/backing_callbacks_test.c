// backing_callbacks_test.c: whoever registered the memory elsewhere hears of every mapping before it goes and after it
// is made, with generations that never come twice, and never with the lock held.
#include <string.h>

#include "tests/vmm/backing_rig.h"

typedef struct registry {
  rig *rig;
  uint64_t mapped_bytes, unmapped_bytes, maps, unmaps;
  uint64_t last_generation;  // of the youngest mapping
  uint64_t live[256];        // generations of what is mapped now
  size_t num_live;
} registry;

typedef struct rigs {
  rig rig;
  registry registry;
} rigs;

static void after_map(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  registry *r = self;
  VEXPECT_INT_EQ(r->rig->locked, 0);
  VEXPECT_UINT_GT(generation, r->last_generation);
  r->last_generation = generation;
  r->live[r->num_live++] = generation;
  r->mapped_bytes += bytes;
  r->maps++;
  char byte = 0;  // it is accessible already
  VEXPECT_INT_EQ(vmp_host_peek(r->rig->driver, address, &byte, 1), 0);
}

static void before_unmap(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  registry *r = self;
  r->unmapped_bytes += bytes;
  r->unmaps++;
  size_t at = 0;
  while (at < r->num_live && r->live[at] != generation) at++;
  VASSERT_UINT_LT(at, r->num_live);  // it was announced, and has not gone before
  r->live[at] = r->live[--r->num_live];
  char byte = 0;  // it is still there
  VEXPECT_INT_EQ(vmp_host_peek(r->rig->driver, address, &byte, 1), 0);
}

static void rigs_setup(rigs *f) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(&f->rig, 16 * MIB, GIB, &options);
  VASSERT_NO_FAILURE();
  f->registry.rig = &f->rig;
  vmp_remap_callbacks callbacks = {&f->registry, before_unmap, after_map};
  VASSERT_OK(vmp_backing_register(f->rig.backing, &callbacks));
}

static void rigs_teardown(rigs *f) {
  rig_close(&f->rig);
  VEXPECT_UINT_EQ(f->registry.num_live, 0);  // the end is announced too
  VEXPECT_UINT_EQ(f->registry.mapped_bytes, f->registry.unmapped_bytes);
}

VTEST_F(BackingCallbacks, EveryMappingIsAnnouncedOnceEachWay, rigs) {
  rig *r = &f->rig;
  VASSERT_OK(rig_claim(r, 0, 16 * MIB, 0, NULL));
  VEXPECT_UINT_EQ(f->registry.maps, 8);
  uint64_t old = vmp_backing_generation(r->backing, r->base, 16 * MIB);
  VEXPECT_UINT_EQ(old, f->registry.last_generation);
  rig_release(r, 0, 16 * MIB, VMP_FENCE_NONE);
  VASSERT_OK(rig_claim(r, 0, 16 * MIB, 0, NULL));  // in place: the same mappings
  VEXPECT_UINT_EQ(vmp_backing_generation(r->backing, r->base, 16 * MIB), old);
  rig_release(r, 0, 16 * MIB, VMP_FENCE_NONE);
  VASSERT_OK(rig_claim(r, 64 * MIB, 4 * MIB, 0, NULL));  // two taken
  VEXPECT_UINT_EQ(f->registry.maps, 10);
  VEXPECT_UINT_EQ(f->registry.unmaps, 0);  // the old mappings are still there
  VEXPECT_UINT_GT(vmp_backing_generation(r->backing, r->base + 64 * MIB, 4 * MIB), old);
  VEXPECT_UINT_EQ(vmp_backing_generation(r->backing, r->base, 16 * MIB), 0);
  VEXPECT_TRUE(vmp_backing_poll(r->backing));
  VEXPECT_UINT_EQ(f->registry.unmaps, 2);
  rig_release(r, 64 * MIB, 4 * MIB, VMP_FENCE_NONE);
  vmp_backing_trim_report report;
  VASSERT_OK(vmp_backing_trim(r->backing, 0, &report));
  VEXPECT_UINT_EQ(f->registry.num_live, 0);
}

VTEST_F(BackingCallbacks, AFailedMapIsNotAnnouncedAndAFailedUnmapIsTakenBack, rigs) {
  rig *r = &f->rig;
  vmp_host_fault access = {VMP_CALL_mem_set_access, 1, VMP_CU_UNKNOWN, false};
  VASSERT_TRUE(vmp_host_inject(r->driver, &access));
  VEXPECT_STATUS(rig_claim(r, 0, 8 * MIB, 0, NULL), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(f->registry.maps, 0);
  VEXPECT_UINT_EQ(f->registry.unmaps, 0);
  VASSERT_OK(rig_claim(r, 0, 8 * MIB, 0, NULL));
  rig_release(r, 0, 8 * MIB, VMP_FENCE_NONE);
  vmp_host_fault unmap = {VMP_CALL_mem_unmap, 1, VMP_CU_UNKNOWN, true};
  VASSERT_TRUE(vmp_host_inject(r->driver, &unmap));
  vmp_backing_trim_report report;
  uint64_t before = f->registry.last_generation;
  f->registry.last_generation = 0;  // the mapping stays, and so does its generation
  VEXPECT_STATUS(vmp_backing_trim(r->backing, 0, &report), VMP_ERROR_DRIVER);
  VEXPECT_UINT_EQ(report.kept_other_bytes, 8 * MIB);
  VEXPECT_UINT_EQ(f->registry.num_live, 4);
  VEXPECT_UINT_EQ(f->registry.last_generation, before);
  vmp_host_lift(r->driver);
  VASSERT_OK(vmp_backing_trim(r->backing, 0, &report));
  VEXPECT_UINT_EQ(report.released_bytes, 8 * MIB);
}

VTEST_F(BackingCallbacks, RegistrationsEndAndAreLimited, rigs) {
  rig *r = &f->rig;
  char others[VMP_MAX_REMAP_CALLBACKS + 1];
  vmp_remap_callbacks none = {NULL, NULL, NULL};
  for (unsigned i = 1; i < VMP_MAX_REMAP_CALLBACKS; i++) {
    none.self = &others[i];
    VEXPECT_OK(vmp_backing_register(r->backing, &none));
    VEXPECT_STATUS(vmp_backing_register(r->backing, &none), VMP_ERROR_INVALID_VALUE);  // registered already
  }
  none.self = &others[0];
  VEXPECT_STATUS(vmp_backing_register(r->backing, &none), VMP_ERROR_LIMIT);
  VASSERT_OK(rig_claim(r, 0, SLOT, 0, NULL));
  VEXPECT_UINT_EQ(f->registry.maps, 1);
  VEXPECT_TRUE(!vmp_backing_unregister(r->backing, &others[0]));
  VEXPECT_TRUE(vmp_backing_unregister(r->backing, &others[1]));
  VEXPECT_OK(vmp_backing_register(r->backing, &none));
  rig_release(r, 0, SLOT, VMP_FENCE_NONE);
}
