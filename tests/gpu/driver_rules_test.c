// driver_rules_test.c: rules of the driver contract (its table A) tried one by one, printed as rule, expected, got.
//
// On the host driver each must give the strict code. On a GPU a difference is data: it is printed and counted, and
// fails only with --strict=1. Every probe leaves the state as it found it, also where the driver accepts what it was
// expected to refuse; at the end the state is used and taken down, which must work everywhere.
//
//     granule     0     1     2     3     4     5     6     7
//     mapping   [one] [two] [ three    ]  -     -     -     -      two has been granted to nobody
//     spare: a chunk of one granule that is mapped nowhere, pair: one of two
#include <stdio.h>
#include <string.h>

#include "tests/gpu/gpu_rig.h"

enum { GRANULES = 8, ANY_OF = 4, END = -1 };

typedef struct rules_rig {
  gpu_rig base;
  vmp_driver *driver;
  uint64_t granule;
  vmp_cu_ptr at;  // of the range above
  vmp_cu_handle one, two, three, spare, pair;
} rules_rig;

static vmp_cu_ptr place(const rules_rig *f, uint64_t granule) { return f->at + granule * f->granule; }

static vmp_cu_mem_prop prop_of(const rules_rig *f) {
  return vmp_device_mem_prop(f->base.device.ordinal, VMP_CU_HANDLE_NONE);
}

static vmp_cu_access_desc access_of(const rules_rig *f, int flags) {
  return (vmp_cu_access_desc){{VMP_CU_LOCATION_DEVICE, f->base.device.ordinal}, flags};
}

static void map_all(rules_rig *f) {
  gpu_map(&f->base, place(f, 0), 1, f->one);
  gpu_map(&f->base, place(f, 1), 1, f->two);
  gpu_map(&f->base, place(f, 2), 2, f->three);
  gpu_grant(&f->base, place(f, 0), 1);
  gpu_grant(&f->base, place(f, 2), 2);
}

static void rules_rig_setup(rules_rig *f) {
  gpu_rig_setup(&f->base);
  if (!f->base.entered) return;  // skipped or failed
  f->driver = f->base.driver;
  f->granule = f->base.granule;
  f->at = gpu_reserve(&f->base, GRANULES);
  f->one = gpu_create(&f->base, 1);
  f->two = gpu_create(&f->base, 1);
  f->three = gpu_create(&f->base, 2);
  f->spare = gpu_create(&f->base, 1);
  f->pair = gpu_create(&f->base, 2);
  VASSERT_NO_FAILURE();
  map_all(f);
  gpu_write(&f->base, place(f, 0), f->granule, 1);
  gpu_write(&f->base, place(f, 2), 2 * f->granule, 3);
}

static void rules_rig_teardown(rules_rig *f) {
  if (f->driver != NULL) {
    gpu_unmap(&f->base, f->at, 4);
    const vmp_cu_handle handles[] = {f->one, f->two, f->three, f->spare, f->pair};
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++) gpu_release(&f->base, handles[i]);
    gpu_free(&f->base, f->at, GRANULES);
  }
  gpu_rig_teardown(&f->base);
}

// ---- probes: each makes one call that breaks a rule and returns its code ----

static int init_with_flags(rules_rig *f) { return vmp_drv_init(f->driver, 1); }

static int device_minus_one(rules_rig *f) {
  vmp_cu_device device;
  return vmp_drv_device_get(f->driver, &device, -1);
}
static int device_beyond_the_last(rules_rig *f) {
  vmp_cu_device device;
  int count = 0;
  (void)vmp_drv_device_get_count(f->driver, &count);
  return vmp_drv_device_get(f->driver, &device, count);
}
static int unknown_attribute(rules_rig *f) {
  int value;
  return vmp_drv_device_get_attribute(f->driver, &value, 99999, f->base.device.device);
}
static int attribute_of_no_device(rules_rig *f) {
  int value;
  return vmp_drv_device_get_attribute(f->driver, &value, VMP_CU_ATTR_VMM_SUPPORTED, 4711);
}

