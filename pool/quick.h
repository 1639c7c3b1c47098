// quick.h: mid's blocks, and refills of the thread's cache, where there is mapped memory that the stream may use at
// once: no limit is near, nobody watches, and the calling thread has a cache for the stream, so that the stream's index
// is known.
//
//     vmp_alloc   thread cache -> quick -> the long way (alloc.c)
//     vmp_free    thread cache -> quick -> the long way
//
// Owns: nothing. What it does is what the long way would do; at any doubt it does nothing, and the long way serves.
#ifndef VMPOOL_POOL_QUICK_H_
#define VMPOOL_POOL_QUICK_H_

#include "pool/pool.h"
#include "pool/thread_cache.h"

// vmp_quick_open works out, from the pool's options, which requests may go this way.
void vmp_quick_open(vmp_pool *pool);

// vmp_quick_serves: whether requests of a size may.
static inline bool vmp_quick_serves(const vmp_pool *pool, uint64_t bytes) {
  return bytes - pool->quick_from_bytes < pool->quick_bytes;
}

// vmp_quick_alloc and vmp_quick_free are what vmp_alloc and vmp_free go on with after a miss, and go on themselves with
// vmp_alloc_missed and vmp_free_missed where they don't serve. What is served takes the lock once, never lets go of it
// in between and makes no driver call but for the marks of vmp_clock_mark_new. vmp_quick_free: the cache that the
// thread used last is that of the pool and stream; `at`: where the entry of the address was looked for;
// one that isn't 0 is a small object's.
vmp_status vmp_quick_alloc(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream);
vmp_status vmp_quick_free(vmp_pool *pool, void *ptr, vmp_stream stream, const vmp_span_entry *at);

#endif  // VMPOOL_POOL_QUICK_H_
