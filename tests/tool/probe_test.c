// The probe on the host driver, whose answers are known: the questions, what is done in processes of their own, what is
// written.
#include "tools/probe/probe.h"

#include <dlfcn.h>
#include <jansson.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/process.h"
#include "tests/tool/probe_support.h"
#include "tools/probe/child.h"
#include "tools/probe/cost.h"
#include "tools/probe/report.h"

// ---- the questions ----

typedef struct expected {
  const char *name;
  int number;
  vmp_host_level level;
  vmp_host_work work;
  uint32_t poison, no_posix_fd, strangers;
  probe_state state;
  const char *answer, *evidence;  // the whole, and a part
} expected;
static const char *expected_name(const expected *p) { return p->name; }

static const expected answers[] = {
    {"batch", 1, .answer = "5.00 us per call + 30.00 us per mapping (the host driver's own speed)",
     .evidence = "64 mappings: median 1925.00 us of 5"},
    {"unmap_waits", 2, .answer = "no; the work then ended with 700 ILLEGAL_ADDRESS",
     .evidence = "untouched range: gave 0 in 20.0 us; the work was 600 NOT_READY before and 600 NOT_READY after"},
    {"unmap_waits_early", 2, .work = VMP_HOST_WORK_EARLY, .answer = "can't be told"},
    {"free_while_mapped", 3, .answer = "refused with 1 INVALID_VALUE, the mapping stays", .evidence = "rights 3"},
    {"free_while_mapped_compat", 3, .level = VMP_HOST_COMPAT, .answer = "accepted, the mapping is gone"},
    {"map_over_mapped", 4, .answer = "refused with 1 INVALID_VALUE, the first mapping is intact",
     .evidence = "the first handle is at the address"},
    {"partial_map", 5,
     .answer = "the front: refused with 1 INVALID_VALUE; the back, at an offset: refused with 1 INVALID_VALUE"},
    {"partial_map_compat", 5, .level = VMP_HOST_COMPAT,
     .answer = "the front: accepted; the back, at an offset: refused with 801 NOT_SUPPORTED",
     .evidence = "unmap of the front: 0"},
    {"hole_unmap", 6, .answer = "refused with 1 INVALID_VALUE, nothing was unmapped"},
    {"codes", 7, .answer = "11: 1; 12: 1, 1; 13: 1; 20: 1, 1; 38: 101; 39: no such pair here"},
    {"codes_of_strangers", 7, .strangers = 1, .answer = "11: 1; 12: 1, 1; 13: 1; 20: 1, 1; 38: 101; 39: 101",
     .evidence = "device 1, which can't reach device 0"},
    {"codes_lint", 7, .level = VMP_HOST_LINT,
     .answer = "11: 1; 12: 1, 0; 13: 1; 20: 1, 1; 38: 101; 39: no such pair here"},
    {"codes_compat", 7, .level = VMP_HOST_COMPAT,
     .answer = "11: 2; 12: 2, 0; 13: 2; 20: 101, 101; 38: 1; 39: no such pair here"},
    {"after_700", 8, .answer = "after 700 ILLEGAL_ADDRESS: all 9 work",
     .evidence = "cuMemGetInfo, which needs the context, gives 700"},
    {"after_700_early", 8, .work = VMP_HOST_WORK_EARLY, .state = PROBE_NOT_HERE,
     .answer = "no lasting error could be provoked without kernels"},
    {"granularity", 9, .answer = "host: 2 MiB; NUMA: no node; compressible: 2 MiB"},
    {"out_params", 10, .answer = "left as they were by all 12", .evidence = "create (too much) 2"},
    {"out_params_poisoned", 10, .poison = 1,
     .answer = "overwritten by reserve, create (odd size), create (too much), granularity, get-access, retain, export, "
               "import, stream-create, event-create, device-get, attribute"},
    {"fd_0", 11, .answer = "refused with 1 INVALID_VALUE", .evidence = "the same descriptor under its own number"},
    {"fd_0_without", 11, .no_posix_fd = 1, .state = PROBE_NOT_HERE,
     .answer = "this device has no handles with file descriptors"},
    {"unrelated_unmap", 12, .answer = "harmless",
     .evidence = "64 times the chunk right behind the work's was exchanged"},
    {"unrelated_unmap_early", 12, .work = VMP_HOST_WORK_EARLY,
     .answer = "can't be told: no chunk was exchanged while the work ran"},
    {"host_function", 13, .answer = "all 3 that could be tried give 800 NOT_PERMITTED"},
    {"lowering", 14,
     .answer = "doesn't wait; work that writes ended with 700 ILLEGAL_ADDRESS when rights were lowered to reading"},
    {"lowering_early", 14, .work = VMP_HOST_WORK_EARLY,
     .answer = "can't be told; work that writes ended with 0 when rights were lowered to none"},
};

