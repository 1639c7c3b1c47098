#include "tools/replay/player.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/vmpool_host.h"
#include "tools/replay/player_internal.h"

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The cost of one pair of clock reads: the least of many, so that an interruption doesn't count.
static uint64_t clock_cost_ns(void) {
  uint64_t least = UINT64_MAX;
  for (int i = 0; i < 100; i++) {
    const uint64_t start = now_ns(), spent = now_ns() - start;
    if (spent < least) least = spent;
  }
  return least;
}

void player_fault(player *p, const char *what) {
  if (p->counts.fault[0] == '\0')
    snprintf(p->counts.fault, sizeof(p->counts.fault), "%s: %s", what, vmp_last_error()->message);
}

// ---- measuring ----

static bool is_host(const player *p) { return p->options.driver == VMP_DRIVER_HOST; }

static double modelled_us(const player *p) {
  vmp_host_work_counts_data work = VMP_HOST_WORK_COUNTS_INIT;
  return is_host(p) && vmp_host_work_counts(p->driver, &work) >= 0 ? work.modelled_us : 0;
}

player_meter player_meter_start(const player *p) {
  if (!p->options.measure) return (player_meter){0};
  player_meter m = {.start_us = modelled_us(p)};
  m.start_ns = now_ns();
  return m;
}

void player_meter_stop(player *p, player_meter m) {
  if (!p->options.measure) return;
  const uint64_t spent = now_ns() - m.start_ns;
  p->counts.calls_ns += spent > p->clock_ns ? spent - p->clock_ns : 0;
  p->counts.modelled_us += modelled_us(p) - m.start_us;
}

// ---- opening ----

static bool open_streams(player *p, tool_error *error) {
  p->streams = calloc(p->options.num_streams, sizeof(*p->streams));
  if (p->streams == NULL) return tool_fail(error, "host memory ran out");
  if (!is_host(p)) return true;  // one stream, the driver's default
  for (uint32_t i = 0; i < p->options.num_streams; i++) {
    const vmp_status status = vmp_host_stream_create(p->driver, 0, &p->streams[i]);
    if (status < 0) return tool_fail_status(error, status, "a stream could not be made");
  }
  // Several streams: memory that is handed on must be ordered, not only mapped.
  vmp_status status = vmp_host_work_check_order(p->driver, p->options.num_streams > 1);
  if (status >= 0) status = vmp_host_work_set(p->driver, p->options.work.mode, p->options.work.value);
  return status >= 0 || tool_fail_status(error, status, "the work mode could not be set");
}

static bool open_driver(player *p, tool_error *error) {
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = p->options.driver;
  options.host_device_bytes = p->options.device_bytes;
  options.host_cost_file = p->options.cost_file;
  const vmp_status status = vmp_driver_open(&p->driver, &options);
  return status >= 0 || tool_fail_status(error, status, "the driver could not be opened");
}

static bool open_pool(player *p, tool_error *error) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = p->driver;
  options.preset = p->options.preset;
  options.conf = p->options.conf;
  options.name = "replay";
  const double start_us = modelled_us(p);
  const vmp_status status = vmp_pool_create(&p->pool, &options);
  p->counts.modelled_us = modelled_us(p) - start_us;
  return status >= 0 || tool_fail_status(error, status, "the pool could not be made");
}

static uint64_t sum_of(const vmp_driver_calls *c) {
  return c->reserve + c->create + c->map + c->set_access + c->unmap + c->release + c->address_free + c->event_record +
         c->event_query + c->stream_wait + c->synchronize;
}

static player_step_calls calls_now(const player *p) {
  vmp_driver_calls all, own;
  vmp_driver_get_calls(p->driver, &all);
  vmp_driver_get_thread_calls(&own);
  return (player_step_calls){.all = sum_of(&all), .own = sum_of(&own)};
}

