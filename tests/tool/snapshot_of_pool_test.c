// What a real pool writes is what the map reads: numbers agree with the pool's statistics, and with each other.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "pool/vmpool.h"
#include "tests/support/vtest.h"
#include "tools/vmpool/map.h"
#include "tools/vmpool/snapshot.h"
#include "tools/vmpool/views.h"

#define MIB ((size_t)1 << 20)

typedef struct rig {
  vmp_pool *pool;
  char path[600];
} rig;

static void rig_setup(rig *f) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.conf = "driver:host,host_device:8GiB,name:a \"pool\",destroy_releases:1,buddy_from:64MiB";
  VASSERT_INT_GE(vmp_pool_create(&f->pool, &options), 0);
  snprintf(f->path, sizeof(f->path), "%s/pool-XXXXXX", vtest_temp_dir());
  const int fd = mkstemp(f->path);
  VASSERT_INT_GE(fd, 0);
  close(fd);
}

static void rig_teardown(rig *f) {
  unlink(f->path);
  VEXPECT_INT_GE(vmp_pool_destroy(f->pool), 0);
}

static void read_snapshot(rig *f, snapshot *out) {
  tool_error error = {{0}};
  VASSERT_OK(vmp_pool_snapshot(f->pool, f->path));
  if (!snapshot_load(out, f->path, &error)) VFAIL("%s", error.text);
}

typedef struct sums {
  uint64_t live, requested, mapped, parked, blocks;
} sums;

static sums sums_of(const snapshot *s) {
  sums total = {0};
  for (size_t r = 0; r < s->num_ranges; r++) {
    for (size_t i = 0; i < s->ranges[r].num_blocks; i++) {
      total.blocks++;
      total.live += s->ranges[r].blocks[i].bytes;
      total.requested += s->ranges[r].blocks[i].requested_bytes;
    }
    for (size_t i = 0; i < s->ranges[r].num_runs; i++) {
      const snapshot_run *run = &s->ranges[r].runs[i];
      if (run->state == SNAPSHOT_MAPPED || run->state == SNAPSHOT_PARKED) total.mapped += run->bytes;
      if (run->state == SNAPSHOT_PARKED) total.parked += run->bytes;
    }
  }
  return total;
}

static void expect_agreement(rig *f, const snapshot *s) {
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VASSERT_OK(vmp_pool_stats(f->pool, &stats));
  const sums total = sums_of(s);
  VEXPECT_UINT_EQ(total.blocks, stats.blocks);
  VEXPECT_UINT_EQ(total.live, stats.live);
  VEXPECT_UINT_EQ(total.requested, stats.requested);
  VEXPECT_UINT_EQ(total.mapped, stats.mapped);
  VEXPECT_UINT_EQ(total.parked, stats.parked);
  VEXPECT_UINT_EQ(s->live, stats.live);
  VEXPECT_UINT_EQ(s->mapped, stats.mapped);
  VEXPECT_UINT_EQ(s->device_total, stats.device_total);
  VEXPECT_UINT_EQ(s->granule, stats.granule);
}

// Blocks of a suspended tag are live and have no memory: no contradiction, and no memory of the device.
VTEST_F(SnapshotOfPool, ASuspendedTag, rig) {
  snapshot s = {0};
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  void *kept, *away;
  char text[4000] = "";
  VASSERT_OK(vmp_tag_create(f->pool, "weights", &options.tag));
  VASSERT_OK(vmp_alloc(f->pool, &kept, 20 * MIB, NULL));
  VASSERT_OK(vmp_alloc_with(f->pool, &away, 90 * MIB, NULL, &options));
  VASSERT_OK(vmp_pool_suspend(f->pool, options.tag, NULL));
  read_snapshot(f, &s);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(s.suspended, 90 * MIB);
  VEXPECT_UINT_EQ(s.live, 110 * MIB);
  VEXPECT_UINT_EQ(snapshot_live_in_memory(&s), 20 * MIB);
  VEXPECT_UINT_LE(snapshot_live_in_memory(&s), s.mapped);
  VEXPECT_UINT_EQ(view_check_snapshot(stdout, &s), 0);
  const map_style style = {.width = 80};
  FILE *out = fmemopen(text, sizeof(text), "w");
  map_ledger(out, &style, &s);
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "live         20 MiB");
  VEXPECT_STR_CONTAINS(text, "suspended 90 MiB of live blocks, which have no memory");
  s.suspended = 0;  // then they must have some
  FILE *nowhere = fopen("/dev/null", "w");
  VEXPECT_UINT_GT(view_check_snapshot(nowhere, &s), 0);
  fclose(nowhere);
  snapshot_destroy(&s);
  VEXPECT_OK(vmp_pool_resume(f->pool, options.tag));
  VEXPECT_OK(vmp_free(f->pool, away, NULL));
  VEXPECT_OK(vmp_free(f->pool, kept, NULL));
}

VTEST_F(SnapshotOfPool, AFreshPool, rig) {
  snapshot s = {0};
  read_snapshot(f, &s);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(s.pool_name, "a \"pool\"");
  VEXPECT_STR_EQ(s.driver, "host");
  VEXPECT_UINT_EQ(s.mapped, 0);
  expect_agreement(f, &s);
  snapshot_destroy(&s);
}

