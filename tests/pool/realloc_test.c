// realloc_test.c: vmp_realloc keeps every byte, in place, by remapping and by copying; it says which it was; a failure
// changes nothing; old addresses stay mapped for the work that was queued with them.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

static vmp_realloc_report resize(pool_rig *rig, void **ptr, uint64_t bytes, vmp_stream stream) {
  vmp_realloc_report report = VMP_REALLOC_REPORT_INIT;
  void *before = *ptr;
  VEXPECT_OK(vmp_realloc(rig->pool, ptr, bytes, stream, &report));
  VEXPECT_INT_EQ(report.moved, *ptr != before);
  return report;
}

static vmp_block_info block_info(pool_rig *rig, const void *ptr) {
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(rig->pool, ptr, &info));
  return info;
}

// ---- to show (3): 1 GiB to 2 GiB copies nothing ----

VTEST_F(Realloc, OneGibToTwoCopiesNothing, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, GIB, rig->streams[0]);
  void *wall = rig_alloc(rig, 8 * MIB, rig->streams[0]);  // right behind it: no room to grow
  VASSERT_TRUE(rig_address(wall) == rig_address(block) + GIB);
  rig_write_pattern(rig, block, GIB, 1);
  rig_touch(rig, block, GIB, rig->streams[0]);  // queued with the old address, and still to run
  vmp_driver_calls before = rig_calls(rig);
  vmp_pool_stats_data old = rig_stats(rig);
  vmp_realloc_report report = resize(rig, &block, 2 * GIB, rig->streams[0]);
  vmp_driver_calls after = rig_calls(rig);
  VEXPECT_INT_EQ(report.moved, 1);
  VEXPECT_UINT_EQ(report.copied_bytes, 0);
  VEXPECT_UINT_EQ(report.remapped_bytes, GIB);
  printf(
      "1 GiB to 2 GiB: copied %llu, remapped %llu; calls: create %llu, map %llu, set-access %llu, unmap %llu, release "
      "%llu\n",
      (unsigned long long)report.copied_bytes, (unsigned long long)report.remapped_bytes,
      (unsigned long long)(after.create - before.create), (unsigned long long)(after.map - before.map),
      (unsigned long long)(after.set_access - before.set_access), (unsigned long long)(after.unmap - before.unmap),
      (unsigned long long)(after.release - before.release));
  VEXPECT_UINT_EQ(after.create - before.create, 32);         // the second GiB, in chunks of 32 MiB
  VEXPECT_UINT_EQ(after.map - before.map, 64);               // one for each chunk
  VEXPECT_UINT_EQ(after.set_access - before.set_access, 2);  // one for what moved, one for what is new
  VEXPECT_UINT_EQ(after.unmap - before.unmap, 0);            // the old mappings serve the queued work
  vmp_pool_stats_data now = rig_stats(rig);
  VEXPECT_UINT_EQ(now.retiring, GIB);
  VEXPECT_UINT_EQ(now.mapped, old.mapped + GIB);
  VEXPECT_UINT_EQ(now.live, old.live + GIB);
  rig_touch(rig, block, 2 * GIB, rig->streams[0]);
  rig_check(rig);
  rig_settle(rig);
  VEXPECT_UINT_EQ(rig_stats(rig).retiring, 0);
  rig_expect_pattern(rig, block, GIB, 1);
  rig_free(rig, block, rig->streams[0]);
  rig_free(rig, wall, rig->streams[0]);
}

VTEST_F(Realloc, GrowsWhereItIs, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, GIB, NULL);
  rig_write_pattern(rig, block, 3 * MIB, 2);
  vmp_driver_calls before = rig_calls(rig);
  vmp_realloc_report report = resize(rig, &block, 2 * GIB, NULL);
  vmp_driver_calls after = rig_calls(rig);
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_UINT_EQ(report.copied_bytes + report.remapped_bytes, 0);
  VEXPECT_UINT_EQ(after.map - before.map, 32);
  VEXPECT_UINT_EQ(block_info(rig, block).requested_bytes, 2 * GIB);
  rig_expect_pattern(rig, block, 3 * MIB, 2);
  rig_check(rig);
  // Within what is mapped already no driver call is needed.
  report = resize(rig, &block, 700 * MIB, NULL);
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_UINT_EQ(rig_stats(rig).live, 700 * MIB);
  before = rig_calls(rig);
  report = resize(rig, &block, 1900 * MIB, NULL);
  after = rig_calls(rig);
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_UINT_EQ(after.map + after.create, before.map + before.create);
  rig_check(rig);
  rig_free(rig, block, NULL);
  VEXPECT_UINT_EQ(rig_stats(rig).live, 0);
}

