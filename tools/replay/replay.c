#include "tools/replay/replay.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/replay/recording.h"

#define PROGRESS_EVENTS 4096u

static uint64_t repeat_of(const replay_options *options) { return options->repeat > 0 ? options->repeat : 1; }

player_options replay_player_options(const trace *t, const replay_options *options, uint64_t device_bytes,
                                     bool measure) {
  service_info info;
  kv_options kv = {.per_layer = options->kv_per_layer, .share = options->kv_share};
  const bool regions = t->source.self != NULL && service_get_info(&t->source, &info) && info.layout == SERVICE_REGION;
  if (regions) kv.requests = &t->source;
  return (player_options){
      .driver = options->driver,
      .device_bytes = device_bytes,
      .preset = options->preset,
      .conf = options->conf,
      .cost_file = options->cost_file,
      .work = options->work,
      .num_streams = options->streams > 0 ? options->streams : t->num_streams,
      .kv = kv,
      .measure = measure,
      .stats_every = (t->num_events * repeat_of(options) + REPLAY_STATS_MAX - 1) / REPLAY_STATS_MAX};
}

// feed: the state of the loop.
typedef struct feed {
  const replay_options *options;
  const replay_sink *sink;
  rng random;
  uint64_t ops, trace_events, allocs, steps;
  uint16_t last_stream;
  uint16_t *block_streams;  // with --streams: where each live block was allocated
  size_t num_block_streams;
} feed;

static bool scaled(uint64_t bytes, double scale, uint64_t *out) {
  *out = bytes;
  if (scale == 0 || scale == 1 || bytes == 0) return true;  // NOLINT: exact values from the options
  const long double product = floorl((long double)bytes * (long double)scale);
  if (product >= 0x1p64L) return false;
  *out = product < 1 ? 1 : (uint64_t)product;
  return true;
}

static bool remember_stream(feed *f, uint32_t block, uint16_t stream) {
  if (block >= f->num_block_streams) {
    const size_t count = 2 * (size_t)block + 1024;
    uint16_t *streams = reallocarray(f->block_streams, count, sizeof(*streams));
    if (streams == NULL) return false;
    f->block_streams = streams;
    f->num_block_streams = count;
  }
  f->block_streams[block] = stream;
  return true;
}

static bool feed_alloc(feed *f, const trace_event *event, tool_error *error) {
  uint64_t bytes;
  if (!scaled(event->bytes, f->options->scale, &bytes)) {
    return tool_fail(error, "a size of %" PRIu64 " bytes times %g is over 2^64 - 1", event->bytes, f->options->scale);
  }
  uint16_t stream = event->stream;
  if (f->options->streams > 0) {
    stream = (uint16_t)(f->allocs / REPLAY_STREAM_RUN % f->options->streams);
    if (!remember_stream(f, event->block, stream)) return tool_fail(error, "host memory ran out");
  }
  f->allocs++;
  f->last_stream = stream;
  return f->sink->alloc(f->sink->self, event->block, bytes, stream) || tool_fail(error, "host memory ran out");
}

static bool feed_event(feed *f, const trace_event *event, tool_error *error) {
  f->ops++;
  f->trace_events++;
  if (event->kind == TRACE_GROW) {
    if (f->sink->grow == NULL) return tool_fail(error, "regions grow in place, which blocks don't");
    f->sink->grow(f->sink->self, event->block, event->bytes);
  } else if (event->kind == TRACE_FREE) {
    f->sink->free(f->sink->self, event->block,
                  f->options->streams > 0 ? f->block_streams[event->block] : event->stream);
  } else if (!feed_alloc(f, event, error)) {
    return false;
  }
  const intruder *i = &f->options->intruder;
  if (i->every == 0 || f->trace_events % i->every != 0) return true;
  f->ops++;
  return f->sink->intrude(f->sink->self, intruder_bytes(i, &f->random), f->last_stream) ||
         tool_fail(error, "host memory ran out");
}

// step_is_over says whether the event that was played last ended a step.
static bool step_is_over(const feed *f) {
  const replay_options *o = f->options;
  return o->step_every != 0 && f->trace_events > o->step_first &&
         (f->trace_events - o->step_first) % o->step_every == 0;
}

static void end_step(feed *f) {
  const replay_options *o = f->options;
  if (f->sink->step == NULL) return;
  f->steps++;
  f->sink->step(f->sink->self, o->defragment_every != 0 && f->steps % o->defragment_every == 0);
}

