// backing_callbacks.c: who is told before a mapping goes and after one is made, and the generations of mappings.
//
// A generation is given to a mapping when it is planned and never given again, so a registration cache that keeps the
// generation beside an address can't take a new mapping for the old one. 0 is a mapping that nobody was told of.
#include <string.h>

#include "vmm/backing_internal.h"

vmp_status vmp_backing_register(vmp_backing *b, const vmp_remap_callbacks *callbacks) {
  for (size_t i = 0; i < b->num_callbacks; i++) {
    if (b->callbacks[i].self != callbacks->self) continue;
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "callbacks of %p are registered already; unregister them first",
                    callbacks->self);
  }
  if (b->num_callbacks == VMP_MAX_REMAP_CALLBACKS) {
    return vmp_fail(VMP_ERROR_LIMIT, "%u pairs of remap callbacks are registered already", VMP_MAX_REMAP_CALLBACKS);
  }
  b->callbacks[b->num_callbacks++] = *callbacks;
  return VMP_OK;
}

// wait_for_users lets go of the lock until nobody of that parity is left.
static void wait_for_users(vmp_backing *b, unsigned parity) {
  while (b->callback_users[parity] > 0 && b->options.hooks.wait != NULL) b->options.hooks.wait(b->options.hooks.self);
}

bool vmp_backing_unregister(vmp_backing *b, const void *self) {
  size_t kept = 0, before = b->num_callbacks;
  for (size_t i = 0; i < b->num_callbacks; i++) {
    if (b->callbacks[i].self != self) b->callbacks[kept++] = b->callbacks[i];
  }
  b->num_callbacks = kept;
  if (kept == before) return false;
  // The parity that comes next must be unused, so that it holds nobody from before.
  wait_for_users(b, (unsigned)(b->callback_epoch + 1) % 2);
  unsigned parity = (unsigned)b->callback_epoch++ % 2;
  wait_for_users(b, parity);
  return true;
}

void callbacks_done(vmp_backing *b, const callback_list *list) {
  b->callback_users[list->parity]--;
  backing_wake(b);
}

void callbacks_copy(vmp_backing *b, callback_list *out) {
  out->parity = (unsigned)b->callback_epoch % 2;
  b->callback_users[out->parity]++;
  out->count = b->num_callbacks;
  memcpy(out->all, b->callbacks, b->num_callbacks * sizeof *b->callbacks);
}

void callbacks_before_unmap(const callback_list *list, uint64_t address, uint64_t bytes, uint64_t generation) {
  if (generation == 0) return;
  for (size_t i = 0; i < list->count; i++) {
    const vmp_remap_callbacks *c = &list->all[i];
    if (c->before_unmap != NULL) c->before_unmap(c->self, address, bytes, generation);
  }
}

void callbacks_after_map(const callback_list *list, uint64_t address, uint64_t bytes, uint64_t generation) {
  for (size_t i = 0; i < list->count; i++) {
    const vmp_remap_callbacks *c = &list->all[i];
    if (c->after_map != NULL) c->after_map(c->self, address, bytes, generation);
  }
}

uint64_t vmp_backing_generation(const vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t youngest = 0, slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    const place *shared = share_at(b, word);
    if (shared == NULL && !word_is_home(word)) return 0;
    const chunk *c = shared != NULL ? NULL : backing_chunk(b, word & WORD_INDEX);
    uint64_t generation = shared != NULL ? shared->generation : c->generation;
    if (generation > youngest) youngest = generation;
    slot = shared != NULL ? shared->slot + shared->slots : c->home + chunk_slots(c);
  }
  return youngest;
}

// ---- the observer ----

void vmp_backing_observe(vmp_backing *b, vmp_backing_observer observer, void *self) {
  b->observer = observer;
  b->observer_self = self;
}

bool vmp_backing_is_home(const vmp_backing *b, uint64_t offset) {
  uint32_t word = backing_word(b, offset >> b->granule_log2);
  const place *shared = share_at(b, word);
  return shared == NULL ? word_is_home(word) : backing_chunk(b, shared->chunk)->shares == (word & WORD_INDEX);
}

bool vmp_backing_in_transit(const vmp_backing *b) { return b->transits > 0; }

void backing_tell_change(const vmp_backing *b, vmp_backing_change_kind kind, uint32_t chunk_id, uint64_t slot,
                         uint64_t slots, const vmp_backing_change *more) {
  vmp_backing_change told = {.kind = kind};
  if (more != NULL) told = *more;
  told.kind = kind;
  told.chunk_id = chunk_id;
  told.bytes = slots << b->granule_log2;
  if (slot != UINT64_MAX) told.address = backing_slot_address(b, slot);
  b->observer(b->observer_self, &told);
}
