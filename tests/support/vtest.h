// vtest.h: tests in C, run by GoogleTest.
//
// Owns: registration of C tests, the VEXPECT_ and VASSERT_ macros, skipping, scoped traces, the test's seed.
// Does not own: running, filtering, sharding and reporting; that is GoogleTest's, with all its flags
// (--gtest_filter, --gtest_repeat, ...). vtest.cc holds main(), so a test binary is C files + vtest.cc + gtest.
//
//     VTEST(Buddy, SplitsDownToTheOrder) {          // a plain test
//       VEXPECT_UINT_EQ(buddy_free_slots(&b), 64);
//     }
//
//     typedef struct rig { vmp_driver *driver; } rig;           // a fixture: starts out zeroed
//     static void rig_setup(rig *f) { VASSERT_OK(vmp_host_open(&f->driver, NULL)); }
//     static void rig_teardown(rig *f) { vmp_driver_close(f->driver); }
//     VTEST_F(Backing, ClaimMapsAll, rig) { ... f->driver ... }
//
//     static const mode modes[] = {{"late", 0}, {"early", 1}};   // parameters: one test per element
//     static const char *mode_name(const mode *p) { return p->name; }
//     VTEST_P(Work, Completes, mode, modes, mode_name) { ... p->work ... }      // Work.Completes/late, ...
//     VTEST_FP(Work, Unmaps, rig, mode, modes, mode_name) { ... f and p ... }
//
// Rules
//   - VEXPECT_* records a failure and goes on; VASSERT_* also returns from the function it stands in, which
//     must return void. A VASSERT that fails in a setup function keeps the body from running; the teardown
//     function runs in every case, so it must cope with a zeroed or half-filled fixture.
//   - Every macro evaluates each argument once and reports file, line, both expressions and both values.
//   - Where a macro names an order, it is (actual, expected).
//   - Failures may be reported from any thread; a failing VASSERT ends only the function it stands in.
#ifndef VMPOOL_TESTS_SUPPORT_VTEST_H_
#define VMPOOL_TESTS_SUPPORT_VTEST_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "vmm/status.h"

#ifdef __cplusplus
extern "C" {
#endif

// ---- registration ----

// vtest_case: one VTEST, linked into the list of all before main() starts. Filled in by the macros only.
typedef struct vtest_case {
  const char *suite, *name, *file;
  int line;
  void (*body)(void *fixture, const void *param);
  size_t fixture_bytes;  // 0: no fixture
  void (*setup)(void *fixture);
  void (*teardown)(void *fixture);
  const void *params;  // NULL: not parameterised
  size_t num_params, param_bytes;
  const char *(*param_name)(const void *param);  // NULL: the parameter's index is its name
  struct vtest_case *next;
} vtest_case;

void vtest_register(vtest_case *test_case);

#define VTEST_CAT_(a, b) a##b
#define VTEST_UNUSED_ __attribute__((unused))
#define VTEST_REGISTER_(suite, name, ...)                                                                   \
  __attribute__((constructor)) static void vtest_register_##suite##_##name(void) {                          \
    static vtest_case self = {#suite, #name, __FILE__, __LINE__, vtest_call_##suite##_##name, __VA_ARGS__}; \
    vtest_register(&self);                                                                                  \
  }

// VTEST(suite, name) { body }
#define VTEST(suite, name)                                                    \
  static void vtest_body_##suite##_##name(void);                              \
  static void vtest_call_##suite##_##name(void *fixture, const void *param) { \
    (void)fixture;                                                            \
    (void)param;                                                              \
    vtest_body_##suite##_##name();                                            \
  }                                                                           \
  VTEST_REGISTER_(suite, name, 0, NULL, NULL, NULL, 0, 0, NULL, NULL)         \
  static void vtest_body_##suite##_##name(void)

