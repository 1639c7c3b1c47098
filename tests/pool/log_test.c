// log_test.c: the event log of a pool, read back: the state that its records lead to is the pool's own, at every
// keyframe and at the end.
#include "pool/log.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/pool/pool_rig.h"
#include "tests/pool/region_rig.h"
#include "tests/support/vtest_rng.h"
#include "tools/log/log_state.h"
#include "vmm/memory.h"

typedef struct log_rig {
  pool_rig rig;
  char path[512];
  log_file log;
  bool loaded;
} log_rig;

static void log_rig_setup(log_rig *f) {
  static int serial;
  (void)snprintf(f->path, sizeof f->path, "%s/log_test.%ld.%d.vmplog", vtest_temp_dir(), (long)getpid(), serial++);
}

static void log_rig_teardown(log_rig *f) {
  if (f->loaded) log_destroy(&f->log);
  pool_rig_teardown(&f->rig);
  (void)unlink(f->path);
}

static void load_log(log_rig *f) {
  tool_error error = {0};
  if (f->loaded) log_destroy(&f->log);
  f->loaded = log_load(&f->log, f->path, &error);
  if (!f->loaded) VFAIL("%s", error.text);
}

static uint64_t count_of(const log_file *log, vmp_log_kind kind, bool state) {
  vmp_log_record record;
  uint64_t count = 0;
  for (uint64_t s = log->first; s < log->end; s++) {
    if (!log_record(log, s, &record)) continue;
    count += record.kind == kind && ((record.flags & VMP_LOG_STATE) != 0) == state;
  }
  return count;
}

// expect_whole applies all records, and compares the state with that of every keyframe on the way.
static void expect_whole(const log_file *log, log_state *out_end) {
  vmp_log_record record;
  log_state state = {0};
  uint64_t last_ns = 0;
  bool begun = false;
  VEXPECT_UINT_EQ(log->missing, 0);
  for (uint64_t s = log->first; s < log->end; s++) {
    if (!log_record(log, s, &record)) continue;
    VASSERT_UINT_GE(record.time_ns, last_ns);
    last_ns = record.time_ns;
    if (record.kind != VMP_LOG_KEYFRAME) {
      if (begun) VASSERT_TRUE(log_state_apply(&state, &record));
      continue;
    }
    if (s + record.as.event.extra >= log->end) break;  // cut by the ring, or not whole
    log_state key = {0};
    vmp_log_record keyframe = record;
    for (uint64_t i = 0; i < keyframe.as.event.extra; i++) {
      VASSERT_TRUE(log_record(log, ++s, &record));
      VASSERT_TRUE((record.flags & VMP_LOG_STATE) != 0);
      VASSERT_TRUE(log_state_apply(&key, &record));
    }
    VEXPECT_UINT_EQ(key.live_bytes, keyframe.as.event.address);
    VEXPECT_UINT_EQ(key.mapped_bytes, keyframe.as.event.bytes);
    VEXPECT_UINT_EQ(key.num_blocks, keyframe.as.event.value);
    VEXPECT_UINT_EQ(key.faults, 0);
    tool_error difference = {0};
    if (begun && !log_state_equal(&state, &key, &difference))
      VADD_FAILURE("at %llu: %s", (unsigned long long)s, difference.text);
    log_state_destroy(&state);
    state = key;
    begun = true;
  }
  if (state.faults > 0) VADD_FAILURE("%s", state.first_fault.text);
  VEXPECT_TRUE(begun);
  *out_end = state;
}

static void expect_end(log_rig *f, const vmp_pool_stats_data *stats) {
  log_state end;
  load_log(f);
  VASSERT_NO_FAILURE();
  expect_whole(&f->log, &end);
  VEXPECT_UINT_EQ(end.live_bytes, stats->live);
  VEXPECT_UINT_EQ(end.requested_bytes, stats->requested);
  VEXPECT_UINT_EQ(end.mapped_bytes, stats->mapped);
  VEXPECT_UINT_EQ(end.retiring_bytes, stats->retiring);
  VEXPECT_UINT_EQ(end.num_blocks, stats->blocks);
  log_state_destroy(&end);
}

