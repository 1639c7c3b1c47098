#include "tests/tool/trace_support.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/vtest.h"

trace *parse_text_with(const char *text, const trace_options *options, tool_error *error) {
  trace *t = NULL;
  memset(error, 0, sizeof(*error));
  return trace_parse("t", text, strlen(text), options, &t, error) ? t : NULL;
}

trace *parse_text(const char *text, tool_error *error) {
  const trace_options options = TRACE_OPTIONS_INIT;
  return parse_text_with(text, &options, error);
}

void expect_refused(const char *text, const char *const *parts) {
  VTRACE("trace text: %s", text);
  tool_error error;
  trace *t = parse_text(text, &error);
  VEXPECT_NULL(t);
  trace_close(t);
  for (; *parts != NULL; parts++) VEXPECT_STR_CONTAINS(error.text, *parts);
  VEXPECT_NULL(strchr(error.text, '\n'));
}

trace *read_stored(const char *relative_path, const trace_options *options) {
  char path[1024];
  snprintf(path, sizeof(path), "%s/%s", vtest_traces_dir(), relative_path);
  tool_error error = {{0}};
  trace *t = NULL;
  if (!trace_read(path, options, &t, &error)) VADD_FAILURE("%s", error.text);
  return t;
}

void sequence_text(trace *t, char *buffer, size_t size) {
  size_t used = 0;
  trace_event e;
  buffer[0] = '\0';
  trace_rewind(t);
  while (trace_next(t, &e) && used < size) {
    const char *space = used > 0 ? " " : "";
    const int n = e.kind == TRACE_ALLOC
                      ? snprintf(buffer + used, size - used, "%sa%" PRIu32 ":%" PRIu64, space, e.block, e.bytes)
                      : snprintf(buffer + used, size - used, "%sf%" PRIu32, space, e.block);
    used += (size_t)n;
  }
  trace_rewind(t);
}
