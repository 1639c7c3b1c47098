// pin_test.c: pinned memory stays mapped where it is, whatever happens around it; whoever registered memory elsewhere
// hears of every mapping, and generations tell what was remapped.
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

static uint64_t generation_of(pool_rig *rig, const void *ptr, uint64_t bytes) {
  uint64_t generation = 0;
  VEXPECT_OK(vmp_range_generation(rig->pool, ptr, bytes, &generation));
  return generation;
}

static vmp_trim_report trim(pool_rig *rig) {
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  VEXPECT_OK(vmp_pool_trim(rig->pool, 0, &report));
  return report;
}

VTEST_F(Pins, AFreedRangeStaysUntilItsLastPinGoes, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:2MiB");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(rig, 6 * MIB, NULL), *other = rig_alloc(rig, 10 * MIB, NULL);
  uint64_t generation = generation_of(rig, a, 6 * MIB);
  VEXPECT_UINT_GT(generation, 0);
  VASSERT_OK(vmp_pin(rig->pool, a, "nccl"));
  VASSERT_OK(vmp_pin(rig->pool, a, "nccl"));
  VASSERT_OK(vmp_pin(rig->pool, a, "rdma"));
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(rig->pool, a, &info));
  VEXPECT_UINT_EQ(info.pins, 3);
  VEXPECT_UINT_EQ(rig_stats(rig).pinned, 6 * MIB);
  rig_free(rig, other, NULL);
  rig_free(rig, a, NULL);
  rig_settle(rig);
  rig_check(rig);
  for (int i = 0; i < 3; i++) {
    vmp_trim_report report = trim(rig);
    VEXPECT_UINT_EQ(report.kept_pinned_bytes, 6 * MIB);
    VEXPECT_UINT_EQ(report.kept_live_bytes, 0);
    VEXPECT_UINT_EQ(rig_stats(rig).mapped, 6 * MIB);
    VEXPECT_UINT_EQ(rig_stats(rig).parked, 0);  // pinned chunks are never parked
    VEXPECT_UINT_EQ(generation_of(rig, a, 6 * MIB), generation);
    VEXPECT_OK(vmp_unpin(rig->pool, a));
    rig_check(rig);
  }
  VEXPECT_INT_EQ(vmp_unpin(rig->pool, a), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_UINT_EQ(trim(rig).released_bytes, 6 * MIB);
  VEXPECT_UINT_EQ(generation_of(rig, a, 6 * MIB), 0);
  VEXPECT_UINT_EQ(rig_stats(rig).pinned, 0);
}

// Under a limit that leaves nothing else, a request takes every parked chunk but the pinned ones.
VTEST_F(Pins, PinnedMemoryIsNotTaken, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:2MiB,hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *blocks[8];
  for (size_t i = 0; i < 8; i++) blocks[i] = rig_alloc(rig, 8 * MIB, NULL);
  VASSERT_OK(vmp_pin(rig->pool, blocks[3], "nic"));
  // Block 4 stays, so nothing of more than 32 MiB fits where memory is mapped. Behind it 24 MiB are mapped; what is
  // missing there comes from blocks 0 to 2.
  for (size_t i = 0; i < 8; i++) {
    if (i != 4) rig_free(rig, blocks[i], NULL);
  }
  uint64_t generation = generation_of(rig, blocks[3], 8 * MIB);
  void *large = NULL;
  VEXPECT_INT_EQ(vmp_alloc(rig->pool, &large, 50 * MIB, NULL), VMP_ERROR_LIMIT);
  large = rig_alloc(rig, 48 * MIB, NULL);
  VEXPECT_UINT_EQ(generation_of(rig, blocks[3], 8 * MIB), generation);
  rig_free(rig, large, NULL);
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  VEXPECT_OK(vmp_pool_defragment(rig->pool, &options, NULL));
  VEXPECT_UINT_EQ(generation_of(rig, blocks[3], 8 * MIB), generation);
  VEXPECT_OK(vmp_unpin(rig->pool, blocks[3]));
  large = rig_alloc(rig, 56 * MIB, NULL);
  rig_free(rig, large, NULL);
  rig_free(rig, blocks[4], NULL);
}

