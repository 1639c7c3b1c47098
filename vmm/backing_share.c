// backing_share.c: see backing_share.h.
#include "vmm/backing_share.h"

#include "vmm/backing_internal.h"
#include "vmm/memory.h"

static uint64_t base_of(const vmp_backing *b, const place *p) { return p->slot << b->granule_log2; }
static uint64_t size_of(const vmp_backing *b, const place *p) { return p->slots << b->granule_log2; }

// ---- what claims meet ----

bool share_covers(const vmp_backing *b, const place *p, uint64_t offset, uint64_t end) {
  if (backing_chunk(b, p->chunk)->sealed != 0) return false;
  uint64_t base = base_of(b, p), base_end = base + size_of(b, p);
  if (offset < base) offset = base;
  if (end > base_end) end = base_end;
  return offset - base >= p->low && end - base <= p->high;
}

vmp_run_state share_run(const vmp_backing *b, const place *p, uint64_t offset, uint64_t *out_end) {
  uint64_t at = offset - base_of(b, p);
  if (backing_chunk(b, p->chunk)->sealed != 0) {
    *out_end = base_of(b, p) + size_of(b, p);
    return VMP_RUN_BLOCKED;
  }
  bool before = at < p->low && p->low < p->high, inside = at >= p->low && at < p->high;
  *out_end = base_of(b, p) + (before ? p->low : inside ? p->high : size_of(b, p));
  return inside ? VMP_RUN_MAPPED : VMP_RUN_BLOCKED;
}

void share_count(vmp_backing *b, place *p) {
  p->live++;
  backing_chunk(b, p->chunk)->live++;
}

// ---- windows ----

// carve takes [low, high) off an end of the host's window. False: it doesn't lie there.
static bool carve(place *host, uint64_t low, uint64_t high) {
  if (low == high) return true;
  if (low > high || low < host->low || high > host->high) return false;
  if (low == host->low) {
    host->low = high;
  } else if (high == host->high) {
    host->high = low;
  } else {
    return false;
  }
  return true;
}

// log_window tells the layers that a place's window has changed.
static void log_window(vmp_backing *b, const place *p) { backing_log_change(b, p->slot, p->slots); }

// give_window gives the window of a place that is no longer in the chunk's list to a neighbour: windows tile the chunk,
// so where there is none the window is the whole chunk.
static void give_window(vmp_backing *b, const place *from) {
  place *last = NULL;
  if (from->low == from->high) return;
  for (uint32_t id = backing_chunk(b, from->chunk)->shares; id != 0; id = last->next_share) {
    last = backing_place(b, id);
    if (last->low == last->high || (last->high != from->low && last->low != from->high)) continue;
    if (last->high == from->low) {
      last->high = from->high;
    } else {
      last->low = from->low;
    }
    log_window(b, last);
    return;
  }
  if (last == NULL) return;
  last->low = from->low;
  last->high = from->high;
  log_window(b, last);
}

// ---- the list of a chunk's places ----

static void unlink_share(vmp_backing *b, uint32_t place_id) {
  place *p = backing_place(b, place_id);
  uint32_t *link = &backing_chunk(b, p->chunk)->shares;
  while (*link != place_id) link = &backing_place(b, *link)->next_share;
  *link = p->next_share;
  p->next_share = 0;
}

// retire ends a made place without claims.
static void retire(vmp_backing *b, uint32_t place_id) {
  place *p = backing_place(b, place_id);
  chunk *c = backing_chunk(b, p->chunk);
  unlink_share(b, place_id);
  give_window(b, p);
  if (p->lost != 0) b->lost_bytes -= size_of(b, p);
  p->lost = 0;
  p->state = PLACE_RETIRING;
  if (vmp_clock_known_complete(b->options.clock, p->fence)) p->fence = VMP_FENCE_NONE;
  chunk_set_moved(&b->chunks, c, vmp_fence_merge(c->moved, p->fence));
  c->aliases++;
  place_list_add(b, &b->retiring, place_id);
  b->slots_retired += p->slots;
  vmp_backing_change retired = {.fence = p->fence};
  backing_tell(b, VMP_BACKING_RETIRED, p->chunk, p->slot, p->slots, &retired);
  log_window(b, p);
}

