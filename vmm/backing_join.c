// backing_join.c: a slot comes to show another slot's chunk. See backing_compact.h.
#include "vmm/backing_change.h"
#include "vmm/driver_error.h"

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
  int code = change_copy(r, live, num_live, r->offset, r->bytes, side->address);
  if (code == 0) {
    call = VMP_CALL_ctx_synchronize;
    code = vmp_drv_ctx_synchronize(b->options.driver);
  }
  if (code == 0) {
    call = VMP_CALL_mem_unmap;
    code = change_unmap_old(r, callbacks);
  }
  if (r->unmapped) {
    code = change_map_and_grant(b, r->address, r->bytes, side->handle, &side->mapped, &call, &r->report->calls);
    side->granted = code == 0;
    if (code == 0) callbacks_after_map(callbacks, r->address, r->bytes, side->generation);
  }
  if (code != 0) {
    status = change_fail(r, call, code);
    if (side->mapped) {
      r->report->calls.unmap++;
      side->mapped = vmp_drv_mem_unmap(b->options.driver, r->address, (size_t)r->bytes) != 0;
    }
    if (r->unmapped && !side->mapped) change_map_back(r, backing_chunk(b, r->id)->handle, callbacks);
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
  return joined || change_stay(c) == VMP_STAY_NOT ? id : 0;
}

// seal_host keeps a host from getting claims, and from parking, until release_host.
static void seal_host(vmp_backing *b, uint64_t offset) {
  uint64_t slot;
  chunk *host = backing_chunk(b, host_chunk(b, change_slot(b, offset), &slot));
  host->sealed = 1;
  if (host->shares == 0) backing_log_change(b, host->home, 1);
  change_hold(b, change_slot(b, offset));
}

static void release_host(vmp_backing *b, uint32_t host_id, uint64_t offset, bool was_sealed) {
  chunk *host = backing_chunk(b, host_id);
  if (host->shares == 0 && !was_sealed) {
    host->sealed = 0;
    backing_log_change(b, host->home, 1);
  }
  change_let_go(b, change_slot(b, offset));
}

vmp_status vmp_backing_join(vmp_backing *b, uint64_t host_offset, uint64_t offset, const vmp_live_range *live,
                            size_t num_live, vmp_compact_report *report) {
  change_run r = {.b = b, .id = change_home_at(b, change_slot(b, offset)), .report = report};
  uint64_t host_slot;
  uint32_t host_id = host_chunk(b, change_slot(b, host_offset), &host_slot);
  if (r.id == 0 || host_id == 0 || host_id == r.id || change_stay(backing_chunk(b, r.id)) != VMP_STAY_NOT ||
      backing_chunk(b, r.id)->order != 0) {
    return vmp_fail(VMP_ERROR_BUSY, "the chunk at offset 0x%llx can't be joined", (unsigned long long)offset);
  }
  if (!vmp_node_pool_reserve(&b->places, 2)) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to replace a chunk");
  }
  uint32_t place_id = vmp_node_take(&b->places), home_id = vmp_node_take(&b->places);
  bool was_sealed = backing_chunk(b, host_id)->sealed != 0;
  change_begin(&r);
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
    place joined = {.slot = change_slot(b, offset),
                    .slots = 1,
                    .fence = chunk_users(old),
                    .generation = side.granted ? side.generation : 0,
                    .live = old->live - 1,  // holding isn't a claim
                    .lost = side.granted ? 0 : 1};
    change_give_up(&r);
    share_commit_joined(b, host_id, place_id, home_id, &joined);
  } else {
    vmp_node_give(&b->places, place_id);
    vmp_node_give(&b->places, home_id);
    change_keep(&r);
  }
  release_host(b, host_id, host_offset, was_sealed);
  backing_wake(b);
  return status;
}
