// mid_model_test.c: mid against a naive model: one entry for every 512 bytes, which block it belongs to and who may
// still touch it. Random requests, frees, mapping changes, completions, refusals and calls in the middle of a claim.
//
// The oracle is stronger than the layer's own check: no overlap, alignment, a mapped place is never passed over, no
// stream is let loose on memory that another may still touch, no stream waits for memory that it freed itself, a
// request fails only when nothing fits.
#include <stdlib.h>
#include <string.h>

#include "pool/mid.h"
#include "tests/support/fake_backing.h"
#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"

enum {
  GRANULE = 16384,
  ARENA_SLOTS = 96,
  ARENAS = 4,
  SLOTS = ARENA_SLOTS * ARENAS,
  STEPS_PER_SLOT = GRANULE / 512,
  STEPS = SLOTS * STEPS_PER_SLOT,
  ARENA_STEPS = ARENA_SLOTS * STEPS_PER_SLOT,
  MAX_BLOCKS = 2048,
  STREAMS = 4,
};

// The second arena lies across the border of an index sector (16 GiB), the others across none of a page (4 MiB) or one.
#define BASE ((UINT64_C(16) << 30) - (ARENA_SLOTS + 7) * GRANULE)

typedef struct setting {
  const char *name;
  uint64_t chunk_slots, physical_slots, max_bytes;
  bool map_ahead, retire, silent_claims, nested, refusals;
  unsigned streams;
} setting;

static const setting settings[] = {
    {.name = "plain", .chunk_slots = 1, .max_bytes = 1 << 19, .streams = 1},
    {.name = "streams", .chunk_slots = 4, .max_bytes = 1 << 17, .map_ahead = true, .silent_claims = true, .streams = 4},
    {.name = "tight", .chunk_slots = 1, .physical_slots = 90, .max_bytes = 1 << 18, .retire = true, .streams = 2},
    {.name = "nested",
     .chunk_slots = 2,
     .physical_slots = 200,
     .max_bytes = 1 << 18,
     .map_ahead = true,
     .nested = true,
     .silent_claims = true,
     .streams = 3},
    {.name = "refused",
     .chunk_slots = 8,
     .max_bytes = 1 << 20,
     .map_ahead = true,
     .retire = true,
     .nested = true,
     .refusals = true,
     .streams = 4},
};
static const char *setting_name(const setting *s) { return s->name; }

typedef struct block {
  uint64_t offset, bytes;
  void *owner;
} block;

typedef struct model {
  const setting *setting;
  vmp_fake_backing *fake;
  vmp_mid *mid;
  vtest_rng rng;
  uint64_t sequence;
  unsigned depth;          // of calls from within a claim
  bool arena_out[ARENAS];  // taken from the supply
  block blocks[MAX_BLOCKS];
  size_t num_blocks;
  bool used[STEPS];
  uint64_t transit_offset, transit_bytes;  // the claim that is in the middle
  vmp_fence fences[STEPS];                 // of free steps: who must be waited for, unless known complete
  uint64_t may_wait[STEPS];                // of free steps: streams that mid may wait for
  uint64_t done, failed, mapped_hits, waits;
} model;

static size_t step_of(uint64_t offset) { return (size_t)((offset - BASE) / 512); }

// ---- the supply: four arenas side by side ----
static vmp_status take_arena(void *self, uint64_t bytes, uint64_t alignment, uint64_t *out_offset, uint64_t *out_bytes,
                             vmp_fence *out_fence) {
  model *m = self;
  for (size_t i = 0; i < ARENAS; i++) {
    uint64_t offset = BASE + i * ARENA_SLOTS * GRANULE;
    if (m->arena_out[i] || bytes > ARENA_SLOTS * GRANULE || offset % alignment != 0) continue;
    m->arena_out[i] = true;
    *out_offset = offset;
    *out_bytes = ARENA_SLOTS * GRANULE;
    *out_fence = VMP_FENCE_NONE;
    return VMP_OK;
  }
  return vmp_fail(VMP_ERROR_OUT_OF_ADDRESS_SPACE, "the model has no such arena left");
}

