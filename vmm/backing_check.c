// backing_check.c: the checker, and the walkers for snapshots and maps.
//
// The check counts everything twice: once from the slot table, once from the records; the two must agree.
#include <string.h>

#include "vmm/backing_internal.h"
#include "vmm/memory.h"

static const char *chunk_word(const chunk *c) {
  switch ((chunk_state)c->state) {
    case CHUNK_LIVE: return "live";
    case CHUNK_PARKED: return "parked";
    case CHUNK_BROKEN: return "broken";
    case CHUNK_SPARE:
    case CHUNK_TRANSIT: break;
  }
  return "transit";
}

static const char *place_word(const place *p) {
  switch ((place_state)p->state) {
    case PLACE_RETIRING: return "retiring";
    case PLACE_BROKEN: return "broken";
    case PLACE_SHARED: return "live";
    case PLACE_TRANSIT: break;
  }
  return "transit";
}

void vmp_backing_walk_reservations(const vmp_backing *b, vmp_reservation_fn fn, void *context) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    fn(context, r->first_slot << b->granule_log2, r->bytes, r->address);
  }
}

void vmp_backing_walk_mappings(const vmp_backing *b, vmp_mapping_fn fn, void *context) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    uint64_t end = r->first_slot + r->slots, slot = r->first_slot;
    while ((slot = backing_skip_unmapped(b, slot, end)) < end) {
      uint32_t word = backing_word(b, slot), id = word & WORD_INDEX;
      if (word_is_home(word)) {
        const chunk *c = backing_chunk(b, id);
        fn(context, c->home << b->granule_log2, chunk_bytes(&b->chunks, c), chunk_word(c), id, c->live, chunk_users(c));
        slot = c->home + chunk_slots(c);
      } else {
        const place *p = backing_place(b, id);
        fn(context, p->slot << b->granule_log2, p->slots << b->granule_log2, place_word(p), p->chunk,
           p->state == PLACE_SHARED ? p->live : 0, p->fence);
        slot = p->slot + p->slots;
      }
    }
  }
}

void vmp_backing_walk_spares(const vmp_backing *b, vmp_spare_fn fn, void *context) {
  for (unsigned order = 0; order < CHUNK_ORDERS; order++) {
    for (uint32_t id = b->chunks.spare[order].head; id != 0; id = backing_chunk(b, id)->next) {
      fn(context, id, b->granule_bytes << order);
    }
  }
}

// What the slot table shows.
typedef struct tally {
  uint64_t mapped_slots, retiring_slots, broken_slots, retiring_places, broken_places, shared_places;
} tally;

static void check_home(const vmp_backing *b, uint64_t slot, uint32_t id, tally *sum, vmp_report *report) {
  if (id == 0 || id > b->chunks.records.touched) {
    vmp_report_fault(report, "backing: slot %llu names chunk %u, which does not exist", (unsigned long long)slot, id);
    return;
  }
  const chunk *c = backing_chunk(b, id);
  sum->mapped_slots++;
  if (slot - c->home >= chunk_slots(c)) {
    vmp_report_fault(report, "backing: slot %llu names chunk %u, whose home is slot %llu", (unsigned long long)slot, id,
                     (unsigned long long)c->home);
    return;
  }
  if (slot != c->home) return;
  if (c->handle == 0)
    vmp_report_fault(report, "backing: chunk %u at slot %llu has no handle", id, (unsigned long long)slot);
  if (c->state == CHUNK_SPARE)
    vmp_report_fault(report, "backing: chunk %u at slot %llu is called spare", id, (unsigned long long)slot);
  if (c->pins > c->live) {
    vmp_report_fault(report, "backing: chunk %u has %u pins and %u claims", id, c->pins, c->live);
  }
  if ((c->live > 0) != (c->state == CHUNK_LIVE)) {
    vmp_report_fault(report, "backing: chunk %u has %u live claims in state %s", id, c->live, chunk_word(c));
  }
}

