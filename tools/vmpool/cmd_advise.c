// vmpool advise: options for a program, from a trace or a log of it.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/advise/advise.h"
#include "tools/advise/report.h"
#include "tools/common/output.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/progress.h"

enum {
  OPTION_GOAL = 256,
  OPTION_DEVICE_BYTES,
  OPTION_JOBS,
  OPTION_QUICK,
  OPTION_COST,
  OPTION_STREAMS,
  OPTION_STEP_EVERY,
  OPTION_REPEAT,
  OPTION_JSON,
};

static const struct argp_option option_list[] = {
    {"goal", OPTION_GOAL, "balanced|memory|speed", 0,
     "What is best (default balanced): the least driver time within 2 % of the smallest device; the smallest device; "
     "the "
     "least driver time",
     0},
    {"device-bytes", OPTION_DEVICE_BYTES, "SIZE", 0,
     "The device that the program runs on (default 1.10 x the peak of what the trace asks for)", 0},
    {"quick", OPTION_QUICK, 0, 0, "Don't look for the smallest device of each configuration: one replay each", 0},
    {"jobs", OPTION_JOBS, "N", 0, "Processes at a time (default: as many as there are processors)", 0},
    {"cost", OPTION_COST, "FILE", 0, "What driver calls cost, as vmpool probe --cost-file writes it", 0},
    {"streams", OPTION_STREAMS, "N", 0, "Spread over N streams", 0},
    {"repeat", OPTION_REPEAT, "N", 0, "Play the trace N times; each time is a step", 0},
    {"step-every", OPTION_STEP_EVERY, "N", 0, "The program's steps are N events long: strategy predictive is tried too",
     0},
    {"json", OPTION_JSON, "FILE", 0, "Write the figures as JSON; - is standard output, which then holds nothing else",
     0},
    {0},
};

static const char doc[] =
    "Replays a trace with several configurations of the pool, and says which one suits it, with the figures behind the "
    "advice and the lines to paste.\v"
    "Examples:\n"
    "  vmpool record -o run.vmplog -- ./train && vmpool advise run-*.vmplog\n"
    "  vmpool advise trace.csv --device-bytes 40GiB --goal memory\n"
    "  vmpool advise trace.csv --step-every 12000 --json advice.json\n"
    "  vmpool probe --cost-file gpu.cost && vmpool advise run.vmplog --cost gpu.cost\n"
    "\n"
    "TRACE is anything that vmpool replay reads (vmpool help formats), an event log among them. Requests to a service "
    "become one by vmpool replay REQUESTS --kv ... --model ... --log FILE. Driver time is counted on the host driver's "
    "clock: measure a GPU's costs with vmpool probe for figures of that GPU.";

typedef struct arguments {
  advise_options advise;
  const char *path, *json;
  tool_error error;
} arguments;

static error_t parse_goal(arguments *a, const char *text) {
  static const char *const names[] = {"balanced", "memory", "speed"};
  for (int i = 0; i < 3; i++) {
    if (strcmp(text, names[i]) != 0) continue;
    a->advise.goal = (advise_goal)i;
    return 0;
  }
  return cmd_bad(&a->error, "--goal: '%s' is none of balanced, memory and speed", text);
}

static error_t parse_numbers(int key, const char *text, arguments *a) {
  uint64_t number = 0;
  error_t result;
  switch (key) {
    case OPTION_JOBS:
      result = cmd_number("--jobs", text, 1, 256, &number, &a->error);
      a->advise.jobs = (size_t)number;
      return result;
    case OPTION_STREAMS:
      result = cmd_number("--streams", text, 1, TRACE_MAX_STREAMS, &number, &a->error);
      a->advise.replay.streams = (uint32_t)number;
      return result;
    case OPTION_REPEAT: return cmd_number("--repeat", text, 1, 1000000, &a->advise.replay.repeat, &a->error);
    case OPTION_STEP_EVERY:
      return cmd_number("--step-every", text, 1, UINT64_MAX / 2, &a->advise.replay.step_every, &a->error);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_device(arguments *a, const char *text) {
  const error_t result = cmd_size("--device-bytes", text, &a->advise.device_bytes, &a->error);
  if (result == 0 && a->advise.device_bytes == 0) {
    return cmd_bad(&a->error, "--device-bytes: a device of 0 bytes is none");
  }
  return result;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_GOAL: return parse_goal(a, text);
    case OPTION_DEVICE_BYTES: return parse_device(a, text);
    case OPTION_QUICK: a->advise.quick = true; return 0;
    case OPTION_COST: a->advise.replay.cost_file = text; return 0;
    case OPTION_JSON: a->json = text; return 0;
    case ARGP_KEY_ARG:
      if (a->path != NULL) return cmd_bad(&a->error, "one trace at a time; '%s' is a second one", text);
      a->path = text;
      return 0;
    case ARGP_KEY_END:
      return a->path != NULL ? 0
                             : cmd_bad(&a->error, "a trace is missing; vmpool advise --help shows how it is called");
    default: return parse_numbers(key, text, a);
  }
}

static const struct argp argp = {option_list, parse, "TRACE|LOG", doc, NULL, NULL, NULL};

static bool write_advice(arguments *a, const trace *t, const advise_result *r) {
  output json;
  if (a->json == NULL || strcmp(a->json, "-") != 0) advise_report_text(stdout, a->path, t, &a->advise, r);
  if (a->json == NULL) return true;
  if (!output_open(&json, a->json, &a->error)) return false;
  advise_report_json(json.file, a->path, &a->advise, r);
  return output_finish(&json, &a->error);
}

int cmd_advise(int argc, char **argv) {
  arguments a = {.advise = {.replay = REPLAY_OPTIONS_INIT}};
  trace_options options = TRACE_OPTIONS_INIT;
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  trace *t = NULL;
  if (!trace_read(a.path, &options, &t, &a.error)) return cmd_fail(argv[0], &a.error);
  if (t->remark.text[0] != '\0') fprintf(stderr, "%s: %s\n", argv[0], t->remark.text);
  progress bar = progress_start();
  a.advise.progress = progress_show;
  a.advise.progress_context = &bar;
  static advise_result result;
  bool good = advise_run(t, &a.advise, &result, &a.error);
  progress_end(&bar);
  good = good && write_advice(&a, t, &result);
  trace_close(t);
  if (!good) return cmd_fail(argv[0], &a.error);
  return result.cases[result.best].failed_allocs == 0 ? EXIT_GOOD : EXIT_BAD;
}
