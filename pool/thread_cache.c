// thread_cache.c: making, finding, stopping, emptying and ending thread caches. See thread_cache.h.
//
// A cache belongs to its thread and to its pool, and either may end first:
//
//     LIVE ──(the thread ends)──> LEAVING ── lock, give everything back, unlink ──> freed by the thread
//     LIVE ──(the pool ends)────> ORPHAN                                       ──> freed by the thread, later
//
// A pool that ends waits for threads that are LEAVING.
#include <pthread.h>
#include <sched.h>

#include "pool/thread_cache_internal.h"
#include "vmm/memory.h"

#define MAX_CACHES_OF_THREAD 64u  // of one pool; further streams of the thread go without
#define SHARE_LOG2 8u             // all caches together: 1/256 of the memory there may be

typedef enum vmp_cache_state { CACHE_LIVE = 0, CACHE_LEAVING, CACHE_ORPHAN } vmp_cache_state;

_Thread_local vmp_cache_way vmp_cache_last __attribute__((tls_model("initial-exec"))) = {VMP_NO_POOL, NULL, NULL};

// The calling thread's caches, of all pools. The key only serves to be told when a thread ends.
static _Thread_local vmp_cache *thread_caches;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;
static pthread_key_t key;
static bool key_made;
// The key's destructor has run: it may not run again, so that a cache made now would stay behind.
static _Thread_local bool thread_has_ended;

// ---- stopping ----

static bool is_mine(const vmp_cache *cache) { return cache->owner == vmp_guard_self(); }

// wait_until_idle waits for the end of a hit: some twenty instructions, unless the owner isn't running.
static void wait_until_idle(vmp_cache *cache) {
  if ((atomic_load(&cache->gate) & VMP_GATE_STRONG) != 0) {
    while (atomic_exchange(&cache->busy, 1) != 0) (void)sched_yield();
    return;
  }
  while (atomic_load_explicit(&cache->busy, memory_order_acquire) != 0) (void)sched_yield();
}

void vmp_caches_stop(vmp_pool *pool) {
  if (pool->cache_stops++ > 0) return;
  bool others = false;
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    atomic_fetch_or(&cache->gate, VMP_GATE_STOP);
    others = others || !is_mine(cache);
  }
  if (others && !pool->strong_caches) vmp_guard_barrier();
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (!is_mine(cache)) wait_until_idle(cache);
  }
}

void vmp_caches_go(vmp_pool *pool) {
  if (--pool->cache_stops > 0) return;
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    atomic_fetch_and_explicit(&cache->gate, ~(uint32_t)VMP_GATE_STOP, memory_order_release);
    if (pool->strong_caches && !is_mine(cache)) vmp_cache_leave(cache);
  }
}

// ---- counting ----

// cache_of: the calling thread's cache, or NULL.
static vmp_cache *cache_of(const vmp_pool *pool, vmp_stream stream) {
  vmp_cache **link = &thread_caches;
  while (*link != NULL && ((*link)->pool_id != pool->id || (*link)->stream != stream)) link = &(*link)->thread_next;
  vmp_cache *cache = *link;
  if (cache != NULL) {  // to the front: the next search is likely to be for one of the last few
    *link = cache->thread_next;
    cache->thread_next = thread_caches;
    thread_caches = cache;
  }
  return cache;
}

void vmp_cache_fold(vmp_pool *pool, vmp_cache *cache) {
  vmp_cache_read_words(cache);
  int64_t live = (int64_t)vmp_pool_counted_live_bytes(pool) + cache->max_live_bytes;
  if (live > (int64_t)pool->peak_live_bytes) pool->peak_live_bytes = (uint64_t)live;
  if (live > (int64_t)pool->step_live_bytes) pool->step_live_bytes = (uint64_t)live;
  int64_t requested = (int64_t)vmp_pool_counted_requested_bytes(pool) + cache->max_requested_bytes;
  if (requested > (int64_t)pool->peak_requested_bytes) pool->peak_requested_bytes = (uint64_t)requested;
  int64_t slab = (int64_t)pool->live_bytes[VMP_LAYER_SLAB] + cache->max_live_bytes;
  vmp_tally_fold(&pool->tally, cache->lane, cache->allocs, cache->frees, slab < 0 ? 0 : (uint64_t)slab);
  pool->live_bytes[VMP_LAYER_SLAB] += (uint64_t)cache->live_bytes;  // wraps back where it is negative
  pool->requested_bytes += (uint64_t)cache->requested_bytes;
  pool->allocs += cache->allocs;
  pool->frees += cache->frees;
  cache->allocs = cache->frees = 0;
  cache->live_bytes = cache->requested_bytes = cache->max_live_bytes = cache->max_requested_bytes = 0;
}

