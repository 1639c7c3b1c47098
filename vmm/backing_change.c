// backing_change.c: which chunks may be changed under live claims, and the steps of one change. See backing_compact.h.
#include "vmm/backing_change.h"

#include "vmm/driver_error.h"

vmp_stay change_stay(const chunk *c) {
  if (c->state != CHUNK_LIVE) return VMP_STAY_NOT_LIVE;
  if (c->lost != 0) return VMP_STAY_LOST;
  if (c->pins > 0) return VMP_STAY_PINNED;
  if (c->aliases > 0 || c->shares != 0) return VMP_STAY_SHARED;
  return c->apart != 0 ? VMP_STAY_APART : VMP_STAY_NOT;
}

bool vmp_backing_view(const vmp_backing *b, uint64_t offset, vmp_chunk_view *out) {
  uint32_t id = change_home_at(b, change_slot(b, offset));
  if (id == 0) return false;
  const chunk *c = backing_chunk(b, id);
  *out = (vmp_chunk_view){change_stay(c), change_home_offset(b, c), chunk_bytes(&b->chunks, c), c->live - c->pins};
  return true;
}

bool vmp_backing_joined_host(const vmp_backing *b, uint64_t offset, uint64_t *out_host) {
  const place *p = share_at(b, backing_word(b, change_slot(b, offset)));
  if (p == NULL || backing_chunk(b, p->chunk)->sealed == 0) return false;
  uint64_t lowest = p->slot;
  for (uint32_t id = backing_chunk(b, p->chunk)->shares; id != 0; id = backing_place(b, id)->next_share) {
    if (backing_place(b, id)->slot < lowest) lowest = backing_place(b, id)->slot;
  }
  *out_host = lowest << b->granule_log2;
  return true;
}

void vmp_backing_seal(vmp_backing *b, uint64_t offset, bool seal) {
  uint32_t id = change_home_at(b, change_slot(b, offset));
  if (id == 0) return;
  chunk *c = backing_chunk(b, id);
  c->sealed = seal ? 1 : 0;
  backing_log_change(b, c->home, chunk_slots(c));
}

// hold keeps the chunk at a slot live, whatever becomes of its claims; let_go undoes it.
void change_hold(vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  place *shared = share_at(b, word);
  if (shared != NULL) {
    share_count(b, shared);
  } else {
    backing_chunk(b, word & WORD_INDEX)->live++;
  }
}

void change_let_go(vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  place *shared = share_at(b, word);
  if (shared != NULL) {
    share_uncount(b, shared, VMP_FENCE_NONE);
  } else if (--backing_chunk(b, word & WORD_INDEX)->live == 0) {
    backing_idle(b, word & WORD_INDEX);
  }
}

// ---- one change ----

vmp_status change_fail(change_run *r, vmp_call call, int code) {
  vmp_status status = vmp_driver_fail(r->b->options.driver, call, code, "the chunk at offset 0x%llx was being replaced",
                                      (unsigned long long)r->offset);
  r->error = *vmp_last_error();
  return status;
}

// copy_ranges copies what of `live` lies in [from, from + bytes) of the old chunk; `to` is where that part begins now.
int change_copy(change_run *r, const vmp_live_range *live, size_t num_live, uint64_t from, uint64_t bytes,
                uint64_t to) {
  for (size_t i = 0; i < num_live; i++) {
    uint64_t low = live[i].offset > from ? live[i].offset : from, high = live[i].offset + live[i].bytes;
    if (high > from + bytes) high = from + bytes;
    if (low >= high) continue;
    // Neighbours go in one call.
    while (i + 1 < num_live && live[i + 1].offset == high && high < from + bytes) {
      i++;
      high = live[i].offset + live[i].bytes;
      if (high > from + bytes) high = from + bytes;
    }
    int code = vmp_drv_memcpy_dtod(r->b->options.driver, to + (low - from), r->address + (low - r->offset),
                                   (size_t)(high - low));
    if (code != 0) return code;
    r->report->copied_bytes += high - low;
    r->report->copies++;
  }
  return 0;
}

// begin seals and holds the chunk that is changed. The lock is held.
void change_begin(change_run *r) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  r->offset = change_home_offset(b, c);
  r->bytes = chunk_bytes(&b->chunks, c);
  r->address = backing_slot_address(b, c->home);
  r->generation = c->generation;
  r->back_generation = ++b->generation;
  r->was_sealed = c->sealed != 0;
  c->sealed = 1;
  change_hold(b, c->home);
  backing_log_change(b, c->home, chunk_slots(c));
}

// keep ends a change that wasn't made, or was undone: the chunk is as before, or lost.
void change_keep(change_run *r) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  c->sealed = r->was_sealed ? 1 : 0;
  if (r->lost) change_lose(b, r->id, r->undone ? CHUNK_LOST_ACCESS : CHUNK_LOST_UNMAPPED);
  if (r->unmapped) c->generation = r->lost ? 0 : r->back_generation;
  backing_log_change(b, c->home, chunk_slots(c));
  change_let_go(b, c->home);
}

// give_up ends the chunk that has been replaced: its claims are others' now.
void change_give_up(change_run *r) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  c->sealed = 0;
  backing_tell(b, VMP_BACKING_UNMAPPED, r->id, c->home, chunk_slots(c), NULL);
  c->live = 0;
  c->apart = 0;
  c->fence = VMP_FENCE_NONE;
  chunk_set_moved(&b->chunks, c, VMP_FENCE_NONE);
  chunk_unmapped(&b->chunks, r->id);
  c->state = CHUNK_TRANSIT;
  chunk_to_spare(&b->chunks, r->id);
  r->report->chunks++;
}

int change_unmap_old(change_run *r, const callback_list *callbacks) {
  callbacks_before_unmap(callbacks, r->address, r->bytes, r->generation);
  r->report->calls.unmap++;
  int code = vmp_drv_mem_unmap(r->b->options.driver, r->address, (size_t)r->bytes);
  r->unmapped = code == 0;
  if (code != 0) callbacks_after_map(callbacks, r->address, r->bytes, r->generation);
  return code;
}

// map_back maps the old chunk again. r->undone: it is mapped; r->lost: not so that it could be used.
void change_map_back(change_run *r, vmp_cu_handle handle, const callback_list *callbacks) {
  bool mapped = false;
  vmp_call ignored;
  int code = change_map_and_grant(r->b, r->address, r->bytes, handle, &mapped, &ignored, &r->report->calls);
  r->undone = mapped;
  r->lost = code != 0;
  if (code == 0) callbacks_after_map(callbacks, r->address, r->bytes, r->back_generation);
}
