// log_intern.c: strings and stacks by number, and the files that stacks point into. See log.h.
#include <link.h>
#include <string.h>

#include "pool/log_internal.h"
#include "vmm/memory.h"

#if defined(__has_include)
#if __has_include(<execinfo.h>)
#include <execinfo.h>
#define HAVE_BACKTRACE 1
#endif
#endif

#define MAX_ITEMS 65535u
#define MAX_TEXT_BYTES 4000u
#define PART_TEXT_BYTES 32u
#define PART_FRAMES 4u

static uint64_t hash_of(const void *bytes, size_t length) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325);
  for (size_t i = 0; i < length; i++) hash = (hash ^ ((const unsigned char *)bytes)[i]) * UINT64_C(0x100000001b3);
  return hash ^ hash >> 32;
}

// slot_of: where the table has the item, or the empty slot where it belongs.
static uint32_t slot_of(const log_interned *table, uint64_t hash, const void *bytes, uint32_t length) {
  for (uint32_t at = (uint32_t)hash & (table->num_slots - 1);; at = (at + 1) & (table->num_slots - 1)) {
    uint32_t id = table->slots[at];
    if (id == 0) return at;
    const log_item *item = &table->items[id - 1];
    if (item->hash == hash && item->length == length && memcmp(table->bytes + item->offset, bytes, length) == 0) {
      return at;
    }
  }
}

static bool grow_slots(log_interned *table) {
  uint32_t num_slots = table->num_slots == 0 ? 256 : table->num_slots * 2;
  uint32_t *slots = vmp_mem_calloc(num_slots, sizeof *slots);
  if (slots == NULL) return false;
  vmp_mem_free(table->slots);
  table->slots = slots;
  table->num_slots = num_slots;
  for (uint32_t id = 1; id <= table->count; id++) {
    uint32_t at = (uint32_t)table->items[id - 1].hash & (num_slots - 1);
    while (slots[at] != 0) at = (at + 1) & (num_slots - 1);
    slots[at] = id;
  }
  return true;
}

static bool make_room(log_interned *table, uint32_t length) {
  if (table->count == MAX_ITEMS) return false;
  if (table->count * 4 >= table->num_slots * 3 && !grow_slots(table)) return false;
  if (table->count == table->capacity) {
    uint32_t capacity = table->capacity == 0 ? 64 : table->capacity * 2;
    log_item *items = vmp_mem_resize(table->items, table->capacity, capacity, sizeof *items);
    if (items == NULL) return false;
    table->items = items;
    table->capacity = capacity;
  }
  if (table->capacity_bytes - table->used_bytes < length) {
    uint32_t capacity = table->capacity_bytes == 0 ? 8192 : table->capacity_bytes;
    while (capacity - table->used_bytes < length) capacity *= 2;
    unsigned char *bytes = vmp_mem_resize(table->bytes, table->capacity_bytes, capacity, 1);
    if (bytes == NULL) return false;
    table->bytes = bytes;
    table->capacity_bytes = capacity;
  }
  return true;
}

// intern returns the number of an item; *out_new: it is new. 0: there is no room.
static uint32_t intern(log_interned *table, const void *bytes, uint32_t length, bool *out_new) {
  *out_new = false;
  uint64_t hash = hash_of(bytes, length);
  if (table->num_slots > 0) {
    uint32_t known = table->slots[slot_of(table, hash, bytes, length)];
    if (known != 0) return known;
  }
  if (!make_room(table, length)) return 0;
  memcpy(table->bytes + table->used_bytes, bytes, length);
  table->items[table->count] = (log_item){hash, table->used_bytes, length};
  table->used_bytes += length;
  uint32_t slot = slot_of(table, hash, table->bytes + table->items[table->count].offset, length);
  table->slots[slot] = ++table->count;
  *out_new = true;
  return table->count;
}

// ---- writing ----

static uint32_t parts_of(uint32_t length, uint32_t part) { return length == 0 ? 1 : (length + part - 1) / part; }

static void write_string(vmp_log *log, uint32_t id, uint8_t flags) {
  const log_item *item = &log->strings.items[id - 1];
  uint32_t parts = parts_of(item->length, PART_TEXT_BYTES);
  for (uint32_t part = 0; part < parts; part++) {
    vmp_log_record *record = vmp_log_next(log, VMP_LOG_STRING);
    if (record == NULL) return;
    uint32_t at = part * PART_TEXT_BYTES, left = item->length - at;
    record->flags = flags;
    record->as.string.id = id;
    record->as.string.part = (uint16_t)part;
    record->as.string.parts = (uint16_t)parts;
    memcpy(record->as.string.text, log->strings.bytes + item->offset + at,
           left < PART_TEXT_BYTES ? left : PART_TEXT_BYTES);
    vmp_log_publish(log);
  }
}

