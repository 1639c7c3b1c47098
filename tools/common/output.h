// output.h: a place to write to: standard output, or a file that appears only when it is complete.
//
// A regular file is written beside its final name and renamed at the end, so a failure leaves the old one as it was.
// What exists and is no regular file (a device, a pipe) is written in place and never replaced.
#ifndef VMPOOL_TOOLS_COMMON_OUTPUT_H_
#define VMPOOL_TOOLS_COMMON_OUTPUT_H_

#include <stdio.h>

#include "tools/common/error.h"

typedef struct output {
  FILE *file;
  const char *path;  // the caller's; "-" is standard output
  char *temporary;   // NULL where the file is written in place
} output;

// output_open begins; output_finish completes (flushes, closes, renames) and reports anything that went wrong since;
// output_discard gives up. After either of the last two the output is closed.
bool output_open(output *out, const char *path, tool_error *error);
bool output_finish(output *out, tool_error *error);
void output_discard(output *out);

#endif  // VMPOOL_TOOLS_COMMON_OUTPUT_H_
