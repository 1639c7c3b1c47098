// vmpool bench: options to a benchmark, its figures to a document.
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench/bench.h"
#include "tools/bench/peers.h"
#include "tools/bench/report.h"
#include "tools/common/output.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/progress.h"

enum {
  OPTION_DRIVER = 256,
  OPTION_DEVICE_BYTES,
  OPTION_PRESET,
  OPTION_CONF,
  OPTION_PAIRS,
  OPTION_SETUP_PAIRS,
  OPTION_SEED,
  OPTION_SEEDS,
  OPTION_LIVE,
  OPTION_THREADS,
  OPTION_WORK,
  OPTION_LATENCY,
  OPTION_PEERS,
  OPTION_JSON,
};

static const struct argp_option option_list[] = {
    {0, 0, 0, 0, "Where it runs:", 1},
    {"driver", OPTION_DRIVER, "host|cuda", 0, "The driver (default host: a strict model on this machine)", 0},
    {"device-bytes", OPTION_DEVICE_BYTES, "SIZE", 0,
     "Memory of the host driver's device (default 256GiB; fill 16GiB; step 1.02 times the step's peak)", 0},
    {"preset", OPTION_PRESET, "NAME", 0,
     "The pool's preset: mixed (default), tight, training, inference, classic, blocks, slab, mid or buddy", 0},
    {"conf", OPTION_CONF, "KEY:VALUE,...", 0, "The pool's options as text, like park_limit:0", 0},
    {0, 0, 0, 0, "What is done:", 2},
    {"pairs", OPTION_PAIRS, "N", 0,
     "Allocate and free exactly N times after the set-up (default pair and batch 5000000, churn 1000000, threads "
     "10000000, scale 2000000, step 50000). fill ends at the first failure, or after N requests",
     0},
    {"setup-pairs", OPTION_SETUP_PAIRS, "N", 0, "churn: replace N blocks before the measured ones (default 500000)", 0},
    {"seed", OPTION_SEED, "N", 0, "Of sizes and victims (default 1)", 0},
    {"seeds", OPTION_SEEDS, "N", 0, "fill: run N seeds from --seed on; the median and the worst are reported", 0},
    {"live", OPTION_LIVE, "N", 0,
     "Blocks that are live all the time (default churn 10000, scale 1000000; pair 0, besides the one it works on)", 0},
    {"threads", OPTION_THREADS, "N", 0, "threads: so many (default 2)", 0},
    {"work", OPTION_WORK, "MODE", 0,
     "Queue touches of every block, and run them late, early, seed:N, lag:N as vmpool replay does (default none)", 0},
    {0, 0, 0, 0, "What is measured:", 3},
    {"latency", OPTION_LATENCY, 0, 0,
     "Percentiles of single allocations, from a second pass of as many pairs; those that made a driver call apart", 0},
    {"peers", OPTION_PEERS, 0, 0, "Run mimalloc, jemalloc and tcmalloc in the same rounds, where this machine has them",
     0},
    {"json", OPTION_JSON, "FILE", 0, "Write the figures as JSON; - is standard output, which then holds nothing else",
     0},
    {0},
};

static const char doc[] =
    "Measures what the pool costs on requests that are drawn by a seed.\v"
    "NAME is one of\n"
    "  pair      one block of 64 KiB, allocated and freed again and again\n"
    "  batch     256 allocations of 64 KiB, then 256 frees\n"
    "  churn     live blocks from 512 B to 64 MiB, a random one replaced again and again\n"
    "  threads   the pair by several threads at once, against one alone\n"
    "  scale     blocks from 512 B to 64 KiB: a million live ones against a thousand\n"
    "  fill      how much of a device is in use when the first allocation fails\n"
    "  step      a training step of GPT-2 XL on a device of 1.02 times its peak\n"
    "  log       the pair with an event log, against one without; what an event costs\n"
    "\n"
    "Times are of this machine, and compare within one run only: all that is compared alternates in 25 rounds. Memory "
    "and driver calls are the same on every machine. Instructions per pair: tools/bench/instructions.sh in the "
    "sources. Exit status: 0 done, 1 it ran but a touch found something wrong, 2 it could not run.";

typedef struct arguments {
  bench_options bench;
  const benchmark *chosen;
  const char *json;
  tool_error error;
} arguments;

