// What the commands about snapshots and logs print, against golden files, and that nothing in a file harms them.
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/snapshot_support.h"
#include "tools/vmpool/map.h"
#include "tools/vmpool/views.h"

typedef enum view { STATS, HIST, DIFF, OOM, MAP } view;

typedef struct golden {
  const char *name;
  view view;
  map_style style;
} golden;
static const char *golden_name(const golden *g) { return g->name; }

#define FOUR(what, VIEW)                                                    \
  {what "_80", VIEW, {.width = 80, .utf8 = true}},                          \
      {what "_80_color", VIEW, {.width = 80, .utf8 = true, .color = true}}, \
      {what "_160", VIEW, {.width = 160, .utf8 = true}}, {                  \
    what "_160_color", VIEW, { .width = 160, .utf8 = true, .color = true }  \
  }
static const golden goldens[] = {FOUR("stats", STATS), FOUR("hist", HIST), FOUR("diff", DIFF), FOUR("oom", OOM),
                                 FOUR("map", MAP)};

static void draw(FILE *out, view which, const map_style *style, const snapshot *a, const snapshot *b) {
  switch (which) {
    case STATS: view_stats(out, style, b); return;
    case HIST: VEXPECT_TRUE(view_hist(out, style, b)); return;
    case DIFF: VEXPECT_TRUE(view_diff(out, style, a, b)); return;
    case OOM: (void)view_oom(out, style, b); return;
    case MAP:
      view_head(out, b);
      fputc('\n', out);
      map_ledger(out, style, b);
      view_fit(out, style, b, UINT64_C(50) << 20);
      fputc('\n', out);
      VEXPECT_TRUE(map_ranges(out, style, b, 3));
      map_legend(out, style);
  }
}

static char *draw_text(view which, const map_style *style, const snapshot *a, const snapshot *b) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  draw(out, which, style, a, b);
  fclose(out);
  return text;
}

VTEST_P(View, LooksAsAgreed, golden, goldens, golden_name) {
  snapshot a, b;
  char text[128];
  VASSERT_TRUE(load_golden_snapshot(&a, "before.json"));
  VASSERT_TRUE(load_golden_snapshot(&b, p->view == OOM ? "failed.json" : "after.json"));
  char *drawn = draw_text(p->view, &p->style, &a, &b);
  snprintf(text, sizeof(text), "%s.txt", p->name);
  expect_golden_text(drawn, text);
  free(drawn);
  snapshot_destroy(&a);
  snapshot_destroy(&b);
}

// The tag "\033[31mred\007" of the samples would colour the terminal and ring its bell.
VTEST(View, NoNameReachesTheTerminalAsItIs) {
  const map_style style = {.width = 80, .utf8 = true};
  snapshot a, b;
  VASSERT_TRUE(load_golden_snapshot(&a, "before.json"));
  VASSERT_TRUE(load_golden_snapshot(&b, "after.json"));
  for (view v = STATS; v <= MAP; v++) {
    char *drawn = draw_text(v, &style, &a, &b);
    VEXPECT_TRUE(strchr(drawn, '\033') == NULL && strchr(drawn, '\007') == NULL);
    free(drawn);
  }
  snapshot_destroy(&a);
  snapshot_destroy(&b);
}

// ---- numbers ----

VTEST(View, TheSumsOfDiffAreTheSnapshots) {
  snapshot a, b;
  const map_style style = {.width = 80};
  VASSERT_TRUE(load_golden_snapshot(&a, "before.json"));
  VASSERT_TRUE(load_golden_snapshot(&b, "before.json"));
  char *drawn = draw_text(DIFF, &style, &a, &b);
  VEXPECT_STR_CONTAINS(drawn, "in both             5 blocks   40.5 MiB");
  VEXPECT_STR_CONTAINS(drawn, "only in A           0 blocks        0 B");
  VEXPECT_STR_CONTAINS(drawn, "only in B           0 blocks        0 B");
  free(drawn);
  snapshot_destroy(&a);
  snapshot_destroy(&b);
}