static void check_place(const vmp_backing *b, uint64_t slot, uint32_t id, tally *sum, vmp_report *report) {
  if (id == 0 || id > b->places.touched) {
    vmp_report_fault(report, "backing: slot %llu names place %u, which does not exist", (unsigned long long)slot, id);
    return;
  }
  const place *p = backing_place(b, id);
  if (slot - p->slot >= p->slots) {
    vmp_report_fault(report, "backing: slot %llu names place %u, which lies at slot %llu", (unsigned long long)slot, id,
                     (unsigned long long)p->slot);
    return;
  }
  if (p->state == PLACE_RETIRING) sum->retiring_slots++;
  if (p->state == PLACE_BROKEN) sum->broken_slots++;
  // Of a shared chunk one place stands for the memory.
  if (p->state != PLACE_RETIRING && p->state != PLACE_BROKEN && backing_chunk(b, p->chunk)->shares == id) {
    sum->mapped_slots++;
  }
  if (slot != p->slot) return;
  if (p->state == PLACE_SHARED) sum->shared_places++;
  uint8_t listed = p->state == PLACE_RETIRING ? 1 : p->state == PLACE_BROKEN ? 2 : 0;
  if (p->listed != listed) vmp_report_fault(report, "backing: %s place %u is in list %u", place_word(p), id, p->listed);
  if (p->state == PLACE_RETIRING) sum->retiring_places++;
  if (p->state == PLACE_BROKEN) sum->broken_places++;
}

// check_groups: every detail of a group exists, and none is lost. False: slots can't be looked up.
static bool check_groups(const vmp_backing *b, vmp_report *report) {
  size_t before = report->faults;
  uint32_t details = 0;
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    for (uint64_t group = 0; group < (r->slots + GROUP_SLOTS - 1) / GROUP_SLOTS; group++) {
      const uint32_t *leaf = r->leaves[group / LEAF_GROUPS];
      uint32_t word = leaf == NULL ? 0 : leaf[group % LEAF_GROUPS], index = word & WORD_INDEX;
      if (word < WORD_DETAIL) continue;
      details++;
      if (index != 0 && index <= b->details.touched) continue;
      vmp_report_fault(report, "backing: the group at slot %llu has detail %u, which does not exist",
                       (unsigned long long)(r->first_slot + group * GROUP_SLOTS), index);
    }
  }
  if (details != b->details.used) {
    vmp_report_fault(report, "backing: %u groups have details, and %u are used", details, b->details.used);
  }
  vmp_node_pool_check(&b->details, "backing details", report);
  return report->faults == before;
}

static void check_table(const vmp_backing *b, tally *sum, vmp_report *report) {
  for (size_t i = 0; i < b->num_reservations; i++) {
    const reservation *r = &b->reservations[i];
    for (uint64_t slot = r->first_slot; slot < r->first_slot + r->slots; slot++) {
      if (r->leaves[(slot - r->first_slot) / LEAF_SLOTS] == NULL) {
        slot += LEAF_SLOTS - (slot - r->first_slot) % LEAF_SLOTS - 1;
        continue;
      }
      uint32_t word = backing_word_in(b, r, slot);
      if (word == 0) continue;
      if (slot >= r->high_slot)
        vmp_report_fault(report, "backing: slot %llu is in use above the high slot", (unsigned long long)slot);
      if (word_is_home(word)) check_home(b, slot, word & WORD_INDEX, sum, report);
      if (word_is_place(word)) check_place(b, slot, word & WORD_INDEX, sum, report);
    }
  }
}

// A chunk's home in the table, and the number of places that show it, counted from the records' side.
static uint64_t check_chunks(const vmp_backing *b, const uint32_t *aliases, uint64_t *shared_places,
                             vmp_report *report) {
  uint64_t held = 0, mapped = 0, moved = 0, shared_bytes = 0, lost = 0;
  for (uint32_t id = 1; id <= b->chunks.records.touched; id++) {
    const chunk *c = backing_chunk(b, id);
    if (!c->used) continue;  // a free record; the handle of one in transit is not ours to read
    held += chunk_bytes(&b->chunks, c);
    if (!vmp_fence_is_none(c->moved)) moved++;
    lost += c->lost != 0 ? chunk_bytes(&b->chunks, c) : 0;
    for (uint32_t at = c->shares, n = 0; at != 0 && at <= b->places.touched && n <= b->places.used; n++) {
      lost += backing_place(b, at)->lost != 0 ? b->granule_bytes : 0;
      at = backing_place(b, at)->next_share;
    }
    if ((c->lost != 0 && (c->state != CHUNK_LIVE || c->shares != 0)) ||
        (b->transits == 0 && c->sealed != 0 && c->shares == 0)) {
      vmp_report_fault(report, "backing: chunk %u is lost or sealed, in state %s with %s", id, chunk_word(c),
                       c->shares != 0 ? "several places" : "one place");
    }
    bool shared = c->shares != 0;
    bool home = !shared && (c->state == CHUNK_LIVE || c->state == CHUNK_PARKED || c->state == CHUNK_BROKEN);
    if (shared) {
      share_check(b, id, shared_places, report);
      shared_bytes += chunk_bytes(&b->chunks, c);
    }
    if (home || shared) mapped += chunk_slots(c);
    for (uint64_t slot = c->home; home && slot < c->home + chunk_slots(c); slot++) {
      if (backing_word(b, slot) != (WORD_HOME | id)) {
        vmp_report_fault(report, "backing: chunk %u lives at slot %llu, which doesn't name it", id,
                         (unsigned long long)slot);
      }
    }
    if (aliases != NULL && c->aliases != aliases[id]) {
      vmp_report_fault(report, "backing: chunk %u counts %u old places and has %u", id, c->aliases, aliases[id]);
    }
  }
  if (moved != b->chunks.num_moved) {
    vmp_report_fault(report, "backing: %llu chunks were moved under work, but %llu are counted",
                     (unsigned long long)moved, (unsigned long long)b->chunks.num_moved);
  }
  if (shared_bytes != b->shared_bytes) {
    vmp_report_fault(report, "backing: shared_bytes is %llu, and %llu are shared", (unsigned long long)b->shared_bytes,
                     (unsigned long long)shared_bytes);
  }
  if (lost != b->lost_bytes) {
    vmp_report_fault(report, "backing: %llu bytes are lost, but %llu are counted", (unsigned long long)lost,
                     (unsigned long long)b->lost_bytes);
  }
  if (b->transits == 0 && held != b->chunks.held_bytes) {
    vmp_report_fault(report, "backing: held_bytes is %llu and the chunks have %llu",
                     (unsigned long long)b->chunks.held_bytes, (unsigned long long)held);
  }
  return mapped;
}

