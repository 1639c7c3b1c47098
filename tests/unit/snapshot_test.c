// snapshot_test.c: vmp_pool_snapshot, read back by jansson (strict), against pool/snapshot.schema.json and against what
// the pool itself says. Bug case 72.
#include <jansson.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/pool/pool_rig.h"
#include "vmm/memory.h"

typedef struct snap_rig {
  pool_rig rig;
  char path[512];
  json_t *schema, *root;
} snap_rig;

static void snap_rig_setup(snap_rig *f) {
  (void)snprintf(f->path, sizeof f->path, "%s/snapshot_test.%ld.json", vtest_temp_dir(), (long)getpid());
  json_error_t error;
  f->schema = json_load_file("pool/snapshot.schema.json", JSON_REJECT_DUPLICATES, &error);
  if (f->schema == NULL) VFAIL("pool/snapshot.schema.json, line %d: %s", error.line, error.text);
}

static void snap_rig_teardown(snap_rig *f) {
  json_decref(f->schema);
  json_decref(f->root);
  (void)unlink(f->path);
  pool_rig_teardown(&f->rig);
}

// ---- a validator of what our schema uses: type, enum, pattern, minimum, required, properties, items ----

static bool type_matches(const char *type, const json_t *value) {
  if (strcmp(type, "object") == 0) return json_is_object(value);
  if (strcmp(type, "array") == 0) return json_is_array(value);
  if (strcmp(type, "string") == 0) return json_is_string(value);
  if (strcmp(type, "integer") == 0) return json_is_integer(value);
  if (strcmp(type, "null") == 0) return json_is_null(value);
  return false;
}

static void validate_type(const json_t *type, const json_t *value, const char *where) {
  bool matches = type == NULL;
  if (json_is_string(type)) matches = type_matches(json_string_value(type), value);
  for (size_t i = 0; i < json_array_size(type); i++) {
    matches = matches || type_matches(json_string_value(json_array_get(type, i)), value);
  }
  if (!matches) VADD_FAILURE("%s has another type than the schema says", where);
}

static void validate_scalar(const json_t *schema, const json_t *value, const char *where) {
  const json_t *choices = json_object_get(schema, "enum"), *pattern = json_object_get(schema, "pattern");
  const json_t *minimum = json_object_get(schema, "minimum");
  bool found = choices == NULL;
  for (size_t i = 0; i < json_array_size(choices); i++) found = found || json_equal(json_array_get(choices, i), value);
  if (!found) VADD_FAILURE("%s is none of the schema's values", where);
  if (minimum != NULL && json_is_integer(value) && json_integer_value(value) < json_integer_value(minimum)) {
    VADD_FAILURE("%s is below the schema's minimum", where);
  }
  if (pattern != NULL && json_is_string(value)) {
    regex_t regex;
    VASSERT_INT_EQ(regcomp(&regex, json_string_value(pattern), REG_EXTENDED | REG_NOSUB), 0);
    if (regexec(&regex, json_string_value(value), 0, NULL, 0) != 0) {
      VADD_FAILURE("%s is \"%s\", not like %s", where, json_string_value(value), json_string_value(pattern));
    }
    regfree(&regex);
  }
}

static void validate(json_t *schema, json_t *value, const char *where);

static void validate_object(json_t *schema, json_t *value, const char *where) {
  json_t *required = json_object_get(schema, "required"), *properties = json_object_get(schema, "properties");
  json_t *additional = json_object_get(schema, "additionalProperties"), *member;
  const char *key;
  for (size_t i = 0; i < json_array_size(required); i++) {
    key = json_string_value(json_array_get(required, i));
    if (json_object_get(value, key) == NULL) VADD_FAILURE("%s lacks %s", where, key);
  }
  json_object_foreach(value, key, member) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s.%s", where, key);
    json_t *property = json_object_get(properties, key);
    if (property == NULL) property = additional;
    if (property == NULL) VADD_FAILURE("%s is in no property of the schema", path);
    if (property != NULL) validate(property, member, path);
  }
}

