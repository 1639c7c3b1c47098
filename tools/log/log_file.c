#include "tools/log/log_file.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"

#define MAX_ID 65535u
#define MAX_PARTS 128u
#define MAX_FRAMES 64u
#define MAX_MODULES 4096u
#define PART_BYTES 32u
#define PART_FRAMES 4u

struct log_text {
  char *text;  // terminated
  uint32_t parts;
};

// log_frames: the frames of one stack.
struct log_frames {
  uint64_t *frames;
  size_t count;
};

bool log_is(const void *text, size_t bytes) { return bytes >= 8 && memcmp(text, VMP_LOG_MAGIC, 8) == 0; }

bool log_record(const log_file *log, uint64_t sequence, vmp_log_record *out) {
  if (sequence < log->first || sequence >= log->end) return false;
  const bool ring = (log->header.flags & VMP_LOG_RING) != 0;
  const uint64_t index = ring ? sequence % log->header.capacity : sequence;
  if (index >= log->num_records) return false;
  vmp_log_record record;
  memcpy(&record, log->records + index * VMP_LOG_RECORD_BYTES, sizeof(record));
  if (record.sequence != sequence) return false;
  *out = record;
  return true;
}

// ---- strings, stacks, modules ----

// grow makes an array of pointers or structs long enough for number `id`; new places are zero.
static bool grow(void *array, size_t *count, size_t element, uint32_t id) {
  if (id < *count) return true;
  size_t wanted = *count == 0 ? 64 : *count;
  while (wanted <= id) wanted *= 2;
  void **at = array;
  unsigned char *grown = realloc(*at, wanted * element);
  if (grown == NULL) return false;
  memset(grown + *count * element, 0, (wanted - *count) * element);
  *at = grown;
  *count = wanted;
  return true;
}

// Parts may be missing, or come twice (keyframes repeat them): each goes to its place. How many there are is said by
// the first one that is seen.
static bool keep_string(log_file *log, const vmp_log_record *record) {
  const uint32_t id = record->as.string.id, part = record->as.string.part, parts = record->as.string.parts;
  if (id == 0 || id > MAX_ID || parts == 0 || parts > MAX_PARTS || part >= parts) return true;
  if (!grow(&log->strings, &log->num_strings, sizeof(*log->strings), id)) return false;
  struct log_text *text = &log->strings[id];
  if (text->text == NULL) {
    text->text = calloc((size_t)parts * PART_BYTES + 1, 1);
    if (text->text == NULL) return false;
    text->parts = parts;
  }
  if (text->parts == parts) memcpy(text->text + (size_t)part * PART_BYTES, record->as.string.text, PART_BYTES);
  return true;
}

static bool keep_stack(log_file *log, const vmp_log_record *record) {
  const uint32_t id = record->as.stack.id, part = record->as.stack.part, parts = record->as.stack.parts;
  if (id == 0 || id > MAX_ID || parts == 0 || parts > MAX_FRAMES / PART_FRAMES || part >= parts) return true;
  if (!grow(&log->stacks, &log->num_stacks, sizeof(*log->stacks), id)) return false;
  struct log_frames *stack = &log->stacks[id];
  if (stack->frames == NULL) {
    stack->frames = calloc(MAX_FRAMES, sizeof(*stack->frames));
    if (stack->frames == NULL) return false;
  }
  for (uint32_t i = 0; i < PART_FRAMES; i++) {
    const size_t at = (size_t)part * PART_FRAMES + i;
    stack->frames[at] = record->as.stack.frames[i];
    if (stack->frames[at] != 0 && at >= stack->count) stack->count = at + 1;
  }
  return true;
}

static bool keep_module(log_file *log, const vmp_log_record *record) {
  for (size_t i = 0; i < log->num_modules; i++) {
    if (log->modules[i].address == record->as.event.address) return true;
  }
  if (log->num_modules == MAX_MODULES) return true;
  log_module *grown = realloc(log->modules, (log->num_modules + 1) * sizeof(*grown));
  if (grown == NULL) return false;
  log->modules = grown;
  grown[log->num_modules++] = (log_module){.address = record->as.event.address,
                                           .bytes = record->as.event.bytes,
                                           .base = record->as.event.extra,
                                           .name = record->as.event.tag};
  return true;
}

static bool collect(log_file *log) {
  vmp_log_record record;
  bool good = true;
  for (uint64_t s = log->first; s < log->end && good; s++) {
    if (!log_record(log, s, &record)) {
      log->missing++;
    } else if (record.kind == VMP_LOG_STRING) {
      good = keep_string(log, &record);
    } else if (record.kind == VMP_LOG_STACK) {
      good = keep_stack(log, &record);
    } else if (record.kind == VMP_LOG_MODULE) {
      good = keep_module(log, &record);
    }
  }
  return good;
}

const char *log_string(const log_file *log, uint32_t id) {
  if (id >= log->num_strings || log->strings[id].text == NULL) return "";
  return log->strings[id].text;
}

log_stack log_stack_of(const log_file *log, uint32_t id) {
  if (id >= log->num_stacks) return (log_stack){0};
  return (log_stack){.frames = log->stacks[id].frames, .count = log->stacks[id].count};
}

