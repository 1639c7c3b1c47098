// The drawing of snapshots against golden files, and of the numbers that it must keep.
#include "tools/vmpool/map.h"

#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/tool/snapshot_support.h"

typedef struct golden {
  const char *name, *snapshot, *text;
  map_style style;
  unsigned rows;
} golden;
static const char *golden_name(const golden *g) { return g->name; }

static const golden goldens[] = {
    {"states_80", "states.json", "states_80.txt", {.width = 80, .utf8 = true}, 16},
    {"states_80_color", "states.json", "states_80_color.txt", {.width = 80, .utf8 = true, .color = true}, 16},
    {"states_60_ascii", "states.json", "states_60_ascii.txt", {.width = 60}, 3},
    {"states_160", "states.json", "states_160.txt", {.width = 160, .utf8 = true}, 16},
    {"empty_80", "empty.json", "empty_80.txt", {.width = 80, .utf8 = true}, 16},
};

static char *draw(const snapshot *s, const map_style *style, unsigned rows) {
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  map_ledger(out, style, s);
  VEXPECT_TRUE(map_ranges(out, style, s, rows));
  map_legend(out, style);
  fclose(out);
  return text;
}

VTEST_P(Map, LooksAsAgreed, golden, goldens, golden_name) {
  snapshot s;
  VASSERT_TRUE(load_golden_snapshot(&s, p->snapshot));
  char *drawn = draw(&s, &p->style, p->rows);
  expect_golden_text(drawn, p->text);
  free(drawn);
  snapshot_destroy(&s);
}

// Columns of a line, counting UTF-8 characters as one and colour codes as none.
static size_t columns_of(const char *line, size_t length) {
  size_t columns = 0;
  for (size_t i = 0; i < length; i++) {
    if (line[i] == '\033') {
      while (line[i] != 'm') i++;
    } else {
      columns += ((unsigned char)line[i] & 0xc0) != 0x80;
    }
  }
  return columns;
}

VTEST(Map, NoLineIsWiderThanTheTerminal) {
  snapshot s;
  VASSERT_TRUE(load_golden_snapshot(&s, "states.json"));
  for (unsigned width = 80; width <= 200; width += 7) {
    for (int look = 0; look < 4; look++) {
      const map_style style = {.width = width, .utf8 = look & 1, .color = look & 2};
      char *text = draw(&s, &style, 5);
      for (const char *line = text; *line != '\0';) {
        const size_t length = strcspn(line, "\n");
        VEXPECT_UINT_LE(columns_of(line, length), width);
        line += length + (line[length] == '\n');
      }
      free(text);
    }
  }
  snapshot_destroy(&s);
}

// The number of rows is bounded whatever the snapshot, and what is tiny still shows.
VTEST(Map, ManyFarPiecesFitIntoTheRows) {
  enum { PIECES = 1000 };
  static snapshot_run runs[PIECES];
  for (size_t i = 0; i < PIECES; i++) {
    runs[i] = (snapshot_run){.offset = i * (UINT64_C(100) << 20), .bytes = 2 << 20, .state = SNAPSHOT_MAPPED};
  }
  runs[500].state = SNAPSHOT_BROKEN;
  snapshot_block block = {.offset = 0, .bytes = 512, .layer = SNAPSHOT_SLAB};
  snapshot_range range = {
      .bytes = PIECES * (UINT64_C(100) << 20), .runs = runs, .num_runs = PIECES, .blocks = &block, .num_blocks = 1};
  const snapshot s = {.granule = 2 << 20, .ranges = &range, .num_ranges = 1};
  const map_style style = {.width = 80};
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(map_ranges(out, &style, &s, 4));
  fclose(out);
  size_t lines = 0;
  for (const char *c = text; *c != '\0'; c++) lines += *c == '\n';
  VEXPECT_UINT_LE(lines, 1 + 2 * 4 + 5);  // the range, two lanes a row, gaps around the pieces
  VEXPECT_STR_CONTAINS(text, "X");
  VEXPECT_STR_CONTAINS(text, "\n            1");
  free(text);
}

// Slab's blocks of neighbouring size classes have different colours, of one class the same; others keep their layer's.
VTEST(Map, ColoursSlabByClass) {
  enum { BLOCKS = 24 };
  static snapshot_block blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    const uint64_t bytes = i < 8 ? 4096 : i < 16 ? 4608 : 4096;
    blocks[i] =
        (snapshot_block){.offset = i / 8 * (2 << 20), .bytes = bytes, .layer = i < 16 ? SNAPSHOT_SLAB : SNAPSHOT_MID};
    blocks[i].offset += i % 8 * bytes;
  }
  snapshot_run run = {.bytes = 6 << 20, .state = SNAPSHOT_MAPPED};
  snapshot_range range = {.bytes = 6 << 20, .runs = &run, .num_runs = 1, .blocks = blocks, .num_blocks = BLOCKS};
  const snapshot s = {.granule = 2 << 20, .ranges = &range, .num_ranges = 1};
  map_style style = {.width = 80, .color = true, .classes = true};
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(map_ranges(out, &style, &s, 4));
  fclose(out);
  // 4096 bytes are class 7, 4608 class 8: the colours after the first and the second.
  VEXPECT_STR_CONTAINS(text, "\n            \x1b[36m1\x1b[0m\x1b[33m1\x1b[0m\x1b[32m1\x1b[0m\n");
  free(text);
  style.classes = false;
  out = open_memstream(&text, &bytes);
  VEXPECT_TRUE(map_ranges(out, &style, &s, 4));
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "\n            \x1b[35m11\x1b[0m\x1b[32m1\x1b[0m\n");
  free(text);
}

// The parts of the ledger add up to the device.
VTEST(Map, LedgerAddsUp) {
  snapshot s;
  VASSERT_TRUE(load_golden_snapshot(&s, "states.json"));
  const uint64_t gaps = s.mapped - s.live - s.parked;
  const uint64_t others = s.device_total - s.device_free - s.mapped - s.spare;
  VEXPECT_UINT_EQ(s.device_free + s.live + gaps + s.parked + s.spare + others, s.device_total);
  const map_style style = {.width = 80};
  char *text = draw(&s, &style, 4), line[96], size[SIZE_TEXT_BYTES];
  snprintf(line, sizeof(line), ": %-8s %10s", "gaps", size_text(gaps, size));
  VEXPECT_STR_CONTAINS(text, line);
  snprintf(line, sizeof(line), "x %-8s %10s", "others", size_text(others, size));
  VEXPECT_STR_CONTAINS(text, line);
  snprintf(line, sizeof(line), "+ %-8s %10s", "parked", size_text(s.parked - s.pending, size));
  VEXPECT_STR_CONTAINS(text, line);
  free(text);
  snapshot_destroy(&s);
}
