// Advice: what is better by a goal, which sizes are frequent, processes that end badly, and the program's advice
// against vmpool replay.
#include "tools/advise/advise.h"

#include <inttypes.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/support/vtest.h"
#include "tools/advise/sizes.h"
#include "tools/advise/workers.h"

#define TOOL "tools/vmpool/vmpool"
#define MIB (UINT64_C(1) << 20)

// ---- goals ----

static advise_case case_of(uint64_t mib, double run_us, uint64_t failed) {
  return (advise_case){.stage = 1,
                       .measured = true,
                       .smallest_device_bytes = mib * MIB,
                       .peak_mapped_bytes = mib * MIB,
                       .run_us = run_us,
                       .failed_allocs = failed};
}

VTEST(Goal, EachPrefersWhatItSays) {
  const advise_case small_slow = case_of(1000, 90, 0), near_fast = case_of(1015, 20, 0),
                    large_fastest = case_of(1100, 5, 0);
  const uint64_t smallest = 1000 * MIB;
  VEXPECT_TRUE(advise_better(ADVISE_MEMORY, smallest, &small_slow, &near_fast));
  VEXPECT_TRUE(advise_better(ADVISE_BALANCED, smallest, &near_fast, &small_slow));
  VEXPECT_TRUE(advise_better(ADVISE_BALANCED, smallest, &near_fast, &large_fastest));
  VEXPECT_TRUE(advise_better(ADVISE_SPEED, smallest, &large_fastest, &near_fast));
  for (advise_goal goal = ADVISE_BALANCED; goal <= ADVISE_SPEED; goal++) {
    const advise_case fails = case_of(900, 1, 3), same = small_slow;
    advise_case lost = case_of(900, 1, 0);
    lost.measured = false;
    VEXPECT_TRUE(advise_better(goal, smallest, &small_slow, &fails));
    VEXPECT_FALSE(advise_better(goal, smallest, &fails, &small_slow));
    VEXPECT_TRUE(advise_better(goal, smallest, &small_slow, &lost));
    VEXPECT_FALSE(advise_better(goal, smallest, &same, &small_slow));  // the first of equals stays
  }
}

// ---- frequent sizes ----

static void expect_classes(const char *text, const char *classes) {
  tool_error error = {{0}};
  trace_options options = TRACE_OPTIONS_INIT;
  trace *t = NULL;
  char found[160];
  if (!trace_parse("test", text, strlen(text), &options, &t, &error)) VADD_FAILURE("%s", error.text);
  VEXPECT_TRUE(sizes_frequent(t, 2 * MIB, found, sizeof(found)));
  VEXPECT_STR_EQ(found, classes);
  trace_close(t);
}

VTEST(Sizes, FrequentOnesBecomeClasses) {
  // 4 MiB and 6 MiB (rounded up) make up nearly all; 100 bytes don't count
  expect_classes("alloc 1 4194304 0\nalloc 2 6000000 0\nalloc 3 4194304 0\nalloc 4 100 0\n", "classes:4MiB+6MiB");
  expect_classes("alloc 1 100 0\nalloc 2 200 0\n", "");
  // one large size, but it is a third of all bytes
  expect_classes(
      "alloc 1 4194304 0\nalloc 2 2000000 0\nalloc 3 2000000 0\nalloc 4 2000000 0\nalloc 5 2000000 0\n"
      "alloc 6 2000000 0\n",
      "");
}

// ---- processes ----

static bool square(void *context, size_t task, void *answer) {
  (void)context;
  if (task == 3) raise(SIGKILL);
  if (task == 5) _exit(7);
  *(uint64_t *)answer = task * task;
  return task != 6;
}

VTEST(Workers, OneThatEndsBadlyTakesNothingWithIt) {
  uint64_t answers[20] = {0};
  bool answered[20] = {0};
  tool_error error = {{0}};
  for (size_t jobs = 1; jobs <= 7; jobs += 3) {
    const workers_plan plan = {.tasks = 20, .jobs = jobs, .answer_bytes = sizeof(uint64_t), .run = square};
    VASSERT_TRUE(workers_run(&plan, answers, answered, &error));
    for (size_t i = 0; i < 20; i++) {
      const bool bad = i == 3 || i == 5 || i == 6;
      VEXPECT_INT_EQ(answered[i], !bad);
      if (!bad) VEXPECT_UINT_EQ(answers[i], i * i);
    }
  }
}

