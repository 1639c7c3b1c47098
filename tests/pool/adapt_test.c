// adapt_test.c: classes from the histogram: the best ones, proposed and adopted, while blocks of earlier ones are live.
#include "pool/adapt.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

// ---- the choice ----

// best_waste tries all ways to cut n points into at most `classes` runs.
static double best_waste(const vmp_size_point *points, size_t n, size_t classes) {
  double best = -1;
  for (uint32_t cuts = 0; cuts < 1u << (n - 1); cuts++) {
    if ((size_t)__builtin_popcount(cuts) + 1 > classes) continue;
    double waste = 0;
    for (size_t i = 0; i < n; i++) {
      size_t end = i;
      while (end + 1 < n && (cuts >> end & 1) == 0) end++;
      uint64_t step = points[end].most_bytes > GRANULE ? GRANULE : 512;
      double class_bytes = (double)((points[end].most_bytes + step - 1) / step * step);
      waste += class_bytes * (double)points[i].count - (double)points[i].sum_bytes;
    }
    if (best < 0 || waste < best) best = waste;
  }
  return best;
}

VTEST(Adapt, ChoosesTheBest) {
  vtest_rng rng = vtest_rng_make(vtest_seed(3));
  for (int round = 0; round < 300; round++) {
    vmp_size_point points[9];
    size_t n = 1 + (size_t)vtest_rng_below(&rng, 9);
    uint64_t bytes = 0, sum = 0;
    uint64_t scale = vtest_rng_below(&rng, 2) == 0 ? 500 : 3 * MIB;
    for (size_t i = 0; i < n; i++) {
      bytes += 1 + vtest_rng_below(&rng, scale);
      uint64_t count = 1 + vtest_rng_below(&rng, 50);
      points[i] = (vmp_size_point){.most_bytes = bytes, .count = count, .sum_bytes = bytes * count - count / 2};
      sum += points[i].sum_bytes;
    }
    for (size_t classes = 1; classes <= 5; classes++) {
      vmp_class_proposal p = VMP_CLASS_PROPOSAL_INIT;
      VASSERT_OK(vmp_adapt_choose(points, n, GRANULE, classes, 1, &p));
      VASSERT_UINT_LE(p.num_classes, classes);
      VASSERT_UINT_GE(p.class_bytes[p.num_classes - 1], bytes);
      VASSERT_UINT_EQ(p.covered_bytes, sum);
      VASSERT_UINT_EQ(p.covered_requests, p.requests);
      VASSERT_NEAR(p.waste, best_waste(points, n, classes) / (double)sum, 1e-9);
      for (size_t i = 0; i < p.num_classes; i++) {
        VASSERT_UINT_EQ(p.class_bytes[i] % (p.class_bytes[i] > GRANULE ? GRANULE : 512), 0);
        if (i > 0) VASSERT_UINT_GT(p.class_bytes[i], p.class_bytes[i - 1]);
      }
    }
  }
}

VTEST(Adapt, CoversTheShareOfTheSmallest) {
  const vmp_size_point points[] = {
      {1024, 10, 10240}, {2048, 80, 163840}, {MIB, 9, 9 * MIB}, {GIB, 1, GIB}, {32 * GIB, 100, 3200 * GIB}};
  vmp_class_proposal p = VMP_CLASS_PROPOSAL_INIT;
  VASSERT_OK(vmp_adapt_choose(points, 4, GRANULE, 8, 0.9, &p));
  VEXPECT_UINT_EQ(p.covered_requests, 90);
  VEXPECT_UINT_EQ(p.num_classes, 2);
  VEXPECT_NEAR(p.waste, 0, 1e-12);
  VASSERT_OK(vmp_adapt_choose(points, 4, GRANULE, 1, 0.91, &p));
  VEXPECT_UINT_EQ(p.covered_requests, 99);
  VEXPECT_UINT_EQ(p.class_bytes[0], MIB);
  VASSERT_OK(vmp_adapt_choose(points, 5, GRANULE, 1, 1, &p));  // no class is larger than 16 GiB
  VEXPECT_UINT_EQ(p.covered_requests, 100);
  VASSERT_OK(vmp_adapt_choose(points, 0, GRANULE, 1, 1, &p));
  VEXPECT_UINT_EQ(p.num_classes, 0);
  uint64_t nth = 0;
  for (;; nth++) {
    vmp_mem_fail_after(nth, 1);
    vmp_status status = vmp_adapt_choose(points, 4, GRANULE, 2, 1, &p);
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK) break;
    VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VEXPECT_UINT_EQ(p.num_classes, 0);  // untouched
  }
  VEXPECT_UINT_EQ(nth, 5);
}

// ---- proposing ----

