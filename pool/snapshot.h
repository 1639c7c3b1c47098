// snapshot.h: what the files of the snapshot share. The format is pool/snapshot.schema.json.
//
//     snapshot.c         the call: room for the text, the instant, the file
//     snapshot_head.c    what is true of the pool as a whole: configuration, statistics, layers, streams, why it was
//     written snapshot_ranges.c  what lies at which address: slots, chunks, blocks, spans, free space
//
// Owns: the document while it is written. The state is written to memory under the lock, so that it is one instant, and
// to the file without it. Room for the text is made before the lock is taken: under it, memory is asked for only when
// the pool has grown a lot in between.
#ifndef VMPOOL_POOL_SNAPSHOT_H_
#define VMPOOL_POOL_SNAPSHOT_H_

#include "pool/json.h"
#include "pool/pool.h"

// snapshot_block: a block, or (region_bytes > 0) a run of committed pages.
typedef struct snapshot_block {
  uint64_t offset, word, region_bytes;
} snapshot_block;

typedef struct snapshot_stream {
  vmp_stream_index index;
  uint64_t handle, thread, completed;
} snapshot_stream;

#define SNAPSHOT_MAX_STREAMS 192u

typedef struct snapshot {
  vmp_pool *pool;
  vmp_json json;
  const char *path, *trigger;
  uint64_t log_records;  // that come before this instant
  uint64_t device_free_bytes;
  vmp_driver_calls calls;
  snapshot_stream streams[SNAPSHOT_MAX_STREAMS];
  size_t num_streams;
  snapshot_block *blocks;  // by offset
  size_t num_blocks, max_blocks;
  // The range that is being written, and where its address space begins.
  uint64_t range_offset, range_bytes;
  // A run of slots of one state, which grows while neighbours are alike.
  uint64_t run_offset, run_bytes;
  const char *run_state;
  const char *layer;  // whose free space is being walked
} snapshot;

// vmp_snapshot_head writes everything that has no address; vmp_snapshot_ranges one object per reservation. The lock is
// held.
void vmp_snapshot_head(snapshot *s);
void vmp_snapshot_ranges(snapshot *s);

// vmp_snapshot_fence writes a fence as two cells: the mask of streams, the sequence number; zeros when nobody is left.
void vmp_snapshot_fence(snapshot *s, vmp_fence fence);

// vmp_snapshot_make writes a pool's snapshot to memory; the caller frees *out_json. `path`: where it will be, for the
// log ("": nowhere). VMP_ERROR_HOST_OUT_OF_MEMORY.
vmp_status vmp_snapshot_make(vmp_pool *pool, const char *path, const char *trigger, vmp_json *out_json);

// vmp_snapshot_write writes a pool's snapshot to a file; `trigger` says why ("call", "oom", "exit", "signal",
// "socket"). What vmp_pool_snapshot returns.
vmp_status vmp_snapshot_write(vmp_pool *pool, const char *path, const char *trigger);

#endif  // VMPOOL_POOL_SNAPSHOT_H_