static void report_progress(const feed *f, const trace *t, const char *what) {
  if (f->options->progress == NULL || f->trace_events % PROGRESS_EVENTS != 0) return;
  f->options->progress(f->options->progress_context, what,
                       (double)f->trace_events / ((double)t->num_events * (double)repeat_of(f->options)));
}

static bool feed_once(feed *f, trace *t, bool stop_at_failure, tool_error *error) {
  trace_event event;
  trace_rewind(t);
  while (trace_next(t, &event)) {
    if (!feed_event(f, &event, error)) return false;
    if (step_is_over(f)) end_step(f);
    if (stop_at_failure && f->sink->failed_allocs(f->sink->self) > 0) return true;
    report_progress(f, t, stop_at_failure ? "looking for the smallest device" : "replaying");
  }
  return !trace_failed(t) || tool_fail(error, "host memory ran out");
}

bool replay_events(trace *t, const replay_options *options, const replay_sink *sink, bool stop_at_failure,
                   uint64_t *out_ops, tool_error *error) {
  feed f = {.options = options, .sink = sink, .random = {.state = options->intruder.seed}};
  bool good = true;
  for (uint64_t i = 0; good && i < repeat_of(options); i++) {
    if (i > 0 && !sink->renumber(sink->self)) good = tool_fail(error, "host memory ran out");
    good = good && feed_once(&f, t, stop_at_failure, error);
    if (options->step_every == 0 && repeat_of(options) > 1) end_step(&f);
    if (stop_at_failure && sink->failed_allocs(sink->self) > 0) break;
  }
  free(f.block_streams);
  *out_ops = f.ops;
  return good;
}

static bool sink_alloc(void *p, uint32_t block, uint64_t bytes, uint16_t stream) {
  return player_alloc(p, block, bytes, stream);
}
static void sink_free(void *p, uint32_t block, uint16_t stream) { player_free(p, block, stream); }
static bool region_alloc(void *p, uint32_t block, uint64_t bytes, uint16_t stream) {
  return kv_regions_alloc(player_regions(p), block, bytes, stream);
}
static void region_grow(void *p, uint32_t block, uint64_t bytes) { kv_regions_grow(player_regions(p), block, bytes); }
static void region_free(void *p, uint32_t block, uint16_t stream) { kv_regions_free(player_regions(p), block, stream); }
static bool sink_intrude(void *p, uint64_t bytes, uint16_t stream) { return player_intrude(p, bytes, stream); }
static bool sink_renumber(void *p) { return player_renumber(p); }
static uint64_t sink_failed(const void *p) { return player_progress(p)->failed_allocs; }

static void sink_step(void *p, bool defragment) {
  player_step(p);
  if (defragment) player_defragment(p);
}

replay_sink replay_player_sink(player *p) {
  const bool regions = player_regions(p) != NULL;
  return (replay_sink){.self = p,
                       .alloc = regions ? region_alloc : sink_alloc,
                       .free = regions ? region_free : sink_free,
                       .grow = regions ? region_grow : NULL,
                       .intrude = sink_intrude,
                       .renumber = sink_renumber,
                       .failed_allocs = sink_failed,
                       .step = sink_step};
}

