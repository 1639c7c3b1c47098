// check_order: accesses of several streams to the same bytes are told if and only if nothing orders them.
#include <stdlib.h>
#include <string.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"

#define BLOCKING VMP_CU_STREAM_DEFAULT
#define FREE VMP_CU_STREAM_NON_BLOCKING

typedef struct ordered {
  host_rig rig;
  vmp_cu_ptr ptr;
  vmp_cu_stream a, b, c;  // non-blocking
  vmp_cu_event event;
} ordered;

static void ordered_open(ordered *o, vmp_host_work work, uint64_t seed) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.check_order = 1;
  options.work = work;
  options.work_seed = seed;
  host_rig_open(&o->rig, &options);
  o->ptr = host_reserve(&o->rig, 8 * G);
  (void)host_map(&o->rig, o->ptr, 2 * G);
  (void)host_map(&o->rig, o->ptr + 2 * G, G);
  o->a = host_stream(&o->rig, FREE);
  o->b = host_stream(&o->rig, FREE);
  o->c = host_stream(&o->rig, FREE);
  o->event = host_event(&o->rig);
}

static void ordered_setup(ordered *o) { ordered_open(o, VMP_HOST_WORK_LATE, 0); }
static void ordered_teardown(ordered *o) { host_rig_teardown(&o->rig); }

static uint64_t told(ordered *o) { return host_counters(&o->rig).unordered; }

static void touch(ordered *o, vmp_cu_stream stream, uint64_t offset, uint64_t bytes, bool write) {
  VEXPECT_CUDA(vmp_host_touch(o->rig.driver, 0, stream, o->ptr + offset, bytes, write));
}

static void order(ordered *o, vmp_cu_stream first, vmp_cu_stream then) {
  VEXPECT_CUDA(vmp_drv_event_record(o->rig.driver, o->event, first));
  VEXPECT_CUDA(vmp_drv_stream_wait_event(o->rig.driver, then, o->event, 0));
}

VTEST_F(HostOrder, TwoStreamsWithoutAWait, ordered) {
  touch(f, f->a, 0, 4096, true);
  touch(f, f->a, 100, 50, true);  // one stream orders itself
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, f->b, 4096, 4096, true);  // neighbours don't meet
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, f->b, 4095, 1, false);  // a read behind a write
  VEXPECT_UINT_EQ(told(f), 1);
  VEXPECT_STR_CONTAINS(host_last_sentence(&f->rig), "rule 64, ");
  VEXPECT_STR_CONTAINS(host_last_sentence(&f->rig), "read at ");
  VEXPECT_STR_CONTAINS(host_last_sentence(&f->rig), "is not ordered behind operation 1, a write");
  touch(f, f->b, 0, 1, true);  // a write behind a write
  VEXPECT_UINT_EQ(told(f), 2);
  touch(f, f->a, 3 * G, 1, false);
  touch(f, f->a, G, 4096, false);
  touch(f, f->b, G, 4096, false);  // reads may pass each other
  VEXPECT_UINT_EQ(told(f), 2);
  touch(f, f->c, G + 4095, 4096, true);  // a write behind reads
  VEXPECT_UINT_EQ(told(f), 3);
  VEXPECT_UINT_EQ(host_counters(&f->rig).bad_touches, 0);  // nothing of this touches what it may not
}

VTEST_F(HostOrder, AStreamWaitOrders, ordered) {
  touch(f, f->a, 0, G, true);
  order(f, f->a, f->b);
  touch(f, f->b, 0, G, true);
  order(f, f->b, f->c);
  touch(f, f->c, 0, G, false);  // and does so through others
  touch(f, f->c, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, f->a, 0, 1, false);  // but not back
  VEXPECT_UINT_EQ(told(f), 1);
}

VTEST_F(HostOrder, ARecordCoversWhatWasBeforeItOnly, ordered) {
  VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));
  touch(f, f->a, 0, G, true);
  VEXPECT_CUDA(vmp_drv_stream_wait_event(f->rig.driver, f->b, f->event, 0));
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 1);
}

