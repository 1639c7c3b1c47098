// backing_end.c: giving everything back. Goes on after failures and reports the first one.
#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

static void note(vmp_backing *b, vmp_status *first, vmp_call call, int code) {
  if (code == 0 || code == VMP_CU_DEINITIALIZED || *first != VMP_OK) return;
  *first = vmp_driver_fail(b->options.driver, call, code, "the pool is being destroyed");
}

// one_mapping returns the end of the mapping that begins at `slot`, and its generation.
static uint64_t one_mapping(const vmp_backing *b, uint64_t slot, uint64_t *out_generation) {
  uint32_t word = backing_word(b, slot);
  if (word_is_home(word)) {
    const chunk *c = backing_chunk(b, word & WORD_INDEX);
    *out_generation = c->generation;
    return slot + chunk_slots(c);
  }
  const place *p = backing_place(b, word & WORD_INDEX);
  *out_generation = p->generation;
  return slot + p->slots;
}

// is_lost: whether the slot's chunk isn't mapped there, though it is at home.
static bool is_lost(const vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  return word_is_home(word) && backing_chunk(b, word & WORD_INDEX)->lost == CHUNK_LOST_UNMAPPED;
}

static int unmap_slots(vmp_backing *b, uint64_t slot, uint64_t end) {
  return vmp_drv_mem_unmap(b->options.driver, backing_slot_address(b, slot), (size_t)((end - slot) << b->granule_log2));
}

// unmap_run removes neighbouring mappings with one call; where that is refused, each by itself.
static void unmap_run(vmp_backing *b, uint64_t slot, uint64_t end, const callback_list *callbacks, vmp_status *first) {
  uint64_t generation = 0;
  for (uint64_t at = slot; callbacks->count > 0 && at < end;) {
    uint64_t next = one_mapping(b, at, &generation);
    callbacks_before_unmap(callbacks, backing_slot_address(b, at), (next - at) << b->granule_log2, generation);
    at = next;
  }
  if (unmap_slots(b, slot, end) == 0) return;
  for (uint64_t at = slot; at < end;) {
    uint64_t next = one_mapping(b, at, &generation);
    note(b, first, VMP_CALL_mem_unmap, unmap_slots(b, at, next));
    at = next;
  }
}

// unmap_everything removes every mapping that the slot table knows.
static void unmap_everything(vmp_backing *b, vmp_status *first) {
  callback_list callbacks;
  uint64_t ignored;
  callbacks_copy(b, &callbacks);
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    uint64_t end = r->first_slot + r->slots, slot = r->first_slot;
    while ((slot = backing_skip_unmapped(b, slot, end)) < end) {
      if (is_lost(b, slot)) {
        slot = one_mapping(b, slot, &ignored);
        continue;
      }
      uint64_t run = slot;
      while (run < end && backing_word(b, run) != 0 && !is_lost(b, run)) run++;
      unmap_run(b, slot, run, &callbacks, first);
      slot = run;
    }
  }
  callbacks_done(b, &callbacks);
}

static void release_everything(vmp_backing *b, vmp_status *first) {
  for (uint32_t id = 1; id <= b->chunks.records.touched; id++) {
    const chunk *c = backing_chunk(b, id);
    if (c->handle == 0) continue;  // a free record
    note(b, first, VMP_CALL_mem_release, vmp_drv_mem_release(b->options.driver, c->handle));
  }
}

vmp_status vmp_backing_destroy(vmp_backing *b) {
  if (b == NULL) return VMP_OK;
  vmp_status first = VMP_OK;
  if (!vmp_driver_is_forked(b->options.driver)) {
    unmap_everything(b, &first);
    release_everything(b, &first);
    for (size_t i = 0; i < b->num_reservations; i++) {
      const reservation *r = &b->reservations[i];
      note(b, &first, VMP_CALL_mem_address_free,
           vmp_drv_mem_address_free(b->options.driver, r->address, (size_t)r->bytes));
    }
  }
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    for (uint64_t leaf = 0; leaf < (r->slots + LEAF_SLOTS - 1) / LEAF_SLOTS; leaf++) vmp_mem_free(r->leaves[leaf]);
    vmp_mem_free(r->leaves);
  }
  chunk_store_finish(&b->chunks);
  vmp_node_pool_finish(&b->details);
  vmp_node_pool_finish(&b->places);
  vmp_mem_free(b->page_ranges);
  vmp_mem_free(b->access);
  vmp_mem_free(b->peers);
  vmp_mem_free(b);
  return first;
}
