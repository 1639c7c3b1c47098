#include "tools/vmpool/page_log.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/log/log_walk.h"
#include "tools/vmpool/byte_buffer.h"

#define PAGE_LOG_VERSION 1
#define MAX_NUMBER ((UINT64_C(1) << 53) - 1)  // what a number of the page's language holds exactly

enum { KIND, LAYER, STREAM, FLAGS, TIME, PLACE, BYTES, EXTRA, VALUE, TAG, SAMPLE_EVENT, SAMPLE_PENDING, SAMPLE_SPARE };
enum { NUM_COLUMNS = SAMPLE_SPARE + 1 };
static const char *const column_names[NUM_COLUMNS] = {"kind",         "layer",          "stream",      "flags", "time",
                                                      "place",        "bytes",          "extra",       "value", "tag",
                                                      "sample_event", "sample_pending", "sample_spare"};

typedef struct range {
  uint64_t base, bytes, start;
} range;

typedef struct packing {
  const log_file *log;
  byte_buffer columns[NUM_COLUMNS];
  range *ranges;
  size_t num_ranges, max_ranges;
  uint32_t *string_numbers;  // of the log's strings, in the page; 0: not used yet
  json_t *strings;
  uint64_t handles[64];
  unsigned num_streams;
  uint64_t events, initial, samples, strange;
  uint64_t last_time_ns, last_place, last_sample_event;
  int64_t snapshot_event;
  bool failed;
} packing;

// ---- ranges ----

static void add_range(packing *p, const vmp_log_record *record) {
  const uint64_t base = record->as.event.address, bytes = record->as.event.bytes;
  for (size_t i = 0; i < p->num_ranges; i++) {
    if (p->ranges[i].base != base) continue;
    if (p->ranges[i].bytes < bytes) p->ranges[i].bytes = bytes;
    return;
  }
  if (p->num_ranges == p->max_ranges) {
    const size_t max = p->max_ranges > 0 ? 2 * p->max_ranges : 8;
    range *grown = realloc(p->ranges, max * sizeof(*grown));
    if (grown == NULL) {
      p->failed = true;
      return;
    }
    p->ranges = grown;
    p->max_ranges = max;
  }
  p->ranges[p->num_ranges++] = (range){.base = base, .bytes = bytes};
}

static int by_base(const void *a, const void *b) {
  const uint64_t left = ((const range *)a)->base, right = ((const range *)b)->base;
  return left < right ? -1 : left > right ? 1 : 0;
}

// Ranges that overlap or pass 2^53 together are no log of ours: they are dropped, and events in them are strange.
static void lay_out_ranges(packing *p) {
  uint64_t start = 0;
  size_t kept = 0;
  if (p->num_ranges > 0) qsort(p->ranges, p->num_ranges, sizeof(*p->ranges), by_base);
  for (size_t i = 0; i < p->num_ranges; i++) {
    const range r = p->ranges[i];
    if (r.bytes == 0 || r.bytes > MAX_NUMBER - start || r.bytes > UINT64_MAX - r.base) continue;
    if (kept > 0 && p->ranges[kept - 1].base + p->ranges[kept - 1].bytes > r.base) continue;
    p->ranges[kept++] = (range){.base = r.base, .bytes = r.bytes, .start = start};
    start += r.bytes;
  }
  p->num_ranges = kept;
}

static bool find_place(const packing *p, uint64_t address, uint64_t bytes, uint64_t *out) {
  for (size_t i = 0; i < p->num_ranges; i++) {
    const range *r = &p->ranges[i];
    if (address < r->base || address - r->base >= r->bytes) continue;
    if (bytes > r->bytes - (address - r->base)) return false;
    *out = r->start + (address - r->base);
    return true;
  }
  return false;
}

// ---- texts ----

// text_value: a text as JSON; what is no UTF-8 becomes '?'.
static json_t *text_value(const char *text) {
  json_t *value = json_string(text);
  if (value != NULL) return value;
  char *copy = strdup(text);
  if (copy == NULL) return NULL;
  for (char *c = copy; *c != '\0'; c++) {
    if ((unsigned char)*c >= 128) *c = '?';
  }
  value = json_string(copy);
  free(copy);
  return value;
}

