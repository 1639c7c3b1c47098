// trace.h: recorded and derived memory demand, from a file in any of the known formats to one sequence of events.
//
// Owns: recognising a format by its content, reading it strictly, handing out its events. Does not own: what is done
// with them (tools/replay), sizes of models (tools/models).
//
//     file -> input.c (text, lines, fields) -> format_*.c -> trace_list -------------------> trace_next
//                                           '-> requests -> tools/models/service (on demand) --'
//
// A bad line is an error that names file, line and field, never a guess. An unknown id that is freed is a block from
// before the trace: it is counted (unmatched_frees) and makes no event. An id that is allocated while it is live is an
// error; after its free it may be used again. A file that ends in the middle of a line is an error wherever that can be
// told, and a remark (trace.remark) where it can't.
#ifndef VMPOOL_TOOLS_TRACE_TRACE_H_
#define VMPOOL_TOOLS_TRACE_TRACE_H_

#include <stdio.h>

#include "tools/common/error.h"
#include "tools/models/service.h"
#include "tools/trace/event.h"

// trace_pairing: which of several live blocks of one size a free without an id ends.
typedef enum trace_pairing { TRACE_LIFO = 0, TRACE_FIFO = 1 } trace_pairing;

typedef struct trace_options {
  trace_pairing pairing;
  service_options kv;   // for request files; layout SERVICE_NO_LAYOUT makes them an error
  double request_rate;  // requests a second for files without arrival times; 0: 2
  int device;           // of a PyTorch snapshot with events of several devices; -1: the only one that has any
} trace_options;

#define TRACE_OPTIONS_INIT \
  { .device = -1 }

typedef struct trace {
  const char *format;  // "plain", "interval", ...; static storage
  uint64_t num_events;
  uint64_t unmatched_frees;
  uint32_t num_streams;  // events' streams are below it; at least 1
  tool_error remark;     // something the person should know; empty where there is nothing
  trace_list list;       // the events, unless they are made on demand
  trace_source source;   // self is NULL for a list
  size_t cursor;
} trace;

// trace_read opens a trace; "-" is standard input. On failure *error has the sentence and *out_trace is untouched.
bool trace_read(const char *path, const trace_options *options, trace **out_trace, tool_error *error);

// trace_parse is the same for `bytes` bytes of text in memory; `name` stands for the path in messages.
bool trace_parse(const char *name, const char *text, size_t bytes, const trace_options *options, trace **out_trace,
                 tool_error *error);

// trace_of_list and trace_of_source make a trace of generated events and take over what they are given (on failure too:
// host memory).
bool trace_of_list(const char *format, trace_list *list, trace **out_trace, tool_error *error);
bool trace_of_source(const char *format, const trace_source *source, uint64_t num_events, trace **out_trace,
                     tool_error *error);

// trace_close ends a trace; NULL is fine.
void trace_close(trace *t);

// trace_next returns the next event, or false at the end. trace_rewind starts over with the same events.
bool trace_next(trace *t, trace_event *out_event);
void trace_rewind(trace *t);

// trace_failed says whether events ended early because host memory ran out (traces made on demand only).
bool trace_failed(const trace *t);

// trace_totals: what a trace asks for, whatever serves it.
typedef struct trace_totals {
  uint64_t allocs, frees;
  uint64_t peak_bytes, end_bytes;  // of the bytes asked for; UINT64_MAX where they pass 2^64
  uint64_t peak_blocks;
} trace_totals;

// trace_measure reads a trace from its start to its end, and rewinds it.
void trace_measure(trace *t, trace_totals *out_totals);

// trace_write_plain writes the events in the Plain format (with the numbers of their allocations as ids) and rewinds
// the trace. Returns false when writing fails.
bool trace_write_plain(trace *t, FILE *out);

#endif  // VMPOOL_TOOLS_TRACE_TRACE_H_
