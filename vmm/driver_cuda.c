// driver_cuda.c: the CUDA driver behind the table of driver.h.
//
// Owns: loading libcuda, finding every call in it, the sentences for each way in which that can fail, the fork
// guard. Does not own: any policy, any state of CUDA; a call goes through with its arguments and its code as they are.
//
//     dlopen("libcuda.so.1")         not there                        -> VMP_ERROR_NO_DRIVER
//       dlsym cuGetProcAddress_v2    not there, nor the 11.3 form     -> VMP_ERROR_DRIVER_TOO_OLD
//         each X of driver.h         REQUIRED and missing             -> VMP_ERROR_DRIVER_TOO_OLD
//           cuInit(0)                100 -> VMP_ERROR_NO_DEVICE, 3 -> VMP_ERROR_FORKED, else VMP_ERROR_DRIVER
//     any of them gives 34: the toolkit's stub                        -> VMP_ERROR_STUB_DRIVER
//
// Invariants
//   - No CUDA header is used and nothing links libcuda: the types are driver.h's, proved equal by a test.
//   - Each symbol is asked for by its base name with the version pinned in driver.h, so a newer driver gives the
//     same ABI. The legacy default stream is asked for explicitly.
//   - After open nothing in the driver changes but the call counters, so all calls are thread-safe without a lock.
//   - In a fork of the opening process no pointer into libcuda is followed.
//   - Once cuInit has been called on a real driver the library stays loaded: it has threads and exit handlers.
#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "vmm/driver.h"
#include "vmm/driver_error.h"
#include "vmm/memory.h"

#define DEFAULT_LIBRARY "libcuda.so.1"
#define OLDEST_VERSION "11.3"  // the first with cuGetProcAddress

// ---- the table ----

// cuda_calls: the driver's own functions. CUresult and the enumerations are int here: same class, same size.
typedef struct cuda_calls {
#define X(name, symbol, version, need, args, ...) int (*name)(__VA_ARGS__);
  VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) int (*name)(void);
  VMP_DRIVER_CALLS_0(X)
#undef X
} cuda_calls;

typedef struct cuda_driver {
  vmp_driver base;
  cuda_calls calls;  // NULL: an OPTIONAL call that this driver lacks
} cuda_driver;

static const cuda_driver *as_cuda(const vmp_driver *driver) { return (const cuda_driver *)(const void *)driver; }

// One wrapper per call: 3 in a fork, 801 where the driver lacks the call, else the driver's own answer.
#define X(name, symbol, version, need, args, ...)                         \
  static int cuda_##name(vmp_driver *driver, __VA_ARGS__) {               \
    if (vmp_driver_is_forked(driver)) return VMP_CU_NOT_INITIALIZED;      \
    if (as_cuda(driver)->calls.name == NULL) return VMP_CU_NOT_SUPPORTED; \
    return as_cuda(driver)->calls.name args;                              \
  }
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need)                                    \
  static int cuda_##name(vmp_driver *driver) {                            \
    if (vmp_driver_is_forked(driver)) return VMP_CU_NOT_INITIALIZED;      \
    if (as_cuda(driver)->calls.name == NULL) return VMP_CU_NOT_SUPPORTED; \
    return as_cuda(driver)->calls.name();                                 \
  }
VMP_DRIVER_CALLS_0(X)
#undef X

// cuda_close frees host memory and makes no call, so it is right in a fork and in a driver that is shutting down.
static void cuda_close(vmp_driver *driver) { vmp_mem_free(driver); }

static const vmp_driver_ops cuda_ops = {
#define X(name, ...) .name = cuda_##name,
    VMP_DRIVER_CALLS(X) VMP_DRIVER_CALLS_0(X)
#undef X
        .close = cuda_close,
};

// ---- finding the calls ----

// get_proc_address: either form of cuGetProcAddress. The fifth argument is the 12.0 form's.
typedef int (*get_proc_address_v2_fn)(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status);
typedef int (*get_proc_address_v1_fn)(const char *symbol, void **out_fn, int version, uint64_t flags);

enum { LEGACY_DEFAULT_STREAM = 1 };  // CU_GET_PROC_ADDRESS_LEGACY_STREAM

typedef struct cuda_loader {
  const char *path;  // as the caller named it
  void *library;
  get_proc_address_v2_fn find_v2;  // one of the two is set
  get_proc_address_v1_fn find_v1;
  char version[24];  // "12.4", or "of unknown version"
} cuda_loader;

