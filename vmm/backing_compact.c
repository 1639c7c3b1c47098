// backing_compact.c: see backing_compact.h.
//
// The chunk that is changed stays at home, sealed and held, until the change is committed: frees count on it as ever.
#include "vmm/backing_compact.h"

#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

static uint64_t slot_of(const vmp_backing *b, uint64_t offset) { return offset >> b->granule_log2; }
static uint64_t home_offset(const vmp_backing *b, const chunk *c) { return c->home << b->granule_log2; }

// home_at returns the chunk that has its home at a slot, 0: none.
static uint32_t home_at(const vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  return word_is_home(word) ? word & WORD_INDEX : 0;
}

static vmp_stay stay_of(const chunk *c) {
  if (c->state != CHUNK_LIVE) return VMP_STAY_NOT_LIVE;
  if (c->lost != 0) return VMP_STAY_LOST;
  if (c->pins > 0) return VMP_STAY_PINNED;
  if (c->aliases > 0 || c->shares != 0) return VMP_STAY_SHARED;
  return c->apart != 0 ? VMP_STAY_APART : VMP_STAY_NOT;
}

bool vmp_backing_view(const vmp_backing *b, uint64_t offset, vmp_chunk_view *out) {
  uint32_t id = home_at(b, slot_of(b, offset));
  if (id == 0) return false;
  const chunk *c = backing_chunk(b, id);
  *out = (vmp_chunk_view){stay_of(c), home_offset(b, c), chunk_bytes(&b->chunks, c), c->live - c->pins};
  return true;
}

bool vmp_backing_joined_host(const vmp_backing *b, uint64_t offset, uint64_t *out_host) {
  const place *p = share_at(b, backing_word(b, slot_of(b, offset)));
  if (p == NULL || backing_chunk(b, p->chunk)->sealed == 0) return false;
  uint64_t lowest = p->slot;
  for (uint32_t id = backing_chunk(b, p->chunk)->shares; id != 0; id = backing_place(b, id)->next_share) {
    if (backing_place(b, id)->slot < lowest) lowest = backing_place(b, id)->slot;
  }
  *out_host = lowest << b->granule_log2;
  return true;
}

void vmp_backing_seal(vmp_backing *b, uint64_t offset, bool seal) {
  uint32_t id = home_at(b, slot_of(b, offset));
  if (id == 0) return;
  chunk *c = backing_chunk(b, id);
  c->sealed = seal ? 1 : 0;
  backing_log_change(b, c->home, chunk_slots(c));
}

// hold keeps the chunk at a slot live, whatever becomes of its claims; let_go undoes it.
static void hold(vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  place *shared = share_at(b, word);
  if (shared != NULL) {
    share_count(b, shared);
  } else {
    backing_chunk(b, word & WORD_INDEX)->live++;
  }
}

static void let_go(vmp_backing *b, uint64_t slot) {
  uint32_t word = backing_word(b, slot);
  place *shared = share_at(b, word);
  if (shared != NULL) {
    share_uncount(b, shared, VMP_FENCE_NONE);
  } else if (--backing_chunk(b, word & WORD_INDEX)->live == 0) {
    backing_idle(b, word & WORD_INDEX);
  }
}

// ---- lost chunks ----

