// predict.c: see predict.h and vmpool_predict.h.
#include "pool/predict.h"

#include <signal.h>

#include "vmm/memory.h"

// A step's memory is never taken to be larger than this against what was live: the rest is not fragmentation.
#define MOST_OVERHEAD 1.25
#define FULL_MARGIN_STEPS 2

// ---- learning ----

static double margin_of(const vmp_predict *predict, double margin) {
  if (predict->learnt <= FULL_MARGIN_STEPS) return margin;
  return margin * FULL_MARGIN_STEPS / (double)predict->learnt;
}

// learn_overhead compares what is held with what was live, if the program's own requests made memory in this step.
static void learn_overhead(vmp_predict *predict, const vmp_backing_stats *stats, uint64_t live_bytes) {
  uint64_t ahead = atomic_load(&predict->ahead_chunks);
  bool grew = stats->chunks_created - predict->created > ahead - predict->created_ahead;
  predict->created = stats->chunks_created;
  predict->created_ahead = ahead;
  if (!grew || live_bytes == 0) return;
  uint64_t used = stats->mapped_bytes - stats->ahead_unused_bytes;
  double overhead = (double)used / (double)live_bytes;
  if (overhead > MOST_OVERHEAD) overhead = MOST_OVERHEAD;
  if (overhead > predict->overhead) predict->overhead = overhead;
}

uint64_t vmp_predict_learn(vmp_pool *pool) {
  vmp_predict *predict = pool->predict;
  vmp_backing_stats stats;
  vmp_backing_get_stats(pool->backing, &stats);
  learn_overhead(predict, &stats, pool->step_peak_live_bytes);
  double need = (double)pool->step_peak_live_bytes * predict->overhead;
  predict->marks_bytes[predict->learnt++ % VMP_PREDICT_STEPS] = (uint64_t)need;
  uint64_t most = 0;
  for (unsigned i = 0; i < VMP_PREDICT_STEPS; i++) {
    if (predict->marks_bytes[i] > most) most = predict->marks_bytes[i];
  }
  return (uint64_t)((double)most * (1 + margin_of(predict, pool->config.margin)));
}

void vmp_predict_forget(vmp_pool *pool) {
  vmp_predict *predict = pool->predict;
  if (predict == NULL) return;
  for (unsigned i = 0; i < VMP_PREDICT_STEPS; i++) predict->marks_bytes[i] = 0;
  predict->learnt = 0;
  predict->overhead = 1;
}

// ---- mapping ----

// device_allows: how much may be made without taking more than half of what the device has left.
static uint64_t device_allows(vmp_pool *pool) {
  vmp_guard_unlock(&pool->guard);
  uint64_t free_bytes = vmp_stats_device_free(pool);
  vmp_guard_lock(&pool->guard);
  return free_bytes / 2;
}

// find_room finds addresses where `bytes` more would make the largest block that needs no driver call larger, or just
// room for them.
static bool find_room(vmp_pool *pool, uint64_t bytes, uint64_t *out_offset, uint64_t *out_bytes) {
  vmp_cost cost;
  vmp_mid_stats mid;
  vmp_mid_get_stats(pool->mid, &mid);
  vmp_request request = {.bytes = bytes, .alignment = VMP_MID_STEP_BYTES, .effort = VMP_EFFORT_NORMAL};
  if (pool->config.buddy_from == 0) {
    *out_bytes = bytes;
    return vmp_route_look(pool, bytes, out_offset, &cost);
  }
  if (vmp_add(mid.largest_run_bytes, bytes, &request.bytes) && vmp_mid_look(pool->mid, &request, out_offset, &cost) &&
      cost.slots_to_map > 0) {
    *out_bytes = request.bytes;
    return true;
  }
  request.bytes = bytes;
  *out_bytes = bytes;
  return vmp_mid_look(pool->mid, &request, out_offset, &cost) && cost.slots_to_map > 0;
}

// map_until maps chunk by chunk until `wanted_bytes` are held or nothing more is to be had. Without the lock.
static void map_until(vmp_pool *pool, uint64_t wanted_bytes) {
  vmp_predict *predict = pool->predict;
  uint64_t granule = pool->device.granule_bytes, chunk = pool->config.chunk_max;
  vmp_guard_lock(&pool->guard);
  uint64_t allowed = vmp_limits_held(pool) < wanted_bytes ? device_allows(pool) : 0;
  while (!atomic_load(&predict->stop)) {
    uint64_t held = vmp_limits_held(pool), offset, room;
    uint64_t bytes = held < wanted_bytes ? vmp_align_down(wanted_bytes - held + granule - 1, granule) : 0;
    if (bytes > chunk) bytes = chunk;
    if (bytes > allowed) bytes = vmp_align_down(allowed, granule);
    if (bytes == 0 || !find_room(pool, bytes, &offset, &room)) break;
    uint64_t start = vmp_align_down(offset, granule);
    if (!vmp_align_up(offset + room, granule, &room)) break;
    uint64_t chunks = 0, mapped = vmp_backing_predict(pool->backing, start, room - start, bytes, &chunks);
    atomic_fetch_add(&predict->ahead_chunks, chunks);
    if (mapped == 0) break;
    allowed -= mapped < allowed ? mapped : allowed;
  }
  vmp_guard_unlock(&pool->guard);
}

