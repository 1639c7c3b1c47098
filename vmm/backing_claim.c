// backing_claim.c: claims that aren't a matter of counting: ranges with holes, which are filled by plans; and what a
// plan may do, by limits, the device and the effort.
//
//     range     | mapped | hole | mapped | hole |
//
//     1. count a claim on what is mapped: nobody takes it for the holes
//     2. plan, execute (the lock is away), until there is no hole
//     3. count a claim on what filled the holes; or undo 1
#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/backing_share.h"
#include "vmm/memory.h"

vmp_fence backing_moved_fence(vmp_backing *b, chunk *c) {
  if (!vmp_fence_is_none(c->moved) && vmp_clock_known_complete(b->options.clock, c->moved)) {
    chunk_set_moved(&b->chunks, c, VMP_FENCE_NONE);
  }
  return c->moved;
}

// claim_chunk adds one claim to a usable chunk and returns what its user must be ordered behind.
static inline vmp_fence claim_chunk(vmp_backing *b, uint32_t id, chunk *c) {
  if (c->live == 0) chunk_to_live(&b->chunks, id);
  c->live++;
  return backing_moved_fence(b, c);
}

// count_claims adds one claim to every chunk of a mapped range and returns what its user must be ordered behind.
static vmp_fence count_claims(vmp_backing *b, uint64_t slot, uint64_t end) {
  vmp_fence after = VMP_FENCE_NONE;
  while (slot < end) {
    uint32_t word = backing_word(b, slot), id = word & WORD_INDEX;
    if (word_is_place(word)) {
      place *shared = backing_place(b, id);
      share_count(b, shared);
      after = vmp_fence_merge(after, backing_chunk(b, shared->chunk)->moved);
      slot = shared->slot + shared->slots;
      continue;
    }
    chunk *c = backing_chunk(b, id);
    after = vmp_fence_merge(after, claim_chunk(b, id, c));
    slot = c->home + chunk_slots(c);
  }
  return after;
}

// The holes of a range when its claim began. Everything else of it was mapped then and has been counted: chunks that
// come to lie in the holes, by this claim or by another thread that mapped ahead, have not.
#define INLINE_HOLES 8u
typedef struct slot_run {
  uint64_t slot, slots;
} slot_run;

typedef struct hole_list {
  slot_run few[INLINE_HOLES];
  slot_run *many;  // instead of `few` when there are more
  size_t count;
} hole_list;

static const slot_run *holes_of(const hole_list *holes) { return holes->many != NULL ? holes->many : holes->few; }

static size_t count_holes(const vmp_backing *b, uint64_t slot, uint64_t end, slot_run *out, size_t capacity) {
  size_t count = 0;
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      slot = c->home + chunk_slots(c);
      continue;
    }
    if (word_is_place(word)) {
      slot = backing_place(b, word & WORD_INDEX)->slot + backing_place(b, word & WORD_INDEX)->slots;
      continue;
    }
    uint64_t next = backing_skip_unmapped(b, slot, end);
    if (count < capacity) out[count] = (slot_run){slot, next - slot};
    count++;
    slot = next;
  }
  return count;
}

static bool find_holes(const vmp_backing *b, uint64_t slot, uint64_t end, hole_list *out) {
  out->many = NULL;
  out->count = count_holes(b, slot, end, out->few, INLINE_HOLES);
  if (out->count <= INLINE_HOLES) return true;
  out->many = vmp_mem_calloc(out->count, sizeof *out->many);
  if (out->many == NULL) return false;
  (void)count_holes(b, slot, end, out->many, out->count);
  return true;
}

void backing_uncount_claims(vmp_backing *b, uint64_t slot, uint64_t end) {
  while (slot < end) {
    uint32_t word = backing_word(b, slot), id = word & WORD_INDEX;
    if (word_is_place(word)) {
      place *shared = backing_place(b, id);
      slot = shared->slot + shared->slots;
      share_uncount(b, shared, VMP_FENCE_NONE);
      continue;
    }
    chunk *c = backing_chunk(b, id);
    if (--c->live == 0) chunk_back_to_parked(&b->chunks, id);
    slot = c->home + chunk_slots(c);
  }
}

// count_mapped counts (or, to undo it, uncounts) the claim on what was mapped when it began.
static vmp_fence count_mapped(vmp_backing *b, uint64_t slot, uint64_t end, const hole_list *holes, bool undo) {
  vmp_fence after = VMP_FENCE_NONE;
  for (size_t i = 0; i <= holes->count; i++) {
    uint64_t part_end = i < holes->count ? holes_of(holes)[i].slot : end;
    if (undo) {
      backing_uncount_claims(b, slot, part_end);
    } else {
      after = vmp_fence_merge(after, count_claims(b, slot, part_end));
    }
    if (i < holes->count) slot = part_end + holes_of(holes)[i].slots;
  }
  return after;
}

