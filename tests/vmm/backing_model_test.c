// backing_model_test.c: random claims, releases, trims, polls and mappings ahead on several streams, against a naive
// model: an array of claims. With chunks of one granule, claims may also end or begin in chunks of others (shared). The
// host driver judges every queued touch; a claim's first and last bytes carry its number, which finds two claims that
// share memory.
#include <stdlib.h>
#include <string.h>

#include "tests/support/vtest_rng.h"
#include "tests/vmm/backing_rig.h"

#define SLOTS 512u
#define STREAMS 3u
#define MAX_CLAIMS 256u

typedef struct claim {
  uint64_t offset, bytes;
  uint64_t tag;
  unsigned stream;
} claim;

typedef struct model {
  rig rig;
  vmp_cu_stream streams[STREAMS];
  vmp_stream_index indices[STREAMS];
  claim claims[MAX_CLAIMS];
  size_t num_claims;
  uint8_t users[SLOTS];  // claims per slot
  uint64_t next_tag;
  uint64_t claims_made, again, refused, shared;
} model;

typedef struct shape {
  const char *name;
  uint64_t chunk_max_bytes, memory_bytes;
  vmp_host_work work;
  bool complete_only, shares;
} shape;

static const shape shapes[] = {
    {"granules_late", SLOT, 128 * MIB, VMP_HOST_WORK_LATE, false, false},
    {"granules_seeded", SLOT, 128 * MIB, VMP_HOST_WORK_SEED, false, false},
    {"shared_late", SLOT, 128 * MIB, VMP_HOST_WORK_LATE, false, true},
    {"shared_seeded", SLOT, 128 * MIB, VMP_HOST_WORK_SEED, false, true},
    {"shared_lag_complete_only", SLOT, 128 * MIB, VMP_HOST_WORK_LAG, true, true},
    {"chunks_late", 32 * MIB, 256 * MIB, VMP_HOST_WORK_LATE, false, false},
    {"chunks_lag", 32 * MIB, 128 * MIB, VMP_HOST_WORK_LAG, false, false},
    {"chunks_early_complete_only", 16 * MIB, 128 * MIB, VMP_HOST_WORK_EARLY, true, false},
};
static const char *shape_name(const shape *p) { return p->name; }

static void model_setup(model *m) { (void)m; }
static void model_teardown(model *m) { rig_close(&m->rig); }

static uint64_t address_of(const model *m, uint64_t offset) {
  return vmp_backing_address(m->rig.backing, m->rig.base + offset);
}

static void mark(const model *m, const claim *c) {
  VEXPECT_INT_EQ(vmp_host_poke(m->rig.driver, address_of(m, c->offset), &c->tag, sizeof c->tag), 0);
  VEXPECT_INT_EQ(
      vmp_host_poke(m->rig.driver, address_of(m, c->offset + c->bytes - sizeof c->tag), &c->tag, sizeof c->tag), 0);
}

static void verify(const model *m, const claim *c) {
  uint64_t first = 0, last = 0;
  VEXPECT_INT_EQ(vmp_host_peek(m->rig.driver, address_of(m, c->offset), &first, sizeof first), 0);
  VEXPECT_INT_EQ(vmp_host_peek(m->rig.driver, address_of(m, c->offset + c->bytes - sizeof last), &last, sizeof last),
                 0);
  VEXPECT_UINT_EQ(first, c->tag);
  VEXPECT_UINT_EQ(last, c->tag);
}

static bool overlaps(const model *m, uint64_t offset, uint64_t bytes) {
  for (size_t i = 0; i < m->num_claims; i++) {
    const claim *c = &m->claims[i];
    if (offset < c->offset + c->bytes && c->offset < offset + bytes) return true;
  }
  return false;
}

static void count_users(model *m, const claim *c, int by) {
  for (uint64_t slot = c->offset / SLOT; slot <= (c->offset + c->bytes - 1) / SLOT; slot++) {
    m->users[slot] = (uint8_t)(m->users[slot] + by);
  }
}