static void *work(void *argument) {
  vmp_predict *predict = argument;
  pthread_mutex_lock(&predict->mutex);
  while (!atomic_load(&predict->stop)) {
    if (predict->asked == predict->answered) {
      pthread_cond_wait(&predict->changed, &predict->mutex);
      continue;
    }
    uint64_t number = predict->asked, wanted_bytes = predict->wanted_bytes;
    pthread_mutex_unlock(&predict->mutex);
    map_until(predict->pool, wanted_bytes);
    pthread_mutex_lock(&predict->mutex);
    predict->answered = number;
    pthread_cond_broadcast(&predict->changed);
  }
  pthread_mutex_unlock(&predict->mutex);
  return NULL;
}

// ---- asking ----

void vmp_predict_post(vmp_pool *pool, uint64_t wanted_bytes) {
  vmp_predict *predict = pool->predict;
  pthread_mutex_lock(&predict->mutex);
  predict->wanted_bytes = wanted_bytes;
  predict->asked++;
  pthread_cond_broadcast(&predict->changed);
  pthread_mutex_unlock(&predict->mutex);
}

void vmp_predict_wait(vmp_pool *pool) {
  vmp_predict *predict = pool->predict;
  pthread_mutex_lock(&predict->mutex);
  uint64_t number = predict->asked;
  while (predict->answered < number) pthread_cond_wait(&predict->changed, &predict->mutex);
  pthread_mutex_unlock(&predict->mutex);
}

vmp_status vmp_pool_predict_wait(vmp_pool *pool) {
  if (pool == NULL) return vmp_fail(VMP_ERROR_INVALID_VALUE, "the pool is NULL");
  if (vmp_guard_forked(&pool->guard)) return vmp_pool_fail_forked(pool);
  if (pool->predict != NULL) vmp_predict_wait(pool);
  return VMP_OK;
}

// ---- the thread's life ----

// start_thread starts it with all signals blocked: they are the program's.
static int start_thread(vmp_predict *predict) {
  sigset_t all, before;
  (void)sigfillset(&all);
  int code = pthread_sigmask(SIG_SETMASK, &all, &before);
  if (code != 0) return code;
  code = pthread_create(&predict->thread, NULL, work, predict);
  (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
  return code;
}

vmp_status vmp_predict_start(vmp_pool *pool) {
  vmp_predict *predict = vmp_mem_calloc(1, sizeof *predict);
  if (predict == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the strategy predictive");
  predict->pool = pool;
  predict->overhead = 1;
  vmp_backing_stats stats;
  vmp_guard_lock(&pool->guard);
  vmp_backing_get_stats(pool->backing, &stats);
  vmp_guard_unlock(&pool->guard);
  predict->created = stats.chunks_created;
  bool mutex = pthread_mutex_init(&predict->mutex, NULL) == 0;
  bool changed = mutex && pthread_cond_init(&predict->changed, NULL) == 0;
  pool->predict = predict;  // before the thread looks
  if (changed && start_thread(predict) == 0) return VMP_OK;
  pool->predict = NULL;
  if (changed) (void)pthread_cond_destroy(&predict->changed);
  if (mutex) (void)pthread_mutex_destroy(&predict->mutex);
  vmp_mem_free(predict);
  return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no thread for the strategy predictive could be started");
}

void vmp_predict_end(vmp_pool *pool) {
  vmp_predict *predict = pool->predict;
  if (predict == NULL) return;
  if (!vmp_guard_forked(&pool->guard)) {
    pthread_mutex_lock(&predict->mutex);
    atomic_store(&predict->stop, true);
    pthread_cond_broadcast(&predict->changed);
    pthread_mutex_unlock(&predict->mutex);
    (void)pthread_join(predict->thread, NULL);
    (void)pthread_cond_destroy(&predict->changed);
    (void)pthread_mutex_destroy(&predict->mutex);
  }
  pool->predict = NULL;
  vmp_mem_free(predict);
}
