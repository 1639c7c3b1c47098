// compact_test.c: split and mesh: physical memory that few live bytes pin is given back, no pointer moves, no byte is
// lost. Contents are compared with what was written, through the driver's own copies.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

// A block and what was written to all of it.
typedef struct held {
  unsigned char *ptr;
  uint64_t bytes;
  unsigned char value;
} held;

typedef struct heap {
  pool_rig rig;
  held *blocks;
  size_t count, capacity;
  unsigned char *scratch;
} heap;

static void heap_setup(heap *f) { pool_rig_setup(&f->rig); }
static void heap_teardown(heap *f) {
  for (size_t i = 0; i < f->count && f->rig.pool != NULL; i++) {
    if (f->blocks[i].ptr != NULL) rig_free(&f->rig, f->blocks[i].ptr, f->rig.streams[0]);
  }
  pool_rig_teardown(&f->rig);
  free(f->blocks);
  free(f->scratch);
}

static void open(heap *f, uint64_t device_bytes, const char *conf) {
  rig_open(&f->rig, device_bytes, conf);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->rig.driver, VMP_WORK_EARLY, 0));
}

static void fill(heap *f, size_t count, uint64_t bytes) {
  f->blocks = calloc(count, sizeof *f->blocks);
  f->count = f->capacity = count;
  for (size_t i = 0; i < count; i++) {
    held *b = &f->blocks[i];
    b->ptr = rig_alloc(&f->rig, bytes, f->rig.streams[0]);
    b->bytes = bytes;
    b->value = (unsigned char)(i * 7 + 1);
    VASSERT_OK(vmp_host_fill(f->rig.driver, 0, b->ptr, b->value, bytes, f->rig.streams[0]));
  }
}

static void drop(heap *f, size_t i) {
  rig_free(&f->rig, f->blocks[i].ptr, f->rig.streams[0]);
  f->blocks[i].ptr = NULL;
}

// keep_some frees all but about one of `whole` blocks, drawn at random.
static void keep_some(heap *f, uint64_t whole, uint64_t seed) {
  vtest_rng rng = vtest_rng_make(seed);
  for (size_t i = 0; i < f->count; i++) {
    if (!vtest_rng_chance(&rng, 1, whole)) drop(f, i);
  }
  VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
}

static uint64_t live_bytes(const heap *f) {
  uint64_t bytes = 0;
  for (size_t i = 0; i < f->count; i++) bytes += f->blocks[i].ptr == NULL ? 0 : f->blocks[i].bytes;
  return bytes;
}

// expect_content compares every live byte.
static void expect_content(heap *f) {
  enum { AT_ONCE = 256 * 1024 };
  VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
  if (f->scratch == NULL) f->scratch = malloc(2 * AT_ONCE);
  VASSERT_NOT_NULL(f->scratch);
  for (size_t i = 0; i < f->count; i++) {
    const held *b = &f->blocks[i];
    if (b->ptr == NULL) continue;
    memset(f->scratch + AT_ONCE, b->value, AT_ONCE);
    for (uint64_t at = 0; at < b->bytes; at += AT_ONCE) {
      uint64_t bytes = b->bytes - at < AT_ONCE ? b->bytes - at : AT_ONCE;
      memset(f->scratch, b->value + 1, bytes);
      VASSERT_OK(vmp_host_copy_out(f->rig.driver, 0, f->scratch, b->ptr + at, bytes, f->rig.streams[0]));
      VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
      if (memcmp(f->scratch, f->scratch + AT_ONCE, bytes) == 0) continue;
      VTRACE("block %zu of %zu, from byte %llu", i, f->count, (unsigned long long)at);
      VASSERT_BYTES_EQ(f->scratch, f->scratch + AT_ONCE, bytes);
    }
  }
}

static vmp_status compact(heap *f, uint32_t allow, vmp_defragment_report *report) {
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  *report = (vmp_defragment_report)VMP_DEFRAGMENT_REPORT_INIT;
  options.allow_copy = allow;
  VEXPECT_OK(vmp_quiescent_begin(f->rig.pool));
  vmp_status status = vmp_pool_defragment(f->rig.pool, &options, report);
  VEXPECT_OK(vmp_quiescent_end(f->rig.pool));
  return status;
}

static void trim(heap *f) { VASSERT_OK(vmp_pool_trim(f->rig.pool, 0, NULL)); }

// ---- what it is for ----

