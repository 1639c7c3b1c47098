// defragment_test.c: idle memory gathered behind one another. Nothing live moves, nothing is copied, nothing is lost.
// Bug cases 61, 62, 63. With tight chunks (one granule each) all figures are known by hand.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

#define TIGHT "preset:tight"
#define BLOCKS 64

static vmp_defragment_report gather_with(pool_rig *f, const vmp_defragment_options *options) {
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  VEXPECT_OK(vmp_pool_defragment(f->pool, options, &report));
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  return report;
}

static vmp_defragment_report gather(pool_rig *f) { return gather_with(f, NULL); }

// comb fills memory with blocks of `bytes` and frees every second one, beginning with the first.
static void comb(pool_rig *f, void **blocks, size_t count, uint64_t bytes, vmp_stream stream) {
  for (size_t i = 0; i < count; i++) blocks[i] = rig_alloc(f, bytes, stream);
  for (size_t i = 0; i < count; i += 2) {
    rig_free(f, blocks[i], stream);
    blocks[i] = NULL;
  }
}

static void free_all(pool_rig *f, void **blocks, size_t count, vmp_stream stream) {
  for (size_t i = 0; i < count; i++) {
    if (blocks[i] != NULL) rig_free(f, blocks[i], stream);
    blocks[i] = NULL;
  }
}

// The stamp of a block's granules: data that must be where it was afterwards.
static void stamp(pool_rig *f, void *block, uint64_t bytes, unsigned char value) {
  for (uint64_t at = 0; at < bytes; at += GRANULE / 2) {
    VEXPECT_INT_EQ(vmp_host_poke(f->driver, rig_address(block) + at, &value, 1), 0);
  }
}

static void expect_stamp(pool_rig *f, void *block, uint64_t bytes, unsigned char value) {
  for (uint64_t at = 0; at < bytes; at += GRANULE / 2) {
    unsigned char seen = 0;
    VEXPECT_INT_EQ(vmp_host_peek(f->driver, rig_address(block) + at, &seen, 1), 0);
    VASSERT_UINT_EQ(seen, value);
  }
}

// 32 parked granules, each between live ones, become one block of 32 granules: 31 at least have to move.
VTEST_F(Defragment, ACombBecomesOneBlock, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  void *blocks[BLOCKS];
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  VASSERT_NO_FAILURE();
  for (size_t i = 1; i < BLOCKS; i += 2) stamp(f, blocks[i], GRANULE, (unsigned char)i);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, GRANULE);
  vmp_driver_calls before = rig_calls(f);
  vmp_defragment_report r = gather(f);
  vmp_driver_calls after = rig_calls(f);
  VEXPECT_UINT_EQ(r.largest_free_mapped_before, GRANULE);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, BLOCKS / 2 * GRANULE);
  VEXPECT_UINT_GE(r.moved_chunks, BLOCKS / 2 - 1);
  VEXPECT_UINT_LE(r.moved_chunks, BLOCKS / 2);
  VEXPECT_UINT_EQ(r.moved_bytes, r.moved_chunks * GRANULE);
  VEXPECT_UINT_EQ(r.released_bytes, 0);
  VEXPECT_UINT_EQ(r.retiring, 0);
  VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_NO_GAIN);
  VEXPECT_STR_NE(r.reason, "");
  // The calls are the driver's own count: a map each, one set-access, an unmap each (no two old places touch).
  VEXPECT_UINT_EQ(r.map_calls, r.moved_chunks);
  VEXPECT_UINT_EQ(r.set_access_calls, 1);
  VEXPECT_UINT_EQ(r.unmap_calls, r.moved_chunks);
  VEXPECT_UINT_EQ(r.map_calls, after.map - before.map);
  VEXPECT_UINT_EQ(r.set_access_calls, after.set_access - before.set_access);
  VEXPECT_UINT_EQ(r.unmap_calls, after.unmap - before.unmap);
  VEXPECT_UINT_EQ(after.create, before.create);
  VEXPECT_UINT_EQ(after.stream_wait, before.stream_wait);
  // The block can be had without a call that maps.
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_EQ(s.largest_free_mapped, BLOCKS / 2 * GRANULE);
  VEXPECT_UINT_EQ(s.parked, BLOCKS / 2 * GRANULE);
  uint64_t calls = rig_all_calls(f->driver);
  void *large = rig_alloc(f, BLOCKS / 2 * GRANULE, NULL);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  for (size_t i = 1; i < BLOCKS; i += 2) expect_stamp(f, blocks[i], GRANULE, (unsigned char)i);
  rig_free(f, large, NULL);
  free_all(f, blocks, BLOCKS, NULL);
}

