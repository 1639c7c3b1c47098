// adapt.c: see adapt.h and vmpool_adapt.h.
#include "pool/adapt.h"

#include <string.h>

#include "pool/sizeclass.h"
#include "pool/thread_cache.h"
#include "vmm/memory.h"

#define REQUESTS_BETWEEN 256u  // looks at the histogram
#define WORTH_IT 0.9           // new waste to old
#define AGED_FROM (1u << 16)   // requests from which the histogram is halved after a look

// ---- the best classes ----

// chooser: tables of one run. cost[j]: least waste of the first j points in as many classes as rounds were made.
typedef struct chooser {
  const vmp_size_point *points;
  size_t num_points;
  uint64_t granule_bytes;
  double *counts, *sums;   // of the first j points
  double *before, *cost;   // of the round before, and of this one
  uint16_t *starts, *row;  // by round and j: where the last class begins; the row of this round
} chooser;

_Static_assert(VMP_HISTOGRAM_MAX_POINTS < UINT16_MAX, "a start fits");

static uint64_t class_of(uint64_t bytes, uint64_t granule_bytes) {
  uint64_t step = bytes > granule_bytes ? granule_bytes : VMP_CLASS_STEP_BYTES;
  return (bytes + step - 1) & ~(step - 1);
}

// waste_of: what one class costs that covers the points from i to j - 1.
static double waste_of(const chooser *c, size_t i, size_t j) {
  double bytes = (double)class_of(c->points[j - 1].most_bytes, c->granule_bytes);
  return bytes * (c->counts[j] - c->counts[i]) - (c->sums[j] - c->sums[i]);
}

// divide finds cost and start for j in [low, high], whose starts lie in [from, to]. The recursion is log P deep.
static void divide(chooser *c, size_t low, size_t high, size_t from, size_t to) {
  if (low > high) return;
  size_t j = (low + high) / 2, best = from;
  double least = -1;
  for (size_t i = from; i <= to && i < j; i++) {
    if (c->before[i] < 0) continue;  // can't be covered
    double cost = c->before[i] + waste_of(c, i, j);
    if (least < 0 || cost < least) {
      least = cost;
      best = i;
    }
  }
  c->cost[j] = least;
  c->row[j] = (uint16_t)best;
  if (j > low) divide(c, low, j - 1, from, best);
  divide(c, j + 1, high, best, to);
}

static void chooser_free(chooser *c) {
  vmp_mem_free(c->counts);
  vmp_mem_free(c->sums);
  vmp_mem_free(c->before);
  vmp_mem_free(c->cost);
  vmp_mem_free(c->starts);
}

static bool chooser_make(chooser *c, size_t rounds) {
  size_t n = c->num_points + 1;
  c->counts = vmp_mem_calloc(n, sizeof *c->counts);
  c->sums = vmp_mem_calloc(n, sizeof *c->sums);
  c->before = vmp_mem_calloc(n, sizeof *c->before);
  c->cost = vmp_mem_calloc(n, sizeof *c->cost);
  c->starts = vmp_mem_calloc(n * rounds, sizeof *c->starts);
  if (c->counts == NULL || c->sums == NULL || c->before == NULL || c->cost == NULL || c->starts == NULL) return false;
  for (size_t j = 0; j + 1 < n; j++) {
    c->counts[j + 1] = c->counts[j] + (double)c->points[j].count;
    c->sums[j + 1] = c->sums[j] + (double)c->points[j].sum_bytes;
    c->before[j + 1] = -1;
  }
  return true;
}

