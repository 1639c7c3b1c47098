// vmpool_region.h: regions: one fixed range of addresses, as large as may ever be needed, backed page by page. Part of
// vmpool.h, which includes it.
//
//     vmp_region_create    reserves max_bytes; maps nothing, costs nothing but addresses
//     vmp_region_commit    gives pages memory                     [ committed | committed |    |    |   ...      ]
//     vmp_region_decommit  takes it away again, in stream order   base                     base + max_bytes
//
// For a KV cache: one region a request (or a layer), as long as the longest context. It grows in place, so no pointer
// changes, and no kernel needs to know about pages. tests/examples/kv_cache.c shows it.
//
// Pages are numbered from 0 on; a page is page_bytes long and one physical chunk. Memory that a region decommits stays
// mapped where it is until somebody needs it: other regions first, the pool's blocks last and only when the work on it
// has finished. Committing it again before that makes no driver call, and neither does a new region of the same size.
#ifndef VMPOOL_POOL_VMPOOL_REGION_H_
#define VMPOOL_POOL_VMPOOL_REGION_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct vmp_region vmp_region;

typedef struct vmp_region_options {
  size_t struct_size;
  uint64_t max_bytes;    // address space; rounded up to pages. Must be given
  uint64_t page_bytes;   // a power of two of granules, up to VMP_MAX_ALIGNMENT; 0: one granule
  uint64_t limit_bytes;  // committed memory never goes beyond this; 0: max_bytes
  const char *name;      // shown in snapshots; copied; NULL: "region"
  int wait;              // 1: where a page is still retiring, the host waits for its work, at most the pool's wait_us;
                         // 0: VMP_PENDING
  uint64_t share_bytes;  // how much at its start will be shared from other regions: where it gets the addresses of a
                         // destroyed region, nothing is mapped at those
} vmp_region_options;
#define VMP_REGION_OPTIONS_INIT VMP_INIT(vmp_region_options)

// vmp_region_create reserves the addresses of a region, inside the pool's or, where they don't fit there, of its own:
// up to the whole address space. It makes no driver call while the pool has room. The caller owns the region and ends
// it with vmp_region_destroy, before the pool. Errors: VMP_ERROR_INVALID_VALUE, _OUT_OF_ADDRESS_SPACE,
// _HOST_OUT_OF_MEMORY, _FORKED, and the driver errors.
VMP_API vmp_status vmp_region_create(vmp_pool *pool, vmp_region **out_region, const vmp_region_options *options);

// vmp_region_destroy decommits every page as vmp_region_decommit does, and gives the addresses back; NULL is fine. It
// waits for the region's prefetch, for no GPU work, and makes no driver call, unless the pool is over a lowered hard
// limit. VMP_ERROR_CAPTURE (the stream captures), VMP_ERROR_FORKED; then nothing has changed. No other thread may use
// the region during or after it.
VMP_API vmp_status vmp_region_destroy(vmp_region *region, vmp_stream stream);

// vmp_region_base returns the address of page 0; it never changes. NULL for NULL.
VMP_API void *vmp_region_base(const vmp_region *region);

// vmp_region_pages: pages [first, first + count).
typedef struct vmp_region_pages {
  uint64_t first, count;
} vmp_region_pages;

// vmp_region_commit gives every page of the runs memory, all or none. The memory may be used on `stream` at once; other
// streams must be ordered behind it by the caller. Pages that are committed already stay as they are, so that "the
// first n pages" can be asked for again and again; runs may overlap and come in any order. What it contains is
// undefined.
//
// One call makes as few driver calls as there can be: one map (and, for new memory, one create) a page, one set-access
// a run of neighbours. Calls on one region follow one another; a thread that is in a driver call for it is waited for.
//
// VMP_PENDING: nothing has been committed, since a page's old mapping can't be removed before GPU work has finished.
// Ask again, or set the option `wait`. Errors, after which nothing has changed: VMP_ERROR_INVALID_VALUE (a page beyond
// the region); VMP_ERROR_LIMIT (the region's limit, or the pool's); VMP_ERROR_TIMEOUT (the option `wait`);
// VMP_ERROR_BUSY (an old mapping of a page could not be removed: the next call tries again); VMP_ERROR_CAPTURE (the
// stream captures: what a graph uses is committed before); VMP_ERROR_OUT_OF_MEMORY, _FRAGMENTED, _HOST_OUT_OF_MEMORY,
// _STICKY, _FORKED, _DRIVER as vmp_alloc has them.
VMP_API vmp_status vmp_region_commit(vmp_region *region, const vmp_region_pages *runs, size_t num_runs,
                                     vmp_stream stream);