// ---- shapes ----

VTEST_F(Realloc, NothingAndNull, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = NULL;
  vmp_realloc_report report = resize(rig, &block, 0, NULL);
  VEXPECT_TRUE(block == NULL);
  report = resize(rig, &block, 5 * MIB, NULL);
  VEXPECT_INT_EQ(report.moved, 1);
  VASSERT_TRUE(block != NULL);
  VEXPECT_OK(vmp_realloc(rig->pool, &block, 6 * MIB, NULL, NULL));
  (void)resize(rig, &block, 0, NULL);
  VEXPECT_TRUE(block == NULL);
  VEXPECT_UINT_EQ(rig_stats(rig).blocks, 0);
}

VTEST_F(Realloc, SmallBlocks, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, 700, NULL);
  rig_write_pattern(rig, block, 700, 3);
  vmp_realloc_report report = resize(rig, &block, 1000, NULL);  // the object holds 1024
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_UINT_EQ(block_info(rig, block).requested_bytes, 1000);
  report = resize(rig, &block, 40000, NULL);  // another class
  VEXPECT_INT_EQ(report.moved, 1);
  VEXPECT_UINT_EQ(report.copied_bytes, 1000);
  rig_settle(rig);
  rig_expect_pattern(rig, block, 700, 3);
  rig_write_pattern(rig, block, 40000, 4);
  report = resize(rig, &block, 3 * MIB, NULL);  // to mid
  VEXPECT_UINT_EQ(report.copied_bytes, 40000);
  VEXPECT_STR_EQ(block_info(rig, block).layer, "mid");
  rig_settle(rig);
  rig_expect_pattern(rig, block, 40000, 4);
  report = resize(rig, &block, 100, NULL);  // stays mid's, and holds 512
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_STR_EQ(block_info(rig, block).layer, "mid");
  VEXPECT_UINT_EQ(block_info(rig, block).bytes, 512);
  rig_expect_pattern(rig, block, 100, 4);
  rig_check(rig);
  rig_free(rig, block, NULL);
}

VTEST_F(Realloc, BuddyBlocks, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 2 * GIB, "buddy_from:16MiB,chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, 30 * MIB, NULL);
  VEXPECT_STR_EQ(block_info(rig, block).layer, "buddy");
  rig_write_pattern(rig, block, 30 * MIB, 5);
  vmp_realloc_report report = resize(rig, &block, 100 * MIB, NULL);  // into its own tail and what lies behind
  VEXPECT_INT_EQ(report.moved, 0);
  rig_check(rig);
  rig_expect_pattern(rig, block, 30 * MIB, 5);
  report = resize(rig, &block, 22 * MIB + 1, NULL);
  VEXPECT_INT_EQ(report.moved, 0);
  VEXPECT_UINT_EQ(block_info(rig, block).bytes, 24 * MIB);
  VEXPECT_UINT_EQ(rig_stats(rig).buddy_live, 24 * MIB);
  rig_check(rig);
  void *wall = rig_alloc(rig, 16 * MIB, NULL);  // behind it, where it was
  VASSERT_TRUE(rig_address(wall) > rig_address(block) && rig_address(wall) < rig_address(block) + 100 * MIB);
  report = resize(rig, &block, 90 * MIB, NULL);
  VEXPECT_INT_EQ(report.moved, 1);
  VEXPECT_UINT_GT(report.remapped_bytes, 0);
  rig_check(rig);
  rig_settle(rig);
  rig_expect_pattern(rig, block, 22 * MIB + 1, 5);
  rig_check(rig);
  rig_free(rig, block, NULL);
  rig_free(rig, wall, NULL);
  rig_check(rig);
}

