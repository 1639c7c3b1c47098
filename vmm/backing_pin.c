// backing_pin.c: chunks that stay where they are. A pin is one more claim on each chunk of a mapped range, so the chunk
// is live, and nothing parks, takes, gathers or releases it; `pins` tells these claims from those of blocks.
#include "vmm/backing_internal.h"

uint64_t vmp_backing_pin(vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes), count = 0;
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    place *shared = share_at(b, word);
    uint32_t id = shared != NULL ? shared->chunk : word & WORD_INDEX;
    chunk *c = backing_chunk(b, id);
    slot = shared != NULL ? shared->slot + shared->slots : c->home + chunk_slots(c);
    if (shared != NULL) {
      share_count(b, shared);
    } else {
      if (c->live == 0) chunk_to_live(&b->chunks, id);
      c->live++;
    }
    if (c->pins++ == 0) b->chunks.pinned_bytes += chunk_bytes(&b->chunks, c);
    c->apart = 1;  // nobody else's ends from now on
    count++;
  }
  return count;
}

void vmp_backing_unpin(vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    place *shared = share_at(b, word);
    uint32_t id = shared != NULL ? shared->chunk : word & WORD_INDEX;
    chunk *c = backing_chunk(b, id);
    slot = shared != NULL ? shared->slot + shared->slots : c->home + chunk_slots(c);
    if (--c->pins == 0) b->chunks.pinned_bytes -= chunk_bytes(&b->chunks, c);
    if (shared != NULL) {
      share_uncount(b, shared, VMP_FENCE_NONE);
    } else if (--c->live == 0) {
      backing_idle(b, id);
    }
  }
}

uint64_t vmp_backing_pin_sum(const vmp_backing *b) {
  uint64_t sum = 0;
  for (uint32_t id = 1; id <= b->chunks.records.touched; id++) {
    const chunk *c = backing_chunk(b, id);
    if (c->used) sum += c->pins;
  }
  return sum;
}

uint64_t backing_pinned_only_bytes(const vmp_backing *b) {
  uint64_t bytes = 0;
  if (b->chunks.pinned_bytes == 0) return 0;
  for (uint32_t id = 1; id <= b->chunks.records.touched; id++) {
    const chunk *c = backing_chunk(b, id);
    if (c->used && c->pins > 0 && c->pins == c->live) bytes += chunk_bytes(&b->chunks, c);
  }
  return bytes;
}
