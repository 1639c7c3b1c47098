#include "tools/bench/report.h"

#include <inttypes.h>
#include <jansson.h>
#include <string.h>

#include "tools/common/json_put.h"
#include "tools/common/number.h"

// ---- JSON ----

static void put_time(json_t *o, const bench_result *r) {
  json_put_real(o, "ns_median", r->ns_median, 100);
  json_put_real(o, "ns_min", r->ns_min, 100);
  if (!r->has_latency) return;
  json_put_real(o, "ns_p50", r->ns_p50, 100);
  json_put_real(o, "ns_p99", r->ns_p99, 100);
  json_put_real(o, "ns_p999", r->ns_p999, 100);
  json_put_real(o, "ns_timer", r->ns_timer, 100);
  json_put_count(o, "driver_call_allocs", r->driver_call_allocs);
  json_put_real(o, "driver_call_ns_p50", r->driver_call_ns_p50, 100);
  json_put_real(o, "driver_call_ns_max", r->driver_call_ns_max, 100);
}

static void put_memory(json_t *o, const bench_result *r) {
  json_put_count(o, "peak_requested_bytes", r->peak_requested_bytes);
  json_put_count(o, "peak_live_bytes", r->peak_live_bytes);
  json_put_count(o, "peak_mapped_bytes", r->peak_mapped_bytes);
  json_put_count(o, "requested_bytes", r->requested_bytes);
  json_put_count(o, "mapped_bytes", r->mapped_bytes);
  json_put_count(o, "granule_bytes", r->granule_bytes);
  json_put_count(o, "live_blocks", r->live_blocks);
  json_put_count(o, "driver_calls", r->driver_calls);
  json_put_count(o, "metadata_bytes", r->metadata_bytes);
  json_put_count(o, "metadata_start_bytes", r->metadata_start_bytes);
}

static void put_own(json_t *o, const bench_result *r) {
  if (r->has_scaling) {
    json_put_count(o, "threads", r->threads);
    json_put_real(o, "scaling", r->scaling, 1000);
  }
  if (r->has_ratio) {
    json_put_real(o, "ratio", r->ratio, 1000);
    json_put_real(o, "ns_median_few", r->ns_median_few, 100);
    json_put_count(o, "live_few", r->live_few);
    json_put_count(o, "live_many", r->live_many);
    json_put_real(o, "metadata_bytes_per_block", r->metadata_bytes_per_block, 100);
  }
  if (r->has_log) {
    json_put_real(o, "ns_median_without_log", r->ns_median_without_log, 100);
    json_put_real(o, "ns_per_event", r->ns_per_event, 100);
  }
  if (r->has_steps) {
    json_put_real(o, "steps", r->steps, 1000);
    json_put_real(o, "driver_calls_per_step", r->driver_calls_per_step, 1000);
  }
  if (strcmp(r->name, "fill") != 0) return;
  if (!r->has_share) {
    json_object_set_new(o, "share_at_first_failure", json_null());
  } else {
    json_put_real(o, "share_at_first_failure", r->share_at_first_failure, 1e6);
  }
  json_put_count(o, "seeds", r->num_seeds);
  if (r->num_seeds < 2 || !r->has_share) return;
  json_put_real(o, "median", r->share_at_first_failure, 1e6);
  json_put_real(o, "worst", r->share_worst, 1e6);
}

static void put_peers(json_t *o, const bench_result *r) {
  if (!r->has_peers) return;
  json_t *peers = json_array();
  for (uint64_t i = 0; i < r->num_peers; i++) {
    json_t *peer = json_object();
    json_object_set_new(peer, "name", json_string(r->peers[i].name));
    json_put_real(peer, "ns_median", r->peers[i].ns_median, 100);
    json_put_real(peer, "ratio_median", r->peers[i].ratio_median, 1e4);
    if (r->has_ratio) json_put_real(peer, "ratio_to_few", r->peers[i].ratio_to_few, 1000);
    json_array_append_new(peers, peer);
  }
  json_object_set_new(o, "peers", peers);
}