static void validate_array(json_t *schema, json_t *value, const char *where) {
  json_t *items = json_object_get(schema, "items");
  size_t least = (size_t)json_integer_value(json_object_get(schema, "minItems"));
  if (json_array_size(value) < least) VADD_FAILURE("%s has fewer items than the schema says", where);
  for (size_t i = 0; i < json_array_size(value); i++) {
    char path[256];
    (void)snprintf(path, sizeof path, "%s[%zu]", where, i);
    json_t *item = json_is_array(items) ? json_array_get(items, i) : items;
    if (item == NULL) VADD_FAILURE("%s is beyond the schema's items", path);
    if (item != NULL) validate(item, json_array_get(value, i), path);
  }
}

static void validate(json_t *schema, json_t *value, const char *where) {
  validate_type(json_object_get(schema, "type"), value, where);
  validate_scalar(schema, value, where);
  if (json_is_object(value)) validate_object(schema, value, where);
  if (json_is_array(value)) validate_array(schema, value, where);
}

static void load(snap_rig *f) {
  json_error_t error;
  json_decref(f->root);
  f->root = json_load_file(f->path, JSON_REJECT_DUPLICATES, &error);
  if (f->root == NULL) VFAIL("%s, line %d: %s", f->path, error.line, error.text);
  validate(f->schema, f->root, "snapshot");
}

static void take_snapshot(snap_rig *f) {
  VASSERT_OK(vmp_pool_snapshot(f->rig.pool, f->path));
  load(f);
}

static uint64_t stat_of(const snap_rig *f, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(json_object_get(f->root, "stats"), key));
}

static uint64_t cell(json_t *row, size_t i) { return (uint64_t)json_integer_value(json_array_get(row, i)); }

// expect_tables_add_up compares the rows of all ranges with the statistics.
static void expect_tables_add_up(snap_rig *f) {
  uint64_t live = 0, requested = 0, blocks = 0, slots = 0, parked = 0, spares = 0, reserved = 0;
  json_t *ranges = json_object_get(f->root, "ranges"), *range, *row;
  size_t i, j;
  json_array_foreach(ranges, i, range) {
    uint64_t last = 0, bytes = (uint64_t)json_integer_value(json_object_get(range, "bytes"));
    reserved += bytes;
    json_array_foreach(json_object_get(range, "blocks"), j, row) {
      VASSERT_UINT_GE(cell(row, 0), last);  // rising, not overlapping, inside
      last = cell(row, 0) + cell(row, 1);
      VASSERT_UINT_LE(last, bytes);
      live += cell(row, 1);
      requested += cell(row, 2);
      blocks++;
    }
    last = 0;
    json_array_foreach(json_object_get(range, "slots"), j, row) {
      VASSERT_UINT_GE(cell(row, 0), last);
      last = cell(row, 0) + cell(row, 1);
      VASSERT_UINT_LE(last, bytes);
      const char *state = json_string_value(json_array_get(row, 2));
      if (strcmp(state, "mapped") == 0) slots += cell(row, 1);
      if (strcmp(state, "parked") == 0) parked += cell(row, 1);
    }
  }
  json_array_foreach(json_object_get(f->root, "spares"), j, row) spares += cell(row, 1);
  VEXPECT_UINT_EQ(live, stat_of(f, "live"));
  VEXPECT_UINT_EQ(requested, stat_of(f, "requested"));
  VEXPECT_UINT_EQ(blocks, stat_of(f, "blocks"));
  VEXPECT_UINT_EQ(slots + parked, stat_of(f, "mapped"));
  VEXPECT_UINT_EQ(parked, stat_of(f, "parked"));
  VEXPECT_UINT_EQ(spares, stat_of(f, "spare"));
  VEXPECT_UINT_EQ(reserved, stat_of(f, "reserved_va"));
}