static void give_arena(void *self, uint64_t offset, vmp_fence fence) {
  model *m = self;
  size_t arena = (size_t)((offset - BASE) / (ARENA_SLOTS * GRANULE));
  VEXPECT_TRUE(m->arena_out[arena]);
  VEXPECT_TRUE(vmp_fence_is_none(fence));
  for (size_t s = 0; s < ARENA_STEPS; s++) {
    VASSERT_FALSE(m->used[arena * ARENA_STEPS + s]);
    m->fences[arena * ARENA_STEPS + s] = VMP_FENCE_NONE;
    m->may_wait[arena * ARENA_STEPS + s] = 0;
  }
  VEXPECT_UINT_EQ(vmp_fake_ops(m->fake)->cost(m->fake, offset, ARENA_SLOTS * GRANULE, 0).slots_to_map, ARENA_SLOTS);
  m->arena_out[arena] = false;
}

// ---- what the model knows ----
static bool is_mapped(const model *m, size_t step) {
  const vmp_fake_slot *slot = vmp_fake_slot_at(m->fake, BASE + step * 512);
  return slot->chunk != 0 && !slot->blocked;
}

// before: what could be had when a place was chosen.
typedef struct before {
  size_t mapped_steps;  // longest free stretch inside one arena that is mapped
  size_t open_steps;    // the same, mapped or not, but not blocked
  uint64_t slots_mapped, refusals;
} before;

static before look(const model *m) {
  const vmp_fake_counts *counts = vmp_fake_get_counts(m->fake);
  before found = {0, 0, counts->slots_mapped, counts->failed_claims};
  size_t open = 0, mapped = 0;
  for (size_t slot = 0; slot < SLOTS; slot++) {
    size_t first = slot * STEPS_PER_SLOT;
    bool slot_mapped = is_mapped(m, first);
    bool slot_open = m->arena_out[slot / ARENA_SLOTS] && !vmp_fake_slot_at(m->fake, BASE + slot * GRANULE)->blocked;
    if (slot % ARENA_SLOTS == 0 || !slot_open) open = mapped = 0;
    if (!slot_open) continue;
    for (size_t s = first; s < first + STEPS_PER_SLOT; s++) {
      open = m->used[s] ? 0 : open + 1;
      mapped = m->used[s] || !slot_mapped ? 0 : mapped + 1;
      if (open > found.open_steps) found.open_steps = open;
      if (mapped > found.mapped_steps) found.mapped_steps = mapped;
    }
  }
  return found;
}

static bool covers(vmp_fence outer, vmp_fence inner) {
  return (inner.streams & ~outer.streams) == 0 && (vmp_fence_is_none(inner) || outer.sequence >= inner.sequence);
}

// A refused claim leaves the place's parts joined, with their fences merged: it may be waited for more.
static void on_refusal(void *context, uint64_t offset, uint64_t bytes) {
  model *m = context;
  uint64_t merged = 0;
  size_t from = step_of(offset), to = from + (size_t)bytes / 512;
  for (size_t s = from; s < to; s++) merged |= m->may_wait[s];
  for (size_t s = from; s < to; s++) m->may_wait[s] = merged;
}

// ---- operations ----
// expect_fences: whoever may still touch the block and isn't its stream is waited for, and nobody is needlessly. Steps
// that had no mapping before the claim don't count; `mapped` says which had one.
static void expect_fences(const model *m, const vmp_placed *placed, vmp_stream_index stream, const bool *mapped) {
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  uint64_t streams = 0;
  size_t from = step_of(placed->offset), to = from + (size_t)placed->bytes / 512;
  for (size_t s = from; s < to; s++) {
    streams |= m->may_wait[s];
    if (!mapped[s - from]) continue;
    VASSERT_TRUE(covers(placed->after, ops->others(ops->self, m->fences[s], stream)));
    VASSERT_TRUE(ops->known_complete(ops->self, m->fences[s]) || covers(placed->fence, m->fences[s]));
  }
  if ((streams & ~(UINT64_C(1) << stream)) == 0) VEXPECT_TRUE(vmp_fence_is_none(placed->after));
}

static void note_block(model *m, const vmp_placed *placed, void *owner) {
  size_t from = step_of(placed->offset), to = from + (size_t)placed->bytes / 512;
  for (size_t s = from; s < to; s++) {
    VASSERT_FALSE(m->used[s]);
    m->used[s] = true;
  }
  m->blocks[m->num_blocks++] = (block){placed->offset, placed->bytes, owner};
}

// sure_steps: a stretch of this many steps holds the request wherever it begins.
static size_t sure_steps(const vmp_request *request) {
  uint64_t alignment = request->alignment < 512 ? 512 : request->alignment;
  return (size_t)((request->bytes + alignment - 512) / 512);
}

