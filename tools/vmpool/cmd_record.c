// vmpool record: runs a command with event logs turned on, by VMP_CONF.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/vmpool/commands.h"

enum { OPTION_RING = 256, OPTION_STACKS };

static const struct argp_option option_list[] = {
    {"output", 'o', "FILE", 0, "The logs' name (default vmpool.vmplog); -PID-POOL goes before its ending", 0},
    {"ring", OPTION_RING, "SIZE", 0, "Keep the latest events only, in a ring of this size, 1MiB or more", 0},
    {"stacks", OPTION_STACKS, "SIZE", 0, "Record one call stack per so many bytes allocated", 0},
    {0},
};

static const char doc[] =
    "Runs a command, and records every event of its pools.\v"
    "Examples:\n"
    "  vmpool record -- ./train --steps 10\n"
    "  vmpool record -o run.vmplog --stacks 64MiB -- ./train\n"
    "  vmpool replay run-12345-pool.vmplog --compare\n"
    "\n"
    "Every pool writes a log of its own: run-PID-POOL.vmplog. What VMP_CONF holds already stays, and wins over "
    "nothing: "
    "a key that is given twice is an error. The exit status is the command's; 2 where it can't be run.";

typedef struct arguments {
  const char *output, *ring, *stacks;
  char **command;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  uint64_t bytes;
  switch (key) {
    case 'o':
      a->output = text;
      if (strchr(text, ',') == NULL && text[0] != '\0') return 0;
      return cmd_bad(&a->error, "--output: the name of a log is not empty and has no comma");
    case OPTION_RING: a->ring = text; return cmd_size("--ring", text, &bytes, &a->error);
    case OPTION_STACKS: a->stacks = text; return cmd_size("--stacks", text, &bytes, &a->error);
    case ARGP_KEY_ARGS:
      a->command = state->argv + state->next;
      state->next = state->argc;
      return 0;
    case ARGP_KEY_NO_ARGS: return cmd_bad(&a->error, "a command is missing; write it after --");
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, "-- COMMAND [ARGUMENT...]", doc, NULL, NULL, NULL};

// make_conf adds the log's keys to what VMP_CONF has. NULL: host memory ran out.
static char *make_conf(const arguments *a) {
  const char *old = getenv("VMP_CONF");
  char *conf = NULL;
  const int made =
      asprintf(&conf, "%s%slog:%s%s%s%s%s", old == NULL ? "" : old, old == NULL || old[0] == '\0' ? "" : ",", a->output,
               a->ring == NULL ? "" : ",log_ring:", a->ring == NULL ? "" : a->ring,
               a->stacks == NULL ? "" : ",log_stacks:", a->stacks == NULL ? "" : a->stacks);
  return made < 0 ? NULL : conf;
}

int cmd_record(int argc, char **argv) {
  arguments a = {.output = "vmpool.vmplog"};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  char *conf = make_conf(&a);
  if (conf == NULL || setenv("VMP_CONF", conf, 1) != 0) {
    tool_fail(&a.error, "host memory ran out");
    free(conf);
    return cmd_fail(argv[0], &a.error);
  }
  free(conf);
  execvp(a.command[0], a.command);
  tool_fail(&a.error, "%s can't be run: %s", a.command[0], strerror(errno));
  return cmd_fail(argv[0], &a.error);
}
