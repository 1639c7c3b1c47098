#include "tools/replay/report.h"

#include <inttypes.h>
#include <jansson.h>

#include "tools/common/json_put.h"
#include "tools/common/number.h"

static json_t *driver_calls(const vmp_driver_calls *c) {
  json_t *calls = json_object();
  json_put_count(calls, "reserve", c->reserve);
  json_put_count(calls, "create", c->create);
  json_put_count(calls, "map", c->map);
  json_put_count(calls, "set_access", c->set_access);
  json_put_count(calls, "unmap", c->unmap);
  json_put_count(calls, "release", c->release);
  json_put_count(calls, "address_free", c->address_free);
  return calls;
}

static json_t *model_document(const replay_model_result *m) {
  json_t *o = json_object(), *calls = json_object();
  json_object_set_new(o, "min_capacity_bytes",
                      m->has_min_capacity ? json_integer((json_int_t)m->min_capacity_bytes) : json_null());
  json_put_count(o, "failed_allocs", m->failed_allocs);
  json_put_count(o, "peak_mapped_bytes", m->peak_mapped_bytes);
  json_put_count(calls, "reserve", m->calls.reserve);
  json_put_count(calls, "create", m->calls.create);
  json_put_count(calls, "map", m->calls.map);
  json_put_count(calls, "set_access", m->calls.set_access);
  json_put_count(calls, "unmap", m->calls.unmap);
  json_put_count(calls, "release", m->calls.release);
  json_put_count(calls, "alloc", m->calls.alloc);
  json_put_count(calls, "free", m->calls.free);
  json_object_set_new(o, "driver_calls", calls);
  json_put_real(o, "modelled_driver_us", m->modelled_us, 10);
  return o;
}

static json_t *defragmentation(const player_defragmentation *d) {
  json_t *object = json_object();
  json_put_count(object, "runs", d->runs);
  json_put_count(object, "moved_bytes", d->moved_bytes);
  json_put_count(object, "largest_free_mapped_before_bytes", d->largest_before_bytes);
  json_put_count(object, "largest_free_mapped_after_bytes", d->largest_after_bytes);
  return object;
}

static double over(uint64_t bytes, uint64_t requested_bytes) {
  return requested_bytes == 0 ? 0 : (double)bytes / (double)requested_bytes;
}

static json_t *compaction(const player_compaction *c) {
  json_t *object = json_object();
  json_put_count(object, "requested_bytes", c->requested_bytes);
  json_put_count(object, "mapped_before_bytes", c->before_bytes);
  json_put_count(object, "mapped_after_trim_bytes", c->trimmed_bytes);
  json_put_count(object, "mapped_after_split_bytes", c->split_bytes);
  json_put_count(object, "mapped_after_mesh_bytes", c->meshed_bytes);
  json_put_count(object, "copied_bytes", c->copied_bytes);
  json_put_count(object, "split_chunks", c->split_chunks);
  json_put_count(object, "meshed_chunks", c->meshed_chunks);
  return object;
}

// The calls of each step, as far as they are told one by one.
static json_t *steps(const replay_result *r) {
  json_t *object = json_object(), *all = json_array(), *own = json_array();
  json_put_count(object, "count", r->num_steps);
  for (uint64_t i = 0; i < r->num_steps && i < PLAYER_MAX_STEPS; i++) {
    json_array_append_new(all, json_integer((json_int_t)r->steps[i].all));
    json_array_append_new(own, json_integer((json_int_t)r->steps[i].own));
  }
  json_object_set_new(object, "driver_calls", all);
  json_object_set_new(object, "allocating_thread_calls", own);
  json_put_count(object, "mapped_ahead_bytes", r->mapped_ahead_bytes);
  json_put_count(object, "ahead_unused_bytes", r->ahead_unused_bytes);
  return object;
}

static double ratio(uint64_t bytes, uint64_t to_bytes) { return to_bytes > 0 ? (double)bytes / (double)to_bytes : 0; }

