// A GPT-2 layer: norm, attention, residual, norm, MLP of four times the width, residual; biases everywhere.
#include "tools/models/train_step.h"

enum { LN1, LN1_STATS, QKV, ATTENTION, LOG_SUM_EXP, R1, LN2, LN2_STATS, FC, GELU, NUM_KEPT };
#define STATISTIC_BYTES UINT64_C(8)  // mean and deviation, fp32

static uint32_t forward(train_step *step, uint32_t input, train_tape *tape) {
  const uint64_t wide = step->hidden_bytes, stats = STATISTIC_BYTES * step->tokens;
  tape->input = input;
  tape->kept[LN1] = train_alloc(step, wide);
  tape->kept[LN1_STATS] = train_alloc(step, stats);
  tape->kept[QKV] = train_alloc(step, 3 * wide);
  tape->kept[ATTENTION] = train_alloc(step, wide);
  tape->kept[LOG_SUM_EXP] = train_alloc(step, step->row_bytes);
  const uint32_t projection = train_alloc(step, wide);
  tape->kept[R1] = train_alloc(step, wide);
  train_free(step, projection);
  tape->kept[LN2] = train_alloc(step, wide);
  tape->kept[LN2_STATS] = train_alloc(step, stats);
  tape->kept[FC] = train_alloc(step, 4 * wide);
  tape->kept[GELU] = train_alloc(step, 4 * wide);
  const uint32_t projection2 = train_alloc(step, wide);
  const uint32_t r2 = train_alloc(step, wide);
  train_free(step, projection2);
  return r2;
}

// The MLP half: from the gradient of the layer's output to that of r1.
static uint32_t backward_mlp(train_step *step, const train_tape *tape, uint32_t d_r) {
  const uint64_t h = step->model->hidden, wide = step->hidden_bytes;
  const uint32_t d_gelu = train_alloc(step, 4 * wide);
  train_gradient(step, 4 * h * h);
  train_gradient(step, h);
  train_free(step, tape->kept[GELU]);
  const uint32_t d_fc = train_alloc(step, 4 * wide);
  train_free(step, d_gelu);
  train_free(step, tape->kept[FC]);
  const uint32_t d_ln2 = train_alloc(step, wide);
  train_gradient(step, 4 * h * h);
  train_gradient(step, 4 * h);
  train_free(step, d_fc);
  train_free(step, tape->kept[LN2]);
  const uint32_t d_r1 = train_alloc(step, wide);
  train_gradient(step, h);
  train_gradient(step, h);
  train_free(step, d_ln2);
  train_free(step, d_r);
  train_free(step, tape->kept[LN2_STATS]);
  train_free(step, tape->kept[R1]);
  return d_r1;
}

static uint32_t backward(train_step *step, const train_tape *tape, uint32_t d_output) {
  const uint64_t h = step->model->hidden, wide = step->hidden_bytes;
  const uint32_t d_r1 = backward_mlp(step, tape, d_output);
  const uint32_t d_attention = train_alloc(step, wide);
  train_gradient(step, h * h);
  train_gradient(step, h);
  const uint32_t d_qkv = train_alloc(step, 3 * wide);
  const uint32_t delta = train_alloc(step, step->row_bytes);
  train_free(step, d_attention);
  train_free(step, tape->kept[ATTENTION]);
  train_free(step, tape->kept[LOG_SUM_EXP]);
  train_free(step, tape->kept[QKV]);
  train_free(step, delta);
  const uint32_t d_ln1 = train_alloc(step, wide);
  train_gradient(step, 3 * h * h);
  train_gradient(step, 3 * h);
  train_free(step, d_qkv);
  train_free(step, tape->kept[LN1]);
  const uint32_t d_input = train_alloc(step, wide);
  train_gradient(step, h);
  train_gradient(step, h);
  train_free(step, d_ln1);
  train_free(step, d_r1);
  train_free(step, tape->kept[LN1_STATS]);
  train_free(step, tape->input);
  return d_input;
}

const train_recipe train_recipe_gpt2 = {.num_kept = NUM_KEPT,
                                        .statistic_bytes = STATISTIC_BYTES,
                                        .norm_tensors = 2,
                                        .forward = forward,
                                        .backward = backward};