// 16 blocks of 2 MiB in one chunk of 32 MiB; three stay, in slots 0, 1 and 9.
VTEST_F(Compact, SplitGivesBackWhatNoBlockTouches, heap) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  fill(f, 16, 2 * MIB);
  VASSERT_UINT_EQ(rig_stats(&f->rig).mapped, 32 * MIB);
  for (size_t i = 0; i < 16; i++) {
    if (i != 0 && i != 1 && i != 9) drop(f, i);
  }
  trim(f);
  VASSERT_UINT_EQ(rig_stats(&f->rig).mapped, 32 * MIB);  // pinned
  vmp_defragment_report report;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT, &report));
  trim(f);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 6 * MIB);
  VEXPECT_UINT_EQ(report.split_chunks, 1);
  VEXPECT_UINT_EQ(report.copied_bytes, 6 * MIB);
  VEXPECT_UINT_EQ(report.mapped_before, 32 * MIB);
  VEXPECT_UINT_EQ(rig_census(&f->rig).physical_bytes, 6 * MIB);
  expect_content(f);
  rig_check(&f->rig);
}

// Two blocks of 256 KiB at different places of their slots share one chunk, until one of them goes.
VTEST_F(Compact, MeshSharesAChunkUntilOneIsLeft, heap) {
  open(f, 8 * GIB, "chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  fill(f, 16, 256 * KIB);  // two slots
  for (size_t i = 0; i < 16; i++) {
    if (i != 1 && i != 12) drop(f, i);
  }
  trim(f);
  VASSERT_UINT_EQ(rig_stats(&f->rig).mapped, 4 * MIB);
  vmp_defragment_report report;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_MESH, &report));
  VEXPECT_UINT_EQ(report.meshed_chunks, 1);
  VEXPECT_UINT_EQ(report.copied_bytes, 256 * KIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 2 * MIB);
  VEXPECT_UINT_EQ(rig_census(&f->rig).physical_bytes, 2 * MIB);
  expect_content(f);
  rig_check(&f->rig);

  // Sealed: a block that would fit in the free part goes elsewhere.
  void *other = rig_alloc(&f->rig, 256 * KIB, f->rig.streams[0]);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 4 * MIB);
  rig_free(&f->rig, other, f->rig.streams[0]);
  drop(f, 1);
  VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
  trim(f);
  expect_content(f);
  rig_check(&f->rig);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 2 * MIB);
  void *again = rig_alloc(&f->rig, 256 * KIB, f->rig.streams[0]);  // and takes blocks again
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 2 * MIB);
  rig_free(&f->rig, again, f->rig.streams[0]);
}

// A graph holds a block that the caller has freed: nobody else's bytes come to lie there, though the block isn't live.
// Of three slots two share a chunk; the third one's block lies where the second one's does.
VTEST_F(Compact, MeshSparesWhatAGraphHolds, heap) {
  open(f, 8 * GIB, "chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  fill(f, 24, 256 * KIB);
  for (size_t i = 0; i < 24; i++) {
    if (i != 1 && i != 12 && i != 20) drop(f, i);
  }
  trim(f);
  vmp_defragment_report report;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_MESH, &report));
  VEXPECT_UINT_EQ(report.meshed_chunks, 1);
  vmp_graph_id graph = 0;
  VASSERT_OK(vmp_capture_begin(f->rig.pool, f->rig.streams[0], &graph));
  drop(f, 12);
  VASSERT_OK(vmp_capture_end(f->rig.pool, f->rig.streams[0]));
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_MESH, &report));
  VEXPECT_UINT_EQ(report.meshed_chunks, 0);
  expect_content(f);
  rig_check(&f->rig);
  VASSERT_OK(vmp_capture_release(f->rig.pool, graph));
  VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
  trim(f);
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_MESH, &report));
  expect_content(f);
  rig_check(&f->rig);
}

typedef struct sizes {
  const char *name, *conf;
  uint64_t bytes;
  size_t count;
  double at_most;
} sizes;
static const sizes all_sizes[] = {
    {"256KiB", "chunk_max:1granule,slab_random:1", 256 * KIB, 4096, 1.4},
    {"64KiB", "chunk_max:1granule,slab_random:1", 64 * KIB, 4096, 2.0},
    {"16KiB", "chunk_max:1granule,slab_random:1", 16 * KIB, 32768, 3.3},
    {"256KiBInLargeChunks", "slab_random:1", 256 * KIB, 4096, 1.4},
    {"64KiBInLargeChunks", "slab_random:1", 64 * KIB, 4096, 2.0},
    {"16KiBInLargeChunks", "slab_random:1", 16 * KIB, 32768, 3.3},
};
static const char *sizes_name(const sizes *s) { return s->name; }

