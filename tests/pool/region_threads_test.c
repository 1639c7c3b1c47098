// region_threads_test.c: regions in several threads: prefetch, operations on one region that follow one another, many
// regions at once. TSan runs it.
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#include "tests/pool/region_rig.h"
#include "tests/support/vtest_rng.h"

// ---- prefetch ----

typedef struct watcher {
  pthread_t caller;
  atomic_uint on_caller, elsewhere;
  sem_t entered, leave;
  atomic_bool holds;
} watcher;

static void see_create(void *context) {
  watcher *w = context;
  if (pthread_equal(pthread_self(), w->caller)) {
    atomic_fetch_add(&w->on_caller, 1);
  } else {
    atomic_fetch_add(&w->elsewhere, 1);
  }
  if (!atomic_load(&w->holds)) return;
  (void)sem_post(&w->entered);
  (void)sem_wait(&w->leave);
}

static void watch(pool_rig *rig, watcher *w, bool holds) {
  w->caller = pthread_self();
  atomic_init(&w->on_caller, 0);
  atomic_init(&w->elsewhere, 0);
  atomic_init(&w->holds, holds);
  (void)sem_init(&w->entered, 0, 0);
  (void)sem_init(&w->leave, 0, 0);
  vmp_host_delay(rig->driver, VMP_CALL_mem_create, see_create, w);
}

VTEST_F(RegionThreads, PrefetchMapsOnAnotherThread, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, GIB, 0);
  watcher w;
  watch(f, &w, false);
  VEXPECT_OK(region_commit(region, 0, 2, f->streams[0]));
  VEXPECT_UINT_EQ(atomic_load(&w.on_caller), 2);
  VEXPECT_OK(vmp_region_prefetch(region, 0, 40));
  VEXPECT_OK(vmp_region_prefetch_wait(region));
  VEXPECT_UINT_EQ(atomic_load(&w.elsewhere), 38);
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, 38 * GRANULE);
  VEXPECT_UINT_EQ(region_info(region).committed_bytes, 2 * GRANULE);
  uint64_t calls = rig_all_calls(f->driver);
  VEXPECT_OK(region_commit(region, 0, 40, f->streams[0]));
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  VEXPECT_UINT_EQ(atomic_load(&w.on_caller), 2);
  rig_touch(f, rig_at(vmp_region_base(region), 2 * GRANULE), 38 * GRANULE, f->streams[0]);
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
  vmp_host_delay(f->driver, VMP_CALL_mem_create, NULL, NULL);
}

VTEST_F(RegionThreads, PrefetchKeepsTheLimitsAndTakesNothing, pool_rig) {
  rig_open(f, 8 * GIB, "soft_limit:32MiB");
  VASSERT_NO_FAILURE();
  vmp_region *other = region_make(f, GIB, 0), *region = region_make(f, GIB, 0);
  VEXPECT_OK(region_commit(other, 0, 4, f->streams[0]));
  VEXPECT_OK(region_decommit(other, 0, 4, f->streams[0]));
  VEXPECT_OK(vmp_region_set_limit(region, 6 * GRANULE));
  VEXPECT_OK(vmp_region_prefetch(region, 0, 10));
  VEXPECT_OK(vmp_region_prefetch_wait(region));
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, 6 * GRANULE);
  VEXPECT_UINT_EQ(region_info(other).parked_bytes, 4 * GRANULE);
  VEXPECT_OK(vmp_region_set_limit(region, UINT64_MAX));
  VEXPECT_OK(vmp_region_prefetch(region, 0, 500));
  VEXPECT_OK(vmp_region_prefetch_wait(region));
  VEXPECT_UINT_LE(rig_stats(f).mapped, 32 * MIB);
  VEXPECT_UINT_EQ(region_info(other).parked_bytes, 4 * GRANULE);
  // A destroyed region's pages are nobody's.
  VEXPECT_OK(vmp_region_destroy(other, f->streams[0]));
  rig_settle(f);
  uint64_t parked = region_info(region).parked_bytes;
  VEXPECT_OK(vmp_region_prefetch(region, 20, 4));
  VEXPECT_OK(vmp_region_prefetch_wait(region));
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, parked + 4 * GRANULE);
  VEXPECT_STATUS(vmp_region_prefetch(region, 0, 513), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_prefetch(NULL, 0, 1), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_region_prefetch_wait(NULL), VMP_ERROR_INVALID_VALUE);
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(region, f->streams[0]));
}

