// cuda_mode_test.c: the program that runs on a GPU, //tests/gpu:conformance, on a libcuda that has the host driver
// behind it: it goes through the CUDA loader, asks every rule, takes differences as data, and ends well.
#include <stdlib.h>
#include <string.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"

#define PROGRAM "tests/gpu/conformance"
#define FACADE "tests/conformance/libhost_cuda.so"

static size_t count_lines(const char *text, const char *begin, const char *end) {
  size_t count = 0;
  for (const char *line = text; line != NULL && *line != '\0'; line = strchr(line, '\n')) {
    if (*line == '\n') line++;
    const char *stop = strchr(line, '\n');
    const char *found = strstr(line, end);
    if (strncmp(line, begin, strlen(begin)) == 0 && found != NULL && (stop == NULL || found < stop)) count++;
  }
  return count;
}

static void run(vtest_process *process, const char *library, const char *level, const char *rule, const char *strict) {
  const char *argv[] = {PROGRAM, "--driver=cuda", library, rule, strict, NULL};
  VASSERT_INT_EQ(setenv("VMPOOL_FACADE_LEVEL", level, 1), 0);
  (void)unsetenv("XML_OUTPUT_FILE");  // that is this test's own
  VASSERT_INT_EQ(vtest_process_run(process, argv, NULL), 0);
}

VTEST(CudaMode, AskedThroughTheLoaderEveryAnswerIsStrict) {
  vtest_process process;
  run(&process, "--library=" FACADE, "0", "--rule=0", NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.out, "driver cuda, device 0 (vmpool host device 0)");
  VEXPECT_STR_CONTAINS(process.out, " 0 with another code of the table, 0 differ, ");
  VEXPECT_UINT_EQ(count_lines(process.out, "rule 60 ", "| strict"), 2);
  VEXPECT_UINT_EQ(count_lines(process.out, "rule 62 ", "|       4 | strict"), 1);
  VEXPECT_UINT_GT(count_lines(process.out, "rule  1 ", "|       3 | strict"), 4);
  // What only a model can be asked is not here, and says so.
  VEXPECT_UINT_EQ(count_lines(process.out, "rule ", "| not here: only a model"), 6);
  VEXPECT_UINT_EQ(count_lines(process.out, "rule ", "| not here: "), 7);
  vtest_process_free(&process);
}

VTEST(CudaMode, OtherCodesOfTheTableAreTold) {
  vtest_process process;
  run(&process, "--library=" FACADE, "2", "--rule=20", NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_UINT_EQ(count_lines(process.out, "rule 20 ", "|     101 | also"), 2);
  VEXPECT_STR_CONTAINS(process.out, " 0 as expected, 2 with another code of the table, 0 differ, ");
  vtest_process_free(&process);
  run(&process, "--library=" FACADE, "2", "--rule=20", "--strict=1");
  VEXPECT_INT_EQ(process.status, 1);
  vtest_process_free(&process);
}

VTEST(CudaMode, DifferencesAreData) {
  vtest_process process;
  VASSERT_INT_EQ(setenv("VMPOOL_FACADE_ODD", "1", 1), 0);
  run(&process, "--library=" FACADE, "0", "--rule=33", NULL);
  (void)unsetenv("VMPOOL_FACADE_ODD");
  VASSERT_NO_FAILURE();
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_UINT_EQ(count_lines(process.out, "rule 33 ", "|     999 | DIFFERS"), 5);
  VEXPECT_STR_CONTAINS(process.out, ", 5 differ, ");
  vtest_process_free(&process);
}

VTEST(CudaMode, WithoutADriverNothingIsTestedAndItSaysSo) {
  vtest_process process;
  run(&process, "--library=/there/is/no/libcuda.so.1", "0", "--rule=0", NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_CONTAINS(process.out, "no GPU: NOTHING was tested");
  VEXPECT_UINT_EQ(count_lines(process.out, "rule ", "|"), 0);
  vtest_process_free(&process);
}
