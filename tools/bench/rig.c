#include "tools/bench/rig.h"

#include <inttypes.h>
#include <stdio.h>

static bool open_driver(bench_rig *rig, const bench_options *options, uint64_t device_bytes, tool_error *error) {
  vmp_driver_options how = VMP_DRIVER_OPTIONS_INIT;
  how.kind = options->driver;
  if (options->driver == VMP_DRIVER_HOST) how.host_device_bytes = device_bytes;
  vmp_status status = vmp_driver_open(&rig->driver, &how);
  if (status < 0) return tool_fail_status(error, status, "the driver could not be opened");
  if (options->work.none) return true;
  status = vmp_host_work_set(rig->driver, options->work.mode, options->work.value);
  return status >= 0 || tool_fail_status(error, status, "the work mode could not be set");
}

static bool open_pool(bench_rig *rig, const bench_options *options, tool_error *error) {
  vmp_pool_options how = VMP_POOL_OPTIONS_INIT;
  how.driver = rig->driver;
  how.preset = options->preset;
  how.conf = options->conf;
  how.name = "bench";
  const vmp_status status = vmp_pool_create(&rig->pool, &how);
  return status >= 0 || tool_fail_status(error, status, "the pool could not be made");
}

bool rig_open(bench_rig *rig, const bench_options *options, uint64_t device_bytes, tool_error *error) {
  *rig = (bench_rig){0};
  if (!open_driver(rig, options, device_bytes, error) || !open_pool(rig, options, error) ||
      !rig_metadata_bytes(rig, &rig->metadata_start_bytes, error)) {
    rig_close(rig, error);
    return false;
  }
  rig->target = (bench_target){
      .kind = options->work.none ? TARGET_POOL : TARGET_POOL_WITH_WORK, .pool = rig->pool, .driver = rig->driver};
  return true;
}

bool rig_close(bench_rig *rig, tool_error *error) {
  const vmp_status status = vmp_pool_destroy(rig->pool);
  if (status != VMP_ERROR_BUSY) vmp_driver_close(rig->driver);  // else the pool still uses it
  *rig = (bench_rig){0};
  if (status >= 0) return true;
  if (error->text[0] == '\0') tool_fail_status(error, status, "the pool could not be destroyed");
  return false;
}

static bool read_stats(const bench_rig *rig, vmp_pool_stats_data *out, tool_error *error) {
  *out = (vmp_pool_stats_data)VMP_POOL_STATS_INIT;
  const vmp_status status = vmp_pool_stats(rig->pool, out);
  return status >= 0 || tool_fail_status(error, status, "the statistics could not be read");
}

bool rig_metadata_bytes(const bench_rig *rig, uint64_t *out_bytes, tool_error *error) {
  vmp_pool_stats_data stats;
  if (!read_stats(rig, &stats, error)) return false;
  *out_bytes = stats.metadata;
  return true;
}

bool rig_ready(bench_rig *rig, tool_error *error) {
  vmp_pool_stats_data stats;
  rig_drain(rig);
  if (!read_stats(rig, &stats, error)) return false;
  rig->setup_allocs = stats.allocs;
  rig->setup_calls = target_driver_calls(&rig->target);
  return true;
}

static void look_for_faults(const bench_rig *rig, bench_result *result) {
  vmp_host_work_counts_data work = VMP_HOST_WORK_COUNTS_INIT;
  if (rig->target.kind == TARGET_POOL_WITH_WORK && vmp_host_work_counts(rig->driver, &work) >= 0 &&
      work.bad_touches > 0) {
    snprintf(result->fault, sizeof(result->fault), "%" PRIu64 " touches of memory that was not there",
             work.bad_touches);
  }
}

bool rig_finish(bench_rig *rig, bench_result *result, tool_error *error) {
  vmp_pool_stats_data stats;
  rig_drain(rig);
  result->driver_calls = target_driver_calls(&rig->target) - rig->setup_calls;
  if (!read_stats(rig, &stats, error)) return false;
  result->setup_allocs = rig->setup_allocs;
  result->allocs = stats.allocs - rig->setup_allocs;
  result->peak_requested_bytes = stats.peak_requested;
  result->peak_live_bytes = stats.peak_live;
  result->peak_mapped_bytes = stats.peak_mapped;
  result->requested_bytes = stats.requested;
  result->mapped_bytes = stats.mapped;
  result->granule_bytes = stats.granule;
  result->live_blocks = stats.blocks;
  result->metadata_start_bytes = rig->metadata_start_bytes;
  result->metadata_bytes = stats.metadata;
  look_for_faults(rig, result);
  return true;
}

void rig_drain(bench_rig *rig) {
  if (rig->target.kind == TARGET_POOL_WITH_WORK) (void)vmp_host_stream_synchronize(rig->driver, 0, NULL);
}

bool rig_refused(tool_error *error) {
  return tool_fail_status(error, vmp_last_error()->status, "the pool could not serve a request");
}
