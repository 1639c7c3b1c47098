// faults.h: collects what a `_check()` reports, for tests of invariants and for tests of the checks themselves.
//
//     vtest_faults faults = vtest_faults_make();
//     vmp_report report = vtest_faults_report(&faults);
//     VEXPECT_UINT_EQ(vmp_mid_check(mid, &report), 0);
//     VEXPECT_NO_FAULTS(&faults);                          // shows the sentences where there are some
//     VEXPECT_ONE_FAULT(&faults, "is linked twice");       // exactly one, and this one
#ifndef VMPOOL_TESTS_SUPPORT_FAULTS_H_
#define VMPOOL_TESTS_SUPPORT_FAULTS_H_

#include "tests/support/vtest.h"
#include "vmm/error.h"

#define VTEST_MAX_FAULTS 16

// vtest_faults: the first sentences, and how many there were. Not thread-safe.
typedef struct vtest_faults {
  size_t count;
  char sentences[VTEST_MAX_FAULTS][256];
} vtest_faults;

static inline vtest_faults vtest_faults_make(void) { return (vtest_faults){0}; }

// vtest_faults_report returns a report that fills `faults`, which must outlive it.
vmp_report vtest_faults_report(vtest_faults *faults);

// vtest_faults_text joins the sentences into `buffer`, one a line; returns `buffer`.
const char *vtest_faults_text(const vtest_faults *faults, char *buffer, size_t size);

// vtest_faults_find says whether some kept sentence contains `part`.
bool vtest_faults_find(const vtest_faults *faults, const char *part);

// The functions behind the macros.
bool vtest_expect_no_faults(vtest_site site, const char *text, const vtest_faults *faults);
bool vtest_expect_one_fault(vtest_site site, const char *text, const vtest_faults *faults, const char *part);
bool vtest_expect_a_fault(vtest_site site, const char *text, const vtest_faults *faults, const char *part);

#define VEXPECT_NO_FAULTS(faults) VTEST_SOFT_(no_faults, #faults, faults)
#define VASSERT_NO_FAULTS(faults) VTEST_HARD_(no_faults, #faults, faults)
#define VEXPECT_ONE_FAULT(faults, part) VTEST_SOFT_(one_fault, #faults, faults, part)
#define VASSERT_ONE_FAULT(faults, part) VTEST_HARD_(one_fault, #faults, faults, part)
// At least one, and this one is among them.
#define VEXPECT_A_FAULT(faults, part) VTEST_SOFT_(a_fault, #faults, faults, part)
#define VASSERT_A_FAULT(faults, part) VTEST_HARD_(a_fault, #faults, faults, part)

#endif  // VMPOOL_TESTS_SUPPORT_FAULTS_H_
