// cost.c: see cost.h.
#include "tools/probe/cost.h"

// The median of the medians of a call's figures outside runs; false where there are none.
static bool median_of(const probe_latency *latency, vmp_call call, double *out_us, size_t *out_count) {
  double medians[PROBE_MAX_FIGURES];
  size_t count = 0;
  for (size_t i = 0; i < latency->num_figures; i++) {
    const probe_figure *f = &latency->figures[i];
    if (f->call == call && f->spread.samples > 0 && !f->is_run) medians[count++] = f->spread.median_us;
  }
  *out_us = probe_spread_of(medians, count).median_us;
  *out_count = count;
  return count > 0;
}

// A call of fixed cost.
static void add_fixed(probe_cost_line **next, const probe_latency *latency, const char *name, vmp_call call) {
  probe_cost_line *line = (*next)++;
  size_t count;
  line->name = name;
  line->known = median_of(latency, call, &line->us, &count);
}

// A call whose cost has a share per unit. `call` is where a single figure is looked for when there is no line; a run's
// single figure is none, since the share is what matters.
static void add_line(probe_cost_line **next, const probe_latency *latency, const char *name, const char *share_name,
                     const probe_fit *fit, vmp_call call, bool is_run) {
  probe_cost_line *fixed = (*next)++, *share = (*next)++;
  *fixed = (probe_cost_line){.name = name, .known = fit->known, .us = fit->fixed};
  *share = (probe_cost_line){.name = share_name, .known = fit->known, .us = fit->share};
  if (fit->known || is_run) return;
  size_t count;
  fixed->known = share->known = median_of(latency, call, &fixed->us, &count) && count == 1;
  share->us = 0;
}

void probe_cost_of(const probe_latency *latency, probe_cost_line lines[PROBE_COST_LINES]) {
  probe_cost_line *next = lines;
  add_fixed(&next, latency, "mem_address_reserve", VMP_CALL_mem_address_reserve);
  add_line(&next, latency, "mem_create", "create_per_mib", &latency->create, VMP_CALL_mem_create, false);
  add_fixed(&next, latency, "mem_map", VMP_CALL_mem_map);
  add_line(&next, latency, "mem_set_access", "set_access_per_mapping", &latency->set_access, VMP_CALL_mem_set_access,
           true);
  add_line(&next, latency, "mem_unmap", "unmap_per_mapping", &latency->unmap, VMP_CALL_mem_unmap, true);
  add_fixed(&next, latency, "mem_release", VMP_CALL_mem_release);
  add_line(&next, latency, "mem_address_free", "address_free_per_gib", &latency->address_free,
           VMP_CALL_mem_address_free, false);
  add_fixed(&next, latency, "mem_get_info", VMP_CALL_mem_get_info);
  add_fixed(&next, latency, "event_record", VMP_CALL_event_record);
  add_fixed(&next, latency, "event_query", VMP_CALL_event_query);
  add_fixed(&next, latency, "stream_wait_event", VMP_CALL_stream_wait_event);
}

void probe_cost_write(FILE *out, const probe_facts *facts, int device, const probe_latency *latency) {
  probe_cost_line lines[PROBE_COST_LINES];
  probe_cost_of(latency, lines);
  fprintf(out, "# What driver calls cost, in microseconds, as measured by vmpool probe on the %s driver:\n",
          facts->driver);
  fprintf(out, "# device %d, %s, driver version %llu\n", device, facts->devices[device].name,
          (unsigned long long)facts->version.value);
  if (facts->is_host) fputs("# NOT A GPU'S: these figures are how fast this machine models the calls.\n", out);
  for (size_t i = 0; i < PROBE_COST_LINES; i++) {
    if (lines[i].known) {
      fprintf(out, "%-24s %.3f\n", lines[i].name, lines[i].us);
    } else {
      fprintf(out, "# %s was not measured; its default holds\n", lines[i].name);
    }
  }
}
