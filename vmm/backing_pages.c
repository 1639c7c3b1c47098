// backing_pages.c: pages are claimed and released by list. See backing_pages.h.
//
//     look     every page: parked in place -> claimed at once, so that nobody takes it meanwhile
//              unmapped -> a hole; anything else -> polled, cleared or waited for, and looked at again
//     plan     one chunk of exactly the page's size for each hole; plan_execute makes the calls, or undoes them
//     claim    the holes are mapped: claimed under the same lock as the commit
//
// All or nothing: what was claimed in place is parked again when the holes can't be filled.
#include "vmm/backing_pages.h"

#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/backing_share.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

#define CANDIDATES 64u   // parked chunks of one list that are looked at
#define MAX_LOOKS 1000u  // other threads' driver calls may change pages under a look; not for ever

typedef struct page_claim {
  vmp_backing *b;
  const vmp_page_request *request;
  unsigned order;
  uint64_t slots;     // of a page
  vmp_fence after;    // what the stream must be ordered behind
  vmp_fence pending;  // what keeps pages from being mapped
  bool empty;         // nothing may be mapped there: chunks that are parked in place have to go
} page_claim;

static uint64_t page_slot(const page_claim *p, size_t i) { return p->request->offsets[i] >> p->b->granule_log2; }

// ---- what a page is ----

static vmp_page_state worse(vmp_page_state a, vmp_page_state b) { return a > b ? a : b; }

static vmp_page_state state_of_chunk(const chunk *c, bool fits) {
  switch ((chunk_state)c->state) {
    case CHUNK_LIVE: return VMP_PAGE_LIVE;
    case CHUNK_PARKED: return fits ? VMP_PAGE_PARKED : VMP_PAGE_OCCUPIED;
    case CHUNK_BROKEN: return VMP_PAGE_BROKEN;
    case CHUNK_SPARE:
    case CHUNK_TRANSIT: break;
  }
  return VMP_PAGE_TRANSIT;
}

static vmp_page_state state_of_place(const place *p) {
  if (p->state == PLACE_SHARED && p->live > 0) return VMP_PAGE_LIVE;
  switch ((place_state)p->state) {
    case PLACE_RETIRING: return VMP_PAGE_RETIRING;
    case PLACE_BROKEN: return VMP_PAGE_BROKEN;
    case PLACE_SHARED: return VMP_PAGE_LIVE;
    case PLACE_TRANSIT: break;
  }
  return VMP_PAGE_TRANSIT;
}

static vmp_page_state page_state(const vmp_backing *b, uint64_t slot, uint64_t slots) {
  vmp_page_state state = VMP_PAGE_UNMAPPED;
  uint64_t end = slot + slots;
  for (uint64_t at = slot; at < end;) {
    uint32_t word = backing_word(b, at);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      state = worse(state, state_of_chunk(c, c->home == slot && chunk_slots(c) == slots));
      at = c->home + chunk_slots(c);
    } else if (word_is_place(word)) {
      const place *p = backing_place(b, word & WORD_INDEX);
      state = worse(state, state_of_place(p));
      at = p->slot + p->slots;
    } else {
      at = backing_skip_unmapped(b, at, end);
    }
  }
  return state;
}

vmp_page_state vmp_backing_page_state(const vmp_backing *b, uint64_t offset, uint64_t page_bytes) {
  return page_state(b, offset >> b->granule_log2, page_bytes >> b->granule_log2);
}

uint64_t vmp_backing_next_page(const vmp_backing *b, uint64_t offset, uint64_t end, uint64_t page_bytes) {
  if (offset >= end) return end;
  uint64_t slot = backing_skip_unmapped(b, offset >> b->granule_log2, end >> b->granule_log2);
  return offset + vmp_align_down((slot << b->granule_log2) - offset, page_bytes);
}

// ---- making pages free of old mappings ----

// note_pending adds to what keeps a page from being mapped.
static void note_pending(page_claim *p, uint64_t slot) {
  const vmp_backing *b = p->b;
  for (uint64_t at = slot; at < slot + p->slots;) {
    uint32_t word = backing_word(b, at);
    if (word_is_home(word)) {
      const chunk *c = backing_chunk(b, word & WORD_INDEX);
      p->pending = vmp_fence_merge(p->pending, chunk_users(c));
      at = c->home + chunk_slots(c);
    } else if (word_is_place(word)) {
      const place *old = backing_place(b, word & WORD_INDEX);
      p->pending = vmp_fence_merge(p->pending, old->fence);
      at = old->slot + old->slots;
    } else {
      at++;
    }
  }
}

