// report_text.c: a probe's findings for people. See report.h.
#include <inttypes.h>
#include <string.h>

#include "tools/common/number.h"
#include "tools/probe/cost.h"
#include "tools/probe/report.h"

#define HOST_NOTE                                                                                      \
  "THESE FIGURES ARE THE HOST'S: they say how fast this machine models the calls, not how fast a GPU " \
  "is.\n"

static const char *bytes_or_code(const probe_value *value, char *buffer, size_t size) {
  char text[SIZE_TEXT_BYTES];
  if (value->code == VMP_CU_SUCCESS) {
    snprintf(buffer, size, "%s", size_text(value->value, text));
  } else {
    snprintf(buffer, size, "unknown (%s)", probe_code(value->code).text);
  }
  return buffer;
}

// ---- devices ----

static void write_attributes(FILE *out, const probe_device *d) {
  fputs("  attributes   ", out);
  for (size_t i = 0; i < PROBE_NUM_ATTRIBUTES; i++) {
    fprintf(out, "%s%s ", i == 0 ? "" : i % 4 == 0 ? ",\n               " : ", ", probe_attributes[i].name);
    if (d->attributes[i].code == VMP_CU_SUCCESS) {
      fprintf(out, "%d", d->attributes[i].value);
    } else {
      fprintf(out, "unknown (%d)", d->attributes[i].code);
    }
  }
  fputc('\n', out);
}

static void write_handles(FILE *out, const probe_device *d) {
  fputs("  handles      ", out);
  for (size_t i = 0; i < PROBE_NUM_HANDLE_TYPES; i++) {
    const int code = d->handle_codes[i];
    fprintf(out, "%s%s: %s%s", i == 0 ? "" : ", ", probe_handle_types[i].name, code == VMP_CU_SUCCESS ? "yes" : "no, ",
            code == VMP_CU_SUCCESS ? "" : probe_code(code).text);
  }
  fputs("\n  peers        ", out);
  if (d->peers == 0) fputs("none", out);
  for (int i = 0; i < PROBE_MAX_DEVICES; i++) {
    if ((d->peers >> i & 1) != 0) fprintf(out, "%d ", i);
  }
  fputc('\n', out);
}

static void write_device(FILE *out, const probe_device *d, int ordinal) {
  char a[80], b[80];
  fprintf(out, "device %d       %s\n  memory       %s\n", ordinal, d->name,
          bytes_or_code(&d->total_bytes, a, sizeof(a)));
  fprintf(out, "  granularity  %s, recommended %s\n", bytes_or_code(&d->granularity_minimum, a, sizeof(a)),
          bytes_or_code(&d->granularity_recommended, b, sizeof(b)));
  write_attributes(out, d);
  write_handles(out, d);
}

static void write_reservation(FILE *out, const probe_facts *facts) {
  char a[SIZE_TEXT_BYTES], b[SIZE_TEXT_BYTES];
  fprintf(out, "reservations   the largest that was granted is %s",
          facts->largest_bytes > 0 ? size_text(facts->largest_bytes, a) : "none");
  if (facts->refused_bytes > 0) {
    fprintf(out, "; %s gives %s\n", size_text(facts->refused_bytes, b), probe_code(facts->refused_code).text);
  } else {
    fputs("; larger ones were not asked for\n", out);
  }
}

static void write_facts(FILE *out, const probe_result *result) {
  const probe_facts *facts = &result->facts;
  char text[80];
  fprintf(out, "driver         %s, ", facts->driver);
  if (facts->version.code == VMP_CU_SUCCESS) {
    fprintf(out, "CUDA %" PRIu64 ".%" PRIu64, facts->version.value / 1000, facts->version.value % 1000 / 10);
  } else {
    fprintf(out, "version unknown (%s)", probe_code(facts->version.code).text);
  }
  fprintf(out, ", %d device%s\n", facts->num_devices, facts->num_devices == 1 ? "" : "s");
  for (int i = 0; i < facts->num_devices && i < PROBE_MAX_DEVICES; i++) write_device(out, &facts->devices[i], i);
  fprintf(out, "free           %s of device %d\n", bytes_or_code(&facts->free_bytes, text, sizeof(text)),
          result->device);
  write_reservation(out, facts);
}

