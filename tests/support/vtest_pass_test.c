// vtest_pass_test.c: what must hold does hold; fixtures, parameters and the surroundings work.
// (vtest_test.cc proves the other half: that what doesn't hold fails, and that a skip is a skip.)
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"

VTEST(VtestPass, Integers) {
  VEXPECT_INT_EQ(-3, -3);
  VEXPECT_INT_NE(INT64_MIN, INT64_MAX);
  VEXPECT_INT_LT(-1, 0);
  VEXPECT_INT_LE(-1, -1);
  VEXPECT_INT_GT(1, -1);
  VEXPECT_INT_GE(1, 1);
  VEXPECT_UINT_EQ(UINT64_MAX, UINT64_MAX);
  VEXPECT_UINT_NE(0, UINT64_MAX);
  VEXPECT_UINT_LT(1, UINT64_MAX);  // as signed numbers it would be the other way round
  VEXPECT_UINT_LE(7, 7);
  VEXPECT_UINT_GT(UINT64_MAX, 1);
  VEXPECT_UINT_GE(7, 7);
}

VTEST(VtestPass, Reals) {
  VEXPECT_REAL_LT(1.0, 1.5);
  VEXPECT_REAL_LE(1.5, 1.5);
  VEXPECT_REAL_GT(1.5, 1.0);
  VEXPECT_REAL_GE(1.5, 1.5);
  VEXPECT_NEAR(1.0, 1.25, 0.25);
  VEXPECT_NEAR((double)INFINITY, (double)INFINITY, 0);
}

VTEST(VtestPass, PointersStringsAndBytes) {
  int x = 0;
  VEXPECT_PTR_EQ(&x, &x);
  VEXPECT_PTR_NE(&x, NULL);
  VEXPECT_NULL(NULL);
  VEXPECT_NOT_NULL(&x);
  VEXPECT_STR_EQ("abc", "abc");
  VEXPECT_STR_EQ(NULL, NULL);
  VEXPECT_STR_NE("abc", "abd");
  VEXPECT_STR_NE(NULL, "");
  VEXPECT_STR_CONTAINS("a fox ran", "fox");
  VEXPECT_STR_LACKS("a fox ran", "dog");
  VEXPECT_BYTES_EQ("abcd", "abce", 3);
  VEXPECT_BYTES_EQ(NULL, NULL, 0);
  VEXPECT_BYTES_FILLED("zzz", 'z', 3);
}

VTEST(VtestPass, BoolsAndStatuses) {
  VEXPECT_TRUE(true);
  VEXPECT_FALSE(false);
  VEXPECT_OK(VMP_OK);
  VEXPECT_STATUS(VMP_PENDING, VMP_PENDING);
}

static int evaluations;
static int count_evaluation(void) { return ++evaluations; }

VTEST(VtestPass, ArgumentsAreEvaluatedOnce) {
  evaluations = 0;
  VASSERT_INT_EQ(count_evaluation(), 1);
  VASSERT_INT_EQ(2, count_evaluation());
  VASSERT_TRUE(count_evaluation() == 3);
}

static bool reached_end_of_asserts;
static void all_asserts(void) {
  int x = 0;
  VASSERT_INT_EQ(1, 1);
  VASSERT_INT_NE(1, 2);
  VASSERT_INT_LT(1, 2);
  VASSERT_INT_LE(1, 1);
  VASSERT_INT_GT(2, 1);
  VASSERT_INT_GE(1, 1);
  VASSERT_UINT_EQ(1, 1);
  VASSERT_UINT_NE(1, 2);
  VASSERT_UINT_LT(1, 2);
  VASSERT_UINT_LE(1, 1);
  VASSERT_UINT_GT(2, 1);
  VASSERT_UINT_GE(1, 1);
  VASSERT_REAL_LT(1.0, 2.0);
  VASSERT_REAL_LE(1.0, 1.0);
  VASSERT_REAL_GT(2.0, 1.0);
  VASSERT_REAL_GE(1.0, 1.0);
  VASSERT_NEAR(1.0, 1.0, 0);
  VASSERT_PTR_EQ(&x, &x);
  VASSERT_PTR_NE(&x, NULL);
  VASSERT_NULL(NULL);
  VASSERT_NOT_NULL(&x);
  VASSERT_STR_EQ("a", "a");
  VASSERT_STR_NE("a", "b");
  VASSERT_STR_CONTAINS("ab", "b");
  VASSERT_STR_LACKS("ab", "c");
  VASSERT_BYTES_EQ("ab", "ab", 2);
  VASSERT_BYTES_FILLED("aa", 'a', 2);
  VASSERT_TRUE(true);
  VASSERT_FALSE(false);
  VASSERT_STATUS(VMP_PARTIAL, VMP_PARTIAL);
  VASSERT_OK(VMP_OK);
  VASSERT_NO_FAILURE();
  reached_end_of_asserts = true;
}

VTEST(VtestPass, AssertsThatHoldGoOn) {
  reached_end_of_asserts = false;
  all_asserts();
  VEXPECT_TRUE(reached_end_of_asserts);
}

typedef struct counted {
  int value;
  char zeroes[64];
} counted;
static int setups, teardowns;
static void counted_setup(counted *f) {
  for (size_t i = 0; i < sizeof(f->zeroes); i++) VASSERT_INT_EQ(f->zeroes[i], 0);
  f->value = 100 + ++setups;
  memset(f->zeroes, 1, sizeof(f->zeroes));
}
static void counted_teardown(counted *f) {
  VEXPECT_INT_EQ(f->value, 100 + setups);
  teardowns++;
}

