// failing_cases.c: a program whose every test fails (or is skipped), each in one way. vtest_test.cc runs it test by
// test and checks what it says; "went on" is printed where a test goes on after its failure.
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"

// Two tests from one statement: as an expectation, after which the test goes on, and as an assertion.
#define BOTH(name, kind, ...)    \
  VTEST(Expect, name) {          \
    VEXPECT_##kind(__VA_ARGS__); \
    puts("went on");             \
  }                              \
  VTEST(Assert, name) {          \
    VASSERT_##kind(__VA_ARGS__); \
    puts("went on");             \
  }

static int64_t minus_three(void) { return -3; }
static uint64_t big(void) { return UINT64_MAX; }
static const int object;
static const void *const nothing = NULL;
static const char *const no_text = NULL;
static const uint64_t biggest = UINT64_MAX;
static const char *const text = "abc \"quoted\"\nline";
static const unsigned char bytes_a[40] = {[33] = 1, [35] = 7};
static const unsigned char bytes_b[40] = {[33] = 2};

BOTH(IntEq, INT_EQ, minus_three(), 4)
BOTH(IntNe, INT_NE, minus_three(), -3)
BOTH(IntLt, INT_LT, minus_three(), -3)
BOTH(IntLe, INT_LE, minus_three(), -4)
BOTH(IntGt, INT_GT, minus_three(), -3)
BOTH(IntGe, INT_GE, minus_three(), -2)
BOTH(UintEq, UINT_EQ, big(), 4)
BOTH(UintNe, UINT_NE, big(), biggest)
BOTH(UintLt, UINT_LT, big(), 4)
BOTH(UintLe, UINT_LE, big(), 4)
BOTH(UintGt, UINT_GT, 4, big())
BOTH(UintGe, UINT_GE, 4, big())
BOTH(RealLt, REAL_LT, 1.5, 1.5)
BOTH(RealLe, REAL_LE, 1.5, 1.25)
BOTH(RealGt, REAL_GT, 1.5, 1.5)
BOTH(RealGe, REAL_GE, 1.25, 1.5)
BOTH(RealNan, REAL_GE, (double)NAN, 1.0)
BOTH(Near, NEAR, 1.0, 1.5, 0.25)
BOTH(NearNan, NEAR, (double)NAN, 1.0, 100.0)
BOTH(PtrEq, PTR_EQ, &object, nothing)
BOTH(PtrNe, PTR_NE, &object, &object)
BOTH(Null, NULL, &object)
BOTH(NotNull, NOT_NULL, nothing)
BOTH(StrEq, STR_EQ, text, "abc")
BOTH(StrEqNull, STR_EQ, text, no_text)
BOTH(StrNe, STR_NE, text, text)
BOTH(StrContains, STR_CONTAINS, text, "xyz")
BOTH(StrContainsNull, STR_CONTAINS, no_text, "xyz")
BOTH(StrLacks, STR_LACKS, text, "quoted")
BOTH(BytesEq, BYTES_EQ, bytes_a, bytes_b, sizeof(bytes_a))
BOTH(BytesFilled, BYTES_FILLED, bytes_a, 0, sizeof(bytes_a))
BOTH(True, TRUE, minus_three() == 4)
BOTH(False, FALSE, minus_three() == -3)
BOTH(Ok, OK, VMP_ERROR_LIMIT)
BOTH(OkIsNotNews, OK, VMP_PENDING)
BOTH(Status, STATUS, VMP_OK, VMP_ERROR_BUSY)

VTEST(Expect, OkShowsTheLastError) {
  VEXPECT_OK(vmp_fail(VMP_ERROR_CONFIG, "the sentence of the failure"));
  puts("went on");
}

static vtest_faults two_faults(void) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  vmp_report_fault(&report, "block %d is linked twice", 7);
  vmp_report_fault(&report, "count is off");
  return faults;
}