// A guarded block ends where its guard begins: it is copied when it grows, and keeps its slots when it shrinks.
VTEST_F(Realloc, GuardedBlocks, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "guard_slots:1");
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, 5 * MIB, NULL);
  rig_write_pattern(rig, block, 5 * MIB, 6);
  VEXPECT_INT_EQ(resize(rig, &block, 3 * MIB, NULL).moved, 0);
  rig_check(rig);
  VEXPECT_UINT_EQ(resize(rig, &block, 9 * MIB, NULL).copied_bytes, 3 * MIB);
  rig_settle(rig);
  rig_expect_pattern(rig, block, 3 * MIB, 6);
  rig_check(rig);
  rig_free(rig, block, NULL);
}

// Head and tail in shared chunks are copied, what lies between moves.
VTEST_F(Realloc, CopiesOnlyWhatSharesAChunk, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *before = rig_alloc(rig, 300 * KIB, NULL);
  void *block = rig_alloc(rig, 9 * MIB, NULL);
  void *behind = rig_alloc(rig, 5 * MIB, NULL);
  VASSERT_TRUE(rig_address(block) == rig_address(before) + 300 * KIB);
  VASSERT_TRUE(rig_address(behind) == rig_address(block) + 9 * MIB);
  rig_write_pattern(rig, block, 9 * MIB, 6);
  rig_write_pattern(rig, behind, 5 * MIB, 7);
  rig_write_pattern(rig, before, 300 * KIB, 8);
  vmp_realloc_report report = resize(rig, &block, 20 * MIB, NULL);
  VEXPECT_INT_EQ(report.moved, 1);
  VEXPECT_UINT_EQ(report.remapped_bytes, 6 * MIB);
  VEXPECT_UINT_EQ(report.copied_bytes, 3 * MIB);
  rig_check(rig);
  rig_settle(rig);
  rig_expect_pattern(rig, block, 9 * MIB, 6);
  rig_expect_pattern(rig, behind, 5 * MIB, 7);
  rig_expect_pattern(rig, before, 300 * KIB, 8);
  VEXPECT_UINT_EQ(rig_address(block) % GRANULE, 300 * KIB);  // the content keeps its place in the chunks
  rig_free(rig, before, NULL);
  rig_free(rig, block, NULL);
  rig_free(rig, behind, NULL);
}

VTEST_F(Realloc, TagAndNameStay, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 2 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tags[2];
  VASSERT_OK(vmp_tag_intern(rig->pool, "plain", &tags[0]));
  VASSERT_OK(vmp_tag_create(rig->pool, "own", &tags[1]));
  for (int t = 0; t < 2; t++) {
    vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
    options.tag = tags[t];
    options.name = "block";
    void *block = NULL, *wall = NULL;
    VASSERT_OK(vmp_alloc_with(rig->pool, &block, 1000, NULL, &options));
    static const uint64_t sizes[] = {3000, 2 * MIB, 40 * MIB, 90 * MIB, 7 * MIB};
    for (size_t i = 0; i < 5; i++) {
      (void)resize(rig, &block, sizes[i], NULL);
      VEXPECT_STR_EQ(block_info(rig, block).name, "block");
      VEXPECT_UINT_EQ(block_info(rig, block).tag, tags[t]);
      vmp_tag_info info = VMP_TAG_INFO_INIT;
      VEXPECT_OK(vmp_tag_query(rig->pool, tags[t], &info));
      VEXPECT_UINT_EQ(info.blocks, 1);
      VEXPECT_UINT_EQ(info.requested, sizes[i]);
      VEXPECT_UINT_EQ(info.live, block_info(rig, block).bytes);
      rig_check(rig);
      if (i == 2)
        VASSERT_OK(vmp_alloc_with(rig->pool, &wall, 512 * KIB, NULL,
                                  &(vmp_alloc_options){.struct_size = sizeof options, .tag = tags[t]}));
      if (i == 2) VASSERT_OK(vmp_free(rig->pool, wall, NULL));
    }
    rig_free(rig, block, NULL);
  }
}

