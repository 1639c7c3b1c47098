// backing_lost.c: live chunks that are not mapped where they are at home. See backing_compact.h.
#include "vmm/backing_change.h"

// lose notes that a live chunk is not mapped at home (CHUNK_LOST_UNMAPPED), or only without access.
void change_lose(vmp_backing *b, uint32_t id, chunk_lost how) {
  chunk *c = backing_chunk(b, id);
  if (c->lost == 0) b->lost_bytes += chunk_bytes(&b->chunks, c);
  c->lost = (uint8_t)how;
}

static void found_again(vmp_backing *b, chunk *c) {
  if (c->lost != 0) b->lost_bytes -= chunk_bytes(&b->chunks, c);
  c->lost = 0;
}

void backing_now_idle(vmp_backing *b, uint32_t id) {
  chunk *c = backing_chunk(b, id);
  if (c->lost == 0) {
    chunk_to_parked(&b->chunks, id);
    return;
  }
  chunk_lost how = (chunk_lost)c->lost;
  uint64_t slot = c->home, slots = chunk_slots(c);
  found_again(b, c);
  c->state = CHUNK_TRANSIT;
  c->live = 0;
  c->apart = 0;
  if (how == CHUNK_LOST_ACCESS) {
    chunk_to_broken(&b->chunks, id);  // unmapped by the next poll
    return;
  }
  backing_set_words(b, slot, slots, 0);
  backing_log_change(b, slot, slots);
  chunk_unmapped(&b->chunks, id);
  chunk_to_spare(&b->chunks, id);
}

int change_map_and_grant(vmp_backing *b, uint64_t address, uint64_t bytes, vmp_cu_handle handle, bool *mapped,
                         vmp_call *out_call, vmp_backing_calls *calls) {
  int code = 0;
  *out_call = VMP_CALL_mem_map;
  if (!*mapped) {
    calls->map++;
    code = vmp_drv_mem_map(b->options.driver, address, (size_t)bytes, 0, handle, 0);
  }
  if (code != 0) return code;
  *mapped = true;
  *out_call = VMP_CALL_mem_set_access;
  calls->set_access++;
  return vmp_drv_mem_set_access(b->options.driver, address, (size_t)bytes, b->access, b->num_access);
}

// heal_chunk tries to map one lost chunk again. MAY UNLOCK.
static bool heal_chunk(vmp_backing *b, uint32_t id, vmp_backing_calls *calls) {
  chunk *c = backing_chunk(b, id);
  uint64_t bytes = chunk_bytes(&b->chunks, c), generation = ++b->generation;
  bool mapped = c->lost == CHUNK_LOST_ACCESS;
  vmp_cu_handle handle = c->handle;
  vmp_call ignored;
  callback_list callbacks;
  change_hold(b, c->home);
  c->sealed = 1;  // one thread at a time
  uint64_t address = backing_slot_address(b, c->home);
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  int code = change_map_and_grant(b, address, bytes, handle, &mapped, &ignored, calls);
  if (code == 0) callbacks_after_map(&callbacks, address, bytes, generation);
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  if (code == 0) {
    found_again(b, c);
    c->generation = generation;
    backing_log_change(b, c->home, chunk_slots(c));
  } else if (mapped) {
    change_lose(b, id, CHUNK_LOST_ACCESS);
  }
  c->sealed = 0;
  change_let_go(b, c->home);
  backing_wake(b);
  return code == 0;
}

bool backing_heal_lost(vmp_backing *b, uint64_t most, vmp_backing_calls *calls) {
  bool changed = false;
  for (uint32_t id = 1; id <= b->chunks.records.touched && b->lost_bytes > 0 && most > 0; id++) {
    const chunk *c = backing_chunk(b, id);
    if (c->used == 0) continue;
    if (c->shares != 0 && share_heal(b, id, &most, calls)) changed = true;
    if (c->lost == 0 || c->sealed != 0) continue;  // sealed: another thread is at it
    most--;
    if (heal_chunk(b, id, calls)) changed = true;
  }
  return changed;
}