// run_random allocates and frees at random on four streams, with steps, trims and failures.
static void run_random(log_rig *f, uint64_t seed, size_t operations) {
  void *blocks[256] = {NULL};
  uint64_t sizes[256] = {0};
  vtest_rng rng = vtest_rng_make(seed);
  for (size_t i = 0; i < operations; i++) {
    size_t at = (size_t)vtest_rng_below(&rng, 256);
    vmp_stream stream = f->rig.streams[vtest_rng_below(&rng, RIG_STREAMS)];
    if (blocks[at] != NULL) {
      rig_touch(&f->rig, blocks[at], sizes[at], stream);
      rig_free(&f->rig, blocks[at], stream);
      blocks[at] = NULL;
    } else {
      sizes[at] = vtest_rng_below(&rng, i % 7 == 0 ? 40 * MIB : i % 3 == 0 ? 2 * MIB : 32 * KIB) + 1;
      (void)vmp_alloc(f->rig.pool, &blocks[at], sizes[at], stream);
    }
    if (i % 97 == 0) (void)vmp_pool_step(f->rig.pool);
    if (i % 167 == 0) rig_settle(&f->rig);
    if (i % 501 == 0) (void)vmp_pool_trim(f->rig.pool, 64 * MIB, NULL);
    if (i % 777 == 0) (void)vmp_pool_defragment(f->rig.pool, NULL, NULL);
  }
  for (size_t at = 0; at < 256; at += 2) {
    if (blocks[at] != NULL) rig_free(&f->rig, blocks[at], f->rig.streams[0]);
    blocks[at] = NULL;
  }
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  VEXPECT_OK(vmp_pool_log_stop(f->rig.pool));
  expect_end(f, &stats);
  for (size_t at = 0; at < 256; at++) {
    if (blocks[at] != NULL) rig_free(&f->rig, blocks[at], f->rig.streams[0]);
  }
}

VTEST_F(Log, BeginsWithWhatIsThere, log_rig) {
  rig_open(&f->rig, GIB, "slab_max:64KiB");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(&f->rig, 5 * MIB, f->rig.streams[1]), *b = rig_alloc(&f->rig, 100, f->rig.streams[1]);
  VEXPECT_TRUE(vmp_pool_log_path(f->rig.pool) == NULL);
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  VEXPECT_STR_EQ(vmp_pool_log_path(f->rig.pool), f->path);
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  expect_end(f, &stats);  // while it is being written
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(count_of(&f->log, VMP_LOG_ALLOC, true), 2);
  VEXPECT_UINT_EQ(f->log.header.flags & VMP_LOG_FINISHED, 0);
  rig_free(&f->rig, a, f->rig.streams[1]);
  rig_free(&f->rig, b, f->rig.streams[1]);
  stats = rig_stats(&f->rig);
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  VEXPECT_OK(vmp_pool_log_stop(f->rig.pool));  // there is none
  expect_end(f, &stats);
  VEXPECT_UINT_EQ(f->log.header.flags & VMP_LOG_FINISHED, VMP_LOG_FINISHED);
  VEXPECT_UINT_EQ(count_of(&f->log, VMP_LOG_FREE, false), 2);
  struct stat file;
  VASSERT_INT_EQ(stat(f->path, &file), 0);
  VEXPECT_UINT_EQ((uint64_t)file.st_size, VMP_LOG_HEADER_BYTES + f->log.header.written * VMP_LOG_RECORD_BYTES);
  VEXPECT_UINT_EQ(file.st_mode & 0777, 0600);
}

