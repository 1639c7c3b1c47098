#include <inttypes.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/map.h"

// entry: one part of the device's memory.
typedef struct entry {
  const char *name, *meaning;
  uint64_t bytes;
  const char *ascii, *utf8;
  style_color color;
} entry;

enum { FREE, LIVE, GAPS, PENDING, PARKED, SPARE, OTHERS, NUM_ENTRIES };

static uint64_t minus(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }

static void fill(const snapshot *s, entry e[NUM_ENTRIES]) {
  const uint64_t pending = s->pending < s->parked ? s->pending : s->parked;
  const uint64_t live = snapshot_live_in_memory(s);
  e[FREE] = (entry){"free", "held by nobody", s->device_free, ".", "·", STYLE_DIM};
  e[LIVE] = (entry){"live", "handed out", live, "#", "█", STYLE_GREEN};
  e[GAPS] = (entry){
      "gaps", "free, in chunks that live blocks touch", minus(minus(s->mapped, live), s->parked), ":", "▓", STYLE_CYAN};
  e[PENDING] = (entry){"pending", "freed; GPU work may still touch it", pending, "~", "░", STYLE_MAGENTA};
  e[PARKED] = (entry){"parked", "mapped, free to be taken", s->parked - pending, "+", "▒", STYLE_YELLOW};
  e[SPARE] = (entry){"spare", "chunks mapped nowhere, kept for reuse", s->spare, "o", "o", STYLE_YELLOW};
  e[OTHERS] = (entry){"others",
                      "other pools, processes and the driver",
                      minus(minus(minus(s->device_total, s->device_free), s->mapped), s->spare),
                      "x",
                      "x",
                      STYLE_RED};
}

// A part that exists shows in the bar, however small: cells are given out from the cumulated bytes, then each part
// without one takes one from the largest.
static void share_cells(const entry e[NUM_ENTRIES], uint64_t total, unsigned width, unsigned cells[NUM_ENTRIES]) {
  double sum = 0;
  unsigned used = 0, largest = 0;
  for (unsigned i = 0; i < NUM_ENTRIES; i++) {
    sum += total > 0 ? (double)e[i].bytes / (double)total : 0;
    const double edge = (sum < 1 ? sum : 1) * width + 0.5;
    cells[i] = (unsigned)edge > used ? (unsigned)edge - used : 0;
    used += cells[i];
    if (cells[i] > cells[largest]) largest = i;
  }
  for (unsigned i = 0; i < NUM_ENTRIES; i++) {
    if (e[i].bytes == 0 || cells[i] > 0 || cells[largest] < 2) continue;
    cells[i] = 1;
    cells[largest]--;
  }
}

static const char *character(const map_style *style, const entry *e) { return style->utf8 ? e->utf8 : e->ascii; }

static void draw_bar(FILE *out, const map_style *style, const entry e[NUM_ENTRIES], uint64_t total) {
  unsigned cells[NUM_ENTRIES];
  style_color pen = STYLE_PLAIN;
  share_cells(e, total, style->width - 4, cells);
  fputs("  ", out);
  for (unsigned i = 0; i < NUM_ENTRIES; i++) {
    for (unsigned k = 0; k < cells[i]; k++) {
      style_switch(out, style, &pen, e[i].color);
      fputs(character(style, &e[i]), out);
    }
  }
  style_switch(out, style, &pen, STYLE_PLAIN);
  fputc('\n', out);
}

// A share that is not 0 never reads as 0.
static const char *share_text(uint64_t part, uint64_t whole, char buffer[16]) {
  const double percent = whole > 0 ? 100 * (double)part / (double)whole : 0;
  if (part == 0 || whole == 0) return strcpy(buffer, "");
  snprintf(buffer, 16, percent < 0.05 ? "< 0.1 %%" : "%.1f %%", percent);
  return buffer;
}

static void draw_entry(FILE *out, const map_style *style, const entry *e, uint64_t total) {
  char size[SIZE_TEXT_BYTES], share[16];
  fputs("  ", out);
  style_put(out, style, e->color, character(style, e));
  fprintf(out, " %-8s %10s %8s", e->name, size_text(e->bytes, size), share_text(e->bytes, total, share));
  if (style->width >= 72) fprintf(out, "  %s", e->meaning);
  fputc('\n', out);
}

void map_ledger(FILE *out, const map_style *style, const snapshot *s) {
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], share[16];
  entry e[NUM_ENTRIES];
  fill(s, e);
  fprintf(out, "device %s\n", size_text(s->device_total, a));
  draw_bar(out, style, e, s->device_total);
  for (unsigned i = 0; i < NUM_ENTRIES; i++) draw_entry(out, style, &e[i], s->device_total);
  fprintf(out, "reserved %s of addresses\n", size_text(s->reserved_va, a));
  fprintf(out, "mapped %s", size_text(s->mapped, b));
  if (s->mapped > 0) {
    fprintf(out, ", %s of the reserved addresses", share_text(s->mapped, s->reserved_va, share));
    fprintf(out, "; %.1f %% of it is live", 100 * (double)snapshot_live_in_memory(s) / (double)s->mapped);
  }
  fprintf(out, "\nlargest block without a driver call %s\n", size_text(s->largest_free_mapped, a));
  if (s->regions > 0) {
    fprintf(out, "regions %" PRIu64 ", with %s committed of %s of addresses\n", s->regions,
            size_text(s->region_committed, a), size_text(s->region_reserved, b));
  }
  if (s->shared > 0) {
    fprintf(out, "shared %s of chunks, mapped at several addresses and live at each\n", size_text(s->shared, a));
  }
  if (s->suspended > 0) fprintf(out, "suspended %s of live blocks, which have no memory\n", size_text(s->suspended, a));
  if (s->retiring > 0) fprintf(out, "retiring %s of addresses, until GPU work is done\n", size_text(s->retiring, a));
  if (s->broken > 0) fprintf(out, "BROKEN %s, whose mapping could not be made or undone\n", size_text(s->broken, a));
}
