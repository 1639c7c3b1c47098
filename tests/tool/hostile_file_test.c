// Snapshots and logs that are cut, wrong or meant to harm: one sentence, or a drawing; never a crash (run under ASan).
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "tests/tool/snapshot_support.h"
#include "tools/common/file.h"
#include "tools/replay/replay.h"
#include "tools/vmpool/map.h"
#include "tools/vmpool/views.h"

#define CUTS 1000

static void expect_sentence(const tool_error *error) {
  VEXPECT_TRUE(error->text[0] != '\0');
  VEXPECT_TRUE(strchr(error->text, '\n') == NULL && strchr(error->text, '\033') == NULL);
}

static void load(const char *name, file_text *out) {
  tool_error error = {{0}};
  char path[256];
  snprintf(path, sizeof(path), GOLDEN_DIR "%s", name);
  if (!file_load(out, path, &error)) VFAIL("%s", error.text);
}

// look_at_snapshot draws everything that can be drawn of it.
static void look_at_snapshot(const snapshot *s) {
  char *text = NULL;
  size_t bytes = 0;
  tool_error error = {{0}};
  const map_style style = {.width = 80, .utf8 = true, .color = true, .depth = STYLE_TRUECOLOR};
  FILE *out = open_memstream(&text, &bytes);
  view_stats(out, &style, s);
  VEXPECT_TRUE(view_hist(out, &style, s));
  VEXPECT_TRUE(view_diff(out, &style, s, s));
  (void)view_oom(out, &style, s);
  view_fit(out, &style, s, 12345678);
  VEXPECT_UINT_NE(view_check_snapshot(out, s), UINT64_MAX);
  view_why(out, &style, s, NULL, 0x700006000010);
  map_ledger(out, &style, s);
  VEXPECT_TRUE(map_ranges(out, &style, s, 4));
  (void)map_zoom(out, &style, s, 0x700006000000, 0x700006100000, 4, &error);
  fclose(out);
  free(text);
}

// try_snapshot parses a text; what parses is looked at.
static bool try_snapshot(const char *text, size_t bytes) {
  snapshot s;
  tool_error error = {{0}};
  char *exact = malloc(bytes + 1);  // of exactly that size: a read beyond it is noticed
  VEXPECT_TRUE(exact != NULL);
  memcpy(exact, text, bytes);
  const bool good = snapshot_parse(&s, "t", exact, bytes, &error);
  free(exact);
  if (good) {
    look_at_snapshot(&s);
    snapshot_destroy(&s);
  } else {
    expect_sentence(&error);
  }
  return good;
}

VTEST(HostileSnapshot, CutAnywhere) {
  file_text file;
  load("after.json", &file);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < CUTS; i++) VEXPECT_FALSE(try_snapshot(file.text, (file.bytes - 1) * i / CUTS));
  VEXPECT_TRUE(try_snapshot(file.text, file.bytes));
  free(file.text);
}

// ---- every value replaced ----

static json_t *hostile_value(size_t i) {
  switch (i) {
    case 0: return json_null();
    case 1: return json_string("<script>alert(1)</script>\033[2J");
    case 2: return json_integer(-1);
    case 3: return json_integer(INT64_MAX);
    case 4: return json_integer(0);
    case 5: return json_real(1e300);
    case 6: return json_array();
    case 7: return json_object();
    case 8: return json_true();
    default: return NULL;
  }
}

static size_t tried;

static void try_document(const json_t *document) {
  char *text = json_dumps(document, JSON_COMPACT);
  VEXPECT_TRUE(text != NULL);
  (void)try_snapshot(text, strlen(text));
  free(text);
  tried++;
}