// A random eighth of blocks of one size is kept: about 8 times their bytes stay mapped without compaction.
VTEST_FP(Compact, ARandomEighth, heap, sizes, all_sizes, sizes_name) {
  open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  bool small = vtest_ops(100000) < 100000;  // a sanitizer: fewer blocks find fewer partners
  fill(f, small ? p->count / 16 : p->count, p->bytes);
  keep_some(f, 8, vtest_seed(11));
  trim(f);
  double requested = (double)live_bytes(f), before = (double)rig_stats(&f->rig).mapped / requested;
  vmp_defragment_report report;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT, &report));
  double split = (double)rig_stats(&f->rig).mapped / requested;
  uint64_t copied = report.copied_bytes;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
  copied += report.copied_bytes;
  trim(f);
  double after = (double)rig_stats(&f->rig).mapped / requested;
  printf("%s: mapped / requested %.2f before, %.2f after split, %.2f after mesh; copied %.2f of what is live\n",
         p->name, before, split, after, (double)copied / requested);
  VEXPECT_TRUE(small || after <= p->at_most);
  VEXPECT_TRUE(before > 4 && after < split);
  rig_check(&f->rig);
  expect_content(f);
  // Another run finds hardly anything more; then everything goes back.
  for (size_t i = 0; i < f->count; i++) {
    if (f->blocks[i].ptr != NULL) drop(f, i);
  }
  rig_settle(&f->rig);
  trim(f);
  rig_check(&f->rig);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 0);
  VEXPECT_UINT_EQ(rig_census(&f->rig).physical_bytes, 0);
}

// ---- the promise, limits, what is left alone ----

VTEST_F(Compact, CopyingNeedsAPromise, heap) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  fill(f, 16, 2 * MIB);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT;
  VEXPECT_STATUS(vmp_pool_defragment(f->rig.pool, &options, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_quiescent_end(f->rig.pool), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_quiescent_begin(f->rig.pool));
  VEXPECT_OK(vmp_quiescent_begin(f->rig.pool));
  VEXPECT_OK(vmp_quiescent_end(f->rig.pool));
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, NULL));
  options.allow_copy = 4;
  VEXPECT_STATUS(vmp_pool_defragment(f->rig.pool, &options, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_quiescent_end(f->rig.pool));
  options.allow_copy = VMP_DEFRAGMENT_MESH;
  VEXPECT_STATUS(vmp_pool_defragment(f->rig.pool, &options, NULL), VMP_ERROR_INVALID_VALUE);
  options.dry_run = 1;  // looks only
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, NULL));
}

VTEST_F(Compact, ASingleSubmitterNeedsNone, heap) {
  open(f, 8 * GIB, "single_submitter:1");
  VASSERT_NO_FAILURE();
  fill(f, 16, 2 * MIB);
  for (size_t i = 1; i < 16; i++) drop(f, i);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT;
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, NULL));
  trim(f);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 2 * MIB);
  expect_content(f);
}

// Each limit stops before a step that would go beyond it.
VTEST_F(Compact, Limits, heap) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  fill(f, 64, 2 * MIB);  // four chunks
  for (size_t i = 0; i < 64; i++) {
    if (i % 16 != 5) drop(f, i);
  }
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  VEXPECT_OK(vmp_quiescent_begin(f->rig.pool));
  options.allow_copy = VMP_DEFRAGMENT_SPLIT;
  options.dry_run = 1;
  uint64_t calls = rig_all_calls(f->rig.driver);
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, &report));
  VEXPECT_UINT_EQ(rig_all_calls(f->rig.driver), calls);
  VEXPECT_UINT_EQ(report.split_chunks, 4);
  VEXPECT_UINT_EQ(report.copied_bytes, 8 * MIB);
  options.dry_run = 0;
  options.max_copied_bytes = 4 * MIB;
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, &report));
  VEXPECT_UINT_EQ(report.copied_bytes, 4 * MIB);
  VEXPECT_UINT_EQ(report.split_chunks, 2);
  options.max_copied_bytes = 0;
  options.max_driver_calls = 4;
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, &report));
  VEXPECT_UINT_EQ(report.split_chunks, 0);
  options.max_driver_calls = 0;
  VEXPECT_OK(vmp_pool_defragment(f->rig.pool, &options, &report));
  VEXPECT_UINT_EQ(report.split_chunks, 2);
  VEXPECT_OK(vmp_quiescent_end(f->rig.pool));
  expect_content(f);
}

