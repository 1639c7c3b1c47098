// The address-space and memory calls against a naive model: random calls, right and wrong ones, over several devices.
// The model keeps one record per slot and decides every code anew; bytes prove that a mapping shows its handle.
#include <string.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"

enum { DEVICES = 2, RANGES = 3, SLOTS = 24, HANDLES = 16, UNIT = 4096 };

typedef struct model_handle {
  vmp_cu_handle value;
  unsigned slots;  // 0: never made, or dead
  unsigned refs, mappings;
  int device;
  unsigned char token;  // last byte written through any mapping
  bool written;
} model_handle;

typedef struct model_slot {
  int handle;      // -1: unmapped
  unsigned start;  // where its mapping begins
  unsigned char rights[DEVICES];
} model_slot;

typedef struct model_range {
  vmp_cu_ptr base;  // 0: not reserved
  model_slot slots[SLOTS];
} model_range;

typedef struct model {
  host_rig rig;
  vtest_rng rng;
  model_range ranges[RANGES];
  model_handle handles[HANDLES];
  uint32_t reuse;
} model;

static uint64_t used_by(const model *m, int device) {
  uint64_t used = 0;
  for (int i = 0; i < HANDLES; i++) {
    if (m->handles[i].slots != 0 && m->handles[i].device == device) used += m->handles[i].slots;
  }
  return used;
}

static void drop(const model *m, model_handle *handle) {
  if (handle->refs != 0 || handle->mappings != 0) return;
  handle->slots = 0;
  if (m->reuse != 0) handle->value = 0;  // somebody else may have it soon
}

// ---- one random call each; the model says what it must give ----

static void try_reserve(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  if (range->base != 0) return;
  VASSERT_CUDA(vmp_drv_mem_address_reserve(m->rig.driver, &range->base, SLOTS * UNIT, 0, 0, 0));
  for (int i = 0; i < SLOTS; i++) range->slots[i].handle = -1;
}

static void try_free(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  bool mapped = false;
  for (int i = 0; i < SLOTS; i++) mapped = mapped || (range->base != 0 && range->slots[i].handle >= 0);
  int expected = range->base == 0 || mapped ? VMP_CU_INVALID_VALUE : 0;
  VASSERT_INT_EQ(vmp_drv_mem_address_free(m->rig.driver, range->base, SLOTS * UNIT), expected);
  if (expected == 0) range->base = 0;
}

static void try_create(model *m) {
  model_handle *handle = &m->handles[vtest_rng_below(&m->rng, HANDLES)];
  if (handle->slots != 0) return;
  unsigned slots = (unsigned)vtest_rng_range(&m->rng, 1, 5);
  int device = (int)vtest_rng_below(&m->rng, DEVICES);
  int expected = used_by(m, device) + slots > 24 ? VMP_CU_OUT_OF_MEMORY : 0;
  vmp_cu_mem_prop prop = host_prop(device);
  VASSERT_INT_EQ(vmp_drv_mem_create(m->rig.driver, &handle->value, slots * UNIT, &prop, 0), expected);
  if (expected != 0) return;
  *handle = (model_handle){.value = handle->value, .slots = slots, .refs = 1, .device = device};
}

static void try_release(model *m) {
  model_handle *handle = &m->handles[vtest_rng_below(&m->rng, HANDLES)];
  int expected = handle->slots == 0 || handle->refs == 0 ? VMP_CU_INVALID_VALUE : 0;
  VASSERT_INT_EQ(vmp_drv_mem_release(m->rig.driver, handle->value), expected);
  if (expected != 0) return;
  handle->refs--;
  drop(m, handle);
}

static void try_map(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  int index = (int)vtest_rng_below(&m->rng, HANDLES);
  model_handle *handle = &m->handles[index];
  unsigned start = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  unsigned slots = handle->slots != 0 && vtest_rng_below(&m->rng, 8) != 0 ? handle->slots : 2;
  bool good = range->base != 0 && handle->slots == slots && handle->refs != 0 && start + slots <= SLOTS;
  for (unsigned i = start; good && i < start + slots; i++) good = range->slots[i].handle < 0;
  vmp_cu_ptr ptr = range->base + start * UNIT;
  if (range->base == 0) ptr = 0;
  VASSERT_INT_EQ(vmp_drv_mem_map(m->rig.driver, ptr, slots * UNIT, 0, handle->value, 0),
                 good ? 0 : VMP_CU_INVALID_VALUE);
  if (!good) return;
  for (unsigned i = start; i < start + slots; i++) range->slots[i] = (model_slot){.handle = index, .start = start};
  handle->mappings++;
}

