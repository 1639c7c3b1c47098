// latency.c: see latency.h.
#include "tools/probe/latency.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_CALLS 5u    // of one cycle
#define MIN_SAMPLES 5u  // that are taken however long they last
#define MAX_CHUNK_BYTES (UINT64_C(512) << 20)
#define MAX_RUN 64u

// cycle: calls that are measured in turn, round after round.
typedef struct cycle {
  probe_rig *rig;
  const probe_settings *settings;
  probe_latency *out;
  probe_figure *figures;  // num_calls of them, in the order of the calls
  size_t num_calls, next;
  double *us[MAX_CALLS];
  size_t taken[MAX_CALLS];
  bool warming;  // the round's samples are not kept
  bool first;    // the very first round
  // What the rounds work on.
  uint64_t bytes;
  uint32_t mappings;
  vmp_cu_ptr ptr;
  vmp_cu_handle handles[MAX_RUN];
  vmp_cu_stream stream, other;
  vmp_cu_event event;
} cycle;

// took keeps the time of the call just made; returns its code.
static int took(cycle *c, int code) {
  if (code != VMP_CU_SUCCESS) return code;
  const double us = (double)c->rig->spent_ns / 1000.0;
  if (c->first) c->figures[c->next].spread.first_us = us;
  if (!c->warming) c->us[c->next][c->taken[c->next]++] = us;
  c->next++;
  return code;
}

// ---- one round of each cycle ----

static int chunk_round(cycle *c) {
  vmp_cu_handle handle = 0;
  int code = took(c, probe_create_plain(c->rig, &handle, c->bytes));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_map(c->rig, c->ptr, c->bytes, 0, handle));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_grant(c->rig, c->ptr, c->bytes, VMP_CU_ACCESS_READWRITE));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_unmap(c->rig, c->ptr, c->bytes));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_release(c->rig, handle));
  return code;
}

static int run_round(cycle *c) {
  const uint64_t granule = c->rig->device.granule_bytes;
  int code = VMP_CU_SUCCESS;
  for (uint32_t i = 0; i < c->mappings && code == VMP_CU_SUCCESS; i++) {
    code = probe_map(c->rig, c->ptr + i * granule, granule, 0, c->handles[i]);
  }
  if (code == VMP_CU_SUCCESS) code = took(c, probe_grant(c->rig, c->ptr, c->bytes, VMP_CU_ACCESS_READWRITE));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_unmap(c->rig, c->ptr, c->bytes));
  return code;
}

static int range_round(cycle *c) {
  vmp_cu_ptr ptr = 0;
  int code = took(c, probe_reserve(c->rig, &ptr, c->bytes, 0));
  if (code == VMP_CU_SUCCESS) code = took(c, probe_free(c->rig, ptr, c->bytes));
  return code;
}

static int event_round(cycle *c) {
  int code = took(c, PROBE_CALL(c->rig, event_record, c->event, c->stream));
  if (code == VMP_CU_SUCCESS) code = took(c, PROBE_CALL(c->rig, stream_wait_event, c->other, c->event, 0));
  if (code == VMP_CU_SUCCESS) code = PROBE_CALL(c->rig, stream_synchronize, c->other);
  if (code == VMP_CU_SUCCESS) code = PROBE_CALL(c->rig, stream_synchronize, c->stream);
  if (code == VMP_CU_SUCCESS) code = took(c, PROBE_CALL(c->rig, event_query, c->event));
  return code;
}

static int info_round(cycle *c) {
  size_t free_bytes = 0, total = 0;
  return took(c, PROBE_CALL(c->rig, mem_get_info, &free_bytes, &total));
}

// ---- rounds ----

static uint64_t wall_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// The call that failed and those behind it say why they have no more samples, and those before it why they have none.
static void stop(cycle *c, int code) {
  char why[PROBE_WHY_BYTES];
  probe_why(c->rig, code, why);
  for (size_t i = 0; i < c->num_calls; i++) {
    if (i < c->next && c->taken[i] > 0) continue;
    memcpy(c->figures[i].why, why, sizeof(why));
    c->figures[i].failed = code != VMP_CU_OUT_OF_MEMORY;
  }
}

