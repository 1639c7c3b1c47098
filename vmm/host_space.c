// host_space.c: mappings: which slots of a reservation have a handle behind them, and who may touch it.
//
//     reservation.leaves  [ - | leaf | - | leaf ]           one leaf: 1024 slots, made at the first map into it
//                                 \-> ids of mapping records, one for every slot that a mapping covers; 0 is none
//     mappings[id]        base, bytes, handle, rights by device, when it was born, operations in flight
//
// Finding the mapping of an address is O(1), a walk over a range O(mappings in it). Records and leaves are made by
// map only: unmap and set-access allocate nothing.
//
// Invariants
//   - The slots [base, base + bytes) of a live mapping, and no others, hold its id.
//   - A mapping lies inside one reservation; write_mask is a subset of read_mask; a fresh mapping grants nothing.
#include <stdlib.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

// ---- the index ----

static uint64_t slot_of(const vmp_host *host, const vmp_host_reservation *reservation, uint64_t address) {
  return (address - reservation->base) / host->unit_bytes;
}

static uint32_t id_at(const vmp_host_reservation *reservation, uint64_t slot) {
  const vmp_host_leaf *leaf = reservation->leaves[slot / VMP_HOST_LEAF_SLOTS];
  return leaf == NULL ? 0 : leaf->ids[slot % VMP_HOST_LEAF_SLOTS];
}

vmp_host_mapping *vmp_host_mapping_at(vmp_host *host, const vmp_host_reservation *reservation, uint64_t address) {
  uint32_t id = id_at(reservation, slot_of(host, reservation, address));
  return id == 0 ? NULL : &host->mappings[id];
}

vmp_host_mapping *vmp_host_next_mapping(vmp_host *host, const vmp_host_reservation *reservation, uint64_t *address,
                                        uint64_t end) {
  uint64_t slot = slot_of(host, reservation, *address);
  while (*address < end) {
    const vmp_host_leaf *leaf = reservation->leaves[slot / VMP_HOST_LEAF_SLOTS];
    if (leaf == NULL) {
      slot = (slot / VMP_HOST_LEAF_SLOTS + 1) * VMP_HOST_LEAF_SLOTS;
    } else if (leaf->ids[slot % VMP_HOST_LEAF_SLOTS] != 0) {
      return &host->mappings[leaf->ids[slot % VMP_HOST_LEAF_SLOTS]];
    } else {
      slot++;
    }
    *address = reservation->base + slot * host->unit_bytes;
  }
  return NULL;
}

static bool make_leaves(vmp_host_reservation *reservation, uint64_t first, uint64_t last) {
  for (uint64_t i = first / VMP_HOST_LEAF_SLOTS; i <= last / VMP_HOST_LEAF_SLOTS; i++) {
    if (reservation->leaves[i] != NULL) continue;
    vmp_host_leaf *leaf = calloc(1, sizeof *leaf);
    if (leaf == NULL) return false;
    leaf->next = reservation->first_leaf;
    reservation->first_leaf = leaf;
    reservation->leaves[i] = leaf;
  }
  return true;
}

static void set_slots(vmp_host *host, const vmp_host_mapping *mapping, uint32_t id) {
  uint64_t slot = slot_of(host, mapping->reservation, mapping->base);
  uint64_t end = slot + mapping->bytes / host->unit_bytes;
  for (; slot < end; slot++) {
    mapping->reservation->leaves[slot / VMP_HOST_LEAF_SLOTS]->ids[slot % VMP_HOST_LEAF_SLOTS] = id;
  }
}

static vmp_host_mapping *take_record(vmp_host *host) {
  if (host->free_mapping != 0) {
    vmp_host_mapping *mapping = &host->mappings[host->free_mapping];
    host->free_mapping = mapping->next_free;
    return mapping;
  }
  uint32_t id = host->num_mapping_records == 0 ? 1 : host->num_mapping_records;
  if (!vmp_host_grow32(&host->mappings, &host->cap_mappings, (size_t)id + 1, sizeof *host->mappings)) return NULL;
  host->num_mapping_records = id + 1;
  return &host->mappings[id];
}

static void give_record(vmp_host *host, vmp_host_mapping *mapping) {
  mapping->bytes = 0;
  mapping->next_free = host->free_mapping;
  host->free_mapping = (uint32_t)(mapping - host->mappings);
}

