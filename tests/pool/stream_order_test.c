// stream_order_test.c: which memory a stream gets that others have freed: what has finished; then new memory, up to
// the limits; then what it must wait for, on the GPU. For each layer, and under each of the limits.
#include <stdio.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

#define BLOCK (64 * MIB)

typedef struct layer {
  const char *name, *conf;
  uint64_t bytes;
  // Blocks that may lie side by side, and the streams that they may be of without being taken for one another's: a span
  // tells two streams from the rest, and goes back whole.
  size_t blocks, streams;
} layer;

static const layer layers[] = {{"mid", "no_map_ahead:1", BLOCK, 24, 4},
                               {"buddy", "no_map_ahead:1,buddy_from:1MiB", BLOCK, 24, 4},
                               {"fixed", "no_map_ahead:1,classes:64MiB", BLOCK, 24, 4},
                               // A whole span, so that the stream finds no object of it that was never used.
                               {"slab", "no_map_ahead:1,thread_cache:0", 64 * KIB, 8, 2}};
static const char *layer_name(const layer *l) { return l->name; }

// open makes a pool in which stream 0 has used and freed everything, 64 MiB of it, and stream 1 is known.
static void open(pool_rig *f, const layer *l, const char *more) {
  char conf[200];
  snprintf(conf, sizeof conf, "%s,%s", l->conf, more);
  rig_open(f, 8 * GIB, conf);
  VASSERT_NO_FAILURE();
  void *blocks[BLOCK / (64 * KIB)];
  size_t count = BLOCK / l->bytes;
  for (size_t i = 0; i < count; i++) {
    blocks[i] = rig_alloc(f, l->bytes, f->streams[0]);
    rig_touch(f, blocks[i], l->bytes, f->streams[0]);
  }
  for (size_t i = 0; i < count; i++) rig_free(f, blocks[i], f->streams[0]);
  VASSERT_UINT_EQ(rig_stats(f).mapped, BLOCK);
}

static void *alloc_touched(pool_rig *f, const layer *l, vmp_stream stream) {
  void *block = rig_alloc(f, l->bytes, stream);
  rig_touch(f, block, l->bytes, stream);
  return block;
}

VTEST_FP(StreamOrder, FinishedMemoryComesFirst, pool_rig, layer, layers, layer_name) {
  open(f, p, "wait_limit:1");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));  // the pool isn't told
  void *block = alloc_touched(f, p, f->streams[1]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, BLOCK);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  VEXPECT_UINT_EQ(rig_stats(f).unfinished_wait_allocs, 0);
  rig_free(f, block, f->streams[1]);
}

VTEST_FP(StreamOrder, ThenNewMemory, pool_rig, layer, layers, layer_name) {
  open(f, p, "wait_limit:1");
  VASSERT_NO_FAILURE();
  void *block = alloc_touched(f, p, f->streams[1]);
  VEXPECT_UINT_GT(rig_stats(f).mapped, BLOCK);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  void *own = alloc_touched(f, p, f->streams[0]);  // what it has freed itself is as good as finished
  VEXPECT_UINT_LE(rig_stats(f).mapped, 2 * BLOCK);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  rig_free(f, block, f->streams[1]);
  rig_free(f, own, f->streams[0]);
}

// Each limit ends the growth in its own way; the hard one is not reached.
VTEST_FP(StreamOrder, ThenAWaitOnTheGpu, pool_rig, layer, layers, layer_name) {
  static const char *const limits[] = {"wait_limit:0", "wait_limit:1,soft_limit:64MiB", "wait_limit:1,park_limit:0",
                                       "wait_limit:1,hard_limit:64MiB"};
  for (size_t i = 0; i < sizeof limits / sizeof limits[0]; i++) {
    VTRACE("%s", limits[i]);
    open(f, p, limits[i]);
    VASSERT_NO_FAILURE();
    void *block = alloc_touched(f, p, f->streams[1]);
    vmp_pool_stats_data stats = rig_stats(f);
    VEXPECT_UINT_EQ(stats.mapped, BLOCK);
    VEXPECT_UINT_EQ(stats.stream_waits, 1);
    VEXPECT_UINT_EQ(stats.unfinished_wait_allocs, 1);
    VEXPECT_UINT_EQ(stats.host_waits, 0);
    rig_settle(f);
    rig_check(f);
    rig_free(f, block, f->streams[1]);
    pool_rig_teardown(f);
    *f = (pool_rig){0};
  }
}

