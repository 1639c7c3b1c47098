// chunk.c: see chunk.h.
#include "vmm/chunk.h"

#include <string.h>

#include "vmm/memory.h"

void chunk_store_init(chunk_store *store, uint64_t granule_bytes) {
  memset(store, 0, sizeof *store);
  store->granule_bytes = granule_bytes;
  store->hard_limit_bytes = UINT64_MAX;
  store->soft_limit_bytes = UINT64_MAX;
  vmp_node_pool_init_row(&store->records, sizeof(chunk), CHUNK_RECORDS, CHUNK_RECORDS_SHARE);
}

void chunk_store_finish(chunk_store *store) {
  vmp_node_pool_finish(&store->records);
  vmp_mem_free(store->parked_bits);
  store->parked_bits = NULL;
  store->parked_words = 0;
}

uint64_t chunk_store_metadata_bytes(const chunk_store *store) {
  return vmp_node_pool_bytes(&store->records) + store->parked_words * sizeof *store->parked_bits;
}

uint64_t chunk_room(const chunk_store *store, uint64_t limit_bytes) {
  return limit_bytes > store->held_bytes ? limit_bytes - store->held_bytes : 0;
}

// reserve_bit makes room for the next record's bit. False: no host memory.
static bool reserve_bit(chunk_store *store) {
  uint64_t words = store->parked_words, wanted = (store->records.touched + UINT64_C(1)) / 64 + 1;
  if (wanted <= words) return true;
  uint64_t room = words * 2 > wanted ? words * 2 : wanted;
  uint64_t *bits = vmp_mem_resize(store->parked_bits, (size_t)words, (size_t)room, sizeof *bits);
  if (bits == NULL) return false;
  store->parked_bits = bits;
  store->parked_words = room;
  return true;
}

uint32_t chunk_new(chunk_store *store, unsigned order) {
  if (!reserve_bit(store) || !vmp_node_pool_reserve(&store->records, 1)) return 0;
  uint32_t id = vmp_node_take(&store->records);
  chunk *c = chunk_at(store, id);
  c->order = (uint8_t)order;
  c->state = CHUNK_TRANSIT;
  c->used = 1;
  store->held_bytes += chunk_bytes(store, c);
  store->count++;
  return id;
}

static void no_longer_ahead(chunk_store *store, chunk *c) {
  if (c->ahead == 0) return;
  c->ahead = 0;
  store->ahead_unused_bytes -= chunk_bytes(store, c);
}

void chunk_drop(chunk_store *store, uint32_t id) {
  no_longer_ahead(store, chunk_at(store, id));
  chunk_set_moved(store, chunk_at(store, id), VMP_FENCE_NONE);
  store->held_bytes -= chunk_bytes(store, chunk_at(store, id));
  store->count--;
  vmp_node_give(&store->records, id);
}

static void link_after(chunk_store *store, chunk_list *list, uint32_t id, uint32_t prev) {
  chunk *c = chunk_at(store, id);
  c->prev = prev;
  c->next = prev != 0 ? chunk_at(store, prev)->next : list->head;
  if (prev != 0)
    chunk_at(store, prev)->next = id;
  else
    list->head = id;
  if (c->next != 0)
    chunk_at(store, c->next)->prev = id;
  else
    list->tail = id;
  list->count++;
}

static void unlink_chunk(chunk_store *store, chunk_list *list, uint32_t id) {
  chunk *c = chunk_at(store, id);
  if (c->prev != 0)
    chunk_at(store, c->prev)->next = c->next;
  else
    list->head = c->next;
  if (c->next != 0)
    chunk_at(store, c->next)->prev = c->prev;
  else
    list->tail = c->prev;
  c->prev = c->next = 0;
  list->count--;
}

static chunk_list *parked_list(chunk_store *store, const chunk *c) {
  return &store->parked[c->page ? CHUNK_ORDERS + c->order : c->order];
}

