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

map_style style_of(FILE *file, unsigned width, bool ascii, style_when color) {
  return (map_style){.width = width != 0 ? clamp_width(width) : find_width(file),
                     .utf8 = !ascii && strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                     .color = color == STYLE_ALWAYS || (color == STYLE_AUTO && wants_color(file))};
}

void style_switch(FILE *out, const map_style *style, style_color *pen, style_color color) {
  static const char *const codes[] = {"",         "\033[2m",  "\033[31m", "\033[32m",
                                      "\033[33m", "\033[34m", "\033[35m", "\033[36m"};
  if (!style->color || *pen == color) return;
  if (*pen != STYLE_PLAIN) fputs("\033[0m", out);
  fputs(codes[color], out);
  *pen = color;
}

void style_put(FILE *out, const map_style *style, style_color color, const char *text) {
  style_color pen = STYLE_PLAIN;
  style_switch(out, style, &pen, color);
  fputs(text, out);
  style_switch(out, style, &pen, STYLE_PLAIN);
}
