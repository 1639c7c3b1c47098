// stream_random_test.c: random programs of four streams over one pool: blocks that one stream frees and another gets,
// recorded uses, captures and launches, memory set aside, trims, streams that end; with the queued work run late, early,
// by seed and with a lag. Judges: the host driver (no bad touch, no unmap under work, nothing unordered, no capture that
// becomes invalid), and every invariant of the pool.
#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

enum { BLOCKS = 40, HELD = 24, TICKETS = 3 };

typedef struct block {
  void *ptr;
  uint64_t bytes;
  size_t stream;  // where its last work was submitted
} block;

// One capture at a time, on stream 0; its graph is launched there until it is released.
typedef struct graph {
  vmp_graph_id id;  // 0: none
  bool capturing;
  block held[HELD];  // allocated in it, live or not: launches touch them
  size_t num_held;
} graph;

typedef struct program {
  pool_rig *f;
  vtest_rng rng;
  block blocks[BLOCKS];
  graph graph;
  vmp_ticket tickets[TICKETS];
  uint64_t allocs, refused, captures, draws, renewed;
} program;

typedef struct work_mode {
  const char *name, *conf;
  vmp_host_work work;
  uint64_t value;
} work_mode;

#define SMALL_POOL "hard_limit:96MiB,chunk_max:8MiB"
static const work_mode modes[] = {
    {"late", SMALL_POOL, VMP_HOST_WORK_LATE, 0},
    {"early", SMALL_POOL, VMP_HOST_WORK_EARLY, 0},
    {"seeded", SMALL_POOL, VMP_HOST_WORK_SEED, 5},
    {"lag", SMALL_POOL, VMP_HOST_WORK_LAG, 40},
    {"tight_seeded", "preset:tight,hard_limit:64MiB", VMP_HOST_WORK_SEED, 9},
    {"tight_late", "preset:tight,park_limit:0.02,hard_limit:96MiB", VMP_HOST_WORK_LATE, 0},
    {"complete_seeded", SMALL_POOL ",cross_stream:complete", VMP_HOST_WORK_SEED, 3},
    {"park_limit_lag", SMALL_POOL ",park_limit:0.1", VMP_HOST_WORK_LAG, 70},
    {"buddy_seeded", SMALL_POOL ",buddy_from:1MiB", VMP_HOST_WORK_SEED, 8},
    {"debug_late", SMALL_POOL ",poison:165,quarantine:4MiB", VMP_HOST_WORK_LATE, 0},
    {"guarded_seeded", SMALL_POOL ",poison:165,guard_slots:1", VMP_HOST_WORK_SEED, 2},
    {"unlimited_lag", "wait_limit:0.1", VMP_HOST_WORK_LAG, 100},
};
static const char *mode_name(const work_mode *m) { return m->name; }

static uint64_t below(program *p, uint64_t bound) { return vtest_rng_below(&p->rng, bound); }

static bool is_capturing(const program *p, size_t stream) { return stream == 0 && p->graph.capturing; }

static void touch(program *p, const block *b) { rig_touch(p->f, b->ptr, b->bytes, p->f->streams[b->stream]); }

static uint64_t random_bytes(program *p) {
  uint64_t most = UINT64_C(1) << (10 + below(p, 14));
  return 1 + below(p, most);
}

static bool expected_refusal(const program *p, vmp_status status, size_t stream) {
  if (status == VMP_ERROR_CAPTURE) return p->graph.capturing;
  (void)stream;
  return status == VMP_ERROR_LIMIT || status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_FRAGMENTED;
}

static void allocate(program *p, block *b, vmp_ticket ticket) {
  vmp_alloc_options options = VMP_ALLOC_OPTIONS_INIT;
  options.ticket = ticket;
  b->bytes = random_bytes(p);
  b->stream = (size_t)below(p, RIG_STREAMS);
  vmp_status status = vmp_alloc_with(p->f->pool, &b->ptr, b->bytes, p->f->streams[b->stream], &options);
  if (status != VMP_OK) {
    b->ptr = NULL;
    p->refused++;
    if (!expected_refusal(p, status, b->stream)) VADD_FAILURE("%d: %s", (int)status, vmp_last_error()->message);
    return;
  }
  p->allocs++;
  p->draws += ticket != 0 ? 1 : 0;
  if (is_capturing(p, b->stream) && p->graph.num_held < HELD) p->graph.held[p->graph.num_held++] = *b;
  touch(p, b);
}

// free_it frees on the block's stream, or on another one, with the use recorded.
static void free_it(program *p, block *b) {
  size_t stream = below(p, 3) == 0 ? (size_t)below(p, RIG_STREAMS) : b->stream;
  // Work in a capture is ordered with nothing outside: a block stays on its side.
  if (is_capturing(p, stream) != is_capturing(p, b->stream)) stream = b->stream;
  if (stream != b->stream) VEXPECT_OK(vmp_record_use(p->f->pool, b->ptr, p->f->streams[b->stream]));
  touch(p, b);
  rig_free(p->f, b->ptr, p->f->streams[stream]);
  b->ptr = NULL;
}

// ---- captures ----

static void begin_capture(program *p) {
  pool_rig *f = p->f;
  VEXPECT_OK(vmp_capture_begin(f->pool, f->streams[0], &p->graph.id));
  VEXPECT_INT_EQ(vmp_drv_stream_begin_capture(f->driver, (vmp_cu_stream)f->streams[0], VMP_CU_CAPTURE_GLOBAL), 0);
  p->graph.capturing = true;
  p->graph.num_held = 0;
  p->captures++;
}

