#include "tools/common/output.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/vtest.h"
#include "tools/common/file.h"

typedef struct place {
  char folder[512], path[600];
} place;
static void place_setup(place *f) {
  snprintf(f->folder, sizeof(f->folder), "%s/output-XXXXXX", vtest_temp_dir());
  VASSERT_NOT_NULL(mkdtemp(f->folder));
  snprintf(f->path, sizeof(f->path), "%s/figures.json", f->folder);
}
static void place_teardown(place *f) {
  unlink(f->path);
  VEXPECT_INT_EQ(rmdir(f->folder), 0);  // nothing else is left in it
}

static void expect_content(const char *path, const char *expected) {
  tool_error error = {{0}};
  file_text file;
  VASSERT_TRUE(file_load(&file, path, &error));
  VEXPECT_UINT_EQ(file.bytes, strlen(expected));
  if (file.bytes == strlen(expected)) VEXPECT_BYTES_EQ(file.text, expected, file.bytes);
  free(file.text);
}

VTEST_F(Output, TheFileAppearsWhenItIsComplete, place) {
  output out;
  tool_error error = {{0}};
  VASSERT_TRUE(output_open(&out, f->path, &error));
  fputs("one", out.file);
  VEXPECT_INT_NE(access(f->path, F_OK), 0);
  VEXPECT_TRUE(output_finish(&out, &error));
  expect_content(f->path, "one");
  VASSERT_TRUE(output_open(&out, f->path, &error));
  fputs("two", out.file);
  output_discard(&out);
  expect_content(f->path, "one");  // what was there stays
  VASSERT_TRUE(output_open(&out, f->path, &error));
  fputs("three", out.file);
  VEXPECT_TRUE(output_finish(&out, &error));
  expect_content(f->path, "three");
  struct stat status;
  VASSERT_INT_EQ(stat(f->path, &status), 0);
  const mode_t mask = umask(0);
  umask(mask);
  VEXPECT_INT_EQ(status.st_mode & 0777, 0666 & ~mask);
}

VTEST(Output, ADeviceIsWrittenInPlace) {
  output out;
  tool_error error = {{0}};
  struct stat status;
  VASSERT_TRUE(output_open(&out, "/dev/null", &error));
  fputs("gone", out.file);
  VEXPECT_TRUE(output_finish(&out, &error));
  VASSERT_INT_EQ(stat("/dev/null", &status), 0);
  VEXPECT_TRUE(S_ISCHR(status.st_mode));
}

VTEST(Output, FailuresAreSentences) {
  output out;
  tool_error error = {{0}};
  VEXPECT_FALSE(output_open(&out, "no/such/folder/file", &error));
  VEXPECT_STR_CONTAINS(error.text, "no/such/folder/file: can't be written: No such file");
  if (access("/dev/full", W_OK) != 0) VSKIP("no /dev/full");
  VASSERT_TRUE(output_open(&out, "/dev/full", &error));
  fputs("much", out.file);
  VEXPECT_FALSE(output_finish(&out, &error));
  VEXPECT_STR_CONTAINS(error.text, "/dev/full: could not be written: No space");
}
