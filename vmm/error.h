// error.h: how the library's own files report a failure. Callers of vmpool use status.h.
//
// Owns: the one place that writes the thread's last error, and the mapping of driver codes to statuses.
#ifndef VMPOOL_VMM_ERROR_H_
#define VMPOOL_VMM_ERROR_H_

#include "vmm/status.h"

// vmp_fail sets the thread's last error and returns `status`, so that a failure is one statement:
//     return vmp_fail(VMP_ERROR_INVALID_VALUE, "alignment is %zu; it must be a power of two", a);
vmp_status vmp_fail(vmp_status status, const char *format, ...) VMP_PRINTF(2, 3);

// vmp_fail_driver does the same for a driver call that returned `code` (not 0): the status follows from
// the code (2 -> OUT_OF_MEMORY, 4 -> DEINITIALIZED, 34 -> STUB_DRIVER, 100/101 -> NO_DEVICE, 801 -> NOT_SUPPORTED,
// 9xx -> CAPTURE, the sticky codes -> STICKY, everything else -> DRIVER).
vmp_status vmp_fail_driver(int code, const char *call, const char *format, ...) VMP_PRINTF(3, 4);

// vmp_fail_call does the same where the code alone doesn't tell the status: the caller names it.
vmp_status vmp_fail_call(vmp_status status, int code, const char *call, const char *format, ...) VMP_PRINTF(4, 5);

// vmp_restore_error makes an earlier error the thread's last one again: cleaning up after a failure may fail too, and the
// caller is told the first cause.
void vmp_restore_error(const vmp_error *error);

// vmp_status_of_driver_code maps a driver result code (0 gives VMP_OK) without touching the last error.
vmp_status vmp_status_of_driver_code(int code);

// vmp_is_sticky says whether a driver code means that the context is lost (contract, section 15).
int vmp_is_sticky(int code);

// vmp_report receives every broken invariant that a `_check()` finds, one sentence per call. `write` may be
// NULL: then the faults are only counted. Not thread-safe by itself: a check runs under its owner's lock.
typedef struct vmp_report {
  void (*write)(void *context, const char *sentence);
  void *context;
  size_t faults;  // counted by vmp_report_fault
} vmp_report;

// vmp_report_fault counts one broken invariant and passes its sentence on.
void vmp_report_fault(vmp_report *report, const char *format, ...) VMP_PRINTF(2, 3);

#endif  // VMPOOL_VMM_ERROR_H_