// lose notes that a live chunk is not mapped at home (CHUNK_LOST_UNMAPPED), or only without access.
static void lose(vmp_backing *b, uint32_t id, chunk_lost how) {
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

static int map_and_grant(vmp_backing *b, uint64_t address, uint64_t bytes, vmp_cu_handle handle, bool *mapped,
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
  hold(b, c->home);
  c->sealed = 1;  // one thread at a time
  uint64_t address = backing_slot_address(b, c->home);
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  int code = map_and_grant(b, address, bytes, handle, &mapped, &ignored, calls);
  if (code == 0) callbacks_after_map(&callbacks, address, bytes, generation);
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  if (code == 0) {
    found_again(b, c);
    c->generation = generation;
    backing_log_change(b, c->home, chunk_slots(c));
  } else if (mapped) {
    lose(b, id, CHUNK_LOST_ACCESS);
  }
  c->sealed = 0;
  let_go(b, c->home);
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

// ---- one change ----

// fresh: a chunk of one granule that takes over a slot. It was parked and complete, at home elsewhere.
typedef struct fresh {
  uint64_t slot, address, from_address, old_slot, generation;
  uint32_t chunk, place;  // place: a node for its old home
  bool mapped, granted;
} fresh;

typedef struct change_run {
  vmp_backing *b;
  uint32_t id;  // the chunk that is changed
  uint64_t offset, bytes, address, generation,
      back_generation;  // of the mapping that is, and of one that is made again
  fresh *list;
  size_t count;
  vmp_compact_report *report;
  vmp_error error;
  bool was_sealed, unmapped, undone, lost;
} change_run;

static vmp_status fail(change_run *r, vmp_call call, int code) {
  vmp_status status = vmp_driver_fail(r->b->options.driver, call, code, "the chunk at offset 0x%llx was being replaced",
                                      (unsigned long long)r->offset);
  r->error = *vmp_last_error();
  return status;
}

// copy_ranges copies what of `live` lies in [from, from + bytes) of the old chunk; `to` is where that part begins now.
static int copy_ranges(change_run *r, const vmp_live_range *live, size_t num_live, uint64_t from, uint64_t bytes,
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
static void begin(change_run *r) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  r->offset = home_offset(b, c);
  r->bytes = chunk_bytes(&b->chunks, c);
  r->address = backing_slot_address(b, c->home);
  r->generation = c->generation;
  r->back_generation = ++b->generation;
  r->was_sealed = c->sealed != 0;
  c->sealed = 1;
  hold(b, c->home);
  backing_log_change(b, c->home, chunk_slots(c));
}

// keep ends a change that wasn't made, or was undone: the chunk is as before, or lost.
static void keep(change_run *r) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  c->sealed = r->was_sealed ? 1 : 0;
  if (r->lost) lose(b, r->id, r->undone ? CHUNK_LOST_ACCESS : CHUNK_LOST_UNMAPPED);
  if (r->unmapped) c->generation = r->lost ? 0 : r->back_generation;
  backing_log_change(b, c->home, chunk_slots(c));
  let_go(b, c->home);
}

// give_up ends the chunk that has been replaced: its claims are others' now.
static void give_up(change_run *r) {
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

static int unmap_old(change_run *r, const callback_list *callbacks) {
  callbacks_before_unmap(callbacks, r->address, r->bytes, r->generation);
  r->report->calls.unmap++;
  int code = vmp_drv_mem_unmap(r->b->options.driver, r->address, (size_t)r->bytes);
  r->unmapped = code == 0;
  if (code != 0) callbacks_after_map(callbacks, r->address, r->bytes, r->generation);
  return code;
}

// map_back maps the old chunk again. r->undone: it is mapped; r->lost: not so that it could be used.
static void map_back(change_run *r, vmp_cu_handle handle, const callback_list *callbacks) {
  bool mapped = false;
  vmp_call ignored;
  int code = map_and_grant(r->b, r->address, r->bytes, handle, &mapped, &ignored, &r->report->calls);
  r->undone = mapped;
  r->lost = code != 0;
  if (code == 0) callbacks_after_map(callbacks, r->address, r->bytes, r->back_generation);
}

// ---- split ----

static size_t touched_slots(const vmp_backing *b, const chunk *c, const vmp_live_range *claims, size_t num_claims,
                            uint64_t *out_slots) {
  size_t count = 0;
  uint64_t next = c->home, end = c->home + chunk_slots(c);
  for (size_t i = 0; i < num_claims; i++) {
    uint64_t slot = slot_of(b, claims[i].offset), last = slot_of(b, claims[i].offset + claims[i].bytes - 1);
    if (slot < next) slot = next;
    for (; slot <= last && slot < end; slot++) {
      if (out_slots != NULL) out_slots[count] = slot;
      count++;
      next = slot + 1;
    }
  }
  return count;
}

// take_parked takes complete parked chunks of one granule. False: too few; then nothing has changed.
static bool take_parked(change_run *r) {
  vmp_backing *b = r->b;
  size_t taken = 0;
  uint32_t next;
  for (uint32_t id = b->chunks.parked[0].head; id != 0 && taken < r->count; id = next) {
    chunk *c = backing_chunk(b, id);
    next = c->next;
    if (c->aliases > 0 || !vmp_clock_known_complete(b->options.clock, chunk_users(c))) continue;
    fresh *f = &r->list[taken++];
    f->chunk = id;
    f->old_slot = c->home;
    f->from_address = backing_slot_address(b, c->home);
    chunk_to_transit(&b->chunks, id);
    backing_log_change(b, c->home, 1);
  }
  if (taken == r->count) return true;
  while (taken > 0) {
    fresh *f = &r->list[--taken];
    backing_log_change(b, f->old_slot, 1);
    chunk_to_parked(&b->chunks, f->chunk);
  }
  return false;
}

static size_t fresh_run(const change_run *r, size_t first) {
  size_t next = first + 1;
  while (next < r->count && r->list[next].slot == r->list[next - 1].slot + 1) next++;
  return next;
}

static int map_fresh(change_run *r, vmp_call *out_call) {
  vmp_backing *b = r->b;
  for (size_t i = 0; i < r->count; i++) {
    *out_call = VMP_CALL_mem_map;
    r->report->calls.map++;
    int code = vmp_drv_mem_map(b->options.driver, r->list[i].address, (size_t)b->granule_bytes, 0,
                               backing_chunk(b, r->list[i].chunk)->handle, 0);
    if (code != 0) return code;
    r->list[i].mapped = true;
  }
  for (size_t first = 0, next; first < r->count; first = next) {
    next = fresh_run(r, first);
    *out_call = VMP_CALL_mem_set_access;
    r->report->calls.set_access++;
    int code = vmp_drv_mem_set_access(b->options.driver, r->list[first].address,
                                      (size_t)((next - first) * b->granule_bytes), b->access, b->num_access);
    if (code != 0) return code;
    for (size_t i = first; i < next; i++) r->list[i].granted = true;
  }
  return 0;
}

// unmap_fresh takes the new mappings away again. False: not all could be; the data are in the fresh chunks, too.
static bool unmap_fresh(change_run *r) {
  bool all = true;
  for (size_t i = 0; i < r->count; i++) {
    fresh *f = &r->list[i];
    if (!f->mapped) continue;
    r->report->calls.unmap++;
    f->mapped = vmp_drv_mem_unmap(r->b->options.driver, f->address, (size_t)r->b->granule_bytes) != 0;
    if (!f->mapped) f->granted = false;
    if (f->mapped) all = false;
  }
  return all;
}

// replace makes the driver calls of a split. Without the lock.
static vmp_status replace(change_run *r, const vmp_live_range *live, size_t num_live, const callback_list *callbacks) {
  vmp_backing *b = r->b;
  vmp_context_saved saved;
  vmp_call call = VMP_CALL_memcpy_dtod;
  int code = 0;
  vmp_status status = vmp_context_enter(b->options.driver, b->options.context, &saved);
  if (status != VMP_OK) return status;
  for (size_t i = 0; i < r->count && code == 0; i++) {
    code =
        copy_ranges(r, live, num_live, r->list[i].slot << b->granule_log2, b->granule_bytes, r->list[i].from_address);
  }
  if (code == 0) {
    call = VMP_CALL_ctx_synchronize;
    code = vmp_drv_ctx_synchronize(b->options.driver);
  }
  if (code == 0) {
    call = VMP_CALL_mem_unmap;
    code = unmap_old(r, callbacks);
  }
  if (r->unmapped) {
    code = map_fresh(r, &call);
    if (code != 0) {
      status = fail(r, call, code);
      if (unmap_fresh(r)) map_back(r, backing_chunk(b, r->id)->handle, callbacks);
    }
    for (size_t i = 0; i < r->count && !r->undone && !r->lost; i++) {
      if (r->list[i].granted)
        callbacks_after_map(callbacks, r->list[i].address, b->granule_bytes, r->list[i].generation);
    }
  } else {
    status = fail(r, call, code);
  }
  (void)vmp_context_leave(b->options.driver, &saved);
  if (status != VMP_OK) vmp_restore_error(&r->error);
  return status;
}

// settle_fresh makes one fresh chunk the home of its slot.
static void settle_fresh(change_run *r, fresh *f, uint32_t live, vmp_fence fence) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, f->chunk);
  chunk_unmapped(&b->chunks, f->chunk);
  backing_retire_home(b, f->chunk, f->place, f->old_slot, VMP_FENCE_NONE);
  backing_set_words(b, f->slot, 1, WORD_HOME | f->chunk);
  chunk_mapped(&b->chunks, f->chunk, f->slot);
  c->generation = f->granted ? f->generation : 0;
  c->fence = fence;
  c->page = 0;
  c->state = CHUNK_LIVE;
  c->live = live;
  f->place = 0;
  if (!f->granted) lose(b, f->chunk, f->mapped ? CHUNK_LOST_ACCESS : CHUNK_LOST_UNMAPPED);
  backing_tell(b, VMP_BACKING_MAPPED, f->chunk, f->slot, 1, &(vmp_backing_change){.created = false});
  if (live == 0) backing_now_idle(b, f->chunk);
}

