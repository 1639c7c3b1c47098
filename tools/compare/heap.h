// heap.h: what both models are made of: blocks side by side in address order, and the free ones by size.
//
// Owns: the blocks, splitting, merging, best fit. Does not own: where memory comes from (caching.c, expandable.c).
//
//     segment   [ live | free | live | free      ]     neighbours are linked by `previous` and `next`
//     list      free (small) < free (large)            one for each stream and size class, by bytes, then address
//
// Invariants: neighbours touch, and are of one segment and one list; a list holds exactly the blocks that are free.
// Host memory only: nothing here calls a driver.
#ifndef VMPOOL_TOOLS_COMPARE_HEAP_H_
#define VMPOOL_TOOLS_COMPARE_HEAP_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct heap_list heap_list;

typedef enum heap_state {
  HEAP_LIVE = 0,
  HEAP_FREE,      // has memory, and is in its list
  HEAP_UNMAPPED,  // addresses without memory (expandable segments)
} heap_state;

typedef struct heap_block heap_block;
struct heap_block {
  uint64_t address, bytes;
  heap_list *list;
  heap_block *previous, *next;  // neighbours by address; NULL at a segment's ends
  heap_state state;
  // the list's search tree
  heap_block *left, *right;
  uint32_t priority;
};

// heap_list: the free blocks of one stream and size class. Zeroed is empty.
struct heap_list {
  heap_block *root;
  uint32_t random;
};

// heap: where blocks come from. Zeroed is empty; a failed allocation of host memory is remembered in `failed`.
typedef struct heap {
  heap_block *unused;  // by `next`
  struct heap_slab *slabs;
  bool failed;
} heap;

void heap_destroy(heap *h);

// heap_new makes a block without neighbours, HEAP_LIVE; NULL when host memory runs out.
heap_block *heap_new(heap *h, heap_list *list, uint64_t address, uint64_t bytes);

// heap_delete takes a block that is in no list out of its neighbours' row and forgets it.
void heap_delete(heap *h, heap_block *block);

// heap_set_free and heap_take put a block into its list and take it out (HEAP_LIVE then).
void heap_set_free(heap_block *block);
void heap_take(heap_block *block);

// heap_best returns the smallest free block of at least `bytes`, the lowest address among equals; NULL where none is.
// heap_after returns the next larger one in the list.
heap_block *heap_best(const heap_list *list, uint64_t bytes);
heap_block *heap_after(const heap_list *list, const heap_block *block);

// heap_split cuts a block that is in no list after its first `bytes` bytes; the rest becomes a block of the same state,
// in no list. NULL when host memory runs out; nothing has changed then.
heap_block *heap_split(heap *h, heap_block *block, uint64_t bytes);

// heap_merge puts a block, in no list, together with neighbours that are free; the result, in no list, has the
// address of the first of them.
heap_block *heap_merge(heap *h, heap_block *block);

#endif  // VMPOOL_TOOLS_COMPARE_HEAP_H_
