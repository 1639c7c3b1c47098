#include "tools/common/json_field.h"

#include <inttypes.h>

bool json_field_size(const json_t *object, const char *field, bool has_default, const char *where, uint64_t *out,
                     tool_error *error) {
  const json_t *value = json_object_get(object, field);
  if (value == NULL) return has_default || tool_fail(error, "%s: field %s: is missing", where, field);
  if (!json_is_integer(value)) {
    return tool_fail(error, "%s: field %s: is not a whole number below 2^63 in magnitude", where, field);
  }
  const json_int_t number = json_integer_value(value);
  if (number < 0) {
    return tool_fail(error, "%s: field %s: '%" JSON_INTEGER_FORMAT "' is negative", where, field, number);
  }
  *out = (uint64_t)number;
  return true;
}

json_t *json_parse(const char *text, size_t bytes, const char *where, tool_error *error) {
  json_error_t fault;
  json_t *value = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &fault);
  if (value == NULL) {
    tool_fail(error, "%s: not valid JSON (%s, line %d, column %d)", where, fault.text, fault.line, fault.column);
  }
  return value;
}
