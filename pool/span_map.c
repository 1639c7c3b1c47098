// span_map.c: see span_map.h.
#include "pool/span_map.h"

#include "vmm/align.h"
#include "vmm/memory.h"

#define FIRST_SLOTS 64u

vmp_card vmp_no_card;

// Every map begins with it. It is never written: adding needs a larger one.
static vmp_span_table empty_table = {.slots = {{.key = VMP_SPAN_NO_KEY}}};
#define EMPTY_TABLE (&empty_table)

static uint64_t num_slots(const vmp_span_table *table) { return table->mask_bytes / sizeof(vmp_span_slot) + 1; }

void vmp_span_map_init(vmp_span_map *map) { atomic_init(&map->table, EMPTY_TABLE); }

void vmp_span_map_free(vmp_span_map *map) {
  vmp_span_table *table = atomic_load(&map->table);
  if (table == NULL) return;
  for (uint64_t i = 0; i < num_slots(table) && table != EMPTY_TABLE; i++) vmp_mem_free(table->slots[i].leaf);
  while (table != EMPTY_TABLE) {
    vmp_span_table *outgrown = table->outgrown;
    vmp_mem_free(table);
    table = outgrown;
  }
  vmp_span_map_init(map);
}

// insert puts a piece that isn't there into a table with room.
static void insert(vmp_span_table *table, uint64_t key, vmp_span_leaf *leaf) {
  uint64_t place = vmp_span_place(key << VMP_SPAN_PIECE_LOG2);
  while (atomic_load_explicit(&vmp_span_slot_at(table, place)->key, memory_order_relaxed) != VMP_SPAN_NO_KEY) {
    place += sizeof(vmp_span_slot);
  }
  vmp_span_slot *slot = (vmp_span_slot *)vmp_span_slot_at(table, place);
  slot->leaf = leaf;
  atomic_store_explicit(&slot->key, key, memory_order_release);
  table->entries++;
}

// grown makes a larger table with the same pieces. NULL: no host memory.
static vmp_span_table *grown(vmp_span_table *old) {
  uint64_t slots = old == EMPTY_TABLE ? FIRST_SLOTS : num_slots(old) * 2, bytes;
  if (!vmp_mul(slots - 1, sizeof(vmp_span_slot), &bytes) || !vmp_add(bytes, sizeof(vmp_span_table), &bytes))
    return NULL;
  vmp_span_table *table = vmp_mem_calloc(1, (size_t)bytes);
  if (table == NULL) return NULL;
  table->outgrown = old;
  table->mask_bytes = (slots - 1) * sizeof(vmp_span_slot);
  for (uint64_t i = 0; i < slots; i++) atomic_init(&table->slots[i].key, VMP_SPAN_NO_KEY);
  for (uint64_t i = 0; old != EMPTY_TABLE && i < num_slots(old); i++) {
    uint64_t key = atomic_load_explicit(&old->slots[i].key, memory_order_relaxed);
    if (key != VMP_SPAN_NO_KEY) insert(table, key, old->slots[i].leaf);
  }
  return table;
}

static vmp_span_leaf *leaf_of(const vmp_span_map *map, uint64_t key) {
  const vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
  for (uint64_t place = vmp_span_place(key << VMP_SPAN_PIECE_LOG2);; place += sizeof(vmp_span_slot)) {
    const vmp_span_slot *slot = vmp_span_slot_at(table, place);
    uint64_t found = atomic_load_explicit(&slot->key, memory_order_relaxed);
    if (found == key) return slot->leaf;
    if (found == VMP_SPAN_NO_KEY) return NULL;
  }
}

// make_leaf makes room for a piece. A leaf without cards stays, and is used the next time.
static bool make_leaf(vmp_span_map *map, uint64_t key) {
  vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
  if (table == EMPTY_TABLE || table->entries * 2 >= num_slots(table)) {
    table = grown(table);
    if (table == NULL) return false;
    atomic_store_explicit(&map->table, table, memory_order_release);
  }
  vmp_span_leaf *leaf = vmp_mem_calloc(1, sizeof *leaf);
  if (leaf == NULL) return false;
  for (uint64_t page = 0; page < VMP_SPAN_PIECE_PAGES; page++) atomic_init(&leaf->cards[page], &vmp_no_card);
  insert(table, key, leaf);
  return true;
}

