// Exports of snapshots and logs that somebody tampered with: every one is written or refused in a sentence. Texts that
// are no UTF-8.
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "pool/vmpool.h"
#include "tests/support/vtest.h"
#include "tools/common/file.h"
#include "tools/common/json_field.h"
#include "tools/common/rng.h"
#include "tools/export/export.h"
#include "tools/export/utf8.h"

typedef struct sample {
  file_text snapshot, log;
} sample;

static char *path_of(char *buffer, size_t size, const char *name) {
  snprintf(buffer, size, "%s/export-%d-%s", getenv("TEST_TMPDIR") ? getenv("TEST_TMPDIR") : "/tmp", (int)getpid(),
           name);
  return buffer;
}

static void load(file_text *out, const char *path) {
  tool_error error = {{0}};
  if (!file_load(out, path, &error)) VADD_FAILURE("%s", error.text);
  remove(path);
}

// A pool with blocks of every layer, tags, pending memory and a failure behind it, and its log.
static sample make_sample(void) {
  char snapshot_path[256], log_path[256];
  path_of(snapshot_path, sizeof(snapshot_path), "pool.json");
  path_of(log_path, sizeof(log_path), "pool.vmplog");
  vmp_driver_options driver_options = VMP_DRIVER_OPTIONS_INIT;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  driver_options.kind = VMP_DRIVER_HOST;
  driver_options.host_device_bytes = UINT64_C(1) << 30;
  vmp_driver *driver = NULL;
  vmp_pool *pool = NULL;
  void *ptrs[60] = {0};
  VEXPECT_INT_EQ(vmp_driver_open(&driver, &driver_options), VMP_OK);
  options.driver = driver;
  options.conf = "buddy_from:16MiB";
  VEXPECT_INT_EQ(vmp_pool_create(&pool, &options), VMP_OK);
  remove(log_path);
  VEXPECT_INT_EQ(vmp_pool_log_start(pool, log_path, NULL), VMP_OK);
  for (size_t i = 0; i < 60; i++) {
    vmp_alloc_options named = VMP_ALLOC_OPTIONS_INIT;
    if (i % 3 == 0) VEXPECT_INT_EQ(vmp_tag_intern(pool, i % 2 == 0 ? "a,\"b\";c" : "tag", &named.tag), VMP_OK);
    if (i % 5 == 0) named.name = "name\n<b>";
    VEXPECT_INT_EQ(vmp_alloc_with(pool, &ptrs[i], i % 20 == 7 ? 20 << 20 : 100 + i * 30000, NULL, &named), VMP_OK);
  }
  for (size_t i = 0; i < 60; i += 4) VEXPECT_INT_EQ(vmp_free(pool, ptrs[i], NULL), VMP_OK);
  VEXPECT_INT_NE(vmp_alloc(pool, &ptrs[0], UINT64_C(2) << 30, NULL), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_snapshot(pool, snapshot_path), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_log_stop(pool), VMP_OK);
  for (size_t i = 0; i < 60; i++) {
    if (i % 4 != 0) VEXPECT_INT_EQ(vmp_free(pool, ptrs[i], NULL), VMP_OK);
  }
  VEXPECT_INT_EQ(vmp_pool_destroy(pool), VMP_OK);
  vmp_driver_close(driver);
  sample s;
  load(&s.snapshot, snapshot_path);
  load(&s.log, log_path);
  return s;
}

static void sample_free(sample *s) {
  free(s->snapshot.text);
  free(s->log.text);
}

typedef bool (*export_function)(FILE *out, const export_input *in, tool_error *error);

// Runs the exports over whatever of the two can be read; returns how many were written.
static size_t run_exports(const char *text, size_t bytes, const void *log_bytes, size_t log_count, bool pictures) {
  static const export_function texts[] = {export_csv,        export_folded, export_memory_viz, export_perfetto,
                                          export_prometheus, export_svg,    export_png};
  snapshot s;
  tool_error error = {{0}};
  if (!snapshot_parse(&s, "test", text, bytes, &error)) {
    VEXPECT_STR_NE(error.text, "");
    return 0;
  }
  json_t *document = json_parse(text, bytes, "test", &error);
  log_file log;
  const bool has_log = log_bytes != NULL && log_parse(&log, "test", log_bytes, log_count, &error);
  size_t written = 0;
  for (size_t i = 0; i < (pictures ? 7u : 5u); i++) {
    for (unsigned table = 0; table <= EXPORT_EVENTS; table++) {
      export_input in = {.name = "test",
                         .document = document,
                         .state = &s,
                         .log = has_log ? &log : NULL,
                         .log_end = UINT64_MAX,
                         .table = (export_table)table,
                         .last = UINT64_MAX,
                         .width = 400};
      FILE *out = fopen("/dev/null", "w");
      error.text[0] = '\0';
      const bool good = texts[i](out, &in, &error);
      written += good;
      if (!good) VEXPECT_STR_NE(error.text, "");
      fclose(out);
      if (i > 0) break;  // only csv has tables
    }
  }
  if (has_log) log_destroy(&log);
  json_decref(document);
  snapshot_destroy(&s);
  return written;
}

