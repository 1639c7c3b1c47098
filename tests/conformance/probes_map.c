// probes_map.c: mapping, unmapping, rights (rules 27 to 34, 36 to 43).
#include "tests/conformance/probes.h"

// ---- map ----

// map undoes what it did. `bytes` is all that it mapped.
static int map(conform *c, vmp_cu_ptr ptr, uint64_t bytes, uint64_t offset, vmp_cu_handle handle,
               unsigned long long flags) {
  int code = vmp_drv_mem_map(c->driver, ptr, bytes, offset, handle, flags);
  if (code == VMP_CU_SUCCESS) VEXPECT_INT_EQ(vmp_drv_mem_unmap(c->driver, ptr, bytes), VMP_CU_SUCCESS);
  return code;
}

int conform_map_at_an_offset(conform *c) { return map(c, conform_place(c, 4), c->granule, c->granule, c->pair, 0); }
int conform_map_nothing(conform *c) { return map(c, conform_place(c, 4), 0, 0, c->spare, 0); }
int conform_map_misaligned(conform *c) { return map(c, conform_place(c, 4) + 1, c->granule, 0, c->spare, 0); }
int conform_map_odd_size(conform *c) { return map(c, conform_place(c, 4), c->granule - 1, 0, c->spare, 0); }
int conform_map_at_null(conform *c) { return map(c, 0, c->granule, 0, c->spare, 0); }
int conform_map_with_flags(conform *c) { return map(c, conform_place(c, 4), c->granule, 0, c->spare, 1); }
int conform_map_a_prefix(conform *c) { return map(c, conform_place(c, 4), c->granule, 0, c->pair, 0); }
int conform_map_beyond_the_handle(conform *c) { return map(c, conform_place(c, 4), 2 * c->granule, 0, c->spare, 0); }
int conform_map_no_handle(conform *c) { return map(c, conform_place(c, 4), c->granule, 0, 0, 0); }

int conform_map_unreserved(conform *c) {
  vmp_cu_ptr ptr = gpu_reserve(&c->base, 1);
  gpu_free(&c->base, ptr, 1);
  return vmp_drv_mem_map(c->driver, ptr, c->granule, 0, c->spare, 0);
}
int conform_map_over_the_edge(conform *c) {
  return vmp_drv_mem_map(c->driver, conform_place(c, 7), 2 * c->granule, 0, c->pair, 0);
}

// reserve_neighbours makes two reservations of a granule each, one right behind the other, and returns where the first
// one begins; 0 where the driver takes no hint.
static vmp_cu_ptr reserve_neighbours(conform *c) {
  for (int tries = 0; tries < 8; tries++) {
    vmp_cu_ptr first = gpu_reserve(&c->base, 1), second = 0;
    int code = vmp_drv_mem_address_reserve(c->driver, &second, c->granule, 0, first + c->granule, 0);
    if (code != VMP_CU_SUCCESS) return 0;
    if (second == first + c->granule) return first;
    if (first == second + c->granule) return second;
    // Both are kept, so that the next try gets other places: this process ends soon.
  }
  return 0;
}
static const char *const no_neighbours = "the driver doesn't place reservations where it is asked to";

int conform_map_across_reservations(conform *c) {
  vmp_cu_ptr ptr = reserve_neighbours(c);
  if (ptr == 0) return conform_not_here(c, no_neighbours);
  return vmp_drv_mem_map(c->driver, ptr, 2 * c->granule, 0, c->pair, 0);
}
int conform_map_over_a_mapping(conform *c) {
  return vmp_drv_mem_map(c->driver, conform_place(c, 0), c->granule, 0, c->spare, 0);
}
int conform_map_over_half_a_mapping(conform *c) {
  return vmp_drv_mem_map(c->driver, conform_place(c, 3), 2 * c->granule, 0, c->pair, 0);
}
int conform_map_a_released_handle(conform *c) {
  gpu_release(&c->base, c->spare);
  return vmp_drv_mem_map(c->driver, conform_place(c, 4), c->granule, 0, c->spare, 0);
}

// ---- unmap ----

static int unmap(conform *c, uint64_t granule, uint64_t granules) {
  return vmp_drv_mem_unmap(c->driver, conform_place(c, granule), granules * c->granule);
}
int conform_unmap_half_a_mapping(conform *c) { return unmap(c, 2, 1); }
int conform_unmap_into_a_mapping(conform *c) { return unmap(c, 1, 2); }
int conform_unmap_what_is_not_mapped(conform *c) { return unmap(c, 5, 1); }
int conform_unmap_with_a_hole(conform *c) {
  gpu_map(&c->base, conform_place(c, 5), 1, c->spare);
  return unmap(c, 2, 4);
}
int conform_unmap_across_reservations(conform *c) {
  vmp_cu_ptr ptr = reserve_neighbours(c);
  if (ptr == 0) return conform_not_here(c, no_neighbours);
  gpu_map(&c->base, ptr, 1, c->spare);
  gpu_map(&c->base, ptr + c->granule, 1, c->one);
  return vmp_drv_mem_unmap(c->driver, ptr, 2 * c->granule);
}
int conform_unmap_null(conform *c) { return vmp_drv_mem_unmap(c->driver, 0, c->granule); }
int conform_unmap_nothing(conform *c) { return unmap(c, 0, 0); }

// ---- set access ----

