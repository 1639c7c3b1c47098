#include "tools/models/shapes.h"

#include <stdbool.h>
#include <string.h>

const model_shape model_shapes[] = {
    // name, family, layers, hidden, q_heads, kv_heads, head_dim, ffn_hidden, vocab, max_positions,
    // gated_mlp, tied_embeddings, learned_positions, linear_bias, experts, latent_dims, rope_dims
    {"gpt2", MODEL_FAMILY_GPT2, 12, 768, 12, 12, 64, 3072, 50257, 1024, 0, 1, 1, 1, 1, 0, 0},
    {"gpt2-medium", MODEL_FAMILY_GPT2, 24, 1024, 16, 16, 64, 4096, 50257, 1024, 0, 1, 1, 1, 1, 0, 0},
    {"gpt2-large", MODEL_FAMILY_GPT2, 36, 1280, 20, 20, 64, 5120, 50257, 1024, 0, 1, 1, 1, 1, 0, 0},
    {"gpt2-xl", MODEL_FAMILY_GPT2, 48, 1600, 25, 25, 64, 6400, 50257, 1024, 0, 1, 1, 1, 1, 0, 0},
    {"phi-2", MODEL_FAMILY_OTHER, 32, 2560, 32, 32, 80, 10240, 51200, 2048, 0, 0, 0, 1, 1, 0, 0},
    {"llama-2-7b", MODEL_FAMILY_LLAMA, 32, 4096, 32, 32, 128, 11008, 32000, 4096, 1, 0, 0, 0, 1, 0, 0},
    {"llama-2-13b", MODEL_FAMILY_LLAMA, 40, 5120, 40, 40, 128, 13824, 32000, 4096, 1, 0, 0, 0, 1, 0, 0},
    {"llama-2-70b", MODEL_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 32000, 4096, 1, 0, 0, 0, 1, 0, 0},
    {"codellama-34b", MODEL_FAMILY_LLAMA, 48, 8192, 64, 8, 128, 22016, 32000, 16384, 1, 0, 0, 0, 1, 0, 0},
    {"llama-3-8b", MODEL_FAMILY_LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 8192, 1, 0, 0, 0, 1, 0, 0},
    {"llama-3-70b", MODEL_FAMILY_LLAMA, 80, 8192, 64, 8, 128, 28672, 128256, 8192, 1, 0, 0, 0, 1, 0, 0},
    {"llama-3.2-3b", MODEL_FAMILY_LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, 1, 1, 0, 0, 1, 0, 0},
    {"mistral-7b", MODEL_FAMILY_LLAMA, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1, 0, 0, 0, 1, 0, 0},
    {"mixtral-8x7b", MODEL_FAMILY_OTHER, 32, 4096, 32, 8, 128, 14336, 32000, 32768, 1, 0, 0, 0, 8, 0, 0},
    {"qwen2-7b", MODEL_FAMILY_OTHER, 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1, 0, 0, 0, 1, 0, 0},
    {"qwen-72b", MODEL_FAMILY_OTHER, 80, 8192, 64, 64, 128, 24576, 152064, 32768, 1, 0, 0, 0, 1, 0, 0},
    {"internlm-20b", MODEL_FAMILY_LLAMA, 60, 5120, 40, 40, 128, 13824, 103168, 4096, 1, 0, 0, 0, 1, 0, 0},
    {"deepseek-v3", MODEL_FAMILY_OTHER, 61, 7168, 128, 128, 192, 18432, 129280, 163840, 1, 0, 0, 0, 256, 512, 64},
};
const size_t model_num_shapes = sizeof(model_shapes) / sizeof(model_shapes[0]);

const model_shape *model_find(const char *name) {
  for (size_t i = 0; i < model_num_shapes; i++) {
    if (strcmp(model_shapes[i].name, name) == 0) return &model_shapes[i];
  }
  return NULL;
}

uint64_t model_kv_bytes_per_token(const model_shape *model, uint32_t element_bytes) {
  const uint64_t per_layer = model->latent_dims != 0 ? (uint64_t)model->latent_dims + model->rope_dims
                                                     : UINT64_C(2) * model->kv_heads * model->head_dim;
  return per_layer * model->layers * element_bytes;
}

// tensor_sink: a cut-off list of tensor sizes.
typedef struct tensor_sink {
  uint64_t *elements;
  size_t count, max;
} tensor_sink;

static void put(tensor_sink *sink, uint64_t elements) {
  if (sink->count < sink->max) sink->elements[sink->count] = elements;
  sink->count++;
}

static void put_gpt2(tensor_sink *sink, const model_shape *m) {
  const uint64_t h = m->hidden;
  put(sink, m->vocab * h);
  put(sink, m->max_positions * h);
  for (uint32_t layer = 0; layer < m->layers; layer++) {
    const uint64_t sizes[] = {h, h, 3 * h * h, 3 * h, h * h, h, h, h, 4 * h * h, 4 * h, 4 * h * h, h};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) put(sink, sizes[i]);
  }
  put(sink, h);
  put(sink, h);
}

static void put_llama(tensor_sink *sink, const model_shape *m) {
  const uint64_t h = m->hidden, f = m->ffn_hidden;
  const uint64_t query = (uint64_t)m->q_heads * m->head_dim, key = (uint64_t)m->kv_heads * m->head_dim;
  put(sink, m->vocab * h);
  for (uint32_t layer = 0; layer < m->layers; layer++) {
    const uint64_t sizes[] = {h, h * query, h * key, h * key, query * h, h, h * f, h * f, f * h};
    for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) put(sink, sizes[i]);
  }
  put(sink, h);
  if (!m->tied_embeddings) put(sink, m->vocab * h);
}

size_t model_parameter_sizes(const model_shape *model, uint64_t *out_elements, size_t max) {
  tensor_sink sink = {.elements = out_elements, .max = max};
  if (model->family == MODEL_FAMILY_GPT2) put_gpt2(&sink, model);
  if (model->family == MODEL_FAMILY_LLAMA) put_llama(&sink, model);
  return sink.count;
}

uint64_t model_parameters(const model_shape *model) {
  uint64_t elements[1024], total = 0;
  const size_t count = model_parameter_sizes(model, elements, 1024);
  for (size_t i = 0; i < count && i < 1024; i++) total += elements[i];
  return total;
}

void model_list_names(FILE *out) {
  for (size_t i = 0; i < model_num_shapes; i++) fprintf(out, "%s%s", i == 0 ? "" : ", ", model_shapes[i].name);
}