// ---- the program ----

static json_t *run_json(const char *const *argv, int status) {
  vtest_process p = {0};
  unsetenv("VMP_CONF");
  if (vtest_process_run(&p, argv, NULL) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  VEXPECT_INT_EQ(p.status, status);
  json_error_t error;
  json_t *document = json_loads(p.out, 0, &error);
  if (document == NULL) VADD_FAILURE("no JSON: %s\n%s", error.text, p.err);
  vtest_process_free(&p);
  return document;
}

static char trace_path[256];

static void make_trace(void) {
  snprintf(trace_path, sizeof(trace_path), "%s/advise-%d.trace", getenv("TEST_TMPDIR") ? getenv("TEST_TMPDIR") : "/tmp",
           (int)getpid());
  const char *const argv[] = {TOOL, "generate", "train", "--model", "gpt2", "--batch", "1", "--steps", "2", NULL};
  vtest_process p = {0};
  if (vtest_process_run(&p, argv, NULL) != 0) VADD_FAILURE("%s could not be started", argv[0]);
  VEXPECT_INT_EQ(p.status, 0);
  FILE *file = fopen(trace_path, "w");
  fputs(p.out, file);
  fclose(file);
  vtest_process_free(&p);
}

static int64_t number(const json_t *object, const char *key) {
  return json_integer_value(json_object_get(object, key));
}

// The figures of a configuration are those that vmpool replay gives for it.
static void compare_with_replay(const json_t *one) {
  const char *conf = json_string_value(json_object_get(one, "conf"));
  const char *const argv[] = {TOOL, "replay", trace_path, "--min-capacity", "--json", "-", "--conf", conf, NULL};
  json_t *replay = run_json(argv, 0);
  VEXPECT_INT_EQ(number(one, "smallest_device_bytes"), number(replay, "min_capacity_bytes"));
  json_decref(replay);
}

VTEST(Advise, ItsFiguresAreThoseOfReplay) {
  make_trace();
  const char *const argv[] = {TOOL, "advise", trace_path, "--json", "-", "--goal", "memory", NULL};
  json_t *advice = run_json(argv, 0);
  const json_t *cases = json_object_get(advice, "cases");
  const char *best = json_string_value(json_object_get(advice, "advice"));
  VASSERT_NOT_NULL(best);
  VEXPECT_UINT_GT(json_array_size(cases), 10);
  int64_t smallest = INT64_MAX, of_best = 0;
  for (size_t i = 0; i < json_array_size(cases); i++) {
    const json_t *one = json_array_get(cases, i);
    VEXPECT_TRUE(json_is_true(json_object_get(one, "measured")));
    if (strcmp(json_string_value(json_object_get(one, "stage")), "when to map") == 0) continue;
    if (number(one, "failed_allocs") > 0) continue;
    if (number(one, "smallest_device_bytes") < smallest) smallest = number(one, "smallest_device_bytes");
    if (strcmp(json_string_value(json_object_get(one, "conf")), best) == 0)
      of_best = number(one, "smallest_device_bytes");
  }
  VEXPECT_INT_EQ(of_best, smallest);
  compare_with_replay(json_array_get(cases, 1));
  compare_with_replay(json_array_get(cases, 3));
  json_decref(advice);
  remove(trace_path);
}

VTEST(Advise, TellsWhatItCouldNotRead) {
  const char *const empty[] = {TOOL, "advise", "-", NULL};
  vtest_process p = {0};
  if (vtest_process_run(&p, empty, "# nothing\n") != 0) VADD_FAILURE("not started");
  VEXPECT_INT_EQ(p.status, 2);
  VEXPECT_STR_NE(p.err, "");
  vtest_process_free(&p);
}
