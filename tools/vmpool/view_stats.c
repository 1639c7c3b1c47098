// What a snapshot says in numbers.
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/vmpool/views.h"

void view_put_name(FILE *out, const char *text, size_t most) {
  for (size_t i = 0; text[i] != '\0' && i < most; i++) {
    const unsigned char c = (unsigned char)text[i];
    fputc(c < 0x20 || c == 0x7f ? '?' : c, out);
  }
}

void view_head(FILE *out, const snapshot *s) {
  fputs("pool \"", out);
  view_put_name(out, s->pool_name, 63);
  fputs("\" on ", out);
  view_put_name(out, s->driver, 15);
  fprintf(out, " device %" PRIu64, s->device);
  const uint64_t process = snapshot_number(s, "pool", "process");
  const char *trigger = snapshot_text(s, "pool", "trigger");
  if (process > 0) fprintf(out, ", process %" PRIu64, process);
  if (trigger[0] != '\0' && strcmp(trigger, "call") != 0) {
    fputs(", written on ", out);
    view_put_name(out, trigger, 15);
  }
  fputc('\n', out);
}

static void put_title(FILE *out, const map_style *style, const char *title) {
  fputc('\n', out);
  style_put(out, style, STYLE_CYAN, title);
  fputc('\n', out);
}

static void put_size(FILE *out, const char *name, uint64_t bytes, const char *meaning, unsigned width) {
  char size[SIZE_TEXT_BYTES];
  fprintf(out, "  %-20s %10s", name, size_text(bytes, size));
  if (width >= 100) fprintf(out, " %16" PRIu64, bytes);
  if (width >= 72) fprintf(out, "  %s", meaning);
  fputc('\n', out);
}

static void put_sizes(FILE *out, const map_style *style, const snapshot *s) {
  static const struct {
    const char *key, *meaning;
  } sizes[] = {
      {"reserved_va", "address space held"},
      {"mapped", "physical memory in mapped chunks"},
      {"live", "handed out, after rounding"},
      {"requested", "what callers asked for"},
      {"parked", "mapped, no live block touches it"},
      {"spare", "chunks mapped nowhere"},
      {"pending", "idle, GPU work may still touch it"},
      {"retiring", "addresses that wait for GPU work"},
      {"broken", "mapping could not be made or undone"},
      {"largest_free_mapped", "largest block without a driver call"},
      {"peak_mapped", "most at any time"},
      {"peak_live", "most at any time"},
      {"peak_requested", "most at any time"},
      {"metadata", "host memory for bookkeeping"},
      {"device_free", "as the driver said last"},
      {"device_total", "of the device"},
  };
  put_title(out, style, "bytes");
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    put_size(out, sizes[i].key, snapshot_number(s, "stats", sizes[i].key), sizes[i].meaning, style->width);
  }
  if (s->shared > 0) put_size(out, "shared", s->shared, "chunks that are live at several addresses", style->width);
  if (s->mapped > 0) {
    fprintf(out, "  utilisation %.1f %%: live of mapped", 100 * (double)snapshot_live_in_memory(s) / (double)s->mapped);
  }
  if (s->mapped > 0 && s->live > 0) {
    fprintf(out, "; rounding %.1f %% of live",
            100 * (double)(s->live - (s->requested < s->live ? s->requested : s->live)) / (double)s->live);
  }
  if (s->mapped > 0) fputc('\n', out);
}

// is_size: keys of the statistics that put_sizes has printed, and limits, which are options.
static bool is_size(const char *key) {
  static const char *const keys[] = {"reserved_va", "mapped",         "live",         "requested",
                                     "parked",      "spare",          "pending",      "retiring",
                                     "broken",      "metadata",       "granule",      "peak_mapped",
                                     "peak_live",   "peak_requested", "device_free",  "slab_live",
                                     "mid_live",    "buddy_live",     "device_total", "largest_free_mapped",
                                     "hard_limit",  "soft_limit",     "shared"};
  for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
    if (strcmp(key, keys[i]) == 0) return true;
  }
  return false;
}

