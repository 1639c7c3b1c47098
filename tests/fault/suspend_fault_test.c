// suspend_fault_test.c: every driver call of a scenario of suspending and resuming fails in turn, once and from then
// on, and every allocation of host memory. No byte is lost: whatever failed, the same call works once the fault is
// lifted, and in the end every block has its content. At the end nothing is left behind.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

// Granules of 64 KiB, so that a run is short.
#define SLOT (64 * KIB)
#define DEVICE_BYTES (64 * SLOT)
#define CONF "chunk_max:256KiB,growth:256KiB,slab_max:16KiB"
#define BLOCKS 6

typedef struct known_block {
  void *ptr;
  uint64_t bytes;
  unsigned char byte;
  bool tagged;
} known_block;

typedef struct scenario {
  pool_rig *rig;
  bool faulty, host_memory;
  uint64_t struck;
  vmp_tag tag;
  known_block blocks[BLOCKS];
} scenario;

static void lift(scenario *s) {
  rig_lift(s->rig, s->host_memory);
  s->faulty = false;
}

static int state_of(scenario *s) {
  vmp_tag_info info = VMP_TAG_INFO_INIT;
  VEXPECT_OK(vmp_tag_query(s->rig->pool, s->tag, &info));
  return info.state;
}

// expect_content looks past the driver's calls, so that no fault strikes here.
static void expect_content(scenario *s) {
  static unsigned char data[20 * SLOT];
  bool resident = s->tag == 0 || state_of(s) == VMP_TAG_RESIDENT;
  for (size_t i = 0; i < BLOCKS; i++) {
    const known_block *b = &s->blocks[i];
    if (b->ptr == NULL || (b->tagged && !resident)) continue;
    VASSERT_INT_EQ(vmp_host_peek(s->rig->driver, rig_address(b->ptr), data, (size_t)b->bytes), 0);
    VASSERT_TRUE(data[0] == b->byte && memcmp(data, data + 1, (size_t)b->bytes - 1) == 0);
  }
}

// REPEAT(call): the call works, or it fails, and works without the fault.
#define REPEAT(call)                                                                         \
  do {                                                                                       \
    VTRACE("%s", #call);                                                                     \
    vmp_status repeat_status = (call);                                                       \
    if (repeat_status < 0) {                                                                 \
      if (!s->faulty) VADD_FAILURE("failed without a fault: %s", vmp_last_error()->message); \
      VASSERT_TRUE(s->faulty);                                                               \
      VASSERT_STR_NE(vmp_last_error()->message, "");                                         \
      s->struck++;                                                                           \
      VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));                                        \
      expect_content(s);                                                                     \
      if (vtest_has_failure()) return;                                                       \
      lift(s);                                                                               \
      VASSERT_OK(call);                                                                      \
    }                                                                                        \
    VASSERT_OK(vmp_pool_check(s->rig->pool, NULL));                                          \
    expect_content(s);                                                                       \
    if (vtest_has_failure()) return;                                                         \
  } while (0)

static vmp_status alloc_block(scenario *s, known_block *b) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.tag = b->tagged ? s->tag : 0;
  return vmp_alloc_with(s->rig->pool, &b->ptr, b->bytes, s->rig->streams[0], &options);
}

static void fill_block(scenario *s, known_block *b) {
  static unsigned char data[20 * SLOT];
  memset(data, b->byte, (size_t)b->bytes);
  VASSERT_INT_EQ(vmp_host_poke(s->rig->driver, rig_address(b->ptr), data, (size_t)b->bytes), 0);
}

