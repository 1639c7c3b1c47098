// child.c: see child.h.
#include "tools/probe/child.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// How long a killed process is waited for: one that hangs inside the kernel driver may never go.
#define KILL_WAIT_MS 5000

void *probe_shared_make(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? NULL : memory;
}

void probe_shared_free(void *memory, size_t bytes) {
  if (memory != NULL) munmap(memory, bytes);
}

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// Waits until nobody holds the pipe's other end, which only the child does. False: the limit came first.
static bool wait_for_hangup(int fd, int64_t limit_ms) {
  const int64_t end = now_ms() + limit_ms;
  for (;;) {
    const int64_t left = end - now_ms();
    struct pollfd query = {.fd = fd, .events = 0};
    const int ready = poll(&query, 1, left > 0 ? (int)left : 0);
    if (ready > 0) return true;
    if (ready == 0 && left <= 0) return false;
    if (ready < 0 && errno != EINTR) return true;
  }
}

static void child_main(void (*body)(void *context), void *context, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(1);  // it died before the line above
  body(context);
  _exit(0);
}

static probe_child_end collect(pid_t pid, int options) {
  int raw = 0;
  pid_t got;
  do {
    got = waitpid(pid, &raw, options);
  } while (got < 0 && errno == EINTR);
  if (got != pid) return (probe_child_end){PROBE_TOOK_LONG, 0};
  if (WIFSIGNALED(raw)) return (probe_child_end){PROBE_DIED, WTERMSIG(raw)};
  if (WEXITSTATUS(raw) != 0) return (probe_child_end){PROBE_DIED, -WEXITSTATUS(raw)};
  return (probe_child_end){PROBE_ENDED, 0};
}

probe_child_end probe_child_run(void (*body)(void *context), void *context, uint32_t limit_ms) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return (probe_child_end){PROBE_NOT_STARTED, errno};
  fflush(NULL);
  const pid_t parent = getpid(), pid = fork();
  if (pid == 0) {
    close(ends[0]);
    child_main(body, context, parent);
  }
  const int saved = errno;
  close(ends[1]);
  if (pid < 0) {
    close(ends[0]);
    return (probe_child_end){PROBE_NOT_STARTED, saved};
  }
  probe_child_end end = {PROBE_TOOK_LONG, 0};
  if (wait_for_hangup(ends[0], limit_ms)) {
    end = collect(pid, 0);
  } else {
    kill(pid, SIGKILL);
    if (wait_for_hangup(ends[0], KILL_WAIT_MS)) (void)collect(pid, 0);
  }
  close(ends[0]);
  return end;
}

const char *probe_child_text(probe_child_end end, uint32_t limit_ms, char *buffer, size_t size) {
  switch (end.ending) {
    case PROBE_ENDED: snprintf(buffer, size, "the process ended"); break;
    case PROBE_TOOK_LONG:
      snprintf(buffer, size, "there was no end after %u ms, and the process was killed", limit_ms);
      break;
    case PROBE_NOT_STARTED: snprintf(buffer, size, "no process could be made: %s", strerror(end.number)); break;
    case PROBE_DIED:
      if (end.number > 0) {
        snprintf(buffer, size, "the process died of signal %d (%s)", end.number, strsignal(end.number));
      } else {
        snprintf(buffer, size, "the process ended itself with status %d", -end.number);
      }
      break;
  }
  return buffer;
}
