// Mooncake request traces: one JSON object a line with timestamp (ms), input_length, output_length; hash_ids, the
// shared prefix blocks, are not used: every request has its whole prompt in memory for itself.
#include <inttypes.h>

#include "tools/common/json_field.h"
#include "tools/trace/formats.h"

static bool read_tokens(const json_t *object, const char *field, const char *where, uint32_t *out, tool_error *error) {
  uint64_t tokens = 0;
  if (!json_field_size(object, field, false, where, &tokens, error)) return false;
  if (tokens > SERVICE_MAX_TOKENS) return tool_fail(error, "%s: field %s: is over 2^24 tokens", where, field);
  *out = (uint32_t)tokens;
  return true;
}

static bool read_object(reading *r, const json_t *object, const char *where) {
  if (!json_is_object(object)) return tool_fail(r->in->error, "%s: is not a JSON object", where);
  uint64_t ms = 0;
  service_request request = {0};
  if (!json_field_size(object, "timestamp", false, where, &ms, r->in->error) ||
      !read_tokens(object, "input_length", where, &request.prompt_tokens, r->in->error) ||
      !read_tokens(object, "output_length", where, &request.output_tokens, r->in->error)) {
    return false;
  }
  if (ms > (uint64_t)SERVICE_MAX_ARRIVAL_TICKS / (1000 * SERVICE_TICKS_PER_US)) {
    return tool_fail(r->in->error, "%s: field timestamp: is too large", where);
  }
  request.arrival_ticks = (int64_t)ms * 1000 * SERVICE_TICKS_PER_US;
  service_requests_append(r->requests, request);
  return true;
}

bool read_mooncake(reading *r) {
  while (input_next_line(r->in)) {
    char where[300];
    snprintf(where, sizeof(where), "%s:%" PRIu64, r->in->name, r->in->line_number);
    json_t *object = json_parse(r->in->line.text, r->in->line.length, where, r->in->error);
    if (object == NULL) return false;
    const bool good = read_object(r, object, where);
    json_decref(object);
    if (!good) return false;
  }
  return true;
}
