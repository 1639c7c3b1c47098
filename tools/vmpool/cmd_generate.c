// vmpool generate train|serve: synthetic traces in the Plain format, from public model shapes.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/common/output.h"
#include "tools/models/train.h"
#include "tools/trace/trace.h"
#include "tools/vmpool/commands.h"

enum {
  OPTION_MODEL = 256,
  OPTION_SEED,
  OPTION_BATCH,
  OPTION_SEQ,
  OPTION_STEPS,
  OPTION_RECOMPUTE,
  OPTION_REQUESTS,
  OPTION_REQUEST_RATE,
  OPTION_KV,
  OPTION_KV_PAGE_TOKENS,
  OPTION_OUTPUT = 'o',
};

typedef struct arguments {
  const model_shape *model;
  uint64_t seed;
  train_options train;
  service_options kv;
  uint64_t requests, page_tokens;
  double request_rate;
  const char *path;
  tool_error error;
} arguments;

// ---- arguments ----

static error_t parse_common(int key, char *text, arguments *a) {
  switch (key) {
    case OPTION_MODEL:
      a->model = model_find(text);
      if (a->model != NULL) return 0;
      return cmd_bad(&a->error, "--model: '%s' is unknown; vmpool help models lists the known ones", text);
    case OPTION_SEED: return cmd_number("--seed", text, 0, UINT64_MAX, &a->seed, &a->error);
    case OPTION_OUTPUT: a->path = text; return 0;
    case ARGP_KEY_ARG: return cmd_bad(&a->error, "'%s' is no option, and nothing else is expected", text);
    case ARGP_KEY_END:
      return a->model != NULL ? 0 : cmd_bad(&a->error, "--model is missing; vmpool help models lists the known ones");
    default: return ARGP_ERR_UNKNOWN;
  }
}

#define COMMON_OPTIONS                                                                \
  {"model", OPTION_MODEL, "NAME", 0, "The model (vmpool help models lists them)", 0}, \
      {"seed", OPTION_SEED, "N", 0, "The seed of everything drawn (default 1)", 0}, { \
    "output", OPTION_OUTPUT, "FILE", 0, "Write to FILE (default standard output)", 0  \
  }

static error_t parse_train(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_BATCH: return cmd_number("--batch", text, 1, TRAIN_MAX_BATCH, &a->train.batch, &a->error);
    case OPTION_SEQ: return cmd_range("--seq", text, &a->train.seq_low, &a->train.seq_high, &a->error);
    case OPTION_STEPS: return cmd_number("--steps", text, 1, 1000000, &a->train.steps, &a->error);
    case OPTION_RECOMPUTE: a->train.recompute = true; return 0;
    default: return parse_common(key, text, a);
  }
}

static const struct argp_option train_list[] = {
    COMMON_OPTIONS,
    {"batch", OPTION_BATCH, "N", 0, "Sequences in a step (default 1)", 0},
    {"seq", OPTION_SEQ, "N|LOW..HIGH", 0,
     "Tokens in a sequence: fixed, or drawn uniformly for each step (default 1024)", 0},
    {"steps", OPTION_STEPS, "N", 0, "Training steps (default 1)", 0},
    {"recompute", OPTION_RECOMPUTE, 0, 0, "Keep only each layer's input, and run its forward pass again", 0},
    {0},
};

static const struct argp train_argp = {
    train_list,
    parse_train,
    NULL,
    "Writes the allocations of training steps, worked out from a model's public shape.\v"
    "Examples:\n"
    "  vmpool generate train --model gpt2 --batch 8 | vmpool replay -\n"
    "  vmpool generate train --model gpt2-xl --batch 4 --seq 256..1024 --steps 30 -o gpt2-xl.trace\n"
    "  vmpool generate train --model llama-3-8b --seq 8192 --recompute -o llama.trace\n"
    "\n"
    "Mixed precision (bf16, with fp32 master weights and moments), Adam, attention without the score matrix, one "
    "device. "
    "For the GPT-2 and Llama families.",
    NULL,
    NULL,
    NULL};

static error_t parse_serve(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_REQUESTS: return cmd_number("--requests", text, 1, 10000000, &a->requests, &a->error);
    case OPTION_REQUEST_RATE: return cmd_real("--request-rate", text, 1e6, &a->request_rate, &a->error);
    case OPTION_KV:
      a->kv.layout = strcmp(text, "paged") == 0 ? SERVICE_PAGED : SERVICE_CONTIGUOUS;
      if (strcmp(text, "paged") == 0 || strcmp(text, "contiguous") == 0) return 0;
      return cmd_bad(&a->error, "--kv: '%s' is neither contiguous nor paged", text);
    case OPTION_KV_PAGE_TOKENS: return cmd_number("--kv-page-tokens", text, 1, 1 << 20, &a->page_tokens, &a->error);
    default: return parse_common(key, text, a);
  }
}

static const struct argp_option serve_list[] = {
    COMMON_OPTIONS,
    {"requests", OPTION_REQUESTS, "N", 0, "Requests (default 1000)", 0},
    {"request-rate", OPTION_REQUEST_RATE, "R", 0, "Requests a second, on average (default 2)", 0},
    {"kv", OPTION_KV, "contiguous|paged", 0, "One block a request, or pages as tokens come (default contiguous)", 0},
    {"kv-page-tokens", OPTION_KV_PAGE_TOKENS, "N", 0, "Tokens of a page with --kv paged (default 16)", 0},
    {0},
};

