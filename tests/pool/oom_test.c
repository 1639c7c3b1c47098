// oom_test.c: the last steps before out of memory: idle memory of the driver's other pools, the caller's function, and
// which of them are tried when. Bug case 51.
#include <pthread.h>
#include <stdatomic.h>

#include "tests/pool/pool_rig.h"

static vmp_pool *another_pool(pool_rig *f, const char *conf, int device) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  vmp_pool *pool = NULL;
  options.driver = f->driver;
  options.conf = conf;
  options.device = device;
  VEXPECT_OK(vmp_pool_create(&pool, &options));
  return pool;
}

static void *take_from(vmp_pool *pool, uint64_t bytes, vmp_stream stream) {
  void *block = NULL;
  VEXPECT_OK(vmp_alloc(pool, &block, bytes, stream));
  return block;
}

static uint64_t mapped_of(vmp_pool *pool) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VEXPECT_OK(vmp_pool_stats(pool, &stats));
  return stats.mapped;
}

// ---- other pools ----

VTEST_F(Oom, IdleMemoryOfOtherPools, pool_rig) {
  rig_open(f, 64 * MIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_pool *other = another_pool(f, "no_map_ahead:1", 0);
  VASSERT_NO_FAILURE();
  void *small = take_from(other, 5000, f->streams[0]), *large = take_from(other, 40 * MIB, f->streams[0]);
  VEXPECT_OK(vmp_free(other, large, f->streams[0]));
  VEXPECT_OK(vmp_free(other, take_from(other, 5000, f->streams[0]), f->streams[0]));  // in a thread cache
  VEXPECT_OK(vmp_pool_trim(other, UINT64_MAX, NULL));                                 // it looks: nothing runs
  uint64_t before = mapped_of(other);
  void *block = rig_alloc(f, 40 * MIB, f->streams[1]);
  VEXPECT_UINT_EQ(rig_stats(f).host_waits, 0);
  VEXPECT_UINT_LT(mapped_of(other), before);
  VEXPECT_UINT_GE(mapped_of(other), 2 * MIB);  // what its live block touches
  VEXPECT_OK(vmp_pool_check(other, NULL));
  rig_free(f, block, f->streams[1]);
  VEXPECT_OK(vmp_free(other, small, f->streams[0]));
  VEXPECT_OK(vmp_pool_destroy(other));
}

// Only what is needed, only what has finished, and only where it helps.
VTEST_F(Oom, WhatOtherPoolsKeep, pool_rig) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[0].memory_bytes = options.devices[1].memory_bytes = 64 * MIB;
  options.ledger_high = 1;
  rig_open_driver_with(f, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, "no_map_ahead:1,hard_limit:32MiB,wait:0"));
  vmp_pool *idle = another_pool(f, "preset:tight", 0),
           *fixed = another_pool(f, "strategy:static,initial_fraction:0.25", 0);
  vmp_pool *elsewhere = another_pool(f, "no_map_ahead:1", 1);
  VASSERT_NO_FAILURE();
  VEXPECT_OK(vmp_free(idle, take_from(idle, 32 * MIB, f->streams[0]), f->streams[0]));
  VEXPECT_OK(vmp_free(elsewhere, take_from(elsewhere, 32 * MIB, NULL), NULL));
  VEXPECT_OK(vmp_pool_trim(idle, UINT64_MAX, NULL));
  VEXPECT_OK(vmp_pool_trim(elsewhere, UINT64_MAX, NULL));
  void *block = rig_alloc(f, 24 * MIB, f->streams[1]);  // 16 MiB were free
  VEXPECT_UINT_LE(mapped_of(idle), 24 * MIB);
  VEXPECT_UINT_GE(mapped_of(idle), 8 * MIB);
  VEXPECT_UINT_EQ(mapped_of(fixed), 16 * MIB);
  VEXPECT_UINT_EQ(mapped_of(elsewhere), 32 * MIB);
  uint64_t kept = mapped_of(idle);
  void *none = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 16 * MIB, f->streams[1]), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(mapped_of(idle), kept);  // the limit is what ran out
  rig_free(f, block, f->streams[1]);
  VEXPECT_OK(vmp_pool_destroy(idle));
  VEXPECT_OK(vmp_pool_destroy(fixed));
  VEXPECT_OK(vmp_pool_destroy(elsewhere));
}