VTEST_P(ProbeQuestions, HostDriver, expected, answers, expected_name) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = p->level;
  options.work = p->work;
  options.poison_out_params = p->poison;
  options.num_devices = p->strangers != 0 ? 2 : 1;
  options.devices[0].no_posix_fd = p->no_posix_fd;
  options.devices[0].no_peers = p->strangers;
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  const probe_settings settings = probe_few(rig.clock);
  probe_answer answer;
  probe_ask(p->number, &rig, &settings, &answer);
  VEXPECT_INT_EQ(answer.state, p->state != PROBE_UNASKED ? p->state : PROBE_ANSWERED);
  VEXPECT_STR_EQ(answer.answer, p->answer);
  if (p->evidence != NULL) VEXPECT_STR_CONTAINS(answer.evidence, p->evidence);
  VEXPECT_STR_LACKS(answer.evidence, "\n");
  probe_off_host(&rig);
}

// Descriptor 0 is the caller's again, also where it was closed.
VTEST(ProbeQuestions, Descriptor0IsPutBack) {
  for (int closed = 0; closed < 2; closed++) {
    const int kept = dup(STDIN_FILENO);
    int ends[2];
    char byte = 0;
    VASSERT_INT_EQ(pipe(ends), 0);
    VEXPECT_INT_EQ(dup2(ends[0], STDIN_FILENO), STDIN_FILENO);
    VEXPECT_INT_EQ((int)write(ends[1], "x", 1), 1);
    probe_rig rig;
    probe_on_host(&rig, NULL);
    if (closed == 1) close(STDIN_FILENO);  // the driver's export then gets number 0 itself
    const probe_settings settings = probe_few(rig.clock);
    probe_answer answer;
    probe_ask(11, &rig, &settings, &answer);
    VEXPECT_STR_EQ(answer.answer, "refused with 1 INVALID_VALUE");
    probe_off_host(&rig);
    VEXPECT_INT_EQ((int)read(STDIN_FILENO, &byte, 1), closed == 0 ? 1 : -1);
    close(ends[0]);
    close(ends[1]);
    if (kept >= 0) dup2(kept, STDIN_FILENO);
    if (kept >= 0) close(kept);
  }
}

// ---- processes ----

static void return_at_once(void *context) { *(int *)context = 7; }
static void die(void *context) {
  *(int *)context = 8;
  raise(SIGKILL);
}
static void leave(void *context) {
  (void)context;
  _exit(3);
}
static void hang(void *context) {
  *(int *)context = 9;
  for (;;) pause();
}

