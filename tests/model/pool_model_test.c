// pool_model_test.c: random operations on a whole pool against a naive list of intervals: one million over all
// variants.
//
// Each variant is a device, options, streams, threads and a way in which the host driver runs queued work. A worker
// thread owns its blocks and its model:
//   - blocks never overlap, are aligned, hold what was asked for, and answer queries at any inner address;
//   - the statistics are the sums of the model (with one thread);
//   - every block's ends are filled on its stream after its allocation and read back on its stream before its free, so
//     memory that is reused without an order shows as a wrong byte, and memory that is unmapped as a bad touch;
//   - a request fails only when the granules that live blocks pin leave too little room (with one thread): free memory
//     in pieces is never a reason.
// Every few hundred operations all invariants of the pool and of the driver are checked.
// VMPOOL_SEED repeats a run; VMPOOL_MODEL_OPS bounds the operations of each variant.
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/marks_rig.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

enum { MAX_LIVE = 400, MAX_READS = 4096, MAX_WORKERS = 4, CHECK_EVERY = 400, SETTLE_EVERY = 300 };

typedef struct variant {
  const char *name;
  const char *conf;
  uint64_t device_bytes, largest_bytes;
  int streams, threads;
  vmp_host_work_mode work;
  uint64_t seed_or_lag;
  uint64_t ops;
} variant;

static const variant variants[] = {
    {"late", NULL, 512 * MIB, 64 * MIB, 1, 1, VMP_WORK_LATE, 0, 100000},
    {"late_streams", NULL, 512 * MIB, 64 * MIB, 4, 1, VMP_WORK_LATE, 0, 100000},
    {"early_streams", "chunk_max:8MiB", 512 * MIB, 64 * MIB, 4, 1, VMP_WORK_EARLY, 0, 100000},
    {"seed_streams", "chunk_max:8MiB,hard_limit:300MiB", 512 * MIB, 32 * MIB, 4, 1, VMP_WORK_SEED, 11, 100000},
    {"lag_streams", "chunk_max:16MiB", 256 * MIB, 32 * MIB, 3, 1, VMP_WORK_LAG, 50, 100000},
    {"tight_late", "preset:tight", 256 * MIB, 32 * MIB, 4, 1, VMP_WORK_LATE, 0, 80000},
    {"tight_seed", "preset:tight,slab_random:1", 256 * MIB, 32 * MIB, 4, 1, VMP_WORK_SEED, 12, 80000},
    {"classic", "preset:classic,buddy_from:8MiB", 512 * MIB, 64 * MIB, 4, 1, VMP_WORK_LATE, 0, 80000},
    {"slab", "preset:slab", 512 * MIB, 16 * MIB, 2, 1, VMP_WORK_SEED, 13, 60000},
    {"mid", "preset:mid", 256 * MIB, 32 * MIB, 2, 1, VMP_WORK_LATE, 0, 60000},
    {"buddy", "preset:buddy,chunk_max:4MiB", 1024 * MIB, 32 * MIB, 4, 1, VMP_WORK_LATE, 0, 60000},
    {"complete", "cross_stream:complete,chunk_max:8MiB", 256 * MIB, 32 * MIB, 3, 1, VMP_WORK_SEED, 14, 50000},
    {"static", "strategy:static", 512 * MIB, 32 * MIB, 2, 1, VMP_WORK_LATE, 0, 40000},
    {"small_reserve", "reserve:64MiB,arena:16MiB,chunk_max:4MiB", 256 * MIB, 24 * MIB, 2, 1, VMP_WORK_EARLY, 0, 40000},
    {"park_limit", "park_limit:0.1,chunk_max:8MiB", 512 * MIB, 32 * MIB, 4, 1, VMP_WORK_LAG, 20, 40000},
    {"marks_late", "chunk_max:8MiB", 512 * MIB, 4 * MIB, 4, 1, VMP_WORK_LATE, 0, 60000},
    {"marks_seed", "slab_random:1", 256 * MIB, 16 * MIB, 3, 1, VMP_WORK_SEED, 16, 60000},
    {"threads_marks", NULL, 512 * MIB, 4 * MIB, 4, 4, VMP_WORK_LATE, 0, 40000},
    {"threads_late", NULL, 512 * MIB, 16 * MIB, 4, 4, VMP_WORK_LATE, 0, 40000},
    {"threads_seed", "chunk_max:4MiB", 256 * MIB, 16 * MIB, 4, 4, VMP_WORK_SEED, 15, 40000},
    {"threads_tight", "preset:tight", 256 * MIB, 16 * MIB, 4, 4, VMP_WORK_EARLY, 0, 40000},
};
static const char *variant_name(const variant *p) { return p->name; }
// Hits go by marks, and spans come by bundles, from the beginning.
static bool has_marks(const variant *p) { return strstr(p->name, "marks") != NULL; }

