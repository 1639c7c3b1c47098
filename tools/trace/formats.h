// formats.h: the readers, one per format. Internal to tools/trace.
//
// Each reader is given the input before its first line and appends to the list (or the requests). It returns false with
// the sentence set in the input's error; trace.c then throws away what was appended.
#ifndef VMPOOL_TOOLS_TRACE_FORMATS_H_
#define VMPOOL_TOOLS_TRACE_FORMATS_H_

#include "tools/trace/id_map.h"
#include "tools/trace/input.h"
#include "tools/trace/trace.h"

typedef struct reading {
  input *in;
  const trace_options *options;
  trace_list *list;
  service_requests *requests;
  id_map streams;  // stream of the file -> dense stream
  tool_error remark;  // something the person should know
} reading;

bool read_plain(reading *r);
bool read_interval_csv(reading *r);  // id,lower,upper,size
bool read_interval_log(reading *r);  // lower upper size
bool read_signed(reading *r);        // t_us,thread,bytes
bool read_timeline(reading *r);      // t_ns,action,bytes,category
bool read_hta(reading *r);           // t_us,thread,op,id,bytes,rel_addr,total_allocated
bool read_rmm(reading *r);           // Thread,Time,Action,Pointer,Size,Stream
bool read_torch(reading *r);         // a PyTorch snapshot exported to JSON
bool read_azure(reading *r);         // TIMESTAMP,ContextTokens,GeneratedTokens
bool read_mooncake(reading *r);      // JSON lines
bool read_vidur(reading *r);         // num_prefill_tokens,num_decode_tokens,...
bool read_log(reading *r);           // vmpool's event log: binary

// reading_stream turns a stream of the file into a dense one: 0 is 0, others are numbered as they appear.
bool reading_stream(reading *r, uint64_t stream, uint16_t *out_stream);

// reading_unmatched counts a free of an unknown block; in a last line without a line end it is an error, since the
// number is probably cut.
bool reading_unmatched(reading *r, const char *field, text_span value);

// reading_memory reports that host memory ran out.
bool reading_memory(reading *r);

// reading_fields splits the current line at commas into exactly `count` fields, or reports the line. `names` are the
// columns, separated by commas, for the message.
bool reading_fields(reading *r, text_span *fields, size_t count, const char *names);

// reading_tokens reads a number of tokens of a request.
bool reading_tokens(reading *r, const char *field, text_span value, uint32_t *out);

#endif  // VMPOOL_TOOLS_TRACE_FORMATS_H_
