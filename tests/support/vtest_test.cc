// vtest_test.cc: proves that what doesn't hold fails. Runs failing_cases test by test and reads what it prints.
//
// In C++ on GoogleTest itself: a shim that never failed must not be the judge of whether it fails.
#include <sys/wait.h>

#include <cstdio>
#include <sstream>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace {

struct Outcome {
  int status;
  std::string output;
};

Outcome RunProgram(const std::string &program, const std::string &filter) {
  // The program's tests must see none of Bazel's settings for this one.
  std::string command =
      "unset VMPOOL_SEED TEST_SHARD_INDEX TEST_TOTAL_SHARDS TEST_SHARD_STATUS_FILE XML_OUTPUT_FILE "
      "TEST_PREMATURE_EXIT_FILE "
      "TESTBRIDGE_TEST_ONLY GTEST_OUTPUT; ./tests/support/" +
      program + " --gtest_color=no --gtest_filter='" + filter + "' 2>&1";
  FILE *pipe = popen(command.c_str(), "r");
  if (!pipe) return {-1, "popen failed"};
  Outcome run = {0, ""};
  char buffer[4096];
  size_t got;
  while ((got = fread(buffer, 1, sizeof(buffer), pipe)) > 0) run.output.append(buffer, got);
  int raw = pclose(pipe);
  run.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
  return run;
}

bool Has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

// How many failures of failing_cases.c were reported.
int NumFailures(const std::string &output) {
  std::istringstream lines(output);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    if (Has(line, "failing_cases.c:") && Has(line, ": Failure")) ++count;
  }
  return count;
}

// One macro: both forms must fail, at the file, with these parts in the message; only the expectation goes on.
struct Case {
  const char *name;
  std::vector<const char *> parts;
};

class Macro : public testing::TestWithParam<Case> {};

TEST_P(Macro, ExpectFailsAndGoesOn) {
  Outcome run = RunProgram("failing_cases", std::string("Expect.") + GetParam().name);
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_EQ(NumFailures(run.output), 1) << run.output;
  EXPECT_TRUE(Has(run.output, "1 FAILED TEST")) << run.output;
  EXPECT_TRUE(Has(run.output, "went on")) << run.output;
  for (const char *part : GetParam().parts) EXPECT_TRUE(Has(run.output, part)) << part << "\n" << run.output;
}

TEST_P(Macro, AssertFailsAndReturns) {
  Outcome run = RunProgram("failing_cases", std::string("Assert.") + GetParam().name);
  EXPECT_EQ(run.status, 1) << run.output;
  EXPECT_EQ(NumFailures(run.output), 1) << run.output;
  EXPECT_TRUE(Has(run.output, "1 FAILED TEST")) << run.output;
  EXPECT_FALSE(Has(run.output, "went on")) << run.output;
  for (const char *part : GetParam().parts) EXPECT_TRUE(Has(run.output, part)) << part << "\n" << run.output;
}

const Case kCases[] = {
    {"IntEq", {"minus_three() == 4", "left:  minus_three() = -3", "right: 4"}},
    {"IntNe", {"minus_three() != -3", "= -3"}},
    {"IntLt", {"minus_three() < -3", "= -3"}},
    {"IntLe", {"minus_three() <= -4", "= -3", "right: -4"}},
    {"IntGt", {"minus_three() > -3"}},
    {"IntGe", {"minus_three() >= -2"}},
    {"UintEq", {"big() == 4", "big() = 18446744073709551615 (0xffffffffffffffff)", "right: 4"}},
    {"UintNe", {"big() != biggest"}},
    {"UintLt", {"big() < 4"}},
    {"UintLe", {"big() <= 4"}},
    {"UintGt", {"4 > big()"}},
    {"UintGe", {"4 >= big()"}},
    {"RealLt", {"1.5 < 1.5"}},
    {"RealLe", {"1.5 <= 1.25"}},
    {"RealGt", {"1.5 > 1.5"}},
    {"RealGe", {"1.25 >= 1.5"}},
    {"RealNan", {"nan"}},
    {"Near", {"1.0 within 0.25 of 1.5", "right: 1.5"}},
    {"NearNan", {"nan"}},
    {"PtrEq", {"&object == nothing", "&object = 0x", "right: nothing = NULL"}},
    {"PtrNe", {"&object != &object"}},
    {"Null", {"&object == NULL"}},
    {"NotNull", {"nothing != NULL", "left:  nothing = NULL"}},
    {"StrEq", {"text == \"abc\"", "\"abc \\\"quoted\\\"\\nline\"", "right: \"abc\""}},
    {"StrEqNull", {"text == no_text", "right: no_text = NULL"}},
    {"StrNe", {"text != text"}},
    {"StrContains", {"text contains \"xyz\"", "quoted"}},
    {"StrContainsNull", {"no_text contains \"xyz\"", "it is: NULL"}},
    {"StrLacks", {"text lacks \"quoted\""}},
    {"BytesEq",
     {"40 bytes at bytes_a equal those at bytes_b", "2 differ, the first at offset 33 (0x21)", "left:  01 00 07 00",
      "right: 02 00 00 00"}},
    {"BytesFilled", {"40 bytes at bytes_a are all 00", "offset 33 (0x21): 01 00 07"}},
    {"True", {"minus_three() == 4 is true", "it is false"}},
    {"False", {"minus_three() == -3 is false", "it is true"}},
    {"Ok", {"VMP_ERROR_LIMIT gives VMP_OK", "it gave VMP_ERROR_LIMIT (-4)"}},
    {"OkIsNotNews", {"it gave VMP_PENDING (1)"}},
    {"Status", {"VMP_OK gives VMP_ERROR_BUSY", "it gave VMP_OK (0)"}},
};