VTEST_F(Adapt, ProposesFromRequests, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_class_proposal p = VMP_CLASS_PROPOSAL_INIT;
  VASSERT_OK(vmp_pool_propose_classes(f->pool, 4, 1, &p));
  VEXPECT_UINT_EQ(p.num_classes, 0);
  for (int i = 0; i < 10; i++) {
    rig_free(f, rig_alloc(f, 3 * MIB, NULL), NULL);
    rig_free(f, rig_alloc(f, 100000, NULL), NULL);
  }
  VASSERT_OK(vmp_pool_propose_classes(f->pool, 4, 1, &p));
  VEXPECT_UINT_EQ(p.requests, 20);
  VASSERT_UINT_EQ(p.num_classes, 2);
  VEXPECT_UINT_EQ(p.class_bytes[0], 100352);
  VEXPECT_UINT_EQ(p.class_bytes[1], 4 * MIB);  // above a granule in granules
  VEXPECT_NEAR(p.waste, (100352.0 + 4 * MIB) / (100000.0 + 3 * MIB) - 1, 1e-12);
  // What is proposed is what the option takes.
  char conf[128];
  (void)snprintf(conf, sizeof conf, "classes:%llu+%llu", (unsigned long long)p.class_bytes[0],
                 (unsigned long long)p.class_bytes[1]);
  rig_destroy(f);
  VASSERT_OK(rig_create(f, conf));

  VEXPECT_STATUS(vmp_pool_propose_classes(NULL, 4, 1, &p), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 4, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 0, 1, &p), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 65, 1, &p), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 4, 0, &p), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 4, 1.1, &p), VMP_ERROR_INVALID_VALUE);
  vmp_class_proposal old = {.struct_size = 8};
  VEXPECT_STATUS(vmp_pool_propose_classes(f->pool, 4, 1, &old), VMP_ERROR_INVALID_VALUE);
}

// Requests that thread caches serve are counted by their refills: not one by one, but of the right sizes.
VTEST_F(Adapt, CachedRequestsCountByRefills, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *blocks[1000];
  for (int round = 0; round < 3; round++) {
    for (size_t i = 0; i < 1000; i++) blocks[i] = rig_alloc(f, 3000, NULL);
    for (size_t i = 0; i < 1000; i++) rig_free(f, blocks[i], NULL);
  }
  vmp_class_proposal p = VMP_CLASS_PROPOSAL_INIT;
  VASSERT_OK(vmp_pool_propose_classes(f->pool, 4, 1, &p));
  VASSERT_UINT_EQ(p.num_classes, 1);
  VEXPECT_UINT_EQ(p.class_bytes[0], 3072);
  VEXPECT_UINT_GE(p.requests, 500);
  VEXPECT_UINT_LE(p.requests, 3500);
}

// ---- adopting ----

static uint64_t held_by(pool_rig *f, void *ptr, const char *layer) {
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(f->pool, ptr, &info));
  VEXPECT_STR_EQ(info.layer, layer);
  return info.bytes;
}

static void ask_for(pool_rig *f, uint64_t bytes, int times) {
  for (int i = 0; i < times; i++) rig_free(f, rig_alloc(f, bytes, NULL), NULL);
}

VTEST_F(Adapt, AdoptsAtSteps, pool_rig) {
  rig_open(f, 8 * GIB, "adaptive:2,adaptive_share:1");
  VASSERT_NO_FAILURE();
  ask_for(f, 5 * MIB, 100);
  VASSERT_OK(vmp_pool_step(f->pool));
  void *early = rig_alloc(f, 5 * MIB, NULL);
  VEXPECT_UINT_EQ(held_by(f, early, "mid"), 5 * MIB);  // 100 requests are too few to judge by
  ask_for(f, 5 * MIB, 200);
  ask_for(f, 11 * MIB, 100);
  VASSERT_OK(vmp_pool_step(f->pool));
  void *five = rig_alloc(f, 5 * MIB, NULL), *eleven = rig_alloc(f, 11 * MIB, NULL),
       *seven = rig_alloc(f, 7 * MIB, NULL);
  VEXPECT_UINT_EQ(held_by(f, five, "slab"), 6 * MIB);
  VEXPECT_UINT_EQ(held_by(f, eleven, "slab"), 12 * MIB);
  VEXPECT_UINT_EQ(held_by(f, seven, "slab"), 12 * MIB);
  rig_check(f);
  // Others are asked for now: other classes are adopted, and the blocks of the old ones drain.
  ask_for(f, 7 * MIB, 5000);
  VASSERT_OK(vmp_pool_step(f->pool));
  void *next = rig_alloc(f, 7 * MIB, NULL);
  VEXPECT_UINT_EQ(held_by(f, next, "slab"), 8 * MIB);
  VEXPECT_UINT_EQ(held_by(f, seven, "slab"), 12 * MIB);
  rig_check(f);
  void *const blocks[] = {early, five, eleven, seven, next};
  for (size_t i = 0; i < 5; i++) {
    rig_free(f, blocks[i], NULL);
    VEXPECT_STATUS(vmp_free(f->pool, blocks[i], NULL), VMP_ERROR_DOUBLE_FREE);
    rig_check(f);
  }
}