static const struct argp serve_argp = {
    serve_list,
    parse_serve,
    NULL,
    "Writes the KV-cache allocations of serving synthetic requests.\v"
    "Examples:\n"
    "  vmpool generate serve --model llama-3-8b --requests 500 | vmpool replay -\n"
    "  vmpool generate serve --model llama-2-7b --requests 2000 --seed 7 --kv paged -o serve.trace\n"
    "\n"
    "Requests arrive as a Poisson process. Prompt lengths are log-normal with median 1020 and sigma 0.85, output "
    "lengths "
    "log-normal with median 129 and sigma 0.76, both from 1 to 16384 tokens, which is close to the quantiles of "
    "Azure's "
    "conversation trace of 2023. A request's prompt takes 1 s per 8000 tokens, an output token 30 ms; its memory is "
    "freed "
    "with its last token. Elements of the cache have 2 bytes.",
    NULL,
    NULL,
    NULL};

// ---- output ----

static void write_header(FILE *out, const arguments *a, int argc, char **argv, trace *t, const train_totals *totals) {
  fprintf(out, "# %s", argv[0]);
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "-o") == 0 || strcmp(argv[i], "--output") == 0) {
      i++;
    } else if (strncmp(argv[i], "--output=", 9) != 0 && strncmp(argv[i], "-o", 2) != 0) {
      fprintf(out, " %s", argv[i]);
    }
  }
  trace_totals measured;
  trace_measure(t, &measured);
  fprintf(out, "\n# alloc <id> <bytes> <stream> [t_us] and free <id> <stream> [t_us]\n");
  if (totals != NULL) {
    fprintf(out, "# %s: %" PRIu64 " parameters; %" PRIu64 " persistent allocations of %" PRIu64 " bytes\n",
            a->model->name, model_parameters(a->model), totals->persistent_allocs, totals->persistent_bytes);
  } else {
    fprintf(out, "# %s: %" PRIu64 " bytes of KV cache per token over all layers\n", a->model->name,
            model_kv_bytes_per_token(a->model, 2));
  }
  fprintf(out, "# %" PRIu64 " allocations, %" PRIu64 " frees, at most %" PRIu64 " bytes live\n", measured.allocs,
          measured.frees, measured.peak_bytes);
}

static int write_trace(arguments *a, int argc, char **argv, trace *t, const train_totals *totals) {
  output out;
  if (!output_open(&out, a->path, &a->error)) return cmd_fail(argv[0], &a->error);
  write_header(out.file, a, argc, argv, t, totals);
  if (!trace_write_plain(t, out.file) && trace_failed(t)) {
    output_discard(&out);
    tool_fail(&a->error, "host memory ran out");
    return cmd_fail(argv[0], &a->error);
  }
  return output_finish(&out, &a->error) ? EXIT_GOOD : cmd_fail(argv[0], &a->error);
}

static int generate_train(int argc, char **argv) {
  arguments a = {.seed = 1, .path = "-", .train = {.batch = 1, .seq_low = 1024, .seq_high = 1024, .steps = 1}};
  if (!cmd_parse(&train_argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  a.train.model = a.model;
  a.train.seed = a.seed;
  trace_list list;
  train_totals totals;
  trace *t = NULL;
  trace_list_init(&list);
  if (!train_generate(&a.train, &list, &totals, &a.error)) {
    trace_list_destroy(&list);
    return cmd_fail(argv[0], &a.error);
  }
  if (!trace_of_list("generated", &list, &t, &a.error)) return cmd_fail(argv[0], &a.error);
  const int status = write_trace(&a, argc, argv, t, &totals);
  trace_close(t);
  return status;
}

static int generate_serve(int argc, char **argv) {
  arguments a = {.seed = 1,
                 .path = "-",
                 .requests = 1000,
                 .request_rate = 2,
                 .page_tokens = 16,
                 .kv = {.layout = SERVICE_CONTIGUOUS}};
  if (!cmd_parse(&serve_argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  a.kv.model = a.model;
  a.kv.page_tokens = (uint32_t)a.page_tokens;
  service_requests requests = {0};
  service_generate(&requests, a.requests, a.request_rate, a.seed);
  trace_source source;
  uint64_t num_events;
  trace *t = NULL;
  if (!service_open(&requests, &a.kv, &source, &num_events, &a.error) ||
      !trace_of_source("generated", &source, num_events, &t, &a.error)) {
    return cmd_fail(argv[0], &a.error);
  }
  const int status = write_trace(&a, argc, argv, t, NULL);
  trace_close(t);
  return status;
}

int cmd_generate(int argc, char **argv) {
  const char *kind = argc > 1 ? argv[1] : "";
  if (strcmp(kind, "train") == 0) {
    argv[1] = (char[]){"vmpool generate train"};
    return generate_train(argc - 1, argv + 1);
  }
  if (strcmp(kind, "serve") == 0) {
    argv[1] = (char[]){"vmpool generate serve"};
    return generate_serve(argc - 1, argv + 1);
  }
  if (strcmp(kind, "--help") == 0 || strcmp(kind, "-?") == 0) {
    puts(
        "Usage: vmpool generate train|serve [OPTION...]\nWrites synthetic traces in the Plain format.\n\n"
        "  vmpool generate train --help   training steps\n  vmpool generate serve --help   serving requests");
    return EXIT_GOOD;
  }
  tool_error error;
  tool_fail(&error, "%s%s%swhat to generate is train or serve", *kind != '\0' ? "'" : "", kind,
            *kind != '\0' ? "' is unknown; " : "");
  return cmd_fail(argv[0], &error);
}
