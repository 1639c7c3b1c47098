// thread_cache_marks.c: when hits begin to go by marks, and when several threads do. See thread_cache_marks.h.
#include "pool/thread_cache_marks.h"

#include "pool/thread_cache_internal.h"

void vmp_cache_read_all(vmp_cache *cache) {
  for (uint32_t i = 0; i < VMP_CACHE_UNREAD; i++) {
    if (cache->unread[i].word != NULL) vmp_cache_read_word(cache, &cache->unread[i]);
  }
}

// mark_span sets the marks of a span's plain words. Blocks that leave too much over become loose (books.c).
static void mark_span(void *context, uint64_t offset, uint64_t address, uint64_t bytes, uint32_t line) {
  const vmp_pool *pool = context;
  const vmp_span_map *map = &pool->span_map;
  (void)offset;
  (void)address;
  (void)bytes;
  vmp_card *card = vmp_span_card(map, line << VMP_CARD_NUMBER_BITS);
  uint32_t number = vmp_card_number(atomic_load_explicit(&card->head, memory_order_relaxed));
  vmp_slab_shape shape = vmp_slab_shape_of(pool->slab, number - 1);
  for (uint32_t i = 0; i < shape.num_objects; i++) {
    uint32_t word = atomic_load_explicit(&card->words[i], memory_order_relaxed);
    if (word != 0 && vmp_block_slack(word) > shape.most_slack) {
      atomic_store_explicit(&card->words[i], word | (uint32_t)VMP_BLOCK_IS_LOOSE, memory_order_relaxed);
    } else if (vmp_slab_word_is_plain(word)) {
      vmp_card_mark_set(vmp_span_mark_at(map, vmp_span_word_number(map, &card->words[i])), false);
    }
  }
}

static void open_gates(vmp_pool *pool, uint32_t gates) {
  for (vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) atomic_fetch_or(&cache->gate, gates);
}

void vmp_caches_go_by_marks(vmp_pool *pool) {
  if (pool->strong_caches || !vmp_slab_wants_marks(pool->slab) || !vmp_slab_marks_start(pool->slab)) return;
  // With edges the chunks of a block may be shared with others, part by part: it isn't divided.
  bool bundles = !pool->config.edges && vmp_span_map_bundles_start(&pool->span_map);
  if (bundles) vmp_slab_take_bundles(pool->slab);
  vmp_caches_stop(pool);
  pool->span_map.marks = vmp_slab_marks(pool->slab);
  vmp_slab_walk_published(pool->slab, mark_span, pool);
  pool->marks_alone = vmp_guard_self();
  for (const vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (cache->owner != pool->marks_alone) pool->marks_alone = NULL;
  }
  open_gates(pool, vmp_caches_way(pool));
  vmp_caches_go(pool);
}

void vmp_caches_share_marks(vmp_pool *pool) {
  if (pool->marks_alone == NULL || pool->marks_alone == vmp_guard_self()) return;
  vmp_caches_stop(pool);
  open_gates(pool, VMP_GATE_SHARED);
  pool->marks_alone = NULL;
  vmp_caches_go(pool);
}
