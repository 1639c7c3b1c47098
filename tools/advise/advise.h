// advise.h: which options suit a trace: it is replayed with several configurations, and the figures decide.
//
//     stage 1   chunk size           chunk_max and the presets
//     stage 2   thresholds           slab_max, buddy_from       each stage begins with the best of those before it;
//     stage 3   fixed blocks         classes, where few sizes   the cases of one stage run in parallel
//                                    make up most of the bytes
//     stage 4   when to map          initial_fraction, strategy; told apart: they hold memory from the start on
//
// Owns: which cases there are, what is measured of each, which one is best. Does not own: replaying (tools/replay), how
// it is shown (report.h).
#ifndef VMPOOL_TOOLS_ADVISE_ADVISE_H_
#define VMPOOL_TOOLS_ADVISE_ADVISE_H_

#include "tools/replay/replay.h"
#include "tools/trace/trace.h"

#define ADVISE_MAX_CASES 40u
#define ADVISE_CONF_BYTES 320u

// advise_goal: what "best" means. Configurations on which an allocation fails on the device lose against all others.
typedef enum advise_goal {
  ADVISE_BALANCED = 0,  // the least driver time among those whose smallest device is within 2 % of the smallest of all
  ADVISE_MEMORY,        // the smallest device; among equals the least driver time
  ADVISE_SPEED,         // the least driver time; among equals the smallest device
} advise_goal;

typedef struct advise_options {
  advise_goal goal;
  uint64_t device_bytes;  // 0: 1.10 x the peak of what is asked for
  bool quick;             // don't look for the smallest device; the peak of mapped bytes stands in for it
  size_t jobs;            // 0: as many as there are processors
  replay_options replay;  // streams, cost file, steps; conf, preset and device are set here
  void (*progress)(void *context, const char *what, double share);
  void *progress_context;
} advise_options;

// advise_case: a configuration and what it gave. Times are the driver's by the cost table.
typedef struct advise_case {
  char conf[ADVISE_CONF_BYTES];  // as VMP_CONF takes it; "": all defaults
  unsigned stage;
  bool measured;  // false: its process ended before it had an answer
  char problem[160];
  uint64_t smallest_device_bytes;  // 0: none was found, or not looked for
  uint64_t failed_allocs, peak_mapped_bytes, run_calls, takes;
  double start_us, run_us;  // creating the pool; everything after that
  double mean_utilisation;
} advise_case;

typedef struct advise_result {
  advise_case cases[ADVISE_MAX_CASES];
  size_t num_cases;
  size_t best;   // among stages 1 to 3; cases[0] is the default
  size_t eager;  // of stage 4, the one with the least driver time after the start; 0: none
  uint64_t device_bytes, peak_requested_bytes;
} advise_result;

// advise_run measures everything. False when nothing could be measured (a sentence).
bool advise_run(trace *t, const advise_options *options, advise_result *out, tool_error *error);

// advise_better: whether `a` is better than `b` by the goal; `smallest` is the smallest device of all cases. For tests.
bool advise_better(advise_goal goal, uint64_t smallest, const advise_case *a, const advise_case *b);

#endif  // VMPOOL_TOOLS_ADVISE_ADVISE_H_
