#include "tools/trace/trace.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/log/log_file.h"
#include "tools/trace/formats.h"
#include "vmm/align.h"

// ---- formats ----

// format: how a text is recognised and read. `header` is the whole first line, NULL where recognise() decides.
typedef struct format {
  const char *name;
  const char *header;
  bool (*read)(reading *r);
  bool has_requests;
  bool cut_shows;  // a cut last line never reads as a shorter number that matters
} format;

static const format formats[] = {
    {"plain", NULL, read_plain, false, false},
    {"interval log", NULL, read_interval_log, false, false},
    {"pytorch", NULL, read_torch, false, true},
    {"mooncake", NULL, read_mooncake, true, true},
    {"vmpool log", NULL, read_log, false, true},
    {"interval", "id,lower,upper,size", read_interval_csv, false, false},
    {"signed", "t_us,thread,bytes", read_signed, false, false},
    {"timeline", "t_ns,action,bytes,category", read_timeline, false, true},
    {"hta", "t_us,thread,op,id,bytes,rel_addr,total_allocated", read_hta, false, true},
    {"rmm", "Thread,Time,Action,Pointer,Size,Stream", read_rmm, false, false},
    {"azure", "TIMESTAMP,ContextTokens,GeneratedTokens", read_azure, true, true},
    {"vidur", "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio", read_vidur, true, true},
};
enum { FORMAT_PLAIN, FORMAT_INTERVAL_LOG, FORMAT_TORCH, FORMAT_MOONCAKE, FORMAT_VMPOOL_LOG };

static bool is_log_row(const input *in) {
  text_span fields[3];
  uint64_t number;
  if (input_split(in, ' ', fields, 3) != 3) return false;
  for (int i = 0; i < 3; i++) {
    if (number_parse(fields[i].text, fields[i].length, &number) != NUMBER_OK) return false;
  }
  return true;
}

static bool is_plain_row(const input *in) {
  text_span first;
  if (input_split(in, ' ', &first, 1) == 0) return false;
  return span_is(first, "alloc") || span_is(first, "free") || (first.length > 0 && first.text[0] == '#');
}

static const format *recognise_line(const input *in) {
  for (size_t i = 0; i < sizeof(formats) / sizeof(formats[0]); i++) {
    if (formats[i].header != NULL && span_is(in->line, formats[i].header)) return &formats[i];
  }
  if (in->line.text[0] == '{' || in->line.text[0] == '[') {
    const bool requests = memmem(in->line.text, in->line.length, "\"input_length\"", 14) != NULL;
    return &formats[requests ? FORMAT_MOONCAKE : FORMAT_TORCH];
  }
  if (is_plain_row(in)) return &formats[FORMAT_PLAIN];
  if (is_log_row(in)) return &formats[FORMAT_INTERVAL_LOG];
  return NULL;
}

// A file without any line is an empty Plain trace.
static const format *recognise(input *in) {
  if (in->bytes >= 2 && memcmp(in->text, "\x1f\x8b", 2) == 0) {
    tool_fail(in->error, "%s is compressed with gzip; unpack it first", in->name);
    return NULL;
  }
  if (in->bytes >= 2 && in->text[0] == '\x80' && in->text[1] <= 5 && in->text[1] >= 2) {
    tool_fail(in->error, "%s is a Python pickle; export the snapshot to JSON first", in->name);
    return NULL;
  }
  if (log_is(in->text, in->bytes)) return &formats[FORMAT_VMPOOL_LOG];
  if (!input_next_line(in)) return &formats[FORMAT_PLAIN];
  const format *found = recognise_line(in);
  if (found == NULL)
    input_fail(in, "begins like none of the trace formats that vmpool reads (vmpool help formats lists them)");
  return found;
}

// ---- opening and closing ----

static bool adopt(trace *t, reading *r, const format *f) {
  tool_error *error = r->in->error;
  t->format = f->name;
  t->remark = r->remark;
  if (!f->cut_shows && r->in->line_number > 0 && !r->in->line_ended) {
    tool_fail(&t->remark, "%s: the last line has no line end; if the file was cut, its last number may be cut as well",
              r->in->name);
  }
  if (f->has_requests) {
    t->num_streams = 1;
    return service_open(r->requests, &r->options->kv, &t->source, &t->num_events, error);
  }
  if (r->list->failed) return reading_memory(r);
  t->list = *r->list;
  trace_list_init(r->list);
  t->num_events = t->list.num_events;
  t->num_streams = t->list.num_streams;
  t->unmatched_frees = t->list.unmatched_frees;
  return true;
}

static bool check_layout(const input *in, const format *f, const trace_options *options) {
  if (f->has_requests && options->kv.layout == SERVICE_NO_LAYOUT) {
    return tool_fail(in->error,
                     "%s is a file of requests (%s); say how their KV cache is allocated with --kv contiguous, "
                     "--kv paged or --kv region, and for which --model",
                     in->name, f->name);
  }
  if (!f->has_requests && options->kv.layout != SERVICE_NO_LAYOUT) {
    return tool_fail(in->error, "%s is a trace of allocations (%s); --kv is for files of requests", in->name, f->name);
  }
  return true;
}

