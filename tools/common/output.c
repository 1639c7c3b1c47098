#include "tools/common/output.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

// Opens the temporary file with the rights that a newly created file gets.
static FILE *open_temporary(output *out) {
  if (asprintf(&out->temporary, "%s.XXXXXX", out->path) < 0) {
    out->temporary = NULL;
    return NULL;
  }
  const int fd = mkstemp(out->temporary);
  if (fd < 0) return NULL;
  const mode_t mask = umask(0);
  umask(mask);
  fchmod(fd, 0666 & ~mask);
  return fdopen(fd, "w");
}

bool output_open(output *out, const char *path, tool_error *error) {
  *out = (output){.path = path};
  if (strcmp(path, "-") == 0) {
    out->file = stdout;
    return true;
  }
  struct stat status;
  const bool in_place = stat(path, &status) == 0 && !S_ISREG(status.st_mode);
  out->file = in_place ? fopen(path, "we") : open_temporary(out);
  if (out->file != NULL) return true;
  const int saved = errno;
  free(out->temporary);
  out->temporary = NULL;
  return tool_fail(error, "%s: can't be written: %s", path, strerror(saved));
}

bool output_finish(output *out, tool_error *error) {
  const char *name = out->file == stdout ? "standard output" : out->path;
  errno = 0;
  bool good = fflush(out->file) == 0 && ferror(out->file) == 0;
  if (out->file != stdout && fclose(out->file) != 0) good = false;
  if (good && out->temporary != NULL) good = rename(out->temporary, out->path) == 0;
  const int saved = errno;
  if (!good && out->temporary != NULL) unlink(out->temporary);
  free(out->temporary);
  *out = (output){0};
  return good || tool_fail(error, "%s: could not be written: %s", name, saved != 0 ? strerror(saved) : "an error");
}

void output_discard(output *out) {
  if (out->file != NULL && out->file != stdout) fclose(out->file);
  if (out->temporary != NULL) unlink(out->temporary);
  free(out->temporary);
  *out = (output){0};
}
