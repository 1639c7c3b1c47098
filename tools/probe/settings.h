// settings.h: how much a probe measures, and how long the work lasts that it runs calls under.
#ifndef VMPOOL_TOOLS_PROBE_SETTINGS_H_
#define VMPOOL_TOOLS_PROBE_SETTINGS_H_

#include <stdint.h>

#include "tools/probe/rig.h"

#define PROBE_MAX_REPEAT 100000u

typedef struct probe_settings {
  uint32_t repeat;     // samples of each figure
  uint64_t budget_ns;  // wall time for one figure's samples; a few are taken however long they last
  uint64_t work_us,
      work_bytes;  // long-running work lasts at least that long if it can, and fills up to that much memory
  uint64_t reserve_limit_bytes;  // the largest reservation that is asked for
  probe_clock clock;
} probe_settings;

// The defaults. The host driver's queued work runs only when it is waited for, so a little is enough there.
#define PROBE_SETTINGS_CUDA                                                                              \
  {                                                                                                      \
    .repeat = 100, .budget_ns = UINT64_C(2000000000), .work_us = 50000, .work_bytes = UINT64_C(1) << 30, \
    .reserve_limit_bytes = UINT64_C(1) << 47                                                             \
  }
#define PROBE_SETTINGS_HOST                                                                          \
  {                                                                                                  \
    .repeat = 100, .budget_ns = UINT64_C(2000000000), .work_us = 0, .work_bytes = UINT64_C(1) << 22, \
    .reserve_limit_bytes = UINT64_C(1) << 47                                                         \
  }

#endif  // VMPOOL_TOOLS_PROBE_SETTINGS_H_
