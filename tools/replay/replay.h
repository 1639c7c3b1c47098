// replay.h: a whole trace through a pool, and what it cost.
//
// Owns: the order of events (repetition, scaling, streams, intruders), the smallest device on which a trace completes,
// the figures. Does not own: how a single event is performed (player.h), how figures are shown (report.h).
#ifndef VMPOOL_TOOLS_REPLAY_REPLAY_H_
#define VMPOOL_TOOLS_REPLAY_REPLAY_H_

#include "tools/compare/model.h"
#include "tools/replay/intruder.h"
#include "tools/replay/player.h"
#include "tools/trace/trace.h"

// Allocation number i, from 0, uses stream (i / REPLAY_STREAM_RUN) mod N with --streams N.
#define REPLAY_STREAM_RUN 500u

// The statistics are read after every event of a replay of up to so many, and after every k-th one of a longer replay.
#define REPLAY_STATS_MAX UINT64_C(200000)

// replay_moment: when the snapshot is taken.
typedef enum replay_moment {
  REPLAY_AT_PEAK = 0,  // when the highest mapped bytes are reached first: the trace is replayed twice
  REPLAY_AT_END,       // after the trace, when all work has finished
  REPLAY_AT_EVENT,
} replay_moment;

typedef struct replay_options {
  vmp_driver_kind driver;
  uint64_t device_bytes;  // UINT64_MAX: unlimited
  bool min_capacity;      // find the smallest device first, and run on it; device_bytes is then not used
  const char *preset, *conf;
  const char *cost_file;  // of the host driver's clock; NULL: its defaults
  work_mode work;
  uint32_t streams;  // 0: those of the trace
  double scale;      // of every size; 0: 1. Sizes are rounded down, but never to 0
  uint64_t repeat;   // 0: 1. What a repetition leaves live stays live
  intruder intruder;
  // A step of the pool (vmp_pool_step) ends after step_first + step_every events of the trace, and every step_every
  // later; 0: at the end of each repetition, where there are several.
  uint64_t step_every, step_first;
  uint64_t defragment_every;  // the pool is defragmented after so many steps; 0: not
  bool defragment_end;        // ... and once all work has finished, at the end of the trace
  bool compact_end;           // ... then trimmed and compacted, which copies
  uint64_t propose_classes;   // so many size classes are proposed at the end (vmp_pool_propose_classes); 0: none
  double propose_share;       // for this share of the requests; 0: 0.9
  bool compare;               // run the models of other allocators as well
  const char *log;  // file of an event log of the pool, until the trace has ended; NULL: none. An older log of this
                    // name is replaced
  const char *snapshot;  // file of a snapshot of the pool; NULL: none
  replay_moment snapshot_at;
  uint64_t snapshot_event;  // REPLAY_AT_EVENT: after so many events
  // Of a trace with layout region: one region a layer rather than one a request; prefix blocks are shared, and the
  // trace is played without that, too.
  bool kv_per_layer, kv_share;
  // Called now and then with the share of events done (0 to 1) and what is being done; NULL: never.
  void (*progress)(void *context, const char *what, double share);
  void *progress_context;
} replay_options;

// The defaults: the host driver, unlimited, late work.
#define REPLAY_OPTIONS_INIT \
  { .driver = VMP_DRIVER_HOST, .device_bytes = UINT64_MAX }

// replay_model_result: what a model of another allocator would have held and called.
typedef struct replay_model_result {
  bool has_min_capacity;
  uint64_t min_capacity_bytes;  // the smallest device on which no allocation fails, in steps of 2 MiB
  // On the replay's device; with min_capacity, on the model's own smallest one.
  uint64_t failed_allocs, peak_mapped_bytes;
  model_calls calls;
  double modelled_us;
} replay_model_result;

typedef struct replay_result {
  uint64_t ops;     // events performed, intruders among them
  uint64_t allocs;  // attempted; failed_allocs of them failed
  uint64_t frees;   // performed; a failed allocation's free is skipped
  uint64_t failed_allocs, unmatched_frees, bad_touches;
  uint64_t stream_waits, host_waits;
  uint64_t takes, takes_resized;  // parked chunks that went to other addresses; ... that were exchanged for other sizes
  double unfinished_wait_share;   // of allocs, those that had to wait for unfinished work of another stream
  uint64_t peak_requested_bytes, peak_live_bytes, peak_mapped_bytes;
  uint64_t end_live_bytes, end_mapped_bytes, end_live_blocks;  // after all work, before the rest is freed
  uint64_t mapped_at_peak_bytes;                               // when requested was highest
  double fragmentation_at_peak;                                // 1 - live / mapped then
  double mean_utilisation;  // mean of live / mapped over events (see REPLAY_STATS_MAX); 0 where nothing was ever mapped
  bool has_min_capacity;
  uint64_t min_capacity_bytes;
  vmp_driver_calls driver_calls;
  bool has_modelled_us;
  double modelled_driver_us;  // of the driver calls, by the host driver's cost table
  uint64_t num_steps;
  player_step_calls steps[PLAYER_MAX_STEPS];        // of the first steps
  uint64_t mapped_ahead_bytes, ahead_unused_bytes;  // by strategy predictive
  bool has_proposal;
  vmp_class_proposal proposal;
  bool has_defragmentation;   // one of the options for it was given
  player_defragmentation defragmentation;
  bool has_compaction;
  player_compaction compaction;
  double ns_per_op;         // wall time inside vmp_alloc and vmp_free, a clock read's cost taken off
  char first_failure[480];  // why the first allocation failed, or ""
  char fault[640];          // what a check, a touch or the end found wrong, or ""
  bool has_regions;
  kv_counts regions;
  bool has_unshared;  // kv_share
  uint64_t unshared_peak_mapped_bytes;
  bool has_models;
  replay_model_result models[MODEL_NUM_KINDS];
} replay_result;

// replay_run plays a trace from its start. False when it could not run (options, driver, host memory); failed
// allocations and found faults are part of the result.
bool replay_run(trace *t, const replay_options *options, replay_result *out_result, tool_error *error);

// replay_good says whether nothing failed: no allocation, no check, no bad touch.
bool replay_good(const replay_result *result);

// replay_find_capacity finds the smallest device, in granules, on which no allocation fails; *out_bytes is its size. It
// assumes that a larger device is never worse, and has run both the answer and one granule less. *out_found is false
// when allocations fail on an unlimited device too.
bool replay_find_capacity(trace *t, const replay_options *options, bool *out_found, uint64_t *out_bytes,
                          tool_error *error);

#endif  // VMPOOL_TOOLS_REPLAY_REPLAY_H_
