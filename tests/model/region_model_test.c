// region_model_test.c: random commits, decommits, resizes and shares of regions on four streams, with blocks beside
// them, against a naive model: for each page which of the numbered memories it shows.
//
// Every memory carries its number in its bytes, written on its stream when it is committed; a page that lost its
// memory, or has another's, shows in the content. The host driver judges every touch, every unmap and the order of
// accesses. A call may fail or be pending only with nothing changed.
#include <string.h>

#include "tests/pool/region_rig.h"
#include "tests/support/vtest_rng.h"

#define MAX_REGIONS 8u
#define PAGES 24u
#define MAX_BLOCKS 12u
#define MAX_MEMORIES 4096u

typedef struct model_region {
  vmp_region *region;
  uint64_t page_bytes;
  unsigned stream;
  uint32_t memory[PAGES];  // 0: not committed
} model_region;

typedef struct model_block {
  void *ptr;
  uint64_t bytes;
  unsigned stream;
} model_block;

typedef struct model {
  pool_rig rig;
  vtest_rng rng;
  model_region regions[MAX_REGIONS];
  model_block blocks[MAX_BLOCKS];
  uint32_t users[MAX_MEMORIES];  // pages that show a memory
  uint32_t next_memory;
  uint64_t commits, shares, pendings, failures;
} model;

typedef struct setting {
  const char *name, *conf;
  uint64_t device_bytes;
  vmp_host_work work;
} setting;
static const char *setting_name(const setting *s) { return s->name; }
static const setting settings[] = {
    {"late", "", 0, VMP_HOST_WORK_LATE},
    {"late_small", "", 96 * MIB, VMP_HOST_WORK_LATE},
    {"seeded_small", "wait:0us", 96 * MIB, VMP_HOST_WORK_SEED},
    {"seeded_tight", "preset:tight", 96 * MIB, VMP_HOST_WORK_SEED},
    {"lag_limit", "hard_limit:64MiB,chunk_max:8MiB", 0, VMP_HOST_WORK_LAG},
    {"early_complete", "cross_stream:complete", 96 * MIB, VMP_HOST_WORK_EARLY},
    {"seeded_small_space", "preset:buddy,reserve:256MiB,arena:8MiB,chunk_max:8MiB", 128 * MIB, VMP_HOST_WORK_SEED},
};

static void model_setup(model *m) { (void)m; }
static void model_teardown(model *m) { pool_rig_teardown(&m->rig); }

static uint64_t below(model *m, uint64_t bound) { return vtest_rng_below(&m->rng, bound); }

static void *page_at(const model_region *r, uint64_t page) {
  return rig_at(vmp_region_base(r->region), page * r->page_bytes);
}

// ---- what the model knows ----

static uint32_t new_memory(model *m) {
  do {
    m->next_memory = m->next_memory % (MAX_MEMORIES - 1) + 1;
  } while (m->users[m->next_memory] > 0);
  return m->next_memory;
}

static void gain(model *m, model_region *r, uint64_t page, uint32_t memory) {
  r->memory[page] = memory;
  m->users[memory]++;
}

static void lose(model *m, model_region *r, uint64_t page) {
  if (r->memory[page] != 0) m->users[r->memory[page]]--;
  r->memory[page] = 0;
}

// mark writes a memory's number into the end of a page, and touches all of it.
static void mark(model *m, model_region *r, uint64_t page) {
  vmp_stream stream = m->rig.streams[r->stream];
  unsigned char *text = (unsigned char *)page_at(r, page);
  rig_touch(&m->rig, text, r->page_bytes, stream);
  VEXPECT_OK(vmp_host_fill(m->rig.driver, 0, text + r->page_bytes - 512, (unsigned char)r->memory[page], 512, stream));
}

// ---- operations ----

static vmp_status commit_some(model *m, model_region *r, uint64_t *pages, size_t *count) {
  *count = 1 + below(m, 8);
  if (below(m, 2) == 0) {
    const uint64_t first = below(m, PAGES - 8);
    for (size_t i = 0; i < *count; i++) pages[i] = first + i;
    return region_commit(r->region, first, *count, m->rig.streams[r->stream]);
  }
  for (size_t i = 0; i < *count; i++) pages[i] = below(m, PAGES);
  return vmp_region_commit_list(r->region, pages, *count, m->rig.streams[r->stream]);
}

static void expect_refusal(model *m, vmp_status status) {
  if (status == VMP_PENDING) {
    m->pendings++;
    return;
  }
  m->failures++;
  // Too little memory, or (the option wait) too little time.
  const bool expected = status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT ||
                        status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_TIMEOUT;
  if (!expected) VADD_FAILURE("%s: %s", vmp_status_string(status), vmp_last_error()->message);
}

