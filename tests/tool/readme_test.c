// The README's session, typed in: its commands run, and print each line that it shows.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"

#define PROMPT "\n    $ vmpool "
#define INDENT 4

static char readme[65536];

static void read_readme(void) {
  FILE *file = fopen("README.md", "r");
  VASSERT_NOT_NULL(file);
  readme[fread(readme, 1, sizeof(readme) - 1, file)] = '\0';
  fclose(file);
}

// Runs "vmpool ARGUMENTS" in the folder, so that the README's relative file names work.
static vtest_process run_in(const char *folder, const char *arguments, size_t length) {
  char here[1024], command[4096];
  vtest_process process = {0};
  if (getcwd(here, sizeof(here)) == NULL) VADD_FAILURE("no current folder");
  snprintf(command, sizeof(command), "cd '%s' && '%s/tools/vmpool/vmpool' %.*s", folder, here, (int)length, arguments);
  unsetenv("VMP_CONF");
  if (vtest_process_run(&process, (const char *const[]){"/bin/sh", "-c", command, NULL}, NULL) != 0)
    VADD_FAILURE("no shell");
  return process;
}

// Each indented line after a command, up to the next command or the end of the block, is part of the output.
static const char *compare_lines(const char *line, const char *output) {
  while (strncmp(line, "    ", INDENT) == 0 && strncmp(line, "    $ ", INDENT + 2) != 0) {
    const size_t length = strcspn(line, "\n");
    char *shown = strndup(line + INDENT, length - INDENT);
    VEXPECT_STR_CONTAINS(output, shown);
    free(shown);
    line += length + (line[length] == '\n');
  }
  return line;
}

VTEST(Readme, TheSessionIsReal) {
  char folder[600], file[700];
  read_readme();
  VASSERT_NO_FAILURE();
  snprintf(folder, sizeof(folder), "%s/readme-XXXXXX", vtest_temp_dir());
  VASSERT_NOT_NULL(mkdtemp(folder));
  size_t commands = 0, shown = 0;
  for (const char *at = strstr(readme, PROMPT); at != NULL; at = strstr(at, PROMPT)) {
    const char *arguments = at + strlen(PROMPT);
    const size_t length = strcspn(arguments, "\n");
    vtest_process process = run_in(folder, arguments, length);
    VEXPECT_INT_EQ(process.status, 0);
    VEXPECT_STR_EQ(process.err, "");
    const char *first = arguments + length + 1;
    at = compare_lines(first, process.out) - 1;  // the next command may follow at once
    shown += at + 1 > first;
    commands++;
    vtest_process_free(&process);
  }
  VEXPECT_UINT_GE(commands, 2);
  VEXPECT_UINT_GE(shown, 1);
  snprintf(file, sizeof(file), "%s/gpt2.trace", folder);
  unlink(file);
  VEXPECT_INT_EQ(rmdir(folder), 0);
}