// choose_rounds makes the rounds and reads the classes off, backwards.
static void choose_rounds(chooser *c, size_t rounds, vmp_class_proposal *out) {
  size_t n = c->num_points;
  for (size_t round = 0; round < rounds; round++) {
    c->row = c->starts + round * (n + 1);
    c->cost[0] = -1;
    divide(c, 1, n, 0, n - 1);
    double *swap = c->before;
    c->before = c->cost;
    c->cost = swap;
  }
  uint64_t classes[VMP_MAX_CLASSES];
  size_t count = 0, j = n;
  for (size_t round = rounds; round-- > 0 && j > 0;) {
    classes[count++] = class_of(c->points[j - 1].most_bytes, c->granule_bytes);
    j = c->starts[round * (n + 1) + j];
  }
  for (size_t i = count; i-- > 0;) {  // rising, each once: two may have been rounded to the same
    if (out->num_classes == 0 || classes[i] > out->class_bytes[out->num_classes - 1]) {
      out->class_bytes[out->num_classes++] = classes[i];
    }
  }
}

// covered_points: how many points hold the smallest `share` of the requests.
static size_t covered_points(const vmp_size_point *points, size_t num_points, double share, vmp_class_proposal *out) {
  for (size_t i = 0; i < num_points; i++) out->requests += points[i].count;
  double wanted = share * (double)out->requests;
  size_t n = 0;
  while (n < num_points && (double)out->covered_requests < wanted && points[n].most_bytes <= VMP_CLASS_MAX_BYTES) {
    out->covered_requests += points[n].count;
    out->covered_bytes += points[n].sum_bytes;
    n++;
  }
  return n;
}

vmp_status vmp_adapt_choose(const vmp_size_point *points, size_t num_points, uint64_t granule_bytes, size_t num_classes,
                            double share, vmp_class_proposal *out) {
  vmp_class_proposal proposal = {.struct_size = out->struct_size};
  chooser c = {.points = points, .granule_bytes = granule_bytes};
  c.num_points = covered_points(points, num_points, share, &proposal);
  size_t rounds = num_classes < c.num_points ? num_classes : c.num_points;
  bool made = c.num_points == 0 || chooser_make(&c, rounds);
  if (made && c.num_points > 0) {
    choose_rounds(&c, rounds, &proposal);
    proposal.waste = vmp_adapt_waste(points, c.num_points, proposal.class_bytes, proposal.num_classes);
  }
  chooser_free(&c);
  if (!made) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to work out size classes");
  *out = proposal;
  return VMP_OK;
}

double vmp_adapt_waste(const vmp_size_point *points, size_t num_points, const uint64_t *class_bytes,
                       size_t num_classes) {
  double asked = 0, held = 0;
  size_t class = 0;
  for (size_t i = 0; i < num_points; i++) {
    while (class < num_classes && class_bytes[class] < points[i].most_bytes) class ++;
    if (class == num_classes) break;
    asked += (double)points[i].sum_bytes;
    held += (double)class_bytes[class] * (double)points[i].count;
  }
  return asked > 0 ? held / asked - 1 : 0;
}

// ---- proposing ----

// copy_points copies the histogram's points, to be worked on without the lock. NULL: host memory.
static vmp_size_point *copy_points(vmp_pool *pool, size_t *out_count) {
  vmp_size_point *points = vmp_mem_calloc(VMP_HISTOGRAM_MAX_POINTS, sizeof *points);
  if (points == NULL) return NULL;
  vmp_guard_lock(&pool->guard);
  *out_count = vmp_histogram_points(&pool->histogram, points);
  vmp_guard_unlock(&pool->guard);
  return points;
}

static vmp_status propose(vmp_pool *pool, size_t num_classes, double share, vmp_class_proposal *out) {
  size_t count = 0;
  vmp_size_point *points = copy_points(pool, &count);
  if (points == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to work out size classes");
  vmp_status status = vmp_adapt_choose(points, count, pool->device.granule_bytes, num_classes, share, out);
  vmp_mem_free(points);
  return status;
}

vmp_status vmp_pool_propose_classes(vmp_pool *pool, size_t num_classes, double share,
                                    vmp_class_proposal *out_proposal) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (out_proposal == NULL || out_proposal->struct_size < sizeof *out_proposal) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "vmp_class_proposal is NULL or not initialised; use VMP_CLASS_PROPOSAL_INIT");
  }
  if (num_classes == 0 || num_classes > VMP_MAX_CLASSES || !(share > 0 && share <= 1)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "%zu classes for a share of %g; give 1 to %d, and a share above 0, up to 1", num_classes, share,
                    VMP_MAX_CLASSES);
  }
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  return propose(pool, num_classes, share, out_proposal);
}

