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
// In a pool with very many small blocks words lie in no near cache, and slab has marks of them (slab_card.h). Hits go
// by these then (thread_cache_marks.h).
//
// Invariants
//   - An object is in at most one cache. Its word is 0, or plain and without a mark, and slab counts it as used. Who
//     makes its word 0 (one compare-and-swap), or clears its mark, is the only one who may keep it: of two racing frees
//     one gets VMP_ERROR_DOUBLE_FREE.
//   - Objects of a cache were freed on its stream, or were free for it at the refill: its thread may hand them out to
//     that stream at once. Given back, they have a fence of that stream as of then.
//   - The capacities of all magazines together are at most 1/256 of the memory there may be (and the option).
//   - What the owner counted since the last fold is within what the capacities allow.
#ifndef VMPOOL_POOL_THREAD_CACHE_H_
#define VMPOOL_POOL_THREAD_CACHE_H_

#include <stdatomic.h>

#include "pool/pool.h"
#include "pool/sizeclass.h"

// A hit is some sixty instructions: a call in it would be felt.
#define VMP_HOT_INLINE __attribute__((always_inline)) static inline
#define VMP_CACHE_MAX_BYTES (UINT64_C(64) << 10)  // larger requests are not cached

typedef enum vmp_cache_gate {
  VMP_GATE_STOP = 1,      // another thread looks into it
  VMP_GATE_BYPASS = 2,    // somebody must see every allocation and free (vmp_pool_bypass_caches)
  VMP_GATE_RETIRED = 4,   // the stream was retired: its handle may be another one now
  VMP_GATE_STRONG = 8,    // no membarrier: hits take `busy` as a lock (thread_cache.c)
  VMP_GATE_GONE = 16,     // the pool is gone; another one may have come to lie at its address
  VMP_GATE_FORKED = 32,   // this is a forked child
  VMP_GATE_MARKS = 64,    // hits go by marks
  VMP_GATE_SHARED = 128,  // with VMP_GATE_MARKS: other threads' do, too
} vmp_cache_gate;
#define VMP_GATE_OPEN ((uint32_t)(VMP_GATE_MARKS | VMP_GATE_SHARED))  // no others: the cache may be used

// vmp_magazine: a cache line. Objects are kept between `objects` and `top`; `end` is how far they may reach.
typedef struct vmp_magazine {
  vmp_slab_object *top, *end, *objects;  // end == objects: nothing is cached
  uint32_t full_word;                    // of a block that uses its object whole
  uint32_t span_mask;                    // bytes of a span - 1
  uint64_t bytes, reciprocal;
  uint64_t max;         // objects that `end` may grow to
  uint64_t most_slack;  // vmp_slab_shape's
} vmp_magazine;
_Static_assert(sizeof(vmp_magazine) == 64, "indexed by a shift");

static inline uint32_t vmp_magazine_count(const vmp_magazine *magazine) {
  return (uint32_t)(magazine->top - magazine->objects);
}
static inline uint32_t vmp_magazine_capacity(const vmp_magazine *magazine) {
  return (uint32_t)(magazine->end - magazine->objects);
}

// vmp_unread: a block that was freed by its mark and whose word, which says how much of it was requested, hasn't been
// read. The object is in a magazine; which of these it is the lowest bits of its address say.
#define VMP_CACHE_UNREAD 8u
#define VMP_OBJECT_ADDRESS (~(uint64_t)(VMP_CACHE_UNREAD - 1))  // the address without those bits
typedef struct vmp_unread {
  const _Atomic uint32_t *word;  // NULL: none
  uint64_t most_slack;
} vmp_unread;

typedef struct vmp_cache vmp_cache;

struct vmp_cache {
  _Atomic uint32_t busy, gate;
  // Counted since the last fold. What is changed together is kept apart: next to each other, gcc makes vectors of them,
  // which takes longer.
  int64_t live_bytes;
  vmp_pool *pool;
  int64_t requested_bytes;
  uint64_t pool_id;
  uint64_t allocs;
  int64_t max_live_bytes;
  uint64_t frees;
  int64_t max_requested_bytes;
  // Changed under the pool's lock.
  vmp_stream stream;
  const void *owner;  // vmp_guard_self of the thread
  uint32_t num_magazines;
  vmp_stream_index lane;
  uint64_t frees_seen;     // of the stream, at the last refill
  vmp_cache *next, *prev;  // of the pool
  vmp_cache *thread_next;  // of the thread; its own
  _Atomic int state;       // vmp_cache_state
  vmp_guard_seat seat;     // of its thread in the pool's lock
  uint64_t next_unread;    // how many blocks were freed by their marks
  vmp_unread unread[VMP_CACHE_UNREAD];
  vmp_magazine magazines[];  // number 0 is of no class, and stays empty; then by class
};

