// four_streams_test.c: one scenario of four streams over backing and clock, with its work run late, early and in 200
// seeded interleavings: claims filled on one stream, read and written again on others with every use on record,
// released, their memory taken by whoever comes next; polls, trims, mapping ahead, host waits.
//
// Data moves only through the streams, so whether it is right depends on the order that clock and backing make. Judges:
// every byte copied to the host while the scenario runs, every byte of what is claimed at its end, and the host driver:
// no bad touch, no mapping removed under work, no two accesses that nothing orders.
#include <string.h>

#include "tests/support/vtest.h"
#include "tests/support/vtest_rng.h"
#include "vmm/backing.h"
#include "vmm/driver_host.h"

#define GRANULE UINT64_C(8192)
#define SLOTS 512u
#define STREAMS 4u
#define INTERLEAVINGS 200u
#define MAX_CLAIMS 32u
#define MAX_READS 256u
#define READ_BYTES 64u
#define STEP_BYTES UINT64_C(512)
#define STEPS_PER_SLOT (GRANULE / STEP_BYTES)

typedef struct claim {
  uint64_t offset, bytes;
  vmp_fence uses;  // of everything that touches it
  unsigned char tag;
} claim;

typedef struct read_back {
  unsigned char bytes[READ_BYTES];
  unsigned char tag;
} read_back;

// What is left out on purpose, to see that it is noticed.
typedef enum mistake { NO_MISTAKE, NO_ORDER_AFTER_CLAIM, USES_FORGOTTEN } mistake;

typedef struct scenario {
  mistake mistake;
  vtest_rng rng;
  vmp_driver *driver;
  vmp_cu_context context;
  vmp_clock *clock;
  vmp_backing *backing;
  vmp_backing_ops ops;
  uint64_t base;
  vmp_cu_stream streams[STREAMS];
  vmp_stream_index indices[STREAMS];
  claim claims[MAX_CLAIMS];
  size_t num_claims;
  vmp_fence released[SLOTS * STEPS_PER_SLOT];  // who may still touch these addresses, by steps: what a layer keeps
  read_back reads[MAX_READS];
  size_t num_reads;
  unsigned char next_tag;
  uint64_t claimed, refused, wrong_bytes, bytes_read;
} scenario;

// ---- the rig ----

static void no_lock(void *self) { (void)self; }

static void open_scenario(scenario *s, vmp_host_work work, uint64_t interleaving, uint64_t script, mistake which) {
  memset(s, 0, sizeof *s);
  s->mistake = which;
  s->rng = vtest_rng_make(script);
  vmp_host_options host = VMP_HOST_OPTIONS_INIT;
  host.num_devices = 1;
  host.devices[0].memory_bytes = 64 * GRANULE;
  host.devices[0].granule_bytes = GRANULE;
  host.work = work;
  host.work_seed = interleaving;
  host.check_order = 1;
  host.ledger_high = 1;
  VASSERT_OK(vmp_host_open(&s->driver, &host));
  vmp_host_tolerate_bad_touches(s->driver, which != NO_MISTAKE);
  VASSERT_INT_EQ(vmp_drv_init(s->driver, 0), 0);
  VASSERT_INT_EQ(vmp_drv_primary_ctx_retain(s->driver, &s->context, 0), 0);
  VASSERT_INT_EQ(vmp_drv_ctx_set_current(s->driver, s->context), 0);
  VASSERT_OK(vmp_clock_create(&s->clock, s->driver, 0));
  vmp_backing_options options;
  memset(&options, 0, sizeof options);
  options.driver = s->driver;
  options.clock = s->clock;
  options.context = s->context;
  options.granule_bytes = GRANULE;
  options.chunk_max_bytes = 4 * GRANULE;
  options.hard_limit_bytes = 48 * GRANULE;
  options.soft_limit_bytes = UINT64_MAX;
  options.park_limit = 1;
  options.may_create = true;
  options.hooks = (vmp_lock_hooks){NULL, no_lock, no_lock, NULL, NULL};
  VASSERT_OK(vmp_backing_create(&s->backing, &options));
  uint64_t bytes = 0;
  VASSERT_OK(vmp_backing_reserve(s->backing, SLOTS * GRANULE, SLOTS * GRANULE, &s->base, &bytes));
  s->ops = vmp_backing_get_ops(s->backing);
  for (unsigned i = 0; i < STREAMS; i++) {
    VASSERT_INT_EQ(vmp_drv_stream_create(s->driver, &s->streams[i], VMP_CU_STREAM_NON_BLOCKING), 0);
    s->indices[i] = vmp_clock_stream(s->clock, s->streams[i]);
  }
}

