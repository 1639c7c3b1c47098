// backing_plan.c: which chunks fill the holes of a claim, and from where. Makes no driver call.
//
//     hole      |  5 slots   | room (unmapped slots beyond the range)
//     pieces    [ 4 ][ 1 ]      sizes that fit: spare, new, parked (complete before pending, smallest free range first)
//     or        [    8     ..]  a larger one, whole, where there is room: its rest stays free, but mapped
//
// A planned chunk is in TRANSIT and the slots of its new home carry a transit place, so that no other thread plans with
// either of them. plan_undo_records puts all of it back.
#include <string.h>

#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/memory.h"

#define CANDIDATES 64u  // parked chunks of one size that are looked at
#define RUN_LOOK 32u    // neighbours that are looked at, on each side

bool backing_may_move_pending(const vmp_backing *b) {
  if (b->options.complete_only || b->retiring.slots << b->granule_log2 >= b->chunks.held_bytes) return false;
  uint64_t streams = 0;
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    for (uint32_t id = b->chunks.parked[order].head; id != 0; id = backing_chunk(b, id)->next) {
      vmp_fence fence = chunk_users(backing_chunk(b, id));
      if (!vmp_clock_known_complete(b->options.clock, fence)) streams |= fence.streams;
    }
  }
  return (streams & (streams - 1)) == 0;
}

// needs_wait: whether a chunk isn't free to be taken at once: for a stream, or, to be gathered, for anybody.
static bool needs_wait(const vmp_backing *b, const chunk *c, const plan_rules *rules) {
  vmp_fence fence = chunk_users(c);
  if (rules->effort == VMP_EFFORT_TAKE) return !vmp_clock_known_complete(b->options.clock, fence);
  return !vmp_fence_is_none(vmp_clock_others(b->options.clock, fence, rules->stream));
}

// free_run_slots: how long the run of parked memory around a parked chunk is; the look is bounded, and ends at
// `enough`.
static uint64_t free_run_slots(const vmp_backing *b, const chunk *c, uint64_t enough) {
  uint64_t slots = chunk_slots(c), slot = c->home;
  for (unsigned i = 0; i < RUN_LOOK && slot > 0 && slots < enough; i++) {
    uint32_t word = backing_word(b, slot - 1);
    if (!word_is_home(word) || backing_chunk(b, word & WORD_INDEX)->state != CHUNK_PARKED) break;
    slot = backing_chunk(b, word & WORD_INDEX)->home;
    slots += chunk_slots(backing_chunk(b, word & WORD_INDEX));
  }
  slot = c->home + chunk_slots(c);
  for (unsigned i = 0; i < RUN_LOOK && slots < enough; i++) {
    uint32_t word = backing_word(b, slot);
    if (!word_is_home(word) || backing_chunk(b, word & WORD_INDEX)->state != CHUNK_PARKED) break;
    slots += chunk_slots(backing_chunk(b, word & WORD_INDEX));
    slot += chunk_slots(backing_chunk(b, word & WORD_INDEX));
  }
  return slots;
}

// best_parked finds the parked chunk of one size to take: from the smallest free range, among equals the oldest.
static uint32_t best_parked(const vmp_backing *b, unsigned order, const plan_rules *rules, bool may_wait) {
  uint32_t best = 0;
  uint64_t best_run = UINT64_MAX;
  uint64_t run_end = UINT64_MAX;  // where the chunk that was looked at last ended: its neighbour lies in the same run
  unsigned seen = 0;
  for (uint32_t id = b->chunks.parked[order].head; id != 0 && seen < CANDIDATES;
       id = backing_chunk(b, id)->next, seen++) {
    const chunk *c = backing_chunk(b, id);
    if (c->home < rules->keep_end && c->home + chunk_slots(c) > rules->keep_slot) continue;
    if (!may_wait && needs_wait(b, c, rules)) continue;
    bool same_run = c->home == run_end;
    run_end = c->home + chunk_slots(c);
    if (best != 0 && same_run) continue;
    uint64_t run = free_run_slots(b, c, best_run);
    if (run >= best_run) continue;
    best = id;
    best_run = run;
    if (run == chunk_slots(c)) break;  // it can't get smaller, and older ones came first
  }
  return best;
}

// The largest chunk of a kind that is at most `max_order`, or, with `at_least`, the smallest above it that is at most
// `room` slots long.
static uint32_t pick_parked(const vmp_backing *b, unsigned max_order, const plan_rules *rules, bool may_wait) {
  for (unsigned order = max_order + 1; order-- > 0;) {
    uint32_t id = b->chunks.parked[order].count == 0 ? 0 : best_parked(b, order, rules, may_wait);
    if (id != 0) return id;
  }
  return 0;
}

