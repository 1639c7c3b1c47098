// trace_support.h: what the tests of trace readers share.
#ifndef VMPOOL_TESTS_TOOL_TRACE_SUPPORT_H_
#define VMPOOL_TESTS_TOOL_TRACE_SUPPORT_H_

#include "tools/trace/trace.h"

// parse_text reads a trace from text (named "t") with default options; NULL on failure, with the sentence in *error.
trace *parse_text(const char *text, tool_error *error);
trace *parse_text_with(const char *text, const trace_options *options, tool_error *error);

// expect_refused expects that `text` is refused, and that the sentence holds each of the parts (up to NULL).
void expect_refused(const char *text, const char *const *parts);

// read_stored opens a file below VMPOOL_TRACES; the test must have skipped where that is not set. Fails the test, and
// returns NULL, when it can't be read.
trace *read_stored(const char *relative_path, const trace_options *options);

// sequence_text writes events as "a0:512 f0 ..." for short comparisons.
void sequence_text(trace *t, char *buffer, size_t size);

#endif  // VMPOOL_TESTS_TOOL_TRACE_SUPPORT_H_
