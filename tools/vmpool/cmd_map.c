// vmpool map: a snapshot as text.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/vmpool/commands.h"
#include "tools/vmpool/map.h"

enum { OPTION_WIDTH = 256, OPTION_ROWS, OPTION_ASCII, OPTION_COLOR };

static const struct argp_option option_list[] = {
    {"width", OPTION_WIDTH, "COLUMNS", 0, "Columns (default COLUMNS, the terminal's, or 80)", 0},
    {"rows", OPTION_ROWS, "N", 0, "Rows of cells per range, at most (default 16)", 0},
    {"ascii", OPTION_ASCII, 0, 0, "Draw with ASCII characters (default where the locale is not UTF-8)", 0},
    {"color", OPTION_COLOR, "auto|never|always", 0, "Colours (default auto: on a terminal, unless NO_COLOR is set)", 0},
    {0},
};

static const char doc[] =
    "Draws a pool's snapshot: what the device's memory is used for, then which addresses are mapped and which blocks "
    "lie on "
    "them.\v"
    "Examples:\n"
    "  vmpool map pool.json\n"
    "  vmpool map pool.json --width 160 --rows 40\n"
    "  vmpool map pool.json --ascii --color never > map.txt\n"
    "\n"
    "SNAPSHOT is a file that vmp_pool_snapshot wrote, or - for standard input. The upper lane shows what backs the "
    "addresses "
    "of each cell, the lower one how much of the cell is live. Gaps without memory are collapsed, with their length.";

typedef struct arguments {
  const char *path;
  uint64_t width, rows;
  bool ascii;
  style_when color;
  tool_error error;
} arguments;

static error_t parse_color(arguments *a, const char *text) {
  static const char *const names[] = {"auto", "never", "always"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    a->color = (style_when)i;
    return 0;
  }
  return cmd_bad(&a->error, "--color: '%s' is none of auto, never and always", text);
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_WIDTH: return cmd_number("--width", text, STYLE_MIN_WIDTH, STYLE_MAX_WIDTH, &a->width, &a->error);
    case OPTION_ROWS: return cmd_number("--rows", text, 1, 100000, &a->rows, &a->error);
    case OPTION_ASCII: a->ascii = true; return 0;
    case OPTION_COLOR: return parse_color(a, text);
    case ARGP_KEY_ARG:
      if (a->path != NULL) return cmd_bad(&a->error, "one snapshot at a time; '%s' is a second one", text);
      a->path = text;
      return 0;
    case ARGP_KEY_END:
      return a->path != NULL ? 0
                             : cmd_bad(&a->error, "a snapshot is missing; vmpool map --help shows how it is called");
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, "SNAPSHOT", doc, NULL, NULL, NULL};

int cmd_map(int argc, char **argv) {
  arguments a = {.rows = 16};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  snapshot s;
  if (!snapshot_load(&s, a.path, &a.error)) return cmd_fail(argv[0], &a.error);
  const map_style style = style_of(stdout, (unsigned)a.width, a.ascii, a.color);
  printf("pool \"%s\" on %s device %u\n\n", s.pool_name, s.driver, (unsigned)s.device);
  map_ledger(stdout, &style, &s);
  putchar('\n');
  const bool good = map_ranges(stdout, &style, &s, (unsigned)a.rows);
  map_legend(stdout, &style);
  snapshot_destroy(&s);
  if (!good) tool_fail(&a.error, "host memory ran out");
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
