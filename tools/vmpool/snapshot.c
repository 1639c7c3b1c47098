#include "tools/vmpool/snapshot.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"
#include "tools/common/json_field.h"
#include "tools/common/number.h"
#include "vmm/align.h"

// Beyond what any device has; below it, sums of offsets and cells can't wrap.
#define MAX_GRANULE_BYTES (UINT64_C(1) << 40)
#define MAX_RANGE_BYTES (UINT64_C(1) << 60)

static const char *const state_names[] = {"unmapped", "mapped", "parked", "retiring", "in_transit", "broken"};
static const char *const layer_names[] = {"slab", "mid", "buddy", "region"};

// parsing: where we are, for messages.
typedef struct parsing {
  const char *name;
  tool_error *error;
  size_t range, row;
  const char *table;
} parsing;

static bool row_fail(const parsing *p, const char *what) {
  return tool_fail(p->error, "%s: ranges[%zu].%s[%zu] %s", p->name, p->range, p->table, p->row, what);
}

static bool read_cell(const parsing *p, const json_t *row, size_t index, uint64_t *out) {
  const json_t *cell = json_array_get(row, index);
  if (!json_is_integer(cell) || json_integer_value(cell) < 0)
    return row_fail(p, "has a cell that is no whole number from 0 on");
  *out = (uint64_t)json_integer_value(cell);
  return true;
}

static bool read_name(const parsing *p, const json_t *row, size_t index, const char *const *names, size_t count,
                      size_t *out) {
  const char *name = json_string_value(json_array_get(row, index));
  for (size_t i = 0; name != NULL && i < count; i++) {
    if (strcmp(name, names[i]) == 0) {
      *out = i;
      return true;
    }
  }
  return row_fail(p, "names no known state or layer");
}

// A row must come after the one before it and lie inside the range.
static bool check_row(const parsing *p, const snapshot_range *range, uint64_t offset, uint64_t bytes, uint64_t *end) {
  if (bytes == 0) return row_fail(p, "is empty");
  if (offset < *end) return row_fail(p, "overlaps the row before it");
  if (offset > range->bytes || bytes > range->bytes - offset) return row_fail(p, "lies outside its range");
  *end = offset + bytes;
  return true;
}

static bool read_runs(parsing *p, const json_t *table, snapshot_range *range) {
  uint64_t end = 0;
  p->table = "slots";
  range->num_runs = json_array_size(table);
  range->runs = calloc(range->num_runs + 1, sizeof(*range->runs));
  if (range->runs == NULL) return tool_fail(p->error, "%s: host memory ran out", p->name);
  for (p->row = 0; p->row < range->num_runs; p->row++) {
    const json_t *row = json_array_get(table, p->row);
    snapshot_run *run = &range->runs[p->row];
    size_t state = 0;
    if (!read_cell(p, row, 0, &run->offset) || !read_cell(p, row, 1, &run->bytes) ||
        !read_name(p, row, 2, state_names, SNAPSHOT_NUM_STATES, &state) ||
        !check_row(p, range, run->offset, run->bytes, &end)) {
      return false;
    }
    run->state = (snapshot_state)state;
  }
  return true;
}

// read_label takes what cells beyond those of 1.0 say; one that is missing or of another type is none.
static void read_label(const json_t *row, snapshot_block *block) {
  const json_t *tag = json_array_get(row, 6);
  block->tag = json_is_integer(tag) && json_integer_value(tag) > 0 ? (uint64_t)json_integer_value(tag) : 0;
  block->name = json_string_value(json_array_get(row, 7));
}

static bool read_blocks(parsing *p, const json_t *table, snapshot_range *range) {
  uint64_t end = 0;
  p->table = "blocks";
  range->num_blocks = json_array_size(table);
  range->blocks = calloc(range->num_blocks + 1, sizeof(*range->blocks));
  if (range->blocks == NULL) return tool_fail(p->error, "%s: host memory ran out", p->name);
  for (p->row = 0; p->row < range->num_blocks; p->row++) {
    const json_t *row = json_array_get(table, p->row);
    snapshot_block *block = &range->blocks[p->row];
    size_t layer = 0;
    if (!read_cell(p, row, 0, &block->offset) || !read_cell(p, row, 1, &block->bytes) ||
        !read_cell(p, row, 2, &block->requested_bytes) ||
        !read_name(p, row, 3, layer_names, SNAPSHOT_NUM_LAYERS, &layer) ||
        !check_row(p, range, block->offset, block->bytes, &end)) {
      return false;
    }
    block->layer = (snapshot_layer)layer;
    read_label(row, block);
  }
  return true;
}

static bool read_range(parsing *p, const json_t *object, snapshot_range *range) {
  char where[300];
  snprintf(where, sizeof(where), "%s: ranges[%zu]", p->name, p->range);
  const char *base = json_string_value(json_object_get(object, "base"));
  if (base == NULL || number_parse_address(base, strlen(base), &range->base) != NUMBER_OK) {
    return tool_fail(p->error, "%s: field base: is no address like \"0x7f0000000000\"", where);
  }
  if (!json_field_size(object, "bytes", false, where, &range->bytes, p->error)) return false;
  if (range->bytes > MAX_RANGE_BYTES) return tool_fail(p->error, "%s: field bytes: is over 2^60", where);
  return read_runs(p, json_object_get(object, "slots"), range) &&
         read_blocks(p, json_object_get(object, "blocks"), range);
}

