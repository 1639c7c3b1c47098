// threads.c: the fixed pair of 64 KiB by several threads at once, on one stream, against one thread alone.
//
//     leader   | alone: round 0 |          | all: round 1 |          | alone ...
//     worker 1      waits, spinning        | all: round 1 |               waits
//
// One thread alone performs half of the pairs, all together the other half, in turns. Threads that wait go on spinning
// (and give the processor away), since a thread that has slept is slow at first.
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "tools/bench/rounds.h"
#include "tools/bench/timing.h"

#define BYTES (UINT64_C(64) << 10)
#define WARM_UP_NS UINT64_C(100000000)

// crew: what the threads share. Fields that workers write lie on lines of their own.
typedef struct crew {
  bench_target target;
  uint32_t num_threads, num_started;
  uint64_t pairs;                          // of all threads, in the current turn
  _Atomic uint64_t turn;                   // grows by one when a turn begins; workers follow it
  _Atomic bool over;                       // workers end
  _Alignas(64) _Atomic uint32_t num_done;  // workers that have finished the turn
  _Atomic bool failed;
  vmp_error why;  // the first failure's; written by the thread that set `failed`
  pthread_t threads[BENCH_MAX_THREADS];
} crew;

typedef struct worker {
  crew *c;
  uint32_t index;  // from 1; the leader is 0
} worker;

TARGET_INLINE bool pairs_loop(target_kind kind, const bench_target *t, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    void *ptr;
    if (!target_alloc(kind, t, &ptr, BYTES) || !target_free(kind, t, ptr, BYTES)) return false;
  }
  return true;
}

static bool run_pairs(crew *c, uint64_t pairs) {
  const bench_target target = c->target;
  if (TARGET_RUN(pairs_loop, target.kind, &target, pairs)) return true;
  if (!atomic_exchange(&c->failed, true)) c->why = *vmp_last_error();
  return false;
}

static uint64_t share_of(const crew *c, uint32_t index) {
  return c->pairs / c->num_threads + (index < c->pairs % c->num_threads);
}

static void relax(uint32_t *spins) {
  if (++*spins % 256 == 0) sched_yield();
}

static void *work(void *self) {
  const worker w = *(worker *)self;
  free(self);
  uint32_t spins = 0;
  for (uint64_t seen = 0;;) {
    const uint64_t turn = atomic_load_explicit(&w.c->turn, memory_order_acquire);
    if (turn != seen) {
      seen = turn;
      run_pairs(w.c, share_of(w.c, w.index));
      atomic_fetch_add_explicit(&w.c->num_done, 1, memory_order_release);
    } else if (atomic_load_explicit(&w.c->over, memory_order_acquire)) {
      return NULL;
    } else {
      relax(&spins);
    }
  }
}

static bool run_alone(void *self, uint64_t pairs) { return run_pairs(self, pairs); }

static bool run_all(void *self, uint64_t pairs) {
  crew *c = self;
  c->pairs = pairs;
  atomic_store_explicit(&c->num_done, 0, memory_order_relaxed);
  atomic_fetch_add_explicit(&c->turn, 1, memory_order_release);
  run_pairs(c, share_of(c, 0));
  uint32_t spins = 0;
  while (atomic_load_explicit(&c->num_done, memory_order_acquire) < c->num_started) relax(&spins);
  return !atomic_load(&c->failed);
}

static bool start(crew *c, tool_error *error) {
  for (uint32_t i = 1; i < c->num_threads; i++) {
    worker *w = malloc(sizeof(*w));
    if (w == NULL) return tool_fail(error, "host memory ran out");
    *w = (worker){c, i};
    if (pthread_create(&c->threads[c->num_started], NULL, work, w) != 0) {
      free(w);
      return tool_fail(error, "thread %u of %u could not be started", i + 1, c->num_threads);
    }
    c->num_started++;
  }
  return true;
}

static void stop(crew *c) {
  atomic_store_explicit(&c->over, true, memory_order_release);
  for (uint32_t i = 0; i < c->num_started; i++) pthread_join(c->threads[i], NULL);
}

static bool refused(const crew *c, tool_error *error) {
  return tool_fail(error, "the pool could not serve a request: %s (%s)", c->why.message,
                   vmp_status_string(c->why.status));
}

// Threads are slow in their first tens of milliseconds.
static bool warm_up(crew *c, tool_error *error) {
  const uint64_t start_ns = now_ns();
  do {
    if (!run_all(c, 1000 * (uint64_t)c->num_threads)) return refused(c, error);
  } while (now_ns() - start_ns < WARM_UP_NS);
  return true;
}

static bool measure(crew *c, bench_rig *rig, const bench_options *options, bench_result *result, tool_error *error) {
  bench_subject subjects[2] = {
      {.self = c, .run = run_alone, .rig = rig, .pairs = options->pairs / 2},
      {.self = c, .run = run_all, .rig = rig, .pairs = options->pairs - options->pairs / 2},
  };
  if (rounds_run(subjects, 2, options) != NULL) return refused(c, error);
  result->ns_median = rounds_median(&subjects[1]);
  result->ns_min = rounds_least(&subjects[1]);
  result->has_scaling = true;
  result->scaling = rounds_ratio(&subjects[0], &subjects[1]);
  result->threads = c->num_threads;
  return rig_finish(rig, result, error);
}

bool bench_threads(const bench_options *options, bench_result *result, tool_error *error) {
  bench_rig rig;
  if (!rig_open(&rig, options, options->device_bytes, error)) return false;
  crew *c = aligned_alloc(64, sizeof(*c));
  if (c == NULL) {
    tool_fail(error, "host memory ran out");
    rig_close(&rig, error);
    return false;
  }
  *c = (crew){.target = rig.target, .num_threads = options->threads};
  bool good =
      start(c, error) && warm_up(c, error) && rig_ready(&rig, error) && measure(c, &rig, options, result, error);
  stop(c);
  free(c);
  return rig_close(&rig, error) && good;
}