VTEST_F(Realloc, APinnedBlockStays, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, 20 * MIB, NULL);
  VASSERT_OK(vmp_pin(rig->pool, block, "nic"));
  uint64_t generation = 0, now = 0;
  VEXPECT_OK(vmp_range_generation(rig->pool, block, 4 * MIB, &generation));
  VEXPECT_INT_EQ(resize(rig, &block, 60 * MIB, NULL).moved, 0);
  void *wall = rig_alloc(rig, MIB, NULL), *before = block;
  VASSERT_TRUE(rig_address(wall) == rig_address(block) + 60 * MIB);
  vmp_pool_stats_data stats = rig_stats(rig);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &block, 61 * MIB, NULL, NULL), VMP_ERROR_BUSY);
  VEXPECT_TRUE(block == before);
  vmp_pool_stats_data after = rig_stats(rig);
  rig_expect_same_state(&stats, &after);
  VEXPECT_INT_EQ(resize(rig, &block, 3 * MIB, NULL).moved, 0);
  VEXPECT_OK(vmp_range_generation(rig->pool, block, 4 * MIB, &now));
  VEXPECT_UINT_EQ(now, generation);
  rig_check(rig);
  VEXPECT_OK(vmp_unpin(rig->pool, block));
  rig_free(rig, block, NULL);
  rig_free(rig, wall, NULL);
}

VTEST_F(Realloc, WrongArgumentsAreRefused, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(rig, 20 * MIB, NULL), *inside = rig_at(block, 512), *foreign = rig,
       *gone = rig_alloc(rig, MIB, NULL);
  vmp_realloc_report report = VMP_REALLOC_REPORT_INIT;
  rig_free(rig, gone, NULL);
  VEXPECT_INT_EQ(vmp_realloc(NULL, &block, 1, NULL, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, NULL, 1, NULL, NULL), VMP_ERROR_INVALID_VALUE);
  report.struct_size = 8;
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &block, 1, NULL, &report), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &inside, 1, NULL, NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &foreign, 1, NULL, NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &gone, 4 * MIB, NULL, NULL), VMP_ERROR_DOUBLE_FREE);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &block, SIZE_MAX, NULL, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &block, 2 * GIB, NULL, NULL), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_TRUE(inside == rig_at(block, 512) && foreign == rig);
  rig_free(rig, block, NULL);
}

// Too little memory for the growth: nothing has changed, with and without room behind the block.
VTEST_F(Realloc, OutOfMemoryChangesNothing, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 64 * MIB, "chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *other = rig_alloc(rig, 4 * MIB, NULL), *block = rig_alloc(rig, 40 * MIB, NULL), *wall = NULL;
  rig_write_pattern(rig, block, 40 * MIB, 9);
  for (int i = 0; i < 2; i++) {
    void *before = block;
    if (i == 1) wall = rig_alloc(rig, 2 * MIB, NULL);
    rig_settle(rig);
    vmp_pool_stats_data stats = rig_stats(rig);
    VEXPECT_INT_EQ(vmp_realloc(rig->pool, &block, 62 * MIB, NULL, NULL), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_TRUE(block == before);
    vmp_pool_stats_data after = rig_stats(rig);
    rig_expect_same_state(&stats, &after);
    rig_check(rig);
  }
  rig_expect_pattern(rig, block, 40 * MIB, 9);
  (void)resize(rig, &block, 58 * MIB, NULL);  // all that is left
  rig_settle(rig);
  rig_expect_pattern(rig, block, 40 * MIB, 9);
  rig_check(rig);
  rig_free(rig, block, NULL);
  rig_free(rig, wall, NULL);
  rig_free(rig, other, NULL);
}

// ---- order ----

// Streams that were recorded go on under the old address; the new one is ordered behind them.
VTEST_F(Realloc, RecordedStreamsAreWaitedFor, pool_rig) {
  pool_rig *rig = f;
  rig_open_driver(rig, GIB);
  VASSERT_NO_FAILURE();
  vmp_host_check_order(rig->driver, true);
  VASSERT_OK(rig_create(rig, "chunk_max:2MiB,no_map_ahead:1"));
  for (int small = 0; small < 2; small++) {
    uint64_t bytes = small ? 5000 : 9 * MIB + 512;
    void *block = rig_alloc(rig, bytes, rig->streams[0]);
    void *wall = rig_alloc(rig, MIB, rig->streams[0]);
    VEXPECT_OK(vmp_host_fill(rig->driver, 0, block, 0x5a, bytes, rig->streams[0]));
    VEXPECT_OK(vmp_record_use(rig->pool, block, rig->streams[0]));
    VEXPECT_OK(vmp_record_use(rig->pool, block, rig->streams[2]));
    // Ordered by the caller, as a program would: stream 2 works on it behind stream 0.
    VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[0]));
    VEXPECT_OK(vmp_host_fill(rig->driver, 0, block, 0xa5, bytes, rig->streams[2]));
    vmp_realloc_report report = resize(rig, &block, 2 * bytes, rig->streams[1]);
    VEXPECT_INT_EQ(report.moved, 1);
    unsigned char *data = malloc(bytes);
    VASSERT_TRUE(data != NULL);
    VEXPECT_OK(vmp_host_copy_out(rig->driver, 0, data, block, bytes, rig->streams[1]));
    VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[1]));
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < bytes; i++) wrong += data[i] != 0xa5;
    VEXPECT_UINT_EQ(wrong, 0);
    free(data);
    rig_free(rig, block, rig->streams[1]);
    rig_free(rig, wall, rig->streams[0]);
    VEXPECT_UINT_EQ(rig_counters(rig).unordered, 0);
  }
}