static void note_less_idle(chunk_store *store) {
  uint64_t idle = store->parked_bytes + store->spare_bytes;
  if (idle < store->least_idle_bytes) store->least_idle_bytes = idle;
}

// enter_parked puts a chunk into its parked list, behind `prev`.
static void enter_parked(chunk_store *store, uint32_t id, uint32_t prev) {
  chunk *c = chunk_at(store, id);
  c->state = CHUNK_PARKED;
  c->live = 0;
  link_after(store, parked_list(store, c), id, prev);
  store->parked_orders |= UINT64_C(1) << c->order;
  store->parked_bits[id / 64] |= UINT64_C(1) << (id % 64);
  store->parked_bytes += chunk_bytes(store, c);
}

static void leave_parked(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  unlink_chunk(store, parked_list(store, c), id);
  if (store->parked[c->order].head == 0 && store->parked[CHUNK_ORDERS + c->order].head == 0) {
    store->parked_orders &= ~(UINT64_C(1) << c->order);
  }
  store->parked_bits[id / 64] &= ~(UINT64_C(1) << (id % 64));
  store->parked_bytes -= chunk_bytes(store, c);
  note_less_idle(store);
}

void chunk_count_created(chunk_store *store, uint32_t id) {
  store->created++;
  store->created_bytes += chunk_bytes(store, chunk_at(store, id));
}

void chunk_note_ahead(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  c->ahead = 1;
  store->ahead_bytes += chunk_bytes(store, c);
  store->ahead_unused_bytes += chunk_bytes(store, c);
}

void chunk_to_live(chunk_store *store, uint32_t id) {
  leave_parked(store, id);
  no_longer_ahead(store, chunk_at(store, id));
  chunk_at(store, id)->state = CHUNK_LIVE;
  chunk_at(store, id)->page = 0;
}

void chunk_to_parked(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  c->apart = 0;
  c->stamp = ++store->stamp;
  enter_parked(store, id, parked_list(store, c)->tail);
}

void chunk_back_to_parked(chunk_store *store, uint32_t id) {
  const chunk *c = chunk_at(store, id);
  uint32_t prev = parked_list(store, c)->tail;
  while (prev != 0 && chunk_at(store, prev)->stamp > c->stamp) prev = chunk_at(store, prev)->prev;
  enter_parked(store, id, prev);
}

void chunk_to_transit(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  if (c->state == CHUNK_PARKED) {
    leave_parked(store, id);
  } else if (c->state == CHUNK_SPARE) {
    unlink_chunk(store, &store->spare[c->order], id);
    store->spare_bytes -= chunk_bytes(store, c);
    note_less_idle(store);
  } else if (c->state == CHUNK_BROKEN) {
    store->broken_bytes -= chunk_bytes(store, c);
  }
  c->state = CHUNK_TRANSIT;
}

void chunk_to_spare(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  c->state = CHUNK_SPARE;
  c->live = 0;
  c->page = 0;
  link_after(store, &store->spare[c->order], id, store->spare[c->order].tail);
  store->spare_bytes += chunk_bytes(store, c);
}

void chunk_to_broken(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  c->state = CHUNK_BROKEN;
  store->broken_bytes += chunk_bytes(store, c);
}

void chunk_mapped(chunk_store *store, uint32_t id, uint64_t home) {
  chunk *c = chunk_at(store, id);
  c->home = home;
  store->mapped_bytes += chunk_bytes(store, c);
  if (store->mapped_bytes > store->peak_mapped_bytes) store->peak_mapped_bytes = store->mapped_bytes;
}

void chunk_unmapped(chunk_store *store, uint32_t id) {
  chunk *c = chunk_at(store, id);
  c->home = UINT64_MAX;
  store->mapped_bytes -= chunk_bytes(store, c);
}