// Without a current context. The rig's own is the only one on the stack.
static int pop_ours(rules_rig *f) {
  vmp_cu_context popped = NULL;
  return vmp_drv_ctx_pop_current(f->driver, &popped);
}
static int push_ours(rules_rig *f, int code_of_the_probe) {
  int code = vmp_drv_ctx_push_current(f->driver, f->base.context);
  VEXPECT_INT_EQ(code, VMP_CU_SUCCESS);
  return code_of_the_probe;
}
static int stream_without_context(rules_rig *f) {
  vmp_cu_stream stream = NULL;
  if (pop_ours(f) != VMP_CU_SUCCESS) return END;
  int code = vmp_drv_stream_create(f->driver, &stream, VMP_CU_STREAM_DEFAULT);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_stream_destroy(f->driver, stream);
  return push_ours(f, code);
}
static int event_without_context(rules_rig *f) {
  vmp_cu_event event = NULL;
  if (pop_ours(f) != VMP_CU_SUCCESS) return END;
  int code = vmp_drv_event_create(f->driver, &event, VMP_CU_EVENT_DEFAULT);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_event_destroy(f->driver, event);
  return push_ours(f, code);
}
static int copy_without_context(rules_rig *f) {
  unsigned char byte = 0;
  if (pop_ours(f) != VMP_CU_SUCCESS) return END;
  return push_ours(f, vmp_drv_memcpy_dtoh(f->driver, &byte, place(f, 0), 1));
}
static int mem_info_without_context(rules_rig *f) {
  size_t free_bytes = 0, total = 0;
  if (pop_ours(f) != VMP_CU_SUCCESS) return END;
  return push_ours(f, vmp_drv_mem_get_info(f->driver, &free_bytes, &total));
}
static int pop_of_an_empty_stack(rules_rig *f) {
  vmp_cu_context popped = NULL;
  if (pop_ours(f) != VMP_CU_SUCCESS) return END;
  return push_ours(f, vmp_drv_ctx_pop_current(f->driver, &popped));
}

static int granularity_of_unknown_kind(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  size_t bytes;
  return vmp_drv_mem_get_allocation_granularity(f->driver, &bytes, &prop, 77);
}
static int granularity_to_nowhere(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  return vmp_drv_mem_get_allocation_granularity(f->driver, NULL, &prop, VMP_CU_GRANULARITY_MINIMUM);
}

// reserve gives back what it should not have got.
static int reserve(rules_rig *f, uint64_t bytes, uint64_t alignment, unsigned long long flags) {
  vmp_cu_ptr ptr = 0;
  int code = vmp_drv_mem_address_reserve(f->driver, &ptr, bytes, alignment, 0, flags);
  if (code == VMP_CU_SUCCESS) VEXPECT_INT_EQ(vmp_drv_mem_address_free(f->driver, ptr, bytes), VMP_CU_SUCCESS);
  return code;
}
static int reserve_to_nowhere(rules_rig *f) {
  return vmp_drv_mem_address_reserve(f->driver, NULL, f->granule, 0, 0, 0);
}
static int reserve_with_flags(rules_rig *f) { return reserve(f, f->granule, 0, 1); }
static int reserve_nothing(rules_rig *f) { return reserve(f, 0, 0, 0); }
static int reserve_odd_size(rules_rig *f) { return reserve(f, f->granule + 1, 0, 0); }
static int reserve_odd_alignment(rules_rig *f) { return reserve(f, f->granule, 3 * f->granule, 0); }

static int free_a_part(rules_rig *f) { return vmp_drv_mem_address_free(f->driver, place(f, 6), 2 * f->granule); }
static int free_null(rules_rig *f) { return vmp_drv_mem_address_free(f->driver, 0, f->granule); }
static int free_no_bytes(rules_rig *f) { return vmp_drv_mem_address_free(f->driver, f->at, 0); }

