#include "tools/models/train.h"

#include <inttypes.h>
#include <stdlib.h>

#include "tools/common/rng.h"
#include "tools/models/train_step.h"

#define FLOAT_BYTES UINT64_C(4)  // master weights, moments, fp32 logits
#define LOSS_BYTES UINT64_C(4)

void train_gradient(train_step *step, uint64_t elements) {
  step->gradients[step->num_gradients++] = train_alloc(step, elements * TRAIN_ELEMENT_BYTES);
}

// run: what stays the same over all steps.
typedef struct run {
  const train_options *options;
  const train_recipe *recipe;
  trace_list *list;
  uint64_t *parameters;  // elements of each tensor
  size_t num_parameters;
  train_tape *tapes;
  uint32_t *gradients;  // room for one per parameter
} run;

static void persistent(const run *r) {
  for (size_t i = 0; i < r->num_parameters; i++) {
    const uint64_t n = r->parameters[i];
    trace_list_alloc(r->list, TRAIN_ELEMENT_BYTES * n, 0, TRACE_NO_TIME);  // weight
    trace_list_alloc(r->list, FLOAT_BYTES * n, 0, TRACE_NO_TIME);          // master
    trace_list_alloc(r->list, FLOAT_BYTES * n, 0, TRACE_NO_TIME);          // first moment
    trace_list_alloc(r->list, FLOAT_BYTES * n, 0, TRACE_NO_TIME);          // second moment
  }
}

static uint32_t embed(train_step *step) {
  if (!step->model->learned_positions) return train_alloc(step, step->hidden_bytes);
  const uint32_t tokens = train_alloc(step, step->hidden_bytes);
  const uint32_t positions = train_alloc(step, step->seq * step->model->hidden * TRAIN_ELEMENT_BYTES);
  const uint32_t x0 = train_alloc(step, step->hidden_bytes);
  train_free(step, tokens);
  train_free(step, positions);
  return x0;
}

static void free_tape(const run *r, train_step *step, const train_tape *tape) {
  for (size_t i = 0; i < r->recipe->num_kept; i++) train_free(step, tape->kept[i]);
}

static uint32_t forward(const run *r, train_step *step) {
  uint32_t x = embed(step);
  for (uint32_t layer = 0; layer < step->model->layers; layer++) {
    x = r->recipe->forward(step, x, &r->tapes[layer]);
    if (r->options->recompute) free_tape(r, step, &r->tapes[layer]);
  }
  return x;
}

// The head, forward and backward: takes the last residual, leaves the loss, returns the residual's gradient.
static uint32_t head(const run *r, train_step *step, uint32_t residual, uint32_t *out_loss) {
  const uint64_t h = step->model->hidden, v = step->model->vocab;
  const uint32_t norm = train_alloc(step, step->hidden_bytes);
  const uint32_t stats = train_alloc(step, r->recipe->statistic_bytes * step->tokens);
  const uint32_t logits = train_alloc(step, step->tokens * v * TRAIN_ELEMENT_BYTES);
  const uint32_t logits32 = train_alloc(step, step->tokens * v * FLOAT_BYTES);
  *out_loss = train_alloc(step, LOSS_BYTES);
  const uint32_t d_logits32 = train_alloc(step, step->tokens * v * FLOAT_BYTES);
  train_free(step, logits32);
  const uint32_t d_logits = train_alloc(step, step->tokens * v * TRAIN_ELEMENT_BYTES);
  train_free(step, d_logits32);
  train_free(step, logits);
  const uint32_t d_norm = train_alloc(step, step->hidden_bytes);
  train_gradient(step, v * h);
  train_free(step, d_logits);
  train_free(step, norm);
  const uint32_t d_r = train_alloc(step, step->hidden_bytes);
  for (uint32_t i = 0; i < r->recipe->norm_tensors; i++) train_gradient(step, h);
  train_free(step, d_norm);
  train_free(step, stats);
  train_free(step, residual);
  return d_r;
}

static uint32_t backward(const run *r, train_step *step, uint32_t d_r) {
  for (uint32_t layer = step->model->layers; layer-- > 0;) {
    train_tape *tape = &r->tapes[layer];
    if (r->options->recompute) train_free(step, r->recipe->forward(step, tape->input, tape));
    d_r = r->recipe->backward(step, tape, d_r);
  }
  return d_r;
}

