// debug_test.c: poison, quarantine and guard slots: that each finds what it is there for, and that a pool with them is
// otherwise an ordinary one.
#include <stdio.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

static vmp_debug_stats debug_of(pool_rig *f) {
  vmp_debug_stats stats = VMP_DEBUG_STATS_INIT;
  VEXPECT_OK(vmp_pool_debug_stats(f->pool, &stats));
  return stats;
}

// ---- poison ----

static bool is_filled(pool_rig *f, const void *ptr, uint64_t bytes, unsigned char value) {
  static unsigned char data[4096];
  if (vmp_host_peek(f->driver, rig_address(ptr), data, (size_t)bytes) != 0) return false;
  for (uint64_t i = 0; i < bytes; i++) {
    if (data[i] != value) return false;
  }
  return true;
}

VTEST_F(Debug, PoisonFillsOnTheFreeingStream, pool_rig) {
  rig_open(f, 1 * GIB, "poison:221");
  VASSERT_NO_FAILURE();
  void *small = rig_alloc(f, 1000, f->streams[0]), *large = rig_alloc(f, 3 * MIB, f->streams[0]);
  static const unsigned char zeros[4096];
  VASSERT_INT_EQ(vmp_host_poke(f->driver, rig_address(small), zeros, 1024), 0);
  VASSERT_INT_EQ(vmp_host_poke(f->driver, rig_address(large), zeros, 4096), 0);
  rig_free(f, small, f->streams[1]);
  rig_free(f, large, f->streams[1]);
  VEXPECT_UINT_EQ(debug_of(f).fills, 2);
  VEXPECT_UINT_EQ(debug_of(f).failed_fills, 0);
  VEXPECT_TRUE(is_filled(f, small, 1024, 0));  // the stream hasn't come to it yet
  rig_settle(f);
  VEXPECT_TRUE(is_filled(f, small, 1024, 221));
  VEXPECT_TRUE(is_filled(f, large, 4096, 221));
  VEXPECT_TRUE(is_filled(f, rig_at(large, 3 * MIB - 4096), 4096, 221));
  rig_check(f);
}

// The fill comes before whoever gets the memory next, also on another stream.
VTEST_F(Debug, PoisonIsOrdered, pool_rig) {
  rig_open_driver(f, 64 * MIB);
  vmp_host_check_order(f->driver, true);
  VASSERT_OK(rig_create(f, "poison:1,chunk_max:1granule,no_map_ahead:1"));
  for (int i = 0; i < 40; i++) {
    vmp_stream stream = f->streams[i % RIG_STREAMS];
    void *ptr = rig_alloc(f, 40 * MIB, stream);
    rig_touch(f, ptr, 40 * MIB, stream);
    rig_free(f, ptr, stream);
  }
  rig_settle(f);
  VEXPECT_UINT_EQ(rig_counters(f).unordered, 0);
  VEXPECT_UINT_EQ(debug_of(f).fills, 40);
}

VTEST_F(Debug, AFillThatFailsIsCounted, pool_rig) {
  rig_open(f, 1 * GIB, "poison:1");
  VASSERT_NO_FAILURE();
  void *ptr = rig_alloc(f, 3 * MIB, NULL);
  vmp_host_fault fault = {VMP_CALL_memset_d8_async, 1, VMP_CU_INVALID_VALUE, true};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  VEXPECT_OK(vmp_free(f->pool, ptr, NULL));
  vmp_host_lift(f->driver);
  VEXPECT_UINT_EQ(debug_of(f).failed_fills, 1);
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
  rig_check(f);
}

// ---- quarantine ----

// A stale free after others have allocated: with an ordinary pool the address is another's by then.
VTEST_F(Debug, QuarantineTellsStaleFrees, pool_rig) {
  rig_open(f, 1 * GIB, "quarantine:8MiB");
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {1000, 60 * KIB, 3 * MIB};
  for (size_t i = 0; i < 3; i++) {
    void *stale = rig_alloc(f, sizes[i], NULL), *others[3];
    rig_free(f, stale, NULL);
    for (size_t j = 0; j < 3; j++) {
      others[j] = rig_alloc(f, sizes[i], NULL);
      VEXPECT_TRUE(others[j] != stale);
    }
    VEXPECT_STATUS(vmp_free(f->pool, stale, NULL), VMP_ERROR_DOUBLE_FREE);
    VEXPECT_STATUS(vmp_record_use(f->pool, stale, NULL), VMP_ERROR_DOUBLE_FREE);
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VEXPECT_STATUS(vmp_block_query(f->pool, stale, &info), VMP_ERROR_NOT_A_BLOCK);
    for (size_t j = 0; j < 3; j++) rig_free(f, others[j], NULL);
    rig_check(f);
  }
  VEXPECT_UINT_EQ(rig_stats(f).live, 0);
}