static json_t *regions(const replay_result *r) {
  const kv_counts *k = &r->regions;
  json_t *object = json_object();
  json_put_count(object, "page_bytes", k->page_bytes);
  json_put_count(object, "region_max_bytes", k->region_max_bytes);
  json_put_count(object, "regions", k->regions);
  json_put_count(object, "peak_regions", k->peak_regions);
  json_put_count(object, "committed_bytes", k->committed_bytes);
  json_put_real(object, "mapped_to_requested", ratio(r->peak_mapped_bytes, r->peak_requested_bytes), 1e6);
  if (!r->has_unshared) return object;
  json_put_count(object, "shared_bytes", k->shared_bytes);
  json_put_count(object, "prefix_blocks", k->prefix_blocks);
  json_put_count(object, "shared_blocks", k->shared_blocks);
  json_put_count(object, "unshared_peak_mapped_bytes", r->unshared_peak_mapped_bytes);
  json_put_real(object, "unshared_mapped_to_requested", ratio(r->unshared_peak_mapped_bytes, r->peak_requested_bytes),
                1e6);
  return object;
}

static json_t *proposal(const vmp_class_proposal *p) {
  json_t *object = json_object(), *classes = json_array();
  json_put_count(object, "requests", p->requests);
  json_put_count(object, "covered_requests", p->covered_requests);
  json_put_count(object, "covered_bytes", p->covered_bytes);
  json_put_real(object, "waste", p->waste, 1e6);
  for (size_t i = 0; i < p->num_classes; i++)
    json_array_append_new(classes, json_integer((json_int_t)p->class_bytes[i]));
  json_object_set_new(object, "class_bytes", classes);
  return object;
}

static json_t *document(const char *trace_name, const replay_result *r) {
  json_t *o = json_object();
  // A file name need not be UTF-8; jansson refuses it then.
  json_t *name = json_string(trace_name);
  json_object_set_new(o, "trace", name != NULL ? name : json_string("(name is not UTF-8)"));
  json_put_count(o, "ops", r->ops);
  json_put_count(o, "allocs", r->allocs);
  json_put_count(o, "frees", r->frees);
  json_put_count(o, "failed_allocs", r->failed_allocs);
  json_put_count(o, "unmatched_frees", r->unmatched_frees);
  json_put_count(o, "bad_touches", r->bad_touches);
  json_put_count(o, "stream_waits", r->stream_waits);
  json_put_count(o, "host_waits", r->host_waits);
  json_put_count(o, "takes", r->takes);
  json_put_count(o, "takes_resized", r->takes_resized);
  json_put_real(o, "unfinished_wait_share", r->unfinished_wait_share, 1e6);
  json_put_count(o, "peak_requested_bytes", r->peak_requested_bytes);
  json_put_count(o, "peak_live_bytes", r->peak_live_bytes);
  json_put_count(o, "peak_mapped_bytes", r->peak_mapped_bytes);
  json_put_count(o, "end_live_bytes", r->end_live_bytes);
  json_put_count(o, "end_mapped_bytes", r->end_mapped_bytes);
  json_put_count(o, "mapped_at_peak_bytes", r->mapped_at_peak_bytes);
  json_put_real(o, "fragmentation_at_peak", r->fragmentation_at_peak, 1e6);
  json_put_real(o, "mean_utilisation", r->mean_utilisation, 1e6);
  json_object_set_new(o, "min_capacity_bytes",
                      r->has_min_capacity ? json_integer((json_int_t)r->min_capacity_bytes) : json_null());
  json_object_set_new(o, "driver_calls", driver_calls(&r->driver_calls));
  if (r->has_modelled_us) {
    json_put_real(o, "modelled_driver_us", r->modelled_driver_us, 10);
  } else {
    json_object_set_new(o, "modelled_driver_us", json_null());
  }
  json_put_real(o, "ns_per_op", r->ns_per_op, 10);
  if (r->num_steps > 0) json_object_set_new(o, "steps", steps(r));
  if (r->has_proposal) json_object_set_new(o, "proposal", proposal(&r->proposal));
  if (r->has_compaction) json_object_set_new(o, "compact", compaction(&r->compaction));
  if (r->has_defragmentation) json_object_set_new(o, "defragment", defragmentation(&r->defragmentation));
  if (r->has_regions) json_object_set_new(o, "regions", regions(r));
  if (!r->has_models) return o;
  json_t *models = json_object();
  for (int i = 0; i < MODEL_NUM_KINDS; i++)
    json_object_set_new(models, model_name((model_kind)i), model_document(&r->models[i]));
  json_object_set_new(o, "models", models);
  return o;
}

