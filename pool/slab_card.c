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
  vmp_mem_unreserve(store->marks, store->marks_bytes);
  *store = (vmp_card_store){0};
}

uint32_t vmp_card_take(vmp_card_store *store, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words), line = store->free_cards[lines];
  if (line != 0) {
    vmp_card *card = vmp_card_at(store, line);
    store->free_cards[lines] = vmp_card_record(atomic_load_explicit(&card->head, memory_order_relaxed));
    store->num_free[lines]--;
    store->free_lines -= lines;
    atomic_store_explicit(&card->head, 0, memory_order_relaxed);
  } else {
    if (store->num_lines - store->used_lines < lines && !extend(store)) return 0;
    line = store->used_lines;
    store->used_lines += lines;
  }
  store->num_used[lines]++;
  return line;
}

uint32_t vmp_card_take_row(vmp_card_store *store, uint32_t count, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words), first = store->used_lines;
  if (store->free_lines > first / 2 || first > (store->reserved_bytes >> VMP_CARD_LINE_LOG2) / 2) return 0;
  while (store->num_lines - first < count * lines) {
    if (!extend(store)) return 0;
  }
  store->used_lines += count * lines;
  store->num_used[lines] += count;
  return first;
}

void vmp_card_drop_row(vmp_card_store *store, uint32_t line, uint32_t count, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words);
  if (line + count * lines == store->used_lines) {
    store->used_lines = line;
    store->num_used[lines] -= count;
  } else {  // others have been taken since
    for (uint32_t i = 0; i < count; i++) vmp_card_give(store, line + i * lines, num_words);
  }
}

void vmp_card_give(vmp_card_store *store, uint32_t line, uint32_t num_words) {
  uint32_t lines = vmp_card_lines(num_words);
  atomic_store_explicit(&vmp_card_at(store, line)->head, vmp_card_head(0, store->free_cards[lines]),
                        memory_order_relaxed);
  store->free_cards[lines] = line;
  store->num_free[lines]++;
  store->free_lines += lines;
  store->num_used[lines]--;
}

// marks_bytes_of: of so many lines, in whole blocks, 2 bytes a line.
static size_t marks_bytes_of(size_t lines) {
  const size_t block = VMP_CARD_MARK_BLOCK_LINES;
  return (lines + block - 1) / block * block * 2;
}

bool vmp_card_marks_start(vmp_card_store *store) {
  size_t bytes = marks_bytes_of(store->reserved_bytes >> VMP_CARD_LINE_LOG2);
  void *marks = vmp_mem_reserve(&bytes, bytes, 1);
  if (marks == NULL) return false;
  if (!vmp_mem_commit(marks, bytes)) {
    vmp_mem_unreserve(marks, bytes);
    return false;
  }
  store->marks = marks;
  store->marks_bytes = bytes;
  return true;
}

bool vmp_card_is_marked(const vmp_card_store *store, uint32_t line, uint32_t lines) {
  uint64_t end = ((uint64_t)line + lines) << VMP_CARD_LINE_WORDS_LOG2;
  for (uint64_t word = (uint64_t)line << VMP_CARD_LINE_WORDS_LOG2; store->marks != NULL && word < end; word++) {
    if (vmp_card_mark_get(vmp_card_mark_at(store->marks, vmp_card_mark_of(word)))) return true;
  }
  return false;
}

uint64_t vmp_card_store_bytes(const vmp_card_store *store) {
  uint64_t marks_bytes = store->marks == NULL ? 0 : marks_bytes_of(store->used_lines);
  return ((uint64_t)store->num_lines << VMP_CARD_LINE_LOG2) + marks_bytes;
}
