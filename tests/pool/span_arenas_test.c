// span_arenas_test.c: slab's small spans lie in arenas of their own: small blocks that live on don't cut up what large
// ones free, and where all else is used up, spans come from between large blocks after all.
#include "pool/vmpool_stats.h"
#include "tests/pool/pool_rig.h"

enum { LARGE = 8 };

// cut_off_after frees LARGE large blocks, between which small ones came and stay, and returns how much of what is
// mapped is not part of the largest block to be had without a driver call.
static uint64_t cut_off_after(pool_rig *f, void *small[LARGE]) {
  void *large[LARGE];
  for (int i = 0; i < LARGE; i++) {
    large[i] = rig_alloc(f, 8 * MIB, f->streams[0]);
    small[i] = rig_alloc(f, 20 * KIB * ((uint64_t)i % 3 + 1), f->streams[0]);
  }
  for (int i = 0; i < LARGE; i++) rig_free(f, large[i], f->streams[0]);
  vmp_memory_stats stats = VMP_MEMORY_STATS_INIT;
  VEXPECT_OK(vmp_pool_memory_stats(f->pool, &stats));
  return stats.mapped - stats.largest_mapped;
}

static void free_all(pool_rig *f, void *blocks[], int count) {
  for (int i = 0; i < count; i++) rig_free(f, blocks[i], f->streams[0]);
}

VTEST_F(SpanArenas, SmallBlocksDontCutUpWhatLargeOnesFree, pool_rig) {
  rig_open(f, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *small[LARGE];
  VEXPECT_UINT_LE(cut_off_after(f, small), 2 * GRANULE);  // the spans
  rig_check(f);
  free_all(f, small, LARGE);
}

VTEST_F(SpanArenas, SharedOnesAreCutUp, pool_rig) {
  rig_open(f, 4 * GIB, "shared_arenas:1");
  VASSERT_NO_FAILURE();
  void *small[LARGE];
  VEXPECT_UINT_GE(cut_off_after(f, small), 8 * MIB);
  rig_check(f);
  free_all(f, small, LARGE);
}

// A small block maps one granule, and growth is not rounded up for it; a large one maps a whole chunk.
VTEST_F(SpanArenas, SpansMapOneGranule, pool_rig) {
  rig_open(f, 64 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *small = rig_alloc(f, 1000, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, GRANULE);
  VEXPECT_UINT_EQ(rig_calls(f).create, 1);
  void *large = rig_alloc(f, MIB, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, GRANULE + 32 * MIB);
  VEXPECT_UINT_EQ(rig_calls(f).create, 2);
  rig_free(f, small, f->streams[0]);
  rig_free(f, large, f->streams[0]);
}

// Where they don't help, or would take addresses that large blocks need, there are none: a small block and one of mid
// share the first chunk.
typedef struct without {
  const char *name, *conf;
} without;
static const without withouts[] = {{"shared", "shared_arenas:1"},
                                   {"one_granule_chunks", "chunk_max:1granule"},
                                   {"static", "strategy:static,initial_fraction:0.5"},
                                   {"few_addresses", "reserve:12GiB"}};
static const char *without_name(const without *w) { return w->name; }

VTEST_FP(SpanArenas, AreLeftOut, pool_rig, without, withouts, without_name) {
  rig_open(f, 4 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  void *large = rig_alloc(f, MIB, f->streams[0]), *small = rig_alloc(f, 1000, f->streams[0]);
  uint64_t distance = rig_address(small) - rig_address(large);
  VEXPECT_UINT_LT(distance, GRANULE);
  rig_free(f, small, f->streams[0]);
  rig_free(f, large, f->streams[0]);
}

// All memory is held by large blocks, with holes of less than a granule between them: small blocks go there.
VTEST_F(SpanArenas, TheLastHolesServeSpans, pool_rig) {
  enum { BLOCKS = 16 };
  rig_open(f, 4 * GIB, "hard_limit:32MiB,no_map_ahead:1,thread_cache:0");
  VASSERT_NO_FAILURE();
  void *blocks[BLOCKS], *small[32];
  for (int i = 0; i < BLOCKS; i++) blocks[i] = rig_alloc(f, GRANULE - 256 * KIB, f->streams[0]);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 28 * MIB);
  void *rest = rig_alloc(f, 4 * MIB, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 32 * MIB);
  rig_free(f, blocks[7], f->streams[0]);
  for (int i = 0; i < 32; i++) small[i] = rig_alloc(f, 16 * KIB, f->streams[0]);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 32 * MIB);
  uint64_t from = rig_address(blocks[0]);
  VEXPECT_UINT_LT(rig_address(small[0]) - from, 32 * MIB);  // the hole pins its chunks: none is left to take
  rig_check(f);
  free_all(f, small, 32);
  blocks[7] = rig_alloc(f, GRANULE - 256 * KIB, f->streams[0]);
  rig_free(f, rest, f->streams[0]);
  free_all(f, blocks, BLOCKS);
}

// The driver has no more addresses, and all arenas are mid's: small blocks lie between large ones.
VTEST_F(SpanArenas, WithoutAddressesSpansLieBetweenLargeBlocks, pool_rig) {
  enum { MOST = 400 };
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = 64 * GIB;
  options.address_bytes = 16 * GIB;
  options.ledger_high = true;
  rig_open_driver_with(f, &options);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(f, "reserve:16GiB,arena:1GiB,wait:0"));
  void *blocks[MOST], *small = NULL;
  int count = 0;
  while (count < MOST && vmp_alloc(f->pool, &blocks[count], 64 * MIB, f->streams[0]) == VMP_OK) count++;
  VASSERT_INT_LT(count, MOST);
  VEXPECT_STATUS(vmp_alloc(f->pool, &small, 1000, f->streams[0]), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  for (int i = 0; i < count; i += 2) rig_free(f, blocks[i], f->streams[0]);
  VEXPECT_OK(vmp_alloc(f->pool, &small, 1000, f->streams[0]));
  rig_check(f);
  rig_free(f, small, f->streams[0]);
  for (int i = 1; i < count; i += 2) rig_free(f, blocks[i], f->streams[0]);
}
