// Training steps against the check values of the reference (allocation counts and bytes, worked out independently).
#include "tools/models/train.h"

#include <string.h>

#include "tests/support/vtest.h"

typedef struct step_case {
  const char *name, *model;
  uint64_t batch, seq;
  bool recompute;
  uint64_t persistent_allocs, persistent_bytes, step_allocs, peak_bytes;
} step_case;
static const char *case_name(const step_case *c) { return c->name; }

static const step_case steps[] = {
    {"gpt2", "gpt2", 8, 1024, false, 592, 1742157312, 573, 8306652676},
    {"gpt2_recompute", "gpt2", 8, 1024, true, 592, 1742157312, 729, 6035437060},
    {"gpt2_xl", "gpt2-xl", 4, 1024, false, 2320, 21806556800, 2229, 33980466820},
    {"gpt2_xl_recompute", "gpt2-xl", 4, 1024, true, 2320, 21806556800, 2853, 25243424000},
    {"llama_2_7b", "llama-2-7b", 1, 4096, false, 1164, 94337818624, 1616, 112980467716},
    {"llama_2_7b_recompute", "llama-2-7b", 1, 4096, true, 1164, 94337818624, 2192, 108338937856},
    {"llama_3_8b", "llama-3-8b", 1, 8192, false, 1164, 112423657472, 1616, 159607513092},
    {"llama_3_8b_recompute", "llama-3-8b", 1, 8192, true, 1164, 112423657472, 2192, 130585526272},
};

VTEST_P(Train, CheckValues, step_case, steps, case_name) {
  const train_options options = {.model = model_find(p->model),
                                 .batch = p->batch,
                                 .seq_low = p->seq,
                                 .seq_high = p->seq,
                                 .steps = 3,
                                 .seed = 1,
                                 .recompute = p->recompute};
  trace_list list;
  train_totals totals = {0};
  tool_error error = {{0}};
  trace_list_init(&list);
  VEXPECT_TRUE(train_generate(&options, &list, &totals, &error));
  VEXPECT_UINT_EQ(totals.persistent_allocs, p->persistent_allocs);
  VEXPECT_UINT_EQ(totals.persistent_bytes, p->persistent_bytes);
  VEXPECT_UINT_EQ(totals.first_step_allocs, p->step_allocs);
  VEXPECT_UINT_EQ(list.peak_bytes, p->peak_bytes);
  VEXPECT_UINT_EQ(list.live_bytes, p->persistent_bytes);  // every step ends with exactly the persistent bytes
  VEXPECT_UINT_EQ(list.num_blocks, p->persistent_allocs + 3 * p->step_allocs);
  VEXPECT_UINT_EQ(list.num_events, p->persistent_allocs + 6 * p->step_allocs);
  trace_list_destroy(&list);
}

// No block is freed twice, and only the persistent ones are never freed.
VTEST_P(Train, EveryTensorOfAStepIsFreedOnce, step_case, steps, case_name) {
  const train_options options = {.model = model_find(p->model),
                                 .batch = 1,
                                 .seq_low = 16,
                                 .seq_high = 64,
                                 .steps = 2,
                                 .seed = 3,
                                 .recompute = p->recompute};
  trace_list list;
  trace_list_init(&list);
  VEXPECT_TRUE(train_generate(&options, &list, NULL, NULL));
  static unsigned char live[20000];
  memset(live, 0, sizeof(live));
  VASSERT_UINT_LT(list.num_blocks, sizeof(live));
  for (size_t i = 0; i < list.num_events; i++) {
    const trace_event *e = &list.events[i];
    VEXPECT_INT_EQ(live[e->block], e->kind == TRACE_ALLOC ? 0 : 1);
    live[e->block] = e->kind == TRACE_ALLOC;
  }
  for (size_t i = 0; i < list.num_blocks; i++) VEXPECT_INT_EQ(live[i], i < p->persistent_allocs);
  trace_list_destroy(&list);
}

static bool generate(train_options options, trace_list *list, tool_error *error) {
  memset(error, 0, sizeof(*error));
  trace_list_init(list);
  return train_generate(&options, list, NULL, error);
}

VTEST(Train, SequenceLengthsAreDrawnPerStepFromTheSeed) {
  trace_list a, b, c;
  tool_error error;
  train_options options = {
      .model = model_find("gpt2"), .batch = 1, .seq_low = 256, .seq_high = 1024, .steps = 40, .seed = 1};
  VASSERT_TRUE(generate(options, &a, &error));
  VASSERT_TRUE(generate(options, &b, &error));
  options.seed = 2;
  VASSERT_TRUE(generate(options, &c, &error));
  VEXPECT_UINT_EQ(a.num_events, b.num_events);
  bool same = true, other = false;
  uint64_t low = UINT64_MAX, high = 0;
  for (size_t i = 0; i < a.num_events; i++) {
    same = same && a.events[i].bytes == b.events[i].bytes && a.events[i].block == b.events[i].block;
    other = other || a.events[i].bytes != c.events[i].bytes;
    // The first allocation of a step is its token embedding: b * s * h * 2 bytes.
    if (a.events[i].kind == TRACE_ALLOC && a.events[i].block >= 592 && (a.events[i].block - 592) % 573 == 0) {
      const uint64_t seq = a.events[i].bytes / (768 * 2);
      if (seq < low) low = seq;
      if (seq > high) high = seq;
    }
  }
  VEXPECT_TRUE(same);
  VEXPECT_TRUE(other);
  VEXPECT_UINT_GE(low, 256);
  VEXPECT_UINT_LE(high, 1024);
  VEXPECT_UINT_GT(high - low, 300);
  trace_list_destroy(&a);
  trace_list_destroy(&b);
  trace_list_destroy(&c);
}

VTEST(Train, RefusesWhatItHasNoRecipeFor) {
  trace_list list;
  tool_error error;
  train_options options = {.model = model_find("mixtral-8x7b"), .batch = 1, .seq_low = 16, .seq_high = 16, .steps = 1};
  VEXPECT_FALSE(generate(options, &list, &error));
  VEXPECT_STR_CONTAINS(error.text, "mixtral-8x7b");
  options.model = model_find("gpt2");
  options.seq_high = 1025;
  VEXPECT_FALSE(generate(options, &list, &error));
  VEXPECT_STR_CONTAINS(error.text, "1024 positions");
  options.seq_high = 16;
  options.batch = 0;
  VEXPECT_FALSE(generate(options, &list, &error));
  options.batch = TRAIN_MAX_BATCH + 1;
  VEXPECT_FALSE(generate(options, &list, &error));
  options.batch = 1;
  options.seq_low = 0;
  VEXPECT_FALSE(generate(options, &list, &error));
  VEXPECT_UINT_EQ(list.num_events, 0);
}
