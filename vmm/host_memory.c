// host_memory.c: physical memory of the simulated devices: handles and budgets.
//
// Owns: handle records, each device's `used_bytes`. Contents are host_data.c's.
//
//     handle value   [ random tag : 32 | index + 1 : 32 ]     never 0; a dead handle's value is not handed out again,
//                                                             unless immediate_reuse asks for exactly that
//
// Invariants
//   - A handle lives while refs + mappings + exports > 0; with refs 0 its value is dead for callers until
//     cuMemRetainAllocationHandle regains it through a mapping.
//   - used_bytes of a device is the sum over its live handles.
//   - Creating and releasing make no system call, unless memory that was written is given back.
#include <stdlib.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/host_model.h"

#define NO_HANDLE UINT32_MAX

// ---- records ----

vmp_host_handle *vmp_host_find_handle(vmp_host *host, uint64_t value) {
  uint32_t index = (uint32_t)value - 1;
  if (value == 0 || index >= host->num_handle_records) return NULL;
  vmp_host_handle *handle = &host->handles[index];
  if (handle->value != value || handle->bytes == 0 || handle->refs == 0 || handle->internal) return NULL;
  return handle;
}

uint32_t vmp_host_handle_index(const vmp_host *host, const vmp_host_handle *handle) {
  return (uint32_t)(handle - host->handles);
}

// Free records queue up first in, first out; with immediate_reuse the last one freed comes first.
static vmp_host_handle *take_record(vmp_host *host) {
  if (host->num_free_handles != 0) {
    vmp_host_handle *handle = &host->handles[host->first_free_handle];
    host->first_free_handle = handle->next_free;
    host->num_free_handles--;
    return handle;
  }
  if (!vmp_host_grow32(&host->handles, &host->cap_handles, (size_t)host->num_handle_records + 1,
                       sizeof *host->handles)) {
    return NULL;
  }
  vmp_host_handle *handle = &host->handles[host->num_handle_records++];
  handle->value = 0;
  return handle;
}

static void give_record(vmp_host *host, vmp_host_handle *handle) {
  uint32_t index = vmp_host_handle_index(host, handle);
  handle->bytes = 0;
  if (host->num_free_handles == 0) {
    host->first_free_handle = index;
    host->last_free_handle = index;
  } else if (host->options.immediate_reuse != 0) {
    handle->next_free = host->first_free_handle;
    host->first_free_handle = index;
  } else {
    host->handles[host->last_free_handle].next_free = index;
    host->last_free_handle = index;
  }
  host->num_free_handles++;
}

uint64_t vmp_host_free_bytes(const vmp_host *host, int device) {
  const vmp_host_device_state *state = &host->devices[device];
  uint64_t taken;
  if (!vmp_add(state->used_bytes, state->foreign_bytes, &taken) || taken > state->memory_bytes) return 0;
  return state->memory_bytes - taken;
}

int vmp_host_make_handle(vmp_host *host, uint64_t bytes, int device, vmp_host_handle **out_handle) {
  if (vmp_host_free_bytes(host, device) < bytes && host->num_exports != 0) vmp_host_reap_exports(host);
  uint64_t next;
  if (vmp_host_free_bytes(host, device) < bytes || !vmp_add(bytes, host->unit_bytes, &next) ||
      !vmp_add(host->next_offset, next, &next) || next > VMP_HOST_FILE_BYTES) {
    return VMP_CU_OUT_OF_MEMORY;
  }
  vmp_host_handle *handle = take_record(host);
  if (handle == NULL) return VMP_CU_OUT_OF_MEMORY;
  uint64_t value = handle->value;
  if (value == 0 || host->options.immediate_reuse == 0) {
    uint64_t tag = vmp_host_mix(host->next_tag++) << 32;
    value = tag | ((uint64_t)vmp_host_handle_index(host, handle) + 1);
  }
  *handle = (vmp_host_handle){.value = value, .bytes = bytes, .offset = host->next_offset, .refs = 1, .device = device};
  host->next_offset = next;  // a gap to the next handle, so that the kernel never merges two mapped neighbours
  host->devices[device].used_bytes += bytes;
  host->live_handles++;
  *out_handle = handle;
  return 0;
}

