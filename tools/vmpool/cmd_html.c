// vmpool html: snapshots and a log as one page that opens in a browser, without a network.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"
#include "tools/common/json_field.h"
#include "tools/common/output.h"
#include "tools/log/log_file.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/page.h"
#include "tools/vmpool/page_log.h"
#include "tools/vmpool/snapshot.h"

#define MAX_SNAPSHOTS 2
#define MAX_FILES 3

static const struct argp_option option_list[] = {
    {"output", 'o', "FILE", 0, "The page to write; - is standard output", 0},
    {0},
};

static const char doc[] =
    "Writes one HTML file that shows a pool: its ledger, a map of its addresses from terabytes to bytes, the physical "
    "chunks, fragmentation, what pins memory, the difference of two snapshots; and, with an event log, the timeline "
    "and "
    "the state at any event.\v"
    "Examples:\n"
    "  vmpool html pool.json -o pool.html\n"
    "  vmpool html pool.json pool.vmplog -o pool.html           # with the timeline\n"
    "  vmpool html before.json after.json -o change.html        # two snapshots, to compare\n"
    "  vmpool html pool.vmplog -o pool.html                     # the log alone\n"
    "\n"
    "A snapshot is a file that vmp_pool_snapshot wrote, a log one that VMP_CONF=log:FILE, vmpool record or vmpool "
    "replay "
    "--log wrote; - is standard input. Which is which is seen from the content. The page loads nothing and sends "
    "nothing: its content security policy forbids it. Attach it to a ticket, open it on a machine without a network.";

typedef struct arguments {
  const char *paths[MAX_FILES];
  size_t num_paths;
  const char *out_path;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case 'o': a->out_path = text; return 0;
    case ARGP_KEY_ARG:
      if (a->num_paths == MAX_FILES) {
        return cmd_bad(&a->error, "two snapshots and one log at most; '%s' is one file more", text);
      }
      a->paths[a->num_paths++] = text;
      return 0;
    case ARGP_KEY_END:
      if (a->num_paths == 0) {
        return cmd_bad(&a->error, "a snapshot is missing; vmpool html --help shows how it is called");
      }
      return a->out_path != NULL ? 0 : cmd_bad(&a->error, "-o FILE is missing: where the page is to be written");
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, "SNAPSHOT [SNAPSHOT] [LOG]", doc, NULL, NULL, NULL};

// inputs: the files, read and found good.
typedef struct inputs {
  file_text snapshots[MAX_SNAPSHOTS];
  size_t num_snapshots;
  file_text log_text;
  log_file log;
  bool has_log;
} inputs;

static void inputs_free(inputs *in) {
  for (size_t i = 0; i < in->num_snapshots; i++) free(in->snapshots[i].text);
  if (in->has_log) log_destroy(&in->log);
  if (in->has_log) free(in->log_text.text);
}

static bool take_log(inputs *in, const file_text *file, tool_error *error) {
  if (in->has_log) return tool_fail(error, "one log at a time; '%s' is a second one", file->name);
  if (!log_parse(&in->log, file->name, file->text, file->bytes, error)) return false;
  in->log_text = *file;
  in->has_log = true;
  return true;
}

static bool take_snapshot(inputs *in, const file_text *file, tool_error *error) {
  snapshot s;
  if (in->num_snapshots == MAX_SNAPSHOTS) {
    return tool_fail(error, "two snapshots at most; '%s' is a third one", file->name);
  }
  if (!snapshot_parse(&s, file->name, file->text, file->bytes, error)) return false;
  snapshot_destroy(&s);
  in->snapshots[in->num_snapshots++] = *file;
  return true;
}

static bool read_input(inputs *in, const char *path, tool_error *error) {
  file_text file;
  if (!file_load(&file, path, error)) return false;
  const bool good = log_is(file.text, file.bytes) ? take_log(in, &file, error) : take_snapshot(in, &file, error);
  if (!good) free(file.text);
  return good;
}

// The part of a path behind its last slash.
static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != NULL ? slash + 1 : path;
}

// log_position: how many records of the log come before the first snapshot; UINT64_MAX where it doesn't say.
static uint64_t log_position(const inputs *in) {
  json_error_t ignored;
  if (in->num_snapshots == 0) return UINT64_MAX;
  json_t *document = json_loadb(in->snapshots[0].text, in->snapshots[0].bytes, 0, &ignored);
  const json_t *records = json_object_get(json_object_get(document, "log"), "records");
  const uint64_t position =
      json_is_integer(records) && json_integer_value(records) >= 0 ? (uint64_t)json_integer_value(records) : UINT64_MAX;
  json_decref(document);
  return position;
}

static bool write_log(FILE *out, const inputs *in, tool_error *error) {
  page_log packed;
  if (!page_log_make(&packed, &in->log, in->log_text.name, log_position(in), error)) return false;
  const bool good = page_data(out, "log", base_name(in->log_text.name), packed.bytes, packed.num_bytes, error);
  free(packed.bytes);
  return good;
}

static bool write_page(FILE *out, const inputs *in, tool_error *error) {
  static const char *const ids[MAX_SNAPSHOTS] = {"snapshot-a", "snapshot-b"};
  bool good = true;
  page_begin(out);
  for (size_t i = 0; good && i < in->num_snapshots; i++) {
    const file_text *file = &in->snapshots[i];
    good = page_data(out, ids[i], base_name(file->name), file->text, file->bytes, error);
  }
  if (good && in->has_log) good = write_log(out, in, error);
  page_end(out);
  return good;
}

int cmd_html(int argc, char **argv) {
  arguments a = {0};
  inputs in = {0};
  output out;
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  bool good = true;
  for (size_t i = 0; good && i < a.num_paths; i++) good = read_input(&in, a.paths[i], &a.error);
  good = good && output_open(&out, a.out_path, &a.error);
  if (good && !write_page(out.file, &in, &a.error)) {
    output_discard(&out);
    good = false;
  } else if (good) {
    good = output_finish(&out, &a.error);
  }
  inputs_free(&in);
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
