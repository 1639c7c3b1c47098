// What the probe measures, on the host driver's virtual clock, where every figure is known: spreads and lines, cost
// tables, facts, how long the work lasts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/tool/probe_support.h"
#include "tools/probe/cost.h"
#include "tools/probe/facts.h"
#include "tools/probe/figures.h"
#include "tools/probe/latency.h"
#include "tools/probe/work.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

// ---- arithmetic, by hand ----

VTEST(ProbeFigures, Spread) {
  double samples[] = {7, 1, 10, 3, 5, 9, 2, 8, 4, 6};
  const probe_spread s = probe_spread_of(samples, 10);
  VEXPECT_UINT_EQ(s.samples, 10);
  VEXPECT_NEAR(s.min_us, 1, 0);
  VEXPECT_NEAR(s.p10_us, 1, 0);  // one of ten
  VEXPECT_NEAR(s.median_us, 5.5, 0);
  VEXPECT_NEAR(s.p90_us, 9, 0);  // nine of ten
  VEXPECT_NEAR(s.max_us, 10, 0);
  double eleven[] = {11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  const probe_spread odd = probe_spread_of(eleven, 11);
  VEXPECT_NEAR(odd.p10_us, 2, 0);  // one of eleven is less than a tenth
  VEXPECT_NEAR(odd.median_us, 6, 0);
  VEXPECT_NEAR(odd.p90_us, 10, 0);
  double one[] = {42};
  const probe_spread single = probe_spread_of(one, 1);
  VEXPECT_NEAR(single.p10_us, 42, 0);
  VEXPECT_NEAR(single.median_us, 42, 0);
  VEXPECT_NEAR(single.p90_us, 42, 0);
  VEXPECT_UINT_EQ(probe_spread_of(one, 0).samples, 0);
}

typedef struct line {
  const char *name;
  double x[3], y[3];
  size_t count;
  bool known;
  double fixed, share, residual;
} line;

static const line lines[] = {
    {"exact", {1, 8, 64}, {35, 245, 1925}, 3, true, 5, 30, 0},
    // Means 1 and 8/3; slope (0*1 + 1*3 + 2*4 - 3 * 1 * 8/3) / (5 - 3) = 3/2.
    {"scattered", {0, 1, 2}, {1, 3, 4}, 3, true, 7.0 / 6, 1.5, 1.0 / 3},
    // Falling: the best line that doesn't is flat (squared errors 2, against 9.8 through the origin).
    {"falling", {1, 2}, {5, 3}, 2, true, 4, 0, 1},
    // The best line would begin at -3; through the origin 6/5 (1.8), flat 1.5 (4.5).
    {"below_zero", {1, 2}, {0, 3}, 2, true, 0, 1.2, 1.2},
    {"one_size", {8, 8}, {5, 3}, 2, false, 0, 0, 0},
    {"nothing", {0}, {0}, 0, false, 0, 0, 0},
};
static const char *line_name(const line *p) { return p->name; }

VTEST_P(ProbeFigures, Line, line, lines, line_name) {
  const probe_fit fit = probe_fit_line(p->x, p->y, p->count);
  VEXPECT_INT_EQ(fit.known, p->known);
  VEXPECT_NEAR(fit.fixed, p->fixed, 1e-9);
  VEXPECT_NEAR(fit.share, p->share, 1e-9);
  VEXPECT_NEAR(fit.residual, p->residual, 1e-9);
}

// ---- cost tables ----

// Odd figures, each used once. What a call costs on the virtual clock is what the probe has to find.
static const char table[] =
    "mem_address_reserve 11.007\nmem_create 31.5\ncreate_per_mib 0.25\nmem_map 1.625\nmem_set_access 5.125\n"
    "set_access_per_mapping 29.75\nmem_unmap 2.375\nunmap_per_mapping 19.125\nmem_release 21.5\n"
    "mem_address_free 1.001\naddress_free_per_gib 0.625\nmem_get_info 6.25\nevent_record 1.75\nevent_query 0.875\n"
    "stream_wait_event 1.375\n";

static void write_text(const char *path, const char *text) {
  FILE *file = fopen(path, "w");
  VASSERT_NOT_NULL(file);
  fputs(text, file);
  VASSERT_INT_EQ(fclose(file), 0);
}

// Measures a fresh driver with the table in `path`; writes the table it finds to `out_path`, where that is not NULL.
static void measure_table(const char *path, const char *out_path, probe_cost_line out_lines[PROBE_COST_LINES]) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.cost_file = path;
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  const probe_settings settings = probe_few(rig.clock);
  static probe_latency latency;
  static probe_facts facts;
  memset(&latency, 0, sizeof(latency));
  probe_measure(&rig, &settings, &latency);
  probe_cost_of(&latency, out_lines);
  probe_facts_read(&rig, &settings, &facts);
  if (out_path != NULL) {
    FILE *file = fopen(out_path, "w");
    if (file == NULL) VADD_FAILURE("%s can't be written", out_path);
    if (file != NULL) probe_cost_write(file, &facts, 0, &latency);
    if (file != NULL) VEXPECT_INT_EQ(fclose(file), 0);
  }
  probe_off_host(&rig);
}

