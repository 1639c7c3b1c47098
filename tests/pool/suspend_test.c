// suspend_test.c: suspend and resume by tag: content, addresses, what is held meanwhile, and what goes on beside it.
// Cases 34 to 36 and 77 of the collected bugs of other pools.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/pool.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"
#include "vmm/memory.h"

static vmp_tag create_tag(pool_rig *rig, const char *name) {
  vmp_tag tag = 0;
  VEXPECT_OK(vmp_tag_create(rig->pool, name, &tag));
  return tag;
}

static void *alloc_in(pool_rig *rig, vmp_tag tag, uint64_t bytes) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = tag;
  void *ptr = NULL;
  VEXPECT_OK(vmp_alloc_with(rig->pool, &ptr, bytes, rig->streams[0], &options));
  return ptr;
}

static vmp_tag_info info_of(pool_rig *rig, vmp_tag tag) {
  vmp_tag_info info = VMP_TAG_INFO_INIT;
  VEXPECT_OK(vmp_tag_query(rig->pool, tag, &info));
  return info;
}

static vmp_suspend_report suspend(pool_rig *rig, vmp_tag tag, vmp_suspend_content content) {
  vmp_suspend_report report = VMP_SUSPEND_REPORT_INIT;
  vmp_suspend_options options = VMP_SUSPEND_OPTIONS_INIT;
  options.content = (int)content;
  options.report = &report;
  VEXPECT_OK(vmp_pool_suspend(rig->pool, tag, &options));
  VEXPECT_INT_EQ(info_of(rig, tag).state, VMP_TAG_SUSPENDED);
  return report;
}

static void resume(pool_rig *rig, vmp_tag tag) {
  VEXPECT_OK(vmp_pool_resume(rig->pool, tag));
  VEXPECT_INT_EQ(info_of(rig, tag).state, VMP_TAG_RESIDENT);
  VEXPECT_UINT_EQ(info_of(rig, tag).suspended + info_of(rig, tag).backup, 0);
}

static void print_calls(const char *what, const vmp_driver_calls *a, const vmp_driver_calls *b) {
  printf("%s: create %llu, map %llu, set-access %llu, unmap %llu, release %llu\n", what,
         (unsigned long long)(b->create - a->create), (unsigned long long)(b->map - a->map),
         (unsigned long long)(b->set_access - a->set_access), (unsigned long long)(b->unmap - a->unmap),
         (unsigned long long)(b->release - a->release));
}

// ---- to show (5): 2 GiB in 100 blocks, every byte ----

VTEST_F(Suspend, TwoGibInHundredBlocksComeBack, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 4 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "weights");
  enum { BLOCKS = 100 };
  void *blocks[BLOCKS];
  // Where random tests are cut short (sanitizers, valgrind), so is this.
  uint64_t sizes[BLOCKS], scale = vtest_ops(100000) < 100000 ? 16 : 1, left = 2 * GIB / scale;
  vtest_rng rng = vtest_rng_make(vtest_seed(3));
  for (size_t i = 0; i < BLOCKS; i++) {
    sizes[i] = i == BLOCKS - 1
                   ? left
                   : (i % 5 == 0 ? vtest_rng_range(&rng, 1, 60000) : vtest_rng_range(&rng, MIB, 25 * MIB) / scale);
    left -= sizes[i];
    blocks[i] = alloc_in(rig, tag, sizes[i]);
    VASSERT_NO_FAILURE();
    rig_write_pattern(rig, blocks[i], sizes[i], i);
  }
  uint64_t live = rig_stats(rig).live, mapped = rig_stats(rig).mapped;
  vmp_driver_calls a = rig_calls(rig), b, c;
  vmp_suspend_report report = suspend(rig, tag, VMP_SUSPEND_KEEP);
  b = rig_calls(rig);
  print_calls("suspend 2 GiB", &a, &b);
  VEXPECT_UINT_EQ(report.suspended_bytes, live);
  VEXPECT_UINT_EQ(report.saved_bytes, live);
  VEXPECT_UINT_EQ(report.released_bytes, mapped);
  VEXPECT_UINT_EQ(report.released_chunks, b.release - a.release);
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  VEXPECT_UINT_EQ(rig_stats(rig).mapped + rig_stats(rig).spare, 0);
  VEXPECT_UINT_EQ(rig_stats(rig).live, live);
  VEXPECT_UINT_EQ(info_of(rig, tag).suspended, live);
  VEXPECT_UINT_EQ(info_of(rig, tag).backup, live);
  rig_check(rig);
  resume(rig, tag);
  c = rig_calls(rig);
  print_calls("resume 2 GiB", &b, &c);
  VEXPECT_UINT_LE(c.set_access - b.set_access, 8);  // in batches
  rig_check(rig);
  for (size_t i = 0; i < BLOCKS; i++) {
    rig_expect_pattern(rig, blocks[i], sizes[i], i);
    rig_free(rig, blocks[i], rig->streams[0]);
  }
}

