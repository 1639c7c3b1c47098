// report.h: advice as text and as JSON.
#ifndef VMPOOL_TOOLS_ADVISE_REPORT_H_
#define VMPOOL_TOOLS_ADVISE_REPORT_H_

#include <stdio.h>

#include "tools/advise/advise.h"

void advise_report_text(FILE *out, const char *name, const trace *t, const advise_options *options,
                        const advise_result *result);
void advise_report_json(FILE *out, const char *name, const advise_options *options, const advise_result *result);

#endif  // VMPOOL_TOOLS_ADVISE_REPORT_H_
