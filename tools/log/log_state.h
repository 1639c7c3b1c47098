// log_state.h: what is true of a pool at a point of its log: live blocks and mappings by address, and their sums.
//
// Owns: the state, how each record changes it, and noticing that a record doesn't fit what came before. Does not own:
// which records come (log_file.h).
//
// Invariants
//   - A block and a mapping each begin at their own address at most once.
//   - live_bytes, requested_bytes, mapped_bytes and retiring_bytes are the sums over what is there; a chunk that is
//   mapped
//     at several addresses counts once.
#ifndef VMPOOL_TOOLS_LOG_LOG_STATE_H_
#define VMPOOL_TOOLS_LOG_LOG_STATE_H_

#include "tools/log/log_file.h"
#include "tools/trace/id_map.h"

typedef struct log_block {
  uint64_t address, bytes, requested_bytes, sequence;  // sequence: of its ALLOC
  uint32_t tag, stack;
  uint8_t layer, stream;
} log_block;

typedef struct log_mapping {
  uint64_t address, bytes, chunk;
  bool retiring;
} log_mapping;

typedef struct log_state {
  id_map block_at, mapping_at;  // address -> place in the arrays
  id_map chunk_mappings;        // chunk -> how many mappings it has that don't retire
  log_block *blocks;
  log_mapping *mappings;  // both without gaps, in no order
  size_t num_blocks, max_blocks, num_mappings, max_mappings;
  uint64_t live_bytes, requested_bytes, mapped_bytes, retiring_bytes;
  uint64_t faults;  // records that didn't fit
  tool_error first_fault;
} log_state;

// log_state_apply lets a record happen. A record that doesn't fit is a fault: counted, the first one in words. False:
// host memory ran out. A zeroed state is the empty pool; log_state_destroy leaves it so.
bool log_state_apply(log_state *state, const vmp_log_record *record);
void log_state_destroy(log_state *state);

// log_state_restart forgets everything but the faults, to begin with the keyframe that follows.
void log_state_restart(log_state *state);

// log_state_equal compares two states; the first difference is the sentence.
bool log_state_equal(const log_state *a, const log_state *b, tool_error *difference);

#endif  // VMPOOL_TOOLS_LOG_LOG_STATE_H_