VTEST(View, FitSaysTheCost) {
  const struct {
    uint64_t bytes;
    const char *answer;
  } cases[] = {
      {1 << 20, "1 MiB fits: yes, without a driver call"},
      {UINT64_C(70) << 20, "70 MiB fits: yes, with 2 MiB of new memory"},
      {UINT64_C(66) << 20, "66 MiB fits: yes, by remapping idle memory; the stream waits on the GPU for 6 MiB of it"},
      {UINT64_C(60) << 20, "60 MiB fits: yes, by remapping idle memory: 30 granules, nothing new"},
      {UINT64_C(168) << 20, "168 MiB fits: yes, with 100 MiB of new memory"},
      {UINT64_C(170) << 20, "170 MiB fits: no, 2 MiB are missing"},
      {UINT64_MAX, "16.0 EiB fits: no, 16.0 EiB are missing"},
  };
  snapshot s;
  const map_style style = {.width = 80};
  VASSERT_TRUE(load_golden_snapshot(&s, "before.json"));
  s.granule = 2 << 20;
  s.mapped = UINT64_C(100) << 20;
  s.live = UINT64_C(40) << 20;
  s.parked = UINT64_C(60) << 20;
  s.spare = UINT64_C(8) << 20;
  s.pending = UINT64_C(8) << 20;
  s.largest_free_mapped = UINT64_C(20) << 20;
  s.device_free = UINT64_C(100) << 20;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    view_fit(out, &style, &s, cases[i].bytes);
    fclose(out);
    VEXPECT_STR_CONTAINS(text, cases[i].answer);
    free(text);
  }
  snapshot_destroy(&s);
}

// A part of the addresses, down to 512 bytes a cell.
VTEST(View, MapZoomsIntoARange) {
  snapshot s;
  const map_style style = {.width = 76};  // 64 cells a row
  tool_error error = {{0}};
  char *text = NULL;
  size_t bytes = 0;
  VASSERT_TRUE(load_golden_snapshot(&s, "states.json"));
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(map_zoom(out, &style, &s, 0x70000000f000, 0x700000013000, 1, &error));
  fclose(out);
  // 16 KiB: the end of the first block, 512 bytes of the second, nothing.
  VEXPECT_STR_EQ(text,
                 "range 0x70000000f000: 16 KiB reserved, 16 KiB backed, 512 B a cell\n"
                 "+0 B        ################################\n"
                 "            @@@@@@@@@\n");
  free(text);
  VEXPECT_FALSE(map_zoom(stdout, &style, &s, 1, 2, 1, &error));
  VEXPECT_STR_EQ(error.text, "0x1..0x2 lies in no range of the snapshot");
  VEXPECT_FALSE(map_zoom(stdout, &style, &s, UINT64_MAX - 1, UINT64_MAX, 1, &error));
  snapshot_destroy(&s);
}

// ---- why: a log made by hand ----

typedef struct log_maker {
  unsigned char bytes[VMP_LOG_HEADER_BYTES + 32 * VMP_LOG_RECORD_BYTES];
  uint64_t count;
} log_maker;

static void make_header(log_maker *m) {
  vmp_log_header header = {.version_major = VMP_LOG_VERSION_MAJOR,
                           .header_bytes = VMP_LOG_HEADER_BYTES,
                           .record_bytes = VMP_LOG_RECORD_BYTES,
                           .capacity = m->count,
                           .written = m->count,
                           .granule_bytes = 2 << 20};
  memcpy(header.magic, VMP_LOG_MAGIC, sizeof(header.magic));
  memcpy(m->bytes, &header, sizeof(header));
}

static vmp_log_record event(vmp_log_kind kind, uint64_t address, uint64_t bytes, uint64_t extra) {
  vmp_log_record record = {.kind = (uint8_t)kind, .layer = 1, .stream = 3, .thread = 77};
  record.as.event.address = address;
  record.as.event.bytes = bytes;
  record.as.event.extra = extra;
  return record;
}

