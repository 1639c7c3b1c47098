// rig.h: the driver and the pool of one benchmark, and the figures that are read from them.
#ifndef VMPOOL_TOOLS_BENCH_RIG_H_
#define VMPOOL_TOOLS_BENCH_RIG_H_

#include "tools/bench/bench.h"
#include "tools/bench/target.h"

typedef struct bench_rig {
  vmp_driver *driver;
  vmp_pool *pool;
  bench_target target;
  uint64_t setup_allocs, setup_calls, metadata_start_bytes;
} bench_rig;

// rig_open opens them, and leaves a zeroed rig on failure.
bool rig_open(bench_rig *rig, const bench_options *options, uint64_t device_bytes, tool_error *error);

// rig_close frees them; a zeroed rig is fine. False where blocks are still live: the benchmark lost some. An error that
// is already in *error stays.
bool rig_close(bench_rig *rig, tool_error *error);

// rig_ready ends the set-up; rig_finish reads the figures. The pool's own check is not run: it would cost more than
// what is counted.
bool rig_ready(bench_rig *rig, tool_error *error);
bool rig_finish(bench_rig *rig, bench_result *result, tool_error *error);

// rig_drain waits for queued work.
void rig_drain(bench_rig *rig);

bool rig_metadata_bytes(const bench_rig *rig, uint64_t *out_bytes, tool_error *error);

// rig_refused reports why the pool did not serve a request.
bool rig_refused(tool_error *error);

#endif  // VMPOOL_TOOLS_BENCH_RIG_H_