static uint32_t pick_parked_larger(const vmp_backing *b, unsigned above, uint64_t room, const plan_rules *rules) {
  for (unsigned order = above + 1; order < CHUNK_ORDERS && (UINT64_C(1) << order) <= room; order++) {
    if (b->chunks.parked[order].count == 0) continue;
    uint32_t id = best_parked(b, order, rules, false);
    if (id == 0 && rules->wait_allowed) id = best_parked(b, order, rules, true);
    if (id != 0) return id;
  }
  return 0;
}

static uint32_t pick_spare(const vmp_backing *b, unsigned max_order) {
  for (unsigned order = max_order + 1; order-- > 0;) {
    if (b->chunks.spare[order].head != 0) return b->chunks.spare[order].head;
  }
  return 0;
}

static uint32_t pick_spare_larger(const vmp_backing *b, unsigned above, uint64_t room) {
  for (unsigned order = above + 1; order < CHUNK_ORDERS && (UINT64_C(1) << order) <= room; order++) {
    if (b->chunks.spare[order].head != 0) return b->chunks.spare[order].head;
  }
  return 0;
}

static bool grow_pieces(plan *p) {
  if (p->num_pieces < p->capacity) return true;
  size_t capacity = p->capacity == 0 ? 16 : p->capacity * 2;
  piece *pieces = vmp_mem_resize(p->pieces, p->capacity, capacity, sizeof *pieces);
  if (pieces == NULL) return false;
  p->pieces = pieces;
  p->capacity = capacity;
  return true;
}

bool plan_add_piece(vmp_backing *b, plan *p, piece_source source, uint32_t chunk_id, unsigned order, uint64_t slot) {
  uint64_t slots = UINT64_C(1) << order;
  if (!grow_pieces(p) || !vmp_node_pool_reserve(&b->places, 1) || !backing_prepare_slots(b, slot, slots)) return false;
  if (source == PIECE_CREATE) {
    chunk_id = chunk_new(&b->chunks, order);
    if (chunk_id == 0) return false;
    p->created_bytes += slots << b->granule_log2;
  }
  chunk *c = backing_chunk(b, chunk_id);
  uint32_t place_id = vmp_node_take(&b->places);
  *backing_place(b, place_id) = (place){.slot = slot, .slots = slots, .chunk = chunk_id, .state = PLACE_TRANSIT};
  backing_set_words(b, slot, slots, WORD_PLACE | place_id);
  piece *added = &p->pieces[p->num_pieces++];
  *added = (piece){.generation = ++b->generation,
                   .slot = slot,
                   .address = backing_slot_address(b, slot),
                   .old_slot = c->home,
                   .chunk = chunk_id,
                   .place = place_id,
                   .source = (uint8_t)source,
                   .order = (uint8_t)order};
  if (source == PIECE_SPARE || source == PIECE_TAKE) chunk_to_transit(&b->chunks, chunk_id);
  if (source == PIECE_TAKE) backing_log_change(b, c->home, slots);
  return true;
}

bool plan_add_shared(vmp_backing *b, plan *p, uint32_t place_id) {
  if (!grow_pieces(p)) return false;
  const place *to = backing_place(b, place_id);
  p->pieces[p->num_pieces++] = (piece){.generation = ++b->generation,
                                       .slot = to->slot,
                                       .address = backing_slot_address(b, to->slot),
                                       .chunk = to->chunk,
                                       .place = place_id,
                                       .source = PIECE_SHARE,
                                       .order = backing_chunk(b, to->chunk)->order};
  return true;
}

void plan_undo_records(vmp_backing *b, plan *p) {
  for (size_t i = p->num_pieces; i-- > 0;) {
    piece *at = &p->pieces[i];
    uint64_t slots = UINT64_C(1) << at->order;
    if (at->source == PIECE_SHARE) {
      share_drop(b, at->place);
      continue;
    }
    backing_set_words(b, at->slot, slots, 0);
    vmp_node_give(&b->places, at->place);
    if (at->source == PIECE_CREATE) {
      chunk_drop(&b->chunks, at->chunk);
    } else if (at->source == PIECE_SPARE) {
      chunk_to_spare(&b->chunks, at->chunk);
    } else if (at->source == PIECE_TAKE) {
      chunk_back_to_parked(&b->chunks, at->chunk);
      backing_log_change(b, at->old_slot, slots);
    }
  }
  p->num_pieces = 0;
}

void plan_free(plan *p) {
  vmp_mem_free(p->pieces);
  *p = (plan){0};
}

