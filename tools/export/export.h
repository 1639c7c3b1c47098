// export.h: a snapshot, and the log up to it, as files that other programs read.
//
// Owns: one function per format. Does not own: reading files and options (tools/vmpool/cmd_export.c), the viewer's
// page.
//
// A log that stands beside a snapshot is used up to the snapshot's position (log.records), so that both say the same.
// What comes from a snapshot has been checked by snapshot_parse as far as that looks; here every other field is read as
// if anybody had written it.
#ifndef VMPOOL_TOOLS_EXPORT_EXPORT_H_
#define VMPOOL_TOOLS_EXPORT_EXPORT_H_

#include <jansson.h>
#include <stdint.h>
#include <stdio.h>

#include "tools/common/error.h"
#include "tools/log/log_file.h"
#include "tools/vmpool/snapshot.h"

typedef enum export_table { EXPORT_BLOCKS = 0, EXPORT_CHUNKS, EXPORT_AREAS, EXPORT_STATS, EXPORT_EVENTS } export_table;

typedef struct export_input {
  const char *name;        // of the snapshot, for messages
  const json_t *document;  // the snapshot as JSON
  const snapshot *state;   // the same, checked
  const log_file *log;     // NULL: none
  uint64_t log_end;        // records of the log below it are used
  export_table table;      // csv
  uint64_t last;           // memory_viz: so many events at most, the latest; UINT64_MAX: all
  uint64_t width;          // svg, png: in pixels
} export_input;

// Each writes to `out` and fails where host memory runs out, or where what it needs is missing (a sentence). Whether
// writing worked is the stream's to say.
bool export_csv(FILE *out, const export_input *in, tool_error *error);
bool export_folded(FILE *out, const export_input *in, tool_error *error);
bool export_memory_viz(FILE *out, const export_input *in, tool_error *error);
bool export_perfetto(FILE *out, const export_input *in, tool_error *error);
bool export_png(FILE *out, const export_input *in, tool_error *error);
bool export_prometheus(FILE *out, const export_input *in, tool_error *error);
bool export_svg(FILE *out, const export_input *in, tool_error *error);

#endif  // VMPOOL_TOOLS_EXPORT_EXPORT_H_
