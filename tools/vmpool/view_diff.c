// Two snapshots side by side: sizes, blocks, tags, options.
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/views.h"

// ---- sizes ----

static void put_change(FILE *out, const map_style *style, uint64_t a, uint64_t b) {
  char text[SIZE_TEXT_BYTES], line[SIZE_TEXT_BYTES + 4];
  snprintf(line, sizeof(line), "%s%s", a == b ? "" : b > a ? "+" : "-", size_text(b > a ? b - a : a - b, text));
  fprintf(out, "  ");
  style_put(out, style, a == b ? STYLE_DIM : b > a ? STYLE_RED : STYLE_GREEN, a == b ? "same" : line);
}

static void put_sizes(FILE *out, const map_style *style, const snapshot *a, const snapshot *b) {
  static const char *const keys[] = {"reserved_va", "mapped",      "live",        "requested",
                                     "parked",      "spare",       "pending",     "retiring",
                                     "broken",      "peak_mapped", "device_free", "largest_free_mapped"};
  char left[SIZE_TEXT_BYTES], right[SIZE_TEXT_BYTES];
  fprintf(out, "\n  %-20s %10s %10s\n", "", "A", "B");
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    const uint64_t x = snapshot_number(a, "stats", keys[i]), y = snapshot_number(b, "stats", keys[i]);
    fprintf(out, "  %-20s %10s %10s", keys[i], size_text(x, left), size_text(y, right));
    put_change(out, style, x, y);
    fputc('\n', out);
  }
}

// ---- blocks ----

typedef struct entry {
  uint64_t address, bytes, tag;
  const snapshot *owner;
} entry;

typedef struct block_list {
  entry *entries;
  size_t count;
} block_list;

static int by_address(const void *a, const void *b) {
  const entry *x = a, *y = b;
  return x->address < y->address ? -1 : x->address > y->address;
}

static bool list_blocks(const snapshot *s, block_list *out) {
  size_t count = 0;
  for (size_t r = 0; r < s->num_ranges; r++) count += s->ranges[r].num_blocks;
  out->entries = calloc(count + 1, sizeof(*out->entries));
  out->count = 0;
  if (out->entries == NULL) return false;
  for (size_t r = 0; r < s->num_ranges; r++) {
    for (size_t i = 0; i < s->ranges[r].num_blocks; i++) {
      const snapshot_block *block = &s->ranges[r].blocks[i];
      out->entries[out->count++] = (entry){s->ranges[r].base + block->offset, block->bytes, block->tag, s};
    }
  }
  qsort(out->entries, out->count, sizeof(*out->entries), by_address);
  return true;
}

typedef struct share {
  uint64_t count, bytes;
} share;

static void add(share *to, const entry *e) {
  to->count++;
  to->bytes += e->bytes;
}

// compare sorts the blocks into those of A alone, of both (same address and size), and of B alone.
static void compare(const block_list *a, const block_list *b, share out[3]) {
  size_t i = 0, k = 0;
  while (i < a->count || k < b->count) {
    const entry *x = i < a->count ? &a->entries[i] : NULL, *y = k < b->count ? &b->entries[k] : NULL;
    if (x != NULL && y != NULL && x->address == y->address && x->bytes == y->bytes) {
      add(&out[1], x);
      i++;
      k++;
    } else if (y == NULL || (x != NULL && x->address <= y->address)) {
      add(&out[0], x);
      i++;
    } else {
      add(&out[2], y);
      k++;
    }
  }
}

static void put_shares(FILE *out, const map_style *style, const share shares[3]) {
  static const char *const names[] = {"only in A", "in both", "only in B"};
  static const style_color colors[] = {STYLE_GREEN, STYLE_PLAIN, STYLE_RED};
  char size[SIZE_TEXT_BYTES];
  fputs("\nblocks (the same one: same address and size)\n", out);
  for (int i = 0; i < 3; i++) {
    fputs("  ", out);
    style_put(out, style, colors[i], names[i]);
    fprintf(out, "%*s%9" PRIu64 " blocks %10s\n", (int)(12 - strlen(names[i])), "", shares[i].count,
            size_text(shares[i].bytes, size));
  }
}

// ---- tags ----

typedef struct tag_sum {
  const char *name;
  uint64_t a, b;
} tag_sum;

