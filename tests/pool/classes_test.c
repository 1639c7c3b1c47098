// classes_test.c: fixed blocks: classes given by the user, and the presets that are made of such options.
#include <stdio.h>

#include "tests/pool/pool_rig.h"

static uint64_t held_by(pool_rig *f, void *ptr, const char *layer) {
  vmp_block_info info = VMP_BLOCK_INFO_INIT;
  VEXPECT_OK(vmp_block_query(f->pool, ptr, &info));
  VEXPECT_STR_EQ(info.layer, layer);
  return info.bytes;
}

// Which block a size gets, with the preset for fixed blocks.
VTEST_F(Classes, BlocksServeWhatFillsHalfOfOne, pool_rig) {
  static const struct {
    uint64_t bytes, expected;
    const char *layer;
  } cases[] = {
      {512, 512, "slab"},          {64 * KIB, 64 * KIB, "slab"},   {65 * KIB, 65 * KIB, "mid"},
      {MIB - 1, MIB, "mid"},       {MIB, 2 * MIB, "slab"},         {2 * MIB, 2 * MIB, "slab"},
      {3 * MIB, 4 * MIB, "slab"},  {4 * MIB + 1, 8 * MIB, "slab"}, {16 * MIB, 16 * MIB, "slab"},
      {17 * MIB, 17 * MIB, "mid"}, {3 * GIB, 3 * GIB, "mid"},
  };
  rig_open(f, 8 * GIB, "preset:blocks");
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    VTRACE("%llu bytes", (unsigned long long)cases[i].bytes);
    void *ptr = rig_alloc(f, cases[i].bytes, NULL);
    rig_touch(f, ptr, cases[i].bytes, NULL);
    VEXPECT_UINT_EQ(held_by(f, ptr, cases[i].layer), cases[i].expected);
    rig_free(f, ptr, NULL);
    VEXPECT_STATUS(vmp_free(f->pool, ptr, NULL), VMP_ERROR_DOUBLE_FREE);
  }
  rig_check(f);
}

// KV blocks come and go without a driver call, each at its own alignment, and free ones are handed out again. Memory of
// a size that is no longer used serves another size.
VTEST_F(Classes, FreeQueuesAndOtherSizes, pool_rig) {
  rig_open(f, 1 * GIB, "preset:blocks");
  VASSERT_NO_FAILURE();
  enum { BLOCKS = 480 };
  static void *blocks[BLOCKS];
  for (size_t i = 0; i < BLOCKS; i++) {
    blocks[i] = rig_alloc(f, 2 * MIB, NULL);
    VEXPECT_UINT_EQ(rig_address(blocks[i]) % (2 * MIB), 0);
  }
  uint64_t calls = rig_all_calls(f->driver);
  for (size_t round = 0; round < 4; round++) {
    for (size_t i = round; i < BLOCKS; i += 7) rig_free(f, blocks[i], NULL);
    for (size_t i = round; i < BLOCKS; i += 7) blocks[i] = rig_alloc(f, 2 * MIB, NULL);
  }
  VEXPECT_UINT_EQ(rig_all_calls(f->driver), calls);
  VEXPECT_UINT_EQ(rig_stats(f).slab_live, 960 * MIB);
  for (size_t i = 0; i < BLOCKS; i++) rig_free(f, blocks[i], NULL);
  for (size_t i = 0; i < 60; i++) {
    blocks[i] = rig_alloc(f, 16 * MIB, NULL);
    rig_touch(f, blocks[i], 16 * MIB, NULL);
  }
  VEXPECT_UINT_EQ(rig_stats(f).slab_live, 960 * MIB);
  for (size_t i = 0; i < 60; i++) rig_free(f, blocks[i], NULL);
}

