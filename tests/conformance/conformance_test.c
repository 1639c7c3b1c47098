// conformance_test.c: table A of the driver contract, put to a driver; one source for both drivers.
//
//     --driver=host        every answer must be the strict one (at levels lint and compat: the one that the table
//                          names for that level); a difference fails the test
//     --driver=cuda        differences are data: they are printed and counted. The test fails only where a question
//     could
//                          not be put, or with --strict=1
//     --rule=N             only rule N
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/conform.h"

typedef struct level_case {
  const char *name;
  vmp_host_level level;
} level_case;

static const level_case levels[] = {
    {"strict", VMP_HOST_STRICT},
    {"lint", VMP_HOST_LINT},
    {"compat", VMP_HOST_COMPAT},
};
static const char *level_name(const level_case *p) { return p->name; }

// ---- printing ----

static const char *code_text(int code, char *buffer, size_t size) {
  switch (code) {
    case CONFORM_NOT_HERE: return "-";
    case CONFORM_CRASHED: return "crash";
    case CONFORM_SILENT: return "silence";
    case CONFORM_FAILED: return "failed";
    default: (void)snprintf(buffer, size, "%d", code); return buffer;
  }
}

static void expected_text(const conform_probe *probe, int expected, bool with_also, char *buffer, size_t size) {
  char number[16];
  (void)snprintf(buffer, size, "%s", code_text(expected, number, sizeof number));
  for (int i = 0; with_also && i < CONFORM_MAX_ALSO && probe->also[i] != CONFORM_END; i++) {
    size_t used = strlen(buffer);
    (void)snprintf(buffer + used, size - used, "%s%s", i == 0 ? " or " : ", ",
                   code_text(probe->also[i], number, sizeof number));
  }
}

// ---- judging ----

typedef enum verdict { AS_EXPECTED, AS_ALSO, DIFFERS, NOT_HERE, NUM_VERDICTS } verdict;

static const char *const verdict_names[NUM_VERDICTS] = {"strict", "also", "DIFFERS", "not here"};

static verdict judge(const conform_probe *probe, int expected, int code) {
  if (code == CONFORM_NOT_HERE) return NOT_HERE;
  if (code == expected) return AS_EXPECTED;
  for (int i = 0; i < CONFORM_MAX_ALSO && probe->also[i] != CONFORM_END; i++) {
    if (probe->also[i] == code) return AS_ALSO;
  }
  return DIFFERS;
}

// The host driver has no loader of its own: cuGetProcAddress (rule 60) is the CUDA library's, and what vmpool makes of
// its answers is tested by //tests/driver_cuda:open_test.
static bool may_be_missing(const conform *c, const conform_probe *probe) { return !c->host || probe->rule == 60; }

static verdict put(conform *c, const conform_probe *probe, bool exact) {
  char wanted[64], got[16];
  VTRACE("rule %d, %s", probe->rule, probe->asked);
  int expected = c->host ? conform_expected(probe, c->level) : probe->strict;
  conform_answer answer = conform_ask(c, probe);
  verdict result = judge(probe, expected, answer.code);
  expected_text(probe, expected, c->level == VMP_HOST_STRICT, wanted, sizeof wanted);
  printf("rule %2d | %-42s | %-22s | %7s | %s%s%s\n", probe->rule, probe->asked, wanted,
         code_text(answer.code, got, sizeof got), verdict_names[result], answer.why[0] != '\0' ? ": " : "", answer.why);
  (void)fflush(stdout);
  if (answer.code == CONFORM_FAILED) {
    VADD_FAILURE("the question could not be put: %s", answer.why);
  } else if (result == NOT_HERE) {
    if (!may_be_missing(c, probe)) VADD_FAILURE("not asked: %s", answer.why);
  } else if (exact && result != AS_EXPECTED) {
    VADD_FAILURE("expected %s, got %s", wanted, code_text(answer.code, got, sizeof got));
  }
  return result;
}

VTEST_P(Conformance, TableA, level_case, levels, level_name) {
  if (conform_is_child()) conform_be_child();
  if (!gpu_rig_is_host() && p->level != VMP_HOST_STRICT) VSKIP("levels are the host driver's");
  const char *strict_option = vtest_option("strict");
  const char *rule_option = vtest_option("rule");
  const int only = rule_option != NULL ? atoi(rule_option) : 0;
  conform c;
  conform_open(&c, p->level);
  const bool exact = c.host || (strict_option != NULL && strcmp(strict_option, "0") != 0);
  size_t counts[NUM_VERDICTS] = {0};
  if (c.driver != NULL) {
    conform_write(&c);
    printf("driver %s, device %d (%s), level %s\n", c.driver->kind, c.base.device.ordinal, c.base.device.name, p->name);
    printf("rule    | %-42s | %-22s | %7s |\n", "asked", "expected", "got");
    for (int rule = 1; rule <= CONFORM_NUM_RULES; rule++) {
      for (size_t i = 0; i < conform_num_probes && (only == 0 || only == rule); i++) {
        if (conform_probes[i].rule == rule) counts[put(&c, &conform_probes[i], exact)]++;
      }
    }
    printf("%zu probes: %zu as expected, %zu with another code of the table, %zu differ, %zu not asked here\n",
           counts[AS_EXPECTED] + counts[AS_ALSO] + counts[DIFFERS] + counts[NOT_HERE], counts[AS_EXPECTED],
           counts[AS_ALSO], counts[DIFFERS], counts[NOT_HERE]);
    conform_expect(&c);  // nothing that was refused, or put back, has changed anything
  }
  conform_close(&c);
}

// ---- the table itself ----

VTEST(Conformance, EveryRuleHasAProbe) {
  bool probed[CONFORM_NUM_RULES + 1] = {false};
  for (size_t i = 0; i < conform_num_probes; i++) {
    VASSERT_INT_GE(conform_probes[i].rule, 1);
    VASSERT_INT_LE(conform_probes[i].rule, CONFORM_NUM_RULES);
    probed[conform_probes[i].rule] = true;
  }
  for (int rule = 1; rule <= CONFORM_NUM_RULES; rule++) {
    if (!probed[rule]) VADD_FAILURE("rule %d of table A has no probe", rule);
  }
}

// What the host driver answers at the other levels is one of the codes that the table knows.
VTEST(Conformance, LevelsStayInsideTheTable) {
  for (size_t i = 0; i < conform_num_probes; i++) {
    const conform_probe *probe = &conform_probes[i];
    VTRACE("rule %d, %s", probe->rule, probe->asked);
    if (probe->rule == 64) continue;  // remarks are counted, and compat makes none
    for (int level = VMP_HOST_STRICT; level <= VMP_HOST_COMPAT; level++) {
      verdict result = judge(probe, probe->strict, conform_expected(probe, (vmp_host_level)level));
      VEXPECT_TRUE(result == AS_EXPECTED || result == AS_ALSO);
    }
  }
}
