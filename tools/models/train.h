// train.h: the allocations of training steps, derived from a model's shape.
//
// Owns: the order and the life times of a step's tensors (mixed precision with bf16 activations and fp32 master
// weights and moments, Adam, attention without the score matrix, one device). Every size follows from the shape;
// nothing is measured. A real framework has more small temporaries; these are the tensors that dominate.
//
//     persistent | step 0: forward, head, backward, optimizer, gradients freed | step 1 | ...
//                '-- at the end of every step exactly the persistent tensors are live
#ifndef VMPOOL_TOOLS_MODELS_TRAIN_H_
#define VMPOOL_TOOLS_MODELS_TRAIN_H_

#include "tools/common/error.h"
#include "tools/models/shapes.h"
#include "tools/trace/event.h"

#define TRAIN_MAX_BATCH (UINT64_C(1) << 16)
#define TRAIN_MAX_SEQ (UINT64_C(1) << 24)

typedef struct train_options {
  const model_shape *model;
  uint64_t batch;
  uint64_t seq_low, seq_high;  // each step's sequence length is drawn uniformly from this range
  uint64_t steps;
  uint64_t seed;
  bool recompute;  // keep only each layer's input, and run its forward pass again before its backward pass
} train_options;

typedef struct train_totals {
  uint64_t persistent_allocs, persistent_bytes;
  uint64_t first_step_allocs;  // without the persistent ones
} train_totals;

// train_generate appends the events to `list` (the peak is then list->peak_bytes). *out_totals may be NULL. Fails for a
// model without a recipe, for values outside their range, and when host memory runs out.
bool train_generate(const train_options *options, trace_list *list, train_totals *out_totals, tool_error *error);

#endif  // VMPOOL_TOOLS_MODELS_TRAIN_H_
