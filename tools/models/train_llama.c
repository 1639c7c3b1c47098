// A Llama layer: norm, attention with rotated queries and grouped keys, residual, norm, gated MLP, residual; no biases.
#include "tools/models/train_step.h"

enum { N1, N1_STATS, V, Q_ROTATED, K_ROTATED, ATTENTION, LOG_SUM_EXP, R1, N2, N2_STATS, GATE, UP, ACT, NUM_KEPT };
#define STATISTIC_BYTES UINT64_C(4)  // root mean square, fp32

// widths: bytes of one activation of each width of the model.
typedef struct widths {
  uint64_t hidden, query, key, ffn;
} widths;

static widths widths_of(const train_step *step) {
  const model_shape *m = step->model;
  const uint64_t row = step->tokens * TRAIN_ELEMENT_BYTES;
  return (widths){.hidden = row * m->hidden,
                  .query = row * m->q_heads * m->head_dim,
                  .key = row * m->kv_heads * m->head_dim,
                  .ffn = row * m->ffn_hidden};
}

static uint32_t forward(train_step *step, uint32_t input, train_tape *tape) {
  const widths w = widths_of(step);
  tape->input = input;
  tape->kept[N1] = train_alloc(step, w.hidden);
  tape->kept[N1_STATS] = train_alloc(step, STATISTIC_BYTES * step->tokens);
  const uint32_t q = train_alloc(step, w.query);
  const uint32_t k = train_alloc(step, w.key);
  tape->kept[V] = train_alloc(step, w.key);
  tape->kept[Q_ROTATED] = train_alloc(step, w.query);
  tape->kept[K_ROTATED] = train_alloc(step, w.key);
  train_free(step, q);
  train_free(step, k);
  tape->kept[ATTENTION] = train_alloc(step, w.query);
  tape->kept[LOG_SUM_EXP] = train_alloc(step, step->row_bytes);
  const uint32_t o = train_alloc(step, w.hidden);
  tape->kept[R1] = train_alloc(step, w.hidden);
  train_free(step, o);
  tape->kept[N2] = train_alloc(step, w.hidden);
  tape->kept[N2_STATS] = train_alloc(step, STATISTIC_BYTES * step->tokens);
  tape->kept[GATE] = train_alloc(step, w.ffn);
  tape->kept[UP] = train_alloc(step, w.ffn);
  tape->kept[ACT] = train_alloc(step, w.ffn);
  const uint32_t down = train_alloc(step, w.hidden);
  const uint32_t r2 = train_alloc(step, w.hidden);
  train_free(step, down);
  return r2;
}

// The MLP half: from the gradient of the layer's output to that of r1.
static uint32_t backward_mlp(train_step *step, const train_tape *tape, const widths *w, uint32_t d_r) {
  const uint64_t h = step->model->hidden, f = step->model->ffn_hidden;
  const uint32_t d_act = train_alloc(step, w->ffn);
  train_gradient(step, f * h);
  train_free(step, tape->kept[ACT]);
  const uint32_t d_gate = train_alloc(step, w->ffn);
  const uint32_t d_up = train_alloc(step, w->ffn);
  train_free(step, d_act);
  train_free(step, tape->kept[GATE]);
  train_free(step, tape->kept[UP]);
  const uint32_t d_n2 = train_alloc(step, w->hidden);
  train_gradient(step, h * f);
  train_gradient(step, h * f);
  train_free(step, d_gate);
  train_free(step, d_up);
  train_free(step, tape->kept[N2]);
  const uint32_t d_r1 = train_alloc(step, w->hidden);
  train_gradient(step, h);
  train_free(step, d_n2);
  train_free(step, d_r);
  train_free(step, tape->kept[N2_STATS]);
  train_free(step, tape->kept[R1]);
  return d_r1;
}

// attention_gradients: of the inputs of attention, before and after undoing the rotation.
typedef struct attention_gradients {
  uint32_t q, k, v;
} attention_gradients;

static attention_gradients backward_attention(train_step *step, const train_tape *tape, const widths *w) {
  const uint64_t query = (uint64_t)step->model->q_heads * step->model->head_dim;
  const uint32_t d_attention = train_alloc(step, w->query);
  train_gradient(step, query * step->model->hidden);
  const uint32_t d_q_rotated = train_alloc(step, w->query);
  const uint32_t d_k_rotated = train_alloc(step, w->key);
  const uint32_t d_v = train_alloc(step, w->key);
  const uint32_t delta = train_alloc(step, step->row_bytes);
  train_free(step, d_attention);
  train_free(step, tape->kept[ATTENTION]);
  train_free(step, tape->kept[LOG_SUM_EXP]);
  train_free(step, tape->kept[Q_ROTATED]);
  train_free(step, tape->kept[K_ROTATED]);
  train_free(step, tape->kept[V]);
  train_free(step, delta);
  const uint32_t d_q = train_alloc(step, w->query);
  const uint32_t d_k = train_alloc(step, w->key);
  train_free(step, d_q_rotated);
  train_free(step, d_k_rotated);
  return (attention_gradients){.q = d_q, .k = d_k, .v = d_v};
}

static uint32_t backward(train_step *step, const train_tape *tape, uint32_t d_output) {
  const widths w = widths_of(step);
  const uint64_t h = step->model->hidden;
  const uint64_t query = (uint64_t)step->model->q_heads * step->model->head_dim;
  const uint64_t key = (uint64_t)step->model->kv_heads * step->model->head_dim;
  const uint32_t d_r1 = backward_mlp(step, tape, &w, d_output);
  const attention_gradients d = backward_attention(step, tape, &w);
  const uint32_t d_n1 = train_alloc(step, w.hidden);
  train_gradient(step, h * query);
  train_gradient(step, h * key);
  train_gradient(step, h * key);
  train_free(step, d.q);
  train_free(step, d.k);
  train_free(step, d.v);
  train_free(step, tape->kept[N1]);
  const uint32_t d_input = train_alloc(step, w.hidden);
  train_gradient(step, h);
  train_free(step, d_n1);
  train_free(step, d_r1);
  train_free(step, tape->kept[N1_STATS]);
  train_free(step, tape->input);
  return d_input;
}

const train_recipe train_recipe_llama = {.num_kept = NUM_KEPT,
                                         .statistic_bytes = STATISTIC_BYTES,
                                         .norm_tensors = 1,
                                         .forward = forward,
                                         .backward = backward};