void vmp_cache_fold_own(vmp_pool *pool, vmp_stream stream) {
  vmp_cache *cache = vmp_cache_is_last(pool, stream) ? vmp_cache_last.cache : cache_of(pool, stream);
  if (cache != NULL && cache->pool_id == pool->id) vmp_cache_fold(pool, cache);
}

void vmp_caches_fold(vmp_pool *pool) {
  pool->cached_bytes = 0;
  if (pool->caches == NULL) return;
  vmp_caches_stop(pool);
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) vmp_cache_fold(pool, cache);
  pool->cached_bytes = vmp_caches_bytes(pool);
  vmp_caches_go(pool);
}

uint64_t vmp_caches_bytes(const vmp_pool *pool) {
  uint64_t bytes = 0;
  for (const vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    for (uint32_t i = 0; i < cache->num_magazines; i++) {
      bytes += vmp_magazine_count(&cache->magazines[i]) * cache->magazines[i].bytes;
    }
  }
  return bytes;
}

void vmp_caches_by_stream(vmp_pool *pool, uint64_t out_bytes[VMP_TALLY_STREAMS]) {
  if (pool->caches == NULL) return;
  vmp_caches_stop(pool);
  for (const vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    for (uint32_t i = 0; i < cache->num_magazines; i++) {
      out_bytes[cache->lane] += vmp_magazine_count(&cache->magazines[i]) * cache->magazines[i].bytes;
    }
  }
  vmp_caches_go(pool);
}

static uint64_t cache_size(uint32_t num_magazines) {
  return sizeof(vmp_cache) +
         (uint64_t)num_magazines * (sizeof(vmp_magazine) + VMP_CACHE_MAX_OBJECTS * sizeof(vmp_slab_object));
}

uint64_t vmp_caches_metadata(const vmp_pool *pool) {
  uint64_t bytes = 0;
  for (const vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    bytes += cache_size(cache->num_magazines);
  }
  return bytes + (pool->spare_cache != NULL ? cache_size(pool->spare_cache->num_magazines) : 0);
}

// ---- giving back ----

// What giving an object back reads (its page's entry, its card, the span) lies anywhere, each behind the one before: so
// all cards are asked for first, then all spans.
void vmp_cache_give_back(vmp_pool *pool, vmp_magazine *magazine, uint32_t count, vmp_fence fence) {
  const vmp_span_map *map = &pool->span_map;
  const vmp_slab_object *objects = magazine->objects;
  vmp_card *cards[VMP_CACHE_MAX_OBJECTS];
  for (uint32_t i = 0; i < count; i++) {
    cards[i] = vmp_span_map_find(map, objects[i].address);
    __builtin_prefetch(cards[i], 1);
  }
  for (uint32_t i = 0; i < count; i++) vmp_slab_expect_back(pool->slab, cards[i]);
  for (uint32_t i = 0; i < count; i++) {
    if (map->marks != NULL) atomic_store_explicit(objects[i].word, 0, memory_order_relaxed);
    vmp_slab_put_back(pool->slab, cards[i], (uint32_t)(objects[i].word - cards[i]->words), fence);
  }
  magazine->top -= count;
  for (vmp_slab_object *object = magazine->objects; object < magazine->top; object++) *object = object[count];
}

// empty gives everything back, and the room that the cache might fill.
static void empty(vmp_pool *pool, vmp_cache *cache) {
  vmp_fence fence = VMP_FENCE_NONE;
  vmp_cache_read_words(cache);
  for (uint32_t i = 0; i < cache->num_magazines; i++) {
    vmp_magazine *magazine = &cache->magazines[i];
    uint32_t count = vmp_magazine_count(magazine);
    if (count > 0 && vmp_fence_is_none(fence)) fence = vmp_clock_fence(pool->clock, cache->lane);
    vmp_cache_give_back(pool, magazine, count, fence);
    pool->cache_capacity_bytes -= vmp_magazine_capacity(magazine) * magazine->bytes;
    magazine->end = magazine->objects;
  }
  vmp_cache_fold(pool, cache);
}

