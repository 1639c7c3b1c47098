// snapshot.h: a pool's snapshot, read from its JSON file.
//
// Owns: the parsed snapshot, and the refusal of one that contradicts itself. Does not own: how it is drawn (map.h). The
// format is written by vmp_pool_snapshot and described by pool/snapshot.schema.json; keys it does not know are ignored.
#ifndef VMPOOL_TOOLS_VMPOOL_SNAPSHOT_H_
#define VMPOOL_TOOLS_VMPOOL_SNAPSHOT_H_

#include <stddef.h>
#include <stdint.h>

#include "tools/common/error.h"

typedef enum snapshot_state {
  SNAPSHOT_UNMAPPED = 0,
  SNAPSHOT_MAPPED,  // a chunk that live blocks touch
  SNAPSHOT_PARKED,
  SNAPSHOT_RETIRING,
  SNAPSHOT_IN_TRANSIT,
  SNAPSHOT_BROKEN,
  SNAPSHOT_NUM_STATES,
} snapshot_state;

// snapshot_layer: SNAPSHOT_REGION stands for committed pages of regions, which no layer owns.
typedef enum snapshot_layer {
  SNAPSHOT_SLAB = 0,
  SNAPSHOT_MID,
  SNAPSHOT_BUDDY,
  SNAPSHOT_REGION,
  SNAPSHOT_NUM_LAYERS,
} snapshot_layer;

typedef struct snapshot_run {  // slots of one state, relative to the range's base
  uint64_t offset, bytes;
  snapshot_state state;
} snapshot_run;

typedef struct snapshot_block {
  uint64_t offset, bytes, requested_bytes;
  snapshot_layer layer;
} snapshot_block;

typedef struct snapshot_range {  // one reservation; runs and blocks ascend and do not overlap
  uint64_t base, bytes;
  snapshot_run *runs;
  size_t num_runs;
  snapshot_block *blocks;
  size_t num_blocks;
} snapshot_range;

typedef struct snapshot {
  char pool_name[64];
  char driver[16];
  uint64_t device, granule;
  uint64_t reserved_va, mapped, live, requested, parked, spare, pending, retiring, broken;
  uint64_t largest_free_mapped, device_free, device_total;
  uint64_t regions, region_reserved, region_committed;  // 0 in snapshots from before there were regions
  snapshot_range *ranges;
  size_t num_ranges;
} snapshot;

// snapshot_load reads a file ("-": standard input); snapshot_parse reads text in memory, with `name` for messages. On
// failure *out is untouched. snapshot_destroy frees what *out holds.
bool snapshot_load(snapshot *out, const char *path, tool_error *error);
bool snapshot_parse(snapshot *out, const char *name, const char *text, size_t bytes, tool_error *error);
void snapshot_destroy(snapshot *s);

#endif  // VMPOOL_TOOLS_VMPOOL_SNAPSHOT_H_