// store_function puts an entry point, as dlsym and cuGetProcAddress deliver it, into a function pointer. ISO C knows no
// conversion between the two; POSIX requires them to have one representation.
static void store_function(void *out_function_pointer, void *address) {
  static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym could not deliver functions");
  memcpy(out_function_pointer, &address, sizeof address);
}

static vmp_status fail_stub(const cuda_loader *loader, const char *call) {
  return vmp_fail_call(VMP_ERROR_STUB_DRIVER, VMP_CU_STUB_LIBRARY, call,
                       "%s is the CUDA toolkit's stub library, which only serves to link (%s gave "
                       "CUDA_ERROR_STUB_LIBRARY (34)): the library path must lead to the libcuda.so.1 of the installed "
                       "NVIDIA driver, before any folder named stubs",
                       loader->path, call);
}

static vmp_status fail_too_old(const cuda_loader *loader, const char *symbol, int version) {
  return vmp_fail(
      VMP_ERROR_DRIVER_TOO_OLD,
      "the CUDA driver %s (%s) has no %s of CUDA %d.%d, which vmpool needs: install a complete NVIDIA driver for "
      "CUDA " OLDEST_VERSION " or newer",
      loader->version, loader->path, symbol, version / 1000, version % 1000 / 10);
}

// find_symbol delivers an entry point, or NULL where the driver has none of that name and version. Another return
// code than 0 means that the driver can't answer at all.
static int find_symbol(const cuda_loader *loader, const char *symbol, int version, void **out_fn) {
  void *fn = NULL;
  int status = 0;
  int code = loader->find_v2 != NULL ? loader->find_v2(symbol, &fn, version, LEGACY_DEFAULT_STREAM, &status)
                                     : loader->find_v1(symbol, &fn, version, LEGACY_DEFAULT_STREAM);
  if (code == VMP_CU_INVALID_VALUE || code == VMP_CU_NOT_FOUND) {  // newer than the driver; unknown to the 11.3 form
    fn = NULL;
    code = VMP_CU_SUCCESS;
  }
  *out_fn = code == VMP_CU_SUCCESS && status == 0 ? fn : NULL;
  return code;
}

// load_symbol is find_symbol with the failures reported.
static vmp_status load_symbol(const cuda_loader *loader, const char *symbol, int version, bool required,
                              void **out_fn) {
  char text[VMP_CODE_TEXT_BYTES];
  int code = find_symbol(loader, symbol, version, out_fn);
  if (code == VMP_CU_STUB_LIBRARY) return fail_stub(loader, "cuGetProcAddress");
  if (code != VMP_CU_SUCCESS) {
    return vmp_fail_call(VMP_ERROR_DRIVER, code, "cuGetProcAddress",
                         "cuGetProcAddress failed for %s in the CUDA driver %s (%s): %s; reinstall the NVIDIA driver",
                         symbol, loader->version, loader->path, vmp_driver_code_text(NULL, code, text, sizeof text));
  }
  if (*out_fn == NULL && required) return fail_too_old(loader, symbol, version);
  return VMP_OK;
}

enum { OPTIONAL = 0, REQUIRED = 1 };

static const struct {
  const char *symbol;
  int version;
  bool required;
  size_t offset;  // of its pointer in cuda_calls
} wanted[] = {
#define X(name, symbol, version, need, ...) {symbol, version, need == REQUIRED, offsetof(cuda_calls, name)},
    VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) {symbol, version, need == REQUIRED, offsetof(cuda_calls, name)},
        VMP_DRIVER_CALLS_0(X)
#undef X
};

static vmp_status load_calls(const cuda_loader *loader, cuda_calls *calls) {
  for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
    void *fn = NULL;
    vmp_status status = load_symbol(loader, wanted[i].symbol, wanted[i].version, wanted[i].required, &fn);
    if (status != VMP_OK) return status;
    store_function((char *)calls + wanted[i].offset, fn);
  }
  return VMP_OK;
}

// ---- opening ----

static void set_version(cuda_loader *loader, int (*get_version)(int *)) {
  int version = 0;
  if (get_version != NULL && get_version(&version) == VMP_CU_SUCCESS && version >= 1000) {
    (void)snprintf(loader->version, sizeof loader->version, "%d.%d", version / 1000, version % 1000 / 10);
  }
}

