// The smallest device on which a trace completes: gallop upwards from the bytes that are live at the peak, then bisect.
// Every try is a fresh driver and pool, and ends at the first allocation that fails.
#include "tools/replay/replay_events.h"

typedef struct search {
  trace *t;
  const replay_options *options;
  uint64_t granule;
  tool_error *error;
} search;

// try_device says in *out_fits whether no allocation fails on a device of that size.
static bool try_device(const search *s, uint64_t device_bytes, bool *out_fits, player_counts *out_counts) {
  const player_options options = replay_player_options(s->t, s->options, device_bytes, false);
  player *p;
  uint64_t ops;
  if (!player_open(&p, &options, s->error)) return false;
  const bool good = replay_events(s->t, s->options, p, true, &ops, s->error);
  if (good && out_counts != NULL) {
    player_settle(p);
    *out_counts = *player_progress(p);
  }
  *out_fits = player_progress(p)->failed_allocs == 0;
  player_close(p);
  return good;
}

// Finds fails < fits, both in granules, with a run on each side.
static bool gallop(const search *s, uint64_t start, uint64_t *out_fails, uint64_t *out_fits) {
  bool fits = false;
  uint64_t low = start > 0 ? start - 1 : 0, high = start > 0 ? start : 1;
  if (low > 0) {  // below the peak nothing can fit; running it all the same makes the answer a measured one
    if (!try_device(s, low * s->granule, &fits, NULL)) return false;
    if (fits) return tool_fail(s->error, "a device smaller than the bytes that are live at the peak served the trace");
  }
  for (uint64_t step = 1;; step *= 2) {
    if (!try_device(s, high * s->granule, &fits, NULL)) return false;
    if (fits) break;
    low = high;
    high += step;
    if (high > (UINT64_MAX >> 2) / s->granule)
      return tool_fail(s->error, "no device is large enough, though an unlimited one is");
  }
  *out_fails = low;
  *out_fits = high;
  return true;
}

bool replay_find_capacity(trace *t, const replay_options *options, bool *out_found, uint64_t *out_bytes,
                          tool_error *error) {
  search s = {.t = t, .options = options, .error = error};
  player_counts unlimited;
  bool fits;
  *out_found = false;
  if (!try_device(&s, UINT64_MAX, &fits, &unlimited)) return false;
  if (!fits) return true;
  s.granule = unlimited.stats.granule;
  const uint64_t peak = unlimited.peak_requested_bytes;
  uint64_t low = 0, high = 1;
  if (!gallop(&s, peak / s.granule + (peak % s.granule != 0), &low, &high)) return false;
  while (high - low > 1) {
    const uint64_t middle = low + (high - low) / 2;
    if (!try_device(&s, middle * s.granule, &fits, NULL)) return false;
    if (fits) {
      high = middle;
    } else {
      low = middle;
    }
  }
  *out_found = true;
  *out_bytes = high * s.granule;
  return true;
}
