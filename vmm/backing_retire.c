// backing_retire.c: what gives addresses or memory back: old mappings whose work has finished, trim, making room for
// other chunk sizes, mapping ahead, the end.
//
// Removals go in batches: under the lock up to REMOVAL_BATCH mappings are put in transit, without it neighbouring ones
// are unmapped with one call each run, under it again the result is committed. Nothing here allocates host memory but
// map-ahead, which may fail.
#include <stdlib.h>
#include <string.h>

#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

#define CROWDED_PLACES 1024u

static int by_slot(const void *a, const void *b) {
  uint64_t x = ((const removal *)a)->slot, y = ((const removal *)b)->slot;
  return x < y ? -1 : x > y;
}

removal backing_home_removal(const vmp_backing *b, uint32_t id) {
  const chunk *c = backing_chunk(b, id);
  return (removal){.slot = c->home,
                   .slots = chunk_slots(c),
                   .address = backing_slot_address(b, c->home),
                   .generation = c->generation,
                   .id = id};
}

void backing_home_unmapped(vmp_backing *b, uint32_t id) {
  const chunk *c = backing_chunk(b, id);
  uint64_t slot = c->home, slots = chunk_slots(c);
  backing_set_words(b, slot, slots, 0);
  backing_log_change(b, slot, slots);
  backing_tell(b, VMP_BACKING_UNMAPPED, id, slot, slots, NULL);
  chunk_unmapped(&b->chunks, id);
}

// unmap_batch removes the mappings, one call for each run of neighbours. When a run is refused its parts are tried one
// by one, so that one bad mapping doesn't hold up the others. Without the lock.
uint64_t backing_unmap_batch(vmp_backing *b, removal *list, size_t count, const callback_list *callbacks) {
  uint64_t calls = 0;
  for (size_t i = 0; i < count; i++) {
    callbacks_before_unmap(callbacks, list[i].address, list[i].slots << b->granule_log2, list[i].generation);
  }
  qsort(list, count, sizeof *list, by_slot);
  for (size_t first = 0, next; first < count; first = next) {
    next = first + 1;
    while (next < count && list[next].slot == list[next - 1].slot + list[next - 1].slots) next++;
    uint64_t slots = list[next - 1].slot + list[next - 1].slots - list[first].slot;
    int code = vmp_drv_mem_unmap(b->options.driver, list[first].address, (size_t)(slots << b->granule_log2));
    calls++;
    for (size_t i = first; i < next; i++) {
      if (code != 0 && next - first > 1) {
        calls++;
        list[i].code =
            vmp_drv_mem_unmap(b->options.driver, list[i].address, (size_t)(list[i].slots << b->granule_log2));
      } else {
        list[i].code = code;
      }
    }
  }
  return calls;
}

// ---- places ----

static removal removal_of_place(const vmp_backing *b, uint32_t id) {
  const place *p = backing_place(b, id);
  return (removal){.slot = p->slot,
                   .slots = p->slots,
                   .address = backing_slot_address(b, p->slot),
                   .generation = p->generation,
                   .id = id};
}

static size_t collect_places(vmp_backing *b, removal *list, size_t most) {
  size_t count = 0;
  uint32_t next;
  for (uint32_t id = b->broken.head; id != 0 && count < most; id = next) {
    next = backing_place(b, id)->next;
    place_list_remove(b, &b->broken, id);
    list[count++] = removal_of_place(b, id);
  }
  for (uint32_t id = b->retiring.head; id != 0 && count < most; id = next) {
    next = backing_place(b, id)->next;
    if (!vmp_clock_known_complete(b->options.clock, backing_place(b, id)->fence)) continue;
    place_list_remove(b, &b->retiring, id);
    list[count++] = removal_of_place(b, id);
  }
  for (size_t i = 0; i < count; i++) backing_place(b, list[i].id)->state = PLACE_TRANSIT;
  return count;
}

static bool commit_places(vmp_backing *b, const removal *list, size_t count) {
  bool changed = false;
  for (size_t i = 0; i < count; i++) {
    place *p = backing_place(b, list[i].id);
    if (list[i].code != 0) {
      p->state = PLACE_BROKEN;
      place_list_add(b, &b->broken, list[i].id);
      continue;
    }
    backing_chunk(b, p->chunk)->aliases--;
    backing_tell(b, VMP_BACKING_UNMAPPED, p->chunk, p->slot, p->slots, NULL);
    backing_set_words(b, p->slot, p->slots, 0);
    backing_log_change(b, p->slot, p->slots);
    vmp_node_give(&b->places, list[i].id);
    changed = true;
  }
  return changed;
}

