// backing.c: reservations, the slot table, addresses, statistics. backing_internal.h says which file does what.
#include "vmm/backing.h"

#include <string.h>

#include "vmm/align.h"
#include "vmm/backing_internal.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

// ---- lock hooks ----

void backing_lock(vmp_backing *b) {
  if (b->options.hooks.lock != NULL) b->options.hooks.lock(b->options.hooks.self);
}

void backing_unlock(vmp_backing *b) {
  if (b->options.hooks.unlock != NULL) b->options.hooks.unlock(b->options.hooks.self);
}

void backing_wake(vmp_backing *b) {
  if (b->options.hooks.wake_all != NULL) b->options.hooks.wake_all(b->options.hooks.self);
}

bool vmp_backing_wait_transit(vmp_backing *b) {
  if (b->transits == 0 || b->options.hooks.wait == NULL) return false;
  b->options.hooks.wait(b->options.hooks.self);
  return true;
}

// ---- creation ----

static bool set_up_access(vmp_backing *b) {
  const vmp_backing_options *options = &b->options;
  b->access = vmp_mem_calloc(options->num_peers + 1, sizeof *b->access);
  b->peers = vmp_mem_calloc(options->num_peers + 1, sizeof *b->peers);
  if (b->access == NULL || b->peers == NULL) return false;
  for (size_t i = 0; i <= options->num_peers; i++) {
    int ordinal = i == 0 ? options->device : options->peers[i - 1];
    if (i > 0) b->peers[i - 1] = ordinal;
    b->access[i].location = (vmp_cu_location){VMP_CU_LOCATION_DEVICE, ordinal};
    b->access[i].flags = VMP_CU_ACCESS_READWRITE;
  }
  b->num_access = options->num_peers + 1;
  b->options.peers = b->peers;
  return true;
}

vmp_status vmp_backing_create(vmp_backing **out_backing, const vmp_backing_options *options) {
  uint64_t granule = options->granule_bytes;
  if (!vmp_is_power_of_two(granule) || granule > VMP_OFFSET_CONGRUENCE) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the granule is %llu bytes; it must be a power of two up to 64 GiB",
                    (unsigned long long)granule);
  }
  uint64_t max = options->chunk_max_bytes;
  if (!vmp_is_power_of_two(max) || max < granule || max > VMP_OFFSET_CONGRUENCE) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE,
                    "chunk_max is %llu bytes; it must be a power of two of granules (%llu) up to 64 GiB",
                    (unsigned long long)max, (unsigned long long)granule);
  }
  vmp_backing *b = vmp_mem_calloc(1, sizeof *b);
  if (b == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the slot table");
  b->options = *options;
  b->granule_bytes = granule;
  b->granule_log2 = vmp_log2(granule);
  b->chunk_max_order = vmp_log2(max / granule);
  if (b->chunk_max_order >= CHUNK_ORDERS) b->chunk_max_order = CHUNK_ORDERS - 1;
  chunk_store_init(&b->chunks, granule);
  b->device_left = UINT64_MAX;
  b->chunks.hard_limit_bytes = options->hard_limit_bytes;
  b->chunks.soft_limit_bytes = options->soft_limit_bytes;
  vmp_node_pool_init(&b->details, sizeof(slot_group));
  vmp_node_pool_init(&b->places, sizeof(place));
  if (!set_up_access(b)) {
    vmp_mem_free(b->access);
    vmp_mem_free(b->peers);
    vmp_mem_free(b);
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the list of devices");
  }
  *out_backing = b;
  return VMP_OK;
}