// VTEST_F(suite, name, fixture_type) { body sees `fixture_type *f` }. FIXTURE_TYPE_setup(fixture_type *) and
// FIXTURE_TYPE_teardown(fixture_type *) must be declared before.
#define VTEST_F(suite, name, fixture_type)                                                                          \
  static void vtest_body_##suite##_##name(fixture_type *f);                                                         \
  static void vtest_call_##suite##_##name(void *fixture, const void *param) {                                       \
    (void)param;                                                                                                    \
    vtest_body_##suite##_##name((fixture_type *)fixture);                                                           \
  }                                                                                                                 \
  VTEST_FIXTURE_(suite, name, fixture_type)                                                                         \
  VTEST_REGISTER_(suite, name, sizeof(fixture_type), vtest_setup_##suite##_##name, vtest_teardown_##suite##_##name, \
                  NULL, 0, 0, NULL, NULL)                                                                           \
  static void vtest_body_##suite##_##name(fixture_type *f VTEST_UNUSED_)

// VTEST_P(suite, name, param_type, table, name_function) { body sees `const param_type *p` }. `table` is an
// array with static storage; name_function(const param_type *) returns a short name, unique in the table, whose
// characters other than letters and digits become '_'.
#define VTEST_P(suite, name, param_type, table, name_function)                                               \
  static void vtest_body_##suite##_##name(const param_type *p);                                              \
  static void vtest_call_##suite##_##name(void *fixture, const void *param) {                                \
    (void)fixture;                                                                                           \
    vtest_body_##suite##_##name((const param_type *)param);                                                  \
  }                                                                                                          \
  VTEST_PARAM_NAME_(suite, name, param_type, name_function)                                                  \
  VTEST_REGISTER_(suite, name, 0, NULL, NULL, table, sizeof(table) / sizeof((table)[0]), sizeof((table)[0]), \
                  vtest_param_name_##suite##_##name, NULL)                                                   \
  static void vtest_body_##suite##_##name(const param_type *p VTEST_UNUSED_)

// VTEST_FP: a fixture `f` and a parameter `p`. The setup function doesn't see the parameter.
#define VTEST_FP(suite, name, fixture_type, param_type, table, name_function)                                       \
  static void vtest_body_##suite##_##name(fixture_type *f, const param_type *p);                                    \
  static void vtest_call_##suite##_##name(void *fixture, const void *param) {                                       \
    vtest_body_##suite##_##name((fixture_type *)fixture, (const param_type *)param);                                \
  }                                                                                                                 \
  VTEST_FIXTURE_(suite, name, fixture_type)                                                                         \
  VTEST_PARAM_NAME_(suite, name, param_type, name_function)                                                         \
  VTEST_REGISTER_(suite, name, sizeof(fixture_type), vtest_setup_##suite##_##name, vtest_teardown_##suite##_##name, \
                  table, sizeof(table) / sizeof((table)[0]), sizeof((table)[0]), vtest_param_name_##suite##_##name, \
                  NULL)                                                                                             \
  static void vtest_body_##suite##_##name(fixture_type *f VTEST_UNUSED_, const param_type *p VTEST_UNUSED_)

#define VTEST_FIXTURE_(suite, name, fixture_type)                                                            \
  static void vtest_setup_##suite##_##name(void *f) { VTEST_CAT_(fixture_type, _setup)((fixture_type *)f); } \
  static void vtest_teardown_##suite##_##name(void *f) { VTEST_CAT_(fixture_type, _teardown)((fixture_type *)f); }
#define VTEST_PARAM_NAME_(suite, name, param_type, name_function)           \
  static const char *vtest_param_name_##suite##_##name(const void *param) { \
    return name_function((const param_type *)param);                        \
  }

// ---- expectations ----
typedef enum vtest_relation {
  VTEST_RELATION_EQ,
  VTEST_RELATION_NE,
  VTEST_RELATION_LT,
  VTEST_RELATION_LE,
  VTEST_RELATION_GT,
  VTEST_RELATION_GE,
} vtest_relation;

// vtest_site: where an expectation stands and whether its failure is fatal (VASSERT) or not (VEXPECT).
typedef struct vtest_site {
  const char *file;
  int line;
  bool fatal;
} vtest_site;

// The functions behind the macros: each returns whether the expectation holds, and reports if it doesn't.
bool vtest_expect_int(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, int64_t a,
                      int64_t b);
bool vtest_expect_uint(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, uint64_t a,
                       uint64_t b);
bool vtest_expect_real(vtest_site site, vtest_relation relation, const char *a_text, const char *b_text, double a,
                       double b);
bool vtest_expect_near(vtest_site site, const char *a_text, const char *b_text, double a, double b, double tolerance);
bool vtest_expect_ptr(vtest_site site, bool equal, const char *a_text, const char *b_text, const void *a,
                      const void *b);
