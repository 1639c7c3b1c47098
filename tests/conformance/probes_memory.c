// probes_memory.c: granularity, addresses, physical memory, sharing, and what only a model tells of them (rules 8 to
// 26, 44 to 48, 63, 64).
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/conformance/probes.h"

// ---- granularity ----

static int granularity(conform *c, const vmp_cu_mem_prop *prop) {
  size_t bytes;
  return vmp_drv_mem_get_allocation_granularity(c->driver, &bytes, prop, VMP_CU_GRANULARITY_MINIMUM);
}

int conform_granularity_to_nowhere(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return vmp_drv_mem_get_allocation_granularity(c->driver, NULL, &prop, VMP_CU_GRANULARITY_MINIMUM);
}
int conform_granularity_of_unknown_kind(conform *c) {
  size_t bytes;
  vmp_cu_mem_prop prop = conform_prop(c);
  return vmp_drv_mem_get_allocation_granularity(c->driver, &bytes, &prop, 77);
}
int conform_granularity_without_prop(conform *c) { return granularity(c, NULL); }
int conform_granularity_of_no_type(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.type = 0;
  return granularity(c, &prop);
}
int conform_granularity_of_nowhere(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.location.type = VMP_CU_LOCATION_INVALID;
  return granularity(c, &prop);
}
int conform_granularity_of_no_device(conform *c) {
  vmp_cu_mem_prop prop = vmp_device_mem_prop(4711, VMP_CU_HANDLE_NONE);
  return granularity(c, &prop);
}

// ---- addresses ----

// reserve gives back what it got.
static int reserve(conform *c, uint64_t bytes, uint64_t alignment, vmp_cu_ptr hint, unsigned long long flags) {
  vmp_cu_ptr ptr = 0;
  int code = vmp_drv_mem_address_reserve(c->driver, &ptr, bytes, alignment, hint, flags);
  if (code == VMP_CU_SUCCESS) VEXPECT_INT_EQ(vmp_drv_mem_address_free(c->driver, ptr, bytes), VMP_CU_SUCCESS);
  return code;
}

int conform_reserve_to_nowhere(conform *c) { return vmp_drv_mem_address_reserve(c->driver, NULL, c->granule, 0, 0, 0); }
int conform_reserve_with_flags(conform *c) { return reserve(c, c->granule, 0, 0, 1); }
int conform_reserve_nothing(conform *c) { return reserve(c, 0, 0, 0, 0); }
int conform_reserve_odd_size(conform *c) { return reserve(c, c->granule + 1, 0, 0, 0); }
int conform_reserve_half_a_granule(conform *c) { return reserve(c, c->granule / 2, 0, 0, 0); }
int conform_reserve_odd_alignment(conform *c) { return reserve(c, c->granule, 3 * c->granule, 0, 0); }
int conform_reserve_near_an_odd_hint(conform *c) {
  return reserve(c, c->granule, 0, conform_place(c, 64) + c->granule / 2, 0);
}
int conform_reserve_too_much(conform *c) { return reserve(c, UINT64_C(1) << 48, 0, 0, 0); }

int conform_reserve_without_vmm(conform *c) {
  if (!c->host) return conform_not_here(c, "the device has VMM");
  conform_machine machine;
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 1;
  options.devices[0].no_vmm = 1;
  vmp_cu_ptr ptr = 0;
  int code = CONFORM_FAILED;
  if (conform_machine_begin(c, &machine, &options)) {
    code = vmp_drv_mem_address_reserve(machine.driver, &ptr, c->granule, 0, 0, 0);
  }
  conform_machine_end(&machine);
  return code;
}

int conform_free_a_part(conform *c) { return vmp_drv_mem_address_free(c->driver, conform_place(c, 6), 2 * c->granule); }
int conform_free_null(conform *c) { return vmp_drv_mem_address_free(c->driver, 0, c->granule); }
int conform_free_nothing(conform *c) { return vmp_drv_mem_address_free(c->driver, c->at, 0); }
int conform_free_twice(conform *c) {
  vmp_cu_ptr ptr = gpu_reserve(&c->base, 1);
  gpu_free(&c->base, ptr, 1);
  return vmp_drv_mem_address_free(c->driver, ptr, c->granule);
}
int conform_free_while_mapped(conform *c) {
  vmp_cu_ptr ptr = gpu_reserve(&c->base, 1);
  gpu_map(&c->base, ptr, 1, c->spare);
  return vmp_drv_mem_address_free(c->driver, ptr, c->granule);
}

// ---- physical memory ----

