// process_test.c: the process helper keeps statuses and both outputs apart.
#include "tests/support/process.h"

#include <errno.h>

#include "tests/support/vtest.h"

VTEST(Process, KeepsStatusAndBothOutputs) {
  const char *argv[] = {"/bin/sh", "-c", "cat; echo oops >&2; exit 7", NULL};
  vtest_process process;
  VASSERT_INT_EQ(vtest_process_run(&process, argv, "hello\n"), 0);
  VEXPECT_INT_EQ(process.status, 7);
  VEXPECT_STR_EQ(process.out, "hello\n");
  VEXPECT_UINT_EQ(process.out_bytes, 6);
  VEXPECT_STR_EQ(process.err, "oops\n");
  VEXPECT_UINT_EQ(process.err_bytes, 5);
  vtest_process_free(&process);
}

VTEST(Process, SignalsAreStatuses) {
  const char *argv[] = {"sh", "-c", "kill -9 $$", NULL};
  vtest_process process;
  VASSERT_INT_EQ(vtest_process_run(&process, argv, NULL), 0);
  VEXPECT_INT_EQ(process.status, 128 + 9);
  vtest_process_free(&process);
}

// More than a pipe holds, on both outputs and on the input.
VTEST(Process, LargeOutputsDoNotBlock) {
  const char *argv[] = {"sh", "-c",
                        "i=0; while [ $i -lt 5000 ]; do echo 0123456789012345678901234567890123456789; "
                        "echo 0123456789 >&2; i=$((i + 1)); done",
                        NULL};
  vtest_process process;
  VASSERT_INT_EQ(vtest_process_run(&process, argv, NULL), 0);
  VEXPECT_UINT_EQ(process.out_bytes, 5000 * 41);
  VEXPECT_UINT_EQ(process.err_bytes, 5000 * 11);
  vtest_process_free(&process);
}

VTEST(Process, MissingProgram) {
  const char *argv[] = {"./no/such/program", NULL};
  vtest_process process;
  VEXPECT_INT_EQ(vtest_process_run(&process, argv, NULL), -1);
  VEXPECT_INT_EQ(errno, ENOENT);
  vtest_process_free(&process);
}
