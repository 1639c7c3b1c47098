// probe.c: see probe.h.
#include "tools/probe/probe.h"

#include <stdio.h>
#include <string.h>

#include "tools/probe/child.h"
#include "vmm/driver_host.h"

// part: one process's work, and where its findings go. Lives in shared memory, but for the options.
typedef struct part {
  const probe_options *options;
  probe_result *result;
  void (*run)(struct part *part, probe_rig *rig);
  int number;  // of the question
  int *watch;
  size_t left;       // what it could not give back
  tool_error error;  // why it could not begin; ""
} part;

// shared: all that the processes have in common. The result is its first field.
typedef struct shared {
  probe_result result;
  part part;
} shared;

// ---- in the child ----

static void run_facts(part *p, probe_rig *rig) { probe_facts_read(rig, &p->options->settings, &p->result->facts); }

static void run_latency(part *p, probe_rig *rig) { probe_measure(rig, &p->options->settings, &p->result->latency); }

static void run_question(part *p, probe_rig *rig) {
  probe_ask(p->number, rig, &p->options->settings, &p->result->answers[p->number - 1]);
}

static void keep_first(void *context, const char *sentence) {
  probe_result *result = context;
  if (result->left_first[0] == '\0') snprintf(result->left_first, sizeof(result->left_first), "%s", sentence);
}

static void child_body(void *context) {
  part *p = context;
  vmp_driver *driver = NULL;
  probe_rig rig;
  const vmp_status status = p->options->open(p->options->open_context, &driver);
  if (status < 0) {
    tool_fail_status(&p->error, status, "the driver could not be opened");
    return;
  }
  if (probe_rig_open(&rig, driver, p->options->device, p->options->settings.clock, p->watch, &p->error)) {
    p->run(p, &rig);
    p->left = probe_rig_close(&rig);
  }
  if (vmp_driver_is_host(driver)) {
    vmp_report report = {.write = keep_first, .context = p->result};
    p->result->left_behind += vmp_host_leaks(driver, &report);
  }
  vmp_driver_close(driver);
}

// ---- in the parent ----

// run_part starts the process of a part and waits for it. *why is "", or why it did not do its work.
static probe_child_end run_part(shared *s, const part *p, tool_error *why) {
  char text[256];
  why->text[0] = '\0';
  s->part = *p;
  s->part.result = &s->result;
  *p->watch = VMP_CALL_COUNT;
  const probe_child_end end = probe_child_run(child_body, &s->part, p->options->limit_ms);
  if (end.ending == PROBE_ENDED) {
    *why = s->part.error;
    return end;
  }
  probe_child_text(end, p->options->limit_ms, text, sizeof(text));
  if (*p->watch == VMP_CALL_COUNT) {
    tool_fail(why, "%s", text);
  } else {
    tool_fail(why, "%s; %s was the last call", text, vmp_call_symbol((vmp_call)*p->watch));
  }
  return end;
}

static void tell(const probe_options *options, const char *what, int done) {
  if (options->progress == NULL) return;
  options->progress(options->progress_context, what, (double)done / (PROBE_QUESTIONS + 2));
}

static void add_evidence(probe_answer *answer, const char *sentence) {
  const size_t used = strlen(answer->evidence);
  snprintf(answer->evidence + used, sizeof(answer->evidence) - used, "%s%s", used > 0 ? "; " : "", sentence);
}

static void ask_question(shared *s, const probe_options *options, int number) {
  probe_answer *answer = &s->result.answers[number - 1];
  const part p = {.options = options, .run = run_question, .number = number, .watch = &answer->call};
  tool_error why;
  const probe_child_end end = run_part(s, &p, &why);
  if (s->part.left != 0) tool_fail(&why, "%zu things could not be given back", s->part.left);
  if (why.text[0] == '\0') return;
  add_evidence(answer, why.text);
  if (end.ending == PROBE_TOOK_LONG && number == PROBE_HOST_FUNCTION && answer->call != VMP_CALL_COUNT) {
    // A deadlock is one of the answers to this one.
    snprintf(answer->answer, sizeof(answer->answer), "%s never returns", vmp_call_symbol((vmp_call)answer->call));
    answer->state = PROBE_ANSWERED;
    return;
  }
  if (answer->state != PROBE_ANSWERED) snprintf(answer->answer, sizeof(answer->answer), "could not be asked");
  answer->state = PROBE_FAILED;
}

bool probe_run_question(const probe_options *options, int number, probe_answer *out) {
  shared *s = probe_shared_make(sizeof(*s));
  if (s == NULL) return false;
  ask_question(s, options, number);
  *out = s->result.answers[number - 1];
  probe_shared_free(s, sizeof(*s));
  return true;
}

probe_result *probe_run(const probe_options *options, tool_error *error) {
  shared *s = probe_shared_make(sizeof(*s));
  if (s == NULL) {
    tool_fail(error, "host memory ran out");
    return NULL;
  }
  s->result.device = options->device;
  s->result.repeat = options->settings.repeat;
  tool_error why;
  tell(options, "asking the devices", 0);
  part p = {.options = options, .run = run_facts, .watch = &s->result.latency_call};
  (void)run_part(s, &p, error);
  if (error->text[0] != '\0') {
    probe_shared_free(s, sizeof(*s));
    return NULL;
  }
  s->result.facts.failures += s->part.left;
  tell(options, "measuring", 1);
  p.run = run_latency;
  (void)run_part(s, &p, &why);
  if (s->part.left != 0) tool_fail(&why, "%zu things could not be given back", s->part.left);
  snprintf(s->result.latency_fault, sizeof(s->result.latency_fault), "%s", why.text);
  for (int i = 1; i <= PROBE_QUESTIONS; i++) {
    tell(options, probe_question(i), i + 1);
    ask_question(s, options, i);
  }
  return &s->result;
}

void probe_result_free(probe_result *result) { probe_shared_free(result, sizeof(shared)); }

bool probe_good(const probe_result *result) {
  if (result->facts.failures != 0 || result->latency_fault[0] != '\0' || result->left_behind != 0) return false;
  for (size_t i = 0; i < result->latency.num_figures; i++) {
    if (result->latency.figures[i].failed) return false;
  }
  for (size_t i = 0; i < PROBE_QUESTIONS; i++) {
    const probe_state state = result->answers[i].state;
    if (state != PROBE_ANSWERED && state != PROBE_NOT_HERE) return false;
  }
  return true;
}
