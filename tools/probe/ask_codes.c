// ask_codes.c: questions 7 and 9 to 11: codes, granularities, out-parameters, descriptor 0.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/number.h"
#include "tools/probe/asking.h"

// ---- 7 ----

static int device_count(probe_rig *rig) {
  int count = 0;
  return PROBE_CALL(rig, device_get_count, &count) == VMP_CU_SUCCESS ? count : rig->device.ordinal + 1;
}

static int reserve_code(probe_rig *rig, uint64_t bytes, uint64_t alignment) {
  vmp_cu_ptr ptr = 0;
  return probe_reserve(rig, &ptr, bytes, alignment);
}

static int create_code(probe_rig *rig, int ordinal) {
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(ordinal, VMP_CU_HANDLE_NONE);
  vmp_cu_handle handle = 0;
  return probe_create(rig, &handle, rig->device.granule_bytes, &prop);
}

static int access_code(probe_rig *rig, vmp_cu_ptr ptr, int ordinal) {
  const vmp_cu_access_desc desc = {{VMP_CU_LOCATION_DEVICE, ordinal}, VMP_CU_ACCESS_READWRITE};
  return PROBE_CALL(rig, mem_set_access, ptr, rig->device.granule_bytes, &desc, 1);
}

// A device that can't reach the rig's memory; -1 where all can.
static int find_stranger(probe_rig *rig, int count) {
  for (int i = 0; i < count; i++) {
    vmp_cu_device other = 0;
    int can = 0;
    if (i == rig->device.ordinal || PROBE_CALL(rig, device_get, &other, i) != VMP_CU_SUCCESS) continue;
    if (PROBE_CALL(rig, device_can_access_peer, &can, other, rig->device.device) == VMP_CU_SUCCESS && can == 0)
      return i;
  }
  return -1;
}

void probe_ask_codes(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const uint64_t granule = rig->device.granule_bytes;
  const int count = device_count(rig), stranger = find_stranger(rig, count);
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, granule, 0))) return;
  if (!probe_worked(answer, rig, probe_chunk(rig, ptr, granule, &handle))) return;
  const int row_11 = reserve_code(rig, 0, 0);
  const int row_12 = reserve_code(rig, granule + 1, 0), row_12_half = reserve_code(rig, granule / 2, 0);
  const int row_13 = reserve_code(rig, granule, 3 * granule);
  const int row_20 = create_code(rig, count), row_20_negative = create_code(rig, -1);
  const int row_38 = access_code(rig, ptr, count);
  char row_39[32] = "no such pair here";
  if (stranger >= 0) snprintf(row_39, sizeof(row_39), "%d", access_code(rig, ptr, stranger));
  probe_conclude(answer, "11: %d; 12: %d, %d; 13: %d; 20: %d, %d; 38: %d; 39: %s", row_11, row_12, row_12_half, row_13,
                 row_20, row_20_negative, row_38, row_39);
  probe_say(answer, "reserved were: no bytes, a granule and a byte, half a granule, a granule aligned to three");
  probe_say(answer, "memory was asked for on devices %d and -1 of %d", count, count);
  probe_say(answer, "rights were given to device %d", count);
  if (stranger >= 0) probe_say(answer, "and to device %d, which can't reach device %d", stranger, rig->device.ordinal);
}

// ---- 9 ----

// Writes what a property's granularities are: "2 MiB", "64 KiB, recommended 2 MiB", or the code.
static void write_granularity(probe_rig *rig, const vmp_cu_mem_prop *prop, char *buffer, size_t size) {
  size_t least = 0, recommended = 0;
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  int code = PROBE_CALL(rig, mem_get_allocation_granularity, &least, prop, VMP_CU_GRANULARITY_MINIMUM);
  if (code == VMP_CU_SUCCESS) {
    code = PROBE_CALL(rig, mem_get_allocation_granularity, &recommended, prop, VMP_CU_GRANULARITY_RECOMMENDED);
  }
  if (code != VMP_CU_SUCCESS) {
    snprintf(buffer, size, "%s", probe_code(code).text);
  } else if (least == recommended) {
    snprintf(buffer, size, "%s", size_text(least, a));
  } else {
    snprintf(buffer, size, "%s, recommended %s", size_text(least, a), size_text(recommended, b));
  }
}

static int attribute(probe_rig *rig, int id, int otherwise) {
  int value = 0;
  return PROBE_CALL(rig, device_get_attribute, &value, id, rig->device.device) == VMP_CU_SUCCESS ? value : otherwise;
}

#define GRANULARITY_BYTES (2 * SIZE_TEXT_BYTES + 16)

