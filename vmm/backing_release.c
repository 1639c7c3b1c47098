// backing_release.c: memory back to the device: trim, and making room for chunks of other sizes.
//
// Only idle chunks go: spare ones, and parked ones whose work the host has seen complete and that no retiring place
// still shows. Nothing here allocates host memory.
#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"

static bool can_go(const vmp_backing *b, const chunk *c) {
  return c->aliases == 0 && vmp_clock_known_complete(b->options.clock, chunk_users(c));
}

static void start_release(vmp_backing *b, uint32_t id, removal *out) {
  chunk *c = backing_chunk(b, id);
  bool mapped = c->state == CHUNK_PARKED;
  chunk_to_transit(&b->chunks, id);
  *out = mapped ? backing_home_removal(b, id) : (removal){.slot = UINT64_MAX, .id = id};
  out->handle = c->handle;
  if (mapped) backing_log_change(b, c->home, chunk_slots(c));
}

// run_release unmaps and releases a batch of chunks in transit (MAY UNLOCK) and returns the bytes that went back to the
// device. *first_error: the first failure.
static uint64_t run_release(vmp_backing *b, removal *list, size_t count, vmp_status *first_error, uint64_t *out_stuck,
                            vmp_backing_calls *calls) {
  callback_list callbacks;
  callbacks_copy(b, &callbacks);
  b->transits++;
  backing_unlock(b);
  size_t mapped = 0;
  for (size_t i = 0; i < count; i++) {  // spares last
    if (list[i].slots == 0) continue;
    removal swap = list[mapped];
    list[mapped] = list[i];
    list[i] = swap;
    mapped++;
  }
  calls->unmap += backing_unmap_batch(b, list, mapped, &callbacks);
  for (size_t i = 0; i < count; i++) {
    vmp_call call = VMP_CALL_mem_unmap;
    int code = list[i].code;
    if (code == 0) {
      call = VMP_CALL_mem_release;
      calls->release++;
      code = list[i].release_code = vmp_drv_mem_release(b->options.driver, list[i].handle);
    }
    // Still mapped and in use: whoever dropped his registration may make it again.
    if (list[i].code != 0)
      callbacks_after_map(&callbacks, list[i].address, list[i].slots << b->granule_log2, list[i].generation);
    if (code != 0 && *first_error == VMP_OK) {
      *first_error = vmp_driver_fail(b->options.driver, call, code, "memory was to go back to the device");
    }
  }
  backing_lock(b);
  b->transits--;
  callbacks_done(b, &callbacks);
  uint64_t released = 0;
  for (size_t i = 0; i < count; i++) {
    chunk *c = backing_chunk(b, list[i].id);
    uint64_t bytes = chunk_bytes(&b->chunks, c);
    if (list[i].code != 0) {  // still mapped, still with access
      chunk_back_to_parked(&b->chunks, list[i].id);
      backing_log_change(b, c->home, chunk_slots(c));
      *out_stuck += bytes;
      continue;
    }
    if (list[i].slots > 0) backing_home_unmapped(b, list[i].id);
    if (list[i].release_code != 0) {
      chunk_to_spare(&b->chunks, list[i].id);
      *out_stuck += bytes;
      continue;
    }
    uint64_t slots = chunk_slots(c);
    chunk_drop(&b->chunks, list[i].id);
    b->chunks.released++;
    backing_tell(b, VMP_BACKING_RELEASED, list[i].id, UINT64_MAX, slots, NULL);
    released += bytes;
  }
  backing_wake(b);
  return released;
}

// wanted_bytes: how much is to be found; `exceed`: the last chunk may bring more than that.
typedef struct wanted_bytes {
  uint64_t bytes;
  bool exceed;
} wanted_bytes;

static bool is_wanted(const wanted_bytes *wanted, uint64_t found, uint64_t size) {
  return found < wanted->bytes && (wanted->exceed || size <= wanted->bytes - found);
}

// collect_idle puts up to `most` idle chunks in transit until what is wanted has been found: spares first, then
// parked ones, large ones first, each size oldest first, pages of regions last.
static size_t collect_idle(vmp_backing *b, wanted_bytes wanted, size_t most, removal *list) {
  size_t count = 0;
  uint64_t found = 0;
  for (unsigned order = CHUNK_ORDERS; order-- > 0;) {
    uint64_t size = b->granule_bytes << order;
    while (count < most && is_wanted(&wanted, found, size) && b->chunks.spare[order].head != 0) {
      uint32_t id = b->chunks.spare[order].head;
      if (backing_chunk(b, id)->aliases != 0) break;
      found += size;
      start_release(b, id, &list[count++]);
    }
  }
  for (unsigned i = 0; i < PARKED_LISTS; i++) {
    uint32_t next;
    unsigned at = i < CHUNK_ORDERS ? CHUNK_ORDERS - 1 - i : PARKED_LISTS - 1 - (i - CHUNK_ORDERS);
    uint64_t size = b->granule_bytes << at % CHUNK_ORDERS;
    for (uint32_t id = b->chunks.parked[at].head; id != 0 && count < most && is_wanted(&wanted, found, size);
         id = next) {
      next = backing_chunk(b, id)->next;
      if (!can_go(b, backing_chunk(b, id))) continue;
      found += size;
      start_release(b, id, &list[count++]);
    }
  }
  return count;
}