// ---- adopting ----

// is_worth_it: whether the proposal beats the classes that are in use, over the requests that both cover, or covers
// much that they don't.
static bool is_worth_it(const vmp_pool *pool, const vmp_size_point *points, size_t count,
                        const vmp_class_proposal *proposal) {
  if (proposal->num_classes == 0) return false;
  if (pool->num_adopted == 0) return true;
  uint64_t old = pool->adopted_bytes[pool->num_adopted - 1], new = proposal->class_bytes[proposal->num_classes - 1];
  if (new / 9 * 8 > old) return true;
  size_t common = 0;
  while (common < count && points[common].most_bytes <= old && points[common].most_bytes <= new) common++;
  return vmp_adapt_waste(points, common, proposal->class_bytes, proposal->num_classes) <
         WORTH_IT * vmp_adapt_waste(points, common, pool->adopted_bytes, pool->num_adopted);
}

// adopt exchanges the classes. The lock is held. Its failures are not the caller's.
static void adopt(vmp_pool *pool, const vmp_class_proposal *proposal) {
  vmp_error before = *vmp_last_error();
  if (vmp_slab_adopt(pool->slab, proposal->class_bytes, proposal->num_classes, (proposal->class_bytes[0] + 1) / 2) !=
      VMP_OK) {
    (void)vmp_fail_call(before.status, before.driver_code, before.driver_call, "%s", before.message);
    return;
  }
  vmp_caches_learn_classes(pool);
  memcpy(pool->adopted_bytes, proposal->class_bytes, sizeof pool->adopted_bytes);
  pool->num_adopted = proposal->num_classes;
}

// look_again: whether the histogram has grown enough since the last look. The lock is held.
static bool look_again(vmp_pool *pool) {
  if (pool->histogram.total < pool->histogram_seen + REQUESTS_BETWEEN) return false;
  if (pool->histogram.total >= AGED_FROM) vmp_histogram_age(&pool->histogram);
  pool->histogram_seen = pool->histogram.total;
  return true;
}

void vmp_adapt_step(vmp_pool *pool) {
  if (pool->config.adaptive == 0) return;
  vmp_guard_lock(&pool->guard);
  bool look = look_again(pool);
  vmp_guard_unlock(&pool->guard);
  size_t count = 0;
  vmp_size_point *points = look ? copy_points(pool, &count) : NULL;
  if (points == NULL) return;
  vmp_error before = *vmp_last_error();
  vmp_class_proposal proposal = VMP_CLASS_PROPOSAL_INIT;
  vmp_status status = vmp_adapt_choose(points, count, pool->device.granule_bytes, (size_t)pool->config.adaptive,
                                       pool->config.adaptive_share, &proposal);
  if (status != VMP_OK)
    (void)vmp_fail_call(before.status, before.driver_code, before.driver_call, "%s", before.message);
  vmp_guard_lock(&pool->guard);
  if (status == VMP_OK && is_worth_it(pool, points, count, &proposal)) adopt(pool, &proposal);
  vmp_guard_unlock(&pool->guard);
  vmp_mem_free(points);
}

bool vmp_adapt_replan(vmp_pool *pool, vmp_plan *plan) {
  if (pool->slab == NULL || plan->domain != NULL || plan->pages != NULL) return false;
  uint64_t now = vmp_slab_adoptions(pool->slab);
  if (plan->adoptions == now) return false;
  vmp_plan next;
  if (!vmp_route_plan(pool, plan->requested_bytes, plan->alignment, &next)) return false;
  plan->layer = next.layer;
  plan->request.bytes = next.request.bytes;
  plan->request.alignment = next.request.alignment;
  plan->adoptions = now;
  return true;
}
