// vmpool_trigger.h: what a pool does by itself at vmp_pool_step, if its options say so. All of it is off by default.
//
//     defragment_steps:1000    gather at every 1,000th step
//     defragment_blocks:500    gather when more than 500 free blocks lie in mapped memory
//     defragment_share:0.3     gather when more than 0.3 of mapped memory is idle (not live, set aside or a graph's)
//     defragment_oom:1         gather as a step before out of memory, too
//     release_above:1GiB       idle memory (parked and spare) beyond 1 GiB goes back to the device ...
//     release_after:10s        ... once it has been idle for so long
//
// Gathering is vmp_pool_defragment without copying: what is beyond the limits is trimmed, the rest is remapped behind
// one another. By itself it makes at most VMP_TRIGGER_CALLS map, set-access, unmap and release calls and takes at most
// VMP_TRIGGER_US (looked at as max_us is). Requests that need no driver call are served meanwhile. A figure that stays
// above its limit doesn't gather again at each step, only when it has risen above what the last run left.
//
// Giving back: when, at a step, more than release_above has been idle at every moment for at least release_after, as
// much as that was beyond it goes back, in whole chunks, never more, at most VMP_TRIGGER_CHUNKS at a step. Memory that
// is being moved isn't idle meanwhile, and what GPU work may still touch stays for the next time. A pool without steps
// gives nothing back.
//
// A call that fails here fails nothing: vmp_pool_step returns VMP_OK, vmp_last_error is as before, and nothing is lost.
// The statistics trigger_runs and released_by_decay tell what was done.
#ifndef VMPOOL_POOL_VMPOOL_TRIGGER_H_
#define VMPOOL_POOL_VMPOOL_TRIGGER_H_

#define VMP_TRIGGER_CALLS 256
#define VMP_TRIGGER_US 20000
#define VMP_TRIGGER_CHUNKS 64

#endif  // VMPOOL_POOL_VMPOOL_TRIGGER_H_
