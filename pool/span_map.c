// span_map.c: see span_map.h.
#include "pool/span_map.h"

#include "vmm/align.h"
#include "vmm/memory.h"

// Where a process may have only so many addresses (RLIMIT_AS), a range's entries have at most one in so many of what is
// left.
#define SHARE 32u
#define LEAST_BYTES ((size_t)1 << 16)
#define WRITTEN_LOG2 10u  // entries for each bit of `written`: as many as a page of memory holds

vmp_span_entry vmp_span_no_entry;
const vmp_span_bundle vmp_span_no_bundle;

static uint64_t num_entries(const vmp_span_range *range) { return range->bytes >> VMP_SPAN_PAGE_LOG2; }
static uint64_t num_words(const vmp_span_range *range) { return (num_entries(range) >> (WRITTEN_LOG2 + 6)) + 1; }

void vmp_span_range_drop(vmp_span_range *range) {
  if (range == NULL) return;
  vmp_mem_unreserve(range->entries, range->entries_bytes);
  vmp_mem_free(range->written);
  vmp_mem_free(range);
}

// make_entries takes addresses for `bytes` of entries and makes them usable, or those of a half, a quarter, and so on.
// Returns how many bytes came of it.
static size_t make_entries(vmp_span_range *range, size_t bytes) {
  range->entries_bytes = bytes < LEAST_BYTES ? LEAST_BYTES : bytes;
  range->entries = vmp_mem_reserve(&range->entries_bytes, LEAST_BYTES, SHARE);
  if (range->entries == NULL) return 0;
  size_t usable = range->entries_bytes;
  while (!vmp_mem_commit(range->entries, usable)) {  // where memory that may be written is counted, there may be less
    usable /= 2;
    if (usable < LEAST_BYTES) return 0;
  }
  return usable < bytes ? usable : bytes;
}

vmp_span_range *vmp_span_range_make(uint64_t address, uint64_t bytes) {
  vmp_span_range *range = vmp_mem_calloc(1, sizeof *range);
  if (range == NULL) return NULL;
  size_t got = make_entries(range, (size_t)(bytes >> VMP_SPAN_PAGE_LOG2) * sizeof(vmp_span_entry));
  range->address = address;
  range->bytes = (uint64_t)(got / sizeof(vmp_span_entry)) << VMP_SPAN_PAGE_LOG2;
  range->written = got == 0 ? NULL : vmp_mem_calloc(num_words(range), sizeof *range->written);
  if (range->written == NULL) {
    vmp_span_range_drop(range);
    return NULL;
  }
  return range;
}

void vmp_span_map_link(vmp_span_map *map, vmp_span_range *range) {
  if (map->last == NULL) {
    map->address = range->address;
    map->bytes = range->bytes;
    map->entries = range->entries;
    atomic_store_explicit(&map->ranges, range, memory_order_release);
  } else {
    atomic_store_explicit(&map->last->next, range, memory_order_release);
  }
  map->last = range;
}

void vmp_span_map_free(vmp_span_map *map) {
  vmp_span_range *range = atomic_load(&map->ranges);
  while (range != NULL) {
    vmp_span_range *next = atomic_load(&range->next);
    vmp_span_range_drop(range);
    range = next;
  }
  vmp_mem_free(map->bundles);
  *map = (vmp_span_map){0};
}

static vmp_span_range *range_of(const vmp_span_map *map, uint64_t address) {
  vmp_span_range *range = atomic_load_explicit(&map->ranges, memory_order_acquire);
  while (range != NULL && address - range->address >= range->bytes) {
    range = atomic_load_explicit(&range->next, memory_order_acquire);
  }
  return range;
}

bool vmp_span_map_suits(const vmp_span_map *map, uint64_t address, uint64_t bytes) {
  if (bytes < VMP_SPAN_PAGE_BYTES || !vmp_is_power_of_two(bytes) || (address & (bytes - 1)) != 0) return false;
  const vmp_span_range *range = range_of(map, address);
  if (range == NULL || (range->address & (VMP_SPAN_PAGE_BYTES - 1)) != 0) return false;
  return range->bytes - (address - range->address) >= bytes;
}

static uint32_t entry_of(const vmp_span_map *map, uint32_t line) {
  uint32_t entry = line << VMP_CARD_NUMBER_BITS;
  return entry | vmp_card_number(atomic_load_explicit(&vmp_span_card(map, entry)->head, memory_order_relaxed));
}

static void enter(vmp_span_map *map, uint64_t address, uint64_t bytes, uint32_t entry) {
  vmp_span_range *range = range_of(map, address);
  uint64_t index = (address - range->address) >> VMP_SPAN_PAGE_LOG2;
  for (uint64_t end = index + (bytes >> VMP_SPAN_PAGE_LOG2); index < end; index++) {
    atomic_store_explicit(&range->entries[index], entry, memory_order_release);
    range->written[index >> WRITTEN_LOG2 >> 6] |= UINT64_C(1) << (index >> WRITTEN_LOG2 & 63);
  }
}

bool vmp_span_map_bundles_start(vmp_span_map *map) {
  if ((map->address & (VMP_SPAN_BUNDLE_BYTES - 1)) != 0) return false;
  uint64_t bytes = map->bytes & ~(VMP_SPAN_BUNDLE_BYTES - 1);
  if (bytes == 0) return false;
  map->bundles = vmp_mem_calloc(bytes >> VMP_SPAN_BUNDLE_LOG2, sizeof *map->bundles);
  if (map->bundles == NULL) return false;
  map->bundles_bytes = bytes;
  return true;
}

