// The page of vmpool html: what is put into it comes out again, nothing in it ends the block that it stands in; a log
// in the page's form, and logs that were tampered with.
#include "tools/vmpool/page.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include "pool/vmpool.h"
#include "tests/support/vtest.h"
#include "tools/common/rng.h"
#include "tools/vmpool/page_log.h"

// ---- pages ----

typedef struct written {
  char *text;
  size_t bytes;
} written;

static written write_page(const char *id, const char *name, const void *data, size_t bytes) {
  written w = {0};
  tool_error error = {{0}};
  FILE *out = open_memstream(&w.text, &w.bytes);
  page_begin(out);
  if (id != NULL && !page_data(out, id, name, data, bytes, &error)) VADD_FAILURE("%s", error.text);
  page_end(out);
  fclose(out);
  return w;
}

static int digit(char c) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const char *at = c != '\0' ? strchr(digits, c) : NULL;
  return at != NULL ? (int)(at - digits) : -1;
}

// Decodes what stands between the block's start and its end. Returns the number of bytes.
static size_t decode(const char *text, size_t length, unsigned char *out) {
  size_t n = 0;
  for (size_t i = 0; i + 3 < length; i += 4) {
    const int d[4] = {digit(text[i]), digit(text[i + 1]), digit(text[i + 2]), digit(text[i + 3])};
    if (d[0] < 0 || d[1] < 0) VADD_FAILURE("no base64 at %zu", i);
    out[n++] = (unsigned char)(d[0] << 2 | d[1] >> 4);
    if (text[i + 2] == '=') break;
    out[n++] = (unsigned char)((d[1] & 15) << 4 | d[2] >> 2);
    if (text[i + 3] == '=') break;
    out[n++] = (unsigned char)((d[2] & 3) << 6 | d[3]);
  }
  return n;
}

static size_t inflate_raw(const unsigned char *in, size_t in_bytes, unsigned char *out, size_t out_bytes) {
  z_stream z = {0};
  if (inflateInit2(&z, -15) != Z_OK) VADD_FAILURE("no inflate");
  z.next_in = (Bytef *)(uintptr_t)in;
  z.avail_in = (uInt)in_bytes;
  z.next_out = out;
  z.avail_out = (uInt)out_bytes;
  VEXPECT_INT_EQ(inflate(&z, Z_FINISH), Z_STREAM_END);
  const size_t got = z.total_out;
  inflateEnd(&z);
  return got;
}

static void comes_back(const unsigned char *data, size_t bytes) {
  written w = write_page("log", "name", data, bytes);
  const char *start = strstr(w.text, "id=\"log\"");
  VASSERT_NOT_NULL(start);
  start = strchr(start, '>') + 1;
  const char *end = strstr(start, "</script>");
  VASSERT_NOT_NULL(end);
  unsigned char *packed = malloc((size_t)(end - start) + 4), *unpacked = malloc(bytes + 1);
  const size_t num_packed = decode(start, (size_t)(end - start), packed);
  VEXPECT_UINT_EQ(inflate_raw(packed, num_packed, unpacked, bytes + 1), bytes);
  if (bytes > 0) VEXPECT_BYTES_EQ(unpacked, data, bytes);
  free(packed);
  free(unpacked);
  free(w.text);
}

VTEST(Page, DataComeBack) {
  static unsigned char data[3 << 20];
  rng r = {.state = 7};
  for (size_t i = 0; i < sizeof(data); i++) data[i] = (unsigned char)(rng_next(&r) >> (i % 5 == 0 ? 56 : 61));
  const size_t sizes[] = {0, 1, 2, 3, 4, 1000, sizeof(data)};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) comes_back(data, sizes[i]);
}

static size_t count_of(const char *text, const char *part) {
  size_t n = 0;
  for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) n++;
  return n;
}