void vmp_host_drop_handle(vmp_host *host, vmp_host_handle *handle) {
  if (handle->refs != 0 || handle->mappings != 0 || handle->exports != 0) return;
  if (handle->written) vmp_host_discard(host, handle);
  vmp_host_order_forget(handle);
  host->devices[handle->device].used_bytes -= handle->bytes;
  host->live_handles--;
  give_record(host, handle);
}

// ---- properties ----

// Whether a property could name memory of some device; *out_device is it.
static int check_prop(vmp_host *host, int rule, vmp_host_level relaxed_from, const vmp_cu_mem_prop *prop) {
  const char *call = vmp_call_symbol(host->call);
  if (prop->type != VMP_CU_ALLOCATION_PINNED) {
    return vmp_host_refuse(host, relaxed_from, rule, VMP_CU_INVALID_VALUE, "%s: allocation type %d; it must be 1", call,
                           (int)prop->type);
  }
  if (prop->location.type <= VMP_CU_LOCATION_INVALID || prop->location.type > VMP_CU_LOCATION_HOST_NUMA_CURRENT) {
    return vmp_host_refuse(host, relaxed_from, rule, VMP_CU_INVALID_VALUE, "%s: location type %d", call,
                           (int)prop->location.type);
  }
  return 0;
}

static int check_host_location(vmp_host *host, const vmp_cu_mem_prop *prop) {
  if (prop->location.type == VMP_CU_LOCATION_HOST_NUMA_CURRENT) {
    return vmp_host_break(host, 21, VMP_CU_INVALID_VALUE, "cuMemCreate: location HOST_NUMA_CURRENT");
  }
  if (prop->location.type == VMP_CU_LOCATION_HOST && prop->requested_handle_types != 0) {
    return vmp_host_break(host, 21, VMP_CU_INVALID_VALUE, "cuMemCreate: host memory has no shareable handles");
  }
  if (prop->location.type == VMP_CU_LOCATION_HOST_NUMA && prop->location.id != 0) {
    return vmp_host_break(host, 21, VMP_CU_INVALID_VALUE, "cuMemCreate: NUMA node %d does not exist",
                          (int)prop->location.id);
  }
  return vmp_host_break(host, 21, VMP_CU_NOT_SUPPORTED,
                        "cuMemCreate: memory of the host; attributes 141 and 145 of every simulated device are 0");
}

static int check_create_flags(vmp_host *host, const vmp_cu_mem_prop *prop) {
  static const unsigned char none[sizeof prop->alloc_flags.reserved];
  if (prop->alloc_flags.compression_type > 1 || prop->alloc_flags.gpu_direct_rdma_capable > 1) {
    return vmp_host_break(host, 24, VMP_CU_INVALID_VALUE, "cuMemCreate: compression %u, RDMA %u; each is 0 or 1",
                          prop->alloc_flags.compression_type, prop->alloc_flags.gpu_direct_rdma_capable);
  }
  if (prop->alloc_flags.usage != 0 || memcmp(prop->alloc_flags.reserved, none, sizeof none) != 0 ||
      prop->win32_handle_meta_data != NULL) {
    return vmp_host_refuse(host, VMP_HOST_LINT, 24, VMP_CU_INVALID_VALUE,
                           "cuMemCreate: usage %#x, reserved bytes or Windows data set; zero the structure first",
                           (unsigned)prop->alloc_flags.usage);
  }
  return 0;
}

static int check_create(vmp_host *host, const vmp_cu_handle *out_handle, size_t bytes, const vmp_cu_mem_prop *prop,
                        unsigned long long flags) {
  if (!host->any_vmm) return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemCreate: no device supports VMM");
  if (out_handle == NULL || prop == NULL || bytes == 0 || flags != 0) {
    return vmp_host_break(host, 19, VMP_CU_INVALID_VALUE,
                          "cuMemCreate: null pointer, size 0 or flags: out %p, prop %p, size %zu, flags %llu",
                          (const void *)out_handle, (const void *)prop, bytes, flags);
  }
  int code = check_prop(host, 19, VMP_HOST_COMPAT + 1, prop);
  if (code != 0) return code;
  if (prop->location.type != VMP_CU_LOCATION_DEVICE) return check_host_location(host, prop);
  int device = prop->location.id;
  if (!vmp_host_valid_device(host, device)) {
    return vmp_host_break(host, 20, VMP_CU_INVALID_VALUE, "cuMemCreate: device %d of %d", device, host->num_devices);
  }
  if (!host->devices[device].vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemCreate: device %d does not support VMM", device);
  }
  if (bytes % host->devices[device].granule_bytes != 0) {
    return vmp_host_break(host, 19, VMP_CU_INVALID_VALUE, "cuMemCreate: size %zu is no multiple of granularity %llu",
                          bytes, (unsigned long long)host->devices[device].granule_bytes);
  }
  int supported = host->devices[device].posix_fd ? VMP_CU_HANDLE_POSIX_FD : 0;
  if ((prop->requested_handle_types & ~supported) != 0) {
    return vmp_host_break(host, 22, VMP_CU_NOT_SUPPORTED, "cuMemCreate: handle types %#x; device %d supports %#x",
                          (unsigned)prop->requested_handle_types, device, (unsigned)supported);
  }
  return check_create_flags(host, prop);
}