VTEST(Faults, NoneExpected) {
  vtest_faults faults = two_faults();
  VASSERT_NO_FAULTS(&faults);
  puts("went on");
}
VTEST(Faults, OneExpectedOfTwo) {
  vtest_faults faults = two_faults();
  VASSERT_ONE_FAULT(&faults, "linked twice");
  puts("went on");
}
VTEST(Faults, OneExpectedOfNone) {
  vtest_faults faults = vtest_faults_make();
  VASSERT_ONE_FAULT(&faults, "linked twice");
  puts("went on");
}
VTEST(Faults, AnotherExpected) {
  vtest_faults faults = two_faults();
  VEXPECT_A_FAULT(&faults, "linked twice");
  VASSERT_A_FAULT(&faults, "never said");
  puts("went on");
}

VTEST(Other, AddFailure) {
  VADD_FAILURE("the number %d", 42);
  puts("went on");
}
VTEST(Other, Fail) {
  VFAIL("the number %d", 43);
  puts("went on");
}

static void helper_that_fails(void) { VASSERT_TRUE(false); }
VTEST(Other, NoFailureAfterHelper) {
  VASSERT_NO_FAILURE();
  puts("before");
  helper_that_fails();
  puts("back from the helper");
  VASSERT_NO_FAILURE();
  puts("went on");
}

VTEST(Other, Traces) {
  for (int i = 0; i < 3; i++) {
    VTRACE("round %d", i);
    if (i == 1) {
      VTRACE("inner %s", "block");
    }
    if (i == 2) VEXPECT_INT_EQ(i, 99);
  }
  VEXPECT_INT_EQ(1, 98);
}

static void fail_below(int depth) {
  VTRACE("deep %d", depth);
  if (depth < 20) fail_below(depth + 1);
  if (depth == 20) VEXPECT_INT_EQ(1, 97);
}
VTEST(Other, DeepTraces) { fail_below(0); }

VTEST(Other, SeedIsShown) {
  (void)vtest_seed(1234);
  VEXPECT_TRUE(false);
}

VTEST(Other, BadSeed) {
  setenv("VMPOOL_SEED", "12x", 1);
  VEXPECT_UINT_EQ(vtest_seed(5), 5);
}

static void *fail_in_thread(void *unused) {
  (void)unused;
  VTRACE("in the thread");
  VEXPECT_INT_EQ(1, 96);
  return NULL;
}
VTEST(Other, FailureInAThread) {
  VTRACE("in the test");
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, fail_in_thread, NULL), 0);
  pthread_join(thread, NULL);
}

typedef struct rig {
  int unused;
} rig;
static void rig_setup(rig *f) {
  (void)f;
  puts("setup");
  VASSERT_INT_EQ(1, 95);
}
static void rig_teardown(rig *f) {
  (void)f;
  puts("teardown");
}
VTEST_F(Other, SetupFails, rig) { puts("went on"); }

typedef struct good_rig {
  int unused;
} good_rig;
static void good_rig_setup(good_rig *f) { (void)f; }
static void good_rig_teardown(good_rig *f) {
  (void)f;
  puts("teardown");
}
VTEST_F(Other, BodyFails, good_rig) {
  VASSERT_INT_EQ(1, 94);
  puts("went on");
}

typedef struct skipping_rig {
  int unused;
} skipping_rig;
static void skipping_rig_setup(skipping_rig *f) {
  (void)f;
  VSKIP("nothing to set up");
}
static void skipping_rig_teardown(skipping_rig *f) { (void)f; }
VTEST_F(Skips, InSetup, skipping_rig) { puts("went on"); }

VTEST(Skips, InBody) {
  VSKIP("the reason is %d", 17);
  puts("went on");
}

static const int numbers[] = {1, 2, 3};
static const char *number_name(const int *p) {
  static const char *const names[] = {"one", "two", "three: it fails"};
  return names[*p - 1];
}
VTEST_P(Params, BelowThree, int, numbers, number_name) { VEXPECT_INT_LT(*p, 3); }
