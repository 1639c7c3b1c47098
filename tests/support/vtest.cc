// vtest.cc: the bridge from vtest.h to GoogleTest, and main() of every test binary.
//
// C constructors only link their vtest_case into a list; main() hands the list to GoogleTest once all static
// objects exist, so nothing depends on the order of initialisation.
#include "tests/support/vtest.h"

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <set>
#include <string>

#include "gtest/gtest.h"

namespace {

vtest_case *first_case = nullptr;
vtest_case **last_link = &first_case;

// The seed of the test that runs now, shown with its failures. Written by the test's own thread only.
bool seed_known = false;
uint64_t current_seed = 0;

// Whether the test that runs now has failed. GoogleTest's own answer may not be asked for by one thread while another
// reports: a test of threads that asks would end there, under ThreadSanitizer, before its message is out.
std::atomic<bool> failed{false};

// The command line without GoogleTest's own flags.
int option_count = 0;
char **options = nullptr;

constexpr int kMaxTraces = 16;
constexpr size_t kTraceBytes = 200;
struct Trace {
  const char *file;
  int line;
  char text[kTraceBytes];
};
thread_local Trace traces[kMaxTraces];
thread_local int num_traces = 0;  // may exceed kMaxTraces: the rest is not kept

std::string Format(const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(nullptr, 0, format, again);
  va_end(again);
  if (length < 0) return format;
  std::string text(static_cast<size_t>(length) + 1, '\0');
  vsnprintf(&text[0], text.size(), format, args);
  text.pop_back();
  return text;
}

std::string Printf(const char *format, ...) VMP_PRINTF(1, 2);
std::string Printf(const char *format, ...) {
  va_list args;
  va_start(args, format);
  std::string text = Format(format, args);
  va_end(args);
  return text;
}

// "text = value", or only the value where the text is that value.
std::string Side(const char *text, const std::string &value) {
  return value == text ? value : std::string(text) + " = " + value;
}

void Report(const vtest_site &site, const std::string &message) {
  std::string full = message;
  int shown = num_traces < kMaxTraces ? num_traces : kMaxTraces;
  for (int i = shown; i-- > 0;) {
    full += Printf("\n  while %s (%s:%d)", traces[i].text, traces[i].file, traces[i].line);
  }
  if (seed_known)
    full += Printf("\n  seed %" PRIu64 " (VMPOOL_SEED=%" PRIu64 " repeats it)", current_seed, current_seed);
  failed = true;
  auto type = site.fatal ? testing::TestPartResult::kFatalFailure : testing::TestPartResult::kNonFatalFailure;
  GTEST_MESSAGE_AT_(site.file, site.line, full.c_str(), type);
}

const char *Sign(vtest_relation relation) {
  static const char *const signs[] = {"==", "!=", "<", "<=", ">", ">="};
  return signs[relation];
}

template <typename T>
bool Holds(vtest_relation relation, T a, T b) {
  switch (relation) {
    case VTEST_RELATION_EQ: return a == b;
    case VTEST_RELATION_NE: return a != b;
    case VTEST_RELATION_LT: return a < b;
    case VTEST_RELATION_LE: return a <= b;
    case VTEST_RELATION_GT: return a > b;
    case VTEST_RELATION_GE: return a >= b;
  }
  return false;
}

bool ReportPair(const vtest_site &site, const char *a_text, const char *sign, const char *b_text, const std::string &a,
                const std::string &b) {
  Report(site, Printf("expected: %s %s %s\n  left:  %s\n  right: %s", a_text, sign, b_text, Side(a_text, a).c_str(),
                      Side(b_text, b).c_str()));
  return false;
}

std::string ShowUint(uint64_t value) {
  return value < 10 ? Printf("%" PRIu64, value) : Printf("%" PRIu64 " (0x%" PRIx64 ")", value, value);
}

std::string ShowPtr(const void *value) { return value ? Printf("%p", value) : "NULL"; }

std::string ShowStr(const char *value) {
  if (!value) return "NULL";
  std::string shown = "\"";
  for (const char *c = value; *c; ++c) {
    if (*c == '\n') {
      shown += "\\n";
    } else if (*c == '"' || *c == '\\') {
      shown += std::string("\\") + *c;
    } else {
      shown += *c;
    }
  }
  return shown + "\"";
}

// Up to 16 bytes from `offset`, in hexadecimal.
std::string ShowBytes(const unsigned char *data, size_t offset, size_t bytes) {
  std::string shown;
  for (size_t i = offset; i < bytes && i < offset + 16; ++i) shown += Printf("%s%02x", i == offset ? "" : " ", data[i]);
  return shown + (bytes > offset + 16 ? " ..." : "");
}

// Reads a number from the environment. Returns false where it is not set; a bad value fails the current test.
bool EnvNumber(const char *name, uint64_t *out) {
  const char *text = getenv(name);
  if (!text || !*text) return false;
  char *end = nullptr;
  errno = 0;
  unsigned long long value = strtoull(text, &end, 0);
  if (errno != 0 || *end != '\0' || strchr(text, '-')) {
    failed = true;
    ADD_FAILURE() << name << " is \"" << text << "\"; it must be a number from 0 to 2^64 - 1";
    return false;
  }
  *out = value;
  return true;
}

// One test as GoogleTest sees it: a case, with one of its parameters.
class CTest : public testing::Test {
 public:
  CTest(const vtest_case *test_case, const void *param) : case_(test_case), param_(param) {}

