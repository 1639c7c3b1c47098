// json_test.c: pool/json.h, read back by a JSON library of another hand (jansson, strict), and pool/save_file.h.
#include "pool/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pool/save_file.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

typedef struct rig {
  vmp_json json;
  json_t *root;
  char path[512];
} rig;

static void rig_setup(rig *f) {
  (void)snprintf(f->path, sizeof f->path, "%s/json_test.%ld", vtest_temp_dir(), (long)getpid());
  (void)unlink(f->path);
}
static void rig_teardown(rig *f) {
  vmp_json_free(&f->json);
  json_decref(f->root);
  (void)unlink(f->path);
}

static void parse(rig *f) {
  json_error_t error;
  VASSERT_FALSE(vmp_json_failed(&f->json));
  f->root = json_loadb(f->json.text, f->json.length, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
  if (f->root == NULL) VFAIL("line %d: %s: %.*s", error.line, error.text, (int)f->json.length, f->json.text);
}

VTEST_F(Json, EveryKindOfValue, rig) {
  vmp_json *j = &f->json;
  vmp_json_open(j, NULL, '{');
  vmp_json_uint(j, "zero", 0);
  vmp_json_uint(j, "large", INT64_MAX);
  vmp_json_int(j, "negative", INT64_MIN);
  vmp_json_bool(j, "yes", true);
  vmp_json_bool(j, "no", false);
  vmp_json_null(j, "nothing");
  vmp_json_limit(j, "limit", 7);
  vmp_json_limit(j, "none", UINT64_MAX);
  vmp_json_hex(j, "address", UINT64_C(0xfedcba9876543210));
  vmp_json_string(j, "text", "plain");
  vmp_json_string(j, "no_text", NULL);
  vmp_json_close(j);
  parse(f);
  VASSERT_NO_FAILURE();
  VEXPECT_INT_EQ(json_integer_value(json_object_get(f->root, "zero")), 0);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(f->root, "large")), INT64_MAX);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(f->root, "negative")), INT64_MIN);
  VEXPECT_TRUE(json_is_true(json_object_get(f->root, "yes")));
  VEXPECT_TRUE(json_is_false(json_object_get(f->root, "no")));
  VEXPECT_TRUE(json_is_null(json_object_get(f->root, "nothing")));
  VEXPECT_INT_EQ(json_integer_value(json_object_get(f->root, "limit")), 7);
  VEXPECT_TRUE(json_is_null(json_object_get(f->root, "none")));
  VEXPECT_STR_EQ(json_string_value(json_object_get(f->root, "address")), "0xfedcba9876543210");
  VEXPECT_STR_EQ(json_string_value(json_object_get(f->root, "text")), "plain");
  VEXPECT_TRUE(json_is_null(json_object_get(f->root, "no_text")));
  VEXPECT_UINT_EQ(json_object_size(f->root), 11);
}

VTEST_F(Json, NestingAndEmptiness, rig) {
  vmp_json *j = &f->json;
  vmp_json_open(j, NULL, '[');
  vmp_json_open(j, NULL, '{');
  vmp_json_close(j);
  vmp_json_open_inline(j, NULL, '[');
  vmp_json_open(j, NULL, '[');  // stays on the line of the row that holds it
  vmp_json_uint(j, NULL, 1);
  vmp_json_uint(j, NULL, 2);
  vmp_json_close(j);
  vmp_json_open(j, NULL, '[');
  vmp_json_close(j);
  vmp_json_close(j);
  vmp_json_close(j);
  parse(f);
  VASSERT_NO_FAILURE();
  f->json.text[f->json.length - 1] = '\0';  // the last new line
  VEXPECT_STR_EQ(f->json.text, "[\n  {},\n  [[1, 2], []]\n]");
}

typedef struct text_case {
  const char *name, *text, *expected;  // expected NULL: the text itself
} text_case;

