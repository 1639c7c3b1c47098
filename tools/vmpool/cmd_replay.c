// vmpool replay: options to a replay, a replay's figures to a document.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/output.h"
#include "tools/replay/replay.h"
#include "tools/replay/report.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/progress.h"

enum {
  OPTION_DRIVER = 256,
  OPTION_DEVICE_BYTES,
  OPTION_COST,
  OPTION_MIN_CAPACITY,
  OPTION_COMPARE,
  OPTION_STREAMS,
  OPTION_SCALE,
  OPTION_REPEAT,
  OPTION_PRESET,
  OPTION_CONF,
  OPTION_WORK,
  OPTION_INTRUDER,
  OPTION_STEP_EVERY,
  OPTION_DEFRAGMENT,
  OPTION_COMPACT,
  OPTION_PROPOSE_CLASSES,
  OPTION_JSON,
  OPTION_LOG,
  OPTION_SNAPSHOT,
  OPTION_SNAPSHOT_AT,
  OPTION_KV,
  OPTION_MODEL,
  OPTION_KV_PAGE_TOKENS,
  OPTION_KV_LAYOUT,
  OPTION_KV_SHARE,
  OPTION_REQUEST_RATE,
  OPTION_PAIRING,
  OPTION_TRACE_DEVICE,
};

static const struct argp_option option_list[] = {
    {0, 0, 0, 0, "Where it runs:", 1},
    {"driver", OPTION_DRIVER, "host|cuda", 0, "The driver (default host: a strict model on this machine)", 0},
    {"device-bytes", OPTION_DEVICE_BYTES, "SIZE", 0,
     "Memory of the host driver's device, like 80GiB (default unlimited)", 0},
    {"cost", OPTION_COST, "FILE", 0,
     "What driver calls cost on the host driver's clock, as vmpool probe --cost-file writes it (default: published "
     "figures)",
     0},
    {"min-capacity", OPTION_MIN_CAPACITY, 0, 0,
     "Find the smallest device, in steps of one granule, on which no allocation fails; the other figures then describe "
     "the run on it",
     0},
    {"preset", OPTION_PRESET, "NAME", 0,
     "The pool's preset: mixed (default), tight, training, inference, classic, blocks, slab, mid or buddy", 0},
    {"conf", OPTION_CONF, "KEY:VALUE,...", 0, "The pool's options as text, like chunk_max:2MiB", 0},
    {"compare", OPTION_COMPARE, 0, 0,
     "Run the trace through models of a caching allocator and of expandable segments as well, on the same device (with "
     "--min-capacity each on its own smallest one)",
     0},
    {0, 0, 0, 0, "What is replayed:", 2},
    {"streams", OPTION_STREAMS, "N", 0, "Spread over N streams: allocation i, from 0, uses stream (i / 500) mod N", 0},
    {"scale", OPTION_SCALE, "X", 0, "Multiply every size by X", 0},
    {"repeat", OPTION_REPEAT, "N", 0, "Play the trace N times; what is live at the end of one time stays live", 0},
    {"intruder", OPTION_INTRUDER, "SPEC", 0,
     "After every so many events, allocate a block that is never freed, of a size drawn uniformly; SPEC is like "
     "every=200,bytes=64KiB..1MiB, with seed=N after it or not",
     0},
    {"step-every", OPTION_STEP_EVERY, "[FIRST+]N", 0,
     "End a step of the pool after every N events of the trace (vmp_pool_step), the first one FIRST events later; "
     "without it each of several repetitions is a step",
     0},
    {"defragment", OPTION_DEFRAGMENT, "end|steps=N", 0,
     "Defragment the pool: idle memory is remapped behind one another, nothing is copied. end: once all work has "
     "finished, after the trace; steps=N: after every N steps (--step-every says what a step is)",
     0},
    {"compact", OPTION_COMPACT, NULL, 0,
     "Once all work has finished, after the trace, trim the pool, split and mesh: how much stays mapped after each", 0},
    {"propose-classes", OPTION_PROPOSE_CLASSES, "N[,SHARE]", 0,
     "Propose N block sizes for the pool's option classes, at the end: those that waste least on the smallest SHARE of "
     "the requests (default 0.9)",
     0},
    {"work", OPTION_WORK, "MODE", 0,
     "When the touches of blocks that the replay queues run: late (only when the host waits; default), early (at "
     "once), "
     "seed:N (interleaved by a seed), lag:N (once N later operations are queued), none (none are queued)",
     0},
    {0, 0, 0, 0, "How the file is read:", 3},
    {"pairing", OPTION_PAIRING, "lifo|fifo", 0, "Which block of a size a free without an id ends (default lifo)", 0},
    {"kv", OPTION_KV, "contiguous|paged|region", 0,
     "How the KV cache of a file of requests is allocated; region: each request has a region as long as the longest "
     "context, committed as it grows (vmpool_region.h)",
     0},
    {"model", OPTION_MODEL, "NAME", 0, "The model that serves the requests (vmpool help models lists them)", 0},
    {"kv-page-tokens", OPTION_KV_PAGE_TOKENS, "N", 0, "Tokens of a page with --kv paged (default 16)", 0},
    {"kv-layout", OPTION_KV_LAYOUT, "request|layer", 0,
     "With --kv region: one region a request, over all layers (default), or one a layer and request", 0},
    {"kv-share", OPTION_KV_SHARE, 0, 0,
     "With --kv region: requests with equal prefixes (hash_ids of the Mooncake format) share their pages; the trace is "
     "played without that, too",
     0},
    {"request-rate", OPTION_REQUEST_RATE, "R", 0, "Requests a second, for files without arrival times (default 2)", 0},
    {"trace-device", OPTION_TRACE_DEVICE, "N", 0, "The device of a PyTorch snapshot that has events of several", 0},
    {0, 0, 0, 0, "What comes out:", 4},
    {"json", OPTION_JSON, "FILE", 0, "Write the figures as JSON; - is standard output, which then holds nothing else",
     0},
    {"snapshot", OPTION_SNAPSHOT, "FILE", 0, "Write a snapshot of the pool, for vmpool map and the others", 0},
    {"snapshot-at", OPTION_SNAPSHOT_AT, "peak|end|N", 0,
     "When: as the highest mapped bytes are reached (default; the trace is replayed twice), after the trace, or after "
     "N "
     "events",
     0},
    {"log", OPTION_LOG, "FILE", 0, "Write an event log of the pool; a log is a trace, too", 0},
    {0},
};