static uint32_t string_number(packing *p, uint32_t id) {
  if (id == 0 || id >= p->log->num_strings || log_string(p->log, id)[0] == '\0') return 0;
  if (p->string_numbers[id] == 0) {
    if (json_array_append_new(p->strings, text_value(log_string(p->log, id))) != 0) p->failed = true;
    p->string_numbers[id] = (uint32_t)json_array_size(p->strings) - 1;
  }
  return p->string_numbers[id];
}

// ---- events ----

static uint64_t clamp(uint64_t value) { return value < MAX_NUMBER ? value : MAX_NUMBER; }

static void put_event(packing *p, const vmp_log_record *r) {
  const unsigned kind = r->kind;
  uint64_t place = p->last_place, extra = r->as.event.extra, value = 0;
  const uint64_t bytes = r->as.event.bytes;
  if (log_kind_has_place(kind) && !find_place(p, r->as.event.address, log_kind_is_stretch(kind) ? bytes : 0, &place)) {
    p->strange++;
    return;
  }
  if (log_kind_is_stretch(kind) && bytes == 0) {
    p->strange++;
    return;
  }
  if (kind == VMP_LOG_ALLOC || kind == VMP_LOG_FREE) extra = extra < bytes ? bytes - extra : 0;
  if (kind == VMP_LOG_TAKE && !find_place(p, r->as.event.value, 0, &value)) {
    p->strange++;
    return;
  }
  if (kind >= VMP_LOG_STEP || kind == VMP_LOG_OOM) value = r->as.event.value;
  byte_buffer *c = p->columns;
  byte_buffer_byte(&c[KIND], kind);
  byte_buffer_byte(&c[LAYER], r->layer);
  byte_buffer_byte(&c[STREAM], r->stream);
  byte_buffer_byte(&c[FLAGS], r->flags);
  byte_buffer_varint(&c[TIME], r->time_ns > p->last_time_ns ? clamp(r->time_ns - p->last_time_ns) : 0);
  byte_buffer_zigzag(&c[PLACE], (int64_t)(place - p->last_place));
  byte_buffer_varint(&c[BYTES], clamp(bytes));
  byte_buffer_varint(&c[EXTRA], clamp(extra));
  byte_buffer_varint(&c[VALUE], clamp(value));
  byte_buffer_varint(&c[TAG], string_number(p, r->as.event.tag));
  if (r->time_ns > p->last_time_ns) p->last_time_ns = r->time_ns;
  p->last_place = place;
  p->events++;
}

static void put_sample(packing *p, const vmp_log_record *r) {
  if (p->events == 0) return;
  byte_buffer_varint(&p->columns[SAMPLE_EVENT], p->events - 1 - p->last_sample_event);
  byte_buffer_varint(&p->columns[SAMPLE_PENDING], clamp(r->as.sample.pending));
  byte_buffer_varint(&p->columns[SAMPLE_SPARE], clamp(r->as.sample.spare));
  p->last_sample_event = p->events - 1;
  p->samples++;
}

static void look_ahead(packing *p) {
  vmp_log_record record;
  for (uint64_t s = p->log->first; s < p->log->end; s++) {
    if (!log_record(p->log, s, &record)) continue;
    if (record.kind == VMP_LOG_RANGE) add_range(p, &record);
    if (record.kind == VMP_LOG_STREAM && record.stream < 64) {
      p->handles[record.stream] = record.as.event.extra;
      if (record.stream >= p->num_streams) p->num_streams = record.stream + 1u;
    }
  }
  lay_out_ranges(p);
}

static void pack_records(packing *p, uint64_t snapshot_records) {
  log_walk walk = log_walk_begin(p->log, UINT64_MAX);
  vmp_log_record r;
  bool initial;
  p->snapshot_event = snapshot_records <= p->log->end ? (int64_t)-2 : -1;
  while (log_walk_next(&walk, &r, &initial)) {
    if (p->last_time_ns == 0) p->last_time_ns = r.time_ns;
    if (p->snapshot_event == -2 && r.sequence >= snapshot_records) p->snapshot_event = (int64_t)p->events - 1;
    if (r.kind == VMP_LOG_SAMPLE) {
      put_sample(p, &r);
    } else {
      put_event(p, &r);
    }
    if (initial) p->initial = p->events;
  }
  if (p->snapshot_event == -2) p->snapshot_event = (int64_t)p->events - 1;
}

