// slab.h: small objects of fixed sizes, cut from spans.
//
// Owns: size classes, spans, which objects of a span are used. Does not own addresses or mapping: a span is a
// block of mid (32 KiB to one slot, a power of two aligned to its size), claimed by mid.
//
//     span (mid block)   | object | object | object | ... | rest |
//     bitmap             |   1    |   0    |   1    |
//
// Size classes: 8 to a doubling, at most 12.5 % waste beyond the 512 B step (pool/sizeclass.h); or given by the
// user. Most-full span first, so that spans empty out; an empty span goes back to mid (one per class may stay).
// The order of objects within a span is lowest first, or random by option.
//
// Streams: a span carries the merged fence of its freed objects; spans whose fence needs no wait are preferred.
//
// Invariants
//   - used objects + free objects = objects of the span; a span is in exactly one list of its class.
//   - free allocates nothing and can't fail; double, interior and foreign frees are detected and change nothing.
#ifndef VMPOOL_POOL_SLAB_H_
#define VMPOOL_POOL_SLAB_H_

#include "pool/buddy.h"
#include "vmm/backing_ops.h"
#include "vmm/error.h"

typedef struct vmp_slab vmp_slab;
typedef struct vmp_span vmp_span;

// vmp_slab_supply: where spans come from (mid, or a fake).
typedef struct vmp_slab_supply {
  void *self;
  vmp_status (*take)(void *self, const vmp_request *request, vmp_span *owner, vmp_placed *out_placed);
  void (*give)(void *self, uint64_t offset, vmp_fence fence);
} vmp_slab_supply;

typedef struct vmp_slab_options {
  uint64_t max_object_bytes;      // objects up to this size are slab's; a multiple of 512
  uint64_t granule_bytes;         // a span is at most this, unless a user class needs more
  uint64_t random_seed;           // 0: lowest object first; else objects are handed out in seeded random order
  const uint64_t *class_bytes;    // user classes in rising order (multiples of 512), or NULL for the default table
  size_t num_classes;
} vmp_slab_options;

vmp_status vmp_slab_create(vmp_slab **out_slab, const vmp_backing_ops *ops, const vmp_slab_supply *supply,
                           const vmp_slab_options *options);
void vmp_slab_destroy(vmp_slab *slab);

// vmp_slab_class_bytes: the object size that serves a request, or 0 when it is not slab's (too large, or an
// alignment that no class keeps).
uint64_t vmp_slab_class_bytes(const vmp_slab *slab, uint64_t bytes, uint64_t alignment);

// vmp_slab_alloc hands out an object. Whatever the supply returned, VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_slab_alloc(vmp_slab *slab, const vmp_request *request, vmp_placed *out_placed);

// vmp_slab_free: `span` is the owner of the mid block that holds `offset`. VMP_ERROR_NOT_A_BLOCK (interior
// address, or the rest of the span), VMP_ERROR_DOUBLE_FREE; then nothing has changed. *out_bytes: object size.
vmp_status vmp_slab_free(vmp_slab *slab, vmp_span *span, uint64_t offset, vmp_fence fence, uint64_t *out_bytes);

// vmp_slab_find: the used object of `span` that holds `offset`.
bool vmp_slab_find(const vmp_slab *slab, const vmp_span *span, uint64_t offset, uint64_t *out_start, uint64_t *out_bytes);

// vmp_slab_trim gives all empty spans back.
void vmp_slab_trim(vmp_slab *slab);

typedef struct vmp_slab_stats {
  uint64_t spans, span_bytes, empty_spans;
  uint64_t objects, object_bytes;  // used
  uint64_t free_object_bytes, rest_bytes;
  uint64_t metadata_bytes;
} vmp_slab_stats;
void vmp_slab_get_stats(const vmp_slab *slab, vmp_slab_stats *out);
void vmp_slab_walk(const vmp_slab *slab, vmp_walk_fn fn, void *context);
// vmp_slab_walk_span sees the objects of one span in address order ("object" or "free object").
void vmp_slab_walk_span(const vmp_slab *slab, const vmp_span *span, vmp_walk_fn fn, void *context);
size_t vmp_slab_check(const vmp_slab *slab, vmp_report *report);

#endif  // VMPOOL_POOL_SLAB_H_
