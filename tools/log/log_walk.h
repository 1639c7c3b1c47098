// log_walk.h: the events of a log in order, beginning with what was there before the first one.
//
// Owns: where a log can be read from (its first whole keyframe; its first record where it has none), that the
// keyframe's STATE records come first and later keyframes not at all. Does not own: what events do (log_state.h).
//
// A mapping that is only retiring at the keyframe is given twice: as MAP, then as RETIRE. Records that only name things
// (strings, stacks, streams, ranges) are not given; samples are.
#ifndef VMPOOL_TOOLS_LOG_LOG_WALK_H_
#define VMPOOL_TOOLS_LOG_LOG_WALK_H_

#include "tools/log/log_file.h"

typedef struct log_walk {
  const log_file *log;
  uint64_t next, end;      // sequences
  uint64_t states_end;     // STATE records below it belong to the keyframe that the walk begins with
  vmp_log_record pending;  // a RETIRE that follows its MAP
  bool has_pending;
} log_walk;

// log_walk_begin starts a walk over the records below `end` (UINT64_MAX: all).
log_walk log_walk_begin(const log_file *log, uint64_t end);

// log_walk_next gives the next event; *out_initial says whether it only tells what was there before. False at the end.
bool log_walk_next(log_walk *walk, vmp_log_record *out, bool *out_initial);

// log_kind_has_place: its address is a device address. log_kind_is_stretch: ... and bytes lie there.
bool log_kind_has_place(unsigned kind);
bool log_kind_is_stretch(unsigned kind);

#endif  // VMPOOL_TOOLS_LOG_LOG_WALK_H_
