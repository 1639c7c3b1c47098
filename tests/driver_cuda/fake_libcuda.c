// fake_libcuda.c: see fake_libcuda.h. FAKE_CUDA_FORMS says which forms of cuGetProcAddress exist: 2 (both), 1 (11.3),
// 0 (none), -1 (this is no CUDA driver).
#include "tests/driver_cuda/fake_libcuda.h"

#include <stdio.h>
#include <string.h>

#ifndef FAKE_CUDA_FORMS
#define FAKE_CUDA_FORMS 2
#endif

#define EXPORT __attribute__((visibility("default")))

static fake_cuda_control control;
static _Thread_local fake_cuda_call last_call;

EXPORT fake_cuda_control *fake_cuda_control_get(void);
EXPORT const fake_cuda_call *fake_cuda_last_call(void);
EXPORT void fake_cuda_reset(void);

fake_cuda_control *fake_cuda_control_get(void) { return &control; }
const fake_cuda_call *fake_cuda_last_call(void) { return &last_call; }

__attribute__((constructor)) void fake_cuda_reset(void) {
  control.version = 12040;
  control.proc_address_code = 0;
  control.missing = NULL;
  control.missing_fn = NULL;
  control.vmm_supported = 1;
  for (int i = 0; i < VMP_CALL_COUNT; i++) control.codes[i] = FAKE_CUDA_BEHAVE;
  control.calls = 0;
  control.questions = 0;
  control.flags_asked = 0;
}

#if FAKE_CUDA_FORMS >= 0
EXPORT int cuDriverGetVersion(int *out_version);
int cuDriverGetVersion(int *out_version) {
  *out_version = control.version;
  return control.codes[VMP_CALL_driver_get_version] > 0 ? control.codes[VMP_CALL_driver_get_version] : VMP_CU_SUCCESS;
}
#endif

#if FAKE_CUDA_FORMS >= 1

static void *pointer(uint64_t arg) { return (void *)(uintptr_t)arg; }

// behave does what a driver with one 1 GiB device would, as far as the tests look at it.
static int behave(vmp_call call, const uint64_t *args) {
  switch (call) {
    case VMP_CALL_driver_get_version: *(int *)pointer(args[0]) = control.version; return VMP_CU_SUCCESS;
    case VMP_CALL_get_error_name:
      if (args[0] != 803) return VMP_CU_INVALID_VALUE;
      *(const char **)pointer(args[1]) = "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH";
      return VMP_CU_SUCCESS;
    case VMP_CALL_get_error_string:
      if (args[0] != 803) return VMP_CU_INVALID_VALUE;
      *(const char **)pointer(args[1]) = "system has unsupported display driver / cuda driver combination";
      return VMP_CU_SUCCESS;
    case VMP_CALL_device_get_count: *(int *)pointer(args[0]) = 1; return VMP_CU_SUCCESS;
    case VMP_CALL_device_get: *(vmp_cu_device *)pointer(args[0]) = (vmp_cu_device)args[1]; return VMP_CU_SUCCESS;
    case VMP_CALL_device_get_name: (void)snprintf(pointer(args[0]), (size_t)args[1], "Fake GPU"); return VMP_CU_SUCCESS;
    case VMP_CALL_device_get_attribute:
      *(int *)pointer(args[0]) = args[1] == VMP_CU_ATTR_VMM_SUPPORTED ? control.vmm_supported : 0;
      return VMP_CU_SUCCESS;
    case VMP_CALL_mem_get_allocation_granularity: *(size_t *)pointer(args[0]) = (size_t)2 << 20; return VMP_CU_SUCCESS;
    case VMP_CALL_device_total_mem: *(size_t *)pointer(args[0]) = (size_t)1 << 30; return VMP_CU_SUCCESS;
    default: return VMP_CU_SUCCESS;
  }
}

static int answer(vmp_call call, const uint64_t *args, size_t num_args) {
  control.calls++;
  last_call.call = call;
  last_call.num_args = num_args;
  for (size_t i = 0; i < num_args; i++) last_call.args[i] = args[i];
  return control.codes[call] == FAKE_CUDA_BEHAVE ? behave(call, args) : control.codes[call];
}

#define COUNT(...) COUNT_(__VA_ARGS__, 6, 5, 4, 3, 2, 1, 0)
#define COUNT_(a, b, c, d, e, f, n, ...) n
#define CAT(a, b) CAT_(a, b)
#define CAT_(a, b) a##b
#define NUMBERS(...) CAT(NUMBERS_, COUNT(__VA_ARGS__))(__VA_ARGS__)
#define NUMBERS_1(a) (uint64_t)(a)
#define NUMBERS_2(a, b) NUMBERS_1(a), NUMBERS_1(b)
#define NUMBERS_3(a, b, c) NUMBERS_2(a, b), NUMBERS_1(c)
#define NUMBERS_4(a, b, c, d) NUMBERS_3(a, b, c), NUMBERS_1(d)
#define NUMBERS_5(a, b, c, d, e) NUMBERS_4(a, b, c, d), NUMBERS_1(e)

#define X(name, symbol, version, need, args, ...)                              \
  static int fake_##name(__VA_ARGS__) {                                        \
    const uint64_t numbers[] = {NUMBERS args};                                 \
    return answer(VMP_CALL_##name, numbers, sizeof numbers / sizeof *numbers); \
  }
VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) \
  static int fake_##name(void) { return answer(VMP_CALL_##name, NULL, 0); }
VMP_DRIVER_CALLS_0(X)
#undef X

typedef void (*entry_point)(void);

// The entry points, with the version in which their ABI appeared.
static const struct {
  const char *symbol;
  int version;
  entry_point fn;
} entries[] = {
#define X(name, symbol, version, need, ...) {symbol, version, (entry_point)fake_##name},
    VMP_DRIVER_CALLS(X)
#undef X
#define X(name, symbol, version, need) {symbol, version, (entry_point)fake_##name},
        VMP_DRIVER_CALLS_0(X)
#undef X
};

// find answers as the 12.0 form does: status 1 for an unknown symbol, 2 for a version before the symbol's.
static int find(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status) {
  control.questions++;
  control.flags_asked |= flags;
  if (control.proc_address_code != 0) return control.proc_address_code;
  if (version > control.version) return VMP_CU_INVALID_VALUE;
  *out_fn = control.missing_fn;
  *out_status = 1;
  if (control.missing != NULL && strcmp(symbol, control.missing) == 0) return VMP_CU_SUCCESS;
  for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
    if (strcmp(symbol, entries[i].symbol) != 0) continue;
    *out_status = version < entries[i].version ? 2 : 0;
    if (*out_status == 0) memcpy(out_fn, &entries[i].fn, sizeof *out_fn);
  }
  return VMP_CU_SUCCESS;
}

EXPORT int cuGetProcAddress(const char *symbol, void **out_fn, int version, uint64_t flags);
int cuGetProcAddress(const char *symbol, void **out_fn, int version, uint64_t flags) {
  int status = 0;
  int code = find(symbol, out_fn, version, flags, &status);
  return code == VMP_CU_SUCCESS && status != 0 ? VMP_CU_NOT_FOUND : code;
}

#endif  // FAKE_CUDA_FORMS >= 1

#if FAKE_CUDA_FORMS >= 2
EXPORT int cuGetProcAddress_v2(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status);
int cuGetProcAddress_v2(const char *symbol, void **out_fn, int version, uint64_t flags, int *out_status) {
  return find(symbol, out_fn, version, flags, out_status);
}
#endif