static void expect_moves_nothing(pool_rig *f) {
  uint64_t maps = rig_calls(f).map;
  vmp_pool_stats_data before = rig_stats(f);
  vmp_defragment_report r = gather(f);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(r.moved_bytes + r.moved_chunks + r.map_calls + r.set_access_calls + r.released_bytes, 0);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, r.largest_free_mapped_before);
  VEXPECT_UINT_EQ(rig_calls(f).map, maps);
  rig_expect_same_state(&before, &after);
}

VTEST_F(Defragment, TheSecondRunMovesNothing, pool_rig) {
  static const char *const confs[] = {TIGHT,
                                      NULL,
                                      "chunk_max:8MiB,no_map_ahead:1",
                                      "preset:buddy",
                                      "preset:classic",
                                      "cross_stream:complete,preset:tight"};
  rig_open_driver(f, 4 * GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t c = 0; c < sizeof confs / sizeof confs[0]; c++) {
    VTRACE("%s", confs[c] == NULL ? "defaults" : confs[c]);
    VASSERT_OK(rig_create(f, confs[c]));
    vtest_rng rng = vtest_rng_make(vtest_seed(c));
    void *blocks[200] = {NULL};
    for (size_t i = 0; i < 200; i++) blocks[i] = rig_alloc(f, vtest_rng_log(&rng, 100 * KIB, 12 * MIB), NULL);
    for (size_t i = 0; i < 200; i++) {
      if (!vtest_rng_chance(&rng, 2, 3)) continue;
      rig_free(f, blocks[i], NULL);
      blocks[i] = NULL;
    }
    vmp_defragment_report r = gather(f);
    VEXPECT_UINT_GE(r.largest_free_mapped_after, r.largest_free_mapped_before);
    expect_moves_nothing(f);
    free_all(f, blocks, 200, NULL);
    rig_destroy(f);
  }
}

// Chunks of several sizes: all that is parked comes together, but for what lies in slots that blocks use too.
VTEST_F(Defragment, MixedChunks, pool_rig) {
  rig_open(f, 4 * GIB, "chunk_max:8MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(f, (1 + i % 7) * GRANULE, NULL);
  for (size_t i = 0; i < BLOCKS; i += 2) {
    rig_free(f, blocks[i], NULL);
    blocks[i] = NULL;
  }
  uint64_t parked = rig_stats(f).parked;
  VASSERT_UINT_GE(parked, 16 * GRANULE);
  vmp_defragment_report r = gather(f);
  VEXPECT_UINT_LE(r.largest_free_mapped_before, parked / 4);
  VEXPECT_UINT_GE(r.largest_free_mapped_after, parked);
  VEXPECT_UINT_EQ(rig_stats(f).parked, parked);
  VEXPECT_UINT_LE(r.moved_bytes, parked);
  free_all(f, blocks, BLOCKS, NULL);
}

// Buddy's blocks: the place is aligned, a power of two is cut to what is needed.
VTEST_F(Defragment, InBuddy, pool_rig) {
  rig_open(f, GIB, "preset:buddy,chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  void *blocks[BLOCKS];
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  VEXPECT_UINT_EQ(rig_stats(f).largest_free_mapped, GRANULE);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.want_bytes = 24 * GRANULE;
  vmp_defragment_report r = gather_with(f, &options);
  VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_REACHED);
  uint64_t calls = rig_all_calls(f->driver);
  void *large = rig_alloc(f, 24 * GRANULE, NULL);
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  rig_free(f, large, NULL);
  free_all(f, blocks, BLOCKS, NULL);
}

VTEST_F(Defragment, NoMoreThanIsWanted, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  void *blocks[BLOCKS];
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.want_bytes = 10 * GRANULE - 512;
  vmp_defragment_report r = gather_with(f, &options);
  VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_REACHED);
  VEXPECT_UINT_GE(r.largest_free_mapped_after, options.want_bytes);
  VEXPECT_UINT_LE(r.largest_free_mapped_after, 10 * GRANULE);
  VEXPECT_UINT_LE(r.moved_chunks, 10);
  r = gather_with(f, &options);  // it is there
  VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_REACHED);
  VEXPECT_UINT_EQ(r.moved_chunks, 0);
  options.want_bytes = 100 * GRANULE;  // there are 32
  r = gather_with(f, &options);
  VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_NO_GAIN);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, 32 * GRANULE);
  free_all(f, blocks, BLOCKS, NULL);
}

