// questions.c: see questions.h.
#include "tools/probe/questions.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/probe/asking.h"
#include "tools/probe/latency.h"
#include "vmm/driver_host.h"

// ---- words ----

void probe_conclude(probe_answer *answer, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(answer->answer, sizeof(answer->answer), format, args);
  va_end(args);
  answer->state = PROBE_ANSWERED;
}

void probe_not_here(probe_answer *answer, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(answer->answer, sizeof(answer->answer), format, args);
  va_end(args);
  answer->state = PROBE_NOT_HERE;
}

void probe_say(probe_answer *answer, const char *format, ...) {
  size_t used = strlen(answer->evidence);
  if (used > 0 && used + 2 < sizeof(answer->evidence)) {
    memcpy(answer->evidence + used, "; ", 3);
    used += 2;
  }
  va_list args;
  va_start(args, format);
  vsnprintf(answer->evidence + used, sizeof(answer->evidence) - used, format, args);
  va_end(args);
}

bool probe_worked(probe_answer *answer, const probe_rig *rig, int code) {
  if (code == VMP_CU_SUCCESS) return true;
  char why[PROBE_WHY_BYTES];
  snprintf(answer->answer, sizeof(answer->answer), "could not be asked");
  answer->state = PROBE_FAILED;
  probe_say(answer, "%s", probe_why(rig, code, why));
  return false;
}

int probe_rights(probe_rig *rig, vmp_cu_ptr ptr, unsigned long long *out_flags) {
  const vmp_cu_location location = {VMP_CU_LOCATION_DEVICE, rig->device.ordinal};
  return PROBE_CALL(rig, mem_get_access, out_flags, &location, ptr);
}

// ---- 1 ----

static void ask_batch(probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  probe_latency *latency = calloc(1, sizeof(*latency));
  if (latency == NULL) {
    answer->state = PROBE_FAILED;
    probe_say(answer, "host memory ran out");
    return;
  }
  probe_measure_runs(rig, settings, latency);
  for (size_t i = 0; i < latency->num_figures; i++) {
    const probe_figure *f = &latency->figures[i];
    if (f->call != VMP_CALL_mem_set_access) continue;
    if (f->spread.samples == 0) {
      probe_say(answer, "%u mappings: %s", f->mappings, f->why);
    } else {
      probe_say(answer, "%u mapping%s: median %.2f us of %zu", f->mappings, f->mappings == 1 ? "" : "s",
                f->spread.median_us, f->spread.samples);
    }
  }
  const probe_fit *line = &latency->set_access;
  if (line->known) {
    probe_conclude(answer, "%.2f us per call + %.2f us per mapping%s", line->fixed, line->share,
                   vmp_driver_is_host(rig->driver) ? " (the host driver's own speed)" : "");
    probe_say(answer, "no median is more than %.2f us off the line", line->residual);
  } else {
    snprintf(answer->answer, sizeof(answer->answer), "could not be asked");
    answer->state = PROBE_FAILED;
  }
  free(latency);
}

// ---- the list ----

static const struct {
  const char *question;
  void (*ask)(probe_rig *rig, const probe_settings *settings, probe_answer *answer);
} questions[PROBE_QUESTIONS] = {
    {"cost of a batched set-access: per call and per mapping", ask_batch},
    {"does unmap wait for running work", probe_ask_unmap_waits},
    {"address-free while something is mapped", probe_ask_free_while_mapped},
    {"map over what is mapped", probe_ask_map_over_mapped},
    {"map of a part of a handle", probe_ask_partial_map},
    {"unmap over a hole", probe_ask_hole_unmap},
    {"codes of rows 11 to 13, 20, 38 and 39", probe_ask_codes},
    {"VMM calls after an illegal address (700)", probe_ask_after_700},
    {"granularity of host, NUMA and compressible memory", probe_ask_granularity},
    {"out-parameters of calls that fail", probe_ask_out_params},
    {"import of file descriptor 0", probe_ask_fd_0},
    {"unmap beside work that doesn't touch the range", probe_ask_unrelated_unmap},
    {"VMM calls from a host function", probe_ask_host_function},
    {"rights lowered under running work", probe_ask_lowering},
};

const char *probe_question(int number) {
  return number >= 1 && number <= PROBE_QUESTIONS ? questions[number - 1].question : "?";
}

const char *probe_state_name(probe_state state) {
  static const char *const names[] = {"unasked", "answered", "not here", "failed"};
  return names[state];
}

void probe_ask(int number, probe_rig *rig, const probe_settings *settings, probe_answer *answer) {
  if (number < 1 || number > PROBE_QUESTIONS) return;
  memset(answer, 0, sizeof(*answer));
  answer->call = VMP_CALL_COUNT;
  int *const watch = rig->watch;
  rig->watch = &answer->call;
  questions[number - 1].ask(rig, settings, answer);
  const size_t left = probe_clear(rig);
  if (left != 0) {
    answer->state = PROBE_FAILED;
    probe_say(answer, "%zu things could not be given back", left);
  }
  rig->watch = watch;
}