// name sets the card of every page of a range whose leaves are there.
static void name(const vmp_span_map *map, uint64_t address, uint64_t bytes, vmp_card *card) {
  for (uint64_t at = address; at < address + bytes; at += VMP_SPAN_PAGE_BYTES) {
    vmp_span_leaf *leaf = leaf_of(map, at >> VMP_SPAN_PIECE_LOG2);
    uint64_t page = (at >> VMP_SPAN_PAGE_LOG2) & (VMP_SPAN_PIECE_PAGES - 1);
    atomic_store_explicit(&leaf->cards[page], card, memory_order_release);
  }
}

vmp_status vmp_span_map_add(vmp_span_map *map, uint64_t address, uint64_t bytes, vmp_card *card) {
  uint64_t last = (address + bytes - 1) >> VMP_SPAN_PIECE_LOG2;
  for (uint64_t piece = address >> VMP_SPAN_PIECE_LOG2; piece <= last; piece++) {
    if (leaf_of(map, piece) == NULL && !make_leaf(map, piece)) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to find another span by its addresses");
    }
  }
  name(map, address, bytes, card);
  return VMP_OK;
}

void vmp_span_map_remove(vmp_span_map *map, uint64_t address, uint64_t bytes) {
  name(map, address, bytes, &vmp_no_card);
}

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map) {
  const vmp_span_table *table = atomic_load(&map->table);
  uint64_t bytes = table->entries * sizeof(vmp_span_leaf);
  for (; table != EMPTY_TABLE; table = table->outgrown)
    bytes += sizeof *table + (num_slots(table) - 1) * sizeof(vmp_span_slot);
  return bytes;
}

// check_leaf: a card that is named here lies over this page.
static void check_leaf(uint64_t key, vmp_span_leaf *leaf, vmp_report *report) {
  for (uint64_t page = 0; page < VMP_SPAN_PIECE_PAGES; page++) {
    const vmp_card *card = atomic_load(&leaf->cards[page]);
    if (card == &vmp_no_card) continue;
    uint64_t at = (key << VMP_SPAN_PIECE_LOG2) + (page << VMP_SPAN_PAGE_LOG2);
    uint64_t address = card == NULL ? 0 : atomic_load(&card->address);
    if (address == 0 || address > at) {
      vmp_report_fault(report, "span map: the page at 0x%llx names the card of a span at 0x%llx",
                       (unsigned long long)at, (unsigned long long)address);
    }
  }
}

size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report) {
  size_t before = report->faults;
  const vmp_span_table *table = atomic_load(&map->table);
  uint64_t entries = 0;
  for (uint64_t i = 0; i < num_slots(table); i++) {
    uint64_t key = atomic_load(&table->slots[i].key);
    if (key == VMP_SPAN_NO_KEY) continue;
    entries++;
    vmp_span_leaf *leaf = leaf_of(map, key);
    if (leaf == NULL || leaf != table->slots[i].leaf) {
      vmp_report_fault(report, "span map: the piece at 0x%llx can't be found from where it belongs",
                       (unsigned long long)(key << VMP_SPAN_PIECE_LOG2));
      continue;
    }
    check_leaf(key, leaf, report);
  }
  if (entries != table->entries || entries * 2 > num_slots(table)) {
    vmp_report_fault(report, "span map: %llu pieces are in a table of %llu places that counts %llu",
                     (unsigned long long)entries, (unsigned long long)num_slots(table),
                     (unsigned long long)table->entries);
  }
  if (atomic_load(&vmp_no_card.number) != 0 || atomic_load(&vmp_no_card.address) != 0) {
    vmp_report_fault(report, "span map: the card of pages without one was written to");
  }
  return report->faults - before;
}