// Whether [start, start + slots) is a run of whole mappings.
static bool is_run(const model *m, const model_range *range, unsigned start, unsigned slots) {
  if (range->base == 0 || start + slots > SLOTS) return false;
  for (unsigned i = start; i < start + slots;) {
    if (range->slots[i].handle < 0 || range->slots[i].start != i) return false;
    i += m->handles[range->slots[i].handle].slots;
    if (i > start + slots) return false;
  }
  return true;
}

// A random range, often a run of whole mappings.
static void choose_run(model *m, const model_range *range, unsigned *start, unsigned *slots) {
  *start = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  *slots = (unsigned)vtest_rng_range(&m->rng, 1, 8);
  if (range->base == 0 || vtest_rng_below(&m->rng, 4) == 0) return;
  while (*start + 1 < SLOTS && range->slots[*start].handle < 0) ++*start;
  if (range->slots[*start].handle < 0) return;
  *start = range->slots[*start].start;
  *slots = m->handles[range->slots[*start].handle].slots;
  unsigned next = *start + *slots;
  if (next < SLOTS && range->slots[next].handle >= 0 && vtest_rng_below(&m->rng, 2) == 0) {
    *slots += m->handles[range->slots[next].handle].slots;
  }
}

static void try_unmap(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned start;
  unsigned slots;
  choose_run(m, range, &start, &slots);
  bool good = is_run(m, range, start, slots);
  vmp_cu_ptr ptr = range->base == 0 ? 0 : range->base + start * UNIT;
  VASSERT_INT_EQ(vmp_drv_mem_unmap(m->rig.driver, ptr, slots * UNIT), good ? 0 : VMP_CU_INVALID_VALUE);
  for (unsigned i = start; good && i < start + slots;) {
    model_handle *handle = &m->handles[range->slots[i].handle];
    unsigned end = i + handle->slots;
    for (; i < end; i++) range->slots[i].handle = -1;
    handle->mappings--;
    drop(m, handle);
  }
}

static void try_set_access(model *m) {
  static const int flags[] = {VMP_CU_ACCESS_NONE, VMP_CU_ACCESS_READ, VMP_CU_ACCESS_READWRITE};
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned start;
  unsigned slots;
  choose_run(m, range, &start, &slots);
  vmp_cu_access_desc desc[2];
  size_t count = (size_t)vtest_rng_range(&m->rng, 1, 2);
  for (size_t i = 0; i < count; i++) {
    desc[i] = host_grant((int)vtest_rng_below(&m->rng, DEVICES), flags[vtest_rng_below(&m->rng, 3)]);
  }
  bool good = is_run(m, range, start, slots);
  vmp_cu_ptr ptr = range->base == 0 ? 0 : range->base + start * UNIT;
  VASSERT_INT_EQ(vmp_drv_mem_set_access(m->rig.driver, ptr, slots * UNIT, desc, count),
                 good ? 0 : VMP_CU_INVALID_VALUE);
  for (unsigned i = start; good && i < start + slots; i++) {
    for (size_t j = 0; j < count; j++) range->slots[i].rights[desc[j].location.id] = (unsigned char)desc[j].flags;
  }
}

static void try_get_access(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned slot = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, (int)vtest_rng_below(&m->rng, DEVICES)};
  bool good = range->base != 0 && range->slots[slot].handle >= 0;
  unsigned long long got = 77;
  vmp_cu_ptr ptr = range->base == 0 ? 0 : range->base + slot * UNIT + vtest_rng_below(&m->rng, UNIT);
  VASSERT_INT_EQ(vmp_drv_mem_get_access(m->rig.driver, &got, &location, ptr), good ? 0 : VMP_CU_INVALID_VALUE);
  VASSERT_UINT_EQ(got, good ? range->slots[slot].rights[location.id] : 77);
}

static void try_retain(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned slot = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  vmp_cu_ptr ptr = range->base == 0 ? 0 : range->base + slot * UNIT;
  bool good = range->base != 0 && range->slots[slot].handle >= 0;
  vmp_cu_handle value = 77;
  VASSERT_INT_EQ(vmp_drv_mem_retain_allocation_handle(m->rig.driver, &value, (void *)(uintptr_t)ptr),
                 good ? 0 : VMP_CU_INVALID_VALUE);
  VASSERT_UINT_EQ(value, good ? m->handles[range->slots[slot].handle].value : 77);
  if (good) m->handles[range->slots[slot].handle].refs++;
}

