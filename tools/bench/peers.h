// peers.h: the CPU allocators that benchmarks compare with, where this machine has them.
//
// Each is loaded beside the C library's allocator, which goes on serving this program. They hand out memory of this
// machine and not of a GPU: what is compared is bookkeeping.
#ifndef VMPOOL_TOOLS_BENCH_PEERS_H_
#define VMPOOL_TOOLS_BENCH_PEERS_H_

#include "tools/bench/bench.h"
#include "tools/bench/target.h"

typedef struct bench_peer {
  const char *name;
  bench_target target;
} bench_peer;

// peers_open loads the allocators; those that can't be had are named in result->skipped_peers, with the reason. They
// stay loaded until the program ends: an allocator can't be unloaded safely.
size_t peers_open(bench_peer out_peers[BENCH_MAX_PEERS], bench_result *result);

// peers_restart starts this program anew (argv[0] is its name, argv ends with NULL) where an allocator needs to be told
// so before the program begins: jemalloc wants room for its thread-local data. Returns where that has been done
// already, or can't be done; peers_open says then what is missing.
void peers_restart(char *const *argv);

#endif  // VMPOOL_TOOLS_BENCH_PEERS_H_
