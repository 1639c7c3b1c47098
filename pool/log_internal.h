// log_internal.h: what log.c and log_intern.c share.
#ifndef VMPOOL_POOL_LOG_INTERNAL_H_
#define VMPOOL_POOL_LOG_INTERNAL_H_

#include <pthread.h>
#include <sys/types.h>

#include "pool/log.h"

#define LOG_WINDOW_BYTES (UINT64_C(1) << 20)
#define LOG_WINDOW_RECORDS (LOG_WINDOW_BYTES / VMP_LOG_RECORD_BYTES)
#define LOG_STACK_DEPTH 24u
#define LOG_MODULES 256u

// One interned text or stack: where its bytes lie in `bytes`.
typedef struct log_item {
  uint64_t hash;
  uint32_t offset, length;  // in bytes
} log_item;

// log_interned: numbers 1..count, with a hash table of numbers (0: empty), a power of two long, at most 3/4 full.
typedef struct log_interned {
  log_item *items;
  uint32_t count, capacity;
  uint32_t *slots;
  uint32_t num_slots;
  unsigned char *bytes;
  uint32_t used_bytes, capacity_bytes;
} log_interned;

// log_ahead: a thread that makes windows while others are being written, so that no event waits for the disk. It is
// some windows ahead: on a busy machine it may get the processor late. `mutex` guards it, and is never held around a
// call that may wait.
#define LOG_AHEAD_WINDOWS 4u

typedef struct log_ahead {
  bool running;  // a thread was made
  bool stop;
  bool failed;                               // no more windows can be made: the disk is full
  uint64_t first;                            // record that the next one to be made begins with
  vmp_log_record *ready[LOG_AHEAD_WINDOWS];  // oldest first
  uint32_t num_ready;
  vmp_log_record *written[LOG_AHEAD_WINDOWS + 1];  // old windows to be unmapped
  uint32_t num_written;
  pthread_t thread;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
} log_ahead;

typedef struct log_module {
  uint64_t address, bytes, base;
  uint32_t name;
} log_module;

struct vmp_log {
  int fd;
  char *path;
  vmp_log_header *header;  // mapped
  vmp_log_record *window;  // mapped
  uint64_t window_records;
  vmp_log_record *next;  // where the next record goes; == window_end: another window is needed
  vmp_log_record *window_end;
  log_ahead ahead;    // of a file that grows
  uint64_t sequence;  // of the next record
  uint64_t capacity;  // records of a ring; 0: the file grows
  uint64_t sampled;   // sequence of the last SAMPLE
  bool ended;         // the disk was full
  pid_t process;
  uint64_t last_time_ns;
  uint64_t last_keyframe, keyframe_records;  // where it began, how long it was
  uint64_t stack_bytes, until_stack_bytes;
  log_interned strings, stacks;
  log_module modules[LOG_MODULES];
  size_t num_modules;
  uint64_t announced;    // mask of streams that the log knows
  uint64_t handles[64];  // theirs
};

// log_make_window makes room for records from `first` on and maps them. NULL and errno: not possible.
vmp_log_record *log_make_window(int fd, uint64_t first, uint64_t records);

// ---- log_ahead.c ----
// log_ahead_start makes the thread, and lets it make the window that begins with `first`. Where there can be none the
// writer makes its windows itself. log_ahead_stop ends it; nothing in a forked child, which has no such thread.
void log_ahead_start(vmp_log *log, uint64_t first);
void log_ahead_stop(vmp_log *log, bool forked);
// log_ahead_swap gives up the window that is full and returns the next one; NULL: there is none (a full disk).
vmp_log_record *log_ahead_swap(vmp_log *log);

#endif  // VMPOOL_POOL_LOG_INTERNAL_H_