static uint32_t *count_aliases(const vmp_backing *b) {
  uint32_t *aliases = vmp_mem_calloc((size_t)b->chunks.records.touched + 1, sizeof *aliases);
  if (aliases == NULL) return NULL;
  for (int list = 0; list < 2; list++) {
    uint32_t id = list == 0 ? b->retiring.head : b->broken.head;
    for (uint64_t seen = 0; id != 0 && seen <= b->places.used; id = backing_place(b, id)->next, seen++) {
      uint32_t owner = backing_place(b, id)->chunk;
      if (owner <= b->chunks.records.touched) aliases[owner]++;
    }
  }
  return aliases;
}

static void check_list_sums(const char *name, const place_list *list, uint64_t places, uint64_t slots,
                            vmp_report *report) {
  if (list->count == places && list->slots == slots) return;
  vmp_report_fault(report, "backing: the %s list counts %llu places of %llu slots; the table shows %llu of %llu", name,
                   (unsigned long long)list->count, (unsigned long long)list->slots, (unsigned long long)places,
                   (unsigned long long)slots);
}

size_t vmp_backing_check(const vmp_backing *b, vmp_report *report) {
  size_t before = report->faults;
  tally sum = {0};
  chunk_store_check(&b->chunks, report);
  vmp_node_pool_check(&b->places, "places", report);
  if (!check_groups(b, report)) return report->faults - before;
  check_table(b, &sum, report);
  check_list_sums("retiring", &b->retiring, sum.retiring_places, sum.retiring_slots, report);
  check_list_sums("broken", &b->broken, sum.broken_places, sum.broken_slots, report);
  // While a removal is under way its places are in no list.
  uint32_t *aliases = b->transits == 0 ? count_aliases(b) : NULL;
  uint64_t shared_places = 0;
  uint64_t mapped = check_chunks(b, aliases, &shared_places, report);
  vmp_mem_free(aliases);
  if (shared_places != sum.shared_places) {
    vmp_report_fault(report, "backing: chunks have %llu shared places and the table shows %llu",
                     (unsigned long long)shared_places, (unsigned long long)sum.shared_places);
  }
  if (b->transits == 0 && (mapped != sum.mapped_slots || mapped << b->granule_log2 != b->chunks.mapped_bytes)) {
    vmp_report_fault(report, "backing: mapped_bytes is %llu, the chunks have %llu slots and the table shows %llu",
                     (unsigned long long)b->chunks.mapped_bytes, (unsigned long long)mapped,
                     (unsigned long long)sum.mapped_slots);
  }
  if (b->chunks.created < b->chunks.released || b->chunks.created - b->chunks.released > b->chunks.count) {
    vmp_report_fault(report, "backing: %llu chunks were created, %llu released, and %llu exist",
                     (unsigned long long)b->chunks.created, (unsigned long long)b->chunks.released,
                     (unsigned long long)b->chunks.count);
  }
  return report->faults - before;
}