VTEST_F(Suspend, TwentyGibWithoutBackupHoldNothing, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 32 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "kv");
  enum { BLOCKS = 40 };
  void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) blocks[i] = alloc_in(rig, tag, 512 * MIB);
  vmp_driver_calls a = rig_calls(rig), b, c;
  vmp_suspend_report report = suspend(rig, tag, VMP_SUSPEND_DROP);
  b = rig_calls(rig);
  print_calls("suspend 20 GiB", &a, &b);
  VEXPECT_UINT_EQ(report.released_bytes, 20 * GIB);
  VEXPECT_UINT_EQ(report.saved_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(rig).mappings, 0);
  VEXPECT_UINT_EQ(b.release - a.release, 640);
  VEXPECT_UINT_LE(b.unmap - a.unmap, 8);
  resume(rig, tag);
  c = rig_calls(rig);
  print_calls("resume 20 GiB", &b, &c);
  VEXPECT_UINT_EQ(c.create - b.create, 640);
  VEXPECT_UINT_EQ(c.map - b.map, 640);
  VEXPECT_UINT_LE(c.set_access - b.set_access, 16);
  rig_check(rig);
  for (size_t i = 0; i < BLOCKS; i++) {
    rig_touch(rig, blocks[i], 512 * MIB, rig->streams[1]);
    rig_free(rig, blocks[i], rig->streams[1]);
  }
}

// ---- what goes on meanwhile ----

// Case 35: each second call does nothing, a freed block is gone, an old error doesn't stick.
VTEST_F(Suspend, Case35IsIdempotent, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "a");
  void *small[3], *a = alloc_in(rig, tag, 8 * MIB), *b = alloc_in(rig, tag, 6 * MIB), *refused = NULL;
  for (size_t i = 0; i < 3; i++) small[i] = alloc_in(rig, tag, 1000);
  void *other = rig_alloc(rig, 10 * MIB, rig->streams[0]);
  rig_write_pattern(rig, b, 6 * MIB, 1);
  rig_write_pattern(rig, small[1], 1000, 2);
  rig_write_pattern(rig, other, 10 * MIB, 3);
  resume(rig, tag);
  VEXPECT_UINT_GT(suspend(rig, tag, VMP_SUSPEND_KEEP).released_bytes, 0);
  uint64_t handles = rig_census(rig).handles;
  VEXPECT_UINT_EQ(handles, 5);  // the other block's
  VEXPECT_UINT_EQ(suspend(rig, tag, VMP_SUSPEND_KEEP).released_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(rig).handles, handles);
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = tag;
  VEXPECT_INT_EQ(vmp_alloc_with(rig->pool, &refused, 512, NULL, &options), VMP_ERROR_SUSPENDED);
  VEXPECT_INT_EQ(vmp_realloc(rig->pool, &b, 512, NULL, NULL), VMP_ERROR_SUSPENDED);
  VEXPECT_INT_EQ(vmp_pin(rig->pool, b, NULL), VMP_ERROR_SUSPENDED);
  VEXPECT_INT_EQ(vmp_pool_destroy(rig->pool), VMP_ERROR_BUSY);
  uint64_t backup = info_of(rig, tag).backup;
  rig_free(rig, a, rig->streams[0]);
  rig_free(rig, small[0], rig->streams[0]);
  VEXPECT_UINT_EQ(info_of(rig, tag).backup, backup - 8 * MIB - 1024);
  VEXPECT_UINT_EQ(info_of(rig, tag).suspended, info_of(rig, tag).live);
  VEXPECT_INT_EQ(vmp_free(rig->pool, a, NULL), VMP_ERROR_DOUBLE_FREE);
  rig_check(rig);
  // Other tags go on.
  void *more = rig_alloc(rig, 20 * MIB, rig->streams[1]);
  rig_free(rig, more, rig->streams[1]);
  resume(rig, tag);
  resume(rig, tag);
  VEXPECT_UINT_EQ(info_of(rig, tag).blocks, 3);
  rig_expect_pattern(rig, b, 6 * MIB, 1);
  rig_expect_pattern(rig, small[1], 1000, 2);
  rig_expect_pattern(rig, other, 10 * MIB, 3);
  rig_check(rig);
  void *again = alloc_in(rig, tag, 8 * MIB);
  rig_free(rig, again, rig->streams[0]);
  rig_free(rig, b, rig->streams[0]);
  rig_free(rig, other, rig->streams[0]);
  for (size_t i = 1; i < 3; i++) rig_free(rig, small[i], rig->streams[0]);
}

