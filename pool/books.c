// books.c: what the pool knows of live blocks: one word each (pool.h, vmp_block_word). See pool.h.
//
//     slab's objects      the word in the card of their span, where it can be found and changed without the lock
//     mid's and buddy's   an entry of the table `blocks`
//
// A word that is taken out (vmp_books_take) makes the block not live: of several threads that free the same block at
// the same instant exactly one gets it.
#include "pool/pool.h"

// object_word: the word of the slab object that starts at an offset, live or not; NULL: none starts there.
static _Atomic uint64_t *object_word(const vmp_pool *pool, uint64_t offset) {
  uint32_t index;
  vmp_card *card = vmp_route_card(pool, offset, &index);
  return card == NULL ? NULL : &card->words[index];
}

vmp_status vmp_books_promise(vmp_pool *pool, vmp_layer layer) {
  return layer == VMP_LAYER_SLAB ? VMP_OK : vmp_offset_map_promise(&pool->blocks);
}

void vmp_books_withdraw(vmp_pool *pool, vmp_layer layer) {
  if (layer != VMP_LAYER_SLAB) vmp_offset_map_withdraw(&pool->blocks);
}

void vmp_books_add(vmp_pool *pool, uint64_t offset, uint64_t word) {
  if (vmp_block_layer(word) != VMP_LAYER_SLAB) {
    vmp_offset_map_add(&pool->blocks, offset, word);
    return;
  }
  atomic_store_explicit(object_word(pool, offset), word, memory_order_release);
}

uint64_t vmp_books_get(const vmp_pool *pool, uint64_t offset) {
  const uint64_t *value = vmp_offset_map_find(&pool->blocks, offset);
  if (value != NULL) return *value;
  const _Atomic uint64_t *word = object_word(pool, offset);
  return word == NULL ? 0 : atomic_load_explicit(word, memory_order_acquire);
}

uint64_t vmp_books_take(vmp_pool *pool, uint64_t offset) {
  uint64_t value;
  if (vmp_offset_map_remove(&pool->blocks, offset, &value)) return value;
  _Atomic uint64_t *word = object_word(pool, offset);
  return word == NULL ? 0 : atomic_exchange_explicit(word, 0, memory_order_acq_rel);
}

bool vmp_books_change(vmp_pool *pool, uint64_t offset, uint64_t set, uint64_t clear) {
  uint64_t *value = vmp_offset_map_find(&pool->blocks, offset);
  if (value != NULL) {
    *value = (*value & ~clear) | set;
    return true;
  }
  _Atomic uint64_t *word = object_word(pool, offset);
  uint64_t now = word == NULL ? 0 : atomic_load_explicit(word, memory_order_acquire);
  while (now != 0) {
    // Another thread may free the block without the lock meanwhile: then it is not live, and stays so.
    if (atomic_compare_exchange_weak(word, &now, (now & ~clear) | set)) return true;
  }
  return false;
}

typedef struct book_walk {
  const vmp_pool *pool;
  vmp_offset_map_fn fn;
  void *context;
} book_walk;

static void see_object(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  const book_walk *walk = context;
  uint32_t index;
  (void)bytes;
  (void)what;
  (void)fence;
  const vmp_card *card = vmp_route_card(walk->pool, offset, &index);
  uint64_t word = card == NULL ? 0 : atomic_load_explicit(&card->words[index], memory_order_acquire);
  if (word != 0) walk->fn(walk->context, offset, word);
}

static void see_span(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  book_walk *walk = context;
  (void)bytes;
  (void)what;
  (void)fence;
  vmp_route_walk_span(walk->pool, offset, see_object, walk);
}

void vmp_books_walk(const vmp_pool *pool, vmp_offset_map_fn fn, void *context) {
  vmp_offset_map_walk(&pool->blocks, fn, context);
  book_walk walk = {.pool = pool, .fn = fn, .context = context};
  if (pool->slab != NULL) vmp_slab_walk(pool->slab, see_span, &walk);
  for (const vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    if (domain->slab != NULL) vmp_slab_walk(domain->slab, see_span, &walk);
  }
}
