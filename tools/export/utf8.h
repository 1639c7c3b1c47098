// utf8.h: texts of unknown origin as valid UTF-8.
#ifndef VMPOOL_TOOLS_EXPORT_UTF8_H_
#define VMPOOL_TOOLS_EXPORT_UTF8_H_

#include <stddef.h>

// utf8_clean copies a text into `out` (terminated, cut between characters where it doesn't fit) and returns its length.
// Bytes that are no UTF-8, and control characters, become '?'.
size_t utf8_clean(char *out, size_t out_bytes, const char *text);

#endif  // VMPOOL_TOOLS_EXPORT_UTF8_H_