// Case 34: another process holds the memory when the tag is to come back.
VTEST_F(Suspend, Case34OutOfMemoryLeavesItSuspended, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 256 * MIB, "chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "a");
  void *blocks[4];
  for (size_t i = 0; i < 4; i++) {
    blocks[i] = alloc_in(rig, tag, 40 * MIB);
    rig_write_pattern(rig, blocks[i], 40 * MIB, i);
  }
  (void)suspend(rig, tag, VMP_SUSPEND_KEEP);
  vmp_host_set_foreign(rig->driver, 0, 150 * MIB);
  for (int tries = 0; tries < 2; tries++) {
    VEXPECT_INT_EQ(vmp_pool_resume(rig->pool, tag), VMP_ERROR_OUT_OF_MEMORY);
    VEXPECT_INT_EQ(info_of(rig, tag).state, VMP_TAG_SUSPENDED);
    VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
    rig_check(rig);
  }
  // Suspended twice, and a free, leave it as resumable as before.
  (void)suspend(rig, tag, VMP_SUSPEND_KEEP);
  rig_free(rig, blocks[3], rig->streams[0]);
  vmp_host_set_foreign(rig->driver, 0, 0);
  resume(rig, tag);
  for (size_t i = 0; i < 3; i++) {
    rig_expect_pattern(rig, blocks[i], 40 * MIB, i);
    rig_free(rig, blocks[i], rig->streams[0]);
  }
}

// Case 36: work of every stream is waited for, recorded or not.
VTEST_F(Suspend, Case36RunningWorkIsWaitedFor, pool_rig) {
  pool_rig *rig = f;
  for (int mode = 0; mode < 2; mode++) {
    if (mode == 0) rig_open(rig, GIB, NULL);
    if (mode == 1) vmp_host_set_work(rig->driver, VMP_HOST_WORK_SEED, 77);
    VASSERT_NO_FAILURE();
    vmp_tag tag = create_tag(rig, "a");
    void *block = alloc_in(rig, tag, 50 * MIB);
    for (int i = 0; i < RIG_STREAMS; i++)
      rig_touch(rig, block, 50 * MIB, rig->streams[i]);  // streams the pool never saw
    (void)suspend(rig, tag, VMP_SUSPEND_KEEP);
    resume(rig, tag);
    for (int i = 0; i < RIG_STREAMS; i++) rig_touch(rig, block, 50 * MIB, rig->streams[i]);
    (void)suspend(rig, tag, VMP_SUSPEND_DROP);
    resume(rig, tag);
    rig_free(rig, block, rig->streams[0]);
    rig_check(rig);
  }
}