typedef struct block {
  void *ptr;
  uint64_t requested, bytes;
  vmp_stream stream, recorded;  // recorded: another stream that uses it too, or NULL
  unsigned char value;
} block;

// A byte that will be read back once the queue has run.
typedef struct reading {
  unsigned char got, expected;
} reading;

typedef struct worker {
  pool_rig *rig;
  const variant *variant;
  int id;
  uint64_t ops;
  vtest_rng rng;
  block blocks[MAX_LIVE];
  size_t num_blocks;
  reading readings[MAX_READS];
  size_t num_readings;
  uint64_t requested, bytes;  // sums of the blocks
  uint64_t failed, allocs;
} worker;

static bool alone(const worker *w) { return w->variant->threads == 1; }

// ---- content ----

static void fill_ends(worker *w, const block *b) {
  vmp_driver *driver = w->rig->driver;
  uint64_t bytes = b->requested < 32 ? b->requested : 32;
  VEXPECT_OK(vmp_host_fill(driver, 0, b->ptr, b->value, bytes, b->stream));
  VEXPECT_OK(vmp_host_fill(driver, 0, rig_at(b->ptr, b->requested - bytes), b->value, bytes, b->stream));
  if (vtest_rng_chance(&w->rng, 1, 4)) {
    VEXPECT_OK(vmp_host_kernel(driver, 0, b->ptr, b->requested, 0, b->stream));
  }
}

static void read_byte(worker *w, const block *b, uint64_t at) {
  if (w->num_readings == MAX_READS) return;
  reading *r = &w->readings[w->num_readings++];
  *r = (reading){.got = (unsigned char)~b->value, .expected = b->value};
  VEXPECT_OK(vmp_host_copy_out(w->rig->driver, 0, &r->got, rig_at(b->ptr, at), 1, b->stream));
}

// settle runs all queued work and compares what was read.
static void settle(worker *w) {
  if (alone(w)) {
    while (vmp_host_step(w->rig->driver, 10000) > 0) {
    }
  } else {
    for (int i = 0; i < RIG_STREAMS; i++) {
      VASSERT_OK(vmp_host_stream_synchronize(w->rig->driver, 0, w->rig->streams[i]));
    }
  }
  for (size_t i = 0; i < w->num_readings; i++) VASSERT_UINT_EQ(w->readings[i].got, w->readings[i].expected);
  w->num_readings = 0;
}

// ---- operations ----

static void enter_block(worker *w, block b) {
  uint64_t at = rig_address(b.ptr);
  for (size_t i = 0; i < w->num_blocks; i++) {
    uint64_t other = rig_address(w->blocks[i].ptr);
    VASSERT_TRUE(at + b.bytes <= other || other + w->blocks[i].bytes <= at);
  }
  w->blocks[w->num_blocks++] = b;
  w->requested += b.requested;
  w->bytes += b.bytes;
  w->allocs++;
}

