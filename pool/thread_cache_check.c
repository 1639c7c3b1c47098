// thread_cache_check.c: the invariants of thread caches. See thread_cache.h.
#include "pool/thread_cache_internal.h"

// is_not_live: the word is 0, or plain and without a mark.
static bool is_not_live(const vmp_span_map *map, const _Atomic uint32_t *at) {
  uint32_t word = atomic_load(at);
  if (map->marks == NULL) return word == 0;
  bool marked = vmp_card_mark_get(vmp_span_mark_at(map, vmp_span_word_number(map, at)));
  return !marked && (word == 0 || vmp_slab_word_is_plain(word));
}

// check_unread: the unread words are of objects that the cache has.
static void check_unread(const vmp_cache *cache, vmp_report *report) {
  uint32_t count = 0, found = 0;
  for (uint32_t i = 0; i < VMP_CACHE_UNREAD; i++) count += cache->unread[i].word != NULL;
  for (uint32_t i = 0; i < cache->num_magazines; i++) {
    const vmp_magazine *magazine = &cache->magazines[i];
    if (magazine->top < magazine->objects || magazine->top > magazine->end) continue;
    for (const vmp_slab_object *object = magazine->objects; object < magazine->top; object++) {
      found += object->word == cache->unread[object->address & ~VMP_OBJECT_ADDRESS].word;
    }
  }
  if (found != count || (cache->next_unread == 0 && count > 0)) {
    vmp_report_fault(report, "cache: %u words are unread, and the objects of %u are here", count, found);
  }
}

static void check_magazine(const vmp_pool *pool, const vmp_magazine *magazine, uint32_t number, vmp_report *report) {
  if (magazine->top < magazine->objects || magazine->top > magazine->end ||
      vmp_magazine_capacity(magazine) > VMP_CACHE_MAX_OBJECTS || (number == 0 && magazine->end != magazine->objects)) {
    vmp_report_fault(report, "cache: magazine %u holds %td objects of %td", number, magazine->top - magazine->objects,
                     magazine->end - magazine->objects);
    return;
  }
  for (const vmp_slab_object *object = magazine->objects; object < magazine->top; object++) {
    uint64_t address = object->address & VMP_OBJECT_ADDRESS;
    uint32_t entry = atomic_load(vmp_span_map_entry(&pool->span_map, address));
    const vmp_card *card = vmp_span_card(&pool->span_map, entry);
    uint64_t delta = address & magazine->span_mask;
    if (entry == 0 || vmp_card_number(atomic_load(&card->head)) != number ||
        object->word != &card->words[delta / magazine->bytes] || !is_not_live(&pool->span_map, object->word)) {
      vmp_report_fault(report, "cache: object %td of magazine %u is live, or not where its word is",
                       object - magazine->objects, number);
    }
  }
}

size_t vmp_caches_check(const vmp_pool *pool, vmp_report *report) {
  size_t before = report->faults;
  uint64_t capacity_bytes = 0;
  for (const vmp_cache *cache = pool->caches; cache != NULL; cache = cache->next) {
    if (cache->pool != pool || cache->pool_id != pool->id || (cache->prev == NULL) != (cache == pool->caches)) {
      vmp_report_fault(report, "cache: a cache in the pool's list is another pool's, or wrongly linked");
    }
    for (uint32_t i = 0; i < cache->num_magazines; i++) {
      const vmp_magazine *magazine = &cache->magazines[i];
      capacity_bytes += vmp_magazine_capacity(magazine) * magazine->bytes;
      check_magazine(pool, magazine, i, report);
    }
    check_unread(cache, report);
    if ((atomic_load(&cache->gate) & VMP_GATE_OPEN) != vmp_caches_way(pool)) {
      vmp_report_fault(report, "cache: a cache's hits don't go by marks as the pool's do");
    }
  }
  if (capacity_bytes != pool->cache_capacity_bytes) {
    vmp_report_fault(report, "cache: the magazines may hold %llu bytes, and %llu are counted",
                     (unsigned long long)capacity_bytes, (unsigned long long)pool->cache_capacity_bytes);
  }
  return report->faults - before;
}
