// error.h: why a part of the tool could not do what it was asked, as one sentence for the person at the keyboard.
//
// Owns: the sentence. Does not own: printing it, the exit status (tools/vmpool).
#ifndef VMPOOL_TOOLS_COMMON_ERROR_H_
#define VMPOOL_TOOLS_COMMON_ERROR_H_

#include <stdbool.h>
#include <stddef.h>

#include "vmm/status.h"

// tool_error: one sentence without a full stop and without a line break; empty before any failure.
typedef struct tool_error {
  char text[640];
} tool_error;

// tool_fail sets the sentence (cut where it does not fit; control characters become '?') and returns false, so that
// a failure is one statement. `error` may be NULL.
bool tool_fail(tool_error *error, const char *format, ...) VMP_PRINTF(2, 3);

// tool_fail_status does the same for a vmpool call that failed: "WHAT: the call's message (STATUS)".
bool tool_fail_status(tool_error *error, vmp_status status, const char *what);

#endif  // VMPOOL_TOOLS_COMMON_ERROR_H_