static void add(log_maker *m, vmp_log_record record) {
  record.sequence = m->count;
  record.time_ns = 1000000000 + m->count * 250000000;
  memcpy(m->bytes + VMP_LOG_HEADER_BYTES + m->count * VMP_LOG_RECORD_BYTES, &record, sizeof(record));
  m->count++;
  make_header(m);
}

static void add_history(log_maker *m) {
  vmp_log_record text = {.kind = VMP_LOG_STRING};
  text.as.string.id = 1;
  text.as.string.parts = 1;
  memcpy(text.as.string.text, "kv\033[2J", 6);
  add(m, event(VMP_LOG_MAP, 0x10000000, 2 << 20, 5));
  add(m, text);
  vmp_log_record alloc = event(VMP_LOG_ALLOC, 0x10000400, 1024, 1000);
  alloc.as.event.tag = 1;
  add(m, event(VMP_LOG_ALLOC, 0x10000400, 512, 10));
  add(m, event(VMP_LOG_FREE, 0x10000400, 512, 10));
  add(m, alloc);
  add(m, event(VMP_LOG_FREE, 0x10000400, 1024, 1000));
  add(m, event(VMP_LOG_UNMAP, 0x10000000, 2 << 20, 5));
}

static char *why(const log_maker *m, uint64_t address) {
  log_file log;
  tool_error error = {{0}};
  const map_style style = {.width = 80};
  char *text = NULL;
  size_t bytes = 0;
  if (!log_parse(&log, "t", m->bytes, VMP_LOG_HEADER_BYTES + m->count * VMP_LOG_RECORD_BYTES, &error)) {
    VADD_FAILURE("%s", error.text);
    return NULL;
  }
  FILE *out = open_memstream(&text, &bytes);
  view_why(out, &style, NULL, &log, address);
  fclose(out);
  log_destroy(&log);
  return text;
}

VTEST(View, WhyTellsTheLastOwnerAndWhatBecameOfIt) {
  log_maker m = {.count = 0};
  add_history(&m);
  char *text = why(&m, 0x10000404);
  VASSERT_TRUE(text != NULL);
  VEXPECT_STR_EQ(text,
                 "0x10000404\n"
                 "then, by the log (7 records)\n"
                 "  last owner: 0x10000400, 1000 B asked for, tag \"kv?[2J\"\n"
                 "    allocated 0.500000 s before the log's end, record 4, thread 77, stream #3\n"
                 "    freed 0.250000 s before the log's end, record 5, thread 77, stream #3\n"
                 "  it has been handed out 2 times\n"
                 "  mapped to chunk 5 1.500000 s before the log's end, record 0, thread 77, stream #3\n"
                 "  unmapped 0.000000 s before the log's end, record 6, thread 77, stream #3\n");
  free(text);
  text = why(&m, 0x20000000);
  VASSERT_TRUE(text != NULL);
  VEXPECT_STR_EQ(text, "0x20000000\nthen, by the log (7 records)\n  no block of the log has held it\n");
  free(text);
}

VTEST(View, WhyTellsTheOwnerAndItsNeighbours) {
  snapshot s;
  const map_style style = {.width = 80};
  char *text = NULL;
  size_t bytes = 0;
  VASSERT_TRUE(load_golden_snapshot(&s, "before.json"));
  const snapshot_range *range = &s.ranges[0];
  FILE *out = open_memstream(&text, &bytes);
  view_why(out, &style, &s, NULL, range->base + range->blocks[1].offset + range->blocks[1].requested_bytes);
  view_why(out, &style, &s, NULL, range->base);
  view_why(out, &style, &s, NULL, 1);
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "the slot has memory that live blocks share");
  VEXPECT_STR_CONTAINS(text, "tag \"?[31mred?\", name \"layer 3\"");
  VEXPECT_STR_CONTAINS(text, "70000 bytes inside it, beyond what was asked for by 0 bytes");
  VEXPECT_STR_CONTAINS(text, "before it: 0x700006000000, 4.88 KiB asked for, slab, tag \"weights\", ends");
  VEXPECT_STR_CONTAINS(text, "the slot is not mapped: a touch faults\n  owner now: nobody");
  VEXPECT_STR_CONTAINS(text, "lies in no address space of this pool");
  free(text);
  snapshot_destroy(&s);
}