// enter_bundle: nothing where there is no room for it.
static void enter_bundle(vmp_span_map *map, uint64_t address, uint64_t bundle) {
  uint64_t at = address - map->address;
  if (at >= map->bundles_bytes) return;
  uint64_t index = at >> VMP_SPAN_BUNDLE_LOG2;
  atomic_store_explicit(&map->bundles[index], bundle, memory_order_release);
  if (bundle != 0 && index >= map->bundles_end) map->bundles_end = index + 1;
}

void vmp_span_map_bundle_add(vmp_span_map *map, uint64_t address, uint64_t span_bytes, uint32_t line, uint32_t lines) {
  uint32_t number = vmp_span_number(entry_of(map, line));
  enter_bundle(map, address, vmp_span_bundle_entry(number, vmp_log2(span_bytes), lines, line));
}

void vmp_span_map_add(vmp_span_map *map, uint64_t address, uint64_t bytes, uint32_t line) {
  enter(map, address, bytes, entry_of(map, line));
  map->num_pages += bytes >> VMP_SPAN_PAGE_LOG2;
}

void vmp_span_map_remove(vmp_span_map *map, uint64_t address, uint64_t bytes) {
  enter_bundle(map, address, 0);
  enter(map, address, bytes, 0);
  map->num_pages -= bytes >> VMP_SPAN_PAGE_LOG2;
}

vmp_span_entry *vmp_span_map_entry(const vmp_span_map *map, uint64_t address) {
  const vmp_span_range *range = range_of(map, address);
  return range == NULL ? &vmp_span_no_entry : &range->entries[(address - range->address) >> VMP_SPAN_PAGE_LOG2];
}

uint64_t vmp_span_map_metadata_bytes(const vmp_span_map *map) {
  uint64_t bytes = map->bundles_end * sizeof *map->bundles;
  for (const vmp_span_range *range = atomic_load(&map->ranges); range != NULL; range = atomic_load(&range->next)) {
    bytes += sizeof *range + num_words(range) * sizeof *range->written;
    for (uint64_t i = 0; i < num_words(range); i++) {
      bytes += (uint64_t)__builtin_popcountll(range->written[i]) * (sizeof(vmp_span_entry) << WRITTEN_LOG2);
    }
  }
  return bytes;
}

bool vmp_span_map_names(const vmp_span_map *map, uint64_t address, uint64_t bytes, uint32_t line) {
  if (!vmp_span_map_suits(map, address, bytes)) return false;
  const vmp_span_entry *entries = vmp_span_map_entry(map, address);
  uint32_t entry = entry_of(map, line);
  for (uint64_t i = 0; i < bytes >> VMP_SPAN_PAGE_LOG2; i++) {
    if (atomic_load(&entries[i]) != entry) return false;
  }
  return true;
}

// check_entry: a page names a card of the class that it says. Returns whether it names any.
static bool check_entry(const vmp_span_map *map, const vmp_span_range *range, uint64_t index, vmp_report *report) {
  uint32_t entry = atomic_load(&range->entries[index]);
  if (entry == 0) return false;
  uint32_t number = vmp_span_number(entry);
  if (number == 0 || vmp_card_number(atomic_load(&vmp_span_card(map, entry)->head)) != number) {
    vmp_report_fault(report, "span map: the page at 0x%llx names a card of another class",
                     (unsigned long long)(range->address + (index << VMP_SPAN_PAGE_LOG2)));
  }
  return true;
}

// check_bundle: the entries of all its pages say what it does.
static void check_bundle(const vmp_span_map *map, uint64_t index, vmp_report *report) {
  uint64_t bundle = atomic_load(&map->bundles[index]), address = map->address + (index << VMP_SPAN_BUNDLE_LOG2);
  for (uint64_t end = address + VMP_SPAN_BUNDLE_BYTES; bundle != 0 && address < end; address += VMP_SPAN_PAGE_BYTES) {
    uint32_t entry = atomic_load(vmp_span_map_entry(map, address));
    if (vmp_span_number(entry) == vmp_span_bundle_number(bundle) &&
        entry >> VMP_CARD_NUMBER_BITS == vmp_span_bundle_line(bundle, address)) {
      continue;
    }
    vmp_report_fault(report, "span map: the page at 0x%llx isn't what its bundle says", (unsigned long long)address);
    return;
  }
}

size_t vmp_span_map_check(const vmp_span_map *map, vmp_report *report) {
  size_t before = report->faults;
  uint64_t pages = 0;
  const vmp_span_range *first = atomic_load(&map->ranges);
  for (const vmp_span_range *range = first; range != NULL; range = atomic_load(&range->next)) {
    for (uint64_t block = 0; block << WRITTEN_LOG2 < num_entries(range); block++) {
      if (range->written[block >> 6] == 0) block |= 63;
      if ((range->written[block >> 6] >> (block & 63) & 1) == 0) continue;
      uint64_t end = (block + 1) << WRITTEN_LOG2;
      if (end > num_entries(range)) end = num_entries(range);
      for (uint64_t index = block << WRITTEN_LOG2; index < end; index++) {
        pages += check_entry(map, range, index, report);
      }
    }
  }
  for (uint64_t i = 0; i < map->bundles_end; i++) check_bundle(map, i, report);
  if (pages != map->num_pages) {
    vmp_report_fault(report, "span map: %llu pages have a card, and %llu are counted", (unsigned long long)pages,
                     (unsigned long long)map->num_pages);
  }
  if (first != NULL &&
      (map->address != first->address || map->bytes != first->bytes || map->entries != first->entries)) {
    vmp_report_fault(report, "span map: the copy of the first range is of another one");
  }
  if (atomic_load(&vmp_span_no_entry) != 0) {
    vmp_report_fault(report, "span map: the entry of addresses without one was written to");
  }
  return report->faults - before;
}
