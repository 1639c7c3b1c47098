// backing_model_test.c: random claims, releases, trims, polls and mappings ahead on several streams, against a naive
// model: an array of claims. The host driver judges every queued touch; a claim's first and last bytes carry its
// number, which finds two claims that share memory.
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
  uint64_t claims_made, refused;
} model;

typedef struct shape {
  const char *name;
  uint64_t chunk_max_bytes, memory_bytes;
  vmp_host_work work;
  bool complete_only;
} shape;

static const shape shapes[] = {
    {"granules_late", SLOT, 128 * MIB, VMP_HOST_WORK_LATE, false},
    {"granules_seeded", SLOT, 128 * MIB, VMP_HOST_WORK_SEED, false},
    {"chunks_late", 32 * MIB, 256 * MIB, VMP_HOST_WORK_LATE, false},
    {"chunks_lag", 32 * MIB, 128 * MIB, VMP_HOST_WORK_LAG, false},
    {"chunks_early_complete_only", 16 * MIB, 128 * MIB, VMP_HOST_WORK_EARLY, true},
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
      vmp_host_poke(m->rig.driver, address_of(m, c->offset + c->bytes) - sizeof c->tag, &c->tag, sizeof c->tag), 0);
}

static void verify(const model *m, const claim *c) {
  uint64_t first = 0, last = 0;
  VEXPECT_INT_EQ(vmp_host_peek(m->rig.driver, address_of(m, c->offset), &first, sizeof first), 0);
  VEXPECT_INT_EQ(vmp_host_peek(m->rig.driver, address_of(m, c->offset + c->bytes) - sizeof last, &last, sizeof last),
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

static void try_claim(model *m, vtest_rng *rng) {
  claim c = {.stream = (unsigned)vtest_rng_below(rng, STREAMS)};
  c.bytes = vtest_rng_log(rng, 512, 40 * MIB) / 512 * 512;
  c.offset = vtest_rng_below(rng, SLOTS * SLOT - c.bytes) / 512 * 512;
  if (m->num_claims == MAX_CLAIMS || overlaps(m, c.offset, c.bytes)) return;
  vmp_fence after = VMP_FENCE_NONE;
  vmp_effort effort = (vmp_effort)vtest_rng_below(rng, VMP_EFFORT_RESIZE + 1);
  vmp_status status =
      m->rig.ops.claim(m->rig.ops.self, m->rig.base + c.offset, c.bytes, m->indices[c.stream], effort, &after);
  if (status != VMP_OK) {
    VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_OUT_OF_MEMORY);
    m->refused++;
    return;
  }
  VEXPECT_OK(vmp_clock_order(m->rig.clock, m->streams[c.stream], after));
  c.tag = ++m->next_tag;
  VEXPECT_INT_EQ(vmp_host_touch(m->rig.driver, 0, m->streams[c.stream], address_of(m, c.offset), c.bytes, false), 0);
  mark(m, &c);
  count_users(m, &c, 1);
  m->claims[m->num_claims++] = c;
  m->claims_made++;
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
  for (unsigned slot = 0; slot < SLOTS; slot++) {
    if (m->users[slot] == 0) continue;
    used += SLOT;
    uint64_t end = 0;
    vmp_run_state state =
        m->rig.ops.run(m->rig.ops.self, m->rig.base + slot * SLOT, m->rig.base + (slot + 1) * SLOT, &end);
    VEXPECT_INT_EQ(state, VMP_RUN_MAPPED);
  }
  vmp_backing_stats stats = rig_stats(&m->rig);
  VEXPECT_UINT_LE(used, stats.mapped_bytes - stats.parked_bytes);
  for (size_t i = 0; i < m->num_claims; i++) verify(m, &m->claims[i]);
}

static void one_operation(model *m, vtest_rng *rng) {
  uint64_t what = vtest_rng_below(rng, 1000);
  if (what < 520) {
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
    one_operation(m, &rng);
    if (i < 1000 || i % 1024 == 0) verify_all(m);
    VASSERT_NO_FAILURE();
  }
  VEXPECT_UINT_GT(m->claims_made, ops / 100);
  VEXPECT_UINT_GT(m->refused, 0);
  while (m->num_claims > 0) release_one(m, &rng);
  VEXPECT_OK(vmp_clock_wait(m->rig.clock, vmp_backing_pending(m->rig.backing), UINT64_MAX));
  vmp_backing_trim_report report;
  VEXPECT_OK(vmp_backing_trim(m->rig.backing, 0, &report));
  VEXPECT_UINT_EQ(rig_stats(&m->rig).mapped_bytes + rig_stats(&m->rig).spare_bytes, 0);
  verify_all(m);
  rig_expect_no_violations(&m->rig);
}
