// backing_split.c: a big chunk becomes chunks of one granule, for the slots that claims touch. See backing_compact.h.
#include "vmm/backing_change.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

static size_t touched_slots(const vmp_backing *b, const chunk *c, const vmp_live_range *claims, size_t num_claims,
                            uint64_t *out_slots) {
  size_t count = 0;
  uint64_t next = c->home, end = c->home + chunk_slots(c);
  for (size_t i = 0; i < num_claims; i++) {
    uint64_t slot = change_slot(b, claims[i].offset), last = change_slot(b, claims[i].offset + claims[i].bytes - 1);
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
        change_copy(r, live, num_live, r->list[i].slot << b->granule_log2, b->granule_bytes, r->list[i].from_address);
  }
  if (code == 0) {
    call = VMP_CALL_ctx_synchronize;
    code = vmp_drv_ctx_synchronize(b->options.driver);
  }
  if (code == 0) {
    call = VMP_CALL_mem_unmap;
    code = change_unmap_old(r, callbacks);
  }
  if (r->unmapped) {
    code = map_fresh(r, &call);
    if (code != 0) {
      status = change_fail(r, call, code);
      if (unmap_fresh(r)) change_map_back(r, backing_chunk(b, r->id)->handle, callbacks);
    }
    for (size_t i = 0; i < r->count && !r->undone && !r->lost; i++) {
      if (r->list[i].granted)
        callbacks_after_map(callbacks, r->list[i].address, b->granule_bytes, r->list[i].generation);
    }
  } else {
    status = change_fail(r, call, code);
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
  if (!f->granted) change_lose(b, f->chunk, f->mapped ? CHUNK_LOST_ACCESS : CHUNK_LOST_UNMAPPED);
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
  change_give_up(r);
  backing_set_words(b, first, slots, 0);
  for (size_t i = 0; i < r->count; i++) {
    uint32_t live = 0;
    for (size_t k = 0; k < num_claims; k++) {
      uint64_t low = change_slot(b, claims[k].offset), high = change_slot(b, claims[k].offset + claims[k].bytes - 1);
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
  bool room = r->list != NULL && at != NULL && vmp_node_pool_reserve(&b->places, (uint32_t)r->count) &&
              backing_prepare_details(b, c->home, chunk_slots(c));
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
  change_run r = {.b = b, .id = change_home_at(b, change_slot(b, offset)), .report = report};
  if (r.id == 0 || change_stay(backing_chunk(b, r.id)) != VMP_STAY_NOT) {
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
  change_begin(&r);
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
    change_keep(&r);
  }
  backing_wake(b);
  vmp_mem_free(r.list);
  return status;
}
