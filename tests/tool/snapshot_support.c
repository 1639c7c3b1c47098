#include "tests/tool/snapshot_support.h"

#include <stdio.h>

#include "tests/support/vtest.h"

bool load_golden_snapshot(snapshot *out, const char *name) {
  char path[256];
  tool_error error = {{0}};
  snprintf(path, sizeof(path), GOLDEN_DIR "%s", name);
  const bool good = snapshot_load(out, path, &error);
  if (!good) VADD_FAILURE("%s", error.text);
  return good;
}
