// vmpool_tag.h: tags and names of blocks. Included by vmpool.h.
//
//     plain tag         vmp_tag_intern   accounting only: live bytes per tag, in queries and in the snapshot
//     suspendable tag   vmp_tag_create   the same, and its blocks share no physical chunk with any other block, so that
//                                        its memory can go back to the device while addresses stay (vmpool_suspend.h)
//
// Blocks without a tag and without a name cost nothing for it; one with either costs some 20 to 40 bytes of host
// memory.
#ifndef VMPOOL_POOL_VMPOOL_TAG_H_
#define VMPOOL_POOL_VMPOOL_TAG_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_tag: a tag of one pool. 0 is no tag. Tags live as long as their pool.
typedef uint32_t vmp_tag;

// vmp_tag_intern returns the tag of a name, which is made at first sight, as a plain tag: the same name gives the same
// tag. A name that vmp_tag_create has made gives that suspendable tag. `name` is copied; 1 to 255 bytes.
// VMP_ERROR_INVALID_VALUE (no name, too long), VMP_ERROR_LIMIT (2^20 different names in one pool),
// VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_tag_intern(vmp_pool *pool, const char *name, vmp_tag *out_tag);

// vmp_tag_create declares a suspendable tag; the same name again gives the same tag. Its blocks lie in address space of
// their own. Errors as for vmp_tag_intern, and VMP_ERROR_INVALID_VALUE where the name is a plain tag's already (its
// blocks may share chunks), VMP_ERROR_LIMIT beyond VMP_MAX_SUSPENDABLE_TAGS.
#define VMP_MAX_SUSPENDABLE_TAGS 256u
VMP_API vmp_status vmp_tag_create(vmp_pool *pool, const char *name, vmp_tag *out_tag);

// vmp_tag_state: where the memory of a suspendable tag is. Plain tags are always resident.
typedef enum vmp_tag_state {
  VMP_TAG_RESIDENT = 0,    // on the device
  VMP_TAG_SUSPENDING = 1,  // vmp_pool_suspend is under way
  VMP_TAG_SUSPENDED = 2,   // given back, but for pinned blocks
  VMP_TAG_RESUMING = 3,    // vmp_pool_resume is under way
} vmp_tag_state;

typedef struct vmp_tag_info {
  size_t struct_size;
  const char *name;    // valid until the pool is destroyed
  int suspendable;     // 1: made by vmp_tag_create
  int state;           // vmp_tag_state
  uint64_t blocks;     // live ones
  uint64_t live;       // bytes that they hold, suspended ones included
  uint64_t requested;  // what callers asked for
  uint64_t suspended;  // of live: bytes without memory behind them (vmpool_suspend.h)
  uint64_t backup;     // host memory that holds their content
} vmp_tag_info;
#define VMP_TAG_INFO_INIT VMP_INIT(vmp_tag_info)

// vmp_tag_query tells about a tag, without a driver call. VMP_ERROR_INVALID_VALUE (no such tag), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_tag_query(vmp_pool *pool, vmp_tag tag, vmp_tag_info *out_info);

typedef struct vmp_alloc_options {
  size_t struct_size;
  size_t alignment;  // a power of two up to VMP_MAX_ALIGNMENT; 0: 512
  vmp_tag tag;       // 0: none
  const char *name;  // of the block, shown by queries and snapshots; copied once per text and kept as long as the pool:
                     // use few different ones. NULL: none
  uint64_t ticket;   // vmp_ticket that the block is drawn on (vmpool_aside.h); 0: none
} vmp_alloc_options;
#define VMP_ALLOC_OPTIONS_INIT VMP_INIT(vmp_alloc_options)

// vmp_alloc_with is vmp_alloc with options; NULL options: all defaults. Errors as for vmp_alloc, and
// VMP_ERROR_SUSPENDED (the tag is suspended, or on its way there or back), VMP_ERROR_INVALID_VALUE (no such tag, a name
// that is too long), VMP_ERROR_LIMIT (too many different names).
VMP_API vmp_status vmp_alloc_with(vmp_pool *pool, void **out_ptr, size_t bytes, vmp_stream stream,
                                  const vmp_alloc_options *options);

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_TAG_H_
