// buddy_model_test.c: buddy against a naive model: one entry for every slot, whether it is used and who may still touch
// it. Random blocks and pieces, frees, mapping changes, completions, refusals and calls in the middle of a claim.
//
// The oracle is stronger than the layer's own check: no overlap, alignment, tails given back, no stream let loose on
// memory that another may still touch, a request fails only when no aligned place is free, and everything
// merges back to what was added.
#include <stdlib.h>
#include <string.h>

#include "pool/buddy.h"
#include "tests/support/fake_backing.h"
#include "tests/support/faults.h"
#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"

// Two ranges that touch, of sizes that are no powers of two, the first one not even aligned.
enum { GRANULE = 65536, FIRST = 300, LOWER = 700, UPPER = 1000, SLOTS = LOWER + UPPER, MAX_RUNS = SLOTS, STREAMS = 4 };

typedef struct setting {
  const char *name;
  uint64_t chunk_slots, physical_slots, max_slots;
  bool map_ahead, retire, nested, refusals, pieces;
  unsigned streams;
} setting;

static const setting settings[] = {
    {.name = "plain", .chunk_slots = 1, .max_slots = 300, .streams = 1},
    {.name = "streams", .chunk_slots = 8, .max_slots = 64, .map_ahead = true, .pieces = true, .streams = 4},
    {.name = "tight", .chunk_slots = 1, .physical_slots = 300, .max_slots = 40, .retire = true, .streams = 2},
    {.name = "refused",
     .chunk_slots = 4,
     .max_slots = 200,
     .map_ahead = true,
     .nested = true,
     .refusals = true,
     .pieces = true,
     .streams = 3},
};
static const char *setting_name(const setting *s) { return s->name; }

typedef struct run {
  uint64_t offset, bytes;
  bool piece;
} run;

typedef struct model {
  const setting *setting;
  vmp_fake_backing *fake;
  vmp_buddy *buddy;
  vtest_rng rng;
  uint64_t sequence;
  unsigned depth;
  uint64_t transit_offset, transit_bytes;  // the claim that is in the middle
  run runs[MAX_RUNS];
  size_t num_runs;
  bool used[SLOTS];
  vmp_fence fences[SLOTS];  // of free slots
  uint64_t done, failed;
} model;

static uint64_t offset_of(size_t slot) { return (FIRST + slot) * (uint64_t)GRANULE; }
static size_t slot_of(uint64_t offset) { return (size_t)(offset / GRANULE - FIRST); }

static bool covers(vmp_fence outer, vmp_fence inner) {
  return (inner.streams & ~outer.streams) == 0 && (vmp_fence_is_none(inner) || outer.sequence >= inner.sequence);
}

// ---- what the model knows ----
static bool is_blocked(const model *m, size_t slot) { return vmp_fake_slot_at(m->fake, offset_of(slot))->blocked; }
static bool is_mapped(const model *m, size_t slot) {
  return vmp_fake_slot_at(m->fake, offset_of(slot))->chunk != 0 && !is_blocked(m, slot);
}

static bool is_free_range(const model *m, size_t from, size_t slots) {
  if (from < LOWER && from + slots > LOWER) return false;  // across the border
  if (from + slots > SLOTS) return false;
  for (size_t s = from; s < from + slots; s++) {
    if (m->used[s]) return false;
  }
  return true;
}

// place_exists: some free place of 2^order slots, whose first `slots` are open, or mapped.
static bool place_exists(const model *m, size_t slots, unsigned order, bool mapped) {
  size_t size = (size_t)1 << order;
  size_t misaligned = FIRST % size;
  for (size_t from = misaligned == 0 ? 0 : size - misaligned; from + size <= SLOTS; from += size) {
    if (!is_free_range(m, from, size)) continue;
    bool good = true;
    for (size_t s = from; s < from + slots && good; s++) good = !is_blocked(m, s) && (!mapped || is_mapped(m, s));
    if (good) return true;
  }
  return false;
}

static void note_run(model *m, uint64_t offset, uint64_t bytes, bool piece) {
  size_t from = slot_of(offset), to = from + (size_t)(bytes / GRANULE);
  VASSERT_TRUE(is_free_range(m, from, to - from));
  for (size_t s = from; s < to; s++) m->used[s] = true;
  m->runs[m->num_runs++] = (run){offset, bytes, piece};
}

// ---- operations ----
static unsigned order_for(uint64_t slots, uint64_t alignment) {
  unsigned order = 0;
  while ((UINT64_C(1) << order) < slots || ((uint64_t)GRANULE << order) < alignment) order++;
  return order;
}