// create gives back what it got.
static int create(conform *c, uint64_t bytes, const vmp_cu_mem_prop *prop, unsigned long long flags) {
  vmp_cu_handle handle = 0;
  int code = vmp_drv_mem_create(c->driver, &handle, bytes, prop, flags);
  if (code == VMP_CU_SUCCESS) gpu_release(&c->base, handle);
  return code;
}

static int create_on(conform *c, int location_type, int id, int handle_types) {
  vmp_cu_mem_prop prop = vmp_device_mem_prop(id, handle_types);
  prop.location.type = location_type;
  return create(c, c->granule, &prop, 0);
}

int conform_create_without_vmm(conform *c) {
  int count = 0;
  (void)vmp_drv_device_get_count(c->driver, &count);
  for (int i = 0; i < count; i++) {
    int vmm = 1;
    (void)vmp_drv_device_get_attribute(c->driver, &vmm, VMP_CU_ATTR_VMM_SUPPORTED, i);
    if (vmm == 0) return create_on(c, VMP_CU_LOCATION_DEVICE, i, VMP_CU_HANDLE_NONE);
  }
  return conform_not_here(c, "every device has VMM");
}
int conform_create_to_nowhere(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return vmp_drv_mem_create(c->driver, NULL, c->granule, &prop, 0);
}
int conform_create_without_prop(conform *c) { return create(c, c->granule, NULL, 0); }
int conform_create_nothing(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return create(c, 0, &prop, 0);
}
int conform_create_odd_size(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return create(c, c->granule + 1, &prop, 0);
}
int conform_create_of_no_type(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.type = 0;
  return create(c, c->granule, &prop, 0);
}
int conform_create_nowhere(conform *c) {
  return create_on(c, VMP_CU_LOCATION_INVALID, c->base.device.ordinal, VMP_CU_HANDLE_NONE);
}
int conform_create_with_flags(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return create(c, c->granule, &prop, 1);
}
int conform_create_on_no_device(conform *c) { return create_on(c, VMP_CU_LOCATION_DEVICE, 4711, VMP_CU_HANDLE_NONE); }
int conform_create_on_device_minus_one(conform *c) {
  return create_on(c, VMP_CU_LOCATION_DEVICE, -1, VMP_CU_HANDLE_NONE);
}
int conform_create_shared_host_memory(conform *c) {
  return create_on(c, VMP_CU_LOCATION_HOST, 0, VMP_CU_HANDLE_POSIX_FD);
}
int conform_create_on_current_node(conform *c) {
  return create_on(c, VMP_CU_LOCATION_HOST_NUMA_CURRENT, 0, VMP_CU_HANDLE_NONE);
}
int conform_create_on_node_minus_one(conform *c) {
  return create_on(c, VMP_CU_LOCATION_HOST_NUMA, -1, VMP_CU_HANDLE_NONE);
}
int conform_create_for_windows(conform *c) {
  return create_on(c, VMP_CU_LOCATION_DEVICE, c->base.device.ordinal, VMP_CU_HANDLE_WIN32);
}
int conform_create_for_a_fabric(conform *c) {
  int supported = 0;
  // A driver that doesn't know the attribute has no fabric handles either.
  (void)vmp_drv_device_get_attribute(c->driver, &supported, VMP_CU_ATTR_HANDLE_FABRIC, c->base.device.device);
  if (supported != 0) return conform_not_here(c, "the device says that it has fabric handles");
  return create_on(c, VMP_CU_LOCATION_DEVICE, c->base.device.ordinal, VMP_CU_HANDLE_FABRIC);
}
int conform_create_too_much(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  return create(c, (c->base.device.total_bytes / c->granule + 1) * c->granule, &prop, 0);
}
int conform_create_with_unknown_usage(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.alloc_flags.usage = 0x80;
  return create(c, c->granule, &prop, 0);
}
int conform_create_with_reserved_bits(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.alloc_flags.reserved[3] = 1;
  return create(c, c->granule, &prop, 0);
}
int conform_create_with_windows_data(conform *c) {
  vmp_cu_mem_prop prop = conform_prop(c);
  prop.win32_handle_meta_data = &prop;
  return create(c, c->granule, &prop, 0);
}

int conform_release_zero(conform *c) { return vmp_drv_mem_release(c->driver, 0); }
int conform_release_twice(conform *c) {
  gpu_release(&c->base, c->spare);
  return vmp_drv_mem_release(c->driver, c->spare);
}
int conform_release_a_foreign_handle(conform *c) {
  return vmp_drv_mem_release(c->driver, UINT64_C(0x0000123456789ab0));
}

// ---- handles of mappings ----

