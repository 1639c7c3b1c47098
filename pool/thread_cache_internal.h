// thread_cache_internal.h: what the files of the thread caches share. See thread_cache.h.
//
//     thread_cache.c        making, finding, stopping, emptying and ending
//     thread_cache_miss.c   refilling, and making room
//     thread_cache_marks.*  hits by marks
//     thread_cache_check.c  all invariants
#ifndef VMPOOL_POOL_THREAD_CACHE_INTERNAL_H_
#define VMPOOL_POOL_THREAD_CACHE_INTERNAL_H_

#include "pool/thread_cache.h"

#define VMP_CACHE_MAX_OBJECTS 64u  // of a magazine

// vmp_cache_fold enters in the pool's books what a cache has counted. The cache is the caller's own, or stopped.
void vmp_cache_fold(vmp_pool *pool, vmp_cache *cache);
// vmp_cache_give_back gives the oldest `count` objects of a magazine back to slab. The cache is the caller's own, or
// stopped, and nothing of it is unread.
void vmp_cache_give_back(vmp_pool *pool, vmp_magazine *magazine, uint32_t count, vmp_fence fence);
// vmp_cache_find returns the calling thread's cache for a stream, made where there is none and `may_allocate`, and puts
// it at hand. NULL: none can be had. The lock is held.
vmp_cache *vmp_cache_find(vmp_pool *pool, vmp_stream stream, vmp_stream_index lane, bool may_allocate);
// vmp_caches_go_by_marks has slab make marks, where that is worth while, and has all hits go by them from then on.
// Where host memory is short nothing changes.
void vmp_caches_go_by_marks(vmp_pool *pool);
// vmp_caches_way: what the gates of all caches say of marks.
static inline uint32_t vmp_caches_way(const vmp_pool *pool) {
  if (pool->span_map.marks == NULL) return 0;
  return pool->marks_alone != NULL ? VMP_GATE_MARKS : VMP_GATE_OPEN;
}
// vmp_cache_lacks_spare: a thread has wanted a cache where nothing may be allocated, and there is none for the next
// one.
static inline bool vmp_cache_lacks_spare(const vmp_pool *pool) {
  return pool->wants_spare_cache && pool->spare_cache == NULL;
}
// vmp_cache_keep_spare makes a cache for a thread that will want one where nothing may be allocated, once one has.
void vmp_cache_keep_spare(vmp_pool *pool);

#endif  // VMPOOL_POOL_THREAD_CACHE_INTERNAL_H_