static int create(rules_rig *f, uint64_t bytes, const vmp_cu_mem_prop *prop, unsigned long long flags) {
  vmp_cu_handle handle = 0;
  int code = vmp_drv_mem_create(f->driver, &handle, bytes, prop, flags);
  if (code == VMP_CU_SUCCESS) gpu_release(&f->base, handle);
  return code;
}
static int create_to_nowhere(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  return vmp_drv_mem_create(f->driver, NULL, f->granule, &prop, 0);
}
static int create_nothing(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  return create(f, 0, &prop, 0);
}
static int create_odd_size(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  return create(f, f->granule + 1, &prop, 0);
}
static int create_with_flags(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  return create(f, f->granule, &prop, 1);
}
static int create_of_no_type(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  prop.type = 0;
  return create(f, f->granule, &prop, 0);
}
static int create_nowhere(rules_rig *f) {
  vmp_cu_mem_prop prop = prop_of(f);
  prop.location.type = VMP_CU_LOCATION_INVALID;
  return create(f, f->granule, &prop, 0);
}
static int create_on_no_device(rules_rig *f) {
  vmp_cu_mem_prop prop = vmp_device_mem_prop(4711, VMP_CU_HANDLE_NONE);
  return create(f, f->granule, &prop, 0);
}

static int release_zero(rules_rig *f) { return vmp_drv_mem_release(f->driver, 0); }

// map undoes what should not have worked. `bytes` is all that it mapped.
static int map(rules_rig *f, vmp_cu_ptr ptr, uint64_t bytes, uint64_t offset, vmp_cu_handle handle,
               unsigned long long flags) {
  int code = vmp_drv_mem_map(f->driver, ptr, bytes, offset, handle, flags);
  if (code == VMP_CU_SUCCESS) VEXPECT_INT_EQ(vmp_drv_mem_unmap(f->driver, ptr, bytes), VMP_CU_SUCCESS);
  return code;
}
static int map_at_an_offset(rules_rig *f) { return map(f, place(f, 4), f->granule, f->granule, f->pair, 0); }
static int map_nothing(rules_rig *f) { return map(f, place(f, 4), 0, 0, f->spare, 0); }
static int map_misaligned(rules_rig *f) { return map(f, place(f, 4) + 1, f->granule, 0, f->spare, 0); }
static int map_odd_size(rules_rig *f) { return map(f, place(f, 4), f->granule - 1, 0, f->spare, 0); }
static int map_at_null(rules_rig *f) { return map(f, 0, f->granule, 0, f->spare, 0); }
static int map_with_flags(rules_rig *f) { return map(f, place(f, 4), f->granule, 0, f->spare, 1); }
static int map_a_prefix(rules_rig *f) { return map(f, place(f, 4), f->granule, 0, f->pair, 0); }
static int map_beyond_the_handle(rules_rig *f) { return map(f, place(f, 4), 2 * f->granule, 0, f->spare, 0); }
static int map_over_the_edge(rules_rig *f) { return map(f, place(f, 7), 2 * f->granule, 0, f->pair, 0); }
static int map_no_handle(rules_rig *f) { return map(f, place(f, 4), f->granule, 0, 0, 0); }
// Where the driver takes this one, the old mapping is gone: the rig is mapped anew.
static int map_over_a_mapping(rules_rig *f) {
  int code = map(f, place(f, 0), f->granule, 0, f->spare, 0);
  if (code == VMP_CU_SUCCESS) {
    gpu_map(&f->base, place(f, 0), 1, f->one);
    gpu_grant(&f->base, place(f, 0), 1);
  }
  return code;
}

// unmap puts everything back where it should not have worked.
static int unmap(rules_rig *f, vmp_cu_ptr ptr, uint64_t bytes) {
  int code = vmp_drv_mem_unmap(f->driver, ptr, bytes);
  if (code == VMP_CU_SUCCESS) {
    for (uint64_t i = 0; i < 4; i++) (void)vmp_drv_mem_unmap(f->driver, place(f, i), f->granule);
    (void)vmp_drv_mem_unmap(f->driver, place(f, 2), 2 * f->granule);
    map_all(f);
  }
  return code;
}
static int unmap_half_a_mapping(rules_rig *f) { return unmap(f, place(f, 2), f->granule); }
static int unmap_into_a_mapping(rules_rig *f) { return unmap(f, place(f, 1), 2 * f->granule); }
static int unmap_what_is_not_mapped(rules_rig *f) { return unmap(f, place(f, 5), f->granule); }
static int unmap_with_a_hole(rules_rig *f) { return unmap(f, place(f, 2), 4 * f->granule); }
static int unmap_null(rules_rig *f) { return unmap(f, 0, f->granule); }
static int unmap_nothing(rules_rig *f) { return unmap(f, place(f, 0), 0); }

