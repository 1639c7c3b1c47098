// errors_test.c: a driver that fails at any step: nothing is left half done, the cause is told, the next request works.
// Bug cases 16, 17, 18, 22, 53, 75, 76. Every position of every call is tests/fault's.
#include <string.h>

#include "tests/pool/pool_rig.h"

typedef struct step {
  const char *name;
  vmp_call call;
  const char *symbol;
} step;

static const step steps[] = {
    {"create", VMP_CALL_mem_create, "cuMemCreate"},
    {"map", VMP_CALL_mem_map, "cuMemMap"},
    {"set_access", VMP_CALL_mem_set_access, "cuMemSetAccess"},
};
static const char *step_name(const step *p) { return p->name; }

static bool inject(pool_rig *f, vmp_call call, uint64_t nth, int code, bool from_then_on) {
  vmp_host_fault fault = {call, nth, code, from_then_on};
  return vmp_host_inject(f->driver, &fault);
}

// Case 16: the device is emptied in the middle of a request that mixes what is parked with what is new.
VTEST_F(Errors, Case16NothingIsLeftHalfDone, pool_rig) {
  rig_open(f, 16 * GIB, "preset:tight");
  VASSERT_NO_FAILURE();
  void *keeper = rig_alloc(f, 3 * MIB, NULL), *parked = rig_alloc(f, 64 * MIB, NULL), *ptr = NULL;
  rig_free(f, parked, NULL);
  for (uint64_t nth = 1; nth <= 5; nth++) {
    VTRACE("create %llu fails", (unsigned long long)nth);
    vmp_pool_stats_data before = rig_stats(f);
    uint64_t handles = rig_census(f).handles;
    VASSERT_TRUE(inject(f, VMP_CALL_mem_create, nth, VMP_CU_OUT_OF_MEMORY, true));
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 5 * GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
    vmp_host_lift(f->driver);
    vmp_pool_stats_data after = rig_stats(f);
    VEXPECT_UINT_EQ(after.live, before.live);
    VEXPECT_UINT_EQ(after.blocks, before.blocks);
    VEXPECT_UINT_EQ(after.chunks * GRANULE, after.mapped + after.spare);  // what is kept is accounted for
    VEXPECT_UINT_LE(rig_census(f).handles, handles + nth);
    VEXPECT_UINT_EQ(rig_census(f).handles, after.chunks);
    rig_check(f);
    void *next = rig_alloc(f, 2 * GIB, NULL);
    rig_touch(f, next, 2 * GIB, NULL);
    rig_free(f, next, NULL);
    rig_settle(f);
    VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  }
  rig_free(f, keeper, NULL);
}

// Cases 17 and 18: any of the first calls of each step fails; the same request works afterwards.
VTEST_FP(Errors, Case17And18EachStep, pool_rig, step, steps, step_name) {
  rig_open_driver(f, 16 * GIB);
  VASSERT_NO_FAILURE();
  for (uint64_t nth = 1; nth <= 8; nth++) {
    VTRACE("%s %llu fails", p->symbol, (unsigned long long)nth);
    VASSERT_OK(rig_create(f, "chunk_max:64MiB,no_map_ahead:1"));
    void *ptr = NULL;
    // One set-access covers a whole run, so its later calls need requests of their own.
    for (uint64_t i = 1; i < nth && p->call == VMP_CALL_mem_set_access; i++) {
      VASSERT_OK(vmp_alloc(f->pool, &ptr, 64 * MIB, NULL));
      VASSERT_OK(vmp_free(f->pool, ptr, NULL));
      VASSERT_OK(vmp_pool_trim(f->pool, UINT64_MAX, NULL));
    }
    bool one_call = p->call == VMP_CALL_mem_set_access;
    VASSERT_TRUE(inject(f, p->call, one_call ? 1 : nth, VMP_CU_OUT_OF_MEMORY, true));
    vmp_pool_stats_data before = rig_stats(f);
    VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 8 * GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
    vmp_host_lift(f->driver);
    vmp_pool_stats_data after = rig_stats(f);
    VEXPECT_UINT_EQ(after.live, before.live);
    VEXPECT_UINT_EQ(after.broken, 0);
    rig_check(f);
    ptr = rig_alloc(f, 8 * GIB, NULL);
    rig_touch(f, ptr, 8 * GIB, NULL);
    rig_free(f, ptr, NULL);
    rig_destroy(f);
    VEXPECT_UINT_EQ(rig_census(f).handles, 0);
    VASSERT_NO_FAILURE();
  }
}