VTEST(ProbeChild, EveryEndIsTold) {
  int *seen = probe_shared_make(sizeof(*seen));
  VASSERT_NOT_NULL(seen);
  char text[160];
  probe_child_end end = probe_child_run(return_at_once, seen, 600000);
  VEXPECT_INT_EQ(end.ending, PROBE_ENDED);
  VEXPECT_INT_EQ(*seen, 7);
  end = probe_child_run(die, seen, 600000);
  VEXPECT_INT_EQ(*seen, 8);
  VEXPECT_STR_EQ(probe_child_text(end, 600000, text, sizeof(text)), "the process died of signal 9 (Killed)");
  end = probe_child_run(leave, seen, 600000);
  VEXPECT_STR_EQ(probe_child_text(end, 600000, text, sizeof(text)), "the process ended itself with status 3");
  end = probe_child_run(hang, seen, 100);
  VEXPECT_STR_EQ(probe_child_text(end, 100, text, sizeof(text)),
                 "there was no end after 100 ms, and the process was killed");
  probe_shared_free(seen, sizeof(*seen));
}

// opener: how the driver of a child behaves.
typedef struct opener {
  vmp_call call;
  void (*hook)(void *context);  // runs inside every such call; NULL: none
  bool refuse;
} opener;

static vmp_status open_host(void *context, vmp_driver **out_driver) {
  const opener *o = context;
  if (o->refuse) return vmp_fail(VMP_ERROR_NO_DRIVER, "there is no such driver");
  const vmp_status status = vmp_host_open(out_driver, NULL);
  if (status != VMP_OK) return status;
  if (vmp_drv_init(*out_driver, 0) != VMP_CU_SUCCESS) return VMP_ERROR_DRIVER;
  if (o->hook != NULL) vmp_host_delay(*out_driver, o->call, o->hook, NULL);
  return VMP_OK;
}

static probe_options run_options(opener *o) {
  return (probe_options){
      .open = open_host, .open_context = o, .settings = probe_few((probe_clock){0}), .limit_ms = PROBE_LIMIT_MS};
}

static void kill_oneself(void *context) {
  (void)context;
  raise(SIGKILL);
}
static void hang_here(void *context) {
  (void)context;
  for (;;) pause();
}

VTEST(ProbeRun, ADriverThatKillsItsProcess) {
  opener o = {.call = VMP_CALL_mem_map, .hook = kill_oneself};
  const probe_options options = run_options(&o);
  tool_error error = {{0}};
  probe_result *result = probe_run(&options, &error);
  VASSERT_NOT_NULL(result);
  VEXPECT_STR_EQ(result->latency_fault, "the process died of signal 9 (Killed); cuMemMap was the last call");
  VEXPECT_INT_EQ(result->answers[3].state, PROBE_FAILED);
  VEXPECT_STR_EQ(result->answers[3].answer, "could not be asked");
  VEXPECT_STR_EQ(result->answers[3].evidence, "the process died of signal 9 (Killed); cuMemMap was the last call");
  VEXPECT_INT_EQ(result->answers[8].state, PROBE_ANSWERED);  // maps nothing
  VEXPECT_INT_EQ(result->answers[12].state, PROBE_ANSWERED);
  VEXPECT_FALSE(probe_good(result));
  probe_result_free(result);
}

VTEST(ProbeRun, ACallThatNeverReturns) {
  opener o = {.call = VMP_CALL_launch_host_func, .hook = hang_here};
  probe_options options = run_options(&o);
  options.limit_ms = 300;
  probe_answer answer;
  VASSERT_TRUE(probe_run_question(&options, PROBE_HOST_FUNCTION, &answer));
  VEXPECT_INT_EQ(answer.state, PROBE_ANSWERED);
  VEXPECT_STR_EQ(answer.answer, "cuLaunchHostFunc never returns");
  o.call = VMP_CALL_mem_get_allocation_granularity;
  VASSERT_TRUE(probe_run_question(&options, 9, &answer));
  VEXPECT_INT_EQ(answer.state, PROBE_FAILED);
  VEXPECT_STR_CONTAINS(answer.evidence, "there was no end after 300 ms");
}