static int grant(rules_rig *f, uint64_t granule, uint64_t bytes, const vmp_cu_access_desc *desc, size_t count) {
  return vmp_drv_mem_set_access(f->driver, place(f, granule), bytes, desc, count);
}
static int grant_half_a_mapping(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, VMP_CU_ACCESS_READWRITE);
  return grant(f, 2, f->granule, &desc, 1);
}
static int grant_what_is_not_mapped(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, VMP_CU_ACCESS_READWRITE);
  return grant(f, 5, f->granule, &desc, 1);
}
static int grant_with_a_hole(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, VMP_CU_ACCESS_READWRITE);
  return grant(f, 2, 3 * f->granule, &desc, 1);
}
static int grant_without_descriptor(rules_rig *f) { return grant(f, 0, f->granule, NULL, 1); }
static int grant_to_none(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, VMP_CU_ACCESS_READWRITE);
  return grant(f, 0, f->granule, &desc, 0);
}
static int grant_no_bytes(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, VMP_CU_ACCESS_READWRITE);
  return grant(f, 0, 0, &desc, 1);
}
static int grant_writing_alone(rules_rig *f) {
  vmp_cu_access_desc desc = access_of(f, 2);
  return grant(f, 0, f->granule, &desc, 1);
}
static int grant_to_no_device(rules_rig *f) {
  vmp_cu_access_desc desc = {{VMP_CU_LOCATION_DEVICE, 4711}, VMP_CU_ACCESS_READWRITE};
  return grant(f, 0, f->granule, &desc, 1);
}

static int access_of_what_is_not_mapped(rules_rig *f) {
  unsigned long long flags;
  vmp_cu_location here = {VMP_CU_LOCATION_DEVICE, f->base.device.ordinal};
  return vmp_drv_mem_get_access(f->driver, &flags, &here, place(f, 5));
}
static int access_to_nowhere(rules_rig *f) {
  vmp_cu_location here = {VMP_CU_LOCATION_DEVICE, f->base.device.ordinal};
  return vmp_drv_mem_get_access(f->driver, NULL, &here, place(f, 0));
}
// 1000 + the flags, so that the number says both.
static int access_never_granted(rules_rig *f) {
  unsigned long long flags = 99;
  vmp_cu_location here = {VMP_CU_LOCATION_DEVICE, f->base.device.ordinal};
  int code = vmp_drv_mem_get_access(f->driver, &flags, &here, place(f, 1));
  return code == VMP_CU_SUCCESS ? 1000 + (int)flags : code;
}

static int retain(rules_rig *f, vmp_cu_ptr ptr) {
  vmp_cu_handle handle = 0;
  int code = vmp_drv_mem_retain_allocation_handle(f->driver, &handle, (void *)(uintptr_t)ptr);
  if (code == VMP_CU_SUCCESS) gpu_release(&f->base, handle);
  return code;
}
static int retain_what_is_not_mapped(rules_rig *f) { return retain(f, place(f, 5)); }
static int retain_null(rules_rig *f) { return retain(f, 0); }
static int properties_of_no_handle(rules_rig *f) {
  vmp_cu_mem_prop prop;
  return vmp_drv_mem_get_allocation_properties(f->driver, &prop, 0);
}
static int export_type_not_requested(rules_rig *f) {
  int fd = -1;
  return vmp_drv_mem_export(f->driver, &fd, f->spare, VMP_CU_HANDLE_POSIX_FD, 0);
}