static void close_scenario(scenario *s) {
  if (s->driver == NULL) return;
  VEXPECT_OK(vmp_backing_destroy(s->backing));
  for (unsigned i = 0; i < STREAMS; i++) {
    if (s->streams[i] == NULL) continue;
    VEXPECT_OK(vmp_clock_retire_stream(s->clock, s->streams[i]));
    VEXPECT_INT_EQ(vmp_drv_stream_destroy(s->driver, s->streams[i]), 0);
  }
  vmp_clock_destroy(s->clock);
  VEXPECT_INT_EQ(vmp_drv_primary_ctx_release(s->driver, 0), 0);
  VEXPECT_UINT_EQ(vmp_host_leaks(s->driver, &(vmp_report){0}), 0);
  vmp_driver_close(s->driver);
}

// ---- work ----

static vmp_cu_ptr address_of(const scenario *s, const claim *c, uint64_t at) {
  return vmp_backing_address(s->backing, s->base + c->offset + at);
}

// use_on orders a stream behind all uses of a claim so far and records its own, which the caller queues right after.
static void use_on(scenario *s, claim *c, unsigned stream) {
  VEXPECT_OK(vmp_clock_order(s->clock, s->streams[stream], c->uses));
}
static void record_use(scenario *s, claim *c, unsigned stream) {
  if (s->mistake == USES_FORGOTTEN) return;
  c->uses = vmp_fence_merge(c->uses, vmp_clock_fence(s->clock, s->indices[stream]));
}

static void fill_on(scenario *s, claim *c, unsigned stream) {
  c->tag = ++s->next_tag;
  use_on(s, c, stream);
  VEXPECT_INT_EQ(vmp_drv_memset_d8_async(s->driver, address_of(s, c, 0), c->tag, (size_t)c->bytes, s->streams[stream]),
                 0);
  record_use(s, c, stream);
}

static void look_at_reads(scenario *s) {
  VEXPECT_INT_EQ(vmp_drv_ctx_synchronize(s->driver), 0);
  for (size_t i = 0; i < s->num_reads; i++) {
    for (size_t j = 0; j < READ_BYTES; j++) s->wrong_bytes += s->reads[i].bytes[j] != s->reads[i].tag;
    s->bytes_read += READ_BYTES;
  }
  s->num_reads = 0;
}

static void read_on(scenario *s, claim *c, unsigned stream) {
  if (s->num_reads == MAX_READS) look_at_reads(s);
  read_back *to = &s->reads[s->num_reads++];
  uint64_t at = vtest_rng_below(&s->rng, c->bytes - READ_BYTES + 1);
  to->tag = c->tag;
  use_on(s, c, stream);
  VEXPECT_INT_EQ(vmp_drv_memcpy_dtoh_async(s->driver, to->bytes, address_of(s, c, at), READ_BYTES, s->streams[stream]),
                 0);
  record_use(s, c, stream);
}

// ---- the script ----

static bool overlaps(const scenario *s, uint64_t offset, uint64_t bytes) {
  for (size_t i = 0; i < s->num_claims; i++) {
    if (offset < s->claims[i].offset + s->claims[i].bytes && s->claims[i].offset < offset + bytes) return true;
  }
  return false;
}

