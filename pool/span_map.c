// span_map.c: see span_map.h.
#include "pool/span_map.h"

#include "vmm/align.h"
#include "vmm/memory.h"

#define FIRST_SLOTS 64u

static void free_leaves(const vmp_span_table *table) {
  for (uint64_t i = 0; i <= table->mask; i++) vmp_mem_free(table->slots[i].leaf);
}

void vmp_span_map_free(vmp_span_map *map) {
  vmp_span_table *table = atomic_load(&map->table);
  if (table != NULL) free_leaves(table);
  while (table != NULL) {
    vmp_span_table *outgrown = table->outgrown;
    vmp_mem_free(table);
    table = outgrown;
  }
  atomic_store(&map->table, NULL);
}

// insert puts a piece that isn't there into a table with room.
static void insert(vmp_span_table *table, uint64_t key, vmp_span_leaf *leaf) {
  uint64_t at = vmp_span_hash(key) & table->mask;
  while (atomic_load_explicit(&table->slots[at].key, memory_order_relaxed) != 0) at = (at + 1) & table->mask;
  table->slots[at].leaf = leaf;
  atomic_store_explicit(&table->slots[at].key, key, memory_order_release);
  table->entries++;
}

// grown makes a larger table with the same pieces. NULL: no host memory.
static vmp_span_table *grown(vmp_span_table *old) {
  uint64_t slots = old == NULL ? FIRST_SLOTS : (old->mask + 1) * 2, bytes;
  if (!vmp_mul(slots, sizeof(vmp_span_slot), &bytes) || !vmp_add(bytes, sizeof(vmp_span_table), &bytes)) return NULL;
  vmp_span_table *table = vmp_mem_calloc(1, (size_t)bytes);
  if (table == NULL) return NULL;
  table->outgrown = old;
  table->mask = slots - 1;
  for (uint64_t i = 0; old != NULL && i <= old->mask; i++) {
    uint64_t key = atomic_load_explicit(&old->slots[i].key, memory_order_relaxed);
    if (key != 0) insert(table, key, old->slots[i].leaf);
  }
  return table;
}

static vmp_span_leaf *leaf_of(const vmp_span_map *map, uint64_t key) {
  const vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
  if (table == NULL) return NULL;
  for (uint64_t at = vmp_span_hash(key) & table->mask;; at = (at + 1) & table->mask) {
    uint64_t found = atomic_load_explicit(&table->slots[at].key, memory_order_relaxed);
    if (found == key) return table->slots[at].leaf;
    if (found == 0) return NULL;
  }
}

// make_leaf makes room for a piece. A leaf without cards stays, and is used the next time.
static bool make_leaf(vmp_span_map *map, uint64_t key) {
  vmp_span_table *table = atomic_load_explicit(&map->table, memory_order_relaxed);
  if (table == NULL || table->entries * 2 >= table->mask + 1) {
    table = grown(table);
    if (table == NULL) return false;
    atomic_store_explicit(&map->table, table, memory_order_release);
  }
  vmp_span_leaf *leaf = vmp_mem_calloc(1, sizeof *leaf);
  if (leaf == NULL) return false;
  insert(table, key, leaf);
  return true;
}

// name sets the card of every page of a range whose leaves are there.
static void name(const vmp_span_map *map, uint64_t address, uint64_t bytes, vmp_card *card) {
  for (uint64_t at = address; at < address + bytes; at += VMP_SPAN_PAGE_BYTES) {
    vmp_span_leaf *leaf = leaf_of(map, (at >> VMP_SPAN_PIECE_LOG2) + 1);
    uint64_t page = (at >> VMP_SPAN_PAGE_LOG2) & (VMP_SPAN_PIECE_PAGES - 1);
    atomic_store_explicit(&leaf->cards[page], card, memory_order_release);
  }
}

vmp_status vmp_span_map_add(vmp_span_map *map, uint64_t address, uint64_t bytes, vmp_card *card) {
  uint64_t last = (address + bytes - 1) >> VMP_SPAN_PIECE_LOG2;
  for (uint64_t piece = address >> VMP_SPAN_PIECE_LOG2; piece <= last; piece++) {
    if (leaf_of(map, piece + 1) == NULL && !make_leaf(map, piece + 1)) {
      return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory to find another span by its addresses");
    }
  }
  name(map, address, bytes, card);
  return VMP_OK;
}

void vmp_span_map_remove(vmp_span_map *map, uint64_t address, uint64_t bytes) { name(map, address, bytes, NULL); }

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map) {
  uint64_t bytes = 0;
  const vmp_span_table *table = atomic_load(&map->table);
  if (table != NULL) bytes += table->entries * sizeof(vmp_span_leaf);
  for (; table != NULL; table = table->outgrown) bytes += sizeof *table + (table->mask + 1) * sizeof(vmp_span_slot);
  return bytes;
}

// check_leaf: a card that is named here lies over this page.
static void check_leaf(uint64_t key, vmp_span_leaf *leaf, vmp_report *report) {
  for (uint64_t page = 0; page < VMP_SPAN_PIECE_PAGES; page++) {
    const vmp_card *card = atomic_load(&leaf->cards[page]);
    if (card == NULL) continue;
    uint64_t at = ((key - 1) << VMP_SPAN_PIECE_LOG2) + (page << VMP_SPAN_PAGE_LOG2);
    uint64_t address = atomic_load(&card->address);
    if (address == 0 || address > at) {
      vmp_report_fault(report, "span map: the page at 0x%llx names the card of a span at 0x%llx",
                       (unsigned long long)at, (unsigned long long)address);
    }
  }
}

size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report) {
  size_t before = report->faults;
  const vmp_span_table *table = atomic_load(&map->table);
  if (table == NULL) return 0;
  uint64_t entries = 0;
  for (uint64_t i = 0; i <= table->mask; i++) {
    uint64_t key = atomic_load(&table->slots[i].key);
    if (key == 0) continue;
    entries++;
    vmp_span_leaf *leaf = leaf_of(map, key);
    if (leaf == NULL || leaf != table->slots[i].leaf) {
      vmp_report_fault(report, "span map: the piece at 0x%llx can't be found from where it belongs",
                       (unsigned long long)((key - 1) << VMP_SPAN_PIECE_LOG2));
      continue;
    }
    check_leaf(key, leaf, report);
  }
  if (entries != table->entries || entries * 2 > table->mask + 1) {
    vmp_report_fault(report, "span map: %llu pieces are in a table of %llu places that counts %llu",
                     (unsigned long long)entries, (unsigned long long)table->mask + 1,
                     (unsigned long long)table->entries);
  }
  return report->faults - before;
}
