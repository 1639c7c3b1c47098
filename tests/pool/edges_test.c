// edges_test.c: edges (design.md, section 5) seen from outside: how full a device gets, how little is mapped beyond
// what is asked for, and that the bytes of each block stay its own whatever runs on its streams.
//
// The two figures are those of `vmpool bench fill` and `bench churn`, on a short form: sizes of 512 bytes to 8 MiB,
// log-uniform, on a device of 1 GiB, whose granules are
// larger beside the blocks than those of the benchmarks' devices.
#include <stdio.h>
#include <string.h>

#include "tests/pool/pool_rig.h"
#include "tests/support/vtest_rng.h"

enum { MOST = 4096 };

typedef struct churn {
  pool_rig rig;
  vtest_rng rng;
  void *blocks[MOST];
  uint64_t bytes[MOST];
  vmp_stream streams[MOST];
  size_t count;
  uint64_t requested;
} churn;

static void churn_setup(churn *f) { pool_rig_setup(&f->rig); }
static void churn_teardown(churn *f) {
  while (f->count > 0) {
    f->count--;
    rig_free(&f->rig, f->blocks[f->count], f->streams[f->count]);
  }
  pool_rig_teardown(&f->rig);
}

static void free_one(churn *f, vmp_stream stream) {
  size_t at = (size_t)vtest_rng_below(&f->rng, f->count);
  rig_free(&f->rig, f->blocks[at], stream);
  f->requested -= f->bytes[at];
  f->count--;
  f->blocks[at] = f->blocks[f->count];
  f->bytes[at] = f->bytes[f->count];
  f->streams[at] = f->streams[f->count];
}

static bool alloc_one(churn *f, uint64_t bytes, vmp_stream stream) {
  void *ptr = NULL;
  if (f->count == MOST || vmp_alloc(f->rig.pool, &ptr, bytes, stream) != VMP_OK) return false;
  f->blocks[f->count] = ptr;
  f->bytes[f->count] = bytes;
  f->streams[f->count++] = stream;
  f->requested += bytes;
  return true;
}

// fill lets the live bytes rise by 1/200 of the device every 1,000 requests until one fails; returns the share then.
static double fill(churn *f, uint64_t device_bytes, uint64_t seed) {
  f->rng = vtest_rng_make(seed);
  for (uint64_t requests = 0;; requests++) {
    uint64_t most = device_bytes / 200 * (150 + requests / 1000), bytes = vtest_rng_log(&f->rng, 512, 8 * MIB);
    while (f->count > 0 && f->requested + bytes > most) free_one(f, NULL);
    if (!alloc_one(f, bytes, NULL)) return (double)f->requested / (double)device_bytes;
  }
}

VTEST_F(Edges, ADeviceIsFilledToItsLastGranules, churn) {
  uint64_t seed = vtest_seed(4);
  double with = 0, without = 0;
  for (unsigned i = 0; i < 3; i++) {
    rig_open(&f->rig, GIB, "preset:tight");
    VASSERT_NO_FAILURE();
    with += fill(f, GIB, seed + i) / 3;
    rig_check(&f->rig);
    churn_teardown(f);
    memset(f, 0, sizeof *f);
    rig_open(&f->rig, GIB, "preset:tight,edges:0");
    VASSERT_NO_FAILURE();
    without += fill(f, GIB, seed + i) / 3;
    churn_teardown(f);
    memset(f, 0, sizeof *f);
  }
  printf("share of the device requested at the first failure: %.4f with edges, %.4f without\n", with, without);
  VEXPECT_TRUE(with >= 0.945);
  VEXPECT_TRUE(with > without + 0.06);
}

VTEST_F(Edges, BeyondParkLimitHardlyMoreIsMappedThanAskedFor, churn) {
  rig_open(&f->rig, 8 * GIB, "preset:tight,park_limit:0");
  VASSERT_NO_FAILURE();
  f->rng = vtest_rng_make(vtest_seed(5));
  uint64_t peak = 0;
  for (unsigned i = 0; i < 6000; i++) {
    if (f->count >= 1000) free_one(f, NULL);
    VASSERT_TRUE(alloc_one(f, vtest_rng_log(&f->rng, 512, 8 * MIB), NULL));
    if (f->requested > peak) peak = f->requested;
  }
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  double ratio = (double)stats.peak_mapped / (double)peak;
  printf("peak mapped / peak requested: %.4f\n", ratio);
  VEXPECT_TRUE(ratio <= 1.025);
  rig_check(&f->rig);
}