VTEST_F(Log, EveryFieldOfABlock, log_rig) {
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  void *a = rig_alloc(&f->rig, 1000, f->rig.streams[2]);
  VASSERT_OK(vmp_record_use(f->rig.pool, a, f->rig.streams[3]));
  rig_free(&f->rig, a, f->rig.streams[1]);
  void *none;
  VASSERT_STATUS(vmp_alloc(f->rig.pool, &none, 2 * GIB, f->rig.streams[2]), VMP_ERROR_OUT_OF_MEMORY);
  VASSERT_OK(vmp_pool_mark(f->rig.pool, "a phase with a name that is longer than one record can hold"));
  VASSERT_OK(vmp_pool_set_limit(f->rig.pool, VMP_LIMIT_SOFT, 64 * MIB));
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  load_log(f);
  VASSERT_NO_FAILURE();
  vmp_log_record record, alloc = {0}, freed = {0}, use = {0}, oom = {0}, mark = {0}, limit = {0}, streams[64] = {{0}};
  for (uint64_t s = 0; s < f->log.end; s++) {
    VASSERT_TRUE(log_record(&f->log, s, &record));
    if (record.kind == VMP_LOG_ALLOC) alloc = record;
    if (record.kind == VMP_LOG_FREE) freed = record;
    if (record.kind == VMP_LOG_USE) use = record;
    if (record.kind == VMP_LOG_OOM) oom = record;
    if (record.kind == VMP_LOG_MARK) mark = record;
    if (record.kind == VMP_LOG_LIMIT) limit = record;
    if (record.kind == VMP_LOG_STREAM) streams[record.stream] = record;
  }
  VEXPECT_UINT_EQ(alloc.as.event.address, rig_address(a));
  VEXPECT_UINT_EQ(alloc.as.event.extra, 1000);
  VEXPECT_UINT_EQ(alloc.as.event.bytes, 1024);
  VEXPECT_UINT_EQ(alloc.layer, VMP_LAYER_SLAB);
  VEXPECT_UINT_EQ(streams[alloc.stream].as.event.extra, (uint64_t)(uintptr_t)f->rig.streams[2]);
  VEXPECT_UINT_EQ(freed.as.event.address, rig_address(a));
  VEXPECT_UINT_EQ(freed.as.event.extra, 1000);
  VEXPECT_UINT_EQ(freed.as.event.value, UINT64_C(1) << freed.stream | UINT64_C(1) << use.stream);
  VEXPECT_UINT_EQ(streams[use.stream].as.event.extra, (uint64_t)(uintptr_t)f->rig.streams[3]);
  VEXPECT_UINT_EQ(oom.as.event.extra, 2 * GIB);
  VEXPECT_UINT_EQ(oom.as.event.address, (uint64_t)-VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STR_EQ(log_string(&f->log, mark.as.event.tag), "a phase with a name that is longer than one record can hold");
  VEXPECT_UINT_EQ(limit.as.event.bytes, 64 * MIB);
  VEXPECT_UINT_EQ(limit.as.event.extra, VMP_LIMIT_SOFT);
  VEXPECT_UINT_EQ(alloc.thread, (uint32_t)getpid());
  VEXPECT_STR_EQ(f->log.header.pool_name, "pool");
  VEXPECT_STR_EQ(f->log.header.driver, "host");
  VEXPECT_UINT_EQ(f->log.header.granule_bytes, GRANULE);
}

VTEST_F(Log, LeadsToThePoolsOwnState, log_rig) {
  uint64_t seed = vtest_seed(1);
  rig_open(&f->rig, 512 * MIB, "chunk_max:8MiB,wait:0us");
  VASSERT_NO_FAILURE();
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  run_random(f, seed, 6000);
  VEXPECT_UINT_GT(count_of(&f->log, VMP_LOG_TAKE, false), 0);
  VEXPECT_UINT_GT(count_of(&f->log, VMP_LOG_UNMAP, false), 0);
  VEXPECT_UINT_GT(count_of(&f->log, VMP_LOG_RELEASE, false), 0);
  VEXPECT_UINT_GT(count_of(&f->log, VMP_LOG_OOM, false), 0);
  VEXPECT_UINT_EQ(count_of(&f->log, VMP_LOG_STEP, false), (6000 + 96) / 97);
}

// A ring keeps its tail, and enough keyframes to begin with one.
VTEST_F(Log, ARingsTailCanBeRead, log_rig) {
  vmp_log_start_options options = VMP_LOG_START_OPTIONS_INIT;
  uint64_t seed = vtest_seed(1);
  rig_open(&f->rig, 512 * MIB, "chunk_max:8MiB,wait:0us");
  VASSERT_NO_FAILURE();
  options.ring_bytes = MIB;
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, &options));
  VASSERT_OK(vmp_pool_mark(f->rig.pool, "long ago"));
  run_random(f, seed, 60000);
  VEXPECT_UINT_GT(f->log.first, 16384);
  VEXPECT_UINT_EQ(f->log.end - f->log.first, 16384);
  VEXPECT_UINT_GE(count_of(&f->log, VMP_LOG_KEYFRAME, false), 2);
  VEXPECT_STR_EQ(log_string(&f->log, 1), "long ago");  // repeated by keyframes
}

