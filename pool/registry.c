// registry.c: see registry.h.
#include "pool/registry.h"

#include <pthread.h>

#include "pool/log.h"
#include "pool/pool.h"
#include "pool/predict.h"
#include "vmm/memory.h"

typedef struct registry {
  pthread_mutex_t mutex;
  pthread_cond_t left;  // somebody has ended a visit
  vmp_pool *first;
} registry;

static void end_registry(void *attachment) {
  registry *r = attachment;
  (void)pthread_cond_destroy(&r->left);
  (void)pthread_mutex_destroy(&r->mutex);
  vmp_mem_free(r);
}

static registry *make_registry(void) {
  registry *r = vmp_mem_calloc(1, sizeof *r);
  if (r == NULL) return NULL;
  if (pthread_mutex_init(&r->mutex, NULL) != 0) {
    vmp_mem_free(r);
    return NULL;
  }
  if (pthread_cond_init(&r->left, NULL) != 0) {
    (void)pthread_mutex_destroy(&r->mutex);
    vmp_mem_free(r);
    return NULL;
  }
  return r;
}

// registry_of returns the driver's registry, making it at first use. NULL: no host memory.
static registry *registry_of(vmp_driver *driver) {
  void *now = atomic_load(&driver->attachment);
  if (now != NULL) return now;
  registry *made = make_registry();
  if (made == NULL) return NULL;
  driver->attachment_end = end_registry;  // the same from every thread
  if (atomic_compare_exchange_strong(&driver->attachment, &now, made)) return made;
  end_registry(made);
  return now;
}

vmp_status vmp_registry_join(vmp_pool *pool) {
  registry *r = registry_of(pool->driver);
  if (r == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the list of the driver's pools");
  (void)pthread_mutex_lock(&r->mutex);
  pool->next_on_driver = r->first;
  pool->on_driver = true;
  r->first = pool;
  (void)pthread_mutex_unlock(&r->mutex);
  return VMP_OK;
}

void vmp_registry_leave(vmp_pool *pool) {
  if (!pool->on_driver) return;
  registry *r = atomic_load(&pool->driver->attachment);
  (void)pthread_mutex_lock(&r->mutex);
  while (pool->visitors > 0) (void)pthread_cond_wait(&r->left, &r->mutex);
  vmp_pool **link = &r->first;
  while (*link != pool) link = &(*link)->next_on_driver;
  *link = pool->next_on_driver;
  pool->on_driver = false;
  (void)pthread_mutex_unlock(&r->mutex);
}

// visit takes up to `bytes` of idle memory from a pool.
static uint64_t visit(vmp_pool *pool, uint64_t bytes) {
  uint64_t released = 0;
  vmp_backing_calls ignored = {0};
  vmp_guard_lock(&pool->guard);
  vmp_caches_empty(pool);
  if (pool->slab != NULL) (void)vmp_slab_trim(pool->slab);
  vmp_domains_trim(pool);
  uint64_t held = vmp_limits_held(pool), keep = held > bytes ? held - bytes : 0;
  (void)vmp_backing_give_back(pool->backing, keep, UINT64_MAX, &released, &ignored);
  vmp_log_simple(pool, VMP_LOG_TRIM, 0, keep, released, 0);
  if (released > 0) vmp_predict_forget(pool);
  vmp_guard_unlock(&pool->guard);
  return released;
}

// may_visit: a static pool would not get its memory again.
static bool may_visit(const vmp_pool *pool, const vmp_pool *from) {
  return pool != from && pool->device.ordinal == from->device.ordinal && pool->config.strategy != VMP_STRATEGY_STATIC;
}

uint64_t vmp_registry_trim_others(vmp_pool *from, uint64_t bytes) {
  registry *r = atomic_load(&from->driver->attachment);
  uint64_t released = 0;
  if (r == NULL) return 0;
  (void)pthread_mutex_lock(&r->mutex);
  for (vmp_pool *pool = r->first; pool != NULL && released < bytes; pool = pool->next_on_driver) {
    if (!may_visit(pool, from)) continue;
    pool->visitors++;
    (void)pthread_mutex_unlock(&r->mutex);
    released += visit(pool, bytes - released);
    (void)pthread_mutex_lock(&r->mutex);
    pool->visitors--;
    (void)pthread_cond_broadcast(&r->left);
  }
  (void)pthread_mutex_unlock(&r->mutex);
  return released;
}
