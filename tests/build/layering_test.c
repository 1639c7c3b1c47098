// layering_test.c: calls go down only, as the dependencies of the build targets say: vmm never depends on pool, and
// neither depends on tools or tests. (That no source reaches past its target's dependencies is Bazel's sandbox's to
// see, and clang's layering_check's.)
//
// Each query's output holds one label a line: everything that some target of the folder depends on.
#include <stdio.h>
#include <string.h>

#include "tests/support/vtest.h"

// Counts the labels in `file` that stand in one of the two folders, and those that stand in neither. Bazel 7 may write
// "@@//folder".
typedef struct label_counts {
  int vmm, pool, others;
} label_counts;

static bool in_folder(const char *label, const char *folder) {
  size_t length = strlen(folder);
  return strncmp(label, folder, length) == 0 && strchr("/:\n", label[length]);
}

static label_counts count_labels(const char *file) {
  char path[256], line[1024];
  label_counts counts = {0};
  snprintf(path, sizeof(path), "tests/build/%s", file);
  FILE *labels = fopen(path, "r");
  if (!labels) {
    VADD_FAILURE("%s can't be read", path);
    return counts;
  }
  while (fgets(line, sizeof(line), labels)) {
    const char *label = line + strspn(line, "@");
    if (in_folder(label, "//vmm")) {
      counts.vmm++;
    } else if (in_folder(label, "//pool")) {
      counts.pool++;
    } else if (strncmp(label, "//:", 3) != 0) {  // the top folder holds names only, for who may see what
      counts.others++;
      printf("%s depends on %s", file, line);
    }
  }
  fclose(labels);
  return counts;
}

VTEST(Layering, VmmDependsOnNothingAbove) {
  label_counts counts = count_labels("vmm_deps");
  VEXPECT_INT_GT(counts.vmm, 20);
  VEXPECT_INT_EQ(counts.pool, 0);
}

VTEST(Layering, PoolDependsOnVmm) {
  label_counts counts = count_labels("pool_deps");
  VEXPECT_INT_GT(counts.pool, 20);
  VEXPECT_INT_GT(counts.vmm, 20);  // a dependency between the two is seen, so the forbidden one would be
}

// No tool, no test, and nothing from outside: not GoogleTest, not jansson, not even CUDA's headers.
VTEST(Layering, NeitherDependsOnAnythingElse) {
  VEXPECT_INT_EQ(count_labels("vmm_deps").others, 0);
  VEXPECT_INT_EQ(count_labels("pool_deps").others, 0);
}

VTEST(Layering, OtherLabelsAreSeen) { VEXPECT_INT_GT(count_labels("layering_test_deps").others, 2); }
