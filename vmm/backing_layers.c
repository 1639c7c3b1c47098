// backing_layers.c: what the layers ask of backing (backing_ops.h): cost, run, claim, release, next_change.
//
// The hit path is here: a range that is wholly mapped is claimed and released by counting on its chunks, one step per
// chunk, without the driver.
#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/backing_share.h"

// home_chunk: the chunk that lives where the whole range lies, told quickly: in the first reservation, where nearly
// everything is. NULL: it isn't that simple.
__attribute__((always_inline)) static inline chunk *home_chunk(const vmp_backing *b, uint64_t offset, uint64_t bytes) {
  const reservation *r = &b->reservations[0];
  uint64_t slot = backing_first_slot(b, offset);
  if (slot - r->first_slot >= r->slots) return NULL;
  uint32_t word = backing_word_in(b, r, slot);
  if (!word_is_home(word)) return NULL;
  chunk *c = backing_chunk(b, word & WORD_INDEX);
  return backing_end_slot(b, offset, bytes) <= c->home + chunk_slots(c) ? c : NULL;
}

static vmp_cost op_cost(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream) {
  const vmp_backing *b = self;
  vmp_cost cost = {0};
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      if (c->state == CHUNK_PARKED) cost.chunks_pinned++;
      if (!backing_is_usable(c)) cost.blocked = true;
      if (!vmp_fence_is_none(c->moved) && !vmp_fence_is_none(vmp_clock_others(b->options.clock, c->moved, stream))) {
        cost.must_wait = true;
      }
      slot = c->home + chunk_slots(c);
    } else if (share_at(b, word) != NULL && share_covers(b, share_at(b, word), offset, offset + bytes)) {
      const place *shared = share_at(b, word);
      vmp_fence moved = backing_chunk(b, shared->chunk)->moved;
      if (!vmp_fence_is_none(vmp_clock_others(b->options.clock, moved, stream))) cost.must_wait = true;
      slot = shared->slot + shared->slots;
    } else if (word_is_place(word) || !backing_has_slot(b, slot)) {
      cost.blocked = true;
      return cost;  // nothing more to learn: the place can't be used
    } else {
      uint64_t next = backing_skip_unmapped(b, slot, end);
      cost.slots_to_map += next - slot;
      slot = next;
    }
  }
  return cost;
}

// state_at tells the state at one offset and where the same record goes on to, `end` at most where that is unmapped.
static vmp_run_state state_at(const vmp_backing *b, uint64_t offset, uint64_t end, uint64_t *out_next) {
  uint64_t slot = backing_first_slot(b, offset);
  uint32_t word = backing_word(b, slot);
  if (word_is_home(word)) {
    const chunk *c = backing_chunk(b, word & WORD_INDEX);
    *out_next = (c->home + chunk_slots(c)) << b->granule_log2;
    return backing_is_usable(c) ? VMP_RUN_MAPPED : VMP_RUN_BLOCKED;
  }
  if (word_is_place(word)) {
    const place *p = backing_place(b, word & WORD_INDEX);
    if (p->state == PLACE_SHARED) return share_run(b, p, offset, out_next);
    *out_next = (p->slot + p->slots) << b->granule_log2;
    return VMP_RUN_BLOCKED;
  }
  if (!backing_has_slot(b, slot)) {
    *out_next = end;
    return VMP_RUN_BLOCKED;
  }
  *out_next = backing_skip_unmapped(b, slot, backing_end_slot(b, end - 1, 1)) << b->granule_log2;
  return VMP_RUN_UNMAPPED;
}

static vmp_run_state op_run(void *self, uint64_t offset, uint64_t end_offset, uint64_t *out_end) {
  const vmp_backing *b = self;
  uint64_t next = 0;
  vmp_run_state state = state_at(b, offset, end_offset, &next);
  while (next < end_offset) {
    uint64_t after = next;
    if (!backing_has_slot(b, backing_first_slot(b, next)) || state_at(b, next, end_offset, &after) != state) break;
    next = after;
  }
  *out_end = next < end_offset ? next : end_offset;
  return state;
}