// expect_true_failure: a request fails only for lack of granules, never because free ones lie apart.
static void expect_true_failure(worker *w, vmp_status status, uint64_t bytes) {
  w->failed++;
  VASSERT_TRUE(status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT || status == VMP_ERROR_FRAGMENTED);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "can't be had");
  if (!alone(w)) return;
  vmp_pool_stats_data s = rig_stats(w->rig);
  uint64_t capacity = s.hard_limit < s.device_total ? s.hard_limit : s.device_total;
  if (strcmp(w->variant->name, "static") == 0) capacity = s.mapped;
  uint64_t pinned = s.mapped - s.parked, needed = (bytes + GRANULE - 1) / GRANULE * GRANULE;
  if (pinned + needed <= capacity)
    VFAIL("%" PRIu64 " bytes refused with %" PRIu64 " of %" PRIu64 " pinned: %s", bytes, pinned, capacity,
          vmp_last_error()->message);
}

static void allocate(worker *w) {
  const variant *v = w->variant;
  if (w->num_blocks == MAX_LIVE) return;
  block b = {.requested = vtest_rng_log(&w->rng, 1, v->largest_bytes), .value = (unsigned char)vtest_rng_next(&w->rng)};
  if (vtest_rng_chance(&w->rng, 1, 2)) b.requested = vtest_rng_log(&w->rng, 1, 128 * KIB);
  b.stream = w->rig->streams[vtest_rng_below(&w->rng, (uint64_t)v->streams)];
  if (!alone(w)) b.stream = w->rig->streams[w->id % v->streams];
  uint64_t alignment = 512;
  if (vtest_rng_chance(&w->rng, 1, 16)) alignment = UINT64_C(1) << vtest_rng_below(&w->rng, 24);
  vmp_status status = vmp_alloc_aligned(w->rig->pool, &b.ptr, b.requested, alignment, b.stream);
  if (status != VMP_OK) {
    expect_true_failure(w, status, b.requested);
    return;
  }
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  uint64_t inside = vtest_rng_below(&w->rng, b.requested);
  VASSERT_OK(vmp_block_query(w->rig->pool, rig_at(b.ptr, inside), &info));
  VASSERT_PTR_EQ(info.base, b.ptr);
  VASSERT_UINT_EQ(info.requested_bytes, b.requested);
  VASSERT_UINT_GE(info.bytes, b.requested);
  VASSERT_UINT_EQ(rig_address(b.ptr) % alignment, 0);
  VASSERT_UINT_EQ(rig_address(b.ptr) % 512, 0);
  b.bytes = info.bytes;
  enter_block(w, b);
  fill_ends(w, &b);
}

static void free_one(worker *w) {
  if (w->num_blocks == 0) return;
  size_t i = (size_t)vtest_rng_below(&w->rng, w->num_blocks);
  block b = w->blocks[i];
  read_byte(w, &b, 0);
  read_byte(w, &b, b.requested - 1);
  w->blocks[i] = w->blocks[--w->num_blocks];
  w->requested -= b.requested;
  w->bytes -= b.bytes;
  VASSERT_OK(vmp_free(w->rig->pool, b.ptr, b.stream));
  if (alone(w) && vtest_rng_chance(&w->rng, 1, 16)) {
    VASSERT_STATUS(vmp_free(w->rig->pool, b.ptr, b.stream), VMP_ERROR_DOUBLE_FREE);
  }
}

static void use_on_another_stream(worker *w) {
  if (w->num_blocks == 0 || !alone(w)) return;
  block *b = &w->blocks[vtest_rng_below(&w->rng, w->num_blocks)];
  vmp_stream other = w->rig->streams[vtest_rng_below(&w->rng, RIG_STREAMS)];
  VASSERT_OK(vmp_record_use(w->rig->pool, b->ptr, other));
  b->recorded = other;
  VASSERT_OK(vmp_host_kernel(w->rig->driver, 0, b->ptr, b->requested, 0, other));
}

static void free_something_wrong(worker *w) {
  if (w->num_blocks == 0) return;
  const block *b = &w->blocks[vtest_rng_below(&w->rng, w->num_blocks)];
  uint64_t inside = 1 + vtest_rng_below(&w->rng, b->bytes - 1);
  VASSERT_STATUS(vmp_free(w->rig->pool, rig_at(b->ptr, inside), b->stream), VMP_ERROR_NOT_A_BLOCK);
}

