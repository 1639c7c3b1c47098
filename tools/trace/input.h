// input.h: a text file in memory, its lines, and fields read strictly. What all readers of trace formats share.
//
// Owns: the text; the sentence for a bad field (file, line, field, value, what would be right).
#ifndef VMPOOL_TOOLS_TRACE_INPUT_H_
#define VMPOOL_TOOLS_TRACE_INPUT_H_

#include "tools/common/error.h"
#include "tools/common/number.h"

// text_span: characters inside the input; not terminated.
typedef struct text_span {
  const char *text;
  size_t length;
} text_span;

typedef struct input {
  const char *name;  // for messages; the caller's
  const char *text;
  size_t bytes;
  char *owned;  // what input_destroy frees
  // the cursor
  const char *next;
  text_span line;        // without its end (LF or CR LF)
  uint64_t line_number;  // from 1
  bool line_ended;       // false for a last line without a line end
  tool_error *error;
} input;

// input_load reads the whole file ("-": standard input). Errors: a missing file, a directory, one that can't be read.
bool input_load(input *in, const char *path, tool_error *error);

// input_of_text borrows text; a byte order mark at its start is skipped.
void input_of_text(input *in, const char *name, const char *text, size_t bytes, tool_error *error);
void input_destroy(input *in);

// input_next_line moves to the next line that is not empty; false at the end. input_rewind goes before the first line.
bool input_next_line(input *in);
void input_rewind(input *in);

// input_split cuts the current line at each separator; with ' ' at every run of blanks. Returns the number of fields,
// which may be above `max` (then only `max` are filled in).
size_t input_split(const input *in, char separator, text_span *out_fields, size_t max);

bool span_is(text_span span, const char *text);

// input_fail reports a bad line or field and returns false: "NAME:LINE: MESSAGE" and "NAME:LINE: field FIELD: ...".
bool input_fail(const input *in, const char *format, ...) VMP_PRINTF(2, 3);
bool input_fail_field(const input *in, const char *field, text_span value, const char *format, ...) VMP_PRINTF(4, 5);

// input_number, _signed, _address and _size read a field or report it.
bool input_number(const input *in, const char *field, text_span value, uint64_t *out);
bool input_signed(const input *in, const char *field, text_span value, int64_t *out);
bool input_address(const input *in, const char *field, text_span value, uint64_t *out);
bool input_size(const input *in, const char *field, text_span value, uint64_t *out);

// input_time reads a time: a number, or one with a decimal fraction, which is dropped. A leading '-' only where
// `may_be_negative`.
bool input_time(const input *in, const char *field, text_span value, bool may_be_negative, int64_t *out);

#endif  // VMPOOL_TOOLS_TRACE_INPUT_H_
