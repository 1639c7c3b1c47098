// vmpool stats, hist, diff, why, oom and check: one command each about snapshots and logs.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"
#include "tools/common/number.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/look.h"
#include "tools/vmpool/views.h"

#define MAX_FILES 3u

static const struct argp_option option_list[] = {LOOK_OPTIONS, {0}};

typedef struct arguments {
  look look;
  const char *files[MAX_FILES];
  size_t num_files, least, most;
  const char *missing;  // what to say where there are too few
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  if (key == ARGP_KEY_ARG) {
    if (a->num_files == a->most) return cmd_bad(&a->error, "'%s' is one argument too many", text);
    a->files[a->num_files++] = text;
    return 0;
  }
  if (key == ARGP_KEY_END) return a->num_files >= a->least ? 0 : cmd_bad(&a->error, "%s", a->missing);
  return look_parse(key, text, &a->look, &a->error);
}

// read_arguments: `text` is the command's help, with look_text behind it.
static bool read_arguments(arguments *a, const char *args, const char *text, int argc, char **argv) {
  char *doc = NULL;
  if (asprintf(&doc, "%s\n\n%s", text, look_text) < 0) {
    tool_fail(&a->error, "host memory ran out");
    cmd_fail(argv[0], &a->error);
    return false;
  }
  const struct argp argp = {option_list, parse, args, doc, NULL, NULL, NULL};
  const bool good = cmd_parse(&argp, argc, argv, a, &a->error);
  free(doc);
  return good;
}

static int end(arguments *a, const char *name, bool good) {
  if (good) return EXIT_GOOD;
  if (a->error.text[0] == '\0') tool_fail(&a->error, "host memory ran out");
  return cmd_fail(name, &a->error);
}

// ---- of one snapshot ----

typedef enum one_view { VIEW_STATS, VIEW_HIST, VIEW_OOM } one_view;

static int show_one(one_view view, const char *text, int argc, char **argv) {
  arguments a = {.least = 1, .most = 1, .missing = "a snapshot is missing; --help shows how it is called"};
  if (!read_arguments(&a, "SNAPSHOT", text, argc, argv)) return EXIT_USAGE;
  snapshot s;
  if (!look_open(&s, a.files[0], &a.error)) return cmd_fail(argv[0], &a.error);
  const map_style style = look_style(&a.look);
  bool good = true;
  int status = EXIT_GOOD;
  if (view == VIEW_STATS) view_stats(stdout, &style, &s);
  if (view == VIEW_HIST) good = view_hist(stdout, &style, &s);
  if (view == VIEW_OOM && !view_oom(stdout, &style, &s)) status = EXIT_BAD;
  snapshot_destroy(&s);
  return good ? status : end(&a, argv[0], false);
}

int cmd_stats(int argc, char **argv) {
  return show_one(VIEW_STATS,
                  "Prints a snapshot's numbers: sizes, counters, layers, streams, and the options that are not the "
                  "defaults, with where each came from.\v"
                  "Examples:\n"
                  "  vmpool stats pool.json\n"
                  "  vmpool stats 12345",
                  argc, argv);
}

int cmd_hist(int argc, char **argv) {
  return show_one(VIEW_HIST,
                  "Prints how many live blocks there are of which size, what rounding costs them, and in which pieces "
                  "the free mapped memory lies.\v"
                  "Examples:\n"
                  "  vmpool hist pool.json",
                  argc, argv);
}

int cmd_oom(int argc, char **argv) {
  return show_one(VIEW_OOM,
                  "Prints why the last allocation failed: what was asked for, what could be had, where the memory is, "
                  "and what would have helped.\v"
                  "Examples:\n"
                  "  VMP_CONF=snapshot_on:oom ./train; vmpool oom vmpool-12345-pool-oom.json\n"
                  "\n"
                  "Exit status: 1 where no allocation has failed.",
                  argc, argv);
}

// ---- of two ----

