// host_api_test.c: pool/vmpool_host.h, as a program without a GPU uses it: only public calls.
#include <string.h>

#include "pool/vmpool.h"
#include "pool/vmpool_host.h"
#include "tests/support/vtest.h"

#define MIB (UINT64_C(1) << 20)

typedef struct rig {
  vmp_driver *driver;
  vmp_pool *pool;
  vmp_stream stream;
} rig;

static void rig_setup(rig *f) {
  vmp_driver_options options = VMP_DRIVER_OPTIONS_INIT;
  options.kind = VMP_DRIVER_HOST;
  options.host_device_bytes = 256 * MIB;
  options.host_num_devices = 2;
  VASSERT_OK(vmp_driver_open(&f->driver, &options));
  vmp_pool_options pool = VMP_POOL_OPTIONS_INIT;
  pool.driver = f->driver;
  VASSERT_OK(vmp_pool_create(&f->pool, &pool));
  VASSERT_OK(vmp_host_stream_create(f->driver, 0, &f->stream));
}

static void rig_teardown(rig *f) {
  VEXPECT_OK(vmp_pool_destroy(f->pool));
  if (f->stream != NULL) VEXPECT_OK(vmp_host_stream_destroy(f->driver, f->stream));
  vmp_driver_close(f->driver);
}

static vmp_host_work_counts_data counts(rig *f) {
  vmp_host_work_counts_data data = VMP_HOST_WORK_COUNTS_INIT;
  VEXPECT_OK(vmp_host_work_counts(f->driver, &data));
  return data;
}

VTEST_F(HostApi, DataGoesInAndComesOut, rig) {
  unsigned char in[10000], out[10000];
  for (size_t i = 0; i < sizeof in; i++) in[i] = (unsigned char)(i * 7);
  memset(out, 0, sizeof out);
  vmp_stream streams[2] = {NULL, f->stream};
  for (int i = 0; i < 2; i++) {
    void *a = NULL, *b = NULL;
    VASSERT_OK(vmp_alloc(f->pool, &a, sizeof in, streams[i]));
    VASSERT_OK(vmp_alloc(f->pool, &b, 3 * MIB, streams[i]));
    VEXPECT_OK(vmp_host_fill(f->driver, 0, b, 0x5a, 3 * MIB, streams[i]));
    VEXPECT_OK(vmp_host_copy_in(f->driver, 0, a, in, sizeof in, streams[i]));
    VEXPECT_OK(vmp_host_copy(f->driver, 0, (char *)b + 512, a, sizeof in, streams[i]));
    VEXPECT_OK(vmp_host_copy_out(f->driver, 0, out, (char *)b + 500, sizeof out, streams[i]));
    VEXPECT_OK(vmp_host_stream_synchronize(f->driver, 0, streams[i]));
    for (size_t j = 0; j < 12; j++) VASSERT_UINT_EQ(out[j], 0x5a);
    VEXPECT_INT_EQ(memcmp(out + 12, in, sizeof in - 12), 0);
    VEXPECT_OK(vmp_free(f->pool, a, streams[i]));
    VEXPECT_OK(vmp_free(f->pool, b, streams[i]));
  }
  VEXPECT_UINT_EQ(counts(f).bad_touches, 0);
  VEXPECT_UINT_EQ(counts(f).violations, 0);
}

VTEST_F(HostApi, WorkRunsWhenItIsTold, rig) {
  void *a = NULL;
  uint64_t done = 99;
  VASSERT_OK(vmp_alloc(f->pool, &a, MIB, f->stream));
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_LATE, 0));
  uint64_t before = counts(f).done;
  for (int i = 0; i < 3; i++) VEXPECT_OK(vmp_host_kernel(f->driver, 0, a, MIB, i, f->stream));
  VEXPECT_UINT_EQ(counts(f).done, before);
  VEXPECT_OK(vmp_host_work_step(f->driver, 2, &done));
  VEXPECT_UINT_EQ(done, 2);
  VEXPECT_OK(vmp_host_work_step(f->driver, 100, &done));
  VEXPECT_UINT_EQ(done, 1);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_EARLY, 0));
  VEXPECT_OK(vmp_host_kernel(f->driver, 0, a, MIB, 1, f->stream));
  VEXPECT_UINT_EQ(counts(f).done, counts(f).queued);
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_SEED, 7));
  VASSERT_OK(vmp_host_work_set(f->driver, VMP_WORK_LAG, 2));
  for (int i = 0; i < 5; i++) VEXPECT_OK(vmp_host_kernel(f->driver, 0, a, MIB, 1, f->stream));
  VEXPECT_UINT_EQ(counts(f).queued - counts(f).done, 2);
  VEXPECT_OK(vmp_host_work_step(f->driver, 100, NULL));
  VEXPECT_STATUS(vmp_host_work_set(f->driver, (vmp_host_work_mode)9, 0), VMP_ERROR_INVALID_VALUE);
  VEXPECT_OK(vmp_free(f->pool, a, f->stream));
}

VTEST_F(HostApi, StreamsOfAnotherDevice, rig) {
  vmp_stream second = NULL;
  VASSERT_OK(vmp_host_stream_create(f->driver, 1, &second));
  VEXPECT_OK(vmp_host_stream_synchronize(f->driver, 1, second));
  VEXPECT_OK(vmp_host_stream_destroy(f->driver, second));
  VEXPECT_STATUS(vmp_host_stream_create(f->driver, 2, &second), VMP_ERROR_NO_DEVICE);
  VEXPECT_STATUS(vmp_host_stream_create(f->driver, 0, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_host_stream_destroy(f->driver, NULL), VMP_ERROR_INVALID_VALUE);
}

VTEST_F(HostApi, ArgumentsAreChecked, rig) {
  vmp_host_work_counts_data data = {0};
  VEXPECT_STATUS(vmp_host_work_counts(f->driver, &data), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_host_work_counts(f->driver, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_host_work_step(NULL, 1, NULL), VMP_ERROR_INVALID_VALUE);
  VEXPECT_STATUS(vmp_host_kernel(NULL, 0, NULL, 1, 1, NULL), VMP_ERROR_INVALID_VALUE);
}
