// workers.h: tasks in processes of their own, several at a time.
//
// Owns: starting, waiting, collecting. A task writes its answer into memory that is shared with it alone; one that
// crashes, or is killed for want of memory, leaves no answer and takes nothing else with it.
#ifndef VMPOOL_TOOLS_ADVISE_WORKERS_H_
#define VMPOOL_TOOLS_ADVISE_WORKERS_H_

#include <stdbool.h>
#include <stddef.h>

#include "tools/common/error.h"

typedef struct workers_plan {
  size_t tasks, jobs;   // jobs: at most so many at a time
  size_t answer_bytes;  // of one task
  // Called in the task's process; the answer is zeroed before. True: the answer holds.
  bool (*run)(void *context, size_t task, void *answer);
  void *context;
  void (*progress)(void *context, const char *what, double share);  // NULL: none
  void *progress_context;
  const char *what;
} workers_plan;

// workers_run runs every task and copies the answers to `answers`, tasks * answer_bytes; out_answered[i] says whether
// task i gave one. False when no process can be started. The calling process has one thread.
bool workers_run(const workers_plan *plan, void *answers, bool *out_answered, tool_error *error);

// workers_jobs: as many as the machine has processors for this process.
size_t workers_jobs(void);

#endif  // VMPOOL_TOOLS_ADVISE_WORKERS_H_