// Pages of regions are blocks of the log, shared ones at each of their addresses; keyframes tell of them, too.
VTEST_F(Log, PagesOfRegions, log_rig) {
  enum { REGIONS = 6, PAGES = 24 };
  vmp_log_start_options options = VMP_LOG_START_OPTIONS_INIT;
  vmp_region *regions[REGIONS] = {NULL};
  uint64_t seed = vtest_seed(1), committed = 0;
  vtest_rng rng = vtest_rng_make(seed);
  rig_open(&f->rig, 512 * MIB, "chunk_max:8MiB,wait:0us");
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < REGIONS; i++) regions[i] = region_make(&f->rig, PAGES * GRANULE, 0);
  VASSERT_OK(region_commit(regions[0], 3, 4, f->rig.streams[0]));  // before the log begins
  options.ring_bytes = MIB;
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, &options));
  for (size_t i = 0; i < 40000; i++) {
    vmp_region *region = regions[vtest_rng_below(&rng, REGIONS)], *other = regions[vtest_rng_below(&rng, REGIONS)];
    uint64_t first = vtest_rng_below(&rng, PAGES), count = vtest_rng_below(&rng, PAGES - first) + 1;
    vmp_stream stream = f->rig.streams[vtest_rng_below(&rng, RIG_STREAMS)];
    uint64_t kind = vtest_rng_below(&rng, 8);
    if (kind < 3) (void)region_commit(region, first, count, stream);
    if (kind >= 3 && kind < 6) VASSERT_OK(region_decommit(region, first, count, stream));
    if (kind == 6 && region != other) (void)vmp_region_share(region, first, other, first, 1, stream);
    if (kind == 7) {
      void *ptr = NULL;
      if (vmp_alloc(f->rig.pool, &ptr, 3 * MIB, stream) == VMP_OK) rig_free(&f->rig, ptr, stream);
    }
    if (i % 50 == 0) rig_settle(&f->rig);
  }
  VASSERT_OK(region_decommit(regions[5], 0, PAGES, f->rig.streams[0]));
  rig_settle(&f->rig);
  VASSERT_OK(region_commit(regions[4], 0, 5, f->rig.streams[0]));
  VASSERT_OK(vmp_region_share(regions[4], 0, regions[5], 0, 5, f->rig.streams[0]));
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  committed = stats.region_committed;
  VEXPECT_UINT_GT(committed, stats.region_live);  // some are shared
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  log_state end;
  load_log(f);
  VASSERT_NO_FAILURE();
  expect_whole(&f->log, &end);
  VEXPECT_UINT_EQ(end.live_bytes, committed);
  VEXPECT_UINT_EQ(end.num_blocks, committed / GRANULE);
  VEXPECT_UINT_EQ(end.mapped_bytes, stats.mapped);
  log_state_destroy(&end);
  VEXPECT_UINT_GE(count_of(&f->log, VMP_LOG_KEYFRAME, false), 2);
  for (size_t i = 0; i < REGIONS; i++) VEXPECT_OK(vmp_region_destroy(regions[i], f->rig.streams[0]));
}

