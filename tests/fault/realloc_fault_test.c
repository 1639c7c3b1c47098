// realloc_fault_test.c: every driver call of a scenario of vmp_realloc fails in turn, once and from then on, and every
// allocation of host memory. A failed step has changed nothing: the block has its old address, length and content, and
// the same step works once the fault is lifted. At the end nothing is left behind.
//
// Work runs at once (early mode), so content can be looked at after each step.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

// Granules of 64 KiB, so that a run is short; sizes are written in units of half a granule.
#define UNIT (32 * KIB)
#define DEVICE_BYTES (128 * UNIT)
#define BLOCKS 4
#define CONF "chunk_max:128KiB,growth:128KiB,buddy_from:1280KiB,slab_max:16KiB"

typedef struct known_block {
  void *ptr;
  uint64_t bytes;
  unsigned char tag;
} known_block;

typedef struct scenario {
  pool_rig *rig;
  bool faulty, host_memory;
  uint64_t struck, remapped_bytes, copied_bytes;
  known_block blocks[BLOCKS];
} scenario;

static void lift(scenario *s) {
  rig_lift(s->rig, s->host_memory);
  s->faulty = false;
}

// expect_content reads past the driver's calls, so that no fault strikes here.
static void expect_content(scenario *s) {
  static unsigned char data[MIB];
  for (size_t i = 0; i < BLOCKS; i++) {
    const known_block *b = &s->blocks[i];
    uint64_t wrong = 0;
    for (uint64_t at = 0; b->ptr != NULL && at < b->bytes; at += MIB) {
      uint64_t length = b->bytes - at < MIB ? b->bytes - at : MIB;
      VASSERT_INT_EQ(vmp_host_peek(s->rig->driver, rig_address(b->ptr) + at, data, (size_t)length), 0);
      wrong += data[0] != b->tag || memcmp(data, data + 1, (size_t)length - 1) != 0;
    }
    VASSERT_UINT_EQ(wrong, 0);
  }
}

static void fill(scenario *s, known_block *b) {
  static unsigned char data[MIB];
  memset(data, b->tag, sizeof data);
  for (uint64_t at = 0; at < b->bytes; at += MIB) {
    uint64_t length = b->bytes - at < MIB ? b->bytes - at : MIB;
    VASSERT_INT_EQ(vmp_host_poke(s->rig->driver, rig_address(b->ptr) + at, data, (size_t)length), 0);
  }
}

// step makes a block `bytes` long, twice if the fault strikes.
static void step(scenario *s, size_t which, uint64_t bytes, int stream) {
  known_block *b = &s->blocks[which];
  VTRACE("block %zu to %" PRIu64, which, bytes);
  for (int tries = 0; tries < 2; tries++) {
    void *ptr = b->ptr;
    vmp_pool_stats_data before = rig_quiet_stats(s->rig);
    vmp_realloc_report report = VMP_REALLOC_REPORT_INIT;
    vmp_status status = vmp_realloc(s->rig->pool, &ptr, bytes, s->rig->streams[stream], &report);
    VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));
    if (status != VMP_OK) {
      VASSERT_TRUE(s->faulty);
      VASSERT_STR_NE(vmp_last_error()->message, "");
      VASSERT_TRUE(ptr == b->ptr);
      vmp_pool_stats_data after = rig_quiet_stats(s->rig);
      VASSERT_UINT_EQ(after.live, before.live);
      VASSERT_UINT_EQ(after.requested, before.requested);
      VASSERT_UINT_EQ(after.blocks, before.blocks);
      s->struck++;
      expect_content(s);
      lift(s);
      continue;
    }
    s->remapped_bytes += report.remapped_bytes;
    s->copied_bytes += report.copied_bytes;
    uint64_t kept = b->bytes < bytes ? b->bytes : bytes;
    *b = (known_block){ptr, kept, b->tag};
    expect_content(s);
    if (vtest_has_failure()) return;
    *b = (known_block){ptr, bytes, (unsigned char)(b->tag + 1)};
    fill(s, b);
    return;
  }
  VADD_FAILURE("the step failed without a fault");
}

static void play(scenario *s) {
  pool_rig *rig = s->rig;
  static const uint64_t sizes[BLOCKS] = {9 * UNIT, 3 * UNIT + 512, 3000, 44 * UNIT};
  for (size_t i = 0; i < BLOCKS && !vtest_has_failure(); i++) {
    known_block *b = &s->blocks[i];
    vmp_status status = vmp_alloc(rig->pool, &b->ptr, sizes[i], rig->streams[0]);
    if (status != VMP_OK) {
      VASSERT_TRUE(s->faulty);
      lift(s);
      VASSERT_OK(vmp_alloc(rig->pool, &b->ptr, sizes[i], rig->streams[0]));
    }
    b->bytes = sizes[i];
    b->tag = (unsigned char)(16 * (i + 1));
    fill(s, b);
  }
  static const struct {
    size_t block;
    uint64_t bytes;
    int stream;
  } steps[] = {
      {0, 20 * UNIT, 1},  // another block is behind it: its chunks move, the rest is copied
      {0, 26 * UNIT, 1},  // in place
      {1, UNIT, 0},       // the tail is freed
      {2, 9000, 2},       // from class to class
      {2, 60000, 2},      // to mid
      {3, 20 * UNIT, 0},  // buddy's
      {0, 5 * UNIT, 3},  {1, 18 * UNIT, 3}, {3, 48 * UNIT, 2},
  };
  for (size_t i = 0; i < sizeof steps / sizeof steps[0] && !vtest_has_failure(); i++) {
    step(s, steps[i].block, steps[i].bytes, steps[i].stream);
  }
}

