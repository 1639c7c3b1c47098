// model_internal.h: what the two models share. Internal to tools/compare.
#ifndef VMPOOL_TOOLS_COMPARE_MODEL_INTERNAL_H_
#define VMPOOL_TOOLS_COMPARE_MODEL_INTERNAL_H_

#include "tools/compare/heap.h"
#include "tools/compare/model.h"

#define MODEL_STEP_BYTES UINT64_C(512)           // requests are rounded up to it
#define MODEL_SMALL_BYTES (UINT64_C(1) << 20)    // requests up to it are small
#define MODEL_GRANULE_BYTES (UINT64_C(2) << 20)  // a small segment or handle; large segments are multiples of it
#define MODEL_BUFFER_BYTES (UINT64_C(20) << 20)  // a segment for requests below MODEL_LARGE_BYTES; a large handle
#define MODEL_LARGE_BYTES (UINT64_C(10) << 20)   // requests from it on get segments of their own size

typedef enum model_class { MODEL_SMALL = 0, MODEL_LARGE = 1, MODEL_NUM_CLASSES } model_class;

// model_space: the blocks of one stream and size class.
typedef struct model_space {
  heap_list list;
  model_class class;
  heap_block *first;  // expandable: the range's first block; NULL before the first allocation
} model_space;

struct model {
  model_kind kind;
  uint64_t device_bytes;
  uint32_t num_streams;
  model_cost cost;
  model_counts counts;
  heap heap;
  uint64_t next_address;  // where the next segment begins
  model_space *spaces;    // num_streams x MODEL_NUM_CLASSES
  heap_block **blocks;    // by the trace's number; NULL where not live
  uint64_t *block_bytes;  // as requested
  size_t num_blocks;
};

// model_hold takes bytes of the device, or returns false where they don't fit.
bool model_hold(model *m, uint64_t bytes);
void model_give_back(model *m, uint64_t bytes);

// The models. *_alloc returns the block, or NULL where the device is too small (or host memory ran out: heap.failed).
// *_trim gives back what is free.
heap_block *caching_alloc(model *m, model_space *space, uint64_t bytes);
void caching_trim(model *m);
heap_block *expandable_alloc(model *m, model_space *space, uint64_t bytes);
void expandable_trim(model *m);

#endif  // VMPOOL_TOOLS_COMPARE_MODEL_INTERNAL_H_
