// driver.c: what both drivers share: the names of the calls, closing, the fork check. See driver.h.
#include "vmm/driver.h"

#include <unistd.h>

_Thread_local uint64_t vmp_thread_calls[VMP_CALL_COUNT];

const char *vmp_call_symbol(vmp_call call) {
  switch (call) {
#define X(name, symbol, ...) \
  case VMP_CALL_##name:      \
    return symbol;
    VMP_DRIVER_CALLS(X)
    VMP_DRIVER_CALLS_0(X)
#undef X
    case VMP_CALL_COUNT:
      break;
  }
  return "cu?";
}

bool vmp_driver_is_forked(const vmp_driver *driver) {
  return driver->owner_process != 0 && driver->owner_process != (int32_t)getpid();
}

void vmp_driver_close(vmp_driver *driver) {
  if (driver == NULL) return;
  void *attachment = atomic_load(&driver->attachment);
  if (attachment != NULL) driver->attachment_end(attachment);
  driver->ops->close(driver);
}