// ---- many, on four streams, in the late and seeded modes: every byte, and not one touch of unmapped memory ----

typedef struct tracked {
  void *ptr;
  uint64_t bytes, seed;
  int stream;  // that everything on it is ordered behind
} tracked;

static void fill(pool_rig *rig, tracked *b) {
  VEXPECT_OK(vmp_host_fill(rig->driver, 0, b->ptr, (unsigned char)b->seed, b->bytes, rig->streams[b->stream]));
}

static void expect_filled(pool_rig *rig, const tracked *b, uint64_t bytes) {
  static unsigned char data[24 * MIB];
  VEXPECT_OK(vmp_host_copy_out(rig->driver, 0, data, b->ptr, bytes, rig->streams[b->stream]));
  VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[b->stream]));
  bool same = bytes == 0 || (data[0] == (unsigned char)b->seed && memcmp(data, data + 1, (size_t)bytes - 1) == 0);
  VEXPECT_TRUE(same);
}

static void play(pool_rig *rig, vmp_host_work mode, uint64_t seed, const char *conf) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = 192 * MIB;
  options.ledger_high = 1;
  options.work = mode;
  options.work_seed = seed;
  options.check_order = 1;
  options.leaks_at_close = NULL;
  rig_open_driver_with(rig, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(rig, conf));
  vtest_rng rng = vtest_rng_make(seed);
  enum { BLOCKS = 16 };
  tracked blocks[BLOCKS] = {{0}};
  uint64_t moved = 0, in_place = 0, remapped = 0;
  for (int i = 0; i < 500 && !vtest_has_failure(); i++) {
    tracked *b = &blocks[vtest_rng_below(&rng, BLOCKS)];
    uint64_t bytes =
        vtest_rng_chance(&rng, 1, 3) ? vtest_rng_range(&rng, 1, 90000) : vtest_rng_range(&rng, 1, 20 * MIB);
    int stream = (int)vtest_rng_below(&rng, RIG_STREAMS);
    if (b->ptr == NULL) {
      b->stream = stream;
      b->bytes = bytes;
      b->seed = (uint64_t)i;
      if (vmp_alloc(rig->pool, &b->ptr, bytes, rig->streams[stream]) == VMP_OK) fill(rig, b);
      continue;
    }
    if (vtest_rng_chance(&rng, 1, 3)) {
      // Everything that touched it is on one stream, which the next user is ordered behind by the free.
      VEXPECT_OK(vmp_free(rig->pool, b->ptr, rig->streams[b->stream]));
      *b = (tracked){0};
      continue;
    }
    if (stream != b->stream) VEXPECT_OK(vmp_record_use(rig->pool, b->ptr, rig->streams[b->stream]));
    vmp_realloc_report report = VMP_REALLOC_REPORT_INIT;
    int on = vtest_rng_chance(&rng, 1, 2) ? b->stream : stream;
    uint64_t kept = bytes < b->bytes ? bytes : b->bytes;
    vmp_status status = vmp_realloc(rig->pool, &b->ptr, bytes, rig->streams[on], &report);
    if (status != VMP_OK) continue;
    moved += report.moved != 0;
    in_place += report.moved == 0;
    remapped += report.remapped_bytes > 0;
    // In place the new stream isn't ordered behind the old one, nor the old one behind the memory that was added.
    if (!report.moved && on != b->stream) {
      VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[b->stream]));
    }
    b->stream = on;
    b->bytes = bytes;
    expect_filled(rig, b, kept);
    b->seed = (uint64_t)i;
    fill(rig, b);
    if (i % 64 == 0) VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  }
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i].ptr != NULL) expect_filled(rig, &blocks[i], blocks[i].bytes);
    if (blocks[i].ptr != NULL) rig_free(rig, blocks[i].ptr, rig->streams[blocks[i].stream]);
  }
  VEXPECT_UINT_GT(moved, 20);
  VEXPECT_UINT_GT(in_place, 20);
  VEXPECT_UINT_GT(remapped, 5);
  VEXPECT_UINT_EQ(rig_counters(rig).unordered, 0);
}