VTEST(ProbeRun, NothingToAsk) {
  opener o = {.refuse = true};
  probe_options options = run_options(&o);
  tool_error error = {{0}};
  VEXPECT_NULL(probe_run(&options, &error));
  VEXPECT_STR_CONTAINS(error.text, "the driver could not be opened: there is no such driver");
  o.refuse = false;
  options.device = 4;
  VEXPECT_NULL(probe_run(&options, &error));
  VEXPECT_STR_CONTAINS(error.text, "there is no device 4");
}

// ---- what is written ----

static probe_result *run_all(void) {
  static opener o;
  const probe_options options = run_options(&o);
  tool_error error = {{0}};
  probe_result *result = probe_run(&options, &error);
  if (result == NULL) VADD_FAILURE("%s", error.text);
  return result;
}

VTEST(ProbeReport, TextHasAllQuestionsInOrder) {
  probe_result *result = run_all();
  VASSERT_NOT_NULL(result);
  VEXPECT_TRUE(probe_good(result));
  VEXPECT_UINT_EQ(result->left_behind, 0);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VASSERT_NOT_NULL(out);
  probe_report_text(out, result);
  fclose(out);
  const char *at = strstr(text, "\nopen questions");
  VASSERT_NOT_NULL(at);
  for (int i = 1; i <= PROBE_QUESTIONS; i++) {
    char start[160];
    snprintf(start, sizeof(start), "\n%2d %s | ", i, probe_question(i));
    const char *found = strstr(at, start);
    VTRACE("%s", start + 1);
    VASSERT_NOT_NULL(found);
    const char *end = strchr(found + 1, '\n');
    VASSERT_NOT_NULL(end);
    const char *answer = found + strlen(start), *evidence = strstr(answer, " | ");
    VEXPECT_TRUE(evidence != NULL && evidence < end && evidence > answer);  // the question, the answer, the evidence
    at = end - 1;
  }
  VEXPECT_STR_CONTAINS(text, "THESE FIGURES ARE THE HOST'S");
  VEXPECT_STR_CONTAINS(text, "THESE ANSWERS ARE THE HOST DRIVER'S");
  VEXPECT_STR_LACKS(text, "FAILED");
  free(text);
  probe_result_free(result);
}

static void expect_keys(json_t *object, const char *const *keys) {
  size_t count = 0;
  for (; keys[count] != NULL; count++) {
    if (json_object_get(object, keys[count]) == NULL) VADD_FAILURE("the key %s is missing", keys[count]);
  }
  VEXPECT_UINT_EQ(json_object_size(object), count);
}

VTEST(ProbeReport, JsonHasAllKeys) {
  static const char *const top[] = {"driver",
                                    "version",
                                    "figures_are",
                                    "devices",
                                    "device",
                                    "free_bytes",
                                    "latencies",
                                    "fits",
                                    "cost",
                                    "questions",
                                    "repeat",
                                    "latency_error",
                                    "largest_reservation_bytes",
                                    "refused_reservation_bytes",
                                    "refused_reservation_code",
                                    "left_behind",
                                    NULL};
  static const char *const device[] = {"ordinal",
                                       "name",
                                       "total_bytes",
                                       "granularity_minimum_bytes",
                                       "granularity_recommended_bytes",
                                       "attributes",
                                       "handle_type_codes",
                                       "peers",
                                       NULL};
  static const char *const figure[] = {"call",   "bytes",  "mappings", "samples", "error",    "median_us",
                                       "min_us", "p10_us", "p90_us",   "max_us",  "first_us", NULL};
  static const char *const question[] = {"number", "question", "state", "answer", "evidence", NULL};
  probe_result *result = run_all();
  VASSERT_NOT_NULL(result);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VASSERT_NOT_NULL(out);
  VEXPECT_TRUE(probe_report_json(out, result));
  fclose(out);
  json_error_t error;
  json_t *document = json_loads(text, JSON_REJECT_DUPLICATES, &error);
  VASSERT_NOT_NULL(document);
  expect_keys(document, top);
  VEXPECT_STR_EQ(json_string_value(json_object_get(document, "driver")), "host");
  VEXPECT_STR_EQ(json_string_value(json_object_get(document, "figures_are")), "the host's, not a GPU's");
  expect_keys(json_array_get(json_object_get(document, "devices"), 0), device);
  json_t *latencies = json_object_get(document, "latencies"), *questions = json_object_get(document, "questions");
  VEXPECT_UINT_EQ(json_array_size(latencies), 43);  // 5 sizes x 5, 3 runs x 2, 4 ranges x 2, 3, 1
  expect_keys(json_array_get(latencies, 0), figure);
  VEXPECT_UINT_EQ(json_array_size(questions), PROBE_QUESTIONS);
  for (size_t i = 0; i < json_array_size(questions); i++) {
    json_t *q = json_array_get(questions, i);
    expect_keys(q, question);
    VEXPECT_INT_EQ(json_integer_value(json_object_get(q, "number")), (long)i + 1);
    VEXPECT_STR_NE(json_string_value(json_object_get(q, "answer")), "");
  }
  VEXPECT_UINT_EQ(json_object_size(json_object_get(document, "cost")), PROBE_COST_LINES);
  VEXPECT_UINT_EQ(json_object_size(json_object_get(document, "fits")), 4);
  json_decref(document);
  free(text);
  probe_result_free(result);
}