bool report_json(FILE *out, const char *trace_name, const replay_result *result) {
  json_t *o = document(trace_name, result);
  const bool good =
      o != NULL && json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
  json_decref(o);
  return good && ferror(out) == 0;
}

static void line_size(FILE *out, const char *label, uint64_t bytes) {
  char text[SIZE_TEXT_BYTES];
  fprintf(out, "  %-22s %s (%" PRIu64 " bytes)\n", label, size_text(bytes, text), bytes);
}

static void text_memory(FILE *out, const replay_result *r) {
  line_size(out, "peak requested", r->peak_requested_bytes);
  line_size(out, "peak live", r->peak_live_bytes);
  line_size(out, "peak mapped", r->peak_mapped_bytes);
  fprintf(out, "  %-22s %.2f %% of mapped memory is not live when requested is highest\n", "fragmentation",
          100 * r->fragmentation_at_peak);
  line_size(out, "live at the end", r->end_live_bytes);
  line_size(out, "mapped at the end", r->end_mapped_bytes);
  fprintf(out, "  %-22s %.1f %% of mapped memory is live, on average over all events\n", "mean utilisation",
          100 * r->mean_utilisation);
  if (!r->has_min_capacity) return;
  line_size(out, "smallest device", r->min_capacity_bytes);
  if (r->peak_requested_bytes > 0) {
    fprintf(out, "  %-22s %.4f of peak requested\n", "",
            (double)r->min_capacity_bytes / (double)r->peak_requested_bytes);
  }
}

static void text_costs(FILE *out, const replay_result *r) {
  const vmp_driver_calls *c = &r->driver_calls;
  fprintf(out,
          "  %-22s %" PRIu64 " stream waits, %" PRIu64
          " host waits; %.2f %% of allocations waited for unfinished work\n",
          "waits", r->stream_waits, r->host_waits, 100 * r->unfinished_wait_share);
  fprintf(out, "  %-22s %" PRIu64 " reserve, %" PRIu64 " create, %" PRIu64 " map, %" PRIu64 " set access,\n",
          "driver calls", c->reserve, c->create, c->map, c->set_access);
  fprintf(out, "  %-22s %" PRIu64 " unmap, %" PRIu64 " release, %" PRIu64 " address free\n", "", c->unmap, c->release,
          c->address_free);
  if (r->has_modelled_us)
    fprintf(out, "  %-22s %.1f ms, by the cost table\n", "driver time", r->modelled_driver_us / 1000);
  fprintf(out, "  %-22s %.0f ns per allocation or free, on this machine\n", "pool time", r->ns_per_op);
}

static void cell_size(FILE *out, bool known, uint64_t bytes) {
  char text[SIZE_TEXT_BYTES];
  fprintf(out, " %14s", known ? size_text(bytes, text) : "-");
}

static void cell_ratio(FILE *out, bool known, uint64_t bytes, uint64_t to_bytes) {
  if (known && to_bytes > 0) {
    fprintf(out, " %14.4f", (double)bytes / (double)to_bytes);
  } else {
    fprintf(out, " %14s", "-");
  }
}