// start_loader opens the library and finds cuGetProcAddress in it. On failure the library is closed again.
static vmp_status start_loader(cuda_loader *loader, const char *path) {
  *loader = (cuda_loader){.path = path, .version = "of unknown version"};
  loader->library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (loader->library == NULL) {
    const char *why = dlerror();
    return vmp_fail(VMP_ERROR_NO_DRIVER,
                    "no CUDA driver could be loaded (%s): install the NVIDIA driver, make %s visible to the process, "
                    "or ask for the host driver (driver:host)",
                    why != NULL ? why : path, path);
  }
  store_function(&loader->find_v2, dlsym(loader->library, "cuGetProcAddress_v2"));
  store_function(&loader->find_v1, dlsym(loader->library, "cuGetProcAddress"));
  int (*get_version)(int *) = NULL;
  store_function(&get_version, dlsym(loader->library, "cuDriverGetVersion"));
  set_version(loader, get_version);
  if (loader->find_v2 != NULL || loader->find_v1 != NULL) return VMP_OK;

  vmp_status status = get_version != NULL
                          ? fail_too_old(loader, "cuGetProcAddress", 11030)
                          : vmp_fail(VMP_ERROR_NO_DRIVER,
                                     "%s is no CUDA driver: it has neither cuDriverGetVersion nor cuGetProcAddress; "
                                     "the NVIDIA driver's libcuda.so.1 is needed",
                                     path);
  (void)dlclose(loader->library);
  return status;
}

// advice_for_init says what would be right after a cuInit that failed.
static const char *advice_for_init(int code) {
  switch (code) {
    case VMP_CU_NO_DEVICE:
      return "check that a GPU is installed and passed on to this container, and that CUDA_VISIBLE_DEVICES doesn't "
             "hide it";
    case VMP_CU_NOT_INITIALIZED:
      return "this process was forked from one that had initialised CUDA already: fork before that, or exec";
    case VMP_CU_SYSTEM_NOT_READY:
      return "the NVIDIA fabric manager (nvidia-fabricmanager) must be running on this machine";
    case VMP_CU_SYSTEM_DRIVER_MISMATCH:
      return "libcuda.so.1 and the kernel module must be of one version: reboot, or reload the nvidia module, after a "
             "driver update";
    case VMP_CU_COMPAT_NOT_SUPPORTED_ON_DEVICE:
      return "the forward compatibility package (cuda-compat) doesn't support this GPU: take it out of the library "
             "path, or update the driver";
    default:
      return "see whether nvidia-smi works and whether the device files /dev/nvidia* may be opened";
  }
}

static vmp_status init_driver(const cuda_loader *loader, cuda_driver *self) {
  int code = self->calls.init(0);
  if (code == VMP_CU_SUCCESS) return VMP_OK;
  if (code == VMP_CU_STUB_LIBRARY) return fail_stub(loader, "cuInit");
  vmp_status status = VMP_ERROR_DRIVER;
  if (code == VMP_CU_NO_DEVICE) status = VMP_ERROR_NO_DEVICE;
  if (code == VMP_CU_NOT_INITIALIZED) status = VMP_ERROR_FORKED;
  char text[VMP_CODE_TEXT_BYTES];
  return vmp_fail_call(status, code, "cuInit", "cuInit failed in the CUDA driver %s (%s): %s; %s", loader->version,
                       loader->path, vmp_driver_code_text(&self->base, code, text, sizeof text), advice_for_init(code));
}

vmp_status vmp_driver_cuda_open(vmp_driver **out_driver, const char *library) {
  cuda_loader loader;
  vmp_status status = start_loader(&loader, library != NULL ? library : DEFAULT_LIBRARY);
  if (status != VMP_OK) return status;

  bool stays_loaded = false;
  cuda_driver *self = vmp_mem_calloc(1, sizeof *self);
  if (self == NULL) {
    status = vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the table of the CUDA driver (%zu bytes)",
                      sizeof *self);
  } else {
    self->base.ops = &cuda_ops;
    self->base.kind = "cuda";
    self->base.owner_process = (int32_t)getpid();
    status = load_calls(&loader, &self->calls);
    if (status == VMP_OK) {
      status = init_driver(&loader, self);
      stays_loaded = status != VMP_ERROR_STUB_DRIVER;
    }
  }
  if (!stays_loaded) (void)dlclose(loader.library);
  if (status != VMP_OK) {
    vmp_mem_free(self);
    return status;
  }
  *out_driver = &self->base;
  return VMP_OK;
}