int vmp_host_op_mem_create(vmp_driver *driver, vmp_cu_handle *out_handle, size_t bytes, const vmp_cu_mem_prop *prop,
                           unsigned long long flags) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_create, VMP_HOST_SITE());
  if (code != 0) return code;
  code = check_create(host, out_handle, bytes, prop, flags);
  vmp_host_handle *handle = NULL;
  if (code == 0 && bytes > host->devices[prop->location.id].max_handle_bytes) code = VMP_CU_OUT_OF_MEMORY;
  if (code == 0) code = vmp_host_make_handle(host, bytes, prop->location.id, &handle);
  if (code == 0) {
    vmp_host_charge(host, host->cost.create_per_mib_ns * (bytes >> 20));
    handle->prop = *prop;
    handle->prop.alloc_flags.compression_type = 0;         // a hint; what is granted is told by the properties
    handle->prop.alloc_flags.gpu_direct_rdma_capable = 0;  // attributes 107 and 110 are 0
    *out_handle = handle->value;
  }
  return vmp_host_leave_out(host, code, out_handle, sizeof *out_handle);
}

int vmp_host_op_mem_release(vmp_driver *driver, vmp_cu_handle value) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_release, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_handle *handle = vmp_host_find_handle(host, value);
  if (!host->any_vmm) {
    code = vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemRelease: no device supports VMM");
  } else if (value == 0) {
    code = vmp_host_break(host, 25, VMP_CU_INVALID_VALUE, "cuMemRelease: handle 0");
  } else if (handle == NULL) {
    code = vmp_host_break(host, 26, VMP_CU_INVALID_VALUE, "cuMemRelease: handle %#llx is unknown or released",
                          (unsigned long long)value);
  } else {
    handle->refs--;
    vmp_host_drop_handle(host, handle);
  }
  return vmp_host_leave(host, code);
}

// ---- questions ----

static int check_granularity(vmp_host *host, const size_t *out_bytes, const vmp_cu_mem_prop *prop, int option) {
  if (!host->any_vmm) {
    return vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemGetAllocationGranularity: no device supports VMM");
  }
  if (out_bytes == NULL || (option != VMP_CU_GRANULARITY_MINIMUM && option != VMP_CU_GRANULARITY_RECOMMENDED)) {
    return vmp_host_break(host, 8, VMP_CU_INVALID_VALUE, "cuMemGetAllocationGranularity: out %p, option %d",
                          (const void *)out_bytes, option);
  }
  if (prop == NULL) return vmp_host_break(host, 9, VMP_CU_INVALID_VALUE, "cuMemGetAllocationGranularity: no property");
  int code = check_prop(host, 9, VMP_HOST_LINT, prop);
  if (code != 0) return code;
  if (prop->location.type == VMP_CU_LOCATION_DEVICE && !vmp_host_valid_device(host, prop->location.id)) {
    return vmp_host_refuse(host, VMP_HOST_LINT, 9, VMP_CU_INVALID_VALUE,
                           "cuMemGetAllocationGranularity: device %d of %d", (int)prop->location.id, host->num_devices);
  }
  return 0;
}

