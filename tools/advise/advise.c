#include "tools/advise/advise.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/advise/sizes.h"
#include "tools/advise/workers.h"

#define GRANULE (UINT64_C(2) << 20)

// ---- measuring one case ----

typedef struct measuring {
  trace *t;
  const advise_options *options;
  const advise_case *cases;  // of this stage
  uint64_t device_bytes;
} measuring;

static uint64_t calls_of(const vmp_driver_calls *c) {
  return c->reserve + c->create + c->map + c->set_access + c->unmap + c->release + c->address_free;
}

// The cost of creating the pool alone: a trace of no events.
static bool measure_start(const replay_options *replay, replay_result *out, tool_error *error) {
  trace_list nothing;
  trace *empty = NULL;
  trace_list_init(&nothing);
  if (!trace_of_list("nothing", &nothing, &empty, error)) return false;
  const bool good = replay_run(empty, replay, out, error);
  trace_close(empty);
  return good;
}

static bool measure(const measuring *m, advise_case *c, tool_error *error) {
  replay_options replay = m->options->replay;
  replay_result start, run;
  bool found = false;
  replay.conf = c->conf[0] != '\0' ? c->conf : NULL;
  replay.device_bytes = m->device_bytes;
  replay.progress = NULL;
  if (!replay_run(m->t, &replay, &run, error) || !measure_start(&replay, &start, error)) return false;
  if (run.fault[0] != '\0') return tool_fail(error, "%s", run.fault);
  c->failed_allocs = run.failed_allocs;
  c->peak_mapped_bytes = run.peak_mapped_bytes;
  c->takes = run.takes;
  c->mean_utilisation = run.mean_utilisation;
  c->start_us = start.modelled_driver_us;
  c->run_us = run.modelled_driver_us > start.modelled_driver_us ? run.modelled_driver_us - start.modelled_driver_us : 0;
  c->run_calls = calls_of(&run.driver_calls) - calls_of(&start.driver_calls);
  if (m->options->quick || c->stage == 4) return true;  // eager ones map what they are told to
  return replay_find_capacity(m->t, &replay, &found, &c->smallest_device_bytes, error);
}

static bool run_task(void *context, size_t task, void *out) {
  const measuring *m = context;
  advise_case *c = out;
  tool_error error = {{0}};
  *c = m->cases[task];
  if (!measure(m, c, &error)) snprintf(c->problem, sizeof(c->problem), "%.150s", error.text);
  return true;
}

static bool measure_stage(measuring *m, const advise_case *planned, size_t count, advise_result *r, const char *what,
                          tool_error *error) {
  bool answered[ADVISE_MAX_CASES];
  m->cases = planned;
  const workers_plan plan = {.tasks = count,
                             .jobs = m->options->jobs > 0 ? m->options->jobs : workers_jobs(),
                             .answer_bytes = sizeof(advise_case),
                             .run = run_task,
                             .context = m,
                             .progress = m->options->progress,
                             .progress_context = m->options->progress_context,
                             .what = what};
  if (!workers_run(&plan, &r->cases[r->num_cases], answered, error)) return false;
  for (size_t i = 0; i < count; i++) {
    advise_case *c = &r->cases[r->num_cases + i];
    c->measured = answered[i] && c->problem[0] == '\0';
    if (!answered[i]) {
      *c = planned[i];
      snprintf(c->problem, sizeof(c->problem), "its process ended without an answer");
    }
  }
  r->num_cases += count;
  return true;
}

// ---- which is best ----

static uint64_t size_of(const advise_case *c) {
  return c->smallest_device_bytes > 0 ? c->smallest_device_bytes : c->peak_mapped_bytes;
}

static bool is_close(uint64_t smallest, const advise_case *c) { return size_of(c) <= smallest + smallest / 50; }

bool advise_better(advise_goal goal, uint64_t smallest, const advise_case *a, const advise_case *b) {
  if (a->measured != b->measured) return a->measured;
  if ((a->failed_allocs == 0) != (b->failed_allocs == 0)) return a->failed_allocs == 0;
  if (goal == ADVISE_MEMORY && size_of(a) != size_of(b)) return size_of(a) < size_of(b);
  if (goal == ADVISE_BALANCED && is_close(smallest, a) != is_close(smallest, b)) return is_close(smallest, a);
  if (a->run_us < b->run_us || a->run_us > b->run_us) return a->run_us < b->run_us;
  return size_of(a) < size_of(b);
}

static void find_best(advise_goal goal, advise_result *r) {
  uint64_t smallest = UINT64_MAX;
  for (size_t i = 0; i < r->num_cases; i++) {
    const advise_case *c = &r->cases[i];
    if (c->measured && c->failed_allocs == 0 && c->stage < 4 && size_of(c) < smallest) smallest = size_of(c);
  }
  r->best = 0;
  for (size_t i = 1; i < r->num_cases; i++) {
    if (r->cases[i].stage < 4 && advise_better(goal, smallest, &r->cases[i], &r->cases[r->best])) r->best = i;
  }
}