VTEST_F(Snapshot, AnEmptyPool, snap_rig) {
  rig_open(&f->rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(json_string_value(json_object_get(json_object_get(f->root, "schema"), "name")), "vmpool-snapshot");
  VEXPECT_STR_EQ(json_string_value(json_object_get(json_object_get(f->root, "schema"), "version")), "1.1");
  VEXPECT_UINT_EQ(json_array_size(json_object_get(f->root, "ranges")), 1);
  VEXPECT_TRUE(json_is_null(json_object_get(json_object_get(f->root, "stats"), "hard_limit")));
  expect_tables_add_up(f);
}

VTEST_F(Snapshot, ABusyPool, snap_rig) {
  rig_open(&f->rig, GIB, "preset:classic,reserve:256MiB,arena:64MiB,chunk_max:8MiB,buddy_from:48MiB");
  VASSERT_NO_FAILURE();
  void *blocks[200];
  for (size_t i = 0; i < 200; i++) blocks[i] = rig_alloc(&f->rig, (i * 7919) % 5000000 + 1, f->rig.streams[i % 4]);
  for (size_t i = 0; i < 200; i += 3) {
    rig_touch(&f->rig, blocks[i], (i * 7919) % 5000000 + 1, f->rig.streams[i % 4]);
    rig_free(&f->rig, blocks[i], f->rig.streams[i % 4]);
  }
  void *large = rig_alloc(&f->rig, 100 * MIB, f->rig.streams[0]);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  expect_tables_add_up(f);
  // Every block of the pool is in the snapshot, at its address.
  size_t found = 0, i, j, wanted = 0;
  json_t *range, *row;
  json_array_foreach(json_object_get(f->root, "ranges"), i, range) {
    uint64_t base = strtoull(json_string_value(json_object_get(range, "base")), NULL, 16);
    json_array_foreach(json_object_get(range, "blocks"), j, row) {
      vmp_block_info info = VMP_BLOCK_INFO_INIT;
      VASSERT_OK(vmp_block_query(f->rig.pool, (void *)(uintptr_t)(base + cell(row, 0)), &info));
      VASSERT_UINT_EQ(rig_address(info.base), base + cell(row, 0));
      VASSERT_UINT_EQ(info.bytes, cell(row, 1));
      VASSERT_UINT_EQ(info.requested_bytes, cell(row, 2));
      VASSERT_STR_EQ(info.layer, json_string_value(json_array_get(row, 3)));
      found++;
    }
  }
  for (i = 0; i < 200; i++) wanted += i % 3 != 0;
  VEXPECT_UINT_EQ(found, wanted + 1);
  VEXPECT_UINT_GE(json_array_size(json_object_get(f->root, "ranges")), 2);  // a second reservation
  for (i = 0; i < 200; i++) {
    if (i % 3 != 0) rig_free(&f->rig, blocks[i], f->rig.streams[i % 4]);
  }
  rig_free(&f->rig, large, f->rig.streams[0]);
}

// The fields of the statistics are the snapshot's, by name and by value.
VTEST_F(Snapshot, StatisticsAreTheCalls, snap_rig) {
  rig_open(&f->rig, 8 * GIB, "hard_limit:1GiB,soft_limit:512MiB");
  VASSERT_NO_FAILURE();
  void *a = rig_alloc(&f->rig, 70 * MIB + 5, NULL);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  vmp_pool_stats_data s = rig_stats(&f->rig);
  VEXPECT_UINT_EQ(stat_of(f, "live"), s.live);
  VEXPECT_UINT_EQ(stat_of(f, "requested"), 70 * MIB + 5);
  VEXPECT_UINT_EQ(stat_of(f, "mapped"), s.mapped);
  VEXPECT_UINT_EQ(stat_of(f, "hard_limit"), GIB);
  VEXPECT_UINT_EQ(stat_of(f, "soft_limit"), 512 * MIB);
  VEXPECT_UINT_EQ(stat_of(f, "device_free"), s.device_free);
  VEXPECT_UINT_EQ(stat_of(f, "device_total"), 8 * GIB);
  VEXPECT_UINT_EQ(stat_of(f, "peak_live"), s.peak_live);
  VEXPECT_UINT_EQ(stat_of(f, "chunks_created"), s.chunks_created);
  rig_free(&f->rig, a, NULL);
}

// Case 72: names with anything in them, addresses beyond every reader's integers.
VTEST_F(Snapshot, Case72AnyName, snap_rig) {
  char name[10241];
  static const char piece[] = "\"quoted\" back\\slash\nnew line\ttab \xc3\xa9 \xe2\x82\xac ";
  for (size_t i = 0; i + 1 < sizeof name; i++) name[i] = piece[i % (sizeof piece - 1)];
  name[10240 - 10240 % (sizeof piece - 1)] = '\0';  // whole characters only
  rig_open_driver(&f->rig, 8 * GIB);
  VASSERT_NO_FAILURE();
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->rig.driver;
  options.name = name;
  VASSERT_OK(vmp_pool_create(&f->rig.pool, &options));
  void *a = rig_alloc(&f->rig, 1, NULL);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  VEXPECT_STR_EQ(json_string_value(json_object_get(json_object_get(f->root, "pool"), "name")), name);
  bool in_config = false;
  json_t *entry;
  size_t i;
  json_array_foreach(json_object_get(f->root, "config"), i, entry) {
    if (strcmp(json_string_value(json_object_get(entry, "key")), "name") == 0) {
      VEXPECT_STR_EQ(json_string_value(json_object_get(entry, "value")), name);
      in_config = true;
    }
  }
  VEXPECT_TRUE(in_config);
  json_t *range = json_array_get(json_object_get(f->root, "ranges"), 0);
  uint64_t base = strtoull(json_string_value(json_object_get(range, "base")), NULL, 16);
  VEXPECT_UINT_GE(base, UINT64_C(1) << 48);  // the host driver's high addresses
  rig_free(&f->rig, a, NULL);
}

VTEST_F(Snapshot, ConfigTellsSources, snap_rig) {
  rig_open(&f->rig, 8 * GIB, "preset:tight,wait:250ms");
  VASSERT_NO_FAILURE();
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  size_t i, seen = 0;
  json_t *entry;
  json_array_foreach(json_object_get(f->root, "config"), i, entry) {
    const char *key = json_string_value(json_object_get(entry, "key"));
    const char *value = json_string_value(json_object_get(entry, "value"));
    const char *source = json_string_value(json_object_get(entry, "source"));
    if (strcmp(key, "chunk_max") == 0) {
      VEXPECT_STR_EQ(value, "2MiB");
      VEXPECT_STR_EQ(source, "preset tight");
      seen++;
    } else if (strcmp(key, "wait") == 0) {
      VEXPECT_STR_EQ(value, "250ms");
      VEXPECT_STR_EQ(source, "conf");
      seen++;
    }
  }
  VEXPECT_UINT_EQ(seen, 2);
}

static json_t *table(const snap_rig *f, const char *name) {
  return json_object_get(json_array_get(json_object_get(f->root, "ranges"), 0), name);
}

static uint64_t layer_stat(const snap_rig *f, const char *layer, const char *key) {
  return (uint64_t)json_integer_value(json_object_get(json_object_get(json_object_get(f->root, "layers"), layer), key));
}

// Spans hold slab's objects: used ones are blocks, all of them lie in the span.
VTEST_F(Snapshot, SpansHoldTheObjects, snap_rig) {
  rig_open(&f->rig, 8 * GIB, "thread_cache:0");
  VASSERT_NO_FAILURE();
  void *blocks[90];
  for (size_t i = 0; i < 90; i++) blocks[i] = rig_alloc(&f->rig, 1000 * (i % 9 + 1), f->rig.streams[0]);
  for (size_t i = 0; i < 90; i += 2) rig_free(&f->rig, blocks[i], f->rig.streams[0]);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  uint64_t used_bytes = 0, spans = 0, end = 0, objects = 0, waiting = 0;
  size_t i;
  json_t *row;
  json_array_foreach(table(f, "spans"), i, row) {
    VASSERT_UINT_GE(cell(row, 0), end);
    end = cell(row, 0) + cell(row, 1);
    VASSERT_UINT_LE(cell(row, 2) * cell(row, 3), cell(row, 1));
    VASSERT_UINT_LE(cell(row, 4), cell(row, 3));
    waiting += strcmp(json_string_value(json_array_get(row, 5)), "0x1") == 0;  // freed, and nobody has asked yet
    used_bytes += cell(row, 2) * cell(row, 4);
    objects += cell(row, 4);
    spans++;
  }
  VEXPECT_UINT_GT(spans, 3);
  VEXPECT_UINT_EQ(objects, 45);
  VEXPECT_UINT_GT(waiting, 0);
  VEXPECT_UINT_EQ(used_bytes, stat_of(f, "slab_live"));
  VEXPECT_UINT_EQ(layer_stat(f, "slab", "spans"), spans);
  VEXPECT_UINT_EQ(layer_stat(f, "slab", "objects"), 45);
  for (size_t k = 1; k < 90; k += 2) rig_free(&f->rig, blocks[k], f->rig.streams[0]);
}

// A block's recorded streams, the streams' handles, and who keeps how much from reuse.
VTEST_F(Snapshot, StreamsAndWhatTheyKeep, snap_rig) {
  rig_open(&f->rig, 8 * GIB, "chunk_max:1granule,no_map_ahead:1");
  VASSERT_NO_FAILURE();
  void *shared = rig_alloc(&f->rig, GRANULE, f->rig.streams[0]);
  void *gone = rig_alloc(&f->rig, 3 * GRANULE, f->rig.streams[1]);
  VASSERT_OK(vmp_record_use(f->rig.pool, shared, f->rig.streams[2]));
  rig_touch(&f->rig, gone, 3 * GRANULE, f->rig.streams[1]);
  rig_free(&f->rig, gone, f->rig.streams[1]);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  VASSERT_UINT_EQ(json_array_size(table(f, "blocks")), 1);
  json_t *row = json_array_get(table(f, "blocks"), 0), *stream;
  VEXPECT_STR_EQ(json_string_value(json_array_get(row, 5)), "0x4");
  VEXPECT_UINT_EQ(cell(row, 4), 0);  // allocated on streams[0]
  VEXPECT_UINT_EQ(cell(row, 6), 0);
  VASSERT_UINT_EQ(json_array_size(json_object_get(f->root, "streams")), 3);
  size_t i;
  uint64_t pending = 0, handles = 0;
  json_array_foreach(json_object_get(f->root, "streams"), i, stream) {
    uint64_t bytes = (uint64_t)json_integer_value(json_object_get(stream, "pending"));
    uint64_t index = (uint64_t)json_integer_value(json_object_get(stream, "index"));
    if (index == 1) VEXPECT_UINT_EQ(bytes, 3 * GRANULE);
    uint64_t handle = strtoull(json_string_value(json_object_get(stream, "handle")), NULL, 16);
    VASSERT_UINT_LT(index, RIG_STREAMS);
    handles += handle == (uint64_t)(uintptr_t)f->rig.streams[index];
    pending += bytes;
  }
  VEXPECT_UINT_EQ(handles, 3);
  VEXPECT_UINT_EQ(pending, stat_of(f, "pending"));
  rig_free(&f->rig, shared, f->rig.streams[0]);
}

// Whoever hands a block out, the pool or a thread's cache, the block knows its stream.
VTEST_F(Snapshot, TheStreamOfEachBlock, snap_rig) {
  rig_open(&f->rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  static const uint64_t sizes[] = {1000, 1000, 5000, 40000, 3 * MIB};
  void *blocks[40];
  for (size_t round = 0; round < 3; round++) {
    for (size_t i = 0; i < 40; i++) blocks[i] = rig_alloc(&f->rig, sizes[i % 5], f->rig.streams[i % 4]);
    for (size_t i = 0; i < 40 && round < 2; i++) rig_free(&f->rig, blocks[i], f->rig.streams[(i + round) % 4]);
  }
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  size_t i, k, seen = 0;
  json_t *row, *stream;
  uint64_t base = strtoull(
      json_string_value(json_object_get(json_array_get(json_object_get(f->root, "ranges"), 0), "base")), NULL, 16);
  json_array_foreach(table(f, "blocks"), k, row) {
    for (i = 0; i < 40 && rig_address(blocks[i]) != base + cell(row, 0);) i++;
    VASSERT_UINT_LT(i, 40);
    size_t at;
    uint64_t handle = 0;
    json_array_foreach(json_object_get(f->root, "streams"), at, stream) {
      if ((uint64_t)json_integer_value(json_object_get(stream, "index")) != cell(row, 4)) continue;
      handle = strtoull(json_string_value(json_object_get(stream, "handle")), NULL, 16);
    }
    VEXPECT_UINT_EQ(handle, (uint64_t)(uintptr_t)f->rig.streams[i % 4]);
    seen++;
  }
  VEXPECT_UINT_EQ(seen, 40);
  for (i = 0; i < 40; i++) rig_free(&f->rig, blocks[i], f->rig.streams[i % 4]);
}

// A chunk that was taken while its old user still runs is mapped at two places, under one number.
VTEST_F(Snapshot, AChunkAtTwoPlaces, snap_rig) {
  rig_open(&f->rig, 16 * GRANULE, "chunk_max:1granule,no_map_ahead:1,buddy_from:1granule,slab_max:0");
  VASSERT_NO_FAILURE();
  void *old[8];
  for (size_t i = 0; i < 8; i++) old[i] = rig_alloc(&f->rig, 2 * GRANULE, f->rig.streams[0]);
  for (size_t i = 0; i < 8; i += 2) {
    rig_touch(&f->rig, old[i], 2 * GRANULE, f->rig.streams[0]);
    rig_free(&f->rig, old[i], f->rig.streams[0]);
  }
  void *large = rig_alloc(&f->rig, 8 * GRANULE, f->rig.streams[0]);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  VEXPECT_UINT_EQ(stat_of(f, "retiring"), 8 * GRANULE);
  size_t i, j, twice = 0;
  json_t *a, *b;
  json_array_foreach(table(f, "chunks"), i, a) {
    if (strcmp(json_string_value(json_array_get(a, 2)), "retiring") != 0) continue;
    VEXPECT_STR_EQ(json_string_value(json_array_get(a, 5)), "0x1");
    json_array_foreach(table(f, "chunks"), j, b) {
      twice += i != j && cell(a, 3) == cell(b, 3) && strcmp(json_string_value(json_array_get(b, 2)), "mapped") == 0;
    }
  }
  VEXPECT_UINT_EQ(twice, 8);
  for (size_t k = 1; k < 8; k += 2) rig_free(&f->rig, old[k], f->rig.streams[0]);
  rig_free(&f->rig, large, f->rig.streams[0]);
}

// The last failure: what was asked for, and the sentence that the caller got.
VTEST_F(Snapshot, KeepsTheLastFailure, snap_rig) {
  rig_open(&f->rig, 16 * GRANULE, NULL);
  VASSERT_NO_FAILURE();
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  VEXPECT_TRUE(json_is_null(json_object_get(f->root, "failure")));
  void *most = rig_alloc(&f->rig, 12 * GRANULE, NULL), *none = NULL;
  VASSERT_STATUS(vmp_alloc_aligned(f->rig.pool, &none, 6 * GRANULE, 4096, f->rig.streams[1]), VMP_ERROR_OUT_OF_MEMORY);
  char message[sizeof((vmp_error *)NULL)->message];
  (void)snprintf(message, sizeof message, "%s", vmp_last_error()->message);
  take_snapshot(f);
  VASSERT_NO_FAILURE();
  const json_t *failure = json_object_get(f->root, "failure");
  VASSERT_TRUE(json_is_object(failure));
  VEXPECT_STR_EQ(json_string_value(json_object_get(failure, "status")), "VMP_ERROR_OUT_OF_MEMORY");
  VEXPECT_STR_EQ(json_string_value(json_object_get(failure, "message")), message);
  VEXPECT_UINT_EQ((uint64_t)json_integer_value(json_object_get(failure, "requested")), 6 * GRANULE);
  VEXPECT_UINT_EQ((uint64_t)json_integer_value(json_object_get(failure, "alignment")), 4096);
  VEXPECT_UINT_EQ((uint64_t)json_integer_value(json_object_get(failure, "largest")), 4 * GRANULE);
  VEXPECT_UINT_EQ((uint64_t)json_integer_value(json_object_get(failure, "stream")), 1);
  rig_free(&f->rig, most, NULL);
}

VTEST_F(Snapshot, Failures, snap_rig) {
  rig_open(&f->rig, 8 * GIB, NULL);
  VASSERT_NO_FAILURE();
  VEXPECT_STATUS(vmp_pool_snapshot(f->rig.pool, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_snapshot(f->rig.pool, ""), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_snapshot(NULL, f->path), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_pool_snapshot(f->rig.pool, "/no/such/folder/file.json"), VMP_ERROR_IO);
  VEXPECT_STATUS(vmp_pool_snapshot(f->rig.pool, vtest_temp_dir()), VMP_ERROR_IO);
  take_snapshot(f);
  // Host memory fails in each allocation in turn: the file stays what it was.
  for (uint64_t n = 0;; n++) {
    vmp_mem_fail_after(n, 1);
    vmp_status status = vmp_pool_snapshot(f->rig.pool, f->path);
    uint64_t failures = vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    if (failures == 0) break;
    VASSERT_STATUS(status, VMP_ERROR_HOST_OUT_OF_MEMORY);
    load(f);
    VASSERT_NO_FAILURE();
  }
}