// The pool, and beside it the models.
static void text_models(FILE *out, const replay_result *r) {
  fprintf(out, "\n  %-22s %14s", "", "vmpool");
  for (int i = 0; i < MODEL_NUM_KINDS; i++) fprintf(out, " %14s", model_name((model_kind)i));
  fprintf(out, "\n  %-22s", "smallest device");
  cell_size(out, r->has_min_capacity, r->min_capacity_bytes);
  for (int i = 0; i < MODEL_NUM_KINDS; i++)
    cell_size(out, r->models[i].has_min_capacity, r->models[i].min_capacity_bytes);
  fprintf(out, "\n  %-22s", "  to peak requested");
  cell_ratio(out, r->has_min_capacity, r->min_capacity_bytes, r->peak_requested_bytes);
  for (int i = 0; i < MODEL_NUM_KINDS; i++)
    cell_ratio(out, r->models[i].has_min_capacity, r->models[i].min_capacity_bytes, r->peak_requested_bytes);
  fprintf(out, "\n  %-22s", "peak mapped");
  cell_size(out, true, r->peak_mapped_bytes);
  for (int i = 0; i < MODEL_NUM_KINDS; i++) cell_size(out, true, r->models[i].peak_mapped_bytes);
  fprintf(out, "\n  %-22s %14" PRIu64, "failed allocations", r->failed_allocs);
  for (int i = 0; i < MODEL_NUM_KINDS; i++) fprintf(out, " %14" PRIu64, r->models[i].failed_allocs);
  fprintf(out, "\n  %-22s", "driver time, ms");
  if (r->has_modelled_us) {
    fprintf(out, " %14.1f", r->modelled_driver_us / 1000);
  } else {
    fprintf(out, " %14s", "-");
  }
  for (int i = 0; i < MODEL_NUM_KINDS; i++) fprintf(out, " %14.1f", r->models[i].modelled_us / 1000);
  fputc('\n', out);
}

// How many driver calls the steps made: the first three, and all later ones together.
static void text_steps(FILE *out, const replay_result *r) {
  uint64_t later = 0, own = 0;
  const uint64_t told = r->num_steps < PLAYER_MAX_STEPS ? r->num_steps : PLAYER_MAX_STEPS;
  for (uint64_t i = 3; i < told; i++) {
    later += r->steps[i].all;
    own += r->steps[i].own;
  }
  fprintf(out, "  %-22s %" PRIu64 "; driver calls:", "steps", r->num_steps);
  for (uint64_t i = 0; i < told && i < 3; i++) fprintf(out, " %" PRIu64, r->steps[i].all);
  if (told > 3) fprintf(out, ", later ones together %" PRIu64 " (%" PRIu64 " by the allocating thread)", later, own);
  fputc('\n', out);
  if (r->mapped_ahead_bytes > 0) {
    char ahead[SIZE_TEXT_BYTES], unused[SIZE_TEXT_BYTES];
    fprintf(out, "  %-22s %s, of which %s were never used\n", "mapped ahead", size_text(r->mapped_ahead_bytes, ahead),
            size_text(r->ahead_unused_bytes, unused));
  }
}

static void text_proposal(FILE *out, const vmp_class_proposal *p) {
  fprintf(out, "  %-22s", "proposed classes");
  for (size_t i = 0; i < p->num_classes; i++) {
    char text[SIZE_TEXT_BYTES];
    fprintf(out, "%s%s", i == 0 ? " " : ", ", size_text(p->class_bytes[i], text));
  }
  fprintf(out, "\n  %-22s waste %.2f %% over the smallest %" PRIu64 " of %" PRIu64 " requests\n", "", 100 * p->waste,
          p->covered_requests, p->requests);
}

