// cache_rig.h: what the tests of thread caches share: another thread that does what it is told, and in which ways hits
// go.
#ifndef VMPOOL_TESTS_POOL_CACHE_RIG_H_
#define VMPOOL_TESTS_POOL_CACHE_RIG_H_

#include <pthread.h>

#include "pool/thread_cache.h"
#include "tests/pool/marks_rig.h"
#include "tests/pool/pool_rig.h"

// helper: another thread that does what it is told, one thing after the other, and lives until it is told to end.
typedef struct helper {
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  void (*task)(void *context);
  void *context;
  bool busy, ends;
} helper;

static inline void *helper_body(void *self) {
  helper *h = self;
  (void)pthread_mutex_lock(&h->mutex);
  while (!h->ends) {
    if (h->busy) {
      (void)pthread_mutex_unlock(&h->mutex);  // the task may take the pool's lock, and who has that may ask for one
      h->task(h->context);
      (void)pthread_mutex_lock(&h->mutex);
      h->busy = false;
      (void)pthread_cond_broadcast(&h->changed);
    } else {
      (void)pthread_cond_wait(&h->changed, &h->mutex);
    }
  }
  (void)pthread_mutex_unlock(&h->mutex);
  return NULL;
}

static inline void helper_start(helper *h) {
  *h = (helper){.busy = false};
  VASSERT_INT_EQ(pthread_mutex_init(&h->mutex, NULL), 0);
  VASSERT_INT_EQ(pthread_cond_init(&h->changed, NULL), 0);
  VASSERT_INT_EQ(pthread_create(&h->thread, NULL, helper_body, h), 0);
}

static inline void helper_do(helper *h, void (*task)(void *), void *context) {
  (void)pthread_mutex_lock(&h->mutex);
  h->task = task;
  h->context = context;
  h->busy = true;
  (void)pthread_cond_broadcast(&h->changed);
  while (h->busy) (void)pthread_cond_wait(&h->changed, &h->mutex);
  (void)pthread_mutex_unlock(&h->mutex);
}

static inline void helper_end(helper *h) {
  (void)pthread_mutex_lock(&h->mutex);
  h->ends = true;
  (void)pthread_cond_broadcast(&h->changed);
  (void)pthread_mutex_unlock(&h->mutex);
  (void)pthread_join(h->thread, NULL);
  (void)pthread_cond_destroy(&h->changed);
  (void)pthread_mutex_destroy(&h->mutex);
}

// job: blocks that a helper allocates or frees.
enum { MOST = 64 };
typedef struct job {
  pool_rig *f;
  vmp_stream stream;
  uint64_t bytes;
  size_t count;
  void *blocks[MOST];
  vmp_status status;
} job;

static inline void allocate_all(void *context) {
  job *j = context;
  for (size_t i = 0; i < j->count; i++) j->blocks[i] = rig_alloc(j->f, j->bytes, j->stream);
}
static inline void free_all(void *context) {
  job *j = context;
  for (size_t i = 0; i < j->count; i++) rig_free(j->f, j->blocks[i], j->stream);
}
static inline void allocate_and_free_all(void *context) {
  allocate_all(context);
  free_all(context);
}

// Each test runs with membarrier and without, and by marks, with and without bundles.
typedef struct mode {
  const char *name;
  bool strong, marks;
  uint32_t bundles_from;
} mode;
static const mode modes[] = {
    {.name = "membarrier"},
    {.name = "strong", .strong = true},
    {.name = "marks", .marks = true, .bundles_from = UINT32_MAX},
    {.name = "bundles", .marks = true},
};
static inline const char *mode_name(const mode *m) { return m->name; }

static inline void open(pool_rig *f, const mode *m, uint64_t device_bytes, const char *conf) {
  rig_open(f, device_bytes, conf);
  VASSERT_NO_FAILURE();
  f->pool->strong_caches = m->strong;  // before the first cache is made
  if (m->marks) rig_go_by_marks(f, m->bundles_from);
}

#endif  // VMPOOL_TESTS_POOL_CACHE_RIG_H_