// Case 17, the double failure: the undoing fails too. The bytes are kept, shown, and come back once the driver works.
VTEST_F(Errors, Case17TheUndoingFailsToo, pool_rig) {
  rig_open(f, 16 * GIB, "no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  VASSERT_TRUE(inject(f, VMP_CALL_mem_set_access, 1, VMP_CU_OUT_OF_MEMORY, true));
  VASSERT_TRUE(inject(f, VMP_CALL_mem_unmap, 1, VMP_CU_UNKNOWN, true));
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, GIB, NULL), VMP_ERROR_OUT_OF_MEMORY);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_GE(stats.broken, GIB);  // degraded, and says so
  VEXPECT_UINT_LE(stats.broken, 2 * GIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  vmp_host_lift(f->driver);
  ptr = rig_alloc(f, GIB, NULL);
  rig_touch(f, ptr, GIB, NULL);
  VEXPECT_UINT_EQ(rig_stats(f).broken, 0);
  rig_free(f, ptr, NULL);
}

// Case 22: a take remaps; when it fails after the map, live blocks keep their content and their rights.
VTEST_F(Errors, Case22LiveBlocksKeepTheirRights, pool_rig) {
  rig_open(f, GIB, "preset:tight");
  VASSERT_NO_FAILURE();
  void *blocks[512], *ptr = NULL;
  for (size_t i = 0; i < 512; i++) {
    blocks[i] = rig_alloc(f, GRANULE, NULL);
    VASSERT_INT_EQ(vmp_host_poke(f->driver, rig_address(blocks[i]), &i, sizeof i), 0);
  }
  for (size_t i = 0; i < 512; i += 2) rig_free(f, blocks[i], NULL);
  for (uint64_t nth = 1; nth <= 3; nth++) {
    VASSERT_TRUE(inject(f, VMP_CALL_mem_set_access, nth, VMP_CU_NOT_PERMITTED, false));
    vmp_status status = vmp_alloc(f->pool, &ptr, 128 * MIB, NULL);
    vmp_host_lift(f->driver);
    if (status == VMP_OK) rig_free(f, ptr, NULL);
    for (size_t i = 1; i < 512; i += 2) {
      size_t value = 0;
      VASSERT_INT_EQ(vmp_host_peek(f->driver, rig_address(blocks[i]), &value, sizeof value), 0);
      VASSERT_UINT_EQ(value, i);
      rig_touch(f, blocks[i], GRANULE, NULL);
      VASSERT_INT_EQ(vmp_host_poke(f->driver, rig_address(blocks[i]), &i, sizeof i), 0);
    }
    rig_check(f);
  }
  for (size_t i = 1; i < 512; i += 2) rig_free(f, blocks[i], NULL);
}

// Case 53: the caller learns the step and the driver's code; nothing turns into plain out of memory.
typedef struct cause {
  const char *name;
  vmp_call call;
  int code;
  vmp_status status;
  const char *symbol;
} cause;

static const cause causes[] = {
    {"create_memory", VMP_CALL_mem_create, VMP_CU_OUT_OF_MEMORY, VMP_ERROR_OUT_OF_MEMORY, ""},
    {"create_invalid", VMP_CALL_mem_create, VMP_CU_INVALID_VALUE, VMP_ERROR_DRIVER, "cuMemCreate"},
    {"create_not_supported", VMP_CALL_mem_create, VMP_CU_NOT_SUPPORTED, VMP_ERROR_NOT_SUPPORTED, "cuMemCreate"},
    {"map_invalid", VMP_CALL_mem_map, VMP_CU_INVALID_VALUE, VMP_ERROR_DRIVER, "cuMemMap"},
    {"map_unknown", VMP_CALL_mem_map, VMP_CU_UNKNOWN, VMP_ERROR_DRIVER, "cuMemMap"},
    {"access_not_permitted", VMP_CALL_mem_set_access, VMP_CU_NOT_PERMITTED, VMP_ERROR_DRIVER, "cuMemSetAccess"},
    {"access_sticky", VMP_CALL_mem_set_access, VMP_CU_ILLEGAL_ADDRESS, VMP_ERROR_STICKY, "cuMemSetAccess"},
    {"create_deinitialized", VMP_CALL_mem_create, VMP_CU_DEINITIALIZED, VMP_ERROR_DEINITIALIZED, "cuMemCreate"},
};
static const char *cause_name(const cause *p) { return p->name; }

VTEST_FP(Errors, Case53TheCauseIsTold, pool_rig, cause, causes, cause_name) {
  rig_open(f, 16 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *ptr = NULL;
  vmp_pool_stats_data before = rig_stats(f);
  VASSERT_TRUE(inject(f, p->call, 1, p->code, true));
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 3 * MIB, NULL), p->status);
  if (p->symbol[0] != '\0') {
    VEXPECT_INT_EQ(vmp_last_error()->driver_code, p->code);
    VEXPECT_STR_EQ(vmp_last_error()->driver_call, p->symbol);
  }
  VEXPECT_UINT_EQ(rig_stats(f).host_waits, 0);
  vmp_host_lift(f->driver);
  vmp_pool_stats_data after = rig_stats(f);
  VEXPECT_UINT_EQ(after.live, before.live);
  VEXPECT_UINT_EQ(after.failed_allocs, 1);
  rig_check(f);
  rig_free(f, rig_alloc(f, 3 * MIB, NULL), NULL);
}