VTEST_F(HostOrder, AWaitKeepsTheRecordThatItSaw, ordered) {
  touch(f, f->a, 0, G, true);
  order(f, f->a, f->b);
  touch(f, f->a, G, G, true);
  VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));  // after b's wait
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, f->b, G, G, true);
  VEXPECT_UINT_EQ(told(f), 1);
}

VTEST_F(HostOrder, WhatTheHostHasSeenIsBeforeAllLaterWork, ordered) {
  vmp_driver *d = f->rig.driver;
  touch(f, f->a, 0, G, true);
  VEXPECT_CODE(vmp_drv_stream_query(d, f->a), VMP_CU_NOT_READY);  // a question without "done" tells nothing
  touch(f, f->b, 0, 1, true);
  VEXPECT_UINT_EQ(told(f), 1);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(d, f->a));
  VEXPECT_CUDA(vmp_drv_stream_synchronize(d, f->b));
  touch(f, f->c, 0, G, true);
  VEXPECT_CUDA(vmp_drv_event_record(d, f->event, f->c));
  VEXPECT_CUDA(vmp_drv_event_synchronize(d, f->event));
  touch(f, f->a, 0, G, true);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));
  touch(f, f->b, 0, G, true);
  VEXPECT_CUDA(vmp_drv_event_record(d, f->event, f->b));
  (void)vmp_host_step(d, 100);
  VEXPECT_CUDA(vmp_drv_event_query(d, f->event));  // "done"
  touch(f, f->c, 0, G, true);
  (void)vmp_host_step(d, 100);
  VEXPECT_CUDA(vmp_drv_stream_query(d, f->c));
  touch(f, f->a, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 1);
  (void)vmp_host_step(d, 100);  // it ran, but nobody knows
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 2);
}

VTEST_F(HostOrder, TheLegacyStreamOrdersBlockingStreams, ordered) {
  vmp_cu_stream blocking = host_stream(&f->rig, BLOCKING);
  vmp_cu_stream other = host_stream(&f->rig, BLOCKING);
  touch(f, blocking, 0, G, true);
  touch(f, NULL, 0, G, true);
  touch(f, other, 0, G, true);
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, blocking, 0, G, true);  // no legacy work between the two
  VEXPECT_UINT_EQ(told(f), 1);
  touch(f, NULL, 0, G, true);
  touch(f, f->a, 0, 1, true);  // a non-blocking one is not ordered
  VEXPECT_UINT_EQ(told(f), 2);
}

VTEST_F(HostOrder, CopiesAndFills, ordered) {
  vmp_driver *d = f->rig.driver;
  char bytes[64] = {0};
  VEXPECT_CUDA(vmp_drv_memset_d8_async(d, f->ptr, 1, 64, f->a));
  VEXPECT_CUDA(vmp_drv_memcpy_dtod_async(d, f->ptr + G, f->ptr, 64, f->b));  // reads what a fills
  VEXPECT_UINT_EQ(told(f), 1);
  VEXPECT_CUDA(vmp_drv_memcpy_dtoh_async(d, bytes, f->ptr + G, 64, f->c));  // reads what b writes
  VEXPECT_UINT_EQ(told(f), 2);
  VEXPECT_CUDA(vmp_drv_memcpy_htod_async(d, f->ptr + G + 64, bytes, 64, f->c));
  VEXPECT_UINT_EQ(told(f), 2);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));
}