// go_home makes the only place that is left the chunk's home.
static void go_home(vmp_backing *b, uint32_t chunk_id) {
  chunk *c = backing_chunk(b, chunk_id);
  uint32_t place_id = c->shares;
  const place *p = backing_place(b, place_id);
  c->shares = 0;
  b->shared_bytes -= chunk_bytes(&b->chunks, c);
  c->sealed = 0;
  if (p->lost != 0) {  // without access: lost as a whole
    b->lost_bytes -= size_of(b, p);
    c->lost = CHUNK_LOST_ACCESS;
    b->lost_bytes += chunk_bytes(&b->chunks, c);
  }
  c->home = p->slot;
  c->generation = p->generation;
  backing_set_words(b, p->slot, p->slots, WORD_HOME | chunk_id);
  log_window(b, p);
  vmp_node_give(&b->places, place_id);
  if (c->live == 0) backing_idle(b, chunk_id);
}

// settle ends places without claims, as long as another made one is left.
static void settle(vmp_backing *b, uint32_t chunk_id) {
  chunk *c = backing_chunk(b, chunk_id);
  uint32_t made = 0, empty = 0;
  for (uint32_t id = c->shares; id != 0; id = backing_place(b, id)->next_share) {
    if (backing_place(b, id)->state != PLACE_SHARED) continue;
    made++;
    if (backing_place(b, id)->live == 0) empty = id;
  }
  if (empty != 0 && made > 1) retire(b, empty);
  if (c->shares != 0 && backing_place(b, c->shares)->next_share == 0) go_home(b, chunk_id);
}

void share_uncount(vmp_backing *b, place *p, vmp_fence fence) {
  chunk *c = backing_chunk(b, p->chunk);
  bool fresh = vmp_clock_known_complete(b->options.clock, c->fence);
  bool fresh_here = vmp_clock_known_complete(b->options.clock, p->fence);
  c->fence = fresh ? fence : vmp_fence_merge(c->fence, fence);
  p->fence = fresh_here ? fence : vmp_fence_merge(p->fence, fence);
  p->live--;
  c->live--;
  if (p->live == 0) settle(b, p->chunk);
}

// ---- asking for a place ----

// host_at returns the chunk that a slot's mapping belongs to, 0 when it can't be a host.
static uint32_t host_at(const vmp_backing *b, uint64_t slot, place **out_place) {
  uint32_t word = backing_word(b, slot);
  place *shared = share_at(b, word);
  uint32_t id = shared != NULL ? shared->chunk : word_is_home(word) ? word & WORD_INDEX : 0;
  *out_place = shared;
  if (id == 0) return 0;
  const chunk *c = backing_chunk(b, id);
  return c->state == CHUNK_LIVE && !c->apart ? id : 0;
}

// leave_home makes the chunk's home the first of its places. A node for it is reserved.
static place *leave_home(vmp_backing *b, uint32_t chunk_id) {
  chunk *c = backing_chunk(b, chunk_id);
  uint32_t place_id = vmp_node_take(&b->places);
  place *p = backing_place(b, place_id);
  *p = (place){.slot = c->home,
               .slots = chunk_slots(c),
               .chunk = chunk_id,
               .state = PLACE_SHARED,
               .fence = c->fence,
               .generation = c->generation,
               .live = c->live,
               .high = chunk_bytes(&b->chunks, c)};
  backing_set_words(b, p->slot, p->slots, WORD_PLACE | place_id);
  c->shares = place_id;
  b->shared_bytes += p->high;
  c->home = UINT64_MAX;
  return p;
}

