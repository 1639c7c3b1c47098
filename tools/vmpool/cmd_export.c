// vmpool export: a snapshot, and the log up to it, for other programs.
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"
#include "tools/common/json_field.h"
#include "tools/common/output.h"
#include "tools/export/export.h"
#include "tools/vmpool/commands.h"

enum { OPTION_FORMAT = 256, OPTION_TABLE, OPTION_LAST, OPTION_WIDTH };

static const struct argp_option option_list[] = {
    {"format", OPTION_FORMAT, "memory_viz|perfetto|svg|png|csv|prometheus|folded", 0, "The form of the file", 0},
    {"output", 'o', "FILE", 0, "The file to write; - is standard output", 0},
    {"table", OPTION_TABLE, "blocks|chunks|areas|stats|events", 0,
     "csv: which table (default blocks; events need a LOG)", 0},
    {"last", OPTION_LAST, "N", 0, "memory_viz: the latest N events only (default: all; its viewer is slow with many)",
     0},
    {"width", OPTION_WIDTH, "PIXELS", 0, "svg, png: how wide (default 1200)", 0},
    {0},
};

static const char doc[] =
    "Writes a pool's snapshot, and its event log up to the snapshot, in the form of another program.\v"
    "Formats:\n"
    "  memory_viz   a pickle for PyTorch's memory viewer (pytorch.org/memory_viz); with a LOG its history too\n"
    "  perfetto     a trace for ui.perfetto.dev: counters and the life of every block; without a LOG the layout, with\n"
    "               addresses in place of time\n"
    "  svg, png     a picture of the map, for reports and CI artefacts\n"
    "  csv          a table\n"
    "  prometheus   the statistics, for the node exporter's textfile collector\n"
    "  folded       stacks of live bytes, for flame graphs; by layer, tag and size where the LOG has no stacks\n"
    "\n"
    "Examples:\n"
    "  vmpool export --format memory_viz pool.json pool.vmplog -o pool.pickle\n"
    "  vmpool export --format png pool.json -o pool.png\n"
    "  vmpool export --format csv --table chunks pool.json -o - | sort -t, -k2 -n\n"
    "  vmpool export --format folded pool.json pool.vmplog -o - | flamegraph.pl > pool.svg";

typedef bool (*export_function)(FILE *out, const export_input *in, tool_error *error);

static const struct {
  const char *name;
  export_function run;
} formats[] = {
    {"memory_viz", export_memory_viz},
    {"perfetto", export_perfetto},
    {"svg", export_svg},
    {"png", export_png},
    {"csv", export_csv},
    {"prometheus", export_prometheus},
    {"folded", export_folded},
};
static const char *const tables[] = {"blocks", "chunks", "areas", "stats", "events"};

typedef struct arguments {
  const char *paths[2];
  size_t num_paths;
  const char *out_path;
  export_function run;
  export_input input;
  tool_error error;
} arguments;

static error_t parse_format(arguments *a, const char *text) {
  for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
    if (strcmp(text, formats[i].name) != 0) continue;
    a->run = formats[i].run;
    return 0;
  }
  return cmd_bad(&a->error, "--format: '%s' is none of memory_viz, perfetto, svg, png, csv, prometheus and folded",
                 text);
}

static error_t parse_table(arguments *a, const char *text) {
  for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
    if (strcmp(text, tables[i]) != 0) continue;
    a->input.table = (export_table)i;
    return 0;
  }
  return cmd_bad(&a->error, "--table: '%s' is none of blocks, chunks, areas, stats and events", text);
}

static error_t check(arguments *a) {
  if (a->run == NULL) return cmd_bad(&a->error, "--format is missing; vmpool export --help lists the formats");
  if (a->num_paths == 0)
    return cmd_bad(&a->error, "a snapshot is missing; vmpool export --help shows how it is called");
  return a->out_path != NULL ? 0 : cmd_bad(&a->error, "-o FILE is missing: where the export is to be written");
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_FORMAT: return parse_format(a, text);
    case OPTION_TABLE: return parse_table(a, text);
    case OPTION_LAST: return cmd_number("--last", text, 1, UINT64_MAX, &a->input.last, &a->error);
    case OPTION_WIDTH: return cmd_number("--width", text, 300, 10000, &a->input.width, &a->error);
    case 'o': a->out_path = text; return 0;
    case ARGP_KEY_ARG:
      if (a->num_paths == 2) return cmd_bad(&a->error, "one snapshot and one log at most; '%s' is one file more", text);
      a->paths[a->num_paths++] = text;
      return 0;
    case ARGP_KEY_END: return check(a);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, "SNAPSHOT [LOG]", doc, NULL, NULL, NULL};

// files: what the paths name.
typedef struct files {
  file_text text[2];
  size_t num_texts;
  json_t *document;
  snapshot state;
  log_file log;
  bool has_state, has_log;
} files;

static void files_free(files *f) {
  if (f->has_log) log_destroy(&f->log);
  if (f->has_state) snapshot_destroy(&f->state);
  json_decref(f->document);
  for (size_t i = 0; i < f->num_texts; i++) free(f->text[i].text);
}

static bool read_file(files *f, const char *path, export_input *in, tool_error *error) {
  file_text *file = &f->text[f->num_texts];
  if (!file_load(file, path, error)) return false;
  f->num_texts++;
  if (log_is(file->text, file->bytes)) {
    if (f->has_log) return tool_fail(error, "one log at a time; '%s' is a second one", file->name);
    f->has_log = log_parse(&f->log, file->name, file->text, file->bytes, error);
    return f->has_log;
  }
  if (f->has_state) return tool_fail(error, "one snapshot at a time; '%s' is a second one", file->name);
  f->has_state = snapshot_parse(&f->state, file->name, file->text, file->bytes, error);
  if (!f->has_state) return false;
  f->document = json_parse(file->text, file->bytes, file->name, error);
  in->name = file->name;
  return f->document != NULL;
}

static bool read_files(files *f, arguments *a) {
  for (size_t i = 0; i < a->num_paths; i++) {
    if (!read_file(f, a->paths[i], &a->input, &a->error)) return false;
  }
  if (!f->has_state) return tool_fail(&a->error, "a snapshot is missing: '%s' is a log", a->paths[0]);
  a->input.document = f->document;
  a->input.state = &f->state;
  if (!f->has_log) return true;
  a->input.log = &f->log;
  const json_t *records = json_object_get(json_object_get(f->document, "log"), "records");
  if (json_is_integer(records) && json_integer_value(records) >= 0) {
    a->input.log_end = (uint64_t)json_integer_value(records);
  }
  return true;
}

int cmd_export(int argc, char **argv) {
  arguments a = {.input = {.last = UINT64_MAX, .log_end = UINT64_MAX, .width = 1200}};
  files f = {0};
  output out;
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  bool good = read_files(&f, &a) && output_open(&out, a.out_path, &a.error);
  if (good && !a.run(out.file, &a.input, &a.error)) {
    output_discard(&out);
    good = false;
  } else if (good) {
    good = output_finish(&out, &a.error);
  }
  files_free(&f);
  return good ? EXIT_GOOD : cmd_fail(argv[0], &a.error);
}
