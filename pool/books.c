// books.c: what the pool knows of live blocks: one word each (pool.h, vmp_block_word). See pool.h.
//
//     slab's objects   the word in the card of their span; of a published span it is found and changed without the lock
//     mid's            the word that mid keeps with a block
//     buddy's          an entry of the table `blocks`
//
// A block of slab's is loose if slab has marks and the block leaves more of its object over than a request of its class
// does by its size: it was aligned, or has been made smaller. No hit frees it: hits count on less, before they read the
// word.
//
// A word that is taken out (vmp_books_take) makes the block not live: of several threads that free the same block at
// the same instant exactly one gets it.
#include "pool/pool.h"

vmp_status vmp_books_promise(vmp_pool *pool, vmp_layer layer) {
  return layer == VMP_LAYER_BUDDY ? vmp_offset_map_promise(&pool->blocks) : VMP_OK;
}

void vmp_books_withdraw(vmp_pool *pool, vmp_layer layer) {
  if (layer == VMP_LAYER_BUDDY) vmp_offset_map_withdraw(&pool->blocks);
}

// loosened: a new word, or the bits that are to be set in one.
static uint64_t loosened(vmp_slab_word at, uint64_t word) {
  bool loose = at.mark.word != NULL && vmp_block_slack(word) > at.most_slack;
  return loose ? word | VMP_BLOCK_IS_LOOSE : word;
}

// word_to_change: as vmp_route_word_of, for whoever changes what is there.
static vmp_route_word word_to_change(vmp_pool *pool, uint64_t offset) {
  vmp_route_word at = vmp_route_word_of(pool, offset);
  if (at.object.mark.word != NULL && pool->marks_alone != NULL) vmp_caches_share_marks(pool);
  return at;
}

void vmp_books_enter(vmp_pool *pool, uint64_t offset, uint64_t word) {
  if (vmp_block_layer(word) == VMP_LAYER_BUDDY) {
    vmp_offset_map_add(&pool->blocks, offset, word);
    return;
  }
  vmp_route_word at = word_to_change(pool, offset);
  if (at.mid != NULL) {
    *at.mid = word;
  } else {
    vmp_slab_word_set(at.object, loosened(at.object, word));
  }
}

uint64_t vmp_books_get(const vmp_pool *pool, uint64_t offset) {
  vmp_route_word at = vmp_route_word_of(pool, offset);
  if (at.mid != NULL) return *at.mid;
  if (at.object.low != NULL) return vmp_slab_word_get(at.object);
  const uint64_t *value = vmp_offset_map_find(&pool->blocks, offset);
  return value == NULL ? 0 : *value;
}

uint64_t vmp_books_take(vmp_pool *pool, uint64_t offset) {
  vmp_route_word at = word_to_change(pool, offset);
  uint64_t value = 0;
  if (at.mid != NULL) {
    value = *at.mid;
    *at.mid = 0;
    return value;
  }
  if (at.object.low != NULL) return vmp_slab_word_take(at.object);
  (void)vmp_offset_map_remove(&pool->blocks, offset, &value);
  return value;
}

bool vmp_books_change(vmp_pool *pool, uint64_t offset, uint64_t set, uint64_t clear) {
  vmp_route_word at = word_to_change(pool, offset);
  if (at.object.low != NULL) return vmp_slab_word_change(at.object, loosened(at.object, set), clear);
  uint64_t *value = at.mid != NULL ? at.mid : vmp_offset_map_find(&pool->blocks, offset);
  if (value == NULL || *value == 0) return false;
  *value = (*value & ~clear) | set;
  return true;
}

typedef struct book_walk {
  const vmp_pool *pool;
  vmp_offset_map_fn fn;
  void *context;
} book_walk;

static void see_object(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  const book_walk *walk = context;
  (void)bytes;
  (void)what;
  (void)fence;
  vmp_route_word at = vmp_route_word_of(walk->pool, offset);
  uint64_t word = at.object.low == NULL ? 0 : vmp_slab_word_get(at.object);
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
  vmp_mid_walk_words(pool->mid, fn, context);
  if (pool->slab != NULL) vmp_slab_walk(pool->slab, see_span, &walk);
  for (const vmp_domain *domain = pool->tags.domains; domain != NULL; domain = domain->next) {
    vmp_mid_walk_words(domain->mid, fn, context);
    if (domain->slab != NULL) vmp_slab_walk(domain->slab, see_span, &walk);
  }
}