VTEST_F(Defragment, ADryRunChangesNothing, pool_rig) {
  static const char *const confs[] = {TIGHT, "chunk_max:8MiB,no_map_ahead:1"};
  rig_open_driver(f, GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t c = 0; c < 2; c++) {
    VASSERT_OK(rig_create(f, confs[c]));
    void *blocks[BLOCKS];
    comb(f, blocks, BLOCKS, 3 * GRANULE, NULL);
    VEXPECT_OK(vmp_pool_trim(f->pool, UINT64_MAX, NULL));  // what has finished is known to have
    vmp_pool_stats_data before = rig_stats(f);
    uint64_t calls = rig_all_calls(f->driver);
    vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
    options.dry_run = 1;
    vmp_defragment_report dry = gather_with(f, &options);
    VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
    vmp_pool_stats_data after = rig_stats(f);
    rig_expect_same_state(&before, &after);
    vmp_defragment_report real = gather(f);
    VEXPECT_UINT_EQ(dry.largest_free_mapped_before, before.largest_free_mapped);
    VEXPECT_UINT_EQ(dry.largest_free_mapped_after, real.largest_free_mapped_after);
    VEXPECT_UINT_EQ(dry.moved_bytes, real.moved_bytes);
    VEXPECT_UINT_EQ(dry.moved_chunks, real.moved_chunks);
    VEXPECT_UINT_EQ(dry.map_calls, real.map_calls);
    VEXPECT_UINT_GE(dry.set_access_calls, real.set_access_calls);
    VEXPECT_UINT_GE(dry.unmap_calls, real.unmap_calls);
    free_all(f, blocks, BLOCKS, NULL);
    rig_destroy(f);
  }
}

VTEST_F(Defragment, NoMoreCallsThanAllowed, pool_rig) {
  rig_open_driver(f, GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  uint64_t last = 0;
  for (uint64_t allowed = 1; allowed <= 80; allowed++) {
    VTRACE("%llu calls", (unsigned long long)allowed);
    VASSERT_OK(rig_create(f, TIGHT));
    void *blocks[BLOCKS];
    comb(f, blocks, BLOCKS, GRANULE, NULL);
    vmp_driver_calls before = rig_calls(f);
    vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
    options.max_driver_calls = allowed;
    vmp_defragment_report r = gather_with(f, &options);
    vmp_driver_calls after = rig_calls(f);
    uint64_t made = after.map + after.set_access + after.unmap + after.release - before.map - before.set_access -
                    before.unmap - before.release;
    VEXPECT_UINT_LE(made, allowed);
    VEXPECT_UINT_EQ(made, r.map_calls + r.set_access_calls + r.unmap_calls + r.release_calls);
    VEXPECT_UINT_GE(r.largest_free_mapped_after, last);  // more calls never do less
    last = r.largest_free_mapped_after;
    if (last < 32 * GRANULE) VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_CALL_LIMIT);
    free_all(f, blocks, BLOCKS, NULL);
    rig_destroy(f);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_EQ(last, 32 * GRANULE);
}

// Beyond a limit memory goes back first, and within the calls that are allowed.
VTEST_F(Defragment, WhatIsBeyondALimitGoesBack, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  void *blocks[BLOCKS];
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  VASSERT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, 40 * GRANULE));  // 32 are live, 32 are parked
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  options.dry_run = 1;
  VEXPECT_UINT_EQ(gather_with(f, &options).released_bytes, 24 * GRANULE);
  options.dry_run = 0;
  options.max_driver_calls = 9;  // an unmap and a release each
  vmp_defragment_report r = gather_with(f, &options);
  VEXPECT_UINT_EQ(r.released_bytes, 4 * GRANULE);
  VEXPECT_UINT_EQ(r.release_calls, 4);
  r = gather(f);
  VEXPECT_UINT_EQ(r.released_bytes, 20 * GRANULE);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 40 * GRANULE);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, 8 * GRANULE);
  free_all(f, blocks, BLOCKS, NULL);
}

