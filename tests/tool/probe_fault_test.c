// The probe on a driver whose calls fail: each part, its calls one by one, once and from then on. It must end, say
// something, and leave nothing behind once the driver works again.
#include <stdio.h>
#include <string.h>

#include "tests/tool/probe_support.h"
#include "tools/probe/facts.h"
#include "tools/probe/latency.h"
#include "tools/probe/questions.h"

enum { FACTS = 0, LATENCY = PROBE_QUESTIONS + 1, PARTS };

// found: what a part has to say.
typedef struct found {
  probe_facts facts;
  probe_latency latency;
  probe_answer answer;
} found;

static probe_settings small_settings(probe_clock clock) {
  probe_settings settings = PROBE_SETTINGS_HOST;
  settings.repeat = 1;
  settings.work_bytes = 1;  // one granule
  settings.reserve_limit_bytes = UINT64_C(1) << 40;
  settings.clock = clock;
  return settings;
}

static void run_part(int number, probe_rig *rig, found *out) {
  const probe_settings settings = small_settings(rig->clock);
  memset(out, 0, sizeof(*out));
  if (number == FACTS) {
    probe_facts_read(rig, &settings, &out->facts);
  } else if (number == LATENCY) {
    probe_measure(rig, &settings, &out->latency);
  } else {
    probe_ask(number, rig, &settings, &out->answer);
  }
}

static vmp_host_options small_device(void) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[0] = (vmp_host_device){.memory_bytes = 16 << 20, .granule_bytes = 64 << 10, .no_peers = 1};
  options.poison_out_params = 1;  // whoever reads what a failed call has left is found out
  return options;
}

static uint64_t calls_of(const vmp_driver *driver) {
  uint64_t calls = 0;
  for (int i = 0; i < VMP_CALL_COUNT; i++) calls += driver->calls[i];
  return calls;
}

// How many calls a part makes when all work.
static uint64_t count_calls(int number, found *out) {
  const vmp_host_options options = small_device();
  probe_rig rig;
  probe_on_host(&rig, &options);
  if (rig.driver == NULL) return 0;
  const uint64_t before = calls_of(rig.driver);
  run_part(number, &rig, out);
  const uint64_t calls = calls_of(rig.driver) - before;
  probe_off_host(&rig);
  return calls;
}

static void expect_a_sentence(int number, const found *f) {
  if (number == FACTS) return;
  if (number == LATENCY) {
    for (size_t i = 0; i < f->latency.num_figures; i++) {
      const probe_figure *figure = &f->latency.figures[i];
      if (figure->spread.samples == 0) VEXPECT_STR_NE(figure->why, "");
      if (figure->failed) VEXPECT_STR_CONTAINS(figure->why, " gave ");
    }
    return;
  }
  VEXPECT_STR_NE(f->answer.answer, "");
  VEXPECT_INT_NE(f->answer.state, PROBE_UNASKED);
  if (f->answer.state != PROBE_FAILED) return;
  const char *evidence = f->answer.evidence;
  VEXPECT_TRUE(strstr(evidence, " gave ") != NULL || strstr(evidence, "could not be given back") != NULL);
}

static void fail_nth(int number, uint64_t n, int code, bool from_then_on, found *out) {
  const vmp_host_options options = small_device();
  const vmp_host_fault fault = {.call = VMP_CALL_COUNT, .nth = n, .code = code, .from_then_on = from_then_on};
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  VASSERT_TRUE(vmp_host_inject(rig.driver, &fault));
  run_part(number, &rig, out);
  vmp_host_lift(rig.driver);
  expect_a_sentence(number, out);
  probe_off_host(&rig);
}

typedef struct part {
  char name[16];
  int number;
} part;
static const part parts[PARTS] = {{"facts", 0}, {"q1", 1},   {"q2", 2},   {"q3", 3},      {"q4", 4},   {"q5", 5},
                                  {"q6", 6},    {"q7", 7},   {"q8", 8},   {"q9", 9},      {"q10", 10}, {"q11", 11},
                                  {"q12", 12},  {"q13", 13}, {"q14", 14}, {"latency", 15}};
static const char *part_name(const part *p) { return p->name; }

VTEST_P(ProbeFault, EveryCallMayFail, part, parts, part_name) {
  static const int codes[] = {VMP_CU_OUT_OF_MEMORY, VMP_CU_INVALID_VALUE, VMP_CU_ILLEGAL_ADDRESS, VMP_CU_UNKNOWN};
  static found f;
  const uint64_t calls = count_calls(p->number, &f);
  VEXPECT_UINT_GT(calls, 5);
  expect_a_sentence(p->number, &f);
  if (p->number != FACTS && p->number != LATENCY) VEXPECT_INT_EQ(f.answer.state, PROBE_ANSWERED);
  // Each of the first calls; of the many that repeated rounds make, some.
  for (uint64_t n = 1; n <= calls; n += 1 + n / 64) {
    for (size_t i = 0; i < sizeof(codes) / sizeof(codes[0]); i++) {
      for (int lasting = 0; lasting < 2; lasting++) {
        VTRACE("call %llu of %llu gives %d%s", (unsigned long long)n, (unsigned long long)calls, codes[i],
               lasting != 0 ? " from then on" : "");
        fail_nth(p->number, n, codes[i], lasting != 0, &f);
        VASSERT_NO_FAILURE();
      }
    }
  }
}

// Opening the rig: what was done before the call that fails is undone.
VTEST(ProbeFault, ARigThatCanNotBeOpened) {
  for (uint64_t n = 1;; n++) {
    vmp_driver *driver = NULL;
    tool_error error = {{0}};
    probe_rig rig;
    VASSERT_OK(vmp_host_open(&driver, NULL));
    VASSERT_INT_EQ(vmp_drv_init(driver, 0), VMP_CU_SUCCESS);
    const vmp_host_fault fault = {.call = VMP_CALL_COUNT, .nth = n, .code = VMP_CU_UNKNOWN};
    VASSERT_TRUE(vmp_host_inject(driver, &fault));
    const uint64_t before = calls_of(driver);
    const bool opened = probe_rig_open(&rig, driver, 0, probe_host_clock(driver), NULL, &error);
    const bool hit = calls_of(driver) - before >= n;
    vmp_host_lift(driver);
    if (opened) VEXPECT_UINT_EQ(probe_rig_close(&rig), 0);
    if (!opened) VEXPECT_STR_NE(error.text, "");
    VEXPECT_UINT_EQ(vmp_host_leaks(driver, &(vmp_report){0}), 0);
    vmp_driver_close(driver);
    VASSERT_NO_FAILURE();
    if (!hit) break;
    VASSERT_UINT_LT(n, 100);
  }
}
