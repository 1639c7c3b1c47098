// options_test.c: pool/options.h: every source, their precedence, every way to be wrong, and that what is printed
// reads back.
#include "pool/options.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "pool/option_table.h"
#include "pool/option_text.h"
#include "tests/support/vtest.h"
#include "vmm/memory.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

typedef struct rig {
  vmp_config config;
  vmp_pool_options fields;
  char value[256];
} rig;

static void rig_setup(rig *f) { f->fields = (vmp_pool_options)VMP_POOL_OPTIONS_INIT; }
static void rig_teardown(rig *f) { vmp_config_free(&f->config); }

static vmp_status read_conf(rig *f, const char *conf) {
  f->fields.conf = conf;
  return vmp_config_read(&f->config, NULL, &f->fields, NULL);
}

static const char *value(rig *f, vmp_option option) {
  (void)vmp_config_value(&f->config, option, f->value, sizeof f->value);
  return f->value;
}

static const char *source(rig *f, vmp_option option) {
  (void)vmp_config_source(&f->config, option, f->value, sizeof f->value);
  return f->value;
}

VTEST_F(Options, Defaults, rig) {
  VASSERT_OK(vmp_config_read(&f->config, NULL, NULL, NULL));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, 80 * GIB));
  VEXPECT_INT_EQ(f->config.driver, VMP_DRIVER_CUDA);
  VEXPECT_INT_EQ(f->config.preset, VMP_PRESET_MIXED);
  VEXPECT_STR_EQ(f->config.name, "pool");
  VEXPECT_UINT_EQ(f->config.reserve, 16 * 80 * GIB);
  VEXPECT_UINT_EQ(f->config.chunk_max, 32 * MIB);
  VEXPECT_UINT_EQ(f->config.growth, 32 * MIB);
  VEXPECT_UINT_EQ(f->config.hard_limit, UINT64_MAX);
  VEXPECT_UINT_EQ(f->config.soft_limit, UINT64_MAX);
  VEXPECT_STR_EQ(value(f, VMP_OPTION_park_limit), "1");
  VEXPECT_STR_EQ(value(f, VMP_OPTION_initial_fraction), "0");
  VEXPECT_INT_EQ(f->config.strategy, VMP_STRATEGY_DYNAMIC);
  VEXPECT_UINT_EQ(f->config.slab_max, 65536);
  VEXPECT_UINT_EQ(f->config.buddy_from, UINT64_MAX);
  VEXPECT_UINT_EQ(f->config.arena, 128 * GIB);
  VEXPECT_INT_EQ(f->config.cross_stream, VMP_CROSS_STREAM_WAIT);
  VEXPECT_UINT_EQ(f->config.wait, 1000000);
  VEXPECT_UINT_EQ(f->config.peers.count, 0);
  for (size_t i = 0; i < VMP_OPTION_COUNT; i++) VEXPECT_STR_EQ(source(f, (vmp_option)i), "default");
}

VTEST_F(Options, StaticMapsThreeQuarters, rig) {
  VASSERT_OK(read_conf(f, "strategy:static"));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, 80 * GIB));
  VEXPECT_STR_EQ(value(f, VMP_OPTION_initial_fraction), "0.75");
}

VTEST_F(Options, PrecedenceKeyByKey, rig) {
  // preset < fields < conf < VMP_CONF, each key on its own.
  f->fields.preset = "classic";
  f->fields.slab_max_bytes = 4096;
  f->fields.chunk_max_bytes = 8 * MIB;
  f->fields.growth_bytes = 8 * MIB;
  f->fields.conf = "chunk_max:16MiB,growth:16MiB";
  VASSERT_OK(vmp_config_read(&f->config, NULL, &f->fields, "growth:64MiB"));
  VEXPECT_UINT_EQ(f->config.buddy_from, 64 * MIB);
  VEXPECT_UINT_EQ(f->config.slab_max, 4096);
  VEXPECT_UINT_EQ(f->config.chunk_max, 16 * MIB);
  VEXPECT_UINT_EQ(f->config.growth, 64 * MIB);
  VEXPECT_STR_EQ(source(f, VMP_OPTION_arena), "default");
  VEXPECT_STR_EQ(source(f, VMP_OPTION_buddy_from), "preset classic");
  VEXPECT_STR_EQ(source(f, VMP_OPTION_slab_max), "field");
  VEXPECT_STR_EQ(source(f, VMP_OPTION_chunk_max), "conf");
  VEXPECT_STR_EQ(source(f, VMP_OPTION_growth), "VMP_CONF");
}