// enter keeps a claim that was made, with queued work and its number in its bytes.
static void enter(model *m, claim c, vmp_fence after) {
  VEXPECT_OK(vmp_clock_order(m->rig.clock, m->streams[c.stream], after));
  c.tag = ++m->next_tag;
  VEXPECT_INT_EQ(vmp_host_touch(m->rig.driver, 0, m->streams[c.stream], address_of(m, c.offset), c.bytes, false), 0);
  mark(m, &c);
  count_users(m, &c, 1);
  m->claims[m->num_claims++] = c;
  m->claims_made++;
}

// free_end finds how many bytes at the lower (or upper) end of a slot's chunk are free and the slot's to give.
static uint64_t free_end(const model *m, uint64_t slot, bool upper) {
  uint64_t from = slot * SLOT, to = from + SLOT, at = from;
  for (size_t i = 0; i < m->num_claims; i++) {
    const claim *c = &m->claims[i];
    uint64_t end = c->offset + c->bytes;
    if (end <= slot * SLOT || c->offset >= (slot + 1) * SLOT) continue;
    if (upper && end > from) from = end < to ? end : to;
    if (!upper && c->offset < to) to = c->offset > from ? c->offset : from;
  }
  // Of the window, which is one run, the part that lies at that end.
  uint64_t begin = slot * SLOT, end = 0;
  for (; at < (slot + 1) * SLOT; at = end) {
    vmp_run_state state = m->rig.ops.run(m->rig.ops.self, m->rig.base + at, m->rig.base + (slot + 1) * SLOT, &end);
    end -= m->rig.base;
    if (state == VMP_RUN_MAPPED) break;
    begin = end;
  }
  if (at == (slot + 1) * SLOT) return 0;
  if (upper) return end < (slot + 1) * SLOT || from >= end ? 0 : end - (from > begin ? from : begin);
  return begin > slot * SLOT || to <= begin ? 0 : (to < end ? to : end) - begin;
}

// try_shared claims a head, some slots and a tail, whose chunks are those of two random live claims.
static void try_shared(model *m, vtest_rng *rng) {
  if (m->num_claims == 0 || m->num_claims == MAX_CLAIMS) return;
  vmp_shared_part parts[2];
  size_t count = 0;
  const claim *upper = &m->claims[vtest_rng_below(rng, m->num_claims)];
  const claim *lower = &m->claims[vtest_rng_below(rng, m->num_claims)];
  uint64_t first = vtest_rng_below(rng, SLOTS - 4), middle = vtest_rng_below(rng, 3);
  uint64_t upper_slot = (upper->offset + upper->bytes - 1) / SLOT, lower_slot = lower->offset / SLOT;
  uint64_t head = free_end(m, upper_slot, true), tail = free_end(m, lower_slot, false);
  if (upper_slot == lower_slot && head + tail > SLOT) return;
  if (head >= 512) head = vtest_rng_below(rng, head / 512) * 512 + 512;
  if (tail >= 512) tail = vtest_rng_below(rng, tail / 512) * 512 + 512;
  claim c = {.stream = (unsigned)vtest_rng_below(rng, STREAMS)};
  c.offset = (first + 1) * SLOT - head;
  c.bytes = head + middle * SLOT + tail;
  if (c.bytes == 0 || overlaps(m, first * SLOT, (middle + 2) * SLOT)) return;
  if (head > 0)
    parts[count++] = (vmp_shared_part){m->rig.base + first * SLOT, m->rig.base + upper_slot * SLOT, SLOT - head, SLOT};
  if (tail > 0)
    parts[count++] =
        (vmp_shared_part){m->rig.base + (first + 1 + middle) * SLOT, m->rig.base + lower_slot * SLOT, 0, tail};
  vmp_fence after = VMP_FENCE_NONE;
  vmp_effort effort = (vmp_effort)vtest_rng_below(rng, VMP_EFFORT_RESIZE + 1);
  vmp_status status = m->rig.ops.claim_shared(m->rig.ops.self, m->rig.base + c.offset, c.bytes, parts, count,
                                              m->indices[c.stream], effort, &after);
  if (status == VMP_OK) {
    m->shared++;
    enter(m, c, after);
    return;
  }
  VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_OUT_OF_MEMORY);
  m->refused++;
}