static void embedding_gradients(train_step *step) {
  const uint64_t h = step->model->hidden, table = step->model->vocab * h;
  if (step->model->tied_embeddings) {  // added to the output matrix's gradient, then gone
    train_free(step, train_alloc(step, table * TRAIN_ELEMENT_BYTES));
  } else {
    train_gradient(step, table);
  }
  if (step->model->learned_positions) train_gradient(step, step->model->max_positions * h);
}

static void optimizer(const run *r, train_step *step) {
  for (size_t i = 0; i < r->num_parameters; i++) train_free(step, train_alloc(step, FLOAT_BYTES * r->parameters[i]));
  for (size_t i = 0; i < step->num_gradients; i++) train_free(step, step->gradients[i]);
}

static void one_step(const run *r, uint64_t seq) {
  const model_shape *m = r->options->model;
  const uint64_t tokens = r->options->batch * seq;
  train_step step = {.list = r->list,
                     .model = m,
                     .hidden_bytes = tokens * m->hidden * TRAIN_ELEMENT_BYTES,
                     .tokens = tokens,
                     .seq = seq,
                     .row_bytes = tokens * m->q_heads * FLOAT_BYTES,
                     .gradients = r->gradients};
  uint32_t loss;
  const uint32_t residual = forward(r, &step);
  uint32_t d_r = head(r, &step, residual, &loss);
  d_r = backward(r, &step, d_r);
  embedding_gradients(&step);
  train_free(&step, d_r);
  train_free(&step, loss);
  optimizer(r, &step);
}

static void run_steps(const run *r, train_totals *totals) {
  persistent(r);
  totals->persistent_allocs = r->list->num_blocks;
  totals->persistent_bytes = r->list->live_bytes;
  rng random = {.state = r->options->seed};
  for (uint64_t i = 0; i < r->options->steps && !r->list->failed; i++) {
    one_step(r, rng_between(&random, r->options->seq_low, r->options->seq_high));
    if (i == 0) totals->first_step_allocs = r->list->num_blocks - totals->persistent_allocs;
  }
}

static bool check_options(const train_options *o, tool_error *error) {
  if (o->model->family == MODEL_FAMILY_OTHER) {
    return tool_fail(error, "no training step is known for %s; the GPT-2 and Llama families have one", o->model->name);
  }
  if (o->batch < 1 || o->batch > TRAIN_MAX_BATCH) {
    return tool_fail(error, "a batch of %" PRIu64 " is outside 1..%" PRIu64, o->batch, TRAIN_MAX_BATCH);
  }
  if (o->seq_low < 1 || o->seq_low > o->seq_high || o->seq_high > TRAIN_MAX_SEQ) {
    return tool_fail(error, "sequence lengths of %" PRIu64 "..%" PRIu64 " are not a range inside 1..%" PRIu64,
                     o->seq_low, o->seq_high, TRAIN_MAX_SEQ);
  }
  if (o->model->learned_positions && o->seq_high > o->model->max_positions) {
    return tool_fail(error, "%s has %" PRIu32 " positions; a sequence of %" PRIu64 " has no place", o->model->name,
                     o->model->max_positions, o->seq_high);
  }
  return true;
}

bool train_generate(const train_options *options, trace_list *list, train_totals *out_totals, tool_error *error) {
  if (!check_options(options, error)) return false;
  run r = {.options = options,
           .recipe = options->model->family == MODEL_FAMILY_GPT2 ? &train_recipe_gpt2 : &train_recipe_llama,
           .list = list,
           .num_parameters = model_parameter_sizes(options->model, NULL, 0)};
  r.parameters = calloc(r.num_parameters, sizeof(*r.parameters));
  r.gradients = calloc(r.num_parameters, sizeof(*r.gradients));
  r.tapes = calloc(options->model->layers, sizeof(*r.tapes));
  train_totals totals = {0};
  const bool have_memory = r.parameters != NULL && r.gradients != NULL && r.tapes != NULL;
  if (have_memory) {
    model_parameter_sizes(options->model, r.parameters, r.num_parameters);
    run_steps(&r, &totals);
  }
  free(r.parameters);
  free(r.gradients);
  free(r.tapes);
  if (!have_memory || list->failed) return tool_fail(error, "host memory ran out while the steps were generated");
  if (out_totals != NULL) *out_totals = totals;
  return true;
}