// Case 76: "not ready" is tried again a few times, and no more than that.
VTEST_F(Errors, Case76NotReadyIsTransient, pool_rig) {
  rig_open(f, 16 * GIB, NULL);
  VASSERT_NO_FAILURE();
  for (int i = 1; i <= 3; i++) VASSERT_TRUE(inject(f, VMP_CALL_mem_set_access, (uint64_t)i, VMP_CU_NOT_READY, false));
  void *ptr = rig_alloc(f, 3 * MIB, NULL);
  rig_touch(f, ptr, 3 * MIB, NULL);
  vmp_host_lift(f->driver);
  rig_free(f, ptr, NULL);
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VASSERT_TRUE(inject(f, VMP_CALL_mem_set_access, 1, VMP_CU_NOT_READY, true));
  uint64_t calls = rig_calls(f).set_access;
  VEXPECT_STATUS(vmp_alloc(f->pool, &ptr, 3 * MIB, NULL), VMP_ERROR_DRIVER);
  VEXPECT_INT_EQ(vmp_last_error()->driver_code, VMP_CU_NOT_READY);
  VEXPECT_UINT_LE(rig_calls(f).set_access - calls, 100);
  vmp_host_lift(f->driver);
  rig_check(f);
}

// Case 75: the context goes away under the pool. Everything still answers, and host memory is freed.
VTEST_F(Errors, Case75TheContextIsGone, pool_rig) {
  rig_open(f, 16 * GIB, NULL);
  VASSERT_NO_FAILURE();
  f->keeps_nothing_checked = true;  // the driver is broken on purpose
  void *a = rig_alloc(f, 10 * MIB, NULL), *b = rig_alloc(f, 5000, NULL), *c = NULL;
  static const vmp_call calls[] = {VMP_CALL_mem_create,          VMP_CALL_mem_map,         VMP_CALL_mem_unmap,
                                   VMP_CALL_mem_release,         VMP_CALL_mem_set_access,  VMP_CALL_event_record,
                                   VMP_CALL_event_query,         VMP_CALL_event_create,    VMP_CALL_ctx_push_current,
                                   VMP_CALL_ctx_get_current,     VMP_CALL_ctx_synchronize, VMP_CALL_mem_address_free,
                                   VMP_CALL_primary_ctx_release, VMP_CALL_event_destroy};
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
    VASSERT_TRUE(inject(f, calls[i], 1, VMP_CU_DEINITIALIZED, true));
  }
  rig_free(f, a, NULL);
  (void)vmp_pool_trim(f->pool, 0, NULL);
  VEXPECT_STATUS(vmp_alloc(f->pool, &c, 100 * MIB, NULL), VMP_ERROR_DEINITIALIZED);
  rig_free(f, b, NULL);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.live, 0);
  vmp_pool *pool = f->pool;
  f->pool = NULL;
  vmp_status status = vmp_pool_destroy(pool);  // the leak check of ASan says whether host memory is freed
  VEXPECT_TRUE(status == VMP_OK || status == VMP_ERROR_DEINITIALIZED || status == VMP_ERROR_DRIVER);
  vmp_host_lift(f->driver);
}

// Destroying with live blocks is refused with counts, or frees them by option, after their work.
VTEST_F(Errors, DestroyWithLiveBlocks, pool_rig) {
  rig_open(f, 16 * GIB, "name:training");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(f, 10 * MIB, NULL), *b = rig_alloc(f, 5000, NULL);
  VEXPECT_STATUS(vmp_pool_destroy(f->pool), VMP_ERROR_BUSY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "2 live blocks");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "(10490760 requested)");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "training");
  rig_check(f);  // nothing has changed
  rig_free(f, a, NULL);
  rig_free(f, b, NULL);
  rig_destroy(f);
  VASSERT_OK(rig_create(f, "destroy_releases:1"));
  for (int i = 0; i < RIG_STREAMS; i++) {
    void *ptr = rig_alloc(f, 10 * MIB, f->streams[i]);
    rig_touch(f, ptr, 10 * MIB, f->streams[i]);
    ptr = rig_alloc(f, 5000, f->streams[i]);
    VEXPECT_OK(vmp_record_use(f->pool, ptr, f->streams[(i + 1) % RIG_STREAMS]));
    rig_touch(f, ptr, 5000, f->streams[(i + 1) % RIG_STREAMS]);
  }
  rig_destroy(f);
  VEXPECT_UINT_EQ(rig_census(f).physical_bytes, 0);
}