// collect_occupants puts chunks of other sizes that lie in one page, and whose work has finished, in transit.
static size_t collect_occupants(page_claim *p, uint64_t slot, removal *list, size_t most) {
  vmp_backing *b = p->b;
  size_t count = 0;
  for (uint64_t at = slot; at < slot + p->slots && count < most;) {
    uint32_t word = backing_word(b, at), id = word & WORD_INDEX;
    if (!word_is_home(word)) {
      at++;
      continue;
    }
    const chunk *c = backing_chunk(b, id);
    at = c->home + chunk_slots(c);
    if (c->state != CHUNK_PARKED || !vmp_clock_known_complete(b->options.clock, chunk_users(c))) continue;
    list[count++] = backing_home_removal(b, id);
    chunk_to_transit(&b->chunks, id);
  }
  return count;
}

// clear_occupants unmaps them; they become spare. MAY UNLOCK.
static vmp_status clear_occupants(page_claim *p, removal *list, size_t count) {
  vmp_backing *b = p->b;
  callback_list callbacks;
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  (void)backing_unmap_batch(b, list, count, &callbacks);
  int code = 0;
  for (size_t i = 0; i < count; i++) {
    if (list[i].code == 0) continue;
    code = list[i].code;
    callbacks_after_map(&callbacks, list[i].address, list[i].slots << b->granule_log2, list[i].generation);
  }
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  for (size_t i = 0; i < count; i++) {
    if (list[i].code != 0) {
      chunk_back_to_parked(&b->chunks, list[i].id);
      continue;
    }
    backing_home_unmapped(b, list[i].id);
    chunk_to_spare(&b->chunks, list[i].id);
  }
  backing_wake(b);
  if (code == 0) return VMP_OK;
  return vmp_driver_fail(b->options.driver, VMP_CALL_mem_unmap, code, "a page's addresses were to be made free");
}

static vmp_status clear_pages(page_claim *p) {
  removal list[REMOVAL_BATCH];
  size_t count = 0;
  for (size_t i = 0; i < p->request->count && count < REMOVAL_BATCH; i++) {
    vmp_page_state state = page_state(p->b, page_slot(p, i), p->slots);
    if (state != VMP_PAGE_OCCUPIED && !(p->empty && state == VMP_PAGE_PARKED)) continue;
    count += collect_occupants(p, page_slot(p, i), list + count, REMOVAL_BATCH - count);
  }
  return count == 0 ? VMP_PENDING : clear_occupants(p, list, count);
}

// must_finish: a parked page that the stream may not even wait for, by option.
static bool must_finish(const page_claim *p, uint64_t slot) {
  const vmp_backing *b = p->b;
  const chunk *c = backing_chunk(b, backing_word(b, slot) & WORD_INDEX);
  if (!b->options.complete_only) return false;
  return !vmp_fence_is_none(vmp_clock_others(b->options.clock, chunk_users(c), p->request->stream));
}

// worst_state looks at all pages; *p->pending is what retiring and occupied ones wait for.
static vmp_page_state worst_state(page_claim *p) {
  vmp_page_state worst = VMP_PAGE_UNMAPPED;
  p->pending = VMP_FENCE_NONE;
  for (size_t i = 0; i < p->request->count; i++) {
    uint64_t slot = page_slot(p, i);
    vmp_page_state state = page_state(p->b, slot, p->slots);
    if (state == VMP_PAGE_PARKED && p->empty) state = VMP_PAGE_OCCUPIED;
    if (state == VMP_PAGE_PARKED && must_finish(p, slot)) state = VMP_PAGE_RETIRING;
    if (state == VMP_PAGE_RETIRING || state == VMP_PAGE_OCCUPIED) note_pending(p, slot);
    worst = worse(worst, state);
  }
  return worst;
}

