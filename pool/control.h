// control.h: a Unix socket by which a tool of the same user asks a pool for something.
//
//     request   one line               answer
//     snapshot                         ok BYTES\n, then so many bytes of JSON
//     trim BYTES                       ok released N
//     defragment BYTES                 ok moved N largest N       (0: as large as possible)
//     limit hard|soft BYTES|none       ok | ok pending
//     anything else                    error SENTENCE
//
// Owns: the socket, in the abstract namespace (no file is left behind). A connection of another user is refused before
// anything is read (SO_PEERCRED). One request per connection, served by the watcher's thread.
#ifndef VMPOOL_POOL_CONTROL_H_
#define VMPOOL_POOL_CONTROL_H_

#include "pool/pool.h"

#define VMP_CONTROL_NAME_BYTES 108u

// vmp_control_open makes the socket and writes its name. VMP_ERROR_IO.
vmp_status vmp_control_open(const vmp_pool *pool, char name[VMP_CONTROL_NAME_BYTES], int *out_fd);
// vmp_control_serve accepts one connection and answers it; waits at most a second for a slow asker.
void vmp_control_serve(int fd, vmp_pool *pool);

#endif  // VMPOOL_POOL_CONTROL_H_