static void op_alloc(model *m) {
  static bool mapped[2][SLOTS];
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  vmp_request request = {.alignment = 512, .effort = VMP_EFFORT_NORMAL};
  request.bytes = vtest_rng_log(&m->rng, 1, m->setting->max_slots * GRANULE);
  request.stream = (vmp_stream_index)vtest_rng_below(&m->rng, m->setting->streams);
  if (vtest_rng_chance(&m->rng, 1, 4)) request.alignment = UINT64_C(1) << vtest_rng_range(&m->rng, 0, 21);
  if (vtest_rng_chance(&m->rng, 1, 8)) request.effort = VMP_EFFORT_MAPPED;
  uint64_t slots = (request.bytes + GRANULE - 1) / GRANULE;
  unsigned order = order_for(slots, request.alignment);
  bool possible = place_exists(m, (size_t)slots, order, request.effort == VMP_EFFORT_MAPPED);
  for (size_t s = 0; s < SLOTS; s++) mapped[m->depth][s] = is_mapped(m, s);
  uint64_t refusals = vmp_fake_get_counts(m->fake)->failed_claims;
  vmp_placed placed;
  vmp_status status = vmp_buddy_alloc(m->buddy, &request, &placed);
  if (status != VMP_OK) {
    m->failed++;
    if (vmp_fake_get_counts(m->fake)->failed_claims != refusals || m->setting->nested) return;
    if (request.effort == VMP_EFFORT_MAPPED) {  // halves kept apart by fences may hide a mapped place
      VEXPECT_STATUS(status, VMP_ERROR_BUSY);
    } else {
      VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_OUT_OF_ADDRESS_SPACE);
      if (status == VMP_ERROR_OUT_OF_ADDRESS_SPACE) VEXPECT_FALSE(possible);
    }
    return;
  }
  m->done++;
  if (!m->setting->nested) VEXPECT_TRUE(possible);
  VASSERT_UINT_EQ(placed.bytes, slots * GRANULE);
  VASSERT_UINT_EQ(placed.offset % ((uint64_t)GRANULE << order), 0);
  note_run(m, placed.offset, placed.bytes, false);
  for (size_t s = slot_of(placed.offset); s < slot_of(placed.offset) + slots; s++) {
    if (!mapped[m->depth][s]) continue;
    VASSERT_TRUE(covers(placed.after, ops->others(ops->self, m->fences[s], request.stream)));
    VASSERT_TRUE(ops->known_complete(ops->self, m->fences[s]) || covers(placed.fence, m->fences[s]));
  }
  if (m->setting->streams == 1) VEXPECT_TRUE(vmp_fence_is_none(placed.after));
}

static void op_piece(model *m) {
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  uint64_t bytes = vtest_rng_log(&m->rng, 1, m->setting->max_slots * GRANULE);
  uint64_t alignment = UINT64_C(1) << vtest_rng_range(&m->rng, 0, 21);
  bool whole = vtest_rng_chance(&m->rng, 1, 2);
  uint64_t slots = (bytes + GRANULE - 1) / GRANULE;
  if (whole) slots = UINT64_C(1) << order_for(slots, 1);
  unsigned order = order_for(slots, alignment);
  uint64_t offset, got;
  vmp_fence fence;
  vmp_status status = vmp_buddy_take_piece(m->buddy, bytes, alignment, whole, &offset, &got, &fence);
  if (status != VMP_OK) {
    VEXPECT_STATUS(status, VMP_ERROR_OUT_OF_ADDRESS_SPACE);
    for (size_t s = 0; s + ((size_t)1 << order) <= SLOTS && m->depth == 0; s++) {
      if (offset_of(s) % ((uint64_t)GRANULE << order) != 0) continue;
      VASSERT_FALSE(is_free_range(m, s, (size_t)1 << order));
    }
    return;
  }
  VASSERT_UINT_EQ(got, slots * GRANULE);
  VASSERT_UINT_EQ(offset % ((uint64_t)GRANULE << order), 0);
  note_run(m, offset, got, true);
  for (size_t s = slot_of(offset); s < slot_of(offset) + slots; s++) {
    if (!is_mapped(m, s)) continue;
    VASSERT_TRUE(covers(fence, m->fences[s]) || ops->known_complete(ops->self, m->fences[s]));
  }
}