void vmp_caches_empty(vmp_pool *pool) {
  if (pool->caches == NULL) return;
  vmp_caches_stop(pool);
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) empty(pool, cache);
  vmp_caches_go(pool);
}

bool vmp_caches_empty_own(vmp_pool *pool) {
  bool any = false;
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (!is_mine(cache)) continue;
    for (uint32_t i = 0; i < cache->num_magazines && !any; i++) any = vmp_magazine_count(&cache->magazines[i]) > 0;
    empty(pool, cache);
  }
  return any;
}

static bool same_stream(const vmp_cache *cache, vmp_stream stream) {
  uintptr_t a = (uintptr_t)cache->stream, b = (uintptr_t)stream;
  if (a <= 1 && b <= 1) return true;            // both name the legacy default stream
  return a == b && (a != 2 || is_mine(cache));  // 2: each thread's own
}

void vmp_caches_retire(vmp_pool *pool, vmp_stream stream) {
  if (pool->caches == NULL) return;
  vmp_caches_stop(pool);
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (!same_stream(cache, stream)) continue;
    empty(pool, cache);
    atomic_fetch_or(&cache->gate, VMP_GATE_RETIRED);
  }
  vmp_caches_go(pool);
}

void vmp_pool_bypass_caches(vmp_pool *pool, int change) {
  if (change > 0) {
    pool->uncached += (uint32_t)change;
  } else {
    pool->uncached -= (uint32_t)-change;
  }
  if (pool->uncached > 0) vmp_caches_empty(pool);
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (pool->uncached > 0) {
      atomic_fetch_or(&cache->gate, VMP_GATE_BYPASS);
    } else {
      atomic_fetch_and(&cache->gate, ~(uint32_t)VMP_GATE_BYPASS);
    }
  }
}

void vmp_caches_learn_classes(vmp_pool *pool) {
  vmp_caches_empty(pool);
  for (uint64_t step = 0; step < VMP_CACHE_STEPS; step++) {
    uint64_t bytes = (step + 1) << VMP_CLASS_STEP_LOG2;
    size_t index = pool->slab == NULL ? SIZE_MAX : vmp_slab_class_index(pool->slab, bytes);
    // A class of the user's may be much larger than the request.
    bool kept = index < VMP_CACHE_MAX_CLASSES && vmp_slab_shape_of(pool->slab, index).bytes <= VMP_CACHE_MAX_BYTES;
    atomic_store_explicit(&pool->cache_numbers[step], kept ? (uint8_t)(index + 1) : 0, memory_order_relaxed);
  }
}

// ---- making and finding ----

static void forget_way(const vmp_cache *cache) {
  if (vmp_cache_last.cache == cache) vmp_cache_last = (vmp_cache_way){VMP_NO_POOL, NULL, NULL};
}

static void unlink_from_pool(vmp_pool *pool, vmp_cache *cache) {
  if (cache->prev != NULL) cache->prev->next = cache->next;
  if (cache->next != NULL) cache->next->prev = cache->prev;
  if (pool->caches == cache) pool->caches = cache->next;
}

// leave ends a cache whose thread ends, or gives it up.
static void leave(vmp_cache *cache) {
  int expected = CACHE_LIVE;
  forget_way(cache);
  if (atomic_compare_exchange_strong(&cache->state, &expected, CACHE_LEAVING)) {
    vmp_pool *pool = cache->pool;
    if (vmp_guard_forked(&pool->guard)) return;  // the parent's; it stays with the copy of the pool
    vmp_guard_lock(&pool->guard);
    empty(pool, cache);
    unlink_from_pool(pool, cache);
    vmp_guard_drop_bias(&pool->guard);
    vmp_guard_wake_all(&pool->guard);
    vmp_guard_unlock(&pool->guard);
  }
  vmp_mem_free(cache);
}

static void thread_ends(void *unused) {
  (void)unused;
  thread_has_ended = true;
  while (thread_caches != NULL) {
    vmp_cache *cache = thread_caches;
    thread_caches = cache->thread_next;
    leave(cache);
  }
}

// In a forked child only the thread that forked goes on: its caches are closed, and every call finds out that it is in
// a child. (A process that forks without telling libc is not noticed by hits.)
static void close_in_child(void) {
  for (vmp_cache *cache = thread_caches; cache != NULL; cache = cache->thread_next) {
    atomic_fetch_or(&cache->gate, VMP_GATE_FORKED);
  }
}

