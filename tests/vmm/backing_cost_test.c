// backing_cost_test.c: what growing by 1 GiB costs, in driver calls (exact) and modelled time (the host driver's cost
// table): cold, in place, and from parked chunks; with large chunks against one-granule chunks. Prints the table.
#include <stdio.h>

#include "tests/vmm/backing_rig.h"

typedef struct cost {
  uint64_t create, map, set_access, unmap, release;
  double us;
} cost;

static cost cost_so_far(rig *r) {
  vmp_host_counters counters;
  vmp_host_get_counters(r->driver, &counters);
  return (cost){rig_calls(r, VMP_CALL_mem_create),     rig_calls(r, VMP_CALL_mem_map),
                rig_calls(r, VMP_CALL_mem_set_access), rig_calls(r, VMP_CALL_mem_unmap),
                rig_calls(r, VMP_CALL_mem_release),    counters.modelled_us};
}

static cost cost_since(rig *r, cost before) {
  cost now = cost_so_far(r);
  return (cost){now.create - before.create, now.map - before.map,         now.set_access - before.set_access,
                now.unmap - before.unmap,   now.release - before.release, now.us - before.us};
}

static uint64_t calls_of(cost c) { return c.create + c.map + c.set_access + c.unmap + c.release; }

static void print_row(const char *what, cost c) {
  printf("%-44s create %4llu  map %4llu  set-access %3llu  unmap %3llu  %9.1f us modelled\n", what,
         (unsigned long long)c.create, (unsigned long long)c.map, (unsigned long long)c.set_access,
         (unsigned long long)c.unmap, c.us);
}

typedef struct growth {
  cost cold, warm, taken;
} growth;

// With park_limit 0 parked chunks come before new ones, though the device has 79 GiB left.
static void grow(rig *r, uint64_t chunk_max_bytes, growth *out) {
  vmp_backing_options options = rig_options(chunk_max_bytes);
  options.park_limit = 0;
  rig_open(r, 80 * GIB, 8 * GIB, &options);
  VASSERT_NO_FAILURE();
  cost before = cost_so_far(r);
  VASSERT_OK(rig_claim(r, 0, GIB, 0, NULL));
  out->cold = cost_since(r, before);
  rig_release(r, 0, GIB, VMP_FENCE_NONE);
  before = cost_so_far(r);
  VASSERT_OK(rig_claim(r, 0, GIB, 0, NULL));
  out->warm = cost_since(r, before);
  rig_release(r, 0, GIB, VMP_FENCE_NONE);
  before = cost_so_far(r);
  VASSERT_OK(rig_claim(r, 2 * GIB, GIB, 0, NULL));
  out->taken = cost_since(r, before);
  rig_release(r, 2 * GIB, GIB, VMP_FENCE_NONE);
  rig_check(r);
  rig_close(r);
}

static void rig_setup(rig *f) { (void)f; }
static void rig_teardown(rig *f) { rig_close(f); }

VTEST_F(BackingCost, GrowingOneGibibyte, rig) {
  growth large = {0}, small = {0};
  grow(f, 32 * MIB, &large);
  grow(f, SLOT, &small);
  VASSERT_NO_FAILURE();
  print_row("cold, chunks up to 32 MiB", large.cold);
  print_row("in place, chunks up to 32 MiB", large.warm);
  print_row("from parked chunks of 32 MiB", large.taken);
  print_row("cold, chunks of 2 MiB", small.cold);
  print_row("in place, chunks of 2 MiB", small.warm);
  print_row("from parked chunks of 2 MiB", small.taken);
  // 1 GiB is 32 chunks of 32 MiB or 512 of 2 MiB; one run of addresses, so one set-access.
  VEXPECT_UINT_EQ(large.cold.create, 32);
  VEXPECT_UINT_EQ(large.cold.map, 32);
  VEXPECT_UINT_EQ(large.cold.set_access, 1);
  VEXPECT_UINT_EQ(small.cold.create, 512);
  VEXPECT_UINT_EQ(small.cold.set_access, 1);
  VEXPECT_UINT_EQ(calls_of(large.warm) + calls_of(small.warm), 0);
  VEXPECT_UINT_EQ(large.taken.create + small.taken.create, 0);
  VEXPECT_UINT_EQ(large.taken.map, 32);
  VEXPECT_UINT_EQ(large.taken.set_access, 1);
  VEXPECT_UINT_EQ(large.taken.unmap, 0);  // the old mappings go later, one call for the run
  VEXPECT_UINT_LE(calls_of(large.cold) * 8, calls_of(small.cold));
  VEXPECT_UINT_LE(calls_of(large.taken) * 8, calls_of(small.taken));
  VEXPECT_REAL_LT(large.cold.us * 8, small.cold.us);
}

VTEST_F(BackingCost, AGrowthBetweenMappedNeighboursMakesOneAccessPerRun, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, GIB, 8 * GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 4 * MIB, SLOT, 0, NULL));
  VASSERT_OK(rig_claim(f, 12 * MIB, SLOT, 0, NULL));
  cost before = cost_so_far(f);
  VASSERT_OK(rig_claim(f, 0, 20 * MIB, 0, NULL));  // holes [0,2), [3,6), [7,10): three runs
  cost c = cost_since(f, before);
  VEXPECT_UINT_EQ(c.create, 8);
  VEXPECT_UINT_EQ(c.map, 8);
  VEXPECT_UINT_EQ(c.set_access, 3);
  rig_release(f, 4 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(f, 12 * MIB, SLOT, VMP_FENCE_NONE);
  rig_release(f, 0, 20 * MIB, VMP_FENCE_NONE);
}

// An 80 GiB device in one-granule chunks: 40960 of them, mapped, given back in random order, mapped again.
VTEST_F(BackingCost, AnEightyGibibyteDeviceInGranules, rig) {
  vmp_backing_options options = rig_options(SLOT);
  rig_open(f, 80 * GIB, 160 * GIB, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_claim(f, 0, 80 * GIB, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).chunks, 40960);
  VEXPECT_STATUS(rig_claim(f, 100 * GIB, SLOT, 0, NULL), VMP_ERROR_OUT_OF_MEMORY);
  rig_check(f);
  rig_release(f, 0, 80 * GIB, VMP_FENCE_NONE);
  cost before = cost_so_far(f);
  VASSERT_OK(rig_claim(f, 80 * GIB, 80 * GIB, 0, NULL));  // every chunk moves
  cost moved = cost_since(f, before);
  print_row("80 GiB from parked chunks of 2 MiB", moved);
  VEXPECT_UINT_EQ(moved.create, 0);
  VEXPECT_UINT_EQ(moved.set_access, 1);
  rig_check(f);
  rig_release(f, 80 * GIB, 80 * GIB, VMP_FENCE_NONE);
}