vmp_status vmp_backing_give_back(vmp_backing *b, uint64_t keep_bytes, uint64_t most_chunks, uint64_t *released,
                                 vmp_backing_calls *calls) {
  vmp_status first_error = VMP_OK;
  uint64_t stuck = 0;
  while (b->chunks.held_bytes > keep_bytes && stuck == 0) {
    removal list[REMOVAL_BATCH];
    size_t most = most_chunks < REMOVAL_BATCH ? (size_t)most_chunks : REMOVAL_BATCH;
    size_t count = collect_idle(b, (wanted_bytes){b->chunks.held_bytes - keep_bytes, true}, most, list);
    if (count == 0) break;
    most_chunks -= count;
    *released += run_release(b, list, count, &first_error, &stuck, calls);
  }
  return first_error;
}

vmp_status vmp_backing_give_back_idle(vmp_backing *b, uint64_t most_bytes, uint64_t most_chunks, uint64_t *released,
                                      vmp_backing_calls *calls) {
  vmp_status first_error = VMP_OK;
  uint64_t stuck = 0, done = 0;
  while (done < most_bytes && stuck == 0) {
    removal list[REMOVAL_BATCH];
    size_t most = most_chunks < REMOVAL_BATCH ? (size_t)most_chunks : REMOVAL_BATCH;
    size_t count = collect_idle(b, (wanted_bytes){most_bytes - done, false}, most, list);
    if (count == 0) break;
    most_chunks -= count;
    done += run_release(b, list, count, &first_error, &stuck, calls);
  }
  *released += done;
  return first_error;
}

typedef bool (*offset_fn)(const void *self, uint64_t offset);

static size_t collect_where(vmp_backing *b, offset_fn in, const void *self, removal *list) {
  size_t count = 0;
  for (unsigned at = 0; at < PARKED_LISTS; at++) {
    uint32_t next;
    for (uint32_t id = b->chunks.parked[at].head; id != 0 && count < REMOVAL_BATCH; id = next) {
      const chunk *c = backing_chunk(b, id);
      next = c->next;
      uint64_t first = c->home << b->granule_log2, last = ((c->home + chunk_slots(c)) << b->granule_log2) - 1;
      if (can_go(b, c) && (in(self, first) || in(self, last))) start_release(b, id, &list[count++]);
    }
  }
  return count;
}

vmp_status vmp_backing_give_back_where(vmp_backing *b, offset_fn in, const void *self, uint64_t *bytes,
                                       uint64_t *chunks) {
  vmp_status first_error = VMP_OK;
  uint64_t stuck = 0;
  vmp_backing_calls calls = {0};
  while (stuck == 0) {
    removal list[REMOVAL_BATCH];
    uint64_t before = b->chunks.released;
    size_t count = collect_where(b, in, self, list);
    if (count == 0) break;
    *bytes += run_release(b, list, count, &first_error, &stuck, &calls);
    *chunks += b->chunks.released - before;
  }
  return first_error;
}

vmp_status vmp_backing_trim(vmp_backing *b, uint64_t keep_bytes, vmp_backing_trim_report *out_report) {
  uint64_t released = 0;
  vmp_backing_calls ignored = {0};
  (void)vmp_backing_poll(b);
  vmp_status first_error = vmp_backing_give_back(b, keep_bytes, UINT64_MAX, &released, &ignored);
  if (out_report != NULL) {
    uint64_t pending = 0;
    for (unsigned at = 0; at < PARKED_LISTS; at++) {
      for (uint32_t id = b->chunks.parked[at].head; id != 0; id = backing_chunk(b, id)->next) {
        if (!can_go(b, backing_chunk(b, id))) pending += chunk_bytes(&b->chunks, backing_chunk(b, id));
      }
    }
    uint64_t idle = b->chunks.parked_bytes + b->chunks.spare_bytes;
    out_report->released_bytes = released;
    out_report->kept_pending_bytes = pending;
    out_report->kept_other_bytes = idle - pending + b->chunks.broken_bytes;
    out_report->kept_pinned_bytes = backing_pinned_only_bytes(b);
    out_report->kept_live_bytes = b->chunks.held_bytes - idle - b->chunks.broken_bytes - out_report->kept_pinned_bytes;
  }
  return first_error;
}

// first_idle finds a chunk of one size that can go: a spare one, the oldest parked one, with `pages` one of a region's.
static uint32_t first_idle(const vmp_backing *b, unsigned order, bool pages) {
  uint32_t id = b->chunks.spare[order].head;
  if (id != 0) return id;
  id = b->chunks.parked[pages ? CHUNK_ORDERS + order : order].head;
  while (id != 0 && !can_go(b, backing_chunk(b, id))) id = backing_chunk(b, id)->next;
  return id;
}

// chunk_to_release picks the first chunk to give back for `bytes`: of the smallest size that suffices, else of the
// largest there is. 0: none can go.
static uint32_t chunk_to_release(const vmp_backing *b, uint64_t bytes, bool pages) {
  uint32_t best = 0;
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    uint32_t id = first_idle(b, order, pages);
    if (id == 0) continue;
    best = id;
    if ((b->granule_bytes << order) >= bytes) break;
  }
  return best;
}

uint64_t backing_release_for(vmp_backing *b, uint64_t bytes) {
  removal list[REMOVAL_BATCH];
  size_t count = 0;
  uint64_t found = 0, stuck = 0;
  (void)vmp_backing_poll(b);
  while (found < bytes && count < REMOVAL_BATCH) {
    uint32_t id = chunk_to_release(b, bytes - found, false);
    if (id == 0) id = chunk_to_release(b, bytes - found, true);
    if (id == 0) break;
    found += chunk_bytes(&b->chunks, backing_chunk(b, id));
    start_release(b, id, &list[count++]);
  }
  vmp_status ignored = VMP_OK;
  vmp_backing_calls uncounted = {0};
  return count == 0 ? 0 : run_release(b, list, count, &ignored, &stuck, &uncounted);
}
