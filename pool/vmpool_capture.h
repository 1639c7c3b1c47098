// vmpool_capture.h: allocation inside a stream capture. Included by vmpool.h.
//
//     vmp_capture_begin(pool, stream, &graph)     before cuStreamBeginCapture, or right after it
//     cuStreamBeginCapture ... kernels, vmp_alloc and vmp_free on `stream` ... cuStreamEndCapture
//     vmp_capture_end(pool, stream)               after cuStreamEndCapture, or right before it
//     ... launches of the graph ...
//     vmp_capture_release(pool, graph)            the graph will not be launched any more
//
// A graph bakes addresses in, so what it was captured with belongs to it until vmp_capture_release: blocks allocated on
// the stream inside the capture, blocks freed there, and blocks that vmp_record_use names it for. A block that is freed
// meanwhile, on any stream, is kept: it is live no longer, but nobody else gets its memory, and its mapping stays.
//
// Inside the capture an allocation on the stream gets
//   - a block that was freed on the stream in the same capture,
//   - else memory that no unfinished work uses any more, as far as the host knows or can ask without waiting,
//   - else new memory.
// Nothing waits on, records on or queries the capturing stream. Other streams allocate and free as ever, but the host
// can't wait for a context as a whole as long as a capture is under way. Thread caches are not used meanwhile.
#ifndef VMPOOL_POOL_VMPOOL_CAPTURE_H_
#define VMPOOL_POOL_VMPOOL_CAPTURE_H_

#include "pool/vmpool.h"

#ifdef __cplusplus
extern "C" {
#endif

// vmp_graph_id: what a capture has made; never 0, never used again in the pool.
typedef uint64_t vmp_graph_id;

// vmp_capture_begin starts a capture of the pool's on a stream (any thread may allocate on it then). Other streams that
// join the driver's capture need a vmp_capture_begin of their own, with a graph of their own. VMP_ERROR_INVALID_VALUE
// (the legacy stream can't be captured), VMP_ERROR_CAPTURE (the stream is in a capture of the pool already),
// VMP_ERROR_HOST_OUT_OF_MEMORY, VMP_ERROR_FORKED.
VMP_API vmp_status vmp_capture_begin(vmp_pool *pool, vmp_stream stream, vmp_graph_id *out_graph);

// vmp_capture_end ends it; the graph keeps its memory. Also after a capture that the driver has invalidated.
// VMP_ERROR_INVALID_VALUE (the stream is in no capture of the pool), VMP_ERROR_FORKED.
VMP_API vmp_status vmp_capture_end(vmp_pool *pool, vmp_stream stream);

// vmp_capture_release gives a graph's memory back: the caller will not launch it any more. Launches that still run on
// streams that the pool knows are waited for by whoever gets the memory, on the GPU; launches on others must have
// finished. Blocks of the graph that are live stay so, as ordinary ones. Its memory is kept as long as another graph
// has it too. VMP_ERROR_INVALID_VALUE (there is no such graph), VMP_ERROR_CAPTURE (its capture has not ended),
// VMP_ERROR_FORKED.
VMP_API vmp_status vmp_capture_release(vmp_pool *pool, vmp_graph_id graph);

// What changes for other calls
//   vmp_alloc           on a capturing stream: VMP_ERROR_CAPTURE when nothing of the above is left; the capture is as
//   it
//                       was. A request that can never be had fails as ever.
//   vmp_free            on a capturing stream: the block is kept for the graph. Where host memory runs out for the note
//                       of it (of a block from outside the capture), VMP_ERROR_HOST_OUT_OF_MEMORY, and it stays live.
//   vmp_stream_retired  VMP_ERROR_CAPTURE while the stream captures.
//   vmp_pool_destroy    VMP_ERROR_BUSY while a graph is not released, unless destroy_releases is set.

#ifdef __cplusplus
}
#endif

#endif  // VMPOOL_POOL_VMPOOL_CAPTURE_H_