// Two mappings of one handle are one memory: what a pool must not get wrong when it maps a parked chunk elsewhere.
VTEST_F(HostOrder, AnOldMappingsWorkAgainstANewMapping, ordered) {
  vmp_driver *d = f->rig.driver;
  vmp_cu_access_desc grant = host_grant(0, 3);
  vmp_cu_handle handle = 0;
  VASSERT_CUDA(vmp_drv_mem_retain_allocation_handle(d, &handle, (void *)(uintptr_t)(f->ptr + 2 * G)));
  touch(f, f->a, 2 * G, G, true);
  VASSERT_CUDA(vmp_drv_mem_map(d, f->ptr + 5 * G, G, 0, handle, 0));
  VASSERT_CUDA(vmp_drv_mem_set_access(d, f->ptr + 5 * G, G, &grant, 1));
  touch(f, f->b, 5 * G + 4096, 4096, true);
  VEXPECT_UINT_EQ(told(f), 1);
  order(f, f->a, f->b);
  touch(f, f->b, 5 * G, G, true);
  VEXPECT_UINT_EQ(told(f), 1);
}

VTEST_F(HostOrder, NewMemoryHasNoPast, ordered) {
  vmp_driver *d = f->rig.driver;
  vmp_cu_handle handle = host_map(&f->rig, f->ptr + 6 * G, G);
  touch(f, f->a, 6 * G, G, true);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(d, f->a));
  VASSERT_CUDA(vmp_drv_mem_unmap(d, f->ptr + 6 * G, G));
  VASSERT_CUDA(vmp_drv_mem_release(d, handle));
  (void)host_map(&f->rig, f->ptr + 6 * G, G);
  touch(f, f->b, 6 * G, G, true);
  VEXPECT_UINT_EQ(told(f), 0);
}

VTEST_F(HostOrder, StreamsComeAndGo, ordered) {
  vmp_driver *d = f->rig.driver;
  for (int i = 0; i < 300; i++) {  // more than there are slots, but not at a time
    vmp_cu_stream stream = host_stream(&f->rig, i % 2 == 0 ? FREE : BLOCKING);
    touch(f, stream, 0, 64, true);
    VEXPECT_CUDA(vmp_drv_stream_synchronize(d, stream));
    VEXPECT_CUDA(vmp_drv_stream_destroy(d, stream));
  }
  VEXPECT_UINT_EQ(told(f), 0);
  touch(f, f->a, 0, 64, true);
  touch(f, f->b, 0, 64, true);
  VEXPECT_UINT_EQ(told(f), 1);
  for (int i = 0; i < 70; i++) touch(f, host_stream(&f->rig, FREE), G, 64, false);
  touch(f, f->a, 0, 64, true);  // too many at a time: from here on nothing is told
  VEXPECT_UINT_EQ(told(f), 1);
}

VTEST(HostOrder, SwitchedOnLate) {
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, NULL);
  vmp_driver *d = rig.driver;
  vmp_cu_ptr ptr = host_reserve(&rig, G);
  (void)host_map(&rig, ptr, G);
  vmp_cu_stream a = host_stream(&rig, FREE);
  vmp_cu_stream b = host_stream(&rig, FREE);
  vmp_cu_event early = host_event(&rig);
  VEXPECT_CUDA(vmp_host_touch(d, 0, a, ptr, G, true));
  VEXPECT_CUDA(vmp_host_touch(d, 0, b, ptr, G, true));
  VEXPECT_UINT_EQ(host_counters(&rig).unordered, 0);  // off: not asked
  VEXPECT_CUDA(vmp_drv_event_record(d, early, a));
  vmp_host_check_order(d, true);
  VEXPECT_CUDA(vmp_host_touch(d, 0, a, ptr, 64, true));
  VEXPECT_CUDA(vmp_drv_stream_wait_event(d, b, early, 0));  // its record is unknown: it may cover anything
  VEXPECT_CUDA(vmp_host_touch(d, 0, b, ptr, 64, true));
  VEXPECT_UINT_EQ(host_counters(&rig).unordered, 0);
  VEXPECT_CUDA(vmp_host_touch(d, 0, a, ptr, 64, true));
  VEXPECT_UINT_EQ(host_counters(&rig).unordered, 1);
  vmp_host_check_order(d, false);
  VEXPECT_CUDA(vmp_host_touch(d, 0, b, ptr, 64, true));
  VEXPECT_UINT_EQ(host_counters(&rig).unordered, 1);
  host_rig_teardown(&rig);
}