static void expect_right_failure(const model *m, const vmp_request *request, vmp_status status, const before *was) {
  bool refused = vmp_fake_get_counts(m->fake)->failed_claims != was->refusals;
  if (refused) return;  // the backing's own reasons
  if (request->effort == VMP_EFFORT_MAPPED) {
    VEXPECT_STATUS(status, VMP_ERROR_BUSY);
    VEXPECT_UINT_LT(was->mapped_steps, sure_steps(request));
    return;
  }
  VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  // Searches are bounded: with slots blocked here and there a place in the middle may be passed over.
  if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) VEXPECT_UINT_LT(was->open_steps, sure_steps(request));
}

static vmp_request random_request(model *m) {
  vmp_request request = {.alignment = 512, .effort = VMP_EFFORT_NORMAL};
  request.bytes = (vtest_rng_log(&m->rng, 1, m->setting->max_bytes) + 511) / 512 * 512;
  request.stream = (vmp_stream_index)vtest_rng_below(&m->rng, m->setting->streams);
  if (vtest_rng_chance(&m->rng, 1, 4)) request.alignment = UINT64_C(1) << vtest_rng_range(&m->rng, 0, 15);
  if (vtest_rng_chance(&m->rng, 1, 8)) request.effort = VMP_EFFORT_MAPPED;
  return request;
}

static void op_alloc(model *m) {
  static bool mapped[2][STEPS];  // per depth: which steps had a mapping when the place was chosen
  if (m->num_blocks == MAX_BLOCKS) return;
  vmp_request request = random_request(m);
  void *owner = vtest_rng_chance(&m->rng, 1, 2) ? m : NULL;
  before was = look(m);
  for (size_t slot = 0; slot < SLOTS; slot++) {
    memset(&mapped[m->depth][slot * STEPS_PER_SLOT], is_mapped(m, slot * STEPS_PER_SLOT), STEPS_PER_SLOT);
  }
  vmp_placed placed;
  vmp_status status = vmp_mid_alloc(m->mid, &request, owner, &placed);
  if (status != VMP_OK) {
    m->failed++;
    if (m->depth == 0 && !m->setting->nested) expect_right_failure(m, &request, status, &was);
    return;
  }
  m->done++;
  VASSERT_UINT_EQ(placed.bytes, request.bytes);
  VASSERT_UINT_EQ(placed.offset % (request.alignment < 512 ? 512 : request.alignment), 0);
  bool mapped_something = vmp_fake_get_counts(m->fake)->slots_mapped != was.slots_mapped;
  if (was.mapped_steps >= sure_steps(&request)) {
    m->mapped_hits++;
    if (!m->setting->nested) VEXPECT_FALSE(mapped_something);
  }
  if (!vmp_fence_is_none(placed.after)) m->waits++;
  note_block(m, &placed, owner);
  // A call in the middle of the claim may have changed what lies around, but not what was cut out.
  expect_fences(m, &placed, request.stream, mapped[m->depth] + step_of(placed.offset));
}

static void op_free(model *m) {
  if (m->num_blocks == 0) return;
  size_t at = (size_t)vtest_rng_below(&m->rng, m->num_blocks);
  block b = m->blocks[at];
  m->blocks[at] = m->blocks[--m->num_blocks];
  vmp_fence fence = {UINT64_C(1) << vtest_rng_below(&m->rng, m->setting->streams), ++m->sequence};
  if (vtest_rng_chance(&m->rng, 1, 8)) fence.streams |= UINT64_C(1) << vtest_rng_below(&m->rng, m->setting->streams);
  size_t from = step_of(b.offset), to = from + (size_t)b.bytes / 512;
  for (size_t s = from; s < to; s++) {
    m->used[s] = false;
    m->fences[s] = fence;
    m->may_wait[s] = fence.streams;
  }
  VEXPECT_UINT_EQ(vmp_mid_free(m->mid, b.offset, fence), b.bytes);
}

// in_transit: a claim that is in the middle touches the slot.
static bool in_transit(const model *m, uint64_t offset) {
  uint64_t slot = offset / GRANULE * GRANULE;
  return m->depth > 0 && m->transit_offset < slot + GRANULE && slot < m->transit_offset + m->transit_bytes;
}

