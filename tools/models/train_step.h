// train_step.h: what the recipes of one training step share. Internal to tools/models.
//
// A recipe is two functions per family: a layer's forward pass, which fills in its tape, and its backward pass, which
// empties it. Head, optimizer and recomputation are the same for all (train.c).
#ifndef VMPOOL_TOOLS_MODELS_TRAIN_STEP_H_
#define VMPOOL_TOOLS_MODELS_TRAIN_STEP_H_

#include "tools/models/shapes.h"
#include "tools/trace/event.h"

// train_tape: the tensors that a layer keeps from its forward pass for its backward pass.
#define TRAIN_TAPE_MAX 16
typedef struct train_tape {
  uint32_t input;                 // the residual stream that enters the layer
  uint32_t kept[TRAIN_TAPE_MAX];  // indexed by the family's own enumeration
} train_tape;

typedef struct train_step {
  trace_list *list;
  const model_shape *model;
  uint64_t hidden_bytes;  // N * h * e: one activation of the residual stream's width
  uint64_t tokens;        // N = batch * sequence
  uint64_t seq;
  uint64_t row_bytes;  // b * a * s * 4: one fp32 number per token and head
  uint32_t *gradients;
  size_t num_gradients;  // kept to the end of the step
} train_step;

#define TRAIN_ELEMENT_BYTES UINT64_C(2)  // bf16

static inline uint32_t train_alloc(train_step *step, uint64_t bytes) {
  return trace_list_alloc(step->list, bytes, 0, TRACE_NO_TIME);
}
static inline void train_free(train_step *step, uint32_t block) { trace_list_free(step->list, block, TRACE_NO_TIME); }

// train_gradient allocates the gradient of a tensor of that many elements; it lives to the end of the step.
void train_gradient(train_step *step, uint64_t elements);

// A layer's passes. forward returns the layer's output; backward takes the gradient of its output, frees it with the
// tape and the layer's input, and returns the gradient of its input.
typedef struct train_recipe {
  size_t num_kept;
  uint64_t statistic_bytes;  // of one norm, per token
  uint32_t norm_tensors;     // gradients of one norm: weight, and bias where there is one
  uint32_t (*forward)(train_step *step, uint32_t input, train_tape *out_tape);
  uint32_t (*backward)(train_step *step, const train_tape *tape, uint32_t d_output);
} train_recipe;

extern const train_recipe train_recipe_gpt2;
extern const train_recipe train_recipe_llama;

#endif  // VMPOOL_TOOLS_MODELS_TRAIN_STEP_H_