// Time that is up before anything was done: nothing is done.
VTEST_F(Defragment, ArgumentsAndTime, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  VEXPECT_STATUS(vmp_pool_defragment(NULL, NULL, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_pool_defragment(f->pool, NULL, NULL));
  options.struct_size = 8;
  VEXPECT_STATUS(vmp_pool_defragment(f->pool, &options, NULL), VMP_ERROR_INVALID_VALUE);
  report.struct_size = 0;
  VEXPECT_STATUS(vmp_pool_defragment(f->pool, NULL, &report), VMP_ERROR_INVALID_VALUE);
  // A time that never ends is one; so is the largest number of bytes.
  options = (vmp_defragment_options)VMP_DEFRAGMENT_OPTIONS_INIT;
  options.max_us = options.want_bytes = options.max_driver_calls = UINT64_MAX;
  void *blocks[BLOCKS];
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  VEXPECT_UINT_EQ(gather_with(f, &options).largest_free_mapped_after, 32 * GRANULE);
  free_all(f, blocks, BLOCKS, NULL);
  // However far it comes in a microsecond, the books are even.
  comb(f, blocks, BLOCKS, GRANULE, NULL);
  uint64_t mapped = rig_stats(f).mapped, parked = rig_stats(f).parked;
  options = (vmp_defragment_options)VMP_DEFRAGMENT_OPTIONS_INIT;
  options.max_us = 1;
  vmp_defragment_report r = gather_with(f, &options);
  VEXPECT_TRUE(r.stop == VMP_DEFRAGMENT_TIME_LIMIT || r.stop == VMP_DEFRAGMENT_NO_GAIN);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, mapped);
  VEXPECT_UINT_EQ(rig_stats(f).parked, parked);
  free_all(f, blocks, BLOCKS, NULL);
}

// Work that hasn't finished: it runs late, touching the old addresses, which stay until then. Who gets the memory is
// ordered behind it. Teardown finds no bad touch and no unmap under work.
VTEST_F(Defragment, PendingMemory, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(f, GRANULE, f->streams[1]);
  for (size_t i = 0; i < BLOCKS; i += 2) {
    rig_touch(f, blocks[i], GRANULE, f->streams[1]);
    rig_free(f, blocks[i], f->streams[1]);
    blocks[i] = NULL;
  }
  uint64_t pending = rig_stats(f).pending, waits = rig_calls(f).stream_wait;
  VASSERT_UINT_EQ(pending, 32 * GRANULE);
  vmp_defragment_report r = gather(f);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, 32 * GRANULE);
  VEXPECT_UINT_EQ(r.retiring, r.moved_bytes);
  VEXPECT_UINT_EQ(r.unmap_calls, 0);
  VEXPECT_UINT_EQ(rig_calls(f).stream_wait, waits);
  VEXPECT_UINT_EQ(rig_stats(f).pending, pending);
  expect_moves_nothing(f);
  void *large = rig_alloc(f, 32 * GRANULE, f->streams[1]);  // its own: no wait
  VEXPECT_UINT_EQ(rig_calls(f).stream_wait, waits);
  rig_free(f, large, f->streams[1]);
  large = rig_alloc(f, 32 * GRANULE, f->streams[3]);
  rig_touch(f, large, 32 * GRANULE, f->streams[3]);
  VEXPECT_UINT_GT(rig_calls(f).stream_wait, waits);
  rig_settle(f);
  VEXPECT_UINT_EQ(rig_stats(f).retiring, 0);
  rig_free(f, large, f->streams[3]);
  free_all(f, blocks, BLOCKS, NULL);
}

// A stream doesn't wait for memory that it freed itself: while two streams use idle memory, it stays where it is.
VTEST_F(Defragment, FencesStayApart, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(f, GRANULE, f->streams[i / 2 % 2]);
  for (size_t i = 0; i < BLOCKS; i += 2) {
    rig_touch(f, blocks[i], GRANULE, f->streams[i / 2 % 2]);
    rig_free(f, blocks[i], f->streams[i / 2 % 2]);
    blocks[i] = NULL;
  }
  expect_moves_nothing(f);
  uint64_t waits = rig_calls(f).stream_wait;
  void *own[16];
  for (size_t i = 0; i < 16; i++) own[i] = rig_alloc(f, GRANULE, f->streams[0]);
  VEXPECT_UINT_EQ(rig_calls(f).stream_wait, waits);
  free_all(f, own, 16, f->streams[0]);
  VEXPECT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[0]));
  VEXPECT_UINT_EQ(gather(f).largest_free_mapped_after, 32 * GRANULE);  // stream 1's alone is pending now
  free_all(f, blocks, BLOCKS, NULL);
}

