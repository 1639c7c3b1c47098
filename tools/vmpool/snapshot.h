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
  uint64_t tag;      // index into the tags; 0: none
  const char *name;  // in the document; NULL: none
} snapshot_block;

typedef struct snapshot_range {  // one reservation; runs and blocks ascend and do not overlap
  uint64_t base, bytes;
  snapshot_run *runs;
  size_t num_runs;
  snapshot_block *blocks;
  size_t num_blocks;
} snapshot_range;

struct json_t;

typedef struct snapshot {
  struct json_t *document;  // everything, as it was read: for what only one command looks at
  char pool_name[64];
  char driver[16];
  uint64_t device, granule;
  uint64_t reserved_va, mapped, live, requested, parked, spare, pending, retiring, broken;
  uint64_t largest_free_mapped, device_free, device_total;
  uint64_t regions, region_reserved, region_committed;  // 0 in snapshots from before there were regions
  uint64_t shared;                                      // chunks that are mapped at several addresses, each once
  uint64_t suspended;                                   // of live: blocks of suspended tags, without memory
  snapshot_range *ranges;
  size_t num_ranges;
} snapshot;

// snapshot_load reads a file ("-": standard input); snapshot_parse reads text in memory, with `name` for messages. On
// failure *out is untouched. snapshot_destroy frees what *out holds.
bool snapshot_load(snapshot *out, const char *path, tool_error *error);
bool snapshot_parse(snapshot *out, const char *name, const char *text, size_t bytes, tool_error *error);
void snapshot_destroy(snapshot *s);

// snapshot_live_in_memory: live without what suspended tags hold, which has no memory.
uint64_t snapshot_live_in_memory(const snapshot *s);

// snapshot_tag: the name of a tag, "" where there is none. snapshot_number: a whole number of an object of the document
// ("stats", "allocs"); 0 where it is missing, null or no number. snapshot_text: a string, "" where it is missing.
const char *snapshot_tag(const snapshot *s, uint64_t tag);
uint64_t snapshot_number(const snapshot *s, const char *object, const char *key);
const char *snapshot_text(const snapshot *s, const char *object, const char *key);
// snapshot_is_null: whether the document has no such object, or null.
bool snapshot_is_null(const snapshot *s, const char *key);

#endif  // VMPOOL_TOOLS_VMPOOL_SNAPSHOT_H_
