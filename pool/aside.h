// aside.h: memory that is set aside for callers that plan. See vmpool_aside.h.
//
// Owns: one record for each ticket. Does not own the memory's bookkeeping: a ticket is one used block of mid that is in
// no book of the pool, and is divided from its end.
//
//     ticket   [ left ............................ )
//     draw     [ left ............ )[ block        )     mid divides the block; no driver call
//
// Invariants
//   - A ticket that has bytes left is a used block of the pool's mid, of exactly these bytes, whose chunks are shared
//     with no block elsewhere.
//   - bytes = sum over tickets. For mid: live + unsettled + kept + set aside = what it says is used.
// Guarded by the pool's lock.
#ifndef VMPOOL_POOL_ASIDE_H_
#define VMPOOL_POOL_ASIDE_H_

#include "pool/vmpool.h"
#include "pool/vmpool_aside.h"
#include "vmm/error.h"
#include "vmm/status.h"

typedef struct vmp_aside vmp_aside;
typedef struct vmp_asides {
  vmp_aside *first;
  vmp_ticket last;
  uint64_t bytes;
} vmp_asides;

struct vmp_plan;
struct vmp_placed;

// vmp_aside_route sends a plan to the ticket that it names.
void vmp_aside_route(struct vmp_plan *plan, vmp_ticket ticket, vmp_stream stream);
// vmp_aside_take draws on the plan's ticket, and orders the stream. The block is unsettled then. MAY UNLOCK.
vmp_status vmp_aside_take(vmp_pool *pool, struct vmp_plan *plan, struct vmp_placed *out_placed);

// vmp_asides_close returns all tickets; vmp_asides_free frees the records only.
void vmp_asides_close(vmp_pool *pool);
void vmp_asides_free(vmp_asides *asides);
uint64_t vmp_asides_count(const vmp_asides *asides);
void vmp_asides_check(vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_ASIDE_H_