VTEST(ProbeCost, TheTableThatIsWrittenIsTheOneThatWasMeasured) {
  char given[600], written[600];
  snprintf(given, sizeof(given), "%s/probe-given.cost", vtest_temp_dir());
  snprintf(written, sizeof(written), "%s/probe-written.cost", vtest_temp_dir());
  write_text(given, table);
  probe_cost_line first[PROBE_COST_LINES], second[PROBE_COST_LINES];
  measure_table(given, written, first);
  VASSERT_NO_FAILURE();
  measure_table(written, NULL, second);
  VASSERT_NO_FAILURE();
  for (size_t i = 0; i < PROBE_COST_LINES; i++) {
    VTRACE("%s", first[i].name);
    const char *row = strstr(table, first[i].name);
    VASSERT_NOT_NULL(row);
    const double expected = strtod(row + strlen(first[i].name), NULL);
    VEXPECT_TRUE(first[i].known);
    VEXPECT_NEAR(first[i].us, expected, 1e-6);
    VEXPECT_TRUE(second[i].known);
    VEXPECT_NEAR(second[i].us, expected, 1e-6);
  }
  unlink(given);
  unlink(written);
}

VTEST(ProbeCost, WhatWasNotMeasuredHasNoLine) {
  static probe_latency latency;
  static probe_facts facts;
  latency.figures[0] =
      (probe_figure){.call = VMP_CALL_mem_create, .bytes = 2 * MIB, .spread = {5, 40, 31, 32, 33, 34, 35}};
  latency.figures[1] = (probe_figure){.call = VMP_CALL_mem_set_access,
                                      .bytes = 2 * MIB,
                                      .mappings = 1,
                                      .is_run = true,
                                      .spread = {5, 0, 9, 9, 9, 9, 9}};
  latency.num_figures = 2;
  facts.is_host = true;
  snprintf(facts.devices[0].name, sizeof(facts.devices[0].name), "test device");
  char *text = NULL;
  size_t bytes = 0;
  FILE *out = open_memstream(&text, &bytes);
  VASSERT_NOT_NULL(out);
  probe_cost_write(out, &facts, 0, &latency);
  fclose(out);
  VEXPECT_STR_CONTAINS(text, "\nmem_create               33.000\n");  // the median; one size is no line
  VEXPECT_STR_CONTAINS(text, "\ncreate_per_mib           0.000\n");
  // One run tells nothing of what a mapping costs.
  VEXPECT_STR_CONTAINS(text, "\n# mem_set_access was not measured; its default holds\n");
  VEXPECT_STR_CONTAINS(text, "\n# set_access_per_mapping was not measured; its default holds\n");
  VEXPECT_STR_CONTAINS(text, "NOT A GPU'S");
  free(text);
}

// ---- figures ----

VTEST(ProbeLatency, SmallDevicesAreMeasuredAsFarAsTheyGo) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.devices[0] = (vmp_host_device){.memory_bytes = 40 * MIB, .granule_bytes = 2 * MIB};
  options.num_devices = 1;
  options.max_reserve_bytes = 2 * GIB;
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  const probe_settings settings = probe_few(rig.clock);
  static probe_latency latency;
  memset(&latency, 0, sizeof(latency));
  probe_measure(&rig, &settings, &latency);
  uint64_t largest_chunk = 0;
  bool long_run = false, long_range = false;
  for (size_t i = 0; i < latency.num_figures; i++) {
    const probe_figure *f = &latency.figures[i];
    VEXPECT_FALSE(f->failed);
    if (f->call == VMP_CALL_mem_create && f->bytes > largest_chunk) largest_chunk = f->bytes;
    if (f->call == VMP_CALL_mem_set_access && f->mappings == 64) {
      long_run = true;
      VEXPECT_UINT_EQ(f->spread.samples, 0);
      VEXPECT_STR_EQ(f->why, "cuMemCreate gave 2 OUT_OF_MEMORY");
    }
    if (f->call == VMP_CALL_mem_address_reserve && f->bytes == 64 * GIB) {
      long_range = true;
      VEXPECT_STR_EQ(f->why, "cuMemAddressReserve gave 2 OUT_OF_MEMORY");
    }
  }
  VEXPECT_UINT_EQ(largest_chunk, 8 * MIB);  // 32 MiB are more than half of the device
  VEXPECT_TRUE(long_run);
  VEXPECT_TRUE(long_range);
  VEXPECT_NEAR(latency.set_access.fixed, 5, 1e-6);  // the host driver's defaults, from runs of 1 and 8
  VEXPECT_NEAR(latency.set_access.share, 30, 1e-6);
  probe_off_host(&rig);
}