// A range that is asked for until the driver agrees, halving from `bytes` down to `minimum`.
static int reserve_halving(vmp_backing *b, uint64_t bytes, uint64_t minimum, uint64_t *out_bytes, vmp_cu_ptr *out_ptr) {
  uint64_t alignment = b->options.chunk_max_bytes;
  for (;;) {
    int code = vmp_drv_mem_address_reserve(b->options.driver, out_ptr, (size_t)bytes, (size_t)alignment, 0, 0);
    if (code == 0) {
      *out_bytes = bytes;
      return 0;
    }
    uint64_t half = vmp_align_down(bytes / 2, b->granule_bytes);
    if (code != VMP_CU_OUT_OF_MEMORY || half < minimum || half == 0) return code;
    bytes = half;
  }
}

static vmp_status add_reservation(vmp_backing *b, uint64_t address, uint64_t bytes, uint64_t *out_offset) {
  uint64_t slots = bytes >> b->granule_log2;
  uint64_t num_leaves = (slots + LEAF_SLOTS - 1) / LEAF_SLOTS;
  // The smallest offset past everything so far that equals the address modulo the congruence, leaving a hole of at
  // least one slot, so that no block and no run can reach from one reservation into the next.
  uint64_t rest = address & (VMP_OFFSET_CONGRUENCE - 1);
  uint64_t base = vmp_align_down(b->next_offset, VMP_OFFSET_CONGRUENCE) + rest;
  uint64_t end;
  if (base < b->next_offset) base += VMP_OFFSET_CONGRUENCE;
  if (!vmp_add(base, bytes, &end) || !vmp_add(end, b->granule_bytes, &end)) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "the pool's offset space is used up");
  }
  uint32_t **leaves = vmp_mem_calloc((size_t)num_leaves, sizeof *leaves);
  if (leaves == NULL)
    return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for a slot table of %llu slots",
                    (unsigned long long)slots);
  reservation *r = &b->reservations[b->num_reservations++];
  *r = (reservation){
      .address = address, .bytes = bytes, .first_slot = base >> b->granule_log2, .slots = slots, .leaves = leaves};
  r->high_slot = r->first_slot;
  b->leaf_bytes += num_leaves * sizeof *leaves;
  b->next_offset = end;
  *out_offset = base;
  return VMP_OK;
}

vmp_status vmp_backing_reserve(vmp_backing *b, uint64_t bytes, uint64_t minimum_bytes, uint64_t *out_offset,
                               uint64_t *out_bytes) {
  if (b->num_reservations == MAX_RESERVATIONS) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "all %u reservations of the pool are in use", MAX_RESERVATIONS);
  }
  uint64_t rounded;
  if (bytes == 0 || !vmp_align_up(bytes, b->granule_bytes, &rounded) || rounded > SIZE_MAX) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "%llu bytes of address space can't be reserved",
                    (unsigned long long)bytes);
  }
  vmp_cu_ptr address = 0;
  uint64_t got = 0;
  b->transits++;
  backing_unlock(b);
  int code = reserve_halving(b, rounded, minimum_bytes, &got, &address);
  backing_lock(b);
  b->transits--;
  backing_wake(b);
  if (code == VMP_CU_OUT_OF_MEMORY) {
    return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE,
                    "the driver has no %llu bytes of address space left (this is not about physical memory)",
                    (unsigned long long)minimum_bytes);
  }
  if (code != 0) {
    return vmp_driver_fail(b->options.driver, VMP_CALL_mem_address_reserve, code,
                           "%llu bytes of address space were asked for", (unsigned long long)rounded);
  }
  // Another thread may have used up the table while the lock was away.
  vmp_status status =
      b->num_reservations < MAX_RESERVATIONS
          ? add_reservation(b, address, got, out_offset)
          : vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "all %u reservations of the pool are in use", MAX_RESERVATIONS);
  if (status != VMP_OK) {
    (void)vmp_drv_mem_address_free(b->options.driver, address, (size_t)got);
    return status;
  }
  *out_bytes = got;
  return VMP_OK;
}

// ---- the slot table ----