VTEST_F(Log, StacksBySampledBytes, log_rig) {
  vmp_log_start_options options = VMP_LOG_START_OPTIONS_INIT;
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  options.stack_bytes = 10 * 4096;
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, &options));
  for (int i = 0; i < 100; i++) rig_free(&f->rig, rig_alloc(&f->rig, 4096, NULL), NULL);
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  load_log(f);
  VASSERT_NO_FAILURE();
  vmp_log_record record;
  uint64_t with = 0, stack = 0;
  for (uint64_t s = 0; s < f->log.end; s++) {
    VASSERT_TRUE(log_record(&f->log, s, &record));
    if (record.kind != VMP_LOG_ALLOC || record.as.event.stack == 0) continue;
    with++;
    stack = record.as.event.stack;
  }
  VEXPECT_UINT_EQ(with, 10);
  log_stack frames = log_stack_of(&f->log, (uint32_t)stack);
  VASSERT_UINT_GE(frames.count, 3);
  char text[512];
  log_frame_text(&f->log, frames.frames[0], text, sizeof text);
  VEXPECT_STR_CONTAINS(text, "+0x");
}

VTEST_F(Log, Refusals, log_rig) {
  vmp_log_start_options options = VMP_LOG_START_OPTIONS_INIT;
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_STATUS(vmp_pool_log_start(NULL, f->path, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, "", NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, "/no/such/folder/x.vmplog", NULL), VMP_ERROR_IO);
  options.ring_bytes = 4096;
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, f->path, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_INT_NE(access(f->path, F_OK), 0);
  options.struct_size = 1;
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, f->path, &options), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_mark(f->rig.pool, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_mark(NULL, "x"), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_log_stop(NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_pool_mark(f->rig.pool, "no log: nothing happens"));
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, f->path, NULL), VMP_ERROR_IO);  // it exists
  char other[600];
  (void)snprintf(other, sizeof other, "%s.2", f->path);
  VEXPECT_STATUS(vmp_pool_log_start(f->rig.pool, other, NULL), VMP_ERROR_BUSY);
  VEXPECT_INT_NE(access(other, F_OK), 0);
}

// Host memory runs out at every place in turn: the log is made or not, and the pool goes on in any case.
VTEST_F(Log, HostMemoryRunsOut, log_rig) {
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  for (uint64_t n = 0;; n++) {
    vmp_mem_fail_after(n, 1);
    vmp_status status = vmp_pool_log_start(f->rig.pool, f->path, NULL);
    (void)vmp_pool_mark(f->rig.pool, "a text");
    uint64_t failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    void *a = rig_alloc(&f->rig, 4096, NULL);
    rig_free(&f->rig, a, NULL);
    VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
    if (status == VMP_OK) VASSERT_INT_EQ(unlink(f->path), 0);
    if (failures == 0) break;
    if (status != VMP_OK) VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VASSERT_INT_NE(access(f->path, F_OK), 0);
  }
}

// A driver that fails leaves a log that still leads to the pool's own state: what couldn't be undone is told as it is.
static const vmp_call faulty_calls[] = {VMP_CALL_mem_create, VMP_CALL_mem_map, VMP_CALL_mem_set_access,
                                        VMP_CALL_mem_unmap, VMP_CALL_mem_release};

