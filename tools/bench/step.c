// step.c: a training step of GPT-2 XL (batch 4, sequence 1024), again and again, on a device of 1.02 times its peak.
// From the fourth step on a pool should need no driver call. Each step ends with vmp_pool_step.
#include <stdlib.h>

#include "tools/bench/contest.h"
#include "tools/models/train.h"

#define MODEL "gpt2-xl"
#define BATCH 4
#define SEQUENCE 1024
#define SETUP_STEPS 3u
#define GRANULE (UINT64_C(2) << 20)

typedef struct step_state {
  bench_target target;
  trace_list list;      // the persistent allocations, then one step
  size_t first, next;   // events: where the step begins, what comes next
  void **blocks;        // by the list's number; NULL where not live
  uint64_t step_pairs;  // allocations in a step
} step_state;

static bool generate(trace_list *list, train_totals *totals, tool_error *error) {
  const train_options options = {
      .model = model_find(MODEL), .batch = BATCH, .seq_low = SEQUENCE, .seq_high = SEQUENCE, .steps = 1, .seed = 1};
  return train_generate(&options, list, totals, error);
}

TARGET_INLINE bool play_event(target_kind kind, step_state *s, const trace_event *e) {
  if (e->kind == TRACE_ALLOC) return target_alloc(kind, &s->target, &s->blocks[e->block], e->bytes);
  void *ptr = s->blocks[e->block];
  s->blocks[e->block] = NULL;
  return ptr == NULL || target_free(kind, &s->target, ptr, e->bytes);
}

// Plays events until `pairs` blocks have been allocated, then the frees up to the next allocation. What a step that is
// cut short leaves live is freed by end_step.
TARGET_INLINE bool play(target_kind kind, step_state *s, uint64_t pairs) {
  for (;;) {
    if (s->next == s->list.num_events) {
      s->next = s->first;
      if (kind != TARGET_PEER && vmp_pool_step(s->target.pool) < 0) return false;
    }
    const trace_event *e = &s->list.events[s->next];
    if (e->kind == TRACE_ALLOC && pairs-- == 0) return true;
    if (!play_event(kind, s, e)) return false;
    s->next++;
  }
}

static bool run(void *self, uint64_t pairs) {
  step_state *s = self;
  return TARGET_RUN(play, s->target.kind, s, pairs);
}

// end_step frees what the current step has live, in the order of its allocation.
static void end_step(step_state *s) {
  for (size_t i = s->first; i < s->list.num_events; i++) {
    const trace_event *e = &s->list.events[i];
    if (e->kind == TRACE_FREE) (void)TARGET_RUN(play_event, s->target.kind, s, e);
  }
  s->next = s->first;
}

static bool set_up(void *self, const bench_options *options) {
  (void)options;
  step_state *s = self;
  train_totals totals;
  tool_error error;
  if (!generate(&s->list, &totals, &error)) return false;
  s->blocks = calloc(s->list.num_blocks, sizeof(*s->blocks));
  if (s->blocks == NULL) return false;
  s->first = totals.persistent_allocs;  // each is one event
  s->step_pairs = totals.first_step_allocs;
  return run(s, totals.persistent_allocs + SETUP_STEPS * s->step_pairs);
}

static void tear_down(void *self) {
  step_state *s = self;
  if (s->blocks != NULL) end_step(s);
  for (size_t i = 0; s->blocks != NULL && i < s->first; i++) {
    const trace_event *e = &s->list.events[i];
    if (s->blocks[e->block] == NULL) continue;
    (void)TARGET_RUN(target_free, s->target.kind, &s->target, s->blocks[e->block], e->bytes);
  }
  free(s->blocks);
  trace_list_destroy(&s->list);
}

static void finish(void *self, bench_result *result) {
  const step_state *s = self;
  result->has_steps = true;
  result->steps = (double)result->pairs / (double)s->step_pairs;
  result->driver_calls_per_step = (double)result->driver_calls / result->steps;
}

bool bench_step(const bench_options *options, bench_result *result, tool_error *error) {
  static const bench_workload workload = {sizeof(step_state), set_up, run, NULL, tear_down};
  uint64_t device_bytes = options->device_bytes;
  if (device_bytes == 0) {
    trace_list list = {0};
    if (!generate(&list, NULL, error)) return false;
    device_bytes = list.peak_bytes / 50 * 51 / GRANULE * GRANULE;
    trace_list_destroy(&list);
  }
  result->device_bytes = device_bytes;
  return contest_run(&workload, options, device_bytes, result, finish, error);
}
