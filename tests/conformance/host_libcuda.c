// host_libcuda.c: a shared object with the entry points of libcuda.so.1 and the host driver behind them, so that what
// is meant for a GPU runs without one: the loader, the raw symbols, child processes, the end of the process.
//
// Owns: one host driver of its own, made at the first call. Steered by the environment, since the program under test
// must not know that it isn't on a GPU:
//     VMPOOL_FACADE_LEVEL=0|1|2      level of the host driver
//     VMPOOL_FACADE_ODD=1            cuMemUnmap gives 999 where the host driver gives 1
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "vmm/driver_host.h"

#define EXPORT __attribute__((visibility("default")))

static pthread_once_t once = PTHREAD_ONCE_INIT;
static vmp_driver *driver;
static bool odd;

static void end(void) { vmp_host_deinitialize(driver); }

static void make(void) {
  const char *level = getenv("VMPOOL_FACADE_LEVEL");
  odd = getenv("VMPOOL_FACADE_ODD") != NULL;
  vmp_host_options options = VMP_HOST_OPTIONS_INIT;
  options.level = level != NULL ? (vmp_host_level)atoi(level) : VMP_HOST_STRICT;
  options.num_devices = 12;
  options.devices[10].no_peers = 1;
  options.devices[11].no_vmm = 1;
  if (vmp_host_open(&driver, &options) != VMP_OK || atexit(end) != 0) abort();
}

static vmp_driver *machine(void) {
  (void)pthread_once(&once, make);
  return driver;
}

static int answer(vmp_call call, int code) {
  return odd && call == VMP_CALL_mem_unmap && code == VMP_CU_INVALID_VALUE ? VMP_CU_UNKNOWN : code;
}

#define X(name, symbol, version, need, args, ...) \
  static int call_##name(__VA_ARGS__) { return answer(VMP_CALL_##name, vmp_drv_##name(machine(), VMP_UNPACK args)); }
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) \
  static int call_##name(void) { return vmp_drv_##name(machine()); }
VMP_DRIVER_CALLS_0(X)
#undef X

typedef void (*entry_point)(void);

static const struct {
  const char *symbol;
  int version;
  entry_point fn;
} entries[] = {
#define X(name, symbol, version, need, ...) {symbol, version, (entry_point)call_##name},
    VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) {symbol, version, (entry_point)call_##name},
        VMP_DRIVER_CALLS_0(X)
#undef X
};

// ---- what a program finds by dlsym ----

EXPORT int cuGetProcAddress_v2(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status);
int cuGetProcAddress_v2(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status) {
  int own = 0;
  (void)flags;
  (void)vmp_drv_driver_get_version(machine(), &own);
  if (version > own) return VMP_CU_INVALID_VALUE;
  *out_fn = NULL;
  *out_status = 1;
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    if (strcmp(symbol, entries[i].symbol) != 0) continue;
    *out_status = version < entries[i].version ? 2 : 0;
    if (*out_status == 0) memcpy(out_fn, &entries[i].fn, sizeof *out_fn);
  }
  return VMP_CU_SUCCESS;
}

EXPORT int cuInit(unsigned flags);
EXPORT int cuDriverGetVersion(int *out_version);
EXPORT int cuDeviceGetCount(int *out_count);
EXPORT int cuMemAddressReserve(vmp_cu_ptr *out_ptr, size_t bytes, size_t alignment, vmp_cu_ptr hint,
                               unsigned long long flags);
EXPORT int cuStreamCreate(vmp_cu_stream *out_stream, unsigned flags);

int cuInit(unsigned flags) { return call_init(flags); }
int cuDriverGetVersion(int *out_version) { return call_driver_get_version(out_version); }
int cuDeviceGetCount(int *out_count) { return call_device_get_count(out_count); }
int cuMemAddressReserve(vmp_cu_ptr *out_ptr, size_t bytes, size_t alignment, vmp_cu_ptr hint,
                        unsigned long long flags) {
  return call_mem_address_reserve(out_ptr, bytes, alignment, hint, flags);
}
int cuStreamCreate(vmp_cu_stream *out_stream, unsigned flags) { return call_stream_create(out_stream, flags); }
