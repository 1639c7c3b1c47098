// live.h: a pool's figures and its map in shared memory. See live_format.h for what is in it.
//
// Owns: the object and its mapping. Written by one thread, the watcher's (watch.h).
#ifndef VMPOOL_POOL_LIVE_H_
#define VMPOOL_POOL_LIVE_H_

#include "pool/live_format.h"
#include "pool/pool.h"

typedef struct vmp_live vmp_live;

// vmp_live_open makes the object; `control`: the socket's name, or "". VMP_ERROR_IO, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_live_open(vmp_live **out_live, const vmp_pool *pool, const char *control);
// vmp_live_refresh writes the pool as it is now. Takes the pool's lock; `ask_device` asks the driver for free memory.
void vmp_live_refresh(vmp_live *live, vmp_pool *pool, bool ask_device);
// vmp_live_close removes the object; in a forked child it stays, since it is the parent's. NULL is fine.
void vmp_live_close(vmp_live *live, bool forked);

#endif  // VMPOOL_POOL_LIVE_H_