// new_order: the size of the next new chunk for `left` slots of need, of which `room` slots could be mapped in all;
// growth rounds the need up while the budget lasts.
static unsigned new_order(const vmp_backing *b, const plan *p, const plan_rules *rules, uint64_t left, uint64_t room) {
  uint64_t budget = (rules->create_bytes - p->created_bytes) >> b->granule_log2;
  uint64_t want = left;
  if (rules->growth_slots > 1 && want < rules->growth_slots) want = rules->growth_slots;
  if (want > room) want = room;
  if (want > budget) want = budget;
  unsigned order = vmp_log2(want);
  return order < rules->max_order ? order : rules->max_order;
}

// next_source chooses what maps the next part of a hole, in the order of the ladder. `left`: slots still needed;
// `room`: slots that may be mapped from here on. Returns false when nothing fits.
static bool next_source(const vmp_backing *b, const plan *p, const plan_rules *rules, uint64_t left, uint64_t room,
                        piece_source *out_source, uint32_t *out_chunk, unsigned *out_order) {
  unsigned fit = vmp_log2(left);
  if (fit >= CHUNK_ORDERS) fit = CHUNK_ORDERS - 1;
  uint64_t granule = b->granule_bytes;
  bool soft = rules->soft_bytes >= p->created_bytes + granule, hard = rules->create_bytes >= p->created_bytes + granule;
  uint32_t id = pick_spare(b, fit);
  piece_source source = PIECE_SPARE;
  if (id == 0 && soft) source = PIECE_CREATE;
  if (id == 0 && source != PIECE_CREATE) {
    source = PIECE_TAKE;
    id = pick_parked(b, fit, rules, false);
    if (id == 0 && rules->wait_allowed) id = pick_parked(b, fit, rules, true);
    if (id == 0) id = pick_parked_larger(b, fit, room, rules);
    if (id == 0) {
      source = PIECE_SPARE;
      id = pick_spare_larger(b, fit, room);
    }
    if (id == 0 && hard) source = PIECE_CREATE;
    if (id == 0 && !hard && rules->effort >= VMP_EFFORT_NORMAL) {
      source = PIECE_TAKE;
      id = backing_pick_page(b, fit, room);
    }
  }
  if (source != PIECE_CREATE && id == 0) return false;
  *out_source = source;
  *out_chunk = id;
  *out_order = source == PIECE_CREATE ? new_order(b, p, rules, left, room) : backing_chunk(b, id)->order;
  return true;
}

// add_surplus rounds a growth up to the step where that is more than one chunk. Only new memory serves for it.
static vmp_status add_surplus(vmp_backing *b, hole h, uint64_t start, const plan_rules *rules, plan *p) {
  while (rules->growth_slots > (UINT64_C(1) << rules->max_order) && h.slot < h.high && p->created_bytes > 0 &&
         (h.slot - start) % rules->growth_slots != 0 && rules->soft_bytes >= p->created_bytes + b->granule_bytes) {
    uint64_t want = rules->growth_slots - (h.slot - start) % rules->growth_slots;
    uint64_t budget = (rules->soft_bytes - p->created_bytes) >> b->granule_log2;
    if (want > h.high - h.slot) want = h.high - h.slot;
    if (want > budget) want = budget;
    unsigned order = vmp_log2(want) < rules->max_order ? vmp_log2(want) : rules->max_order;
    if (!plan_add_piece(b, p, PIECE_CREATE, 0, order, h.slot)) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a mapping");
    }
    h.slot += UINT64_C(1) << order;
  }
  return VMP_OK;
}

// fill_hole covers one hole from its low end, growing into the room above it, and below it where the room above is
// too short. False: *out_left slots could not be covered.
static vmp_status fill_hole(vmp_backing *b, hole h, const plan_rules *rules, plan *p, uint64_t *out_left) {
  uint64_t start = h.slot;
  while (h.slot < h.end) {
    uint64_t left = h.end - h.slot;
    uint64_t below = h.slot - h.low, above = h.high - h.slot;
    piece_source source;
    uint32_t id;
    unsigned order;
    if (!next_source(b, p, rules, left, above + below, &source, &id, &order)) {
      *out_left = left;
      return VMP_ERROR_OUT_OF_MEMORY;
    }
    uint64_t slots = UINT64_C(1) << order, slot = h.slot;
    if (slots > above) slot = h.slot - (slots - above);  // it ends where the room ends, and begins below the hole
    if (!plan_add_piece(b, p, source, id, order, slot)) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a mapping");
    }
    h.slot = slot + slots;
    h.low = h.slot;
  }
  return add_surplus(b, h, start, rules, p);
}

