#include "tools/models/shapes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest.h"

typedef struct kv_case {
  const char *name;
  uint64_t bytes_per_token;
} kv_case;
static const char *kv_name(const kv_case *c) { return c->name; }
static const kv_case kv_cases[] = {
    {"llama-2-7b", 524288}, {"llama-2-13b", 819200}, {"llama-2-70b", 327680},  {"llama-3-70b", 327680},
    {"llama-3-8b", 131072}, {"mistral-7b", 131072},  {"mixtral-8x7b", 131072}, {"qwen2-7b", 57344},
    {"qwen-72b", 2621440},  {"gpt2-xl", 307200},     {"deepseek-v3", 70272},
};

VTEST_P(Shapes, KvBytesPerToken, kv_case, kv_cases, kv_name) {
  const model_shape *m = model_find(p->name);
  VASSERT_NOT_NULL(m);
  VEXPECT_UINT_EQ(model_kv_bytes_per_token(m, 2), p->bytes_per_token);
  VEXPECT_UINT_EQ(model_kv_bytes_per_token(m, 1), p->bytes_per_token / 2);
}

// Published totals.
VTEST(Shapes, Parameters) {
  VEXPECT_UINT_EQ(model_parameters(model_find("gpt2")), 124439808);
  VEXPECT_UINT_EQ(model_parameters(model_find("gpt2-xl")), 1557611200);
  VEXPECT_UINT_EQ(model_parameters(model_find("llama-2-7b")), 6738415616);
  VEXPECT_UINT_EQ(model_parameters(model_find("llama-3-8b")), 8030261248);
  VEXPECT_UINT_EQ(model_parameters(model_find("llama-3-70b")), 70553706496);
  VEXPECT_UINT_EQ(model_parameters(model_find("deepseek-v3")), 0);
  VEXPECT_NULL(model_find("gpt-5"));
}

// row: one line of the stored table, cut at commas outside quotes.
static size_t cut_row(char *line, char **fields, size_t max) {
  size_t count = 0;
  bool quoted = false;
  char *start = line;
  for (char *c = line;; c++) {
    if (*c == '"') quoted = !quoted;
    if (*c != '\0' && *c != '\n' && (*c != ',' || quoted)) continue;
    const bool end = *c != ',';
    *c = '\0';
    if (count < max) fields[count++] = start;
    start = c + 1;
    if (end) return count;
  }
}

static void compare_row(char **f) {
  VTRACE("model %s", f[0]);
  const model_shape *m = model_find(f[0]);
  VASSERT_NOT_NULL(m);
  const uint32_t ours[] = {m->layers,        m->hidden,          m->q_heads,           m->kv_heads,
                           m->head_dim,      m->ffn_hidden,      m->gated_mlp,         m->vocab,
                           m->max_positions, m->tied_embeddings, m->learned_positions, m->linear_bias,
                           m->experts};
  for (size_t i = 0; i < sizeof(ours) / sizeof(ours[0]); i++) VEXPECT_UINT_EQ(ours[i], strtoull(f[1 + i], NULL, 10));
  char latent[32] = "";
  if (m->latent_dims != 0) snprintf(latent, sizeof(latent), "%u+%u", m->latent_dims, m->rope_dims);
  VEXPECT_STR_EQ(latent, f[14]);
  VEXPECT_UINT_EQ(model_kv_bytes_per_token(m, 2), strtoull(f[15], NULL, 10));
  if (m->family != MODEL_FAMILY_OTHER) VEXPECT_UINT_EQ(model_parameters(m), strtoull(f[16], NULL, 10));
}

VTEST(Shapes, TableEqualsTheStoredOne) {
  if (vtest_traces_dir() == NULL) VSKIP("VMPOOL_TRACES is not set");
  char path[1024], line[1024];
  snprintf(path, sizeof(path), "%s/model_shapes/model_shapes.csv", vtest_traces_dir());
  FILE *file = fopen(path, "r");
  VASSERT_NOT_NULL(file);
  size_t rows = 0;
  VEXPECT_NOT_NULL(fgets(line, sizeof(line), file));  // the header
  while (fgets(line, sizeof(line), file) != NULL) {
    char *fields[18] = {0};
    VEXPECT_UINT_EQ(cut_row(line, fields, 18), 18);
    compare_row(fields);
    rows++;
  }
  fclose(file);
  VEXPECT_UINT_EQ(rows, model_num_shapes);
}