static vmp_status check_part(const vmp_backing *b, uint64_t slot, const chunk *c, const vmp_shared_part *part,
                             const place *host) {
  uint64_t size = chunk_bytes(&b->chunks, c);
  place window = {.high = size};
  if (host != NULL) window = *host;
  if (part->low > part->high || part->high > size || !carve(&window, part->low, part->high)) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "bytes %llu to %llu of a chunk of %llu are not at an end of what is free",
                    (unsigned long long)part->low, (unsigned long long)part->high, (unsigned long long)size);
  }
  if (!backing_has_slot(b, slot + chunk_slots(c) - 1) ||
      backing_skip_unmapped(b, slot, slot + chunk_slots(c)) < slot + chunk_slots(c)) {
    return vmp_fail(VMP_ERROR_BUSY, "the slots for a shared chunk are not unmapped");
  }
  return VMP_OK;
}

// hold makes the place of one part, in transit. *out_after: everybody who released bytes of the chunk.
static vmp_status hold(vmp_backing *b, const vmp_shared_part *part, uint32_t *out_place, vmp_fence *out_after) {
  place *host;
  uint64_t slot = part->offset >> b->granule_log2;
  uint32_t chunk_id = host_at(b, part->host_offset >> b->granule_log2, &host);
  if (chunk_id == 0) return vmp_fail(VMP_ERROR_BUSY, "the chunk that was to be shared is not live, or is kept apart");
  chunk *c = backing_chunk(b, chunk_id);
  vmp_status status = check_part(b, slot, c, part, host);
  if (status != VMP_OK) return status;
  if (!vmp_node_pool_reserve(&b->places, 2) || !backing_prepare_slots(b, slot, chunk_slots(c))) {
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a mapping");
  }
  if (host == NULL) host = leave_home(b, chunk_id);
  (void)carve(host, part->low, part->high);
  log_window(b, host);
  uint32_t place_id = vmp_node_take(&b->places);
  place *p = backing_place(b, place_id);
  *p = (place){.slot = slot,
               .slots = chunk_slots(c),
               .chunk = chunk_id,
               .state = PLACE_TRANSIT,
               .next_share = c->shares,
               .low = part->low,
               .high = part->high};
  c->shares = place_id;
  share_count(b, p);  // the claim that it is made for
  backing_set_words(b, slot, p->slots, WORD_PLACE | place_id);
  *out_place = place_id;
  *out_after = vmp_fence_merge(*out_after, chunk_users(c));
  return VMP_OK;
}

// address_beside: where else the chunk of a place is mapped.
static uint64_t address_beside(const vmp_backing *b, uint32_t place_id) {
  const chunk *c = backing_chunk(b, backing_place(b, place_id)->chunk);
  uint32_t other = c->shares != place_id ? c->shares : backing_place(b, place_id)->next_share;
  return backing_slot_address(b, backing_place(b, other)->slot);
}

void share_commit(vmp_backing *b, uint32_t place_id, uint64_t generation) {
  place *p = backing_place(b, place_id);
  p->state = PLACE_SHARED;
  p->generation = generation;
  b->shares++;
  vmp_backing_change shared = {.from = address_beside(b, place_id)};
  backing_tell(b, VMP_BACKING_SHARED, p->chunk, p->slot, p->slots, &shared);
  log_window(b, p);
  settle(b, p->chunk);
}

// leave takes a place in transit off its chunk, with the claim that it was to serve.
static void leave(vmp_backing *b, uint32_t place_id) {
  place *p = backing_place(b, place_id);
  unlink_share(b, place_id);
  give_window(b, p);
  backing_chunk(b, p->chunk)->live -= p->live;
  p->live = 0;
  p->low = p->high = 0;
}

void share_drop(vmp_backing *b, uint32_t place_id) {
  const place *p = backing_place(b, place_id);
  uint32_t chunk_id = p->chunk;
  leave(b, place_id);
  backing_set_words(b, p->slot, p->slots, 0);
  vmp_node_give(&b->places, place_id);
  settle(b, chunk_id);
}

