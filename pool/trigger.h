// trigger.h: when a pool gathers and gives memory back by itself. What it promises: vmpool_trigger.h.
//
// Owns: the marks below. Does not own: gathering (defragment.c), giving back (vmm/backing_release.c).
#ifndef VMPOOL_POOL_TRIGGER_H_
#define VMPOOL_POOL_TRIGGER_H_

#include <stdbool.h>
#include <stdint.h>

#include "pool/vmpool.h"

typedef struct vmp_triggers {
  uint64_t runs, released_bytes;
  double blocks_left, share_left;  // as the last run left them, at least the limit; the limit, once they were below
  bool watching;                   // idle memory is watched since ...
  uint64_t watched_since_us;
  uint64_t due_bytes;  // idle for long enough, and not given back yet
  uint64_t (*now_us)(void *context);
  void *context;
  uint64_t max_us;  // of one run
} vmp_triggers;

// vmp_triggers_open begins with nothing. The options are resolved.
void vmp_triggers_open(vmp_pool *pool);

// vmp_triggers_set_clock: time comes from `now_us(context)`, in microseconds that never go back, instead of
// CLOCK_MONOTONIC. It is called with the lock held. For tests.
void vmp_triggers_set_clock(vmp_pool *pool, uint64_t (*now_us)(void *context), void *context);

// vmp_triggers_set_max_us: how long one run may take, instead of VMP_TRIGGER_US; 0: no limit. For tests, which don't
// depend on how fast the machine is.
void vmp_triggers_set_max_us(vmp_pool *pool, uint64_t max_us);

// vmp_triggers_look says whether it is time to gather. O(1). The lock is held; `steps` counts this step already.
bool vmp_triggers_look(vmp_pool *pool);

// vmp_triggers_run gives back what has been idle, and gathers if `gather`. Without the lock.
void vmp_triggers_run(vmp_pool *pool, bool gather);

// vmp_triggers_gather gathers within the bounds of a trigger; true: a block of want_bytes (0: none in particular) can
// be had without a driver call now. Without the lock.
bool vmp_triggers_gather(vmp_pool *pool, uint64_t want_bytes);

#endif  // VMPOOL_POOL_TRIGGER_H_