static int retain(conform *c, vmp_cu_ptr ptr) {
  vmp_cu_handle handle = 0;
  int code = vmp_drv_mem_retain_allocation_handle(c->driver, &handle, (void *)(uintptr_t)ptr);
  if (code == VMP_CU_SUCCESS) gpu_release(&c->base, handle);
  return code;
}
int conform_retain_to_nowhere(conform *c) {
  return vmp_drv_mem_retain_allocation_handle(c->driver, NULL, (void *)(uintptr_t)conform_place(c, 0));
}
int conform_retain_null(conform *c) { return retain(c, 0); }
int conform_retain_what_is_not_mapped(conform *c) { return retain(c, conform_place(c, 5)); }
int conform_retain_of_plain_memory(conform *c) {
  vmp_cu_ptr ptr = 0;
  if (vmp_drv_mem_alloc(c->driver, &ptr, c->granule) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = retain(c, ptr);
  VEXPECT_INT_EQ(vmp_drv_mem_free(c->driver, ptr), VMP_CU_SUCCESS);
  return code;
}
int conform_properties_to_nowhere(conform *c) {
  return vmp_drv_mem_get_allocation_properties(c->driver, NULL, c->spare);
}
int conform_properties_of_no_handle(conform *c) {
  vmp_cu_mem_prop prop;
  return vmp_drv_mem_get_allocation_properties(c->driver, &prop, 0);
}

// ---- sharing ----

// with_exportable makes a handle that can be exported, asks, and gives it back.
static int with_exportable(conform *c, int (*ask)(conform *c, vmp_cu_handle handle)) {
  int supported = 0;
  (void)vmp_drv_device_get_attribute(c->driver, &supported, VMP_CU_ATTR_HANDLE_POSIX_FD, c->base.device.device);
  if (supported == 0) return conform_not_here(c, "the device has no file descriptors");
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(c->base.device.ordinal, VMP_CU_HANDLE_POSIX_FD);
  if (vmp_drv_mem_create(c->driver, &handle, c->granule, &prop, 0) != VMP_CU_SUCCESS) return CONFORM_FAILED;
  int code = ask(c, handle);
  gpu_release(&c->base, handle);
  return code;
}
static int ask_export(conform *c, vmp_cu_handle handle, unsigned long long flags) {
  int fd = -1;
  int code = vmp_drv_mem_export(c->driver, &fd, handle, VMP_CU_HANDLE_POSIX_FD, flags);
  if (code == VMP_CU_SUCCESS) (void)close(fd);
  return code;
}
static int ask_export_with_flags(conform *c, vmp_cu_handle handle) { return ask_export(c, handle, 1); }
static int ask_export_to_nowhere(conform *c, vmp_cu_handle handle) {
  return vmp_drv_mem_export(c->driver, NULL, handle, VMP_CU_HANDLE_POSIX_FD, 0);
}
int conform_export_not_requested(conform *c) { return ask_export(c, c->spare, 0); }
int conform_export_with_flags(conform *c) { return with_exportable(c, ask_export_with_flags); }
int conform_export_to_nowhere(conform *c) { return with_exportable(c, ask_export_to_nowhere); }

static int import(conform *c, void *shareable, int type) {
  vmp_cu_handle handle = 0;
  return vmp_drv_mem_import(c->driver, &handle, shareable, type);
}
int conform_import_null(conform *c) { return import(c, NULL, VMP_CU_HANDLE_POSIX_FD); }
int conform_import_closed_descriptor(conform *c) { return import(c, (void *)(uintptr_t)1000, VMP_CU_HANDLE_POSIX_FD); }
int conform_import_other_descriptor(conform *c) {
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd < 0 ? CONFORM_FAILED : import(c, (void *)(uintptr_t)fd, VMP_CU_HANDLE_POSIX_FD);
}
int conform_import_wrong_type(conform *c) {
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  return fd < 0 ? CONFORM_FAILED : import(c, (void *)(uintptr_t)fd, VMP_CU_HANDLE_WIN32);
}
int conform_import_a_fabric_handle(conform *c) {
  unsigned char handle[64] = {1};
  return import(c, handle, VMP_CU_HANDLE_FABRIC);
}

// ---- what only a model tells ----

static const char *const model_only = "only a model tells";

int conform_leaks_told(conform *c) {
  if (!c->host) return conform_not_here(c, model_only);
  conform_machine machine;
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  int code = CONFORM_FAILED, fd = -1;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  vmp_cu_event event = NULL;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(0, VMP_CU_HANDLE_POSIX_FD);
  vmp_driver *d = conform_machine_begin(c, &machine, &options) ? machine.driver : NULL;
  if (d != NULL && vmp_drv_mem_address_reserve(d, &ptr, c->granule, 0, 0, 0) == VMP_CU_SUCCESS &&
      vmp_drv_mem_create(d, &handle, c->granule, &prop, 0) == VMP_CU_SUCCESS &&
      vmp_drv_mem_map(d, ptr, c->granule, 0, handle, 0) == VMP_CU_SUCCESS &&
      vmp_drv_mem_export(d, &fd, handle, VMP_CU_HANDLE_POSIX_FD, 0) == VMP_CU_SUCCESS &&
      vmp_drv_event_create(d, &event, VMP_CU_EVENT_DEFAULT) == VMP_CU_SUCCESS) {
    vmp_report report = {NULL, NULL, 0};  // handle, mapping, reservation, descriptor, event, retained context
    code = (int)vmp_host_leaks(d, &report);
  }
  if (fd >= 0) (void)close(fd);
  conform_machine_end(&machine);
  return code;
}

static vmp_host_counters counters_of(vmp_driver *driver) {
  vmp_host_counters counters;
  vmp_host_get_counters(driver, &counters);
  return counters;
}

// A machine with one handle that is mapped twice, behind one another, and granted.
typedef struct aliases {
  conform_machine machine;
  vmp_cu_ptr ptr;
  vmp_cu_stream streams[2];
} aliases;

static bool make_aliases(conform *c, aliases *a) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.check_order = 1;
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = vmp_device_mem_prop(0, VMP_CU_HANDLE_NONE);
  vmp_cu_access_desc desc = conform_desc(0, VMP_CU_ACCESS_READWRITE);
  memset(a, 0, sizeof *a);
  if (!conform_machine_begin(c, &a->machine, &options)) return false;
  vmp_driver *d = a->machine.driver;
  return vmp_drv_mem_address_reserve(d, &a->ptr, 2 * c->granule, 0, 0, 0) == VMP_CU_SUCCESS &&
         vmp_drv_mem_create(d, &handle, c->granule, &prop, 0) == VMP_CU_SUCCESS &&
         vmp_drv_mem_map(d, a->ptr, c->granule, 0, handle, 0) == VMP_CU_SUCCESS &&
         vmp_drv_mem_map(d, a->ptr + c->granule, c->granule, 0, handle, 0) == VMP_CU_SUCCESS &&
         vmp_drv_mem_set_access(d, a->ptr, 2 * c->granule, &desc, 1) == VMP_CU_SUCCESS &&
         vmp_drv_stream_create(d, &a->streams[0], VMP_CU_STREAM_NON_BLOCKING) == VMP_CU_SUCCESS &&
         vmp_drv_stream_create(d, &a->streams[1], VMP_CU_STREAM_NON_BLOCKING) == VMP_CU_SUCCESS;
}

