#include "tools/vmpool/style.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "tools/common/number.h"

static unsigned clamp_width(uint64_t width) {
  return width < STYLE_MIN_WIDTH ? STYLE_MIN_WIDTH : width > STYLE_MAX_WIDTH ? STYLE_MAX_WIDTH : (unsigned)width;
}

static unsigned find_width(FILE *file) {
  const char *columns = getenv("COLUMNS");
  uint64_t width;
  if (columns != NULL && number_parse(columns, strlen(columns), &width) == NUMBER_OK && width > 0)
    return clamp_width(width);
  struct winsize size;
  if (ioctl(fileno(file), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return clamp_width(size.ws_col);
  return 80;
}

static bool wants_color(FILE *file) {
  const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");
  if (no_color != NULL && no_color[0] != '\0') return false;
  if (term == NULL || strcmp(term, "dumb") == 0) return false;
  return isatty(fileno(file)) != 0;
}

static style_depth find_depth(void) {
  const char *color_term = getenv("COLORTERM"), *term = getenv("TERM");
  if (color_term != NULL && (strcmp(color_term, "truecolor") == 0 || strcmp(color_term, "24bit") == 0)) {
    return STYLE_TRUECOLOR;
  }
  return term != NULL && strstr(term, "256color") != NULL ? STYLE_256 : STYLE_16;
}

map_style style_of(FILE *file, unsigned width, bool ascii, style_when color) {
  return (map_style){.width = width != 0 ? clamp_width(width) : find_width(file),
                     .utf8 = !ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                     .color = color == STYLE_ALWAYS || (color == STYLE_AUTO && wants_color(file)),
                     .depth = find_depth()};
}

void style_switch(FILE *out, const map_style *style, style_color *pen, style_color color) {
  // Plain, dim, red, green, yellow, blue, magenta, cyan.
  static const char *const codes[][8] = {
      [STYLE_16] = {"", "\033[2m", "\033[31m", "\033[32m", "\033[33m", "\033[34m", "\033[35m", "\033[36m"},
      [STYLE_256] = {"", "\033[38;5;245m", "\033[38;5;166m", "\033[38;5;36m", "\033[38;5;178m", "\033[38;5;25m",
                     "\033[38;5;175m", "\033[38;5;74m"},
      [STYLE_TRUECOLOR] = {"", "\033[38;2;138;138;138m", "\033[38;2;213;94;0m", "\033[38;2;0;158;115m",
                           "\033[38;2;230;159;0m", "\033[38;2;0;114;178m", "\033[38;2;204;121;167m",
                           "\033[38;2;86;180;233m"},
  };
  if (!style->color || *pen == color) return;
  if (*pen != STYLE_PLAIN) fputs("\033[0m", out);
  fputs(codes[style->depth][color], out);
  *pen = color;
}

void style_put(FILE *out, const map_style *style, style_color color, const char *text) {
  style_color pen = STYLE_PLAIN;
  style_switch(out, style, &pen, color);
  fputs(text, out);
  style_switch(out, style, &pen, STYLE_PLAIN);
}
