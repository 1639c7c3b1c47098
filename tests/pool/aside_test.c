// aside_test.c: memory that is set aside: all or nothing, in one step, and whoever has the ticket gets it.
#include <pthread.h>
#include <stdatomic.h>

#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

static vmp_status draw(pool_rig *f, void **out_ptr, uint64_t bytes, vmp_ticket ticket, vmp_stream stream) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.ticket = ticket;
  return vmp_alloc_with(f->pool, out_ptr, bytes, stream, &options);
}

static void *drawn(pool_rig *f, uint64_t bytes, vmp_ticket ticket, vmp_stream stream) {
  void *block = NULL;
  VEXPECT_OK(draw(f, &block, bytes, ticket, stream));
  rig_touch(f, block, bytes, stream);
  return block;
}

static uint64_t left(pool_rig *f, vmp_ticket ticket) {
  uint64_t bytes = UINT64_MAX;
  VEXPECT_OK(vmp_pool_set_aside_left(f->pool, ticket, &bytes));
  return bytes;
}

VTEST_F(Aside, NobodyElseGetsIt, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB");
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 40 * MIB, &ticket));
  VEXPECT_UINT_NE(ticket, 0);
  vmp_pool_stats_data stats = rig_stats(f);
  VEXPECT_UINT_EQ(stats.set_aside, 40 * MIB);
  VEXPECT_UINT_EQ(stats.live, 0);
  VEXPECT_UINT_EQ(stats.allocs, 0);
  VEXPECT_UINT_GE(stats.mapped, 40 * MIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  void *block = NULL;
  VEXPECT_STATUS(vmp_alloc(f->pool, &block, 25 * MIB, f->streams[0]), VMP_ERROR_LIMIT);
  block = rig_alloc(f, 24 * MIB, f->streams[0]);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_OK(vmp_pool_defragment(f->pool, NULL, NULL));
  uint64_t calls = rig_calls(f).create + rig_calls(f).map;
  void *own = drawn(f, 40 * MIB, ticket, f->streams[1]);
  VEXPECT_UINT_EQ(rig_calls(f).create + rig_calls(f).map, calls);
  VEXPECT_UINT_EQ(left(f, ticket), 0);
  VEXPECT_UINT_EQ(rig_stats(f).set_aside, 0);
  VEXPECT_UINT_EQ(rig_stats(f).live, 64 * MIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, own, f->streams[1]);
  rig_free(f, block, f->streams[0]);
  VEXPECT_UINT_EQ(left(f, ticket), 0);  // what is freed goes to the pool
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
}

VTEST_F(Aside, DrawnInPieces, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:16MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 16 * MIB - 100, &ticket));  // rounded up to granules
  static const uint64_t sizes[] = {1, 512, 700, 20000, 64 * KIB, 100000, MIB, 3 * MIB + 5, 2 * MIB};
  enum { SIZES = sizeof sizes / sizeof sizes[0] };
  void *blocks[SIZES];
  uint64_t expected = 16 * MIB;
  for (size_t i = 0; i < SIZES; i++) {
    blocks[i] = drawn(f, sizes[i], ticket, f->streams[i % RIG_STREAMS]);
    expected -= (sizes[i] + 511) / 512 * 512;
    VEXPECT_UINT_EQ(left(f, ticket), expected);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
    vmp_block_info info = VMP_BLOCK_INFO_INIT;
    VEXPECT_OK(vmp_block_query(f->pool, blocks[i], &info));
    VEXPECT_UINT_EQ(info.requested_bytes, sizes[i]);
    VEXPECT_STR_EQ(info.layer, "mid");
  }
  void *none = NULL;
  vmp_pool_stats_data before = rig_stats(f);
  VEXPECT_STATUS(draw(f, &none, expected + 1, ticket, f->streams[0]), VMP_ERROR_LIMIT);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "bytes left");
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  void *rest = drawn(f, expected, ticket, f->streams[0]);
  VEXPECT_UINT_EQ(left(f, ticket), 0);
  VEXPECT_STATUS(draw(f, &none, 1, ticket, f->streams[0]), VMP_ERROR_LIMIT);
  for (size_t i = 0; i < SIZES; i++) rig_free(f, blocks[(i * 4) % SIZES], f->streams[(i * 4) % SIZES % RIG_STREAMS]);
  rig_free(f, rest, f->streams[0]);
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_settle(f);
  VEXPECT_OK(vmp_pool_trim(f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 0);  // every claim was given back
}

VTEST_F(Aside, AlignmentTakesMore, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 8 * MIB + 512, &ticket));
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.ticket = ticket;
  options.alignment = MIB;
  void *block = NULL;
  VASSERT_OK(vmp_alloc_with(f->pool, &block, 3 * MIB, f->streams[0], &options));
  VEXPECT_UINT_EQ(rig_address(block) % MIB, 0);
  VEXPECT_UINT_GE(left(f, ticket), 4 * MIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, block, f->streams[0]);
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
}