static void repeat_rounds(cycle *c, int (*round)(cycle *c)) {
  const uint32_t warm_up = c->settings->repeat < 20 ? 2 : c->settings->repeat / 10;
  const uint64_t began = wall_ns();
  for (uint32_t i = 0; i < warm_up + c->settings->repeat; i++) {
    const bool late = wall_ns() - began > c->settings->budget_ns;
    if (late && c->taken[0] >= MIN_SAMPLES) return;
    if (late && i < warm_up) i = warm_up;
    c->first = i == 0;
    c->warming = i < warm_up;
    c->next = 0;
    const int code = round(c);
    if (code == VMP_CU_SUCCESS) continue;
    stop(c, code);
    return;
  }
}

// add_figures makes the records of a cycle; false when there are more than there is room for.
static bool add_figures(cycle *c, const vmp_call *calls, size_t num_calls) {
  if (PROBE_MAX_FIGURES - c->out->num_figures < num_calls) return false;
  c->figures = &c->out->figures[c->out->num_figures];
  c->num_calls = num_calls;
  c->next = 0;
  for (size_t i = 0; i < num_calls; i++) {
    c->figures[i] = (probe_figure){.call = calls[i], .bytes = c->bytes};
    const bool maps =
        calls[i] == VMP_CALL_mem_map || calls[i] == VMP_CALL_mem_set_access || calls[i] == VMP_CALL_mem_unmap;
    c->figures[i].mappings = maps ? (c->mappings > 0 ? c->mappings : 1) : 0;
    c->figures[i].is_run = c->mappings > 0;
  }
  c->out->num_figures += num_calls;
  return true;
}

// measure repeats a cycle whose figures exist, and ends it.
static void measure(cycle *c, int (*round)(cycle *c)) {
  double *samples = calloc(c->num_calls * c->settings->repeat, sizeof(*samples));
  if (samples == NULL) {
    for (size_t i = 0; i < c->num_calls; i++) {
      c->figures[i].failed = true;
      snprintf(c->figures[i].why, sizeof(c->figures[i].why), "host memory ran out");
    }
    return;
  }
  for (size_t i = 0; i < c->num_calls; i++) {
    c->us[i] = samples + i * c->settings->repeat;
    c->taken[i] = 0;
  }
  repeat_rounds(c, round);
  for (size_t i = 0; i < c->num_calls; i++) {
    const double first_us = c->figures[i].spread.first_us;
    c->figures[i].spread = probe_spread_of(c->us[i], c->taken[i]);
    c->figures[i].spread.first_us = first_us;
  }
  free(samples);
}

static cycle new_cycle(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  return (cycle){.rig = rig, .settings = settings, .out = out};
}

// ---- the cycles ----

// What may be used of the device's memory: half of what is free. A device that doesn't say is taken to be empty.
static uint64_t usable_bytes(probe_rig *rig) {
  size_t free_bytes = 0, total = 0;
  return PROBE_CALL(rig, mem_get_info, &free_bytes, &total) == VMP_CU_SUCCESS ? free_bytes / 2
                                                                              : rig->device.total_bytes;
}

static void measure_chunks(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  static const vmp_call calls[] = {VMP_CALL_mem_create, VMP_CALL_mem_map, VMP_CALL_mem_set_access, VMP_CALL_mem_unmap,
                                   VMP_CALL_mem_release};
  const uint64_t granule = rig->device.granule_bytes, usable = usable_bytes(rig);
  for (uint64_t bytes = granule; bytes == granule || (bytes <= MAX_CHUNK_BYTES && bytes <= usable); bytes *= 4) {
    cycle c = new_cycle(rig, settings, out);
    c.bytes = bytes;
    if (!add_figures(&c, calls, sizeof(calls) / sizeof(calls[0]))) return;
    const int code = probe_reserve(rig, &c.ptr, bytes, 0);
    if (code == VMP_CU_SUCCESS) {
      measure(&c, chunk_round);
    } else {
      stop(&c, code);
    }
    (void)probe_clear(rig);
  }
}