// ---- check ----

static uint64_t check(const snapshot *s, char **out_text) {
  size_t bytes = 0;
  FILE *out = open_memstream(out_text, &bytes);
  const uint64_t faults = view_check_snapshot(out, s);
  fclose(out);
  return faults;
}

VTEST(View, CheckNoticesEachContradiction) {
  snapshot s;
  char *text = NULL;
  VASSERT_TRUE(load_golden_snapshot(&s, "before.json"));
  VEXPECT_UINT_EQ(check(&s, &text), 0);
  free(text);
  const struct {
    uint64_t *value;
    const char *says;
  } breaks[] = {
      {&s.live, "live: the tables hold"},
      {&s.reserved_va, "reserved_va: the tables hold"},
      {&s.requested, "requested: the tables hold"},
      {&s.pending, "more bytes are pending than are parked"},
      {&s.ranges[0].blocks[0].requested_bytes, "holds less than was asked for"},
      {&s.ranges[0].blocks[0].offset, "lies on addresses that have no memory"},
  };
  for (size_t i = 0; i < sizeof(breaks) / sizeof(breaks[0]); i++) {
    const uint64_t right = *breaks[i].value;
    *breaks[i].value = breaks[i].value == &s.ranges[0].blocks[0].offset ? 0 : right + 100000;
    VEXPECT_UINT_GT(check(&s, &text), 0);
    VEXPECT_STR_CONTAINS(text, breaks[i].says);
    free(text);
    *breaks[i].value = right;
  }
  snapshot_destroy(&s);
}

static uint64_t check_log(const log_maker *m, char **out_text) {
  log_file log;
  tool_error error = {{0}};
  size_t bytes = 0;
  if (!log_parse(&log, "t", m->bytes, VMP_LOG_HEADER_BYTES + m->count * VMP_LOG_RECORD_BYTES, &error)) {
    VADD_FAILURE("%s", error.text);
  }
  FILE *out = open_memstream(out_text, &bytes);
  const uint64_t faults = view_check_log(out, &log);
  fclose(out);
  log_destroy(&log);
  return faults;
}

VTEST(View, CheckNoticesRecordsThatDontFit) {
  const struct {
    vmp_log_record record;
    const char *says;
  } wrongs[] = {
      {event(VMP_LOG_FREE, 0x999, 512, 10), "frees what isn't live"},
      {event(VMP_LOG_UNMAP, 0x999, 512, 10), "unmaps what isn't mapped"},
      {event(VMP_LOG_SAMPLE, 1, 2, 3), "says another number of live bytes"},
  };
  for (size_t i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++) {
    log_maker m = {.count = 0};
    char *text = NULL;
    add(&m, event(VMP_LOG_KEYFRAME, 0, 0, 0));
    add_history(&m);
    VEXPECT_UINT_EQ(check_log(&m, &text), 0);
    free(text);
    add(&m, wrongs[i].record);
    VEXPECT_UINT_EQ(check_log(&m, &text), i == 2 ? 2 : 1);
    VEXPECT_STR_CONTAINS(text, wrongs[i].says);
    free(text);
  }
  log_maker m = {.count = 0};
  char *text = NULL;
  add(&m, event(VMP_LOG_KEYFRAME, 0, 0, 0));
  add(&m, event(VMP_LOG_ALLOC, 0x1000, 512, 10));
  add(&m, event(VMP_LOG_KEYFRAME, 0, 0, 0));  // the block is not in it
  VEXPECT_UINT_EQ(check_log(&m, &text), 1);
  VEXPECT_STR_CONTAINS(text, "differs from what the records before it lead to");
  free(text);
}