// Bounded in bytes, the oldest leaves first; what is larger than all of it is not kept.
VTEST_F(Debug, QuarantineIsBounded, pool_rig) {
  rig_open(f, 1 * GIB, "quarantine:8MiB");
  VASSERT_NO_FAILURE();
  void *blocks[5];
  for (size_t i = 0; i < 5; i++) blocks[i] = rig_alloc(f, 3 * MIB, NULL);
  for (size_t i = 0; i < 5; i++) rig_free(f, blocks[i], NULL);
  VEXPECT_UINT_EQ(debug_of(f).quarantined, 6 * MIB);
  VEXPECT_UINT_EQ(debug_of(f).quarantined_blocks, 2);
  VEXPECT_TRUE(vmp_debug_holds(f->pool, 0) == false);
  void *large = rig_alloc(f, 9 * MIB, NULL);
  rig_free(f, large, NULL);
  VEXPECT_UINT_EQ(debug_of(f).quarantined, 6 * MIB);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(debug_of(f).quarantined, 0);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);
}

// Before out of memory the quarantine is given up.
VTEST_F(Debug, QuarantineCausesNoOutOfMemory, pool_rig) {
  rig_open(f, 64 * MIB, "quarantine:64MiB,chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  for (int i = 0; i < 10; i++) {
    void *ptr = rig_alloc(f, 40 * MIB, NULL);
    VASSERT_NOT_NULL(ptr);
    rig_free(f, ptr, NULL);
  }
  rig_check(f);
}

// ---- guard slots ----

// The byte behind a block, as it is rounded, is nobody's; the block's own last byte is there.
VTEST_F(Debug, AnOverrunOfAGuardedBlockFaults, pool_rig) {
  rig_open(f, 1 * GIB, "guard_slots:1");
  VASSERT_NO_FAILURE();
  vmp_host_tolerate_bad_touches(f->driver, true);
  static const uint64_t sizes[] = {70000, 2 * MIB, 3 * MIB, 100 * MIB + 1};
  for (size_t i = 0; i < 4; i++) {
    VTRACE("%llu bytes", (unsigned long long)sizes[i]);
    uint64_t rounded = (sizes[i] + 511) / 512 * 512;
    void *ptr = rig_alloc(f, sizes[i], NULL);
    VASSERT_NOT_NULL(ptr);
    rig_touch(f, ptr, rounded, NULL);
    rig_settle(f);
    VASSERT_UINT_EQ(rig_counters(f).bad_touches, i);
    rig_touch(f, rig_at(ptr, rounded), 1, NULL);
    rig_settle(f);
    VASSERT_UINT_EQ(rig_counters(f).bad_touches, i + 1);
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VEXPECT_OK(vmp_block_query(f->pool, rig_at(ptr, sizes[i] - 1), &info));
    VEXPECT_UINT_EQ(rig_address(info.base), rig_address(ptr));
    VEXPECT_UINT_EQ(info.requested_bytes, sizes[i]);
    VEXPECT_STATUS(vmp_free(f->pool, rig_at(ptr, 512), NULL), VMP_ERROR_NOT_A_BLOCK);
    rig_free(f, ptr, NULL);
    VEXPECT_STATUS(vmp_free(f->pool, ptr, NULL), VMP_ERROR_DOUBLE_FREE);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VEXPECT_UINT_EQ(debug_of(f).guarded_blocks, 0);
  f->keeps_nothing_checked = true;  // the touches were bad on purpose
}

VTEST_F(Debug, GuardedBlocksKeepTheirAlignment, pool_rig) {
  rig_open(f, 1 * GIB, "guard_slots:1");
  VASSERT_NO_FAILURE();
  for (uint64_t alignment = 512; alignment <= 16 * MIB; alignment *= 4) {
    void *ptr = NULL;
    VASSERT_OK(vmp_alloc_aligned(f->pool, &ptr, 3 * MIB + 1000, (size_t)alignment, NULL));
    VEXPECT_UINT_EQ(rig_address(ptr) % alignment, 0);
    rig_touch(f, ptr, 3 * MIB + 1000, NULL);
    rig_free(f, ptr, NULL);
  }
  VEXPECT_STR_CONTAINS(vmp_pool_config(f->pool), "chunk_max:2MiB");
  rig_settle(f);
}

// Physical memory is reused although addresses are not: a full device serves for ever.
VTEST_F(Debug, GuardedBlocksReuseMemory, pool_rig) {
  rig_open_driver(f, 64 * MIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VASSERT_OK(rig_create(f, "guard_slots:1"));
  for (uint64_t i = 0; i < 200; i++) {
    uint64_t bytes = (1 + i % 50) * MIB + 77;
    void *ptr = rig_alloc(f, bytes, f->streams[i % RIG_STREAMS]);
    VASSERT_NOT_NULL(ptr);
    rig_touch(f, ptr, bytes, f->streams[i % RIG_STREAMS]);
    rig_free(f, ptr, f->streams[i % RIG_STREAMS]);
    if (i % 20 == 0) rig_check(f);
  }
}

// Every call that places a guarded block fails in turn: nothing is left of it.
VTEST_F(Debug, GuardedBlocksFailWhole, pool_rig) {
  rig_open(f, 1 * GIB, "guard_slots:1,quarantine:16MiB,poison:7");
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, 1 * MIB, NULL), NULL);
  for (uint64_t nth = 1; nth < 40; nth++) {
    vmp_pool_stats_data before = rig_stats(f);
    uint64_t calls = rig_all_calls(f->driver);
    vmp_host_fault fault = {VMP_CALL_COUNT, nth, VMP_CU_INVALID_VALUE, true};
    VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
    void *ptr = NULL;
    vmp_status status = vmp_alloc(f->pool, &ptr, 5 * MIB, NULL);
    bool reached = rig_all_calls(f->driver) - calls >= nth;
    vmp_host_lift(f->driver);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
    if (status == VMP_OK) rig_free(f, ptr, NULL);
    vmp_pool_stats_data after = rig_stats(f);
    VEXPECT_UINT_EQ(after.live, before.live);
    VEXPECT_UINT_EQ(after.blocks, before.blocks);
    if (!reached) break;
    VASSERT_UINT_LT(nth, 39);
  }
  VEXPECT_OK(vmp_pool_trim(f->pool, UINT64_MAX, NULL));
  rig_settle(f);
}

