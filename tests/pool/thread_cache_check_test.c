// thread_cache_check_test.c: the checker of thread caches notices each corruption.
#include "pool/thread_cache.h"
#include "tests/pool/pool_rig.h"
#include "tests/support/faults.h"

typedef struct corruption {
  const char *name;
  void (*make)(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine);
  const char *sentence;
} corruption;

static void too_many(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)cache;
  magazine->top = magazine->end + 1;
}
static void of_no_class(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)magazine;
  cache->magazines[0].end++;
}
static void a_live_object(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)cache;
  atomic_store(magazine->objects[0].word, (uint32_t)vmp_block_word(VMP_LAYER_SLAB, 0));
}
static void a_strange_word(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)cache;
  magazine->objects[0].word = magazine->objects[1].word;
}
static void a_wrong_sum(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)cache;
  (void)magazine;
  pool->cache_capacity_bytes++;
}
static void another_pool(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)magazine;
  cache->pool_id++;
}
static void lost_object(vmp_pool *pool, vmp_cache *cache, vmp_magazine *magazine) {
  (void)pool;
  (void)cache;
  magazine->top--;
}

static const corruption corruptions[] = {
    {"TooMany", too_many, "holds"},
    {"OfNoClass", of_no_class, "magazine 0 holds 0 objects of 1"},
    {"ALiveObject", a_live_object, "is live, or not where its word is"},
    {"AStrangeWord", a_strange_word, "is live, or not where its word is"},
    {"AWrongSum", a_wrong_sum, "are counted"},
    {"AnotherPool", another_pool, "is another pool's"},
    {"LostObject", lost_object, "slab's used bytes"},
};
static const char *corruption_name(const corruption *c) { return c->name; }

VTEST_FP(ThreadCacheCheck, Notices, pool_rig, corruption, corruptions, corruption_name) {
  rig_open(f, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  void *blocks[8];
  for (int i = 0; i < 8; i++) blocks[i] = rig_alloc(f, 64 * KIB, f->streams[0]);
  for (int i = 0; i < 8; i++) rig_free(f, blocks[i], f->streams[0]);
  vmp_cache *cache = f->pool->caches;
  VASSERT_NOT_NULL(cache);
  vmp_magazine *magazine = &cache->magazines[vmp_cache_number(f->pool, 64 * KIB)];
  VASSERT_UINT_GT(vmp_magazine_count(magazine), 1);
  vmp_cache before_cache = *cache;
  vmp_magazine before = *magazine, first = cache->magazines[0];
  vmp_slab_object object = magazine->objects[0];
  uint64_t capacity = f->pool->cache_capacity_bytes;
  p->make(f->pool, cache, magazine);
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  vmp_guard_lock(&f->pool->guard);
  VEXPECT_UINT_GT(vmp_check_all(f->pool, &report), 0);
  vmp_guard_unlock(&f->pool->guard);
  VEXPECT_A_FAULT(&faults, p->sentence);
  *magazine = before;
  magazine->objects[0] = object;
  atomic_store(object.word, 0);
  cache->magazines[0] = first;
  cache->pool_id = before_cache.pool_id;
  f->pool->cache_capacity_bytes = capacity;
  rig_check(f);
}