static void commit_split(change_run *r, const vmp_live_range *claims, size_t num_claims, vmp_still_claimed still,
                         void *context) {
  vmp_backing *b = r->b;
  chunk *c = backing_chunk(b, r->id);
  uint64_t first = c->home, slots = chunk_slots(c);
  vmp_fence fence = chunk_users(c);
  if (vmp_clock_known_complete(b->options.clock, fence)) fence = VMP_FENCE_NONE;
  give_up(r);
  backing_set_words(b, first, slots, 0);
  for (size_t i = 0; i < r->count; i++) {
    uint32_t live = 0;
    for (size_t k = 0; k < num_claims; k++) {
      uint64_t low = slot_of(b, claims[k].offset), high = slot_of(b, claims[k].offset + claims[k].bytes - 1);
      if (r->list[i].slot >= low && r->list[i].slot <= high && still(context, k)) live++;
    }
    settle_fresh(r, &r->list[i], live, fence);
  }
  backing_log_change(b, first, slots);
}

static void return_fresh(change_run *r) {
  for (size_t i = 0; i < r->count; i++) {
    backing_log_change(r->b, r->list[i].old_slot, 1);
    chunk_to_parked(&r->b->chunks, r->list[i].chunk);
    vmp_node_give(&r->b->places, r->list[i].place);
  }
}

