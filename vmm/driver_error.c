// driver_error.c: see driver_error.h.
#include "vmm/driver_error.h"

#include <stdarg.h>
#include <stdio.h>
#include <unistd.h>

// The codes of driver.h by their CUDA names (tests/driver_cuda/types_test.c compares both with cuda.h).
static const char *own_name(int code) {
  switch (code) {
#define X(name, value) \
  case VMP_CU_##name:  \
    return "CUDA_ERROR_" #name;
    VMP_CU_ERROR_CODES(X)
#undef X
    case VMP_CU_SUCCESS:
      return "CUDA_SUCCESS";
    default:
      return NULL;
  }
}

const char *vmp_driver_code_text(vmp_driver *driver, int code, char *buffer, size_t size) {
  const char *name = NULL;
  const char *text = NULL;
  if (driver != NULL) {
    // An unknown code gives 1 and NULL; a broken driver may give 0 and NULL.
    if (vmp_drv_get_error_name(driver, code, &name) != VMP_CU_SUCCESS) name = NULL;
    if (vmp_drv_get_error_string(driver, code, &text) != VMP_CU_SUCCESS) text = NULL;
  }
  if (name == NULL) name = own_name(code);
  if (name == NULL) name = "unknown error";
  if (text != NULL) {
    (void)snprintf(buffer, size, "%s (%d): %s", name, code, text);
  } else {
    (void)snprintf(buffer, size, "%s (%d)", name, code);
  }
  return buffer;
}

vmp_status vmp_driver_fail(vmp_driver *driver, vmp_call call, int code, const char *format, ...) {
  const char *symbol = vmp_call_symbol(call);
  char code_text[VMP_CODE_TEXT_BYTES];
  char what[sizeof((vmp_error *)NULL)->message];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(what, sizeof what, format, args);
  va_end(args);
  (void)vmp_driver_code_text(driver, code, code_text, sizeof code_text);
  if (code == VMP_CU_NOT_INITIALIZED && vmp_driver_is_forked(driver)) {
    return vmp_fail_call(VMP_ERROR_FORKED, code, symbol,
                         "%s was called in process %d, a fork of process %d, which opened the driver: %s; CUDA can't "
                         "be used after such a fork: fork before the driver is opened, or exec; %s",
                         symbol, (int)getpid(), (int)driver->owner_process, code_text, what);
  }
  return vmp_fail_driver(code, symbol, "%s failed: %s; %s", symbol, code_text, what);
}
