// region_prefetch.c: pages are mapped ahead of need by a thread of the pool. See region.h and vmpool_region.h.
//
//     caller    queue a job, wake the worker, go on
//     worker    a batch of pages at a time: enter the region, claim what is unmapped, park it again, leave
//
// The worker starts with the first prefetch and ends with the pool. The queue is guarded by the pool's lock. Between
// two batches anybody may use the region. What it maps is optional: it stops at the first page that can't be had
// without taking what others may want.
#include <signal.h>

#include "pool/pool.h"
#include "vmm/memory.h"

#define MAX_JOBS 64u
#define BATCH_PAGES 16u

typedef struct prefetch_job {
  vmp_region *region;
  uint64_t first, count;
} prefetch_job;

struct vmp_prefetch {
  vmp_pool *pool;
  pthread_t thread;
  pthread_cond_t wanted;  // with the pool's lock
  prefetch_job jobs[MAX_JOBS];
  size_t head, count;
  bool stop;
};

// ---- the worker; the lock is held, but for driver calls ----

// list_unmapped lists the unmapped pages of a batch, as many as the region's limit leaves.
static size_t list_unmapped(const vmp_region *region, const prefetch_job *job, uint64_t *offsets) {
  uint64_t page_bytes = region->range->page_bytes;
  uint64_t left = region->limit_bytes > region->committed_bytes ? region->limit_bytes - region->committed_bytes : 0;
  size_t count = 0;
  for (uint64_t i = 0; i < job->count && i < BATCH_PAGES && count < left / page_bytes; i++) {
    uint64_t offset = region->range->offset + (job->first + i) * page_bytes;
    if (vmp_backing_page_state(region->pool->backing, offset, page_bytes) == VMP_PAGE_UNMAPPED)
      offsets[count++] = offset;
  }
  return count;
}

// map_batch maps the next pages of a job; false: there is no more to be had. MAY UNLOCK.
static bool map_batch(vmp_region *region, const prefetch_job *job) {
  uint64_t offsets[BATCH_PAGES];
  vmp_backing *backing = region->pool->backing;
  size_t count = list_unmapped(region, job, offsets);
  vmp_page_request request = {.offsets = offsets,
                              .count = count,
                              .page_bytes = region->range->page_bytes,
                              .effort = VMP_EFFORT_READY,
                              .ahead = true};
  vmp_fence ignored;  // nobody uses the pages: the fences stay with their chunks
  if (count == 0) return true;
  region->pool->placing++;
  vmp_status status = vmp_backing_claim_pages(backing, &request, &ignored);
  region->pool->placing--;
  for (size_t i = 0; status == VMP_OK && i < count; i++) {
    (void)vmp_backing_release_page(backing, offsets[i], VMP_FENCE_NONE);
  }
  return status == VMP_OK;
}

static void run_job(vmp_prefetch *prefetch, prefetch_job job) {
  vmp_region *region = job.region;
  bool more = true;
  while (more && job.count > 0 && !region->ending && !prefetch->stop) {
    vmp_region_enter(region);
    more = map_batch(region, &job);
    vmp_region_leave(region);
    uint64_t done = job.count < BATCH_PAGES ? job.count : BATCH_PAGES;
    job.first += done;
    job.count -= done;
  }
  region->prefetches--;
  vmp_guard_wake_all(&region->pool->guard);
}

static void *work(void *argument) {
  vmp_prefetch *prefetch = argument;
  vmp_guard *guard = &prefetch->pool->guard;
  vmp_guard_lock(guard);
  while (!prefetch->stop) {
    if (prefetch->count == 0) {
      vmp_guard_wait_for(guard, &prefetch->wanted);
      continue;
    }
    prefetch_job job = prefetch->jobs[prefetch->head];
    prefetch->head = (prefetch->head + 1) % MAX_JOBS;
    prefetch->count--;
    run_job(prefetch, job);
  }
  vmp_guard_unlock(guard);
  return NULL;
}

// ---- its life ----

