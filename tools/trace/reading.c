#include <inttypes.h>

#include "tools/trace/formats.h"

bool reading_stream(reading *r, uint64_t stream, uint16_t *out_stream) {
  *out_stream = 0;
  if (stream == 0) return true;
  const uint32_t *dense = id_map_find(&r->streams, stream);
  if (dense != NULL) {
    *out_stream = (uint16_t)*dense;
    return true;
  }
  const uint32_t next = (uint32_t)r->streams.count + 1;
  if (next >= TRACE_MAX_STREAMS) return input_fail(r->in, "the trace uses more than %u streams", TRACE_MAX_STREAMS);
  if (!id_map_put(&r->streams, stream, next)) return reading_memory(r);
  *out_stream = (uint16_t)next;
  return true;
}

bool reading_unmatched(reading *r, const char *field, text_span value) {
  if (!r->in->line_ended) {
    return input_fail_field(r->in, field, value, "frees nothing, and the line has no end; the file looks cut");
  }
  r->list->unmatched_frees++;
  return true;
}

bool reading_memory(reading *r) { return tool_fail(r->in->error, "%s: host memory ran out", r->in->name); }

bool reading_fields(reading *r, text_span *fields, size_t count, const char *names) {
  const size_t found = input_split(r->in, ',', fields, count);
  if (found == count) return true;
  return input_fail(r->in, "has %zu field%s; the %zu of %s are expected", found, found == 1 ? "" : "s", count, names);
}

bool reading_tokens(reading *r, const char *field, text_span value, uint32_t *out) {
  uint64_t tokens;
  if (!input_number(r->in, field, value, &tokens)) return false;
  if (tokens > SERVICE_MAX_TOKENS) {
    return input_fail_field(r->in, field, value, "is over %" PRIu64 " tokens", SERVICE_MAX_TOKENS);
  }
  *out = (uint32_t)tokens;
  return true;
}
