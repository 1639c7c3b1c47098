// thread_cache_miss.c: what an allocation that found its magazine empty, and a free that found it full, do about it.
// See thread_cache.h. Under the pool's lock.
#include "pool/thread_cache_internal.h"
#include "pool/thread_cache_marks.h"

#define FIRST_OBJECTS 4u  // a magazine's first capacity; it doubles each time it was too small
#define MAX_MAGAZINE_BYTES (UINT64_C(1) << 20)

// grow doubles what a magazine may hold, within its own and everybody's bounds. It begins with as much as a span has,
// so that a thread begins with a whole span: two threads that change words of one card take the line from each other.
static void grow(vmp_pool *pool, const vmp_cache *cache, vmp_magazine *magazine, size_t class_index) {
  uint64_t capacity = vmp_magazine_capacity(magazine), wanted = capacity * 2;
  if (capacity == 0) {
    vmp_slab_shape shape = vmp_slab_shape_of(pool->slab, class_index);
    magazine->bytes = shape.bytes;
    magazine->full_word = (uint32_t)vmp_block_on(vmp_block_word(VMP_LAYER_SLAB, shape.bytes), cache->lane);
    magazine->span_mask = (uint32_t)(shape.span_bytes - 1);
    magazine->reciprocal = shape.reciprocal;
    magazine->most_slack = shape.most_slack;
    magazine->max = MAX_MAGAZINE_BYTES / shape.bytes;
    if (magazine->max > VMP_CACHE_MAX_OBJECTS) magazine->max = VMP_CACHE_MAX_OBJECTS;
    wanted = shape.num_objects < FIRST_OBJECTS ? FIRST_OBJECTS : shape.num_objects;
  }
  if (wanted > magazine->max) wanted = magazine->max;
  uint64_t bound = vmp_caches_bound(pool);
  uint64_t room = bound < pool->cache_capacity_bytes ? 0 : (bound - pool->cache_capacity_bytes) / magazine->bytes;
  if (wanted > capacity + room) wanted = capacity + room;
  pool->cache_capacity_bytes += (wanted - capacity) * magazine->bytes;
  magazine->end = magazine->objects + wanted;
}

// refill takes objects that are there into an empty magazine, and returns how many. A quarter of what it may hold, so
// that no allocation takes long, and frees find room. While the magazine grows, or where the stream has freed nothing
// since the last refill, all of it: for whole spans, and for who builds something up.
static uint32_t refill(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine, size_t class_index) {
  uint64_t frees = pool->tally.stream_frees[cache->lane] + cache->frees;
  bool builds_up = frees == cache->frees_seen;
  cache->frees_seen = frees;
  uint32_t before = vmp_magazine_capacity(magazine);
  grow(pool, cache, magazine, class_index);
  uint32_t capacity = vmp_magazine_capacity(magazine);
  if (capacity < 2) return 0;  // room for the block that is on its way only
  uint32_t wanted = capacity > before || builds_up ? capacity - 1 : (capacity + 3) / 4;
  uint32_t taken = vmp_slab_take_ready(pool->slab, class_index, cache->lane, wanted, magazine->objects);
  magazine->top += taken;
  return taken;
}

void vmp_cache_refill(vmp_pool *pool, uint64_t bytes, vmp_stream stream, vmp_stream_index lane) {
  uint64_t number = vmp_cache_number(pool, bytes);
  vmp_cache *cache = number == 0 ? NULL : vmp_cache_find(pool, stream, lane, true);
  vmp_cache_keep_spare(pool);
  if (cache == NULL) return;
  vmp_caches_go_by_marks(pool);
  vmp_magazine *magazine = &cache->magazines[number];
  if (vmp_magazine_count(magazine) > 0) return;  // it missed for another reason
  uint32_t taken = refill(pool, cache, magazine, number - 1);
  vmp_histogram_note(&pool->histogram, bytes, taken);  // for the hits to come, which nobody counts by size
}

bool vmp_cache_serve_miss(vmp_pool *pool, vmp_cache *cache, uint64_t bytes, void **out_ptr) {
  uint64_t number = vmp_cache_number(pool, bytes);
  vmp_magazine *magazine = &cache->magazines[number];
  vmp_slab_object first;
  if (number == 0 || vmp_magazine_count(magazine) > 0 || vmp_cache_lacks_spare(pool)) return false;
  if (vmp_slab_take_ready(pool->slab, number - 1, cache->lane, 1, &first) == 0) return false;
  uint32_t taken = refill(pool, cache, magazine, number - 1);
  vmp_histogram_note(&pool->histogram, bytes, taken + 1);
  *magazine->top++ = first;  // there is always memory for it, also where nothing may be kept
  if (pool->span_map.marks == NULL) {
    (void)vmp_cache_take(cache, number, bytes, out_ptr);
  } else {
    (void)vmp_cache_take_marked(cache, &pool->span_map, number, bytes, false, out_ptr);
  }
  vmp_cache_fold(pool, cache);  // like any block that took the lock
  return true;
}

void vmp_cache_make_room(vmp_pool *pool, uint64_t address, vmp_stream stream, vmp_stream_index lane) {
  const vmp_card *card = vmp_span_map_find(&pool->span_map, address);
  vmp_cache *cache = card == NULL ? NULL : vmp_cache_find(pool, stream, lane, false);
  if (cache == NULL) return;
  vmp_cache_fold(pool, cache);
  uint32_t number = vmp_card_number(atomic_load_explicit(&card->head, memory_order_relaxed));
  vmp_magazine *magazine = &cache->magazines[number];
  uint32_t capacity = vmp_magazine_capacity(magazine), count = vmp_magazine_count(magazine);
  if (count < capacity) return;  // it missed for another reason
  grow(pool, cache, magazine, number - 1);
  if (vmp_magazine_capacity(magazine) > capacity || capacity == 0) return;
  vmp_cache_give_back(pool, magazine, (count + 1) / 2, vmp_clock_fence(pool->clock, cache->lane));
}
