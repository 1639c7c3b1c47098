// model.h: what other allocators would have done with the same requests: bookkeeping models, which hold no memory and
// call no driver, but count what they would have held and called.
//
// Owns: the two models' common face, the device's memory, the counting of driver calls. Does not own: the trace
// (tools/replay). Both models are written from descriptions of PyTorch's allocator; none of its code is used.
//
//   caching     a segment from the driver's allocator for what no cached block serves: 2 MiB for requests up to 1 MiB,
//               20 MiB for those below 10 MiB, else the request rounded up to 2 MiB. Best fit by stream and size class,
//               free neighbours merge, whole free segments go back when the driver is out of memory.
//   expandable  one range of addresses for each stream and size class; the lowest hole of it gets memory in handles of
//               20 MiB (2 MiB for requests up to 1 MiB), each with a mapping of its own. Handles that lie whole in free
//               blocks go back when the driver is out of memory.
//
// Streams have lists of their own, and never use each other's free blocks. Nobody waits: memory that is given back is
// given back at once.
#ifndef VMPOOL_TOOLS_COMPARE_MODEL_H_
#define VMPOOL_TOOLS_COMPARE_MODEL_H_

#include "tools/compare/cost.h"

typedef enum model_kind { MODEL_CACHING = 0, MODEL_EXPANDABLE = 1, MODEL_NUM_KINDS } model_kind;

typedef struct model model;

// model_name returns "caching" or "expandable".
const char *model_name(model_kind kind);

// model_open makes a model on a device of `device_bytes` (UINT64_MAX: unlimited); NULL when host memory runs out. The
// cost table is copied. model_close frees it; NULL is fine.
model *model_open(model_kind kind, uint64_t device_bytes, uint32_t num_streams, const model_cost *cost);
void model_close(model *m);

// model_alloc and model_free perform one event of a trace: `block` is its number (trace/event.h). An allocation for
// which the device is too small is counted, and its free skipped. False when host memory runs out.
bool model_alloc(model *m, uint32_t block, uint64_t bytes, uint16_t stream);
void model_free(model *m, uint32_t block);

// model_intrude allocates a block that nobody will free. model_renumber ends a repetition of the trace: live blocks
// stay so, and their numbers are free again.
bool model_intrude(model *m, uint64_t bytes, uint16_t stream);
void model_renumber(model *m);

typedef struct model_counts {
  uint64_t failed_allocs;
  uint64_t requested_bytes, peak_requested_bytes;
  uint64_t mapped_bytes, peak_mapped_bytes;  // physical memory held
  model_calls calls;
  double modelled_us;  // of the calls, by the cost table
} model_counts;
const model_counts *model_progress(const model *m);

#endif  // VMPOOL_TOOLS_COMPARE_MODEL_H_
