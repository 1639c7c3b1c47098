// config_test.c: making pools and drivers: options from every source, devices that can't carry a pool, drivers opened
// by the pool itself.
#include <stdlib.h>
#include <string.h>

#include "tests/pool/pool_rig.h"

typedef struct env_rig {
  pool_rig rig;
} env_rig;
static void env_rig_setup(env_rig *f) {
  (void)f;
  (void)unsetenv("VMP_CONF");
}
static void env_rig_teardown(env_rig *f) {
  (void)unsetenv("VMP_CONF");
  pool_rig_teardown(&f->rig);
}

VTEST_F(Config, EnvironmentBeatsConfBeatsFields, env_rig) {
  rig_open_driver(&f->rig, 8 * GIB);
  VASSERT_NO_FAILURE();
  VASSERT_INT_EQ(setenv("VMP_CONF", "growth:8MiB", 1), 0);
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = f->rig.driver;
  options.conf = "growth:4MiB,chunk_max:4MiB";
  options.growth_bytes = 2 * MIB;
  options.chunk_max_bytes = 2 * MIB;
  options.slab_max_bytes = 4096;
  VASSERT_OK(vmp_pool_create(&f->rig.pool, &options));
  const char *config = vmp_pool_config(f->rig.pool);
  VEXPECT_STR_CONTAINS(config, "growth:8MiB (VMP_CONF)\n");
  VEXPECT_STR_CONTAINS(config, "chunk_max:4MiB (conf)\n");
  VEXPECT_STR_CONTAINS(config, "slab_max:4KiB (field)\n");
  VEXPECT_STR_CONTAINS(config, "reserve:128GiB (default)\n");
  VEXPECT_STR_CONTAINS(config, "hard_limit:none (default)\n");
  VEXPECT_STR_LACKS(config, "driver:");
}

VTEST_F(Config, MistakesAreNamed, env_rig) {
  rig_open_driver(&f->rig, 8 * GIB);
  VASSERT_NO_FAILURE();
  VEXPECT_STATUS(rig_create(&f->rig, "chunk_mx:4MiB"), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "did you mean chunk_max?");
  VEXPECT_STATUS(rig_create(&f->rig, "chunk_max:3MiB"), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "2MiB or 4MiB");
  VASSERT_INT_EQ(setenv("VMP_CONF", "hard_limits:1GiB", 1), 0);
  VEXPECT_STATUS(rig_create(&f->rig, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message,
                       "VMP_CONF: there is no option \"hard_limits\"; did you mean hard_limit?");
  VEXPECT_NULL(f->rig.pool);
}

VTEST_F(Config, ThePoolOpensItsOwnDriver, env_rig) {
  VASSERT_INT_EQ(setenv("VMP_CONF", "driver:host,host_device:1GiB,host_granule:64KiB", 1), 0);
  vmp_pool *pool = NULL;
  VASSERT_OK(vmp_pool_create(&pool, NULL));
  VEXPECT_STR_EQ(vmp_driver_name(vmp_pool_driver(pool)), "host");
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  VASSERT_OK(vmp_pool_stats(pool, &stats));
  VEXPECT_UINT_EQ(stats.device_total, GIB);
  VEXPECT_UINT_EQ(stats.granule, 64 * KIB);
  void *ptr = NULL;
  VEXPECT_OK(vmp_alloc(pool, &ptr, 100000, NULL));
  VEXPECT_OK(vmp_free(pool, ptr, NULL));
  VEXPECT_OK(vmp_pool_destroy(pool));
}

VTEST_F(Config, DriverOpen, env_rig) {
  vmp_driver *driver = NULL;
  VASSERT_INT_EQ(setenv("VMP_CONF", "driver:host,host_num_devices:3", 1), 0);
  VASSERT_OK(vmp_driver_open(&driver, NULL));  // the environment decides where the caller doesn't
  VEXPECT_STR_EQ(vmp_driver_name(driver), "host");
  int count = 0;
  VEXPECT_INT_EQ(vmp_drv_device_get_count(driver, &count), 0);
  VEXPECT_INT_EQ(count, 3);
  vmp_driver_close(driver);

  // A named kind is kept, whatever the environment says, and CUDA is never replaced silently.
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = VMP_DRIVER_CUDA;
  options.cuda_library = "/no/such/libcuda.so.1";
  VEXPECT_STATUS(vmp_driver_open(&driver, &options), VMP_ERROR_NO_DRIVER);
  options = (vmp_driver_options)VMP_DRIVER_OPTIONS_INIT;
  options.kind = VMP_DRIVER_HOST;
  options.host_num_devices = 99;
  VEXPECT_STATUS(vmp_driver_open(&driver, &options), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "at most 16");
  VASSERT_INT_EQ(setenv("VMP_CONF", "driver:hots", 1), 0);
  VEXPECT_STATUS(vmp_driver_open(&driver, NULL), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "did you mean host?");
  VEXPECT_STATUS(vmp_driver_open(NULL, NULL), VMP_ERROR_INVALID_VALUE);
}

VTEST_F(Config, ADriverAndAnotherKindContradict, env_rig) {
  rig_open_driver(&f->rig, 8 * GIB);
  VASSERT_NO_FAILURE();
  VEXPECT_STATUS(rig_create(&f->rig, "driver:cuda"), VMP_ERROR_CONFIG);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "leave one out");
  VASSERT_INT_EQ(setenv("VMP_CONF", "driver:cuda", 1), 0);  // is for pools that open their own
  VASSERT_OK(rig_create(&f->rig, "driver:host"));
}

VTEST_F(Config, DevicesThatCannotCarryAPool, env_rig) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  options.devices[0].no_vmm = 1;
  options.ledger_high = 1;
  VASSERT_OK(vmp_host_open(&f->rig.driver, &options));
  VASSERT_INT_EQ(vmp_drv_init(f->rig.driver, 0), 0);
  VEXPECT_STATUS(rig_create(&f->rig, NULL), VMP_ERROR_NO_VMM);
  VEXPECT_STATUS(rig_create(&f->rig, "device:2"), VMP_ERROR_NO_DEVICE);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "device 2");
  VASSERT_OK(rig_create(&f->rig, "device:1"));
}

VTEST_F(Config, UnlimitedDevice, env_rig) {
  rig_open(&f->rig, UINT64_MAX, NULL);
  VASSERT_NO_FAILURE();
  vmp_pool_stats_data stats = rig_stats(&f->rig);
  VEXPECT_UINT_EQ(stats.reserved_va, UINT64_C(16) << 40);
  VEXPECT_UINT_LE(stats.metadata, 16 * MIB);
  void *ptr = rig_alloc(&f->rig, 300 * GIB, NULL);
  rig_free(&f->rig, ptr, NULL);
}

VTEST_F(Config, Version, env_rig) {
  VEXPECT_INT_EQ(vmp_version(), VMP_VERSION_MAJOR * 1000000 + VMP_VERSION_MINOR * 1000 + VMP_VERSION_PATCH);
}