// replace_all puts each hostile value in the place of each value below `at`, one at a time.
static void replace_all(const json_t *document, json_t *at) {
  if (json_is_object(at)) {
    for (void *iter = json_object_iter(at); iter != NULL; iter = json_object_iter_next(at, iter)) {
      json_t *kept = json_incref(json_object_iter_value(iter)), *value;
      for (size_t i = 0; (value = hostile_value(i)) != NULL; i++) {
        json_object_iter_set_new(at, iter, value);
        try_document(document);
      }
      json_object_iter_set_new(at, iter, kept);
      replace_all(document, kept);
    }
  }
  const size_t shown = json_array_size(at) < 4 ? json_array_size(at) : 4;  // further rows are like the first ones
  const bool is_row =
      json_array_size(at) > 0 && !json_is_array(json_array_get(at, 0)) && !json_is_object(json_array_get(at, 0));
  for (size_t k = 0; k < (is_row ? json_array_size(at) : shown); k++) {
    json_t *kept = json_incref(json_array_get(at, k)), *value;
    for (size_t i = 0; (value = hostile_value(i)) != NULL; i++) {
      VEXPECT_INT_EQ(json_array_set_new(at, k, value), 0);
      try_document(document);
    }
    VEXPECT_INT_EQ(json_array_set_new(at, k, kept), 0);
    replace_all(document, kept);
  }
}

VTEST(HostileSnapshot, EveryValueReplaced) {
  static const char *const names[] = {"after.json", "failed.json"};
  for (size_t i = 0; i < 2; i++) {
    file_text file;
    load(names[i], &file);
    VASSERT_NO_FAILURE();
    json_t *document = json_loadb(file.text, file.bytes, 0, NULL);
    free(file.text);
    VASSERT_TRUE(document != NULL);
    replace_all(document, document);
    json_decref(document);
  }
  VEXPECT_UINT_GT(tried, 3000);
}

// ---- logs ----

typedef struct log_rig {
  unsigned char *bytes;
  size_t count;
} log_rig;

static void log_rig_setup(log_rig *f) {
  trace_list list;
  trace *t = NULL;
  tool_error error = {{0}};
  char path[600];
  replay_options options = REPLAY_OPTIONS_INIT;
  replay_result result;
  file_text file;
  trace_list_init(&list);
  for (int i = 0; i < 100; i++) {
    const uint32_t block = trace_list_alloc(&list, (uint64_t)(i + 1) * 70000, 0, TRACE_NO_TIME);
    if (i % 3 != 0) trace_list_free(&list, block, TRACE_NO_TIME);
  }
  snprintf(path, sizeof(path), "%s/hostile.vmplog", vtest_temp_dir());
  options.log = path;
  options.device_bytes = UINT64_C(1) << 30;
  options.step_every = 10;
  if (!trace_of_list("t", &list, &t, &error) || !replay_run(t, &options, &result, &error)) VFAIL("%s", error.text);
  trace_close(t);
  if (!file_load(&file, path, &error)) VFAIL("%s", error.text);
  remove(path);
  f->bytes = (unsigned char *)file.text;
  f->count = file.bytes;
}

static void log_rig_teardown(log_rig *f) { free(f->bytes); }

static void look_at_log(const log_file *log) {
  char *text = NULL, frame[100];
  size_t bytes = 0;
  const map_style style = {.width = 80};
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_UINT_NE(view_check_log(out, log), UINT64_MAX);
  view_why(out, &style, NULL, log, 0x700006000010);
  for (uint32_t id = 0; id < 70000; id += 997) {
    (void)log_string(log, id);
    const log_stack stack = log_stack_of(log, id);
    if (stack.count > 0) log_frame_text(log, stack.frames[0], frame, sizeof(frame));
  }
  fclose(out);
  free(text);
}

static void try_log(const unsigned char *bytes, size_t count) {
  log_file log;
  trace *t = NULL;
  tool_error error = {{0}};
  const trace_options options = TRACE_OPTIONS_INIT;
  unsigned char *exact = malloc(count + 1);
  VEXPECT_TRUE(exact != NULL);
  memcpy(exact, bytes, count);
  if (log_parse(&log, "t", exact, count, &error)) {
    look_at_log(&log);
    log_destroy(&log);
  } else {
    expect_sentence(&error);
  }
  if (trace_parse("t", (const char *)exact, count, &options, &t, &error)) trace_close(t);
  free(exact);
}