VTEST_F(Compact, PinnedMemoryStays, heap) {
  open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  fill(f, 16, 2 * MIB);
  for (size_t i = 1; i < 16; i++) drop(f, i);
  VASSERT_OK(vmp_pin(f->rig.pool, f->blocks[0].ptr, "registered"));
  vmp_defragment_report report;
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
  VEXPECT_UINT_EQ(report.split_chunks + report.meshed_chunks, 0);
  VEXPECT_UINT_EQ(report.left_pinned, 32 * MIB);
  VEXPECT_UINT_EQ(rig_stats(&f->rig).mapped, 32 * MIB);
  VASSERT_OK(vmp_unpin(f->rig.pool, f->blocks[0].ptr));
  // What was pinned once stays apart until it is free.
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT, &report));
  VEXPECT_UINT_EQ(report.split_chunks, 0);
  VEXPECT_UINT_EQ(report.left_other, 32 * MIB);
  expect_content(f);
}

// Compaction after compaction, with blocks coming and going in between, on a heap of mixed sizes.
VTEST_F(Compact, AgainAndAgain, heap) {
  open(f, 8 * GIB, "slab_random:1");
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(21));
  size_t count = 600;
  f->blocks = calloc(count, sizeof *f->blocks);
  f->count = count;
  for (int round = 0; round < 12; round++) {
    for (size_t i = 0; i < count; i++) {
      held *b = &f->blocks[i];
      if (b->ptr != NULL && vtest_rng_chance(&rng, 2, 3)) drop(f, i);
      if (b->ptr != NULL || vtest_rng_chance(&rng, 1, 2)) continue;
      b->bytes = vtest_rng_log(&rng, 512, 4 * MIB);
      b->value = (unsigned char)vtest_rng_range(&rng, 1, 255);
      b->ptr = rig_alloc(&f->rig, b->bytes, f->rig.streams[0]);
      VASSERT_OK(vmp_host_fill(f->rig.driver, 0, b->ptr, b->value, b->bytes, f->rig.streams[0]));
    }
    vmp_defragment_report report;
    VASSERT_OK(compact(f, round % 3 == 0 ? VMP_DEFRAGMENT_MESH : VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
    if (round % 4 == 3) trim(f);
    rig_check(&f->rig);
    VASSERT_NO_FAILURE();
    expect_content(f);
    VASSERT_NO_FAILURE();
  }
}

// ---- queued work ----

typedef struct queued {
  const char *name;
  vmp_host_work_mode mode;
  uint64_t seed;
} queued;
static const queued queues[] = {{"late", VMP_WORK_LATE, 0},
                                {"seed_1", VMP_WORK_SEED, 1},
                                {"seed_2", VMP_WORK_SEED, 2},
                                {"seed_3", VMP_WORK_SEED, 3}};
static const char *queued_name(const queued *q) { return q->name; }

// Work of before the promise may still be queued, on four streams, when compaction begins: it synchronises the device
// besides. Nothing is touched that isn't there, and nothing is read before it was written.
VTEST_FP(Compact, WorkThatIsStillQueued, heap, queued, queues, queued_name) {
  open(f, 8 * GIB, "slab_random:1");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_check_order(f->rig.driver, 1));
  fill(f, 1200, 150 * KIB);
  vtest_rng rng = vtest_rng_make(vtest_seed(p->seed));
  VASSERT_OK(vmp_host_stream_synchronize(f->rig.driver, 0, f->rig.streams[0]));
  VASSERT_OK(vmp_host_work_set(f->rig.driver, p->mode, p->seed));
  for (int round = 0; round < 4; round++) {
    for (size_t i = 0; i < f->count; i++) {
      const held *b = &f->blocks[i];
      if (b->ptr == NULL) continue;
      const vmp_stream stream = f->rig.streams[i % RIG_STREAMS];
      VASSERT_OK(vmp_host_kernel(f->rig.driver, 0, b->ptr, b->bytes, 0, stream));  // reads
      if (stream != f->rig.streams[0]) VASSERT_OK(vmp_record_use(f->rig.pool, b->ptr, stream));
      if (vtest_rng_chance(&rng, 1, 2)) drop(f, i);
    }
    vmp_defragment_report report;
    VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
    rig_check(&f->rig);
  }
  rig_settle(&f->rig);
  VEXPECT_UINT_EQ(rig_counters(&f->rig).bad_touches, 0);
  VEXPECT_UINT_EQ(rig_counters(&f->rig).unmaps_under_work, 0);
  VEXPECT_UINT_EQ(rig_counters(&f->rig).unordered, 0);
  expect_content(f);
}

