#include "tools/bench/rounds.h"

#include "tools/bench/timing.h"
#include "tools/common/rng.h"

uint64_t rounds_share(uint64_t pairs, uint64_t round) { return pairs / BENCH_ROUNDS + (round < pairs % BENCH_ROUNDS); }

static bool run_one(bench_subject *s, uint64_t round) {
  const uint64_t pairs = rounds_share(s->pairs, round);
  s->ns[round] = 0;
  if (pairs == 0) return true;
  const uint64_t start = now_ns();
  const bool good = s->run(s->self, pairs);
  s->ns[round] = (double)(now_ns() - start) / (double)pairs;
  if (s->rig != NULL) rig_drain(s->rig);
  return good;
}

const bench_subject *rounds_run(bench_subject *subjects, size_t num_subjects, const bench_options *options) {
  rng random = {.state = options->seed};
  size_t order[BENCH_MAX_SUBJECTS];
  for (size_t i = 0; i < num_subjects; i++) order[i] = i;
  for (uint64_t round = 0; round < BENCH_ROUNDS; round++) {
    for (size_t i = num_subjects; i > 1; i--) {
      const size_t k = (size_t)rng_between(&random, 0, i - 1), swapped = order[i - 1];
      order[i - 1] = order[k];
      order[k] = swapped;
    }
    for (size_t i = 0; i < num_subjects; i++) {
      if (!run_one(&subjects[order[i]], round)) return &subjects[order[i]];
    }
    if (options->progress != NULL)
      options->progress(options->progress_context, "measuring", (double)(round + 1) / BENCH_ROUNDS);
  }
  return NULL;
}

double rounds_median(const bench_subject *s) {
  double samples[BENCH_ROUNDS];
  size_t count = 0;
  for (size_t i = 0; i < BENCH_ROUNDS; i++) {
    if (s->ns[i] > 0) samples[count++] = s->ns[i];
  }
  return timing_median(samples, count);
}

double rounds_least(const bench_subject *s) {
  double least = 0;
  for (size_t i = 0; i < BENCH_ROUNDS; i++) {
    if (s->ns[i] > 0 && (!(least > 0) || s->ns[i] < least)) least = s->ns[i];
  }
  return least;
}

double rounds_ratio(const bench_subject *s, const bench_subject *to) {
  double samples[BENCH_ROUNDS];
  size_t count = 0;
  for (size_t i = 0; i < BENCH_ROUNDS; i++) {
    if (s->ns[i] > 0 && to->ns[i] > 0) samples[count++] = s->ns[i] / to->ns[i];
  }
  return timing_median(samples, count);
}
