// steps_test.c: steps in a replay, and what the pool makes of them: a repeated training step needs no driver call, and
// with strategy predictive one of changing length none on the allocating thread.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/vtest.h"
#include "tests/tool/trace_support.h"
#include "tools/bench/bench.h"
#include "tools/models/train.h"
#include "tools/replay/replay.h"
#include "tools/replay/report.h"

static replay_result play(trace *t, const replay_options *options) {
  replay_result result = {0};
  tool_error error;
  if (!replay_run(t, options, &result, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_UINT_EQ(result.failed_allocs, 0);
  VEXPECT_UINT_EQ(result.bad_touches, 0);
  VEXPECT_STR_EQ(result.fault, "");
  return result;
}

static uint64_t own_calls_from(const replay_result *r, uint64_t first) {
  uint64_t calls = 0;
  for (uint64_t i = first; i < r->num_steps; i++) calls += r->steps[i].own;
  return calls;
}

// GPT-2 XL, batch 4, sequences of 256 to 1024 tokens, 30 steps, seed 1: 2320 tensors that stay, and 4458 events a step.
// The second step's peak is 2 % below the largest one, the 27th's.
#define PERSISTENT 2320u
#define STEP_EVENTS 4458u

static trace *drawn_steps(void) {
  const train_options options = {
      .model = model_find("gpt2-xl"), .batch = 4, .seq_low = 256, .seq_high = 1024, .steps = 30, .seed = 1};
  trace_list list = {0};
  trace *t = NULL;
  train_totals totals;
  tool_error error;
  trace_list_init(&list);
  if (!train_generate(&options, &list, &totals, &error) || !trace_of_list("generated", &list, &t, &error)) {
    VADD_FAILURE("%s", error.text);
    return NULL;
  }
  VEXPECT_UINT_EQ(totals.persistent_allocs, PERSISTENT);
  VEXPECT_UINT_EQ(t->num_events, PERSISTENT + 30 * STEP_EVENTS);
  return t;
}

typedef struct strategy {
  const char *name, *preset, *conf;
} strategy;
static const char *strategy_name(const strategy *s) { return s->name; }
static const strategy strategies[] = {
    {"mixed", NULL, "strategy:predictive,step_waits:1"},
    {"training", "training", "step_waits:1"},
};

VTEST_P(Steps, PredictiveMapsAheadOfDrawnLengths, strategy, strategies, strategy_name) {
  trace *t = drawn_steps();
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.preset = p->preset;
  options.conf = p->conf;
  options.step_first = PERSISTENT;
  options.step_every = STEP_EVENTS;
  const replay_result r = play(t, &options);
  VASSERT_UINT_EQ(r.num_steps, 30);
  VEXPECT_UINT_EQ(own_calls_from(&r, 2), 0);
  VEXPECT_UINT_GT(r.steps[1].all, r.steps[1].own);  // the worker's
  VEXPECT_UINT_GT(r.mapped_ahead_bytes, UINT64_C(1) << 30);
  VEXPECT_REAL_LE((double)r.ahead_unused_bytes, 0.02 * (double)r.mapped_ahead_bytes);
  VEXPECT_REAL_LE((double)r.peak_mapped_bytes, 1.021 * (double)r.peak_requested_bytes);
  trace_close(t);
}

// Without it the later steps have to map what the second didn't need.
VTEST(Steps, DynamicMapsWhenItIsNeeded) {
  trace *t = drawn_steps();
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.step_first = PERSISTENT;
  options.step_every = STEP_EVENTS;
  const replay_result r = play(t, &options);
  VASSERT_UINT_EQ(r.num_steps, 30);
  VEXPECT_UINT_GT(own_calls_from(&r, 2), 0);
  VEXPECT_UINT_EQ(r.mapped_ahead_bytes, 0);
  trace_close(t);
}

// A step of fixed length on a device of 1.02 times its peak.
static const strategy plain[] = {{"mixed", "mixed", NULL}, {"tight", "tight", NULL}};

VTEST_P(Steps, AFixedStepNeedsNoDriverCall, strategy, plain, strategy_name) {
  bench_options options = BENCH_OPTIONS_INIT;
  bench_result r;
  tool_error error;
  options.preset = p->preset;
  options.pairs = 10 * 2229;
  if (!bench_run(bench_find("step"), &options, &r, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_NEAR(r.steps, 10, 1e-9);
  VEXPECT_UINT_EQ(r.driver_calls, 0);
}

// ---- the figures ----

static const char three[] =
    "alloc 0 2097152 0\n"
    "alloc 1 4194304 0\nfree 1\n"
    "alloc 2 8388608 0\nfree 2\n"
    "alloc 3 8388608 0\nfree 3\n";

static const json_t *number_at(const json_t *document, const char *list, size_t i) {
  return json_array_get(json_object_get(json_object_get(document, "steps"), list), i);
}

// Hand values: exact mapping, one-granule chunks. A step that maps n granules makes n creates, n maps and one
// set-access; the first one also has the reservation, and the event before it. A reserve is made when the pool is.
VTEST(Steps, AreToldOneByOne) {
  tool_error error;
  trace *t = parse_text(three, &error);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  options.preset = "tight";
  options.work.none = true;
  options.step_first = 1;
  options.step_every = 2;
  const replay_result r = play(t, &options);
  VASSERT_UINT_EQ(r.num_steps, 3);
  VEXPECT_UINT_EQ(r.steps[0].all, (1 + 1 + 1) + (2 + 2 + 1));
  VEXPECT_UINT_EQ(r.steps[1].all, 2 + 2 + 1);
  VEXPECT_UINT_EQ(r.steps[2].all, 0);
  VEXPECT_UINT_EQ(r.steps[0].own, r.steps[0].all);
  char *text = NULL;
  size_t size = 0;
  FILE *file = open_memstream(&text, &size);
  VASSERT_NOT_NULL(file);
  VEXPECT_TRUE(report_json(file, "three", &r));
  VEXPECT_TRUE(report_text(file, "three", t, &r));
  VASSERT_INT_EQ(fclose(file), 0);
  json_t *document = json_loads(text, JSON_DISABLE_EOF_CHECK, NULL);
  VASSERT_NOT_NULL(document);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(json_object_get(document, "steps"), "count")), 3);
  VEXPECT_INT_EQ(json_integer_value(number_at(document, "driver_calls", 1)), 5);
  VEXPECT_INT_EQ(json_integer_value(number_at(document, "allocating_thread_calls", 0)), 8);
  VEXPECT_STR_CONTAINS(text, "3; driver calls: 8 5 0\n");
  json_decref(document);
  free(text);
  trace_close(t);
}

// Each of several repetitions is a step, unless events are counted.
VTEST(Steps, RepetitionsAreSteps) {
  tool_error error;
  trace *t = parse_text(three, &error);
  VASSERT_NOT_NULL(t);
  replay_options options = REPLAY_OPTIONS_INIT;
  VEXPECT_UINT_EQ(play(t, &options).num_steps, 0);
  options.repeat = 4;
  VEXPECT_UINT_EQ(play(t, &options).num_steps, 4);
  options.step_every = 7;
  options.step_first = 7;
  VEXPECT_UINT_EQ(play(t, &options).num_steps, 3);
  trace_close(t);
}