// ---- threads ----

typedef struct busy {
  heap *f;
  uint64_t ops, seed;
} busy;

// allocate_and_free touches no memory: that much is allowed while others compact.
static void *allocate_and_free(void *self) {
  busy *b = self;
  vtest_rng rng = vtest_rng_make(b->seed);
  void *blocks[32] = {NULL};
  for (uint64_t i = 0; i < b->ops; i++) {
    void **at = &blocks[vtest_rng_below(&rng, 32)];
    if (*at != NULL) rig_free(&b->f->rig, *at, b->f->rig.streams[0]);
    *at = rig_alloc(&b->f->rig, vtest_rng_log(&rng, 512, 3 * MIB), b->f->rig.streams[0]);
  }
  for (int i = 0; i < 32; i++) {
    if (blocks[i] != NULL) rig_free(&b->f->rig, blocks[i], b->f->rig.streams[0]);
  }
  return NULL;
}

VTEST_F(Compact, OthersAllocateAndFreeMeanwhile, heap) {
  enum { THREADS = 3 };
  open(f, 8 * GIB, "slab_random:1");
  VASSERT_NO_FAILURE();
  fill(f, 2000, 100 * KIB);
  keep_some(f, 8, vtest_seed(5));
  busy busies[THREADS];
  pthread_t threads[THREADS];
  for (uint64_t i = 0; i < THREADS; i++) {
    busies[i] = (busy){f, vtest_ops(20000) / 4, i + 1};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, allocate_and_free, &busies[i]), 0);
  }
  vmp_defragment_report report;
  for (int round = 0; round < 8; round++) {
    VEXPECT_OK(compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
  }
  for (int i = 0; i < THREADS; i++) (void)pthread_join(threads[i], NULL);
  rig_check(&f->rig);
  expect_content(f);
  VASSERT_OK(compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report));
  rig_check(&f->rig);
  expect_content(f);
}

// ---- failures ----

// The scenario: three chunks to split, and then slots to mesh.
static void make_sparse(heap *f) {
  open(f, 8 * GIB, "chunk_max:8MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  fill(f, 96, 256 * KIB);  // three chunks of four slots
  for (size_t i = 0; i < 96; i++) {
    if (i % 16 != (i / 16) % 8 && i % 32 != 21) drop(f, i);
  }
  rig_settle(&f->rig);
}

// Every driver call of a compaction fails in turn, once or from then on: the pool works on, no byte is lost once the
// driver works again, and nothing stays broken.
static void sweep(heap *f, int code, bool for_ever) {
  uint64_t nth = 1, lost = 0;
  for (bool hit = true; hit; nth++) {
    VTRACE("call number %llu", (unsigned long long)nth);
    make_sparse(f);
    VASSERT_NO_FAILURE();
    vmp_host_fault fault = {VMP_CALL_COUNT, nth, code, for_ever};
    VASSERT_TRUE(vmp_host_inject(f->rig.driver, &fault));
    uint64_t calls = rig_all_calls(f->rig.driver);
    vmp_defragment_report report;
    (void)compact(f, VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH, &report);
    hit = rig_all_calls(f->rig.driver) - calls >= nth;
    rig_check(&f->rig);
    vmp_host_lift(f->rig.driver);
    lost += f->rig.pool == NULL ? 0 : rig_stats(&f->rig).broken > 0;
    trim(f);  // polls: what was lost is mapped again
    rig_check(&f->rig);
    VEXPECT_UINT_EQ(rig_stats(&f->rig).broken, 0);
    expect_content(f);
    VASSERT_NO_FAILURE();
    heap_teardown(f);
    *f = (heap){.count = 0};
    VASSERT_NO_FAILURE();
  }
  printf("%llu calls failed in turn; %llu left something to be mapped again\n", (unsigned long long)nth - 2,
         (unsigned long long)lost);
  VEXPECT_UINT_GT(nth, 40);
}

VTEST_F(Compact, EveryCallFailsOnce, heap) { sweep(f, VMP_CU_UNKNOWN, false); }
VTEST_F(Compact, EveryCallRunsOutOfMemoryOnce, heap) { sweep(f, VMP_CU_OUT_OF_MEMORY, false); }
VTEST_F(Compact, EveryCallFailsFromThenOn, heap) { sweep(f, VMP_CU_UNKNOWN, true); }