// A byte at the start of each handle tells which it is, through whatever mapping one looks.
static void try_bytes(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned slot = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  vmp_cu_ptr ptr = range->base == 0 ? 0 : range->base + slot * UNIT;
  bool good = range->base != 0 && range->slots[slot].handle >= 0;
  unsigned char byte = (unsigned char)vtest_rng_range(&m->rng, 1, 127);  // poison is 128 and more
  if (!good) {
    VASSERT_INT_EQ(vmp_host_peek(m->rig.driver, ptr, &byte, 1), VMP_CU_INVALID_VALUE);
    return;
  }
  model_handle *handle = &m->handles[range->slots[slot].handle];
  vmp_cu_ptr first = range->base + range->slots[slot].start * UNIT;
  unsigned char got = 0;
  VASSERT_CUDA(vmp_host_peek(m->rig.driver, first, &got, 1));
  if (handle->written) {
    VASSERT_UINT_EQ(got, handle->token);
  } else {
    VASSERT_UINT_GE(got, 128);
  }
  if (vtest_rng_below(&m->rng, 4) != 0) return;
  VASSERT_CUDA(vmp_host_poke(m->rig.driver, first, &byte, 1));
  handle->token = byte;
  handle->written = true;
}

static void try_touch(model *m) {
  model_range *range = &m->ranges[vtest_rng_below(&m->rng, RANGES)];
  unsigned start = (unsigned)vtest_rng_below(&m->rng, SLOTS);
  unsigned slots = (unsigned)vtest_rng_range(&m->rng, 1, 4);
  bool write = vtest_rng_below(&m->rng, 2) == 0;
  if (range->base == 0) return;
  if (start + slots > SLOTS) slots = SLOTS - start;  // what lies behind may be another range, mapped as well
  bool good = true;
  for (unsigned i = start; good && i < start + slots; i++) {
    good = range->slots[i].handle >= 0 && (range->slots[i].rights[0] & (write ? 2 : 1)) != 0;
  }
  uint64_t before = host_counters(&m->rig).bad_touches;
  VASSERT_CUDA(vmp_host_touch(m->rig.driver, 0, NULL, range->base + start * UNIT, slots * UNIT, write));
  VASSERT_CUDA(vmp_drv_stream_synchronize(m->rig.driver, NULL));
  VASSERT_UINT_EQ(host_counters(&m->rig).bad_touches - before, good ? 0 : 1);
}

static void compare_census(model *m) {
  vmp_host_census expected;
  memset(&expected, 0, sizeof expected);
  expected.contexts_retained = 1;
  for (int i = 0; i < HANDLES; i++) {
    expected.handles += m->handles[i].slots != 0;
    expected.mappings += m->handles[i].slots != 0 ? m->handles[i].mappings : 0;
    expected.physical_bytes += (uint64_t)m->handles[i].slots * UNIT;
    expected.mapped_bytes += (uint64_t)m->handles[i].slots * m->handles[i].mappings * UNIT;
  }
  for (int i = 0; i < RANGES; i++) expected.reservations += m->ranges[i].base != 0;
  expected.reserved_bytes = expected.reservations * SLOTS * UNIT;
  vmp_host_census census = host_census(&m->rig);
  VEXPECT_BYTES_EQ(&census, &expected, sizeof census);
  host_expect_consistent(&m->rig);
}

static void run_model(uint64_t seed, uint64_t ops, vmp_host_mode mode, uint32_t reuse) {
  static void (*const calls[])(model *) = {try_reserve, try_create, try_create,     try_release,    try_map,
                                           try_map,     try_unmap,  try_set_access, try_get_access, try_retain,
                                           try_bytes,   try_touch,  try_bytes};
  model m;
  memset(&m, 0, sizeof m);
  m.rng = vtest_rng_make(seed);
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = mode;
  m.reuse = reuse;
  options.immediate_reuse = reuse;
  options.num_devices = DEVICES;
  for (int i = 0; i < DEVICES; i++) {
    options.devices[i].granule_bytes = UNIT;
    options.devices[i].memory_bytes = 24 * UNIT;
  }
  host_rig_open(&m.rig, &options);
  vmp_host_tolerate_bad_touches(m.rig.driver, true);
  for (uint64_t i = 0; i < ops && !vtest_has_failure(); i++) {
    VTRACE("operation %llu", (unsigned long long)i);
    if (vtest_rng_below(&m.rng, 40) == 0) {
      try_free(&m);
    } else {
      calls[vtest_rng_below(&m.rng, sizeof calls / sizeof calls[0])](&m);
    }
    if (i < 2000 || i % 1024 == 0) compare_census(&m);
  }
  compare_census(&m);
  host_rig_teardown(&m.rig);
}

VTEST(HostModel, LedgerMode) { run_model(vtest_seed(1234), vtest_ops(1000000), VMP_HOST_LEDGER, 0); }
VTEST(HostModel, ExposedMode) { run_model(vtest_seed(4321), vtest_ops(200000), VMP_HOST_EXPOSED, 0); }
VTEST(HostModel, ImmediateReuse) { run_model(vtest_seed(99), vtest_ops(200000), VMP_HOST_LEDGER, 1); }
