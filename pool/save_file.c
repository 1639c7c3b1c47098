// save_file.c: see save_file.h.
#include "pool/save_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "vmm/error.h"
#include "vmm/memory.h"

#define TEMPORARY_TRIES 1000

static vmp_status io_error(const char *what, const char *path, int code) {
  char text[128];
  const char *reason = strerror_r(code, text, sizeof text);
  return vmp_fail(VMP_ERROR_IO, "\"%.200s\" can't be %s: %s", path, what, reason);
}

// write_all writes everything; the file stays open. Returns 0 or errno.
static int write_all(int fd, const char *text, size_t bytes) {
  while (bytes > 0) {
    ssize_t done = write(fd, text, bytes);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return errno;
    if (done == 0) return EIO;
    text += done;
    bytes -= (size_t)done;
  }
  return 0;
}

static vmp_status write_directly(const char *path, const char *text, size_t bytes) {
  int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOCTTY);
  if (fd < 0) return io_error("opened", path, errno);
  int code = write_all(fd, text, bytes);
  if (close(fd) != 0 && code == 0) code = errno;
  return code == 0 ? VMP_OK : io_error("written", path, code);
}

// open_temporary makes a new file beside `path` and writes its name to `name` (of `size` bytes). -1 and errno.
static int open_temporary(const char *path, char *name, size_t size) {
  for (int i = 0; i < TEMPORARY_TRIES; i++) {
    (void)snprintf(name, size, "%s.%ld-%d.tmp", path, (long)getpid(), i);
    int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd >= 0 || errno != EEXIST) return fd;
  }
  return -1;
}

// write_and_rename fills the temporary file and puts it in place. Returns 0 or errno.
static int write_and_rename(int fd, const char *name, const char *path, const char *text, size_t bytes) {
  int code = write_all(fd, text, bytes);
  if (code == 0 && fsync(fd) != 0 && errno != EINVAL && errno != ENOSYS) code = errno;
  if (close(fd) != 0 && code == 0) code = errno;
  if (code == 0 && rename(name, path) != 0) code = errno;
  if (code != 0) (void)unlink(name);
  return code;
}

vmp_status vmp_save_file(const char *path, const char *text, size_t bytes) {
  if (path == NULL || path[0] == '\0') return vmp_fail(VMP_ERROR_INVALID_VALUE, "the path is empty; name a file");
  struct stat info;
  if (stat(path, &info) == 0) {
    if (S_ISDIR(info.st_mode)) return io_error("written", path, EISDIR);
    if (!S_ISREG(info.st_mode)) return write_directly(path, text, bytes);
  }
  size_t size = strlen(path) + 64;
  char *name = vmp_mem_calloc(size, 1);
  if (name == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the name of a temporary file");
  int fd = open_temporary(path, name, size);
  int code = fd < 0 ? errno : write_and_rename(fd, name, path, text, bytes);
  vmp_mem_free(name);
  return code == 0 ? VMP_OK : io_error("written", path, code);
}
