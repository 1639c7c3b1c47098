// facts.c: see facts.h.
#include "tools/probe/facts.h"

#include <stdio.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/driver_host.h"

// How exactly the largest reservation is found: to this part of it.
#define RESERVE_PRECISION 64u

const probe_name probe_attributes[PROBE_NUM_ATTRIBUTES] = {
    {"virtual_memory_management", VMP_CU_ATTR_VMM_SUPPORTED, 0},
    {"handle_posix_fd", VMP_CU_ATTR_HANDLE_POSIX_FD, 0},
    {"handle_fabric", VMP_CU_ATTR_HANDLE_FABRIC, 0},
    {"generic_compression", VMP_CU_ATTR_GENERIC_COMPRESSION, 0},
    {"rdma_with_vmm", VMP_CU_ATTR_RDMA_WITH_VMM, 0},
    {"rdma", VMP_CU_ATTR_RDMA, 0},
    {"memory_pools", VMP_CU_ATTR_MEMORY_POOLS, 0},
    {"multicast", VMP_CU_ATTR_MULTICAST, 0},
    {"host_numa_id", VMP_CU_ATTR_HOST_NUMA_ID, 0},
    {"host_numa_vmm", VMP_CU_ATTR_HOST_NUMA_VMM, 0},
    {"host_vmm", VMP_CU_ATTR_HOST_VMM, 0},
    {"integrated", VMP_CU_ATTR_INTEGRATED, 0},
    {"unified_addressing", VMP_CU_ATTR_UNIFIED_ADDRESSING, 0},
    {"multiprocessors", VMP_CU_ATTR_MULTIPROCESSOR_COUNT, 0},
    {"compute_capability_major", VMP_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, 0},
    {"compute_capability_minor", VMP_CU_ATTR_COMPUTE_CAPABILITY_MINOR, 0},
};

const probe_name probe_handle_types[PROBE_NUM_HANDLE_TYPES] = {
    {"none", VMP_CU_HANDLE_NONE, 0},
    {"posix_fd", VMP_CU_HANDLE_POSIX_FD, VMP_CU_ATTR_HANDLE_POSIX_FD},
    {"fabric", VMP_CU_HANDLE_FABRIC, VMP_CU_ATTR_HANDLE_FABRIC},
};

// ---- one device ----

static int counted(probe_facts *facts, int code) {
  if (code != VMP_CU_SUCCESS) facts->failures++;
  return code;
}

static probe_value granularity(probe_rig *rig, probe_facts *facts, int ordinal, int option) {
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(ordinal, VMP_CU_HANDLE_NONE);
  size_t bytes = 0;
  const int code = counted(facts, PROBE_CALL(rig, mem_get_allocation_granularity, &bytes, &prop, option));
  return (probe_value){code, code == VMP_CU_SUCCESS ? bytes : 0};
}

static void read_attributes(probe_rig *rig, probe_facts *facts, probe_device *d, vmp_cu_device device) {
  for (size_t i = 0; i < PROBE_NUM_ATTRIBUTES; i++) {
    int value = 0;
    // A driver that is older than an attribute doesn't know it: that is an answer, and no failure.
    const int code = PROBE_CALL(rig, device_get_attribute, &value, probe_attributes[i].id, device);
    if (code != VMP_CU_INVALID_VALUE) counted(facts, code);
    d->attributes[i].code = code;
    d->attributes[i].value = code == VMP_CU_SUCCESS ? value : 0;
  }
}

// Whether a type of handle really works is known once some memory was made with it.
static void try_handle_types(probe_rig *rig, probe_device *d, int ordinal) {
  for (size_t i = 0; i < PROBE_NUM_HANDLE_TYPES; i++) {
    const vmp_cu_mem_prop prop = vmp_device_mem_prop(ordinal, probe_handle_types[i].id);
    vmp_cu_handle handle = 0;
    d->handle_codes[i] = probe_create(rig, &handle, d->granularity_minimum.value, &prop);
    if (d->handle_codes[i] == VMP_CU_SUCCESS && probe_release(rig, handle) != VMP_CU_SUCCESS) (void)probe_clear(rig);
  }
}

static void read_peers(probe_rig *rig, probe_facts *facts, probe_device *d, vmp_cu_device device) {
  for (int i = 0; i < facts->num_devices && i < PROBE_MAX_DEVICES; i++) {
    vmp_cu_device peer = 0;
    int can = 0;
    if (counted(facts, PROBE_CALL(rig, device_get, &peer, i)) != VMP_CU_SUCCESS || peer == device) continue;
    if (counted(facts, PROBE_CALL(rig, device_can_access_peer, &can, device, peer)) == VMP_CU_SUCCESS && can != 0) {
      d->peers |= UINT32_C(1) << i;
    }
  }
}