// ---- figures ----

static void write_figure(FILE *out, const probe_figure *f) {
  char size[SIZE_TEXT_BYTES] = "-", mappings[16] = "-";
  if (f->bytes > 0) size_text(f->bytes, size);
  if (f->mappings > 0) snprintf(mappings, sizeof(mappings), "%u", f->mappings);
  fprintf(out, "%-20s %9s %9s", vmp_call_symbol(f->call), size, mappings);
  if (f->spread.samples > 0) {
    const probe_spread *s = &f->spread;
    fprintf(out, " %9.2f %9.2f %9.2f %9.2f %9.2f %9.2f %6zu", s->median_us, s->min_us, s->p10_us, s->p90_us, s->max_us,
            s->first_us, s->samples);
  }
  fprintf(out, "%s%s\n", f->why[0] != '\0' ? "  " : "", f->why);
}

static void write_figures(FILE *out, const probe_result *result) {
  fprintf(out, "\nlatencies on device %d, in microseconds, %u repetitions\n", result->device, result->repeat);
  if (result->facts.is_host) fputs(HOST_NOTE, out);
  fprintf(out, "%-20s %9s %9s %9s %9s %9s %9s %9s %9s %6s\n", "call", "size", "mappings", "median", "min", "p10", "p90",
          "max", "first", "n");
  for (size_t i = 0; i < result->latency.num_figures; i++) write_figure(out, &result->latency.figures[i]);
  if (result->latency_fault[0] != '\0') fprintf(out, "FAILED: %s\n", result->latency_fault);
}

static void write_fit(FILE *out, const char *call, const char *unit, const probe_fit *fit) {
  if (fit->known) {
    fprintf(out, "%-20s %.3f + %.3f per %s (medians are within %.3f of it)\n", call, fit->fixed, fit->share, unit,
            fit->residual);
  } else {
    fprintf(out, "%-20s too few sizes for a line\n", call);
  }
}

static void write_costs(FILE *out, const probe_result *result) {
  const probe_latency *l = &result->latency;
  fputs("\nlines through the medians, in microseconds, by least squares\n", out);
  write_fit(out, vmp_call_symbol(VMP_CALL_mem_create), "MiB", &l->create);
  write_fit(out, vmp_call_symbol(VMP_CALL_mem_set_access), "mapping", &l->set_access);
  write_fit(out, vmp_call_symbol(VMP_CALL_mem_unmap), "mapping", &l->unmap);
  write_fit(out, vmp_call_symbol(VMP_CALL_mem_address_free), "GiB", &l->address_free);
}

// ---- questions ----

static void write_questions(FILE *out, const probe_result *result) {
  fputs("\nopen questions: number, question | answer | evidence\n", out);
  if (result->facts.is_host) fputs("THESE ANSWERS ARE THE HOST DRIVER'S: its own strict choices, not a GPU's.\n", out);
  for (int i = 1; i <= PROBE_QUESTIONS; i++) {
    const probe_answer *a = &result->answers[i - 1];
    const char *mark = a->state == PROBE_FAILED || a->state == PROBE_UNASKED ? "FAILED: " : "";
    fprintf(out, "%2d %s | %s%s | %s\n", i, probe_question(i), mark, a->answer, a->evidence);
  }
}

void probe_report_text(FILE *out, const probe_result *result) {
  write_facts(out, result);
  write_figures(out, result);
  write_costs(out, result);
  write_questions(out, result);
  if (result->left_behind != 0) {
    fprintf(out, "LEFT BEHIND: %zu things, the first: %s\n", result->left_behind, result->left_first);
  }
}