static bool plan_split(change_run *r, const vmp_live_range *claims, size_t num_claims, vmp_status *out_status) {
  vmp_backing *b = r->b;
  const chunk *c = backing_chunk(b, r->id);
  r->list = vmp_mem_calloc(r->count + 1, sizeof *r->list);
  uint64_t *at = vmp_mem_calloc(r->count + 1, sizeof *at);
  bool room = r->list != NULL && at != NULL && vmp_node_pool_reserve(&b->places, (uint32_t)r->count);
  if (!room) {
    *out_status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to replace a chunk");
  } else if (!take_parked(r)) {
    room = false;
    *out_status =
        vmp_fail(VMP_ERROR_OUT_OF_MEMORY, "%zu chunks of one granule are needed, and fewer are parked", r->count);
  }
  if (room) {
    (void)touched_slots(b, c, claims, num_claims, at);
    for (size_t i = 0; i < r->count; i++) {
      r->list[i].slot = at[i];
      r->list[i].address = backing_slot_address(b, at[i]);
      r->list[i].generation = ++b->generation;
      r->list[i].place = vmp_node_take(&b->places);
    }
  }
  vmp_mem_free(at);
  return room;
}

vmp_status vmp_backing_split(vmp_backing *b, uint64_t offset, const vmp_live_range *claims, size_t num_claims,
                             const vmp_live_range *live, size_t num_live, vmp_still_claimed still, void *context,
                             vmp_compact_report *report) {
  change_run r = {.b = b, .id = home_at(b, slot_of(b, offset)), .report = report};
  if (r.id == 0 || stay_of(backing_chunk(b, r.id)) != VMP_STAY_NOT) {
    return vmp_fail(VMP_ERROR_BUSY, "the chunk at offset 0x%llx can't be replaced", (unsigned long long)offset);
  }
  const chunk *c = backing_chunk(b, r.id);
  r.count = touched_slots(b, c, claims, num_claims, NULL);
  if (chunk_slots(c) == 1) return VMP_OK;
  vmp_status status = VMP_OK;
  if (!plan_split(&r, claims, num_claims, &status)) {
    vmp_mem_free(r.list);
    return status;
  }
  begin(&r);
  callback_list callbacks;
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  status = replace(&r, live, num_live, &callbacks);
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  // Where the old mapping is gone and couldn't be tried again, since a fresh one is in its way, what is mapped of the
  // fresh chunks counts: they have the bytes, and the others of them are lost.
  if (r.unmapped && !r.undone && !r.lost) {
    commit_split(&r, claims, num_claims, still, context);
  } else {
    return_fresh(&r);
    keep(&r);
  }
  backing_wake(b);
  vmp_mem_free(r.list);
  return status;
}

// ---- join ----

// host_side: the chunk that is joined, and what became of its mapping at the slot.
typedef struct host_side {
  vmp_cu_handle handle;
  uint64_t address, generation;
  bool mapped, granted;
} host_side;

