// faults.c: see faults.h.
#include "tests/support/faults.h"

#include <stdio.h>
#include <string.h>

static void keep(void *context, const char *sentence) {
  vtest_faults *faults = context;
  if (faults->count < VTEST_MAX_FAULTS) {
    snprintf(faults->sentences[faults->count], sizeof(faults->sentences[0]), "%s", sentence);
  }
  faults->count++;
}

vmp_report vtest_faults_report(vtest_faults *faults) { return (vmp_report){.write = keep, .context = faults}; }

static size_t kept(const vtest_faults *faults) {
  return faults->count < VTEST_MAX_FAULTS ? faults->count : VTEST_MAX_FAULTS;
}

const char *vtest_faults_text(const vtest_faults *faults, char *buffer, size_t size) {
  size_t used = 0;
  buffer[0] = '\0';
  for (size_t i = 0; i < kept(faults) && used < size; i++) {
    int length = snprintf(buffer + used, size - used, "%s\n", faults->sentences[i]);
    used += length > 0 ? (size_t)length : 0;
  }
  return buffer;
}

bool vtest_faults_find(const vtest_faults *faults, const char *part) {
  for (size_t i = 0; i < kept(faults); i++) {
    if (strstr(faults->sentences[i], part)) return true;
  }
  return false;
}

static bool unexpected(vtest_site site, const char *text, const vtest_faults *faults, const char *wanted) {
  char all[VTEST_MAX_FAULTS * 257];
  vtest_fail(site, "expected: %s holds %s\n  it holds %zu:\n%s", text, wanted, faults->count,
             vtest_faults_text(faults, all, sizeof(all)));
  return false;
}

bool vtest_expect_no_faults(vtest_site site, const char *text, const vtest_faults *faults) {
  return faults->count == 0 || unexpected(site, text, faults, "no fault");
}

bool vtest_expect_one_fault(vtest_site site, const char *text, const vtest_faults *faults, const char *part) {
  if (faults->count == 1 && vtest_faults_find(faults, part)) return true;
  char wanted[300];
  snprintf(wanted, sizeof(wanted), "one fault, \"%s\"", part);
  return unexpected(site, text, faults, wanted);
}

bool vtest_expect_a_fault(vtest_site site, const char *text, const vtest_faults *faults, const char *part) {
  if (vtest_faults_find(faults, part)) return true;
  char wanted[300];
  snprintf(wanted, sizeof(wanted), "a fault \"%s\"", part);
  return unexpected(site, text, faults, wanted);
}