int vmp_host_map_whole(vmp_host *host, vmp_host_reservation *reservation, uint64_t base, uint64_t bytes,
                       uint32_t handle, vmp_host_mapping **out_mapping) {
  uint64_t first = slot_of(host, reservation, base);
  if (!make_leaves(reservation, first, first + bytes / host->unit_bytes - 1)) return VMP_CU_OUT_OF_MEMORY;
  vmp_host_mapping *mapping = take_record(host);
  if (mapping == NULL) return VMP_CU_OUT_OF_MEMORY;
  *mapping = (vmp_host_mapping){.base = base,
                                .bytes = bytes,
                                .born = host->counters.operations_queued,
                                .reservation = reservation,
                                .handle = handle};
  if (host->options.mode == VMP_HOST_EXPOSED && !vmp_host_expose_map(host, mapping)) {
    give_record(host, mapping);
    return VMP_CU_OUT_OF_MEMORY;
  }
  set_slots(host, mapping, (uint32_t)(mapping - host->mappings));
  reservation->num_mappings++;
  host->handles[handle].mappings++;
  host->live_mappings++;
  host->mapped_bytes += bytes;
  *out_mapping = mapping;
  return 0;
}

void vmp_host_unmap_one(vmp_host *host, vmp_host_mapping *mapping) {
  vmp_host_handle *handle = &host->handles[mapping->handle];
  host->unmaps[host->num_unmaps++ % VMP_HOST_KEPT_UNMAPS] =
      (vmp_host_unmap_note){mapping->base, mapping->bytes, host->call_number, host->site};
  set_slots(host, mapping, 0);
  mapping->reservation->num_mappings--;
  host->live_mappings--;
  host->mapped_bytes -= mapping->bytes;
  give_record(host, mapping);
  handle->mappings--;
  vmp_host_drop_handle(host, handle);
}

// Removes a mapping and the CPU's view of it.
static void remove_mapping(vmp_host *host, vmp_host_mapping *mapping) {
  if (mapping->in_flight != 0) vmp_host_work_under(host, mapping, -1, false, "unmapped");
  if (host->options.mode == VMP_HOST_EXPOSED) vmp_host_expose_unmap(host, mapping->base, mapping->bytes);
  vmp_host_unmap_one(host, mapping);
}

void vmp_host_unmap_all(vmp_host *host, vmp_host_reservation *reservation) {
  uint64_t address = reservation->base;
  uint64_t end = reservation->base + reservation->bytes;
  vmp_host_mapping *mapping;
  while ((mapping = vmp_host_next_mapping(host, reservation, &address, end)) != NULL) remove_mapping(host, mapping);
}

// ---- map ----

int vmp_host_no_vmm(vmp_host *host) {
  return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "%s: no device supports VMM", vmp_call_symbol(host->call));
}

static int check_map_arguments(vmp_host *host, vmp_cu_ptr ptr, size_t bytes, size_t offset, unsigned long long flags,
                               uint64_t value, const vmp_host_handle *handle) {
  unsigned long long at = ptr;
  if (ptr == 0 || bytes == 0 || flags != 0) {
    return vmp_host_break(host, 28, VMP_CU_INVALID_VALUE,
                          "cuMemMap: address %#llx, size %zu, flags %llu; flags must be 0, the others not", at, bytes,
                          flags);
  }
  if (offset != 0) {
    return vmp_host_break(host, 27, VMP_CU_INVALID_VALUE, "cuMemMap: offset is %zu; it must be 0", offset);
  }
  if (handle == NULL) {
    bool other = value != 0 && host->options.level == VMP_HOST_COMPAT;  // sources agree on handle 0 only
    return vmp_host_break(host, 32, other ? VMP_CU_INVALID_HANDLE : VMP_CU_INVALID_VALUE,
                          "cuMemMap: the handle %#llx is unknown or released", (unsigned long long)value);
  }
  uint64_t granule = host->devices[handle->device].granule_bytes;
  if (ptr % granule != 0 || bytes % granule != 0) {
    return vmp_host_break(host, 28, VMP_CU_INVALID_VALUE, "cuMemMap: %#llx + %zu is no multiple of granularity %llu",
                          at, bytes, (unsigned long long)granule);
  }
  if (bytes > handle->bytes) {
    return vmp_host_break(host, 29, VMP_CU_INVALID_VALUE, "cuMemMap: size %zu exceeds the handle's %llu", bytes,
                          (unsigned long long)handle->bytes);
  }
  if (bytes != handle->bytes) {
    return vmp_host_refuse(host, VMP_HOST_COMPAT, 29, VMP_CU_INVALID_VALUE,
                           "cuMemMap: size %zu is not the handle's %llu; a handle is mapped whole", bytes,
                           (unsigned long long)handle->bytes);
  }
  return 0;
}