static void commit(model *m, model_region *r) {
  uint64_t pages[8];
  size_t count;
  vmp_status status = commit_some(m, r, pages, &count);
  if (status != VMP_OK) {
    expect_refusal(m, status);
    return;
  }
  m->commits++;
  for (size_t i = 0; i < count; i++) {
    if (r->memory[pages[i]] != 0) continue;
    gain(m, r, pages[i], new_memory(m));
    mark(m, r, pages[i]);
  }
}

static void decommit(model *m, model_region *r) {
  const vmp_region_pages runs[2] = {{below(m, PAGES), 1}, {below(m, PAGES - 10), below(m, 10)}};
  VEXPECT_OK(vmp_region_decommit(r->region, runs, 2, m->rig.streams[r->stream]));
  for (size_t i = 0; i < 2; i++) {
    for (uint64_t page = runs[i].first; page < runs[i].first + runs[i].count; page++) lose(m, r, page);
  }
}

static void resize(model *m, model_region *r) {
  const uint64_t pages = below(m, PAGES / 2);
  vmp_status status = vmp_region_resize(r->region, pages * r->page_bytes, m->rig.streams[r->stream]);
  if (status != VMP_OK) {
    expect_refusal(m, status);
    return;
  }
  for (uint64_t page = 0; page < PAGES; page++) {
    if (page >= pages) {
      lose(m, r, page);
    } else if (r->memory[page] == 0) {
      gain(m, r, page, new_memory(m));
      mark(m, r, page);
    }
  }
}

// share maps a run of one region into another, or into itself; from then on both only read.
static void share(model *m, model_region *from, model_region *to) {
  uint64_t first = below(m, PAGES), count = 0, target = below(m, PAGES);
  while (count < 6 && first + count < PAGES && target + count < PAGES && from->memory[first + count] != 0 &&
         to->memory[target + count] == 0)
    count++;
  if (from->page_bytes != to->page_bytes || count == 0) return;
  region_order(&m->rig, m->rig.streams[to->stream], m->rig.streams[from->stream]);
  vmp_status status = vmp_region_share(from->region, first, to->region, target, count, m->rig.streams[to->stream]);
  if (status != VMP_OK) {
    expect_refusal(m, status);
    return;
  }
  m->shares++;
  for (uint64_t i = 0; i < count; i++) {
    gain(m, to, target + i, from->memory[first + i]);
    VEXPECT_INT_EQ(vmp_host_touch(m->rig.driver, 0, m->rig.streams[to->stream], rig_address(page_at(to, target + i)),
                                  to->page_bytes, false),
                   0);
  }
}

static void destroy(model *m, model_region *r) {
  VEXPECT_OK(vmp_region_destroy(r->region, m->rig.streams[r->stream]));
  for (uint64_t page = 0; page < PAGES; page++) lose(m, r, page);
  *r = (model_region){.region = NULL};
}

static void create(model *m, model_region *r) {
  static const uint64_t page_sizes[] = {GRANULE, GRANULE, 2 * GRANULE, 4 * GRANULE};
  r->page_bytes = page_sizes[below(m, 4)];
  r->stream = (unsigned)below(m, RIG_STREAMS);
  vmp_region_options options = VMP_REGION_OPTIONS_INIT;
  options.max_bytes = PAGES * r->page_bytes;
  options.page_bytes = r->page_bytes;
  options.wait = below(m, 2) == 0;
  options.share_bytes = below(m, 2) * 4 * r->page_bytes;
  VEXPECT_OK(vmp_region_create(m->rig.pool, &r->region, &options));
}

static void block_operation(model *m) {
  model_block *b = &m->blocks[below(m, MAX_BLOCKS)];
  if (b->ptr != NULL) {
    rig_touch(&m->rig, b->ptr, b->bytes, m->rig.streams[b->stream]);
    rig_free(&m->rig, b->ptr, m->rig.streams[b->stream]);
    b->ptr = NULL;
    return;
  }
  b->bytes = vtest_rng_log(&m->rng, 512, 16 * MIB);
  b->stream = (unsigned)below(m, RIG_STREAMS);
  vmp_status status = vmp_alloc(m->rig.pool, &b->ptr, b->bytes, m->rig.streams[b->stream]);
  if (status != VMP_OK) {
    m->failures++;
    b->ptr = NULL;
    return;
  }
  rig_touch(&m->rig, b->ptr, b->bytes, m->rig.streams[b->stream]);
}