static void op_free(model *m) {
  if (m->num_runs == 0) return;
  size_t at = (size_t)vtest_rng_below(&m->rng, m->num_runs);
  run r = m->runs[at];
  m->runs[at] = m->runs[--m->num_runs];
  vmp_fence fence = {UINT64_C(1) << vtest_rng_below(&m->rng, m->setting->streams), ++m->sequence};
  for (size_t s = slot_of(r.offset); s < slot_of(r.offset + r.bytes); s++) {
    m->used[s] = false;
    m->fences[s] = fence;
  }
  vmp_buddy_free(m->buddy, r.offset, fence);
}

// in_transit: a claim that is in the middle touches the slot.
static bool in_transit(const model *m, uint64_t offset) {
  return m->depth > 0 && offset >= m->transit_offset && offset < m->transit_offset + m->transit_bytes;
}

static void op_find(model *m) {
  size_t slot = (size_t)vtest_rng_below(&m->rng, SLOTS);
  uint64_t start = 0, bytes = 0, offset = offset_of(slot) + vtest_rng_below(&m->rng, GRANULE);
  bool piece = false;
  if (in_transit(m, offset)) return;
  bool found = vmp_buddy_find(m->buddy, offset, &start, &bytes, &piece);
  VASSERT_UINT_EQ(found, m->used[slot]);
  VEXPECT_FALSE(vmp_buddy_find(m->buddy, offset_of(SLOTS) + slot, NULL, NULL, NULL));
  VEXPECT_FALSE(vmp_buddy_find(m->buddy, offset_of(0) - 1 - slot, NULL, NULL, NULL));
  for (size_t i = 0; found && i < m->num_runs; i++) {
    if (m->runs[i].offset > offset || offset - m->runs[i].offset >= m->runs[i].bytes) continue;
    VEXPECT_UINT_EQ(m->runs[i].offset, start);
    VEXPECT_UINT_EQ(m->runs[i].bytes, bytes);
    VEXPECT_UINT_EQ(m->runs[i].piece, piece);
  }
}

static void op_world(model *m) {
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  size_t slot = (size_t)vtest_rng_below(&m->rng, SLOTS);
  uint64_t offset = offset_of(slot), what = vtest_rng_below(&m->rng, 100);
  const vmp_fake_chunk *chunk = vmp_fake_chunk_at(m->fake, offset);
  vmp_stream_index stream = (vmp_stream_index)vtest_rng_below(&m->rng, m->setting->streams);
  bool idle = chunk != NULL ? chunk->live == 0 : !in_transit(m, offset);
  if (what < 30 && idle && chunk != NULL) {
    bool complete = true;  // a mapping goes only when its work is complete
    for (uint64_t s = chunk->first_slot; s < chunk->first_slot + chunk->slots; s++) {
      complete = complete && ops->known_complete(ops->self, m->fences[s]);
    }
    if (complete) vmp_fake_unmap(m->fake, offset, GRANULE);
  } else if (what < 40 && idle && ops->known_complete(ops->self, m->fences[slot])) {
    vmp_fake_block(m->fake, offset, GRANULE, !is_blocked(m, slot) && what < 32);
  }
  if (what >= 40 && what < 60) vmp_fake_complete(m->fake, stream, vtest_rng_range(&m->rng, 0, m->sequence));
  if (what == 60) {
    for (vmp_stream_index i = 0; i < STREAMS; i++) vmp_fake_complete(m->fake, i, m->sequence);
    if (m->depth == 0) vmp_fake_finish_retiring(m->fake);
  }
  if (what >= 61 && what < 70 && m->setting->refusals) {
    static const vmp_status statuses[] = {VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_FRAGMENTED, VMP_ERROR_DRIVER};
    vmp_fake_fail_claims(m->fake, vtest_rng_below(&m->rng, 3), vtest_rng_range(&m->rng, 1, 2),
                         statuses[vtest_rng_below(&m->rng, 3)]);
  }
}

// forget_unmapped: a mapping goes only when its work has finished, so nobody touches what is unmapped.
static void forget_unmapped(model *m) {
  for (size_t s = 0; s < SLOTS; s++) {
    const vmp_fake_slot *slot = vmp_fake_slot_at(m->fake, offset_of(s));
    if (slot->chunk == 0 && !slot->blocked) m->fences[s] = VMP_FENCE_NONE;
  }
}