static void play(scenario *s) {
  vmp_pool *pool = s->rig->pool;
  static const uint64_t sizes[BLOCKS] = {9 * SLOT + 512, 3000, 5 * SLOT, 3000, 12 * SLOT, 4 * SLOT};
  vmp_suspend_options keep = VMP_SUSPEND_OPTIONS_INIT, drop = VMP_SUSPEND_OPTIONS_INIT;
  keep.buffer_bytes = 2 * SLOT;
  drop.content = VMP_SUSPEND_DROP;
  REPEAT(vmp_tag_create(pool, "tag", &s->tag));
  for (size_t i = 0; i < BLOCKS; i++) {
    known_block b = {NULL, sizes[i], (unsigned char)(17 * (i + 1)), i != 2};
    REPEAT(alloc_block(s, &b));
    fill_block(s, &b);
    s->blocks[i] = b;
  }
  rig_touch(s->rig, s->blocks[0].ptr, s->blocks[0].bytes, s->rig->streams[3]);
  REPEAT(vmp_pool_suspend(pool, s->tag, &keep));
  VASSERT_INT_EQ(state_of(s), VMP_TAG_SUSPENDED);
  REPEAT(vmp_pool_suspend(pool, s->tag, &keep));
  REPEAT(vmp_free(pool, s->blocks[5].ptr, s->rig->streams[1]));
  s->blocks[5].ptr = NULL;
  REPEAT(vmp_pool_resume(pool, s->tag));
  VASSERT_INT_EQ(state_of(s), VMP_TAG_RESIDENT);
  REPEAT(vmp_pin(pool, s->blocks[4].ptr, "nic"));
  rig_touch(s->rig, s->blocks[0].ptr, s->blocks[0].bytes, s->rig->streams[2]);
  REPEAT(vmp_pool_suspend(pool, s->tag, &keep));
  REPEAT(vmp_pool_resume(pool, s->tag));
  REPEAT(vmp_unpin(pool, s->blocks[4].ptr));
  for (size_t i = 0; i < BLOCKS; i++) {  // what is dropped is undefined afterwards
    if (s->blocks[i].ptr != NULL && s->blocks[i].tagged) {
      REPEAT(vmp_free(pool, s->blocks[i].ptr, s->rig->streams[0]));
      s->blocks[i].ptr = NULL;
    }
    if (i == 3) REPEAT(vmp_pool_suspend(pool, s->tag, &drop));
  }
  REPEAT(vmp_pool_resume(pool, s->tag));
}

static void end(scenario *s) {
  if (s->faulty) lift(s);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (s->blocks[i].ptr != NULL) VASSERT_OK(vmp_free(s->rig->pool, s->blocks[i].ptr, NULL));
  }
  rig_settle(s->rig);
  VASSERT_OK(vmp_pool_trim(s->rig->pool, 0, NULL));
  vmp_pool_stats_data stats = rig_stats(s->rig);
  VASSERT_UINT_EQ(stats.mapped + stats.spare + stats.broken, 0);
  pool_rig_teardown(s->rig);  // checks that nothing is left
}

static void open_scenario(scenario *s, pool_rig *rig) {
  *rig = (pool_rig){.driver = NULL};
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0].memory_bytes = DEVICE_BYTES;
  options.devices[0].granule_bytes = SLOT;
  options.ledger_high = 1;
  rig_open_driver_with(rig, &options);
  VASSERT_NO_FAILURE();
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
};
static const char *fault_case_name(const fault_case *p) { return p->name; }

VTEST_P(SuspendFault, EveryDriverCall, fault_case, fault_cases, fault_case_name) {
  uint64_t calls = 1, struck = 0, stride = vtest_ops(100000) < 100000 ? 7 : 1;
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
    if (nth == 0) calls = rig_all_calls(rig.driver) - before;
    if (!vtest_has_failure()) end(&s);
    struck += s.struck;
  }
  printf("%s: %" PRIu64 " calls, %" PRIu64 " failed steps\n", p->name, calls, struck);
  VEXPECT_UINT_GT(calls, 100);
  VEXPECT_UINT_GT(struck * stride, 20);
}

VTEST(SuspendFault, EveryHostAllocation) {
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
  VEXPECT_UINT_GT(struck, 10);
}