// put_counters writes whatever numbers an object has, in as many columns as fit.
static void put_counters(FILE *out, const map_style *style, const snapshot *s, const char *object) {
  json_t *table = json_object_get(s->document, object), *value;
  const unsigned columns = style->width / 38 > 0 ? style->width / 38 : 1;
  unsigned column = 0;
  const char *key;
  json_object_foreach(table, key, value) {
    if (!json_is_integer(value) || (strcmp(object, "stats") == 0 && is_size(key))) continue;
    fputs("  ", out);
    view_put_name(out, key, 24);
    fprintf(out, "%*" JSON_INTEGER_FORMAT, strlen(key) < 24 ? 35 - (int)strlen(key) : 11, json_integer_value(value));
    if (++column % columns == 0) fputc('\n', out);
  }
  if (column % columns != 0) fputc('\n', out);
}

static void put_layers(FILE *out, const map_style *style, const snapshot *s) {
  static const char *const keys[] = {"slab_live", "mid_live", "buddy_live", "region_live"};
  char size[SIZE_TEXT_BYTES];
  put_title(out, style, "layers");
  for (size_t i = 0; i < 4; i++) {
    const uint64_t bytes = snapshot_number(s, "stats", keys[i]);
    fprintf(out, "  %-6.*s %10s live", (int)(strchr(keys[i], '_') - keys[i]), keys[i], size_text(bytes, size));
    if (s->live > 0) fprintf(out, "  %5.1f %%", 100 * (double)bytes / (double)s->live);
    fputc('\n', out);
  }
  const json_t *layers = json_object_get(s->document, "layers"), *slab = json_object_get(layers, "slab");
  const double used = (double)json_integer_value(json_object_get(slab, "object_bytes"));
  const double span = (double)json_integer_value(json_object_get(slab, "span_bytes"));
  if (span > 0) {
    fprintf(out, "  slab's spans: %" JSON_INTEGER_FORMAT ", %.1f %% of them in use\n",
            json_integer_value(json_object_get(slab, "spans")), 100 * used / span);
  }
}

static void put_streams(FILE *out, const map_style *style, const snapshot *s) {
  const json_t *streams = json_object_get(s->document, "streams"), *stream;
  char size[SIZE_TEXT_BYTES];
  size_t i;
  if (json_array_size(streams) == 0) return;
  put_title(out, style, "streams");
  json_array_foreach(streams, i, stream) {
    const char *handle = json_string_value(json_object_get(stream, "handle"));
    const json_int_t pending = json_integer_value(json_object_get(stream, "pending"));
    fprintf(out, "  #%-3" JSON_INTEGER_FORMAT " handle ", json_integer_value(json_object_get(stream, "index")));
    view_put_name(out, handle == NULL ? "?" : handle, 18);
    fprintf(out, "  pending %s\n", size_text(pending > 0 ? (uint64_t)pending : 0, size));
  }
}

static void put_options(FILE *out, const map_style *style, const snapshot *s) {
  const json_t *config = json_object_get(s->document, "config"), *option;
  size_t i;
  put_title(out, style, "options that are not the defaults");
  json_array_foreach(config, i, option) {
    const char *key = json_string_value(json_object_get(option, "key"));
    const char *value = json_string_value(json_object_get(option, "value"));
    const char *source = json_string_value(json_object_get(option, "source"));
    if (key == NULL || value == NULL || source == NULL || strncmp(source, "default", 7) == 0) continue;
    fputs("  ", out);
    view_put_name(out, key, 24);
    fputc(':', out);
    view_put_name(out, value, 60);
    fputs("  (", out);
    view_put_name(out, source, 40);
    fputs(")\n", out);
  }
}

void view_stats(FILE *out, const map_style *style, const snapshot *s) {
  view_head(out, s);
  put_sizes(out, style, s);
  put_title(out, style, "counters");
  put_counters(out, style, s, "stats");
  put_title(out, style, "driver calls");
  put_counters(out, style, s, "driver_calls");
  put_layers(out, style, s);
  put_streams(out, style, s);
  put_options(out, style, s);
}