// ---- against reachability in the graph of operations ----

enum { OPS = 300, STREAMS = 3, CELLS = 8, CELL = 512 };

typedef struct graph {
  uint8_t before[OPS][OPS];  // [i][j]: j comes before i
  int last[STREAMS];         // the last node of each stream, -1: none
  int host;                  // a node for what the host has seen
  int count;
} graph;

static void follow(graph *g, int node, int earlier) {
  if (earlier < 0) return;
  g->before[node][earlier] = 1;
  for (int i = 0; i < OPS; i++) g->before[node][i] |= g->before[earlier][i];
}

static int add_node(graph *g, int stream) {
  int node = g->count++;
  follow(g, node, g->last[stream]);
  follow(g, node, g->host);
  g->last[stream] = node;
  return node;
}

typedef struct cell {
  int write;           // node of the last write
  int reads[STREAMS];  // nodes of the last read of each stream since then
} cell;

// Whether an access conflicts with an earlier one that doesn't come before it.
static bool conflicts(const graph *g, const cell *c, int node, bool write) {
  if (c->write >= 0 && !g->before[node][c->write]) return true;
  for (int i = 0; write && i < STREAMS; i++) {
    if (c->reads[i] >= 0 && !g->before[node][c->reads[i]]) return true;
  }
  return false;
}

static bool access_cells(const graph *g, cell *cells, int from, int to, int node, int stream, bool write) {
  bool found = false;
  for (int i = from; i < to; i++) {
    found = found || conflicts(g, &cells[i], node, write);
    if (write) {
      cells[i].write = node;
      for (int j = 0; j < STREAMS; j++) cells[i].reads[j] = -1;
    } else {
      cells[i].reads[stream] = node;
    }
  }
  return found;
}

static void run_graph(uint64_t seed, bool reads, uint64_t *out_told) {
  ordered o;
  memset(&o, 0, sizeof o);
  ordered_open(&o, VMP_HOST_WORK_SEED, seed);
  vmp_cu_stream streams[STREAMS] = {o.a, o.b, o.c};
  vmp_cu_event events[STREAMS] = {host_event(&o.rig), host_event(&o.rig), host_event(&o.rig)};
  int recorded[STREAMS] = {-1, -1, -1};
  graph *g = calloc(1, sizeof *g);
  VASSERT_NOT_NULL(g);
  for (int i = 0; i < STREAMS; i++) g->last[i] = -1;
  g->host = -1;
  cell cells[CELLS];
  memset(cells, 0xff, sizeof cells);
  vtest_rng rng = vtest_rng_make(seed);
  while (g->count < OPS - 1) {
    int stream = (int)vtest_rng_below(&rng, STREAMS);
    uint64_t kind = vtest_rng_below(&rng, 20);
    uint64_t before = told(&o);
    if (kind < 12) {
      bool write = !reads || vtest_rng_below(&rng, 2) == 0;
      int from = (int)vtest_rng_below(&rng, CELLS);
      int to = (int)vtest_rng_range(&rng, (uint64_t)from + 1, CELLS);
      int node = add_node(g, stream);
      touch(&o, streams[stream], (uint64_t)from * CELL, (uint64_t)(to - from) * CELL, write);
      bool expected = access_cells(g, cells, from, to, node, stream, write);
      if (reads) {
        VEXPECT_TRUE(expected || told(&o) == before);  // what is told is true
      } else {
        VEXPECT_UINT_EQ(told(&o) - before, expected ? 1 : 0);  // and of writes everything is told
      }
    } else if (kind < 15) {
      int event = (int)vtest_rng_below(&rng, STREAMS);
      recorded[event] = add_node(g, stream);
      VASSERT_CUDA(vmp_drv_event_record(o.rig.driver, events[event], streams[stream]));
    } else if (kind < 18) {
      int event = (int)vtest_rng_below(&rng, STREAMS);
      int node = add_node(g, stream);
      follow(g, node, recorded[event]);
      VASSERT_CUDA(vmp_drv_stream_wait_event(o.rig.driver, streams[stream], events[event], 0));
    } else {
      int node = g->count++;
      follow(g, node, g->host);
      int event = (int)vtest_rng_below(&rng, STREAMS);
      if (kind == 18 && vmp_drv_event_query(o.rig.driver, events[event]) == 0) follow(g, node, recorded[event]);
      if (kind == 19) {
        VASSERT_CUDA(vmp_drv_stream_synchronize(o.rig.driver, streams[stream]));
        follow(g, node, g->last[stream]);
      }
      g->host = node;
    }
  }
  *out_told += told(&o);
  free(g);
  host_rig_teardown(&o.rig);
}