VTEST_F(Options, AnySourceMayNameThePreset, rig) {
  f->fields.preset = "classic";
  f->fields.conf = "preset:mid";
  VASSERT_OK(vmp_config_read(&f->config, NULL, &f->fields, NULL));
  VEXPECT_INT_EQ(f->config.preset, VMP_PRESET_MID);
  VEXPECT_UINT_EQ(f->config.slab_max, 0);
  VEXPECT_UINT_EQ(f->config.buddy_from, UINT64_MAX);  // nothing of classic is left
  VASSERT_OK(vmp_config_read(&f->config, NULL, &f->fields, "preset:buddy"));
  VEXPECT_INT_EQ(f->config.preset, VMP_PRESET_BUDDY);
  VEXPECT_UINT_EQ(f->config.buddy_from, 0);
  VEXPECT_STR_EQ(source(f, VMP_OPTION_slab_max), "preset buddy");
}

VTEST_F(Options, GranulesAreBytesOnceTheDeviceIsKnown, rig) {
  VASSERT_OK(read_conf(f, "preset:tight,hard_limit:3granules"));
  VASSERT_OK(vmp_config_resolve(&f->config, 64 * 1024, GIB));
  VEXPECT_UINT_EQ(f->config.chunk_max, 64 * 1024);
  VEXPECT_UINT_EQ(f->config.growth, 0);
  VEXPECT_UINT_EQ(f->config.hard_limit, 3 * 64 * 1024);
  VEXPECT_UINT_EQ(f->config.slab_max, 32 * 1024);
}

// Edges are ends of chunks of one granule: what was asked for by name wins over what comes with a preset.
VTEST_F(Options, EdgesNeedChunksOfOneGranule, rig) {
  VASSERT_OK(read_conf(f, "edges:1"));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, GIB));
  VEXPECT_TRUE(f->config.edges);
  VEXPECT_UINT_EQ(f->config.chunk_max, 2 * MIB);
  VASSERT_OK(read_conf(f, "preset:tight,chunk_max:4MiB"));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, GIB));
  VEXPECT_FALSE(f->config.edges);
  VEXPECT_TRUE(f->config.adjusted[VMP_OPTION_edges]);
  VEXPECT_UINT_EQ(f->config.chunk_max, 4 * MIB);
  VASSERT_OK(read_conf(f, "edges:1,chunk_max:4MiB"));
  VEXPECT_STATUS(vmp_config_resolve(&f->config, 2 * MIB, GIB), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "edges share chunks of one granule");
}

VTEST_F(Options, SpacesAndEmptyTextsAreFine, rig) {
  VASSERT_OK(read_conf(f, " chunk_max : 8 MiB ,\n slab_max:4096 "));
  VEXPECT_UINT_EQ(f->config.chunk_max, 8 * MIB);
  VEXPECT_UINT_EQ(f->config.slab_max, 4096);
  VASSERT_OK(read_conf(f, ""));
  VASSERT_OK(read_conf(f, "  "));
  VASSERT_OK(vmp_config_read(&f->config, NULL, NULL, ""));
}

VTEST_F(Options, AnExplicitZeroIsNotTheDefault, rig) {
  VASSERT_OK(read_conf(f, "park_limit:0,slab_max:0,wait:0,hard_limit:0,growth:0,buddy_from:0"));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, 80 * GIB));
  VEXPECT_STR_EQ(value(f, VMP_OPTION_park_limit), "0");
  VEXPECT_UINT_EQ(f->config.slab_max, 0);
  VEXPECT_UINT_EQ(f->config.wait, 0);
  VEXPECT_UINT_EQ(f->config.hard_limit, 0);
  VEXPECT_UINT_EQ(f->config.growth, 0);
  VEXPECT_UINT_EQ(f->config.buddy_from, 0);
}

