// vmpool top: pools of running processes, live. The screen is ncurses'; what is on it is top_screen.c's.
#include <curses.h>
#include <errno.h>
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/top_screen.h"

enum { OPTION_DELAY = 256 };

static const struct argp_option option_list[] = {
    {"delay", OPTION_DELAY, "MS", 0, "Look again after so many milliseconds (default 500)", 0}, {0}};

static const char doc[] =
    "Shows the pools of this user's running processes, again and again.\v"
    "Keys: q quit, s sort by the next column, up and down (or k and j) choose a pool, t trim it, d defragment it, each "
    "after a y.\n"
    "\n"
    "A pool shows itself with VMP_CONF=live:1; trim and defragment need control:1.";

typedef struct arguments {
  uint64_t delay_ms;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  if (key == ARGP_KEY_ARG) return cmd_bad(&a->error, "'%s' is too much: top takes no argument", text);
  if (key != OPTION_DELAY) return ARGP_ERR_UNKNOWN;
  return cmd_number("--delay", text, 10, 60000, &a->delay_ms, &a->error);
}

static const struct argp argp = {option_list, parse, "", doc, NULL, NULL, NULL};

static top_key key_of(int key) {
  switch (key) {
    case 'q': return TOP_QUIT;
    case 's': return TOP_SORT;
    case 't': return TOP_TRIM;
    case 'd': return TOP_DEFRAGMENT;
    case 'y': return TOP_YES;
    case KEY_UP:
    case 'k': return TOP_UP;
    case KEY_DOWN:
    case 'j': return TOP_DOWN;
    case ERR: return TOP_NOTHING;
    default: return TOP_OTHER;
  }
}

static void draw(const top_screen *screen) {
  int rows, columns;
  getmaxyx(stdscr, rows, columns);
  erase();
  for (int i = 0; i < rows; i++) {
    char line[512];
    const unsigned width = columns < (int)sizeof(line) ? (unsigned)columns : (unsigned)sizeof(line) - 1;
    const top_look look = top_line(screen, (unsigned)i, (unsigned)rows, width, line);
    const int attribute = (int)(look == TOP_CHOSEN ? A_REVERSE : look == TOP_STRONG ? A_BOLD : A_NORMAL);
    attrset(attribute);
    mvaddnstr(i, 0, line, columns);
    attrset(A_NORMAL);
  }
  refresh();
}

static bool run(top_screen *screen, int delay_ms, tool_error *error) {
  timeout(delay_ms);
  for (;;) {
    if (!top_look_again(screen, error)) return false;
    draw(screen);
    const top_key key = key_of(getch());
    if (key == TOP_QUIT && screen->asking == TOP_NOTHING) return true;
    top_press(screen, key);
  }
}

int cmd_top(int argc, char **argv) {
  arguments a = {.delay_ms = 500};
  top_screen screen = {.folder = LIVE_FOLDER};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  const char *name = getenv("TERM");
  SCREEN *terminal = newterm(name, stdout, stdin);
  if (terminal == NULL) {
    tool_fail(&a.error, "the terminal (TERM=%.40s) can't show a screen; vmpool ps prints a list",
              name == NULL ? "" : name);
    return cmd_fail(argv[0], &a.error);
  }
  cbreak();
  noecho();
  keypad(stdscr, TRUE);
  curs_set(0);
  const bool good = run(&screen, (int)a.delay_ms, &a.error);
  endwin();
  delscreen(terminal);
  top_close(&screen);
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
