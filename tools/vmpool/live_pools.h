// live_pools.h: pools of running processes, through shared memory and their control sockets.
//
// Owns: finding the objects (pool/live_format.h), reading a whole copy of one, asking a socket. Only objects of the own
// user are read, and nothing in them is believed beyond their size.
#ifndef VMPOOL_TOOLS_VMPOOL_LIVE_POOLS_H_
#define VMPOOL_TOOLS_VMPOOL_LIVE_POOLS_H_

#include "pool/live_format.h"
#include "tools/common/error.h"

#define LIVE_FOLDER "/dev/shm"
#define LIVE_NAME_BYTES 256u

typedef struct live_pool {
  char object[LIVE_NAME_BYTES];  // name below LIVE_FOLDER
  vmp_live_header header;        // texts terminated
  bool running;                  // its process exists
} live_pool;

// live_list finds all pools of this user below `folder` (LIVE_FOLDER, but for tests), by process and name; the caller
// frees *out. Objects that aren't whole are left out.
bool live_list(const char *folder, live_pool **out, size_t *out_count, tool_error *error);

// live_read takes the latest whole copy of one; `has_copy` false: none has been written yet. The caller frees *out.
bool live_read(const char *folder, const live_pool *pool, vmp_live_copy **out, tool_error *error);

// live_ask sends one request to a pool's control socket and returns what follows "ok " in *out_text (terminated; the
// caller frees it), with *out_bytes of body behind the first line for a snapshot. Other answers are errors.
bool live_ask(const live_pool *pool, const char *request, char **out_text, size_t *out_bytes, tool_error *error);

// live_find looks for one pool by process number, by name, or by PID-NAME; several that match are an error.
bool live_find(const char *folder, const char *which, live_pool *out, tool_error *error);

#endif  // VMPOOL_TOOLS_VMPOOL_LIVE_POOLS_H_
