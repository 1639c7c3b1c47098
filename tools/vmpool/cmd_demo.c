// vmpool demo: one GPT-2 training step through a pool, with maps of mapped against reserved on the way.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/common/number.h"
#include "tools/models/train.h"
#include "tools/replay/player.h"
#include "tools/vmpool/commands.h"
#include "tools/vmpool/map.h"

#define HOST_DEVICE_BYTES (UINT64_C(80) << 30)
#define SEQUENCE 1024u
#define MAP_ROWS 4u

// ---- the step ----

// check_values of one step of gpt2 at batch 8 and sequence 1024, worked out independently of this program.
static const struct {
  uint64_t batch, persistent_allocs, persistent_bytes, step_allocs, peak_bytes;
} check_values = {8, 592, 1742157312, 573, 8306652676};

typedef struct demo {
  map_style style;
  const char *driver;  // "auto", "host" or "cuda"
  uint64_t batch;
  trace_list list;
  train_totals totals;
  player *p;
  tool_error error;
} demo;

static bool generate(demo *d, uint64_t batch) {
  const train_options options = {
      .model = model_find("gpt2"), .batch = batch, .seq_low = SEQUENCE, .seq_high = SEQUENCE, .steps = 1, .seed = 1};
  trace_list_destroy(&d->list);
  d->batch = batch;
  return train_generate(&options, &d->list, &d->totals, &d->error);
}

// The largest batch up to 8 that leaves a tenth of the device's free memory alone.
static bool choose_batch(demo *d) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  const vmp_status status = vmp_pool_stats(player_pool(d->p), &stats);
  if (status < 0) return tool_fail_status(&d->error, status, "the statistics could not be read");
  for (uint64_t batch = check_values.batch; batch > 0; batch /= 2) {
    if (!generate(d, batch)) return false;
    if (d->list.peak_bytes <= stats.device_free - stats.device_free / 10) return true;
  }
  return tool_fail(&d->error, "the device has too little free memory for a step of gpt2, even with a batch of 1");
}

static void print_check(const char *what, uint64_t expected, uint64_t got, bool *good) {
  printf("  %-26s %12" PRIu64 " %12" PRIu64 "  %s\n", what, expected, got, expected == got ? "ok" : "DIFFERS");
  *good = *good && expected == got;
}

static bool print_step(const demo *d) {
  bool good = true;
  printf("step    gpt2, batch %" PRIu64 ", sequence %u, mixed precision with Adam\n", d->batch, SEQUENCE);
  if (d->batch != check_values.batch) {
    printf("        (a smaller batch than 8, since the device has little memory)\n\n");
    return true;
  }
  printf("\n  %-26s %12s %12s\n", "check values", "expected", "generated");
  print_check("persistent allocations", check_values.persistent_allocs, d->totals.persistent_allocs, &good);
  print_check("persistent bytes", check_values.persistent_bytes, d->totals.persistent_bytes, &good);
  print_check("allocations in the step", check_values.step_allocs, d->totals.first_step_allocs, &good);
  print_check("bytes at the peak", check_values.peak_bytes, d->list.peak_bytes, &good);
  putchar('\n');
  return good;
}

// ---- the driver ----

static bool open_player(demo *d, vmp_driver_kind kind) {
  const player_options options = {.driver = kind,
                                  .device_bytes = HOST_DEVICE_BYTES,
                                  .work = {.mode = VMP_WORK_LATE},
                                  .num_streams = 1,
                                  .measure = true};
  return player_open(&d->p, &options, &d->error);
}

// Writes a label and a text, broken at spaces so that lines fit; later lines are indented as far as the label.
static void print_wrapped(const char *label, const char *text, unsigned width) {
  const size_t indent = strlen(label);
  size_t column = indent;
  fputs(label, stdout);
  while (*text != '\0') {
    const size_t word = strcspn(text, " ");
    if (column > indent && column + 1 + word > width) {
      printf("\n%*s", (int)indent, "");
      column = indent;
    }
    printf("%s%.*s", column > indent ? " " : "", (int)word, text);
    column += word + (column > indent ? 1 : 0);
    text += word + (text[word] == ' ' ? 1 : 0);
  }
  putchar('\n');
}

static bool open_driver(demo *d) {
  const bool try_cuda = strcmp(d->driver, "host") != 0;
  if (try_cuda && open_player(d, VMP_DRIVER_CUDA)) {
    printf("driver  cuda: the GPU of this machine\n");
    return true;
  }
  if (strcmp(d->driver, "cuda") == 0) return false;
  if (try_cuda) print_wrapped("no GPU  ", d->error.text, d->style.width);
  printf("driver  host: a strict model of the CUDA driver, on this machine\n");
  return open_player(d, VMP_DRIVER_HOST);
}

// ---- maps ----

static bool take_snapshot(demo *d, snapshot *out) {
  const char *folder = getenv("TMPDIR");
  char path[1024];
  snprintf(path, sizeof(path), "%s/vmpool-demo-XXXXXX", folder != NULL && folder[0] == '/' ? folder : "/tmp");
  const int fd = mkstemp(path);
  if (fd < 0) return tool_fail(&d->error, "%s: %s", path, strerror(errno));
  close(fd);
  const vmp_status status = vmp_pool_snapshot(player_pool(d->p), path);
  const bool good = status >= 0 ? snapshot_load(out, path, &d->error)
                                : tool_fail_status(&d->error, status, "the snapshot could not be written");
  unlink(path);
  return good;
}

