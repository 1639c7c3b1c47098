// top_screen.h: what `vmpool top` shows and what its keys do, without a screen.
//
//     0   vmpool top   2 pools by mapped        q quit  s sort  t trim  d defragment
//     2    PROCESS DEV       LIVE     MAPPED ...
//     3 >  12345   0    1.2 GiB ...                          the chosen one
//     ..
//     n   its memory: a bar, and its mapped addresses in one row
//     m   question, or what the last request gave
//
// Owns: the list of pools, the choice, the order, the question that waits for a y. Does not own: drawing (cmd_top.c).
#ifndef VMPOOL_TOOLS_VMPOOL_TOP_SCREEN_H_
#define VMPOOL_TOOLS_VMPOOL_TOP_SCREEN_H_

#include "tools/vmpool/live_pools.h"

typedef enum top_key {
  TOP_NOTHING = 0,
  TOP_QUIT,
  TOP_SORT,
  TOP_UP,
  TOP_DOWN,
  TOP_TRIM,
  TOP_DEFRAGMENT,
  TOP_YES,
  TOP_OTHER,
} top_key;

typedef enum top_look { TOP_PLAIN = 0, TOP_STRONG, TOP_CHOSEN } top_look;

typedef enum top_order { TOP_BY_MAPPED = 0, TOP_BY_LIVE, TOP_BY_PROCESS, TOP_BY_NAME, TOP_NUM_ORDERS } top_order;

typedef struct top_row {
  live_pool pool;
  vmp_live_copy *copy;  // NULL: it shows nothing yet
  double allocs_per_s;
} top_row;

typedef struct top_screen {
  const char *folder;
  top_row *rows;
  size_t num_rows;
  char chosen[LIVE_NAME_BYTES];  // the object of the chosen pool; "": the first one
  top_order order;
  top_key asking;  // TOP_TRIM or TOP_DEFRAGMENT waits for a y
  char message[256];
} top_screen;

// top_look_again reads all pools. False: the folder can't be read, or host memory ran out.
bool top_look_again(top_screen *screen, tool_error *error);
// top_press does what a key means; every key but y answers a question with no.
void top_press(top_screen *screen, top_key key);
// top_line writes line `i` of `lines` lines into `line` (512 bytes), at most `width` characters, all ASCII.
top_look top_line(const top_screen *screen, unsigned i, unsigned lines, unsigned width, char *line);
void top_close(top_screen *screen);

#endif  // VMPOOL_TOOLS_VMPOOL_TOP_SCREEN_H_
