// pair.c: one block of 64 KiB, allocated and freed again and again: the shortest way through the pool.
#include <stdlib.h>

#include "tools/bench/contest.h"

#define BYTES (UINT64_C(64) << 10)

typedef struct pair_state {
  bench_target target;
  void **others;  // stay live
  uint64_t num_others;
} pair_state;

TARGET_INLINE bool pairs_loop(target_kind kind, const bench_target *t, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    void *ptr;
    if (!target_alloc(kind, t, &ptr, BYTES) || !target_free(kind, t, ptr, BYTES)) return false;
  }
  return true;
}

static bool run(void *self, uint64_t pairs) {
  const pair_state *s = self;
  return TARGET_RUN(pairs_loop, s->target.kind, &s->target, pairs);
}

TARGET_INLINE bool latency_loop(target_kind kind, const bench_target *t, latency *l, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    void *ptr;
    if (!latency_alloc(kind, l, t, &ptr, BYTES) || !target_free(kind, t, ptr, BYTES)) return false;
  }
  return true;
}

static bool run_latency(void *self, latency *l, uint64_t pairs) {
  const pair_state *s = self;
  return TARGET_RUN(latency_loop, s->target.kind, &s->target, l, pairs);
}

static bool set_up(void *self, const bench_options *options) {
  pair_state *s = self;
  const bench_target *t = &s->target;
  s->others = calloc(options->live + 1, sizeof(*s->others));
  if (s->others == NULL) return false;
  for (; s->num_others < options->live; s->num_others++) {
    if (!TARGET_RUN(target_alloc, t->kind, t, &s->others[s->num_others], BYTES)) return false;
  }
  return run(s, 1000);  // maps what the loop needs
}

static void tear_down(void *self) {
  pair_state *s = self;
  const bench_target *t = &s->target;
  while (s->num_others > 0) (void)TARGET_RUN(target_free, t->kind, t, s->others[--s->num_others], BYTES);
  free(s->others);
}

bool bench_pair(const bench_options *options, bench_result *result, tool_error *error) {
  static const bench_workload workload = {sizeof(pair_state), set_up, run, run_latency, tear_down};
  return contest_run(&workload, options, options->device_bytes, result, NULL, error);
}