static int stream_with_bad_flags(rules_rig *f) {
  vmp_cu_stream stream = NULL;
  int code = vmp_drv_stream_create(f->driver, &stream, 0x80);
  if (code == VMP_CU_SUCCESS) (void)vmp_drv_stream_destroy(f->driver, stream);
  return code;
}
// event makes an event, asks `question` of it, and destroys it.
static int event(rules_rig *f, unsigned flags, int (*question)(rules_rig *f, vmp_cu_event event)) {
  vmp_cu_event made = NULL;
  int code = vmp_drv_event_create(f->driver, &made, flags);
  if (code != VMP_CU_SUCCESS) return code;
  code = question != NULL ? question(f, made) : code;
  (void)vmp_drv_event_destroy(f->driver, made);
  return code;
}
static int query(rules_rig *f, vmp_cu_event made) { return vmp_drv_event_query(f->driver, made); }
static int elapsed(rules_rig *f, vmp_cu_event made) {
  float ms = 0;
  return vmp_drv_event_elapsed_time(f->driver, &ms, made, made);
}
static int event_with_bad_flags(rules_rig *f) { return event(f, 0x80, NULL); }
static int event_shared_with_timing(rules_rig *f) { return event(f, VMP_CU_EVENT_INTERPROCESS, NULL); }
static int query_before_record(rules_rig *f) { return event(f, VMP_CU_EVENT_DISABLE_TIMING, query); }
static int elapsed_before_record(rules_rig *f) { return event(f, VMP_CU_EVENT_DEFAULT, elapsed); }

static int copy_without_the_right(rules_rig *f) {
  unsigned char byte = 1;
  return vmp_drv_memcpy_htod(f->driver, place(f, 1), &byte, 1);
}
static int name_of_an_unknown_code(rules_rig *f) {
  const char *name = "untouched";
  int code = vmp_drv_get_error_name(f->driver, 123456, &name);
  return code == VMP_CU_INVALID_VALUE && name != NULL ? 1000 : code;
}

// ---- the table ----

// rule: `codes` begins with the strict one; the others a portable program must accept too.
typedef struct rule {
  int number;  // in table A
  const char *what;
  int (*probe)(rules_rig *f);
  int codes[ANY_OF];
} rule;

