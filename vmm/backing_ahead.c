// backing_ahead.c: mapping ahead of need. Optional work: it stops at the first refusal and never crosses a limit.
#include "vmm/backing_internal.h"

// note_ahead marks the chunks that a plan has made.
static uint64_t note_ahead(vmp_backing *b, const plan *p) {
  uint64_t chunks = 0;
  for (size_t i = 0; i < p->num_pieces; i++) {
    if (p->pieces[i].source != PIECE_CREATE) continue;
    chunk_note_ahead(&b->chunks, p->pieces[i].chunk);
    chunks++;
  }
  return chunks;
}

// map_ahead maps batch after batch. *out_chunks (NULL: not predicted) counts chunks that were made, which are marked.
static uint64_t map_ahead(vmp_backing *b, uint64_t offset, uint64_t room, uint64_t bytes, uint64_t *out_chunks) {
  uint64_t slot = offset >> b->granule_log2, end = (offset + room) >> b->granule_log2, mapped = 0;
  uint64_t batch = (UINT64_C(1) << b->chunk_max_order) * 64;
  while (mapped < bytes && slot < end) {
    uint64_t next = backing_skip_unmapped(b, slot, end);
    if (next == slot) {
      uint32_t word = backing_word(b, slot);
      slot = word_is_home(word)
                 ? backing_chunk(b, word & WORD_INDEX)->home + chunk_slots(backing_chunk(b, word & WORD_INDEX))
                 : slot + 1;
      continue;
    }
    uint64_t slots = next - slot, wanted = (bytes - mapped + b->granule_bytes - 1) >> b->granule_log2;
    uint64_t limit = chunk_room(&b->chunks, b->chunks.hard_limit_bytes);
    uint64_t soft = chunk_room(&b->chunks, b->chunks.soft_limit_bytes);
    if (soft < limit) limit = soft;
    if (slots > wanted) slots = wanted;
    if (slots > batch) slots = batch;
    if (slots > limit >> b->granule_log2) slots = limit >> b->granule_log2;
    if (slots == 0) break;
    plan_rules rules = {.effort = VMP_EFFORT_NORMAL,
                        .create_bytes = slots << b->granule_log2,
                        .soft_bytes = slots << b->granule_log2,
                        .max_order = b->chunk_max_order};
    plan p = {0};
    uint64_t missing = 0, created = UINT64_MAX;
    vmp_status status = plan_make(b, slot, slots, &rules, &p, &missing);
    if (status == VMP_OK) status = plan_execute(b, &p, &created);
    if (status == VMP_OK && out_chunks != NULL) *out_chunks += note_ahead(b, &p);
    plan_free(&p);
    if (status == VMP_OK) {
      mapped += slots << b->granule_log2;
      slot += slots;
    } else if (created != UINT64_MAX && created >= b->granule_bytes && created < slots << b->granule_log2) {
      bytes = mapped + created;  // the device has no more than this
    } else {
      break;
    }
  }
  return mapped;
}

uint64_t vmp_backing_map_ahead(vmp_backing *b, uint64_t offset, uint64_t room, uint64_t bytes) {
  return map_ahead(b, offset, room, bytes, NULL);
}

uint64_t vmp_backing_predict(vmp_backing *b, uint64_t offset, uint64_t room, uint64_t bytes, uint64_t *out_chunks) {
  *out_chunks = 0;
  return map_ahead(b, offset, room, bytes, out_chunks);
}