int vmp_host_op_mem_get_allocation_granularity(vmp_driver *driver, size_t *out_bytes, const vmp_cu_mem_prop *prop,
                                               int option) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_get_allocation_granularity, VMP_HOST_SITE());
  if (code != 0) return code;
  code = check_granularity(host, out_bytes, prop, option);
  if (code == 0) {
    bool device = prop->location.type == VMP_CU_LOCATION_DEVICE && vmp_host_valid_device(host, prop->location.id);
    if (device && !host->devices[prop->location.id].vmm) {
      code = vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED,
                            "cuMemGetAllocationGranularity: device %d does not support VMM", (int)prop->location.id);
    } else {
      *out_bytes = device ? host->devices[prop->location.id].granule_bytes : host->unit_bytes;
    }
  }
  return vmp_host_leave_out(host, code, out_bytes, sizeof *out_bytes);
}

int vmp_host_op_mem_get_info(vmp_driver *driver, size_t *out_free, size_t *out_total) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_get_info, VMP_HOST_SITE());
  if (code != 0) return code;
  struct CUctx_st *context = NULL;
  code = vmp_host_current(host, &context);
  if (code == 0 && (out_free == NULL || out_total == NULL)) {
    code = vmp_host_break(host, 5, VMP_CU_INVALID_VALUE, "cuMemGetInfo: an out-pointer is null");
  }
  if (code == 0) {
    vmp_host_reap_exports(host);
    *out_free = vmp_host_free_bytes(host, context->device);
    *out_total = host->devices[context->device].memory_bytes;
  }
  vmp_host_poison_out(host, code, out_total, sizeof *out_total);
  return vmp_host_leave_out(host, code, out_free, sizeof *out_free);
}

int vmp_host_op_mem_retain_allocation_handle(vmp_driver *driver, vmp_cu_handle *out_handle, void *address) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_retain_allocation_handle, VMP_HOST_SITE());
  if (code != 0) return code;
  vmp_host_reservation *reservation = vmp_host_find_reservation(host, (uint64_t)(uintptr_t)address);
  const vmp_host_mapping *mapping = NULL;
  if (reservation != NULL && !reservation->internal) {
    mapping = vmp_host_mapping_at(host, reservation, (uint64_t)(uintptr_t)address);
  }
  if (!host->any_vmm) {
    code = vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "cuMemRetainAllocationHandle: no device supports VMM");
  } else if (out_handle == NULL || mapping == NULL) {
    code = vmp_host_break(host, 44, VMP_CU_INVALID_VALUE,
                          "cuMemRetainAllocationHandle: out %p; nothing is mapped at %p", (void *)out_handle, address);
  } else {
    vmp_host_handle *handle = &host->handles[mapping->handle];
    handle->refs++;
    *out_handle = handle->value;
  }
  return vmp_host_leave_out(host, code, out_handle, sizeof *out_handle);
}

int vmp_host_op_mem_get_allocation_properties(vmp_driver *driver, vmp_cu_mem_prop *out_prop, vmp_cu_handle value) {
  vmp_host *host = vmp_host_of(driver);
  int code = vmp_host_enter(host, VMP_CALL_mem_get_allocation_properties, VMP_HOST_SITE());
  if (code != 0) return code;
  const vmp_host_handle *handle = vmp_host_find_handle(host, value);
  if (!host->any_vmm) {
    code = vmp_host_break(host, 16, VMP_CU_NOT_SUPPORTED, "%s: no device supports VMM", vmp_call_symbol(host->call));
  } else if (out_prop == NULL || handle == NULL) {
    code = vmp_host_break(host, 45, VMP_CU_INVALID_VALUE, "%s: out %p, handle %#llx", vmp_call_symbol(host->call),
                          (void *)out_prop, (unsigned long long)value);
  } else {
    *out_prop = handle->prop;
  }
  return vmp_host_leave_out(host, code, out_prop, sizeof *out_prop);
}

// ---- for tests and tools ----

void vmp_host_device_memory(vmp_driver *driver, int device, uint64_t *out_free, uint64_t *out_total) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  vmp_host_reap_exports(host);
  bool valid = vmp_host_valid_device(host, device);
  *out_free = valid ? vmp_host_free_bytes(host, device) : 0;
  *out_total = valid ? host->devices[device].memory_bytes : 0;
  pthread_mutex_unlock(&host->lock);
}

void vmp_host_set_foreign(vmp_driver *driver, int device, uint64_t bytes) {
  vmp_host *host = vmp_host_of(driver);
  pthread_mutex_lock(&host->lock);
  if (vmp_host_valid_device(host, device)) host->devices[device].foreign_bytes = bytes;
  pthread_mutex_unlock(&host->lock);
}