// claim_chunks counts a claim on every chunk of a range that lies wholly in usable chunks which live there. False: it
// doesn't, and nothing has changed. (One that shows somebody else's chunk is mapped, too, but not by this.)
__attribute__((always_inline)) static inline bool claim_chunks(vmp_backing *b, uint64_t slot, uint64_t end,
                                                               vmp_fence *out_after) {
  const reservation *r = backing_reservation_of(b, slot);
  *out_after = VMP_FENCE_NONE;
  for (uint64_t at = slot; at < end;) {
    uint32_t word = r == NULL ? 0 : backing_word_in(b, r, at), id = word & WORD_INDEX;
    chunk *c = word_is_home(word) ? backing_chunk(b, id) : NULL;
    if (c == NULL || !backing_is_usable(c)) {
      backing_uncount_claims(b, slot, at);
      return false;
    }
    if (c->live == 0) chunk_to_live(&b->chunks, id);
    c->live++;
    if (!vmp_fence_is_none(c->moved)) *out_after = vmp_fence_merge(*out_after, backing_moved_fence(b, c));
    at = c->home + chunk_slots(c);
  }
  return true;
}

// claim_otherwise is for what claim_chunks doesn't do. MAY UNLOCK.
__attribute__((noinline)) static vmp_status claim_otherwise(vmp_backing *b, uint64_t offset, uint64_t bytes,
                                                            vmp_stream_index stream, vmp_effort effort, bool exact,
                                                            vmp_fence *out_after) {
  vmp_gather_report ignored = {0};
  return backing_claim(b, offset, bytes, stream, effort, exact, &ignored, out_after);
}

static vmp_status op_claim(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_effort effort,
                           vmp_fence *out_after) {
  vmp_backing *b = self;
  if (claim_chunks(b, backing_first_slot(b, offset), backing_end_slot(b, offset, bytes), out_after)) return VMP_OK;
  return claim_otherwise(b, offset, bytes, stream, effort, false, out_after);
}

static vmp_status op_claim_exact(void *self, uint64_t offset, uint64_t bytes, vmp_stream_index stream,
                                 vmp_effort effort, vmp_fence *out_after) {
  vmp_backing *b = self;
  if (claim_chunks(b, backing_first_slot(b, offset), backing_end_slot(b, offset, bytes), out_after)) return VMP_OK;
  return claim_otherwise(b, offset, bytes, stream, effort, true, out_after);
}

// was_live: the chunk may be claimed once more, and nobody has to be waited for because of it.
static inline bool was_live(const chunk *c) {
  return c->state == CHUNK_LIVE && (c->sealed | c->lost) == 0 && vmp_fence_is_none(c->moved);
}

// claim_range is claim_again for several chunks.
__attribute__((noinline)) static bool claim_range(vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  const reservation *r = backing_reservation_of(b, slot);
  for (uint64_t at = slot; at < end;) {
    uint32_t word = r == NULL ? 0 : backing_word_in(b, r, at);
    chunk *c = word_is_home(word) ? backing_chunk(b, word & WORD_INDEX) : NULL;
    if (c == NULL || !was_live(c)) {
      backing_uncount_claims(b, slot, at);
      return false;
    }
    c->live++;
    at = c->home + chunk_slots(c);
  }
  return true;
}

static bool op_claim_again(void *self, uint64_t offset, uint64_t bytes) {
  vmp_backing *b = self;
  chunk *c = home_chunk(b, offset, bytes);
  if (c == NULL) return claim_range(b, offset, bytes);
  if (!was_live(c)) return false;
  c->live++;
  return true;
}

// Looks at words, of which a cache line tells of many chunks, and at no chunk. Where the ends overlap, as they do in a
// range that fits well, a word is looked at once.
static bool op_pins(void *self, uint64_t from, uint64_t to, uint64_t bytes, vmp_end_pins *out) {
  const vmp_backing *b = self;
  uint64_t slot = backing_first_slot(b, from), end = backing_end_slot(b, from, to - from), next;
  uint64_t low_end = backing_end_slot(b, from, bytes), high_slot = backing_first_slot(b, to - bytes);
  const reservation *r = backing_reservation_of(b, slot);
  uint32_t low = 0, high = 0;  // the chunks that were counted last
  *out = (vmp_end_pins){0, 0};
  for (; slot < end; slot = next < low_end || next > high_slot ? next : high_slot) {
    uint32_t word = r == NULL ? 0 : backing_step_in(b, r, slot, &next), id = word & WORD_INDEX;
    if (!word_is_home(word)) return false;
    if (!chunk_is_parked(&b->chunks, id)) continue;
    if (slot < low_end && id != low) {
      out->low++;
      low = id;
    }
    if (next > high_slot && id != high) {
      out->high++;
      high = id;
    }
  }
  return true;
}

