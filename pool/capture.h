// capture.h: what stream captures and their graphs hold of the pool's memory. See vmpool_capture.h.
//
// Owns: the graphs, and one record for each block that some graph holds. Does not own blocks: to its layer a held block
// is used, and so its chunks are never parked, taken, gathered or given back.
//
//     graph ── hold ── hold ── hold            one for each block of the graph
//                |       |
//              block   block (a second graph may hold it too)
//                live    the caller has it: it is in the books, with VMP_BLOCK_CAPTURED in its word
//                kept    the caller has freed it: it is in no book; while the capture lasts, and if it was freed on its
//                        stream, the next allocation there may get it (the graph's list of reusable ones)
//
// Invariants
//   - A block has a record if and only if a graph holds it; holds = number of graphs that do, at least 1.
//   - kept_bytes[layer] = sum over kept blocks. For each layer: live + unsettled + kept (+ cached) = what it says is
//   used.
//   - A reusable block is kept, and held by no other graph.
//   - Giving up a graph allocates nothing and can't fail.
// Guarded by the pool's lock.
#ifndef VMPOOL_POOL_CAPTURE_H_
#define VMPOOL_POOL_CAPTURE_H_

#include "pool/offset_map.h"
#include "pool/vmpool.h"
#include "pool/vmpool_capture.h"
#include "vmm/error.h"
#include "vmm/node_pool.h"
#include "vmm/status.h"

typedef struct vmp_graph vmp_graph;
typedef struct vmp_captures {
  vmp_graph *graphs;
  vmp_graph_id last_id;
  uint32_t capturing;  // graphs whose capture is under way
  vmp_node_pool blocks, holds;
  vmp_offset_map records;  // offset -> block
  uint64_t kept_bytes[3];  // by layer
} vmp_captures;

struct vmp_plan;
struct vmp_placed;

void vmp_captures_init(vmp_captures *captures);
// vmp_captures_close gives up all graphs, with a fence that covers every stream the pool has seen. Held by the lock.
void vmp_captures_close(vmp_pool *pool);
// vmp_captures_free frees the bookkeeping only.
void vmp_captures_free(vmp_captures *captures);

// vmp_capture_of returns the graph whose capture is under way on a stream, or NULL.
vmp_graph *vmp_capture_of(const vmp_pool *pool, vmp_stream stream);

// An allocation inside a capture: vmp_capture_promise makes room for the record of one more block, _withdraw takes that
// back; vmp_capture_take is
// its ladder (MAY UNLOCK; VMP_ERROR_CAPTURE when nothing is left); vmp_capture_enter notes the block, which is settled.
vmp_status vmp_capture_promise(vmp_pool *pool);
void vmp_capture_withdraw(vmp_pool *pool);
vmp_status vmp_capture_take(vmp_pool *pool, struct vmp_plan *plan, struct vmp_placed *out_placed);
void vmp_capture_enter(vmp_pool *pool, vmp_graph *graph, uint64_t offset, uint64_t bytes, int layer);

// vmp_capture_free keeps a block that a graph holds, or that is freed on a capturing stream. False: it is neither.
// *out_status: VMP_OK, VMP_ERROR_HOST_OUT_OF_MEMORY (then nothing has changed), VMP_ERROR_DOUBLE_FREE.
bool vmp_capture_free(vmp_pool *pool, uint64_t offset, vmp_stream stream, uint32_t lane, vmp_status *out_status);
// vmp_capture_use makes a live block the graph's. VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_capture_use(vmp_pool *pool, vmp_graph *graph, uint64_t offset);

// vmp_captures_hold: whether a graph holds any block that overlaps the range: its mapping must stay as it is.
bool vmp_captures_hold(const vmp_captures *captures, uint64_t offset, uint64_t bytes);
uint64_t vmp_captures_kept_bytes(const vmp_captures *captures);
uint64_t vmp_captures_num_graphs(const vmp_captures *captures);
uint64_t vmp_captures_metadata_bytes(const vmp_captures *captures);
void vmp_captures_check(vmp_pool *pool, vmp_report *report);

#endif  // VMPOOL_POOL_CAPTURE_H_