VTEST(Page, NamesStayText) {
  static const char data[] = "</script><script>alert(1)</script>";
  written plain = write_page(NULL, NULL, NULL, 0);
  written w = write_page("snapshot-a", "\"><script>alert('x')</script>&\n\x01", data, sizeof(data));
  VEXPECT_UINT_EQ(count_of(w.text, "<script"), count_of(plain.text, "<script") + 1);
  VEXPECT_UINT_EQ(count_of(w.text, "</script"), count_of(plain.text, "</script") + 1);
  VEXPECT_STR_CONTAINS(w.text, "data-name=\"&#34;&#62;&#60;script&#62;alert(&#39;x&#39;)&#60;/script&#62;&#38;??\"");
  free(plain.text);
  free(w.text);
}

VTEST(Page, PolicyForbidsEverythingElse) {
  written w = write_page(NULL, NULL, NULL, 0);
  VEXPECT_STR_CONTAINS(w.text, "default-src 'none'; script-src 'sha256-");
  VEXPECT_STR_LACKS(w.text, "unsafe-");
  VEXPECT_STR_LACKS(w.text, " src=");
  VEXPECT_STR_LACKS(w.text, "@SCRIPT");
  VEXPECT_STR_LACKS(w.text, "<!--@DATA@-->");
  VEXPECT_STR_CONTAINS(w.text, "Permission is hereby granted");  // the libraries' notices
  free(w.text);
}

// ---- logs ----

typedef struct log_bytes {
  unsigned char *bytes;
  size_t count;
} log_bytes;

// A log with everything that the pool writes without a GPU: blocks with names, steps, a mark, a trim, a failure.
static log_bytes make_log(void) {
  char path[256];
  snprintf(path, sizeof(path), "%s/page-%d.vmplog", getenv("TEST_TMPDIR") ? getenv("TEST_TMPDIR") : "/tmp",
           (int)getpid());
  remove(path);
  vmp_driver_options driver_options = VMP_DRIVER_OPTIONS_INIT;
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  vmp_alloc_options named = VMP_ALLOC_OPTIONS_INIT;
  driver_options.kind = VMP_DRIVER_HOST;
  driver_options.host_device_bytes = UINT64_C(1) << 30;
  named.name = "</script>\xff";
  void *ptrs[40] = {0};
  vmp_pool *pool = NULL;
  vmp_driver *driver = NULL;
  VEXPECT_INT_EQ(vmp_driver_open(&driver, &driver_options), VMP_OK);
  options.driver = driver;
  VEXPECT_INT_EQ(vmp_pool_create(&pool, &options), VMP_OK);
  VEXPECT_INT_EQ(vmp_alloc(pool, &ptrs[0], 1 << 20, NULL), VMP_OK);  // what a keyframe has to say
  VEXPECT_INT_EQ(vmp_pool_log_start(pool, path, NULL), VMP_OK);
  for (size_t i = 1; i < 40; i++) VEXPECT_INT_EQ(vmp_alloc_with(pool, &ptrs[i], i * 70000, NULL, &named), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_step(pool), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_mark(pool, "half"), VMP_OK);
  for (size_t i = 0; i < 40; i++) VEXPECT_INT_EQ(vmp_free(pool, ptrs[i], NULL), VMP_OK);
  VEXPECT_INT_NE(vmp_alloc(pool, &ptrs[0], UINT64_C(2) << 30, NULL), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_trim(pool, 0, NULL), VMP_OK);
  VEXPECT_INT_EQ(vmp_pool_destroy(pool), VMP_OK);
  vmp_driver_close(driver);
  FILE *file = fopen(path, "rb");
  log_bytes log = {.bytes = malloc(1 << 20)};
  log.count = fread(log.bytes, 1, 1 << 20, file);
  fclose(file);
  remove(path);
  return log;
}