VTEST_F(SnapshotOfPool, BlocksOfAllLayersAndFreedOnes, rig) {
  static const size_t sizes[] = {100, 4096, 70000, 3 * MIB, 100 * MIB, 20 * MIB, 7, 512 * 1024};
  void *blocks[sizeof(sizes) / sizeof(sizes[0])];
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++)
    VASSERT_OK(vmp_alloc(f->pool, &blocks[i], sizes[i], NULL));
  VASSERT_OK(vmp_free(f->pool, blocks[3], NULL));
  VASSERT_OK(vmp_free(f->pool, blocks[5], NULL));
  snapshot s = {0};
  read_snapshot(f, &s);
  VASSERT_NO_FAILURE();
  expect_agreement(f, &s);
  unsigned seen[SNAPSHOT_NUM_LAYERS] = {0};
  for (size_t i = 0; i < s.ranges[0].num_blocks; i++) seen[s.ranges[0].blocks[i].layer]++;
  VEXPECT_UINT_EQ(seen[SNAPSHOT_SLAB], 3);
  VEXPECT_UINT_EQ(seen[SNAPSHOT_MID], 2);
  VEXPECT_UINT_EQ(seen[SNAPSHOT_BUDDY], 1);
  snapshot_destroy(&s);
}

// Committed pages are live blocks of the map; a page that two regions have shows twice, its memory counts once.
VTEST_F(SnapshotOfPool, Regions, rig) {
  vmp_region *first = NULL, *second = NULL;
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = 256 * MIB;
  options.name = "kv \"1\"";
  VASSERT_OK(vmp_region_create(f->pool, &first, &options));
  VASSERT_OK(vmp_region_create(f->pool, &second, &options));
  const vmp_region_pages runs[] = {{0, 3}, {8, 2}};
  VEXPECT_OK(vmp_region_commit(first, runs, 2, NULL));
  snapshot s = {0};
  read_snapshot(f, &s);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(sums_of(&s).live, s.live);
  VEXPECT_UINT_EQ(s.live, 10 * MIB);
  VEXPECT_UINT_EQ(sums_of(&s).blocks, 2);  // runs
  VEXPECT_INT_EQ(s.ranges[0].blocks[0].layer, SNAPSHOT_REGION);
  VEXPECT_UINT_EQ(s.ranges[0].blocks[0].bytes, 6 * MIB);
  snapshot_destroy(&s);
  VEXPECT_OK(vmp_region_share(first, 0, second, 0, 3, NULL));
  read_snapshot(f, &s);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(s.regions, 2);
  VEXPECT_UINT_EQ(s.region_committed, 16 * MIB);
  VEXPECT_UINT_EQ(s.region_reserved, 512 * MIB);
  VEXPECT_UINT_EQ(sums_of(&s).live, 16 * MIB);
  VEXPECT_UINT_EQ(s.live, 10 * MIB);
  VEXPECT_UINT_EQ(s.mapped, 10 * MIB);
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  const map_style style = {.width = 80};
  map_ledger(out, &style, &s);
  VEXPECT_TRUE(map_ranges(out, &style, &s, 8));
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "regions 2, with 16 MiB committed of 512 MiB of addresses");
  VEXPECT_STR_CONTAINS(text, "@@@");
  free(text);
  snapshot_destroy(&s);
  VEXPECT_OK(vmp_region_destroy(first, NULL));
  VEXPECT_OK(vmp_region_destroy(second, NULL));
}

// A chunk that two blocks share has two rows, and counts once.
VTEST_F(SnapshotOfPool, SharedChunksCountOnce, rig) {
  VEXPECT_INT_GE(vmp_pool_destroy(f->pool), 0);
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.conf = "driver:host,host_device:16MiB,destroy_releases:1,preset:tight";
  VASSERT_INT_GE(vmp_pool_create(&f->pool, &options), 0);
  void *blocks[16], *both = NULL;
  for (unsigned i = 0; i < 16; i++) VASSERT_OK(vmp_alloc(f->pool, &blocks[i], MIB, NULL));
  VASSERT_OK(vmp_free(f->pool, blocks[1], NULL));
  VASSERT_OK(vmp_free(f->pool, blocks[4], NULL));
  VASSERT_OK(vmp_alloc(f->pool, &both, 2 * MIB, NULL));
  snapshot s;
  read_snapshot(f, &s);
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VEXPECT_OK(vmp_pool_stats(f->pool, &stats));
  VEXPECT_UINT_EQ(stats.shared, 4 * MIB);
  VEXPECT_UINT_EQ(s.shared, stats.shared);
  VEXPECT_UINT_EQ(s.mapped, 16 * MIB);
  VEXPECT_UINT_EQ(sums_of(&s).mapped, 20 * MIB);  // addresses that have memory
  VEXPECT_UINT_EQ(view_check_snapshot(stdout, &s), 0);
  s.mapped -= MIB;
  FILE *nowhere = tmpfile();
  VASSERT_TRUE(nowhere != NULL);
  VEXPECT_UINT_GT(view_check_snapshot(nowhere, &s), 0);
  fclose(nowhere);
  snapshot_destroy(&s);
}
