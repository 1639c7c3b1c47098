// report.h: a benchmark's figures, as one JSON document and as text.
#ifndef VMPOOL_TOOLS_BENCH_REPORT_H_
#define VMPOOL_TOOLS_BENCH_REPORT_H_

#include <stdio.h>

#include "tools/bench/bench.h"

// bench_report_json writes the document with a line end; false when writing fails or host memory runs out. Figures that
// the benchmark doesn't have are left out; share_at_first_failure is null where nothing failed.
bool bench_report_json(FILE *out, const bench_result *result);

// bench_report_text writes the figures for people; false when writing fails.
bool bench_report_text(FILE *out, const bench_result *result);

#endif  // VMPOOL_TOOLS_BENCH_REPORT_H_
