// shapes.h: the widths of published language models. Public facts; every size that a training step or a KV cache
// needs follows from them.
//
// Owns: the table and the formulas that need nothing but a row of it. Does not own: the order of a step's
// allocations (train.h), requests and their life times (service.h).
#ifndef VMPOOL_TOOLS_MODELS_SHAPES_H_
#define VMPOOL_TOOLS_MODELS_SHAPES_H_

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

// model_family: which recipe of train.h describes the model's training step.
typedef enum model_family {
  MODEL_FAMILY_GPT2 = 0,   // learned positions, biases everywhere, two matrices in the MLP
  MODEL_FAMILY_LLAMA = 1,  // rotary positions, no biases, gated MLP
  MODEL_FAMILY_OTHER = 2,  // mixtures of experts, biases in some matrices only, parallel layers: serving only
} model_family;

typedef struct model_shape {
  const char *name;
  model_family family;
  uint32_t layers, hidden, q_heads, kv_heads, head_dim, ffn_hidden;
  uint32_t vocab, max_positions;
  uint32_t gated_mlp, tied_embeddings, learned_positions, linear_bias;  // 0 or 1
  uint32_t experts;
  uint32_t latent_dims, rope_dims;  // latent attention: what is cached per token and layer; else 0
} model_shape;

extern const model_shape model_shapes[];
extern const size_t model_num_shapes;

// model_find returns the model of that name, or NULL.
const model_shape *model_find(const char *name);

// model_kv_bytes_per_token: KV cache of one token over all layers, with elements of `element_bytes`.
uint64_t model_kv_bytes_per_token(const model_shape *model, uint32_t element_bytes);

// model_parameters counts the parameters of a model of the GPT-2 or Llama family; 0 for others.
uint64_t model_parameters(const model_shape *model);

// model_parameter_sizes lists the elements of each parameter tensor in model order and returns their number, which
// may be above `max` (then the list is cut). 0 for a model of another family.
size_t model_parameter_sizes(const model_shape *model, uint64_t *out_elements, size_t max);

// model_list_names writes the names, separated by ", ".
void model_list_names(FILE *out);

#endif  // VMPOOL_TOOLS_MODELS_SHAPES_H_
