// pool_smoke_test.c: a pool on a real driver: blocks hold what is written to them while chunks are remapped beneath and
// streams share memory.
#include <stdlib.h>

#include "pool/vmpool.h"
#include "tests/gpu/gpu_rig.h"

typedef struct pool_rig {
  gpu_rig base;
  vmp_driver *driver;
  uint64_t granule;
  vmp_pool *pool;
  vmp_stream streams[2];
} pool_rig;

static void pool_rig_setup(pool_rig *f) {
  gpu_rig_setup(&f->base);
  if (!f->base.entered) return;  // skipped or failed
  f->driver = f->base.driver;
  f->granule = f->base.granule;
  for (int i = 0; i < 2; i++) {
    VASSERT_INT_EQ(vmp_drv_stream_create(f->driver, &f->streams[i], VMP_CU_STREAM_NON_BLOCKING), VMP_CU_SUCCESS);
  }
}

static void pool_rig_teardown(pool_rig *f) {
  VEXPECT_OK(vmp_pool_destroy(f->pool));
  for (int i = 0; i < 2; i++) {
    if (f->streams[i] != NULL) VEXPECT_INT_EQ(vmp_drv_stream_destroy(f->driver, f->streams[i]), VMP_CU_SUCCESS);
  }
  gpu_rig_teardown(&f->base);
}

// make_pool makes the rig's pool with one-granule chunks and a hard limit in granules.
static void make_pool(pool_rig *f, uint64_t limit_granules) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->driver;
  options.device = f->base.device.ordinal;
  options.chunk_max_bytes = f->granule;
  options.hard_limit_bytes = limit_granules * f->granule;
  VASSERT_OK(vmp_pool_create(&f->pool, &options));
}

static vmp_cu_ptr address(const void *ptr) { return (vmp_cu_ptr)(uintptr_t)ptr; }

static void expect_sound(pool_rig *f) {
  size_t faults = 0;
  VEXPECT_OK(vmp_pool_check(f->pool, &faults));
  VEXPECT_UINT_EQ(faults, 0);
}

// All sizes at once, each with a pattern of its own: none disturbs another.
VTEST_F(PoolSmoke, BlocksOfAllSizesHoldTheirData, pool_rig) {
  make_pool(f, 64);
  VASSERT_NO_FAILURE();
  const size_t sizes[] = {1, 512, 4096, 65536, 65537, 1 << 20, f->granule, f->granule + 1, 8 * f->granule + 12345};
  enum { NUM = sizeof sizes / sizeof sizes[0] };
  void *blocks[NUM];
  for (uint32_t i = 0; i < NUM; i++) {
    VASSERT_OK(vmp_alloc(f->pool, &blocks[i], sizes[i], f->streams[0]));
    VEXPECT_UINT_EQ(address(blocks[i]) % 512, 0);
    gpu_write(&f->base, address(blocks[i]), sizes[i], i);
  }
  for (uint32_t i = 0; i < NUM; i++) gpu_expect(&f->base, address(blocks[i]), sizes[i], i);
  expect_sound(f);
  for (uint32_t i = 0; i < NUM; i++) VEXPECT_OK(vmp_free(f->pool, blocks[i], f->streams[0]));
  // Trim never waits: what it can't know to be complete stays, for a trim after the next synchronisation.
  uint64_t released_bytes = 0, kept_bytes = 1;
  for (int i = 0; i < 3 && kept_bytes > 0; i++) {
    VASSERT_INT_EQ(vmp_drv_stream_synchronize(f->driver, f->streams[0]), VMP_CU_SUCCESS);
    vmp_trim_report report = VMP_TRIM_REPORT_INIT;
    VASSERT_OK(vmp_pool_trim(f->pool, 0, &report));
    released_bytes += report.released_bytes;
    kept_bytes = report.kept_pending_bytes;
  }
  VEXPECT_UINT_GT(released_bytes, 8 * f->granule);
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VASSERT_OK(vmp_pool_stats(f->pool, &stats));
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.mapped, 0);
}

