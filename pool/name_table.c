// name_table.c: see name_table.h.
#include "pool/name_table.h"

#include <inttypes.h>
#include <string.h>

#include "vmm/align.h"
#include "vmm/memory.h"

#define FIRST_CAPACITY 16u

void vmp_name_table_free(vmp_name_table *table) {
  for (uint32_t i = 1; i <= table->count; i++) vmp_mem_free(table->texts[i]);
  vmp_mem_free(table->texts);
  vmp_mem_free(table->places);
  *table = (vmp_name_table){0};
}

// hash_of: FNV-1a, 64 bits.
static uint64_t hash_of(const char *text) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (; *text != '\0'; text++) hash = (hash ^ (unsigned char)*text) * UINT64_C(0x100000001b3);
  return hash;
}

// place_of returns where a text stands, or the empty place where it belongs.
static size_t place_of(const vmp_name_table *table, const char *text) {
  size_t place = (size_t)hash_of(text) & (table->capacity - 1);
  while (table->places[place] != 0 && strcmp(table->texts[table->places[place]], text) != 0) {
    place = (place + 1) & (table->capacity - 1);
  }
  return place;
}

static bool grow_places(vmp_name_table *table) {
  if ((table->count + 1) * 2 <= table->capacity) return true;
  vmp_name_table larger = *table;
  larger.capacity = table->capacity == 0 ? FIRST_CAPACITY : table->capacity * 2;
  larger.places = vmp_mem_calloc(larger.capacity, sizeof *larger.places);
  if (larger.places == NULL) return false;
  for (uint32_t i = 1; i <= table->count; i++) larger.places[place_of(&larger, table->texts[i])] = i;
  vmp_mem_free(table->places);
  *table = larger;
  return true;
}

static bool grow_texts(vmp_name_table *table) {
  if (table->count + 1 < table->texts_capacity) return true;
  size_t capacity = table->texts_capacity == 0 ? FIRST_CAPACITY : table->texts_capacity * 2;
  char **texts = vmp_mem_resize(table->texts, table->texts_capacity, capacity, sizeof *texts);
  if (texts == NULL) return false;
  table->texts = texts;
  table->texts_capacity = capacity;
  return true;
}

vmp_status vmp_name_intern(vmp_name_table *table, const char *text, uint32_t *out_name) {
  if (text == NULL || text[0] == '\0') {
    *out_name = 0;
    return VMP_OK;
  }
  size_t length = strnlen(text, VMP_MAX_NAME_BYTES + 1);
  if (length > VMP_MAX_NAME_BYTES) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "the name \"%.32s...\" is longer than %u bytes", text, VMP_MAX_NAME_BYTES);
  }
  if (table->capacity != 0 && table->places[place_of(table, text)] != 0) {
    *out_name = table->places[place_of(table, text)];
    return VMP_OK;
  }
  if (table->count == VMP_MAX_NAMES) {
    return vmp_fail(VMP_ERROR_LIMIT, "the pool knows %u different names already; names are kept, so use few",
                    VMP_MAX_NAMES);
  }
  char *copy = NULL;
  if (grow_places(table) && grow_texts(table)) copy = vmp_mem_calloc(length + 1, 1);
  if (copy == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the name \"%.64s\"", text);
  memcpy(copy, text, length);
  size_t place = place_of(table, text);
  table->count++;
  table->texts[table->count] = copy;
  table->places[place] = table->count;
  table->text_bytes += length + 1;
  *out_name = table->count;
  return VMP_OK;
}

const char *vmp_name_text(const vmp_name_table *table, uint32_t name) {
  return name == 0 || name > table->count ? NULL : table->texts[name];
}

uint64_t vmp_name_table_metadata_bytes(const vmp_name_table *table) {
  return table->capacity * sizeof *table->places + table->texts_capacity * sizeof *table->texts + table->text_bytes;
}

size_t vmp_name_table_check(const vmp_name_table *table, vmp_report *report) {
  size_t before = report->faults;
  uint32_t used = 0;
  for (size_t i = 0; i < table->capacity; i++) {
    used += table->places[i] != 0;
    if (table->places[i] > table->count) {
      vmp_report_fault(report, "names: place %zu has number %" PRIu32 " of %" PRIu32, i, table->places[i],
                       table->count);
      return report->faults - before;
    }
  }
  if (used != table->count) {
    vmp_report_fault(report, "names: %" PRIu32 " places are in use for %" PRIu32 " names", used, table->count);
  }
  if (table->capacity != 0 && (!vmp_is_power_of_two(table->capacity) || table->count >= table->capacity)) {
    vmp_report_fault(report, "names: %" PRIu32 " names and a capacity of %zu", table->count, table->capacity);
    return report->faults - before;
  }
  for (uint32_t i = 1; i <= table->count; i++) {
    if (table->places[place_of(table, table->texts[i])] != i) {
      vmp_report_fault(report, "names: \"%s\" (%" PRIu32 ") is not found from its hash", table->texts[i], i);
    }
  }
  return report->faults - before;
}