static int check_map_place(vmp_host *host, vmp_cu_ptr ptr, size_t bytes, vmp_host_reservation **out_reservation) {
  unsigned long long at = ptr;
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr);
  if (reservation == NULL || reservation->internal || bytes > reservation->bytes - (ptr - reservation->base)) {
    return vmp_host_break(host, 30, VMP_CU_INVALID_VALUE, "cuMemMap: %#llx + %zu is not inside one reservation", at,
                          bytes);
  }
  for (uint64_t address = ptr; address < ptr + bytes;) {
    const vmp_host_mapping *old = vmp_host_next_mapping(host, reservation, &address, ptr + bytes);
    if (old == NULL) break;
    bool whole = old->base == address && old->bytes <= ptr + bytes - address;
    int code =
        vmp_host_refuse(host, whole ? VMP_HOST_COMPAT : VMP_HOST_COMPAT + 1, 31, VMP_CU_INVALID_VALUE,
                        "cuMemMap: %#llx + %zu meets the mapping at %#llx", at, bytes, (unsigned long long)old->base);
    if (code != 0) return code;
    address += old->bytes;
  }
  *out_reservation = reservation;
  return 0;
}

// Level compat: one source says that a map replaces what was mapped there.
static void replace_mappings(vmp_host *host, vmp_host_reservation *reservation, vmp_cu_ptr ptr, size_t bytes) {
  uint64_t address = ptr;
  vmp_host_mapping *old;
  while ((old = vmp_host_next_mapping(host, reservation, &address, ptr + bytes)) != NULL) remove_mapping(host, old);
}

int vmp_host_op_mem_map(vmp_driver *driver, vmp_cu_ptr ptr, size_t bytes, size_t offset, vmp_cu_handle handle_value,
                        unsigned long long flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_map, VMP_HOST_SITE());
  if (code != 0) return code;
  if (!host->any_vmm) return vmp_host_leave(host, vmp_host_no_vmm(host));
  vmp_host_handle *handle = vmp_host_find_handle(host, handle_value);
  vmp_host_reservation *reservation = NULL;
  vmp_host_mapping *mapping = NULL;
  code = check_map_arguments(host, ptr, bytes, offset, flags, handle_value, handle);
  if (code == 0) code = check_map_place(host, ptr, bytes, &reservation);
  if (code == 0) {
    replace_mappings(host, reservation, ptr, bytes);
    code = vmp_host_map_whole(host, reservation, ptr, bytes, vmp_host_handle_index(host, handle), &mapping);
  }
  return vmp_host_leave(host, code);
}

// ---- runs of whole mappings ----

int vmp_host_check_run(vmp_host *host, int rule, vmp_cu_ptr ptr, size_t bytes, vmp_host_reservation **out_reservation,
                       uint64_t *out_count) {
  const char *call = vmp_call_symbol(host->call);
  unsigned long long at = ptr;
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr);
  uint64_t end;
  if (reservation == NULL || reservation->internal || !vmp_add(ptr, bytes, &end) ||
      end > reservation->base + reservation->bytes) {
    return vmp_host_break(host, rule, VMP_CU_INVALID_VALUE, "%s: %#llx + %zu is not inside one reservation", call, at,
                          bytes);
  }
  uint64_t count = 0;
  for (uint64_t address = ptr; address < end; count++) {
    const vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, address);
    if (mapping == NULL) {
      return vmp_host_break(host, rule, VMP_CU_INVALID_VALUE, "%s: %#llx + %zu has nothing mapped at %#llx", call, at,
                            bytes, (unsigned long long)address);
    }
    if (mapping->base != address || mapping->bytes > end - address) {
      return vmp_host_break(host, rule, VMP_CU_INVALID_VALUE, "%s: %#llx + %zu cuts the mapping %#llx + %#llx", call,
                            at, bytes, (unsigned long long)mapping->base, (unsigned long long)mapping->bytes);
    }
    address += mapping->bytes;
  }
  *out_reservation = reservation;
  *out_count = count;
  return 0;
}

int vmp_host_op_mem_unmap(vmp_driver *driver, vmp_cu_ptr ptr, size_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_unmap, VMP_HOST_SITE());
  if (code != 0) return code;
  if (!host->any_vmm) return vmp_host_leave(host, vmp_host_no_vmm(host));
  if (ptr == 0 || bytes == 0) {
    code = vmp_host_break(host, 34, VMP_CU_INVALID_VALUE, "cuMemUnmap: address %#llx, size %zu",
                          (unsigned long long)ptr, bytes);
    return vmp_host_leave(host, code);
  }
  vmp_host_reservation *reservation = NULL;
  uint64_t count = 0;
  code = vmp_host_check_run(host, 33, ptr, bytes, &reservation, &count);
  if (code != 0) return vmp_host_leave(host, code);
  vmp_host_charge(host, host->cost.unmap_per_mapping_ns * count);
  if (host->options.mode == VMP_HOST_EXPOSED) vmp_host_expose_unmap(host, ptr, bytes);
  for (uint64_t address = ptr; address < ptr + bytes;) {
    vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, address);
    address += mapping->bytes;
    if (mapping->in_flight != 0) vmp_host_work_under(host, mapping, -1, false, "unmapped");
    vmp_host_unmap_one(host, mapping);
  }
  return vmp_host_leave(host, 0);
}