static const rule rules[] = {
    {2, "init: flags 1", init_with_flags, {1, END}},
    {3, "device: ordinal -1", device_minus_one, {101, END}},
    {3, "device: ordinal beyond the last", device_beyond_the_last, {101, END}},
    {4, "attribute: unknown", unknown_attribute, {1, END}},
    {4, "attribute: no such device", attribute_of_no_device, {101, END}},
    {5, "stream create without context", stream_without_context, {201, END}},
    {5, "event create without context", event_without_context, {201, END}},
    {5, "copy without context", copy_without_context, {201, END}},
    {5, "mem info without context", mem_info_without_context, {201, END}},
    {6, "pop of an empty stack", pop_of_an_empty_stack, {201, END}},
    {8, "granularity: unknown kind", granularity_of_unknown_kind, {1, END}},
    {8, "granularity: out null", granularity_to_nowhere, {1, END}},
    {10, "reserve: out null", reserve_to_nowhere, {1, END}},
    {10, "reserve: flags 1", reserve_with_flags, {1, END}},
    {11, "reserve: size 0", reserve_nothing, {1, 2, END}},
    {12, "reserve: granule + 1 bytes", reserve_odd_size, {1, 2, END}},
    {13, "reserve: alignment of 3 granules", reserve_odd_alignment, {1, 2, END}},
    {17, "address free: part of a reservation", free_a_part, {1, END}},
    {17, "address free: null", free_null, {1, END}},
    {17, "address free: size 0", free_no_bytes, {1, END}},
    {19, "create: out null", create_to_nowhere, {1, END}},
    {19, "create: size 0", create_nothing, {1, END}},
    {19, "create: granule + 1 bytes", create_odd_size, {1, END}},
    {19, "create: flags 1", create_with_flags, {1, END}},
    {19, "create: type invalid", create_of_no_type, {1, END}},
    {19, "create: location invalid", create_nowhere, {1, END}},
    {20, "create: no such device", create_on_no_device, {1, 101, END}},
    {25, "release: handle 0", release_zero, {1, END}},
    {27, "map: offset of one granule", map_at_an_offset, {1, 801, END}},
    {28, "map: size 0", map_nothing, {1, END}},
    {28, "map: address + 1", map_misaligned, {1, END}},
    {28, "map: granule - 1 bytes", map_odd_size, {1, END}},
    {28, "map: address null", map_at_null, {1, END}},
    {28, "map: flags 1", map_with_flags, {1, END}},
    {29, "map: half of a handle", map_a_prefix, {1, 0, END}},
    {29, "map: more than the handle", map_beyond_the_handle, {1, END}},
    {30, "map: over the reservation's end", map_over_the_edge, {1, END}},
    {31, "map: over a mapping", map_over_a_mapping, {1, 0, END}},
    {32, "map: handle 0", map_no_handle, {1, END}},
    {33, "unmap: half of a mapping", unmap_half_a_mapping, {1, END}},
    {33, "unmap: end inside a mapping", unmap_into_a_mapping, {1, END}},
    {33, "unmap: nothing mapped", unmap_what_is_not_mapped, {1, END}},
    {33, "unmap: with a hole", unmap_with_a_hole, {1, END}},
    {34, "unmap: null", unmap_null, {1, END}},
    {34, "unmap: size 0", unmap_nothing, {1, END}},
    {36, "set access: half of a mapping", grant_half_a_mapping, {1, END}},
    {36, "set access: nothing mapped", grant_what_is_not_mapped, {1, END}},
    {36, "set access: with a hole", grant_with_a_hole, {1, END}},
    {37, "set access: descriptors null", grant_without_descriptor, {1, END}},
    {37, "set access: count 0", grant_to_none, {1, END}},
    {37, "set access: size 0", grant_no_bytes, {1, END}},
    {37, "set access: flags 2", grant_writing_alone, {1, END}},
    {38, "set access: no such device", grant_to_no_device, {101, 1, END}},
    {42, "get access: nothing mapped", access_of_what_is_not_mapped, {1, END}},
    {42, "get access: out null", access_to_nowhere, {1, END}},
    {43, "get access: never granted (1000 + flags)", access_never_granted, {1000, END}},
    {44, "retain: nothing mapped", retain_what_is_not_mapped, {1, END}},
    {44, "retain: null", retain_null, {1, END}},
    {45, "properties: handle 0", properties_of_no_handle, {1, END}},
    {46, "export: type not requested", export_type_not_requested, {1, END}},
    {49, "stream create: flags 0x80", stream_with_bad_flags, {1, END}},
    {49, "event create: flags 0x80", event_with_bad_flags, {1, END}},
    {49, "event create: interprocess with timing", event_shared_with_timing, {1, END}},
    {52, "event query before record", query_before_record, {0, END}},
    {53, "elapsed time before record", elapsed_before_record, {400, END}},
    {55, "copy to memory without the right", copy_without_the_right, {1, END}},
    {61, "name of an unknown code (1000: not null)", name_of_an_unknown_code, {1, END}},
};

static bool is_among(const int *codes, int code) {
  for (int i = 0; i < ANY_OF && codes[i] != END; i++) {
    if (codes[i] == code) return true;
  }
  return false;
}

VTEST_F(DriverRules, TableA, rules_rig) {
  const char *strict_option = vtest_option("strict");
  const bool host = gpu_rig_is_host();
  const bool strict = host || (strict_option != NULL && strcmp(strict_option, "0") != 0);
  int differences = 0;
  for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++) {
    const rule *r = &rules[i];
    VTRACE("rule %d, %s", r->number, r->what);
    int got = r->probe(f);
    bool same = host ? got == r->codes[0] : is_among(r->codes, got);
    printf("rule %2d | %-42s | expected %4d | got %4d | %s\n", r->number, r->what, r->codes[0], got,
           got == r->codes[0] ? "same"
           : same             ? "accepted"
                              : "DIFFERENT");
    if (!same) differences++;
    if (!same && strict) VADD_FAILURE("expected %d, got %d", r->codes[0], got);
  }
  printf("%zu probes, %d differences\n", sizeof rules / sizeof rules[0], differences);
  // Nothing that was refused has changed anything.
  gpu_expect(&f->base, place(f, 0), f->granule, 1);
  gpu_expect(&f->base, place(f, 2), 2 * f->granule, 3);
}