// All or nothing.
VTEST_F(Aside, NotHalfOfIt, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:32MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *block = rig_alloc(f, 8 * MIB, f->streams[0]);
  vmp_pool_stats_data before = rig_stats(f);
  vmp_ticket ticket = 7;
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, 26 * MIB, &ticket), VMP_ERROR_LIMIT);
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, 33 * MIB, &ticket), VMP_ERROR_LIMIT);
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, UINT64_MAX, &ticket), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, UINT64_MAX - 510, &ticket), VMP_ERROR_OUT_OF_MEMORY);
  VEXPECT_UINT_EQ(ticket, 7);
  vmp_pool_stats_data after = rig_stats(f);
  rig_expect_same_state(&before, &after);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  rig_free(f, block, f->streams[0]);
}

// Pending memory may be set aside: who draws on it waits, on the GPU, for what it was used for.
VTEST_F(Aside, TheOldWorkIsWaitedForAtTheDraw, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:32MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *old = rig_alloc(f, 32 * MIB, f->streams[0]);
  rig_touch(f, old, 32 * MIB, f->streams[0]);
  rig_free(f, old, f->streams[0]);
  vmp_host_check_order(f->driver, true);
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 32 * MIB, &ticket));
  VEXPECT_UINT_EQ(rig_stats(f).host_waits, 0);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  void *own = drawn(f, 8 * MIB, ticket, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 0);
  void *other = drawn(f, 8 * MIB, ticket, f->streams[1]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 1);
  VEXPECT_UINT_EQ(rig_stats(f).unfinished_wait_allocs, 1);
  // A wait that the driver refuses: the ticket has what it had.
  vmp_host_fault fault = {VMP_CALL_stream_wait_event, 1, VMP_CU_UNKNOWN, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  void *none = NULL;
  VEXPECT_STATUS(draw(f, &none, 8 * MIB, ticket, f->streams[2]), VMP_ERROR_DRIVER);
  vmp_host_lift(f->driver);
  VEXPECT_UINT_EQ(left(f, ticket), 16 * MIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
  void *rest = rig_alloc(f, 16 * MIB, f->streams[2]);  // still fenced
  rig_touch(f, rest, 16 * MIB, f->streams[2]);
  VEXPECT_UINT_EQ(rig_stats(f).stream_waits, 2);
  VEXPECT_UINT_EQ(rig_counters(f).unordered, 0);
  rig_settle(f);
  rig_free(f, own, f->streams[0]);
  rig_free(f, other, f->streams[1]);
  rig_free(f, rest, f->streams[2]);
}

// Parked memory in pieces serves a ticket as one, as it would a block.
VTEST_F(Aside, GathersPieces, pool_rig) {
  rig_open(f, 8 * GIB, "preset:tight,hard_limit:64MiB");
  VASSERT_NO_FAILURE();
  void *blocks[32];
  for (size_t i = 0; i < 32; i++) blocks[i] = rig_alloc(f, 2 * MIB, f->streams[0]);
  for (size_t i = 0; i < 32; i += 2) rig_free(f, blocks[i], f->streams[0]);
  rig_settle(f);
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 32 * MIB, &ticket));
  VEXPECT_UINT_EQ(rig_stats(f).mapped, 64 * MIB);
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
  for (size_t i = 1; i < 32; i += 2) rig_free(f, blocks[i], f->streams[0]);
}

VTEST_F(Aside, InACapture, pool_rig) {
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *old = rig_alloc(f, 64 * MIB, f->streams[1]), *none = NULL;
  rig_touch(f, old, 64 * MIB, f->streams[1]);
  rig_free(f, old, f->streams[1]);
  vmp_ticket ticket = 0;
  vmp_graph_id graph = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 64 * MIB, &ticket));
  VASSERT_OK(vmp_capture_begin(f->pool, f->streams[0], &graph));
  VEXPECT_STATUS(draw(f, &none, MIB, ticket, f->streams[0]), VMP_ERROR_CAPTURE);
  VASSERT_OK(vmp_host_stream_synchronize(f->driver, 0, f->streams[1]));
  void *block = drawn(f, MIB, ticket, f->streams[0]);
  VEXPECT_OK(vmp_capture_end(f->pool, f->streams[0]));
  rig_free(f, block, f->streams[0]);
  VEXPECT_UINT_EQ(rig_stats(f).graph_kept, MIB);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  VEXPECT_OK(vmp_capture_release(f->pool, graph));
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
}

