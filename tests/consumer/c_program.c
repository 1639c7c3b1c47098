// c_program.c: a pool on the host driver, from C, by the public headers alone.
#include <stdio.h>
#include <string.h>

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"

static int failures;

static void expect(int holds, const char *what) {
  if (holds) return;
  failures++;
  printf("FAILED: %s (last error: %s)\n", what, vmp_last_error()->message);
}

static vmp_driver *open_host_driver(void) {
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = VMP_DRIVER_HOST;
  options.host_device_bytes = UINT64_C(1) << 30;
  vmp_driver *driver = NULL;
  expect(vmp_driver_open(&driver, &options) == VMP_OK, "the host driver opens");
  return driver;
}

static void use_pool(vmp_driver *driver) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.driver = driver;
  vmp_pool *pool = NULL;
  expect(vmp_pool_create(&pool, &options) == VMP_OK, "a pool is made");
  if (!pool) return;

  vmp_stream stream = NULL;
  void *block = NULL;
  expect(vmp_host_stream_create(driver, 0, &stream) == VMP_OK, "a stream is made");
  expect(vmp_alloc(pool, &block, 5000, stream) == VMP_OK && block, "memory is handed out");
  char in[5000], out[5000];
  memset(in, 'v', sizeof(in));
  memset(out, 0, sizeof(out));
  expect(vmp_host_copy_in(driver, 0, block, in, sizeof(in), stream) == VMP_OK, "it can be written");
  expect(vmp_host_copy_out(driver, 0, out, block, sizeof(out), stream) == VMP_OK, "it can be read");
  expect(vmp_host_stream_synchronize(driver, 0, stream) == VMP_OK, "the stream finishes");
  expect(memcmp(in, out, sizeof(in)) == 0, "what was written is read");

  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  expect(vmp_pool_stats(pool, &stats) == VMP_OK && stats.requested == 5000, "the statistics tell the request");
  expect(vmp_pool_destroy(pool) == VMP_ERROR_BUSY, "a pool with a live block is not destroyed");
  expect(vmp_free(pool, block, stream) == VMP_OK, "it is freed");
  expect(vmp_free(pool, block, stream) == VMP_ERROR_DOUBLE_FREE, "but once");
  expect(vmp_pool_check(pool, NULL) == VMP_OK, "the pool is whole");
  expect(vmp_stream_retired(pool, stream) == VMP_OK, "the stream retires");
  expect(vmp_host_stream_destroy(driver, stream) == VMP_OK, "and goes");
  expect(vmp_pool_destroy(pool) == VMP_OK, "the pool goes");
}

int main(void) {
  vmp_driver *driver = open_host_driver();
  if (driver) use_pool(driver);
  vmp_driver_close(driver);
  return failures == 0 ? 0 : 1;
}
