// thread_cache_stale_test.c: a free that has read a page's entry just before the span went, when the card already
// serves another one: it takes no word then. pool/thread_cache.h, pool/span_map.h.
#include "pool/thread_cache.h"
#include "tests/pool/pool_rig.h"

enum { BYTES = 4 << 10, INDEX = 5 };

// prepare takes a block, after which its class's magazine has room for one object.
static void *prepare(pool_rig *f) {
  rig_open(f, 8 * GIB, NULL);
  return rig_alloc(f, BYTES, f->streams[0]);
}

// A page whose entry is another one once the word is taken. That needs no second thread: the entry lies where the word
// does, and its value is both the place of a card and a live word (line 1, number 8, that of 4 KiB; stream 1, live,
// slab), so that taking the word changes the entry.
VTEST_F(ThreadCacheStale, AWordIsGivenBackWhenTheEntryIsAnotherOne, pool_rig) {
  void *block = prepare(f);
  VASSERT_NOT_NULL(block);
  const vmp_magazine *magazine = &vmp_cache_last.cache->magazines[vmp_cache_number(f->pool, BYTES)];
  uint32_t live = (uint32_t)vmp_block_on(vmp_block_word(VMP_LAYER_SLAB, 0), 1);
  static _Alignas(64) unsigned char cards[1024];
  vmp_span_map map = {.cards = cards};
  VASSERT_UINT_EQ(vmp_span_number(live), vmp_cache_number(f->pool, BYTES));
  vmp_card *card = vmp_span_card(&map, live);
  atomic_store(&card->words[INDEX], live);
  uint32_t count = vmp_magazine_count(magazine);
  void *address = (void *)(((uintptr_t)1 << 40) + (uintptr_t)INDEX * BYTES);
  VEXPECT_INT_EQ(vmp_cache_free(vmp_cache_last.cache, &map, &card->words[INDEX], address), VMP_CACHE_MISS);
  VEXPECT_UINT_EQ(atomic_load(&card->words[INDEX]), live);
  VEXPECT_UINT_EQ(vmp_magazine_count(magazine), count);
  // The same with an entry that stays is a hit: it is the entry that makes the difference.
  vmp_span_entry entry = live;
  VEXPECT_INT_EQ(vmp_cache_free(vmp_cache_last.cache, &map, &entry, address), VMP_CACHE_HIT);
  VEXPECT_UINT_EQ(atomic_load(&card->words[INDEX]), 0);
  void *taken = NULL;
  VEXPECT_INT_EQ(vmp_cache_alloc(f->pool, vmp_cache_last.cache, &taken, BYTES), VMP_CACHE_HIT);
  VEXPECT_TRUE(taken == address);
  rig_free(f, block, f->streams[0]);
}

// What an entry of 0 names is of no class.
VTEST_F(ThreadCacheStale, NothingIsKeptWithoutAnEntry, pool_rig) {
  void *block = prepare(f);
  VASSERT_NOT_NULL(block);
  vmp_span_entry none = 0;
  VEXPECT_INT_EQ(vmp_cache_free(vmp_cache_last.cache, &f->pool->span_map, &none, block), VMP_CACHE_MISS);
  rig_check(f);
  rig_free(f, block, f->streams[0]);
}
