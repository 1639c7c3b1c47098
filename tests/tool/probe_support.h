// probe_support.h: a host driver with a probe's rig on it, for tests of the probe.
#ifndef VMPOOL_TESTS_TOOL_PROBE_SUPPORT_H_
#define VMPOOL_TESTS_TOOL_PROBE_SUPPORT_H_

#include "tests/support/vtest.h"
#include "tools/probe/settings.h"
#include "vmm/driver_host.h"

// probe_host_clock: the virtual clock of a host driver, as a probe's clock. The driver must outlive it.
probe_clock probe_host_clock(vmp_driver *driver);

// probe_few: the host driver's settings with few repetitions.
probe_settings probe_few(probe_clock clock);

// probe_on_host opens and initialises a host driver (options NULL: defaults) and a rig on its device 0 that reads the
// virtual clock.
void probe_on_host(probe_rig *rig, const vmp_host_options *options);

// probe_off_host closes both, and fails the test for anything that is left on the driver or wrong in its model.
void probe_off_host(probe_rig *rig);

#endif  // VMPOOL_TESTS_TOOL_PROBE_SUPPORT_H_
