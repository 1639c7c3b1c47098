// host_access.c: who may touch a mapping: cuMemSetAccess, cuMemGetAccess.
//
// A right belongs to a mapping and a device. A call covers a run of whole mappings; it grants or takes all or nothing.
// In exposed mode the CPU's view follows. Rights that are taken away under queued work doom that work.
#include "vmm/host_model.h"

static int check_descriptor(vmp_host *host, const vmp_cu_access_desc *desc) {
  if (desc->flags != VMP_CU_ACCESS_NONE && desc->flags != VMP_CU_ACCESS_READ &&
      desc->flags != VMP_CU_ACCESS_READWRITE) {
    return vmp_host_break(host, 37, VMP_CU_INVALID_VALUE, "cuMemSetAccess: flags are %d; they must be 0, 1 or 3",
                          (int)desc->flags);
  }
  if (desc->location.type != VMP_CU_LOCATION_DEVICE) {
    return vmp_host_break(host, 40, VMP_CU_INVALID_VALUE, "cuMemSetAccess: location type %d on device memory",
                          (int)desc->location.type);
  }
  if (!vmp_host_valid_device(host, desc->location.id)) {
    return vmp_host_break(host, 38, VMP_CU_INVALID_DEVICE, "cuMemSetAccess: device %d of %d", (int)desc->location.id,
                          host->num_devices);
  }
  if (!host->devices[desc->location.id].vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemSetAccess: device %d does not support VMM",
                          (int)desc->location.id);
  }
  return 0;
}

static int check_set_access(vmp_host *host, vmp_cu_ptr ptr, size_t bytes, const vmp_cu_access_desc *desc, size_t count,
                            vmp_host_reservation **out_reservation, uint64_t *out_mappings) {
  if (!host->any_vmm) return vmp_host_no_vmm(host);
  if (desc == NULL || count == 0 || bytes == 0 || ptr == 0) {
    return vmp_host_break(host, 37, VMP_CU_INVALID_VALUE,
                          "cuMemSetAccess: address %#llx, size %zu, %zu descriptors; none may be 0",
                          (unsigned long long)ptr, bytes, desc == NULL ? (size_t)0 : count);
  }
  for (size_t i = 0; i < count; i++) {
    int code = check_descriptor(host, &desc[i]);
    if (code != 0) return code;
  }
  int code = vmp_host_check_run(host, 36, ptr, bytes, out_reservation, out_mappings);
  if (code != 0) return code;
  for (uint64_t address = ptr; address < ptr + bytes;) {
    const vmp_host_mapping *mapping = vmp_host_mapping_at(host, *out_reservation, address);
    int resident = host->handles[mapping->handle].device;
    for (size_t i = 0; i < count; i++) {
      if (vmp_host_can_reach(host, desc[i].location.id, resident)) continue;
      return vmp_host_break(host, 39, VMP_CU_INVALID_DEVICE,
                            "cuMemSetAccess: device %d can't reach memory of device %d", (int)desc[i].location.id,
                            resident);
    }
    address += mapping->bytes;
  }
  return 0;
}

typedef struct rights {
  uint16_t touched;  // bit d: some descriptor names device d
  uint16_t read, write;
} rights;

// Duplicates: the last descriptor of a device wins.
static rights merge_descriptors(const vmp_cu_access_desc *desc, size_t count) {
  rights merged = {0, 0, 0};
  for (size_t i = 0; i < count; i++) {
    uint16_t bit = (uint16_t)(1u << desc[i].location.id);
    merged.touched |= bit;
    merged.read = (uint16_t)(desc[i].flags != VMP_CU_ACCESS_NONE ? merged.read | bit : merged.read & ~bit);
    merged.write = (uint16_t)(desc[i].flags == VMP_CU_ACCESS_READWRITE ? merged.write | bit : merged.write & ~bit);
  }
  return merged;
}

static uint16_t new_mask(uint16_t old, uint16_t touched, uint16_t granted) {
  return (uint16_t)((old & ~touched) | (granted & touched));
}

// The CPU's view follows the devices' rights: readable if some device may read, writable if some may write.
static bool expose_run(vmp_host *host, const vmp_host_reservation *reservation, vmp_cu_ptr ptr, uint64_t end,
                       const rights *granted) {
  for (uint64_t address = ptr; address < end;) {
    const vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, address);
    uint16_t read = mapping->read_mask;
    uint16_t write = mapping->write_mask;
    if (granted != NULL) {
      read = new_mask(read, granted->touched, granted->read);
      write = new_mask(write, granted->touched, granted->write);
      if (read != 0) host->handles[mapping->handle].written = true;  // from now on the CPU may write unseen
    }
    if (!vmp_host_expose_rights(host, mapping->base, mapping->bytes, read != 0, write != 0) && granted != NULL) {
      (void)expose_run(host, reservation, ptr, address, NULL);  // back to the old rights
      return false;
    }
    address += mapping->bytes;
  }
  return true;
}

