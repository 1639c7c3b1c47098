// A snapshot made of what a pool shows in shared memory: the sizes and the mapped addresses, no blocks. It needs no
// answer of the process, which may hang.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "tools/vmpool/look.h"

static void fill_sizes(const vmp_pool_stats_data *d, snapshot *out) {
  out->reserved_va = d->reserved_va;
  out->mapped = d->mapped;
  out->live = d->live;
  out->requested = d->requested;
  out->parked = d->parked;
  out->spare = d->spare;
  out->pending = d->pending;
  out->retiring = d->retiring;
  out->broken = d->broken;
  out->largest_free_mapped = d->largest_free_mapped;
  out->suspended = d->suspended;
  out->device_free = d->device_free;
  out->device_total = d->device_total;
}

// fill_document holds what the views look for beyond the sizes.
static bool fill_document(const live_pool *pool, const vmp_pool_stats_data *d, snapshot *out) {
  const struct {
    const char *key;
    uint64_t value;
  } numbers[] = {
      {"reserved_va", d->reserved_va},
      {"mapped", d->mapped},
      {"live", d->live},
      {"requested", d->requested},
      {"parked", d->parked},
      {"spare", d->spare},
      {"pending", d->pending},
      {"retiring", d->retiring},
      {"broken", d->broken},
      {"metadata", d->metadata},
      {"peak_mapped", d->peak_mapped},
      {"peak_live", d->peak_live},
      {"peak_requested", d->peak_requested},
      {"largest_free_mapped", d->largest_free_mapped},
      {"device_free", d->device_free},
      {"device_total", d->device_total},
      {"allocs", d->allocs},
      {"frees", d->frees},
      {"failed_allocs", d->failed_allocs},
      {"blocks", d->blocks},
      {"slab_live", d->slab_live},
      {"mid_live", d->mid_live},
      {"buddy_live", d->buddy_live},
      {"region_live", d->region_live},
      {"chunks", d->chunks},
      {"takes", d->takes},
      {"suspended", d->suspended},
  };
  json_t *stats = json_object();
  for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
    (void)json_object_set_new(stats, numbers[i].key, json_integer((json_int_t)numbers[i].value));
  }
  if (json_object_size(stats) != sizeof(numbers) / sizeof(numbers[0])) {
    json_decref(stats);
    return false;
  }
  if (d->hard_limit != UINT64_MAX)
    (void)json_object_set_new(stats, "hard_limit", json_integer((json_int_t)d->hard_limit));
  out->document = json_pack("{s:{s:I, s:s}, s:o}", "pool", "process", (json_int_t)pool->header.process, "trigger",
                            "shared memory", "stats", stats);
  return out->document != NULL;
}

// fill_range takes the runs of one reservation; false: host memory ran out.
static bool fill_range(const vmp_live_copy *copy, const vmp_live_range *from, snapshot_range *out) {
  static const snapshot_state states[] = {SNAPSHOT_UNMAPPED, SNAPSHOT_MAPPED,     SNAPSHOT_PARKED,
                                          SNAPSHOT_RETIRING, SNAPSHOT_IN_TRANSIT, SNAPSHOT_BROKEN};
  *out = (snapshot_range){.base = from->address, .bytes = from->bytes};
  out->runs = calloc(copy->num_runs + 1, sizeof(*out->runs));
  out->blocks = calloc(1, sizeof(*out->blocks));
  if (out->runs == NULL || out->blocks == NULL) return false;
  uint64_t end = 0;
  for (uint32_t i = 0; i < copy->num_runs; i++) {
    const vmp_live_run *run = &copy->runs[i];
    if (run->address < from->address || run->address - from->address >= from->bytes) continue;
    const uint64_t offset = run->address - from->address;
    if (offset < end || run->bytes == 0 || run->bytes > from->bytes - offset || run->state > 5) continue;  // can't be
    out->runs[out->num_runs++] = (snapshot_run){offset, run->bytes, states[run->state]};
    end = offset + run->bytes;
  }
  return true;
}

static bool fill(const live_pool *pool, const vmp_live_copy *copy, snapshot *s) {
  snprintf(s->pool_name, sizeof(s->pool_name), "%.63s", pool->header.pool_name);
  snprintf(s->driver, sizeof(s->driver), "%.15s", pool->header.driver);
  s->device = (uint64_t)(pool->header.device < 0 ? 0 : pool->header.device);
  s->granule = pool->header.granule_bytes;
  fill_sizes(&copy->stats, s);
  s->ranges = calloc(copy->num_ranges + 1, sizeof(*s->ranges));
  if (s->ranges == NULL) return false;
  for (uint32_t r = 0; r < copy->num_ranges; r++) {
    const vmp_live_range *range = &copy->ranges[r];
    if (range->bytes == 0 || range->bytes > UINT64_C(1) << 60) continue;
    s->num_ranges++;
    if (!fill_range(copy, range, &s->ranges[s->num_ranges - 1])) return false;
  }
  return fill_document(pool, &copy->stats, s);
}

bool look_live(snapshot *out, const char *folder, const live_pool *pool, tool_error *error) {
  vmp_live_copy *copy = NULL;
  snapshot s = {0};
  const uint64_t granule = pool->header.granule_bytes;
  if (granule == 0 || (granule & (granule - 1)) != 0 || granule > UINT64_C(1) << 40) {
    return tool_fail(error, "the pool %s shows an impossible granule", pool->object);
  }
  if (!live_read(folder, pool, &copy, error)) return false;
  const bool good = fill(pool, copy, &s);
  free(copy);
  if (good) {
    *out = s;
  } else {
    snapshot_destroy(&s);
    tool_fail(error, "host memory ran out");
  }
  return good;
}