bool player_open(player **out_player, const player_options *options, tool_error *error) {
  if (options->driver == VMP_DRIVER_CUDA && options->num_streams > 1) {
    return tool_fail(error, "a replay on several streams needs the host driver (--driver host)");
  }
  player *p = calloc(1, sizeof(*p));
  if (p == NULL) return tool_fail(error, "host memory ran out");
  p->options = *options;
  p->counts.stats = (vmp_pool_stats_data)VMP_POOL_STATS_INIT;
  p->clock_ns = options->measure ? clock_cost_ns() : 0;
  bool good = open_driver(p, error) && open_streams(p, error) && open_pool(p, error);
  if (good && options->kv.requests != NULL) good = kv_regions_open(&p->regions, p, &options->kv, error);
  if (!good) {
    player_close(p);
    return false;
  }
  p->calls_before = calls_now(p);
  *out_player = p;
  return true;
}

kv_regions *player_regions(const player *p) { return p->regions; }
const player_counts *player_progress(const player *p) { return &p->counts; }
vmp_pool *player_pool(const player *p) { return p->pool; }
vmp_driver *player_driver(const player *p) { return p->driver; }

// ---- events ----

void player_touch(player *p, void *ptr, uint64_t bytes, bool write, uint16_t stream) {
  if (p->options.work.none || !is_host(p) || ptr == NULL) return;
  const vmp_status status = vmp_host_kernel(p->driver, 0, ptr, bytes, write, p->streams[stream]);
  if (status < 0) player_fault(p, "a touch could not be queued");
}

static void touch(player *p, const player_block *block) {
  player_touch(p, block->ptr, block->bytes, true, block->stream);
}

// note_peak keeps what the pool holds at the highest point so far. It asks only for the sizes that cost nothing.
static void note_peak(player *p) {
  p->counts.peak_requested_bytes = p->counts.requested_bytes;
  if (!p->options.measure) return;
  vmp_pool_stats_data stats = {.struct_size = offsetof(vmp_pool_stats_data, pending)};
  if (vmp_pool_stats(p->pool, &stats) != VMP_OK) {
    player_fault(p, "the statistics could not be read");
    return;
  }
  p->counts.live_at_peak_bytes = stats.live;
  p->counts.mapped_at_peak_bytes = stats.mapped;
}

void player_requested(player *p, uint64_t added_bytes, uint64_t removed_bytes) {
  p->counts.requested_bytes += added_bytes - removed_bytes;
  if (p->counts.requested_bytes > p->counts.peak_requested_bytes) note_peak(p);
}

void player_failed(player *p) {
  if (p->counts.failed_allocs++ > 0) return;
  snprintf(p->counts.first_failure, sizeof(p->counts.first_failure), "%s", vmp_last_error()->message);
}

void player_measure(player *p) {
  if (!p->options.measure || ++p->events_since_stats < p->options.stats_every) return;
  p->events_since_stats = 0;
  vmp_pool_stats_data stats = {.struct_size = offsetof(vmp_pool_stats_data, pending)};  // what costs nothing
  if (vmp_pool_stats(p->pool, &stats) != VMP_OK || stats.mapped == 0) return;
  p->counts.utilisation_sum += (double)stats.live / (double)stats.mapped;
  p->counts.utilisation_events++;
}

static void perform_alloc(player *p, player_block *block, uint64_t bytes, uint16_t stream) {
  *block = (player_block){.bytes = bytes, .stream = stream};
  p->counts.allocs++;
  const player_meter m = player_meter_start(p);
  const vmp_status status = vmp_alloc(p->pool, &block->ptr, bytes, p->streams[stream]);
  player_meter_stop(p, m);
  if (status < 0) {
    block->state = BLOCK_FAILED;
    player_failed(p);
    return;
  }
  block->state = BLOCK_LIVE;
  p->counts.live_blocks++;
  player_requested(p, bytes, 0);
  touch(p, block);
}