// ---- all together ----

typedef struct mix {
  const char *name, *conf;
} mix;
static const char *mix_name(const mix *m) { return m->name; }
static const mix mixes[] = {
    {"Poison", "poison:255"},
    {"Quarantine", "quarantine:20MiB"},
    {"Guards", "guard_slots:1"},
    {"All", "poison:170,quarantine:20MiB,guard_slots:1"},
    {"AllTight", "poison:170,quarantine:20MiB,guard_slots:1,preset:tight,hard_limit:300MiB"},
    {"AllBuddy", "poison:170,quarantine:20MiB,guard_slots:1,preset:classic"},
    {"AllStatic", "poison:170,quarantine:20MiB,guard_slots:1,preset:inference,initial_fraction:0.5"},
};

VTEST_FP(Debug, RandomOperations, pool_rig, mix, mixes, mix_name) {
  rig_open_driver(f, 2 * GIB);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_SEED, 4));
  VASSERT_STATUS(rig_create(f, p->conf), VMP_OK);
  vtest_rng rng = vtest_rng_make(vtest_seed(17));
  void *blocks[24] = {NULL};
  uint64_t bytes[24];
  for (int i = 0; i < 1500; i++) {
    size_t at = (size_t)vtest_rng_below(&rng, 24);
    vmp_stream stream = f->streams[vtest_rng_below(&rng, RIG_STREAMS)];
    if (blocks[at] != NULL) {
      rig_free(f, blocks[at], stream);
      blocks[at] = NULL;
    } else {
      bytes[at] = 1 + vtest_rng_below(&rng, vtest_rng_below(&rng, 3) == 0 ? 9 * MIB : 90 * KIB);
      blocks[at] = rig_alloc(f, bytes[at], stream);
      VASSERT_NOT_NULL(blocks[at]);
      rig_touch(f, blocks[at], bytes[at], stream);
      VEXPECT_OK(vmp_record_use(f->pool, blocks[at], stream));
    }
    if (i % 50 == 0) rig_check(f);
    VASSERT_NO_FAILURE();
  }
  for (size_t i = 0; i < 24; i++) rig_free(f, blocks[i], f->streams[0]);
  rig_settle(f);
}

VTEST_F(Debug, OffByDefaultAndChecked, pool_rig) {
  rig_open(f, 1 * GIB, NULL);
  VASSERT_NO_FAILURE();
  rig_free(f, rig_alloc(f, 3 * MIB, NULL), NULL);
  vmp_debug_stats s = debug_of(f);
  VEXPECT_UINT_EQ(s.fills + s.quarantined + s.guarded, 0);
  vmp_debug_stats old = {.struct_size = 8};
  VEXPECT_STATUS(vmp_pool_debug_stats(f->pool, &old), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_debug_stats(NULL, &s), VMP_ERROR_INVALID_VALUE);
  rig_destroy(f);
  VEXPECT_STATUS(rig_create(f, "poison:256"), VMP_ERROR_CONFIG);
  // The check notices a count that is off, and a block that is live and in quarantine.
  VASSERT_OK(rig_create(f, "quarantine:8MiB"));
  void *kept = rig_alloc(f, 3 * MIB, NULL);
  rig_free(f, kept, NULL);
  f->pool->debug.held_bytes[VMP_LAYER_MID] += 512;
  size_t faults = 0;
  VEXPECT_STATUS(vmp_pool_check(f->pool, &faults), VMP_ERROR_CORRUPT);
  f->pool->debug.held_bytes[VMP_LAYER_MID] -= 512;
  f->pool->debug.ring[f->pool->debug.first].offset += 512;
  VEXPECT_STATUS(vmp_pool_check(f->pool, &faults), VMP_ERROR_CORRUPT);
  f->pool->debug.ring[f->pool->debug.first].offset -= 512;
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
}