static vmp_status op_claim_shared(void *self, uint64_t offset, uint64_t bytes, const vmp_shared_part *parts,
                                  size_t num_parts, vmp_stream_index stream, vmp_effort effort, vmp_fence *out_after) {
  return vmp_backing_claim_shared(self, offset, bytes, parts, num_parts, stream, effort, out_after);
}

static uint64_t op_room(void *self) {
  const vmp_backing *b = self;
  if (!b->options.may_create) return 0;
  uint64_t room = backing_min(chunk_room(&b->chunks, b->chunks.hard_limit_bytes),
                              chunk_room(&b->chunks, b->chunks.soft_limit_bytes));
  uint64_t end;  // of what could be held in all
  if (!vmp_add(b->device_left, b->device_left_held, &end)) return room;
  return backing_min(room, end > b->chunks.held_bytes ? end - b->chunks.held_bytes : 0);
}

// note_release: somebody who may still touch bytes of the chunk as `fence` says has released them. Of the same streams
// a later fence says it all; what others have finished need not be kept.
static inline void note_release(const vmp_backing *b, chunk *c, vmp_fence fence) {
  if ((c->fence.streams & ~fence.streams) != 0 && !vmp_clock_known_complete(b->options.clock, c->fence)) {
    c->fence = vmp_fence_merge(c->fence, fence);
  } else {
    c->fence.streams = fence.streams;
    if (fence.sequence > c->fence.sequence) c->fence.sequence = fence.sequence;
  }
}

__attribute__((noinline)) static bool release_range(vmp_backing *b, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  bool all_mapped = true;  // a live chunk stays where it is until somebody takes it
  const reservation *r = backing_reservation_of(b, slot);
  while (slot < end) {
    uint32_t word = backing_word_in(b, r, slot), id = word & WORD_INDEX;
    if (word_is_place(word)) {
      place *shared = backing_place(b, id);
      slot = shared->slot + shared->slots;
      share_uncount(b, shared, fence);
      all_mapped = false;  // this place of it may be gone
      continue;
    }
    chunk *c = backing_chunk(b, id);
    note_release(b, c, fence);
    uint64_t next = c->home + chunk_slots(c);  // a lost one has no home then
    if (--c->live == 0) backing_idle(b, id);
    slot = next;
  }
  return all_mapped;
}

static bool op_release(void *self, uint64_t offset, uint64_t bytes, vmp_fence fence) {
  vmp_backing *b = self;
  chunk *c = home_chunk(b, offset, bytes);
  if (c == NULL || c->live < 2 || c->fence.streams != fence.streams) return release_range(b, offset, bytes, fence);
  if (fence.sequence > c->fence.sequence) c->fence.sequence = fence.sequence;
  c->live--;
  return true;
}

static bool op_next_change(void *self, uint64_t *cursor, uint64_t *out_offset, uint64_t *out_bytes) {
  vmp_backing *b = self;
  if (*cursor == b->change_serial) return false;
  if (b->change_serial - *cursor > CHANGE_LOG) {
    b->change_seen = *cursor = b->change_serial;
    *out_offset = 0;
    *out_bytes = UINT64_MAX;
    return true;
  }
  change c = b->changes[*cursor % CHANGE_LOG];
  *out_offset = c.offset;
  *out_bytes = c.bytes;
  if (++*cursor > b->change_seen) b->change_seen = *cursor;
  return true;
}

static bool op_known_complete(void *self, vmp_fence fence) {
  const vmp_backing *b = self;
  return vmp_clock_known_complete(b->options.clock, fence);
}

static vmp_fence op_others(void *self, vmp_fence fence, vmp_stream_index stream) {
  const vmp_backing *b = self;
  return vmp_clock_others(b->options.clock, fence, stream);
}

vmp_backing_ops vmp_backing_get_ops(vmp_backing *b) {
  return (vmp_backing_ops){
      .self = b,
      .granule_bytes = b->granule_bytes,
      .glance = {.changes = &b->change_serial,
                 .parked_orders = &b->chunks.parked_orders,
                 .num_moved = &b->chunks.num_moved},
      .cost = op_cost,
      .run = op_run,
      .claim = op_claim,
      .pins = op_pins,
      .claim_again = op_claim_again,
      .release = op_release,
      .next_change = op_next_change,
      .known_complete = op_known_complete,
      .others = op_others,
      .claim_shared = op_claim_shared,
      .room = op_room,
  };
}

vmp_backing_ops vmp_backing_get_exact_ops(vmp_backing *b) {
  vmp_backing_ops ops = vmp_backing_get_ops(b);
  ops.claim = op_claim_exact;
  return ops;
}