static int grant(conform *c, vmp_cu_ptr ptr, uint64_t bytes, vmp_cu_access_desc desc) {
  return vmp_drv_mem_set_access(c->driver, ptr, bytes, &desc, 1);
}
static vmp_cu_access_desc ours(const conform *c) {
  return conform_desc(c->base.device.ordinal, VMP_CU_ACCESS_READWRITE);
}

int conform_grant_half_a_mapping(conform *c) { return grant(c, conform_place(c, 2), c->granule, ours(c)); }
int conform_grant_what_is_not_mapped(conform *c) { return grant(c, conform_place(c, 5), c->granule, ours(c)); }
int conform_grant_with_a_hole(conform *c) { return grant(c, conform_place(c, 2), 3 * c->granule, ours(c)); }
int conform_grant_plain_memory(conform *c) {
  vmp_cu_ptr ptr = 0;
  if (vmp_drv_mem_alloc(c->driver, &ptr, c->granule) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  return grant(c, ptr, c->granule, ours(c));
}
int conform_grant_without_descriptor(conform *c) {
  return vmp_drv_mem_set_access(c->driver, conform_place(c, 0), c->granule, NULL, 1);
}
int conform_grant_to_none(conform *c) {
  vmp_cu_access_desc desc = ours(c);
  return vmp_drv_mem_set_access(c->driver, conform_place(c, 0), c->granule, &desc, 0);
}
int conform_grant_nothing(conform *c) { return grant(c, conform_place(c, 0), 0, ours(c)); }
int conform_grant_writing_alone(conform *c) {
  int code = grant(c, conform_place(c, 0), c->granule, conform_desc(c->base.device.ordinal, 2));
  if (code == VMP_CU_SUCCESS) gpu_grant(&c->base, conform_place(c, 0), 1);
  return code;
}
int conform_grant_to_no_device(conform *c) {
  return grant(c, conform_place(c, 0), c->granule, conform_desc(4711, VMP_CU_ACCESS_READWRITE));
}
int conform_grant_to_device_minus_one(conform *c) {
  return grant(c, conform_place(c, 0), c->granule, conform_desc(-1, VMP_CU_ACCESS_READWRITE));
}
int conform_grant_out_of_reach(conform *c) {
  int other = conform_other(c, false);
  if (other < 0) return conform_not_here(c, "there are no two devices that can't reach each other");
  int code = grant(c, conform_place(c, 0), c->granule, conform_desc(other, VMP_CU_ACCESS_READWRITE));
  if (code == VMP_CU_SUCCESS) (void)grant(c, conform_place(c, 0), c->granule, conform_desc(other, VMP_CU_ACCESS_NONE));
  return code;
}
static int grant_at(conform *c, int location_type) {
  vmp_cu_access_desc desc = {{location_type, 0}, VMP_CU_ACCESS_READWRITE};
  return grant(c, conform_place(c, 0), c->granule, desc);
}
int conform_grant_to_the_host(conform *c) { return grant_at(c, VMP_CU_LOCATION_HOST); }
int conform_grant_to_a_node(conform *c) { return grant_at(c, VMP_CU_LOCATION_HOST_NUMA); }

int conform_grant_without_page_tables(conform *c) {
  if (!c->host) return conform_not_here(c, "only a model runs out of page tables when asked to");
  vmp_host_fault fault = {VMP_CALL_mem_set_access, 1, VMP_CU_OUT_OF_MEMORY, false};
  if (!vmp_host_inject(c->driver, &fault)) return CONFORM_FAILED;
  int code = grant(c, conform_place(c, 1), c->granule, ours(c));
  vmp_host_lift(c->driver);
  vmp_cu_access_desc none = conform_desc(c->base.device.ordinal, VMP_CU_ACCESS_NONE);
  if (code == VMP_CU_SUCCESS) (void)grant(c, conform_place(c, 1), c->granule, none);
  return code;
}

// ---- get access ----

static int access_of(conform *c, unsigned long long *out_flags, uint64_t granule, int location_type, int id) {
  vmp_cu_location location = {location_type, id};
  return vmp_drv_mem_get_access(c->driver, out_flags, &location, conform_place(c, granule));
}

int conform_access_to_nowhere(conform *c) {
  return access_of(c, NULL, 0, VMP_CU_LOCATION_DEVICE, c->base.device.ordinal);
}
int conform_access_for_nobody(conform *c) {
  unsigned long long flags;
  return vmp_drv_mem_get_access(c->driver, &flags, NULL, conform_place(c, 0));
}
int conform_access_of_what_is_not_mapped(conform *c) {
  unsigned long long flags;
  return access_of(c, &flags, 5, VMP_CU_LOCATION_DEVICE, c->base.device.ordinal);
}
int conform_access_from_nowhere(conform *c) {
  unsigned long long flags;
  return access_of(c, &flags, 0, VMP_CU_LOCATION_INVALID, 0);
}
int conform_access_of_no_device(conform *c) {
  unsigned long long flags;
  return access_of(c, &flags, 0, VMP_CU_LOCATION_DEVICE, 4711);
}
int conform_access_never_granted(conform *c) {
  unsigned long long flags = 99;
  int code = access_of(c, &flags, 1, VMP_CU_LOCATION_DEVICE, c->base.device.ordinal);
  return code == VMP_CU_SUCCESS && flags != VMP_CU_ACCESS_NONE ? 1000 + (int)flags : code;
}