VTEST_F(VtestFixture, First, counted) {
  VEXPECT_INT_EQ(f->value, 100 + setups);
  VEXPECT_INT_EQ(teardowns, setups - 1);
}

VTEST_F(VtestFixture, SecondIsFresh, counted) {
  VEXPECT_INT_EQ(f->value, 100 + setups);
  VEXPECT_INT_EQ(teardowns, setups - 1);
}

typedef struct square {
  const char *name;
  int side, area;
} square;
static const square squares[] = {{"one", 1, 1}, {"two by two", 2, 4}, {"-", 9, 81}};
static const char *square_name(const square *p) { return p->name; }
static int squares_seen;

VTEST_P(VtestParam, Area, square, squares, square_name) {
  squares_seen++;
  VEXPECT_INT_EQ(p->side * p->side, p->area);
}

VTEST_FP(VtestParam, FixtureAndParameter, counted, square, squares, square_name) {
  VEXPECT_INT_EQ(f->value, 100 + setups);
  VEXPECT_INT_GE(p->area, p->side);
}

VTEST(VtestSurroundings, SeedComesFromTheEnvironment) {
  unsetenv("VMPOOL_SEED");
  VEXPECT_UINT_EQ(vtest_seed(17), 17);
  setenv("VMPOOL_SEED", "0x10", 1);
  VEXPECT_UINT_EQ(vtest_seed(17), 16);
  setenv("VMPOOL_SEED", "18446744073709551615", 1);
  VEXPECT_UINT_EQ(vtest_seed(17), UINT64_MAX);
  setenv("VMPOOL_SEED", "", 1);
  VEXPECT_UINT_EQ(vtest_seed(18), 18);
}

VTEST(VtestSurroundings, OpsAreCappedByTheEnvironment) {
  unsetenv("VMPOOL_MODEL_OPS");
  VEXPECT_UINT_EQ(vtest_ops(1000000), 1000000);
  setenv("VMPOOL_MODEL_OPS", "5000", 1);
  VEXPECT_UINT_EQ(vtest_ops(1000000), 5000);
  VEXPECT_UINT_EQ(vtest_ops(100), 100);
}

// The build runs this test with --shape=square --colour=red --colour=blue.
VTEST(VtestSurroundings, OptionsComeFromTheCommandLine) {
  VEXPECT_STR_EQ(vtest_option("shape"), "square");
  VEXPECT_STR_EQ(vtest_option("colour"), "blue");
  VEXPECT_NULL(vtest_option("col"));
  VEXPECT_NULL(vtest_option("size"));
}

VTEST(VtestSurroundings, TracesAndTempDir) {
  setenv("VMPOOL_TRACES", "", 1);
  VEXPECT_NULL(vtest_traces_dir());
  setenv("VMPOOL_TRACES", "/somewhere", 1);
  VEXPECT_STR_EQ(vtest_traces_dir(), "/somewhere");
  setenv("TEST_TMPDIR", "/one", 1);
  VEXPECT_STR_EQ(vtest_temp_dir(), "/one");
  unsetenv("TEST_TMPDIR");
  setenv("TMPDIR", "/two", 1);
  VEXPECT_STR_EQ(vtest_temp_dir(), "/two");
  unsetenv("TMPDIR");
  VEXPECT_STR_EQ(vtest_temp_dir(), "/tmp");
}

// The first numbers of splitmix64 for seed 1234567, as published with other implementations of it.
VTEST(VtestRng, IsSplitmix64) {
  vtest_rng rng = vtest_rng_make(1234567);
  VEXPECT_UINT_EQ(vtest_rng_next(&rng), UINT64_C(6457827717110365317));
  VEXPECT_UINT_EQ(vtest_rng_next(&rng), UINT64_C(3203168211198807973));
  VEXPECT_UINT_EQ(vtest_rng_next(&rng), UINT64_C(9817491932198370423));
  VEXPECT_UINT_EQ(vtest_rng_next(&rng), UINT64_C(4593380528125082431));
  VEXPECT_UINT_EQ(vtest_rng_next(&rng), UINT64_C(16408922859458223821));
}

VTEST(VtestRng, RangesReachBothEndsAndStayInside) {
  vtest_rng rng = vtest_rng_make(1);
  bool seen[6] = {false};
  for (int i = 0; i < 1000; i++) {
    uint64_t value = vtest_rng_range(&rng, 5, 10);
    VASSERT_UINT_GE(value, 5);
    VASSERT_UINT_LE(value, 10);
    seen[value - 5] = true;
    VASSERT_UINT_LT(vtest_rng_below(&rng, 3), 3);
    uint64_t size = vtest_rng_log(&rng, 100, 100000);
    VASSERT_UINT_GE(size, 100);
    VASSERT_UINT_LE(size, 100000);
    VASSERT_UINT_EQ(vtest_rng_log(&rng, 1, 1), 1);
    VASSERT_FALSE(vtest_rng_chance(&rng, 0, 10));
    VASSERT_TRUE(vtest_rng_chance(&rng, 10, 10));
  }
  for (size_t i = 0; i < 6; i++) VEXPECT_TRUE(seen[i]);
  VEXPECT_UINT_EQ(vtest_rng_range(&rng, 9, 9), 9);
  (void)vtest_rng_range(&rng, 0, UINT64_MAX);
}
