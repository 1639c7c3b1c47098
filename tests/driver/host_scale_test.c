// An 80 GiB device fully mapped in 2 MiB chunks, freed in random order and mapped again: in ledger mode with
// addresses of the process and above 2^48, and in exposed mode on a packed range.
#include <stdlib.h>

#include "tests/driver/host_rig.h"
#include "tests/support/vtest_rng.h"

#define CHUNKS ((size_t)40960)  // x 2 MiB = 80 GiB

static uint32_t *shuffled(uint64_t seed) {
  uint32_t *order = malloc(CHUNKS * sizeof *order);
  if (order == NULL) return NULL;
  vtest_rng rng = vtest_rng_make(seed);
  for (size_t i = 0; i < CHUNKS; i++) {
    size_t j = (size_t)vtest_rng_below(&rng, i + 1);
    order[i] = order[j];
    order[j] = (uint32_t)i;
  }
  return order;
}

static void fill_and_empty(const vmp_host_options *options, size_t reserve_bytes) {
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, options);
  vmp_driver *d = rig.driver;
  vmp_cu_ptr ptr = 0;
  int code = vmp_drv_mem_address_reserve(d, &ptr, reserve_bytes, 0, 0, 0);
  if (code != 0 && options->mode == VMP_HOST_EXPOSED) {
    host_rig_teardown(&rig);
    VSKIP("this process can't hold %zu bytes of addresses", reserve_bytes);
  }
  VASSERT_CUDA(code);
  uint32_t *order = shuffled(vtest_seed(11));
  vmp_cu_handle *handles = malloc(CHUNKS * sizeof *handles);
  VASSERT_TRUE(order != NULL && handles != NULL);
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_access_desc grant = host_grant(0, 3);
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < CHUNKS; i++) {
      if (round == 0) VASSERT_CUDA(vmp_drv_mem_create(d, &handles[i], G, &prop, 0));
      VASSERT_CUDA(vmp_drv_mem_map(d, ptr + i * G, G, 0, handles[i], 0));
    }
    VASSERT_CUDA(vmp_drv_mem_set_access(d, ptr, CHUNKS * G, &grant, 1));
    vmp_cu_handle more = 0;
    VEXPECT_CODE(vmp_drv_mem_create(d, &more, G, &prop, 0), VMP_CU_OUT_OF_MEMORY);
    VEXPECT_CUDA(vmp_host_touch(d, 0, NULL, ptr, CHUNKS * G, true));
    VEXPECT_CUDA(vmp_drv_ctx_synchronize(d));
    VEXPECT_UINT_EQ(host_census(&rig).mapped_bytes, GIB(80));
    host_expect_consistent(&rig);
    for (size_t i = 0; i < CHUNKS; i++) VASSERT_CUDA(vmp_drv_mem_unmap(d, ptr + order[i] * G, G));
    VEXPECT_UINT_EQ(host_census(&rig).mappings, 0);
    host_expect_consistent(&rig);
  }
  for (size_t i = 0; i < CHUNKS; i++) VASSERT_CUDA(vmp_drv_mem_release(d, handles[order[i]]));
  VEXPECT_CUDA(vmp_drv_mem_address_free(d, ptr, reserve_bytes));
  VEXPECT_UINT_EQ(host_census(&rig).physical_bytes, 0);
  VEXPECT_UINT_EQ(host_counters(&rig).violations, 0);
  free(order);
  free(handles);
  host_rig_teardown(&rig);
}

VTEST(HostScale, EightyGibInLedgerMode) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  fill_and_empty(&options, GIB(1280));
}

VTEST(HostScale, EightyGibWithHighAddresses) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.ledger_high = 1;
  fill_and_empty(&options, GIB(1280));
}

VTEST(HostScale, EightyGibExposedOnAPackedRange) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.mode = VMP_HOST_EXPOSED;
  fill_and_empty(&options, GIB(80));
}

VTEST(HostScale, AnUnlimitedDeviceCostsNothingUpFront) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 1;
  options.devices[0].memory_bytes = UINT64_MAX;
  options.address_bytes = UINT64_C(1) << 52;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, (size_t)1 << 51);
  vmp_cu_handle handles[64];
  for (size_t i = 0; i < 64; i++) handles[i] = host_map(&rig, ptr + i * GIB(4096), GIB(16));  // 1 TiB
  VEXPECT_UINT_EQ(host_census(&rig).physical_bytes, GIB(1024));
  VASSERT_CUDA(vmp_host_poke(rig.driver, ptr + 63 * GIB(4096) + GIB(15), "far", 4));
  char text[4] = "";
  VASSERT_CUDA(vmp_host_peek(rig.driver, ptr + 63 * GIB(4096) + GIB(15), text, 4));
  VEXPECT_STR_EQ(text, "far");
  for (size_t i = 0; i < 64; i++) VEXPECT_CUDA(vmp_drv_mem_release(rig.driver, handles[i]));
  host_rig_teardown(&rig);
}

VTEST(HostScale, MillionsOfQueuedOperations) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_cu_ptr ptr = host_reserve(&rig, 64 * G);
  for (size_t i = 0; i < 64; i++) (void)host_map(&rig, ptr + i * G, G);
  uint64_t count = vtest_ops(2000000);
  vmp_cu_stream streams[3];
  for (int i = 0; i < 3; i++) streams[i] = host_stream(&rig, VMP_CU_STREAM_NON_BLOCKING);
  vtest_rng rng = vtest_rng_make(vtest_seed(3));
  for (uint64_t i = 0; i < count; i++) {
    uint64_t at = vtest_rng_below(&rng, 60 * G);
    VASSERT_CUDA(vmp_host_touch(rig.driver, 0, streams[i % 3], ptr + at, vtest_rng_range(&rng, 1, 4 * G), i % 2 == 0));
  }
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, 0);
  VEXPECT_CUDA(vmp_drv_ctx_synchronize(rig.driver));
  VEXPECT_UINT_EQ(host_counters(&rig).operations_done, count);
  VEXPECT_UINT_EQ(host_counters(&rig).bad_touches, 0);
  VEXPECT_CUDA(vmp_drv_mem_unmap(rig.driver, ptr, 64 * G));
  VEXPECT_UINT_EQ(host_counters(&rig).unmaps_under_work, 0);
  host_rig_teardown(&rig);
}