static void fill_result(const player *p, uint64_t ops, const trace *t, const replay_options *options,
                        replay_result *r) {
  const player_counts *c = player_progress(p);
  r->ops = ops;
  r->allocs = c->allocs;
  r->frees = c->frees;
  r->failed_allocs = c->failed_allocs;
  r->unmatched_frees = t->unmatched_frees * repeat_of(options);
  r->stream_waits = c->stats.stream_waits;
  r->host_waits = c->stats.host_waits;
  r->takes = c->stats.takes;
  r->takes_resized = c->stats.takes_resized;
  r->unfinished_wait_share = c->allocs > 0 ? (double)c->stats.unfinished_wait_allocs / (double)c->allocs : 0;
  r->peak_requested_bytes = c->peak_requested_bytes;
  r->peak_live_bytes = c->stats.peak_live;
  r->peak_mapped_bytes = c->stats.peak_mapped;
  r->end_live_bytes = c->stats.live;
  r->end_mapped_bytes = c->stats.mapped;
  r->end_live_blocks = c->live_blocks;
  r->mapped_at_peak_bytes = c->mapped_at_peak_bytes;
  r->fragmentation_at_peak =
      c->mapped_at_peak_bytes > 0 ? 1 - (double)c->live_at_peak_bytes / (double)c->mapped_at_peak_bytes : 0;
  r->mean_utilisation = c->utilisation_events > 0 ? c->utilisation_sum / (double)c->utilisation_events : 0;
  r->driver_calls = c->driver_calls;
  r->has_modelled_us = options->driver == VMP_DRIVER_HOST;
  r->modelled_driver_us = c->modelled_us;
  r->num_steps = c->num_steps;
  memcpy(r->steps, c->steps, sizeof(r->steps));
  r->mapped_ahead_bytes = c->stats.mapped_ahead;
  r->ahead_unused_bytes = c->stats.ahead_unused;
  r->has_defragmentation = options->defragment_every > 0 || options->defragment_end;
  r->defragmentation = c->defragmentation;
  r->has_compaction = options->compact_end;
  r->compaction = c->compaction;
  r->has_regions = player_regions(p) != NULL;
  if (r->has_regions) r->regions = *kv_regions_counts(player_regions(p));
  r->ns_per_op = c->allocs + c->frees > 0 ? (double)c->calls_ns / (double)(c->allocs + c->frees) : 0;
  snprintf(r->first_failure, sizeof(r->first_failure), "%s", c->first_failure);
}

static bool run_once(trace *t, const replay_options *options, uint64_t device_bytes, replay_result *result,
                     tool_error *error) {
  const player_options how = replay_player_options(t, options, device_bytes, true);
  uint64_t snapshot_at = options->snapshot_at == REPLAY_AT_EVENT ? options->snapshot_event : 0;
  if (options->snapshot != NULL && options->snapshot_at == REPLAY_AT_PEAK &&
      !recording_find_peak(t, options, device_bytes, &snapshot_at, error)) {
    return false;
  }
  player *p;
  if (!player_open(&p, &how, error)) return false;
  uint64_t ops;
  recording record;
  replay_sink sink;
  bool good = recording_begin(&record, p, options, snapshot_at, &sink, error) &&
              replay_events(t, options, &sink, false, &ops, error);
  if (good) {
    if (options->defragment_end) {
      player_synchronize(p);
      player_defragment(p);
    }
    if (options->compact_end) player_compact(p);
    if (options->propose_classes > 0) {
      result->has_proposal = true;
      player_propose(p, options->propose_classes, options->propose_share > 0 ? options->propose_share : 0.9,
                     &result->proposal);
    }
    player_settle(p);
    good = recording_end(&record, options, error);
    fill_result(p, ops, t, options, result);
    player_finish(p);
    result->bad_touches = player_progress(p)->bad_touches;
    snprintf(result->fault, sizeof(result->fault), "%s", player_progress(p)->fault);
  }
  player_close(p);
  return good;
}

// run_unshared plays the trace with every prompt for itself, on an unlimited device.
static bool run_unshared(trace *t, const replay_options *options, replay_result *result, tool_error *error) {
  replay_options alone = *options;
  replay_result unshared = {0};
  alone.kv_share = false;
  alone.log = alone.snapshot = NULL;
  if (!run_once(t, &alone, UINT64_MAX, &unshared, error)) return false;
  result->has_unshared = true;
  result->unshared_peak_mapped_bytes = unshared.peak_mapped_bytes;
  return replay_good(&unshared) ||
         tool_fail(error, "without sharing the trace failed: %s%s", unshared.first_failure, unshared.fault);
}

bool replay_run(trace *t, const replay_options *options, replay_result *out_result, tool_error *error) {
  replay_result result = {0};
  uint64_t device_bytes = options->device_bytes;
  if (options->min_capacity) {
    if (!replay_find_capacity(t, options, &result.has_min_capacity, &device_bytes, error)) return false;
    if (!result.has_min_capacity) device_bytes = UINT64_MAX;
    result.min_capacity_bytes = result.has_min_capacity ? device_bytes : 0;
  }
  if (!run_once(t, options, device_bytes, &result, error)) return false;
  if (options->kv_share && !run_unshared(t, options, &result, error)) return false;
  if (options->compare) {
    result.has_models = true;
    if (!replay_compare(t, options, device_bytes, options->min_capacity, result.models, error)) return false;
  }
  *out_result = result;
  return true;
}

bool replay_good(const replay_result *result) {
  return result->failed_allocs == 0 && result->bad_touches == 0 && result->fault[0] == '\0';
}
