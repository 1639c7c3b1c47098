// watch.h: what a pool does by itself for those who look at it: snapshots when something happens, figures in shared
// memory, answers on a socket. All of it is off by default (vmpool_log.h).
//
//     watch.c          the thread, and the snapshots by trigger
//     live.*           figures in shared memory
//     control.*        the socket
//     process_hooks.*  signals and exit
//
// Owns: the thread. It sleeps until a signal, a connection, or a tenth of a second has passed (live). Does not own:
// what is written.
#ifndef VMPOOL_POOL_WATCH_H_
#define VMPOOL_POOL_WATCH_H_

#include "pool/pool.h"

// vmp_watch_check says what is wrong with the options, before anything is made. VMP_ERROR_CONFIG.
vmp_status vmp_watch_check(const vmp_config *config);
// vmp_watch_open starts what the options ask for. VMP_ERROR_IO, VMP_ERROR_LIMIT, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_watch_open(vmp_pool *pool);
// vmp_watch_end writes the snapshot of the end where it is asked for; the pool is still whole.
void vmp_watch_end(vmp_pool *pool);
// vmp_watch_close ends the thread. Takes no lock of the pool.
void vmp_watch_close(vmp_pool *pool);

// vmp_watch_failed: an allocation has failed with `status`. Without the lock; keeps the thread's last error.
void vmp_watch_write_failed(vmp_pool *pool, vmp_status status);
static inline void vmp_watch_failed(vmp_pool *pool, vmp_status status) {
  if (__builtin_expect(pool->watch != NULL, 0)) vmp_watch_write_failed(pool, status);
}

#endif  // VMPOOL_POOL_WATCH_H_
