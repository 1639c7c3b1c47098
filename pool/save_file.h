// save_file.h: one whole text to one file, atomically.
//
// Owns: the temporary file. Keeps no state; thread-safe.
#ifndef VMPOOL_POOL_SAVE_FILE_H_
#define VMPOOL_POOL_SAVE_FILE_H_

#include <stddef.h>

#include "vmm/status.h"

// vmp_save_file writes `bytes` bytes to `path`: first to a temporary file beside it, which is flushed and then
// renamed, so that a reader sees the old file or the new one. A path that is not a regular file (a pipe, a
// terminal, /dev/stdout) is written directly. VMP_ERROR_INVALID_VALUE, VMP_ERROR_IO (then `path` is as before and no
// temporary file is left), VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_save_file(const char *path, const char *text, size_t bytes);

#endif  // VMPOOL_POOL_SAVE_FILE_H_