typedef struct bad_text {
  const char *name, *conf, *key, *says;
} bad_text;

static const bad_text bad_texts[] = {
    {"unknown_key", "chunk_size:1MiB", "chunk_size", "no option"},
    {"misspelt_key", "chunk_mx:1MiB", "chunk_mx", "did you mean chunk_max?"},
    {"swapped_letters", "resevre:1GiB", "resevre", "did you mean reserve?"},
    {"unit_suffix", "reserve_bytes:1GiB", "reserve_bytes", "did you mean reserve?"},
    {"other_meaning", "frobnicate:1", "frobnicate", "vmpool.h lists the options"},
    {"no_value", "chunk_max", "chunk_max", "write key:value"},
    {"empty_value", "chunk_max:", "chunk_max", "missing"},
    {"empty_item", "slab_max:1,,wait:1", "\"\"", "no value"},
    {"last_comma", "slab_max:1,", "conf", "nothing follows the last comma"},
    {"twice", "slab_max:1,slab_max:2", "slab_max", "twice"},
    {"negative", "hard_limit:-1", "hard_limit", "negative"},
    {"hexadecimal", "hard_limit:0x1000", "hard_limit", "unit is unknown"},
    {"exponent", "hard_limit:1e9", "hard_limit", "unit is unknown"},
    {"decimal_unit", "hard_limit:1GB", "hard_limit", "KiB, MiB, GiB, TiB"},
    {"two_numbers", "hard_limit:12 34", "hard_limit", "unit is unknown"},
    {"two_to_the_64", "hard_limit:18446744073709551616", "hard_limit", "64 bits"},
    {"unit_overflow", "hard_limit:18014398509481984KiB", "hard_limit", "64 bits"},
    {"too_large", "reserve:9223372036854775807", "reserve", "address space"},
    {"no_none_here", "reserve:none", "reserve", "digit"},
    {"zero_chunk", "chunk_max:0", "chunk_max", "must not be 0"},
    {"zero_seed", "seed:0", "seed", "must not be 0"},
    {"share_above_one", "park_limit:1.5", "park_limit", "between 0 and 1"},
    {"share_percent", "park_limit:75%", "park_limit", "0.75"},
    {"share_comma", "initial_fraction:.5", "initial_fraction", "0.75"},
    {"share_long", "initial_fraction:0.1234567891", "initial_fraction", "nine decimals"},
    {"flag", "no_map_ahead:2", "no_map_ahead", "0 or 1"},
    {"flag_word", "no_map_ahead:true", "no_map_ahead", "digit"},
    {"choice", "strategy:dinamic", "strategy", "did you mean dynamic?"},
    {"choice_far", "strategy:lazy", "strategy", "dynamic, static, predictive"},
    {"preset", "preset:thight", "preset", "did you mean tight?"},
    {"ordinal", "device:-1", "device", "negative"},
    {"ordinal_large", "device:4294967296", "device", "ordinal"},
    {"time_unit", "wait:3min", "wait", "us, ms and s"},
    {"peers", "peers:1+x", "peers", "1+2"},
    {"peers_end", "peers:1+", "peers", "1+2"},
    {"peers_many", "peers:1+2+3+4+5+6+7+8+9+10+11+12+13+14+15+16+17", "peers", "at most 16"},
    {"driver", "driver:rocm", "driver", "cuda, host"},
    {"driver_granules", "host_granule:2granules", "host_granule", "not known"},
};
static const char *bad_text_name(const bad_text *p) { return p->name; }

VTEST_FP(Options, BadTextIsNamed, rig, bad_text, bad_texts, bad_text_name) {
  f->config.seed = 77;  // a failed read leaves the config alone
  vmp_clear_error();
  VASSERT_STATUS(read_conf(f, p->conf), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "conf: ");
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, p->key);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, p->says);
  VEXPECT_UINT_EQ(f->config.seed, 77);
  // The same text in the environment is named as such.
  f->fields.conf = NULL;
  VASSERT_STATUS(vmp_config_read(&f->config, NULL, &f->fields, p->conf), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "VMP_CONF: ");
}

