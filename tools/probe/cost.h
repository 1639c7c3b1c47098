// cost.h: measured figures as a cost table of the host driver's virtual clock.
//
// Owns: which line of the table follows from which figure. The format is that of the host driver's option cost_file:
// "name microseconds", comments behind '#'. What was not measured has no line: the driver's default holds.
#ifndef VMPOOL_TOOLS_PROBE_COST_H_
#define VMPOOL_TOOLS_PROBE_COST_H_

#include <stdio.h>

#include "tools/probe/facts.h"
#include "tools/probe/latency.h"

#define PROBE_COST_LINES 15

typedef struct probe_cost_line {
  const char *name;  // as the host driver reads it
  bool known;
  double us;
} probe_cost_line;

// probe_cost_of works out the table: for a call of fixed cost the median of the medians of its sizes, for create,
// address-free, set-access and unmap both parts of the line fitted through theirs. Where only one size of a chunk or a
// range was measured, all of it is the call's.
void probe_cost_of(const probe_latency *latency, probe_cost_line lines[PROBE_COST_LINES]);

// probe_cost_write writes the file, with what it was measured on. `device` is the ordinal.
void probe_cost_write(FILE *out, const probe_facts *facts, int device, const probe_latency *latency);

#endif  // VMPOOL_TOOLS_PROBE_COST_H_