void backing_room_around(const vmp_backing *b, hole *h, bool at_start, bool at_end, uint64_t reach) {
  h->low = h->slot;
  h->high = h->end;
  if (at_end && backing_has_slot(b, h->end - 1)) h->high = backing_skip_unmapped(b, h->end, h->end + reach);
  backing_clip_to_pages(b, h, &reach);
  if (!at_start) return;
  while (h->low > 0 && h->slot - h->low < reach && backing_has_slot(b, h->low - 1) &&
         backing_word(b, h->low - 1) == 0) {
    h->low--;
  }
}

// idle_bytes: spare and parked memory; with efforts READY and GROW without what the stream would have to wait for.
static uint64_t idle_bytes(const vmp_backing *b, const plan_rules *rules) {
  if (rules->effort != VMP_EFFORT_READY && rules->effort != VMP_EFFORT_GROW) return b->chunks.parked_bytes + b->chunks.spare_bytes;
  uint64_t bytes = b->chunks.spare_bytes;
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    for (uint32_t id = b->chunks.parked[order].head; id != 0; id = backing_chunk(b, id)->next) {
      const chunk *c = backing_chunk(b, id);
      if (!needs_wait(b, c, rules)) bytes += chunk_bytes(&b->chunks, c);
    }
  }
  return bytes;
}

vmp_status plan_why_not(const vmp_backing *b, uint64_t needed_bytes, const plan_rules *rules) {
  uint64_t idle = idle_bytes(b, rules);
  uint64_t room = chunk_room(&b->chunks, b->chunks.hard_limit_bytes);
  if (idle >= needed_bytes || idle + rules->create_bytes >= needed_bytes) {
    return vmp_fail(VMP_ERROR_FRAGMENTED,
                    "%llu bytes are parked, but in chunks that don't fit here or that other streams still use",
                    (unsigned long long)idle);
  }
  if (!b->options.may_create) {
    return vmp_fail(VMP_ERROR_LIMIT, "a static pool does not grow; %llu bytes are needed and %llu are parked",
                    (unsigned long long)needed_bytes, (unsigned long long)idle);
  }
  if (room < needed_bytes - idle) {
    return vmp_fail(
        VMP_ERROR_LIMIT, "%llu bytes are needed and %llu are parked; the rest would cross the hard limit of %llu",
        (unsigned long long)needed_bytes, (unsigned long long)idle, (unsigned long long)b->chunks.hard_limit_bytes);
  }
  return vmp_fail(VMP_ERROR_OUT_OF_MEMORY, "%llu bytes are needed, %llu are parked and the device has %llu left",
                  (unsigned long long)needed_bytes, (unsigned long long)idle, (unsigned long long)rules->create_bytes);
}

vmp_status plan_make(vmp_backing *b, uint64_t slot, uint64_t slots, const plan_rules *given, plan *p,
                     uint64_t *out_short) {
  plan_rules rules = *given;
  // Another thread may have mapped ahead over part of the range since the claim counted what was mapped.
  rules.keep_slot = slot;
  rules.keep_end = slot + slots;
  uint64_t room = chunk_room(&b->chunks, b->chunks.hard_limit_bytes), end = slot + slots, at = slot, missing = 0;
  if (rules.create_bytes > room) rules.create_bytes = room;
  if (rules.soft_bytes > rules.create_bytes) rules.soft_bytes = rules.create_bytes;
  uint64_t reach = UINT64_C(1) << b->chunk_max_order;
  if (rules.growth_slots > reach) reach = rules.growth_slots;
  vmp_status status = VMP_OK;
  while (at < end && status != VMP_ERROR_HOST_OUT_OF_MEMORY) {
    uint32_t word = backing_word(b, at);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      at = c->home + chunk_slots(c);
    } else if (word_is_place(word)) {
      const place *own = backing_place(b, word & WORD_INDEX);  // a piece of this plan
      at = own->slot + own->slots;
    } else {
      hole h = {.slot = at, .end = backing_skip_unmapped(b, at, end)};
      uint64_t left = 0;
      backing_room_around(b, &h, h.slot == slot, h.end == end, reach);
      status = fill_hole(b, h, &rules, p, &left);
      if (left > 0) missing += left;
      at = h.end;
      if (missing > 0) {  // count what else is missing, but plan no more
        while (at < end) {
          uint64_t next = backing_word(b, at) == 0 ? backing_skip_unmapped(b, at, end) : at + 1;
          if (backing_word(b, at) == 0) missing += next - at;
          at = next;
        }
      }
    }
  }
  if (status == VMP_OK) return VMP_OK;
  uint64_t planned = 0;
  for (size_t i = 0; i < p->num_pieces; i++) planned += UINT64_C(1) << p->pieces[i].order;
  plan_undo_records(b, p);
  *out_short = missing << b->granule_log2;
  return status == VMP_ERROR_HOST_OUT_OF_MEMORY ? status
                                                : plan_why_not(b, (missing + planned) << b->granule_log2, &rules);
}
