// capture_internal.h: what capture's files share: the graphs, and the records of what they hold. See capture.h.
#ifndef VMPOOL_POOL_CAPTURE_INTERNAL_H_
#define VMPOOL_POOL_CAPTURE_INTERNAL_H_

#include "pool/capture.h"
#include "pool/log.h"
#include "pool/pool.h"

struct vmp_graph {
  vmp_graph *next;
  vmp_graph_id id;
  vmp_stream stream;
  uint64_t thread;  // of the per-thread default stream; else 0
  bool capturing;
  uint32_t holds;     // first
  uint32_t users;     // allocations under way for it
  uint64_t reusable;  // offset + 1 of the first block that the capture may hand out again; 0: none
};

// vmp_captured: a block that graphs hold.
typedef struct vmp_captured {
  uint32_t holds_list;  // first; a free node's link lies here
  uint32_t holds;       // graphs that hold it
  uint64_t offset, bytes;
  uint64_t next_reusable;  // offset + 1; 0: the last
  vmp_domain *domain;
  uint8_t layer;
  bool live;  // the caller has it; else it is kept
} vmp_captured;

typedef struct vmp_hold {
  uint32_t next;  // of the graph; a free node's link lies here
  uint32_t next_of_block;
  uint32_t block;
  vmp_graph *graph;
} vmp_hold;

static inline vmp_hold *vmp_hold_at(const vmp_captures *captures, uint32_t index) {
  return vmp_node_at(&captures->holds, index);
}
// vmp_captured_at: the record of the block at an offset, or NULL.
vmp_captured *vmp_captured_at(const vmp_captures *captures, uint64_t offset, uint32_t *out_index);

#endif  // VMPOOL_POOL_CAPTURE_INTERNAL_H_
