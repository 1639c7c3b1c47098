// driver_error.h: a failed driver call as one sentence, with the driver's own name and text for its code.
//
//     cuMemMap failed: CUDA_ERROR_INVALID_VALUE (1): invalid argument; chunk 3 at slot 17 was to be mapped
//     `call`           `code`, named by the driver                     the caller's words
//
// Owns: the wording, and names for the codes of driver.h where the driver can't give them (a stub library, a
// forked child, a code that it doesn't know). Keeps no state; everything here is thread-safe. Names are asked
// from the driver: call nothing here under a lock of the pool.
#ifndef VMPOOL_VMM_DRIVER_ERROR_H_
#define VMPOOL_VMM_DRIVER_ERROR_H_

#include <stddef.h>

#include "vmm/driver.h"
#include "vmm/error.h"

// Room for any text of vmp_driver_code_text; longer ones are cut.
#define VMP_CODE_TEXT_BYTES 160

// vmp_driver_code_text writes a code's name, number and meaning ("CUDA_ERROR_OUT_OF_MEMORY (2): out of memory") to
// `buffer`, always terminated, and returns `buffer`. `driver` may be NULL: then only our own names are used.
// A code that nobody can name reads "unknown error (12345)".
const char *vmp_driver_code_text(vmp_driver *driver, int code, char *buffer, size_t size);

// vmp_driver_fail reports a driver call that returned `code` (not 0) as the thread's last error and returns the
// status that follows from the code, as vmp_fail_driver does; a code 3 in a forked child gives VMP_ERROR_FORKED.
// `format` says what the call was to do, or what would be right: it follows the driver's text after a semicolon.
vmp_status vmp_driver_fail(vmp_driver *driver, vmp_call call, int code, const char *format, ...) VMP_PRINTF(4, 5);

#endif  // VMPOOL_VMM_DRIVER_ERROR_H_
