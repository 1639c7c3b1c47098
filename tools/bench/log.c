// log.c: what an event of the log costs: the pair of 64 KiB on a pool that writes a log, against one that doesn't, in
// the same rounds. Threads cache nothing in either, since a pool that writes a log sees every block.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/bench/rounds.h"
#include "tools/bench/timing.h"

#define BYTES (UINT64_C(64) << 10)
#define EVENTS_OF_A_PAIR 2

TARGET_INLINE bool pairs_loop(target_kind kind, const bench_target *t, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    void *ptr;
    if (!target_alloc(kind, t, &ptr, BYTES) || !target_free(kind, t, ptr, BYTES)) return false;
  }
  return true;
}

static bool run(void *self, uint64_t pairs) {
  const bench_target *t = self;
  return TARGET_RUN(pairs_loop, t->kind, t, pairs);
}

// without_caches adds what turns the thread caches off to the options' conf. NULL: host memory ran out.
static char *without_caches(const bench_options *options) {
  char *conf = NULL;
  const char *given = options->conf == NULL ? "" : options->conf;
  if (asprintf(&conf, "%s%sthread_cache:0", given, given[0] == '\0' ? "" : ",") < 0) return NULL;
  return conf;
}

static bool start_log(bench_rig *rig, tool_error *error) {
  const char *folder = getenv("TMPDIR");
  char path[4096];
  snprintf(path, sizeof(path), "%s/vmpool-bench-%ld.vmplog", folder == NULL || folder[0] == '\0' ? "/tmp" : folder,
           (long)getpid());
  const vmp_status status = vmp_pool_log_start(rig->pool, path, NULL);
  if (status < 0) return tool_fail_status(error, status, "the log could not be made");
  (void)unlink(path);  // it needs no name
  return true;
}

// cost_of_event: the median over rounds of what a pair with the log takes longer, per event.
static double cost_of_event(const bench_subject *with, const bench_subject *without) {
  double samples[BENCH_ROUNDS];
  size_t count = 0;
  for (size_t i = 0; i < BENCH_ROUNDS; i++) {
    if (with->ns[i] > 0 && without->ns[i] > 0) samples[count++] = (with->ns[i] - without->ns[i]) / EVENTS_OF_A_PAIR;
  }
  return timing_median(samples, count);
}

static bool measure(bench_rig *with, bench_rig *without, const bench_options *options, bench_result *result,
                    tool_error *error) {
  bench_subject subjects[2] = {
      {.self = &with->target, .run = run, .rig = with, .pairs = options->pairs},
      {.self = &without->target, .run = run, .rig = without, .pairs = options->pairs},
  };
  if (!run(&with->target, 1000) || !run(&without->target, 1000)) return rig_refused(error);
  if (!rig_ready(with, error) || rounds_run(subjects, 2, options) != NULL) return rig_refused(error);
  result->ns_median = rounds_median(&subjects[0]);
  result->ns_min = rounds_least(&subjects[0]);
  result->has_log = true;
  result->ns_median_without_log = rounds_median(&subjects[1]);
  result->ns_per_event = cost_of_event(&subjects[0], &subjects[1]);
  return rig_finish(with, result, error);
}

bool bench_log(const bench_options *options, bench_result *result, tool_error *error) {
  bench_rig with = {0}, without = {0};
  bench_options same = *options;
  char *conf = without_caches(options);
  if (conf == NULL) return tool_fail(error, "host memory ran out");
  same.conf = conf;
  bool good = rig_open(&with, &same, options->device_bytes, error) &&
              rig_open(&without, &same, options->device_bytes, error) && start_log(&with, error) &&
              measure(&with, &without, options, result, error);
  good = rig_close(&without, error) && good;
  good = rig_close(&with, error) && good;
  free(conf);
  return good;
}
