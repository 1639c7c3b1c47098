// name_table_test.c: equal texts have one number, whatever comes in between; failures change nothing; the check
// notices.
#include "pool/name_table.h"

#include <stdio.h>
#include <string.h>

#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

typedef struct names {
  vmp_name_table table;
} names;

static void names_setup(names *f) { (void)f; }
static void names_teardown(names *f) {
  vmp_mem_fail_after(0, 0);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_name_table_check(&f->table, &report);
  VEXPECT_NO_FAULTS(&faults);
  vmp_name_table_free(&f->table);
}

static uint32_t intern(names *f, const char *text) {
  uint32_t name = UINT32_MAX;
  VEXPECT_OK(vmp_name_intern(&f->table, text, &name));
  return name;
}

VTEST_F(NameTable, EqualTextsHaveOneNumber, names) {
  uint32_t weights = intern(f, "weights"), kv = intern(f, "kv");
  char copy[] = "weights";
  VEXPECT_UINT_NE(weights, kv);
  VEXPECT_UINT_EQ(intern(f, copy), weights);
  copy[0] = 'x';
  VEXPECT_STR_EQ(vmp_name_text(&f->table, weights), "weights");
  VEXPECT_UINT_EQ(intern(f, NULL), 0);
  VEXPECT_UINT_EQ(intern(f, ""), 0);
  VEXPECT_TRUE(vmp_name_text(&f->table, 0) == NULL);
}

VTEST_F(NameTable, ManyNamesKeepTheirNumbersAndAddresses, names) {
  char text[32];
  const char *first = NULL;
  for (uint32_t i = 1; i <= 5000; i++) {
    snprintf(text, sizeof text, "name %u", i);
    VASSERT_UINT_EQ(intern(f, text), i);
    if (i == 1) first = vmp_name_text(&f->table, 1);
  }
  VEXPECT_TRUE(first == vmp_name_text(&f->table, 1));
  for (uint32_t i = 1; i <= 5000; i++) {
    snprintf(text, sizeof text, "name %u", i);
    VASSERT_UINT_EQ(intern(f, text), i);
    VASSERT_STR_EQ(vmp_name_text(&f->table, i), text);
  }
  VEXPECT_UINT_GE(vmp_name_table_metadata_bytes(&f->table), 5000 * 8);
}

VTEST_F(NameTable, TheLongestNameIs255Bytes, names) {
  char text[258];
  memset(text, 'a', sizeof text);
  text[255] = '\0';
  VEXPECT_UINT_EQ(intern(f, text), 1);
  text[255] = 'a';
  text[256] = '\0';
  uint32_t name = 7;
  VEXPECT_INT_EQ(vmp_name_intern(&f->table, text, &name), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(name, 7);
}

VTEST_F(NameTable, WithoutHostMemoryNothingChanges, names) {
  char text[32];
  uint64_t refused = 0;
  for (uint32_t i = 1; i <= 200; i++) {
    snprintf(text, sizeof text, "name %u", i);
    for (uint64_t fail = 0; fail < 4; fail++) {
      uint32_t name = 0, count = f->table.count;
      vmp_mem_fail_after(fail, 1);
      vmp_status status = vmp_name_intern(&f->table, text, &name);
      vmp_mem_fail_after(0, 0);
      if (status == VMP_OK) break;
      VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
      VASSERT_UINT_EQ(f->table.count, count);
      refused++;
    }
    VASSERT_UINT_EQ(intern(f, text), i);
  }
  VEXPECT_UINT_GT(refused, 200);
}

VTEST_F(NameTable, TheCheckNoticesACorruptedTable, names) {
  (void)intern(f, "a");
  (void)intern(f, "b");
  for (int kind = 0; kind < 3; kind++) {
    vtest_faults faults = vtest_faults_make();
    vmp_report report = vtest_faults_report(&faults);
    size_t at = 0;
    while (f->table.places[at] != 1) at++;
    if (kind == 0) f->table.places[at] = 0;
    if (kind == 1) f->table.places[at] = 3;
    if (kind == 2) f->table.texts[1][0] = 'b';
    (void)vmp_name_table_check(&f->table, &report);
    VEXPECT_UINT_GT(faults.count, 0);
    f->table.places[at] = 1;
    f->table.texts[1][0] = 'a';
  }
}
