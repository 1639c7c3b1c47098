// report.h: a replay's figures, as one JSON document and as text.
#ifndef VMPOOL_TOOLS_REPLAY_REPORT_H_
#define VMPOOL_TOOLS_REPLAY_REPORT_H_

#include <stdio.h>

#include "tools/replay/replay.h"

// report_json writes the document with a line end; false when writing fails or host memory runs out.
bool report_json(FILE *out, const char *trace_name, const replay_result *result);

// report_text writes the figures for people; false when writing fails.
bool report_text(FILE *out, const char *trace_name, const trace *t, const replay_result *result);

#endif  // VMPOOL_TOOLS_REPLAY_REPORT_H_