VTEST_F(Realloc, FourStreamsLate, pool_rig) { play(f, VMP_HOST_WORK_LATE, vtest_seed(21), "chunk_max:4MiB"); }
VTEST_F(Realloc, FourStreamsSeeded, pool_rig) { play(f, VMP_HOST_WORK_SEED, vtest_seed(22), "chunk_max:4MiB"); }
VTEST_F(Realloc, FourStreamsBuddy, pool_rig) {
  play(f, VMP_HOST_WORK_SEED, vtest_seed(24), "preset:buddy,chunk_max:4MiB");
}
VTEST_F(Realloc, FourStreamsTight, pool_rig) { play(f, VMP_HOST_WORK_SEED, vtest_seed(23), "preset:tight"); }

// ---- compaction in another thread ----

enum { CHANGED = 2 };
typedef struct meanwhile {
  pool_rig *rig;
  pthread_t threads[CHANGED];
  void *blocks[CHANGED];
  uint64_t bytes[CHANGED];
  atomic_int next, done;
  int started, done_meanwhile;
} meanwhile;

static void *resize_one(void *self) {
  meanwhile *m = self;
  int i = atomic_fetch_add(&m->next, 1);
  VEXPECT_OK(vmp_realloc(m->rig->pool, &m->blocks[i], m->bytes[i], NULL, NULL));
  atomic_fetch_add(&m->done, 1);
  return NULL;
}

static void while_unmapping(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  meanwhile *m = self;
  (void)address;
  (void)bytes;
  (void)generation;
  if (m->started > 0) return;
  for (; m->started < CHANGED; m->started++) {
    VASSERT_INT_EQ(pthread_create(&m->threads[m->started], NULL, resize_one, m), 0);
  }
  struct timespec while_ = {.tv_nsec = 50000000};
  (void)nanosleep(&while_, NULL);
  m->done_meanwhile = atomic_load(&m->done);
}

