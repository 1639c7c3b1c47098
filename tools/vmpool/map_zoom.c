// A part of a snapshot's addresses, drawn as if it were all there is.
#include <inttypes.h>
#include <stdlib.h>

#include "tools/vmpool/map.h"

#define SMALLEST_CELL 512u

// clip cuts [offset, offset + bytes) to the window and makes it relative to its start. False: nothing is left.
static bool clip(uint64_t from, uint64_t to, uint64_t *offset, uint64_t *bytes) {
  const uint64_t start = *offset > from ? *offset : from, end = *offset + *bytes < to ? *offset + *bytes : to;
  if (start >= end) return false;
  *offset = start - from;
  *bytes = end - start;
  return true;
}

static void clip_range(const snapshot_range *range, uint64_t from, uint64_t to, snapshot_range *out) {
  for (size_t i = 0; i < range->num_runs; i++) {
    snapshot_run run = range->runs[i];
    if (clip(from, to, &run.offset, &run.bytes)) out->runs[out->num_runs++] = run;
  }
  for (size_t i = 0; i < range->num_blocks; i++) {
    snapshot_block block = range->blocks[i];
    if (clip(from, to, &block.offset, &block.bytes)) out->blocks[out->num_blocks++] = block;
  }
}

static bool zoom_range(FILE *out, const map_style *style, const snapshot_range *range, uint64_t from, uint64_t to,
                       unsigned max_rows) {
  snapshot_range part = {.base = range->base + from, .bytes = to - from};
  snapshot one = {.ranges = &part, .num_ranges = 1, .granule = SMALLEST_CELL};
  part.runs = calloc(range->num_runs + 1, sizeof(*part.runs));
  part.blocks = calloc(range->num_blocks + 1, sizeof(*part.blocks));
  bool good = part.runs != NULL && part.blocks != NULL;
  if (good) {
    clip_range(range, from, to, &part);
    good = map_ranges(out, style, &one, max_rows);
  }
  free(part.runs);
  free(part.blocks);
  return good;
}

bool map_zoom(FILE *out, const map_style *style, const snapshot *s, uint64_t from, uint64_t to, unsigned max_rows,
              tool_error *error) {
  size_t drawn = 0;
  for (size_t r = 0; r < s->num_ranges; r++) {
    const snapshot_range *range = &s->ranges[r];
    uint64_t offset = 0, bytes = range->bytes;
    const uint64_t low = from > range->base ? from - range->base : 0;
    const uint64_t high = to > range->base ? to - range->base : 0;
    if (!clip(low, high, &offset, &bytes)) continue;
    if (!zoom_range(out, style, range, low + offset, low + offset + bytes, max_rows)) {
      return tool_fail(error, "host memory ran out");
    }
    drawn++;
  }
  if (drawn > 0) return true;
  return tool_fail(error, "0x%" PRIx64 "..0x%" PRIx64 " lies in no range of the snapshot", from, to);
}