// vmp_region_decommit takes the memory of every page of the runs away. The work submitted so far to `stream`, and to
// the streams named by vmp_region_record_use, is the last that may touch it; the host does not wait. Pages that have no
// memory stay as they are. Makes no driver call and allocates nothing.
// VMP_ERROR_INVALID_VALUE (a page beyond the region), VMP_ERROR_CAPTURE, VMP_ERROR_FORKED; then nothing has changed.
VMP_API vmp_status vmp_region_decommit(vmp_region *region, const vmp_region_pages *runs, size_t num_runs,
                                       vmp_stream stream);
// vmp_region_commit_list and vmp_region_decommit_list do the same for pages by number, in any order. Errors the same.
VMP_API vmp_status vmp_region_commit_list(vmp_region *region, const uint64_t *pages, size_t num_pages,
                                          vmp_stream stream);
VMP_API vmp_status vmp_region_decommit_list(vmp_region *region, const uint64_t *pages, size_t num_pages,
                                            vmp_stream stream);

// vmp_region_resize makes the committed part of the region the first `bytes`, rounded up to pages: what is missing
// below is committed, and, once that has worked, everything above is decommitted. VMP_PENDING and errors as for commit.
VMP_API vmp_status vmp_region_resize(vmp_region *region, uint64_t bytes, vmp_stream stream);

// vmp_region_prefetch has a thread of the pool map pages [first, first + count) soon, so that committing them makes no
// driver call. It returns at once. The pages are parked, not committed: they don't count in limits, and others may take
// them. It is optional work: it makes no memory beyond the soft limit, takes none that is in use or parked in another
// region that lives, waits for nothing, and stops where it can't go on. vmp_region_prefetch_wait waits until everything
// prefetched for the region so far has been tried.
// VMP_ERROR_INVALID_VALUE (a page beyond the region), VMP_ERROR_BUSY (64 prefetches of the pool wait already),
// VMP_ERROR_HOST_OUT_OF_MEMORY (no thread), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_region_prefetch(vmp_region *region, uint64_t first, uint64_t count);
VMP_API vmp_status vmp_region_prefetch_wait(vmp_region *region);

// vmp_region_record_use says that work on `stream` touches the region, too: from now on decommitted pages are reused
// only behind what was submitted to it as well. VMP_ERROR_INVALID_VALUE, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_region_record_use(vmp_region *region, vmp_stream stream);

// vmp_region_set_limit changes limit_bytes; what is committed beyond it stays. VMP_ERROR_INVALID_VALUE, _FORKED.
VMP_API vmp_status vmp_region_set_limit(vmp_region *region, uint64_t limit_bytes);

// vmp_region_share maps pages that one region has committed into another region as well: pages [from_first, from_first
// + count) of `from` become pages [to_first, ...) of `to`, all or none, with one map a page and one set-access. Both
// see the same bytes; a prefix cache maps the pages of a prompt into every request that begins with it. Nothing is
// copied: who wants to write to a shared page copies it to a page of its own first.
//
// From then on the page is committed in both regions, and counts in both; its memory is there as long as one of them
// has it committed, whichever it is. `stream` is who uses it in `to`; the caller has ordered it behind the work that
// filled the pages. The regions are of one pool and have the same page_bytes; they may be the same one. VMP_PENDING as
// for commit. Errors: VMP_ERROR_INVALID_VALUE (pages beyond a region; pages of `from` that aren't committed; pages of
// `to` that are; different pools or page sizes), and those of commit; then nothing has changed.
VMP_API vmp_status vmp_region_share(vmp_region *from, uint64_t from_first, vmp_region *to, uint64_t to_first,
                                    uint64_t count, vmp_stream stream);

// vmp_region_page_references tells how many places have a committed page's memory, this one included: 1 when it isn't
// shared, 0 when the page isn't committed. VMP_ERROR_INVALID_VALUE (a page beyond the region), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_region_page_references(vmp_region *region, uint64_t page, uint64_t *out_references);

// vmp_region_query tells about a region. Walks over what is mapped of it; no driver call.
typedef struct vmp_region_info {
  size_t struct_size;
  void *base;
  const char *name;  // the region's
  uint64_t max_bytes, page_bytes, limit_bytes;
  uint64_t committed_bytes;  // this region's pages
  uint64_t parked_bytes;     // not committed, but mapped: to be had without a driver call
  uint64_t retiring_bytes;   // addresses whose old mapping waits for GPU work
} vmp_region_info;
#define VMP_REGION_INFO_INIT VMP_INIT(vmp_region_info)
VMP_API vmp_status vmp_region_query(vmp_region *region, vmp_region_info *out_info);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_REGION_H_
