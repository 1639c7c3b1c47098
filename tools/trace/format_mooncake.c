// Mooncake request traces: one JSON object a line with timestamp (ms), input_length, output_length and, if it likes,
// hash_ids: one id for every 512 tokens of the prompt. Requests with equal ids have equal tokens up to there; whoever
// replays them may let them share memory.
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

static bool read_prefixes(reading *r, const json_t *object, const char *where, service_request *request) {
  const json_t *ids = json_object_get(object, "hash_ids");
  request->first_prefix = r->requests->num_prefixes;
  if (ids == NULL) return true;
  const size_t count = json_array_size(ids);
  if (!json_is_array(ids) || count > SERVICE_MAX_TOKENS) {
    return tool_fail(r->in->error, "%s: field hash_ids: is no list of at most 2^24 ids", where);
  }
  for (size_t i = 0; i < count; i++) {
    const json_t *id = json_array_get(ids, i);
    if (!json_is_integer(id) || json_integer_value(id) < 0) {
      return tool_fail(r->in->error, "%s: field hash_ids: holds something that is no whole number from 0 on", where);
    }
    service_requests_prefix(r->requests, (uint64_t)json_integer_value(id));
  }
  request->num_prefixes = (uint32_t)count;
  return true;
}

static bool read_object(reading *r, const json_t *object, const char *where) {
  if (!json_is_object(object)) return tool_fail(r->in->error, "%s: is not a JSON object", where);
  uint64_t ms = 0;
  service_request request = {0};
  if (!json_field_size(object, "timestamp", false, where, &ms, r->in->error) ||
      !read_tokens(object, "input_length", where, &request.prompt_tokens, r->in->error) ||
      !read_tokens(object, "output_length", where, &request.output_tokens, r->in->error) ||
      !read_prefixes(r, object, where, &request)) {
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
