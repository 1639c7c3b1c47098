// kv_regions.h: the KV cache of requests in regions: what `vmpool replay --kv region` does with a file of requests.
//
// Owns: the regions of live requests, who has which prefix block. Does not own: driver, pool and streams (player.h),
// the requests (tools/models/service.h).
//
//     alloc   a request arrives: one region (or one a layer) as long as the longest context, with its prompt's pages
//     grow    a token more: one page more, when it passes the last one
//     free    the request has ended: its regions are destroyed
//
// With `share`, whole prefix blocks of 512 tokens that a live request has already are not committed: the new request
// maps the same pages. A block stays as long as one request has it.
#ifndef VMPOOL_TOOLS_REPLAY_KV_REGIONS_H_
#define VMPOOL_TOOLS_REPLAY_KV_REGIONS_H_

#include "pool/vmpool.h"
#include "tools/common/error.h"
#include "tools/models/service.h"

typedef struct player player;
typedef struct kv_regions kv_regions;

typedef struct kv_options {
  const trace_source *requests;  // of layout region
  bool per_layer;                // one region a layer rather than one over all layers
  bool share;                    // prefix blocks; needs one stream
} kv_options;

// kv_counts: what has happened so far.
typedef struct kv_counts {
  uint64_t page_bytes, region_max_bytes;
  uint64_t regions, peak_regions;         // created; most at once
  uint64_t committed_bytes;               // by commits: not by sharing
  uint64_t shared_bytes;                  // mapped rather than committed, over all requests
  uint64_t prefix_blocks, shared_blocks;  // of all requests; of them, those that were shared
} kv_counts;

// kv_regions_open: fails when a layer's or a prefix block's bytes don't fit pages, or host memory runs out.
bool kv_regions_open(kv_regions **out_regions, player *p, const kv_options *options, tool_error *error);
void kv_regions_finish(kv_regions *k);  // destroys what is still live; NULL is fine
void kv_regions_close(kv_regions *k);   // after the pool; NULL is fine

// The events, as player.h has them. False when host memory runs out.
bool kv_regions_alloc(kv_regions *k, uint32_t block, uint64_t bytes, uint16_t stream);
void kv_regions_grow(kv_regions *k, uint32_t block, uint64_t bytes);
void kv_regions_free(kv_regions *k, uint32_t block, uint16_t stream);

const kv_counts *kv_regions_counts(const kv_regions *k);

#endif  // VMPOOL_TOOLS_REPLAY_KV_REGIONS_H_
