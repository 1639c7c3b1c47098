#include "tools/bench/mixture.h"

#include <math.h>
#include <stdlib.h>

bool mixture_init(mixture *m, uint64_t live, uint64_t low_bytes, uint64_t high_bytes, uint64_t seed) {
  rng random = {.state = seed};
  m->victims = (rng){.state = rng_next(&random)};
  const double octaves = log2((double)high_bytes / (double)low_bytes);
  for (unsigned i = 0; i < MIXTURE_SIZES; i++)
    m->sizes[i] = (uint32_t)((double)low_bytes * exp2(octaves * rng_unit(&random)));
  m->max_live = live;
  m->blocks = calloc(live, sizeof(*m->blocks));
  m->bytes = calloc(live, sizeof(*m->bytes));
  return m->blocks != NULL && m->bytes != NULL;
}

TARGET_INLINE uint32_t draw_bytes(mixture *m) { return m->sizes[m->next_size++ % MIXTURE_SIZES]; }

TARGET_INLINE bool grow_loop(target_kind kind, mixture *m, uint64_t live) {
  for (; m->num_live < live; m->num_live++) {
    const uint32_t bytes = draw_bytes(m);
    if (!target_alloc(kind, &m->target, &m->blocks[m->num_live], bytes)) return false;
    m->bytes[m->num_live] = bytes;
  }
  return true;
}

bool mixture_grow(mixture *m, uint64_t live) { return TARGET_RUN(grow_loop, m->target.kind, m, live); }

// draw_victim replaces the oldest of the victims ahead, and returns it.
TARGET_INLINE uint64_t draw_victim(mixture *m) {
  uint64_t *place = &m->ahead[m->next_victim++ % MIXTURE_AHEAD];
  const uint64_t oldest = *place;
  *place = (rng_next(&m->victims) >> 32) * m->num_live >> 32;
  __builtin_prefetch(&m->blocks[*place], 1, 0);
  return oldest;
}

// look_ahead draws the first ones; the number of live blocks stays what it is from then on, or grows.
static void look_ahead(mixture *m) {
  while (m->next_victim < MIXTURE_AHEAD) (void)draw_victim(m);
}

// free_one frees a random block, whose place in the table is then empty.
TARGET_INLINE bool free_one(target_kind kind, mixture *m, uint64_t *out_victim) {
  const uint64_t victim = draw_victim(m);
  void *ptr = m->blocks[victim];
  m->blocks[victim] = NULL;
  *out_victim = victim;
  return target_free(kind, &m->target, ptr, kind == TARGET_POOL_WITH_WORK ? m->bytes[victim] : 0);
}

TARGET_INLINE bool replace_loop(target_kind kind, mixture *m, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    uint64_t victim;
    if (!free_one(kind, m, &victim)) return false;
    const uint32_t bytes = draw_bytes(m);
    if (!target_alloc(kind, &m->target, &m->blocks[victim], bytes)) return false;
    if (kind == TARGET_POOL_WITH_WORK) m->bytes[victim] = bytes;
  }
  return true;
}

bool mixture_run(mixture *m, uint64_t pairs) {
  look_ahead(m);
  return TARGET_RUN(replace_loop, m->target.kind, m, pairs);
}

TARGET_INLINE bool latency_loop(target_kind kind, mixture *m, latency *l, uint64_t pairs) {
  for (uint64_t i = 0; i < pairs; i++) {
    uint64_t victim;
    if (!free_one(kind, m, &victim)) return false;
    const uint32_t bytes = draw_bytes(m);
    if (!latency_alloc(kind, l, &m->target, &m->blocks[victim], bytes)) return false;
    if (kind == TARGET_POOL_WITH_WORK) m->bytes[victim] = bytes;
  }
  return true;
}

bool mixture_run_latency(mixture *m, latency *l, uint64_t pairs) {
  look_ahead(m);
  return TARGET_RUN(latency_loop, m->target.kind, m, l, pairs);
}

void mixture_end(mixture *m) {
  for (uint64_t i = 0; i < m->num_live; i++) {
    if (m->blocks[i] == NULL) continue;
    (void)TARGET_RUN(target_free, m->target.kind, &m->target, m->blocks[i], m->bytes[i]);
  }
  free(m->blocks);
  free(m->bytes);
}