INSTANTIATE_TEST_SUITE_P(All, Macro, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case> &c) { return std::string(c.param.name); });

// A run of one test that must fail with these parts, and without those.
void ExpectFailure(const char *filter, const std::vector<const char *> &parts,
                   const std::vector<const char *> &absent) {
  Outcome run = RunProgram("failing_cases", filter);
  EXPECT_EQ(run.status, 1) << run.output;
  for (const char *part : parts) EXPECT_TRUE(Has(run.output, part)) << part << "\n" << run.output;
  for (const char *part : absent) EXPECT_FALSE(Has(run.output, part)) << part << "\n" << run.output;
}

TEST(Shim, AFailingStatusShowsTheLastError) {
  ExpectFailure("Expect.OkShowsTheLastError", {"last error: VMP_ERROR_CONFIG: the sentence of the failure"}, {});
}

TEST(Shim, FaultsOfACheck) {
  ExpectFailure("Faults.NoneExpected", {"holds no fault", "it holds 2:", "block 7 is linked twice", "count is off"},
                {"went on"});
  ExpectFailure("Faults.OneExpectedOfTwo", {"one fault, \"linked twice\"", "it holds 2:"}, {"went on"});
  ExpectFailure("Faults.OneExpectedOfNone", {"it holds 0:"}, {"went on"});
  ExpectFailure("Faults.AnotherExpected", {"a fault \"never said\"", "1 FAILED TEST"}, {"went on"});
}

TEST(Shim, FailuresByHand) {
  ExpectFailure("Other.AddFailure", {"failing_cases.c:", "the number 42", "went on"}, {});
  ExpectFailure("Other.Fail", {"failing_cases.c:", "the number 43"}, {"went on"});
}

TEST(Shim, AHelpersFailureIsSeen) {
  ExpectFailure("Other.NoFailureAfterHelper", {"before", "back from the helper"}, {"went on"});
}

TEST(Shim, TracesCoverTheirBlockOnly) {
  ExpectFailure("Other.Traces", {"right: 99\n  while round 2 (", "right: 98\n"},
                {"round 0", "round 1", "inner block", "right: 98\n  while"});
}

TEST(Shim, TracesBeyondTheDeepestAreDropped) {
  ExpectFailure("Other.DeepTraces", {"while deep 15 (", "while deep 0 ("}, {"deep 16", "deep 17"});
}

TEST(Shim, SeedIsShownWithFailures) {
  ExpectFailure("Other.SeedIsShown", {"seed 1234 (VMPOOL_SEED=1234 repeats it)"}, {});
  ExpectFailure("Other.BadSeed", {"VMPOOL_SEED is \"12x\"; it must be a number"}, {});
}

TEST(Shim, FailuresOfOtherThreadsCount) {
  ExpectFailure("Other.FailureInAThread", {"right: 96", "while in the thread"}, {"while in the test"});
}

TEST(Shim, AFailedSetupKeepsTheBodyFromRunning) {
  ExpectFailure("Other.SetupFails", {"setup", "right: 95", "teardown"}, {"went on"});
}

TEST(Shim, TeardownRunsAfterAFailedBody) { ExpectFailure("Other.BodyFails", {"right: 94", "teardown"}, {"went on"}); }

TEST(Shim, EachParameterIsATest) {
  ExpectFailure("Params.*",
                {"OK ] Params.BelowThree/one", "OK ] Params.BelowThree/two",
                 "FAILED  ] Params.BelowThree/three__it_fails", "1 FAILED TEST"},
                {});
}

TEST(Shim, SkipsAreReportedAsSkipped) {
  Outcome run = RunProgram("failing_cases", "Skips.*");
  EXPECT_EQ(run.status, 0) << run.output;
  EXPECT_TRUE(Has(run.output, "the reason is 17")) << run.output;
  EXPECT_TRUE(Has(run.output, "nothing to set up")) << run.output;
  EXPECT_TRUE(Has(run.output, "SKIPPED ] 2 tests")) << run.output;
  EXPECT_TRUE(Has(run.output, "PASSED  ] 0 tests")) << run.output;
  EXPECT_FALSE(Has(run.output, "went on")) << run.output;
}

TEST(Shim, EveryFailingCaseFails) {
  Outcome run = RunProgram("failing_cases", "*:-Skips.*:Params.*");
  EXPECT_EQ(run.status, 1);
  EXPECT_TRUE(Has(run.output, "PASSED  ] 0 tests")) << run.output;
}

TEST(Shim, TwoTestsOfOneNameAreRefused) {
  Outcome run = RunProgram("duplicate_names", "*");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_TRUE(Has(run.output, "a second test is called Duplicate.Names/same")) << run.output;
}

TEST(Shim, ABinaryWithoutTestsIsRefused) {
  Outcome run = RunProgram("no_tests", "*");
  EXPECT_EQ(run.status, 2) << run.output;
  EXPECT_TRUE(Has(run.output, "holds no test")) << run.output;
}

}  // namespace
