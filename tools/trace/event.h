// event.h: what every trace becomes: a sequence of allocations and frees.
//
// Owns: the event and the two ways to get a sequence: a list in memory, or a source that makes events on demand
// (a day of LLM serving has millions of pages, but needs only its requests in memory).
//
// Invariants of every sequence
//   - An event names its block by a small number below num_blocks. At any time a number stands for at most one live
//     block; it may be used again after its free. So a player needs an array and no search.
//   - A free comes after the allocation of its block, and carries the bytes of that allocation.
//   - Growth is for blocks that grow in place (regions): it carries what is added, and the free carries the sum.
//   - Streams are dense: 0 is the default stream, the others are numbered as they appear.
#ifndef VMPOOL_TOOLS_TRACE_EVENT_H_
#define VMPOOL_TOOLS_TRACE_EVENT_H_

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TRACE_MAX_STREAMS 1024u
#define TRACE_NO_TIME INT64_MIN

typedef enum trace_event_kind { TRACE_ALLOC = 0, TRACE_FREE = 1, TRACE_GROW = 2 } trace_event_kind;

typedef struct trace_event {
  uint64_t bytes;
  int64_t t_us;  // microseconds by the trace's own clock, or TRACE_NO_TIME
  uint32_t block;
  uint16_t stream;
  uint8_t kind;  // trace_event_kind
} trace_event;

// trace_source: makes events on demand. next returns false at the end; rewind starts over with the same events.
typedef struct trace_source {
  void *self;
  bool (*next)(void *self, trace_event *out_event);
  void (*rewind)(void *self);
  void (*close)(void *self);
} trace_source;

// trace_list: a growing array of events. A failed append (host memory, or more blocks than 2^32 - 1) is remembered in
// `failed`; appending to a failed list does nothing, so a generator checks once, at its end.
typedef struct trace_list {
  trace_event *events;
  size_t num_events, capacity;
  uint64_t *block_bytes;  // of block i
  uint16_t *block_stream;
  size_t num_blocks, blocks_capacity;
  uint64_t live_bytes, peak_bytes;
  uint64_t unmatched_frees;
  uint32_t num_streams;  // at least 1
  bool failed;
} trace_list;

void trace_list_init(trace_list *list);
void trace_list_destroy(trace_list *list);

// trace_list_alloc appends the allocation of a new block and returns its number.
uint32_t trace_list_alloc(trace_list *list, uint64_t bytes, uint16_t stream, int64_t t_us);

// trace_list_free appends the free of a live block, on the stream of its allocation or on another one. The caller
// knows that the block is live: a reader from its table of ids, a generator by construction.
void trace_list_free(trace_list *list, uint32_t block, int64_t t_us);
void trace_list_free_on(trace_list *list, uint32_t block, uint16_t stream, int64_t t_us);

#endif  // VMPOOL_TOOLS_TRACE_EVENT_H_