VTEST_F(Aside, Refusals, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 7;
  void *block = NULL;
  uint64_t bytes = 0;
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(NULL, 1, &ticket), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, 0, &ticket), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_set_aside_bytes(f->pool, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_set_aside_return(f->pool, 7), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_set_aside_left(f->pool, 7, &bytes), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(draw(f, &block, 1, 7, f->streams[0]), VMP_ERROR_INVALID_VALUE);
  VEXPECT_UINT_EQ(ticket, 7);
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, MIB, &ticket));
  VEXPECT_OK(draw(f, &block, 0, ticket, f->streams[0]));
  VEXPECT_PTR_EQ(block, NULL);
  vmp_tag tag = 0;
  VASSERT_OK(vmp_tag_create(f->pool, "weights", &tag));
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.ticket = ticket;
  options.tag = tag;
  VEXPECT_STATUS(vmp_alloc_with(f->pool, &block, 512, f->streams[0], &options), VMP_ERROR_INVALID_VALUE);
  options.struct_size = offsetof(vmp_alloc_options, ticket);  // a caller of before there were tickets
  options.tag = 0;
  options.ticket = 99;
  VASSERT_OK(vmp_alloc_with(f->pool, &block, 512, f->streams[0], &options));
  rig_free(f, block, f->streams[0]);
  VEXPECT_STATUS(vmp_pool_destroy(f->pool), VMP_ERROR_BUSY);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "1 tickets");
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
  VEXPECT_STATUS(vmp_pool_set_aside_return(f->pool, ticket), VMP_ERROR_INVALID_VALUE);
}

VTEST_F(Aside, DestroyReturnsTickets, pool_rig) {
  rig_open(f, 8 * GIB, "destroy_releases:1");
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 0;
  VASSERT_OK(vmp_pool_set_aside_bytes(f->pool, 20 * MIB, &ticket));
  (void)drawn(f, 5 * MIB, ticket, f->streams[0]);
  rig_destroy(f);
}

// Host memory runs out at every allocation of its own.
VTEST_F(Aside, EveryHostAllocationMayFail, pool_rig) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  vmp_ticket ticket = 0;
  vmp_status status = VMP_ERROR_HOST_OUT_OF_MEMORY;
  uint64_t struck = 0;
  for (uint64_t nth = 0; status == VMP_ERROR_HOST_OUT_OF_MEMORY; nth++) {
    vmp_mem_fail_after(nth, 1);
    status = vmp_pool_set_aside_bytes(f->pool, 700 * MIB, &ticket);
    struck += vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  VASSERT_OK(status);
  enum { DRAWS = 600 };
  static void *blocks[DRAWS];
  for (size_t i = 0; i < DRAWS; i++) {
    vmp_mem_fail_after(0, UINT64_MAX);
    status = draw(f, &blocks[i], MIB, ticket, f->streams[0]);
    struck += vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    if (status == VMP_OK) continue;
    VASSERT_INT_EQ(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    VASSERT_UINT_EQ(left(f, ticket), (700 - i) * MIB);
    VASSERT_OK(vmp_pool_check(f->pool, NULL));
    blocks[i] = drawn(f, MIB, ticket, f->streams[0]);
  }
  VEXPECT_UINT_GT(struck, 3);
  for (size_t i = 0; i < DRAWS; i++) rig_free(f, blocks[i], f->streams[0]);
  VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
}

// Of threads that ask at once exactly as many succeed as there is memory for, and each draws all of its own.
typedef struct asker {
  pool_rig *f;
  pthread_barrier_t *barrier;
  _Atomic int *granted;
  int number;
} asker;

static void *ask(void *context) {
  asker *a = context;
  pool_rig *f = a->f;
  for (int round = 0; round < 20; round++) {
    vmp_ticket ticket = 0;
    (void)pthread_barrier_wait(a->barrier);
    vmp_status status = vmp_pool_set_aside_bytes(f->pool, 16 * MIB, &ticket);
    if (status == VMP_OK) atomic_fetch_add(a->granted, 1);
    (void)pthread_barrier_wait(a->barrier);
    if (status != VMP_OK) VEXPECT_INT_EQ(status, VMP_ERROR_LIMIT);
    if (a->number == 0) VEXPECT_INT_EQ(atomic_exchange(a->granted, 0), 4);
    void *blocks[16];
    vmp_stream stream = f->streams[a->number % RIG_STREAMS];
    for (int i = 0; status == VMP_OK && i < 16; i++) blocks[i] = drawn(f, MIB, ticket, stream);
    for (int i = 0; status == VMP_OK && i < 16; i++) rig_free(f, blocks[i], stream);
    if (status == VMP_OK) VEXPECT_OK(vmp_pool_set_aside_return(f->pool, ticket));
    (void)pthread_barrier_wait(a->barrier);
  }
  return NULL;
}

VTEST_F(Aside, ThreadsAskAtOnce, pool_rig) {
  enum { THREADS = 6 };
  rig_open(f, 8 * GIB, "hard_limit:64MiB,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  pthread_barrier_t barrier;
  _Atomic int granted = 0;
  pthread_t threads[THREADS];
  asker askers[THREADS];
  VASSERT_INT_EQ(pthread_barrier_init(&barrier, NULL, THREADS), 0);
  for (int i = 0; i < THREADS; i++) {
    askers[i] = (asker){f, &barrier, &granted, i};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, ask, &askers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  (void)pthread_barrier_destroy(&barrier);
  VEXPECT_OK(vmp_pool_check(f->pool, NULL));
}