static const char doc[] =
    "Plays a trace of allocations and frees through a pool and says what it cost.\v"
    "Examples:\n"
    "  vmpool replay trace.csv\n"
    "  vmpool replay trace.csv --min-capacity --json -\n"
    "  vmpool replay trace.csv --device-bytes 3GiB --preset tight\n"
    "  vmpool replay trace.csv --min-capacity --compare\n"
    "  vmpool replay trace.csv --snapshot peak.json --log run.vmplog\n"
    "  vmpool replay requests.csv --kv paged --model llama-3-8b\n"
    "  vmpool replay requests.csv --kv region --model llama-3-8b\n"
    "  vmpool generate train --model gpt2 | vmpool replay -\n"
    "\n"
    "TRACE is a file or - for standard input; its format is recognised by its content (vmpool help formats). Exit "
    "status: "
    "0 done, 1 it ran but an allocation, a check or a touch failed, 2 the arguments or the trace can't be used. A "
    "trace may "
    "come from anywhere; VMP_CONF in the environment changes the pool's options here as everywhere.";

typedef struct arguments {
  replay_options replay;
  trace_options trace;
  const char *path, *json;
  bool has_device_bytes, has_work, has_snapshot_at, has_kv_layout;
  tool_error error;
} arguments;

static error_t parse_choice(arguments *a, const char *option, const char *text, const char *first, const char *second,
                            int *out_choice) {
  *out_choice = strcmp(text, first) == 0 ? 0 : 1;
  if (*out_choice == 0 || strcmp(text, second) == 0) return 0;
  return cmd_bad(&a->error, "%s: '%s' is neither %s nor %s", option, text, first, second);
}

