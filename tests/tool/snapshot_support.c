#include "tests/tool/snapshot_support.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tools/common/file.h"

bool load_golden_snapshot(snapshot *out, const char *name) {
  char path[256];
  tool_error error = {{0}};
  snprintf(path, sizeof(path), GOLDEN_DIR "%s", name);
  const bool good = snapshot_load(out, path, &error);
  if (!good) VADD_FAILURE("%s", error.text);
  return good;
}

void expect_golden_text(const char *drawn, const char *name) {
  char path[256];
  tool_error error = {{0}};
  file_text file = {0};
  snprintf(path, sizeof(path), GOLDEN_DIR "%s", name);
  if (!file_load(&file, path, &error)) {
    VADD_FAILURE("%s; drawn was:\n%s", error.text, drawn);
    return;
  }
  char *expected = strndup(file.text, file.bytes);
  VEXPECT_STR_EQ(drawn, expected);
  free(expected);
  free(file.text);
}