static bool show(demo *d, const char *title) {
  snapshot s;
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], c[SIZE_TEXT_BYTES], e[SIZE_TEXT_BYTES];
  if (!take_snapshot(d, &s)) return false;
  printf("%s\nlive %s, mapped %s, parked %s, device free %s\n", title, size_text(s.live, a), size_text(s.mapped, b),
         size_text(s.parked, c), size_text(s.device_free, e));
  const bool good = map_ranges(stdout, &d->style, &s, MAP_ROWS) || tool_fail(&d->error, "host memory ran out");
  putchar('\n');
  snapshot_destroy(&s);
  return good;
}

// ---- the run ----

static size_t find_peak(const trace_list *list) {
  uint64_t live = 0;
  for (size_t i = 0; i < list->num_events; i++) {
    live = list->events[i].kind == TRACE_ALLOC ? live + list->events[i].bytes : live - list->events[i].bytes;
    if (live == list->peak_bytes) return i + 1;
  }
  return list->num_events;
}

static bool play(demo *d, size_t from, size_t to) {
  for (size_t i = from; i < to; i++) {
    const trace_event *e = &d->list.events[i];
    if (e->kind == TRACE_FREE) {
      player_free(d->p, e->block, e->stream);
    } else if (!player_alloc(d->p, e->block, e->bytes, e->stream)) {
      return tool_fail(&d->error, "host memory ran out");
    }
  }
  return true;
}

// A trim never waits: it marks what is free behind work that the pool does not yet know to be done, and the next trim
// finds it done.
static bool trim(demo *d) {
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  uint64_t released_bytes = 0;
  for (int i = 0; i < 2; i++) {
    const vmp_status status = vmp_pool_trim(player_pool(d->p), 0, &report);
    if (status < 0) return tool_fail_status(&d->error, status, "the pool could not be trimmed");
    released_bytes += report.released_bytes;
    if (report.kept_pending_bytes == 0) break;
    player_synchronize(d->p);
  }
  char size[SIZE_TEXT_BYTES], title[120];
  snprintf(title, sizeof(title), "3. trimmed: %s went back to the device", size_text(released_bytes, size));
  return show(d, title);
}

static bool print_end(demo *d) {
  const player_counts *c = player_progress(d->p);
  const bool host = strcmp(vmp_driver_name(player_driver(d->p)), "host") == 0;
  player_settle(d->p);
  player_finish(d->p);
  const uint64_t calls = c->driver_calls.create + c->driver_calls.map + c->driver_calls.set_access +
                         c->driver_calls.unmap + c->driver_calls.release;
  printf("%" PRIu64 " allocations, %" PRIu64 " failed; %" PRIu64 " driver calls", c->allocs, c->failed_allocs, calls);
  if (host) printf("; %" PRIu64 " bad touches", c->bad_touches);
  printf("\n%s\n", c->fault[0] != '\0' ? c->fault : "the pool's own check found nothing wrong");
  return c->failed_allocs == 0 && c->bad_touches == 0 && c->fault[0] == '\0';
}

static int run(demo *d) {
  if (!open_driver(d) || !choose_batch(d)) return EXIT_USAGE;
  bool good = print_step(d);
  const size_t peak = find_peak(&d->list);
  if (!show(d, "0. before the first allocation") || !play(d, 0, peak) ||
      !show(d, "1. grown, at the peak of the step") || !play(d, peak, d->list.num_events)) {
    return EXIT_USAGE;
  }
  player_synchronize(d->p);
  if (!show(d, "2. the step is over: what it freed is parked, ready for the next one") || !trim(d)) return EXIT_USAGE;
  map_legend(stdout, &d->style);
  putchar('\n');
  good = print_end(d) && good;
  return good ? EXIT_GOOD : EXIT_BAD;
}

// ---- arguments ----

enum { OPTION_DRIVER = 256, OPTION_ASCII };

static const struct argp_option option_list[] = {
    {"driver", OPTION_DRIVER, "auto|host|cuda", 0,
     "auto (default) takes CUDA where there is a GPU, else the host driver", 0},
    {"ascii", OPTION_ASCII, 0, 0, "Draw with ASCII characters (default where the locale is not UTF-8)", 0},
    {0},
};

typedef struct arguments {
  const char *driver;
  bool ascii;
  tool_error error;
} arguments;

static error_t parse(int key, char *text, struct argp_state *state) {
  arguments *a = state->input;
  switch (key) {
    case OPTION_DRIVER:
      a->driver = text;
      if (strcmp(text, "auto") == 0 || strcmp(text, "host") == 0 || strcmp(text, "cuda") == 0) return 0;
      return cmd_bad(&a->error, "--driver: '%s' is none of auto, host and cuda", text);
    case OPTION_ASCII: a->ascii = true; return 0;
    case ARGP_KEY_ARG: return cmd_bad(&a->error, "'%s' is no option, and nothing else is expected", text);
    default: return ARGP_ERR_UNKNOWN;
  }
}

static const struct argp argp = {
    option_list,
    parse,
    NULL,
    "Runs a GPT-2 training step through a pool: it grows, frees and trims, with a map of mapped against reserved on "
    "the "
    "way.\v"
    "Examples:\n"
    "  vmpool demo\n"
    "  vmpool demo --driver host\n"
    "\n"
    "Needs no GPU. The step's allocations are worked out from GPT-2's public shape; no weights are involved.",
    NULL,
    NULL,
    NULL};

int cmd_demo(int argc, char **argv) {
  arguments a = {.driver = "auto"};
  if (!cmd_parse(&argp, argc, argv, &a, &a.error)) return EXIT_USAGE;
  demo d = {.driver = a.driver, .style = style_of(stdout, 0, a.ascii, STYLE_AUTO)};
  trace_list_init(&d.list);
  const int status = run(&d);
  player_close(d.p);
  trace_list_destroy(&d.list);
  return status == EXIT_USAGE ? cmd_fail(argv[0], &d.error) : status;
}
