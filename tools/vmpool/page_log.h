// page_log.h: an event log as the viewer's page takes it: columns of small numbers, which compress well.
//
//     u32 length of the head, little-endian | head, JSON | kind[] | layer[] | stream[] | flags[] | time | place | ...
//
// The first four columns are bytes. The others are varints (seven bits a byte, the lowest first): time in ns since the
// event before, place (see below) as the zigzag difference to the one before, everything else as it is. What belongs to
// an event (texts, samples of counters) stands in the head and in columns of its own. tools/viewer/src/history.js reads
// it.
//
// place: bytes from the start of the first range, the ranges of the log lying behind one another by rising base.
//
// Owns: which records become events (those from the log's first whole keyframe on, its STATE records among them, later
// ones not). Does not own: reading the log (tools/log).
#ifndef VMPOOL_TOOLS_VMPOOL_PAGE_LOG_H_
#define VMPOOL_TOOLS_VMPOOL_PAGE_LOG_H_

#include <stdint.h>

#include "tools/log/log_file.h"

// page_log: the bytes, to be freed by the caller.
typedef struct page_log {
  unsigned char *bytes;
  size_t num_bytes;
  uint64_t num_events, num_initial;  // initial: events that say what was there before the log's first one
} page_log;

// page_log_make packs a log. `snapshot_records`: how many records come before the snapshot that stands beside it, or
// UINT64_MAX. False when host memory runs out, or when the log holds no event.
bool page_log_make(page_log *out, const log_file *log, const char *name, uint64_t snapshot_records, tool_error *error);

#endif  // VMPOOL_TOOLS_VMPOOL_PAGE_LOG_H_
