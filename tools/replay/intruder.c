#include "tools/replay/intruder.h"

#include <string.h>

#include "tools/common/number.h"

static bool parse_part(const char *part, intruder *i, tool_error *error) {
  number_fault fault;
  if (strncmp(part, "every=", 6) == 0) {
    fault = number_parse(part + 6, strlen(part + 6), &i->every);
    if (fault == NUMBER_OK && i->every == 0)
      return tool_fail(error, "intruder: every=0 is no distance; it is a number of events from 1 on");
  } else if (strncmp(part, "bytes=", 6) == 0) {
    fault = number_parse_size_range(part + 6, &i->low_bytes, &i->high_bytes);
  } else if (strncmp(part, "seed=", 5) == 0) {
    fault = number_parse(part + 5, strlen(part + 5), &i->seed);
  } else {
    return tool_fail(error, "intruder: '%s' is none of every=EVENTS, bytes=LOW..HIGH, seed=N", part);
  }
  return fault == NUMBER_OK || tool_fail(error, "intruder: the value of '%s' %s", part, number_fault_text(fault));
}

bool intruder_parse(const char *text, intruder *out, tool_error *error) {
  char copy[128];
  if (strlen(text) >= sizeof(copy))
    return tool_fail(error, "intruder: the text is too long; like every=200,bytes=64KiB..1MiB");
  strcpy(copy, text);
  intruder parsed = {.seed = 1};
  char *rest = copy;
  for (char *part = strsep(&rest, ","); part != NULL; part = strsep(&rest, ",")) {
    if (!parse_part(part, &parsed, error)) return false;
  }
  if (parsed.every == 0 || parsed.high_bytes == 0) {
    return tool_fail(error,
                     "intruder: both every=EVENTS and bytes=LOW..HIGH are needed, like every=200,bytes=64KiB..1MiB");
  }
  *out = parsed;
  return true;
}