static void op_find(model *m) {
  size_t step = (size_t)vtest_rng_below(&m->rng, STEPS);
  uint64_t start = 0, bytes = 0, offset = BASE + step * 512 + vtest_rng_below(&m->rng, 512);
  void *owner = NULL;
  bool found = vmp_mid_find(m->mid, offset, &start, &bytes, &owner);
  if (in_transit(m, offset)) return;
  VASSERT_UINT_EQ(found, m->used[step]);
  VEXPECT_UINT_EQ(vmp_mid_owns(m->mid, offset), m->arena_out[step / ARENA_STEPS]);
  if (!found) return;
  for (size_t i = 0; i < m->num_blocks; i++) {
    if (m->blocks[i].offset != start) continue;
    VEXPECT_UINT_EQ(m->blocks[i].bytes, bytes);
    VEXPECT_PTR_EQ(m->blocks[i].owner, owner);
    VEXPECT_TRUE(offset >= start && offset < start + bytes);
    return;
  }
  VFAIL("mid found a block at %#llx that the model doesn't have", (unsigned long long)start);
}

// slot_is_idle: no block touches it, so its mapping may change.
static bool slot_is_idle(const model *m, uint64_t offset) {
  const vmp_fake_chunk *chunk = vmp_fake_chunk_at(m->fake, offset);
  return chunk != NULL ? chunk->live == 0 : !in_transit(m, offset);
}

// A mapping goes only when its work is complete; the model then forgets the fences of the whole chunk.
static bool chunk_is_complete(const model *m, const vmp_fake_chunk *chunk) {
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  for (uint64_t s = chunk->first_slot * STEPS_PER_SLOT; s < (chunk->first_slot + chunk->slots) * STEPS_PER_SLOT; s++) {
    if (!ops->known_complete(ops->self, m->fences[s])) return false;
  }
  return true;
}

static void op_mapping(model *m) {
  uint64_t offset = BASE + vtest_rng_below(&m->rng, SLOTS) * GRANULE;
  const vmp_fake_slot *slot = vmp_fake_slot_at(m->fake, offset);
  const vmp_fake_chunk *chunk = vmp_fake_chunk_at(m->fake, offset);
  if (!slot_is_idle(m, offset)) return;
  if (slot->blocked) {
    vmp_fake_block(m->fake, offset, GRANULE, false);
  } else if (vtest_rng_chance(&m->rng, 1, 16)) {
    vmp_fake_block(m->fake, offset, GRANULE, true);
  } else if (chunk == NULL) {
    bool room = m->setting->physical_slots == 0 || vmp_fake_mapped_slots(m->fake) + 8 < m->setting->physical_slots;
    if (room && vtest_rng_chance(&m->rng, 1, 2)) vmp_fake_map(m->fake, offset, GRANULE);
  } else if (chunk_is_complete(m, chunk)) {
    vmp_fake_unmap(m->fake, offset, GRANULE);
  }
}

static void op_world(model *m) {
  uint64_t what = vtest_rng_below(&m->rng, 100);
  vmp_stream_index stream = (vmp_stream_index)vtest_rng_below(&m->rng, m->setting->streams);
  if (what < 50) op_mapping(m);
  if (what >= 50 && what < 60) vmp_fake_complete(m->fake, stream, vtest_rng_range(&m->rng, 0, m->sequence));
  if (what >= 60 && what < 70) {
    vmp_fake_order(m->fake, stream,
                   (vmp_fence){vtest_rng_next(&m->rng) & 15, vtest_rng_range(&m->rng, 0, m->sequence)});
  }
  if (what == 70) vmp_fake_overflow_log(m->fake);
  if (what == 71 && m->depth == 0) {  // everything finishes
    for (vmp_stream_index i = 0; i < STREAMS; i++) vmp_fake_complete(m->fake, i, m->sequence);
    vmp_fake_finish_retiring(m->fake);
  }
  if (what >= 72 && what < 80 && m->setting->refusals) {
    static const vmp_status statuses[] = {VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_FRAGMENTED, VMP_ERROR_DRIVER};
    vmp_fake_fail_claims(m->fake, vtest_rng_below(&m->rng, 3), vtest_rng_range(&m->rng, 1, 2),
                         statuses[vtest_rng_below(&m->rng, 3)]);
  }
}