void share_break(vmp_backing *b, uint32_t place_id) {
  place *p = backing_place(b, place_id);
  leave(b, place_id);
  p->state = PLACE_BROKEN;
  place_list_add(b, &b->broken, place_id);
  backing_chunk(b, p->chunk)->aliases++;
  backing_tell(b, VMP_BACKING_RETIRED, p->chunk, p->slot, p->slots, NULL);
  settle(b, p->chunk);
}

// ---- joining ----

void share_commit_joined(vmp_backing *b, uint32_t chunk_id, uint32_t place_id, uint32_t home_id, const place *joined) {
  chunk *c = backing_chunk(b, chunk_id);
  vmp_node_give(&b->places, home_id);  // leave_home takes it again, where it needs one
  if (c->shares == 0) (void)leave_home(b, chunk_id);
  for (uint32_t id = c->shares; id != 0; id = backing_place(b, id)->next_share) log_window(b, backing_place(b, id));
  place *p = backing_place(b, place_id);
  *p = *joined;
  p->chunk = chunk_id;
  p->state = PLACE_SHARED;
  p->next_share = c->shares;
  c->shares = place_id;
  c->live += p->live;
  chunk_set_moved(&b->chunks, c, vmp_fence_merge(c->moved, p->fence));
  if (p->lost != 0) b->lost_bytes += size_of(b, p);
  backing_set_words(b, p->slot, p->slots, WORD_PLACE | place_id);
  vmp_backing_change shared = {.from = address_beside(b, place_id)};
  backing_tell(b, VMP_BACKING_SHARED, chunk_id, p->slot, p->slots, &shared);
  log_window(b, p);
  settle(b, chunk_id);
}

bool share_heal(vmp_backing *b, uint32_t chunk_id, uint64_t *most, vmp_backing_calls *calls) {
  for (uint32_t id = backing_chunk(b, chunk_id)->shares; id != 0 && *most > 0; id = backing_place(b, id)->next_share) {
    place *p = backing_place(b, id);
    if (p->lost == 0) continue;
    (*most)--;
    p->live++;  // the place stays meanwhile
    backing_chunk(b, chunk_id)->live++;
    uint64_t address = backing_slot_address(b, p->slot);
    b->transits++;
    backing_unlock(b);
    calls->set_access++;
    int code = vmp_drv_mem_set_access(b->options.driver, address, (size_t)size_of(b, p), b->access, b->num_access);
    backing_lock(b);
    b->transits--;
    if (code == 0) {
      b->lost_bytes -= size_of(b, p);
      p->lost = 0;
    }
    share_uncount(b, p, VMP_FENCE_NONE);
    backing_wake(b);
    return code == 0;  // the list may be another one now
  }
  return false;
}

// ---- the claim ----

// A claim in the making. A place's node may be gone before the rest of the claim is given back: its end is kept.
typedef struct held_part {
  uint32_t place;
  uint64_t end;
} held_part;

typedef struct shared_claim {
  uint64_t offset, end;
  const vmp_shared_part *parts;
  size_t num_parts, held;  // parts whose place was made
  held_part *made;
  vmp_stream_index stream;
  vmp_effort effort;
  vmp_fence after;
} shared_claim;

static vmp_status hold_parts(vmp_backing *b, shared_claim *s) {
  uint64_t from = s->offset & ~(b->granule_bytes - 1);
  for (; s->held < s->num_parts; s->held++) {
    const vmp_shared_part *part = &s->parts[s->held];
    if (part->offset < from || part->offset >= s->end || part->offset % b->granule_bytes != 0) {
      return vmp_fail(VMP_ERROR_INVALID_VALUE, "part %llu of a shared claim lies outside it, or before another",
                      (unsigned long long)s->held);
    }
    held_part *made = &s->made[s->held];
    vmp_status status = hold(b, part, &made->place, &s->after);
    if (status != VMP_OK) return status;
    const place *p = backing_place(b, made->place);
    from = made->end = base_of(b, p) + size_of(b, p);
  }
  return VMP_OK;
}