// make_ready brings every page to UNMAPPED or PARKED. MAY UNLOCK.
static vmp_status make_ready(page_claim *p) {
  bool polled = false;
  for (unsigned looks = 0; looks < MAX_LOOKS; looks++) {
    vmp_page_state worst = worst_state(p);
    if (worst == VMP_PAGE_UNMAPPED || worst == VMP_PAGE_PARKED) return VMP_OK;
    if (worst == VMP_PAGE_TRANSIT) {
      if (p->request->ahead || !vmp_backing_wait_transit(p->b)) break;
      continue;
    }
    if (!polled) {
      polled = true;
      (void)vmp_backing_poll(p->b);
      continue;
    }
    if (worst == VMP_PAGE_RETIRING) return VMP_PENDING;
    if (worst != VMP_PAGE_OCCUPIED) break;
    vmp_status status = clear_pages(p);
    if (status != VMP_OK) return status;
  }
  return vmp_fail(VMP_ERROR_BUSY, "part of the pages is being remapped, or has a mapping that could not be removed");
}

// ---- where pages come from ----

static bool needs_wait(const page_claim *p, const chunk *c) {
  return !vmp_fence_is_none(vmp_clock_others(p->b->options.clock, chunk_users(c), p->request->stream));
}

// pick_parked finds a chunk of the page's size: one that lies in no region that is in use, else the oldest.
static uint32_t pick_parked(const page_claim *p, bool pages, bool may_wait) {
  const vmp_backing *b = p->b;
  uint32_t first = 0;
  unsigned seen = 0;
  for (uint32_t id = b->chunks.parked[pages ? CHUNK_ORDERS + p->order : p->order].head; id != 0 && seen < CANDIDATES;
       id = backing_chunk(b, id)->next, seen++) {
    const chunk *c = backing_chunk(b, id);
    if (!may_wait && needs_wait(p, c)) continue;
    if (backing_is_idle_page(b, c->home)) return id;
    if (first == 0 && !p->request->ahead) first = id;
  }
  return first;
}

static bool next_source(const page_claim *p, const plan *made, const plan_rules *rules, piece_source *out_source,
                        uint32_t *out_chunk) {
  const vmp_backing *b = p->b;
  uint64_t needed = made->created_bytes + p->request->page_bytes;
  *out_source = PIECE_SPARE;
  *out_chunk = b->chunks.spare[p->order].head;
  if (*out_chunk != 0) return true;
  *out_source = PIECE_TAKE;
  *out_chunk = pick_parked(p, true, false);
  if (*out_chunk != 0) return true;
  *out_source = PIECE_CREATE;
  if (rules->soft_bytes >= needed) return true;
  if (p->request->ahead) return false;
  *out_source = PIECE_TAKE;
  *out_chunk = pick_parked(p, false, false);
  if (*out_chunk == 0 && rules->wait_allowed) *out_chunk = pick_parked(p, true, true);
  if (*out_chunk == 0 && rules->wait_allowed) *out_chunk = pick_parked(p, false, true);
  if (*out_chunk != 0) return true;
  *out_source = PIECE_CREATE;
  return rules->create_bytes >= needed;
}

// plan_pages plans a chunk for every page that is not mapped. On failure nothing is planned.
static vmp_status plan_pages(page_claim *p, const plan_rules *given, plan *made, uint64_t *out_short) {
  vmp_backing *b = p->b;
  plan_rules rules = *given;
  uint64_t room = chunk_room(&b->chunks, b->chunks.hard_limit_bytes), needed = 0, missing = 0;
  if (rules.create_bytes > room) rules.create_bytes = room;
  if (rules.soft_bytes > rules.create_bytes) rules.soft_bytes = rules.create_bytes;
  made->pages = true;
  for (size_t i = 0; i < p->request->count; i++) {
    uint64_t slot = page_slot(p, i);
    if (backing_word(b, slot) != 0) continue;  // claimed in place
    needed += p->request->page_bytes;
    piece_source source;
    uint32_t id;
    if (missing > 0 || !next_source(p, made, &rules, &source, &id)) {
      missing += p->request->page_bytes;
    } else if (!plan_add_piece(b, made, source, id, p->order, slot)) {
      plan_undo_records(b, made);
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a mapping");
    }
  }
  if (missing == 0) return VMP_OK;
  plan_undo_records(b, made);
  *out_short = missing;
  return plan_why_not(b, needed, &rules);
}

// ---- claiming ----