// Above the soft limit, and with nothing left to wait for, memory is made all the same.
VTEST_FP(StreamOrder, TheSoftLimitRefusesNothing, pool_rig, layer, layers, layer_name) {
  open(f, p, "soft_limit:64MiB");
  VASSERT_NO_FAILURE();
  enum { BLOCKS = 2 * BLOCK / (64 * KIB) };
  void *blocks[BLOCKS];
  size_t count = 2 * BLOCK / p->bytes;
  for (size_t i = 0; i < count; i++) blocks[i] = rig_alloc(f, p->bytes, f->streams[1]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 2 * BLOCK);
  for (size_t i = 0; i < count; i++) rig_free(f, blocks[i], f->streams[1]);
}

// Beyond wait_limit finished memory that lies elsewhere is moved rather than waited for.
VTEST_F(StreamOrder, FinishedChunksAreMovedBeforeAWait, pool_rig) {
  rig_open(f, 8 * GIB, "no_map_ahead:1,wait_limit:0,chunk_max:2MiB");
  VASSERT_NO_FAILURE();
  void *small[16], *large = rig_alloc(f, 32 * MIB, f->streams[0]);
  for (size_t i = 0; i < 16; i++) small[i] = rig_alloc(f, 2 * MIB, f->streams[2]);
  for (size_t i = 0; i < 16; i++) rig_touch(f, small[i], 2 * MIB, f->streams[2]);
  for (size_t i = 0; i < 16; i += 2) rig_free(f, small[i], f->streams[2]);  // 16 MiB in pieces
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[2]));
  rig_touch(f, large, 32 * MIB, f->streams[0]);
  rig_free(f, large, f->streams[0]);
  void *block = rig_alloc(f, 16 * MIB, f->streams[1]);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.takes, 8);
  VEXPECT_UINT_EQ(stats.stream_waits, 0);
  VEXPECT_UINT_EQ(stats.mapped, 64 * MIB);
  rig_touch(f, block, 16 * MIB, f->streams[1]);
  void *next = rig_alloc(f, 16 * MIB, f->streams[1]);  // now only memory of stream 0 is left
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * MIB);
  rig_touch(f, next, 16 * MIB, f->streams[1]);
  rig_settle(f);
  rig_free(f, block, f->streams[1]);
  rig_free(f, next, f->streams[1]);
  for (size_t i = 1; i < 16; i += 2) rig_free(f, small[i], f->streams[2]);
}

