// Several threads on one driver: each with its own addresses, all with the same memory, streams and events.
#include <pthread.h>
#include <string.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"

enum { THREADS = 4, SLOTS = 16 };

typedef struct shared {
  host_rig *rig;
  vmp_cu_stream streams[3];
  pthread_mutex_t lock;  // of `functions`
  uint64_t functions;
} shared;

typedef struct worker {
  shared *all;
  uint64_t seed, ops;
} worker;

static void count_call(void *context) {
  shared *all = context;
  pthread_mutex_lock(&all->lock);
  all->functions++;
  pthread_mutex_unlock(&all->lock);
}

static void one_round(worker *w, vtest_rng *rng, vmp_cu_ptr base, vmp_cu_handle *handles, vmp_cu_event event) {
  vmp_driver *d = w->all->rig->driver;
  size_t slot = (size_t)vtest_rng_below(rng, SLOTS);
  vmp_cu_stream stream = w->all->streams[vtest_rng_below(rng, 3)];
  vmp_cu_ptr at = base + slot * G;
  if (handles[slot] == 0) {
    vmp_cu_mem_prop prop = host_prop(0);
    vmp_cu_access_desc grant = host_grant(0, 3);
    int code = vmp_drv_mem_create(d, &handles[slot], G, &prop, 0);
    if (code == VMP_CU_OUT_OF_MEMORY) return;  // the others have it
    VASSERT_CUDA(code);
    VASSERT_CUDA(vmp_drv_mem_map(d, at, G, 0, handles[slot], 0));
    VASSERT_CUDA(vmp_drv_mem_set_access(d, at, G, &grant, 1));
    return;
  }
  unsigned char pattern = (unsigned char)vtest_rng_next(rng);
  unsigned char bytes[64];
  VASSERT_CUDA(vmp_drv_memset_d8_async(d, at + 100, pattern, sizeof bytes, stream));
  VASSERT_CUDA(vmp_drv_memcpy_dtoh_async(d, bytes, at + 100, sizeof bytes, stream));
  if (vtest_rng_below(rng, 4) == 0) VASSERT_CUDA(vmp_drv_launch_host_func(d, stream, count_call, w->all));
  VASSERT_CUDA(vmp_drv_event_record(d, event, stream));
  int query = vmp_drv_event_query(d, event);
  VASSERT_TRUE(query == 0 || query == VMP_CU_NOT_READY);
  VASSERT_CUDA(vmp_drv_event_synchronize(d, event));
  VASSERT_BYTES_FILLED(bytes, pattern, sizeof bytes);
  if (vtest_rng_below(rng, 2) == 0) {
    VASSERT_CUDA(vmp_drv_mem_unmap(d, at, G));
    VASSERT_CUDA(vmp_drv_mem_release(d, handles[slot]));
    handles[slot] = 0;
  }
}

static void *work(void *context) {
  worker *w = context;
  vmp_driver *d = w->all->rig->driver;
  vtest_rng rng = vtest_rng_make(w->seed);
  vmp_cu_handle handles[SLOTS] = {0};
  VEXPECT_CUDA(vmp_drv_ctx_push_current(d, w->all->rig->context));
  vmp_cu_ptr base = host_reserve(w->all->rig, SLOTS * G);
  vmp_cu_event event = host_event(w->all->rig);
  for (uint64_t i = 0; i < w->ops && !vtest_has_failure(); i++) one_round(w, &rng, base, handles, event);
  for (size_t slot = 0; slot < SLOTS; slot++) {
    if (handles[slot] == 0) continue;
    VEXPECT_CUDA(vmp_drv_mem_unmap(d, base + slot * G, G));
    VEXPECT_CUDA(vmp_drv_mem_release(d, handles[slot]));
  }
  VEXPECT_CUDA(vmp_drv_event_destroy(d, event));
  VEXPECT_CUDA(vmp_drv_mem_address_free(d, base, SLOTS * G));
  VEXPECT_CUDA(vmp_drv_ctx_pop_current(d, NULL));
  return NULL;
}

typedef struct thread_case {
  const char *name;
  vmp_host_mode mode;
  vmp_host_work work;
} thread_case;

static const thread_case cases[] = {
    {"late", VMP_HOST_LEDGER, VMP_HOST_WORK_LATE},     {"early", VMP_HOST_LEDGER, VMP_HOST_WORK_EARLY},
    {"seed", VMP_HOST_LEDGER, VMP_HOST_WORK_SEED},     {"lag", VMP_HOST_LEDGER, VMP_HOST_WORK_LAG},
    {"exposed", VMP_HOST_EXPOSED, VMP_HOST_WORK_LATE},
};
static const char *case_name(const thread_case *c) { return c->name; }

VTEST_P(HostThreads, ShareADriver, thread_case, cases, case_name) {
  uint64_t seed = vtest_seed(31);
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = p->mode;
  options.work = p->work;
  options.work_seed = seed;
  options.work_lag = 20;
  options.num_devices = 1;
  options.devices[0].memory_bytes = 40 * G;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  shared all = {.rig = &rig, .lock = PTHREAD_MUTEX_INITIALIZER};
  for (int i = 0; i < 3; i++) all.streams[i] = host_stream(&rig, i == 0 ? VMP_CU_STREAM_DEFAULT : 1);
  pthread_t threads[THREADS];
  worker workers[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    workers[i] = (worker){&all, seed + i, vtest_ops(3000)};
    VASSERT_INT_EQ(pthread_create(&threads[i], NULL, work, &workers[i]), 0);
  }
  for (int i = 0; i < THREADS; i++) VASSERT_INT_EQ(pthread_join(threads[i], NULL), 0);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  for (int i = 0; i < 3; i++) VEXPECT_CUDA(vmp_drv_stream_destroy(rig.driver, all.streams[i]));
  vmp_host_counters counters = host_counters(&rig);
  VEXPECT_UINT_EQ(counters.operations_done, counters.operations_queued);
  VEXPECT_UINT_EQ(counters.violations, 0);
  VEXPECT_UINT_GT(all.functions, 0);
  host_expect_consistent(&rig);
  vmp_host_census census = host_census(&rig);
  VEXPECT_UINT_EQ(census.handles + census.mappings + census.reservations + census.events + census.streams, 0);
  host_rig_teardown(&rig);
}
