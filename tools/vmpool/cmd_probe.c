// vmpool probe: options to a probe, its findings to text, JSON and a cost table.
#include <stdio.h>
#include <string.h>

#include "pool/vmpool.h"
#include "tools/common/output.h"
#include "tools/probe/cost.h"
#include "tools/probe/probe.h"
#include "tools/probe/report.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/progress.h"

enum { OPTION_DRIVER = 256, OPTION_DEVICE, OPTION_REPEAT, OPTION_COST_FILE, OPTION_JSON };

static const struct argp_option option_list[] = {
    {"driver", OPTION_DRIVER, "host|cuda", 0,
     "The driver (default cuda). The host driver's figures are this machine's, and no GPU's", 0},
    {"device", OPTION_DEVICE, "N", 0, "The device that is measured and asked (default 0)", 0},
    {"repeat", OPTION_REPEAT, "N", 0, "Samples of each figure (default 100)", 0},
    {"cost-file", OPTION_COST_FILE, "FILE", 0,
     "Write the figures as a cost table for the host driver's clock (vmpool replay --cost FILE)", 0},
    {"json", OPTION_JSON, "FILE", 0, "Write everything as JSON; - is standard output, which then holds nothing else",
     0},
    {0},
};

static const char doc[] =
    "Prints what a driver and its devices can do, what their calls cost, and how the driver answers fourteen questions "
    "that its documentation leaves open.\v"
    "Examples:\n"
    "  vmpool probe\n"
    "  vmpool probe --cost-file gpu.cost\n"
    "  vmpool replay trace.csv --cost gpu.cost\n"
    "  vmpool probe --driver host --json -\n"
    "\n"
    "Each part runs in a process of its own, since some questions provoke errors after which a process can't use the "
    "device any more. Nothing else should run on the device meanwhile. A question takes one line: number, question, "
    "answer, evidence. Times are in microseconds, `first' is the very first call. Exit status: 0 done, 1 a figure or a "
    "question failed, 2 the arguments can't be used or there is no such driver or device.";

typedef struct arguments {
  vmp_driver_kind driver;
  uint64_t device, repeat;
  const char *cost_file, *json;
  tool_error error;
} arguments;

static bool is_standard_output(const char *path) { return path != NULL && strcmp(path, "-") == 0; }

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_DRIVER:
      a->driver = strcmp(text, "host") == 0 ? VMP_DRIVER_HOST : VMP_DRIVER_CUDA;
      if (a->driver == VMP_DRIVER_HOST || strcmp(text, "cuda") == 0) return 0;
      return cmd_bad(&a->error, "--driver: '%s' is neither host nor cuda", text);
    case OPTION_DEVICE: return cmd_number("--device", text, 0, PROBE_MAX_DEVICES - 1, &a->device, &a->error);
    case OPTION_REPEAT: return cmd_number("--repeat", text, 1, PROBE_MAX_REPEAT, &a->repeat, &a->error);
    case OPTION_COST_FILE:
      a->cost_file = text;
      if (!is_standard_output(text)) return 0;
      return cmd_bad(&a->error, "--cost-file: a file is needed, not standard output");
    case OPTION_JSON: a->json = text; return 0;
    case ARGP_KEY_ARG: return cmd_bad(&a->error, "'%s' is no option, and nothing else is expected", text);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {option_list, parse, NULL, doc, NULL, NULL, NULL};

static vmp_status open_driver(void *context, vmp_driver **out_driver) {
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = *(const vmp_driver_kind *)context;
  return vmp_driver_open(out_driver, &options);
}

// outputs: the files that were asked for. Opened first, so that a bad path costs no measurement.
typedef struct outputs {
  output cost, json;
} outputs;

static bool open_outputs(arguments *a, outputs *o) {
  if (a->cost_file != NULL && !output_open(&o->cost, a->cost_file, &a->error)) return false;
  return a->json == NULL || output_open(&o->json, a->json, &a->error);
}

static void discard_outputs(outputs *o) {
  output_discard(&o->cost);
  output_discard(&o->json);
}

static bool write_outputs(arguments *a, outputs *o, const probe_result *result) {
  if (!is_standard_output(a->json)) probe_report_text(stdout, result);
  if (a->json != NULL && !probe_report_json(o->json.file, result)) return tool_fail(&a->error, "host memory ran out");
  if (fflush(stdout) != 0 || ferror(stdout)) return tool_fail(&a->error, "standard output could not be written");
  if (a->json != NULL && !output_finish(&o->json, &a->error)) return false;
  if (a->cost_file == NULL) return true;
  probe_cost_write(o->cost.file, &result->facts, result->device, &result->latency);
  return output_finish(&o->cost, &a->error);
}

static int run(arguments *a, outputs *o) {
  if (!open_outputs(a, o)) return EXIT_USAGE;
  progress bar = progress_start();
  const probe_settings cuda = PROBE_SETTINGS_CUDA, host = PROBE_SETTINGS_HOST;
  probe_options options = {.open = open_driver,
                           .open_context = &a->driver,
                           .device = (int)a->device,
                           .settings = a->driver == VMP_DRIVER_HOST ? host : cuda,
                           .limit_ms = PROBE_LIMIT_MS,
                           .progress = progress_show,
                           .progress_context = &bar};
  options.settings.repeat = (uint32_t)a->repeat;
  probe_result *result = probe_run(&options, &a->error);
  progress_end(&bar);
  if (result == NULL) return EXIT_USAGE;
  int status = EXIT_USAGE;
  if (write_outputs(a, o, result)) status = probe_good(result) ? EXIT_GOOD : EXIT_BAD;
  probe_result_free(result);
  return status;
}

int cmd_probe(int argc, char **argv) {
  arguments a = {.driver = VMP_DRIVER_CUDA, .repeat = 100};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  outputs o = {0};
  const int status = run(&a, &o);
  discard_outputs(&o);
  return status == EXIT_USAGE ? cmd_fail(argv[0], &a.error) : status;
}