// With complete_only pending memory stays where it is.
VTEST_F(Defragment, CompleteMemoryOnly, pool_rig) {
  rig_open(f, GIB, "preset:tight,cross_stream:complete");
  VASSERT_NO_FAILURE();
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(f, GRANULE, f->streams[0]);
  for (size_t i = 0; i < BLOCKS; i += 2) {
    if (i >= BLOCKS / 2) rig_touch(f, blocks[i], GRANULE, f->streams[1]);
    rig_free(f, blocks[i], f->streams[i < BLOCKS / 2 ? 0 : 1]);
    blocks[i] = NULL;
  }
  vmp_defragment_report r = gather(f);
  // 16 complete ones; one pending one of the range itself may stand where it is.
  VEXPECT_UINT_GE(r.largest_free_mapped_after, 16 * GRANULE);
  VEXPECT_UINT_LE(r.largest_free_mapped_after, 17 * GRANULE);
  VEXPECT_UINT_EQ(r.retiring, 0);
  rig_settle(f);
  VEXPECT_UINT_EQ(gather(f).largest_free_mapped_after, 32 * GRANULE);
  free_all(f, blocks, BLOCKS, NULL);
}

// However often it runs under work that never finishes, old addresses don't pile up beyond what the pool holds twice.
VTEST_F(Defragment, OldAddressesAreBounded, pool_rig) {
  rig_open(f, GIB, TIGHT);
  VASSERT_NO_FAILURE();
  vtest_rng rng = vtest_rng_make(vtest_seed(3));
  void *blocks[BLOCKS] = {NULL};
  uint64_t moved = 0;
  for (int round = 0; round < 300; round++) {
    for (size_t i = 0; i < BLOCKS; i++) {
      if (blocks[i] != NULL && vtest_rng_chance(&rng, 1, 2)) {
        rig_free(f, blocks[i], f->streams[1]);
        blocks[i] = NULL;
      } else if (blocks[i] == NULL) {
        blocks[i] = rig_alloc(f, vtest_rng_range(&rng, 1, 3) * GRANULE, f->streams[1]);
        rig_touch(f, blocks[i], GRANULE, f->streams[1]);
      }
    }
    vmp_defragment_report r = gather(f);
    vmp_pool_stats_data s = rig_stats(f);
    VEXPECT_UINT_EQ(r.retiring, s.retiring);
    VASSERT_UINT_LE(s.retiring, 2 * s.mapped);
    VASSERT_NO_FAILURE();
    moved += r.moved_bytes;
  }
  VEXPECT_UINT_GT(moved, rig_stats(f).mapped);  // the bound has been met
  free_all(f, blocks, BLOCKS, NULL);
}

// ---- bug case 62: it ends, whatever there is ----

static void expect_ends(pool_rig *f) {
  vmp_defragment_report r = gather(f);
  vmp_pool_stats_data s = rig_stats(f);
  VEXPECT_UINT_LE(r.moved_chunks, s.chunks);
  VEXPECT_UINT_EQ(r.largest_free_mapped_after, s.largest_free_mapped);
  expect_moves_nothing(f);
}

