// batch.c: 256 allocations of 64 KiB, then 256 frees in the same order: more than a short list of free blocks holds.
#include "tools/bench/contest.h"

#define BYTES (UINT64_C(64) << 10)
#define BATCH 256u

typedef struct batch_state {
  bench_target target;
  void *blocks[BATCH];
  uint64_t num_blocks;  // live ones
} batch_state;

TARGET_INLINE bool free_all(target_kind kind, batch_state *s) {
  const uint64_t count = s->num_blocks;
  s->num_blocks = 0;
  for (uint64_t i = 0; i < count; i++) {
    if (!target_free(kind, &s->target, s->blocks[i], BYTES)) return false;
  }
  return true;
}

// The last batch is as large as what is left.
TARGET_INLINE bool pairs_loop(target_kind kind, batch_state *s, uint64_t pairs) {
  for (uint64_t left = pairs; left > 0; left -= left < BATCH ? left : BATCH) {
    const uint64_t count = left < BATCH ? left : BATCH;
    for (; s->num_blocks < count; s->num_blocks++) {
      if (!target_alloc(kind, &s->target, &s->blocks[s->num_blocks], BYTES)) return false;
    }
    if (!free_all(kind, s)) return false;
  }
  return true;
}

static bool run(void *self, uint64_t pairs) {
  batch_state *s = self;
  return TARGET_RUN(pairs_loop, s->target.kind, s, pairs);
}

TARGET_INLINE bool latency_loop(target_kind kind, batch_state *s, latency *l, uint64_t pairs) {
  for (uint64_t left = pairs; left > 0; left -= left < BATCH ? left : BATCH) {
    const uint64_t count = left < BATCH ? left : BATCH;
    for (; s->num_blocks < count; s->num_blocks++) {
      if (!latency_alloc(kind, l, &s->target, &s->blocks[s->num_blocks], BYTES)) return false;
    }
    if (!free_all(kind, s)) return false;
  }
  return true;
}

static bool run_latency(void *self, latency *l, uint64_t pairs) {
  batch_state *s = self;
  return TARGET_RUN(latency_loop, s->target.kind, s, l, pairs);
}

static bool set_up(void *self, const bench_options *options) {
  (void)options;
  return run(self, 4 * BATCH);  // maps what the loop needs
}

static void tear_down(void *self) {
  batch_state *s = self;
  (void)TARGET_RUN(free_all, s->target.kind, s);
}

bool bench_batch(const bench_options *options, bench_result *result, tool_error *error) {
  static const bench_workload workload = {sizeof(batch_state), set_up, run, run_latency, tear_down};
  return contest_run(&workload, options, options->device_bytes, result, NULL, error);
}
