// fresh_place.h: when a layer whose best place for a block failed tries a place without memory, and what it says when
// that failed, too. Mid and buddy decide alike. The places are the layers' own.
#ifndef VMPOOL_POOL_FRESH_PLACE_H_
#define VMPOOL_POOL_FRESH_PLACE_H_

#include "vmm/backing_ops.h"
#include "vmm/status.h"

// vmp_is_worth_a_fresh_place: chunk sizes didn't fit the best place; or, in the last resort, that place pins a parked
// chunk of which the block would use only a part, and what is left without it is too little.
static inline bool vmp_is_worth_a_fresh_place(vmp_status status, vmp_effort effort) {
  if (status == VMP_ERROR_FRAGMENTED) return effort > VMP_EFFORT_MAPPED;
  return effort == VMP_EFFORT_RESIZE && (status == VMP_ERROR_OUT_OF_MEMORY || status == VMP_ERROR_LIMIT);
}

// vmp_may_be_had_elsewhere: it failed for want of memory or of a place.
static inline bool vmp_may_be_had_elsewhere(vmp_status status) {
  return status == VMP_ERROR_BUSY || status == VMP_ERROR_FRAGMENTED || status == VMP_ERROR_OUT_OF_MEMORY ||
         status == VMP_ERROR_LIMIT;
}

// vmp_no_fresh_place returns `first_status`, which stays the truth about the request, with the sentence for it.
static inline vmp_status vmp_no_fresh_place(vmp_status first_status, uint64_t bytes) {
  return vmp_fail(
      first_status,
      first_status == VMP_ERROR_FRAGMENTED
          ? "parked chunks are enough for %llu bytes, but their sizes fit neither the best place nor a fresh one"
          : "no physical memory for %llu bytes, neither at the best place nor at a fresh one",
      (unsigned long long)bytes);
}

#endif  // VMPOOL_POOL_FRESH_PLACE_H_