static void one_operation(model *m) {
  model_region *r = &m->regions[below(m, MAX_REGIONS)];
  const uint64_t what = below(m, 100);
  if (what < 15) {
    block_operation(m);
  } else if (what < 17) {
    VEXPECT_OK(vmp_pool_trim(m->rig.pool, below(m, 64) * MIB, NULL));
  } else if (what < 20) {
    (void)vmp_host_step(m->rig.driver, below(m, 40));
  } else if (r->region == NULL) {
    create(m, r);
  } else if (what < 24) {
    destroy(m, r);
  } else if (what < 55) {
    commit(m, r);
  } else if (what < 75) {
    decommit(m, r);
  } else if (what < 80) {
    resize(m, r);
  } else {
    model_region *to = &m->regions[below(m, MAX_REGIONS)];
    if (to->region != NULL) share(m, r, to);
  }
}

// ---- verifying ----

static void verify_books(model *m) {
  uint64_t committed = 0, live = 0, counted[MAX_MEMORIES] = {0};
  for (size_t i = 0; i < MAX_REGIONS; i++) {
    const model_region *r = &m->regions[i];
    uint64_t own = 0;
    if (r->region == NULL) continue;
    for (uint64_t page = 0; page < PAGES; page++) {
      uint64_t references = 99;
      VEXPECT_OK(vmp_region_page_references(r->region, page, &references));
      VEXPECT_UINT_EQ(references, r->memory[page] == 0 ? 0 : m->users[r->memory[page]]);
      if (r->memory[page] == 0) continue;
      own += r->page_bytes;
      if (counted[r->memory[page]]++ == 0) live += r->page_bytes;
    }
    VEXPECT_UINT_EQ(region_info(r->region).committed_bytes, own);
    committed += own;
  }
  const vmp_pool_stats_data stats = rig_stats(&m->rig);
  VEXPECT_UINT_EQ(stats.region_committed, committed);
  VEXPECT_UINT_EQ(stats.region_live, live);
  VEXPECT_UINT_LE(stats.live, stats.mapped);
}

static void verify_content(model *m) {
  for (size_t i = 0; i < MAX_REGIONS; i++) {
    model_region *r = &m->regions[i];
    for (uint64_t page = 0; r->region != NULL && page < PAGES; page++) {
      unsigned char bytes[512];
      if (r->memory[page] == 0) continue;
      vmp_stream stream = m->rig.streams[r->stream];
      VEXPECT_OK(
          vmp_host_copy_out(m->rig.driver, 0, bytes, rig_at(page_at(r, page), r->page_bytes - 512), 512, stream));
      VEXPECT_OK(vmp_host_stream_synchronize(m->rig.driver, 0, stream));
      VEXPECT_UINT_EQ(bytes[0], (unsigned char)r->memory[page]);
      VEXPECT_UINT_EQ(bytes[511], (unsigned char)r->memory[page]);
    }
  }
}

static void open_model(model *m, const setting *s) {
  vmp_host_options host = VMP_HOST_OPTIONS_INIT;
  host.devices[0].memory_bytes = s->device_bytes;
  host.ledger_high = 1;
  host.check_order = 1;
  host.work = s->work;
  host.work_seed = vtest_rng_next(&m->rng);
  host.work_lag = 20;
  rig_open_driver_with(&m->rig, &host);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(&m->rig, s->conf));
}

static void close_model(model *m) {
  for (size_t i = 0; i < MAX_REGIONS; i++) {
    if (m->regions[i].region != NULL) destroy(m, &m->regions[i]);
  }
  for (size_t i = 0; i < MAX_BLOCKS; i++) {
    if (m->blocks[i].ptr != NULL) rig_free(&m->rig, m->blocks[i].ptr, m->rig.streams[m->blocks[i].stream]);
  }
  rig_settle(&m->rig);
  VEXPECT_OK(vmp_pool_trim(m->rig.pool, 0, NULL));
  const vmp_pool_stats_data stats = rig_stats(&m->rig);
  VEXPECT_UINT_EQ(stats.mapped + stats.spare + stats.retiring + stats.broken, 0);
  VEXPECT_UINT_EQ(stats.live + stats.region_committed, 0);
}

VTEST_FP(RegionModel, RandomOperations, model, setting, settings, setting_name) {
  model *m = f;
  m->rng = vtest_rng_make(vtest_seed(5));
  open_model(m, p);
  VASSERT_NO_FAILURE();
  const uint64_t ops = vtest_ops(20000) / 4 + 500;
  for (uint64_t i = 0; i < ops; i++) {
    VTRACE("operation %llu", (unsigned long long)i);
    one_operation(m);
    if (i < 200 || i % 64 == 0) {
      verify_books(m);
      rig_check(&m->rig);
    }
    if (i % 512 == 511) verify_content(m);
    VASSERT_NO_FAILURE();
  }
  verify_content(m);
  VEXPECT_UINT_GT(m->commits, ops / 20);
  VEXPECT_UINT_GT(m->shares, ops / 200);
  close_model(m);
  region_expect_ordered(&m->rig);
}
