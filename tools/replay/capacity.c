// The smallest device on which a trace completes: gallop upwards from the bytes that are live at the peak, then bisect.
// Every try is a fresh driver and pool, and ends at the first allocation that fails.
#include "tools/replay/replay_events.h"

// Finds fails < fits, both in granules, with a run on each side.
static bool gallop(const replay_search *s, uint64_t start, uint64_t *out_fails, uint64_t *out_fits, tool_error *error) {
  bool fits = false;
  uint64_t low = start > 0 ? start - 1 : 0, high = start > 0 ? start : 1;
  if (low > 0) {  // below the peak nothing can fit; running it all the same makes the answer a measured one
    if (!s->try_device(s->self, low * s->granule_bytes, &fits, error)) return false;
    if (fits) return tool_fail(error, "a device smaller than the bytes that are live at the peak served the trace");
  }
  for (uint64_t step = 1;; step *= 2) {
    if (!s->try_device(s->self, high * s->granule_bytes, &fits, error)) return false;
    if (fits) break;
    low = high;
    high += step;
    if (high > (UINT64_MAX >> 2) / s->granule_bytes)
      return tool_fail(error, "no device is large enough, though an unlimited one is");
  }
  *out_fails = low;
  *out_fits = high;
  return true;
}

bool replay_search_device(const replay_search *search, uint64_t peak_bytes, uint64_t *out_bytes, tool_error *error) {
  const uint64_t granule = search->granule_bytes;
  uint64_t low = 0, high = 1;
  bool fits;
  if (!gallop(search, peak_bytes / granule + (peak_bytes % granule != 0), &low, &high, error)) return false;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (!search->try_device(search->self, middle * granule, &fits, error)) return false;
    if (fits) {
      high = middle;
    } else {
      low = middle;
    }
  }
  *out_bytes = high * granule;
  return true;
}

// tries: a pool on devices of several sizes.
typedef struct tries {
  trace *t;
  const replay_options *options;
  player_counts counts;  // of the try on an unlimited device
} tries;

static bool try_device(void *self, uint64_t device_bytes, bool *out_fits, tool_error *error) {
  tries *s = self;
  const player_options options = replay_player_options(s->t, s->options, device_bytes, false);
  player *p;
  uint64_t ops;
  if (!player_open(&p, &options, error)) return false;
  const replay_sink sink = replay_player_sink(p);
  const bool good = replay_events(s->t, s->options, &sink, true, &ops, error);
  *out_fits = player_progress(p)->failed_allocs == 0;
  if (good && *out_fits && device_bytes == UINT64_MAX) {
    player_settle(p);
    s->counts = *player_progress(p);
  }
  player_close(p);
  return good;
}

bool replay_find_capacity(trace *t, const replay_options *options, bool *out_found, uint64_t *out_bytes,
                          tool_error *error) {
  tries s = {.t = t, .options = options};
  bool fits;
  *out_found = false;
  if (!try_device(&s, UINT64_MAX, &fits, error)) return false;
  if (!fits) return true;
  const replay_search search = {&s, try_device, s.counts.stats.granule};
  if (!replay_search_device(&search, s.counts.peak_requested_bytes, out_bytes, error)) return false;
  *out_found = true;
  return true;
}