// Case 77: what was really released is told: nothing, where there is nothing, or everything is pinned.
VTEST_F(Suspend, Case77TheReportTellsWhatWentBack, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, 2 * GIB, "chunk_max:2MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "a");
  vmp_suspend_report report = suspend(rig, tag, VMP_SUSPEND_KEEP);
  VEXPECT_UINT_EQ(report.released_bytes + report.suspended_bytes + report.saved_bytes, 0);
  VEXPECT_INT_EQ(vmp_pool_destroy(rig->pool), VMP_ERROR_BUSY);  // a suspended tag
  resume(rig, tag);
  void *pinned = alloc_in(rig, tag, 30 * MIB), *free_one = alloc_in(rig, tag, 50 * MIB);
  void *small[2] = {alloc_in(rig, tag, 2000), alloc_in(rig, tag, 2000)};
  VASSERT_OK(vmp_pin(rig->pool, pinned, "nccl"));
  VASSERT_OK(vmp_pin(rig->pool, small[0], "nccl"));
  rig_write_pattern(rig, pinned, 30 * MIB, 4);
  rig_write_pattern(rig, free_one, 50 * MIB, 5);
  rig_write_pattern(rig, small[1], 2000, 6);
  uint64_t generation = 0, now = 0;
  VEXPECT_OK(vmp_range_generation(rig->pool, pinned, 30 * MIB, &generation));
  report = suspend(rig, tag, VMP_SUSPEND_KEEP);
  VEXPECT_UINT_EQ(report.kept_pinned_bytes, 30 * MIB + 2 * 2048);
  VEXPECT_UINT_EQ(report.suspended_bytes, 50 * MIB);
  VEXPECT_UINT_EQ(report.saved_bytes, 50 * MIB);
  VEXPECT_UINT_GE(report.released_bytes, 46 * MIB);  // its ends may share chunks with what stays
  VEXPECT_OK(vmp_range_generation(rig->pool, pinned, 30 * MIB, &now));
  VEXPECT_UINT_EQ(now, generation);
  rig_expect_pattern(rig, pinned, 30 * MIB, 4);
  rig_check(rig);
  // Unpinned while suspended: the next suspend takes it along.
  VEXPECT_OK(vmp_unpin(rig->pool, pinned));
  VEXPECT_OK(vmp_unpin(rig->pool, small[0]));
  report = suspend(rig, tag, VMP_SUSPEND_KEEP);
  VEXPECT_UINT_EQ(report.saved_bytes, 30 * MIB + 2 * 2048);
  VEXPECT_UINT_EQ(report.kept_pinned_bytes, 0);
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  rig_check(rig);
  resume(rig, tag);
  rig_expect_pattern(rig, pinned, 30 * MIB, 4);
  rig_expect_pattern(rig, free_one, 50 * MIB, 5);
  rig_expect_pattern(rig, small[1], 2000, 6);
  rig_free(rig, pinned, rig->streams[0]);
  rig_free(rig, free_one, rig->streams[0]);
  for (size_t i = 0; i < 2; i++) rig_free(rig, small[i], rig->streams[0]);
}

