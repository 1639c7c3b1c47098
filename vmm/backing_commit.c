// backing_commit.c: the driver calls of a plan, their undoing, and the commit.
//
//     lock    plan_make: chunks and slots in transit
//     unlock  create every new chunk; map every piece; one set-access per run of neighbouring pieces
//             on a failure: one unmap per run of what was mapped, release what was created
//     lock    commit: new homes; old homes of taken chunks become retiring places
//             or, after a failure: everything as before the plan
//
// What can't be undone is kept and owned: a chunk whose release fails is spare, a mapping that can't be removed is a
// broken place (of a taken chunk) or a broken chunk (of a new one), retried by every poll.
#include <string.h>

#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"

// A call that answers not-ready has met other threads' queued work: it is tried again a bounded number of times.
#define NOT_READY_TRIES 8

static vmp_status fail(vmp_backing *b, vmp_call call, int code, const piece *at) {
  return vmp_driver_fail(b->options.driver, call, code, "%llu bytes were to be mapped at slot %llu",
                         (unsigned long long)(b->granule_bytes << at->order), (unsigned long long)at->slot);
}

static int create_chunk(vmp_backing *b, piece *at) {
  vmp_cu_mem_prop prop;
  memset(&prop, 0, sizeof prop);
  prop.type = VMP_CU_ALLOCATION_PINNED;
  prop.location = (vmp_cu_location){VMP_CU_LOCATION_DEVICE, b->options.device};
  vmp_cu_handle handle = 0;
  int code = vmp_drv_mem_create(b->options.driver, &handle, (size_t)(b->granule_bytes << at->order), &prop, 0);
  // The record is in transit: only this thread looks at its handle.
  if (code == 0) backing_chunk(b, at->chunk)->handle = handle;
  at->made = code == 0;
  return code;
}

static vmp_status make_and_map(vmp_backing *b, plan *p, uint64_t *out_created) {
  uint64_t created = 0;
  for (size_t i = 0; i < p->num_pieces; i++) {
    piece *at = &p->pieces[i];
    if (at->source != PIECE_CREATE) continue;
    int code = create_chunk(b, at);
    if (code != 0) {
      if (code == VMP_CU_OUT_OF_MEMORY) *out_created = created;
      return fail(b, VMP_CALL_mem_create, code, at);
    }
    created += b->granule_bytes << at->order;
  }
  for (size_t i = 0; i < p->num_pieces; i++) {
    piece *at = &p->pieces[i];
    int code = VMP_CU_NOT_READY;
    for (int tries = 0; code == VMP_CU_NOT_READY && tries < NOT_READY_TRIES; tries++) {
      p->calls.map++;
      code = vmp_drv_mem_map(b->options.driver, at->address, (size_t)(b->granule_bytes << at->order), 0,
                             backing_chunk(b, at->chunk)->handle, 0);
    }
    if (code != 0) return fail(b, VMP_CALL_mem_map, code, at);
    at->mapped = true;
  }
  return VMP_OK;
}

// run_end returns the index after the last piece that continues the run of pieces beginning at `first`.
static size_t run_end(const plan *p, size_t first) {
  size_t next = first + 1;
  while (next < p->num_pieces && p->pieces[next].mapped &&
         p->pieces[next].slot == p->pieces[next - 1].slot + (UINT64_C(1) << p->pieces[next - 1].order)) {
    next++;
  }
  return next;
}

static uint64_t run_bytes(const vmp_backing *b, const plan *p, size_t first, size_t next) {
  const piece *last = &p->pieces[next - 1];
  return (last->slot + (UINT64_C(1) << last->order) - p->pieces[first].slot) << b->granule_log2;
}

static vmp_status grant_access(vmp_backing *b, plan *p) {
  for (size_t first = 0, next; first < p->num_pieces; first = next) {
    next = run_end(p, first);
    int code = VMP_CU_NOT_READY;
    for (int tries = 0; code == VMP_CU_NOT_READY && tries < NOT_READY_TRIES; tries++) {
      p->calls.set_access++;
      code = vmp_drv_mem_set_access(b->options.driver, p->pieces[first].address, (size_t)run_bytes(b, p, first, next),
                                    b->access, b->num_access);
    }
    if (code != 0) return fail(b, VMP_CALL_mem_set_access, code, &p->pieces[first]);
  }
  return VMP_OK;
}

