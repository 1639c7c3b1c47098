#include "tools/advise/workers.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_JOBS 256u

typedef struct running {
  pid_t process;
  size_t task;
} running;

size_t workers_jobs(void) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  const int count = CPU_COUNT(&set);
  return count < 1 ? 1 : (size_t)count < MAX_JOBS ? (size_t)count : MAX_JOBS;
}

// The process of a task ends here.
static void run_task(const workers_plan *plan, size_t task, void *answer) {
  const bool good = plan->run(plan->context, task, answer);
  fflush(NULL);
  _exit(good ? 0 : 1);
}

static bool start(const workers_plan *plan, size_t task, unsigned char *answers, running *out) {
  fflush(NULL);
  const pid_t process = fork();
  if (process < 0) return false;
  if (process == 0) run_task(plan, task, answers + task * plan->answer_bytes);
  *out = (running){.process = process, .task = task};
  return true;
}

// Waits for one of the running tasks, and says which place is free again.
static size_t wait_for_one(running *all, size_t count, bool *out_good) {
  for (;;) {
    for (size_t i = 0; i < count; i++) {
      int status = 0;
      const pid_t ended = waitpid(all[i].process, &status, WNOHANG);
      if (ended == 0) continue;
      *out_good = ended == all[i].process && WIFEXITED(status) && WEXITSTATUS(status) == 0;
      return i;
    }
    siginfo_t ignored;
    (void)waitid(P_ALL, 0, &ignored, WEXITED | WNOWAIT);
  }
}

static bool run_all(const workers_plan *plan, unsigned char *answers, bool *out_answered, tool_error *error) {
  running all[MAX_JOBS];
  const size_t jobs = plan->jobs < 1 ? 1 : plan->jobs < MAX_JOBS ? plan->jobs : MAX_JOBS;
  size_t next = 0, count = 0, done = 0;
  bool started = true;
  while (count > 0 || (next < plan->tasks && started)) {
    while (count < jobs && next < plan->tasks && started) {
      started = start(plan, next, answers, &all[count]);
      if (started) {
        count++;
        next++;
      } else if (count > 0) {
        break;  // one that ends makes room
      }
    }
    if (count == 0) return tool_fail(error, "no process could be started: %s", strerror(errno));
    bool good = false;
    const size_t i = wait_for_one(all, count, &good);
    out_answered[all[i].task] = good;
    all[i] = all[--count];
    started = true;
    done++;
    if (plan->progress != NULL) plan->progress(plan->progress_context, plan->what, (double)done / (double)plan->tasks);
  }
  return true;
}

bool workers_run(const workers_plan *plan, void *answers, bool *out_answered, tool_error *error) {
  const size_t bytes = plan->tasks * plan->answer_bytes;
  memset(out_answered, 0, plan->tasks * sizeof(*out_answered));
  if (bytes == 0) return true;
  void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) return tool_fail(error, "host memory ran out");
  const bool good = run_all(plan, shared, out_answered, error);
  memcpy(answers, shared, bytes);
  munmap(shared, bytes);
  return good;
}
