// contest.h: one workload on the pool, and on peers in the same rounds.
//
// Owns: the order of things (open, set up, measure, measure single allocations, read figures, tear down). Does not own:
// what a workload does. A workload's functions run for every target; its state belongs to one target.
#ifndef VMPOOL_TOOLS_BENCH_CONTEST_H_
#define VMPOOL_TOOLS_BENCH_CONTEST_H_

#include "tools/bench/latency.h"
#include "tools/bench/rig.h"

typedef struct bench_workload {
  size_t state_bytes;  // of the zeroed state; it begins with a bench_target, which is filled in before set_up
  // Each returns false when the target refuses a request or host memory runs out. tear_down frees all blocks and
  // what set_up made, also after a failure of any other.
  bool (*set_up)(void *state, const bench_options *options);
  bool (*run)(void *state, uint64_t pairs);
  bool (*run_latency)(void *state, latency *l, uint64_t pairs);  // pools only; NULL: not known
  void (*tear_down)(void *state);
} bench_workload;

// contest_run opens a pool on a device of `device_bytes` and does all of it. After the measurement `finish` (may be
// NULL) adds the workload's own figures, with the pool's state.
bool contest_run(const bench_workload *w, const bench_options *options, uint64_t device_bytes, bench_result *result,
                 void (*finish)(void *state, bench_result *result), tool_error *error);

#endif  // VMPOOL_TOOLS_BENCH_CONTEST_H_
