// sizes.h: whether few large sizes make up most of what a trace asks for: a KV cache's blocks, say.
#ifndef VMPOOL_TOOLS_ADVISE_SIZES_H_
#define VMPOOL_TOOLS_ADVISE_SIZES_H_

#include "tools/trace/trace.h"

// sizes_frequent writes "classes:2MiB+6MiB" into `text`: the sizes, rounded up to granules, of at least a granule, each
// of which makes up a tenth of all bytes asked for, where together they make up half; else "". At most six. False when
// host memory runs out. Rewinds the trace.
bool sizes_frequent(trace *t, uint64_t granule_bytes, char *text, size_t text_bytes);

#endif  // VMPOOL_TOOLS_ADVISE_SIZES_H_