VTEST(HostOrder, IsReachability) {
  uint64_t seed = vtest_seed(505);
  uint64_t runs = vtest_ops(60000) / OPS;
  uint64_t conflicts_told = 0;
  for (uint64_t i = 0; i < runs && !vtest_has_failure(); i++) {
    VTRACE("run %llu", (unsigned long long)(seed + i));
    run_graph(seed + i, i % 2 == 1, &conflicts_told);
  }
  VEXPECT_UINT_GT(conflicts_told, runs);  // the graphs are not all in order
}

// ---- waits that cover more than they are for ----

static uint64_t overlong(const ordered *f) {
  vmp_host_counters counters;
  vmp_host_get_counters(f->rig.driver, &counters);
  return counters.overlong_waits;
}

static void wait_for(ordered *f, vmp_cu_stream stream) {
  VEXPECT_CUDA(vmp_drv_stream_wait_event(f->rig.driver, stream, f->event, 0));
}

VTEST_F(HostCover, AnEventBehindTheLastUseIsExact, ordered) {
  touch(f, f->a, G, G, true);
  touch(f, f->a, 0, G, true);
  VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));
  touch(f, f->a, 2 * G, G, true);  // later work, behind the event
  wait_for(f, f->b);
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(overlong(f), 0);
  touch(f, f->b, G, G, true);  // an older use: the wait wasn't for this one alone
  VEXPECT_UINT_EQ(overlong(f), 0);
  VEXPECT_UINT_EQ(told(f), 0);
}

VTEST_F(HostCover, AnEventBehindLaterWorkIsTooLong, ordered) {
  touch(f, f->a, 0, G, true);
  touch(f, f->a, G, G, false);
  VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));
  wait_for(f, f->b);
  VEXPECT_UINT_EQ(overlong(f), 0);  // nothing shows yet what the wait is for
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(overlong(f), 1);
  touch(f, f->b, G, G, true);  // it was for this, too
  VEXPECT_UINT_EQ(overlong(f), 0);
}

VTEST_F(HostCover, CountsEachWaitOnce, ordered) {
  for (uint64_t i = 1; i <= 40; i++) {
    touch(f, f->a, 0, G, true);
    touch(f, f->a, G, G, true);
    VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));
    wait_for(f, f->b);
    touch(f, f->b, 0, 4096, true);
    touch(f, f->b, 0, 512, true);
    VEXPECT_UINT_EQ(overlong(f), i);
    VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->b));
    wait_for(f, f->a);
  }
}

// What the host knows to have finished needs no wait, and is no reason for one.
VTEST_F(HostCover, FinishedWorkIsNoNeed, ordered) {
  touch(f, f->a, 0, G, true);
  VEXPECT_CUDA(vmp_drv_stream_synchronize(f->rig.driver, f->a));
  touch(f, f->a, G, G, true);
  VEXPECT_CUDA(vmp_drv_event_record(f->rig.driver, f->event, f->a));
  wait_for(f, f->b);
  touch(f, f->b, 0, G, true);
  VEXPECT_UINT_EQ(overlong(f), 0);
}
