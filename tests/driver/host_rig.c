// host_rig.c: see host_rig.h.
#include "tests/driver/host_rig.h"

#include <stdio.h>
#include <string.h>

void host_rig_open(host_rig *rig, const vmp_host_options *options) {
  VASSERT_OK(vmp_host_open(&rig->driver, options));
  VASSERT_CUDA(vmp_drv_init(rig->driver, 0));
  VASSERT_CUDA(vmp_drv_primary_ctx_retain(rig->driver, &rig->context, 0));
  VASSERT_CUDA(vmp_drv_ctx_set_current(rig->driver, rig->context));
}

void host_rig_setup(host_rig *rig) { host_rig_open(rig, NULL); }

void host_rig_teardown(host_rig *rig) {
  vmp_driver_close(rig->driver);
  rig->driver = NULL;
}

vmp_cu_mem_prop host_prop(int device) {
  vmp_cu_mem_prop prop;
  memset(&prop, 0, sizeof prop);
  prop.type = VMP_CU_ALLOCATION_PINNED;
  prop.location.type = VMP_CU_LOCATION_DEVICE;
  prop.location.id = device;
  return prop;
}

vmp_cu_access_desc host_grant(int device, int flags) {
  return (vmp_cu_access_desc){{VMP_CU_LOCATION_DEVICE, device}, flags};
}

vmp_cu_ptr host_reserve(host_rig *rig, size_t bytes) {
  vmp_cu_ptr ptr = 0;
  VEXPECT_CUDA(vmp_drv_mem_address_reserve(rig->driver, &ptr, bytes, 0, 0, 0));
  return ptr;
}

vmp_cu_handle host_create(host_rig *rig, int device, size_t bytes) {
  vmp_cu_handle handle = 0;
  vmp_cu_mem_prop prop = host_prop(device);
  VEXPECT_CUDA(vmp_drv_mem_create(rig->driver, &handle, bytes, &prop, 0));
  return handle;
}

vmp_cu_handle host_map(host_rig *rig, vmp_cu_ptr ptr, size_t bytes) {
  vmp_cu_handle handle = host_create(rig, 0, bytes);
  vmp_cu_access_desc grant = host_grant(0, VMP_CU_ACCESS_READWRITE);
  VEXPECT_CUDA(vmp_drv_mem_map(rig->driver, ptr, bytes, 0, handle, 0));
  VEXPECT_CUDA(vmp_drv_mem_set_access(rig->driver, ptr, bytes, &grant, 1));
  return handle;
}

vmp_cu_stream host_stream(host_rig *rig, unsigned flags) {
  vmp_cu_stream stream = NULL;
  VEXPECT_CUDA(vmp_drv_stream_create(rig->driver, &stream, flags));
  return stream;
}

vmp_cu_event host_event(host_rig *rig) {
  vmp_cu_event event = NULL;
  VEXPECT_CUDA(vmp_drv_event_create(rig->driver, &event, VMP_CU_EVENT_DISABLE_TIMING));
  return event;
}

vmp_host_counters host_counters(host_rig *rig) {
  vmp_host_counters counters;
  vmp_host_get_counters(rig->driver, &counters);
  return counters;
}

vmp_host_census host_census(host_rig *rig) {
  vmp_host_census census;
  vmp_host_get_census(rig->driver, &census);
  return census;
}

static host_state take_state(host_rig *rig) {
  host_state state;
  memset(&state, 0, sizeof state);
  vmp_host_get_census(rig->driver, &state.census);
  for (int i = 0; i < VMP_HOST_MAX_DEVICES; i++) {
    uint64_t total;
    vmp_host_device_memory(rig->driver, i, &state.free_bytes[i], &total);
  }
  vmp_host_counters counters = host_counters(rig);
  state.queued = counters.operations_queued;
  state.done = counters.operations_done;
  return state;
}

host_watch host_before(host_rig *rig) {
  vmp_host_counters counters = host_counters(rig);
  return (host_watch){take_state(rig), counters.violations, counters.lint};
}

const char *host_last_sentence(host_rig *rig) {
  static _Thread_local char sentence[512];
  sentence[0] = '\0';
  vmp_host_counters counters = host_counters(rig);
  uint64_t told = counters.violations + counters.lint;
  if (told > 0 && !vmp_host_violation(rig->driver, told - 1, sentence, sizeof sentence)) sentence[0] = '\0';
  return sentence;
}

void host_expect_consistent(host_rig *rig) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_host_check(rig->driver, &report);
  VEXPECT_NO_FAULTS(&faults);
}

bool vtest_expect_rule(vtest_site site, const char *text, host_rig *rig, const host_watch *watch, int rule, int code,
                       int expected) {
  vmp_host_counters counters = host_counters(rig);
  uint64_t broken = rule >= 0 ? 1 : 0;
  bool good = true;
  if (code != expected) {
    vtest_fail(site, "%s gave %d, expected %d by rule %d", text, code, expected, rule);
    good = false;
  }
  if (counters.violations - watch->violations != broken) {
    vtest_fail(site, "%s counted %llu violations, expected %llu", text,
               (unsigned long long)(counters.violations - watch->violations), (unsigned long long)broken);
    good = false;
  }
  char prefix[32];
  (void)snprintf(prefix, sizeof prefix, "rule %d, ", rule);
  if (good && broken != 0 && strncmp(host_last_sentence(rig), prefix, strlen(prefix)) != 0) {
    vtest_fail(site, "%s: the sentence is \"%s\", expected \"%s...\"", text, host_last_sentence(rig), prefix);
    good = false;
  }
  host_state state = take_state(rig);
  if (memcmp(&state, &watch->state, sizeof state) != 0) {
    vtest_fail(site, "%s failed and changed something", text);
    good = false;
  }
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  if (vmp_host_check(rig->driver, &report) != 0) {
    vtest_fail(site, "%s left the model broken: %s", text, faults.sentences[0]);
    good = false;
  }
  return good;
}