// compare_ends: of a range, pins counts at both ends what the cost of each end does; where the range is at home, they
// are.
static void compare_ends(const model *m, const claim *c, bool at_home, vtest_rng *rng) {
  const vmp_backing_ops *ops = &m->rig.ops;
  uint64_t from = m->rig.base + c->offset, to = from + c->bytes, bytes = 1 + vtest_rng_below(rng, c->bytes);
  vmp_end_pins pins;
  if (!ops->pins(ops->self, from, to, bytes, &pins)) {
    VEXPECT_FALSE(at_home);
    return;
  }
  VEXPECT_UINT_EQ(pins.low, ops->cost(ops->self, from, bytes, m->indices[c->stream]).chunks_pinned);
  VEXPECT_UINT_EQ(pins.high, ops->cost(ops->self, to - bytes, bytes, m->indices[c->stream]).chunks_pinned);
}

// claim_again says yes only where the cost of the range is nothing at all, and pins counts what the cost does.
static bool try_again(const model *m, const claim *c, vtest_rng *rng) {
  const vmp_backing_ops *ops = &m->rig.ops;
  vmp_cost cost = ops->cost(ops->self, m->rig.base + c->offset, c->bytes, m->indices[c->stream]);
  vmp_end_pins pins;
  bool at_home = ops->pins(ops->self, m->rig.base + c->offset, m->rig.base + c->offset + c->bytes, c->bytes, &pins);
  if (at_home) VEXPECT_UINT_EQ(pins.low, cost.chunks_pinned);
  if (at_home) VEXPECT_UINT_EQ(pins.high, cost.chunks_pinned);
  if (cost.slots_to_map > 0) VEXPECT_FALSE(at_home);
  compare_ends(m, c, at_home, rng);
  if (!ops->claim_again(ops->self, m->rig.base + c->offset, c->bytes)) return false;
  VEXPECT_TRUE(at_home);
  VEXPECT_UINT_EQ(pins.low, 0);
  VEXPECT_UINT_EQ(cost.slots_to_map, 0);
  VEXPECT_FALSE(cost.blocked);
  VEXPECT_FALSE(cost.must_wait);
  return true;
}

static void try_claim(model *m, vtest_rng *rng) {
  claim c = {.stream = (unsigned)vtest_rng_below(rng, STREAMS)};
  c.bytes = vtest_rng_log(rng, 512, 40 * MIB) / 512 * 512;
  c.offset = vtest_rng_below(rng, SLOTS * SLOT - c.bytes) / 512 * 512;
  if (m->num_claims > 0 && vtest_rng_chance(rng, 1, 4)) {  // right behind another one, where the chunk may be live
    const claim *other = &m->claims[vtest_rng_below(rng, m->num_claims)];
    c.offset = other->offset + (other->bytes + 511) / 512 * 512;
    c.bytes = vtest_rng_log(rng, 512, MIB) / 512 * 512;
    if (c.offset + c.bytes > SLOTS * SLOT) return;
  }
  if (m->num_claims == MAX_CLAIMS || overlaps(m, c.offset, c.bytes)) return;
  vmp_fence after = VMP_FENCE_NONE;
  if (vtest_rng_chance(rng, 1, 2) && try_again(m, &c, rng)) {
    m->again++;
    enter(m, c, after);
    return;
  }
  vmp_effort effort = (vmp_effort)vtest_rng_below(rng, VMP_EFFORT_RESIZE + 1);
  vmp_status status =
      m->rig.ops.claim(m->rig.ops.self, m->rig.base + c.offset, c.bytes, m->indices[c.stream], effort, &after);
  if (status != VMP_OK) {
    VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_OUT_OF_MEMORY);
    m->refused++;
    return;
  }
  enter(m, c, after);
}

static void release_one(model *m, vtest_rng *rng) {
  if (m->num_claims == 0) return;
  size_t at = (size_t)vtest_rng_below(rng, m->num_claims);
  claim c = m->claims[at];
  verify(m, &c);
  unsigned stream = vtest_rng_chance(rng, 1, 4) ? (unsigned)vtest_rng_below(rng, STREAMS) : c.stream;
  VEXPECT_INT_EQ(vmp_host_touch(m->rig.driver, 0, m->streams[stream], address_of(m, c.offset), c.bytes, false), 0);
  vmp_fence fence = vmp_clock_fence(m->rig.clock, m->indices[stream]);
  if (stream != c.stream) fence = vmp_fence_merge(fence, vmp_clock_fence(m->rig.clock, m->indices[c.stream]));
  (void)m->rig.ops.release(m->rig.ops.self, m->rig.base + c.offset, c.bytes, fence);
  count_users(m, &c, -1);
  m->claims[at] = m->claims[--m->num_claims];
}

