// What a terminal is taken to be able to show, on a pseudo-terminal and without one.
#include "tools/vmpool/style.h"

#include <fcntl.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tests/support/vtest.h"

// terminal: the slave side of a pseudo-terminal, 100 columns wide, in a UTF-8 locale, with a clean environment.
typedef struct terminal {
  int master;
  FILE *file;
} terminal;

static void terminal_setup(terminal *f) {
  f->master = posix_openpt(O_RDWR | O_NOCTTY);
  if (f->master < 0) VSKIP("no pseudo-terminal can be had here");
  VASSERT_INT_EQ(grantpt(f->master), 0);
  VASSERT_INT_EQ(unlockpt(f->master), 0);
  const int slave = open(ptsname(f->master), O_RDWR | O_NOCTTY);
  VASSERT_INT_GE(slave, 0);
  const struct winsize size = {.ws_row = 30, .ws_col = 100};
  VASSERT_INT_EQ(ioctl(slave, TIOCSWINSZ, &size), 0);
  f->file = fdopen(slave, "w");
  VASSERT_NOT_NULL(f->file);
  unsetenv("NO_COLOR");
  unsetenv("COLUMNS");
  setenv("TERM", "xterm-256color", 1);
  VASSERT_NOT_NULL(setlocale(LC_CTYPE, "C.UTF-8"));
}

static void terminal_teardown(terminal *f) {
  if (f->file != NULL) fclose(f->file);
  if (f->master > 0) close(f->master);
  setlocale(LC_CTYPE, "C");
}

VTEST_F(Style, ATerminalShowsEverything, terminal) {
  const map_style style = style_of(f->file, 0, false, STYLE_AUTO);
  VEXPECT_UINT_EQ(style.width, 100);
  VEXPECT_TRUE(style.utf8);
  VEXPECT_TRUE(style.color);
}

VTEST_F(Style, NoColorIsHonoured, terminal) {
  setenv("NO_COLOR", "1", 1);
  VEXPECT_FALSE(style_of(f->file, 0, false, STYLE_AUTO).color);
  VEXPECT_TRUE(style_of(f->file, 0, false, STYLE_ALWAYS).color);  // asked for by name
  setenv("NO_COLOR", "", 1);                                      // empty means not set
  VEXPECT_TRUE(style_of(f->file, 0, false, STYLE_AUTO).color);
  VEXPECT_FALSE(style_of(f->file, 0, false, STYLE_NEVER).color);
  unsetenv("NO_COLOR");
}

VTEST_F(Style, ADumbTerminalHasNoColours, terminal) {
  setenv("TERM", "dumb", 1);
  VEXPECT_FALSE(style_of(f->file, 0, false, STYLE_AUTO).color);
  unsetenv("TERM");
  VEXPECT_FALSE(style_of(f->file, 0, false, STYLE_AUTO).color);
}

VTEST_F(Style, WidthComesFromTheOptionThenColumnsThenTheTerminal, terminal) {
  setenv("COLUMNS", "132", 1);
  VEXPECT_UINT_EQ(style_of(f->file, 0, false, STYLE_AUTO).width, 132);
  VEXPECT_UINT_EQ(style_of(f->file, 64, false, STYLE_AUTO).width, 64);
  setenv("COLUMNS", "3", 1);
  VEXPECT_UINT_EQ(style_of(f->file, 0, false, STYLE_AUTO).width, STYLE_MIN_WIDTH);
  setenv("COLUMNS", "wide", 1);
  VEXPECT_UINT_EQ(style_of(f->file, 0, false, STYLE_AUTO).width, 100);
  unsetenv("COLUMNS");
}

VTEST_F(Style, AnotherLocaleOrAsciiOnRequest, terminal) {
  VEXPECT_FALSE(style_of(f->file, 0, true, STYLE_AUTO).utf8);
  setlocale(LC_CTYPE, "C");
  VEXPECT_FALSE(style_of(f->file, 0, false, STYLE_AUTO).utf8);
}

VTEST(Style, AFileHasEightyColumnsAndNoColours) {
  unsetenv("COLUMNS");
  FILE *file = tmpfile();
  VASSERT_NOT_NULL(file);
  const map_style style = style_of(file, 0, false, STYLE_AUTO);
  VEXPECT_UINT_EQ(style.width, 80);
  VEXPECT_FALSE(style.color);
  fclose(file);
}

VTEST(Style, ColoursAreSwitchedOnlyWhereTheyChange) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  const map_style style = {.width = 80, .color = true}, plain = {.width = 80};
  style_color pen = STYLE_PLAIN;
  const style_color colors[] = {STYLE_RED, STYLE_RED, STYLE_PLAIN, STYLE_DIM, STYLE_GREEN};
  for (size_t i = 0; i < 5; i++) {
    style_switch(out, &style, &pen, colors[i]);
    fputc('a' + (int)i, out);
  }
  style_switch(out, &style, &pen, STYLE_PLAIN);
  style_put(out, &plain, STYLE_RED, "x");
  fclose(out);
  VEXPECT_STR_EQ(text, "\033[31mab\033[0mc\033[2md\033[0m\033[32me\033[0mx");
  free(text);
}
