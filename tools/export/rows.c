#include "tools/export/rows.h"

uint64_t row_size(const json_t *row, size_t cell) {
  const json_t *value = json_array_get(row, cell);
  return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

const char *row_text(const json_t *row, size_t cell) {
  const char *text = json_string_value(json_array_get(row, cell));
  return text != NULL ? text : "";
}

int64_t row_stream(const json_t *row, size_t cell) {
  const json_t *value = json_array_get(row, cell);
  return json_is_integer(value) && json_integer_value(value) >= 0 ? json_integer_value(value) : -1;
}

const char *document_text(const json_t *document, const char *object, const char *field) {
  const char *text = json_string_value(json_object_get(json_object_get(document, object), field));
  return text != NULL ? text : "";
}

uint64_t document_size(const json_t *document, const char *object, const char *field) {
  const json_t *value = json_object_get(json_object_get(document, object), field);
  return json_is_integer(value) && json_integer_value(value) > 0 ? (uint64_t)json_integer_value(value) : 0;
}

const char *tag_text(const json_t *document, uint64_t tag) {
  return tag == 0 ? "" : row_text(json_object_get(document, "tags"), (size_t)tag);
}

const char *block_label(const json_t *document, const json_t *row) {
  const char *tag = tag_text(document, row_size(row, 6));
  return tag[0] != '\0' ? tag : row_text(row, 7);
}