VTEST_F(Options, BadFieldsAreNamed, rig) {
  f->fields.strategy = 7;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "options: the value of strategy is \"7\"");
  f->fields.strategy = 0;
  f->fields.park_limit = -0.5;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "park_limit");
  f->fields.park_limit = NAN;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  f->fields.park_limit = 0;
  f->fields.device = -3;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "\"-3\": it is negative");
  f->fields.device = 0;
  f->fields.reserve_bytes = UINT64_MAX;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "reserve is \"18446744073709551615\"");
  f->fields.reserve_bytes = VMP_SIZE_IN_GRANULES | 1;  // the internal mark is no back door
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  f->fields.reserve_bytes = 0;
  f->fields.preset = "tiht";
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "did you mean tight?");
  f->fields.preset = NULL;
  f->fields.num_peers = 2;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "peers");
  const int peers[] = {1, -1};
  f->fields.peers = peers;
  VEXPECT_STATUS(read_conf(f, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "-1");
  f->fields.num_peers = 1;
  VEXPECT_OK(read_conf(f, NULL));
  VEXPECT_STR_EQ(value(f, VMP_OPTION_peers), "1");
}

VTEST_F(Options, UnlimitedIsNone, rig) {
  f->fields.hard_limit_bytes = UINT64_MAX;
  VASSERT_OK(read_conf(f, "soft_limit:none"));
  VEXPECT_UINT_EQ(f->config.hard_limit, UINT64_MAX);
  VEXPECT_STR_EQ(value(f, VMP_OPTION_soft_limit), "none");
}