VTEST(ProbeFacts, DevicesDiffer) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 3;
  options.devices[0] = (vmp_host_device){.memory_bytes = 4 * GIB, .granule_bytes = 64 << 10, .unreachable = 4};
  options.devices[1] = (vmp_host_device){.memory_bytes = 8 * GIB, .granule_bytes = 2 * MIB, .no_posix_fd = 1};
  options.devices[2] = (vmp_host_device){.memory_bytes = 2 * GIB, .no_vmm = 1};
  options.max_reserve_bytes = 96 * GIB;
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  const probe_settings settings = probe_few(rig.clock);
  static probe_facts facts;
  probe_facts_read(&rig, &settings, &facts);
  VEXPECT_TRUE(facts.is_host);
  VEXPECT_INT_EQ(facts.num_devices, 3);
  VEXPECT_UINT_EQ(facts.failures, 0);
  VEXPECT_STR_EQ(facts.devices[1].name, "vmpool host device 1");
  VEXPECT_UINT_EQ(facts.devices[0].granularity_minimum.value, 64 << 10);
  VEXPECT_UINT_EQ(facts.devices[1].granularity_recommended.value, 2 * MIB);
  VEXPECT_INT_EQ(facts.devices[2].granularity_minimum.code, VMP_CU_NOT_SUPPORTED);
  VEXPECT_UINT_EQ(facts.devices[2].total_bytes.value, 2 * GIB);
  VEXPECT_UINT_EQ(facts.devices[0].peers, 2);  // device 1 alone
  VEXPECT_UINT_EQ(facts.devices[1].peers, 5);
  VEXPECT_INT_EQ(facts.devices[0].handle_codes[1], VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(facts.devices[1].handle_codes[1], VMP_CU_NOT_SUPPORTED);
  VEXPECT_INT_EQ(facts.devices[0].handle_codes[2], VMP_CU_NOT_SUPPORTED);
  VEXPECT_UINT_EQ(facts.free_bytes.value, 4 * GIB);
  VEXPECT_UINT_EQ(facts.largest_bytes, 96 * GIB);
  VEXPECT_UINT_GT(facts.refused_bytes, 96 * GIB);
  VEXPECT_UINT_LE(facts.refused_bytes, 96 * GIB + 96 * GIB / 64);
  VEXPECT_INT_EQ(facts.refused_code, VMP_CU_OUT_OF_MEMORY);
  probe_off_host(&rig);
}

// ---- work ----

// On the virtual clock a chain of n fills costs 3 n, its event 1, the wait 5. Four fills take 18 us; to last 1000 us,
// 1.25 * 4 * 1000 / 18 = 277 should do, take 837, and are doubled.
VTEST(ProbeWork, LastsLongEnough) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 1;
  options.devices[0].granule_bytes = 4096;
  probe_rig rig;
  probe_on_host(&rig, &options);
  VASSERT_NO_FAILURE();
  probe_settings settings = probe_few(rig.clock);
  settings.work_bytes = 10000;
  settings.work_us = 1000;
  probe_work work;
  VEXPECT_INT_EQ(probe_work_make(&rig, &settings, 4096, &work), VMP_CU_SUCCESS);
  VEXPECT_UINT_EQ(work.bytes, 8192);  // whole granules
  VEXPECT_UINT_EQ(work.fills, 554);
  VEXPECT_NEAR(work.took_us, 3 * 554 + 6, 1e-6);
  VEXPECT_INT_EQ(probe_work_start(&rig, &work), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(probe_work_query(&rig, &work), VMP_CU_NOT_READY);
  VEXPECT_INT_EQ(probe_work_wait(&rig, &work), VMP_CU_SUCCESS);
  VEXPECT_INT_EQ(probe_work_query(&rig, &work), VMP_CU_SUCCESS);
  int code = -1;
  VEXPECT_TRUE(probe_work_intact(&rig, &work, &code));
  VEXPECT_INT_EQ(vmp_drv_memset_d8(rig.driver, work.ptr + work.bytes - 1, 0, 1), VMP_CU_SUCCESS);
  VEXPECT_FALSE(probe_work_intact(&rig, &work, &code));
  VEXPECT_INT_EQ(code, VMP_CU_SUCCESS);
  VEXPECT_UINT_EQ(probe_clear(&rig), 0);
  settings.work_us = 1000000;  // more than a queue holds
  VEXPECT_INT_EQ(probe_work_make(&rig, &settings, 0, &work), VMP_CU_SUCCESS);
  VEXPECT_UINT_EQ(work.fills, 768);
  probe_off_host(&rig);
}