// A pinned block that is freed while its tag is suspended gives its claim back.
VTEST_F(Suspend, APinnedBlockMayBeFreedMeanwhile, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "a");
  void *pinned = alloc_in(rig, tag, 30 * MIB), *other = alloc_in(rig, tag, 30 * MIB);
  VASSERT_OK(vmp_pin(rig->pool, pinned, NULL));
  (void)suspend(rig, tag, VMP_SUSPEND_DROP);
  rig_free(rig, pinned, rig->streams[0]);
  VEXPECT_OK(vmp_unpin(rig->pool, pinned));
  rig_check(rig);
  rig_settle(rig);
  VEXPECT_OK(vmp_pool_trim(rig->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  resume(rig, tag);
  rig_free(rig, other, rig->streams[0]);
}

// ---- content by callback ----

typedef struct store {
  pool_rig *rig;
  unsigned char *data[8];
  const void *address[8];
  size_t count, loads;
  vmp_status save_status, load_status;
} store;

static vmp_status save(void *self, const void *ptr, uint64_t bytes, vmp_stream stream) {
  store *s = self;
  if (s->save_status != VMP_OK) return s->save_status;
  s->data[s->count] = malloc(bytes);
  s->address[s->count] = ptr;
  VEXPECT_OK(vmp_host_copy_out(s->rig->driver, 0, s->data[s->count], ptr, bytes, stream));
  s->count++;
  return VMP_OK;
}

static vmp_status load(void *self, void *ptr, uint64_t bytes, vmp_stream stream) {
  store *s = self;
  if (s->load_status != VMP_OK) return s->load_status;
  for (size_t i = 0; i < s->count; i++) {
    if (s->address[i] == ptr) VEXPECT_OK(vmp_host_copy_in(s->rig->driver, 0, ptr, s->data[i], bytes, stream));
  }
  s->loads++;
  return VMP_OK;
}

VTEST_F(Suspend, ContentByCallback, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "a");
  void *blocks[3];
  for (size_t i = 0; i < 3; i++) {
    blocks[i] = alloc_in(rig, tag, (i + 1) * 5 * MIB);
    rig_write_pattern(rig, blocks[i], (i + 1) * 5 * MIB, i);
  }
  store s = {.rig = rig, .save_status = VMP_ERROR_IO};
  vmp_suspend_options options = VMP_SUSPEND_OPTIONS_INIT;
  options.content = VMP_SUSPEND_CALLBACK;
  options.self = &s;
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, tag, &options), VMP_ERROR_INVALID_VALUE);
  options.save = save;
  options.load = load;
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, tag, &options), VMP_ERROR_IO);
  VEXPECT_INT_EQ(info_of(rig, tag).state, VMP_TAG_RESIDENT);
  rig_expect_pattern(rig, blocks[2], 15 * MIB, 2);
  s.save_status = VMP_OK;
  VEXPECT_OK(vmp_pool_suspend(rig->pool, tag, &options));
  VEXPECT_UINT_EQ(s.count, 3);
  VEXPECT_UINT_EQ(info_of(rig, tag).backup, 0);
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  rig_free(rig, blocks[1], rig->streams[0]);
  s.load_status = VMP_ERROR_IO;
  VEXPECT_INT_EQ(vmp_pool_resume(rig->pool, tag), VMP_ERROR_IO);
  VEXPECT_UINT_EQ(rig_census(rig).physical_bytes, 0);
  s.load_status = VMP_OK;
  resume(rig, tag);
  VEXPECT_UINT_EQ(s.loads, 2);
  rig_expect_pattern(rig, blocks[0], 5 * MIB, 0);
  rig_expect_pattern(rig, blocks[2], 15 * MIB, 2);
  rig_free(rig, blocks[0], rig->streams[0]);
  rig_free(rig, blocks[2], rig->streams[0]);
  for (size_t i = 0; i < s.count; i++) free(s.data[i]);
}

// The state is in the statistics and in the snapshot.
VTEST_F(Suspend, IsShown, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "weights");
  void *block = alloc_in(rig, tag, 3 * MIB);
  (void)suspend(rig, tag, VMP_SUSPEND_KEEP);
  VEXPECT_UINT_EQ(rig_stats(rig).suspended, 3 * MIB);
  VEXPECT_UINT_EQ(rig_stats(rig).suspended_backup, 3 * MIB);
  char path[512];
  (void)snprintf(path, sizeof path, "%s/suspend_XXXXXX", vtest_temp_dir());
  int file = mkstemp(path);
  VASSERT_INT_GE(file, 0);
  VEXPECT_OK(vmp_pool_snapshot(rig->pool, path));
  FILE *stream = fopen(path, "r");
  VASSERT_TRUE(stream != NULL);
  static char text[1 << 16];
  text[fread(text, 1, sizeof text - 1, stream)] = '\0';
  (void)fclose(stream);
  (void)close(file);
  (void)unlink(path);
  VEXPECT_TRUE(strstr(text, "\"state\": \"suspended\"") != NULL);
  VEXPECT_TRUE(strstr(text, "\"backup\": 3145728") != NULL);
  resume(rig, tag);
  VEXPECT_UINT_EQ(rig_stats(rig).suspended + rig_stats(rig).suspended_backup, 0);
  rig_free(rig, block, rig->streams[0]);
}

VTEST_F(Suspend, TheCheckNotices, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag tag = create_tag(rig, "weights");
  void *block = alloc_in(rig, tag, 3 * MIB);
  vmp_domain *domain = vmp_tag_record_of(&rig->pool->tags, tag)->domain;
  domain->away_bytes = 512;
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  domain->away_bytes = 0;
  (void)suspend(rig, tag, VMP_SUSPEND_KEEP);
  domain->backup_bytes++;
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  domain->backup_bytes--;
  domain->claims_dropped = false;
  VEXPECT_INT_EQ(vmp_pool_check(rig->pool, NULL), VMP_ERROR_CORRUPT);
  domain->claims_dropped = true;
  resume(rig, tag);
  rig_free(rig, block, rig->streams[0]);
}

