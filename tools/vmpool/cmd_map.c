// vmpool map: a snapshot as text.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/look.h"
#include "tools/vmpool/map.h"
#include "tools/vmpool/views.h"

enum { OPTION_ROWS = 256, OPTION_RANGE, OPTION_FIT, OPTION_CLASSES };

static const struct argp_option option_list[] = {
    {"rows", OPTION_ROWS, "N", 0, "Rows of cells per range, at most (default 16)", 0},
    {"range", OPTION_RANGE, "FROM..TO", 0,
     "Draw these addresses only, down to 512 bytes a cell: 0x7f0000000000..0x7f0004000000, or +0..+64MiB from the "
     "start of the first range (971.19GiB, as the map writes it, is fine)",
     0},
    {"fit", OPTION_FIT, "SIZE", 0, "Say whether a block of this size fits, and at what cost", 0},
    {"classes", OPTION_CLASSES, 0, 0, "Colour slab's blocks by their size class (needs colours)", 0},
    LOOK_OPTIONS,
    {0},
};

static const char doc[] =
    "Draws a pool's snapshot: what the device's memory is used for, then which addresses are mapped and which blocks "
    "lie on them.\v"
    "Examples:\n"
    "  vmpool map pool.json\n"
    "  vmpool map pool.json --width 160 --rows 40\n"
    "  vmpool map pool.json --fit 512MiB\n"
    "  vmpool map pool.json --range +0..+64MiB\n"
    "  vmpool map pool.json --ascii --color never > map.txt\n"
    "  vmpool map 12345\n"
    "\n"
    "SNAPSHOT is a file that vmp_pool_snapshot wrote, - for standard input, or a live pool by its process or name "
    "(vmpool ps): the whole of it with VMP_CONF=control:1, without blocks with live:1. The upper lane shows what backs "
    "the addresses of each cell, the "
    "lower "
    "one how much of the cell is live. Gaps without memory are collapsed, with their length.";

typedef struct arguments {
  const char *path;
  uint64_t rows, fit;
  bool has_range, is_relative, classes;
  uint64_t from, to;
  look look;
  tool_error error;
} arguments;

// parse_place reads a size, or a place as the map prints it: 971.19GiB, 971.19 GiB.
static bool parse_place(const char *text, uint64_t *out) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB"};
  char digits[40];
  double value;
  const size_t length = strspn(text, "0123456789.");
  if (number_parse_size(text, out) == NUMBER_OK) return true;
  snprintf(digits, sizeof(digits), "%.*s", (int)(length < sizeof(digits) ? length : 0), text);
  if (number_parse_real(digits, 1e6, &value) != NUMBER_OK) return false;
  text += length + (text[length] == ' ');
  for (unsigned i = 0; i < 4; i++) {
    if (strcmp(text, units[i]) != 0) continue;
    *out = (uint64_t)(value * (double)(UINT64_C(1) << (10 * (i + 1))));
    return true;
  }
  return false;
}

// parse_end reads one end of --range: an address, or a place behind a plus.
static bool parse_end(const char *text, bool *out_relative, uint64_t *out) {
  *out_relative = text[0] == '+';
  if (*out_relative) return parse_place(text + 1, out);
  return number_parse_address(text, strlen(text), out) == NUMBER_OK;
}

static error_t parse_range(arguments *a, const char *text) {
  char from[80];
  bool second = false;
  const char *dots = strstr(text, "..");
  const size_t length = dots == NULL ? 0 : (size_t)(dots - text);
  snprintf(from, sizeof(from), "%.*s", (int)(length < sizeof(from) ? length : 0), text);
  a->has_range = true;
  if (dots == NULL || !parse_end(from, &a->is_relative, &a->from) || !parse_end(dots + 2, &second, &a->to) ||
      second != a->is_relative || a->to <= a->from) {
    return cmd_bad(&a->error, "--range: '%s' is not like 0x7f0000000000..0x7f0004000000 or +0..+64MiB", text);
  }
  return 0;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_ROWS: return cmd_number("--rows", text, 1, 100000, &a->rows, &a->error);
    case OPTION_RANGE: return parse_range(a, text);
    case OPTION_FIT: return cmd_size("--fit", text, &a->fit, &a->error);
    case OPTION_CLASSES: a->classes = true; return 0;
    case ARGP_KEY_ARG:
      if (a->path != NULL) return cmd_bad(&a->error, "one snapshot at a time; '%s' is a second one", text);
      a->path = text;
      return 0;
    case ARGP_KEY_END:
      return a->path != NULL ? 0
                             : cmd_bad(&a->error, "a snapshot is missing; vmpool map --help shows how it is called");
    default: return look_parse(key, text, &a->look, &a->error);
  }
}

static const struct argp argp = {option_list, parse, "SNAPSHOT", doc, NULL, NULL, NULL};

static bool draw(const arguments *a, const snapshot *s, tool_error *error) {
  map_style style = look_style(&a->look);
  style.classes = a->classes;
  bool good;
  view_head(stdout, s);
  putchar('\n');
  map_ledger(stdout, &style, s);
  view_fit(stdout, &style, s, a->fit);
  putchar('\n');
  if (a->has_range) {
    uint64_t base = a->is_relative && s->num_ranges > 0 ? s->ranges[0].base : 0;
    good = map_zoom(stdout, &style, s, base + a->from, base + a->to, (unsigned)a->rows, error);
  } else {
    good = map_ranges(stdout, &style, s, (unsigned)a->rows) || tool_fail(error, "host memory ran out");
  }
  if (good) map_legend(stdout, &style);
  return good;
}

int cmd_map(int argc, char **argv) {
  arguments a = {.rows = 16};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  snapshot s;
  if (!look_open(&s, a.path, &a.error)) return cmd_fail(argv[0], &a.error);
  const bool good = draw(&a, &s, &a.error);
  snapshot_destroy(&s);
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
