#include "tools/common/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Reads from a descriptor to its end, whatever it is: a file, a pipe, a terminal.
static char *read_all(int fd, size_t first_guess, size_t *out_bytes) {
  size_t capacity = first_guess + 1, bytes = 0;
  char *text = malloc(capacity);
  while (text != NULL) {
    if (bytes == capacity) {
      char *grown = realloc(text, capacity * 2);
      if (grown == NULL) break;
      text = grown;
      capacity *= 2;
    }
    const ssize_t got = read(fd, text + bytes, capacity - bytes);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (got == 0) {
      *out_bytes = bytes;
      return text;
    }
    bytes += (size_t)got;
  }
  const int saved = text == NULL ? ENOMEM : errno;
  free(text);
  errno = saved;
  return NULL;
}

bool file_load(file_text *out, const char *path, tool_error *error) {
  const bool standard_input = strcmp(path, "-") == 0;
  const char *name = standard_input ? "standard input" : path;
  const int fd = standard_input ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return tool_fail(error, "%s: %s", name, strerror(errno));
  struct stat status;
  size_t guess = 65536, bytes = 0;
  if (fstat(fd, &status) == 0) {
    if (S_ISDIR(status.st_mode)) {
      if (!standard_input) close(fd);
      return tool_fail(error, "%s is a directory; a file is needed", name);
    }
    if (S_ISREG(status.st_mode) && status.st_size > 0) guess = (size_t)status.st_size;
  }
  char *text = read_all(fd, guess, &bytes);
  const int saved = errno;
  if (!standard_input) close(fd);
  if (text == NULL) return tool_fail(error, "%s: %s", name, strerror(saved));
  *out = (file_text){.name = name, .text = text, .bytes = bytes};
  return true;
}