// ---- which cases ----

// planning: the cases of a stage, each the base with something more.
typedef struct planning {
  advise_case cases[ADVISE_MAX_CASES];
  size_t count;
  unsigned stage;
  const char *base;
} planning;

static void plan_case(planning *p, const char *more) {
  if (p->count == ADVISE_MAX_CASES) return;
  advise_case *c = &p->cases[p->count];
  const int length =
      snprintf(c->conf, sizeof(c->conf), "%s%s%s", p->base, p->base[0] != '\0' && more[0] != '\0' ? "," : "", more);
  if (length < 0 || (size_t)length >= sizeof(c->conf)) return;
  c->stage = p->stage;
  p->count++;
}

static bool run_stage(measuring *m, planning *p, advise_result *r, const char *what, tool_error *error) {
  const size_t room = ADVISE_MAX_CASES - r->num_cases;
  if (p->count > room) p->count = room;
  if (!measure_stage(m, p->cases, p->count, r, what, error)) return false;
  find_best(m->options->goal, r);
  return true;
}

static planning planning_of(unsigned stage, const advise_result *r) {
  planning p = {.stage = stage, .base = r->num_cases > 0 ? r->cases[r->best].conf : ""};
  return p;
}

static bool stage_chunks(measuring *m, advise_result *r, tool_error *error) {
  planning p = planning_of(1, r);
  plan_case(&p, "");
  plan_case(&p, "chunk_max:2MiB");
  plan_case(&p, "chunk_max:4MiB");
  plan_case(&p, "chunk_max:8MiB");
  plan_case(&p, "chunk_max:16MiB");
  plan_case(&p, "chunk_max:64MiB");
  plan_case(&p, "preset:tight");
  return run_stage(m, &p, r, "chunk sizes", error);
}

static bool stage_thresholds(measuring *m, advise_result *r, tool_error *error) {
  planning p = planning_of(2, r);
  plan_case(&p, "slab_max:16KiB");
  plan_case(&p, "slab_max:256KiB");
  plan_case(&p, "slab_max:1MiB");
  plan_case(&p, "buddy_from:64MiB");
  plan_case(&p, "buddy_from:1GiB");
  return run_stage(m, &p, r, "thresholds", error);
}

static bool stage_classes(measuring *m, advise_result *r, tool_error *error) {
  char classes[160];
  planning p = planning_of(3, r);
  if (!sizes_frequent(m->t, GRANULE, classes, sizeof(classes))) return tool_fail(error, "host memory ran out");
  if (classes[0] == '\0') return true;
  plan_case(&p, classes);
  return run_stage(m, &p, r, "fixed blocks", error);
}

// When memory is mapped doesn't change how much is needed: these cases are shown beside the best one.
static bool stage_strategy(measuring *m, advise_result *r, tool_error *error) {
  char more[96];
  planning p = planning_of(4, r);
  const advise_case *best = &r->cases[r->best];
  double share = (double)best->peak_mapped_bytes / (double)r->device_bytes;
  if (share > 1) share = 1;
  snprintf(more, sizeof(more), "initial_fraction:%.4f", share);
  plan_case(&p, more);
  snprintf(more, sizeof(more), "strategy:static,initial_fraction:%.4f", share);
  plan_case(&p, more);
  if (m->options->replay.step_every > 0 || m->options->replay.repeat > 1) {
    plan_case(&p, "strategy:predictive,step_waits:1");
  }
  const size_t first = r->num_cases;
  if (!run_stage(m, &p, r, "when to map", error)) return false;
  for (size_t i = first; i < r->num_cases; i++) {
    const advise_case *c = &r->cases[i];
    if (!c->measured || c->failed_allocs > 0 || c->run_us >= r->cases[r->best].run_us) continue;
    if (r->eager == 0 || c->run_us < r->cases[r->eager].run_us) r->eager = i;
  }
  return true;
}

bool advise_run(trace *t, const advise_options *options, advise_result *out, tool_error *error) {
  static advise_result r;
  trace_totals totals;
  memset(&r, 0, sizeof(r));
  trace_measure(t, &totals);
  if (totals.allocs == 0) return tool_fail(error, "the trace allocates nothing");
  r.peak_requested_bytes = totals.peak_bytes;
  r.device_bytes = options->device_bytes;
  if (r.device_bytes == 0) {
    if (totals.peak_bytes > UINT64_MAX / 2) return tool_fail(error, "the trace asks for more than any device has");
    r.device_bytes = (totals.peak_bytes + totals.peak_bytes / 10 + GRANULE) / GRANULE * GRANULE;
  }
  measuring m = {.t = t, .options = options, .device_bytes = r.device_bytes};
  if (!stage_chunks(&m, &r, error) || !stage_thresholds(&m, &r, error) || !stage_classes(&m, &r, error) ||
      !stage_strategy(&m, &r, error)) {
    return false;
  }
  if (!r.cases[r.best].measured) return tool_fail(error, "no configuration could be measured: %s", r.cases[0].problem);
  *out = r;
  return true;
}