VTEST_F(Suspend, WrongArgumentsAreRefused, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_tag plain = 0, tag = create_tag(rig, "a");
  VASSERT_OK(vmp_tag_intern(rig->pool, "plain", &plain));
  vmp_suspend_options options = VMP_SUSPEND_OPTIONS_INIT;
  VEXPECT_INT_EQ(vmp_pool_suspend(NULL, tag, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, plain, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, 77, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_pool_resume(rig->pool, plain), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_EQ(vmp_pool_resume(NULL, tag), VMP_ERROR_INVALID_VALUE);
  options.content = 9;
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, tag, &options), VMP_ERROR_INVALID_VALUE);
  options.struct_size = 1;
  VEXPECT_INT_EQ(vmp_pool_suspend(rig->pool, tag, &options), VMP_ERROR_INVALID_VALUE);
}

// ---- threads: other tags allocate and free, and blocks of the tag are freed, while it goes and comes ----

typedef struct beside {
  pool_rig *rig;
  vmp_tag tag;
  void **victims;
  size_t num_victims;
  atomic_int stop;
  atomic_uint rounds;
} beside;

static void *work_beside(void *context) {
  beside *b = context;
  vtest_rng rng = vtest_rng_make(9);
  size_t freed = 0;
  while (atomic_load(&b->stop) == 0) {
    void *ptr = NULL;
    vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
    options.tag = b->tag;
    if (vmp_alloc(b->rig->pool, &ptr, vtest_rng_range(&rng, 1, 3 * MIB), b->rig->streams[1]) == VMP_OK) {
      rig_free(b->rig, ptr, b->rig->streams[1]);
    }
    vmp_status status = vmp_alloc_with(b->rig->pool, &ptr, vtest_rng_range(&rng, 1, MIB), b->rig->streams[2], &options);
    VEXPECT_TRUE(status == VMP_OK || status == VMP_ERROR_SUSPENDED);
    if (status == VMP_OK) rig_free(b->rig, ptr, b->rig->streams[2]);
    if (freed < b->num_victims && atomic_load(&b->rounds) % 3 == 2) rig_free(b->rig, b->victims[freed++], NULL);
    atomic_fetch_add(&b->rounds, 1);
  }
  while (freed < b->num_victims) rig_free(b->rig, b->victims[freed++], NULL);
  return NULL;
}

VTEST_F(Suspend, OtherThreadsGoOn, pool_rig) {
  pool_rig *rig = f;
  rig_open(rig, GIB, "chunk_max:4MiB");
  VASSERT_NO_FAILURE();
  enum { KEPT = 6, VICTIMS = 40 };
  void *kept[KEPT], *victims[VICTIMS];
  vmp_tag tag = create_tag(rig, "a");
  for (size_t i = 0; i < KEPT; i++) {
    kept[i] = alloc_in(rig, tag, (i + 1) * 700 * KIB);
    rig_write_pattern(rig, kept[i], (i + 1) * 700 * KIB, i);
  }
  for (size_t i = 0; i < VICTIMS; i++) victims[i] = alloc_in(rig, tag, i % 2 == 0 ? 3000 : 500 * KIB);
  beside b = {.rig = rig, .tag = tag, .victims = victims, .num_victims = VICTIMS};
  pthread_t thread;
  VASSERT_INT_EQ(pthread_create(&thread, NULL, work_beside, &b), 0);
  for (int i = 0; i < 30; i++) {
    VEXPECT_OK(vmp_pool_suspend(rig->pool, tag, NULL));
    VEXPECT_OK(vmp_pool_resume(rig->pool, tag));
    for (unsigned before = atomic_load(&b.rounds); atomic_load(&b.rounds) < before + 2;) {
    }
  }
  atomic_store(&b.stop, 1);
  VASSERT_INT_EQ(pthread_join(thread, NULL), 0);
  rig_check(rig);
  for (size_t i = 0; i < KEPT; i++) {
    rig_expect_pattern(rig, kept[i], (i + 1) * 700 * KIB, i);
    rig_free(rig, kept[i], rig->streams[0]);
  }
  VEXPECT_UINT_EQ(info_of(rig, tag).blocks, 0);
}

