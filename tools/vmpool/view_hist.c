// Sizes of blocks, and of the pieces that free mapped memory lies in, by powers of two.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/views.h"

#define BUCKETS 64

typedef struct bucket {
  uint64_t count, bytes, requested;
} bucket;

// bucket_of: the smallest k with bytes <= 2^k.
static unsigned bucket_of(uint64_t bytes) {
  unsigned k = 0;
  while (k < BUCKETS - 1 && (UINT64_C(1) << k) < bytes) k++;
  return k;
}

static void count_blocks(const snapshot *s, bucket *buckets) {
  for (size_t r = 0; r < s->num_ranges; r++) {
    for (size_t i = 0; i < s->ranges[r].num_blocks; i++) {
      const snapshot_block *block = &s->ranges[r].blocks[i];
      bucket *b = &buckets[bucket_of(block->bytes)];
      b->count++;
      b->bytes += block->bytes;
      b->requested += block->requested_bytes;
    }
  }
}

static void count_free(bucket *buckets, uint64_t bytes) {
  if (bytes == 0) return;
  bucket *b = &buckets[bucket_of(bytes)];
  b->count++;
  b->bytes += bytes;
}

static bool is_usable(snapshot_state state) { return state == SNAPSHOT_MAPPED || state == SNAPSHOT_PARKED; }

// count_gaps finds what lies in mapped runs and in no block. Runs that touch are one stretch of mapped memory.
static void count_gaps(const snapshot_range *range, bucket *buckets) {
  size_t block = 0;
  for (size_t run = 0; run < range->num_runs; run++) {
    if (!is_usable(range->runs[run].state)) continue;
    uint64_t at = range->runs[run].offset, end = at + range->runs[run].bytes;
    while (run + 1 < range->num_runs && is_usable(range->runs[run + 1].state) && range->runs[run + 1].offset == end) {
      end += range->runs[++run].bytes;
    }
    while (block < range->num_blocks && range->blocks[block].offset + range->blocks[block].bytes <= at) block++;
    while (block < range->num_blocks && range->blocks[block].offset < end) {
      const snapshot_block *b = &range->blocks[block];
      if (b->offset > at) count_free(buckets, b->offset - at);
      at = b->offset + b->bytes;
      if (at > end) break;
      block++;
    }
    if (at < end) count_free(buckets, end - at);
  }
}

static void put_bar(FILE *out, const map_style *style, style_color color, uint64_t part, uint64_t most) {
  const unsigned room = style->width > 60 ? style->width - 52 : 8;
  unsigned cells = most > 0 ? (unsigned)((double)part / (double)most * room + 0.5) : 0;
  if (cells == 0 && part > 0) cells = 1;
  style_color pen = STYLE_PLAIN;
  style_switch(out, style, &pen, color);
  for (unsigned i = 0; i < cells; i++) fputs(style->utf8 ? "█" : "#", out);
  style_switch(out, style, &pen, STYLE_PLAIN);
}

static void put_buckets(FILE *out, const map_style *style, const bucket *buckets, bool blocks) {
  uint64_t most = 0;
  char limit[SIZE_TEXT_BYTES], bytes[SIZE_TEXT_BYTES];
  for (unsigned k = 0; k < BUCKETS; k++) most = buckets[k].bytes > most ? buckets[k].bytes : most;
  if (most == 0) fputs("  none\n", out);
  for (unsigned k = 0; k < BUCKETS; k++) {
    const bucket *b = &buckets[k];
    if (b->count == 0) continue;
    fprintf(out, "  to %8s %9" PRIu64 " %10s", size_text(UINT64_C(1) << k, limit), b->count,
            size_text(b->bytes, bytes));
    if (blocks) {
      fprintf(out, " %6.1f %%  ", 100 * (double)(b->bytes - b->requested) / (double)b->bytes);
    } else {
      fputs("           ", out);
    }
    put_bar(out, style, blocks ? STYLE_GREEN : STYLE_YELLOW, b->bytes, most);
    fputc('\n', out);
  }
}

bool view_hist(FILE *out, const map_style *style, const snapshot *s) {
  bucket *buckets = calloc(2 * BUCKETS, sizeof(*buckets));
  char size[SIZE_TEXT_BYTES];
  if (buckets == NULL) return false;
  bucket *gaps = buckets + BUCKETS;
  count_blocks(s, buckets);
  for (size_t r = 0; r < s->num_ranges; r++) count_gaps(&s->ranges[r], gaps);
  uint64_t total = 0;
  for (unsigned k = 0; k < BUCKETS; k++) total += gaps[k].bytes;
  view_head(out, s);
  fputs("\nlive blocks by size: how many, bytes, lost by rounding\n", out);
  put_buckets(out, style, buckets, true);
  fputs("\nfree mapped memory by size of its pieces: how many, bytes\n", out);
  put_buckets(out, style, gaps, false);
  if (total > 0) {
    fprintf(out, "  %s in all; the largest block without a driver call is %.1f %% of it\n", size_text(total, size),
            100 * (double)s->largest_free_mapped / (double)total);
  }
  free(buckets);
  return true;
}
