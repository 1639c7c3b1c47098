#include "tools/vmpool/live_pools.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#define MAX_ANSWER_BYTES (UINT64_C(1) << 32)
#define COPY_TRIES 1000
#define ANSWER_S 10  // a pool that doesn't answer so long hangs

// ---- objects ----

// open_object maps an object of the own user; NULL: there is none, or it isn't whole.
static const unsigned char *open_object(const char *folder, const char *object, size_t *out_bytes) {
  char path[4096];
  struct stat info;
  snprintf(path, sizeof(path), "%s/%s", folder, object);
  const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return NULL;
  const size_t least = VMP_LIVE_HEADER_BYTES + 2 * sizeof(vmp_live_copy);
  void *memory = MAP_FAILED;
  if (fstat(fd, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() && (size_t)info.st_size >= least) {
    memory = mmap(NULL, least, PROT_READ, MAP_SHARED, fd, 0);
  }
  close(fd);
  *out_bytes = least;
  return memory == MAP_FAILED ? NULL : memory;
}

static bool read_header(const unsigned char *memory, vmp_live_header *out) {
  memcpy(out, memory, sizeof(*out));
  if (memcmp(out->magic, VMP_LIVE_MAGIC, sizeof(out->magic)) != 0) return false;
  if (out->version != VMP_LIVE_VERSION || out->copy_bytes != sizeof(vmp_live_copy)) return false;
  out->driver[sizeof(out->driver) - 1] = out->device_name[sizeof(out->device_name) - 1] = '\0';
  out->pool_name[sizeof(out->pool_name) - 1] = out->control[sizeof(out->control) - 1] = '\0';
  return true;
}

static bool is_running(int64_t process) {
  if (process <= 0 || process > INT32_MAX) return false;
  return kill((pid_t)process, 0) == 0 || errno == EPERM;
}

static int by_process(const void *a, const void *b) {
  const live_pool *x = a, *y = b;
  if (x->header.process != y->header.process) return x->header.process < y->header.process ? -1 : 1;
  return strcmp(x->object, y->object);
}

static bool add_object(const char *folder, const char *object, live_pool **list, size_t *count) {
  size_t bytes;
  const unsigned char *memory = open_object(folder, object, &bytes);
  if (memory == NULL) return true;
  vmp_live_header header;
  bool good = true;
  if (read_header(memory, &header)) {
    live_pool *grown = realloc(*list, (*count + 1) * sizeof(*grown));
    good = grown != NULL;
    if (good) {
      *list = grown;
      grown[*count] = (live_pool){.header = header, .running = is_running(header.process)};
      snprintf(grown[*count].object, sizeof(grown[*count].object), "%s", object);
      ++*count;
    }
  }
  munmap((void *)(uintptr_t)memory, bytes);
  return good;
}

bool live_list(const char *folder, live_pool **out, size_t *out_count, tool_error *error) {
  DIR *open_folder = opendir(folder);
  if (open_folder == NULL) return tool_fail(error, "%s: %s", folder, strerror(errno));
  live_pool *list = NULL;
  size_t count = 0;
  bool good = true;
  for (struct dirent *entry; good && (entry = readdir(open_folder)) != NULL;) {
    if (strncmp(entry->d_name, VMP_LIVE_PREFIX, strlen(VMP_LIVE_PREFIX)) != 0) continue;
    good = add_object(folder, entry->d_name, &list, &count);
  }
  closedir(open_folder);
  if (!good) {
    free(list);
    return tool_fail(error, "host memory ran out");
  }
  if (count > 0) qsort(list, count, sizeof(*list), by_process);
  *out = list;
  *out_count = count;
  return true;
}

// copy_words copies in order: what is loaded after it was not loaded before.
static void copy_words(uint64_t *out, const uint64_t *from, size_t words) {
  for (size_t i = 0; i < words; i++) out[i] = __atomic_load_n(&from[i], __ATOMIC_ACQUIRE);
}

// try_copy takes a copy if it is whole.
static bool try_copy(const unsigned char *memory, vmp_live_copy *out) {
  const vmp_live_header *header = (const vmp_live_header *)(const void *)memory;
  const uint64_t n = __atomic_load_n(&header->sequence, __ATOMIC_ACQUIRE);
  const vmp_live_copy *copy =
      (const vmp_live_copy *)(const void *)(memory + VMP_LIVE_HEADER_BYTES + n % 2 * sizeof(vmp_live_copy));
  if (n == 0) return false;
  copy_words((uint64_t *)(void *)out, (const uint64_t *)(const void *)copy, sizeof(*out) / sizeof(uint64_t));
  return out->begin == n && out->end == n && __atomic_load_n(&copy->begin, __ATOMIC_RELAXED) == n &&
         out->num_ranges <= VMP_LIVE_MAX_RANGES && out->num_runs <= VMP_LIVE_MAX_RUNS;
}

bool live_read(const char *folder, const live_pool *pool, vmp_live_copy **out, tool_error *error) {
  size_t bytes;
  const unsigned char *memory = open_object(folder, pool->object, &bytes);
  if (memory == NULL) return tool_fail(error, "the pool %s has ended", pool->object);
  vmp_live_copy *copy = malloc(sizeof(*copy));
  bool whole = false;
  for (int i = 0; copy != NULL && !whole && i < COPY_TRIES; i++) whole = try_copy(memory, copy);
  munmap((void *)(uintptr_t)memory, bytes);
  if (copy == NULL) return tool_fail(error, "host memory ran out");
  if (!whole) {
    free(copy);
    return tool_fail(error, "the pool %s has shown nothing yet", pool->object);
  }
  *out = copy;
  return true;
}

// ---- asking ----

static int connect_to(const char *name) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  const size_t length = strnlen(name, sizeof(address.sun_path) - 1);
  struct ucred who;
  socklen_t who_bytes = sizeof(who);
  struct timeval patience = {.tv_sec = ANSWER_S};
  memcpy(address.sun_path + 1, name, length);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const socklen_t bytes = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
  if (fd < 0) return -1;
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  // Somebody else may have taken the name after its pool has ended.
  if (connect(fd, (const struct sockaddr *)&address, bytes) == 0 &&
      getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &who_bytes) == 0 && who.uid == geteuid()) {
    return fd;
  }
  close(fd);
  return -1;
}