 protected:
  void SetUp() override {
    seed_known = false;
    failed = false;
    if (case_->fixture_bytes == 0) return;
    fixture_ = calloc(1, case_->fixture_bytes);
    ASSERT_NE(fixture_, nullptr);
    case_->setup(fixture_);
  }
  void TestBody() override { case_->body(fixture_, param_); }
  void TearDown() override {
    if (fixture_) case_->teardown(fixture_);
    free(fixture_);
    fixture_ = nullptr;
  }

 private:
  const vtest_case *case_;
  const void *param_;
  void *fixture_ = nullptr;
};

std::string TestName(const vtest_case *c, size_t index) {
  if (!c->params) return c->name;
  const char *param = static_cast<const char *>(c->params) + index * c->param_bytes;
  std::string name = c->param_name ? c->param_name(param) : std::to_string(index);
  for (char &letter : name) {
    bool plain =
        (letter >= '0' && letter <= '9') || (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
    if (!plain) letter = '_';
  }
  return std::string(c->name) + "/" + name;
}

// Hands every case to GoogleTest. Returns false, with a line on stderr, on two tests of one name or none at all.
bool RegisterAll() {
  std::set<std::string> names;
  for (const vtest_case *c = first_case; c; c = c->next) {
    size_t num = c->params ? c->num_params : 1;
    for (size_t i = 0; i < num; ++i) {
      const void *param = c->params ? static_cast<const char *>(c->params) + i * c->param_bytes : nullptr;
      std::string name = TestName(c, i);
      if (!names.insert(std::string(c->suite) + "." + name).second) {
        fprintf(stderr, "%s:%d: a second test is called %s.%s\n", c->file, c->line, c->suite, name.c_str());
        return false;
      }
      testing::RegisterTest(c->suite, name.c_str(), nullptr, nullptr, c->file, c->line,
                            [c, param]() -> testing::Test * { return new CTest(c, param); });
    }
  }
  if (testing::UnitTest::GetInstance()->total_test_count() == 0) {
    fprintf(stderr, "this binary holds no test\n");
    return false;
  }
  return true;
}

}  // namespace

extern "C" {

void vtest_register(vtest_case *test_case) {
  *last_link = test_case;
  last_link = &test_case->next;
}

bool vtest_expect_int(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, int64_t a,
                      int64_t b) {
  if (Holds(relation, a, b)) return true;
  return ReportPair(site, a_text, Sign(relation), b_text, Printf("%" PRId64, a), Printf("%" PRId64, b));
}

bool vtest_expect_uint(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, uint64_t a,
                       uint64_t b) {
  if (Holds(relation, a, b)) return true;
  return ReportPair(site, a_text, Sign(relation), b_text, ShowUint(a), ShowUint(b));
}

bool vtest_expect_real(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, double a,
                       double b) {
  if (Holds(relation, a, b)) return true;
  return ReportPair(site, a_text, Sign(relation), b_text, Printf("%.17g", a), Printf("%.17g", b));
}

bool vtest_expect_near(vtest_site site, const char *a_text, const char *b_text, double a, double b, double tolerance) {
  if (a == b || std::fabs(a - b) <= tolerance) return true;
  std::string sign = Printf("within %.17g of", tolerance);
  return ReportPair(site, a_text, sign.c_str(), b_text, Printf("%.17g", a), Printf("%.17g", b));
}

bool vtest_expect_ptr(vtest_site site, bool equal, const char *a_text, const char *b_text, const void *a,
                      const void *b) {
  if ((a == b) == equal) return true;
  return ReportPair(site, a_text, equal ? "==" : "!=", b_text, ShowPtr(a), ShowPtr(b));
}

bool vtest_expect_str(vtest_site site, bool equal, const char *a_text, const char *b_text, const char *a,
                      const char *b) {
  bool same = a == b || (a && b && strcmp(a, b) == 0);
  if (same == equal) return true;
  return ReportPair(site, a_text, equal ? "==" : "!=", b_text, ShowStr(a), ShowStr(b));
}

bool vtest_expect_contains(vtest_site site, bool contains, const char *a_text, const char *a, const char *part) {
  bool found = a && part && strstr(a, part) != nullptr;
  if (found == contains) return true;
  Report(site, Printf("expected: %s %s %s\n  it is: %s", a_text, contains ? "contains" : "lacks", ShowStr(part).c_str(),
                      ShowStr(a).c_str()));
  return false;
}

bool vtest_expect_bytes(vtest_site site, const char *a_text, const char *b_text, const void *a, const void *b,
                        size_t bytes) {
  if (bytes == 0 || memcmp(a, b, bytes) == 0) return true;
  const unsigned char *left = static_cast<const unsigned char *>(a);
  const unsigned char *right = static_cast<const unsigned char *>(b);
  size_t first = bytes;
  size_t differing = 0;
  for (size_t i = 0; i < bytes; ++i) {
    if (left[i] == right[i]) continue;
    if (differing++ == 0) first = i;
  }
  Report(site, Printf("expected: %zu bytes at %s equal those at %s\n  %zu differ, the first at offset %zu (0x%zx)\n"
                      "  left:  %s\n  right: %s",
                      bytes, a_text, b_text, differing, first, first, ShowBytes(left, first, bytes).c_str(),
                      ShowBytes(right, first, bytes).c_str()));
  return false;
}

bool vtest_expect_fill(vtest_site site, const char *a_text, const void *a, int value, size_t bytes) {
  const unsigned char *data = static_cast<const unsigned char *>(a);
  unsigned char wanted = static_cast<unsigned char>(value);
  size_t first = 0;
  while (first < bytes && data[first] == wanted) ++first;
  if (first == bytes) return true;
  Report(site, Printf("expected: %zu bytes at %s are all %02x\n  the first other is at offset %zu (0x%zx): %s", bytes,
                      a_text, wanted, first, first, ShowBytes(data, first, bytes).c_str()));
  return false;
}

bool vtest_expect_bool(vtest_site site, const char *text, bool value, bool expected) {
  if (value == expected) return true;
  Report(site, Printf("expected: %s is %s\n  it is %s", text, expected ? "true" : "false", value ? "true" : "false"));
  return false;
}

bool vtest_expect_status(vtest_site site, const char *text, vmp_status status, vmp_status expected) {
  if (status == expected) return true;
  std::string message = Printf("expected: %s gives %s\n  it gave %s (%d)", text, vmp_status_string(expected),
                               vmp_status_string(status), static_cast<int>(status));
  const vmp_error *error = vmp_last_error();
  if (error->status != VMP_OK) {
    message += Printf("\n  last error: %s: %s", vmp_status_string(error->status), error->message);
    if (error->driver_code != 0) message += Printf(" [%s gave %d]", error->driver_call, error->driver_code);
  }
  Report(site, message);
  return false;
}

void vtest_fail(vtest_site site, const char *format, ...) {
  va_list args;
  va_start(args, format);
  std::string message = Format(format, args);
  va_end(args);
  Report(site, message);
}

void vtest_skip(vtest_site site, const char *format, ...) {
  va_list args;
  va_start(args, format);
  std::string reason = Format(format, args);
  va_end(args);
  GTEST_MESSAGE_AT_(site.file, site.line, reason.c_str(), testing::TestPartResult::kSkip);
}

bool vtest_has_failure(void) { return failed; }

int vtest_trace_push(const char *file, int line, const char *format, ...) {
  int depth = num_traces++;
  if (depth >= kMaxTraces) return depth;
  Trace *trace = &traces[depth];
  trace->file = file;
  trace->line = line;
  va_list args;
  va_start(args, format);
  vsnprintf(trace->text, sizeof(trace->text), format, args);
  va_end(args);
  return depth;
}

void vtest_trace_pop(int *depth) { num_traces = *depth; }

uint64_t vtest_seed(uint64_t default_seed) {
  uint64_t seed = default_seed;
  EnvNumber("VMPOOL_SEED", &seed);
  seed_known = true;
  current_seed = seed;
  printf("seed %" PRIu64 " (VMPOOL_SEED=%" PRIu64 " repeats this run)\n", seed, seed);
  fflush(stdout);
  return seed;
}

uint64_t vtest_ops(uint64_t default_ops) {
  uint64_t limit = 0;
  return EnvNumber("VMPOOL_MODEL_OPS", &limit) && limit < default_ops ? limit : default_ops;
}

const char *vtest_traces_dir(void) {
  const char *dir = getenv("VMPOOL_TRACES");
  return dir && *dir ? dir : nullptr;
}

const char *vtest_option(const char *name) {
  std::string prefix = std::string("--") + name + "=";
  for (int i = option_count; i-- > 1;) {
    if (strncmp(options[i], prefix.c_str(), prefix.size()) == 0) return options[i] + prefix.size();
  }
  return nullptr;
}

const char *vtest_temp_dir(void) {
  for (const char *name : {"TEST_TMPDIR", "TMPDIR"}) {
    const char *dir = getenv(name);
    if (dir && *dir) return dir;
  }
  return "/tmp";
}

}  // extern "C"

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  option_count = argc;
  options = argv;
  if (!RegisterAll()) return 2;
  return RUN_ALL_TESTS();
}