// Small classes too: thread caches learn them.
VTEST_F(Adapt, AdoptsSmallClasses, pool_rig) {
  rig_open(f, 8 * GIB, "adaptive:4,adaptive_share:1");
  VASSERT_NO_FAILURE();
  void *blocks[700];
  for (size_t i = 0; i < 700; i++) blocks[i] = rig_alloc(f, 33 * KIB + 100, NULL);  // 36 KiB in the table
  VEXPECT_UINT_EQ(held_by(f, blocks[0], "slab"), 36 * KIB);
  VASSERT_OK(vmp_pool_step(f->pool));
  for (size_t i = 0; i < 350; i++) rig_free(f, blocks[i], NULL);
  for (size_t i = 0; i < 350; i++) blocks[i] = rig_alloc(f, 33 * KIB + 100, NULL);
  VEXPECT_UINT_EQ(held_by(f, blocks[0], "slab"), 33 * KIB + 512);
  VEXPECT_UINT_EQ(held_by(f, blocks[699], "slab"), 36 * KIB);
  rig_check(f);
  for (size_t i = 0; i < 700; i++) rig_free(f, blocks[i], NULL);
  rig_check(f);
}

// A proposal that is hardly better changes nothing; where host memory runs out nothing changes either.
VTEST_F(Adapt, KeepsWhatIsGoodEnough, pool_rig) {
  rig_open(f, 8 * GIB, "adaptive:1,adaptive_share:1,classes:10MiB");
  VASSERT_NO_FAILURE();
  ask_for(f, 10 * MIB, 300);
  ask_for(f, 9 * MIB, 300);
  vmp_pool_stats_data before = rig_stats(f);
  for (uint64_t nth = 0; nth < 10; nth++) {
    vmp_mem_fail_after(nth, 1);
    VEXPECT_OK(vmp_pool_step(f->pool));
    vmp_mem_fail_after(0, 0);
    rig_check(f);
    ask_for(f, 10 * MIB, 300);
  }
  VEXPECT_UINT_EQ(rig_stats(f).slab_live, before.slab_live);
  void *ptr = rig_alloc(f, 9 * MIB, NULL);
  VEXPECT_UINT_EQ(held_by(f, ptr, "slab"), 10 * MIB);
  rig_free(f, ptr, NULL);
}

typedef struct asker {
  pool_rig *f;
  uint64_t seed, failures;
  bool steps;
} asker;

// Sizes wander, so that classes are exchanged again and again under the others' requests.
static void *ask(void *argument) {
  asker *a = argument;
  vtest_rng rng = vtest_rng_make(a->seed);
  void *blocks[32] = {NULL};
  for (uint64_t i = 0; i < 6000; i++) {
    size_t at = (size_t)vtest_rng_below(&rng, 32);
    uint64_t base = i / 1000 % 2 == 0 ? 20 * KIB : 900 * KIB;
    a->failures += vmp_free(a->f->pool, blocks[at], a->f->streams[0]) != VMP_OK;
    a->failures +=
        vmp_alloc(a->f->pool, &blocks[at], base + vtest_rng_below(&rng, 9) * base / 8 + 1, a->f->streams[0]) != VMP_OK;
    if (a->steps && i % 100 == 0) a->failures += vmp_pool_step(a->f->pool) != VMP_OK;
  }
  for (size_t i = 0; i < 32; i++) a->failures += vmp_free(a->f->pool, blocks[i], a->f->streams[0]) != VMP_OK;
  return NULL;
}

VTEST_F(Adapt, ManyThreads, pool_rig) {
  rig_open_driver(f, 8 * GIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VASSERT_OK(rig_create(f, "adaptive:6,strategy:predictive"));
  asker askers[3];
  pthread_t threads[3];
  for (uint64_t i = 0; i < 3; i++) {
    askers[i] = (asker){.f = f, .seed = vtest_seed(5) + i, .steps = i == 0};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
  }
  for (size_t i = 0; i < 3; i++) {
    VEXPECT_INT_EQ(pthread_join(threads[i], NULL), 0);
    VEXPECT_UINT_EQ(askers[i].failures, 0);
  }
  rig_check(f);
  VEXPECT_UINT_GT(vmp_slab_adoptions(f->pool->slab), 0);
}
