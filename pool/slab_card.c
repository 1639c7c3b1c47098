// slab_card.c: see slab_card.h.
#include "pool/slab_card.h"

#include "vmm/memory.h"

// Where a process may have only so many addresses (RLIMIT_AS), a store has at most one in so many of what is left.
#define SHARE 64u
#define LEAST_BYTES ((size_t)1 << 20)
// Lines that get memory at a time: as many as there are, within these bounds. 4 KiB to 16 KiB.
#define LEAST_STEP_LINES 64u
#define MOST_STEP_LINES 256u

static bool extend(vmp_card_store *store) {
  uint32_t lines = store->num_lines;
  if (lines < LEAST_STEP_LINES) lines = LEAST_STEP_LINES;
  if (lines > MOST_STEP_LINES) lines = MOST_STEP_LINES;
  size_t from = (size_t)store->num_lines << VMP_CARD_LINE_LOG2, bytes = (size_t)lines << VMP_CARD_LINE_LOG2;
  if (store->reserved_bytes - from < bytes || !vmp_mem_commit(store->base + from, bytes)) return false;
  store->num_lines += lines;
  return true;
}

bool vmp_card_store_open(vmp_card_store *store) {
  size_t bytes = (size_t)1 << (VMP_CARD_INDEX_BITS + VMP_CARD_LINE_LOG2);
  store->base = vmp_mem_reserve(&bytes, LEAST_BYTES, SHARE);
  if (store->base == NULL) return false;
  store->reserved_bytes = bytes;
  store->used_lines = 1;
  if (extend(store)) return true;
  vmp_card_store_close(store);
  return false;
}

void vmp_card_store_close(vmp_card_store *store) {
  vmp_mem_unreserve(store->base, store->reserved_bytes);
  *store = (vmp_card_store){0};
}

uint32_t vmp_card_take(vmp_card_store *store, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words), line = store->free_cards[lines];
  if (line != 0) {
    vmp_card *card = vmp_card_at(store, line);
    store->free_cards[lines] = vmp_card_record(atomic_load_explicit(&card->head, memory_order_relaxed));
    store->num_free[lines]--;
    atomic_store_explicit(&card->head, 0, memory_order_relaxed);
  } else {
    if (store->num_lines - store->used_lines < lines && !extend(store)) return 0;
    line = store->used_lines;
    store->used_lines += lines;
  }
  store->num_used[lines]++;
  return line;
}

void vmp_card_give(vmp_card_store *store, uint32_t line, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words);
  atomic_store_explicit(&vmp_card_at(store, line)->head, vmp_card_head(0, store->free_cards[lines]),
                        memory_order_relaxed);
  store->free_cards[lines] = line;
  store->num_free[lines]++;
  store->num_used[lines]--;
}

uint64_t vmp_card_store_bytes(const vmp_card_store *store) { return (uint64_t)store->num_lines << VMP_CARD_LINE_LOG2; }