static void make_key(void) {
  key_made = pthread_key_create(&key, thread_ends) == 0 && pthread_atfork(NULL, NULL, close_in_child) == 0;
}

// free_orphans frees the calling thread's caches of pools that are gone.
static void free_orphans(void) {
  vmp_cache **link = &thread_caches;
  while (*link != NULL) {
    vmp_cache *cache = *link;
    if (atomic_load(&cache->state) == CACHE_ORPHAN) {
      *link = cache->thread_next;
      forget_way(cache);
      vmp_mem_free(cache);
    } else {
      link = &cache->thread_next;
    }
  }
}

static vmp_cache *make(const vmp_pool *pool) {
  size_t classes = vmp_slab_max_classes(pool->slab);
  if (classes > VMP_CACHE_MAX_CLASSES) classes = VMP_CACHE_MAX_CLASSES;
  uint32_t count = (uint32_t)classes + 1;
  vmp_cache *cache = vmp_mem_calloc(1, (size_t)cache_size(count));
  if (cache == NULL) return NULL;
  cache->num_magazines = count;
  vmp_slab_object *objects = (vmp_slab_object *)&cache->magazines[count];
  for (uint32_t i = 0; i < count; i++) {
    vmp_magazine *magazine = &cache->magazines[i];
    magazine->top = magazine->end = magazine->objects = objects + (size_t)i * VMP_CACHE_MAX_OBJECTS;
  }
  return cache;
}

// adopt makes a cache the calling thread's for a stream.
static void adopt(vmp_pool *pool, vmp_cache *cache, vmp_stream stream, vmp_stream_index lane) {
  cache->pool = pool;
  cache->pool_id = pool->id;
  cache->stream = stream;
  cache->lane = lane;
  cache->owner = vmp_guard_self();
  atomic_init(&cache->state, CACHE_LIVE);
  vmp_caches_share_marks(pool);
  atomic_init(&cache->gate, pool->strong_caches ? VMP_GATE_STRONG : vmp_caches_way(pool));
  cache->next = pool->caches;
  if (pool->caches != NULL) pool->caches->prev = cache;
  pool->caches = cache;
  cache->thread_next = thread_caches;
  thread_caches = cache;
}

static uint64_t memory_there_may_be(const vmp_pool *pool) {
  uint64_t bytes = pool->device.total_bytes;
  return pool->config.hard_limit < bytes ? pool->config.hard_limit : bytes;
}

uint64_t vmp_caches_bound(const vmp_pool *pool) {
  uint64_t bound = memory_there_may_be(pool) >> SHARE_LOG2;
  return pool->config.thread_cache < bound ? pool->config.thread_cache : bound;
}

// rename_stream: the cache's handle may name another stream now.
static void rename_stream(vmp_cache *cache, vmp_stream_index lane) {
  cache->lane = lane;
  for (uint32_t i = 0; i < cache->num_magazines; i++) {
    vmp_magazine *magazine = &cache->magazines[i];
    magazine->full_word = (uint32_t)vmp_block_on(vmp_block_word(VMP_LAYER_SLAB, magazine->bytes), lane);
  }
}

vmp_cache *vmp_cache_find(vmp_pool *pool, vmp_stream stream, vmp_stream_index lane, bool may_allocate) {
  if (pool->slab == NULL || pool->uncached > 0 || pool->guard.mark == NULL || vmp_caches_bound(pool) == 0) return NULL;
  uint32_t count = 0;
  vmp_cache *found = NULL;
  for (vmp_cache *cache = thread_caches; cache != NULL && found == NULL; cache = cache->thread_next) {
    if (cache->pool_id != pool->id) continue;
    if (cache->stream == stream) found = cache;
    count++;
  }
  if (found == NULL) {
    if (thread_has_ended) return NULL;
    (void)pthread_once(&key_once, make_key);
    if (!key_made || count >= MAX_CACHES_OF_THREAD || pthread_setspecific(key, &vmp_cache_last) != 0) return NULL;
    if (may_allocate) free_orphans();
    found = may_allocate ? make(pool) : pool->spare_cache;
    if (found == pool->spare_cache) pool->spare_cache = NULL;
    if (found == NULL) {
      pool->wants_spare_cache = true;
      return NULL;
    }
    adopt(pool, found, stream, lane);
  }
  if ((atomic_load(&found->gate) & VMP_GATE_RETIRED) != 0) {
    rename_stream(found, lane);
    atomic_fetch_and(&found->gate, ~(uint32_t)VMP_GATE_RETIRED);
  }
  // In strong mode the inline hits, which take no lock, must not find the cache.
  if (!pool->strong_caches) vmp_cache_last = (vmp_cache_way){pool, stream, found};
  return found;
}

