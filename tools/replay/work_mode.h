// work_mode.h: `--work late|early|seed:N|lag:N|none`: whether a replay queues touches, and when the host driver runs
// them.
#ifndef VMPOOL_TOOLS_REPLAY_WORK_MODE_H_
#define VMPOOL_TOOLS_REPLAY_WORK_MODE_H_

#include <stdbool.h>
#include <stdint.h>

#include "pool/vmpool_host.h"

typedef struct work_mode {
  bool none;                // queue nothing
  vmp_host_work_mode mode;  // late unless said otherwise
  uint64_t value;           // of seed:N and lag:N
} work_mode;

// work_mode_parse reads the option's text; false when it is none of the forms.
bool work_mode_parse(const char *text, work_mode *out);

#endif  // VMPOOL_TOOLS_REPLAY_WORK_MODE_H_