static void end_capture(program *p) {
  void *made = NULL;
  VEXPECT_INT_EQ(vmp_drv_stream_end_capture(p->f->driver, (vmp_cu_stream)p->f->streams[0], &made), 0);
  if (made != NULL) VEXPECT_INT_EQ(vmp_drv_graph_destroy(p->f->driver, made), 0);
  VEXPECT_OK(vmp_capture_end(p->f->pool, p->f->streams[0]));
  p->graph.capturing = false;
}

static void release_graph(program *p) {
  if (p->graph.capturing) end_capture(p);
  VEXPECT_OK(vmp_capture_release(p->f->pool, p->graph.id));
  p->graph.id = 0;
}

// launch touches what the graph has, on its stream. What was drawn for it must not have been given to anybody else.
static void launch(program *p) {
  for (size_t i = 0; i < p->graph.num_held; i++) touch(p, &p->graph.held[i]);
}

static void capture_step(program *p) {
  if (p->graph.id == 0) {
    begin_capture(p);
  } else if (p->graph.capturing) {
    if (below(p, 3) == 0) end_capture(p);
  } else if (below(p, 6) == 0) {
    release_graph(p);
  } else {
    launch(p);
  }
}

// ---- everything else ----

static void ticket_step(program *p) {
  vmp_ticket *ticket = &p->tickets[below(p, TICKETS)];
  if (*ticket != 0) {
    VEXPECT_OK(vmp_pool_set_aside_return(p->f->pool, *ticket));
    *ticket = 0;
    return;
  }
  vmp_status status = vmp_pool_set_aside_bytes(p->f->pool, 1 + below(p, 12 * MIB), ticket);
  if (status == VMP_OK) return;
  *ticket = 0;
  VEXPECT_TRUE(expected_refusal(p, status, 1));
}

// renew_stream ends a stream and makes another; its blocks are used on the new one from then on.
static void renew_stream(program *p) {
  size_t stream = 1 + (size_t)below(p, RIG_STREAMS - 1);
  vmp_stream *handle = &p->f->streams[stream];
  VASSERT_OK(vmp_host_stream_synchronize(p->f->driver, 0, *handle));  // for the work that is submitted to the new one
  VEXPECT_OK(vmp_stream_retired(p->f->pool, *handle));
  VASSERT_OK(vmp_host_stream_destroy(p->f->driver, *handle));
  VASSERT_OK(vmp_host_stream_create(p->f->driver, 0, handle));
  p->renewed++;
}

static void step(program *p) {
  uint64_t what = below(p, 100);
  block *b = &p->blocks[below(p, BLOCKS)];
  if (what < 78) {
    if (b->ptr == NULL) {
      allocate(p, b, below(p, 8) == 0 ? p->tickets[below(p, TICKETS)] : 0);
    } else {
      free_it(p, b);
    }
  } else if (what < 84) {
    if (b->ptr != NULL) touch(p, b);
  } else if (what < 92) {
    capture_step(p);
  } else if (what < 96) {
    ticket_step(p);
  } else if (what < 98) {
    VEXPECT_OK(vmp_pool_trim(p->f->pool, below(p, 64) * MIB, NULL));
  } else if (what < 99) {
    VEXPECT_OK(vmp_pool_defragment(p->f->pool, NULL, NULL));
  } else if (!p->graph.capturing) {
    renew_stream(p);
  }
}

static void finish(program *p) {
  if (p->graph.id != 0) release_graph(p);
  for (size_t i = 0; i < BLOCKS; i++) {
    if (p->blocks[i].ptr != NULL) free_it(p, &p->blocks[i]);
  }
  for (size_t i = 0; i < TICKETS; i++) {
    if (p->tickets[i] != 0) VEXPECT_OK(vmp_pool_set_aside_return(p->f->pool, p->tickets[i]));
  }
  rig_settle(p->f);
  VEXPECT_OK(vmp_pool_trim(p->f->pool, 0, NULL));
  VEXPECT_UINT_EQ(rig_stats(p->f).mapped, 0);
}

VTEST_FP(StreamRandom, EveryOrderOfWork, pool_rig, work_mode, modes, mode_name) {
  static program program_state, *const prog = &program_state;
  rig_open(f, 8 * GIB, p->conf);
  VASSERT_NO_FAILURE();
  vmp_host_set_work(f->driver, p->work, p->value);
  vmp_host_check_order(f->driver, true);
  vmp_cu_context context = NULL;
  VASSERT_INT_EQ(vmp_drv_primary_ctx_retain(f->driver, &context, 0), 0);
  VASSERT_INT_EQ(vmp_drv_ctx_set_current(f->driver, context), 0);
  *prog = (program){.f = f, .rng = vtest_rng_make(vtest_seed(20261130))};
  uint64_t steps = vtest_ops(30000) / 3;
  for (uint64_t i = 0; i < steps && !vtest_has_failure(); i++) {
    step(prog);
    if (i % 50 == 49) VEXPECT_OK(vmp_pool_check(f->pool, NULL));
  }
  if (!vtest_has_failure()) finish(prog);
  vmp_host_counters counters = rig_counters(f);
  VEXPECT_UINT_EQ(counters.unordered, 0);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_GT(prog->allocs, steps / 8);
  VEXPECT_UINT_GT(prog->captures, steps / 500);
  VEXPECT_UINT_GT(prog->draws, steps / 500);
  VEXPECT_UINT_GT(prog->renewed, 0);
  VEXPECT_INT_EQ(vmp_drv_ctx_set_current(f->driver, NULL), 0);
  VEXPECT_INT_EQ(vmp_drv_primary_ctx_release(f->driver, 0), 0);
}
