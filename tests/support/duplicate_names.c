// duplicate_names.c: two parameters of one name; the program must refuse to run. See vtest_test.cc.
#include "tests/support/vtest.h"

static const int numbers[] = {1, 2};
static const char *same_name(const int *p) {
  (void)p;
  return "same";
}
VTEST_P(Duplicate, Names, int, numbers, same_name) { VEXPECT_INT_GT(*p, 0); }
