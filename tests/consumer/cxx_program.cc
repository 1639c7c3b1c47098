// cxx_program.cc: the same from C++, with a pool that owns its driver.
#include <cstdio>
#include <cstring>

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"

int main() {
  vmp_pool_options options = VMP_POOL_OPTIONS_INIT;
  options.conf = "driver:host";
  vmp_pool *pool = nullptr;
  vmp_status status = vmp_pool_create(&pool, &options);
  if (status != VMP_OK) {
    std::printf("FAILED: %s: %s\n", vmp_status_string(status), vmp_last_error()->message);
    return 1;
  }
  bool good = std::strcmp(vmp_driver_name(vmp_pool_driver(pool)), "host") == 0;
  void *blocks[64];
  for (int i = 0; i < 64; ++i) {
    good = good && vmp_alloc(pool, &blocks[i], static_cast<size_t>(1) << (i % 26), nullptr) == VMP_OK;
  }
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  for (void *block : blocks) good = good && vmp_free(pool, block, nullptr) == VMP_OK;
  good = good && vmp_pool_check(pool, nullptr) == VMP_OK;
  good = good && vmp_pool_trim(pool, 0, &report) == VMP_OK;
  good = good && vmp_pool_destroy(pool) == VMP_OK;
  if (!good) std::printf("FAILED: %s\n", vmp_last_error()->message);
  return good ? 0 : 1;
}
