// live_format.h: what a pool shows of itself in shared memory, as bytes: what pool/live.c writes and `vmpool ps` and
// `top` read. No code.
//
// Owns: the layout. A pool with live:1 has an object /vmpool-PID-POOL in the system's shared memory (/dev/shm), mode
// 0600, which is renewed ten times a second and can be read when the process hangs.
//
//     byte 0             vmp_live_header, VMP_LIVE_HEADER_BYTES long
//     4096               copy 0      copies are written in turn: copy sequence % 2 is the latest whole one
//     4096 + copy_bytes  copy 1
//
// A reader loads header.sequence = n, copies copy n % 2, and takes it if its `begin` and `end` are n, before and after.
// The writer makes `begin` of the other copy n + 1, fills it in, sets its `end`, then header.sequence: a writer that
// dies half way leaves copy n as it is.
#ifndef VMPOOL_POOL_LIVE_FORMAT_H_
#define VMPOOL_POOL_LIVE_FORMAT_H_

#include <stdint.h>

#include "pool/vmpool.h"

#define VMP_LIVE_MAGIC "VMPLIVE1"  // 8 bytes, without the terminator
#define VMP_LIVE_VERSION 1u
#define VMP_LIVE_HEADER_BYTES 4096u
#define VMP_LIVE_MAX_RANGES 64u
#define VMP_LIVE_MAX_RUNS 4096u
#define VMP_LIVE_PREFIX "vmpool-"  // of the object's name

typedef struct vmp_live_header {
  char magic[8];
  uint32_t version, copy_bytes;
  int64_t process;
  uint64_t start_monotonic_ns, granule_bytes, device_total_bytes;
  int32_t device;
  uint32_t stats_bytes;  // of vmp_pool_stats_data as the writer knows it
  char driver[16], device_name[64], pool_name[256];
  char control[108];  // name of the control socket in the abstract namespace, without the first zero; "": none
  uint32_t unused;
  uint64_t sequence;
} vmp_live_header;

typedef struct vmp_live_range {
  uint64_t address, bytes;
} vmp_live_range;

typedef enum vmp_live_state {
  VMP_LIVE_MAPPED = 1,  // a chunk that live blocks touch
  VMP_LIVE_PARKED = 2,
  VMP_LIVE_RETIRING = 3,
  VMP_LIVE_IN_TRANSIT = 4,
  VMP_LIVE_BROKEN = 5,
} vmp_live_state;

typedef struct vmp_live_run {  // neighbouring slots of one state
  uint64_t address, bytes;
  uint64_t state;  // vmp_live_state
} vmp_live_run;

typedef struct vmp_live_copy {
  uint64_t begin;
  uint64_t time_ns;  // CLOCK_MONOTONIC
  uint32_t num_ranges, num_runs;
  uint32_t runs_left_out, unused;  // runs beyond VMP_LIVE_MAX_RUNS
  vmp_pool_stats_data stats;
  vmp_live_range ranges[VMP_LIVE_MAX_RANGES];
  vmp_live_run runs[VMP_LIVE_MAX_RUNS];  // by rising address
  uint64_t end;
} vmp_live_copy;

#endif  // VMPOOL_POOL_LIVE_FORMAT_H_
