// thread_cache.h: freed slab objects that a thread keeps for itself, one cache per (thread, pool, stream).
//
// Owns: the caches, what is in them, and the rule by which another thread may look into one. Does not own objects: to
// slab a cached object is used, to the books (pool.h) it is not live.
//
//     cache     busy | gate | counters | magazine of class 0 | magazine of class 1 | ...
//     magazine  count, capacity | object | object | object | (room) |          the last one freed is the first taken
//
//     alloc  hit: take an object, write its word            free  hit: set its word to 0, keep the object
//            miss (empty): lock, allocate, refill                 miss (full): lock, give half back with one fence
//
// Who may touch a cache: its owner without any lock, or another thread that holds the pool's lock and has STOPPED it:
//
//     owner (a hit)                      another thread, under the lock
//     busy = 1           plain store     gate |= STOP
//     gate != 0?  -> busy = 0, miss      membarrier: every thread's earlier stores are visible, later loads see `gate`
//     ... take or keep an object ...     wait until busy == 0
//     busy = 0                           ... look, change ...    gate &= ~STOP
//
// Where membarrier is missing, every cache is in strong mode: `busy` is then a lock that both take with an exchange.
//
// Invariants
//   - An object is in at most one cache. Its word is 0, and slab counts it as used. Whoever makes its word 0 (one
//     compare-and-swap) is the only one who may keep it: of two racing frees one gets VMP_ERROR_DOUBLE_FREE.
//   - Objects of a cache were freed on its stream, or were free for it at the refill: its thread may hand them out to
//     that stream at once. Given back, they have a fence of that stream as of then.
//   - The capacities of all magazines together are at most 1/256 of the memory there may be (and the option).
//   - What the owner counted since the last fold is within what the capacities allow.
#ifndef VMPOOL_POOL_THREAD_CACHE_H_
#define VMPOOL_POOL_THREAD_CACHE_H_

#include <stdatomic.h>

#include "pool/pool.h"
#include "pool/sizeclass.h"

#define VMP_CACHE_MAX_BYTES (UINT64_C(64) << 10)  // larger requests are not cached
#define VMP_CACHE_WAYS 8u

typedef enum vmp_cache_gate {
  VMP_GATE_STOP = 1,     // another thread looks into it
  VMP_GATE_BYPASS = 2,   // somebody must see every allocation and free (vmp_pool_bypass_caches)
  VMP_GATE_RETIRED = 4,  // the stream was retired: its handle may be another one now
  VMP_GATE_STRONG = 8,   // no membarrier: hits take `busy` as a lock (thread_cache.c)
} vmp_cache_gate;

typedef struct vmp_magazine {
  uint32_t count, capacity;  // capacity 0: nothing is cached
  uint32_t num_objects;      // of a span
  uint32_t max;              // of capacity
  uint64_t bytes, reciprocal;
  vmp_slab_object *objects;
} vmp_magazine;

typedef struct vmp_cache vmp_cache;

// vmp_cache_way: a thread's memory of where its caches are. Keyed by the pool's number, since another pool may come to
// lie at the same address.
typedef struct vmp_cache_way {
  uint64_t pool_id;
  vmp_stream stream;
  vmp_cache *cache;
} vmp_cache_way;

struct vmp_cache {
  _Atomic uint32_t busy, gate;
  uint32_t num_magazines;
  vmp_stream_index lane;
  // Since the last fold.
  uint64_t allocs, frees;
  int64_t live_bytes, requested_bytes, max_live_bytes, max_requested_bytes;
  // Changed under the pool's lock, read by the owner.
  vmp_pool *pool;
  uint64_t pool_id;
  vmp_stream stream;
  const vmp_cache_way *owner;  // the owner's ways: its identity
  vmp_cache *next, *prev;      // of the pool
  vmp_cache *thread_next;      // of the thread; its own
  _Atomic int state;           // vmp_cache_state
  vmp_magazine magazines[];    // by class
};

// Each thread's own; process-wide, but it holds no state of any pool.
extern _Thread_local vmp_cache_way vmp_cache_ways[VMP_CACHE_WAYS] __attribute__((tls_model("initial-exec")));

static inline vmp_cache_way *vmp_cache_way_of(uint64_t pool_id, vmp_stream stream) {
  uintptr_t mixed = (uintptr_t)stream >> 4 ^ (uintptr_t)stream >> 10 ^ pool_id;
  return &vmp_cache_ways[mixed % VMP_CACHE_WAYS];
}

// vmp_cache_here returns the calling thread's cache, or NULL: it has none, or it isn't at hand.
static inline vmp_cache *vmp_cache_here(const vmp_pool *pool, vmp_stream stream) {
  const vmp_cache_way *way = vmp_cache_way_of(pool->id, stream);
  return way->pool_id == pool->id && way->stream == stream ? way->cache : NULL;
}

static inline bool vmp_cache_enter(vmp_cache *cache) {
  atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  return atomic_load_explicit(&cache->gate, memory_order_acquire) == 0;
}
static inline void vmp_cache_leave(vmp_cache *cache) { atomic_store_explicit(&cache->busy, 0, memory_order_release); }

