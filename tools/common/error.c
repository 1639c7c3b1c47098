#include "tools/common/error.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>

bool tool_fail(tool_error *error, const char *format, ...) {
  if (error == NULL) return false;
  va_list args;
  va_start(args, format);
  vsnprintf(error->text, sizeof(error->text), format, args);
  va_end(args);
  for (char *c = error->text; *c != '\0'; c++) {
    if (iscntrl((unsigned char)*c)) *c = '?';
  }
  return false;
}

bool tool_fail_status(tool_error *error, vmp_status status, const char *what) {
  const vmp_error *last = vmp_last_error();
  const char *sentence =
      last->status == status && last->message[0] != '\0' ? last->message : vmp_status_sentence(status);
  return tool_fail(error, "%s: %s (%s)", what, sentence, vmp_status_string(status));
}
