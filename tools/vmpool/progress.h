// progress.h: one line on standard error that is drawn over, where standard error is a terminal and the work is long.
#ifndef VMPOOL_TOOLS_VMPOOL_PROGRESS_H_
#define VMPOOL_TOOLS_VMPOOL_PROGRESS_H_

#include <stdbool.h>
#include <stdint.h>

typedef struct progress {
  bool terminal;
  bool drawn;
  uint64_t start_ns, last_ns;
} progress;

// progress_start looks at standard error. Nothing is drawn in the first half second.
progress progress_start(void);

// progress_show draws "WHAT  42 %", at most five times a second; `context` is a progress.
void progress_show(void *context, const char *what, double share);

// progress_end wipes the line.
void progress_end(progress *p);

#endif  // VMPOOL_TOOLS_VMPOOL_PROGRESS_H_