// claim_mapped claims the pages that are mapped and not claimed yet.
static void claim_mapped(page_claim *p) {
  vmp_backing *b = p->b;
  for (size_t i = 0; i < p->request->count; i++) {
    uint32_t word = backing_word(b, page_slot(p, i));
    if (!word_is_home(word)) continue;
    chunk *c = backing_chunk(b, word & WORD_INDEX);
    if (c->state != CHUNK_PARKED) continue;
    chunk_to_live(&b->chunks, word & WORD_INDEX);
    c->live = 1;
    c->page = 1;  // where it is parked when it is released
    p->after = vmp_fence_merge(p->after, chunk_users(c));
  }
}

// unclaim parks what this claim claimed in place.
static void unclaim(page_claim *p) {
  vmp_backing *b = p->b;
  for (size_t i = 0; i < p->request->count; i++) {
    uint32_t word = backing_word(b, page_slot(p, i)), id = word & WORD_INDEX;
    if (!word_is_home(word) || backing_chunk(b, id)->state != CHUNK_LIVE) continue;
    chunk_back_to_parked(&b->chunks, id);
  }
}

static bool has_holes(const page_claim *p) {
  for (size_t i = 0; i < p->request->count; i++) {
    if (backing_word(p->b, page_slot(p, i)) == 0) return true;
  }
  return false;
}

// release_others makes room for `missing` bytes by giving chunks of other sizes back to the device. MAY UNLOCK.
static bool release_others(page_claim *p, plan_rules *rules, uint64_t missing) {
  vmp_backing *b = p->b;
  if (p->request->effort < VMP_EFFORT_RESIZE || !b->options.may_create || missing == 0) return false;
  uint64_t given = backing_release_for(b, missing), room = chunk_room(&b->chunks, b->chunks.hard_limit_bytes);
  if (given == 0) return false;
  b->takes_resized++;
  rules->create_bytes = rules->create_bytes + given < room ? rules->create_bytes + given : room;
  return true;
}

// fill_holes maps every page that is not mapped. MAY UNLOCK.
static vmp_status fill_holes(page_claim *p) {
  vmp_backing *b = p->b;
  plan_rules rules = backing_first_rules(b, p->request->stream, p->request->effort);
  rules.growth_slots = 0;  // pages don't grow: a refusal is not about a surplus
  vmp_status status = VMP_OK;
  for (int attempt = 0; attempt < CLAIM_ATTEMPTS && has_holes(p); attempt++) {
    plan made = {0};
    uint64_t missing = 0, created = UINT64_MAX;
    status = plan_pages(p, &rules, &made, &missing);
    bool planned = status == VMP_OK;
    if (planned) status = plan_execute(b, &made, &created);
    plan_free(&made);
    if (status == VMP_OK) continue;
    bool again = planned ? backing_next_rules(&rules, status, created) : release_others(p, &rules, missing);
    if (!again) return status;
  }
  return has_holes(p) ? status : VMP_OK;
}

vmp_status vmp_backing_claim_pages(vmp_backing *b, const vmp_page_request *request, vmp_fence *out_after) {
  page_claim p = {.b = b,
                  .request = request,
                  .order = vmp_log2(request->page_bytes >> b->granule_log2),
                  .slots = request->page_bytes >> b->granule_log2};
  if (request->effort != VMP_EFFORT_MAPPED) backing_poll_if_crowded(b);
  vmp_status status = make_ready(&p);
  if (status != VMP_OK) {
    *out_after = p.pending;
    return status;
  }
  claim_mapped(&p);
  if (has_holes(&p)) {
    status = request->effort == VMP_EFFORT_MAPPED ? vmp_fail(VMP_ERROR_BUSY, "some of the pages are not mapped")
                                                  : fill_holes(&p);
  }
  if (status == VMP_OK) {
    claim_mapped(&p);
    *out_after = p.after;
  } else {
    unclaim(&p);
  }
  return status;
}

bool vmp_backing_release_page(vmp_backing *b, uint64_t offset, vmp_fence fence) {
  uint32_t id = backing_word(b, offset >> b->granule_log2) & WORD_INDEX;
  place *shared = share_at(b, backing_word(b, offset >> b->granule_log2));
  if (shared != NULL) {
    share_uncount(b, shared, fence);
    return false;
  }
  chunk *c = backing_chunk(b, id);
  bool fresh = vmp_fence_is_none(c->fence) || vmp_clock_known_complete(b->options.clock, c->fence);
  c->fence = fresh ? fence : vmp_fence_merge(c->fence, fence);
  if (--c->live > 0) return false;
  chunk_to_parked(&b->chunks, id);
  return true;
}