void vmp_cache_bring(vmp_pool *pool, vmp_stream stream, vmp_stream_index lane) {
  // One that is closed may be of a pool that is gone, or of a stream that was retired.
  if (!vmp_cache_is_last(pool, stream) || !vmp_cache_is_open(vmp_cache_last.cache)) {
    (void)vmp_cache_find(pool, stream, lane, true);
  }
}

void vmp_cache_keep_spare(vmp_pool *pool) {
  if (vmp_cache_lacks_spare(pool)) pool->spare_cache = make(pool);
}

// ---- strong mode ----

// enter_strong takes a cache's lock; false: the gate is closed for another reason, and the lock is not taken.
static bool enter_strong(vmp_cache *cache) {
  while (atomic_exchange(&cache->busy, 1) != 0) (void)sched_yield();
  if (atomic_load(&cache->gate) == VMP_GATE_STRONG) return true;
  vmp_cache_leave(cache);
  return false;
}

bool vmp_cache_alloc_strong(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  vmp_cache *cache = vmp_guard_forked(&pool->guard) ? NULL : cache_of(pool, stream);
  uint64_t number = vmp_cache_number(pool, bytes);
  if (cache == NULL || !enter_strong(cache)) return false;
  bool hit = vmp_cache_take(cache, number, bytes, out_ptr);
  vmp_cache_leave(cache);
  return hit;
}

bool vmp_cache_free_strong(vmp_pool *pool, const void *ptr, vmp_stream stream) {
  vmp_cache *cache = vmp_guard_forked(&pool->guard) ? NULL : cache_of(pool, stream);
  const vmp_span_map *map = &pool->span_map;
  if (cache == NULL || !enter_strong(cache)) return false;
  bool hit = vmp_cache_keep(cache, map, vmp_span_map_entry(map, (uintptr_t)ptr), (uintptr_t)ptr);
  vmp_cache_leave(cache);
  return hit;
}

vmp_cache *vmp_cache_switch(const vmp_pool *pool, vmp_stream stream) {
  if (pool->strong_caches) return NULL;
  vmp_cache *cache = cache_of(pool, stream);
  if (cache != NULL) vmp_cache_last = (vmp_cache_way){pool, stream, cache};
  return cache;
}

// ---- a pool's beginning and end ----

void vmp_caches_open(vmp_pool *pool) {
  static _Atomic uint64_t next_id = 1;  // numbers only: no state of any pool
  pool->id = atomic_fetch_add(&next_id, 1);
  pool->strong_caches = !vmp_guard_barrier_open();
  vmp_caches_learn_classes(pool);
}

void vmp_caches_close(vmp_pool *pool) {
  bool forked = vmp_guard_forked(&pool->guard);
  if (!forked) vmp_guard_lock(&pool->guard);
  vmp_guard_drop_bias(&pool->guard);  // its seat goes with the cache
  while (pool->caches != NULL) {
    vmp_cache *cache = pool->caches, *next = cache->next;
    bool mine = is_mine(cache);
    int expected = CACHE_LIVE;
    atomic_fetch_or(&cache->gate, VMP_GATE_GONE);
    if (atomic_compare_exchange_strong(&cache->state, &expected, CACHE_ORPHAN)) {
      pool->caches = next;  // from here on its thread may free it
      if (next != NULL) next->prev = NULL;
      if (forked && !mine) vmp_mem_free(cache);  // its thread doesn't exist here
    } else if (forked) {
      unlink_from_pool(pool, cache);  // its thread was leaving at the fork, and doesn't exist here
      vmp_mem_free(cache);
    } else {
      vmp_guard_wait(&pool->guard);  // its thread is leaving, and waits for the lock
    }
  }
  if (!forked) vmp_guard_unlock(&pool->guard);
  vmp_mem_free(pool->spare_cache);
  pool->spare_cache = NULL;
  free_orphans();
}
