// driver_error_test.c: the wording of failed driver calls.
#include "vmm/driver_error.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver_cuda/bare_driver.h"
#include "tests/support/vtest.h"

typedef struct rig {
  bare_driver bare;  // first
  vmp_driver *driver;
  char text[VMP_CODE_TEXT_BYTES];
} rig;

// The driver knows code 1 wholly, code 5 by name, code 6 badly (success and no text), code 8 badly too (a failure with
// a text), and nothing else.
static int get_name(vmp_driver *driver, int code, const char **out_name) {
  (void)driver;
  *out_name = code == 8   ? "STALE"
              : code == 1 ? "CUDA_ERROR_INVALID_VALUE"
              : code == 5 ? "CUDA_ERROR_PROFILER_DISABLED"
                          : NULL;
  return code != 8 && (*out_name != NULL || code == 6) ? 0 : VMP_CU_INVALID_VALUE;
}
static int get_string(vmp_driver *driver, int code, const char **out_text) {
  (void)driver;
  *out_text = code == 8 ? "stale" : code == 1 ? "invalid argument" : NULL;
  return code != 8 && (*out_text != NULL || code == 6) ? 0 : VMP_CU_INVALID_VALUE;
}

static void rig_setup(rig *f) {
  bare_driver_init(&f->bare);
  f->bare.ops.get_error_name = get_name;
  f->bare.ops.get_error_string = get_string;
  f->driver = &f->bare.base;
}
static void rig_teardown(rig *f) { (void)f; }

VTEST_F(DriverError, CodeText, rig) {
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 1, f->text, sizeof f->text),
                 "CUDA_ERROR_INVALID_VALUE (1): invalid argument");
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 5, f->text, sizeof f->text), "CUDA_ERROR_PROFILER_DISABLED (5)");
  // Unknown to the driver, known to us; unknown to both.
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 719, f->text, sizeof f->text), "CUDA_ERROR_LAUNCH_FAILED (719)");
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 6, f->text, sizeof f->text), "unknown error (6)");
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 8, f->text, sizeof f->text), "unknown error (8)");
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 12345, f->text, sizeof f->text), "unknown error (12345)");
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, -7, f->text, sizeof f->text), "unknown error (-7)");
  VEXPECT_STR_EQ(vmp_driver_code_text(NULL, 1, f->text, sizeof f->text), "CUDA_ERROR_INVALID_VALUE (1)");
  VEXPECT_STR_EQ(vmp_driver_code_text(NULL, 0, f->text, sizeof f->text), "CUDA_SUCCESS (0)");
}

VTEST_F(DriverError, CodeTextIsCutNotOverrun, rig) {
  memset(f->text, 'x', sizeof f->text);
  VEXPECT_STR_EQ(vmp_driver_code_text(f->driver, 1, f->text, 8), "CUDA_ER");
  VEXPECT_INT_EQ(f->text[8], 'x');
}

VTEST_F(DriverError, FailSaysCallCodeAndWhat, rig) {
  VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_map, 1, "chunk %d at slot %d was to be mapped", 3, 17),
                 VMP_ERROR_DRIVER);
  const vmp_error *error = vmp_last_error();
  VEXPECT_STR_EQ(
      error->message,
      "cuMemMap failed: CUDA_ERROR_INVALID_VALUE (1): invalid argument; chunk 3 at slot 17 was to be mapped");
  VEXPECT_STR_EQ(error->driver_call, "cuMemMap");
  VEXPECT_INT_EQ(error->driver_code, 1);
  VEXPECT_INT_EQ(error->status, VMP_ERROR_DRIVER);
}

typedef struct code_case {
  int code;
  vmp_status status;
} code_case;

VTEST_F(DriverError, StatusFollowsFromTheCode, rig) {
  static const code_case cases[] = {
      {1, VMP_ERROR_DRIVER},          {2, VMP_ERROR_OUT_OF_MEMORY}, {4, VMP_ERROR_DEINITIALIZED},
      {34, VMP_ERROR_STUB_DRIVER},    {100, VMP_ERROR_NO_DEVICE},   {101, VMP_ERROR_NO_DEVICE},
      {201, VMP_ERROR_DRIVER},        {700, VMP_ERROR_STICKY},      {719, VMP_ERROR_STICKY},
      {801, VMP_ERROR_NOT_SUPPORTED}, {900, VMP_ERROR_CAPTURE},     {999, VMP_ERROR_DRIVER},
      {3, VMP_ERROR_DRIVER},  // not a fork: the driver was never initialised
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    VTRACE("code %d", cases[i].code);
    VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_create, cases[i].code, "a chunk was to be created"),
                   cases[i].status);
  }
}

// A driver that another process opened: code 3 means the fork.
VTEST_F(DriverError, Code3InAForkIsNamed, rig) {
  f->driver->owner_process = (int32_t)getpid() + 1;
  char fork_of[48];
  (void)snprintf(fork_of, sizeof fork_of, "a fork of process %d", (int)f->driver->owner_process);
  VEXPECT_TRUE(vmp_driver_is_forked(f->driver));
  VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_map, 3, "a chunk was to be mapped"), VMP_ERROR_FORKED);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, fork_of);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "a chunk was to be mapped");
  // Another code keeps its own meaning.
  VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_map, 2, "a chunk was to be mapped"), VMP_ERROR_OUT_OF_MEMORY);
  f->driver->owner_process = 0;  // not recorded: nobody can tell
  VEXPECT_FALSE(vmp_driver_is_forked(f->driver));
}

VTEST_F(DriverError, LongWordsAreCut, rig) {
  char words[1000];
  memset(words, 'w', sizeof words - 1);
  words[sizeof words - 1] = '\0';
  VEXPECT_STATUS(vmp_driver_fail(f->driver, VMP_CALL_mem_map, 1, "%s", words), VMP_ERROR_DRIVER);
  VEXPECT_UINT_LT(strlen(vmp_last_error()->message), sizeof vmp_last_error()->message);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "invalid argument; www");
}
