// rig.c: see rig.h.
#include "tools/probe/rig.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

// ---- time ----

static uint64_t now_ns(const probe_clock *clock) {
  if (clock->now_ns != NULL) return clock->now_ns(clock->context);
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The least of many, so that an interruption doesn't count.
static uint64_t clock_cost_ns(const probe_clock *clock) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 100; i++) {
    const uint64_t start = now_ns(clock), spent = now_ns(clock) - start;
    if (spent < least) least = spent;
  }
  return least;
}

uint64_t probe_now_ns(const probe_rig *rig) { return now_ns(&rig->clock); }

void probe_calling(probe_rig *rig, vmp_call call) {
  rig->call = call;
  if (rig->watch != NULL) *rig->watch = (int)call;
  rig->began_ns = now_ns(&rig->clock);
}

int probe_called(probe_rig *rig, int code) {
  const uint64_t spent = now_ns(&rig->clock) - rig->began_ns;
  if (vmp_is_sticky(code)) rig->lost = true;
  rig->spent_ns = spent > rig->clock_cost_ns ? spent - rig->clock_cost_ns : 0;
  return code;
}

// ---- opening and closing ----

bool probe_rig_open(probe_rig *rig, vmp_driver *driver, int ordinal, probe_clock clock, int *watch, tool_error *error) {
  memset(rig, 0, sizeof(*rig));
  rig->driver = driver;
  rig->clock = clock;
  rig->watch = watch;
  rig->clock_cost_ns = clock_cost_ns(&clock);
  vmp_status status = vmp_device_require_vmm(driver, ordinal, &rig->device);
  if (status < 0) return tool_fail_status(error, status, "the device can't be used");
  status = vmp_context_retain(driver, rig->device.device, &rig->context);
  if (status < 0) return tool_fail_status(error, status, "the device's context can't be had");
  status = vmp_context_enter(driver, rig->context, &rig->saved);
  if (status >= 0) return true;
  tool_fail_status(error, status, "the device's context can't be made current");
  if (vmp_context_release(driver, rig->device.device) < 0) (void)vmp_context_release(driver, rig->device.device);
  return false;
}

static vmp_status leave(probe_rig *rig) { return vmp_context_leave(rig->driver, &rig->saved); }
static vmp_status release_context(probe_rig *rig) { return vmp_context_release(rig->driver, rig->device.device); }

size_t probe_rig_close(probe_rig *rig) {
  size_t left = probe_clear(rig);
  if (leave(rig) < 0 && leave(rig) < 0) left++;
  if (release_context(rig) < 0 && release_context(rig) < 0) left++;
  return rig->lost ? 0 : left;
}

// ---- records ----

static void add_range(probe_range *ranges, size_t *count, vmp_cu_ptr ptr, uint64_t bytes) {
  ranges[(*count)++] = (probe_range){.ptr = ptr, .bytes = bytes};
}

int probe_reserve(probe_rig *rig, vmp_cu_ptr *out_ptr, uint64_t bytes, uint64_t alignment) {
  if (rig->num_ranges == PROBE_MAX_FEW) return VMP_CU_OUT_OF_MEMORY;
  vmp_cu_ptr ptr = 0;
  const int code = PROBE_CALL(rig, mem_address_reserve, &ptr, bytes, alignment, 0, 0);
  if (code != VMP_CU_SUCCESS) return code;
  add_range(rig->ranges, &rig->num_ranges, ptr, bytes);
  *out_ptr = ptr;
  return code;
}

int probe_free(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  const int code = PROBE_CALL(rig, mem_address_free, ptr, bytes);
  if (code != VMP_CU_SUCCESS) return code;
  for (size_t i = 0; i < rig->num_ranges; i++) {
    if (rig->ranges[i].ptr != ptr) continue;
    rig->ranges[i] = rig->ranges[--rig->num_ranges];
    break;
  }
  return code;
}

void probe_adopt(probe_rig *rig, vmp_cu_handle handle) {
  if (rig->num_handles < PROBE_MAX_CHUNKS) rig->handles[rig->num_handles++] = handle;
}

int probe_create(probe_rig *rig, vmp_cu_handle *out_handle, uint64_t bytes, const vmp_cu_mem_prop *prop) {
  if (rig->num_handles == PROBE_MAX_CHUNKS) return VMP_CU_OUT_OF_MEMORY;
  vmp_cu_handle handle = 0;
  const int code = PROBE_CALL(rig, mem_create, &handle, bytes, prop, 0);
  if (code != VMP_CU_SUCCESS) return code;
  probe_adopt(rig, handle);
  *out_handle = handle;
  return code;
}

int probe_create_plain(probe_rig *rig, vmp_cu_handle *out_handle, uint64_t bytes) {
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_NONE);
  return probe_create(rig, out_handle, bytes, &prop);
}

int probe_release(probe_rig *rig, vmp_cu_handle handle) {
  const int code = PROBE_CALL(rig, mem_release, handle);
  if (code != VMP_CU_SUCCESS) return code;
  for (size_t i = 0; i < rig->num_handles; i++) {
    if (rig->handles[i] != handle) continue;
    rig->handles[i] = rig->handles[--rig->num_handles];
    break;
  }
  return code;
}

int probe_map(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, uint64_t offset, vmp_cu_handle handle) {
  if (rig->num_mappings == PROBE_MAX_CHUNKS) return VMP_CU_OUT_OF_MEMORY;
  const int code = PROBE_CALL(rig, mem_map, ptr, bytes, offset, handle, 0);
  if (code == VMP_CU_SUCCESS) add_range(rig->mappings, &rig->num_mappings, ptr, bytes);
  return code;
}

