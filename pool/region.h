// region.h: regions inside the pool. Callers use vmpool_region.h.
//
//     region.c          create, destroy, questions, statistics, invariants
//     region_space.c    where a region's addresses come from and go to
//     region_commit.c   commit and decommit of pages
//     region_share.c    pages of one region in another
//     region_prefetch.c  mapping ahead, on a thread of the pool
//
// Owns: the list of regions, their address ranges, the ranges of destroyed regions that wait for another region. Does
// not own: mappings (vmm/backing_pages.h): a page of a region is committed if and only if it is live there.
//
//     in use   region ──> range ──> a piece of buddy, or a reservation of its own
//     idle     regions.idle ──> range ──> range ...     youngest first: it has the most pages left
//
// A new region takes an idle range of its size: the pages that are still mapped there cost no driver call. Idle ranges
// go back to buddy when there are many, when addresses run out, and at the pool's end. What is mapped in them is parked
// like everything else, for other regions, and last for everybody.
//
// Everything is guarded by the pool's lock. One operation at a time works on a region (`busy`): between its look at the
// pages and its commit it lets go of the lock, and pages that it has claimed meanwhile are not committed yet.
//
// Invariants (vmp_regions_check)
//   - A region's committed pages are the live pages of its range; idle ranges have none.
//   - live_bytes = the memory of live pages, each chunk counted once.
//   - piece_bytes = the ranges, in use and idle, that are buddy's pieces.
//   - A region that isn't busy has committed no more than its limit, unless that was lowered.
#ifndef VMPOOL_POOL_REGION_H_
#define VMPOOL_POOL_REGION_H_

#include "pool/vmpool_region.h"
#include "vmm/backing_pages.h"

// vmp_region_range: addresses that are, or were, a region's.
typedef struct vmp_region_range {
  struct vmp_region_range *next;  // in the list of idle ones
  uint64_t offset, bytes, page_bytes;
  vmp_fence fence;  // of everything that was ever decommitted in it
  bool own;         // a reservation of its own, which buddy doesn't know
  bool open;        // backing knows it as a page range; only an own one may lack that, while it is idle
} vmp_region_range;

struct vmp_region {
  vmp_region *next, *prev;
  vmp_pool *pool;
  vmp_region_range *range;
  char *name;
  uint64_t max_bytes, limit_bytes, committed_bytes;
  uint64_t streams;     // mask of recorded streams
  uint64_t prefetches;  // jobs that wait or run
  bool wait, busy, ending;
};

typedef struct vmp_prefetch vmp_prefetch;

// vmp_regions: the pool's.
typedef struct vmp_regions {
  vmp_region *first;
  uint64_t count;
  vmp_region_range *idle;
  uint64_t num_idle;
  uint64_t reserved_bytes;   // of regions, not of idle ranges
  uint64_t committed_bytes;  // sum over regions
  uint64_t live_bytes;       // of their memory, each chunk once
  uint64_t piece_bytes;      // of ranges that are buddy's pieces
  vmp_prefetch *prefetch;    // the worker; NULL until it is needed
} vmp_regions;

// vmp_page_claim: pages on their way through the ladder (a vmp_plan's `pages`).
typedef struct vmp_page_claim {
  vmp_page_request request;
  vmp_fence after;  // to be ordered behind, or what keeps pages pending
} vmp_page_claim;

// ---- region_space.c; the lock is held ----
// vmp_region_take_range finds addresses for a region; of an idle range the first `share_bytes` are unmapped. MAY
// UNLOCK. VMP_ERROR_OUT_OF_ADDRESS_SPACE, VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures.
vmp_status vmp_region_take_range(vmp_pool *pool, uint64_t bytes, uint64_t page_bytes, uint64_t share_bytes,
                                 vmp_region_range **out_range);
// vmp_region_give_range makes a range idle. Can't fail.
void vmp_region_give_range(vmp_pool *pool, vmp_region_range *range);
// vmp_regions_give_back returns idle ranges to buddy. False: there are none.
bool vmp_regions_give_back(vmp_pool *pool);

// ---- region_commit.c; the lock is held ----
// vmp_region_enter waits until no other operation works on the region; vmp_region_leave ends one.
void vmp_region_enter(vmp_region *region);
void vmp_region_leave(vmp_region *region);
// vmp_region_enter_both does the same for two regions, which may be one.
void vmp_region_enter_both(vmp_region *a, vmp_region *b);
void vmp_region_leave_both(vmp_region *a, vmp_region *b);
// vmp_region_wait waits on the host for what keeps pages pending; VMP_OK: try again. *deadline_us is 0 before the first
// wait. Lets go of the lock. VMP_PENDING (the region doesn't want that), VMP_ERROR_TIMEOUT, driver failures.
vmp_status vmp_region_wait(vmp_region *region, vmp_fence fence, uint64_t *deadline_us);
// vmp_region_check_stream: VMP_ERROR_CAPTURE when the stream captures.
vmp_status vmp_region_check_stream(const vmp_region *region, vmp_stream stream);
// vmp_region_check_pages: VMP_ERROR_INVALID_VALUE when pages lie beyond the region.
vmp_status vmp_region_check_pages(const vmp_region *region, uint64_t first, uint64_t count);
// vmp_region_over_limit says whether so many bytes more would cross the region's limit; vmp_region_fail_limit says so.
bool vmp_region_over_limit(const vmp_region *region, uint64_t bytes);
vmp_status vmp_region_fail_limit(const vmp_region *region);
// vmp_region_place is the ladder's attempt for a plan with pages. MAY UNLOCK. What vmp_backing_claim_pages returns.
vmp_status vmp_region_place(vmp_pool *pool, vmp_page_claim *claim, vmp_effort effort);
// vmp_region_release_all decommits every page, as of `fence`.
void vmp_region_release_all(vmp_region *region, vmp_fence fence);
// vmp_region_fence: the stream's work so far, and that of recorded streams.
vmp_fence vmp_region_fence(vmp_region *region, vmp_stream_index stream);

// ---- region_prefetch.c ----
// vmp_prefetch_end ends the worker, without the lock; it finishes the driver call that it is in. No worker is fine.
void vmp_prefetch_end(vmp_pool *pool);
// vmp_prefetch_cancel takes a region's jobs out of the queue and waits for the one that runs. The lock is held.
void vmp_prefetch_cancel(vmp_region *region);

// ---- region.c; the lock is held ----
// vmp_regions_find: the region whose addresses hold an offset, or NULL.
vmp_region *vmp_regions_find(const vmp_pool *pool, uint64_t offset);
uint64_t vmp_regions_metadata(const vmp_pool *pool);
// vmp_regions_walk shows every run of committed pages.
typedef void (*vmp_region_run_fn)(void *context, uint64_t offset, uint64_t bytes);
void vmp_regions_walk(const vmp_pool *pool, vmp_region_run_fn fn, void *context);
void vmp_regions_check(vmp_pool *pool, vmp_report *report);
// vmp_regions_dispose frees the host memory of everything, regions that live included.
void vmp_regions_dispose(vmp_pool *pool);

#endif  // VMPOOL_POOL_REGION_H_
