// probes_work.c: work against mappings: copies and fills that may not be queued, mappings that go away under what is
// queued, and what is left after an illegal address (rules 35, 55, 56, 58). Each runs in a process of its own.
//
// To have queued work for sure, a host function holds up the stream in front of it.
#include "tests/conformance/probes.h"

// ---- under work ----

// fill_behind_gate queues a fill of the mapping `one` that can't run yet.
static bool fill_behind_gate(conform *c, conform_gate *gate) {
  return conform_gate_close(c, gate) == VMP_CU_SUCCESS &&
         vmp_drv_memset_d8_async(c->driver, conform_place(c, 0), 7, c->granule, gate->stream) == VMP_CU_SUCCESS;
}

static int sync_behind(conform *c, conform_gate *gate) {
  conform_gate_open(gate);
  return vmp_drv_stream_synchronize(c->driver, gate->stream);
}

static int unmap_one(conform *c) { return vmp_drv_mem_unmap(c->driver, conform_place(c, 0), c->granule); }

int conform_unmap_under_work(conform *c) {
  conform_gate gate;
  return fill_behind_gate(c, &gate) ? unmap_one(c) : CONFORM_FAILED;
}
int conform_unmap_under_work_is_told(conform *c) {
  conform_gate gate;
  vmp_host_counters counters;
  if (!c->host) return conform_not_here(c, "only a model tells");
  if (!fill_behind_gate(c, &gate) || unmap_one(c) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  vmp_host_get_counters(c->driver, &counters);
  return (int)counters.unmaps_under_work;
}
int conform_sync_after_unmap_under_work(conform *c) {
  conform_gate gate;
  if (!fill_behind_gate(c, &gate) || unmap_one(c) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  return sync_behind(c, &gate);
}
static int lower(conform *c, bool give_back) {
  conform_gate gate;
  vmp_cu_access_desc none = conform_desc(c->base.device.ordinal, VMP_CU_ACCESS_NONE);
  if (!fill_behind_gate(c, &gate)) return CONFORM_FAILED;
  if (vmp_drv_mem_set_access(c->driver, conform_place(c, 0), c->granule, &none, 1) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  if (give_back) gpu_grant(&c->base, conform_place(c, 0), 1);
  return sync_behind(c, &gate);
}
int conform_rights_lowered_under_work(conform *c) { return lower(c, false); }
int conform_rights_given_back_under_work(conform *c) { return lower(c, true); }
int conform_remapped_under_work(conform *c) {
  conform_gate gate;
  if (!fill_behind_gate(c, &gate) || unmap_one(c) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  gpu_map(&c->base, conform_place(c, 0), 1, c->spare);
  gpu_grant(&c->base, conform_place(c, 0), 1);
  return sync_behind(c, &gate);
}

// ---- refused at the call ----

static int htod(conform *c, vmp_cu_ptr dst, size_t bytes) {
  const unsigned char data[2] = {1, 2};
  return vmp_drv_memcpy_htod(c->driver, dst, data, bytes);
}

int conform_htod_without_right(conform *c) { return htod(c, conform_place(c, 1), 1); }
int conform_htod_to_read_only(conform *c) {
  vmp_cu_access_desc read = conform_desc(c->base.device.ordinal, VMP_CU_ACCESS_READ);
  if (vmp_drv_mem_set_access(c->driver, conform_place(c, 1), c->granule, &read, 1) != VMP_CU_SUCCESS) {
    return CONFORM_FAILED;
  }
  return htod(c, conform_place(c, 1), 1);
}
int conform_htod_to_unmapped(conform *c) { return htod(c, conform_place(c, 5), 1); }
int conform_htod_over_the_edge(conform *c) { return htod(c, conform_place(c, 4) - 1, 2); }
int conform_htod_from_null(conform *c) { return vmp_drv_memcpy_htod(c->driver, conform_place(c, 0), NULL, 1); }
int conform_dtoh_without_right(conform *c) {
  unsigned char byte = 0;
  return vmp_drv_memcpy_dtoh(c->driver, &byte, conform_place(c, 1), 1);
}
int conform_dtod_without_right(conform *c) {
  return vmp_drv_memcpy_dtod(c->driver, conform_place(c, 0), conform_place(c, 1), 1);
}
int conform_fill_without_right(conform *c) { return vmp_drv_memset_d8(c->driver, conform_place(c, 1), 1, 1); }

// ---- after an illegal address ----

// make_700 loses the context: by a mapping that goes away under a fill, and where the driver waits for that one, by a
// fill of memory without rights.
static bool make_700(conform *c) {
  conform_gate gate;
  if (!fill_behind_gate(c, &gate) || unmap_one(c) != VMP_CU_SUCCESS) return false;
  if (sync_behind(c, &gate) == VMP_CU_ILLEGAL_ADDRESS) return true;
  (void)vmp_drv_memset_d8_async(c->driver, conform_place(c, 1), 1, c->granule, NULL);
  return vmp_drv_ctx_synchronize(c->driver) == VMP_CU_ILLEGAL_ADDRESS;
}

static int after_700(conform *c, int (*ask)(conform *c)) {
  return make_700(c) ? ask(c) : conform_not_here(c, "no way to an illegal address was found");
}

static int ask_sync(conform *c) { return vmp_drv_ctx_synchronize(c->driver); }
static int ask_stream(conform *c) {
  vmp_cu_stream stream = NULL;
  return vmp_drv_stream_create(c->driver, &stream, VMP_CU_STREAM_DEFAULT);
}
static int ask_event(conform *c) {
  vmp_cu_event event = NULL;
  return vmp_drv_event_create(c->driver, &event, VMP_CU_EVENT_DEFAULT);
}
static int ask_memory_info(conform *c) {
  size_t free_bytes = 0, total = 0;
  return vmp_drv_mem_get_info(c->driver, &free_bytes, &total);
}
static int ask_copy(conform *c) {
  unsigned char byte = 0;
  return vmp_drv_memcpy_dtoh(c->driver, &byte, conform_place(c, 2), 1);
}
static int ask_reserve(conform *c) {
  vmp_cu_ptr ptr = 0;
  return vmp_drv_mem_address_reserve(c->driver, &ptr, c->granule, 0, 0, 0);
}
static int ask_create(conform *c) {
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = conform_prop(c);
  return vmp_drv_mem_create(c->driver, &handle, c->granule, &prop, 0);
}
static int ask_unmap(conform *c) { return vmp_drv_mem_unmap(c->driver, conform_place(c, 2), 2 * c->granule); }
static int ask_release(conform *c) { return vmp_drv_mem_release(c->driver, c->spare); }

int conform_sync_after_illegal_address(conform *c) { return after_700(c, ask_sync); }
int conform_stream_after_illegal_address(conform *c) { return after_700(c, ask_stream); }
int conform_event_after_illegal_address(conform *c) { return after_700(c, ask_event); }
int conform_memory_info_after_illegal_address(conform *c) { return after_700(c, ask_memory_info); }
int conform_copy_after_illegal_address(conform *c) { return after_700(c, ask_copy); }
int conform_reserve_after_illegal_address(conform *c) { return after_700(c, ask_reserve); }
int conform_create_after_illegal_address(conform *c) { return after_700(c, ask_create); }
int conform_unmap_after_illegal_address(conform *c) { return after_700(c, ask_unmap); }
int conform_release_after_illegal_address(conform *c) { return after_700(c, ask_release); }