VTEST_F(Oom, UnfinishedMemoryOfOtherPoolsStays, pool_rig) {
  rig_open(f, 64 * MIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_pool *other = another_pool(f, "no_map_ahead:1", 0);
  void *block = take_from(other, 40 * MIB, f->streams[0]), *none = NULL;
  rig_touch(f, block, 40 * MIB, f->streams[0]);
  VEXPECT_OK(vmp_free(other, block, f->streams[0]));
  vmp_driver_calls calls = rig_calls(f);
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 40 * MIB, f->streams[1]), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "others hold 40MiB");
  VEXPECT_UINT_EQ(mapped_of(other), 40 * MIB);
  VEXPECT_UINT_EQ(rig_calls(f).unmap, calls.unmap);
  VEXPECT_UINT_EQ(rig_calls(f).event_record, calls.event_record);  // no stream was asked
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(other, UINT64_MAX, NULL));
  rig_free(f, rig_alloc(f, 40 * MIB, f->streams[1]), f->streams[1]);
  VEXPECT_OK(vmp_pool_destroy(other));
}

// Pools that live on each other's idle memory from several threads, while others come and go.
typedef struct worker {
  pool_rig *f;
  vmp_pool *pool;
  int number;
} worker;

static void *grow_and_shrink(void *context) {
  worker *w = context;
  vmp_stream stream = w->f->streams[w->number];
  for (int i = 0; i < 200; i++) {
    vmp_pool *pool = w->pool;
    if (pool == NULL) pool = another_pool(w->f, "no_map_ahead:1", 0);
    void *block = NULL;
    if (vmp_alloc(pool, &block, 30 * MIB, stream) == VMP_OK) VEXPECT_OK(vmp_free(pool, block, stream));
    if (w->pool == NULL) VEXPECT_OK(vmp_pool_destroy(pool));
  }
  return NULL;
}

VTEST_F(Oom, PoolsComeAndGoMeanwhile, pool_rig) {
  enum { WORKERS = 4 };
  rig_open(f, 64 * MIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_pool *second = another_pool(f, "no_map_ahead:1", 0);
  worker workers[WORKERS] = {{f, f->pool, 0}, {f, second, 1}, {f, NULL, 2}, {f, NULL, 3}};
  pthread_t threads[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, grow_and_shrink, &workers[i]), 0);
  }
  for (int i = 0; i < WORKERS; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_OK(vmp_pool_check(second, NULL));
  VEXPECT_OK(vmp_pool_destroy(second));
}

// ---- the caller's function ----

typedef struct caller {
  pool_rig *f;
  void *blocks[8];
  size_t num_blocks, frees_each;  // live ones, and how many it frees in a call
  int answer;
  unsigned calls, last_attempt;
  uint64_t last_bytes;
  vmp_status nested;  // of an allocation that can't be had
} caller;

static int on_oom(void *user, vmp_pool *pool, uint64_t bytes, unsigned attempt) {
  caller *c = user;
  c->calls++;
  c->last_attempt = attempt;
  c->last_bytes = bytes;
  for (size_t i = 0; i < c->frees_each && c->num_blocks > 0; i++) {
    VEXPECT_OK(vmp_free(pool, c->blocks[--c->num_blocks], c->f->streams[0]));
  }
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VEXPECT_OK(vmp_pool_stats(pool, &stats));
  void *small = NULL, *huge = NULL;
  VEXPECT_OK(vmp_alloc(pool, &small, 256, c->f->streams[0]));
  VEXPECT_OK(vmp_free(pool, small, c->f->streams[0]));
  c->nested = vmp_alloc(pool, &huge, 60 * MIB, c->f->streams[0]);  // doesn't call it again
  if (c->nested == VMP_OK) VEXPECT_OK(vmp_free(pool, huge, c->f->streams[0]));
  return c->answer;
}

