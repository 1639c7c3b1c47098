// log.c: the file of the event log. See log.h and log_format.h.
#include "pool/log.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "pool/log_internal.h"
#include "vmm/memory.h"

#define TOUCH_BYTES 4096u
#define MIN_KEYFRAME_GAP UINT64_C(262144)
#define KEYFRAME_FACTOR 16u  // a file is at most a sixteenth keyframes

static uint64_t clock_ns(clockid_t id) {
  struct timespec now;
  (void)clock_gettime(id, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

// thread_number: the kernel's number of this thread, asked for once. A fork changes it.
static uint32_t thread_number(pid_t process) {
  static _Thread_local pid_t asked_in;
  static _Thread_local uint32_t mine;
  if (asked_in != process) {
    mine = (uint32_t)syscall(SYS_gettid);
    asked_in = process;
  }
  return mine;
}

static vmp_status io_error(const char *path, const char *what, int code) {
  char text[128];
  const char *reason = strerror_r(code, text, sizeof text);
  return vmp_fail(VMP_ERROR_IO, "the log \"%.200s\" can't be %s: %s", path, what, reason);
}

// ---- windows ----

static void unmap_window(vmp_log *log) {
  if (log->window != NULL) (void)munmap(log->window, log->window_records * VMP_LOG_RECORD_BYTES);
  log->window = log->next = log->window_end = NULL;
}

// Room is made before anything is written there, so that a full disk can't hit a store.
vmp_log_record *log_make_window(int fd, uint64_t first, uint64_t records) {
  off_t offset = (off_t)(VMP_LOG_HEADER_BYTES + first * VMP_LOG_RECORD_BYTES);
  size_t bytes = records * VMP_LOG_RECORD_BYTES;
  int code = posix_fallocate(fd, offset, (off_t)bytes);
  if (code != 0) {
    errno = code;
    return NULL;
  }
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, offset);
  if (memory == MAP_FAILED) return NULL;
  // A page that has only been mapped faults once more at its first store: here, and not under the pool's lock.
  for (size_t at = 0; at < bytes; at += TOUCH_BYTES) *((volatile unsigned char *)memory + at) = 0;
  return memory;
}

static void use_window(vmp_log *log, vmp_log_record *window, uint64_t records) {
  log->window = log->next = window;
  log->window_end = window + records;
  log->window_records = records;
}

// next_window: the record that is next lies behind the window. False: the log has ended.
static bool next_window(vmp_log *log) {
  if (log->ended) return false;
  if (log->capacity > 0) {
    log->next = log->window;  // a ring is one window
    return true;
  }
  vmp_log_record *window;
  if (log->ahead.running) {
    window = log_ahead_swap(log);
  } else {
    window = log_make_window(log->fd, log->sequence, LOG_WINDOW_RECORDS);
    if (window != NULL) unmap_window(log);
  }
  if (window == NULL) {
    log->ended = true;
    return false;
  }
  use_window(log, window, LOG_WINDOW_RECORDS);
  log->header->capacity = log->sequence + LOG_WINDOW_RECORDS;
  return true;
}

// ---- records ----

vmp_log_record *vmp_log_next(vmp_log *log, vmp_log_kind kind) {
  if (__builtin_expect(log->next == log->window_end, 0) && !next_window(log)) {
    log->header->dropped++;
    return NULL;
  }
  vmp_log_record *record = log->next;
  uint64_t now = clock_ns(CLOCK_MONOTONIC);
  memset(record, 0, sizeof *record);
  record->kind = (uint8_t)kind;
  record->layer = record->stream = VMP_LOG_NONE;
  record->thread = thread_number(log->process);
  record->sequence = log->sequence;
  record->time_ns = now;
  return record;
}

void vmp_log_publish(vmp_log *log) {
  log->next++;
  log->sequence++;
  __atomic_store_n(&log->header->written, log->sequence, __ATOMIC_RELEASE);
}

uint64_t vmp_log_written(const vmp_log *log) { return log->sequence; }

const char *vmp_log_path(const vmp_log *log) { return log->path; }

bool vmp_log_keyframe_due(const vmp_log *log) {
  uint64_t since = log->sequence - log->last_keyframe;
  if (log->ended) return false;
  if (log->capacity > 0) return since >= log->capacity / 4 && log->keyframe_records <= log->capacity / 4;
  return since >= MIN_KEYFRAME_GAP && since >= KEYFRAME_FACTOR * log->keyframe_records;
}

void vmp_log_keyframe_done(vmp_log *log, uint64_t sequence, uint64_t records) {
  log->last_keyframe = sequence;
  log->keyframe_records = records;
  if (!log->ended) __atomic_store_n(&log->header->keyframe, sequence, __ATOMIC_RELEASE);
}

// ---- open and close ----

static vmp_status map_header(vmp_log *log, const vmp_log_header *facts) {
  int code = posix_fallocate(log->fd, 0, VMP_LOG_HEADER_BYTES);
  if (code != 0) return io_error(log->path, "written", code);
  void *memory = mmap(NULL, VMP_LOG_HEADER_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, log->fd, 0);
  if (memory == MAP_FAILED) return io_error(log->path, "mapped", errno);
  log->header = memory;
  *log->header = *facts;
  memcpy(log->header->magic, VMP_LOG_MAGIC, sizeof log->header->magic);
  log->header->version_major = VMP_LOG_VERSION_MAJOR;
  log->header->version_minor = VMP_LOG_VERSION_MINOR;
  log->header->header_bytes = VMP_LOG_HEADER_BYTES;
  log->header->record_bytes = VMP_LOG_RECORD_BYTES;
  log->header->flags = log->capacity > 0 ? VMP_LOG_RING : 0;
  log->header->process = log->process;
  log->header->start_monotonic_ns = clock_ns(CLOCK_MONOTONIC);
  log->header->start_realtime_ns = clock_ns(CLOCK_REALTIME);
  uint64_t records = log->capacity > 0 ? log->capacity : LOG_WINDOW_RECORDS;
  vmp_log_record *window = log_make_window(log->fd, 0, records);
  if (window == NULL) return io_error(log->path, "made large enough", errno);
  use_window(log, window, records);
  if (log->capacity == 0) log_ahead_start(log, records);
  log->header->capacity = records;
  return VMP_OK;
}

static vmp_status open_file(vmp_log *log, const char *path) {
  size_t length = strlen(path);
  log->path = vmp_mem_calloc(length + 1, 1);
  if (log->path == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the event log");
  memcpy(log->path, path, length);
  log->fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  return log->fd >= 0 ? VMP_OK : io_error(path, "created", errno);
}

vmp_status vmp_log_create(vmp_log **out_log, const vmp_log_options *options, const vmp_log_header *facts) {
  uint64_t capacity = options->ring_bytes / VMP_LOG_RECORD_BYTES;
  if (options->ring_bytes > 0 && capacity < LOG_WINDOW_RECORDS) {
    return vmp_fail(VMP_ERROR_INVALID_VALUE, "a ring of %llu bytes is too small for a log; give it 1 MiB or more",
                    (unsigned long long)options->ring_bytes);
  }
  vmp_log *log = vmp_mem_calloc(1, sizeof *log);
  if (log == NULL) return vmp_fail(VMP_ERROR_HOST_OUT_OF_MEMORY, "no host memory for the event log");
  log->fd = -1;
  log->process = getpid();
  log->capacity = capacity;
  log->stack_bytes = log->until_stack_bytes = options->stack_bytes;
  vmp_status status = open_file(log, options->path);
  bool made = status == VMP_OK;
  if (status == VMP_OK) status = map_header(log, facts);
  if (status != VMP_OK) {
    vmp_error first = *vmp_last_error();
    if (made) (void)unlink(log->path);
    vmp_log_destroy(log, false);
    vmp_restore_error(&first);
    return status;
  }
  *out_log = log;
  return VMP_OK;
}

void vmp_log_destroy(vmp_log *log, bool forked) {
  if (log == NULL) return;
  log_ahead_stop(log, forked);
  unmap_window(log);
  if (log->header != NULL) {
    if (!forked) {
      log->header->flags |= VMP_LOG_FINISHED;
      uint64_t end = log->sequence;
      if (log->capacity > 0 && end > log->capacity) end = log->capacity;
      if (log->capacity == 0) log->header->capacity = end;
      // What can't be cut off stays as zeros behind the last record.
      if (ftruncate(log->fd, (off_t)(VMP_LOG_HEADER_BYTES + end * VMP_LOG_RECORD_BYTES)) != 0) errno = 0;
    }
    (void)munmap(log->header, VMP_LOG_HEADER_BYTES);
  }
  if (log->fd >= 0) (void)close(log->fd);
  vmp_mem_free(log->strings.items);
  vmp_mem_free(log->strings.slots);
  vmp_mem_free(log->strings.bytes);
  vmp_mem_free(log->stacks.items);
  vmp_mem_free(log->stacks.slots);
  vmp_mem_free(log->stacks.bytes);
  vmp_mem_free(log->path);
  vmp_mem_free(log);
}
