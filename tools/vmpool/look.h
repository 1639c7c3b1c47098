// look.h: what the commands that look at snapshots share: the options of the drawing, and where a snapshot comes from.
#ifndef VMPOOL_TOOLS_VMPOOL_LOOK_H_
#define VMPOOL_TOOLS_VMPOOL_LOOK_H_

#include <argp.h>

#include "tools/vmpool/live_pools.h"
#include "tools/vmpool/snapshot.h"
#include "tools/vmpool/style.h"

enum { LOOK_WIDTH = 0x1000, LOOK_ASCII, LOOK_COLOR };

// LOOK_OPTIONS: rows of an argp table.
#define LOOK_OPTIONS                                                                                                \
  {"width", LOOK_WIDTH, "COLUMNS", 0, "Columns (default COLUMNS, the terminal's, or 80)", 0},                       \
      {"ascii", LOOK_ASCII, 0, 0, "Draw with ASCII characters (default where the locale is not UTF-8)", 0}, {       \
    "color", LOOK_COLOR, "auto|never|always", 0, "Colours (default auto: on a terminal, unless NO_COLOR is set)", 0 \
  }

typedef struct look {
  uint64_t width;
  bool ascii;
  style_when color;
} look;

// look_parse takes one of LOOK_OPTIONS; ARGP_ERR_UNKNOWN for others.
error_t look_parse(int key, const char *text, look *out, tool_error *error);
// look_style decides how standard output is drawn on.
map_style look_style(const look *l);

// look_open reads a snapshot: of a file, of standard input ("-"), or of a live pool, by process or name: it is asked
// for one, or else what it shows in shared memory is taken. look_text says for --help what a SNAPSHOT may be.
bool look_open(snapshot *out, const char *source, tool_error *error);
extern const char look_text[];

// look_live makes a snapshot of what a pool shows in shared memory: sizes and mapped addresses, no blocks.
bool look_live(snapshot *out, const char *folder, const live_pool *pool, tool_error *error);

#endif  // VMPOOL_TOOLS_VMPOOL_LOOK_H_