typedef enum range_state { RANGE_MAPPED, RANGE_HOLES, RANGE_BLOCKED } range_state;

static range_state look(const vmp_backing *b, uint64_t offset, uint64_t bytes) {
  range_state state = RANGE_MAPPED;
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      if (!backing_is_usable(c)) return RANGE_BLOCKED;
      slot = c->home + chunk_slots(c);
    } else if (share_at(b, word) != NULL && share_covers(b, share_at(b, word), offset, offset + bytes)) {
      slot = share_at(b, word)->slot + share_at(b, word)->slots;
    } else if (word_is_place(word) || !backing_has_slot(b, slot)) {
      return RANGE_BLOCKED;
    } else {
      state = RANGE_HOLES;
      slot = backing_skip_unmapped(b, slot, end);
    }
  }
  return state;
}

// How large a new chunk may be when only `room` bytes can still be created: the closer the end, the smaller, so that
// the last of the memory is not tied up in chunks that a few small blocks pin.
static unsigned order_for_room(const vmp_backing *b, uint64_t room_bytes) {
  uint64_t slots = (room_bytes >> b->granule_log2) / 16;
  unsigned order = slots <= 1 ? 0 : vmp_log2(slots);
  return order < b->chunk_max_order ? order : b->chunk_max_order;
}

// How far a growth is rounded up. Steps of one chunk shrink with the room (a sixty-fourth of it: measured over recorded
// traces, that costs 4 % more driver time than none and saves 1 % of the smallest device); a larger step is the user's
// wish and holds until an eighth of the room.
static uint64_t growth_for_room(const vmp_backing *b, uint64_t room_bytes) {
  uint64_t growth = b->options.growth_bytes >> b->granule_log2, room = room_bytes >> b->granule_log2;
  if (growth > UINT64_C(1) << b->chunk_max_order) return room / 8 >= growth ? growth : 0;
  return backing_min(growth, room / 64);
}

// device_room asks the device how much it has left. Unknown reads as plenty: a refused create will tell.
static uint64_t device_room(vmp_backing *b) {
  if (b->options.context == NULL) return UINT64_MAX;
  size_t free_bytes = 0, total = 0;
  vmp_context_saved saved;
  if (vmp_context_enter(b->options.driver, b->options.context, &saved) != VMP_OK) return UINT64_MAX;
  int code = vmp_drv_mem_get_info(b->options.driver, &free_bytes, &total);
  (void)vmp_context_leave(b->options.driver, &saved);
  return code == 0 ? free_bytes : UINT64_MAX;
}

plan_rules backing_first_rules(vmp_backing *b, vmp_stream_index stream, vmp_effort effort) {
  plan_rules rules = {.stream = stream, .effort = effort, .wait_allowed = !b->options.complete_only};
  if (effort == VMP_EFFORT_READY || effort == VMP_EFFORT_GROW) rules.wait_allowed = false;
  if (effort == VMP_EFFORT_TAKE) {
    rules.wait_allowed = backing_may_move_pending(b);
    return rules;
  }
  if (!b->options.may_create) return rules;
  b->transits++;
  backing_unlock(b);
  uint64_t device = device_room(b);
  backing_lock(b);
  b->transits--;
  backing_wake(b);
  b->device_left = device;
  b->device_left_held = b->chunks.held_bytes;
  rules.create_bytes = backing_min(chunk_room(&b->chunks, b->chunks.hard_limit_bytes), device);
  rules.soft_bytes = backing_min(rules.create_bytes, chunk_room(&b->chunks, b->chunks.soft_limit_bytes));
  double parked_share =
      b->chunks.mapped_bytes == 0 ? 0 : (double)b->chunks.parked_bytes / (double)b->chunks.mapped_bytes;
  if (parked_share > b->options.park_limit || b->prefer_parked) rules.soft_bytes = 0;
  if (effort == VMP_EFFORT_READY) rules.create_bytes = rules.soft_bytes;
  rules.max_order = order_for_room(b, rules.soft_bytes > 0 ? rules.soft_bytes : rules.create_bytes);
  rules.growth_slots = growth_for_room(b, rules.soft_bytes);
  return rules;
}

bool backing_next_rules(plan_rules *rules, vmp_status status, uint64_t created) {
  bool had_surplus = rules->growth_slots > 1;
  rules->growth_slots = 0;  // the surplus was optional
  if (created != UINT64_MAX) {
    // A create was refused: what could be made before it is what there is.
    if (created >= rules->create_bytes && !had_surplus) return false;
    rules->create_bytes = backing_min(rules->create_bytes, created);
    rules->soft_bytes = backing_min(rules->soft_bytes, created);
    return true;
  }
  return had_surplus && (status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_DRIVER);
}