static void any_op(model *m) {
  forget_unmapped(m);
  uint64_t allocs = (m->done + m->failed) / 2048 % 2 == 0 ? 50 : 30;
  uint64_t what = vtest_rng_below(&m->rng, 100);
  if (what < allocs) {
    if (m->setting->pieces && vtest_rng_chance(&m->rng, 1, 8)) {
      op_piece(m);
    } else {
      op_alloc(m);
    }
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
static void on_node(void *context, uint64_t offset, uint64_t bytes, const char *what, vmp_fence fence) {
  const model *m = context;
  const vmp_backing_ops *ops = vmp_fake_ops(m->fake);
  bool is_free = strcmp(what, "free") == 0;
  for (size_t s = slot_of(offset); s < slot_of(offset + bytes); s++) {
    VASSERT_UINT_EQ(!m->used[s], is_free);
    if (!is_free || !is_mapped(m, s)) continue;
    VASSERT_TRUE(covers(fence, m->fences[s]) || ops->known_complete(ops->self, m->fences[s]));
  }
}

static void compare(model *m) {
  vtest_faults faults = vtest_faults_make();
  vmp_report report = vtest_faults_report(&faults);
  (void)vmp_buddy_check(m->buddy, &report);
  VASSERT_NO_FAULTS(&faults);
  if (vmp_fake_check(m->fake) > 0) VFAIL("%s", vmp_fake_error(m->fake));
  vmp_buddy_walk(m->buddy, on_node, m);
  vmp_buddy_stats stats;
  vmp_buddy_get_stats(m->buddy, &stats);
  VEXPECT_UINT_EQ(stats.added_bytes, (uint64_t)SLOTS * GRANULE);
  VEXPECT_UINT_EQ(stats.added_bytes, stats.free_bytes + stats.block_bytes + stats.piece_bytes);
  VEXPECT_UINT_EQ(stats.blocks + stats.pieces, m->num_runs);
  VEXPECT_UINT_EQ(stats.block_bytes, vmp_fake_claimed_bytes(m->fake));
}

static model *make_model(const setting *p) {
  model *m = calloc(1, sizeof *m);
  m->setting = p;
  m->rng = vtest_rng_make(vtest_seed(1));
  m->fake = vmp_fake_create(&(vmp_fake_options){.granule_bytes = GRANULE,
                                                .step_bytes = GRANULE,
                                                .offset = offset_of(0),
                                                .slots = SLOTS,
                                                .chunk_slots = p->chunk_slots,
                                                .physical_slots = p->physical_slots,
                                                .map_ahead = p->map_ahead,
                                                .retire = p->retire});
  if (p->nested) vmp_fake_during_claim(m->fake, during_claim, m);
  VEXPECT_OK(vmp_buddy_create(&m->buddy, vmp_fake_ops(m->fake)));
  VEXPECT_OK(vmp_buddy_add(m->buddy, offset_of(LOWER), UPPER * GRANULE));
  VEXPECT_OK(vmp_buddy_add(m->buddy, offset_of(0), LOWER * GRANULE));
  return m;
}

VTEST_P(BuddyModel, RandomOperations, setting, settings, setting_name) {
  model *m = make_model(p);
  vmp_buddy_stats before, after;
  vmp_buddy_get_stats(m->buddy, &before);
  uint64_t ops = vtest_ops(260000);
  for (uint64_t op = 0; op < ops && !vtest_has_failure(); op++) {
    VTRACE("operation %llu", (unsigned long long)op);
    any_op(m);
    if (op % 256 == 0) compare(m);
  }
  // Everything goes back. With all work complete, a request that nothing can serve merges what the fences kept apart.
  while (m->num_runs > 0 && !vtest_has_failure()) op_free(m);
  for (vmp_stream_index i = 0; i < STREAMS; i++) vmp_fake_complete(m->fake, i, m->sequence);
  vmp_request huge = {.bytes = (uint64_t)SLOTS * GRANULE, .alignment = 1, .effort = VMP_EFFORT_NORMAL};
  vmp_placed placed;
  VEXPECT_STATUS(vmp_buddy_alloc(m->buddy, &huge, &placed), VMP_ERROR_OUT_OF_ADDRESS_SPACE);
  compare(m);
  vmp_buddy_get_stats(m->buddy, &after);
  VEXPECT_BYTES_EQ(before.free_by_order, after.free_by_order, sizeof before.free_by_order);
  VEXPECT_UINT_EQ(vmp_fake_claims_out(m->fake), 0);
  VEXPECT_UINT_GT(m->done, ops / 8);
  vmp_buddy_destroy(m->buddy);
  vmp_fake_destroy(m->fake);
  free(m);
}
