// thread_cache_check.c: the invariants of thread caches. See thread_cache.h.
#include "pool/thread_cache_internal.h"

static void check_magazine(const vmp_pool *pool, const vmp_magazine *magazine, uint32_t number, vmp_report *report) {
  if (magazine->top < magazine->objects || magazine->top > magazine->end ||
      vmp_magazine_capacity(magazine) > VMP_CACHE_MAX_OBJECTS || (number == 0 && magazine->end != magazine->objects)) {
    vmp_report_fault(report, "cache: magazine %u holds %td objects of %td", number, magazine->top - magazine->objects,
                     magazine->end - magazine->objects);
    return;
  }
  for (const vmp_slab_object *object = magazine->objects; object < magazine->top; object++) {
    uint32_t entry = atomic_load(vmp_span_map_entry(&pool->span_map, object->address));
    const vmp_card *card = vmp_span_card(&pool->span_map, entry);
    uint64_t delta = object->address & magazine->span_mask;
    if (entry == 0 || vmp_card_number(atomic_load(&card->head)) != number || atomic_load(object->word) != 0 ||
        object->word != &card->words[delta / magazine->bytes]) {
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
  }
  if (capacity_bytes != pool->cache_capacity_bytes) {
    vmp_report_fault(report, "cache: the magazines may hold %llu bytes, and %llu are counted",
                     (unsigned long long)capacity_bytes, (unsigned long long)pool->cache_capacity_bytes);
  }
  return report->faults - before;
}