// The pool's promise: memory that is free in pieces serves a block larger than any piece. The limit leaves no new
// memory, so the pieces' chunks are mapped behind one another; the blocks between them keep their addresses and their
// data.
VTEST_F(PoolSmoke, FreePiecesServeALargeBlock, pool_rig) {
  enum { PIECES = 16 };
  make_pool(f, PIECES);
  VASSERT_NO_FAILURE();
  void *pieces[PIECES];
  for (uint32_t i = 0; i < PIECES; i++) {
    VASSERT_OK(vmp_alloc(f->pool, &pieces[i], f->granule, f->streams[0]));
    gpu_write(&f->base, address(pieces[i]), f->granule, i);
  }
  for (uint32_t i = 0; i < PIECES; i += 2) VASSERT_OK(vmp_free(f->pool, pieces[i], f->streams[0]));
  void *large = NULL;
  VASSERT_OK(vmp_alloc(f->pool, &large, PIECES / 2 * f->granule, f->streams[0]));
  gpu_write(&f->base, address(large), PIECES / 2 * f->granule, 99);
  for (uint32_t i = 1; i < PIECES; i += 2) gpu_expect(&f->base, address(pieces[i]), f->granule, i);
  gpu_expect(&f->base, address(large), PIECES / 2 * f->granule, 99);
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VASSERT_OK(vmp_pool_stats(f->pool, &stats));
  VEXPECT_UINT_LE(stats.mapped + stats.spare, PIECES * f->granule);
  VEXPECT_UINT_EQ(stats.chunks_created, PIECES);
  expect_sound(f);
  VEXPECT_OK(vmp_free(f->pool, large, f->streams[0]));
  for (uint32_t i = 1; i < PIECES; i += 2) VEXPECT_OK(vmp_free(f->pool, pieces[i], f->streams[0]));
}

// Memory freed behind work on one stream goes to another while that work may still run: the second stream waits for it,
// the host doesn't, and what the second stream writes is what stays.
VTEST_F(PoolSmoke, StreamsPassMemoryOn, pool_rig) {
  enum { GRANULES = 8, ROUNDS = 20 };
  make_pool(f, GRANULES);
  VASSERT_NO_FAILURE();
  const size_t bytes = GRANULES * f->granule;
  unsigned char *data = calloc(1, bytes);
  VASSERT_NOT_NULL(data);
  for (int round = 0; round < ROUNDS && !vtest_has_failure(); round++) {
    const unsigned char value = (unsigned char)(round + 1);
    void *first = NULL, *second = NULL;
    VEXPECT_OK(vmp_alloc(f->pool, &first, bytes, f->streams[0]));
    for (int i = 0; i < 4; i++) {
      VEXPECT_INT_EQ(vmp_drv_memset_d8_async(f->driver, address(first), 0xee, bytes, f->streams[0]), VMP_CU_SUCCESS);
    }
    VEXPECT_OK(vmp_free(f->pool, first, f->streams[0]));
    VEXPECT_OK(vmp_alloc(f->pool, &second, bytes, f->streams[1]));
    if (vtest_has_failure()) break;
    VEXPECT_INT_EQ(vmp_drv_memset_d8_async(f->driver, address(second), value, bytes, f->streams[1]), VMP_CU_SUCCESS);
    VEXPECT_INT_EQ(vmp_drv_stream_synchronize(f->driver, f->streams[1]), VMP_CU_SUCCESS);
    VEXPECT_INT_EQ(vmp_drv_memcpy_dtoh(f->driver, data, address(second), bytes), VMP_CU_SUCCESS);
    VEXPECT_BYTES_FILLED(data, value, bytes);
    VEXPECT_OK(vmp_free(f->pool, second, f->streams[1]));
  }
  free(data);
  expect_sound(f);
}

// A request that can't be served is refused with its own status, and the pool works on.
VTEST_F(PoolSmoke, RefusesBeyondItsLimit, pool_rig) {
  make_pool(f, 4);
  VASSERT_NO_FAILURE();
  void *block = NULL, *none = NULL;
  VASSERT_OK(vmp_alloc(f->pool, &block, 3 * f->granule, f->streams[0]));
  VEXPECT_STATUS(vmp_alloc(f->pool, &none, 2 * f->granule, f->streams[0]), VMP_ERROR_LIMIT);
  VEXPECT_NULL(none);
  VASSERT_OK(vmp_alloc(f->pool, &none, f->granule, f->streams[0]));
  gpu_write(&f->base, address(block), 3 * f->granule, 7);
  gpu_expect(&f->base, address(block), 3 * f->granule, 7);
  VEXPECT_OK(vmp_free(f->pool, block, f->streams[0]));
  VEXPECT_OK(vmp_free(f->pool, none, f->streams[0]));
  expect_sound(f);
}