static void perform_free(player *p, player_block *block, uint16_t stream) {
  touch(p, block);
  // The touches ran on the block's own stream; where another one frees it, the pool is told.
  if (stream != block->stream && block->ptr != NULL &&
      vmp_record_use(p->pool, block->ptr, p->streams[block->stream]) < 0) {
    player_fault(p, "a use could not be recorded");
  }
  const player_meter m = player_meter_start(p);
  const vmp_status status = vmp_free(p->pool, block->ptr, p->streams[stream]);
  player_meter_stop(p, m);
  if (status < 0) player_fault(p, "a free failed");
  p->counts.live_blocks--;
  player_requested(p, 0, block->bytes);
  block->state = BLOCK_NONE;
}

static bool grow_blocks(player *p, uint32_t block) {
  if (block < p->num_blocks) return true;
  const size_t count = 2 * (size_t)block + 1024;
  player_block *blocks = reallocarray(p->blocks, count, sizeof(*blocks));
  if (blocks == NULL) return false;
  memset(blocks + p->num_blocks, 0, (count - p->num_blocks) * sizeof(*blocks));
  p->blocks = blocks;
  p->num_blocks = count;
  return true;
}

bool player_alloc(player *p, uint32_t block, uint64_t bytes, uint16_t stream) {
  if (!grow_blocks(p, block)) return false;
  perform_alloc(p, &p->blocks[block], bytes, stream);
  player_measure(p);
  return true;
}

void player_free(player *p, uint32_t block, uint16_t stream) {
  player_block *b = &p->blocks[block];
  if (b->state == BLOCK_LIVE) {
    p->counts.frees++;
    perform_free(p, b, stream);
  }
  b->state = BLOCK_NONE;
  player_measure(p);
}

static bool add_nameless(player *p, const player_block *block) {
  if (p->num_nameless == p->nameless_capacity) {
    const size_t capacity = p->nameless_capacity == 0 ? 256 : p->nameless_capacity * 2;
    player_block *nameless = reallocarray(p->nameless, capacity, sizeof(*nameless));
    if (nameless == NULL) return false;
    p->nameless = nameless;
    p->nameless_capacity = capacity;
  }
  p->nameless[p->num_nameless++] = *block;
  return true;
}

bool player_intrude(player *p, uint64_t bytes, uint16_t stream) {
  player_block block;
  perform_alloc(p, &block, bytes, stream);
  player_measure(p);
  return block.state != BLOCK_LIVE || add_nameless(p, &block);
}

bool player_renumber(player *p) {
  for (size_t i = 0; i < p->num_blocks; i++) {
    if (p->blocks[i].state == BLOCK_LIVE && !add_nameless(p, &p->blocks[i])) return false;
    p->blocks[i].state = BLOCK_NONE;
  }
  return true;
}

// ---- steps ----

void player_step(player *p) {
  if (vmp_pool_step(p->pool) < 0) player_fault(p, "a step could not be marked");
  const player_step_calls now = calls_now(p);
  if (p->counts.num_steps < PLAYER_MAX_STEPS) {
    p->counts.steps[p->counts.num_steps] =
        (player_step_calls){.all = now.all - p->calls_before.all, .own = now.own - p->calls_before.own};
  }
  p->counts.num_steps++;
  p->calls_before = now;
}

void player_defragment(player *p) {
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  player_defragmentation *sum = &p->counts.defragmentation;
  const double start_us = p->options.measure ? modelled_us(p) : 0;
  if (vmp_pool_defragment(p->pool, NULL, &report) < 0) player_fault(p, "the pool could not be defragmented");
  if (p->options.measure) p->counts.modelled_us += modelled_us(p) - start_us;
  sum->runs++;
  sum->moved_bytes += report.moved_bytes;
  sum->largest_before_bytes = report.largest_free_mapped_before;
  sum->largest_after_bytes = report.largest_free_mapped_after;
}

static uint64_t mapped_now(player *p) {
  vmp_pool_stats_data stats = {.struct_size = offsetof(vmp_pool_stats_data, pending)};
  if (vmp_pool_stats(p->pool, &stats) < 0) player_fault(p, "the statistics could not be read");
  return stats.mapped;
}