// vmp_cache_way: a thread's memory of where a cache is.
typedef struct vmp_cache_way {
  const vmp_pool *pool;
  vmp_stream stream;
  vmp_cache *cache;
} vmp_cache_way;

// The cache that the calling thread used last: process-wide, but it holds no state of any pool. It may be of a pool
// that is gone, at whose address another one lies: then its gate is closed.
// `pool` is VMP_NO_POOL where there is none: no caller's pool is that, NULL included.
#define VMP_NO_POOL ((const vmp_pool *)1)
extern _Thread_local vmp_cache_way vmp_cache_last __attribute__((tls_model("initial-exec")));

static inline bool vmp_cache_is_last(const vmp_pool *pool, vmp_stream stream) {
  return vmp_cache_last.pool == pool && vmp_cache_last.stream == stream;
}

VMP_HOT_INLINE bool vmp_cache_enter(vmp_cache *cache) {
  atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  return __builtin_expect(atomic_load_explicit(&cache->gate, memory_order_acquire) == 0, true);
}
static inline void vmp_cache_leave(vmp_cache *cache) { atomic_store_explicit(&cache->busy, 0, memory_order_release); }

// vmp_cache_is_open: nothing keeps its own thread from using it, in one way or the other.
static inline bool vmp_cache_is_open(const vmp_cache *cache) {
  return (atomic_load_explicit(&cache->gate, memory_order_relaxed) & ~VMP_GATE_OPEN) == 0;
}

// vmp_cache_number: the magazine that serves a request; 0 where it can't be cached.
static inline uint64_t vmp_cache_number(const vmp_pool *pool, uint64_t bytes) {
  uint64_t last = bytes - 1;  // 0 bytes: a huge one
  if (__builtin_expect(last >= VMP_CACHE_MAX_BYTES, false)) return 0;
  return atomic_load_explicit(&pool->cache_numbers[last >> VMP_CLASS_STEP_LOG2], memory_order_relaxed);
}

// vmp_cache_take and vmp_cache_keep are the inner parts of a hit; the cache has been entered. False: a miss, nothing
// has changed.
VMP_HOT_INLINE bool vmp_cache_take(vmp_cache *cache, uint64_t number, uint64_t bytes, void **out_ptr) {
  vmp_magazine *magazine = &cache->magazines[number];
  const vmp_slab_object *object = magazine->top;
  if (object == magazine->objects) return false;
  magazine->top = (vmp_slab_object *)--object;
  // A narrow word: what lies beyond its 32 bits falls away.
  atomic_store_explicit(object->word, (uint32_t)vmp_block_word_less(magazine->full_word, bytes), memory_order_release);
  int64_t live = cache->live_bytes + (int64_t)magazine->bytes;
  cache->live_bytes = live;
  if (live > cache->max_live_bytes) cache->max_live_bytes = live;
  int64_t requested = cache->requested_bytes + (int64_t)bytes;
  cache->requested_bytes = requested;
  if (requested > cache->max_requested_bytes) cache->max_requested_bytes = requested;
  cache->allocs++;
  *out_ptr = (void *)(uintptr_t)object->address;
  return true;
}

VMP_HOT_INLINE bool vmp_cache_keep(vmp_cache *cache, const vmp_span_map *map, vmp_span_entry *at, uint64_t address) {
  uint32_t entry = atomic_load_explicit(at, memory_order_acquire);
  vmp_magazine *magazine = &cache->magazines[vmp_span_number(entry)];
  if (magazine->top >= magazine->end) return false;
  uint64_t delta = address & magazine->span_mask;
  // At most the number of objects, for an address in the span's rest: that word is never live.
  uint64_t index = vmp_class_quotient(delta, magazine->reciprocal);
  if (index * magazine->bytes != delta) return false;
  _Atomic uint32_t *word = &vmp_span_card(map, entry)->words[index];
  uint32_t old = atomic_load_explicit(word, memory_order_relaxed);
  // A plain live block; everything else (not live, recorded streams, ...) is not for a hit.
  if ((uint8_t)old != (uint8_t)vmp_block_word(VMP_LAYER_SLAB, 0)) return false;
  if (!atomic_compare_exchange_strong_explicit(word, &old, 0, memory_order_acq_rel, memory_order_relaxed)) return false;
  if (__builtin_expect(atomic_load_explicit(at, memory_order_relaxed) != entry, false)) {
    // The span had gone, and its card serves another one: its block gets the word back. If that block's owner has just
    // been told that it isn't live, it is the process that frees a block twice.
    uint32_t none = 0;
    (void)atomic_compare_exchange_strong(word, &none, old);
    return false;
  }
  // What was read before is read again here rather than kept: the registers that a caller must save cost more.
  vmp_slab_object *object = magazine->top;
  object->address = address;
  object->word = word;
  magazine->top = object + 1;
  uint64_t whole = magazine->bytes;
  cache->live_bytes -= (int64_t)whole;
  cache->requested_bytes -= (int64_t)(whole - vmp_block_slack(old));
  cache->frees++;
  return true;
}

