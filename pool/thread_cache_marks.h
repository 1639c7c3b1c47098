// thread_cache_marks.h: hits by marks, for a pool with so many small blocks that what takes the time of a free is the
// way to the word of its block, through three places that lie in no near cache. See thread_cache.h.
//
//     free    bundle (or page) -> mark: clear it | ask for the word's cache line | the word is unread | keep the object
//     alloc   take an object | read its word if it is unread | write it | set its mark
//
// Bundles and marks are so small that they lie near. A word is read eight frees later, or before its object is used
// again or leaves the cache, or before anybody looks at the counters. Until then the least that the block may have had
// requested is counted as freed: `requested_bytes` is never too low, and where it would make a new peak the words are
// read first. So peaks are as exact as they are without marks.
//
// While only one thread changes marks (its hits, and whoever has the lock is that thread, too) it needs no atomic
// instruction for it, which would wait for everything that is on its way from memory. The first other one that does, or
// that gets a cache, ends that (vmp_caches_share_marks), for good.
#ifndef VMPOOL_POOL_THREAD_CACHE_MARKS_H_
#define VMPOOL_POOL_THREAD_CACHE_MARKS_H_

#include "pool/thread_cache.h"

static inline void vmp_cache_read_word(vmp_cache *cache, vmp_unread *unread) {
  uint64_t slack = vmp_block_slack(atomic_load_explicit(unread->word, memory_order_relaxed));
  cache->requested_bytes -= (int64_t)(unread->most_slack - slack);
  unread->word = NULL;
}

// vmp_cache_take_marked is vmp_cache_take by marks. `alone`: the calling thread is the only one that changes marks.
VMP_HOT_INLINE bool vmp_cache_take_marked(vmp_cache *cache, const vmp_span_map *map, uint64_t number, uint64_t bytes,
                                          bool alone, void **out_ptr) {
  vmp_magazine *magazine = &cache->magazines[number];
  const vmp_slab_object *object = magazine->top;
  if (object == magazine->objects) return false;
  magazine->top = (vmp_slab_object *)--object;
  uint64_t address = object->address;
  _Atomic uint32_t *word = object->word;
  vmp_unread *unread = &cache->unread[address & ~VMP_OBJECT_ADDRESS];
  if (unread->word == word) vmp_cache_read_word(cache, unread);
  atomic_store_explicit(word, (uint32_t)vmp_block_word_less(magazine->full_word, bytes), memory_order_relaxed);
  vmp_card_mark_set(vmp_span_mark_at(map, vmp_span_word_number(map, word)), alone);
  int64_t live = cache->live_bytes + (int64_t)magazine->bytes;
  cache->live_bytes = live;
  if (live > cache->max_live_bytes) cache->max_live_bytes = live;
  int64_t requested = cache->requested_bytes + (int64_t)bytes;
  cache->requested_bytes = requested;
  if (__builtin_expect(requested > cache->max_requested_bytes, false)) {
    vmp_cache_read_words(cache);
    if (cache->requested_bytes > cache->max_requested_bytes) cache->max_requested_bytes = cache->requested_bytes;
  }
  cache->allocs++;
  *out_ptr = (void *)(uintptr_t)(address & VMP_OBJECT_ADDRESS);
  return true;
}

VMP_HOT_INLINE bool vmp_cache_keep_marked(vmp_cache *cache, const vmp_span_map *map, vmp_span_entry *at,
                                          uint64_t address, bool alone) {
  const vmp_span_bundle *bundle_at = vmp_span_map_bundle(map, address);
  uint64_t bundle = atomic_load_explicit(bundle_at, memory_order_acquire), line;
  uint32_t entry = 0, number;
  if (__builtin_expect(bundle != 0, true)) {
    number = vmp_span_bundle_number(bundle);
    line = vmp_span_bundle_line(bundle, address);
  } else {
    entry = atomic_load_explicit(at, memory_order_acquire);
    number = vmp_span_number(entry);
    line = entry >> VMP_CARD_NUMBER_BITS;
  }
  vmp_magazine *magazine = &cache->magazines[number];
  vmp_slab_object *object = magazine->top;
  if (object >= magazine->end) return false;
  uint64_t delta = address & magazine->span_mask;
  // At most the number of objects, for an address in the span's rest: that word is never marked.
  uint64_t index = vmp_class_quotient(delta, magazine->reciprocal);
  if (index * magazine->bytes != delta) return false;
  uint64_t word_number = (line << VMP_CARD_LINE_WORDS_LOG2) + 1 + index;
  vmp_card_mark mark = vmp_span_mark_at(map, word_number);
  if (!vmp_card_mark_clear(mark, alone)) return false;
  // A page of what was no bundle at first has the same card afterwards.
  bool still = bundle != 0 ? atomic_load_explicit(bundle_at, memory_order_relaxed) == bundle
                           : atomic_load_explicit(at, memory_order_relaxed) == entry;
  if (__builtin_expect(!still, false)) {
    vmp_card_mark_set(mark, alone);  // of another span's block by now: see vmp_cache_keep
    return false;
  }
  _Atomic uint32_t *word = (_Atomic uint32_t *)map->cards + word_number;
  __builtin_prefetch((const void *)word, 1);
  uint32_t place = cache->next_unread++ % VMP_CACHE_UNREAD;
  vmp_unread *unread = &cache->unread[place];
  if (__builtin_expect(unread->word != NULL, true)) vmp_cache_read_word(cache, unread);
  uint64_t most_slack = magazine->most_slack, whole = magazine->bytes;
  unread->word = word;
  unread->most_slack = most_slack;
  object->address = address | place;
  object->word = word;
  magazine->top = object + 1;
  cache->live_bytes -= (int64_t)whole;
  cache->requested_bytes -= (int64_t)(whole - most_slack);
  cache->frees++;
  return true;
}

// vmp_cache_enter_marked is vmp_cache_enter where hits go by marks.
VMP_HOT_INLINE bool vmp_cache_enter_marked(vmp_cache *cache, bool *out_alone) {
  atomic_store_explicit(&cache->busy, 1, memory_order_relaxed);
  atomic_signal_fence(memory_order_seq_cst);
  uint32_t gate = atomic_load_explicit(&cache->gate, memory_order_acquire);
  *out_alone = gate == VMP_GATE_MARKS;
  return (gate | VMP_GATE_SHARED) == VMP_GATE_OPEN;
}

// vmp_cache_alloc_marked and vmp_cache_free_marked are vmp_cache_alloc and vmp_cache_free by marks. False: no hit, and
// nothing has changed.
VMP_HOT_INLINE bool vmp_cache_alloc_marked(const vmp_pool *pool, vmp_cache *cache, void **out_ptr, size_t bytes) {
  uint64_t number = vmp_cache_number(pool, bytes);
  bool alone, hit = vmp_cache_enter_marked(cache, &alone) &&
                    vmp_cache_take_marked(cache, &pool->span_map, number, bytes, alone, out_ptr);
  vmp_cache_leave(cache);
  return hit;
}

VMP_HOT_INLINE bool vmp_cache_free_marked(vmp_cache *cache, const vmp_span_map *map, vmp_span_entry *at,
                                          const void *ptr) {
  bool alone,
      hit = vmp_cache_enter_marked(cache, &alone) && vmp_cache_keep_marked(cache, map, at, (uintptr_t)ptr, alone);
  vmp_cache_leave(cache);
  return hit;
}

#endif  // VMPOOL_POOL_THREAD_CACHE_MARKS_H_