VTEST_F(Options, StructsOfOtherVersions, rig) {
  struct {
    vmp_pool_options ours;
    uint64_t later;
  } newer = {.ours = VMP_POOL_OPTIONS_INIT};
  newer.ours.struct_size = sizeof newer;
  newer.ours.slab_max_bytes = 4096;
  VASSERT_OK(vmp_config_read(&f->config, NULL, &newer.ours, NULL));
  VEXPECT_UINT_EQ(f->config.slab_max, 4096);
  newer.later = 1;
  VEXPECT_STATUS(vmp_config_read(&f->config, NULL, &newer.ours, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "newer library");
  // An older caller's struct ends before slab_max_bytes: what lies behind it is not read.
  newer.ours.struct_size = offsetof(vmp_pool_options, slab_max_bytes);
  VASSERT_OK(vmp_config_read(&f->config, NULL, &newer.ours, NULL));
  VEXPECT_UINT_EQ(f->config.slab_max, 65536);
  newer.ours.struct_size = 0;
  VEXPECT_STATUS(vmp_config_read(&f->config, NULL, &newer.ours, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "_INIT");
}

VTEST_F(Options, DriverFields, rig) {
  vmp_driver_options driver = VMP_DRIVER_OPTIONS_INIT;
  driver.kind = VMP_DRIVER_HOST;
  driver.host_device_bytes = UINT64_MAX;
  driver.host_exposed = 1;
  driver.host_cost_file = "costs.txt";
  VASSERT_OK(vmp_config_read(&f->config, &driver, NULL, "host_granule:64KiB"));
  VEXPECT_INT_EQ(f->config.driver, VMP_DRIVER_HOST);
  VEXPECT_UINT_EQ(f->config.host_device, UINT64_MAX);
  VEXPECT_UINT_EQ(f->config.host_granule, 65536);
  VEXPECT_TRUE(f->config.host_exposed);
  VEXPECT_STR_EQ(f->config.host_cost_file, "costs.txt");
  VEXPECT_INT_EQ(f->config.host_num_devices, 1);
  // A program built before host_cost_file existed ends its struct in front of it.
  driver.struct_size = offsetof(vmp_driver_options, host_cost_file);
  VASSERT_OK(vmp_config_read(&f->config, &driver, NULL, NULL));
  VEXPECT_TRUE(f->config.host_exposed);
  VEXPECT_NULL(f->config.host_cost_file);
  driver.kind = (vmp_driver_kind)9;
  VEXPECT_STATUS(vmp_config_read(&f->config, &driver, NULL, NULL), VMP_ERROR_CONFIG);
}

typedef struct resolving {
  const char *name, *conf;
  uint64_t granule_bytes, device_bytes;
  const char *says;  // NULL: it works
} resolving;

static const resolving resolvings[] = {
    {"chunk_not_power", "chunk_max:3MiB", 2 * MIB, GIB, "2MiB or 4MiB"},
    {"chunk_below_granule", "chunk_max:1MiB", 2 * MIB, GIB, "2MiB would do"},
    {"chunk_huge", "chunk_max:128GiB", 2 * MIB, GIB, "64GiB would do"},
    {"chunk_three_granules", "chunk_max:3granules", 2 * MIB, GIB, "4MiB or 8MiB"},
    {"granules_overflow", "reserve:4611686018427387904granules", 2 * MIB, GIB, "reserve"},
    {"slab_beyond_granule", "slab_max:4MiB", 2 * MIB, GIB, "one granule"},
    {"granularity_odd", "", 3 * MIB, GIB, "no power of two"},
    {"all_well", "chunk_max:1granule", 2 * MIB, GIB, NULL},
};
static const char *resolving_name(const resolving *p) { return p->name; }

VTEST_FP(Options, TheDeviceDecides, rig, resolving, resolvings, resolving_name) {
  VASSERT_OK(read_conf(f, p->conf));
  vmp_status status = vmp_config_resolve(&f->config, p->granule_bytes, p->device_bytes);
  if (p->says == NULL) {
    VEXPECT_OK(status);
  } else {
    VEXPECT_TRUE(status == VMP_ERROR_CONFIG || status == VMP_ERROR_NOT_SUPPORTED);
    VEXPECT_STR_CONTAINS(vmp_last_error()->message, p->says);
  }
}

VTEST_F(Options, SizesAreRoundedToWhatIsPossible, rig) {
  VASSERT_OK(read_conf(f, "hard_limit:5000000,soft_limit:1,slab_max:1000,arena:3GiB,growth:1,reserve:1"));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, GIB));
  VEXPECT_UINT_EQ(f->config.hard_limit, 4 * MIB);  // down: never beyond what was asked
  VEXPECT_UINT_EQ(f->config.soft_limit, 0);
  VEXPECT_UINT_EQ(f->config.slab_max, 1024);
  VEXPECT_UINT_EQ(f->config.arena, 4 * GIB);
  VEXPECT_UINT_EQ(f->config.growth, 2 * MIB);
  VEXPECT_UINT_EQ(f->config.reserve, 32 * MIB);
  VEXPECT_STR_EQ(source(f, VMP_OPTION_hard_limit), "conf, adjusted");
}

VTEST_F(Options, UnlimitedDevicesAreBounded, rig) {
  VASSERT_OK(read_conf(f, NULL));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, UINT64_C(1) << 50));
  VEXPECT_UINT_EQ(f->config.reserve, 16 * VMP_MEMORY_BASIS);
  VEXPECT_UINT_EQ(f->config.arena, VMP_MEMORY_BASIS);
}

// printed_conf turns "key:value (source)" lines into "key:value,key:value"; keys without a value are left out.
static void printed_conf(const vmp_config *config, char *conf, size_t size) {
  char printed[4096];
  VASSERT_UINT_LT(vmp_config_print(config, printed, sizeof printed), sizeof printed);
  size_t used = 0;
  conf[0] = '\0';
  for (char *line = strtok(printed, "\n"); line != NULL; line = strtok(NULL, "\n")) {
    char *end = strstr(line, " (");
    VASSERT_NOT_NULL(end);
    *end = '\0';
    if (end[-1] == ':') continue;
    used += (size_t)snprintf(conf + used, size - used, "%s%s", used == 0 ? "" : ",", line);
  }
}

