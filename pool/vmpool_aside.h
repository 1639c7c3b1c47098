// vmpool_aside.h: memory for callers that plan: set aside now, allocated from later. Included by vmpool.h.
//
//     vmp_pool_set_aside_bytes(pool, bytes, &ticket)    all of it, or nothing
//     vmp_alloc_with(..., {.ticket = ticket})           draws on it, while something is left
//     vmp_pool_set_aside_return(pool, ticket)           the rest goes back
//
// What is set aside is mapped and is nobody else's: drawing on it needs no new memory and no driver call but, perhaps,
// a wait of the stream (on the GPU) for what the memory was used for before. A block that was drawn and is freed goes
// back to the pool, not to the ticket.
#ifndef VMPOOL_POOL_VMPOOL_ASIDE_H_
#define VMPOOL_POOL_VMPOOL_ASIDE_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_ticket: memory of one pool that is set aside; 0 is none. Never used again in the pool.
typedef uint64_t vmp_ticket;

// vmp_pool_set_aside_bytes sets `bytes` aside (rounded up to granules), as one step: of several threads that ask at once
// as many succeed as there is memory for. It tries what an allocation would try, host waits included.
// VMP_ERROR_INVALID_VALUE (0 bytes), VMP_ERROR_OUT_OF_MEMORY, _LIMIT and the other errors of vmp_alloc; then nothing is
// set aside.
VMP_API vmp_status vmp_pool_set_aside_bytes(vmp_pool *pool, uint64_t bytes, vmp_ticket *out_ticket);

// vmp_pool_set_aside_return ends a ticket and gives back what is left. VMP_ERROR_INVALID_VALUE (no such ticket),
// VMP_ERROR_BUSY (another thread is drawing on it), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_set_aside_return(vmp_pool *pool, vmp_ticket ticket);

// vmp_pool_set_aside_left tells how many bytes a ticket has. VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_pool_set_aside_left(vmp_pool *pool, vmp_ticket ticket, uint64_t *out_bytes);

// vmp_alloc_with with a ticket takes the request, rounded up to 512, off the ticket; an alignment above 512 may take up
// to that much more. VMP_ERROR_LIMIT: the ticket has less; VMP_ERROR_INVALID_VALUE: no such ticket, or a suspendable
// tag (its blocks have memory of their own); VMP_ERROR_CAPTURE: the stream captures, and the ticket's memory is still
// in use.

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_ASIDE_H_