// Every block is filled with a byte of its own on its stream, and read back on it before it is freed, on four streams
// whose work runs late, by seed, or with a lag: a byte that two blocks share, or an order that is missing, shows.
typedef struct work {
  const char *name;
  const char *conf;
  vmp_host_work_mode mode;
  uint64_t seed_or_lag;
  bool exposed;
} work;

static const work works[] = {
    {"late", "preset:tight", VMP_WORK_LATE, 0, false},
    {"seed", "preset:tight", VMP_WORK_SEED, 21, false},
    {"lag", "preset:tight,park_limit:0", VMP_WORK_LAG, 40, false},
    {"complete_only", "preset:tight,cross_stream:complete", VMP_WORK_SEED, 22, false},
    {"exposed", "preset:tight,park_limit:0", VMP_WORK_SEED, 23, true},
};
static const char *work_name(const work *p) { return p->name; }

enum { LARGEST_READ = 64 };

typedef struct reading {
  unsigned char first[LARGEST_READ], last[LARGEST_READ];
  unsigned char value;
} reading;

static reading readings[20000];

VTEST_FP(Edges, BytesAreTheirBlocksOwnOnEveryStream, churn, work, works, work_name) {
  vmp_host_options host = VMP_HOST_OPTIONS_INIT;
  host.num_devices = 1;
  host.devices[0].memory_bytes = 128 * MIB;
  if (p->exposed) host.mode = VMP_HOST_EXPOSED;
  host.check_order = 1;
  rig_open_driver_with(&f->rig, &host);
  VASSERT_NO_FAILURE();
  VASSERT_OK(rig_create(&f->rig, p->conf));
  VASSERT_OK(vmp_host_work_set(f->rig.driver, p->mode, p->seed_or_lag));
  f->rng = vtest_rng_make(vtest_seed(6));
  vmp_driver *driver = f->rig.driver;
  unsigned char values[MOST];
  size_t reads = 0;
  for (unsigned i = 0; i < 3000; i++) {
    vmp_stream stream = f->rig.streams[vtest_rng_below(&f->rng, RIG_STREAMS)];
    uint64_t bytes = vtest_rng_log(&f->rng, 64 * KIB, 12 * MIB);
    while (f->count > 0 && (f->requested + bytes > 126 * MIB || f->count == 200)) {
      size_t at = f->count - 1 - (size_t)vtest_rng_below(&f->rng, f->count < 40 ? f->count : 40);
      reading *r = &readings[reads++];
      r->value = values[at];
      VASSERT_OK(vmp_host_copy_out(driver, 0, r->first, f->blocks[at], LARGEST_READ, f->streams[at]));
      VASSERT_OK(vmp_host_copy_out(driver, 0, r->last, rig_at(f->blocks[at], f->bytes[at] - LARGEST_READ), LARGEST_READ,
                                   f->streams[at]));
      rig_free(&f->rig, f->blocks[at], f->streams[at]);
      f->requested -= f->bytes[at];
      f->count--;
      f->blocks[at] = f->blocks[f->count];
      f->bytes[at] = f->bytes[f->count];
      f->streams[at] = f->streams[f->count];
      values[at] = values[f->count];
    }
    if (!alloc_one(f, bytes, stream)) continue;
    values[f->count - 1] = (unsigned char)(i * 7 + 1);
    VASSERT_OK(vmp_host_fill(driver, 0, f->blocks[f->count - 1], values[f->count - 1], bytes, stream));
    if (i % 256 == 0) rig_check(&f->rig);
    VASSERT_NO_FAILURE();
  }
  rig_settle(&f->rig);
  for (size_t i = 0; i < reads; i++) {
    const reading *r = &readings[i];
    for (unsigned at = 0; at < LARGEST_READ; at++) {
      VASSERT_UINT_EQ(r->first[at], r->value);
      VASSERT_UINT_EQ(r->last[at], r->value);
    }
  }
  VEXPECT_UINT_GT(reads, 1000);
  VEXPECT_UINT_GT(rig_stats(&f->rig).shares, 100);
}
