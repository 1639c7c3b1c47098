// latency.h: what the driver's calls cost, measured one by one.
//
// Owns: the cycles that are repeated, their samples, the lines fitted through them. Does not own: how figures are
// shown, the cost file (cost.h).
//
//     chunk   create, map, set_access, unmap, release      of one chunk of 1 granule to 512 MiB
//     run     set_access, unmap                            over 1, 8, 64 mappings of one granule each, in one call
//     range   reserve, address_free                        of 1 granule to 1 TiB
//     event   event_record, stream_wait_event, event_query       info   mem_get_info
//
// A cycle first runs a few times unmeasured; the very first call is kept apart. What a device has no memory for is left
// out with the reason.
#ifndef VMPOOL_TOOLS_PROBE_LATENCY_H_
#define VMPOOL_TOOLS_PROBE_LATENCY_H_

#include "tools/probe/figures.h"
#include "tools/probe/settings.h"

#define PROBE_MAX_FIGURES 96u

typedef struct probe_figure {
  vmp_call call;
  uint64_t bytes;     // of the chunk, the run or the range; 0 where the call has no size
  uint32_t mappings;  // that one call covers; 0 where it covers none
  bool is_run;        // of the cycle `run`
  bool failed;        // a call failed, and not for want of memory
  probe_spread spread;
  char why[PROBE_WHY_BYTES];  // why there are no or fewer samples; ""
} probe_figure;

typedef struct probe_latency {
  probe_figure figures[PROBE_MAX_FIGURES];
  size_t num_figures;
  probe_fit create;        // us, and us per MiB
  probe_fit address_free;  // us, and us per GiB of the range
  probe_fit set_access;    // us, and us per mapping of a run
  probe_fit unmap;
} probe_latency;

// probe_measure measures everything; probe_measure_runs the cycle `run` alone. *out is filled in step by step, so what
// was measured before this process ends for some reason is there.
void probe_measure(probe_rig *rig, const probe_settings *settings, probe_latency *out);
void probe_measure_runs(probe_rig *rig, const probe_settings *settings, probe_latency *out);

#endif  // VMPOOL_TOOLS_PROBE_LATENCY_H_
