// A block that two streams use: the pool hands its memory out again only behind the work of both.
//
// Runs on the host driver, whose streams come from vmpool_host.h. On a GPU they are CUDA's, and so is the work.
#include <stdio.h>

#include "pool/vmpool_host.h"

#define MIB ((size_t)1 << 20)

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, vmp_last_error()->message);
  return 1;
}

// Producer writes a block, consumer reads it; then the producer frees it and another block is wanted at once.
static int run(vmp_driver *driver, vmp_pool *pool, vmp_stream producer, vmp_stream consumer) {
  void *block, *next;
  if (vmp_alloc(pool, &block, 8 * MIB, producer) < 0) return fail("alloc");
  if (vmp_host_fill(driver, 0, block, 42, 8 * MIB, producer) < 0) return fail("fill");
  if (vmp_host_kernel(driver, 0, block, 8 * MIB, 0, consumer) < 0) return fail("kernel");
  // The free is ordered on the producer's stream; the consumer's use has to be told.
  if (vmp_record_use(pool, block, consumer) < 0) return fail("record_use");
  if (vmp_free(pool, block, producer) < 0) return fail("free");
  if (vmp_alloc(pool, &next, 8 * MIB, producer) < 0) return fail("alloc again");
  if (vmp_host_kernel(driver, 0, next, 8 * MIB, 1, producer) < 0) return fail("kernel");
  if (vmp_free(pool, next, producer) < 0) return fail("free");
  if (vmp_host_stream_synchronize(driver, 0, producer) < 0) return fail("synchronize");
  if (vmp_host_stream_synchronize(driver, 0, consumer) < 0) return fail("synchronize");
  vmp_host_work_counts_data work = VMP_HOST_WORK_COUNTS_INIT;
  if (vmp_host_work_counts(driver, &work) < 0) return fail("counts");
  printf("%llu operations done, %llu bad touches\n", (unsigned long long)work.done,
         (unsigned long long)work.bad_touches);
  return work.bad_touches != 0;
}

int main(void) {
  vmp_driver_options driver_options = VMP_DRIVER_OPTIONS_INIT;
  driver_options.kind = VMP_DRIVER_HOST;
  vmp_driver *driver;
  if (vmp_driver_open(&driver, &driver_options) < 0) return fail("driver");
  vmp_pool_options pool_options = VMP_POOL_OPTIONS_INIT;
  pool_options.driver = driver;
  vmp_pool *pool;
  if (vmp_pool_create(&pool, &pool_options) < 0) return fail("pool");
  vmp_stream producer, consumer;
  if (vmp_host_stream_create(driver, 0, &producer) < 0 || vmp_host_stream_create(driver, 0, &consumer) < 0)
    return fail("stream");
  const int status = run(driver, pool, producer, consumer);
  if (vmp_pool_destroy(pool) < 0) return fail("destroy");
  vmp_host_stream_destroy(driver, producer);
  vmp_host_stream_destroy(driver, consumer);
  vmp_driver_close(driver);
  return status;
}