static void any_op(model *m) {
  // Phases: mostly growing, then mostly shrinking.
  uint64_t allocs = (m->done + m->failed) / 2048 % 2 == 0 ? 50 : 30;
  uint64_t what = vtest_rng_below(&m->rng, 100);
  if (what < allocs) {
    op_alloc(m);
  } else if (what < 85) {
    op_free(m);
  } else if (what < 92) {
    op_find(m);
  } else {
    op_world(m);
  }
}

static void during_claim(void *context, uint64_t offset, uint64_t bytes) {
  model *m = context;
  if (m->depth == 1) return;
  m->depth++;
  m->transit_offset = offset;
  m->transit_bytes = bytes;
  for (uint64_t i = vtest_rng_below(&m->rng, 4); i > 0; i--) any_op(m);
  m->depth--;
}

// ---- whole comparisons ----
typedef struct walked {
  const model *m;
  uint64_t blocks, free_bytes;
} walked;

static void on_piece(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  walked *w = context;
  bool is_free = strcmp(what, "free") == 0;
  const vmp_backing_ops *ops = vmp_fake_ops(w->m->fake);
  for (size_t s = step_of(offset); s < step_of(offset + bytes); s++) {
    VASSERT_UINT_EQ(!w->m->used[s], is_free);
    if (!is_free || !is_mapped(w->m, s)) continue;
    VASSERT_TRUE(covers(fence, w->m->fences[s]) || ops->known_complete(ops->self, w->m->fences[s]));
  }
  if (is_free) {
    w->free_bytes += bytes;
  } else {
    w->blocks++;
  }
}

static void compare(model *m) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_mid_check(m->mid, &report);
  VASSERT_NO_FAULTS(&faults);
  if (vmp_fake_check(m->fake) > 0) VFAIL("%s", vmp_fake_error(m->fake));
  walked w = {.m = m};
  vmp_mid_walk(m->mid, on_piece, &w);
  vmp_mid_stats stats;
  vmp_mid_get_stats(m->mid, &stats);
  VEXPECT_UINT_EQ(w.blocks, m->num_blocks);
  VEXPECT_UINT_EQ(stats.blocks, m->num_blocks);
  VEXPECT_UINT_EQ(stats.free_bytes, w.free_bytes);
  VEXPECT_UINT_EQ(stats.block_bytes, vmp_fake_claimed_bytes(m->fake));
  VEXPECT_UINT_EQ(stats.block_bytes + stats.free_bytes, stats.arena_bytes);
  VEXPECT_UINT_EQ(stats.largest_run_bytes, look(m).mapped_steps * 512);
}

VTEST_P(MidModel, RandomOperations, setting, settings, setting_name) {
  model *m = calloc(1, sizeof *m);
  VASSERT_NOT_NULL(m);
  m->setting = p;
  m->rng = vtest_rng_make(vtest_seed(1));
  m->fake = vmp_fake_create(&(vmp_fake_options){.granule_bytes = GRANULE,
                                                .offset = BASE,
                                                .slots = SLOTS,
                                                .chunk_slots = p->chunk_slots,
                                                .physical_slots = p->physical_slots,
                                                .map_ahead = p->map_ahead,
                                                .retire = p->retire,
                                                .silent_claims = p->silent_claims});
  if (p->nested) vmp_fake_during_claim(m->fake, during_claim, m);
  vmp_fake_on_refusal(m->fake, on_refusal, m);
  vmp_mid_supply supply = {m, take_arena, give_arena};
  vmp_mid_options options = {.arena_bytes = ARENA_SLOTS * GRANULE};
  VEXPECT_OK(vmp_mid_create(&m->mid, vmp_fake_ops(m->fake), &supply, &options));
  uint64_t ops = vtest_ops(220000);
  for (uint64_t op = 0; op < ops && !vtest_has_failure(); op++) {
    VTRACE("operation %llu", (unsigned long long)op);
    any_op(m);
    if (op % 256 == 0) compare(m);
  }
  // Everything goes back and nothing stays.
  while (m->num_blocks > 0 && !vtest_has_failure()) op_free(m);
  compare(m);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(m->fake), 0);
  VEXPECT_UINT_GT(m->done, ops / 8);
  VEXPECT_UINT_GT(m->mapped_hits, 0);
  if (p->streams > 1) VEXPECT_UINT_GT(m->waits, 0);
  vmp_mid_destroy(m->mid);
  vmp_fake_destroy(m->fake);
  free(m);
}
