// host_cost.c: what each call costs on the virtual clock.
//
// Owns: the default table (figures of section B of the driver contract; the calls that it doesn't name get small
// round figures) and the reader of cost files. Nothing here is measured on this machine.
//
// A cost file has lines "name microseconds"; '#' begins a comment. Names are the table's names of calls
// ("mem_map") and these shares:
//     create_per_mib  set_access_per_mapping (and device)  unmap_per_mapping  address_free_per_gib (of the reservation)
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/host_model.h"

static const char *const call_names[] = {
#define X(name, ...) #name,
    VMP_DRIVER_CALLS(X) VMP_DRIVER_CALLS_0(X)
#undef X
};
_Static_assert(sizeof(call_names) / sizeof(call_names[0]) == VMP_CALL_COUNT, "one name for each call");

void vmp_host_cost_defaults(vmp_host_cost *cost) {
  memset(cost, 0, sizeof *cost);
  for (int i = 0; i < VMP_CALL_COUNT; i++) cost->fixed_ns[i] = 200;
  // Calls that look something up on the host only.
  cost->fixed_ns[VMP_CALL_get_error_name] = 0;
  cost->fixed_ns[VMP_CALL_get_error_string] = 0;
  cost->fixed_ns[VMP_CALL_driver_get_version] = 0;
  cost->fixed_ns[VMP_CALL_mem_get_info] = 6000;
  cost->fixed_ns[VMP_CALL_mem_address_reserve] = 10000;
  cost->fixed_ns[VMP_CALL_mem_address_free] = 1000;
  cost->fixed_ns[VMP_CALL_mem_create] = 30000;
  cost->fixed_ns[VMP_CALL_mem_map] = 1500;
  cost->fixed_ns[VMP_CALL_mem_set_access] = 5000;
  cost->fixed_ns[VMP_CALL_mem_unmap] = 0;
  cost->fixed_ns[VMP_CALL_mem_release] = 20000;
  cost->fixed_ns[VMP_CALL_mem_alloc] = 100000;
  cost->fixed_ns[VMP_CALL_mem_free] = 100000;
  cost->fixed_ns[VMP_CALL_mem_host_alloc] = 100000;
  cost->fixed_ns[VMP_CALL_mem_free_host] = 100000;
  cost->fixed_ns[VMP_CALL_stream_create] = 5000;
  cost->fixed_ns[VMP_CALL_stream_destroy] = 5000;
  cost->fixed_ns[VMP_CALL_event_create] = 1000;
  cost->fixed_ns[VMP_CALL_event_record] = 1000;
  cost->fixed_ns[VMP_CALL_stream_wait_event] = 1000;
  cost->fixed_ns[VMP_CALL_stream_synchronize] = 5000;
  cost->fixed_ns[VMP_CALL_event_synchronize] = 5000;
  cost->fixed_ns[VMP_CALL_ctx_synchronize] = 5000;
  cost->fixed_ns[VMP_CALL_launch_host_func] = 2000;
  cost->fixed_ns[VMP_CALL_memcpy_htod] = 10000;
  cost->fixed_ns[VMP_CALL_memcpy_dtoh] = 10000;
  cost->fixed_ns[VMP_CALL_memcpy_dtod] = 5000;
  cost->fixed_ns[VMP_CALL_memcpy_htod_async] = 3000;
  cost->fixed_ns[VMP_CALL_memcpy_dtoh_async] = 3000;
  cost->fixed_ns[VMP_CALL_memcpy_dtod_async] = 3000;
  cost->fixed_ns[VMP_CALL_memset_d8] = 3000;
  cost->fixed_ns[VMP_CALL_memset_d8_async] = 3000;
  cost->set_access_per_mapping_ns = 30000;
  cost->unmap_per_mapping_ns = 20000;
  cost->address_free_per_gib_ns = 500;
}

static uint64_t *find_entry(vmp_host_cost *cost, const char *name) {
  if (strcmp(name, "create_per_mib") == 0) return &cost->create_per_mib_ns;
  if (strcmp(name, "set_access_per_mapping") == 0) return &cost->set_access_per_mapping_ns;
  if (strcmp(name, "unmap_per_mapping") == 0) return &cost->unmap_per_mapping_ns;
  if (strcmp(name, "address_free_per_gib") == 0) return &cost->address_free_per_gib_ns;
  for (int i = 0; i < VMP_CALL_COUNT; i++) {
    if (strcmp(name, call_names[i]) == 0) return &cost->fixed_ns[i];
  }
  return NULL;
}

static bool parse_ns(const char *text, uint64_t *out_ns) {
  char *end;
  errno = 0;
  double us = strtod(text, &end);
  if (end == text || *end != '\0' || errno != 0 || !(us >= 0 && us <= 1e12)) return false;
  *out_ns = (uint64_t)(us * 1000.0 + 0.5);
  return true;
}

static vmp_status read_line(vmp_host_cost *cost, const char *path, unsigned number, char *line) {
  line[strcspn(line, "#\r\n")] = '\0';
  char *rest;
  const char *name = strtok_r(line, " \t", &rest);
  if (name == NULL) return VMP_OK;
  const char *value = strtok_r(NULL, " \t", &rest);
  if (value == NULL || strtok_r(NULL, " \t", &rest) != NULL) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s:%u: a line is a name and microseconds", path, number);
  }
  uint64_t *entry = find_entry(cost, name);
  if (entry == NULL) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s:%u: '%s' is no call and no share of one", path, number, name);
  }
  if (!parse_ns(value, entry)) {
    return vmp_fail(VMP_ERROR_CONFIG, "%s:%u: '%s' is not a number of microseconds from 0 to 1e12", path, number,
                    value);
  }
  return VMP_OK;
}

vmp_status vmp_host_cost_load(vmp_host_cost *cost, const char *path) {
  FILE *file = fopen(path, "re");
  if (file == NULL) return vmp_fail(VMP_ERROR_IO, "cost file %s can't be opened: %s", path, strerror(errno));
  char line[256];
  vmp_status status = VMP_OK;
  for (unsigned number = 1; status == VMP_OK && fgets(line, sizeof line, file) != NULL; number++) {
    if (strchr(line, '\n') == NULL && !feof(file)) {
      status = vmp_fail(VMP_ERROR_CONFIG, "%s:%u: the line is longer than 254 characters", path, number);
    } else {
      status = read_line(cost, path, number, line);
    }
  }
  if (status == VMP_OK && ferror(file)) status = vmp_fail(VMP_ERROR_IO, "cost file %s can't be read", path);
  (void)fclose(file);
  return status;
}
