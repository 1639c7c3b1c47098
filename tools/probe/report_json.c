// report_json.c: a probe's findings as JSON. See report.h.
#include <jansson.h>

#include "tools/probe/cost.h"
#include "tools/probe/report.h"

// Every value goes in with a call that takes it over and copes with NULL; one that could not be made shows in the end.
static json_t *number(uint64_t value) { return json_integer((json_int_t)value); }
static json_t *text_or_null(const char *text) { return text[0] != '\0' ? json_string(text) : json_null(); }
static json_t *value_or_null(const probe_value *value) {
  return value->code == VMP_CU_SUCCESS ? number(value->value) : json_null();
}

// put adds a value to an object; false when there is no memory.
static bool put(json_t *object, const char *key, json_t *value) { return json_object_set_new(object, key, value) == 0; }

// ---- devices ----

static json_t *attributes_json(const probe_device *d) {
  json_t *object = json_object();
  bool good = object != NULL;
  for (size_t i = 0; i < PROBE_NUM_ATTRIBUTES; i++) {
    const bool known = d->attributes[i].code == VMP_CU_SUCCESS;
    good = good && put(object, probe_attributes[i].name, known ? json_integer(d->attributes[i].value) : json_null());
  }
  if (good) return object;
  json_decref(object);
  return NULL;
}

static json_t *handles_json(const probe_device *d) {
  json_t *object = json_object();
  bool good = object != NULL;
  for (size_t i = 0; i < PROBE_NUM_HANDLE_TYPES; i++) {
    good = good && put(object, probe_handle_types[i].name, json_integer(d->handle_codes[i]));
  }
  if (good) return object;
  json_decref(object);
  return NULL;
}

static json_t *peers_json(const probe_device *d) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; i < PROBE_MAX_DEVICES; i++) {
    if ((d->peers >> i & 1) != 0) good = good && json_array_append_new(array, json_integer(i)) == 0;
  }
  if (good) return array;
  json_decref(array);
  return NULL;
}

static json_t *device_json(const probe_device *d, int ordinal) {
  json_t *object = json_object();
  if (object != NULL && put(object, "ordinal", json_integer(ordinal)) && put(object, "name", json_string(d->name)) &&
      put(object, "total_bytes", value_or_null(&d->total_bytes)) &&
      put(object, "granularity_minimum_bytes", value_or_null(&d->granularity_minimum)) &&
      put(object, "granularity_recommended_bytes", value_or_null(&d->granularity_recommended)) &&
      put(object, "attributes", attributes_json(d)) && put(object, "handle_type_codes", handles_json(d)) &&
      put(object, "peers", peers_json(d))) {
    return object;
  }
  json_decref(object);
  return NULL;
}

static json_t *devices_json(const probe_facts *facts) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 0; i < facts->num_devices && i < PROBE_MAX_DEVICES; i++) {
    good = good && json_array_append_new(array, device_json(&facts->devices[i], i)) == 0;
  }
  if (good) return array;
  json_decref(array);
  return NULL;
}

// ---- figures ----

static json_t *figure_json(const probe_figure *f) {
  const probe_spread *s = &f->spread;
  json_t *object = json_object();
  bool good = object != NULL && put(object, "call", json_string(vmp_call_symbol(f->call))) &&
              put(object, "bytes", f->bytes > 0 ? number(f->bytes) : json_null()) &&
              put(object, "mappings", f->mappings > 0 ? number(f->mappings) : json_null()) &&
              put(object, "samples", number(s->samples)) && put(object, "error", text_or_null(f->why));
  const struct {
    const char *key;
    double us;
  } times[] = {{"median_us", s->median_us}, {"min_us", s->min_us}, {"p10_us", s->p10_us},
               {"p90_us", s->p90_us},       {"max_us", s->max_us}, {"first_us", s->first_us}};
  for (size_t i = 0; i < sizeof(times) / sizeof(times[0]); i++) {
    good = good && put(object, times[i].key, s->samples > 0 ? json_real(times[i].us) : json_null());
  }
  if (good) return object;
  json_decref(object);
  return NULL;
}

static json_t *figures_json(const probe_latency *latency) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (size_t i = 0; i < latency->num_figures; i++) {
    good = good && json_array_append_new(array, figure_json(&latency->figures[i])) == 0;
  }
  if (good) return array;
  json_decref(array);
  return NULL;
}

static json_t *fit_json(const probe_fit *fit) {
  if (!fit->known) return json_null();
  return json_pack("{s:f,s:f,s:f}", "fixed_us", fit->fixed, "share_us", fit->share, "residual_us", fit->residual);
}

static json_t *fits_json(const probe_latency *l) {
  json_t *object = json_object();
  if (object != NULL && put(object, "mem_create_per_mib", fit_json(&l->create)) &&
      put(object, "mem_set_access_per_mapping", fit_json(&l->set_access)) &&
      put(object, "mem_unmap_per_mapping", fit_json(&l->unmap)) &&
      put(object, "mem_address_free_per_gib", fit_json(&l->address_free))) {
    return object;
  }
  json_decref(object);
  return NULL;
}

static json_t *cost_json(const probe_latency *latency) {
  probe_cost_line lines[PROBE_COST_LINES];
  probe_cost_of(latency, lines);
  json_t *object = json_object();
  bool good = object != NULL;
  for (size_t i = 0; i < PROBE_COST_LINES; i++) {
    good = good && put(object, lines[i].name, lines[i].known ? json_real(lines[i].us) : json_null());
  }
  if (good) return object;
  json_decref(object);
  return NULL;
}

// ---- questions ----

static json_t *question_json(const probe_answer *a, int i) {
  return json_pack("{s:i,s:s,s:s,s:s,s:s}", "number", i, "question", probe_question(i), "state",
                   probe_state_name(a->state), "answer", a->answer, "evidence", a->evidence);
}

static json_t *questions_json(const probe_result *result) {
  json_t *array = json_array();
  bool good = array != NULL;
  for (int i = 1; i <= PROBE_QUESTIONS; i++) {
    good = good && json_array_append_new(array, question_json(&result->answers[i - 1], i)) == 0;
  }
  if (good) return array;
  json_decref(array);
  return NULL;
}

// ---- the whole ----

static bool fill(json_t *object, const probe_result *result) {
  const probe_facts *f = &result->facts;
  return put(object, "driver", json_string(f->driver)) && put(object, "version", value_or_null(&f->version)) &&
         put(object, "figures_are", json_string(f->is_host ? "the host's, not a GPU's" : "the device's")) &&
         put(object, "devices", devices_json(f)) && put(object, "device", json_integer(result->device)) &&
         put(object, "free_bytes", value_or_null(&f->free_bytes)) &&
         put(object, "largest_reservation_bytes", number(f->largest_bytes)) &&
         put(object, "refused_reservation_bytes", f->refused_bytes > 0 ? number(f->refused_bytes) : json_null()) &&
         put(object, "refused_reservation_code", f->refused_bytes > 0 ? json_integer(f->refused_code) : json_null()) &&
         put(object, "repeat", number(result->repeat)) && put(object, "latencies", figures_json(&result->latency)) &&
         put(object, "latency_error", text_or_null(result->latency_fault)) &&
         put(object, "fits", fits_json(&result->latency)) && put(object, "cost", cost_json(&result->latency)) &&
         put(object, "questions", questions_json(result)) && put(object, "left_behind", number(result->left_behind));
}

bool probe_report_json(FILE *out, const probe_result *result) {
  json_t *object = json_object();
  const bool good =
      object != NULL && fill(object, result) && json_dumpf(object, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0;
  json_decref(object);
  if (good) fputc('\n', out);
  return good;
}