// ---- everything at random, on four streams, late and seeded ----

typedef struct tracked {
  void *ptr;
  uint64_t bytes, seed;
  int tag;
} tracked;

static void play(pool_rig *rig, vmp_host_work mode, uint64_t seed) {
  rig_open(rig, 512 * MIB, "chunk_max:8MiB");
  VASSERT_NO_FAILURE();
  vmp_host_set_work(rig->driver, mode, seed);
  vtest_rng rng = vtest_rng_make(seed);
  enum { BLOCKS = 40, TAGS = 3 };
  vmp_tag tags[TAGS] = {0, create_tag(rig, "a"), create_tag(rig, "b")};
  bool away[TAGS] = {false};
  tracked blocks[BLOCKS] = {{0}};
  uint64_t suspends = 0;
  for (int i = 0; i < 600 && !vtest_has_failure(); i++) {
    uint64_t what = vtest_rng_below(&rng, 20);
    size_t at = (size_t)vtest_rng_below(&rng, BLOCKS);
    tracked *b = &blocks[at];
    if (what == 0) {
      int t = 1 + (int)vtest_rng_below(&rng, TAGS - 1);
      VEXPECT_OK(vmp_pool_suspend(rig->pool, tags[t], NULL));
      away[t] = true;
      suspends++;
    } else if (what == 1) {
      int t = 1 + (int)vtest_rng_below(&rng, TAGS - 1);
      VEXPECT_OK(vmp_pool_resume(rig->pool, tags[t]));
      away[t] = false;
    } else if (what == 2) {
      VEXPECT_OK(vmp_pool_trim(rig->pool, vtest_rng_below(&rng, 300) * MIB, NULL));
    } else if (b->ptr == NULL) {
      b->tag = (int)vtest_rng_below(&rng, TAGS);
      b->bytes = vtest_rng_chance(&rng, 1, 2) ? vtest_rng_range(&rng, 1, 80000) : vtest_rng_range(&rng, 1, 9 * MIB);
      b->seed = (uint64_t)i;
      if (away[b->tag]) continue;
      b->ptr = alloc_in(rig, tags[b->tag], b->bytes);
      VASSERT_TRUE(b->ptr != NULL);
      VEXPECT_OK(vmp_host_stream_synchronize(rig->driver, 0, rig->streams[0]));
      rig_write_pattern(rig, b->ptr, b->bytes, b->seed);
      for (int s = 0; s < RIG_STREAMS; s++) VEXPECT_OK(vmp_record_use(rig->pool, b->ptr, rig->streams[s]));
    } else if (what < 10) {
      if (!away[b->tag]) rig_expect_pattern(rig, b->ptr, b->bytes, b->seed);
      rig_free(rig, b->ptr, rig->streams[vtest_rng_below(&rng, RIG_STREAMS)]);
      b->ptr = NULL;
    } else if (!away[b->tag]) {
      rig_touch(rig, b->ptr, b->bytes, rig->streams[vtest_rng_below(&rng, RIG_STREAMS)]);
      rig_expect_pattern(rig, b->ptr, b->bytes, b->seed);
    }
    if (i % 64 == 0) VEXPECT_OK(vmp_pool_check(rig->pool, NULL));
  }
  for (int t = 1; t < TAGS; t++) VEXPECT_OK(vmp_pool_resume(rig->pool, tags[t]));
  for (size_t i = 0; i < BLOCKS; i++) {
    if (blocks[i].ptr == NULL) continue;
    rig_expect_pattern(rig, blocks[i].ptr, blocks[i].bytes, blocks[i].seed);
    rig_free(rig, blocks[i].ptr, rig->streams[0]);
  }
  VEXPECT_UINT_GT(suspends, 10);
}

VTEST_F(Suspend, FourStreamsLate, pool_rig) { play(f, VMP_HOST_WORK_LATE, vtest_seed(31)); }
VTEST_F(Suspend, FourStreamsSeeded, pool_rig) { play(f, VMP_HOST_WORK_SEED, vtest_seed(32)); }
