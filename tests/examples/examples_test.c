// The examples run, and the README shows the first one as it is.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"

typedef struct example {
  const char *name, *path, *prints;
} example;
static const char *example_name(const example *e) { return e->name; }

static const example examples[] = {
    {"first_pool", "tests/examples/first_pool", "70 MiB live, "},
    {"two_streams", "tests/examples/two_streams", "6 operations done, 0 bad touches\n"},
    {"limits", "tests/examples/limits",
     "a fifth block: VMP_ERROR_LIMIT\n32 MiB from two free pieces of 16\npeak mapped 64 MiB; "},
    // 64 pages of prompt, 4 x 7 of output: the prompt is there once.
    {"kv_cache", "tests/examples/kv_cache", "4 sequences: 568 MiB in their regions, 184 MiB of memory\n"},
};

VTEST_P(Example, Runs, example, examples, example_name) {
  vtest_process process = {0};
  unsetenv("VMP_CONF");
  VASSERT_INT_EQ(vtest_process_run(&process, (const char *const[]){p->path, NULL}, NULL), 0);
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.err, "");
  VEXPECT_STR_CONTAINS(process.out, p->prints);
  vtest_process_free(&process);
}

static void read_file(const char *path, char *buffer, size_t size) {
  FILE *file = fopen(path, "r");
  buffer[0] = '\0';
  VASSERT_NOT_NULL(file);
  buffer[fread(buffer, 1, size - 1, file)] = '\0';
  fclose(file);
}

VTEST(Readme, ShowsTheFirstExampleWordForWord) {
  static char readme[65536], source[4096];
  read_file("README.md", readme, sizeof(readme));
  read_file("tests/examples/first_pool.c", source, sizeof(source));
  VASSERT_NO_FAILURE();
  char *code = strstr(readme, "```c\n");
  VASSERT_NOT_NULL(code);
  code += strlen("```c\n");
  char *end = strstr(code, "```");
  VASSERT_NOT_NULL(end);
  *end = '\0';
  VEXPECT_STR_EQ(code, source);
  size_t lines = 0;
  for (const char *c = source; *c != '\0'; c++) lines += *c == '\n';
  VEXPECT_UINT_LE(lines, 15);
}

VTEST(Readme, NamesTheTwoCommands) {
  static char readme[65536];
  read_file("README.md", readme, sizeof(readme));
  VEXPECT_STR_CONTAINS(readme, "tools/bazelw run //tools/vmpool -- demo");
  VEXPECT_STR_CONTAINS(readme, "tools/bazelw test //...");
}
