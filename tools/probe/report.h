// report.h: what a probe has found, for people and as JSON.
#ifndef VMPOOL_TOOLS_PROBE_REPORT_H_
#define VMPOOL_TOOLS_PROBE_REPORT_H_

#include <stdio.h>

#include "tools/probe/probe.h"

// probe_report_text writes devices, figures, the cost table and the questions, each question one line: number,
// question, answer, evidence.
void probe_report_text(FILE *out, const probe_result *result);

// probe_report_json writes the same as one JSON object. False: host memory ran out.
bool probe_report_json(FILE *out, const probe_result *result);

#endif  // VMPOOL_TOOLS_PROBE_REPORT_H_
