// log_internal.h: what log.c and log_intern.c share.
#ifndef VMPOOL_POOL_LOG_INTERNAL_H_
#define VMPOOL_POOL_LOG_INTERNAL_H_

#include <sys/types.h>

#include "pool/log.h"

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

typedef struct log_module {
  uint64_t address, bytes, base;
  uint32_t name;
} log_module;

struct vmp_log {
  int fd;
  char *path;
  vmp_log_header *header;  // mapped
  vmp_log_record *window;  // mapped; record `window_first` of the file is its first
  uint64_t window_first, window_records;
  vmp_log_record *next;  // where the next record goes; == window_end: another window is needed
  vmp_log_record *window_end;
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

#endif  // VMPOOL_POOL_LOG_INTERNAL_H_
