// process_hooks.h: what belongs to the process and not to a pool: signal handlers, and what runs at its exit.
//
// Owns: the only process-wide state of the library besides threads' own: the kernel has one handler per signal, and the
// C library one list of exit functions. A pool takes a place in a table and gives it back.
//
//     signal -> handler -> writes to the event descriptor of each place that wants it -> the handler that was there
//                          (async-signal-safe: one load and one write per place)
//     exit   -> each place that wants it is called, on the exiting thread
//
// Invariants
//   - A descriptor of the table is never closed: a handler that runs at the same time can't write to another file.
//   - When the last place for a signal is given back, the earlier handler is put back, unless somebody has set another.
#ifndef VMPOOL_POOL_PROCESS_HOOKS_H_
#define VMPOOL_POOL_PROCESS_HOOKS_H_

#include "vmm/status.h"

typedef struct vmp_hook vmp_hook;

// vmp_hook_take takes a place: `signal` (0: none) makes *out_fd, an event descriptor of the table, readable; `at_exit`
// (NULL: nothing) is called with `self` when the process ends by exit. VMP_ERROR_LIMIT: more than 64 places;
// VMP_ERROR_IO: the handler can't be set.
vmp_status vmp_hook_take(vmp_hook **out_hook, int signal, void (*at_exit)(void *self), void *self, int *out_fd);
// vmp_hook_give gives it back; waits while at_exit runs. NULL is fine.
void vmp_hook_give(vmp_hook *hook);

#endif  // VMPOOL_POOL_PROCESS_HOOKS_H_
