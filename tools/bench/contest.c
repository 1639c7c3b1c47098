#include "tools/bench/contest.h"

#include <stdlib.h>

#include "tools/bench/peers.h"
#include "tools/bench/rounds.h"

typedef struct contest {
  const bench_workload *w;
  const bench_options *options;
  bench_rig rig;
  bench_peer peers[BENCH_MAX_PEERS];
  bench_subject subjects[BENCH_MAX_SUBJECTS];  // the pool, then the peers
  size_t num_subjects;
} contest;

static bool refused(const contest *c, size_t subject, tool_error *error) {
  if (subject == 0) return rig_refused(error);
  return tool_fail(error, "%s could not serve a request", c->peers[subject - 1].name);
}

static bool set_up(contest *c, bench_result *result, tool_error *error) {
  if (c->options->progress != NULL) c->options->progress(c->options->progress_context, "setting up", 0);
  c->num_subjects = 1;
  if (c->options->peers) {
    result->has_peers = true;
    c->num_subjects += peers_open(c->peers, result);
  }
  for (size_t i = 0; i < c->num_subjects; i++) {
    bench_target *state = calloc(1, c->w->state_bytes);
    if (state == NULL) return tool_fail(error, "host memory ran out");
    *state = i == 0 ? c->rig.target : c->peers[i - 1].target;
    c->subjects[i] =
        (bench_subject){.self = state, .run = c->w->run, .rig = i == 0 ? &c->rig : NULL, .pairs = c->options->pairs};
    vmp_clear_error();
    if (!c->w->set_up(state, c->options)) {
      return vmp_last_error()->status == VMP_OK && i == 0 ? tool_fail(error, "host memory ran out")
                                                          : refused(c, i, error);
    }
  }
  return rig_ready(&c->rig, error);
}

static bool measure(contest *c, bench_result *result, tool_error *error) {
  const bench_subject *failed = rounds_run(c->subjects, c->num_subjects, c->options);
  if (failed != NULL) return refused(c, (size_t)(failed - c->subjects), error);
  result->ns_median = rounds_median(&c->subjects[0]);
  result->ns_min = rounds_least(&c->subjects[0]);
  for (size_t i = 1; i < c->num_subjects; i++) {
    result->peers[result->num_peers++] =
        (bench_peer_result){.name = c->peers[i - 1].name,
                            .ns_median = rounds_median(&c->subjects[i]),
                            .ratio_median = rounds_ratio(&c->subjects[0], &c->subjects[i])};
  }
  return true;
}

static bool measure_latency(contest *c, bench_result *result, tool_error *error) {
  if (!c->options->latency) return true;
  latency *l = malloc(sizeof(*l));
  if (l == NULL) return tool_fail(error, "host memory ran out");
  latency_begin(l);
  bool good = true;
  for (uint64_t round = 0; good && round < BENCH_ROUNDS; round++) {
    good = c->w->run_latency(c->subjects[0].self, l, rounds_share(c->options->pairs, round)) || rig_refused(error);
    rig_drain(&c->rig);
  }
  if (good) latency_end(l, result);
  free(l);
  return good;
}

static void tear_down(contest *c) {
  for (size_t i = 0; i < c->num_subjects; i++) {
    if (c->subjects[i].self != NULL) c->w->tear_down(c->subjects[i].self);
    free(c->subjects[i].self);
  }
}

bool contest_run(const bench_workload *w, const bench_options *options, uint64_t device_bytes, bench_result *result,
                 void (*finish)(void *state, bench_result *result), tool_error *error) {
  contest c = {.w = w, .options = options};
  if (!rig_open(&c.rig, options, device_bytes, error)) return false;
  bool good = set_up(&c, result, error);
  good = good && measure(&c, result, error) && measure_latency(&c, result, error) && rig_finish(&c.rig, result, error);
  if (good && finish != NULL) finish(c.subjects[0].self, result);
  tear_down(&c);
  return rig_close(&c.rig, error) && good;
}
