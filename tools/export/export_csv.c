// CSV (RFC 4180): one of the snapshot's tables, or the log's events.
#include <inttypes.h>
#include <string.h>

#include "tools/export/export.h"
#include "tools/export/rows.h"
#include "tools/log/log_walk.h"

static void put_text(FILE *out, const char *text) {
  if (strpbrk(text, ",\"\r\n") == NULL) {
    fputs(text, out);
    return;
  }
  fputc('"', out);
  for (; *text != '\0'; text++) {
    if (*text == '"') fputc('"', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

static void put_stream(FILE *out, int64_t stream) {
  if (stream >= 0) fprintf(out, "%" PRId64, stream);
}

static void put_block(FILE *out, const export_input *in, uint64_t base, const json_t *row) {
  fprintf(out, "0x%" PRIx64 ",%" PRIu64 ",%" PRIu64 ",", base + row_size(row, 0), row_size(row, 1), row_size(row, 2));
  put_text(out, row_text(row, 3));
  fputc(',', out);
  put_stream(out, row_stream(row, 4));
  fputc(',', out);
  put_text(out, tag_text(in->document, row_size(row, 6)));
  fputc(',', out);
  put_text(out, row_text(row, 7));
}

static void put_chunk(FILE *out, const export_input *in, uint64_t base, const json_t *row) {
  (void)in;
  fprintf(out, "0x%" PRIx64 ",%" PRIu64 ",", base + row_size(row, 0), row_size(row, 1));
  put_text(out, row_text(row, 2));
  fprintf(out, ",%" PRIu64 ",%" PRIu64 ",", row_size(row, 3), row_size(row, 4));
  put_text(out, row_text(row, 5));
  fprintf(out, ",%" PRIu64, row_size(row, 6));
}

static void put_area(FILE *out, const export_input *in, uint64_t base, const json_t *row) {
  (void)in;
  fprintf(out, "0x%" PRIx64 ",%" PRIu64 ",", base + row_size(row, 0), row_size(row, 1));
  put_text(out, row_text(row, 2));
  fputc(',', out);
  put_text(out, row_text(row, 3));
}

static void put_rows(FILE *out, const export_input *in, const char *field,
                     void (*put)(FILE *out, const export_input *in, uint64_t base, const json_t *row)) {
  const json_t *ranges = json_object_get(in->document, "ranges");
  for (size_t r = 0; r < in->state->num_ranges; r++) {
    const json_t *rows = json_object_get(json_array_get(ranges, r), field);
    for (size_t i = 0; i < json_array_size(rows); i++) {
      put(out, in, in->state->ranges[r].base, json_array_get(rows, i));
      fputs("\r\n", out);
    }
  }
}

static void put_stats(FILE *out, const export_input *in) {
  const char *key;
  json_t *value;
  json_object_foreach(json_object_get(in->document, "stats"), key, value) {
    put_text(out, key);
    if (json_is_integer(value)) {
      fprintf(out, ",%" JSON_INTEGER_FORMAT "\r\n", json_integer_value(value));
    } else {
      fputs(",\r\n", out);
    }
  }
}

static void put_event(FILE *out, const log_file *log, const vmp_log_record *r, bool initial) {
  const char *kind = log_kind_name(r->kind);
  fprintf(out, "%" PRIu64 ",%" PRIu64 ",%s,%s,", r->sequence, r->time_ns, initial ? "initial" : "event",
          kind != NULL ? kind : "");
  if (log_kind_has_place(r->kind)) fprintf(out, "0x%" PRIx64, r->as.event.address);
  fprintf(out, ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",", r->as.event.bytes, r->as.event.extra, r->as.event.value);
  if (r->stream != VMP_LOG_NONE) fprintf(out, "%u", r->stream);
  fputc(',', out);
  put_text(out, log_string(log, r->as.event.tag));
  fputs("\r\n", out);
}

static bool put_events(FILE *out, const export_input *in, tool_error *error) {
  if (in->log == NULL) return tool_fail(error, "--table events needs a log");
  log_walk walk = log_walk_begin(in->log, in->log_end);
  vmp_log_record record;
  bool initial;
  fputs("sequence,time_ns,state,kind,address,bytes,extra,value,stream,tag\r\n", out);
  while (log_walk_next(&walk, &record, &initial)) {
    if (record.kind != VMP_LOG_SAMPLE) put_event(out, in->log, &record, initial);
  }
  return true;
}

bool export_csv(FILE *out, const export_input *in, tool_error *error) {
  switch (in->table) {
    case EXPORT_BLOCKS:
      fputs("address,bytes,requested,layer,stream,tag,name\r\n", out);
      put_rows(out, in, "blocks", put_block);
      return true;
    case EXPORT_CHUNKS:
      fputs("address,bytes,state,chunk,live_blocks,streams,sequence\r\n", out);
      put_rows(out, in, "chunks", put_chunk);
      return true;
    case EXPORT_AREAS:
      fputs("address,bytes,layer,what\r\n", out);
      put_rows(out, in, "areas", put_area);
      return true;
    case EXPORT_STATS:
      fputs("statistic,value\r\n", out);
      put_stats(out, in);
      return true;
    default: return put_events(out, in, error);
  }
}