// ensure_leaves makes the leaves of a range. NULL: it lies in no reservation, or host memory ran out. (Leaves that were
// made are kept: an empty leaf changes nothing.)
static reservation *ensure_leaves(vmp_backing *b, uint64_t slot, uint64_t slots) {
  reservation *r = backing_reservation_of(b, slot);
  if (r == NULL || slots == 0) return NULL;
  uint64_t first = (slot - r->first_slot) / LEAF_SLOTS, last = (slot + slots - 1 - r->first_slot) / LEAF_SLOTS;
  for (uint64_t i = first; i <= last; i++) {
    if (r->leaves[i] != NULL) continue;
    r->leaves[i] = vmp_mem_calloc(LEAF_GROUPS, sizeof **r->leaves);
    if (r->leaves[i] == NULL) return NULL;
    b->leaf_bytes += LEAF_GROUPS * sizeof **r->leaves;
  }
  return r;
}

// group_at: the word of the group that holds a slot (by its index in the reservation), whose leaf exists.
static uint32_t *group_at(const reservation *r, uint64_t index) {
  return &r->leaves[index / LEAF_SLOTS][index % LEAF_SLOTS / GROUP_SLOTS];
}

// ensure_detail gives a group a word for each slot. False: no host memory.
static bool ensure_detail(vmp_backing *b, uint32_t *group) {
  if (*group >= WORD_DETAIL) return true;
  if (b->details.touched >= WORD_INDEX || !vmp_node_pool_reserve(&b->details, 1)) return false;
  uint32_t index = vmp_node_take(&b->details);
  slot_group *detail = backing_detail(b, index);
  for (unsigned i = 0; i < GROUP_SLOTS; i++) detail->words[i] = *group;
  *group = WORD_DETAIL | index;
  return true;
}

bool backing_prepare_slots(vmp_backing *b, uint64_t slot, uint64_t slots) {
  const reservation *r = ensure_leaves(b, slot, slots);
  if (r == NULL) return false;
  uint64_t first = slot - r->first_slot, end = first + slots;
  if (first % GROUP_SLOTS != 0 || slots < GROUP_SLOTS) {
    if (!ensure_detail(b, group_at(r, first))) return false;
  }
  return end % GROUP_SLOTS == 0 || ensure_detail(b, group_at(r, end - 1));
}

bool backing_prepare_details(vmp_backing *b, uint64_t slot, uint64_t slots) {
  const reservation *r = ensure_leaves(b, slot, slots);
  if (r == NULL) return false;
  uint64_t first = (slot - r->first_slot) / GROUP_SLOTS, last = (slot + slots - 1 - r->first_slot) / GROUP_SLOTS;
  for (uint64_t i = first; i <= last; i++) {
    if (!ensure_detail(b, group_at(r, i * GROUP_SLOTS))) return false;
  }
  return true;
}

// set_group writes one word to a whole group. Only where somebody takes all of it does it become one word again: a range
// that is unmapped may be about to be mapped slot by slot.
static void set_group(vmp_backing *b, uint32_t *group, uint32_t word) {
  if (*group < WORD_DETAIL) {
    *group = word;
    return;
  }
  uint32_t index = *group & WORD_INDEX;
  if (word != 0) {
    vmp_node_give(&b->details, index);
    *group = word;
    return;
  }
  for (unsigned i = 0; i < GROUP_SLOTS; i++) backing_detail(b, index)->words[i] = 0;
}

void backing_set_words(vmp_backing *b, uint64_t slot, uint64_t slots, uint32_t word) {
  reservation *r = backing_reservation_of(b, slot);
  for (uint64_t i = slot - r->first_slot, end = i + slots; i < end;) {
    uint32_t *group = group_at(r, i);
    uint64_t next = (i / GROUP_SLOTS + 1) * GROUP_SLOTS;
    if (i % GROUP_SLOTS == 0 && next <= end) {
      set_group(b, group, word);
    } else {
      slot_group *detail = backing_detail(b, *group & WORD_INDEX);
      for (uint64_t at = i; at < next && at < end; at++) detail->words[at % GROUP_SLOTS] = word;
    }
    i = next;
  }
  if (word != 0 && slot + slots > r->high_slot) r->high_slot = slot + slots;
}