static bool read_ranges(parsing *p, const json_t *document, snapshot *s) {
  const json_t *ranges = json_object_get(document, "ranges");
  if (!json_is_array(ranges)) return tool_fail(p->error, "%s: field ranges: is missing or no list", p->name);
  s->ranges = calloc(json_array_size(ranges) + 1, sizeof(*s->ranges));
  if (s->ranges == NULL) return tool_fail(p->error, "%s: host memory ran out", p->name);
  for (p->range = 0; p->range < json_array_size(ranges); p->range++) {
    s->num_ranges = p->range + 1;
    if (!read_range(p, json_array_get(ranges, p->range), &s->ranges[p->range])) return false;
  }
  return true;
}

static bool read_stats(parsing *p, const json_t *document, snapshot *s) {
  const struct {
    const char *field;
    uint64_t *value;
  } fields[] = {
      {"reserved_va", &s->reserved_va},
      {"mapped", &s->mapped},
      {"live", &s->live},
      {"requested", &s->requested},
      {"parked", &s->parked},
      {"spare", &s->spare},
      {"pending", &s->pending},
      {"retiring", &s->retiring},
      {"broken", &s->broken},
      {"largest_free_mapped", &s->largest_free_mapped},
      {"device_free", &s->device_free},
      {"device_total", &s->device_total},
      {"granule", &s->granule},
  };
  const struct {
    const char *field;
    uint64_t *value;
  } later[] = {
      // not in the first snapshots of version 1.0
      {"regions", &s->regions},
      {"region_reserved", &s->region_reserved},
      {"region_committed", &s->region_committed},
      {"shared", &s->shared},
      {"suspended", &s->suspended},
  };
  char where[300];
  snprintf(where, sizeof(where), "%s: stats", p->name);
  const json_t *stats = json_object_get(document, "stats");
  for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
    if (!json_field_size(stats, fields[i].field, false, where, fields[i].value, p->error)) return false;
  }
  for (size_t i = 0; i < sizeof(later) / sizeof(later[0]); i++) {
    if (!json_field_size(stats, later[i].field, true, where, later[i].value, p->error)) return false;
  }
  if (!vmp_is_power_of_two(s->granule) || s->granule > MAX_GRANULE_BYTES) {
    return tool_fail(p->error, "%s: field granule: %" PRIu64 " is no power of two up to 2^40", where, s->granule);
  }
  return true;
}

static bool read_head(parsing *p, const json_t *document, snapshot *s) {
  const json_t *schema = json_object_get(document, "schema");
  const char *name = json_string_value(json_object_get(schema, "name"));
  const char *version = json_string_value(json_object_get(schema, "version"));
  if (name == NULL || version == NULL || strcmp(name, "vmpool-snapshot") != 0) {
    return tool_fail(p->error, "%s: is JSON, but no vmpool snapshot", p->name);
  }
  if (strncmp(version, "1.", 2) != 0) {
    return tool_fail(p->error, "%s: is a snapshot of version %.20s; this vmpool reads 1.x", p->name, version);
  }
  const json_t *pool = json_object_get(document, "pool");
  const char *pool_name = json_string_value(json_object_get(pool, "name"));
  const char *driver = json_string_value(json_object_get(pool, "driver"));
  snprintf(s->pool_name, sizeof(s->pool_name), "%s", pool_name != NULL ? pool_name : "");
  snprintf(s->driver, sizeof(s->driver), "%s", driver != NULL ? driver : "");
  char where[300];
  snprintf(where, sizeof(where), "%s: pool", p->name);
  return json_field_size(pool, "device", true, where, &s->device, p->error);
}

bool snapshot_parse(snapshot *out, const char *name, const char *text, size_t bytes, tool_error *error) {
  json_t *document = json_parse(text, bytes, name, error);
  if (document == NULL) return false;
  parsing p = {.name = name, .error = error};
  snapshot s = {0};
  const bool good = read_head(&p, document, &s) && read_stats(&p, document, &s) && read_ranges(&p, document, &s);
  s.document = document;
  if (good) {
    *out = s;
  } else {
    snapshot_destroy(&s);
  }
  return good;
}

bool snapshot_load(snapshot *out, const char *path, tool_error *error) {
  file_text file;
  if (!file_load(&file, path, error)) return false;
  const bool good = snapshot_parse(out, file.name, file.text, file.bytes, error);
  free(file.text);
  return good;
}

void snapshot_destroy(snapshot *s) {
  for (size_t i = 0; i < s->num_ranges; i++) {
    free(s->ranges[i].runs);
    free(s->ranges[i].blocks);
  }
  free(s->ranges);
  json_decref(s->document);
  memset(s, 0, sizeof(*s));
}

uint64_t snapshot_live_in_memory(const snapshot *s) { return s->live > s->suspended ? s->live - s->suspended : 0; }

const char *snapshot_tag(const snapshot *s, uint64_t tag) {
  const json_t *tags = json_object_get(s->document, "tags");
  const char *name = tag < json_array_size(tags) ? json_string_value(json_array_get(tags, (size_t)tag)) : NULL;
  return name == NULL ? "" : name;
}

uint64_t snapshot_number(const snapshot *s, const char *object, const char *key) {
  const json_t *value = json_object_get(json_object_get(s->document, object), key);
  return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

const char *snapshot_text(const snapshot *s, const char *object, const char *key) {
  const char *text = json_string_value(json_object_get(json_object_get(s->document, object), key));
  return text == NULL ? "" : text;
}

bool snapshot_is_null(const snapshot *s, const char *key) {
  const json_t *value = json_object_get(s->document, key);
  return value == NULL || json_is_null(value);
}