// compact_by copies as far as `allow` says, and returns what is mapped then.
static uint64_t compact_by(player *p, uint32_t allow) {
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  options.allow_copy = allow;
  if (vmp_quiescent_begin(p->pool) < 0 || vmp_pool_defragment(p->pool, &options, &report) < 0 ||
      vmp_quiescent_end(p->pool) < 0 || vmp_pool_trim(p->pool, 0, NULL) < 0) {
    player_fault(p, "the pool could not be compacted");
  }
  p->counts.compaction.copied_bytes += report.copied_bytes;
  p->counts.compaction.split_chunks += report.split_chunks;
  p->counts.compaction.meshed_chunks += report.meshed_chunks;
  return mapped_now(p);
}

void player_compact(player *p) {
  player_compaction *c = &p->counts.compaction;
  player_synchronize(p);
  c->requested_bytes = p->counts.requested_bytes;
  c->before_bytes = mapped_now(p);
  if (vmp_pool_trim(p->pool, 0, NULL) < 0) player_fault(p, "the pool could not be trimmed");
  c->trimmed_bytes = mapped_now(p);
  c->split_bytes = compact_by(p, VMP_DEFRAGMENT_SPLIT);
  c->meshed_bytes = compact_by(p, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH);
}

void player_propose(player *p, uint64_t num_classes, double share, vmp_class_proposal *out_proposal) {
  *out_proposal = (vmp_class_proposal)VMP_CLASS_PROPOSAL_INIT;
  if (vmp_pool_propose_classes(p->pool, (size_t)num_classes, share, out_proposal) < 0)
    player_fault(p, "classes could not be proposed");
}

// ---- the end ----

void player_synchronize(player *p) {
  if (!is_host(p)) return;
  for (uint32_t i = 0; i < p->options.num_streams; i++) {
    if (vmp_host_stream_synchronize(p->driver, 0, p->streams[i]) < 0)
      player_fault(p, "a stream could not be synchronised");
  }
}

static void read_bad_touches(player *p) {
  if (!is_host(p)) return;
  vmp_host_work_counts_data work = VMP_HOST_WORK_COUNTS_INIT;
  if (vmp_host_work_counts(p->driver, &work) < 0) player_fault(p, "the work counters could not be read");
  p->counts.bad_touches = work.bad_touches + work.unordered;
}

void player_settle(player *p) {
  player_synchronize(p);
  read_bad_touches(p);
  vmp_driver_get_calls(p->driver, &p->counts.driver_calls);
  if (vmp_pool_stats(p->pool, &p->counts.stats) < 0) player_fault(p, "the statistics could not be read");
  if (vmp_pool_check(p->pool, NULL) < 0) player_fault(p, "the pool's check failed");
}

void player_finish(player *p) {
  p->options.measure = false;  // what the end costs is not the trace's
  for (size_t i = 0; i < p->num_blocks; i++) {
    if (p->blocks[i].state == BLOCK_LIVE) perform_free(p, &p->blocks[i], p->blocks[i].stream);
  }
  for (size_t i = 0; i < p->num_nameless; i++) perform_free(p, &p->nameless[i], p->nameless[i].stream);
  p->num_nameless = 0;
  kv_regions_finish(p->regions);
  player_synchronize(p);
  read_bad_touches(p);
  if (vmp_pool_destroy(p->pool) < 0) player_fault(p, "the pool could not be destroyed");
  p->pool = NULL;
}

void player_close(player *p) {
  if (p == NULL) return;
  if (p->pool != NULL) player_finish(p);
  if (p->driver != NULL && p->streams != NULL && is_host(p)) {
    for (uint32_t i = 0; i < p->options.num_streams; i++) {
      if (p->streams[i] != NULL) vmp_host_stream_destroy(p->driver, p->streams[i]);
    }
  }
  vmp_driver_close(p->driver);
  kv_regions_close(p->regions);
  free(p->streams);
  free(p->blocks);
  free(p->nameless);
  free(p);
}