static void text_defragmentation(FILE *out, const player_defragmentation *d) {
  char before[SIZE_TEXT_BYTES], after[SIZE_TEXT_BYTES], moved[SIZE_TEXT_BYTES];
  fprintf(out, "  %-22s %" PRIu64 " times, remapping %s; the last took the largest block without a driver call\n",
          "defragmentation", d->runs, size_text(d->moved_bytes, moved));
  fprintf(out, "  %-22s from %s to %s\n", "", size_text(d->largest_before_bytes, before),
          size_text(d->largest_after_bytes, after));
}

static void text_compaction(FILE *out, const player_compaction *c) {
  char copied[SIZE_TEXT_BYTES];
  fprintf(out, "  %-22s mapped %.3f of requested, %.3f after trim, %.3f after split, %.3f after mesh\n", "compaction",
          over(c->before_bytes, c->requested_bytes), over(c->trimmed_bytes, c->requested_bytes),
          over(c->split_bytes, c->requested_bytes), over(c->meshed_bytes, c->requested_bytes));
  fprintf(out, "  %-22s %" PRIu64 " chunks split, %" PRIu64 " meshed, copying %s\n", "", c->split_chunks,
          c->meshed_chunks, size_text(c->copied_bytes, copied));
}

static void text_regions(FILE *out, const replay_result *r) {
  const kv_counts *k = &r->regions;
  char reserved[SIZE_TEXT_BYTES], page[SIZE_TEXT_BYTES], shared[SIZE_TEXT_BYTES], alone[SIZE_TEXT_BYTES];
  fprintf(out, "  %-22s %" PRIu64 ", %" PRIu64 " at once, each of %s of addresses in pages of %s\n", "regions",
          k->regions, k->peak_regions, size_text(k->region_max_bytes, reserved), size_text(k->page_bytes, page));
  fprintf(out, "  %-22s %.4f of peak requested\n", "peak mapped", ratio(r->peak_mapped_bytes, r->peak_requested_bytes));
  if (!r->has_unshared) return;
  fprintf(out, "  %-22s %" PRIu64 " of %" PRIu64 " prefix blocks, %s in all; without sharing peak mapped is %s\n",
          "shared", k->shared_blocks, k->prefix_blocks, size_text(k->shared_bytes, shared),
          size_text(r->unshared_peak_mapped_bytes, alone));
  fprintf(out, "  %-22s %.4f of peak requested\n", "", ratio(r->unshared_peak_mapped_bytes, r->peak_requested_bytes));
}

bool report_text(FILE *out, const char *trace_name, const trace *t, const replay_result *r) {
  fprintf(out, "%s (%s): %" PRIu64 " events, %" PRIu64 " allocations, %" PRIu64 " frees\n", trace_name, t->format,
          r->ops, r->allocs, r->frees);
  if (r->unmatched_frees > 0) {
    fprintf(out, "  %-22s %" PRIu64 ", of blocks from before the trace; skipped\n", "unmatched frees",
            r->unmatched_frees);
  }
  if (r->end_live_blocks > 0) fprintf(out, "  %-22s %" PRIu64 "\n", "blocks live at the end", r->end_live_blocks);
  text_memory(out, r);
  text_costs(out, r);
  if (r->num_steps > 0) text_steps(out, r);
  if (r->has_proposal) text_proposal(out, &r->proposal);
  if (r->has_compaction) text_compaction(out, &r->compaction);
  if (r->has_defragmentation) text_defragmentation(out, &r->defragmentation);
  if (r->has_regions) text_regions(out, r);
  if (r->has_models) text_models(out, r);
  if (r->failed_allocs > 0) {
    fprintf(out, "  %-22s %" PRIu64 " failed, the first because: %s\n", "FAILED ALLOCATIONS", r->failed_allocs,
            r->first_failure);
  }
  if (r->bad_touches > 0)
    fprintf(out, "  %-22s %" PRIu64 " touches of memory that was not there, or not theirs yet\n", "BAD TOUCHES",
            r->bad_touches);
  if (r->fault[0] != '\0') fprintf(out, "  %-22s %s\n", "FAULT", r->fault);
  return ferror(out) == 0;
}