// A block that compaction copies is neither copied nor cut half way: one shrinks and one moves, while their chunk of
// 32 MiB is replaced.
VTEST_F(Realloc, WaitsForCompaction, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  enum { BLOCKS = 8 };
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(rig, 4 * MIB, NULL);
  meanwhile m = {.rig = rig, .blocks = {blocks[0], blocks[4]}, .bytes = {MIB, 40 * MIB}};
  for (size_t i = 0; i < CHANGED; i++) rig_write_pattern(rig, m.blocks[i], 4 * MIB, i + 1);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (i % 4 != 0) rig_free(rig, blocks[i], NULL);
  }
  rig_settle(rig);
  vmp_remap_callbacks callbacks = {&m, while_unmapping, NULL};
  VASSERT_OK(vmp_remap_register(rig->pool, &callbacks));
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT | VMP_DEFRAGMENT_MESH;
  VEXPECT_OK(vmp_quiescent_begin(rig->pool));
  VEXPECT_OK(vmp_pool_defragment(rig->pool, &options, &report));
  VEXPECT_OK(vmp_quiescent_end(rig->pool));
  VASSERT_INT_EQ(m.started, CHANGED);
  for (int i = 0; i < CHANGED; i++) (void)pthread_join(m.threads[i], NULL);
  VEXPECT_OK(vmp_remap_unregister(rig->pool, &m));
  VEXPECT_INT_EQ(m.done_meanwhile, 0);
  VEXPECT_UINT_EQ(report.split_chunks, 1);
  rig_settle(rig);
  VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  rig_expect_pattern(rig, m.blocks[0], MIB, 1);
  rig_expect_pattern(rig, m.blocks[1], 4 * MIB, 2);
  for (size_t i = 0; i < CHANGED; i++) rig_free(rig, m.blocks[i], NULL);
}

// ---- a function called for lack of memory ----

typedef struct short_of_memory {
  void *other;
  vmp_tag own, kept;
  vmp_status compacted, own_suspended, kept_suspended, resized, pinned;
  int calls;
} short_of_memory;

static int make_room(void *self, vmp_pool *pool, uint64_t bytes, unsigned attempt) {
  short_of_memory *s = self;
  (void)bytes;
  (void)attempt;
  s->calls++;
  VEXPECT_OK(vmp_quiescent_begin(pool));
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.allow_copy = VMP_DEFRAGMENT_SPLIT;
  s->compacted = vmp_pool_defragment(pool, &options, NULL);
  VEXPECT_OK(vmp_quiescent_end(pool));
  s->resized = vmp_realloc(pool, &s->other, 300 * KIB, NULL, NULL);
  s->pinned = vmp_pin(pool, s->other, NULL);
  if (s->pinned == VMP_OK) VEXPECT_OK(vmp_unpin(pool, s->other));
  vmp_suspend_options suspend = VMP_SUSPEND_OPTIONS_INIT;
  s->own_suspended = vmp_pool_suspend(pool, s->own, &suspend);
  s->kept_suspended = vmp_pool_suspend(pool, s->kept, &suspend);
  return 1;
}

// It waits for nothing that waits for itself, and another tag's memory serves.
VTEST_F(Realloc, CallsForRoom, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  short_of_memory s = {.other = rig_alloc(rig, 2 * MIB, NULL)};
  VASSERT_OK(vmp_tag_create(rig->pool, "own", &s.own));
  VASSERT_OK(vmp_tag_create(rig->pool, "kept", &s.kept));
  void *own = NULL, *kept = NULL;
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = s.own;
  VASSERT_OK(vmp_alloc_with(rig->pool, &own, 16 * MIB, NULL, &options));
  options.tag = s.kept;
  VASSERT_OK(vmp_alloc_with(rig->pool, &kept, 32 * MIB, NULL, &options));
  rig_write_pattern(rig, own, 16 * MIB, 1);
  rig_write_pattern(rig, kept, 32 * MIB, 2);
  VASSERT_OK(vmp_pool_set_oom_callback(rig->pool, make_room, &s));
  (void)resize(rig, &own, 44 * MIB, NULL);
  VEXPECT_INT_EQ(s.calls, 1);
  VEXPECT_INT_EQ(s.compacted, VMP_ERROR_BUSY);
  VEXPECT_INT_EQ(s.own_suspended, VMP_ERROR_BUSY);
  VEXPECT_OK(s.kept_suspended);
  VEXPECT_OK(s.resized);
  VEXPECT_OK(s.pinned);
  rig_expect_pattern(rig, own, 16 * MIB, 1);
  VEXPECT_OK(vmp_pool_set_oom_callback(rig->pool, NULL, NULL));
  rig_free(rig, own, NULL);
  VEXPECT_OK(vmp_pool_resume(rig->pool, s.kept));
  rig_expect_pattern(rig, kept, 32 * MIB, 2);
  rig_free(rig, kept, NULL);
  rig_free(rig, s.other, NULL);
}
