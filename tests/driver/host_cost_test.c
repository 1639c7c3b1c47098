// The virtual clock: figures by hand from the table, cost files, exact call counts.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/driver/host_rig.h"

static double clock_us(host_rig *rig) { return host_counters(rig).modelled_us; }

#define VEXPECT_COSTS(rig, us, call)                   \
  do {                                                 \
    double before_ = clock_us(rig);                    \
    VEXPECT_CUDA(call);                                \
    VEXPECT_NEAR(clock_us(rig) - before_, us, 0.0005); \
  } while (0)

VTEST(HostCost, DefaultsOfSectionB) {
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.num_devices = 2;
  host_rig rig = {NULL, NULL};
  host_rig_open(&rig, &options);
  vmp_driver *d = rig.driver;
  vmp_cu_ptr ptr = 0;
  vmp_cu_handle handles[4];
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_access_desc both[2] = {host_grant(0, 3), host_grant(1, 3)};
  VEXPECT_COSTS(&rig, 10, vmp_drv_mem_address_reserve(d, &ptr, GIB(8), 0, 0, 0));
  for (size_t i = 0; i < 4; i++) {
    VEXPECT_COSTS(&rig, 30, vmp_drv_mem_create(d, &handles[i], G << i, &prop, 0));  // by number, not by bytes
    VEXPECT_COSTS(&rig, 1.5, vmp_drv_mem_map(d, ptr + (G << i), G << i, 0, handles[i], 0));
  }
  VEXPECT_COSTS(&rig, 5 + 30.0 * 4 * 2, vmp_drv_mem_set_access(d, ptr + G, 15 * G, both, 2));  // mappings x devices
  VEXPECT_COSTS(&rig, 5 + 30, vmp_drv_mem_set_access(d, ptr + G, G, both, 1));                 // again: full price
  VEXPECT_COSTS(&rig, 20 * 4, vmp_drv_mem_unmap(d, ptr + G, 15 * G));
  for (size_t i = 0; i < 4; i++) VEXPECT_COSTS(&rig, 20, vmp_drv_mem_release(d, handles[i]));
  VEXPECT_COSTS(&rig, 1 + 0.5 * 8, vmp_drv_mem_address_free(d, ptr, GIB(8)));
  size_t number = 0;
  VEXPECT_COSTS(&rig, 6, vmp_drv_mem_get_info(d, &number, &number));
  VEXPECT_UINT_EQ(atomic_load(&d->calls[VMP_CALL_mem_create]), 4);
  VEXPECT_UINT_EQ(atomic_load(&d->calls[VMP_CALL_mem_set_access]), 2);
  host_rig_teardown(&rig);
}

VTEST_F(HostCost, AnInjectedFaultCostsNothing, host_rig) {
  double before = clock_us(f);
  vmp_host_fault fault = {VMP_CALL_mem_address_reserve, 1, 2, false};
  VASSERT_TRUE(vmp_host_inject(f->driver, &fault));
  vmp_cu_ptr ptr = 0;
  VEXPECT_CODE(vmp_drv_mem_address_reserve(f->driver, &ptr, G, 0, 0, 0), 2);
  VEXPECT_NEAR(clock_us(f), before, 0);
}

// ---- files ----

static void write_file(char *path, size_t size, const char *text) {
  (void)snprintf(path, size, "%s/vmpool_cost_XXXXXX", vtest_temp_dir());
  int fd = mkstemp(path);
  VASSERT_TRUE(fd >= 0);
  VASSERT_UINT_EQ((size_t)write(fd, text, strlen(text)), strlen(text));
  close(fd);
}

static vmp_status open_with(vmp_driver **driver, const char *text) {
  char path[512];
  write_file(path, sizeof path, text);
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.cost_file = path;
  vmp_status status = vmp_host_open(driver, &options);
  (void)unlink(path);
  return status;
}

VTEST(HostCost, AFileChangesWhatItNames) {
  vmp_driver *d = NULL;
  VASSERT_OK(open_with(&d,
                       "# measured on a device\n"
                       "mem_create 8.5\n"
                       "create_per_mib 0.25   # scrubbing\n"
                       "\n"
                       "\tset_access_per_mapping\t3\n"
                       "unmap_per_mapping 2\n"
                       "mem_unmap 7\n"
                       "address_free_per_gib 100"));
  VASSERT_CUDA(vmp_drv_init(d, 0));
  host_rig rig = {d, NULL};
  vmp_cu_handle handle = 0;
  vmp_cu_ptr ptr = 0;
  vmp_cu_mem_prop prop = host_prop(0);
  vmp_cu_access_desc grant = host_grant(0, 3);
  VEXPECT_COSTS(&rig, 10, vmp_drv_mem_address_reserve(d, &ptr, GIB(2), 0, 0, 0));
  VEXPECT_COSTS(&rig, 8.5 + 0.25 * 32, vmp_drv_mem_create(d, &handle, MIB(32), &prop, 0));
  VEXPECT_COSTS(&rig, 1.5, vmp_drv_mem_map(d, ptr, MIB(32), 0, handle, 0));
  VEXPECT_COSTS(&rig, 5 + 3, vmp_drv_mem_set_access(d, ptr, MIB(32), &grant, 1));
  VEXPECT_COSTS(&rig, 7 + 2, vmp_drv_mem_unmap(d, ptr, MIB(32)));
  VEXPECT_COSTS(&rig, 1 + 200, vmp_drv_mem_address_free(d, ptr, GIB(2)));
  vmp_driver_close(d);
}

static void expect_bad_file(const char *text, const char *part) {
  vmp_driver *driver = NULL;
  VEXPECT_STATUS(open_with(&driver, text), VMP_ERROR_CONFIG);
  VEXPECT_NULL(driver);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, part);
}

VTEST(HostCost, ABadLineIsNamed) {
  expect_bad_file("mem_create 1\nmem_creat 2\n", ":2: 'mem_creat' is no call");
  expect_bad_file("mem_create\n", ":1: a line is a name and microseconds");
  expect_bad_file("mem_create 1 2\n", ":1: a line is a name and microseconds");
  expect_bad_file("mem_create -1\n", "'-1' is not a number");
  expect_bad_file("mem_create nan\n", "'nan' is not a number");
  expect_bad_file("mem_create 1e300\n", "'1e300' is not a number");
  expect_bad_file("mem_create 5us\n", "'5us' is not a number");
  char line[400];
  memset(line, 'x', sizeof line - 1);
  line[sizeof line - 1] = '\0';
  expect_bad_file(line, "longer than");
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.cost_file = "/nonexistent/costs";
  vmp_driver *driver = NULL;
  VEXPECT_STATUS(vmp_host_open(&driver, &options), VMP_ERROR_IO);
  VEXPECT_STR_CONTAINS(vmp_last_error()->message, "/nonexistent/costs");
}