static void write_stack(vmp_log *log, uint32_t id, uint8_t flags) {
  const log_item *item = &log->stacks.items[id - 1];
  uint32_t parts = parts_of(item->length, PART_FRAMES * sizeof(uint64_t));
  for (uint32_t part = 0; part < parts; part++) {
    vmp_log_record *record = vmp_log_next(log, VMP_LOG_STACK);
    if (record == NULL) return;
    uint32_t at = part * PART_FRAMES * (uint32_t)sizeof(uint64_t), left = item->length - at;
    record->flags = flags;
    record->as.stack.id = id;
    record->as.stack.part = (uint16_t)part;
    record->as.stack.parts = (uint16_t)parts;
    uint32_t most = sizeof record->as.stack.frames;
    memcpy(record->as.stack.frames, log->stacks.bytes + item->offset + at, left < most ? left : most);
    vmp_log_publish(log);
  }
}

static void write_module(vmp_log *log, const log_module *module, uint8_t flags) {
  vmp_log_record *record = vmp_log_next(log, VMP_LOG_MODULE);
  if (record == NULL) return;
  record->flags = flags;
  record->as.event.address = module->address;
  record->as.event.bytes = module->bytes;
  record->as.event.extra = module->base;
  record->as.event.tag = module->name;
  vmp_log_publish(log);
}

uint32_t vmp_log_string(vmp_log *log, const char *text) {
  if (text == NULL || text[0] == '\0') return 0;
  bool is_new;
  uint32_t id = intern(&log->strings, text, (uint32_t)strnlen(text, MAX_TEXT_BYTES), &is_new);
  if (is_new) write_string(log, id, 0);
  return id;
}

uint64_t vmp_log_count_interned(const vmp_log *log) {
  uint64_t count = log->num_modules;
  for (uint32_t i = 0; i < log->strings.count; i++) count += parts_of(log->strings.items[i].length, PART_TEXT_BYTES);
  for (uint32_t i = 0; i < log->stacks.count; i++) {
    count += parts_of(log->stacks.items[i].length, PART_FRAMES * sizeof(uint64_t));
  }
  return count;
}

void vmp_log_write_interned(vmp_log *log) {
  for (uint32_t id = 1; id <= log->strings.count; id++) write_string(log, id, VMP_LOG_STATE);
  for (size_t i = 0; i < log->num_modules; i++) write_module(log, &log->modules[i], VMP_LOG_STATE);
  for (uint32_t id = 1; id <= log->stacks.count; id++) write_stack(log, id, VMP_LOG_STATE);
}

uint64_t vmp_log_metadata_bytes(const vmp_log *log) {
  uint64_t bytes = sizeof *log + log->window_records * VMP_LOG_RECORD_BYTES + VMP_LOG_HEADER_BYTES;
  const log_interned *tables[] = {&log->strings, &log->stacks};
  for (size_t i = 0; i < 2; i++) {
    bytes += tables[i]->capacity * sizeof(log_item) + tables[i]->num_slots * sizeof(uint32_t);
    bytes += tables[i]->capacity_bytes;
  }
  return bytes;
}

// ---- stacks ----

#ifdef HAVE_BACKTRACE

static bool known_frame(const vmp_log *log, uint64_t frame) {
  for (size_t i = 0; i < log->num_modules; i++) {
    if (frame - log->modules[i].address < log->modules[i].bytes) return true;
  }
  return false;
}

// see_module keeps the executable part of a loaded file.
static int see_module(struct dl_phdr_info *info, size_t size, void *context) {
  vmp_log *log = context;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum && log->num_modules < LOG_MODULES; i++) {
    const ElfW(Phdr) *part = &info->dlpi_phdr[i];
    if (part->p_type != PT_LOAD || (part->p_flags & PF_X) == 0) continue;
    uint64_t address = (uint64_t)info->dlpi_addr + part->p_vaddr;
    if (known_frame(log, address)) continue;
    log_module *module = &log->modules[log->num_modules];
    const char *name = info->dlpi_name != NULL && info->dlpi_name[0] != '\0' ? info->dlpi_name : "(program)";
    *module = (log_module){address, part->p_memsz, (uint64_t)info->dlpi_addr, vmp_log_string(log, name)};
    log->num_modules++;
    write_module(log, module, 0);
  }
  return 0;
}

uint32_t vmp_log_stack_now(vmp_log *log, uint64_t bytes) {
  if (log->stack_bytes == 0) return 0;
  if (bytes < log->until_stack_bytes) {
    log->until_stack_bytes -= bytes;
    return 0;
  }
  log->until_stack_bytes = log->stack_bytes;
  void *raw[LOG_STACK_DEPTH];
  int depth = backtrace(raw, (int)LOG_STACK_DEPTH);
  uint64_t frames[LOG_STACK_DEPTH];
  bool all_known = true;
  for (int i = 0; i < depth; i++) {
    frames[i] = (uint64_t)(uintptr_t)raw[i];
    all_known = all_known && known_frame(log, frames[i]);
  }
  if (depth <= 0) return 0;
  if (!all_known && log->num_modules < LOG_MODULES) (void)dl_iterate_phdr(see_module, log);
  bool is_new;
  uint32_t id = intern(&log->stacks, frames, (uint32_t)((size_t)depth * sizeof frames[0]), &is_new);
  if (is_new) write_stack(log, id, 0);
  return id;
}

#else

uint32_t vmp_log_stack_now(vmp_log *log, uint64_t bytes) {
  (void)log;
  (void)bytes;
  return 0;  // this C library can't walk stacks
}

#endif