static void make_claim(scenario *s) {
  unsigned stream = (unsigned)vtest_rng_below(&s->rng, STREAMS);
  claim c = {.bytes = vtest_rng_range(&s->rng, 1, 6 * STEPS_PER_SLOT) * STEP_BYTES};
  c.offset = vtest_rng_below(&s->rng, (SLOTS * GRANULE - c.bytes) / STEP_BYTES) * STEP_BYTES;
  vmp_effort effort = vtest_rng_chance(&s->rng, 1, 2) ? VMP_EFFORT_RESIZE : VMP_EFFORT_NORMAL;
  if (s->num_claims == MAX_CLAIMS || overlaps(s, c.offset, c.bytes)) return;
  vmp_fence behind = VMP_FENCE_NONE;
  vmp_status status = s->ops.claim(s->ops.self, s->base + c.offset, c.bytes, s->indices[stream], effort, &behind);
  if (status != VMP_OK) {
    s->refused++;
    VEXPECT_TRUE(status == VMP_ERROR_BUSY || status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_LIMIT ||
                 status == VMP_ERROR_OUT_OF_MEMORY);
    return;
  }
  for (uint64_t i = 0; i < c.bytes / STEP_BYTES; i++) {
    behind = vmp_fence_merge(behind, s->released[c.offset / STEP_BYTES + i]);
  }
  if (s->mistake != NO_ORDER_AFTER_CLAIM) VEXPECT_OK(vmp_clock_order(s->clock, s->streams[stream], behind));
  s->claimed++;
  s->claims[s->num_claims] = c;
  fill_on(s, &s->claims[s->num_claims++], stream);
}

static void release_claim(scenario *s, size_t at) {
  claim *c = &s->claims[at];
  for (uint64_t i = 0; i < c->bytes / STEP_BYTES; i++) s->released[c->offset / STEP_BYTES + i] = c->uses;
  (void)s->ops.release(s->ops.self, s->base + c->offset, c->bytes, c->uses);
  *c = s->claims[--s->num_claims];
}

static void one_step(scenario *s) {
  uint64_t what = vtest_rng_below(&s->rng, 100);
  unsigned stream = (unsigned)vtest_rng_below(&s->rng, STREAMS);
  size_t at = s->num_claims == 0 ? 0 : (size_t)vtest_rng_below(&s->rng, s->num_claims);
  if (what < 40) {
    make_claim(s);
  } else if (what < 52 && s->num_claims != 0) {
    read_on(s, &s->claims[at], stream);
  } else if (what < 60 && s->num_claims != 0) {
    fill_on(s, &s->claims[at], stream);
  } else if (what < 88 && s->num_claims != 0) {
    read_on(s, &s->claims[at], stream);
    release_claim(s, at);
  } else if (what < 93) {
    (void)vmp_backing_poll(s->backing);
  } else if (what < 96) {
    VEXPECT_OK(vmp_backing_trim(s->backing, vtest_rng_below(&s->rng, 48) * GRANULE, NULL));
  } else if (what < 98) {
    (void)vmp_backing_map_ahead(s->backing, s->base, SLOTS * GRANULE, vtest_rng_below(&s->rng, 8) * GRANULE);
  } else if (what < 99) {
    VEXPECT_OK(vmp_clock_wait(s->clock, vmp_backing_pending(s->backing), UINT64_MAX));
  } else {
    look_at_reads(s);
  }
}

static void look_at_claims(scenario *s) {
  unsigned char data[6 * GRANULE];
  for (size_t i = 0; i < s->num_claims; i++) {
    const claim *c = &s->claims[i];
    VEXPECT_INT_EQ(vmp_host_peek(s->driver, address_of(s, c, 0), data, (size_t)c->bytes), 0);
    for (uint64_t j = 0; j < c->bytes; j++) s->wrong_bytes += data[j] != c->tag;
    s->bytes_read += c->bytes;
  }
}

static void say(void *context, const char *sentence) {
  (void)context;
  VADD_FAILURE("%s", sentence);
}

static void check(scenario *s) {
  vmp_report report = {say, NULL, 0};
  (void)vmp_backing_check(s->backing, &report);
  (void)vmp_clock_check(s->clock, &report);
  (void)vmp_host_check(s->driver, &report);
}

// run plays the script to its end and gives everything back.
static void run(scenario *s, uint64_t steps) {
  for (uint64_t i = 0; i < steps && !vtest_has_failure(); i++) {
    one_step(s);
    if (i % 64 == 63) check(s);
  }
  look_at_reads(s);
  look_at_claims(s);
  while (s->num_claims != 0) release_claim(s, s->num_claims - 1);
  VEXPECT_OK(vmp_clock_wait(s->clock, vmp_backing_pending(s->backing), UINT64_MAX));
  VEXPECT_OK(vmp_backing_trim(s->backing, 0, NULL));
  check(s);
}