static void play_with_fault(log_rig *f, vmp_call call, uint64_t nth, bool from_then_on) {
  void *blocks[24] = {NULL};
  const vmp_host_fault fault = {.call = call, .nth = nth, .code = VMP_CU_OUT_OF_MEMORY, .from_then_on = from_then_on};
  for (size_t i = 0; i < 60; i++) {
    size_t at = i * 7 % 24;
    if (i == 10) VASSERT_TRUE(vmp_host_inject(f->rig.driver, &fault));
    if (i == 45) vmp_host_lift(f->rig.driver);
    if (blocks[at] != NULL) {
      rig_touch(&f->rig, blocks[at], GRANULE, f->rig.streams[at % 4]);
      rig_free(&f->rig, blocks[at], f->rig.streams[at % 4]);
      blocks[at] = NULL;
    } else {
      (void)vmp_alloc(f->rig.pool, &blocks[at], (1 + at % 5) * 3 * MIB, f->rig.streams[i % 4]);
    }
    if (i % 9 == 8) rig_settle(&f->rig);
    if (i % 17 == 16) (void)vmp_pool_trim(f->rig.pool, 24 * MIB, NULL);
  }
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  load_log(f);
  VASSERT_NO_FAILURE();
  log_state end;
  expect_whole(&f->log, &end);
  VEXPECT_UINT_EQ(end.live_bytes, stats.live);
  VEXPECT_UINT_EQ(end.mapped_bytes, stats.mapped);
  log_state_destroy(&end);
  for (size_t at = 0; at < 24; at++) {
    if (blocks[at] != NULL) rig_free(&f->rig, blocks[at], f->rig.streams[0]);
  }
  rig_settle(&f->rig);
}

VTEST_F(Log, AFailingDriver, log_rig) {
  rig_open(&f->rig, 64 * MIB, "chunk_max:4MiB,wait:0us,edges:0");
  VASSERT_NO_FAILURE();
  for (size_t c = 0; c < sizeof faulty_calls / sizeof faulty_calls[0]; c++) {
    for (uint64_t nth = 1; nth < 8; nth++) {
      VTRACE("call %d, %llu", (int)faulty_calls[c], (unsigned long long)nth);
      VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
      play_with_fault(f, faulty_calls[c], nth, nth % 2 == 0);
      VASSERT_NO_FAILURE();
      VASSERT_INT_EQ(unlink(f->path), 0);
    }
  }
}

typedef struct log_worker {
  log_rig *f;
  vmp_stream stream;
  uint64_t seed;
} log_worker;

static void *run_worker(void *context) {
  const log_worker *w = context;
  vtest_rng rng = vtest_rng_make(w->seed);
  void *blocks[32] = {NULL};
  for (int i = 0; i < 3000; i++) {
    size_t at = (size_t)vtest_rng_below(&rng, 32);
    if (blocks[at] != NULL) {
      (void)vmp_free(w->f->rig.pool, blocks[at], w->stream);
      blocks[at] = NULL;
    } else {
      (void)vmp_alloc(w->f->rig.pool, &blocks[at], vtest_rng_below(&rng, 600 * KIB) + 1, w->stream);
    }
    if (i % 1000 == 999) (void)vmp_pool_mark(w->f->rig.pool, "a thousand");
  }
  for (size_t at = 0; at < 32; at++) {
    if (blocks[at] != NULL) (void)vmp_free(w->f->rig.pool, blocks[at], w->stream);
  }
  return NULL;
}

// Several threads: their events are in one order, and each knows its thread. The log begins while they run, with what
// their caches held.
VTEST_F(Log, SeveralThreads, log_rig) {
  pthread_t threads[4];
  log_worker workers[4];
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < 4; i++) {
    workers[i] = (log_worker){f, f->rig.streams[i], i + 1};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, run_worker, &workers[i]), 0);
    if (i == 1) VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  }
  for (size_t i = 0; i < 4; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  expect_end(f, &stats);
  vmp_log_record record;
  uint32_t seen[8];
  size_t num_seen = 0;
  for (uint64_t s = 0; s < f->log.end; s++) {
    VASSERT_TRUE(log_record(&f->log, s, &record));
    if (record.kind != VMP_LOG_ALLOC || (record.flags & VMP_LOG_STATE) != 0) continue;
    size_t i = 0;
    while (i < num_seen && seen[i] != record.thread) i++;
    if (i == num_seen && num_seen < 8) seen[num_seen++] = record.thread;
  }
  VEXPECT_UINT_GE(num_seen, 2);  // the last two began after the log
  VEXPECT_UINT_LE(num_seen, 4);
}

