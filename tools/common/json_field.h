// json_field.h: fields of JSON objects, read as strictly as fields of text lines: whole numbers that are neither
// negative nor cut.
#ifndef VMPOOL_TOOLS_COMMON_JSON_FIELD_H_
#define VMPOOL_TOOLS_COMMON_JSON_FIELD_H_

#include <jansson.h>
#include <stdint.h>

#include "tools/common/error.h"

// json_field_size reads a whole number from 0 on. `where` says which object it is, for the message. A missing field is
// an error unless `has_default`; then *out keeps its value.
bool json_field_size(const json_t *object, const char *field, bool has_default, const char *where, uint64_t *out,
                     tool_error *error);

// json_parse reads a whole JSON text; `where` stands before the message.
json_t *json_parse(const char *text, size_t bytes, const char *where, tool_error *error);

#endif  // VMPOOL_TOOLS_COMMON_JSON_FIELD_H_