// A name is shown on one line, in comments and in JSON.
static void clean_name(char *name) {
  for (; *name != '\0'; name++) {
    if (*name < ' ' || *name > '~') *name = '?';
  }
}

static void read_device(probe_rig *rig, probe_facts *facts, int ordinal) {
  probe_device *d = &facts->devices[ordinal];
  vmp_cu_device device = 0;
  size_t total = 0;
  snprintf(d->name, sizeof(d->name), "?");
  d->total_bytes.code = counted(facts, PROBE_CALL(rig, device_get, &device, ordinal));
  if (d->total_bytes.code != VMP_CU_SUCCESS) {
    d->granularity_minimum.code = d->granularity_recommended.code = d->total_bytes.code;
    return;
  }
  if (counted(facts, PROBE_CALL(rig, device_get_name, d->name, (int)sizeof(d->name), device)) != VMP_CU_SUCCESS) {
    snprintf(d->name, sizeof(d->name), "?");
  }
  d->name[sizeof(d->name) - 1] = '\0';
  clean_name(d->name);
  d->total_bytes.code = counted(facts, PROBE_CALL(rig, device_total_mem, &total, device));
  d->total_bytes.value = total;
  read_attributes(rig, facts, d, device);
  read_peers(rig, facts, d, device);
  if (d->attributes[0].value == 0) {  // without virtual memory management there is no more to ask
    d->granularity_minimum.code = d->granularity_recommended.code = VMP_CU_NOT_SUPPORTED;
    for (size_t i = 0; i < PROBE_NUM_HANDLE_TYPES; i++) d->handle_codes[i] = VMP_CU_NOT_SUPPORTED;
    return;
  }
  d->granularity_minimum = granularity(rig, facts, ordinal, VMP_CU_GRANULARITY_MINIMUM);
  d->granularity_recommended = granularity(rig, facts, ordinal, VMP_CU_GRANULARITY_RECOMMENDED);
  try_handle_types(rig, d, ordinal);
}

// ---- the largest reservation ----

// Says whether a size is granted, and gives it back.
static bool try_reserve(probe_rig *rig, probe_facts *facts, uint64_t bytes) {
  vmp_cu_ptr ptr = 0;
  const int code = probe_reserve(rig, &ptr, bytes, 0);
  if (code == VMP_CU_SUCCESS) {
    if (counted(facts, probe_free(rig, ptr, bytes)) != VMP_CU_SUCCESS) (void)probe_clear(rig);
    if (bytes > facts->largest_bytes) facts->largest_bytes = bytes;
    return true;
  }
  facts->refused_bytes = bytes;
  facts->refused_code = code;
  return false;
}

// Downwards by halves, since a refusal is quick and giving back a huge range may be slow; then bisected.
static void find_largest_reservation(probe_rig *rig, const probe_settings *settings, probe_facts *facts) {
  const uint64_t granule = rig->device.granule_bytes;
  uint64_t bytes = vmp_align_down(settings->reserve_limit_bytes, granule);
  while (bytes >= granule && !try_reserve(rig, facts, bytes)) bytes = vmp_align_down(bytes / 2, granule);
  if (facts->largest_bytes == 0 || facts->refused_bytes == 0) return;
  uint64_t good = facts->largest_bytes, bad = facts->refused_bytes;
  while (bad - good > good / RESERVE_PRECISION && bad - good > granule) {
    const uint64_t middle = vmp_align_down(good + (bad - good) / 2, granule);
    if (try_reserve(rig, facts, middle)) {
      good = middle;
    } else {
      bad = middle;
    }
  }
}

void probe_facts_read(probe_rig *rig, const probe_settings *settings, probe_facts *out) {
  memset(out, 0, sizeof(*out));
  snprintf(out->driver, sizeof(out->driver), "%s", rig->driver->kind);
  out->is_host = vmp_driver_is_host(rig->driver);
  int version = 0;
  out->version.code = counted(out, PROBE_CALL(rig, driver_get_version, &version));
  out->version.value = (uint64_t)(version > 0 ? version : 0);
  (void)counted(out, PROBE_CALL(rig, device_get_count, &out->num_devices));
  for (int i = 0; i < out->num_devices && i < PROBE_MAX_DEVICES; i++) read_device(rig, out, i);
  size_t free_bytes = 0, total = 0;
  out->free_bytes.code = counted(out, PROBE_CALL(rig, mem_get_info, &free_bytes, &total));
  out->free_bytes.value = free_bytes;
  find_largest_reservation(rig, settings, out);
}
