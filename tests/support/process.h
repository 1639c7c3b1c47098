// process.h: runs a program and keeps what it prints, for tests of command-line tools.
#ifndef VMPOOL_TESTS_SUPPORT_PROCESS_H_
#define VMPOOL_TESTS_SUPPORT_PROCESS_H_

#include <stddef.h>

// vtest_process: a program that has ended. Strings end with '\0', which the byte counts leave out.
typedef struct vtest_process {
  int status;  // exit status, or 128 + signal number
  char *out;   // all of standard output
  size_t out_bytes;
  char *err;  // all of standard error
  size_t err_bytes;
} vtest_process;

// vtest_process_run runs argv[0] (a path, or a name looked up in PATH) with the NULL-terminated argv, `input` (may be
// NULL) on standard input, and waits for it. The environment is the caller's. Returns 0, or -1 with errno where it
// could not be started. After either, vtest_process_free frees the strings. Thread-safe.
int vtest_process_run(vtest_process *process, const char *const *argv, const char *input);
void vtest_process_free(vtest_process *process);

#endif  // VMPOOL_TESTS_SUPPORT_PROCESS_H_
