// The models of other allocators on a replay's events.
#include "tools/replay/replay_events.h"

#define MODEL_GRANULE (UINT64_C(2) << 20)  // the models' sizes are multiples of it

static bool sink_alloc(void *m, uint32_t block, uint64_t bytes, uint16_t stream) {
  return model_alloc(m, block, bytes, stream);
}
static void sink_free(void *m, uint32_t block, uint16_t stream) {
  (void)stream;
  model_free(m, block);
}
static bool sink_intrude(void *m, uint64_t bytes, uint16_t stream) { return model_intrude(m, bytes, stream); }
static bool sink_renumber(void *m) {
  model_renumber(m);
  return true;
}
static uint64_t sink_failed(const void *m) { return model_progress(m)->failed_allocs; }

// comparison: one model on devices of several sizes.
typedef struct comparison {
  trace *t;
  const replay_options *options;
  model_kind kind;
  model_cost cost;
} comparison;

static bool run(const comparison *c, uint64_t device_bytes, bool stop_at_failure, model_counts *out_counts,
                tool_error *error) {
  const uint32_t num_streams = c->options->streams > 0 ? c->options->streams : c->t->num_streams;
  model *m = model_open(c->kind, device_bytes, num_streams, &c->cost);
  if (m == NULL) return tool_fail(error, "host memory ran out");
  const replay_sink sink = {.self = m,
                            .alloc = sink_alloc,
                            .free = sink_free,
                            .intrude = sink_intrude,
                            .renumber = sink_renumber,
                            .failed_allocs = sink_failed};
  uint64_t ops;
  const bool good = replay_events(c->t, c->options, &sink, stop_at_failure, &ops, error);
  *out_counts = *model_progress(m);
  model_close(m);
  return good;
}

static bool try_device(void *self, uint64_t device_bytes, bool *out_fits, tool_error *error) {
  model_counts counts;
  const bool good = run(self, device_bytes, true, &counts, error);
  *out_fits = counts.failed_allocs == 0;
  return good;
}

static bool compare_one(comparison *c, uint64_t device_bytes, bool own_device, replay_model_result *out,
                        tool_error *error) {
  model_counts counts;
  *out = (replay_model_result){0};
  if (!run(c, UINT64_MAX, false, &counts, error)) return false;
  out->has_min_capacity = counts.failed_allocs == 0;  // else a size that no device has
  const replay_search search = {c, try_device, MODEL_GRANULE};
  if (out->has_min_capacity &&
      !replay_search_device(&search, counts.peak_requested_bytes, &out->min_capacity_bytes, error))
    return false;
  if (own_device && out->has_min_capacity) device_bytes = out->min_capacity_bytes;
  if (!run(c, device_bytes, false, &counts, error)) return false;
  out->failed_allocs = counts.failed_allocs;
  out->peak_mapped_bytes = counts.peak_mapped_bytes;
  out->calls = counts.calls;
  out->modelled_us = counts.modelled_us;
  return true;
}

bool replay_compare(trace *t, const replay_options *options, uint64_t device_bytes, bool own_device,
                    replay_model_result out_models[MODEL_NUM_KINDS], tool_error *error) {
  comparison c = {.t = t, .options = options};
  model_cost_defaults(&c.cost);
  if (options->cost_file != NULL && !model_cost_load(&c.cost, options->cost_file, error)) return false;
  for (int kind = 0; kind < MODEL_NUM_KINDS; kind++) {
    c.kind = (model_kind)kind;
    if (!compare_one(&c, device_bytes, own_device, &out_models[kind], error)) return false;
  }
  return true;
}