bool vtest_expect_str(vtest_site site, bool equal, const char *a_text, const char *b_text, const char *a,
                      const char *b);
bool vtest_expect_contains(vtest_site site, bool contains, const char *a_text, const char *a, const char *part);
bool vtest_expect_bytes(vtest_site site, const char *a_text, const char *b_text, const void *a, const void *b,
                        size_t bytes);
bool vtest_expect_fill(vtest_site site, const char *a_text, const void *a, int value, size_t bytes);
bool vtest_expect_bool(vtest_site site, const char *text, bool value, bool expected);
bool vtest_expect_status(vtest_site site, const char *text, vmp_status status, vmp_status expected);
void vtest_fail(vtest_site site, const char *format, ...) VMP_PRINTF(2, 3);
void vtest_skip(vtest_site site, const char *format, ...) VMP_PRINTF(2, 3);

#define VTEST_HERE_(fatal) ((vtest_site){__FILE__, __LINE__, fatal})
#define VTEST_SOFT_(kind, ...) ((void)vtest_expect_##kind(VTEST_HERE_(false), __VA_ARGS__))
#define VTEST_HARD_(kind, ...)                                        \
  do {                                                                \
    if (!vtest_expect_##kind(VTEST_HERE_(true), __VA_ARGS__)) return; \
  } while (0)

// Signed integers, compared as int64_t.
#define VEXPECT_INT_EQ(a, b) VTEST_SOFT_(int, VTEST_RELATION_EQ, #a, #b, a, b)
#define VEXPECT_INT_NE(a, b) VTEST_SOFT_(int, VTEST_RELATION_NE, #a, #b, a, b)
#define VEXPECT_INT_LT(a, b) VTEST_SOFT_(int, VTEST_RELATION_LT, #a, #b, a, b)
#define VEXPECT_INT_LE(a, b) VTEST_SOFT_(int, VTEST_RELATION_LE, #a, #b, a, b)
#define VEXPECT_INT_GT(a, b) VTEST_SOFT_(int, VTEST_RELATION_GT, #a, #b, a, b)
#define VEXPECT_INT_GE(a, b) VTEST_SOFT_(int, VTEST_RELATION_GE, #a, #b, a, b)
#define VASSERT_INT_EQ(a, b) VTEST_HARD_(int, VTEST_RELATION_EQ, #a, #b, a, b)
#define VASSERT_INT_NE(a, b) VTEST_HARD_(int, VTEST_RELATION_NE, #a, #b, a, b)
#define VASSERT_INT_LT(a, b) VTEST_HARD_(int, VTEST_RELATION_LT, #a, #b, a, b)
#define VASSERT_INT_LE(a, b) VTEST_HARD_(int, VTEST_RELATION_LE, #a, #b, a, b)
#define VASSERT_INT_GT(a, b) VTEST_HARD_(int, VTEST_RELATION_GT, #a, #b, a, b)
#define VASSERT_INT_GE(a, b) VTEST_HARD_(int, VTEST_RELATION_GE, #a, #b, a, b)

// Sizes, offsets, addresses as numbers, counts: compared as uint64_t, shown in decimal and hexadecimal.
#define VEXPECT_UINT_EQ(a, b) VTEST_SOFT_(uint, VTEST_RELATION_EQ, #a, #b, a, b)
#define VEXPECT_UINT_NE(a, b) VTEST_SOFT_(uint, VTEST_RELATION_NE, #a, #b, a, b)
#define VEXPECT_UINT_LT(a, b) VTEST_SOFT_(uint, VTEST_RELATION_LT, #a, #b, a, b)
#define VEXPECT_UINT_LE(a, b) VTEST_SOFT_(uint, VTEST_RELATION_LE, #a, #b, a, b)
#define VEXPECT_UINT_GT(a, b) VTEST_SOFT_(uint, VTEST_RELATION_GT, #a, #b, a, b)
#define VEXPECT_UINT_GE(a, b) VTEST_SOFT_(uint, VTEST_RELATION_GE, #a, #b, a, b)
#define VASSERT_UINT_EQ(a, b) VTEST_HARD_(uint, VTEST_RELATION_EQ, #a, #b, a, b)
#define VASSERT_UINT_NE(a, b) VTEST_HARD_(uint, VTEST_RELATION_NE, #a, #b, a, b)
#define VASSERT_UINT_LT(a, b) VTEST_HARD_(uint, VTEST_RELATION_LT, #a, #b, a, b)
#define VASSERT_UINT_LE(a, b) VTEST_HARD_(uint, VTEST_RELATION_LE, #a, #b, a, b)
#define VASSERT_UINT_GT(a, b) VTEST_HARD_(uint, VTEST_RELATION_GT, #a, #b, a, b)
#define VASSERT_UINT_GE(a, b) VTEST_HARD_(uint, VTEST_RELATION_GE, #a, #b, a, b)

// Floating point. NaN fulfils no relation but NE, and is near to nothing.
#define VEXPECT_REAL_LT(a, b) VTEST_SOFT_(real, VTEST_RELATION_LT, #a, #b, a, b)
#define VEXPECT_REAL_LE(a, b) VTEST_SOFT_(real, VTEST_RELATION_LE, #a, #b, a, b)
#define VEXPECT_REAL_GT(a, b) VTEST_SOFT_(real, VTEST_RELATION_GT, #a, #b, a, b)
#define VEXPECT_REAL_GE(a, b) VTEST_SOFT_(real, VTEST_RELATION_GE, #a, #b, a, b)
#define VASSERT_REAL_LT(a, b) VTEST_HARD_(real, VTEST_RELATION_LT, #a, #b, a, b)
#define VASSERT_REAL_LE(a, b) VTEST_HARD_(real, VTEST_RELATION_LE, #a, #b, a, b)
#define VASSERT_REAL_GT(a, b) VTEST_HARD_(real, VTEST_RELATION_GT, #a, #b, a, b)
#define VASSERT_REAL_GE(a, b) VTEST_HARD_(real, VTEST_RELATION_GE, #a, #b, a, b)
#define VEXPECT_NEAR(a, b, tolerance) VTEST_SOFT_(near, #a, #b, a, b, tolerance)
#define VASSERT_NEAR(a, b, tolerance) VTEST_HARD_(near, #a, #b, a, b, tolerance)

// Pointers to objects (device addresses too).
#define VEXPECT_PTR_EQ(a, b) VTEST_SOFT_(ptr, true, #a, #b, a, b)
#define VEXPECT_PTR_NE(a, b) VTEST_SOFT_(ptr, false, #a, #b, a, b)
#define VEXPECT_NULL(a) VTEST_SOFT_(ptr, true, #a, "NULL", a, NULL)
#define VEXPECT_NOT_NULL(a) VTEST_SOFT_(ptr, false, #a, "NULL", a, NULL)
#define VASSERT_PTR_EQ(a, b) VTEST_HARD_(ptr, true, #a, #b, a, b)
#define VASSERT_PTR_NE(a, b) VTEST_HARD_(ptr, false, #a, #b, a, b)
#define VASSERT_NULL(a) VTEST_HARD_(ptr, true, #a, "NULL", a, NULL)
#define VASSERT_NOT_NULL(a) VTEST_HARD_(ptr, false, #a, "NULL", a, NULL)

// Strings; NULL equals only NULL and contains nothing.
#define VEXPECT_STR_EQ(a, b) VTEST_SOFT_(str, true, #a, #b, a, b)
#define VEXPECT_STR_NE(a, b) VTEST_SOFT_(str, false, #a, #b, a, b)
#define VEXPECT_STR_CONTAINS(a, part) VTEST_SOFT_(contains, true, #a, a, part)
#define VEXPECT_STR_LACKS(a, part) VTEST_SOFT_(contains, false, #a, a, part)
#define VASSERT_STR_EQ(a, b) VTEST_HARD_(str, true, #a, #b, a, b)
#define VASSERT_STR_NE(a, b) VTEST_HARD_(str, false, #a, #b, a, b)
#define VASSERT_STR_CONTAINS(a, part) VTEST_HARD_(contains, true, #a, a, part)
#define VASSERT_STR_LACKS(a, part) VTEST_HARD_(contains, false, #a, a, part)

// Memory: equal to other memory, or `size` times one value. Reports the first differing offset.
#define VEXPECT_BYTES_EQ(a, b, size) VTEST_SOFT_(bytes, #a, #b, a, b, size)
#define VEXPECT_BYTES_FILLED(a, value, size) VTEST_SOFT_(fill, #a, a, value, size)
#define VASSERT_BYTES_EQ(a, b, size) VTEST_HARD_(bytes, #a, #b, a, b, size)
#define VASSERT_BYTES_FILLED(a, value, size) VTEST_HARD_(fill, #a, a, value, size)

#define VEXPECT_TRUE(a) VTEST_SOFT_(bool, #a, a, true)
#define VEXPECT_FALSE(a) VTEST_SOFT_(bool, #a, a, false)
#define VASSERT_TRUE(a) VTEST_HARD_(bool, #a, a, true)
#define VASSERT_FALSE(a) VTEST_HARD_(bool, #a, a, false)

// Statuses by name; a failure also shows the calling thread's vmp_last_error.
#define VEXPECT_STATUS(a, expected) VTEST_SOFT_(status, #a, a, expected)
#define VEXPECT_OK(a) VTEST_SOFT_(status, #a, a, VMP_OK)
#define VASSERT_STATUS(a, expected) VTEST_HARD_(status, #a, a, expected)
#define VASSERT_OK(a) VTEST_HARD_(status, #a, a, VMP_OK)

// VADD_FAILURE(format, ...) records a failure and goes on; VFAIL also returns.
#define VADD_FAILURE(...) vtest_fail(VTEST_HERE_(false), __VA_ARGS__)
#define VFAIL(...)                              \
  do {                                          \
    vtest_fail(VTEST_HERE_(true), __VA_ARGS__); \
    return;                                     \
  } while (0)

// VASSERT_NO_FAILURE() returns if the current test has failed already, for use after a helper function.
#define VASSERT_NO_FAILURE()         \
  do {                               \
    if (vtest_has_failure()) return; \
  } while (0)

// VSKIP(format, ...) reports the test as skipped, with the reason, and returns. CI lists every skipped test.
#define VSKIP(...)                               \
  do {                                           \
    vtest_skip(VTEST_HERE_(false), __VA_ARGS__); \
    return;                                      \
  } while (0)

// vtest_has_failure says whether the current test has recorded a failure.
bool vtest_has_failure(void);

// ---- traces ----
// VTRACE(format, ...): until the enclosing block ends, failures of this thread also show this text. At most 16
// deep (deeper ones are dropped), 200 characters each. Costs one vsnprintf: fit for loops of millions.
#define VTRACE(...)                                                                   \
  __attribute__((cleanup(vtest_trace_pop), unused)) int VTEST_TRACE_NAME_(__LINE__) = \
      vtest_trace_push(__FILE__, __LINE__, __VA_ARGS__)
#define VTEST_TRACE_NAME_(line) VTEST_TRACE_NAME2_(line)
#define VTEST_TRACE_NAME2_(line) vtest_trace_##line
int vtest_trace_push(const char *file, int line, const char *format, ...) VMP_PRINTF(3, 4);
void vtest_trace_pop(int *depth);

// ---- the test's surroundings ----
// vtest_seed returns VMPOOL_SEED (decimal or 0x...) where that is set, else `default_seed`; prints it, and shows it
// with every later failure of the test. A VMPOOL_SEED that is no number fails the test.
uint64_t vtest_seed(uint64_t default_seed);

// vtest_ops returns how many operations a random test runs: `default_ops`, or VMPOOL_MODEL_OPS where that is
// smaller (the sanitizer configurations set it).
uint64_t vtest_ops(uint64_t default_ops);

// vtest_traces_dir returns the folder of recorded traces (VMPOOL_TRACES), or NULL where none is named. A test
// that needs it: if (!vtest_traces_dir()) VSKIP("VMPOOL_TRACES is not set");
const char *vtest_traces_dir(void);

// vtest_option returns the value of `--NAME=VALUE` on the test's command line, the last one where there are several, or
// NULL: for tests that run on more than one driver. Static storage.
const char *vtest_option(const char *name);

// vtest_temp_dir returns a folder in which a test may write: TEST_TMPDIR, else TMPDIR, else /tmp. Tests of one
// binary share it. Static storage.
const char *vtest_temp_dir(void);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_TESTS_SUPPORT_VTEST_H_