// The worker sits in a driver call: others go on, the queue fills up, and a region that ends waits for its own job
// only.
VTEST_F(RegionThreads, PrefetchHoldsUpNobody, pool_rig) {
  rig_open(f, 8 * GIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_region *slow = region_make(f, GIB, 0), *queued = region_make(f, GIB, 0);
  void *ready = rig_alloc(f, 64 * KIB, f->streams[0]);
  rig_free(f, ready, f->streams[0]);
  watcher w;
  watch(f, &w, true);
  VEXPECT_OK(vmp_region_prefetch(slow, 0, 1));
  (void)sem_wait(&w.entered);
  for (int i = 0; i < 64; i++) VEXPECT_OK(vmp_region_prefetch(queued, 0, 1));
  VEXPECT_STATUS(vmp_region_prefetch(queued, 0, 1), VMP_ERROR_BUSY);
  ready = rig_alloc(f, 64 * KIB, f->streams[0]);
  rig_free(f, ready, f->streams[0]);
  VEXPECT_OK(vmp_region_destroy(queued, f->streams[0]));  // its jobs are only queued
  atomic_store(&w.holds, false);
  (void)sem_post(&w.leave);
  VEXPECT_OK(vmp_region_destroy(slow, f->streams[0]));
  rig_check(f);
  vmp_host_delay(f->driver, VMP_CALL_mem_create, NULL, NULL);
}

// A pool that ends, or a driver that fails, ends the prefetch.
VTEST_F(RegionThreads, PrefetchEndsWithThePoolAndAtFailures, pool_rig) {
  rig_open(f, 8 * GIB, "destroy_releases:1");
  VASSERT_NO_FAILURE();
  vmp_region *region = region_make(f, 8 * GIB, 0);
  vmp_host_fault fault = {VMP_CALL_mem_map, 3, VMP_CU_UNKNOWN, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  VEXPECT_OK(vmp_region_prefetch(region, 0, 16));
  VEXPECT_OK(vmp_region_prefetch_wait(region));
  VEXPECT_UINT_EQ(region_info(region).parked_bytes, 0);
  rig_check(f);
  vmp_host_lift(f->driver);
  for (uint64_t i = 0; i < 40; i++) VEXPECT_OK(vmp_region_prefetch(region, i * 100, 100));
}

// ---- operations ----

// Two threads commit and decommit the same pages: each call is whole, and the memory is there in between.
typedef struct contender {
  pool_rig *rig;
  vmp_region *region, *other;
  vmp_stream stream;
  uint64_t seed, failures;
} contender;

static void *contend(void *argument) {
  contender *c = argument;
  vtest_rng rng = vtest_rng_make(c->seed);
  for (int i = 0; i < 300; i++) {
    uint64_t first = vtest_rng_below(&rng, 8), count = 1 + vtest_rng_below(&rng, 4);
    switch (vtest_rng_below(&rng, 4)) {
      case 0: c->failures += region_decommit(c->region, first, count, c->stream) != VMP_OK; break;
      case 1: {
        vmp_status status = vmp_region_prefetch(c->region, first, count);
        c->failures += status != VMP_OK && status != VMP_ERROR_BUSY;  // the queue may be full
        break;
      }
      case 2: {
        vmp_status status = vmp_region_share(c->region, first, c->other, 16 + vtest_rng_below(&rng, 8), 1, c->stream);
        c->failures += status != VMP_OK && status != VMP_PENDING && status != VMP_ERROR_INVALID_VALUE;
        break;
      }
      default: {
        vmp_status status = region_commit(c->region, first, count, c->stream);
        c->failures += status != VMP_OK && status != VMP_PENDING;
        break;
      }
    }
  }
  return NULL;
}

VTEST_F(RegionThreads, CallsOnOneRegionFollowOneAnother, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_region *a = region_make(f, 64 * GRANULE, 0), *b = region_make(f, 64 * GRANULE, 0);
  pthread_t threads[4];
  contender contenders[4];
  for (int i = 0; i < 4; i++) {
    contenders[i] = (contender){f, i % 2 == 0 ? a : b, i < 2 ? a : b, f->streams[i], (uint64_t)i + 1, 0};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, contend, &contenders[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    (void)pthread_join(threads[i], NULL);
    VEXPECT_UINT_EQ(contenders[i].failures, 0);
  }
  VEXPECT_OK(vmp_region_prefetch_wait(a));
  VEXPECT_OK(vmp_region_prefetch_wait(b));
  rig_check(f);
  VEXPECT_OK(vmp_region_destroy(a, f->streams[0]));
  VEXPECT_OK(vmp_region_destroy(b, f->streams[1]));
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 0);
}

// Each thread has regions and blocks of its own, on a device that is too small for all of them.
static void *serve(void *argument) {
  contender *c = argument;
  vtest_rng rng = vtest_rng_make(c->seed);
  for (int i = 0; i < 60; i++) {
    vmp_region *region = NULL;
    vmp_region_options options = VMP_REGION_OPTIONS_INIT;
    options.max_bytes = 128 * MIB;
    options.wait = 1;
    c->failures += vmp_region_create(c->rig->pool, &region, &options) != VMP_OK;
    if (region == NULL) return NULL;
    uint64_t pages = 0, most = 1 + vtest_rng_below(&rng, 20);
    for (bool room = true; pages < most && room; pages += room) {
      vmp_status status = region_commit(region, pages, 1, c->stream);
      room = status == VMP_OK;
      c->failures += !room && status != VMP_ERROR_OUT_OF_MEMORY && status != VMP_ERROR_FRAGMENTED &&
                     status != VMP_ERROR_TIMEOUT && status != VMP_PENDING;
    }
    if (pages > 0) {
      c->failures += vmp_host_touch(c->rig->driver, 0, c->stream, rig_address(vmp_region_base(region)), pages * GRANULE,
                                    true) != 0;
    }
    void *block = NULL;
    if (vmp_alloc(c->rig->pool, &block, 1 + vtest_rng_below(&rng, 3 * MIB), c->stream) == VMP_OK) {
      c->failures += vmp_free(c->rig->pool, block, c->stream) != VMP_OK;
    }
    c->failures += vmp_region_destroy(region, c->stream) != VMP_OK;
  }
  return NULL;
}

VTEST_F(RegionThreads, ManyRegionsAtOnce, pool_rig) {
  rig_open(f, 96 * MIB, NULL);
  VASSERT_NO_FAILURE();
  pthread_t threads[4];
  contender servers[4];
  for (int i = 0; i < 4; i++) {
    servers[i] = (contender){.rig = f, .stream = f->streams[i], .seed = (uint64_t)i + 1};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, serve, &servers[i]), 0);
  }
  for (int i = 0; i < 4; i++) {
    (void)pthread_join(threads[i], NULL);
    VEXPECT_UINT_EQ(servers[i].failures, 0);
  }
  rig_settle(f);
  rig_check(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 0);
}