// undo_calls removes what the failed plan has mapped and created, as far as the driver lets it; what stays is still
// flagged in its piece.
static void undo_calls(vmp_backing *b, plan *p) {
  for (size_t first = 0, next; first < p->num_pieces; first = next) {
    next = first + 1;
    if (!p->pieces[first].mapped) continue;
    next = run_end(p, first);
    p->calls.unmap++;
    int code = vmp_drv_mem_unmap(b->options.driver, p->pieces[first].address, (size_t)run_bytes(b, p, first, next));
    for (size_t i = first; code == 0 && i < next; i++) p->pieces[i].mapped = false;
  }
  for (size_t i = 0; i < p->num_pieces; i++) {
    piece *at = &p->pieces[i];
    if (!at->made || at->mapped) continue;
    p->calls.release++;
    if (vmp_drv_mem_release(b->options.driver, backing_chunk(b, at->chunk)->handle) == 0) at->made = false;
  }
}

// settle_broken keeps a piece whose mapping could not be removed.
static void settle_broken(vmp_backing *b, piece *at) {
  uint64_t slots = UINT64_C(1) << at->order;
  if (at->source == PIECE_SHARE) {
    share_break(b, at->place);
  } else if (at->source == PIECE_TAKE || at->source == PIECE_MOVE) {
    place *broken = backing_place(b, at->place);
    broken->state = PLACE_BROKEN;
    place_list_add(b, &b->broken, at->place);
    backing_chunk(b, at->chunk)->aliases++;
    if (at->source == PIECE_TAKE) {
      chunk_back_to_parked(&b->chunks, at->chunk);
      backing_log_change(b, at->old_slot, slots);
    }
    backing_tell(b, VMP_BACKING_RETIRED, at->chunk, at->slot, slots, NULL);
  } else {
    vmp_node_give(&b->places, at->place);
    backing_set_words(b, at->slot, slots, WORD_HOME | at->chunk);
    chunk_mapped(&b->chunks, at->chunk, at->slot);
    backing_chunk(b, at->chunk)->generation = 0;
    if (at->source == PIECE_CREATE) chunk_count_created(&b->chunks, at->chunk);
    chunk_to_broken(&b->chunks, at->chunk);
    vmp_backing_change mapped = {.created = at->source == PIECE_CREATE};
    backing_tell(b, VMP_BACKING_MAPPED, at->chunk, at->slot, slots, &mapped);
  }
}

static void roll_back(vmp_backing *b, plan *p) {
  size_t kept = 0;
  for (size_t i = 0; i < p->num_pieces; i++) {
    piece *at = &p->pieces[i];
    if (at->mapped) {
      settle_broken(b, at);
    } else if (at->made) {  // could not be released: ours, mapped nowhere
      backing_set_words(b, at->slot, UINT64_C(1) << at->order, 0);
      vmp_node_give(&b->places, at->place);
      chunk_count_created(&b->chunks, at->chunk);
      chunk_to_spare(&b->chunks, at->chunk);
    } else {
      p->pieces[kept++] = *at;
    }
  }
  p->num_pieces = kept;
  plan_undo_records(b, p);
}

void backing_retire_home(vmp_backing *b, uint32_t chunk_id, uint32_t place_id, uint64_t old_slot, vmp_fence fence) {
  chunk *c = backing_chunk(b, chunk_id);
  place *old = backing_place(b, place_id);
  *old = (place){.slot = old_slot,
                 .slots = chunk_slots(c),
                 .chunk = chunk_id,
                 .state = PLACE_RETIRING,
                 .fence = fence,
                 .generation = c->generation};
  backing_set_words(b, old_slot, chunk_slots(c), WORD_PLACE | place_id);
  place_list_add(b, &b->retiring, place_id);
  c->aliases++;
  b->slots_retired += chunk_slots(c);
  backing_tell(b, VMP_BACKING_RETIRED, chunk_id, old_slot, chunk_slots(c), &(vmp_backing_change){.fence = fence});
}

