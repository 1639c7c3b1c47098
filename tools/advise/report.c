#include "tools/advise/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "tools/common/json_put.h"
#include "tools/common/number.h"

static const char *const goal_names[] = {"balanced", "memory", "speed"};
static const char *const goal_texts[] = {
    "the least driver time among those whose smallest device is within 2 % of the smallest",
    "the smallest device on which nothing fails",
    "the least driver time",
};
static const char *const stage_names[] = {"", "chunk size", "thresholds", "fixed blocks", "when to map"};

static const char *name_of(const advise_case *c) { return c->conf[0] != '\0' ? c->conf : "(defaults)"; }

static const char *time_text(double us, char text[24]) {
  if (us < 1000) snprintf(text, 24, "%.0f us", us);
  if (us >= 1000 && us < 1e6) snprintf(text, 24, "%.2f ms", us / 1000);
  if (us >= 1e6) snprintf(text, 24, "%.2f s", us / 1e6);
  return text;
}

static void put_case(FILE *out, const advise_result *r, size_t i, bool quick, int width) {
  const advise_case *c = &r->cases[i];
  char size[SIZE_TEXT_BYTES], time[24];
  fprintf(out, "%c %-*s", i == r->best ? '*' : ' ', width, name_of(c));
  if (!c->measured) {
    fprintf(out, "  not measured: %s\n", c->problem);
    return;
  }
  const uint64_t bytes = quick || c->stage == 4 ? c->peak_mapped_bytes : c->smallest_device_bytes;
  fprintf(out, " %10s", bytes > 0 ? size_text(bytes, size) : "none");
  fprintf(out, " %7.4f", (double)bytes / (double)r->peak_requested_bytes);
  fprintf(out, " %10s %7" PRIu64, time_text(c->run_us, time), c->run_calls);
  if (c->failed_allocs > 0) fprintf(out, "  %" PRIu64 " failed", c->failed_allocs);
  fputc('\n', out);
}

static int name_width(const advise_result *r) {
  size_t width = 24;
  for (size_t i = 0; i < r->num_cases; i++) {
    if (strlen(name_of(&r->cases[i])) > width) width = strlen(name_of(&r->cases[i]));
  }
  return (int)width;
}

// What an option changed: the best one against the defaults.
static void put_reasons(FILE *out, const advise_result *r, const advise_options *o) {
  const advise_case *best = &r->cases[r->best], *base = &r->cases[0];
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES], x[24], y[24];
  if (r->best == 0) {
    fputs("  No other configuration was better by this goal: the defaults stay.\n", out);
    return;
  }
  if (base->failed_allocs > 0 && best->failed_allocs == 0) {
    fprintf(out, "  nothing fails on this device; with the defaults %" PRIu64 " allocations do\n", base->failed_allocs);
  }
  if (!o->quick && best->smallest_device_bytes > 0 && base->smallest_device_bytes > 0) {
    fprintf(out, "  smallest device  %s, with the defaults %s\n", size_text(best->smallest_device_bytes, a),
            size_text(base->smallest_device_bytes, b));
  }
  fprintf(out, "  most mapped      %s, with the defaults %s\n", size_text(best->peak_mapped_bytes, a),
          size_text(base->peak_mapped_bytes, b));
  fprintf(out, "  driver time      %s in %" PRIu64 " calls, with the defaults %s in %" PRIu64 "\n",
          time_text(best->run_us, x), best->run_calls, time_text(base->run_us, y), base->run_calls);
}

static void put_lines(FILE *out, const char *conf) {
  if (conf[0] == '\0') {
    fputs("  nothing to set\n", out);
    return;
  }
  fprintf(out, "  export VMP_CONF=\"%s\"          # for any program\n", conf);
  fprintf(out, "  options.conf = \"%s\";          // vmp_pool_options, in C\n", conf);
}

static void put_eager(FILE *out, const advise_result *r) {
  char a[24], b[24];
  if (r->eager == 0) return;
  const advise_case *c = &r->cases[r->eager], *best = &r->cases[r->best];
  fprintf(out,
          "\nWhere the pool may hold its memory from the start on (a share of this device; %s at creation, then %s\n"
          "instead of %s of driver time):\n",
          time_text(c->start_us, a), time_text(c->run_us, b), time_text(best->run_us, (char[24]){0}));
  put_lines(out, c->conf);
}

void advise_report_text(FILE *out, const char *name, const trace *t, const advise_options *o, const advise_result *r) {
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  unsigned stage = 0;
  const int width = name_width(r);
  fprintf(out, "%s (%s): %" PRIu64 " events, at most %s asked for\n", name, t->format, t->num_events,
          size_text(r->peak_requested_bytes, a));
  fprintf(out, "%zu configurations on a device of %s; goal %s: %s\n\n", r->num_cases, size_text(r->device_bytes, b),
          goal_names[o->goal], goal_texts[o->goal]);
  fprintf(out, "  %-*s %10s %7s %10s %7s\n", width, "", o->quick ? "mapped" : "device", "x peak", "driver", "calls");
  for (size_t i = 0; i < r->num_cases; i++) {
    if (r->cases[i].stage != stage) {
      stage = r->cases[i].stage;
      fprintf(out, "  -- %s%s\n", stage_names[stage], stage == 4 && !o->quick ? " (device: most mapped)" : "");
    }
    put_case(out, r, i, o->quick, width);
  }
  fputs("\nAdvice\n", out);
  put_lines(out, r->cases[r->best].conf);
  fputs("\nWhy\n", out);
  put_reasons(out, r, o);
  put_eager(out, r);
}

static json_t *case_json(const advise_case *c) {
  json_t *object = json_object();
  json_object_set_new(object, "conf", json_string(c->conf));
  json_object_set_new(object, "stage", json_string(stage_names[c->stage]));
  json_object_set_new(object, "measured", json_boolean(c->measured));
  if (!c->measured) json_object_set_new(object, "problem", json_string(c->problem));
  json_put_count(object, "smallest_device_bytes", c->smallest_device_bytes);
  json_put_count(object, "peak_mapped_bytes", c->peak_mapped_bytes);
  json_put_count(object, "failed_allocs", c->failed_allocs);
  json_put_count(object, "driver_calls", c->run_calls);
  json_put_count(object, "takes", c->takes);
  json_put_real(object, "start_us", c->start_us, 10);
  json_put_real(object, "driver_us", c->run_us, 10);
  json_put_real(object, "mean_utilisation", c->mean_utilisation, 1e4);
  return object;
}

void advise_report_json(FILE *out, const char *name, const advise_options *o, const advise_result *r) {
  json_t *document = json_object(), *cases = json_array();
  json_object_set_new(document, "trace", json_string(name));
  json_object_set_new(document, "goal", json_string(goal_names[o->goal]));
  json_put_count(document, "device_bytes", r->device_bytes);
  json_put_count(document, "peak_requested_bytes", r->peak_requested_bytes);
  for (size_t i = 0; i < r->num_cases; i++) json_array_append_new(cases, case_json(&r->cases[i]));
  json_object_set_new(document, "cases", cases);
  json_object_set_new(document, "advice", json_string(r->cases[r->best].conf));
  json_object_set_new(document, "eager", r->eager > 0 ? json_string(r->cases[r->eager].conf) : json_null());
  json_dumpf(document, out, JSON_INDENT(2));
  fputc('\n', out);
  json_decref(document);
}
