// snapshot_support.h: sample snapshots for tests.
#ifndef VMPOOL_TESTS_TOOL_SNAPSHOT_SUPPORT_H_
#define VMPOOL_TESTS_TOOL_SNAPSHOT_SUPPORT_H_

#include "tools/common/number.h"
#include "tools/vmpool/snapshot.h"

#define GOLDEN_DIR "tests/tool/golden/"

// load_golden_snapshot reads tests/tool/golden/NAME, and fails the test where it can't.
bool load_golden_snapshot(snapshot *out, const char *name);
// expect_golden_text compares with the text of tests/tool/golden/NAME.
void expect_golden_text(const char *drawn, const char *name);

#endif  // VMPOOL_TESTS_TOOL_SNAPSHOT_SUPPORT_H_
