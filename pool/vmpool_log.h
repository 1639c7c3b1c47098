// vmpool_log.h: what a pool records about itself, for the tools. Part of the public interface; vmpool.h includes it.
//
// Everything is off by default, and can be turned on without touching the program, by VMP_CONF (or `conf`):
//
//     log:FILE               an event log: every allocation, free, mapping and so on as a record of 64 bytes. -PID-POOL
//                            goes into the name before its ending, and a number where that file exists. Blocks are not
//                            cached by threads while a log is written
//     log_ring:SIZE          the file is a ring of this size (1MiB or more), and holds the latest events; default: it
//                            grows
//     snapshot_on:WHEN       a snapshot is written by itself: oom (an allocation failed for want of memory; the first
//     four
//                            times), exit (the pool is destroyed, or the process exits with it), signal=USR2 (or USR1,
//                            HUP, QUIT, WINCH; a handler that was there is called as well), with | between them
//     snapshot_dir:DIR       where to: DIR/vmpool-PID-POOL-oom.json and so on; default the current folder
//     live:1                 figures and map in shared memory (/dev/shm/vmpool-PID-POOL, mode 0600), renewed ten times
//     a
//                            second and readable when the process hangs: vmpool ps, vmpool top
//     control:1              live, and a socket on which the same user may ask for a snapshot, trim, defragment and
//     change
//                            limits
//     log_stacks:SIZE        one call stack is recorded per so many bytes allocated; default none
//
// signal, live and control use a thread of the pool's own. `vmpool record -- COMMAND` does the same for a command. The
// file is written through a mapping: what was recorded is there after a crash. Don't truncate it while it is written.
#ifndef VMPOOL_POOL_VMPOOL_LOG_H_
#define VMPOOL_POOL_VMPOOL_LOG_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_log_start_options: zero means default.
typedef struct vmp_log_start_options {
  size_t struct_size;
  uint64_t ring_bytes;   // the file is a ring of this size, at least 1 MiB; 0: it grows
  uint64_t stack_bytes;  // one call stack is recorded per so many bytes allocated; 0: none
} vmp_log_start_options;
#define VMP_LOG_START_OPTIONS_INIT VMP_INIT(vmp_log_start_options)

// vmp_pool_log_start begins an event log in a new file at `path`; `options` may be NULL. The log begins with the pool's
// whole state. When the disk is full later on, the log ends there, and the rest is counted as dropped.
// Errors: VMP_ERROR_BUSY: the pool writes a log already; VMP_ERROR_IO (the file exists, or can't be made),
// VMP_ERROR_INVALID_VALUE, VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_log_start(vmp_pool *pool, const char *path, const vmp_log_start_options *options);

// vmp_pool_log_stop ends the log; without one it does nothing. vmp_pool_destroy does it too. VMP_ERROR_INVALID_VALUE,
// VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_log_stop(vmp_pool *pool);

// vmp_pool_mark puts a text into the log, such as the name of a phase; without a log it does nothing. Any thread.
// VMP_ERROR_INVALID_VALUE: the pool or the text is NULL. VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_mark(vmp_pool *pool, const char *text);

// vmp_pool_log_path returns the file of the log that is being written, or NULL. Owned by the pool, valid until the log
// ends.
VMP_API const char *vmp_pool_log_path(vmp_pool *pool);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_LOG_H_