// The addresses of a freed pinned block serve another block; both may be pinned.
VTEST_F(Pins, TwoBlocksInSuccessionAtOneAddress, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *first = rig_alloc(rig, 4 * MIB, NULL);
  VASSERT_OK(vmp_pin(rig->pool, first, NULL));
  rig_free(rig, first, NULL);
  void *second = rig_alloc(rig, 2 * MIB, NULL);
  VASSERT_TRUE(first == second);
  VASSERT_OK(vmp_pin(rig->pool, second, NULL));
  rig_check(rig);
  VEXPECT_OK(vmp_unpin(rig->pool, second));
  VEXPECT_OK(vmp_unpin(rig->pool, second));
  VEXPECT_INT_EQ(vmp_unpin(rig->pool, second), VMP_ERROR_NOT_A_BLOCK);
  rig_free(rig, second, NULL);
}

VTEST_F(Pins, WrongArgumentsAreRefused, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  uint64_t generation = 77;
  void *a = rig_alloc(rig, 3 * MIB, NULL);
  VEXPECT_INT_EQ(vmp_pin(NULL, a, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_pin(rig->pool, NULL, NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_pin(rig->pool, rig_at(a, 512), NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_pin(rig->pool, rig_at(a, 4 * MIB), NULL), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_unpin(rig->pool, a), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_range_generation(rig->pool, rig, 8, &generation), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_range_generation(rig->pool, a, SIZE_MAX, &generation), VMP_ERROR_NOT_A_BLOCK);
  VEXPECT_INT_EQ(vmp_range_generation(rig->pool, a, 0, &generation), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_range_generation(rig->pool, a, 8, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(generation, 77);
  vmp_remap_callbacks none = {0};
  VEXPECT_INT_EQ(vmp_remap_register(rig->pool, &none), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_remap_register(rig->pool, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_remap_unregister(rig->pool, rig), VMP_ERROR_INVALID_VALUE);
  rig_free(rig, a, NULL);
  VEXPECT_INT_EQ(vmp_pin(rig->pool, a, NULL), VMP_ERROR_NOT_A_BLOCK);
}

VTEST_F(Pins, APoolWithPinsIsBusy, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(rig, 3 * MIB, NULL);
  VASSERT_OK(vmp_pin(rig->pool, a, NULL));
  rig_free(rig, a, NULL);
  VEXPECT_INT_EQ(vmp_pool_destroy(rig->pool), VMP_ERROR_BUSY);
  VEXPECT_OK(vmp_unpin(rig->pool, a));
}

VTEST_F(Pins, WithoutHostMemoryNothingIsPinned, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(rig, 3 * MIB, NULL);
  uint64_t refused = 0;
  for (uint64_t fail = 0; fail < 100; fail++) {
    vmp_mem_fail_after(fail, 1);
    vmp_status status = vmp_pin(rig->pool, a, "reason");
    vmp_mem_fail_after(0, 0);
    rig_check(rig);
    if (status == VMP_OK) break;
    VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VASSERT_UINT_EQ(rig_stats(rig).pinned, 0);
    refused++;
  }
  VEXPECT_UINT_GE(refused, 3);
  VEXPECT_OK(vmp_unpin(rig->pool, a));
  rig_free(rig, a, NULL);
}

// ---- a registration cache ----

#define MAX_MAPPINGS 4096u

typedef struct mapping {
  uint64_t address, bytes, generation;
} mapping;

typedef struct registry {
  vmp_pool *pool;
  mapping all[MAX_MAPPINGS];  // announced and not gone
  size_t count;
  uint64_t maps, unmaps, youngest;
} registry;

static void after_map(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  registry *r = self;
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VEXPECT_OK(vmp_pool_stats(r->pool, &stats));  // no lock is held
  for (size_t i = 0; i < r->count; i++) {
    if (r->all[i].generation == generation) return;  // announced again after an unmap that failed
  }
  VASSERT_UINT_LT(r->count, MAX_MAPPINGS);
  VEXPECT_UINT_GT(generation, r->youngest);
  r->youngest = generation;
  r->all[r->count++] = (mapping){address, bytes, generation};
  r->maps++;
}

static void before_unmap(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  registry *r = self;
  r->unmaps++;
  for (size_t i = 0; i < r->count; i++) {
    if (r->all[i].generation != generation) continue;
    VEXPECT_UINT_EQ(r->all[i].address, address);
    VEXPECT_UINT_EQ(r->all[i].bytes, bytes);
    r->all[i] = r->all[--r->count];
    return;
  }
  VADD_FAILURE("a mapping goes that was never announced");
}

// youngest_under: the youngest announced mapping under a range; 0 when part of it has none.
static uint64_t youngest_under(const registry *r, uint64_t address, uint64_t bytes) {
  uint64_t youngest = 0, covered = 0;
  for (size_t i = 0; i < r->count; i++) {
    const mapping *m = &r->all[i];
    uint64_t low = m->address > address ? m->address : address;
    uint64_t high = m->address + m->bytes < address + bytes ? m->address + m->bytes : address + bytes;
    if (low >= high) continue;
    covered += high - low;
    if (m->generation > youngest) youngest = m->generation;
  }
  return covered == bytes ? youngest : 0;
}

typedef struct pinned_block {
  void *ptr;
  uint64_t bytes, generation;
  unsigned pins;
  bool live;
  vmp_stream stream;
} pinned_block;

// look_at compares what the registry heard with what the pool says, for one block, live or pinned.
static void look_at(pool_rig *rig, const registry *r, const pinned_block *b) {
  uint64_t generation = generation_of(rig, b->ptr, b->bytes);
  VEXPECT_UINT_GT(generation, 0);
  VEXPECT_UINT_EQ(generation, youngest_under(r, rig_address(b->ptr), b->bytes));
  VEXPECT_UINT_EQ(generation, b->generation);  // of memory in use nothing is ever remapped
}

VTEST_F(Pins, ARegistrationCacheIsNeverStale, pool_rig) {
  pool_rig *rig = f;
  static registry r;
  memset(&r, 0, sizeof r);
  rig_open(rig, 256 * MIB, "chunk_max:8MiB,park_limit:0.2");
  VASSERT_NO_FAILURE();
  r.pool = rig->pool;
  vmp_remap_callbacks callbacks = {&r, before_unmap, after_map};
  VASSERT_OK(vmp_remap_register(rig->pool, &callbacks));
  VEXPECT_INT_EQ(vmp_remap_register(rig->pool, &callbacks), VMP_ERROR_INVALID_VALUE);
  vmp_host_work_set(rig->driver, VMP_WORK_SEED, 5);
  vtest_rng rng = vtest_rng_make(vtest_seed(11));
  enum { BLOCKS = 40 };
  pinned_block blocks[BLOCKS] = {{0}};
  for (int i = 0; i < 4000 && !vtest_has_failure(); i++) {
    pinned_block *b = &blocks[vtest_rng_below(&rng, BLOCKS)];
    vmp_stream stream = rig->streams[vtest_rng_below(&rng, RIG_STREAMS)];
    uint64_t what = vtest_rng_below(&rng, 10);
    if (b->ptr == NULL) {
      b->bytes = vtest_rng_range(&rng, 1, 12 * MIB);
      if (vmp_alloc(rig->pool, &b->ptr, b->bytes, stream) != VMP_OK) continue;
      // Where a freed block is still pinned, its pins and this block's could not be told apart: not here.
      bool pinned = false;
      for (size_t j = 0; j < BLOCKS; j++) pinned = pinned || (&blocks[j] != b && blocks[j].ptr == b->ptr);
      if (pinned) {
        rig_free(rig, b->ptr, stream);
        *b = (pinned_block){0};
        continue;
      }
      b->live = true;
      b->stream = stream;
      b->generation = generation_of(rig, b->ptr, b->bytes);
      rig_touch(rig, b->ptr, b->bytes, stream);
    } else if (what < 2 && b->live && b->pins < 3) {
      VEXPECT_OK(vmp_pin(rig->pool, b->ptr, b->pins == 1 ? "a" : "b"));
      b->pins++;
    } else if (what < 4 && b->pins > 0) {
      VEXPECT_OK(vmp_unpin(rig->pool, b->ptr));
      b->pins--;
    } else if (what < 8 && b->live) {
      VEXPECT_OK(vmp_record_use(rig->pool, b->ptr, b->stream));  // its own, where it was touched
      rig_free(rig, b->ptr, stream);
      b->live = false;
    } else if (what == 8) {
      VEXPECT_OK(vmp_pool_trim(rig->pool, vtest_rng_below(&rng, 200) * MIB, NULL));
    } else if (what == 9 && vtest_rng_chance(&rng, 1, 8)) {
      VEXPECT_OK(vmp_pool_defragment(rig->pool, NULL, NULL));
    }
    if (!b->live && b->pins == 0) *b = (pinned_block){0};
    for (size_t j = 0; i % 16 == 0 && j < BLOCKS; j++) {
      if (blocks[j].ptr != NULL) look_at(rig, &r, &blocks[j]);
    }
    if (i % 256 == 0) VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  }
  for (size_t j = 0; j < BLOCKS; j++) {
    for (; blocks[j].pins > 0; blocks[j].pins--) VEXPECT_OK(vmp_unpin(rig->pool, blocks[j].ptr));
    if (blocks[j].live) rig_free(rig, blocks[j].ptr, NULL);
  }
  VEXPECT_UINT_GT(r.unmaps, 200);
  rig_settle(rig);
  (void)trim(rig);
  VEXPECT_UINT_EQ(r.count, 0);  // everything that was announced has gone
  VEXPECT_OK(vmp_remap_unregister(rig->pool, &r));
  uint64_t maps = r.maps;
  void *a = rig_alloc(rig, MIB, NULL);
  VEXPECT_UINT_EQ(r.maps, maps);
  rig_free(rig, a, NULL);
}

// ---- unregistering while a call is under way ----

typedef struct visitor {
  pool_rig *rig;
  atomic_int entered, started, left;
} visitor;

static void slow_before_unmap(void *self, uint64_t address, uint64_t bytes, uint64_t generation) {
  visitor *v = self;
  (void)address;
  (void)bytes;
  (void)generation;
  atomic_store(&v->entered, 1);
  while (atomic_load(&v->started) == 0) {
  }
  // Give the other thread every chance to return too early.
  for (int i = 0; i < 100; i++) {
    vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
    (void)vmp_pool_stats(v->rig->pool, &stats);
  }
  atomic_store(&v->left, 1);
}

static void *trim_all(void *context) {
  visitor *v = context;
  (void)vmp_pool_trim(v->rig->pool, 0, NULL);
  return NULL;
}

VTEST_F(Pins, UnregisteringWaitsForCallsUnderWay, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  visitor v = {.rig = rig};
  vmp_remap_callbacks callbacks = {&v, slow_before_unmap, NULL};
  VASSERT_OK(vmp_remap_register(rig->pool, &callbacks));
  rig_free(rig, rig_alloc(rig, MIB, NULL), NULL);
  rig_settle(rig);
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, trim_all, &v), 0);
  while (atomic_load(&v.entered) == 0) {
  }
  atomic_store(&v.started, 1);
  VEXPECT_OK(vmp_remap_unregister(rig->pool, &v));
  VEXPECT_INT_EQ(atomic_load(&v.left), 1);
  VEXPECT_INT_EQ(pthread_join(thread, NULL), 0);
}

VTEST_F(Pins, TheCheckNotices, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(rig, 3 * MIB, NULL);
  VASSERT_OK(vmp_pin(rig->pool, a, NULL));
  uint64_t offset = 0;
  vmp_pins *pins = &rig->pool->pins;
  (void)vmp_backing_offset(rig->pool->backing, rig_address(a), &offset);
  vmp_pin_record *record = vmp_node_at(&pins->records, (uint32_t)*vmp_offset_map_find(&pins->newest, offset));
  record->count = 0;
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  record->count = 1;
  record->chunks++;
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  record->chunks--;
  (void)vmp_backing_pin(rig->pool->backing, offset, GRANULE);
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  vmp_backing_unpin(rig->pool->backing, offset, GRANULE);
  VEXPECT_OK(vmp_unpin(rig->pool, a));
  rig_free(rig, a, NULL);
}