// start starts the worker with all signals blocked: they are the program's. The lock is held.
static vmp_status start(vmp_pool *pool) {
  vmp_prefetch *prefetch = vmp_mem_calloc(1, sizeof *prefetch);
  if (prefetch == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to prefetch pages");
  prefetch->pool = pool;
  bool wanted = pthread_cond_init(&prefetch->wanted, NULL) == 0;
  sigset_t all, before;
  (void)sigfillset(&all);
  bool masked = wanted && pthread_sigmask(SIG_SETMASK, &all, &before) == 0;
  bool started = masked && pthread_create(&prefetch->thread, NULL, work, prefetch) == 0;
  if (masked) (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  if (started) {
    pool->regions.prefetch = prefetch;
    return VMP_OK;
  }
  if (wanted) (void)pthread_cond_destroy(&prefetch->wanted);
  vmp_mem_free(prefetch);
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no thread to prefetch pages could be started");
}

void vmp_prefetch_end(vmp_pool *pool) {
  vmp_prefetch *prefetch = pool->regions.prefetch;
  if (prefetch == NULL) return;
  if (!vmp_guard_forked(&pool->guard)) {
    vmp_guard_lock(&pool->guard);
    prefetch->stop = true;
    (void)pthread_cond_broadcast(&prefetch->wanted);
    vmp_guard_unlock(&pool->guard);
    (void)pthread_join(prefetch->thread, NULL);
    (void)pthread_cond_destroy(&prefetch->wanted);
  }
  pool->regions.prefetch = NULL;
  vmp_mem_free(prefetch);
}

void vmp_prefetch_cancel(vmp_region *region) {
  vmp_prefetch *prefetch = region->pool->regions.prefetch;
  region->ending = true;
  if (prefetch == NULL) return;
  size_t kept = 0;
  for (size_t i = 0; i < prefetch->count; i++) {
    prefetch_job job = prefetch->jobs[(prefetch->head + i) % MAX_JOBS];
    if (job.region == region) {
      region->prefetches--;
    } else {
      prefetch->jobs[(prefetch->head + kept++) % MAX_JOBS] = job;
    }
  }
  prefetch->count = kept;
  while (region->prefetches > 0) vmp_guard_wait(&region->pool->guard);
}

// ---- the public calls ----

// queue_job puts a job behind the others. The lock is held.
static vmp_status queue_job(vmp_region *region, uint64_t first, uint64_t count) {
  vmp_pool *pool = region->pool;
  vmp_status status = pool->regions.prefetch == NULL ? start(pool) : VMP_OK;
  if (status != VMP_OK) return status;
  vmp_prefetch *prefetch = pool->regions.prefetch;
  if (prefetch->count == MAX_JOBS) {
    return vmp_fail(VMP_ERROR_BUSY, "%u prefetches wait for their turn already; this one was not queued", MAX_JOBS);
  }
  prefetch->jobs[(prefetch->head + prefetch->count++) % MAX_JOBS] = (prefetch_job){region, first, count};
  region->prefetches++;
  (void)pthread_cond_signal(&prefetch->wanted);
  return VMP_OK;
}

vmp_status vmp_region_prefetch(vmp_region *region, uint64_t first, uint64_t count) {
  if (region == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the region is NULL");
  if (vmp_guard_forked(&region->pool->guard)) return vmp_pool_fail_forked(region->pool);
  vmp_status status = vmp_region_check_pages(region, first, count);
  if (status != VMP_OK || count == 0) return status;
  vmp_guard_lock(&region->pool->guard);
  status = queue_job(region, first, count);
  vmp_guard_unlock(&region->pool->guard);
  return status;
}

vmp_status vmp_region_prefetch_wait(vmp_region *region) {
  if (region == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the region is NULL");
  if (vmp_guard_forked(&region->pool->guard)) return vmp_pool_fail_forked(region->pool);
  vmp_guard_lock(&region->pool->guard);
  while (region->prefetches > 0) vmp_guard_wait(&region->pool->guard);
  vmp_guard_unlock(&region->pool->guard);
  return VMP_OK;
}