uint64_t backing_skip_unmapped(const vmp_backing *b, uint64_t slot, uint64_t end) {
  const reservation *r = backing_reservation_of(b, slot);
  if (r == NULL) return slot;
  if (end > r->first_slot + r->slots) end = r->first_slot + r->slots;
  while (slot < end) {
    if (slot >= r->high_slot) return end;
    uint64_t index = slot - r->first_slot;
    if (r->leaves[index / LEAF_SLOTS] == NULL) {
      slot += LEAF_SLOTS - index % LEAF_SLOTS;
    } else if (*group_at(r, index) == 0) {
      slot += GROUP_SLOTS - index % GROUP_SLOTS;
    } else if (backing_word_in(b, r, slot) == 0) {
      slot++;
    } else {
      return slot;
    }
  }
  return end;
}

uint64_t backing_slot_address(const vmp_backing *b, uint64_t slot) {
  const reservation *r = backing_reservation_of(b, slot);
  return r->address + ((slot - r->first_slot) << b->granule_log2);
}

uint64_t vmp_backing_address(const vmp_backing *b, uint64_t offset) {
  const reservation *r = backing_reservation_of(b, offset >> b->granule_log2);
  return r == NULL ? 0 : r->address + (offset - (r->first_slot << b->granule_log2));
}

bool vmp_backing_offset(const vmp_backing *b, uint64_t address, uint64_t *out_offset) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    if (address - r->address < r->bytes) {
      *out_offset = (r->first_slot << b->granule_log2) + (address - r->address);
      return true;
    }
  }
  return false;
}

// ---- places and changes ----

void place_list_add(vmp_backing *b, place_list *list, uint32_t id) {
  place *p = backing_place(b, id);
  p->listed = list == &b->retiring ? 1 : 2;
  p->prev = list->tail;
  p->next = 0;
  if (list->tail != 0)
    backing_place(b, list->tail)->next = id;
  else
    list->head = id;
  list->tail = id;
  list->count++;
  list->slots += p->slots;
}

void place_list_remove(vmp_backing *b, place_list *list, uint32_t id) {
  place *p = backing_place(b, id);
  if (p->prev != 0)
    backing_place(b, p->prev)->next = p->next;
  else
    list->head = p->next;
  if (p->next != 0)
    backing_place(b, p->next)->prev = p->prev;
  else
    list->tail = p->prev;
  p->prev = p->next = 0;
  p->listed = 0;
  list->count--;
  list->slots -= p->slots;
}

void backing_log_change(vmp_backing *b, uint64_t slot, uint64_t slots) {
  uint64_t offset = slot << b->granule_log2, bytes = slots << b->granule_log2;
  if (b->change_serial > b->change_seen) {  // a change that goes on from the last one, which nobody has read, is one
    change *last = &b->changes[(b->change_serial - 1) % CHANGE_LOG];
    uint64_t end = last->offset + last->bytes;
    if (offset <= end && last->offset <= offset + bytes) {
      if (offset < last->offset) last->offset = offset;
      last->bytes = (end > offset + bytes ? end : offset + bytes) - last->offset;
      return;
    }
  }
  b->changes[b->change_serial % CHANGE_LOG] = (change){offset, bytes};
  b->change_serial++;
}

// ---- limits and statistics ----

void vmp_backing_set_limits(vmp_backing *b, uint64_t hard_limit_bytes, uint64_t soft_limit_bytes) {
  b->chunks.hard_limit_bytes = hard_limit_bytes;
  b->chunks.soft_limit_bytes = soft_limit_bytes;
}

void vmp_backing_set_may_create(vmp_backing *b, bool may_create) { b->options.may_create = may_create; }

void vmp_backing_prefer_parked(vmp_backing *b, bool prefer) { b->prefer_parked = prefer; }