static tag_sum *find_tag(tag_sum *sums, size_t *count, const char *name) {
  for (size_t i = 0; i < *count; i++) {
    if (strcmp(sums[i].name, name) == 0) return &sums[i];
  }
  sums[*count] = (tag_sum){.name = name};
  return &sums[(*count)++];
}

static int by_growth(const void *a, const void *b) {
  const tag_sum *x = a, *y = b;
  const uint64_t dx = x->a > x->b ? x->a - x->b : x->b - x->a, dy = y->a > y->b ? y->a - y->b : y->b - y->a;
  return dx < dy ? 1 : dx > dy ? -1 : strcmp(x->name, y->name);
}

#define MAX_TAGS 4096u
#define SHOWN_TAGS 12u

// sum_tags adds up to MAX_TAGS different tags; what is beyond counts as untagged.
static void sum_tags(const block_list *list, bool is_b, tag_sum *sums, size_t *count) {
  uint64_t last_tag = 0;
  tag_sum *last = NULL;
  for (size_t i = 0; i < list->count; i++) {
    const entry *e = &list->entries[i];
    if (last == NULL || e->tag != last_tag) {
      const char *name = snapshot_tag(e->owner, *count < MAX_TAGS ? e->tag : 0);
      last = find_tag(sums, count, name);
      last_tag = e->tag;
    }
    *(is_b ? &last->b : &last->a) += e->bytes;
  }
}

static bool put_tags(FILE *out, const map_style *style, const block_list *a, const block_list *b) {
  tag_sum *sums = calloc(MAX_TAGS + 2, sizeof(*sums));
  size_t count = 0;
  char left[SIZE_TEXT_BYTES], right[SIZE_TEXT_BYTES];
  if (sums == NULL) return false;
  sum_tags(a, false, sums, &count);
  sum_tags(b, true, sums, &count);
  qsort(sums, count, sizeof(*sums), by_growth);
  fputs("\nlive bytes by tag, the largest change first\n", out);
  for (size_t i = 0; i < count && i < SHOWN_TAGS; i++) {
    fputs("  ", out);
    const char *name = sums[i].name[0] == '\0' ? "(no tag)" : sums[i].name;
    view_put_name(out, name, 20);
    fprintf(out, "%*s %10s %10s", strlen(name) < 20 ? (int)(20 - strlen(name)) : 0, "", size_text(sums[i].a, left),
            size_text(sums[i].b, right));
    put_change(out, style, sums[i].a, sums[i].b);
    fputc('\n', out);
  }
  free(sums);
  return true;
}

// ---- options ----

static const char *option_of(const snapshot *s, const char *key) {
  const json_t *config = json_object_get(s->document, "config"), *option;
  size_t i;
  json_array_foreach(config, i, option) {
    const char *name = json_string_value(json_object_get(option, "key"));
    const char *value = json_string_value(json_object_get(option, "value"));
    if (name != NULL && value != NULL && strcmp(name, key) == 0) return value;
  }
  return NULL;
}

static void put_options(FILE *out, const snapshot *a, const snapshot *b) {
  const json_t *config = json_object_get(a->document, "config"), *option;
  size_t i;
  bool any = false;
  json_array_foreach(config, i, option) {
    const char *key = json_string_value(json_object_get(option, "key"));
    const char *value = json_string_value(json_object_get(option, "value"));
    const char *other = key == NULL ? NULL : option_of(b, key);
    if (value == NULL || other == NULL || strcmp(value, other) == 0) continue;
    if (!any) fputs("\noptions\n", out);
    any = true;
    fputs("  ", out);
    view_put_name(out, key, 24);
    fputs(": ", out);
    view_put_name(out, value, 40);
    fputs(" -> ", out);
    view_put_name(out, other, 40);
    fputc('\n', out);
  }
}

bool view_diff(FILE *out, const map_style *style, const snapshot *a, const snapshot *b) {
  block_list left = {0}, right = {0};
  share shares[3] = {{0}};
  bool good = list_blocks(a, &left) && list_blocks(b, &right);
  if (good) {
    fputs("A ", out);
    view_head(out, a);
    fputs("B ", out);
    view_head(out, b);
    put_sizes(out, style, a, b);
    compare(&left, &right, shares);
    put_shares(out, style, shares);
    good = put_tags(out, style, &left, &right);
    put_options(out, a, b);
  }
  free(left.entries);
  free(right.entries);
  return good;
}