static void one_operation(worker *w) {
  uint64_t dice = vtest_rng_below(&w->rng, 1000);
  // The number of live blocks wanders between few and many.
  uint64_t share_of_allocs = (w->allocs / 2000) % 2 == 0 ? 530 : 440;
  if (dice < share_of_allocs) {
    allocate(w);
  } else if (dice < 960) {
    free_one(w);
  } else if (dice < 980) {
    use_on_another_stream(w);
  } else if (dice < 990) {
    free_something_wrong(w);
  } else if (dice < 994) {
    VASSERT_OK(vmp_pool_trim(w->rig->pool, vtest_rng_below(&w->rng, w->variant->device_bytes), NULL));
  } else if (dice < 997) {
    VASSERT_OK(vmp_pool_reset_peaks(w->rig->pool));
  } else {
    void *zero = w;
    VASSERT_OK(vmp_alloc(w->rig->pool, &zero, 0, NULL));
    VASSERT_NULL(zero);
  }
}

static void compare_sums(worker *w) {
  vmp_pool_stats_data s = rig_stats(w->rig);
  VASSERT_UINT_LE(s.live + s.parked, s.mapped);
  VASSERT_UINT_LE(s.requested, s.live);
  if (!alone(w)) return;
  VASSERT_UINT_EQ(s.requested, w->requested);
  VASSERT_UINT_EQ(s.live, w->bytes);
  VASSERT_UINT_EQ(s.blocks, w->num_blocks);
  VASSERT_UINT_EQ(s.allocs, w->allocs);
  VASSERT_UINT_EQ(s.failed_allocs, w->failed);
  VASSERT_UINT_EQ(rig_census(w->rig).physical_bytes, s.mapped + s.spare);
}

static void run(worker *w) {
  for (uint64_t op = 0; op < w->ops && !vtest_has_failure(); op++) {
    VTRACE("thread %d, operation %" PRIu64, w->id, op);
    one_operation(w);
    if (op % SETTLE_EVERY == SETTLE_EVERY - 1) settle(w);
    if (op % CHECK_EVERY == 0 && w->id == 0) {
      compare_sums(w);
      rig_check(w->rig);
    }
  }
  while (w->num_blocks > 0 && !vtest_has_failure()) free_one(w);
  settle(w);
}

static void *run_thread(void *context) {
  run(context);
  return NULL;
}

VTEST_FP(PoolModel, Random, pool_rig, variant, variants, variant_name) {
  static worker workers[MAX_WORKERS];
  rig_open(f, p->device_bytes, p->conf);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, p->work, p->seed_or_lag));
  if (has_marks(p)) rig_go_by_marks(f, 0);
  if (p->threads > 1) f->pool->guard.lean_after = 2;  // so that it leans to one and is taken from it all the time
  uint64_t seed = vtest_seed(2026), ops = vtest_ops(p->ops);
  memset(workers, 0, sizeof workers);
  for (int i = 0; i < p->threads; i++) {
    workers[i] = (worker){.rig = f, .variant = p, .id = i, .ops = ops / (uint64_t)p->threads};
    workers[i].rng = vtest_rng_make(seed + (uint64_t)i);
  }
  if (p->threads == 1) {
    run(&workers[0]);
  } else {
    pthread_t threads[MAX_WORKERS];
    for (int i = 0; i < p->threads; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, run_thread, &workers[i]), 0);
    for (int i = 0; i < p->threads; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  }
  if (vtest_has_failure()) {
    f->keeps_nothing_checked = true;  // blocks are left: what failed has been told
    return;
  }
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.live + s.requested + s.blocks, 0);
  printf("%s: %" PRIu64 " takes, %" PRIu64 " resized, %" PRIu64 " stream waits, %" PRIu64 " host waits, %" PRIu64
         " of %" PRIu64 " failed\n",
         p->name, s.takes, s.takes_resized, s.stream_waits, s.host_waits, s.failed_allocs, s.allocs + s.failed_allocs);
  rig_settle(f);
  rig_check(f);
}
