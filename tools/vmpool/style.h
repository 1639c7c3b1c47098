// style.h: what a terminal can show: width, characters, colours.
#ifndef VMPOOL_TOOLS_VMPOOL_STYLE_H_
#define VMPOOL_TOOLS_VMPOOL_STYLE_H_

#include <stdbool.h>
#include <stdio.h>

typedef enum style_color {
  STYLE_PLAIN = 0,
  STYLE_DIM,
  STYLE_RED,
  STYLE_GREEN,
  STYLE_YELLOW,
  STYLE_BLUE,
  STYLE_MAGENTA,
  STYLE_CYAN,
} style_color;

typedef enum style_when { STYLE_AUTO = 0, STYLE_NEVER, STYLE_ALWAYS } style_when;

// style_depth: how many colours a terminal tells apart. The deeper palettes are those of Okabe and Ito, which people
// with any colour vision can tell apart.
typedef enum style_depth { STYLE_16 = 0, STYLE_256, STYLE_TRUECOLOR } style_depth;

typedef struct map_style {
  unsigned width;  // columns, at least STYLE_MIN_WIDTH
  bool utf8;       // block elements; else ASCII
  bool color;
  style_depth depth;
  bool classes;  // slab's blocks are coloured by their size class (map)
} map_style;

#define STYLE_MIN_WIDTH 40u
#define STYLE_MAX_WIDTH 1000u

// style_of decides from the options and the surroundings: `width` 0 means COLUMNS, else the terminal's width, else 80;
// colours with STYLE_AUTO are used where `file` is a terminal, TERM is not dumb and NO_COLOR is not set (or empty);
// COLORTERM (truecolor, 24bit) and TERM (...256color) say how many; UTF-8 where the locale has it, unless `ascii`.
// setlocale must have been called.
map_style style_of(FILE *file, unsigned width, bool ascii, style_when color);

// style_switch changes the colour of what is written next, where it differs from *pen, the one in use. A line begins
// and ends with STYLE_PLAIN. Nothing is written without colours.
void style_switch(FILE *out, const map_style *style, style_color *pen, style_color color);

// style_put writes one text in a colour of its own, from and to STYLE_PLAIN.
void style_put(FILE *out, const map_style *style, style_color color, const char *text);

#endif  // VMPOOL_TOOLS_VMPOOL_STYLE_H_
