// Reading snapshots: what is kept, and what is refused.
#include "tools/vmpool/snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/snapshot_support.h"
#include "tools/common/file.h"
#include "tools/common/rng.h"

VTEST(Snapshot, KeepsWhatItReads) {
  snapshot s;
  VASSERT_TRUE(load_golden_snapshot(&s, "states.json"));
  VEXPECT_STR_EQ(s.pool_name, "demo");
  VEXPECT_STR_EQ(s.driver, "host");
  VEXPECT_UINT_EQ(s.granule, 2 << 20);
  VEXPECT_UINT_EQ(s.device_total, UINT64_C(2) << 30);
  VASSERT_UINT_EQ(s.num_ranges, 2);
  VEXPECT_UINT_EQ(s.ranges[0].base, UINT64_C(0x700000000000));
  VASSERT_UINT_EQ(s.ranges[0].num_runs, 8);
  VEXPECT_UINT_EQ(s.ranges[0].runs[2].offset, 320 << 20);
  VEXPECT_INT_EQ(s.ranges[0].runs[2].state, SNAPSHOT_RETIRING);
  VASSERT_UINT_EQ(s.ranges[0].num_blocks, 6);
  VEXPECT_UINT_EQ(s.ranges[0].blocks[1].requested_bytes, 100);
  VEXPECT_INT_EQ(s.ranges[0].blocks[5].layer, SNAPSHOT_BUDDY);
  VEXPECT_UINT_EQ(s.ranges[1].num_runs, 0);
  snapshot_destroy(&s);
}

static bool parse(const char *text, size_t bytes, tool_error *error) {
  snapshot s;
  char *copy = malloc(bytes > 0 ? bytes : 1);  // the exact size, so that a read past the end is seen
  memcpy(copy, text, bytes);
  memset(error, 0, sizeof(*error));
  const bool good = snapshot_parse(&s, "snap", copy, bytes, error);
  free(copy);
  if (good) snapshot_destroy(&s);
  return good;
}

#define STATS                                                                                                    \
  "\"stats\":{\"reserved_va\":0,\"mapped\":0,\"live\":0,\"requested\":0,\"parked\":0,\"spare\":0,\"pending\":0," \
  "\"retiring\":0,\"broken\":0,\"largest_free_mapped\":0,\"device_free\":0,\"device_total\":0,\"granule\":4096}"
#define HEAD \
  "{\"schema\":{\"name\":\"vmpool-snapshot\",\"version\":\"1.9\"},\"pool\":{\"name\":\"p\",\"driver\":\"host\"},"
#define RANGE(slots, blocks) \
  HEAD STATS ",\"ranges\":[{\"base\":\"0x1000\",\"bytes\":65536,\"slots\":" slots ",\"blocks\":" blocks "}]}"

typedef struct refused {
  const char *name, *text, *what;
} refused;
static const char *refused_name(const refused *r) { return r->name; }
static const refused cases[] = {
    {"not_json", "hello", "not valid JSON"},
    {"other_json", "{\"a\":1}", "no vmpool snapshot"},
    {"other_version", "{\"schema\":{\"name\":\"vmpool-snapshot\",\"version\":\"2.0\"}}", "version 2.0"},
    {"no_stats", HEAD "\"ranges\":[]}", "field reserved_va: is missing"},
    {"no_ranges", HEAD STATS "}", "field ranges"},
    {"bad_base", HEAD STATS ",\"ranges\":[{\"base\":4096,\"bytes\":1}]}", "ranges[0]: field base"},
    {"negative_bytes", HEAD STATS ",\"ranges\":[{\"base\":\"0x0\",\"bytes\":-1}]}", "field bytes: '-1' is negative"},
    {"huge_range", HEAD STATS ",\"ranges\":[{\"base\":\"0x0\",\"bytes\":4611686018427387904}]}", "over 2^60"},
    {"state", RANGE("[[0,4096,\"melted\"]]", "[]"), "ranges[0].slots[0] names no known state"},
    {"overlap", RANGE("[[0,8192,\"mapped\"],[4096,4096,\"parked\"]]", "[]"), "slots[1] overlaps"},
    {"outside", RANGE("[[61440,8192,\"mapped\"]]", "[]"), "slots[0] lies outside"},
    {"wraps", RANGE("[[4096,9223372036854775807,\"mapped\"]]", "[]"), "slots[0] lies outside"},
    {"empty_run", RANGE("[[0,0,\"mapped\"]]", "[]"), "slots[0] is empty"},
    {"short_row", RANGE("[[0]]", "[]"), "slots[0] has a cell"},
    {"row_no_list", RANGE("[7]", "[]"), "slots[0] has a cell"},
    {"layer", RANGE("[]", "[[0,512,1,\"heap\"]]"), "blocks[0] names no known"},
    {"block_negative", RANGE("[]", "[[0,512,-1,\"mid\"]]"), "blocks[0] has a cell"},
};

VTEST_P(Snapshot, Refuses, refused, cases, refused_name) {
  tool_error error;
  VEXPECT_FALSE(parse(p->text, strlen(p->text), &error));
  VEXPECT_STR_CONTAINS(error.text, "snap");
  VEXPECT_STR_CONTAINS(error.text, p->what);
}

VTEST(Snapshot, NewerMinorVersionsAndKeysAreFine) {
  tool_error error;
  const char *text = HEAD "\"news\":[1,2]," STATS ",\"ranges\":[]}";
  VEXPECT_TRUE(parse(text, strlen(text), &error));
}

VTEST(Snapshot, CutAnywhereItIsRefused) {
  tool_error error;
  file_text file;
  VASSERT_TRUE(file_load(&file, GOLDEN_DIR "states.json", &error));
  const size_t bytes = file.bytes - 1;  // without the last line end
  for (size_t cut = 0; cut < bytes; cut++) {
    VTRACE("cut after %zu bytes", cut);
    VEXPECT_FALSE(parse(file.text, cut, &error));
    VEXPECT_NULL(strchr(error.text, '\n'));
    VASSERT_NO_FAILURE();
  }
  VEXPECT_TRUE(parse(file.text, bytes, &error));
  free(file.text);
}

VTEST(Snapshot, MutatedItIsReadOrRefused) {
  tool_error error;
  file_text file;
  VASSERT_TRUE(file_load(&file, GOLDEN_DIR "states.json", &error));
  rng r = {.state = vtest_seed(5)};
  uint64_t refusals = 0;
  for (uint64_t i = 0; i < vtest_ops(3000); i++) {
    char *text = strndup(file.text, file.bytes);
    for (uint64_t k = rng_between(&r, 1, 3); k > 0; k--)
      text[rng_between(&r, 0, file.bytes - 1)] = (char)rng_between(&r, 32, 126);
    const bool good = parse(text, file.bytes, &error);
    refusals += !good;
    VEXPECT_INT_EQ(good, error.text[0] == '\0');
    free(text);
  }
  VEXPECT_UINT_GT(refusals, 0);
  free(file.text);
}