void log_frame_text(const log_file *log, uint64_t frame, char *text, size_t size) {
  for (size_t i = 0; i < log->num_modules; i++) {
    const log_module *m = &log->modules[i];
    if (frame - m->address >= m->bytes) continue;
    snprintf(text, size, "%s+0x%" PRIx64, log_string(log, m->name), frame - m->base);
    return;
  }
  snprintf(text, size, "0x%" PRIx64, frame);
}

// ---- the file ----

static bool check_header(const vmp_log_header *h, const char *name, size_t bytes, tool_error *error) {
  if (h->version_major != VMP_LOG_VERSION_MAJOR) {
    return tool_fail(error, "%s: is a log of version %u.%u; this vmpool reads %u.x", name, h->version_major,
                     h->version_minor, VMP_LOG_VERSION_MAJOR);
  }
  if (h->header_bytes < sizeof(*h) || h->header_bytes > bytes || h->record_bytes != VMP_LOG_RECORD_BYTES) {
    return tool_fail(error,
                     "%s: its header is %" PRIu32 " bytes long and its records are %" PRIu32 "; the file is damaged",
                     name, h->header_bytes, h->record_bytes);
  }
  if ((h->flags & VMP_LOG_RING) != 0 && h->capacity == 0) {
    return tool_fail(error, "%s: is a ring without records; the file is damaged", name);
  }
  return true;
}

// bounds decides which sequences may be in the file. The header's numbers are only believed as far as the file goes.
static void bounds(log_file *log) {
  const vmp_log_header *h = &log->header;
  if ((h->flags & VMP_LOG_RING) == 0) {
    log->first = 0;
    log->end = h->written < log->num_records ? h->written : log->num_records;
    return;
  }
  if (h->capacity <= log->num_records) {
    log->end = h->written;
    log->first = h->written - (h->written < h->capacity ? h->written : h->capacity);
    return;
  }
  // A ring that was cut off: what is left of its latest lap.
  const uint64_t lap = h->written - h->written % h->capacity;
  const uint64_t in_lap = h->written - lap;
  log->first = lap;
  log->end = lap + (in_lap < log->num_records ? in_lap : log->num_records);
}

bool log_parse(log_file *out, const char *name, const void *text, size_t bytes, tool_error *error) {
  log_file log = {0};
  if (!log_is(text, bytes)) return tool_fail(error, "%s: is no event log of vmpool", name);
  if (bytes < sizeof(log.header)) return tool_fail(error, "%s: ends within its header", name);
  memcpy(&log.header, text, sizeof(log.header));
  if (!check_header(&log.header, name, bytes, error)) return false;
  log.header.library[sizeof(log.header.library) - 1] = log.header.driver[sizeof(log.header.driver) - 1] = '\0';
  log.header.device_name[sizeof(log.header.device_name) - 1] = '\0';
  log.header.pool_name[sizeof(log.header.pool_name) - 1] = '\0';
  log.records = (const unsigned char *)text + log.header.header_bytes;
  log.num_records = (bytes - log.header.header_bytes) / VMP_LOG_RECORD_BYTES;
  bounds(&log);
  if (!collect(&log)) {
    log_destroy(&log);
    return tool_fail(error, "%s: host memory ran out", name);
  }
  *out = log;
  return true;
}

bool log_load(log_file *out, const char *path, tool_error *error) {
  file_text file;
  if (!file_load(&file, path, error)) return false;
  if (!log_parse(out, file.name, file.text, file.bytes, error)) {
    free(file.text);
    return false;
  }
  out->owned = (unsigned char *)file.text;
  return true;
}

void log_destroy(log_file *log) {
  for (size_t i = 0; i < log->num_strings; i++) free(log->strings[i].text);
  for (size_t i = 0; i < log->num_stacks; i++) free(log->stacks[i].frames);
  free(log->strings);
  free(log->stacks);
  free(log->modules);
  free(log->owned);
  memset(log, 0, sizeof(*log));
}

const char *log_kind_name(unsigned kind) {
  switch (kind) {
    case VMP_LOG_KEYFRAME: return "keyframe";
    case VMP_LOG_STRING: return "string";
    case VMP_LOG_STACK: return "stack";
    case VMP_LOG_MODULE: return "module";
    case VMP_LOG_STREAM: return "stream";
    case VMP_LOG_RANGE: return "range";
    case VMP_LOG_SAMPLE: return "sample";
    case VMP_LOG_ALLOC: return "alloc";
    case VMP_LOG_FREE: return "free";
    case VMP_LOG_OOM: return "oom";
    case VMP_LOG_USE: return "use";
    case VMP_LOG_MOVED: return "moved";
    case VMP_LOG_MAP: return "map";
    case VMP_LOG_TAKE: return "take";
    case VMP_LOG_RETIRE: return "retire";
    case VMP_LOG_UNMAP: return "unmap";
    case VMP_LOG_RELEASE: return "release";
    case VMP_LOG_SPARE: return "spare";
    case VMP_LOG_SHARE: return "share";
    case VMP_LOG_STEP: return "step";
    case VMP_LOG_MARK: return "mark";
    case VMP_LOG_SNAPSHOT: return "snapshot";
    case VMP_LOG_DEFRAGMENT: return "defragment";
    case VMP_LOG_TRIM: return "trim";
    case VMP_LOG_LIMIT: return "limit";
    case VMP_LOG_SUSPEND: return "suspend";
    case VMP_LOG_RESUME: return "resume";
    default: return NULL;
  }
}
