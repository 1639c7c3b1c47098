// fill.c: how much of a device can be used: churn whose live bytes may reach a share of the device that rises slowly,
// until the first allocation fails.
//
//     requests   0     4,000    8,000   ...
//     share     50 %   50.5 %   51 %    ...     first failure: the bytes that are live then, to the device's
//
// Before each request random blocks are freed until it fits the share; sizes are those of churn.
#include <stdlib.h>

#include "tools/bench/mixture.h"
#include "tools/bench/rig.h"
#include "tools/bench/timing.h"

#define LOW_BYTES 512u
#define HIGH_BYTES (UINT64_C(64) << 20)
#define RAISE_EVERY 4000u
#define STEPS 200u  // of the share, in the whole device
#define FIRST_STEP 100u

typedef struct fill {
  bench_rig rig;
  mixture m;
  uint64_t device_bytes, live_bytes, requests;
  double ns;     // of a request
  double share;  // at the failure
  bool failed;
} fill;

static bool grow_table(mixture *m) {
  if (m->num_live < m->max_live) return true;
  const uint64_t count = 2 * m->max_live;
  void **blocks = reallocarray(m->blocks, count, sizeof(*blocks));
  if (blocks == NULL) return false;
  m->blocks = blocks;
  uint32_t *bytes = reallocarray(m->bytes, count, sizeof(*bytes));
  if (bytes == NULL) return false;
  m->bytes = bytes;
  m->max_live = count;
  return true;
}

static bool free_until(fill *f, uint64_t most_bytes) {
  mixture *m = &f->m;
  const bench_target *t = &m->target;
  while (f->live_bytes > most_bytes && m->num_live > 0) {
    const uint64_t victim = (rng_next(&m->victims) >> 32) * m->num_live >> 32;
    void *block = m->blocks[victim];
    const uint32_t bytes = m->bytes[victim];
    m->num_live--;
    m->blocks[victim] = m->blocks[m->num_live];
    m->bytes[victim] = m->bytes[m->num_live];
    f->live_bytes -= bytes;
    if (!TARGET_RUN(target_free, t->kind, t, block, bytes)) return false;
  }
  return true;
}

// request performs one. A refusal for want of memory ends the fill; any other failure is one.
static bool request(fill *f, uint64_t share_bytes, tool_error *error) {
  mixture *m = &f->m;
  const bench_target *t = &m->target;
  const uint32_t bytes = m->sizes[m->next_size++ % MIXTURE_SIZES];
  if (!free_until(f, share_bytes > bytes ? share_bytes - bytes : 0)) return rig_refused(error);
  if (!grow_table(m)) return tool_fail(error, "host memory ran out");
  if (TARGET_RUN(target_alloc, t->kind, t, &m->blocks[m->num_live], bytes)) {
    m->bytes[m->num_live++] = bytes;
    f->live_bytes += bytes;
    return true;
  }
  const vmp_status status = vmp_last_error()->status;
  if (status != VMP_ERROR_OUT_OF_MEMORY && status != VMP_ERROR_LIMIT && status != VMP_ERROR_FRAGMENTED)
    return rig_refused(error);
  f->failed = true;
  f->share = (double)f->live_bytes / (double)f->device_bytes;
  return true;
}

static uint64_t share_bytes(const fill *f) {
  const uint64_t step = FIRST_STEP + f->requests / RAISE_EVERY;
  return (uint64_t)((double)f->device_bytes * (double)step / STEPS);
}

static bool run(fill *f, const bench_options *options, tool_error *error) {
  const uint64_t first_bytes = share_bytes(f);
  while (!f->failed && f->live_bytes + HIGH_BYTES < first_bytes) {
    if (!request(f, first_bytes, error)) return false;
  }
  if (!rig_ready(&f->rig, error)) return false;
  const uint64_t start_ns = now_ns();
  while (!f->failed && (options->pairs == 0 || f->requests < options->pairs)) {
    if (!request(f, share_bytes(f), error)) return false;
    f->requests++;
    if (f->requests % RAISE_EVERY == 0) rig_drain(&f->rig);
  }
  if (f->requests > 0) f->ns = (double)(now_ns() - start_ns) / (double)f->requests;
  return true;
}

static bool run_seed(const bench_options *options, uint64_t seed, fill *f, bench_result *result, tool_error *error) {
  *f = (fill){.device_bytes = options->device_bytes};
  if (!rig_open(&f->rig, options, options->device_bytes, error)) return false;
  f->m.target = f->rig.target;
  bool good = mixture_init(&f->m, 1024, LOW_BYTES, HIGH_BYTES, seed) || tool_fail(error, "host memory ran out");
  good = good && run(f, options, error) && rig_finish(&f->rig, result, error);
  mixture_end(&f->m);
  return rig_close(&f->rig, error) && good;
}

bool bench_fill(const bench_options *options, bench_result *result, tool_error *error) {
  fill *f = malloc(sizeof(*f));
  double *shares = calloc(options->seeds, sizeof(*shares)), *ns = calloc(options->seeds, sizeof(*ns));
  bool good = (f != NULL && shares != NULL && ns != NULL) || tool_fail(error, "host memory ran out");
  uint64_t num_failed = 0;
  for (uint32_t i = 0; good && i < options->seeds; i++) {
    if (options->progress != NULL)
      options->progress(options->progress_context, "filling", (double)i / (double)options->seeds);
    good = run_seed(options, options->seed + i, f, result, error);
    if (good && f->failed) shares[num_failed++] = f->share;
    if (good) ns[i] = f->ns;
  }
  if (good && num_failed == options->seeds) {
    result->has_share = true;
    result->share_at_first_failure = timing_median(shares, num_failed);
    result->share_worst = shares[0];  // sorted by now
  }
  if (good) {
    result->ns_median = timing_median(ns, options->seeds);
    result->ns_min = ns[0];
    result->pairs = f->requests;
  }
  result->num_seeds = options->seeds;
  result->device_bytes = options->device_bytes;
  free(ns);
  free(shares);
  free(f);
  return good;
}
