#include "tools/trace/input.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/common/file.h"

bool input_load(input *in, const char *path, tool_error *error) {
  file_text file;
  if (!file_load(&file, path, error)) return false;
  input_of_text(in, file.name, file.text, file.bytes, error);
  in->owned = file.text;
  return true;
}

void input_of_text(input *in, const char *name, const char *text, size_t bytes, tool_error *error) {
  if (bytes >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) {
    text += 3;
    bytes -= 3;
  }
  *in = (input){.name = name, .text = text, .bytes = bytes, .error = error};
  input_rewind(in);
}

void input_destroy(input *in) {
  free(in->owned);
  in->owned = NULL;
}

void input_rewind(input *in) {
  in->next = in->text;
  in->line_number = 0;
  in->line = (text_span){.text = in->text, .length = 0};
}

static bool is_blank(text_span line) {
  for (size_t i = 0; i < line.length; i++) {
    if (line.text[i] != ' ' && line.text[i] != '\t') return false;
  }
  return true;
}

bool input_next_line(input *in) {
  const char *end = in->text + in->bytes;
  while (in->next < end) {
    const char *line_end = memchr(in->next, '\n', (size_t)(end - in->next));
    in->line_ended = line_end != NULL;
    if (line_end == NULL) line_end = end;
    in->line = (text_span){.text = in->next, .length = (size_t)(line_end - in->next)};
    in->next = in->line_ended ? line_end + 1 : end;
    in->line_number++;
    if (in->line.length > 0 && in->line.text[in->line.length - 1] == '\r') in->line.length--;
    if (!is_blank(in->line)) return true;
  }
  return false;
}

static size_t split_blanks(text_span line, text_span *out_fields, size_t max) {
  size_t count = 0;
  for (size_t i = 0; i < line.length;) {
    while (i < line.length && (line.text[i] == ' ' || line.text[i] == '\t')) i++;
    const size_t start = i;
    while (i < line.length && line.text[i] != ' ' && line.text[i] != '\t') i++;
    if (i == start) break;
    if (count < max) out_fields[count] = (text_span){.text = line.text + start, .length = i - start};
    count++;
  }
  return count;
}

size_t input_split(const input *in, char separator, text_span *out_fields, size_t max) {
  if (separator == ' ') return split_blanks(in->line, out_fields, max);
  size_t count = 0, start = 0;
  for (size_t i = 0; i <= in->line.length; i++) {
    if (i < in->line.length && in->line.text[i] != separator) continue;
    if (count < max) out_fields[count] = (text_span){.text = in->line.text + start, .length = i - start};
    count++;
    start = i + 1;
  }
  return count;
}

bool span_is(text_span span, const char *text) {
  return strlen(text) == span.length && memcmp(span.text, text, span.length) == 0;
}

bool input_fail(const input *in, const char *format, ...) {
  char message[400];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  return tool_fail(in->error, "%s:%" PRIu64 ": %s", in->name, in->line_number, message);
}

bool input_fail_field(const input *in, const char *field, text_span value, const char *format, ...) {
  char message[300], shown[41];
  va_list args;
  va_start(args, format);
  vsnprintf(message, sizeof(message), format, args);
  va_end(args);
  const size_t length = value.length < 40 ? value.length : 40;
  for (size_t i = 0; i < length; i++) shown[i] = isprint((unsigned char)value.text[i]) ? value.text[i] : '?';
  shown[length] = '\0';
  return input_fail(in, "field %s: '%s'%s %s", field, shown, value.length > 40 ? "..." : "", message);
}

static bool fail_number(const input *in, const char *field, text_span value, number_fault fault, const char *wanted) {
  return input_fail_field(in, field, value, "%s; %s", number_fault_text(fault), wanted);
}

bool input_number(const input *in, const char *field, text_span value, uint64_t *out) {
  const number_fault fault = number_parse(value.text, value.length, out);
  return fault == NUMBER_OK || fail_number(in, field, value, fault, "it is a decimal number from 0 to 2^64 - 1");
}

bool input_signed(const input *in, const char *field, text_span value, int64_t *out) {
  const number_fault fault = number_parse_signed(value.text, value.length, out);
  return fault == NUMBER_OK || fail_number(in, field, value, fault, "it is a decimal number below 2^63 in magnitude");
}

bool input_address(const input *in, const char *field, text_span value, uint64_t *out) {
  const number_fault fault = number_parse_address(value.text, value.length, out);
  return fault == NUMBER_OK || fail_number(in, field, value, fault, "it is a number below 2^64, decimal or after 0x");
}

bool input_size(const input *in, const char *field, text_span value, uint64_t *out) {
  const number_fault fault = number_parse(value.text, value.length, out);
  return fault == NUMBER_OK || fail_number(in, field, value, fault, "a size is a number of bytes from 0 to 2^64 - 1");
}

bool input_time(const input *in, const char *field, text_span value, bool may_be_negative, int64_t *out) {
  text_span whole = value;
  const char *point = memchr(value.text, '.', value.length);
  if (point != NULL) {
    uint64_t fraction;
    const size_t digits = value.length - (size_t)(point - value.text) - 1;
    if (digits > 18 || number_parse(point + 1, digits, &fraction) != NUMBER_OK) {
      return fail_number(in, field, value, NUMBER_NOT_A_NUMBER, "a time is a number, with a fraction or without");
    }
    whole.length = (size_t)(point - value.text);
  }
  number_fault fault = number_parse_signed(whole.text, whole.length, out);
  if (fault == NUMBER_OK && !may_be_negative && value.text[0] == '-') fault = NUMBER_NEGATIVE;
  return fault == NUMBER_OK || fail_number(in, field, value, fault, "a time is a number, with a fraction or without");
}
