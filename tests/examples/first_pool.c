#include <stdio.h>
#include "pool/vmpool.h"
int main(void) {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.conf = "driver:host";  // leave this line out to run on a GPU
  vmp_pool *pool;
  void *block;
  if (vmp_pool_create(&pool, &options) < 0 || vmp_alloc(pool, &block, 70 << 20, NULL) < 0) {
    return fprintf(stderr, "%s\n", vmp_last_error()->message), 1;
  }
  vmp_pool_stats_data stats = VMP_POOL_STATS_INIT;
  vmp_pool_stats(pool, &stats);
  printf("%zu MiB live, %zu mapped, %zu reserved\n", stats.live >> 20, stats.mapped >> 20, stats.reserved_va >> 20);
  return vmp_free(pool, block, NULL) < 0 || vmp_pool_destroy(pool) < 0;
}
