// Prometheus' text format, for the node exporter's textfile collector: every statistic of the snapshot, with the pool
// as labels.
#include <inttypes.h>
#include <string.h>

#include "tools/export/export.h"
#include "tools/export/rows.h"

// Statistics that only grow are counters; the rest are gauges, of bytes where nothing else is said.
static const char *const counters[] = {"allocs",          "frees", "failed_allocs",         "chunks_created",
                                       "chunks_released", "takes", "takes_resized",         "stream_waits",
                                       "host_waits",      "steps", "unfinished_wait_allocs"};
static const char *const counts[] = {"blocks", "chunks", "regions"};

static bool is_in(const char *name, const char *const *names, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (strcmp(name, names[i]) == 0) return true;
  }
  return false;
}

// A label's value: backslash, quote and line feed are escaped.
static void put_label(FILE *out, const char *name, const char *value) {
  fprintf(out, "%s=\"", name);
  for (; *value != '\0'; value++) {
    if (*value == '\\' || *value == '"') fputc('\\', out);
    if (*value == '\n') {
      fputs("\\n", out);
    } else {
      fputc(*value, out);
    }
  }
  fputc('"', out);
}

static bool is_metric_name(const char *name) {
  return name[0] != '\0' && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") == strlen(name);
}

static void put_labels(FILE *out, const export_input *in) {
  fprintf(out, "{device=\"%" PRIu64 "\",", document_size(in->document, "pool", "device"));
  put_label(out, "driver", in->state->driver);
  fputc(',', out);
  put_label(out, "pool", document_text(in->document, "pool", "name"));
  fprintf(out, ",process=\"%" PRIu64 "\"}", document_size(in->document, "pool", "process"));
}

static void put_metric(FILE *out, const export_input *in, const char *name, json_int_t value) {
  const bool counter = is_in(name, counters, sizeof(counters) / sizeof(counters[0]));
  const bool count = is_in(name, counts, sizeof(counts) / sizeof(counts[0]));
  const char *ending = counter ? "_total" : count ? "" : "_bytes";
  fprintf(out, "# TYPE vmpool_%s%s %s\nvmpool_%s%s", name, ending, counter ? "counter" : "gauge", name, ending);
  put_labels(out, in);
  fprintf(out, " %" JSON_INTEGER_FORMAT "\n", value);
}

bool export_prometheus(FILE *out, const export_input *in, tool_error *error) {
  const char *name;
  json_t *value;
  (void)error;
  json_object_foreach(json_object_get(in->document, "stats"), name, value) {
    if (json_is_integer(value) && is_metric_name(name)) put_metric(out, in, name, json_integer_value(value));
  }
  return true;
}
