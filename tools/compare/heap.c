// The list is a treap: a search tree whose nodes are a heap by random priorities, which keeps it shallow.
#include "tools/compare/heap.h"

#include <stdlib.h>

#define SLAB_BLOCKS 1024u

typedef struct heap_slab {
  struct heap_slab *next;
  heap_block blocks[SLAB_BLOCKS];
} heap_slab;

void heap_destroy(heap *h) {
  while (h->slabs != NULL) {
    heap_slab *slab = h->slabs;
    h->slabs = slab->next;
    free(slab);
  }
  *h = (heap){0};
}

static bool refill(heap *h) {
  heap_slab *slab = malloc(sizeof(*slab));
  if (slab == NULL) {
    h->failed = true;
    return false;
  }
  slab->next = h->slabs;
  h->slabs = slab;
  for (unsigned i = 0; i < SLAB_BLOCKS; i++) {
    slab->blocks[i].next = h->unused;
    h->unused = &slab->blocks[i];
  }
  return true;
}

heap_block *heap_new(heap *h, heap_list *list, uint64_t address, uint64_t bytes) {
  if (h->unused == NULL && !refill(h)) return NULL;
  heap_block *block = h->unused;
  h->unused = block->next;
  *block = (heap_block){.address = address, .bytes = bytes, .list = list};
  return block;
}

void heap_delete(heap *h, heap_block *block) {
  if (block->previous != NULL) block->previous->next = block->next;
  if (block->next != NULL) block->next->previous = block->previous;
  block->next = h->unused;
  h->unused = block;
}

// ---- the list ----

static bool before(const heap_block *a, const heap_block *b) {
  return a->bytes != b->bytes ? a->bytes < b->bytes : a->address < b->address;
}

// Cuts a tree into what comes before `block` and what comes after it.
static void cut(heap_block *root, const heap_block *block, heap_block **out_low, heap_block **out_high) {
  while (root != NULL) {
    if (before(root, block)) {
      *out_low = root;
      out_low = &root->right;
      root = root->right;
    } else {
      *out_high = root;
      out_high = &root->left;
      root = root->left;
    }
  }
  *out_low = *out_high = NULL;
}

static uint32_t draw(heap_list *list) {  // xorshift32 (Marsaglia, 2003)
  uint32_t x = list->random != 0 ? list->random : 2463534242u;
  x ^= x << 13;
  x ^= x >> 17;
  x ^= x << 5;
  return list->random = x;
}

void heap_set_free(heap_block *block) {
  block->state = HEAP_FREE;
  block->priority = draw(block->list);
  heap_block **at = &block->list->root;
  while (*at != NULL && (*at)->priority >= block->priority) at = before(block, *at) ? &(*at)->left : &(*at)->right;
  heap_block *below = *at;
  *at = block;
  cut(below, block, &block->left, &block->right);
}

void heap_take(heap_block *block) {
  heap_block **at = &block->list->root;
  while (*at != block) at = before(block, *at) ? &(*at)->left : &(*at)->right;
  heap_block *low = block->left, *high = block->right;
  while (low != NULL && high != NULL) {  // join the two below the place that becomes empty
    if (low->priority >= high->priority) {
      *at = low;
      at = &low->right;
      low = low->right;
    } else {
      *at = high;
      at = &high->left;
      high = high->left;
    }
  }
  *at = low != NULL ? low : high;
  block->left = block->right = NULL;
  block->state = HEAP_LIVE;
}

heap_block *heap_best(const heap_list *list, uint64_t bytes) {
  heap_block *best = NULL;
  for (heap_block *at = list->root; at != NULL;) {
    if (at->bytes >= bytes) {
      best = at;
      at = at->left;
    } else {
      at = at->right;
    }
  }
  return best;
}

heap_block *heap_after(const heap_list *list, const heap_block *block) {
  heap_block *after = NULL;
  for (heap_block *at = list->root; at != NULL;) {
    if (before(block, at)) {
      after = at;
      at = at->left;
    } else {
      at = at->right;
    }
  }
  return after;
}

// ---- neighbours ----

heap_block *heap_split(heap *h, heap_block *block, uint64_t bytes) {
  heap_block *rest = heap_new(h, block->list, block->address + bytes, block->bytes - bytes);
  if (rest == NULL) return NULL;
  rest->state = block->state;
  rest->previous = block;
  rest->next = block->next;
  if (block->next != NULL) block->next->previous = rest;
  block->next = rest;
  block->bytes = bytes;
  return rest;
}

static void absorb_next(heap *h, heap_block *block) {
  block->bytes += block->next->bytes;
  heap_delete(h, block->next);
}

heap_block *heap_merge(heap *h, heap_block *block) {
  if (block->next != NULL && block->next->state == HEAP_FREE) {
    heap_take(block->next);
    absorb_next(h, block);
  }
  heap_block *previous = block->previous;
  if (previous == NULL || previous->state != HEAP_FREE) return block;
  heap_take(previous);
  absorb_next(h, previous);
  return previous;
}
