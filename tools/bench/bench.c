#include "tools/bench/bench.h"

#include <string.h>

#define GIB (UINT64_C(1) << 30)

const benchmark benchmarks[] = {
    {"pair", "one block of 64 KiB, allocated and freed again and again",
     BENCH_TAKES_LIVE | BENCH_TAKES_LATENCY | BENCH_TAKES_PEERS, 5000000, 0, 256 * GIB, bench_pair},
    {"batch", "256 allocations of 64 KiB, then 256 frees", BENCH_TAKES_LATENCY | BENCH_TAKES_PEERS, 5000000, 0,
     256 * GIB, bench_batch},
    {"churn", "live blocks from 512 B to 64 MiB, a random one replaced again and again",
     BENCH_TAKES_LIVE | BENCH_TAKES_SETUP_PAIRS | BENCH_TAKES_LATENCY | BENCH_TAKES_PEERS, 1000000, 10000, 256 * GIB,
     bench_churn},
    {"threads", "the pair by several threads at once, against one alone", BENCH_TAKES_THREADS, 10000000, 0, 256 * GIB,
     bench_threads},
    {"scale", "blocks from 512 B to 64 KiB: a million live ones against a thousand",
     BENCH_TAKES_LIVE | BENCH_TAKES_PEERS, 2000000, 1000000, 256 * GIB, bench_scale},
    {"fill", "how much of a device is in use when the first allocation fails", BENCH_TAKES_SEEDS, 0, 0, 16 * GIB,
     bench_fill},
    {"step", "a training step of GPT-2 XL on a device of 1.02 times its peak, again and again", 0, 50000, 0, 0,
     bench_step},
    {"log", "the pair on a pool that writes an event log, against one that doesn't", 0, 5000000, 0, 256 * GIB,
     bench_log},
};
const size_t num_benchmarks = sizeof(benchmarks) / sizeof(benchmarks[0]);

#define CHURN_SETUP_PAIRS 500000u

const benchmark *bench_find(const char *name) {
  for (size_t i = 0; i < num_benchmarks; i++) {
    if (strcmp(benchmarks[i].name, name) == 0) return &benchmarks[i];
  }
  return NULL;
}

static bool check_taken(const benchmark *b, const bench_options *o, tool_error *error) {
  const struct {
    unsigned taken;
    bool given;
    const char *option, *why;
  } options[] = {
      {BENCH_TAKES_LIVE, o->live > 0, "--live", "keeps no number of blocks that could be chosen"},
      {BENCH_TAKES_SETUP_PAIRS, o->setup_pairs != BENCH_NO_SETUP_PAIRS, "--setup-pairs", "has a set-up of its own"},
      {BENCH_TAKES_THREADS, o->threads > 0, "--threads", "runs on one thread"},
      {BENCH_TAKES_SEEDS, o->seeds > 0, "--seeds", "takes one --seed"},
      {BENCH_TAKES_LATENCY, o->latency, "--latency", "doesn't measure single allocations"},
      {BENCH_TAKES_PEERS, o->peers, "--peers", "means nothing for an allocator of this machine"},
  };
  for (size_t i = 0; i < sizeof(options) / sizeof(options[0]); i++) {
    if (options[i].given && (b->takes & options[i].taken) == 0)
      return tool_fail(error, "%s: %s %s", options[i].option, b->name, options[i].why);
  }
  return true;
}

bool bench_check(const benchmark *b, const bench_options *o, tool_error *error) {
  if (!check_taken(b, o, error)) return false;
  if (o->driver == VMP_DRIVER_CUDA && o->device_bytes > 0)
    return tool_fail(error, "--device-bytes is for the host driver; a GPU has what it has");
  if (o->driver == VMP_DRIVER_CUDA && !o->work.none)
    return tool_fail(error, "--work is for the host driver; a GPU runs when it runs");
  if (o->driver == VMP_DRIVER_CUDA && (b->takes & BENCH_TAKES_SEEDS) != 0)
    return tool_fail(error, "%s needs the host driver, whose device has a size that can be chosen", b->name);
  return true;
}

bool bench_run(const benchmark *b, const bench_options *options, bench_result *out_result, tool_error *error) {
  bench_options o = *options;
  if (!bench_check(b, options, error)) return false;
  if (o.pairs == 0) o.pairs = b->default_pairs;
  if (o.live == 0) o.live = b->default_live;
  if (o.device_bytes == 0) o.device_bytes = b->default_device_bytes;
  if (o.setup_pairs == BENCH_NO_SETUP_PAIRS) o.setup_pairs = CHURN_SETUP_PAIRS;
  if (o.threads == 0) o.threads = 2;
  if (o.seeds == 0) o.seeds = 1;
  bench_result result = {
      .name = b->name, .seed = o.seed, .pairs = o.pairs, .device_bytes = o.device_bytes, .num_seeds = 1};
  if (!b->run(&o, &result, error)) return false;
  *out_result = result;
  return true;
}
