// scale.c: what many live blocks cost: the time of a pair with a million live blocks against a thousand, in the same
// rounds, each in a pool of its own; and what bookkeeping grows by from a hundred thousand blocks to a million.
#include <stdlib.h>
#include <string.h>

#include "tools/bench/mixture.h"
#include "tools/bench/rounds.h"

#define LOW_BYTES 512u
#define HIGH_BYTES (UINT64_C(64) << 10)
#define FEW UINT64_C(1000)

typedef struct scale_state {
  bench_rig rigs[2];  // few, many
  mixture mixtures[2];
  uint64_t live[2];
} scale_state;

static bool run(void *self, uint64_t pairs) { return mixture_run(self, pairs); }

static bool set_up(scale_state *s, const bench_options *options, bench_result *result, tool_error *error) {
  uint64_t before = 0, after = 0;
  for (int i = 0; i < 2; i++) {
    if (!rig_open(&s->rigs[i], options, options->device_bytes, error)) return false;
    s->mixtures[i].target = s->rigs[i].target;
    if (!mixture_init(&s->mixtures[i], s->live[i], LOW_BYTES, HIGH_BYTES, options->seed))
      return tool_fail(error, "host memory ran out");
    const uint64_t tenth = s->live[i] / 10;
    if (!mixture_grow(&s->mixtures[i], tenth)) return rig_refused(error);
    if (!rig_metadata_bytes(&s->rigs[i], &before, error)) return false;
    if (!mixture_grow(&s->mixtures[i], s->live[i])) return rig_refused(error);
    if (!rig_metadata_bytes(&s->rigs[i], &after, error) || !rig_ready(&s->rigs[i], error)) return false;
    result->metadata_bytes_per_block = ((double)after - (double)before) / (double)(s->live[i] - tenth);
  }
  return true;
}

static bool measure(scale_state *s, const bench_options *options, bench_result *result, tool_error *error) {
  bench_subject subjects[2];
  for (int i = 0; i < 2; i++) {
    subjects[i] = (bench_subject){.self = &s->mixtures[i],
                                  .run = run,
                                  .rig = &s->rigs[i],
                                  .pairs = i == 0 ? options->pairs / 2 : options->pairs - options->pairs / 2};
  }
  if (rounds_run(subjects, 2, options) != NULL) return rig_refused(error);
  bench_result few = *result;
  if (!rig_finish(&s->rigs[0], &few, error) || !rig_finish(&s->rigs[1], result, error)) return false;
  result->setup_allocs += few.setup_allocs;
  result->allocs += few.allocs;
  result->driver_calls += few.driver_calls;
  if (result->fault[0] == '\0') memcpy(result->fault, few.fault, sizeof(result->fault));
  result->ns_median = rounds_median(&subjects[1]);
  result->ns_min = rounds_least(&subjects[1]);
  result->ns_median_few = rounds_median(&subjects[0]);
  result->has_ratio = true;
  result->ratio = rounds_ratio(&subjects[1], &subjects[0]);
  result->live_few = s->live[0];
  result->live_many = s->live[1];
  return true;
}

bool bench_scale(const bench_options *options, bench_result *result, tool_error *error) {
  scale_state *s = calloc(1, sizeof(*s));
  if (s == NULL) return tool_fail(error, "host memory ran out");
  s->live[0] = options->live < FEW ? options->live : FEW;
  s->live[1] = options->live;
  bool good = set_up(s, options, result, error) && measure(s, options, result, error);
  for (int i = 0; i < 2; i++) {
    mixture_end(&s->mixtures[i]);
    good = rig_close(&s->rigs[i], error) && good;
  }
  free(s);
  return good;
}
