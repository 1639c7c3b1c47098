// Living inside a limit: a refusal that says why, and memory that goes back to the device.
#include <stdio.h>

#include "pool/vmpool.h"

#define MIB ((size_t)1 << 20)

static int fail(const char *what) {
  fprintf(stderr, "%s: %s\n", what, vmp_last_error()->message);
  return 1;
}

static int run(vmp_pool *pool) {
  void *blocks[4];
  for (int i = 0; i < 4; i++) {
    if (vmp_alloc(pool, &blocks[i], 16 * MIB, NULL) < 0) return fail("alloc");
  }
  void *more;
  const vmp_status status = vmp_alloc(pool, &more, 1 * MIB, NULL);
  printf("a fifth block: %s\n", vmp_status_string(status));
  if (status >= 0) return 1;
  // Free pieces lie apart, but any free memory backs any address: 32 MiB are to be had in one block.
  if (vmp_free(pool, blocks[0], NULL) < 0 || vmp_free(pool, blocks[2], NULL) < 0) return fail("free");
  if (vmp_alloc(pool, &more, 32 * MIB, NULL) < 0) return fail("alloc 32 MiB");
  printf("32 MiB from two free pieces of 16\n");
  if (vmp_free(pool, more, NULL) < 0 || vmp_free(pool, blocks[1], NULL) < 0 || vmp_free(pool, blocks[3], NULL) < 0)
    return fail("free");
  return 0;
}

int main(void) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.conf = "driver:host,host_device:1GiB,hard_limit:64MiB,chunk_max:2MiB";
  vmp_pool *pool;
  if (vmp_pool_create(&pool, &options) < 0) return fail("create");
  const int status = run(pool);
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  if (vmp_pool_trim(pool, 0, &report) < 0) return fail("trim");
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  if (vmp_pool_stats(pool, &stats) < 0) return fail("stats");
  printf("peak mapped %zu MiB; trim gave back %zu MiB or waits for work on %zu MiB\n",
         (size_t)(stats.peak_mapped / MIB), (size_t)(report.released_bytes / MIB),
         (size_t)(report.kept_pending_bytes / MIB));
  return vmp_pool_destroy(pool) < 0 ? fail("destroy") : status;
}