void probe_ask_granularity(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  char plain[GRANULARITY_BYTES], host[GRANULARITY_BYTES], compressible[GRANULARITY_BYTES];
  char numa[GRANULARITY_BYTES] = "no node";
  const int node = attribute(rig, VMP_CU_ATTR_HOST_NUMA_ID, -1);
  vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_NONE);
  write_granularity(rig, &prop, plain, sizeof(plain));
  prop.alloc_flags.compression_type = 1;
  write_granularity(rig, &prop, compressible, sizeof(compressible));
  prop = vmp_device_mem_prop(0, VMP_CU_HANDLE_NONE);
  prop.location.type = VMP_CU_LOCATION_HOST;
  write_granularity(rig, &prop, host, sizeof(host));
  if (node >= 0) {  // -1 is no node, and must not be passed on as one
    prop.location = (vmp_cu_location){VMP_CU_LOCATION_HOST_NUMA, node};
    write_granularity(rig, &prop, numa, sizeof(numa));
  }
  probe_conclude(answer, "host: %s; NUMA: %s; compressible: %s", host, numa, compressible);
  probe_say(answer, "plain: %s", plain);
  probe_say(answer, "attributes: host VMM %d, host NUMA VMM %d, NUMA node %d, compression %d",
            attribute(rig, VMP_CU_ATTR_HOST_VMM, -1), attribute(rig, VMP_CU_ATTR_HOST_NUMA_VMM, -1), node,
            attribute(rig, VMP_CU_ATTR_GENERIC_COMPRESSION, -1));
}

// ---- 10 ----

// Each makes a call that can't succeed. What it gets all the same it gives back.
static int fail_reserve(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, mem_address_reserve, out, rig->device.granule_bytes, 0, 0, 1);
  if (code == VMP_CU_SUCCESS) (void)PROBE_CALL(rig, mem_address_free, *(vmp_cu_ptr *)out, rig->device.granule_bytes);
  return code;
}
static int create_into(probe_rig *rig, void *out, uint64_t bytes) {
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_NONE);
  const int code = PROBE_CALL(rig, mem_create, out, bytes, &prop, 0);
  if (code == VMP_CU_SUCCESS) probe_adopt(rig, *(vmp_cu_handle *)out);
  return code;
}
static int fail_create(probe_rig *rig, void *out) { return create_into(rig, out, rig->device.granule_bytes + 1); }
static int fail_create_too_much(probe_rig *rig, void *out) {
  const uint64_t granules = rig->device.total_bytes / rig->device.granule_bytes + 1;
  return create_into(rig, out, granules * rig->device.granule_bytes);
}
static int fail_granularity(probe_rig *rig, void *out) {
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_NONE);
  return PROBE_CALL(rig, mem_get_allocation_granularity, out, &prop, 77);
}
static int fail_get_access(probe_rig *rig, void *out) { return probe_rights(rig, rig->ranges[0].ptr, out); }
static int fail_retain(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, mem_retain_allocation_handle, out, (void *)(uintptr_t)rig->ranges[0].ptr);
  if (code == VMP_CU_SUCCESS) probe_adopt(rig, *(vmp_cu_handle *)out);
  return code;
}
static int fail_export(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, mem_export, out, rig->handles[0], VMP_CU_HANDLE_POSIX_FD, 0);
  if (code == VMP_CU_SUCCESS) close(*(int *)out);
  return code;
}
static int fail_import(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, mem_import, out, (void *)(uintptr_t)INT32_MAX, VMP_CU_HANDLE_POSIX_FD);
  if (code == VMP_CU_SUCCESS) probe_adopt(rig, *(vmp_cu_handle *)out);
  return code;
}
static int fail_stream(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, stream_create, out, 0x4000);
  if (code == VMP_CU_SUCCESS) (void)PROBE_CALL(rig, stream_destroy, *(vmp_cu_stream *)out);
  return code;
}
static int fail_event(probe_rig *rig, void *out) {
  const int code = PROBE_CALL(rig, event_create, out, 0x4000);
  if (code == VMP_CU_SUCCESS) (void)PROBE_CALL(rig, event_destroy, *(vmp_cu_event *)out);
  return code;
}
static int fail_device(probe_rig *rig, void *out) { return PROBE_CALL(rig, device_get, out, -1); }
static int fail_attribute(probe_rig *rig, void *out) {
  return PROBE_CALL(rig, device_get_attribute, out, 99999, rig->device.device);
}