static error_t parse_trace_option(int key, char *text, arguments *a) {
  uint64_t number = 0;
  int choice = 0;
  error_t result = 0;
  switch (key) {
    case OPTION_PAIRING:
      result = parse_choice(a, "--pairing", text, "lifo", "fifo", &choice);
      a->trace.pairing = choice == 0 ? TRACE_LIFO : TRACE_FIFO;
      return result;
    case OPTION_KV:
      a->trace.kv.layout = SERVICE_REGION;
      if (strcmp(text, "region") == 0) return 0;
      a->trace.kv.layout = strcmp(text, "paged") == 0 ? SERVICE_PAGED : SERVICE_CONTIGUOUS;
      if (a->trace.kv.layout == SERVICE_PAGED || strcmp(text, "contiguous") == 0) return 0;
      return cmd_bad(&a->error, "--kv: '%s' is none of contiguous, paged and region", text);
    case OPTION_KV_LAYOUT:
      a->has_kv_layout = true;
      result = parse_choice(a, "--kv-layout", text, "request", "layer", &choice);
      a->replay.kv_per_layer = choice == 1;
      return result;
    case OPTION_KV_SHARE: a->replay.kv_share = true; return 0;
    case OPTION_MODEL:
      a->trace.kv.model = model_find(text);
      if (a->trace.kv.model != NULL) return 0;
      return cmd_bad(&a->error, "--model: '%s' is unknown; vmpool help models lists the known ones", text);
    case OPTION_KV_PAGE_TOKENS:
      result = cmd_number("--kv-page-tokens", text, 1, 1 << 20, &number, &a->error);
      a->trace.kv.page_tokens = (uint32_t)number;
      return result;
    case OPTION_REQUEST_RATE: return cmd_real("--request-rate", text, 1e6, &a->trace.request_rate, &a->error);
    case OPTION_TRACE_DEVICE:
      result = cmd_number("--trace-device", text, 0, 1023, &number, &a->error);
      a->trace.device = (int)number;
      return result;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_defragment(const char *text, arguments *a) {
  a->replay.defragment_end = strcmp(text, "end") == 0;
  a->replay.defragment_every = 0;
  if (a->replay.defragment_end) return 0;
  if (strncmp(text, "steps=", 6) != 0) return cmd_bad(&a->error, "--defragment: '%s' is neither end nor steps=N", text);
  return cmd_number("--defragment steps", text + 6, 1, UINT64_MAX, &a->replay.defragment_every, &a->error);
}

// parse_step_every reads "N" or "FIRST+N".
static error_t parse_step_every(char *text, arguments *a) {
  char *plus = strchr(text, '+');
  if (plus == NULL) return cmd_number("--step-every", text, 1, UINT64_MAX, &a->replay.step_every, &a->error);
  *plus = '\0';
  const error_t result =
      cmd_number("--step-every, before the +", text, 0, UINT64_MAX / 2, &a->replay.step_first, &a->error);
  *plus = '+';
  if (result != 0) return result;
  return cmd_number("--step-every", plus + 1, 1, UINT64_MAX / 2, &a->replay.step_every, &a->error);
}

// parse_propose reads "N" or "N,SHARE".
static error_t parse_propose(char *text, arguments *a) {
  char *comma = strchr(text, ',');
  if (comma != NULL) *comma = '\0';
  error_t result = cmd_number("--propose-classes", text, 1, VMP_MAX_CLASSES, &a->replay.propose_classes, &a->error);
  if (comma == NULL || result != 0) return result;
  *comma = ',';
  return cmd_real("--propose-classes, behind the comma", comma + 1, 1, &a->replay.propose_share, &a->error);
}

static error_t parse_what(int key, char *text, arguments *a) {
  uint64_t number = 0;
  error_t result = 0;
  switch (key) {
    case OPTION_STREAMS:
      result = cmd_number("--streams", text, 1, TRACE_MAX_STREAMS, &number, &a->error);
      a->replay.streams = (uint32_t)number;
      return result;
    case OPTION_SCALE: return cmd_real("--scale", text, 1e9, &a->replay.scale, &a->error);
    case OPTION_REPEAT: return cmd_number("--repeat", text, 1, 1000000, &a->replay.repeat, &a->error);
    case OPTION_INTRUDER: return intruder_parse(text, &a->replay.intruder, &a->error) ? 0 : EINVAL;
    case OPTION_STEP_EVERY: return parse_step_every(text, a);
    case OPTION_DEFRAGMENT: return parse_defragment(text, a);
    case OPTION_COMPACT: a->replay.compact_end = true; return 0;
    case OPTION_PROPOSE_CLASSES: return parse_propose(text, a);
    case OPTION_WORK:
      a->has_work = true;
      if (work_mode_parse(text, &a->replay.work)) return 0;
      return cmd_bad(&a->error, "--work: '%s' is none of late, early, seed:N, lag:N and none", text);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_where(int key, char *text, arguments *a) {
  int choice = 0;
  error_t result = 0;
  switch (key) {
    case OPTION_DRIVER:
      result = parse_choice(a, "--driver", text, "host", "cuda", &choice);
      a->replay.driver = choice == 0 ? VMP_DRIVER_HOST : VMP_DRIVER_CUDA;
      return result;
    case OPTION_DEVICE_BYTES:
      a->has_device_bytes = true;
      return cmd_size("--device-bytes", text, &a->replay.device_bytes, &a->error);
    case OPTION_COST: a->replay.cost_file = text; return 0;
    case OPTION_MIN_CAPACITY: a->replay.min_capacity = true; return 0;
    case OPTION_COMPARE: a->replay.compare = true; return 0;
    case OPTION_PRESET: a->replay.preset = text; return 0;
    case OPTION_CONF: a->replay.conf = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_snapshot_at(const char *text, arguments *a) {
  a->has_snapshot_at = true;
  a->replay.snapshot_at = strcmp(text, "end") == 0 ? REPLAY_AT_END : REPLAY_AT_PEAK;
  if (strcmp(text, "end") == 0 || strcmp(text, "peak") == 0) return 0;
  a->replay.snapshot_at = REPLAY_AT_EVENT;
  return cmd_number("--snapshot-at", text, 1, UINT64_MAX, &a->replay.snapshot_event, &a->error);
}

// What can't be had together.
static error_t check(arguments *a) {
  const bool cuda = a->replay.driver == VMP_DRIVER_CUDA;
  if (a->path == NULL) return cmd_bad(&a->error, "a trace is missing; vmpool replay --help shows how it is called");
  if (cuda && a->has_device_bytes)
    return cmd_bad(&a->error, "--device-bytes is for the host driver; a GPU has what it has");
  if (cuda && a->replay.cost_file != NULL)
    return cmd_bad(&a->error, "--cost is for the host driver's clock; on a GPU time is measured");
  if (cuda && a->replay.min_capacity)
    return cmd_bad(&a->error, "--min-capacity needs the host driver, whose device has any size");
  if (cuda && a->replay.compare)
    return cmd_bad(&a->error, "--compare needs the host driver, whose device the models can share");
  if (cuda && a->has_work && !a->replay.work.none)
    return cmd_bad(&a->error, "--work is for the host driver; a GPU runs when it runs");
  if (a->has_snapshot_at && a->replay.snapshot == NULL)
    return cmd_bad(&a->error, "--snapshot-at needs --snapshot FILE");
  if (a->has_device_bytes && a->replay.min_capacity)
    return cmd_bad(&a->error, "--device-bytes and --min-capacity exclude each other");
  if (a->has_device_bytes && a->replay.device_bytes == 0)
    return cmd_bad(&a->error, "--device-bytes: a device of 0 bytes is none");
  if (a->replay.defragment_every > 0 && a->replay.step_every == 0)
    return cmd_bad(&a->error, "--defragment steps=N needs --step-every N, which says what a step is");
  if (a->trace.kv.layout != SERVICE_NO_LAYOUT && a->trace.kv.model == NULL)
    return cmd_bad(&a->error, "--kv needs a --model");
  if (a->trace.kv.layout == SERVICE_NO_LAYOUT && a->trace.kv.model != NULL)
    return cmd_bad(&a->error, "--model needs --kv contiguous, --kv paged or --kv region");
  return 0;
}

// What goes with regions only, or not with them.
static error_t check_regions(arguments *a) {
  if (a->trace.kv.layout == SERVICE_REGION) {
    if (a->replay.compare)
      return cmd_bad(&a->error,
                     "--compare needs blocks, as --kv contiguous and --kv paged have them; regions grow in place");
    if (a->replay.scale != 0) return cmd_bad(&a->error, "--scale: how long regions are follows from their tokens");
    if (a->replay.kv_share && a->replay.streams > 1)
      return cmd_bad(&a->error, "--kv-share needs one stream: nothing orders requests that share pages");
    return 0;
  }
  if (a->has_kv_layout) return cmd_bad(&a->error, "--kv-layout needs --kv region");
  if (a->replay.kv_share) return cmd_bad(&a->error, "--kv-share needs --kv region");
  return 0;
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  if (key == OPTION_JSON) {
    a->json = text;
    return 0;
  }
  if (key == OPTION_LOG) a->replay.log = text;
  if (key == OPTION_SNAPSHOT) a->replay.snapshot = text;
  if (key == OPTION_LOG || key == OPTION_SNAPSHOT) return 0;
  if (key == OPTION_SNAPSHOT_AT) return parse_snapshot_at(text, a);
  if (key == ARGP_KEY_ARG) {
    if (a->path != NULL) return cmd_bad(&a->error, "one trace at a time; '%s' is a second one", text);
    a->path = text;
    return 0;
  }
  if (key == ARGP_KEY_END) {
    const error_t bad = check(a);
    return bad != 0 ? bad : check_regions(a);
  }
  error_t result = parse_where(key, text, a);
  if (result == ARGP_ERR_UNKNOWN) result = parse_what(key, text, a);
  if (result == ARGP_ERR_UNKNOWN) result = parse_trace_option(key, text, a);
  return result;
}

static const struct argp argp = {option_list, parse, "TRACE", doc, NULL, NULL, NULL};

static bool write_figures(arguments *a, output *json, const trace *t, const replay_result *result) {
  if (a->json == NULL || strcmp(a->json, "-") != 0) report_text(stdout, a->path, t, result);
  if (a->json != NULL) report_json(json->file, a->path, result);
  if (fflush(stdout) != 0 || ferror(stdout)) return tool_fail(&a->error, "standard output could not be written");
  return a->json == NULL || output_finish(json, &a->error);
}

static int replay_and_report(arguments *a, trace *t) {
  output json = {0};
  if (a->json != NULL && !output_open(&json, a->json, &a->error)) return EXIT_USAGE;
  progress bar = progress_start();
  a->replay.progress = progress_show;
  a->replay.progress_context = &bar;
  replay_result result;
  const bool ran = replay_run(t, &a->replay, &result, &a->error);
  progress_end(&bar);
  if (!ran || !write_figures(a, &json, t, &result)) {
    output_discard(&json);
    return EXIT_USAGE;
  }
  if (a->replay.min_capacity && !result.has_min_capacity) {
    fprintf(stderr, "vmpool replay: no device is large enough; allocations fail on an unlimited one\n");
  }
  return replay_good(&result) ? EXIT_GOOD : EXIT_BAD;
}

int cmd_replay(int argc, char **argv) {
  arguments a = {.replay = REPLAY_OPTIONS_INIT, .trace = TRACE_OPTIONS_INIT};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  trace *t = NULL;
  if (!trace_read(a.path, &a.trace, &t, &a.error)) return cmd_fail(argv[0], &a.error);
  if (t->remark.text[0] != '\0') fprintf(stderr, "%s: %s\n", argv[0], t->remark.text);
  const int status = replay_and_report(&a, t);
  trace_close(t);
  return status == EXIT_USAGE ? cmd_fail(argv[0], &a.error) : status;
}
