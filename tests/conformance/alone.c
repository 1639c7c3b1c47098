// alone.c: a question in a process of its own, for what would poison the asking one: sticky errors, forks, crashes.
//
//     this process                                    its child
//     pipe, child  ------------------------------->   opens its own driver, asks, writes the answer, ends at once
//     reads the answer, or end of file (crashed),
//     or loses patience and kills it (silent)
//
// On CUDA the child is the same program anew, with --probe=INDEX: a forked child of a process that has used CUDA may
// not use it. On the host driver a fork will do, and is much faster.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/conformance/conform.h"

#define ANSWER_FD 9
#define MAX_ENVIRONMENT 512u

extern char **environ;

// ---- the child ----

static bool failed_before;  // the parent had, when it forked

bool conform_is_child(void) { return vtest_option("probe") != NULL; }

_Noreturn void conform_tell(int code, const char *why) {
  conform_answer answer = {.code = vtest_has_failure() && !failed_before ? CONFORM_FAILED : code};
  (void)snprintf(answer.why, sizeof answer.why, "%s", why != NULL ? why : "");
  (void)!write(ANSWER_FD, &answer, sizeof answer);  // where nobody reads, nobody waits
  _exit(0);
}

static _Noreturn void answer_as_child(size_t index, vmp_host_level level) {
  if (index >= conform_num_probes) conform_tell(CONFORM_FAILED, "no such probe");
  const conform_probe *probe = &conform_probes[index];
  conform c = {.host = gpu_rig_is_host(), .level = level};
  if (probe->where == CONFORM_ALONE) {
    conform_open(&c, c.level);
    if (c.driver == NULL) conform_tell(CONFORM_FAILED, "the rig can't be built");
  }
  int code = probe->ask(&c);
  conform_tell(code, c.why);
}

void conform_be_child(void) { answer_as_child((size_t)strtoul(vtest_option("probe"), NULL, 10), VMP_HOST_STRICT); }

// ---- the parent ----

// What makes GoogleTest share out, or report, its tests is not the child's business.
static bool is_for_parent_alone(const char *entry) {
  return strncmp(entry, "GTEST_", 6) == 0 || strncmp(entry, "TEST_", 5) == 0 || strncmp(entry, "XML_", 4) == 0;
}

static int fork_child(const conform *c, size_t index, int fd, pid_t *out_pid) {
  (void)fflush(stdout);
  *out_pid = fork();
  if (*out_pid < 0) return errno;
  if (*out_pid == 0) {
    failed_before = vtest_has_failure();
    if (dup2(fd, ANSWER_FD) != ANSWER_FD) _exit(1);
    answer_as_child(index, c->level);
  }
  return 0;
}

static int spawn_child(const conform *c, size_t index, int fd, pid_t *out_pid) {
  char path[4096], probe[32], library[4096], device[32];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  if (length < 0) return errno;
  path[length] = '\0';
  (void)snprintf(probe, sizeof probe, "--probe=%zu", index);
  (void)snprintf(device, sizeof device, "--device=%d", c->base.device.ordinal);
  char *argv[8] = {path, "--gtest_filter=Conformance.TableA/strict", "--gtest_brief=1", "--driver=cuda", probe, device};
  if (vtest_option("library") != NULL) {
    (void)snprintf(library, sizeof library, "--library=%s", vtest_option("library"));
    argv[6] = library;
  }
  char *environment[MAX_ENVIRONMENT];
  size_t count = 0;
  for (char **entry = environ; *entry != NULL && count < MAX_ENVIRONMENT - 1; entry++) {
    if (!is_for_parent_alone(*entry)) environment[count++] = *entry;
  }
  environment[count] = NULL;
  posix_spawn_file_actions_t actions;
  int error = posix_spawn_file_actions_init(&actions);
  if (error != 0) return error;
  error = posix_spawn_file_actions_adddup2(&actions, fd, ANSWER_FD);
  if (error == 0) error = posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  if (error == 0) error = posix_spawn(out_pid, path, &actions, NULL, argv, environment);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

static long now_ms(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (long)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

// Reads a whole answer: 0, or CONFORM_CRASHED (the pipe was closed first), CONFORM_SILENT.
static int read_answer(int fd, conform_answer *answer) {
  long until = now_ms() + CONFORM_PATIENCE_MS;
  size_t have = 0;
  while (have < sizeof *answer) {
    long left = until - now_ms();
    struct pollfd query = {.fd = fd, .events = POLLIN};
    int ready = left > 0 ? poll(&query, 1, (int)left) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) return CONFORM_SILENT;
    ssize_t got = read(fd, (char *)answer + have, sizeof *answer - have);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return CONFORM_CRASHED;
    have += (size_t)got;
  }
  return 0;
}

static void reap(pid_t pid, bool must_kill, conform_answer *answer) {
  int status = 0;
  if (must_kill) (void)kill(pid, SIGKILL);
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (answer->code != CONFORM_CRASHED) return;
  if (WIFSIGNALED(status)) {
    (void)snprintf(answer->why, sizeof answer->why, "signal %d", WTERMSIG(status));
  } else {
    (void)snprintf(answer->why, sizeof answer->why, "exit status %d without an answer", WEXITSTATUS(status));
  }
}

conform_answer conform_ask_alone(const conform *c, size_t index) {
  conform_answer answer = {.code = CONFORM_FAILED};
  int ends[2];
  pid_t pid = 0;
  if (pipe2(ends, O_CLOEXEC) != 0) return answer;
  int error = c->host ? fork_child(c, index, ends[1], &pid) : spawn_child(c, index, ends[1], &pid);
  (void)close(ends[1]);
  if (error != 0) {
    (void)snprintf(answer.why, sizeof answer.why, "no child: %s", strerror(error));
  } else {
    int got = read_answer(ends[0], &answer);
    if (got != 0) answer = (conform_answer){.code = got};
    reap(pid, got == CONFORM_SILENT, &answer);
  }
  (void)close(ends[0]);
  return answer;
}