// switch_slot makes the driver calls of a join. Without the lock.
static vmp_status switch_slot(change_run *r, host_side *side, const vmp_live_range *live, size_t num_live,
                              const callback_list *callbacks) {
  vmp_backing *b = r->b;
  vmp_context_saved saved;
  vmp_call call = VMP_CALL_memcpy_dtod;
  vmp_status status = vmp_context_enter(b->options.driver, b->options.context, &saved);
  if (status != VMP_OK) return status;
  int code = copy_ranges(r, live, num_live, r->offset, r->bytes, side->address);
  if (code == 0) {
    call = VMP_CALL_ctx_synchronize;
    code = vmp_drv_ctx_synchronize(b->options.driver);
  }
  if (code == 0) {
    call = VMP_CALL_mem_unmap;
    code = unmap_old(r, callbacks);
  }
  if (r->unmapped) {
    code = map_and_grant(b, r->address, r->bytes, side->handle, &side->mapped, &call, &r->report->calls);
    side->granted = code == 0;
    if (code == 0) callbacks_after_map(callbacks, r->address, r->bytes, side->generation);
  }
  if (code != 0) {
    status = fail(r, call, code);
    if (side->mapped) {
      r->report->calls.unmap++;
      side->mapped = vmp_drv_mem_unmap(b->options.driver, r->address, (size_t)r->bytes) != 0;
    }
    if (r->unmapped && !side->mapped) map_back(r, backing_chunk(b, r->id)->handle, callbacks);
  }
  (void)vmp_context_leave(b->options.driver, &saved);
  if (status != VMP_OK) vmp_restore_error(&r->error);
  return status;
}

// host_chunk returns the chunk to join, of one granule and neither pinned nor apart; 0: it can't be one.
static uint32_t host_chunk(const vmp_backing *b, uint64_t slot, uint64_t *out_slot) {
  uint32_t word = backing_word(b, slot);
  const place *shared = share_at(b, word);
  uint32_t id = shared != NULL ? shared->chunk : word_is_home(word) ? word & WORD_INDEX : 0;
  *out_slot = slot;
  if (id == 0) return 0;
  const chunk *c = backing_chunk(b, id);
  bool joined = shared != NULL && c->sealed != 0;
  if (c->order != 0 || c->state != CHUNK_LIVE || c->pins > 0 || c->apart != 0 || c->lost != 0) return 0;
  return joined || stay_of(c) == VMP_STAY_NOT ? id : 0;
}

// seal_host keeps a host from getting claims, and from parking, until release_host.
static void seal_host(vmp_backing *b, uint64_t offset) {
  uint64_t slot;
  chunk *host = backing_chunk(b, host_chunk(b, slot_of(b, offset), &slot));
  host->sealed = 1;
  if (host->shares == 0) backing_log_change(b, host->home, 1);
  hold(b, slot_of(b, offset));
}

static void release_host(vmp_backing *b, uint32_t host_id, uint64_t offset, bool was_sealed) {
  chunk *host = backing_chunk(b, host_id);
  if (host->shares == 0 && !was_sealed) {
    host->sealed = 0;
    backing_log_change(b, host->home, 1);
  }
  let_go(b, slot_of(b, offset));
}

vmp_status vmp_backing_join(vmp_backing *b, uint64_t host_offset, uint64_t offset, const vmp_live_range *live,
                            size_t num_live, vmp_compact_report *report) {
  change_run r = {.b = b, .id = home_at(b, slot_of(b, offset)), .report = report};
  uint64_t host_slot;
  uint32_t host_id = host_chunk(b, slot_of(b, host_offset), &host_slot);
  if (r.id == 0 || host_id == 0 || host_id == r.id || stay_of(backing_chunk(b, r.id)) != VMP_STAY_NOT ||
      backing_chunk(b, r.id)->order != 0) {
    return vmp_fail(VMP_ERROR_BUSY, "the chunk at offset 0x%llx can't be joined", (unsigned long long)offset);
  }
  if (!vmp_node_pool_reserve(&b->places, 2)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to replace a chunk");
  }
  uint32_t place_id = vmp_node_take(&b->places), home_id = vmp_node_take(&b->places);
  bool was_sealed = backing_chunk(b, host_id)->sealed != 0;
  begin(&r);
  seal_host(b, host_offset);
  host_side side = {.handle = backing_chunk(b, host_id)->handle,
                    .address = backing_slot_address(b, host_slot),
                    .generation = ++b->generation};
  callback_list callbacks;
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  vmp_status status = switch_slot(&r, &side, live, num_live, &callbacks);
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  if (side.mapped) {
    const chunk *old = backing_chunk(b, r.id);
    place joined = {.slot = slot_of(b, offset),
                    .slots = 1,
                    .fence = chunk_users(old),
                    .generation = side.granted ? side.generation : 0,
                    .live = old->live - 1,  // holding isn't a claim
                    .lost = side.granted ? 0 : 1};
    give_up(&r);
    share_commit_joined(b, host_id, place_id, home_id, &joined);
  } else {
    vmp_node_give(&b->places, place_id);
    vmp_node_give(&b->places, home_id);
    keep(&r);
  }
  release_host(b, host_id, host_offset, was_sealed);
  backing_wake(b);
  return status;
}