static void end(scenario *s) {
  for (size_t i = 0; i < BLOCKS; i++) {
    if (s->blocks[i].ptr != NULL) VASSERT_OK(vmp_free(s->rig->pool, s->blocks[i].ptr, NULL));
  }
  if (s->faulty) lift(s);
  rig_settle(s->rig);
  VASSERT_OK(vmp_pool_trim(s->rig->pool, 0, NULL));
  VASSERT_UINT_EQ(rig_quiet_stats(s->rig).broken, 0);
  VASSERT_UINT_EQ(rig_quiet_stats(s->rig).mapped + rig_quiet_stats(s->rig).spare, 0);
  pool_rig_teardown(s->rig);  // checks that nothing is left
}

static void open_scenario(scenario *s, pool_rig *rig) {
  *rig = (pool_rig){.driver = NULL};
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = DEVICE_BYTES;
  options.devices[0].granule_bytes = 2 * UNIT;
  options.ledger_high = 1;
  rig_open_driver_with(rig, &options);
  VASSERT_NO_FAILURE();
  vmp_host_set_work(rig->driver, VMP_HOST_WORK_EARLY, 0);
  VASSERT_OK(rig_create(rig, CONF));
  *s = (scenario){.rig = rig};
}

typedef struct fault_case {
  const char *name;
  int code;
  bool from_then_on;
} fault_case;

static const fault_case fault_cases[] = {
    {"memory_once", VMP_CU_OUT_OF_MEMORY, false},  {"memory_from_then_on", VMP_CU_OUT_OF_MEMORY, true},
    {"invalid_once", VMP_CU_INVALID_VALUE, false}, {"invalid_from_then_on", VMP_CU_INVALID_VALUE, true},
    {"unknown_once", VMP_CU_UNKNOWN, false},       {"unknown_from_then_on", VMP_CU_UNKNOWN, true},
    {"not_ready_once", VMP_CU_NOT_READY, false},
};
static const char *fault_case_name(const fault_case *p) { return p->name; }

VTEST_P(ReallocFault, EveryDriverCall, fault_case, fault_cases, fault_case_name) {
  uint64_t calls = 1, struck = 0, stride = vtest_ops(100000) < 100000 ? 5 : 1;
  for (uint64_t nth = 0; nth <= calls && !vtest_has_failure(); nth += nth == 0 ? 1 : stride) {
    pool_rig rig;
    scenario s;
    VTRACE("driver call %" PRIu64, nth);
    open_scenario(&s, &rig);
    VASSERT_NO_FAILURE();
    uint64_t before = rig_all_calls(rig.driver);
    s.faulty = nth > 0;
    vmp_host_fault fault = {VMP_CALL_COUNT, nth, p->code, p->from_then_on};
    if (nth > 0) VASSERT_TRUE(vmp_host_inject(rig.driver, &fault));
    play(&s);
    if (nth == 0) {
      calls = rig_all_calls(rig.driver) - before;
      VEXPECT_UINT_GT(s.remapped_bytes, 0);
      VEXPECT_UINT_GT(s.copied_bytes, 0);
    }
    if (!vtest_has_failure()) end(&s);
    struck += s.struck;
  }
  printf("%s: %" PRIu64 " calls, %" PRIu64 " failed steps\n", p->name, calls, struck);
  VEXPECT_UINT_GT(calls, 50);
  if (p->code != VMP_CU_NOT_READY) VEXPECT_UINT_GT(struck * stride, 8);
}

VTEST(ReallocFault, EveryHostAllocation) {
  uint64_t struck = 0, nth = 0;
  for (bool failed = true; failed && !vtest_has_failure(); nth++) {
    pool_rig rig;
    scenario s;
    VTRACE("host allocation %" PRIu64, nth);
    open_scenario(&s, &rig);
    VASSERT_NO_FAILURE();
    s.faulty = s.host_memory = true;
    vmp_mem_fail_after(nth, 1);
    play(&s);
    failed = vmp_mem_failures() > 0 || !s.faulty;
    if (!vtest_has_failure()) end(&s);
    struck += s.struck;
    vmp_mem_fail_after(0, 0);
  }
  printf("%" PRIu64 " host allocations, %" PRIu64 " failed steps\n", nth, struck);
  VEXPECT_UINT_GT(struck, 3);
}