// check_list walks one list and returns the bytes in it.
static uint64_t check_list(const chunk_store *store, const chunk_list *list, unsigned order, bool page,
                           chunk_state state, const char *name, vmp_report *report) {
  uint64_t count = 0, stamp = 0;
  uint32_t prev = 0;
  for (uint32_t id = list->head; id != 0 && count <= store->count; id = chunk_at(store, id)->next) {
    const chunk *c = chunk_at(store, id);
    count++;
    if (c->state != (uint8_t)state || c->live != 0) {
      vmp_report_fault(report, "chunk: %u in the %s list is in state %u with %u live claims", id, name, c->state,
                       c->live);
    }
    if (c->order != order)
      vmp_report_fault(report, "chunk: %u of order %u is in the %s list of order %u", id, c->order, name, order);
    if ((c->page != 0) != page)
      vmp_report_fault(report, "chunk: %u in the %s list is %s page", id, name, page ? "no" : "a");
    if (c->prev != prev) vmp_report_fault(report, "chunk: %u in the %s list has a wrong backward link", id, name);
    if (state == CHUNK_PARKED && c->stamp <= stamp)
      vmp_report_fault(report, "chunk: %u in the parked list is out of order", id);
    stamp = c->stamp;
    prev = id;
  }
  if (count != list->count || prev != list->tail) {
    vmp_report_fault(report, "chunk: the %s list of order %u counts %llu and holds %llu", name, order,
                     (unsigned long long)list->count, (unsigned long long)count);
  }
  return (count * store->granule_bytes) << order;
}

void chunk_store_check(const chunk_store *store, vmp_report *report) {
  uint64_t parked = 0, spare = 0;
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    parked += check_list(store, &store->parked[order], order, false, CHUNK_PARKED, "parked", report);
    parked +=
        check_list(store, &store->parked[CHUNK_ORDERS + order], order, true, CHUNK_PARKED, "parked pages", report);
    bool any = store->parked[order].head != 0 || store->parked[CHUNK_ORDERS + order].head != 0;
    if ((store->parked_orders >> order & 1) != (any ? 1 : 0)) {
      vmp_report_fault(report, "chunk: the bit of the parked lists of order %u is wrong", order);
    }
    spare += check_list(store, &store->spare[order], order, false, CHUNK_SPARE, "spare", report);
  }
  if (parked != store->parked_bytes) {
    vmp_report_fault(report, "chunk: parked_bytes is %llu and the lists hold %llu",
                     (unsigned long long)store->parked_bytes, (unsigned long long)parked);
  }
  if (spare != store->spare_bytes) {
    vmp_report_fault(report, "chunk: spare_bytes is %llu and the lists hold %llu",
                     (unsigned long long)store->spare_bytes, (unsigned long long)spare);
  }
  if (store->least_idle_bytes > store->parked_bytes + store->spare_bytes) {
    vmp_report_fault(report, "chunk: least_idle_bytes is %llu, and only %llu are idle",
                     (unsigned long long)store->least_idle_bytes,
                     (unsigned long long)(store->parked_bytes + store->spare_bytes));
  }
  uint64_t unused = 0;
  for (uint32_t id = 1; id <= store->records.touched; id++) {
    const chunk *c = chunk_at(store, id);
    if (c->used != 0 && c->ahead != 0) unused += chunk_bytes(store, c);
    if (id >= store->parked_words * 64 || chunk_is_parked(store, id) != (c->used != 0 && c->state == CHUNK_PARKED)) {
      vmp_report_fault(report, "chunk: %u is in state %u, and its bit says otherwise", id, c->state);
    }
  }
  if (unused != store->ahead_unused_bytes || unused > store->ahead_bytes) {
    vmp_report_fault(report, "chunk: %llu bytes made ahead are said to be unused, and %llu are",
                     (unsigned long long)store->ahead_unused_bytes, (unsigned long long)unused);
  }
  if (store->mapped_bytes + store->spare_bytes > store->held_bytes) {
    vmp_report_fault(report, "chunk: mapped %llu and spare %llu exceed held %llu",
                     (unsigned long long)store->mapped_bytes, (unsigned long long)store->spare_bytes,
                     (unsigned long long)store->held_bytes);
  }
  vmp_node_pool_check(&store->records, "chunk records", report);
}
