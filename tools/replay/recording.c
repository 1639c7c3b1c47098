#include "tools/replay/recording.h"

#include <stdio.h>
#include <unistd.h>

#include "tools/log/log_file.h"

static void write_snapshot(recording *r) {
  const vmp_status status = vmp_pool_snapshot(player_pool(r->player), r->snapshot);
  if (status >= 0 || r->failed) return;
  r->failed = true;
  tool_fail_status(&r->error, status, r->snapshot);
}

// after: an event has been performed.
static void after(recording *r) {
  r->ops++;
  if (r->at == r->ops) write_snapshot(r);
  if (!r->watch_peak) return;
  vmp_pool_stats_data stats = {.struct_size = offsetof(vmp_pool_stats_data, live)};
  if (vmp_pool_stats(player_pool(r->player), &stats) != VMP_OK || stats.mapped <= r->peak_bytes) return;
  r->peak_bytes = stats.mapped;
  r->peak_ops = r->ops;
}

static bool sink_alloc(void *self, uint32_t block, uint64_t bytes, uint16_t stream) {
  recording *r = self;
  const bool good = r->inner.alloc(r->inner.self, block, bytes, stream);
  after(r);
  return good;
}

static void sink_free(void *self, uint32_t block, uint16_t stream) {
  recording *r = self;
  r->inner.free(r->inner.self, block, stream);
  after(r);
}

static void sink_grow(void *self, uint32_t block, uint64_t bytes) {
  recording *r = self;
  r->inner.grow(r->inner.self, block, bytes);
  after(r);
}

static bool sink_intrude(void *self, uint64_t bytes, uint16_t stream) {
  recording *r = self;
  const bool good = r->inner.intrude(r->inner.self, bytes, stream);
  after(r);
  return good;
}

static bool sink_renumber(void *self) {
  const recording *r = self;
  return r->inner.renumber(r->inner.self);
}

static uint64_t sink_failed(const void *self) {
  const recording *r = self;
  return r->inner.failed_allocs(r->inner.self);
}

static void sink_step(void *self, bool defragment) {
  const recording *r = self;
  r->inner.step(r->inner.self, defragment);
}

static replay_sink sink_of(recording *r, player *p) {
  r->player = p;
  r->inner = replay_player_sink(p);
  return (replay_sink){.self = r,
                       .alloc = sink_alloc,
                       .free = sink_free,
                       .grow = r->inner.grow == NULL ? NULL : sink_grow,
                       .intrude = sink_intrude,
                       .renumber = sink_renumber,
                       .failed_allocs = sink_failed,
                       .step = sink_step};
}

// remove_old_log makes room for a new log of the same name; anything else of that name stays, and is reported later.
static void remove_old_log(const char *path) {
  char magic[sizeof(VMP_LOG_MAGIC)];
  FILE *file = fopen(path, "rb");
  if (file == NULL) return;
  const bool is_log = fread(magic, 1, sizeof(magic), file) == sizeof(magic) && log_is(magic, sizeof(magic));
  fclose(file);
  if (is_log) (void)unlink(path);
}

bool recording_begin(recording *r, player *p, const replay_options *options, uint64_t at, replay_sink *out_sink,
                     tool_error *error) {
  *r = (recording){.snapshot = options->snapshot, .at = options->snapshot == NULL ? 0 : at};
  *out_sink = sink_of(r, p);
  if (options->log == NULL) return true;
  remove_old_log(options->log);
  const vmp_status status = vmp_pool_log_start(player_pool(p), options->log, NULL);
  return status >= 0 || tool_fail_status(error, status, "the log could not be made");
}

bool recording_end(recording *r, const replay_options *options, tool_error *error) {
  if (r->snapshot != NULL && r->at == 0) write_snapshot(r);
  if (r->snapshot != NULL && r->at > r->ops) {
    tool_fail(&r->error, "--snapshot-at: the replay has %llu events only", (unsigned long long)r->ops);
    r->failed = true;
  }
  if (options->log != NULL) (void)vmp_pool_log_stop(player_pool(r->player));
  if (r->failed) *error = r->error;
  return !r->failed;
}

// Everything is as in the replay that follows, the log included: it keeps threads from caching blocks.
bool recording_find_peak(trace *t, const replay_options *options, uint64_t device_bytes, uint64_t *out_ops,
                         tool_error *error) {
  const player_options how = replay_player_options(t, options, device_bytes, true);
  replay_options quiet = *options;
  player *p;
  recording r;
  replay_sink sink;
  quiet.snapshot = NULL;
  if (!player_open(&p, &how, error)) return false;
  uint64_t ops;
  bool good = recording_begin(&r, p, &quiet, 0, &sink, error);
  r.watch_peak = true;
  good = good && replay_events(t, options, &sink, false, &ops, error) && recording_end(&r, &quiet, error);
  player_close(p);
  *out_ops = r.peak_ops;
  return good;
}