bool bench_report_json(FILE *out, const bench_result *r) {
  json_t *o = json_object();
  json_object_set_new(o, "name", json_string(r->name));
  json_put_count(o, "seed", r->seed);
  json_put_count(o, "pairs", r->pairs);
  json_put_count(o, "setup_allocs", r->setup_allocs);
  json_put_count(o, "allocs", r->allocs);
  json_put_count(o, "device_bytes", r->device_bytes);
  put_time(o, r);
  put_memory(o, r);
  put_own(o, r);
  put_peers(o, r);
  const bool good =
      o != NULL && json_dumpf(o, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
  json_decref(o);
  return good && ferror(out) == 0;
}

// ---- text ----

static void line_size(FILE *out, const char *label, uint64_t bytes) {
  char text[SIZE_TEXT_BYTES];
  fprintf(out, "  %-20s %s (%" PRIu64 " bytes)\n", label, size_text(bytes, text), bytes);
}

static void text_time(FILE *out, const bench_result *r) {
  const char *what = strcmp(r->name, "fill") == 0 ? "time per request" : "time per pair";
  fprintf(out, "  %-20s %.1f ns, least %.1f ns\n", what, r->ns_median, r->ns_min);
  if (r->has_latency) {
    fprintf(out, "  %-20s median %.0f ns, 99 %% %.0f ns, 99.9 %% %.0f ns (%.0f ns of it are the clock's)\n",
            "one allocation", r->ns_p50, r->ns_p99, r->ns_p999, r->ns_timer);
    fprintf(out, "  %-20s %" PRIu64, "  with driver calls", r->driver_call_allocs);
    if (r->driver_call_allocs > 0)
      fprintf(out, ": median %.0f ns, longest %.0f ns", r->driver_call_ns_p50, r->driver_call_ns_max);
    fputc('\n', out);
  }
  for (uint64_t i = 0; i < r->num_peers; i++) {
    fprintf(out, "  %-20s %.1f ns; vmpool takes %.2f times as long", r->peers[i].name, r->peers[i].ns_median,
            r->peers[i].ratio_median);
    if (r->has_ratio) fprintf(out, "; %.2f times as long as with few", r->peers[i].ratio_to_few);
    fputc('\n', out);
  }
}

static void text_own(FILE *out, const bench_result *r) {
  if (r->has_scaling)
    fprintf(out, "  %-20s %.2f times the pairs of one thread, by %" PRIu64 " threads\n", "scaling", r->scaling,
            r->threads);
  if (r->has_ratio) {
    fprintf(out, "  %-20s %.2f: %" PRIu64 " live blocks against %" PRIu64 ", with which a pair takes %.1f ns\n",
            "ratio", r->ratio, r->live_many, r->live_few, r->ns_median_few);
    fprintf(out, "  %-20s %.1f bytes from %" PRIu64 " to %" PRIu64 " blocks\n", "metadata per block",
            r->metadata_bytes_per_block, r->live_many / 10, r->live_many);
  }
  if (r->has_log)
    fprintf(out, "  %-20s %.1f ns an event; a pair without the log takes %.1f ns\n", "log", r->ns_per_event,
            r->ns_median_without_log);
  if (r->has_steps)
    fprintf(out, "  %-20s %.3f a step, over %.1f steps from the fourth on\n", "driver calls", r->driver_calls_per_step,
            r->steps);
  if (r->has_share) {
    char text[SIZE_TEXT_BYTES];
    fprintf(out, "  %-20s %.4f of %s requested", "first failure at", r->share_at_first_failure,
            size_text(r->device_bytes, text));
    if (r->num_seeds > 1)
      fprintf(out, ", the median of %" PRIu64 " seeds; the worst %.4f", r->num_seeds, r->share_worst);
    fputc('\n', out);
  } else if (strcmp(r->name, "fill") == 0) {
    fprintf(out, "  %-20s none in %" PRIu64 " requests\n", "first failure", r->pairs);
  }
}

bool bench_report_text(FILE *out, const bench_result *r) {
  fprintf(out, "%s: %" PRIu64 " %s, seed %" PRIu64 "\n", r->name, r->pairs,
          strcmp(r->name, "fill") == 0 ? "requests" : "pairs", r->seed);
  text_time(out, r);
  text_own(out, r);
  line_size(out, "peak requested", r->peak_requested_bytes);
  line_size(out, "peak live", r->peak_live_bytes);
  line_size(out, "peak mapped", r->peak_mapped_bytes);
  if (r->peak_requested_bytes > 0) {
    fprintf(out, "  %-20s %.4f of peak requested\n", "",
            (double)r->peak_mapped_bytes / (double)r->peak_requested_bytes);
  }
  line_size(out, "metadata", r->metadata_bytes);
  fprintf(out, "  %-20s %" PRIu64 " after the set-up\n", "driver calls", r->driver_calls);
  if (r->fault[0] != '\0') fprintf(out, "  %-20s %s\n", "FAULT", r->fault);
  return ferror(out) == 0;
}
