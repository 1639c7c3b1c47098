// file.h: a whole file in memory.
#ifndef VMPOOL_TOOLS_COMMON_FILE_H_
#define VMPOOL_TOOLS_COMMON_FILE_H_

#include "tools/common/error.h"

typedef struct file_text {
  const char *name;  // the path, or "standard input"; the caller's or static
  char *text;        // to be freed by the caller; not terminated
  size_t bytes;
} file_text;

// file_load reads a file, a pipe or, for "-", standard input to its end. Fails for a directory, and where reading
// fails.
bool file_load(file_text *out, const char *path, tool_error *error);

#endif  // VMPOOL_TOOLS_COMMON_FILE_H_