// vmp_cache_take and vmp_cache_keep are the inner parts of a hit; the cache has been entered. False: a miss, nothing
// has changed.
static inline bool vmp_cache_take(vmp_cache *cache, uint32_t class_index, uint64_t bytes, void **out_ptr) {
  vmp_magazine *magazine = &cache->magazines[class_index];
  uint32_t count = magazine->count;
  if (count == 0) return false;
  const vmp_slab_object *object = &magazine->objects[count - 1];
  magazine->count = count - 1;
  atomic_store_explicit(object->word, vmp_block_word(VMP_LAYER_SLAB, magazine->bytes - bytes), memory_order_release);
  cache->allocs++;
  int64_t live = cache->live_bytes + (int64_t)magazine->bytes;
  int64_t requested = cache->requested_bytes + (int64_t)bytes;
  cache->live_bytes = live;
  cache->requested_bytes = requested;
  if (live > cache->max_live_bytes) cache->max_live_bytes = live;
  if (requested > cache->max_requested_bytes) cache->max_requested_bytes = requested;
  *out_ptr = (void *)(uintptr_t)object->address;
  return true;
}

static inline bool vmp_cache_keep(vmp_cache *cache, vmp_card *card, uint32_t class_index, uint64_t address) {
  vmp_magazine *magazine = &cache->magazines[class_index];
  uint32_t count = magazine->count;
  if (count >= magazine->capacity) return false;
  uint64_t delta = address - atomic_load_explicit(&card->address, memory_order_relaxed);
  uint64_t index = vmp_class_quotient(delta, magazine->reciprocal);
  if (index >= magazine->num_objects || index * magazine->bytes != delta) return false;
  _Atomic uint64_t *word = &card->words[index];
  uint64_t old = atomic_load_explicit(word, memory_order_relaxed);
  // A plain live block; everything else (not live, recorded streams, ...) is not for a hit.
  if ((old & 0xff) != vmp_block_word(VMP_LAYER_SLAB, 0)) return false;
  if (!atomic_compare_exchange_strong_explicit(word, &old, 0, memory_order_acq_rel, memory_order_relaxed)) return false;
  magazine->objects[count] = (vmp_slab_object){address, word};
  magazine->count = count + 1;
  cache->frees++;
  cache->live_bytes -= (int64_t)magazine->bytes;
  cache->requested_bytes -= (int64_t)(magazine->bytes - vmp_block_slack(old));
  return true;
}

// vmp_cache_class: which class serves a request that may be cached; at least `num_magazines` where none does.
static inline uint32_t vmp_cache_class(const vmp_pool *pool, uint64_t bytes) {
  uint64_t step = (bytes - 1) >> VMP_CLASS_STEP_LOG2;  // 0 bytes: a huge one
  if (step >= VMP_CACHE_MAX_BYTES >> VMP_CLASS_STEP_LOG2) return UINT32_MAX;
  return atomic_load_explicit(&pool->cache_classes[step], memory_order_relaxed);
}

// vmp_cache_alloc serves a request from the calling thread's cache. False: a miss.
static inline bool vmp_cache_alloc(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream) {
  vmp_cache *cache = vmp_cache_here(pool, stream);
  if (cache == NULL || vmp_guard_forked(&pool->guard)) return false;
  uint32_t class_index = vmp_cache_class(pool, bytes);
  if (class_index >= cache->num_magazines) return false;
  bool hit = vmp_cache_enter(cache) && vmp_cache_take(cache, class_index, bytes, out_ptr);
  vmp_cache_leave(cache);
  return hit;
}

// vmp_cache_free keeps a freed block in the calling thread's cache. False: a miss, and nothing has changed.
static inline bool vmp_cache_free(vmp_pool *pool, void *ptr, vmp_stream stream) {
  vmp_cache *cache = vmp_cache_here(pool, stream);
  if (cache == NULL || vmp_guard_forked(&pool->guard)) return false;
  uint64_t address = (uintptr_t)ptr;
  vmp_card *card = vmp_span_map_find(&pool->span_map, address);
  if (card == NULL) return false;
  uint32_t class_index = atomic_load_explicit(&card->class_index, memory_order_relaxed);
  if (class_index >= cache->num_magazines) return false;
  bool hit = vmp_cache_enter(cache) && vmp_cache_keep(cache, card, class_index, address);
  vmp_cache_leave(cache);
  return hit;
}

// The same in strong mode; a miss where the pool isn't in it.
bool vmp_cache_alloc_strong(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
bool vmp_cache_free_strong(vmp_pool *pool, void *ptr, vmp_stream stream);

// After a miss, under the lock. vmp_cache_fold_own brings the counters up to date as far as this thread and stream
// know. vmp_cache_refill takes objects that are there, for requests like the one that missed; vmp_cache_make_room gives
// some back where a freed block found no room, and allocates nothing.
void vmp_cache_fold_own(vmp_pool *pool, vmp_stream stream);
void vmp_cache_refill(vmp_pool *pool, uint64_t bytes, vmp_stream stream, vmp_stream_index lane);
void vmp_cache_make_room(vmp_pool *pool, uint64_t address, vmp_stream stream, vmp_stream_index lane);

#endif  // VMPOOL_POOL_THREAD_CACHE_H_
