#include "tests/tool/probe_support.h"

#include <string.h>

static uint64_t virtual_ns(void *context) {
  vmp_host_counters counters;
  vmp_host_get_counters(context, &counters);
  return (uint64_t)(counters.modelled_us * 1000.0 + 0.5);
}

probe_clock probe_host_clock(vmp_driver *driver) { return (probe_clock){virtual_ns, driver}; }

probe_settings probe_few(probe_clock clock) {
  probe_settings settings = PROBE_SETTINGS_HOST;
  settings.repeat = 5;
  settings.clock = clock;
  return settings;
}

void probe_on_host(probe_rig *rig, const vmp_host_options *options) {
  vmp_driver *driver = NULL;
  tool_error error = {{0}};
  memset(rig, 0, sizeof(*rig));
  VASSERT_OK(vmp_host_open(&driver, options));
  VASSERT_INT_EQ(vmp_drv_init(driver, 0), VMP_CU_SUCCESS);
  if (probe_rig_open(rig, driver, 0, probe_host_clock(driver), NULL, &error)) return;
  vmp_driver_close(driver);
  rig->driver = NULL;
  VFAIL("%s", error.text);
}

static void show(void *context, const char *sentence) {
  (void)context;
  VADD_FAILURE("%s", sentence);
}

void probe_off_host(probe_rig *rig) {
  if (rig->driver == NULL) return;
  vmp_report report = {.write = show};
  VEXPECT_UINT_EQ(probe_rig_close(rig), 0);
  VEXPECT_UINT_EQ(vmp_host_leaks(rig->driver, &report), 0);
  VEXPECT_UINT_EQ(vmp_host_check(rig->driver, &report), 0);
  vmp_driver_close(rig->driver);
}