// ---- the head ----

static json_t *ranges_value(const packing *p) {
  json_t *list = json_array();
  for (size_t i = 0; i < p->num_ranges; i++) {
    char base[24];
    snprintf(base, sizeof(base), "0x%" PRIx64, p->ranges[i].base);
    json_array_append_new(list, json_pack("[s, I]", base, (json_int_t)p->ranges[i].bytes));
  }
  return list;
}

static json_t *streams_value(const packing *p) {
  json_t *list = json_array();
  for (unsigned i = 0; i < p->num_streams; i++) {
    char handle[24];
    snprintf(handle, sizeof(handle), "0x%" PRIx64, p->handles[i]);
    json_array_append_new(list, json_string(handle));
  }
  return list;
}

static json_t *columns_value(const packing *p) {
  json_t *list = json_array();
  for (size_t i = 0; i < NUM_COLUMNS; i++) {
    json_array_append_new(list, json_pack("[s, I]", column_names[i], (json_int_t)p->columns[i].count));
  }
  return list;
}

static char *head_text(packing *p) {
  const vmp_log_header *h = &p->log->header;
  const uint64_t lost = p->log->first + p->log->missing + h->dropped;
  json_t *head =
      json_pack("{s:i, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:O, s:o, s:o, s:{s:o, s:o, s:o, s:i, s:I}}",
                "version", PAGE_LOG_VERSION, "events", (json_int_t)p->events, "initial", (json_int_t)p->initial,
                "samples", (json_int_t)p->samples, "snapshot_event", (json_int_t)p->snapshot_event, "dropped",
                (json_int_t)clamp(lost), "strange", (json_int_t)p->strange, "granule",
                (json_int_t)clamp(h->granule_bytes), "device_total", (json_int_t)clamp(h->device_total_bytes), "ranges",
                ranges_value(p), "strings", p->strings, "streams", streams_value(p), "columns", columns_value(p),
                "pool", "name", text_value(h->pool_name), "driver", text_value(h->driver), "device_name",
                text_value(h->device_name), "device", (int)h->device, "process", (json_int_t)h->process);
  char *text = head != NULL ? json_dumps(head, JSON_COMPACT) : NULL;
  json_decref(head);
  return text;
}

static bool join(packing *p, page_log *out) {
  byte_buffer whole = {0};
  char *head = head_text(p);
  if (head == NULL) return false;
  byte_buffer_little(&whole, strlen(head), 4);
  byte_buffer_put(&whole, head, strlen(head));
  free(head);
  for (size_t i = 0; i < NUM_COLUMNS; i++) {
    if (p->columns[i].failed) whole.failed = true;
    byte_buffer_put(&whole, p->columns[i].bytes, p->columns[i].count);
    byte_buffer_free(&p->columns[i]);
  }
  if (whole.failed) {
    byte_buffer_free(&whole);
    return false;
  }
  *out = (page_log){.bytes = whole.bytes, .num_bytes = whole.count, .num_events = p->events, .num_initial = p->initial};
  return true;
}

bool page_log_make(page_log *out, const log_file *log, const char *name, uint64_t snapshot_records, tool_error *error) {
  packing p = {.log = log, .strings = json_array()};
  p.string_numbers = calloc(log->num_strings + 1, sizeof(*p.string_numbers));
  bool good = p.string_numbers != NULL && json_array_append_new(p.strings, json_string("")) == 0;
  if (good) {
    look_ahead(&p);
    pack_records(&p, snapshot_records);
    good = !p.failed && join(&p, out);
  }
  for (size_t i = 0; i < NUM_COLUMNS; i++) byte_buffer_free(&p.columns[i]);
  free(p.ranges);
  free(p.string_numbers);
  json_decref(p.strings);
  if (!good) return tool_fail(error, "host memory ran out");
  if (out->num_events > 0) return true;
  free(out->bytes);
  return tool_fail(error, "%s: the log holds no event", name);
}