// A disk that is full ends the log, not the program: what was written stays whole.
VTEST_F(Log, AFullDiskEndsTheLog, log_rig) {
  rig_open(&f->rig, GIB, NULL);
  VASSERT_NO_FAILURE();
  struct rlimit old, small;
  VASSERT_INT_EQ(getrlimit(RLIMIT_FSIZE, &old), 0);
  VASSERT_OK(vmp_pool_log_start(f->rig.pool, f->path, NULL));
  small = old;
  small.rlim_cur = 3 * MIB;
  VASSERT_TRUE(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
  VASSERT_INT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  for (int i = 0; i < 30000; i++) rig_free(&f->rig, rig_alloc(&f->rig, 4096, NULL), NULL);
  VASSERT_INT_EQ(setrlimit(RLIMIT_FSIZE, &old), 0);
  VASSERT_OK(vmp_pool_log_stop(f->rig.pool));
  load_log(f);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_GE(f->log.end, 32768);
  VEXPECT_UINT_LT(f->log.end, 50000);
  VEXPECT_UINT_GE(f->log.end + f->log.header.dropped, 60000);
  log_state end;
  expect_whole(&f->log, &end);
  log_state_destroy(&end);
}

// A program that is killed leaves every record that it has written.
VTEST_F(Log, SurvivesAKill, log_rig) {
  pid_t child = fork();
  VASSERT_INT_GE(child, 0);
  if (child == 0) {
    vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
    vmp_driver_options driver_options = VMP_DRIVER_OPTIONS_INIT;
    vmp_driver *driver;
    vmp_pool *pool;
    void *block;
    driver_options.kind = VMP_DRIVER_HOST;
    if (vmp_driver_open(&driver, &driver_options) != VMP_OK) _exit(2);
    options.driver = driver;
    if (vmp_pool_create(&pool, &options) != VMP_OK || vmp_pool_log_start(pool, f->path, NULL) != VMP_OK) _exit(3);
    for (int i = 0; i < 1000; i++) (void)vmp_alloc(pool, &block, 1000, NULL);
    (void)raise(SIGKILL);
  }
  int status;
  VASSERT_INT_EQ(waitpid(child, &status, 0), child);
  VASSERT_TRUE(WIFSIGNALED(status));
  load_log(f);
  VASSERT_NO_FAILURE();
  log_state end;
  expect_whole(&f->log, &end);
  VEXPECT_UINT_EQ(end.num_blocks, 1000);
  VEXPECT_UINT_EQ(f->log.header.flags & VMP_LOG_FINISHED, 0);
  log_state_destroy(&end);
}

// The option makes the file's name, and a second pool gets another one.
VTEST_F(Log, ByOptionWithProcessAndPoolInTheName, log_rig) {
  char conf[700], wanted[700], second[700];
  (void)snprintf(conf, sizeof conf, "name:my pool,log:%s", f->path);
  (void)snprintf(wanted, sizeof wanted, "%.*s-%ld-my_pool.vmplog", (int)(strlen(f->path) - 7), f->path, (long)getpid());
  (void)snprintf(second, sizeof second, "%.*s-%ld-my_pool-2.vmplog", (int)(strlen(f->path) - 7), f->path,
                 (long)getpid());
  rig_open(&f->rig, GIB, conf);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(vmp_pool_log_path(f->rig.pool), wanted);
  vmp_pool *other;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->rig.driver;
  options.conf = conf;
  VASSERT_OK(vmp_pool_create(&other, &options));
  VEXPECT_STR_EQ(vmp_pool_log_path(other), second);
  VEXPECT_OK(vmp_pool_destroy(other));
  rig_free(&f->rig, rig_alloc(&f->rig, 1, NULL), NULL);
  VASSERT_INT_EQ(rename(wanted, f->path), 0);
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  expect_end(f, &stats);
  VEXPECT_INT_EQ(unlink(second), 0);
}
