// log_file.h: an event log, read from its file (pool/log_format.h).
//
// Owns: the bytes, the refusal of what is no log, which records are whole, the texts and stacks that records name. Does
// not own: what the records mean (log_state.h, and those who look).
//
// A log that is still written, or whose end is missing, is read as far as its records are whole. Records that a ring
// has written over are gone: `first` is the oldest that is left.
#ifndef VMPOOL_TOOLS_LOG_LOG_FILE_H_
#define VMPOOL_TOOLS_LOG_LOG_FILE_H_

#include "pool/log_format.h"
#include "tools/common/error.h"

typedef struct log_stack {
  const uint64_t *frames;
  size_t count;
} log_stack;

typedef struct log_module {  // a file that frames point into
  uint64_t address, bytes, base;
  uint32_t name;  // a string's number
} log_module;

typedef struct log_file {
  vmp_log_header header;  // texts terminated
  uint64_t first, end;    // sequences of the records that may be there
  uint64_t missing;       // records in between that are not whole: overwritten, cut off or torn
  const unsigned char *records;
  uint64_t num_records;  // whole ones that the file has room for
  unsigned char *owned;
  struct log_text *strings;  // by number
  size_t num_strings;
  struct log_frames *stacks;  // by number
  size_t num_stacks;
  log_module *modules;
  size_t num_modules;
} log_file;

// log_load reads a file; log_parse copies what it needs of `bytes` bytes in memory, which must outlive the log; `name`
// stands for the path in messages. On failure *out is untouched. log_destroy frees what *out holds.
bool log_load(log_file *out, const char *path, tool_error *error);
bool log_parse(log_file *out, const char *name, const void *text, size_t bytes, tool_error *error);
void log_destroy(log_file *log);

// log_is: whether bytes begin like a log.
bool log_is(const void *text, size_t bytes);

// log_record copies record `sequence`; false where it isn't whole.
bool log_record(const log_file *log, uint64_t sequence, vmp_log_record *out);

// log_string: the text of a number, "" where there is none. log_stack_of: the frames of a stack.
const char *log_string(const log_file *log, uint32_t id);
log_stack log_stack_of(const log_file *log, uint32_t id);
// log_frame_text writes "FILE+0xOFFSET" of a frame, as addr2line takes it, or the plain address.
void log_frame_text(const log_file *log, uint64_t frame, char *text, size_t size);

// log_kind_name: "alloc", "free", ...; NULL for a kind that this version doesn't know. Static storage.
const char *log_kind_name(unsigned kind);

#endif  // VMPOOL_TOOLS_LOG_LOG_FILE_H_