static void measure_run(probe_rig *rig, const probe_settings *settings, uint32_t mappings, probe_latency *out) {
  static const vmp_call calls[] = {VMP_CALL_mem_set_access, VMP_CALL_mem_unmap};
  cycle c = new_cycle(rig, settings, out);
  c.bytes = mappings * rig->device.granule_bytes;
  c.mappings = mappings;
  if (!add_figures(&c, calls, sizeof(calls) / sizeof(calls[0]))) return;
  int code = probe_reserve(rig, &c.ptr, c.bytes, 0);
  for (uint32_t i = 0; i < mappings && code == VMP_CU_SUCCESS; i++) {
    code = probe_create_plain(rig, &c.handles[i], rig->device.granule_bytes);
  }
  if (code == VMP_CU_SUCCESS) {
    measure(&c, run_round);
  } else {
    stop(&c, code);
  }
  (void)probe_clear(rig);
}

static void measure_ranges(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  static const vmp_call calls[] = {VMP_CALL_mem_address_reserve, VMP_CALL_mem_address_free};
  const uint64_t granule = rig->device.granule_bytes;
  const uint64_t sizes[] = {granule, UINT64_C(1) << 30, UINT64_C(64) << 30, UINT64_C(1) << 40};
  for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
    if (i > 0 && sizes[i] <= granule) continue;
    cycle c = new_cycle(rig, settings, out);
    c.bytes = sizes[i];
    if (!add_figures(&c, calls, sizeof(calls) / sizeof(calls[0]))) return;
    measure(&c, range_round);
    (void)probe_clear(rig);
  }
}

static void measure_events(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  static const vmp_call calls[] = {VMP_CALL_event_record, VMP_CALL_stream_wait_event, VMP_CALL_event_query};
  cycle c = new_cycle(rig, settings, out);
  if (!add_figures(&c, calls, sizeof(calls) / sizeof(calls[0]))) return;
  int code = probe_make_stream(rig, &c.stream);
  if (code == VMP_CU_SUCCESS) code = probe_make_stream(rig, &c.other);
  if (code == VMP_CU_SUCCESS) code = probe_make_event(rig, &c.event);
  if (code == VMP_CU_SUCCESS) {
    measure(&c, event_round);
  } else {
    stop(&c, code);
  }
  (void)probe_clear(rig);
}

static void measure_info(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  static const vmp_call calls[] = {VMP_CALL_mem_get_info};
  cycle c = new_cycle(rig, settings, out);
  if (add_figures(&c, calls, 1)) measure(&c, info_round);
}

// ---- lines ----

// fit draws the line through the medians of a call; `unit` bytes of a figure count as one, or, 0, its mappings do.
static probe_fit fit(const probe_latency *latency, vmp_call call, uint64_t unit) {
  double x[PROBE_MAX_FIGURES], y[PROBE_MAX_FIGURES];
  size_t count = 0;
  for (size_t i = 0; i < latency->num_figures; i++) {
    const probe_figure *f = &latency->figures[i];
    if (f->call != call || f->spread.samples == 0 || f->is_run != (unit == 0)) continue;
    x[count] = unit == 0 ? (double)f->mappings : (double)(f->bytes / unit);
    y[count++] = f->spread.median_us;
  }
  return probe_fit_line(x, y, count);
}

void probe_measure_runs(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  const uint32_t runs[] = {1, 8, MAX_RUN};
  for (size_t i = 0; i < sizeof(runs) / sizeof(runs[0]); i++) measure_run(rig, settings, runs[i], out);
  out->set_access = fit(out, VMP_CALL_mem_set_access, 0);
  out->unmap = fit(out, VMP_CALL_mem_unmap, 0);
}

void probe_measure(probe_rig *rig, const probe_settings *settings, probe_latency *out) {
  measure_chunks(rig, settings, out);
  probe_measure_runs(rig, settings, out);
  measure_ranges(rig, settings, out);
  measure_events(rig, settings, out);
  measure_info(rig, settings, out);
  out->create = fit(out, VMP_CALL_mem_create, UINT64_C(1) << 20);
  out->address_free = fit(out, VMP_CALL_mem_address_free, UINT64_C(1) << 30);
}