static void report_lowering(vmp_host *host, const vmp_host_mapping *mapping, uint16_t read, uint16_t write) {
  for (int device = 0; device < host->num_devices; device++) {
    unsigned bit = 1u << device;
    if ((mapping->read_mask & bit) != 0 && (read & bit) == 0) {
      vmp_host_work_under(host, mapping, device, false, "lost its right to read");
    } else if ((mapping->write_mask & bit) != 0 && (write & bit) == 0) {
      vmp_host_work_under(host, mapping, device, true, "lost its right to write");
    }
  }
}

int vmp_host_op_mem_set_access(vmp_driver *driver, vmp_cu_ptr ptr, size_t bytes, const vmp_cu_access_desc *desc,
                               size_t count) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_set_access, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_reservation *reservation = NULL;
  uint64_t mappings = 0;
  code = check_set_access(host, ptr, bytes, desc, count, &reservation, &mappings);
  if (code != 0) return vmp_host_leave(host, code);
  rights granted = merge_descriptors(desc, count);
  if (host->options.mode == VMP_HOST_EXPOSED && !expose_run(host, reservation, ptr, ptr + bytes, &granted)) {
    return vmp_host_leave(host, VMP_CU_OUT_OF_MEMORY);
  }
  vmp_host_charge(host, host->cost.set_access_per_mapping_ns * mappings * count);
  for (uint64_t address = ptr; address < ptr + bytes;) {
    vmp_host_mapping *mapping = vmp_host_mapping_at(host, reservation, address);
    uint16_t read = new_mask(mapping->read_mask, granted.touched, granted.read);
    uint16_t write = new_mask(mapping->write_mask, granted.touched, granted.write);
    if (mapping->in_flight != 0) report_lowering(host, mapping, read, write);
    mapping->read_mask = read;
    mapping->write_mask = write;
    address += mapping->bytes;
  }
  return vmp_host_leave(host, 0);
}

static int check_get_access(vmp_host *host, const unsigned long long *out_flags, const vmp_cu_location *location,
                            vmp_cu_ptr ptr, const vmp_host_mapping **out_mapping) {
  if (!host->any_vmm) return vmp_host_no_vmm(host);
  if (out_flags == NULL || location == NULL || ptr == 0) {
    return vmp_host_break(host, 42, VMP_CU_INVALID_VALUE, "cuMemGetAccess: a null argument");
  }
  if (location->type != VMP_CU_LOCATION_DEVICE) {
    return vmp_host_break(host, 42, VMP_CU_INVALID_VALUE, "cuMemGetAccess: location type %d", (int)location->type);
  }
  if (!vmp_host_valid_device(host, location->id)) {
    return vmp_host_break(host, 42, VMP_CU_INVALID_DEVICE, "cuMemGetAccess: device %d of %d", (int)location->id,
                          host->num_devices);
  }
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, ptr);
  const vmp_host_mapping *mapping = NULL;
  if (reservation != NULL && !reservation->internal) mapping = vmp_host_mapping_at(host, reservation, ptr);
  if (mapping == NULL) {
    return vmp_host_break(host, 42, VMP_CU_INVALID_VALUE, "cuMemGetAccess: nothing is mapped at %#llx",
                          (unsigned long long)ptr);
  }
  *out_mapping = mapping;
  return 0;
}

int vmp_host_op_mem_get_access(vmp_driver *driver, unsigned long long *out_flags, const vmp_cu_location *location,
                               vmp_cu_ptr ptr) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_get_access, VMP_HOST_SITE());
  if (code != 0) return code;
  const vmp_host_mapping *mapping = NULL;
  code = check_get_access(host, out_flags, location, ptr, &mapping);
  if (code == 0) {
    unsigned bit = 1u << location->id;
    *out_flags = (mapping->write_mask & bit) != 0  ? VMP_CU_ACCESS_READWRITE
                 : (mapping->read_mask & bit) != 0 ? VMP_CU_ACCESS_READ
                                                   : VMP_CU_ACCESS_NONE;
  }
  return vmp_host_leave_out(host, code, out_flags, sizeof *out_flags);
}