uint64_t vmp_backing_pending_bytes(const vmp_backing *b) {
  uint64_t bytes = 0;
  for (unsigned list = 0; list < PARKED_LISTS; list++) {
    for (uint32_t id = b->chunks.parked[list].head; id != 0; id = backing_chunk(b, id)->next) {
      const chunk *c = backing_chunk(b, id);
      if (!vmp_clock_known_complete(b->options.clock, chunk_users(c))) bytes += chunk_bytes(&b->chunks, c);
    }
  }
  return bytes;
}

uint32_t vmp_backing_walk_idle(const vmp_backing *b, uint32_t next, uint32_t most, uint64_t by_stream[64],
                               uint64_t *pending, uint64_t *complete) {
  for (; next <= b->chunks.records.touched && most > 0; next++, most--) {
    const chunk *c = backing_chunk(b, next);
    if (c->used == 0 || (c->state != CHUNK_PARKED && c->state != CHUNK_SPARE)) continue;
    vmp_fence users = c->state == CHUNK_PARKED ? chunk_users(c) : VMP_FENCE_NONE;
    uint64_t bytes = chunk_bytes(&b->chunks, c);
    if (vmp_fence_is_none(users) || vmp_clock_known_complete(b->options.clock, users)) {
      *complete += bytes;
      continue;
    }
    *pending += bytes;
    for (uint64_t rest = users.streams; rest != 0; rest &= rest - 1) by_stream[vmp_lowest_bit(rest)] += bytes;
  }
  return next <= b->chunks.records.touched ? next : 0;
}

uint64_t vmp_backing_least_idle(const vmp_backing *b) { return b->chunks.least_idle_bytes; }

void vmp_backing_reset_least_idle(vmp_backing *b) {
  b->chunks.least_idle_bytes = b->chunks.parked_bytes + b->chunks.spare_bytes;
}

void vmp_backing_reset_peak(vmp_backing *b) { b->chunks.peak_mapped_bytes = b->chunks.mapped_bytes; }

void vmp_backing_get_stats(const vmp_backing *b, vmp_backing_stats *out) {
  memset(out, 0, sizeof *out);
  for (size_t i = 0; i < b->num_reservations; i++) out->reserved_bytes += b->reservations[i].bytes;
  out->reservations = b->num_reservations;
  out->mapped_bytes = b->chunks.mapped_bytes;
  out->peak_mapped_bytes = b->chunks.peak_mapped_bytes;
  out->parked_bytes = b->chunks.parked_bytes;
  out->spare_bytes = b->chunks.spare_bytes;
  out->retiring_bytes = b->retiring.slots << b->granule_log2;
  out->broken_bytes = (b->broken.slots << b->granule_log2) + b->chunks.broken_bytes + b->lost_bytes;
  out->pinned_bytes = b->chunks.pinned_bytes;
  out->chunks = b->chunks.count;
  out->chunks_created = b->chunks.created;
  out->created_bytes = b->chunks.created_bytes;
  out->chunks_released = b->chunks.released;
  out->takes = b->takes;
  out->takes_resized = b->takes_resized;
  out->slots_retired = b->slots_retired;
  out->shares = b->shares;
  out->shared_bytes = b->shared_bytes;
  out->ahead_bytes = b->chunks.ahead_bytes;
  out->ahead_unused_bytes = b->chunks.ahead_unused_bytes;
  out->hard_limit_bytes = b->chunks.hard_limit_bytes;
  out->soft_limit_bytes = b->chunks.soft_limit_bytes;
  out->metadata_bytes = sizeof *b + b->leaf_bytes + chunk_store_metadata_bytes(&b->chunks) +
                        vmp_node_pool_bytes(&b->details) + vmp_node_pool_bytes(&b->places) + b->page_ranges_capacity * sizeof *b->page_ranges;
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    if (b->chunks.parked[order].count > 0) out->largest_parked_bytes = b->granule_bytes << order;
  }
}