int cmd_diff(int argc, char **argv) {
  arguments a = {.least = 2, .most = 2, .missing = "two snapshots are needed; --help shows how it is called"};
  if (!read_arguments(
          &a, "A B",
          "Prints what differs from snapshot A to snapshot B: sizes, blocks that only one of them has, live "
          "bytes by tag, options.\v"
          "Examples:\n"
          "  vmpool diff before.json after.json",
          argc, argv)) {
    return EXIT_USAGE;
  }
  snapshot first = {0}, second = {0};
  bool good = look_open(&first, a.files[0], &a.error) && look_open(&second, a.files[1], &a.error);
  const map_style style = look_style(&a.look);
  if (good) good = view_diff(stdout, &style, &first, &second);
  snapshot_destroy(&first);
  snapshot_destroy(&second);
  return end(&a, argv[0], good);
}

// ---- of snapshots and logs ----

// sources: what the files of a command are, by their content.
typedef struct sources {
  snapshot s;
  log_file log;
  bool has_snapshot, has_log;
} sources;

static void close_sources(sources *from) {
  if (from->has_snapshot) snapshot_destroy(&from->s);
  if (from->has_log) log_destroy(&from->log);
}

static bool is_log_file(const char *path) {
  char magic[8] = "";
  FILE *file = fopen(path, "rb");
  if (file == NULL) return false;
  const size_t got = fread(magic, 1, sizeof(magic), file);
  fclose(file);
  return log_is(magic, got);
}

static bool open_source(sources *from, const char *path, tool_error *error) {
  if (is_log_file(path)) {
    if (from->has_log) return tool_fail(error, "%s is a second log; one is enough", path);
    from->has_log = log_load(&from->log, path, error);
    return from->has_log;
  }
  if (from->has_snapshot) return tool_fail(error, "%s is a second snapshot; one is enough", path);
  from->has_snapshot = look_open(&from->s, path, error);
  return from->has_snapshot;
}

int cmd_why(int argc, char **argv) {
  arguments a = {.least = 2, .most = 3, .missing = "an address and a snapshot or a log are needed; --help shows how"};
  if (!read_arguments(
          &a, "ADDRESS SNAPSHOT|LOG...",
          "Prints what is known of an address: from a snapshot who owns it now and what lies beside it, from "
          "a log who did, when it was freed and when it was unmapped.\v"
          "Examples:\n"
          "  vmpool why 0x7f2a40001000 pool.json\n"
          "  vmpool why 0x7f2a40001000 pool.json run.vmplog\n"
          "\n"
          "With both, the log is read up to the snapshot's moment.",
          argc, argv)) {
    return EXIT_USAGE;
  }
  uint64_t address;
  if (number_parse_address(a.files[0], strlen(a.files[0]), &address) != NUMBER_OK) {
    tool_fail(&a.error, "'%s' is no address like 0x7f0000000000", a.files[0]);
    return cmd_fail(argv[0], &a.error);
  }
  sources from = {.has_snapshot = false};
  bool good = true;
  for (size_t i = 1; i < a.num_files && good; i++) good = open_source(&from, a.files[i], &a.error);
  const map_style style = look_style(&a.look);
  if (good) view_why(stdout, &style, from.has_snapshot ? &from.s : NULL, from.has_log ? &from.log : NULL, address);
  close_sources(&from);
  return end(&a, argv[0], good);
}

int cmd_check(int argc, char **argv) {
  arguments a = {.least = 1, .most = 1, .missing = "a snapshot or a log is missing; --help shows how it is called"};
  if (!read_arguments(
          &a, "SNAPSHOT|LOG",
          "Checks a snapshot against its own statistics, or a log against what its records lead to; one line "
          "for each contradiction.\v"
          "Examples:\n"
          "  vmpool check pool.json\n"
          "  vmpool check run.vmplog\n"
          "\n"
          "Exit status: 0 no contradiction, 1 some, 2 it can't be read.",
          argc, argv)) {
    return EXIT_USAGE;
  }
  sources from = {.has_snapshot = false};
  if (!open_source(&from, a.files[0], &a.error)) return cmd_fail(argv[0], &a.error);
  const uint64_t faults = from.has_log ? view_check_log(stdout, &from.log) : view_check_snapshot(stdout, &from.s);
  if (faults == 0 && from.has_log) {
    printf("no contradiction in %" PRIu64 " records\n", from.log.end - from.log.first);
  } else if (faults == 0) {
    puts("no contradiction");
  }
  close_sources(&from);
  if (faults == UINT64_MAX) return end(&a, argv[0], false);
  return faults == 0 ? EXIT_GOOD : EXIT_BAD;
}
