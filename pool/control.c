// control.c: see control.h.
#include "pool/control.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "pool/file_name.h"
#include "pool/option_text.h"
#include "pool/snapshot.h"
#include "vmm/memory.h"

#define REQUEST_BYTES 128u
#define TRIES 100

vmp_status vmp_control_open(const vmp_pool *pool, char name[VMP_CONTROL_NAME_BYTES], int *out_fd) {
  char stem[VMP_FILE_STEM_BYTES];
  vmp_file_stem(pool, stem);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  int code = fd < 0 ? errno : EADDRINUSE;
  for (int number = 1; fd >= 0 && code == EADDRINUSE && number <= TRIES; number++) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char count[16] = "";
    if (number > 1) (void)snprintf(count, sizeof count, "-%d", number);
    (void)snprintf(name, VMP_CONTROL_NAME_BYTES - 1, "vmpool-%.90s%.8s", stem, count);
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name, length);
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
    code = bind(fd, (const struct sockaddr *)&address, size) == 0 ? 0 : errno;
  }
  if (code == 0 && listen(fd, 8) != 0) code = errno;
  if (code == 0) {
    *out_fd = fd;
    return VMP_OK;
  }
  if (fd >= 0) (void)close(fd);
  char text[128];
  return vmp_fail(VMP_ERROR_IO, "the control socket of the pool \"%.64s\" can't be made: %s", vmp_pool_name(pool),
                  strerror_r(code, text, sizeof text));
}

// ---- answers ----

static void put(int fd, const char *text, size_t bytes) {
  while (bytes > 0) {
    ssize_t done = send(fd, text, bytes, MSG_NOSIGNAL);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;  // whoever asked has gone
    text += done;
    bytes -= (size_t)done;
  }
}

static void answer(int fd, const char *text) { put(fd, text, strlen(text)); }

static void answer_status(int fd, vmp_status status, const char *good) {
  char text[512];
  if (status < 0) {
    (void)snprintf(text, sizeof text, "error %s\n", vmp_last_error()->message);
  } else {
    (void)snprintf(text, sizeof text, "ok%s%s\n", good[0] == '\0' ? "" : " ", good);
  }
  answer(fd, text);
}

static void give_snapshot(int fd, vmp_pool *pool) {
  vmp_json json = {0};
  char head[64];
  vmp_status status = vmp_snapshot_make(pool, "", "socket", &json);
  if (status == VMP_OK) {
    (void)snprintf(head, sizeof head, "ok %zu\n", json.length);
    answer(fd, head);
    put(fd, json.text, json.length);
  } else {
    answer_status(fd, status, "");
  }
  vmp_json_free(&json);
}

// read_bytes reads a size; "none" where it may be said.
static bool read_bytes(int fd, const char *text, bool may_be_none, uint64_t *out) {
  const char *wrong = vmp_text_size(text, strlen(text), may_be_none, out);
  if (wrong == NULL && *out != UINT64_MAX && (*out & VMP_SIZE_IN_GRANULES) != 0) wrong = "granules can't be used here";
  if (wrong == NULL) return true;
  char line[256];
  (void)snprintf(line, sizeof line, "error the size is \"%.60s\": %s\n", text, wrong);
  answer(fd, line);
  return false;
}

static void trim(int fd, vmp_pool *pool, const char *text) {
  vmp_trim_report report = VMP_TRIM_REPORT_INIT;
  uint64_t keep;
  char good[64];
  if (!read_bytes(fd, text, false, &keep)) return;
  vmp_status status = vmp_pool_trim(pool, keep, &report);
  (void)snprintf(good, sizeof good, "released %" PRIu64, report.released_bytes);
  answer_status(fd, status, good);
}

static void defragment(int fd, vmp_pool *pool, const char *text) {
  vmp_defragment_options options = VMP_DEFRAGMENT_OPTIONS_INIT;
  vmp_defragment_report report = VMP_DEFRAGMENT_REPORT_INIT;
  char good[96];
  if (!read_bytes(fd, text, false, &options.want_bytes)) return;
  vmp_status status = vmp_pool_defragment(pool, &options, &report);
  (void)snprintf(good, sizeof good, "moved %" PRIu64 " largest %" PRIu64, report.moved_bytes,
                 report.largest_free_mapped_after);
  answer_status(fd, status, good);
}

static void limit(int fd, vmp_pool *pool, const char *which, const char *text) {
  uint64_t bytes;
  bool hard = strcmp(which, "hard") == 0;
  if (!hard && strcmp(which, "soft") != 0) {
    answer(fd, "error a limit is hard or soft\n");
    return;
  }
  if (!read_bytes(fd, text, true, &bytes)) return;
  vmp_status status = vmp_pool_set_limit(pool, hard ? VMP_LIMIT_HARD : VMP_LIMIT_SOFT, bytes);
  answer_status(fd, status, status == VMP_PENDING ? "pending" : "");
}

static void obey(int fd, vmp_pool *pool, char *line) {
  char *words[4] = {NULL}, *rest = NULL;
  size_t count = 0;
  for (char *word = strtok_r(line, " ", &rest); word != NULL && count < 4; word = strtok_r(NULL, " ", &rest)) {
    words[count++] = word;
  }
  if (count == 1 && strcmp(words[0], "snapshot") == 0) {
    give_snapshot(fd, pool);
  } else if (count == 2 && strcmp(words[0], "trim") == 0) {
    trim(fd, pool, words[1]);
  } else if (count == 2 && strcmp(words[0], "defragment") == 0) {
    defragment(fd, pool, words[1]);
  } else if (count == 3 && strcmp(words[0], "limit") == 0) {
    limit(fd, pool, words[1], words[2]);
  } else {
    answer(fd, "error a request is snapshot, trim BYTES, defragment BYTES or limit hard|soft BYTES|none\n");
  }
}

// read_line reads up to a line end; false when it doesn't come, or is too long.
static bool read_line(int fd, char *line, size_t size) {
  for (size_t used = 0; used + 1 < size;) {
    ssize_t got = recv(fd, line + used, size - 1 - used, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    used += (size_t)got;
    line[used] = '\0';
    char *end = strchr(line, '\n');
    if (end != NULL) {
      *end = '\0';
      return true;
    }
  }
  return false;
}

void vmp_control_serve(int fd, vmp_pool *pool) {
  int asker = accept4(fd, NULL, NULL, SOCK_CLOEXEC);
  if (asker < 0) return;
  struct ucred who;
  socklen_t size = sizeof who;
  struct timeval patience = {.tv_sec = 1};
  char line[REQUEST_BYTES];
  (void)setsockopt(asker, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  (void)setsockopt(asker, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
  if (getsockopt(asker, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0 || who.uid != geteuid()) {
    answer(asker, "error only the user who runs the pool may ask\n");
  } else if (read_line(asker, line, sizeof line)) {
    obey(asker, pool, line);
  } else {
    answer(asker, "error a request is one line of at most 126 characters\n");
  }
  (void)close(asker);
}