// Sizes of any kind, in a struct: not whole granules, larger than a granule, rounded up to the step.
VTEST_F(Classes, OfAnySizeInAStruct, pool_rig) {
  static const uint64_t classes[] = {1000, 70000, 3 * MIB, 100 * MIB + 1};
  rig_open_driver(f, 8 * GIB);
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->driver;
  options.class_bytes = classes;
  options.num_class_bytes = 4;
  VASSERT_OK(vmp_pool_create(&f->pool, &options));
  VEXPECT_STR_CONTAINS(vmp_pool_config(f->pool), "classes:1KiB+70144+3MiB+104858112 (field, adjusted)");
  static const uint64_t sizes[] = {600, 40000, 3 * MIB, 100 * MIB}, expected[] = {1024, 70144, 3 * MIB, 104858112};
  void *ptr[4];
  for (size_t i = 0; i < 4; i++) {
    ptr[i] = rig_alloc(f, sizes[i], NULL);
    rig_touch(f, ptr[i], sizes[i], NULL);
    VEXPECT_UINT_EQ(held_by(f, ptr[i], "slab"), expected[i]);
  }
  rig_check(f);
  for (size_t i = 0; i < 4; i++) rig_free(f, ptr[i], NULL);
}

typedef struct refusal {
  const char *name, *conf, *sentence;
} refusal;
static const char *refusal_name(const refusal *r) { return r->name; }
static const refusal refusals[] = {
    {"Falling", "classes:4MiB+2MiB", "classes names 2MiB behind a size that is not smaller"},
    {"Twice", "classes:1000+1024", "classes names 1KiB behind a size that is not smaller"},
    {"Zero", "classes:0", "at least one byte"},
    {"TooLarge", "classes:17GiB", "at most 16GiB"},
    {"AWord", "classes:2MiB+many", "classes"},
    {"AnEnd", "classes:2MiB+", "it ends with a +"},
};

VTEST_FP(Classes, Refused, pool_rig, refusal, refusals, refusal_name) {
  rig_open_driver(f, 8 * GIB);
  VEXPECT_STATUS(rig_create(f, p->conf), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, p->sentence);
}

typedef struct preset {
  const char *name, *options[3];
} preset;
static const char *preset_name(const preset *p) { return p->name; }
static const preset presets[] = {
    {"mixed", {"chunk_max:32MiB (default)", "slab_max:64KiB (default)", "buddy_from:none (default)"}},
    {"tight", {"chunk_max:2MiB (preset tight)", "edges:1 (preset tight)", "slab_max:32KiB (preset tight)"}},
    {"training", {"buddy_from:1GiB (preset training)", "slab_max:64KiB (default)", "initial_fraction:0 (default)"}},
    {"inference", {"strategy:static (preset inference)", "slab_max:1MiB (preset inference)", "initial_fraction:0.75"}},
    {"classic", {"slab_max:1MiB (preset classic)", "buddy_from:64MiB (preset classic)", "strategy:dynamic"}},
    {"blocks", {"classes:2MiB+4MiB+8MiB+16MiB (preset blocks)", "slab_max:64KiB (default)", "strategy:dynamic"}},
    {"slab", {"slab_max:1MiB (preset slab)", "buddy_from:0 (preset slab)", "classes: (default)"}},
    {"mid", {"slab_max:0 (preset mid)", "buddy_from:none (default)", "classes: (default)"}},
    {"buddy", {"slab_max:0 (preset buddy)", "buddy_from:0 (preset buddy)", "classes: (default)"}},
};

// Every preset is what it says, and serves all sizes.
VTEST_FP(Classes, Presets, pool_rig, preset, presets, preset_name) {
  char conf[64];
  rig_open_driver(f, 8 * GIB);
  (void)snprintf(conf, sizeof conf, "preset:%s", p->name);
  VASSERT_OK(rig_create(f, conf));
  for (size_t i = 0; i < 3; i++) VEXPECT_STR_CONTAINS(vmp_pool_config(f->pool), p->options[i]);
  static const uint64_t sizes[] = {1, 4097, 300 * KIB, MIB + 1, 5 * MIB, 200 * MIB, GIB + 1};
  void *blocks[7];
  for (size_t i = 0; i < 7; i++) {
    blocks[i] = rig_alloc(f, sizes[i], NULL);
    rig_touch(f, blocks[i], sizes[i], NULL);
  }
  rig_check(f);
  for (size_t i = 0; i < 7; i++) rig_free(f, blocks[i], NULL);
}
