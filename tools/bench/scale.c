// scale.c: what many live blocks cost: the time of a pair with a million live blocks against a thousand, in the same
// rounds, each in a pool of its own, and the same of peers; and what bookkeeping grows by from a hundred thousand
// blocks to a million.
#include <stdlib.h>
#include <string.h>

#include "tools/bench/mixture.h"
#include "tools/bench/peers.h"
#include "tools/bench/rounds.h"

#define LOW_BYTES 512u
#define HIGH_BYTES (UINT64_C(64) << 10)
#define FEW UINT64_C(1000)

enum { SUBJECT_FEW = 0, SUBJECT_MANY, SUBJECTS };

typedef struct scale_state {
  bench_rig rigs[SUBJECTS];
  bench_peer peers[BENCH_MAX_PEERS];
  size_t num_peers;
  mixture mixtures[BENCH_MAX_SUBJECTS];  // few and many of the pools, then of each peer
  uint64_t live[SUBJECTS];
} scale_state;

static bool run(void *self, uint64_t pairs) { return mixture_run(self, pairs); }

static bool init(scale_state *s, size_t i, const bench_target *target, const bench_options *options,
                 tool_error *error) {
  s->mixtures[i].target = *target;
  return mixture_init(&s->mixtures[i], s->live[i % SUBJECTS], LOW_BYTES, HIGH_BYTES, options->seed) ||
         tool_fail(error, "host memory ran out");
}

static bool set_up_pool(scale_state *s, size_t i, const bench_options *options, bench_result *result,
                        tool_error *error) {
  uint64_t before = 0, after = 0;
  if (!rig_open(&s->rigs[i], options, options->device_bytes, error)) return false;
  if (!init(s, i, &s->rigs[i].target, options, error)) return false;
  const uint64_t tenth = s->live[i] / 10;
  if (!mixture_grow(&s->mixtures[i], tenth)) return rig_refused(error);
  if (!rig_metadata_bytes(&s->rigs[i], &before, error)) return false;
  if (!mixture_grow(&s->mixtures[i], s->live[i])) return rig_refused(error);
  if (!rig_metadata_bytes(&s->rigs[i], &after, error) || !rig_ready(&s->rigs[i], error)) return false;
  result->metadata_bytes_per_block = ((double)after - (double)before) / (double)(s->live[i] - tenth);
  return true;
}

static bool peer_refused(const scale_state *s, size_t subject, tool_error *error) {
  return tool_fail(error, "%s could not serve a request", s->peers[subject / SUBJECTS - 1].name);
}

static bool set_up(scale_state *s, const bench_options *options, bench_result *result, tool_error *error) {
  for (size_t i = 0; i < SUBJECTS; i++) {
    if (!set_up_pool(s, i, options, result, error)) return false;
  }
  result->has_peers = options->peers;
  if (options->peers) s->num_peers = peers_open(s->peers, result);
  for (size_t i = SUBJECTS; i < SUBJECTS * (1 + s->num_peers); i++) {
    if (!init(s, i, &s->peers[i / SUBJECTS - 1].target, options, error)) return false;
    if (!mixture_grow(&s->mixtures[i], s->live[i % SUBJECTS])) return peer_refused(s, i, error);
  }
  return true;
}

static bool read_pools(scale_state *s, const bench_subject *subjects, bench_result *result, tool_error *error) {
  bench_result few = *result;
  if (!rig_finish(&s->rigs[SUBJECT_FEW], &few, error) || !rig_finish(&s->rigs[SUBJECT_MANY], result, error)) {
    return false;
  }
  result->setup_allocs += few.setup_allocs;
  result->allocs += few.allocs;
  result->driver_calls += few.driver_calls;
  if (result->fault[0] == '\0') memcpy(result->fault, few.fault, sizeof(result->fault));
  result->ns_median = rounds_median(&subjects[SUBJECT_MANY]);
  result->ns_min = rounds_least(&subjects[SUBJECT_MANY]);
  result->ns_median_few = rounds_median(&subjects[SUBJECT_FEW]);
  result->has_ratio = true;
  result->ratio = rounds_ratio(&subjects[SUBJECT_MANY], &subjects[SUBJECT_FEW]);
  result->live_few = s->live[SUBJECT_FEW];
  result->live_many = s->live[SUBJECT_MANY];
  return true;
}

static bool measure(scale_state *s, const bench_options *options, bench_result *result, tool_error *error) {
  bench_subject subjects[BENCH_MAX_SUBJECTS];
  const size_t count = SUBJECTS * (1 + s->num_peers);
  for (size_t i = 0; i < count; i++) {
    const uint64_t half = options->pairs / 2;
    subjects[i] = (bench_subject){.self = &s->mixtures[i],
                                  .run = run,
                                  .rig = i < SUBJECTS ? &s->rigs[i] : NULL,
                                  .pairs = i % SUBJECTS == SUBJECT_FEW ? half : options->pairs - half};
  }
  const bench_subject *failed = rounds_run(subjects, count, options);
  if (failed != NULL && failed < subjects + SUBJECTS) return rig_refused(error);
  if (failed != NULL) return peer_refused(s, (size_t)(failed - subjects), error);
  for (size_t i = 0; i < s->num_peers; i++) {
    const bench_subject *few = &subjects[SUBJECTS * (1 + i) + SUBJECT_FEW];
    const bench_subject *many = &subjects[SUBJECTS * (1 + i) + SUBJECT_MANY];
    result->peers[result->num_peers++] =
        (bench_peer_result){.name = s->peers[i].name,
                            .ns_median = rounds_median(many),
                            .ratio_median = rounds_ratio(&subjects[SUBJECT_MANY], many),
                            .ratio_to_few = rounds_ratio(many, few)};
  }
  return read_pools(s, subjects, result, error);
}

bool bench_scale(const bench_options *options, bench_result *result, tool_error *error) {
  scale_state *s = calloc(1, sizeof(*s));
  if (s == NULL) return tool_fail(error, "host memory ran out");
  s->live[SUBJECT_FEW] = options->live < FEW ? options->live : FEW;
  s->live[SUBJECT_MANY] = options->live;
  bool good = set_up(s, options, result, error) && measure(s, options, result, error);
  for (size_t i = 0; i < SUBJECTS * (1 + s->num_peers); i++) mixture_end(&s->mixtures[i]);
  for (size_t i = 0; i < SUBJECTS; i++) good = rig_close(&s->rigs[i], error) && good;
  free(s);
  return good;
}