// rest_before: the range that part `i` (the end, for the number of parts) has before it. False: none.
static bool rest_before(const shared_claim *s, size_t i, uint64_t *out_offset, uint64_t *out_bytes) {
  uint64_t from = i == 0 ? s->offset : s->made[i - 1].end, to = i < s->num_parts ? s->parts[i].offset : s->end;
  *out_offset = from;
  *out_bytes = from < to ? to - from : 0;
  return from < to;
}

static void release_rest(vmp_backing *b, const shared_claim *s, size_t count) {
  vmp_backing_ops ops = vmp_backing_get_ops(b);
  uint64_t offset, bytes;
  for (size_t i = 0; i < count; i++) {
    if (rest_before(s, i, &offset, &bytes)) ops.release(b, offset, bytes, VMP_FENCE_NONE);
  }
}

static vmp_status claim_rest(vmp_backing *b, shared_claim *s) {
  vmp_gather_report ignored = {0};
  uint64_t offset, bytes;
  for (size_t i = 0; i <= s->num_parts; i++) {
    if (!rest_before(s, i, &offset, &bytes)) continue;
    vmp_fence after = VMP_FENCE_NONE;
    vmp_status status = backing_claim(b, offset, bytes, s->stream, s->effort, false, &ignored, &after);
    if (status != VMP_OK) {
      release_rest(b, s, i);
      return status;
    }
    s->after = vmp_fence_merge(s->after, after);
  }
  return VMP_OK;
}

// map_parts makes the mappings of all parts, or of none.
static vmp_status map_parts(vmp_backing *b, shared_claim *s) {
  plan p = {0};
  bool room = true;
  size_t planned = 0;
  for (; planned < s->num_parts && room; planned += room) room = plan_add_shared(b, &p, s->made[planned].place);
  if (!room) {
    plan_undo_records(b, &p);
    for (; planned < s->num_parts; planned++) share_drop(b, s->made[planned].place);
    plan_free(&p);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a mapping");
  }
  uint64_t ignored = UINT64_MAX;
  vmp_status status = plan_execute(b, &p, &ignored);
  plan_free(&p);
  return status;
}