static void verify_all(model *m) {
  rig_check(&m->rig);
  uint64_t used = 0;
  for (unsigned slot = 0; slot < SLOTS; slot++) used += m->users[slot] > 0 ? SLOT : 0;
  vmp_backing_stats stats = rig_stats(&m->rig);
  if (m->shared == 0) VEXPECT_UINT_LE(used, stats.mapped_bytes - stats.parked_bytes);
  for (size_t i = 0; i < m->num_claims; i++) {
    const claim *c = &m->claims[i];
    uint64_t begin = m->rig.base + c->offset, end = 0;
    VEXPECT_INT_EQ(m->rig.ops.run(m->rig.ops.self, begin, begin + c->bytes, &end), VMP_RUN_MAPPED);
    VEXPECT_UINT_EQ(end, begin + c->bytes);
    verify(m, c);
  }
}

static void one_operation(model *m, bool shares, vtest_rng *rng) {
  uint64_t what = vtest_rng_below(rng, 1000);
  if (what < 260 && shares) {
    try_shared(m, rng);
  } else if (what < 520) {
    try_claim(m, rng);
  } else if (what < 985) {
    release_one(m, rng);
  } else if (what < 990) {
    vmp_backing_trim_report report;
    VEXPECT_OK(vmp_backing_trim(m->rig.backing, vtest_rng_below(rng, 256) * MIB, &report));
  } else if (what < 995) {
    (void)vmp_backing_poll(m->rig.backing);
  } else if (what < 997) {
    (void)vmp_clock_wait(m->rig.clock, vmp_backing_pending(m->rig.backing), UINT64_MAX);
    (void)vmp_backing_poll(m->rig.backing);
  } else {
    (void)vmp_backing_map_ahead(m->rig.backing, m->rig.base, SLOTS * SLOT, vtest_rng_below(rng, 32) * MIB);
  }
}

VTEST_FP(BackingModel, RandomOperations, model, shape, shapes, shape_name) {
  model *m = f;
  vtest_rng rng = vtest_rng_make(vtest_seed(20261130));
  vmp_backing_options options = rig_options(p->chunk_max_bytes);
  options.complete_only = p->complete_only;
  rig_open(&m->rig, p->memory_bytes, SLOTS * SLOT, &options);
  VASSERT_NO_FAILURE();
  vmp_host_set_work(m->rig.driver, p->work, 17);
  for (unsigned i = 0; i < STREAMS; i++) {
    m->streams[i] = rig_stream(&m->rig);
    m->indices[i] = vmp_clock_stream(m->rig.clock, m->streams[i]);
  }
  uint64_t ops = vtest_ops(200000);
  for (uint64_t i = 0; i < ops; i++) {
    VTRACE("operation %llu", (unsigned long long)i);
    one_operation(m, p->shares, &rng);
    if (i < 1000 || i % 1024 == 0) verify_all(m);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(m->claims_made, ops / 100);
  VEXPECT_UINT_GT(m->again, m->claims_made / 1000);
  VEXPECT_UINT_GT(m->refused, 0);
  if (p->shares) VEXPECT_UINT_GT(m->shared, ops / 200);
  while (m->num_claims > 0) release_one(m, &rng);
  VEXPECT_OK(vmp_clock_wait(m->rig.clock, vmp_backing_pending(m->rig.backing), UINT64_MAX));
  vmp_backing_trim_report report;
  VEXPECT_OK(vmp_backing_trim(m->rig.backing, 0, &report));
  VEXPECT_UINT_EQ(rig_stats(&m->rig).mapped_bytes + rig_stats(&m->rig).spare_bytes, 0);
  verify_all(m);
  rig_expect_no_violations(&m->rig);
}