// Neighbours under different streams' work stay apart: a stream never waits for what it has freed itself.
VTEST_FP(StreamOrder, NobodyWaitsForItself, pool_rig, layer, layers, layer_name) {
  rig_open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  void *blocks[24];
  uint64_t mapped = 0;
  for (size_t round = 0; round < 6; round++) {
    for (size_t i = 0; i < p->blocks; i++) blocks[i] = alloc_touched(f, p, f->streams[i % p->streams]);
    if (round == 0) mapped = rig_stats(f).mapped;
    for (size_t i = 0; i < p->blocks; i++) {
      size_t at = i * 7 % p->blocks;
      rig_free(f, blocks[at], f->streams[at % p->streams]);
    }
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VEXPECT_UINT_EQ(rig_stats(f).mapped, mapped);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  VEXPECT_UINT_EQ(rig_stats(f).unfinished_wait_allocs, 0);
}

// ... until a request needs several of them together, or until the work has finished.
VTEST_F(StreamOrder, NeighboursAreMergedWhenNeeded, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *blocks[4];
  for (size_t i = 0; i < 4; i++) blocks[i] = rig_alloc(f, 16 * MIB, f->streams[i]);
  for (size_t i = 0; i < 4; i++) rig_touch(f, blocks[i], 16 * MIB, f->streams[i]);
  for (size_t i = 0; i < 4; i++) rig_free(f, blocks[i], f->streams[i]);
  void *two = rig_alloc(f, 32 * MIB, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);  // for its one neighbour's, not for all
  rig_touch(f, two, 32 * MIB, f->streams[0]);
  rig_free(f, two, f->streams[0]);
  rig_settle(f);
  void *all = rig_alloc(f, 64 * MIB, f->streams[3]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);
  rig_free(f, all, f->streams[3]);
}

// ---- a wait covers no later work than it must ----

typedef struct work_mode {
  const char *name;
  vmp_host_work work;
  uint64_t value;
  size_t steps;
} work_mode;

// Late work never completes, and a stream keeps 64 events apart.
static const work_mode modes[] = {{"late", VMP_HOST_WORK_LATE, 0, 120},
                                  {"early", VMP_HOST_WORK_EARLY, 0, 4000},
                                  {"seeded", VMP_HOST_WORK_SEED, 11, 4000},
                                  {"lag", VMP_HOST_WORK_LAG, 60, 4000}};
static const char *mode_name(const work_mode *m) { return m->name; }

enum { SLOTS = 48, SLOT_BYTES = 3 * MIB };

// Blocks between others that stay, so that no two free ones are neighbours; nothing else can be had.
static void fill_with_slots(pool_rig *f, void **slots, void **walls) {
  for (size_t i = 0; i < SLOTS; i++) {
    slots[i] = rig_alloc(f, SLOT_BYTES, f->streams[0]);
    walls[i] = rig_alloc(f, MIB, f->streams[0]);
  }
}

VTEST_FP(StreamOrder, NoWaitCoversLaterWork, pool_rig, work_mode, modes, mode_name) {
  vtest_rng rng = vtest_rng_make(vtest_seed(20261130));
  rig_open(f, 8 * GIB, "hard_limit:192MiB,no_map_ahead:1,chunk_max:2MiB");
  VASSERT_NO_FAILURE();
  void *slots[SLOTS], *walls[SLOTS];
  size_t owner[SLOTS] = {0};
  fill_with_slots(f, slots, walls);
  vmp_host_set_work(f->driver, p->work, p->value);
  vmp_host_check_order(f->driver, true);
  for (size_t i = 0; i < SLOTS; i++) rig_touch(f, slots[i], SLOT_BYTES, f->streams[0]);
  for (size_t step = 0; step < p->steps && !vtest_has_failure(); step++) {
    size_t at = (size_t)vtest_rng_below(&rng, SLOTS), stream = (size_t)vtest_rng_below(&rng, RIG_STREAMS);
    if (slots[at] == NULL) {
      slots[at] = rig_alloc(f, SLOT_BYTES, f->streams[stream]);
      owner[at] = stream;
    }
    rig_touch(f, slots[at], SLOT_BYTES, f->streams[owner[at]]);
    if (vtest_rng_below(&rng, 4) == 0) continue;
    rig_free(f, slots[at], f->streams[owner[at]]);
    slots[at] = NULL;
  }
  vmp_host_counters counters = rig_counters(f);
  VEXPECT_UINT_EQ(counters.overlong_waits, 0);
  VEXPECT_UINT_EQ(counters.unordered, 0);
  if (p->work != VMP_HOST_WORK_EARLY) VEXPECT_UINT_GT(counters.unfinished_stream_waits, 0);
  VEXPECT_UINT_EQ(rig_stats(f).host_waits, 0);
  for (size_t i = 0; i < SLOTS; i++) {
    if (slots[i] != NULL) rig_free(f, slots[i], f->streams[owner[i]]);
    rig_free(f, walls[i], f->streams[0]);
  }
  rig_settle(f);
}

// Uses that are recorded are waited for as of the free, too.
VTEST_F(StreamOrder, ARecordedUseIsMarkedAtTheFree, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_host_check_order(f->driver, true);
  void *other = rig_alloc(f, 32 * MIB, f->streams[1]);
  void *block = rig_alloc(f, 32 * MIB, f->streams[0]);
  rig_touch(f, block, 32 * MIB, f->streams[0]);
  VEXPECT_OK(vmp_record_use(f->pool, block, f->streams[2]));
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));
  rig_touch(f, block, 32 * MIB, f->streams[2]);
  rig_free(f, block, f->streams[0]);
  rig_touch(f, other, 32 * MIB, f->streams[2]);  // later work of the recorded stream
  void *next = rig_alloc(f, 32 * MIB, f->streams[3]);
  rig_touch(f, next, 32 * MIB, f->streams[3]);
  VEXPECT_UINT_EQ(rig_counters(f).overlong_waits, 0);
  VEXPECT_UINT_EQ(rig_counters(f).unordered, 0);
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[2]));
  rig_free(f, next, f->streams[3]);
  rig_free(f, other, f->streams[1]);
  rig_settle(f);
}

// Streams that get by on their own memory need no driver call, however many there are.
VTEST_F(StreamOrder, NoDriverCallOnceNobodyWantsOthersMemory, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < RIG_STREAMS; i++) rig_free(f, rig_alloc(f, MIB, f->streams[i]), f->streams[i]);
  for (size_t i = 0; i < 5000; i++) {
    void *block = rig_alloc(f, MIB, f->streams[i % RIG_STREAMS]);
    rig_free(f, block, f->streams[i % RIG_STREAMS]);
  }
  uint64_t before = rig_all_calls(f->driver);
  for (size_t i = 0; i < 1000; i++) {
    void *block = rig_alloc(f, MIB, f->streams[i % RIG_STREAMS]);
    rig_free(f, block, f->streams[i % RIG_STREAMS]);
  }
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), before);
}