// retire_old_home retires a taken chunk's old slots: the old mapping goes when its users are done.
static void retire_old_home(vmp_backing *b, const piece *at, vmp_fence fence) {
  b->takes++;
  vmp_backing_change taken = {.from = backing_slot_address(b, at->old_slot)};
  backing_tell(b, VMP_BACKING_TAKEN, at->chunk, at->slot, UINT64_C(1) << at->order, &taken);
  backing_retire_home(b, at->chunk, at->place, at->old_slot, fence);
}

// commit_move gives a live chunk its new home. Who used it at the old one may go on using the memory: what is claimed
// of it after the block is told of them.
static void commit_move(vmp_backing *b, const piece *at, vmp_fence users) {
  chunk *c = backing_chunk(b, at->chunk);
  uint64_t slots = UINT64_C(1) << at->order;
  users = vmp_fence_merge(c->moved, users);
  if (vmp_clock_known_complete(b->options.clock, users)) users = VMP_FENCE_NONE;
  chunk_set_moved(&b->chunks, c, users);
  chunk_unmapped(&b->chunks, at->chunk);
  vmp_backing_change taken = {.from = backing_slot_address(b, at->old_slot)};
  backing_tell(b, VMP_BACKING_TAKEN, at->chunk, at->slot, slots, &taken);
  backing_retire_home(b, at->chunk, at->place, at->old_slot, users);
  backing_set_words(b, at->slot, slots, WORD_HOME | at->chunk);
  chunk_mapped(&b->chunks, at->chunk, at->slot);
  c->generation = at->generation;
  backing_log_change(b, at->old_slot, slots);
  backing_log_change(b, at->slot, slots);
}

static void commit(vmp_backing *b, plan *p) {
  for (size_t i = 0; i < p->num_pieces; i++) {
    piece *at = &p->pieces[i];
    if (at->source == PIECE_MOVE) {
      commit_move(b, at, p->users);
      continue;
    }
    chunk *c = backing_chunk(b, at->chunk);
    uint64_t slots = UINT64_C(1) << at->order;
    if (at->source == PIECE_SHARE) {
      share_commit(b, at->place, at->generation);
      continue;
    }
    if (at->source == PIECE_TAKE) {
      vmp_fence users = chunk_users(c);
      if (vmp_clock_known_complete(b->options.clock, users)) users = VMP_FENCE_NONE;
      c->fence = users;
      chunk_set_moved(&b->chunks, c, users);
      chunk_unmapped(&b->chunks, at->chunk);
      retire_old_home(b, at, users);
    } else {
      vmp_node_give(&b->places, at->place);
      c->fence = VMP_FENCE_NONE;
      chunk_set_moved(&b->chunks, c, VMP_FENCE_NONE);
      if (at->source == PIECE_CREATE) chunk_count_created(&b->chunks, at->chunk);
      vmp_backing_change mapped = {.created = at->source == PIECE_CREATE};
      backing_tell(b, VMP_BACKING_MAPPED, at->chunk, at->slot, slots, &mapped);
    }
    backing_set_words(b, at->slot, slots, WORD_HOME | at->chunk);
    chunk_mapped(&b->chunks, at->chunk, at->slot);
    c->generation = at->generation;
    c->page = p->pages;
    chunk_to_parked(&b->chunks, at->chunk);
    backing_log_change(b, at->slot, slots);
  }
}

static void announce(const vmp_backing *b, const plan *p, const callback_list *callbacks) {
  for (size_t i = 0; callbacks->count > 0 && i < p->num_pieces; i++) {
    const piece *at = &p->pieces[i];
    callbacks_after_map(callbacks, at->address, b->granule_bytes << at->order, at->generation);
  }
}

vmp_status plan_execute(vmp_backing *b, plan *p, uint64_t *out_created) {
  vmp_error first;
  callback_list callbacks;
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  vmp_status status = make_and_map(b, p, out_created);
  if (status == VMP_OK) status = grant_access(b, p);
  if (status != VMP_OK) {
    first = *vmp_last_error();
    undo_calls(b, p);
    vmp_restore_error(&first);
  } else {
    announce(b, p, &callbacks);
  }
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  if (status == VMP_OK) {
    commit(b, p);
  } else {
    roll_back(b, p);
  }
  backing_wake(b);
  return status;
}