// ---- the command ----

#define TOOL "tools/vmpool/vmpool"

VTEST(ProbeCommand, WritesATableThatAReplayReads) {
  char cost[600];
  snprintf(cost, sizeof(cost), "%s/probe-command.cost", vtest_temp_dir());
  unsetenv("VMP_CONF");
  vtest_process process = {0};
  const char *probe[] = {TOOL, "probe", "--driver", "host", "--repeat", "3", "--cost-file", cost, NULL};
  VASSERT_INT_EQ(vtest_process_run(&process, probe, NULL), 0);
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.err, "");
  VEXPECT_STR_CONTAINS(process.out, "\n14 rights lowered under running work | ");
  vtest_process_free(&process);
  const char *replay[] = {TOOL, "replay", "-", "--cost", cost, NULL};
  VASSERT_INT_EQ(vtest_process_run(&process, replay, "alloc 1 4096 0\nfree 1\n"), 0);
  VEXPECT_INT_EQ(process.status, 0);
  VEXPECT_STR_EQ(process.err, "");
  vtest_process_free(&process);
  unlink(cost);
}

VTEST(ProbeCommand, TheDocumentIsAloneOnStandardOutput) {
  unsetenv("VMP_CONF");
  vtest_process process = {0};
  const char *argv[] = {TOOL, "probe", "--driver", "host", "--repeat", "1", "--json", "-", NULL};
  VASSERT_INT_EQ(vtest_process_run(&process, argv, NULL), 0);
  VEXPECT_INT_EQ(process.status, 0);
  json_error_t error;
  json_t *document = json_loads(process.out, JSON_REJECT_DUPLICATES, &error);
  VEXPECT_NOT_NULL(document);
  json_decref(document);
  vtest_process_free(&process);
}

VTEST(ProbeCommand, WithoutCudaItSaysSo) {
  void *cuda = dlopen("libcuda.so.1", RTLD_LAZY);
  if (cuda != NULL) dlclose(cuda);
  if (cuda != NULL) VSKIP("there is a CUDA driver here");
  vtest_process process = {0};
  VASSERT_INT_EQ(vtest_process_run(&process, (const char *const[]){TOOL, "probe", NULL}, NULL), 0);
  VEXPECT_INT_EQ(process.status, 2);
  VEXPECT_STR_EQ(process.out, "");
  VEXPECT_STR_CONTAINS(process.err, "no CUDA driver could be loaded");
  VEXPECT_PTR_EQ(strchr(process.err, '\n'), process.err + process.err_bytes - 1);  // one line
  vtest_process_free(&process);
}