vmp_status vmp_backing_claim_shared(vmp_backing *b, uint64_t offset, uint64_t bytes, const vmp_shared_part *parts,
                                    size_t num_parts, vmp_stream_index stream, vmp_effort effort,
                                    vmp_fence *out_fence) {
  shared_claim s = {.offset = offset,
                    .end = offset + bytes,
                    .parts = parts,
                    .num_parts = num_parts,
                    .stream = stream,
                    .effort = effort};
  if (effort == VMP_EFFORT_MAPPED) return vmp_fail(VMP_ERROR_BUSY, "the range is not wholly mapped");
  s.made = vmp_mem_calloc(num_parts + 1, sizeof *s.made);
  if (s.made == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to plan a claim");
  vmp_status status = hold_parts(b, &s);
  if (status == VMP_OK) status = claim_rest(b, &s);
  if (status == VMP_OK) {
    status = map_parts(b, &s);
    s.held = 0;  // made, or undone
    if (status != VMP_OK) release_rest(b, &s, num_parts + 1);
  }
  for (size_t i = 0; i < s.held; i++) share_drop(b, s.made[i].place);
  vmp_mem_free(s.made);
  if (status == VMP_OK) *out_fence = s.after;
  return status;
}

bool vmp_backing_is_shared(const vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  while (slot < end) {
    uint32_t word = backing_word(b, slot);
    if (share_at(b, word) != NULL) return true;
    slot = word_is_home(word)
               ? backing_chunk(b, word & WORD_INDEX)->home + chunk_slots(backing_chunk(b, word & WORD_INDEX))
               : slot + 1;
  }
  return false;
}

void vmp_backing_keep_apart(vmp_backing *b, uint64_t offset, uint64_t bytes) {
  uint64_t slot = backing_first_slot(b, offset), end = backing_end_slot(b, offset, bytes);
  for (; slot < end; slot++) {
    uint32_t word = backing_word(b, slot);
    const place *shared = share_at(b, word);
    uint32_t id = shared != NULL ? shared->chunk : word_is_home(word) ? word & WORD_INDEX : 0;
    if (id != 0 && backing_chunk(b, id)->state == CHUNK_LIVE) backing_chunk(b, id)->apart = 1;
  }
}

// ---- the checker ----

static void check_one(const vmp_backing *b, uint32_t chunk_id, uint32_t id, vmp_report *report) {
  const place *p = backing_place(b, id);
  const chunk *c = backing_chunk(b, chunk_id);
  if (p->chunk != chunk_id || p->slots != chunk_slots(c) || (p->state != PLACE_SHARED && p->state != PLACE_TRANSIT)) {
    vmp_report_fault(report, "backing: place %u in the list of shared chunk %u is another's, or no mapping", id,
                     chunk_id);
    return;
  }
  if (p->low > p->high || p->high > chunk_bytes(&b->chunks, c)) {
    vmp_report_fault(report, "backing: the window of place %u ends before it begins, or beyond its chunk", id);
  }
  for (uint64_t slot = p->slot; slot < p->slot + p->slots; slot++) {
    if (backing_word(b, slot) == (WORD_PLACE | id)) continue;
    vmp_report_fault(report, "backing: place %u of shared chunk %u lies at slot %llu, which doesn't name it", id,
                     chunk_id, (unsigned long long)slot);
  }
}

// window_bytes adds up the windows and says whether two of them overlap.
static uint64_t window_bytes(const vmp_backing *b, const chunk *c, bool *out_overlap) {
  uint64_t bytes = 0;
  *out_overlap = false;
  for (uint32_t id = c->shares; id != 0; id = backing_place(b, id)->next_share) {
    const place *p = backing_place(b, id);
    bytes += p->high - p->low;
    for (uint32_t other = p->next_share; other != 0; other = backing_place(b, other)->next_share) {
      const place *q = backing_place(b, other);
      if (p->low < q->high && q->low < p->high && p->low < p->high && q->low < q->high) *out_overlap = true;
    }
  }
  return bytes;
}

void share_check(const vmp_backing *b, uint32_t chunk_id, uint64_t *places, vmp_report *report) {
  const chunk *c = backing_chunk(b, chunk_id);
  uint64_t live = 0, count = 0, made = 0, empty = 0;
  for (uint32_t id = c->shares; id != 0; id = backing_place(b, id)->next_share) {
    if (id > b->places.touched || count++ > b->places.used) {
      vmp_report_fault(report, "backing: the list of shared chunk %u leads astray", chunk_id);
      return;
    }
    const place *p = backing_place(b, id);
    check_one(b, chunk_id, id, report);
    live += p->live;
    if (p->state != PLACE_SHARED) continue;
    made++;
    if (p->live == 0) empty++;
  }
  *places += made;
  bool overlap;
  if (window_bytes(b, c, &overlap) != chunk_bytes(&b->chunks, c) || overlap)
    vmp_report_fault(report, "backing: the windows of shared chunk %u don't tile it", chunk_id);
  if (count < 2)
    vmp_report_fault(report, "backing: shared chunk %u has %llu places", chunk_id, (unsigned long long)count);
  if (live != c->live) {
    vmp_report_fault(report, "backing: shared chunk %u has %u live claims, its places %llu", chunk_id, c->live,
                     (unsigned long long)live);
  }
  if (empty > 0 && made > 1)
    vmp_report_fault(report, "backing: shared chunk %u keeps an empty place beside another", chunk_id);
  if (c->home != UINT64_MAX || c->state != CHUNK_LIVE)
    vmp_report_fault(report, "backing: shared chunk %u has a home, or is not live", chunk_id);
}