VTEST_F(HostileLog, CutAnywhere, log_rig) {
  VASSERT_UINT_GT(f->count, VMP_LOG_HEADER_BYTES + 150 * VMP_LOG_RECORD_BYTES);
  for (size_t i = 0; i < CUTS; i++) try_log(f->bytes, f->count * i / CUTS);
  // A cut log is what is left of it.
  log_file log;
  tool_error error = {{0}};
  VASSERT_TRUE(log_parse(&log, "t", f->bytes, VMP_LOG_HEADER_BYTES + 20 * VMP_LOG_RECORD_BYTES + 13, &error));
  VEXPECT_UINT_EQ(log.end, 20);
  VEXPECT_UINT_EQ(log.missing, 0);
  log_destroy(&log);
}

// Numbers of the header and of records, huge and wrong.
VTEST_F(HostileLog, NumbersReplaced, log_rig) {
  vtest_rng random = vtest_rng_make(vtest_seed(3));
  static const uint64_t values[] = {0, 1, 255, 256, 65535, 65536, UINT64_C(1) << 31, UINT64_C(1) << 62, UINT64_MAX};
  unsigned char *copy = malloc(f->count);
  VASSERT_TRUE(copy != NULL);
  for (int i = 0; i < 4000; i++) {
    memcpy(copy, f->bytes, f->count);
    const int changes = 1 + (int)vtest_rng_below(&random, 4);
    for (int k = 0; k < changes; k++) {
      const bool in_header = vtest_rng_below(&random, 3) == 0;
      const size_t records = (f->count - VMP_LOG_HEADER_BYTES) / 8;
      const size_t word = in_header ? 1 + (size_t)vtest_rng_below(&random, 14)
                                    : VMP_LOG_HEADER_BYTES / 8 + (size_t)vtest_rng_below(&random, records);
      const uint64_t value = values[vtest_rng_below(&random, sizeof(values) / sizeof(values[0]))];
      const size_t bytes = vtest_rng_below(&random, 2) == 0 ? 8 : 1;
      memcpy(copy + word * 8 + (bytes == 1 ? (size_t)vtest_rng_below(&random, 8) : 0), &value, bytes);
    }
    try_log(copy, f->count);
  }
  free(copy);
}

// Strings and stacks whose parts contradict each other.
VTEST_F(HostileLog, PartsThatDontFit, log_rig) {
  for (uint32_t part = 0; part < 200; part += 7) {
    for (uint32_t parts = 0; parts < 70000; parts = parts * 3 + 1) {
      vmp_log_record first = {.kind = VMP_LOG_STRING, .sequence = 1}, second = {.kind = VMP_LOG_STRING, .sequence = 2};
      first.as.string.id = second.as.string.id = 5;
      first.as.string.parts = 1;
      second.as.string.part = (uint16_t)part;
      second.as.string.parts = (uint16_t)parts;
      memset(second.as.string.text, 'x', sizeof(second.as.string.text));
      memcpy(f->bytes + VMP_LOG_HEADER_BYTES + VMP_LOG_RECORD_BYTES, &first, sizeof(first));
      memcpy(f->bytes + VMP_LOG_HEADER_BYTES + 2 * VMP_LOG_RECORD_BYTES, &second, sizeof(second));
      try_log(f->bytes, VMP_LOG_HEADER_BYTES + 3 * VMP_LOG_RECORD_BYTES);
      second.kind = VMP_LOG_STACK;
      memcpy(f->bytes + VMP_LOG_HEADER_BYTES + 2 * VMP_LOG_RECORD_BYTES, &second, sizeof(second));
      try_log(f->bytes, VMP_LOG_HEADER_BYTES + 3 * VMP_LOG_RECORD_BYTES);
    }
  }
}