static json_t *head_of(const page_log *packed) {
  const unsigned char *b = packed->bytes;
  const size_t length = (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
  json_error_t error;
  json_t *head = json_loadb((const char *)b + 4, length, 0, &error);
  if (head == NULL) VADD_FAILURE("the head is no JSON: %s", error.text);
  return head;
}

// packs returns whether the bytes were accepted as a log with events; what it makes must be whole then.
static bool packs(const unsigned char *bytes, size_t count) {
  log_file log;
  tool_error error = {{0}};
  page_log packed;
  if (!log_parse(&log, "test", bytes, count, &error)) {
    VEXPECT_STR_NE(error.text, "");
    return false;
  }
  const bool good = page_log_make(&packed, &log, "test", 5, &error);
  if (good) {
    json_t *head = head_of(&packed);
    size_t sum = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(head, "columns")); i++) {
      sum += (size_t)json_integer_value(json_array_get(json_array_get(json_object_get(head, "columns"), i), 1));
    }
    const unsigned char *b = packed.bytes;
    const size_t length = (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
    VEXPECT_UINT_EQ(4 + length + sum, packed.num_bytes);
    json_decref(head);
    free(packed.bytes);
  } else {
    VEXPECT_STR_NE(error.text, "");
  }
  log_destroy(&log);
  return good;
}

VTEST(PageLog, HoldsEveryEvent) {
  log_bytes bytes = make_log();
  log_file log;
  tool_error error = {{0}};
  page_log packed;
  VASSERT_TRUE(log_parse(&log, "test", bytes.bytes, bytes.count, &error));
  VASSERT_TRUE(page_log_make(&packed, &log, "test", UINT64_MAX, &error));
  uint64_t events = 0, kinds[256] = {0};
  vmp_log_record record;
  for (uint64_t s = log.first; s < log.end; s++) {
    if (!log_record(&log, s, &record) || (record.flags & VMP_LOG_STATE) != 0) continue;
    kinds[record.kind]++;
    if (record.kind >= VMP_LOG_ALLOC) events++;
  }
  VEXPECT_UINT_EQ(packed.num_events - packed.num_initial, events);
  VEXPECT_UINT_EQ(packed.num_initial, 2);  // one mapping, one block
  VEXPECT_UINT_EQ(kinds[VMP_LOG_ALLOC], 39);
  VEXPECT_UINT_EQ(kinds[VMP_LOG_OOM], 1);
  json_t *head = head_of(&packed);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(head, "snapshot_event")), -1);
  VEXPECT_INT_EQ(json_integer_value(json_object_get(head, "strange")), 0);
  VEXPECT_STR_EQ(json_string_value(json_array_get(json_object_get(head, "strings"), 1)), "</script>?");
  json_decref(head);
  free(packed.bytes);
  log_destroy(&log);
  free(bytes.bytes);
}

VTEST(PageLog, AnyTruncationIsReadOrRefused) {
  log_bytes bytes = make_log();
  size_t good = 0;
  for (size_t i = 0; i < 1000; i++) {
    const size_t count = bytes.count * i / 1000;
    unsigned char *part = malloc(count + 1);  // so that a sanitizer sees a read behind the end
    memcpy(part, bytes.bytes, count);
    good += packs(part, count);
    free(part);
  }
  VEXPECT_UINT_GT(good, 300);
  free(bytes.bytes);
}

VTEST(PageLog, TamperedLogsAreReadOrRefused) {
  log_bytes bytes = make_log();
  const uint64_t seed = getenv("VMPOOL_SEED") != NULL ? strtoull(getenv("VMPOOL_SEED"), NULL, 0) : 3;
  printf("VMPOOL_SEED=%llu\n", (unsigned long long)seed);
  rng r = {.state = seed};
  unsigned char *copy = malloc(bytes.count);
  for (int round = 0; round < 2000; round++) {
    memcpy(copy, bytes.bytes, bytes.count);
    for (uint64_t k = rng_between(&r, 1, 8); k > 0; k--) {
      const size_t at = (size_t)rng_between(&r, round % 2 == 0 ? 4096 : 0, bytes.count - 1);
      copy[at] = (unsigned char)(rng_next(&r) >> 56);
    }
    (void)packs(copy, bytes.count);
  }
  free(copy);
  free(bytes.bytes);
}
