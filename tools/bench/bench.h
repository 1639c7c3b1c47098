// bench.h: what the pool costs: time, instructions, memory, driver calls, on requests that are drawn by a seed.
//
// Owns: the list of benchmarks, their options, their figures. Does not own: how figures are shown (report.h), the
// command line (tools/vmpool/cmd_bench.c). Uses the public headers only.
//
//     bench.c ─── pair, batch, churn, threads, scale, fill, step, log    one file each: the set-up and the loop
//                    │
//                 rounds.c (which subject runs when)   rig.c (driver and pool)   latency.c   peers.c   timing.c
//
// A benchmark performs exactly `pairs` allocations and as many frees after a set-up that does not depend on `pairs`, so
// that the difference of two runs of N and 2N pairs is what N pairs cost (tools/bench/instructions.sh).
#ifndef VMPOOL_TOOLS_BENCH_BENCH_H_
#define VMPOOL_TOOLS_BENCH_BENCH_H_

#include <stdbool.h>
#include <stdint.h>

#include "pool/vmpool.h"
#include "tools/common/error.h"
#include "tools/replay/work_mode.h"

#define BENCH_MAX_THREADS 256u
#define BENCH_MAX_SEEDS 1024u
#define BENCH_MAX_PEERS 3u
#define BENCH_MAX_LIVE UINT64_C(100000000)
#define BENCH_NO_SETUP_PAIRS UINT64_MAX

typedef struct bench_options {
  vmp_driver_kind driver;  // VMP_DRIVER_HOST or VMP_DRIVER_CUDA
  uint64_t device_bytes;   // of the host driver's device; 0: the benchmark's own
  const char *preset, *conf;
  work_mode work;
  uint64_t pairs;        // 0: the benchmark's own
  uint64_t setup_pairs;  // churn: pairs before the measured ones; BENCH_NO_SETUP_PAIRS: the benchmark's own
  uint64_t seed;
  uint64_t live;     // blocks that are live all the time; 0: the benchmark's own
  uint32_t threads;  // threads: 0: 2
  uint32_t seeds;    // fill: this many seeds from `seed` on; 0: 1
  bool latency;      // measure single allocations in a second pass of as many pairs
  bool peers;        // run the allocators that are installed as well, in the same rounds
  // Called now and then with the share of the work done (0 to 1); NULL: never.
  void (*progress)(void *context, const char *what, double share);
  void *progress_context;
} bench_options;

// The defaults: the host driver, nothing queued.
#define BENCH_OPTIONS_INIT \
  { .driver = VMP_DRIVER_HOST, .work = {.none = true}, .setup_pairs = BENCH_NO_SETUP_PAIRS, .seed = 1 }

typedef struct bench_skipped_peer {
  const char *name;  // static storage
  char why[200];
} bench_skipped_peer;

typedef struct bench_peer_result {
  const char *name;  // static storage
  double ns_median;
  double ratio_median;  // of the pool's time to the peer's, round by round
  double ratio_to_few;  // scale: of its own time with many live blocks to that with few
} bench_peer_result;

// bench_result: which of the figures there are depends on the benchmark and the options.
typedef struct bench_result {
  const char *name;
  uint64_t seed, pairs;
  uint64_t setup_allocs, allocs;  // as the pool counted them, before and after the set-up's end
  double ns_median, ns_min;       // of a pair, over rounds

  bool has_latency;
  double ns_p50, ns_p99, ns_p999, ns_timer;  // of one allocation that made no driver call, the timer's cost included
  uint64_t driver_call_allocs;               // the others
  double driver_call_ns_p50, driver_call_ns_max;

  uint64_t peak_requested_bytes, peak_live_bytes, peak_mapped_bytes;
  uint64_t requested_bytes, mapped_bytes, live_blocks;  // at the end
  uint64_t granule_bytes;
  uint64_t metadata_start_bytes, metadata_bytes;  // of the empty pool, and at the end
  uint64_t driver_calls;                          // after the set-up

  bool has_scaling;  // threads: throughput of all of them to that of one
  double scaling;
  uint64_t threads;

  bool has_ratio;  // scale: time of a pair with many live blocks to that with few
  double ratio, ns_median_few;
  uint64_t live_few, live_many;
  double metadata_bytes_per_block;  // growth from live_many / 10 to live_many blocks

  bool has_share;  // fill: requested bytes to the device's when the first allocation fails: the median of seeds
  double share_at_first_failure, share_worst;
  uint64_t num_seeds, device_bytes;

  bool has_steps;
  double steps, driver_calls_per_step;

  bool has_log;  // log: time of a pair without it, and what an event of it costs
  double ns_median_without_log, ns_per_event;

  bool has_peers;
  bench_peer_result peers[BENCH_MAX_PEERS];
  uint64_t num_peers;
  bench_skipped_peer skipped_peers[BENCH_MAX_PEERS];
  uint64_t num_skipped_peers;

  char fault[640];  // what a touch found wrong, or ""
} bench_result;

// What a benchmark understands besides the options that all do.
enum {
  BENCH_TAKES_LIVE = 1,
  BENCH_TAKES_SETUP_PAIRS = 2,
  BENCH_TAKES_THREADS = 4,
  BENCH_TAKES_SEEDS = 8,
  BENCH_TAKES_LATENCY = 16,
  BENCH_TAKES_PEERS = 32,
};

typedef struct benchmark {
  const char *name, *summary;
  unsigned takes;
  uint64_t default_pairs, default_live;
  uint64_t default_device_bytes;  // 0: the benchmark works it out
  bool (*run)(const bench_options *options, bench_result *result, tool_error *error);
} benchmark;

extern const benchmark benchmarks[];
extern const size_t num_benchmarks;

// bench_find returns the benchmark of that name, or NULL.
const benchmark *bench_find(const char *name);

// bench_check says whether the options fit the benchmark; the sentence names the option that doesn't.
bool bench_check(const benchmark *b, const bench_options *options, tool_error *error);

// bench_run runs it with bench_check's blessing. False when it could not run: the driver, the pool's options, host
// memory, or an allocation that failed where none may.
bool bench_run(const benchmark *b, const bench_options *options, bench_result *out_result, tool_error *error);

// The benchmarks. Options are complete (no zeros that mean "default"), *result is zeroed but for name, seed and pairs.
bool bench_pair(const bench_options *options, bench_result *result, tool_error *error);
bool bench_batch(const bench_options *options, bench_result *result, tool_error *error);
bool bench_churn(const bench_options *options, bench_result *result, tool_error *error);
bool bench_log(const bench_options *options, bench_result *result, tool_error *error);
bool bench_threads(const bench_options *options, bench_result *result, tool_error *error);
bool bench_scale(const bench_options *options, bench_result *result, tool_error *error);
bool bench_fill(const bench_options *options, bench_result *result, tool_error *error);
bool bench_step(const bench_options *options, bench_result *result, tool_error *error);

#endif  // VMPOOL_TOOLS_BENCH_BENCH_H_
