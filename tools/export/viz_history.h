// viz_history.h: a log as PyTorch's memory viewer understands one: segments of mapped memory, blocks inside them, and
// events that can be taken back one by one from the last state to the first.
//
// Owns: the rule that a block is only there while all of its addresses are mapped. What that viewer can't express is
// left out: addresses without memory (a suspended block goes, and comes again when it is mapped), retiring mappings.
//
// Invariants (viz_history_check, and the viewer relies on them)
//   - Taken back in reverse, every event applies: a free makes a block that isn't there, an allocation ends one that
//   is.
//   - Every block lies inside the segments, at any time.
#ifndef VMPOOL_TOOLS_EXPORT_VIZ_HISTORY_H_
#define VMPOOL_TOOLS_EXPORT_VIZ_HISTORY_H_

#include "tools/log/log_file.h"
#include "tools/trace/id_map.h"

typedef enum viz_action {
  VIZ_ALLOC = 0,
  VIZ_FREE_REQUESTED,
  VIZ_FREE_COMPLETED,
  VIZ_SEGMENT_MAP,
  VIZ_SEGMENT_UNMAP,
  VIZ_OOM,
  VIZ_SNAPSHOT,
} viz_action;

typedef struct viz_event {
  uint64_t address, bytes, time_ns, device_free;
  uint32_t tag, stack;  // of the log
  uint8_t action, stream;
} viz_event;

typedef struct viz_block {
  uint64_t address, bytes, requested_bytes;
  uint32_t tag, stack;
  uint8_t stream;
  bool hidden;  // not wholly mapped
} viz_block;

typedef struct viz_segment {
  uint64_t address, bytes;
} viz_segment;

typedef struct viz_history {
  uint64_t granule;
  viz_event *events;
  size_t num_events, max_events;
  viz_block *blocks;  // by address, once it is finished
  size_t num_blocks, max_blocks, num_hidden;
  viz_segment *segments;  // mappings; runs of them once it is finished
  size_t num_segments, max_segments;
  id_map block_at, segment_at;  // by address
  id_map mapped, touched;       // granules that are mapped; how many visible blocks touch each
  bool recording, failed;
} viz_history;

// viz_history_of makes a log's history, of its records below `end`. False when host memory runs out.
bool viz_history_of(viz_history *out, const log_file *log, uint64_t end);
void viz_history_destroy(viz_history *h);

#endif  // VMPOOL_TOOLS_EXPORT_VIZ_HISTORY_H_