static void fill(pool_rig *f, caller *c, size_t blocks) {
  c->f = f;
  for (; c->num_blocks < blocks; c->num_blocks++) c->blocks[c->num_blocks] = rig_alloc(f, 8 * MIB, f->streams[0]);
  VASSERT_OK(vmp_pool_set_oom_callback(f->pool, on_oom, c));
}

static void free_all(pool_rig *f, caller *c) {
  while (c->num_blocks > 0) rig_free(f, c->blocks[--c->num_blocks], f->streams[0]);
}

// Case 51: from within it blocks are freed, statistics read and memory allocated; the request is tried again.
VTEST_F(Oom, Case51TheCallerFreesSomething, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  caller c = {.frees_each = 2, .answer = 1};
  void *small = rig_alloc(f, 256, f->streams[0]);
  fill(f, &c, 7);
  void *block = rig_alloc(f, 30 * MIB, f->streams[0]);  // three or more of the seven must go
  VEXPECT_UINT_EQ(c.calls, 2);
  VEXPECT_UINT_EQ(c.last_attempt, 1);
  VEXPECT_UINT_EQ(c.last_bytes, 30 * MIB);
  VEXPECT_UINT_EQ(c.num_blocks, 3);
  VEXPECT_INT_EQ(c.nested, VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(rig_stats(f).failed_allocs, 2);  // the nested ones
  rig_free(f, block, f->streams[0]);
  rig_free(f, small, f->streams[0]);
  free_all(f, &c);
}

// What it frees may be under unfinished work: then the stream, or the host as the last step, waits for that.
VTEST_F(Oom, WhatItFreesIsWaitedFor, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  caller c = {.frees_each = 8, .answer = 1};
  fill(f, &c, 7);
  for (size_t i = 0; i < 7; i++) rig_touch(f, c.blocks[i], 8 * MIB, f->streams[0]);
  void *block = rig_alloc(f, 50 * MIB, f->streams[1]);
  rig_touch(f, block, 50 * MIB, f->streams[1]);
  VEXPECT_UINT_EQ(c.calls, 1);
  rig_settle(f);
  rig_check(f);
  rig_free(f, block, f->streams[1]);
}

VTEST_F(Oom, ItsAnswerCountsAndIsBounded, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  caller c = {.answer = 0};
  void *none = NULL;
  fill(f, &c, 7);
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 30 * MIB, f->streams[0]), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(c.calls, 1);
  c.answer = 1;
  c.calls = 0;
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 30 * MIB, f->streams[0]), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(c.calls, VMP_OOM_MAX_ATTEMPTS);
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 65 * MIB, f->streams[0]), VMP_ERROR_LIMIT);  // never: nobody is asked
  VEXPECT_UINT_EQ(c.calls, VMP_OOM_MAX_ATTEMPTS);
  VEXPECT_OK(vmp_pool_set_oom_callback(f->pool, NULL, NULL));
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 30 * MIB, f->streams[0]), VMP_ERROR_LIMIT);
  VEXPECT_UINT_EQ(c.calls, VMP_OOM_MAX_ATTEMPTS);
  VEXPECT_STATUS(vmp_pool_set_oom_callback(NULL, on_oom, &c), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  free_all(f, &c);
}

VTEST_F(Oom, NobodyIsAskedInACapture, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  caller c = {.frees_each = 8, .answer = 1};
  void *none = NULL;
  fill(f, &c, 7);
  vmp_graph_id graph = 0;
  VASSERT_OK(vmp_capture_begin(f->pool, f->streams[1], &graph));
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 30 * MIB, f->streams[1]), VMP_ERROR_CAPTURE);
  VEXPECT_UINT_EQ(c.calls, 0);
  VEXPECT_OK(vmp_capture_end(f->pool, f->streams[1]));
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  free_all(f, &c);
}
