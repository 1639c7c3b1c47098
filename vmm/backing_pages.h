// backing_pages.h: ranges of addresses in which every chunk is one page, as regions need it.
//
// Owns: the list of such ranges, claims of pages by list, the order in which a page's addresses are made free. Does not
// own: which pages a region has (they are the live ones of its range), limits, how a chunk lives at several places
// (backing_share.h).
//
//     page range   [ p0 | p1 |    | p3 |    |    |  ...            ]   a power of two of granules each, aligned to its
//     size
//                    live parked -   retiring                          by offset; a page is wholly mapped by one chunk,
//                    or
//                                                                      not at all
//
// Invariants
//   - Page ranges are disjoint, and no chunk crosses the border of one: growth of claims outside stops at it.
//   - A live page shows exactly one chunk of the page's size, at home or shared; nobody else claims anything in the
//   range.
//   - A page that was released is parked as a page: pages take it first; everybody else last, and only when complete.
//
// The lock is held around every call, as in backing.h.
#ifndef VMPOOL_VMM_BACKING_PAGES_H_
#define VMPOOL_VMM_BACKING_PAGES_H_

#include "vmm/backing.h"

// vmp_backing_open_pages makes [offset, offset + bytes), which nobody uses, a page range. Both are multiples of the
// granule inside one reservation. VMP_ERROR_BUSY: a chunk or an old mapping crosses one of its borders; choose another
// range. VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_backing_open_pages(vmp_backing *backing, uint64_t offset, uint64_t bytes);
// vmp_backing_idle_pages says that a page range is (not) in use: parked pages of idle ranges are taken first.
void vmp_backing_idle_pages(vmp_backing *backing, uint64_t offset, bool idle);
// vmp_backing_close_pages makes a page range ordinary addresses again; no page of it is live. What is mapped there
// stays parked. Can't fail.
void vmp_backing_close_pages(vmp_backing *backing, uint64_t offset);

// vmp_page_state: what a page is.
typedef enum vmp_page_state {
  VMP_PAGE_UNMAPPED = 0,
  VMP_PAGE_LIVE,      // claimed
  VMP_PAGE_PARKED,    // mapped by a chunk of its size that nobody claims
  VMP_PAGE_OCCUPIED,  // parked chunks of other sizes lie there, from before it was a page range
  VMP_PAGE_RETIRING,  // an old mapping of it waits for GPU work
  VMP_PAGE_BROKEN,    // an old mapping of it could not be removed
  VMP_PAGE_TRANSIT,   // a driver call is under way
} vmp_page_state;
vmp_page_state vmp_backing_page_state(const vmp_backing *backing, uint64_t offset, uint64_t page_bytes);
// vmp_backing_next_page returns the first page from `offset` on, at most `end`, that is not unmapped. O(1) for long
// unmapped stretches.
uint64_t vmp_backing_next_page(const vmp_backing *backing, uint64_t offset, uint64_t end, uint64_t page_bytes);

// vmp_page_request: pages to be claimed, all or none.
typedef struct vmp_page_request {
  const uint64_t *offsets;  // rising; no page of them is live, and nobody else claims or releases them meanwhile
  size_t count;
  uint64_t page_bytes;
  vmp_stream_index stream;
  vmp_effort effort;
  bool ahead;  // optional work: nothing beyond the soft limit, nothing that others may want, nothing to wait for
} vmp_page_request;

// vmp_backing_claim_pages maps every page and counts a claim on it: one set-access per run of neighbours. In the order
// of preference a page is what is parked there, a spare chunk, a parked page of another place that the stream may use,
// a new chunk under the soft limit, a parked chunk of others, what the stream has to wait for, and last a new chunk.
// *out_after: what the stream must be ordered behind before the pages are handed out.
// Results, after which (but VMP_OK) no page is claimed:
//   VMP_PENDING               a page can't be mapped before GPU work has finished: the work of *out_after
//   VMP_ERROR_BUSY            a page has a broken mapping, or other threads' driver calls kept it busy
//   VMP_ERROR_FRAGMENTED      enough memory is idle, but in chunks of other sizes: a higher effort may help
//   VMP_ERROR_OUT_OF_MEMORY, VMP_ERROR_LIMIT, VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures
// MAY UNLOCK.
vmp_status vmp_backing_claim_pages(vmp_backing *backing, const vmp_page_request *request, vmp_fence *out_after);
// vmp_backing_release_page undoes the claim of one live page; `fence`: who may still touch it. Whether its memory is
// parked now. Can't fail.
bool vmp_backing_release_page(vmp_backing *backing, uint64_t offset, vmp_fence fence);

// ---- sharing ----

// vmp_page_pair: a live page, and where its chunk is to be mapped as well.
typedef struct vmp_page_pair {
  uint64_t from, to;  // offsets
} vmp_page_pair;

// vmp_backing_share_pages maps and claims every `to`, all or none: one set-access per run of neighbours. `to` rises,
// and none of them is live; every `from` is, and both are left alone by others meanwhile. What else is mapped at a `to`
// goes first. *out_pending as *out_after of vmp_backing_claim_pages, when VMP_PENDING is returned; the new user is
// ordered behind nothing: who filled the pages is the caller's to know. VMP_PENDING, VMP_ERROR_BUSY,
// VMP_ERROR_HOST_OUT_OF_MEMORY, driver failures. MAY UNLOCK.
vmp_status vmp_backing_share_pages(vmp_backing *backing, const vmp_page_pair *pairs, size_t count, uint64_t page_bytes,
                                   vmp_stream_index stream, vmp_fence *out_pending);
// vmp_backing_page_references returns at how many places the chunk of a live page is live; *out_first (may be NULL)
// whether this is the first of them. 0: the page isn't live.
uint64_t vmp_backing_page_references(const vmp_backing *backing, uint64_t offset, bool *out_first);

#endif  // VMPOOL_VMM_BACKING_PAGES_H_