static const struct {
  const char *what;
  int (*call)(probe_rig *rig, void *out);
} failing[] = {
    {"reserve", fail_reserve},
    {"create (odd size)", fail_create},
    {"create (too much)", fail_create_too_much},
    {"granularity", fail_granularity},
    {"get-access", fail_get_access},
    {"retain", fail_retain},
    {"export", fail_export},
    {"import", fail_import},
    {"stream-create", fail_stream},
    {"event-create", fail_event},
    {"device-get", fail_device},
    {"attribute", fail_attribute},
};

void probe_ask_out_params(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handle = 0;
  if (!probe_worked(answer, rig, probe_reserve(rig, &ptr, rig->device.granule_bytes, 0))) return;
  if (!probe_worked(answer, rig, probe_create_plain(rig, &handle, rig->device.granule_bytes))) return;
  char overwritten[160] = "";
  unsigned failed = 0;
  for (size_t i = 0; i < sizeof(failing) / sizeof(failing[0]); i++) {
    uint64_t out, before;  // no out-parameter is larger
    memset(&out, 0xA5, sizeof(out));
    before = out;
    const int code = failing[i].call(rig, &out);
    if (code == VMP_CU_SUCCESS) {
      probe_say(answer, "%s did not fail", failing[i].what);
      continue;
    }
    failed++;
    const bool kept = out == before;
    probe_say(answer, "%s %d%s", failing[i].what, code, kept ? "" : " (overwritten)");
    const size_t used = strlen(overwritten);
    if (!kept) {
      snprintf(overwritten + used, sizeof(overwritten) - used, "%s%s", used > 0 ? ", " : "", failing[i].what);
    }
  }
  if (overwritten[0] == '\0') {
    probe_conclude(answer, "left as they were by all %u", failed);
  } else {
    probe_conclude(answer, "overwritten by %s", overwritten);
  }
}

// ---- 11 ----

// Puts a copy of `fd` at descriptor 0, imports it as number 0, and puts back what was there.
static int import_as_0(probe_rig *rig, int fd) {
  vmp_cu_handle handle = 0;
  const int kept = fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);  // -1: nothing was open there
  if (dup2(fd, STDIN_FILENO) < 0) {
    if (kept >= 0) close(kept);
    return VMP_CU_UNKNOWN;
  }
  const int code = PROBE_CALL(rig, mem_import, &handle, NULL, VMP_CU_HANDLE_POSIX_FD);
  if (code == VMP_CU_SUCCESS) probe_adopt(rig, handle);
  if (kept >= 0) {
    dup2(kept, STDIN_FILENO);
    close(kept);
  } else {
    close(STDIN_FILENO);
  }
  return code;
}

// Exports to a descriptor other than 0; -1 and a code where that fails.
static int export_fd(probe_rig *rig, vmp_cu_handle handle, int *out_code) {
  int fd = -1;
  *out_code = PROBE_CALL(rig, mem_export, &fd, handle, VMP_CU_HANDLE_POSIX_FD, 0);
  if (*out_code != VMP_CU_SUCCESS) return -1;
  if (fd != STDIN_FILENO) return fd;
  const int moved = fcntl(fd, F_DUPFD_CLOEXEC, 3);
  close(fd);
  if (moved < 0) *out_code = VMP_CU_UNKNOWN;
  return moved;
}

void probe_ask_fd_0(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  (void)settings;
  const vmp_cu_mem_prop prop = vmp_device_mem_prop(rig->device.ordinal, VMP_CU_HANDLE_POSIX_FD);
  vmp_cu_handle handle = 0, imported = 0;
  if (attribute(rig, VMP_CU_ATTR_HANDLE_POSIX_FD, 0) == 0) {
    probe_not_here(answer, "this device has no handles with file descriptors");
    return;
  }
  int code = probe_create(rig, &handle, rig->device.granule_bytes, &prop);
  if (!probe_worked(answer, rig, code)) return;
  const int fd = export_fd(rig, handle, &code);
  if (!probe_worked(answer, rig, code)) return;
  const int as_0 = import_as_0(rig, fd);
  const int as_itself = PROBE_CALL(rig, mem_import, &imported, (void *)(uintptr_t)fd, VMP_CU_HANDLE_POSIX_FD);
  if (as_itself == VMP_CU_SUCCESS) probe_adopt(rig, imported);
  close(fd);
  if (as_0 == VMP_CU_SUCCESS) {
    probe_conclude(answer, "works");
  } else {
    probe_conclude(answer, "refused with %s", probe_code(as_0).text);
  }
  probe_say(answer, "the same descriptor under its own number %d: %s", fd, probe_code(as_itself).text);
}