static const text_case text_cases[] = {
    {"quotes", "a\"b\\c/d", NULL},
    {"controls", "\a\b\t\n\v\f\r\x1b\x7f", NULL},
    {"empty", "", NULL},
    {"utf8",
     "Gr\xc3\xb6\xc3\x9f"
     "e \xe2\x82\xac \xf0\x9f\x92\xbe",
     NULL},
    {"highest", "\xf4\x8f\xbf\xbf", NULL},
    {"beyond", "\xf4\x90\x80\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"lone_continuation", "a\x80z", "a\xef\xbf\xbdz"},
    {"cut_off", "a\xe2\x82", "a\xef\xbf\xbd\xef\xbf\xbd"},
    {"overlong", "\xc0\xaf", "\xef\xbf\xbd\xef\xbf\xbd"},
    {"overlong3", "\xe0\x80\xaf", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"surrogate", "\xed\xa0\x80", "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd"},
    {"latin1", "caf\xe9", "caf\xef\xbf\xbd"},
};
static const char *text_case_name(const text_case *p) { return p->name; }

VTEST_FP(Json, StringsSurvive, rig, text_case, text_cases, text_case_name) {
  vmp_json_open(&f->json, NULL, '[');
  vmp_json_string(&f->json, NULL, p->text);
  vmp_json_close(&f->json);
  parse(f);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(json_string_value(json_array_get(f->root, 0)), p->expected == NULL ? p->text : p->expected);
}

VTEST_F(Json, TenKilobytesOfEveryByte, rig) {
  char text[10241];
  for (size_t i = 0; i + 1 < sizeof text; i++) text[i] = (char)(1 + i % 127);
  text[sizeof text - 1] = '\0';
  vmp_json_open(&f->json, NULL, '[');
  vmp_json_string(&f->json, NULL, text);
  vmp_json_close(&f->json);
  parse(f);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(json_string_value(json_array_get(f->root, 0)), text);
}

VTEST_F(Json, NoHostMemoryIsSticky, rig) {
  for (uint64_t n = 0; n < 3; n++) {
    vmp_mem_fail_after(n, 1);
    vmp_json_open(&f->json, NULL, '[');
    for (uint64_t i = 0; i < 5000; i++) vmp_json_uint(&f->json, NULL, i);
    vmp_json_close(&f->json);
    VEXPECT_UINT_EQ(vmp_mem_failures(), 1);
    vmp_mem_fail_after(0, 0);
    VEXPECT_TRUE(vmp_json_failed(&f->json));
    vmp_json_free(&f->json);
  }
}

VTEST_F(Json, UnbalancedBracketsFail, rig) {
  vmp_json_open(&f->json, NULL, '[');
  VEXPECT_TRUE(vmp_json_failed(&f->json));
  vmp_json_close(&f->json);
  VEXPECT_FALSE(vmp_json_failed(&f->json));
  vmp_json_close(&f->json);
  VEXPECT_TRUE(vmp_json_failed(&f->json));
  vmp_json_free(&f->json);
  for (int i = 0; i <= VMP_JSON_MAX_DEPTH; i++) vmp_json_open(&f->json, NULL, '[');
  VEXPECT_TRUE(f->json.failed);
}

// ---- save_file ----

static void expect_content(const char *path, const char *text) {
  char buffer[256] = {0};
  FILE *file = fopen(path, "r");
  VASSERT_NOT_NULL(file);
  size_t length = fread(buffer, 1, sizeof buffer - 1, file);
  (void)fclose(file);
  VEXPECT_UINT_EQ(length, strlen(text));
  VEXPECT_STR_EQ(buffer, text);
}

// temporary_left says whether a temporary file of `path` is left behind.
static bool temporary_left(const char *path) {
  char name[600];
  (void)snprintf(name, sizeof name, "%s.%ld-0.tmp", path, (long)getpid());
  return access(name, F_OK) == 0;
}

VTEST_F(SaveFile, WritesAndReplaces, rig) {
  VASSERT_OK(vmp_save_file(f->path, "one", 3));
  expect_content(f->path, "one");
  VASSERT_OK(vmp_save_file(f->path, "three", 5));
  expect_content(f->path, "three");
  VASSERT_OK(vmp_save_file(f->path, "", 0));
  expect_content(f->path, "");
  VEXPECT_FALSE(temporary_left(f->path));
}

VTEST_F(SaveFile, AReaderOfTheOldFileKeepsIt, rig) {
  VASSERT_OK(vmp_save_file(f->path, "old", 3));
  FILE *reader = fopen(f->path, "r");
  VASSERT_NOT_NULL(reader);
  VEXPECT_OK(vmp_save_file(f->path, "new text", 8));
  char buffer[16] = {0};
  VEXPECT_UINT_EQ(fread(buffer, 1, sizeof buffer, reader), 3);
  VEXPECT_STR_EQ(buffer, "old");
  (void)fclose(reader);
}

VTEST_F(SaveFile, WhatCannotBeWritten, rig) {
  char nowhere[600];
  (void)snprintf(nowhere, sizeof nowhere, "%s/no/such/folder", f->path);
  VEXPECT_STATUS(vmp_save_file(nowhere, "x", 1), VMP_ERROR_IO);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, nowhere);
  VEXPECT_STATUS(vmp_save_file(vtest_temp_dir(), "x", 1), VMP_ERROR_IO);
  VEXPECT_STATUS(vmp_save_file("", "x", 1), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_save_file(NULL, "x", 1), VMP_ERROR_INVALID_VALUE);
  vmp_mem_fail_after(0, 1);
  VEXPECT_STATUS(vmp_save_file(f->path, "x", 1), VMP_ERROR_HOST_OUT_OF_MEMORY);
  vmp_mem_fail_after(0, 0);
}

VTEST_F(SaveFile, AFullDeviceIsReported, rig) {
  if (access("/dev/full", W_OK) != 0) VSKIP("/dev/full can't be written here");
  VEXPECT_STATUS(vmp_save_file("/dev/full", "x", 1), VMP_ERROR_IO);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "/dev/full");
  VEXPECT_OK(vmp_save_file("/dev/null", "x", 1));
  struct stat info;
  VASSERT_INT_EQ(stat("/dev/null", &info), 0);
  VEXPECT_TRUE(S_ISCHR(info.st_mode));  // it was written, not replaced
}

VTEST_F(SaveFile, AFailedWriteLeavesTheOldFile, rig) {
  VASSERT_OK(vmp_save_file(f->path, "old", 3));
  size_t size = 1 << 20;
  char *text = calloc(size, 1);
  VASSERT_NOT_NULL(text);
  struct rlimit before, small;
  VASSERT_INT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  small = before;
  small.rlim_cur = 4096;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  VASSERT_INT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  vmp_status status = vmp_save_file(f->path, text, size);
  VASSERT_INT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  (void)signal(SIGXFSZ, handler);
  free(text);
  VEXPECT_STATUS(status, VMP_ERROR_IO);
  expect_content(f->path, "old");
  VEXPECT_FALSE(temporary_left(f->path));
}

VTEST_F(SaveFile, AForeignTemporaryFileIsLeftAlone, rig) {
  char name[600];
  (void)snprintf(name, sizeof name, "%s.%ld-0.tmp", f->path, (long)getpid());
  VASSERT_OK(vmp_save_file(name, "foreign", 7));
  VEXPECT_OK(vmp_save_file(f->path, "mine", 4));
  expect_content(name, "foreign");
  expect_content(f->path, "mine");
  (void)unlink(name);
}