// ---- sharing ----

// map_shared claims runs of neighbouring pages; what was claimed is released when a later run fails. MAY UNLOCK.
static vmp_status map_shared(page_claim *p, const vmp_page_pair *pairs, vmp_shared_part *parts) {
  uint64_t page_bytes = p->request->page_bytes;
  size_t count = p->request->count, first = 0;
  vmp_status status = VMP_OK;
  for (size_t next; first < count && status == VMP_OK; first = status == VMP_OK ? next : first) {
    vmp_fence ignored;
    next = first;
    do {
      parts[next] = (vmp_shared_part){.offset = pairs[next].to, .host_offset = pairs[next].from};
      next++;
    } while (next < count && pairs[next].to == pairs[next - 1].to + page_bytes);
    status = vmp_backing_claim_shared(p->b, pairs[first].to, (next - first) * page_bytes, parts + first, next - first,
                                      p->request->stream, p->request->effort, &ignored);
  }
  if (status == VMP_OK) return VMP_OK;
  for (size_t i = 0; i < first; i++) (void)vmp_backing_release_page(p->b, pairs[i].to, VMP_FENCE_NONE);
  return status;
}

vmp_status vmp_backing_share_pages(vmp_backing *b, const vmp_page_pair *pairs, size_t count, uint64_t page_bytes,
                                   vmp_stream_index stream, vmp_fence *out_pending) {
  uint64_t *offsets = vmp_mem_calloc(count, sizeof *offsets);
  vmp_shared_part *parts = vmp_mem_calloc(count, sizeof *parts);
  vmp_status status = VMP_OK;
  if (offsets == NULL || parts == NULL)
    status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to share pages");
  for (size_t i = 0; i < count && status == VMP_OK; i++) offsets[i] = pairs[i].to;
  vmp_page_request request = {
      .offsets = offsets, .count = count, .page_bytes = page_bytes, .stream = stream, .effort = VMP_EFFORT_NORMAL};
  page_claim p = {.b = b, .request = &request, .slots = page_bytes >> b->granule_log2, .empty = true};
  if (status == VMP_OK) {
    backing_poll_if_crowded(b);
    status = make_ready(&p);
    *out_pending = p.pending;
  }
  if (status == VMP_OK) status = map_shared(&p, pairs, parts);
  vmp_mem_free(offsets);
  vmp_mem_free(parts);
  return status;
}

uint64_t vmp_backing_page_references(const vmp_backing *b, uint64_t offset, bool *out_first) {
  uint32_t word = backing_word(b, offset >> b->granule_log2);
  const place *shared = share_at(b, word);
  if (out_first != NULL) *out_first = true;
  if (shared == NULL) return word_is_home(word) && backing_chunk(b, word & WORD_INDEX)->state == CHUNK_LIVE ? 1 : 0;
  uint64_t references = 0;
  uint32_t first = 0;
  for (uint32_t id = backing_chunk(b, shared->chunk)->shares; id != 0; id = backing_place(b, id)->next_share) {
    const place *p = backing_place(b, id);
    if (p->state != PLACE_SHARED || p->live == 0) continue;
    references++;
    if (first == 0) first = id;
  }
  if (out_first != NULL) *out_first = first == (word & WORD_INDEX);
  return references;
}

// ---- pages for others ----

// oldest_complete: 0 when none of the first CANDIDATES is.
static uint32_t oldest_complete(const vmp_backing *b, unsigned order) {
  unsigned seen = 0;
  for (uint32_t id = b->chunks.parked[CHUNK_ORDERS + order].head; id != 0 && seen < CANDIDATES;
       id = backing_chunk(b, id)->next, seen++) {
    if (vmp_clock_known_complete(b->options.clock, chunk_users(backing_chunk(b, id)))) return id;
  }
  return 0;
}

uint32_t backing_pick_page(const vmp_backing *b, unsigned fit, uint64_t room) {
  uint32_t id = 0;
  for (unsigned order = fit + 1; order-- > 0 && id == 0;) id = oldest_complete(b, order);
  for (unsigned order = fit + 1; order < CHUNK_ORDERS && (UINT64_C(1) << order) <= room && id == 0; order++) {
    id = oldest_complete(b, order);
  }
  return id;
}