VTEST_F(Options, WhatIsPrintedReadsBack, rig) {
  const char *conf =
      "preset:classic,name:a pool,reserve:192MiB,chunk_max:64MiB,hard_limit:none,park_limit:0.125,"
      "initial_fraction:0.333333333,strategy:static,wait:1500us,peers:1+2+15,cross_stream:complete,seed:"
      "18446744073709551615";
  char first[4096], second[4096];
  VASSERT_OK(read_conf(f, conf));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, GIB));
  printed_conf(&f->config, first, sizeof first);
  VASSERT_OK(read_conf(f, first));
  VASSERT_OK(vmp_config_resolve(&f->config, 2 * MIB, GIB));
  printed_conf(&f->config, second, sizeof second);
  VEXPECT_STR_EQ(first, second);
  VEXPECT_STR_CONTAINS(first, "reserve:192MiB");
  VEXPECT_STR_CONTAINS(first, "initial_fraction:0.333333333");
  VEXPECT_STR_CONTAINS(first, "wait:1500us");
  VEXPECT_STR_CONTAINS(first, "peers:1+2+15");
}

VTEST_F(Options, PrintingCountsPastTheBuffer, rig) {
  VASSERT_OK(read_conf(f, "peers:1+2"));
  char whole[4096], part[100];
  size_t length = vmp_config_print(&f->config, whole, sizeof whole);
  VEXPECT_UINT_EQ(length, strlen(whole));
  VEXPECT_UINT_EQ(vmp_config_print(&f->config, part, sizeof part), length);
  VEXPECT_INT_EQ(memcmp(part, whole, sizeof part - 1), 0);
  VEXPECT_UINT_EQ(vmp_config_print(&f->config, NULL, 0), length);
}

VTEST_F(Options, NoHostMemoryIsReported, rig) {
  vmp_status status = VMP_ERROR_HOST_OUT_OF_MEMORY;
  uint64_t failures = 0;
  for (uint64_t n = 0; status != VMP_OK; n++) {
    VASSERT_UINT_LT(n, 20);
    vmp_mem_fail_after(n, 1);
    status = read_conf(f, "name:another");
    failures += vmp_mem_failures();
    vmp_mem_fail_after(0, 0);
    VASSERT_TRUE(status == VMP_OK || status == VMP_ERROR_HOST_OUT_OF_MEMORY);
  }
  VEXPECT_UINT_GT(failures, 0);
  VEXPECT_STR_EQ(f->config.name, "another");
}

VTEST(OptionText, Sizes) {
  static const struct {
    const char *text;
    uint64_t bytes;
  } sizes[] = {{"0", 0},
               {"1", 1},
               {"1023", 1023},
               {"1KiB", 1024},
               {"70MiB", 70 * MIB},
               {"2GiB", 2 * GIB},
               {"3TiB", 3072 * GIB},
               {"1granule", VMP_SIZE_IN_GRANULES | 1},
               {"7 granules", VMP_SIZE_IN_GRANULES | 7}};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    uint64_t bytes = 99;
    VEXPECT_NULL(vmp_text_size(sizes[i].text, strlen(sizes[i].text), false, &bytes));
    VEXPECT_UINT_EQ(bytes, sizes[i].bytes);
    char text[32];
    uint64_t again = 99;
    size_t length = vmp_print_size(bytes, text, sizeof text);
    VEXPECT_NULL(vmp_text_size(text, length, false, &again));
    VEXPECT_UINT_EQ(again, bytes);
  }
}

VTEST(OptionText, Distance) {
  // Known distances (optimal string alignment).
  VEXPECT_UINT_EQ(vmp_word_distance("kitten", 6, "sitting", 7), 3);
  VEXPECT_UINT_EQ(vmp_word_distance("", 0, "abc", 3), 3);
  VEXPECT_UINT_EQ(vmp_word_distance("abc", 3, "abc", 3), 0);
  VEXPECT_UINT_EQ(vmp_word_distance("ca", 2, "ac", 2), 1);
  VEXPECT_UINT_EQ(vmp_word_distance("ca", 2, "abc", 3), 3);
  char longest[100];
  memset(longest, 'x', sizeof longest);
  VEXPECT_UINT_EQ(vmp_word_distance(longest, 64, "x", 1), SIZE_MAX);
  VEXPECT_UINT_EQ(vmp_word_distance(longest, 63, longest, 62), 1);
}