static char *read_answer(int fd, size_t *out_bytes) {
  size_t capacity = 65536, used = 0;
  char *text = malloc(capacity);
  while (text != NULL && used < MAX_ANSWER_BYTES) {
    if (used + 1 == capacity) {
      char *grown = realloc(text, capacity * 2);
      if (grown == NULL) break;
      text = grown;
      capacity *= 2;
    }
    const ssize_t got = recv(fd, text + used, capacity - 1 - used, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) break;
    if (got == 0) {
      text[used] = '\0';
      *out_bytes = used;
      return text;
    }
    used += (size_t)got;
  }
  free(text);
  return NULL;
}

bool live_ask(const live_pool *pool, const char *request, char **out_text, size_t *out_bytes, tool_error *error) {
  char line[160];
  size_t bytes = 0;
  if (pool->header.control[0] == '\0') {
    return tool_fail(error,
                     "the pool \"%.60s\" of process %" PRId64
                     " has no control socket; start it with "
                     "VMP_CONF=control:1",
                     pool->header.pool_name, pool->header.process);
  }
  const int fd = connect_to(pool->header.control);
  if (fd < 0) return tool_fail(error, "the pool \"%.60s\" doesn't answer: %s", pool->header.pool_name, strerror(errno));
  const int length = snprintf(line, sizeof(line), "%s\n", request);
  char *answer = send(fd, line, (size_t)length, MSG_NOSIGNAL) == length ? read_answer(fd, &bytes) : NULL;
  close(fd);
  if (answer == NULL) return tool_fail(error, "the pool \"%.60s\" gives no answer", pool->header.pool_name);
  if (strncmp(answer, "ok ", 3) != 0) {
    tool_fail(error, "the pool answers: %.300s", strncmp(answer, "error ", 6) == 0 ? answer + 6 : answer);
    free(answer);
    return false;
  }
  memmove(answer, answer + 3, bytes - 2);
  *out_text = answer;
  *out_bytes = bytes - 3;
  return true;
}

// ---- finding ----

static bool matches(const live_pool *pool, const char *which) {
  char process[32];
  snprintf(process, sizeof(process), "%" PRId64, pool->header.process);
  return strcmp(which, process) == 0 || strcmp(which, pool->header.pool_name) == 0 ||
         strcmp(which, pool->object + strlen(VMP_LIVE_PREFIX)) == 0;
}

bool live_find(const char *folder, const char *which, live_pool *out, tool_error *error) {
  live_pool *list = NULL;
  size_t count = 0, found = 0, at = 0;
  if (!live_list(folder, &list, &count, error)) return false;
  for (size_t i = 0; i < count; i++) {
    if (!matches(&list[i], which)) continue;
    found++;
    at = i;
  }
  if (found == 1) *out = list[at];
  free(list);
  if (found == 0) return tool_fail(error, "%s is no file, and no live pool; vmpool ps lists the live ones", which);
  if (found > 1)
    return tool_fail(error, "%s: %zu live pools match; name one as PID-NAME, as vmpool ps does", which, found);
  return true;
}