// tally_plan adds what a plan did.
static void tally_plan(const vmp_backing *b, const plan *p, bool done, vmp_gather_report *tally) {
  tally->calls.map += p->calls.map;
  tally->calls.set_access += p->calls.set_access;
  tally->calls.unmap += p->calls.unmap;
  tally->calls.release += p->calls.release;
  for (size_t i = 0; done && i < p->num_pieces; i++) {
    if (p->pieces[i].source == PIECE_CREATE || p->pieces[i].source == PIECE_SHARE) continue;
    tally->chunks++;
    tally->bytes += b->granule_bytes << p->pieces[i].order;
  }
}

// fill_holes maps every hole of the range, whose mapped part is pinned. MAY UNLOCK.
static vmp_status fill_holes(vmp_backing *b, uint64_t offset, uint64_t bytes, vmp_stream_index stream,
                             vmp_effort effort, bool exact, vmp_gather_report *tally) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  plan_rules rules = backing_first_rules(b, stream, effort);
  if (exact) rules.growth_slots = 0;
  vmp_status status = VMP_OK;
  for (int attempt = 0; attempt < CLAIM_ATTEMPTS; attempt++) {
    range_state state = look(b, offset, bytes);
    if (state == RANGE_MAPPED) return VMP_OK;  // meanwhile another thread mapped ahead over the holes
    if (state == RANGE_BLOCKED) {
      if (effort < VMP_EFFORT_RESIZE || !vmp_backing_wait_transit(b)) {
        return vmp_fail(VMP_ERROR_BUSY, "part of the range is being remapped");
      }
      continue;
    }
    plan p = {0};
    uint64_t missing = 0;
    status = plan_make(b, slot, end - slot, &rules, &p, &missing);
    if (status == VMP_OK) {
      uint64_t created = UINT64_MAX;
      status = plan_execute(b, &p, &created);
      tally_plan(b, &p, status == VMP_OK, tally);
      plan_free(&p);
      if (status == VMP_OK && look(b, offset, bytes) == RANGE_MAPPED) return VMP_OK;
      if (status == VMP_OK) continue;
      if (!backing_next_rules(&rules, status, created)) return status;
      continue;
    }
    plan_free(&p);
    if (effort < VMP_EFFORT_RESIZE || !b->options.may_create || missing == 0) return status;
    uint64_t given = backing_release_for(b, missing);
    if (given == 0) return status;
    b->takes_resized++;
    rules.create_bytes = backing_min(rules.create_bytes + given, chunk_room(&b->chunks, b->chunks.hard_limit_bytes));
    rules.max_order = b->chunk_max_order;
    rules.growth_slots = 0;
  }
  // Every attempt may have met other threads' transits: then no plan was made, and nothing says that one failed.
  return status != VMP_OK ? status : vmp_fail(VMP_ERROR_BUSY, "part of the range is being remapped");
}

vmp_status backing_claim(vmp_backing *b, uint64_t offset, uint64_t bytes, vmp_stream_index stream, vmp_effort effort,
                         bool exact, vmp_gather_report *tally, vmp_fence *out_after) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  range_state state = look(b, offset, bytes);
  if (state == RANGE_MAPPED) {
    *out_after = count_claims(b, slot, end);
    return VMP_OK;
  }
  if (effort == VMP_EFFORT_MAPPED) return vmp_fail(VMP_ERROR_BUSY, "the range is not wholly mapped");
  if (effort != VMP_EFFORT_TAKE) backing_poll_if_crowded(b);  // heals what is broken, too
  state = look(b, offset, bytes);
  while (state == RANGE_BLOCKED && effort >= VMP_EFFORT_RESIZE && vmp_backing_wait_transit(b))
    state = look(b, offset, bytes);
  if (state == RANGE_BLOCKED) return vmp_fail(VMP_ERROR_BUSY, "part of the range is being remapped");
  hole_list holes;
  if (!find_holes(b, slot, end, &holes))
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a claim");
  // Counting what is mapped keeps it from being taken for the holes.
  vmp_fence after = count_mapped(b, slot, end, &holes, false);
  vmp_status status = fill_holes(b, offset, bytes, stream, effort, exact, tally);
  if (status == VMP_OK) {
    for (size_t i = 0; i < holes.count; i++) {
      const slot_run *filled = &holes_of(&holes)[i];
      after = vmp_fence_merge(after, count_claims(b, filled->slot, filled->slot + filled->slots));
    }
    *out_after = after;
  } else {
    (void)count_mapped(b, slot, end, &holes, true);
  }
  vmp_mem_free(holes.many);
  return status;
}