static rng random_of_test(void) {
  const uint64_t seed = getenv("VMPOOL_SEED") != NULL ? strtoull(getenv("VMPOOL_SEED"), NULL, 0) : 11;
  printf("VMPOOL_SEED=%llu\n", (unsigned long long)seed);
  return (rng){.state = seed};
}

VTEST(HostileExport, TheSampleIsExported) {
  sample s = make_sample();
  VEXPECT_UINT_EQ(run_exports(s.snapshot.text, s.snapshot.bytes, s.log.text, s.log.bytes, true), 5 + 6);
  VEXPECT_UINT_EQ(run_exports(s.snapshot.text, s.snapshot.bytes, NULL, 0, true), 4 + 6);  // no table of events
  sample_free(&s);
}

VTEST(HostileExport, TamperedSnapshots) {
  sample s = make_sample();
  rng r = random_of_test();
  char *copy = malloc(s.snapshot.bytes);
  size_t written = 0;
  static const char digits[] = "0123456789,[]\"x-";
  for (int round = 0; round < 3000; round++) {
    memcpy(copy, s.snapshot.text, s.snapshot.bytes);
    for (uint64_t k = rng_between(&r, 1, 3); k > 0; k--) {
      copy[rng_between(&r, 0, s.snapshot.bytes - 1)] = digits[rng_between(&r, 0, sizeof(digits) - 2)];
    }
    written += run_exports(copy, s.snapshot.bytes, s.log.text, s.log.bytes, round % 100 == 0);
  }
  VEXPECT_UINT_GT(written, 1000);
  free(copy);
  sample_free(&s);
}

VTEST(HostileExport, TamperedLogs) {
  sample s = make_sample();
  rng r = random_of_test();
  char *copy = malloc(s.log.bytes);
  size_t written = 0;
  for (int round = 0; round < 2000; round++) {
    memcpy(copy, s.log.text, s.log.bytes);
    for (uint64_t k = rng_between(&r, 1, 10); k > 0; k--) {
      copy[rng_between(&r, 4096, s.log.bytes - 1)] = (char)(rng_next(&r) >> 56);
    }
    written += run_exports(s.snapshot.text, s.snapshot.bytes, copy, s.log.bytes, false);
  }
  VEXPECT_UINT_GT(written, 1000);
  free(copy);
  sample_free(&s);
}

VTEST(HostileExport, TruncatedLogs) {
  sample s = make_sample();
  for (size_t i = 0; i < 1000; i++) {
    const size_t count = s.log.bytes * i / 1000;
    char *part = malloc(count + 1);
    memcpy(part, s.log.text, count);
    VEXPECT_UINT_GE(run_exports(s.snapshot.text, s.snapshot.bytes, part, count, false), 4);
    free(part);
  }
  sample_free(&s);
}

VTEST(Utf8, OnlyWellFormedCharactersStay) {
  static const struct {
    const char *in, *out;
  } cases[] = {
      {"plain", "plain"},
      {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
      {"\xe2\x82\xac", "\xe2\x82\xac"},
      {"\xf0\x9f\x98\x80", "\xf0\x9f\x98\x80"},
      {"a\xff"
       "b",
       "a?b"},
      {"\xc3", "?"},                 // cut
      {"\xc0\xaf", "??"},            // overlong
      {"\xed\xa0\x80", "???"},       // half of a surrogate pair
      {"\xf4\x90\x80\x80", "????"},  // beyond Unicode
      {"tab\there\n", "tab?here?"},
      {"", ""},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char out[32];
    VEXPECT_UINT_EQ(utf8_clean(out, sizeof(out), cases[i].in), strlen(cases[i].out));
    VEXPECT_STR_EQ(out, cases[i].out);
  }
  char small[4];
  VEXPECT_UINT_EQ(utf8_clean(small, sizeof(small), "ab\xe2\x82\xac"), 2);  // never half a character
  VEXPECT_STR_EQ(small, "ab");
}
