// registry.h: the pools of one driver, so that one that is out of memory can have what others hold idle.
//
// Owns: a list of pools for each driver, which ends with the driver. Does not own pools.
//
//     driver ── attachment ──> registry ── pool ── pool ── pool
//
// Locks: the registry's mutex guards the list and each pool's `visitors`. Nobody takes it while holding a pool's lock,
// and nobody holds it while taking one: a visited pool is kept by its count, and leaves when that is 0.
#ifndef VMPOOL_POOL_REGISTRY_H_
#define VMPOOL_POOL_REGISTRY_H_

#include "pool/vmpool.h"

// vmp_registry_join enters a pool that is ready for use. VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_registry_join(vmp_pool *pool);
// vmp_registry_leave takes it out, when nobody visits it any more; a pool that never joined is fine.
void vmp_registry_leave(vmp_pool *pool);
// vmp_registry_trim_others makes the other pools on the pool's device give idle memory back, until `bytes` went back to
// the device. Only what is known to be complete goes: no stream is asked. Returns what went. No lock may be held.
uint64_t vmp_registry_trim_others(vmp_pool *pool, uint64_t bytes);

#endif  // VMPOOL_POOL_REGISTRY_H_