VTEST_F(Defragment, Case62ItEnds, pool_rig) {
  static const char *const confs[] = {TIGHT, NULL, "preset:classic", "preset:buddy"};
  rig_open_driver(f, 80 * GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  for (size_t c = 0; c < 4; c++) {
    VTRACE("%s", confs[c] == NULL ? "defaults" : confs[c]);
    VASSERT_OK(rig_create(f, confs[c]));
    expect_ends(f);  // empty
    void *one = rig_alloc(f, 10 * MIB, NULL);
    expect_ends(f);  // one block
    rig_free(f, one, NULL);
    expect_ends(f);
    enum { MANY = 10000 };
    void **blocks = calloc(MANY, sizeof *blocks);
    VASSERT_NOT_NULL(blocks);
    for (size_t i = 0; i < MANY; i++) blocks[i] = rig_alloc(f, MIB, NULL);
    expect_ends(f);  // nothing is free
    for (size_t i = 0; i < MANY; i += 2) rig_free(f, blocks[i], NULL);
    expect_ends(f);  // every second one of 10,000 equal blocks
    for (size_t i = 1; i < MANY; i += 2) rig_free(f, blocks[i], NULL);
    for (size_t i = 0; i < MANY; i++) blocks[i] = rig_alloc(f, 512, NULL);
    expect_ends(f);  // slab blocks alone, in memory of before
    for (size_t i = 0; i < MANY; i++) rig_free(f, blocks[i], NULL);
    free(blocks);
    expect_ends(f);
    rig_destroy(f);
  }
}

// ---- bug case 63: the books are even after every round ----

VTEST_F(Defragment, Case63RoundsAreAlike, pool_rig) {
  rig_open(f, 4 * GIB, "hard_limit:1GiB,chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  vtest_rng rng = vtest_rng_make(vtest_seed(63));
  for (int round = 0; round < 100; round++) {
    void *blocks[400];
    for (size_t i = 0; i < 400; i++) {
      blocks[i] = rig_alloc(f, i < 200 ? 500000 : vtest_rng_log(&rng, 512, 4 * MIB), NULL);
    }
    for (size_t i = 0; i < 400; i++) {
      if (!vtest_rng_chance(&rng, 1, 2)) continue;
      rig_free(f, blocks[i], NULL);
      blocks[i] = NULL;
    }
    vmp_pool_stats_data before = rig_stats(f);
    (void)gather(f);
    vmp_pool_stats_data after = rig_stats(f);
    VASSERT_UINT_EQ(after.live, before.live);
    VASSERT_UINT_EQ(after.requested, before.requested);
    VASSERT_UINT_EQ(after.blocks, before.blocks);
    VASSERT_UINT_EQ(after.mapped + after.spare, before.mapped + before.spare);
    VASSERT_UINT_EQ(after.chunks, before.chunks);
    free_all(f, blocks, 400, NULL);
    VASSERT_OK(vmp_pool_trim(f->pool, 0, NULL));
    vmp_pool_stats_data s = rig_stats(f);
    VASSERT_UINT_EQ(s.live + s.requested + s.blocks + s.mapped + s.spare + s.parked + s.chunks, 0);
    VASSERT_UINT_EQ(rig_census(f).handles, 0);
    VASSERT_UINT_EQ(rig_census(f).mappings, 0);
  }
}

// ---- failures ----

// one_fault gathers a comb while a call fails; then nothing is lost, the data is where it was, and once the driver
// works again all of it can be gathered. False: the fault was not reached.
static bool one_fault(pool_rig *f, const char *conf, uint64_t nth, int code, bool from_then_on) {
  VEXPECT_OK(rig_create(f, conf));
  if (f->pool == NULL) return false;
  void *blocks[24];
  comb(f, blocks, 24, 3 * GRANULE, NULL);
  for (size_t i = 1; i < 24; i += 2) stamp(f, blocks[i], 3 * GRANULE, (unsigned char)i);
  VEXPECT_OK(vmp_pool_set_limit(f->pool, VMP_LIMIT_SOFT, rig_stats(f).mapped - 2 * GRANULE));
  vmp_pool_stats_data before = rig_stats(f);
  uint64_t calls = rig_all_calls(f->driver);
  vmp_host_fault fault = {VMP_CALL_COUNT, nth, code, from_then_on};
  VEXPECT_TRUE(vmp_host_inject(f->driver, &fault));
  vmp_defragment_report r = VMP_DEFRAGMENT_REPORT_INIT;
  vmp_status status = vmp_pool_defragment(f->pool, NULL, &r);
  bool reached = rig_all_calls(f->driver) - calls >= nth;
  vmp_host_lift(f->driver);
  if (status != VMP_OK) VEXPECT_INT_EQ(r.stop, VMP_DEFRAGMENT_FAILED);
  if (!reached) VEXPECT_OK(status);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_UINT_EQ(after.live, before.live);
  VEXPECT_UINT_EQ(after.blocks, before.blocks);
  VEXPECT_UINT_EQ(after.mapped + after.spare, before.mapped + before.spare - r.released_bytes);
  for (size_t i = 1; i < 24; i += 2) expect_stamp(f, blocks[i], 3 * GRANULE, (unsigned char)i);
  r = gather(f);
  after = rig_stats(f);
  VEXPECT_UINT_EQ(after.broken, 0);
  VEXPECT_UINT_GE(r.largest_free_mapped_after, after.parked);
  VEXPECT_UINT_EQ(after.mapped + after.spare, before.mapped - 2 * GRANULE);
  for (size_t i = 1; i < 24; i += 2) expect_stamp(f, blocks[i], 3 * GRANULE, (unsigned char)i);
  free_all(f, blocks, 24, NULL);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped + rig_stats(f).spare, 0);
  rig_destroy(f);
  return reached;
}

VTEST_F(Defragment, EveryCallFails, pool_rig) {
  static const char *const confs[] = {TIGHT, "chunk_max:4MiB,no_map_ahead:1"};
  static const int codes[] = {VMP_CU_OUT_OF_MEMORY, VMP_CU_INVALID_VALUE, VMP_CU_UNKNOWN, VMP_CU_NOT_READY};
  rig_open_driver(f, GIB);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  uint64_t faults = 0;
  for (size_t c = 0; c < 2; c++) {
    for (size_t k = 0; k < 8; k++) {
      bool reached = true;
      for (uint64_t nth = 1; reached; nth++) {
        VTRACE("%s, call %llu, code %d, %s", confs[c], (unsigned long long)nth, codes[k / 2],
               k % 2 != 0 ? "from then on" : "once");
        reached = one_fault(f, confs[c], nth, codes[k / 2], k % 2 != 0);
        VASSERT_NO_FAILURE();
        faults += reached;
      }
    }
  }
  VEXPECT_UINT_GE(faults, 200);
}

// ---- threads (bug case 61) ----

typedef struct crowd {
  pool_rig *rig;
  atomic_bool done;
  atomic_uint_fast64_t bad;
} crowd;

typedef struct member {
  crowd *all;
  unsigned char number;
} member;

static void *allocate_and_compare(void *context) {
  member *m = context;
  pool_rig *f = m->all->rig;
  vtest_rng rng = vtest_rng_make(m->number);
  void *blocks[16] = {NULL};
  uint64_t bytes[16];
  vmp_stream stream = f->streams[m->number % RIG_STREAMS];
  for (int op = 0; op < 3000; op++) {
    size_t i = (size_t)vtest_rng_below(&rng, 16);
    unsigned char value = m->number, seen = 0;
    if (blocks[i] == NULL) {
      bytes[i] = vtest_rng_log(&rng, 512, 8 * MIB);
      if (vmp_alloc(f->pool, &blocks[i], bytes[i], stream) != VMP_OK) continue;
      if (vmp_host_poke(f->driver, rig_address(blocks[i]) + bytes[i] - 1, &value, 1) != 0) m->all->bad++;
    } else {
      if (vmp_host_peek(f->driver, rig_address(blocks[i]) + bytes[i] - 1, &seen, 1) != 0 || seen != value) {
        m->all->bad++;
      }
      if (vmp_free(f->pool, blocks[i], stream) != VMP_OK) m->all->bad++;
      blocks[i] = NULL;
    }
  }
  for (size_t i = 0; i < 16; i++) {
    if (vmp_free(f->pool, blocks[i], stream) != VMP_OK) m->all->bad++;
  }
  return NULL;
}

static void *gather_all_the_time(void *context) {
  crowd *all = context;
  while (!atomic_load(&all->done)) {
    vmp_status status = vmp_pool_defragment(all->rig->pool, NULL, NULL);
    if (status != VMP_OK && status != VMP_ERROR_BUSY) all->bad++;
  }
  return NULL;
}

VTEST_F(Defragment, Case61AmongThreads, pool_rig) {
  rig_open(f, 512 * MIB, "chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  crowd all = {.rig = f};
  member members[3] = {{&all, 1}, {&all, 2}, {&all, 3}};
  pthread_t threads[5];
  for (size_t i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_create(&threads[i], NULL, gather_all_the_time, &all), 0);
  for (size_t i = 0; i < 3; i++) {
    VASSERT_INT_EQ(pthread_create(&threads[2 + i], NULL, allocate_and_compare, &members[i]), 0);
  }
  for (size_t i = 2; i < 5; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  atomic_store(&all.done, true);
  for (size_t i = 0; i < 2; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_UINT_EQ(atomic_load(&all.bad), 0);
  rig_check(f);
}