// vmp_cache_outcome of a try without the lock. CLOSED: the gate is, or hits go by marks (thread_cache_marks.h).
typedef enum vmp_cache_outcome { VMP_CACHE_HIT, VMP_CACHE_MISS, VMP_CACHE_CLOSED } vmp_cache_outcome;

// vmp_cache_alloc serves a request from a cache of the calling thread. After anything but a hit nothing has changed.
VMP_HOT_INLINE vmp_cache_outcome vmp_cache_alloc(const vmp_pool *pool, vmp_cache *cache, void **out_ptr, size_t bytes) {
  uint64_t last = bytes - 1;  // 0 bytes: a huge one
  if (__builtin_expect(last >= VMP_CACHE_MAX_BYTES, false)) return VMP_CACHE_MISS;
  uint64_t number = atomic_load_explicit(&pool->cache_numbers[last >> VMP_CLASS_STEP_LOG2], memory_order_relaxed);
  bool open = vmp_cache_enter(cache), hit = open && vmp_cache_take(cache, number, bytes, out_ptr);
  vmp_cache_leave(cache);
  return hit ? VMP_CACHE_HIT : open ? VMP_CACHE_MISS : VMP_CACHE_CLOSED;
}

// vmp_cache_free keeps a freed block in a cache of the calling thread; `at`: the entry of its address in the pool's
// `map`. After anything but a hit nothing has changed.
VMP_HOT_INLINE vmp_cache_outcome vmp_cache_free(vmp_cache *cache, const vmp_span_map *map, vmp_span_entry *at,
                                                const void *ptr) {
  bool open = vmp_cache_enter(cache), hit = open && vmp_cache_keep(cache, map, at, (uintptr_t)ptr);
  vmp_cache_leave(cache);
  return hit ? VMP_CACHE_HIT : open ? VMP_CACHE_MISS : VMP_CACHE_CLOSED;
}

// vmp_cache_switch returns the calling thread's cache for a pool and stream, which it was not the last one to use, and
// makes it that; NULL: it has none.
vmp_cache *vmp_cache_switch(const vmp_pool *pool, vmp_stream stream);

// The same in strong mode; a miss where the pool isn't in it.
bool vmp_cache_alloc_strong(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
bool vmp_cache_free_strong(vmp_pool *pool, const void *ptr, vmp_stream stream);

// After a miss, under the lock. vmp_cache_fold_own brings the counters up to date as far as this thread and stream
// know. vmp_cache_refill takes objects that are there, for requests like the one that missed; vmp_cache_make_room gives
// some back where a freed block found no room, and allocates nothing.
void vmp_cache_fold_own(vmp_pool *pool, vmp_stream stream);
// vmp_cache_bring makes the calling thread's cache, where it has none, for the sake of what else goes by caches
// (quick.h).
void vmp_cache_bring(vmp_pool *pool, vmp_stream stream, vmp_stream_index lane);
void vmp_cache_refill(vmp_pool *pool, uint64_t bytes, vmp_stream stream, vmp_stream_index lane);
void vmp_cache_make_room(vmp_pool *pool, uint64_t address, vmp_stream stream, vmp_stream_index lane);
// vmp_cache_read_words reads what is unread: the counters are right then. The cache is the caller's own, or stopped.
void vmp_cache_read_all(vmp_cache *cache);
static inline void vmp_cache_read_words(vmp_cache *cache) {
  if (__builtin_expect(cache->next_unread > 0, false)) vmp_cache_read_all(cache);
}
// vmp_cache_serve_miss does what the long way and vmp_cache_refill do where the cache, the calling thread's own, whose
// gate is open, has no object for the request and slab has one that the stream may use at once. False: it isn't so, and
// nothing has changed.
bool vmp_cache_serve_miss(vmp_pool *pool, vmp_cache *cache, uint64_t bytes, void **out_ptr);

#endif  // VMPOOL_POOL_THREAD_CACHE_H_