// ---- broken chunks: mapped at home, but without the access that their claim needed, and never handed out ----

static size_t collect_broken_chunks(vmp_backing *b, removal *list, size_t most) {
  size_t count = 0;
  if (b->chunks.broken_bytes == 0) return 0;
  for (uint32_t id = 1; id <= b->chunks.records.touched && count < most; id++) {
    if (backing_chunk(b, id)->state != CHUNK_BROKEN) continue;
    list[count++] = backing_home_removal(b, id);
    chunk_to_transit(&b->chunks, id);
  }
  return count;
}

static bool commit_broken_chunks(vmp_backing *b, const removal *list, size_t count) {
  bool changed = false;
  for (size_t i = 0; i < count; i++) {
    if (list[i].code != 0) {
      chunk_to_broken(&b->chunks, list[i].id);
      continue;
    }
    backing_home_unmapped(b, list[i].id);
    chunk_to_spare(&b->chunks, list[i].id);
    changed = true;
  }
  return changed;
}

typedef size_t (*collect_fn)(vmp_backing *b, removal *list, size_t most);
typedef bool (*commit_fn)(vmp_backing *b, const removal *list, size_t count);

// remove_all removes up to *most mappings, and takes their number off it.
static bool remove_all(vmp_backing *b, collect_fn collect, commit_fn commit, uint64_t *most, uint64_t *calls) {
  bool changed = false;
  for (;;) {
    removal list[REMOVAL_BATCH];
    size_t count = collect(b, list, *most < REMOVAL_BATCH ? (size_t)*most : REMOVAL_BATCH);
    if (count == 0) return changed;
    *most -= count;
    callback_list callbacks;
    callbacks_copy(b, &callbacks);
    b->transits++;
    backing_unlock(b);
    *calls += backing_unmap_batch(b, list, count, &callbacks);
    backing_lock(b);
    b->transits--;
    callbacks_done(b, &callbacks);
    bool some = commit(b, list, count);
    changed = changed || some;
    backing_wake(b);
    if (!some || count < REMOVAL_BATCH) return changed;
  }
}

vmp_fence vmp_backing_pending(const vmp_backing *b) {
  vmp_fence pending = VMP_FENCE_NONE;
  for (unsigned list = 0; list < PARKED_LISTS; list++) {
    for (uint32_t id = b->chunks.parked[list].head; id != 0; id = backing_chunk(b, id)->next) {
      const chunk *c = backing_chunk(b, id);
      pending = vmp_fence_merge(pending, chunk_users(c));
    }
  }
  for (uint32_t id = b->retiring.head; id != 0; id = backing_place(b, id)->next) {
    pending = vmp_fence_merge(pending, backing_place(b, id)->fence);
  }
  return vmp_clock_known_complete(b->options.clock, pending) ? VMP_FENCE_NONE : pending;
}

static void poll_clock(vmp_backing *b) {
  vmp_fence pending = vmp_backing_pending(b);
  if (vmp_fence_is_none(pending)) return;
  b->transits++;
  backing_unlock(b);
  (void)vmp_clock_poll(b->options.clock, pending);  // what it can't learn stays pending
  backing_lock(b);
  b->transits--;
  backing_wake(b);
}

bool vmp_backing_poll_some(vmp_backing *b, uint64_t most, vmp_backing_calls *calls) {
  poll_clock(b);
  bool changed = remove_all(b, collect_places, commit_places, &most, &calls->unmap);
  if (remove_all(b, collect_broken_chunks, commit_broken_chunks, &most, &calls->unmap)) changed = true;
  if (b->lost_bytes > 0 && backing_heal_lost(b, most, calls)) changed = true;
  b->polled_places = b->retiring.count;
  return changed;
}

bool vmp_backing_poll(vmp_backing *b) {
  vmp_backing_calls ignored = {0};
  return vmp_backing_poll_some(b, UINT64_MAX, &ignored);
}

void backing_poll_if_crowded(vmp_backing *b) {
  if (b->broken.count > 0 || b->chunks.broken_bytes > 0 || b->lost_bytes > 0 ||
      b->retiring.count >= b->polled_places + CROWDED_PLACES) {
    (void)vmp_backing_poll(b);
  }
}