static vmp_host_counters counters_of(const scenario *s) {
  vmp_host_counters counters;
  vmp_host_get_counters(s->driver, &counters);
  return counters;
}

// Fewer where VMPOOL_MODEL_OPS asks for it, but enough that memory changes hands.
static uint64_t steps_of_each(void) {
  uint64_t steps = vtest_ops((INTERLEAVINGS + 2) * 600) / (INTERLEAVINGS + 2);
  return steps < 200 ? 200 : steps;
}

static void expect_sound(vmp_host_work work, uint64_t interleaving, uint64_t script) {
  static scenario s;
  VTRACE("work %d, interleaving %llu", (int)work, (unsigned long long)interleaving);
  open_scenario(&s, work, interleaving, script, NO_MISTAKE);
  VASSERT_NO_FAILURE();
  run(&s, steps_of_each());
  vmp_backing_stats stats;
  vmp_backing_get_stats(s.backing, &stats);
  vmp_host_counters counters = counters_of(&s);
  VEXPECT_UINT_EQ(s.wrong_bytes, 0);
  VEXPECT_UINT_EQ(counters.bad_touches, 0);
  VEXPECT_UINT_EQ(counters.unmaps_under_work, 0);
  VEXPECT_UINT_EQ(counters.unordered, 0);
  VEXPECT_UINT_EQ(counters.violations, 0);
  VEXPECT_UINT_EQ(counters.lint, 0);
  VEXPECT_UINT_EQ(stats.mapped_bytes + stats.spare_bytes, 0);
  // The scenario is what it says: memory changed hands, between streams and between places.
  VEXPECT_UINT_GT(s.claimed, steps_of_each() / 8);
  VEXPECT_UINT_GT(s.bytes_read, 0);
  VEXPECT_UINT_GT(stats.takes, 0);
  VEXPECT_UINT_GT(stats.slots_retired, 0);
  if (work != VMP_HOST_WORK_EARLY) VEXPECT_UINT_GT(counters.stream_waits, 0);
  close_scenario(&s);
}

VTEST(FourStreams, Late) { expect_sound(VMP_HOST_WORK_LATE, 0, vtest_seed(20261130)); }
VTEST(FourStreams, Early) { expect_sound(VMP_HOST_WORK_EARLY, 0, vtest_seed(20261130)); }
VTEST(FourStreams, Interleaved) {
  uint64_t script = vtest_seed(20261130);
  for (uint64_t i = 1; i <= INTERLEAVINGS && !vtest_has_failure(); i++) expect_sound(VMP_HOST_WORK_SEED, i, script);
}

// ---- the judges themselves ----

typedef struct slip {
  const char *name;
  mistake mistake;
} slip;
static const slip slips[] = {{"no_order_after_claim", NO_ORDER_AFTER_CLAIM}, {"uses_forgotten", USES_FORGOTTEN}};
static const char *slip_name(const slip *p) { return p->name; }

// A caller who forgets to order a stream behind a claim's fence, or to record uses, is found out.
VTEST_P(FourStreams, AMistakeIsNoticed, slip, slips, slip_name) {
  static scenario s;
  uint64_t script = vtest_seed(20261130), wrong_bytes = 0, unordered = 0, bad = 0;
  for (uint64_t i = 0; i < 20; i++) {
    open_scenario(&s, i == 0 ? VMP_HOST_WORK_LATE : VMP_HOST_WORK_SEED, i, script, p->mistake);
    VASSERT_NO_FAILURE();
    run(&s, 300);
    vmp_host_counters counters = counters_of(&s);
    wrong_bytes += s.wrong_bytes;
    unordered += counters.unordered;
    bad += counters.bad_touches + counters.unmaps_under_work;
    close_scenario(&s);
  }
  VEXPECT_UINT_GT(unordered, 0);
  VEXPECT_UINT_GT(wrong_bytes, 0);
  if (p->mistake == USES_FORGOTTEN) VEXPECT_UINT_GT(bad, 0);
}