static bool starts_in(const probe_range *mapping, vmp_cu_ptr ptr, uint64_t bytes) {
  return mapping->ptr >= ptr && mapping->ptr - ptr < bytes;
}

void probe_doubt(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  for (size_t i = 0; i < rig->num_mappings; i++) {
    if (starts_in(&rig->mappings[i], ptr, bytes)) rig->mappings[i].doubtful = true;
  }
}

static void forget(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  for (size_t i = 0; i < rig->num_mappings;) {
    if (starts_in(&rig->mappings[i], ptr, bytes)) {
      rig->mappings[i] = rig->mappings[--rig->num_mappings];
    } else {
      i++;
    }
  }
}

int probe_unmap(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes) {
  const int code = PROBE_CALL(rig, mem_unmap, ptr, bytes);
  if (code == VMP_CU_SUCCESS) forget(rig, ptr, bytes);
  return code;
}

int probe_grant(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, int flags) {
  const vmp_cu_access_desc desc = {{VMP_CU_LOCATION_DEVICE, rig->device.ordinal}, flags};
  return PROBE_CALL(rig, mem_set_access, ptr, bytes, &desc, 1);
}

int probe_chunk(probe_rig *rig, vmp_cu_ptr ptr, uint64_t bytes, vmp_cu_handle *out_handle) {
  int code = probe_create_plain(rig, out_handle, bytes);
  if (code == VMP_CU_SUCCESS) code = probe_map(rig, ptr, bytes, 0, *out_handle);
  if (code == VMP_CU_SUCCESS) code = probe_grant(rig, ptr, bytes, VMP_CU_ACCESS_READWRITE);
  return code;
}

int probe_make_stream(probe_rig *rig, vmp_cu_stream *out_stream) {
  if (rig->num_streams == PROBE_MAX_FEW) return VMP_CU_OUT_OF_MEMORY;
  vmp_cu_stream stream = NULL;
  const int code = PROBE_CALL(rig, stream_create, &stream, VMP_CU_STREAM_NON_BLOCKING);
  if (code != VMP_CU_SUCCESS) return code;
  rig->streams[rig->num_streams++] = stream;
  *out_stream = stream;
  return code;
}

int probe_make_event(probe_rig *rig, vmp_cu_event *out_event) {
  if (rig->num_events == PROBE_MAX_FEW) return VMP_CU_OUT_OF_MEMORY;
  vmp_cu_event event = NULL;
  const int code = PROBE_CALL(rig, event_create, &event, VMP_CU_EVENT_DISABLE_TIMING);
  if (code != VMP_CU_SUCCESS) return code;
  rig->events[rig->num_events++] = event;
  *out_event = event;
  return code;
}

// ---- giving back ----

// GIVE_BACK ends all of one kind, each tried twice. What stays moves to the front.
#define GIVE_BACK(rig, array, count, call)                        \
  do {                                                            \
    size_t kept = 0;                                              \
    for (size_t i = 0; i < (rig)->count; i++) {                   \
      if ((call) != VMP_CU_SUCCESS && (call) != VMP_CU_SUCCESS) { \
        (rig)->array[kept++] = (rig)->array[i];                   \
      }                                                           \
    }                                                             \
    (rig)->count = kept;                                          \
    left += kept;                                                 \
  } while (0)

size_t probe_clear(probe_rig *rig) {
  size_t left = 0;
  if (rig->num_streams != 0) {  // what is still queued may touch the mappings
    probe_calling(rig, VMP_CALL_ctx_synchronize);
    if (vmp_drv_ctx_synchronize(rig->driver) != VMP_CU_SUCCESS) (void)vmp_drv_ctx_synchronize(rig->driver);
  }
  GIVE_BACK(rig, mappings, num_mappings, PROBE_CALL(rig, mem_unmap, rig->mappings[i].ptr, rig->mappings[i].bytes));
  for (size_t i = 0; i < rig->num_mappings; i++) left -= rig->mappings[i].doubtful ? 1 : 0;
  GIVE_BACK(rig, handles, num_handles, PROBE_CALL(rig, mem_release, rig->handles[i]));
  GIVE_BACK(rig, ranges, num_ranges, PROBE_CALL(rig, mem_address_free, rig->ranges[i].ptr, rig->ranges[i].bytes));
  GIVE_BACK(rig, events, num_events, PROBE_CALL(rig, event_destroy, rig->events[i]));
  GIVE_BACK(rig, streams, num_streams, PROBE_CALL(rig, stream_destroy, rig->streams[i]));
  return rig->lost ? 0 : left;
}

// ---- words ----

static const char *short_name(int code) {
  switch (code) {
#define X(name, value) \
  case value: return #name;
    VMP_CU_ERROR_CODES(X)
#undef X
    default: return NULL;
  }
}

probe_code_text probe_code(int code) {
  probe_code_text out;
  const char *name = short_name(code);
  snprintf(out.text, sizeof(out.text), "%d%s%s", code, name != NULL ? " " : "", name != NULL ? name : "");
  return out;
}

const char *probe_why(const probe_rig *rig, int code, char buffer[PROBE_WHY_BYTES]) {
  snprintf(buffer, PROBE_WHY_BYTES, "%s gave %s", vmp_call_symbol(rig->call), probe_code(code).text);
  return buffer;
}