int conform_fresh_memory_read(conform *c) {
  if (!c->host) return conform_not_here(c, model_only);
  aliases a;
  unsigned char byte = 0;
  int code = CONFORM_FAILED;
  if (make_aliases(c, &a) && vmp_drv_memcpy_dtoh(a.machine.driver, &byte, a.ptr, 1) == VMP_CU_SUCCESS) {
    code = (int)counters_of(a.machine.driver).lint;
  }
  conform_machine_end(&a.machine);
  return code;
}

// One stream writes through the first address, another reads through the second.
static int alias_read(conform *c, bool in_order) {
  if (!c->host) return conform_not_here(c, model_only);
  aliases a;
  vmp_cu_event event = NULL;
  unsigned char byte = 0;
  int code = CONFORM_FAILED;
  vmp_driver *d = make_aliases(c, &a) ? a.machine.driver : NULL;
  if (d != NULL && vmp_drv_memset_d8(d, a.ptr, 1, c->granule) == VMP_CU_SUCCESS &&
      vmp_drv_ctx_synchronize(d) == VMP_CU_SUCCESS &&
      vmp_drv_memset_d8_async(d, a.ptr, 2, 4096, a.streams[0]) == VMP_CU_SUCCESS &&
      vmp_drv_event_create(d, &event, VMP_CU_EVENT_DISABLE_TIMING) == VMP_CU_SUCCESS &&
      vmp_drv_event_record(d, event, a.streams[0]) == VMP_CU_SUCCESS &&
      (!in_order || vmp_drv_stream_wait_event(d, a.streams[1], event, 0) == VMP_CU_SUCCESS) &&
      vmp_drv_memcpy_dtoh_async(d, &byte, a.ptr + c->granule, 1, a.streams[1]) == VMP_CU_SUCCESS &&
      vmp_drv_stream_synchronize(d, a.streams[1]) == VMP_CU_SUCCESS && byte == (in_order ? 2 : 1)) {
    code = (int)counters_of(d).unordered;
  }
  conform_machine_end(&a.machine);
  return code;
}
int conform_alias_read_early(conform *c) { return alias_read(c, false); }
int conform_alias_read_in_order(conform *c) { return alias_read(c, true); }