static bool parse(input *in, const trace_options *options, trace *t) {
  const format *f = recognise(in);
  if (f == NULL || !check_layout(in, f, options)) return false;
  trace_list list;
  service_requests requests = {0};
  trace_list_init(&list);
  reading r = {.in = in, .options = options, .list = &list, .requests = &requests};
  input_rewind(in);
  const bool good = f->read(&r) && adopt(t, &r, f);
  trace_list_destroy(&list);
  service_requests_destroy(&requests);
  id_map_destroy(&r.streams);
  return good;
}

static bool open_input(input *in, const trace_options *options, trace **out_trace) {
  trace *t = calloc(1, sizeof(*t));
  if (t == NULL) return tool_fail(in->error, "%s: host memory ran out", in->name);
  trace_list_init(&t->list);
  if (!parse(in, options, t)) {
    trace_close(t);
    return false;
  }
  *out_trace = t;
  return true;
}

bool trace_parse(const char *name, const char *text, size_t bytes, const trace_options *options, trace **out_trace,
                 tool_error *error) {
  input in;
  input_of_text(&in, name, text, bytes, error);
  return open_input(&in, options, out_trace);
}

bool trace_read(const char *path, const trace_options *options, trace **out_trace, tool_error *error) {
  input in;
  if (!input_load(&in, path, error)) return false;
  const bool good = open_input(&in, options, out_trace);
  input_destroy(&in);
  return good;
}

bool trace_of_list(const char *format_name, trace_list *list, trace **out_trace, tool_error *error) {
  trace *t = calloc(1, sizeof(*t));
  if (t == NULL || list->failed) {
    free(t);
    trace_list_destroy(list);
    return tool_fail(error, "host memory ran out");
  }
  *t = (trace){.format = format_name,
               .list = *list,
               .num_events = list->num_events,
               .num_streams = list->num_streams,
               .unmatched_frees = list->unmatched_frees};
  trace_list_init(list);
  *out_trace = t;
  return true;
}

bool trace_of_source(const char *format_name, const trace_source *source, uint64_t num_events, trace **out_trace,
                     tool_error *error) {
  trace *t = calloc(1, sizeof(*t));
  if (t == NULL) {
    source->close(source->self);
    return tool_fail(error, "host memory ran out");
  }
  *t = (trace){.format = format_name, .num_events = num_events, .num_streams = 1, .source = *source};
  trace_list_init(&t->list);
  *out_trace = t;
  return true;
}

void trace_close(trace *t) {
  if (t == NULL) return;
  trace_list_destroy(&t->list);
  if (t->source.self != NULL) t->source.close(t->source.self);
  free(t);
}

// ---- events ----

bool trace_next(trace *t, trace_event *out_event) {
  if (t->source.self != NULL) return t->source.next(t->source.self, out_event);
  if (t->cursor == t->list.num_events) return false;
  *out_event = t->list.events[t->cursor++];
  return true;
}

void trace_rewind(trace *t) {
  t->cursor = 0;
  if (t->source.self != NULL) t->source.rewind(t->source.self);
}

bool trace_failed(const trace *t) { return t->source.self != NULL && service_failed(&t->source); }

void trace_measure(trace *t, trace_totals *out_totals) {
  *out_totals = (trace_totals){0};
  uint64_t live = 0, blocks = 0;
  bool overflow = false;
  trace_event event;
  trace_rewind(t);
  while (trace_next(t, &event)) {
    if (event.kind == TRACE_ALLOC) {
      out_totals->allocs++;
      blocks++;
      overflow = overflow || !vmp_add(live, event.bytes, &live);
    } else if (event.kind == TRACE_GROW) {
      overflow = overflow || !vmp_add(live, event.bytes, &live);
    } else {
      out_totals->frees++;
      blocks--;
      live -= event.bytes;
    }
    if (live > out_totals->peak_bytes) out_totals->peak_bytes = live;
    if (blocks > out_totals->peak_blocks) out_totals->peak_blocks = blocks;
  }
  out_totals->end_bytes = live;
  if (overflow) out_totals->peak_bytes = out_totals->end_bytes = UINT64_MAX;
  trace_rewind(t);
}

bool trace_write_plain(trace *t, FILE *out) {
  trace_event event;
  trace_rewind(t);
  while (trace_next(t, &event)) {
    if (event.kind == TRACE_ALLOC) {
      fprintf(out, "alloc %" PRIu32 " %" PRIu64 " %" PRIu16, event.block, event.bytes, event.stream);
    } else {
      fprintf(out, "free %" PRIu32 " %" PRIu16, event.block, event.stream);
    }
    if (event.t_us != TRACE_NO_TIME) fprintf(out, " %" PRId64, event.t_us);
    fputc('\n', out);
  }
  const bool complete = !trace_failed(t);
  trace_rewind(t);
  return complete && ferror(out) == 0;
}