static error_t parse_what(int key, char *text, arguments *a) {
  uint64_t number = 0;
  error_t result = 0;
  switch (key) {
    case OPTION_PAIRS: return cmd_number("--pairs", text, 1, UINT64_C(1) << 40, &a->bench.pairs, &a->error);
    case OPTION_SETUP_PAIRS:
      return cmd_number("--setup-pairs", text, 0, UINT64_C(1) << 40, &a->bench.setup_pairs, &a->error);
    case OPTION_SEED: return cmd_number("--seed", text, 0, UINT64_MAX, &a->bench.seed, &a->error);
    case OPTION_SEEDS:
      result = cmd_number("--seeds", text, 1, BENCH_MAX_SEEDS, &number, &a->error);
      a->bench.seeds = (uint32_t)number;
      return result;
    case OPTION_LIVE: return cmd_number("--live", text, 1, BENCH_MAX_LIVE, &a->bench.live, &a->error);
    case OPTION_THREADS:
      result = cmd_number("--threads", text, 1, BENCH_MAX_THREADS, &number, &a->error);
      a->bench.threads = (uint32_t)number;
      return result;
    case OPTION_WORK:
      if (work_mode_parse(text, &a->bench.work)) return 0;
      return cmd_bad(&a->error, "--work: '%s' is none of late, early, seed:N, lag:N and none", text);
    case OPTION_LATENCY: a->bench.latency = true; return 0;
    case OPTION_PEERS: a->bench.peers = true; return 0;
    case OPTION_JSON: a->json = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse_where(int key, char *text, arguments *a) {
  error_t result = 0;
  switch (key) {
    case OPTION_DRIVER:
      if (strcmp(text, "host") != 0 && strcmp(text, "cuda") != 0)
        return cmd_bad(&a->error, "--driver: '%s' is neither host nor cuda", text);
      a->bench.driver = strcmp(text, "host") == 0 ? VMP_DRIVER_HOST : VMP_DRIVER_CUDA;
      return 0;
    case OPTION_DEVICE_BYTES:
      result = cmd_size("--device-bytes", text, &a->bench.device_bytes, &a->error);
      if (result == 0 && a->bench.device_bytes == 0)
        return cmd_bad(&a->error, "--device-bytes: a device of 0 bytes is none");
      return result;
    case OPTION_PRESET: a->bench.preset = text; return 0;
    case OPTION_CONF: a->bench.conf = text; return 0;
    default: return ARGP_ERR_UNKNOWN;
  }
}

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  if (key == ARGP_KEY_ARG) {
    if (a->chosen != NULL) return cmd_bad(&a->error, "one benchmark at a time; '%s' is a second one", text);
    a->chosen = bench_find(text);
    if (a->chosen != NULL) return 0;
    return cmd_bad(&a->error, "'%s' is none of pair, batch, churn, threads, scale, fill and step", text);
  }
  if (key == ARGP_KEY_END) {
    if (a->chosen == NULL)
      return cmd_bad(&a->error, "a benchmark is missing: pair, batch, churn, threads, scale, fill or step");
    return bench_check(a->chosen, &a->bench, &a->error) ? 0 : EINVAL;
  }
  const error_t result = parse_where(key, text, a);
  return result == ARGP_ERR_UNKNOWN ? parse_what(key, text, a) : result;
}

static const struct argp argp = {option_list, parse, "NAME", doc, NULL, NULL, NULL};

static bool write_figures(arguments *a, output *json, const bench_result *result) {
  if (a->json == NULL || strcmp(a->json, "-") != 0) bench_report_text(stdout, result);
  if (a->json != NULL) bench_report_json(json->file, result);
  if (fflush(stdout) != 0 || ferror(stdout)) return tool_fail(&a->error, "standard output could not be written");
  return a->json == NULL || output_finish(json, &a->error);
}

static int run_and_report(arguments *a) {
  output json = {0};
  if (a->json != NULL && !output_open(&json, a->json, &a->error)) return EXIT_USAGE;
  progress bar = progress_start();
  a->bench.progress = progress_show;
  a->bench.progress_context = &bar;
  bench_result result;
  const bool ran = bench_run(a->chosen, &a->bench, &result, &a->error);
  progress_end(&bar);
  for (uint64_t i = 0; ran && i < result.num_skipped_peers; i++) {
    fprintf(stderr, "vmpool bench: SKIPPED %s: %s\n", result.skipped_peers[i].name, result.skipped_peers[i].why);
  }
  if (!ran || !write_figures(a, &json, &result)) {
    output_discard(&json);
    return EXIT_USAGE;
  }
  return result.fault[0] == '\0' ? EXIT_GOOD : EXIT_BAD;
}

int cmd_bench(int argc, char **argv) {
  arguments a = {.bench = BENCH_OPTIONS_INIT};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  if (a.bench.peers) {
    // The program's own arguments, of which these are all but the first.
    char program[] = "vmpool", command[] = "bench", *again[64] = {program, command};
    const size_t room = sizeof(again) / sizeof(again[0]) - 3;
    if ((size_t)argc <= room) {
      memcpy(again + 2, argv + 1, (size_t)(argc - 1) * sizeof(*argv));
      peers_restart(again);
    }
  }
  const int status = run_and_report(&a);
  return status == EXIT_USAGE ? cmd_fail(argv[0], &a.error) : status;
}
