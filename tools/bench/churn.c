// churn.c: 10,000 live blocks from 512 B to 64 MiB (log-uniform), of which a random one is replaced again and again.
// The set-up replaces half a million of them, so that what is measured is an old pool and not a fresh one.
#include "tools/bench/contest.h"
#include "tools/bench/mixture.h"

#define LOW_BYTES 512u
#define HIGH_BYTES (UINT64_C(64) << 20)

static bool set_up(void *self, const bench_options *options) {
  mixture *m = self;
  return mixture_init(m, options->live, LOW_BYTES, HIGH_BYTES, options->seed) && mixture_grow(m, options->live) &&
         mixture_run(m, options->setup_pairs);
}

static bool run(void *self, uint64_t pairs) { return mixture_run(self, pairs); }
static bool run_latency(void *self, latency *l, uint64_t pairs) { return mixture_run_latency(self, l, pairs); }
static void tear_down(void *self) { mixture_end(self); }

bool bench_churn(const bench_options *options, bench_result *result, tool_error *error) {
  static const bench_workload workload = {sizeof(mixture), set_up, run, run_latency, tear_down};
  return contest_run(&workload, options, options->device_bytes, result, NULL, error);
}
